//! Searches in the graph: the settings of a traversal and of a shortest path, and their runs.
//!
//! A search describes what is wanted; nothing is read before it runs.

use super::reader::Sources;
use super::{Graph, unregistered};
use bowline_core::error::{Error, Result};
use bowline_core::graph::path::weighted::{Weight, is_weight, lightest_path};
use bowline_core::graph::traverse::{self, TraverseSpec};
use bowline_core::graph::{BlockId, Direction, path};
use bowline_types::{Path, Traversal};

/// The settings of a traversal. Made by [`Graph::traverse`].
///
/// ```
/// # use bowline::{Block, BlockId, Direction};
/// # let db = bowline::Db::in_memory()?;
/// # let id = BlockId::from_name("x");
/// # db.transact(|tx| tx.put_block(&Block::new(id, "k")))?;
/// let graph = db.snapshot().graph();
/// let traverse = graph.traverse(id).direction(Direction::In).depth_first();
/// let found = traverse.max_depth(3).limit(10_000).max_bytes(1 << 20).run()?;
/// println!("{} blocks, stopped: {:?}", found.visits.len(), found.stop);
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a traversal begins with `run`"]
pub struct Traverse {
    graph: Graph,
    starts: Vec<BlockId>,
    kinds: Vec<String>,
    spec: TraverseSpec,
}

impl Traverse {
    pub(super) fn new(graph: Graph, start: BlockId) -> Traverse {
        Traverse {
            graph,
            starts: vec![start],
            kinds: Vec::new(),
            spec: TraverseSpec::default(),
        }
    }

    /// Which way edges are followed. Default: `Out`.
    pub fn direction(mut self, direction: Direction) -> Traverse {
        self.spec.direction = direction;
        self
    }

    /// Follows only edges of these kinds. Default: every kind.
    pub fn kinds<N: Into<String>>(mut self, kinds: impl IntoIterator<Item = N>) -> Traverse {
        self.kinds.extend(kinds.into_iter().map(Into::into));
        self
    }

    /// Adds a start block.
    pub fn also_from(mut self, start: BlockId) -> Traverse {
        self.starts.push(start);
        self
    }

    /// Visits the nearest blocks first. The default.
    pub fn breadth_first(mut self) -> Traverse {
        self.spec.order = traverse::TraverseOrder::BreadthFirst;
        self
    }

    /// Follows each path to its end before the next path.
    pub fn depth_first(mut self) -> Traverse {
        self.spec.order = traverse::TraverseOrder::DepthFirst;
        self
    }

    /// Bounds the number of edges from the start. Default: no bound.
    pub fn max_depth(mut self, depth: u32) -> Traverse {
        self.spec.max_depth = Some(depth);
        self
    }

    /// Bounds the number of blocks. Default: no bound.
    pub fn limit(mut self, blocks: u64) -> Traverse {
        self.spec.limit = Some(blocks);
        self
    }

    /// Bounds the size of the visited blocks as stored, in bytes. Default: no bound.
    pub fn max_bytes(mut self, bytes: u64) -> Traverse {
        self.spec.max_bytes = Some(bytes);
        self
    }

    /// Runs the traversal; returns the visited blocks and the bound that stopped it.
    ///
    /// # Errors
    /// `MissingBlock` for a start, `UnknownKind`; `InvalidRecord`, `Storage`.
    pub fn run(mut self) -> Result<Traversal> {
        let graph = &self.graph;
        self.spec.kinds = graph.filter(&self.kinds)?;
        let sources = Sources::of(graph)?;
        let found = traverse::traverse(&sources.reader(graph), &self.starts, &self.spec)?;
        let mut names = graph.core().kinds.names();
        found.try_map_kinds(|kind| names.get(kind).ok_or_else(|| unregistered(kind)))
    }
}

/// The settings of a search for a shortest path. Made by [`Graph::shortest_path`].
///
/// ```
/// # use bowline::{Block, BlockId, Edge};
/// # let db = bowline::Db::in_memory()?;
/// # let (a, b) = (BlockId::from_name("a"), BlockId::from_name("b"));
/// # db.transact(|tx| {
/// #     tx.put_block(&Block::new(a, "host"))?;
/// #     tx.put_block(&Block::new(b, "host"))?;
/// #     tx.put_edge(&Edge::new(a, "link", b).attribute("latency_ms", "3"))
/// # })?;
/// let graph = db.snapshot().graph();
/// let path = graph.shortest_path(a, b).kinds(["link"]).weight("latency_ms").find()?;
/// assert_eq!(path.expect("a path").blocks, [a, b]);
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a search begins with `find`"]
pub struct ShortestPath {
    graph: Graph,
    from: BlockId,
    to: BlockId,
    direction: Direction,
    kinds: Vec<String>,
    weight: Option<String>,
    default_weight: Option<f64>,
    max_depth: Option<u32>,
}

impl ShortestPath {
    pub(super) fn new(graph: Graph, from: BlockId, to: BlockId) -> ShortestPath {
        ShortestPath {
            graph,
            from,
            to,
            direction: Direction::Out,
            kinds: Vec::new(),
            weight: None,
            default_weight: None,
            max_depth: None,
        }
    }

    /// Which way edges are followed. Default: `Out`.
    pub fn direction(mut self, direction: Direction) -> ShortestPath {
        self.direction = direction;
        self
    }

    /// Follows only edges of these kinds. Default: every kind.
    pub fn kinds<N: Into<String>>(mut self, kinds: impl IntoIterator<Item = N>) -> ShortestPath {
        self.kinds.extend(kinds.into_iter().map(Into::into));
        self
    }

    /// Minimizes the sum of this numeric edge attribute instead of the number of edges. An edge on the
    /// way without the attribute is an error, unless there is a default weight.
    pub fn weight(mut self, attribute: impl Into<String>) -> ShortestPath {
        self.weight = Some(attribute.into());
        self
    }

    /// What an edge without the attribute weighs: a finite number of at least 0. Only together with
    /// [`weight`](ShortestPath::weight).
    pub fn default_weight(mut self, weight: f64) -> ShortestPath {
        self.default_weight = Some(weight);
        self
    }

    /// Bounds the number of edges, for unweighted paths only. Default: no bound.
    pub fn max_depth(mut self, depth: u32) -> ShortestPath {
        self.max_depth = Some(depth);
        self
    }

    /// Runs the search; returns the path, or `None` when there is none.
    ///
    /// # Errors
    /// `MissingBlock`, `UnknownKind`, `InvalidWeight`; `NotSupported` for a depth bound on a
    /// weighted path, for a default weight on an unweighted one, and for one that is no weight.
    pub fn find(self) -> Result<Option<Path>> {
        let graph = &self.graph;
        let filter = graph.filter(&self.kinds)?;
        let (from, to, direction) = (self.from, self.to, self.direction);
        if self.default_weight.is_some() && self.weight.is_none() {
            return Err(Error::NotSupported {
                what: "a default weight without a weight",
                why: "it stands in for an attribute: name the attribute",
            });
        }
        if self.default_weight.is_some_and(|number| !is_weight(number)) {
            return Err(Error::NotSupported {
                what: "this default weight",
                why: "a weight is a finite number not below 0",
            });
        }
        let sources = Sources::of(graph)?;
        let reader = sources.reader(graph);
        let found = match &self.weight {
            None => path::unweighted::shortest_path(
                &reader,
                from,
                to,
                direction,
                &filter,
                self.max_depth,
            )?,
            Some(_) if self.max_depth.is_some() => {
                return Err(Error::NotSupported {
                    what: "a depth bound on a weighted path",
                    why: "the cheapest path may need more edges; leave one of the two out",
                });
            }
            Some(attribute) => {
                let default = self.default_weight;
                let weight = Weight { attribute, default };
                lightest_path(&reader, from, to, direction, &filter, weight)?
            }
        };
        let named = found.map(|path| path.try_map_kinds(|kind| graph.kind_name(kind)));
        named.transpose()
    }
}
