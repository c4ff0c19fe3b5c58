//! The hash index: an append-only hash table with open addressing, from a key to its newest record.
//!
//! ```text
//! slot, 64 bits    | tag: 32 bits of the key's hash | where the newest record lies: 32 bits |
//! ```
//!
//! An empty slot is 0. The search for a key starts at the slot given by the high bits of its tag and
//! probes the following slots until it finds the key or an empty slot. Different keys rarely have equal
//! tags, so a hit touches one slot and one record, and a miss touches one slot.
//!
//! The table doubles when it is half full. Because the slot comes from the high bits of the tag, the new
//! array is filled from the old one nearly in order, without reading a key. Its number is published with
//! `Release`. The old arrays (together no larger than the new one) stay until the memtable is dropped,
//! so readers can continue in them. An entry that such a reader misses was inserted after the read began,
//! and so is newer than the revision of the read.
//!
//! Slots never become empty, and a slot's key never changes: only its record does.

use std::sync::OnceLock;

use xxhash_rust::xxh3::xxh3_64;

use super::arena::{Arena, UNIT};
use super::record::{Record, RecordAt};
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicU64, AtomicUsize};

/// Slots of the first array: 2^8. It is made at the first insertion. Where interleavings are tried,
/// the array doubles from the second key on.
const FIRST_BITS: u32 = if cfg!(any(bowline_shuttle, miri)) {
    1
} else {
    8
};
/// Slots of the last array: 2^31, half filled by more keys than an arena can hold.
const LAST_BITS: u32 = 31;
const ARRAYS: usize = (LAST_BITS - FIRST_BITS + 1) as usize;

/// Cache lines that are asked for with a record: header, key and a short value lie in so many, and to learn the
/// lengths from the first before going on to the rest would be to wait twice.
const RECORD_LINES: usize = 3;

/// The hash of a key, as far as the table uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag(u32);

impl Tag {
    /// The hash of a key.
    #[inline]
    pub(crate) fn of(key: &[u8]) -> Tag {
        Tag(xxh3_64(key) as u32)
    }
}

/// One array of 2^`bits` slots.
struct Slots {
    memory: Arena,
    bits: u32,
}

/// Where the search for a key ended: at its slot, or at the empty one it would get.
pub(super) struct Probe<'a> {
    slot: &'a AtomicU64,
    tag: Tag,
    pub(super) found: Option<Record<'a>>,
}

impl Probe<'_> {
    /// Makes `record` the newest record of this key.
    #[inline]
    pub(super) fn publish(&self, record: RecordAt) {
        self.slot.store(pack(self.tag, record), Release);
    }
}

#[inline]
fn pack(tag: Tag, record: RecordAt) -> u64 {
    u64::from(tag.0) << 32 | u64::from(record.to_bits())
}

impl Slots {
    fn new(bits: u32) -> Slots {
        Slots {
            memory: Arena::new(UNIT << bits),
            bits,
        }
    }

    #[inline]
    fn start(&self, tag: Tag) -> u32 {
        tag.0 >> (u32::BITS - self.bits)
    }

    #[inline]
    fn after(&self, position: u32) -> u32 {
        (position + 1) & ((1 << self.bits) - 1)
    }

    #[inline]
    fn slot(&self, position: u32) -> &AtomicU64 {
        self.memory.view(position, 0)
    }

    /// Ends, since at least one slot is empty.
    #[inline(always)]
    fn probe<'a>(&'a self, arena: &'a Arena, tag: Tag, key: &[u8]) -> Probe<'a> {
        let mut position = self.start(tag);
        // One key in five is not at its first slot, which is unpredictable. A mispredicted branch here would discard
        // the speculative work behind it, such as the next read. So there is no branch.
        let first = self.slot(position).load(Relaxed);
        let is_another = u32::from(first != 0) & u32::from((first >> 32) as u32 != tag.0);
        position = (position + is_another) & ((1 << self.bits) - 1);
        loop {
            let slot = self.slot(position);
            let bits = slot.load(Acquire);
            let Some(at) = RecordAt::from_bits(bits as u32) else {
                return Probe {
                    slot,
                    tag,
                    found: None,
                };
            };
            if (bits >> 32) as u32 == tag.0 {
                arena.prefetch(at.to_bits(), RECORD_LINES);
                let record = Record::new(arena, at);
                if record.key() == key {
                    return Probe {
                        slot,
                        tag,
                        found: Some(record),
                    };
                }
            }
            position = self.after(position);
        }
    }

    /// Asks for the first slot of a key.
    #[inline]
    fn prefetch(&self, tag: Tag) {
        self.memory.prefetch(self.start(tag), 1);
    }

    /// Asks for the record that the search for a key will look at first, most likely its own.
    #[inline]
    fn prefetch_record(&self, arena: &Arena, tag: Tag) {
        let first = self.start(tag);
        // As in `probe`: one key in five is in the slot behind.
        for position in [first, self.after(first)] {
            let bits = self.slot(position).load(Acquire);
            if (bits >> 32) as u32 == tag.0
                && let Some(at) = RecordAt::from_bits(bits as u32)
            {
                arena.prefetch(at.to_bits(), RECORD_LINES);
                return;
            }
        }
    }

    /// Has the system give all of the array's memory at once. Each place is read before it is written,
    /// and memory that is first read costs a second fault, which stops all threads of the process.
    fn touch(&self) {
        const PAGE_BYTES: usize = 4096;
        for position in (0..1_u32 << self.bits).step_by(PAGE_BYTES / UNIT) {
            self.slot(position).store(0, Relaxed);
        }
    }

    /// Copies all slots of `smaller` into this array, which no reader sees yet.
    fn fill_from(&self, smaller: &Slots) {
        self.touch();
        for old in 0..1 << smaller.bits {
            let bits = smaller.slot(old).load(Relaxed);
            if bits == 0 {
                continue;
            }
            let mut position = self.start(Tag((bits >> 32) as u32));
            while self.slot(position).load(Relaxed) != 0 {
                position = self.after(position);
            }
            self.slot(position).store(bits, Relaxed);
        }
    }
}

/// Fills an empty index. See [`HashIndex::filler`].
pub(super) struct Filler<'a> {
    number: usize,
    slots: &'a Slots,
}

impl Filler<'_> {
    /// Looks at the place of a key, so that it is near when the key is put in.
    #[inline]
    pub(super) fn look(&self, tag: Tag) -> u64 {
        self.slots.slot(self.slots.start(tag)).load(Relaxed)
    }

    /// Puts in a key that is not there.
    #[inline]
    pub(super) fn put(&self, tag: Tag, record: RecordAt) {
        let mut position = self.slots.start(tag);
        while self.slots.slot(position).load(Relaxed) != 0 {
            position = self.slots.after(position);
        }
        self.slots.slot(position).store(pack(tag, record), Relaxed);
    }
}

/// The keys of one tree, by hash.
pub(super) struct HashIndex {
    /// The number of the array in use.
    current: AtomicUsize,
    /// Array `i` has 2^([`FIRST_BITS`] + i) slots; those before `current` are kept for readers.
    arrays: [OnceLock<Slots>; ARRAYS],
}

impl HashIndex {
    pub(super) fn new() -> HashIndex {
        HashIndex {
            current: AtomicUsize::new(0),
            arrays: [const { OnceLock::new() }; ARRAYS],
        }
    }

    #[inline]
    fn current(&self) -> Option<&Slots> {
        self.arrays[self.current.load(Acquire)].get()
    }

    /// The newest record of `key`.
    #[inline(always)]
    pub(super) fn get<'a>(&'a self, arena: &'a Arena, tag: Tag, key: &[u8]) -> Option<Record<'a>> {
        self.current()?.probe(arena, tag, key).found
    }

    /// Asks for what the look-ups of some keys will read: for all their slots, then for all their records. Each key
    /// alone would wait twice, once for each; so all of them wait twice together.
    #[inline]
    pub(super) fn look_ahead(&self, arena: &Arena, tags: impl Iterator<Item = Tag> + Clone) {
        let Some(slots) = self.current() else { return };
        for tag in tags.clone() {
            slots.prefetch(tag);
        }
        for tag in tags {
            slots.prefetch_record(arena, tag);
        }
    }

    /// The slot of `key`, or its future slot. Only the writer calls it, after [`HashIndex::grow_for`].
    pub(super) fn probe<'a>(&'a self, arena: &'a Arena, tag: Tag, key: &[u8]) -> Option<Probe<'a>> {
        Some(self.current()?.probe(arena, tag, key))
    }

    /// Bytes of the array that so many keys need.
    pub(super) fn bytes_for(keys: u64) -> usize {
        UNIT << (FIRST_BITS + HashIndex::array_for(keys) as u32)
    }

    /// The number of the array that so many keys need.
    fn array_for(keys: u64) -> usize {
        let bits = (keys * 2).next_power_of_two().ilog2();
        (bits.saturating_sub(FIRST_BITS) as usize).min(ARRAYS - 1)
    }

    /// For at most `keys` keys, each of which is put in once, while the index is empty and nobody
    /// reads it.
    pub(super) fn filler(&self, keys: u64) -> Filler<'_> {
        let number = HashIndex::array_for(keys);
        let slots = self.arrays[number].get_or_init(|| Slots::new(FIRST_BITS + number as u32));
        slots.touch();
        Filler { number, slots }
    }

    /// Publishes the inserted records to readers; returns the bytes used.
    pub(super) fn filled(&self, filler: &Filler<'_>) -> usize {
        self.current.store(filler.number, Release);
        UNIT << filler.slots.bits
    }

    /// Makes room for `keys` keys in all, and gives the bytes newly taken. Only the writer calls
    /// it, with at most one key more than the last time.
    #[inline]
    pub(super) fn grow_for(&self, keys: u64) -> usize {
        let current = self.current.load(Relaxed);
        let Some(slots) = self.arrays[current].get() else {
            let slots = self.arrays[current].get_or_init(|| Slots::new(FIRST_BITS));
            return UNIT << slots.bits;
        };
        if keys * 2 <= 1 << slots.bits || current + 1 == ARRAYS {
            return 0;
        }
        let larger = self.arrays[current + 1].get_or_init(|| Slots::new(slots.bits + 1));
        larger.fill_from(slots);
        self.current.store(current + 1, Release);
        UNIT << larger.bits
    }
}

#[cfg(test)]
mod tests {
    use super::super::arena::Space;
    use super::super::record::{Node, Version};
    use super::*;
    use crate::EntryKind;

    fn insert(index: &HashIndex, arena: &Arena, space: &mut Space, tag: Tag, key: &[u8]) {
        let version = Version {
            key,
            revision: 1,
            kind: EntryKind::Put,
            value: key,
        };
        let (_, record) = Node::write(arena, space, 1, version).expect("room");
        index
            .probe(arena, tag, key)
            .expect("grown before")
            .publish(record.at());
    }

    #[test]
    fn keys_are_found_before_and_after_every_doubling() {
        const KEYS: u64 = if cfg!(miri) { 40 } else { 20_000 };
        let arena = Arena::new(KEYS as usize * 200);
        let mut space = Space::of(&arena);
        let index = HashIndex::new();
        assert!(index.get(&arena, Tag::of(b"0"), b"0").is_none());
        let mut taken = 0;
        for i in 0..KEYS {
            taken += index.grow_for(i + 1);
            let key = i.to_string();
            assert!(
                index
                    .get(&arena, Tag::of(key.as_bytes()), key.as_bytes())
                    .is_none()
            );
            insert(
                &index,
                &arena,
                &mut space,
                Tag::of(key.as_bytes()),
                key.as_bytes(),
            );
            if i.is_power_of_two() || i == KEYS - 1 {
                for old in 0..=i {
                    let old = old.to_string().into_bytes();
                    let found = index.get(&arena, Tag::of(&old), &old).map(Record::value);
                    assert_eq!(found, Some(&old[..]), "after {i}");
                }
            }
        }
        let last_bits = (2 * KEYS).next_power_of_two().ilog2();
        let expected: usize = (FIRST_BITS..=last_bits).map(|bits| UNIT << bits).sum();
        assert_eq!(taken, expected, "{KEYS} keys fill at most half of the last");
    }

    #[test]
    fn keys_with_the_same_tag_are_told_apart_and_wrap_around_the_end() {
        let arena = Arena::new(1 << 16);
        let mut space = Space::of(&arena);
        let index = HashIndex::new();
        let tag = Tag(u32::MAX);
        const KEYS: u64 = if cfg!(miri) { 10 } else { 100 };
        for i in 0..KEYS {
            index.grow_for(i + 1);
            // A hint: it changes nothing, whatever it meets.
            index.look_ahead(&arena, [tag, Tag(7), Tag(0)].into_iter());
            insert(&index, &arena, &mut space, tag, &[i as u8]);
        }
        for i in 0..KEYS as u8 {
            assert_eq!(
                index.get(&arena, tag, &[i]).map(Record::key),
                Some(&[i][..])
            );
        }
        assert!(index.get(&arena, tag, &[100]).is_none());
        assert!(index.get(&arena, Tag(u32::MAX - 1), &[1]).is_none());
    }
}
