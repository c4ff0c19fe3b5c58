//! Makes segments before they are needed, and removes those that are not needed any more.
//!
//! A *spare* is a file with a spare's name whose blocks all exist: new and filled with zeros, or
//! a released segment. A *prepared* segment is a spare that has got its header and its name, both
//! durable, after which the active segment was marked as continued: all that is left for the
//! rotation is to write. With [`Background::Threads`] one thread prepares on request; otherwise, and
//! whenever none is ready, the writer does it at the rotation. A failure of the thread is not
//! reported: the writer then finds nothing, tries by itself and gets its own error. Only a name or a
//! mark that may or may not be on the disk stops the log, whoever wrote it.
//!
//! An owner that wants to know early asks for a segment to be kept. Then the thread prepares the next
//! one as soon as the last is taken, a smaller one where there is no room for it, and notes when there
//! is no room even for that.
//!
//! A *released* segment is one that the log has given up: its file becomes a spare or is removed, which
//! takes a flush of the directory. The thread does that, before all else; where there is none, or
//! somebody needs the room, the caller does. What cannot be removed stays, and all released after it,
//! until something else is released.
//!
//! # Invariants
//!
//! - Released segments go in the order in which they were released, each removal durable before the
//!   next, and before a spare is written to.
//! - At most one segment is prepared, and it continues the active one. The active one is marked if
//!   and only if there is one that is prepared, so whoever removes that one takes the mark away
//!   first, durably, or has named a later one.
//! - An id is given once.

use super::Background;
use super::segment::{
    ActivationError, HEADER_BYTES, Link, Marker, SegmentHeader, activate, segment_path, spare_name,
};
use super::space::Space;
use super::sync::Shared;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::vfs::{self, OpenMode, Vfs, VfsFile};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is written at once may become one piece of the kernel's cache, of which every small write into
/// it later looks at each block.
const CHUNK_BYTES: u64 = 64 << 10;
/// The thread syncs in portions, so that a commit's flush never queues behind 64 MiB.
const PORTION_BYTES: u64 = 4 << 20;
/// What is made where there is no room for more: a disk with less counts as full. Looking for it may
/// take away so much from others for a moment.
const SMALLER_BYTES: u64 = 1 << 20;

/// A file that can become a segment.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn VfsFile>,
    pub(super) bytes: u64,
}

/// A segment that nothing of the log refers to any more.
#[derive(Clone, Debug)]
pub(super) struct Released {
    pub(super) id: u64,
    pub(super) bytes: u64,
    /// How many spares there may be for it to become one; none where it is of no use.
    pub(super) spares_max: usize,
    pub(super) shared: Arc<Shared>,
}

/// What is to be prepared.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) bytes: u64,
    /// The active segment.
    pub(super) previous_id: u64,
    pub(super) previous_salt: u64,
    pub(super) owner: u128,
    pub(super) shared: Arc<Shared>,
}

/// A segment that nothing was written to yet.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn VfsFile>,
    pub(super) header: SegmentHeader,
}

/// A handle to the room of what is released, for any thread.
#[derive(Clone, Debug)]
pub(super) struct Releases(Arc<Inner>);

impl Releases {
    /// Removes what is released and not yet removed; returns whether there was any that could be.
    pub(super) fn finish(&self) -> bool {
        self.0.finish_releases()
    }
}

/// The maker and keeper of spares and of the next segment.
#[derive(Debug)]
pub(super) struct Preparer {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
    /// Whether somebody else removes what is released: the thread, or a test in its place.
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
    /// Whether a segment is always to be prepared.
    keeps_one: AtomicBool,
    space: Arc<Space>,
    /// Held by whoever removes what is released. Order of locks: this, then `state`, or this, then
    /// `active` of the log's shared state.
    removing: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Oldest first.
    released: VecDeque<Released>,
    /// Whether the thread is to remove some of it: not while the oldest cannot be removed.
    has_released: bool,
    /// Why the oldest could not be removed the last time.
    removal_failed: Option<Error>,
    /// Asked for, not begun.
    wanted: Option<Order>,
    /// What the thread is preparing right now.
    making_bytes: Option<u64>,
    ready: VecDeque<Spare>,
    prepared: Option<Prepared>,
    next_number: u64,
    /// The highest id that was given away.
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

    /// The id of a segment behind `previous_id`.
    fn next_id(&mut self, previous_id: u64) -> u64 {
        self.last_id = self.last_id.max(previous_id) + 1;
        self.last_id
    }

    /// How many spares and prepared segments there are.
    fn ready_count(&self) -> usize {
        self.ready.len() + usize::from(self.prepared.is_some())
    }

    fn prepared_bytes(&self) -> Option<u64> {
        let prepared = self.prepared.as_ref();
        prepared.map(|prepared| prepared.header.capacity_bytes)
    }
}

impl Preparer {
    pub(super) fn new(
        vfs: Arc<dyn Vfs>,
        dir: PathBuf,
        counters: Arc<Counters>,
        background: Background,
        space: Arc<Space>,
    ) -> Result<Preparer> {
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
        Ok(Preparer {
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
    pub(super) fn request(&self, order: Order) {
        if self.thread.is_none() {
            return;
        }
        let mut state = self.inner.state.lock();
        let is_enough = |bytes: u64| bytes >= order.bytes;
        let is_there = state.prepared_bytes().is_some_and(is_enough)
            || state.making_bytes.is_some_and(is_enough);
        if !is_there {
            state.wanted = Some(order);
            self.inner.changed.notify_all();
        }
    }

    /// The segment that continues the active one, of at least `bytes_min`; when none is ready, one of
    /// `order.bytes` is prepared here.
    pub(super) fn take_prepared(&self, bytes_min: u64, order: &Order) -> Result<Prepared> {
        let mut state = self.idle();
        let ready = state.prepared.take();
        let too_small = match ready {
            Some(ready) if ready.header.capacity_bytes >= bytes_min => return Ok(ready),
            too_small => too_small,
        };
        let id = state.next_id(order.previous_id);
        drop(state);
        let made = self.take(bytes_min, order.bytes);
        match made.and_then(|spare| self.inner.name(spare, order, id)) {
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

    /// The segment that is prepared, for a caller that gives the active one up.
    pub(super) fn take_abandoned(&self) -> Option<Prepared> {
        self.idle().prepared.take()
    }

    /// From now on, and until something is asked for, the thread does nothing.
    pub(super) fn settle(&self) {
        drop(self.idle());
    }

    /// The state while the thread does nothing, and is asked for nothing.
    fn idle(&self) -> MutexGuard<'_, State> {
        let mut state = self.inner.state.lock();
        // What was only asked for is not begun any more.
        state.wanted = None;
        while state.making_bytes.is_some() {
            self.inner.changed.wait(&mut state);
        }
        state
    }

    /// The id of a segment behind `previous_id` that is not prepared here.
    pub(super) fn next_id(&self, previous_id: u64) -> u64 {
        self.inner.state.lock().next_id(previous_id)
    }

    /// A spare of at least `bytes_min`; when none is ready, one of `bytes_new` is made here.
    pub(super) fn take(&self, bytes_min: u64, bytes_new: u64) -> Result<Spare> {
        if let Some(spare) = self.inner.take_spare(bytes_min) {
            return Ok(spare);
        }
        let path = self.inner.state.lock().next_path(&self.inner);
        let make = || self.inner.make_here(path.clone(), bytes_new);
        self.inner.make_with_room(make)
    }

    /// Has the files of segments removed, or made spares; oldest first. Where there is no thread, or
    /// the disk is full, that is done when this returns. A failure is the caller's: where the thread
    /// does it, the one of before.
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

    /// Removes what is released and not yet removed, all of it.
    pub(super) fn finish_releases(&self) -> Result<()> {
        while self.inner.remove_one()? {}
        Ok(())
    }

    /// For who needs the room of what is released.
    pub(super) fn releases(&self) -> Releases {
        Releases(self.inner.clone())
    }

    /// Removes what is released, none of it to be used again. Best effort; returns whether there was
    /// any that could be.
    fn remove_for_good(&self) -> bool {
        for released in &mut self.inner.state.lock().released {
            released.spares_max = 0;
        }
        self.inner.finish_releases()
    }

    /// Removes a spare's file. Best effort: what stays is removed at the next opening.
    pub(super) fn discard(&self, spare: &Spare) {
        self.inner.remove(&spare.path);
    }

    /// Bytes of spares, of what is prepared, and of what is released and not yet removed.
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

    /// Removes what is released, all spares, and what is prepared of the log that `shared` is of; returns
    /// whether there were any. While the thread prepares something, that and what it replaces stay.
    pub(super) fn discard_ready(&self, shared: &Shared) -> bool {
        let has_removed = self.remove_for_good();
        let mut state = self.inner.state.lock();
        let spares = std::mem::take(&mut state.ready);
        let has_removed = has_removed || !spares.is_empty();
        let mut prepared = None;
        if state.making_bytes.is_none() {
            // Or the thread would mark the active segment while the mark is taken away here.
            state.wanted = None;
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

    /// Ends the thread, then removes what is released, and all spares. What is prepared is for the
    /// caller to remove.
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

    /// Removes the file of a segment that nothing says exists. Best effort: what stays is removed at
    /// the next opening.
    pub(super) fn remove(&self, prepared: &Prepared) {
        self.inner.remove(&prepared.path);
    }

    /// Prepares what is ordered, as the thread does.
    #[cfg(test)]
    pub(super) fn prepare_now(&self, order: &Order) {
        self.inner.serve(order);
    }

    /// From now on nobody removes what is released but [`Preparer::remove_one_now`], and who needs its room.
    #[cfg(test)]
    pub(super) fn leave_releases(&mut self) {
        assert!(self.thread.is_none(), "the thread does not leave them");
        self.removes_beside = true;
    }

    /// Removes the oldest of what is released, as the thread does.
    #[cfg(test)]
    pub(super) fn remove_one_now(&self) {
        drop(self.inner.remove_one());
    }

    /// Whether the oldest of what is released could not be removed the last time.
    #[cfg(test)]
    pub(super) fn has_failed_to_remove(&self) -> bool {
        self.inner.state.lock().removal_failed.is_some()
    }

    fn stop(&mut self) {
        {
            // Under the lock, so that the thread cannot miss it between its check and its wait.
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

impl Drop for Preparer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Tells those who wait that the thread is not making anything, even when it panicked.
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
            // In turns, so that many that are released do not hold up what is wanted.
            if state.has_released && !(has_removed && state.wanted.is_some()) {
                state.has_released = false;
                has_removed = true;
                MutexGuard::unlocked(&mut state, || drop(self.remove_one()));
                continue;
            }
            has_removed = false;
            let Some(order) = state.wanted.take() else {
                self.changed.wait(&mut state);
                continue;
            };
            state.making_bytes = Some(order.bytes);
            MutexGuard::unlocked(&mut state, || {
                let making = Making(self);
                self.serve(&order);
                drop(making);
            });
        }
    }

    /// Prepares what is ordered, in place of a smaller one that may be there.
    fn serve(&self, order: &Order) {
        let spare = self.take_spare(order.bytes);
        let mut state = self.state.lock();
        let path = state.next_path(self);
        let id = state.next_id(order.previous_id);
        drop(state);
        let made = match spare {
            Some(spare) => Ok(Some(spare)),
            None => self.make_with_room(|| self.make_ahead(path.clone(), order.bytes)),
        };
        let named = made.and_then(|spare| {
            let named = spare.map(|spare| self.name(spare, order, id));
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

    /// Makes `spare` the segment behind the active one, durably, and marks that.
    fn name(&self, spare: Spare, order: &Order, id: u64) -> Result<Prepared> {
        let header = SegmentHeader {
            id,
            salt: fastrand::u64(..),
            owner: order.owner,
            first_index: 0,
            capacity_bytes: spare.bytes,
            previous: Some(Link {
                id: order.previous_id,
                salt: order.previous_salt,
                end_offset: 0,
            }),
            is_prepared: true,
            later_id: None,
        };
        // All that can fail without harm comes before the naming.
        let is_sound = order.shared.active().map(drop);
        let (previous_id, previous_salt) = (order.previous_id, order.previous_salt);
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
            Err(ActivationError::WhileNaming(error)) => return Err(order.shared.poison(&error)),
        };
        self.counters.log_bytes_written.add(HEADER_BYTES);
        let marked = marker.mark(Some(id));
        marked.map_err(|error| order.shared.poison(&error))?;
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

    /// Makes a spare for a caller that waits for it.
    fn make_here(&self, path: PathBuf, bytes: u64) -> Result<Spare> {
        let made = self.make(path, bytes, None)?;
        Ok(made.expect("only the thread is told to stop"))
    }

    /// Makes a spare of `bytes`, or a smaller one where that has no room and one is to be kept.
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

    /// Makes a file of `bytes` zeros. With `stop`, the caller is the thread: it syncs what it
    /// writes and gives up (`None`) when told to. Without, the activation syncs.
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
                }
            }
        }
        Ok(true)
    }

    /// A spare of at least `bytes_min`, if there is one, or one of what is released can become one.
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

    /// Makes something, once more with the room of what is released where there is none.
    fn make_with_room<T>(&self, make: impl Fn() -> Result<T>) -> Result<T> {
        match make() {
            Err(Error::NoSpace { .. }) if self.finish_releases() => make(),
            made => made,
        }
    }

    /// Removes what is released and not yet removed; returns whether there was any that could be.
    fn finish_releases(&self) -> bool {
        let mut has_removed = false;
        while let Ok(true) = self.remove_one() {
            has_removed = true;
        }
        has_removed
    }

    /// Removes the oldest of what is released, or makes it a spare; returns whether there was any. A
    /// failure is kept for who releases next, too.
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
                // What stopped the log was told then, and who closes it is not told more.
                let is_known = matches!(error, Error::Poisoned { .. } | Error::Closed);
                if !is_known && state.removal_failed.is_none() {
                    tracing::warn!(%error, "cannot remove a released log segment");
                }
                state.removal_failed = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Returns what it became, if it was not removed. The caller holds `removing`.
    fn remove_oldest(&self, oldest: &Released) -> Result<Option<Spare>> {
        // Once a flush of the directory has failed, nothing says which names are gone.
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
            // An attempt that was said to have failed had done it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Error::io(operation, &path, error)),
        };
        // Before the next one goes, so that a crash cannot leave a gap; and before a spare is
        // written to, so that it cannot come back under its old name.
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
