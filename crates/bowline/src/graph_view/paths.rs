//! The neighborhood of a block, and all simple paths between two: their settings, and their runs.
//!
//! Both read the trees from their blocks on, and not the whole graph.

use super::records::{PathOfEdges, named};
use super::{BlockValues, Graph};
use bowline_core::error::Result;
use bowline_core::graph::algorithms::{k_hop, simple_paths};
use bowline_core::graph::path::PathEdge;
use bowline_core::graph::{BlockId, Direction};
use bowline_types::Path;

impl Graph {
    /// Describes a search for the blocks within `hops` edges of `start`; [`KHop::run`] runs it.
    pub fn k_hop(&self, start: BlockId, hops: u32) -> KHop {
        KHop {
            graph: self.clone(),
            start,
            hops,
            direction: Direction::Out,
            kinds: Vec::new(),
        }
    }

    /// Describes a search for all paths from `from` to `to` on which no block occurs twice; [`SimplePaths::find`] begins
    /// it.
    pub fn simple_paths(&self, from: BlockId, to: BlockId) -> SimplePaths {
        SimplePaths {
            graph: self.clone(),
            from,
            to,
            direction: Direction::Out,
            kinds: Vec::new(),
            max_depth: None,
        }
    }
}

/// The settings of a search for the neighborhood of a block. Made by [`Graph::k_hop`].
///
/// ```
/// use bowline::{Block, BlockId, Db, Direction, Edge};
///
/// # let db = Db::in_memory()?;
/// db.transact(|tx| {
///     (1..=4).try_for_each(|id| tx.put_block(&Block::new(BlockId(id), "person")))?;
///     [(1, 4), (4, 2), (2, 3)]
///         .into_iter()
///         .try_for_each(|(a, b)| tx.put_edge(&Edge::new(BlockId(a), "knows", BlockId(b))))
/// })?;
/// let near = db.snapshot().graph().k_hop(BlockId(1), 2).run()?;
/// assert!(near.iter().eq([(BlockId(2), 2), (BlockId(4), 1)]));
/// let graph = db.snapshot().graph();
/// let back = graph.k_hop(BlockId(3), 1).direction(Direction::In).kinds(["knows"]).run()?;
/// assert!(back.iter().eq([(BlockId(2), 1)]));
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a search begins with `run`"]
pub struct KHop {
    graph: Graph,
    start: BlockId,
    hops: u32,
    direction: Direction,
    kinds: Vec<String>,
}

impl KHop {
    /// Which way edges are followed. Default: `Out`.
    pub fn direction(mut self, direction: Direction) -> KHop {
        self.direction = direction;
        self
    }

    /// Follows only edges of these kinds. Default: every kind.
    pub fn kinds<N: Into<String>>(mut self, kinds: impl IntoIterator<Item = N>) -> KHop {
        self.kinds.extend(kinds.into_iter().map(Into::into));
        self
    }

    /// Finds the blocks with their distances, in the order of ids. The start is not among them.
    ///
    /// # Errors
    /// `MissingBlock`, `UnknownKind`, `Canceled`, `InvalidRecord`, `Storage`.
    pub fn run(self) -> Result<BlockValues<u32>> {
        let graph = &self.graph;
        let kinds = graph.filter(&self.kinds)?;
        let (start, hops, direction) = (self.start, self.hops, self.direction);
        let found = k_hop::k_hop(graph, start, hops, direction, &kinds, &graph.cancel)?;
        let (ids, distances) = found.into_iter().unzip();
        Ok(BlockValues::new(ids, distances))
    }
}

/// The settings of a search for all simple paths. Made by [`Graph::simple_paths`].
///
/// ```
/// use bowline::{Block, BlockId, Db, Direction, Edge};
///
/// # let db = Db::in_memory()?;
/// let [ann, bob, cat] = ["ann", "bob", "cat"].map(BlockId::from_name);
/// db.transact(|tx| {
///     for person in [ann, bob, cat] {
///         tx.put_block(&Block::new(person, "person"))?;
///     }
///     tx.put_edge(&Edge::new(ann, "knows", bob))?;
///     tx.put_edge(&Edge::new(bob, "knows", cat))?;
///     tx.put_edge(&Edge::new(ann, "likes", cat))
/// })?;
/// let graph = db.snapshot().graph();
/// // There may be very many: bound their length, or take the first.
/// for path in graph.simple_paths(ann, cat).max_depth(4).find()?.take(10) {
///     println!("{:?}", path?.blocks);
/// }
/// assert_eq!(graph.simple_paths(ann, cat).find()?.count(), 2);
/// assert_eq!(graph.simple_paths(ann, cat).max_depth(1).find()?.count(), 1);
/// let back = graph.simple_paths(cat, ann).direction(Direction::In).kinds(["knows"]);
/// assert_eq!(back.find()?.count(), 1);
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a search begins with `find`"]
pub struct SimplePaths {
    graph: Graph,
    from: BlockId,
    to: BlockId,
    direction: Direction,
    kinds: Vec<String>,
    max_depth: Option<u32>,
}

impl SimplePaths {
    /// Which way edges are followed. Default: `Out`.
    pub fn direction(mut self, direction: Direction) -> SimplePaths {
        self.direction = direction;
        self
    }

    /// Follows only edges of these kinds. Default: every kind.
    pub fn kinds<N: Into<String>>(mut self, kinds: impl IntoIterator<Item = N>) -> SimplePaths {
        self.kinds.extend(kinds.into_iter().map(Into::into));
        self
    }

    /// Bounds the number of edges of a path. Default: no bound.
    pub fn max_depth(mut self, depth: u32) -> SimplePaths {
        self.max_depth = Some(depth);
        self
    }

    /// Begins the search. Paths are found one by one, as the iterator is asked for them.
    ///
    /// # Errors
    /// `MissingBlock`, `UnknownKind`, `Canceled`, `InvalidRecord`, `Storage`.
    pub fn find(self) -> Result<PathIter> {
        let graph = self.graph;
        let kinds = graph.filter(&self.kinds)?;
        let (ends, direction) = ((self.from, self.to), self.direction);
        let most = self.max_depth.unwrap_or(u32::MAX);
        let cancel = &graph.cancel;
        let search = simple_paths::SimplePaths::new(&graph, ends, direction, kinds, most, cancel)?;
        Ok(PathIter { graph, search })
    }
}

/// The simple paths between two blocks, as they are found. Made by [`SimplePaths::find`].
///
/// They come in the order of edges: compared edge by edge from the start, by kind and then by id. Two kinds of edges
/// between the same blocks make two paths. After an error there are no more.
///
/// ```
/// # use bowline::{Block, BlockId};
/// # let db = bowline::Db::in_memory()?;
/// # db.transact(|tx| tx.put_block(&Block::new(BlockId(1), "host")))?;
/// let mut paths = db.snapshot().graph().simple_paths(BlockId(1), BlockId(1)).find()?;
/// // The path from a block to itself has no edges.
/// assert_eq!(paths.next().expect("a path")?.blocks, [BlockId(1)]);
/// assert!(paths.next().is_none());
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug)]
pub struct PathIter {
    graph: Graph,
    search: simple_paths::SimplePaths,
}

impl PathIter {
    /// The next path, with what is known of its edges.
    pub(crate) fn next_edges(&mut self) -> Option<Result<PathOfEdges>> {
        let PathIter { graph, search } = self;
        let found = search.next_path(&*graph, &graph.cancel).transpose()?;
        let known = |edge: PathEdge| (edge.kind, Some(edge.direction));
        Some(found.and_then(|path| named(&graph.core().kinds, path, known)))
    }
}

impl Iterator for PathIter {
    type Item = Result<Path>;

    fn next(&mut self) -> Option<Result<Path>> {
        let found = self.next_edges()?;
        Some(found.and_then(|path| path.try_map_kinds(|edge| Ok(edge.kind))))
    }
}
