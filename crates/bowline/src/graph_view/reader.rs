//! The edges of a graph by ids, for a query that reads the neighbors of one block after the other.
//!
//! They come from the graph view where it has the revision, else from the trees. A query takes the super-version
//! once, and keeps a reader of each tree of edges from block to block.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::sync::Arc;

use bowline_storage::TreeId;
use bowline_storage::engine::{PrefixReader, SuperVersion};

use super::Graph;
use super::records::split;
use bowline_core::error::{Error, Result};
use bowline_core::graph::{
    self, Attributes, BlockId, Direction, GraphSource, KindFilter, KindId, KindIds, NeighborRef,
    VisitEdgeValue,
};
use bowline_core::trees;

/// The super-version that a query reads.
pub(super) struct Sources {
    super_version: Arc<SuperVersion>,
}

impl Sources {
    pub(super) fn of(graph: &Graph) -> Result<Sources> {
        let (engine, at) = (&graph.core().engine, graph.snapshot.revision());
        Ok(Sources {
            super_version: engine.super_version_at(at.get())?,
        })
    }

    pub(super) fn reader<'a>(&'a self, graph: &'a Graph) -> Reader<'a> {
        Reader {
            graph,
            super_version: &self.super_version,
            leaving: RefCell::default(),
            arriving: RefCell::default(),
        }
    }
}

/// A graph whose edges are read through kept readers.
pub(super) struct Reader<'a> {
    graph: &'a Graph,
    super_version: &'a SuperVersion,
    leaving: RefCell<Option<PrefixReader<'a>>>,
    arriving: RefCell<Option<PrefixReader<'a>>>,
}

impl<'a> Reader<'a> {
    /// Calls `visit` with the neighbors of a block while it returns `true`: see
    /// [`GraphSource::visit_neighbors`] for their order.
    pub(super) fn visit_neighbors(
        &self,
        id: BlockId,
        direction: Direction,
        kinds: &KindFilter,
        mut visit: impl FnMut(NeighborRef) -> bool,
    ) -> Result<()> {
        self.graph.check()?;
        if let Some(view) = self.graph.view() {
            // A block that the view does not know has no edge.
            if let Some(near) = view.ordinal(id) {
                let at = self.graph.snapshot.revision().get();
                let _ = view.visit(near, direction, at, kinds, |far, kind, direction| {
                    let id = view.id(far);
                    match visit(NeighborRef {
                        id,
                        kind,
                        direction,
                    }) {
                        true => ControlFlow::Continue(()),
                        false => ControlFlow::Break(()),
                    }
                });
            }
            return Ok(());
        }
        if self.graph.core().graph_view.note_tree_rows(1) {
            self.graph.snapshot.handle().want_view();
        }
        let mut goes_on = true;
        if direction != Direction::In {
            goes_on = self.visit_one(Direction::Out, id, kinds, &mut visit)?;
        }
        if direction != Direction::Out && goes_on {
            self.visit_one(Direction::In, id, kinds, &mut visit)?;
        }
        Ok(())
    }

    /// How many neighbors [`Reader::visit_neighbors`] visits.
    pub(super) fn degree(
        &self,
        id: BlockId,
        direction: Direction,
        kinds: &KindFilter,
    ) -> Result<u64> {
        if let Some(view) = self.graph.view() {
            self.graph.check()?;
            let at = self.graph.snapshot.revision().get();
            let near = view.ordinal(id);
            return Ok(near.map_or(0, |near| view.degree(near, direction, at, kinds)));
        }
        let mut degree = 0;
        self.visit_neighbors(id, direction, kinds, |_| {
            degree += 1;
            true
        })?;
        Ok(degree)
    }

    /// The same in one direction. Says whether to go on.
    fn visit_one(
        &self,
        direction: Direction,
        id: BlockId,
        kinds: &KindFilter,
        visit: &mut impl FnMut(NeighborRef) -> bool,
    ) -> Result<bool> {
        let (tree, kept) = match direction {
            Direction::In => (trees::EDGE_IN, &self.arriving),
            Direction::Out | Direction::Both => (trees::EDGE_OUT, &self.leaving),
        };
        let mut kept = kept.borrow_mut();
        let reader = kept.get_or_insert_with(|| self.prefix_reader(tree));
        let goes_on = Cell::new(true);
        let mut lend = |key: &[u8]| {
            // A row may be long.
            self.graph.check()?;
            let (_, kind, far) = split(key)?;
            let neighbor = NeighborRef {
                id: far,
                kind,
                direction,
            };
            goes_on.set(visit(neighbor));
            Ok::<_, Error>(goes_on.get())
        };
        match kinds {
            KindFilter::All => reader.visit(&graph::edge_prefix(id), lend)?,
            KindFilter::Only(kinds) => {
                // One prefix per kind: edges of other kinds are not read.
                for kind in kinds {
                    reader.visit(&graph::edge_kind_prefix(id, *kind), &mut lend)?;
                    if !goes_on.get() {
                        break;
                    }
                }
            }
        }
        Ok(goes_on.get())
    }

    fn prefix_reader(&self, tree: TreeId) -> PrefixReader<'a> {
        let at = self.graph.snapshot.revision();
        self.super_version.prefix_reader(tree, at.get())
    }
}

impl GraphSource for Reader<'_> {
    fn visit_neighbors(
        &self,
        id: BlockId,
        direction: Direction,
        kinds: &KindFilter,
        visit: &mut dyn FnMut(NeighborRef) -> bool,
    ) -> Result<()> {
        self.visit_neighbors(id, direction, kinds, visit)
    }

    // Without a call through a pointer for each neighbor.
    fn neighbors(
        &self,
        id: BlockId,
        direction: Direction,
        kinds: &KindFilter,
        out: &mut Vec<NeighborRef>,
    ) -> Result<()> {
        self.visit_neighbors(id, direction, kinds, |neighbor| {
            out.push(neighbor);
            true
        })
    }

    fn block_size_bytes(&self, id: BlockId) -> Result<Option<u64>> {
        self.graph.block_size_bytes(id)
    }

    fn edge_attributes(
        &self,
        source: BlockId,
        kind: KindId,
        target: BlockId,
    ) -> Result<Option<Attributes>> {
        self.graph.edge_attributes(source, kind, target)
    }

    fn for_each_block(&self, visit: &mut dyn FnMut(BlockId, KindIds<'_>)) -> Result<()> {
        GraphSource::for_each_block(self.graph, visit)
    }

    fn for_each_edge_value(&self, attribute: &str, visit: VisitEdgeValue<'_>) -> Result<()> {
        self.graph.for_each_edge_value(attribute, visit)
    }

    fn check(&self) -> Result<()> {
        self.graph.check()
    }

    fn for_each_edge(&self, visit: &mut dyn FnMut(BlockId, KindId, BlockId)) -> Result<()> {
        GraphSource::for_each_edge(self.graph, visit)
    }
}
