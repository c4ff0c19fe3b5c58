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
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod ingest;
#[cfg(test)]
mod merge_tests;
mod merges;
mod read;
mod readers;
mod recovery;
mod replicated;
mod restore;
mod round;
mod super_version;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use arriving::ArrivingFiles;
pub use batch::{BatchReader, BatchWriter, Operation};
pub use check::{CheckReport, FileReport, check_directory};
pub use ingest::{IngestRound, StagedTables};
pub use read::{Found, Scan, ScanDirection, VersionVisit, Want};
pub use readers::{History, PinError, Readers, SnapshotPin, WatchPin};
pub use replicated::{FrozenTable, FrozenTables, Installed, Replicated};
pub use restore::{FrozenContents, Restore, RestoreOptions, frozen_contents};
pub use round::Round;
pub use super_version::SuperVersion;

use ballast::Ballast;

use crate::blob::{BlobFile, BlobOptions};
use crate::compaction::{CompactionOptions, MergeOperator, Retention};
use crate::counters::{Counters, CountersSnapshot};
use crate::error::{Error, Result};
use crate::log::{Background, Log, LogOptions, LogSync};
use crate::memtable::{Memtable, Retirement};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::thread::JoinHandle;
use crate::sync::{Condvar, Mutex, Swap};
use crate::table::{PageCache, Table, TableOptions};
use crate::version::{Edit, Identity, Layout, LiveBlob, Manifest, Run, State, Version};
use crate::vfs::{UninterruptedVfs, Vfs, VfsLock};
use crate::{Clock, Index, Revision, TreeId};

/// How many log segments an opening leaves as they are.
const LOG_SEGMENTS_AT_OPEN_MAX: usize = 16;
/// Up to how much an opening writes to tables itself when there are more, so that a program which
/// closes at once leaves fewer, however short it runs.
const FLUSHED_AT_OPEN_MAX_BYTES: u64 = 8 << 20;

/// When a round's data is flushed to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Before the round is published.
    Always,
    /// In the background, this often at the latest; a power loss can take that much back.
    Every(Duration),
    /// There is no log; everything is gone with the process.
    Never,
}

/// Settings of an engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The table format of each tree; their number is the number of trees.
    pub trees: Vec<TableOptions>,
    /// The size of a memtable, in bytes.
    pub memtable_bytes: usize,
    /// How many full memtables may wait before writers are stopped.
    pub sealed_memtables_max: usize,
    /// The page cache, in bytes.
    pub cache_bytes: u64,
    /// The log.
    pub log: LogOptions,
    /// When data is flushed.
    pub sync: SyncPolicy,
    /// Compaction.
    pub compaction: CompactionOptions,
    /// Which values go to files of their own.
    pub blobs: BlobOptions,
    /// For the trees whose values may be operands: how they are applied.
    pub merge_operators: BTreeMap<TreeId, Arc<dyn MergeOperator>>,
    /// How much of the past stays readable.
    pub history: History,
    /// How many revisions of history a slow watch may hold back.
    pub watch_lag_max: u64,
    /// The largest round, in encoded bytes.
    pub round_bytes_max: u64,
    /// The size from which a manifest is rewritten, in bytes, when it has also grown to four times
    /// what it says.
    pub manifest_rewrite_bytes: u64,
    /// Whether a missing directory is created.
    pub create: bool,
}

impl EngineOptions {
    /// Default settings for `trees` trees.
    #[must_use]
    pub fn new(trees: usize) -> EngineOptions {
        EngineOptions {
            trees: vec![TableOptions::default(); trees],
            memtable_bytes: 64 << 20,
            sealed_memtables_max: 4,
            cache_bytes: 64 << 20,
            log: LogOptions::default(),
            sync: SyncPolicy::Always,
            compaction: CompactionOptions::default(),
            blobs: BlobOptions::default(),
            merge_operators: BTreeMap::new(),
            history: History::None,
            watch_lag_max: 1_000_000,
            round_bytes_max: 512 << 20,
            manifest_rewrite_bytes: 1 << 20,
            create: true,
        }
    }

    fn has_threads(&self) -> bool {
        self.log.background == Background::Threads
    }
}

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

#[derive(Debug)]
struct ManifestState {
    manifest: Manifest,
    state: State,
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

/// Sizes and counts, for people and metrics.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct EngineStats {
    /// What was done so far, by cause.
    pub counters: CountersSnapshot,
    /// Bytes of all tables.
    pub table_bytes: u64,
    /// Bytes of all blob files.
    pub blob_bytes: u64,
    /// Blob files.
    pub blob_files: u64,
    /// Bytes in blob files that no table refers to.
    pub blob_garbage_bytes: u64,
    /// Bytes of the log's files.
    pub log_bytes: u64,
    /// Bytes of the manifest.
    pub manifest_bytes: u64,
    /// Bytes used in memtables.
    pub memtable_bytes: u64,
    /// Full memtables that wait for a flush.
    pub sealed_memtables: u64,
    /// Bytes in the page cache.
    pub cache_bytes: u64,
    /// Why the last flush or merge of a background thread failed, if it did. It is tried again.
    pub background_error: Option<Error>,
    /// Bytes of filters and indexes held in memory.
    pub table_memory_bytes: u64,
    /// Per tree, per level: (runs, tables, bytes, entries).
    pub levels: Vec<Vec<LevelStats>>,
}

impl EngineStats {
    /// How many bytes were written to tables and blob files for each byte that users committed, since
    /// the opening: by flushes and merges, without the log. `None` before the first commit.
    #[must_use]
    pub fn table_write_amplification(&self) -> Option<f64> {
        self.per_user_byte(self.table_and_blob_bytes_written())
    }

    /// How many bytes were written for each byte that users committed, since the opening: to
    /// tables, blob files, the log and the manifest. The zeros that the log writes ahead are counted.
    /// `None` before the first commit.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        let counters = &self.counters;
        let log = counters.log_bytes_written + counters.log_bytes_prepared;
        let tables = self.table_and_blob_bytes_written();
        self.per_user_byte(tables + log + counters.manifest_bytes_written)
    }

    /// How many bytes the tables and blob files have for each byte of the last level of each tree and
    /// of the values that it refers to, where a key is once when no history is kept. What lies above
    /// is newer versions, and versions that wait to be merged; garbage in blob files counts. `None`
    /// without tables.
    #[must_use]
    pub fn space_amplification(&self) -> Option<f64> {
        let last = |levels: &Vec<LevelStats>| {
            let filled = levels.iter().rev().find(|level| level.bytes > 0);
            filled.map_or(0, |level| level.bytes + level.referred_bytes)
        };
        let last: u64 = self.levels.iter().map(last).sum();
        let all = self.table_bytes + self.blob_bytes;
        (last > 0).then(|| all as f64 / last as f64)
    }

    fn table_and_blob_bytes_written(&self) -> u64 {
        let counters = &self.counters;
        let tables = counters.flush_bytes_written + counters.compaction_bytes_written;
        let blobs = counters.blob_flush_bytes_written + counters.blob_compaction_bytes_written;
        tables + blobs
    }

    fn per_user_byte(&self, bytes: u64) -> Option<f64> {
        let user = self.counters.user_bytes_written;
        (user > 0).then(|| bytes as f64 / user as f64)
    }
}

/// One level of one tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LevelStats {
    /// Runs.
    pub runs: u64,
    /// Tables.
    pub tables: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Bytes in blob files that the tables refer to.
    pub referred_bytes: u64,
    /// Entries, tombstones and old versions included.
    pub entries: u64,
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

    /// The newest published revision.
    #[must_use]
    #[inline]
    pub fn visible(&self) -> Revision {
        self.shared.visible.load(Ordering::Acquire)
    }

    /// The random id given to the database at its creation.
    #[must_use]
    pub fn database_id(&self) -> u128 {
        self.shared.database_id
    }

    /// The oldest readable revision.
    #[must_use]
    pub fn history_floor(&self) -> Revision {
        self.shared.readers.floor()
    }

    /// Pins the newest revision.
    #[must_use]
    pub fn pin_newest(&self) -> SnapshotPin {
        self.shared.readers.pin_newest(&self.shared.visible)
    }

    /// Pins a revision of the past.
    pub fn pin_at(&self, revision: Revision) -> Result<SnapshotPin, PinError> {
        self.shared.readers.pin_at(revision, &self.shared.visible)
    }

    /// Keeps history for a watch that starts at `from`.
    pub fn pin_watch(&self, from: Revision) -> Result<WatchPin, PinError> {
        self.shared.readers.pin_watch(from, &self.shared.visible)
    }

    /// Reads a key at the newest revision.
    #[inline]
    pub fn read_newest<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        self.newest(tree, key, Want::Whole, read)
    }

    #[inline]
    fn newest<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        want: Want,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        // First the sources, then the revision: whatever is visible is then in the sources.
        loop {
            let super_version = self.shared.super_version.load();
            let at = self.visible();
            if at >= self.shared.readers.replaced_floor() {
                return super_version.get(tree, key, at, 0, want, read);
            }
            // Between the tables of another member and their revision.
            crate::sync::thread::yield_now();
        }
    }

    /// Reads a key at a pinned revision.
    #[inline]
    pub fn read_at<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        at: Revision,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        let super_version = self.shared.super_version.load();
        self.check_replaced(at)?;
        super_version.get(tree, key, at, 0, Want::Whole, read)
    }

    /// Reads a key at the newest revision, but of a large value no more than its first
    /// [`HEAD_BYTES`](crate::blob::HEAD_BYTES).
    #[inline]
    pub fn peek_newest<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        self.newest(tree, key, Want::Head, read)
    }

    /// Reads a key at a pinned revision, but of a large value no more than its first
    /// [`HEAD_BYTES`](crate::blob::HEAD_BYTES).
    #[inline]
    pub fn peek_at<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        at: Revision,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        let super_version = self.shared.super_version.load();
        self.check_replaced(at)?;
        super_version.get(tree, key, at, 0, Want::Head, read)
    }

    #[inline]
    fn check_replaced(&self, at: Revision) -> Result<()> {
        let oldest = self.shared.readers.replaced_floor();
        if at < oldest {
            return Err(Error::Replaced { at, oldest });
        }
        Ok(())
    }

    /// Reads a key's newest version, published or not, when it is above `since`. For the one who
    /// holds the round (or is about to): it decides conflicts.
    #[inline]
    pub fn read_since<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        since: Revision,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        self.shared
            .super_version
            .load()
            .get(tree, key, Revision::MAX, since, Want::Whole, read)
    }

    /// The same, but of a large value no more than its first
    /// [`HEAD_BYTES`](crate::blob::HEAD_BYTES): enough to decide by.
    #[inline]
    pub fn peek_since<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        since: Revision,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        self.shared
            .super_version
            .load()
            .get(tree, key, Revision::MAX, since, Want::Head, read)
    }

    /// What the memtables say of a key at the newest revision. `None` when they say nothing and a table
    /// might.
    #[inline]
    pub fn peek_memtables<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Option<R> {
        // First the sources, then the revision: whatever is visible is then in the sources.
        let super_version = self.shared.super_version.load();
        let at = self.visible();
        super_version.get_from_memtables(tree, key, at, read)
    }

    /// All that there is to read from, as it is now.
    #[must_use]
    pub fn super_version(&self) -> Arc<SuperVersion> {
        self.shared.super_version.load_full()
    }

    /// Whether a key in the range has a version, published or not, above `since`.
    pub fn changed_since(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        since: Revision,
    ) -> Result<bool> {
        self.shared
            .super_version
            .load()
            .changed_since(tree, lower, upper, since)
    }

    /// Scans a range at a pinned (or the newest) revision.
    #[must_use]
    pub fn scan(
        &self,
        tree: TreeId,
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
        at: Revision,
        direction: ScanDirection,
    ) -> Scan {
        let super_version = self.shared.super_version.load_full();
        let refused = self.check_replaced(at).err();
        Scan::new(super_version, tree, lower, upper, at, direction).refused(refused)
    }

    /// Visits every kept version of the range with a revision in `span`, both ends included; see
    /// [`SuperVersion::for_each_version`].
    pub fn for_each_version(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        span: (Revision, Revision),
        visit: &mut VersionVisit<'_>,
    ) -> Result<()> {
        let super_version = self.shared.super_version.load_full();
        super_version.for_each_version(tree, lower, upper, span, Want::Whole, visit)
    }

    /// The same, but of a large value `visit` gets no more than its first
    /// [`HEAD_BYTES`](crate::blob::HEAD_BYTES).
    pub fn peek_versions(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        span: (Revision, Revision),
        visit: &mut VersionVisit<'_>,
    ) -> Result<()> {
        let super_version = self.shared.super_version.load_full();
        super_version.for_each_version(tree, lower, upper, span, Want::Head, visit)
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

    fn stats(&self) -> EngineStats {
        let super_version = self.super_version.load_full();
        let levels = super_version.version.trees.iter().map(|tree| {
            let level = |runs: &Vec<Arc<Run>>| LevelStats {
                runs: runs.len() as u64,
                tables: runs.iter().map(|run| run.tables.len() as u64).sum(),
                bytes: runs.iter().map(|run| run.bytes()).sum(),
                referred_bytes: runs
                    .iter()
                    .flat_map(|run| &run.tables)
                    .filter_map(|t| super_version.version.references.get(&t.meta().file_id))
                    .flat_map(|references| references.iter().map(|to| to.bytes))
                    .sum(),
                entries: runs
                    .iter()
                    .flat_map(|run| &run.tables)
                    .map(|t| t.meta().entries)
                    .sum(),
            };
            tree.levels.iter().map(level).collect()
        });
        let tables = || super_version.version.tables();
        let blobs = || super_version.version.blobs.values();
        EngineStats {
            counters: self.counters.snapshot(),
            table_bytes: tables().map(|table| table.meta().file_bytes).sum(),
            blob_bytes: blobs().map(|blob| blob.file.meta().file_bytes).sum(),
            blob_files: blobs().count() as u64,
            blob_garbage_bytes: blobs().map(LiveBlob::garbage_bytes).sum(),
            table_memory_bytes: tables().map(|table| table.memory_bytes() as u64).sum(),
            log_bytes: self.commit.lock().log.as_ref().map_or(0, Log::size_bytes),
            manifest_bytes: self.manifest.lock().manifest.size_bytes(),
            memtable_bytes: super_version
                .memtables()
                .map(|m| m.used_bytes() as u64)
                .sum(),
            sealed_memtables: super_version.sealed.len() as u64,
            cache_bytes: self.cache.used_bytes(),
            background_error: {
                let signals = self.signals.lock();
                let failed = signals.flush.failed.as_ref();
                let failed = failed.or(signals.compaction.failed.as_ref());
                failed.map(|(_, error)| error.clone())
            },
            levels: levels.collect(),
        }
    }

    /// Records an edit durably, then publishes the version it leads to. `opened` are the tables
    /// the edit adds; `flushed` is the newest memtable they came from, with all before it.
    fn apply_edit(&self, edit: &Edit, opened: &[Arc<Table>], flushed: Option<u64>) -> Result<()> {
        self.apply_edit_with_blobs(edit, opened, &[], flushed, Recording::Appended)
    }

    /// The same of an edit that adds blob files, opened as `new_blobs`.
    fn apply_edit_with_blobs(
        &self,
        edit: &Edit,
        opened: &[Arc<Table>],
        new_blobs: &[Arc<BlobFile>],
        flushed: Option<u64>,
        recording: Recording,
    ) -> Result<()> {
        if let (Some(_), Some(log)) = (edit.history_floor, &self.log_sync) {
            // A crash that took back revisions up to the floor would leave a database that is
            // older than its own history, and refuses every reader.
            log.sync()?;
        }
        let mut guard = self.manifest.lock();
        let ManifestState { manifest, state } = &mut *guard;
        let mut next = state.clone();
        next.apply(edit).map_err(Error::Internal)?;
        match recording {
            Recording::Appended => manifest.append(edit)?,
            Recording::InNewManifest => self.replace_manifest(manifest, &next)?,
        }
        *state = next;

        let mut retired = Vec::new();
        let mut retired_blobs = Vec::new();
        {
            let _update = self.super_version_update.lock();
            let current = self.super_version.load_full();
            let mut tables: HashMap<u64, Arc<Table>> = current
                .version
                .tables()
                .chain(opened)
                .map(|table| (table.meta().file_id, table.clone()))
                .collect();
            let held = current.version.blobs.values().map(|blob| &blob.file);
            let mut blobs: HashMap<u64, Arc<BlobFile>> = held
                .chain(new_blobs)
                .map(|blob| (blob.meta().file_id, blob.clone()))
                .collect();
            let version = Version::from_state(
                state,
                self.options.trees.len(),
                &mut |id| tables.remove(&id),
                &mut |id| blobs.remove(&id),
            );
            // What the state no longer names goes when its last reader lets go of it.
            retired.extend(tables.into_values());
            retired_blobs.extend(blobs.into_values());
            let mut sealed = current.sealed.clone();
            sealed.retain(|memtable| flushed.is_none_or(|newest| memtable.generation() > newest));
            let active = current.active.clone();
            let version = Arc::new(version);
            self.super_version.store(Arc::new(SuperVersion {
                active,
                sealed,
                version,
            }));
        }
        for table in retired {
            table.mark_obsolete();
        }
        for blob in retired_blobs {
            blob.mark_obsolete();
        }
        self.rewrite_manifest_if_large(&mut guard);
        Ok(())
    }

    /// A manifest that has grown far beyond its snapshot is replaced by one that starts with it.
    /// The edit that made it grow is durable already, so a failure here is not the caller's.
    fn rewrite_manifest_if_large(&self, guard: &mut ManifestState) {
        let size = guard.manifest.size_bytes();
        if size < self.options.manifest_rewrite_bytes {
            return;
        }
        let mut snapshot = Vec::new();
        guard.state.as_edit().encode(&mut snapshot);
        if size < 4 * snapshot.len() as u64 {
            return;
        }
        let ManifestState { manifest, state } = guard;
        if let Err(error) = self.replace_manifest(manifest, state)
            && manifest.check_intact().is_ok()
        {
            tracing::warn!(%error, "the manifest is not rewritten yet; it only grows");
        }
    }

    /// Replaces the manifest by a new one that starts with `state`. Its first record is durable before
    /// the manifest becomes the current one, so unlike the last of those that were appended, it can
    /// rot, but never be taken for torn.
    ///
    /// # Errors
    /// Nothing has changed then, and the call may be repeated. After `Poisoned` it is unknown which
    /// manifest is the current one, and every later edit is refused.
    fn replace_manifest(&self, manifest: &mut Manifest, state: &State) -> Result<()> {
        manifest.check_intact()?;
        let number = manifest.number();
        let identity = Identity {
            database_id: self.database_id,
            manifest: number + 1,
        };
        let (vfs, layout) = (&*self.vfs, &self.layout);
        let created = Manifest::create(vfs, layout, &identity, state, self.counters.clone());
        let new = created.and_then(|new| identity.stage(vfs, layout).map(|()| new));
        let new = new.inspect_err(|_| {
            // Its room may be needed. What stays, the next attempt or opening removes.
            drop(vfs.remove_file(&layout.manifest(number + 1)));
        })?;
        if let Err(error) = Identity::switch(vfs, layout) {
            // Either manifest may be the current one after a crash, so neither may grow.
            tracing::error!(%error, "the manifest could not be replaced; reopen the database");
            let reason = error.to_string().into();
            manifest.fail(error);
            return Err(Error::Poisoned { reason });
        }
        *manifest = new;
        let old = layout.manifest(number);
        if let Err(cause) = vfs.remove_file(&old) {
            tracing::warn!(path = %old.display(), %cause, "a replaced manifest stays until the next open");
        }
        Ok(())
    }
}

/// How an edit gets into the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recording {
    /// As one more record. When that rots while it is the last one, it looks as if it had been torn by
    /// a crash and had never happened: for edits whose loss is noticed by other means.
    Appended,
    /// In the first record of a new manifest, which cannot be taken for torn: for edits without which
    /// acknowledged data would be gone, and nobody told.
    InNewManifest,
}

impl CommitState {
    fn poisoned(&self) -> Option<Arc<str>> {
        let by_log = || self.log.as_ref().and_then(Log::poisoned);
        self.failure.clone().or_else(by_log)
    }
}
