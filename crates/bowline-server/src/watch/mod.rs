//! All watches of a node, served by few threads.
//!
//! ```text
//!  database ──ring──▶ feed ──index──▶ queue ──▶ stream (polled by its connection)
//!     │                 ▲               ▲
//!     │            goes live            │
//!     └──history──▶ catch-up ───────────┘
//! ```
//!
//! One thread per shard, the *feed*, reads every revision once from a single watcher over all keys. It finds
//! the affected watches through an index of their keys, and puts the events into the bounded *queue* of their
//! stream. A watch that starts in the past, or whose client reads too slowly, is *behind*: it has a watcher
//! of its own, which the shard's *catch-up* thread reads when the queue has room. When it has reached the
//! feed, it goes live again.
//!
//! The feed's `position` is the revision that it takes next. The position moves, and watches go live or fall
//! behind, under the lock of the shard. So:
//!
//! - A live watch has received every event from its start to below `position`; a watch that is behind has
//!   received those below the position of its watcher. A watch goes live only if the second is not less than
//!   the first: nothing is lost, nothing comes twice.
//! - A stream without a watch that is behind may receive `position - 1` as its progress: its queue is in
//!   order, so no older event can follow. The exception is a stream with a watch that is *ahead*: it starts
//!   at a revision that the member has not reached, as when a client resumes on a member that lags. For that
//!   watch and its stream, such a progress would be a step back.
//! - No thread waits for a client: a full queue refuses, and the watch falls behind.
//! - Memory over all clients is bounded: events by the [`budget`](budget::Budget), and what watches that are
//!   behind have read by the number of them that may keep it while they wait.
//! - The feed encodes an event once; the messages of all its watches share the bytes, and a queue counts them
//!   once. Equal watches of a stream share the message, too.
//! - Without watches there is no feed, and commits do nothing for it.
//!
//! Writers never take the lock of a shard.

mod budget;
mod catch_up;
mod event;
mod feed;
mod index;
mod message;
mod options;
mod own;
mod rights;
mod session;
mod shard;
mod state;
mod stream;
mod stream_queue;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bowline::DbReader;
use bowline_cluster::{LocalClient, blocking};
use parking_lot::Mutex;
use tonic::Status;

use crate::memory::Memory;
use crate::status::Fault;
use budget::Budget;
use rights::Granted;
use shard::Shard;
use stream_queue::StreamQueue;

pub(crate) use message::{EncodedDelivery, WatchMessage};
pub(crate) use options::WatchOptions;
pub(crate) use own::{Kinds, OwnWatch};
pub(crate) use rights::WatchRights;
pub(crate) use session::WatchSession;
pub(crate) use stream::WatchStream;

/// The bound over all queues is that of so many full ones.
const FULL_QUEUES: usize = 32;

/// All watches of a node.
#[derive(Debug)]
pub(crate) struct Watches {
    shards: Vec<Arc<Shard>>,
    next_shard: AtomicUsize,
    queue_bytes: usize,
    budget: Arc<Budget>,
    streams: Mutex<OpenStreams>,
}

/// An open stream.
#[derive(Debug)]
struct OpenStream {
    queue: Weak<StreamQueue>,
    needs_leader: bool,
    /// What its client was allowed to watch; `None` for one of the server itself.
    granted: Option<Arc<Granted>>,
}

/// The open streams.
#[derive(Debug, Default)]
struct OpenStreams {
    open: Vec<OpenStream>,
    /// Whether all were ended; a stream that is opened now ends at once.
    is_over: bool,
}

impl Watches {
    /// Starts the threads.
    pub(crate) fn start(
        db: &DbReader,
        options: &WatchOptions,
        memory: &Arc<Memory>,
    ) -> std::io::Result<Arc<Watches>> {
        let bytes_max = options.queue_bytes.saturating_mul(FULL_QUEUES);
        let budget = Budget::new(bytes_max, memory.clone());
        let cores = match blocking::is_alone() {
            // A simulation is the same on every machine.
            true => 1,
            false => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let shards = (0..(cores / 2).clamp(1, 4))
            .map(|_| Shard::start(db.clone(), options.clone(), budget.clone()))
            .collect::<Result<_, _>>()?;
        Ok(Arc::new(Watches {
            shards,
            next_shard: AtomicUsize::new(0),
            queue_bytes: options.queue_bytes,
            budget,
            streams: Mutex::default(),
        }))
    }

    /// Creates the queue of a new stream.
    fn open(
        &self,
        needs_leader: bool,
        granted: Option<Arc<Granted>>,
    ) -> (Arc<Shard>, Arc<StreamQueue>) {
        let next = self.next_shard.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        let queue = Arc::new(StreamQueue::new(self.queue_bytes, self.budget.clone()));
        let mut streams = self.streams.lock();
        if streams.is_over {
            queue.end(Status::from(Fault::Stopped));
        }
        let open = &mut streams.open;
        // Before it grows, entries of closed streams are removed.
        if open.len() == open.capacity() {
            open.retain(|stream| stream.queue.strong_count() > 0);
        }
        open.push(OpenStream {
            queue: Arc::downgrade(&queue),
            needs_leader,
            granted,
        });
        (self.shards[next].clone(), queue)
    }

    /// The number of watches, and of those that are behind.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.shards.iter().fold((0, 0), |(all, behind), shard| {
            let (more, more_behind) = shard.counts();
            (all + more, behind + more_behind)
        })
    }

    /// Ends the streams that need a leader.
    pub(crate) fn end_those_that_need_a_leader(&self) {
        Watches::end_streams(&self.streams.lock(), true, &Fault::NoLeader);
    }

    /// Ends the streams with watches that their callers may not have any more.
    pub(crate) fn check_rights(&self, client: &LocalClient) {
        for stream in &self.streams.lock().open {
            if let Some(granted) = &stream.granted
                && let Some(queue) = stream.queue.upgrade()
                && !granted.is_allowed(client)
            {
                queue.end(Status::from(Fault::PermissionDenied));
            }
        }
    }

    fn end_streams(streams: &OpenStreams, only_needing_leader: bool, fault: &Fault) {
        for stream in &streams.open {
            if let Some(queue) = stream.queue.upgrade()
                && (stream.needs_leader || !only_needing_leader)
            {
                queue.end(Status::from(fault.clone()));
            }
        }
    }

    /// Ends every stream, and each that is opened later: a connection may have accepted the call just before
    /// its shutdown began, and would wait for the stream's end.
    pub(crate) fn end_all(&self) {
        let mut streams = self.streams.lock();
        streams.is_over = true;
        Watches::end_streams(&streams, false, &Fault::Stopped);
    }

    /// Ends the threads and waits for them.
    pub(crate) fn stop(&self) {
        for shard in &self.shards {
            shard.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use super::index::Span;
    use super::message::Delivery;
    use super::state::Wants;
    use super::stream_queue::Taken;
    use super::*;

    /// A stream that was opened while the server stopped lived until the server's drain timeout.
    #[test]
    fn a_stream_that_is_opened_after_the_end_of_all_ends() {
        let db = bowline::Db::in_memory().unwrap();
        let options = WatchOptions {
            progress_interval: Duration::from_secs(600),
            queue_bytes: 1 << 20,
            fragment_bytes: 1 << 20,
        };
        let watches = Watches::start(&db, &options, &Memory::new(1 << 30, 1 << 30)).unwrap();
        let poll = |queue: &StreamQueue| queue.poll(&mut Context::from_waker(Waker::noop()));
        let (_shard, before) = watches.open(false, None);
        watches.end_those_that_need_a_leader();
        assert!(poll(&before).is_pending());
        watches.end_all();
        let (_shard, after) = watches.open(false, None);
        for queue in [before, after] {
            assert!(matches!(poll(&queue), Poll::Ready(Taken::End(_))));
        }
        watches.stop();
    }

    /// etcd's Go client resumed its watches on a member that lagged, and received progress 2124 after 2507: a
    /// live watch was sent the member's progress even if it was to start later than that. A client that
    /// relies on such a progress resumes there, and receives events again.
    #[test]
    fn a_watch_gets_no_progress_before_the_member_is_where_it_starts() {
        let db = bowline::Db::in_memory().unwrap();
        let options = WatchOptions {
            progress_interval: Duration::from_millis(10),
            queue_bytes: 1 << 20,
            fragment_bytes: 1 << 20,
        };
        let watches = Watches::start(&db, &options, &Memory::new(1 << 30, 1 << 30)).unwrap();
        db.put("k", "v").unwrap();
        let now = db.revision();
        let start = now + 3;
        // Of one shard, so that all are in the same rounds of progress.
        let (shard, _) = watches.open(false, None);
        let open = |wants: Wants, starts: &[u64]| {
            let queue = Arc::new(StreamQueue::new(1 << 20, watches.budget.clone()));
            let stream = shard.open(queue.clone());
            for (id, start) in (0..).zip(starts) {
                let span = Span::new(b"other", b"").unwrap();
                shard
                    .create(&stream, id, span, *start as i64, wants)
                    .unwrap();
            }
            (stream, queue)
        };
        let progress = Wants {
            progress: true,
            ..Wants::default()
        };
        let next = |queue: &StreamQueue| {
            let mut context = Context::from_waker(Waker::noop());
            match queue.poll(&mut context) {
                Poll::Ready(Taken::Message(Delivery { message, .. }, _)) => {
                    let revision = message.header.unwrap().revision as u64;
                    Some((message.watch_id, message.created, revision))
                }
                Poll::Ready(Taken::End(status)) => panic!("{status:?}"),
                Poll::Pending => None,
            }
        };
        let wait = |queue: &StreamQueue| {
            let deadline = std::time::Instant::now() + Duration::from_secs(20);
            loop {
                if let Some(found) = next(queue) {
                    return found;
                }
                assert!(std::time::Instant::now() < deadline, "nothing came");
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        // Requested progress: one watch of the stream has reached its start, the other has not.
        let (asking, asked) = open(Wants::default(), &[0, start.get()]);
        let (_stream, periodic) = open(progress, &[start.get()]);
        let (_stream, beside) = open(progress, &[0]);
        for (queue, count) in [(&asked, 2), (&periodic, 1), (&beside, 1)] {
            for _ in 0..count {
                assert!(wait(queue).1, "it is created");
            }
        }
        shard.ask_progress(&asking);
        for revision in now.get()..start.get() {
            // All messages of a round of progress are put under one lock.
            for _ in 0..3 {
                while wait(&beside).2 < revision {}
            }
            assert_eq!(next(&periodic), None, "at revision {revision} of {start}");
            assert_eq!(next(&asked), None, "at revision {revision} of {start}");
            db.put("k", "v").unwrap();
        }
        assert_eq!(wait(&periodic), (0, false, start.get()));
        assert_eq!(
            wait(&asked),
            (-1, false, start.get()),
            "the answer was only put off"
        );
        watches.stop();
    }

    /// A watch that ends before the member reaches its start no longer delays the progress of its stream.
    #[test]
    fn a_watch_that_waited_for_its_start_and_was_cancelled_holds_up_nothing() {
        let db = bowline::Db::in_memory().unwrap();
        let options = WatchOptions {
            progress_interval: Duration::from_secs(600),
            queue_bytes: 1 << 20,
            fragment_bytes: 1 << 20,
        };
        let watches = Watches::start(&db, &options, &Memory::new(1 << 30, 1 << 30)).unwrap();
        let (shard, queue) = watches.open(false, None);
        let stream = shard.open(queue.clone());
        let span = || Span::new(b"k", b"").unwrap();
        let live = shard.create(&stream, 0, span(), 0, Wants::default());
        let ahead = shard
            .create(&stream, 1, span(), 100, Wants::default())
            .unwrap();
        let ids = || {
            std::iter::from_fn(
                || match queue.poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(Taken::Message(delivery, _)) => Some(delivery.message.watch_id),
                    _ => None,
                },
            )
            .collect::<Vec<_>>()
        };
        shard.ask_progress(&stream);
        assert_eq!(ids(), [0, 1], "created; there is no answer yet");
        shard.cancel(&stream, 1, ahead);
        assert_eq!(ids(), [1, -1]);
        assert!(live.is_some());
        watches.stop();
    }
}
