//! The number of edges from one block to every other.
//!
//! Breadth-first search (Moore, "The shortest path through a maze", 1959), the *BFS* of LDBC Graphalytics. The queue is
//! one array in which each vertex stands at most once, so the vertices of a depth are a contiguous part of it.
//! O(vertices + edges) time, of the part that can be reached; 8 B per vertex of memory.
//!
//! Invariant: depths in the queue do not descend, so the depth at which a vertex is found first is its distance.
//! Self-loops and parallel edges change nothing.

use bowline_types::Direction;

use super::adjacency::Adjacency;
use crate::Result;
use crate::graph::cancel::Cancel;

/// The distance of a vertex that cannot be reached.
pub const UNREACHED: u32 = u32::MAX;

/// For each vertex the number of edges from `start`, or [`UNREACHED`].
pub fn distances(
    graph: &impl Adjacency,
    start: u32,
    direction: Direction,
    cancel: &Cancel,
) -> Result<Vec<u32>> {
    let vertices = graph.vertex_count();
    match direction {
        Direction::Out => search(vertices, start, |near| graph.out_row(near), cancel),
        Direction::In => search(vertices, start, |near| graph.in_row(near), cancel),
        Direction::Both => {
            let both = |near| graph.out_row(near).chain(graph.in_row(near));
            search(vertices, start, both, cancel)
        }
    }
}

fn search<I: Iterator<Item = u32>>(
    vertices: u32,
    start: u32,
    row: impl Fn(u32) -> I,
    cancel: &Cancel,
) -> Result<Vec<u32>> {
    let mut distances = vec![UNREACHED; vertices as usize];
    distances[start as usize] = 0;
    let mut queue = vec![start];
    let mut head = 0;
    while let Some(&near) = queue.get(head) {
        cancel.check()?;
        head += 1;
        let next = distances[near as usize] + 1;
        for far in row(near) {
            let distance = &mut distances[far as usize];
            if *distance == UNREACHED {
                *distance = next;
                queue.push(far);
            }
        }
    }
    Ok(distances)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::graph::memory::{self, MemoryGraph, random_graphs, ways};
    use crate::graph::source::KindFilter;
    use crate::graph::view::DenseView;

    #[test]
    fn random_graphs_agree_with_the_table_of_distances() {
        for (seed, graph) in random_graphs(2_000) {
            let (direction, kinds) = &ways()[seed as usize % 9];
            let view = DenseView::build(&graph, kinds, false).expect("builds");
            let table = memory::distances(&graph, *direction, kinds, |_, _, _| 1.0);
            for (start, row) in table.into_iter().enumerate() {
                let found = distances(&view, start as u32, *direction, &Cancel::never());
                let expected = row
                    .into_iter()
                    .map(|distance| distance.map_or(UNREACHED, |distance| distance as u32));
                assert!(
                    found.expect("runs").into_iter().eq(expected),
                    "seed {seed}: from {start} {direction:?} {kinds:?}"
                );
            }
        }
    }

    #[test]
    fn a_long_path_does_not_overflow_the_stack_and_can_be_canceled() {
        let graph = MemoryGraph::path(200_000);
        let view = DenseView::build(&graph, &KindFilter::All, true).expect("builds");
        let found = distances(&view, 199_999, Direction::In, &Cancel::never()).expect("runs");
        assert!(found.into_iter().rev().eq(0..200_000));
        let cancel = Cancel::new();
        cancel.cancel();
        let ended = distances(&view, 0, Direction::Out, &cancel);
        assert!(matches!(ended, Err(Error::Canceled)), "{ended:?}");
    }
}
