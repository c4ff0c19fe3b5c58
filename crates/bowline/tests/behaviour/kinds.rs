//! Blocks of no kind, of one and of several: they come back, and are found by each of their kinds.

use std::collections::BTreeMap;

use bowline::cypher::{Parameters, Value};
use bowline::{BlobOptions, Block, BlockId, BlockKinds, Db, Error, Result, Transaction};

use super::support::{Stage, in_every_stage, manual};

/// So many kinds do not fit into the part of a large record that scans read.
const MANY: usize = 40;

fn kind(number: usize) -> String {
    format!("many {number:02}")
}

/// Blocks in both versions of the record, small ones and one in a blob file.
fn blocks() -> Vec<Block> {
    let large = vec![7; 5_000];
    vec![
        Block::new(BlockId(1), "person").attribute("name", "ann"),
        Block::new(BlockId(2), BlockKinds::none()).attribute("name", "bob"),
        // The first name has the larger number.
        Block::new(BlockId(3), ["person", "author"]).attribute("name", "cid"),
        Block::new(BlockId(4), ["author", "person", "reader"])
            .attribute("age", 40)
            .content("text"),
        Block::new(BlockId(5), BlockKinds::none()),
        Block::new(BlockId(6), (0..MANY).map(kind).collect::<BlockKinds>())
            .kind("person")
            .content(large.clone()),
        Block::new(BlockId(7), "author").content(large),
    ]
}

/// The ids of the blocks that a query finds.
fn found(rows: &[Vec<Value>]) -> Vec<Value> {
    rows.iter().map(|row| row[0].clone()).collect()
}

fn ids(blocks: impl IntoIterator<Item = u128>) -> Vec<Value> {
    let text = |id| Value::from(BlockId(id).to_string().as_str());
    blocks.into_iter().map(text).collect()
}

#[test]
fn they_come_back_and_are_found_by_each_kind() {
    let settings = manual().blobs(BlobOptions::default());
    in_every_stage(
        settings,
        |db| {
            db.transact(|tx| blocks().iter().try_for_each(|block| tx.put_block(block)))?;
            // Replaced: kinds come and go.
            db.transact(|tx| {
                tx.put_block(&Block::new(BlockId(8), ["person", "gone"]))?;
                tx.put_block(&Block::new(BlockId(8), "reader"))
            })
        },
        |db, _, stage| {
            let mut expected = blocks();
            expected.push(Block::new(BlockId(8), "reader"));
            let graph = db.snapshot().graph();
            let mut counts: BTreeMap<String, u64> = BTreeMap::new();
            for block in &expected {
                assert_eq!(graph.block(block.id)?.as_ref(), Some(block), "{stage:?}");
                let lent = graph.visit_block(block.id, |lent| {
                    assert!(lent.kinds.iter().eq(block.kinds.iter()), "{lent:?}");
                    lent.to_block()
                })?;
                assert_eq!(lent.as_ref(), Some(block));
                for kind in &block.kinds {
                    *counts.entry(kind.clone()).or_default() += 1;
                }
            }
            let mut all = Vec::new();
            graph.for_each_block(|block| {
                all.push(block);
                Ok(())
            })?;
            assert_eq!(all, expected);
            let stats = graph.stats([""; 0])?;
            assert_eq!((stats.blocks, stats.blocks_by_kind), (8, counts));
            assert_found_by_each_kind(db, stage);
            Ok(())
        },
    );
}

fn assert_found_by_each_kind(db: &Db, stage: Stage) {
    let last = kind(MANY - 1);
    let questions = [
        ("n:person".to_owned(), &[1, 3, 4, 6][..]),
        ("n:author".to_owned(), &[3, 4, 7]),
        ("n:person:author".to_owned(), &[3, 4]),
        ("n:reader".to_owned(), &[4, 8]),
        ("n:gone".to_owned(), &[]),
        (format!("n:`{last}`"), &[6]),
        ("n".to_owned(), &[1, 2, 3, 4, 5, 6, 7, 8]),
    ];
    for (pattern, wanted) in questions {
        let text = format!("MATCH ({pattern}) RETURN elementId(n) AS id ORDER BY id");
        let wanted = ids(wanted.iter().copied());
        let of_snapshot = db.snapshot().query(&text, &Parameters::new()).unwrap();
        assert_eq!(found(&of_snapshot.rows), wanted, "{stage:?} {text}");
        let of_transaction = db.begin().query(&text, &Parameters::new()).unwrap();
        assert_eq!(found(&of_transaction.rows), wanted, "{stage:?} {text}");
    }
    let none = "MATCH (n) WHERE labels(n) = [] RETURN elementId(n) AS id ORDER BY id";
    let none = db.snapshot().query(none, &Parameters::new()).unwrap();
    assert_eq!(found(&none.rows), ids([2, 5]), "{stage:?}");
}

/// A transaction finds what it wrote itself by each kind, and what it took a kind from no more.
#[test]
fn own_writes_are_found_by_each_kind() -> Result<()> {
    let db = Db::in_memory()?;
    db.transact(|tx| tx.put_block(&Block::new(BlockId(1), ["a", "b"])))?;
    let mut tx = db.begin();
    tx.put_block(&Block::new(BlockId(1), "b"))?;
    tx.put_block(&Block::new(BlockId(2), ["c", "a"]))?;
    let of = |tx: &mut Transaction, kind: &str| {
        let text = format!("MATCH (n:{kind}) RETURN elementId(n) AS id ORDER BY id");
        found(&tx.query(&text, &Parameters::new()).unwrap().rows)
    };
    assert_eq!(of(&mut tx, "a"), ids([2]));
    assert_eq!(of(&mut tx, "b"), ids([1]));
    assert_eq!(of(&mut tx, "c"), ids([2]));
    assert_eq!(
        tx.block(BlockId(2))?.map(|block| block.kinds),
        Some(["a", "c"].into())
    );
    Ok(())
}

/// One bad name among several refuses the block, and so does one kind too many.
#[test]
fn a_bad_name_among_several_and_too_many_are_refused() -> Result<()> {
    let db = Db::in_memory()?;
    for bad in [String::new(), "k".repeat(257)] {
        let block = Block::new(BlockId(1), ["fine".to_owned(), bad]);
        let refused = db.transact(|tx| tx.put_block(&block));
        assert!(
            matches!(refused, Err(Error::InvalidKind { .. })),
            "{refused:?}"
        );
    }
    let all: BlockKinds = (0..=BlockKinds::MAX).map(kind).collect();
    let refused = db.transact(|tx| tx.put_block(&Block::new(BlockId(1), all.clone())));
    assert!(
        matches!(refused, Err(Error::TooManyKinds { count: 65 })),
        "{refused:?}"
    );
    assert!(
        db.stats()
            .kinds
            .iter()
            .all(|known| !known.starts_with("many")),
        "none is registered"
    );
    assert!(db.snapshot().graph().block(BlockId(1))?.is_none());
    let mut most = all;
    most.remove(&kind(0));
    db.transact(|tx| tx.put_block(&Block::new(BlockId(1), most.clone())))?;
    assert_eq!(
        db.snapshot()
            .graph()
            .block(BlockId(1))?
            .map(|block| block.kinds),
        Some(most)
    );
    Ok(())
}
