//! The vocabulary of the cluster: members, proposals and their outcomes, and the types of the consensus under
//! their short names.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

pub use crate::raft::types::{
    Entry, LeaderId, LogId, Membership, Payload, SnapshotMeta, StoredMembership, TypeConfig, Vote,
    log_id,
};

/// A member's number, unique in its cluster for ever.
pub type NodeId = u64;

/// The attributes of a member.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Member {
    /// A human-readable name.
    pub name: String,
    /// The URLs for the other members.
    pub peer_urls: Vec<String>,
    /// The URLs for clients.
    pub client_urls: Vec<String>,
    /// A learner that is promoted when it has caught up.
    pub wants_vote: bool,
    /// The incarnation of the member's directory, as in its file `MEMBER`. 0 for a member whose directory has
    /// not joined yet, and in a cluster from before there were incarnations.
    pub incarnation: u64,
    /// The newest command version that this member supports; 0 while it is unknown.
    pub command_version: u32,
}

/// An encoded batch of commands: the payload of a log entry. Opaque to this layer.
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

/// The result of applying an entry, for its proposer.
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
