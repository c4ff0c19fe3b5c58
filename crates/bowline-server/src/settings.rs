//! The part of the configuration that services use.

use std::time::Duration;

use crate::hosts::Hosts;
use crate::rates::RateLimits;

/// Limits and times of the services.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The largest request, in bytes.
    pub request_bytes_max: usize,
    /// The most operations in one list of a transaction.
    pub txn_operations_max: usize,
    /// The most blocks a traversal of the graph visits.
    pub traversal_blocks_max: u64,
    /// The longest time of a query of the graph.
    pub query_time_max: Duration,
    /// How long a token is valid after its last use.
    pub auth_token_ttl: Duration,
    /// The rates of each principal.
    pub rates: RateLimits,
    /// The minimum length of a new password, in bytes.
    pub password_bytes_min: usize,
    /// A follower's timeout for a leader; a lease's TTL is at least one and a half times as long.
    pub election_timeout: Duration,
    /// The interval of progress notifications to an idle watch that asked for them.
    pub watch_progress_interval: Duration,
    /// The bound of one client's queue of events; beyond it, its watches fall behind.
    pub watch_queue_bytes: usize,
    /// The memory budget of all clients.
    pub client_bytes_max: usize,
    /// The memory limit of one connection.
    pub connection_bytes_max: usize,
    /// The deadline for a request or message to arrive completely, from its first byte.
    pub partial_timeout: Duration,
    /// The quota that `Status` reports.
    pub quota_bytes: u64,
    /// The host names that HTTP requests may use.
    pub hosts: Hosts,
    /// Whether members reach each other with TLS.
    pub members_have_tls: bool,
    /// Whether the names of clients' certificates stand for users.
    pub client_cert_auth: bool,
    /// Whether reflection is served. Turning it off reduces what the port exposes.
    pub reflection: bool,
    /// The names that `/metrics` uses.
    pub metric_names: MetricNames,
}

/// The names under which `/metrics` shows what is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricNames {
    /// Those of etcd, and of the gRPC library that it uses.
    pub of_etcd: bool,
    /// Bowline's own.
    pub of_bowline: bool,
}

impl MetricNames {
    /// Both.
    pub const ALL: MetricNames = MetricNames {
        of_etcd: true,
        of_bowline: true,
    };
}

impl Settings {
    /// The allowance for a request's other bytes, which [`Settings::request_bytes_max`] does not count.
    pub(crate) const REQUEST_OVERHEAD_BYTES: usize = 512 << 10;

    /// The largest accepted message.
    pub(crate) fn message_bytes_max(&self) -> usize {
        self.request_bytes_max + Settings::REQUEST_OVERHEAD_BYTES
    }

    /// The shortest TTL of a lease.
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
            query_time_max: Duration::from_secs(120),
            auth_token_ttl: Duration::from_secs(300),
            rates: RateLimits::default(),
            password_bytes_min: 0,
            election_timeout: Duration::from_secs(1),
            watch_progress_interval: Duration::from_secs(600),
            watch_queue_bytes: 4 << 20,
            client_bytes_max: 512 << 20,
            connection_bytes_max: 128 << 20,
            partial_timeout: Duration::from_secs(30),
            quota_bytes: 2 << 30,
            hosts: Hosts::default(),
            members_have_tls: false,
            client_cert_auth: false,
            reflection: false,
            metric_names: MetricNames::ALL,
        }
    }
}
