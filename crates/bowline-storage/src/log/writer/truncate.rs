//! Truncation: a cut removes the end of the log, a release the beginning, a restart everything.
//!
//! Invariants:
//!
//! - A cut is a frame, so once it is synced the entries that it voids stay void after a crash.
//! - A segment is released only when the frames that make it superfluous are durable. The active segment
//!   is never released.
//! - After a restart the log durably has one segment. An old segment that reappeared after a crash would
//!   not be connected to it.

use std::io;
use std::path::Path;

use super::Log;
use super::room::{SEGMENT_BYTES_MIN, segment_size};
use crate::error::{Error, Result};
use crate::log::frame::{FrameKind, NUMBER_LIMIT};
use crate::log::reader::Segment;
use crate::log::scan::list;
use crate::log::segment::{
    ActivationError, HEADER_BYTES, SegmentHeader, activate, is_spare_name, segment_id, segment_path,
};
use crate::log::segment_allocator::Released;
use crate::log::sparse_index::{IndexPoint, SparseIndex};
use crate::types::Index;
use crate::vfs::{self, Vfs};

impl Log {
    /// Voids every entry from `from` on; the next one written gets that index. Durable after the
    /// next [`Log::sync`]. A group being built must be written or discarded before.
    pub fn cut_suffix(&mut self, from: Index) -> Result<()> {
        let written_index = self.shared.active()?.written_index;
        if self.group_entries > 0 {
            return Err(Error::Internal("a cut with a staged group".to_owned()));
        }
        if from == written_index + 1 {
            return Ok(());
        }
        let first_index = self.first_index();
        if !(first_index..=written_index).contains(&from) {
            let held = format!("{first_index}..={written_index}");
            return Err(Error::Internal(format!(
                "a cut at {from}, the log holds {held}"
            )));
        }
        self.make_room(0, |_| 0)?;
        let shared = self.shared.clone();
        // A flush that began before the cut must not count the void entries as durable after it.
        let _no_flush = shared.lock_sync();
        let end_offset = self.append_bare(FrameKind::Cut, from)?;
        self.sparse_index.restart_at(IndexPoint {
            first_index: from,
            segment_id: self.active_id(),
            offset: end_offset,
        });
        let mut active = shared.any_active();
        active.written_index = from - 1;
        active.durable_index = active.durable_index.min(from - 1);
        Ok(())
    }

    /// Releases the segments whose entries are all at or below `upto`, except the active one. The caller
    /// has those entries durably elsewhere. The segment allocator removes their files or uses them again,
    /// on its thread if there is one.
    pub fn release_prefix(&mut self, upto: Index) -> Result<()> {
        self.shared.active().map(drop)?;
        if self.is_released_by(upto) {
            // A segment may be superfluous because of a cut that is not durable yet.
            self.sync_beginning()?;
        }
        let mut released = Vec::new();
        while self.is_released_by(upto) {
            released.extend(self.forget_oldest());
        }
        self.allocator.release(released)
    }

    /// Voids all entries and continues at `next_index`, perhaps after a gap: a state from elsewhere has
    /// replaced the entries below. When this returns, the log durably consists of one new segment. A
    /// group being built must be written or discarded before.
    ///
    /// A crash before it returns may leave segments that do not connect. So the caller first records,
    /// durably, that the log is void; then calls this; then records that the log has begun. In between,
    /// an opening begins with [`Log::discard`].
    pub fn restart_at(&mut self, next_index: Index) -> Result<()> {
        self.shared.active().map(drop)?;
        if self.group_entries > 0 {
            return Err(Error::Internal("a restart with a staged group".to_owned()));
        }
        if !(1..NUMBER_LIMIT).contains(&next_index) {
            return Err(Error::Internal(format!("a restart at {next_index}")));
        }
        let bytes = segment_size(self.options.first_segment_bytes, &self.options);
        // A segment that the thread prepares now would continue a segment that is removed.
        self.allocator.settle();
        self.allocator.finish_releases()?;
        let spare = self.note_space(self.allocator.take(SEGMENT_BYTES_MIN, bytes))?;
        let header = SegmentHeader {
            id: self.allocator.next_id(self.active_id()),
            salt: fastrand::u64(..),
            owner: self.options.owner,
            first_index: next_index,
            capacity_bytes: spare.bytes,
            previous: None,
            is_prepared: false,
            later_id: None,
            has_torn_mark: false,
        };
        let shared = self.shared.clone();
        // A flush that began before must not count as a flush of the new segment.
        let _no_flush = shared.lock_sync();
        match activate(&*self.vfs, &self.dir, &spare, &header) {
            Ok(()) => {}
            Err(ActivationError::BeforeNaming(error)) => {
                self.allocator.discard(&spare);
                return self.note_space(Err(error));
            }
            Err(ActivationError::WhileNaming(error)) => return Err(shared.poison(&error)),
        }
        self.counters.log_bytes_written.add(HEADER_BYTES);
        self.reader.forget();
        let abandoned = self.allocator.take_abandoned();
        let abandoned = abandoned.into_iter().map(|prepared| prepared.header.id);
        let old = std::mem::take(&mut self.segments);
        for id in old.iter().map(|segment| segment.id).chain(abandoned) {
            let path = segment_path(&self.dir, id);
            match self.vfs.remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(shared.poison(&Error::io("remove", &path, error)));
                }
                _ => {}
            }
        }
        let path = segment_path(&self.dir, header.id);
        // An old segment that reappeared would not be connected to the new one.
        vfs::sync_parent(&*self.vfs, &path).map_err(|error| shared.poison(&error))?;
        self.active_life = header.life();
        self.vouched_offset = HEADER_BYTES;
        self.begin.clear();
        self.segments.push_back(Segment {
            id: header.id,
            salt: header.salt,
            file_len: header.capacity_bytes,
        });
        self.sparse_index = SparseIndex::default();
        self.sparse_index.restart_at(IndexPoint {
            first_index: next_index,
            segment_id: header.id,
            offset: HEADER_BYTES,
        });
        self.next_segment_bytes = segment_size(spare.bytes * 2, &self.options);
        self.is_next_requested = false;
        let mut active = shared.any_active();
        active.file = spare.file;
        active.path = path.into();
        active.end_offset = HEADER_BYTES;
        active.synced_offset = HEADER_BYTES;
        active.written_index = next_index - 1;
        active.durable_index = next_index - 1;
        Ok(())
    }

    /// Removes the log in `dir`, durably, in whatever state it is. It must not be open. For an owner that
    /// has recorded that the log is void; see [`Log::restart_at`].
    pub fn discard(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
        let names = list(vfs, dir)?;
        let ours = names
            .iter()
            .filter(|name| is_spare_name(name) || segment_id(name).is_some());
        for path in ours.map(|name| dir.join(name)) {
            match vfs.remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", &path, error));
                }
                _ => {}
            }
        }
        match vfs.sync_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("sync", dir, error))
            }
            _ => Ok(()),
        }
    }

    /// Whether all entries of the oldest segment are at or below `upto`, and it is not the active one.
    fn is_released_by(&self, upto: Index) -> bool {
        let Some(oldest) = self.segments.front() else {
            return false;
        };
        // Behind the oldest segment there is always the index point of the active one.
        let behind = self.sparse_index.first_index_behind(oldest.id);
        self.segments.len() > 1 && behind.is_some_and(|behind| behind - 1 <= upto)
    }

    /// Takes the oldest segment out of the log. Its file still exists.
    fn forget_oldest(&mut self) -> Option<Released> {
        let oldest = self.segments.pop_front()?;
        self.sparse_index.release(oldest.id);
        self.reader.forget();
        let fits = (self.next_segment_bytes..=self.options.segment_bytes.max(SEGMENT_BYTES_MIN))
            .contains(&oldest.file_len);
        Some(Released {
            id: oldest.id,
            bytes: oldest.file_len,
            spares_max: if fits { self.options.spares_max } else { 0 },
            shared: self.shared.clone(),
        })
    }
}
