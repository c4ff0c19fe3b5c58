//! The settings of the services and of connections.

use std::time::Duration;

use crate::hosts::Hosts;

/// Limits and times of the services.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The largest request, in bytes.
    pub request_bytes_max: usize,
    /// The most operations in one list of a transaction.
    pub txn_operations_max: usize,
    /// The most blocks a traversal of the graph visits.
    pub traversal_blocks_max: u64,
    /// How long a follower waits for a leader; leases live at least one and a half times as long.
    pub election_timeout: Duration,
    /// How often an idle watch that asked for it is told how far it is.
    pub watch_progress_interval: Duration,
    /// How many bytes of events wait for one client, before its watches fall behind.
    pub watch_queue_bytes: usize,
    /// The most bytes that clients may make the server hold.
    pub client_bytes_max: usize,
    /// The same of one connection.
    pub connection_bytes_max: usize,
    /// How long a client may take to send what it has begun.
    pub partial_timeout: Duration,
    /// The most bytes the database may take, as `Status` reports it.
    pub quota_bytes: u64,
    /// The hosts by which HTTP requests may call the server.
    pub hosts: Hosts,
    /// Whether reflection is served. Who does not need it has less that can be asked of the port.
    pub reflection: bool,
}

impl Settings {
    /// What the rest of a request may take besides what [`Settings::request_bytes_max`] counts.
    pub(crate) const REQUEST_OVERHEAD_BYTES: usize = 512 << 10;

    /// The largest message that is taken.
    pub(crate) fn message_bytes_max(&self) -> usize {
        self.request_bytes_max + Settings::REQUEST_OVERHEAD_BYTES
    }

    /// The shortest time to live of a lease.
    pub(crate) fn lease_ttl_min(&self) -> Duration {
        const LEAST: Duration = Duration::from_secs(2);
        LEAST.max(self.election_timeout * 3 / 2)
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            request_bytes_max: 3 << 19,
            txn_operations_max: 128,
            traversal_blocks_max: 1_000_000,
            election_timeout: Duration::from_secs(1),
            watch_progress_interval: Duration::from_secs(600),
            watch_queue_bytes: 4 << 20,
            client_bytes_max: 512 << 20,
            connection_bytes_max: 128 << 20,
            partial_timeout: Duration::from_secs(30),
            quota_bytes: 2 << 30,
            hosts: Hosts::default(),
            reflection: false,
        }
    }
}

/// Limits and times of connections.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionOptions {
    /// How many there may be.
    pub(crate) connections_max: u64,
    /// How many calls one may have under way.
    pub(crate) streams_max: u32,
    /// The largest head of a request, in bytes.
    pub(crate) header_bytes_max: u32,
    /// How long a client may take to send what it has begun.
    pub(crate) partial_timeout: Duration,
    /// After what time a call is ended of whose reply its client reads nothing.
    pub(crate) unread_timeout: Duration,
    /// How many calls a client may reset within ten seconds.
    pub(crate) resets_max: u32,
    /// How often a silent one is asked whether it is there.
    pub(crate) keep_alive_interval: Duration,
    /// How long the answer may take.
    pub(crate) keep_alive_timeout: Duration,
    /// How long calls under way may take to end when the server stops.
    pub(crate) drain_timeout: Duration,
}
