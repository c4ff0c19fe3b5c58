//! What queries hold of blocks beside the graph view: a query answers as the trees do, at every revision, whatever changed.
//!
//! The trees are read by `Graph::for_each_block` of the same snapshot.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bowline::cypher::{Parameters, Value};
use bowline::{AttributeValue, Block, BlockId, Db, Durability, Edge, History, Revision, Snapshot};
use bowline_testing::Seed;

const NAMES: [&str; 3] = ["n", "m", "text"];

fn db() -> Db {
    let builder = Db::builder()
        .durability(Durability::Memory)
        .history(History::All);
    builder.open("memory").expect("opens")
}

/// What a query reads of all blocks: the values of the names, and whether the block is hot.
fn by_query(snapshot: &Snapshot) -> Vec<String> {
    let text = "MATCH (b) RETURN b.key AS key, b.n AS n, b.m AS m, b.text AS text, b:hot AS hot, count(*) AS count";
    let answer = snapshot.query(text, &Parameters::new()).expect("answers");
    let mut rows: Vec<String> = answer
        .rows
        .iter()
        .map(|row| row.iter().map(|value| format!("{value} ")).collect())
        .collect();
    rows.sort();
    rows
}

/// The same by the trees.
fn by_trees(snapshot: &Snapshot) -> Vec<String> {
    let mut blocks: BTreeMap<String, u64> = BTreeMap::new();
    let shown = |value: Option<&AttributeValue>| match value {
        Some(value) => Value::from(value.clone()),
        None => Value::Null,
    };
    let read = snapshot.graph().for_each_block(|block| {
        let mut row = String::new();
        for name in ["key"].iter().chain(&NAMES) {
            row += &format!("{} ", shown(block.attributes.get(*name)));
        }
        row += &format!("{} ", block.kinds.iter().any(|kind| kind == "hot"));
        *blocks.entry(row).or_default() += 1;
        Ok(())
    });
    read.expect("reads");
    blocks
        .into_iter()
        .map(|(row, count)| format!("{row}{count} "))
        .collect()
}

fn random_block(random: &mut fastrand::Rng, id: u64) -> Block {
    let kind = random.choice(["hot", "cold"]).expect("one of two");
    let mut block = Block::new(BlockId(u128::from(id)), kind).attribute("key", id as i64);
    for name in NAMES {
        block = match random.u8(..4) {
            0 => block.attribute(name, i64::from(random.u8(..))),
            1 => block.attribute(name, format!("text {}", random.u8(..))),
            2 => block.attribute(name, 0.5),
            _ => block,
        };
    }
    // Names that no query asks for, known from now on.
    match random.u8(..8) {
        0 => block.attribute(format!("other {}", random.u8(..)), true),
        _ => block,
    }
}

#[test]
fn a_query_sees_every_change_of_what_is_held() {
    for seed in Seed::many(0..8, "-p bowline --test behaviour held_blocks") {
        let mut random = fastrand::Rng::with_seed(seed);
        let db = db();
        db.build_graph_view().expect("builds");
        let mut held = 0;
        for step in 0..150 {
            let changed = db.transact(|tx| {
                for _ in 0..random.u8(1..4) {
                    let id = random.u64(..12);
                    match random.u8(..6) {
                        0 => drop(tx.delete_block(BlockId(u128::from(id)))?),
                        _ => tx.put_block(&random_block(&mut random, id))?,
                    }
                }
                Ok(())
            });
            changed.expect("commits");
            if random.u8(..40) == 0 {
                db.build_graph_view().expect("builds");
            }
            let newest = db.revision().get();
            let back = random.u64(0..4).min(newest - 1);
            for at in [newest, newest - back] {
                let snapshot = db.snapshot_at(Revision::new(at)).expect("is kept");
                assert_eq!(
                    by_query(&snapshot),
                    by_trees(&snapshot),
                    "seed {seed}, step {step}, at {at}"
                );
            }
            held = held.max(db.stats().graph_view.held_blocks);
        }
        assert!(held > 6, "seed {seed}: {held} blocks were held at most");
    }
}

/// Amounts move between blocks, so that their sum stays: a query that took one of them from before a commit and another one
/// from after it would see another sum. The view is given up and built anew meanwhile.
#[test]
fn a_query_beside_writers_sees_one_revision() {
    const BLOCKS: u64 = 16;
    const MOVES: u64 = 1_500;
    let db = db();
    let id = |number: u64| BlockId(u128::from(number));
    let item =
        |number: u64, amount: i64| Block::new(id(number), "item").attribute("amount", amount);
    let put = db.transact(|tx| {
        for number in 0..BLOCKS {
            tx.put_block(&item(number, 100))?;
        }
        tx.put_edge(&Edge::new(id(0), "next", id(1)))
    });
    put.expect("commits");
    db.build_graph_view().expect("builds");
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(7);
            let mut amounts = [100_i64; BLOCKS as usize];
            for moved in 0..MOVES {
                let (from, to) = (random.u64(..BLOCKS), random.u64(..BLOCKS));
                amounts[from as usize] -= 1;
                amounts[to as usize] += 1;
                let commit = db.transact(|tx| {
                    tx.put_block(&item(from, amounts[from as usize]))?;
                    tx.put_block(&item(to, amounts[to as usize]))
                });
                commit.expect("commits");
                if moved % 500 == 250 {
                    db.build_graph_view().expect("builds");
                }
            }
            is_done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            let text = "MATCH (b:item) RETURN sum(b.amount), count(*)";
            let expected = [Value::Int(100 * BLOCKS as i64), Value::Int(BLOCKS as i64)];
            let mut asked = 0;
            while !is_done.load(Ordering::Acquire) || asked < 10 {
                let answer = db.snapshot().query(text, &Parameters::new());
                let rows = answer.expect("answers").rows;
                assert_eq!(rows.len(), 1);
                assert_eq!(rows[0], expected);
                asked += 1;
            }
        });
    });
    // The last view was begun with nothing.
    by_query(&db.snapshot());
    assert!(db.stats().graph_view.held_blocks > 0);
}
