//! PageRank: how often a surfer who follows edges at random comes to each block.
//!
//! Brin and Page ("The anatomy of a large-scale hypertextual web search engine", 1998), by power iteration, as in LDBC
//! Graphalytics: a fixed number of iterations from the uniform distribution. With `n` vertices and damping `d`,
//!
//! ```text
//!   rank'(v)  =  (1 - d)/n  +  d · ( Σ rank(u)/degree(u)  over the edges u -> v   +   D/n )
//! ```
//!
//! where `D` is the sum of the ranks of the vertices without a leaving edge. So ranks always add up to 1.
//!
//! Each vertex pulls: what it gets is summed over its arriving edges and written once. The quotients `rank(u)/degree(u)`
//! are computed once per vertex and iteration, so the inner loop is one load and one addition per edge.
//! O(iterations·(vertices + edges)) time; 16 B per vertex of memory, and the arriving rows of the view.
//!
//! Every edge counts: two parallel edges carry two shares, and by a self-loop a vertex keeps a share.

use bowline_types::Direction;

use super::adjacency::{Adjacency, for_each_vertex};
use crate::Result;
use crate::graph::cancel::Cancel;

/// The parameters.
#[derive(Debug, Clone, Copy)]
pub struct PageRankSpec {
    /// The probability of following an edge, between 0 and 1.
    pub damping: f64,
    /// The number of iterations.
    pub iterations: u32,
    /// Which way edges are followed.
    pub direction: Direction,
}

/// The rank of each vertex.
pub fn page_rank(graph: &impl Adjacency, spec: &PageRankSpec, cancel: &Cancel) -> Result<Vec<f64>> {
    match spec.direction {
        Direction::Out => {
            let degree = |vertex| graph.out_degree(vertex);
            iterate(graph, spec, degree, |vertex| graph.in_row(vertex), cancel)
        }
        Direction::In => {
            let degree = |vertex| graph.in_degree(vertex);
            iterate(graph, spec, degree, |vertex| graph.out_row(vertex), cancel)
        }
        Direction::Both => {
            let degree = |vertex| graph.out_degree(vertex) + graph.in_degree(vertex);
            let sources = |vertex| graph.out_row(vertex).chain(graph.in_row(vertex));
            iterate(graph, spec, degree, sources, cancel)
        }
    }
}

fn iterate<I: Iterator<Item = u32>>(
    graph: &impl Adjacency,
    spec: &PageRankSpec,
    degree: impl Fn(u32) -> usize,
    sources: impl Fn(u32) -> I,
    cancel: &Cancel,
) -> Result<Vec<f64>> {
    let vertices = graph.vertex_count();
    let count = f64::from(vertices);
    let mut ranks = vec![1.0 / count; vertices as usize];
    // What each edge of a vertex carries.
    let mut shares = vec![0.0; vertices as usize];
    for _ in 0..spec.iterations {
        let mut dangling = 0.0;
        for_each_vertex(vertices, cancel, |vertex| {
            let rank = ranks[vertex as usize];
            let degree = degree(vertex);
            if degree == 0 {
                dangling += rank;
            } else {
                shares[vertex as usize] = rank / degree as f64;
            }
        })?;
        let base = (1.0 - spec.damping) / count + spec.damping * dangling / count;
        for_each_vertex(vertices, cancel, |vertex| {
            let pulled: f64 = sources(vertex).map(|source| shares[source as usize]).sum();
            ranks[vertex as usize] = base + spec.damping * pulled;
        })?;
    }
    Ok(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::graph::memory::{MemoryGraph, random_graphs, ways};
    use crate::graph::source::KindFilter;
    use crate::graph::view::DenseView;

    /// Every block pushes its rank along its edges.
    fn naive(
        graph: &MemoryGraph,
        blocks: usize,
        kinds: &KindFilter,
        spec: &PageRankSpec,
    ) -> Vec<f64> {
        let mut arcs: Vec<(usize, usize)> = Vec::new();
        for (source, kind, target) in graph.edges() {
            let (source, target) = (source.0 as usize, target.0 as usize);
            if kinds.passes(kind) && spec.direction != Direction::In {
                arcs.push((source, target));
            }
            if kinds.passes(kind) && spec.direction != Direction::Out {
                arcs.push((target, source));
            }
        }
        let count = blocks as f64;
        let mut ranks = vec![1.0 / count; blocks];
        for _ in 0..spec.iterations {
            let mut next = vec![(1.0 - spec.damping) / count; blocks];
            for (near, rank) in ranks.iter().enumerate() {
                let leaving: Vec<_> = arcs.iter().filter(|arc| arc.0 == near).collect();
                for arc in &leaving {
                    next[arc.1] += spec.damping * rank / leaving.len() as f64;
                }
                if leaving.is_empty() {
                    next.iter_mut()
                        .for_each(|next| *next += spec.damping * rank / count);
                }
            }
            ranks = next;
        }
        ranks
    }

    #[test]
    fn random_graphs_agree_with_pushing_along_every_edge() {
        for (seed, graph) in random_graphs(2_000) {
            let (direction, kinds) = &ways()[seed as usize % 9];
            let view = DenseView::build(&graph, kinds, true).expect("builds");
            let spec = PageRankSpec {
                damping: (seed % 11) as f64 / 10.0,
                iterations: (seed % 7) as u32,
                direction: *direction,
            };
            let found = page_rank(&view, &spec, &Cancel::never()).expect("runs");
            let expected = naive(&graph, found.len(), kinds, &spec);
            let context = format!("seed {seed} {kinds:?} {spec:?}");
            assert_eq!(found.len(), expected.len(), "{context}");
            for (found, expected) in found.iter().zip(&expected) {
                let error = (found - expected).abs();
                assert!(error < 1e-12, "{context}: {found} {expected}");
            }
            let sum: f64 = found.iter().sum();
            assert!((sum - 1.0).abs() < 1e-12, "{context}: {sum}");
        }
    }

    #[test]
    fn an_empty_graph_has_no_ranks_and_a_canceled_run_ends() {
        let spec = PageRankSpec {
            damping: 0.85,
            iterations: 5,
            direction: Direction::Out,
        };
        let view = |blocks| {
            DenseView::build(&MemoryGraph::new(blocks, []), &KindFilter::All, true).expect("builds")
        };
        let empty = page_rank(&view(0), &spec, &Cancel::never()).expect("runs");
        assert!(empty.is_empty());
        let cancel = Cancel::new();
        cancel.cancel();
        let ended = page_rank(&view(3), &spec, &cancel);
        assert!(matches!(ended, Err(Error::Canceled)), "{ended:?}");
    }
}
