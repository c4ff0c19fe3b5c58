//! Settings of a database, with their defaults.

use std::time::Duration;

pub use bowline_storage::blob::BlobOptions;
pub use bowline_storage::compaction::{CompactionOptions, Strategy};
pub use bowline_storage::engine::History;
pub use bowline_storage::frame::Compression;
pub use bowline_storage::workers::Background;
pub use bowline_types::Isolation;

/// When a commit is acknowledged.
///
/// ```
/// use bowline::{Db, Durability};
/// use std::time::Duration;
///
/// // At most 10 ms of commits are lost with the power, in exchange for fewer flushes.
/// let every = Duration::from_millis(10);
/// let settings = Db::builder().durability(Durability::Batched { every });
///
/// // For tests: nothing is kept.
/// let db = Db::builder().durability(Durability::Memory).open("memory")?;
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// After its flush to the disk. The commit survives a crash of the process and a power loss.
    #[default]
    Sync,
    /// Before its flush. The commit survives a crash of the process once the operating system has it. A
    /// power loss loses at most the commits of the last `every`, always a suffix of the commits.
    Batched {
        /// The longest time between two flushes. With [`Background::Manual`] there is no flush by time:
        /// call `Db::sync`.
        every: Duration,
    },
    /// At once: there are no files, and all data is lost when the last handle is dropped.
    Memory,
}

/// The size limits of a database. Each limit has a separate error.
///
/// ```
/// use bowline::{Db, Durability, Error, Limits};
///
/// let limits = Limits { key_size_max_bytes: 100, ..Limits::default() };
/// let db = Db::builder().limits(limits).durability(Durability::Memory).open("memory")?;
/// assert!(matches!(db.put([b'k'; 101], "v"), Err(Error::KeyTooLarge { size: 101, limit: 100 })));
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest key, in bytes.
    pub key_size_max_bytes: u64,
    /// The largest value, or block with its attributes, in bytes.
    pub value_size_max_bytes: u64,
    /// The largest transaction, in bytes of keys and values.
    pub transaction_size_max_bytes: u64,
}

impl Limits {
    /// The maximum of [`Limits::key_size_max_bytes`].
    pub const KEY_SIZE_BYTES: u64 = 1 << 20;
    /// The maximum of [`Limits::value_size_max_bytes`].
    pub const VALUE_SIZE_BYTES: u64 = 512 << 20;
    /// The maximum of [`Limits::transaction_size_max_bytes`]. It also bounds the size of a transaction in
    /// the log, which is larger by some 100 bytes per write.
    pub const TRANSACTION_SIZE_BYTES: u64 = 1000 << 20;

    /// The limits, each within its maximum: for `DbBuilder::limits`.
    #[doc(hidden)]
    pub fn bounded(mut self) -> Limits {
        let at_most = |limit: &mut u64, bound| *limit = (*limit).min(bound);
        at_most(&mut self.key_size_max_bytes, Limits::KEY_SIZE_BYTES);
        at_most(&mut self.value_size_max_bytes, Limits::VALUE_SIZE_BYTES);
        at_most(
            &mut self.transaction_size_max_bytes,
            Limits::TRANSACTION_SIZE_BYTES,
        );
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            key_size_max_bytes: 64 << 10,
            value_size_max_bytes: 64 << 20,
            transaction_size_max_bytes: 256 << 20,
        }
    }
}
