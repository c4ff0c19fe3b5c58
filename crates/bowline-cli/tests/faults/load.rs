//! The clients, and the record of their results.
//!
//! Objects of a round: some registers, each a key of its own; two accounts between which money is
//! moved, one object; a ledger, to which every client adds keys that are written once; and a graph of a few blocks.
//! Reads are made at all levels: those that may not be stale go into the histories, and all of them are
//! checked by the revision in their replies.
//!
//! Every write has a number of its own, and values are these numbers. An account's value is
//! `balance * STRIDE + number`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bowline::Revision;
use bowline_client::graph::{Block, BlockId, Edge, EdgeKey, GraphWrite};
use bowline_client::{
    Client, Compare, Error, Operation as Do, OperationReply, RangeReply, ReadLevel, TxnReply,
};
use bowline_testing::linear::{Held, Operation};

use crate::states::Shown;

/// How many registers a round has.
pub(crate) const REGISTERS: usize = 6;
/// How many blocks the graph has at most.
pub(crate) const BLOCKS: usize = 12;
/// What stands between the balance of an account and the number of its write.
pub(crate) const STRIDE: u64 = 1 << 32;
/// What the two accounts have together.
pub(crate) const TOTAL: u64 = 1000;
/// How long a client waits for an answer.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(700);

/// What all clients of a round share.
pub(crate) struct Shared {
    pub(crate) round: u64,
    began: Instant,
    numbers: AtomicU64,
    pub(crate) is_over: AtomicBool,
}

impl Shared {
    pub(crate) fn new(round: u64) -> Arc<Shared> {
        Arc::new(Shared {
            round,
            began: Instant::now(),
            numbers: AtomicU64::new(1),
            is_over: AtomicBool::new(false),
        })
    }

    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).expect("a test is short")
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn register(&self, at: usize) -> String {
        format!("{}/register/{at}", self.round)
    }

    pub(crate) fn account(&self, at: usize) -> String {
        format!("{}/account/{at}", self.round)
    }

    pub(crate) fn block(&self, at: usize) -> BlockId {
        BlockId::from_name(&format!("{}/block/{at}", self.round))
    }

    pub(crate) fn ledger(&self) -> String {
        format!("{}/ledger/", self.round)
    }
}

/// A change that was acknowledged, and its revision.
pub(crate) struct Change {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) revision: u64,
    pub(crate) note: String,
}

/// A key of the ledger whose write was acknowledged.
pub(crate) struct Written {
    pub(crate) key: String,
    pub(crate) value: u64,
    pub(crate) revision: u64,
}

/// What the clients of a round were told.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) registers: [Vec<Operation>; REGISTERS],
    pub(crate) accounts: Vec<Operation>,
    /// What reads of registers of every level showed.
    pub(crate) shown: Vec<Shown>,
    pub(crate) lease_reads: u64,
    pub(crate) eventual_reads: u64,
    pub(crate) graph_writes: u64,
    pub(crate) ledger: Vec<Written>,
    /// Of acknowledged changes; for order.
    pub(crate) changes: Vec<Change>,
    /// Of linearizable reads, the newest revision that was there.
    pub(crate) reads: Vec<Change>,
    pub(crate) unknown: u64,
    pub(crate) refused: u64,
}

impl Record {
    pub(crate) fn merge(&mut self, other: Record) {
        for (all, more) in self.registers.iter_mut().zip(other.registers) {
            all.extend(more);
        }
        self.accounts.extend(other.accounts);
        self.shown.extend(other.shown);
        self.lease_reads += other.lease_reads;
        self.eventual_reads += other.eventual_reads;
        self.graph_writes += other.graph_writes;
        self.ledger.extend(other.ledger);
        self.changes.extend(other.changes);
        self.reads.extend(other.reads);
        self.unknown += other.unknown;
        self.refused += other.refused;
    }

    pub(crate) fn answered(&self) -> usize {
        self.changes.len() + self.reads.len()
    }
}

fn number_of(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).expect("what was written is text");
    text.parse().expect("what was written is a number")
}

pub(crate) fn held(reply: &RangeReply) -> Held {
    reply.value().map(number_of)
}

fn equals(key: String, held: Held) -> Compare {
    match held {
        Some(value) => Compare::value(key).equals(value.to_string()),
        None => Compare::version(key).equals(0),
    }
}

/// The reads that a transaction answered with.
fn gets(reply: &TxnReply) -> Vec<Held> {
    let one = |reply: &OperationReply| match reply {
        OperationReply::Get(reply) => Some(held(reply)),
        _ => None,
    };
    reply.replies.iter().filter_map(one).collect()
}

/// One client.
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) client: Client,
    pub(crate) shared: Arc<Shared>,
    pub(crate) random: fastrand::Rng,
    /// What it saw last in each register, and in both accounts: to swap from.
    known: [Held; REGISTERS],
    accounts: [Held; 2],
    record: Record,
}

/// What came of a change.
#[derive(Clone, Copy)]
enum Came {
    /// The answer, and its revision if something was changed.
    Done(u64),
    Unknown,
    /// Nothing was changed, for sure.
    Not,
}

impl Worker {
    pub(crate) fn new(name: String, client: Client, shared: Arc<Shared>, seed: u64) -> Worker {
        Worker {
            name,
            client,
            shared,
            random: fastrand::Rng::with_seed(seed),
            known: [None; REGISTERS],
            accounts: [None; 2],
            record: Record::default(),
        }
    }

    /// Until the round is over.
    pub(crate) async fn run(mut self) -> Record {
        while !self.shared.is_over.load(Ordering::Relaxed) {
            let at = self.random.usize(0..REGISTERS);
            match self.random.u8(0..100) {
                0..28 => self.read(at).await,
                28..40 => self.lease_read(at).await,
                40..44 => self.eventual_read(at).await,
                44..58 => self.put(at).await,
                58..70 => self.swap(at).await,
                70..73 => self.delete(at).await,
                73..78 => self.read_accounts().await,
                78..80 => self.write_graph().await,
                80..92 => self.transfer().await,
                _ => self.write_ledger().await,
            }
            let pause_ms = self.random.u64(0..24);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
        self.record
    }

    fn came(&mut self, start: u64, revision: Result<Revision, &Error>, what: &str) -> Came {
        match revision {
            Ok(revision) => {
                let revision = revision.get();
                self.record.changes.push(Change {
                    start,
                    end: self.shared.now(),
                    revision,
                    note: format!("{} {what}", self.name),
                });
                Came::Done(revision)
            }
            Err(Error::UnknownOutcome { .. }) => {
                self.record.unknown += 1;
                Came::Unknown
            }
            Err(_) => {
                self.record.refused += 1;
                Came::Not
            }
        }
    }

    fn has_read(&mut self, start: u64, revision: u64, what: &str) {
        self.record.reads.push(Change {
            start,
            end: self.shared.now(),
            revision,
            note: format!("{} {what}", self.name),
        });
    }

    /// Puts an operation into a history, unless it did not happen.
    fn note(&mut self, register: Option<usize>, operation: Operation, start: u64, came: Came) {
        let (operation, note) = match came {
            Came::Done(revision) => {
                let end = self.shared.now();
                (
                    operation.lasted(start, end),
                    format!("{} @{revision}", self.name),
                )
            }
            Came::Unknown => (operation.unanswered(start), self.name.clone()),
            Came::Not => return,
        };
        let history = match register {
            Some(at) => &mut self.record.registers[at],
            None => &mut self.record.accounts,
        };
        history.push(operation.noted(note));
    }

    /// What a read of a register showed, of whatever level.
    fn shows(&mut self, at: usize, reply: &RangeReply, level: &str) {
        self.record.shown.push(Shown {
            key: self.shared.register(at),
            revision: reply.header.revision.get(),
            value: held(reply),
            note: format!("{} {level}", self.name),
        });
    }

    async fn read(&mut self, at: usize) {
        let start = self.shared.now();
        if let Ok(reply) = self.client.get(self.shared.register(at)).await {
            self.known[at] = held(&reply);
            self.has_seen(at, &reply, start, "read");
        }
    }

    /// As linearizable as any other read.
    async fn lease_read(&mut self, at: usize) {
        let start = self.shared.now();
        let get = self.client.get(self.shared.register(at));
        if let Ok(reply) = get.level(ReadLevel::Lease).await {
            self.record.lease_reads += 1;
            self.has_seen(at, &reply, start, "lease read");
        }
    }

    /// A read that may not be old.
    fn has_seen(&mut self, at: usize, reply: &RangeReply, start: u64, what: &str) {
        let revision = reply.header.revision;
        self.shows(at, reply, what);
        self.has_read(start, revision.get(), what);
        let operation = Operation::read(0, held(reply)).lasted(start, self.shared.now());
        let note = format!("{} {what} @{revision}", self.name);
        self.record.registers[at].push(operation.noted(note));
    }

    async fn eventual_read(&mut self, at: usize) {
        let get = self.client.get(self.shared.register(at));
        if let Ok(reply) = get.level(ReadLevel::Eventual).await {
            // To swap from it is a good way to be refused.
            self.known[at] = held(&reply);
            self.record.eventual_reads += 1;
            self.shows(at, &reply, "eventual read");
        }
    }

    /// Changes the graph. What came of it shows when members are compared.
    async fn write_graph(&mut self) {
        const KIND: &str = "next";
        let blocks = [0, 1].map(|_| self.shared.block(self.random.usize(0..BLOCKS)));
        let [source, target] = blocks;
        let number = self.shared.number().to_string();
        let writes = match self.random.u8(0..8) {
            0 => vec![GraphWrite::DeleteBlock(source)],
            1 | 2 => vec![GraphWrite::DeleteEdge(EdgeKey::new(source, KIND, target))],
            _ => vec![
                GraphWrite::PutBlock(Block::new(source, "block").content(number.clone())),
                GraphWrite::PutBlock(Block::new(target, "block").content(number)),
                GraphWrite::PutEdge(Edge::new(source, KIND, target)),
            ],
        };
        if self.client.graph().write(writes).await.is_ok() {
            self.record.graph_writes += 1;
        }
    }

    async fn put(&mut self, at: usize) {
        let (start, number) = (self.shared.now(), self.shared.number());
        let with_previous = self.random.bool();
        let mut put = self
            .client
            .put(self.shared.register(at), number.to_string());
        if with_previous {
            put = put.previous();
        }
        let reply = put.await;
        let mut operation = Operation::put(0, number);
        if let (Ok(reply), true) = (&reply, with_previous) {
            let previous = reply.previous.as_ref();
            operation = operation.saw(0, previous.map(|entry| number_of(&entry.value)));
        }
        let came = self.came(
            start,
            reply.as_ref().map(|reply| reply.header.revision),
            "put",
        );
        self.known[at] = Some(number);
        self.note(Some(at), operation, start, came);
    }

    async fn delete(&mut self, at: usize) {
        let start = self.shared.now();
        let reply = self.client.delete(self.shared.register(at)).await;
        let mut operation = Operation::delete(0);
        let came = match &reply {
            // It had nothing to delete: no revision of its own.
            Ok(reply) if reply.deleted == 0 => {
                operation = operation.saw(0, None);
                Came::Done(reply.header.revision.get())
            }
            Ok(reply) => self.came(start, Ok(reply.header.revision), "delete"),
            Err(error) => self.came(start, Err(error), "delete"),
        };
        self.known[at] = None;
        self.note(Some(at), operation, start, came);
    }

    async fn swap(&mut self, at: usize) {
        let (start, number) = (self.shared.now(), self.shared.number());
        let (key, expected) = (self.shared.register(at), self.known[at]);
        let txn = self.client.txn().when([equals(key.clone(), expected)]);
        let txn = txn.then([Do::put(key.clone(), number.to_string())]);
        let reply = txn.otherwise([Do::get(key)]).await;
        let mut operation = Operation::swap(0, expected, number);
        let came = match &reply {
            Ok(reply) if !reply.succeeded => {
                let seen = gets(reply)[0];
                operation = operation.refused().saw(0, seen);
                self.known[at] = seen;
                Came::Done(reply.header.revision.get())
            }
            Ok(reply) => {
                self.known[at] = Some(number);
                self.came(start, Ok(reply.header.revision), "swap")
            }
            Err(error) => self.came(start, Err(error), "swap"),
        };
        self.note(Some(at), operation, start, came);
    }

    async fn read_accounts(&mut self) {
        let start = self.shared.now();
        let keys = [self.shared.account(0), self.shared.account(1)];
        let txn = self.client.txn().then(keys.map(Do::get));
        let Ok(reply) = txn.await else {
            return;
        };
        let seen = gets(&reply);
        self.accounts = [seen[0], seen[1]];
        self.has_read(start, reply.header.revision.get(), "read of both");
        let operation = Operation::read(0, seen[0]).saw(1, seen[1]);
        self.note(
            None,
            operation,
            start,
            Came::Done(reply.header.revision.get()),
        );
    }

    /// Moves an amount from what it saw last. The first makes the accounts.
    async fn transfer(&mut self) {
        let (start, number) = (self.shared.now(), self.shared.number());
        let keys = [self.shared.account(0), self.shared.account(1)];
        let from = self.accounts;
        let balance = match from[0] {
            None => TOTAL / 2,
            Some(value) => {
                let amount = self.random.u64(0..=TOTAL / 10);
                let balance = value / STRIDE;
                match self.random.bool() {
                    true => balance.saturating_sub(amount),
                    false => (balance + amount).min(TOTAL),
                }
            }
        };
        let to = [
            balance * STRIDE + number,
            (TOTAL - balance) * STRIDE + number,
        ];
        let mut operation = Operation::swap(0, from[0], to[0]);
        operation = operation.expecting(1, from[1]).writing(1, Some(to[1]));
        let compares = [
            equals(keys[0].clone(), from[0]),
            equals(keys[1].clone(), from[1]),
        ];
        let puts = [0, 1].map(|at| Do::put(keys[at].clone(), to[at].to_string()));
        let txn = self.client.txn().when(compares).then(puts);
        let reply = txn.otherwise(keys.map(Do::get)).await;
        let came = match &reply {
            Ok(reply) if !reply.succeeded => {
                let seen = gets(reply);
                self.accounts = [seen[0], seen[1]];
                operation = operation.refused().saw(0, seen[0]).saw(1, seen[1]);
                Came::Done(reply.header.revision.get())
            }
            Ok(reply) => {
                self.accounts = to.map(Some);
                self.came(start, Ok(reply.header.revision), "transfer")
            }
            Err(error) => self.came(start, Err(error), "transfer"),
        };
        self.note(None, operation, start, came);
    }

    async fn write_ledger(&mut self) {
        let (start, number) = (self.shared.now(), self.shared.number());
        let key = format!("{}{number}", self.shared.ledger());
        let reply = self.client.put(key.clone(), number.to_string()).await;
        let revision = reply.as_ref().map(|reply| reply.header.revision);
        if let Came::Done(revision) = self.came(start, revision, "ledger") {
            let value = number;
            self.record.ledger.push(Written {
                key,
                value,
                revision,
            });
        }
    }
}
