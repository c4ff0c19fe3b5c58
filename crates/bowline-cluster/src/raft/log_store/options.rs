//! The settings of the log store.

use std::time::Duration;

/// What can be chosen about a log store.
#[derive(Clone, Debug)]
pub struct LogStoreOptions {
    /// How many bytes of the newest entries are kept in memory, for followers that are close.
    pub cache_bytes: usize,
    /// How many bytes of entries one reply to a reader holds, about.
    pub read_bytes: usize,
    /// How long after the last write what was flushed is vouched for on the disk, if nothing else is
    /// written by then. Until then, damage to the last group looks like a tail that a crash tore.
    pub vouch_after: Duration,
}

impl Default for LogStoreOptions {
    fn default() -> Self {
        LogStoreOptions {
            cache_bytes: 64 << 20,
            read_bytes: 1 << 20,
            vouch_after: Duration::from_millis(100),
        }
    }
}
