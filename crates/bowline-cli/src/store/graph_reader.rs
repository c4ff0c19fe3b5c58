//! What graph commands ask, wherever the graph is.
//!
//! A command asks a [`GraphReader`] and prints what it hears, so it prints the same for a directory and for
//! a cluster. Every answer of one reader is of one revision.

use bowline::{Attributes, Block, BlockId, Edge, Error, Neighbor, Path, Precedence, Revision};
use bowline::{Direction, Visit};

use crate::args::{self, Bounds, EdgeFilter, Scope};
use crate::exit::Failure;

/// The graph at one revision.
pub(crate) trait GraphReader {
    /// A block.
    fn block(&self, id: BlockId) -> Result<Option<Block>, Failure>;

    /// The attributes of those of the blocks that exist.
    fn attributes(&self, ids: &[BlockId]) -> Result<Vec<(BlockId, Attributes)>, Failure>;

    /// Every block with an attribute, by id.
    fn having(&self, name: &str, value: &str) -> Result<Vec<(BlockId, Attributes)>, Failure>;

    /// The blocks one edge away; more than `limit` need not be told.
    fn neighbors(
        &self,
        id: BlockId,
        edges: &EdgeFilter,
        limit: Option<u64>,
    ) -> Result<Vec<Neighbor>, Failure>;

    /// What can be reached.
    fn traverse(
        &self,
        start: BlockId,
        edges: &EdgeFilter,
        bounds: &Bounds,
        depth_first: bool,
    ) -> Result<Reached, Failure>;

    /// A shortest path.
    fn path(
        &self,
        ends: (BlockId, BlockId),
        weight: Option<&str>,
        edges: &EdgeFilter,
        max_depth: Option<u32>,
    ) -> Result<Option<Path>, Failure>;

    /// An order in which every edge leads forward.
    fn order(&self, scope: &Scope) -> Result<Order, Failure>;

    /// The connected components, each sorted, by their first blocks.
    fn components(&self, scope: &Scope, strong: bool) -> Result<Vec<Vec<BlockId>>, Failure>;

    /// Figures.
    fn stats(&self, scope: &Scope) -> Result<Figures, Failure>;

    /// Visits every block, by id, until `visit` fails.
    fn for_each_block(
        &self,
        visit: &mut dyn FnMut(Block) -> Result<(), Failure>,
    ) -> Result<(), Failure>;

    /// Visits every edge, by source, kind and target, until `visit` fails.
    fn for_each_edge(
        &self,
        visit: &mut dyn FnMut(Edge) -> Result<(), Failure>,
    ) -> Result<(), Failure>;
}

/// What a traversal found.
pub(crate) struct Reached {
    pub(crate) visits: Vec<Visit>,
    pub(crate) stop: Stop,
    pub(crate) edges_touched: u64,
}

/// Why a traversal ended.
#[derive(Clone, Copy)]
pub(crate) enum Stop {
    Exhausted,
    MaxDepth,
    Limit,
    MaxBytes,
    /// A server has a bound of its own on the number of blocks.
    LimitOfServer,
}

/// An order of all blocks, or why there is none.
pub(crate) enum Order {
    Found(Vec<BlockId>),
    Cycle(Vec<BlockId>),
}

/// Figures about a graph, and the revision they are of.
pub(crate) struct Figures {
    pub(crate) revision: Revision,
    pub(crate) blocks: u64,
    pub(crate) edges: u64,
    pub(crate) blocks_by_kind: std::collections::BTreeMap<String, u64>,
    pub(crate) edges_by_kind: std::collections::BTreeMap<String, u64>,
    pub(crate) self_loops: u64,
    pub(crate) out_degree_max: u64,
    pub(crate) in_degree_max: u64,
    pub(crate) degree_mean: f64,
    pub(crate) strong_components: u64,
    pub(crate) weak_components: u64,
    pub(crate) triangles: u64,
    pub(crate) average_clustering: f64,
    pub(crate) view_memory_bytes: u64,
}

fn direction(direction: args::Direction) -> Direction {
    match direction {
        args::Direction::Out => Direction::Out,
        args::Direction::In => Direction::In,
        args::Direction::Both => Direction::Both,
    }
}

impl GraphReader for bowline::Graph {
    fn block(&self, id: BlockId) -> Result<Option<Block>, Failure> {
        Ok(self.block(id)?)
    }

    fn attributes(&self, ids: &[BlockId]) -> Result<Vec<(BlockId, Attributes)>, Failure> {
        let mut found = Vec::new();
        for id in ids {
            if let Some(block) = self.block(*id)? {
                found.push((*id, block.attributes));
            }
        }
        Ok(found)
    }

    fn having(&self, name: &str, value: &str) -> Result<Vec<(BlockId, Attributes)>, Failure> {
        let mut found = Vec::new();
        self.for_each_block(|block| {
            if block.attributes.get(name).is_some_and(|text| text == value) {
                found.push((block.id, block.attributes));
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn neighbors(
        &self,
        id: BlockId,
        edges: &EdgeFilter,
        _limit: Option<u64>,
    ) -> Result<Vec<Neighbor>, Failure> {
        Ok(self.neighbors(id, direction(edges.direction), &edges.scope.kinds)?)
    }

    fn traverse(
        &self,
        start: BlockId,
        edges: &EdgeFilter,
        bounds: &Bounds,
        depth_first: bool,
    ) -> Result<Reached, Failure> {
        let mut traversal = self
            .traverse(start)
            .direction(direction(edges.direction))
            .kinds(&edges.scope.kinds);
        if depth_first {
            traversal = traversal.depth_first();
        }
        if let Some(depth) = bounds.max_depth {
            traversal = traversal.max_depth(depth);
        }
        if let Some(limit) = bounds.limit {
            traversal = traversal.limit(limit);
        }
        if let Some(bytes) = bounds.max_bytes {
            traversal = traversal.max_bytes(bytes);
        }
        let found = traversal.run()?;
        Ok(Reached {
            visits: found.visits,
            stop: match found.stop {
                bowline::Stop::Exhausted => Stop::Exhausted,
                bowline::Stop::MaxDepth => Stop::MaxDepth,
                bowline::Stop::Limit => Stop::Limit,
                bowline::Stop::MaxBytes => Stop::MaxBytes,
                bowline::Stop::LimitOfServer => Stop::LimitOfServer,
            },
            edges_touched: found.edges_touched,
        })
    }

    fn path(
        &self,
        (from, to): (BlockId, BlockId),
        weight: Option<&str>,
        edges: &EdgeFilter,
        max_depth: Option<u32>,
    ) -> Result<Option<Path>, Failure> {
        let mut search = self
            .shortest_path(from, to)
            .direction(direction(edges.direction))
            .kinds(&edges.scope.kinds);
        if let Some(weight) = weight {
            search = search.weight(weight);
        }
        if let Some(depth) = max_depth {
            search = search.max_depth(depth);
        }
        Ok(search.find()?)
    }

    fn order(&self, scope: &Scope) -> Result<Order, Failure> {
        match self.topological_order(&scope.kinds, Precedence::SourceFirst) {
            Ok(ids) => Ok(Order::Found(ids)),
            Err(Error::Cycle { cycle }) => Ok(Order::Cycle(cycle)),
            Err(error) => Err(error.into()),
        }
    }

    fn components(&self, scope: &Scope, strong: bool) -> Result<Vec<Vec<BlockId>>, Failure> {
        Ok(if strong {
            self.strongly_connected_components(&scope.kinds)?
        } else {
            self.weakly_connected_components(&scope.kinds)?
        })
    }

    fn stats(&self, scope: &Scope) -> Result<Figures, Failure> {
        let stats = self.stats(&scope.kinds)?;
        Ok(Figures {
            revision: self.revision(),
            blocks: stats.blocks,
            edges: stats.edges,
            blocks_by_kind: stats.blocks_by_kind,
            edges_by_kind: stats.edges_by_kind,
            self_loops: stats.self_loops,
            out_degree_max: stats.out_degree_max,
            in_degree_max: stats.in_degree_max,
            degree_mean: stats.degree_mean,
            strong_components: stats.strong_components,
            weak_components: stats.weak_components,
            triangles: stats.triangles,
            average_clustering: stats.average_clustering,
            view_memory_bytes: stats.view_memory_bytes,
        })
    }

    fn for_each_block(
        &self,
        visit: &mut dyn FnMut(Block) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        scan(|stopping| self.for_each_block(|block| stopping(visit(block))))
    }

    fn for_each_edge(
        &self,
        visit: &mut dyn FnMut(Edge) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        scan(|stopping| self.for_each_edge(|edge| stopping(visit(edge))))
    }
}

/// What was visited, for the library, which knows only its own errors.
type Stopping<'a> = &'a mut dyn FnMut(Result<(), Failure>) -> bowline::Result<()>;

/// Scans; a visitor's failure ends it by an error that stands for it.
fn scan(run: impl FnOnce(Stopping<'_>) -> bowline::Result<()>) -> Result<(), Failure> {
    let mut failure = None;
    let scanned = run(&mut |visited| {
        visited.map_err(|error| {
            failure = Some(error);
            Error::Closed
        })
    });
    match failure {
        Some(failure) => Err(failure),
        None => Ok(scanned?),
    }
}
