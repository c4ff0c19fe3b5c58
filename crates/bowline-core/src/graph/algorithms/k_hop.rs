//! The neighborhood of a block: every block within `k` edges of it.
//!
//! Breadth-first search (Moore, "The shortest path through a maze", 1959) by levels, over the trees: it reads only the
//! blocks nearer than `k`. O(their edges) time, and about 100 B of memory per block found.
//!
//! Invariant: a level has exactly the blocks at its distance, each once. The start is in no level, also when it has a
//! self-loop.

use bowline_types::{BlockId, Direction};

use crate::Result;
use crate::graph::cancel::Cancel;
use crate::graph::source::{GraphSource, KindFilter, require_block};
use bowline_types::IdSet;

/// The blocks 1 to `hops` edges away, in the order of their ids, with their distances.
pub fn k_hop(
    graph: &impl GraphSource,
    start: BlockId,
    hops: u32,
    direction: Direction,
    kinds: &KindFilter,
    cancel: &Cancel,
) -> Result<Vec<(BlockId, u32)>> {
    require_block(graph, start)?;
    let mut found: Vec<(BlockId, u32)> = Vec::new();
    let mut seen = IdSet::from_iter([start]);
    let mut level = vec![start];
    let mut neighbors = Vec::new();
    for hop in 1..=hops {
        let mut next = Vec::new();
        for near in level {
            cancel.check()?;
            neighbors.clear();
            graph.neighbors(near, direction, kinds, &mut neighbors)?;
            let far = neighbors.iter().map(|neighbor| neighbor.id);
            next.extend(far.filter(|far| seen.insert(*far)));
        }
        if next.is_empty() {
            break;
        }
        found.extend(next.iter().map(|id| (*id, hop)));
        level = next;
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::graph::memory::{MemoryGraph, distances, random_graphs, ways};

    #[test]
    fn random_graphs_agree_with_the_table_of_distances() {
        for (seed, graph) in random_graphs(2_000) {
            let (direction, kinds) = &ways()[seed as usize % 9];
            let hops = (seed % 5) as u32;
            let table = distances(&graph, *direction, kinds, |_, _, _| 1.0);
            for (start, row) in table.into_iter().enumerate() {
                let id = BlockId(start as u128);
                let found = k_hop(&graph, id, hops, *direction, kinds, &Cancel::never());
                let near = |(end, distance): (usize, Option<f64>)| {
                    let distance = distance? as u32;
                    (1..=hops)
                        .contains(&distance)
                        .then_some((BlockId(end as u128), distance))
                };
                assert!(
                    found
                        .expect("reads")
                        .into_iter()
                        .eq(row.into_iter().enumerate().filter_map(near)),
                    "seed {seed}: {hops} from {start} {direction:?} {kinds:?}"
                );
            }
        }
    }

    #[test]
    fn only_nearer_blocks_are_read_and_a_canceled_run_ends() {
        let graph = MemoryGraph::path(100);
        let (out, all) = (Direction::Out, KindFilter::All);
        let found = k_hop(&graph, BlockId(0), 3, out, &all, &Cancel::never()).expect("reads");
        assert_eq!(found.len(), 3);
        assert_eq!(graph.neighbors_asked.get(), 3);
        let missing = k_hop(&graph, BlockId(100), 3, out, &all, &Cancel::never());
        assert!(
            matches!(missing, Err(Error::MissingBlock { .. })),
            "{missing:?}"
        );
        let cancel = Cancel::new();
        cancel.cancel();
        let ended = k_hop(&graph, BlockId(0), 3, out, &all, &cancel);
        assert!(matches!(ended, Err(Error::Canceled)), "{ended:?}");
    }
}
