//! [`Noted`]: what a transaction has read, each thing about once.
//!
//! A query may read the same block for each of its rows. So what is noted is compacted whenever the list is full: then equal keys
//! become one, and ranges that overlap or touch become one. A short list is left as it is, so a transaction that reads little
//! pays nothing; a long one pays the sorting of what has been added since, and grows only where half of it stays.
//!
//! Invariant: compaction changes neither which keys are read nor which are not. The union of ranges is read, not what lies
//! between them.

use std::ops::Bound;

use bowline_core::graph::BlockId;
use bowline_storage::TreeId;

use crate::commit_queue::TreeRange;

/// A list is not compacted before it is as long.
const COMPACTED_FROM: usize = 512;

/// A kind of reads.
pub(crate) trait Read: Sized {
    /// Leaves out what others say, too.
    fn compact(noted: &mut Vec<Self>);
}

/// Reads, in no particular order.
#[derive(Debug)]
pub(crate) struct Noted<T>(Vec<T>);

impl<T> Default for Noted<T> {
    fn default() -> Noted<T> {
        Noted(Vec::new())
    }
}

impl<T: Read> Noted<T> {
    #[inline]
    pub(crate) fn push(&mut self, read: T) {
        if self.0.len() == self.0.capacity() && self.0.len() >= COMPACTED_FROM {
            self.compact();
        }
        self.0.push(read);
    }

    #[cold]
    fn compact(&mut self) {
        let capacity = self.0.capacity();
        T::compact(&mut self.0);
        // The next time comes when as much again was read, so that it is worth the sorting.
        if self.0.len() > capacity / 2 {
            self.0.reserve(capacity);
        }
    }

    pub(crate) fn into_vec(self) -> Vec<T> {
        self.0
    }
}

impl Read for (TreeId, Vec<u8>) {
    fn compact(noted: &mut Vec<Self>) {
        // Stable: the beginning is sorted from the last time, and that is made use of.
        noted.sort();
        noted.dedup();
    }
}

/// An edge by the name of its kind.
impl Read for (BlockId, String, BlockId) {
    fn compact(noted: &mut Vec<Self>) {
        noted.sort();
        noted.dedup();
    }
}

impl Read for TreeRange {
    fn compact(noted: &mut Vec<Self>) {
        noted.sort_by(|(tree, lower, _), (other, other_lower, _)| {
            (tree, begin(lower)).cmp(&(other, begin(other_lower)))
        });
        noted.dedup_by(|next, joined| {
            let is_joined = next.0 == joined.0 && begin(&next.1) <= end(&joined.2);
            if is_joined && end(&next.2) > end(&joined.2) {
                joined.2 = std::mem::replace(&mut next.2, Bound::Unbounded);
            }
            is_joined
        });
    }
}

/// A place between keys: whether it is behind all of them, or else a key, and whether it is behind that one.
type Place<'a> = (bool, &'a [u8], bool);

/// Where a range with this lower bound begins.
fn begin(lower: &Bound<Vec<u8>>) -> Place<'_> {
    match lower {
        Bound::Unbounded => (false, &[], false),
        Bound::Included(key) => (false, key, false),
        Bound::Excluded(key) => (false, key, true),
    }
}

/// Where a range with this upper bound ends.
fn end(upper: &Bound<Vec<u8>>) -> Place<'_> {
    match upper {
        Bound::Unbounded => (true, &[], false),
        Bound::Included(key) => (false, key, true),
        Bound::Excluded(key) => (false, key, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bound at one of the keys `[1]` to `[8]`, or none.
    fn bound(random: &mut fastrand::Rng) -> Bound<Vec<u8>> {
        let key = vec![random.u8(1..9)];
        match random.u8(..9) {
            0 => Bound::Unbounded,
            1..5 => Bound::Included(key),
            _ => Bound::Excluded(key),
        }
    }

    fn contains((tree, lower, upper): &TreeRange, of: TreeId, key: &[u8]) -> bool {
        let is_behind = match lower {
            Bound::Unbounded => true,
            Bound::Included(lower) => key >= &lower[..],
            Bound::Excluded(lower) => key > &lower[..],
        };
        let is_before = match upper {
            Bound::Unbounded => true,
            Bound::Included(upper) => key <= &upper[..],
            Bound::Excluded(upper) => key < &upper[..],
        };
        *tree == of && is_behind && is_before
    }

    /// Over keys at each bound, before, between and behind them.
    #[test]
    fn joined_ranges_have_the_keys_that_they_had() {
        let mut random = fastrand::Rng::with_seed(0x0701_4ed5);
        let keys: Vec<Vec<u8>> = (0..10_u8)
            .flat_map(|first| [vec![first], vec![first, 0], vec![first, 7]])
            .chain([Vec::new()])
            .collect();
        let mut joined = 0;
        for _ in 0..5_000 {
            let count = random.usize(1..6);
            let ranges: Vec<TreeRange> = (0..count)
                .map(|_| {
                    let tree = TreeId(random.u8(..2));
                    (tree, bound(&mut random), bound(&mut random))
                })
                .collect();
            let mut compact = ranges.clone();
            TreeRange::compact(&mut compact);
            joined += ranges.len() - compact.len();
            for tree in [TreeId(0), TreeId(1)] {
                for key in &keys {
                    let of = |ranges: &[TreeRange]| {
                        let mut ranges = ranges.iter();
                        ranges.any(|range| contains(range, tree, key))
                    };
                    assert_eq!(of(&ranges), of(&compact), "{key:?}: {ranges:?} {compact:?}");
                }
            }
        }
        assert!(joined > 1_000, "{joined}");
    }

    #[test]
    fn the_pages_of_a_scan_become_one_range() {
        let key = |page: u32| page.to_be_bytes().to_vec();
        let mut noted = Noted::default();
        for page in (0..100_000).map(|page| page % 1_000) {
            let lower = match page {
                0 => Bound::Unbounded,
                page => Bound::Excluded(key(page)),
            };
            noted.push((TreeId(1), lower, Bound::Included(key(page + 1))));
        }
        let mut noted = noted.into_vec();
        assert!(noted.len() <= COMPACTED_FROM, "{}", noted.len());
        TreeRange::compact(&mut noted);
        let all = (TreeId(1), Bound::Unbounded, Bound::Included(key(1_000)));
        assert_eq!(noted, [all]);
    }

    /// What differs stays, and what is read often is there once or, since the last compaction, a few times.
    #[test]
    fn no_key_is_lost() {
        let key = |number: u32| (TreeId(0), number.to_be_bytes().to_vec());
        let mut noted = Noted::default();
        for number in 0..10_000 {
            noted.push(key(number));
            noted.push(key(number % 7));
        }
        let mut noted = noted.into_vec();
        assert!(noted.len() <= 20_000, "{}", noted.len());
        noted.sort();
        noted.dedup();
        assert!(noted.into_iter().eq((0..10_000).map(key)));
    }
}
