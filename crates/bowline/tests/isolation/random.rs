//! A random transaction, and the record of it.
//!
//! A deletion is recorded only where it changes something: of a key that the transaction has seen
//! to be there. So a transaction looks before it deletes.

use std::collections::BTreeMap;

use bowline::{BlockId, Db, Error, Expected, Transaction as Tx};
use bowline_testing::isolation::{Op, Outcome, Seen, Transaction, Version};

use crate::keys::{
    self, ABSENT, BLOCKS, KIND, block_key, edge_key, list_bytes, seen_block, seen_bytes, seen_edge,
    seen_entry, value_bytes,
};
use crate::session::{Session, TICKETS};
use crate::world::{Flavour, Shared};

/// A transaction under way.
pub struct Attempt {
    tx: Tx,
    record: Transaction,
    /// What it knows that others have put there, or not.
    was_there: BTreeMap<String, bool>,
    writes: BTreeMap<String, Version>,
    has_deleted_a_block: bool,
}

impl Attempt {
    pub fn begin(session: &Session<'_>, mut record: Transaction) -> Attempt {
        let tx = session.db.begin_with(session.shared.isolation);
        record.snapshot = session.told(tx.snapshot_revision().get());
        Attempt {
            tx,
            record,
            was_there: BTreeMap::new(),
            writes: BTreeMap::new(),
            has_deleted_a_block: false,
        }
    }

    pub fn step(&mut self, session: &mut Session<'_>) {
        let flavour = match session.shared.flavour {
            Flavour::Mixed => {
                let all = [Flavour::Lists, Flavour::Registers, Flavour::Graph];
                all[session.rng.usize(0..all.len())]
            }
            flavour => flavour,
        };
        match flavour {
            Flavour::Lists => self.list_step(session),
            Flavour::Graph => self.graph_step(session),
            _ => self.register_step(session),
        }
    }

    /// Commits, or gives up by choice.
    pub fn finish(self, session: &mut Session<'_>) {
        let Attempt {
            mut tx,
            mut record,
            writes,
            ..
        } = self;
        if session.rng.u8(0..10) == 0 {
            tx.rollback();
            return session.rolled_back(record);
        }
        let later = session.takes_ticket();
        if later {
            record.process += TICKETS;
        }
        if session.shared.has_markers && !writes.is_empty() {
            let (key, number) = (format!("m/{}", record.process), session.shared.number());
            tx.put(&key, value_bytes(number, 0)).expect("put");
            record.ops.push(Op::Write { key, value: number });
        }
        if later {
            return session.commit_later(tx, record);
        }
        let result = tx.commit();
        session.end(record, result);
    }

    fn note_read(&mut self, key: &str, seen: Seen) {
        if !self.writes.contains_key(key) {
            let is_there = seen.version != Version::Absent;
            self.was_there.insert(key.to_owned(), is_there);
        }
        let key = key.to_owned();
        self.record.ops.push(Op::Read { key, seen });
    }

    fn note_write(&mut self, key: &str, version: Version) {
        let op = match &version {
            Version::Value(value) => Op::Write {
                key: key.to_owned(),
                value: *value,
            },
            Version::List(items) => Op::Append {
                key: key.to_owned(),
                value: *items.last().expect("something was appended"),
            },
            Version::Absent => unreachable!("deletions have numbers, too"),
        };
        self.record.ops.push(op);
        self.writes.insert(key.to_owned(), version);
    }

    fn note_delete(&mut self, key: &str, value: u64) {
        let key = key.to_owned();
        self.writes.insert(key.clone(), Version::Absent);
        self.record.ops.push(Op::Delete { key, value });
    }

    /// With the metadata, or only the value.
    fn read(&mut self, session: &mut Session<'_>, key: &str) -> Seen {
        let seen = if session.rng.bool() {
            let entry = self.tx.entry(key).expect("entry");
            let mut seen = seen_entry(key, entry.as_ref());
            if self.writes.contains_key(key) {
                // The revision of what was there before.
                seen.revision = None;
            }
            seen
        } else {
            let value = self.tx.get(key).expect("get");
            value.map_or(ABSENT, |value| seen_bytes(key, &value))
        };
        self.note_read(key, seen.clone());
        seen
    }

    fn scan(&mut self, session: &mut Session<'_>, lower: String, upper: String) {
        let range = self.tx.range(&lower[..]..&upper[..]).expect("range");
        let entries: Vec<_> = if session.rng.u8(0..3) == 0 {
            let mut entries: Vec<_> = range.rev().collect();
            entries.reverse();
            entries
        } else {
            range.collect()
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.expect("entry");
            let key = String::from_utf8(entry.key.to_vec()).expect("it is text");
            let mut seen = seen_entry(&key, Some(&entry));
            if self.writes.contains_key(&key) {
                seen.revision = None;
            } else {
                self.was_there.insert(key.clone(), true);
            }
            found.push((key, seen));
        }
        self.record.ops.push(Op::Scan {
            lower,
            upper,
            found,
        });
    }

    // --- lists ---

    fn list_step(&mut self, session: &mut Session<'_>) {
        let key = session.list_key();
        match session.rng.u8(0..10) {
            0..4 => drop(self.read(session, &key)),
            4 => {
                // All lists of one number, with those of before.
                let (list, _) = key.split_once('.').expect("it has a point");
                self.scan(session, format!("{list}."), format!("{list}/"));
            }
            _ => {
                let mut items = match self.read(session, &key).version {
                    Version::List(items) => items,
                    _ => Vec::new(),
                };
                session.pause();
                items.push(session.shared.number());
                session.appended(&key);
                self.tx.put(&key, list_bytes(&items)).expect("put");
                self.note_write(&key, Version::List(items));
            }
        }
    }

    // --- registers ---

    fn register_step(&mut self, session: &mut Session<'_>) {
        let register = session.rng.u64(0..session.shared.hot_keys);
        let key = keys::register(register);
        let number = session.shared.number();
        match session.rng.u8(0..14) {
            0..5 => drop(self.read(session, &key)),
            5 | 6 => {
                let until = register + session.rng.u64(0..5);
                self.scan(session, key, keys::register(until));
            }
            7 | 8 => self.put(session, &key, number),
            9 | 10 => {
                self.read(session, &key);
                session.pause();
                self.put(session, &key, number);
            }
            11 => {
                if !self.writes.contains_key(&key) {
                    self.read(session, &key);
                }
                let is_there = match self.writes.get(&key) {
                    Some(version) => *version != Version::Absent,
                    None => self.was_there[&key],
                };
                // What it put where nothing was leaves nothing to delete.
                if is_there && self.was_there.get(&key) == Some(&true) {
                    assert!(self.tx.delete(&key).expect("delete"), "{key} is there");
                    self.note_delete(&key, number);
                }
            }
            12 => {
                let Ok(Some(entry)) = session.db.entry(&key) else {
                    return;
                };
                let seen = seen_entry(&key, Some(&entry));
                let expected = Expected::Revision(entry.mod_revision);
                session.pause();
                let op = Op::Expect {
                    key: key.clone(),
                    seen,
                };
                self.record.ops.push(op);
                if session.rng.bool() {
                    let value = value_bytes(number, 30);
                    let swap = self.tx.compare_and_swap(&key, expected, value);
                    swap.expect("it is decided at commit");
                    self.note_write(&key, Version::Value(number));
                } else {
                    self.tx.expect(&key, expected).expect("expect");
                }
            }
            _ => self.delete_range(session, register),
        }
    }

    fn put(&mut self, session: &mut Session<'_>, key: &str, number: u64) {
        let value = value_bytes(number, session.rng.usize(0..200));
        self.tx.put(key, value).expect("put");
        self.note_write(key, Version::Value(number));
    }

    fn delete_range(&mut self, session: &mut Session<'_>, register: u64) {
        if !self.writes.is_empty() {
            return;
        }
        let (lower, upper) = (keys::register(register), keys::register(register + 2));
        self.scan(session, lower.clone(), upper.clone());
        let Some(Op::Scan { found, .. }) = self.record.ops.last() else {
            return;
        };
        let found: Vec<String> = found.iter().map(|(key, _)| key.clone()).collect();
        let count = self.tx.delete_range(lower..upper).expect("delete range");
        assert_eq!(count, found.len() as u64, "{found:?}");
        for key in found {
            self.note_delete(&key, session.shared.number());
        }
    }

    // --- the graph ---

    fn graph_step(&mut self, session: &mut Session<'_>) {
        let source = session.rng.u128(1..=BLOCKS);
        let target = session.rng.u128(1..=BLOCKS);
        let number = session.shared.number();
        match session.rng.u8(0..12) {
            0..3 => drop(self.read_block(source)),
            3..6 => drop(self.read_edge(source, target)),
            _ if self.has_deleted_a_block => {}
            6 | 7 => {
                let block = keys::block(source, number);
                self.tx.put_block(&block).expect("put block");
                self.note_write(&block_key(source), Version::Value(number));
            }
            8 | 9 => {
                let edge = keys::edge(source, target, number);
                match self.tx.put_edge(&edge) {
                    Ok(()) => self.note_write(&edge_key(source, target), Version::Value(number)),
                    Err(Error::MissingBlock { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            10 => {
                let key = edge_key(source, target);
                if self.writes.contains_key(&key) {
                    return;
                }
                let is_there = self.read_edge(source, target);
                let (from, to) = (BlockId(source), BlockId(target));
                let deleted = self.tx.delete_edge(from, KIND, to).expect("delete edge");
                assert_eq!(deleted, is_there);
                if is_there {
                    self.note_delete(&key, number);
                }
            }
            _ => self.delete_block(session, source),
        }
    }

    fn read_block(&mut self, id: u128) -> bool {
        let block = self.tx.block(BlockId(id)).expect("block");
        self.note_read(&block_key(id), seen_block(block.as_ref()));
        block.is_some()
    }

    fn read_edge(&mut self, source: u128, target: u128) -> bool {
        let (from, to) = (BlockId(source), BlockId(target));
        let edge = self.tx.edge(from, KIND, to).expect("edge");
        self.note_read(&edge_key(source, target), seen_edge(edge.as_ref()));
        edge.is_some()
    }

    /// A block goes with all its edges, which are looked at before.
    fn delete_block(&mut self, session: &Session<'_>, id: u128) {
        let is_graph = |key: &String| !key.starts_with("r/") && !key.starts_with("l/");
        if self.writes.keys().any(is_graph) {
            return;
        }
        let mut gone = vec![block_key(id)];
        for other in 1..=BLOCKS {
            for (source, target) in [(id, other), (other, id)] {
                let key = edge_key(source, target);
                if !gone.contains(&key) && self.read_edge(source, target) {
                    gone.push(key);
                }
            }
        }
        if self.read_block(id) {
            assert!(self.tx.delete_block(BlockId(id)).expect("delete block"));
            for key in gone {
                self.note_delete(&key, session.shared.number());
            }
            self.has_deleted_a_block = true;
        }
    }
}

/// One read of everything, after all others.
pub fn read_all(shared: &Shared, db: &Db) -> Transaction {
    let invoked = shared.tick();
    let snapshot = db.snapshot();
    let entries = snapshot.range(..).expect("range");
    let found = entries.map(|entry| {
        let entry = entry.expect("entry");
        let key = String::from_utf8(entry.key.to_vec()).expect("it is text");
        let seen = seen_entry(&key, Some(&entry));
        (key, seen)
    });
    let found = Op::Scan {
        lower: "l".to_owned(),
        upper: "s".to_owned(),
        found: found.collect(),
    };
    let mut ops = vec![found];
    let graph = snapshot.graph();
    for source in 1..=BLOCKS {
        let block = graph.block(BlockId(source)).expect("block");
        ops.push(Op::Read {
            key: block_key(source),
            seen: seen_block(block.as_ref()),
        });
        for target in 1..=BLOCKS {
            let edge = graph.edge(BlockId(source), KIND, BlockId(target));
            ops.push(Op::Read {
                key: edge_key(source, target),
                seen: seen_edge(edge.expect("edge").as_ref()),
            });
        }
    }
    Transaction {
        process: u64::MAX,
        invoked,
        completed: Some(shared.tick()),
        outcome: Outcome::Committed(None),
        snapshot: Some(snapshot.revision().get()),
        ops,
    }
}
