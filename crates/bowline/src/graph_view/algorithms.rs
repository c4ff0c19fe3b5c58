//! Algorithms over the whole graph: their settings, and their runs.
//!
//! Like a search, the settings describe what is wanted, and nothing is read before the run. A run reads all blocks and
//! the edges of the kinds into arrays ([`bowline_core::graph::view`]), and discards the arrays afterwards.

use super::search::check_weight;
use super::{BlockLabels, BlockValues, Graph};
use bowline_core::error::{Error, Result};
use bowline_core::graph::algorithms::clustering::clustering_coefficients;
use bowline_core::graph::algorithms::communities::communities;
use bowline_core::graph::algorithms::distances::{UNREACHED, distances};
use bowline_core::graph::algorithms::page_rank::{PageRankSpec, page_rank};
use bowline_core::graph::algorithms::triangles::triangles_per_vertex;
use bowline_core::graph::algorithms::weighted_distances::weighted_distances_from;
use bowline_core::graph::path::weighted::Weight;
use bowline_core::graph::{BlockId, Direction};

impl Graph {
    /// Describes a computation of PageRank; [`PageRank::run`] runs it.
    pub fn page_rank(&self) -> PageRank {
        PageRank {
            graph: self.clone(),
            kinds: Vec::new(),
            spec: PageRankSpec {
                damping: 0.85,
                iterations: 20,
                direction: Direction::Out,
            },
        }
    }

    /// Describes a division into communities; [`Communities::run`] runs it.
    pub fn communities(&self) -> Communities {
        Communities {
            graph: self.clone(),
            kinds: Vec::new(),
            iterations: 10,
        }
    }

    /// Describes a computation of local clustering coefficients; [`ClusteringCoefficients::run`] runs it.
    pub fn clustering_coefficients(&self) -> ClusteringCoefficients {
        ClusteringCoefficients {
            graph: self.clone(),
            kinds: Vec::new(),
            is_directed: true,
        }
    }

    /// Describes a count of triangles; [`Triangles::count`] and [`Triangles::per_block`] run it.
    pub fn triangles(&self) -> Triangles {
        Triangles {
            graph: self.clone(),
            kinds: Vec::new(),
        }
    }

    /// Describes a computation of the numbers of edges from `start` to every block; [`Distances::run`] runs it.
    pub fn distances_from(&self, start: BlockId) -> Distances {
        Distances {
            graph: self.clone(),
            start,
            direction: Direction::Out,
            kinds: Vec::new(),
        }
    }

    /// Describes a computation of the smallest sums of an edge attribute from `start` to every block;
    /// [`WeightedDistances::run`] runs it. An example is there.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// # let home = bowline::BlockId(1);
    /// # db.transact(|tx| tx.put_block(&bowline::Block::new(home, "town")))?;
    /// let graph = db.snapshot().graph();
    /// let km = graph.weighted_distances_from(home, "km").run()?;
    /// assert_eq!(km.get(home), Some(0.0));
    /// # Ok::<(), bowline::Error>(())
    /// ```
    pub fn weighted_distances_from(
        &self,
        start: BlockId,
        attribute: impl Into<String>,
    ) -> WeightedDistances {
        WeightedDistances {
            graph: self.clone(),
            start,
            direction: Direction::Out,
            kinds: Vec::new(),
            attribute: attribute.into(),
            default_weight: None,
        }
    }
}

/// The settings of PageRank: how often one who follows edges at random comes to each block. Made by
/// [`Graph::page_rank`].
///
/// Ranks add up to 1. The result is that of LDBC Graphalytics: a fixed number of iterations, and the rank of blocks
/// without a leaving edge goes to all blocks in equal parts. Each of several edges between two blocks counts.
///
/// ```
/// use bowline::{Block, BlockId, Db, Direction, Edge};
///
/// # let db = Db::in_memory()?;
/// let [home, about, blog] = ["home", "about", "blog"].map(BlockId::from_name);
/// db.transact(|tx| {
///     for page in [home, about, blog] {
///         tx.put_block(&Block::new(page, "page"))?;
///     }
///     tx.put_edge(&Edge::new(about, "links_to", home))?;
///     tx.put_edge(&Edge::new(blog, "links_to", home))
/// })?;
/// let graph = db.snapshot().graph();
/// let ranks = graph.page_rank().kinds(["links_to"]).damping(0.9).iterations(50).run()?;
/// let linking = graph.page_rank().direction(Direction::In).run()?;
/// assert!(linking.get(blog) > linking.get(home));
/// let (first, rank) = ranks.largest(1)[0];
/// assert!(first == home && rank > 0.5);
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a computation begins with `run`"]
pub struct PageRank {
    graph: Graph,
    kinds: Vec<String>,
    spec: PageRankSpec,
}

impl PageRank {
    /// Follows only edges of these kinds. Default: every kind.
    pub fn kinds<N: Into<String>>(mut self, kinds: impl IntoIterator<Item = N>) -> PageRank {
        self.kinds.extend(kinds.into_iter().map(Into::into));
        self
    }

    /// The probability of following an edge instead of going anywhere, between 0 and 1. Default: 0.85.
    pub fn damping(mut self, damping: f64) -> PageRank {
        self.spec.damping = damping;
        self
    }

    /// The number of iterations. Default: 20, after which ranks change by less than 4 percent of what they changed by in
    /// the first.
    pub fn iterations(mut self, iterations: u32) -> PageRank {
        self.spec.iterations = iterations;
        self
    }

    /// Which way edges are followed. Default: `Out`.
    pub fn direction(mut self, direction: Direction) -> PageRank {
        self.spec.direction = direction;
        self
    }

    /// Computes the rank of each block.
    ///
    /// # Errors
    /// `UnknownKind`; `NotSupported` for a damping that is no probability; `Canceled`; `InvalidRecord`, `Storage`.
    pub fn run(self) -> Result<BlockValues<f64>> {
        if !(0.0..=1.0).contains(&self.spec.damping) {
            return Err(Error::NotSupported {
                what: "this damping factor",
                why: "it is a probability: a number between 0 and 1",
            });
        }
        let view = self.graph.dense(&self.graph.filter(&self.kinds)?)?;
        let ranks = page_rank(&view, &self.spec, &self.graph.cancel)?;
        Ok(BlockValues::new(view.into_ids(), ranks))
    }
}

/// The settings of a division into communities, sets of blocks with more edges among themselves than to others, by label
/// propagation. Made by [`Graph::communities`].
///
/// Each block begins with its own id as label. In each iteration, each takes the most frequent label of its neighbors
/// in either direction, the smallest of several, all at once: the deterministic form of LDBC Graphalytics. Each edge
/// counts at both ends.
///
/// ```
/// use bowline::{Block, BlockId, Db, Edge};
///
/// # let db = Db::in_memory()?;
/// // Two groups of four, in which each knows each, and one edge between the groups.
/// db.transact(|tx| {
///     (0..8).try_for_each(|id| tx.put_block(&Block::new(BlockId(id), "person")))?;
///     for (a, b) in (0..8).flat_map(|a| (0..a).map(move |b| (a, b))) {
///         if a / 4 == b / 4 || (a, b) == (4, 3) {
///             tx.put_edge(&Edge::new(BlockId(a), "knows", BlockId(b)))?;
///         }
///     }
///     Ok(())
/// })?;
/// let communities = db.snapshot().graph().communities().kinds(["knows"]).iterations(5).run()?;
/// assert_eq!(communities.groups().len(), 2);
/// assert_eq!(communities.get(BlockId(1)), communities.get(BlockId(2)));
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a computation begins with `run`"]
pub struct Communities {
    graph: Graph,
    kinds: Vec<String>,
    iterations: u32,
}

impl Communities {
    /// Follows only edges of these kinds. Default: every kind.
    pub fn kinds<N: Into<String>>(mut self, kinds: impl IntoIterator<Item = N>) -> Communities {
        self.kinds.extend(kinds.into_iter().map(Into::into));
        self
    }

    /// The largest number of iterations; it ends earlier once no label changes. Default: 10.
    pub fn iterations(mut self, iterations: u32) -> Communities {
        self.iterations = iterations;
        self
    }

    /// Computes the label of each block.
    ///
    /// # Errors
    /// `UnknownKind`, `Canceled`, `InvalidRecord`, `Storage`.
    pub fn run(self) -> Result<BlockLabels> {
        let view = self.graph.dense(&self.graph.filter(&self.kinds)?)?;
        let labels = communities(&view, self.iterations, &self.graph.cancel)?;
        Ok(BlockLabels::new(view.into_ids(), labels))
    }
}

/// The settings of local clustering coefficients: of the edges that are possible among a block's neighbors, the share that
/// exists. Made by [`Graph::clustering_coefficients`].
///
/// Neighbors are blocks with an edge in either direction. Several edges from one block to another count once, and
/// self-loops not at all. The coefficient is 0 for fewer than two neighbors.
///
/// ```
/// use bowline::{Block, BlockId, Db, Edge};
///
/// # let db = Db::in_memory()?;
/// db.transact(|tx| {
///     (1..=3).try_for_each(|id| tx.put_block(&Block::new(BlockId(id), "person")))?;
///     [(1, 2), (2, 3), (3, 1)]
///         .into_iter()
///         .try_for_each(|(a, b)| tx.put_edge(&Edge::new(BlockId(a), "knows", BlockId(b))))
/// })?;
/// let graph = db.snapshot().graph();
/// // One of the two directed edges that are possible between 2 and 3.
/// assert_eq!(graph.clustering_coefficients().run()?.get(BlockId(1)), Some(0.5));
/// // The only undirected one.
/// let undirected = graph.clustering_coefficients().kinds(["knows"]).undirected().run()?;
/// assert_eq!(undirected.get(BlockId(1)), Some(1.0));
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a computation begins with `run`"]
pub struct ClusteringCoefficients {
    graph: Graph,
    kinds: Vec<String>,
    is_directed: bool,
}

impl ClusteringCoefficients {
    /// Follows only edges of these kinds. Default: every kind.
    pub fn kinds<N: Into<String>>(
        mut self,
        kinds: impl IntoIterator<Item = N>,
    ) -> ClusteringCoefficients {
        self.kinds.extend(kinds.into_iter().map(Into::into));
        self
    }

    /// Ignores directions: an edge between two neighbors counts, whichever way it points. Default: an edge each way is
    /// possible, and counts.
    pub fn undirected(mut self) -> ClusteringCoefficients {
        self.is_directed = false;
        self
    }

    /// Computes the coefficient of each block.
    ///
    /// # Errors
    /// `UnknownKind`, `Canceled`, `InvalidRecord`, `Storage`.
    pub fn run(self) -> Result<BlockValues<f64>> {
        let view = self.graph.dense(&self.graph.filter(&self.kinds)?)?;
        let found = clustering_coefficients(&view, self.is_directed, &self.graph.cancel)?;
        Ok(BlockValues::new(view.into_ids(), found))
    }
}

/// The settings of a count of triangles, three blocks of which each two have an edge. Made by [`Graph::triangles`].
///
/// Directions are ignored, several edges between two blocks count once, and self-loops not at all.
///
/// ```
/// use bowline::{Block, BlockId, Db, Edge};
///
/// # let db = Db::in_memory()?;
/// db.transact(|tx| {
///     (1..=4).try_for_each(|id| tx.put_block(&Block::new(BlockId(id), "person")))?;
///     [(1, 2), (2, 3), (3, 1), (3, 4)]
///         .into_iter()
///         .try_for_each(|(a, b)| tx.put_edge(&Edge::new(BlockId(a), "knows", BlockId(b))))
/// })?;
/// let graph = db.snapshot().graph();
/// assert_eq!(graph.triangles().kinds(["knows"]).count()?, 1);
/// let per_block = graph.triangles().per_block()?;
/// assert_eq!((per_block.get(BlockId(3)), per_block.get(BlockId(4))), (Some(1), Some(0)));
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a computation begins with `count` or `per_block`"]
pub struct Triangles {
    graph: Graph,
    kinds: Vec<String>,
}

impl Triangles {
    /// Follows only edges of these kinds. Default: every kind.
    pub fn kinds<N: Into<String>>(mut self, kinds: impl IntoIterator<Item = N>) -> Triangles {
        self.kinds.extend(kinds.into_iter().map(Into::into));
        self
    }

    /// Counts the triangles of the graph.
    ///
    /// # Errors
    /// `UnknownKind`, `Canceled`, `InvalidRecord`, `Storage`.
    pub fn count(self) -> Result<u64> {
        let per_block = self.per_block()?;
        // Each is counted at its three corners.
        Ok(per_block.iter().map(|(_, count)| count).sum::<u64>() / 3)
    }

    /// Counts the triangles of which each block is a corner.
    ///
    /// # Errors
    /// `UnknownKind`, `Canceled`, `InvalidRecord`, `Storage`.
    pub fn per_block(self) -> Result<BlockValues<u64>> {
        let view = self.graph.dense(&self.graph.filter(&self.kinds)?)?;
        let counts = triangles_per_vertex(&view, &self.graph.cancel)?;
        Ok(BlockValues::new(view.into_ids(), counts))
    }
}

/// The settings of a computation of the numbers of edges from one block to every other. Made by
/// [`Graph::distances_from`].
///
/// ```
/// use bowline::{Block, BlockId, Db, Direction, Edge};
///
/// # let db = Db::in_memory()?;
/// db.transact(|tx| {
///     (1..=4).try_for_each(|id| tx.put_block(&Block::new(BlockId(id), "host")))?;
///     [(1, 3), (3, 2)]
///         .into_iter()
///         .try_for_each(|(a, b)| tx.put_edge(&Edge::new(BlockId(a), "link", BlockId(b))))
/// })?;
/// let graph = db.snapshot().graph();
/// let distances = graph.distances_from(BlockId(1)).run()?;
/// // Block 4 cannot be reached.
/// assert!(distances.iter().eq([(BlockId(1), 0), (BlockId(2), 2), (BlockId(3), 1)]));
/// let to_2 = graph.distances_from(BlockId(2)).direction(Direction::In).kinds(["link"]).run()?;
/// assert_eq!(to_2.get(BlockId(1)), Some(2));
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a computation begins with `run`"]
pub struct Distances {
    graph: Graph,
    start: BlockId,
    direction: Direction,
    kinds: Vec<String>,
}

impl Distances {
    /// Which way edges are followed. Default: `Out`.
    pub fn direction(mut self, direction: Direction) -> Distances {
        self.direction = direction;
        self
    }

    /// Follows only edges of these kinds. Default: every kind.
    pub fn kinds<N: Into<String>>(mut self, kinds: impl IntoIterator<Item = N>) -> Distances {
        self.kinds.extend(kinds.into_iter().map(Into::into));
        self
    }

    /// Computes the distance of each block that can be reached, the start with 0 among them.
    ///
    /// # Errors
    /// `MissingBlock` for the start; `UnknownKind`, `Canceled`, `InvalidRecord`, `Storage`.
    pub fn run(self) -> Result<BlockValues<u32>> {
        let view = self.graph.dense(&self.graph.filter(&self.kinds)?)?;
        let start = view.require_number(self.start)?;
        let found = distances(&view, start, self.direction, &self.graph.cancel)?;
        let all = BlockValues::new(view.into_ids(), found);
        Ok(all.retain(|distance| distance != UNREACHED))
    }
}

/// The settings of a computation of the smallest sums of an edge attribute from one block to every other. Made by
/// [`Graph::weighted_distances_from`].
///
/// ```
/// use bowline::{Block, BlockId, Db, Direction, Edge, Error};
///
/// # let db = Db::in_memory()?;
/// db.transact(|tx| {
///     (1..=3).try_for_each(|id| tx.put_block(&Block::new(BlockId(id), "town")))?;
///     tx.put_edge(&Edge::new(BlockId(1), "road", BlockId(3)).attribute("km", "7.5"))?;
///     tx.put_edge(&Edge::new(BlockId(1), "road", BlockId(2)).attribute("km", "2"))?;
///     tx.put_edge(&Edge::new(BlockId(2), "path", BlockId(3)))
/// })?;
/// let graph = db.snapshot().graph();
/// let search = graph.weighted_distances_from(BlockId(1), "km");
/// // A path has no length: that is an error, unless a length is given.
/// assert!(matches!(search.clone().run(), Err(Error::InvalidWeight { from: BlockId(2), .. })));
/// let distances = search.default_weight(1.0).run()?;
/// assert_eq!(distances.get(BlockId(3)), Some(3.0));
/// let back = graph.weighted_distances_from(BlockId(3), "km").direction(Direction::In).kinds(["road"]);
/// assert_eq!(back.run()?.get(BlockId(1)), Some(7.5));
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a computation begins with `run`"]
pub struct WeightedDistances {
    graph: Graph,
    start: BlockId,
    direction: Direction,
    kinds: Vec<String>,
    attribute: String,
    default_weight: Option<f64>,
}

impl WeightedDistances {
    /// Which way edges are followed. Default: `Out`.
    pub fn direction(mut self, direction: Direction) -> WeightedDistances {
        self.direction = direction;
        self
    }

    /// Follows only edges of these kinds. Default: every kind.
    pub fn kinds<N: Into<String>>(
        mut self,
        kinds: impl IntoIterator<Item = N>,
    ) -> WeightedDistances {
        self.kinds.extend(kinds.into_iter().map(Into::into));
        self
    }

    /// What an edge without the attribute weighs: a finite number of at least 0. Default: such an edge is an error.
    pub fn default_weight(mut self, weight: f64) -> WeightedDistances {
        self.default_weight = Some(weight);
        self
    }

    /// Computes the distance of each block that can be reached, the start with 0 among them.
    ///
    /// # Errors
    /// `MissingBlock` for the start; `InvalidWeight` for an edge that leaves a reached block and whose attribute is no
    /// finite number of at least 0; `NotSupported` for a default weight that is none; `UnknownKind`, `Canceled`,
    /// `InvalidRecord`, `Storage`.
    pub fn run(self) -> Result<BlockValues<f64>> {
        check_weight(self.default_weight)?;
        let kinds = self.graph.filter(&self.kinds)?;
        let weight = Weight {
            attribute: &self.attribute,
            default: self.default_weight,
        };
        let (graph, start, direction) = (&self.graph, self.start, self.direction);
        let (view, found) =
            weighted_distances_from(graph, start, direction, &kinds, weight, &graph.cancel)?;
        let all = BlockValues::new(view.into_ids(), found);
        Ok(all.retain(f64::is_finite))
    }
}
