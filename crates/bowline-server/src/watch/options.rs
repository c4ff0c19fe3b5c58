//! The settings of watches.

use std::time::Duration;

/// What watches are made with.
#[derive(Debug, Clone)]
pub(crate) struct WatchOptions {
    /// How often an idle watch that asked for it is told how far it is.
    pub(crate) progress_interval: Duration,
    /// How many bytes wait for one stream.
    pub(crate) queue_bytes: usize,
    /// Watches that asked for fragments get no message above this, but for a single event.
    pub(crate) fragment_bytes: usize,
}
