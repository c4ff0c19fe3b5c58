//! Three members in one process, over loopback: they elect, agree, lose one, catch it up from the
//! log and by a snapshot, and hand over the lead.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bowline_cluster::peer::{ClusterMembers, Confirmation, PeerOptions, Peers};
use bowline_cluster::raft::log_store::{LogStore, LogStoreOptions};
use bowline_cluster::raft::network::{NetworkFactory, PeerService, peer_service};
use bowline_cluster::types::{Member, NodeId, Proposal, TypeConfig};
use bowline_proto::peer::{Answer, LeaseState, Question, answer, question};
use bowline_storage::vfs::{MemoryVfs, Vfs};
use bowline_testing::ports::free_port;
use bytes::Bytes;
use futures_util::StreamExt;
use openraft::async_runtime::WatchReceiver;
use openraft::{Config, Raft, ReadPolicy, SnapshotPolicy};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Status};

use common::{DIR, Machine, State, open_store};

const CLUSTER: u64 = 99;

/// Answers enough to see that a question arrives, and from whom.
struct Echo;

#[tonic::async_trait]
impl PeerService for Echo {
    async fn propose(&self, _: NodeId, term: u64, proposal: Bytes) -> Result<(), Status> {
        match &proposal[..] {
            b"p" if term == 7 => Ok(()),
            _ => Err(Status::data_loss("another proposal")),
        }
    }
    async fn read_index(&self, _: NodeId, level: Confirmation) -> Result<u64, Status> {
        Ok(match level {
            Confirmation::Majority => 1,
            Confirmation::Lease => 2,
        })
    }
    async fn members(&self, _: NodeId, _: bool) -> Result<ClusterMembers, Status> {
        Ok(ClusterMembers {
            cluster_id: CLUSTER,
            database_id: 1 << 100,
            leader_id: None,
            members: Vec::new(),
            member_id: 1,
            incarnation: 0,
            is_blank: false,
            is_unfit_to_lead: false,
        })
    }
    async fn ask(&self, from: NodeId, question: Question) -> Result<Answer, Status> {
        let Some(question::Question::LeaseKeepAlive(id)) = question.question else {
            return Err(Status::not_found("no lease"));
        };
        let lease = LeaseState {
            is_there: true,
            id,
            granted_ms: from,
            ..LeaseState::default()
        };
        let answer = Some(answer::Answer::Lease(lease));
        Ok(Answer { answer })
    }
}

fn config() -> Arc<Config> {
    let config = Config {
        heartbeat_interval: 100,
        election_timeout_min: 400,
        election_timeout_max: 800,
        enable_pre_vote: Some(true),
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 10,
        purge_batch_size: 1,
        ..Config::default()
    };
    Arc::new(config.validate().expect("config"))
}

/// What outlives a member's process.
struct Machinery {
    id: NodeId,
    vfs: Arc<dyn Vfs>,
    state: Arc<Mutex<State>>,
    address: SocketAddr,
}

struct Running {
    raft: Raft<TypeConfig, Machine>,
    store: LogStore,
    peers: Peers,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl Machinery {
    async fn start(&self, listener: Option<TcpListener>) -> Running {
        let applied = self.state.lock().applied;
        let store = open_store(
            self.vfs.clone(),
            self.id,
            applied,
            LogStoreOptions::default(),
        );
        let peers = Peers::new(CLUSTER, self.id, PeerOptions::default());
        let machine = Machine::new(self.vfs.clone(), self.state.clone(), Some(store.clone()));
        let network = NetworkFactory::new(peers.clone());
        let raft = Raft::new(self.id, config(), network, store.clone(), machine)
            .await
            .expect("start");
        let data_dir = std::path::Path::new(DIR);
        let (vfs, echo) = (self.vfs.clone(), Arc::new(Echo));
        let service = peer_service(
            raft.clone(),
            vfs,
            data_dir,
            Arc::default(),
            peers.clone(),
            echo,
        )
        .into_server();
        let listener = match listener {
            Some(listener) => listener,
            None => TcpListener::bind(self.address).await.expect("bind again"),
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(async move {
            let serving = tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(TcpListenerStream::new(listener));
            // Not gracefully: connections end as those of a killed process do.
            tokio::select! {
                result = serving => result.expect("serve"),
                _ = stopped => {}
            }
        });
        Running {
            raft,
            store,
            peers,
            stop,
            server,
        }
    }

    fn values(&self) -> Vec<Bytes> {
        self.state.lock().values.clone()
    }
}

impl Running {
    async fn stop(self) {
        let _ = self.stop.send(());
        self.server.await.expect("server");
        self.raft.shutdown().await.expect("shutdown");
        self.store.close().expect("close");
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not within 20 s: {what}");
}

async fn leader(running: &[Option<Running>]) -> usize {
    let mut found = None;
    until("a leader", || {
        found = running
            .iter()
            .position(|node| node.as_ref().is_some_and(|node| node.raft.is_leader()));
        found.is_some()
    })
    .await;
    let found = found.expect("found");
    // A new leader refuses writes until a majority has answered it.
    let raft = &running[found].as_ref().expect("runs").raft;
    leads(raft).await;
    found
}

async fn leads(raft: &Raft<TypeConfig, Machine>) {
    for _ in 0..100 {
        if raft
            .ensure_linearizable(ReadPolicy::ReadIndex)
            .await
            .is_ok()
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("a leader that no majority follows");
}

async fn write(raft: &Raft<TypeConfig, Machine>, numbers: std::ops::Range<u64>) {
    let proposals: Vec<_> = numbers
        .map(|number| Proposal(Bytes::from(number.to_string())))
        .collect();
    let count = proposals.len();
    let mut results = raft.client_write_many(proposals).await.expect("write");
    let mut done = 0;
    while let Some(result) = results.next().await {
        let response = result.expect("alive").expect("applied");
        let applied = response.response.0.expect("counted");
        assert!(applied.downcast_ref::<u64>().is_some());
        done += 1;
    }
    assert_eq!(done, count);
}

fn expected(count: u64) -> Vec<Bytes> {
    (0..count).map(|n| Bytes::from(n.to_string())).collect()
}

#[test]
fn three_members_agree_through_stops_snapshots_and_transfers() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("runtime");
    runtime.block_on(scenario());
}

async fn scenario() {
    let mut nodes = Vec::new();
    let mut running = Vec::new();
    for id in 1..=3 {
        let listener = TcpListener::bind(("127.0.0.1", free_port()))
            .await
            .expect("bind");
        let node = Machinery {
            id,
            vfs: Arc::new(MemoryVfs::default()),
            state: Arc::default(),
            address: listener.local_addr().expect("address"),
        };
        running.push(Some(node.start(Some(listener)).await));
        nodes.push(node);
    }
    let members: std::collections::BTreeMap<_, _> = nodes
        .iter()
        .map(|node| {
            let member = Member {
                name: format!("node{}", node.id),
                peer_urls: vec![format!("http://{}", node.address)],
                ..Member::default()
            };
            (node.id, member)
        })
        .collect();
    let first = running[0].as_ref().expect("runs");
    first
        .raft
        .initialize(members.clone())
        .await
        .expect("initialize");

    // Elect, and write.
    let lead = leader(&running).await;
    let raft = running[lead].as_ref().expect("runs").raft.clone();
    write(&raft, 0..1000).await;
    for node in &nodes {
        until("all have all", || node.values() == expected(1000)).await;
    }
    raft.ensure_linearizable(ReadPolicy::ReadIndex)
        .await
        .expect("read");

    // What is the node's to answer.
    let follower = (lead + 1) % 3;
    let target = nodes[lead].id;
    let asking = running[follower].as_ref().expect("runs");
    let client = asking.peers.client(target, &members[&target]);
    client.propose(7, "p".into()).await.expect("answer");
    let error = client.propose(7, "q".into()).await.expect_err("another");
    assert_eq!(error.code(), Code::DataLoss);
    assert_eq!(
        client
            .read_index(Confirmation::Lease)
            .await
            .expect("answer"),
        2
    );
    assert_eq!(
        client.members().await.expect("answer").database_id,
        1 << 100
    );
    let ask = |question| Question {
        question: Some(question),
        caller: None,
    };
    let question = ask(question::Question::LeaseKeepAlive(7));
    let answer = client.ask(question).await.expect("answer");
    let Some(answer::Answer::Lease(lease)) = answer.answer else {
        panic!("{answer:?}");
    };
    assert_eq!((lease.id, lease.granted_ms), (7, nodes[follower].id));
    let question = ask(question::Question::MoveLeader(7));
    let error = client.ask(question).await.expect_err("none");
    assert_eq!(error.code(), Code::NotFound);
    let stranger = Peers::new(CLUSTER + 1, 7, PeerOptions::default());
    let error = stranger
        .client(target, &members[&target])
        .propose(7, "p".into())
        .await;
    assert_eq!(error.expect_err("refused").code(), Code::FailedPrecondition);
    let newcomer = Peers::new(0, 0, PeerOptions::default());
    let asking = newcomer.client_at(&members[&target].peer_urls[0]);
    assert_eq!(asking.members().await.expect("welcome").cluster_id, CLUSTER);

    // One stops, and catches up from the log.
    running[follower].take().expect("runs").stop().await;
    write(&raft, 1000..1300).await;
    running[follower] = Some(nodes[follower].start(None).await);
    until("caught up from the log", || {
        nodes[follower].values() == expected(1300)
    })
    .await;

    // It stops again, and the log it needs is purged: a snapshot.
    running[follower].take().expect("runs").stop().await;
    write(&raft, 1300..1600).await;
    raft.trigger().snapshot().await.expect("snapshot");
    let metrics = raft.metrics();
    until("a snapshot", || {
        metrics
            .borrow_watched()
            .snapshot
            .is_some_and(|id| id.index >= 1600)
    })
    .await;
    let applied = metrics
        .borrow_watched()
        .last_applied
        .expect("applied")
        .index;
    raft.trigger().purge_log(applied).await.expect("purge");
    until("purged", || {
        metrics
            .borrow_watched()
            .purged
            .is_some_and(|id| id.index >= 1400)
    })
    .await;
    running[follower] = Some(nodes[follower].start(None).await);
    until("caught up by a snapshot", || {
        nodes[follower].values() == expected(1600)
    })
    .await;
    write(&raft, 1600..1700).await;
    until("goes on behind the snapshot", || {
        nodes[follower].values() == expected(1700)
    })
    .await;
    // It was not the log alone.
    let behind = running[follower].as_ref().expect("runs");
    assert!(
        behind
            .store
            .last_purged_log_id()
            .is_some_and(|id| id.index >= 1500)
    );
    behind.store.flush().await.expect("flush");
    running[follower].take().expect("runs").stop().await;
    running[follower] = Some(nodes[follower].start(None).await);
    write(&raft, 1700..1710).await;
    until("restarted behind the gap", || {
        nodes[follower].values() == expected(1710)
    })
    .await;

    // Hand over.
    let heir = nodes[follower].id;
    raft.trigger()
        .transfer_leader(heir)
        .await
        .expect("transfer");
    let next = running[follower].as_ref().expect("runs").raft.clone();
    until("the heir leads", || next.is_leader()).await;
    leads(&next).await;
    write(&next, 1710..1720).await;

    // The leader dies; the others go on.
    running[follower].take().expect("runs").stop().await;
    let lead = leader(&running).await;
    let raft = running[lead].as_ref().expect("runs").raft.clone();
    write(&raft, 1720..1730).await;
    for (node, _) in nodes
        .iter()
        .zip(&running)
        .filter(|(_, running)| running.is_some())
    {
        until("both have all", || node.values() == expected(1730)).await;
    }
    for running in running.into_iter().flatten() {
        running.stop().await;
    }
}
