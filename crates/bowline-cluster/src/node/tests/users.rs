//! Rights over members, each of which knows those that it has applied.

use bowline_replica::{Caller, Grant, Permission, Session, UsersChange, UsersRefusal};

use super::failover::block_state_machine;
use super::*;

/// Changes users, once every member takes such commands.
async fn change(client: &LocalClient, change: UsersChange) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let process = client.by(&Caller::Process);
    while let Err(error) = process.change_users(change.clone()).await {
        assert!(tokio::time::Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A member that had not applied a grant yet refused a renewal, by which the client's stream of renewals ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn a_renewal_is_refused_only_by_a_member_that_has_caught_up() {
    const ID: i64 = 5;
    const TTL: Duration = Duration::from_secs(1_000);
    let three = Three::start(|config| config.election_timeout = Duration::from_secs(4)).await;
    let first = three.leader().await;
    let (leader, behind) = (three.client(first), three.client((first + 1) % 3));
    for name in ["root", "ann"] {
        let (name, password) = (name.to_owned(), None);
        change(&leader, UsersChange::AddUser { name, password }).await;
    }
    let name = "held".to_owned();
    change(&leader, UsersChange::AddRole { name }).await;
    for (user, role) in [("root", "root"), ("ann", "held")] {
        let (user, role) = (user.to_owned(), role.to_owned());
        change(&leader, UsersChange::GrantRole { user, role }).await;
    }
    change(&leader, UsersChange::Enable).await;
    leader.lease_grant(ID, TTL).await.unwrap();
    let held = Op::Put(PutOp {
        key: "held".into(),
        lease: ID,
        ..PutOp::default()
    });
    surely(&leader, &Command::Txn(Txn::of(held))).await;
    let ann = Caller::User(Arc::new(Session::without_token("ann", u64::MAX)));
    // With all of that it refuses what is not granted.
    behind.read_barrier(ReadLevel::Linearizable).await.unwrap();
    let refused = behind.by(&ann).lease_keep_alive(ID).await;
    let denied = Refusal::Users(UsersRefusal::PermissionDenied);
    assert!(
        matches!(&refused, Err(Error::Refused(refusal)) if *refusal == denied),
        "{refused:?}"
    );
    let (release, holding) = block_state_machine(&behind);
    let permission = Permission::Keys {
        grant: Grant::Write,
        key: b"held".to_vec(),
        range_end: Vec::new(),
    };
    let role = "held".to_owned();
    change(&leader, UsersChange::GrantPermission { role, permission }).await;
    let renewing = tokio::spawn({
        let behind = behind.clone();
        async move { behind.by(&ann).lease_keep_alive(ID).await }
    });
    let waiting = &behind.core().counts.waiting_to_apply;
    eventually("the renewal waits, or is answered", || {
        waiting.load(Ordering::Relaxed) > 0 || renewing.is_finished()
    })
    .await;
    assert!(!renewing.is_finished(), "it was answered meanwhile");
    drop(release);
    holding.join().unwrap();
    assert_eq!(renewing.await.unwrap().unwrap(), Some(TTL));
    drop((leader, behind));
    three.shutdown().await;
}
