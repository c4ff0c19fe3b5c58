//! Brings watches that are behind to where the feed is.
//!
//! One thread takes the watches of a shard in turn, a piece of history each time, so that a watch
//! that has far to go does not keep others waiting. A watch whose outlet is full waits without a
//! thread until its client has read.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

use bowline::{Changes, Watcher};

use super::event::{bytes_of, event_of};
use super::message::encoded;
use super::outlet::{Offer, Sharing};
use super::shard::{Key, Shard, State, ToWake};

/// How many revisions a watch is given in its turn.
const TURN_MAX: usize = 256;
/// How many bytes of keys and values, from which its turn is over.
const TURN_BYTES: usize = 1 << 20;

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
}

impl Job {
    pub(super) fn new(key: Key, watcher: Watcher) -> Job {
        Job {
            key,
            watcher,
            pending: VecDeque::new(),
        }
    }

    /// Reads up to the end of the turn; tells whether there is nothing more for now.
    fn read(&mut self) -> bowline::Result<bool> {
        // What found no room the last time counts, or a watch that is woken often would gather ever more.
        let mut bytes: usize = self.pending.iter().map(bytes_of).sum();
        while self.pending.len() < TURN_MAX && bytes < TURN_BYTES {
            match self.watcher.poll()? {
                Some(changes) => {
                    bytes += bytes_of(&changes);
                    self.pending.push_back(changes);
                }
                None => return Ok(true),
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
            let events: Vec<_> = events.map(|change| encoded(&event_of(change))).collect();
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
        turn(shard, *job, &mut to_wake);
        for stream in to_wake {
            stream.outlet.wake();
        }
    }
}

/// Gives a watch its turn.
fn turn(shard: &Shard, mut job: Job, to_wake: &mut ToWake) {
    let read = job.read();
    let mut state = shard.state.lock();
    let Some(watch) = state.get(job.key) else {
        // It was canceled.
        return;
    };
    let stream = watch.stream.clone();
    if !job.put(shard, &mut state, to_wake) {
        state.wait_for_room(&stream, job);
        return;
    }
    match read {
        Err(error) => shard.fail(&mut state, job.key, error),
        Ok(false) => shard.send(job),
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
}
