//! The handle of an open database.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bowline_storage::log::{Background, Log};
use bowline_storage::sync::atomic::{AtomicBool, Ordering};
use bowline_storage::sync::thread::{self, JoinHandle};
use bowline_storage::sync::{Condvar, Instant, Mutex};
use bowline_storage::tree::{
    Engine, EngineOptions, EngineStats, Found, Replicated, SyncPolicy, Want,
};
use bowline_storage::vfs::Vfs;
use bowline_storage::{Clock, EntryKind, Revision, Value};

use crate::check::{self, Check};
use crate::commit::{Action, CommitQueue, Committed, Guard, Request, Write, WriteList};
use crate::error::{Error, Result};
use crate::graph::KindId;
use crate::kinds::{self, Kinds};
use crate::kv::{Entry, Range, RangeIter, Version, order, record};
use crate::lease::{self, Grant, Lease, LeaseId, LeaseTable};
use crate::options::{DbBuilder, Isolation, Limits};
use crate::replica::ReplicaOptions;
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;
use crate::trees;
use crate::watch::{Hub, WatchBuilder};

/// An open database. Cloning gives another handle of the same one; the last handle to go (and the
/// last snapshot, transaction or watcher) closes it.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("data");
/// use bowline::Db;
/// let db = Db::open(&path)?;
/// let revision = db.put(b"k", b"v")?;
/// assert_eq!(db.get(b"k")?.as_deref(), Some(&b"v"[..]));
/// assert_eq!(db.compare_and_swap(b"k", revision, b"w")?, revision + 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Db {
    inner: Arc<DbInner>,
}

#[derive(Debug)]
struct DbInner {
    core: Arc<Core>,
    lease_thread: Mutex<Option<JoinHandle<()>>>,
    /// Whether its end closes the database. Not so for the lease thread's own, or it would keep a
    /// database open whose last user has gone.
    is_owner: bool,
}

/// What handles and the lease thread share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) engine: Engine,
    pub(crate) queue: CommitQueue,
    pub(crate) hub: Hub,
    pub(crate) leases: LeaseTable,
    pub(crate) kinds: Kinds,
    pub(crate) limits: Limits,
    vfs: Arc<dyn Vfs>,
    clock: Arc<dyn Clock>,
    path: PathBuf,
    /// Not with `Durability::Memory`.
    has_files: bool,
    /// Whether a cluster writes it, and nobody else.
    pub(crate) is_replica: bool,
    is_closed: AtomicBool,
    /// Wakes the lease thread: a lease was granted, or the database closes.
    lease_bell: Mutex<()>,
    lease_rung: Condvar,
}

impl Core {
    #[expect(
        clippy::too_many_arguments,
        reason = "called twice, by the two ways to open"
    )]
    fn new(
        engine: Engine,
        vfs: Arc<dyn Vfs>,
        clock: Arc<dyn Clock>,
        path: PathBuf,
        limits: Limits,
        watch_ring_bytes: u64,
        has_files: bool,
        is_replica: bool,
    ) -> Result<Arc<Core>> {
        let kinds = Kinds::load(&engine)?;
        let leases = LeaseTable::load(&engine, &*clock)?;
        Ok(Arc::new(Core {
            engine,
            queue: CommitQueue::new(!leases.is_empty()),
            hub: Hub::new(watch_ring_bytes),
            leases,
            kinds,
            limits,
            vfs,
            clock,
            path,
            has_files,
            is_replica,
            is_closed: AtomicBool::new(false),
            lease_bell: Mutex::new(()),
            lease_rung: Condvar::new(),
        }))
    }
}

/// Sizes and counts.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Stats {
    /// The newest revision.
    pub revision: Revision,
    /// The oldest readable revision.
    pub oldest_revision: Revision,
    /// Leases.
    pub leases: u64,
    /// Watchers.
    pub watchers: u64,
    /// Names of block and edge kinds.
    pub kinds: Vec<String>,
    /// The engine's part.
    pub engine: EngineStats,
}

impl Db {
    /// Opens the database in `path` with default settings, creating it when there is none.
    ///
    /// # Errors
    /// See [`DbBuilder::open`].
    pub fn open(path: impl Into<PathBuf>) -> Result<Db> {
        Db::builder().open(path)
    }

    /// Settings for a database to be opened.
    #[must_use]
    pub fn builder() -> DbBuilder {
        DbBuilder::new()
    }

    /// A database without files, gone with its last handle.
    pub fn in_memory() -> Result<Db> {
        Db::builder()
            .durability(crate::Durability::Memory)
            .open("memory")
    }

    pub(crate) fn start(
        vfs: Arc<dyn Vfs>,
        clock: Arc<dyn Clock>,
        path: PathBuf,
        options: EngineOptions,
        limits: Limits,
        watch_ring_bytes: u64,
        background: Background,
    ) -> Result<Db> {
        let has_files = options.sync != SyncPolicy::Never;
        let engine = Engine::open(vfs.clone(), clock.clone(), path.clone(), options)?;
        let core = Core::new(
            engine,
            vfs,
            clock,
            path,
            limits,
            watch_ring_bytes,
            has_files,
            false,
        )?;
        let lease_thread = Mutex::new(None);
        let inner = Arc::new(DbInner {
            core: core.clone(),
            lease_thread,
            is_owner: true,
        });
        if background == Background::Threads {
            let named = thread::Builder::new().name("bowline-lease".to_owned());
            let spawned = named.spawn(move || expire_loop(core));
            let thread = spawned.map_err(|e| {
                bowline_storage::Error::Internal(format!("cannot start a thread: {e}"))
            })?;
            *inner.lease_thread.lock() = Some(thread);
        }
        Ok(Db { inner })
    }

    /// Opens the database of a member of a cluster, whose log belongs to the caller. Nothing is
    /// written through the handle.
    pub(crate) fn start_replica(
        vfs: Arc<dyn Vfs>,
        clock: Arc<dyn Clock>,
        path: PathBuf,
        options: EngineOptions,
        limits: Limits,
        watch_ring_bytes: u64,
        replica: &mut ReplicaOptions<'_>,
    ) -> Result<(Db, Log)> {
        let replicated = Replicated {
            database_id: replica.database_id,
            file_id_base: replica.file_id_base,
            locked: &mut *replica.locked,
            visit: &mut *replica.visit,
        };
        let (engine, log) = Engine::open_replicated(
            vfs.clone(),
            clock.clone(),
            path.clone(),
            options,
            replicated,
        )?;
        let core = Core::new(
            engine,
            vfs,
            clock,
            path,
            limits,
            watch_ring_bytes,
            true,
            true,
        )?;
        let inner = Arc::new(DbInner {
            core,
            lease_thread: Mutex::new(None),
            is_owner: true,
        });
        Ok((Db { inner }, log))
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.core().clock
    }

    /// For what writes without a commit.
    fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.core().is_replica {
            return Err(Error::NotSupported {
                what: "a write to the database of a member of a cluster",
                why: "the members agree on writes: give it to the member's client",
            });
        }
        Ok(())
    }

    pub(crate) fn core(&self) -> &Core {
        &self.inner.core
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.core().is_closed.load(Ordering::Acquire) {
            Err(Error::Closed)
        } else {
            Ok(())
        }
    }

    // --- reading ---

    /// The newest committed revision. 1 for a new database.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.core().engine.visible()
    }

    /// The oldest revision that [`Db::snapshot_at`] and [`Db::watch`] accept.
    #[must_use]
    pub fn oldest_revision(&self) -> Revision {
        self.core().engine.history_floor()
    }

    /// The value of a key.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        self.check_open()?;
        let mut value = Ok(None);
        self.core().engine.read_newest(trees::KV, key, |found| {
            record::value_into(key, found, &mut value);
        })?;
        value
    }

    /// The value of a key with its create and modification revision, version and lease.
    pub fn entry(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>> {
        let key = key.as_ref();
        self.check_open()?;
        self.core()
            .engine
            .read_newest(trees::KV, key, |found| record::entry_of(key, found))?
    }

    /// The entries of a range at the newest revision, in key order, from both ends.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// for entry in db.range("a".."b")? {
    ///     let entry = entry?;
    ///     println!("{:?} = {:?}", entry.key, entry.value);
    /// }
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidRange` when it ends before it starts.
    pub fn range(&self, range: impl Into<Range>) -> Result<RangeIter> {
        self.check_open()?;
        self.snapshot().range(range)
    }

    /// The database at the newest revision.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.clone(), self.core().engine.pin_newest())
    }

    /// The database at a revision of the past.
    ///
    /// # Errors
    /// `FutureRevision` and `Compacted`, with the bounds.
    pub fn snapshot_at(&self, revision: Revision) -> Result<Snapshot> {
        self.check_open()?;
        let pin = self.core().engine.pin_at(revision);
        let pin = pin.map_err(|error| crate::watch::pin_error(revision, error))?;
        Ok(Snapshot::new(self.clone(), pin))
    }

    /// Every change of a key that is still readable, newest first. Tells a key that was deleted
    /// from one that was never written.
    pub fn history(&self, key: impl AsRef<[u8]>) -> Result<Vec<Version>> {
        let key = key.as_ref();
        check_key(key, &self.core().limits)?;
        self.check_open()?;
        let engine = &self.core().engine;
        let pin = engine.pin_newest();
        let mut versions = Vec::new();
        let mut failure = None;
        let bound = std::ops::Bound::Included(key);
        let span = (0, pin.revision());
        let sources = engine.super_version();
        let mut visit = |_: &[u8], revision, kind, bytes: &[u8]| {
            let entry = match kind {
                EntryKind::Delete => None,
                EntryKind::Put => match record::entry_of_version(key, revision, bytes, &sources) {
                    Ok(entry) => Some(entry),
                    Err(error) => {
                        failure = Some(error);
                        return false;
                    }
                },
            };
            versions.push(Version { revision, entry });
            true
        };
        sources.for_each_version(trees::KV, bound, bound, span, Want::Whole, &mut visit)?;
        if let Some(error) = failure {
            return Err(error);
        }
        versions.sort_by_key(|version| std::cmp::Reverse(version.revision));
        versions.dedup_by_key(|version| version.revision);
        let revisions = versions.iter().rev().map(|version| version.revision);
        let revisions: Vec<Revision> = revisions.collect();
        let mut earlier: Vec<Version> = Vec::new();
        order::for_each(engine, &revisions, |_, order| {
            let from = earlier.len();
            earlier.extend(order.earlier(key).map(Version::of));
            earlier[from..].reverse();
            Ok(())
        })?;
        // Versions that only chance has kept are not history: the first one at or below the
        // floor is what a reader at the floor sees, older ones may be gone at any time.
        let floor = engine.history_floor();
        let current = versions
            .iter()
            .position(|version| version.revision <= floor);
        if let Some(current) = current {
            versions.truncate(current + 1);
        }
        // Nor is what the floor's own revision has written over.
        earlier.retain(|version| version.revision > floor);
        versions.append(&mut earlier);
        versions.sort_by_key(|version| std::cmp::Reverse(version.revision));
        Ok(versions)
    }

    // --- writing ---

    /// Sets a key. Never conflicts. Returns the revision, once it is durable.
    ///
    /// # Errors
    /// `EmptyKey`, `KeyTooLarge`, `ValueTooLarge`, `TransactionTooLarge`; `Storage` when the disk
    /// fails or is full.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Revision> {
        self.put_with_lease(key, value, 0)
    }

    /// Sets a key that goes when the lease expires or is revoked. Lease 0 is none.
    ///
    /// # Errors
    /// As [`Db::put`], and `LeaseNotFound`.
    pub fn put_with_lease(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        lease: LeaseId,
    ) -> Result<Revision> {
        let write = self.put_write(key.as_ref(), value.as_ref(), lease)?;
        let guards = lease_guard(lease);
        let request = Request {
            writes: WriteList::from_buf([write]),
            guards,
            ..Request::default()
        };
        Ok(self.commit(request)?.revision)
    }

    /// Deletes a key. `None` when it was absent: then nothing changed. Never conflicts.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Option<Revision>> {
        check_key(key.as_ref(), &self.core().limits)?;
        let write = Write::new(trees::KV, key.as_ref(), Action::Delete);
        let committed = self.commit(Request {
            writes: WriteList::from_buf([write]),
            ..Request::default()
        })?;
        Ok(committed.changed.then_some(committed.revision))
    }

    /// Deletes every key of a range in one transaction; returns how many there were. Tries again
    /// when the range changes meanwhile.
    pub fn delete_range(&self, range: impl Into<Range>) -> Result<u64> {
        let range = range.into().validate()?;
        self.transact(|tx| tx.delete_range(range.clone()))
    }

    /// Sets a key if its modification revision is the expected one; 0 means it must be absent.
    /// Checks nothing else.
    ///
    /// # Errors
    /// `CompareFailed` with the actual revision when it is another.
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Revision,
        value: impl AsRef<[u8]>,
    ) -> Result<Revision> {
        let write = self.put_write(key.as_ref(), value.as_ref(), 0)?;
        let guards = vec![Guard::Revision {
            key: key.as_ref().to_vec(),
            expected,
        }];
        let request = Request {
            writes: WriteList::from_buf([write]),
            guards,
            ..Request::default()
        };
        Ok(self.commit(request)?.revision)
    }

    /// Begins a transaction with serializable isolation.
    #[must_use]
    pub fn begin(&self) -> Transaction {
        self.begin_with(Isolation::Serializable)
    }

    /// Begins a transaction.
    #[must_use]
    pub fn begin_with(&self, isolation: Isolation) -> Transaction {
        Transaction::new(self.snapshot(), isolation)
    }

    /// Runs `body` in a transaction and commits it; runs it again when it conflicts with another,
    /// after a short random pause. `body` must therefore have no other lasting effect. When it
    /// returns an error the transaction is rolled back and the error returned.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let count = db.transact(|tx| {
    ///     let old = tx.get(b"counter")?.map_or(0, |v| v[0]);
    ///     tx.put(b"counter", [old + 1])?;
    ///     Ok(old + 1)
    /// })?;
    /// assert_eq!(count, 1);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `TooManyConflicts` after ten seconds of conflicts.
    pub fn transact<T>(&self, body: impl FnMut(&Transaction) -> Result<T>) -> Result<T> {
        self.transact_with(Isolation::Serializable, body)
    }

    /// [`Db::transact`] with another isolation.
    pub fn transact_with<T>(
        &self,
        isolation: Isolation,
        mut body: impl FnMut(&Transaction) -> Result<T>,
    ) -> Result<T> {
        const PATIENCE: Duration = Duration::from_secs(10);
        const PAUSE_MAX_US: u64 = 10_000;
        let start = Instant::now();
        let mut attempts = 0u32;
        loop {
            let tx = self.begin_with(isolation);
            attempts += 1;
            let result = body(&tx).and_then(|value| tx.commit().map(|_| value));
            match result {
                Err(Error::Conflict { .. }) => {}
                other => return other,
            }
            let elapsed = start.elapsed();
            if elapsed > PATIENCE {
                return Err(Error::TooManyConflicts { attempts, elapsed });
            }
            if attempts > 3 {
                let most = (1 << attempts.min(20)).min(PAUSE_MAX_US);
                thread::sleep(Duration::from_micros(fastrand::u64(0..most)));
            }
        }
    }

    /// Commits a request that was built elsewhere in this crate.
    pub(crate) fn commit(&self, request: Request) -> Result<Committed> {
        self.check_writable()?;
        let core = self.core();
        match core.queue.commit(&core.engine, &core.hub, request) {
            // It was closed since the check above.
            Err(Error::Storage(bowline_storage::Error::Closed)) => Err(Error::Closed),
            result => result,
        }
    }

    fn put_write(&self, key: &[u8], value: &[u8], lease: LeaseId) -> Result<Write> {
        let limits = &self.core().limits;
        check_key(key, limits)?;
        check_value(value.len(), limits)?;
        let (size, limit) = (
            (key.len() + value.len()) as u64,
            limits.transaction_size_max_bytes,
        );
        if size > limit {
            return Err(Error::TransactionTooLarge { size, limit });
        }
        let action = Action::PutEntry {
            value: Value::copy_from(value),
            lease,
        };
        Ok(Write::new(trees::KV, key, action))
    }

    /// The number of a kind; registers a new name.
    pub(crate) fn kind_id(&self, name: &str) -> Result<KindId> {
        let kinds = &self.core().kinds;
        if let Some(id) = kinds.id(name) {
            return Ok(id);
        }
        kinds::check_name(name)?;
        let _registering = kinds.registering.lock();
        if let Some(id) = kinds.id(name) {
            return Ok(id);
        }
        let id = kinds.next_id();
        let action = Action::PutRaw {
            value: name.as_bytes().to_vec(),
        };
        let write = Write::new(trees::SYSTEM, &trees::kind_key(id.0), action);
        self.commit(Request {
            writes: WriteList::from_buf([write]),
            ..Request::default()
        })?;
        kinds.insert(id, name);
        Ok(id)
    }

    // --- watching ---

    /// Watches the changes of a range; see [`Watcher`](crate::Watcher).
    pub fn watch(&self, range: impl Into<Range>) -> WatchBuilder {
        WatchBuilder::new(self.clone(), range.into())
    }

    /// Waits until `revision` is committed and readable, at most for `timeout`; tells whether it is.
    /// One thread that waits here can serve many watchers with [`Watcher::poll`](crate::Watcher).
    ///
    /// # Errors
    /// `Closed` when the database was closed.
    pub fn wait_for_revision(&self, revision: Revision, timeout: Duration) -> Result<bool> {
        self.check_open()?;
        let core = self.core();
        let is_there = || core.engine.visible() >= revision;
        if !is_there() {
            core.hub.wait(timeout, is_there);
            self.check_open()?;
        }
        Ok(is_there())
    }

    // --- leases ---

    /// Grants a lease: keys put with it go `ttl` after its last keep-alive.
    ///
    /// # Errors
    /// `InvalidTtl`.
    pub fn grant_lease(&self, ttl: Duration) -> Result<LeaseId> {
        loop {
            let id = fastrand::i64(1..);
            match self.grant_lease_with_id(id, ttl) {
                Err(Error::LeaseExists { .. }) => {}
                other => return other.map(|()| id),
            }
        }
    }

    /// Records that what is below a revision cannot be read any more, as members of a cluster do.
    pub(crate) fn record_compaction(&self, revision: Revision) -> Result<()> {
        let action = Action::PutRaw {
            value: crate::replica::records::encode_number(revision),
        };
        let write = Write::new(trees::SYSTEM, &trees::compacted_key(), action);
        self.commit(Request {
            writes: WriteList::from_buf([write]),
            ..Request::default()
        })?;
        Ok(())
    }

    /// Grants a lease with an id of your choice, above 0.
    ///
    /// # Errors
    /// `LeaseExists`, `InvalidTtl`; `LeaseNotFound` for an id that cannot be one.
    pub fn grant_lease_with_id(&self, id: LeaseId, ttl: Duration) -> Result<()> {
        lease::check_ttl(ttl)?;
        if id <= 0 {
            return Err(Error::LeaseNotFound { id });
        }
        let action = Action::PutRaw {
            value: lease::encode_ttl(ttl),
        };
        let write = Write::new(trees::SYSTEM, &trees::lease_key(id), action);
        let guards = vec![Guard::Lease { id, exists: false }];
        let core = self.core();
        let changing = core.leases.begin_change(id);
        self.commit(Request {
            writes: WriteList::from_buf([write]),
            guards,
            ..Request::default()
        })?;
        let grant = Grant { ttl, index: 0 };
        core.leases.insert(id, grant, core.clock.monotonic());
        drop(changing);
        let _bell = core.lease_bell.lock();
        core.lease_rung.notify_all();
        Ok(())
    }

    /// Begins the lease's time to live anew; returns it.
    ///
    /// # Errors
    /// `LeaseNotFound` when it has expired, was revoked, or never was.
    pub fn keep_alive(&self, id: LeaseId) -> Result<Duration> {
        self.check_open()?;
        let core = self.core();
        let found = core.leases.keep_alive(id, core.clock.monotonic());
        found.ok_or(Error::LeaseNotFound { id })
    }

    /// Ends a lease now: deletes its keys and itself in one transaction. Returns how many keys.
    ///
    /// # Errors
    /// `LeaseNotFound`.
    pub fn revoke_lease(&self, id: LeaseId) -> Result<u64> {
        self.check_open()?;
        let core = self.core();
        let _changing = core.leases.begin_change(id);
        if !core.leases.contains(id) {
            return Err(Error::LeaseNotFound { id });
        }
        let deleted = self.transact(|tx| tx.revoke_lease(id))?;
        core.leases.remove(id);
        Ok(deleted)
    }

    /// Every lease, by id.
    #[must_use]
    pub fn leases(&self) -> Vec<Lease> {
        let core = self.core();
        let mut leases = core.leases.list(core.clock.monotonic());
        leases.retain(|lease| self.has_lease_record(lease.id));
        leases
    }

    /// Whether a lease is there as far as can be seen: it goes with its keys, in the table of
    /// deadlines a moment later. When it cannot be read, the table decides.
    fn has_lease_record(&self, id: LeaseId) -> bool {
        let key = trees::lease_key(id);
        let is_put = |found: Option<Found<'_>>| found.is_some_and(|f| f.kind == EntryKind::Put);
        let read = self.core().engine.read_newest(trees::SYSTEM, &key, is_put);
        read.unwrap_or(true)
    }

    /// One lease.
    #[must_use]
    pub fn lease(&self, id: LeaseId) -> Option<Lease> {
        let core = self.core();
        let lease = core.leases.get(id, core.clock.monotonic())?;
        self.has_lease_record(id).then_some(lease)
    }

    /// The keys attached to a lease.
    pub fn lease_keys(&self, id: LeaseId) -> Result<Vec<Value>> {
        self.check_open()?;
        if !self.core().leases.contains(id) {
            return Err(Error::LeaseNotFound { id });
        }
        self.begin().attached_keys(id)
    }

    /// Expires the leases whose time is over; returns how many. The background thread does this
    /// by itself; with [`Background::Manual`] nobody else does.
    pub fn expire_leases(&self) -> Result<u64> {
        self.check_writable()?;
        let core = self.core();
        let expired = core.leases.take_expired(core.clock.monotonic());
        let mut count = 0;
        for (id, _) in expired {
            let _changing = core.leases.begin_change(id);
            if !core.leases.is_expiring(id) {
                // It was revoked meanwhile, and perhaps granted anew.
                continue;
            }
            match self.transact(|tx| tx.revoke_lease(id)) {
                Ok(_) | Err(Error::LeaseNotFound { .. }) => {
                    core.leases.remove(id);
                    count += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    // --- upkeep ---

    /// Flushes everything committed so far to the disk. Needed only with
    /// [`Durability::Batched`](crate::Durability::Batched).
    pub fn sync(&self) -> Result<()> {
        self.check_open()?;
        Ok(self.core().engine.sync()?)
    }

    /// Gives up every revision below `revision`: they can no longer be read, except by snapshots
    /// that exist, and their space is reclaimed by compaction.
    ///
    /// # Errors
    /// `FutureRevision` and `Compacted`, with the bounds.
    pub fn compact(&self, revision: Revision) -> Result<()> {
        self.check_writable()?;
        let result = self.core().engine.compact_history(revision)?;
        result.map_err(|error| crate::watch::pin_error(revision, error))
    }

    /// Writes memtables to tables and merges all tables now, on this thread. Reads and writes go
    /// on meanwhile.
    pub fn compact_tables(&self) -> Result<()> {
        self.check_open()?;
        Ok(self.core().engine.compact_tables()?)
    }

    /// Writes memtables to tables now.
    pub fn flush(&self) -> Result<()> {
        self.check_open()?;
        Ok(self.core().engine.flush()?)
    }

    /// Verifies every file and that keys, leases, blocks and both directions of every edge agree.
    /// Damage is listed in the result; an error is returned when the check itself cannot go on.
    pub fn check(&self) -> Result<Check> {
        self.check_open()?;
        check::check_open(self, &self.core().vfs, &self.core().path)
    }

    /// Copies the database as of now to a new directory, while writes go on. The copy is a
    /// database of its own. Returns its revision.
    ///
    /// # Errors
    /// `Storage` when the directory exists and is not empty, or cannot be written;
    /// `NotSupported` for a database without files.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<Revision> {
        self.check_open()?;
        if !self.core().has_files {
            return Err(Error::NotSupported {
                what: "a checkpoint of a database in memory",
                why: "it has no files to copy; copy its contents into a database that has",
            });
        }
        Ok(self.core().engine.checkpoint(path.as_ref())?)
    }

    /// Sizes and counts.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let core = self.core();
        Stats {
            revision: self.revision(),
            oldest_revision: self.oldest_revision(),
            leases: core.leases.list(core.clock.monotonic()).len() as u64,
            watchers: core.hub.watchers() as u64,
            kinds: core.kinds.all(),
            engine: core.engine.stats(),
        }
    }

    /// The random id given to the database at its creation.
    #[must_use]
    pub fn id(&self) -> u128 {
        self.core().engine.database_id()
    }

    /// Closes the database for every handle: waits for the round in progress, flushes, ends the
    /// background threads, releases the directory. Later calls answer `Closed`. Dropping the last
    /// handle does the same, but cannot tell of an error.
    pub fn close(&self) -> Result<()> {
        self.inner.close()
    }
}

impl DbInner {
    fn close(&self) -> Result<()> {
        let core = &self.core;
        core.is_closed.store(true, Ordering::Release);
        core.hub.close();
        {
            let _bell = core.lease_bell.lock();
            core.lease_rung.notify_all();
        }
        let thread = self.lease_thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the lease thread panicked");
        }
        Ok(core.engine.close()?)
    }
}

impl Drop for DbInner {
    fn drop(&mut self) {
        if self.is_owner
            && let Err(error) = self.close()
        {
            tracing::error!(%error, "closing the database failed; the next open recovers it");
        }
    }
}

/// Expires leases until the database is closed.
fn expire_loop(core: Arc<Core>) {
    const IDLE: Duration = Duration::from_secs(60);
    const RETRY_AFTER: Duration = Duration::from_secs(1);
    const PAUSE: Duration = Duration::from_millis(1);
    let inner = DbInner {
        core,
        lease_thread: Mutex::new(None),
        is_owner: false,
    };
    let db = Db {
        inner: Arc::new(inner),
    };
    let core = db.core();
    let mut pause = Duration::ZERO;
    loop {
        {
            let mut bell = core.lease_bell.lock();
            if core.is_closed.load(Ordering::Acquire) {
                return;
            }
            // Asked under the bell's lock: who grants a lease after this finds a waiter to wake.
            let next = core.leases.next_deadline(core.clock.monotonic());
            let wait = next.unwrap_or(IDLE).min(IDLE).max(pause);
            if !wait.is_zero() {
                core.lease_rung.wait_for(&mut bell, wait);
            }
        }
        pause = match db.expire_leases() {
            Ok(0) => Duration::ZERO,
            Ok(_) => PAUSE,
            Err(Error::Closed) => return,
            Err(error) => {
                tracing::error!(%error, "leases could not be expired; it is tried again");
                RETRY_AFTER
            }
        };
    }
}

/// A lease of 0 needs no guard.
pub(crate) fn lease_guard(lease: LeaseId) -> Vec<Guard> {
    if lease == 0 {
        Vec::new()
    } else {
        vec![Guard::Lease {
            id: lease,
            exists: true,
        }]
    }
}

pub(crate) fn check_key(key: &[u8], limits: &Limits) -> Result<()> {
    if key.is_empty() {
        return Err(Error::EmptyKey);
    }
    let (size, limit) = (key.len() as u64, limits.key_size_max_bytes);
    if size > limit {
        return Err(Error::KeyTooLarge { size, limit });
    }
    Ok(())
}

pub(crate) fn check_value(len: usize, limits: &Limits) -> Result<()> {
    let (size, limit) = (len as u64, limits.value_size_max_bytes);
    if size > limit {
        Err(Error::ValueTooLarge { size, limit })
    } else {
        Ok(())
    }
}
