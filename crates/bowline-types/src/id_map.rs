//! Maps and sets by block id.
//!
//! Users may choose ids, so hashes are seeded at random: chosen ids cannot be made to collide.

use std::hash::{BuildHasher, Hasher, RandomState};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::BlockId;

/// A hash map keyed by block. Nothing may depend on its iteration order.
///
/// ```
/// use bowline_types::{BlockId, IdMap};
///
/// let mut degrees: IdMap<u32> = IdMap::default();
/// *degrees.entry(BlockId(7)).or_default() += 1;
/// assert_eq!(degrees[&BlockId(7)], 1);
/// ```
pub type IdMap<V> = std::collections::HashMap<BlockId, V, IdHashing>;

/// A hash set of blocks. Nothing may depend on its iteration order.
///
/// ```
/// let mut seen = bowline_types::IdSet::default();
/// assert!(seen.insert(bowline_types::BlockId(7)));
/// ```
pub type IdSet = std::collections::HashSet<BlockId, IdHashing>;

/// Makes [`IdHasher`]s, with a new seed for each map.
///
/// ```
/// use std::hash::BuildHasher;
/// use bowline_types::{BlockId, IdHashing};
///
/// let hashing = IdHashing::default();
/// assert_eq!(hashing.hash_one(BlockId(7)), hashing.hash_one(BlockId(7)));
/// ```
#[derive(Clone, Debug)]
pub struct IdHashing {
    seed: u64,
}

impl Default for IdHashing {
    fn default() -> IdHashing {
        IdHashing {
            seed: RandomState::new().hash_one(0),
        }
    }
}

impl BuildHasher for IdHashing {
    type Hasher = IdHasher;

    fn build_hasher(&self) -> IdHasher {
        IdHasher { hash: self.seed }
    }
}

/// Hashes one id by XXH3: a few nanoseconds for sixteen bytes, and well mixed even where ids are
/// small consecutive numbers.
///
/// ```
/// use std::hash::{BuildHasher, Hasher};
///
/// let mut hasher = bowline_types::IdHashing::default().build_hasher();
/// hasher.write_u128(7);
/// assert_ne!(hasher.finish(), 7);
/// ```
#[derive(Clone, Debug)]
pub struct IdHasher {
    /// The seed, then the hash so far.
    hash: u64,
}

impl Hasher for IdHasher {
    fn write_u128(&mut self, id: u128) {
        self.write(&id.to_le_bytes());
    }

    fn write(&mut self, bytes: &[u8]) {
        self.hash = xxh3_64_with_seed(bytes, self.hash);
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_consecutive_ids_spread() {
        // 4,096 ids into 65,536 cells by the low and by the high bits: chance fills about 3,970.
        for seed in 0..64 {
            let hashing = IdHashing { seed };
            for (shift, step) in [(0, 1), (48, 1), (0, 1 << 64), (48, 1 << 64)] {
                let cells: std::collections::HashSet<u16> = (0..4096)
                    .map(|n| (hashing.hash_one(BlockId(n * step)) >> shift) as u16)
                    .collect();
                assert!(
                    cells.len() > 3900,
                    "shift {shift}, step {step}: {}",
                    cells.len()
                );
            }
        }
    }
}
