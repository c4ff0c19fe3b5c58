//! The settings of an engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::History;
use crate::TreeId;
use crate::blob::BlobOptions;
use crate::compaction::{CompactionOptions, MergeOperator};
use crate::log::{Background, LogOptions};
use crate::table::TableOptions;

/// When a round's data is flushed to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Before the round is published.
    Always,
    /// In the background, this often at the latest; a power loss can take that much back.
    Every(Duration),
    /// There is no log; everything is gone with the process.
    Never,
}

/// Settings of an engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The table format of each tree; their number is the number of trees.
    pub trees: Vec<TableOptions>,
    /// The size of a memtable, in bytes.
    pub memtable_bytes: usize,
    /// How many full memtables may wait before writers are stopped.
    pub sealed_memtables_max: usize,
    /// The page cache, in bytes.
    pub cache_bytes: u64,
    /// The log.
    pub log: LogOptions,
    /// When data is flushed.
    pub sync: SyncPolicy,
    /// Compaction.
    pub compaction: CompactionOptions,
    /// Which values go to files of their own.
    pub blobs: BlobOptions,
    /// For the trees whose values may be operands: how they are applied.
    pub merge_operators: BTreeMap<TreeId, Arc<dyn MergeOperator>>,
    /// How much of the past stays readable.
    pub history: History,
    /// How many revisions of history a slow watch may hold back.
    pub watch_lag_max: u64,
    /// The largest round, in encoded bytes.
    pub round_bytes_max: u64,
    /// The size from which a manifest is rewritten, in bytes, when it has also grown to four times
    /// what it says.
    pub manifest_rewrite_bytes: u64,
    /// Whether a missing directory is created.
    pub create: bool,
}

impl EngineOptions {
    /// Default settings for `trees` trees.
    #[must_use]
    pub fn new(trees: usize) -> EngineOptions {
        EngineOptions {
            trees: vec![TableOptions::default(); trees],
            memtable_bytes: 64 << 20,
            sealed_memtables_max: 4,
            cache_bytes: 64 << 20,
            log: LogOptions::default(),
            sync: SyncPolicy::Always,
            compaction: CompactionOptions::default(),
            blobs: BlobOptions::default(),
            merge_operators: BTreeMap::new(),
            history: History::None,
            watch_lag_max: 1_000_000,
            round_bytes_max: 512 << 20,
            manifest_rewrite_bytes: 1 << 20,
            create: true,
        }
    }

    pub(super) fn has_threads(&self) -> bool {
        self.log.background == Background::Threads
    }
}
