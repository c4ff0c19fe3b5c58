//! Requests to the background threads, and the outcome of their jobs.
//!
//! There are two jobs: flush and compaction. A request sets a flag and wakes the threads. A job that
//! fails is recorded for the writers that wait for it, and is tried again after a second, or earlier when
//! a writer waits.
//!
//! Attempts are numbered. A writer that waits returns only the error of an attempt that began after its
//! arrival, never an older one. So the first writer after space has returned to the disk succeeds.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Instant, Mutex};

/// The pause before a failed job is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The same while a writer waits for the job.
const RETRY_AFTER_HURRIED: Duration = Duration::from_millis(50);

/// Which job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobKind {
    Flush,
    Compaction,
}

impl JobKind {
    fn name(self) -> &'static str {
        match self {
            JobKind::Flush => "flush",
            JobKind::Compaction => "compaction",
        }
    }
}

/// The requests and outcomes of the jobs, under one lock.
#[derive(Debug)]
pub(super) struct BackgroundJobs {
    jobs: Mutex<Jobs>,
    /// Wakes the background threads.
    work: Condvar,
    /// Wakes the writers that wait for a job: one has finished or failed.
    done: Condvar,
    is_closing: AtomicBool,
}

#[derive(Debug, Default)]
struct Jobs {
    flush: Job,
    compaction: Job,
    /// Whether a writer waits for a job that failed.
    is_hurried: bool,
    /// Once a background thread has panicked. No later success of the other takes this back.
    panicked: Option<Error>,
}

#[derive(Debug, Default)]
struct Job {
    is_requested: bool,
    /// The number of attempts so far.
    attempts: u64,
    /// The last attempt, if it failed: its number and its error.
    failed: Option<(u64, Error)>,
}

impl Jobs {
    fn job(&mut self, kind: JobKind) -> &mut Job {
        match kind {
            JobKind::Flush => &mut self.flush,
            JobKind::Compaction => &mut self.compaction,
        }
    }
}

impl BackgroundJobs {
    /// Both jobs are requested at the beginning: an opening may leave work for them.
    pub(super) fn new() -> BackgroundJobs {
        let mut jobs = Jobs::default();
        jobs.flush.is_requested = true;
        jobs.compaction.is_requested = true;
        BackgroundJobs {
            jobs: Mutex::new(jobs),
            work: Condvar::new(),
            done: Condvar::new(),
            is_closing: AtomicBool::new(false),
        }
    }

    /// Whether the engine is closing: jobs stop, and writers are refused.
    #[inline]
    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// The flag behind [`BackgroundJobs::is_closing`], for a job that checks it often.
    pub(super) fn closing_flag(&self) -> &AtomicBool {
        &self.is_closing
    }

    /// Tells all threads and waiting writers that the engine closes.
    pub(super) fn close(&self) {
        let _jobs = self.jobs.lock();
        self.is_closing.store(true, Ordering::Release);
        self.work.notify_all();
        self.done.notify_all();
    }

    /// Requests a job.
    pub(super) fn request(&self, kind: JobKind) {
        let mut jobs = self.jobs.lock();
        jobs.job(kind).is_requested = true;
        self.work.notify_all();
    }

    /// Wakes the writers that wait for a job.
    pub(super) fn notify_done(&self) {
        let _jobs = self.jobs.lock();
        self.done.notify_all();
    }

    /// Forgets failed attempts: what they failed on was replaced.
    pub(super) fn forget_failures(&self) {
        let mut jobs = self.jobs.lock();
        jobs.flush.failed = None;
        jobs.compaction.failed = None;
    }

    /// The error of the last attempt at a flush or a compaction, if it failed.
    pub(super) fn last_error(&self) -> Option<Error> {
        let jobs = self.jobs.lock();
        let failed = [&jobs.flush, &jobs.compaction].map(|job| job.failed.as_ref());
        let failed = failed.into_iter().flatten().map(|(_, error)| error);
        jobs.panicked.iter().chain(failed).next().cloned()
    }

    /// Waits until the job is requested, or `is_due` returns `true`; returns `false` when the engine
    /// closes. Calls `idle` about once a second meanwhile, without the lock.
    pub(super) fn wait_for_work(
        &self,
        kind: JobKind,
        mut is_due: impl FnMut() -> bool,
        idle: impl Fn(),
    ) -> bool {
        let mut jobs = self.jobs.lock();
        loop {
            if self.is_closing() {
                return false;
            }
            let is_due = is_due();
            let job = jobs.job(kind);
            if std::mem::take(&mut job.is_requested) || is_due {
                job.attempts += 1;
                return true;
            }
            self.work.wait_for(&mut jobs, Duration::from_secs(1));
            drop(jobs);
            idle();
            jobs = self.jobs.lock();
        }
    }

    /// Records the outcome of an attempt and wakes the waiting writers. After a failure, pauses and
    /// requests the job again.
    pub(super) fn report(&self, kind: JobKind, result: Result<()>) {
        let mut jobs = self.jobs.lock();
        match result {
            Ok(()) => jobs.job(kind).failed = None,
            Err(Error::Closed) => {}
            Err(error) => {
                let job = jobs.job(kind);
                let is_known =
                    matches!(&job.failed, Some((_, last)) if last.to_string() == error.to_string());
                if !is_known {
                    tracing::error!(%error, job = kind.name(), "failed; it is tried again");
                }
                job.failed = Some((job.attempts, error));
                jobs.is_hurried = false;
                self.done.notify_all();
                let start = Instant::now();
                while !self.is_closing() {
                    let pause = match jobs.is_hurried {
                        true => RETRY_AFTER_HURRIED,
                        false => RETRY_AFTER,
                    };
                    let Some(left) = pause.checked_sub(start.elapsed()) else {
                        break;
                    };
                    self.work.wait_for(&mut jobs, left);
                }
                jobs.job(kind).is_requested = true;
            }
        }
        self.done.notify_all();
    }

    /// Records that a background thread panicked. Every later wait of a writer returns an error.
    pub(super) fn report_panic(&self) {
        let mut jobs = self.jobs.lock();
        let error = Error::Internal("a background thread panicked".to_owned());
        jobs.panicked = Some(error);
        self.done.notify_all();
    }

    /// Waits until `ready` returns a value. When a job fails that began after this call, returns its
    /// error, unless `is_retried` says that this writer waits for the next attempt.
    pub(super) fn wait_until<T>(
        &self,
        ready: impl Fn() -> Option<T>,
        is_retried: impl Fn(&Error) -> bool,
    ) -> Result<T> {
        let mut jobs = self.jobs.lock();
        let came_at = [jobs.flush.attempts, jobs.compaction.attempts];
        loop {
            let value = ready();
            if self.is_closing() {
                return Err(Error::Closed);
            }
            if let Some(value) = value {
                return Ok(value);
            }
            if let Some(error) = &jobs.panicked {
                return Err(error.clone());
            }
            for (job, came_at) in [&jobs.flush, &jobs.compaction].into_iter().zip(came_at) {
                if let Some((attempt, error)) = &job.failed
                    && *attempt > came_at
                    && !is_retried(error)
                {
                    return Err(error.clone());
                }
            }
            if jobs.flush.failed.is_some() || jobs.compaction.failed.is_some() {
                jobs.is_hurried = true;
                self.work.notify_all();
            }
            self.done.wait_for(&mut jobs, Duration::from_millis(100));
        }
    }

    /// Sleeps for `span`; returns `false` as soon as the engine closes.
    pub(super) fn sleep(&self, span: Duration) -> bool {
        let start = Instant::now();
        let mut jobs = self.jobs.lock();
        loop {
            if self.is_closing() {
                return false;
            }
            // Requests of jobs also wake it.
            match span.checked_sub(start.elapsed()) {
                Some(left) => self.work.wait_for(&mut jobs, left),
                None => return true,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The panic of one thread was taken back by the next success of the other, and writers waited for a thread that was
    /// gone. Found by review.
    #[test]
    fn a_panic_is_told_until_the_end() {
        let jobs = BackgroundJobs::new();
        jobs.report_panic();
        jobs.report(JobKind::Flush, Ok(()));
        jobs.report(JobKind::Compaction, Ok(()));
        jobs.forget_failures();
        let waited = jobs.wait_until(|| None::<()>, |_| true);
        assert!(matches!(waited, Err(Error::Internal(_))), "{waited:?}");
        assert!(jobs.last_error().is_some());
        assert!(
            jobs.wait_until(|| Some(()), |_| true).is_ok(),
            "there is room"
        );
    }
}
