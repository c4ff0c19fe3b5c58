//! Bulk load of a graph: what is there afterwards is what one transaction would have put, or nothing of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bowline::vfs::{MemoryVfs, Vfs};
use bowline::{
    Background, Block, BlockId, CompactionOptions, Db, DbBuilder, Direction, Edge, Error, Graph,
    GraphIngest, Limits, Result, StorageError,
};
use bowline_testing::{FaultVfs, Images, Seed, SimDisk};

use crate::support::{assert_error, manual};

/// So small that a hundred edges fill several runs and tables.
fn small() -> DbBuilder {
    manual()
        .memtable_bytes(4 << 10)
        .log_segment_bytes(64 << 10)
        .page_bytes(512)
        .compaction(CompactionOptions {
            table_bytes: 4 << 10,
            ..CompactionOptions::default()
        })
}

const KINDS: [&str; 3] = ["link", "owns", "needs"];

fn id(number: u64) -> BlockId {
    BlockId(u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

/// Everything of a graph, read in each way that there is.
#[derive(Debug, Default, PartialEq)]
struct Contents {
    blocks: BTreeMap<BlockId, Block>,
    edges: BTreeMap<(BlockId, String, BlockId), Edge>,
    incoming: BTreeSet<(BlockId, String, BlockId)>,
}

fn contents(graph: &Graph) -> Contents {
    let mut found = Contents::default();
    let read = graph.for_each_block(|block| {
        found.blocks.insert(block.id, block);
        Ok(())
    });
    read.expect("reads");
    let read = graph.for_each_edge(|edge| {
        let key = (edge.source, edge.kind.clone(), edge.target);
        found.edges.insert(key, edge);
        Ok(())
    });
    read.expect("reads");
    for &near in found.blocks.keys() {
        let row = graph.neighbors(near, Direction::In, [""; 0]);
        for there in row.expect("reads") {
            found
                .incoming
                .insert((there.id, there.kind.to_string(), near));
        }
    }
    found
}

/// What a load and a transaction are given.
enum Item {
    Block(Block),
    /// If there is no such block.
    Absent(Block),
    Edge(Edge),
}

fn items(random: &mut fastrand::Rng, blocks: u64, count: usize) -> Vec<Item> {
    let mut items = Vec::new();
    for number in 0..count {
        let kind = KINDS[random.usize(..3)];
        items.push(match random.u8(..8) {
            0 => {
                let block = Block::new(id(random.u64(..blocks)), kind);
                Item::Block(block.content(vec![7; random.usize(..40)]))
            }
            1 => {
                let block = Block::new(id(random.u64(..blocks)), kind);
                Item::Absent(block.attribute("number", number.to_string()))
            }
            _ => {
                let (from, to) = (id(random.u64(..blocks)), id(random.u64(..blocks)));
                let edge = Edge::new(from, kind, to);
                Item::Edge(match random.bool() {
                    true => edge.attribute("number", number.to_string()),
                    false => edge,
                })
            }
        });
    }
    items
}

fn load(db: &Db, items: &[Item]) -> Result<GraphIngest> {
    let mut ingest = db.ingest_graph()?;
    for item in items {
        match item {
            Item::Block(block) => ingest.block(block)?,
            Item::Absent(block) => ingest.block_if_absent(block)?,
            Item::Edge(edge) => ingest.edge(edge)?,
        }
    }
    Ok(ingest)
}

/// Blocks first, as a load has it, and the last of those that are absent. Gives how many blocks and edges it put.
fn transact(db: &Db, items: &[Item]) -> Result<(usize, usize)> {
    let mut tx = db.begin();
    let (mut blocks, mut edges) = (BTreeSet::new(), BTreeSet::new());
    for item in items {
        if let Item::Block(block) = item {
            tx.put_block(block)?;
            blocks.insert(block.id);
        }
    }
    for item in items.iter().rev() {
        if let Item::Absent(block) = item
            && tx.block(block.id)?.is_none()
        {
            tx.put_block(block)?;
            blocks.insert(block.id);
        }
    }
    for item in items {
        if let Item::Edge(edge) = item {
            tx.put_edge(edge)?;
            edges.insert((edge.source, edge.kind.clone(), edge.target));
        }
    }
    tx.commit()?;
    Ok((blocks.len(), edges.len()))
}

fn tables(vfs: &dyn Vfs) -> Vec<String> {
    vfs.read_dir(Path::new("/db/tables")).expect("it lists")
}

/// Random graphs upon random graphs, with and without threads, a view, and commits in between: the contents are those
/// of a database where transactions did it, and an error of the one is the same error of the other.
#[test]
fn its_graph_is_that_of_one_transaction() {
    let (mut taken, mut refused) = (0, 0);
    for seed in crate::seeds(0..120) {
        let mut random = fastrand::Rng::with_seed(seed);
        let background = match random.bool() {
            true => Background::Threads,
            false => Background::Manual,
        };
        let vfs = Arc::new(MemoryVfs::default());
        let builder = || small().background(background).vfs(vfs.clone());
        let mut db = builder().open("/db").expect("it opens");
        let other = manual().vfs(Arc::new(MemoryVfs::default()));
        let other = other.open("/db").expect("it opens");
        let blocks = random.u64(3..120);
        for round in 0..4 {
            let context = format!("seed {seed}, round {round}");
            if random.u8(..3) == 0 {
                assert!(db.build_graph_view().expect("builds"));
            }
            let count = random.usize(..500);
            let mut items = items(&mut random, blocks, count);
            if random.u8(..4) > 0 {
                items.extend((0..blocks).map(|number| Item::Block(Block::new(id(number), "all"))));
                random.shuffle(&mut items);
            }
            let before = db.revision();
            let snapshot = db.snapshot();
            let held = contents(&snapshot.graph());
            let ingest = load(&db, &items).expect("it takes them");
            assert_eq!(
                ingest.blocks() + ingest.edges(),
                items.len() as u64,
                "{context}"
            );
            if random.u8(..4) == 0 {
                // What comes first is there at the commit.
                for db in [&db, &other] {
                    let block = Block::new(id(0), "beside").content("x");
                    db.transact(|tx| {
                        tx.put_block(&block)?;
                        tx.delete_block(id(1)).map(drop)
                    })
                    .expect("a write");
                }
            }
            assert_eq!(contents(&snapshot.graph()), held, "{context}");
            let (found, wanted) = (ingest.commit(), transact(&other, &items));
            match (&found, &wanted) {
                (Ok(loaded), Ok(wanted)) => {
                    let found = (loaded.blocks as usize, loaded.edges as usize);
                    assert_eq!(found, *wanted, "{context}");
                    assert!(loaded.revision >= before, "{context}");
                    taken += 1;
                }
                (Err(Error::MissingBlock { .. }), Err(Error::MissingBlock { .. })) => refused += 1,
                _ => panic!("{context}: {found:?}, {wanted:?}"),
            }
            assert_eq!(contents(&snapshot.graph()), held, "{context}");
            drop(snapshot);
            let wanted = contents(&other.snapshot().graph());
            assert_eq!(contents(&db.snapshot().graph()), wanted, "{context}");
            assert!(db.check().expect("checks").is_clean(), "{context}");
            if random.u8(..3) == 0 {
                db.close().expect("closes");
                db = builder().open("/db").expect("it opens");
                assert_eq!(contents(&db.snapshot().graph()), wanted, "{context}");
            }
        }
    }
    assert!(
        Seed::named().is_some() || (taken > 100 && refused > 20),
        "{taken} taken, {refused} refused"
    );
}

/// Of many records in several runs the last one of a block and of an edge counts.
#[test]
fn the_last_one_counts_also_over_runs() -> Result<()> {
    let db = small().vfs(Arc::new(MemoryVfs::default())).open("/db")?;
    let mut ingest = db.ingest_graph()?;
    for round in 0..3 {
        for number in 0..500 {
            let block = Block::new(id(number), "node");
            ingest.block(&block.content(format!("{round}")))?;
            let edge = Edge::new(id(number), "next", id((number + 1) % 500));
            ingest.edge(&edge.attribute("round", format!("{round}")))?;
        }
    }
    assert_eq!((ingest.blocks(), ingest.edges()), (1500, 1500));
    ingest.commit()?;
    let graph = db.snapshot().graph();
    for number in 0..500 {
        let block = graph.block(id(number))?.expect("a block");
        assert_eq!(&block.content[..], b"2");
        let edge = graph.edge(id(number), "next", id((number + 1) % 500))?;
        assert_eq!(edge.expect("an edge").attributes["round"], "2");
    }
    let check = db.check()?;
    assert!(check.is_clean());
    assert_eq!((check.blocks, check.edges), (500, 500));
    Ok(())
}

#[test]
fn what_is_refused_leaves_nothing() -> Result<()> {
    let vfs = Arc::new(MemoryVfs::default());
    let limits = Limits {
        value_size_max_bytes: 1000,
        ..Limits::default()
    };
    let db = small().limits(limits).vfs(vfs.clone()).open("/db")?;
    db.transact(|tx| tx.put_block(&Block::new(id(0), "node")))?;
    db.flush()?;
    let (files, before) = (tables(&*vfs), db.revision());
    let filled = || -> Result<GraphIngest> {
        let mut ingest = db.ingest_graph()?;
        for number in 0..600 {
            ingest.block(&Block::new(id(number), "node"))?;
            ingest.edge(&Edge::new(id(number), "node", id(number / 2)))?;
        }
        assert!(tables(&*vfs).len() > files.len() + 1, "it had begun");
        Ok(ingest)
    };
    let too_large = Block::new(id(1), "node").content(vec![0; 1001]);
    let mut ingest = filled()?;
    assert_error!(ingest.block(&too_large), Error::ValueTooLarge { .. });
    assert_error!(
        ingest.block(&Block::new(id(1), "node")),
        Error::ValueTooLarge { .. }
    );
    assert_error!(ingest.commit(), Error::ValueTooLarge { .. });
    let mut ingest = filled()?;
    assert_error!(
        ingest.edge(&Edge::new(id(0), "", id(1))),
        Error::InvalidKind { .. }
    );
    drop(ingest);
    for (from, to) in [(7, 1000), (1000, 7), (1000, 1000)] {
        let mut ingest = filled()?;
        ingest.edge(&Edge::new(id(from), "node", id(to)))?;
        assert_error!(ingest.commit(), Error::MissingBlock { id: missing } if missing == id(1000));
    }
    drop(filled()?);
    assert_eq!(tables(&*vfs), files, "no file stays");
    assert_eq!(db.revision(), before);
    let loaded = db.ingest_graph()?.commit()?;
    assert_eq!((loaded.blocks, loaded.revision), (0, before));
    let mut ingest = db.ingest_graph()?;
    for _ in 0..1_000 {
        // It is there: nothing to write, in several runs.
        ingest.block_if_absent(&Block::new(id(0), "node").content("other"))?;
    }
    assert_eq!(ingest.blocks(), 1_000);
    let loaded = ingest.commit()?;
    assert_eq!((loaded.blocks, loaded.revision), (0, before));
    assert_eq!(tables(&*vfs), files, "no file stays");
    assert_eq!(filled()?.commit()?.revision, before + 1);
    assert!(db.check()?.is_clean());
    Ok(())
}

/// A transaction that deletes a block conflicts with a load that gives it edges, and one that puts an edge is refused
/// nothing by a load.
#[test]
fn who_deletes_a_block_conflicts() -> Result<()> {
    let db = small().vfs(Arc::new(MemoryVfs::default())).open("/db")?;
    db.transact(|tx| {
        tx.put_block(&Block::new(id(0), "node"))?;
        tx.put_block(&Block::new(id(1), "node"))
    })?;
    let mut deletes = db.begin();
    deletes.delete_block(id(0))?;
    let mut puts = db.begin();
    puts.put_edge(&Edge::new(id(0), "link", id(1)))?;
    let mut ingest = db.ingest_graph()?;
    ingest.edge(&Edge::new(id(1), "link", id(0)))?;
    ingest.commit()?;
    assert_error!(deletes.commit(), Error::Conflict { .. });
    puts.commit()?;
    assert!(db.check()?.is_clean());
    assert_eq!(db.check()?.edges, 2);
    Ok(())
}

/// A view that is there follows: no build for few edges.
#[test]
fn the_view_has_what_was_loaded() -> Result<()> {
    let db = small().vfs(Arc::new(MemoryVfs::default())).open("/db")?;
    assert!(db.build_graph_view()?);
    let mut ingest = db.ingest_graph()?;
    for number in 0..300 {
        ingest.block(&Block::new(id(number), "node"))?;
        ingest.edge(&Edge::new(id(number), "link", id(number / 3)))?;
    }
    ingest.commit()?;
    let graph = db.snapshot().graph();
    let found = graph.neighbors(id(9), Direction::In, ["link"])?;
    assert_eq!(found.len(), 3);
    let view = db.stats().graph_view;
    assert!(view.is_ready && view.builds == 1, "{view:?}");
    assert_eq!(view.edges + view.changes, 300, "{view:?}");
    Ok(())
}

#[test]
fn a_full_disk_refuses_it_whole_and_later_it_succeeds() -> Result<()> {
    let mut refused = 0;
    for space_bytes in (0..60_000).step_by(3_000) {
        let disk = FaultVfs::new(MemoryVfs::default());
        let db = small().vfs(Arc::new(disk.clone())).open("/db")?;
        db.transact(|tx| tx.put_block(&Block::new(id(0), "node")))?;
        let mut random = fastrand::Rng::with_seed(space_bytes);
        let mut all = items(&mut random, 60, 400);
        all.extend((0..60).map(|number| Item::Block(Block::new(id(number), "node"))));
        disk.limit_space(space_bytes);
        match load(&db, &all).and_then(GraphIngest::commit) {
            Ok(_) => {}
            Err(Error::Storage(StorageError::NoSpace { .. })) => {
                refused += 1;
                assert_eq!(contents(&db.snapshot().graph()).blocks.len(), 1);
                disk.lift_space_limit();
                db.put("other", "goes on")?;
                load(&db, &all)?.commit()?;
            }
            Err(error) => panic!("{space_bytes}: {error}"),
        }
        assert_eq!(contents(&db.snapshot().graph()).blocks.len(), 60);
        assert!(db.check()?.is_clean());
    }
    assert!(refused > 3, "{refused}");
    Ok(())
}

/// A power loss at any moment of a load: all of it is there, or nothing; and all of it once it was acknowledged.
#[test]
fn a_load_is_whole_after_any_crash() {
    const SEED: u64 = 5;
    let disk = SimDisk::new();
    let open = |vfs: Arc<dyn Vfs>| small().vfs(vfs).open("/db").expect("it opens");
    let db = open(Arc::new(disk.clone()));
    db.transact(|tx| tx.put_block(&Block::new(id(0), "node")))
        .expect("a write");
    let before = contents(&db.snapshot().graph());
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut all = items(&mut random, 50, 300);
    all.extend((0..50).map(|number| Item::Block(Block::new(id(number), "node"))));
    let begun = disk.point();
    load(&db, &all).expect("loads").commit().expect("commits");
    let after = contents(&db.snapshot().graph());
    let done = disk.point();
    db.put("later", "x").expect("a put");
    drop(db);
    let [mut without, mut with] = [0; 2];
    for image in Images::sample_from(&disk.recording(), begun, SEED, 300) {
        let context = format!("{image:?}");
        let db = open(Arc::new(image.build()));
        assert!(db.check().expect("checks").is_clean(), "{context}");
        let found = contents(&db.snapshot().graph());
        if image.point() < done && found == before {
            without += 1;
            // It can be loaded again.
            load(&db, &all).expect("loads").commit().expect("commits");
            assert_eq!(contents(&db.snapshot().graph()), after, "{context}");
        } else {
            with += 1;
            assert_eq!(found, after, "{context}");
        }
    }
    assert!(without > 0 && with > 0, "{without} without, {with} with");
}
