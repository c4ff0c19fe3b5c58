//! Searches in the graph: the settings of a traversal and of a shortest path, and their runs.
//!
//! A search describes what is wanted; nothing is read before it runs.

use std::cell::RefCell;

use super::reader::{Reader, Sources};
use super::records::{PathOfEdges, invalid, lend_edge, named, unregistered};
use super::{Graph, Traversed};
use bowline_core::error::{Error, Result};
use bowline_core::graph::algorithms::a_star::guided_path;
use bowline_core::graph::path::PathEdge;
use bowline_core::graph::path::weighted::{Weight, is_weight, lightest_path};
use bowline_core::graph::selected;
use bowline_core::graph::traverse::{self, TraverseSpec};
use bowline_core::graph::visits::Visits;
use bowline_core::graph::walk::{ByIds, InView};
use bowline_core::graph::{BlockId, Direction, EdgeRef, KindId, edge_out_key};
use bowline_core::trees;
use bowline_types::Path;

/// The settings of a traversal. Made by [`Graph::traverse`].
///
/// ```
/// use bowline::{Block, BlockId, Direction, Edge, Stop};
/// # let db = bowline::Db::in_memory()?;
/// let [app, cli, lib, log] = ["app", "cli", "lib", "log"].map(BlockId::from_name);
/// db.transact(|tx| {
///     for id in [app, cli, lib, log] {
///         tx.put_block(&Block::new(id, "package"))?;
///     }
///     tx.put_edge(&Edge::new(app, "depends_on", lib))?;
///     tx.put_edge(&Edge::new(cli, "depends_on", app))?;
///     tx.put_edge(&Edge::new(lib, "tested_with", log))
/// })?;
///
/// // What is affected when lib or log changes: within three steps, 10,000 blocks and 1 MiB.
/// let graph = db.snapshot().graph();
/// let affected = graph.traverse(lib).also_from(log).direction(Direction::In).kinds(["depends_on"]);
/// let found = affected.clone().breadth_first().max_depth(3).limit(10_000).max_bytes(1 << 20).run()?;
/// let ids: Vec<_> = found.ids().collect();
/// assert_eq!((ids, found.stop()), (vec![lib, log, app, cli], Stop::Exhausted));
///
/// // The same, each path to its end before the next.
/// let found = affected.depth_first().run()?;
/// let depths: Vec<_> = found.visits().map(|visit| visit.depth).collect();
/// assert_eq!(depths, [0, 1, 2, 0]);
///
/// // Only edges that have an attribute, and one neighbor of each block.
/// let graph = db.snapshot().graph();
/// assert_eq!(graph.traverse(cli).attribute("scope", "build").run()?.len(), 1);
/// let found = graph.traverse(lib).direction(Direction::Both).max_neighbors(1).run()?;
/// assert_eq!((found.len(), found.stop()), (2, Stop::MaxNeighbors));
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a traversal begins with `run`"]
pub struct Traverse {
    graph: Graph,
    starts: Vec<BlockId>,
    kinds: Vec<String>,
    spec: TraverseSpec,
    max_neighbors: Option<u64>,
    /// Names and values that an edge must have.
    attributes: Vec<(String, String)>,
}

impl Traverse {
    pub(super) fn new(graph: Graph, start: BlockId) -> Traverse {
        Traverse {
            graph,
            starts: vec![start],
            kinds: Vec::new(),
            spec: TraverseSpec::default(),
            max_neighbors: None,
            attributes: Vec::new(),
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

    /// Follows at most so many edges of each block: the first ones, in the order of [`Graph::neighbors`], that pass the
    /// kinds and attributes. Default: no bound.
    pub fn max_neighbors(mut self, edges: u64) -> Traverse {
        self.max_neighbors = Some(edges);
        self
    }

    /// Follows only edges that have this attribute with this value; called several times, only edges that have all.
    /// The attributes of each edge are read from the trees.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Traverse {
        self.attributes.push((name.into(), value.into()));
        self
    }

    /// Runs the traversal; returns the visited blocks and the bound that stopped it.
    ///
    /// # Errors
    /// `MissingBlock` for a start, `UnknownKind`; `InvalidRecord`, `Storage`.
    pub fn run(mut self) -> Result<Traversed> {
        if !self.attributes.is_empty() {
            return self.run_where(|_| true);
        }
        if self.max_neighbors.is_some() {
            return self.run_selected(|_, _, _| Ok(true));
        }
        self.spec.kinds = self.graph.filter(&self.kinds)?;
        let (graph, spec) = (&self.graph, &self.spec);
        graph.walk_from(
            &self.starts,
            |view, starts| traverse::walk(view, starts, spec),
            |trees, starts| traverse::walk(trees, starts, spec),
        )
    }

    /// Runs the traversal over the edges for which `follow` returns `true`. It is asked after the kinds and the
    /// attributes, and may be asked for one edge several times; each time the edge is read from the trees.
    ///
    /// ```
    /// # use bowline::{Block, BlockId, Edge};
    /// # let db = bowline::Db::in_memory()?;
    /// # let [a, b, c] = ["a", "b", "c"].map(BlockId::from_name);
    /// db.transact(|tx| {
    ///     for id in [a, b, c] {
    ///         tx.put_block(&Block::new(id, "host"))?;
    ///     }
    ///     tx.put_edge(&Edge::new(a, "link", b).attribute("latency_ms", "3"))?;
    ///     tx.put_edge(&Edge::new(b, "link", c).attribute("latency_ms", "40"))
    /// })?;
    /// let graph = db.snapshot().graph();
    /// let near = graph.traverse(a).run_where(|link| {
    ///     let latency_ms = link.attributes.get("latency_ms").and_then(|value| value.as_number());
    ///     latency_ms.is_some_and(|latency_ms: f64| latency_ms < 10.0)
    /// })?;
    /// assert_eq!(near.ids().collect::<Vec<_>>(), [a, b]);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`run`](Traverse::run).
    pub fn run_where(mut self, mut follow: impl FnMut(EdgeRef<'_>) -> bool) -> Result<Traversed> {
        let (graph, wanted) = (self.graph.clone(), std::mem::take(&mut self.attributes));
        self.run_selected(|source, kind, target| {
            let has = |edge: &EdgeRef<'_>, (name, value): &(String, String)| {
                edge.attributes
                    .get(name)
                    .is_some_and(|held| held.reads(value))
            };
            graph.visit_edge_of(source, kind, target, |edge| {
                wanted.iter().all(|wanted| has(&edge, wanted)) && follow(edge)
            })
        })
    }

    fn run_selected(
        mut self,
        follow: impl FnMut(BlockId, KindId, BlockId) -> Result<bool>,
    ) -> Result<Traversed> {
        self.spec.kinds = self.graph.filter(&self.kinds)?;
        let (graph, spec, max) = (&self.graph, &self.spec, self.max_neighbors);
        // Both walks name it, and one of them runs.
        let cell = RefCell::new(follow);
        let follow = |source, kind, target| (cell.borrow_mut())(source, kind, target);
        graph.walk_from(
            &self.starts,
            |view, starts| selected::walk(view, starts, spec, max, follow),
            |trees, starts| selected::walk(trees, starts, spec, max, follow),
        )
    }
}

impl Graph {
    /// Runs one of two walks: in the view where it knows all starts, else in the trees.
    fn walk_from(
        &self,
        starts: &[BlockId],
        in_view: impl FnOnce(&InView<'_, Graph>, &[u32]) -> Result<Visits<u32>>,
        in_trees: impl FnOnce(&ByIds<'_, Reader<'_>>, &[BlockId]) -> Result<Visits<BlockId>>,
    ) -> Result<Traversed> {
        let names = self.names().clone();
        if let Some((view, state)) = self.in_view()
            && let Some(ordinals) = self.ordinals(&view, starts)?
        {
            return Traversed::of_view(in_view(&view, &ordinals)?, state.clone(), names);
        }
        self.require_blocks(starts)?;
        let sources = Sources::of(self)?;
        let reader = sources.reader(self);
        Traversed::of_ids(in_trees(&ByIds::new(&reader), starts)?, names)
    }

    /// As [`Graph::visit_edge`], of an edge that exists, by the number of its kind.
    fn visit_edge_of<R>(
        &self,
        source: BlockId,
        kind: KindId,
        target: BlockId,
        visit: impl FnOnce(EdgeRef<'_>) -> R,
    ) -> Result<R> {
        let name = self.names().name(kind).ok_or_else(|| unregistered(kind))?;
        let key = edge_out_key(source, kind, target);
        self.raw(trees::EDGE_OUT, &key, |bytes| match bytes {
            Some(bytes) => lend_edge(source, name, target, &key, bytes).map(visit),
            None => Err(invalid(
                "edge",
                &key,
                "its entry for the other direction does not exist",
            )),
        })?
    }
}

/// The settings of a search for a shortest path. Made by [`Graph::shortest_path`].
///
/// ```
/// use bowline::{Block, BlockId, Direction, Edge};
/// # let db = bowline::Db::in_memory()?;
/// let [a, b, c] = ["a", "b", "c"].map(BlockId::from_name);
/// db.transact(|tx| {
///     for id in [a, b, c] {
///         tx.put_block(&Block::new(id, "host"))?;
///     }
///     tx.put_edge(&Edge::new(a, "link", b).attribute("latency_ms", "3"))?;
///     tx.put_edge(&Edge::new(b, "link", c).attribute("latency_ms", "4"))?;
///     tx.put_edge(&Edge::new(a, "link", c))
/// })?;
/// let graph = db.snapshot().graph();
///
/// // The fewest edges, at most two, in either direction.
/// let short = graph.shortest_path(c, a).direction(Direction::Both).max_depth(2).find()?;
/// assert_eq!(short.expect("a path").blocks, [c, a]);
///
/// // The least latency. A link without the attribute counts as 50.
/// let search = graph.shortest_path(a, c).kinds(["link"]).weight("latency_ms");
/// let fast = search.default_weight(50.0).find()?.expect("a path");
/// assert_eq!((fast.blocks, fast.cost), (vec![a, b, c], 7.0));
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
        let named = |path: PathOfEdges| path.try_map_kinds(|edge| Ok(edge.kind));
        self.find_edges()?.map(named).transpose()
    }

    /// As [`find`](ShortestPath::find), with what is known of the edges.
    pub(crate) fn find_edges(self) -> Result<Option<PathOfEdges>> {
        let graph = &self.graph;
        let filter = graph.filter(&self.kinds)?;
        let (from, to, direction) = (self.from, self.to, self.direction);
        self.check_default_weight()?;
        let found = match &self.weight {
            None => {
                let found = graph.fewest_edges(from, to, direction, &filter, self.max_depth)?;
                return found
                    .map(|path| named(&graph.core().kinds, path, |kind| (kind, None)))
                    .transpose();
            }
            Some(_) if self.max_depth.is_some() => {
                return Err(Error::NotSupported {
                    what: "a depth bound on a weighted path",
                    why: "the cheapest path may need more edges; leave one of the two out",
                });
            }
            Some(attribute) => {
                let default = self.default_weight;
                let weight = Weight { attribute, default };
                let sources = Sources::of(graph)?;
                lightest_path(&sources.reader(graph), from, to, direction, &filter, weight)?
            }
        };
        let named = |path| {
            named(&graph.core().kinds, path, |edge: PathEdge| {
                (edge.kind, Some(edge.direction))
            })
        };
        found.map(named).transpose()
    }

    /// Runs the search for a weighted path by A*: `estimate` gives what is left from a block to the end, and the search
    /// does not read where the sum of cost and estimate is too large. The path is a lightest one if no estimate is more
    /// than the true rest. An infinite estimate says that no path leads on; one below 0 says nothing.
    ///
    /// ```
    /// use bowline::{Block, BlockId, Db, Edge};
    ///
    /// // A road along a line: block `n` is at kilometer `n`.
    /// let db = Db::in_memory()?;
    /// db.transact(|tx| {
    ///     (0..100).try_for_each(|km| tx.put_block(&Block::new(BlockId(km), "town")))?;
    ///     (1..100).try_for_each(|km| {
    ///         tx.put_edge(&Edge::new(BlockId(km), "road", BlockId(km - 1)).attribute("km", "1"))?;
    ///         tx.put_edge(&Edge::new(BlockId(km - 1), "road", BlockId(km)).attribute("km", "1"))
    ///     })
    /// })?;
    /// let graph = db.snapshot().graph();
    /// let search = graph.shortest_path(BlockId(40), BlockId(60)).weight("km");
    /// // The distance as the crow flies. The towns below 40 are not visited.
    /// let path = search.find_with_estimate(|town| (60 - town.0 as i64).abs() as f64)?;
    /// assert_eq!(path.expect("a path").cost, 20.0);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`find`](ShortestPath::find) on a weighted path; `NotSupported` without a
    /// [`weight`](ShortestPath::weight), and for an estimate that is not a number; `Canceled`.
    pub fn find_with_estimate(self, estimate: impl FnMut(BlockId) -> f64) -> Result<Option<Path>> {
        let graph = &self.graph;
        let filter = graph.filter(&self.kinds)?;
        self.check_default_weight()?;
        let (Some(attribute), None) = (&self.weight, self.max_depth) else {
            return Err(Error::NotSupported {
                what: "an estimate for this search",
                why: "it is for weighted paths without a bound on the depth: name the attribute that weighs",
            });
        };
        let weight = Weight {
            attribute,
            default: self.default_weight,
        };
        let (ends, cancel) = ((self.from, self.to), &graph.cancel);
        let found = guided_path(
            graph,
            ends,
            self.direction,
            &filter,
            weight,
            estimate,
            cancel,
        )?;
        let named = found.map(|path| path.try_map_kinds(|kind| graph.kind_name(kind)));
        named.transpose()
    }

    /// Refuses a default weight that is none or stands for nothing.
    fn check_default_weight(&self) -> Result<()> {
        if self.default_weight.is_some() && self.weight.is_none() {
            return Err(Error::NotSupported {
                what: "a default weight without a weight",
                why: "it stands in for an attribute: name the attribute",
            });
        }
        check_weight(self.default_weight)
    }
}

/// Refuses a default weight that is none.
pub(super) fn check_weight(default: Option<f64>) -> Result<()> {
    if default.is_some_and(|number| !is_weight(number)) {
        return Err(Error::NotSupported {
            what: "this default weight",
            why: "a weight is a finite number not below 0",
        });
    }
    Ok(())
}
