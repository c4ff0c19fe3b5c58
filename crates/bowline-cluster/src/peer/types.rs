//! The values that members exchange besides those of Raft.

use crate::types::NodeId;

/// How the leader confirms that it still leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Confirmation {
    /// It asks a majority.
    Majority,
    /// It trusts its lease.
    Lease,
}

/// A member in a peer's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterMember {
    /// Its id.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Its peer URLs.
    pub peer_urls: Vec<String>,
    /// Its client URLs.
    pub client_urls: Vec<String>,
    /// Whether it is a learner.
    pub is_learner: bool,
    /// The incarnation of its directory; 0 while none is bound to its id.
    pub incarnation: u64,
}

/// A peer's answer about the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterMembers {
    /// The cluster's id.
    pub cluster_id: u64,
    /// The database's id.
    pub database_id: u128,
    /// The leader, if known.
    pub leader_id: Option<NodeId>,
    /// Its members.
    pub members: Vec<ClusterMember>,
    /// The answering member.
    pub member_id: NodeId,
    /// The incarnation of its directory.
    pub incarnation: u64,
    /// Whether its directory holds no vote, no log and no state, or only those of the copy that it was restored from.
    pub is_blank: bool,
    /// Whether it would refuse the lead.
    pub is_unfit_to_lead: bool,
}

/// Why this member cannot apply a proposal.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unfit {
    /// Invalid in every version.
    #[error("a malformed proposal: {0}")]
    Malformed(String),
    /// Made by a newer program.
    #[error("{0}")]
    Newer(String),
}
