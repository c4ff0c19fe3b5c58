//! The memtable: the newest versions in memory, until they are flushed to tables.
//!
//! One [`Memtable`] is one *generation*. It spans all trees, and is sealed, flushed and freed as a whole:
//! dropping it frees a few blocks of memory, regardless of the number of entries.
//!
//! ```text
//!            hash index (per tree)            arena (one block, all trees)
//!            | tag | record | ---------+      +----------------------------------------------+
//!   get ---> | ... |  ...   |          +----> | record rev 9 --prev--> record rev 4          |
//!            | tag | record |                 |   ^                       ^ (right behind it)|
//!                                             |   newest                  |                  |
//!            skiplist (per tree)              |   |                       |                  |
//!   scan --> head ------------------------->  | node "a" ------------> node "b" ---> ...     |
//!                                             +----------------------------------------------+
//! ```
//!
//! * `arena`: one zeroed block, offsets instead of pointers. The only memory entries live in.
//! * `record`: the layout of the entries. A record is one version of a key; versions form a chain from
//!   the newest backwards, with jump pointers, so that old versions are found in logarithmic time.
//! * `hash`: key to newest record, for point reads: one slot, one record, no more.
//! * `skiplist`: keys in order, one node per key, for scans. New keys are sorted in when a scan needs
//!   them.
//! * `groups`: where the keys with the same first bytes begin in the order, for readers that ask for one
//!   prefix after the other.
//! * `MemtableBuilder`: fills a memtable that has no readers yet, and sorts its keys at the end; for
//!   recovery.
//! * [`DeferredReclaim`]: the memory of dropped memtables, which a background thread frees.
//! * [`MemtableWriter`]: the single writer. [`MemtableReadCursor`] yields the versions visible at one
//!   revision, `MemtableVersionCursor` yields every version, for the flush.
//!
//! # Concurrency
//!
//! There is one writer at a time (a mutex, taken once per batch) and any number of readers. The writer
//! never waits for readers. Readers take no lock, except a scan that finds keys which are not sorted in
//! yet. A writer completes an entry before it stores a link to it with `Release`; readers load links with
//! `Acquire`. Of reachable memory only links change.
//!
//! Entries become reachable when they are inserted, which may be before their commit is visible. Readers
//! skip entries newer than the revision at which they read. A reader that obtains its revision after the
//! entries of that revision were inserted sees all of them.
//!
//! # Invariants
//!
//! * The versions of a key are inserted in ascending revisions. The second of two entries with the same
//!   key and revision replaces the first.
//! * After an insertion, the key is in the hash index, and in the skiplist or in its list of unsorted
//!   nodes. Both lead to the same newest record.
//! * An insertion succeeds, or fails without any change.

mod arena;
mod builder;
mod cursor;
mod deferred_reclaim;
mod groups;
mod hash;
#[cfg(test)]
mod prefix_tests;
mod record;
mod skiplist;
mod sort;
#[cfg(test)]
mod tests;
mod writer;

use std::ops::Bound;
use std::sync::Arc;

pub use arena::held_bytes;
pub(crate) use builder::MemtableBuilder;
pub(crate) use cursor::MemtableVersionCursor;
pub use cursor::{MemtableReadCursor, PrefixCursor};
pub use deferred_reclaim::DeferredReclaim;
pub use writer::MemtableWriter;

use crate::sync::Mutex;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::Acquire;
use crate::{EntryKind, Index, Revision, TreeId};
use arena::{Arena, Space, UNIT};
use hash::HashIndex;
pub(crate) use hash::Tag;
use record::{MAX_HEIGHT, Record, node_bytes};
use skiplist::SkipList;
use writer::WriterState;

/// One entry of a memtable, borrowed from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// The revision that wrote it.
    pub revision: Revision,
    /// Whether it sets the key or deletes it.
    pub kind: EntryKind,
    /// The value; empty for a tombstone unless the writer gave one.
    pub value: &'a [u8],
}

impl<'a> From<Record<'a>> for Entry<'a> {
    #[inline]
    fn from(record: Record<'a>) -> Entry<'a> {
        Entry {
            revision: record.revision(),
            kind: record.kind(),
            value: record.value(),
        }
    }
}

/// The counts of the writer, which readers may load. Apart from the fields that every read needs, so
/// that an insertion does not take that out of their caches.
#[repr(align(128))]
#[derive(Default)]
struct Counts {
    entries: AtomicU64,
    used_bytes: AtomicU64,
    /// The bytes of the tables of groups, which readers make.
    groups_bytes: Arc<AtomicU64>,
    /// 0 while empty.
    min_revision: AtomicU64,
    max_revision: AtomicU64,
    max_index: AtomicU64,
}

/// The same for one tree.
#[repr(align(128))]
#[derive(Default)]
struct TreeCounts {
    entries: AtomicU64,
    max_revision: AtomicU64,
}

struct Tree {
    index: HashIndex,
    list: SkipList,
    counts: TreeCounts,
}

/// One generation of entries in memory, for all trees. See the module's head.
///
/// ```
/// use bowline_storage::memtable::Memtable;
/// use bowline_storage::{EntryKind, TreeId};
///
/// # fn main() -> bowline_storage::Result<()> {
/// let memtable = Memtable::new(1, 1, 1 << 20);
/// memtable.writer().insert(TreeId(0), b"key", 7, EntryKind::Put, b"old")?;
/// memtable.writer().insert(TreeId(0), b"key", 9, EntryKind::Put, b"new")?;
/// assert_eq!(memtable.get(TreeId(0), b"key", 8).map(|entry| entry.value), Some(&b"old"[..]));
/// assert!(memtable.get(TreeId(0), b"key", 6).is_none());
/// # Ok(())
/// # }
/// ```
pub struct Memtable {
    generation: u64,
    capacity_bytes: usize,
    arena: Arena,
    trees: Box<[Tree]>,
    counts: Counts,
    writer: Mutex<WriterState>,
    /// Takes the memory when the memtable is dropped.
    deferred_reclaim: Option<Arc<DeferredReclaim>>,
}

impl Drop for Memtable {
    fn drop(&mut self) {
        if let Some(deferred_reclaim) = &self.deferred_reclaim {
            let arena = std::mem::replace(&mut self.arena, Arena::none());
            let writer = self.writer.get_mut().take();
            deferred_reclaim.push(arena, std::mem::take(&mut self.trees), writer);
        }
    }
}

impl std::fmt::Debug for Memtable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memtable")
            .field("generation", &self.generation())
            .field("entries", &self.entries())
            .field("used_bytes", &self.used_bytes())
            .finish_non_exhaustive()
    }
}

impl Memtable {
    /// An empty memtable for the trees `0..trees`, which takes about `capacity_bytes` of entries
    /// and indexes. Capacity costs address space; memory is taken as entries come.
    ///
    /// Less than `capacity_bytes` may be granted: offsets reach up to 32 GiB. See
    /// `Memtable::capacity_bytes`.
    #[must_use]
    pub fn new(generation: u64, trees: usize, capacity_bytes: usize) -> Memtable {
        // On top of the capacity: the unit that stands for nothing, and the heads of the lists.
        let fixed_bytes = UNIT + trees * node_bytes(MAX_HEIGHT);
        let capacity_bytes = capacity_bytes
            .min(arena::MAX_BYTES - fixed_bytes)
            .next_multiple_of(UNIT);
        let arena = Arena::new(capacity_bytes + fixed_bytes);
        let mut space = Space::of(&arena);
        let counts = Counts::default();
        let trees: Box<[Tree]> = (0..trees)
            .map(|_| Tree {
                index: HashIndex::new(),
                list: SkipList::new(&arena, &mut space, counts.groups_bytes.clone())
                    .expect("the arena has room for the heads"),
                counts: TreeCounts::default(),
            })
            .collect();
        let writer = Mutex::new(WriterState::new(generation, space, trees.len()));
        Memtable {
            generation,
            capacity_bytes,
            arena,
            trees,
            counts,
            writer,
            deferred_reclaim: None,
        }
    }

    /// When the memtable is dropped, its memory goes to `deferred_reclaim` instead of being freed at once.
    pub fn reclaim_with(&mut self, deferred_reclaim: Arc<DeferredReclaim>) {
        self.deferred_reclaim = Some(deferred_reclaim);
    }

    /// The number given to [`Memtable::new`].
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The right to insert. Waits for another writer to finish; take it once per batch.
    pub fn writer(&self) -> MemtableWriter<'_> {
        MemtableWriter::new(self, self.writer.lock())
    }

    #[inline]
    fn tree(&self, tree: TreeId) -> &Tree {
        &self.trees[usize::from(tree.0)]
    }

    #[inline(always)]
    fn newest_record(&self, tree: TreeId, key: &[u8]) -> Option<Record<'_>> {
        self.tree(tree).index.get(&self.arena, Tag::of(key), key)
    }

    /// The entry of `key` that is visible at revision `at`: the newest entry not above it, which may
    /// be a tombstone. `None` when this memtable does not say.
    ///
    /// # Panics
    /// When `tree` is not one of this memtable's.
    #[must_use]
    #[inline(always)] // With what it calls: the calls and their results in memory cost 3 ns of 70.
    pub fn get(&self, tree: TreeId, key: &[u8], at: Revision) -> Option<Entry<'_>> {
        self.newest_record(tree, key)?
            .visible_at(at)
            .map(Entry::from)
    }

    /// Asks for the memory that look-ups of some keys will read. See [`Memtable::get_tagged`].
    ///
    /// # Panics
    /// When `tree` is not one of this memtable's.
    #[inline]
    pub(crate) fn look_ahead(&self, tree: TreeId, tags: impl Iterator<Item = Tag> + Clone) {
        self.tree(tree).index.look_ahead(&self.arena, tags);
    }

    /// [`Memtable::get`] of a key whose hash is known.
    ///
    /// # Panics
    /// When `tree` is not one of this memtable's.
    #[inline(always)]
    pub(crate) fn get_tagged(
        &self,
        tree: TreeId,
        key: &[u8],
        tag: Tag,
        at: Revision,
    ) -> Option<Entry<'_>> {
        let newest = self.tree(tree).index.get(&self.arena, tag, key);
        newest?.visible_at(at).map(Entry::from)
    }

    /// The newest entry of `key`, visible yet or not.
    ///
    /// # Panics
    /// When `tree` is not one of this memtable's.
    #[must_use]
    #[inline]
    pub fn newest(&self, tree: TreeId, key: &[u8]) -> Option<Entry<'_>> {
        self.newest_record(tree, key).map(Entry::from)
    }

    /// Whether any key in the range has an entry with a revision above `since`.
    ///
    /// Looks at every key in the range, unless nothing in the tree is that new.
    ///
    /// # Panics
    /// When `tree` is not one of this memtable's.
    #[must_use]
    pub fn changed_since(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        since: Revision,
    ) -> bool {
        let tree = self.tree(tree);
        if tree.counts.max_revision.load(Acquire) <= since {
            return false;
        }
        let mut node = match lower {
            Bound::Unbounded => tree.list.first(&self.arena),
            Bound::Included(key) => tree.list.seek(&self.arena, key),
            Bound::Excluded(key) => match tree.list.seek(&self.arena, key) {
                Some(node) if node.key() == key => node.next(0),
                node => node,
            },
        };
        while let Some(candidate) = node {
            let inside = match upper {
                Bound::Unbounded => true,
                Bound::Included(key) => candidate.key() <= key,
                Bound::Excluded(key) => candidate.key() < key,
            };
            if !inside {
                return false;
            }
            if candidate.newest().revision() > since {
                return true;
            }
            node = candidate.next(0);
        }
        false
    }

    /// How many entries there are in all trees: every version counts.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.counts.entries.load(Acquire)
    }

    /// Whether nothing was inserted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// How many entries there are in one tree: every version counts.
    ///
    /// # Panics
    /// When `tree` is not one of this memtable's.
    #[must_use]
    pub(crate) fn tree_entries(&self, tree: TreeId) -> u64 {
        self.tree(tree).counts.entries.load(Acquire)
    }

    /// Bytes taken by entries and indexes, hash arrays included.
    #[must_use]
    pub(crate) fn used_bytes(&self) -> usize {
        let groups_bytes = self.counts.groups_bytes.load(Acquire);
        (self.counts.used_bytes.load(Acquire) + groups_bytes) as usize
    }

    /// Bytes that entries may take. An empty memtable has room for exactly this.
    #[must_use]
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    /// The largest revision inserted; 0 when empty.
    #[must_use]
    pub(crate) fn max_revision(&self) -> Revision {
        self.counts.max_revision.load(Acquire)
    }

    /// The smallest revision inserted; 0 when empty.
    #[must_use]
    pub(crate) fn min_revision(&self) -> Revision {
        self.counts.min_revision.load(Acquire)
    }

    /// The largest log index the writer said it inserted; 0 when it said none.
    #[must_use]
    pub(crate) fn max_index(&self) -> Index {
        self.counts.max_index.load(Acquire)
    }
}
