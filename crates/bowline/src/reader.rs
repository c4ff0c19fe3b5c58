//! [`DbReader`]: the read-only handle of a database, also of one that a cluster writes.

use std::cmp::Reverse;
use std::ops::{Bound, ControlFlow};
use std::time::Duration;

use bowline_query::PlanFigures;
use bowline_storage::blob::HEAD_BYTES;
use bowline_storage::engine::{EngineStats, Found, Next, SuperVersion, Want};
use bowline_storage::sync::Instant;
use bowline_storage::{EntryKind, Value};
use bowline_types::Revision;

use crate::check::{self, Check};
use crate::handle::Handle;
use crate::snapshot::Snapshot;
use crate::watcher::WatchBuilder;
use bowline_core::error::{Error, Result};
use bowline_core::graph::csr::GraphViewStats;
use bowline_core::kv::author::{self, Author};
use bowline_core::kv::{Entry, LeaseKeys, Range, RangeIter, Version, order, record};
use bowline_core::lease::{Lease, LeaseId};
use bowline_core::state::{Core, check_key};
use bowline_core::trees;

/// Sizes and counts of a database. Made by [`DbReader::stats`].
///
/// ```
/// # let db = bowline::Db::in_memory()?;
/// let stats = db.stats();
/// assert_eq!(stats.revision, 1);
/// assert_eq!(stats.watchers, 0);
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Stats {
    /// The newest revision.
    pub revision: Revision,
    /// The oldest readable revision.
    pub oldest_revision: Revision,
    /// The number of leases.
    pub leases: u64,
    /// The number of watchers.
    pub watchers: u64,
    /// The names of block and edge kinds.
    pub kinds: Vec<String>,
    /// The graph view.
    pub graph_view: GraphViewStats,
    /// Plans of queries that are held for the next query of their text.
    pub plans: PlanFigures,
    /// The statistics of the storage engine.
    pub engine: EngineStats,
}

/// A handle that reads a database. [`Db`](crate::Db) dereferences to it.
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
/// A cluster member holds its database by a `DbReader`. It has no method that writes, because the members
/// must agree on every write.
///
/// ```compile_fail,E0599
/// fn write(reader: &bowline::DbReader) {
///     reader.put("svc/api", "10.0.0.7");
/// }
/// ```
///
/// A clone is a handle of the same database. Dropping the last handle closes the database.
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
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// assert_eq!(db.revision(), 1);
    /// assert_eq!(db.put("k", "v")?, 2);
    /// assert!(db.oldest_revision() <= db.revision());
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn revision(&self) -> Revision {
        Revision::new(self.handle.engine.visible())
    }

    /// The oldest revision that [`DbReader::snapshot_at`] and [`DbReader::watch`] accept.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let oldest = db.oldest_revision();
    /// assert_eq!(db.snapshot_at(oldest)?.revision(), oldest);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn oldest_revision(&self) -> Revision {
        Revision::new(self.handle.engine.history_floor())
    }

    /// The newest value of a key.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("k", "v")?;
    /// assert_eq!(db.get("k")?.as_deref(), Some(&b"v"[..]));
    /// assert_eq!(db.get("absent")?, None);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed`; `InvalidRecord`, `Storage` when the key cannot be read.
    #[inline(always)]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        self.handle.check_open()?;
        // As in `Snapshot::get`.
        let mut value = Ok(None);
        let read = self.handle.engine.read_newest(trees::KV, key, |found| {
            record::value_into(key, found, &mut value);
        });
        if let Err(error) = read {
            value = Err(error.into());
        }
        value
    }

    /// The newest value of a key with its create and modification revision, version and lease.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let created = db.put("k", "v")?;
    /// let modified = db.put("k", "w")?;
    /// let entry = db.entry("k")?.expect("an entry");
    /// assert_eq!((entry.create_revision, entry.mod_revision, entry.version), (created, modified, 2));
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`DbReader::get`].
    pub fn entry(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>> {
        let key = key.as_ref();
        self.handle.check_open()?;
        self.handle
            .engine
            .read_newest(trees::KV, key, |found| record::entry_of(key, found))?
    }

    /// The entries of a range at the newest revision, in key order. The iterator is double-ended.
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
    /// `InvalidRange` when the range ends before it starts; `Closed`. Each entry may be a read error.
    pub fn range(&self, range: impl Into<Range>) -> Result<RangeIter> {
        self.handle.check_open()?;
        self.snapshot().range(range)
    }

    /// A snapshot of the newest revision.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("k", "v")?;
    /// let snapshot = db.snapshot();
    /// db.put("k", "w")?;
    /// assert_eq!(snapshot.get("k")?.as_deref(), Some(&b"v"[..]));
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::newest(&self.handle)
    }

    /// A snapshot of an older revision.
    ///
    /// ```
    /// # use bowline::{Db, Durability, History};
    /// # let db = Db::builder().durability(Durability::Memory).history(History::All).open("memory")?;
    /// let old = db.put("k", "old")?;
    /// db.put("k", "new")?;
    /// assert_eq!(db.snapshot_at(old)?.get("k")?.as_deref(), Some(&b"old"[..]));
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `FutureRevision` and `Compacted`, with the readable bounds; `Closed`.
    pub fn snapshot_at(&self, revision: Revision) -> Result<Snapshot> {
        self.handle.check_open()?;
        let pin = self.handle.engine.pin_at(revision.get());
        let pin = pin.map_err(|error| crate::watcher::pin_error(revision, error))?;
        Ok(Snapshot::new(self.handle.clone(), pin))
    }

    /// The readable changes of a key, newest first. A deletion is a version without an entry, so a deleted
    /// key differs from a key that was never written.
    ///
    /// ```
    /// # use bowline::{Db, Durability, History};
    /// # let db = Db::builder().durability(Durability::Memory).history(History::All).open("memory")?;
    /// db.put("k", "v")?;
    /// db.delete("k")?;
    /// let versions = db.history("k")?;
    /// assert!(versions[0].entry.is_none() && versions[1].entry.is_some());
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `EmptyKey`, `KeyTooLarge`; `Closed`; `InvalidRecord`, `Storage`.
    pub fn history(&self, key: impl AsRef<[u8]>) -> Result<Vec<Version>> {
        let mut versions = Vec::new();
        let all: ControlFlow<()> = self.visit_history(key, |version| {
            versions.push(version);
            ControlFlow::Continue(())
        })?;
        debug_assert!(all.is_continue());
        Ok(versions)
    }

    /// Who has made a revision, and when. Only clusters whose authentication is enabled note it; it goes away with the history.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let revision = db.put("k", "v")?;
    /// assert_eq!(db.author(revision)?, None);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed`; `InvalidRecord`, `Storage`.
    pub fn author(&self, revision: Revision) -> Result<Option<Author>> {
        self.handle.check_open()?;
        author::of_revision(&self.handle.engine, revision)
    }

    /// [`DbReader::history`], one version at a time: a few of the values are in memory at once, however many
    /// there are. `visit` decides whether to go on.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("k", "v")?;
    /// db.put("k", "w")?;
    /// let newest = db.visit_history("k", ControlFlow::Break)?;
    /// assert_eq!(newest.break_value().and_then(|version| version.entry).expect("an entry").value, b"w");
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`DbReader::history`]. The versions before it were visited.
    pub fn visit_history<B>(
        &self,
        key: impl AsRef<[u8]>,
        mut visit: impl FnMut(Version) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>> {
        /// The values that are in memory at once.
        const PART_BYTES: usize = 256 << 10;
        /// What a large value counts, of which the first bytes are known.
        const LARGE_BYTES: usize = 64 << 10;
        let key = key.as_ref();
        check_key(key, &self.handle.limits)?;
        self.handle.check_open()?;
        let engine = &self.handle.engine;
        let pin = engine.pin_newest();
        let mut found: Vec<(Revision, usize)> = Vec::new();
        let bound = Bound::Included(key);
        let span = (0, pin.revision());
        let sources = engine.super_version();
        let mut note = |_: &[u8], revision, _, bytes: &[u8]| {
            let bytes = match bytes.len() == HEAD_BYTES {
                true => LARGE_BYTES,
                false => bytes.len(),
            };
            found.push((Revision::new(revision), bytes));
            Next::All
        };
        sources.for_each_version(trees::KV, bound, bound, span, Want::Head, &mut note)?;
        found.sort_unstable_by_key(|(revision, _)| Reverse(*revision));
        found.dedup_by_key(|(revision, _)| *revision);
        let mut rest = &found[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let part = rest.iter().take_while(|(_, more)| {
                let is_within = bytes < PART_BYTES;
                bytes += more;
                is_within
            });
            let (part, later) = rest.split_at(part.count());
            rest = later;
            let revisions = part.iter().rev().map(|(revision, _)| *revision);
            let revisions: Vec<Revision> = revisions.collect();
            let versions = self.versions_of(key, &revisions, &sources)?;
            // A reader at the floor sees the newest version at or below it. Older versions are not
            // history: a merge may drop them at any time, also what was overwritten within a revision.
            // The floor may rise until they are read.
            let floor = engine.history_floor();
            for version in versions {
                let is_last = version.revision <= floor;
                if let ControlFlow::Break(value) = visit(version) {
                    return Ok(ControlFlow::Break(value));
                }
                if is_last {
                    return Ok(ControlFlow::Continue(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The changes of a key at all its revisions from the first to the last of these, newest first.
    fn versions_of(
        &self,
        key: &[u8],
        revisions: &[Revision],
        sources: &SuperVersion,
    ) -> Result<Vec<Version>> {
        let (Some(first), Some(last)) = (revisions.first(), revisions.last()) else {
            return Ok(Vec::new());
        };
        let engine = &self.handle.engine;
        let mut versions = Vec::new();
        let mut failure = None;
        let bound = Bound::Included(key);
        let span = (first.get(), last.get());
        let mut visit = |_: &[u8], revision, kind, bytes: &[u8]| {
            let revision = Revision::new(revision);
            let entry = match kind {
                EntryKind::Delete => None,
                EntryKind::Put => match record::entry_of_version(key, revision, bytes, sources) {
                    Ok(entry) => Some(entry),
                    Err(error) => {
                        failure = Some(error);
                        return Next::Nothing;
                    }
                },
            };
            versions.push(Version { revision, entry });
            Next::All
        };
        sources.for_each_version(trees::KV, bound, bound, span, Want::Whole, &mut visit)?;
        if let Some(error) = failure {
            return Err(error);
        }
        versions.sort_by_key(|version| Reverse(version.revision));
        versions.dedup_by_key(|version| version.revision);
        let mut earlier: Vec<Version> = Vec::new();
        order::for_each(engine, revisions, |_, order| {
            let from = earlier.len();
            earlier.extend(order.earlier(key).map(Version::of));
            earlier[from..].reverse();
            Ok(())
        })?;
        versions.append(&mut earlier);
        versions.sort_by_key(|version| Reverse(version.revision));
        Ok(versions)
    }

    // --- watching ---

    /// Describes a watch of a range, for [`WatchBuilder::start`]; see [`Watcher`](crate::Watcher).
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let mut watch = db.watch(bowline::Range::prefix("svc/")).start()?;
    /// db.put("svc/api", "10.0.0.7")?;
    /// assert_eq!(&watch.recv()?.changes[0].entry.key[..], b"svc/api");
    /// # Ok::<(), bowline::Error>(())
    /// ```
    pub fn watch(&self, range: impl Into<Range>) -> WatchBuilder {
        WatchBuilder::new(self.handle.clone(), range.into())
    }

    /// Waits until `revision` is committed and readable, at most for `timeout`; returns whether it is. One
    /// waiting thread can serve many watchers with [`Watcher::try_recv`](crate::Watcher::try_recv).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let db = bowline::Db::in_memory()?;
    /// let revision = db.put("k", "v")?;
    /// assert!(db.wait_for_revision(revision, Duration::from_secs(1))?);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed` when the database was closed.
    pub fn wait_for_revision(&self, revision: Revision, timeout: Duration) -> Result<bool> {
        self.handle.check_open()?;
        let core = &self.handle;
        let is_there = || core.engine.visible() >= revision.get();
        let deadline = Instant::now().checked_add(timeout);
        // Each commit wakes all waiters, also those of a later revision.
        while !is_there() {
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => Duration::MAX,
            };
            if left.is_zero() {
                return Ok(false);
            }
            core.hub.wait(left, is_there);
            self.handle.check_open()?;
        }
        Ok(true)
    }

    // --- leases ---

    /// All leases, sorted by id.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let id = db.grant_lease(std::time::Duration::from_secs(10))?;
    /// assert_eq!(db.leases().iter().map(|lease| lease.id).collect::<Vec<_>>(), [id]);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn leases(&self) -> Vec<Lease> {
        let core = &self.handle;
        let mut leases = core.leases.list(core.clock().monotonic());
        leases.retain(|lease| self.has_lease_record(lease.id));
        leases
    }

    /// Whether the lease's record is visible. The record is deleted with the lease's keys, and the entry in
    /// the table of deadlines a moment later. When the record cannot be read, the table decides.
    fn has_lease_record(&self, id: LeaseId) -> bool {
        let key = trees::lease_key(id);
        let is_put = |found: Option<Found<'_>>| found.is_some_and(|f| f.kind == EntryKind::Put);
        let read = self.handle.engine.read_newest(trees::SYSTEM, &key, is_put);
        read.unwrap_or(true)
    }

    /// A lease, or `None` when it does not exist.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let ttl = std::time::Duration::from_secs(10);
    /// let id = db.grant_lease(ttl)?;
    /// let lease = db.lease(id).expect("it is alive");
    /// assert!(lease.ttl == ttl && lease.remaining <= ttl);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn lease(&self, id: LeaseId) -> Option<Lease> {
        let core = &self.handle;
        let lease = core.leases.get(id, core.clock().monotonic())?;
        self.has_lease_record(id).then_some(lease)
    }

    /// The keys attached to a lease, in order, as of now.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let lease = db.grant_lease(std::time::Duration::from_secs(10))?;
    /// db.put_with_lease("k", "v", lease)?;
    /// assert_eq!(db.lease_keys(lease)?.collect::<bowline::Result<Vec<_>>>()?, [b"k"]);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `LeaseNotFound`, `Closed`. Each key may be a read error.
    pub fn lease_keys(&self, id: LeaseId) -> Result<LeaseKeys> {
        self.handle.check_open()?;
        match self.handle.leases.contains(id) {
            true => Ok(LeaseKeys::new(&self.handle.engine, id)),
            false => Err(Error::LeaseNotFound { id }),
        }
    }

    // --- maintenance that does not change the content ---

    /// Flushes the memtables and merges all tables on this thread. Reads and writes go on meanwhile.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("k", "v")?;
    /// db.flush()?;
    /// db.compact()?;
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed`; `Storage` when the disk fails or is full.
    pub fn compact(&self) -> Result<()> {
        self.handle.check_open()?;
        self.handle.compact()
    }

    /// Writes the memtables to tables.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("k", "v")?;
    /// db.flush()?;
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed`; `Storage` when the disk fails or is full.
    pub fn flush(&self) -> Result<()> {
        self.handle.check_open()?;
        Ok(self.handle.engine.flush()?)
    }

    /// Verifies every file, and the consistency of keys, leases, blocks and both directions of every edge.
    /// Damage is listed in the result.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("k", "v")?;
    /// assert!(db.check()?.is_clean());
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed`; `Storage` when the check cannot go on.
    pub fn check(&self) -> Result<Check> {
        self.handle.check_open()?;
        check::check_open(&self.handle)
    }

    /// Builds the graph view now, unless it is there, and returns whether it is ready: not when the graph does
    /// not fit into [`DbBuilder::graph_view_bytes`](crate::DbBuilder::graph_view_bytes).
    ///
    /// The view makes traversals many times faster. Without this call it is built in the background once
    /// queries have read some thousand blocks, except with [`Background::Manual`](crate::Background). Every
    /// commit changes it; answers do not depend on it.
    ///
    /// ```
    /// # use bowline::{Block, BlockId, Direction, Edge};
    /// # let db = bowline::Db::in_memory()?;
    /// # let (a, b) = (BlockId::from_name("a"), BlockId::from_name("b"));
    /// db.transact(|tx| {
    ///     tx.put_block(&Block::new(a, "host"))?;
    ///     tx.put_block(&Block::new(b, "host"))?;
    ///     tx.put_edge(&Edge::new(a, "link", b))
    /// })?;
    /// assert!(db.build_graph_view()?);
    /// assert_eq!(db.stats().graph_view.edges, 1);
    /// assert_eq!(db.snapshot().graph().neighbors(a, Direction::Out, ["link"])?.len(), 1);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed`; `InvalidRecord`, `Storage` when the graph cannot be read.
    pub fn build_graph_view(&self) -> Result<bool> {
        let handle = &self.handle;
        handle.check_open()?;
        let is_ready = handle.build_view(|_| handle.begin_view())?;
        if is_ready && handle.graph_view.is_save_due() {
            handle.save_view();
        }
        Ok(is_ready)
    }

    // --- the database ---

    /// Sizes and counts of the database.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let revision = db.put("k", "v")?;
    /// assert_eq!(db.stats().revision, revision);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        let core = &self.handle;
        Stats {
            revision: self.revision(),
            oldest_revision: self.oldest_revision(),
            leases: core.leases.list(core.clock().monotonic()).len() as u64,
            watchers: core.hub.watchers() as u64,
            kinds: core.kinds.all(),
            graph_view: core.graph_view.status(),
            plans: core.plans.figures(),
            engine: core.engine.stats(),
        }
    }

    /// Bytes of tables, blob files and memtables: the size of the database without its log. Cheaper than
    /// [`stats`](DbReader::stats).
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("k", [0; 1_000])?;
    /// assert!(db.data_bytes() >= 1_000);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.handle.engine.data_bytes()
    }

    /// The random id of the database, chosen at its creation.
    ///
    /// ```
    /// # let (db, other) = (bowline::Db::in_memory()?, bowline::Db::in_memory()?);
    /// assert_ne!(db.id(), other.id());
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> u128 {
        self.handle.engine.database_id()
    }

    /// Closes the database for every handle: waits for the commit group in progress, flushes, ends the
    /// background threads, releases the directory. Later calls return `Closed`. Dropping the last handle
    /// does the same, but cannot report an error.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.close()?;
    /// assert!(matches!(db.get("k"), Err(bowline::Error::Closed)));
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Storage` when the disk fails or is full; the next open recovers all commits.
    pub fn close(&self) -> Result<()> {
        self.handle.close()
    }
}
