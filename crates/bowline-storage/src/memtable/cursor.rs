//! Walking a memtable in key order.
//!
//! A cursor owns a share of its memtable and remembers places in it, so it can be kept, sent to
//! another thread, and outlive the engine's own reference. It takes no lock; entries inserted
//! meanwhile appear or not, and those above the revision it reads at never do.
//!
//! A new cursor, and one that ran off either end, is not valid: it shows nothing and stays so
//! until the next seek. Going back costs a search, since the list has no links backwards.

use std::sync::Arc;

use super::groups::GROUP_BYTES;
use super::record::{Node, NodeAt, Record, RecordAt};
use super::{Memtable, Tree};
use crate::{EntryKind, Revision, TreeId};

/// Where a cursor stands.
#[derive(Clone, Copy, Debug)]
struct Position {
    node: NodeAt,
    record: RecordAt,
}

impl Position {
    fn new(node: Node<'_>, record: Record<'_>) -> Position {
        Position {
            node: node.at(),
            record: record.at(),
        }
    }
}

/// A memtable's tree, and a place in it.
#[derive(Debug)]
struct Walk {
    memtable: Arc<Memtable>,
    tree: TreeId,
    position: Option<Position>,
}

impl Walk {
    fn new(memtable: &Arc<Memtable>, tree: TreeId) -> Walk {
        Walk {
            memtable: Arc::clone(memtable),
            tree,
            position: None,
        }
    }

    #[inline]
    fn tree(&self) -> &Tree {
        self.memtable.tree(self.tree)
    }

    fn first(&self) -> Option<Node<'_>> {
        self.tree().list.first(&self.memtable.arena)
    }

    fn last(&self) -> Option<Node<'_>> {
        self.tree().list.last(&self.memtable.arena)
    }

    fn at_or_after(&self, key: &[u8]) -> Option<Node<'_>> {
        self.tree().list.seek(&self.memtable.arena, key)
    }

    fn before(&self, key: &[u8]) -> Option<Node<'_>> {
        self.tree().list.before(&self.memtable.arena, key)
    }

    #[inline]
    fn node(&self) -> Option<Node<'_>> {
        self.position
            .map(|position| Node::new(&self.memtable.arena, position.node))
    }

    #[inline]
    fn record(&self) -> Record<'_> {
        let position = self.position.expect("the cursor is valid");
        Record::new(&self.memtable.arena, position.record)
    }
}

/// The versions of one tree visible at one revision: for each key, the newest entry not above that
/// revision, tombstones included. Keys that are newer altogether are not there.
#[derive(Debug)]
pub struct MemtableReadCursor {
    walk: Walk,
    at: Revision,
}

impl MemtableReadCursor {
    /// The first visible entry from `node` on.
    fn forward(&self, mut node: Option<Node<'_>>) -> Option<Position> {
        loop {
            let candidate = node?;
            let next = candidate.next(0);
            if let Some(next) = next {
                // Processing this entry takes about as long as a load from memory.
                next.prefetch();
            }
            if let Some(record) = candidate.newest().visible_at(self.at) {
                return Some(Position::new(candidate, record));
            }
            node = next;
        }
    }

    /// The last visible entry up to `node`.
    fn backward<'a>(&'a self, mut node: Option<Node<'a>>) -> Option<Position> {
        loop {
            let candidate = node?;
            if let Some(record) = candidate.newest().visible_at(self.at) {
                return Some(Position::new(candidate, record));
            }
            node = self.walk.before(candidate.key());
        }
    }

    /// Goes to the smallest key.
    pub fn seek_first(&mut self) {
        self.walk.position = self.forward(self.walk.first());
    }

    /// Goes to the largest key.
    pub(crate) fn seek_last(&mut self) {
        self.walk.position = self.backward(self.walk.last());
    }

    /// Goes to the smallest key at or above `key`.
    pub fn seek(&mut self, key: &[u8]) {
        self.walk.position = self.forward(self.walk.at_or_after(key));
    }

    /// Goes to the largest key below `key`.
    pub(crate) fn seek_before(&mut self, key: &[u8]) {
        self.walk.position = self.backward(self.walk.before(key));
    }

    /// Goes to the next larger key. A cursor that is not valid stays so.
    #[inline]
    pub fn next(&mut self) {
        let next = self.walk.node().and_then(|node| node.next(0));
        self.walk.position = self.forward(next);
    }

    /// Goes to the next smaller key. A cursor that is not valid stays so.
    pub(crate) fn prev(&mut self) {
        let before = self
            .walk
            .node()
            .and_then(|node| self.walk.before(node.key()));
        self.walk.position = self.backward(before);
    }
}

/// Every version of every key of one tree: keys ascending, and revisions of a key descending.
/// Forward only; made for the flush.
#[derive(Debug)]
pub(crate) struct MemtableVersionCursor {
    walk: Walk,
}

impl MemtableVersionCursor {
    fn newest_of(node: Option<Node<'_>>) -> Option<Position> {
        node.map(|node| Position::new(node, node.newest()))
    }

    /// Goes to the newest version of the smallest key.
    pub fn seek_first(&mut self) {
        self.walk.position = Self::newest_of(self.walk.first());
    }

    /// Goes to the newest version of the smallest key at or above `key`.
    pub fn seek(&mut self, key: &[u8]) {
        self.walk.position = Self::newest_of(self.walk.at_or_after(key));
    }

    /// Goes to the next older version, or else to the newest version of the next larger key. A
    /// cursor that is not valid stays so.
    #[inline]
    pub fn next(&mut self) {
        let Some(node) = self.walk.node() else { return };
        self.walk.position = match self.walk.record().prev() {
            Some(older) => Some(Position::new(node, older)),
            None => Self::newest_of(node.next(0)),
        };
    }
}

/// The versions visible at one revision of the keys that begin with a prefix, in order, tombstones
/// included. It borrows its memtable, and always stands on a version.
#[derive(Clone, Copy)]
pub struct PrefixCursor<'a> {
    node: Node<'a>,
    record: Record<'a>,
}

impl std::fmt::Debug for PrefixCursor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PrefixCursor").field(&self.key()).finish()
    }
}

impl<'a> PrefixCursor<'a> {
    /// The first visible version from `node` on, whose newest version is `newest`, and whose key begins
    /// with `prefix`.
    #[inline]
    fn from(
        mut node: Node<'a>,
        mut newest: Record<'a>,
        prefix: &[u8],
        at: Revision,
    ) -> Option<PrefixCursor<'a>> {
        loop {
            if let Some(record) = newest.visible_at(at) {
                return Some(PrefixCursor { node, record });
            }
            (node, newest) = next_with_prefix(node, prefix)?;
        }
    }

    /// The version of the next key with the prefix, the one that the cursor came from, at the same
    /// revision.
    #[must_use]
    #[inline]
    pub fn next(self, prefix: &[u8], at: Revision) -> Option<PrefixCursor<'a>> {
        let (node, newest) = next_with_prefix(self.node, prefix)?;
        PrefixCursor::from(node, newest, prefix, at)
    }

    /// The key.
    #[must_use]
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        self.record.key()
    }

    /// Whether the version sets the key or deletes it.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> EntryKind {
        self.record.kind()
    }
}

/// The next node if its key begins with `prefix`, and its newest version. The key is taken from there,
/// since that is what is read next.
#[inline]
fn next_with_prefix<'a>(node: Node<'a>, prefix: &[u8]) -> Option<(Node<'a>, Record<'a>)> {
    let next = node.next(0)?;
    let newest = next.newest();
    starts_with(newest.key(), prefix).then_some((next, newest))
}

/// `key.starts_with(prefix)`, without a call for the length of a group.
#[inline]
fn starts_with(key: &[u8], prefix: &[u8]) -> bool {
    match prefix.split_first_chunk::<GROUP_BYTES>() {
        Some((group, rest)) => {
            key.first_chunk() == Some(group)
                && (rest.is_empty() || key[GROUP_BYTES..].starts_with(rest))
        }
        None => key.starts_with(prefix),
    }
}

macro_rules! show_the_entry {
    ($cursor:ty) => {
        impl $cursor {
            /// Whether the cursor stands on an entry.
            #[must_use]
            #[inline]
            pub fn valid(&self) -> bool {
                self.walk.position.is_some()
            }

            /// The key.
            ///
            /// # Panics
            /// When the cursor is not valid.
            #[must_use]
            #[inline]
            pub fn key(&self) -> &[u8] {
                self.walk.record().key()
            }

            /// The revision that wrote the entry.
            ///
            /// # Panics
            /// When the cursor is not valid.
            #[must_use]
            #[inline]
            pub fn revision(&self) -> Revision {
                self.walk.record().revision()
            }

            /// Whether the entry sets the key or deletes it.
            ///
            /// # Panics
            /// When the cursor is not valid.
            #[must_use]
            #[inline]
            pub fn kind(&self) -> EntryKind {
                self.walk.record().kind()
            }

            /// The value.
            ///
            /// # Panics
            /// When the cursor is not valid.
            #[must_use]
            #[inline]
            pub fn value(&self) -> &[u8] {
                self.walk.record().value()
            }
        }
    };
}

show_the_entry!(MemtableReadCursor);
show_the_entry!(MemtableVersionCursor);

impl Memtable {
    /// A cursor on the first version visible at revision `at` of the keys of `tree` that begin with
    /// `prefix`, if there is one.
    ///
    /// # Panics
    /// When `tree` is not one of this memtable's.
    #[must_use]
    #[inline]
    pub fn first_with_prefix(
        &self,
        tree: TreeId,
        prefix: &[u8],
        at: Revision,
    ) -> Option<PrefixCursor<'_>> {
        let (list, entries) = (&self.tree(tree).list, self.tree_entries(tree));
        if entries == 0 {
            return None;
        }
        let first = list.first_with_prefix(&self.arena, prefix, entries)?;
        PrefixCursor::from(first, first.newest(), prefix, at)
    }

    /// A cursor over the versions of `tree` visible at revision `at`. Not valid until it seeks.
    #[must_use]
    pub fn read_cursor(self: &Arc<Self>, tree: TreeId, at: Revision) -> MemtableReadCursor {
        MemtableReadCursor {
            walk: Walk::new(self, tree),
            at,
        }
    }

    /// A cursor over all versions in `tree`. Not valid until it seeks.
    #[must_use]
    pub(crate) fn version_cursor(self: &Arc<Self>, tree: TreeId) -> MemtableVersionCursor {
        MemtableVersionCursor {
            walk: Walk::new(self, tree),
        }
    }
}
