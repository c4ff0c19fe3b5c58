//! Users, roles, and clients that log in.

use std::time::Duration;

use bowline_client::auth::{Access, Permission};
use bowline_client::{Client, Error, EventKind, KeyRange, Operation};
use tokio::time::{sleep, timeout};

use crate::server::Cluster;
use crate::{with_cluster, with_cluster_of};

/// Longer than anything here should take.
const LONG: Duration = Duration::from_secs(20);

/// A client of a user.
fn client_of(cluster: &Cluster, name: &str, password: &str) -> Client {
    Client::builder()
        .endpoints(cluster.endpoints())
        .user(name, password)
        .connect_lazy()
        .unwrap()
}

/// Waits until changes of users are taken: not before a member has told the cluster which commands it reads, soon after
/// its start.
async fn wait_until_users_are_taken(client: &Client) {
    let auth = client.auth();
    let taken = async {
        while let Err(Error::UnknownOutcome { .. }) = auth.role_add("first").await {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LONG, taken).await.expect("a role is taken");
    auth.role_delete("first").await.unwrap();
}

/// Adds `root`, and `ann` who may use `own/` and read `shared`, and enables authentication. Gives the client of root.
async fn enabled(cluster: &Cluster) -> Client {
    let root = client_of(cluster, "root", "secret");
    wait_until_users_are_taken(&root).await;
    let auth = root.auth();
    auth.user_add("root", "secret").await.unwrap();
    let missing = auth.enable().await.unwrap_err();
    assert!(matches!(missing, Error::RootRoleMissing), "{missing:?}");
    auth.role_add("root").await.unwrap();
    auth.user_grant_role("root", "root").await.unwrap();
    auth.role_add("worker").await.unwrap();
    let own = Permission::read_write(KeyRange::prefix("own/"));
    auth.role_grant("worker", own).await.unwrap();
    let shared = Permission::read("shared");
    auth.role_grant("worker", shared).await.unwrap();
    auth.user_add("ann", "pw").await.unwrap();
    auth.user_grant_role("ann", "worker").await.unwrap();
    // Without users it was there for everybody.
    root.put("shared", "1").await.unwrap();
    auth.enable().await.unwrap();
    assert!(auth.status().await.unwrap().is_enabled);
    root
}

#[test]
fn users_and_roles_are_added_listed_changed_and_deleted() {
    with_cluster(1, |cluster| async move {
        let client = cluster.client().await;
        wait_until_users_are_taken(&client).await;
        let auth = client.auth();
        let before = auth.status().await.unwrap();
        assert!(!before.is_enabled);
        let missing = auth.enable().await.unwrap_err();
        assert!(matches!(missing, Error::RootUserMissing), "{missing:?}");

        auth.user_add("ann", "pw").await.unwrap();
        auth.user_add_without_password("bob").await.unwrap();
        assert_eq!(auth.user_list().await.unwrap(), ["ann", "bob"]);
        auth.role_add("worker").await.unwrap();
        assert_eq!(auth.role_list().await.unwrap(), ["worker"]);
        auth.user_grant_role("ann", "worker").await.unwrap();
        assert_eq!(auth.user_get("ann").await.unwrap().roles, ["worker"]);
        let logs = Permission::write(KeyRange::prefix("logs/"));
        auth.role_grant("worker", logs.clone()).await.unwrap();
        auth.role_grant("worker", Permission::read("config"))
            .await
            .unwrap();
        let permissions = auth.role_get("worker").await.unwrap().permissions;
        assert_eq!(permissions.len(), 2);
        assert!(permissions.contains(&logs), "{permissions:?}");
        let granted = permissions
            .iter()
            .find(|granted| granted.range == "config".into());
        assert_eq!(granted.map(|granted| granted.access), Some(Access::Read));

        for (error, expected) in [
            (auth.user_add("ann", "x").await.err(), "UserExists"),
            (auth.user_add("", "x").await.err(), "InvalidArgument"),
            (auth.user_get("nobody").await.err(), "UserNotFound"),
            (auth.user_delete("nobody").await.err(), "UserNotFound"),
            (
                auth.user_change_password("nobody", "x").await.err(),
                "UserNotFound",
            ),
            (auth.role_add("worker").await.err(), "RoleExists"),
            (auth.role_get("nothing").await.err(), "RoleNotFound"),
            (
                auth.user_grant_role("ann", "nothing").await.err(),
                "RoleNotFound",
            ),
            (
                auth.user_revoke_role("bob", "worker").await.err(),
                "RoleNotGranted",
            ),
            (
                auth.role_revoke("worker", "logs/").await.err(),
                "PermissionNotGranted",
            ),
        ] {
            let shown = format!("{error:?}");
            assert!(shown.contains(expected), "{expected}: {shown}");
        }

        auth.role_revoke("worker", KeyRange::prefix("logs/"))
            .await
            .unwrap();
        auth.user_revoke_role("ann", "worker").await.unwrap();
        assert!(auth.user_get("ann").await.unwrap().roles.is_empty());
        auth.role_delete("worker").await.unwrap();
        auth.user_delete("bob").await.unwrap();
        assert_eq!(auth.user_list().await.unwrap(), ["ann"]);
        assert!(auth.role_list().await.unwrap().is_empty());
        assert!(auth.status().await.unwrap().revision > before.revision);
    });
}

#[test]
fn a_user_may_do_what_its_roles_allow() {
    with_cluster(1, |cluster| async move {
        let root = enabled(&cluster).await;
        let ann = client_of(&cluster, "ann", "pw");
        ann.put("own/a", "1").await.unwrap();
        assert_eq!(ann.get("shared").await.unwrap().value(), Some(&b"1"[..]));
        assert_eq!(ann.auth().user_get("ann").await.unwrap().roles, ["worker"]);
        for error in [
            ann.put("shared", "2").await.err(),
            ann.get("other").await.err(),
            ann.range(KeyRange::all()).await.err(),
            ann.delete(KeyRange::prefix("own")).await.err(),
            ann.txn().then([Operation::put("other", "1")]).await.err(),
            ann.watch("other").await.err(),
            ann.auth().user_list().await.err(),
            ann.auth().disable().await.err(),
        ] {
            assert!(matches!(error, Some(Error::PermissionDenied)), "{error:?}");
        }
        let mut watcher = ann.watch(KeyRange::prefix("own/")).await.unwrap();
        root.put("own/b", "2").await.unwrap();
        let batch = timeout(LONG, watcher.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert!(matches!(batch.events[0].kind, EventKind::Put));

        let nobody = cluster.client().await;
        let error = nobody.put("own/a", "2").await.unwrap_err();
        assert!(matches!(error, Error::UserRequired), "{error:?}");
        let error = client_of(&cluster, "ann", "wrong").get("own/a").await;
        assert!(
            matches!(error, Err(Error::AuthenticationFailed { .. })),
            "{error:?}"
        );

        root.auth().disable().await.unwrap();
        nobody.put("own/a", "2").await.unwrap();
        // Its token is of no use any more, and of no harm.
        ann.put("other", "1").await.unwrap();
    });
}

#[test]
fn another_password_ends_logins_and_a_client_that_knows_it_logs_in_again() {
    with_cluster(1, |cluster| async move {
        let root = enabled(&cluster).await;
        let (old, other) = (
            client_of(&cluster, "ann", "pw"),
            client_of(&cluster, "ann", "pw"),
        );
        old.put("own/a", "1").await.unwrap();
        let mut watcher = old.watch(KeyRange::prefix("own/")).await.unwrap();
        other.put("own/a", "2").await.unwrap();
        let auth = root.auth();
        auth.user_change_password("ann", "pw 2").await.unwrap();
        let error = old.put("own/a", "3").await.unwrap_err();
        assert!(
            matches!(error, Error::AuthenticationFailed { .. }),
            "{error:?}"
        );
        // Back again: the client has worked all the time, as far as it knows.
        auth.user_change_password("ann", "pw").await.unwrap();
        other.put("own/a", "4").await.unwrap();
        assert_eq!(root.get("own/a").await.unwrap().value(), Some(&b"4"[..]));
        // The watch began with a login that has ended. It either goes on with the next one, or says why it ended.
        let next = timeout(LONG, watcher.next()).await.unwrap();
        assert!(
            matches!(&next, Ok(Some(_)) | Err(Error::AuthenticationFailed { .. })),
            "{next:?}"
        );
    });
}

/// Nothing uses the token for longer than it is valid, and a long-running program goes on.
#[test]
fn a_client_outlives_its_token() {
    with_cluster_of(1, &["--auth-token-ttl", "2"], |cluster| async move {
        let root = enabled(&cluster).await;
        let ann = client_of(&cluster, "ann", "pw");
        ann.put("own/a", "1").await.unwrap();
        let mut watcher = ann.watch(KeyRange::prefix("own/")).await.unwrap();
        let lease = ann.grant_lease(Duration::from_secs(9)).await.unwrap();
        let mut alive = ann.keep_alive(lease.id).await.unwrap();
        ann.put("own/leased", "1").lease(lease.id).await.unwrap();
        // Renewals come every 3 s: the token is over before each.
        for _ in 0..3 {
            timeout(LONG, alive.renewed()).await.unwrap().unwrap();
        }
        sleep(Duration::from_millis(2500)).await;
        ann.put("own/a", "2").await.unwrap();
        assert!(alive.is_alive());
        // Users change: a server looks at its watches again, and at the token of this one.
        root.auth().role_add("another").await.unwrap();
        root.put("own/b", "3").await.unwrap();
        let mut seen = Vec::new();
        while seen.len() < 3 {
            let next = timeout(LONG, watcher.next()).await.expect("changes come");
            for event in next.unwrap().unwrap().events {
                seen.push((event.entry.key.to_vec(), event.revision()));
            }
        }
        let keys: Vec<_> = seen.iter().map(|(key, _)| &key[..]).collect();
        assert_eq!(keys, [&b"own/leased"[..], b"own/a", b"own/b"]);
        // A watch that begins with a token that is over.
        sleep(Duration::from_millis(2500)).await;
        let mut second = ann.watch("shared").await.unwrap();
        root.put("shared", "2").await.unwrap();
        let batch = timeout(LONG, second.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(batch.events.len(), 1);
        ann.revoke_lease(lease.id).await.unwrap();
    });
}

/// A user loses a right to one of two ranges that it watches.
#[test]
fn a_right_that_is_taken_away_ends_its_watch_alone() {
    with_cluster(1, |cluster| async move {
        let root = enabled(&cluster).await;
        let ann = client_of(&cluster, "ann", "pw");
        let mut own = ann.watch(KeyRange::prefix("own/")).await.unwrap();
        let mut shared = ann.watch("shared").await.unwrap();
        root.auth().role_revoke("worker", "shared").await.unwrap();
        root.put("own/a", "1").await.unwrap();
        let batch = timeout(LONG, own.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(batch.events.len(), 1);
        // etcd goes on with a watch that it has permitted once; Bowline ends it.
        if option_env!("CARGO_BIN_EXE_bowline").is_some() {
            let end = timeout(LONG, shared.next()).await.unwrap();
            assert!(matches!(end, Err(Error::PermissionDenied)), "{end:?}");
        }
    });
}
