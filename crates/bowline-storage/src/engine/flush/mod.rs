//! Flush: sealed memtables become tables on level 0.
//!
//! Memtables are flushed oldest first. All trees of a memtable are flushed together, and one manifest
//! edit records the new tables and the log index that they contain. Then the log up to there is
//! released.
//!
//! On a full disk, a flush first frees the space of released log segments, then that of the
//! [`Ballast`](super::ballast), and it takes all sealed memtables at once, so that a value which a newer
//! memtable deletes is never written. If even that is too much, [`Flusher::flush_into_tables`] merges
//! memtables and tables at once.
//!
//! Invariants:
//!
//! - One flush runs at a time: [`Flusher`] owns that lock.
//! - Tables never run ahead of the log: the log is durable up to the last index of the memtables before
//!   the edit is recorded.
//! - A failed flush removes the files that it wrote.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::compact::Compactor;
use super::core::Core;
use super::jobs::JobKind;
use super::run_writer::{RunSpec, place};
use crate::compaction::{KeyRange, VersionSource, pick_all};
use crate::error::{Error, Result};
use crate::memtable::Memtable;
use crate::sync::{Mutex, MutexGuard};
use crate::version::Edit;
use crate::{Index, Revision};

/// Flushes memtables, one flush at a time.
#[derive(Debug)]
pub(super) struct Flusher {
    core: Arc<Core>,
    /// Held during a flush.
    running: Mutex<()>,
}

impl Flusher {
    pub(super) fn new(core: Arc<Core>) -> Flusher {
        Flusher {
            core,
            running: Mutex::new(()),
        }
    }

    /// Keeps other flushes out.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.running.lock()
    }

    /// Flushes every sealed memtable, oldest first.
    pub(super) fn flush_all(&self) -> Result<()> {
        let core = &*self.core;
        loop {
            core.view.free_memtables();
            let _running = self.running.lock();
            let oldest = core.view.load().sealed.last().cloned();
            let Some(oldest) = oldest else {
                return Ok(());
            };
            if core.log.owner_is_behind(oldest.max_index())? {
                return Ok(());
            }
            match self.flush(&[oldest], false) {
                Err(Error::NoSpace { .. }) => {
                    let all = core.view.load().sealed.clone();
                    core.with_ballast(|| self.flush(&all, false))?;
                }
                result => result?,
            }
            core.jobs.notify_done();
        }
    }

    /// Merges all sealed memtables and all tables at once. What the memtables delete is dropped before
    /// anything of it is written, so this needs space only for the rest.
    pub(super) fn flush_into_tables(&self, compactor: &Compactor) -> Result<()> {
        let _running = self.running.lock();
        let _compacting = compactor.lock();
        let core = &*self.core;
        core.check_recordable()?;
        let all = core.view.load().sealed.clone();
        core.with_ballast(|| self.flush(&all, true))
    }

    /// Flushes the oldest sealed memtables (given newest first) into one run, releases the log that the
    /// run contains, and requests a compaction. With `with_tables` the run also replaces all tables;
    /// the caller then keeps compactions out.
    fn flush(&self, memtables: &[Arc<Memtable>], with_tables: bool) -> Result<()> {
        self.write_memtables(memtables, with_tables)?;
        let flushed = self.core.view.load().version.flushed_index;
        if let Some(log) = &mut self.core.commit.lock().log
            && let Err(error) = log.release_prefix(flushed)
        {
            // The flush has succeeded anyway, and the compaction that follows must not wait for this.
            tracing::warn!(%error, "the log keeps what is in tables");
        }
        self.core.jobs.request(JobKind::Compaction);
        Ok(())
    }

    /// The part of a flush that does not take the commit lock. The caller holds the flush lock, and
    /// perhaps the commit lock.
    pub(super) fn write_memtables(
        &self,
        memtables: &[Arc<Memtable>],
        with_tables: bool,
    ) -> Result<()> {
        let core = &*self.core;
        let upto = memtables.iter().map(|memtable| memtable.max_index()).max();
        let newest = memtables.first().map(|memtable| memtable.generation());
        let mut edit = Edit::default();
        // If no edit can be recorded any more, no file is written either.
        core.check_recordable()?;
        let is_closing = core.jobs.closing_flag();
        let written = core.log.run_beside(upto, is_closing, || {
            self.write_files(memtables, with_tables, &mut edit)
        });
        core.or_discard(written, &edit)?;
        core.install_or_discard(edit, newest)?;
        core.counters.flushes.add(1);
        Ok(())
    }

    /// Writes the files of the run, and the edit that adds them.
    fn write_files(
        &self,
        memtables: &[Arc<Memtable>],
        with_tables: bool,
        edit: &mut Edit,
    ) -> Result<()> {
        let core = &*self.core;
        let retention = core.retention();
        let run = core.versions.new_run_id();
        let current = core.view.load_full();
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
        for tree in core.tree_ids() {
            let below = with_tables.then(|| pick_all(current.version.tree(tree)));
            let below = below.flatten();
            let mut sources: Vec<_> = memtables
                .iter()
                .filter(|memtable| memtable.tree_entries(tree) > 0)
                .map(|memtable| VersionSource::Memtable(memtable.version_cursor(tree)))
                .collect();
            if sources.is_empty() {
                // The tables of this tree stay as they are.
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
            let spec = RunSpec {
                tree,
                retention: &retention,
                bottom,
                compression: core.options.trees[usize::from(tree.0)].compression,
                version: &current.version,
                // Blob files stay as they are: collecting one would need space.
                emptied: &BTreeSet::new(),
                is_over: core.jobs.closing_flag(),
            };
            let written = core.write_run(sources, &spec)?;
            for meta in &written.tables {
                core.counters.flush_bytes_written.add(meta.file_bytes);
            }
            for meta in &written.blobs {
                core.counters.blob_flush_bytes_written.add(meta.file_bytes);
            }
            place(edit, level, run, written);
        }
        Ok(())
    }
}
