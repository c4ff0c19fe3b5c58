//! The types that openraft is instantiated with, and short names for those that follow from them.
//!
//! Leaders are numbered by term *and* node ([`LeaderId`]): two candidates of one term may both win,
//! the greater one supersedes the other, and a split vote costs no further term.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use openraft::OptionalSend;
use openraft::alias::{EntryOf, LogIdOf, SnapshotMetaOf, StoredMembershipOf, VoteOf};

/// A member's number, unique in its cluster for ever.
pub type NodeId = u64;

/// What a cluster knows of one of its members.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Member {
    /// A name for people.
    pub name: String,
    /// Where the other members reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it.
    pub client_urls: Vec<String>,
    /// A learner that is to be promoted when it has caught up.
    pub wants_vote: bool,
    /// The life of the directory that this member is: the number that its file `MEMBER` holds. 0 for
    /// a place that no directory has taken yet, and for a member of a cluster from before there were
    /// incarnations.
    pub incarnation: u64,
    /// The newest version of commands that this member understands; 0 as long as that is not known.
    pub command_version: u32,
}

/// An encoded batch of commands: what a log entry carries. Opaque to this layer.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Proposal(pub Bytes);

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proposal({} bytes)", self.0.len())
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// What applying an entry gave, for who proposed it.
#[derive(Clone, Default)]
pub struct Applied(pub Option<Arc<dyn Any + Send + Sync>>);

impl fmt::Debug for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Applied(..)"
        } else {
            "Applied"
        })
    }
}

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
    type AsyncRuntime = openraft_rt_tokio::TokioRuntime;
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

/// Who leads: a term and a node.
pub type LeaderId = openraft::impls::leader_id_adv::LeaderId<u64, NodeId>;
/// A place in the log, and who put an entry there.
pub type LogId = LogIdOf<TypeConfig>;
/// What a member has promised, or granted.
pub type Vote = VoteOf<TypeConfig>;
/// What an entry carries.
pub type Payload = openraft::EntryPayload<Proposal, NodeId, Member>;
/// An entry of the log.
pub type Entry = EntryOf<TypeConfig>;
/// Voters and learners.
pub type Membership = openraft::Membership<NodeId, Member>;
/// Voters and learners, and the entry that said so.
pub type StoredMembership = StoredMembershipOf<TypeConfig>;
/// What a snapshot covers.
pub type SnapshotMeta = SnapshotMetaOf<TypeConfig>;

/// A log id of its parts.
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
