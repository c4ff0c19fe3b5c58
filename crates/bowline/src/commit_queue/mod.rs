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
//! gathering shows this), and two writers would take turns, each with a flush of its own. So whoever is handed the lead
//! waits until as many requests wait as the previous group had members and as had come meanwhile, but at most half the time
//! of a group. A leader to whom nobody handed over waits for as many as the previous group had, if it had several.
//!
//! Parking and waking a thread costs tens of microseconds of processor time; a group with a flush takes
//! some hundred, a group without a few. So while groups are short, a waiting committer yields for the time
//! of a few groups before it parks. Under steady load this costs no processor time, because few threads
//! have to be woken (docs/benchmarks.md); an occasional writer spins for up to a millisecond.
//!
//! A request may also be put into the queue by a caller who does not wait ([`Ticket`](crate::Ticket)): then no thread sits on its seat. The
//! lead goes to the first seat that has one. If none has, nobody leads until somebody comes or waits, and takes along what
//! stands before it; where nobody will, the commit thread leads.
//!
//! Invariants:
//!
//! - A seat is in the queue until the leader of its group takes it. Groups are taken from the front: a leader's own request
//!   is decided behind all that came before it.
//! - While a thread sits on a seat in the queue, somebody leads. Only a seat in the queue leads: one that a group has
//!   taken may be done before its thread looks, and the lead would be lost with it.
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
mod outcome;
mod request;
mod seat;
#[cfg(all(test, not(bowline_shuttle)))]
mod tests;
mod update;

use std::sync::Arc;
use std::time::Duration;

use bowline_storage::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use bowline_storage::sync::thread;
use bowline_storage::sync::{Condvar, Instant, Mutex};
use bowline_types::Revision;
use smallvec::SmallVec;

use bowline_core::error::{Error, Result};
use bowline_core::options::Limits;
use bowline_core::state::Core;
use bowline_core::write::writer::Collect;
pub(crate) use decide::what;
use decide::{Outcomes, Scratch, Surroundings, decide_all};
pub use outcome::Committed;
use outcome::internal;
use request::Prepared;
pub(crate) use request::{MEMBERS_MAX_BYTES, Reindexed, Request, TreeRange};
pub(crate) use seat::Seat;
use seat::State;
pub(crate) use update::{Answer, PendingUpdate, UpdateRequest, unanswered};

/// Tickets under way, and their bytes. Who wants another one waits for it.
const LATER_MAX: usize = 1024;
const LATER_MAX_BYTES: u64 = MEMBERS_MAX_BYTES;

#[derive(Debug, Default)]
struct Queue {
    is_led: bool,
    waiting: Vec<Arc<Seat>>,
    /// Of the requests that wait, encoded.
    bytes: u64,
}

/// What the commit thread waits for.
#[derive(Debug, Default)]
struct CommitThread {
    state: Mutex<CommitThreadState>,
    condition: Condvar,
}

#[derive(Debug, Default)]
struct CommitThreadState {
    /// Somebody needs a leader, or may.
    is_wanted: bool,
    is_over: bool,
}

/// The queue and the leader's state.
#[derive(Debug)]
pub(crate) struct CommitQueue {
    queue: Mutex<Queue>,
    /// The length of `Queue::waiting`, readable without the lock.
    waiting: AtomicUsize,
    /// How many requests the next leader waits for: those of the last group, whose callers come again, and those that
    /// waited when its leader handed over.
    cohort: AtomicUsize,
    /// A moving average of the duration of a group, in ns.
    group_ns: AtomicU64,
    /// Whether a key may be attached to a lease. Then no put is blind, as it may have to detach the
    /// key. Set in commit order, never reset.
    has_leases: AtomicBool,
    /// The largest request, encoded: [`Limits::TRANSACTION_SIZE_BYTES`], or less in a test.
    request_bytes_max: AtomicU64,
    scratch: Mutex<Scratch>,
    commit_thread: CommitThread,
}

impl CommitQueue {
    /// A queue; `has_leases` says whether keys may be attached to leases.
    pub(crate) fn new(has_leases: bool) -> CommitQueue {
        CommitQueue {
            has_leases: AtomicBool::new(has_leases),
            queue: Mutex::new(Queue::default()),
            waiting: AtomicUsize::new(0),
            cohort: AtomicUsize::new(1),
            group_ns: AtomicU64::new(100_000),
            request_bytes_max: AtomicU64::new(Limits::TRANSACTION_SIZE_BYTES),
            scratch: Mutex::new(Scratch::default()),
            commit_thread: CommitThread::default(),
        }
    }

    /// Commits a request. Returns when it is decided and, with the default durability, flushed.
    pub(crate) fn commit(&self, core: &Core, request: Request) -> Result<Committed> {
        self.enter(core, self.prepare(core, request)?)
    }

    /// Puts a request into the order of commits, and does not wait for it: unless so many are under way that the
    /// newest has to be waited for.
    pub(crate) fn commit_later(&self, core: &Core, request: Request) -> Result<Arc<Seat>> {
        let request = self.prepare(core, request)?;
        self.check_size(core, &request)?;
        let seat = Seat::of_ticket(request);
        let are_too_many = {
            let mut queue = self.queue.lock();
            self.push(&mut queue, &seat);
            queue.waiting.len() > LATER_MAX || queue.bytes > LATER_MAX_BYTES
        };
        if are_too_many {
            self.wait_for(core, &seat);
        }
        Ok(seat)
    }

    fn prepare(&self, core: &Core, request: Request) -> Result<Prepared> {
        let may_be_blind = !core.hub.is_watched() && !self.has_leases.load(Ordering::Relaxed);
        request.prepare(core, may_be_blind)
    }

    fn check_size(&self, core: &Core, request: &Prepared) -> Result<()> {
        let limit = self.request_bytes_max.load(Ordering::Relaxed);
        match request.bytes_beyond(&core.engine, limit)? {
            Some(size) => Err(Error::TransactionTooLarge { size, limit }),
            None => Ok(()),
        }
    }

    fn push(&self, queue: &mut Queue, seat: &Arc<Seat>) {
        queue.waiting.push(seat.clone());
        queue.bytes += seat.request_bytes.unwrap_or(0);
        self.waiting.store(queue.waiting.len(), Ordering::Release);
    }

    /// Commits a request whose keys have been looked up: in the group of another, or as the leader.
    fn enter(&self, core: &Core, request: Prepared) -> Result<Committed> {
        self.check_size(core, &request)?;
        let seat = {
            let mut queue = self.queue.lock();
            if !queue.is_led && queue.waiting.is_empty() {
                queue.is_led = true;
                drop(queue);
                return self.lead_own(core, request);
            }
            let seat = Seat::of_thread(Some(request));
            self.push(&mut queue, &seat);
            // Before it are only seats on which nobody sits.
            if !queue.is_led {
                queue.is_led = seat.begin_lead();
            }
            seat
        };
        self.sit(core, &seat);
        seat.take_outcome()
    }

    /// Waits until a seat is done, or leads its group.
    pub(crate) fn wait_for(&self, core: &Core, seat: &Arc<Seat>) {
        if seat.is_done() {
            return;
        }
        {
            let mut queue = self.queue.lock();
            seat.register_thread();
            // One that was taken from the queue is done in a moment, and cannot lead.
            if !queue.is_led && queue.waiting.iter().any(|it| Arc::ptr_eq(it, seat)) {
                queue.is_led = seat.begin_lead();
            }
        }
        self.sit(core, seat);
    }

    /// Waits until a seat is done that a thread is registered for; leads when the lead comes to it.
    fn sit(&self, core: &Core, seat: &Arc<Seat>) {
        let _leaves = Leaves { queue: self, seat };
        self.linger(seat);
        loop {
            match seat.state() {
                State::Waiting => thread::park(),
                State::Leads => self.lead_waiting(core, Some(seat)),
                State::Done => return,
            }
        }
    }

    /// Leads a group with the own request at its front: nothing waited before it.
    fn lead_own(&self, core: &Core, own: Prepared) -> Result<Committed> {
        // Hands over the lead also on a panic.
        let mut handover = Handover::of(self);
        let cohort = self.cohort.load(Ordering::Relaxed);
        if cohort > 1 {
            self.gather(cohort - 1);
        }
        let members = Members(self.take_members(MEMBERS_MAX_BYTES));
        handover.members = members.0.len() + 1;
        let outcomes = if members.0.is_empty() {
            self.run_group(core, &[&own])
        } else {
            self.run_members(core, Some(own), &members)
        };
        let mut outcomes = outcomes.into_iter();
        let own = outcomes
            .next()
            .unwrap_or_else(|| Err(internal("a commit group gave no outcome")));
        // Before the members are woken: the first to commit again leads at once and gathers while
        // the others wake, instead of parking again.
        drop(handover);
        members.finish(outcomes);
        own
    }

    /// Leads the group at the front of the queue, whether the own seat is in it or behind it.
    fn lead_waiting(&self, core: &Core, own: Option<&Arc<Seat>>) {
        let mut handover = Handover::of(self);
        if let Some(own) = own {
            // The lead may come to it again, if it is not in this group.
            own.end_lead();
        }
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.gather(self.cohort.load(Ordering::Relaxed));
        }
        // Its first request takes the place of a leader's own: it fits, whatever its size.
        let members = Members(self.take_members(u64::MAX));
        if members.0.is_empty() {
            return;
        }
        handover.members = members.0.len();
        let outcomes = self.run_members(core, None, &members);
        // As in `lead_own`.
        drop(handover);
        members.finish(outcomes.into_iter());
    }

    /// Runs a group of the own request and those of members.
    fn run_members(&self, core: &Core, own: Option<Prepared>, members: &Members) -> Outcomes {
        let mut requests = Vec::with_capacity(members.0.len() + 1);
        requests.extend(own);
        for seat in &members.0 {
            requests.extend(seat.take_request());
        }
        let start = Instant::now();
        let all: SmallVec<[&Prepared; 16]> = requests.iter().collect();
        let outcomes = self.run_group(core, &all);
        self.note_group(start.elapsed());
        outcomes
    }

    /// Runs `work` in the commit order, in place of a group. No group runs at the same time.
    pub(crate) fn lead_alone<R>(&self, core: &Core, work: impl FnOnce() -> R) -> R {
        let seat = {
            let mut queue = self.queue.lock();
            if !queue.is_led && queue.waiting.is_empty() {
                queue.is_led = true;
                None
            } else {
                // A seat without a request cannot become a member.
                let seat = Seat::of_thread(None);
                self.push(&mut queue, &seat);
                if !queue.is_led {
                    queue.is_led = seat.begin_lead();
                }
                Some(seat)
            }
        };
        if let Some(seat) = &seat {
            let _leaves = Leaves { queue: self, seat };
            loop {
                match seat.state() {
                    State::Leads if self.take_if_first(seat) => break,
                    State::Leads => self.lead_waiting(core, Some(seat)),
                    State::Waiting | State::Done => thread::park(),
                }
            }
        }
        let _handover = Handover::of(self);
        work()
    }

    /// Commits a request in place of a group, and calls `then` with its revision before any later one is decided.
    pub(crate) fn commit_alone(
        &self,
        core: &Core,
        request: Request,
        then: impl FnOnce(Revision),
    ) -> Result<Committed> {
        let request = self.prepare(core, request)?;
        self.check_size(core, &request)?;
        self.lead_alone(core, || {
            let outcome = self.run_group(core, &[&request]).pop();
            let outcome =
                outcome.unwrap_or_else(|| Err(internal("a commit group gave no outcome")));
            if let Ok(committed) = &outcome {
                then(committed.revision);
            }
            outcome
        })
    }

    /// Takes a seat from the front of the queue; false when others are before it.
    fn take_if_first(&self, seat: &Arc<Seat>) -> bool {
        let mut queue = self.queue.lock();
        let is_first = queue
            .waiting
            .first()
            .is_some_and(|first| Arc::ptr_eq(first, seat));
        if is_first {
            queue.waiting.remove(0);
            self.waiting.store(queue.waiting.len(), Ordering::Release);
        }
        is_first
    }

    /// Leads all that waits now, behind whoever leads: for the end, when the commit thread does not come any more.
    pub(crate) fn lead_all(&self, core: &Core) {
        self.lead_alone(core, || ());
        // Who came since then; and not until nothing waits, as another one that closes would wait for the same.
        while self.lead_if_nobody_does(core) {}
    }

    // --- the commit thread ---

    /// The commit thread: leads where nobody else will, until the database is closed.
    pub(crate) fn run_commit_thread(&self, core: &Core) {
        loop {
            let is_over = {
                let mut state = self.commit_thread.state.lock();
                while !state.is_wanted && !state.is_over {
                    self.commit_thread.condition.wait(&mut state);
                }
                state.is_wanted = false;
                state.is_over
            };
            self.lead_if_nobody_does(core);
            if is_over {
                return;
            }
        }
    }

    /// Leads a group of what waits, if nobody leads. Returns whether it did. The rest is left to the one whom the
    /// hand-over chooses.
    pub(crate) fn lead_if_nobody_does(&self, core: &Core) -> bool {
        {
            let mut queue = self.queue.lock();
            if queue.is_led || queue.waiting.is_empty() {
                return false;
            }
            queue.is_led = true;
        }
        self.lead_waiting(core, None);
        true
    }

    /// Has the commit thread look whether somebody needs a leader.
    pub(crate) fn want_commit_thread(&self) {
        self.commit_thread.state.lock().is_wanted = true;
        self.commit_thread.condition.notify_all();
    }

    /// Ends the commit thread.
    pub(crate) fn end_commit_thread(&self) {
        self.commit_thread.state.lock().is_over = true;
        self.commit_thread.condition.notify_all();
    }

    /// Yields until so many requests wait, at most for half a group's time.
    fn gather(&self, cohort: usize) {
        const GATHER_MAX: Duration = Duration::from_micros(200);
        let took = Duration::from_nanos(self.group_ns.load(Ordering::Relaxed));
        let wait_max = (took / 2).min(GATHER_MAX);
        let start = Instant::now();
        while self.waiting.load(Ordering::Acquire) < cohort && start.elapsed() < wait_max {
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
        while seat.state() == State::Waiting && start.elapsed() < wait_max {
            thread::yield_now();
        }
    }

    /// The waiting requests that fit into a group: the first if it has at most so many bytes. The limit refuses no request.
    fn take_members(&self, first_max_bytes: u64) -> Vec<Arc<Seat>> {
        // A request that arrives now joins the next group.
        if self.waiting.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut queue = self.queue.lock();
        let mut bytes = 0;
        let mut count = 0;
        for seat in &queue.waiting {
            let Some(size) = seat.request_bytes else {
                // A `lead_alone` ends the group; later requests come after it.
                break;
            };
            let fits = match count {
                0 => size <= first_max_bytes,
                _ => bytes + size <= MEMBERS_MAX_BYTES,
            };
            if !fits {
                break;
            }
            bytes += size;
            count += 1;
        }
        queue.bytes -= bytes;
        let members = queue.waiting.drain(..count).collect();
        self.waiting.store(queue.waiting.len(), Ordering::Release);
        members
    }

    fn note_group(&self, took: Duration) {
        /// The average changes in whole eighths and could not grow from a smaller value.
        const GROUP_NS_MIN: u64 = 1_000;
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
        // It stays while this thread leads.
        let indexes = core.indexes.now();
        for (place, request) in requests.iter().enumerate() {
            match request.size(engine, &indexes, place == 0) {
                Ok((its_operations, its_bytes)) => {
                    operations += its_operations;
                    bytes += its_bytes;
                }
                Err(error) => return requests.iter().map(|_| Err(error.clone())).collect(),
            }
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
            indexes: &indexes,
            kinds: &core.kinds,
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

fn all_failed(count: usize, error: &bowline_storage::Error) -> Outcomes {
    (0..count).map(|_| Err(error.clone().into())).collect()
}

/// The members of a group. If the leader panics, dropping them gives each an error.
struct Members(Vec<Arc<Seat>>);

impl Members {
    fn finish(&self, outcomes: impl Iterator<Item = Result<Committed>>) {
        let mut have_wakers = false;
        for (seat, outcome) in self.0.iter().zip(outcomes) {
            have_wakers |= seat.finish(outcome);
        }
        if have_wakers {
            self.wake();
        }
    }

    /// Wakes the futures once all are done: one that closes the database waits for threads which may be members.
    fn wake(&self) {
        for seat in &self.0 {
            seat.wake();
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        let mut have_wakers = thread::panicking();
        for seat in &self.0 {
            if !seat.is_done() {
                have_wakers |=
                    seat.finish(Err(internal("the leader of the commit group panicked")));
            }
        }
        if have_wakers {
            self.wake();
        }
    }
}

/// Hands over the lead when dropped, also on a panic: to the first seat on which a thread sits.
struct Handover<'a> {
    queue: &'a CommitQueue,
    /// The number of requests in its group, or 0.
    members: usize,
}

impl Handover<'_> {
    fn of(queue: &CommitQueue) -> Handover<'_> {
        Handover { queue, members: 0 }
    }
}

impl Drop for Handover<'_> {
    fn drop(&mut self) {
        let mut queue = self.queue.queue.lock();
        let cohort = self.members + queue.waiting.len();
        self.queue.cohort.store(cohort, Ordering::Relaxed);
        if queue.waiting.iter().any(|seat| seat.give_lead()) {
            return;
        }
        queue.is_led = false;
        let needs_another = queue.waiting.iter().any(|seat| seat.needs_another());
        drop(queue);
        if needs_another {
            self.queue.want_commit_thread();
        }
    }
}

/// A thread that leaves its seat, in the end or on a panic: then nobody is to wait for it, and the lead must not stay
/// with it.
struct Leaves<'a> {
    queue: &'a CommitQueue,
    seat: &'a Arc<Seat>,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        if !thread::panicking() || self.seat.is_done() {
            return;
        }
        let mut queue = self.queue.queue.lock();
        let place = queue
            .waiting
            .iter()
            .position(|it| Arc::ptr_eq(it, self.seat));
        if let Some(place) = place {
            queue.waiting.remove(place);
            queue.bytes -= self.seat.request_bytes.unwrap_or(0);
            self.queue
                .waiting
                .store(queue.waiting.len(), Ordering::Release);
        }
        drop(queue);
        if self.seat.state() == State::Leads {
            drop(Handover::of(self.queue));
        }
    }
}
