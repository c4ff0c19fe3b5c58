//! The rows G1 to G9: traversals of a large graph through the graph view, beside the same over bare arrays;
//! and rows beside other stores of graphs.
//!
//! | module | what is in it |
//! |---|---|
//! | `edges` | the Kronecker graph |
//! | `bare` | its edges in arrays, and a breadth-first search over them |
//! | `stage` | the databases, and what is measured once while they are made |
//! | `hops` | neighbors of one block, and of many |
//! | `trees` | questions of a database without a view |
//! | `algorithms` | computations over the whole graph |
//! | `stores`, `beside` | other stores of graphs, and the rows beside them |
//!
//! Both contestants take their turns from the same starts, in the order of the rows. Each search is checked: as
//! many blocks visited and as many edges touched as the bare search finds in the same graph.

mod algorithms;
mod bare;
mod beside;
mod edges;
mod hops;
mod stage;
mod stores;
mod trees;

use std::path::Path;
use std::time::Instant;

use crate::fallible::Fallible;
use crate::measure::{Row, Sample, Turn, check};
use crate::peers;
use crate::result::{Bound, Unit};
use crate::statistics::histogram;
use crate::store::BOWLINE;
pub use beside::Beside;
pub use stage::Stage;
use stage::{BATCH_EDGES, Place, number, walk};

/// The contestant that is no database.
pub const BARE: &str = "bare CSR";

const BFS: &str = "G1 BFS, ids not resolved";
const BFS_IDS: &str = "G1 BFS, every id read";
const CHANGED: &str = "G3 BFS, 1 % of the edges changed, ids not resolved";
const CHANGED_IDS: &str = "G3 BFS, 1 % of the edges changed, every id read";
const LOAD: &str = "dependent load, 160 MB";
const LOAD_BYTES: usize = 160 << 20;

/// What the contestants are, for the head of the table.
pub fn contestants(beside: &Beside<'_>) -> Vec<(String, String)> {
    let mut contestants = beside.contestants();
    let bare = "the same edges and numbers of vertices in two arrays; a bitset, parents and a queue that are \
                allocated once; no ids but where the row reads them";
    contestants.insert(1, (BARE.to_owned(), bare.to_owned()));
    contestants
}

/// All rows, the machine's first.
pub fn rows<'a>(stage: &'a Stage, beside: &'a Beside<'_>, directory: &'a Path) -> Vec<Row<'a>> {
    let mut rows = vec![peers::raw(directory), peers::load(LOAD, LOAD_BYTES)];
    rows.extend(searches(stage));
    rows.extend(hops::rows(stage));
    rows.extend(trees::rows(directory));
    rows.extend(algorithms::rows(stage));
    rows.extend(beside.rows());
    rows.extend(once(stage));
    rows
}

fn both() -> Vec<&'static str> {
    vec![BOWLINE.name, BARE]
}

fn searches(stage: &Stage) -> Vec<Row<'_>> {
    let row = |name, place, is_id_read| {
        let run = move |turn: Turn| search(stage, place, turn, is_id_read);
        Row::new(name, Unit::PerSecond, both(), run)
    };
    let touched: u64 = stage.plain.expected.iter().map(|of| of.touched).sum();
    let visited: usize = stage.plain.expected.iter().map(|of| of.visited).sum();
    let starts = stage.starts.len();
    let remark = format!(
        "edges touched per second, one thread; {starts} starts, {} blocks visited and {} edges \
         touched from each",
        visited / starts,
        touched / starts as u64
    );
    vec![
        row(BFS, &stage.plain, false)
            .beside(BARE, Some(0.8))
            .remark(remark),
        row(BFS_IDS, &stage.plain, true).beside(BARE, None),
        row(CHANGED, &stage.changed, false)
            .over(BFS, 1.0, "of G1", Some(Bound::AtLeast(0.7)))
            .beside(BARE, None)
            .remark("deletes and puts, half each, since the view was built"),
        row(CHANGED_IDS, &stage.changed, true)
            .over(BFS_IDS, 1.0, "of G1", Some(Bound::AtLeast(0.7)))
            .beside(BARE, None),
    ]
}

/// Searches from all starts, round and round, for about as long as a sample lasts.
fn search(stage: &Stage, place: &Place, turn: Turn, is_id_read: bool) -> Fallible<Sample> {
    let graph = place.db.snapshot().graph();
    let mut bare = stage.search.borrow_mut();
    let mut touched = 0;
    let mut latency = histogram();
    let begun = Instant::now();
    let mut last = begun;
    while last - begun < turn.sample {
        for (&start, expected) in stage.starts.iter().zip(&place.expected) {
            let mut folded = 0;
            let (visited, edges) = if turn.contestant == BARE {
                let walked = bare.run(&place.arrays, start);
                if is_id_read {
                    let ids = bare.visited.iter().map(|&vertex| stage.id(vertex));
                    folded = ids.fold(0, |folded, id| folded ^ number(id));
                }
                (walked.visited, walked.touched)
            } else {
                let found = walk(&graph, stage.id(start))?;
                if is_id_read {
                    folded = found.ids().fold(0, |folded, id| folded ^ number(id));
                }
                (found.len(), found.edges_touched())
            };
            std::hint::black_box(folded);
            let is_right = (visited, edges) == (expected.visited, expected.touched);
            check(is_right, "a search found something else than the bare one")?;
            touched += edges;
            let now = Instant::now();
            latency.saturating_record((now - last).as_nanos() as u64);
            last = now;
        }
    }
    Ok(Sample {
        latency: Some(latency),
        ..Sample::figure(touched as f64 / (last - begun).as_secs_f64())
    })
}

/// What was measured while the stage was made.
fn once(stage: &Stage) -> Vec<Row<'_>> {
    const EDGE_BYTES: f64 = 10.0;
    const BLOCK_BYTES: f64 = 40.0;
    let row = |name, unit, sample: fn(&Stage) -> Sample| {
        let run = move |_: Turn| Ok(sample(stage));
        Row::new(name, unit, vec![BOWLINE.name], run).once()
    };
    let (edges, blocks) = (stage.edges as f64, stage.blocks as f64);
    let memory = Bound::AtMost(EDGE_BYTES * edges + BLOCK_BYTES * blocks);
    vec![
        row("G4 load", Unit::PerSecond, |stage| loaded(stage.load.bulk))
            .bound(Bound::AtLeast(1e6))
            .remark("edges per second, in bulk, in random order and with the blocks, until all are durable"),
        row("G4 load by names", Unit::PerSecond, |stage| {
            loaded(stage.load.names)
        })
        .bound(Bound::AtLeast(5e5))
        .remark("the same, with an id computed from the name of each end of each edge"),
        row("load by transactions", Unit::PerSecond, |stage| {
            loaded(stage.load.transactions)
        })
        .remark(format!(
            "edges per second, by transactions of {BATCH_EDGES} edges in random order, blocks written before"
        )),
        row(
            "G5 memory of the view, by its own count",
            Unit::Bytes,
            |stage| per_part(stage, stage.memory.own),
        )
        .bound(memory)
        .remark(format!("{edges} edges, {blocks} blocks")),
        row(
            "G5 memory of the view, by the kernel's count",
            Unit::Bytes,
            |stage| {
                per_part(stage, stage.memory.kernel).note(
                    "MB of it the cache of pages",
                    stage.memory.cache as f64 / 1e6,
                )
            },
        )
        .bound(memory)
        .remark("`VmRSS` after the build less `VmRSS` before"),
        row(
            "G7 view ready after opening, 1 % of the edges changed since it was saved",
            Unit::Nanoseconds,
            |stage| {
                let seconds = stage.reopened.as_secs_f64();
                Sample::figure(seconds * 1e9).note("s", seconds)
            },
        )
        .bound(Bound::AtMost(1e9))
        .remark("a checkpoint, from its opening; the trees answer until then"),
        row("build of the view", Unit::PerSecond, |stage| {
            Sample::figure(stage.edges as f64 / stage.build.as_secs_f64())
                .note("s in all", stage.build.as_secs_f64())
        })
        .remark("edges per second, from compacted tables, one thread"),
        row(
            "first 1-hop after opening, no view",
            Unit::Nanoseconds,
            |stage| Sample::figure(stage.meanwhile.hop.as_nanos() as f64),
        )
        .remark("degree ten, by the trees, nothing cached"),
        row(
            "first BFS after opening, no view",
            Unit::Nanoseconds,
            |stage| {
                let meanwhile = &stage.meanwhile;
                let touched = stage.plain.expected[0].touched as f64;
                Sample::figure(meanwhile.search.as_nanos() as f64)
                    .note("M edges/s", touched / meanwhile.search.as_secs_f64() / 1e6)
                    .note(
                        "s from opening until the view is ready",
                        meanwhile.ready.as_secs_f64(),
                    )
            },
        )
        .remark("of the whole graph, by the trees; the build in the background begins meanwhile"),
    ]
}

fn loaded(load: stage::Load) -> Sample {
    Sample::figure(load.per_second())
        .note("s in all", load.time.as_secs_f64())
        .note("edges", load.edges as f64)
}

fn per_part(stage: &Stage, bytes: u64) -> Sample {
    Sample::figure(bytes as f64)
        .note("bytes per edge", bytes as f64 / stage.edges as f64)
        .note("bytes per block", bytes as f64 / stage.blocks as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many blocks and edges are checked in every search; here also which, in which order, and from where.
    #[test]
    fn the_view_and_the_bare_arrays_walk_alike() {
        let directory = tempfile::tempdir().unwrap();
        let stage = Stage::new(8, directory.path()).unwrap();
        let mut bare = stage.search.borrow_mut();
        for place in [&stage.plain, &stage.changed] {
            assert!(place.db.stats().graph_view.is_ready);
            let graph = place.db.snapshot().graph();
            for (&start, expected) in stage.starts.iter().zip(&place.expected) {
                let found = walk(&graph, stage.id(start)).unwrap();
                assert_eq!(bare.run(&place.arrays, start), *expected);
                assert_eq!(found.edges_touched(), expected.touched);
                assert_eq!(found.len(), expected.visited);
                assert!(expected.visited > 128, "{expected:?}");
                for (visit, &vertex) in found.visits().zip(&bare.visited) {
                    assert_eq!(visit.id, stage.id(vertex));
                    let parent = (vertex != start).then(|| bare.parents[vertex as usize]);
                    assert_eq!(visit.parent, parent.map(|parent| stage.id(parent)));
                }
            }
        }
        assert_ne!(stage.plain.expected, stage.changed.expected);
    }
}
