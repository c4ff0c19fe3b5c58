//! G2: the neighbors of a block, and of many blocks by one call, with the ids of all.

use fastrand::Rng;

use bowline::{BlockId, Direction};

use super::stage::{hop, number};
use super::{LOAD, Stage, both};
use crate::fallible::Fallible;
use crate::measure::{Row, Sample, Turn, check};
use crate::result::{Bound, Unit};
use crate::store::BOWLINE;
use crate::timing::{BATCH, run_for};

const HOT: &str = "G2 1-hop, 1,000 hot blocks of degree ten";
const RANDOM: &str = "G2 1-hop, random blocks";
const RANDOM_LESS: &str = "G2 1-hop, random blocks, less 10 ns an edge";
const HOT_MANY: &str = "G2 1-hop, hot blocks, 64 by one call, each";
const RANDOM_MANY: &str = "G2 1-hop, random blocks, 64 by one call, each";
/// Blocks of one call.
const MANY: usize = 64;

pub fn rows(stage: &Stage) -> Vec<Row<'_>> {
    /// Of a call, and of each of its edges.
    const CALL_NS: f64 = 80.0;
    const EDGE_NS: f64 = 5.0;
    /// Of a random block, the loads that cannot be begun before others are done.
    const LOADS: f64 = 4.0;
    /// Of a block among many.
    const OF_MANY_NS: f64 = 100.0;
    let plain = &stage.plain.arrays;
    let hot_edges: usize = stage.hot.iter().map(|&hot| plain.row(hot).len()).sum();
    let each = hot_edges as f64 / stage.hot.len() as f64;
    let vertices = stage.ids.len() as u32;
    let draw_hot = |rng: &mut Rng| stage.hot[rng.usize(..stage.hot.len())];
    let draw = move |rng: &mut Rng| rng.u32(..vertices);
    let random = move |turn: Turn| {
        let (sample, edges) = one_hop(stage, turn, draw)?;
        let less = (sample.figure - 10.0 * edges).max(0.0);
        Ok(sample.also(RANDOM_LESS, less))
    };
    let time = Unit::Nanoseconds;
    let mut less = Row::told(RANDOM_LESS, time, vec![BOWLINE.name]);
    less = less.over(
        LOAD,
        LOADS,
        "of 4 dependent loads",
        Some(Bound::AtMost(1.0)),
    );
    let resolved = "through `visit_neighbors`, ids read; the bare array is asked by number";
    let hot_remark = format!("{} blocks of {each:.1} edges; {resolved}", stage.hot.len());
    let ours = || vec![BOWLINE.name];
    vec![
        Row::new(HOT, time, both(), move |turn| {
            Ok(one_hop(stage, turn, draw_hot)?.0)
        })
        .bound(Bound::AtMost(CALL_NS + EDGE_NS * each))
        .beside(super::BARE, None)
        .remark(hot_remark),
        Row::new(HOT_MANY, time, ours(), move |turn| {
            of_many(stage, turn, draw_hot)
        })
        .bound(Bound::AtMost(OF_MANY_NS))
        .under(HOT, "of one by one", None)
        .remark("through `visit_neighbors_of_many`, ids read"),
        Row::new(RANDOM, time, both(), random)
            .beside(super::BARE, None)
            .remark("of the whole graph"),
        less,
        Row::new(RANDOM_MANY, time, ours(), move |turn| {
            of_many(stage, turn, draw)
        })
        .bound(Bound::AtMost(OF_MANY_NS))
        .under(RANDOM, "of one by one", None)
        .remark("through `visit_neighbors_of_many`, ids read"),
    ]
}

/// Neighbors of vertices that are drawn, and how many edges a call gave.
fn one_hop(stage: &Stage, turn: Turn, draw: impl Fn(&mut Rng) -> u32) -> Fallible<(Sample, f64)> {
    let graph = stage.plain.db.snapshot().graph();
    let arrays = &stage.plain.arrays;
    let mut rng = Rng::with_seed(turn.seed);
    let mut edges = 0;
    let timed = run_for(turn.sample, BATCH, || {
        let vertex = draw(&mut rng);
        let expected = arrays.row(vertex);
        let (count, folded) = if turn.contestant == super::BARE {
            let ids = expected.iter().map(|&far| number(stage.id(far)));
            (expected.len(), ids.fold(0, |folded, id| folded ^ id))
        } else {
            hop(&graph, stage.id(vertex))?
        };
        std::hint::black_box(folded);
        edges += count as u64;
        check(count == expected.len(), "a block has other edges")
    })?;
    let per_call = edges as f64 / timed.operations as f64;
    let sample = Sample::time(timed);
    let per_edge = sample.figure / per_call;
    let sample = sample
        .note("edges per call", per_call)
        .note("ns per edge", per_edge);
    Ok((sample, per_call))
}

/// The same by calls for many blocks, which are drawn before the clock is read.
fn of_many(stage: &Stage, turn: Turn, draw: impl Fn(&mut Rng) -> u32) -> Fallible<Sample> {
    /// Calls whose blocks are drawn together.
    const CALLS: usize = 64;
    let graph = stage.plain.db.snapshot().graph();
    let mut rng = Rng::with_seed(turn.seed);
    let vertices: Vec<u32> = (0..MANY * CALLS).map(|_| draw(&mut rng)).collect();
    let ids: Vec<BlockId> = vertices.iter().map(|&vertex| stage.id(vertex)).collect();
    let rows = vertices
        .iter()
        .map(|&vertex| stage.plain.arrays.row(vertex));
    let expected: usize = rows.map(<[u32]>::len).sum();
    let no_kinds: [&str; 0] = [];
    let (mut edges, mut calls) = (0, 0);
    let timed = run_for(turn.sample, CALLS as u64, || {
        let ids = ids.chunks(MANY).nth(calls % CALLS).unwrap_or_default();
        calls += 1;
        let mut folded = 0;
        graph.visit_neighbors_of_many(ids, Direction::Out, no_kinds, |place, neighbor| {
            edges += 1;
            folded ^= number(neighbor.id) ^ place as u128;
        })?;
        std::hint::black_box(folded);
        Ok(())
    })?;
    let is_right = edges * CALLS == expected * calls;
    check(is_right, "many blocks have other edges")?;
    let per_block = edges as f64 / (calls * MANY) as f64;
    let each = Sample::time(timed).figure / MANY as f64;
    Ok(Sample::figure(each).note("edges per block", per_block))
}
