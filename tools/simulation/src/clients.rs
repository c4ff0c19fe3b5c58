//! What users do: they write and read a few keys through their member, and write down what they saw.
//!
//! A client's time is the order of all calls and answers in this thread, so that two operations overlap in the
//! history only if they did.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bowline::{Block, BlockId, Direction, Edge, EdgeKey, Isolation, Revision, Value};
use bowline_cluster::{Error, LocalClient, ReadLevel};
use bowline_replica::{
    Command, Commit, CommitRead, CommitWrite, Compare, DeleteRangeOp, GraphWrite, Op, OpReply,
    Outcome, PutOp, RangeOp, RangeReply, Refusal, Relation, Target, Txn,
};
use bowline_testing::linear::{Held, Operation};
use parking_lot::Mutex;

use crate::trace::Trace;

/// The first registers are keys.
const KEYS: usize = 4;
/// And then there are the contents of blocks.
const BLOCKS: usize = 2;
/// Blocks that have edges, which no history tells of: all members have the same.
const CROWD: u128 = 8;

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
}

/// The history of a run. Clones are the same one.
#[derive(Clone)]
pub(crate) struct History {
    state: Arc<Mutex<State>>,
    trace: Trace,
}

/// A call: its number, and its moment.
type Call = (usize, u64);

impl History {
    pub(crate) fn new(trace: Trace) -> History {
        let state = Arc::default();
        History { state, trace }
    }

    fn moment(&self) -> u64 {
        let mut state = self.state.lock();
        state.next += 1;
        state.next
    }

    /// Notes a call, which may have the effects of `operation`.
    fn call(&self, who: &str, operation: &Operation) -> Call {
        let start = self.moment();
        let mut state = self.state.lock();
        let is_read = operation.writes.is_empty();
        let unknown = operation.clone().unanswered(start);
        self.trace.note(who, format_args!("asks: {unknown}"));
        state.operations.push((!is_read).then_some(unknown));
        state.counts.unknown += 1;
        (state.operations.len() - 1, start)
    }

    /// Notes the answer to a call; `None` if it certainly was not executed.
    fn answer(&self, who: &str, (number, start): Call, answer: Option<Operation>) {
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
    fn is_acknowledged(&self, operation: &Operation, revision: Revision) {
        // Watches tell of keys alone.
        let is_told = |(at, value): &(usize, Held)| *at < KEYS && value.is_some();
        if operation.writes.iter().any(is_told) {
            self.state.lock().acknowledged.insert(revision);
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

/// A user of one member, for as long as its process lives.
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) client: LocalClient,
    pub(crate) history: History,
    pub(crate) random: fastrand::Rng,
    /// Whether it only reads: a write that gets no answer would keep it from seeing more.
    pub(crate) is_reader: bool,
    /// The longest pause between two operations.
    pub(crate) pause_max: Duration,
    /// Whether it compacts the history now and then.
    pub(crate) compacts: bool,
}

/// The key of a register.
pub(crate) fn key(number: usize) -> Vec<u8> {
    format!("r{number}").into_bytes()
}

fn block_id(number: usize) -> BlockId {
    BlockId(number as u128)
}

fn block(number: usize, value: u64) -> Block {
    Block::new(block_id(number), "thing").content(value.to_string())
}

fn put(number: usize, value: u64) -> Op {
    Op::Put(PutOp {
        key: key(number),
        value: Value::from(value.to_string().as_str()),
        ..PutOp::default()
    })
}

fn range(number: usize) -> RangeOp {
    RangeOp {
        key: key(number),
        ..RangeOp::default()
    }
}

/// The number of a register, by its key.
pub(crate) fn register_of(key: &[u8]) -> Option<usize> {
    (0..KEYS).find(|&number| self::key(number) == key)
}

fn held(reply: &RangeReply) -> Held {
    number(&reply.entries.first()?.value)
}

pub(crate) fn number(text: &[u8]) -> Held {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Whether the command certainly was not executed.
fn is_nothing(error: &Error) -> bool {
    matches!(
        error,
        Error::NoLeader | Error::NotLeader | Error::TooManyRequests
    )
}

impl Client {
    /// Does one thing after the other.
    pub(crate) async fn run(mut self) {
        let mut known: [Held; KEYS] = [None; KEYS];
        let mut newest = 0;
        loop {
            let pause = self.random.u64(1..=self.pause_max.as_millis() as u64);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if self.history.is_over() {
                return;
            }
            let at = self.random.usize(0..KEYS);
            let block = KEYS + self.random.usize(0..BLOCKS);
            let choice = match self.is_reader {
                true => self.random.u8(7..13),
                false => self.random.u8(0..17),
            };
            let seen = match choice {
                0..=2 => self.put(at).await,
                3 => self.delete(at).await,
                4..=5 => self.swap(at, known[at]).await,
                6 => self.exchange(at).await,
                7..=8 => self.read(at, ReadLevel::Linearizable).await,
                9..=10 => self.read(at, ReadLevel::Lease).await,
                11 => {
                    self.look(at, &mut newest).await;
                    None
                }
                12 => self.read_block(block).await,
                13 => self.put_block(block).await,
                14..=15 => self.transact([at, block]).await,
                _ if self.compacts && self.random.u8(0..8) == 0 => self.compact().await,
                _ if self.random.bool() => self.look_around().await,
                _ => self.change_edges().await,
            };
            if let Some((at, held)) = seen.filter(|(at, _)| *at < KEYS) {
                known[at] = held;
            }
        }
    }

    /// Reads everything, when nobody writes any more.
    pub(crate) async fn read_all(mut self) {
        for at in 0..KEYS {
            self.read(at, ReadLevel::Linearizable).await;
        }
        for at in KEYS..KEYS + BLOCKS {
            self.read_block(at).await;
        }
    }

    /// The next value: no other is equal.
    fn value(&self) -> u64 {
        self.history.moment()
    }

    /// Executes a transaction that has the effects of `operation`. Where its first operation is a read, that is of
    /// the key `reads`. Gives whether its conditions held, and what it read.
    async fn execute(&self, txn: Txn, operation: Operation, reads: usize) -> Option<(bool, Held)> {
        let call = self.history.call(&self.name, &operation);
        let applied = match self.client.execute(Command::Txn(txn)).await {
            Ok(applied) => applied,
            Err(error) => {
                if is_nothing(&error) {
                    self.history.answer(&self.name, call, None);
                }
                return None;
            }
        };
        if let Err(Refusal::NoSpace) = &applied.reply.result {
            self.history.answer(&self.name, call, None);
            return None;
        }
        let Ok(Outcome::Txn(reply)) = &applied.reply.result else {
            let reason = format!("{}: an unexpected reply: {:?}", self.name, applied.reply);
            self.history.fail(reason);
            return None;
        };
        let operation = match reply.succeeded {
            true => operation.noted(&self.name),
            false => operation.noted(&self.name).refused(),
        };
        let (operation, read) = match reply.replies.first() {
            Some(OpReply::Range(read)) => (operation.saw(reads, held(read)), held(read)),
            _ => (operation, None),
        };
        if reply.succeeded {
            let revision = applied.reply.revision;
            self.history.is_acknowledged(&operation, revision);
        }
        self.history.answer(&self.name, call, Some(operation));
        Some((reply.succeeded, read))
    }

    /// Executes a command that has the effects of `operation` as a whole, or is refused. Gives whether it has them.
    async fn decide(&self, command: Command, operation: Operation) -> Option<bool> {
        let call = self.history.call(&self.name, &operation);
        let applied = match self.client.execute(command).await {
            Ok(applied) => applied,
            Err(error) => {
                if is_nothing(&error) {
                    self.history.answer(&self.name, call, None);
                }
                return None;
            }
        };
        match applied.reply.result {
            Ok(Outcome::Graph(_) | Outcome::Committed { .. }) => {
                let done = operation.noted(&self.name);
                self.history.is_acknowledged(&done, applied.reply.revision);
                self.history.answer(&self.name, call, Some(done));
                Some(true)
            }
            Err(Refusal::NoSpace | Refusal::Conflict { .. } | Refusal::MissingBlock { .. }) => {
                self.history.answer(&self.name, call, None);
                Some(false)
            }
            // What it has read is trimmed, so that nobody can say whether it has changed since: nothing is done.
            Err(Refusal::Compacted { revision, oldest }) if self.compacts && revision < oldest => {
                self.history.answer(&self.name, call, None);
                Some(false)
            }
            result => {
                let reason = format!("{}: an unexpected reply: {result:?}", self.name);
                self.history.fail(reason);
                None
            }
        }
    }

    async fn put_block(&self, at: usize) -> Option<(usize, Held)> {
        let value = self.value();
        let command = Command::Graph(vec![GraphWrite::PutBlock(block(at, value))]);
        self.decide(command, Operation::put(at, value)).await;
        None
    }

    /// Waits until a linearizable read may be answered from the database. Gives the revision that it has then.
    async fn fresh(&mut self) -> Option<Revision> {
        let timeout = Duration::from_millis(self.random.u64(100..2000));
        let barrier = self.client.read_barrier(ReadLevel::Linearizable);
        let point = tokio::time::timeout(timeout, barrier).await;
        point.ok()?.ok().map(|point| point.revision)
    }

    /// The content of a block, at a revision.
    fn block_at(&self, at: usize, revision: Revision) -> Option<Held> {
        let snapshot = self.client.db().snapshot_at(revision).ok()?;
        let block = snapshot.graph().block(block_id(at)).ok()?;
        Some(block.and_then(|block| number(&block.content)))
    }

    async fn read_block(&mut self, at: usize) -> Option<(usize, Held)> {
        let call = self.history.call(&self.name, &Operation::read(at, None));
        let revision = self.fresh().await;
        let seen = revision.and_then(|revision| self.block_at(at, revision));
        let note = format!("{} at {revision:?}", self.name);
        let answer = seen.map(|seen| Operation::read(at, seen).noted(note));
        self.history.answer(&self.name, call, answer);
        None
    }

    /// A transaction: reads a key and a block at one revision, and writes another key and perhaps the block, if what
    /// it has read is unchanged.
    async fn transact(&mut self, reads: [usize; 2]) -> Option<(usize, Held)> {
        let [at, block_at] = reads;
        let revision = self.fresh().await?;
        if revision == Revision::ZERO {
            return None;
        }
        let snapshot = self.client.db().snapshot_at(revision).ok()?;
        let held = snapshot.get(key(at)).ok()?;
        let held = held.and_then(|value| number(&value));
        let content = self.block_at(block_at, revision)?;
        let pause = Duration::from_millis(self.random.u64(0..100));
        tokio::time::sleep(pause).await;
        let (other, value) = ((at + 1) % KEYS, self.value());
        let mut writes = vec![CommitWrite::Put {
            key: key(other),
            value: Value::from(value.to_string().as_str()),
            lease: 0,
        }];
        let mut operation = Operation::put(other, value)
            .saw(at, held)
            .saw(block_at, content);
        if self.random.bool() {
            writes.push(CommitWrite::Graph(GraphWrite::PutBlock(block(
                block_at, value,
            ))));
            operation = operation.writing(block_at, Some(value));
        }
        let commit = Commit {
            read_revision: revision,
            isolation: Isolation::Serializable,
            reads: vec![
                CommitRead::Key(key(at)),
                CommitRead::Block(block_id(block_at)),
            ],
            expectations: Vec::new(),
            writes,
        };
        let is_committed = self.decide(Command::Commit(commit), operation).await?;
        let mut state = self.history.state.lock();
        match is_committed {
            true => state.counts.committed += 1,
            false => state.counts.conflicts += 1,
        }
        None
    }

    /// Changes blocks and edges that no history tells of.
    async fn change_edges(&mut self) -> Option<(usize, Held)> {
        let [from, to] = [(); 2].map(|()| BlockId(1000 + self.random.u128(0..CROWD)));
        let writes = match self.random.u8(0..8) {
            0 => vec![GraphWrite::DeleteBlock(from)],
            1..=2 => vec![GraphWrite::DeleteEdge(EdgeKey::new(from, "knows", to))],
            _ => vec![
                GraphWrite::PutBlock(Block::new(from, "person")),
                GraphWrite::PutBlock(Block::new(to, "person")),
                GraphWrite::PutEdge(Edge::new(from, "knows", to)),
            ],
        };
        // Whatever comes of it is the same on all members.
        let _ = self.client.execute(Command::Graph(writes)).await;
        None
    }

    /// Looks at the edges of these blocks, at one revision of this member: each is there from both of its ends, and
    /// both are blocks.
    async fn look_around(&self) -> Option<(usize, Held)> {
        let snapshot = self.client.db().snapshot();
        let graph = snapshot.graph();
        let all = (0..CROWD).map(|at| BlockId(1000 + at));
        let mut ends = [BTreeSet::new(), BTreeSet::new()];
        for block in all {
            for (direction, ends) in [Direction::Out, Direction::In].into_iter().zip(&mut ends) {
                match graph.neighbors::<&str>(block, direction, []) {
                    Ok(found) => ends.extend(found.into_iter().map(|found| match direction {
                        Direction::Out => (block, found.id),
                        _ => (found.id, block),
                    })),
                    Err(bowline::Error::MissingBlock { .. }) => {}
                    // Damage is found, and repaired, by others.
                    Err(_) => return None,
                }
            }
        }
        let [from_sources, from_targets] = &ends;
        let mut differ = from_sources.symmetric_difference(from_targets);
        if let Some((source, target)) = differ.next() {
            let (name, revision) = (&self.name, snapshot.revision());
            let reason = format!(
                "{name}: the edge from {source} to {target} has one end at revision {revision}"
            );
            self.history.fail(reason);
        }
        None
    }

    /// Compacts the history but for its newest part. Whatever comes of it is the same on all members.
    async fn compact(&mut self) -> Option<(usize, Held)> {
        let newest = self.client.status().revision.get();
        let kept = self.random.u64(10..300);
        if let Some(revision) = newest.checked_sub(kept) {
            let revision = Revision::new(revision);
            let _ = self.client.execute(Command::Compact { revision }).await;
        }
        None
    }

    async fn put(&self, at: usize) -> Option<(usize, Held)> {
        let value = self.value();
        let txn = Txn::of(put(at, value));
        self.execute(txn, Operation::put(at, value), at).await?;
        Some((at, Some(value)))
    }

    async fn delete(&self, at: usize) -> Option<(usize, Held)> {
        let txn = Txn::of(Op::DeleteRange(DeleteRangeOp {
            key: key(at),
            ..DeleteRangeOp::default()
        }));
        self.execute(txn, Operation::delete(at), at).await?;
        Some((at, None))
    }

    async fn swap(&self, at: usize, expected: Held) -> Option<(usize, Held)> {
        let value = self.value();
        let target = match expected {
            Some(expected) => Target::Value(expected.to_string().into_bytes()),
            None => Target::Version(0),
        };
        let txn = Txn {
            compares: vec![Compare {
                key: key(at),
                range_end: Vec::new(),
                relation: Relation::Equal,
                target,
            }],
            success: vec![put(at, value)],
            // What a refusal saw tells the checker which write of unknown outcome has happened.
            failure: vec![Op::Range(range(at))],
        };
        let operation = Operation::swap(at, expected, value);
        let (succeeded, seen) = self.execute(txn, operation, at).await?;
        Some((at, if succeeded { Some(value) } else { seen }))
    }

    /// Reads one key and writes another, at once.
    async fn exchange(&self, at: usize) -> Option<(usize, Held)> {
        let (other, value) = ((at + 1) % KEYS, self.value());
        let txn = Txn {
            compares: Vec::new(),
            success: vec![Op::Range(range(at)), put(other, value)],
            failure: Vec::new(),
        };
        let (_, seen) = self.execute(txn, Operation::put(other, value), at).await?;
        Some((at, seen))
    }

    async fn read(&mut self, at: usize, level: ReadLevel) -> Option<(usize, Held)> {
        let timeout = Duration::from_millis(self.random.u64(100..2000));
        let call = self.history.call(&self.name, &Operation::read(at, None));
        let asked = range(at);
        let answer = tokio::time::timeout(timeout, self.client.range(&asked, level)).await;
        let answer = answer.ok().and_then(Result::ok);
        let seen = answer.map(|read| held(&read.value));
        let note = format!("{} {level:?}", self.name);
        let answer = seen.map(|seen| Operation::read(at, seen).noted(note));
        self.history.answer(&self.name, call, answer);
        Some((at, seen?))
    }

    /// An eventual read: no older state than before comes back. In the end it must have been the state of its
    /// revision.
    async fn look(&self, at: usize, newest: &mut u64) {
        let Ok(read) = self.client.range(&range(at), ReadLevel::Eventual).await else {
            return;
        };
        let revision = read.point.revision.get();
        if revision < *newest {
            let name = &self.name;
            let reason =
                format!("{name}: an eventual read at revision {revision} after one at {newest}");
            self.history.fail(reason);
        }
        *newest = revision.max(*newest);
        let mut state = self.history.state.lock();
        state.counts.eventual += 1;
        let revision = read.point.revision;
        state.eventual.push((at, revision, held(&read.value)));
    }
}
