//! The background threads of the engine.
//!
//! One thread flushes, one compacts (with helpers for a large [compaction](super::compact)), and with
//! [`SyncPolicy::Every`] one syncs the log. In `Manual` mode there are no threads, and the jobs run on
//! the caller's thread.

use std::sync::Arc;
use std::time::Duration;

use super::compact::Compactor;
use super::core::Core;
use super::flush::Flusher;
use super::jobs::JobKind;
use super::options::SyncPolicy;
use crate::error::{Error, Result};
use crate::sync::Instant;
use crate::sync::thread::{self, JoinHandle};

/// Starts the threads, unless the engine is to have none, and adds them to `workers`. On an error those that have
/// started are there, to be ended.
pub(super) fn start(
    core: &Arc<Core>,
    flusher: &Arc<Flusher>,
    compactor: &Arc<Compactor>,
    workers: &mut Vec<JoinHandle<()>>,
) -> Result<()> {
    if !core.options.has_threads() {
        return Ok(());
    }
    let flusher = flusher.clone();
    workers.push(spawn(core, "flush", move |core| {
        flush_loop(core, &flusher);
    })?);
    let compactor = compactor.clone();
    workers.push(spawn(core, "compact", move |core| {
        compaction_loop(core, &compactor);
    })?);
    if let SyncPolicy::Every(interval) = core.options.sync {
        workers.push(spawn(core, "sync", move |core| sync_loop(core, interval))?);
    }
    Ok(())
}

fn spawn(
    core: &Arc<Core>,
    name: &str,
    run: impl FnOnce(&Core) + Send + 'static,
) -> Result<JoinHandle<()>> {
    let of_thread = core.clone();
    let body = move || {
        let _guard = PanicGuard(&of_thread);
        run(&of_thread);
    };
    let thread = thread::Builder::new()
        .name(format!("bowline-{name}"))
        .spawn(body);
    // The system has no more threads or no memory for one.
    thread.map_err(|e| Error::io("start a thread for", core.files.layout.root(), e))
}

/// Reports a panic of a background thread to the writers that would wait for it forever.
struct PanicGuard<'a>(&'a Core);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.jobs.report_panic();
        }
    }
}

/// The work of an idle thread: samples the wall clock for history, and drops memtables and super-versions
/// that no reader uses any more.
fn idle(core: &Core) {
    core.pins
        .tick(core.view.visible_revision(), core.clock.wall_ms());
    core.view.reclaim();
}

fn flush_loop(core: &Core, flusher: &Flusher) {
    // A program that opens, does one thing and closes does not pay for the ballast.
    const SETTLED_AFTER: Duration = Duration::from_secs(1);
    let start = Instant::now();
    let mut is_settled = false;
    loop {
        let is_due = || {
            let settles = !is_settled && start.elapsed() >= SETTLED_AFTER;
            is_settled |= settles;
            settles
        };
        if !core
            .jobs
            .wait_for_work(JobKind::Flush, is_due, || idle(core))
        {
            return;
        }
        core.pins
            .tick(core.view.visible_revision(), core.clock.wall_ms());
        let result = flusher.flush_all();
        if is_settled && result.is_ok() {
            core.allocate_ballast();
        }
        core.jobs.report(JobKind::Flush, result);
    }
}

fn compaction_loop(core: &Core, compactor: &Compactor) {
    while core
        .jobs
        .wait_for_work(JobKind::Compaction, || false, || idle(core))
    {
        let result = loop {
            match compactor.compact_once() {
                Ok(true) => core.jobs.notify_done(),
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        core.jobs.report(JobKind::Compaction, result);
    }
}

fn sync_loop(core: &Core, interval: Duration) {
    if !core.log.exists() {
        return;
    }
    while core.jobs.sleep(interval) {
        if let Err(error) = core.log.sync() {
            tracing::error!(%error, "the log could not be flushed; writes are refused from now on");
            return;
        }
    }
}
