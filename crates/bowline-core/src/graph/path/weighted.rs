//! The path with the smallest sum of weights.
//!
//! Dijkstra's algorithm ("A note on two problems in connexion with graphs", 1959) with a binary
//! heap, in which outdated entries stay until they surface. It stops at the end block: O((blocks +
//! edges)·log edges) time and O(blocks + edges) memory, of the part of the graph that is nearer than the
//! end. An edge to a settled block is not read, so its weight is not checked.
//!
//! Among paths of equal weight it returns one with the fewest edges, and among those the one whose blocks
//! were found first, with neighbors in key order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::{DirectedPath, PathEdge};
use crate::graph::keys::edge_out_key;
use crate::graph::kind_id::KindId;
use crate::graph::source::{GraphSource, KindFilter, NeighborRef, one_sided_edge, require_block};
use crate::{Error, Result};
use bowline_types::IdMap;
use bowline_types::{BlockId, Direction};

/// Which number an edge weighs.
#[derive(Debug, Clone, Copy)]
pub struct Weight<'a> {
    /// The attribute that is read as a number.
    pub attribute: &'a str,
    /// The weight of an edge without the attribute; with `None` such an edge is an error. It is a
    /// finite number of at least 0.
    pub default: Option<f64>,
}

/// The path whose edges weigh least in sum. `None` when there is no path. Both blocks must exist.
///
/// An edge without the attribute is an error unless there is a default: a path over edges that say
/// nothing of their length would have a cost that means nothing, and a misspelled attribute would
/// go unnoticed.
pub fn lightest_path(
    graph: &impl GraphSource,
    from: BlockId,
    to: BlockId,
    direction: Direction,
    kinds: &KindFilter,
    weight: Weight<'_>,
) -> Result<Option<DirectedPath>> {
    require_block(graph, from)?;
    require_block(graph, to)?;
    let mut found = vec![Found {
        id: from,
        rank: Rank {
            cost: 0.0,
            edges: 0,
            at: 0,
        },
        parent: 0,
        edge: PathEdge {
            kind: KindId(0),
            direction: Direction::Out,
        },
        settled: false,
    }];
    let mut index = IdMap::from_iter([(from, 0)]);
    let mut queue = BinaryHeap::from([found[0].rank]);
    let mut neighbors = Vec::new();

    while let Some(rank) = queue.pop() {
        let here = &mut found[rank.at];
        if here.settled {
            continue;
        }
        here.settled = true;
        let id = here.id;
        if id == to {
            return Ok(Some(path_to(&found, rank.at)));
        }
        neighbors.clear();
        graph.neighbors(id, direction, kinds, &mut neighbors)?;
        for neighbor in &neighbors {
            // Each weight is read from the trees.
            graph.check()?;
            let known = index.get(&neighbor.id).copied();
            if known.is_some_and(|at: usize| found[at].settled) {
                continue;
            }
            let next_rank = Rank {
                cost: rank.cost + edge_weight(graph, id, neighbor, weight)?,
                edges: rank.edges + 1,
                at: known.unwrap_or(found.len()),
            };
            let next = Found {
                id: neighbor.id,
                rank: next_rank,
                parent: rank.at,
                edge: neighbor.edge(),
                settled: false,
            };
            match known {
                Some(at) if next_rank <= found[at].rank => continue,
                Some(at) => found[at] = next,
                None => {
                    index.insert(neighbor.id, found.len());
                    found.push(next);
                }
            }
            queue.push(next_rank);
        }
    }
    Ok(None)
}

/// A block that was found, and the best way to it so far. The start is its own parent.
struct Found {
    id: BlockId,
    rank: Rank,
    parent: usize,
    edge: PathEdge,
    /// Whether the way is final.
    settled: bool,
}

/// The priority of a block. The greatest is next: least cost, then fewest edges, then found first.
#[derive(Clone, Copy)]
struct Rank {
    cost: f64,
    edges: u32,
    at: usize,
}

impl Ord for Rank {
    fn cmp(&self, other: &Rank) -> Ordering {
        other
            .cost
            .total_cmp(&self.cost)
            .then_with(|| (other.edges, other.at).cmp(&(self.edges, self.at)))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Rank) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Rank {
    fn eq(&self, other: &Rank) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Rank {}

/// The weight of the edge between `from` and its neighbor: finite and not below 0.
pub(in crate::graph) fn edge_weight(
    graph: &impl GraphSource,
    from: BlockId,
    neighbor: &NeighborRef,
    weight: Weight<'_>,
) -> Result<f64> {
    let (source, target) = neighbor.ends(from);
    let attributes = graph
        .edge_attributes(source, neighbor.kind, target)?
        .ok_or_else(|| one_sided_edge(&edge_out_key(source, neighbor.kind, target)))?;
    let invalid = |value| Error::InvalidWeight {
        from: source,
        to: target,
        attribute: weight.attribute.to_owned(),
        value,
    };
    let Some(value) = attributes.get(weight.attribute) else {
        return weight.default.ok_or_else(|| invalid(None));
    };
    match value.as_number() {
        Some(number) if is_weight(number) => Ok(number),
        _ => Err(invalid(Some(value.to_string()))),
    }
}

/// Whether a number can be a weight: finite and not below 0.
pub fn is_weight(number: f64) -> bool {
    number.is_finite() && number >= 0.0
}

fn path_to(found: &[Found], end: usize) -> DirectedPath {
    let mut path = DirectedPath {
        cost: found[end].rank.cost,
        ..DirectedPath::trivial(found[end].id)
    };
    let mut at = end;
    while at != 0 {
        path.kinds.push(found[at].edge);
        at = found[at].parent;
        path.blocks.push(found[at].id);
    }
    path.blocks.reverse();
    path.kinds.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::memory::{MemoryGraph, distances, random_graphs, ways};
    use bowline_types::{AttributeValue, Attributes};

    fn weighing(value: impl Into<AttributeValue>) -> Attributes {
        Attributes::from([("w".to_owned(), value.into())])
    }

    /// The attribute `w`, and 1 where there is none.
    const W: Weight<'_> = Weight {
        attribute: "w",
        default: Some(1.0),
    };

    fn lightest(graph: &MemoryGraph, from: u128, to: u128) -> Result<Option<DirectedPath>> {
        lightest_path(
            graph,
            BlockId(from),
            BlockId(to),
            Direction::Out,
            &KindFilter::All,
            W,
        )
    }

    fn outline(path: Option<DirectedPath>) -> Option<(Vec<u128>, Vec<u32>, f64)> {
        path.map(|path| {
            let kinds = path.kinds.iter().map(|edge| edge.kind.0).collect();
            (
                path.blocks.iter().map(|id| id.0).collect(),
                kinds,
                path.cost,
            )
        })
    }

    #[test]
    fn a_longer_way_may_be_lighter() {
        let mut graph = MemoryGraph::new(4, [(1, 1, 2)]);
        graph.add_edge(0, 1, 2, &weighing("3.5"));
        graph.add_edge(0, 1, 1, &weighing("1e0"));
        graph.add_edge(0, 2, 1, &weighing("0.25"));
        let found = lightest(&graph, 0, 2).expect("reads");
        assert_eq!(
            outline(found),
            Some((vec![0, 1, 2], vec![2, 1], 1.25)),
            "the rest counts 1"
        );
        assert_eq!(lightest(&graph, 0, 3).expect("reads"), None);
        assert_eq!(lightest(&graph, 2, 0).expect("reads"), None);
        assert_eq!(
            outline(lightest(&graph, 3, 3).expect("reads")),
            Some((vec![3], vec![], 0.0))
        );

        let all = &KindFilter::All;
        let back = lightest_path(&graph, BlockId(2), BlockId(0), Direction::In, all, W);
        assert_eq!(
            outline(back.expect("reads")),
            Some((vec![2, 1, 0], vec![1, 2], 1.25))
        );
        let weight = Weight {
            attribute: "other",
            default: Some(1.0),
        };
        let other = lightest_path(&graph, BlockId(0), BlockId(2), Direction::Out, all, weight);
        assert_eq!(
            outline(other.expect("reads")),
            Some((vec![0, 2], vec![1], 1.0))
        );
    }

    #[test]
    fn among_equal_sums_the_fewest_edges_win() {
        let mut graph = MemoryGraph::new(4, []);
        graph.add_edge(0, 1, 1, &weighing("0"));
        graph.add_edge(1, 1, 2, &weighing("-0"));
        graph.add_edge(2, 1, 3, &weighing("2"));
        graph.add_edge(0, 1, 3, &weighing("2"));
        graph.add_edge(1, 1, 0, &weighing("0"));
        let found = lightest(&graph, 0, 3).expect("reads");
        assert_eq!(outline(found), Some((vec![0, 3], vec![1], 2.0)));
        let found = lightest(&graph, 0, 2).expect("reads").expect("a path");
        assert!(found.cost.is_sign_positive());
    }

    /// A path with `--weight km` had a cost though no edge had the attribute `km`: each counted 1.
    #[test]
    fn an_edge_without_the_attribute_is_named_unless_there_is_a_default() {
        for direction in [Direction::Out, Direction::In] {
            let mut graph = MemoryGraph::new(3, []);
            let ends = |from: u128, to: u128| match direction {
                Direction::In => (to, from),
                _ => (from, to),
            };
            let (source, target) = ends(0, 1);
            graph.add_edge(source, 1, target, &weighing("2"));
            let (source, target) = ends(1, 2);
            graph.add_edge(source, 1, target, &Attributes::new());
            let search = |default| {
                let weight = Weight { default, ..W };
                let all = &KindFilter::All;
                lightest_path(&graph, BlockId(0), BlockId(2), direction, all, weight)
            };
            let found = search(None);
            let Err(Error::InvalidWeight {
                from,
                to,
                attribute,
                value: None,
            }) = found
            else {
                panic!("{direction:?}: {found:?}");
            };
            assert_eq!((from, to), (BlockId(source), BlockId(target)));
            assert_eq!(attribute, "w");
            let found = search(Some(0.5)).expect("reads").expect("a path");
            assert_eq!(found.cost, 2.5);
        }
    }

    #[test]
    fn weights_that_are_no_weights_are_named() {
        for value in [
            "-1", "-0.0001", "NaN", "inf", "-inf", "1e999", "", "heavy", " 1", "1,5",
        ] {
            for direction in [Direction::Out, Direction::In, Direction::Both] {
                let mut graph = MemoryGraph::new(2, []);
                let (source, target) = if direction == Direction::In {
                    (1, 0)
                } else {
                    (0, 1)
                };
                graph.add_edge(source, 1, target, &weighing(value));
                let all = &KindFilter::All;
                let found = lightest_path(&graph, BlockId(0), BlockId(1), direction, all, W);
                let Err(Error::InvalidWeight {
                    from,
                    to,
                    attribute,
                    value: Some(named),
                }) = found
                else {
                    panic!("{value:?} {direction:?}: {found:?}");
                };
                assert_eq!((from, to), (BlockId(source), BlockId(target)));
                assert_eq!((attribute.as_str(), named.as_str()), ("w", value));
            }
        }
    }

    #[test]
    fn missing_blocks_and_halves_of_edges_are_refused() {
        let mut graph = MemoryGraph::path(2);
        for (from, to) in [(0, 7), (7, 0), (7, 7)] {
            let result = lightest(&graph, from, to);
            assert!(
                matches!(result, Err(Error::MissingBlock { id: BlockId(7) })),
                "{result:?}"
            );
        }
        graph.damage_edge(0, 0, 1);
        let all = &KindFilter::All;
        let result = lightest_path(&graph, BlockId(1), BlockId(0), Direction::In, all, W);
        assert!(
            matches!(result, Err(Error::InvalidRecord { what: "edge", .. })),
            "{result:?}"
        );
    }

    #[test]
    fn sums_too_large_for_a_number_still_lead_to_the_end() {
        let mut graph = MemoryGraph::new(3, []);
        graph.add_edge(0, 1, 1, &weighing("1.7e308"));
        graph.add_edge(1, 1, 2, &weighing("1.7e308"));
        let found = lightest(&graph, 0, 2).expect("reads");
        assert_eq!(
            outline(found),
            Some((vec![0, 1, 2], vec![1, 1], f64::INFINITY))
        );
    }

    #[test]
    fn a_long_path_does_not_overflow_the_stack() {
        let found = lightest(&MemoryGraph::path(200_000), 0, 199_999).expect("reads");
        assert_eq!(
            found.map(|path| (path.blocks.len(), path.cost)),
            Some((200_000, 199_999.0))
        );
    }

    #[test]
    fn random_graphs_agree_with_the_table_of_distances() {
        // Quarters add up exactly, in whatever order.
        let weight = |source: BlockId, kind: KindId, target: BlockId| {
            ((source.0 * 7 + u128::from(kind.0) * 5 + target.0 * 3) % 11) as f64 / 4.0
        };
        for (seed, mut graph) in random_graphs(300) {
            for (source, kind, target) in graph.edges() {
                let value = weighing(weight(source, kind, target).to_string());
                graph.add_edge(source.0, kind.0, target.0, &value);
            }
            for (direction, kinds) in ways() {
                let table = distances(&graph, direction, &kinds, weight);
                for (from, row) in table.iter().enumerate() {
                    for (to, &distance) in row.iter().enumerate() {
                        let context =
                            format!("seed {seed}: {from} to {to} {direction:?} {kinds:?}");
                        let (from, to) = (BlockId(from as u128), BlockId(to as u128));
                        let found =
                            lightest_path(&graph, from, to, direction, &kinds, W).expect("reads");
                        assert_eq!(found.as_ref().map(|path| path.cost), distance, "{context}");
                        let Some(path) = found else { continue };
                        assert_eq!(path.blocks.first(), Some(&from), "{context}");
                        assert_eq!(path.blocks.last(), Some(&to), "{context}");
                        check_sum(&graph, &path, direction, &kinds, weight, &context);
                    }
                }
            }
        }
    }

    /// The edges of the path exist and weigh together what it says.
    fn check_sum(
        graph: &MemoryGraph,
        path: &DirectedPath,
        direction: Direction,
        kinds: &KindFilter,
        weight: impl Fn(BlockId, KindId, BlockId) -> f64,
        context: &str,
    ) {
        let edges = graph.edges();
        let mut sum = 0.0;
        assert_eq!(path.blocks.len(), path.kinds.len() + 1, "{context}");
        for (ends, taken) in path.blocks.windows(2).zip(&path.kinds) {
            assert!(kinds.passes(taken.kind), "{context}");
            assert_ne!(direction, taken.direction.reversed(), "{context}");
            let (source, target) = match taken.direction {
                Direction::In => (ends[1], ends[0]),
                _ => (ends[0], ends[1]),
            };
            let edge = (source, taken.kind, target);
            assert!(edges.contains(&edge), "{context}: no edge {edge:?}");
            sum += weight(source, taken.kind, target);
        }
        assert_eq!(sum, path.cost, "{context}");
    }
}
