//! G9: PageRank and weakly connected components of the whole graph, beside the same over bare arrays on one thread.
//!
//! The bare ones do the same work: PageRank by pulling over arrays of both directions, in the same number of iterations
//! and with the same share of vertices without edges; components by union-find with path halving in one pass. They keep
//! no ids. Bowline's time holds all of a call: reading which blocks there are, and the result with its ids.

use std::time::Instant;

use super::bare::Arrays;
use super::{BARE, Stage, both};
use crate::fallible::Fallible;
use crate::measure::{Row, Sample, Turn, check};
use crate::result::Unit;

const DAMPING: f64 = 0.85;
const ITERATIONS: u32 = 20;

pub fn rows(stage: &Stage) -> Vec<Row<'_>> {
    /// 1.5 times as long.
    const SPEED: f64 = 1.0 / 1.5;
    let row = |name, run: fn(&Stage, Turn) -> Fallible<Sample>| {
        let run = move |turn| run(stage, turn);
        let row = Row::new(name, Unit::Nanoseconds, both(), run);
        row.beside(BARE, Some(SPEED))
    };
    vec![
        row("G9 PageRank, 20 iterations", page_rank)
            .remark("the arrays of arriving edges are there before; Bowline's call makes them"),
        row("G9 weakly connected components", components),
    ]
}

/// A call, as often as a sample lasts, and the time of each.
fn timed<T>(turn: Turn, mut call: impl FnMut() -> Fallible<T>) -> Fallible<(Sample, T)> {
    let begun = Instant::now();
    let mut calls = 0;
    loop {
        let result = call()?;
        calls += 1;
        let elapsed = begun.elapsed();
        if elapsed >= turn.sample {
            let each = elapsed.as_nanos() as f64 / f64::from(calls);
            return Ok((Sample::figure(each), result));
        }
    }
}

fn page_rank(stage: &Stage, turn: Turn) -> Fallible<Sample> {
    let (arrays, arriving) = (&stage.plain.arrays, &stage.arriving);
    if turn.contestant == BARE {
        let (sample, ranks) = timed(turn, || Ok(ranks_of(arrays, arriving)))?;
        std::hint::black_box(ranks);
        return Ok(sample);
    }
    let graph = stage.plain.db.snapshot().graph();
    let settings = || graph.page_rank().damping(DAMPING).iterations(ITERATIONS);
    let (sample, ranks) = timed(turn, || Ok(settings().run()?))?;
    let expected = ranks_of(arrays, arriving);
    let mut all = ranks.iter().zip(&expected);
    let are_right = all.all(|((_, rank), expected)| (rank - expected).abs() <= 1e-9 * expected);
    check(
        are_right && ranks.len() == expected.len(),
        "ranks are others than the bare ones",
    )?;
    Ok(sample)
}

fn components(stage: &Stage, turn: Turn) -> Fallible<Sample> {
    let arrays = &stage.plain.arrays;
    if turn.contestant == BARE {
        let (sample, labels) = timed(turn, || Ok(labels_of(arrays)))?;
        std::hint::black_box(labels);
        return Ok(sample);
    }
    let graph = stage.plain.db.snapshot().graph();
    let no_kinds: [&str; 0] = [];
    let (sample, labels) = timed(turn, || Ok(graph.weak_component_labels(no_kinds)?))?;
    let expected = labels_of(arrays);
    let mut all = labels.iter().zip(&expected);
    let are_right = all.all(|((_, label), &expected)| label == stage.id(expected));
    check(
        are_right && labels.len() == expected.len(),
        "components are others than the bare ones",
    )?;
    Ok(sample)
}

/// The rank of each vertex.
fn ranks_of(leaving: &Arrays, arriving: &Arrays) -> Vec<f64> {
    let vertices = leaving.vertices();
    let count = vertices as f64;
    let mut ranks = vec![1.0 / count; vertices];
    let mut shares = vec![0.0; vertices];
    for _ in 0..ITERATIONS {
        let mut dangling = 0.0;
        for (vertex, share) in shares.iter_mut().enumerate() {
            match leaving.row(vertex as u32).len() {
                0 => dangling += ranks[vertex],
                degree => *share = ranks[vertex] / degree as f64,
            }
        }
        let base = (1.0 - DAMPING) / count + DAMPING * dangling / count;
        for (vertex, rank) in ranks.iter_mut().enumerate() {
            let sources = arriving.row(vertex as u32).iter();
            let pulled: f64 = sources.map(|&source| shares[source as usize]).sum();
            *rank = base + DAMPING * pulled;
        }
    }
    ranks
}

/// The smallest vertex of each one's component.
fn labels_of(arrays: &Arrays) -> Vec<u32> {
    fn root_of(parents: &mut [u32], mut vertex: u32) -> u32 {
        while parents[vertex as usize] != vertex {
            let grandparent = parents[parents[vertex as usize] as usize];
            parents[vertex as usize] = grandparent;
            vertex = grandparent;
        }
        vertex
    }
    let vertices = arrays.vertices() as u32;
    let mut parents: Vec<u32> = (0..vertices).collect();
    for source in 0..vertices {
        let mut root = root_of(&mut parents, source);
        for &target in arrays.row(source) {
            if parents[target as usize] == root {
                continue;
            }
            let other = root_of(&mut parents, target);
            parents[root.max(other) as usize] = root.min(other);
            root = root.min(other);
        }
    }
    for vertex in 0..vertices {
        parents[vertex as usize] = parents[parents[vertex as usize] as usize];
    }
    parents
}
