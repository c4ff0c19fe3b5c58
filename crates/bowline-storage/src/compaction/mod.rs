//! Compaction: which tables to merge, and the merge itself.
//!
//! A flush adds a run to level 0. When a level has collected [`CompactionOptions::runs_max`] runs,
//! they are merged into one run of the next level. The strategies differ in the last level (after
//! Dayan and Idreos, "Dostoevsky", SIGMOD 2018):
//!
//! | strategy | upper levels | last level | good for |
//! |---|---|---|---|
//! | lazy leveling (default) | several runs | one run, merged into | most loads: cheap writes, one place for old data |
//! | leveled | one run each | one run | reads above all |
//! | tiered | several runs | several runs | writes above all |
//!
//! A merge is cut into key ranges ([`cut`]), which threads take one after another. A range reads its
//! part of the inputs page by page and writes its own tables. When all ranges are done, one edit replaces
//! the inputs by their tables; until then no reader sees the outputs. `engine/compact/mod.rs` describes
//! what happens after a crash.
//!
//! Large values are not read: the new tables copy the pointers into their blob files. Only values in a
//! blob file that is being collected are written again, by each range into its own files.
//!
//! Memory: per thread a chunk and a page of every input run, a chunk and a page of output, and the state
//! of an unfinished table (its index, eight bytes per key). If values move, also a chunk of a blob file on
//! each side and the longest value. It does not depend on the amount of data.
//!
//! A run with nothing older below it may be compressed harder
//! ([`CompactionOptions::last_level_compression`]): it has most of the data and is rewritten rarely.
//!
//! Invariants:
//!
//! - For every revision that a reader may still ask for ([`Retention`]), the output gives the same result
//!   as the inputs.
//! - A tombstone is dropped only where no older version of its key can exist below.
//! - All versions of a key are in one table of a run.
//! - A value that depends on the version below it ([`MergeOperator`]) means the same afterwards: a
//!   version it depends on is applied to it before that version is dropped.
//! - No output has a pointer into a blob file that is being collected.

mod merge;
mod operands;
mod picker;
mod ranges;
mod retention;

pub use merge::VersionMerge;
pub(crate) use merge::write_run;
pub(crate) use merge::{MergeOutput, VersionSource};
pub use operands::MergeOperator;
pub(crate) use picker::{BlobPick, Pick};
pub(crate) use picker::{emptied, pick};
pub(crate) use picker::{pick_all, pick_blobs};
pub use ranges::{KeyRange, cut};
pub use retention::Retention;

use crate::frame::Compression;

/// How runs are merged.
///
/// ```
/// # use bowline_storage::compaction::{CompactionOptions, Strategy};
/// // With `DbBuilder::compaction`: reads and space before writes.
/// let options = CompactionOptions { strategy: Strategy::Leveled, ..CompactionOptions::default() };
/// assert_eq!(Strategy::default(), Strategy::LazyLeveling);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// Several runs in the upper levels, one in the last.
    #[default]
    LazyLeveling,
    /// One run in every level but the first.
    Leveled,
    /// Several runs in every level.
    Tiered,
}

/// Settings of compaction.
///
/// ```
/// # use bowline_storage::compaction::CompactionOptions;
/// // With `DbBuilder::compaction`: a small database on a machine of one core.
/// let options = CompactionOptions {
///     table_bytes: 8 << 20,
///     level_base_bytes: 32 << 20,
///     threads: 1,
///     ..CompactionOptions::default()
/// };
/// ```
#[derive(Debug, Clone)]
pub struct CompactionOptions {
    /// How runs are merged.
    pub strategy: Strategy,
    /// How many runs a level collects before they are merged.
    pub runs_max: usize,
    /// Where an output table is cut, in bytes.
    pub table_bytes: u64,
    /// The size of level 1 before the last level moves down, in bytes; each further level is
    /// `runs_max` times larger.
    pub level_base_bytes: u64,
    /// How many threads work on a merge at most. With [`Background::Manual`] the caller's does, on
    /// one range after the other.
    ///
    /// [`Background::Manual`]: crate::workers::Background::Manual
    pub threads: usize,
    /// A merge is not cut into ranges of fewer bytes than this for the sake of threads, in bytes.
    pub range_bytes_min: u64,
    /// How tables, and the blob files made with them, are compressed below which nothing older lies,
    /// if not as all others.
    pub last_level_compression: Option<Compression>,
}

impl Default for CompactionOptions {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        CompactionOptions {
            strategy: Strategy::LazyLeveling,
            runs_max: 4,
            table_bytes: 64 << 20,
            level_base_bytes: 256 << 20,
            threads: cores.min(4),
            range_bytes_min: 8 << 20,
            last_level_compression: None,
        }
    }
}

impl CompactionOptions {
    /// Into how many ranges to cut a merge of `bytes`: each makes about one table, and there is one
    /// for each thread if that does not make them too small.
    #[must_use]
    pub(crate) fn ranges(&self, bytes: u64) -> u64 {
        let by_size = bytes.div_ceil(self.table_bytes.max(1));
        let for_threads = bytes / self.range_bytes_min.max(1);
        by_size.max(for_threads.min(self.threads as u64)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_a_table_each_or_one_for_each_thread() {
        let options = CompactionOptions {
            table_bytes: 100,
            range_bytes_min: 10,
            threads: 3,
            ..CompactionOptions::default()
        };
        for (bytes, ranges) in [
            (0, 1),
            (19, 1),
            (20, 2),
            (35, 3),
            (99, 3),
            (301, 4),
            (999, 10),
        ] {
            assert_eq!(options.ranges(bytes), ranges, "{bytes} bytes");
        }
    }
}
