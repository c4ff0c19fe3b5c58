//! [`Transaction`]: reads of one snapshot and of the transaction's own writes, and one atomic commit.
//!
//! Concurrency control is optimistic (Kung and Robinson, "On Optimistic Methods for Concurrency Control",
//! TODS 1981): there are no locks; the commit checks that the read set is unchanged since the snapshot.
//!
//! | isolation | checked at commit | allows |
//! |---|---|---|
//! | serializable | keys read, absent keys read, ranges read | nothing: the commit order is a serial order |
//! | snapshot | keys written | write skew |
//!
//! Both levels also check integrity: an edge's blocks exist, a deleted block has no edges, a lease exists.
//! A blind write under serializable isolation never conflicts. A compare-and-swap checks only the revision
//! of its key.
//!
//! The first committer wins. The other transaction fails with [`Error::Conflict`] and changes nothing.

use std::collections::BTreeMap;

use bowline_storage::engine::Found;
use bowline_storage::{EntryKind, TreeId, Value};

use crate::commit_queue::{Committed, Request};
use crate::draft::{Draft, Drafting};
use crate::handle::Shared;
use crate::snapshot::Snapshot;
use crate::ticket::Ticket;
use bowline_core::error::Result;
use bowline_core::graph::{self, Block, BlockId, BlockRef, Edge, EdgeRef, KindId};
use bowline_core::kinds::Kinds;
use bowline_core::kv::{Entry, Range, RangeIter, record};
use bowline_core::lease::LeaseId;
use bowline_core::options::Isolation;
use bowline_core::state::{check_key, check_value};
use bowline_core::trees;
use bowline_core::write;
use bowline_core::write::mutation::Action;
use bowline_core::write::validate::Guard;
use bowline_types::{Expected, Revision};

/// A transaction. Rolled back when dropped without [`Transaction::commit`].
///
/// ```
/// # let db = bowline::Db::in_memory()?;
/// let mut tx = db.begin();
/// tx.put(b"k", b"v")?;
/// assert_eq!(tx.get(b"k")?.as_deref(), Some(&b"v"[..]), "it reads its own writes");
/// assert_eq!(db.get(b"k")?, None, "nobody else does");
/// let committed = tx.commit()?;
/// assert_eq!(db.entry(b"k")?.unwrap().mod_revision, committed.revision);
/// # Ok::<(), bowline::Error>(())
/// ```
///
/// Keys, blocks and edges change together:
///
/// ```
/// use bowline::{Block, BlockId, Edge};
/// # let db = bowline::Db::in_memory()?;
/// # let [app, old, new] = ["app", "old", "new"].map(BlockId::from_name);
/// # db.transact(|tx| {
/// #     tx.put_block(&Block::new(app, "package"))?;
/// #     tx.put_block(&Block::new(old, "package").attribute("name", "lib"))?;
/// #     tx.put_edge(&Edge::new(app, "depends_on", old))
/// # })?;
/// // Puts another library in the place of an old one.
/// db.transact(|tx| {
///     let attributes = tx.block(old)?.map(|block| block.attributes).unwrap_or_default();
///     tx.put_block(&Block { attributes, ..Block::new(new, "package") })?;
///     if let Some(edge) = tx.edge(app, "depends_on", old)? {
///         tx.delete_edge(app, "depends_on", old)?;
///         tx.put_edge(&Edge { target: new, ..edge })?;
///     }
///     tx.delete_block(old)?;
///     tx.put("replaced/old", "new")
/// })?;
/// assert!(db.snapshot().graph().edge(app, "depends_on", new)?.is_some());
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "its writes are lost unless it is committed"]
pub struct Transaction {
    snapshot: Snapshot,
    isolation: Isolation,
    draft: Draft,
}

impl Transaction {
    pub(crate) fn new(snapshot: Snapshot, isolation: Isolation) -> Transaction {
        Transaction {
            snapshot,
            isolation,
            draft: Draft::default(),
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        self.snapshot.handle()
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    pub(crate) fn draft(&self) -> &Draft {
        &self.draft
    }

    pub(crate) fn draft_mut(&mut self) -> &mut Draft {
        &mut self.draft
    }

    /// The revision that the transaction reads.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let revision = db.put("k", "v")?;
    /// assert_eq!(db.begin().snapshot_revision(), revision);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn snapshot_revision(&self) -> Revision {
        self.snapshot.revision()
    }

    /// The draft with its database and revision, for writing.
    pub(crate) fn drafting(&mut self) -> Drafting<'_> {
        Drafting {
            shared: self.snapshot.handle(),
            at: self.snapshot.revision(),
            draft: &mut self.draft,
        }
    }

    // --- keys and values ---

    /// The value of a key. Sees the transaction's writes.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let mut tx = db.begin();
    /// assert_eq!(tx.get("k")?, None);
    /// // That the key was absent is a part of the read set.
    /// db.put("k", "v")?;
    /// tx.put("copy", "nothing")?;
    /// assert!(matches!(tx.commit(), Err(bowline::Error::Conflict { .. })));
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidRecord`, `Storage` when the key cannot be read.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        match self.draft.own(trees::KV, key) {
            Some(Action::PutEntry { value, .. }) => return Ok(Some(value.clone())),
            Some(_) => return Ok(None),
            None => {}
        }
        self.draft.keys.push((trees::KV, key.to_vec()));
        self.snapshot.get(key)
    }

    /// The value of a key with its metadata. Sees the transaction's writes: a key written by it has the
    /// new value, but the revisions and version from before the write, or 0 for a new key.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let mut tx = db.begin();
    /// tx.put("k", "v")?;
    /// let entry = tx.entry("k")?.expect("an entry");
    /// assert_eq!(&entry.value[..], b"v");
    /// assert_eq!(entry.mod_revision, 0);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub fn entry(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Entry>> {
        let key = key.as_ref();
        let own = match self.draft.own(trees::KV, key) {
            Some(Action::PutEntry { value, lease }) => Some((value.clone(), *lease)),
            Some(_) => return Ok(None),
            None => None,
        };
        self.draft.keys.push((trees::KV, key.to_vec()));
        let before = self.snapshot.entry(key)?;
        Ok(match own {
            None => before,
            Some((value, lease)) => Some(own_entry(key, value, lease, before)),
        })
    }

    /// The entries of a range in key order, with the transaction's writes. The iterator is double-ended.
    /// The whole range counts as read.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("a", "")?;
    /// let mut tx = db.begin();
    /// tx.put("b", "")?;
    /// let keys: Vec<_> = tx.range("a".."c")?.map(|entry| Ok(entry?.key)).collect::<bowline::Result<_>>()?;
    /// assert_eq!(keys, [b"a", b"b"]);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidRange` when the range ends before it starts. Each entry may be a read error.
    pub fn range(&mut self, range: impl Into<Range>) -> Result<TransactionRange> {
        let range = range.into().validate()?;
        let ranges = &mut self.draft.ranges;
        ranges.push((trees::KV, range.lower.clone(), range.upper.clone()));
        let mut own = BTreeMap::new();
        for (key, action) in self.draft.kv_writes() {
            if range.contains(key) {
                let entry = match action {
                    Action::PutEntry { value, lease } => {
                        Some(own_entry(key, value.clone(), *lease, None))
                    }
                    _ => None,
                };
                own.insert(Value::copy_from(key), entry);
            }
        }
        let base = self.snapshot.range(range)?;
        Ok(TransactionRange {
            base,
            own,
            front: None,
            back: None,
        })
    }

    /// Sets a key.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let mut tx = db.begin();
    /// tx.put("a", "1")?;
    /// tx.put("b", "2")?;
    /// let committed = tx.commit()?;
    /// assert_eq!(db.entry("a")?.expect("an entry").mod_revision, committed.revision);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `EmptyKey`, `KeyTooLarge`, `ValueTooLarge`, `TransactionTooLarge`.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_entry(key.as_ref(), value.as_ref(), None)
    }

    /// Sets a key and attaches it to a lease. The commit fails with `LeaseNotFound` when
    /// the lease does not exist.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let lease = db.grant_lease(std::time::Duration::from_secs(10))?;
    /// db.transact(|tx| tx.put_with_lease("svc/api", "10.0.0.7", lease))?;
    /// assert_eq!(db.lease_keys(lease)?.count(), 1);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::put`].
    pub fn put_with_lease(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        lease: LeaseId,
    ) -> Result<()> {
        self.put_entry(key.as_ref(), value.as_ref(), Some(lease))
    }

    fn put_entry(&mut self, key: &[u8], value: &[u8], lease: Option<LeaseId>) -> Result<()> {
        let limits = &self.shared().limits;
        check_key(key, limits)?;
        check_value(value.len(), limits)?;
        let action = Action::PutEntry {
            value: Value::copy_from(value),
            lease,
        };
        self.drafting().write(trees::KV, key.to_vec(), action)
    }

    /// Deletes a key; returns whether it was present. Counts as a read of the key.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let mut tx = db.begin();
    /// tx.put("k", "v")?;
    /// assert!(tx.delete("k")? && !tx.delete("k")?);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `EmptyKey`, `KeyTooLarge`, `TransactionTooLarge`; those of [`Transaction::get`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        check_key(key, &self.shared().limits)?;
        let is_present = self.get(key)?.is_some();
        self.drafting()
            .write(trees::KV, key.to_vec(), Action::Delete)?;
        Ok(is_present)
    }

    /// Deletes every key of a range; returns their number. The whole range counts as read.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let mut tx = db.begin();
    /// tx.put("a1", "x")?;
    /// tx.put("a2", "y")?;
    /// assert_eq!(tx.range("a".."b")?.count(), 2);
    /// assert_eq!(tx.delete_range("a".."b")?, 2);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidRange`, `TransactionTooLarge`; `InvalidRecord`, `Storage`.
    pub fn delete_range(&mut self, range: impl Into<Range>) -> Result<u64> {
        let entries = self.range(range)?;
        self.drafting().together(|draft| {
            let mut count = 0;
            for entry in entries {
                draft.write(trees::KV, entry?.key.to_vec(), Action::Delete)?;
                count += 1;
            }
            Ok(count)
        })
    }

    /// Sets a key if it is as expected at the commit; otherwise the commit fails with
    /// [`Error::CompareFailed`](crate::Error::CompareFailed). Does not count as a read.
    ///
    /// ```
    /// # use bowline::{Error, Expected};
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("leader", "a")?;
    /// let result = db.transact(|tx| tx.compare_and_swap("leader", Expected::Absent, "b"));
    /// assert!(matches!(result, Err(Error::CompareFailed { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Transaction::put`].
    pub fn compare_and_swap(
        &mut self,
        key: impl AsRef<[u8]>,
        expected: Expected,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.put(key.as_ref(), value)?;
        self.expect(key, expected)
    }

    /// Makes the commit depend on a key that is not written, for example on a lock (fencing). When the key
    /// is not as expected at the commit, it fails with `CompareFailed`. Does not count as a read.
    ///
    /// ```
    /// # use bowline::Expected;
    /// # let db = bowline::Db::in_memory()?;
    /// let lock = db.put("lock", "me")?;
    /// db.transact(|tx| {
    ///     tx.expect("lock", Expected::Revision(lock))?;
    ///     tx.put("state", "written under the lock")
    /// })?;
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `EmptyKey`, `KeyTooLarge`.
    pub fn expect(&mut self, key: impl AsRef<[u8]>, expected: Expected) -> Result<()> {
        check_key(key.as_ref(), &self.shared().limits)?;
        let guard = Guard::Revision {
            key: key.as_ref().to_vec(),
            expected: expected.mod_revision(),
        };
        self.draft.guards.push(guard);
        Ok(())
    }

    // --- the graph ---

    /// Reads a record of a graph tree. Sees the transaction's writes.
    fn get_raw<R>(
        &mut self,
        tree: TreeId,
        key: &[u8],
        read: impl FnOnce(&Kinds, Option<&[u8]>) -> R,
    ) -> Result<R> {
        let shared: &Shared = self.snapshot.handle();
        match self.draft.own(tree, key) {
            Some(Action::PutRaw { value }) => return Ok(read(&shared.kinds, Some(value))),
            Some(_) => return Ok(read(&shared.kinds, None)),
            None => {}
        }
        self.draft.keys.push((tree, key.to_vec()));
        let at = self.snapshot.revision();
        Ok(shared.engine.read_at(tree, key, at.get(), |found| {
            let put = found.as_ref().filter(|f| f.kind == EntryKind::Put);
            read(&shared.kinds, put.map(Found::bytes))
        })?)
    }

    /// The number of an edge's kind. An unregistered kind counts as a read of the absent edge: another
    /// transaction may register the kind and put the edge.
    pub(crate) fn kind_of(
        &mut self,
        source: BlockId,
        kind: &str,
        target: BlockId,
    ) -> Result<Option<KindId>> {
        let id = self.shared().kinds.id(kind);
        if id.is_none() {
            let edge = (source, kind.to_owned(), target);
            self.draft.unregistered.push(edge);
        }
        Ok(id)
    }

    /// Reads a block. Sees the transaction's writes.
    ///
    /// # Errors
    /// `InvalidRecord`, `Storage`.
    pub fn block(&mut self, id: BlockId) -> Result<Option<Block>> {
        self.visit_block(id, |block| block.to_block())
    }

    /// Calls `visit` with the borrowed block.
    pub(crate) fn visit_block<R>(
        &mut self,
        id: BlockId,
        visit: impl FnOnce(BlockRef<'_>) -> R,
    ) -> Result<Option<R>> {
        let found = self.get_raw(trees::BLOCK, &graph::block_key(id), |kinds, bytes| {
            bytes.map(|bytes| crate::graph_view::lend_block(kinds, id, bytes, visit))
        })?;
        found.transpose()
    }

    /// Reads an edge. Sees the transaction's writes.
    ///
    /// # Errors
    /// `InvalidRecord`, `Storage`.
    pub fn edge(&mut self, source: BlockId, kind: &str, target: BlockId) -> Result<Option<Edge>> {
        self.visit_edge(source, kind, target, |edge| edge.to_edge())
    }

    /// Calls `visit` with the borrowed edge.
    pub(crate) fn visit_edge<R>(
        &mut self,
        source: BlockId,
        kind: &str,
        target: BlockId,
        visit: impl FnOnce(EdgeRef<'_>) -> R,
    ) -> Result<Option<R>> {
        let Some(kind_id) = self.kind_of(source, kind, target)? else {
            return Ok(None);
        };
        let key = graph::edge_out_key(source, kind_id, target);
        let found = self.get_raw(trees::EDGE_OUT, &key, |_, bytes| {
            let lend = |bytes| crate::graph_view::lend_edge(source, kind, target, &key, bytes);
            bytes.map(|bytes| lend(bytes).map(visit))
        })?;
        found.transpose()
    }

    /// Creates or replaces a block. Its edges stay.
    ///
    /// ```
    /// # use bowline::{Block, BlockId};
    /// # let db = bowline::Db::in_memory()?;
    /// let id = BlockId::from_name("app");
    /// let mut tx = db.begin();
    /// tx.put_block(&Block::new(id, "package").attribute("name", "app"))?;
    /// assert!(tx.block(id)?.is_some());
    /// assert!(tx.delete_block(id)?);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidKind`, `ValueTooLarge`, `TransactionTooLarge`.
    pub fn put_block(&mut self, block: &Block) -> Result<()> {
        write::graph::put_block(&mut self.drafting(), block)
    }

    /// Deletes a block and all its edges. Returns `false` when the block does not exist.
    ///
    /// # Errors
    /// `TransactionTooLarge`; `Storage`.
    pub fn delete_block(&mut self, id: BlockId) -> Result<bool> {
        let delete = |target: &mut Drafting<'_>| write::graph::delete_block(target, id);
        self.drafting().together(delete)
    }

    /// Creates or replaces an edge. Both blocks must exist, in the database or in this transaction; the
    /// commit checks this again.
    ///
    /// ```
    /// # use bowline::{Block, BlockId, Edge};
    /// # let db = bowline::Db::in_memory()?;
    /// let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
    /// let mut tx = db.begin();
    /// tx.put_block(&Block::new(app, "package"))?;
    /// tx.put_block(&Block::new(lib, "package"))?;
    /// tx.put_edge(&Edge::new(app, "depends_on", lib))?;
    /// assert!(tx.edge(app, "depends_on", lib)?.is_some());
    /// assert!(tx.delete_edge(app, "depends_on", lib)?);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `MissingBlock`, `InvalidKind`, `ValueTooLarge`, `TransactionTooLarge`.
    pub fn put_edge(&mut self, edge: &Edge) -> Result<()> {
        let put = |target: &mut Drafting<'_>| write::graph::put_edge(target, edge);
        self.drafting().together(put)
    }

    /// Deletes an edge. Returns `false` when the edge does not exist.
    ///
    /// # Errors
    /// `TransactionTooLarge`; `Storage`.
    pub fn delete_edge(&mut self, source: BlockId, kind: &str, target: BlockId) -> Result<bool> {
        let Some(kind) = self.kind_of(source, kind, target)? else {
            return Ok(false);
        };
        let delete =
            |draft: &mut Drafting<'_>| write::graph::delete_edge(draft, source, kind, target);
        self.drafting().together(delete)
    }

    // --- the end ---

    /// Commits all writes at one new revision, or none on an error. Returns when the commit is durable. A
    /// transaction without writes takes no new revision.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let mut tx = db.begin();
    /// tx.put("k", "v")?;
    /// let committed = tx.commit()?;
    /// assert!(committed.changed);
    /// assert_eq!(db.revision(), committed.revision);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Conflict` when another commit changed the read set, or, under snapshot isolation, a written key;
    /// `CompareFailed`, `MissingBlock`, `LeaseNotFound` when a precondition does not hold;
    /// `TransactionTooLarge`; `Closed`; `Storage` when the disk fails or is full.
    pub fn commit(self) -> Result<Committed> {
        let snapshot = self.snapshot;
        match Transaction::request(&snapshot, self.draft, self.isolation) {
            Ok(request) => snapshot.handle().commit(request),
            Err(nothing) => Ok(nothing),
        }
    }

    /// Puts the commit into the order of commits.
    pub(crate) fn commit_later(self) -> Result<Ticket> {
        let snapshot = self.snapshot;
        let handle = snapshot.handle();
        match Transaction::request(&snapshot, self.draft, self.isolation) {
            Ok(mut request) => {
                request.pin = Some(snapshot.pin());
                Ticket::of(handle, request)
            }
            Err(nothing) => Ok(Ticket::of_nothing(handle, nothing)),
        }
    }

    /// What is to be committed, or the outcome of a transaction that only reads.
    fn request(
        snapshot: &Snapshot,
        draft: Draft,
        isolation: Isolation,
    ) -> std::result::Result<Request, Committed> {
        let revision = snapshot.revision();
        if draft.is_read_only() {
            // All reads were of one snapshot: equivalent to a commit at its revision.
            return Err(Committed {
                revision,
                deleted: 0,
                changed: false,
            });
        }
        Ok(draft.into_request(snapshot.handle(), revision, isolation))
    }

    /// Discards the transaction. Dropping it does the same.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let mut tx = db.begin();
    /// tx.put("k", "v")?;
    /// tx.rollback();
    /// assert_eq!(db.get("k")?, None);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    pub fn rollback(self) {}
}

fn own_entry(key: &[u8], value: Value, lease: Option<LeaseId>, before: Option<Entry>) -> Entry {
    let meta = before.map(|entry| record::Meta {
        create_revision: entry.create_revision,
        mod_revision: entry.mod_revision,
        version: entry.version,
        lease,
    });
    record::Meta {
        lease,
        ..meta.unwrap_or_default()
    }
    .entry(key, value)
}

/// The entries of a range with the transaction's writes. Made by [`Transaction::range`].
///
/// ```
/// # let db = bowline::Db::in_memory()?;
/// db.put("jobs/1", "old")?;
/// db.put("jobs/2", "")?;
/// let mut tx = db.begin();
/// tx.put("jobs/1", "new")?;
/// tx.delete("jobs/2")?;
/// tx.put("jobs/3", "")?;
///
/// let mut jobs: bowline::TransactionRange = tx.range(bowline::Range::prefix("jobs/"))?;
/// assert_eq!(jobs.next().expect("an entry")?.value, b"new");
/// assert_eq!(jobs.next_back().expect("an entry")?.key, b"jobs/3");
/// assert!(jobs.next().is_none(), "the transaction deletes jobs/2");
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug)]
pub struct TransactionRange {
    base: RangeIter,
    own: BTreeMap<Value, Option<Entry>>,
    front: Option<Entry>,
    back: Option<Entry>,
}

impl TransactionRange {
    fn step(&mut self, forward: bool) -> Option<Result<Entry>> {
        loop {
            // The next entry of the snapshot from this end, kept until it is due. When the snapshot
            // is exhausted, the entry kept at the other end is the last one.
            let (near, far) = if forward {
                (&mut self.front, &mut self.back)
            } else {
                (&mut self.back, &mut self.front)
            };
            if near.is_none() {
                let next = if forward {
                    self.base.next()
                } else {
                    self.base.next_back()
                };
                *near = match next.transpose() {
                    Ok(next) => next.or_else(|| far.take()),
                    Err(error) => return Some(Err(error)),
                };
            }
            let own = if forward {
                self.own.first_key_value()
            } else {
                self.own.last_key_value()
            };
            let takes_own = match (&near, own) {
                (None, None) => return None,
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (Some(base), Some((key, _))) if forward => *key <= base.key,
                (Some(base), Some((key, _))) => *key >= base.key,
            };
            if !takes_own {
                return near.take().map(Ok);
            }
            let own = if forward {
                self.own.pop_first()
            } else {
                self.own.pop_last()
            };
            let (key, entry) = own?;
            let mut before = None;
            if near.as_ref().is_some_and(|base| base.key == key) {
                before = near.take();
            }
            if let Some(entry) = entry {
                let Entry { value, lease, .. } = entry;
                return Some(Ok(own_entry(&key, value, lease, before)));
            }
        }
    }
}

impl Iterator for TransactionRange {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl DoubleEndedIterator for TransactionRange {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}
