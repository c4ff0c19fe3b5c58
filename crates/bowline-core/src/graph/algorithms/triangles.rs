//! Triangles: three blocks of which each two are tied.
//!
//! Triangles are found on the *undirected simple graph*: two blocks are tied or not, however many edges there are
//! between them and whichever way they point; self-loops do not count. The forward algorithm (Schank and Wagner,
//! "Finding, counting and listing all triangles in large graphs", 2005) ranks blocks by degree, the highest first, and
//! keeps each tie only at its end of the larger rank:
//!
//! ```text
//! ranks, tied                  the ends of smaller rank, ascending
//!     1 ---- 0                 0: -
//!      \    / \                1: 0
//!        2     3               2: 0 1      2's list meets 1's list in 0: triangle (2, 1, 0)
//!                              3: 0
//! ```
//!
//! A triangle is found exactly once, at its two largest ranks, by intersecting two sorted lists. No list is longer than
//! √(2·ties), so it takes O(edges + ties^1.5) time, however large the hubs are. Memory: 5 B per tie and 32 B per
//! vertex, and the arriving rows of the view.
//!
//! Beside each tie stands the number of its *arcs*: 1 when edges point one way, 2 when they point both ways. Clustering
//! coefficients of directed graphs need them.

use std::cmp::{Ordering, Reverse};

use super::adjacency::{Adjacency, for_each_vertex};
use crate::Result;
use crate::graph::cancel::Cancel;
use crate::graph::view::{Rows, RowsBuilder};

/// How many triangles each vertex is a corner of. Each triangle is counted at its three corners.
pub fn triangles_per_vertex(graph: &impl Adjacency, cancel: &Cancel) -> Result<Vec<u64>> {
    let mut triangles = vec![0; graph.vertex_count() as usize];
    Ties::build(graph, cancel)?.for_each_triangle(cancel, |corners, _| {
        for corner in corners {
            triangles[corner as usize] += 1;
        }
    })?;
    Ok(triangles)
}

/// The undirected simple graph, each tie once.
pub(crate) struct Ties {
    /// Vertices by descending degree, then ascending number.
    by_rank: Vec<u32>,
    /// How many vertices each vertex is tied to.
    degrees: Vec<u32>,
    /// By rank: the ends of smaller rank, ascending.
    upward: Rows<'static>,
    /// Parallel to the ends in `upward`.
    arcs: Vec<u8>,
}

impl Ties {
    pub(crate) fn build(graph: &impl Adjacency, cancel: &Cancel) -> Result<Ties> {
        let vertices = graph.vertex_count();
        let degrees = degrees(graph, cancel)?;
        let mut by_rank: Vec<u32> = (0..vertices).collect();
        by_rank.sort_unstable_by_key(|&vertex| (Reverse(degrees[vertex as usize]), vertex));
        let mut rank_of = vec![0u32; vertices as usize];
        for (rank, &vertex) in (0..).zip(&by_rank) {
            rank_of[vertex as usize] = rank;
        }

        let mut upward = RowsBuilder::new(vertices as usize);
        let mut arcs = Vec::new();
        // The rank of each end, doubled; odd for an arriving edge.
        let mut row: Vec<u64> = Vec::new();
        for_each_vertex(vertices, cancel, |rank| {
            let vertex = by_rank[rank as usize];
            row.clear();
            let smaller = |end: u32| Some(rank_of[end as usize]).filter(|end| *end < rank);
            let leaving = graph.out_row(vertex).filter_map(smaller);
            row.extend(leaving.map(|end| u64::from(end) << 1));
            let arriving = graph.in_row(vertex).filter_map(smaller);
            row.extend(arriving.map(|end| u64::from(end) << 1 | 1));
            row.sort_unstable();
            row.dedup();
            for tie in row.chunk_by(|a, b| a >> 1 == b >> 1) {
                upward.push(rank as usize, (tie[0] >> 1) as u32);
                arcs.push(tie.len() as u8);
            }
        })?;
        arcs.shrink_to_fit();
        Ok(Ties {
            by_rank,
            degrees,
            upward: upward.finish(),
            arcs,
        })
    }

    /// How many vertices each vertex is tied to.
    pub(crate) fn degrees(&self) -> &[u32] {
        &self.degrees
    }

    /// Visits each triangle once: its corners, and for each corner the arcs between the two others.
    pub(crate) fn for_each_triangle(
        &self,
        cancel: &Cancel,
        mut visit: impl FnMut([u32; 3], [u8; 3]),
    ) -> Result<()> {
        let row = |rank: u32| {
            let range = self.upward.range(rank);
            (self.upward.row(rank), &self.arcs[range])
        };
        for rank in 0..self.by_rank.len() as u32 {
            let (ends, arcs) = row(rank);
            for (&middle, &to_middle) in ends.iter().zip(arcs) {
                cancel.check()?;
                let (middle_ends, middle_arcs) = row(middle);
                for_each_common(ends, middle_ends, |at, at_middle| {
                    let corners = [rank, middle, ends[at]];
                    let opposite = [middle_arcs[at_middle], arcs[at], to_middle];
                    visit(corners.map(|rank| self.by_rank[rank as usize]), opposite);
                });
            }
        }
        Ok(())
    }
}

/// How many other vertices each vertex has edges with.
fn degrees(graph: &impl Adjacency, cancel: &Cancel) -> Result<Vec<u32>> {
    let vertices = graph.vertex_count();
    let mut degrees = vec![0u32; vertices as usize];
    // The last vertex in whose rows each end was seen: instead of sorting every row.
    let mut seen_by = vec![u32::MAX; vertices as usize];
    for_each_vertex(vertices, cancel, |vertex| {
        seen_by[vertex as usize] = vertex;
        for end in graph.out_row(vertex).chain(graph.in_row(vertex)) {
            let seen_by = &mut seen_by[end as usize];
            degrees[vertex as usize] += u32::from(*seen_by != vertex);
            *seen_by = vertex;
        }
    })?;
    Ok(degrees)
}

/// Visits where the common elements of two ascending lists stand in each.
fn for_each_common(a: &[u32], b: &[u32], mut visit: impl FnMut(usize, usize)) {
    let (mut at_a, mut at_b) = (0, 0);
    while let (Some(in_a), Some(in_b)) = (a.get(at_a), b.get(at_b)) {
        match in_a.cmp(in_b) {
            Ordering::Less => at_a += 1,
            Ordering::Greater => at_b += 1,
            Ordering::Equal => {
                visit(at_a, at_b);
                at_a += 1;
                at_b += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::graph::memory::{MemoryGraph, random_graphs, ways};
    use crate::graph::source::KindFilter;
    use crate::graph::view::DenseView;

    #[test]
    fn random_graphs_agree_with_trying_every_triple() {
        for (seed, graph) in random_graphs(2_000) {
            let kinds = &ways()[seed as usize % 9].1;
            let view = DenseView::build(&graph, kinds, seed % 2 == 0).expect("builds");
            let blocks = view.vertex_count() as usize;
            let mut tied = vec![vec![false; blocks]; blocks];
            for (source, kind, target) in graph.edges() {
                if kinds.passes(kind) && source != target {
                    let (source, target) = (source.0 as usize, target.0 as usize);
                    tied[source][target] = true;
                    tied[target][source] = true;
                }
            }
            let mut expected = vec![0u64; blocks];
            for a in 0..blocks {
                for b in 0..a {
                    for c in 0..b {
                        if tied[a][b] && tied[b][c] && tied[c][a] {
                            for corner in [a, b, c] {
                                expected[corner] += 1;
                            }
                        }
                    }
                }
            }
            let found = triangles_per_vertex(&view, &Cancel::never()).expect("runs");
            assert_eq!(found, expected, "seed {seed} {kinds:?}");
            let ties = Ties::build(&view, &Cancel::never()).expect("builds");
            let degrees = tied
                .iter()
                .map(|row| row.iter().filter(|tied| **tied).count());
            assert!(
                ties.degrees()
                    .iter()
                    .map(|degree| *degree as usize)
                    .eq(degrees),
                "seed {seed} {kinds:?}"
            );
        }
    }

    #[test]
    fn a_canceled_run_ends() {
        let graph = MemoryGraph::new(3, [(0, 1, 1), (1, 1, 2), (2, 1, 0)]);
        let view = DenseView::build(&graph, &KindFilter::All, true).expect("builds");
        let ties = Ties::build(&view, &Cancel::never()).expect("builds");
        let cancel = Cancel::new();
        cancel.cancel();
        let ended = ties.for_each_triangle(&cancel, |_, _| panic!("it is canceled"));
        assert!(matches!(ended, Err(Error::Canceled)), "{ended:?}");
        let ended = triangles_per_vertex(&view, &cancel);
        assert!(matches!(ended, Err(Error::Canceled)), "{ended:?}");
    }
}
