//! The sparse index from entry index to place: one mark per 64 KiB or so.
//!
//! A mark says: "the entries from my first index on, up to the first index of the next mark, lie
//! in frames from my place on". A cut is just a new mark: it drops every mark at or above the cut
//! and starts over behind the `Cut` frame, so void entries lie beyond the reach of any mark.
//!
//! ```text
//! frames   [1‥4][5‥10][Cut 5][5‥8]        marks   1 → first frame     covers 1‥4
//!           ▲                 ▲                   5 → behind the cut  covers 5‥
//! ```
//!
//! Invariants: first indices strictly ascend, places ascend with them, and the last mark is in
//! the active segment.

use std::collections::VecDeque;
use std::ops::Range;

use crate::types::Index;

/// How many bytes of one segment a mark covers before the next is set.
const SPACING_BYTES: u64 = 64 << 10;

/// A place in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) first_index: Index,
    pub(super) segment_id: u64,
    pub(super) offset: u64,
}

/// All marks, by ascending index.
#[derive(Clone, Default, Debug)]
pub(super) struct Marks(VecDeque<Mark>);

impl Marks {
    /// The log goes on with `mark`: everything at or above its first index is void.
    pub(super) fn restart_at(&mut self, mark: Mark) {
        while self
            .0
            .back()
            .is_some_and(|last| last.first_index >= mark.first_index)
        {
            self.0.pop_back();
        }
        self.0.push_back(mark);
    }

    /// A frame was appended at `mark`.
    pub(super) fn note_frame(&mut self, mark: Mark) {
        let far = self.0.back().is_none_or(|last| {
            last.segment_id != mark.segment_id || mark.offset - last.offset >= SPACING_BYTES
        });
        if far {
            self.restart_at(mark);
        }
    }

    /// Goes on with the marks of a later stretch of the log that was read by itself, from the mark
    /// of its beginning on.
    pub(super) fn append(&mut self, later: Marks) {
        // What a cut in there has voided of itself is not among them; what it has voided of the
        // stretch before goes now.
        for mark in later.0 {
            self.restart_at(mark);
        }
    }

    /// Cuts `from..end` at marks into at most `count` ranges of about as many bytes each.
    pub(super) fn split(&self, from: Index, end: Index, count: usize) -> Vec<Range<Index>> {
        let first = self.0.partition_point(|mark| mark.first_index <= from);
        let behind = self.0.partition_point(|mark| mark.first_index < end);
        let stretches = behind.saturating_sub(first) + 1;
        let mut ranges = Vec::new();
        let mut start = from;
        for number in 1..count {
            let Some(before) = (stretches * number / count).checked_sub(1) else {
                continue;
            };
            let Some(mark) = self.0.get(first + before) else {
                continue;
            };
            if (start + 1..end).contains(&mark.first_index) {
                ranges.push(start..mark.first_index);
                start = mark.first_index;
            }
        }
        if start < end {
            ranges.push(start..end);
        }
        ranges
    }

    /// The mark that covers `index`, and the first index that the next mark covers.
    pub(super) fn covering(&self, index: Index) -> Option<(Mark, Option<Index>)> {
        let next = self.0.partition_point(|mark| mark.first_index <= index);
        let mark = self.0.get(next.checked_sub(1)?)?;
        Some((*mark, self.0.get(next).map(|mark| mark.first_index)))
    }

    /// The lowest index in the log, or the next one when the log is empty.
    pub(super) fn first_index(&self) -> Option<Index> {
        self.0.front().map(|mark| mark.first_index)
    }

    /// The lowest index that lies behind segment `id`: all valid entries of it are below.
    pub(super) fn first_index_behind(&self, id: u64) -> Option<Index> {
        let next = self.0.partition_point(|mark| mark.segment_id <= id);
        self.0.get(next).map(|mark| mark.first_index)
    }

    /// Forgets the segments up to `id`.
    pub(super) fn release(&mut self, id: u64) {
        while self.0.front().is_some_and(|mark| mark.segment_id <= id) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(first_index: Index, segment_id: u64, offset: u64) -> Mark {
        Mark {
            first_index,
            segment_id,
            offset,
        }
    }

    #[test]
    fn marks_are_set_per_spacing_and_per_segment() {
        let mut marks = Marks::default();
        marks.restart_at(mark(1, 1, 4096));
        for index in 2..1000 {
            marks.note_frame(mark(index, 1, 4096 + index * 1024));
        }
        marks.note_frame(mark(1000, 2, 4096));
        assert_eq!(marks.0.len(), 17);
        let (found, limit) = marks.covering(100).expect("covered");
        assert!(found.first_index <= 100 && limit.expect("not last") > 100);
        assert_eq!(marks.covering(5000), Some((mark(1000, 2, 4096), None)));
        assert_eq!(marks.covering(0), None);
    }

    /// However a log's marks are come by, segment by segment or in one go, they are the same, and
    /// any split of a range is that range.
    #[test]
    fn segments_that_are_read_apart_give_the_same_marks_and_splits_leave_nothing_out() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut whole = Marks::default();
            let mut apart = Marks::default();
            let mut next = 1;
            for id in 1..=rng.u64(1..6) {
                let mut own = Marks::default();
                let mut offset = 4096;
                for marks in [&mut whole, &mut own] {
                    marks.restart_at(mark(next, id, offset));
                }
                for _ in 0..rng.usize(0..30) {
                    let bytes = rng.u64(1..40_000);
                    if rng.u8(0..10) == 0 && next > 1 {
                        next = rng.u64(1..next);
                        offset += 40;
                        for marks in [&mut whole, &mut own] {
                            marks.restart_at(mark(next, id, offset));
                        }
                    } else {
                        for marks in [&mut whole, &mut own] {
                            marks.note_frame(mark(next, id, offset));
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
        let mut marks = Marks::default();
        marks.restart_at(mark(1, 1, 4096));
        for index in 2..2000 {
            marks.note_frame(mark(index, 1, 4096 + index * 1024));
        }
        let ranges = marks.split(1, 2000, 2);
        assert_eq!(ranges.len(), 2);
        assert!((900..1100).contains(&ranges[0].end), "{ranges:?}");
    }

    #[test]
    fn a_cut_voids_what_is_above_across_segments() {
        let mut marks = Marks::default();
        marks.restart_at(mark(1, 1, 4096));
        marks.restart_at(mark(11, 2, 4096));
        marks.restart_at(mark(21, 3, 4096));
        marks.restart_at(mark(5, 3, 5000));
        assert_eq!(marks.covering(4), Some((mark(1, 1, 4096), Some(5))));
        assert_eq!(marks.covering(15), Some((mark(5, 3, 5000), None)));
        assert_eq!(marks.first_index_behind(1), Some(5));
        assert_eq!(marks.first_index_behind(2), Some(5));
        marks.release(2);
        assert_eq!(marks.first_index(), Some(5));
    }
}
