//! A blocked Bloom filter over the distinct user keys of a table: "surely not here" or "maybe".
//!
//! All bits of a key lie in one block of 64 bytes, so a lookup costs one cache miss whatever the
//! size of the filter. A block is eight words of 64 bits; a key sets one bit in each:
//!
//! ```text
//!  hash (xxh3, 64 bits)  --high 32 bits * blocks >> 32-->  which block
//!  hash * odd constant   --eight groups of six bits----->  which bit of word 0, 1, … 7
//! ```
//!
//! With 16 bits per key a word has about 32 of its 64 bits' worth of keys, which makes about one
//! false positive in a thousand. A key that was added always passes.

use xxhash_rust::xxh3::xxh3_64;

use crate::frame::Reason;
use crate::prefetch::prefetch;

/// What of a filter fits beside all else into the processor's second cache, or nearly.
const SMALL_BYTES: usize = 256 << 10;

const WORDS: usize = 8;
const BLOCK_BYTES: usize = WORDS * 8;
const BLOCK_BITS: usize = BLOCK_BYTES * 8;

/// Spreads the low bits of the hash over the high ones, from which the bit numbers are cut; the
/// block number has used up the hash's own high bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash of a key that filters and the pages' hash indexes share. Part of the file format.
#[inline]
pub(super) fn key_hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// The hash of a key, computed once for all the tables that are asked for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHash(pub(super) u64);

impl KeyHash {
    /// The hash of `key`.
    #[must_use]
    #[inline]
    pub fn of(key: &[u8]) -> KeyHash {
        KeyHash(key_hash(key))
    }
}

/// One cache line of the filter.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Block([u64; WORDS]);

/// Which keys a table may hold.
#[derive(Debug)]
pub(super) struct Filter {
    blocks: Box<[Block]>,
}

impl Filter {
    /// A filter over keys given by their hashes; `None` when there is nothing to build.
    pub(super) fn build(hashes: &[u64], bits_per_key: usize) -> Option<Filter> {
        let bits = hashes.len().saturating_mul(bits_per_key.min(64));
        if bits == 0 {
            return None;
        }
        // More blocks than 32 bits can number would never be reached.
        let count = bits.div_ceil(BLOCK_BITS).min(u32::MAX as usize);
        let mut filter = Filter {
            blocks: vec![Block::default(); count].into_boxed_slice(),
        };
        for &hash in hashes {
            let block = filter.block_of(hash);
            let spread = spread(hash);
            for (number, word) in filter.blocks[block].0.iter_mut().enumerate() {
                *word |= 1 << bit(spread, number);
            }
        }
        Some(filter)
    }

    /// Reads what [`Filter::encode`] wrote.
    pub(super) fn decode(bytes: &[u8]) -> Result<Filter, Reason> {
        let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
        if blocks.is_empty() || !rest.is_empty() || blocks.len() > u32::MAX as usize {
            return Err("the filter is not a whole number of blocks");
        }
        let decode = |bytes: &[u8; BLOCK_BYTES]| {
            let mut block = Block::default();
            for (word, bytes) in block.0.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            block
        };
        Ok(Filter {
            blocks: blocks.iter().map(decode).collect(),
        })
    }

    /// Appends the blocks, words in little-endian order.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for word in self.blocks.iter().flat_map(|block| block.0) {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Whether a look-up mostly finds its line in the processor's caches.
    #[inline]
    pub(super) fn is_small(&self) -> bool {
        size_of_val(&*self.blocks) <= SMALL_BYTES
    }

    /// Asks for the memory in which [`Filter::may_contain`] looks.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        prefetch(&self.blocks[self.block_of(hash)].0[..1]);
    }

    /// Whether a key with this hash may be among those that were added.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let block = &self.blocks[self.block_of(hash)];
        let spread = spread(hash);
        // A shift of each word is cheaper than a mask for it: there is one for each instruction set.
        let words = block.0.iter().enumerate();
        let found = words.fold(1, |found, (number, word)| {
            found & (word >> bit(spread, number))
        });
        found != 0
    }

    /// Bytes held in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    #[inline]
    fn block_of(&self, hash: u64) -> usize {
        // Both factors are below 2^32, and the result is below the number of blocks.
        (((hash >> 32) * self.blocks.len() as u64) >> 32) as usize
    }
}

/// The numbers of a key's bits, six bits for each word of a block.
#[inline]
fn spread(hash: u64) -> u64 {
    hash.wrapping_mul(SPREAD)
}

/// Which bit of a word.
#[inline]
fn bit(spread: u64, word: usize) -> u64 {
    (spread >> (16 + 6 * word)) & 63
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(range: std::ops::Range<u64>) -> Vec<u64> {
        range
            .map(|i| key_hash(format!("key{i:08}").as_bytes()))
            .collect()
    }

    #[test]
    fn every_added_key_passes_and_few_others_do() {
        let added = hashes(0..100_000);
        let absent = hashes(100_000..200_000);
        for (bits_per_key, limit) in [(16, 300), (10, 2_000), (20, 150)] {
            let filter = Filter::build(&added, bits_per_key).unwrap();
            assert!(
                added.iter().all(|&hash| filter.may_contain(hash)),
                "a false negative"
            );
            let passed = absent
                .iter()
                .filter(|&&hash| filter.may_contain(hash))
                .count();
            assert!(
                passed <= limit,
                "{passed} of 100,000 passed at {bits_per_key} bits"
            );
            assert!(filter.memory_bytes() <= added.len() * bits_per_key / 8 + BLOCK_BYTES);
        }
    }

    #[test]
    fn an_encoded_filter_answers_alike() {
        let filter = Filter::build(&hashes(0..1000), 16).unwrap();
        let mut bytes = Vec::new();
        filter.encode(&mut bytes);
        let decoded = Filter::decode(&bytes).unwrap();
        for hash in hashes(0..20_000) {
            assert_eq!(filter.may_contain(hash), decoded.may_contain(hash));
        }
        assert!(Filter::decode(&bytes[1..]).is_err());
        assert!(Filter::decode(&[]).is_err());
    }

    #[test]
    fn no_keys_or_no_bits_make_no_filter() {
        assert!(Filter::build(&[], 16).is_none());
        assert!(Filter::build(&[1], 0).is_none());
        assert!(Filter::build(&[1], 1).unwrap().may_contain(1));
    }
}
