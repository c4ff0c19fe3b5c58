//! Bulk ingestion: sorted entries are written directly into tables and become visible at one revision.
//!
//! # Algorithm
//!
//! 1. *Staging.* [`StagedTables`] writes entries into tables that no manifest names, at an expected
//!    revision: the next one. Writers do not wait for it.
//! 2. *Order.* [`Engine::begin_ingest`] takes the commit lock: from here on writers wait. It flushes all
//!    memtables, so that the tables contain everything that the log contains.
//! 3. *Publishing.* [`Ingestion::publish`] names the staged tables in one manifest edit, as a new run
//!    above all others. The same edit says that the tables now contain everything up to the new
//!    revision. The log receives no entry: its next entry has the revision after that. So only the
//!    manifest records the ingestion. Its last record would not be safe: if it rots, it looks torn by a
//!    crash. The edit is therefore part of the first record of a new manifest, which replaces the old
//!    one.
//!
//! ```text
//!  log        … │ index 70, revision 42 │                  │ index 71, revision 44 │ …
//!  manifest   … │ flushed 70, 42        │ new manifest:    │
//!                                       │ + run of tables, │
//!                                       │ flushed 70, 43   │
//! ```
//!
//! The expected revision is wrong when other writers have committed since. Then the owner stages the
//! entries again while it holds the [`Ingestion`] ([`StagedTables::read`]), when no other writer can
//! commit.
//!
//! # Invariants
//!
//! - Only the new manifest makes the entries visible. A crash before `BOWLINE` names it leaves tables that
//!   no manifest names, which the next opening removes. After it, all entries are there, and damage to
//!   the manifest is an error.
//! - A failed ingestion leaves no file, and it is certain that its edit is not recorded. If that is not
//!   certain, no further revision is given, since it could be the same one.
//! - The revision is the next one in the order of commits, and no commit group is in progress when it is
//!   given. Everything before it is in tables, in older runs.
//! - Files are created and removed only while this engine has the directory locked.
//! - A reader below the revision reads the same as before: the new run has only newer versions.

use std::path::PathBuf;
use std::sync::Arc;

use super::Engine;
use super::core::Core;
use super::group_commit::CommitState;
use super::jobs::JobKind;
use super::version_set::Recording;
use crate::compaction::{KeyRange, VersionMerge, VersionSource};
use crate::error::{Error, Result};
use crate::sync::MutexGuard;
use crate::table::{TableMeta, TableWriter};
use crate::version::{Edit, PlacedTable};
use crate::{EntryKind, Revision, TreeId};

/// Tables of one tree with entries at one revision, not visible yet. Dropping it removes them.
#[derive(Debug)]
pub struct StagedTables {
    core: Arc<Core>,
    tree: TreeId,
    revision: Revision,
    writer: Option<TableWriter>,
    /// The finished tables, by ascending keys.
    tables: Vec<(TableMeta, PathBuf)>,
    value: Vec<u8>,
}

/// An ingestion in progress: a commit that takes tables instead of batches. No commit group and no flush
/// runs beside it.
#[derive(Debug)]
pub struct Ingestion<'a> {
    core: &'a Core,
    commit: MutexGuard<'a, CommitState>,
    _flushing: MutexGuard<'a, ()>,
}

impl Engine {
    /// Begins to stage tables with entries at `revision`.
    #[must_use]
    pub fn stage_tables(&self, tree: TreeId, revision: Revision) -> StagedTables {
        StagedTables {
            core: self.core.clone(),
            tree,
            revision,
            writer: None,
            tables: Vec::new(),
            value: Vec::new(),
        }
    }

    /// The memory for sorting the entries of staged tables: that of a memtable.
    #[must_use]
    pub fn staging_bytes(&self) -> usize {
        self.core.options.memtable_bytes
    }

    /// Whether tables may be staged by more threads than the caller's.
    #[must_use]
    pub fn has_threads(&self) -> bool {
        self.core.options.has_threads()
    }

    /// Waits for the commit group in progress, flushes everything that is committed, and stops other
    /// writers until the ingestion is published or dropped. Reads go on.
    ///
    /// # Errors
    /// Those of a flush, for example a full disk. Nothing has changed then. An engine of a cluster
    /// refuses it, because its log would not contain the entries.
    pub fn begin_ingest(&self) -> Result<Ingestion<'_>> {
        let ingestion = self.flush_for_ingest();
        if let Err(Error::Poisoned { reason }) = &ingestion {
            // The manifest takes no more edits, so no later write would reach tables. The caller was told
            // to reopen the database, so no later write may be acknowledged.
            let mut commit = self.core.commit.lock();
            commit.failure.get_or_insert_with(|| reason.clone());
        }
        ingestion
    }

    fn flush_for_ingest(&self) -> Result<Ingestion<'_>> {
        let core = &*self.core;
        if core.is_replicated {
            let reason = "an ingestion beside a log that belongs to a cluster";
            return Err(Error::Internal(reason.to_owned()));
        }
        core.wait_for_background()?;
        // Flushes most of the data while writers go on.
        if !core.view.load().active.is_empty() {
            core.seal_active()?;
        }
        self.flusher.flush_all()?;
        let flushing = self.flusher.lock();
        let commit = core.commit.lock();
        if core.jobs.is_closing() {
            return Err(Error::Closed);
        }
        if let Some(reason) = commit.poisoned() {
            return Err(Error::Poisoned { reason });
        }
        if !core.view.load().active.is_empty() {
            core.seal(&commit, 0);
        }
        loop {
            let current = core.view.load_full();
            let Some(oldest) = current.sealed.last() else {
                break;
            };
            self.flusher
                .write_memtables(std::slice::from_ref(oldest), false)?;
        }
        core.jobs.notify_done();
        Ok(Ingestion {
            core,
            commit,
            _flushing: flushing,
        })
    }
}

impl StagedTables {
    /// The revision of the entries.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Adds an entry with a key above all earlier ones. The value is passed in two parts, so that the
    /// caller need not join them.
    pub fn add(&mut self, key: &[u8], kind: EntryKind, head: &[u8], tail: &[u8]) -> Result<()> {
        let full_bytes = self.core.options.compaction.table_bytes;
        if let Some(writer) = self.writer.take_if(|it| it.written_bytes() >= full_bytes) {
            self.finish_table(writer)?;
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let core = &self.core;
                // After a close, another engine may have the directory and give the same file ids.
                let directory = core.directory.lock();
                if directory.is_none() || core.jobs.is_closing() {
                    return Err(Error::Closed);
                }
                let (file_id, path) = core.files.new_table();
                let options = &core.options.trees[usize::from(self.tree.0)];
                let new = TableWriter::create(&core.files.vfs, path, file_id, self.tree, options)?;
                self.writer.insert(new)
            }
        };
        self.value.clear();
        self.value.extend_from_slice(head);
        self.value.extend_from_slice(tail);
        writer.add(key, self.revision, kind, &self.value)
    }

    /// Finishes the tables and makes their contents durable.
    pub fn finish(&mut self) -> Result<()> {
        match self.writer.take() {
            Some(writer) => self.finish_table(writer),
            None => Ok(()),
        }
    }

    fn finish_table(&mut self, writer: TableWriter) -> Result<()> {
        let path = writer.path().to_owned();
        let meta = writer.finish()?;
        self.tables.push((meta, path));
        Ok(())
    }

    /// The finished entries, in order.
    pub fn read(&self) -> Result<VersionMerge> {
        StagedTables::merge([self])
    }

    /// The finished entries of several, newest first, in order: of a key that is in several, the newest.
    pub fn merge<'a>(
        newest_first: impl IntoIterator<Item = &'a StagedTables>,
    ) -> Result<VersionMerge> {
        let source = |it: &StagedTables| {
            let open =
                |(meta, _): &(TableMeta, PathBuf)| it.core.files.open_table(meta).map(Arc::new);
            let tables: Result<Vec<_>> = it.tables.iter().map(open).collect();
            Ok(VersionSource::run(tables?, KeyRange::default()))
        };
        let sources: Result<Vec<_>> = newest_first.into_iter().map(source).collect();
        VersionMerge::new(sources?)
    }
}

impl Drop for StagedTables {
    fn drop(&mut self) {
        let directory = self.core.directory.lock();
        if directory.is_none() {
            // The engine is closed. The next engine removes files that no manifest names, and may have
            // given these names to tables of its own.
            if let Some(writer) = self.writer.take() {
                writer.leave();
            }
            return;
        }
        // A writer removes its own file. The next opening removes a file that cannot be removed here.
        self.writer = None;
        for (_, path) in self.tables.drain(..) {
            if let Err(cause) = self.core.files.vfs.remove_file(&path)
                && cause.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), %cause, "a table that was not ingested stays until the next open");
            }
        }
    }
}

impl Ingestion<'_> {
    /// The revision at which [`Ingestion::publish`] commits.
    #[must_use]
    pub fn next_revision(&self) -> Revision {
        self.commit.last_revision + 1
    }

    /// The last committed revision.
    #[must_use]
    pub fn last_revision(&self) -> Revision {
        self.commit.last_revision
    }

    /// Makes the entries of finished tables, at most one of each tree, visible at
    /// [`Ingestion::next_revision`], durably.
    ///
    /// # Errors
    /// Nothing is visible then, and the tables are removed. If that is not certain, no further write is
    /// accepted.
    pub fn publish(mut self, mut staged: Vec<StagedTables>) -> Result<Revision> {
        let revision = self.next_revision();
        let current = self.core.view.load_full();
        let version = &current.version;
        let is_flushed = current.sealed.is_empty()
            && current.active.is_empty()
            && version.flushed_index == self.commit.last_index;
        if !is_flushed || staged.iter().any(|it| it.revision != revision) {
            let reason = format!("tables for another revision than {revision}, or too early");
            return Err(Error::Internal(reason));
        }
        let run = self.core.versions.new_run_id();
        let mut edit = Edit {
            flushed: Some((version.flushed_index, revision)),
            next_run_id: Some(run + 1),
            ..Edit::default()
        };
        let mut user_bytes = 0;
        for it in &mut staged {
            it.finish()?;
            for (meta, _) in &it.tables {
                user_bytes += meta.raw_bytes;
                let meta = meta.clone();
                let level = 0;
                edit.added.push(PlacedTable { level, run, meta });
            }
        }
        let table_bytes = edit.added.iter().map(|placed| placed.meta.file_bytes).sum();
        // Only this edit records the ingestion.
        let installed = self.core.install(edit, None, Recording::InNewManifest);
        if let Err(error) = installed {
            // The edit must not reappear after a crash, when another commit may have its revision.
            let is_certain = self.core.versions.check_intact();
            if let Err(cause) = is_certain {
                let reason: Arc<str> =
                    format!("an ingestion may be recorded or not: {cause}").into();
                self.commit.failure = Some(reason.clone());
                for it in &mut staged {
                    // If the edit is recorded, the tables are needed.
                    it.tables.clear();
                }
                return Err(Error::Poisoned { reason });
            }
            return Err(error);
        }
        for it in &mut staged {
            it.tables.clear();
        }
        self.commit.last_revision = revision;
        self.core.view.publish(revision);
        let counters = &self.core.counters;
        counters.ingestions.add(1);
        counters.ingest_bytes_written.add(table_bytes);
        counters.commits.add(1);
        counters.user_bytes_written.add(user_bytes);
        let flushed = self.core.view.load().version.flushed_index;
        if let Some(log) = &mut self.commit.log
            && let Err(error) = log.release_prefix(flushed)
        {
            // The ingestion has succeeded anyway. The next flush reports the failure.
            tracing::warn!(%error, "the log keeps what is in tables");
        }
        self.core.jobs.request(JobKind::Compaction);
        Ok(revision)
    }
}
