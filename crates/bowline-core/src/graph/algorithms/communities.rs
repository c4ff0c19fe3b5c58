//! Communities: sets of blocks with more edges among themselves than to others.
//!
//! Label propagation (Raghavan, Albert and Kumara, "Near linear time algorithm to detect community structures in
//! large-scale networks", 2007) in the deterministic form of LDBC Graphalytics, its *CDLP*. Each vertex begins with its
//! own number as label. In each iteration every vertex takes the most frequent label among its neighbors, and of several
//! the smallest; all vertices change at once. A vertex without neighbors keeps its label.
//!
//! Every edge counts at both of its ends: a pair of vertices with an edge in each direction counts twice, and so do two
//! kinds of edges. By a self-loop a vertex counts its own label twice.
//!
//! O(iterations·(vertices + edges)) time; it ends early when no label changes, as none would afterwards. 12 B per vertex
//! of memory, and the arriving rows of the view.
//!
//! Invariant: between two vertices every counter is 0. Counters only grow within a row, so the best label is known at
//! its last edge: a label that ties is compared when it reaches the count of the best.

use super::adjacency::{Adjacency, for_each_vertex};
use crate::Result;
use crate::graph::cancel::Cancel;

/// For each vertex the label of its community, which is the number of some vertex.
pub fn communities(graph: &impl Adjacency, iterations: u32, cancel: &Cancel) -> Result<Vec<u32>> {
    let vertices = graph.vertex_count();
    let mut labels: Vec<u32> = (0..vertices).collect();
    let mut next = labels.clone();
    let mut counters = vec![0u32; vertices as usize];
    for _ in 0..iterations {
        let mut has_changed = false;
        for_each_vertex(vertices, cancel, |vertex| {
            let neighbors = || graph.out_row(vertex).chain(graph.in_row(vertex));
            let own = labels[vertex as usize];
            let (mut best, mut most) = (own, 0);
            for neighbor in neighbors() {
                let label = labels[neighbor as usize];
                let counter = &mut counters[label as usize];
                *counter = counter.saturating_add(1);
                if *counter > most || (*counter == most && label < best) {
                    (best, most) = (label, *counter);
                }
            }
            for neighbor in neighbors() {
                counters[labels[neighbor as usize] as usize] = 0;
            }
            next[vertex as usize] = best;
            has_changed |= best != own;
        })?;
        std::mem::swap(&mut labels, &mut next);
        if !has_changed {
            break;
        }
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::graph::memory::{MemoryGraph, random_graphs, ways};
    use crate::graph::source::KindFilter;
    use crate::graph::view::DenseView;
    use std::collections::BTreeMap;

    fn naive(graph: &MemoryGraph, blocks: usize, kinds: &KindFilter, iterations: u32) -> Vec<u32> {
        let mut labels: Vec<u32> = (0..blocks as u32).collect();
        for _ in 0..iterations {
            let mut seen = vec![BTreeMap::<u32, u32>::new(); blocks];
            for (source, kind, target) in graph.edges() {
                if kinds.passes(kind) {
                    let (source, target) = (source.0 as usize, target.0 as usize);
                    *seen[source].entry(labels[target]).or_default() += 1;
                    *seen[target].entry(labels[source]).or_default() += 1;
                }
            }
            for (label, seen) in labels.iter_mut().zip(&seen) {
                if let Some(most) = seen.values().max() {
                    let first = seen.iter().find(|(_, count)| *count == most);
                    *label = *first.expect("it is in the map").0;
                }
            }
        }
        labels
    }

    #[test]
    fn random_graphs_agree_with_counting_every_label() {
        for (seed, graph) in random_graphs(2_000) {
            let kinds = &ways()[seed as usize % 9].1;
            let iterations = (seed % 8) as u32;
            let view = DenseView::build(&graph, kinds, seed % 2 == 0).expect("builds");
            let found = communities(&view, iterations, &Cancel::never()).expect("runs");
            let expected = naive(&graph, found.len(), kinds, iterations);
            assert_eq!(found, expected, "seed {seed} {kinds:?} {iterations}");
        }
    }

    #[test]
    fn labels_that_alternate_do_so_until_the_last_iteration() {
        // All change at once, so the two ends of one edge swap their labels for ever.
        let graph = MemoryGraph::new(2, [(0, 1, 1)]);
        let view = DenseView::build(&graph, &KindFilter::All, true).expect("builds");
        let labels = |iterations| communities(&view, iterations, &Cancel::never()).expect("runs");
        assert_eq!(labels(0), [0, 1]);
        assert_eq!(labels(1), [1, 0]);
        assert_eq!(labels(1_000), [0, 1]);
        let cancel = Cancel::new();
        cancel.cancel();
        let ended = communities(&view, 1, &cancel);
        assert!(matches!(ended, Err(Error::Canceled)), "{ended:?}");
    }
}
