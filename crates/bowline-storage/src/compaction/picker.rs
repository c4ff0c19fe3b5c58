//! Chooses the next merge of a tree. Pure: tables in, decision out.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{CompactionOptions, Strategy};
use crate::TreeId;
use crate::blob::BlobOptions;
use crate::table::Table;
use crate::version::{LEVELS_MAX, LiveBlob, Run, TreeVersion, Version};

/// A merge to do.
#[derive(Debug)]
pub(crate) struct Pick {
    /// Runs that go, newest first. All their tables are inputs, but for those of `kept`.
    pub inputs: Vec<Arc<Run>>,
    /// Tables of the last input run that the others do not overlap: they move, unread.
    pub kept: Vec<Arc<Table>>,
    /// Where the new run goes.
    pub output_level: usize,
    /// Whether nothing older than the inputs exists in the tree, so tombstones may go.
    pub bottom: bool,
}

impl Pick {
    /// The tables to read, by run, newest run first.
    #[must_use]
    pub(crate) fn tables_by_run(&self) -> Vec<Vec<Arc<Table>>> {
        let kept = |table: &Arc<Table>| self.kept.iter().any(|other| Arc::ptr_eq(table, other));
        let runs = self.inputs.iter();
        runs.map(|run| {
            run.tables
                .iter()
                .filter(|table| !kept(table))
                .cloned()
                .collect()
        })
        .collect()
    }
}

/// The most urgent merge of this tree, if any.
#[must_use]
pub(crate) fn pick(tree: &TreeVersion, options: &CompactionOptions) -> Option<Pick> {
    let deepest = tree.deepest()?;
    for level in 0..=deepest {
        let runs = &tree.levels[level];
        let limit = match options.strategy {
            Strategy::Leveled if level > 0 => 1,
            _ => options.runs_max.max(2),
        };
        let is_last = level == deepest && level > 0;
        let is_full = match options.strategy {
            Strategy::Tiered => runs.len() >= limit,
            Strategy::LazyLeveling => runs.len() >= limit && !(is_last && runs.len() == 1),
            Strategy::Leveled if level == 0 => runs.len() >= limit,
            Strategy::Leveled => tree.level_bytes(level) > capacity_bytes(level, options),
        };
        if is_full && (level + 1 < LEVELS_MAX || runs.len() > 1) {
            return Some(merge_down(tree, level, options));
        }
    }
    None
}

/// A merge of everything the tree has into one run at its last level.
#[must_use]
pub(crate) fn pick_all(tree: &TreeVersion) -> Option<Pick> {
    let deepest = tree.deepest()?;
    let inputs: Vec<_> = tree.runs().cloned().collect();
    Some(Pick {
        inputs,
        kept: Vec::new(),
        output_level: deepest.max(1),
        bottom: true,
    })
}

/// Tables of one run to rewrite in their place, so that blob files can go.
#[derive(Debug)]
pub(crate) struct BlobPick {
    /// The run's level.
    pub level: usize,
    /// The run's number, which stays.
    pub run: u64,
    /// The tables. Each is rewritten by itself: between two of them others may lie.
    pub tables: Vec<Arc<Table>>,
    /// The blob files that end with it.
    pub emptied: BTreeSet<u64>,
}

/// The blob files that a merge is to empty as far as it meets them.
#[must_use]
pub(crate) fn emptied(version: &Version, tree: TreeId, options: &BlobOptions) -> BTreeSet<u64> {
    let blobs = version.blobs.iter();
    let blobs = blobs.filter(|(_, blob)| {
        let meta = blob.file.meta();
        meta.tree == tree && options.is_over(blob.garbage_bytes(), meta.record_bytes())
    });
    blobs.map(|(id, _)| *id).collect()
}

/// Picks the tables to rewrite when the blob files of a tree have too much garbage together that no merge
/// has collected.
#[must_use]
pub(crate) fn pick_blobs(
    version: &Version,
    tree: TreeId,
    options: &BlobOptions,
) -> Option<BlobPick> {
    let of_tree = |id: &u64| {
        let blob = version.blobs.get(id);
        blob.filter(|blob| blob.file.meta().tree == tree)
    };
    let blobs = || version.blobs.keys().filter_map(of_tree);
    let all: u64 = blobs().map(|blob| blob.file.meta().record_bytes()).sum();
    let garbage: u64 = blobs().map(LiveBlob::garbage_bytes).sum();
    if !options.is_over(garbage, all) {
        return None;
    }
    // Together they are over the bound, so some of them are.
    let emptied = emptied(version, tree, options);
    let worst = emptied.iter().max_by_key(|id| {
        let blob = of_tree(id);
        let ratio = blob.map(|blob| {
            let all = u128::from(blob.file.meta().record_bytes().max(1));
            (u128::from(blob.garbage_bytes()) << 32) / all
        });
        (ratio, std::cmp::Reverse(**id))
    })?;
    let refers_to = |table: &Arc<Table>, is_meant: &dyn Fn(u64) -> bool| {
        let references = version.references.get(&table.meta().file_id);
        references.is_some_and(|all| all.iter().any(|to| is_meant(to.file_id)))
    };
    let levels = version.tree(tree).levels.iter().enumerate();
    let mut runs = levels.flat_map(|(level, runs)| runs.iter().map(move |run| (level, run)));
    let (level, run) = runs.find(|(_, run)| {
        let mut tables = run.tables.iter();
        tables.any(|table| refers_to(table, &|id| id == *worst))
    })?;
    let tables = run.tables.iter();
    let tables = tables.filter(|table| refers_to(table, &|id| emptied.contains(&id)));
    Some(BlobPick {
        level,
        run: run.id,
        tables: tables.cloned().collect(),
        emptied,
    })
}

fn capacity_bytes(level: usize, options: &CompactionOptions) -> u64 {
    let factor = (options.runs_max.max(2) as u64).saturating_pow(level.saturating_sub(1) as u32);
    options.level_base_bytes.saturating_mul(factor)
}

fn merge_down(tree: &TreeVersion, level: usize, options: &CompactionOptions) -> Pick {
    let mut inputs = tree.levels[level].clone();
    let deepest = tree.deepest().unwrap_or(level);
    let target = (level + 1).min(LEVELS_MAX - 1);
    let target_is_last = target >= deepest;
    let into_run = match options.strategy {
        Strategy::Tiered => false,
        Strategy::LazyLeveling => target_is_last,
        Strategy::Leveled => true,
    };
    let mut output_level = target;
    let mut kept = Vec::new();
    if into_run
        && level != target
        && let Some(below) = tree.levels.get(target)
    {
        let upper_bytes: u64 = inputs.iter().map(|run| run.bytes()).sum();
        kept = untouched(&inputs, below);
        inputs.extend(below.iter().cloned());
        // The last level has outgrown its place: it moves one down, and its old place collects
        // runs again.
        let bytes = upper_bytes + tree.level_bytes(target);
        if options.strategy == Strategy::LazyLeveling
            && bytes > capacity_bytes(target, options)
            && target + 1 < LEVELS_MAX
        {
            output_level = target + 1;
        }
    }
    let older_exist = tree.levels.iter().enumerate().any(|(at, runs)| {
        at > level
            && runs
                .iter()
                .any(|run| !inputs.iter().any(|input| Arc::ptr_eq(input, run)))
    });
    Pick {
        inputs,
        kept,
        output_level,
        bottom: !older_exist,
    }
}

/// Tables of the single lower run that lie outside of all that the upper runs span. One that lies
/// in a gap between upper tables does not stay: the merge may write one table across the gap.
fn untouched(upper: &[Arc<Run>], below: &[Arc<Run>]) -> Vec<Arc<Table>> {
    let [run] = below else { return Vec::new() };
    let bounds = || upper.iter().filter_map(|run| run.key_bounds());
    let first = bounds().map(|(first, _)| first).min();
    let last = bounds().map(|(_, last)| last).max();
    let (Some(first), Some(last)) = (first, last) else {
        return Vec::new();
    };
    let is_inside = |table: &&Arc<Table>| {
        first <= &table.meta().max_key[..] && &table.meta().min_key[..] <= last
    };
    run.tables
        .iter()
        .filter(|table| !is_inside(table))
        .cloned()
        .collect()
}
