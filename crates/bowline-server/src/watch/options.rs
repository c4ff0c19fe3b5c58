//! The options of watches.

use std::time::Duration;

/// The interval at which the tasks of a simulation look for work.
pub(super) const ALONE_INTERVAL: Duration = Duration::from_millis(3);

/// The options of all watches.
#[derive(Debug, Clone)]
pub(crate) struct WatchOptions {
    /// The interval of progress notifications to an idle watch that asked for them.
    pub(crate) progress_interval: Duration,
    /// The bound of one stream's queue, in bytes.
    pub(crate) queue_bytes: usize,
    /// The largest message to watches that asked for fragments; a single event may be larger.
    pub(crate) fragment_bytes: usize,
}
