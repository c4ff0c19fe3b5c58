//! A handle that reads: of a database that this process writes, or of one that a cluster writes.

use std::ops::Bound;
use std::time::Duration;

use bowline_storage::engine::{EngineStats, Found, ScanDirection, Want};
use bowline_storage::{EntryKind, Revision, Value};

use crate::check::{self, Check};
use crate::handle::Handle;
use crate::snapshot::Snapshot;
use crate::watcher::WatchBuilder;
use bowline_core::error::{Error, Result};
use bowline_core::kv::{Entry, Range, RangeIter, Version, order, record};
use bowline_core::lease::{Lease, LeaseId};
use bowline_core::state::{Core, check_key};
use bowline_core::trees;

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

/// Reads a database. [`Db`](crate::Db) has every method of it, too.
///
/// ```
/// # let db = bowline::Db::in_memory()?;
/// fn report(reader: &bowline::DbReader) -> bowline::Result<usize> {
///     Ok(reader.range("svc/".."svc0")?.count())
/// }
/// db.put("svc/api", "10.0.0.7")?;
/// assert_eq!(report(&db)?, 1);
/// # Ok::<(), bowline::Error>(())
/// ```
///
/// The database of a cluster's member is held by one: its members agree on writes, so there is no method to
/// write past them.
///
/// ```compile_fail,E0599
/// fn write(reader: &bowline::DbReader) {
///     reader.put("svc/api", "10.0.0.7");
/// }
/// ```
///
/// A clone is a handle to the same database; the last one that is dropped closes it.
#[derive(Debug, Clone)]
pub struct DbReader {
    handle: Handle,
}

impl DbReader {
    pub(crate) fn new(handle: Handle) -> DbReader {
        DbReader { handle }
    }

    /// The state behind the handle: for `bowline-replica`.
    #[doc(hidden)]
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.handle
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    // --- reading ---

    /// The newest committed revision. 1 for a new database.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.handle.engine.visible()
    }

    /// The oldest revision that [`DbReader::snapshot_at`] and [`DbReader::watch`] accept.
    #[must_use]
    pub fn oldest_revision(&self) -> Revision {
        self.handle.engine.history_floor()
    }

    /// The value of a key.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        self.handle.check_open()?;
        let mut value = Ok(None);
        self.handle.engine.read_newest(trees::KV, key, |found| {
            record::value_into(key, found, &mut value);
        })?;
        value
    }

    /// The value of a key with its create and modification revision, version and lease.
    pub fn entry(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>> {
        let key = key.as_ref();
        self.handle.check_open()?;
        self.handle
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
        self.handle.check_open()?;
        self.snapshot().range(range)
    }

    /// The database at the newest revision.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::newest(&self.handle)
    }

    /// The database at a revision of the past.
    ///
    /// # Errors
    /// `FutureRevision` and `Compacted`, with the bounds.
    pub fn snapshot_at(&self, revision: Revision) -> Result<Snapshot> {
        self.handle.check_open()?;
        let pin = self.handle.engine.pin_at(revision);
        let pin = pin.map_err(|error| crate::watcher::pin_error(revision, error))?;
        Ok(Snapshot::new(self.handle.clone(), pin))
    }

    /// Every change of a key that is still readable, newest first. Tells a key that was deleted
    /// from one that was never written.
    pub fn history(&self, key: impl AsRef<[u8]>) -> Result<Vec<Version>> {
        let key = key.as_ref();
        check_key(key, &self.handle.limits)?;
        self.handle.check_open()?;
        let engine = &self.handle.engine;
        let pin = engine.pin_newest();
        let mut versions = Vec::new();
        let mut failure = None;
        let bound = Bound::Included(key);
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

    // --- watching ---

    /// Watches the changes of a range; see [`Watcher`](crate::Watcher).
    pub fn watch(&self, range: impl Into<Range>) -> WatchBuilder {
        WatchBuilder::new(self.handle.clone(), range.into())
    }

    /// Waits until `revision` is committed and readable, at most for `timeout`; tells whether it is.
    /// One thread that waits here can serve many watchers with [`Watcher::poll`](crate::Watcher).
    ///
    /// # Errors
    /// `Closed` when the database was closed.
    pub fn wait_for_revision(&self, revision: Revision, timeout: Duration) -> Result<bool> {
        self.handle.check_open()?;
        let core = &self.handle;
        let is_there = || core.engine.visible() >= revision;
        if !is_there() {
            core.hub.wait(timeout, is_there);
            self.handle.check_open()?;
        }
        Ok(is_there())
    }

    // --- leases ---

    /// Every lease, by id.
    #[must_use]
    pub fn leases(&self) -> Vec<Lease> {
        let core = &self.handle;
        let mut leases = core.leases.list(core.clock().monotonic());
        leases.retain(|lease| self.has_lease_record(lease.id));
        leases
    }

    /// Whether a lease is there as far as can be seen: it goes with its keys, in the table of
    /// deadlines a moment later. When it cannot be read, the table decides.
    fn has_lease_record(&self, id: LeaseId) -> bool {
        let key = trees::lease_key(id);
        let is_put = |found: Option<Found<'_>>| found.is_some_and(|f| f.kind == EntryKind::Put);
        let read = self.handle.engine.read_newest(trees::SYSTEM, &key, is_put);
        read.unwrap_or(true)
    }

    /// One lease.
    #[must_use]
    pub fn lease(&self, id: LeaseId) -> Option<Lease> {
        let core = &self.handle;
        let lease = core.leases.get(id, core.clock().monotonic())?;
        self.has_lease_record(id).then_some(lease)
    }

    /// The keys attached to a lease.
    pub fn lease_keys(&self, id: LeaseId) -> Result<Vec<Value>> {
        self.handle.check_open()?;
        if !self.handle.leases.contains(id) {
            return Err(Error::LeaseNotFound { id });
        }
        let snapshot = self.snapshot();
        let prefix = trees::attachment_prefix(id);
        let upper = trees::prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
        let lower = Bound::Included(prefix.to_vec());
        let (engine, at) = (&self.handle.engine, snapshot.revision());
        let mut scan = engine.scan(trees::SYSTEM, lower, upper, at, ScanDirection::Forward);
        let mut keys = Vec::new();
        while scan.advance()? {
            keys.push(Value::copy_from(&scan.key()[prefix.len()..]));
        }
        Ok(keys)
    }

    // --- maintenance: what is read stays the same ---

    /// Writes memtables to tables and merges all tables now, on this thread. Reads and writes go
    /// on meanwhile.
    pub fn compact(&self) -> Result<()> {
        self.handle.check_open()?;
        Ok(self.handle.engine.compact_tables()?)
    }

    /// Writes memtables to tables now.
    ///
    /// # Errors
    /// `Closed`; `Storage` when the disk fails or is full.
    pub fn flush(&self) -> Result<()> {
        self.handle.check_open()?;
        Ok(self.handle.engine.flush()?)
    }

    /// Verifies every file and that keys, leases, blocks and both directions of every edge agree.
    /// Damage is listed in the result; an error is returned when the check itself cannot go on.
    pub fn check(&self) -> Result<Check> {
        self.handle.check_open()?;
        check::check_open(&self.handle)
    }

    // --- the database ---

    /// Sizes and counts.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let core = &self.handle;
        Stats {
            revision: self.revision(),
            oldest_revision: self.oldest_revision(),
            leases: core.leases.list(core.clock().monotonic()).len() as u64,
            watchers: core.hub.watchers() as u64,
            kinds: core.kinds.all(),
            engine: core.engine.stats(),
        }
    }

    /// The random id given to the database at its creation.
    #[must_use]
    pub fn id(&self) -> u128 {
        self.handle.engine.database_id()
    }

    /// Closes the database for every handle: waits for the commit group in progress, flushes, ends the
    /// background threads, releases the directory. Later calls return `Closed`. Dropping the last
    /// handle does the same, but cannot report an error.
    ///
    /// # Errors
    /// `Storage` when the disk fails or is full; the next opening recovers what was committed.
    pub fn close(&self) -> Result<()> {
        self.handle.close()
    }
}
