//! A shard of the watches: its threads, and the requests of its streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use bowline::{DbReader, Range, Revision, Watcher};
use bowline_cluster::blocking;
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use prost::Message;
use tonic::Status;

use super::budget::Budget;
use super::catch_up::{self, Job, Task};
use super::index::Span;
use super::message::{Delivery, WatchMessage, response};
use super::options::WatchOptions;
use super::state::{Key, State, StreamState, Wants, Watch};
use super::stream_queue::{Offer, Place, Sharing, StreamQueue};
use crate::status::Fault;

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
    pub(super) work_ready: Condvar,
    pub(super) tasks: mpsc::Sender<Task>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    is_stopped: AtomicBool,
    next_stream: AtomicU64,
}

/// Streams whose connections are woken after the lock is released.
pub(super) type ToWake = Vec<Arc<StreamState>>;

impl Shard {
    /// Starts its threads; in a simulation, which has only one, its tasks.
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
        if blocking::is_alone() {
            tokio::spawn(shard.clone().feed_alone());
            tokio::spawn(catch_up::run_alone(shard.clone(), receiver));
            return Ok(shard);
        }
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

    pub(super) fn ensure_feed(&self, state: &mut State) -> bowline::Result<()> {
        if !state.has_feed {
            let feed = self.db.watch(Range::all()).start()?;
            state.position = feed.next_revision();
            state.new_feed = Some(feed);
            state.has_feed = true;
            self.work_ready.notify_all();
        }
        Ok(())
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
            || events.iter().map(in_message).sum::<usize>()
                <= room(watch.id, revision, fragment_bytes);
        if is_whole {
            let mut delivery = Delivery {
                message: response(watch.id, revision, events),
                also: Vec::new(),
            };
            let offer = queue.offer(&mut delivery, sharing, &mut watch.last);
            watch.was_told |= offer != Offer::Full;
            return offer;
        }
        let mut parts = fragments(watch.id, revision, events, fragment_bytes);
        let Some(first) = parts.first_mut() else {
            return Offer::Taken;
        };
        let mut first = Delivery {
            message: std::mem::take(first),
            also: Vec::new(),
        };
        // The rest follows without a check for room: a revision is sent as a whole.
        let offer = queue.offer(&mut first, Sharing::Own, &mut watch.last);
        if offer != Offer::Full {
            watch.was_told = true;
            parts.drain(1..).for_each(|part| queue.push(part));
        }
        offer
    }

    /// The same for watches of one stream, none of which wants fragments; there may be only one.
    pub(super) fn offer_to_all(
        &self,
        watches: &mut [Option<Watch>],
        (first, others): (u32, &[u32]),
        revision: Revision,
        events: Vec<Bytes>,
        sharing: Sharing<'_>,
    ) -> Offer {
        let Some(watch) = &mut watches[first as usize] else {
            return Offer::Taken;
        };
        if others.is_empty() {
            return self.offer(watch, revision, events, sharing);
        }
        let (mut last, queue) = (watch.last, watch.stream.queue.clone());
        let mut delivery = Delivery {
            message: response(watch.id, revision, events),
            also: Vec::with_capacity(others.len()),
        };
        for place in others {
            if let Some(watch) = &watches[*place as usize] {
                delivery.also.push(watch.id);
                if watch.last != last {
                    // One of them has received something else since.
                    last = Place::default();
                }
            }
        }
        let offer = queue.offer(&mut delivery, sharing, &mut last);
        if offer != Offer::Full {
            for place in std::iter::once(&first).chain(others) {
                if let Some(watch) = &mut watches[*place as usize] {
                    (watch.last, watch.was_told) = (last, true);
                }
            }
        }
        offer
    }

    /// Gives a live watch a watcher of its own, from its position on.
    pub(super) fn fall_behind(&self, state: &mut State, place: u32) {
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
        state.index.remove(&watch.span, stream.member(place));
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

    /// Ends a watch that cannot continue. Where this member cannot read its files, its stream ends, and the client may go on
    /// at another member: a watch that is canceled is over for etcd's clients.
    pub(super) fn fail(&self, state: &mut State, key: Key, error: bowline::Error) {
        use bowline::Error as E;
        if let Some(watch) = state.remove(key) {
            let queue = &watch.stream.queue;
            match error {
                E::Storage(_) | E::InvalidRecord { .. } => {
                    queue.end(Status::from(Fault::from(error)));
                }
                error => queue.push(canceled(watch.id, self.db.revision(), error)),
            }
            state.answer_asking();
        }
    }
}

/// The bytes that an event takes in a message.
fn in_message(event: &Bytes) -> usize {
    const TAG_BYTES: usize = 1;
    TAG_BYTES + prost::length_delimiter_len(event.len()) + event.len()
}

/// The bytes of events for which there is room in a message. It is smaller than `bytes_max`, as etcd's is.
fn room(id: i64, revision: Revision, bytes_max: usize) -> usize {
    /// The header's ids and its term, which are filled in when it is sent, and their tags.
    const HEADER_BYTES_MAX: usize = 3 * 11;
    let head = WatchMessage {
        fragment: true,
        ..response(id, revision, Vec::new())
    };
    bytes_max.saturating_sub(head.encoded_len() + HEADER_BYTES_MAX + 1)
}

/// Splits events into messages of less than `bytes_max`, or of one event; all but the last are marked as fragments.
fn fragments(
    id: i64,
    revision: Revision,
    events: Vec<Bytes>,
    bytes_max: usize,
) -> Vec<WatchMessage> {
    let room = room(id, revision, bytes_max);
    let mut parts = Vec::new();
    let mut part = Vec::new();
    let mut bytes = 0;
    for event in events {
        let size = in_message(&event);
        if bytes + size > room && !part.is_empty() {
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
            assert!(part.encoded_len() < 1000 || part.events.len() == 1);
            seen.extend(part.events.iter().map(|event| event[0]));
        }
        assert_eq!(seen, (0..sizes.len() as u8).collect::<Vec<_>>());
    }

    /// Only the events were counted, and not what is around them: a fragment was up to some dozens of bytes longer than a
    /// message may be. Found by the comparison with etcd 3.7.3 after 471,000 requests.
    #[test]
    fn a_fragment_is_shorter_than_a_message_may_be() {
        const BYTES_MAX: usize = 1000;
        for size in 1..BYTES_MAX / 2 {
            let events = vec![Bytes::from(vec![7; size]); 2 * BYTES_MAX / size + 2];
            let count = events.len();
            let parts = fragments(i64::MAX, Revision::new(1 << 40), events, BYTES_MAX);
            let mut seen = 0;
            for mut part in parts {
                seen += part.events.len();
                let header = part.header.as_mut().unwrap();
                (header.cluster_id, header.member_id) = (u64::MAX, u64::MAX);
                header.raft_term = u64::MAX;
                let bytes = part.encoded_len();
                assert!(
                    bytes < BYTES_MAX || part.events.len() == 1,
                    "{size}: {bytes}"
                );
            }
            assert_eq!(seen, count);
        }
    }
}
