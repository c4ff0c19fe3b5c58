//! The log as its owner holds it: stage, write, rotate, cut, release, close.

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::LogOptions;
use super::frame::{
    BEGIN_BYTES, BODY_BYTES_MAX, FRAME_ALIGN, FRAME_HEADER_BYTES, FrameKind, Life, NUMBER_LIMIT,
    VOUCH_BYTES_MAX, bare_frame, begin_frame, finish_frame, vouch_frames,
};
use super::marks::{Mark, Marks};
use super::plan::plan;
use super::preparer::{Order, Prepared, Preparer, Released};
use super::reader::{Reader, Replay, Segment, Visit};
use super::recovery::apply;
use super::scan::{list, scan};
use super::segment::{
    ActivationError, HEADER_BYTES, SegmentHeader, TRAILER_BYTES, activate, is_spare_name,
    segment_id, segment_path, write_mark,
};
use super::space::Space;
use super::sync::{Active, LogSync, Shared};
use super::verify::{Report, verify};
use crate::codec::put_bytes;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::types::Index;
use crate::value::Value;
use crate::vfs::{self, Vfs};
use crate::workers;

/// Sizes of new segments are multiples of this; one that was cut, and is used again, keeps its own.
const SEGMENT_ALIGN: u64 = 4096;
const SEGMENT_BYTES_MIN: u64 = 2 * HEADER_BYTES;
const REPLAY_READ_AHEAD_BYTES: usize = 256 << 10;
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
    preparer: Preparer,
    /// Oldest first; the last one is active.
    segments: VecDeque<Segment>,
    marks: Marks,
    active_life: Life,
    /// Up to here the active segment holds nothing but what later frames of the log vouch for, and
    /// what says so.
    vouched_offset: u64,
    /// Room for a frame header, then the staged entries.
    group: Vec<u8>,
    group_entries: u64,
    /// The frame the active segment is to begin with, written together with the next one.
    begin: Vec<u8>,
    next_segment_bytes: u64,
    is_next_requested: bool,
}

impl Log {
    /// Opens the log in `dir`, recovers it, and hands every entry above `after` to `visit`, in
    /// order. `after` is the last index whose entries the caller has safely elsewhere; the log
    /// must hold or continue at the next one. An absent or empty directory is a new log that
    /// starts there, unless `must_exist`: then it is a [`Error::MissingFile`].
    ///
    /// Reading comes first: damage is reported before anything is changed.
    pub fn open(
        vfs: Arc<dyn Vfs>,
        dir: PathBuf,
        options: LogOptions,
        counters: Arc<Counters>,
        after: Index,
        must_exist: bool,
        visit: &mut dyn FnMut(Index, &[u8]) -> Result<()>,
    ) -> Result<Log> {
        let log = Log::recover(vfs, dir, options, counters, after, must_exist)?;
        for stretch in log.replay(after, 1) {
            stretch.visit(visit)?;
        }
        Ok(log)
    }

    /// [`Log::open`] for an owner that reads the entries afterwards, with [`Log::replay`].
    pub fn recover(
        vfs: Arc<dyn Vfs>,
        dir: PathBuf,
        options: LogOptions,
        counters: Arc<Counters>,
        after: Index,
        must_exist: bool,
    ) -> Result<Log> {
        let threads = |bytes| workers::threads_for(options.background, bytes);
        let scan = scan(&*vfs, &dir, threads)?;
        if let Some(last) = scan.segments.last() {
            // It names the salts of the others.
            last.header.check_owner(&dir, options.owner)?;
        }
        let mut plan = plan(scan, &dir, after, must_exist)?;
        tracing::debug!(dir = %dir.display(), %plan, "recovering the log");
        let space = Arc::new(Space::default());
        let preparer = Preparer::new(
            vfs.clone(),
            dir.clone(),
            counters.clone(),
            options.background,
            space.clone(),
        )?;
        let segment_bytes = segment_size(options.first_segment_bytes, &options);
        let owner = options.owner;
        let (header, file) = apply(&*vfs, &dir, &mut plan, &preparer, segment_bytes, owner)?;
        counters.log_bytes_written.add(HEADER_BYTES);
        let mut segments: VecDeque<Segment> = plan
            .kept
            .iter()
            .map(|kept| Segment {
                id: kept.header.id,
                salt: kept.header.salt,
                file_len: kept.file_len,
            })
            .collect();
        segments.push_back(Segment {
            id: header.id,
            salt: header.salt,
            file_len: header.capacity_bytes,
        });
        let written_index = header.first_index - 1;
        let active = Active {
            file,
            path: segment_path(&dir, header.id).into(),
            end_offset: HEADER_BYTES,
            synced_offset: HEADER_BYTES,
            written_index,
            durable_index: written_index,
            poison: None,
            is_closed: false,
        };
        Ok(Log {
            reader: Reader::new(vfs.clone(), dir.clone()),
            shared: Arc::new(Shared::new(active, counters.clone(), space)),
            next_segment_bytes: segment_size(segment_bytes * 2, &options),
            active_life: header.life(),
            // The header of the segment vouches for all before it.
            vouched_offset: HEADER_BYTES,
            marks: plan.marks,
            group: vec![0; FRAME_HEADER_BYTES],
            group_entries: 0,
            begin: Vec::new(),
            is_next_requested: false,
            vfs,
            dir,
            options,
            counters,
            preparer,
            segments,
        })
    }

    /// The written entries above `after`, in at most `count` stretches of about the same size that
    /// follow each other, each to be read by itself.
    #[must_use]
    pub fn replay(&self, after: Index, count: usize) -> Vec<Replay<'_>> {
        let end = self.written_index() + 1;
        let stretches = self.marks.split(after + 1, end, count).into_iter();
        let replay = |wanted| {
            let reader = Reader::new(self.vfs.clone(), self.dir.clone());
            let (segments, marks) = (&self.segments, &self.marks);
            Replay::new(reader, segments, marks, wanted, REPLAY_READ_AHEAD_BYTES)
        };
        stretches.map(replay).collect()
    }

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

    /// Forgets the group being built.
    pub fn discard_staged(&mut self) {
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
        self.marks.note_frame(Mark {
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
        let is_due = end_offset >= self.active_capacity_bytes() / 2 || self.preparer.keeps_one();
        if !self.is_next_requested && is_due {
            self.is_next_requested = true;
            self.preparer.request(self.order(self.next_segment_bytes));
        }
        Ok(())
    }

    /// A segment behind the active one.
    fn order(&self, bytes: u64) -> Order {
        Order {
            bytes,
            previous_id: self.active_id(),
            previous_salt: self.segments.back().map_or(0, |segment| segment.salt),
            owner: self.options.owner,
            shared: self.shared.clone(),
        }
    }

    /// Prepares the next segment, as the thread does.
    #[cfg(test)]
    pub(super) fn prepare_now(&self) {
        self.preparer
            .prepare_now(&self.order(self.next_segment_bytes));
    }

    /// Leaves what is released to [`Log::remove_one_now`], as it is left to the thread.
    #[cfg(test)]
    pub(super) fn leave_releases(&mut self) {
        self.preparer.leave_releases();
    }

    /// Removes one released segment, as the thread does.
    #[cfg(test)]
    pub(super) fn remove_one_now(&self) {
        self.preparer.remove_one_now();
    }

    /// Whether a released segment could not be removed the last time.
    #[cfg(test)]
    pub(super) fn has_failed_to_remove(&self) -> bool {
        self.preparer.has_failed_to_remove()
    }

    /// From now on a segment is prepared as soon as one is begun, not when half of it is used up, so
    /// that a full disk is noticed ([`LogSync::is_short_of_space`]) while the log still has room of
    /// its own: at least the rest of a segment that was begun. For an owner that then sees to it
    /// that only what frees space is appended. Needs [`Background::Threads`](super::Background::Threads).
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

    /// Makes everything written so far durable; returns the highest durable index.
    pub fn sync(&self) -> Result<Index> {
        self.shared.sync()
    }

    /// Whether later frames vouch for everything that is written: then damage to any of it is an
    /// error, and never taken for a tail that a crash tore.
    #[must_use]
    pub fn is_vouched_for(&self) -> bool {
        self.begin.is_empty() && self.shared.any_active().end_offset == self.vouched_offset
    }

    /// Has everything that is written vouched for, once it is synced: for an owner who expects no
    /// more entries for a while, and could do something about a lost end of its log. Returns whether
    /// something was written, which vouches for the rest after the next [`Log::sync`].
    ///
    /// Nothing is written while there is something staged or unsynced, nor where there is no room for
    /// it: then the window is what it was.
    ///
    /// # Errors
    /// As of [`Log::write`].
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
            // The frame that begins the next segment vouches for this one. On a full disk there is none.
            if !self.preparer.is_prepared() {
                return Ok(false);
            }
            match self.make_room(VOUCH_BYTES_MAX as u64, |_| 0) {
                Err(error) if error.is_shortage() => return Ok(false),
                result => result?,
            }
        }
        let (offset, _) = self.place()?;
        // What the segment begins with states where the one before ends, which vouches for all of that.
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
            releases: self.preparer.releases(),
        }
    }

    /// The index the next staged entry gets.
    #[must_use]
    pub fn next_index(&self) -> Index {
        self.written_index() + 1 + self.group_entries
    }

    /// The lowest index that can be read; the next one when the log is empty.
    #[must_use]
    pub fn first_index(&self) -> Index {
        self.marks
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
    pub fn written_index(&self) -> Index {
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
        self.marks.restart_at(Mark {
            first_index: from,
            segment_id: self.active_id(),
            offset: end_offset,
        });
        let mut active = shared.any_active();
        active.written_index = from - 1;
        active.durable_index = active.durable_index.min(from - 1);
        Ok(())
    }

    /// Gives up segments whose entries are all at or below `upto`; never the active one. The
    /// caller has those entries durably elsewhere. Their files are removed, or used again, by the
    /// thread that prepares segments, where there is one.
    pub fn release_prefix(&mut self, upto: Index) -> Result<()> {
        self.shared.active().map(drop)?;
        if self.is_released_by(upto) {
            // What makes a segment superfluous may be a cut that is not durable yet.
            self.sync_beginning()?;
        }
        let mut released = Vec::new();
        while self.is_released_by(upto) {
            released.extend(self.forget_oldest());
        }
        self.preparer.release(released)
    }

    /// Voids everything written so far and goes on at `next_index`, which may leave a gap: what
    /// lies below has been replaced by a state from elsewhere. When this returns, the log is one
    /// new segment, durably. A group being built must be written or discarded before.
    ///
    /// A crash before it returns may leave segments that do not connect. So the caller records
    /// first, durably, that there is no log it could need; then calls this; then records that
    /// there is one. In between, an opening begins with [`Log::discard`].
    pub fn restart_at(&mut self, next_index: Index) -> Result<()> {
        self.shared.active().map(drop)?;
        if self.group_entries > 0 {
            return Err(Error::Internal("a restart with a staged group".to_owned()));
        }
        if !(1..NUMBER_LIMIT).contains(&next_index) {
            return Err(Error::Internal(format!("a restart at {next_index}")));
        }
        let bytes = segment_size(self.options.first_segment_bytes, &self.options);
        // What it prepares would continue a segment that goes.
        self.preparer.settle();
        self.preparer.finish_releases()?;
        let spare = self.note_space(self.preparer.take(SEGMENT_BYTES_MIN, bytes))?;
        let header = SegmentHeader {
            id: self.preparer.next_id(self.active_id()),
            salt: fastrand::u64(..),
            owner: self.options.owner,
            first_index: next_index,
            capacity_bytes: spare.bytes,
            previous: None,
            is_prepared: false,
            later_id: None,
        };
        let shared = self.shared.clone();
        // A flush that began before must not count as one of the new segment.
        let _no_flush = shared.lock_sync();
        match activate(&*self.vfs, &self.dir, &spare, &header) {
            Ok(()) => {}
            Err(ActivationError::BeforeNaming(error)) => {
                self.preparer.discard(&spare);
                return self.note_space(Err(error));
            }
            Err(ActivationError::WhileNaming(error)) => return Err(shared.poison(&error)),
        }
        self.counters.log_bytes_written.add(HEADER_BYTES);
        self.reader.forget();
        let abandoned = self.preparer.take_abandoned();
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
        // A segment that came back would be one that nothing continues.
        vfs::sync_parent(&*self.vfs, &path).map_err(|error| shared.poison(&error))?;
        self.active_life = header.life();
        self.vouched_offset = HEADER_BYTES;
        self.begin.clear();
        self.segments.push_back(Segment {
            id: header.id,
            salt: header.salt,
            file_len: header.capacity_bytes,
        });
        self.marks = Marks::default();
        self.marks.restart_at(Mark {
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

    /// Removes the log in `dir`, durably, whatever state it is in; it must not be open. For an
    /// owner that has recorded that it needs none of it: see [`Log::restart_at`].
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

    /// How many segments hold the log. Each opening adds one.
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Bytes of the log's files: segments, those not yet removed, and ready spares.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        let segments: u64 = self.segments.iter().map(|segment| segment.file_len).sum();
        segments + self.preparer.file_bytes()
    }

    /// Removes the spares and the segment that is prepared, for somebody who needs the room more;
    /// returns whether there were any.
    pub fn discard_spares(&self) -> bool {
        self.preparer.discard_ready(&self.shared)
    }

    /// Why the log refuses writes, if it does.
    #[must_use]
    pub fn poisoned(&self) -> Option<Arc<str>> {
        self.shared.any_active().poison.clone()
    }

    /// Checks every frame of the log in `dir`, as recovery would, and changes nothing. May run
    /// while the log is open and written to. Whether it is the wanted log, and reaches as far as
    /// it must, is for the caller to compare.
    pub fn verify(vfs: &dyn Vfs, dir: &Path) -> Result<Report> {
        verify(vfs, dir)
    }

    /// Syncs, seals the log, cuts its last file to the used length and removes the spares. A
    /// staged group is lost. Without it, dropping the log leaves what a crash would leave.
    pub fn close(mut self) -> Result<()> {
        let prepared = self.preparer.close();
        self.seal(prepared)
    }

    fn seal(&mut self, prepared: Option<Prepared>) -> Result<()> {
        self.shared.sync()?;
        let next_index = self.written_index() + 1;
        let (file, path) = self.active_file();
        // Before the seal, so that no flush of another thread covers that alone.
        if prepared.is_some() {
            write_mark(&*file, &path, self.active_life, None)
                .map_err(|error| self.shared.poison(&error))?;
        }
        let end_offset = self.append_bare(FrameKind::Seal, next_index)?;
        self.shared.sync()?;
        if let Some(prepared) = prepared {
            self.preparer.remove(&prepared);
        }
        // Only now: a file that was cut and has no seal is damaged.
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
            &self.marks,
            from,
            end,
            read_ahead_bytes,
            visit,
        )
    }

    /// Where the next frame goes, and up to where the segment is synced.
    fn place(&self) -> Result<(u64, u64)> {
        let active = self.shared.active()?;
        let offset = active.end_offset + self.begin.len() as u64;
        Ok((offset, active.synced_offset))
    }

    /// Writes a frame at the end of the active segment, behind what that begins with.
    ///
    /// Where that enters a page of the file, zeros are written up to the page's end. For of a page that
    /// is written only in part, the kernel reads the rest first if it has it no more, and the writer
    /// waits for the disk.
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

    /// Makes sure that the active segment is begun, durably, so that it needs none before it.
    fn sync_beginning(&mut self) -> Result<()> {
        if !self.begin.is_empty() {
            let (offset, _) = self.place()?;
            self.append(offset, &FrameBytes::Bare(&[]))?;
            self.shared.any_active().end_offset = offset;
        }
        self.shared.sync().map(drop)
    }

    /// Goes on in a new segment when a body of `body_bytes` does not fit into the active one, less
    /// what is to be kept of a segment of that size.
    fn make_room(&mut self, body_bytes: u64, kept_bytes: fn(u64) -> u64) -> Result<()> {
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
    fn note_space<T>(&self, taken: Result<T>) -> Result<T> {
        let is_full = matches!(taken, Err(Error::NoSpace { .. }));
        self.shared.space.set_full(is_full);
        taken
    }

    /// Whether all entries of the oldest segment are at or below `upto`, and it is not the active one.
    fn is_released_by(&self, upto: Index) -> bool {
        let Some(oldest) = self.segments.front() else {
            return false;
        };
        // Beyond the oldest segment there is always the mark of the active one.
        let behind = self.marks.first_index_behind(oldest.id);
        self.segments.len() > 1 && behind.is_some_and(|behind| behind - 1 <= upto)
    }

    /// Takes the oldest segment out of the log; its file is there still.
    fn forget_oldest(&mut self) -> Option<Released> {
        let oldest = self.segments.pop_front()?;
        self.marks.release(oldest.id);
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

impl Drop for Log {
    fn drop(&mut self) {
        self.shared.any_active().is_closed = true;
    }
}

/// What is appended.
enum FrameBytes<'a> {
    /// The group that was staged.
    Group,
    Bare(&'a [u8]),
}

/// How much of a segment only groups may use that free space.
fn kept_to_free_bytes(capacity_bytes: u64) -> u64 {
    const KEPT_BYTES_MAX: u64 = 4 << 20;
    ((capacity_bytes - HEADER_BYTES.min(capacity_bytes)) / 8).min(KEPT_BYTES_MAX)
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

/// A segment size within what the options and the layout allow.
fn segment_size(bytes: u64, options: &LogOptions) -> u64 {
    let bytes = bytes.min(options.segment_bytes).max(SEGMENT_BYTES_MIN);
    bytes.next_multiple_of(SEGMENT_ALIGN)
}
