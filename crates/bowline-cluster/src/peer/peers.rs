//! Who the peers are and how they are reached: one link for each, shared by all who talk to it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bowline_proto::peer as wire;
use parking_lot::Mutex;

use super::client::PeerClient;
use super::link::Link;
use crate::types::{Member, NodeId};

/// What can be chosen about talking to peers.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long an answer may take before the peer counts as gone.
    pub reply_timeout: Duration,
    /// How long a snapshot may make no progress, its installation included.
    pub snapshot_timeout: Duration,
    /// How often an idle connection is tried.
    pub keep_alive_interval: Duration,
    /// How long the answer to that may take.
    pub keep_alive_timeout: Duration,
    /// The shortest and the longest wait before an unreachable peer is tried again.
    pub backoff: (Duration, Duration),
    /// The largest message that is taken.
    pub message_bytes_max: usize,
}

impl Default for PeerOptions {
    fn default() -> Self {
        PeerOptions {
            connect_timeout: Duration::from_secs(1),
            reply_timeout: Duration::from_secs(5),
            snapshot_timeout: Duration::from_secs(120),
            keep_alive_interval: Duration::from_secs(2),
            keep_alive_timeout: Duration::from_secs(3),
            backoff: (Duration::from_millis(20), Duration::from_secs(1)),
            message_bytes_max: 128 << 20,
        }
    }
}

/// The peers of a member. Clones share everything.
#[derive(Clone)]
pub struct Peers {
    shared: Arc<Shared>,
}

struct Shared {
    sender: wire::Sender,
    options: PeerOptions,
    links: Mutex<BTreeMap<NodeId, Arc<Link>>>,
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers")
            .field("sender", &self.shared.sender)
            .finish_non_exhaustive()
    }
}

impl Peers {
    /// Those of the member `member_id` of the cluster `cluster_id`.
    #[must_use]
    pub fn new(cluster_id: u64, member_id: NodeId, options: PeerOptions) -> Peers {
        let sender = wire::Sender {
            cluster_id,
            member_id,
        };
        Peers {
            shared: Arc::new(Shared {
                sender,
                options,
                links: Mutex::new(BTreeMap::new()),
            }),
        }
    }

    /// A client of `target`, for what is not Raft's. Its URLs are those of `member` from now on,
    /// for everybody.
    #[must_use]
    pub fn client(&self, target: NodeId, member: &Member) -> PeerClient {
        PeerClient::new(self.clone(), self.link(target, &member.peer_urls))
    }

    /// A client of whoever listens at `url`: to ask who the members are, before joining them.
    #[must_use]
    pub fn client_at(&self, url: &str) -> PeerClient {
        let link = Link::new(0, vec![url.to_owned()], self.shared.options.clone());
        PeerClient::new(self.clone(), Arc::new(link))
    }

    /// From now on `target` is reached at `urls`.
    pub fn set_urls(&self, target: NodeId, urls: &[String]) {
        self.link(target, urls);
    }

    /// Forgets a peer that was removed, and its connections.
    pub fn forget(&self, target: NodeId) {
        self.shared.links.lock().remove(&target);
    }

    pub(super) fn link(&self, target: NodeId, urls: &[String]) -> Arc<Link> {
        let mut links = self.shared.links.lock();
        let link = links.entry(target).or_insert_with(|| {
            let options = self.shared.options.clone();
            Arc::new(Link::new(target, urls.to_vec(), options))
        });
        link.set_urls(urls);
        link.clone()
    }

    pub(super) fn sender(&self) -> wire::Sender {
        self.shared.sender
    }

    pub(super) fn options(&self) -> &PeerOptions {
        &self.shared.options
    }
}
