//! The sparse index of the log: where the frame of an entry lies, one point per 64 KiB or so.
//!
//! A point says: the entries from its first index on, up to the first index of the next point, lie in
//! the frames from its place on. A reader seeks the point of an entry and reads frames from there.
//! Truncating a suffix adds one point. That point removes every point at or above its first index and
//! places the index behind the `Cut` frame, so no point leads to a truncated entry.
//!
//! ```text
//! frames   [1‥4][5‥10][Cut 5][5‥8]        points  1 → first frame     covers 1‥4
//!           ▲                 ▲                   5 → behind the cut  covers 5‥
//! ```
//!
//! Invariants: first indices strictly ascend, places ascend with them, and the last point is in the
//! active segment.

use std::collections::VecDeque;
use std::ops::Range;

use crate::types::Index;

/// How many bytes of one segment a point covers before the next one is added.
const SPACING_BYTES: u64 = 64 << 10;

/// The place of a frame in the log, and the index of its first entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct IndexPoint {
    pub(super) first_index: Index,
    pub(super) segment_id: u64,
    pub(super) offset: u64,
}

/// All points, by ascending index.
#[derive(Clone, Default, Debug)]
pub(super) struct SparseIndex(VecDeque<IndexPoint>);

impl SparseIndex {
    /// The log continues at `point`: every entry at or above its first index is truncated.
    pub(super) fn restart_at(&mut self, point: IndexPoint) {
        while self
            .0
            .back()
            .is_some_and(|last| last.first_index >= point.first_index)
        {
            self.0.pop_back();
        }
        self.0.push_back(point);
    }

    /// Records a frame appended at `point`, where the last point is far enough away.
    pub(super) fn note_frame(&mut self, point: IndexPoint) {
        let far = self.0.back().is_none_or(|last| {
            last.segment_id != point.segment_id || point.offset - last.offset >= SPACING_BYTES
        });
        if far {
            self.restart_at(point);
        }
    }

    /// Appends the index of a later part of the log that was scanned separately. Its first point is
    /// the beginning of that part.
    pub(super) fn append(&mut self, later: SparseIndex) {
        // A cut in the later part has removed its own truncated points already. Here it also removes
        // the truncated points of the earlier part.
        for point in later.0 {
            self.restart_at(point);
        }
    }

    /// Splits `from..end` at points into at most `count` ranges of about equal size in bytes.
    pub(super) fn split(&self, from: Index, end: Index, count: usize) -> Vec<Range<Index>> {
        let first = self.0.partition_point(|point| point.first_index <= from);
        let behind = self.0.partition_point(|point| point.first_index < end);
        let parts = behind.saturating_sub(first) + 1;
        let mut ranges = Vec::new();
        let mut start = from;
        for number in 1..count {
            let Some(before) = (parts * number / count).checked_sub(1) else {
                continue;
            };
            let Some(point) = self.0.get(first + before) else {
                continue;
            };
            if (start + 1..end).contains(&point.first_index) {
                ranges.push(start..point.first_index);
                start = point.first_index;
            }
        }
        if start < end {
            ranges.push(start..end);
        }
        ranges
    }

    /// The point that covers `index`, and the first index of the next point.
    pub(super) fn covering(&self, index: Index) -> Option<(IndexPoint, Option<Index>)> {
        let next = self.0.partition_point(|point| point.first_index <= index);
        let point = self.0.get(next.checked_sub(1)?)?;
        Some((*point, self.0.get(next).map(|point| point.first_index)))
    }

    /// The lowest index in the log, or the next one when the log is empty.
    pub(super) fn first_index(&self) -> Option<Index> {
        self.0.front().map(|point| point.first_index)
    }

    /// The lowest index behind segment `id`: all valid entries of that segment are below it.
    pub(super) fn first_index_behind(&self, id: u64) -> Option<Index> {
        let next = self.0.partition_point(|point| point.segment_id <= id);
        self.0.get(next).map(|point| point.first_index)
    }

    /// Removes the points of all segments up to `id`.
    pub(super) fn release(&mut self, id: u64) {
        while self.0.front().is_some_and(|point| point.segment_id <= id) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(first_index: Index, segment_id: u64, offset: u64) -> IndexPoint {
        IndexPoint {
            first_index,
            segment_id,
            offset,
        }
    }

    #[test]
    fn points_are_added_per_spacing_and_per_segment() {
        let mut index = SparseIndex::default();
        index.restart_at(point(1, 1, 4096));
        for entry in 2..1000 {
            index.note_frame(point(entry, 1, 4096 + entry * 1024));
        }
        index.note_frame(point(1000, 2, 4096));
        assert_eq!(index.0.len(), 17);
        let (found, limit) = index.covering(100).expect("covered");
        assert!(found.first_index <= 100 && limit.expect("not last") > 100);
        assert_eq!(index.covering(5000), Some((point(1000, 2, 4096), None)));
        assert_eq!(index.covering(0), None);
    }

    /// Scanning segment by segment gives the same index as scanning in one pass, and the parts of a
    /// split range add up to that range.
    #[test]
    fn segments_scanned_separately_give_the_same_index_and_splits_leave_nothing_out() {
        for seed in crate::seeds(0..200) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut whole = SparseIndex::default();
            let mut apart = SparseIndex::default();
            let mut next = 1;
            for id in 1..=rng.u64(1..6) {
                let mut own = SparseIndex::default();
                let mut offset = 4096;
                for index in [&mut whole, &mut own] {
                    index.restart_at(point(next, id, offset));
                }
                for _ in 0..rng.usize(0..30) {
                    let bytes = rng.u64(1..40_000);
                    if rng.u8(0..10) == 0 && next > 1 {
                        next = rng.u64(1..next);
                        offset += 40;
                        for index in [&mut whole, &mut own] {
                            index.restart_at(point(next, id, offset));
                        }
                    } else {
                        for index in [&mut whole, &mut own] {
                            index.note_frame(point(next, id, offset));
                        }
                        next += rng.u64(1..5);
                        offset += bytes;
                    }
                }
                apart.append(own);
            }
            assert_eq!(whole.0, apart.0, "seed {seed}");
            let from = rng.u64(1..=next);
            for count in 1..6 {
                let ranges = whole.split(from, next, count);
                assert!(ranges.len() <= count, "seed {seed}");
                let mut at = from;
                for range in ranges {
                    assert!(range.start == at && range.end > at, "seed {seed}");
                    at = range.end;
                }
                assert_eq!(at, next, "seed {seed}");
            }
        }
    }

    #[test]
    fn a_split_is_even() {
        let mut index = SparseIndex::default();
        index.restart_at(point(1, 1, 4096));
        for entry in 2..2000 {
            index.note_frame(point(entry, 1, 4096 + entry * 1024));
        }
        let ranges = index.split(1, 2000, 2);
        assert_eq!(ranges.len(), 2);
        assert!((900..1100).contains(&ranges[0].end), "{ranges:?}");
    }

    #[test]
    fn a_cut_voids_what_is_above_across_segments() {
        let mut index = SparseIndex::default();
        index.restart_at(point(1, 1, 4096));
        index.restart_at(point(11, 2, 4096));
        index.restart_at(point(21, 3, 4096));
        index.restart_at(point(5, 3, 5000));
        assert_eq!(index.covering(4), Some((point(1, 1, 4096), Some(5))));
        assert_eq!(index.covering(15), Some((point(5, 3, 5000), None)));
        assert_eq!(index.first_index_behind(1), Some(5));
        assert_eq!(index.first_index_behind(2), Some(5));
        index.release(2);
        assert_eq!(index.first_index(), Some(5));
    }
}
