//! The settings of the log store.

use std::time::Duration;

/// Settings of a log store.
#[derive(Clone, Debug)]
pub struct LogStoreOptions {
    /// The size of the in-memory cache of the newest entries, for followers that lag little.
    pub cache_bytes: usize,
    /// The approximate size of one reply to a reader.
    pub read_bytes: usize,
    /// The idle time after the last write until a vouching frame is written. Until then, damage to the last
    /// group looks like a torn tail.
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
