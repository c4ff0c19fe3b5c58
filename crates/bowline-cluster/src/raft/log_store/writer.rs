//! The thread that writes the log (in a simulation a task, [`Writer::run_as_task`]).
//!
//! It takes everything queued at once. Entries are staged into one group; at the end of the round, or before
//! work that must be durable after them (a vote, a restart), the group is written and flushed once, and its
//! waiters are answered in order. During the flush the next round gathers.
//!
//! An append behind a gap waits until the restart that makes the gap is queued, and everything queued behind
//! the append waits with it.
//!
//! *A full disk.* Work without room waits here, since Raft takes an error for a broken log. Nothing behind it
//! overtakes it, not even a vote: an answered vote implies that everything before it is on disk. So a member
//! that waits acknowledges nothing, gives no vote, and counts in no majority. The room may come from its own
//! log: while it waits it removes entries that are no longer needed.
//!
//! *One code for both.* A round is a future. On the thread it blocks where it has to wait, so it is ready when it is polled
//! for the first time; as a task it lets others run.

use std::collections::VecDeque;
use std::error::Error as _;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;

use bowline_storage::Index;
use bowline_storage::log::{Log, LogSync};
use openraft::storage::IOFlushed;

use super::queue::{Taken, Work, answer};
use super::shared::Shared;
use crate::blocking;
use crate::error::LogStoreError;
use crate::record;
use crate::types::{Entry, TypeConfig};

/// A group is written at this size; the work behind it makes another one.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// The thread's state.
pub(super) struct Writer {
    shared: Arc<Shared>,
    sync: LogSync,
    /// The engine index of the next staged entry.
    next_index: Index,
    works: VecDeque<Work>,
    /// The waiters of the next flush.
    callbacks: Vec<IOFlushed<TypeConfig>>,
    /// The exclusive end and the generation of the staged entries.
    staged: Option<(u64, u64)>,
    /// Whether something was written that no later frame vouches for.
    is_unvouched: bool,
    /// Whether it runs as a task, which must not block.
    is_task: bool,
    record: Vec<u8>,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, sync: LogSync, next_index: Index) -> Writer {
        Writer {
            shared,
            sync,
            next_index,
            works: VecDeque::new(),
            callbacks: Vec::new(),
            staged: None,
            is_unvouched: false,
            is_task: false,
            record: Vec::new(),
        }
    }

    /// The thread.
    pub(super) fn run(&mut self) {
        let mut stop = Stop(self);
        let Stop(writer) = &mut stop;
        let shared = writer.shared.clone();
        loop {
            let idle_after = writer.idle_after();
            let taken = shared.queue.take(&mut writer.works, false, idle_after);
            let turn = writer.turn(taken).now_or_never();
            if !turn.expect("a thread blocks where a task would wait") {
                return;
            }
        }
    }

    /// The same as a task, in a simulation. It never blocks: an append that waits for a restart is tried again when
    /// there is more work.
    pub(super) async fn run_as_task(mut self) {
        self.is_task = true;
        let mut stop = Stop(&mut self);
        let Stop(writer) = &mut stop;
        let shared = writer.shared.clone();
        loop {
            let idle_after = writer.idle_after();
            let taken = shared.queue.taken(&mut writer.works, idle_after).await;
            blocking::wait_for_the_disk().await;
            if !writer.turn(taken).await {
                return;
            }
        }
    }

    fn idle_after(&self) -> Option<Duration> {
        self.is_unvouched.then_some(self.shared.options.vouch_after)
    }

    /// Returns whether there may be more to do.
    async fn turn(&mut self, taken: Taken) -> bool {
        let result = match taken {
            Taken::Works => self.round().await,
            Taken::Idle => self.vouch(),
            Taken::Closed => return false,
        };
        if let Err(error) = result {
            let reason = describe(&error);
            tracing::error!(%reason, "the Raft log takes no more writes");
            self.fail(&reason.into());
            return false;
        }
        self.shared.note_space();
        true
    }

    /// Processes all work taken from the queue.
    async fn round(&mut self) -> Result<(), LogStoreError> {
        while let Some(work) = self.works.pop_front() {
            match self.step(work).await? {
                None => {}
                Some(waiting) => {
                    self.flush().await?;
                    self.works.push_front(waiting);
                    if !self.bring_restart_forward()? {
                        return Ok(());
                    }
                }
            }
        }
        self.flush().await
    }

    /// Processes one item, or returns it when it waits for a restart.
    async fn step(&mut self, work: Work) -> Result<Option<Work>, LogStoreError> {
        match work {
            Work::Append {
                entries,
                generation,
                callback,
            } => {
                let first = entries.first().map(|entry| entry.log_id.index + 1);
                if first.is_some_and(|first| first != self.next_index) {
                    return Ok(Some(Work::Append {
                        entries,
                        generation,
                        callback,
                    }));
                }
                self.callbacks.push(callback);
                self.stage(&entries, generation).await?;
            }
            Work::Cut { from } => {
                self.write().await?;
                self.with_room(|log| log.cut_suffix(from)).await?;
                self.is_unvouched = true;
                self.next_index = from;
            }
            Work::Release { upto } => {
                // Segments that could not be removed stay until a later attempt.
                if let Err(error) = self.with_log(|log| log.release_prefix(upto)) {
                    tracing::warn!(%error, "cannot remove purged log segments");
                }
            }
            Work::Vote { vote, done } => {
                let flushed = self.flush().await;
                let saved = flushed.and_then(|()| Ok(self.shared.member.save_vote(&vote)?));
                answer(done, saved.clone());
                saved?;
            }
            Work::Restart { next_index, done } => {
                let restarted = match self.flush().await {
                    Ok(()) => self.with_room(|log| log.restart_at(next_index)).await,
                    failed => failed,
                };
                if restarted.is_ok() {
                    self.next_index = next_index;
                }
                answer(done, restarted.clone());
                restarted?;
            }
            Work::Barrier { done } => {
                let flushed = self.flush().await;
                answer(done, flushed.clone());
                flushed?;
            }
        }
        Ok(None)
    }

    /// The append at the front needs a restart: waits for one, and moves it before the append. A task does not wait:
    /// it returns whether there is one.
    fn bring_restart_forward(&mut self) -> Result<bool, LogStoreError> {
        loop {
            let found = self
                .works
                .iter()
                .position(|work| matches!(work, Work::Restart { .. }));
            if let Some(restart) = found.and_then(|position| self.works.remove(position)) {
                self.works.push_front(restart);
                return Ok(true);
            }
            let shared = self.shared.clone();
            if self.is_task {
                match shared.queue.try_take(&mut self.works, false) {
                    Some(Taken::Works) => continue,
                    _ => return Ok(false),
                }
            }
            if shared.queue.take(&mut self.works, true, None) != Taken::Works {
                return Err(shared.stopped());
            }
        }
    }

    async fn stage(&mut self, entries: &[Entry], generation: u64) -> Result<(), LogStoreError> {
        let committed = self.shared.view.lock().committed().map(|id| id.index);
        let mut record = std::mem::take(&mut self.record);
        for entry in entries {
            record.clear();
            record::encode(entry, committed, &mut record);
            let staged_bytes = self.with_log(|log| {
                log.stage(&record);
                Ok(log.staged_bytes())
            })?;
            self.next_index += 1;
            self.staged = Some((entry.log_id.index + 1, generation));
            if staged_bytes >= GROUP_BYTES_MAX {
                self.write().await?;
            }
        }
        record.shrink_to(GROUP_BYTES_MAX);
        self.record = record;
        Ok(())
    }

    /// Writes the staged entries.
    async fn write(&mut self) -> Result<(), LogStoreError> {
        if let Some((next, generation)) = self.staged.take() {
            self.with_room(Log::write).await?;
            self.is_unvouched = true;
            self.shared.view.lock().set_written(next, generation);
        }
        Ok(())
    }

    /// When idle: vouches for everything that was written and flushed.
    fn vouch(&mut self) -> Result<(), LogStoreError> {
        self.is_unvouched = false;
        self.sync.sync()?;
        if self.with_log(Log::vouch)? {
            self.sync.sync()?;
        }
        Ok(())
    }

    /// Writes the staged entries, makes them durable, and answers their waiters.
    async fn flush(&mut self) -> Result<(), LogStoreError> {
        self.write().await?;
        if self.callbacks.is_empty() {
            return Ok(());
        }
        let start = Instant::now();
        self.sync.sync()?;
        self.shared.flush_times.record(start.elapsed());
        for callback in self.callbacks.drain(..) {
            callback.io_completed(Ok(()));
        }
        Ok(())
    }

    fn with_log<T>(
        &self,
        run: impl FnOnce(&mut Log) -> bowline_storage::Result<T>,
    ) -> Result<T, LogStoreError> {
        let mut log = self.shared.log.lock();
        let log = log.as_mut().ok_or(bowline_storage::Error::Closed)?;
        Ok(run(log)?)
    }

    /// [`Writer::with_log`] for work that needs disk space and a file descriptor; it retries until there are
    /// some. The log is unlocked between the attempts, for readers.
    async fn with_room<T>(
        &self,
        run: impl Fn(&mut Log) -> bowline_storage::Result<T>,
    ) -> Result<T, LogStoreError> {
        loop {
            let error = match self.with_log(&run) {
                Err(error) if error.is_shortage() => error,
                result => {
                    self.shared.queue.has_room();
                    return result;
                }
            };
            self.shared.note_space();
            let queue = &self.shared.queue;
            let goes_on = match self.is_task {
                true => queue.room_for_task(&error).await,
                false => queue.wait_for_room(&error),
            };
            if !goes_on {
                return Err(error);
            }
            let upto = self.shared.superfluous();
            if let Err(error) = self.with_log(|log| log.release_prefix(upto)) {
                tracing::warn!(%error, "cannot remove purged log segments");
            }
        }
    }

    /// Fails the waiters and all later work.
    fn fail(&mut self, reason: &Arc<str>) {
        let queued = self.shared.queue.fail(reason.clone());
        let error = LogStoreError::Stopped(reason.clone());
        for callback in self.callbacks.drain(..) {
            callback.io_completed(Err(error.clone().into()));
        }
        for work in self.works.drain(..).chain(queued) {
            work.refuse(error.clone());
        }
    }
}

/// Fails all waiters, however the thread ends.
struct Stop<'a>(&'a mut Writer);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(&"the thread that writes it panicked".into());
        }
    }
}

/// An error and its causes, in one line.
fn describe(error: &LogStoreError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
