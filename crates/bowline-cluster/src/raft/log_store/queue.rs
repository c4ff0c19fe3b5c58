//! The queue of the log's writing thread: its work, in order, and the signals that wake it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_storage::Index;
use openraft::storage::IOFlushed;
use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, oneshot};

use crate::error::LogStoreError;
use crate::types::{Entry, TypeConfig, Vote};

/// The interval of retries while there is no room.
const ROOM_PAUSE: Duration = Duration::from_millis(200);

pub(super) type Done = oneshot::Sender<Result<(), LogStoreError>>;

/// Work for the thread. Indices are the engine's.
pub(super) enum Work {
    Append {
        entries: Vec<Entry>,
        generation: u64,
        callback: IOFlushed<TypeConfig>,
    },
    Cut {
        from: Index,
    },
    Release {
        upto: Index,
    },
    Vote {
        vote: Vote,
        done: Done,
    },
    Restart {
        next_index: Index,
        done: Done,
    },
    Barrier {
        done: Done,
    },
}

impl Work {
    pub(super) fn refuse(self, error: LogStoreError) {
        match self {
            Work::Append { callback, .. } => callback.io_completed(Err(error.into())),
            Work::Vote { done, .. } | Work::Restart { done, .. } | Work::Barrier { done } => {
                answer(done, Err(error));
            }
            Work::Cut { .. } | Work::Release { .. } => {}
        }
    }
}

/// The caller may be gone.
pub(super) fn answer(done: Done, result: Result<(), LogStoreError>) {
    let _ = done.send(result);
}

struct QueueState {
    works: VecDeque<Work>,
    flushed: Index,
    is_closed: bool,
    failure: Option<Arc<str>>,
    /// Whether the thread waits for room on the disk.
    waits_for_room: bool,
    /// Whether work without room fails instead of waiting.
    fails_without_room: bool,
    /// Whether the thread waits for work without a time limit.
    #[cfg(test)]
    is_at_rest: bool,
}

impl QueueState {
    /// Notes that the work waits for room. Returns whether it may.
    fn begin_to_wait(&mut self, error: &LogStoreError) -> bool {
        if !self.waits_for_room && !self.fails_without_room {
            tracing::error!(%error, "the Raft log waits and tries again");
        }
        self.waits_for_room = !self.fails_without_room;
        self.waits_for_room
    }

    fn try_take(&mut self, works: &mut VecDeque<Work>, needs_more: bool) -> Option<Taken> {
        if !self.works.is_empty() {
            works.append(&mut self.works);
            return Some(Taken::Works);
        }
        let is_over = self.is_closed || needs_more && self.fails_without_room;
        is_over.then_some(Taken::Closed)
    }
}

/// The queue.
pub(super) struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
    /// The same for a task in place of the thread.
    changed_for_task: Notify,
    /// Signals that waiting for room has ended.
    hurried: Condvar,
    hurried_for_task: Notify,
}

impl Queue {
    pub(super) fn new(flushed: Index) -> Queue {
        Queue {
            state: Mutex::new(QueueState {
                works: VecDeque::new(),
                flushed,
                is_closed: false,
                failure: None,
                waits_for_room: false,
                fails_without_room: false,
                #[cfg(test)]
                is_at_rest: false,
            }),
            changed: Condvar::new(),
            changed_for_task: Notify::new(),
            hurried: Condvar::new(),
            hurried_for_task: Notify::new(),
        }
    }

    fn notify(&self) {
        self.changed.notify_one();
        self.changed_for_task.notify_one();
    }

    fn notify_hurried(&self) {
        self.hurried.notify_one();
        self.hurried_for_task.notify_one();
    }

    pub(super) fn push(&self, work: Work) {
        let refusal = {
            let mut state = self.state.lock();
            match &state.failure {
                Some(failure) => failure.clone(),
                None if state.is_closed => "it is closed".into(),
                None => {
                    state.works.push_back(work);
                    self.notify();
                    return;
                }
            }
        };
        work.refuse(LogStoreError::Stopped(refusal));
    }

    pub(super) fn flushed(&self) -> Index {
        self.state.lock().flushed
    }

    pub(super) fn set_flushed(&self, flushed: Index) {
        let mut state = self.state.lock();
        state.flushed = state.flushed.max(flushed);
    }

    pub(super) fn failure(&self) -> Option<Arc<str>> {
        self.state.lock().failure.clone()
    }

    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        (state.is_closed, state.fails_without_room) = (true, true);
        self.notify();
        self.notify_hurried();
    }

    /// Ends all waiting for room.
    pub(super) fn hurry(&self) {
        self.state.lock().fails_without_room = true;
        self.notify_hurried();
        self.notify();
    }

    pub(super) fn fails_without_room(&self) -> bool {
        self.state.lock().fails_without_room
    }

    #[cfg(test)]
    pub(super) fn waits_for_room(&self) -> bool {
        self.state.lock().waits_for_room
    }

    /// Whether the thread has taken all work and will do nothing before there is more.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        let state = self.state.lock();
        state.is_at_rest && state.works.is_empty()
    }

    pub(super) fn has_room(&self) {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.waits_for_room) {
            tracing::warn!("the Raft log goes on");
        }
    }

    /// Waits for a moment; `false` if waiting has ended.
    pub(super) fn wait_for_room(&self, error: &LogStoreError) -> bool {
        let mut state = self.state.lock();
        if state.begin_to_wait(error) {
            self.hurried.wait_for(&mut state, ROOM_PAUSE);
        }
        !state.fails_without_room
    }

    /// [`Queue::wait_for_room`] for a task.
    pub(super) async fn room_for_task(&self, error: &LogStoreError) -> bool {
        if self.state.lock().begin_to_wait(error) {
            let hurried = self.hurried_for_task.notified();
            let _ = tokio::time::timeout(ROOM_PAUSE, hurried).await;
        }
        !self.fails_without_room()
    }

    /// Moves the queued work to `works`; waits for some, up to `idle_after` if that is given. With
    /// `needs_more`, the present work cannot go on without more; that ends when waiting has ended.
    pub(super) fn take(
        &self,
        works: &mut VecDeque<Work>,
        needs_more: bool,
        idle_after: Option<Duration>,
    ) -> Taken {
        let idle_at = idle_after.map(|idle_after| Instant::now() + idle_after);
        let mut state = self.state.lock();
        let mut is_idle = false;
        loop {
            if let Some(taken) = state.try_take(works, needs_more) {
                return taken;
            }
            if is_idle {
                return Taken::Idle;
            }
            match idle_at {
                Some(at) => is_idle = self.changed.wait_until(&mut state, at).timed_out(),
                None => {
                    #[cfg(test)]
                    (state.is_at_rest = true);
                    self.changed.wait(&mut state);
                    #[cfg(test)]
                    (state.is_at_rest = false);
                }
            }
        }
    }

    /// [`Queue::take`] for a task, which waits for its first work.
    pub(super) async fn taken(
        &self,
        works: &mut VecDeque<Work>,
        idle_after: Option<Duration>,
    ) -> Taken {
        loop {
            if let Some(taken) = self.try_take(works, false) {
                return taken;
            }
            let changed = self.changed_for_task.notified();
            match idle_after {
                None => changed.await,
                Some(idle_after) => {
                    if tokio::time::timeout(idle_after, changed).await.is_err() {
                        return self.try_take(works, false).unwrap_or(Taken::Idle);
                    }
                }
            }
        }
    }

    /// Moves the queued work to `works`, if there is some.
    pub(super) fn try_take(&self, works: &mut VecDeque<Work>, needs_more: bool) -> Option<Taken> {
        self.state.lock().try_take(works, needs_more)
    }

    /// Refuses all further work; returns the queued work.
    pub(super) fn fail(&self, reason: Arc<str>) -> VecDeque<Work> {
        let mut state = self.state.lock();
        state.failure.get_or_insert(reason);
        std::mem::take(&mut state.works)
    }
}

/// The result of waiting for work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// There is work.
    Works,
    /// None has come in the given time.
    Idle,
    /// The queue is closed.
    Closed,
}
