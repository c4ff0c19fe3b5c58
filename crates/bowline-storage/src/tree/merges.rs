//! Merges of tables: cut into key ranges, done by several threads, and put in place by one edit.
//!
//! ```text
//!  pick ──► cut ──► range 0 ─┐
//!                   range 1 ─┼──► one edit: the inputs go, the outputs of all ranges come
//!                   range 2 ─┘
//! ```
//!
//! Threads take the ranges of one merge in the order of their keys; with `Manual` the caller's thread
//! does all of them. What the ranges write is in no version and in no manifest until the last edit,
//! so an interrupted merge starts anew.
//!
//! Large values do not move with a merge: its tables get the pointers of the inputs. Values of blob
//! files that are to be emptied go into new ones, of which each range makes its own.
//!
//! What a crash, a close or an error leaves:
//!
//! | when | what is on the disk | what removes it |
//! |---|---|---|
//! | before the edit | files that nothing names | the failed merge itself; after a crash, the next opening |
//! | at an edit whose outcome is unknown | the inputs and the outputs | the next opening removes those that the manifest does not name |
//! | after the edit | the new run, and inputs that nothing names | their last reader, or the next opening |
//!
//! A merge that finds no room on the disk is tried once more without emptying blob files, since that
//! takes room.
//!
//! Invariants:
//!
//! - A version of the database has all tables of a merge or none: a reader sees no key twice, and
//!   misses none.
//! - All ranges of a merge are merged by one [`Retention`]. Its floor is in the edit that completes
//!   the merge, so no later reader can ask for what was dropped.
//! - When the outcome of an edit is unknown, no file is removed any more: that edit may name it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Shared;
use super::background::{MergeJob, place};
use crate::TreeId;
use crate::blob::BlobMeta;
use crate::compaction::{
    KeyRange, Pick, Retention, VersionSource, cut, emptied, pick, pick_all, pick_blobs,
};
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::thread;
use crate::table::{Table, TableMeta};
use crate::version::{Edit, PlacedTable, Version, WrittenRun};

/// A merge that is carried out.
struct Merge {
    tree: TreeId,
    /// The id of the run that it writes, and that run's level.
    run: u64,
    level: u8,
    /// Whether nothing older than the inputs exists in the tree.
    bottom: bool,
    /// Where each range but the first begins; ascending.
    cuts: Vec<Vec<u8>>,
    /// The tables that are read, newest run first.
    by_run: Vec<Vec<Arc<Table>>>,
    /// The tables that move into the run, unread.
    kept: Vec<Arc<Table>>,
    /// Has the blob files that the inputs refer to.
    version: Arc<Version>,
    /// The blob files that are to be emptied.
    emptied: BTreeSet<u64>,
}

/// What each finished range was merged into, by the number of the range.
type Finished = Mutex<BTreeMap<usize, WrittenRun>>;

impl Shared {
    /// Does the most urgent compaction of any tree; `false` when there is none.
    pub(super) fn compact_once(&self) -> Result<bool> {
        let _compacting = self.compacting.lock();
        for tree in self.tree_ids() {
            if self.has_merge(tree) && self.with_ballast(|| self.compact_tree(tree))? {
                return Ok(true);
            }
        }
        for tree in self.tree_ids() {
            if self.empty_worst_blobs(tree)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Merges each tree into one run, and empties blob files that have too much garbage then.
    pub(super) fn compact_all(&self) -> Result<()> {
        for tree in self.tree_ids() {
            let _compacting = self.compacting.lock();
            let version = self.super_version.load_full().version.clone();
            if let Some(pick) = pick_all(version.tree(tree)) {
                self.with_ballast(|| {
                    self.check_manifest()?;
                    self.carry_out(self.begin_merge(tree, &pick, &version))
                })?;
            }
            drop(version);
            loop {
                match self.empty_worst_blobs(tree) {
                    Ok(true) => {}
                    // The merge is done, and has given back what it could.
                    Ok(false) | Err(Error::NoSpace { .. }) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Empties blob files of the tree when they have too much garbage together; `false` when they
    /// have not.
    fn empty_worst_blobs(&self, tree: TreeId) -> Result<bool> {
        let version = self.super_version.load_full().version.clone();
        let Some(pick) = pick_blobs(&version, tree, &self.options.blobs) else {
            return Ok(false);
        };
        drop(version);
        self.with_ballast(|| {
            self.check_manifest()?;
            self.empty_blobs(tree, &pick)
        })?;
        Ok(true)
    }

    fn has_merge(&self, tree: TreeId) -> bool {
        let version = self.super_version.load_full().version.clone();
        pick(version.tree(tree), &self.options.compaction).is_some()
    }

    /// Does the tree's most urgent merge; `false` when none is wanted.
    fn compact_tree(&self, tree: TreeId) -> Result<bool> {
        self.check_manifest()?;
        let version = self.super_version.load_full().version.clone();
        let Some(pick) = pick(version.tree(tree), &self.options.compaction) else {
            return Ok(false);
        };
        self.carry_out(self.begin_merge(tree, &pick, &version))?;
        Ok(true)
    }

    /// Refuses to go on when the outcome of an edit is unknown: nothing more can be recorded.
    pub(super) fn check_manifest(&self) -> Result<()> {
        self.manifest.lock().manifest.check_intact()
    }

    fn begin_merge(&self, tree: TreeId, pick: &Pick, version: &Arc<Version>) -> Merge {
        let by_run = pick.tables_by_run();
        let tables = by_run.concat();
        let bytes = tables.iter().map(|table| table.meta().file_bytes).sum();
        Merge {
            tree,
            run: self.next_run_id.fetch_add(1, Ordering::Relaxed),
            level: pick.output_level as u8,
            bottom: pick.bottom,
            cuts: cut(&tables, self.options.compaction.ranges(bytes)),
            by_run,
            kept: pick.kept.clone(),
            emptied: emptied(version, tree, &self.options.blobs),
            version: version.clone(),
        }
    }

    /// Carries out a merge. When there is no room, once more without emptying blob files.
    fn carry_out(&self, mut merge: Merge) -> Result<()> {
        match self.try_to_carry_out(&merge) {
            Err(Error::NoSpace { .. }) if !merge.emptied.is_empty() => {
                self.check_manifest()?;
                merge.emptied.clear();
                self.try_to_carry_out(&merge)
            }
            result => result,
        }
    }

    fn try_to_carry_out(&self, merge: &Merge) -> Result<()> {
        let retention = self.retention();
        let finished = Finished::default();
        let merged = self.merge_ranges(merge, &retention, &finished);
        let finished = std::mem::take(&mut *finished.lock());
        if let Err(error) = merged {
            for files in finished.values() {
                self.remove_files(&files.tables, &files.blobs);
            }
            return Err(error);
        }
        self.complete(merge, finished, &retention)
    }

    /// Merges all ranges, with as many threads as are allowed. After an error some are finished.
    fn merge_ranges(
        &self,
        merge: &Merge,
        retention: &Retention,
        finished: &Finished,
    ) -> Result<()> {
        let ranges = merge.cuts.len() + 1;
        let next = AtomicUsize::new(0);
        let is_over = AtomicBool::new(false);
        let failure = Mutex::new(None);
        let work = || {
            while !is_over.load(Ordering::Relaxed) {
                let range = next.fetch_add(1, Ordering::Relaxed);
                if range >= ranges {
                    break;
                }
                match self.merge_range(merge, range, retention, &is_over) {
                    Ok(files) => drop(finished.lock().insert(range, files)),
                    Err(error) => {
                        // First the error: the others fail because of this one.
                        failure.lock().get_or_insert(error);
                        is_over.store(true, Ordering::Relaxed);
                    }
                }
            }
        };
        let threads = match self.options.has_threads() {
            true => self.options.compaction.threads.min(ranges),
            false => 1,
        };
        if threads > 1 {
            thread::scope(|scope| {
                for _ in 1..threads {
                    // Without a helper this thread does it all.
                    thread::spawn_in(scope, "bowline-compact", work);
                }
                work();
            });
        } else {
            work();
        }
        let failed = failure.lock().take();
        failed.map_or(Ok(()), Err)
    }

    fn merge_range(
        &self,
        merge: &Merge,
        range: usize,
        retention: &Retention,
        is_over: &AtomicBool,
    ) -> Result<WrittenRun> {
        let keys = KeyRange::nth(&merge.cuts, range);
        let of_run = |tables: &Vec<Arc<Table>>| VersionSource::run(tables.clone(), keys);
        let sources = merge.by_run.iter().map(of_run).collect();
        let job = MergeJob {
            tree: merge.tree,
            retention,
            bottom: merge.bottom,
            compression: self.compression_of(merge.tree, merge.bottom),
            version: &merge.version,
            emptied: &merge.emptied,
            is_over,
        };
        let files = self.merge(sources, &job)?;
        self.count_merged(&files);
        self.counters.compaction_ranges.add(1);
        Ok(files)
    }

    /// Puts the tables of all ranges in the place of the inputs.
    fn complete(
        &self,
        merge: &Merge,
        finished: BTreeMap<usize, WrittenRun>,
        retention: &Retention,
    ) -> Result<()> {
        let &Merge { run, level, .. } = merge;
        let inputs = merge.by_run.iter().flatten().chain(&merge.kept);
        let mut edit = Edit {
            removed: inputs.map(|table| table.meta().file_id).collect(),
            history_floor: Some(retention.floor),
            next_run_id: Some(run + 1),
            ..Edit::default()
        };
        for files in finished.into_values() {
            place(&mut edit, level, run, files);
        }
        // What these refer to stays with them.
        edit.added
            .extend(merge.kept.iter().map(|table| PlacedTable {
                level,
                run,
                meta: table.meta().clone(),
            }));
        self.install_or_discard(edit, None)?;
        self.counters.compactions.add(1);
        Ok(())
    }

    /// Removes tables and blob files that no version has, as far as the disk lets it.
    pub(super) fn remove_files<'a>(
        &self,
        tables: impl IntoIterator<Item = &'a TableMeta>,
        blobs: impl IntoIterator<Item = &'a BlobMeta>,
    ) {
        let tables = tables
            .into_iter()
            .map(|meta| self.layout.table(meta.file_id));
        let blobs = blobs.into_iter().map(|meta| self.layout.blob(meta.file_id));
        for path in tables.chain(blobs) {
            if let Err(cause) = self.vfs.remove_file(&path)
                && cause.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), %cause, "an unfinished file stays until the next open");
            }
        }
    }
}
