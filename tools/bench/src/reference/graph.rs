//! The rows of the graph store that its users meet: blocks, edges, steps and traversals. Its names
//! are kept. Blocks have 500 bytes of content where they are written, none where only edges count.

use std::cell::{Cell, OnceCell};
use std::fs::File;

use bowline::{Block, BlockId, Db, Direction, Edge, Graph};
use fastrand::Rng;
use rustix::fs::{Advice, fadvise};

use super::common::{BATCHED, Both, Kind, Place, at_least, row};
use crate::data::key;
use crate::fallible::Fallible;
use crate::machine::files;
use crate::measure::{MACHINE, Row, Sample, Turn, check};
use crate::result::{Bound, Unit};
use crate::timing::{BATCH, run_for, run_on, run_prepared};

const CONTENT_BYTES: usize = 500;
/// What is read cold from the disk beside the cold read of a block.
const PAGE_BYTES: usize = 8 << 10;
const COLD_DISK: &str = "one cold read of the disk, 8 KiB";

fn id(number: u64) -> BlockId {
    BlockId::from_bytes(key(number))
}

/// A block with content that does not compress.
fn block(number: u64) -> Block {
    let mut content = vec![0; CONTENT_BYTES];
    crate::data::fill(number, &mut content);
    Block::new(id(number), "block").content(content)
}

fn write_blocks(db: &Db, count: u64) -> Fallible<()> {
    for start in (0..count).step_by(1_000) {
        db.transact(|tx| {
            (start..count.min(start + 1_000)).try_for_each(|n| tx.put_block(&block(n)))
        })?;
    }
    Ok(())
}

fn get_block(graph: &Graph, number: u64) -> Fallible<()> {
    let is_right = graph.visit_block(id(number), |block| {
        crate::data::is_value_of(block.content, number, CONTENT_BYTES)
    })?;
    check(
        is_right.ok_or("a block is missing")?,
        "a block with another content",
    )
}

/// The blocks of a tree of some fan-out, numbered level by level, with an edge to each child. Every
/// other edge is of another kind.
fn tree(db: &Db, fan_out: u64, depth: u32) -> Fallible<u64> {
    let count = (0..=depth).map(|level| fan_out.pow(level)).sum::<u64>();
    db.transact(|tx| (0..count).try_for_each(|n| tx.put_block(&Block::new(id(n), "block"))))?;
    db.transact(|tx| {
        (1..count).try_for_each(|child| {
            let kind = if child % 2 == 0 { "even" } else { "odd" };
            tx.put_edge(&Edge::new(id((child - 1) / fan_out), kind, id(child)))
        })
    })?;
    Ok(count)
}

pub fn rows(place: &Place) -> Vec<Row<'_>> {
    let mut rows = blocks(place);
    rows.extend(edges(place));
    rows.extend(traversals(place));
    rows
}

fn blocks(place: &Place) -> Vec<Row<'_>> {
    let written = std::rc::Rc::new(Both::default());
    let next = std::rc::Rc::new(Cell::new(0u64));
    let write = |written: std::rc::Rc<Both>, next: std::rc::Rc<Cell<u64>>| {
        move |turn: Turn| {
            let db = written.get(turn.contestant, || place.open("blocks", turn.contestant))?;
            let first = next.get();
            let flushes = db.stats().engine.counters.log_syncs;
            let before = db.stats().engine.memtable_bytes;
            let timed = run_for(turn.sample, 1, || {
                let mut tx = db.begin();
                tx.put_block(&block(next.replace(next.get() + 1)))?;
                check(tx.commit()?.changed, "a block that changed nothing")
            })?;
            let stats = db.stats().engine;
            let flushes = stats.counters.log_syncs - flushes;
            check(
                turn.contestant == BATCHED || flushes >= timed.operations,
                "blocks were not flushed",
            )?;
            let graph = db.snapshot().graph();
            get_block(&graph, first)?;
            get_block(&graph, next.get() - 1)?;
            let memory = stats.memtable_bytes.saturating_sub(before) as f64;
            let each = memory / timed.operations as f64;
            Ok(Sample::time(timed).also("memory per block write", each))
        }
    };
    let deleted = Both::default();
    let delete = move |turn: Turn| {
        const MANY: u64 = 128;
        let db = deleted.get(turn.contestant, || place.open("deleted", turn.contestant))?;
        let prepare = || write_blocks(db, MANY);
        let timed = run_prepared(turn.sample, MANY, prepare, |at| {
            let mut tx = db.begin();
            tx.delete_block(id(at))?;
            check(tx.commit()?.changed, "nothing was deleted")
        })?;
        Ok(Sample::time(timed))
    };
    let mut memory = row_told("memory per block write", Unit::Bytes, BATCHED);
    memory.bound = Some(Bound::AtMost(1_000.0));
    memory.reference = Some(crate::result::Reference {
        published: "1.6 KB".into(),
        here: None,
        is_unflushed: false,
        judged: BATCHED.into(),
    });
    let mut rows = vec![
        row(
            "block write, not flushed per operation",
            Unit::Nanoseconds,
            Kind::Batched,
            "0.88 µs mean; 42 µs P50 with flush",
            1_160.0,
            write(written.clone(), next.clone()),
        )
        .bound(None)
        .remark("its goal: S12, beside one `pwrite`"),
        row(
            "block write, flushed",
            Unit::Nanoseconds,
            Kind::Flushed,
            "-",
            253e3,
            write(written, next),
        ),
        memory,
        row(
            "block delete",
            Unit::Nanoseconds,
            Kind::Batched,
            "2.8 µs",
            0.0,
            delete,
        ),
    ];
    rows.extend(block_reads(place));
    rows
}

/// A row whose figures come with those of another.
fn row_told(name: &'static str, unit: Unit, contestant: &'static str) -> Row<'static> {
    Row::told(name, unit, vec![contestant])
}

fn block_reads(place: &Place) -> Vec<Row<'_>> {
    /// What the row from memory was published with.
    const MEMORY_BLOCKS: u64 = 1_000;
    let memory_blocks = MEMORY_BLOCKS.min(place.scale.blocks);
    let memory = std::rc::Rc::new(Both::default());
    let in_memory = |memory: std::rc::Rc<Both>, is_present: bool| {
        move |turn: Turn| {
            let db = memory.get(BATCHED, || {
                let db = place.open("block-reads", BATCHED)?;
                write_blocks(&db, memory_blocks)?;
                Ok(db)
            })?;
            let graph = db.snapshot().graph();
            // What it reads is checked here, and not while it is timed: to look at 500 bytes takes a part of such a time.
            (0..memory_blocks).try_for_each(|number| get_block(&graph, number))?;
            let timed = run_on(1, turn.sample, BATCH, |_| {
                let mut rng = Rng::with_seed(turn.seed);
                let graph = &graph;
                Ok(move || {
                    let number = rng.u64(..memory_blocks);
                    if is_present {
                        let bytes = graph.visit_block(id(number), |block| block.content.len())?;
                        return check(bytes == Some(CONTENT_BYTES), "a block is missing");
                    }
                    let found = graph.block(id(number + (1 << 32)))?;
                    check(found.is_none(), "an absent block was found")
                })
            })?;
            Ok(Sample::time(timed))
        }
    };
    let tables = std::rc::Rc::new(OnceCell::<Db>::new());
    let open_tables = move || -> Fallible<Db> {
        let path = place.directory.join("block-tables");
        let db = place.builder(BATCHED).cache_bytes(1 << 30).open(path)?;
        write_blocks(&db, place.scale.blocks)?;
        db.compact()?;
        Ok(db)
    };
    let warm = {
        let tables = tables.clone();
        move |turn: Turn| {
            let db = made(&tables, open_tables)?;
            let graph = db.snapshot().graph();
            // Once, so that every page is in the cache.
            (0..place.scale.blocks).try_for_each(|n| get_block(&graph, n))?;
            let misses = db.stats().engine.counters.cache_misses;
            let mut rng = Rng::with_seed(turn.seed);
            let timed = run_for(turn.sample, BATCH, || {
                get_block(&graph, rng.u64(..place.scale.blocks))
            })?;
            let is_warm = db.stats().engine.counters.cache_misses == misses;
            check(is_warm, "a read went to the disk")?;
            Ok(Sample::time(timed))
        }
    };
    let cold = OnceCell::<Db>::new();
    let cold = move |turn: Turn| {
        let path = place.directory.join("block-cold");
        let db = made(&cold, || {
            // A cache that holds nothing to speak of.
            let db = place.builder(BATCHED).cache_bytes(1).open(&path)?;
            write_blocks(&db, place.scale.blocks)?;
            db.compact()?;
            db.sync()?;
            Ok(db)
        })?;
        let graph = db.snapshot().graph();
        let misses = db.stats().engine.counters.cache_misses;
        let mut rng = Rng::with_seed(turn.seed);
        let prepare = || forget(&path);
        let timed = run_prepared(at_least(turn.sample, 20), 1, prepare, |_| {
            get_block(&graph, rng.u64(..place.scale.blocks))
        })?;
        let missed = db.stats().engine.counters.cache_misses - misses;
        check(missed >= timed.operations, "a read did not go to the disk")?;
        Ok(Sample::time(timed))
    };
    let disk = OnceCell::<File>::new();
    let disk = move |turn: Turn| {
        use std::os::unix::fs::FileExt;
        let path = place.directory.join("cold-file");
        let pages = 1 + place.scale.blocks * CONTENT_BYTES as u64 / PAGE_BYTES as u64;
        let file = made(&disk, || {
            let content: Vec<u8> = (0..pages as usize * PAGE_BYTES).map(|n| n as u8).collect();
            std::fs::write(&path, content)?;
            let file = File::open(&path)?;
            file.sync_all()?;
            Ok(file)
        })?;
        let mut rng = Rng::with_seed(turn.seed);
        let mut page = vec![0; PAGE_BYTES];
        let prepare = || Ok(fadvise(file, 0, None, Advice::DontNeed)?);
        let timed = run_prepared(at_least(turn.sample, 20), 1, prepare, |_| {
            file.read_exact_at(&mut page, rng.u64(..pages) * PAGE_BYTES as u64)?;
            check(page[1] == 1, "the file does not hold what was written")
        })?;
        Ok(Sample::time(timed))
    };
    vec![
        row(
            "block read, memory",
            Unit::Nanoseconds,
            Kind::Read,
            "23 ns P50 (withdrawn later), 50 ns",
            50.0,
            in_memory(memory.clone(), true),
        )
        .bound(Bound::AtMost(55.0))
        .remark("1,000 blocks; their content is checked before"),
        row(
            "block read, absent",
            Unit::Nanoseconds,
            Kind::Read,
            "45 µs by full scan",
            60.0,
            in_memory(memory, false),
        ),
        row(
            "block read, table, warm",
            Unit::Nanoseconds,
            Kind::Read,
            "20 ns (doubted by its own report); 1.2-8.9 µs by level",
            364e3,
            warm,
        )
        .bound(Bound::AtMost(1_000.0)),
        Row::new(COLD_DISK, Unit::Nanoseconds, vec![MACHINE], disk),
        row(
            "block read, cold",
            Unit::Nanoseconds,
            Kind::Read,
            "12 µs",
            23e3,
            cold,
        )
        .over(COLD_DISK, 1.0, "of one cold read", None)
        .remark("pages dropped before each read"),
    ]
}

fn made<T>(cell: &OnceCell<T>, make: impl FnOnce() -> Fallible<T>) -> Fallible<&T> {
    if cell.get().is_none() {
        let _ = cell.set(make()?);
    }
    cell.get().ok_or_else(|| "not made".into())
}

/// Drops the pages of all files of a directory from the kernel's cache.
fn forget(directory: &std::path::Path) -> Fallible<()> {
    for path in files(directory)? {
        fadvise(&File::open(path)?, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

fn edges(place: &Place) -> Vec<Row<'_>> {
    let blocks = place.scale.blocks;
    /// The `n`-th of a list of different edges that gives the blocks one after the other one.
    fn edge(n: u64, blocks: u64) -> Edge {
        let (source, target) = ends(n, blocks);
        Edge::new(source, "next", target)
    }
    fn ends(n: u64, blocks: u64) -> (BlockId, BlockId) {
        let (source, round) = (n % blocks, n / blocks);
        (id(source), id((source + 1 + round) % blocks))
    }
    let both = std::rc::Rc::new(Both::default());
    let open = move || -> Fallible<Db> {
        let db = place.open("edges", BATCHED)?;
        db.transact(|tx| (0..blocks).try_for_each(|n| tx.put_block(&Block::new(id(n), "block"))))?;
        Ok(db)
    };
    let next = Cell::new(0u64);
    let insert = {
        let both = both.clone();
        move |turn: Turn| {
            let db = both.get(BATCHED, open)?;
            let first = next.get();
            let timed = run_for(turn.sample, 1, || {
                let mut tx = db.begin();
                tx.put_edge(&edge(next.replace(next.get() + 1), blocks))?;
                check(tx.commit()?.changed, "an edge that changed nothing")
            })?;
            let graph = db.snapshot().graph();
            for n in [first, next.get() - 1] {
                let (source, target) = ends(n, blocks);
                check(
                    graph.edge(source, "next", target)?.is_some(),
                    "an edge is missing",
                )?;
            }
            Ok(Sample::time(timed))
        }
    };
    let looked_up = OnceCell::<Db>::new();
    let lookup = move |turn: Turn| {
        // What the row was published with.
        let blocks = blocks.min(1_000);
        let db = made(&looked_up, || {
            let db = place.open("edge-lookup", BATCHED)?;
            db.transact(|tx| {
                (0..blocks).try_for_each(|n| tx.put_block(&Block::new(id(n), "block")))
            })?;
            db.transact(|tx| (0..blocks).try_for_each(|n| tx.put_edge(&edge(n, blocks))))?;
            Ok(db)
        })?;
        let graph = db.snapshot().graph();
        let mut rng = Rng::with_seed(turn.seed);
        let timed = run_for(turn.sample, BATCH, || {
            let (source, target) = ends(rng.u64(..blocks), blocks);
            let found = graph.visit_edge(source, "next", target, |edge| edge.attributes.len())?;
            check(found == Some(0), "an edge is missing")
        })?;
        Ok(Sample::time(timed))
    };
    vec![
        row(
            "edge insert",
            Unit::Nanoseconds,
            Kind::Batched,
            "1.2-1.26 µs",
            1.29e6,
            insert,
        )
        .bound(None)
        .remark("both blocks checked, both directions; its goal: S12, beside one `pwrite`"),
        row(
            "edge lookup",
            Unit::Nanoseconds,
            Kind::Read,
            "40-89 ns",
            40.0,
            lookup,
        )
        .bound(Bound::AtMost(60.0))
        .remark("1,000 edges"),
    ]
}

/// A row over a tree of some fan-out and depth; each operation must visit so many blocks.
fn over_tree<'a>(
    place: &'a Place,
    name: &'static str,
    (published, here): (&'static str, f64),
    (fan_out, depth): (u64, u32),
    walk: impl Fn(&Graph) -> Fallible<usize> + 'a,
    visited: usize,
) -> Row<'a> {
    let cell = OnceCell::new();
    row(
        name,
        Unit::Nanoseconds,
        Kind::Read,
        published,
        here,
        move |turn| {
            let db = made(&cell, || {
                let path = name.replace(['/', ' ', ','], "-");
                let db = place.open(&path, BATCHED)?;
                tree(&db, fan_out, depth)?;
                Ok(db)
            })?;
            let graph = db.snapshot().graph();
            let timed = run_for(turn.sample, 1, || {
                check(walk(&graph)? == visited, "not all that is to be visited")
            })?;
            Ok(Sample::time(timed))
        },
    )
    .remark(format!("{visited} found"))
}

fn traversals(place: &Place) -> Vec<Row<'_>> {
    let neighbors = |graph: &Graph, of: u64, direction, kinds: &[&str]| -> Fallible<usize> {
        let mut found = 0;
        graph.visit_neighbors(id(of), direction, kinds, |_| found += 1)?;
        Ok(found)
    };
    let walk = |graph: &Graph, depth, is_breadth_first| -> Fallible<usize> {
        let traverse = graph.traverse(id(0)).max_depth(depth);
        let found = if is_breadth_first {
            traverse.breadth_first().run()?
        } else {
            traverse.depth_first().run()?
        };
        Ok(found.len())
    };
    vec![
        over_tree(
            place,
            "1-hop traversal",
            ("130 ns P50", 80.0),
            (10, 2),
            move |graph| neighbors(graph, 0, Direction::Out, &[]),
            10,
        ),
        over_tree(
            place,
            "3-hop traversal",
            ("890 ns P50", 0.0),
            (2, 3),
            move |graph| walk(graph, 3, true),
            15,
        )
        .bound(Bound::AtMost(890.0)),
        over_tree(
            place,
            "reverse traversal",
            ("145 ns P50", 0.0),
            (10, 2),
            move |graph| neighbors(graph, 5, Direction::In, &[]),
            1,
        )
        .bound(Bound::AtMost(145.0)),
        over_tree(
            place,
            "filtered traversal",
            ("234 ns P50", 230.0),
            (10, 2),
            move |graph| neighbors(graph, 0, Direction::Out, &["even"]),
            5,
        ),
        over_tree(
            place,
            "BFS depth 3",
            ("-", 1_270.0),
            (2, 3),
            move |graph| walk(graph, 3, true),
            15,
        ),
        over_tree(
            place,
            "BFS depth 5",
            ("-", 6_600.0),
            (2, 5),
            move |graph| walk(graph, 5, true),
            63,
        ),
        over_tree(
            place,
            "DFS depth 3",
            ("-", 590.0),
            (2, 3),
            move |graph| walk(graph, 3, false),
            15,
        ),
        over_tree(
            place,
            "BFS depth 3, fan-out 10",
            ("14.2 µs", 0.0),
            (10, 3),
            move |graph| walk(graph, 3, true),
            1_111,
        )
        .bound(Bound::AtMost(5_000.0)),
        over_tree(
            place,
            "DFS depth 5, fan-out 5",
            ("38.9 µs", 0.0),
            (5, 5),
            move |graph| walk(graph, 5, false),
            3_906,
        )
        .bound(Bound::AtMost(15_000.0)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_have_the_blocks_that_the_rows_say() {
        let db = Db::in_memory().unwrap();
        assert_eq!(tree(&db, 10, 3).unwrap(), 1_111);
        let graph = db.snapshot().graph();
        assert_eq!(graph.traverse(id(0)).run().unwrap().len(), 1_111);
        let odd = graph.neighbors(id(0), Direction::Out, ["odd"]).unwrap();
        assert_eq!(odd.len(), 5);
    }
}
