//! The types that openraft is instantiated with, and short names for derived types.
//!
//! Leaders are identified by term *and* node ([`LeaderId`]): two candidates of one term may both win, the
//! greater one supersedes the other, and a split vote costs no further term.

use openraft::OptionalSend;
use openraft::alias::{EntryOf, LogIdOf, SnapshotMetaOf, StoredMembershipOf, VoteOf};

use crate::types::{Applied, Member, NodeId, Proposal};

/// The types of Bowline's Raft.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct TypeConfig;

impl openraft::RaftTypeConfig for TypeConfig {
    type D = Proposal;
    type R = Applied;
    type NodeId = NodeId;
    type Node = Member;
    type Term = u64;
    type LeaderId = LeaderId;
    type Vote = openraft::Vote<LeaderId>;
    type Payload = Payload;
    type Entry = openraft::Entry<LeaderId, Payload>;
    type AsyncRuntime = super::runtime::Runtime;
    type Responder<T>
        = openraft::impls::OneshotResponder<Self, T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

/// A leader: a term and a node.
pub type LeaderId = openraft::impls::leader_id_adv::LeaderId<u64, NodeId>;
/// A position in the log, with the leader that proposed the entry.
pub type LogId = LogIdOf<TypeConfig>;
/// A vote, promised or granted.
pub type Vote = VoteOf<TypeConfig>;
/// The payload of an entry.
pub type Payload = openraft::EntryPayload<Proposal, NodeId, Member>;
/// An entry of the log.
pub type Entry = EntryOf<TypeConfig>;
/// Voters and learners.
pub type Membership = openraft::Membership<NodeId, Member>;
/// A membership, with the id of its entry.
pub type StoredMembership = StoredMembershipOf<TypeConfig>;
/// The metadata of a snapshot.
pub type SnapshotMeta = SnapshotMetaOf<TypeConfig>;

/// A log id from its parts.
#[must_use]
pub fn log_id(term: u64, node: NodeId, index: u64) -> LogId {
    LogId::new(
        LeaderId {
            term,
            node_id: node,
        },
        index,
    )
}
