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

use std::collections::btree_map::{self, BTreeMap};
use std::ops::Bound;

use bowline_storage::sync::{Mutex, MutexGuard};
use bowline_storage::tree::ScanDirection;
use bowline_storage::{Revision, TreeId, Value};

use crate::commit::{Action, Committed, Guard, Request, TreeRange, Write, WriteList};
use crate::db::{Db, check_key, check_value, lease_guard};
use crate::error::{Error, Result, show_key};
use crate::graph::{self, Block, BlockId, Edge, KindId};
use crate::kv::{Entry, Range, RangeIter, record};
use crate::lease::LeaseId;
use crate::options::Isolation;
use crate::snapshot::Snapshot;
use crate::trees;

/// A transaction. Rolled back when dropped without [`Transaction::commit`].
///
/// ```
/// # let db = bowline::Db::in_memory()?;
/// let tx = db.begin();
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
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    writes: BTreeMap<(TreeId, Vec<u8>), Action>,
    keys: Vec<(TreeId, Vec<u8>)>,
    ranges: Vec<TreeRange>,
    /// Ranges and keys that must be unchanged under any isolation.
    firm_ranges: Vec<TreeRange>,
    guards: Vec<Guard>,
    /// Edges that were looked for by a kind that nobody had used.
    unregistered: Vec<(BlockId, String, BlockId)>,
    bytes: u64,
    is_done: bool,
}

impl Transaction {
    pub(crate) fn new(snapshot: Snapshot, isolation: Isolation) -> Transaction {
        Transaction {
            snapshot,
            isolation,
            state: Mutex::new(State::default()),
        }
    }

    fn db(&self) -> &Db {
        self.snapshot.db()
    }

    /// The revision it reads at.
    #[must_use]
    pub fn snapshot_revision(&self) -> Revision {
        self.snapshot.revision()
    }

    fn open_state(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock();
        if state.is_done {
            Err(Error::TransactionDone)
        } else {
            Ok(state)
        }
    }

    // --- keys and values ---

    /// The value of a key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        let mut state = self.open_state()?;
        match state.writes.get(&(trees::KV, key.to_vec())) {
            Some(Action::PutEntry { value, .. }) => return Ok(Some(value.clone())),
            Some(_) => return Ok(None),
            None => {}
        }
        state.keys.push((trees::KV, key.to_vec()));
        drop(state);
        self.snapshot.get(key)
    }

    /// The value of a key with its metadata. For a key this transaction wrote, the revisions are
    /// those of before: 0 for a new key, as it has none until it commits.
    pub fn entry(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>> {
        let key = key.as_ref();
        let mut state = self.open_state()?;
        let own = match state.writes.get(&(trees::KV, key.to_vec())) {
            Some(Action::PutEntry { value, lease }) => Some((value.clone(), *lease)),
            Some(_) => return Ok(None),
            None => None,
        };
        state.keys.push((trees::KV, key.to_vec()));
        drop(state);
        let before = self.snapshot.entry(key)?;
        Ok(match own {
            None => before,
            Some((value, lease)) => Some(own_entry(key, value, lease, before)),
        })
    }

    /// The entries of a range, its own writes included, in key order, from both ends. The whole
    /// range counts as read.
    pub fn range(&self, range: impl Into<Range>) -> Result<TransactionRange> {
        let range = range.into().validate()?;
        let mut state = self.open_state()?;
        state
            .ranges
            .push((trees::KV, range.lower.clone(), range.upper.clone()));
        let mut own = BTreeMap::new();
        for ((_, key), action) in kv_writes(&state.writes) {
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
        drop(state);
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
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with_lease(key, value, 0)
    }

    /// Sets a key that goes with the lease; 0 is none. That the lease exists is checked at commit.
    pub fn put_with_lease(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        lease: LeaseId,
    ) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        let limits = &self.db().core().limits;
        check_key(key, limits)?;
        check_value(value.len(), limits)?;
        let mut state = self.open_state()?;
        state.guards.extend(lease_guard(lease));
        let action = Action::PutEntry {
            value: Value::copy_from(value),
            lease,
        };
        self.write(&mut state, trees::KV, key.to_vec(), action)
    }

    /// Deletes a key; tells whether it was present, and so counts as a read of it.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        check_key(key, &self.db().core().limits)?;
        let is_present = self.get(key)?.is_some();
        let mut state = self.open_state()?;
        self.write(&mut state, trees::KV, key.to_vec(), Action::Delete)?;
        Ok(is_present)
    }

    /// Deletes every key of a range; returns how many.
    pub fn delete_range(&self, range: impl Into<Range>) -> Result<u64> {
        let mut count = 0;
        for entry in self.range(range)? {
            let key = entry?.key.to_vec();
            let mut state = self.open_state()?;
            self.write(&mut state, trees::KV, key, Action::Delete)?;
            count += 1;
        }
        Ok(count)
    }

    /// Sets a key if, at commit, its modification revision is the expected one; 0 means it must
    /// be absent. Does not count as a read. When it fails, the whole transaction fails with
    /// [`Error::CompareFailed`].
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Revision,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.put(key.as_ref(), value)?;
        self.expect_revision(key, expected)
    }

    /// Makes the commit depend on a key's modification revision without writing it; 0 means
    /// absent. For fencing: `expect_revision(lock_key, revision_of_my_lock)`.
    pub fn expect_revision(&self, key: impl AsRef<[u8]>, expected: Revision) -> Result<()> {
        check_key(key.as_ref(), &self.db().core().limits)?;
        let guard = Guard::Revision {
            key: key.as_ref().to_vec(),
            expected,
        };
        self.open_state()?.guards.push(guard);
        Ok(())
    }

    // --- leases ---

    pub(crate) fn attached_keys(&self, id: LeaseId) -> Result<Vec<Value>> {
        let engine = &self.db().core().engine;
        let prefix = trees::attachment_prefix(id);
        let (lower, upper) = prefix_bounds(&prefix);
        self.open_state()?
            .firm_ranges
            .push((trees::SYSTEM, lower.clone(), upper.clone()));
        let at = self.snapshot.revision();
        let mut scan = engine.scan(trees::SYSTEM, lower, upper, at, ScanDirection::Forward);
        let mut keys = Vec::new();
        while scan.advance()? {
            keys.push(Value::copy_from(&scan.key()[prefix.len()..]));
        }
        Ok(keys)
    }

    /// Deletes a lease and its keys. A key that was put anew with it meanwhile is a conflict.
    pub(crate) fn revoke_lease(&self, id: LeaseId) -> Result<u64> {
        let keys = self.attached_keys(id)?;
        let mut state = self.open_state()?;
        state.guards.push(Guard::Lease { id, exists: true });
        for key in &keys {
            self.write(&mut state, trees::KV, key.to_vec(), Action::Delete)?;
        }
        self.write(
            &mut state,
            trees::SYSTEM,
            trees::lease_key(id).to_vec(),
            Action::Delete,
        )?;
        Ok(keys.len() as u64)
    }

    // --- the graph ---

    /// Reads a record of a graph tree, own writes first.
    fn get_raw<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let mut state = self.open_state()?;
        match state.writes.get(&(tree, key.to_vec())) {
            Some(Action::PutRaw { value }) => return Ok(read(Some(value))),
            Some(_) => return Ok(read(None)),
            None => {}
        }
        state.keys.push((tree, key.to_vec()));
        drop(state);
        let engine = &self.db().core().engine;
        let at = self.snapshot.revision();
        Ok(engine.read_at(tree, key, at, |found| {
            let put = found
                .as_ref()
                .filter(|f| f.kind == bowline_storage::EntryKind::Put);
            read(put.map(bowline_storage::tree::Found::bytes))
        })?)
    }

    /// Whether a block exists, without counting as a read: the commit checks it anyway.
    fn has_block(&self, id: BlockId) -> Result<bool> {
        let key = graph::block_key(id);
        let state = self.open_state()?;
        match state.writes.get(&(trees::BLOCK, key.to_vec())) {
            Some(Action::PutRaw { .. }) => return Ok(true),
            Some(_) => return Ok(false),
            None => {}
        }
        drop(state);
        let engine = &self.db().core().engine;
        Ok(
            engine.peek_at(trees::BLOCK, &key, self.snapshot.revision(), |found| {
                found.is_some_and(|found| found.kind == bowline_storage::EntryKind::Put)
            })?,
        )
    }

    /// The number of an edge's kind. When there is none yet, there is no such edge either, which
    /// counts as a read of it: somebody else may register the kind and put the edge.
    fn kind_of(&self, source: BlockId, kind: &str, target: BlockId) -> Result<Option<KindId>> {
        let id = self.db().core().kinds.id(kind);
        if id.is_none() {
            let edge = (source, kind.to_owned(), target);
            self.open_state()?.unregistered.push(edge);
        }
        Ok(id)
    }

    /// A block, own writes included.
    pub fn block(&self, id: BlockId) -> Result<Option<Block>> {
        let db = self.db();
        self.get_raw(trees::BLOCK, &graph::block_key(id), |bytes| {
            bytes
                .map(|bytes| crate::graph_view::block_of(db, id, bytes))
                .transpose()
        })?
    }

    /// An edge, own writes included.
    pub fn edge(&self, source: BlockId, kind: &str, target: BlockId) -> Result<Option<Edge>> {
        let Some(kind_id) = self.kind_of(source, kind, target)? else {
            return Ok(None);
        };
        let key = graph::edge_out_key(source, kind_id, target);
        self.get_raw(trees::EDGE_OUT, &key, |bytes| {
            bytes
                .map(|bytes| crate::graph_view::edge_of(source, kind, target, &key, bytes))
                .transpose()
        })?
    }

    /// Creates or replaces a block. Its edges stay.
    ///
    /// # Errors
    /// `InvalidKind`, `ValueTooLarge`, `TransactionTooLarge`.
    pub fn put_block(&self, block: &Block) -> Result<()> {
        let kind = self.db().kind_id(&block.kind)?;
        let mut value = Vec::new();
        graph::encode_block(kind, block, &mut value);
        check_value(value.len(), &self.db().core().limits)?;
        let mut state = self.open_state()?;
        let key = graph::block_key(block.id).to_vec();
        self.write(&mut state, trees::BLOCK, key, Action::PutRaw { value })
    }

    /// Deletes a block and every edge from or to it. `false` when there is no such block.
    pub fn delete_block(&self, id: BlockId) -> Result<bool> {
        if !self.get_raw(trees::BLOCK, &graph::block_key(id), |bytes| bytes.is_some())? {
            return Ok(false);
        }
        // An edge that somebody else adds meanwhile must not survive its block.
        for (tree, is_out) in [(trees::EDGE_OUT, true), (trees::EDGE_IN, false)] {
            for (near, kind, far) in self.edges_of(tree, id)? {
                let (source, target) = if is_out { (near, far) } else { (far, near) };
                self.remove_edge(source, kind, target)?;
            }
        }
        let mut state = self.open_state()?;
        self.write(
            &mut state,
            trees::BLOCK,
            graph::block_key(id).to_vec(),
            Action::Delete,
        )?;
        Ok(true)
    }

    /// The edges of a block in one direction, own writes included.
    fn edges_of(&self, tree: TreeId, id: BlockId) -> Result<Vec<(BlockId, KindId, BlockId)>> {
        let prefix = graph::edge_prefix(id);
        let (lower, upper) = prefix_bounds(&prefix);
        let mut state = self.open_state()?;
        state.firm_ranges.push((tree, lower.clone(), upper.clone()));
        let mut keys = std::collections::BTreeSet::new();
        let engine = &self.db().core().engine;
        let at = self.snapshot.revision();
        let mut scan = engine.scan(tree, lower, upper, at, ScanDirection::Forward);
        while scan.advance()? {
            keys.insert(scan.key().to_vec());
        }
        for ((_, key), action) in writes_with_prefix(&state.writes, tree, &prefix) {
            match action {
                Action::Delete => keys.remove(key),
                _ => keys.insert(key.clone()),
            };
        }
        let split = |key: &Vec<u8>| {
            graph::split_edge_key(key).ok_or_else(|| Error::InvalidRecord {
                what: "edge",
                key: show_key(key),
                reason: "its key is not 36 bytes",
            })
        };
        keys.iter().map(split).collect()
    }

    /// Creates or replaces an edge. Both blocks must exist, in the database or in this
    /// transaction; at commit they are looked for again.
    ///
    /// # Errors
    /// `MissingBlock`, `InvalidKind`, `ValueTooLarge`, `TransactionTooLarge`.
    pub fn put_edge(&self, edge: &Edge) -> Result<()> {
        for id in [edge.source, edge.target] {
            if !self.has_block(id)? {
                return Err(Error::MissingBlock { id });
            }
        }
        let kind = self.db().kind_id(&edge.kind)?;
        let mut value = Vec::new();
        graph::encode_edge(&edge.attributes, &mut value);
        check_value(value.len(), &self.db().core().limits)?;
        let mut state = self.open_state()?;
        for id in [edge.source, edge.target] {
            // A block that this transaction puts is there at commit by itself.
            if !state
                .writes
                .contains_key(&(trees::BLOCK, graph::block_key(id).to_vec()))
            {
                state.guards.push(Guard::Block { id });
            }
        }
        let out = graph::edge_out_key(edge.source, kind, edge.target).to_vec();
        let back = graph::edge_in_key(edge.target, kind, edge.source).to_vec();
        self.write(&mut state, trees::EDGE_OUT, out, Action::PutRaw { value })?;
        self.write(
            &mut state,
            trees::EDGE_IN,
            back,
            Action::PutRaw { value: Vec::new() },
        )
    }

    /// Deletes an edge. `false` when there is no such edge.
    pub fn delete_edge(&self, source: BlockId, kind: &str, target: BlockId) -> Result<bool> {
        let Some(kind) = self.kind_of(source, kind, target)? else {
            return Ok(false);
        };
        let key = graph::edge_out_key(source, kind, target);
        if !self.get_raw(trees::EDGE_OUT, &key, |bytes| bytes.is_some())? {
            return Ok(false);
        }
        self.remove_edge(source, kind, target)?;
        Ok(true)
    }

    fn remove_edge(&self, source: BlockId, kind: KindId, target: BlockId) -> Result<()> {
        let mut state = self.open_state()?;
        let out = graph::edge_out_key(source, kind, target).to_vec();
        let back = graph::edge_in_key(target, kind, source).to_vec();
        self.write(&mut state, trees::EDGE_OUT, out, Action::Delete)?;
        self.write(&mut state, trees::EDGE_IN, back, Action::Delete)
    }

    // --- the end ---

    fn write(&self, state: &mut State, tree: TreeId, key: Vec<u8>, action: Action) -> Result<()> {
        let size = |key: &[u8], action: &Action| {
            let value = match action {
                Action::PutEntry { value, .. } => value.len(),
                Action::PutRaw { value } => value.len(),
                Action::Delete => 0,
            };
            (key.len() + value) as u64
        };
        let limit = self.db().core().limits.transaction_size_max_bytes;
        let entry = state.writes.entry((tree, key));
        let replaced = match &entry {
            btree_map::Entry::Vacant(_) => 0,
            btree_map::Entry::Occupied(old) => size(&old.key().1, old.get()),
        };
        let bytes = state.bytes - replaced + size(&entry.key().1, &action);
        if bytes > limit {
            return Err(Error::TransactionTooLarge { size: bytes, limit });
        }
        state.bytes = bytes;
        entry.insert_entry(action);
        Ok(())
    }

    /// Commits: all writes at one new revision, or, on an error, none. A transaction that wrote
    /// nothing commits without a revision of its own.
    ///
    /// # Errors
    /// `Conflict` when something it read (or, under snapshot isolation, wrote) was changed
    /// meanwhile; `CompareFailed`, `MissingBlock`, `LeaseNotFound` when what it relies on does
    /// not hold; `Storage` when the disk fails or is full.
    pub fn commit(self) -> Result<Committed> {
        let mut state = self.open_state()?;
        state.is_done = true;
        let State {
            writes,
            keys,
            ranges,
            firm_ranges,
            guards,
            unregistered,
            ..
        } = std::mem::take(&mut *state);
        state.is_done = true;
        drop(state);
        let snapshot = self.snapshot.revision();
        if writes.is_empty() && guards.is_empty() {
            // All reads were of one snapshot: it is equivalent to a commit at that moment.
            return Ok(Committed {
                revision: snapshot,
                deleted: 0,
                changed: false,
            });
        }
        let writes: WriteList = writes
            .into_iter()
            .map(|((tree, key), action)| Write::new(tree, &key, action))
            .collect();
        let mut request = Request {
            snapshot,
            guards,
            writes,
            ..Request::default()
        };
        match self.isolation {
            Isolation::Serializable => {
                request.keys = keys;
                request.ranges = ranges;
                // Before the look-ups, so that what is registered in between is noticed.
                let kinds = &self.db().core().kinds;
                let next = kinds.next_id();
                for (source, kind, target) in unregistered {
                    match kinds.id(&kind) {
                        Some(kind) => {
                            let key = graph::edge_out_key(source, kind, target);
                            request.keys.push((trees::EDGE_OUT, key.to_vec()));
                        }
                        None => request.next_kind = Some(next),
                    }
                }
            }
            Isolation::Snapshot => {
                let own = request
                    .writes
                    .iter()
                    .map(|write| (write.tree, write.key.to_vec()));
                request.keys = own.collect();
            }
        }
        request.ranges.extend(firm_ranges);
        self.db().commit(request)
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

type Writes = BTreeMap<(TreeId, Vec<u8>), Action>;

fn kv_writes(writes: &Writes) -> impl Iterator<Item = (&(TreeId, Vec<u8>), &Action)> {
    writes_with_prefix(writes, trees::KV, &[])
}

fn writes_with_prefix<'a>(
    writes: &'a Writes,
    tree: TreeId,
    prefix: &'a [u8],
) -> impl Iterator<Item = (&'a (TreeId, Vec<u8>), &'a Action)> {
    writes
        .range((tree, prefix.to_vec())..)
        .take_while(move |((other, key), _)| *other == tree && key.starts_with(prefix))
}

fn prefix_bounds(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let upper = trees::prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(prefix.to_vec()), upper)
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
