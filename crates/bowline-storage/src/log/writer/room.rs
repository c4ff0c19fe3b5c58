//! Room for what is to be written: reservations, rotation to the next segment, spares.
//!
//! The next segment is prepared ahead, by a thread where there is one. Rotation takes it, and its
//! first frame (`Begin`) is written together with the first group in it.
//!
//! Invariants:
//!
//! - No frame of a segment is on the disk before the last frame of the segment before it: rotation
//!   syncs first.
//! - The last part of each segment is for groups that free space, so a full disk does not keep the
//!   owner from freeing some.

use super::Log;
use crate::error::{Error, Result};
use crate::log::LogOptions;
use crate::log::frame::{
    BEGIN_BYTES, BODY_BYTES_MAX, FRAME_ALIGN, FRAME_HEADER_BYTES, begin_frame,
};
use crate::log::marks::Mark;
use crate::log::preparer::{Order, Prepared};
use crate::log::reader::Segment;
use crate::log::segment::{HEADER_BYTES, TRAILER_BYTES};

/// Sizes of new segments are multiples of this; one that was cut, and is used again, keeps its own.
const SEGMENT_ALIGN: u64 = 4096;
pub(super) const SEGMENT_BYTES_MIN: u64 = 2 * HEADER_BYTES;

impl Log {
    /// Makes sure that `bytes` more (payloads plus [`LogOptions::ENTRY_OVERHEAD_BYTES`] for each)
    /// fit into the group being built, so that [`Log::write`] will not have to make a segment.
    ///
    /// The only place where [`Error::NoSpace`] and [`Error::TooManyFiles`] arise (also when [`Log::write`]
    /// calls it for lack of a large enough reservation). Nothing has been written then, and the same call
    /// can be made again.
    ///
    /// Leaves the last part of each segment to [`Log::reserve_to_free`], so that on a full disk
    /// there is room for what frees some.
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        let body_bytes = (self.staged_bytes() as u64).saturating_add(bytes);
        self.make_room(body_bytes, kept_to_free_bytes)
    }

    /// [`Log::reserve`] for a group that frees space, sooner or later: it may use all there is.
    pub fn reserve_to_free(&mut self, bytes: u64) -> Result<()> {
        self.make_room((self.staged_bytes() as u64).saturating_add(bytes), |_| 0)
    }

    /// From now on a segment is prepared as soon as one is begun, not when half of it is used up, so
    /// that a full disk is noticed ([`LogSync::is_short_of_space`](crate::log::LogSync::is_short_of_space)) while the log still has room of
    /// its own: at least the rest of a segment that was begun. For an owner that then sees to it
    /// that only what frees space is appended. Needs [`Background::Threads`](crate::log::Background::Threads).
    pub fn keep_a_spare(&mut self) {
        self.preparer.keep_one();
        self.look_for_space();
    }

    /// Has the segment prepared that could not be before, when there is room now. To be called now and
    /// then while the log is short of space.
    pub fn look_for_space(&self) {
        // One that is there may be too small for what comes.
        let is_wanted = !self.preparer.is_prepared() || self.shared.space.is_short();
        if self.preparer.keeps_one() && is_wanted {
            self.preparer.request(self.order(self.next_segment_bytes));
        }
    }

    /// Removes the spares and the segment that is prepared, for somebody who needs the room more;
    /// returns whether there were any.
    pub fn discard_spares(&self) -> bool {
        self.preparer.discard_ready(&self.shared)
    }

    /// A segment behind the active one.
    pub(super) fn order(&self, bytes: u64) -> Order {
        Order {
            bytes,
            previous_id: self.active_id(),
            previous_salt: self.segments.back().map_or(0, |segment| segment.salt),
            owner: self.options.owner,
            shared: self.shared.clone(),
        }
    }

    /// Goes on in a new segment when a body of `body_bytes` does not fit into the active one, less
    /// what is to be kept of a segment of that size.
    pub(super) fn make_room(&mut self, body_bytes: u64, kept_bytes: fn(u64) -> u64) -> Result<()> {
        let (end_offset, _) = self.place()?;
        if body_bytes > BODY_BYTES_MAX {
            return Err(Error::BatchTooLarge {
                size: body_bytes,
                limit: BODY_BYTES_MAX,
            });
        }
        let frame_bytes =
            FRAME_HEADER_BYTES as u64 + body_bytes.next_multiple_of(FRAME_ALIGN as u64);
        let capacity_bytes = self.active_capacity_bytes();
        let kept_to_the_end = TRAILER_BYTES + kept_bytes(capacity_bytes);
        if end_offset + frame_bytes + kept_to_the_end <= capacity_bytes {
            return Ok(());
        }
        let bytes_min = HEADER_BYTES + BEGIN_BYTES as u64 + frame_bytes + TRAILER_BYTES;
        // What is kept of the next one is an eighth at most.
        let bytes_min = bytes_min + kept_bytes(bytes_min + bytes_min / 7 + SEGMENT_ALIGN);
        self.rotate(bytes_min.next_multiple_of(SEGMENT_ALIGN))
    }

    /// Goes on in a new segment of at least `bytes_min`.
    ///
    /// When one is prepared and everything before is synced, as it is where each commit is, this
    /// touches no file: what the segment begins with is written together with its first group.
    fn rotate(&mut self, bytes_min: u64) -> Result<()> {
        // No frame of the new segment may be on the disk before the last one of this.
        self.shared.sync()?;
        let bytes = bytes_min.max(self.next_segment_bytes);
        let first_bytes = segment_size(self.options.first_segment_bytes, &self.options);
        let smaller_bytes = bytes_min.max(first_bytes / 8);
        let order = self.order(bytes);
        let taken = match self.preparer.take_prepared(bytes_min, &order) {
            // A smaller one may still find room.
            Err(Error::NoSpace { .. }) if smaller_bytes < bytes => {
                let order = self.order(smaller_bytes);
                self.preparer.take_prepared(bytes_min, &order)
            }
            result => result,
        };
        let Prepared { path, file, header } = self.note_space(taken)?;
        let shared = self.shared.clone();
        // A flush that began before must not count as one of the new segment.
        let _no_flush = shared.lock_sync();
        let (first_index, end_offset_before) = {
            let active = shared.active()?;
            (active.written_index + 1, active.end_offset)
        };
        self.active_life = header.life();
        self.vouched_offset = HEADER_BYTES;
        self.begin = begin_frame(
            self.active_life,
            HEADER_BYTES,
            first_index,
            end_offset_before,
        );
        self.segments.push_back(Segment {
            id: header.id,
            salt: header.salt,
            file_len: header.capacity_bytes,
        });
        self.marks.restart_at(Mark {
            first_index,
            segment_id: header.id,
            offset: HEADER_BYTES,
        });
        self.next_segment_bytes = segment_size(self.next_segment_bytes * 2, &self.options);
        self.is_next_requested = false;
        let mut active = shared.any_active();
        active.file = file;
        active.path = path.into();
        active.end_offset = HEADER_BYTES;
        active.synced_offset = HEADER_BYTES;
        Ok(())
    }

    /// Notes whether there was room for a segment.
    pub(super) fn note_space<T>(&self, taken: Result<T>) -> Result<T> {
        let is_full = matches!(taken, Err(Error::NoSpace { .. }));
        self.shared.space.set_full(is_full);
        taken
    }
}

/// How much of a segment only groups may use that free space.
fn kept_to_free_bytes(capacity_bytes: u64) -> u64 {
    const KEPT_BYTES_MAX: u64 = 4 << 20;
    ((capacity_bytes - HEADER_BYTES.min(capacity_bytes)) / 8).min(KEPT_BYTES_MAX)
}

/// A segment size within what the options and the layout allow.
pub(super) fn segment_size(bytes: u64, options: &LogOptions) -> u64 {
    let bytes = bytes.min(options.segment_bytes).max(SEGMENT_BYTES_MIN);
    bytes.next_multiple_of(SEGMENT_ALIGN)
}
