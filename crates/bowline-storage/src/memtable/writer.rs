//! The writer of a memtable: it places entries and makes them reachable.
//!
//! An insertion grows the hash index if needed, checks the contract, reserves all memory at once, fills
//! it, and makes it reachable: first the counts, then the chain of unordered nodes, then the hash slot.
//! A failure changes nothing, because no step after the reservation can fail.
//!
//! The counts come first so that a reader that can reach an entry also sees it in the tree's largest
//! revision ([`Memtable::changed_since`] relies on it).

use super::arena::Space;
use super::hash::Tag;
use super::record::{
    MAX_HEIGHT, MAX_KEY_BYTES, MAX_VALUE_BYTES, Node, NodeAt, Version, node_bytes, record_bytes,
};
use super::{Memtable, Tree};
use crate::sync::MutexGuard;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{Relaxed, Release};
use crate::{EntryKind, Error, Index, Result, Revision, TreeId};

/// The state that only the writer uses.
pub(super) struct WriterState {
    space: Space,
    /// Heights of nodes. Seeded, so that equal insertions give equal memtables.
    rng: fastrand::Rng,
    trees: Box<[TreeState]>,
}

#[derive(Clone, Default)]
struct TreeState {
    keys: u64,
}

impl WriterState {
    pub(super) fn new(seed: u64, space: Space, trees: usize) -> WriterState {
        WriterState {
            space,
            rng: fastrand::Rng::with_seed(seed),
            trees: vec![TreeState::default(); trees].into_boxed_slice(),
        }
    }

    /// Takes the state, for a memtable without further writes.
    pub(super) fn take(&mut self) -> WriterState {
        WriterState {
            space: Space::none(),
            rng: self.rng.clone(),
            trees: std::mem::take(&mut self.trees),
        }
    }
}

/// A height of at least 1, one higher with a chance of one in four, and so on.
fn random_height(rng: &mut fastrand::Rng) -> usize {
    let height = 1 + rng.u32(..).trailing_zeros() as usize / 2;
    height.min(MAX_HEIGHT)
}

/// The exclusive right to insert into a [`Memtable`]; see [`Memtable::writer`].
pub struct MemtableWriter<'a> {
    memtable: &'a Memtable,
    state: MutexGuard<'a, WriterState>,
}

impl<'a> MemtableWriter<'a> {
    pub(super) fn new(
        memtable: &'a Memtable,
        state: MutexGuard<'a, WriterState>,
    ) -> MemtableWriter<'a> {
        MemtableWriter { memtable, state }
    }

    /// The most bytes an insertion may take of a memtable's capacity. Add them up over a batch,
    /// and ask [`MemtableWriter::has_room`] before the first insertion.
    #[must_use]
    pub(crate) fn cost_bytes(key_len: usize, value_len: usize) -> usize {
        node_bytes(MAX_HEIGHT).saturating_add(record_bytes(key_len, value_len))
    }

    /// Whether insertions that cost `bytes` in all are sure to succeed, and the memtable stays
    /// within its capacity but for a doubling of the hash index. An empty memtable has room for
    /// its capacity.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.memtable
            .used_bytes()
            .checked_add(bytes)
            .is_some_and(|total| total <= self.memtable.capacity_bytes)
    }

    /// Inserts an entry. It is reachable at once; readers at earlier revisions skip it.
    ///
    /// A key's revisions must not fall. An entry with the key and the revision of an earlier one
    /// replaces it.
    ///
    /// # Errors
    /// [`Error::Internal`] when there is no room, when the tree is not one of the memtable's, when
    /// the key has a newer entry, or when the key or value is longer than an entry can be (16 MiB
    /// and 4 GiB). Nothing is inserted then.
    pub fn insert(
        &mut self,
        tree: TreeId,
        key: &[u8],
        revision: Revision,
        kind: EntryKind,
        value: &[u8],
    ) -> Result<()> {
        let Memtable { arena, trees, .. } = self.memtable;
        let WriterState {
            space,
            rng,
            trees: states,
        } = &mut *self.state;
        let number = usize::from(tree.0);
        let (Some(tree), Some(state)) = (trees.get(number), states.get_mut(number)) else {
            return Err(Error::Internal(format!(
                "tree {number} of {} in a memtable",
                trees.len()
            )));
        };
        if key.len() > MAX_KEY_BYTES || value.len() > MAX_VALUE_BYTES {
            return Err(Error::Internal(format!(
                "an entry of {} key bytes and {} value bytes in a memtable",
                key.len(),
                value.len()
            )));
        }
        let no_room = |space: &Space| {
            Error::Internal(format!(
                "a memtable has {} bytes left for an entry of {} key bytes and {} value bytes",
                space.free_bytes(),
                key.len(),
                value.len()
            ))
        };
        let version = Version {
            key,
            revision,
            kind,
            value,
        };
        let tag = Tag::of(key);
        let free_before = space.free_bytes();
        let mut taken_bytes = tree.index.grow_for(state.keys + 1);
        let probe = tree.index.probe(arena, tag, key);
        let probe = probe.ok_or_else(|| Error::Internal("a memtable without a hash".into()))?;
        let inserted = match probe.found {
            Some(newest) if newest.revision() > revision => Err(Error::Internal(format!(
                "revision {revision} of a key after its revision {} in a memtable",
                newest.revision()
            ))),
            Some(newest) => match newest.node().prepare_version(space, newest, version) {
                Some(record) => {
                    let replaces = newest.revision() == revision;
                    self.memtable.count(tree, revision, u64::from(!replaces));
                    newest.node().publish_version(record);
                    probe.publish(record.at());
                    Ok(())
                }
                None => Err(no_room(space)),
            },
            None => match Node::write(arena, space, random_height(rng), version) {
                Some((node, record)) => {
                    self.memtable.count(tree, revision, 1);
                    state.keys += 1;
                    tree.list.add(arena, node);
                    probe.publish(record.at());
                    Ok(())
                }
                None => Err(no_room(space)),
            },
        };
        taken_bytes += free_before - space.free_bytes();
        self.add_used(taken_bytes as u64);
        inserted
    }

    /// For the builder of a memtable without readers: writes an entry as one of a key of its
    /// own that is in no list and no hash. Says where.
    pub(super) fn append(
        &mut self,
        tree: TreeId,
        key: &[u8],
        revision: Revision,
        kind: EntryKind,
        value: &[u8],
    ) -> Result<NodeAt> {
        let Memtable { arena, trees, .. } = self.memtable;
        let WriterState { space, rng, .. } = &mut *self.state;
        let number = usize::from(tree.0);
        let count = trees.len();
        let refused = |what: String| Err(Error::Internal(format!("{what} in a memtable")));
        let Some(tree) = trees.get(number) else {
            return refused(format!("tree {number} of {count}"));
        };
        let (key_bytes, value_bytes) = (key.len(), value.len());
        if key_bytes > MAX_KEY_BYTES || value_bytes > MAX_VALUE_BYTES {
            return refused(format!(
                "an entry of {key_bytes} key bytes and {value_bytes} value bytes"
            ));
        }
        let version = Version {
            key,
            revision,
            kind,
            value,
        };
        let free_before = space.free_bytes();
        let Some((node, _)) = Node::write(arena, space, random_height(rng), version) else {
            return refused(format!("{free_before} bytes left for an entry"));
        };
        self.memtable.count(tree, revision, 1);
        let taken_bytes = free_before - space.free_bytes();
        self.add_used(taken_bytes as u64);
        Ok(node.at())
    }

    /// For the builder: the entries of a tree are in order now, `keys` of them with a key of its own,
    /// and `replaced` that are out of reach because others of their key and revision came later. The
    /// hash took `hash_bytes`.
    pub(super) fn appended(&mut self, tree: TreeId, keys: u64, replaced: u64, hash_bytes: usize) {
        let number = usize::from(tree.0);
        if let Some(state) = self.state.trees.get_mut(number) {
            state.keys = keys;
        }
        if let Some(tree) = self.memtable.trees.get(number) {
            for counter in [&self.memtable.counts.entries, &tree.counts.entries] {
                counter.store(counter.load(Relaxed) - replaced, Release);
            }
        }
        self.add_used(hash_bytes as u64);
    }

    fn add_used(&self, bytes: u64) {
        let used = &self.memtable.counts.used_bytes;
        used.store(used.load(Relaxed) + bytes, Release);
    }

    /// Says that the entries of the log up to `index` are inserted. It never falls.
    pub(crate) fn set_max_index(&mut self, index: Index) {
        let max_index = &self.memtable.counts.max_index;
        max_index.store(max_index.load(Relaxed).max(index), Release);
    }
}

impl Memtable {
    /// Counts entries that are about to become reachable. Only the writer calls it.
    fn count(&self, tree: &Tree, revision: Revision, entries: u64) {
        let add = |counter: &AtomicU64| {
            counter.store(counter.load(Relaxed) + entries, Release);
        };
        let raise = |largest: &AtomicU64| {
            if largest.load(Relaxed) < revision {
                largest.store(revision, Release);
            }
        };
        let smallest = self.counts.min_revision.load(Relaxed);
        if self.counts.entries.load(Relaxed) == 0 || revision < smallest {
            self.counts.min_revision.store(revision, Release);
        }
        raise(&self.counts.max_revision);
        raise(&tree.counts.max_revision);
        add(&self.counts.entries);
        add(&tree.counts.entries);
    }
}
