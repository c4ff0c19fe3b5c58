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
