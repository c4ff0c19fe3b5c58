//! The feed of a shard: it reads every revision once, and delivers its events to the live watches.
//!
//! It is a thread, which sleeps while there is no watch, and wakes for each commit. On the only thread of a simulation it is
//! a task, which looks whether there is something every few milliseconds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline::{Changes, Watcher};
use bytes::Bytes;

use super::event::{bytes_of, event_of, with_previous};
use super::index::Member;
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
    found: Vec<(Member, usize)>,
    /// The events by their numbers.
    events: Vec<Option<Bytes>>,
    /// The watches of one stream that receive the same events, and the numbers of these.
    group: Vec<u32>,
    numbers: Vec<u32>,
    /// The numbers of the next watch's events.
    next: Vec<u32>,
    /// The watches for which there is no room.
    fallen: Vec<u32>,
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

    /// Delivers a revision's events to the live watches of its keys. Watches of a stream that stand together in the index
    /// and receive the same events share a message.
    fn deliver(
        &self,
        state: &mut State,
        changes: &Changes,
        scratch: &mut Scratch,
        to_wake: &mut ToWake,
    ) {
        find(state, changes, scratch);
        // Each event is encoded for the first watch that needs it, with and without the previous entry separately.
        let count = changes.changes.len();
        scratch.events.clear();
        scratch.events.resize(2 * count, None);
        scratch.group.clear();
        let found = std::mem::take(&mut scratch.found);
        let mut stream = None;
        for of_one in found.chunk_by(|a, b| a.0 == b.0) {
            let member = of_one[0].0;
            let Some(watch) = &state.watches[member.place as usize] else {
                continue;
            };
            let wants = watch.wants;
            let skipped = if wants.previous { count } else { 0 };
            let numbers = of_one.iter().map(|(_, number)| (skipped + number) as u32);
            scratch.next.clear();
            scratch.next.extend(numbers);
            let is_same = stream == Some(member.stream) && scratch.next == scratch.numbers;
            if !is_same || wants.fragments || scratch.group.is_empty() {
                self.deliver_to_group(state, changes, scratch, to_wake);
                std::mem::swap(&mut scratch.numbers, &mut scratch.next);
            }
            scratch.group.push(member.place);
            // What may be sent in fragments is sent by itself.
            stream = (!wants.fragments).then_some(member.stream);
        }
        self.deliver_to_group(state, changes, scratch, to_wake);
        scratch.found = found;
        for place in scratch.fallen.drain(..) {
            self.fall_behind(state, place);
        }
    }

    /// Delivers events to the watches of the group, which is empty then.
    fn deliver_to_group(
        &self,
        state: &mut State,
        changes: &Changes,
        scratch: &mut Scratch,
        to_wake: &mut ToWake,
    ) {
        let Scratch {
            events,
            group,
            numbers,
            fallen,
            ..
        } = scratch;
        let Some((first, others)) = group.split_first() else {
            return;
        };
        // Not collected: into an option, that would reserve room for four.
        let mut of_group = Vec::with_capacity(numbers.len());
        for number in &*numbers {
            let event = &mut events[*number as usize];
            if event.is_none() {
                *event = self.encode(changes, *number as usize);
            }
            of_group.extend(event.clone());
        }
        let offer = match of_group.len() == numbers.len() {
            true => {
                let sharing = Sharing::Shared(changes.revision, numbers);
                self.offer_to_all(
                    &mut state.watches,
                    (*first, others),
                    changes.revision,
                    of_group,
                    sharing,
                )
            }
            // One cannot be read.
            false => Offer::Full,
        };
        match offer {
            Offer::Taken => {}
            Offer::TakenFirst => {
                let watch = state.watches[*first as usize].as_ref();
                to_wake.extend(watch.map(|watch| watch.stream.clone()));
            }
            Offer::Full => {
                for place in group.iter() {
                    if let Some(watch) = &mut state.watches[*place as usize] {
                        watch.from = changes.revision;
                    }
                }
                fallen.extend_from_slice(group);
            }
        }
        group.clear();
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

/// Finds the watches that a revision's changes concern. Those of a stream stand together, a watch's changes in order.
fn find(state: &State, changes: &Changes, scratch: &mut Scratch) {
    let found = &mut scratch.found;
    found.clear();
    for (number, change) in changes.changes.iter().enumerate() {
        state.index.for_each(&change.entry.key, |member| {
            let watch = state.watches[member.place as usize].as_ref();
            if watch
                .is_some_and(|watch| changes.revision >= watch.from && watch.wants.wants(change))
            {
                found.push((member, number));
            }
        });
    }
    // Those of one change and of equal keys are.
    if !found.is_sorted_by_key(|(member, _)| *member) {
        found.sort_by_key(|(member, _)| *member);
    }
}
