//! The layout of entries in the arena: records (one version of a key) and nodes (one key).
//!
//! ```text
//! record   0        8      12     16      20     24              28          32
//!          | revision | prev | jump | depth | node | kind, key len | value len | key | value | pad
//!
//! node     0        8        12       16
//!          | prefix | newest | height | next[0] .. next[height-1] | pad | first record of the key
//! ```
//!
//! A node and the first record of its key are one reservation, so a scan finds the value next to
//! the link it followed, and the node's key is that record's key. Later records carry the key
//! again: a point read goes from the hash slot straight to the newest record, compares the key
//! there and is done, without the node. `prefix` is the first eight bytes of the key as a
//! big-endian number (zeros after a shorter key), which decides nearly all comparisons in a
//! search without touching the key.
//!
//! # Versions
//!
//! `prev` leads to the next older version. `jump` leads further back, as in Myers' random-access
//! stack: with `depth` counting from the oldest version, the lengths of the jumps are the digits
//! of the depth in skew-binary notation.
//!
//! ```text
//! depth   0   1   2   3   4   5   6   7        a record jumps to where its predecessor's second
//! jump    -   0   1   0   3   4   3   0        jump lands if the predecessor's first two jumps
//!                                              are equally long, else to its predecessor
//! ```
//!
//! So the newest version at or below a revision is at most about `3 log2(n)` steps away: a jump per
//! digit, then at most a step and a jump per halving of what the last jump would skip. The fields
//! are computed from the predecessor alone. Depth 0 has no jump.
//!
//! # Invariants
//!
//! * Revisions fall strictly from a record to its `prev`; `jump` leads to a smaller depth.
//! * A record does not change once something points to it. Its fields are atomics only so that
//!   the header can be viewed without a contract.
//! * [`RecordAt`] and [`NodeAt`] come from writing or from a published link of the same arena,
//!   and every link is stored with `Release` and loaded with `Acquire`: its holder may read the whole
//!   record or node.

#![expect(unsafe_code, reason = "keys and values are plain bytes in the arena")]

use std::cmp::Ordering;
use std::num::NonZeroU32;

use super::arena::{Arena, Shared, Space, UNIT};
pub(super) use crate::codec::prefix_of;
use crate::prefetch::prefetch_from;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicU32, AtomicU64};
use crate::{EntryKind, Revision};

/// The largest number of links of a node. With one node in four reaching the next height, good
/// for 4^12 = 16 million keys, and degrading gently beyond.
pub(super) const MAX_HEIGHT: usize = 12;

/// The longest key a record can describe, in bytes (16 MiB less one).
pub(super) const MAX_KEY_BYTES: usize = (1 << KIND_SHIFT) - 1;

/// The longest value a record can describe, in bytes.
pub(super) const MAX_VALUE_BYTES: usize = u32::MAX as usize;

const KIND_SHIFT: u32 = 24;

/// Cache lines of a node with few links and a key and value of a hundred bytes.
const PREFETCH_LINES: usize = 4;

/// Where a record lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RecordAt(NonZeroU32);

impl RecordAt {
    /// As a number for a hash slot; never 0.
    #[inline]
    pub(super) fn to_bits(self) -> u32 {
        self.0.get()
    }

    /// From a number that [`RecordAt::to_bits`] made; `None` for 0.
    #[inline]
    pub(super) fn from_bits(bits: u32) -> Option<RecordAt> {
        NonZeroU32::new(bits).map(RecordAt)
    }
}

/// The offset of a node. A later node has a higher offset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct NodeAt(NonZeroU32);

impl NodeAt {
    /// As a number for a link; never 0.
    #[inline]
    pub(super) fn to_bits(self) -> u32 {
        self.0.get()
    }

    /// From a number that [`NodeAt::to_bits`] made; `None` for 0.
    #[inline]
    pub(super) fn from_bits(bits: u32) -> Option<NodeAt> {
        NonZeroU32::new(bits).map(NodeAt)
    }
}

#[repr(C)]
struct RecordHeader {
    revision: AtomicU64,
    prev: AtomicU32,
    jump: AtomicU32,
    depth: AtomicU32,
    node: AtomicU32,
    kind_and_key_len: AtomicU32,
    value_len: AtomicU32,
}

// SAFETY: atomics only, no padding (32 bytes), valid as zeros, aligned to 8.
unsafe impl Shared for RecordHeader {}

const RECORD_HEADER: usize = size_of::<RecordHeader>();
const _: () = assert!(RECORD_HEADER == 32);

#[repr(C)]
struct NodeHeader {
    prefix: AtomicU64,
    newest: AtomicU32,
    height: AtomicU32,
}

// SAFETY: atomics only, no padding (16 bytes), valid as zeros, aligned to 8.
unsafe impl Shared for NodeHeader {}

const NODE_HEADER: usize = size_of::<NodeHeader>();
const _: () = assert!(NODE_HEADER == 16);

/// Bytes of a node with `height` links, up to the first record.
#[inline]
pub(super) const fn node_bytes(height: usize) -> usize {
    (NODE_HEADER + height * size_of::<AtomicU32>()).next_multiple_of(UNIT)
}

/// Bytes of a record.
#[inline]
pub(super) const fn record_bytes(key_len: usize, value_len: usize) -> usize {
    RECORD_HEADER
        .saturating_add(key_len)
        .saturating_add(value_len)
        .saturating_add(UNIT - 1)
        / UNIT
        * UNIT
}

/// One version, as the writer passes it.
#[derive(Clone, Copy)]
pub(super) struct Version<'a> {
    pub(super) key: &'a [u8],
    pub(super) revision: Revision,
    pub(super) kind: EntryKind,
    pub(super) value: &'a [u8],
}

/// One version of a key, in the arena.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    arena: &'a Arena,
    header: &'a RecordHeader,
    at: RecordAt,
}

impl<'a> Record<'a> {
    #[inline]
    pub(super) fn new(arena: &'a Arena, at: RecordAt) -> Record<'a> {
        Record {
            arena,
            header: arena.view(at.to_bits(), 0),
            at,
        }
    }

    fn linked(self, link: &AtomicU32) -> Option<Record<'a>> {
        RecordAt::from_bits(link.load(Relaxed)).map(|at| Record::new(self.arena, at))
    }

    #[inline]
    pub(super) fn at(self) -> RecordAt {
        self.at
    }

    #[inline]
    pub(super) fn revision(self) -> Revision {
        self.header.revision.load(Relaxed)
    }

    #[inline]
    pub(super) fn kind(self) -> EntryKind {
        let byte = (self.header.kind_and_key_len.load(Relaxed) >> KIND_SHIFT) as u8;
        EntryKind::from_byte(byte).expect("a record is written with a kind")
    }

    #[inline]
    fn key_len(self) -> usize {
        self.header.kind_and_key_len.load(Relaxed) as usize & MAX_KEY_BYTES
    }

    #[inline]
    pub(super) fn key(self) -> &'a [u8] {
        // SAFETY: the record was whole before `at` was published (the module's invariants).
        unsafe {
            self.arena
                .bytes(self.at.to_bits(), RECORD_HEADER, self.key_len())
        }
    }

    #[inline]
    pub(super) fn value(self) -> &'a [u8] {
        let len = self.header.value_len.load(Relaxed) as usize;
        // SAFETY: as for `key`.
        unsafe {
            self.arena
                .bytes(self.at.to_bits(), RECORD_HEADER + self.key_len(), len)
        }
    }

    /// The node of the key.
    #[inline]
    pub(super) fn node(self) -> Node<'a> {
        let at = NonZeroU32::new(self.header.node.load(Relaxed));
        Node::new(
            self.arena,
            NodeAt(at.expect("a record is written with its node")),
        )
    }

    /// The next older version.
    #[inline]
    pub(super) fn prev(self) -> Option<Record<'a>> {
        self.linked(&self.header.prev)
    }

    /// A version further back; `None` for the oldest only.
    fn jump(self) -> Option<Record<'a>> {
        self.linked(&self.header.jump)
    }

    fn depth(self) -> u32 {
        self.header.depth.load(Relaxed)
    }

    /// Where the record after this one jumps to.
    fn jump_of_next(self) -> Record<'a> {
        let first = self.jump().unwrap_or(self);
        let second = first.jump().unwrap_or(first);
        if self.depth() - first.depth() == first.depth() - second.depth() {
            second
        } else {
            self
        }
    }

    /// The newest version, from this one backwards, with a revision not above `limit`.
    #[inline]
    pub(super) fn visible_at(self, limit: Revision) -> Option<Record<'a>> {
        if self.revision() <= limit {
            Some(self)
        } else {
            self.older_at(limit, &mut 0)
        }
    }

    /// [`Record::visible_at`] for a record above the limit, counting the records it looks at.
    fn older_at(self, limit: Revision, steps: &mut u32) -> Option<Record<'a>> {
        let mut newer = self;
        loop {
            *steps += 1;
            newer = match newer.jump().filter(|jump| jump.revision() > limit) {
                Some(jump) => jump,
                None => {
                    let prev = newer.prev()?;
                    if prev.revision() <= limit {
                        return Some(prev);
                    }
                    prev
                }
            };
        }
    }

    /// Puts this record, of `revision`, into the chain behind `newest`.
    fn follow(self, newest: Record<'_>, revision: Revision) {
        let (prev, jump, depth) = if newest.revision() == revision {
            let old = newest.header;
            (
                old.prev.load(Relaxed),
                old.jump.load(Relaxed),
                newest.depth(),
            )
        } else {
            let jump = newest.jump_of_next().at.to_bits();
            (newest.at.to_bits(), jump, newest.depth() + 1)
        };
        self.header.prev.store(prev, Relaxed);
        self.header.jump.store(jump, Relaxed);
        self.header.depth.store(depth, Relaxed);
    }

    /// Writes a record at a reserved place that nothing points to yet.
    ///
    /// A record with the revision of the one it follows takes that one's place in the chain:
    /// readers that come from the new one never meet the old one.
    fn write(
        arena: &'a Arena,
        place: NonZeroU32,
        node: NodeAt,
        newest: Option<Record<'a>>,
        version: Version<'_>,
    ) -> Record<'a> {
        let record = Record::new(arena, RecordAt(place));
        let header = record.header;
        if let Some(newest) = newest {
            record.follow(newest, version.revision);
        }
        let kind = u32::from(version.kind as u8) << KIND_SHIFT;
        header.revision.store(version.revision, Relaxed);
        header.node.store(node.0.get(), Relaxed);
        header
            .kind_and_key_len
            .store(kind | version.key.len() as u32, Relaxed);
        header.value_len.store(version.value.len() as u32, Relaxed);
        let key_at = RECORD_HEADER;
        let value_at = RECORD_HEADER + version.key.len();
        // SAFETY: `place` was reserved for this record, and its offset is published only after
        // this function has returned.
        unsafe {
            arena.write(place.get(), key_at, version.key);
            arena.write(place.get(), value_at, version.value);
        }
        record
    }
}

/// One key, in the arena.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    arena: &'a Arena,
    header: &'a NodeHeader,
    at: NodeAt,
}

impl<'a> Node<'a> {
    #[inline]
    pub(super) fn new(arena: &'a Arena, at: NodeAt) -> Node<'a> {
        Node {
            arena,
            header: arena.view(at.0.get(), 0),
            at,
        }
    }

    /// The start of a list: a node of full height that stands for no key. `None` without room.
    pub(super) fn write_head(arena: &'a Arena, space: &mut Space) -> Option<Node<'a>> {
        let place = space.reserve(node_bytes(MAX_HEIGHT))?;
        let node = Node::new(arena, NodeAt(place));
        node.header.height.store(MAX_HEIGHT as u32, Relaxed);
        Some(node)
    }

    /// A node that is in no list yet, with its first version. `None` without room.
    pub(super) fn write(
        arena: &'a Arena,
        space: &mut Space,
        height: usize,
        version: Version<'_>,
    ) -> Option<(Node<'a>, Record<'a>)> {
        let node_len = node_bytes(height);
        let record_len = record_bytes(version.key.len(), version.value.len());
        let place = space.reserve(node_len.saturating_add(record_len))?;
        let node = Node::new(arena, NodeAt(place));
        node.header.prefix.store(prefix_of(version.key), Relaxed);
        node.header.height.store(height as u32, Relaxed);
        let record_place = place.checked_add((node_len / UNIT) as u32)?;
        let record = Record::write(arena, record_place, node.at, None, version);
        node.header.newest.store(record.at.to_bits(), Release);
        Some((node, record))
    }

    /// Writes a version at least as new as the node's newest, without a link to it. `None` without
    /// room.
    pub(super) fn prepare_version(
        self,
        space: &mut Space,
        newest: Record<'a>,
        version: Version<'_>,
    ) -> Option<Record<'a>> {
        let place = space.reserve(record_bytes(version.key.len(), version.value.len()))?;
        Some(Record::write(
            self.arena,
            place,
            self.at,
            Some(newest),
            version,
        ))
    }

    /// The first version that was written with the node.
    pub(super) fn first(self) -> Record<'a> {
        let at = self
            .at
            .0
            .checked_add((node_bytes(self.height()) / UNIT) as u32);
        let at = at.expect("a node ends inside the arena");
        Record::new(self.arena, RecordAt(at))
    }

    /// Makes the version that `other` was written with, and which is at least as new as the newest
    /// of this node, the newest of this one. `other` is discarded. Neither has readers yet.
    pub(super) fn take_version(self, other: Node<'a>) {
        let record = other.first();
        record.follow(self.newest(), record.revision());
        record.header.node.store(self.at.0.get(), Relaxed);
        self.publish_version(record);
    }

    /// Makes a prepared version the node's newest.
    #[inline]
    pub(super) fn publish_version(self, record: Record<'_>) {
        self.header.newest.store(record.at.to_bits(), Release);
    }

    #[inline]
    pub(super) fn at(self) -> NodeAt {
        self.at
    }

    #[inline]
    pub(super) fn height(self) -> usize {
        self.header.height.load(Relaxed) as usize
    }

    /// Asks for the memory of the node and of the first record of its key, or of the start of a
    /// long one.
    #[inline]
    pub(super) fn prefetch(self) {
        prefetch_from(self.header, PREFETCH_LINES);
    }

    /// The newest version of the key. Not for the head of a list, which has none.
    #[inline]
    pub(super) fn newest(self) -> Record<'a> {
        let at = RecordAt::from_bits(self.header.newest.load(Acquire));
        Record::new(
            self.arena,
            at.expect("a node is linked after its first record"),
        )
    }

    /// The key. Not for the head of a list, which has none.
    #[inline]
    pub(super) fn key(self) -> &'a [u8] {
        self.first().key()
    }

    /// How the node's key compares with `key`, whose prefix is `prefix`.
    #[inline]
    pub(super) fn compare(self, prefix: u64, key: &[u8]) -> Ordering {
        let by_prefix = self.header.prefix.load(Relaxed).cmp(&prefix);
        if by_prefix == Ordering::Equal {
            self.key().cmp(key)
        } else {
            by_prefix
        }
    }

    /// The link at `level`, which is below the node's height.
    #[inline]
    fn link(self, level: usize) -> &'a AtomicU32 {
        debug_assert!(level < self.height());
        self.arena.view(
            self.at.0.get(),
            NODE_HEADER + level * size_of::<AtomicU32>(),
        )
    }

    #[inline]
    pub(super) fn next(self, level: usize) -> Option<Node<'a>> {
        let at = NonZeroU32::new(self.link(level).load(Acquire))?;
        Some(Node::new(self.arena, NodeAt(at)))
    }

    /// Makes `next` follow this node at `level`. Only the writer calls it.
    #[inline]
    pub(super) fn set_next(self, level: usize, next: Option<Node<'_>>) {
        self.link(level)
            .store(next.map_or(0, |next| next.at.0.get()), Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(key: &[u8], revision: Revision) -> Version<'_> {
        Version {
            key,
            revision,
            kind: EntryKind::Put,
            value: b"value",
        }
    }

    fn add<'a>(space: &mut Space, newest: Record<'a>, version: Version<'_>) -> Record<'a> {
        let node = newest.node();
        let record = node.prepare_version(space, newest, version).expect("room");
        assert_eq!(
            node.newest().at(),
            newest.at(),
            "not reachable before it is published"
        );
        node.publish_version(record);
        record
    }

    #[test]
    fn prefixes_order_as_their_keys_do_unless_they_are_equal() {
        let keys: [&[u8]; 9] = [
            b"",
            b"\0",
            b"\0\0",
            b"a",
            b"a\0",
            b"abcdefgh",
            b"abcdefgh\0",
            b"abcdefgi",
            b"\xff",
        ];
        for (i, left) in keys.iter().enumerate() {
            for right in &keys[i + 1..] {
                assert!(prefix_of(left) <= prefix_of(right), "{left:?} {right:?}");
            }
        }
        assert_eq!(prefix_of(b"a"), prefix_of(b"a\0"));
        assert!(prefix_of(b"abcdefgh") < prefix_of(b"abcdefgi"));
    }

    #[test]
    fn a_node_lies_right_before_its_first_record_and_shares_its_key() {
        let arena = Arena::new(1 << 12);
        let mut space = Space::of(&arena);
        for height in 1..=MAX_HEIGHT {
            let (node, record) =
                Node::write(&arena, &mut space, height, version(b"key", 7)).expect("room");
            assert_eq!(
                (record.at.to_bits() - node.at.0.get()) as usize * UNIT,
                node_bytes(height)
            );
            assert_eq!(
                (node.key(), record.key(), record.value()),
                (&b"key"[..], &b"key"[..], &b"value"[..])
            );
            assert_eq!(node.newest().at(), record.at());
            assert!(record.node().at() == node.at() && record.prev().is_none());
        }
    }

    #[test]
    fn jumps_follow_the_skew_binary_pattern() {
        let arena = Arena::new(1 << 12);
        let mut space = Space::of(&arena);
        let (_, mut newest) = Node::write(&arena, &mut space, 1, version(b"k", 10)).expect("room");
        let mut by_depth = vec![newest.at()];
        let mut jumps = Vec::new();
        for revision in 11..20 {
            newest = add(&mut space, newest, version(b"k", revision));
            let jump = newest.jump().expect("only the oldest has none").at();
            jumps.push(
                by_depth
                    .iter()
                    .position(|at| *at == jump)
                    .expect("an older record"),
            );
            by_depth.push(newest.at());
        }
        assert_eq!(jumps, [0, 1, 0, 3, 4, 3, 0, 7, 8]);
    }

    #[test]
    fn any_of_many_versions_is_found_in_logarithmic_steps() {
        const VERSIONS: u64 = if cfg!(miri) { 100 } else { 50_000 };
        let arena = Arena::new(VERSIONS as usize * 80);
        let mut space = Space::of(&arena);
        // Even revisions only, so that odd ones fall between two versions.
        let (_, mut newest) = Node::write(&arena, &mut space, 1, version(b"k", 2)).expect("room");
        for revision in 2..=VERSIONS {
            newest = add(&mut space, newest, version(b"k", 2 * revision));
        }
        let bound = 3 * VERSIONS.ilog2() + 3;
        let mut most = 0;
        for limit in (0..2 * VERSIONS).step_by(7) {
            let mut steps = 0;
            let found = newest.older_at(limit, &mut steps).map(Record::revision);
            assert_eq!(found, Some(limit & !1).filter(|found| *found > 0));
            most = most.max(steps);
        }
        assert!(most <= bound, "{most} steps, at most {bound} expected");
        assert!(
            most > VERSIONS.ilog2() / 2,
            "the count of steps must count: {most}"
        );
    }

    #[test]
    fn a_record_of_the_same_revision_takes_the_place_of_the_older_one() {
        let arena = Arena::new(1 << 12);
        let mut space = Space::of(&arena);
        let (_, first) = Node::write(&arena, &mut space, 1, version(b"k", 1)).expect("room");
        let second = add(&mut space, first, version(b"k", 2));
        let again = Version {
            kind: EntryKind::Delete,
            value: b"",
            ..version(b"k", 2)
        };
        let third = add(&mut space, second, again);
        assert_eq!(third.prev().map(Record::at), Some(first.at()));
        assert_eq!((third.depth(), third.kind()), (1, EntryKind::Delete));
        assert_eq!(third.visible_at(1).map(Record::at), Some(first.at()));
        assert!(third.visible_at(0).is_none());
        assert_eq!(
            second.kind(),
            EntryKind::Put,
            "readers that hold it still read it whole"
        );
    }
}
