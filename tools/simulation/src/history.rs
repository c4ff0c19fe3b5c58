//! What clients asked and were told: the history that the judges look at.
//!
//! A client's time is the order of all calls and answers in this thread, so that two operations overlap in the
//! history only if they did.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bowline::Revision;
use bowline_testing::linear::{Held, Operation};
use parking_lot::Mutex;

use crate::clients::KEYS;
use crate::trace::Trace;

#[derive(Default)]
struct State {
    /// The next moment, and the next value.
    next: u64,
    operations: Vec<Option<Operation>>,
    /// What eventual reads gave: the key, the revision that they told, and the value.
    eventual: Vec<(usize, Revision, Held)>,
    /// The revisions at which writes were acknowledged.
    acknowledged: BTreeSet<Revision>,
    failures: Vec<String>,
    /// Keys of leases, and until when they were promised to be there.
    promised: BTreeMap<Vec<u8>, Duration>,
    /// Keys of leases, and when somebody was first told that they were deleted.
    deleted: BTreeMap<Vec<u8>, Duration>,
    /// Keys of leases that have ended, by the answer of a member. The newest is the last.
    ended: Vec<Vec<u8>>,
    /// The members that have replaced their tables since somebody looked.
    repaired: BTreeSet<usize>,
    /// The members that have said since somebody looked what they had acknowledged and lost.
    lost: Vec<(usize, String)>,
    /// When the clock of a leader leapt forward, and by how much.
    leaps: Vec<(Duration, Duration)>,
    /// The newest revision that anybody was told of.
    newest_told: Revision,
    counts: Counts,
    is_over: bool,
}

/// How much was done.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Operations with an answer.
    pub answered: u64,
    /// Of these, those that wrote.
    pub written: u64,
    /// Operations of unknown outcome.
    pub unknown: u64,
    /// Operations that were not executed.
    pub refused: u64,
    /// Eventual reads.
    pub eventual: u64,
    /// Transactions that were committed.
    pub committed: u64,
    /// Transactions that had a conflict.
    pub conflicts: u64,
    /// Leases with a key.
    pub leases: u64,
    /// Leases that were revoked, or turned out to have ended.
    pub ended: u64,
    /// Answers about leases that were judged.
    pub looks: u64,
    /// Locks that were taken over the network.
    pub locks: u64,
    /// Writes under such a lock.
    pub guarded: u64,
    /// Such writes that were refused, as the lock was lost.
    pub fenced: u64,
}

/// The history of a run. Clones are the same one.
#[derive(Clone)]
pub(crate) struct History {
    state: Arc<Mutex<State>>,
    trace: Trace,
}

/// A call: its number, and its moment.
pub(crate) type Call = (usize, u64);

impl History {
    pub(crate) fn new(trace: Trace) -> History {
        let state = Arc::default();
        History { state, trace }
    }

    pub(crate) fn moment(&self) -> u64 {
        let mut state = self.state.lock();
        state.next += 1;
        state.next
    }

    /// Notes a call, which may have the effects of `operation`.
    pub(crate) fn call(&self, who: &str, operation: &Operation) -> Call {
        let start = self.moment();
        let mut state = self.state.lock();
        let is_read = operation.writes.is_empty();
        assert!(
            is_read || operation.seen.is_empty(),
            "what a write saw is known with its answer; what it depends on is a condition: {operation}"
        );
        let unknown = operation.clone().unanswered(start);
        self.trace.note(who, format_args!("asks: {unknown}"));
        state.operations.push((!is_read).then_some(unknown));
        state.counts.unknown += 1;
        (state.operations.len() - 1, start)
    }

    /// Notes the answer to a call; `None` if it certainly was not executed.
    pub(crate) fn answer(&self, who: &str, (number, start): Call, answer: Option<Operation>) {
        let end = self.moment();
        let answer = answer.map(|operation| operation.lasted(start, end));
        match &answer {
            Some(answer) => self.trace.note(who, format_args!("is told: {answer}")),
            None => self
                .trace
                .note(who, format_args!("is told: nothing was done of {start}..")),
        }
        let mut state = self.state.lock();
        state.counts.unknown -= 1;
        match &answer {
            Some(answer) => {
                state.counts.answered += 1;
                state.counts.written += u64::from(answer.held && !answer.writes.is_empty());
            }
            None => state.counts.refused += 1,
        }
        state.operations[number] = answer;
    }

    /// A write of values was acknowledged at this revision.
    pub(crate) fn is_acknowledged(&self, operation: &Operation, revision: Revision) {
        // Watches tell of keys alone.
        let is_told = |(at, value): &(usize, Held)| *at < KEYS && value.is_some();
        if operation.writes.iter().any(is_told) {
            self.state.lock().acknowledged.insert(revision);
        }
        self.is_told_of(revision);
    }

    /// Somebody was told of a revision: whoever asks from now on for what is fresh is told of none that is older.
    pub(crate) fn is_told_of(&self, revision: Revision) {
        let mut state = self.state.lock();
        state.newest_told = revision.max(state.newest_told);
    }

    pub(crate) fn newest_told(&self) -> Revision {
        self.state.lock().newest_told
    }

    /// Somebody has a lock.
    pub(crate) fn is_locked(&self) {
        self.state.lock().counts.locks += 1;
    }

    /// A write under a lock was acknowledged at a revision, or refused.
    pub(crate) fn is_guarded(&self, revision: Option<Revision>) {
        let mut state = self.state.lock();
        match revision {
            Some(revision) => {
                state.acknowledged.insert(revision);
                state.counts.guarded += 1;
            }
            None => state.counts.fenced += 1,
        }
    }

    /// What eventual reads gave, and the revisions of acknowledged writes.
    pub(crate) fn told(&self) -> (Vec<(usize, Revision, Held)>, BTreeSet<Revision>) {
        let state = self.state.lock();
        (state.eventual.clone(), state.acknowledged.clone())
    }

    /// No client begins anything more.
    pub(crate) fn stop(&self) {
        self.state.lock().is_over = true;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    /// The clock of the leader leaps forward: its leases have so much less time left.
    pub(crate) fn leaps(&self, by: Duration) {
        let now = self.trace.now();
        self.state.lock().leaps.push((now, by));
    }

    /// The time of leases: that of the run, and what leaders' clocks have leapt over. What is promised of a lease is
    /// promised by it.
    pub(crate) fn lease_now(&self) -> Duration {
        let leapt: Duration = self.state.lock().leaps.iter().map(|(_, by)| *by).sum();
        self.trace.now() + leapt
    }

    /// What leaders' clocks have leapt over within the last `span`.
    pub(crate) fn leapt_within(&self, span: Duration) -> Duration {
        let since = self.trace.now().saturating_sub(span);
        let state = self.state.lock();
        let late = state.leaps.iter().filter(|(at, _)| *at >= since);
        late.map(|(_, by)| *by).sum()
    }

    /// A holder of a lease was promised its key until then.
    pub(crate) fn is_promised(&self, key: &[u8], until: Duration) {
        let mut state = self.state.lock();
        let known = state.promised.entry(key.to_vec()).or_default();
        *known = until.max(*known);
    }

    pub(crate) fn promised(&self, key: &[u8]) -> Duration {
        self.state
            .lock()
            .promised
            .get(key)
            .copied()
            .unwrap_or_default()
    }

    /// The holder of a lease ends it: from now on nothing is promised.
    pub(crate) fn is_given_up(&self, key: &[u8], now: Duration) {
        if let Some(until) = self.state.lock().promised.get_mut(key) {
            *until = now.min(*until);
        }
    }

    /// The keys of the leases that certainly live at this time.
    pub(crate) fn living(&self, now: Duration) -> Vec<Vec<u8>> {
        let state = self.state.lock();
        let living = state.promised.iter().filter(|(_, until)| **until > now);
        living.map(|(key, _)| key.clone()).collect()
    }

    /// A member has said that the lease of this key has ended, or that it has ended it.
    pub(crate) fn has_ended(&self, key: &[u8]) {
        self.state.lock().ended.push(key.to_vec());
    }

    /// The keys of leases that have ended, the newest last: none of them is seen again.
    pub(crate) fn ended(&self) -> Vec<Vec<u8>> {
        self.state.lock().ended.clone()
    }

    /// An answer about leases was judged.
    pub(crate) fn has_looked(&self) {
        self.state.lock().counts.looks += 1;
    }

    /// A watch has told that the key of a lease was deleted.
    pub(crate) fn is_deleted(&self, key: &[u8], now: Duration) {
        self.state.lock().deleted.entry(key.to_vec()).or_insert(now);
    }

    /// A member has replaced its tables.
    pub(crate) fn is_repaired(&self, member: usize) {
        self.state.lock().repaired.insert(member);
    }

    pub(crate) fn take_repaired(&self) -> BTreeSet<usize> {
        std::mem::take(&mut self.state.lock().repaired)
    }

    /// A member has said that it lacks what it had acknowledged.
    pub(crate) fn has_lost(&self, member: usize, said: String) {
        self.state.lock().lost.push((member, said));
    }

    pub(crate) fn take_lost(&self) -> Vec<(usize, String)> {
        std::mem::take(&mut self.state.lock().lost)
    }

    pub(crate) fn fail(&self, reason: String) {
        self.state.lock().failures.push(reason);
    }

    /// What was found first, if something was.
    pub(crate) fn failure(&self) -> Option<String> {
        self.state.lock().failures.first().cloned()
    }

    /// What an eventual read of a key gave, and the revision that it told.
    pub(crate) fn is_eventual(&self, at: usize, revision: Revision, held: Held) {
        let mut state = self.state.lock();
        state.counts.eventual += 1;
        state.eventual.push((at, revision, held));
    }

    /// A transaction was committed, or had a conflict.
    pub(crate) fn is_decided(&self, is_committed: bool) {
        let counts = &mut self.state.lock().counts;
        match is_committed {
            true => counts.committed += 1,
            false => counts.conflicts += 1,
        }
    }

    /// The operations, and what is wrong without them.
    pub(crate) fn finish(&self) -> (Vec<Operation>, Counts, Vec<String>) {
        let state = self.state.lock();
        let operations: Vec<_> = state.operations.iter().flatten().cloned().collect();
        let mut failures = state.failures.clone();
        for (key, until) in &state.promised {
            let deleted = state.deleted.get(key).filter(|deleted| *deleted < until);
            failures.extend(deleted.map(|deleted| {
                let key = key.escape_ascii();
                format!("{key} was deleted by {deleted:?}, and promised until {until:?}")
            }));
        }
        let mut counts = state.counts;
        counts.leases = state.promised.len() as u64;
        counts.ended = state.ended.len() as u64;
        (operations, counts, failures)
    }
}
