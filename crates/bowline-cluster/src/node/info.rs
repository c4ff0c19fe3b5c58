//! Members, their status, and leases, as they are reported.

use std::time::Duration;

use bowline::{Revision, Value};

use crate::types::NodeId;

/// A member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberInfo {
    /// Its id.
    pub id: NodeId,
    /// Its name; empty until it has been started.
    pub name: String,
    /// The URLs for its peers.
    pub peer_urls: Vec<String>,
    /// The URLs for clients.
    pub client_urls: Vec<String>,
    /// Whether it is a learner.
    pub is_learner: bool,
}

/// The status of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The cluster's id.
    pub cluster_id: u64,
    /// This member's id.
    pub member_id: NodeId,
    /// The leader, when one is known.
    pub leader: Option<NodeId>,
    /// The term.
    pub term: u64,
    /// The index of the last log entry, from 1; 0 is none.
    pub raft_index: u64,
    /// The index of the last applied entry, from 1; 0 is none.
    pub applied_index: u64,
    /// Whether this member is a learner.
    pub is_learner: bool,
    /// Whether this member lacks entries that it had acknowledged: until it has them again, it gives no vote.
    pub lacks_entries: bool,
    /// The size of all files.
    pub size_bytes: u64,
    /// The size of tables, blob files and memtables.
    pub size_in_use_bytes: u64,
    /// The newest revision.
    pub revision: Revision,
    /// Why the member has stopped, if it has.
    pub failure: Option<String>,
}

/// The leader's state of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseStatus {
    /// Its id.
    pub id: i64,
    /// The granted TTL.
    pub granted: Duration,
    /// The remaining time.
    pub remaining: Duration,
    /// Its keys, if they were requested.
    pub keys: Vec<Value>,
}
