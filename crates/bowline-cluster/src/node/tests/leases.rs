//! Leases over changes of leader: they end by a command, and the next leader knows their remaining times. The tests of
//! remaining times move a manual clock.

use bowline_replica::DeleteRangeOp;
use bowline_storage::Clock;
use bowline_testing::ManualClock;
use bowline_testing::lease_id;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(60);
const ID: i64 = 5;
/// Longer than this machine may delay a member: an unrequested change of leader restarts the leases.
const ELECTION_S: u64 = 3;

/// Three members with one clock for all leases; elections use the machine's.
async fn start_with(clock: &ManualClock, change: impl Fn(&mut NodeConfig)) -> Three {
    Three::start(|config| {
        config.database = config.database.clone().clock(Arc::new(clock.clone()));
        config.lease_checkpoint_interval = INTERVAL;
        config.election_timeout = Duration::from_secs(ELECTION_S);
        change(config);
    })
    .await
}

/// Waits until the leader keeps the leases' time: an expired one is ended. Returns how many seconds of the
/// clock that took, rounded up.
async fn time_is_kept(client: &LocalClient, clock: &ManualClock) -> u64 {
    let began = clock.monotonic();
    let (id, _) = client
        .lease_grant(0, Duration::from_millis(1))
        .await
        .unwrap();
    let db = client.db();
    let is_ended = || {
        clock.advance(Duration::from_millis(50));
        db.lease(lease_id(id)).is_none()
    };
    eventually("the time of leases is kept", is_ended).await;
    (clock.monotonic() - began).as_secs() + 1
}

/// Waits until the lessor has completed a whole round since the call: one may be under way.
async fn time_is_looked_at(leader: &LocalClient) {
    let counts = &leader.core().counts;
    let rounds = || counts.lease_rounds.load(Ordering::Relaxed);
    let at = rounds();
    eventually("the time of leases is looked at", || rounds() >= at + 2).await;
}

/// Three members with a leader that keeps the leases' time.
async fn led(clock: &ManualClock, change: impl Fn(&mut NodeConfig)) -> (Three, usize) {
    let three = start_with(clock, change).await;
    let leader = three.leader().await;
    let client = three.client(leader);
    time_is_kept(&client, clock).await;
    // The members' first announcements are in the log.
    let is_named = || {
        client
            .members()
            .iter()
            .all(|member| !member.name.is_empty())
    };
    eventually("every member has said its name", is_named).await;
    (three, leader)
}

async fn grant(client: &LocalClient, ttl: Duration) {
    client.lease_grant(ID, ttl).await.unwrap();
    let put = Op::Put(PutOp {
        key: "held".into(),
        lease: ID,
        ..PutOp::default()
    });
    client.execute(Command::Txn(Txn::of(put))).await.unwrap();
}

/// The lease's remaining time from the leader, in whole seconds, rounded up.
async fn left(client: &LocalClient) -> Option<u64> {
    let status = client.lease_time_to_live(ID, false).await.unwrap();
    status.map(|status| status.remaining.as_secs_f64().ceil() as u64)
}

async fn is_held(client: &LocalClient) -> bool {
    let read = client.range(&key("held"), ReadLevel::Linearizable).await;
    value_of(&read.unwrap()).is_some()
}

/// The number of log entries.
fn entries(client: &LocalClient) -> u64 {
    client.status().raft_index
}

/// Moves the leadership; returns the next leader, and how many seconds of the clock that took.
async fn move_leader(three: &Three, from: usize, clock: &ManualClock) -> (usize, u64) {
    let to = (from + 1) % 3;
    let client = three.client(to);
    let target = client.status().member_id;
    three.move_leader(target).await;
    eventually("it leads", || client.status().leader == Some(target)).await;
    (to, time_is_kept(&client, clock).await)
}

impl Three {
    /// Waits until every member has, or has not, a record of the lease.
    async fn until_recorded(&self, is_recorded: bool) {
        let clients = [0, 1, 2].map(|number| self.client(number));
        eventually("every member knows", || {
            clients.iter().all(|client| {
                let recorded = client.core().replica.recorded_lease(lease_id(ID));
                recorded.is_some() == is_recorded
            })
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_expire_by_command_and_survive_a_change_of_leader() {
    let three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let client = three.client((leader + 1) % 3);
    let (short, _) = client.lease_grant(0, Duration::from_secs(2)).await.unwrap();
    let (long, _) = client
        .lease_grant(77, Duration::from_secs(3600))
        .await
        .unwrap();
    assert_eq!(long, 77);
    for (name, lease) in [("short", short), ("long", long)] {
        let put = Op::Put(PutOp {
            key: name.into(),
            lease,
            ..PutOp::default()
        });
        client.execute(Command::Txn(Txn::of(put))).await.unwrap();
    }
    assert_eq!(
        client.lease_keep_alive(short).await.unwrap(),
        Some(Duration::from_secs(2))
    );
    let status = client
        .lease_time_to_live(long, true)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(status.keys.len(), 1);
    assert!(status.remaining > Duration::from_secs(3500));
    assert_eq!(client.lease_time_to_live(5, true).await.unwrap(), None);
    let target = three.client((leader + 2) % 3).status().member_id;
    three.move_leader(target).await;
    eventually("another leads", || {
        three.client(0).status().leader == Some(target)
    })
    .await;
    eventually("the short one ends", || {
        client.db().get("short").unwrap().is_none()
    })
    .await;
    assert!(client.db().get("long").unwrap().is_some());
    assert_eq!(client.lease_keep_alive(short).await.unwrap(), None);
    assert!(client.lease_keep_alive(long).await.unwrap().is_some());
    three.assert_equal().await;
    three.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_lease_has_left_is_known_to_the_next_leader() {
    let clock = ManualClock::new();
    let (three, first) = led(&clock, |_| {}).await;
    grant(&three.client(first), SECOND * 600).await;
    clock.advance(SECOND * 400);
    three.until_recorded(true).await;
    let (second, took) = move_leader(&three, first, &clock).await;
    let client = three.client(second);
    // With the election timeout added.
    let known = left(&client).await.unwrap();
    assert!(
        known + took >= 200 && known <= 200 + ELECTION_S,
        "{known} s are left of 200"
    );
    clock.advance(Duration::from_secs(199 - took));
    time_is_looked_at(&client).await;
    assert!(is_held(&client).await, "it ended early");
    clock.advance(Duration::from_secs(2 + ELECTION_S + took));
    eventually("it ends", || client.db().get("held").unwrap().is_none()).await;
    three.assert_equal().await;
    three.shutdown().await;
}

/// A record that was not cleared would end a renewed lease under the next leader.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_lease_does_not_end_early_under_the_next_leader() {
    let clock = ManualClock::new();
    let (three, mut leader) = led(&clock, |_| {}).await;
    grant(&three.client(leader), SECOND * 600).await;
    for _ in 0..2 {
        clock.advance(SECOND * 400);
        three.until_recorded(true).await;
        // Through another member: it is the leader that must clear the record.
        let other = three.client((leader + 2) % 3);
        assert_eq!(
            other.lease_keep_alive(ID).await.unwrap(),
            Some(SECOND * 600)
        );
        let took;
        (leader, took) = move_leader(&three, leader, &clock).await;
        clock.advance(Duration::from_secs(599 - took));
        let client = three.client(leader);
        time_is_looked_at(&client).await;
        assert!(is_held(&client).await, "it ended early");
        assert_eq!(
            client.lease_keep_alive(ID).await.unwrap(),
            Some(SECOND * 600)
        );
        three.until_recorded(false).await;
    }
    three.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_costs_one_entry_after_each_record_and_none_otherwise() {
    let clock = ManualClock::new();
    let (three, leader) = led(&clock, |_| {}).await;
    let client = three.client(leader);
    grant(&client, SECOND * 600).await;
    let keep_alive = || async { client.lease_keep_alive(ID).await.unwrap().unwrap() };
    let before = entries(&client);
    for _ in 0..20 {
        clock.advance(SECOND * 59);
        keep_alive().await;
    }
    time_is_looked_at(&client).await;
    assert_eq!(entries(&client), before, "it was renewed often enough");
    for _ in 0..3 {
        let before = entries(&client);
        clock.advance(SECOND * 61);
        three.until_recorded(true).await;
        assert_eq!(entries(&client), before + 1);
        let renewals = (0..8).map(|_| keep_alive());
        futures_util::future::join_all(renewals).await;
        keep_alive().await;
        assert_eq!(entries(&client), before + 2, "one for all of them");
        three.until_recorded(false).await;
    }
    three.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_survives_restarts_and_reaches_who_lags_beyond_the_log() {
    let clock = ManualClock::new();
    let change = |config: &mut NodeConfig| {
        config.snapshot_entries = 50;
        config.kept_entries = 10;
    };
    let (mut three, leader) = led(&clock, change).await;
    let client = three.client(leader);
    grant(&client, SECOND * 600).await;
    let lagging = (leader + 1) % 3;
    three.stop(lagging).await;
    clock.advance(SECOND * 300);
    let is_recorded = || client.core().replica.recorded_lease(lease_id(ID)).is_some();
    eventually("it is recorded", is_recorded).await;
    for number in 0..200 {
        client.execute(put("k", &number.to_string())).await.unwrap();
    }
    three.nodes[lagging] = Some(start(&three.configs[lagging]).await);
    three.until_recorded(true).await;
    drop(client);
    // All at once: the next leader has the record from its own disk.
    for number in 0..3 {
        three.stop(number).await;
    }
    for number in 0..3 {
        three.nodes[number] = Some(start(&three.configs[number]).await);
    }
    let client = three.client(three.leader().await);
    let took = time_is_kept(&client, &clock).await;
    let known = left(&client).await.unwrap();
    assert!(
        known + took >= 300 && known <= 300 + ELECTION_S,
        "{known} s are left of 300"
    );
    drop(client);
    three.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_granted_anew_has_nothing_of_the_old_one() {
    let clock = ManualClock::new();
    let (three, leader) = led(&clock, |_| {}).await;
    let client = three.client(leader);
    grant(&client, SECOND * 600).await;
    clock.advance(SECOND * 500);
    three.until_recorded(true).await;
    let revoke = Command::LeaseRevoke { id: ID };
    assert!(client.execute(revoke).await.unwrap().reply.result.is_ok());
    assert_eq!(left(&client).await, None);
    grant(&client, SECOND * 600).await;
    three.until_recorded(false).await;
    let (next, took) = move_leader(&three, leader, &clock).await;
    assert!(left(&three.client(next)).await.unwrap() + took >= 600);
    three.shutdown().await;
}

/// The first leader of a formerly embedded database.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_the_embedded_time_is_told_and_ended_like_any_other() {
    let disk = SimDisk::new();
    let clock = ManualClock::new();
    let embedded = Db::builder()
        .vfs(Arc::new(disk.clone()) as Arc<dyn Vfs>)
        .clock(Arc::new(clock.clone()));
    let db = embedded.clone().open("db").unwrap();
    db.grant_lease_with_id(lease_id(ID), SECOND * 600).unwrap();
    db.put_with_lease("held", "v", lease_id(ID)).unwrap();
    db.close().unwrap();
    let mut config = config("one", &disk);
    config.database = embedded;
    config.lease_checkpoint_interval = INTERVAL;
    let node = start(&config).await;
    let client = node.client();
    time_is_kept(&client, &clock).await;
    clock.advance(SECOND * 400);
    let is_recorded = || client.core().replica.recorded_lease(lease_id(ID)).is_some();
    eventually("it is recorded", is_recorded).await;
    assert!(client.lease_keep_alive(ID).await.unwrap().is_some());
    assert!(!is_recorded());
    clock.advance(SECOND * 597);
    time_is_looked_at(&client).await;
    assert!(is_held(&client).await, "it ended early");
    clock.advance(SECOND * 4);
    eventually("it ends", || client.db().get("held").unwrap().is_none()).await;
    drop(client);
    node.shutdown().await.unwrap();
}

/// The leader collected the keys of a lease without a bound, however many there were. Found in the source.
#[tokio::test(flavor = "multi_thread")]
async fn keys_of_a_lease_beyond_one_reply_are_refused_and_not_collected() {
    const KEYS: usize = 80;
    let three = Three::start(|config| config.peers.message_bytes_max = 4 << 20).await;
    let leader = three.client(three.leader().await);
    leader.lease_grant(ID, 600 * SECOND).await.unwrap();
    let key = |number: usize| format!("{number:060000}");
    for number in 0..KEYS {
        let leased = Command::Txn(Txn::of(Op::Put(PutOp {
            key: key(number).into(),
            lease: ID,
            ..PutOp::default()
        })));
        surely(&leader, &leased).await;
    }
    for number in 0..3 {
        let member = three.client(number);
        let refused = member.lease_time_to_live(ID, true).await;
        assert!(
            matches!(refused, Err(Error::TooManyLeaseKeys)),
            "{:?}",
            refused.map(|it| it.map(|it| it.keys.len()))
        );
        let time = member.lease_time_to_live(ID, false).await.unwrap();
        assert!(time.is_some_and(|lease| lease.keys.is_empty()));
    }
    // With fewer keys all of them are in the reply, on each member.
    for number in 10..KEYS {
        let delete = Command::Txn(Txn::of(Op::DeleteRange(DeleteRangeOp {
            key: key(number).into(),
            ..DeleteRangeOp::default()
        })));
        surely(&leader, &delete).await;
    }
    for number in 0..3 {
        let lease = three.client(number).lease_time_to_live(ID, true).await;
        assert_eq!(lease.unwrap().map(|lease| lease.keys.len()), Some(10));
    }
    drop(leader);
    three.shutdown().await;
}

/// The end of a lease with more keys than a command may delete was refused, at each member, for ever: it and all of its
/// keys stayed, whether a client revoked it or its time was over. Found by review.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_with_too_many_keys_for_a_command_ends_in_parts() {
    const KEYS: u64 = 100;
    let clock = ManualClock::new();
    let (three, leader) = led(&clock, |_| {}).await;
    let client = three.client(leader);
    // In place of the 1000 MiB that a command may write.
    let limit = |bytes| {
        for number in 0..3 {
            let member = three.client(number);
            member.core().replica.limit_writes(bytes);
        }
    };
    surely(&client, &put("other", "v")).await;
    for is_revoked in [true, false] {
        limit(1 << 20);
        client.lease_grant(ID, SECOND * 600).await.unwrap();
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
        surely(&client, &Command::Txn(puts)).await;
        let before = client.db().revision();
        let clients = [0, 1, 2].map(|number| three.client(number));
        let have_all = || {
            clients
                .iter()
                .all(|client| client.db().revision() == before)
        };
        eventually("every member has the keys", have_all).await;
        limit(1000);
        if is_revoked {
            let other = &clients[(leader + 1) % 3];
            let (deleted, applied) = other.lease_revoke(ID).await.unwrap();
            assert_eq!(deleted, KEYS);
            assert_eq!(applied.reply.revision, other.db().revision());
            let again = other.lease_revoke(ID).await;
            let is_gone = matches!(
                again,
                Err(Error::Refused(Refusal::LeaseNotFound { id: ID }))
            );
            assert!(is_gone, "{again:?}");
        } else {
            clock.advance(SECOND * 601);
            let is_ended = || client.db().lease(lease_id(ID)).is_none();
            eventually("it ends", is_ended).await;
        }
        assert_eq!(left(&client).await, None);
        assert_eq!(client.db().range(..).unwrap().count(), 1);
        let parts = client.db().revision() - before;
        assert!((5..=20).contains(&parts), "{parts} parts");
    }
    three.assert_equal().await;
    drop(client);
    three.shutdown().await;
}

/// A deletion of more than a command may delete is refused by the member that is asked. No other hears of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_of_too_much_is_refused_before_it_is_proposed() {
    let clock = ManualClock::new();
    let (three, leader) = led(&clock, |_| {}).await;
    let client = three.client(leader);
    for number in 0..30 {
        let key = format!("k{number:030}");
        surely(&client, &put(&key, "v")).await;
    }
    client.core().replica.limit_writes(1000);
    let delete = |range_end: String| {
        Command::Txn(Txn::of(Op::DeleteRange(DeleteRangeOp {
            key: "k".into(),
            range_end: range_end.into(),
            prev_kv: false,
        })))
    };
    let before = entries(&client);
    let refused = client.execute(delete("l".to_owned())).await;
    assert!(
        matches!(refused, Err(Error::Refused(Refusal::TooManyWrites { .. }))),
        "{refused:?}"
    );
    assert_eq!(entries(&client), before);
    let half = client.execute(delete(format!("k{:030}", 15))).await;
    assert!(half.unwrap().reply.result.is_ok());
    assert_eq!(client.db().range(..).unwrap().count(), 15);
    drop(client);
    three.shutdown().await;
}

/// While a leader hands over the lead it accepts nothing. A renewal that waited for its record to be cleared and the
/// rounds of the lessor woke each other without a pause: seen in a simulation, where they filled a moment of virtual time.
#[tokio::test(flavor = "multi_thread")]
async fn a_lessor_whose_commands_are_refused_pauses() {
    let clock = ManualClock::new();
    let (mut three, leader) = led(&clock, |_| {}).await;
    let client = three.client(leader);
    grant(&client, SECOND * 600).await;
    clock.advance(SECOND * 61);
    three.until_recorded(true).await;
    // It will not take the lead. A member that is asked for a transfer asks its target first; so Raft itself is asked.
    let next = (leader + 1) % 3;
    let target = three.client(next).status().member_id;
    three.stop(next).await;
    client.core().raft.transfer_leader(target).await.unwrap();
    let holder = client.clone();
    let renewing = tokio::spawn(async move { holder.lease_keep_alive(ID).await });
    // Without a pause there are thousands in this time. Other tasks may delay a round; none comes early.
    const ROUNDS: u64 = 10;
    const TICK: Duration = Duration::from_millis(50);
    let core = client.core();
    let rounds = || core.counts.lease_rounds.load(Ordering::Relaxed);
    let (before, since) = (rounds(), tokio::time::Instant::now());
    eventually("there are some rounds", || rounds() >= before + ROUNDS).await;
    let took = since.elapsed();
    let is_refused = !renewing.is_finished();
    renewing.abort();
    three.shutdown().await;
    assert!(is_refused, "the leader has accepted the clearing");
    let least = TICK * (ROUNDS as u32 - 1);
    assert!(took >= least, "{ROUNDS} rounds in {took:?}");
}
