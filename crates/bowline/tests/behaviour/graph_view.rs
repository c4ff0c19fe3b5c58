//! The graph view: it answers as the trees do, at every revision, whatever happens to it meanwhile.
//!
//! The trees are read by `Graph::for_each_edge` of the same snapshot, and by a second database without a view
//! that gets the same writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bowline::{
    Block, BlockId, Db, DbBuilder, Direction, Edge, Graph, History, Precedence, Result, Snapshot,
};
use bowline_testing::Seed;

use crate::support::{Disk, manual};

const NO_KINDS: [&str; 0] = [];
const KINDS: [&str; 3] = ["calls", "needs", "owns"];

fn id(number: u64) -> BlockId {
    BlockId(u128::from(number) << 64 | 7)
}

/// All edges of a snapshot, by its trees.
fn edges(graph: &Graph) -> Vec<(BlockId, String, BlockId)> {
    let mut found = Vec::new();
    graph
        .for_each_edge(|edge| {
            found.push((edge.source, edge.kind, edge.target));
            Ok(())
        })
        .expect("reads");
    found
}

/// Compares the neighbors of every block with the edges of the trees, in both directions.
fn assert_as_trees(snapshot: &Snapshot, blocks: u64, context: &str) {
    let graph = snapshot.graph();
    let edges = edges(&graph);
    for near in (0..blocks).map(id) {
        if !graph.has_block(near).expect("reads") {
            continue;
        }
        for direction in [Direction::Out, Direction::In] {
            let is_out = direction == Direction::Out;
            let found = graph.neighbors(near, direction, NO_KINDS).expect("reads");
            let mut found: Vec<_> = found
                .into_iter()
                .map(|there| match is_out {
                    true => (near, there.kind.to_string(), there.id),
                    false => (there.id, there.kind.to_string(), near),
                })
                .collect();
            // Kinds are in the order of their numbers, not of their names.
            found.sort();
            let mut wanted = edges.clone();
            wanted.retain(|edge| near == if is_out { edge.0 } else { edge.2 });
            wanted.sort();
            assert_eq!(found, wanted, "{context}: {direction:?} of {near}");
        }
    }
}

/// One random write of blocks and edges.
fn write(db: &Db, random: &mut fastrand::Rng, blocks: u64) -> Result<()> {
    let (a, b) = (id(random.u64(..blocks)), id(random.u64(..blocks)));
    let kind = KINDS[random.usize(..KINDS.len())];
    let what = random.u8(..10);
    db.transact(|tx| match what {
        0 => tx.delete_block(a).map(drop),
        1 | 2 => tx.put_block(&Block::new(a, "node")),
        3 | 4 => tx.delete_edge(a, kind, b).map(drop),
        5 => tx.put("key", "value"),
        _ => {
            for block in [a, b] {
                if tx.block(block)?.is_none() {
                    tx.put_block(&Block::new(block, "node"))?;
                }
            }
            let color = ["red", "blue"][usize::from((a.0 ^ b.0) >> 64 & 2 > 0)];
            tx.put_edge(&Edge::new(a, kind, b).attribute("color", color))
        }
    })
}

fn without_view() -> DbBuilder {
    manual().history(History::All).graph_view_bytes(0)
}

/// Random histories with blocks deleted and made again, kinds that come later, rebuilds and old snapshots. All
/// queries give what a database without a view gives. `BOWLINE_VIEW_HISTORIES` is the number of fixed seeds.
#[test]
fn every_query_answers_as_without_a_view() {
    let histories = std::env::var("BOWLINE_VIEW_HISTORIES");
    let histories = histories.map_or(60, |text| text.parse().expect("a number"));
    for seed in crate::seeds(0..histories) {
        let mut random = fastrand::Rng::with_seed(seed);
        let blocks = random.u64(2..12);
        let db = Disk::new().open(manual().history(History::All));
        let plain = Disk::new().open(without_view());
        let mut snapshots = Vec::new();
        let mut is_built = false;
        for step in 0..80 {
            let mut same = Seed(seed).part(step).rng();
            write(&db, &mut same.clone(), blocks).expect("a write");
            write(&plain, &mut same, blocks).expect("a write");
            if random.u8(..20) == 0 {
                assert!(db.build_graph_view().expect("builds"));
                is_built = true;
            }
            if random.u8(..4) == 0 {
                snapshots.push((db.snapshot(), plain.snapshot()));
            }
            if random.u8(..6) == 0 {
                snapshots.push((db.snapshot(), plain.snapshot()));
                let (viewed, other) = &snapshots[random.usize(..snapshots.len())];
                assert_eq!(viewed.revision(), other.revision());
                let context = format!("seed {seed}, step {step}, at {}", viewed.revision());
                assert_as_trees(viewed, blocks, &context);
                assert_same_answers(viewed, other, blocks, &mut random, &context);
            }
        }
        // One history in sixty asks for none.
        assert_eq!(db.stats().graph_view.is_ready, is_built, "seed {seed}");
        assert!(!plain.stats().graph_view.is_ready);
    }
}

fn assert_same_answers(
    viewed: &Snapshot,
    other: &Snapshot,
    blocks: u64,
    random: &mut fastrand::Rng,
    context: &str,
) {
    let (a, b) = (id(random.u64(..blocks)), id(random.u64(..blocks)));
    let direction = [Direction::Out, Direction::In, Direction::Both][random.usize(..3)];
    let named = KINDS.into_iter().filter(|_| random.bool());
    let known = other.graph();
    // A kind that was never used is an error of both.
    let kinds: Vec<&str> = named
        .filter(|kind| known.neighbors(a, direction, [*kind]).is_ok())
        .collect();
    let (limit, depth) = (random.u64(1..20), random.u32(..5));
    let answers = |snapshot: &Snapshot| {
        let graph = snapshot.graph();
        let walk = || {
            let walk = graph.traverse(a).direction(direction).kinds(kinds.clone());
            walk.max_depth(depth).limit(limit)
        };
        let path = graph
            .shortest_path(a, b)
            .direction(direction)
            .kinds(kinds.clone());
        (
            format!("{:?}", graph.neighbors(a, direction, &kinds)),
            format!("{:?}", graph.first_neighbors(a, direction, &kinds, 2)),
            format!("{:?}", lent(&graph, a, direction, &kinds)),
            show(walk()),
            show(walk().also_from(b).depth_first()),
            show(walk().max_bytes(60)),
            show(walk().max_neighbors(limit % 4)),
            show(
                walk()
                    .depth_first()
                    .attribute("color", "red")
                    .max_neighbors(limit),
            ),
            many(&graph, a, b, direction, &kinds),
            format!("{:?}", graph.is_reachable(a, b, direction, &kinds)),
            format!("{:?}", path.find()),
            whole(&graph, a, &kinds),
        )
    };
    assert_eq!(
        answers(viewed),
        answers(other),
        "{context}: {a} {b} {direction:?} {kinds:?}"
    );
}

/// What is asked of the whole graph: each answer depends on the numbers of blocks, on the order of rows, on the edges
/// that arrive or on the counts of kinds.
fn whole(graph: &Graph, from: BlockId, kinds: &[&str]) -> [String; 6] {
    let kinds = kinds.iter().copied();
    let order = graph.topological_order(kinds.clone(), Precedence::SourceFirst);
    let ranks = graph.page_rank().kinds(kinds.clone()).run();
    let distances = graph.distances_from(from).kinds(kinds.clone()).run();
    [
        format!("{:?}", graph.stats(kinds.clone())),
        format!("{order:?}"),
        format!("{:?}", graph.strongly_connected_components(kinds.clone())),
        format!("{:?}", ranks.map(|ranks| ranks.iter().collect::<Vec<_>>())),
        format!("{:?}", distances.map(|far| far.iter().collect::<Vec<_>>())),
        format!("{:?}", graph.triangles().kinds(kinds).count()),
    ]
}

/// Questions about the whole graph beside a view that has all blocks, one of which blocks come and go, and one that was
/// folded meanwhile: the answers are those of a database without a view.
#[test]
fn the_whole_graph_has_the_blocks_of_the_revision() {
    let db = Disk::new().open(manual().history(History::All));
    let plain = Disk::new().open(without_view());
    let both = |write: &dyn Fn(&Db)| {
        write(&db);
        write(&plain);
    };
    let mut snapshots = Vec::new();
    let same = |what: &str, snapshots: &mut Vec<(Snapshot, Snapshot)>| {
        snapshots.push((db.snapshot(), plain.snapshot()));
        for (viewed, other) in snapshots.iter().rev().take(2) {
            for kinds in [&[][..], &["calls"]] {
                let answers = |snapshot: &Snapshot| whole(&snapshot.graph(), id(3), kinds);
                let context = format!("{what}, at {} {kinds:?}", viewed.revision());
                assert_eq!(answers(viewed), answers(other), "{context}");
            }
        }
    };
    both(&|db| {
        put_blocks(db, 150);
        put_edges(db, (1..30).map(|n| (n, KINDS[n as usize % 3], n * 7 % 30)));
    });
    assert!(db.build_graph_view().expect("builds"));
    same("built", &mut snapshots);
    both(&|db| put_edges(db, (0..30).map(|n| (n * 11 % 30, KINDS[n as usize % 2], n))));
    same("edges came", &mut snapshots);
    // Enough for a fold, which keeps the blocks without edges.
    both(&|db| put_edges(db, (0..18_200).map(|n| (n / 140, "owns", n % 140))));
    let reads = db
        .snapshot()
        .graph()
        .neighbors(id(3), Direction::Out, NO_KINDS);
    assert!(reads.expect("reads").len() > 100);
    same("folded", &mut snapshots);
    assert_eq!(db.stats().graph_view.folds, 1);
    let delete = |number| {
        both(&|db| {
            let deleted = db.transact(|tx| tx.delete_block(id(number)));
            assert!(deleted.expect("deletes"));
        });
    };
    delete(149);
    same("a block without edges went", &mut snapshots);
    both(&|db| put_blocks(db, 151));
    same("it came back, and another", &mut snapshots);
    both(&|db| put_edges(db, [(150, "needs", 1)].into_iter()));
    same("with an edge", &mut snapshots);
    delete(7);
    same("a block went with its edges", &mut snapshots);
    // Now a fold leaves the blocks without edges out.
    let ends = |n: u64| (10 + n / 130, "calls", 10 + n % 130);
    both(&|db| put_edges(db, (0..16_900).map(ends)));
    let reads = db
        .snapshot()
        .graph()
        .neighbors(id(30), Direction::Out, NO_KINDS);
    assert!(reads.expect("reads").len() > 200);
    same("folded again", &mut snapshots);
    let stats = db.stats().graph_view;
    assert_eq!((stats.builds, stats.folds), (1, 2));
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The neighbors of a block as they are lent.
fn lent(
    graph: &Graph,
    near: BlockId,
    direction: Direction,
    kinds: &[&str],
) -> Result<Vec<(BlockId, String, Direction)>> {
    let mut found = Vec::new();
    graph.visit_neighbors(near, direction, kinds, |it| {
        found.push((it.id, it.kind.to_owned(), it.direction));
    })?;
    let copied = graph.neighbors(near, direction, kinds)?.into_iter();
    let copied: Vec<_> = copied
        .map(|it| (it.id, it.kind.to_string(), it.direction))
        .collect();
    assert_eq!(found, copied);
    Ok(found)
}

/// The neighbors of many blocks as they are lent, each as if it were asked for alone; some do not exist.
fn many(graph: &Graph, a: BlockId, b: BlockId, direction: Direction, kinds: &[&str]) -> String {
    let ids: Vec<_> = (0..80)
        .map(|at| [a, b, id(at % 12)][at as usize % 3])
        .collect();
    let mut found = vec![Vec::new(); ids.len()];
    let ended = graph.visit_neighbors_of_many(&ids, direction, kinds, |place, it| {
        found[place].push((it.id, it.kind.to_owned(), it.direction));
    });
    let mut missing = None;
    for (place, near) in ids.into_iter().enumerate() {
        match lent(graph, near, direction, kinds) {
            Ok(expected) => assert_eq!(found[place], expected, "{near} at {place}"),
            Err(error) => drop(missing.get_or_insert(error.to_string())),
        }
    }
    assert_eq!(ended.err().map(|error| error.to_string()), missing);
    format!("{found:?}")
}

/// A traversal's result, or its error.
fn show(traverse: bowline::Traverse) -> String {
    format!("{:?}", traverse.run().map(|found| found.to_traversal()))
}

/// Readers beside writers, with folds and rebuilds in the background: each snapshot has the edges of its
/// trees. Snapshots are of the newest revision, so readers drain what the commit just handed over.
#[test]
fn snapshots_beside_writers_answer_as_the_trees() {
    const BLOCKS: u64 = 24;
    let db = Disk::new().open(Db::builder().history(History::All));
    assert!(db.build_graph_view().expect("builds"));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..2 {
            let (db, is_over) = (&db, &is_over);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !is_over.load(Ordering::Relaxed) {
                    write(db, &mut random, BLOCKS).expect("a write");
                }
            });
        }
        // Ends the writers also when an assertion fails.
        let _over = Over(&is_over);
        let mut seen = 0;
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end || seen < 50 {
            let snapshot = db.snapshot();
            assert_as_trees(&snapshot, BLOCKS, "beside writers");
            seen += 1;
        }
    });
    let stats = db.stats().graph_view;
    assert!(
        stats.is_ready && stats.changes + stats.folds > 0,
        "{stats:?}"
    );
}

/// A graph that does not fit is answered by the trees, and the figures say so.
#[test]
fn a_graph_over_the_budget_is_answered_by_the_trees() {
    let db = Disk::new().open(manual().graph_view_bytes(100));
    let ids: Vec<_> = (0..20).map(id).collect();
    db.transact(|tx| {
        for &id in &ids {
            tx.put_block(&Block::new(id, "node"))?;
        }
        tx.put_edge(&Edge::new(ids[0], "calls", ids[1]))
    })
    .expect("a write");
    assert!(!db.build_graph_view().expect("is told"));
    let stats = db.stats().graph_view;
    assert!(
        stats.is_over_budget && !stats.is_ready && stats.memory_bytes == 0,
        "{stats:?}"
    );
    assert_as_trees(&db.snapshot(), 20, "over the budget");
    // Nothing is collected for a view that is not there.
    db.transact(|tx| tx.put_edge(&Edge::new(ids[1], "calls", ids[2])))
        .expect("a write");
    assert_as_trees(&db.snapshot(), 20, "over the budget");
}

/// A build that found the graph too large is not tried again by queries: each would read the whole graph.
#[test]
fn a_graph_over_the_budget_is_read_once() {
    let db = Disk::new().open(Db::builder().graph_view_bytes(10));
    db.transact(|tx| tx.put_block(&Block::new(id(1), "node")))
        .expect("a write");
    let graph = db.snapshot().graph();
    let ask = |times| {
        for _ in 0..times {
            graph
                .neighbors(id(1), Direction::Out, NO_KINDS)
                .expect("reads");
        }
    };
    ask(5_000);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !db.stats().graph_view.is_over_budget {
        assert!(Instant::now() < deadline, "no build ended");
        thread::yield_now();
    }
    ask(20_000);
    assert!(
        !db.build_graph_view().expect("is told"),
        "by who asks for it"
    );
    assert_eq!(db.stats().graph_view.builds, 2);
}

/// Queries that read much of the trees have the view built in the background.
#[test]
fn many_queries_build_the_view() {
    let db = Disk::new().open(Db::builder());
    db.transact(|tx| {
        tx.put_block(&Block::new(id(1), "node"))?;
        tx.put_edge(&Edge::new(id(1), "calls", id(1)))
    })
    .expect("a write");
    let graph = db.snapshot().graph();
    for _ in 0..4000 {
        graph
            .neighbors(id(1), Direction::Out, NO_KINDS)
            .expect("reads");
    }
    assert!(
        !db.stats().graph_view.is_ready,
        "few queries are not worth it"
    );
    let deadline = Instant::now() + Duration::from_secs(30);
    while !db.stats().graph_view.is_ready {
        assert!(Instant::now() < deadline, "no view came");
        graph
            .neighbors(id(1), Direction::Out, NO_KINDS)
            .expect("reads");
    }
    assert_eq!(db.stats().graph_view.edges, 1);
}

/// While a view was built by who had asked for it, queries had it built in the background, too: the second build began
/// anew, and the first was thrown away as if the graph did not fit. Found by the benchmark of the view.
#[test]
fn a_build_that_is_asked_for_is_not_ended_by_queries() {
    let db = Disk::new().open(Db::builder());
    let ids: Vec<_> = (0..40_000).map(id).collect();
    for some in ids.chunks(5_000) {
        db.transact(|tx| {
            for &id in some {
                tx.put_block(&Block::new(id, "node"))?;
                tx.put_edge(&Edge::new(id, "calls", some[0]))?;
            }
            Ok(())
        })
        .expect("a write");
    }
    let is_over = AtomicBool::new(false);
    let graph = db.snapshot().graph();
    // Nearly as many as are worth a view.
    for &id in &ids[..4_000] {
        graph
            .neighbors(id, Direction::Out, NO_KINDS)
            .expect("reads");
    }
    thread::scope(|scope| {
        let over = Over(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for &id in &ids {
                    graph
                        .neighbors(id, Direction::Out, NO_KINDS)
                        .expect("reads");
                }
            }
        });
        assert!(db.build_graph_view().expect("builds"));
        drop(over);
    });
    assert_eq!(db.stats().graph_view.builds, 1);
}

/// Readers apply the changes that their own commits hand over, so that few wait at any time. The changes were then folded
/// once a minute only, however many had been applied: the view grew beyond its budget. Found on a last read.
#[test]
fn changes_that_readers_apply_are_folded() {
    for threads in [false, true] {
        let settings = if threads { Db::builder() } else { manual() };
        let db = Disk::new().open(settings);
        let ids: Vec<_> = (0..300).map(id).collect();
        db.transact(|tx| {
            let mut ids = ids.iter();
            ids.try_for_each(|id| tx.put_block(&Block::new(*id, "node")))
        })
        .expect("a write");
        assert!(db.build_graph_view().expect("builds"));
        for &source in &ids[..100] {
            db.transact(|tx| {
                let mut targets = ids.iter();
                targets.try_for_each(|target| tx.put_edge(&Edge::new(source, "to", *target)))
            })
            .expect("a write");
            let graph = db.snapshot().graph();
            let found = graph.neighbors(source, Direction::Out, NO_KINDS);
            assert_eq!(found.expect("reads").len(), ids.len());
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        while db.stats().graph_view.folds == 0 {
            assert!(threads && Instant::now() < deadline, "nothing was folded");
            thread::yield_now();
        }
        assert!(db.stats().graph_view.changes < 30_000);
        let found = db
            .snapshot()
            .graph()
            .neighbors(ids[0], Direction::In, NO_KINDS);
        assert_eq!(found.expect("reads").len(), 100);
    }
}

/// An ingestion takes a revision without an edge: the view answers the revisions after it.
#[test]
fn an_ingestion_does_not_end_the_view() {
    let db = Disk::new().open(manual());
    write(&db, &mut fastrand::Rng::with_seed(3), 4).expect("a write");
    assert!(db.build_graph_view().expect("builds"));
    let mut ingest = db.ingest().expect("begins");
    ingest.put("a", "1").expect("a put");
    ingest.commit().expect("commits");
    db.transact(|tx| {
        tx.put_block(&Block::new(id(0), "node"))?;
        tx.put_edge(&Edge::new(id(0), "calls", id(0)))
    })
    .expect("a write");
    assert_as_trees(&db.snapshot(), 4, "after an ingestion");
    let stats = db.stats().graph_view;
    assert_eq!((stats.builds, stats.changes), (1, 1), "{stats:?}");
}

fn put_blocks(db: &Db, blocks: u64) {
    let ids: Vec<_> = (0..blocks).map(id).collect();
    for some in ids.chunks(5_000) {
        db.transact(|tx| {
            let mut some = some.iter();
            some.try_for_each(|id| tx.put_block(&Block::new(*id, "node")))
        })
        .expect("a write");
    }
}

fn put_edges(db: &Db, edges: impl Iterator<Item = (u64, &'static str, u64)>) {
    let edges: Vec<_> = edges.collect();
    for some in edges.chunks(5_000) {
        db.transact(|tx| {
            let mut some = some.iter();
            some.try_for_each(|(a, kind, b)| tx.put_edge(&Edge::new(id(*a), *kind, id(*b))))
        })
        .expect("a write");
    }
}

/// Changes were folded by their number only, of which more than sixteen thousand may wait: edges between blocks that had
/// no changes take some hundred bytes each, and the view took twice its budget.
#[test]
fn changes_keep_the_view_within_its_budget() {
    const BLOCKS: u64 = 12_000;
    let base_bytes = BLOCKS * 40 + 8;
    // With room for the edges that come, once they are folded, and without.
    for (budget, is_ready) in [(base_bytes * 5 / 4, true), (base_bytes * 21 / 20, false)] {
        let db = Disk::new().open(manual().graph_view_bytes(budget));
        put_blocks(&db, BLOCKS);
        put_edges(
            &db,
            (0..BLOCKS).map(|near| (near, "calls", BLOCKS - 1 - near)),
        );
        assert!(db.build_graph_view().expect("builds"));
        assert!(db.stats().graph_view.memory_bytes >= base_bytes - 8);
        put_edges(&db, (0..7_000).map(|near| (near, "needs", near + 5_000)));
        let near = |snapshot: Snapshot| {
            let row = snapshot
                .graph()
                .neighbors(id(5_000), Direction::Both, NO_KINDS);
            row.expect("reads").len()
        };
        assert_eq!(near(db.snapshot()), 4);
        let view = db.stats().graph_view;
        assert!(
            view.memory_bytes <= budget || !view.is_ready,
            "{view:?} of {budget}"
        );
        assert_eq!((view.is_ready, view.is_over_budget), (is_ready, !is_ready));
        assert_eq!(near(db.snapshot()), 4, "whoever answers");
    }
}

/// A graph of more than 255 kinds takes 16 bytes an edge. A build reckoned with 10, and kept a view of half as much again
/// as its budget.
#[test]
fn wide_kinds_count_as_what_they_take() {
    let kinds: Vec<&'static str> = (0..300)
        .map(|kind| &*format!("kind{kind}").leak())
        .collect();
    for (budget, is_ready) in [(400_000, false), (540_000, true)] {
        let db = Disk::new().open(manual().graph_view_bytes(budget));
        put_blocks(&db, 1_000);
        let edge = |at: u64| {
            (
                at % 1_000,
                kinds[at as usize % 300],
                (at * 7 + at / 3_000) % 1_000,
            )
        };
        put_edges(&db, (0..30_000).map(edge));
        assert_eq!(db.build_graph_view().expect("is told"), is_ready);
        let view = db.stats().graph_view;
        assert!(view.memory_bytes <= budget, "{view:?} of {budget}");
        assert_eq!((view.is_ready, view.is_over_budget), (is_ready, !is_ready));
    }
}
