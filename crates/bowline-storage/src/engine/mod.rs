//! The engine: several trees over one log.
//!
//! ```text
//!  commit group ──► log (one write, one flush per group)
//!    │
//!    └─────► active memtable ──full──► sealed ──flush──► level 0 ──compaction──► deeper levels
//!                │                        │                 │                        │
//!  reads ◄───────┴────────────────────────┴─────────────────┴────────────────────────┘
//! ```
//!
//! One memtable generation spans all trees. They are sealed and flushed together, and one manifest edit
//! records the flush. So the part of the log that the tables contain is described by a single index.
//!
//! Writes form *commit groups*, one at a time ([`Engine::begin_group`]). A group takes any number of
//! encoded batches, writes them to the log as one frame, flushes once, and then publishes the last
//! revision. Reads take no lock: a read loads the current [`SuperVersion`] and reads it at a published
//! revision.
//!
//! # Parts
//!
//! | part | contents | its lock |
//! |---|---|---|
//! | `view` | the super-version, the visible revision, and the reads | `ReadView::update`, while a super-version is replaced |
//! | `group_commit` | commit groups, batches, back-pressure | `Core::commit`, for the length of a group |
//! | `flush` | memtables become tables | `Flusher::running`, during a flush |
//! | `compact` | runs are merged; blob files are collected | `Compactor::running`, during a compaction |
//! | `history` | the floor of history and the pins | `HistoryPins::inner` |
//! | `version_set` | the manifest and its edits | `VersionSet::manifest`, until the edit's version is published |
//! | `jobs` | requests to the background threads | `BackgroundJobs::jobs` |
//! | `ballast` | the space reserve for a full disk | `Ballast::exists` |
//! | `files`, `install`, `run_writer` | files on the disk, and how they become a version | none |
//! | `log_barrier` | makes the log durable for jobs | the log's own |
//! | `open`, `checkpoint`, `check` | opening, copying and checking a directory | `Core::directory`, the lock file |
//! | `ingest`, `replicated` | bulk ingestion, and the engine of a cluster member | those of other parts |
//!
//! # Order of locks
//!
//! A thread that holds a lock takes only locks further down:
//!
//! 1. `Engine::workers`, only while the engine closes
//! 2. `Flusher::running`
//! 3. `Compactor::running`
//! 4. `Core::commit`
//! 5. `VersionSet::manifest`
//! 6. `ReadView::update`
//! 7. `HistoryPins::inner`, `BackgroundJobs::jobs`, `Core::directory` and `Ballast::exists`: a thread holds
//!    at most one of these four
//! 8. the locks inside the log, the hazard cell, the deferred reclaim and the page cache
//!
//! A commit group holds the commit lock during its flush of the log. So reads never take the commit lock,
//! and a job takes it only briefly, to release log segments or to discard their spares.
//!
//! # Invariants
//!
//! - A revision is visible only when its batch, and every batch before it, is in the log and (with
//!   [`SyncPolicy::Always`]) flushed. A reader filters by the visible revision, so it does not see
//!   entries of the group in progress, which are already in the memtable.
//! - A failed write or flush of the log stops all writing: the memtable may then have entries that the
//!   log does not have. They stay invisible. Reopening starts from the log.
//! - A memtable is flushed only after the log is flushed up to the memtable's last index, and history is
//!   trimmed only after the log is flushed up to there. So tables and manifest never run ahead of the
//!   log.
//! - The super-version is replaced under one lock and loaded with one atomic read.

mod ballast;
mod check;
mod checkpoint;
mod compact;
mod core;
mod files;
mod flush;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod group_commit;
mod history;
mod ingest;
mod install;
mod jobs;
mod log_barrier;
mod open;
mod options;
mod replicated;
mod run_writer;
mod stats;
#[cfg(test)]
mod tests;
mod threads;
mod version_set;
mod view;

use std::path::PathBuf;
use std::sync::Arc;

pub use check::{CheckReport, FileReport, check_directory};
pub use group_commit::{BatchReader, BatchWriter, CommitGroup, Operation};
pub use history::{History, HistoryPins, PinError, SnapshotPin, WatchPin};
pub use ingest::{Ingestion, StagedTables};
pub use options::{EngineOptions, SyncPolicy};
pub use replicated::{
    ArrivingFiles, FrozenContents, FrozenTable, FrozenTables, Installed, Replicated, Restore,
    RestoreOptions, frozen_contents,
};
pub use stats::{EngineStats, LevelStats};
pub use view::{Found, Next, PrefixReader, Scan, ScanDirection, SuperVersion, VersionVisit, Want};

use self::compact::Compactor;
use self::core::Core;
use self::flush::Flusher;
use self::version_set::Recording;

use crate::error::{Error, Result};
use crate::log::Log;
use crate::sync::Mutex;
use crate::sync::thread::JoinHandle;
use crate::version::{Edit, Layout};
use crate::vfs::{UninterruptedVfs, Vfs};
use crate::{Clock, Revision, TreeId};

/// An opening with more log segments than this flushes them into tables.
const LOG_SEGMENTS_AT_OPEN_MAX: usize = 16;
/// Up to this size the opening waits for that flush, so that even a short-lived program leaves fewer
/// segments.
const FLUSHED_AT_OPEN_MAX_BYTES: u64 = 8 << 20;

/// The storage engine. Dropping it closes it; [`Engine::close`] also returns an error of the closing.
#[derive(Debug)]
pub struct Engine {
    core: Arc<Core>,
    flusher: Arc<Flusher>,
    compactor: Arc<Compactor>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// Opens or creates the database in `path`: locks it, recovers it, and starts the background
    /// threads (unless `Manual` is set).
    pub fn open(
        vfs: Arc<dyn Vfs>,
        clock: Arc<dyn Clock>,
        path: impl Into<PathBuf>,
        options: EngineOptions,
    ) -> Result<Engine> {
        let vfs: Arc<dyn Vfs> = Arc::new(UninterruptedVfs::new(vfs));
        let (core, _) = open::open(vfs, clock, Layout::new(path), options, None)?;
        let engine = Engine::start(core)?;
        engine.core.release_log();
        // A program that opens, writes a little and closes leaves one segment each time. When many have
        // accumulated, their entries are flushed into tables, and the log starts anew.
        let segments = engine
            .core
            .commit
            .lock()
            .log
            .as_ref()
            .map_or(0, Log::segment_count);
        if segments > LOG_SEGMENTS_AT_OPEN_MAX {
            let replayed_bytes = engine.stats().memtable_bytes;
            let is_large =
                engine.core.options.has_threads() && replayed_bytes > FLUSHED_AT_OPEN_MAX_BYTES;
            // A large flush runs in the background; reads go on meanwhile.
            let flushed = match is_large {
                true => engine.core.seal_active(),
                false => engine.flush(),
            };
            if let Err(error) = flushed {
                // Nothing is lost, and the data must stay readable, also on a full disk.
                tracing::warn!(%error, "the log stays in many small segments");
            }
        }
        match engine.run_background_if_manual() {
            Err(error @ Error::NoSpace { .. }) => {
                tracing::warn!(%error, "flush or compaction waits for space");
            }
            result => result?,
        }
        if engine.core.has_ballast() && !engine.core.options.has_threads() {
            engine.core.ballast.allocate();
        }
        Ok(engine)
    }

    fn start(core: Core) -> Result<Engine> {
        let core = Arc::new(core);
        let flusher = Arc::new(Flusher::new(core.clone()));
        let compactor = Arc::new(Compactor::new(core.clone()));
        let engine = Engine {
            core,
            flusher,
            compactor,
            workers: Mutex::default(),
        };
        // A failure drops the engine, which ends the threads that have started and gives up the directory.
        let Engine {
            core,
            flusher,
            compactor,
            workers,
        } = &engine;
        threads::start(core, flusher, compactor, &mut workers.lock())?;
        Ok(engine)
    }

    /// The random id that the database received at its creation.
    #[must_use]
    pub fn database_id(&self) -> u128 {
        self.core.database_id
    }

    /// Flushes the log to the disk. With [`SyncPolicy::Always`] every commit has already done so.
    pub fn sync(&self) -> Result<()> {
        self.core.log.sync()
    }

    /// Trims history below `revision`, durably. Later compactions free the space.
    pub fn compact_history(&self, revision: Revision) -> Result<Result<(), PinError>> {
        let visible = self.core.view.visible_revision();
        if let Err(error) = self.core.pins.compact(revision, visible) {
            return Ok(Err(error));
        }
        let edit = Edit {
            history_floor: Some(revision),
            ..Edit::default()
        };
        self.core.apply_edit(&edit, Recording::Appended)?;
        Ok(Ok(()))
    }

    /// Keeps the history of `tree` from `revision` on, instead of from the revision held before; durably, so that the next
    /// opening holds it from its beginning. The caller has pinned the revision, has made it durable, and is the only one
    /// that changes the held revision of this tree.
    ///
    /// The cost: of each key that has changed since, one version more.
    pub fn hold_tree(&self, tree: TreeId, revision: Option<Revision>) -> Result<()> {
        let edit = Edit {
            held: vec![(tree, revision.unwrap_or(0))],
            ..Edit::default()
        };
        // Recorded first: while it is not certain, what was held before stays.
        if let Err(error) = self.core.apply_edit(&edit, Recording::Appended) {
            if let Err(cause) = self.core.versions.retract() {
                tracing::warn!(%cause, "the manifest may say that a tree holds another revision");
            }
            return Err(error);
        }
        self.core.pins.hold_tree(tree, revision);
        Ok(())
    }

    /// The revision that a tree holds: all that it had then can be read since before this opening.
    #[must_use]
    pub fn held_revision(&self, tree: TreeId) -> Option<Revision> {
        self.core.pins.held(tree)
    }

    /// Flushes every memtable into tables.
    pub fn flush(&self) -> Result<()> {
        self.core.seal_active()?;
        self.core.ballast.permit();
        self.flusher.flush_all()
    }

    /// Compacts every tree into one run, and drops every version that no reader may ask for.
    pub fn compact_tables(&self) -> Result<()> {
        match self.flush() {
            Err(Error::NoSpace { .. }) => {
                self.core.ballast.permit();
                match self.flusher.flush_into_tables(&self.compactor) {
                    // The flush may have to wait until the owner writes the log, which itself waits for
                    // space.
                    Err(Error::NoSpace { .. }) if self.core.is_replicated => {
                        self.core.ballast.permit();
                        self.compactor.compact_all()
                    }
                    result => result,
                }
            }
            result => {
                result?;
                self.core.ballast.permit();
                self.compactor.compact_all()
            }
        }
    }

    /// Runs pending flushes and compactions on this thread, if the engine has no threads.
    pub fn run_background_if_manual(&self) -> Result<()> {
        while self.run_job_if_manual()? {}
        Ok(())
    }

    /// The same for one job: flushes what is full, and merges once. Returns whether there may be more to do.
    pub fn run_job_if_manual(&self) -> Result<bool> {
        if self.core.options.has_threads() {
            return Ok(false);
        }
        self.flusher.flush_all()?;
        self.compactor.compact_once()
    }

    /// Sizes and counts.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        self.core.stats()
    }

    /// Bytes of tables, blob files and memtables: what counts toward a quota. Cheaper than all statistics.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.core.data_bytes()
    }

    /// Reads the manifest, and the file that names it, back from the disk, and replaces both if they are damaged. Gives the
    /// damage.
    ///
    /// # Errors
    /// `Io` when they cannot be read or written; `Poisoned` when it is unknown which manifest is the current one.
    pub fn mend_manifest(&self) -> Result<Option<Error>> {
        self.core.versions.mend()
    }

    /// Runs `look` while no flush and no compaction creates or removes a file. Writes go on.
    pub fn while_files_rest<R>(&self, look: impl FnOnce() -> R) -> R {
        let _flushing = self.flusher.lock();
        let _compacting = self.compactor.lock();
        let _manifest = self.core.versions.lock();
        look()
    }

    /// Stops the background threads, flushes the log and closes it.
    ///
    /// Also waits for a flush or a compaction that another thread has asked for, and has every later one refused: the
    /// next owner of the directory gives the same file ids again, and appends to the same manifest.
    pub fn close(&self) -> Result<()> {
        self.core.jobs.close();
        for worker in self.workers.lock().drain(..) {
            if worker.join().is_err() {
                tracing::error!("a background thread panicked");
            }
        }
        let flushing = self.flusher.lock();
        let compacting = self.compactor.lock();
        self.core.versions.close();
        drop((flushing, compacting));
        self.core.ballast.remove();
        let mut commit = self.core.commit.lock();
        let result = match commit.log.take() {
            Some(log) => log.close(),
            None => Ok(()),
        };
        self.core.directory.lock().take();
        result
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "closing the database failed; the next open recovers it");
        }
    }
}
