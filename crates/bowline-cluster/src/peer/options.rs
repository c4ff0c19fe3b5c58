//! The settings of the connections to peers.

use std::time::Duration;

use super::port::PortLimits;

/// What can be chosen about talking to peers.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long an answer may take before the peer counts as gone.
    pub reply_timeout: Duration,
    /// How long a snapshot may make no progress, its installation included.
    pub snapshot_timeout: Duration,
    /// How often an idle connection is tried.
    pub keep_alive_interval: Duration,
    /// How long the answer to that may take.
    pub keep_alive_timeout: Duration,
    /// The shortest and the longest wait before an unreachable peer is tried again. The longest should
    /// be below the election timeout: a peer that is back must hear its leader in time.
    pub backoff: (Duration, Duration),
    /// The largest message that is taken: the largest proposal, and what goes with it.
    pub message_bytes_max: usize,
    /// What the port takes.
    pub port: PortLimits,
}

impl Default for PeerOptions {
    fn default() -> Self {
        PeerOptions {
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
