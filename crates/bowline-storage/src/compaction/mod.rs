//! Which tables to merge, and the merge.
//!
//! A flush adds a run to level 0. When a level has collected [`CompactionOptions::runs_max`] runs,
//! they are merged into one run of the next level. What differs between strategies is the last
//! level (after Dayan and Idreos, "Dostoevsky", SIGMOD 2018):
//!
//! | strategy | upper levels | last level | good for |
//! |---|---|---|---|
//! | lazy leveling (default) | several runs | one run, merged into | most loads: cheap writes, one place for old data |
//! | leveled | one run each | one run | reads above all |
//! | tiered | several runs | several runs | writes above all |
//!
//! A merge reads its inputs page by page and writes its outputs as it goes: its memory does not
//! depend on how much it merges.
//!
//! Invariants:
//!
//! - The output holds, for every revision a reader may still ask for ([`Retention`]), the same
//!   answer as the inputs.
//! - A tombstone is dropped only where nothing older of its key can exist below.
//! - All versions of a key are in one table of a run.
//! - No pointer into a blob file that is to be emptied is in an output.

mod merge;
mod picker;
mod retention;

pub use merge::{MergeOutput, VersionMerge, VersionSource, WrittenRun, write_run};
pub use picker::{BlobPick, Pick, emptied, pick, pick_all, pick_blobs};
pub use retention::{KeyFilter, Retention};

/// How runs are merged.
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
}

impl Default for CompactionOptions {
    fn default() -> Self {
        CompactionOptions {
            strategy: Strategy::LazyLeveling,
            runs_max: 4,
            table_bytes: 64 << 20,
            level_base_bytes: 256 << 20,
        }
    }
}
