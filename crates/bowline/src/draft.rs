//! The read set and the write set of a transaction before its commit.
//!
//! A *draft* is plain data. [`Drafting`] fills it: it pairs the draft with the database and the
//! transaction's read revision. At the commit the draft becomes a [`Request`].
//!
//! Invariants:
//!
//! - A draft has one action for each tree and key, the last one.
//! - A draft records each read of the database, as a key or a range. What is read again and again takes no more room than
//!   what is read once ([`Noted`]).

use std::collections::BTreeSet;
use std::collections::btree_map::{self, BTreeMap};
use std::ops::Bound;

use bowline_storage::engine::{Found, ScanDirection};
use bowline_storage::{EntryKind, TreeId};
use bowline_types::Revision;

use crate::commit_queue::{Request, TreeRange};
use crate::handle::Shared;
use crate::noted::Noted;
use bowline_core::error::{Error, Result};
use bowline_core::graph::{self, BlockId, KindId};
use bowline_core::lease::LeaseId;
use bowline_core::options::Isolation;
use bowline_core::state::check_value;
use bowline_core::trees;
use bowline_core::write::mutation::{Action, Mutation, Mutations};
use bowline_core::write::target::Target;
use bowline_core::write::validate::{Guard, Reliance};

/// The reads and writes of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    writes: Writes,
    pub(crate) keys: Noted<(TreeId, Vec<u8>)>,
    pub(crate) ranges: Noted<TreeRange>,
    /// Ranges that must be unchanged under any isolation.
    firm_ranges: Noted<TreeRange>,
    pub(crate) guards: Vec<Guard>,
    /// Edges that were read by an unregistered kind.
    pub(crate) unregistered: Noted<(BlockId, String, BlockId)>,
    bytes: u64,
    /// What writes that belong together have replaced, in order.
    replaced: Option<Vec<Replaced>>,
}

impl Draft {
    /// Whether the commit needs no validation: the draft only reads, and reads one snapshot.
    pub(crate) fn is_read_only(&self) -> bool {
        self.writes.is_empty() && self.guards.is_empty()
    }

    /// The transaction's write to a key.
    pub(crate) fn own(&self, tree: TreeId, key: &[u8]) -> Option<&Action> {
        if self.writes.is_empty() {
            return None;
        }
        self.writes.get(&(tree, key.to_vec()))
    }

    /// Begins writes that belong together. Those of an outer beginning go on behind their end.
    pub(crate) fn begin_together(&mut self) -> Together {
        Together {
            outer: self.replaced.replace(Vec::new()),
            bytes: self.bytes,
            guards: self.guards.len(),
        }
    }

    /// Ends them: all of them stay, or none. What was read stays in the read set.
    pub(crate) fn end_together(&mut self, together: Together, stay: bool) {
        let replaced = self.replaced.take().unwrap_or_default();
        self.replaced = together.outer;
        if stay {
            if let Some(outer) = &mut self.replaced {
                outer.extend(replaced);
            }
            return;
        }
        for (place, before) in replaced.into_iter().rev() {
            match before {
                Some(action) => self.writes.insert(place, action),
                None => self.writes.remove(&place),
            };
        }
        self.bytes = together.bytes;
        // What is not written needs none.
        self.guards.truncate(together.guards);
    }

    /// The keys of the blocks that are written.
    pub(crate) fn block_keys(&self) -> impl Iterator<Item = &[u8]> {
        let writes = writes_with_prefix(&self.writes, trees::BLOCK, &[]);
        writes.map(|((_, key), _)| &key[..])
    }

    /// How many writes have been made since writes that belong together began.
    pub(crate) fn replaced_len(&self) -> usize {
        self.replaced.as_ref().map_or(0, Vec::len)
    }

    /// The places of those writes, without so many.
    pub(crate) fn replaced_from(&self, count: usize) -> impl Iterator<Item = &(TreeId, Vec<u8>)> {
        let replaced = self.replaced.as_deref().unwrap_or_default();
        let newer = replaced.get(count..).unwrap_or_default();
        newer.iter().map(|(place, _)| place)
    }

    /// The writes to the kv tree, in key order.
    pub(crate) fn kv_writes(&self) -> impl Iterator<Item = (&[u8], &Action)> {
        let writes = writes_with_prefix(&self.writes, trees::KV, &[]);
        writes.map(|((_, key), action)| (&key[..], action))
    }

    /// The commit request of a transaction that read at `snapshot`.
    pub(crate) fn into_request(
        self,
        shared: &Shared,
        snapshot: Revision,
        isolation: Isolation,
    ) -> Request {
        let Draft {
            writes,
            keys,
            ranges,
            firm_ranges,
            guards,
            unregistered,
            ..
        } = self;
        let writes: Mutations = writes
            .into_iter()
            .map(|((tree, key), action)| Mutation::new(tree, &key, action))
            .collect();
        let mut request = Request {
            snapshot,
            guards,
            writes,
            ..Request::default()
        };
        let relied_on = Reliance::of(isolation);
        if relied_on.reads {
            request.keys = keys.into_vec();
            request.ranges = ranges.into_vec();
            // Read before the look-ups, to notice a kind that is registered in between.
            let kinds = &shared.kinds;
            let next = kinds.next_id();
            for (source, kind, target) in unregistered.into_vec() {
                match kinds.id(&kind) {
                    Some(kind) => {
                        let key = graph::edge_out_key(source, kind, target);
                        request.keys.push((trees::EDGE_OUT, key.to_vec()));
                    }
                    None => request.next_kind = Some(next),
                }
            }
        }
        if relied_on.writes {
            let written = request.writes.iter();
            let written = written.map(|write| (write.tree, write.key.to_vec()));
            request.keys.extend(written);
        }
        request.ranges.extend(firm_ranges.into_vec());
        request
    }
}

/// The beginning of writes that belong together.
#[derive(Debug)]
pub(crate) struct Together {
    /// What the writes of the outer beginning have replaced.
    outer: Option<Vec<Replaced>>,
    bytes: u64,
    guards: usize,
}

/// The place of a write, and what was there.
type Replaced = ((TreeId, Vec<u8>), Option<Action>);

/// The size of a write.
fn size_bytes(key: &[u8], action: &Action) -> u64 {
    let value = match action {
        Action::PutEntry { value, .. } => value.len(),
        Action::PutRaw { value } => value.len(),
        Action::Delete => 0,
    };
    (key.len() + value) as u64
}

/// A draft with the database and the revision it reads.
#[derive(Debug)]
pub(crate) struct Drafting<'a> {
    pub(crate) shared: &'a Shared,
    /// The read revision, which is pinned.
    pub(crate) at: Revision,
    pub(crate) draft: &'a mut Draft,
}

impl Drafting<'_> {
    /// Records writes that belong together, such as the two records of an edge: all of them, or none on an error.
    pub(crate) fn together<T>(
        mut self,
        write: impl FnOnce(&mut Drafting<'_>) -> Result<T>,
    ) -> Result<T> {
        let together = self.draft.begin_together();
        let result = write(&mut self);
        self.draft.end_together(together, result.is_ok());
        result
    }

    /// Records a write, replacing an earlier one of the same key.
    pub(crate) fn write(&mut self, tree: TreeId, key: Vec<u8>, action: Action) -> Result<()> {
        let draft = &mut *self.draft;
        let limit = self.shared.limits.transaction_size_max_bytes;
        let entry = draft.writes.entry((tree, key));
        let replaced = match &entry {
            btree_map::Entry::Vacant(_) => 0,
            btree_map::Entry::Occupied(old) => size_bytes(&old.key().1, old.get()),
        };
        let bytes = draft.bytes - replaced + size_bytes(&entry.key().1, &action);
        if bytes > limit {
            return Err(Error::TransactionTooLarge { size: bytes, limit });
        }
        draft.bytes = bytes;
        match &mut draft.replaced {
            None => drop(entry.insert_entry(action)),
            Some(replaced) => {
                let place = entry.key().clone();
                let before = match entry {
                    btree_map::Entry::Vacant(free) => {
                        free.insert(action);
                        None
                    }
                    btree_map::Entry::Occupied(mut old) => Some(old.insert(action)),
                };
                replaced.push((place, before));
            }
        }
        Ok(())
    }

    /// The first keys of a range that pass, own writes included, at most `count_max`. `passes` sees the key and at least
    /// the beginning of the record. The range up to the last key that is returned is read, or all of it if there are no more.
    pub(crate) fn page(
        &mut self,
        (tree, lower, upper): TreeRange,
        count_max: usize,
        passes: impl Fn(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<Vec<Vec<u8>>> {
        let engine = &self.shared.engine;
        let at = self.at.get();
        let (from, to) = (lower.clone(), upper.clone());
        let mut scan = engine
            .scan(tree, from, to, at, ScanDirection::Forward)
            .heads();
        let bounds = (own_bound(tree, &lower), own_end(tree, &upper));
        let mut own = self.draft.writes.range(bounds).peekable();
        let mut is_there = scan.advance()?;
        let mut keys = Vec::new();
        let mut read = (tree, lower, upper);
        loop {
            if keys.len() >= count_max {
                if let Some(last) = keys.last() {
                    read.2 = Bound::Included(Vec::clone(last));
                }
                break;
            }
            let next_own = own.peek().map(|((_, key), _)| &key[..]);
            let is_own = match (is_there, next_own) {
                (false, None) => break,
                (false, Some(_)) => true,
                (true, None) => false,
                (true, Some(key)) => key <= scan.key(),
            };
            if is_own {
                let Some(((_, key), action)) = own.next() else {
                    break;
                };
                // The own write hides the record of the snapshot.
                if is_there && scan.key() == &key[..] {
                    is_there = scan.advance()?;
                }
                if let Action::PutRaw { value } = action
                    && passes(key, value)?
                {
                    keys.push(key.clone());
                }
            } else {
                if passes(scan.key(), scan.bytes())? {
                    keys.push(scan.key().to_vec());
                }
                is_there = scan.advance()?;
            }
        }
        self.draft.ranges.push(read);
        Ok(keys)
    }

    /// Whether the record exists in the snapshot.
    fn is_in_snapshot(&self, tree: TreeId, key: &[u8]) -> Result<bool> {
        let is_put = |found: Option<Found<'_>>| found.is_some_and(|f| f.kind == EntryKind::Put);
        Ok(self
            .shared
            .engine
            .peek_at(tree, key, self.at.get(), is_put)?)
    }
}

/// Reads are recorded, and the commit validates them.
impl Target for Drafting<'_> {
    type Error = Error;

    fn exists(&mut self, tree: TreeId, key: &[u8]) -> Result<bool> {
        if let Some(own) = self.draft.own(tree, key) {
            return Ok(!matches!(own, Action::Delete));
        }
        self.draft.keys.push((tree, key.to_vec()));
        self.is_in_snapshot(tree, key)
    }

    fn first_keys(
        &mut self,
        tree: TreeId,
        prefix: &[u8],
        count_max: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let (lower, upper) = prefix_bounds(prefix);
        let engine = &self.shared.engine;
        let at = self.at.get();
        let scan = engine.scan(
            tree,
            lower.clone(),
            upper.clone(),
            at,
            ScanDirection::Forward,
        );
        let mut scan = scan.heads();
        let mut keys = BTreeSet::new();
        // A key that another commit adds meanwhile must not be missed, under either isolation; nor one that it removes.
        let mut read = (tree, lower, upper);
        while scan.advance()? {
            let key = scan.key();
            if !matches!(self.draft.own(tree, key), Some(Action::Delete)) {
                keys.insert(key.to_vec());
            }
            if keys.len() >= count_max {
                read.2 = Bound::Included(key.to_vec());
                break;
            }
        }
        self.draft.firm_ranges.push(read);
        for ((_, key), action) in writes_with_prefix(&self.draft.writes, tree, prefix) {
            if !matches!(action, Action::Delete) {
                keys.insert(key.clone());
            }
        }
        Ok(keys.into_iter().take(count_max).collect())
    }

    fn require(&mut self, guard: Guard) -> Result<()> {
        if let Guard::Block { id } = guard {
            let key = graph::block_key(id);
            match self.draft.own(trees::BLOCK, &key) {
                // A block that this transaction puts exists at the commit.
                Some(Action::PutRaw { .. } | Action::PutEntry { .. }) => return Ok(()),
                Some(Action::Delete) => return Err(Error::MissingBlock { id }),
                None if self.is_in_snapshot(trees::BLOCK, &key)? => {}
                None => return Err(Error::MissingBlock { id }),
            }
        }
        self.draft.guards.push(guard);
        Ok(())
    }

    fn kind(&mut self, name: &str) -> Result<KindId> {
        self.shared.kind_id(name)
    }

    fn put_record(&mut self, tree: TreeId, key: &[u8], value: Vec<u8>) -> Result<()> {
        check_value(value.len(), &self.shared.limits)?;
        self.write(tree, key.to_vec(), Action::PutRaw { value })
    }

    fn delete_record(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.write(tree, key.to_vec(), Action::Delete)
    }

    fn delete_attached(&mut self, key: &[u8], _lease: LeaseId) -> Result<()> {
        // The commit looks up the key's lease.
        self.write(trees::KV, key.to_vec(), Action::Delete)
    }
}

type Writes = BTreeMap<(TreeId, Vec<u8>), Action>;

fn writes_with_prefix<'a>(
    writes: &'a Writes,
    tree: TreeId,
    prefix: &'a [u8],
) -> impl Iterator<Item = (&'a (TreeId, Vec<u8>), &'a Action)> {
    writes
        .range((tree, prefix.to_vec())..)
        .take_while(move |((other, key), _)| *other == tree && key.starts_with(prefix))
}

/// A bound of a tree's range as one of the writes.
fn own_bound(tree: TreeId, bound: &Bound<Vec<u8>>) -> Bound<(TreeId, Vec<u8>)> {
    match bound {
        Bound::Unbounded => Bound::Included((tree, Vec::new())),
        bound => bound.as_ref().map(|key| (tree, key.clone())),
    }
}

/// The same of the end.
fn own_end(tree: TreeId, bound: &Bound<Vec<u8>>) -> Bound<(TreeId, Vec<u8>)> {
    match bound {
        Bound::Unbounded => Bound::Excluded((TreeId(tree.0 + 1), Vec::new())),
        bound => bound.as_ref().map(|key| (tree, key.clone())),
    }
}

fn prefix_bounds(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let upper = trees::prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(prefix.to_vec()), upper)
}
