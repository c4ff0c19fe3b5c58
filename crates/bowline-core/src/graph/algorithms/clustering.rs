//! Local clustering coefficients: the share of the possible edges among a block's neighbors that exist.
//!
//! Watts and Strogatz ("Collective dynamics of small-world networks", 1998), in the definition of LDBC Graphalytics, its
//! *LCC*. The neighbors of a vertex are the vertices with an edge from it or to it. With `d` of them,
//!
//! ```text
//!   directed      the pairs (u, w) of neighbors with an edge u -> w, over the d·(d - 1) that are possible
//!   undirected    the pairs {u, w} of neighbors with an edge between them, over the d·(d - 1)/2 that are possible
//! ```
//!
//! and 0 when `d` is less than 2. Self-loops do not count, and parallel edges count once.
//!
//! Each triangle gives to each of its corners the edge, or the two, between the other corners. So the coefficients cost
//! what [`triangles`](super::triangles) cost: O(edges + ties^1.5) time, 5 B per tie and 40 B per vertex of memory. Counts
//! are whole numbers up to the last division.

use super::adjacency::Adjacency;
use super::triangles::Ties;
use crate::Result;
use crate::graph::cancel::Cancel;

/// The coefficient of each vertex.
pub fn clustering_coefficients(
    graph: &impl Adjacency,
    is_directed: bool,
    cancel: &Cancel,
) -> Result<Vec<f64>> {
    let ties = Ties::build(graph, cancel)?;
    let mut arcs = vec![0u64; graph.vertex_count() as usize];
    ties.for_each_triangle(cancel, |corners, opposite| {
        for (corner, opposite) in corners.into_iter().zip(opposite) {
            // Without directions, a tie leads both ways.
            arcs[corner as usize] += if is_directed { u64::from(opposite) } else { 2 };
        }
    })?;
    let coefficient = |(arcs, degree): (&u64, &u32)| {
        let possible = f64::from(*degree) * (f64::from(*degree) - 1.0);
        if *degree < 2 {
            0.0
        } else {
            *arcs as f64 / possible
        }
    };
    Ok(arcs.iter().zip(ties.degrees()).map(coefficient).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::graph::memory::{MemoryGraph, random_graphs, ways};
    use crate::graph::source::KindFilter;
    use crate::graph::view::DenseView;

    /// Tries every pair of neighbors of every block.
    fn naive(graph: &MemoryGraph, blocks: usize, kinds: &KindFilter, directed: bool) -> Vec<f64> {
        let mut leads = vec![vec![false; blocks]; blocks];
        for (source, kind, target) in graph.edges() {
            if kinds.passes(kind) && source != target {
                leads[source.0 as usize][target.0 as usize] = true;
                leads[target.0 as usize][source.0 as usize] |= !directed;
            }
        }
        let one = |at: usize| {
            let is_neighbor = |other: &usize| leads[at][*other] || leads[*other][at];
            let neighbors: Vec<_> = (0..blocks).filter(is_neighbor).collect();
            let degree = neighbors.len();
            let among = neighbors
                .iter()
                .flat_map(|u| neighbors.iter().map(move |w| (u, w)));
            let found = among.filter(|(u, w)| leads[**u][**w]).count();
            match degree {
                0 | 1 => 0.0,
                _ => found as f64 / (degree * (degree - 1)) as f64,
            }
        };
        (0..blocks).map(one).collect()
    }

    #[test]
    fn random_graphs_agree_with_trying_every_pair_of_neighbors() {
        for (seed, graph) in random_graphs(2_000) {
            let kinds = &ways()[seed as usize % 9].1;
            let view = DenseView::build(&graph, kinds, seed % 2 == 0).expect("builds");
            for is_directed in [true, false] {
                let found = clustering_coefficients(&view, is_directed, &Cancel::never());
                let found = found.expect("runs");
                let expected = naive(&graph, found.len(), kinds, is_directed);
                assert_eq!(found, expected, "seed {seed} {kinds:?} {is_directed}");
            }
        }
    }

    #[test]
    fn a_canceled_run_ends() {
        let view = DenseView::build(&MemoryGraph::path(3), &KindFilter::All, true);
        let cancel = Cancel::new();
        cancel.cancel();
        let ended = clustering_coefficients(&view.expect("builds"), true, &cancel);
        assert!(matches!(ended, Err(Error::Canceled)), "{ended:?}");
    }
}
