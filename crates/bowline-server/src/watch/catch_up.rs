//! The catch-up thread: it reads history for the watches that are behind, until they reach the position of the feed.
//!
//! One thread serves the watches of a shard round-robin, a bounded chunk of history each, so that a watch far behind
//! does not delay others. For a watch whose queue is full nothing is read until its client has taken events; no thread
//! waits for that. Only a few such watches may keep events that they have read already.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use bowline::{Changes, Revision, Watcher};

use super::event::{bytes_of, event_of};
use super::message::encoded;
use super::options::ALONE_INTERVAL;
use super::shard::{Shard, ToWake};
use super::state::{Key, State};
use super::stream_queue::{Offer, Sharing};

/// The most revisions that a watch reads in one turn.
const TURN_MAX: usize = 256;
/// A turn ends at so many bytes of keys and values.
const TURN_BYTES: usize = 1 << 20;
/// The turns in a row of a watch that may not keep what it has read until its next turn: as many as one read
/// of history yields.
const TURNS_AT_ONCE: usize = 4;

/// A task of the thread.
#[derive(Debug)]
pub(super) enum Task {
    /// Continue with a watch.
    Job(Box<Job>),
    /// End the thread.
    Stop,
}

/// A watch that is behind.
#[derive(Debug)]
pub(super) struct Job {
    key: Key,
    watcher: Watcher,
    /// Revisions that are read and not yet in the queue.
    pending: VecDeque<Changes>,
    has_read: bool,
    /// Whether it counts among the watches that keep what they have read until their next turn.
    pub(super) holds_in_turn: bool,
}

impl Job {
    pub(super) fn new(key: Key, watcher: Watcher) -> Job {
        Job {
            key,
            watcher,
            pending: VecDeque::new(),
            has_read: false,
            holds_in_turn: false,
        }
    }

    pub(super) fn key(&self) -> Key {
        self.key
    }

    /// Whether it may have read more than it has sent.
    pub(super) fn holds_history(&self) -> bool {
        self.has_read
    }

    /// The first revision that was not sent.
    pub(super) fn next_revision(&self) -> Revision {
        let next = self.pending.front().map(|changes| changes.revision);
        next.unwrap_or_else(|| self.watcher.next_revision())
    }

    /// Reads until the turn ends or the room is used up. Returns whether nothing more is available for now.
    fn read(&mut self, room: usize) -> bowline::Result<bool> {
        self.has_read = true;
        let bytes_max = TURN_BYTES.min(room);
        // Pending revisions count, or a watch that is woken often would accumulate ever more.
        let mut bytes: usize = self.pending.iter().map(bytes_of).sum();
        while self.pending.len() < TURN_MAX && bytes < bytes_max {
            match self.watcher.try_recv()? {
                Some(changes) => {
                    bytes += bytes_of(&changes);
                    self.pending.push_back(changes);
                }
                None => {
                    // Everything read is pending.
                    self.has_read = !self.pending.is_empty();
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Moves what was read into the queue; returns whether there was room for all.
    fn put(&mut self, shard: &Shard, state: &mut State, to_wake: &mut ToWake) -> bool {
        let Some(watch) = state.get(self.key) else {
            return true;
        };
        while let Some(changes) = self.pending.front() {
            let events = changes.changes.iter();
            let events = events.filter(|change| watch.wants().wants(change));
            let events = events.map(|change| shard.budget.count(encoded(&event_of(change))));
            let events: Vec<_> = events.collect();
            if !events.is_empty() {
                match shard.offer(watch, changes.revision, events, Sharing::Own) {
                    Offer::Taken => {}
                    Offer::TakenFirst => to_wake.push(watch.stream.clone()),
                    Offer::Full => return false,
                }
            }
            self.pending.pop_front();
        }
        true
    }
}

/// The thread's loop.
pub(super) fn run(shard: &Shard, tasks: &Receiver<Task>) {
    while let Ok(Task::Job(job)) = tasks.recv() {
        if shard.is_stopped() {
            return;
        }
        go_on(shard, *job);
    }
}

/// The loop on the only thread of a simulation.
pub(super) async fn run_alone(shard: Arc<Shard>, tasks: Receiver<Task>) {
    while !shard.is_stopped() {
        match tasks.try_recv() {
            Ok(Task::Job(job)) => go_on(&shard, *job),
            Ok(Task::Stop) | Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => tokio::time::sleep(ALONE_INTERVAL).await,
        }
    }
}

/// Goes on with a watch for some turns.
fn go_on(shard: &Shard, mut job: Job) {
    let mut to_wake = ToWake::new();
    shard.state.lock().begin_turn(&mut job);
    let mut turns = 1;
    while let Some(next) = turn(shard, job, &mut to_wake) {
        let mut state = shard.state.lock();
        if turns == TURNS_AT_ONCE || Shard::may_hold_in_turn(&state) {
            shard.requeue(&mut state, next);
            break;
        }
        job = next;
        turns += 1;
    }
    for stream in to_wake {
        stream.queue.wake();
    }
}

/// One turn of a watch. Returns the watch if there is more to read and room for it.
fn turn(shard: &Shard, mut job: Job, to_wake: &mut ToWake) -> Option<Job> {
    let mut state = shard.state.lock();
    // A canceled watch is gone.
    let stream = state.get(job.key)?.stream.clone();
    let room = stream.queue.room();
    if room == 0 {
        shard.wait_for_room(&mut state, &stream, job);
        return None;
    }
    drop(state);
    let read = job.read(room);
    let mut state = shard.state.lock();
    // If it was canceled meanwhile, nothing is put.
    if !job.put(shard, &mut state, to_wake) {
        shard.wait_for_room(&mut state, &stream, job);
        return None;
    }
    state.get(job.key)?;
    match read {
        Err(error) => shard.fail(&mut state, job.key, error),
        Ok(false) => return Some(job),
        Ok(true) => {
            // The feed may have moved since the read; it cannot move while the lock is held.
            if job.watcher.next_revision() < state.position {
                drop(state);
                shard.send(job);
            } else {
                let from = job.watcher.next_revision();
                state.go_live(job.key, from);
            }
        }
    }
    None
}
