//! Rights of calls that are no commands, at a member that lags: what its old state allows, the leader refuses.

use bowline_replica::{Caller, Grant, Need, Permission, Session, UsersChange, UsersRefusal};

use super::repair::{damaged_and_held_back, hold_back, is_sound};
use super::*;

/// Makes a change of users, once every member has said that it knows such commands.
async fn change(client: &LocalClient, change: UsersChange) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let client = client.by(&Caller::Process);
    while let Err(error) = client.change_users(change.clone()).await {
        assert!(tokio::time::Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Adds a user, gives it a role, and logs it in.
async fn add(client: &LocalClient, name: &str, role: &str) -> Caller {
    let (user, role) = (name.to_owned(), role.to_owned());
    let (name, password) = (user.clone(), None);
    change(client, UsersChange::AddUser { name, password }).await;
    let since = client.users().revision();
    let session = Session::without_token(&user, since);
    change(client, UsersChange::GrantRole { user, role }).await;
    Caller::User(Arc::new(session))
}

/// Has a member apply nothing from here on. It goes on to serve what it has.
async fn hold(three: &Three, member: usize) {
    let next = three.client(three.leader().await).core().applied_next();
    let core = three.client(member).core().clone();
    eventually("it has applied what was before", || {
        core.applied_next() >= next
    })
    .await;
    damaged_and_held_back(three, member, "the test wants it").await;
}

async fn let_go(three: &Three, member: usize) {
    hold_back(three, member, false);
    is_sound(three, member).await;
}

fn is_refused<T>(result: &Result<T, Error>, reason: UsersRefusal) -> bool {
    matches!(result, Err(Error::Refused(Refusal::Users(refused))) if *refused == reason)
}

/// The right to change members was asked for in the state of the member that was called. Where that one lagged, a user
/// changed them after it was acknowledged that the user had lost the role root.
#[tokio::test]
async fn a_revoked_root_changes_no_members_through_a_member_that_lags() {
    let three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let (lagging, third) = ((leader + 1) % 3, (leader + 2) % 3);
    let (client, behind) = (three.client(leader), three.client(lagging));
    let id = three.client(third).status().member_id;
    let root = add(&client, "root", "root").await;
    let eve = add(&client, "eve", "root").await;
    change(&client, UsersChange::Enable).await;
    hold(&three, lagging).await;
    let of_eve = behind.by(&eve);
    let unknown = of_eve.member_remove(7).await;
    assert!(
        matches!(unknown, Err(Error::MemberNotFound { id: 7 })),
        "{unknown:?}"
    );
    let (user, role) = ("eve".to_owned(), "root".to_owned());
    change(&client, UsersChange::RevokeRole { user, role }).await;
    let known = of_eve.check(|each| each(Need::Root));
    assert!(known.is_ok(), "it knows of that: {known:?}");
    let refused = [
        of_eve.member_remove(id).await,
        of_eve.member_add(free_urls(1), true).await.map(drop),
        of_eve.member_update(id, free_urls(1)).await,
        of_eve.member_promote(id).await,
        of_eve.member_repair(id).await,
        three
            .client(three.leader().await)
            .by(&eve)
            .move_leader(id)
            .await,
    ];
    for refused in refused {
        assert!(
            is_refused(&refused, UsersRefusal::PermissionDenied),
            "{refused:?}"
        );
    }
    let name = "eve".to_owned();
    change(&client, UsersChange::DeleteUser { name }).await;
    let refused = of_eve.member_remove(id).await;
    assert!(
        is_refused(&refused, UsersRefusal::InvalidToken),
        "{refused:?}"
    );
    // Who may is served, although this member lags.
    let unknown = behind.by(&root).member_remove(7).await;
    assert!(
        matches!(unknown, Err(Error::MemberNotFound { id: 7 })),
        "{unknown:?}"
    );
    assert_eq!(client.members().len(), 3);
    let_go(&three, lagging).await;
    drop((client, behind));
    three.shutdown().await;
}

/// The same where authentication was enabled since: the member that lagged asked for no right at all.
#[tokio::test]
async fn nobody_changes_members_through_a_member_that_does_not_know_of_users_yet() {
    let three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let (lagging, third) = ((leader + 1) % 3, (leader + 2) % 3);
    let (client, behind) = (three.client(leader), three.client(lagging));
    let id = three.client(third).status().member_id;
    add(&client, "root", "root").await;
    hold(&three, lagging).await;
    let of_nobody = behind.clone().for_callers();
    let unknown = of_nobody.member_remove(7).await;
    assert!(
        matches!(unknown, Err(Error::MemberNotFound { id: 7 })),
        "{unknown:?}"
    );
    change(&client, UsersChange::Enable).await;
    assert!(!behind.are_users_enabled(), "it knows of that");
    let refused = [
        of_nobody.member_remove(id).await,
        of_nobody.member_update(id, free_urls(1)).await,
        of_nobody.member_repair(id).await,
    ];
    for refused in refused {
        assert!(is_refused(&refused, UsersRefusal::NoUser), "{refused:?}");
    }
    assert_eq!(client.members().len(), 3);
    let_go(&three, lagging).await;
    drop((client, behind, of_nobody));
    three.shutdown().await;
}

/// The keys of a lease are those that the leader knows, and were shown by the rights that the member which was called
/// knew: a key that was attached after a revocation was shown to the user who had lost the right to read it. The lease
/// could be kept alive, too.
#[tokio::test]
async fn keys_of_a_lease_are_shown_by_the_rights_of_now() {
    const ID: i64 = 5;
    let ttl = Duration::from_secs(600);
    let three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let lagging = (leader + 1) % 3;
    let (client, behind) = (three.client(leader), three.client(lagging));
    let role = || "worker".to_owned();
    let jobs = Permission::Keys {
        grant: Grant::ReadWrite,
        key: b"jobs/".to_vec(),
        range_end: b"jobs0".to_vec(),
    };
    change(&client, UsersChange::AddRole { name: role() }).await;
    let granted = UsersChange::GrantPermission {
        role: role(),
        permission: jobs.clone(),
    };
    change(&client, granted).await;
    add(&client, "root", "root").await;
    let eve = add(&client, "eve", "worker").await;
    change(&client, UsersChange::Enable).await;
    client.lease_grant(ID, ttl).await.unwrap();
    let attach = |key: &str| {
        let put = PutOp {
            key: key.into(),
            lease: ID,
            ..PutOp::default()
        };
        Command::Txn(Txn::of(Op::Put(put)))
    };
    surely(&client, &attach("jobs/1")).await;
    hold(&three, lagging).await;
    let of_eve = behind.by(&eve);
    let told = of_eve.lease_time_to_live(ID, true).await.unwrap().unwrap();
    assert_eq!(told.keys.len(), 1);
    assert_eq!(of_eve.lease_keep_alive(ID).await.unwrap(), Some(ttl));
    let revoked = UsersChange::RevokePermission {
        role: role(),
        permission: jobs,
    };
    change(&client, revoked).await;
    surely(&client, &attach("jobs/2")).await;
    let known = of_eve.check(|each| each(Need::read(b"jobs/2", b"")));
    assert!(known.is_ok(), "it knows of that: {known:?}");
    let denied = UsersRefusal::PermissionDenied;
    let told = of_eve.lease_time_to_live(ID, true).await;
    assert!(is_refused(&told, denied), "{told:?}");
    let kept = of_eve.lease_keep_alive(ID).await;
    assert!(is_refused(&kept, denied), "{kept:?}");
    let told = of_eve.lease_time_to_live(ID, false).await.unwrap();
    assert!(told.is_some(), "it takes no more than to be a user");
    let name = "eve".to_owned();
    change(&client, UsersChange::DeleteUser { name }).await;
    let told = of_eve.lease_time_to_live(ID, false).await;
    assert!(is_refused(&told, UsersRefusal::InvalidToken), "{told:?}");
    let_go(&three, lagging).await;
    drop((client, behind));
    three.shutdown().await;
}

/// The parts in which a lease with many keys ends are filled to the bound, and had no room for their author then: a user's
/// revocation proposed the same refused part for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_ends_a_lease_with_too_many_keys_for_a_command() {
    const ID: i64 = 5;
    const KEYS: u64 = 100;
    let three = Three::start(|_| {}).await;
    let clients = [0, 1, 2].map(|number| three.client(number));
    let client = &clients[three.leader().await];
    let root = add(client, "root", "root").await;
    let of_long_name = add(client, &"n".repeat(80), "root").await;
    change(client, UsersChange::Enable).await;
    // In place of the 1000 MiB that a command may write.
    let limit = |bytes| {
        for client in &clients {
            client.core().replica.limit_writes(bytes);
        }
    };
    for user in [&root, &of_long_name] {
        limit(1 << 20);
        let by = client.by(user);
        by.lease_grant(ID, Duration::from_secs(600)).await.unwrap();
        let leased = |number: u64| {
            Op::Put(PutOp {
                key: format!("k{number:030}").into(),
                lease: ID,
                ..PutOp::default()
            })
        };
        let puts = Txn {
            success: (0..KEYS).map(leased).collect(),
            ..Txn::default()
        };
        let put = by.execute(Command::Txn(puts)).await.unwrap();
        let revision = put.reply.revision;
        let have_all = || { clients.iter() }.all(|client| client.db().revision() >= revision);
        eventually("every member has the keys", have_all).await;
        limit(1000);
        let revoked = tokio::time::timeout(PATIENCE, by.lease_revoke(ID)).await;
        let (deleted, _) = revoked.expect("it ends").unwrap();
        assert_eq!(deleted, KEYS);
    }
    three.assert_equal().await;
    drop(clients);
    three.shutdown().await;
}
