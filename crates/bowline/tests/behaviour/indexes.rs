//! Indexes of blocks: the same answers as without one, at every revision, within transactions and while others write; unique
//! values; what a crash leaves of a build.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use std::{panic, thread};

use bowline::cypher::{DraftRead, Drafted, Parameters, Value};
use bowline::{
    AttributeValue, Background, Block, BlockId, Db, Durability, Error, Filter, History, Index,
};
use bowline_testing::{Images, SimDisk};

use crate::support::{Disk, Stage, manual};

/// Settings for a disk that records everything.
fn small() -> bowline::DbBuilder {
    Db::builder()
        .memtable_bytes(32 << 10)
        .log_segment_bytes(32 << 10)
}

fn none() -> Parameters {
    Parameters::new()
}

fn with_history() -> Db {
    let builder = Db::builder().durability(Durability::Memory);
    builder.history(History::All).open("memory").unwrap()
}

fn assert_clean(db: &Db) {
    let check = db.check().unwrap();
    assert!(check.is_clean(), "{:?}", check.problems);
}

fn person(id: u128, name: &str) -> Block {
    Block::new(BlockId(id), "person").attribute("name", name)
}

/// Values that are equal, near one another, of every class, too long for a key, or in no index.
fn value(random: &mut fastrand::Rng) -> AttributeValue {
    let long = "x".repeat(130);
    let big = 1_i64 << 53;
    match random.u8(..20) {
        0 => AttributeValue::Null,
        1 => f64::NAN.into(),
        2 => AttributeValue::List(vec![1.into()]),
        3 => random.bool().into(),
        4 => [big, big + 1, i64::MAX, i64::MIN][random.usize(..4)].into(),
        5 => [big as f64, 0.5, -0.0, 2f64.powi(63), f64::INFINITY][random.usize(..5)].into(),
        6 => format!("{long}{}", random.u8(..3)).as_str().into(),
        7 => ["", "a", "ab", "a\0", "b", "ä"][random.usize(..6)].into(),
        8 => date(["2026-11-29", "2026-11-30"][random.usize(..2)]),
        9 => f64::from(random.i8(-3..4)).into(),
        _ => i64::from(random.i8(-3..4)).into(),
    }
}

fn date(text: &str) -> AttributeValue {
    AttributeValue::Date(text.parse().expect("a date"))
}

const KINDS: [&str; 3] = ["person", "city", "both"];

/// Random writes of a few blocks, in one transaction.
fn write(random: &mut fastrand::Rng, db: &Db) {
    let mut tx = db.begin();
    for _ in 0..random.usize(1..5) {
        let id = BlockId(random.u128(..24));
        if random.u8(..6) == 0 {
            tx.delete_block(id).unwrap();
            continue;
        }
        let kinds: &[&str] = match KINDS[random.usize(..3)] {
            "both" => &["person", "city"],
            "city" => &["city"],
            _ => &["person"],
        };
        let mut block = Block::new(id, kinds.iter().copied().collect::<bowline::BlockKinds>());
        for name in ["a", "b"] {
            if random.u8(..8) > 0 {
                block.attributes.insert(name.to_owned(), value(random));
            }
        }
        tx.put_block(&block).unwrap();
    }
    tx.commit().unwrap();
}

/// A random condition over `n.a`, `n.b` and parameters.
fn condition(random: &mut fastrand::Rng) -> String {
    let name = ["n.a", "n.b"][random.usize(..2)];
    match random.u8(..10) {
        0..3 => format!("{name} = $x"),
        3 => format!("{name} IN [$x, $y, 1]"),
        4 => format!("{name} STARTS WITH $t"),
        5 => format!("$x <= {name} < $y"),
        6 => format!("{name} > $x"),
        7 => format!("{name} <= $y"),
        8 => format!("{name} = $x AND n.b = $y"),
        _ => "n.a = $x AND n.b >= $y".to_owned(),
    }
}

fn ids(answer: &bowline::cypher::Answer) -> Vec<String> {
    let mut ids: Vec<String> = answer.rows.iter().map(|row| row[0].to_string()).collect();
    ids.sort();
    ids
}

/// Two databases with the same writes, one of which has indexes that were created somewhere in between.
#[test]
fn every_query_answers_as_without_an_index() {
    let mut sought = 0;
    for seed in crate::seeds(0x1dec_5000..0x1dec_5004) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (plain, indexed) = (with_history(), with_history());
        let mut asked_at = Vec::new();
        let indexes = [
            ("person", vec!["a"]),
            ("person", vec!["a", "b"]),
            ("city", vec!["b"]),
        ];
        for round in 0..12 {
            for db in [&plain, &indexed] {
                write(&mut fastrand::Rng::with_seed(seed ^ round), db);
            }
            if let Some((kind, attributes)) = indexes.get(round as usize / 3)
                && round % 3 == 1
            {
                indexed.create_index(kind, attributes.clone()).unwrap();
            }
            asked_at.push((plain.snapshot(), indexed.snapshot()));
        }
        assert_clean(&indexed);
        for _ in 0..60 {
            let label = ["person", "city", "city:person", "never"][random.usize(..4)];
            let text = format!(
                "MATCH (n:{label}) WHERE {} AND $x = $x AND $y = $y AND $t = $t RETURN elementId(n)",
                condition(&mut random)
            );
            let text = text.replace("$x = $x", "($x = 0 OR true)");
            let text = text.replace("$y = $y", "($y = 0 OR true)");
            let parameters = Parameters::from([
                ("x".into(), Value::from(value(&mut random))),
                ("y".into(), Value::from(value(&mut random))),
                (
                    "t".into(),
                    Value::from(["", "a", "xx", "a\0"][random.usize(..4)]),
                ),
            ]);
            let (old, new) = &asked_at[random.usize(..asked_at.len())];
            let expected = ids(&old.query(&text, &parameters).unwrap());
            let found = ids(&new.query(&text, &parameters).unwrap());
            assert_eq!(found, expected, "seed {seed}: {text} {parameters:?}");
            let shown = new.build_query(&text).explain(&new.graph()).unwrap();
            sought += usize::from(shown.contains("Seek ("));
            // Over own writes, which hide those of the snapshot.
            let both = [&plain, &indexed].map(|db| {
                let mut tx = db.begin();
                tx.query(
                    "MATCH (n:person) WHERE n.a = 1 SET n.a = 2, n.b = 1",
                    &none(),
                )
                .unwrap();
                tx.query("MATCH (n:city) WHERE n.b > 0 DETACH DELETE n", &none())
                    .unwrap();
                tx.put_block(
                    &Block::new(BlockId(99), "person")
                        .attribute("a", 1)
                        .attribute("b", 2),
                )
                .unwrap();
                ids(&tx.query(&text, &parameters).unwrap())
            });
            assert_eq!(
                both[0], both[1],
                "seed {seed}, own writes: {text} {parameters:?}"
            );
        }
    }
    assert!(sought > 30, "{sought} queries were answered by an index");
}

/// Runs a query that may write as a member of a cluster does; its rows, and what it has read.
fn drafted(db: &Db, text: &str, parameters: &Parameters) -> (Vec<String>, Drafted) {
    let snapshot = db.snapshot();
    let (query, graph) = (snapshot.build_query(text), snapshot.graph());
    let prepared = query.plan(&graph).unwrap();
    let mut rows = Vec::new();
    let mut take = |row: Vec<Value>| {
        rows.push(row[0].to_string());
        Ok(())
    };
    let drafted = graph.draft_query(&query, &prepared, parameters, u64::MAX, &mut take);
    rows.sort();
    (rows, drafted.unwrap().1)
}

/// A query that sees its own writes, where its commit is another's: with indexes and without, and as in a transaction.
#[test]
fn a_drafted_query_answers_as_without_an_index() {
    let mut by_index = 0;
    for seed in crate::seeds(0x1dec_7000..0x1dec_7004) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (plain, indexed) = (with_history(), with_history());
        for round in 0..12 {
            for db in [&plain, &indexed] {
                write(&mut fastrand::Rng::with_seed(seed ^ round), db);
            }
        }
        indexed.create_index("person", ["a"]).unwrap();
        indexed.create_index("person", ["a", "b"]).unwrap();
        for _ in 0..60 {
            let change = [
                "MATCH (m:person) WHERE m.a = 1 SET m.a = 2, m.b = 1",
                "MATCH (m:person) WHERE m.a > 0 DETACH DELETE m",
                "MATCH (m:city) SET m:person, m.a = 1",
            ][random.usize(..3)];
            let text = format!(
                "{change} WITH count(*) AS c MATCH (n:person) WHERE {} AND ($x = 0 OR true) AND ($y = 0 OR true) \
                 AND ($t = '' OR true) RETURN elementId(n)",
                condition(&mut random)
            );
            let parameters = Parameters::from([
                ("x".into(), Value::from(value(&mut random))),
                ("y".into(), Value::from(value(&mut random))),
                ("t".into(), Value::from(["", "a"][random.usize(..2)])),
            ]);
            let (expected, _) = drafted(&plain, &text, &parameters);
            let (found, draft) = drafted(&indexed, &text, &parameters);
            assert_eq!(found, expected, "seed {seed}: {text} {parameters:?}");
            let mut tx = indexed.begin();
            let in_transaction = ids(&tx.query(&text, &parameters).unwrap());
            assert_eq!(
                in_transaction, expected,
                "seed {seed}: {text} {parameters:?}"
            );
            let is_entries = |read: &DraftRead| matches!(read, DraftRead::Entries { .. });
            by_index += usize::from(draft.reads.iter().any(is_entries));
        }
    }
    assert!(
        by_index > 30,
        "{by_index} queries were answered by an index"
    );
}

/// Pages of an index, of which some are hidden by own writes, and own blocks behind them.
#[test]
fn a_drafted_query_reads_pages_of_an_index_and_notes_the_range() {
    let db = with_history();
    db.transact(|tx| {
        (0..1_500).try_for_each(|id| {
            let block = person(id, "Ada").attribute("number", id as i64);
            tx.put_block(&block)
        })
    })
    .unwrap();
    db.create_index("person", ["name"]).unwrap();
    for (change, count) in [
        ("SET m.mark = 1", 1_500),
        ("SET m.name = 'Bob'", 800),
        ("DELETE m", 800),
        ("CREATE (:person {name: 'Ada'})", 2_200),
    ] {
        let text = format!(
            "MATCH (m:person {{name: 'Ada'}}) WHERE m.number % 1000 < 350 {change} WITH count(*) AS c \
             MATCH (n:person {{name: 'Ada'}}) RETURN count(n)"
        );
        let (rows, draft) = drafted(&db, &text, &none());
        assert_eq!(rows, [count.to_string()], "{change}");
        let ranges = |read: &&DraftRead| matches!(read, DraftRead::Entries { .. });
        assert_eq!(draft.reads.iter().filter(ranges).count(), 1);
        // Besides, the blocks by themselves.
        let is_span = |read: &DraftRead| match read {
            DraftRead::Blocks { first, last } => last.0 - first.0 > 1_500,
            _ => false,
        };
        assert!(!draft.reads.iter().any(is_span), "{change}");
    }
}

/// The filters of the library, too, at every revision.
#[test]
fn filters_pass_the_same_blocks_with_and_without_an_index() {
    let mut by_index = 0;
    for seed in crate::seeds(0x1dec_6000..0x1dec_6004) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (plain, indexed) = (with_history(), with_history());
        indexed.create_index("person", ["a"]).unwrap();
        indexed.create_index("person", ["b", "a"]).unwrap();
        for _ in 0..10 {
            let own = random.u64(..);
            for db in [&plain, &indexed] {
                write(&mut fastrand::Rng::with_seed(own), db);
            }
            let graphs = [&plain, &indexed].map(|db| db.snapshot().graph());
            for _ in 0..60 {
                let mut filter = || match random.u8(..8) {
                    6 => Filter::From(Bound::Unbounded),
                    7 => Filter::To(Bound::Unbounded),
                    0 => Filter::one_of([value(&mut random), value(&mut random)]),
                    1 => Filter::at_least(value(&mut random)),
                    2 => Filter::below(value(&mut random)),
                    3 => Filter::starts_with("a"),
                    _ => Filter::equals(value(&mut random)),
                };
                let filters = [("a", filter()), ("b", filter()), ("a", filter())];
                let count = 1 + usize::from(random.u8(..3));
                let [expected, found] = [&graphs[0], &graphs[1]].map(|graph| {
                    let mut blocks = graph.blocks("person");
                    for (name, filter) in &filters[..count] {
                        blocks = blocks.filter(*name, filter.clone());
                    }
                    by_index += usize::from(blocks.index().is_some());
                    let mut ids = blocks.ids().unwrap();
                    assert_eq!(blocks.run().unwrap().len(), ids.len());
                    assert_eq!(
                        blocks.clone().limit(1).ids().unwrap().len(),
                        ids.len().min(1)
                    );
                    ids.sort();
                    ids
                });
                assert_eq!(found, expected, "seed {seed}: {:?}", &filters[..count]);
            }
        }
        assert_clean(&indexed);
    }
    assert!(
        by_index > 100,
        "{by_index} questions were answered by an index"
    );
}

#[test]
fn an_index_is_there_wherever_the_data_lies_and_until_it_is_dropped() {
    for stage in Stage::ALL {
        let disk = Disk::new();
        let db = disk.open(manual());
        db.transact(|tx| {
            let mut people = (0..600).map(|id| person(id, &format!("name{}", id % 7)));
            people.try_for_each(|block| tx.put_block(&block))
        })
        .unwrap();
        let index = db.create_index("person", ["name"]).unwrap();
        assert_eq!(
            db.create_index("person", ["name"]).unwrap(),
            index,
            "once is enough"
        );
        let other = db.create_unique_index("person", ["name"]);
        assert!(matches!(
            other,
            Err(Error::IndexExists {
                is_unique: false,
                ..
            })
        ));
        db.transact(|tx| tx.put_block(&person(1000, "name3")))
            .unwrap();
        let db = stage.reach(db, &disk, manual()).unwrap();
        assert_eq!(db.indexes(), [index], "{stage:?}");
        assert_clean(&db);
        let graph = db.snapshot().graph();
        let found = graph
            .blocks("person")
            .filter("name", Filter::equals("name3"));
        assert!(found.index().is_some());
        assert_eq!(found.ids().unwrap().len(), 87);
        db.drop_index("person", ["name"]).unwrap();
        assert!(matches!(
            db.drop_index("person", ["name"]),
            Err(Error::IndexNotFound { .. })
        ));
        assert_eq!(found.ids().unwrap().len(), 87, "an old snapshot keeps it");
        let graph = db.snapshot().graph();
        let found = graph
            .blocks("person")
            .filter("name", Filter::equals("name3"));
        assert!(found.index().is_none());
        assert_eq!(found.ids().unwrap().len(), 87);
        assert_clean(&db);
        let again = db.create_index("person", ["name"]).unwrap();
        assert!(again.ready_since.is_some());
        assert_clean(&db);
    }
}

#[test]
fn a_transaction_that_read_by_an_index_conflicts_with_what_it_would_have_found() {
    let db = Db::in_memory().unwrap();
    db.create_index("person", ["age"]).unwrap();
    let put = |id: u128, age: i64| {
        let block = Block::new(BlockId(id), "person").attribute("age", age);
        db.transact(|tx| tx.put_block(&block)).unwrap();
    };
    put(1, 10);
    let count = "MATCH (p:person) WHERE p.age >= 30 RETURN count(p)";
    let shown = db
        .snapshot()
        .build_query(count)
        .explain(&db.snapshot().graph())
        .unwrap();
    assert!(
        shown.contains("Seek (p:person) by its index, age >= 30"),
        "{shown}"
    );
    let begin = |count: &str| {
        let mut tx = db.begin();
        tx.query(count, &none()).unwrap();
        tx.put("count", "0").unwrap();
        tx
    };
    let tx = begin(count);
    put(2, 20);
    tx.commit().expect("what it did not read has changed");
    let tx = begin(count);
    put(3, 30);
    assert!(
        matches!(tx.commit(), Err(Error::Conflict { .. })),
        "a phantom"
    );
    let tx = begin(count);
    put(3, 31);
    assert!(
        matches!(tx.commit(), Err(Error::Conflict { .. })),
        "a change within the range"
    );
    // From then on nobody notes what is put into the range.
    let tx = begin("MATCH (p:person) WHERE p.age >= 50 RETURN count(p)");
    db.drop_index("person", ["age"]).unwrap();
    put(4, 60);
    assert!(
        matches!(tx.commit(), Err(Error::Conflict { .. })),
        "the index is gone"
    );
}

#[test]
fn one_of_many_that_put_a_unique_value_at_once_wins() {
    let db = Arc::new(Db::in_memory().unwrap());
    db.create_unique_index("person", ["name"]).unwrap();
    for round in 0..20_u128 {
        let start = Arc::new(Barrier::new(4));
        let threads: Vec<_> = (0..4_u128)
            .map(|n| {
                let (db, start) = (db.clone(), start.clone());
                thread::spawn(move || {
                    let block = person(round * 4 + n, &format!("name{round}"));
                    start.wait();
                    db.transact(|tx| tx.put_block(&block))
                })
            })
            .collect();
        let results: Vec<_> = threads.into_iter().map(|it| it.join().unwrap()).collect();
        let won = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(won, 1, "{results:?}");
        let refused = |result: &Result<(), Error>| matches!(result, Err(Error::NotUnique { .. }));
        assert_eq!(
            results.iter().filter(|it| refused(it)).count(),
            3,
            "{results:?}"
        );
    }
    // Of those that look first, all succeed, and one creates.
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let db = db.clone();
            thread::spawn(move || {
                for n in 0..10 {
                    let text = format!("MERGE (p:person {{name: 'merged{n}'}}) SET p.seen = 1");
                    db.query(&text, &none()).unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|it| it.join().unwrap());
    let text = "MATCH (p:person) WHERE p.name STARTS WITH 'merged' RETURN count(p)";
    assert_eq!(db.query(text, &none()).unwrap().rows, [[Value::Int(10)]]);
    assert_clean(&db);
}

#[test]
fn unique_values_may_change_hands_within_a_transaction() {
    let db = Db::in_memory().unwrap();
    db.create_unique_index("person", ["name"]).unwrap();
    let put = |blocks: &[Block]| {
        db.transact(|tx| blocks.iter().try_for_each(|block| tx.put_block(block)))
    };
    put(&[person(1, "a"), person(2, "b")]).unwrap();
    put(&[person(1, "b"), person(2, "a")]).unwrap();
    let twice = put(&[person(3, "c"), person(4, "c")]);
    assert!(matches!(twice, Err(Error::NotUnique { .. })), "{twice:?}");
    let taken = put(&[person(5, "a")]);
    assert!(
        matches!(
            taken,
            Err(Error::NotUnique {
                other: BlockId(2),
                ..
            })
        ),
        "{taken:?}"
    );
    db.transact(|tx| tx.delete_block(BlockId(2)).map(drop))
        .unwrap();
    put(&[person(5, "a")]).unwrap();
    // Without the value a block is not in it.
    put(&[
        Block::new(BlockId(6), "person"),
        Block::new(BlockId(7), "person"),
    ])
    .unwrap();
    assert_clean(&db);
}

#[test]
fn a_unique_index_over_equal_values_names_ten_pairs_and_is_gone() {
    let db = Db::in_memory().unwrap();
    for id in 0..40 {
        db.transact(|tx| tx.put_block(&person(id, &format!("name{}", id % 20))))
            .unwrap();
    }
    let Err(Error::BuiltNotUnique { pairs, .. }) = db.create_unique_index("person", ["name"])
    else {
        panic!("it is not unique");
    };
    assert_eq!(pairs.len(), 10);
    for (block, other) in pairs {
        assert_eq!(block.0 % 20, other.0 % 20);
        assert_ne!(block, other);
    }
    assert!(db.indexes().is_empty());
    assert_clean(&db);
    db.transact(|tx| tx.put_block(&person(50, "name0")))
        .unwrap();
    db.create_index("person", ["name"]).unwrap();
    assert_clean(&db);
}

/// A builder left out a block that clashed with another, and marked that it had come farther. After a crash the next one went on
/// from the mark, found no clash, and the index was complete and unique: without the block.
#[test]
fn a_unique_index_over_equal_values_is_refused_after_every_crash() {
    let open = |disk: SimDisk| {
        let builder = small().background(Background::Manual);
        builder.vfs(Arc::new(disk)).open("/db").unwrap()
    };
    let disk = SimDisk::new();
    let db = open(disk.clone());
    let blocks = (0..600u128).map(|id| person(id, &format!("name{}", id.max(1))));
    let mut blocks = blocks.collect::<Vec<_>>().into_iter();
    db.transact(|tx| blocks.try_for_each(|block| tx.put_block(&block)))
        .unwrap();
    db.flush().unwrap();
    let first = disk.recording().len();
    let create = |db: &Db| db.create_unique_index("person", ["name"]);
    assert!(matches!(create(&db), Err(Error::BuiltNotUnique { .. })));
    drop(db);
    let mut unfinished = 0;
    for image in &mut Images::sample_from(&disk.recording(), first, 0x1dec, 60) {
        let db = open(image.build());
        unfinished += usize::from(!db.indexes().is_empty());
        let created = create(&db);
        let Err(Error::BuiltNotUnique { pairs, .. }) = created else {
            panic!("{image}: {created:?}");
        };
        assert_eq!(pairs, [(BlockId(0), BlockId(1))], "{image}");
        assert!(db.indexes().is_empty(), "{image}");
        assert_clean(&db);
        let graph = db.snapshot().graph();
        let both = graph
            .blocks("person")
            .filter("name", Filter::equals("name1"));
        assert_eq!(both.ids().unwrap().len(), 2, "{image}");
    }
    assert!(unfinished > 2, "{unfinished}");
}

/// Others change, delete and add blocks on both sides of the builder.
#[test]
fn an_index_is_complete_that_was_built_while_others_wrote() {
    for background in [Background::Threads, Background::Manual] {
        let builder = Db::builder().durability(Durability::Memory);
        let db = Arc::new(builder.background(background).open("memory").unwrap());
        db.transact(|tx| (0..1_500).try_for_each(|id| tx.put_block(&person(id, "old"))))
            .unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..2)
            .map(|seed| {
                let (db, is_over) = (db.clone(), is_over.clone());
                thread::spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    while !is_over.load(Ordering::Relaxed) {
                        let id = random.u128(..2_000);
                        let result = match random.u8(..4) {
                            0 => db.transact(|tx| tx.delete_block(BlockId(id)).map(drop)),
                            n => db.transact(|tx| tx.put_block(&person(id, &format!("new{n}")))),
                        };
                        result.unwrap();
                    }
                })
            })
            .collect();
        let created = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            for _ in 0..2 {
                db.create_index("person", ["name"]).unwrap();
                assert_clean(&db);
                db.drop_index("person", ["name"]).unwrap();
            }
            db.create_index("person", ["name"]).unwrap();
        }));
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|it| it.join().unwrap());
        created.unwrap_or_else(|cause| panic::resume_unwind(cause));
        assert_clean(&db);
        let graph = db.snapshot().graph();
        let mut of_index = 0;
        for name in ["old", "new1", "new2", "new3"] {
            let found = graph.blocks("person").filter("name", Filter::equals(name));
            assert!(found.index().is_some());
            of_index += found.ids().unwrap().len();
        }
        assert_eq!(of_index, graph.blocks("person").ids().unwrap().len());
    }
}

/// Crashes while an index is built, used, dropped and built again.
#[test]
fn a_build_goes_on_after_every_crash() {
    let open = |disk: SimDisk| {
        let builder = small().background(Background::Manual);
        builder.vfs(Arc::new(disk)).open("/db").unwrap()
    };
    let disk = SimDisk::new();
    let db = open(disk.clone());
    let put = |db: &Db, from: u128| {
        let blocks = (from..from + 100).map(|id| person(id, &format!("name{}", id % 5)));
        let mut blocks = blocks.collect::<Vec<_>>().into_iter();
        db.transact(|tx| blocks.try_for_each(|block| tx.put_block(&block)))
            .unwrap();
    };
    for from in 0..6 {
        put(&db, from * 100);
    }
    db.flush().unwrap();
    let first = disk.recording().len();
    db.create_index("person", ["name"]).unwrap();
    disk.mark(1);
    put(&db, 500);
    put(&db, 900);
    db.drop_index("person", ["name"]).unwrap();
    disk.mark(2);
    db.create_index("person", ["name"]).unwrap();
    disk.mark(3);
    drop(db);
    let (mut unfinished, mut tried) = (0, 0);
    let count = 60;
    for image in &mut Images::sample_from(&disk.recording(), first, 0x1dec, count) {
        let db = open(image.build());
        tried += 1;
        let found = db.indexes();
        let is_ready = |index: &Index| index.ready_since.is_some();
        match image.marks().into_iter().max() {
            Some(1) | None => {}
            Some(2) => assert!(found.len() <= 1, "{image}"),
            _ => assert!(found.iter().any(is_ready), "{image}: {found:?}"),
        }
        unfinished += usize::from(!found.iter().any(is_ready));
        let check = db.check().unwrap();
        assert!(check.is_clean(), "{image}: {:?}", check.problems);
        db.create_index("person", ["name"]).unwrap();
        let check = db.check().unwrap();
        assert!(check.is_clean(), "{image}: {:?}", check.problems);
        let graph = db.snapshot().graph();
        let found = graph
            .blocks("person")
            .filter("name", Filter::equals("name2"));
        assert!(found.index().is_some());
        let expected = graph.blocks("person").ids().unwrap().len() / 5;
        assert_eq!(found.ids().unwrap().len(), expected, "{image}");
    }
    assert!(
        unfinished > 2 && unfinished < tried,
        "{unfinished} of {tried}"
    );
}

/// Without a call: by the thread of the next opening.
#[test]
fn a_thread_goes_on_with_what_a_crash_left() {
    let disk = SimDisk::new();
    let builder = || small().vfs(Arc::new(disk.clone()));
    let db = builder()
        .background(Background::Manual)
        .open("/db")
        .unwrap();
    db.transact(|tx| (0..300).try_for_each(|id| tx.put_block(&person(id, "a"))))
        .unwrap();
    db.flush().unwrap();
    let first = disk.recording().len();
    db.create_index("person", ["name"]).unwrap();
    drop(db);
    let recording = disk.recording();
    let unfinished = (first..recording.len()).find_map(|point| {
        let killed = || Arc::new(SimDisk::killed_at(&recording, point));
        let db = small().background(Background::Manual).vfs(killed());
        let db = db.open("/db").unwrap();
        let is_building = db
            .indexes()
            .first()
            .is_some_and(|index| index.ready_since.is_none());
        is_building.then(killed)
    });
    let disk = unfinished.expect("a crash within the build");
    let db = small().vfs(disk).open("/db").unwrap();
    let deadline = Instant::now() + crate::support::TIMEOUT;
    while db.indexes()[0].ready_since.is_none() {
        assert!(Instant::now() < deadline, "nobody builds it");
        thread::sleep(Duration::from_millis(1));
    }
    assert_clean(&db);
}

#[test]
fn what_does_not_keep_indexes_is_refused_where_there_are_some() {
    let db = Db::in_memory().unwrap();
    let mut before = db.ingest_graph().unwrap();
    before.block(&person(1, "a")).unwrap();
    db.create_index("person", ["name"]).unwrap();
    assert!(matches!(before.commit(), Err(Error::NotSupported { .. })));
    db.drop_index("person", ["name"]).unwrap();
    let mut after = db.ingest_graph().unwrap();
    after.block(&person(1, "a")).unwrap();
    after.commit().unwrap();
    for wrong in [vec![], vec!["a", "a"], vec![""], vec!["a"; 9]] {
        assert!(matches!(
            db.create_index("person", wrong),
            Err(Error::InvalidIndex { .. })
        ));
    }
}

/// Plans are held by text. One that was made before an index was created is not used after it.
#[test]
fn a_plan_that_is_held_follows_the_indexes() {
    let db = Db::in_memory().unwrap();
    let block = Block::new(BlockId(1), "person").attribute("age", 7);
    db.transact(|tx| tx.put_block(&block)).unwrap();
    let text = "MATCH (p:person {age: 7}) RETURN p.age";
    let plan = || {
        let snapshot = db.snapshot();
        let query = snapshot.build_query(text);
        assert_eq!(query.run(&snapshot.graph(), &none()).unwrap().rows.len(), 1);
        query.explain(&snapshot.graph()).unwrap()
    };
    assert!(plan().contains("Scan"));
    let before = db.snapshot();
    db.create_index("person", ["age"]).unwrap();
    assert!(plan().contains("Seek"));
    let older = before.build_query(text).explain(&before.graph()).unwrap();
    assert!(older.contains("Scan"), "it had none: {older}");
    assert!(plan().contains("Seek"));
    db.drop_index("person", ["age"]).unwrap();
    assert!(plan().contains("Scan"));
}

/// An entry that another block gives up was sought among all that go: to renumber blocks took time in the square of their
/// number, in which nobody else committed.
#[test]
fn a_shift_of_unique_values_takes_time_in_proportion() {
    let shift = |is_unique: bool| {
        let db = Db::in_memory().unwrap();
        let created = match is_unique {
            true => db.create_unique_index("task", ["place"]),
            false => db.create_index("task", ["place"]),
        };
        created.unwrap();
        let put = |by: i64| {
            let blocks = (0..100_000).map(|id| (BlockId(id), id as i64 + by));
            let block = |(id, place)| Block::new(id, "task").attribute("place", place);
            db.transact(|tx| blocks.clone().try_for_each(|it| tx.put_block(&block(it))))
                .unwrap();
        };
        put(0);
        let start = Instant::now();
        put(1);
        start.elapsed()
    };
    let (plain, unique) = (shift(false), shift(true));
    let most = plain * 3 + Duration::from_secs(5);
    assert!(unique < most, "{unique:?}, and {plain:?} without");
}
