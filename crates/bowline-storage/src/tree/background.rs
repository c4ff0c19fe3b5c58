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

use std::sync::Arc;
use std::time::Duration;

use super::{Job, Shared, SyncPolicy};
use crate::compaction::{
    KeyRange, MergeOutput, Retention, VersionMerge, VersionSource, pick_all, write_run,
};
use crate::error::{Error, Result};
use crate::memtable::Memtable;
use crate::sync::Instant;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{self, JoinHandle};
use crate::table::{Compression, Table, TableMeta, TableOptions};
use crate::version::{Edit, PlacedTable};
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
            shared.ballast.take_in();
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
            let mut signals = shared.signals.lock();
            if shared.is_closing.load(Ordering::Acquire) {
                return;
            }
            // Woken early by other work it just syncs early.
            shared.work.wait_for(&mut signals, every);
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
            self.readers.tick(&self.visible, self.clock.wall_ms());
        }
    }

    fn notify_done(&self) {
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

    /// Does a job, a second time with the room of the ballast when the disk is full.
    pub(super) fn with_ballast<T>(&self, job: impl Fn() -> Result<T>) -> Result<T> {
        let mut result = job();
        if matches!(result, Err(Error::NoSpace { .. })) && self.ballast.take_release() {
            self.ballast.give_up();
            if let Some(log) = &self.commit.lock().log {
                log.discard_spares();
            }
            result = job();
        }
        // Not when it failed: the room may yet serve deletions, with which the next attempt needs
        // less of it.
        if result.is_ok() && self.has_ballast() {
            self.ballast.take_in();
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
        self.tree_ids().for_each(|tree| self.discard_merge(tree));
        let all = self.super_version.load().sealed.clone();
        self.with_ballast(|| self.flush_memtables(&all, true))
    }

    /// Flushes the oldest of the sealed memtables, newest first, into one run; with all there is in
    /// tables (then no merge may run beside it), or on top of it.
    fn flush_memtables(&self, memtables: &[Arc<Memtable>], with_tables: bool) -> Result<()> {
        self.sync_log_up_to((memtables.iter().map(|memtable| memtable.max_index())).max())?;
        let retention = self.retention();
        let run = self.next_run_id.fetch_add(1, Ordering::Relaxed);
        let current = self.super_version.load_full();
        let mut edit = Edit {
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
            let compression = self.options.trees[usize::from(tree.0)].compression;
            let is_over = &self.is_closing;
            let metas = self.merge(tree, sources, &retention, bottom, compression, is_over);
            let metas = self.or_discard(metas, &edit)?;
            for meta in metas {
                self.counters.flush_bytes_written.add(meta.file_bytes);
                edit.added.push(PlacedTable { level, run, meta });
            }
        }
        let newest = memtables.first().map(|memtable| memtable.generation());
        self.install(edit, newest)?;
        self.counters.flushes.add(1);
        let flushed = self.super_version.load().version.flushed_index;
        if let Some(log) = &mut self.commit.lock().log {
            log.release_prefix(flushed)?;
        }
        let mut signals = self.signals.lock();
        signals.compaction_wanted = true;
        self.work.notify_all();
        Ok(())
    }

    pub(super) fn tree_ids(&self) -> impl Iterator<Item = TreeId> + use<> {
        (0..self.options.trees.len() as u8).map(TreeId)
    }

    /// Writes what sources have as tables of one run. Given up when the engine closes, and when
    /// `is_over` says so.
    pub(super) fn merge(
        &self,
        tree: TreeId,
        sources: Vec<VersionSource>,
        retention: &Retention,
        bottom: bool,
        compression: Compression,
        is_over: &AtomicBool,
    ) -> Result<Vec<TableMeta>> {
        let mut merge = VersionMerge::new(sources)?;
        let output = MergeOutput {
            vfs: &self.vfs,
            new_file: &|| self.new_file(),
            tree,
            options: &TableOptions {
                compression,
                ..self.options.trees[usize::from(tree.0)]
            },
            table_bytes: self.options.compaction.table_bytes,
            retention,
            bottom,
            cancel: [&self.is_closing, is_over],
        };
        write_run(&mut merge, &output)
    }

    pub(super) fn open_table(&self, meta: &TableMeta) -> Result<Table> {
        let path = self.layout.table(meta.file_id);
        let (cache, counters) = (self.cache.clone(), self.counters.clone());
        Table::open(&self.vfs, path, meta, cache, counters)
    }

    pub(super) fn sync_tables_dir(&self) -> Result<()> {
        let tables = self.layout.tables();
        let synced = self.vfs.sync_dir(&tables);
        synced.map_err(|e| Error::io("sync", &tables, e))
    }

    /// On an error, removes the files the edit would have added.
    fn or_discard<T>(&self, result: Result<T>, edit: &Edit) -> Result<T> {
        if result.is_err() {
            self.remove_tables(edit.added.iter().map(|placed| &placed.meta));
        }
        result
    }

    /// Opens an edit's new tables, makes their names durable, and applies the edit.
    pub(super) fn install(&self, mut edit: Edit, flushed: Option<u64>) -> Result<()> {
        let result = (|| {
            let mut opened = Vec::new();
            for placed in edit
                .added
                .iter()
                .filter(|p| !edit.removed.contains(&p.meta.file_id))
            {
                opened.push(Arc::new(self.open_table(&placed.meta)?));
            }
            if !opened.is_empty() {
                self.sync_tables_dir()?;
            }
            Ok(opened)
        })();
        let new_only = Edit {
            added: edit
                .added
                .iter()
                .filter(|placed| !edit.removed.contains(&placed.meta.file_id))
                .cloned()
                .collect(),
            ..Edit::default()
        };
        let opened = self.or_discard(result, &new_only)?;
        edit.next_file_id = Some(self.next_file_id.load(Ordering::Relaxed));
        // When this fails the edit may be on disk or not, so the files stay; an open removes
        // those that are not named.
        self.apply_edit(&edit, &opened, flushed)
    }
}
