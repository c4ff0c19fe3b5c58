//! All simple paths between two blocks: those on which no block occurs twice.
//!
//! Depth-first search with an explicit stack. A breadth-first search backward from the end first finds how far each block
//! is from it, up to the bound (as in Rizzi, Sacomoto and Sagot, "Efficiently listing bounded length st-paths", 2014):
//! the search forward never goes where the end is out of reach or farther than what is left of the bound. Blocks already
//! on the path may still close the way, so the time per path has no bound but that of the number of partial paths, which
//! can be exponential. The caller takes one path after another, and stops or cancels when it has enough.
//!
//! Memory: about 100 B per block within the bound of the end, and 32 B per neighbor of the blocks on the path.
//!
//! Paths come in the order of edges: compared edge by edge from the start, leaving before arriving edges, then by kind,
//! then by id. Two kinds of edges between the same blocks make two paths. The path from a block to itself is the one
//! without edges.

use bowline_types::{BlockId, Direction};

use crate::Result;
use crate::graph::cancel::Cancel;
use crate::graph::kind_id::KindId;
use crate::graph::path::{DirectedPath, PathEdge};
use crate::graph::source::{GraphSource, KindFilter, NeighborRef, require_block};
use bowline_types::{IdMap, IdSet};

/// A search that has found some of the paths.
#[derive(Debug)]
pub struct SimplePaths {
    to: BlockId,
    direction: Direction,
    kinds: KindFilter,
    edges_max: u32,
    /// How many edges each block is from the end, as far as the bound.
    distance_to: IdMap<u32>,
    /// The blocks of the present path, from the start. Empty when all paths were found.
    stack: Vec<Frame>,
    on_path: IdSet,
    /// Whether the path without edges is still to be given.
    is_trivial: bool,
}

/// A block of the present path.
#[derive(Debug)]
struct Frame {
    id: BlockId,
    /// The edge by which it was reached; of no meaning for the start.
    edge: PathEdge,
    /// The neighbors from which the end may be reached.
    neighbors: Vec<NeighborRef>,
    /// The next of the neighbors to follow.
    next: usize,
}

impl SimplePaths {
    /// Begins the search for paths of at most `edges_max` edges. Both blocks must exist.
    pub fn new(
        graph: &impl GraphSource,
        (from, to): (BlockId, BlockId),
        direction: Direction,
        kinds: KindFilter,
        edges_max: u32,
        cancel: &Cancel,
    ) -> Result<SimplePaths> {
        require_block(graph, from)?;
        require_block(graph, to)?;
        let mut search = SimplePaths {
            to,
            direction,
            kinds,
            edges_max,
            distance_to: IdMap::from_iter([(to, 0)]),
            stack: Vec::new(),
            on_path: IdSet::default(),
            is_trivial: from == to,
        };
        if from != to {
            search.measure(graph, cancel)?;
            let none = PathEdge {
                kind: KindId(0),
                direction,
            };
            search.push(graph, from, none)?;
        }
        Ok(search)
    }

    /// Finds how far every block is from the end, up to the bound.
    fn measure(&mut self, graph: &impl GraphSource, cancel: &Cancel) -> Result<()> {
        let mut level = vec![self.to];
        let mut neighbors = Vec::new();
        // The start may be as far as the bound; what is farther leads to no path.
        for distance in 1..=self.edges_max {
            let mut next = Vec::new();
            for near in level {
                cancel.check()?;
                neighbors.clear();
                let backward = self.direction.reversed();
                graph.neighbors(near, backward, &self.kinds, &mut neighbors)?;
                for neighbor in &neighbors {
                    self.distance_to.entry(neighbor.id).or_insert_with(|| {
                        next.push(neighbor.id);
                        distance
                    });
                }
            }
            if next.is_empty() {
                break;
            }
            level = next;
        }
        Ok(())
    }

    /// Puts a block at the end of the present path.
    fn push(&mut self, graph: &impl GraphSource, id: BlockId, edge: PathEdge) -> Result<()> {
        let mut neighbors = Vec::new();
        graph.neighbors(id, self.direction, &self.kinds, &mut neighbors)?;
        // The edges left after the one to a neighbor.
        let left = self.edges_max.checked_sub(self.stack.len() as u32 + 1);
        let distance_to = &self.distance_to;
        neighbors.retain(|neighbor| match (distance_to.get(&neighbor.id), left) {
            (Some(distance), Some(left)) => *distance <= left,
            _ => false,
        });
        self.on_path.insert(id);
        self.stack.push(Frame {
            id,
            edge,
            neighbors,
            next: 0,
        });
        Ok(())
    }

    /// The next path, or `None` when all were found. After an error there is none.
    pub fn next_path(
        &mut self,
        graph: &impl GraphSource,
        cancel: &Cancel,
    ) -> Result<Option<DirectedPath>> {
        if std::mem::take(&mut self.is_trivial) {
            return Ok(Some(DirectedPath::trivial(self.to)));
        }
        let found = self.search(graph, cancel);
        if found.is_err() {
            self.stack.clear();
        }
        found
    }

    fn search(
        &mut self,
        graph: &impl GraphSource,
        cancel: &Cancel,
    ) -> Result<Option<DirectedPath>> {
        while let Some(here) = self.stack.last_mut() {
            cancel.check()?;
            let Some(neighbor) = here.neighbors.get(here.next) else {
                self.on_path.remove(&here.id);
                self.stack.pop();
                continue;
            };
            let (id, edge) = (neighbor.id, neighbor.edge());
            here.next += 1;
            if id == self.to {
                return Ok(Some(self.path_with(edge)));
            }
            if !self.on_path.contains(&id) {
                self.push(graph, id, edge)?;
            }
        }
        Ok(None)
    }

    /// The present path and this edge to the end.
    fn path_with(&self, edge: PathEdge) -> DirectedPath {
        let blocks = self.stack.iter().map(|frame| frame.id);
        let edges = self.stack[1..].iter().map(|frame| frame.edge);
        DirectedPath {
            blocks: blocks.chain([self.to]).collect(),
            kinds: edges.chain([edge]).collect(),
            cost: self.stack.len() as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::graph::memory::{MemoryGraph, random_graphs, ways};
    use bowline_testing::Seed;

    fn all(
        graph: &MemoryGraph,
        ends: (BlockId, BlockId),
        way: &(Direction, KindFilter),
        edges_max: u32,
    ) -> Result<Vec<DirectedPath>> {
        let never = Cancel::never();
        let mut search = SimplePaths::new(graph, ends, way.0, way.1.clone(), edges_max, &never)?;
        let mut found = Vec::new();
        while let Some(path) = search.next_path(graph, &never)? {
            found.push(path);
        }
        Ok(found)
    }

    /// Lengthens every path by every edge, and keeps those that are simple, without looking ahead.
    fn naive(
        graph: &MemoryGraph,
        (from, to): (BlockId, BlockId),
        way: &(Direction, KindFilter),
        edges_max: u32,
    ) -> Vec<DirectedPath> {
        let mut open = vec![DirectedPath::trivial(from)];
        let mut found = Vec::new();
        while let Some(path) = open.pop() {
            let here = *path.blocks.last().expect("it has a block");
            if here == to {
                found.push(path);
            } else if path.kinds.len() < edges_max as usize {
                let mut neighbors = Vec::new();
                graph
                    .neighbors(here, way.0, &way.1, &mut neighbors)
                    .expect("reads");
                // The last is taken first, so that paths come in the order of edges.
                for next in neighbors.iter().rev() {
                    if !path.blocks.contains(&next.id) {
                        let mut longer = path.clone();
                        longer.blocks.push(next.id);
                        longer.kinds.push(next.edge());
                        longer.cost += 1.0;
                        open.push(longer);
                    }
                }
            }
        }
        found
    }

    #[test]
    fn random_graphs_agree_with_lengthening_every_path() {
        let mut most = 0;
        for (seed, graph) in random_graphs(2_000) {
            let way = &ways()[seed as usize % 9];
            let mut random = fastrand::Rng::with_seed(seed);
            let blocks = graph.block_count();
            for edges_max in 0..6 {
                let ends = (random.u128(..blocks), random.u128(..blocks));
                let ends = (BlockId(ends.0), BlockId(ends.1));
                let found = all(&graph, ends, way, edges_max).expect("reads");
                let expected = naive(&graph, ends, way, edges_max);
                assert_eq!(found, expected, "seed {seed}: {ends:?} {way:?} {edges_max}");
                most = most.max(found.len());
            }
        }
        assert!(
            Seed::named().is_some() || most > 20,
            "several paths occur: {most}"
        );
    }

    #[test]
    fn what_cannot_reach_the_end_in_time_is_not_entered() {
        // 0 -> 1 -> 2, and a thousand blocks behind 0 that lead nowhere.
        let dead_ends = (3..1_003).flat_map(|id| [(0, 1, id), (id, 1, id + 1)]);
        let graph = MemoryGraph::new(1_005, [(0, 1, 1), (1, 1, 2)].into_iter().chain(dead_ends));
        let way = (Direction::Out, KindFilter::All);
        let found = all(&graph, (BlockId(0), BlockId(2)), &way, u32::MAX).expect("reads");
        assert_eq!(found.len(), 1);
        assert!(
            graph.neighbors_asked.get() < 10,
            "{:?}",
            graph.neighbors_asked
        );
    }

    #[test]
    fn a_long_path_does_not_overflow_the_stack() {
        let graph = MemoryGraph::path(50_000);
        let way = (Direction::Out, KindFilter::All);
        let found = all(&graph, (BlockId(0), BlockId(49_999)), &way, u32::MAX).expect("reads");
        assert_eq!((found.len(), found[0].kinds.len()), (1, 49_999));
    }

    #[test]
    fn missing_blocks_are_refused_and_a_canceled_search_ends() {
        let graph = MemoryGraph::path(3);
        let way = (Direction::Out, KindFilter::All);
        for ends in [(0, 7), (7, 0), (7, 7)] {
            let refused = all(&graph, (BlockId(ends.0), BlockId(ends.1)), &way, 9);
            assert!(
                matches!(refused, Err(Error::MissingBlock { id: BlockId(7) })),
                "{refused:?}"
            );
        }
        let cancel = Cancel::new();
        let ends = (BlockId(0), BlockId(2));
        let search = || SimplePaths::new(&graph, ends, way.0, way.1.clone(), 9, &cancel);
        let mut begun = search().expect("reads");
        cancel.cancel();
        let ended = begun.next_path(&graph, &cancel);
        assert!(matches!(ended, Err(Error::Canceled)), "{ended:?}");
        assert!(matches!(
            begun.next_path(&graph, &Cancel::never()),
            Ok(None)
        ));
        assert!(matches!(search(), Err(Error::Canceled)));
    }
}
