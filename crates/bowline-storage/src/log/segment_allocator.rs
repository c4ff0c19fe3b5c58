//! The segment allocator: makes segments before they are needed, and removes released ones.
//!
//! A *spare* is a file with a spare's name whose blocks are allocated: a new file of zeros, or a
//! released segment. A *prepared* segment is a spare that has received its header and its name, both
//! durable, after which the active segment was marked as continued: a rotation then only writes. With
//! [`Background::Threads`] a thread prepares segments on request. Otherwise, and whenever none is ready,
//! the writer prepares one at the rotation. The thread does not report its failures: the writer then
//! finds no prepared segment, tries itself and gets its own error. Only a name or a mark of unknown
//! durability stops the log, no matter which thread wrote it.
//!
//! An owner that needs an early warning of a full disk asks for one segment to be kept ready
//! ([`Log::keep_a_spare`](super::Log::keep_a_spare)). Then the thread prepares the next segment as soon
//! as the last one is taken, a smaller one if the disk has no space for it, and records when the disk
//! has no space even for that.
//!
//! A *released* segment is one that the log does not need any more. Its file becomes a spare or is
//! removed, which takes a sync of the directory. The thread does this before all other work. Without a
//! thread, or when the space is needed at once, the caller does it. A segment that cannot be removed stays,
//! with all segments released after it, until the next release.
//!
//! # Locks
//!
//! `removing` serializes removals. It is locked before `state`, and before `active` in the log's
//! [`Shared`]. `state` guards the queues and is never held during I/O.
//!
//! # Invariants
//!
//! - Released segments are removed in the order of their release. Each removal is durable before the
//!   next one, and before the file is written to as a spare.
//! - At most one segment is prepared, and it continues the active one. The active segment is marked as
//!   continued if and only if a prepared one exists. So removing a prepared segment first removes the
//!   mark, durably, or names a later segment.
//! - An id is given once.

use super::segment::{
    ActivationError, HEADER_BYTES, Link, Marker, SegmentHeader, activate, segment_path, spare_name,
};
use super::space::Space;
use super::sync::Shared;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Instant, Mutex, MutexGuard};
use crate::vfs::{self, OpenMode, Vfs, VfsFile};
use crate::workers::Background;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The kernel may cache one write as one large folio, and every later small write into a folio checks
/// each of its blocks. So zeros are written in chunks of this size.
const CHUNK_BYTES: u64 = 64 << 10;
/// The thread syncs after each portion, and then pauses for as long as that took, so that the flush of a commit never
/// queues behind more than this, and half of the disk's time is left to commits.
const PORTION_BYTES: u64 = 256 << 10;
/// The size of a spare on a disk that has no space for a larger one. A disk with less free space counts
/// as full.
const SMALLER_BYTES: u64 = 1 << 20;

/// A file that can become a segment.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn VfsFile>,
    pub(super) bytes: u64,
}

/// A released segment: the log does not refer to it any more.
#[derive(Clone, Debug)]
pub(super) struct Released {
    pub(super) id: u64,
    pub(super) bytes: u64,
    /// It becomes a spare only while there are fewer spares than this; 0 means that it is removed.
    pub(super) spares_max: usize,
    pub(super) shared: Arc<Shared>,
}

/// A request to prepare a segment.
#[derive(Clone, Debug)]
pub(super) struct SegmentRequest {
    pub(super) bytes: u64,
    /// The active segment.
    pub(super) previous_id: u64,
    pub(super) previous_salt: u64,
    pub(super) owner: u128,
    pub(super) shared: Arc<Shared>,
}

/// A prepared segment, without any frame.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn VfsFile>,
    pub(super) header: SegmentHeader,
}

/// A handle with which any thread can free the space of released segments.
#[derive(Clone, Debug)]
pub(super) struct Releases(Arc<Inner>);

impl Releases {
    /// Removes the released segments that are not removed yet; returns whether it removed any.
    pub(super) fn finish(&self) -> bool {
        self.0.finish_releases()
    }
}

/// Owns the spares, the prepared segment and the queue of released segments.
#[derive(Debug)]
pub(super) struct SegmentAllocator {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
    /// Whether another thread removes released segments: the background thread, or a test in its place.
    removes_beside: bool,
}

#[derive(Debug)]
struct Inner {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    counters: Arc<Counters>,
    state: Mutex<State>,
    changed: Condvar,
    stopping: AtomicBool,
    /// Whether one segment is always kept prepared.
    keeps_one: AtomicBool,
    space: Arc<Space>,
    /// Held while released segments are removed. See "Locks" in the head.
    removing: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Oldest first.
    released: VecDeque<Released>,
    /// Whether the thread has released segments to remove; `false` while the oldest cannot be removed.
    has_released: bool,
    /// The error of the last attempt to remove the oldest.
    removal_failed: Option<Error>,
    /// The request that the thread has not started yet.
    requested: Option<SegmentRequest>,
    /// The size of the segment that the thread is preparing now.
    making_bytes: Option<u64>,
    /// How many callers wait until it has.
    waiting: usize,
    ready: VecDeque<Spare>,
    prepared: Option<Prepared>,
    next_number: u64,
    /// The highest id given so far.
    last_id: u64,
}

impl State {
    fn next_path(&mut self, inner: &Inner) -> PathBuf {
        self.next_number += 1;
        inner.dir.join(spare_name(self.next_number))
    }

    fn take_ready(&mut self, bytes_min: u64) -> Option<Spare> {
        let position = self
            .ready
            .iter()
            .position(|spare| spare.bytes >= bytes_min)?;
        self.ready.remove(position)
    }

    /// The next unused id above `previous_id`.
    fn next_id(&mut self, previous_id: u64) -> u64 {
        self.last_id = self.last_id.max(previous_id) + 1;
        self.last_id
    }

    /// The number of spares and prepared segments.
    fn ready_count(&self) -> usize {
        self.ready.len() + usize::from(self.prepared.is_some())
    }

    fn prepared_bytes(&self) -> Option<u64> {
        let prepared = self.prepared.as_ref();
        prepared.map(|prepared| prepared.header.capacity_bytes)
    }
}

impl SegmentAllocator {
    pub(super) fn new(
        vfs: Arc<dyn Vfs>,
        dir: PathBuf,
        counters: Arc<Counters>,
        background: Background,
        space: Arc<Space>,
    ) -> Result<SegmentAllocator> {
        let inner = Arc::new(Inner {
            vfs,
            dir,
            counters,
            state: Mutex::default(),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
            keeps_one: AtomicBool::new(false),
            space,
            removing: Mutex::new(()),
        });
        let thread = match background {
            Background::Manual => None,
            Background::Threads => {
                let inner = inner.clone();
                let thread = thread::Builder::new()
                    .name("bowline-log".to_owned())
                    .spawn(move || inner.run());
                Some(thread.map_err(|error| Error::Io {
                    operation: "start the thread for",
                    path: PathBuf::from("log"),
                    source: Arc::new(error),
                })?)
            }
        };
        Ok(SegmentAllocator {
            inner,
            removes_beside: thread.is_some(),
            thread,
        })
    }

    /// See [`Log::keep_a_spare`](super::Log::keep_a_spare).
    pub(super) fn keep_one(&self) {
        self.inner.keeps_one.store(true, Ordering::Relaxed);
    }

    pub(super) fn keeps_one(&self) -> bool {
        self.inner.keeps_one.load(Ordering::Relaxed)
    }

    /// Asks for a segment to be prepared in the background.
    pub(super) fn request(&self, request: SegmentRequest) {
        if self.thread.is_none() {
            return;
        }
        let mut state = self.inner.state.lock();
        let is_enough = |bytes: u64| bytes >= request.bytes;
        let is_there = state.prepared_bytes().is_some_and(is_enough)
            || state.making_bytes.is_some_and(is_enough);
        if !is_there {
            state.requested = Some(request);
            self.inner.changed.notify_all();
        }
    }

    /// Takes a prepared segment of at least `bytes_min`; when none is ready, prepares one of `request.bytes`
    /// on this thread.
    pub(super) fn take_prepared(
        &self,
        bytes_min: u64,
        request: &SegmentRequest,
    ) -> Result<Prepared> {
        let mut state = self.idle();
        let ready = state.prepared.take();
        let too_small = match ready {
            Some(ready) if ready.header.capacity_bytes >= bytes_min => return Ok(ready),
            too_small => too_small,
        };
        let id = state.next_id(request.previous_id);
        drop(state);
        let made = self.take(bytes_min, request.bytes);
        match made.and_then(|spare| self.inner.name(spare, request, id)) {
            Ok(prepared) => {
                if let Some(too_small) = too_small {
                    self.inner.remove(&too_small.path);
                }
                Ok(prepared)
            }
            Err(error) => {
                self.inner.state.lock().prepared = too_small;
                Err(error)
            }
        }
    }

    /// Takes the prepared segment, for a caller that abandons the active one.
    pub(super) fn take_abandoned(&self) -> Option<Prepared> {
        self.idle().prepared.take()
    }

    /// Waits until the thread is idle. It stays idle until the next request.
    pub(super) fn settle(&self) {
        drop(self.idle());
    }

    /// Cancels the request that has not started, waits for the one that has, and returns the locked state.
    fn idle(&self) -> MutexGuard<'_, State> {
        let mut state = self.inner.state.lock();
        state.requested = None;
        if state.making_bytes.is_some() {
            state.waiting += 1;
            // Without pauses from now on.
            self.inner.changed.notify_all();
            while state.making_bytes.is_some() {
                self.inner.changed.wait(&mut state);
            }
            state.waiting -= 1;
        }
        state
    }

    /// An id above `previous_id`, for a segment that the caller makes itself.
    pub(super) fn next_id(&self, previous_id: u64) -> u64 {
        self.inner.state.lock().next_id(previous_id)
    }

    /// Takes a spare of at least `bytes_min`; when none is ready, makes one of `bytes_new` on this thread.
    pub(super) fn take(&self, bytes_min: u64, bytes_new: u64) -> Result<Spare> {
        if let Some(spare) = self.inner.take_spare(bytes_min) {
            return Ok(spare);
        }
        let path = self.inner.state.lock().next_path(&self.inner);
        let make = || self.inner.make_here(path.clone(), bytes_new);
        self.inner.make_with_released_space(make)
    }

    /// Queues segments, oldest first, for removal or reuse as spares. Without a thread, or on a full disk,
    /// the work is done when this returns. Returns the error of that work, or the thread's error of an
    /// earlier release.
    pub(super) fn release(&self, segments: Vec<Released>) -> Result<()> {
        let mut state = self.inner.state.lock();
        state.released.extend(segments);
        state.has_released = !state.released.is_empty();
        if !state.has_released {
            return Ok(());
        }
        let space = &self.inner.space;
        if self.removes_beside && !space.is_full() && !space.is_short() {
            self.inner.changed.notify_all();
            return state.removal_failed.take().map_or(Ok(()), Err);
        }
        drop(state);
        self.finish_releases()
    }

    /// Removes all released segments that are not removed yet.
    pub(super) fn finish_releases(&self) -> Result<()> {
        while self.inner.remove_one()? {}
        Ok(())
    }

    /// A handle to free the space of released segments.
    pub(super) fn releases(&self) -> Releases {
        Releases(self.inner.clone())
    }

    /// Removes all released segments, without keeping any as a spare. Best effort; returns whether it
    /// removed any.
    fn remove_for_good(&self) -> bool {
        for released in &mut self.inner.state.lock().released {
            released.spares_max = 0;
        }
        self.inner.finish_releases()
    }

    /// Removes the file of a spare. Best effort: the next opening removes a file that stays.
    pub(super) fn discard(&self, spare: &Spare) {
        self.inner.remove(&spare.path);
    }

    /// Bytes of spares, of the prepared segment, and of released segments that are not removed yet.
    pub(super) fn file_bytes(&self) -> u64 {
        let state = self.inner.state.lock();
        let spares = state.ready.iter().map(|spare| spare.bytes);
        let released = state.released.iter().map(|segment| segment.bytes);
        spares.chain(released).chain(state.prepared_bytes()).sum()
    }

    /// Whether a segment is prepared.
    pub(super) fn is_prepared(&self) -> bool {
        self.inner.state.lock().prepared.is_some()
    }

    /// Removes all released segments, all spares and the prepared segment of the log of `shared`; returns
    /// whether there were any. While the thread is preparing a segment, that one and the prepared one stay.
    pub(super) fn discard_ready(&self, shared: &Shared) -> bool {
        let has_removed = self.remove_for_good();
        let mut state = self.inner.state.lock();
        let spares = std::mem::take(&mut state.ready);
        let has_removed = has_removed || !spares.is_empty();
        let mut prepared = None;
        if state.making_bytes.is_none() {
            // Otherwise the thread could mark the active segment while its mark is removed here.
            state.requested = None;
            prepared = state.prepared.take();
        }
        drop(state);
        for spare in &spares {
            self.discard(spare);
        }
        let Some(prepared) = prepared else {
            return has_removed;
        };
        let unmarked = self.inner.unmark(&prepared, shared);
        if unmarked {
            self.inner.remove(&prepared.path);
        } else {
            self.inner.state.lock().prepared = Some(prepared);
        }
        unmarked || has_removed
    }

    /// Stops the thread, then removes released segments and spares. Returns the prepared segment, which
    /// the caller removes.
    pub(super) fn close(&mut self) -> Option<Prepared> {
        self.stop();
        self.remove_for_good();
        let mut state = self.inner.state.lock();
        let (spares, prepared) = (std::mem::take(&mut state.ready), state.prepared.take());
        drop(state);
        for spare in &spares {
            self.discard(spare);
        }
        prepared
    }

    /// Removes the file of a prepared segment that no mark refers to. Best effort: the next opening removes
    /// a file that stays.
    pub(super) fn remove(&self, prepared: &Prepared) {
        self.inner.remove(&prepared.path);
    }

    /// Serves a request, as the thread does.
    #[cfg(test)]
    pub(super) fn prepare_now(&self, request: &SegmentRequest) {
        self.inner.serve(request);
    }

    /// From now on released segments are removed only by [`SegmentAllocator::remove_one_now`] and by callers that need
    /// their space.
    #[cfg(test)]
    pub(super) fn leave_releases(&mut self) {
        assert!(self.thread.is_none(), "the thread does not leave them");
        self.removes_beside = true;
    }

    /// Removes the oldest released segment, as the thread does.
    #[cfg(test)]
    pub(super) fn remove_one_now(&self) {
        drop(self.inner.remove_one());
    }

    /// Whether the last attempt to remove the oldest released segment failed.
    #[cfg(test)]
    pub(super) fn has_failed_to_remove(&self) -> bool {
        self.inner.state.lock().removal_failed.is_some()
    }

    fn stop(&mut self) {
        {
            // Under the lock, so that the thread cannot miss the signal between its check and its wait.
            let _state = self.inner.state.lock();
            self.inner.stopping.store(true, Ordering::Relaxed);
            self.inner.changed.notify_all();
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that prepares log segments panicked");
        }
    }
}

impl Drop for SegmentAllocator {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Wakes waiting threads when the background thread is idle again, also after a panic.
struct Making<'a>(&'a Inner);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.0.state.lock().making_bytes = None;
        self.0.changed.notify_all();
    }
}

impl Inner {
    fn run(&self) {
        let mut has_removed = false;
        let mut state = self.state.lock();
        while !self.stopping.load(Ordering::Relaxed) {
            // Alternate, so that many removals do not delay a requested segment.
            if state.has_released && !(has_removed && state.requested.is_some()) {
                state.has_released = false;
                has_removed = true;
                MutexGuard::unlocked(&mut state, || drop(self.remove_one()));
                continue;
            }
            has_removed = false;
            let Some(request) = state.requested.take() else {
                self.changed.wait(&mut state);
                continue;
            };
            state.making_bytes = Some(request.bytes);
            MutexGuard::unlocked(&mut state, || {
                let making = Making(self);
                self.serve(&request);
                drop(making);
            });
        }
    }

    /// Prepares the requested segment. It replaces a smaller prepared one.
    fn serve(&self, request: &SegmentRequest) {
        let spare = self.take_spare(request.bytes);
        let mut state = self.state.lock();
        let path = state.next_path(self);
        let id = state.next_id(request.previous_id);
        drop(state);
        let made = match spare {
            Some(spare) => Ok(Some(spare)),
            None => self.make_with_released_space(|| self.make_ahead(path.clone(), request.bytes)),
        };
        let named = made.and_then(|spare| {
            let named = spare.map(|spare| self.name(spare, request, id));
            named.transpose()
        });
        match named {
            Ok(Some(prepared)) => {
                self.space.set_short(false);
                let smaller = self.state.lock().prepared.replace(prepared);
                if let Some(smaller) = smaller {
                    self.remove(&smaller.path);
                }
            }
            Ok(None) => {}
            Err(error @ Error::TooManyFiles { .. }) => {
                tracing::warn!(%error, "a log segment is prepared later");
            }
            Err(error) => {
                let is_short = matches!(error, Error::NoSpace { .. });
                if !is_short || !self.space.is_short() {
                    tracing::warn!(%error, "cannot prepare a log segment");
                }
                self.space
                    .set_short(is_short && self.keeps_one.load(Ordering::Relaxed));
            }
        }
    }

    /// Turns `spare` into the segment behind the active one, durably, and marks the active one as continued.
    fn name(&self, spare: Spare, request: &SegmentRequest, id: u64) -> Result<Prepared> {
        let header = SegmentHeader {
            id,
            salt: fastrand::u64(..),
            owner: request.owner,
            first_index: 0,
            capacity_bytes: spare.bytes,
            previous: Some(Link {
                id: request.previous_id,
                salt: request.previous_salt,
                end_offset: 0,
            }),
            is_prepared: true,
            later_id: None,
            has_torn_mark: false,
        };
        // Every step that can fail without harm comes before the naming.
        let is_sound = request.shared.active().map(drop);
        let (previous_id, previous_salt) = (request.previous_id, request.previous_salt);
        let named = is_sound
            .and_then(|()| Marker::open(&*self.vfs, &self.dir, previous_id, previous_salt))
            .map_err(ActivationError::BeforeNaming)
            .and_then(|marker| {
                activate(&*self.vfs, &self.dir, &spare, &header)?;
                Ok(marker)
            });
        let marker = match named {
            Ok(marker) => marker,
            Err(ActivationError::BeforeNaming(error)) => {
                self.remove(&spare.path);
                return Err(error);
            }
            Err(ActivationError::WhileNaming(error)) => return Err(request.shared.poison(&error)),
        };
        self.counters.log_bytes_written.add(HEADER_BYTES);
        let marked = marker.mark(Some(id));
        marked.map_err(|error| request.shared.poison(&error))?;
        Ok(Prepared {
            path: segment_path(&self.dir, id),
            file: spare.file,
            header,
        })
    }

    /// Takes away the mark that says that `prepared` exists, durably; returns whether it is gone.
    fn unmark(&self, prepared: &Prepared, shared: &Shared) -> bool {
        let Some(link) = prepared.header.previous else {
            return false;
        };
        let is_sound = shared.active().map(drop);
        let marker =
            is_sound.and_then(|()| Marker::open(&*self.vfs, &self.dir, link.id, link.salt));
        let unmarked = marker.map(|marker| {
            let unmarked = marker.mark(None);
            unmarked.map_err(|error| shared.poison(&error)).is_ok()
        });
        unmarked.unwrap_or(false)
    }

    /// Makes a spare on the calling thread.
    fn make_here(&self, path: PathBuf, bytes: u64) -> Result<Spare> {
        let made = self.make(path, bytes, None)?;
        Ok(made.expect("only the thread is told to stop"))
    }

    /// Makes a spare of `bytes`, or a smaller one if the disk has no space for that and one segment is
    /// always kept prepared.
    fn make_ahead(&self, path: PathBuf, bytes: u64) -> Result<Option<Spare>> {
        match self.make(path.clone(), bytes, Some(&self.stopping)) {
            Err(Error::NoSpace { .. })
                if bytes > SMALLER_BYTES && self.keeps_one.load(Ordering::Relaxed) =>
            {
                self.make(path, SMALLER_BYTES, Some(&self.stopping))
            }
            made => made,
        }
    }

    /// Makes a file of `bytes` zeros. With `stop`, the caller is the background thread: it syncs each
    /// portion and returns `None` when `stop` is set. Without `stop`, the activation syncs.
    fn make(&self, path: PathBuf, bytes: u64, stop: Option<&AtomicBool>) -> Result<Option<Spare>> {
        let file = self
            .vfs
            .open(&path, OpenMode::CreateNew)
            .map_err(|error| Error::io("create", &path, error))?;
        match self.fill(&*file, &path, bytes, stop) {
            Ok(true) => Ok(Some(Spare { path, file, bytes })),
            Ok(false) => {
                self.remove(&path);
                Ok(None)
            }
            Err(error) => {
                self.remove(&path);
                Err(error)
            }
        }
    }

    fn fill(
        &self,
        file: &dyn VfsFile,
        path: &Path,
        bytes: u64,
        stop: Option<&AtomicBool>,
    ) -> Result<bool> {
        let zeros = vec![0; CHUNK_BYTES.min(bytes) as usize];
        let mut offset = 0;
        let mut begun = Instant::now();
        while offset < bytes {
            let count = CHUNK_BYTES.min(bytes - offset);
            vfs::write_all_at(file, path, &zeros[..count as usize], offset)?;
            offset += count;
            self.counters.log_bytes_prepared.add(count);
            if let Some(stop) = stop {
                if stop.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                if offset.is_multiple_of(PORTION_BYTES) || offset == bytes {
                    vfs::sync_data(file, path)?;
                    self.pause(begun.elapsed());
                    begun = Instant::now();
                }
            }
        }
        Ok(true)
    }

    /// Leaves the disk to commits for a while, unless somebody waits for the thread.
    fn pause(&self, time: Duration) {
        let mut state = self.state.lock();
        if state.waiting == 0 && !self.stopping.load(Ordering::Relaxed) {
            self.changed.wait_for(&mut state, time);
        }
    }

    /// Takes a spare of at least `bytes_min`, perhaps by turning a released segment into one.
    fn take_spare(&self, bytes_min: u64) -> Option<Spare> {
        loop {
            let mut state = self.state.lock();
            if let Some(spare) = state.take_ready(bytes_min) {
                return Some(spare);
            }
            let fits = |oldest: &Released| oldest.spares_max > 0 && oldest.bytes >= bytes_min;
            let is_worth_it = state.released.front().is_some_and(fits);
            drop(state);
            if !is_worth_it || !self.remove_one().unwrap_or(false) {
                return None;
            }
        }
    }

    /// Runs `make`. On a full disk, frees the space of released segments and runs it again.
    fn make_with_released_space<T>(&self, make: impl Fn() -> Result<T>) -> Result<T> {
        match make() {
            Err(Error::NoSpace { .. }) if self.finish_releases() => make(),
            made => made,
        }
    }

    /// Removes the released segments that are not removed yet; returns whether it removed any.
    fn finish_releases(&self) -> bool {
        let mut has_removed = false;
        while let Ok(true) = self.remove_one() {
            has_removed = true;
        }
        has_removed
    }

    /// Removes the oldest released segment, or makes it a spare; returns whether there was one. An error
    /// is also stored for the next caller of `release`.
    fn remove_one(&self) -> Result<bool> {
        let _removing = self.removing.lock();
        let oldest = self.state.lock().released.front().cloned();
        let Some(oldest) = oldest else {
            return Ok(false);
        };
        let removed = self.remove_oldest(&oldest);
        let mut state = self.state.lock();
        match removed {
            Ok(spare) => {
                state.released.pop_front();
                if spare.is_some() {
                    self.space.set_short(false);
                }
                state.ready.extend(spare);
                state.has_released |= !state.released.is_empty();
                state.removal_failed = None;
                Ok(true)
            }
            Err(error) => {
                // The failure that stopped the log was reported then. Closing it reports nothing new.
                let is_known = matches!(error, Error::Poisoned { .. } | Error::Closed);
                if !is_known && state.removal_failed.is_none() {
                    tracing::warn!(%error, "cannot remove a released log segment");
                }
                state.removal_failed = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Returns the spare that it became, or `None` if it was removed. The caller holds `removing`.
    fn remove_oldest(&self, oldest: &Released) -> Result<Option<Spare>> {
        // After a failed sync of the directory it is unknown which names are gone.
        oldest.shared.active().map(drop)?;
        let path = segment_path(&self.dir, oldest.id);
        let spare_path = {
            let mut state = self.state.lock();
            let is_wanted = state.ready_count() < oldest.spares_max;
            is_wanted.then(|| state.next_path(self))
        };
        let (operation, result) = match &spare_path {
            Some(spare_path) => ("rename", self.vfs.rename(&path, spare_path)),
            None => ("remove", self.vfs.remove_file(&path)),
        };
        let spare_path = match result {
            Ok(()) => spare_path,
            // An earlier attempt that reported a failure had removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Error::io(operation, &path, error)),
        };
        // Before the next removal, so that a crash cannot leave a gap, and before the spare is written
        // to, so that it cannot reappear under its old name.
        vfs::sync_parent(&*self.vfs, &path).map_err(|error| oldest.shared.poison(&error))?;
        let Some(path) = spare_path else {
            return Ok(None);
        };
        match self.vfs.open(&path, OpenMode::ReadWrite) {
            Ok(file) => Ok(Some(Spare {
                path,
                file,
                bytes: oldest.bytes,
            })),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot use a log segment again");
                self.remove(&path);
                Ok(None)
            }
        }
    }

    fn remove(&self, path: &Path) {
        match self.vfs.remove_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot remove a spare log segment");
            }
        }
    }
}
