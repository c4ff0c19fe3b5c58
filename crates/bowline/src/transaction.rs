//! A transaction: one snapshot to read, its own writes on top, one atomic commit.
//!
//! Optimistic (Kung and Robinson, "On Optimistic Methods for Concurrency Control", TODS 1981):
//! nothing is locked; at commit everything it read must be unchanged since its snapshot.
//!
//! | isolation | checked at commit | allows |
//! |---|---|---|
//! | serializable | keys read, absent keys read, ranges read | nothing: equivalent to some serial order, the commit order |
//! | snapshot | keys written | write skew |
//!
//! In both, what keeps the data whole is checked too: an edge's blocks exist, a deleted block has
//! no edges left, a lease exists. A blind write under serializable isolation never conflicts, and
//! a compare-and-swap checks only its own key's revision.
//!
//! The first to commit wins; the other gets [`Error::Conflict`] and nothing of it is kept.

use std::collections::BTreeMap;

use bowline_storage::engine::Found;
use bowline_storage::{EntryKind, Revision, TreeId, Value};

use crate::commit_queue::Committed;
use crate::draft::{Draft, Drafting};
use crate::handle::Shared;
use crate::snapshot::Snapshot;
use bowline_core::error::Result;
use bowline_core::graph::{self, Block, BlockId, Edge, KindId};
use bowline_core::kinds::Kinds;
use bowline_core::kv::{Entry, Range, RangeIter, record};
use bowline_core::lease::LeaseId;
use bowline_core::options::Isolation;
use bowline_core::state::{check_key, check_value};
use bowline_core::trees;
use bowline_core::write;
use bowline_core::write::mutation::Action;
use bowline_core::write::validate::Guard;
use bowline_types::Expected;

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
#[derive(Debug)]
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

    fn shared(&self) -> &Shared {
        self.snapshot.handle()
    }

    /// The revision it reads at.
    #[must_use]
    pub fn snapshot_revision(&self) -> Revision {
        self.snapshot.revision()
    }

    /// The draft, to be written to.
    fn drafting(&mut self) -> Drafting<'_> {
        Drafting {
            shared: self.snapshot.handle(),
            at: self.snapshot.revision(),
            draft: &mut self.draft,
        }
    }

    // --- keys and values ---

    /// The value of a key.
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

    /// The value of a key with its metadata. For a key this transaction wrote, the revisions are
    /// those of before: 0 for a new key, as it has none until it commits.
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

    /// The entries of a range, its own writes included, in key order, from both ends. The whole
    /// range counts as read.
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
    /// # Errors
    /// `EmptyKey`, `KeyTooLarge`, `ValueTooLarge`, `TransactionTooLarge`.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with_lease(key, value, 0)
    }

    /// Sets a key that goes with the lease; 0 is none. That the lease exists is checked at commit.
    pub fn put_with_lease(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        lease: LeaseId,
    ) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        let limits = &self.shared().limits;
        check_key(key, limits)?;
        check_value(value.len(), limits)?;
        let action = Action::PutEntry {
            value: Value::copy_from(value),
            lease,
        };
        self.drafting().write(trees::KV, key.to_vec(), action)
    }

    /// Deletes a key; tells whether it was present, and so counts as a read of it.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        check_key(key, &self.shared().limits)?;
        let is_present = self.get(key)?.is_some();
        self.drafting()
            .write(trees::KV, key.to_vec(), Action::Delete)?;
        Ok(is_present)
    }

    /// Deletes every key of a range; returns how many.
    pub fn delete_range(&mut self, range: impl Into<Range>) -> Result<u64> {
        let mut count = 0;
        for entry in self.range(range)? {
            let key = entry?.key.to_vec();
            self.drafting().write(trees::KV, key, Action::Delete)?;
            count += 1;
        }
        Ok(count)
    }

    /// Sets a key if, at commit, it is as expected. Does not count as a read. When it fails, the whole transaction fails with
    /// [`Error::CompareFailed`].
    pub fn compare_and_swap(
        &mut self,
        key: impl AsRef<[u8]>,
        expected: Expected,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.put(key.as_ref(), value)?;
        self.expect(key, expected)
    }

    /// Makes the commit depend on a key that is not written. For fencing:
    /// `expect(lock_key, Expected::Revision(revision_of_my_lock))`. Does not count as a read.
    ///
    /// # Errors
    /// `EmptyKey`, `KeyTooLarge`; the commit fails with `CompareFailed` when the key is not as expected.
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

    /// Reads a record of a graph tree, own writes first.
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
        Ok(shared.engine.read_at(tree, key, at, |found| {
            let put = found.as_ref().filter(|f| f.kind == EntryKind::Put);
            read(&shared.kinds, put.map(Found::bytes))
        })?)
    }

    /// The number of an edge's kind. When there is none yet, there is no such edge either, which
    /// counts as a read of it: somebody else may register the kind and put the edge.
    fn kind_of(&mut self, source: BlockId, kind: &str, target: BlockId) -> Result<Option<KindId>> {
        let id = self.shared().kinds.id(kind);
        if id.is_none() {
            let edge = (source, kind.to_owned(), target);
            self.draft.unregistered.push(edge);
        }
        Ok(id)
    }

    /// A block, own writes included.
    pub fn block(&mut self, id: BlockId) -> Result<Option<Block>> {
        let found = self.get_raw(trees::BLOCK, &graph::block_key(id), |kinds, bytes| {
            bytes.map(|bytes| crate::graph_view::block_of(kinds, id, bytes))
        })?;
        found.transpose()
    }

    /// An edge, own writes included.
    pub fn edge(&mut self, source: BlockId, kind: &str, target: BlockId) -> Result<Option<Edge>> {
        let Some(kind_id) = self.kind_of(source, kind, target)? else {
            return Ok(None);
        };
        let key = graph::edge_out_key(source, kind_id, target);
        let found = self.get_raw(trees::EDGE_OUT, &key, |_, bytes| {
            bytes.map(|bytes| crate::graph_view::edge_of(source, kind, target, &key, bytes))
        })?;
        found.transpose()
    }

    /// Creates or replaces a block. Its edges stay.
    ///
    /// # Errors
    /// `InvalidKind`, `ValueTooLarge`, `TransactionTooLarge`.
    pub fn put_block(&mut self, block: &Block) -> Result<()> {
        write::graph::put_block(&mut self.drafting(), block)
    }

    /// Deletes a block and every edge from or to it. `false` when there is no such block.
    pub fn delete_block(&mut self, id: BlockId) -> Result<bool> {
        write::graph::delete_block(&mut self.drafting(), id)
    }

    /// Creates or replaces an edge. Both blocks must exist, in the database or in this
    /// transaction; at commit they are looked for again.
    ///
    /// # Errors
    /// `MissingBlock`, `InvalidKind`, `ValueTooLarge`, `TransactionTooLarge`.
    pub fn put_edge(&mut self, edge: &Edge) -> Result<()> {
        let guards = self.draft.guards.len();
        let result = write::graph::put_edge(&mut self.drafting(), edge);
        if result.is_err() {
            // Nothing is required for an edge that is not written.
            self.draft.guards.truncate(guards);
        }
        result
    }

    /// Deletes an edge. `false` when there is no such edge.
    pub fn delete_edge(&mut self, source: BlockId, kind: &str, target: BlockId) -> Result<bool> {
        let Some(kind) = self.kind_of(source, kind, target)? else {
            return Ok(false);
        };
        write::graph::delete_edge(&mut self.drafting(), source, kind, target)
    }

    // --- the end ---

    /// Commits: all writes at one new revision, or, on an error, none. A transaction that wrote
    /// nothing commits without a revision of its own.
    ///
    /// # Errors
    /// `Conflict` when something it read (or, under snapshot isolation, wrote) was changed
    /// meanwhile; `CompareFailed`, `MissingBlock`, `LeaseNotFound` when what it relies on does
    /// not hold; `Storage` when the disk fails or is full.
    pub fn commit(self) -> Result<Committed> {
        let draft = self.draft;
        let snapshot = self.snapshot.revision();
        if draft.is_read_only() {
            // All reads were of one snapshot: it is equivalent to a commit at that moment.
            return Ok(Committed {
                revision: snapshot,
                deleted: 0,
                changed: false,
            });
        }
        let shared = self.snapshot.handle();
        shared.commit(draft.into_request(shared, snapshot, self.isolation))
    }

    /// Gives the transaction up. Dropping it does the same.
    pub fn rollback(self) {}
}

fn own_entry(key: &[u8], value: Value, lease: LeaseId, before: Option<Entry>) -> Entry {
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

/// The entries of a range as a transaction sees them. Made by [`Transaction::range`].
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
            // The next entry of the snapshot from this end, kept until it is its turn. When the
            // snapshot is through, what the other end holds is the last one.
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
