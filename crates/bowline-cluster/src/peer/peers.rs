//! The peers of a member: one link each, shared by all its users.
//!
//! *Addresses.* Every message names its sender and its target: the cluster, the member, and the incarnation
//! of the member's directory. The target's incarnation comes from the newest known membership when the
//! message, or the stream, is made.
//!
//! Invariants, checked by [`Peers::check`] before anything else of a message is read:
//! - a member accepts only messages for its own id *and* incarnation: so a removed process never acts for its
//!   replacement, and an emptied directory never votes for, nor counts as, the one before;
//! - a member accepts nothing from a sender whose incarnation differs from that in the membership. A
//!   membership with 0 there may be older than the sender: a directory may have been bound to the id since.
//!
//! The incarnation of a member changes once, from 0 to that of the directory bound to it, and never again. In
//! a cluster from before there were incarnations all are 0.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bowline_proto::peer as wire;
use parking_lot::Mutex;
use tonic::Status;

use super::address::{check_addresses, check_sender};
use super::client::PeerClient;
use super::link::Link;
use super::options::PeerOptions;
use super::port::Connected;
use super::secure::is_of_member;
use super::traffic::{PeerMetrics, Traffic};
use crate::types::{LogId, Member, NodeId};

/// A member's identity in messages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MemberIdentity {
    /// The cluster; 0 while it is unknown.
    pub cluster_id: u64,
    /// The member; 0 before it is one.
    pub member_id: NodeId,
    /// The incarnation of its directory; 0 from before there were incarnations.
    pub incarnation: u64,
}

/// The last entries that members have acknowledged.
pub type Acknowledgements = BTreeMap<NodeId, LogId>;

/// What a member remembers of the others' acknowledgements, for elections.
pub(crate) trait Memory: Send + Sync {
    /// The last entry that a member is known to have acknowledged.
    fn acknowledged_by(&self, member: NodeId) -> Option<LogId>;
    /// Whether this member has lost what another one remembers that it has acknowledged.
    fn lacks(&self, last: LogId) -> bool;
}

/// Looks up the incarnation of a member in the newest known membership.
type Incarnations = Box<dyn Fn(NodeId) -> Option<u64> + Send + Sync>;

/// Looks up the peer URLs of a member in the newest known membership.
type PeerUrls = Box<dyn Fn(NodeId) -> Option<Vec<String>> + Send + Sync>;

/// The peers of a member. Clones share everything.
#[derive(Clone)]
pub struct Peers {
    shared: Arc<Shared>,
}

struct Shared {
    sender: wire::Sender,
    options: PeerOptions,
    links: Mutex<BTreeMap<NodeId, Arc<Link>>>,
    /// What is counted of each peer.
    traffic: Mutex<BTreeMap<NodeId, Arc<Traffic>>>,
    /// From the newest known membership, once the consensus has started.
    incarnations: OnceLock<Incarnations>,
    peer_urls: OnceLock<PeerUrls>,
    /// Once the node has started.
    memory: OnceLock<Weak<dyn Memory>>,
    /// What this member, leading, tells the others to remember; with a number that grows.
    told: Mutex<(u64, Arc<Acknowledgements>)>,
    /// Is told of damage that was found in files that were to be sent.
    damage: OnceLock<Box<dyn Fn(String) + Send + Sync>>,
    /// One past the newest commit that any peer may have learnt from this member.
    announced: AtomicU64,
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers")
            .field("sender", &self.shared.sender)
            .finish_non_exhaustive()
    }
}

impl Peers {
    /// The peers of the member `member_id` of the cluster `cluster_id`.
    #[must_use]
    pub fn new(cluster_id: u64, member_id: NodeId, options: PeerOptions) -> Peers {
        let identity = MemberIdentity {
            cluster_id,
            member_id,
            incarnation: 0,
        };
        Peers::of(identity, options)
    }

    /// The peers of a member with an incarnation.
    #[must_use]
    pub fn of(identity: MemberIdentity, options: PeerOptions) -> Peers {
        let sender = wire::Sender {
            cluster_id: identity.cluster_id,
            member_id: identity.member_id,
            incarnation: identity.incarnation,
            ..wire::Sender::default()
        };
        Peers {
            shared: Arc::new(Shared {
                sender,
                options,
                links: Mutex::new(BTreeMap::new()),
                traffic: Mutex::default(),
                incarnations: OnceLock::new(),
                peer_urls: OnceLock::new(),
                memory: OnceLock::new(),
                told: Mutex::default(),
                damage: OnceLock::new(),
                announced: AtomicU64::new(0),
            }),
        }
    }

    /// Sets the source of incarnations. The first call counts.
    pub fn follow(&self, incarnations: impl Fn(NodeId) -> Option<u64> + Send + Sync + 'static) {
        let _ = self.shared.incarnations.set(Box::new(incarnations));
    }

    /// Sets the source of peer URLs, to which certificates are bound. The first call counts.
    pub(crate) fn bind_to(
        &self,
        peer_urls: impl Fn(NodeId) -> Option<Vec<String>> + Send + Sync + 'static,
    ) {
        let _ = self.shared.peer_urls.set(Box::new(peer_urls));
    }

    /// Refuses a member that speaks with the certificate of somebody else: it must be for a host of the member's peer
    /// URLs. A member that is not known yet has none, and nothing binds it but the CA.
    pub(crate) fn check_certificate(
        &self,
        from: NodeId,
        connected: Option<&Connected>,
    ) -> Result<(), Status> {
        let Some(identity) = connected.and_then(Connected::identity) else {
            return Ok(());
        };
        let known = self.shared.peer_urls.get();
        match known.and_then(|known| known(from)) {
            Some(urls) if !is_of_member(identity, &urls) => Err(Status::unauthenticated(format!(
                "the certificate of {identity} is not for a host of {urls:?}, the peer URLs of member {from:016x}: \
                 give the member a certificate with the hosts of its peer URLs",
            ))),
            _ => Ok(()),
        }
    }

    /// Sets who remembers acknowledgements. The first call counts.
    pub(crate) fn remember_by(&self, memory: Weak<dyn Memory>) {
        let _ = self.shared.memory.set(memory);
    }

    fn memory(&self) -> Option<Arc<dyn Memory>> {
        self.shared.memory.get().and_then(Weak::upgrade)
    }

    /// The last entry that a member is known to have acknowledged.
    pub(crate) fn acknowledged_by(&self, member: NodeId) -> Option<LogId> {
        self.memory()?.acknowledged_by(member)
    }

    /// Refuses a vote, given or received, where the other member remembers what this one has acknowledged and lost.
    pub(crate) fn check_memory(&self, remembered: Option<LogId>) -> Result<(), Status> {
        match (self.memory(), remembered) {
            (Some(memory), Some(last)) if memory.lacks(last) => Err(Status::unavailable(
                "this member has yet to get back what it had acknowledged",
            )),
            _ => Ok(()),
        }
    }

    /// Tells all other members to remember these acknowledgements, with what is sent to them next.
    pub(crate) fn tell(&self, acknowledgements: Acknowledgements) {
        let mut told = self.shared.told.lock();
        *told = (told.0 + 1, Arc::new(acknowledgements));
    }

    /// What a peer was not told yet. It counts as told from now on: if that is lost, a later one replaces it.
    pub(crate) fn news_for(&self, link: &Link) -> Option<Arc<Acknowledgements>> {
        let told = self.shared.told.lock();
        link.is_told(told.0).then(|| told.1.clone())
    }

    /// Sets the callback for damage in files that were to be sent. The first call counts.
    pub(crate) fn tell_of_damage(&self, note: impl Fn(String) + Send + Sync + 'static) {
        let _ = self.shared.damage.set(Box::new(note));
    }

    pub(crate) fn note_damage(&self, reason: String) {
        if let Some(note) = self.shared.damage.get() {
            note(reason);
        }
    }

    /// A client of `target`, for requests that are not Raft's. Its URLs are those of `member` from now on,
    /// for all users.
    #[must_use]
    pub fn client(&self, target: NodeId, member: &Member) -> PeerClient {
        PeerClient::new(self.clone(), self.link(target, member))
    }

    /// A client of the member at `url`, to ask for the members before joining.
    #[must_use]
    pub fn client_at(&self, url: &str) -> PeerClient {
        let (urls, options) = (vec![url.to_owned()], self.shared.options.clone());
        let link = Link::new(0, urls, options, Arc::default());
        PeerClient::new(self.clone(), Arc::new(link))
    }

    /// Removes a peer and its connections.
    pub fn forget(&self, target: NodeId) {
        self.shared.links.lock().remove(&target);
        self.shared.traffic.lock().remove(&target);
    }

    /// What is counted of a peer.
    pub(crate) fn traffic(&self, peer: NodeId) -> Arc<Traffic> {
        self.shared.traffic.lock().entry(peer).or_default().clone()
    }

    /// What is counted of every peer that this member has exchanged anything with.
    pub(crate) fn metrics(&self) -> Vec<PeerMetrics> {
        let all = self.shared.traffic.lock();
        all.iter().map(|(peer, of)| of.read(*peer)).collect()
    }

    pub(crate) fn link(&self, target: NodeId, member: &Member) -> Arc<Link> {
        let mut links = self.shared.links.lock();
        let link = links.entry(target).or_insert_with(|| {
            let (urls, options) = (member.peer_urls.clone(), self.shared.options.clone());
            Arc::new(Link::new(target, urls, options, self.traffic(target)))
        });
        link.set_urls(&member.peer_urls);
        link.set_incarnation(member.incarnation);
        link.clone()
    }

    /// Notes that a message with this commit is about to be sent.
    pub(crate) fn announce(&self, committed: Option<u64>) {
        let next = committed.map_or(0, |index| index + 1);
        self.shared.announced.fetch_max(next, Ordering::AcqRel);
    }

    /// One past the newest commit that any peer may have learnt from this member, which may not show it in its
    /// own state yet.
    pub(crate) fn announced(&self) -> u64 {
        self.shared.announced.load(Ordering::Acquire)
    }

    pub(crate) fn member_id(&self) -> NodeId {
        self.shared.sender.member_id
    }

    /// The addresses of a message over `link`.
    pub(crate) fn sender(&self, link: &Link) -> wire::Sender {
        let target_id = link.target();
        let agreed = self.agreed_incarnation(target_id);
        wire::Sender {
            target_id,
            target_incarnation: agreed.unwrap_or_else(|| link.incarnation()),
            ..self.shared.sender
        }
    }

    /// The incarnation of a member in the newest known membership.
    fn agreed_incarnation(&self, id: NodeId) -> Option<u64> {
        self.shared.incarnations.get().and_then(|agreed| agreed(id))
    }

    /// Refuses a message that is not for this member, or not from its stated sender; returns the sender.
    pub(crate) fn check(&self, sender: Option<wire::Sender>) -> Result<NodeId, Status> {
        let own = &self.shared.sender;
        let from = check_sender(sender, own.cluster_id, false)?;
        let sender = sender.unwrap_or_default();
        check_addresses(&sender, own, self.agreed_incarnation(from))?;
        Ok(from)
    }

    /// Refuses a message of another cluster. The sender need not know the cluster yet, nor this member.
    pub(crate) fn check_stranger(&self, sender: Option<wire::Sender>) -> Result<NodeId, Status> {
        check_sender(sender, self.shared.sender.cluster_id, true)
    }

    pub(crate) fn options(&self) -> &PeerOptions {
        &self.shared.options
    }
}

#[cfg(test)]
mod tests {
    use bowline_tls::PeerIdentity;

    use super::*;
    use crate::peer::port::{Port, PortLimits};

    /// A connection whose peer has shown a certificate for a host.
    fn connected(host: &str) -> Arc<Connected> {
        let port = Port::new(PortLimits::default());
        let connected = port.connect([127, 0, 0, 1].into()).expect("the first");
        connected.set_identity(Arc::new(PeerIdentity {
            dns_names: vec![host.to_owned()],
            ..PeerIdentity::default()
        }));
        connected
    }

    #[test]
    fn a_member_speaks_with_a_certificate_for_its_own_host() {
        let peers = Peers::new(1, 5, PeerOptions::default());
        peers.bind_to(|id| match id {
            1..=3 => Some(vec![format!("https://m{id}.example.com:2380")]),
            _ => None,
        });
        let (own, other) = (connected("m1.example.com"), connected("m2.example.com"));
        let check = |id, connected| peers.check_certificate(id, connected);
        check(1, Some(&own)).expect("its own");
        check(2, Some(&other)).expect("its own");
        let error = check(1, Some(&other)).expect_err("of another member");
        assert_eq!(error.code(), tonic::Code::Unauthenticated);
        assert!(error.message().contains("m1.example.com"), "{error}");
        // It joined since; and a connection without TLS has no certificate.
        check(9, Some(&own)).expect("not known yet");
        check(1, None).expect("in the clear");
    }
}
