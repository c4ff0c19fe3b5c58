//! Nodes in one process that communicate over loopback, each on a disk in memory.

mod disk;
mod failover;
mod founding;
mod hostile;
mod identity;
mod leases;
mod membership;
mod restored;
mod rot;
pub(crate) mod unreachable;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::{Db, Value};
use bowline_replica::{Command, Op, OpReply, Outcome, PutOp, RangeOp, RangeReply, Refusal, Txn};
use bowline_storage::vfs::Vfs;
use bowline_testing::SimDisk;

use super::*;
use crate::error::Error;

const PATIENCE: Duration = Duration::from_secs(20);

fn config(name: &str, disk: &SimDisk) -> NodeConfig {
    NodeConfig {
        vfs: Arc::new(disk.clone()) as Arc<dyn Vfs>,
        // Nobody listens there; the URL shows that the member was started.
        advertise_client_urls: vec!["http://127.0.0.1:1".to_owned()],
        heartbeat_interval: Duration::from_millis(30),
        // A machine busy with other tests may delay a member.
        election_timeout: Duration::from_millis(600),
        ..NodeConfig::new(name, "db")
    }
}

fn put(key: &str, value: &str) -> Command {
    Command::Txn(Txn::of(Op::Put(PutOp {
        key: key.into(),
        value: Value::from(value),
        ..PutOp::default()
    })))
}

fn key(key: &str) -> RangeOp {
    RangeOp {
        key: key.into(),
        ..RangeOp::default()
    }
}

fn value_of(read: &Read<RangeReply>) -> Option<Vec<u8>> {
    let first = read.value.entries.first();
    first.map(|entry| entry.value.to_vec())
}

/// Free loopback ports, for URLs that must be known before anybody listens.
fn free_urls(count: usize) -> Vec<String> {
    let url = |_| format!("http://127.0.0.1:{}", bowline_testing::ports::free_port());
    (0..count).map(url).collect()
}

/// Retries the start: a port that was free may be taken for a moment.
async fn start(config: &NodeConfig) -> Node {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match Node::start(config.clone()).await {
            Ok(node) => return node,
            Err(Error::Bind { .. }) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Three founders of one cluster.
struct Three {
    configs: Vec<NodeConfig>,
    disks: Vec<SimDisk>,
    nodes: Vec<Option<Node>>,
}

impl Three {
    async fn start(change: impl Fn(&mut NodeConfig)) -> Three {
        let urls = free_urls(3);
        let names = ["a", "b", "c"];
        let disks: Vec<SimDisk> = (0..3).map(|_| SimDisk::new()).collect();
        let cluster = names.iter().zip(&urls);
        let cluster: Vec<_> = cluster.map(|(n, u)| ((*n).to_owned(), u.clone())).collect();
        let mut configs = Vec::new();
        let mut nodes = Vec::new();
        for (number, name) in names.iter().enumerate() {
            let mut config = NodeConfig {
                listen_peer_urls: vec![urls[number].clone()],
                initial_cluster: cluster.clone(),
                ..config(name, &disks[number])
            };
            change(&mut config);
            nodes.push(Some(start(&config).await));
            configs.push(config);
        }
        Three {
            configs,
            disks,
            nodes,
        }
    }

    fn client(&self, number: usize) -> LocalClient {
        self.nodes[number].as_ref().unwrap().client()
    }

    fn number_of(&self, id: u64) -> usize {
        let mut numbers = 0..self.nodes.len();
        let is_it = |number: &usize| {
            let node = self.nodes[*number].as_ref();
            node.is_some_and(|node| node.client().status().member_id == id)
        };
        numbers.find(is_it).unwrap()
    }

    async fn leader(&self) -> usize {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            for node in self.nodes.iter().flatten() {
                let status = node.client().status();
                if status.leader == Some(status.member_id) {
                    return self.number_of(status.member_id);
                }
            }
            assert!(tokio::time::Instant::now() < deadline, "nobody leads");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Makes `target` the leader. On a busy machine the leader may not have heard from it for a moment, or
    /// may have changed; a client would retry, and so does this.
    async fn move_leader(&self, target: u64) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            match self.client(self.leader().await).move_leader(target).await {
                Ok(()) => return,
                Err(Error::NotLeader | Error::BadTransferee { .. })
                    if tokio::time::Instant::now() < deadline => {}
                Err(error) => panic!("{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn stop(&mut self, number: usize) {
        self.nodes[number].take().unwrap().shutdown().await.unwrap();
    }

    /// Waits until all running members have applied the same, and checks that they hold the same.
    async fn assert_equal(&self) {
        let running: Vec<LocalClient> = self.nodes.iter().flatten().map(Node::client).collect();
        eventually("all have applied the same", || {
            let mut at = running.iter().map(|client| client.status().applied_index);
            let first = at.next();
            at.all(|index| Some(index) == first)
        })
        .await;
        let dump = |client: &LocalClient| {
            let entries = client.db().range(..).unwrap();
            entries.map(Result::unwrap).collect::<Vec<_>>()
        };
        let first = dump(&running[0]);
        for client in &running[1..] {
            assert_eq!(dump(client), first);
        }
        // Entries that are proposed meanwhile (the leader records leases) reach the members at different
        // times.
        eventually("all have the same in every tree", || {
            let mut hashes = running.iter().map(|client| client.tree_hashes().unwrap());
            let first = hashes.next();
            let mut same_index = hashes.filter(|(index, _)| Some(*index) == first.map(|it| it.0));
            let count = same_index.clone().count() + 1;
            assert!(same_index.all(|it| Some(it) == first), "members differ");
            count == running.len()
        })
        .await;
    }

    async fn shutdown(mut self) {
        for number in 0..self.nodes.len() {
            if self.nodes[number].is_some() {
                self.stop(number).await;
            }
        }
    }
}

/// Repeats a command whose outcome is unknown: for commands that may be executed twice.
async fn surely(client: &LocalClient, command: &Command) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let is_late = tokio::time::Instant::now() >= deadline;
        match client.execute(command.clone()).await {
            Ok(applied) if applied.reply.result.is_ok() => return,
            // An alarm may be raised late, after its cause has passed, and is then cleared.
            Ok(applied) if applied.reply.result == Err(Refusal::NoSpace) && !is_late => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(Error::Refused(Refusal::NoSpace)) if !is_late => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(Error::LeaderChanged | Error::Timeout | Error::NoLeader) if !is_late => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "not in time: {what}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_writes_reads_and_comes_back() {
    let disk = SimDisk::new();
    let config = config("one", &disk);
    let node = start(&config).await;
    let client = node.client();
    for number in 0..50 {
        let applied = client
            .execute(put(&format!("k{number}"), "v"))
            .await
            .unwrap();
        assert_eq!(applied.reply.revision, 2 + number);
    }
    for level in [
        ReadLevel::Linearizable,
        ReadLevel::Lease,
        ReadLevel::Eventual,
    ] {
        let read = client.range(&key("k49"), level).await.unwrap();
        assert_eq!(value_of(&read), Some(b"v".to_vec()), "{level:?}");
        assert_eq!((read.point.level, read.point.revision.get()), (level, 51));
    }
    let before = client.status();
    drop(client);
    node.shutdown().await.unwrap();
    // Also after a power loss instead of a shutdown.
    for disk in [disk.clone(), disk.after_power_loss()] {
        let config = NodeConfig {
            vfs: Arc::new(disk),
            ..config.clone()
        };
        let node = start(&config).await;
        let client = node.client();
        let read = client
            .range(&key("k49"), ReadLevel::Linearizable)
            .await
            .unwrap();
        assert_eq!(value_of(&read), Some(b"v".to_vec()));
        assert_eq!(read.point.revision, 51);
        let status = client.status();
        assert_eq!(status.cluster_id, before.cluster_id);
        assert_eq!(status.member_id, before.member_id);
        drop(client);
        node.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_agree_and_any_of_them_takes_any_call() {
    let mut three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    for number in 0..3 {
        let client = three.client(number);
        client
            .execute(put("from", &number.to_string()))
            .await
            .unwrap();
        // What one member acknowledged is read on all.
        for reader in 0..3 {
            for level in [ReadLevel::Linearizable, ReadLevel::Lease] {
                let read = three
                    .client(reader)
                    .range(&key("from"), level)
                    .await
                    .unwrap();
                assert_eq!(
                    value_of(&read),
                    Some(number.to_string().into_bytes()),
                    "{level:?}"
                );
            }
        }
    }
    let refused = Command::Txn(Txn::of(Op::Put(PutOp {
        key: b"k".to_vec(),
        lease: 99,
        ..PutOp::default()
    })));
    let applied = three
        .client((leader + 1) % 3)
        .execute(refused)
        .await
        .unwrap();
    assert_eq!(applied.reply.result, Err(Refusal::LeaseNotFound { id: 99 }));
    // A follower stops, the others continue, it comes back and catches up.
    let follower = (leader + 1) % 3;
    three.stop(follower).await;
    for number in 0..20 {
        three
            .client(leader)
            .execute(put(&format!("k{number}"), "v"))
            .await
            .unwrap();
    }
    let config = three.configs[follower].clone();
    three.nodes[follower] = Some(start(&config).await);
    three.assert_equal().await;
    // The leader stops, another takes over.
    three.stop(leader).await;
    let client = three.client(follower);
    surely(&client, &put("after", "the leader")).await;
    let read = client
        .range(&key("after"), ReadLevel::Linearizable)
        .await
        .unwrap();
    assert_eq!(value_of(&read), Some(b"the leader".to_vec()));
    let config = three.configs[leader].clone();
    three.nodes[leader] = Some(start(&config).await);
    three.assert_equal().await;
    let members = three.client(0).members();
    assert_eq!(members.len(), 3);
    assert!(members.iter().all(|member| !member.is_learner));
    three.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_lags_beyond_the_log_gets_the_tables() {
    let mut three = Three::start(|config| {
        config.snapshot_entries = 20;
        config.kept_entries = 5;
    })
    .await;
    let leader = three.leader().await;
    let follower = (leader + 1) % 3;
    three
        .client(leader)
        .execute(put("before", "v"))
        .await
        .unwrap();
    for round in 0..2 {
        three.stop(follower).await;
        for number in 0..100 {
            let client = three.client(leader);
            client
                .execute(put(&format!("k{number}"), &format!("{round}")))
                .await
                .unwrap();
        }
        let purged = || {
            let client = three.client(leader);
            client
                .core()
                .log
                .last_purged_log_id()
                .map_or(0, |id| id.index)
        };
        let enough = 60 + 100 * round;
        eventually("the log is trimmed", || purged() > enough).await;
        if round == 1 {
            // Again from the disk after a power loss.
            let disk = three.disks[follower].after_power_loss();
            three.configs[follower].vfs = Arc::new(disk);
        }
        let config = three.configs[follower].clone();
        three.nodes[follower] = Some(start(&config).await);
        three.assert_equal().await;
    }
    let check = three.client(follower).db().check().unwrap();
    assert!(check.is_clean(), "{check:?}");
    three.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_database_grows_to_three_members_without_a_stop() {
    let disk = SimDisk::new();
    let db = Db::builder()
        .vfs(Arc::new(disk.clone()))
        .history(bowline::History::All)
        .open("db")
        .unwrap();
    for number in 0..100 {
        db.put(format!("old{number}"), "embedded").unwrap();
    }
    let (revision, database_id) = (db.revision(), db.id());
    db.close().unwrap();
    drop(db);
    let first_config = NodeConfig {
        listen_peer_urls: free_urls(1),
        ..config("first", &disk)
    };
    let first = start(&first_config).await;
    let client = first.client();
    assert_eq!(client.db().id(), database_id);
    assert_eq!(client.db().revision(), revision);
    client.execute(put("new", "served")).await.unwrap();
    // History continues, too.
    assert_eq!(client.db().history("old7").unwrap().len(), 1);
    let first_url = client.members()[0].peer_urls[0].clone();
    let mut others = Vec::new();
    for name in ["second", "third"] {
        let url = free_urls(1).remove(0);
        let added = client.member_add(vec![url.clone()], false).await.unwrap();
        let again = client.member_add(vec![url.clone()], false).await;
        assert!(matches!(again, Err(Error::PeerUrlExists)), "{again:?}");
        let config = NodeConfig {
            listen_peer_urls: vec![url.clone()],
            is_existing: true,
            initial_cluster: vec![
                ("first".to_owned(), first_url.clone()),
                (name.to_owned(), url),
            ],
            ..config(name, &SimDisk::new())
        };
        let node = start(&config).await;
        assert_eq!(node.client().status().member_id, added.id);
        eventually("it is promoted", || {
            let members = client.members();
            members
                .iter()
                .any(|member| member.id == added.id && !member.is_learner)
        })
        .await;
        // Writes continue all the time.
        client.execute(put(name, "joined")).await.unwrap();
        others.push(node);
    }
    for node in &others {
        let other = node.client();
        let read = other
            .range(&key("old42"), ReadLevel::Linearizable)
            .await
            .unwrap();
        assert_eq!(value_of(&read), Some(b"embedded".to_vec()));
        assert_eq!(other.db().id(), database_id);
    }
    // A majority without the first.
    drop(client);
    first.shutdown().await.unwrap();
    surely(&others[0].client(), &put("without", "the first")).await;
    let first = start(&first_config).await;
    eventually("the first comes back", || {
        first.client().db().get("without").unwrap().is_some()
    })
    .await;
    for node in others.into_iter().chain([first]) {
        node.shutdown().await.unwrap();
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
async fn a_member_is_removed_and_what_cannot_be_is_refused() {
    let three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let client = three.client(leader);
    let gone = three.client((leader + 1) % 3).status().member_id;
    let unknown = client.member_remove(12345).await;
    assert!(
        matches!(unknown, Err(Error::MemberNotFound { id: 12345 })),
        "{unknown:?}"
    );
    let voter = client.member_promote(gone).await;
    assert!(matches!(voter, Err(Error::NotLearner { .. })), "{voter:?}");
    let elsewhere = three.client((leader + 1) % 3).move_leader(gone).await;
    assert!(matches!(elsewhere, Err(Error::NotLeader)), "{elsewhere:?}");
    let nobody = client.move_leader(12345).await;
    assert!(
        matches!(nobody, Err(Error::BadTransferee { id: 12345 })),
        "{nobody:?}"
    );
    client.member_remove(gone).await.unwrap();
    assert_eq!(client.members().len(), 2);
    client.execute(put("k", "two are enough")).await.unwrap();
    // A learner that was never started does not count.
    let added = client.member_add(free_urls(1), true).await.unwrap();
    assert!(added.is_learner);
    let not_ready = client.member_promote(added.id).await;
    assert!(
        matches!(not_ready, Err(Error::LearnerNotReady)),
        "{not_ready:?}"
    );
    client.execute(put("k", "still")).await.unwrap();
    three.shutdown().await;
}

/// Future voters counted as learners, of which there could be eight. etcd allows one learner, and a future
/// voter does not count.
#[tokio::test(flavor = "multi_thread")]
async fn learners_and_members_that_shall_vote_are_counted_apart() {
    let three = Three::start(|_| {}).await;
    let leader = three.leader().await;
    let client = three.client(leader);
    let learner = client.member_add(free_urls(1), true).await.unwrap();
    let second = client.member_add(free_urls(1), true).await;
    assert!(matches!(second, Err(Error::TooManyLearners)), "{second:?}");
    let voter = client.member_add(free_urls(1), false).await.unwrap();
    let second = client.member_add(free_urls(1), true).await;
    assert!(matches!(second, Err(Error::TooManyLearners)), "{second:?}");
    client.member_remove(learner.id).await.unwrap();
    // A future voter uses up no learner's slot.
    let learner = client.member_add(free_urls(1), true).await.unwrap();
    assert_eq!((learner.is_learner, voter.is_learner), (true, true));
    three.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_clients_share_entries_and_each_gets_its_own_reply() {
    let three = Three::start(|_| {}).await;
    three.leader().await;
    let mut tasks = Vec::new();
    for client_number in 0..60 {
        let client = three.client(client_number % 3);
        tasks.push(tokio::spawn(async move {
            let mut revisions = Vec::new();
            for number in 0..20 {
                let put = Op::Put(PutOp {
                    key: format!("c{client_number}").into(),
                    value: Value::from(format!("{number}").into_bytes()),
                    prev_kv: true,
                    ..PutOp::default()
                });
                let applied = client.execute(Command::Txn(Txn::of(put))).await.unwrap();
                let Ok(Outcome::Txn(reply)) = applied.reply.result else {
                    panic!("refused");
                };
                let [OpReply::Put(previous)] = &reply.replies[..] else {
                    panic!("{reply:?}");
                };
                let previous = previous.as_ref().map(|entry| entry.value.to_vec());
                let expected = (number > 0).then(|| format!("{}", number - 1).into_bytes());
                assert_eq!(previous, expected);
                revisions.push(applied.reply.revision);
            }
            revisions
        }));
    }
    let mut all = std::collections::BTreeSet::new();
    for task in tasks {
        let revisions = task.await.unwrap();
        assert!(revisions.is_sorted());
        for revision in revisions {
            assert!(all.insert(revision), "{revision} twice");
        }
    }
    assert_eq!(all.len(), 1200);
    let entries = three.client(0).status().raft_index;
    assert!(entries < 1200, "{entries} entries: nobody shared one");
    three.assert_equal().await;
    three.shutdown().await;
}

/// Strangers are read at a rate. At that rate, what follows would take minutes.
#[tokio::test(flavor = "multi_thread")]
async fn members_are_not_read_at_the_rate_of_strangers() {
    let three = Three::start(|config| {
        config.peers.port.stranger_bytes_per_second = 32 << 10;
        config.request_timeout = Duration::from_secs(10);
    })
    .await;
    three.leader().await;
    let large = "v".repeat(1 << 20);
    for number in 0..12 {
        let proposed = three.client(number % 3).execute(put("large", &large)).await;
        proposed.expect("it is sent to the leader, and by the leader");
    }
}

/// The program's main thread, which waits for the end of its node, waited for any change of Raft's metrics,
/// and was woken five times by each put at each of three members: a tenth of all their time, and a delay
/// before each answer.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_the_end_of_a_node_is_not_woken_by_puts() {
    const PUTS: usize = 200;
    let disk = SimDisk::new();
    let node = start(&config("one", &disk)).await;
    let client = node.client();
    eventually("it leads", || client.core().is_leading()).await;
    let polls = Arc::new(AtomicUsize::new(0));
    let (waiting, counted) = (node.client(), polls.clone());
    let waiting = tokio::spawn(async move {
        let mut stopped = std::pin::pin!(waiting.stopped());
        std::future::poll_fn(|task| {
            counted.fetch_add(1, Ordering::Relaxed);
            stopped.as_mut().poll(task)
        })
        .await
    });
    for number in 0..PUTS {
        surely(&client, &put("key", &number.to_string())).await;
    }
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls <= 10, "{polls} polls for {PUTS} puts");
    drop(client);
    node.shutdown().await.unwrap();
    let told = tokio::time::timeout(PATIENCE, waiting).await;
    told.expect("it is told of the end").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_cannot_be_are_refused() {
    let disk = SimDisk::new();
    let refused = |config: NodeConfig| async move { Node::start(config).await.unwrap_err() };
    let base = || config("one", &disk);
    let error = refused(NodeConfig {
        listen_peer_urls: vec!["127.0.0.1:1".to_owned()],
        ..base()
    })
    .await;
    assert!(
        matches!(
            error,
            Error::Config {
                setting: "listen-peer-urls",
                ..
            }
        ),
        "{error}"
    );
    let error = refused(NodeConfig {
        election_timeout: Duration::from_millis(40),
        ..base()
    })
    .await;
    assert!(
        matches!(
            error,
            Error::Config {
                setting: "election-timeout",
                ..
            }
        ),
        "{error}"
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", taken.local_addr().unwrap());
    let error = refused(NodeConfig {
        listen_peer_urls: vec![url],
        ..base()
    })
    .await;
    assert!(matches!(error, Error::Bind { .. }), "{error}");
    let error = refused(NodeConfig {
        is_existing: true,
        request_timeout: Duration::from_millis(300),
        initial_cluster: vec![
            ("one".to_owned(), "http://127.0.0.1:9".to_owned()),
            ("two".to_owned(), free_urls(1).remove(0)),
        ],
        ..base()
    })
    .await;
    assert!(matches!(error, Error::Peer { .. }), "{error}");
    // A database is not silently joined, nor served by several members at once.
    let db = Db::builder()
        .vfs(Arc::new(disk.clone()))
        .open("db")
        .unwrap();
    db.put("k", "v").unwrap();
    db.close().unwrap();
    drop(db);
    let cluster = vec![
        ("one".to_owned(), "http://127.0.0.1:9".to_owned()),
        ("two".to_owned(), "http://127.0.0.1:10".to_owned()),
    ];
    for is_existing in [false, true] {
        let error = refused(NodeConfig {
            is_existing,
            initial_cluster: cluster.clone(),
            ..base()
        })
        .await;
        assert!(matches!(error, Error::Directory { .. }), "{error}");
    }
}

/// A status call held a read lock and took it a second time. If Raft waited for the write lock in between,
/// each waited for the other: the member was deadlocked. Found by `faults` of the program, where a follower
/// neither voted nor stood for election.
#[test]
fn asking_a_member_how_it_is_does_not_stop_it() {
    let (done, is_done) = std::sync::mpsc::channel();
    // Blocked threads are left behind: the test must end.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let disk = SimDisk::new();
            let urls = free_urls(1);
            let node = start(&NodeConfig {
                listen_peer_urls: urls.clone(),
                initial_cluster: vec![("a".to_owned(), urls[0].clone())],
                ..config("a", &disk)
            })
            .await;
            let client = node.client();
            client.read_barrier(ReadLevel::Linearizable).await.unwrap();
            for _ in 0..2 {
                let (client, done) = (client.clone(), done.clone());
                std::thread::spawn(move || {
                    // Until the receiver is gone.
                    while done.send(false).is_ok() {
                        std::hint::black_box((client.status(), client.metrics()));
                    }
                });
            }
            for number in 0..500 {
                client.execute(put("k", &number.to_string())).await.unwrap();
            }
            done.send(true).unwrap();
        });
    });
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        match is_done.recv_timeout(left) {
            Ok(true) => return,
            Ok(false) if !left.is_zero() => {}
            other => panic!("the member stands still: {other:?}"),
        }
    }
}

/// The revision of a reply was looked up after the read: it could be newer than the data, and a client that
/// then watched from the next one missed changes. Found by review.
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_holds_everything_up_to_the_revision_that_it_names() {
    let node = start(&config("one", &SimDisk::new())).await;
    let client = node.client();
    client.execute(put("k", "first")).await.unwrap();
    let writer = node.client();
    let writing = tokio::spawn(async move {
        for number in 0..500 {
            writer.execute(put("k", &number.to_string())).await.unwrap();
        }
    });
    // Every revision writes this key, so the newest entry shows the revision that was read.
    let range = RangeOp {
        range_end: b"l".to_vec(),
        ..key("k")
    };
    let mut reads = 0u64;
    while !writing.is_finished() {
        for op in [&range, &key("k")] {
            let read = client.range(op, ReadLevel::Eventual).await.unwrap();
            assert_eq!(read.value.entries[0].mod_revision, read.point.revision);
            reads += 1;
        }
        tokio::task::yield_now().await;
    }
    writing.await.unwrap();
    assert!(reads > 100, "{reads}");
    drop(client);
    node.shutdown().await.unwrap();
}
