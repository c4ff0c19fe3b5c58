//! Members and leases as the leader reports them.

use std::time::Duration;

use bowline::Value;

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
