//! The values that members exchange besides those of Raft.

use crate::types::NodeId;

/// How the leader makes sure that it still leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadLevel {
    /// It asks a majority.
    Linearizable,
    /// It trusts its lease.
    Lease,
}

/// A member, as peers tell of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterMember {
    /// Its number.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Where its peers reach it.
    pub peer_urls: Vec<String>,
    /// Where its clients reach it.
    pub client_urls: Vec<String>,
    /// Whether it has no vote.
    pub is_learner: bool,
    /// The life of its directory; 0 for a place that none has taken yet.
    pub incarnation: u64,
}

/// Who is in a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterMembers {
    /// The cluster's number.
    pub cluster_id: u64,
    /// The database's number.
    pub database_id: u128,
    /// The leader, where it is known.
    pub leader_id: Option<NodeId>,
    /// Its members.
    pub members: Vec<ClusterMember>,
    /// Who answers.
    pub member_id: NodeId,
    /// The life of its directory.
    pub incarnation: u64,
    /// Whether its directory holds no vote, no log and no state.
    pub is_blank: bool,
}

/// Why a proposal cannot be applied by this member.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unfit {
    /// No program makes such bytes.
    #[error("a malformed proposal: {0}")]
    Malformed(String),
    /// A newer program does.
    #[error("{0}")]
    Newer(String),
}
