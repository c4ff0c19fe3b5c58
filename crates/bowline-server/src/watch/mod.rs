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
//!   is in order, so no event that is older can come after.
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
mod outlet;
mod own;
mod shard;
mod stream;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bowline::Db;
use parking_lot::Mutex;
use tonic::Status;

use crate::status::Fault;
use budget::Budget;
use outlet::Outlet;
use shard::Shard;

pub(crate) use message::WatchMessage;
pub(crate) use own::{Kinds, OwnWatch};
pub(crate) use stream::WatchStream;

/// How many queues of the size that one may have find room at once.
const FULL_QUEUES: usize = 32;

/// What watches are made with.
#[derive(Debug, Clone)]
pub(crate) struct WatchOptions {
    /// How often an idle watch that asked for it is told how far it is.
    pub(crate) progress_interval: Duration,
    /// How many bytes wait for one stream.
    pub(crate) queue_bytes: usize,
    /// Watches that asked for fragments get no message above this, but for a single event.
    pub(crate) fragment_bytes: usize,
}

/// All watches of a node.
#[derive(Debug)]
pub(crate) struct Watches {
    shards: Vec<Arc<Shard>>,
    next_shard: AtomicUsize,
    queue_bytes: usize,
    budget: Arc<Budget>,
    /// Streams that end when there is no leader, and all others.
    outlets: Mutex<Vec<(Weak<Outlet>, bool)>>,
}

impl Watches {
    /// Starts the threads.
    pub(crate) fn start(db: &Db, options: &WatchOptions) -> std::io::Result<Arc<Watches>> {
        let budget = Budget::new(options.queue_bytes.saturating_mul(FULL_QUEUES));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = (0..(cores / 2).clamp(1, 4))
            .map(|_| Shard::start(db.clone(), options.clone(), budget.clone()))
            .collect::<Result<_, _>>()?;
        Ok(Arc::new(Watches {
            shards,
            next_shard: AtomicUsize::new(0),
            queue_bytes: options.queue_bytes,
            budget,
            outlets: Mutex::new(Vec::new()),
        }))
    }

    /// A place for the watches of a new stream.
    fn open(&self, needs_leader: bool) -> (Arc<Shard>, Arc<Outlet>) {
        let next = self.next_shard.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        let outlet = Arc::new(Outlet::new(self.queue_bytes, self.budget.clone()));
        let mut outlets = self.outlets.lock();
        // Now and then the ones that have gone are forgotten.
        if outlets.len() == outlets.capacity() {
            outlets.retain(|(outlet, _)| outlet.strong_count() > 0);
        }
        outlets.push((Arc::downgrade(&outlet), needs_leader));
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
        self.end_streams(true, &Fault::NoLeader);
    }

    fn end_streams(&self, only_needing_leader: bool, fault: &Fault) {
        let outlets = self.outlets.lock();
        for (outlet, needs_leader) in outlets.iter() {
            if let Some(outlet) = outlet.upgrade()
                && (*needs_leader || !only_needing_leader)
            {
                outlet.end(Status::from(fault.clone()));
            }
        }
    }

    /// Ends every stream. No new one is to be opened.
    pub(crate) fn end_all(&self) {
        self.end_streams(false, &Fault::Stopped);
    }

    /// Ends the threads, and waits for them.
    pub(crate) fn stop(&self) {
        for shard in &self.shards {
            shard.stop();
        }
    }
}
