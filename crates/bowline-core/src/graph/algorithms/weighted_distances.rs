//! The smallest sum of edge weights from one block to every other.
//!
//! Dijkstra's algorithm ("A note on two problems in connexion with graphs", 1959) with a binary heap, in which outdated
//! entries stay until they surface; the *SSSP* of LDBC Graphalytics. O((vertices + edges)·log edges) time; 8 B per
//! vertex and up to 16 B per edge of memory, beside the view with its column of weights.
//!
//! Invariant: an entry that surfaces with the present distance of its vertex is final, because weights are not negative.
//! All distances are at least +0.0, so their bits order as their numbers do, and the heap compares integers.
//!
//! Of parallel edges the lightest counts; self-loops change nothing. Every edge that leaves a reached vertex is checked:
//! one without a usable weight is an error that names it, as for a single path. A vertex whose distance would be more
//! than a floating-point number can hold counts as unreached.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bowline_types::{BlockId, Direction};

use super::adjacency::WeightedAdjacency;
use crate::graph::cancel::Cancel;
use crate::graph::keys::edge_prefix;
use crate::graph::path::weighted::{Weight, edge_weight};
use crate::graph::source::{GraphSource, KindFilter, one_sided_edge};
use crate::graph::view::DenseView;
use crate::graph::weighted_view::WeightedView;
use crate::{Error, Result};

/// For each block the smallest sum of weights from `start`, infinite where no path leads; with the view that was read,
/// for the ids.
pub fn weighted_distances_from(
    graph: &impl GraphSource,
    start: BlockId,
    direction: Direction,
    kinds: &KindFilter,
    weight: Weight<'_>,
    cancel: &Cancel,
) -> Result<(DenseView<'static>, Vec<f64>)> {
    let weighted = WeightedView::build(graph, kinds, weight)?;
    let view = weighted.view();
    let first = view.require_number(start)?;
    match weighted_distances(&weighted, first, direction, cancel)? {
        Ok(distances) => Ok((weighted.into_view(), distances)),
        Err((near, far)) => {
            let ends = (view.id(near), view.id(far));
            Err(why_refused(graph, ends, direction, kinds, weight)?)
        }
    }
}

/// For each vertex the smallest sum of weights from `start`, or infinity; or else the near and the far end of an edge
/// whose weight is not a number.
fn weighted_distances(
    graph: &impl WeightedAdjacency,
    start: u32,
    direction: Direction,
    cancel: &Cancel,
) -> Result<Result<Vec<f64>, (u32, u32)>> {
    let vertices = graph.vertex_count();
    match direction {
        Direction::Out => search(vertices, start, |near| graph.weighted_out_row(near), cancel),
        Direction::In => search(vertices, start, |near| graph.weighted_in_row(near), cancel),
        Direction::Both => {
            let both = |near| {
                graph
                    .weighted_out_row(near)
                    .chain(graph.weighted_in_row(near))
            };
            search(vertices, start, both, cancel)
        }
    }
}

fn search<I: Iterator<Item = (u32, f64)>>(
    vertices: u32,
    start: u32,
    row: impl Fn(u32) -> I,
    cancel: &Cancel,
) -> Result<Result<Vec<f64>, (u32, u32)>> {
    let mut distances = vec![f64::INFINITY; vertices as usize];
    distances[start as usize] = 0.0;
    let mut queue = BinaryHeap::from([Reverse((0.0f64.to_bits(), start))]);
    while let Some(Reverse((bits, near))) = queue.pop() {
        cancel.check()?;
        let distance = f64::from_bits(bits);
        if distance > distances[near as usize] {
            continue;
        }
        for (far, weight) in row(near) {
            if weight.is_nan() {
                return Ok(Err((near, far)));
            }
            let through = distance + weight;
            if through < distances[far as usize] {
                distances[far as usize] = through;
                queue.push(Reverse((through.to_bits(), far)));
            }
        }
    }
    Ok(Ok(distances))
}

/// The error about the edge between two blocks that has no usable weight.
fn why_refused(
    graph: &impl GraphSource,
    (near, far): (BlockId, BlockId),
    direction: Direction,
    kinds: &KindFilter,
    weight: Weight<'_>,
) -> Result<Error> {
    let mut neighbors = Vec::new();
    graph.neighbors(near, direction, kinds, &mut neighbors)?;
    let mut between = neighbors.iter().filter(|neighbor| neighbor.id == far);
    let error = between.find_map(|neighbor| edge_weight(graph, near, neighbor, weight).err());
    // The view has read the edge from one of its two entries, and the other does not exist.
    Ok(error.unwrap_or_else(|| one_sided_edge(&edge_prefix(near))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::kind_id::KindId;
    use crate::graph::memory::{self, MemoryGraph, random_graphs, ways};
    use bowline_types::Attributes;

    fn weighing(value: &str) -> Attributes {
        Attributes::from([("w".to_owned(), value.into())])
    }

    /// A weight in quarters, so that sums are exact, and often 0.
    fn weight_of(source: BlockId, kind: KindId, target: BlockId) -> f64 {
        ((source.0 * 7 + u128::from(kind.0) * 5 + target.0 * 3) % 9) as f64 / 4.0
    }

    #[test]
    fn random_graphs_agree_with_the_table_of_distances() {
        for (seed, plain) in random_graphs(2_000) {
            let (direction, kinds) = &ways()[seed as usize % 9];
            let mut graph = plain;
            for (source, kind, target) in graph.edges() {
                let weight = weight_of(source, kind, target);
                // Those of weight 1 leave it to the default.
                if weight != 1.0 {
                    let with = weighing(&weight.to_string());
                    graph.add_edge(source.0, kind.0, target.0, &with);
                }
            }
            let weight = Weight {
                attribute: "w",
                default: Some(1.0),
            };
            let table = memory::distances(&graph, *direction, kinds, weight_of);
            for (start, row) in table.into_iter().enumerate() {
                let (view, found) = weighted_distances_from(
                    &graph,
                    BlockId(start as u128),
                    *direction,
                    kinds,
                    weight,
                    &Cancel::never(),
                )
                .expect("runs");
                assert_eq!(view.id(start as u32), BlockId(start as u128));
                let expected = row.into_iter().map(|sum| sum.unwrap_or(f64::INFINITY));
                assert!(
                    found.into_iter().eq(expected),
                    "seed {seed}: from {start} {direction:?} {kinds:?}"
                );
            }
        }
    }

    fn from_0(graph: &MemoryGraph, direction: Direction) -> Result<Vec<f64>> {
        let weight = Weight {
            attribute: "w",
            default: None,
        };
        let (kinds, never) = (KindFilter::All, Cancel::never());
        let found = weighted_distances_from(graph, BlockId(0), direction, &kinds, weight, &never);
        found.map(|(_, distances)| distances)
    }

    #[test]
    fn an_edge_without_a_usable_weight_is_named_if_it_is_reached() {
        for (text, value) in [
            (None, None),
            (Some("-1"), Some("-1")),
            (Some("NaN"), Some("NaN")),
            (Some("inf"), Some("inf")),
            (Some("far"), Some("far")),
        ] {
            let with = text.map_or_else(Attributes::new, weighing);
            let mut graph = MemoryGraph::new(4, []);
            graph.add_edge(0, 1, 1, &weighing("1"));
            graph.add_edge(1, 1, 2, &weighing("1"));
            graph.add_edge(1, 2, 2, &with);
            // From block 3, which is not reached from 0.
            graph.add_edge(3, 1, 0, &weighing("wrong"));
            let Err(Error::InvalidWeight {
                from,
                to,
                attribute,
                value: refused,
            }) = from_0(&graph, Direction::Out)
            else {
                panic!("{text:?} is refused");
            };
            assert_eq!((from, to, &*attribute), (BlockId(1), BlockId(2), "w"));
            assert_eq!(refused.as_deref(), value);
            // Against the direction, it is the other edge, named as it is stored.
            let refused = from_0(&graph, Direction::In);
            assert!(
                matches!(
                    refused,
                    Err(Error::InvalidWeight {
                        from: BlockId(3),
                        to: BlockId(0),
                        ..
                    })
                ),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn a_missing_start_is_refused_and_a_sum_out_of_range_is_unreached() {
        let refused = from_0(&MemoryGraph::new(0, []), Direction::Out);
        assert!(
            matches!(refused, Err(Error::MissingBlock { id: BlockId(0) })),
            "{refused:?}"
        );
        let mut graph = MemoryGraph::new(3, []);
        graph.add_edge(0, 1, 1, &weighing("1e308"));
        graph.add_edge(1, 1, 2, &weighing("1e308"));
        let found = from_0(&graph, Direction::Out).expect("runs");
        assert_eq!(found, [0.0, 1e308, f64::INFINITY]);
    }

    #[test]
    fn a_canceled_run_ends() {
        let cancel = Cancel::new();
        cancel.cancel();
        let weight = Weight {
            attribute: "w",
            default: Some(1.0),
        };
        let (graph, all) = (MemoryGraph::path(3), KindFilter::All);
        let out = Direction::Out;
        let ended = weighted_distances_from(&graph, BlockId(0), out, &all, weight, &cancel);
        assert!(matches!(ended.map(|_| ()), Err(Error::Canceled)));
    }
}
