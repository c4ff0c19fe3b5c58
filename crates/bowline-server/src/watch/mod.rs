//! All watches of a node, served by few threads.
//!
//! ```text
//!  database ──ring──▶ feed ──index──▶ outlet ──▶ stream (polled by its connection)
//!     │                 ▲               ▲
//!     │            goes live            │
//!     └──history──▶ catch-up ───────────┘
//! ```
//!
//! One thread per shard, the *feed*, takes every revision once from one watcher over all keys, finds
//! the watches it concerns through an index of their keys, and puts the events into the *outlet* of
//! their stream, a bounded queue. A watch that starts in the past, or whose client does not read
//! fast enough, is *behind*: it has a watcher of its own, which the shard's *catch-up* thread reads
//! when there is room in the outlet. When it has reached the feed, it goes live again.
//!
//! The feed's place, `position`, is the revision that it takes next. It moves, and watches go live or
//! fall behind, under the lock of the shard. So:
//!
//! - A live watch has been given every event below `position` (from its start on); a watch that is
//!   behind has been given those below the place of its watcher. Going live asks that the second be
//!   not less than the first: nothing is lost, nothing comes twice.
//! - A stream without a watch that is behind may be told `position - 1` as its progress: its outlet
//!   is in order, so no event that is older can come after. Unless a watch of it is *ahead*: it starts at a
//!   revision that the member has not reached, as one does that a client resumes on a member that lags. To
//!   that watch, and to its stream, such a progress would be a step back.
//! - Nobody waits for a client: a full outlet refuses, and the watch falls behind.
//! - What waits for all clients together is bounded: events by the [`budget`](budget::Budget), and what
//!   watches that are behind have read by how many of them may keep it while they wait.
//! - An event is encoded once by the feed, and its bytes are shared by the messages of all watches that it
//!   concerns; an outlet counts them once.
//! - Without watches there is no feed, and commits do nothing for it.
//!
//! Writers never take the lock of a shard.

mod budget;
mod catch_up;
mod event;
mod index;
mod message;
mod options;
mod outlet;
mod own;
mod shard;
mod state;
mod stream;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bowline::DbReader;
use parking_lot::Mutex;
use tonic::Status;

use crate::memory::Memory;
use crate::status::Fault;
use budget::Budget;
use outlet::Outlet;
use shard::Shard;

pub(crate) use message::WatchMessage;
pub(crate) use options::WatchOptions;
pub(crate) use own::{Kinds, OwnWatch};
pub(crate) use stream::WatchStream;

/// How many queues of the size that one may have find room at once.
const FULL_QUEUES: usize = 32;

/// All watches of a node.
#[derive(Debug)]
pub(crate) struct Watches {
    shards: Vec<Arc<Shard>>,
    next_shard: AtomicUsize,
    queue_bytes: usize,
    budget: Arc<Budget>,
    outlets: Mutex<Outlets>,
}

/// The open streams.
#[derive(Debug, Default)]
struct Outlets {
    /// Each with whether it ends when there is no leader.
    open: Vec<(Weak<Outlet>, bool)>,
    /// Whether all were ended, so that one that is opened now ends at once.
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
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = (0..(cores / 2).clamp(1, 4))
            .map(|_| Shard::start(db.clone(), options.clone(), budget.clone()))
            .collect::<Result<_, _>>()?;
        Ok(Arc::new(Watches {
            shards,
            next_shard: AtomicUsize::new(0),
            queue_bytes: options.queue_bytes,
            budget,
            outlets: Mutex::default(),
        }))
    }

    /// A place for the watches of a new stream.
    fn open(&self, needs_leader: bool) -> (Arc<Shard>, Arc<Outlet>) {
        let next = self.next_shard.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        let outlet = Arc::new(Outlet::new(self.queue_bytes, self.budget.clone()));
        let mut outlets = self.outlets.lock();
        if outlets.is_over {
            outlet.end(Status::from(Fault::Stopped));
        }
        let open = &mut outlets.open;
        // Now and then the ones that have gone are forgotten.
        if open.len() == open.capacity() {
            open.retain(|(outlet, _)| outlet.strong_count() > 0);
        }
        open.push((Arc::downgrade(&outlet), needs_leader));
        (self.shards[next].clone(), outlet)
    }

    /// How many watches there are, and how many of them are behind.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.shards.iter().fold((0, 0), |(all, behind), shard| {
            let (more, more_behind) = shard.counts();
            (all + more, behind + more_behind)
        })
    }

    /// Ends the streams that were opened to end when there is no leader.
    pub(crate) fn end_those_that_need_a_leader(&self) {
        Watches::end_streams(&self.outlets.lock(), true, &Fault::NoLeader);
    }

    fn end_streams(outlets: &Outlets, only_needing_leader: bool, fault: &Fault) {
        for (outlet, needs_leader) in &outlets.open {
            if let Some(outlet) = outlet.upgrade()
                && (*needs_leader || !only_needing_leader)
            {
                outlet.end(Status::from(fault.clone()));
            }
        }
    }

    /// Ends every stream, and from now on each that is opened: a connection may have taken the call just before
    /// its end began, and would wait for the stream's.
    pub(crate) fn end_all(&self) {
        let mut outlets = self.outlets.lock();
        outlets.is_over = true;
        Watches::end_streams(&outlets, false, &Fault::Stopped);
    }

    /// Ends the threads, and waits for them.
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
    use super::outlet::Taken;
    use super::state::Wants;
    use super::*;

    /// A stream that was opened while the server stopped lived on until the server's patience was over.
    #[test]
    fn a_stream_that_is_opened_after_the_end_of_all_ends() {
        let db = bowline::Db::in_memory().unwrap();
        let options = WatchOptions {
            progress_interval: Duration::from_secs(600),
            queue_bytes: 1 << 20,
            fragment_bytes: 1 << 20,
        };
        let watches = Watches::start(&db, &options, &Memory::new(1 << 30, 1 << 30)).unwrap();
        let poll = |outlet: &Outlet| outlet.poll(&mut Context::from_waker(Waker::noop()));
        let (_shard, before) = watches.open(false);
        watches.end_those_that_need_a_leader();
        assert!(poll(&before).is_pending());
        watches.end_all();
        let (_shard, after) = watches.open(false);
        for outlet in [before, after] {
            assert!(matches!(poll(&outlet), Poll::Ready(Taken::End(_))));
        }
        watches.stop();
    }

    /// etcd's Go client resumed its watches on a member that lagged, and got progress 2124 after it had got
    /// 2507: a live watch was told how far the member is also where it was to begin later than that. Who
    /// believes such a progress goes on from there, and gets events again that it has had.
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
        // Of one shard, whose rounds are the same for all.
        let (shard, _) = watches.open(false);
        let open = |wants: Wants, starts: &[u64]| {
            let outlet = Arc::new(Outlet::new(1 << 20, watches.budget.clone()));
            let stream = shard.open(outlet.clone());
            for (id, start) in (0..).zip(starts) {
                let span = Span::new(b"other", b"").unwrap();
                shard
                    .create(&stream, id, span, *start as i64, wants)
                    .unwrap();
            }
            (stream, outlet)
        };
        let progress = Wants {
            progress: true,
            ..Wants::default()
        };
        let next = |outlet: &Outlet| {
            let mut context = Context::from_waker(Waker::noop());
            match outlet.poll(&mut context) {
                Poll::Ready(Taken::Message(message, _)) => {
                    let revision = message.header.unwrap().revision as u64;
                    Some((message.watch_id, message.created, revision))
                }
                Poll::Ready(Taken::End(status)) => panic!("{status:?}"),
                Poll::Pending => None,
            }
        };
        let wait = |outlet: &Outlet| {
            let deadline = std::time::Instant::now() + Duration::from_secs(20);
            loop {
                if let Some(found) = next(outlet) {
                    return found;
                }
                assert!(std::time::Instant::now() < deadline, "nothing came");
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        // Asked for: one watch of the stream is there, the other is not.
        let (asking, asked) = open(Wants::default(), &[0, start]);
        let (_stream, periodic) = open(progress, &[start]);
        let (_stream, beside) = open(progress, &[0]);
        for (outlet, count) in [(&asked, 2), (&periodic, 1), (&beside, 1)] {
            for _ in 0..count {
                assert!(wait(outlet).1, "it is created");
            }
        }
        shard.ask_progress(&asking);
        for revision in now..start {
            // Rounds of progress have gone round, and all messages of a round are put under one lock.
            for _ in 0..3 {
                while wait(&beside).2 < revision {}
            }
            assert_eq!(next(&periodic), None, "at revision {revision} of {start}");
            assert_eq!(next(&asked), None, "at revision {revision} of {start}");
            db.put("k", "v").unwrap();
        }
        assert_eq!(wait(&periodic), (0, false, start));
        assert_eq!(
            wait(&asked),
            (-1, false, start),
            "the answer was only put off"
        );
        watches.stop();
    }

    /// A watch that ends before the member is where it starts holds up the progress of its stream no more.
    #[test]
    fn a_watch_that_waited_for_its_start_and_was_cancelled_holds_up_nothing() {
        let db = bowline::Db::in_memory().unwrap();
        let options = WatchOptions {
            progress_interval: Duration::from_secs(600),
            queue_bytes: 1 << 20,
            fragment_bytes: 1 << 20,
        };
        let watches = Watches::start(&db, &options, &Memory::new(1 << 30, 1 << 30)).unwrap();
        let (shard, outlet) = watches.open(false);
        let stream = shard.open(outlet.clone());
        let span = || Span::new(b"k", b"").unwrap();
        let live = shard.create(&stream, 0, span(), 0, Wants::default());
        let ahead = shard
            .create(&stream, 1, span(), 100, Wants::default())
            .unwrap();
        let ids = || {
            std::iter::from_fn(
                || match outlet.poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(Taken::Message(message, _)) => Some(message.watch_id),
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
