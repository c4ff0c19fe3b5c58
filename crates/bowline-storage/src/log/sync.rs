//! The active segment, shared by the writer and the syncing threads, and the flush.
//!
//! Access to the fields: the writer (one thread at a time, which owns the `Log`) changes `file`, `path`
//! and `end_offset`. The holder of `sync_lock` changes `synced_offset` and `durable_index`. A rotation and
//! a cut also hold `sync_lock`, so no flush spans them. Because only one flush runs at a time, every
//! caller learns of a failure: the system reports a failed flush to only one of several callers with the
//! same open file, and the others find the log poisoned. (The mark of a segment is flushed concurrently,
//! through its own open file; a failure there poisons the log as well.)
//!
//! Order of locks: `sync_lock`, then `active`. `active` is never held during I/O.

use std::path::Path;
use std::sync::Arc;

use super::segment_allocator::Releases;
use super::space::Space;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard};
use crate::types::Index;
use crate::vfs::{self, VfsFile};

/// State of the active segment.
///
/// Invariants: `synced_offset <= end_offset`, `durable_index <= written_index`, and when
/// `synced_offset` is the end, `durable_index` is the last index.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) file: Arc<dyn VfsFile>,
    pub(super) path: Arc<Path>,
    /// The offset behind the last written frame.
    pub(super) end_offset: u64,
    pub(super) synced_offset: u64,
    pub(super) written_index: Index,
    pub(super) durable_index: Index,
    pub(super) poison: Option<Arc<str>>,
    pub(super) is_closed: bool,
}

impl Active {
    fn check(&self) -> Result<()> {
        match &self.poison {
            Some(reason) => Err(Error::Poisoned {
                reason: reason.clone(),
            }),
            None if self.is_closed => Err(Error::Closed),
            None => Ok(()),
        }
    }
}

/// The state that the writer and its sync handles share.
#[derive(Debug)]
pub(super) struct Shared {
    sync_lock: Mutex<()>,
    active: Mutex<Active>,
    counters: Arc<Counters>,
    pub(super) space: Arc<Space>,
}

impl Shared {
    pub(super) fn new(active: Active, counters: Arc<Counters>, space: Arc<Space>) -> Shared {
        Shared {
            sync_lock: Mutex::new(()),
            active: Mutex::new(active),
            counters,
            space,
        }
    }

    /// The state, if the log still accepts writes.
    pub(super) fn active(&self) -> Result<MutexGuard<'_, Active>> {
        let active = self.active.lock();
        active.check()?;
        Ok(active)
    }

    /// The state, also of a closed or poisoned log.
    pub(super) fn any_active(&self) -> MutexGuard<'_, Active> {
        self.active.lock()
    }

    /// Keeps flushes out while the writer changes segments or cuts.
    pub(super) fn lock_sync(&self) -> MutexGuard<'_, ()> {
        self.sync_lock.lock()
    }

    /// Refuses all writes from now on; returns the error for the caller.
    pub(super) fn poison(&self, cause: &Error) -> Error {
        let mut active = self.active.lock();
        let reason = active.poison.get_or_insert_with(|| {
            tracing::error!(%cause, "the log refuses writes from now on");
            cause.to_string().into()
        });
        Error::Poisoned {
            reason: reason.clone(),
        }
    }

    pub(super) fn sync(&self) -> Result<Index> {
        let _only_one = self.sync_lock.lock();
        self.sync_locked()
    }

    /// [`Shared::sync`] for a caller that holds `sync_lock`.
    pub(super) fn sync_locked(&self) -> Result<Index> {
        let (file, path, end_offset, written_index) = {
            let active = self.active()?;
            if active.synced_offset == active.end_offset {
                return Ok(active.durable_index);
            }
            (
                active.file.clone(),
                active.path.clone(),
                active.end_offset,
                active.written_index,
            )
        };
        self.counters.log_syncs.add(1);
        if let Err(error) = vfs::sync_data(&*file, &path) {
            return Err(self.poison(&error));
        }
        let mut active = self.active.lock();
        active.synced_offset = end_offset;
        active.durable_index = written_index;
        Ok(written_index)
    }
}

/// Syncs the log from any thread, while the owner continues to write.
#[derive(Clone, Debug)]
pub struct LogSync {
    pub(super) shared: Arc<Shared>,
    pub(super) releases: Releases,
}

impl LogSync {
    /// Makes everything written so far durable; returns the highest durable index. Returns immediately
    /// when a flush of another thread has covered it.
    pub fn sync(&self) -> Result<Index> {
        self.shared.sync()
    }

    /// Whether the log still accepts writes.
    ///
    /// # Errors
    /// `Poisoned`, `Closed`.
    pub fn check(&self) -> Result<()> {
        self.shared.active().map(drop)
    }

    /// The highest index known durable.
    #[must_use]
    pub fn durable_index(&self) -> Index {
        self.shared.any_active().durable_index
    }

    /// Whether the disk had no space for a new segment at the last attempt. The staged group waits for
    /// space.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.shared.space.is_full()
    }

    /// Whether the disk has no space for a further segment. The rest of the existing segments is then the
    /// only reserve. Only a log with [`Log::keep_a_spare`](super::Log::keep_a_spare) detects this early.
    #[must_use]
    pub fn is_short_of_space(&self) -> bool {
        self.shared.space.is_short() || self.shared.space.is_full()
    }

    /// Removes the files of released segments, to free their space; returns whether it removed any.
    #[must_use]
    pub(crate) fn finish_releases(&self) -> bool {
        self.releases.finish()
    }
}
