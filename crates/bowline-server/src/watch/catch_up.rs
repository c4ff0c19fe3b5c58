//! Brings watches that are behind to where the feed is.
//!
//! One thread takes the watches of a shard in turn, a piece of history each time, so that a watch
//! that has far to go does not keep others waiting. A watch whose outlet is full waits without a
//! thread until its client has read, and nothing is read for it meanwhile; only a few keep what was read
//! before.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

use bowline::{Changes, Revision, Watcher};

use super::event::{bytes_of, event_of};
use super::message::encoded;
use super::outlet::{Offer, Sharing};
use super::shard::{Shard, ToWake};
use super::state::{Key, State};

/// How many revisions a watch is given in its turn.
const TURN_MAX: usize = 256;
/// How many bytes of keys and values, from which its turn is over.
const TURN_BYTES: usize = 1 << 20;
/// How many turns a watch has one after the other when it may not keep what it has read until the next:
/// as much as is read from history at once.
const TURNS_AT_ONCE: usize = 4;

/// What the thread is to do.
#[derive(Debug)]
pub(super) enum Task {
    /// Go on with a watch.
    Job(Box<Job>),
    /// End.
    Stop,
}

/// A watch that is behind.
#[derive(Debug)]
pub(super) struct Job {
    key: Key,
    watcher: Watcher,
    /// Read, and not yet in the outlet.
    pending: VecDeque<Changes>,
    has_read: bool,
    /// Whether it is counted among those that keep what they have read until their turn.
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

    /// Whether it may have read more than it has told.
    pub(super) fn holds_history(&self) -> bool {
        self.has_read
    }

    /// The first revision that was not told.
    pub(super) fn next_revision(&self) -> Revision {
        let next = self.pending.front().map(|changes| changes.revision);
        next.unwrap_or_else(|| self.watcher.next_revision())
    }

    /// Reads up to the end of the turn, but no more than finds room; tells whether there is nothing more for
    /// now.
    fn read(&mut self, room: usize) -> bowline::Result<bool> {
        self.has_read = true;
        let bytes_max = TURN_BYTES.min(room);
        // What found no room the last time counts, or a watch that is woken often would gather ever more.
        let mut bytes: usize = self.pending.iter().map(bytes_of).sum();
        while self.pending.len() < TURN_MAX && bytes < bytes_max {
            match self.watcher.try_recv()? {
                Some(changes) => {
                    bytes += bytes_of(&changes);
                    self.pending.push_back(changes);
                }
                None => {
                    // All of it is pending.
                    self.has_read = !self.pending.is_empty();
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Puts what was read into the outlet; tells whether it found room.
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

/// The thread.
pub(super) fn run(shard: &Shard, tasks: &Receiver<Task>) {
    while let Ok(Task::Job(job)) = tasks.recv() {
        if shard.is_stopped() {
            return;
        }
        let mut to_wake = ToWake::new();
        let mut job = *job;
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
            stream.outlet.wake();
        }
    }
}

/// Gives a watch its turn; and gives it back when there is more to read and room for it.
fn turn(shard: &Shard, mut job: Job, to_wake: &mut ToWake) -> Option<Job> {
    let mut state = shard.state.lock();
    // Unless it was canceled.
    let stream = state.get(job.key)?.stream.clone();
    let room = stream.outlet.room();
    if room == 0 {
        shard.wait_for_room(&mut state, &stream, job);
        return None;
    }
    drop(state);
    let read = job.read(room);
    let mut state = shard.state.lock();
    // It may have been canceled meanwhile: then there is nothing to put.
    if !job.put(shard, &mut state, to_wake) {
        shard.wait_for_room(&mut state, &stream, job);
        return None;
    }
    state.get(job.key)?;
    match read {
        Err(error) => shard.fail(&mut state, job.key, error),
        Ok(false) => return Some(job),
        Ok(true) => {
            // The feed may have moved since the read; it cannot while the lock is held.
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
