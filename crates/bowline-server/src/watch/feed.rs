//! The feed of a shard: it reads every revision once, and delivers its events to the live watches.
//!
//! It is a thread, which sleeps while there is no watch, and wakes for each commit. On the only thread of a simulation it is
//! a task, which looks whether there is something every few milliseconds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline::{Changes, Watcher};
use bytes::Bytes;

use super::event::{bytes_of, event_of, with_previous};
use super::message::encoded;
use super::options::ALONE_INTERVAL;
use super::shard::{Shard, ToWake};
use super::state::State;
use super::stream_queue::{Offer, Sharing};

/// The most revisions that the feed takes at once.
const BATCH_MAX: usize = 256;
/// The approximate bytes of keys and values after which it takes no more.
const BATCH_BYTES: usize = 4 << 20;
/// The interval at which the threads check whether to stop.
const NAP: Duration = Duration::from_millis(100);

/// What a feed keeps from one look for changes to the next.
#[derive(Debug)]
struct Feeding {
    /// When the watches that asked for it are told their progress.
    next_round: Instant,
    batch: Vec<Changes>,
    scratch: Scratch,
}

/// Buffers that are reused for each revision.
#[derive(Debug, Default)]
struct Scratch {
    /// Watches and the changes that concern them.
    found: Vec<(u32, usize)>,
    /// The events by their numbers.
    events: Vec<Option<Bytes>>,
    /// The events of one watch.
    numbers: Vec<u32>,
}

impl Feeding {
    fn new(shard: &Shard) -> Feeding {
        Feeding {
            next_round: Instant::now() + shard.options.progress_interval,
            batch: Vec::new(),
            scratch: Scratch::default(),
        }
    }
}

impl Shard {
    /// The loop of the feed's thread.
    pub(super) fn feed(&self) {
        let mut feeding = Feeding::new(self);
        while let Some(mut feed) = self.await_feed() {
            while !self.is_stopped() {
                let until_round = { feeding.next_round }.saturating_duration_since(Instant::now());
                let nap = NAP.min(until_round);
                // A closed database shows when the watcher is polled.
                let _ = self.db.wait_for_revision(feed.next_revision(), nap);
                if !self.feed_once(&mut feed, &mut feeding) {
                    break;
                }
            }
        }
    }

    /// The loop of the feed on the only thread of a simulation.
    pub(super) async fn feed_alone(self: Arc<Shard>) {
        let mut feeding = Feeding::new(&self);
        let mut feed = None;
        while !self.is_stopped() {
            tokio::time::sleep(ALONE_INTERVAL).await;
            if feed.is_none() {
                feed = self.state.lock().new_feed.take();
            }
            if let Some(known) = &mut feed
                && !self.feed_once(known, &mut feeding)
            {
                feed = None;
            }
        }
    }

    /// Delivers what has changed since the last look. Returns whether the feed goes on: without watches it ends.
    fn feed_once(&self, feed: &mut Watcher, feeding: &mut Feeding) -> bool {
        let Feeding {
            next_round,
            batch,
            scratch,
        } = feeding;
        let mut failure = None;
        let mut bytes = 0;
        while batch.len() < BATCH_MAX && bytes < BATCH_BYTES {
            match feed.try_recv() {
                Ok(Some(changes)) => {
                    bytes += bytes_of(&changes);
                    batch.push(changes);
                }
                Ok(None) => break,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let mut to_wake = ToWake::new();
        let mut state = self.state.lock();
        for changes in batch.drain(..) {
            self.deliver(&mut state, &changes, scratch, &mut to_wake);
        }
        state.move_to(feed.next_revision());
        if Instant::now() >= *next_round {
            *next_round = Instant::now() + self.options.progress_interval;
            state.tell_progress();
        }
        state.answer_asking();
        let is_lost = failure.is_some();
        if let Some(error) = failure {
            self.lose_feed(&mut state, &error);
        }
        let is_idle = state.count == 0 && !is_lost;
        if is_idle {
            state.has_feed = false;
        }
        drop(state);
        for stream in to_wake {
            stream.queue.wake();
        }
        !is_idle && !is_lost
    }

    /// Waits until there is a watch; `None` when the server stops.
    fn await_feed(&self) -> Option<Watcher> {
        let mut state = self.state.lock();
        loop {
            if self.is_stopped() {
                return None;
            }
            if let Some(feed) = state.new_feed.take() {
                return Some(feed);
            }
            self.work_ready.wait(&mut state);
        }
    }

    /// The feed cannot go on: its history was trimmed, or the database failed. Every live watch gets a
    /// watcher of its own, and goes on as far as it can.
    fn lose_feed(&self, state: &mut State, error: &bowline::Error) {
        tracing::warn!(%error, "the feed of the watches starts anew");
        state.has_feed = false;
        let position = state.position;
        for place in 0..state.watches.len() {
            if let Some(watch) = &mut state.watches[place]
                && watch.is_live
            {
                watch.from = watch.from.max(position);
                self.fall_behind(state, place as u32);
            }
        }
        if state.count > 0 && self.ensure_feed(state).is_err() {
            // The database is closed: the streams end with the server.
            state.has_feed = false;
        }
    }

    /// Delivers a revision's events to the live watches of its keys.
    fn deliver(
        &self,
        state: &mut State,
        changes: &Changes,
        scratch: &mut Scratch,
        to_wake: &mut ToWake,
    ) {
        let Scratch {
            found,
            events,
            numbers,
        } = scratch;
        found.clear();
        let mut fallen = Vec::new();
        {
            let State { watches, index, .. } = state;
            for (number, change) in changes.changes.iter().enumerate() {
                index.for_each(&change.entry.key, |place| {
                    let watch = watches[place as usize].as_ref();
                    if watch.is_some_and(|watch| {
                        changes.revision >= watch.from && watch.wants.wants(change)
                    }) {
                        found.push((place, number));
                    }
                });
            }
            let count = changes.changes.len();
            if count > 1 {
                // The sort is stable: a watch's changes stay in order.
                found.sort_by_key(|(place, _)| *place);
            }
            // Each event is encoded for the first watch that needs it, with and without the previous entry
            // separately.
            events.clear();
            events.resize(2 * count, None);
            for of_one in found.chunk_by(|a, b| a.0 == b.0) {
                let Some(watch) = &mut watches[of_one[0].0 as usize] else {
                    continue;
                };
                let skipped = if watch.wants.previous { count } else { 0 };
                numbers.clear();
                numbers.extend(of_one.iter().map(|(_, number)| (skipped + number) as u32));
                // Not collected: into an option, that would reserve room for four.
                let mut of_watch = Vec::with_capacity(numbers.len());
                for number in &*numbers {
                    let event = &mut events[*number as usize];
                    if event.is_none() {
                        *event = self.encode(changes, *number as usize);
                    }
                    of_watch.extend(event.clone());
                }
                if of_watch.len() < numbers.len() {
                    watch.from = changes.revision;
                    fallen.push(of_one[0].0);
                    continue;
                }
                let sharing = Sharing::Shared(changes.revision, numbers);
                match self.offer(watch, changes.revision, of_watch, sharing) {
                    Offer::Taken => {}
                    Offer::TakenFirst => to_wake.push(watch.stream.clone()),
                    Offer::Full => {
                        watch.from = changes.revision;
                        fallen.push(of_one[0].0);
                    }
                }
            }
        }
        for place in fallen {
            self.fall_behind(state, place);
        }
    }

    /// The event with this number: a change, or, beyond them, a change with its previous entry. `None` if that cannot
    /// be read: to catch up, the watch reads it again, and gets the error.
    fn encode(&self, changes: &Changes, number: usize) -> Option<Bytes> {
        let changed = &changes.changes;
        let (change, with_its_previous) = match changed.get(number) {
            Some(change) => (change, false),
            None => (&changed[number - changed.len()], true),
        };
        if !with_its_previous || change.creates_key() {
            return Some(self.budget.count(encoded(&event_of(change))));
        }
        let before = self.db.snapshot_at(changes.revision - 1);
        let previous = match before.and_then(|before| before.entry(&change.entry.key)) {
            Ok(previous) => previous,
            // If that revision is trimmed, there is no previous entry.
            Err(
                bowline::Error::Compacted { .. }
                | bowline::Error::Storage(bowline_storage::Error::Replaced { .. }),
            ) => None,
            Err(_) => return None,
        };
        let event = with_previous(&event_of(change), previous);
        Some(self.budget.count(encoded(&event)))
    }
}
