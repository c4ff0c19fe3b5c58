//! The settings of the connections to peers.

use std::sync::Arc;
use std::time::Duration;

use super::network::{Network, Tcp};
use super::port::PortLimits;

/// Settings of the connections to peers.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// What carries the bytes.
    pub network: Arc<dyn Network>,
    /// The timeout of a connection attempt.
    pub connect_timeout: Duration,
    /// The timeout of an answer, after which the peer counts as unreachable.
    pub reply_timeout: Duration,
    /// The longest time without progress of a snapshot, its installation included.
    pub snapshot_timeout: Duration,
    /// The interval of pings on an idle connection.
    pub keep_alive_interval: Duration,
    /// The timeout of a ping's answer.
    pub keep_alive_timeout: Duration,
    /// The shortest and the longest wait before an unreachable peer is retried. The longest should be below
    /// the election timeout: a peer that comes back must hear from its leader in time.
    pub backoff: (Duration, Duration),
    /// The largest accepted message: the largest proposal with its overhead.
    pub message_bytes_max: usize,
    /// The limits of the port.
    pub port: PortLimits,
}

impl Default for PeerOptions {
    fn default() -> Self {
        PeerOptions {
            network: Arc::new(Tcp),
            connect_timeout: Duration::from_secs(1),
            reply_timeout: Duration::from_secs(5),
            snapshot_timeout: Duration::from_secs(120),
            keep_alive_interval: Duration::from_secs(2),
            keep_alive_timeout: Duration::from_secs(3),
            backoff: (Duration::from_millis(20), Duration::from_millis(500)),
            message_bytes_max: 80 << 20,
            port: PortLimits::default(),
        }
    }
}
