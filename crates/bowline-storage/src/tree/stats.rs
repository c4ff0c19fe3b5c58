//! Statistics of an engine: sizes as they are now, and counts since the opening.

use std::sync::Arc;

use super::Shared;
use crate::counters::CountersSnapshot;
use crate::error::Error;
use crate::log::Log;
use crate::version::{LiveBlob, Run};

/// Sizes and counts, for people and metrics.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct EngineStats {
    /// What was done so far, by cause.
    pub counters: CountersSnapshot,
    /// Bytes of all tables.
    pub table_bytes: u64,
    /// Bytes of all blob files.
    pub blob_bytes: u64,
    /// Blob files.
    pub blob_files: u64,
    /// Bytes in blob files that no table refers to.
    pub blob_garbage_bytes: u64,
    /// Bytes of the log's files.
    pub log_bytes: u64,
    /// Bytes of the manifest.
    pub manifest_bytes: u64,
    /// Bytes used in memtables.
    pub memtable_bytes: u64,
    /// Full memtables that wait for a flush.
    pub sealed_memtables: u64,
    /// Bytes in the page cache.
    pub cache_bytes: u64,
    /// Why the last flush or merge of a background thread failed, if it did. It is tried again.
    pub background_error: Option<Error>,
    /// Bytes of filters and indexes held in memory.
    pub table_memory_bytes: u64,
    /// Per tree, per level: (runs, tables, bytes, entries).
    pub levels: Vec<Vec<LevelStats>>,
}

impl EngineStats {
    /// How many bytes were written to tables and blob files for each byte that users committed, since
    /// the opening: by flushes and merges, without the log. `None` before the first commit.
    #[must_use]
    pub fn table_write_amplification(&self) -> Option<f64> {
        self.per_user_byte(self.table_and_blob_bytes_written())
    }

    /// How many bytes were written for each byte that users committed, since the opening: to
    /// tables, blob files, the log and the manifest. The zeros that the log writes ahead are counted.
    /// `None` before the first commit.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        let counters = &self.counters;
        let log = counters.log_bytes_written + counters.log_bytes_prepared;
        let tables = self.table_and_blob_bytes_written();
        self.per_user_byte(tables + log + counters.manifest_bytes_written)
    }

    /// How many bytes the tables and blob files have for each byte of the last level of each tree and
    /// of the values that it refers to, where a key is once when no history is kept. What lies above
    /// is newer versions, and versions that wait to be merged; garbage in blob files counts. `None`
    /// without tables.
    #[must_use]
    pub fn space_amplification(&self) -> Option<f64> {
        let last = |levels: &Vec<LevelStats>| {
            let filled = levels.iter().rev().find(|level| level.bytes > 0);
            filled.map_or(0, |level| level.bytes + level.referred_bytes)
        };
        let last: u64 = self.levels.iter().map(last).sum();
        let all = self.table_bytes + self.blob_bytes;
        (last > 0).then(|| all as f64 / last as f64)
    }

    fn table_and_blob_bytes_written(&self) -> u64 {
        let counters = &self.counters;
        let tables = counters.flush_bytes_written + counters.compaction_bytes_written;
        let blobs = counters.blob_flush_bytes_written + counters.blob_compaction_bytes_written;
        tables + blobs
    }

    fn per_user_byte(&self, bytes: u64) -> Option<f64> {
        let user = self.counters.user_bytes_written;
        (user > 0).then(|| bytes as f64 / user as f64)
    }
}

/// One level of one tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LevelStats {
    /// Runs.
    pub runs: u64,
    /// Tables.
    pub tables: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Bytes in blob files that the tables refer to.
    pub referred_bytes: u64,
    /// Entries, tombstones and old versions included.
    pub entries: u64,
}

impl Shared {
    pub(super) fn stats(&self) -> EngineStats {
        let super_version = self.super_version.load_full();
        let levels = super_version.version.trees.iter().map(|tree| {
            let level = |runs: &Vec<Arc<Run>>| LevelStats {
                runs: runs.len() as u64,
                tables: runs.iter().map(|run| run.tables.len() as u64).sum(),
                bytes: runs.iter().map(|run| run.bytes()).sum(),
                referred_bytes: runs
                    .iter()
                    .flat_map(|run| &run.tables)
                    .filter_map(|t| super_version.version.references.get(&t.meta().file_id))
                    .flat_map(|references| references.iter().map(|to| to.bytes))
                    .sum(),
                entries: runs
                    .iter()
                    .flat_map(|run| &run.tables)
                    .map(|t| t.meta().entries)
                    .sum(),
            };
            tree.levels.iter().map(level).collect()
        });
        let tables = || super_version.version.tables();
        let blobs = || super_version.version.blobs.values();
        EngineStats {
            counters: self.counters.snapshot(),
            table_bytes: tables().map(|table| table.meta().file_bytes).sum(),
            blob_bytes: blobs().map(|blob| blob.file.meta().file_bytes).sum(),
            blob_files: blobs().count() as u64,
            blob_garbage_bytes: blobs().map(LiveBlob::garbage_bytes).sum(),
            table_memory_bytes: tables().map(|table| table.memory_bytes() as u64).sum(),
            log_bytes: self.commit.lock().log.as_ref().map_or(0, Log::size_bytes),
            manifest_bytes: self.manifest.lock().manifest.size_bytes(),
            memtable_bytes: super_version
                .memtables()
                .map(|m| m.used_bytes() as u64)
                .sum(),
            sealed_memtables: super_version.sealed.len() as u64,
            cache_bytes: self.cache.used_bytes(),
            background_error: {
                let signals = self.signals.lock();
                let failed = signals.flush.failed.as_ref();
                let failed = failed.or(signals.compaction.failed.as_ref());
                failed.map(|(_, error)| error.clone())
            },
            levels: levels.collect(),
        }
    }
}
