//! `Selected`: a graph without some of its edges, for a traversal: those that a predicate refuses, and of each block
//! those after the first few.
//!
//! It is a [`Walk`] over another one, so a traversal of it is the ordinary one, with all its bounds. Rows are copied into
//! a buffer, as the edges that pass do not lie together.
//!
//! # Invariants
//!
//! - The edges that are left have the order that they have in the other graph.
//! - A traversal ends as exhausted only if no block was left out on account of the number of edges: rows that were
//!   cut are remembered, and looked at again at the end.

use std::cell::RefCell;
use std::ops::ControlFlow;

use super::kind_id::KindId;
use super::source::KindFilter;
use super::traverse::{self, TraverseSpec};
use super::visits::Visits;
use super::walk::{LendsNone, Marks as _, Row, RowBuffer, Walk};
use crate::Result;
use bowline_types::{BlockId, Direction, Stop};

/// A graph with the edges that are followed.
struct Selected<'a, W: Walk, F> {
    graph: &'a W,
    /// Whether the edge of a source, kind and target is followed.
    follow: RefCell<F>,
    max_neighbors: usize,
    /// Nodes with more edges that pass.
    cut: RefCell<Vec<W::Node>>,
    read: RefCell<RowBuffer<W::Node>>,
}

/// As [`traverse::walk`], over the edges that `follow` accepts by source, kind and target, and of each block over the
/// first `max_neighbors` of them. `follow` may be asked for one edge several times.
pub fn walk<W: Walk>(
    graph: &W,
    starts: &[W::Node],
    spec: &TraverseSpec,
    max_neighbors: Option<u64>,
    follow: impl FnMut(BlockId, KindId, BlockId) -> Result<bool>,
) -> Result<Visits<W::Node>> {
    let max_neighbors = max_neighbors.unwrap_or(u64::MAX);
    let selected = Selected {
        graph,
        follow: RefCell::new(follow),
        max_neighbors: usize::try_from(max_neighbors).unwrap_or(usize::MAX),
        cut: RefCell::default(),
        read: RefCell::default(),
    };
    let mut visits = traverse::walk(&selected, starts, spec)?;
    if visits.stop == Stop::Exhausted && selected.has_left_out(spec, &visits)? {
        visits.stop = Stop::MaxNeighbors;
    }
    Ok(visits)
}

impl<W: Walk, F: FnMut(BlockId, KindId, BlockId) -> Result<bool>> Selected<'_, W, F> {
    /// Visits the neighbors over edges that `follow` accepts, also those beyond the number, until `visit` breaks.
    fn visit_followed(
        &self,
        node: W::Node,
        direction: Direction,
        kinds: &KindFilter,
        mut visit: impl FnMut(W::Node, KindId, Direction) -> ControlFlow<()>,
    ) -> Result<()> {
        let near = self.graph.id(node);
        let (mut follow, mut read) = (self.follow.borrow_mut(), self.read.borrow_mut());
        let take = |row: Row<'_, W::Node>| {
            for (place, &next) in row.nodes.iter().enumerate() {
                let (kind, direction) = (row.kind(place), row.direction(place));
                let far = self.graph.id(next);
                let (source, target) = match direction {
                    Direction::In => (far, near),
                    Direction::Out | Direction::Both => (near, far),
                };
                match follow(source, kind, target) {
                    Ok(false) => continue,
                    Ok(true) => {}
                    Err(error) => return ControlFlow::Break(Err(error)),
                }
                if visit(next, kind, direction).is_break() {
                    return ControlFlow::Break(Ok(()));
                }
            }
            ControlFlow::Continue(())
        };
        match self
            .graph
            .visit_row(node, direction, kinds, &mut read, take)?
        {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(ended) => ended,
        }
    }

    /// Whether a block was not visited because an edge to it was one too many.
    fn has_left_out(&self, spec: &TraverseSpec, visits: &Visits<W::Node>) -> Result<bool> {
        let cut = self.cut.take();
        if cut.is_empty() {
            return Ok(false);
        }
        let mut visited = self.graph.marks();
        for place in 0..visits.count() {
            visited.insert(visits.node(place));
        }
        for node in cut {
            self.graph.check()?;
            let mut is_left_out = false;
            self.visit_followed(node, spec.direction, &spec.kinds, |next, _, _| {
                is_left_out = !visited.contains(next);
                match is_left_out {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })?;
            if is_left_out {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl<W: Walk, F: FnMut(BlockId, KindId, BlockId) -> Result<bool>> Walk for Selected<'_, W, F> {
    type Node = W::Node;
    type Marks = W::Marks;
    type Places = W::Places;
    type Lender<'a>
        = LendsNone
    where
        Self: 'a;

    fn id(&self, node: W::Node) -> BlockId {
        self.graph.id(node)
    }

    fn row<'a>(
        &'a self,
        node: W::Node,
        direction: Direction,
        kinds: &KindFilter,
        buffer: &'a mut RowBuffer<W::Node>,
    ) -> Result<Row<'a, W::Node>> {
        buffer.clear();
        self.visit_followed(node, direction, kinds, |next, kind, direction| {
            if buffer.len() == self.max_neighbors {
                self.cut.borrow_mut().push(node);
                return ControlFlow::Break(());
            }
            buffer.push(next, kind, direction);
            ControlFlow::Continue(())
        })?;
        Ok(buffer.row())
    }

    fn lender(&self, _: Direction, _: &KindFilter) -> LendsNone {
        LendsNone
    }

    fn block_size_bytes(&self, id: BlockId) -> Result<Option<u64>> {
        self.graph.block_size_bytes(id)
    }

    fn check(&self) -> Result<()> {
        self.graph.check()
    }

    fn marks(&self) -> W::Marks {
        self.graph.marks()
    }

    fn places(&self) -> W::Places {
        self.graph.places()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::memory::{MemoryGraph, random_graphs, ways};
    use crate::graph::traverse::TraverseOrder;
    use crate::graph::walk::ByIds;
    use std::collections::BTreeSet;

    /// The edges of a block that a selection has, by the plainest reading.
    fn rows(
        graph: &MemoryGraph,
        near: BlockId,
        spec: &TraverseSpec,
        max_neighbors: Option<u64>,
    ) -> Vec<BlockId> {
        let mut ends = Vec::new();
        let edges: Vec<_> = graph.edges();
        let is_right =
            |kind, source, target| spec.kinds.passes(kind) && is_followed(source, kind, target);
        if spec.direction != Direction::In {
            let mut leaving: Vec<_> = edges.iter().filter(|edge| edge.0 == near).collect();
            leaving.sort_by_key(|edge| (edge.1, edge.2));
            let passing = leaving
                .iter()
                .filter(|edge| is_right(edge.1, edge.0, edge.2));
            ends.extend(passing.map(|edge| edge.2));
        }
        if spec.direction != Direction::Out {
            let mut arriving: Vec<_> = edges.iter().filter(|edge| edge.2 == near).collect();
            arriving.sort_by_key(|edge| (edge.1, edge.0));
            let passing = arriving
                .iter()
                .filter(|edge| is_right(edge.1, edge.0, edge.2));
            ends.extend(passing.map(|edge| edge.0));
        }
        ends.truncate(max_neighbors.map_or(usize::MAX, |max| max as usize));
        ends
    }

    fn is_followed(source: BlockId, kind: KindId, target: BlockId) -> bool {
        !(source.0 + 2 * u128::from(kind.0) + 3 * target.0).is_multiple_of(4)
    }

    #[test]
    fn a_selection_is_the_traversal_of_the_graph_that_is_left() {
        let mut ends = BTreeSet::new();
        for (seed, graph) in random_graphs(2_000) {
            let mut random = fastrand::Rng::with_seed(seed);
            let (direction, kinds) = ways()[seed as usize % 9].clone();
            let max_neighbors = random.bool().then(|| random.u64(0..4));
            let spec = TraverseSpec {
                order: match random.bool() {
                    true => TraverseOrder::BreadthFirst,
                    false => TraverseOrder::DepthFirst,
                },
                direction,
                kinds,
                max_depth: random.bool().then(|| random.u32(0..4)),
                ..TraverseSpec::default()
            };
            let start = BlockId(0);
            let follow = |source, kind, target| Ok(is_followed(source, kind, target));
            let by_ids = ByIds::new(&graph);
            let found = walk(&by_ids, &[start], &spec, max_neighbors, follow).expect("walks");

            // Level by level over the rows that are left.
            let mut reached = BTreeSet::from([start]);
            let mut level = vec![start];
            for _ in 0..spec.max_depth.unwrap_or(u32::MAX) {
                let next = level
                    .iter()
                    .flat_map(|&near| rows(&graph, near, &spec, max_neighbors));
                level = next.filter(|&far| reached.insert(far)).collect();
                if level.is_empty() {
                    break;
                }
            }
            let ids = (0..found.count()).map(|place| found.node(place));
            assert_eq!(
                ids.collect::<BTreeSet<_>>(),
                reached,
                "seed {seed} {spec:?}"
            );

            let has_more = |max| {
                let mut ends = reached
                    .iter()
                    .flat_map(|&near| rows(&graph, near, &spec, max));
                ends.any(|far| !reached.contains(&far))
            };
            let stop = match (has_more(max_neighbors), has_more(None)) {
                (true, _) => Stop::MaxDepth,
                (false, true) => Stop::MaxNeighbors,
                (false, false) => Stop::Exhausted,
            };
            assert_eq!(found.stop, stop, "seed {seed} {spec:?} {max_neighbors:?}");
            ends.insert(format!("{stop:?}"));
        }
        assert_eq!(ends.len(), 3, "each end was met: {ends:?}");
    }

    #[test]
    fn an_error_of_the_predicate_ends_the_traversal() {
        let graph = MemoryGraph::new(2, [(0, 0, 1)]);
        let refuse = |_, _, _| Err(crate::Error::Canceled);
        let spec = TraverseSpec::default();
        let found = walk(&ByIds::new(&graph), &[BlockId(0)], &spec, None, refuse);
        assert!(matches!(found, Err(crate::Error::Canceled)));
    }
}
