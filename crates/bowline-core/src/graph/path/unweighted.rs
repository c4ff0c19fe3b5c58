//! The path with the fewest edges.
//!
//! Bidirectional breadth-first search (Pohl, "Bi-directional search", 1971), one layer at a time on the side
//! with the smaller frontier. With degree `g` and distance `d` it reads about 2·g^(d/2) blocks instead of
//! g^d; at worst O(blocks + edges) time. O(blocks) memory.
//!
//! # Choice among shortest paths
//!
//! The result is the first path in the order of edges: paths are compared edge by edge from the start,
//! leaving before arriving edges, then by kind, then by id. So it does not depend on where the searches meet:
//!
//! ```text
//!   from --- forward: in order of discovery ---> m ... backward: distances only ... to
//! ```
//!
//! A breadth-first search that reads neighbors in order finds blocks of one layer in the order of
//! their first paths. So the first meeting block `m` found forward begins the first path, and from
//! there each step takes the first neighbor that is one nearer to `to`.

use super::Path;
use crate::Result;
use crate::graph::keys::edge_prefix;
use crate::graph::kind_id::KindId;
use crate::graph::source::{GraphSource, KindFilter, one_sided_edge, require_block};
use crate::graph::walk::{ByIds, Places, RowBuffer, Walk};
use bowline_types::{BlockId, Direction};

/// The first of the paths with the fewest edges; `None` when there is none of at most `max_depth`
/// edges. Both blocks must exist.
pub fn shortest_path(
    graph: &impl GraphSource,
    from: BlockId,
    to: BlockId,
    direction: Direction,
    kinds: &KindFilter,
    max_depth: Option<u32>,
) -> Result<Option<Path>> {
    require_block(graph, from)?;
    require_block(graph, to)?;
    walk(&ByIds::new(graph), from, to, direction, kinds, max_depth)
}

/// As [`shortest_path`]. Both blocks exist.
pub fn walk<W: Walk>(
    graph: &W,
    from: W::Node,
    to: W::Node,
    direction: Direction,
    kinds: &KindFilter,
    max_depth: Option<u32>,
) -> Result<Option<Path>> {
    if from == to {
        return Ok(Some(Path::trivial(graph.id(from))));
    }
    let mut search = Search {
        graph,
        direction,
        kinds,
        steps: vec![Step {
            node: from,
            parent: 0,
            kind: KindId(0),
        }],
        index: graph.places(),
        layer_start: 0,
        forward_depth: 0,
        distance_to: graph.places(),
        backward_frontier: vec![to],
        backward_depth: 0,
        buffer: RowBuffer::default(),
    };
    search.index.insert(from, 0);
    search.distance_to.insert(to, 0);
    loop {
        let forward_len = search.steps.len() - search.layer_start;
        let backward_len = search.backward_frontier.len();
        let depth = search.forward_depth + search.backward_depth;
        if forward_len == 0 || backward_len == 0 || max_depth.is_some_and(|max| depth >= max) {
            return Ok(None);
        }
        let meeting = if forward_len <= backward_len {
            search.forward()?
        } else {
            search.backward()?
        };
        if let Some(meeting) = meeting {
            return search.path_through(meeting).map(Some);
        }
    }
}

struct Search<'a, W: Walk> {
    graph: &'a W,
    direction: Direction,
    kinds: &'a KindFilter,
    /// What was found forward, in order of discovery; the last layer is the frontier.
    steps: Vec<Step<W::Node>>,
    index: W::Places,
    layer_start: usize,
    forward_depth: u32,
    /// What was found backward: how many edges from `to`.
    distance_to: W::Places,
    backward_frontier: Vec<W::Node>,
    backward_depth: u32,
    buffer: RowBuffer<W::Node>,
}

/// A block found forward, and how. The start is its own parent.
struct Step<N> {
    node: N,
    parent: usize,
    kind: KindId,
}

impl<W: Walk> Search<'_, W> {
    /// Finds the next layer from the start. `Some` is the first block that was found backward, too.
    fn forward(&mut self) -> Result<Option<usize>> {
        let layer = self.layer_start..self.steps.len();
        self.layer_start = layer.end;
        self.forward_depth += 1;
        for parent in layer {
            let node = self.steps[parent].node;
            let (graph, buffer) = (self.graph, &mut self.buffer);
            graph.check()?;
            let row = graph.row(node, self.direction, self.kinds, buffer)?;
            for (place, &node) in row.nodes.iter().enumerate() {
                if self.index.insert(node, self.steps.len() as u32).is_some() {
                    continue;
                }
                let kind = row.kind(place);
                self.steps.push(Step { node, parent, kind });
                if self.distance_to.get(node).is_some() {
                    return Ok(Some(self.steps.len() - 1));
                }
            }
        }
        Ok(None)
    }

    /// Finds the next layer from the end. `Some` is the first in forward order of those blocks of it
    /// that were found forward, too.
    fn backward(&mut self) -> Result<Option<usize>> {
        let mut meeting = None;
        self.backward_depth += 1;
        let (depth, direction) = (self.backward_depth, self.direction.reversed());
        for near in std::mem::take(&mut self.backward_frontier) {
            let (graph, buffer) = (self.graph, &mut self.buffer);
            graph.check()?;
            for &node in graph.row(near, direction, self.kinds, buffer)?.nodes {
                if self.distance_to.insert(node, depth).is_some() {
                    continue;
                }
                self.backward_frontier.push(node);
                if let Some(at) = self.index.get(node) {
                    let at = at as usize;
                    meeting = Some(meeting.map_or(at, |first: usize| first.min(at)));
                }
            }
        }
        Ok(meeting)
    }

    /// Joins the way back from the meeting block to the start with the way on to the end.
    fn path_through(mut self, meeting: usize) -> Result<Path> {
        let mut blocks = Vec::new();
        let mut kinds = Vec::new();
        let mut at = meeting;
        while at != 0 {
            blocks.push(self.graph.id(self.steps[at].node));
            kinds.push(self.steps[at].kind);
            at = self.steps[at].parent;
        }
        blocks.push(self.graph.id(self.steps[0].node));
        blocks.reverse();
        kinds.reverse();

        let mut here = self.steps[meeting].node;
        let left = self.distance_to.get(here).unwrap_or(0);
        for left in (0..left).rev() {
            let (graph, buffer) = (self.graph, &mut self.buffer);
            let row = graph.row(here, self.direction, self.kinds, buffer)?;
            let nearer = |node: &W::Node| self.distance_to.get(*node) == Some(left);
            // The backward search came here over an edge that is not found in this direction.
            let next = row.nodes.iter().position(nearer);
            let next = next.ok_or_else(|| one_sided_edge(&edge_prefix(graph.id(here))))?;
            here = row.nodes[next];
            blocks.push(graph.id(here));
            kinds.push(row.kind(next));
        }
        let cost = kinds.len() as f64;
        Ok(Path {
            blocks,
            kinds,
            cost,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::graph::memory::{MemoryGraph, distances, random_graphs, ways};

    fn path(
        graph: &MemoryGraph,
        from: u128,
        to: u128,
        direction: Direction,
        max_depth: Option<u32>,
    ) -> Option<(Vec<u128>, Vec<u32>)> {
        let kinds = &KindFilter::All;
        shortest_path(
            graph,
            BlockId(from),
            BlockId(to),
            direction,
            kinds,
            max_depth,
        )
        .expect("reads")
        .map(|path| {
            assert_eq!(path.cost, path.kinds.len() as f64);
            let kinds = path.kinds.iter().map(|kind| kind.0).collect();
            (path.blocks.iter().map(|id| id.0).collect(), kinds)
        })
    }

    /// ```text
    /// 0 -1-> 1 -1-> 3 -1-> 4
    /// 0 -2-> 2 -1-> 3      0 -3-> 1
    /// ```
    fn graph() -> MemoryGraph {
        MemoryGraph::new(
            6,
            [
                (0, 1, 1),
                (0, 2, 2),
                (0, 3, 1),
                (1, 1, 3),
                (2, 1, 3),
                (3, 1, 4),
            ],
        )
    }

    #[test]
    fn the_first_of_several_shortest_paths_is_found() {
        let graph = graph();
        assert_eq!(
            path(&graph, 0, 4, Direction::Out, None),
            Some((vec![0, 1, 3, 4], vec![1; 3]))
        );
        assert_eq!(
            path(&graph, 0, 1, Direction::Out, None),
            Some((vec![0, 1], vec![1]))
        );
        assert_eq!(path(&graph, 4, 0, Direction::Out, None), None);
        assert_eq!(
            path(&graph, 4, 0, Direction::In, None),
            Some((vec![4, 3, 1, 0], vec![1; 3]))
        );
        assert_eq!(
            path(&graph, 1, 2, Direction::Both, None),
            Some((vec![1, 3, 2], vec![1, 1]))
        );
        assert_eq!(path(&graph, 0, 5, Direction::Both, None), None);
        assert_eq!(
            path(&graph, 5, 5, Direction::Out, Some(0)),
            Some((vec![5], vec![]))
        );
    }

    #[test]
    fn a_kind_comes_before_an_id() {
        // Over block 2 the first edge has the smaller kind.
        let graph = MemoryGraph::new(4, [(0, 2, 1), (0, 1, 2), (1, 0, 3), (2, 9, 3)]);
        assert_eq!(
            path(&graph, 0, 3, Direction::Out, None),
            Some((vec![0, 2, 3], vec![1, 9]))
        );
    }

    #[test]
    fn depth_is_bounded_exactly() {
        let graph = MemoryGraph::path(12);
        for max_depth in 0..14 {
            let found = path(&graph, 0, 11, Direction::Out, Some(max_depth));
            assert_eq!(found.is_some(), max_depth >= 11, "{max_depth}");
        }
    }

    #[test]
    fn missing_blocks_are_refused() {
        for (from, to) in [(0, 7), (7, 0), (7, 7)] {
            let result = shortest_path(
                &graph(),
                BlockId(from),
                BlockId(to),
                Direction::Out,
                &KindFilter::All,
                None,
            );
            assert!(
                matches!(result, Err(Error::MissingBlock { id: BlockId(7) })),
                "{result:?}"
            );
        }
    }

    #[test]
    fn an_edge_with_one_direction_only_is_an_error() {
        let mut graph = MemoryGraph::path(4);
        // Forces the search backward from 3, over the entry in edge_in only.
        (10..20).for_each(|id| graph.add_block(id));
        (10..20).for_each(|id| graph.add_edge(0, 0, id, &Default::default()));
        graph.damage_edge(2, 0, 3);
        let all = &KindFilter::All;
        let result = shortest_path(&graph, BlockId(0), BlockId(3), Direction::Out, all, None);
        assert!(
            matches!(result, Err(Error::InvalidRecord { what: "edge", .. })),
            "{result:?}"
        );
    }

    #[test]
    fn a_long_path_does_not_overflow_the_stack() {
        let graph = MemoryGraph::path(200_000);
        let (blocks, kinds) = path(&graph, 0, 199_999, Direction::Out, None).expect("a path");
        assert!(blocks.into_iter().eq(0..200_000));
        assert_eq!(kinds.len(), 199_999);
    }

    #[test]
    fn random_graphs_agree_with_the_first_path_found_by_trying_all() {
        /// Steps in order, each one nearer to the end: the first such walk is the first path.
        fn first(
            graph: &MemoryGraph,
            row: &[Vec<Option<f64>>],
            from: BlockId,
            to: BlockId,
            way: &(Direction, KindFilter),
        ) -> Option<Path> {
            let mut left = row[from.0 as usize][to.0 as usize]?;
            let mut path = Path {
                cost: left,
                ..Path::trivial(from)
            };
            let mut here = from;
            while here != to {
                left -= 1.0;
                let mut neighbors = Vec::new();
                graph
                    .neighbors(here, way.0, &way.1, &mut neighbors)
                    .expect("reads");
                let next = neighbors
                    .iter()
                    .find(|next| row[next.id.0 as usize][to.0 as usize] == Some(left))?;
                here = next.id;
                path.blocks.push(next.id);
                path.kinds.push(next.kind);
            }
            Some(path)
        }
        for (seed, graph) in random_graphs(300) {
            for way in ways() {
                let (direction, kinds) = &way;
                let table = distances(&graph, *direction, kinds, |_, _, _| 1.0);
                for from in (0..table.len() as u128).map(BlockId) {
                    for to in (0..table.len() as u128).map(BlockId) {
                        let context = format!("seed {seed}: {from} to {to} {way:?}");
                        let expected = first(&graph, &table, from, to, &way);
                        let found = |max_depth| {
                            shortest_path(&graph, from, to, *direction, kinds, max_depth)
                                .expect("reads")
                        };
                        assert_eq!(found(None), expected, "{context}");
                        if let Some(path) = expected {
                            let len = path.kinds.len() as u32;
                            assert_eq!(found(Some(len)), Some(path), "{context}");
                            if len > 0 {
                                assert_eq!(found(Some(len - 1)), None, "{context}");
                            }
                        }
                    }
                }
            }
        }
    }
}
