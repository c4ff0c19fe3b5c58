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
