//! How many instructions the hot paths take, counted by valgrind's callgrind where that is
//! installed: nearly the same in every run on a busy machine, so that a regression of some percent
//! shows.
//!
//! Each path runs in a process of its own, once with N operations and once with 3 N. The
//! difference, by 2 N, is what one operation takes; whatever comes before and after cancels out.
//! The databases are in memory and have no threads of their own, so that nothing depends on time.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, Stdio};

use bowline::{Background, Block, BlockId, Db, Direction, Durability, Edge};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::data::{SEED, VALUE_BYTES, is_value_of, key, value};
use crate::fallible::Fallible;
use crate::measure::check;

/// Instructions for each operation, by the name of the path.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Instructions {
    pub per_operation: BTreeMap<String, f64>,
}

impl Instructions {
    pub fn table(&self) -> String {
        let mut text = "| path | instructions per operation |\n|---|---|\n".to_owned();
        for (name, count) in &self.per_operation {
            let _ = writeln!(text, "| {name} | {count:.0} |");
        }
        text
    }
}

/// Keys, and blocks, that there are before a path begins.
const KEYS: u64 = 2_000;
/// N: small enough that valgrind takes seconds.
const OPERATIONS: u64 = 1_000;

type Path = fn(&Db, u64) -> Fallible<()>;

/// The paths that are counted.
const PATHS: [(&str, Path); 12] = [
    ("get, memtable", get),
    ("get, absent", get_absent),
    ("get, table", get_table),
    ("scan, memtable, per entry", scan),
    ("put", put),
    ("transaction of a read and a write", transaction),
    ("snapshot", snapshot),
    ("edge insert", put_edge),
    ("block put, no index", put_block),
    ("block put, 1 index", put_block_with_one_index),
    ("block put, 2 indexes", put_block_with_two_indexes),
    ("1-hop, 10 neighbors", one_hop),
];

/// Counts all paths. Nothing where there is no valgrind.
pub fn count() -> Fallible<Instructions> {
    let mut counted = Instructions::default();
    if !has_valgrind() {
        eprintln!("valgrind is not installed: no instructions are counted");
        return Ok(counted);
    }
    for (name, _) in PATHS {
        eprintln!("counting the instructions of: {name}");
        let (few, many) = (run(name, OPERATIONS)?, run(name, 3 * OPERATIONS)?);
        let each = (many as f64 - few as f64) / (2 * OPERATIONS) as f64;
        counted.per_operation.insert(name.to_owned(), each);
    }
    Ok(counted)
}

pub fn has_valgrind() -> bool {
    let mut command = Command::new("valgrind");
    command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The instructions of a process that runs a path.
fn run(name: &str, operations: u64) -> Fallible<u64> {
    let directory = tempfile::tempdir()?;
    let out = directory.path().join("callgrind.out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe()?)
        .args(["child-path", name, &operations.to_string()])
        .output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("valgrind, {name}: {error}").into());
    }
    let text = std::fs::read_to_string(out)?;
    Ok(total(&text).ok_or("callgrind wrote no totals")?)
}

/// The sum in a file of callgrind, of the one event that it counts unless it is asked for more.
fn total(text: &str) -> Option<u64> {
    let mut lines = text.lines().rev();
    let totals = lines.find_map(|line| line.strip_prefix("totals:"))?;
    totals.split_ascii_whitespace().next()?.parse().ok()
}

/// What runs under valgrind.
pub fn child(name: &str, operations: u64) -> Fallible<()> {
    let path = PATHS.iter().find(|(other, _)| *other == name);
    let (_, path) = path.ok_or("no such path")?;
    let db = Db::builder()
        .durability(Durability::Memory)
        .background(Background::Manual)
        .memtable_bytes(64 << 20)
        .open("memory")?;
    db.transact(|tx| (0..KEYS).try_for_each(|n| tx.put(key(n), value(n))))?;
    db.transact(|tx| (0..KEYS).try_for_each(|n| tx.put_block(&Block::new(id(n), "block"))))?;
    for round in 0..10 {
        db.transact(|tx| (0..KEYS).try_for_each(|n| tx.put_edge(&edge(n, round, "before"))))?;
    }
    path(&db, operations)
}

fn id(number: u64) -> BlockId {
    BlockId::from_bytes(key(number))
}

fn edge(source: u64, round: u64, kind: &str) -> Edge {
    Edge::new(id(source), kind, id((source + 1 + round) % KEYS))
}

fn get(db: &Db, operations: u64) -> Fallible<()> {
    let snapshot = db.snapshot();
    let mut rng = Rng::with_seed(SEED);
    for _ in 0..operations {
        let number = rng.u64(..KEYS);
        let found = snapshot.get(key(number))?;
        let is_right = found.is_some_and(|value| is_value_of(&value, number, VALUE_BYTES));
        check(is_right, "a read gave no or another value")?;
    }
    Ok(())
}

fn get_absent(db: &Db, operations: u64) -> Fallible<()> {
    let snapshot = db.snapshot();
    for number in 0..operations {
        check(snapshot.get(key(KEYS + number))?.is_none(), "found")?;
    }
    Ok(())
}

fn get_table(db: &Db, operations: u64) -> Fallible<()> {
    db.compact()?;
    (0..KEYS).try_for_each(|n| db.get(key(n)).map(drop))?;
    get(db, operations)
}

fn scan(db: &Db, operations: u64) -> Fallible<()> {
    let mut left = operations;
    while left > 0 {
        let count = left.min(500);
        let entries = db.range(..)?.take(count as usize);
        check(
            entries.flatten().count() as u64 == count,
            "entries are missing",
        )?;
        left -= count;
    }
    Ok(())
}

fn put(db: &Db, operations: u64) -> Fallible<()> {
    let mut rng = Rng::with_seed(SEED);
    for _ in 0..operations {
        let number = rng.u64(..KEYS);
        db.put(key(number), value(number))?;
    }
    Ok(())
}

fn transaction(db: &Db, operations: u64) -> Fallible<()> {
    let mut rng = Rng::with_seed(SEED);
    for _ in 0..operations {
        let number = rng.u64(..KEYS);
        let mut tx = db.begin();
        check(tx.get(key(number))?.is_some(), "a key is missing")?;
        tx.put(key(number), value(number))?;
        check(tx.commit()?.changed, "a commit changed nothing")?;
    }
    Ok(())
}

fn snapshot(db: &Db, operations: u64) -> Fallible<()> {
    for _ in 0..operations {
        check(
            std::hint::black_box(db.snapshot()).revision() > 1,
            "nothing there",
        )?;
    }
    Ok(())
}

/// A block whose two attributes get other values.
fn put_block(db: &Db, operations: u64) -> Fallible<()> {
    for operation in 0..operations {
        let block = Block::new(id(operation % KEYS), "block")
            .attribute("name", format!("name {operation}"))
            .attribute("number", operation as i64);
        db.transact(|tx| tx.put_block(&block))?;
    }
    Ok(())
}

fn put_block_with_one_index(db: &Db, operations: u64) -> Fallible<()> {
    db.create_index("block", ["name"])?;
    put_block(db, operations)
}

fn put_block_with_two_indexes(db: &Db, operations: u64) -> Fallible<()> {
    db.create_index("block", ["number"])?;
    put_block_with_one_index(db, operations)
}

fn put_edge(db: &Db, operations: u64) -> Fallible<()> {
    for number in 0..operations {
        let mut tx = db.begin();
        tx.put_edge(&edge(number % KEYS, number / KEYS, "since"))?;
        check(tx.commit()?.changed, "an edge that changed nothing")?;
    }
    Ok(())
}

fn one_hop(db: &Db, operations: u64) -> Fallible<()> {
    let graph = db.snapshot().graph();
    let mut rng = Rng::with_seed(SEED);
    for _ in 0..operations {
        let found = graph.neighbors(id(rng.u64(..KEYS)), Direction::Out, ["before"])?;
        check(found.len() == 10, "not the neighbors that were written")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_does_what_it_says() {
        for (name, _) in PATHS {
            child(name, 50).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    #[test]
    fn totals_are_found() {
        let text = "version: 1\nevents: Ir\nfn=(1)\n1 20\nsummary: 7\ntotals: 123456\n";
        assert_eq!(total(text), Some(123_456));
        assert_eq!(total("version: 1\n"), None);
    }
}
