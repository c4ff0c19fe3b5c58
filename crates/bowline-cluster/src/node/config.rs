//! The configuration of a node.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bowline::DbBuilder;
use bowline_replica::COMMAND_VERSION;
use bowline_storage::vfs::{OsVfs, Vfs};

use super::limits::REQUEST_BYTES_MAX;
use crate::error::{Error, Result};
use crate::peer::PeerOptions;
use crate::raft::log_store::LogStoreOptions;

/// Settings of a node. The names are etcd's where etcd has such a flag.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// A human-readable name, unique in the cluster.
    pub name: String,
    /// The directory of the database.
    pub data_dir: PathBuf,
    /// The URLs at which this node listens for peers: `http://host:port`.
    pub listen_peer_urls: Vec<String>,
    /// The URLs for peers.
    pub advertise_peer_urls: Vec<String>,
    /// The URLs for clients, as listed in the membership.
    pub advertise_client_urls: Vec<String>,
    /// The founders of the cluster (or, with `is_existing`, its members): name and peer URL, one pair per
    /// URL. Ignored if the directory is already a member's.
    pub initial_cluster: Vec<(String, String)>,
    /// Whether this node joins an existing cluster.
    pub is_existing: bool,
    /// Clusters with different tokens have different ids, even with the same members.
    pub cluster_token: String,
    /// The leader's heartbeat interval.
    pub heartbeat_interval: Duration,
    /// A member stands for election if it has not heard from a leader for so long.
    pub election_timeout: Duration,
    /// The timeout of a command or a read.
    pub request_timeout: Duration,
    /// How far the next leader's estimate of a lease's remaining time may be too high before the remaining
    /// time is replicated. Leases renewed more often than this write nothing to the log.
    pub lease_checkpoint_interval: Duration,
    /// How often the leader tells the others what members have acknowledged, for them to remember.
    pub memory_interval: Duration,
    /// Each table is read within this time, so that damage is found; zero turns it off.
    pub scrub_interval: Duration,
    /// How often the leader compares the data of the voters; zero turns it off.
    pub corrupt_check_interval: Duration,
    /// The log is trimmed after so many entries.
    pub snapshot_entries: u64,
    /// How many entries stay after a trim, for members that lag a little.
    pub kept_entries: u64,
    /// The most commands in the queue of the proposer.
    pub waiting_max: usize,
    /// The largest command, in bytes of its keys and values.
    pub request_bytes_max: u64,
    /// The quota of the database; 0 is no limit.
    pub quota_bytes: u64,
    /// The most members added as learners. Future voters that are learners until they have caught up do not
    /// count.
    pub learners_max: usize,
    /// The database's settings; history and durability are set by the cluster.
    pub database: DbBuilder,
    /// Whether reads of ranges use `block_in_place`, which moves the other tasks of their thread to another
    /// thread, on a runtime with several. Not allowed within a `LocalSet`, where tokio panics.
    pub reads_block_in_place: bool,
    /// The newest command version that this program announces. For tests.
    #[doc(hidden)]
    pub command_version: u32,
    /// The file system.
    pub vfs: Arc<dyn Vfs>,
    /// The log's settings.
    pub log: LogStoreOptions,
    /// The settings of connections to peers.
    pub peers: PeerOptions,
}

/// A membership holds no longer name.
const NAME_BYTES_MAX: usize = 1024;

impl NodeConfig {
    /// A cluster of one in `data_dir`, on loopback ports that the system chooses.
    #[must_use]
    pub fn new(name: impl Into<String>, data_dir: impl Into<PathBuf>) -> NodeConfig {
        NodeConfig {
            name: name.into(),
            data_dir: data_dir.into(),
            listen_peer_urls: vec!["http://127.0.0.1:0".to_owned()],
            advertise_peer_urls: Vec::new(),
            advertise_client_urls: Vec::new(),
            initial_cluster: Vec::new(),
            is_existing: false,
            cluster_token: "bowline-cluster".to_owned(),
            heartbeat_interval: Duration::from_millis(100),
            election_timeout: Duration::from_millis(1000),
            request_timeout: Duration::from_secs(7),
            lease_checkpoint_interval: Duration::from_secs(60),
            memory_interval: Duration::from_secs(60),
            scrub_interval: Duration::from_secs(24 * 3600),
            corrupt_check_interval: Duration::from_secs(12 * 3600),
            snapshot_entries: 10_000,
            kept_entries: 5_000,
            waiting_max: 5_000,
            request_bytes_max: 2 << 20,
            quota_bytes: 0,
            learners_max: 1,
            database: bowline::Db::builder(),
            reads_block_in_place: false,
            command_version: u32::from(COMMAND_VERSION),
            vfs: Arc::new(OsVfs),
            log: LogStoreOptions::default(),
            peers: PeerOptions::default(),
        }
    }

    /// How long a member gives no vote after it has heard from the leader. See [`NodeConfig::campaign_wait`].
    pub(crate) fn vote_lease(&self) -> Duration {
        self.election_timeout * 3 / 5
    }

    /// The minimum wait after the vote lease before this member stands for election: one election timeout
    /// after it has heard from the leader. The maximum is as long as the vote lease: a fifth of the election
    /// timeout lies between the first and the last candidate. That suffices to separate two of them; if not,
    /// the greater of two candidates of a term wins.
    pub(crate) fn campaign_wait(&self) -> Duration {
        self.election_timeout - self.vote_lease()
    }

    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |setting, reason: &str| {
            let reason = reason.to_owned();
            Err(Error::Config { setting, reason })
        };
        if self.name.is_empty() {
            return refuse("name", "it is empty");
        }
        if self.name.len() > NAME_BYTES_MAX {
            return refuse("name", &format!("it is longer than {NAME_BYTES_MAX} bytes"));
        }
        if self.listen_peer_urls.is_empty() {
            return refuse("listen-peer-urls", "there is none");
        }
        if self.heartbeat_interval.is_zero() {
            return refuse("heartbeat-interval", "it is 0");
        }
        if self.election_timeout < 5 * self.heartbeat_interval {
            return refuse(
                "election-timeout",
                "it is below five heartbeat intervals: a single late message would depose the leader",
            );
        }
        if self.request_bytes_max > REQUEST_BYTES_MAX {
            return refuse(
                "max-request-bytes",
                &format!("must be at most {REQUEST_BYTES_MAX}, the limit of the other members"),
            );
        }
        if self.lease_checkpoint_interval.is_zero() {
            return refuse("lease-checkpoint-interval", "it is 0");
        }
        if !self.initial_cluster.is_empty() {
            let own = self
                .initial_cluster
                .iter()
                .filter(|(name, _)| *name == self.name);
            let own: Vec<&String> = own.map(|(_, url)| url).collect();
            if own.is_empty() {
                return refuse("initial-cluster", "this member's name is not in it");
            }
            let advertised = &self.advertise_peer_urls;
            if !advertised.is_empty() && !own.iter().all(|url| advertised.contains(url)) {
                return refuse(
                    "initial-cluster",
                    "this member's URLs in it are not those of initial-advertise-peer-urls",
                );
            }
        } else if self.is_existing {
            return refuse("initial-cluster", "a node that joins needs its members");
        }
        Ok(())
    }
}

/// The scheme of the peer URLs of a member with TLS, or without it.
pub(crate) fn scheme(is_secure: bool) -> &'static str {
    if is_secure { "https" } else { "http" }
}

/// The address in a listening URL of a member with TLS, or without it.
pub(crate) fn listen_address(url: &str, is_secure: bool) -> Result<String> {
    let invalid = |reason: &str| Error::Config {
        setting: "listen-peer-urls",
        reason: format!("{url:?} {reason}"),
    };
    let scheme = scheme(is_secure);
    let begins = url.strip_prefix(scheme);
    let rest = begins.and_then(|rest| rest.strip_prefix("://"));
    let rest = rest.ok_or_else(|| invalid(&format!("does not begin with {scheme}://")))?;
    let address = rest.trim_end_matches('/');
    if address.contains('/') || !address.contains(':') {
        return Err(invalid(&format!("is not of the form {scheme}://host:port")));
    }
    Ok(address.to_owned())
}
