//! What the leader reports of members and leases.

use std::time::Duration;

use bowline::Value;

use crate::types::NodeId;

/// A member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberInfo {
    /// Its id.
    pub id: NodeId,
    /// Its name; empty as long as it has not been started.
    pub name: String,
    /// Where its peers reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it.
    pub client_urls: Vec<String>,
    /// Whether it has no vote.
    pub is_learner: bool,
}

/// A lease, as the leader knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseStatus {
    /// Its id.
    pub id: i64,
    /// The time to live it was granted.
    pub granted: Duration,
    /// What is left of it.
    pub remaining: Duration,
    /// Its keys, when they were asked for.
    pub keys: Vec<Value>,
}
