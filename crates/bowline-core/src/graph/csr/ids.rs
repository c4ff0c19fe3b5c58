//! [`Ids`]: dense ordinals for block ids, both ways.
//!
//! Ordinals are ranks: a smaller ordinal has a smaller id. The way back is an open hash table of ordinals with
//! linear probing, two thirds full at most. It stores no id: a probe compares with the id of the ordinal.
//! 22 bytes a block.

use bowline_storage::prefetch::prefetch_from;
use std::hash::BuildHasher;

use bowline_types::BlockId;
use bowline_types::IdHashing;

/// An empty slot of the table.
const EMPTY: u32 = u32::MAX;

/// The ids of the blocks that a base knows.
#[derive(Debug)]
pub(super) struct Ids {
    /// Ascending; the ordinal is the place.
    ids: Vec<BlockId>,
    table: Box<[u32]>,
    hashing: IdHashing,
}

impl Ids {
    /// For ascending ids, fewer than 4,294,967,295 of them.
    pub(super) fn new(mut ids: Vec<BlockId>) -> Ids {
        // A list that was collected from a wider one in its place has room for twice as many.
        ids.shrink_to_fit();
        debug_assert!(ids.is_sorted_by(|a, b| a < b), "ids ascend");
        let slots = ids.len() + ids.len() / 2 + 1;
        let mut found = Ids {
            table: vec![EMPTY; slots].into_boxed_slice(),
            hashing: IdHashing::default(),
            ids,
        };
        for ordinal in 0..found.ids.len() {
            let mut slot = found.slot(found.ids[ordinal]);
            while found.table[slot] != EMPTY {
                slot = found.after(slot);
            }
            found.table[slot] = ordinal as u32;
        }
        found
    }

    /// How many there are; ordinals are below.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The id of an ordinal.
    #[inline]
    pub(super) fn id(&self, ordinal: u32) -> BlockId {
        self.ids[ordinal as usize]
    }

    /// Asks for the id of an ordinal, which is read soon.
    #[inline]
    pub(super) fn prefetch(&self, ordinal: u32) {
        if let Some(id) = self.ids.get(ordinal as usize) {
            prefetch_from(id, 1);
        }
    }

    /// All ids, ascending.
    pub(super) fn all(&self) -> &[BlockId] {
        &self.ids
    }

    /// The ordinal of an id.
    #[inline]
    pub(super) fn ordinal(&self, id: BlockId) -> Option<u32> {
        self.ordinal_from(self.slot(id), id)
    }

    /// Where the search for an id begins: that place is asked for. First step of a search in three.
    #[inline]
    pub(super) fn begin(&self, id: BlockId) -> usize {
        let slot = self.slot(id);
        prefetch_from(&self.table[slot], 1);
        slot
    }

    /// Asks for the id that is compared first. Second step.
    #[inline]
    pub(super) fn prefetch_first(&self, slot: usize) {
        // An empty slot has no id.
        self.prefetch(self.table[slot]);
    }

    /// The ordinal of an id by where its search begins. Third step.
    #[inline]
    pub(super) fn ordinal_from(&self, mut slot: usize, id: BlockId) -> Option<u32> {
        loop {
            match self.table[slot] {
                EMPTY => return None,
                ordinal if self.ids[ordinal as usize] == id => return Some(ordinal),
                _ => slot = self.after(slot),
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let (ids, table) = (self.ids.capacity(), self.table.len());
        (ids * size_of::<BlockId>() + table * size_of::<u32>()) as u64
    }

    /// Where the search for an id begins: the hash scaled to the size of the table.
    #[inline]
    fn slot(&self, id: BlockId) -> usize {
        let hash = self.hashing.hash_one(id);
        ((u128::from(hash) * self.table.len() as u128) >> 64) as usize
    }

    #[inline]
    fn after(&self, slot: usize) -> usize {
        let next = slot + 1;
        if next == self.table.len() { 0 } else { next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_has_its_rank_and_no_other_id_has_one() {
        for seed in crate::seeds(7..8) {
            let mut random = fastrand::Rng::with_seed(seed);
            for count in [0, 1, 2, 3, 100, 5_000] {
                let mut ids: Vec<_> = (0..count).map(|_| BlockId(random.u128(..) & !1)).collect();
                ids.sort_unstable();
                ids.dedup();
                let found = Ids::new(ids.clone());
                assert_eq!(found.len(), ids.len());
                for (rank, &id) in ids.iter().enumerate() {
                    assert_eq!(found.ordinal(id), Some(rank as u32));
                    assert_eq!(found.id(rank as u32), id);
                    assert_eq!(found.ordinal(BlockId(id.0 | 1)), None);
                }
                assert!(found.memory_bytes() <= 22 * count as u64 + 4);
            }
        }
    }
}
