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

#[cfg(all(test, not(bowline_shuttle)))]
mod tests;

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bowline_storage::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use bowline_storage::sync::thread::{self, Thread};
use bowline_storage::sync::{Instant, Mutex};
use bowline_storage::tree::{BatchWriter, Engine, Found, Round};
use bowline_storage::{EntryKind, Revision, TreeId, Value};
use smallvec::SmallVec;

use crate::error::{Error, Result, show_key};
use crate::graph::KindId;
use crate::kv::record::{self, Entry, Meta};
use crate::lease::LeaseId;
use crate::options::Limits;
use crate::trees;
use crate::watch::{Change, ChangeKind, Hub};

/// One write of a request.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) tree: TreeId,
    pub(crate) key: Value,
    pub(crate) action: Action,
}

impl Write {
    pub(crate) fn new(tree: TreeId, key: &[u8], action: Action) -> Write {
        Write {
            tree,
            key: Value::copy_from(key),
            action,
        }
    }
}

/// The writes of a request. A single one, which most requests have, takes no allocation.
pub(crate) type WriteList = SmallVec<[Write; 1]>;

#[derive(Debug)]
pub(crate) enum Action {
    /// For the kv tree: metadata is added at commit. Lease 0 = none.
    PutEntry {
        value: Value,
        lease: LeaseId,
    },
    /// For the other trees: stored as it is.
    PutRaw {
        value: Vec<u8>,
    },
    Delete,
}

/// What must hold at commit, besides the reads.
#[derive(Debug)]
pub(crate) enum Guard {
    /// The kv key's modification revision; 0 = absent.
    Revision { key: Vec<u8>, expected: Revision },
    /// The block exists.
    Block { id: crate::BlockId },
    /// The lease exists (or, for a grant, does not).
    Lease { id: LeaseId, exists: bool },
}

/// A range of a tree: lower bound, upper bound.
pub(crate) type TreeRange = (TreeId, Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A transaction, ready to be decided.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) snapshot: Revision,
    /// Keys that must not have changed since the snapshot.
    pub(crate) keys: Vec<(TreeId, Vec<u8>)>,
    /// Ranges in which nothing may have changed since the snapshot.
    pub(crate) ranges: Vec<TreeRange>,
    /// The number that no kind may have yet: an edge was looked for by a kind without one.
    pub(crate) next_kind: Option<KindId>,
    pub(crate) guards: Vec<Guard>,
    /// At most one per tree and key.
    pub(crate) writes: WriteList,
}

/// A request whose kv keys have been looked up.
#[derive(Debug)]
struct Prepared {
    request: Request,
    /// For each kv write: what its key held at `looked_up_at`, so that the leader need only look
    /// at what is newer.
    previous: SmallVec<[Before; 1]>,
    looked_up_at: Revision,
    encoded_bytes: u64,
}

/// What a key held before a write.
#[derive(Debug, Clone, Copy)]
enum Before {
    Absent,
    Present(Meta),
    /// Nobody has looked: a table would have to be read, for a put that can do without.
    Unknown {
        /// How many records of this kind the key has in memory, the newest of which is its newest.
        blind_below: u8,
    },
}

impl Before {
    /// What is found of a key. Without a look further down where that is not needed (`is_blind`).
    fn of(key: &[u8], found: Option<&Found<'_>>, is_blind: bool) -> Result<Before> {
        if is_blind
            && let Some(head) = record::head_of(key, found)?
            && head.is_blind
            && head.blind_below < record::BLIND_BELOW_MAX
        {
            let blind_below = head.blind_below + 1;
            return Ok(Before::Unknown { blind_below });
        }
        let meta = record::meta_of(key, found)?;
        Ok(meta.map_or(Before::Absent, Before::Present))
    }
}

/// Up to this size of its value a put may be blind, in bytes. Beside a larger one the look-up costs
/// little, and a blob file takes only what is complete.
const BLIND_VALUE_MAX_BYTES: usize = 512;

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

/// Buffers that rounds reuse.
#[derive(Debug, Default)]
struct Scratch {
    batch: Vec<u8>,
    head: Vec<u8>,
    changes: Vec<Change>,
    published: Vec<(Revision, Vec<Change>)>,
}

impl Scratch {
    /// A large commit's bytes are not kept for the small ones after it.
    fn shrink(&mut self) {
        const BATCH_KEPT_MAX_BYTES: usize = 1 << 20;
        if self.batch.capacity() > BATCH_KEPT_MAX_BYTES {
            self.batch = Vec::new();
        }
    }
}

impl Request {
    /// Looks the kv keys up ahead of the round, on the committer's own thread.
    fn prepare(self, engine: &Engine, may_be_blind: bool) -> Result<Prepared> {
        const OPERATION_OVERHEAD_BYTES: u64 = 32;
        // Taken before the look-ups, so nothing newer can be missed later.
        let looked_up_at = engine.visible();
        let mut previous = SmallVec::new();
        let mut encoded_bytes = 16;
        for write in &self.writes {
            let value_bytes = match &write.action {
                Action::PutEntry { value, .. } => (value.len() + record::HEAD_MAX_BYTES) as u64,
                Action::PutRaw { value } => value.len() as u64,
                Action::Delete => 0,
            };
            encoded_bytes += write.key.len() as u64 + value_bytes + OPERATION_OVERHEAD_BYTES;
            if write.tree == trees::KV {
                let is_blind = may_be_blind && write.action.may_be_blind();
                // The key may get or lose an attachment to a lease.
                encoded_bytes += 2 * (write.key.len() as u64 + OPERATION_OVERHEAD_BYTES);
                previous.push(look_up(engine, &write.key, is_blind)?);
            }
        }
        Ok(Prepared {
            request: self,
            previous,
            looked_up_at,
            encoded_bytes,
        })
    }
}

/// What a key holds now, or that only a table could tell.
fn look_up(engine: &Engine, key: &[u8], is_blind: bool) -> Result<Before> {
    let read = |found: Option<Found<'_>>| Before::of(key, found.as_ref(), is_blind);
    match is_blind {
        true => {
            let found = engine.peek_memtables(trees::KV, key, read);
            found.unwrap_or(Ok(Before::Unknown { blind_below: 0 }))
        }
        false => engine.peek_newest(trees::KV, key, read)?,
    }
}

impl Action {
    /// Whether it can be written without knowing what its key held.
    fn may_be_blind(&self) -> bool {
        match self {
            Action::PutEntry { value, lease } => {
                *lease == 0 && value.len() <= BLIND_VALUE_MAX_BYTES
            }
            _ => false,
        }
    }
}

impl Prepared {
    /// An upper bound of the operations this becomes, attachments included.
    fn operations(&self) -> u64 {
        3 * self.request.writes.len() as u64
    }

    /// Whether it only deletes, which goes on when the disk is full.
    fn frees_space(&self) -> bool {
        let mut writes = self.request.writes.iter();
        writes.all(|write| matches!(write.action, Action::Delete))
    }
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
            engine.begin_freeing_round(count, operations, bytes)
        } else {
            engine.begin_round(count, operations, bytes)
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

/// One for each request of a round.
type Outcomes = SmallVec<[Result<Committed>; 1]>;

type Decided = (Outcomes, bowline_storage::Result<Revision>);

/// What all requests of a round are encoded by.
#[derive(Clone, Copy)]
struct Surroundings<'a> {
    is_watched: bool,
    has_leases: &'a AtomicBool,
}

fn decide_all(
    engine: &Engine,
    around: Surroundings<'_>,
    mut round: Round<'_>,
    requests: &[&Prepared],
    scratch: &mut Scratch,
) -> Decided {
    let mut newest = round.last_revision();
    let mut outcomes = Outcomes::with_capacity(requests.len());
    let mut broken = None;
    for request in requests {
        if let Some(error) = &broken {
            outcomes.push(Err(Error::Storage(Clone::clone(error))));
            continue;
        }
        let decided = decide(engine, &round, &request.request)
            .and_then(|()| encode(engine, &round, request, around, scratch));
        outcomes.push(match decided {
            Ok(committed) if !committed.changed => Ok(committed),
            Ok(committed) => match round.apply(&scratch.batch) {
                Ok(_) => {
                    // Also without changes of keys: watchers then need not look for them.
                    if around.is_watched && committed.revision > newest {
                        newest = committed.revision;
                        let changes = std::mem::take(&mut scratch.changes);
                        scratch.published.push((committed.revision, changes));
                    }
                    Ok(committed)
                }
                Err(error) => {
                    broken = Some(error.clone());
                    Err(error.into())
                }
            },
            Err(error) => Err(error),
        });
    }
    let finished = match broken {
        Some(error) => Err(error),
        None => round.finish(),
    };
    (outcomes, finished)
}

/// Whether the request may commit now.
fn decide(engine: &Engine, round: &Round<'_>, request: &Request) -> Result<()> {
    let snapshot = request.snapshot;
    let conflict = |what: String, revision| {
        Err(Error::Conflict {
            what,
            revision,
            snapshot,
        })
    };
    for (tree, key) in &request.keys {
        let newer = engine.peek_since(*tree, key, snapshot, |found| found.map(|f| f.revision))?;
        if let Some(revision) = newer {
            return conflict(format!("{} {}", tree_name(*tree), show_key(key)), revision);
        }
    }
    for (tree, lower, upper) in &request.ranges {
        let (lower, upper) = (
            lower.as_ref().map(Vec::as_slice),
            upper.as_ref().map(Vec::as_slice),
        );
        if engine.changed_since(*tree, lower, upper, snapshot)? {
            let what = format!("{} in {}", tree_name(*tree), show_range(lower, upper));
            return conflict(what, round.last_revision());
        }
    }
    if let Some(KindId(next)) = request.next_kind
        && exists(engine, trees::SYSTEM, &trees::kind_key(next))?
    {
        let what = "edge of a kind that was new".to_owned();
        return conflict(what, round.last_revision());
    }
    for guard in &request.guards {
        match guard {
            Guard::Revision { key, expected } => {
                let head = engine.peek_since(trees::KV, key, 0, |found| {
                    record::head_of(key, found.as_ref())
                })??;
                let actual = head.map_or(0, |head| head.meta.mod_revision);
                if actual != *expected {
                    let key = show_key(key);
                    return Err(Error::CompareFailed {
                        key,
                        expected: *expected,
                        actual,
                    });
                }
            }
            Guard::Block { id } => {
                if !exists(engine, trees::BLOCK, &crate::graph::block_key(*id))? {
                    return Err(Error::MissingBlock { id: *id });
                }
            }
            Guard::Lease {
                id,
                exists: expected,
            } => {
                let found = exists(engine, trees::SYSTEM, &trees::lease_key(*id))?;
                match (found, expected) {
                    (false, true) => return Err(Error::LeaseNotFound { id: *id }),
                    (true, false) => return Err(Error::LeaseExists { id: *id }),
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

fn exists(engine: &Engine, tree: TreeId, key: &[u8]) -> Result<bool> {
    let kind = engine.peek_since(tree, key, 0, |found| found.map(|found| found.kind))?;
    Ok(kind == Some(EntryKind::Put))
}

/// Encodes the request at the next revision into `scratch.batch`, with the metadata and the lease
/// attachments its kv writes imply, and notes the changes for watchers.
fn encode(
    engine: &Engine,
    round: &Round<'_>,
    prepared: &Prepared,
    around: Surroundings<'_>,
    scratch: &mut Scratch,
) -> Result<Committed> {
    let Surroundings {
        is_watched,
        has_leases,
    } = around;
    let Scratch {
        batch,
        head,
        changes,
        ..
    } = scratch;
    changes.clear();
    // Leases and kinds are not numbered: a batch of nothing else keeps the last revision.
    let mut metas: SmallVec<[Before; 1]> = SmallVec::new();
    // For each write outside the kv tree: whether it deletes what is not there.
    let mut voids = Vec::new();
    // Every commit of a key takes a revision: without one since the look-up, there is nothing newer.
    let is_current = round.last_revision() == prepared.looked_up_at;
    let request = &prepared.request;
    let mut previous = prepared.previous.iter();
    let mut is_numbered = false;
    let mut changed = false;
    for write in &request.writes {
        if write.tree != trees::KV {
            let is_graph = write.tree != trees::SYSTEM;
            let is_void = is_graph
                && matches!(write.action, Action::Delete)
                && !exists(engine, write.tree, &write.key)?;
            is_numbered |= is_graph && !is_void;
            changed |= !is_void;
            voids.push(is_void);
            continue;
        }
        let known = previous.next().copied();
        let known = known.unwrap_or(Before::Unknown { blind_below: 0 });
        let key = &write.key;
        // Somebody may want to know since the look-up.
        let must_know = is_watched || has_leases.load(Ordering::Relaxed);
        let is_blind = !must_know && write.action.may_be_blind();
        let newer = if is_current {
            None
        } else {
            engine.peek_since(trees::KV, key, prepared.looked_up_at, |found| {
                let before = found.map(|found| Before::of(key, Some(&found), is_blind));
                before.transpose()
            })??
        };
        let must_look = match known {
            Before::Absent => false,
            // Nothing newer also when a newer deletion has been merged away since the look-up,
            // together with what it deleted. Asked after reading: a merge raises the floor first.
            Before::Present(_) => engine.history_floor() > prepared.looked_up_at,
            Before::Unknown { .. } => must_know,
        };
        let before = match newer {
            None if must_look => engine.peek_since(trees::KV, key, 0, |found| {
                Before::of(key, found.as_ref(), false)
            })??,
            None => known,
            Some(newer) => newer,
        };
        match (&write.action, before) {
            (Action::Delete, Before::Absent) => {}
            (action, _) => {
                if let Action::PutEntry {
                    lease: 1.. | ..=-1, ..
                } = action
                {
                    has_leases.store(true, Ordering::Relaxed);
                }
                is_numbered = true;
                changed = true;
            }
        }
        metas.push(before);
    }
    if !changed {
        let revision = round.last_revision();
        return Ok(Committed {
            revision,
            deleted: 0,
            changed: false,
        });
    }
    let revision = if is_numbered {
        round.next_revision()
    } else {
        round.last_revision()
    };
    let mut out = BatchWriter::start(batch, revision);
    let mut deleted = 0;
    let (mut metas, mut voids) = (metas.into_iter(), voids.into_iter());
    for write in &request.writes {
        let key = &write.key[..];
        if write.tree != trees::KV {
            if voids.next() == Some(true) {
                continue;
            }
            match &write.action {
                Action::PutRaw { value } => out.put(write.tree, key, value, &[]),
                Action::PutEntry { .. } => return Err(internal("an entry outside the kv tree")),
                Action::Delete => out.delete(write.tree, key),
            }
            continue;
        }
        let before = match metas.next() {
            Some(Before::Present(meta)) => Some(meta),
            Some(Before::Unknown { blind_below }) => {
                let Action::PutEntry { value, .. } = &write.action else {
                    return Err(internal("only a put can do without a look-up"));
                };
                record::encode_blind_head(revision, blind_below, head);
                out.put(trees::KV, key, head, value);
                continue;
            }
            Some(Before::Absent) | None => None,
        };
        let old_lease = before.map_or(0, |meta| meta.lease);
        let new_lease = match &write.action {
            Action::PutEntry { value, lease } => {
                let meta = Meta {
                    create_revision: before.map_or(revision, |meta| meta.create_revision),
                    mod_revision: revision,
                    version: before.map_or(1, |meta| meta.version + 1),
                    lease: *lease,
                };
                record::encode_head(&meta, head);
                out.put(trees::KV, key, head, value);
                if is_watched {
                    let entry = meta.entry(key, value.clone());
                    changes.push(Change::new(ChangeKind::Put, entry));
                }
                *lease
            }
            Action::Delete => {
                if before.is_none() {
                    continue;
                }
                deleted += 1;
                out.delete(trees::KV, key);
                if is_watched {
                    changes.push(Change::deletion(Value::copy_from(key), revision));
                }
                0
            }
            Action::PutRaw { .. } => return Err(internal("a raw value in the kv tree")),
        };
        if old_lease != new_lease {
            if old_lease != 0 {
                out.delete(trees::SYSTEM, &trees::attachment_key(old_lease, key));
            }
            if new_lease != 0 {
                out.put(
                    trees::SYSTEM,
                    &trees::attachment_key(new_lease, key),
                    &[],
                    &[],
                );
            }
        }
    }
    Ok(Committed {
        revision,
        deleted,
        changed: true,
    })
}

fn tree_name(tree: TreeId) -> &'static str {
    match tree {
        trees::KV => "key",
        trees::BLOCK => "block",
        trees::EDGE_OUT | trees::EDGE_IN => "edge",
        _ => "record",
    }
}

fn show_range(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> String {
    let show = |bound: Bound<&[u8]>| match bound {
        Bound::Unbounded => String::new(),
        Bound::Included(key) | Bound::Excluded(key) => show_key(key),
    };
    format!("{}..{}", show(lower), show(upper))
}

impl Change {
    /// A deletion carries the key and the revision only, as in etcd.
    pub(crate) fn deletion(key: Value, revision: Revision) -> Change {
        let entry = Entry {
            key,
            value: Value::default(),
            create_revision: 0,
            mod_revision: revision,
            version: 0,
            lease: 0,
        };
        Change::new(ChangeKind::Delete, entry)
    }
}
