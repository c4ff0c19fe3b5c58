//! A shard of the watches: the feed that serves its live watches, and the requests of its streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bowline::{Changes, DbReader, Range, Revision, Watcher};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::budget::Budget;
use super::catch_up::{self, Job, Task};
use super::event::{bytes_of, event_of, with_previous};
use super::index::Span;
use super::message::{WatchMessage, encoded, response};
use super::options::WatchOptions;
use super::state::{Key, State, StreamState, Wants, Watch};
use super::stream_queue::{Offer, Place, Sharing, StreamQueue};
use crate::status::Fault;

/// The most revisions that the feed takes at once.
const BATCH_MAX: usize = 256;
/// The approximate bytes of keys and values after which it takes no more.
const BATCH_BYTES: usize = 4 << 20;
/// The interval at which the threads check whether to stop.
const NAP: Duration = Duration::from_millis(100);
/// How many watches may keep what they have read of history, a few MiB each, while they wait for room; and
/// how many while they wait for their turn.
const HOLDING_MAX: usize = 4;

/// A shard of the watches.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) db: DbReader,
    pub(super) options: WatchOptions,
    pub(super) budget: Arc<Budget>,
    pub(super) state: Mutex<State>,
    /// Signaled when a feed is needed and there is none.
    work_ready: Condvar,
    pub(super) tasks: mpsc::Sender<Task>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    is_stopped: AtomicBool,
    next_stream: AtomicU64,
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

/// Streams whose connections are woken after the lock is released.
pub(super) type ToWake = Vec<Arc<StreamState>>;

impl Shard {
    /// Starts its threads.
    pub(super) fn start(
        db: DbReader,
        options: WatchOptions,
        budget: Arc<Budget>,
    ) -> std::io::Result<Arc<Shard>> {
        let (tasks, receiver) = mpsc::channel();
        let shard = Arc::new(Shard {
            db,
            options,
            budget,
            state: Mutex::new(State::default()),
            work_ready: Condvar::new(),
            tasks,
            threads: Mutex::new(Vec::new()),
            is_stopped: AtomicBool::new(false),
            next_stream: AtomicU64::new(0),
        });
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let feeding = shard.clone();
        let feed = named("bowline-watch").spawn(move || feeding.feed())?;
        let catching = shard.clone();
        let catch_up = named("bowline-catch-up").spawn(move || catch_up::run(&catching, &receiver));
        shard.threads.lock().extend([feed, catch_up?]);
        Ok(shard)
    }

    /// Ends its threads and waits for them.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        {
            let _state = self.state.lock();
            self.work_ready.notify_all();
        }
        // An error means that the thread has already ended.
        let _ = self.tasks.send(Task::Stop);
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the watches panicked");
            }
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// The number of watches, and of those that are behind.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.count, state.behind)
    }

    pub(super) fn open(&self, queue: Arc<StreamQueue>) -> Arc<StreamState> {
        Arc::new(StreamState {
            id: self.next_stream.fetch_add(1, Ordering::Relaxed),
            queue,
            behind: AtomicUsize::new(0),
            ahead: AtomicUsize::new(0),
        })
    }

    /// Creates a watch and confirms it to the client. `None` if it failed; the client has then received the
    /// reason. As in etcd, a watch that ends at once is created all the same.
    pub(super) fn create(
        &self,
        stream: &Arc<StreamState>,
        id: i64,
        span: Span,
        start: i64,
        wants: Wants,
    ) -> Option<Key> {
        let state = &mut *self.state.lock();
        if let Err(error) = self.ensure_feed(state) {
            refuse(stream, id, self.db.revision(), &Fault::from(error));
            return None;
        }
        let now = self.db.revision();
        let created = |revision| WatchMessage {
            created: true,
            ..response(id, revision, Vec::new())
        };
        let start = u64::try_from(start).unwrap_or(0);
        // The confirmation carried the revision `now`.
        let (from, progress_from) = match start {
            0 => (now + 1, now),
            start => (Revision::new(start), Revision::new(start)),
        };
        // A visible revision may not have passed the feed yet, but the feed has sent none above it:
        // `position` is at most `now + 1`, so a watch from now on is always live.
        let watcher = if from >= state.position {
            None
        } else {
            match self.watcher(&span, from, wants) {
                Ok(watcher) => Some(watcher),
                Err(error) => {
                    stream.queue.push(created(now));
                    stream.queue.push(canceled(id, now, error));
                    return Some(Key::ENDED);
                }
            }
        };
        stream.queue.push(created(now));
        let key = state.insert(Watch {
            stream: stream.clone(),
            id,
            generation: 0,
            span,
            progress_from,
            from,
            wants,
            is_live: watcher.is_none(),
            was_told: true,
            last: Place::default(),
        });
        if let Some(watcher) = watcher {
            self.send(Job::new(key, watcher));
        }
        Some(key)
    }

    /// Cancels a watch and confirms it, even if it had already ended by itself.
    pub(super) fn cancel(&self, stream: &StreamState, id: i64, key: Key) {
        let mut state = self.state.lock();
        let revision = self.db.revision();
        state.remove(key);
        stream.queue.push(WatchMessage {
            canceled: true,
            ..response(id, revision, Vec::new())
        });
        // Progress requests of the stream may have waited for this watch.
        state.answer_asking();
    }

    /// Removes a stream and its watches.
    pub(super) fn close(&self, stream: &StreamState, keys: impl Iterator<Item = Key>) {
        let mut state = self.state.lock();
        for key in keys {
            state.remove(key);
        }
        let waiting = state.take_waiting(stream);
        state.asking.retain(|(asking, _)| asking.id != stream.id);
        drop(state);
        drop(waiting);
    }

    /// Sends a stream its progress, as soon as every event up to now is in its queue.
    pub(super) fn ask_progress(&self, stream: &Arc<StreamState>) {
        let mut state = self.state.lock();
        let now = self.db.revision();
        if !state.has_feed {
            stream.queue.push(response(-1, now, Vec::new()));
            return;
        }
        state.ask(stream, now);
        state.answer_asking();
    }

    /// Continues the watches of a stream whose queue has room again. They wait for their turn, where only few
    /// may keep what they have read: a crowd whose connections each just took one message arrives here
    /// together.
    pub(super) fn resume(&self, stream: &StreamState) {
        let mut state = self.state.lock();
        for job in state.take_waiting(stream) {
            if job.holds_history() {
                self.requeue(&mut state, job);
            } else {
                self.send(job);
            }
        }
    }

    pub(super) fn send(&self, job: Job) {
        // An error means that the thread has ended: the server is stopping.
        let _ = self.tasks.send(Task::Job(Box::new(job)));
    }

    fn watcher(&self, span: &Span, from: Revision, wants: Wants) -> bowline::Result<Watcher> {
        let builder = self.db.watch(span.range()).from(from);
        if wants.previous {
            builder.with_previous().start()
        } else {
            builder.start()
        }
    }

    fn ensure_feed(&self, state: &mut State) -> bowline::Result<()> {
        if !state.has_feed {
            let feed = self.db.watch(Range::all()).start()?;
            state.position = feed.next_revision();
            state.new_feed = Some(feed);
            state.has_feed = true;
            self.work_ready.notify_all();
        }
        Ok(())
    }

    /// The feed thread's loop.
    fn feed(&self) {
        let mut next_round = Instant::now() + self.options.progress_interval;
        let mut batch = Vec::new();
        let mut scratch = Scratch::default();
        while let Some(mut feed) = self.await_feed() {
            while !self.is_stopped() {
                let until_round = next_round.saturating_duration_since(Instant::now());
                let nap = NAP.min(until_round);
                // A closed database shows when the watcher is polled.
                let _ = self.db.wait_for_revision(feed.next_revision(), nap);
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
                    self.deliver(&mut state, &changes, &mut scratch, &mut to_wake);
                }
                state.move_to(feed.next_revision());
                if Instant::now() >= next_round {
                    next_round = Instant::now() + self.options.progress_interval;
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
                if is_idle || is_lost {
                    break;
                }
            }
        }
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

    /// Puts a revision's events of a watch into its queue: all of them or none.
    pub(super) fn offer(
        &self,
        watch: &mut Watch,
        revision: Revision,
        events: Vec<Bytes>,
        sharing: Sharing<'_>,
    ) -> Offer {
        let queue = &watch.stream.queue;
        let fragment_bytes = self.options.fragment_bytes;
        let is_whole = !watch.wants.fragments
            || events.iter().map(Bytes::len).sum::<usize>() <= fragment_bytes;
        if is_whole {
            let mut message = response(watch.id, revision, events);
            let offer = queue.offer(&mut message, sharing, &mut watch.last);
            watch.was_told |= offer != Offer::Full;
            return offer;
        }
        let mut parts = fragments(watch.id, revision, events, fragment_bytes);
        let Some(first) = parts.first_mut() else {
            return Offer::Taken;
        };
        // The rest follows without a check for room: a revision is sent as a whole.
        let offer = queue.offer(first, Sharing::Own, &mut watch.last);
        if offer != Offer::Full {
            watch.was_told = true;
            parts.drain(1..).for_each(|part| queue.push(part));
        }
        offer
    }

    /// Gives a live watch a watcher of its own, from its position on.
    fn fall_behind(&self, state: &mut State, place: u32) {
        let Some(watch) = &mut state.watches[place as usize] else {
            return;
        };
        watch.is_live = false;
        let key = Key {
            place,
            generation: watch.generation,
        };
        let watcher = self.watcher(&watch.span, watch.from, watch.wants);
        let stream = watch.stream.clone();
        state.index.remove(&watch.span, place);
        state.behind += 1;
        stream.behind.fetch_add(1, Ordering::Relaxed);
        match watcher {
            Ok(watcher) => self.send(Job::new(key, watcher)),
            Err(error) => self.fail(state, key, error),
        }
    }

    /// Stores a watch that is behind until its stream has room. A crowd that does not read would keep a piece
    /// of history each, so the watches that wait longest drop theirs.
    pub(super) fn wait_for_room(&self, state: &mut State, stream: &StreamState, job: Job) {
        if job.holds_history() {
            state.holding.push_back((stream.id, job.key()));
        }
        state.waiting.entry(stream.id).or_default().push(job);
        while state.holding.len() > HOLDING_MAX {
            if let Some((stream, key)) = state.holding.pop_front() {
                self.unburden(state, stream, key);
            }
        }
    }

    /// Drops the history that a waiting watch has read: it restarts at the first revision that was not sent.
    fn unburden(&self, state: &mut State, stream: u64, key: Key) {
        let Some(jobs) = state.waiting.get_mut(&stream) else {
            return;
        };
        let Some(at) = jobs.iter().position(|job| job.key() == key) else {
            return;
        };
        let job = jobs.swap_remove(at);
        if let Some(job) = self.without_history(state, &job) {
            state.waiting.entry(stream).or_default().push(job);
        }
    }

    /// The watch, restarted at the first revision that was not sent; `None` when it has ended.
    fn without_history(&self, state: &mut State, job: &Job) -> Option<Job> {
        let key = job.key();
        let watch = state.get(key)?;
        let (span, wants) = (watch.span.clone(), watch.wants);
        // The new watcher pins the history before the old one releases it.
        match self.watcher(&span, job.next_revision(), wants) {
            Ok(watcher) => Some(Job::new(key, watcher)),
            Err(error) => {
                // It was trimmed since it was read: the client receives that error.
                self.fail(state, key, error);
                None
            }
        }
    }

    /// Whether another watch may keep what it has read until its next turn.
    pub(super) fn may_hold_in_turn(state: &State) -> bool {
        state.holding_in_turn < HOLDING_MAX
    }

    /// Queues a watch for its next turn; with what it has read if only few others keep theirs.
    pub(super) fn requeue(&self, state: &mut State, mut job: Job) {
        if Shard::may_hold_in_turn(state) {
            state.holding_in_turn += 1;
            job.holds_in_turn = true;
            self.send(job);
        } else if let Some(job) = self.without_history(state, &job) {
            self.send(job);
        }
    }

    /// Ends a watch that cannot continue.
    pub(super) fn fail(&self, state: &mut State, key: Key, error: bowline::Error) {
        if let Some(watch) = state.remove(key) {
            let message = canceled(watch.id, self.db.revision(), error);
            watch.stream.queue.push(message);
            state.answer_asking();
        }
    }
}

/// Splits events into messages of up to `bytes_max`, with one event at least; all but the last are marked as
/// fragments.
fn fragments(
    id: i64,
    revision: Revision,
    events: Vec<Bytes>,
    bytes_max: usize,
) -> Vec<WatchMessage> {
    let mut parts = Vec::new();
    let mut part = Vec::new();
    let mut bytes = 0;
    for event in events {
        let size = event.len();
        if bytes + size > bytes_max && !part.is_empty() {
            parts.push(WatchMessage {
                fragment: true,
                ..response(id, revision, std::mem::take(&mut part))
            });
            bytes = 0;
        }
        bytes += size;
        part.push(event);
    }
    parts.push(response(id, revision, part));
    parts
}

/// Sends that a watch could not be created.
fn refuse(stream: &StreamState, id: i64, revision: Revision, fault: &Fault) {
    stream.queue.push(WatchMessage {
        created: true,
        canceled: true,
        cancel_reason: fault.parts().1.into_owned(),
        ..response(id, revision, Vec::new())
    });
}

/// The message that an error ended a watch. As in etcd, a compaction error has no revision in its header.
fn canceled(id: i64, revision: Revision, error: bowline::Error) -> WatchMessage {
    let (revision, compact_revision, cancel_reason) = match error {
        bowline::Error::Compacted { oldest, .. } => {
            (Revision::ZERO, oldest.get() as i64, String::new())
        }
        error => (revision, 0, Fault::from(error).parts().1.into_owned()),
    };
    WatchMessage {
        canceled: true,
        compact_revision,
        cancel_reason,
        ..response(id, revision, Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_hold_every_event_once_and_in_order() {
        let sizes = [10, 900, 5000, 10, 10, 500, 500];
        let events = sizes.iter().enumerate();
        let events = events.map(|(number, len)| Bytes::from(vec![number as u8; *len]));
        let parts = fragments(7, Revision::new(9), events.collect(), 1000);
        let last = parts.len() - 1;
        let mut seen = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            assert_eq!(part.fragment, number != last);
            assert!(!part.events.is_empty());
            let bytes: usize = part.events.iter().map(Bytes::len).sum();
            assert!(bytes <= 1000 || part.events.len() == 1);
            seen.extend(part.events.iter().map(|event| event[0]));
        }
        assert_eq!(seen, (0..sizes.len() as u8).collect::<Vec<_>>());
    }
}
