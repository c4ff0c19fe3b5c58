//! One thread with its transactions, one after the other; and what is not a transaction, but
//! counts as one: single calls, and snapshots that are held for a while.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline::{
    BlockId, Committed, Db, Direction, Error, Expected, Range, Revision, Snapshot, Ticket,
};
use bowline_testing::isolation::{Op, Outcome, Transaction};

use crate::keys::{
    BLOCKS, KIND, block_key, edge_key, register, seen_block, seen_edge, seen_entry, value_bytes,
};
use crate::random::Attempt;
use crate::world::{Flavour, Shared};

/// Snapshots count as processes of their own, since they overlap their thread's transactions.
const SNAPSHOTS: u64 = 1000;
/// So do commits that are under way while their thread goes on.
pub const TICKETS: u64 = 2000;

pub struct Session<'a> {
    pub shared: &'a Shared,
    pub db: &'a Db,
    pub rng: fastrand::Rng,
    process: u64,
    done: Vec<Transaction>,
    held: Option<(Snapshot, Transaction)>,
    under_way: Option<(Ticket, Transaction)>,
}

impl<'a> Session<'a> {
    pub fn new(shared: &'a Shared, db: &'a Db, process: u64, seed: u64) -> Session<'a> {
        Session {
            shared,
            db,
            rng: fastrand::Rng::with_seed(seed),
            process,
            done: Vec::new(),
            held: None,
            under_way: None,
        }
    }

    /// Until there are enough, or the power is lost.
    pub fn run(mut self) -> Vec<Transaction> {
        fastrand::seed(self.rng.u64(..));
        while self.shared.takes_another() {
            if self.rng.u8(0..8) == 0 {
                self.hold_or_read();
            }
            if self.rng.u8(0..6) == 0 {
                self.single_call();
            } else {
                self.transaction();
            }
            if self.rng.bool() {
                self.wait_for_ticket();
            }
        }
        self.wait_for_ticket();
        self.let_go();
        self.done
    }

    /// Reads snapshot after snapshot until the power is lost, or it is told to stop. It never waits
    /// for a flush, so it would see what is visible too early.
    pub fn run_reader(mut self, stop: &AtomicBool) -> Vec<Transaction> {
        while !stop.load(Ordering::Relaxed) && !self.shared.is_lost.load(Ordering::SeqCst) {
            self.hold_or_read();
            self.let_go();
            std::thread::sleep(Duration::from_micros(self.rng.u64(100..700)));
        }
        self.done
    }

    pub fn begin(&self) -> Transaction {
        Transaction {
            process: self.process,
            invoked: self.shared.tick(),
            completed: None,
            outcome: Outcome::Unknown,
            snapshot: None,
            ops: Vec::new(),
        }
    }

    /// The revision of a snapshot, unless the power was lost before it was told: what is shown
    /// after that may be of a commit that the disk never had, and nobody was left to see it.
    pub fn told(&self, revision: u64) -> Option<u64> {
        let is_lost = self.shared.is_lost.load(Ordering::SeqCst);
        (!is_lost).then_some(revision)
    }

    /// Lets others come in between.
    pub fn pause(&mut self) {
        match self.rng.u8(0..12) {
            0..5 => std::thread::yield_now(),
            5 => std::thread::sleep(Duration::from_micros(self.rng.u64(1..120))),
            _ => {}
        }
    }

    /// Notes what became of it. What is known only after the power was lost is not known.
    pub fn end(&mut self, mut transaction: Transaction, result: Result<Committed, Error>) {
        let outcome = match result {
            Ok(committed) => {
                Outcome::Committed(committed.changed.then_some(committed.revision.get()))
            }
            Err(
                error @ (Error::Conflict { .. }
                | Error::CompareFailed { .. }
                | Error::MissingBlock { .. }),
            ) => {
                let conflict = u64::from(error.is_retryable());
                self.shared.conflicts.fetch_add(conflict, Ordering::Relaxed);
                Outcome::Aborted
            }
            Err(error) => panic!("{error} in {transaction}"),
        };
        if !self.shared.is_lost.load(Ordering::SeqCst) {
            transaction.outcome = outcome;
            transaction.completed = Some(self.shared.tick());
        }
        self.done.push(transaction);
    }

    /// Whether the next commit is not waited for.
    pub fn takes_ticket(&mut self) -> bool {
        self.under_way.is_none() && self.rng.u8(0..4) == 0
    }

    /// Commits, and goes on meanwhile.
    pub fn commit_later(&mut self, transaction: bowline::Transaction, record: Transaction) {
        let ticket = self.db.commit_later(transaction).expect("it has a place");
        self.under_way = Some((ticket, record));
    }

    fn wait_for_ticket(&mut self) {
        if let Some((ticket, record)) = self.under_way.take() {
            let result = ticket.wait();
            self.end(record, result);
        }
    }

    /// Notes that it was given up. Nobody else decides that, so it holds after a crash, too.
    pub fn rolled_back(&mut self, mut transaction: Transaction) {
        transaction.outcome = Outcome::Aborted;
        transaction.completed = Some(self.shared.tick());
        self.done.push(transaction);
    }

    fn transaction(&mut self) {
        let record = self.begin();
        let mut attempt = Attempt::begin(self, record);
        for _ in 0..self.rng.u32(1..8) {
            attempt.step(self);
            self.pause();
        }
        attempt.finish(self);
    }

    /// A call outside of any transaction: one of a single operation.
    fn single_call(&mut self) {
        let key = register(self.rng.u64(0..self.shared.hot_keys));
        let mut record = self.begin();
        let number = self.shared.number();
        let value = value_bytes(number, 20);
        let written = |revision| Committed {
            revision,
            deleted: 0,
            changed: true,
        };
        let write = |key| Op::Write { key, value: number };
        let read_only = Ok(Committed {
            revision: Revision::ZERO,
            deleted: 0,
            changed: false,
        });
        let result = match self.rng.u8(0..7) {
            5 => return self.append(record, number),
            6 => return self.claim(record, key, number),
            0 => {
                let result = self.db.put(&key, &value).map(written);
                record.ops.push(write(key));
                result
            }
            1 => {
                let entry = self.db.entry(&key).expect("entry");
                let seen = seen_entry(&key, entry.as_ref());
                self.pause();
                let expected = Expected::from(seen.revision.map(Revision::new));
                let result = self.db.compare_and_swap(&key, expected, &value);
                let expect = Op::Expect {
                    key: key.clone(),
                    seen,
                };
                record.ops.extend([expect, write(key)]);
                result.map(written)
            }
            // After a crash nobody could tell whose deletion it is.
            2 if !self.shared.has_markers => match self.db.delete(&key) {
                Ok(Some(revision)) => {
                    let delete = Op::Delete { key, value: number };
                    record.ops.push(delete);
                    Ok(written(revision))
                }
                Ok(None) => read_only,
                Err(error) => Err(error),
            },
            3 => {
                let found = self.db.range("r/".."r0").expect("range");
                let found = found.map(|entry| {
                    let entry = entry.expect("entry");
                    let key = String::from_utf8(entry.key.to_vec()).expect("it is text");
                    let seen = seen_entry(&key, Some(&entry));
                    (key, seen)
                });
                record.ops.push(Op::Scan {
                    lower: "r/".to_owned(),
                    upper: "r0".to_owned(),
                    found: found.collect(),
                });
                read_only
            }
            _ => {
                let entry = self.db.entry(&key).expect("entry");
                let seen = seen_entry(&key, entry.as_ref());
                record.ops.push(Op::Read { key, seen });
                read_only
            }
        };
        self.end(record, result);
    }

    fn hold_or_read(&mut self) {
        if self.held.is_none() {
            let mut record = self.begin();
            record.process += SNAPSHOTS;
            let snapshot = self.db.snapshot();
            record.snapshot = self.told(snapshot.revision().get());
            self.held = Some((snapshot, record));
        }
        let Some((snapshot, mut record)) = self.held.take() else {
            return;
        };
        self.read_snapshot(&snapshot, &mut record);
        self.held = Some((snapshot, record));
        if self.rng.u8(0..3) == 0 {
            self.let_go();
        }
    }

    fn let_go(&mut self) {
        if let Some((snapshot, record)) = self.held.take() {
            let committed = Committed {
                revision: snapshot.revision(),
                deleted: 0,
                changed: false,
            };
            self.end(record, Ok(committed));
        }
    }

    fn read_snapshot(&mut self, snapshot: &Snapshot, record: &mut Transaction) {
        if matches!(self.shared.flavour, Flavour::Graph | Flavour::Mixed) {
            self.read_graph(snapshot, record);
        }
        let key = match self.shared.flavour {
            Flavour::Lists => self.list_key(),
            _ => register(self.rng.u64(0..self.shared.hot_keys)),
        };
        let entry = snapshot.entry(&key).expect("entry");
        let seen = seen_entry(&key, entry.as_ref());
        record.ops.push(Op::Read { key, seen });
        if self.rng.u8(0..3) > 0 {
            return;
        }
        let range = Range::from("r/".."r0");
        let entries = snapshot.range(range).expect("range");
        let found = entries.map(|entry| {
            let entry = entry.expect("entry");
            let key = String::from_utf8(entry.key.to_vec()).expect("it is text");
            let seen = seen_entry(&key, Some(&entry));
            (key, seen)
        });
        record.ops.push(Op::Scan {
            lower: "r/".to_owned(),
            upper: "r0".to_owned(),
            found: found.collect(),
        });
    }

    /// A block, all its outgoing edges as a range, and its incoming ones from the other side.
    fn read_graph(&mut self, snapshot: &Snapshot, record: &mut Transaction) {
        let graph = snapshot.graph();
        let id = self.rng.u128(1..=BLOCKS);
        let block = graph.block(BlockId(id)).expect("block");
        record.ops.push(Op::Read {
            key: block_key(id),
            seen: seen_block(block.as_ref()),
        });
        let (mut out, mut back) = (Vec::new(), Vec::new());
        if block.is_some() {
            let near = |direction| {
                let near = graph.neighbors(BlockId(id), direction, [""; 0]);
                let near = near.expect("the block is there");
                let mut near: Vec<u128> = near.iter().map(|near| near.id.0).collect();
                near.sort_unstable();
                near
            };
            (out, back) = (near(Direction::Out), near(Direction::In));
        }
        let edge = |source: u128, target: u128| {
            graph
                .edge(BlockId(source), KIND, BlockId(target))
                .expect("edge")
        };
        let found = out.iter().map(|target| {
            let edge = edge(id, *target).expect("it was found from its source");
            (edge_key(id, *target), seen_edge(Some(&edge)))
        });
        record.ops.push(Op::Scan {
            lower: format!("e/{id}/"),
            upper: format!("e/{id}0"),
            found: found.collect(),
        });
        for source in 1..=BLOCKS {
            let edge = edge(source, id);
            assert_eq!(
                edge.is_some(),
                back.contains(&source),
                "the edge from {source} to {id} as seen from both ends, at {}",
                snapshot.revision()
            );
            record.ops.push(Op::Read {
                key: edge_key(source, id),
                seen: seen_edge(edge.as_ref()),
            });
        }
    }

    /// The list of today with a number.
    pub fn list_key(&mut self) -> String {
        const APPENDS_MAX: u64 = 30;
        let list = self.rng.usize(0..self.shared.appends.len());
        let appends = self.shared.appends[list].load(Ordering::Relaxed);
        format!("l/{list}.{:03}", appends / APPENDS_MAX)
    }

    /// Counts an append.
    pub fn appended(&self, key: &str) {
        let list = key.trim_start_matches("l/").split('.').next();
        let list: usize = list.and_then(|text| text.parse().ok()).expect("its number");
        self.shared.appends[list].fetch_add(1, Ordering::Relaxed);
    }
}
