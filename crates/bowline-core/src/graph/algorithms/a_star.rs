//! The path with the smallest sum of weights, found with an estimate of what is left.
//!
//! A* (Hart, Nilsson and Raphael, "A formal basis for the heuristic determination of minimum cost paths", 1968). Of the
//! blocks found, it goes on from the one with the least sum of cost so far and estimated rest. With an *admissible*
//! estimate, one that is never more than the true rest, the path is a lightest one. An estimate of 0 makes it Dijkstra's
//! algorithm; a good one keeps it from reading what lies in other directions.
//!
//! An estimate need not be *consistent*: a block that is reached more cheaply later is expanded again. With a consistent
//! estimate none is, and it takes O((blocks + edges)·log edges) time and about 120 B per block found plus 24 B per edge
//! of memory, of the part that it reads; without, the time can be exponential at worst.
//!
//! Among paths of equal weight it returns the one that it finds first; which one depends on the estimate. Sums are of
//! floating-point numbers: where two paths differ by a rounding error, either may be returned.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use bowline_types::{BlockId, Direction};

use crate::graph::cancel::Cancel;
use crate::graph::kind_id::KindId;
use crate::graph::path::Path;
use crate::graph::path::weighted::{Weight, edge_weight};
use crate::graph::source::{GraphSource, KindFilter, require_block};
use crate::{Error, Result};
use bowline_types::IdMap;

/// The path whose edges weigh least in sum, if `estimate` never gives more than what is left from a block to `to`; `None`
/// when there is no path. Both blocks must exist.
///
/// What is below 0 counts as 0, an infinite estimate as "no path leads on from here", and one that is not a number is an
/// error.
pub fn guided_path(
    graph: &impl GraphSource,
    (from, to): (BlockId, BlockId),
    direction: Direction,
    kinds: &KindFilter,
    weight: Weight<'_>,
    mut estimate: impl FnMut(BlockId) -> f64,
    cancel: &Cancel,
) -> Result<Option<Path>> {
    require_block(graph, from)?;
    require_block(graph, to)?;
    // At the end nothing is left, whatever the estimate says.
    let mut rest_of = |id| {
        if id == to {
            Ok(0.0)
        } else {
            checked(estimate(id))
        }
    };
    let mut found = vec![Found {
        id: from,
        cost: 0.0,
        rest: rest_of(from)?,
        parent: 0,
        kind: KindId(0),
    }];
    let mut index = IdMap::from_iter([(from, 0)]);
    let mut queue = BinaryHeap::from([Rank::of(&found, 0)]);
    let mut neighbors = Vec::new();
    while let Some(rank) = queue.pop() {
        cancel.check()?;
        let Found { id, cost, rest, .. } = found[rank.at];
        if rank.cost > cost || rest.is_infinite() {
            continue;
        }
        if id == to {
            return Ok(Some(path_to(&found, rank.at)));
        }
        neighbors.clear();
        graph.neighbors(id, direction, kinds, &mut neighbors)?;
        for neighbor in &neighbors {
            cancel.check()?;
            let cost = cost + edge_weight(graph, id, neighbor, weight)?;
            let at = match index.get(&neighbor.id) {
                Some(&at) if found[at].cost <= cost => continue,
                Some(&at) => at,
                None => {
                    index.insert(neighbor.id, found.len());
                    found.push(Found {
                        id: neighbor.id,
                        cost,
                        rest: rest_of(neighbor.id)?,
                        parent: rank.at,
                        kind: neighbor.kind,
                    });
                    found.len() - 1
                }
            };
            let better = &mut found[at];
            (better.cost, better.parent, better.kind) = (cost, rank.at, neighbor.kind);
            queue.push(Rank::of(&found, at));
        }
    }
    Ok(None)
}

/// An estimate as the search uses it.
fn checked(estimate: f64) -> Result<f64> {
    match estimate.is_nan() {
        true => Err(Error::NotSupported {
            what: "an estimate that is not a number",
            why: "give 0 where nothing is known, and infinity where no path leads to the end",
        }),
        false => Ok(estimate.max(0.0)),
    }
}

/// A block that was found, and the best way to it so far. The start is its own parent.
struct Found {
    id: BlockId,
    cost: f64,
    /// The estimate of what is left from here.
    rest: f64,
    parent: usize,
    kind: KindId,
}

/// The priority of a block. The greatest is next: least estimated total, then most of it behind, then found first.
#[derive(Clone, Copy)]
struct Rank {
    total: f64,
    cost: f64,
    at: usize,
}

impl Rank {
    fn of(found: &[Found], at: usize) -> Rank {
        Rank {
            total: found[at].cost + found[at].rest,
            cost: found[at].cost,
            at,
        }
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Rank) -> Ordering {
        let nearest = other.total.total_cmp(&self.total);
        let deepest = self.cost.total_cmp(&other.cost);
        nearest.then(deepest).then_with(|| other.at.cmp(&self.at))
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

fn path_to(found: &[Found], end: usize) -> Path {
    let mut path = Path {
        cost: found[end].cost,
        ..Path::trivial(found[end].id)
    };
    let mut at = end;
    // A cheaper way to the start does not exist, so it keeps its place as its own parent.
    while at != 0 {
        path.kinds.push(found[at].kind);
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
    use bowline_types::Attributes;

    const W: Weight<'_> = Weight {
        attribute: "w",
        default: Some(1.0),
    };

    fn weighing(value: &str) -> Attributes {
        Attributes::from([("w".to_owned(), value.into())])
    }

    /// A whole number, so that sums are exact, and often 0.
    fn weight_of(source: BlockId, kind: KindId, target: BlockId) -> f64 {
        ((source.0 * 7 + u128::from(kind.0) * 5 + target.0 * 3) % 9) as f64
    }

    #[test]
    fn random_graphs_agree_with_the_table_of_distances() {
        for (seed, plain) in random_graphs(2_000) {
            let (direction, kinds) = &ways()[seed as usize % 9];
            let mut graph = plain;
            for (source, kind, target) in graph.edges() {
                let with = weighing(&weight_of(source, kind, target).to_string());
                graph.add_edge(source.0, kind.0, target.0, &with);
            }
            let table = distances(&graph, *direction, kinds, weight_of);
            let to = seed as usize % table.len();
            // Admissible, and as a rule not consistent: a part of the rest that differs from block to block.
            let mut random = fastrand::Rng::with_seed(seed);
            let parts: Vec<f64> = table.iter().map(|_| random.u32(..5) as f64 / 4.0).collect();
            let rest = |id: BlockId| {
                let at = id.0 as usize;
                table[at][to].map_or(f64::INFINITY, |rest| rest * parts[at])
            };
            for (from, row) in table.iter().enumerate() {
                let ends = (BlockId(from as u128), BlockId(to as u128));
                let context = format!("seed {seed}: {ends:?} {direction:?} {kinds:?}");
                let never = Cancel::never();
                let found =
                    guided_path(&graph, ends, *direction, kinds, W, rest, &never).expect("reads");
                assert_eq!(found.as_ref().map(|path| path.cost), row[to], "{context}");
                let Some(path) = found else { continue };
                assert_eq!(path.blocks.first(), Some(&ends.0), "{context}");
                assert_eq!(path.blocks.last(), Some(&ends.1), "{context}");
                let sum: f64 = path
                    .blocks
                    .windows(2)
                    .zip(&path.kinds)
                    .map(|(pair, kind)| {
                        let mut neighbors = Vec::new();
                        graph
                            .neighbors(pair[0], *direction, kinds, &mut neighbors)
                            .expect("reads");
                        let weights = neighbors
                            .iter()
                            .filter(|next| next.id == pair[1] && next.kind == *kind);
                        weights
                            .map(|next| {
                                let (source, target) = next.ends(pair[0]);
                                weight_of(source, next.kind, target)
                            })
                            .fold(f64::INFINITY, f64::min)
                    })
                    .sum();
                assert_eq!(sum, path.cost, "{context}: its edges exist");
            }
        }
    }

    #[test]
    fn a_good_estimate_keeps_it_from_reading_what_lies_elsewhere() {
        // A line of which both ends are far from the start.
        let mut graph = MemoryGraph::new(2_001, []);
        for id in 0..2_000 {
            graph.add_edge(id, 1, id + 1, &Attributes::new());
            graph.add_edge(id + 1, 1, id, &Attributes::new());
        }
        let ends = (BlockId(1_000), BlockId(2_000));
        let (out, all, never) = (Direction::Out, KindFilter::All, Cancel::never());
        let search = |estimate: fn(BlockId) -> f64| {
            graph.neighbors_asked.set(0);
            let found = guided_path(&graph, ends, out, &all, W, estimate, &never);
            assert_eq!(found.expect("reads").expect("a path").cost, 1_000.0);
            graph.neighbors_asked.get()
        };
        assert_eq!(search(|id| (2_000 - id.0) as f64), 1_000);
        assert!(search(|_| 0.0) > 1_900);
        // What is below 0 says nothing.
        assert!(search(|_| -7.5) > 1_900);
    }

    #[test]
    fn bad_estimates_and_weights_are_refused_and_a_canceled_search_ends() {
        let mut graph = MemoryGraph::new(3, [(0, 1, 1)]);
        graph.add_edge(1, 1, 2, &weighing("-4"));
        let (out, all) = (Direction::Out, KindFilter::All);
        let search = |estimate: f64, cancel: &Cancel| {
            let ends = (BlockId(0), BlockId(2));
            guided_path(&graph, ends, out, &all, W, |_| estimate, cancel)
        };
        let refused = search(f64::NAN, &Cancel::never());
        assert!(
            matches!(refused, Err(Error::NotSupported { .. })),
            "{refused:?}"
        );
        let refused = search(0.0, &Cancel::never());
        assert!(
            matches!(
                refused,
                Err(Error::InvalidWeight {
                    from: BlockId(1),
                    to: BlockId(2),
                    ..
                })
            ),
            "{refused:?}"
        );
        // Nothing is followed from where no path is said to lead on.
        assert!(matches!(search(f64::INFINITY, &Cancel::never()), Ok(None)));
        let cancel = Cancel::new();
        cancel.cancel();
        let ended = search(0.0, &cancel);
        assert!(matches!(ended, Err(Error::Canceled)), "{ended:?}");
    }
}
