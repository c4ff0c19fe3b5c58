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
//! Large values do not move with a merge: its tables get the pointers of the inputs. Values of blob
//! files that are to be emptied go into new ones, of which each range makes its own. A range is
//! written down with its blob files, and with what its tables refer to; the last edit says the same
//! of the whole. Until then only what the *inputs* refer to counts, so a blob file that a finished
//! range has a pointer into stays because an input has it, and garbage is counted as if there were no
//! merge. The blob files that a range has made come and go with its tables.
//!
//! What a crash, a close or an error leaves:
//!
//! | it comes | what is there then | what is done with it |
//! |---|---|---|
//! | while a range is merged | files that nothing names | removed at once, or by the next opening |
//! | before the edit of a range | the same | the same |
//! | between the edits of ranges | finished ranges, named by the manifest | verified, and only the other ranges are merged |
//! | before the last edit | the same | only the ranges that were not written down are merged |
//! | after the last edit | the new run, and inputs that nothing names | removed by the next opening |
//!
//! The job that would pick a merge for a tree first takes up the one that is under way there. It is
//! given up when one of its finished files is missing or damaged (the inputs have everything), when
//! somebody asks for all of the tree to be merged (what may be dropped may be more by now), and when
//! the disk is full (it is tried once more then without emptying blob files, which takes room): then its files are removed at once, so that what is deleted finds room, and the
//! manifest names files that are not there until the next merge of the tree is begun.
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
//! - What the tables of a finished range refer to is there: the range has made it, or an input refers
//!   to it. Emptying blob files removes inputs, so it ends a merge, as everything does that could
//!   take one away.
//! - File ids of finished ranges are never used again: each edit says which one is next.
//!
//! [`State::apply`]: crate::version::State::apply

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::Shared;
use super::background::{MergeJob, place};
use super::check::verify_pointers;
use crate::TreeId;
use crate::blob::BlobMeta;
use crate::compaction::{
    KeyRange, Pick, Retention, VersionSource, cut, emptied, pick, pick_all, pick_blobs,
};
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::thread;
use crate::table::{Table, TableMeta};
use crate::version::{Edit, MergeBegun, PlacedTable, RangeMerged, Version, WrittenRun};

/// A merge that is carried out.
struct Merge {
    begun: MergeBegun,
    /// What is read, newest run first.
    by_run: Vec<Vec<Arc<Table>>>,
    /// What moves, unread.
    kept: Vec<Arc<Table>>,
    /// Has the blob files that the inputs refer to.
    version: Arc<Version>,
    /// The blob files that are to be emptied.
    emptied: BTreeSet<u64>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// What each finished range was merged into.
    done: BTreeMap<u64, WrittenRun>,
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
                    self.discard_merge(tree);
                    self.carry_out(&self.begin_merge(tree, &pick, &version))
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
    /// have not. A merge of the tree that is under way is given up if it reads one of the tables.
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
            || self.manifest.lock().state.merges.contains_key(&tree)
    }

    /// Goes on with the tree's merge, or begins one; `false` when none is wanted.
    fn compact_tree(&self, tree: TreeId) -> Result<bool> {
        self.check_manifest()?;
        let version = self.super_version.load_full().version.clone();
        let merge = match self.take_up_merge(tree, &version) {
            Some(merge) => merge,
            None => match pick(version.tree(tree), &self.options.compaction) {
                Some(pick) => self.begin_merge(tree, &pick, &version),
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

    fn begin_merge(&self, tree: TreeId, pick: &Pick, version: &Arc<Version>) -> Merge {
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
            emptied: emptied(version, tree, &self.options.blobs),
            version: version.clone(),
            progress: Mutex::default(),
        }
    }

    /// The same merge from its start, with no blob file that is to be emptied.
    fn carrying_on(&self, merge: &Merge) -> Merge {
        Merge {
            begun: MergeBegun {
                run: self.next_run_id.fetch_add(1, Ordering::Relaxed),
                ..merge.begun.clone()
            },
            by_run: merge.by_run.clone(),
            kept: merge.kept.clone(),
            emptied: BTreeSet::new(),
            version: merge.version.clone(),
            progress: Mutex::default(),
        }
    }

    /// The merge of the tree that was interrupted, if all it has finished is whole.
    fn take_up_merge(&self, tree: TreeId, version: &Arc<Version>) -> Option<Merge> {
        let under_way = self.manifest.lock().state.merges.get(&tree)?.clone();
        for files in under_way.done.values() {
            // Its inputs go on its word, so each byte is looked at once more.
            let whole = self.verify_range(files, version);
            if let Err(cause) = whole {
                tracing::info!(%cause, "an interrupted merge begins anew");
                self.remove_written(under_way.done.values());
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
            // As when it was begun, if the setting is the same: what inputs refer to has not changed.
            emptied: emptied(version, tree, &self.options.blobs),
            version: version.clone(),
            begun,
            progress: Mutex::new(Progress {
                done,
                is_recorded: true,
                has_floor: false,
            }),
        })
    }

    /// Reads all that a finished range was merged into, the values by the pointers to them. Blob files
    /// that it did not make are the database's, whoever refers to them.
    fn verify_range(&self, files: &WrittenRun, version: &Version) -> Result<()> {
        let mut blobs = BTreeMap::new();
        for meta in &files.blobs {
            blobs.insert(meta.file_id, Arc::new(self.open_blob(meta)?));
        }
        let is_known = |id: u64| version.blobs.contains_key(&id);
        for meta in &files.tables {
            let table = Arc::new(self.open_table(meta)?);
            let pointers = table.verify()?.pointers;
            let references = files.references_of(meta.file_id);
            let blob = |id| blobs.get(&id).cloned();
            verify_pointers(&table, pointers, references, is_known, &blob)?;
        }
        Ok(())
    }

    /// Removes what the tree's interrupted merge has finished: it is given up.
    pub(super) fn discard_merge(&self, tree: TreeId) {
        let under_way = self.manifest.lock().state.merges.get(&tree).cloned();
        if let Some(merge) = under_way {
            self.remove_written(merge.done.values());
        }
    }

    /// Merges the ranges that are not finished, and completes the merge.
    fn carry_out(&self, merge: &Merge) -> Result<()> {
        match self.try_to_carry_out(merge) {
            // What is carried on needs no room.
            Err(Error::NoSpace { .. }) if !merge.emptied.is_empty() => {
                self.check_manifest()?;
                self.try_to_carry_out(&self.carrying_on(merge))
            }
            result => result,
        }
    }

    fn try_to_carry_out(&self, merge: &Merge) -> Result<()> {
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
            self.remove_written(merge.progress.lock().done.values());
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
        let job = MergeJob {
            tree: begun.tree,
            retention,
            bottom: begun.bottom,
            compression: self.compression_of(begun.tree, begun.bottom),
            version: &merge.version,
            emptied: &merge.emptied,
            is_over,
        };
        let files = self.merge(sources, &job)?;
        self.count_merged(&files);
        self.counters.compaction_ranges.add(1);
        let mut progress = merge.progress.lock();
        // The last one is written down with the whole.
        if progress.done.len() < begun.cuts.len()
            && let Err(error) = self.record_range(begun, &mut progress, range, &files, retention)
        {
            self.remove_written([&files]);
            return Err(error);
        }
        progress.done.insert(range, files);
        Ok(())
    }

    fn record_range(
        &self,
        begun: &MergeBegun,
        progress: &mut Progress,
        range: u64,
        files: &WrittenRun,
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
                files: files.clone(),
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
        let mut edit = Edit {
            removed: [&merge.begun.inputs[..], &merge.begun.kept].concat(),
            history_floor: Some(retention.floor),
            next_run_id: Some(run + 1),
            ..Edit::default()
        };
        for files in merge.progress.lock().done.values() {
            place(&mut edit, level, run, files.clone());
        }
        // What these refer to stays with them.
        let kept = merge.kept.iter().map(|table| placed(table.meta()));
        edit.added.extend(kept);
        self.install(edit, None)?;
        self.counters.compactions.add(1);
        Ok(())
    }

    /// Removes what was written and no version has, as far as the disk lets it.
    pub(super) fn remove_written<'a>(&self, written: impl IntoIterator<Item = &'a WrittenRun>) {
        for files in written {
            self.remove_files(&files.tables, &files.blobs);
        }
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
