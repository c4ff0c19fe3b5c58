//! The engine: several trees over one log.
//!
//! ```text
//!  Round ──► log (one write, one flush per round)
//!    │
//!    └─────► active memtable ──full──► sealed ──flush──► level 0 ──compaction──► deeper levels
//!                │                        │                 │                        │
//!  reads ◄───────┴────────────────────────┴─────────────────┴────────────────────────┘
//! ```
//!
//! One memtable generation spans all trees: they are sealed and flushed together and one manifest
//! edit records it, so "contained in the tables up to" is a single log index.
//!
//! Writing is done in *rounds*, one at a time ([`Engine::begin_round`]): a round takes any number
//! of encoded batches, writes them to the log as one group, flushes once, and then publishes the
//! last revision. Reading takes no lock: it loads the current [`SuperVersion`] and reads at a
//! revision that is published.
//!
//! Invariants:
//!
//! - A revision is visible only when its batch, and every batch before it, is in the log and (with
//!   [`SyncPolicy::Always`]) flushed. A reader filters by the visible revision, so entries of the
//!   round in progress lie in the memtable unseen.
//! - A failed write or flush of the log stops all writing: the memtable may then hold entries that
//!   the log does not. They stay invisible; reopening starts from the log.
//! - A memtable is flushed only after the log up to its last index is flushed, and history is given
//!   up only after the log up to there is, so tables and manifest never run ahead of the log.
//! - The super-version is replaced under one lock and loaded with one atomic read.

mod arriving;
mod background;
mod ballast;
mod batch;
mod check;
mod checkpoint;
mod edits;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod ingest;
#[cfg(test)]
mod merge_tests;
mod merges;
mod options;
mod read;
mod readers;
mod recovery;
mod replicated;
mod restore;
mod round;
mod scan;
mod stats;
mod super_version;
#[cfg(test)]
mod tests;
mod view;

use std::path::PathBuf;
use std::sync::Arc;

pub use arriving::ArrivingFiles;
pub use batch::{BatchReader, BatchWriter, Operation};
pub use check::{CheckReport, FileReport, check_directory};
pub use ingest::{IngestRound, StagedTables};
pub use options::{EngineOptions, SyncPolicy};
pub use read::{Found, VersionVisit, Want};
pub use readers::{History, PinError, Readers, SnapshotPin, WatchPin};
pub use replicated::{FrozenTable, FrozenTables, Installed, Replicated};
pub use restore::{FrozenContents, Restore, RestoreOptions, frozen_contents};
pub use round::Round;
pub use scan::{Scan, ScanDirection};
pub use stats::{EngineStats, LevelStats};
pub use super_version::SuperVersion;

use ballast::Ballast;
use edits::{ManifestState, Recording};

use crate::compaction::Retention;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::log::{Log, LogSync};
use crate::memtable::{Memtable, Retirement};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::thread::JoinHandle;
use crate::sync::{Condvar, Mutex, Swap};
use crate::table::PageCache;
use crate::version::{Edit, Layout};
use crate::vfs::{UninterruptedVfs, Vfs, VfsLock};
use crate::{Clock, Index, Revision};

/// How many log segments an opening leaves as they are.
const LOG_SEGMENTS_AT_OPEN_MAX: usize = 16;
/// Up to how much an opening writes to tables itself when there are more, so that a program which
/// closes at once leaves fewer, however short it runs.
const FLUSHED_AT_OPEN_MAX_BYTES: u64 = 8 << 20;

/// The storage engine. Closed when dropped; [`Engine::close`] also tells whether it went well.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

/// What the engine and its threads share.
#[derive(Debug)]
struct Shared {
    vfs: Arc<dyn Vfs>,
    clock: Arc<dyn Clock>,
    layout: Layout,
    options: EngineOptions,
    counters: Arc<Counters>,
    cache: Arc<PageCache>,
    /// The one writer's state. Held for the length of a round.
    commit: Mutex<CommitState>,
    log_sync: Option<LogSync>,
    super_version: Swap<SuperVersion>,
    /// Memory of memtables, to be freed by who has the time.
    retirement: Arc<Retirement>,
    /// Held while a new super-version is built from the current one.
    super_version_update: Mutex<()>,
    manifest: Mutex<ManifestState>,
    visible: AtomicU64,
    next_file_id: AtomicU64,
    next_run_id: AtomicU64,
    readers: Arc<Readers>,
    /// One flush at a time; one compaction at a time.
    flushing: Mutex<()>,
    compacting: Mutex<()>,
    signals: Mutex<Signals>,
    /// Work for the background threads.
    work: Condvar,
    /// A flush or compaction has finished (or failed).
    done: Condvar,
    is_closing: AtomicBool,
    ballast: Ballast,
    /// Released last, when nothing of this engine writes any more.
    lock: Mutex<Option<Box<dyn VfsLock>>>,
    database_id: u128,
    /// Whether the log belongs to somebody else; see [`Engine::open_replicated`].
    is_replicated: bool,
}

#[derive(Debug)]
struct CommitState {
    log: Option<Log>,
    last_revision: Revision,
    last_index: Index,
    throttle_debt_ns: u64,
    failure: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct Signals {
    flush_wanted: bool,
    compaction_wanted: bool,
    flush: Job,
    compaction: Job,
    /// Whether a writer waits for a job that failed.
    is_hurried: bool,
}

/// What became of the attempts at a background job.
#[derive(Debug, Default)]
struct Job {
    /// How many attempts have begun.
    begun: u64,
    /// The last attempt, if it failed: its number, and how.
    failed: Option<(u64, Error)>,
}

impl Engine {
    /// Opens or creates the database in `path`: locks it, recovers it, starts the background
    /// threads (unless they are `Manual`).
    pub fn open(
        vfs: Arc<dyn Vfs>,
        clock: Arc<dyn Clock>,
        path: impl Into<PathBuf>,
        options: EngineOptions,
    ) -> Result<Engine> {
        let vfs: Arc<dyn Vfs> = Arc::new(UninterruptedVfs::new(vfs));
        let (shared, _) = recovery::open(vfs, clock, Layout::new(path), options, None)?;
        let engine = Engine::start(shared)?;
        engine.shared.release_log();
        // A program that opens, writes a little and closes leaves a segment each time. When many
        // have come together, their content goes into tables, and the log starts over.
        let segments = engine
            .shared
            .commit
            .lock()
            .log
            .as_ref()
            .map_or(0, Log::segment_count);
        if segments > LOG_SEGMENTS_AT_OPEN_MAX {
            let replayed_bytes = engine.stats().memtable_bytes;
            let is_large =
                engine.shared.options.has_threads() && replayed_bytes > FLUSHED_AT_OPEN_MAX_BYTES;
            // Much takes its time in the background; it can be read meanwhile.
            let flushed = match is_large {
                true => engine.shared.seal_active(),
                false => engine.flush(),
            };
            if let Err(error) = flushed {
                // Nothing is lost by it, and what can be read shall be read, on a full disk too.
                tracing::warn!(%error, "the log stays in many small segments");
            }
        }
        match engine.run_background_if_manual() {
            Err(error @ Error::NoSpace { .. }) => {
                tracing::warn!(%error, "flush or compaction waits for space");
            }
            result => result?,
        }
        if engine.shared.has_ballast() && !engine.shared.options.has_threads() {
            engine.shared.ballast.take_in();
        }
        Ok(engine)
    }

    fn start(shared: Shared) -> Result<Engine> {
        let shared = Arc::new(shared);
        let workers = background::start(&shared)?;
        Ok(Engine {
            shared,
            workers: Mutex::new(workers),
        })
    }

    /// The random id given to the database at its creation.
    #[must_use]
    pub fn database_id(&self) -> u128 {
        self.shared.database_id
    }

    /// Flushes the log to the disk. With [`SyncPolicy::Always`] there is nothing left to do.
    pub fn sync(&self) -> Result<()> {
        match &self.shared.log_sync {
            Some(log) => log.sync().map(|_| ()),
            None => Ok(()),
        }
    }

    /// Gives up history below `revision`, durably. Space comes back as compactions run.
    pub fn compact_history(&self, revision: Revision) -> Result<Result<(), PinError>> {
        if let Err(error) = self.shared.readers.compact(revision, &self.shared.visible) {
            return Ok(Err(error));
        }
        let edit = Edit {
            history_floor: Some(revision),
            ..Edit::default()
        };
        self.shared.apply_edit(&edit, &[], None)?;
        Ok(Ok(()))
    }

    /// Writes every memtable to tables.
    pub fn flush(&self) -> Result<()> {
        self.shared.seal_active()?;
        self.shared.ballast.release();
        self.shared.flush_all()
    }

    /// Merges every tree into one run each, dropping all that no reader may ask for.
    pub fn compact_tables(&self) -> Result<()> {
        match self.flush() {
            Err(Error::NoSpace { .. }) => {
                self.shared.ballast.release();
                match self.shared.flush_into_tables() {
                    // What is in memory may have to wait for a log that belongs to somebody else, and
                    // waits for room itself.
                    Err(Error::NoSpace { .. }) if self.shared.is_replicated => {
                        self.shared.ballast.release();
                        self.shared.compact_all()
                    }
                    result => result,
                }
            }
            result => {
                result?;
                self.shared.ballast.release();
                self.shared.compact_all()
            }
        }
    }

    /// Runs pending flushes and compactions on this thread when the engine has none of its own.
    pub fn run_background_if_manual(&self) -> Result<()> {
        if self.shared.options.has_threads() {
            return Ok(());
        }
        self.shared.flush_all()?;
        while self.shared.compact_once()? {}
        Ok(())
    }

    /// Sizes and counts.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        self.shared.stats()
    }

    /// Runs `look` while no flush and no compaction makes or removes a file. Writes go on.
    pub fn while_files_rest<R>(&self, look: impl FnOnce() -> R) -> R {
        let _flushing = self.shared.flushing.lock();
        let _compacting = self.shared.compacting.lock();
        let _manifest = self.shared.manifest.lock();
        look()
    }

    /// Stops the background threads, flushes the log and closes it.
    pub fn close(&self) -> Result<()> {
        {
            let _signals = self.shared.signals.lock();
            self.shared.is_closing.store(true, Ordering::Release);
            self.shared.work.notify_all();
            self.shared.done.notify_all();
        }
        for worker in self.workers.lock().drain(..) {
            if worker.join().is_err() {
                tracing::error!("a background thread panicked");
            }
        }
        self.shared.ballast.give_up();
        let mut commit = self.shared.commit.lock();
        let result = match commit.log.take() {
            Some(log) => log.close(),
            None => Ok(()),
        };
        self.shared.lock.lock().take();
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

impl Shared {
    fn retention(&self) -> Retention {
        // Before a job, so that it keeps what the tables before it need.
        let flushed = self.super_version.load().version.flushed_index;
        let now_ms = self.clock.wall_ms();
        self.readers.retention(&self.visible, now_ms, flushed)
    }

    fn new_file(&self) -> (u64, PathBuf) {
        let id = self.next_file_id.fetch_add(1, Ordering::Relaxed);
        (id, self.layout.table(id))
    }

    /// Makes the active memtable a sealed one, if it has entries.
    fn seal_active(&self) -> Result<()> {
        let commit = self.commit.lock();
        if let Some(reason) = commit.poisoned() {
            return Err(Error::Poisoned { reason });
        }
        self.seal(&commit, 0);
        Ok(())
    }

    /// The caller holds the commit lock, so no round is in progress.
    fn seal(&self, _commit: &CommitState, room_bytes: usize) {
        let _update = self.super_version_update.lock();
        let current = self.super_version.load_full();
        let capacity = self.options.memtable_bytes.max(room_bytes);
        let mut sealed = current.sealed.clone();
        if !current.active.is_empty() {
            sealed.insert(0, current.active.clone());
        }
        let generation = current.active.generation() + 1;
        let mut active = Memtable::new(generation, self.options.trees.len(), capacity);
        active.retire_to(self.retirement.clone());
        let active = Arc::new(active);
        let version = current.version.clone();
        self.super_version.store(Arc::new(SuperVersion {
            active,
            sealed,
            version,
        }));
        let mut signals = self.signals.lock();
        signals.flush_wanted = true;
        self.work.notify_all();
    }
}

impl CommitState {
    fn poisoned(&self) -> Option<Arc<str>> {
        let by_log = || self.log.as_ref().and_then(Log::poisoned);
        self.failure.clone().or_else(by_log)
    }
}
