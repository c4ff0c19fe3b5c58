//! Compaction: runs of tables are merged into one, in key ranges and by several threads.
//!
//! ```text
//!  pick ──► cut ──► range 0 ─┐
//!                   range 1 ─┼──► one edit: removes the inputs, adds the outputs of all ranges
//!                   range 2 ─┘
//! ```
//!
//! Threads take the key ranges of one job in ascending order; in `Manual` mode the caller's thread does
//! all of them. No version and no manifest names the outputs before the final edit, so an interrupted
//! compaction starts anew.
//!
//! A compaction does not move large values: the new tables copy the pointers of the inputs. Only values
//! of blob files that are being collected move into new blob files, of which each range writes its own.
//! [`blob_gc`] collects blob files without a compaction.
//!
//! What a crash, a close or an error leaves behind:
//!
//! | when | on the disk | removed by |
//! |---|---|---|
//! | before the edit | outputs that no version names | the failed job; after a crash, the next opening |
//! | at an edit of unknown durability | inputs and outputs | the next opening removes those that the manifest does not name |
//! | after the edit | the new run, and inputs that no version names | their last reader, or the next opening |
//!
//! A compaction that finds the disk full is tried once more without collecting blob files, since that
//! takes space.
//!
//! Invariants:
//!
//! - One compaction runs at a time: [`Compactor`] owns that lock.
//! - A version has all outputs of a compaction or none. So a reader sees no key twice and misses none.
//! - All ranges of a compaction use one [`Retention`]. Its floor is in the final edit, so no later
//!   reader can ask for a dropped version.
//! - When the durability of an edit is unknown, no file is removed: that edit may name it.

mod blob_gc;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::core::Core;
use super::run_writer::{RunSpec, place};
use crate::TreeId;
use crate::compaction::{KeyRange, Pick, Retention, VersionSource, cut, emptied, pick, pick_all};
use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, thread};
use crate::table::Table;
use crate::version::{Edit, PlacedTable, Version, WrittenRun};

/// Compacts tables, one compaction at a time.
#[derive(Debug)]
pub(super) struct Compactor {
    core: Arc<Core>,
    /// Held during a compaction.
    running: Mutex<()>,
}

/// One compaction of one tree.
struct CompactionJob {
    tree: TreeId,
    /// The id and the level of the output run.
    run: u64,
    level: u8,
    /// Whether the tree has nothing older than the inputs.
    bottom: bool,
    /// Where each range but the first begins; ascending.
    cuts: Vec<Vec<u8>>,
    /// The input tables, newest run first.
    by_run: Vec<Vec<Arc<Table>>>,
    /// The tables that move into the output run without being read.
    kept: Vec<Arc<Table>>,
    /// The version that has the blob files of the inputs.
    version: Arc<Version>,
    /// The blob files that are collected.
    emptied: BTreeSet<u64>,
}

/// The output of each finished range, by the number of the range.
type Finished = Mutex<BTreeMap<usize, WrittenRun>>;

impl Compactor {
    pub(super) fn new(core: Arc<Core>) -> Compactor {
        Compactor {
            core,
            running: Mutex::new(()),
        }
    }

    /// Keeps other compactions out.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.running.lock()
    }

    /// Runs the most urgent compaction of any tree, or collects its blob files; `false` when there is
    /// nothing to do.
    pub(super) fn compact_once(&self) -> Result<bool> {
        let _running = self.running.lock();
        for tree in self.core.tree_ids() {
            if self.is_needed(tree) && self.core.with_ballast(|| self.compact_tree(tree))? {
                return Ok(true);
            }
        }
        // Looked at once for all trees: where the caller does the background's work, it does so after each commit.
        if self.core.view.load_full().version.blobs.is_empty() {
            return Ok(false);
        }
        for tree in self.core.tree_ids() {
            if self.collect_worst_blobs(tree)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Compacts each tree into one run, then collects blob files that have too much garbage.
    pub(super) fn compact_all(&self) -> Result<()> {
        for tree in self.core.tree_ids() {
            let _running = self.running.lock();
            let version = self.core.view.load_full().version.clone();
            if let Some(pick) = pick_all(version.tree(tree)) {
                self.core.with_ballast(|| {
                    self.core.check_recordable()?;
                    self.run(self.job(tree, &pick, &version))
                })?;
            }
            drop(version);
            loop {
                match self.collect_worst_blobs(tree) {
                    Ok(true) => {}
                    // The compaction itself is done and has freed what it could.
                    Ok(false) | Err(Error::NoSpace { .. }) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn is_needed(&self, tree: TreeId) -> bool {
        let version = self.core.view.load_full().version.clone();
        pick(version.tree(tree), &self.core.options.compaction).is_some()
    }

    /// Runs the most urgent compaction of the tree; `false` when none is needed.
    fn compact_tree(&self, tree: TreeId) -> Result<bool> {
        self.core.check_recordable()?;
        let version = self.core.view.load_full().version.clone();
        let Some(pick) = pick(version.tree(tree), &self.core.options.compaction) else {
            return Ok(false);
        };
        self.run(self.job(tree, &pick, &version))?;
        Ok(true)
    }

    fn job(&self, tree: TreeId, pick: &Pick, version: &Arc<Version>) -> CompactionJob {
        let by_run = pick.tables_by_run();
        let tables = by_run.concat();
        let bytes = tables.iter().map(|table| table.meta().file_bytes).sum();
        CompactionJob {
            tree,
            run: self.core.versions.new_run_id(),
            level: pick.output_level as u8,
            bottom: pick.bottom,
            cuts: cut(&tables, self.core.options.compaction.ranges(bytes)),
            by_run,
            kept: pick.kept.clone(),
            emptied: emptied(version, tree, &self.core.options.blobs),
            version: version.clone(),
        }
    }

    /// Runs a job; on a full disk, once more without collecting blob files.
    fn run(&self, mut job: CompactionJob) -> Result<()> {
        match self.try_run(&job) {
            Err(Error::NoSpace { .. }) if !job.emptied.is_empty() => {
                self.core.check_recordable()?;
                job.emptied.clear();
                self.try_run(&job)
            }
            result => result,
        }
    }

    fn try_run(&self, job: &CompactionJob) -> Result<()> {
        let retention = self.core.retention();
        let finished = Finished::default();
        let merged = self.merge_ranges(job, &retention, &finished);
        let finished = std::mem::take(&mut *finished.lock());
        if let Err(error) = merged {
            for files in finished.values() {
                self.core.files.remove(&files.tables, &files.blobs);
            }
            return Err(error);
        }
        self.complete(job, finished, &retention)
    }

    /// Merges all ranges, with as many threads as the options allow. After an error, `finished` has the
    /// ranges that were completed.
    fn merge_ranges(
        &self,
        job: &CompactionJob,
        retention: &Retention,
        finished: &Finished,
    ) -> Result<()> {
        let ranges = job.cuts.len() + 1;
        let next = AtomicUsize::new(0);
        let is_over = AtomicBool::new(false);
        let failure = Mutex::new(None);
        let work = || {
            while !is_over.load(Ordering::Relaxed) {
                let range = next.fetch_add(1, Ordering::Relaxed);
                if range >= ranges {
                    break;
                }
                match self.merge_range(job, range, retention, &is_over) {
                    Ok(files) => drop(finished.lock().insert(range, files)),
                    Err(error) => {
                        // Record the error before the flag: the other threads then fail because of this one.
                        failure.lock().get_or_insert(error);
                        is_over.store(true, Ordering::Relaxed);
                    }
                }
            }
        };
        let threads = match self.core.options.has_threads() {
            true => self.core.options.compaction.threads.min(ranges),
            false => 1,
        };
        if threads > 1 {
            thread::scope(|scope| {
                for _ in 1..threads {
                    // Without helper threads this thread does all ranges.
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
        job: &CompactionJob,
        range: usize,
        retention: &Retention,
        is_over: &AtomicBool,
    ) -> Result<WrittenRun> {
        let keys = KeyRange::nth(&job.cuts, range);
        let of_run = |tables: &Vec<Arc<Table>>| VersionSource::run(tables.clone(), keys);
        let sources = job.by_run.iter().map(of_run).collect();
        let spec = RunSpec {
            tree: job.tree,
            retention,
            bottom: job.bottom,
            compression: self.core.compression_of(job.tree, job.bottom),
            version: &job.version,
            emptied: &job.emptied,
            is_over,
        };
        let files = self.core.write_run(sources, &spec)?;
        self.core.count_compacted(&files);
        self.core.counters.compaction_ranges.add(1);
        Ok(files)
    }

    /// Replaces the inputs by the outputs of all ranges.
    fn complete(
        &self,
        job: &CompactionJob,
        finished: BTreeMap<usize, WrittenRun>,
        retention: &Retention,
    ) -> Result<()> {
        let &CompactionJob { run, level, .. } = job;
        let inputs = job.by_run.iter().flatten().chain(&job.kept);
        let mut edit = Edit {
            removed: inputs.map(|table| table.meta().file_id).collect(),
            history_floor: Some(retention.floor),
            next_run_id: Some(run + 1),
            ..Edit::default()
        };
        for files in finished.into_values() {
            place(&mut edit, level, run, files);
        }
        // Tables that only move keep their references to blob files.
        edit.added.extend(job.kept.iter().map(|table| PlacedTable {
            level,
            run,
            meta: table.meta().clone(),
        }));
        self.core.install_or_discard(edit, None)?;
        self.core.counters.compactions.add(1);
        Ok(())
    }
}
