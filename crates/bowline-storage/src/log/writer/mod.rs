//! The open log: stage, write, sync, read, close.

mod open;
mod room;
mod truncate;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::LogOptions;
use super::frame::{
    FRAME_HEADER_BYTES, FrameKind, Life, VOUCH_BYTES_MAX, bare_frame, finish_frame, vouch_frames,
};
use super::reader::{Reader, Segment, Visit};
use super::segment::{TRAILER_BYTES, write_mark};
use super::segment_allocator::{Prepared, SegmentAllocator};
use super::sparse_index::{IndexPoint, SparseIndex};
use super::sync::{LogSync, Shared};
use super::verify::{Report, verify};
use crate::codec::put_bytes;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::types::Index;
use crate::value::Value;
use crate::vfs::{self, Vfs};

const READ_AHEAD_BYTES: usize = 64 << 10;
/// Of the kernel's cache, as most have them.
const PAGE_BYTES: u64 = 4096;
/// A group buffer that grew beyond the first is shrunk to the second.
const GROUP_BYTES_KEPT: (usize, usize) = (8 << 20, 1 << 20);

/// The open log. One owner writes; [`LogSync`] handles flush from any thread.
///
/// ```
/// # use std::sync::Arc;
/// # use bowline_storage::{counters::Counters, log::{Log, LogOptions}, vfs::MemoryVfs};
/// # fn main() -> bowline_storage::Result<()> {
/// let (vfs, counters) = (Arc::new(MemoryVfs::default()), Arc::new(Counters::default()));
/// let open = |visit: &mut dyn FnMut(u64, &[u8]) -> bowline_storage::Result<()>| {
///     Log::open(vfs.clone(), "log".into(), LogOptions::default(), counters.clone(), 0, false, visit)
/// };
/// let mut log = open(&mut |_, _| Ok(()))?;
/// assert_eq!(log.stage(b"first"), 1);
/// assert_eq!(log.stage(b"second"), 2);
/// log.write()?;
/// assert_eq!(log.sync()?, 2);
/// drop(log);
/// let mut seen = Vec::new();
/// open(&mut |index, payload| {
///     seen.push((index, payload.to_vec()));
///     Ok(())
/// })?;
/// assert_eq!(seen, [(1, b"first".to_vec()), (2, b"second".to_vec())]);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Log {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    options: LogOptions,
    counters: Arc<Counters>,
    shared: Arc<Shared>,
    reader: Reader,
    allocator: SegmentAllocator,
    /// Oldest first; the last one is active.
    segments: VecDeque<Segment>,
    sparse_index: SparseIndex,
    active_life: Life,
    /// Later frames vouch for everything in the active segment before this offset, or it is a vouching
    /// frame itself.
    vouched_offset: u64,
    /// Space for a frame header, then the staged entries.
    group: Vec<u8>,
    group_entries: u64,
    /// The `Begin` frame of the active segment, until it is written together with the first group.
    begin: Vec<u8>,
    next_segment_bytes: u64,
    is_next_requested: bool,
}

impl Log {
    /// Adds an entry to the group being built; returns the index it will have.
    pub fn stage(&mut self, payload: &[u8]) -> Index {
        let index = self.next_index();
        put_bytes(&mut self.group, payload);
        self.group_entries += 1;
        index
    }

    /// Bytes the group being built takes in the log, without its frame header.
    #[must_use]
    pub fn staged_bytes(&self) -> usize {
        self.group.len() - FRAME_HEADER_BYTES
    }

    /// Discards the group being built.
    pub(crate) fn discard_staged(&mut self) {
        self.group.truncate(FRAME_HEADER_BYTES);
        self.group_entries = 0;
        let (limit, kept) = GROUP_BYTES_KEPT;
        if self.group.capacity() > limit {
            self.group.shrink_to(kept);
        }
    }

    /// Writes the group being built as one frame. It is durable after the next [`Log::sync`].
    ///
    /// After [`Error::NoSpace`], [`Error::TooManyFiles`] or [`Error::BatchTooLarge`] the group is still staged.
    pub fn write(&mut self) -> Result<()> {
        if self.group_entries == 0 {
            return self.shared.active().map(drop);
        }
        self.make_room(self.staged_bytes() as u64, |_| 0)?;
        let (offset, synced_offset) = self.place()?;
        let first_index = self.written_index() + 1;
        finish_frame(
            &mut self.group,
            self.active_life,
            offset,
            FrameKind::Data,
            first_index,
            // `make_room` bounds the body, and an entry has at least one byte of it.
            self.group_entries as u32,
            synced_offset,
        );
        self.append(offset, &FrameBytes::Group)?;
        self.sparse_index.note_frame(IndexPoint {
            first_index,
            segment_id: self.active_id(),
            offset,
        });
        let end_offset = offset + self.group.len() as u64;
        {
            let mut active = self.shared.any_active();
            active.end_offset = end_offset;
            active.written_index += self.group_entries;
        }
        self.discard_staged();
        let is_due = end_offset >= self.active_capacity_bytes() / 2 || self.allocator.keeps_one();
        if !self.is_next_requested && is_due {
            self.is_next_requested = true;
            self.allocator
                .request(self.segment_request(self.next_segment_bytes));
        }
        Ok(())
    }

    /// Prepares the next segment, as the thread does.
    #[cfg(test)]
    pub(super) fn prepare_now(&self) {
        self.allocator
            .prepare_now(&self.segment_request(self.next_segment_bytes));
    }

    /// Leaves released segments to [`Log::remove_one_now`], as the owner leaves them to the thread.
    #[cfg(test)]
    pub(super) fn leave_releases(&mut self) {
        self.allocator.leave_releases();
    }

    /// Removes one released segment, as the thread does.
    #[cfg(test)]
    pub(super) fn remove_one_now(&self) {
        self.allocator.remove_one_now();
    }

    /// Whether the last attempt to remove a released segment failed.
    #[cfg(test)]
    pub(super) fn has_failed_to_remove(&self) -> bool {
        self.allocator.has_failed_to_remove()
    }

    /// Makes everything written so far durable; returns the highest durable index.
    pub fn sync(&self) -> Result<Index> {
        self.shared.sync()
    }

    /// Whether later frames vouch for everything that is written. Then damage to any of it is an error and
    /// is never mistaken for a torn tail.
    #[must_use]
    pub fn is_vouched_for(&self) -> bool {
        self.begin.is_empty() && self.shared.any_active().end_offset == self.vouched_offset
    }

    /// Writes frames that vouch for everything written and synced so far. For an owner that expects no
    /// entries for a while and can repair a lost end of its log. Returns whether it wrote the frames;
    /// they take effect with the next [`Log::sync`].
    ///
    /// It writes nothing while a group is staged or unsynced, or when the disk has no space: then the
    /// unprotected part stays as it was.
    ///
    /// # Errors
    /// Those of [`Log::write`].
    pub fn vouch(&mut self) -> Result<bool> {
        let (end_offset, synced_offset) = {
            let active = self.shared.active()?;
            (active.end_offset, active.synced_offset)
        };
        if self.is_vouched_for() || self.group_entries > 0 || synced_offset < end_offset {
            return Ok(false);
        }
        let room = end_offset + (self.begin.len() + VOUCH_BYTES_MAX) as u64 + TRAILER_BYTES;
        if room > self.active_capacity_bytes() {
            // The first frame of the next segment will vouch for this one. On a full disk there is no next
            // segment.
            if !self.allocator.is_prepared() {
                return Ok(false);
            }
            match self.make_room(VOUCH_BYTES_MAX as u64, |_| 0) {
                Err(error) if error.is_shortage() => return Ok(false),
                result => result?,
            }
        }
        let (offset, _) = self.place()?;
        // `Begin` states where the previous segment ends, which vouches for that whole segment.
        let is_begun = self.begin.is_empty();
        let life = self.active_life;
        let frames = is_begun.then(|| vouch_frames(life, offset, self.written_index() + 1));
        let frames = frames.unwrap_or_default();
        self.append(offset, &FrameBytes::Bare(&frames))?;
        let end_offset = offset + frames.len() as u64;
        self.shared.any_active().end_offset = end_offset;
        self.vouched_offset = end_offset;
        Ok(true)
    }

    /// A handle that syncs from another thread.
    #[must_use]
    pub fn sync_handle(&self) -> LogSync {
        LogSync {
            shared: self.shared.clone(),
            releases: self.allocator.releases(),
        }
    }

    /// The index of the next staged entry.
    #[must_use]
    pub fn next_index(&self) -> Index {
        self.written_index() + 1 + self.group_entries
    }

    /// The lowest index that can be read; the next one when the log is empty.
    #[must_use]
    pub fn first_index(&self) -> Index {
        self.sparse_index
            .first_index()
            .unwrap_or_else(|| self.written_index() + 1)
    }

    /// The highest index known durable.
    #[must_use]
    pub fn durable_index(&self) -> Index {
        self.shared.any_active().durable_index
    }

    /// The highest index written, durable or not.
    #[must_use]
    pub(crate) fn written_index(&self) -> Index {
        self.shared.any_active().written_index
    }

    /// Written entries from `from` on: at most `max_bytes` of payload, but at least one entry
    /// where there is one. `from` must not be below [`Log::first_index`].
    pub fn read(&self, from: Index, max_bytes: usize) -> Result<Vec<(Index, Value)>> {
        let mut entries = Vec::new();
        let mut left = max_bytes;
        let end = self.written_index() + 1;
        self.visit_range(from, end, READ_AHEAD_BYTES, &mut |index, payload| {
            match left.checked_sub(payload.len()) {
                Some(rest) => left = rest,
                None if entries.is_empty() => left = 0,
                None => return Ok(ControlFlow::Break(())),
            }
            entries.push((index, Value::copy_from(payload)));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(entries)
    }

    /// The number of segments. Each opening adds one.
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Bytes of the log's files: segments, those not yet removed, and ready spares.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        let segments: u64 = self.segments.iter().map(|segment| segment.file_len).sum();
        segments + self.allocator.file_bytes()
    }

    /// The reason why the log refuses writes, if it does.
    #[must_use]
    pub fn poisoned(&self) -> Option<Arc<str>> {
        self.shared.any_active().poison.clone()
    }

    /// Checks every frame of the log in `dir`, as recovery does, and changes nothing. It may run while the
    /// log is open and written to. The caller checks that it is the expected log and reaches far
    /// enough.
    pub fn verify(vfs: &dyn Vfs, dir: &Path) -> Result<Report> {
        verify(vfs, dir)
    }

    /// Syncs and seals the log, cuts its last file to the used length and removes the spares. A staged
    /// group is lost. A log that is dropped without this call looks like one after a crash.
    pub fn close(mut self) -> Result<()> {
        let prepared = self.allocator.close();
        self.seal(prepared)
    }

    fn seal(&mut self, prepared: Option<Prepared>) -> Result<()> {
        self.shared.sync()?;
        let next_index = self.written_index() + 1;
        let (file, path) = self.active_file();
        // Before the seal is written, so that no flush of another thread covers the seal alone.
        if prepared.is_some() {
            write_mark(&*file, &path, self.active_life, None)
                .map_err(|error| self.shared.poison(&error))?;
        }
        let end_offset = self.append_bare(FrameKind::Seal, next_index)?;
        self.shared.sync()?;
        if let Some(prepared) = prepared {
            self.allocator.remove(&prepared);
        }
        // Only after the seal: a cut file without a seal is damaged.
        file.set_len(end_offset)
            .map_err(|error| Error::io("cut", &path, error))
            .and_then(|()| vfs::sync_data(&*file, &path))
            .map_err(|error| self.shared.poison(&error))
    }

    fn active_id(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.id)
    }

    fn active_capacity_bytes(&self) -> u64 {
        self.segments.back().map_or(0, |segment| segment.file_len)
    }

    fn active_file(&self) -> (Arc<dyn vfs::VfsFile>, Arc<Path>) {
        let active = self.shared.any_active();
        (active.file.clone(), active.path.clone())
    }

    fn visit_range(
        &self,
        from: Index,
        end: Index,
        read_ahead_bytes: usize,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        self.reader.visit(
            &self.segments,
            &self.sparse_index,
            from,
            end,
            read_ahead_bytes,
            visit,
        )
    }

    /// The offset of the next frame, and the offset up to which the segment is synced.
    fn place(&self) -> Result<(u64, u64)> {
        let active = self.shared.active()?;
        let offset = active.end_offset + self.begin.len() as u64;
        Ok((offset, active.synced_offset))
    }

    /// Writes a frame at the end of the active segment, behind the `Begin` frame if that is not written
    /// yet.
    ///
    /// When the write enters a new page of the file, the rest of the page is filled with zeros.
    /// Otherwise the kernel would first read the rest of the page from the disk, if it is not cached, and
    /// the writer would wait.
    fn append(&mut self, offset: u64, frame: &FrameBytes<'_>) -> Result<()> {
        let (file, path) = self.active_file();
        let capacity_bytes = self.active_capacity_bytes();
        let mut begin = std::mem::take(&mut self.begin);
        let start = offset - begin.len() as u64;
        let bytes = match frame {
            FrameBytes::Group if begin.is_empty() => &mut self.group,
            FrameBytes::Group => {
                begin.extend_from_slice(&self.group);
                &mut begin
            }
            FrameBytes::Bare(bytes) => {
                begin.extend_from_slice(bytes);
                &mut begin
            }
        };
        let len = bytes.len();
        let filled = len + zeros_behind(start, start + len as u64, capacity_bytes);
        bytes.resize(filled, 0);
        let written = vfs::write_all_at(&*file, &path, bytes, start);
        bytes.truncate(len);
        written.map_err(|error| self.shared.poison(&error))?;
        self.counters.log_bytes_written.add(len as u64);
        Ok(())
    }

    /// Appends a frame without entries; returns the offset behind it.
    fn append_bare(&mut self, kind: FrameKind, index: Index) -> Result<u64> {
        let (offset, synced_offset) = self.place()?;
        let frame = bare_frame(self.active_life, offset, kind, index, synced_offset);
        self.append(offset, &FrameBytes::Bare(&frame))?;
        let end_offset = offset + frame.len() as u64;
        self.shared.any_active().end_offset = end_offset;
        Ok(end_offset)
    }

    /// Makes everything in the active segment durable, also the `Begin` frame of one into which nothing was written.
    fn sync_beginning(&mut self) -> Result<()> {
        if !self.begin.is_empty() {
            let (offset, _) = self.place()?;
            self.append(offset, &FrameBytes::Bare(&[]))?;
            self.shared.any_active().end_offset = offset;
        }
        self.shared.sync().map(drop)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.shared.any_active().is_closed = true;
    }
}

/// The content of an appended frame.
enum FrameBytes<'a> {
    /// The staged group.
    Group,
    Bare(&'a [u8]),
}

/// How many zeros fill the page that a write from `start` to `end` enters last, if it enters one: the page
/// before `start` has been filled then. None beyond `capacity_bytes`.
fn zeros_behind(start: u64, end: u64, capacity_bytes: u64) -> usize {
    if end.div_ceil(PAGE_BYTES) == start.div_ceil(PAGE_BYTES) {
        return 0;
    }
    let filled = end.next_multiple_of(PAGE_BYTES).min(capacity_bytes);
    filled.saturating_sub(end) as usize
}
