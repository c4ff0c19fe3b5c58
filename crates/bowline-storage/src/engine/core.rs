//! The state that the engine, its jobs and its threads share.
//!
//! [`Core`] holds the parts and combines them where an operation needs several. Each part owns its own
//! lock; the head of [the engine](super) lists the locks and their order.

use std::sync::Arc;

use super::ballast::Ballast;
use super::files::FileSet;
use super::group_commit::CommitState;
use super::history::HistoryPins;
use super::jobs::{BackgroundJobs, JobKind};
use super::log_barrier::LogBarrier;
use super::options::EngineOptions;
use super::version_set::VersionSet;
use super::view::ReadView;
use crate::compaction::Retention;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::vfs::VfsLock;
use crate::{Clock, TreeId};

/// The parts of an engine.
#[derive(Debug)]
pub(super) struct Core {
    pub options: EngineOptions,
    pub clock: Arc<dyn Clock>,
    pub counters: Arc<Counters>,
    pub database_id: u128,
    /// Whether the owner keeps the log; see [`Engine::open_replicated`](super::Engine::open_replicated).
    pub is_replicated: bool,
    /// The tables and blob files on the disk.
    pub files: Arc<FileSet>,
    /// The durability of the log, for jobs.
    pub log: LogBarrier,
    pub ballast: Ballast,
    /// What readers load: the super-version and the visible revision.
    pub view: ReadView,
    /// What history must keep: the floor and the pins.
    pub pins: Arc<HistoryPins>,
    /// The commit lock and the state of the single writer. A commit group holds it.
    pub commit: Mutex<CommitState>,
    /// The manifest and the state that its edits lead to.
    pub versions: VersionSet,
    /// Requests to the background threads, and the outcome of their jobs.
    pub jobs: BackgroundJobs,
    /// The lock file of the directory; `None` after the engine was closed. Released last, when the
    /// engine writes nothing any more.
    pub directory: Mutex<Option<Box<dyn VfsLock>>>,
}

impl Core {
    pub(super) fn tree_ids(&self) -> impl Iterator<Item = TreeId> + use<> {
        (0..self.options.trees.len() as u8).map(TreeId)
    }

    /// What a flush or compaction that begins now must keep.
    pub(super) fn retention(&self) -> Retention {
        // Loaded before the job begins, so that the job keeps what the current tables still need.
        let flushed = self.view.load().version.flushed_index;
        let now_ms = self.clock.wall_ms();
        self.pins
            .retention(self.view.visible_revision(), now_ms, flushed)
    }

    /// Seals the active memtable if it has entries.
    pub(super) fn seal_active(&self) -> Result<()> {
        let commit = self.commit.lock();
        if let Some(reason) = commit.poisoned() {
            return Err(Error::Poisoned { reason });
        }
        self.seal(&commit, 0);
        Ok(())
    }

    /// Seals the active memtable and requests a flush. The new one has space for at least
    /// `space_bytes`. The caller holds the commit lock, so no commit group is in progress.
    pub(super) fn seal(&self, _commit: &CommitState, space_bytes: usize) {
        let capacity_bytes = self.options.memtable_bytes.max(space_bytes);
        self.view.seal(self.options.trees.len(), capacity_bytes);
        self.jobs.request(JobKind::Flush);
    }

    /// Releases the segments of the log that the tables contain: those that the previous process
    /// flushed and did not release.
    pub(super) fn release_log(&self) {
        let flushed = self.view.load().version.flushed_index;
        if let Some(log) = &mut self.commit.lock().log
            && let Err(error) = log.release_prefix(flushed)
        {
            tracing::warn!(%error, "segments of the log stay that are not needed");
        }
    }

    /// Runs a job. On a full disk it runs the job again with the space of released log segments, and
    /// then with the space of the ballast, if that may be used.
    pub(super) fn with_ballast<T>(&self, job: impl Fn() -> Result<T>) -> Result<T> {
        let is_short = |result: &Result<T>| matches!(result, Err(Error::NoSpace { .. }));
        let mut result = job();
        if is_short(&result) && self.log.finish_releases() {
            result = job();
        }
        if is_short(&result) && self.ballast.take_permission() {
            self.ballast.remove();
            if let Some(log) = &self.commit.lock().log {
                log.discard_spares();
            }
            result = job();
        }
        // Not after a failure: the space may serve deletions first, and then the next attempt needs
        // less of it.
        if result.is_ok() && self.has_ballast() {
            self.allocate_ballast();
        }
        result
    }

    /// Whether the engine keeps a ballast file.
    pub(super) fn has_ballast(&self) -> bool {
        self.log.exists() && !self.jobs.is_closing()
    }

    /// Allocates the ballast if it does not exist.
    pub(super) fn allocate_ballast(&self) {
        if !self.ballast.exists() {
            self.log.finish_releases();
            self.ballast.allocate();
        }
    }
}
