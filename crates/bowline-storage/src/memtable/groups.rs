//! The groups of a list: where the keys with the same first sixteen bytes begin.
//!
//! The edges of a block begin with its id, and a traversal asks for those of one block after the other,
//! of many blocks that have none. A search in the list is a walk through about two dozen nodes each time.
//! A hash table answers with one slot and one node, and that there are none with one slot.
//!
//! ```text
//! slot, 64 bits    | tag: 32 bits of the hash of the first bytes | first node of the group: 32 bits |
//! ```
//!
//! An empty slot is 0. The search for a group starts at the slot given by the high bits of its tag and
//! probes the following ones. The array doubles when it is two thirds full, as that of the hash index
//! does: the old arrays stay, and readers continue in them.
//!
//! The table is made once searches for prefixes have cost about as much as making it. So trees that are
//! never read by prefix have none, and one such read of many keys does not pay for it.
//!
//! # Invariants
//!
//! * Only the holder of the list's splice changes anything, after it has linked the node. A reader that
//!   has ordered the list finds the group of every node that was added before, at its first node.
//! * Slots never become empty, and the group of a slot never changes: only its first node does.

use std::sync::{Arc, OnceLock};

use super::arena::Arena;
use super::record::{Node, NodeAt};
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicU64, AtomicUsize};

/// How many first bytes the keys of a group have in common.
pub(super) const GROUP_BYTES: usize = 16;
/// The first bytes of a key.
pub(super) type Group = [u8; GROUP_BYTES];

/// The first array has at least two to this power slots. Where interleavings are tried, the array
/// doubles from the second group on.
const FIRST_BITS: u32 = if cfg!(any(bowline_shuttle, miri)) {
    1
} else {
    6
};
/// Slots of the last array: 2^31, more than an arena has groups.
const LAST_BITS: u32 = 31;
const ARRAYS: usize = (LAST_BITS - FIRST_BITS + 1) as usize;

/// A search of the list costs as much as adding about so many of its nodes to the table.
const NODES_PER_SEARCH: u64 = if cfg!(any(bowline_shuttle, miri)) {
    1 << 32
} else {
    32
};

/// See the module's head.
pub(super) struct Groups {
    /// The array at `n` has 2^(`FIRST_BITS` + n) slots.
    arrays: [OnceLock<Box<[AtomicU64]>>; ARRAYS],
    /// The number of the array in use, from 1 on; 0 while there is none.
    in_use: AtomicUsize,
    /// How many groups there are. Only the holder of the splice reads it.
    count: AtomicU64,
    /// How many searches the list answered while there was no table.
    searches: AtomicU64,
    /// The bytes of all arrays are added to this.
    held_bytes: Arc<AtomicU64>,
}

/// The group of a key. A shorter key has none.
#[inline]
fn group_of<'a>(node: Node<'a>) -> Option<&'a Group> {
    node.key().first_chunk()
}

/// The hash of a group: both halves of it multiplied, and the halves of the product folded, as wyhash
/// does (<https://github.com/wangyi-fudan/wyhash>).
#[inline]
fn tag_of(group: &Group) -> u32 {
    const ODD: [u64; 2] = [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db];
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        (product as u64) ^ (product >> 64) as u64
    };
    let bits = u128::from_le_bytes(*group);
    let (low, high) = (bits as u64, (bits >> 64) as u64);
    (fold(fold(low ^ ODD[0], high ^ ODD[1]), ODD[0]) >> 32) as u32
}

impl Groups {
    pub(super) fn new(held_bytes: Arc<AtomicU64>) -> Groups {
        Groups {
            arrays: [const { OnceLock::new() }; ARRAYS],
            in_use: AtomicUsize::new(0),
            count: AtomicU64::new(0),
            searches: AtomicU64::new(0),
            held_bytes,
        }
    }

    /// Whether there is a table.
    #[inline]
    pub(super) fn is_made(&self) -> bool {
        self.in_use.load(Acquire) != 0
    }

    /// Counts a search that the list of at most `nodes` nodes must answer. Says whether to make the table.
    pub(super) fn is_worth_making(&self, nodes: u64) -> bool {
        let searches = 1 + self.searches.fetch_add(1, Relaxed);
        searches.saturating_mul(NODES_PER_SEARCH) >= nodes
    }

    /// The first node of a group. The caller has ordered the list, and then found that there is a table.
    #[inline]
    pub(super) fn first<'a>(&self, arena: &'a Arena, group: &Group) -> Option<Node<'a>> {
        let slots = self.slots(self.in_use.load(Acquire))?;
        probe(slots, arena, tag_of(group), group).1
    }

    #[inline]
    fn slots(&self, in_use: usize) -> Option<&[AtomicU64]> {
        self.arrays
            .get(in_use.wrapping_sub(1))?
            .get()
            .map(|slots| &**slots)
    }

    /// Makes the table of a list that begins with `first`. The caller holds the splice, and no node
    /// is unordered.
    pub(super) fn make(&self, arena: &Arena, first: Option<Node<'_>>) {
        if self.is_made() {
            return;
        }
        let mut starts = Vec::new();
        let mut before = None;
        let mut next = first;
        while let Some(node) = next {
            next = node.next(0);
            if let Some(next) = next {
                next.prefetch();
            }
            let group = group_of(node);
            if group.is_some() && group != before {
                starts.push(node);
            }
            before = group;
        }
        let wanted_slots = (starts.len() as u64 * 3 / 2 + 1).next_power_of_two();
        let bits = wanted_slots.trailing_zeros().clamp(FIRST_BITS, LAST_BITS);
        let Some(slots) = self.new_array(bits) else {
            return;
        };
        for node in &starts {
            if let Some(group) = group_of(*node) {
                put(slots, arena, group, *node);
            }
        }
        self.count.store(starts.len() as u64, Relaxed);
        self.in_use.store((bits - FIRST_BITS) as usize + 1, Release);
    }

    /// Takes note of a node that was linked behind `before`. The caller holds the splice.
    #[inline]
    pub(super) fn linked(&self, arena: &Arena, before: Option<Node<'_>>, node: Node<'_>) {
        let in_use = self.in_use.load(Relaxed);
        if in_use == 0 {
            return;
        }
        let Some(group) = group_of(node) else { return };
        if before.and_then(group_of) != Some(group) {
            self.begin(arena, in_use, group, node);
        }
    }

    /// Makes `node` the first one of its group.
    fn begin(&self, arena: &Arena, in_use: usize, group: &Group, node: Node<'_>) {
        let Some(mut slots) = self.slots(in_use) else {
            return;
        };
        let count = self.count.load(Relaxed) + 1;
        let mut published = in_use;
        if count * 3 > slots.len() as u64 * 2
            && let Some(larger) = self.new_array(FIRST_BITS + in_use as u32)
        {
            for slot in slots {
                let bits = slot.load(Relaxed);
                if bits != 0 {
                    larger[free(larger, (bits >> 32) as u32)].store(bits, Relaxed);
                }
            }
            (slots, published) = (larger, in_use + 1);
        }
        if put(slots, arena, group, node) {
            self.count.store(count, Relaxed);
        }
        self.in_use.store(published, Release);
    }

    fn new_array(&self, bits: u32) -> Option<&[AtomicU64]> {
        let array = self.arrays.get((bits - FIRST_BITS) as usize)?;
        let made = array.get_or_init(|| {
            let len = 1usize << bits;
            self.held_bytes.fetch_add(8 * len as u64, Relaxed);
            (0..len).map(|_| AtomicU64::new(0)).collect()
        });
        Some(made)
    }
}

/// The slot of a group, or the empty one that it would get; and its first node. Ends, since a third of
/// the slots are empty.
#[inline]
fn probe<'a>(
    slots: &[AtomicU64],
    arena: &'a Arena,
    tag: u32,
    group: &Group,
) -> (usize, Option<Node<'a>>) {
    let mut position = start(slots, tag);
    loop {
        let bits = slots[position].load(Acquire);
        let Some(at) = NodeAt::from_bits(bits as u32) else {
            return (position, None);
        };
        if (bits >> 32) as u32 == tag {
            let node = Node::new(arena, at);
            if group_of(node) == Some(group) {
                return (position, Some(node));
            }
        }
        position = (position + 1) & (slots.len() - 1);
    }
}

/// Stores the first node of a group. Says whether the group is new.
fn put(slots: &[AtomicU64], arena: &Arena, group: &Group, node: Node<'_>) -> bool {
    let tag = tag_of(group);
    let (position, found) = probe(slots, arena, tag, group);
    let bits = u64::from(tag) << 32 | u64::from(node.at().to_bits());
    slots[position].store(bits, Release);
    found.is_none()
}

/// The first empty slot for a tag that has none in this array, which has no readers yet.
fn free(slots: &[AtomicU64], tag: u32) -> usize {
    let mut position = start(slots, tag);
    while slots[position].load(Relaxed) != 0 {
        position = (position + 1) & (slots.len() - 1);
    }
    position
}

#[inline]
fn start(slots: &[AtomicU64], tag: u32) -> usize {
    let bits = slots.len().trailing_zeros();
    (tag >> (u32::BITS - bits)) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    // Nothing for Miri to see, and minutes of it.
    #[cfg_attr(miri, ignore)]
    #[test]
    fn hashes_of_consecutive_ids_spread() {
        // 4,096 ids into 65,536 cells: chance fills about 3,970.
        for shift in [0, 8, 56, 64, 112] {
            let cells: BTreeSet<u32> = (0..4096u128)
                .map(|number| tag_of(&(number << shift).to_be_bytes()) >> 16)
                .collect();
            assert!(cells.len() > 3900, "shift {shift}: {}", cells.len());
        }
    }
}
