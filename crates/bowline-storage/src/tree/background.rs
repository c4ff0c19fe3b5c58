//! Flush and compaction: the jobs, and the threads that run them.
//!
//! One thread flushes, one compacts, and with [`SyncPolicy::Every`] one syncs the log. A job that
//! fails (a full disk, say) leaves no trace, is remembered for writers to be told when they have
//! to wait for it, and is tried again a second later. In `Manual` mode there are no threads, and
//! the jobs run on the caller's.

use std::sync::Arc;
use std::time::Duration;

use super::{Shared, SyncPolicy};
use crate::TreeId;
use crate::compaction::{
    MergeOutput, Pick, Retention, VersionMerge, VersionSource, pick, pick_all, write_run,
};
use crate::error::{Error, Result};
use crate::memtable::Memtable;
use crate::sync::atomic::Ordering;
use crate::sync::thread::{self, JoinHandle};
use crate::table::{Table, TableMeta};
use crate::version::{Edit, PlacedTable};

const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Starts the threads, unless the engine is to have none.
pub(super) fn start(shared: &Arc<Shared>) -> Result<Vec<JoinHandle<()>>> {
    if !shared.options.has_threads() {
        return Ok(Vec::new());
    }
    let mut handles = Vec::new();
    let mut spawn = |name: &str, run: fn(&Shared)| -> Result<()> {
        let shared = shared.clone();
        let body = move || run(&shared);
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

fn flush_loop(shared: &Shared) {
    while shared.wait_for_work(|signals| std::mem::take(&mut signals.flush_wanted)) {
        shared.readers.tick(&shared.visible, shared.clock.wall_ms());
        let result = shared.flush_all();
        shared.report("flush", result, |signals| signals.flush_wanted = true);
    }
}

fn compaction_loop(shared: &Shared) {
    while shared.wait_for_work(|signals| std::mem::take(&mut signals.compaction_wanted)) {
        let result = loop {
            match shared.compact_once() {
                Ok(true) => shared.notify_done(),
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        shared.report("compaction", result, |signals| {
            signals.compaction_wanted = true;
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

    fn report(&self, job: &str, result: Result<()>, again: fn(&mut super::Signals)) {
        let mut signals = self.signals.lock();
        match result {
            Ok(()) => signals.background_error = None,
            Err(Error::Closed) => {}
            Err(error) => {
                tracing::error!(%error, job, "failed; it is tried again");
                signals.background_error = Some(error);
                self.done.notify_all();
                self.work.wait_for(&mut signals, RETRY_AFTER);
                again(&mut signals);
            }
        }
        self.done.notify_all();
    }

    /// Flushes every sealed memtable, oldest first.
    pub(super) fn flush_all(&self) -> Result<()> {
        loop {
            let _flushing = self.flushing.lock();
            let oldest = self.super_version.load().sealed.last().cloned();
            let Some(memtable) = oldest else {
                return Ok(());
            };
            self.flush_memtable(&memtable)?;
            self.notify_done();
        }
    }

    fn flush_memtable(&self, memtable: &Arc<Memtable>) -> Result<()> {
        if let Some(log) = &self.log_sync {
            // Tables never run ahead of the log.
            log.sync()?;
        }
        let retention = self.retention();
        let run = self.next_run_id.fetch_add(1, Ordering::Relaxed);
        let current = self.super_version.load_full();
        let mut edit = Edit {
            flushed: Some((
                memtable.max_index().max(current.version.flushed_index),
                memtable
                    .max_revision()
                    .max(current.version.flushed_revision),
            )),
            history_floor: Some(retention.floor),
            next_run_id: Some(run + 1),
            ..Edit::default()
        };
        for tree in self.tree_ids() {
            if memtable.tree_entries(tree) == 0 {
                continue;
            }
            let source = VersionSource::Memtable(memtable.version_cursor(tree));
            let bottom = current.version.tree(tree).deepest().is_none()
                && current
                    .sealed
                    .last()
                    .is_some_and(|oldest| Arc::ptr_eq(oldest, memtable));
            let metas = self.merge(tree, vec![source], &retention, bottom);
            let metas = self.or_discard(metas, &edit)?;
            for meta in metas {
                self.counters.flush_bytes_written.add(meta.file_bytes);
                edit.added.push(PlacedTable {
                    level: 0,
                    run,
                    meta,
                });
            }
        }
        self.install(edit, Some(memtable.generation()))?;
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

    fn tree_ids(&self) -> impl Iterator<Item = TreeId> + use<> {
        (0..self.options.trees.len() as u8).map(TreeId)
    }

    fn merge(
        &self,
        tree: TreeId,
        sources: Vec<VersionSource>,
        retention: &Retention,
        bottom: bool,
    ) -> Result<Vec<TableMeta>> {
        let mut merge = VersionMerge::new(sources)?;
        let output = MergeOutput {
            vfs: &self.vfs,
            new_file: &mut || self.new_file(),
            tree,
            options: &self.options.trees[usize::from(tree.0)],
            table_bytes: self.options.compaction.table_bytes,
            retention,
            bottom,
            cancel: &self.is_closing,
        };
        write_run(&mut merge, output)
    }

    /// On an error, removes the files the edit would have added.
    fn or_discard<T>(&self, result: Result<T>, edit: &Edit) -> Result<T> {
        if result.is_err() {
            for placed in &edit.added {
                let path = self.layout.table(placed.meta.file_id);
                if let Err(cause) = self.vfs.remove_file(&path) {
                    tracing::warn!(path = %path.display(), %cause, "an unfinished table stays until the next open");
                }
            }
        }
        result
    }

    /// Opens an edit's new tables, makes their names durable, and applies the edit.
    fn install(&self, mut edit: Edit, flushed: Option<u64>) -> Result<()> {
        let result = (|| {
            let mut opened = Vec::new();
            for placed in edit
                .added
                .iter()
                .filter(|p| !edit.removed.contains(&p.meta.file_id))
            {
                let path = self.layout.table(placed.meta.file_id);
                let table = Table::open(
                    &self.vfs,
                    path,
                    &placed.meta,
                    self.cache.clone(),
                    self.counters.clone(),
                )?;
                opened.push(Arc::new(table));
            }
            if !opened.is_empty() {
                let tables = self.layout.tables();
                self.vfs
                    .sync_dir(&tables)
                    .map_err(|e| Error::io("sync", &tables, e))?;
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

    /// Does the most urgent compaction of any tree; `false` when there is none.
    pub(super) fn compact_once(&self) -> Result<bool> {
        let _compacting = self.compacting.lock();
        let current = self.super_version.load_full();
        for tree in self.tree_ids() {
            if let Some(pick) = pick(current.version.tree(tree), &self.options.compaction) {
                self.compact(tree, &pick)?;
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
                self.compact(tree, &pick)?;
            }
        }
        Ok(())
    }

    fn compact(&self, tree: TreeId, pick: &Pick) -> Result<()> {
        let retention = self.retention();
        let run = self.next_run_id.fetch_add(1, Ordering::Relaxed);
        let by_run = pick.tables_by_run();
        let inputs = by_run
            .iter()
            .flatten()
            .map(|table| table.meta().file_id)
            .collect();
        let sources = by_run
            .into_iter()
            .map(|tables| VersionSource::run(tables, false))
            .collect();
        let metas = self.merge(tree, sources, &retention, pick.bottom)?;
        let level = pick.output_level as u8;
        let mut edit = Edit {
            removed: inputs,
            history_floor: Some(retention.floor),
            next_run_id: Some(run + 1),
            ..Edit::default()
        };
        for meta in metas {
            self.counters.compaction_bytes_written.add(meta.file_bytes);
            edit.added.push(PlacedTable { level, run, meta });
        }
        for table in &pick.kept {
            edit.removed.push(table.meta().file_id);
            edit.added.push(PlacedTable {
                level,
                run,
                meta: table.meta().clone(),
            });
        }
        self.install(edit, None)?;
        self.counters.compactions.add(1);
        Ok(())
    }
}
