//! The commit queue: one order for all commits, one flush for many.
//!
//! Committers hand their request to the queue. The first to come while nobody leads becomes
//! the *leader* of the round, on its own thread: a lone writer pays no hand-over. The others park.
//! The leader takes everyone who waits, decides request by request in order, writes all of them to
//! the log as one group with one flush, publishes, hands over the lead, and wakes its members:
//!
//! ```text
//! writer A  ──lead─[decide A B C | write | flush | publish]─hand over to D, wake B C──►
//! writer B  ──park──────────────────────────────────────────'
//! writer C  ──park──────────────────────────────────────────'
//! writer D            ──park (came during the flush)─────────'lead─[gather B C ...]──►
//! ```
//!
//! Closed-loop writers that were just woken come back within microseconds. A leader that flushed
//! at once would leave them for the next round, and rounds would settle at half the writers each
//! (seen in every group-commit without it). So a leader whose predecessor's round had several
//! members waits for as many to come, at most a fraction of what a flush takes.
//!
//! To park and be woken takes tens of microseconds of the processor, and a round with a flush some hundred,
//! one without a few. So where rounds are short, who waits yields for the time of some rounds before it
//! parks. Where writers keep coming, a commit takes no more of the processor so, since hardly anybody has to
//! be woken (docs/benchmarks.md); a writer that waits now and then keeps it for up to a millisecond.
//!
//! Invariants:
//!
//! - Requests are decided one at a time, each against everything decided before it, published or
//!   not: the newest versions in the memtable include those of the round in progress.
//! - A request that is refused leaves no trace.
//! - Every request gets exactly one outcome, after its round is flushed. When the flush fails, the
//!   outcome of each is that failure, also of those that change nothing or were refused: they were
//!   decided against writes that may be lost.
//! - Who leads alone ([`CommitQueue::lead_alone`]) has a turn of its own: those who came before it
//!   are in rounds before, those who came after it in rounds after.
//! - Watchers hear of a round after it is published and before the next one begins.

mod decide;
mod request;
#[cfg(all(test, not(bowline_shuttle)))]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bowline_storage::Revision;
use bowline_storage::engine::Engine;
use bowline_storage::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use bowline_storage::sync::thread::{self, Thread};
use bowline_storage::sync::{Instant, Mutex};

use bowline_core::error::{Error, Result};
use bowline_core::options::Limits;
use bowline_core::watch::Hub;
use decide::{Outcomes, Scratch, Surroundings, decide_all};
use request::Prepared;
pub(crate) use request::{Request, TreeRange};

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The revision it committed at; for one that changed nothing, the current revision.
    pub revision: Revision,
    /// How many present keys it deleted.
    pub deleted: u64,
    /// Whether it changed anything.
    pub changed: bool,
}

/// How much the members of a round may write, besides the leader, in encoded bytes.
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

/// The queue and what the leader needs.
#[derive(Debug)]
pub(crate) struct CommitQueue {
    queue: Mutex<Queue>,
    /// The number of `waiting`, to be read without the lock.
    waiting: AtomicUsize,
    /// The size of the last round.
    last_round: AtomicUsize,
    /// A moving average of what a round takes, in ns.
    round_ns: AtomicU64,
    /// Whether a key may be attached to a lease. Then no put is blind: it may have to detach the key.
    /// Set in the order of commits, and never taken back.
    has_leases: AtomicBool,
    scratch: Mutex<Scratch>,
}

impl CommitQueue {
    /// A queue for a database in which keys may be attached to leases, or none is.
    pub(crate) fn new(has_leases: bool) -> CommitQueue {
        CommitQueue {
            has_leases: AtomicBool::new(has_leases),
            queue: Mutex::new(Queue::default()),
            waiting: AtomicUsize::new(0),
            last_round: AtomicUsize::new(1),
            round_ns: AtomicU64::new(100_000),
            scratch: Mutex::new(Scratch::default()),
        }
    }

    /// Commits a request: returns when it is decided and, in the default durability, flushed.
    pub(crate) fn commit(&self, engine: &Engine, hub: &Hub, request: Request) -> Result<Committed> {
        let may_be_blind = !hub.is_watched() && !self.has_leases.load(Ordering::Relaxed);
        let request = request.prepare(engine, may_be_blind)?;
        let (size, limit) = (request.encoded_bytes, Limits::TRANSACTION_SIZE_BYTES);
        if size > limit {
            return Err(Error::TransactionTooLarge { size, limit });
        }
        let seat = {
            let mut queue = self.queue.lock();
            if !queue.is_led {
                queue.is_led = true;
                drop(queue);
                return self.lead(engine, hub, request);
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
                        Some(request) => self.lead(engine, hub, request),
                        None => Err(internal("a leader has no request")),
                    };
                }
                _ => {
                    let outcome = seat.outcome.lock().take();
                    return outcome.unwrap_or_else(|| Err(internal("a round gave no outcome")));
                }
            }
        }
    }

    fn lead(&self, engine: &Engine, hub: &Hub, own: Prepared) -> Result<Committed> {
        // Whatever happens, somebody must lead on.
        let handover = Handover { queue: self };
        let cohort = self.last_round.load(Ordering::Relaxed);
        if cohort > 1 {
            self.gather(cohort);
        }
        let members = Members(self.take_members());
        let outcomes = if members.0.is_empty() {
            self.last_round.store(1, Ordering::Relaxed);
            self.run_round(engine, hub, &[&own])
        } else {
            let mut requests = Vec::with_capacity(members.0.len() + 1);
            requests.push(own);
            for seat in &members.0 {
                requests.extend(seat.request.lock().take());
            }
            let start = Instant::now();
            let all: Vec<&Prepared> = requests.iter().collect();
            let outcomes = self.run_round(engine, hub, &all);
            self.note_round(requests.len(), start.elapsed());
            outcomes
        };
        let mut outcomes = outcomes.into_iter();
        let own = outcomes
            .next()
            .unwrap_or_else(|| Err(internal("a round gave no outcome")));
        // Before the members wake: the first to come back then leads at once, and gathers while
        // the others are still being woken, instead of parking to be woken once more.
        drop(handover);
        for (seat, outcome) in members.0.iter().zip(outcomes) {
            seat.finish(outcome);
        }
        own
    }

    /// Does `work` in the place of a round, in the order of all commits, with no other round beside
    /// it.
    pub(crate) fn lead_alone<R>(&self, work: impl FnOnce() -> R) -> R {
        let seat = {
            let mut queue = self.queue.lock();
            if queue.is_led {
                // Without a request: nobody takes it for a member.
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

    /// Waits, yielding, until as many wait as the last round had, or a moment has passed.
    fn gather(&self, cohort: usize) {
        const GATHER_MAX: Duration = Duration::from_micros(200);
        let round = Duration::from_nanos(self.round_ns.load(Ordering::Relaxed));
        let patience = (round / 2).min(GATHER_MAX);
        let start = Instant::now();
        while self.waiting.load(Ordering::Acquire) + 1 < cohort && start.elapsed() < patience {
            thread::yield_now();
        }
    }

    /// Waits, yielding, for as long as some rounds take, where they are short.
    fn linger(&self, seat: &Seat) {
        /// A disk that takes longer to flush is waited for asleep.
        const ROUND_MAX: Duration = Duration::from_micros(400);
        const ROUNDS: u32 = 4;
        /// Where interleavings are tried, those who park are of interest, too.
        const PATIENCE_MAX: Duration = match cfg!(bowline_shuttle) {
            true => Duration::from_micros(20),
            false => Duration::from_millis(1),
        };
        let round = Duration::from_nanos(self.round_ns.load(Ordering::Relaxed));
        if round > ROUND_MAX {
            return;
        }
        let patience = (round * ROUNDS).min(PATIENCE_MAX);
        let start = Instant::now();
        while seat.state.load(Ordering::Acquire) == WAITING && start.elapsed() < patience {
            thread::yield_now();
        }
    }

    /// Those who wait, as many as fit: nobody is refused for what others write.
    fn take_members(&self) -> Vec<Arc<Seat>> {
        // Who comes at this moment is of the next round.
        if self.waiting.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut queue = self.queue.lock();
        let mut bytes = 0;
        let mut count = 0;
        for seat in &queue.waiting {
            let size = seat.request.lock().as_ref().map(|it| it.encoded_bytes);
            let Some(size) = size else {
                // Who leads alone is no member, and those behind come after it.
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

    fn note_round(&self, members: usize, took: Duration) {
        /// From less than this the average would not grow again: it is kept in whole eighths.
        const ROUND_NS_MIN: u64 = 1_000;
        self.last_round.store(members, Ordering::Relaxed);
        let average = self.round_ns.load(Ordering::Relaxed);
        // One flush that is slow for once says little of the next: it counts as twice the average.
        let most = average.max(ROUND_NS_MIN).saturating_mul(2);
        let took = u64::try_from(took.as_nanos()).map_or(most, |took| took.min(most));
        self.round_ns
            .store(average - average / 8 + took / 8, Ordering::Relaxed);
    }

    fn run_round(&self, engine: &Engine, hub: &Hub, requests: &[&Prepared]) -> Outcomes {
        let mut bytes = 0;
        let mut operations = 0;
        for request in requests {
            bytes += request.encoded_bytes;
            operations += request.operations();
        }
        let count = requests.len() as u64;
        let frees_all = requests.iter().all(|request| request.frees_space());
        let round = if frees_all {
            engine.begin_freeing_group(count, operations, bytes)
        } else {
            engine.begin_group(count, operations, bytes)
        };
        let round = match round {
            Ok(round) => round,
            Err(error) => {
                let is_full = matches!(error, bowline_storage::Error::NoSpace { .. });
                let freeing = requests.iter().filter(|request| request.frees_space());
                let freeing: Vec<&Prepared> = freeing.copied().collect();
                if frees_all || freeing.is_empty() || !is_full {
                    return all_failed(requests.len(), &error);
                }
                // On a full disk deletions go on, without those they have come with.
                let mut freed = self.run_round(engine, hub, &freeing).into_iter();
                let outcome = |request: &&Prepared| match request.frees_space() {
                    true => freed.next().unwrap_or_else(|| Err(internal("no outcome"))),
                    false => Err(error.clone().into()),
                };
                return requests.iter().map(outcome).collect();
            }
        };
        let scratch = &mut *self.scratch.lock();
        scratch.published.clear();
        let around = Surroundings {
            is_watched: hub.is_watched(),
            has_leases: &self.has_leases,
        };
        let (outcomes, finished) = decide_all(engine, around, round, requests, scratch);
        if let Err(error) = finished {
            // Each was decided against those before it, whose writes may be gone after the next
            // opening: nobody is told that a key is absent, a comparison failed or a read conflicts.
            return all_failed(requests.len(), &error);
        }
        for (revision, changes) in scratch.published.drain(..) {
            hub.publish(revision, changes);
        }
        hub.wake();
        scratch.shrink();
        if let Err(error) = engine.run_background_if_manual() {
            // The commits are durable; the next round meets the failure itself.
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

/// The members of a round. Should the leader panic, they are told, and not left waiting.
struct Members(Vec<Arc<Seat>>);

impl Drop for Members {
    fn drop(&mut self) {
        for seat in &self.0 {
            if seat.state.load(Ordering::Acquire) != DONE {
                seat.finish(Err(internal("the leader of the round panicked")));
            }
        }
    }
}

/// Passes the lead on when a leader is done, or panics.
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
