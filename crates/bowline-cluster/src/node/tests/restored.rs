//! The first votes of a restored cluster.

use std::path::Path;

use bowline_proto::peer as proto;
use bowline_proto::peer::peer_client::PeerClient as GrpcClient;
use bowline_storage::vfs;

use super::*;
use crate::node::service::Service;
use crate::raft::network::PeerService;
use crate::types::{LogId, Vote};

/// A saved copy of a cluster of one, with a key.
struct SavedCopy {
    frozen: Frozen,
    contents: Vec<u8>,
}

impl SavedCopy {
    async fn make() -> SavedCopy {
        let disk = SimDisk::new();
        let node = start(&config("old", &disk)).await;
        let client = node.client();
        surely(&client, &put("k", "in the copy")).await;
        let frozen = client.freeze().unwrap();
        let mut contents = Vec::new();
        for table in &frozen.tables {
            let mut bytes = vec![0; table.bytes as usize];
            vfs::read_exact_at(&*table.file, Path::new("saved"), &mut bytes, 0).unwrap();
            contents.extend_from_slice(&bytes);
        }
        drop(client);
        node.shutdown().await.unwrap();
        SavedCopy { frozen, contents }
    }

    fn restore(&self, config: &NodeConfig) {
        let tables = self.frozen.tables.iter();
        let tables: Vec<_> = tables.map(|t| (t.name.clone(), t.bytes)).collect();
        let mut saved = Saved {
            path: Path::new("saved"),
            sha256: [7; 32],
            index: self.frozen.index,
            revision: self.frozen.revision,
            state: &self.frozen.state,
            tables: &tables,
            contents: &mut &self.contents[..],
        };
        restore(&mut saved, config).unwrap();
    }

    /// The settings of three members of one cluster, each restored on a disk of its own.
    fn restore_three(&self) -> Three {
        let urls = free_urls(3);
        let cluster = ["a", "b", "c"].into_iter().zip(&urls);
        let cluster: Vec<_> = cluster.map(|(n, u)| (n.to_owned(), u.clone())).collect();
        let disks: Vec<SimDisk> = (0..3).map(|_| SimDisk::new()).collect();
        let config = |number: usize| NodeConfig {
            listen_peer_urls: vec![urls[number].clone()],
            initial_cluster: cluster.clone(),
            ..config(&cluster[number].0, &disks[number])
        };
        let configs: Vec<_> = (0..3).map(config).collect();
        for config in &configs {
            self.restore(config);
        }
        Three {
            configs,
            disks,
            nodes: vec![None, None, None],
        }
    }

    /// Restores a member once more, on an empty disk.
    fn restore_again(&self, three: &mut Three, number: usize) {
        let disk = SimDisk::new();
        three.configs[number].vfs = Arc::new(disk.clone());
        three.disks[number] = disk;
        self.restore(&three.configs[number]);
    }
}

impl Three {
    async fn start_again(&mut self, number: usize) {
        self.nodes[number] = Some(start(&self.configs[number].clone()).await);
    }

    /// Waits until a member has asked the others so often, from a time on at which its pauses are the longest, that
    /// elections were over in the meantime: they and the rounds wait for the same timers.
    async fn nobody_leads(&self, asking: usize) {
        let client = self.client(asking);
        let rounds = || {
            let counts = &client.core().counts;
            counts.admission_rounds.load(Ordering::Relaxed)
        };
        // The first five pauses are shorter than half a second, and add up to it.
        let election = client.core().options.election_timeout;
        let elections = 4 * election.as_millis().div_ceil(500) as u64;
        let enough = rounds() + 5 + elections;
        eventually("it asks the others", || rounds() >= enough).await;
        for node in self.nodes.iter().flatten() {
            assert_eq!(node.client().status().leader, None);
        }
        assert!(client.core().is_unproven());
    }
}

/// Members that were restored from one copy vote once all of them have been started, in whatever order.
#[tokio::test(flavor = "multi_thread")]
async fn restored_members_vote_when_all_have_been_started() {
    let copy = SavedCopy::make().await;
    let mut three = copy.restore_three();
    three.start_again(1).await;
    three.start_again(0).await;
    three.nobody_leads(0).await;
    // Nothing is known to a member that is started again.
    three.stop(0).await;
    three.start_again(0).await;
    three.nobody_leads(1).await;
    three.start_again(2).await;
    surely(&three.client(0), &put("k", "of all three")).await;
    three.assert_equal().await;
    for number in 0..3 {
        let client = three.client(number);
        eventually("it votes", || !client.core().owes()).await;
    }
    // Each has voted or followed a leader: two of them suffice from now on.
    for number in 0..3 {
        three.stop(number).await;
    }
    three.start_again(1).await;
    three.start_again(2).await;
    surely(&three.client(1), &put("k", "of two")).await;
    three.shutdown().await;
}

/// A restored member lost its disk and was restored from the copy again. Its second directory had the incarnation of
/// the first one, and voted for a member that lacked what the first one had acknowledged: the write was lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_restored_once_more_does_not_vote_for_a_loss() {
    let copy = SavedCopy::make().await;
    let mut three = copy.restore_three();
    // No member publishes client URLs, which would tell the others that it had started.
    for config in &mut three.configs {
        config.advertise_client_urls = Vec::new();
    }
    for number in 0..3 {
        three.start_again(number).await;
    }
    surely(&three.client(0), &put("k", "of all")).await;
    three.assert_equal().await;
    three.stop(1).await;
    surely(&three.client(0), &put("x", "acknowledged by a and c")).await;
    three.stop(0).await;
    three.stop(2).await;
    copy.restore_again(&mut three, 0);
    three.start_again(0).await;
    three.start_again(1).await;
    three.nobody_leads(0).await;
    three.start_again(2).await;
    surely(&three.client(1), &put("k", "again")).await;
    three.assert_equal().await;
    let value = three.client(0).db().get("x").unwrap();
    assert_eq!(value.as_deref(), Some(&b"acknowledged by a and c"[..]));
    let first = three.client(0);
    eventually("it votes", || !first.core().owes()).await;
    drop(first);
    three.shutdown().await;
}

/// An unproven member that hears from a leader votes when it has an entry of that leader: those of earlier terms prove
/// nothing. It keeps that over a restart.
#[tokio::test(flavor = "multi_thread")]
async fn an_unproven_member_owes_an_entry_of_the_leader_that_it_hears_from() {
    let copy = SavedCopy::make().await;
    let mut three = copy.restore_three();
    three.start_again(0).await;
    let client = three.client(0);
    let service = Service(client.core().clone());
    let (own, last) = (client.status().member_id, client.core().log.last_log_id());
    assert_eq!(last.map(|last| last.leader_id.term), Some(0));
    let membership = client.core().membership();
    let mut others = membership.nodes().filter(|(id, _)| **id != own);
    let (from, other) = others.next().unwrap();
    let leader = |term| Vote::new_committed(term, *from);
    let owed = || client.core().log.member().read_owed();
    // A heartbeat, as it comes over the network.
    let url = three.configs[0].listen_peer_urls[0].clone();
    let heartbeat = proto::AppendRequest {
        sender: Some(proto::Sender {
            cluster_id: client.core().cluster_id,
            member_id: *from,
            incarnation: other.incarnation,
            target_id: own,
            target_incarnation: client.core().incarnation,
        }),
        sequence: 1,
        vote: Some(proto::Ballot {
            term: 3,
            node: *from,
            committed: true,
        }),
        ..proto::AppendRequest::default()
    };
    let mut grpc = GrpcClient::connect(url).await.unwrap();
    let replies = grpc.append(futures_util::stream::iter([heartbeat])).await;
    replies.unwrap().into_inner().message().await.unwrap();
    assert_eq!(owed(), Some(LogId::new(leader(3).leader_id, 0)));
    for (term, expected) in [(5, 5), (4, 5), (7, 7)] {
        service.led_by(&leader(term)).await.unwrap();
        assert_eq!(owed(), Some(LogId::new(leader(expected).leader_id, 0)));
    }
    // What others say proves nothing any more.
    client.core().note_proof().await.unwrap();
    assert!(client.core().owes());
    drop((service, client));
    three.stop(0).await;
    three.start_again(0).await;
    let client = three.client(0);
    let service = Service(client.core().clone());
    client.core().settle_what_is_owed().await;
    assert!(client.core().owes() && !service.may_vote() && !service.may_lead());
    // An entry that was lost is owed as ever.
    let mut lost = last.unwrap();
    (lost.leader_id, lost.index) = (leader(7).leader_id, 1_000);
    service.acknowledged(&leader(7), lost).await.unwrap();
    service.led_by(&leader(9)).await.unwrap();
    assert_eq!(client.core().log.member().read_owed(), Some(lost));
    drop((service, client));
    three.shutdown().await;
}
