//! Bulk ingestion: sorted entries go straight into tables and become visible at one revision.
//!
//! # Algorithm
//!
//! 1. *Staging.* [`StagedTables`] writes entries, as they come, into tables that no manifest names,
//!    at a revision that is guessed: the next one. Nobody waits for it.
//! 2. *The order.* [`Engine::begin_ingest`] takes the place of a round: from here on writers wait. It
//!    writes what is in memtables to tables, so that the log holds nothing that tables do not.
//! 3. *Publishing.* [`IngestRound::publish`] names the staged tables in one edit of the manifest, as
//!    a new run above all others, and says in the same edit that the tables now contain everything
//!    up to the new revision. The log gets no entry: the one that follows has the revision after it.
//!    So nothing but the manifest tells of the ingestion. Its last record could not do it alone: when
//!    that rots, it looks as if a crash had torn it. The edit is therefore part of the first record
//!    of a new manifest, which takes the place of the old one.
//!
//! ```text
//!  log        … │ index 70, revision 42 │                  │ index 71, revision 44 │ …
//!  manifest   … │ flushed 70, 42        │ new manifest:    │
//!                                       │ + run of tables, │
//!                                       │ flushed 70, 43   │
//! ```
//!
//! The guess was wrong when others have committed since. Then the owner stages the entries anew
//! while it holds the [`IngestRound`] ([`StagedTables::read`]), when it can be wrong no more.
//!
//! # Invariants
//!
//! - The new manifest is the only thing that makes any of it visible: before `BOWLINE` names it a
//!   crash leaves tables that nothing names, which the next opening removes; after it all is there,
//!   and damage to what names them is an error.
//! - When it comes to nothing, no file stays, and it is sure that the edit never happened: else no
//!   further revision is given, since it would be the same one.
//! - The revision is the next one in the order of commits, and no round is in progress when it is
//!   given. Everything before it is in tables, in older runs.
//! - Files are made and removed only while this engine has the directory locked.
//! - A reader below the revision finds what it found before: it is one more source, of newer
//!   versions only.

use std::path::PathBuf;
use std::sync::Arc;

use super::{CommitState, Engine, Recording, Shared};
use crate::compaction::{KeyRange, VersionMerge, VersionSource};
use crate::error::{Error, Result};
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;
use crate::table::{Table, TableMeta, TableWriter};
use crate::version::{Edit, PlacedTable};
use crate::{EntryKind, Revision, TreeId};

/// Tables of entries of one tree at one revision, which nobody sees yet. Dropping it removes them.
#[derive(Debug)]
pub struct StagedTables {
    shared: Arc<Shared>,
    tree: TreeId,
    revision: Revision,
    writer: Option<TableWriter>,
    /// The finished tables, by ascending keys.
    tables: Vec<(TableMeta, PathBuf)>,
    value: Vec<u8>,
}

/// The right to ingest: a round that takes tables instead of batches. No other round and no flush
/// goes on beside it.
#[derive(Debug)]
pub struct IngestRound<'a> {
    shared: &'a Shared,
    commit: MutexGuard<'a, CommitState>,
    _flushing: MutexGuard<'a, ()>,
}

impl Engine {
    /// Begins tables of entries that are to be written at `revision`.
    #[must_use]
    pub fn stage_tables(&self, tree: TreeId, revision: Revision) -> StagedTables {
        StagedTables {
            shared: self.shared.clone(),
            tree,
            revision,
            writer: None,
            tables: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Waits for the round in progress, flushes everything that is committed, and keeps others from
    /// committing until it is published or dropped. Reads go on.
    ///
    /// # Errors
    /// What a flush meets, a full disk above all. Nothing has changed then. A log that belongs to a
    /// cluster takes no part in this, so there it is refused.
    pub fn begin_ingest(&self) -> Result<IngestRound<'_>> {
        let round = self.flush_for_ingest();
        if let Err(Error::Poisoned { reason }) = &round {
            // The manifest takes no more edits, so nothing that is written from here on would come
            // to tables; and who is told to open anew is not acknowledged anything after it.
            let mut commit = self.shared.commit.lock();
            commit.failure.get_or_insert_with(|| reason.clone());
        }
        round
    }

    fn flush_for_ingest(&self) -> Result<IngestRound<'_>> {
        let shared = &*self.shared;
        if shared.is_replicated {
            let reason = "an ingestion beside a log that belongs to a cluster";
            return Err(Error::Internal(reason.to_owned()));
        }
        shared.wait_for_background()?;
        // Most of it, while writers go on.
        if !shared.super_version.load().active.is_empty() {
            shared.seal_active()?;
        }
        shared.flush_all()?;
        let flushing = shared.flushing.lock();
        let commit = shared.commit.lock();
        if shared.is_closing.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        if let Some(reason) = commit.poisoned() {
            return Err(Error::Poisoned { reason });
        }
        if !shared.super_version.load().active.is_empty() {
            shared.seal(&commit, 0);
        }
        loop {
            let current = shared.super_version.load_full();
            let Some(oldest) = current.sealed.last() else {
                break;
            };
            shared.write_memtables(std::slice::from_ref(oldest), false)?;
        }
        shared.notify_done();
        Ok(IngestRound {
            shared,
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

    /// Adds an entry, above all that were added. The value is given in two parts, so that a caller
    /// need not join them.
    pub fn add(&mut self, key: &[u8], kind: EntryKind, head: &[u8], tail: &[u8]) -> Result<()> {
        let full_bytes = self.shared.options.compaction.table_bytes;
        if let Some(writer) = self.writer.take_if(|it| it.written_bytes() >= full_bytes) {
            self.finish_table(writer)?;
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let shared = &self.shared;
                // A closed directory may belong to somebody else, who numbers tables as we do.
                let directory = shared.lock.lock();
                if directory.is_none() || shared.is_closing.load(Ordering::Acquire) {
                    return Err(Error::Closed);
                }
                let (file_id, path) = shared.new_file();
                let options = &shared.options.trees[usize::from(self.tree.0)];
                let new = TableWriter::create(&shared.vfs, path, file_id, self.tree, options)?;
                self.writer.insert(new)
            }
        };
        self.value.clear();
        self.value.extend_from_slice(head);
        self.value.extend_from_slice(tail);
        writer.add(key, self.revision, kind, &self.value)
    }

    /// Ends the tables and makes their contents durable.
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
        let shared = &self.shared;
        let open = |(meta, path): &(TableMeta, PathBuf)| {
            let (cache, counters) = (shared.cache.clone(), shared.counters.clone());
            Table::open(&shared.vfs, path.clone(), meta, cache, counters).map(Arc::new)
        };
        let tables: Result<Vec<_>> = self.tables.iter().map(open).collect();
        VersionMerge::new(vec![VersionSource::run(tables?, KeyRange::default())])
    }
}

impl Drop for StagedTables {
    fn drop(&mut self) {
        let directory = self.shared.lock.lock();
        if directory.is_none() {
            // It is closed. Whoever opens it removes what no manifest names, and may have given these
            // names to tables of its own.
            if let Some(writer) = self.writer.take() {
                writer.leave();
            }
            return;
        }
        // A writer removes its own file. What cannot be removed, the next opening removes.
        self.writer = None;
        for (_, path) in self.tables.drain(..) {
            if let Err(cause) = self.shared.vfs.remove_file(&path)
                && cause.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), %cause, "a table that was not ingested stays until the next open");
            }
        }
    }
}

impl IngestRound<'_> {
    /// The revision that [`IngestRound::publish`] gives.
    #[must_use]
    pub fn next_revision(&self) -> Revision {
        self.commit.last_revision + 1
    }

    /// The last revision that was given.
    #[must_use]
    pub fn last_revision(&self) -> Revision {
        self.commit.last_revision
    }

    /// Makes the entries of finished tables, at most one of each tree, visible at
    /// [`IngestRound::next_revision`], durably.
    ///
    /// # Errors
    /// Nothing of it is there then, and the tables are removed. If that is not sure, no further
    /// write is accepted.
    pub fn publish(mut self, mut staged: Vec<StagedTables>) -> Result<Revision> {
        let revision = self.next_revision();
        let current = self.shared.super_version.load_full();
        let version = &current.version;
        let is_flushed = current.sealed.is_empty()
            && current.active.is_empty()
            && version.flushed_index == self.commit.last_index;
        if !is_flushed || staged.iter().any(|it| it.revision != revision) {
            let reason = format!("tables for another revision than {revision}, or too early");
            return Err(Error::Internal(reason));
        }
        let run = self.shared.next_run_id.fetch_add(1, Ordering::Relaxed);
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
        // Nothing but this edit tells of the ingestion.
        let installed = self.shared.install_as(edit, None, Recording::InNewManifest);
        if let Err(error) = installed {
            // It must not be there after a crash, when its revision has been given to somebody else.
            let is_certain = self.shared.manifest.lock().manifest.check_intact();
            if let Err(cause) = is_certain {
                let reason: Arc<str> =
                    format!("an ingestion may be recorded or not: {cause}").into();
                self.commit.failure = Some(reason.clone());
                for it in &mut staged {
                    // If it is recorded, they are needed.
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
        self.shared.visible.store(revision, Ordering::Release);
        let counters = &self.shared.counters;
        counters.ingestions.add(1);
        counters.ingest_bytes_written.add(table_bytes);
        counters.commits.add(1);
        counters.user_bytes_written.add(user_bytes);
        let flushed = self.shared.super_version.load().version.flushed_index;
        if let Some(log) = &mut self.commit.log
            && let Err(error) = log.release_prefix(flushed)
        {
            // It is ingested all the same. The next flush meets the failure itself.
            tracing::warn!(%error, "the log keeps what is in tables");
        }
        let mut signals = self.shared.signals.lock();
        signals.compaction_wanted = true;
        self.shared.work.notify_all();
        Ok(revision)
    }
}
