//! The settings of an engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::history::History;
use crate::TreeId;
use crate::blob::BlobOptions;
use crate::compaction::{CompactionOptions, MergeOperator};
use crate::log::LogOptions;
use crate::table::TableOptions;
use crate::workers::Background;

/// When the log is flushed to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Before a commit group is published.
    Always,
    /// In the background, at this interval; a power loss can take back the last interval.
    Every(Duration),
    /// Never: there is no log, and everything is gone with the process.
    Never,
}

/// Settings of an engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The table format of each tree; their number is the number of trees.
    pub trees: Vec<TableOptions>,
    /// The size of a memtable, in bytes.
    pub memtable_bytes: usize,
    /// How many full memtables may wait for a flush before writers are stopped.
    pub sealed_memtables_max: usize,
    /// The page cache, in bytes.
    pub cache_bytes: u64,
    /// The log.
    pub log: LogOptions,
    /// When the log is flushed.
    pub sync: SyncPolicy,
    /// Compaction.
    pub compaction: CompactionOptions,
    /// Which values go to blob files.
    pub blobs: BlobOptions,
    /// How operands are applied, for the trees whose values may be operands.
    pub merge_operators: BTreeMap<TreeId, Arc<dyn MergeOperator>>,
    /// How much of the past stays readable.
    pub history: History,
    /// How many revisions of history a slow watch may hold back.
    pub watch_lag_max: u64,
    /// The largest commit group, in encoded bytes.
    pub group_bytes_max: u64,
    /// The size from which a manifest is rewritten, in bytes, if it has also grown to four times the
    /// size of its state.
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
            group_bytes_max: 512 << 20,
            manifest_rewrite_bytes: 1 << 20,
            create: true,
        }
    }

    pub(super) fn has_threads(&self) -> bool {
        self.log.background == Background::Threads
    }
}
