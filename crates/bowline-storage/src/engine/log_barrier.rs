//! The durability of the log, as flushes need it.
//!
//! Tables never run ahead of the log: before the manifest records that the tables contain the log up to
//! an index, the log is durable up to there. [`LogBarrier`] makes it so, on the job's thread or beside
//! the job. The log of a cluster is written by its owner, so there the barrier may have to wait.

use std::path::PathBuf;
use std::time::Duration;

use crate::Index;
use crate::error::{Error, Result};
use crate::log::LogSync;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread;

/// Makes the log durable for jobs. Its only lock is the log's own.
#[derive(Debug)]
pub(super) struct LogBarrier {
    /// `None` without a log ([`SyncPolicy::Never`](super::SyncPolicy::Never)).
    log: Option<LogSync>,
    /// The directory of the log, for errors.
    directory: PathBuf,
    is_replicated: bool,
    has_threads: bool,
}

impl LogBarrier {
    pub(super) fn new(
        log: Option<LogSync>,
        directory: PathBuf,
        is_replicated: bool,
        has_threads: bool,
    ) -> LogBarrier {
        LogBarrier {
            log,
            directory,
            is_replicated,
            has_threads,
        }
    }

    /// Whether the engine has a log.
    pub(super) fn exists(&self) -> bool {
        self.log.is_some()
    }

    /// Whether the log can be made durable: without that no job can record what it has written.
    pub(super) fn check(&self) -> Result<()> {
        match &self.log {
            Some(log) => log.check(),
            None => Ok(()),
        }
    }

    /// Makes everything written to the log durable.
    pub(super) fn sync(&self) -> Result<()> {
        match &self.log {
            Some(log) => log.sync().map(drop),
            None => Ok(()),
        }
    }

    /// Frees the space of released segments; returns whether it freed any.
    pub(super) fn finish_releases(&self) -> bool {
        self.log.as_ref().is_some_and(LogSync::finish_releases)
    }

    /// Runs `job`, and makes the log durable up to `upto` meanwhile if there are threads. The manifest
    /// edit that follows needs both; their order does not matter.
    pub(super) fn run_beside(
        &self,
        upto: Option<Index>,
        is_closing: &AtomicBool,
        job: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let is_durable = |log: &LogSync| upto.is_none_or(|upto| log.durable_index() >= upto);
        if self.log.as_ref().is_none_or(is_durable) {
            return job();
        }
        if !self.has_threads {
            self.sync_up_to(upto, is_closing)?;
            return job();
        }
        let synced = Mutex::new(None);
        let done = thread::scope(|scope| {
            let sync = || *synced.lock() = Some(self.sync_up_to(upto, is_closing));
            if !thread::spawn_in(scope, "bowline-log-sync", sync) {
                *synced.lock() = Some(self.sync_up_to(upto, is_closing));
            }
            job()
        });
        let synced = synced.lock().take();
        done.and(synced.unwrap_or_else(|| self.sync_up_to(upto, is_closing)))
    }

    /// Whether a job that needs the log up to `index` would wait for its owner, which may need this thread: there
    /// are no others. The job is repeated later.
    pub(super) fn owner_is_behind(&self, index: Index) -> Result<bool> {
        if self.has_threads || !self.is_replicated {
            return Ok(false);
        }
        let durable = self.log.as_ref().map(LogSync::sync).transpose()?;
        Ok(durable.is_some_and(|durable| durable < index))
    }

    /// Makes the log durable up to `index`. In a cluster an entry may be applied before its owner has
    /// written it to the log; then this waits for the write.
    fn sync_up_to(&self, index: Option<Index>, is_closing: &AtomicBool) -> Result<()> {
        const PAUSE: Duration = Duration::from_millis(1);
        let Some(log) = &self.log else {
            return Ok(());
        };
        loop {
            let durable = log.sync()?;
            if !self.is_replicated || index.is_none_or(|index| durable >= index) {
                return Ok(());
            }
            // On a full disk the write may never come. The job must not wait then, because other jobs
            // free space only after this one.
            if log.is_full() {
                return Err(Error::NoSpace {
                    path: self.directory.clone(),
                });
            }
            if is_closing.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            thread::sleep(PAUSE);
        }
    }
}
