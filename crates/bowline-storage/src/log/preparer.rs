//! Makes segments before they are needed.
//!
//! A *spare* is a file with a spare's name whose blocks all exist: new and filled with zeros, or
//! a released segment. With [`Background::Threads`] one thread makes them on request; otherwise,
//! and whenever none is ready, the writer makes one itself at the rotation. A failure of the
//! thread is not reported: the writer then finds no spare, tries by itself and gets its own error.
//!
//! An owner that wants to know early asks for a spare to be kept. Then the thread makes the next one
//! as soon as the last is taken, a smaller one where there is no room for it, and notes when there is
//! no room even for that.

use super::Background;
use super::segment::spare_name;
use super::space::Space;
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

const CHUNK_BYTES: u64 = 256 << 10;
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

/// The maker and keeper of spares.
#[derive(Debug)]
pub(super) struct Preparer {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    counters: Arc<Counters>,
    state: Mutex<State>,
    changed: Condvar,
    stopping: AtomicBool,
    /// Whether a spare is always to be there.
    keeps_one: AtomicBool,
    space: Arc<Space>,
}

#[derive(Debug, Default)]
struct State {
    /// Asked for, not begun.
    wanted_bytes: Option<u64>,
    /// What the thread is making right now.
    making_bytes: Option<u64>,
    ready: VecDeque<Spare>,
    next_number: u64,
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
        Ok(Preparer { inner, thread })
    }

    /// See [`Log::keep_a_spare`](super::Log::keep_a_spare).
    pub(super) fn keep_one(&self) {
        self.inner.keeps_one.store(true, Ordering::Relaxed);
    }

    pub(super) fn keeps_one(&self) -> bool {
        self.inner.keeps_one.load(Ordering::Relaxed)
    }

    /// Asks for a spare of at least `bytes` to be made in the background.
    pub(super) fn request(&self, bytes: u64) {
        if self.thread.is_none() {
            return;
        }
        let mut state = self.inner.state.lock();
        let is_there = state.ready.iter().any(|spare| spare.bytes >= bytes)
            || state.making_bytes.is_some_and(|making| making >= bytes);
        if !is_there {
            state.wanted_bytes = Some(bytes);
            self.inner.changed.notify_all();
        }
    }

    /// A spare of at least `bytes_min`; when none is ready, one of `bytes_new` is made here.
    pub(super) fn take(&self, bytes_min: u64, bytes_new: u64) -> Result<Spare> {
        let mut state = self.inner.state.lock();
        loop {
            if let Some(spare) = state.take_ready(bytes_min) {
                return Ok(spare);
            }
            if state.making_bytes.is_none_or(|making| making < bytes_min) {
                break;
            }
            self.inner.changed.wait(&mut state);
        }
        // What was only asked for is made here instead.
        state.wanted_bytes = None;
        let path = state.next_path(&self.inner);
        MutexGuard::unlocked(&mut state, || self.inner.make(path, bytes_new, None))
            .map(|spare| spare.expect("only the thread is told to stop"))
    }

    /// Keeps `spare` for later.
    pub(super) fn keep(&self, spare: Spare) {
        self.inner.state.lock().ready.push_back(spare);
        self.inner.space.set_short(false);
    }

    /// Removes a spare's file. Best effort: what stays is removed at the next opening.
    pub(super) fn discard(&self, spare: &Spare) {
        self.inner.remove(&spare.path);
    }

    /// A name for a released segment that becomes a spare.
    pub(super) fn next_path(&self) -> PathBuf {
        self.inner.state.lock().next_path(&self.inner)
    }

    /// How many spares are ready, and their bytes.
    pub(super) fn ready(&self) -> (usize, u64) {
        let state = self.inner.state.lock();
        (
            state.ready.len(),
            state.ready.iter().map(|spare| spare.bytes).sum(),
        )
    }

    /// Removes all spares that are ready; returns whether there were any.
    pub(super) fn discard_ready(&self) -> bool {
        let ready = std::mem::take(&mut self.inner.state.lock().ready);
        for spare in &ready {
            self.discard(spare);
        }
        !ready.is_empty()
    }

    /// Ends the thread, then removes all spares.
    pub(super) fn close(&mut self) {
        self.stop();
        self.discard_ready();
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
        let mut state = self.state.lock();
        while !self.stopping.load(Ordering::Relaxed) {
            let Some(bytes) = state.wanted_bytes.take() else {
                self.changed.wait(&mut state);
                continue;
            };
            state.making_bytes = Some(bytes);
            let path = state.next_path(self);
            MutexGuard::unlocked(&mut state, || {
                let making = Making(self);
                match self.make_ahead(path, bytes) {
                    Ok(Some(spare)) => {
                        self.space.set_short(false);
                        self.state.lock().ready.push_back(spare);
                    }
                    Ok(None) => {}
                    Err(error) => {
                        let is_short = matches!(error, Error::NoSpace { .. });
                        if !is_short || !self.space.is_short() {
                            tracing::warn!(%error, "cannot prepare a log segment");
                        }
                        self.space
                            .set_short(is_short && self.keeps_one.load(Ordering::Relaxed));
                    }
                }
                drop(making);
            });
        }
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
