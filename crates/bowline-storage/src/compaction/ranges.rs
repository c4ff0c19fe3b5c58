//! Key ranges: how a merge is cut into parts for several threads.
//!
//! The indexes of the inputs give samples: keys, and the approximate number of bytes between them. All
//! samples in key order give the share of the inputs up to each key. A cut is made wherever the next part
//! is full:
//!
//! ```text
//!  run 1    |---- b ---- f ---- m ---- t ----|        each sample stands for the bytes up to it
//!  run 2    |------ d ------ k ------ z -----|
//!  together  b  d  f  k  m  t  z
//!            '---'  ^     '---'                       three parts of about the same bytes:
//!                 after d     after m                 cuts behind d and behind m
//! ```
//!
//! A cut is the shortest key between two samples. A page or table may belong to two ranges; each range
//! reads its own part of it.
//!
//! Invariants:
//!
//! - The ranges do not overlap, and every key is in one. So all versions of a key are merged together.
//! - The cuts depend on nothing but the inputs and the number of parts.
//! - Memory: a few samples per part and one per table, regardless of the size of the tables.

use std::sync::Arc;

use crate::table::Table;

/// Samples for each part: how exact the parts are.
const SAMPLES_PER_PART: u64 = 16;

/// Keys from the lower bound on, up to but without the upper bound. No bound, no end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyRange<'a> {
    /// The first key.
    pub lower: Option<&'a [u8]>,
    /// The first key behind.
    pub upper: Option<&'a [u8]>,
}

impl<'a> KeyRange<'a> {
    /// One of the ranges that `cuts` make.
    #[must_use]
    pub fn nth(cuts: &'a [Vec<u8>], number: usize) -> KeyRange<'a> {
        let cut = |number: usize| cuts.get(number).map(|cut| &cut[..]);
        KeyRange {
            lower: number.checked_sub(1).and_then(cut),
            upper: cut(number),
        }
    }

    /// Whether the range ends before `key`.
    #[must_use]
    #[inline]
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        self.upper.is_some_and(|upper| key >= upper)
    }

    /// Whether some key from `first` to `last` is in the range.
    #[must_use]
    pub fn meets(&self, first: &[u8], last: &[u8]) -> bool {
        !self.ends_before(first) && self.lower.is_none_or(|lower| lower <= last)
    }
}

/// Where to cut a merge of these tables into `parts` ranges of about the same bytes: the keys at
/// which each but the first begins. There may be fewer, when few keys have most of the bytes.
#[must_use]
pub fn cut(tables: &[Arc<Table>], parts: u64) -> Vec<Vec<u8>> {
    let bytes: u64 = tables.iter().map(|table| table.meta().file_bytes).sum();
    if parts < 2 {
        return Vec::new();
    }
    let step_bytes = (bytes / parts.saturating_mul(SAMPLES_PER_PART)).max(1);
    let mut samples = Vec::new();
    for table in tables {
        table.sample_keys(step_bytes, &mut |key, bytes| {
            samples.push((key.to_vec(), bytes));
        });
    }
    cut_samples(samples, parts)
}

fn cut_samples(mut samples: Vec<(Vec<u8>, u64)>, parts: u64) -> Vec<Vec<u8>> {
    samples.sort_unstable();
    let parts = u128::from(parts);
    let total: u128 = samples.iter().map(|(_, bytes)| u128::from(*bytes)).sum();
    let mut cuts: Vec<Vec<u8>> = Vec::new();
    let mut before = 0;
    let mut part = 1;
    for (number, (key, bytes)) in samples.iter().enumerate() {
        before += u128::from(*bytes);
        if before * parts < total * part {
            continue;
        }
        // Of one key there may be many samples. Behind the last key of all there is nothing to cut.
        let later = samples[number + 1..].iter().find(|(later, _)| later != key);
        let Some((later, _)) = later else { break };
        part = before * parts / total.max(1) + 1;
        let cut = separator(key, later);
        if cuts.last().is_none_or(|last| &last[..] < cut) {
            cuts.push(cut.to_vec());
        }
    }
    cuts
}

/// The shortest key that is larger than `key` and not larger than `later`, which is larger.
fn separator<'a>(key: &[u8], later: &'a [u8]) -> &'a [u8] {
    let shared = key.iter().zip(later).take_while(|(a, b)| a == b).count();
    &later[..later.len().min(shared + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(of: &[(&str, u64)]) -> Vec<(Vec<u8>, u64)> {
        let sample = |(key, bytes): &(&str, u64)| (key.as_bytes().to_vec(), *bytes);
        of.iter().map(sample).collect()
    }

    #[test]
    fn parts_have_about_the_same_bytes() {
        for seed in crate::seeds(4..5) {
            let mut rng = fastrand::Rng::with_seed(seed);
            for _ in 0..200 {
                let (parts, count) = (rng.u64(2..20), rng.usize(1..600));
                let mut all: Vec<(Vec<u8>, u64)> = (0..count)
                    .map(|_| (rng.u32(..).to_be_bytes().to_vec(), rng.u64(1..100)))
                    .collect();
                let cuts = cut_samples(all.clone(), parts);
                all.sort();
                assert!(cuts.is_sorted_by(|a, b| a < b) && (cuts.len() as u64) < parts);
                let total: u64 = all.iter().map(|(_, bytes)| bytes).sum();
                let mut sum = 0;
                for number in 0..=cuts.len() {
                    let range = KeyRange::nth(&cuts, number);
                    let inside = all.iter().filter(|(key, _)| range.meets(key, key));
                    let bytes: u64 = inside.map(|(_, bytes)| bytes).sum();
                    // A sample belongs to one part as a whole, and so does the excess of the previous part.
                    assert!(
                        bytes <= total / parts + 200,
                        "{bytes} of {total} in {parts}"
                    );
                    sum += bytes;
                }
                assert_eq!(sum, total, "every key is in one range");
            }
        }
    }

    #[test]
    fn a_key_is_never_cut() {
        let hot = samples(&[
            ("a", 10),
            ("hot", 500),
            ("hot", 500),
            ("hot", 500),
            ("z", 10),
        ]);
        assert_eq!(cut_samples(hot, 4), [b"z".to_vec()]);
        assert_eq!(cut_samples(samples(&[("k", 9), ("k", 9)]), 4), [[0; 0]; 0]);
        assert_eq!(cut_samples(Vec::new(), 4), [[0; 0]; 0]);
    }

    #[test]
    fn a_cut_is_short_however_long_the_keys_are() {
        let long = |end: &str| format!("{}{end}", "k".repeat(5000));
        let (a, b) = (long("a"), long("bbb"));
        let of = [(a.as_str(), 10), (b.as_str(), 10), ("zzzz", 10)];
        assert_eq!(
            cut_samples(samples(&of), 3),
            [long("b").into_bytes(), b"z".to_vec()]
        );
        for (key, later, cut) in [("", "abc", "a"), ("a", "ab", "ab"), ("abc", "abd", "abd")] {
            assert_eq!(separator(key.as_bytes(), later.as_bytes()), cut.as_bytes());
        }
    }

    #[test]
    fn a_range_holds_its_lower_bound_and_not_its_upper() {
        let cuts = [b"d".to_vec(), b"m".to_vec()];
        let range = |number| KeyRange::nth(&cuts, number);
        for (first, last, meets) in [
            ("a", "c", [true, false, false]),
            ("a", "d", [true, true, false]),
            ("d", "d", [false, true, false]),
            ("l", "m", [false, true, true]),
            ("n", "z", [false, false, true]),
            ("a", "z", [true, true, true]),
        ] {
            let (first, last) = (first.as_bytes(), last.as_bytes());
            let found = [0, 1, 2].map(|number| range(number).meets(first, last));
            assert_eq!(found, meets);
        }
        assert!(range(1).ends_before(b"m") && !range(1).ends_before(b"l"));
        assert!(!range(2).ends_before(&[0xff; 9]));
        assert_eq!(KeyRange::nth(&[], 0), KeyRange::default());
    }
}
