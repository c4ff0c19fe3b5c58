//! Statistics of an engine: current sizes, and counts since the opening.

use std::sync::Arc;

use super::core::Core;
use crate::counters::CountersSnapshot;
use crate::error::Error;
use crate::histogram::HistogramSnapshot;
use crate::log::Log;
use crate::version::{LiveBlob, Run};

/// Sizes and counts, for people and metrics.
///
/// ```
/// # use bowline_storage::engine::EngineStats;
/// fn show(stats: &EngineStats) {
///     println!("{} bytes of tables, {} of blob files", stats.table_bytes, stats.blob_bytes);
///     // `None` before there is anything to compare with.
///     println!("written per byte of the user: {:?}", stats.write_amplification());
///     println!("to tables and blob files of it: {:?}", stats.table_write_amplification());
///     println!("on the disk per byte of newest data: {:?}", stats.space_amplification());
/// }
/// # show(&EngineStats::default());
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct EngineStats {
    /// Counts of work since the opening, by cause.
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
    /// How long it took to make each change of the set of tables durable, since the opening.
    pub commit_times: HistogramSnapshot,
    /// Bytes used in memtables.
    pub memtable_bytes: u64,
    /// Full memtables that wait for a flush.
    pub sealed_memtables: u64,
    /// Bytes in the page cache.
    pub cache_bytes: u64,
    /// The error of the last flush or compaction, if it failed. The job is tried again.
    pub background_error: Option<Error>,
    /// Bytes of filters and indexes held in memory, and of the places for what is cached.
    pub table_memory_bytes: u64,
    /// Per tree, per level: (runs, tables, bytes, entries).
    pub levels: Vec<Vec<LevelStats>>,
}

impl EngineStats {
    /// Bytes written to tables and blob files per byte that users committed, since the opening: by
    /// flushes and compactions, without the log. `None` before the first commit.
    #[must_use]
    pub fn table_write_amplification(&self) -> Option<f64> {
        self.per_user_byte(self.table_and_blob_bytes_written())
    }

    /// Bytes written per byte that users committed, since the opening: to tables, blob files, the log
    /// (including the zeros that it writes in advance) and the manifest. `None` before the first commit.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        let counters = &self.counters;
        let log = counters.log_bytes_written + counters.log_bytes_prepared;
        let tables = self.table_and_blob_bytes_written();
        self.per_user_byte(tables + log + counters.manifest_bytes_written)
    }

    /// Bytes of all tables and blob files per byte of the last level of each tree, with the values that
    /// it refers to. Without history the last level has each key once; the levels above have newer
    /// versions and versions that wait for a compaction. Garbage in blob files counts. `None` without
    /// tables.
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
///
/// ```
/// # use bowline_storage::engine::{EngineStats, LevelStats};
/// fn tables(stats: &EngineStats) -> u64 {
///     let levels = stats.levels.iter().flatten();
///     levels.map(|level: &LevelStats| level.tables).sum()
/// }
/// # assert_eq!(tables(&EngineStats::default()), 0);
/// ```
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

impl Core {
    /// Bytes of tables, blob files and memtables. Takes no lock, so that it can be asked for before each write.
    pub(super) fn data_bytes(&self) -> u64 {
        let super_version = self.view.load_full();
        let version = &super_version.version;
        let tables = version.tables().map(|table| table.meta().file_bytes);
        let blobs = version.blobs.values();
        let blobs = blobs.map(|blob| blob.file.meta().file_bytes);
        let memtables = super_version.memtables();
        let memtables = memtables.map(|memtable| memtable.used_bytes() as u64);
        tables.chain(blobs).chain(memtables).sum()
    }

    pub(super) fn stats(&self) -> EngineStats {
        let super_version = self.view.load_full();
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
            table_memory_bytes: tables()
                .map(|table| table.memory_bytes() as u64)
                .sum::<u64>()
                + blobs()
                    .map(|blob| blob.file.memory_bytes() as u64)
                    .sum::<u64>(),
            log_bytes: self.commit.lock().log.as_ref().map_or(0, Log::size_bytes),
            manifest_bytes: self.versions.size_bytes(),
            commit_times: self.versions.commit_times(),
            memtable_bytes: super_version
                .memtables()
                .map(|m| m.used_bytes() as u64)
                .sum(),
            sealed_memtables: super_version.sealed.len() as u64,
            cache_bytes: self.files.cache.used_bytes(),
            background_error: self.jobs.last_error(),
            levels: levels.collect(),
        }
    }
}
