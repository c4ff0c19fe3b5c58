//! A node without peers and without files, to try the services against until the real one is here.

mod error;
mod local;
mod txn;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bowline::Value;
use bowline::replica::Reply;
use bowline::vfs::VfsFile;

pub use error::Error;
pub use local::{LocalClient, Node};

/// How fresh a read is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadLevel {
    /// Confirmed with a majority.
    Linearizable,
    /// Under the leader's lease.
    Lease,
    /// What this member has applied.
    Eventual,
}

/// Where a read was served.
#[derive(Debug, Clone, Copy)]
pub struct ReadPoint {
    /// At which level.
    pub level: ReadLevel,
    /// The index applied.
    pub applied_index: u64,
    /// The newest revision.
    pub revision: u64,
    /// The term.
    pub term: u64,
}

/// A read, and where it was served.
#[derive(Debug, Clone)]
pub struct Read<T> {
    /// What was read.
    pub value: T,
    /// Where.
    pub point: ReadPoint,
}

/// A command that was applied.
#[derive(Debug, Clone)]
pub struct Applied {
    /// What became of it.
    pub reply: Reply,
    /// Its index.
    pub index: u64,
    /// Its term.
    pub term: u64,
}

/// A member.
#[derive(Debug, Clone)]
pub struct MemberInfo {
    /// Its id.
    pub id: u64,
    /// Its name; empty until it has started.
    pub name: String,
    /// Where its peers find it.
    pub peer_urls: Vec<String>,
    /// Where clients find it.
    pub client_urls: Vec<String>,
    /// Whether it does not vote.
    pub is_learner: bool,
}

/// How a node is.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// The cluster.
    pub cluster_id: u64,
    /// This member.
    pub member_id: u64,
    /// The leader, when it is known.
    pub leader: Option<u64>,
    /// The term.
    pub term: u64,
    /// The newest index of the log.
    pub raft_index: u64,
    /// The newest index applied.
    pub applied_index: u64,
    /// Whether this member does not vote.
    pub is_learner: bool,
    /// Bytes on disk.
    pub size_bytes: u64,
    /// Bytes of it in use.
    pub size_in_use_bytes: u64,
    /// The newest revision.
    pub revision: u64,
}

/// How a lease is.
#[derive(Debug, Clone)]
pub struct LeaseStatus {
    /// Its id.
    pub id: i64,
    /// Its time to live.
    pub granted: Duration,
    /// What is left of it.
    pub remaining: Duration,
    /// Its keys, when asked for.
    pub keys: Vec<Value>,
}

/// One table of a frozen copy.
#[derive(Debug, Clone)]
pub struct FrozenTable {
    /// Its file's name.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its file.
    pub file: Arc<dyn VfsFile>,
}

/// A consistent copy of the database.
#[derive(Debug, Clone)]
pub struct Frozen {
    /// The newest index in it.
    pub index: u64,
    /// The newest revision in it.
    pub revision: u64,
    /// What is not in tables.
    pub state: Vec<u8>,
    /// The tables.
    pub tables: Vec<FrozenTable>,
}

/// Counts of a node.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct NodeMetrics {
    /// How often the leader changed.
    pub leader_changes: u64,
    /// Proposals under way.
    pub proposals_pending: u64,
    /// Proposals that failed.
    pub proposals_failed: u64,
    /// Proposals that were committed.
    pub proposals_committed: u64,
    /// Committed entries that are not applied yet.
    pub apply_lag: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
}

/// Settings of a node.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The name of the member.
    pub name: String,
    /// Where its files are.
    pub data_dir: PathBuf,
    /// Where it listens to peers.
    pub listen_peer_urls: Vec<String>,
    /// Where peers find it.
    pub advertise_peer_urls: Vec<String>,
    /// Where clients find it.
    pub advertise_client_urls: Vec<String>,
    /// The first members: names, and where peers find them.
    pub initial_cluster: Vec<(String, String)>,
    /// Whether the cluster is there already.
    pub is_existing: bool,
    /// Sets clusters apart.
    pub cluster_token: String,
    /// How often a leader shows that it is there.
    pub heartbeat_interval: Duration,
    /// How long a follower waits for it.
    pub election_timeout: Duration,
    /// The most bytes the database may take; 0 for the default.
    pub quota_bytes: u64,
    /// Entries between snapshots.
    pub snapshot_entries: u64,
}
