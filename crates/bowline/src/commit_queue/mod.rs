//! The commit queue: one order of all commits, and group commit with one flush per group.
//!
//! Committers put their requests into the queue. A committer that finds no leader becomes the *leader* of
//! the next commit group on its own thread, so a lone writer needs no thread switch. The
//! others park. The leader takes the waiting requests, decides them in order, writes them to the log as
//! one group with one flush, publishes, hands over the lead, and wakes the group's members:
//!
//! ```text
//! writer A  ──lead─[decide A B C | write | flush | publish]─hand over to D, wake B C──►
//! writer B  ──park──────────────────────────────────────────'
//! writer C  ──park──────────────────────────────────────────'
//! writer D            ──park (came during the flush)─────────'lead─[gather B C ...]──►
//! ```
//!
//! Closed-loop writers commit again within microseconds after they are woken. A leader that flushed at
//! once would miss them, and each group would have half of the writers (every group commit without
//! gathering shows this). So if the previous group had several members, the leader waits until as many
//! requests wait, but at most half the time of a group.
//!
//! Parking and waking a thread costs tens of microseconds of processor time; a group with a flush takes
//! some hundred, a group without a few. So while groups are short, a waiting committer yields for the time
//! of a few groups before it parks. Under steady load this costs no processor time, because few threads
//! have to be woken (docs/benchmarks.md); an occasional writer spins for up to a millisecond.
//!
//! Invariants:
//!
//! - Requests are decided one at a time, each against all decisions before it, published or not: the
//!   newest versions in the memtable include those of the group in progress.
//! - A refused request changes nothing.
//! - Every request gets exactly one outcome, after its group is flushed. When the flush fails, every
//!   member gets that failure, also members that change nothing or were refused: they were decided
//!   against writes that may be lost.
//! - [`CommitQueue::lead_alone`] has its place in the order: earlier requests are in earlier groups, later
//!   ones in later groups.
//! - Watchers receive a group after it is published and before the next group begins.

mod decide;
mod request;
#[cfg(all(test, not(bowline_shuttle)))]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bowline_storage::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use bowline_storage::sync::thread::{self, Thread};
use bowline_storage::sync::{Instant, Mutex};
use bowline_types::Revision;

use bowline_core::error::{Error, Result};
use bowline_core::options::Limits;
use bowline_core::state::Core;
use bowline_core::write::writer::Collect;
use decide::{Outcomes, Scratch, Surroundings, decide_all};
use request::Prepared;
pub(crate) use request::{Request, TreeRange};

/// The result of a commit.
///
/// ```
/// # let db = bowline::Db::in_memory()?;
/// db.put("k", "v")?;
/// let mut tx = db.begin();
/// tx.delete("k")?;
/// let committed = tx.commit()?;
/// assert_eq!(committed.revision, 3);
/// assert_eq!((committed.deleted, committed.changed), (1, true));
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The revision of the commit; the current revision when nothing changed.
    pub revision: Revision,
    /// The number of existing keys that it deleted.
    pub deleted: u64,
    /// Whether it changed anything.
    pub changed: bool,
}

/// The limit on the requests of a group without the leader's, in encoded bytes.
pub(crate) const MEMBERS_MAX_BYTES: u64 = 8 << 20;

const WAITING: u8 = 0;
const LEAD: u8 = 1;
const DONE: u8 = 2;

/// A parked committer.
#[derive(Debug)]
struct Seat {
    state: AtomicU8,
    thread: Thread,
    request: Mutex<Option<Prepared>>,
    outcome: Mutex<Option<Result<Committed>>>,
}

#[derive(Debug, Default)]
struct Queue {
    is_led: bool,
    waiting: Vec<Arc<Seat>>,
}

/// The queue and the leader's state.
#[derive(Debug)]
pub(crate) struct CommitQueue {
    queue: Mutex<Queue>,
    /// The length of `Queue::waiting`, readable without the lock.
    waiting: AtomicUsize,
    /// The number of requests in the last group.
    last_group: AtomicUsize,
    /// A moving average of the duration of a group, in ns.
    group_ns: AtomicU64,
    /// Whether a key may be attached to a lease. Then no put is blind, as it may have to detach the
    /// key. Set in commit order, never reset.
    has_leases: AtomicBool,
    /// The largest request, encoded: [`Limits::TRANSACTION_SIZE_BYTES`], or less in a test.
    request_bytes_max: AtomicU64,
    scratch: Mutex<Scratch>,
}

impl CommitQueue {
    /// A queue; `has_leases` says whether keys may be attached to leases.
    pub(crate) fn new(has_leases: bool) -> CommitQueue {
        CommitQueue {
            has_leases: AtomicBool::new(has_leases),
            queue: Mutex::new(Queue::default()),
            waiting: AtomicUsize::new(0),
            last_group: AtomicUsize::new(1),
            group_ns: AtomicU64::new(100_000),
            request_bytes_max: AtomicU64::new(Limits::TRANSACTION_SIZE_BYTES),
            scratch: Mutex::new(Scratch::default()),
        }
    }

    /// Commits a request. Returns when it is decided and, with the default durability, flushed.
    pub(crate) fn commit(&self, core: &Core, request: Request) -> Result<Committed> {
        let may_be_blind = !core.hub.is_watched() && !self.has_leases.load(Ordering::Relaxed);
        self.enter(core, request.prepare(&core.engine, may_be_blind)?)
    }

    /// Commits a request whose keys have been looked up: in the group of another, or as the leader.
    fn enter(&self, core: &Core, request: Prepared) -> Result<Committed> {
        let size = request.encoded_bytes;
        let limit = self.request_bytes_max.load(Ordering::Relaxed);
        if size > limit {
            return Err(Error::TransactionTooLarge { size, limit });
        }
        let seat = {
            let mut queue = self.queue.lock();
            if !queue.is_led {
                queue.is_led = true;
                drop(queue);
                return self.lead(core, request);
            }
            let seat = Arc::new(Seat {
                state: AtomicU8::new(WAITING),
                thread: thread::current(),
                request: Mutex::new(Some(request)),
                outcome: Mutex::new(None),
            });
            queue.waiting.push(seat.clone());
            self.waiting.store(queue.waiting.len(), Ordering::Release);
            seat
        };
        self.linger(&seat);
        loop {
            match seat.state.load(Ordering::Acquire) {
                WAITING => thread::park(),
                LEAD => {
                    let own = seat.request.lock().take();
                    return match own {
                        Some(request) => self.lead(core, request),
                        None => Err(internal("a leader has no request")),
                    };
                }
                _ => {
                    let outcome = seat.outcome.lock().take();
                    return outcome
                        .unwrap_or_else(|| Err(internal("a commit group gave no outcome")));
                }
            }
        }
    }

    fn lead(&self, core: &Core, own: Prepared) -> Result<Committed> {
        // Hands over the lead also on a panic.
        let handover = Handover { queue: self };
        let cohort = self.last_group.load(Ordering::Relaxed);
        if cohort > 1 {
            self.gather(cohort);
        }
        let members = Members(self.take_members());
        let outcomes = if members.0.is_empty() {
            self.last_group.store(1, Ordering::Relaxed);
            self.run_group(core, &[&own])
        } else {
            let mut requests = Vec::with_capacity(members.0.len() + 1);
            requests.push(own);
            for seat in &members.0 {
                requests.extend(seat.request.lock().take());
            }
            let start = Instant::now();
            let all: Vec<&Prepared> = requests.iter().collect();
            let outcomes = self.run_group(core, &all);
            self.note_group(requests.len(), start.elapsed());
            outcomes
        };
        let mut outcomes = outcomes.into_iter();
        let own = outcomes
            .next()
            .unwrap_or_else(|| Err(internal("a commit group gave no outcome")));
        // Before the members are woken: the first to commit again leads at once and gathers while
        // the others wake, instead of parking again.
        drop(handover);
        for (seat, outcome) in members.0.iter().zip(outcomes) {
            seat.finish(outcome);
        }
        own
    }

    /// Runs `work` in the commit order, in place of a group. No group runs at the same time.
    pub(crate) fn lead_alone<R>(&self, work: impl FnOnce() -> R) -> R {
        let seat = {
            let mut queue = self.queue.lock();
            if queue.is_led {
                // A seat without a request cannot become a member.
                let seat = Arc::new(Seat {
                    state: AtomicU8::new(WAITING),
                    thread: thread::current(),
                    request: Mutex::new(None),
                    outcome: Mutex::new(None),
                });
                queue.waiting.push(seat.clone());
                self.waiting.store(queue.waiting.len(), Ordering::Release);
                Some(seat)
            } else {
                queue.is_led = true;
                None
            }
        };
        if let Some(seat) = seat {
            while seat.state.load(Ordering::Acquire) == WAITING {
                thread::park();
            }
        }
        let _handover = Handover { queue: self };
        work()
    }

    /// Yields until as many requests wait as the last group had, at most for half a group's time.
    fn gather(&self, cohort: usize) {
        const GATHER_MAX: Duration = Duration::from_micros(200);
        let took = Duration::from_nanos(self.group_ns.load(Ordering::Relaxed));
        let wait_max = (took / 2).min(GATHER_MAX);
        let start = Instant::now();
        while self.waiting.load(Ordering::Acquire) + 1 < cohort && start.elapsed() < wait_max {
            thread::yield_now();
        }
    }

    /// Yields for the time of a few groups, if groups are short.
    fn linger(&self, seat: &Seat) {
        /// For slower disks the committer parks at once.
        const GROUP_MAX: Duration = Duration::from_micros(400);
        const GROUPS: u32 = 4;
        /// Short under shuttle, so that its interleavings include parked committers.
        const WAIT_MAX: Duration = match cfg!(bowline_shuttle) {
            true => Duration::from_micros(20),
            false => Duration::from_millis(1),
        };
        let took = Duration::from_nanos(self.group_ns.load(Ordering::Relaxed));
        if took > GROUP_MAX {
            return;
        }
        let wait_max = (took * GROUPS).min(WAIT_MAX);
        let start = Instant::now();
        while seat.state.load(Ordering::Acquire) == WAITING && start.elapsed() < wait_max {
            thread::yield_now();
        }
    }

    /// The waiting requests that fit into a group. The limit refuses no request.
    fn take_members(&self) -> Vec<Arc<Seat>> {
        // A request that arrives now joins the next group.
        if self.waiting.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut queue = self.queue.lock();
        let mut bytes = 0;
        let mut count = 0;
        for seat in &queue.waiting {
            let size = seat.request.lock().as_ref().map(|it| it.encoded_bytes);
            let Some(size) = size else {
                // A `lead_alone` ends the group; later requests come after it.
                break;
            };
            bytes += size;
            if bytes > MEMBERS_MAX_BYTES {
                break;
            }
            count += 1;
        }
        let members = queue.waiting.drain(..count).collect();
        self.waiting.store(queue.waiting.len(), Ordering::Release);
        members
    }

    fn note_group(&self, members: usize, took: Duration) {
        /// The average changes in whole eighths and could not grow from a smaller value.
        const GROUP_NS_MIN: u64 = 1_000;
        self.last_group.store(members, Ordering::Relaxed);
        let average = self.group_ns.load(Ordering::Relaxed);
        // A single slow flush is an outlier: it counts at most twice the average.
        let most = average.max(GROUP_NS_MIN).saturating_mul(2);
        let took = u64::try_from(took.as_nanos()).map_or(most, |took| took.min(most));
        self.group_ns
            .store(average - average / 8 + took / 8, Ordering::Relaxed);
    }

    fn run_group(&self, core: &Core, requests: &[&Prepared]) -> Outcomes {
        let (engine, hub) = (&core.engine, &core.hub);
        let mut bytes = 0;
        let mut operations = 0;
        for request in requests {
            bytes += request.encoded_bytes;
            operations += request.operations();
        }
        let count = requests.len() as u64;
        let frees_all = requests.iter().all(|request| request.frees_space());
        let group = if frees_all {
            engine.begin_freeing_group(count, operations, bytes)
        } else {
            engine.begin_group(count, operations, bytes)
        };
        let group = match group {
            Ok(group) => group,
            Err(error) => {
                let is_full = matches!(error, bowline_storage::Error::NoSpace { .. });
                let freeing = requests.iter().filter(|request| request.frees_space());
                let freeing: Vec<&Prepared> = freeing.copied().collect();
                if frees_all || freeing.is_empty() || !is_full {
                    return all_failed(requests.len(), &error);
                }
                // On a full disk the deletions of the group still commit.
                let mut freed = self.run_group(core, &freeing).into_iter();
                let outcome = |request: &&Prepared| match request.frees_space() {
                    true => freed.next().unwrap_or_else(|| Err(internal("no outcome"))),
                    false => Err(error.clone().into()),
                };
                return requests.iter().map(outcome).collect();
            }
        };
        let scratch = &mut *self.scratch.lock();
        scratch.published.clear();
        scratch.graph.clear();
        let around = Surroundings {
            collect: Collect {
                events: hub.is_watched(),
                graph: core.graph_view.is_collecting(),
            },
            has_leases: &self.has_leases,
        };
        let (outcomes, finished) = decide_all(engine, around, group, requests, scratch);
        if let Err(error) = finished {
            // Each request was decided against earlier writes of the group, which may be lost. So no
            // member gets an outcome that depends on them.
            return all_failed(requests.len(), &error);
        }
        for (revision, changes) in scratch.published.drain(..) {
            hub.publish(revision, changes);
        }
        hub.wake();
        if around.collect.graph {
            core.publish_graph(&mut scratch.graph);
        }
        scratch.shrink();
        if let Err(error) = engine.run_background_if_manual() {
            // The commits are durable; the next group reports the failure.
            tracing::error!(%error, "flush or compaction failed");
        }
        outcomes
    }
}

fn internal(what: &str) -> Error {
    Error::Storage(bowline_storage::Error::Internal(what.to_owned()))
}

fn all_failed(count: usize, error: &bowline_storage::Error) -> Outcomes {
    (0..count).map(|_| Err(error.clone().into())).collect()
}

impl Seat {
    fn finish(&self, outcome: Result<Committed>) {
        *self.outcome.lock() = Some(outcome);
        self.state.store(DONE, Ordering::Release);
        self.thread.unpark();
    }
}

/// The members of a group. If the leader panics, dropping them gives each an error.
struct Members(Vec<Arc<Seat>>);

impl Drop for Members {
    fn drop(&mut self) {
        for seat in &self.0 {
            if seat.state.load(Ordering::Acquire) != DONE {
                seat.finish(Err(internal("the leader of the commit group panicked")));
            }
        }
    }
}

/// Hands over the lead when dropped, also on a panic.
struct Handover<'a> {
    queue: &'a CommitQueue,
}

impl Drop for Handover<'_> {
    fn drop(&mut self) {
        let mut queue = self.queue.queue.lock();
        if queue.waiting.is_empty() {
            queue.is_led = false;
            return;
        }
        let next = queue.waiting.remove(0);
        self.queue
            .waiting
            .store(queue.waiting.len(), Ordering::Release);
        drop(queue);
        next.state.store(LEAD, Ordering::Release);
        next.thread.unpark();
    }
}
