//! Reachability of one block from another.
//!
//! Bidirectional breadth-first search (Pohl, "Bi-directional search", 1971): it always advances the side with
//! the smaller frontier, until the sides meet or one is exhausted. With degree `g` and distance `d` it reads
//! about 2·g^(d/2) blocks instead of g^d. At worst O(blocks + edges) time and O(blocks) memory.
//!
//! If `to` has no incoming path, its side ends at once, however much is reachable from `from`.

use super::source::{GraphSource, KindFilter, require_block};
use super::walk::{ByIds, Marks, RowBuffer, Walk};
use crate::Result;
use bowline_types::{BlockId, Direction};

/// Whether a path of any length leads from `from` to `to`; each block reaches itself. Both must
/// exist.
pub fn reachable(
    graph: &impl GraphSource,
    from: BlockId,
    to: BlockId,
    direction: Direction,
    kinds: &KindFilter,
) -> Result<bool> {
    require_block(graph, from)?;
    require_block(graph, to)?;
    reaches(&ByIds::new(graph), from, to, direction, kinds)
}

/// As [`reachable`]. Both exist.
pub fn reaches<W: Walk>(
    graph: &W,
    from: W::Node,
    to: W::Node,
    direction: Direction,
    kinds: &KindFilter,
) -> Result<bool> {
    if from == to {
        return Ok(true);
    }
    let mut near = Side::new(graph, from, direction);
    let mut far = Side::new(graph, to, direction.reversed());
    let mut buffer = RowBuffer::default();
    loop {
        if far.frontier.len() < near.frontier.len() {
            std::mem::swap(&mut near, &mut far);
        }
        if near.frontier.is_empty() {
            return Ok(false);
        }
        for node in std::mem::take(&mut near.frontier) {
            graph.check()?;
            for &next in graph.row(node, near.direction, kinds, &mut buffer)?.nodes {
                if far.found.contains(next) {
                    return Ok(true);
                }
                if near.found.insert(next) {
                    near.frontier.push(next);
                }
            }
        }
    }
}

/// One of the two searches.
struct Side<W: Walk> {
    direction: Direction,
    found: W::Marks,
    /// The blocks that were found last and are not expanded.
    frontier: Vec<W::Node>,
}

impl<W: Walk> Side<W> {
    fn new(graph: &W, start: W::Node, direction: Direction) -> Side<W> {
        let mut found = graph.marks();
        found.insert(start);
        Side {
            direction,
            found,
            frontier: vec![start],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kind_id::KindId;
    use super::super::memory::{MemoryGraph, distances, random_graphs, ways};
    use super::*;
    use crate::Error;

    fn reaches(graph: &MemoryGraph, from: u128, to: u128, direction: Direction) -> bool {
        reachable(
            graph,
            BlockId(from),
            BlockId(to),
            direction,
            &KindFilter::All,
        )
        .expect("reads")
    }

    #[test]
    fn edges_lead_one_way_unless_asked_for_both() {
        let graph = MemoryGraph::new(4, [(0, 1, 1), (1, 1, 2), (3, 2, 3)]);
        assert!(reaches(&graph, 0, 2, Direction::Out));
        assert!(!reaches(&graph, 2, 0, Direction::Out));
        assert!(reaches(&graph, 2, 0, Direction::In));
        assert!(reaches(&graph, 2, 0, Direction::Both));
        assert!(!reaches(&graph, 0, 3, Direction::Both));
        for direction in [Direction::Out, Direction::In, Direction::Both] {
            assert!(reaches(&graph, 0, 0, direction), "without a self loop");
            assert!(reaches(&graph, 3, 3, direction), "with a self loop");
        }
        let kinds = KindFilter::only([KindId(2)]);
        let found = reachable(&graph, BlockId(0), BlockId(1), Direction::Out, &kinds);
        assert!(!found.expect("reads"));
    }

    #[test]
    fn missing_blocks_are_refused() {
        let graph = MemoryGraph::new(1, []);
        for (from, to) in [(0, 5), (5, 0), (5, 5)] {
            let result = reachable(
                &graph,
                BlockId(from),
                BlockId(to),
                Direction::Out,
                &KindFilter::All,
            );
            assert!(
                matches!(result, Err(Error::MissingBlock { id: BlockId(5) })),
                "{result:?}"
            );
        }
    }

    #[test]
    fn a_block_that_nothing_leads_to_is_told_at_once() {
        let graph = MemoryGraph::new(1001, (0..1000).map(|id| (0, 0, id)));
        assert!(!reaches(&graph, 0, 1000, Direction::Out));
        assert!(graph.neighbors_asked.get() <= 2);
    }

    #[test]
    fn a_long_path_does_not_overflow_the_stack() {
        let graph = MemoryGraph::path(200_000);
        assert!(reaches(&graph, 0, 199_999, Direction::Out));
        assert!(!reaches(&graph, 199_999, 1, Direction::Out));
    }

    #[test]
    fn random_graphs_agree_with_the_table_of_distances() {
        for (seed, graph) in random_graphs(300) {
            for (direction, kinds) in ways() {
                let table = distances(&graph, direction, &kinds, |_, _, _| 1.0);
                for (from, row) in table.iter().enumerate() {
                    for (to, distance) in row.iter().enumerate() {
                        let (a, b) = (BlockId(from as u128), BlockId(to as u128));
                        let found = reachable(&graph, a, b, direction, &kinds).expect("reads");
                        assert_eq!(
                            found,
                            distance.is_some(),
                            "seed {seed}: {from} to {to} {direction:?} {kinds:?}"
                        );
                    }
                }
            }
        }
    }
}
