//! Merges of tables: cut into ranges, done by several threads, and taken up again.
//!
//! ```text
//!  pick ──► cut ──► range 0 ─┐                                       one edit:
//!                   range 1 ─┼─► all but the last: an edit each ──► inputs go, outputs come
//!                   range 2 ─┘   ("finished", seen by no reader)
//! ```
//!
//! Threads take the ranges of one merge in the order of their keys; with `Manual` the caller's does
//! all of them. A range that is finished while others are not is written down in the manifest, as
//! [`RangeMerged`], the first one with the merge itself ([`MergeBegun`]). So a merge of one range
//! costs one edit, and one of n ranges n. The last edit puts the tables of all ranges in the place of
//! the inputs, at once.
//!
//! What a crash, a close or an error leaves:
//!
//! | it comes | what is there then | what is done with it |
//! |---|---|---|
//! | while a range is merged | tables that nothing names | removed at once, or by the next opening |
//! | before the edit of a range | the same | the same |
//! | between the edits of ranges | finished ranges, named by the manifest | verified, and only the other ranges are merged |
//! | before the last edit | the same | only the ranges that were not written down are merged |
//! | after the last edit | the new run, and inputs that nothing names | removed by the next opening |
//!
//! The job that would pick a merge for a tree first takes up the one that is under way there. It is
//! given up when one of its finished tables is missing or damaged (the inputs have everything), when
//! somebody asks for all of the tree to be merged (what may be dropped may be more by now), and when
//! the disk is full: then its files are removed at once, so that what is deleted finds room, and the
//! manifest names tables that are not there until the next merge of the tree is begun.
//!
//! Invariants:
//!
//! - A version of the database has all tables of a merge or none: a reader sees no key twice, and
//!   misses none.
//! - A finished range was merged by the [`Retention`] of its time. Its floor is in the manifest before
//!   or with the range, so no later reader can ask for what it dropped; pins of that time were in it.
//! - What is under way stays right while tables are flushed above it. A flush takes none of its
//!   inputs and puts nothing below them; whatever else does ends it ([`State::apply`]).
//! - When the outcome of an edit is unknown, nothing of a merge is removed any more: it may have been
//!   the last one of that merge.
//! - File ids of finished ranges are never used again: each edit says which one is next.
//!
//! [`State::apply`]: crate::version::State::apply

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::Shared;
use crate::TreeId;
use crate::compaction::{KeyRange, Pick, Retention, VersionSource, cut, pick, pick_all};
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::thread;
use crate::table::{Compression, Table, TableMeta};
use crate::version::{Edit, MergeBegun, PlacedTable, RangeMerged, Version};

/// A merge that is carried out.
struct Merge {
    begun: MergeBegun,
    /// What is read, newest run first.
    by_run: Vec<Vec<Arc<Table>>>,
    /// What moves, unread.
    kept: Vec<Arc<Table>>,
    progress: Mutex<Progress>,
}

struct Progress {
    /// The tables of each finished range.
    done: BTreeMap<u64, Vec<TableMeta>>,
    /// Whether the manifest has the merge.
    is_recorded: bool,
    /// Whether it has the floor that what is merged now was merged by.
    has_floor: bool,
}

impl Shared {
    /// Does the most urgent compaction of any tree; `false` when there is none.
    pub(super) fn compact_once(&self) -> Result<bool> {
        let _compacting = self.compacting.lock();
        for tree in self.tree_ids() {
            if self.has_merge(tree) && self.with_ballast(|| self.compact_tree(tree))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Merges each tree into one run.
    pub(super) fn compact_all(&self) -> Result<()> {
        for tree in self.tree_ids() {
            let _compacting = self.compacting.lock();
            let current = self.super_version.load_full();
            if let Some(pick) = pick_all(current.version.tree(tree)) {
                self.with_ballast(|| {
                    self.check_manifest()?;
                    self.discard_merge(tree);
                    self.carry_out(&self.begin_merge(tree, &pick))
                })?;
            }
        }
        Ok(())
    }

    fn has_merge(&self, tree: TreeId) -> bool {
        let version = self.super_version.load_full().version.clone();
        pick(version.tree(tree), &self.options.compaction).is_some()
            || self.manifest.lock().state.merges.contains_key(&tree)
    }

    /// Goes on with the tree's merge, or begins one; `false` when none is wanted.
    fn compact_tree(&self, tree: TreeId) -> Result<bool> {
        self.check_manifest()?;
        let version = self.super_version.load_full().version.clone();
        let merge = match self.take_up_merge(tree, &version) {
            Some(merge) => merge,
            None => match pick(version.tree(tree), &self.options.compaction) {
                Some(pick) => self.begin_merge(tree, &pick),
                None => return Ok(false),
            },
        };
        self.carry_out(&merge)?;
        Ok(true)
    }

    /// Refuses to go on when the outcome of an edit is unknown. It may be one that made the tables of
    /// a merge those of the database: nothing of what is under way may be removed then.
    pub(super) fn check_manifest(&self) -> Result<()> {
        self.manifest.lock().manifest.check_intact()
    }

    fn begin_merge(&self, tree: TreeId, pick: &Pick) -> Merge {
        let by_run = pick.tables_by_run();
        let tables = by_run.concat();
        let ids = |tables: &[Arc<Table>]| tables.iter().map(|table| table.meta().file_id).collect();
        let bytes = tables.iter().map(|table| table.meta().file_bytes).sum();
        let begun = MergeBegun {
            tree,
            run: self.next_run_id.fetch_add(1, Ordering::Relaxed),
            level: pick.output_level as u8,
            bottom: pick.bottom,
            inputs: ids(&tables),
            kept: ids(&pick.kept),
            cuts: cut(&tables, self.options.compaction.ranges(bytes)),
        };
        Merge {
            begun,
            by_run,
            kept: pick.kept.clone(),
            progress: Mutex::new(Progress {
                done: BTreeMap::new(),
                is_recorded: false,
                has_floor: false,
            }),
        }
    }

    /// The merge of the tree that was interrupted, if all it has finished is whole.
    fn take_up_merge(&self, tree: TreeId, version: &Version) -> Option<Merge> {
        let under_way = self.manifest.lock().state.merges.get(&tree)?.clone();
        for meta in under_way.tables() {
            // Its inputs go on its word, so each byte is looked at once more.
            let whole = self.open_table(meta).and_then(|table| table.verify());
            if let Err(cause) = whole {
                tracing::info!(%cause, "an interrupted merge begins anew");
                self.remove_tables(under_way.tables());
                return None;
            }
        }
        let begun = under_way.begun;
        let of = |ids: &[u64]| -> Vec<Vec<Arc<Table>>> {
            let ids: HashSet<u64> = ids.iter().copied().collect();
            let is_one = |table: &&Arc<Table>| ids.contains(&table.meta().file_id);
            let runs = version.tree(tree).runs();
            let by_run = runs.map(|run| run.tables.iter().filter(is_one).cloned().collect());
            by_run
                .filter(|tables: &Vec<_>| !tables.is_empty())
                .collect()
        };
        let done = under_way.done;
        self.counters
            .compaction_ranges_resumed
            .add(done.len() as u64);
        Some(Merge {
            by_run: of(&begun.inputs),
            kept: of(&begun.kept).concat(),
            begun,
            progress: Mutex::new(Progress {
                done,
                is_recorded: true,
                has_floor: false,
            }),
        })
    }

    /// Removes what the tree's interrupted merge has finished: it is given up.
    pub(super) fn discard_merge(&self, tree: TreeId) {
        let under_way = self.manifest.lock().state.merges.get(&tree).cloned();
        if let Some(merge) = under_way {
            self.remove_tables(merge.tables());
        }
    }

    /// Merges the ranges that are not finished, and completes the merge.
    fn carry_out(&self, merge: &Merge) -> Result<()> {
        let retention = self.retention();
        let todo: Vec<u64> = {
            let progress = merge.progress.lock();
            let ranges = 0..=merge.begun.cuts.len() as u64;
            ranges
                .filter(|range| !progress.done.contains_key(range))
                .collect()
        };
        let next = AtomicU64::new(0);
        let is_over = AtomicBool::new(false);
        let failure = Mutex::new(None);
        let work = || {
            while !is_over.load(Ordering::Relaxed) {
                let turn = next.fetch_add(1, Ordering::Relaxed) as usize;
                let Some(range) = todo.get(turn) else { break };
                if let Err(error) = self.merge_range(merge, *range, &retention, &is_over) {
                    // First the error: the others fail because of this one.
                    failure.lock().get_or_insert(error);
                    is_over.store(true, Ordering::Relaxed);
                }
            }
        };
        let threads = match self.options.has_threads() {
            true => self.options.compaction.threads.min(todo.len()),
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
        let result = match failed {
            Some(error) => Err(error),
            None => self.complete(merge, &retention),
        };
        if matches!(result, Err(Error::NoSpace { .. })) {
            self.remove_tables(merge.progress.lock().done.values().flatten());
        }
        result
    }

    fn merge_range(
        &self,
        merge: &Merge,
        range: u64,
        retention: &Retention,
        is_over: &AtomicBool,
    ) -> Result<()> {
        let begun = &merge.begun;
        let keys = KeyRange::nth(&begun.cuts, usize::try_from(range).unwrap_or(usize::MAX));
        let of_run = |tables: &Vec<Arc<Table>>| VersionSource::run(tables.clone(), keys);
        let sources = merge.by_run.iter().map(of_run).collect();
        let tables = self.merge(
            begun.tree,
            sources,
            retention,
            begun.bottom,
            self.compression_of(begun),
            is_over,
        )?;
        for meta in &tables {
            self.counters.compaction_bytes_written.add(meta.file_bytes);
        }
        self.counters.compaction_ranges.add(1);
        let mut progress = merge.progress.lock();
        // The last one is written down with the whole.
        if progress.done.len() < begun.cuts.len()
            && let Err(error) = self.record_range(begun, &mut progress, range, &tables, retention)
        {
            self.remove_tables(&tables);
            return Err(error);
        }
        progress.done.insert(range, tables);
        Ok(())
    }

    fn compression_of(&self, begun: &MergeBegun) -> Compression {
        let of_tree = self.options.trees[usize::from(begun.tree.0)].compression;
        let of_last = self.options.compaction.last_level_compression;
        of_last.filter(|_| begun.bottom).unwrap_or(of_tree)
    }

    fn record_range(
        &self,
        begun: &MergeBegun,
        progress: &mut Progress,
        range: u64,
        tables: &[TableMeta],
        retention: &Retention,
    ) -> Result<()> {
        self.sync_tables_dir()?;
        let is_new = !progress.is_recorded;
        let edit = Edit {
            merges_begun: is_new.then(|| begun.clone()).into_iter().collect(),
            ranges_merged: vec![RangeMerged {
                tree: begun.tree,
                run: begun.run,
                range,
                tables: tables.to_vec(),
            }],
            history_floor: (!progress.has_floor).then_some(retention.floor),
            next_file_id: Some(self.next_file_id.load(Ordering::Relaxed)),
            next_run_id: Some(begun.run + 1),
            ..Edit::default()
        };
        self.apply_edit(&edit, &[], None)?;
        (progress.is_recorded, progress.has_floor) = (true, true);
        Ok(())
    }

    /// Puts the tables of all ranges in the place of the inputs.
    fn complete(&self, merge: &Merge, retention: &Retention) -> Result<()> {
        let MergeBegun { run, level, .. } = merge.begun;
        let placed = |meta: &TableMeta| PlacedTable {
            level,
            run,
            meta: meta.clone(),
        };
        let progress = merge.progress.lock();
        let made = progress.done.values().flatten();
        let kept = merge.kept.iter().map(|table| table.meta());
        let edit = Edit {
            removed: [&merge.begun.inputs[..], &merge.begun.kept].concat(),
            added: made.chain(kept).map(placed).collect(),
            history_floor: Some(retention.floor),
            next_run_id: Some(run + 1),
            ..Edit::default()
        };
        drop(progress);
        self.install(edit, None)?;
        self.counters.compactions.add(1);
        Ok(())
    }

    /// Removes tables that no version has, as far as the disk lets it.
    pub(super) fn remove_tables<'a>(&self, tables: impl IntoIterator<Item = &'a TableMeta>) {
        for meta in tables {
            let path = self.layout.table(meta.file_id);
            if let Err(cause) = self.vfs.remove_file(&path)
                && cause.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), %cause, "an unfinished table stays until the next open");
            }
        }
    }
}
