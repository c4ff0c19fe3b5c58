//! The order of a tree's keys: a skiplist with one node per key.
//!
//! ```text
//! level 1   head ------------> b ----------------> e ---> nothing
//! level 0   head ---> a -----> b ---> c ---> d --> e ---> nothing
//! ```
//!
//! Readers walk it without locks while nodes are added. A node is linked from the lowest level up, each
//! link with `Release` after the node is complete. So a reader sees the whole node or nothing, and every
//! level is always a subsequence of the level below. Nodes are never removed. There are no backward
//! links: the predecessor of a key is found by a search.
//!
//! # Lazy ordering
//!
//! Finding the position of a key is a walk through uncached memory, for each key again. So the writer does
//! not search: it only pushes new nodes onto a chain of unordered nodes, linked by their lowest link. The
//! first reader that needs the order sorts the chain and links its nodes into the list. For many keys at
//! once this is an order of magnitude cheaper per key. Point reads use the hash index and never need the
//! order.
//!
//! ```text
//! unordered ---> x ---> c ---> k ---> nothing        a chain, latest first
//! level 0        head ---> a ---> b ---> d           the next search links c, k and x
//! ```
//!
//! The linking thread keeps the last position (a [`Splice`]) and starts the next search there, only as
//! high as needed: sorted keys cost a few comparisons each.
//!
//! A search for the keys with a prefix asks a hash table of first nodes, once there is one: see `groups`.
//!
//! # Invariants
//!
//! * A node is in the chain, or in the list, or is being moved by the holder of the splice. While nodes
//!   are being moved, `is_taken` is set.
//! * A reader that finds first the chain empty and then `is_taken` unset finds in the list every node
//!   that was added before. The chain was emptied after those nodes were added; `is_taken` was set before
//!   that, and cleared after the last of them was linked.

use std::cmp::Ordering;
use std::sync::Arc;

use super::arena::{Arena, Space};
use super::groups::{GROUP_BYTES, Groups};
use super::record::{MAX_HEIGHT, Node, NodeAt, prefix_of};
use super::sort::{Sorted, sort};
use crate::sync::Mutex;
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// How many nodes from the first of a group on are looked at before a search for a longer prefix.
const STEPS_BEFORE_SEARCH: usize = 8;

/// The keys of one tree, in order.
pub(super) struct SkipList {
    head: NodeAt,
    /// Boxed: a tree takes as few cache lines as without them.
    groups: Box<Groups>,
    unordered: Unordered,
    splice: Mutex<Splice>,
}

/// Nodes that are not in the list yet. On its own cache line, apart from the fields that readers need,
/// since every new key changes it.
#[repr(align(128))]
struct Unordered {
    /// The latest node. The lowest link of each node leads to the node added before it.
    latest: AtomicU32,
    /// Whether nodes that were taken from here are not in the list yet.
    is_taken: AtomicBool,
}

/// An unordered node while it is sorted.
#[derive(Clone, Copy)]
struct Taken {
    part: u64,
    node: NodeAt,
}

impl Sorted for Taken {
    fn node(self) -> NodeAt {
        self.node
    }

    fn part(self) -> u64 {
        self.part
    }

    fn set_part(&mut self, part: u64) {
        self.part = part;
    }
}

impl SkipList {
    /// An empty list. `None` when the arena has no space for its head. The bytes that it takes outside of
    /// the arena are added to `held_bytes`.
    pub(super) fn new(
        arena: &Arena,
        space: &mut Space,
        held_bytes: Arc<AtomicU64>,
    ) -> Option<SkipList> {
        let head = Node::write_head(arena, space)?.at();
        Some(SkipList {
            head,
            groups: Box::new(Groups::new(held_bytes)),
            unordered: Unordered {
                latest: AtomicU32::new(0),
                is_taken: AtomicBool::new(false),
            },
            splice: Mutex::new(Splice([head; MAX_HEIGHT])),
        })
    }

    /// Adds a node with a new key. Only the writer calls it.
    #[inline]
    pub(super) fn add(&self, arena: &Arena, node: Node<'_>) {
        let latest = &self.unordered.latest;
        let mut before = latest.load(Relaxed);
        loop {
            node.set_next(0, NodeAt::from_bits(before).map(|at| Node::new(arena, at)));
            let added = node.at().to_bits();
            // Only a concurrent ordering can change it meanwhile.
            match latest.compare_exchange(before, added, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
    }

    /// Puts every node that was added before this call in its place.
    #[inline]
    fn order(&self, arena: &Arena) {
        let Unordered { latest, is_taken } = &self.unordered;
        if latest.load(Acquire) != 0 || is_taken.load(Acquire) {
            self.link_unordered(arena);
        }
    }

    #[cold]
    fn link_unordered(&self, arena: &Arena) {
        self.link_unordered_by(&mut self.splice.lock(), arena);
    }

    fn link_unordered_by(&self, splice: &mut Splice, arena: &Arena) {
        let Unordered { latest, is_taken } = &self.unordered;
        is_taken.store(true, Relaxed);
        let mut next = NodeAt::from_bits(latest.swap(0, AcqRel));
        let mut taken = Vec::new();
        while let Some(node) = next {
            taken.push(Taken { part: 0, node });
            next = Node::new(arena, node).next(0).map(Node::at);
        }
        sort(arena, &mut taken);
        for it in taken {
            let node = Node::new(arena, it.node);
            splice.seek(self, arena, node.key());
            let before = self.unless_head(Node::new(arena, splice.0[0]));
            splice.link(arena, node);
            self.groups.linked(arena, before, node);
        }
        is_taken.store(false, Release);
    }

    #[cold]
    fn make_groups(&self, arena: &Arena) {
        let mut splice = self.splice.lock();
        self.link_unordered_by(&mut splice, arena);
        self.groups.make(arena, self.head(arena).next(0));
    }

    #[inline]
    fn head<'a>(&self, arena: &'a Arena) -> Node<'a> {
        Node::new(arena, self.head)
    }

    /// The node, unless it is the head, which stands for no key.
    fn unless_head<'a>(&self, node: Node<'a>) -> Option<Node<'a>> {
        (node.at() != self.head).then_some(node)
    }

    /// The smallest key.
    pub(super) fn first<'a>(&self, arena: &'a Arena) -> Option<Node<'a>> {
        self.order(arena);
        self.head(arena).next(0)
    }

    /// The largest key.
    pub(super) fn last<'a>(&self, arena: &'a Arena) -> Option<Node<'a>> {
        self.order(arena);
        let mut node = self.head(arena);
        for level in (0..MAX_HEIGHT).rev() {
            while let Some(next) = node.next(level) {
                node = next;
            }
        }
        self.unless_head(node)
    }

    /// The smallest key at or above `key`.
    pub(super) fn seek<'a>(&self, arena: &'a Arena, key: &[u8]) -> Option<Node<'a>> {
        self.around(arena, key).1
    }

    /// The smallest key that begins with `prefix`. `entries` is how many entries the tree has.
    #[inline]
    pub(super) fn first_with_prefix<'a>(
        &self,
        arena: &'a Arena,
        prefix: &[u8],
        entries: u64,
    ) -> Option<Node<'a>> {
        self.order(arena);
        let Some(group) = prefix.first_chunk() else {
            return self.search_prefix(arena, prefix);
        };
        if !self.groups.is_made() {
            if !self.groups.is_worth_making(entries) {
                return self.search_prefix(arena, prefix);
            }
            self.make_groups(arena);
        }
        let mut node = self.groups.first(arena, group)?;
        if prefix.len() == GROUP_BYTES {
            return Some(node);
        }
        for _ in 0..STEPS_BEFORE_SEARCH {
            if node.key() >= prefix {
                return Some(node).filter(|node| node.key().starts_with(prefix));
            }
            node = node.next(0)?;
        }
        self.search_prefix(arena, prefix)
    }

    fn search_prefix<'a>(&self, arena: &'a Arena, prefix: &[u8]) -> Option<Node<'a>> {
        let found = self.around(arena, prefix).1;
        found.filter(|node| node.key().starts_with(prefix))
    }

    /// The largest key below `key`.
    pub(super) fn before<'a>(&self, arena: &'a Arena, key: &[u8]) -> Option<Node<'a>> {
        self.unless_head(self.around(arena, key).0)
    }

    /// For nodes that are in no list, to be given in ascending order of their keys to this one, which
    /// is empty and not read meanwhile.
    pub(super) fn filler<'a>(&self, arena: &'a Arena) -> Filler<'a> {
        Filler([self.head(arena); MAX_HEIGHT])
    }

    /// The last node below `key` (the head if there is none) and the first one not below it.
    fn around<'a>(&self, arena: &'a Arena, key: &[u8]) -> (Node<'a>, Option<Node<'a>>) {
        self.order(arena);
        let prefix = prefix_of(key);
        let mut below = self.head(arena);
        let mut above = None;
        for level in (0..MAX_HEIGHT).rev() {
            (below, above) = advance(below, above, level, prefix, key);
        }
        (below, above)
    }
}

/// Fills an empty list in order: the last node of each level. See [`SkipList::filler`].
pub(super) struct Filler<'a>([Node<'a>; MAX_HEIGHT]);

impl<'a> Filler<'a> {
    /// Adds a node behind all others.
    pub(super) fn push(&mut self, node: Node<'a>) {
        for (level, last) in self.0[..node.height()].iter_mut().enumerate() {
            last.set_next(level, Some(node));
            *last = node;
        }
    }
}

/// Walks along `level` from a node below the key to the last such node. `bound` is a node known
/// not to be below the key, found one level up: meeting it again needs no comparison.
#[inline]
fn advance<'a>(
    mut below: Node<'a>,
    bound: Option<Node<'a>>,
    level: usize,
    prefix: u64,
    key: &[u8],
) -> (Node<'a>, Option<Node<'a>>) {
    loop {
        let Some(next) = below.next(level) else {
            return (below, None);
        };
        if bound.is_some_and(|bound| bound.at() == next.at())
            || next.compare(prefix, key) != Ordering::Less
        {
            return (below, Some(next));
        }
        below = next;
    }
}

/// Where a node was last put in: at each level, the last node not above its key.
///
/// The gaps from each node to its successor are nested, a higher one around a lower one, because
/// every insertion into the list goes through its one splice.
struct Splice([NodeAt; MAX_HEIGHT]);

impl Splice {
    /// Moves to the gap where `key`, which is not in the list, belongs.
    fn seek(&mut self, list: &SkipList, arena: &Arena, key: &[u8]) {
        let prefix = prefix_of(key);
        let mut below = list.head(arena);
        let mut above = None;
        let mut level = MAX_HEIGHT;
        for (candidate_level, at) in self.0.iter().enumerate() {
            let candidate = Node::new(arena, *at);
            let starts_below = *at == list.head || candidate.compare(prefix, key) == Ordering::Less;
            if !starts_below {
                continue;
            }
            let next = candidate.next(candidate_level);
            if next.is_none_or(|next| next.compare(prefix, key) == Ordering::Greater) {
                (below, above, level) = (candidate, next, candidate_level);
                break;
            }
        }
        for level in (0..level).rev() {
            (below, above) = advance(below, above, level, prefix, key);
            self.0[level] = below.at();
        }
    }

    /// Links a node whose key [`Splice::seek`] was last called with.
    fn link(&mut self, arena: &Arena, node: Node<'_>) {
        let below = &mut self.0[..node.height()];
        for (level, at) in below.iter().enumerate() {
            node.set_next(level, Node::new(arena, *at).next(level));
        }
        for (level, at) in below.iter_mut().enumerate() {
            Node::new(arena, *at).set_next(level, Some(node));
            *at = node.at();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::record::Version;
    use super::*;
    use crate::EntryKind;

    struct Fixture {
        arena: Arena,
        space: Space,
        list: SkipList,
        rng: fastrand::Rng,
    }

    impl Fixture {
        fn new() -> Fixture {
            let arena = Arena::new(1 << 18);
            let mut space = Space::of(&arena);
            let list = SkipList::new(&arena, &mut space, Arc::default()).expect("room");
            Fixture {
                arena,
                space,
                list,
                rng: fastrand::Rng::with_seed(5),
            }
        }

        fn add(&mut self, key: &[u8]) {
            let version = Version {
                key,
                revision: 1,
                kind: EntryKind::Put,
                value: b"",
            };
            let height = self.rng.usize(1..=MAX_HEIGHT);
            let (node, _) =
                Node::write(&self.arena, &mut self.space, height, version).expect("room");
            self.list.add(&self.arena, node);
        }

        fn keys_at(&self, level: usize) -> Vec<Vec<u8>> {
            let mut node = self.list.head(&self.arena);
            std::iter::from_fn(|| {
                node = node.next(level)?;
                Some(node.key().to_vec())
            })
            .collect()
        }
    }

    #[test]
    fn an_empty_list_has_no_ends() {
        let fixture = Fixture::new();
        assert!(fixture.list.first(&fixture.arena).is_none());
        assert!(fixture.list.last(&fixture.arena).is_none());
        assert!(fixture.list.seek(&fixture.arena, b"").is_none());
        assert!(fixture.list.before(&fixture.arena, b"x").is_none());
    }

    #[test]
    fn every_level_is_sorted_in_whatever_order_keys_come() {
        const KEYS: u32 = if cfg!(miri) { 8 } else { 500 };
        for shape in 0..4 {
            let mut fixture = Fixture::new();
            let mut keys: Vec<Vec<u8>> = (0..KEYS)
                .map(|i| format!("{:x}", i * 7919 % 4096).into_bytes())
                .collect();
            keys.push(Vec::new());
            match shape {
                0 => {}
                1 => keys.sort(),
                2 => keys.sort_by(|a, b| b.cmp(a)),
                _ => keys.chunks_mut(20).for_each(<[Vec<u8>]>::sort),
            }
            // In order one by one, some at a time, and all at once.
            let together = [1, 7, 100, usize::MAX][shape];
            for some in keys.chunks(together.min(keys.len())) {
                some.iter().for_each(|key| fixture.add(key));
                fixture.list.order(&fixture.arena);
            }
            let sorted: BTreeSet<Vec<u8>> = keys.into_iter().collect();
            assert!(fixture.keys_at(0).iter().eq(sorted.iter()), "shape {shape}");
            for level in 1..MAX_HEIGHT {
                let below: BTreeSet<Vec<u8>> = fixture.keys_at(level - 1).into_iter().collect();
                let here = fixture.keys_at(level);
                assert!(here.is_sorted() && here.iter().all(|key| below.contains(key)));
            }
        }
    }

    #[test]
    fn seeking_finds_the_neighbors_of_present_and_absent_keys() {
        let mut fixture = Fixture::new();
        const SPAN: u32 = if cfg!(miri) { 10 } else { 1000 };
        let keys: BTreeSet<Vec<u8>> = (0..SPAN * 3 / 10)
            .map(|i| format!("shared-prefix-{:04}", i * 37 % SPAN).into_bytes())
            .collect();
        for key in &keys {
            fixture.add(key);
        }
        for i in 0..=SPAN {
            let probe = format!("shared-prefix-{i:04}").into_bytes();
            let seek = fixture.list.seek(&fixture.arena, &probe).map(Node::key);
            let before = fixture.list.before(&fixture.arena, &probe).map(Node::key);
            assert_eq!(seek, keys.range(probe.clone()..).next().map(Vec::as_slice));
            assert_eq!(before, keys.range(..probe).next_back().map(Vec::as_slice));
        }
        assert_eq!(
            fixture.list.last(&fixture.arena).map(Node::key),
            keys.last().map(Vec::as_slice)
        );
    }
}
