//! The results of graph queries.
//!
//! Where an answer names kinds, its type has a parameter `K`: users see names (`Arc<str>`), and the algorithms work
//! on the numbers that stand for them, which are resolved once an answer is complete (`try_map_kinds`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{BlockId, Direction};

/// A block next to another.
///
/// ```
/// use bowline_types::{Direction, Neighbor};
///
/// fn show(neighbor: &Neighbor) -> String {
///     let Neighbor { id, kind, direction } = neighbor;
///     match direction {
///         Direction::In => format!("<-{kind}- {id}"),
///         _ => format!("-{kind}-> {id}"),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbor {
    /// The other block.
    pub id: BlockId,
    /// The kind of the edge between them.
    pub kind: Arc<str>,
    /// `Out` when the edge goes to the neighbor, `In` when it comes from it.
    pub direction: Direction,
}

/// One visited block of a traversal.
///
/// ```
/// use bowline_types::{BlockId, Visit};
///
/// /// The way from the start to a block, backwards.
/// fn way(visits: &[Visit], to: BlockId) -> Vec<BlockId> {
///     let parent = |id: &BlockId| visits.iter().find(|visit| visit.id == *id)?.parent;
///     std::iter::successors(Some(to), parent).collect()
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visit<K = Arc<str>> {
    /// The block.
    pub id: BlockId,
    /// How many edges lie between the block and the start, along the parents.
    pub depth: u32,
    /// The block that this one was reached from, which was visited earlier; `None` for a start.
    pub parent: Option<BlockId>,
    /// The kind of the edge from or to the parent; `None` for a start.
    pub kind: Option<K>,
}

/// The result of a traversal.
///
/// ```
/// use bowline_types::{Stop, Traversal};
///
/// fn show(found: &Traversal) {
///     for visit in &found.visits {
///         println!("{}{}", "  ".repeat(visit.depth as usize), visit.id);
///     }
///     if found.stop != Stop::Exhausted {
///         println!("and more: {:?} after {} edges", found.stop, found.edges_touched);
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traversal<K = Arc<str>> {
    /// The blocks in the order in which they were visited, each once.
    pub visits: Vec<Visit<K>>,
    /// Which bound ended the traversal.
    pub stop: Stop,
    /// How many ends of edges were read, those beyond a bound included.
    pub edges_touched: u64,
}

/// Which bound ended a traversal.
///
/// ```
/// use bowline_types::Stop;
///
/// /// Whether a larger bound would give more blocks.
/// fn is_cut(stop: Stop) -> bool {
///     match stop {
///         Stop::Exhausted => false,
///         Stop::MaxDepth | Stop::Limit | Stop::MaxBytes | Stop::LimitOfServer => true,
///         Stop::MaxNeighbors => true,
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stop {
    /// None: everything reachable was visited.
    Exhausted,
    /// Everything within `max_depth` was visited, and there is more beyond.
    MaxDepth,
    /// `limit` blocks were visited, and there are more within `max_depth`.
    Limit,
    /// The record of the next block would have gone over `max_bytes`.
    MaxBytes,
    /// Everything within the other bounds was visited, and a block has more neighbors than `max_neighbors`, which were
    /// left out.
    MaxNeighbors,
    /// As many blocks as a server allows were visited, and there are more. Only a server's answer says this.
    LimitOfServer,
}

/// A path between two blocks.
///
/// ```
/// use bowline_types::{BlockId, Path};
///
/// fn show(path: &Path) -> String {
///     let mut text = path.blocks[0].to_string();
///     for (kind, block) in path.kinds.iter().zip(&path.blocks[1..]) {
///         text.push_str(&format!(" -{kind}-> {block}"));
///     }
///     text
/// }
///
/// let kinds = vec!["link".into()];
/// let path = Path { blocks: vec![BlockId(1), BlockId(2)], kinds, cost: 3.0 };
/// assert!(show(&path).contains(" -link-> "));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Path<K = Arc<str>> {
    /// The blocks, both ends included; one block for the path from a block to itself.
    pub blocks: Vec<BlockId>,
    /// The kinds of the edges: `kinds[i]` ties `blocks[i]` to `blocks[i + 1]`.
    pub kinds: Vec<K>,
    /// The number of edges, or the sum of their weights.
    pub cost: f64,
}

/// Figures about a graph.
///
/// ```
/// use bowline_types::GraphStats;
///
/// fn show(stats: &GraphStats) {
///     println!("{} blocks, {} edges", stats.blocks, stats.edges);
///     for (kind, count) in &stats.edges_by_kind {
///         println!("{count} {kind}");
///     }
///     println!("{:.2} edges at a block, {} triangles", stats.degree_mean, stats.triangles);
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GraphStats<K: Ord = String> {
    /// The number of blocks.
    pub blocks: u64,
    /// The number of edges.
    pub edges: u64,
    /// The number of blocks of each kind. A block of several kinds is one of each.
    pub blocks_by_kind: BTreeMap<K, u64>,
    /// The number of edges of each kind.
    pub edges_by_kind: BTreeMap<K, u64>,
    /// The number of edges from a block to itself.
    pub self_loops: u64,
    /// The most edges that leave one block.
    pub out_degree_max: u64,
    /// The most edges that arrive at one block.
    pub in_degree_max: u64,
    /// The number of edges that leave or arrive at a block, on average.
    pub degree_mean: f64,
    /// The number of strongly connected components.
    pub strong_components: u64,
    /// The number of weakly connected components.
    pub weak_components: u64,
    /// The number of triples of blocks of which each two are tied, directions ignored.
    pub triangles: u64,
    /// The mean clustering coefficient of all blocks, directions ignored: of a block, the share of pairs of its
    /// neighbors that are tied to each other; 0 for fewer than two neighbors.
    pub average_clustering: f64,
    /// The memory of the view from which this was computed.
    pub view_memory_bytes: u64,
}

impl<K> Traversal<K> {
    /// Resolves the kinds: for the library, whose algorithms work on their numbers.
    ///
    /// # Errors
    /// The first error of `resolve`.
    #[doc(hidden)]
    pub fn try_map_kinds<L, E>(
        self,
        mut resolve: impl FnMut(K) -> Result<L, E>,
    ) -> Result<Traversal<L>, E> {
        // Not collected: into a result, that would not reserve the memory at once.
        let mut visits = Vec::with_capacity(self.visits.len());
        for visit in self.visits {
            visits.push(Visit {
                id: visit.id,
                depth: visit.depth,
                parent: visit.parent,
                kind: visit.kind.map(&mut resolve).transpose()?,
            });
        }
        Ok(Traversal {
            visits,
            stop: self.stop,
            edges_touched: self.edges_touched,
        })
    }
}

impl<K> Path<K> {
    /// The path from a block to itself.
    #[doc(hidden)]
    #[must_use]
    pub fn trivial(id: BlockId) -> Path<K> {
        Path {
            blocks: vec![id],
            kinds: Vec::new(),
            cost: 0.0,
        }
    }

    /// Resolves the kinds: for the library, whose algorithms work on their numbers.
    ///
    /// # Errors
    /// The first error of `resolve`.
    #[doc(hidden)]
    pub fn try_map_kinds<L, E>(self, resolve: impl FnMut(K) -> Result<L, E>) -> Result<Path<L>, E> {
        Ok(Path {
            blocks: self.blocks,
            kinds: self
                .kinds
                .into_iter()
                .map(resolve)
                .collect::<Result<_, E>>()?,
            cost: self.cost,
        })
    }
}

impl<K: Ord> GraphStats<K> {
    /// Resolves the kinds: for the library, whose algorithms work on their numbers.
    ///
    /// # Errors
    /// The first error of `resolve`.
    #[doc(hidden)]
    pub fn try_map_kinds<L: Ord, E>(
        self,
        mut resolve: impl FnMut(K) -> Result<L, E>,
    ) -> Result<GraphStats<L>, E> {
        let mut all = |counts: BTreeMap<K, u64>| {
            let resolved = counts
                .into_iter()
                .map(|(kind, count)| Ok((resolve(kind)?, count)));
            resolved.collect::<Result<BTreeMap<L, u64>, E>>()
        };
        Ok(GraphStats {
            blocks: self.blocks,
            edges: self.edges,
            blocks_by_kind: all(self.blocks_by_kind)?,
            edges_by_kind: all(self.edges_by_kind)?,
            self_loops: self.self_loops,
            out_degree_max: self.out_degree_max,
            in_degree_max: self.in_degree_max,
            degree_mean: self.degree_mean,
            strong_components: self.strong_components,
            weak_components: self.weak_components,
            triangles: self.triangles,
            average_clustering: self.average_clustering,
            view_memory_bytes: self.view_memory_bytes,
        })
    }
}
