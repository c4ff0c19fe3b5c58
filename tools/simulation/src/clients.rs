//! What users of a member's process do: they write and read a few keys through it, and write down what they saw.

use std::collections::BTreeSet;
use std::time::Duration;

use bowline::{
    Block, BlockId, Direction, Edge, EdgeKey, Filter, Isolation, Revision, Snapshot, Value,
};
use bowline_cluster::{Error, LocalClient, ReadLevel};
use bowline_replica::{
    Caller, Command, Commit, CommitRead, CommitWrite, Compare, DeleteRangeOp, GraphWrite, Op,
    OpReply, Outcome, PutOp, RangeOp, RangeReply, Refusal, Relation, Target, Txn,
};
use bowline_testing::linear::{Held, Operation};

use crate::history::History;

/// The first registers are keys.
pub(crate) const KEYS: usize = 4;
/// And then there are the contents of blocks.
pub(crate) const BLOCKS: usize = 2;
/// Blocks that have edges, which no history tells of: all members have the same.
const CROWD: u128 = 8;
/// How many ages they have, by which there is an index now and then.
const AGES: i64 = 12;

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

pub(crate) fn block_id(number: usize) -> BlockId {
    BlockId(number as u128)
}

pub(crate) fn block(number: usize, value: u64) -> Block {
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
                _ if self.random.u8(0..8) == 0 => self.change_index().await,
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
        let read = [(at, held), (block_at, content)];
        let mut operation = Operation::transaction(read).writing(other, Some(value));
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
        self.history.is_decided(is_committed);
        None
    }

    /// Changes blocks and edges that no history tells of.
    async fn change_edges(&mut self) -> Option<(usize, Held)> {
        let [from, to] = [(); 2].map(|()| BlockId(1000 + self.random.u128(0..CROWD)));
        let person = |id: BlockId, age| Block::new(id, "person").attribute("age", age);
        let [age, other_age] = [(); 2].map(|()| self.random.i64(0..AGES));
        let writes = match self.random.u8(0..8) {
            0 => vec![GraphWrite::DeleteBlock(from)],
            1..=2 => vec![GraphWrite::DeleteEdge(EdgeKey::new(from, "knows", to))],
            _ => vec![
                GraphWrite::PutBlock(person(from, age)),
                GraphWrite::PutBlock(person(to, other_age)),
                GraphWrite::PutEdge(Edge::new(from, "knows", to)),
            ],
        };
        // Whatever comes of it is the same on all members.
        let _ = self.client.execute(Command::Graph(writes)).await;
        None
    }

    /// Creates or drops an index of these blocks. Whoever waits for it may leave before it is built.
    async fn change_index(&mut self) -> Option<(usize, Held)> {
        let (kind, attributes) = ("person".to_owned(), vec!["age".to_owned()]);
        let patience = Duration::from_millis(self.random.u64(10..3000));
        let by = self.client.by(&Caller::Process);
        let change = match self.random.u8(0..4) {
            0 => by.drop_index(kind, attributes),
            what => by.create_index(kind, attributes, what == 1),
        };
        // Whatever comes of it is the same on all members.
        let _ = tokio::time::timeout(patience, change).await;
        None
    }

    /// Where there is an index of these blocks, it finds those that have an age.
    fn look_up(&self, snapshot: &Snapshot) -> bowline::Result<()> {
        let graph = snapshot.graph();
        for age in 0..AGES {
            let of_age = graph.blocks("person").filter("age", Filter::equals(age));
            if of_age.index().is_none() {
                return Ok(());
            }
            let mut found = of_age.ids()?;
            found.sort_unstable();
            let mut all = Vec::new();
            for id in (0..CROWD).map(|at| BlockId(1000 + at)) {
                let block = graph.block(id)?;
                let has_age = |block: Block| block.attributes.get("age") == Some(&age.into());
                all.extend(block.is_some_and(has_age).then_some(id));
            }
            if found != all {
                let (name, revision) = (&self.name, snapshot.revision());
                self.history.fail(format!(
                    "{name}: at revision {revision} the index has {found:?} of age {age}, and the graph {all:?}"
                ));
            }
        }
        Ok(())
    }

    /// Looks at the edges of these blocks, at one revision of this member: each is there from both of its ends, and
    /// both are blocks.
    async fn look_around(&self) -> Option<(usize, Held)> {
        let snapshot = self.client.db().snapshot();
        // Damage is found, and repaired, by others.
        self.look_up(&snapshot).ok()?;
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
        let revision = read.point.revision;
        self.history.is_eventual(at, revision, held(&read.value));
    }
}
