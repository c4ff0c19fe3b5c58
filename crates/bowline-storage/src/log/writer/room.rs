//! Space for writes: reservations, rotation to the next segment, spares.
//!
//! The next segment is prepared in advance, by the background thread if there is one. A rotation takes
//! it, and its first frame (`Begin`) is written together with its first group.
//!
//! Invariants:
//!
//! - No frame of a segment is on the disk before the last frame of the segment before it: rotation
//!   syncs first.
//! - The last part of each segment is reserved for groups that free space, so that the owner can free
//!   space on a full disk.

use super::Log;
use crate::error::{Error, Result};
use crate::log::LogOptions;
use crate::log::frame::{
    BEGIN_BYTES, BODY_BYTES_MAX, FRAME_ALIGN, FRAME_HEADER_BYTES, begin_frame,
};
use crate::log::reader::Segment;
use crate::log::segment::{HEADER_BYTES, TRAILER_BYTES};
use crate::log::segment_allocator::{Prepared, SegmentRequest};
use crate::log::sparse_index::IndexPoint;

/// Sizes of new segments are multiples of this. A reused segment whose file was cut keeps its size.
const SEGMENT_ALIGN: u64 = 4096;
pub(super) const SEGMENT_BYTES_MIN: u64 = 2 * HEADER_BYTES;

impl Log {
    /// Reserves space for `bytes` more (payloads plus [`LogOptions::ENTRY_OVERHEAD_BYTES`] for each) in
    /// the group being built, so that [`Log::write`] need not make a segment.
    ///
    /// Only this call returns [`Error::NoSpace`] and [`Error::TooManyFiles`]. ([`Log::write`] calls it, too,
    /// when the reservation was too small.) Nothing has been written then, and the call can be repeated.
    ///
    /// It leaves the last part of each segment to `Log::reserve_to_free`, so that on a full disk there
    /// is space for groups that free some.
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        let body_bytes = (self.staged_bytes() as u64).saturating_add(bytes);
        self.make_room(body_bytes, kept_to_free_bytes)
    }

    /// [`Log::reserve`] for a group that frees space sooner or later: it may use the whole segment.
    pub(crate) fn reserve_to_free(&mut self, bytes: u64) -> Result<()> {
        self.make_room((self.staged_bytes() as u64).saturating_add(bytes), |_| 0)
    }

    /// From now on the next segment is prepared as soon as a segment is begun, not when half of it is
    /// full. So a full disk is detected
    /// ([`LogSync::is_short_of_space`](crate::log::LogSync::is_short_of_space)) while the log still has
    /// space: at least the rest of a segment. The owner then appends only groups that free space. Needs
    /// [`Background::Threads`](crate::workers::Background::Threads).
    pub fn keep_a_spare(&mut self) {
        self.allocator.keep_one();
        self.look_for_space();
    }

    /// Requests the segment that could not be prepared before. Call it repeatedly while the log is short
    /// of space.
    pub fn look_for_space(&self) {
        // A prepared segment may be a smaller one than wanted.
        let is_wanted = !self.allocator.is_prepared() || self.shared.space.is_short();
        if self.allocator.keeps_one() && is_wanted {
            self.allocator
                .request(self.segment_request(self.next_segment_bytes));
        }
    }

    /// Removes the spares and the prepared segment, to free their space; returns whether there were
    /// any.
    pub(crate) fn discard_spares(&self) -> bool {
        self.allocator.discard_ready(&self.shared)
    }

    /// A request for a segment behind the active one.
    pub(super) fn segment_request(&self, bytes: u64) -> SegmentRequest {
        SegmentRequest {
            bytes,
            previous_id: self.active_id(),
            previous_salt: self.segments.back().map_or(0, |segment| segment.salt),
            owner: self.options.owner,
            shared: self.shared.clone(),
        }
    }

    /// Rotates to a new segment if a body of `body_bytes` does not fit into the active one. `kept_bytes`
    /// returns how much of a segment of a given size is reserved.
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
        // At most an eighth of the next segment is reserved.
        let bytes_min = bytes_min + kept_bytes(bytes_min + bytes_min / 7 + SEGMENT_ALIGN);
        self.rotate(bytes_min.next_multiple_of(SEGMENT_ALIGN))
    }

    /// Rotates to a new segment of at least `bytes_min`.
    ///
    /// If a segment is prepared and everything before is synced (as after each commit that syncs), this
    /// does no I/O: the `Begin` frame is written together with the first group.
    fn rotate(&mut self, bytes_min: u64) -> Result<()> {
        // No frame of the new segment may be on the disk before the last frame of the active one. That may be its
        // beginning, of which nothing was written yet.
        self.sync_beginning()?;
        let bytes = bytes_min.max(self.next_segment_bytes);
        let first_bytes = segment_size(self.options.first_segment_bytes, &self.options);
        let smaller_bytes = bytes_min.max(first_bytes / 8);
        let request = self.segment_request(bytes);
        let taken = match self.allocator.take_prepared(bytes_min, &request) {
            // The disk may have space for a smaller one.
            Err(Error::NoSpace { .. }) if smaller_bytes < bytes => {
                let request = self.segment_request(smaller_bytes);
                self.allocator.take_prepared(bytes_min, &request)
            }
            result => result,
        };
        let Prepared { path, file, header } = self.note_space(taken)?;
        let shared = self.shared.clone();
        // A flush that began before must not count as a flush of the new segment.
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
        self.sparse_index.restart_at(IndexPoint {
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

    /// Records whether the disk had space for a segment.
    pub(super) fn note_space<T>(&self, taken: Result<T>) -> Result<T> {
        let is_full = matches!(taken, Err(Error::NoSpace { .. }));
        self.shared.space.set_full(is_full);
        taken
    }
}

/// How much of a segment is reserved for groups that free space.
fn kept_to_free_bytes(capacity_bytes: u64) -> u64 {
    const KEPT_BYTES_MAX: u64 = 4 << 20;
    ((capacity_bytes - HEADER_BYTES.min(capacity_bytes)) / 8).min(KEPT_BYTES_MAX)
}

/// A segment size within the limits of the options and the layout.
pub(super) fn segment_size(bytes: u64, options: &LogOptions) -> u64 {
    let bytes = bytes.min(options.segment_bytes).max(SEGMENT_BYTES_MIN);
    bytes.next_multiple_of(SEGMENT_ALIGN)
}
