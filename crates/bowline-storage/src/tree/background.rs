//! Flush and compaction: the jobs, and the threads that run them.
//!
//! One thread flushes, one compacts (with others that it starts for a large
//! [merge](super::merges)), and with [`SyncPolicy::Every`] one syncs the log. A job that
//! fails (a full disk, say) leaves no trace, is remembered for writers to be told when they have
//! to wait for it, and is tried again a second later, or when a writer comes who waits for it. In
//! `Manual` mode there are no threads, and the jobs run on the caller's.
//!
//! On a full disk a job gets a second chance with the room of the [`Ballast`](super::ballast), and
//! a flush takes all waiting memtables at once, so that what a later one deletes is never written.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Job, Recording, Shared, SyncPolicy};
use crate::blob::{BlobFile, BlobMeta};
use crate::compaction::{
    BlobPick, KeyRange, MergeOutput, Retention, VersionMerge, VersionSource, pick_all, write_run,
};
use crate::error::{Error, Result};
use crate::log::LogSync;
use crate::memtable::Memtable;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Instant, Mutex};
use crate::table::{Compression, Table, TableMeta, TableOptions};
use crate::version::{Edit, PlacedTable, Version, WrittenRun};
use crate::{Index, Revision, TreeId};

const RETRY_AFTER: Duration = Duration::from_secs(1);
/// However many writers hurry it.
const RETRY_AFTER_LEAST: Duration = Duration::from_millis(50);

/// Starts the threads, unless the engine is to have none.
pub(super) fn start(shared: &Arc<Shared>) -> Result<Vec<JoinHandle<()>>> {
    if !shared.options.has_threads() {
        return Ok(Vec::new());
    }
    let mut handles = Vec::new();
    let mut spawn = |name: &str, run: fn(&Shared)| -> Result<()> {
        let shared = shared.clone();
        let body = move || {
            let _told = ToldOfPanic(&shared);
            run(&shared);
        };
        let thread = thread::Builder::new()
            .name(format!("bowline-{name}"))
            .spawn(body);
        handles.push(thread.map_err(|e| Error::Internal(format!("cannot start a thread: {e}")))?);
        Ok(())
    };
    spawn("flush", flush_loop)?;
    spawn("compact", compaction_loop)?;
    if matches!(shared.options.sync, SyncPolicy::Every(_)) {
        spawn("sync", sync_loop)?;
    }
    Ok(handles)
}

/// Tells writers when a background thread panics, since nobody does its work any more.
struct ToldOfPanic<'a>(&'a Shared);

impl Drop for ToldOfPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut signals = self.0.signals.lock();
            let error = Error::Internal("a background thread panicked".to_owned());
            signals.flush.failed = Some((u64::MAX, error));
            self.0.done.notify_all();
        }
    }
}

fn flush_loop(shared: &Shared) {
    const SETTLED_AFTER: Duration = Duration::from_secs(1);
    // A program that opens, does one thing and closes pays nothing for a full disk.
    let start = Instant::now();
    let mut is_settled = false;
    while shared.wait_for_work(|signals| {
        let settles = !is_settled && start.elapsed() >= SETTLED_AFTER;
        is_settled |= settles;
        let is_wanted = std::mem::take(&mut signals.flush_wanted) || settles;
        signals.flush.begun += u64::from(is_wanted);
        is_wanted
    }) {
        shared.readers.tick(&shared.visible, shared.clock.wall_ms());
        let result = shared.flush_all();
        if is_settled && result.is_ok() {
            shared.take_in_ballast();
        }
        shared.report("flush", result, |signals| {
            (&mut signals.flush, &mut signals.flush_wanted)
        });
    }
}

fn compaction_loop(shared: &Shared) {
    while shared.wait_for_work(|signals| {
        let is_wanted = std::mem::take(&mut signals.compaction_wanted);
        signals.compaction.begun += u64::from(is_wanted);
        is_wanted
    }) {
        let result = loop {
            match shared.compact_once() {
                Ok(true) => shared.notify_done(),
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        shared.report("compaction", result, |signals| {
            (&mut signals.compaction, &mut signals.compaction_wanted)
        });
    }
}

fn sync_loop(shared: &Shared) {
    let SyncPolicy::Every(every) = shared.options.sync else {
        return;
    };
    let Some(log) = &shared.log_sync else { return };
    loop {
        {
            let start = Instant::now();
            let mut signals = shared.signals.lock();
            loop {
                if shared.is_closing.load(Ordering::Acquire) {
                    return;
                }
                // Also woken by work that is not its own.
                match every.checked_sub(start.elapsed()) {
                    Some(left) => shared.work.wait_for(&mut signals, left),
                    None => break,
                };
            }
        }
        if let Err(error) = log.sync() {
            tracing::error!(%error, "the log could not be flushed; writes are refused from now on");
            return;
        }
    }
}

impl Shared {
    /// Waits until `take` finds work; `false` when the engine closes.
    fn wait_for_work(&self, mut take: impl FnMut(&mut super::Signals) -> bool) -> bool {
        let mut signals = self.signals.lock();
        loop {
            if self.is_closing.load(Ordering::Acquire) {
                return false;
            }
            if take(&mut signals) {
                return true;
            }
            self.work.wait_for(&mut signals, Duration::from_secs(1));
            drop(signals);
            self.readers.tick(&self.visible, self.clock.wall_ms());
            // What a reader was in when it was replaced.
            self.super_version.reclaim();
            self.retirement.free();
            signals = self.signals.lock();
        }
    }

    pub(super) fn notify_done(&self) {
        let _signals = self.signals.lock();
        self.done.notify_all();
    }

    fn report(
        &self,
        name: &str,
        result: Result<()>,
        job: fn(&mut super::Signals) -> (&mut Job, &mut bool),
    ) {
        let mut signals = self.signals.lock();
        match result {
            Ok(()) => job(&mut signals).0.failed = None,
            Err(Error::Closed) => {}
            Err(error) => {
                tracing::error!(%error, job = name, "failed; it is tried again");
                let own = job(&mut signals).0;
                own.failed = Some((own.begun, error));
                signals.is_hurried = false;
                self.done.notify_all();
                let start = Instant::now();
                while !self.is_closing.load(Ordering::Acquire) {
                    let wait = if signals.is_hurried {
                        RETRY_AFTER_LEAST
                    } else {
                        RETRY_AFTER
                    };
                    let Some(left) = wait.checked_sub(start.elapsed()) else {
                        break;
                    };
                    self.work.wait_for(&mut signals, left);
                }
                *job(&mut signals).1 = true;
            }
        }
        self.done.notify_all();
    }

    /// Waits for the room of what the log has given up; returns whether there was any.
    fn finish_releases(&self) -> bool {
        self.log_sync.as_ref().is_some_and(LogSync::finish_releases)
    }

    /// Makes the ballast where there is none.
    fn take_in_ballast(&self) {
        if !self.ballast.is_there() {
            self.finish_releases();
            self.ballast.take_in();
        }
    }

    /// Does a job, once more with the room of what the log has given up when the disk is full, and once
    /// more with that of the ballast.
    pub(super) fn with_ballast<T>(&self, job: impl Fn() -> Result<T>) -> Result<T> {
        let is_short = |result: &Result<T>| matches!(result, Err(Error::NoSpace { .. }));
        let mut result = job();
        if is_short(&result) && self.finish_releases() {
            result = job();
        }
        if is_short(&result) && self.ballast.take_release() {
            self.ballast.give_up();
            if let Some(log) = &self.commit.lock().log {
                log.discard_spares();
            }
            result = job();
        }
        // Not when it failed: the room may yet serve deletions, with which the next attempt needs
        // less of it.
        if result.is_ok() && self.has_ballast() {
            self.take_in_ballast();
        }
        result
    }

    /// Whether there shall be one.
    pub(super) fn has_ballast(&self) -> bool {
        self.log_sync.is_some() && !self.is_closing.load(Ordering::Acquire)
    }

    /// Flushes every sealed memtable, oldest first.
    pub(super) fn flush_all(&self) -> Result<()> {
        loop {
            self.retirement.free();
            let _flushing = self.flushing.lock();
            let oldest = self.super_version.load().sealed.last().cloned();
            let Some(oldest) = oldest else {
                return Ok(());
            };
            match self.flush_memtables(&[oldest], false) {
                Err(Error::NoSpace { .. }) => {
                    let all = self.super_version.load().sealed.clone();
                    self.with_ballast(|| self.flush_memtables(&all, false))?;
                }
                result => result?,
            }
            self.notify_done();
        }
    }

    /// Merges what waits in memtables and every table at once: what the memtables delete is gone
    /// before anything of it has to be written, so this needs room only for what remains.
    pub(super) fn flush_into_tables(&self) -> Result<()> {
        let _flushing = self.flushing.lock();
        let _compacting = self.compacting.lock();
        self.check_manifest()?;
        let all = self.super_version.load().sealed.clone();
        self.with_ballast(|| self.flush_memtables(&all, true))
    }

    /// Flushes the oldest of the sealed memtables, newest first, into one run; with all there is in
    /// tables (then no merge may run beside it), or on top of it.
    fn flush_memtables(&self, memtables: &[Arc<Memtable>], with_tables: bool) -> Result<()> {
        self.write_memtables(memtables, with_tables)?;
        let flushed = self.super_version.load().version.flushed_index;
        if let Some(log) = &mut self.commit.lock().log {
            log.release_prefix(flushed)?;
        }
        let mut signals = self.signals.lock();
        signals.compaction_wanted = true;
        self.work.notify_all();
        Ok(())
    }

    /// [`Shared::flush_memtables`] without what needs the commit lock: for somebody who may hold it.
    pub(super) fn write_memtables(
        &self,
        memtables: &[Arc<Memtable>],
        with_tables: bool,
    ) -> Result<()> {
        let upto = memtables.iter().map(|memtable| memtable.max_index()).max();
        let newest = memtables.first().map(|memtable| memtable.generation());
        let mut edit = Edit::default();
        // Nothing more is written that cannot be recorded.
        self.check_manifest()?;
        let written =
            self.beside_the_log(upto, || self.write_files(memtables, with_tables, &mut edit));
        self.or_discard(written, &edit)?;
        self.install_or_discard(edit, newest)?;
        self.counters.flushes.add(1);
        Ok(())
    }

    /// Does `job`, and makes the log durable up to `upto` in the meantime where there are threads: both
    /// must be done before the manifest says that the log is not needed any more, in either order.
    fn beside_the_log(&self, upto: Option<Index>, job: impl FnOnce() -> Result<()>) -> Result<()> {
        let is_durable = |log: &LogSync| upto.is_none_or(|upto| log.durable_index() >= upto);
        if self.log_sync.as_ref().is_none_or(is_durable) {
            return job();
        }
        if !self.options.has_threads() {
            self.sync_log_up_to(upto)?;
            return job();
        }
        let synced = Mutex::new(None);
        let done = thread::scope(|scope| {
            let sync = || *synced.lock() = Some(self.sync_log_up_to(upto));
            if !thread::spawn_in(scope, "bowline-log-sync", sync) {
                *synced.lock() = Some(self.sync_log_up_to(upto));
            }
            job()
        });
        let synced = synced.lock().take();
        done.and(synced.unwrap_or_else(|| self.sync_log_up_to(upto)))
    }

    /// Writes the files of the run that memtables become, and what the manifest is to say of it.
    fn write_files(
        &self,
        memtables: &[Arc<Memtable>],
        with_tables: bool,
        edit: &mut Edit,
    ) -> Result<()> {
        let retention = self.retention();
        let run = self.next_run_id.fetch_add(1, Ordering::Relaxed);
        let current = self.super_version.load_full();
        *edit = Edit {
            flushed: Some((
                (memtables.iter().map(|memtable| memtable.max_index()))
                    .fold(current.version.flushed_index, Index::max),
                (memtables.iter().map(|memtable| memtable.max_revision()))
                    .fold(current.version.flushed_revision, Revision::max),
            )),
            history_floor: Some(retention.floor),
            next_run_id: Some(run + 1),
            ..Edit::default()
        };
        for tree in self.tree_ids() {
            let below = with_tables.then(|| pick_all(current.version.tree(tree)));
            let below = below.flatten();
            let mut sources: Vec<_> = memtables
                .iter()
                .filter(|memtable| memtable.tree_entries(tree) > 0)
                .map(|memtable| VersionSource::Memtable(memtable.version_cursor(tree)))
                .collect();
            if sources.is_empty() {
                // Its tables stay as they are.
                continue;
            }
            let mut level = 0;
            let mut bottom = current.version.tree(tree).deepest().is_none();
            if let Some(pick) = below {
                for tables in pick.tables_by_run() {
                    edit.removed
                        .extend(tables.iter().map(|table| table.meta().file_id));
                    sources.push(VersionSource::run(tables, KeyRange::default()));
                }
                (level, bottom) = (pick.output_level as u8, true);
            }
            bottom &= (current.sealed.last().zip(memtables.last()))
                .is_some_and(|(oldest, last)| Arc::ptr_eq(oldest, last));
            let job = MergeJob {
                tree,
                retention: &retention,
                bottom,
                compression: self.options.trees[usize::from(tree.0)].compression,
                version: &current.version,
                // What is there is carried on: no blob file is emptied, which would need room.
                emptied: &BTreeSet::new(),
                is_over: &self.is_closing,
            };
            let written = self.merge(sources, &job)?;
            for meta in &written.tables {
                self.counters.flush_bytes_written.add(meta.file_bytes);
            }
            for meta in &written.blobs {
                self.counters.blob_flush_bytes_written.add(meta.file_bytes);
            }
            place(edit, level, run, written);
        }
        Ok(())
    }

    /// Gives up what of the log was flushed before the last life ended, and was not given up in it.
    pub(super) fn release_log(&self) {
        let flushed = self.super_version.load().version.flushed_index;
        if let Some(log) = &mut self.commit.lock().log
            && let Err(error) = log.release_prefix(flushed)
        {
            tracing::warn!(%error, "segments of the log stay that are not needed");
        }
    }

    pub(super) fn tree_ids(&self) -> impl Iterator<Item = TreeId> + use<> {
        (0..self.options.trees.len() as u8).map(TreeId)
    }

    /// Writes what sources have as the files of one run. Given up when the engine closes, and when
    /// the job says so.
    pub(super) fn merge(
        &self,
        sources: Vec<VersionSource>,
        job: &MergeJob<'_>,
    ) -> Result<WrittenRun> {
        let mut merge = VersionMerge::new(sources)?;
        let output = MergeOutput {
            vfs: &self.vfs,
            new_file: &|| self.new_file(),
            new_blob: &|| {
                let (id, _) = self.new_file();
                (id, self.layout.blob(id))
            },
            tree: job.tree,
            options: &TableOptions {
                compression: job.compression,
                ..self.options.trees[usize::from(job.tree.0)]
            },
            table_bytes: self.options.compaction.table_bytes,
            retention: job.retention,
            bottom: job.bottom,
            cancel: [&self.is_closing, job.is_over],
            blobs: &self.options.blobs,
            version: job.version,
            emptied: job.emptied,
            operator: self
                .options
                .merge_operators
                .get(&job.tree)
                .map(|operator| &**operator),
            counters: &self.counters,
        };
        write_run(&mut merge, &output)
    }

    pub(super) fn open_table(&self, meta: &TableMeta) -> Result<Table> {
        let path = self.layout.table(meta.file_id);
        let (cache, counters) = (self.cache.clone(), self.counters.clone());
        Table::open(&self.vfs, path, meta, cache, counters)
    }

    pub(super) fn open_blob(&self, meta: &BlobMeta) -> Result<BlobFile> {
        let path = self.layout.blob(meta.file_id);
        BlobFile::open(&self.vfs, path, meta, self.counters.clone())
    }

    pub(super) fn sync_tables_dir(&self) -> Result<()> {
        let tables = self.layout.tables();
        let synced = self.vfs.sync_dir(&tables);
        synced.map_err(|e| Error::io("sync", &tables, e))
    }

    /// On an error, removes the files the edit would have added.
    fn or_discard<T>(&self, result: Result<T>, edit: &Edit) -> Result<T> {
        if result.is_err() {
            self.remove_files(edit.added.iter().map(|placed| &placed.meta), &edit.blobs);
        }
        result
    }

    /// Opens an edit's new tables and blob files, makes their names durable, and applies the edit.
    pub(super) fn install(&self, edit: Edit, flushed: Option<u64>) -> Result<()> {
        self.install_as(edit, flushed, Recording::Appended)
    }

    /// [`Shared::install`]; removes the new files again when the edit could not be recorded and it
    /// is certain that it is not on the disk. For files that no earlier edit names.
    pub(super) fn install_or_discard(&self, edit: Edit, flushed: Option<u64>) -> Result<()> {
        let new_only = new_files(&edit);
        let result = self.install(edit, flushed);
        if result.is_err() {
            let retracted = self.manifest.lock().manifest.retract();
            match retracted {
                Ok(()) => return self.or_discard(result, &new_only),
                Err(cause) => {
                    tracing::warn!(%cause, "new tables stay, since the manifest may name them");
                }
            }
        }
        result
    }

    /// [`Shared::install`] with the edit recorded as told.
    pub(super) fn install_as(
        &self,
        mut edit: Edit,
        flushed: Option<u64>,
        recording: Recording,
    ) -> Result<()> {
        let result = (|| {
            let mut opened = Vec::new();
            for placed in edit
                .added
                .iter()
                .filter(|p| !edit.removed.contains(&p.meta.file_id))
            {
                opened.push(Arc::new(self.open_table(&placed.meta)?));
            }
            let blobs = edit.blobs.iter();
            let blobs = blobs.map(|meta| self.open_blob(meta).map(Arc::new));
            let blobs = blobs.collect::<Result<Vec<_>>>()?;
            if !opened.is_empty() {
                self.sync_tables_dir()?;
            }
            Ok((opened, blobs))
        })();
        let (opened, blobs) = self.or_discard(result, &new_files(&edit))?;
        edit.next_file_id = Some(self.next_file_id.load(Ordering::Relaxed));
        // When this fails the edit may be on disk or not, so the files stay, unless the caller finds
        // out; an open removes those that are not named.
        self.apply_edit_with_blobs(&edit, &opened, &blobs, flushed, recording)
    }

    /// Rewrites tables where they are, so that no pointer of theirs leads into the blob files that
    /// are to go.
    pub(super) fn empty_blobs(&self, tree: TreeId, pick: &BlobPick) -> Result<()> {
        let retention = self.retention();
        let version = self.super_version.load_full().version.clone();
        let mut edit = Edit {
            history_floor: Some(retention.floor),
            ..Edit::default()
        };
        let last = version.tree(tree).runs().last();
        let is_last = last.is_some_and(|run| run.id == pick.run);
        let job = MergeJob {
            tree,
            retention: &retention,
            // Never as if nothing older lay below, as this looks at one run only.
            bottom: false,
            compression: self.compression_of(tree, is_last),
            version: &version,
            emptied: &pick.emptied,
            is_over: &self.is_closing,
        };
        for table in &pick.tables {
            let run = VersionSource::run(vec![table.clone()], KeyRange::default());
            let written = self.merge(vec![run], &job);
            let written = self.or_discard(written, &edit)?;
            self.count_merged(&written);
            edit.removed.push(table.meta().file_id);
            place(&mut edit, pick.level as u8, pick.run, written);
        }
        self.install_or_discard(edit, None)?;
        self.counters.blob_collections.add(1);
        Ok(())
    }

    /// How a merge compresses what it writes, `bottom` if nothing older lies below.
    pub(super) fn compression_of(&self, tree: TreeId, bottom: bool) -> Compression {
        let of_tree = self.options.trees[usize::from(tree.0)].compression;
        let of_last = self.options.compaction.last_level_compression;
        of_last.filter(|_| bottom).unwrap_or(of_tree)
    }

    pub(super) fn count_merged(&self, written: &WrittenRun) {
        for meta in &written.tables {
            self.counters.compaction_bytes_written.add(meta.file_bytes);
        }
        for meta in &written.blobs {
            self.counters
                .blob_compaction_bytes_written
                .add(meta.file_bytes);
        }
    }
}

/// What an edit adds of which the files are new.
fn new_files(edit: &Edit) -> Edit {
    let added = edit.added.iter();
    let is_new = |placed: &&PlacedTable| !edit.removed.contains(&placed.meta.file_id);
    Edit {
        added: added.filter(is_new).cloned().collect(),
        blobs: edit.blobs.clone(),
        ..Edit::default()
    }
}

/// What a flush or a merge writes, and by which rules.
pub(super) struct MergeJob<'a> {
    pub tree: TreeId,
    /// What must be kept.
    pub retention: &'a Retention,
    /// Whether nothing older exists below.
    pub bottom: bool,
    pub compression: Compression,
    /// Has the blob files that the sources refer to.
    pub version: &'a Version,
    /// The blob files that are to be emptied.
    pub emptied: &'a BTreeSet<u64>,
    /// Set to give up.
    pub is_over: &'a AtomicBool,
}

/// Adds what was written to an edit, as tables of one run.
pub(super) fn place(edit: &mut Edit, level: u8, run: u64, written: WrittenRun) {
    let tables = written.tables.into_iter();
    edit.added
        .extend(tables.map(|meta| PlacedTable { level, run, meta }));
    edit.references.extend(written.references);
    edit.blobs.extend(written.blobs);
}
