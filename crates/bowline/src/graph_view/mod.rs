//! Graph queries at one revision, with kinds by name.
//!
//! Walks read the graph view where it has the snapshot's revision, and the trees elsewhere, where the neighbors of a
//! block are one short range of keys, as each edge is stored under both of its ends. The algorithms are in
//! [`bowline_core::graph`]; they know neither views nor trees.

mod algorithms;
pub(crate) mod indexed;
mod many;
mod paths;
pub(crate) mod queried;
mod reader;
mod records;
mod sample;
mod search;
mod source;
mod traversed;
mod values;

use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, OnceLock};

use bowline_storage::engine::ScanDirection;
use bowline_storage::{EntryKind, TreeId};

use crate::snapshot::Snapshot;
use bowline_core::error::{Error, Result};
use bowline_core::graph::cancel::Cancel;
use bowline_core::graph::csr::State;
use bowline_core::graph::path::unweighted;
use bowline_core::graph::view::DenseView;
use bowline_core::graph::walk::InView;
use bowline_core::graph::{
    self, Block, BlockId, BlockRef, Direction, Edge, EdgeRef, KindFilter, KindId, Precedence,
    algorithms::weak_components, components, order, reach, stats,
};
use bowline_core::index::IndexSet;
use bowline_core::kinds::KindNames;
use bowline_core::state::Core;
use bowline_core::trees;
use bowline_types::{GraphStats, Neighbor, Path};
use smallvec::SmallVec;

pub use algorithms::{
    ClusteringCoefficients, Communities, Distances, PageRank, Triangles, WeightedDistances,
};
pub use indexed::{Blocks, Filter};
pub use paths::{KHop, PathIter, SimplePaths};
use reader::Sources;
pub(crate) use records::{PathOfEdges, block_of, edge_of};
use records::{invalid, kind_name, split};
pub(crate) use records::{lend_block, lend_edge, unregistered};
pub use search::{ShortestPath, Traverse};
pub use traversed::{Traversed, VisitRef};
pub use values::{BlockLabels, BlockValues};

/// A neighbor that [`Graph::visit_neighbors`] lends.
///
/// ```
/// fn show(neighbor: bowline::NeighborRef<'_>) -> String {
///     format!("{:?} over {} to {}", neighbor.direction, neighbor.kind, neighbor.id)
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeighborRef<'a> {
    /// The other block.
    pub id: BlockId,
    /// The kind of the edge between them.
    pub kind: &'a str,
    /// `Out` when the edge goes to the neighbor, `In` when it comes from it.
    pub direction: Direction,
}

/// So many neighbors of a block are gathered without an allocation.
const FEW: usize = 16;

/// The graph at the revision of a snapshot. Made by [`Snapshot::graph`].
///
/// ```
/// use bowline::{Block, BlockId, Direction, Edge};
/// # let db = bowline::Db::in_memory()?;
/// let (app, lib) = (BlockId::from_name("app"), BlockId::from_name("lib"));
/// db.transact(|tx| {
///     tx.put_block(&Block::new(app, "package"))?;
///     tx.put_block(&Block::new(lib, "package"))?;
///     tx.put_edge(&Edge::new(app, "depends_on", lib))
/// })?;
/// let graph = db.snapshot().graph();
/// let users: Vec<_> = graph.neighbors(lib, Direction::In, ["depends_on"])?;
/// assert_eq!(users[0].id, app);
///
/// // Single blocks and edges.
/// assert_eq!(graph.revision(), db.revision());
/// assert!(graph.has_block(app)? && graph.block(app)?.is_some());
/// assert!(graph.edge(app, "depends_on", lib)?.is_some());
/// let attributes = graph.visit_edge(app, "depends_on", lib, |edge| edge.attributes.iter().count())?;
/// assert_eq!(attributes, Some(0));
///
/// // At most one neighbor, and paths. No kinds means every kind.
/// let no_kinds: [&str; 0] = [];
/// assert_eq!(graph.first_neighbors(app, Direction::Both, no_kinds, 1)?[0].id, lib);
/// assert!(graph.is_reachable(app, lib, Direction::Out, no_kinds)?);
/// assert_eq!(graph.shortest_path(app, lib).find()?.expect("a path").blocks.len(), 2);
/// assert_eq!(graph.traverse(app).max_depth(3).run()?.len(), 2);
///
/// // The whole graph.
/// let order = graph.topological_order(["depends_on"], bowline::Precedence::TargetFirst)?;
/// assert_eq!(order, [lib, app]);
/// assert_eq!(graph.strongly_connected_components(no_kinds)?.len(), 2);
/// assert_eq!(graph.weakly_connected_components(no_kinds)?.len(), 1);
/// assert_eq!(graph.stats(no_kinds)?.edges, 1);
/// graph.for_each_block(|block| Ok(println!("{} {}", block.kinds, block.id)))?;
/// assert_eq!(graph.page_rank().run()?.len(), 2);
/// assert_eq!(graph.communities().run()?.len(), 2);
/// assert_eq!(graph.clustering_coefficients().run()?.get(app), Some(0.0));
/// assert_eq!(graph.distances_from(app).run()?.get(lib), Some(1));
/// assert_eq!(graph.triangles().count()?, 0);
/// assert_eq!(graph.k_hop(app, 1).run()?.len(), 1);
/// assert_eq!(graph.simple_paths(app, lib).find()?.count(), 1);
/// graph.for_each_edge(|edge| Ok(println!("{} -> {}", edge.source, edge.target)))?;
/// graph.for_each_edge_of(["depends_on"], |edge| Ok(assert_eq!(edge.target, lib)))?;
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Graph {
    snapshot: Snapshot,
    /// The view of this revision, once it has answered.
    view: OnceLock<Arc<State>>,
    /// The names of kinds, at the first question that needs them. A kind has its name before an edge of it is
    /// visible, and keeps it, so no edge of this revision has a kind that is missing here.
    names: OnceLock<KindNames>,
    cancel: Cancel,
    /// Of the blocks and of the edges, at the first query that needs them.
    samples: [OnceLock<sample::Sample>; 2],
    /// Those that answer at this revision, at the first question that may need one.
    indexes: OnceLock<Arc<IndexSet>>,
}

impl Snapshot {
    /// The graph at this revision.
    #[must_use]
    pub fn graph(&self) -> Graph {
        Graph::new(self.clone())
    }
}

impl Graph {
    pub(crate) fn new(snapshot: Snapshot) -> Graph {
        Graph {
            snapshot,
            cancel: Cancel::never(),
            view: OnceLock::new(),
            names: OnceLock::new(),
            samples: Default::default(),
            indexes: OnceLock::new(),
        }
    }

    /// The view of this revision. Without one, the trees are read.
    fn view(&self) -> Option<&Arc<State>> {
        if self.view.get().is_none() {
            let found = self.core().graph_view.at(self.snapshot.revision().get())?;
            if found.is_fold_due() {
                self.snapshot.handle().fold_view();
            }
            let _ = self.view.set(found);
        }
        self.view.get()
    }

    fn names(&self) -> &KindNames {
        self.names.get_or_init(|| self.core().kinds.names())
    }

    /// The view of this revision, for walks.
    fn in_view(&self) -> Option<(InView<'_, Graph>, &Arc<State>)> {
        let state = self.view()?;
        let view = InView {
            state,
            revision: self.snapshot.revision().get(),
            trees: self,
        };
        Some((view, state))
    }

    /// All blocks and the edges of some kinds.
    fn dense(&self, kinds: &KindFilter) -> Result<DenseView<'_>> {
        let at = self.snapshot.revision().get();
        match self.view() {
            Some(state) => {
                let has_all_blocks = self.core().graph_view.has_all_blocks(state);
                DenseView::in_view(self, state, at, kinds, has_all_blocks)
            }
            None => DenseView::build(self, kinds, false),
        }
    }

    /// The ordinals of blocks, which must exist. `None` when the view does not know one: it has no edge, and a
    /// walk by ids costs nothing.
    fn ordinals(&self, view: &InView<'_, Graph>, ids: &[BlockId]) -> Result<Option<Vec<u32>>> {
        let mut found = Vec::with_capacity(ids.len());
        for &id in ids {
            let Some(ordinal) = view.state.ordinal(id) else {
                return Ok(None);
            };
            if !has_edge(view, ordinal) {
                self.require_blocks(&[id])?;
            }
            found.push(ordinal);
        }
        Ok(Some(found))
    }

    fn require_blocks(&self, ids: &[BlockId]) -> Result<()> {
        // The view answers at once if it has all blocks, and no other one.
        let all = self.view.get();
        let all = all.filter(|state| self.core().graph_view.has_all_blocks(state));
        const TOGETHER: usize = 64;
        for ids in ids.chunks(TOGETHER) {
            if all.is_none() {
                self.core()
                    .engine
                    .look_ahead(trees::BLOCK, ids.iter().map(|&id| graph::block_key(id)));
            }
            for &id in ids {
                let exists = match all {
                    Some(state) => state.ordinal(id).is_some(),
                    None => self.has_block(id)?,
                };
                if !exists {
                    return Err(Error::MissingBlock { id });
                }
            }
        }
        Ok(())
    }

    /// A path with the fewest edges.
    fn fewest_edges(
        &self,
        from: BlockId,
        to: BlockId,
        direction: Direction,
        kinds: &KindFilter,
        max_depth: Option<u32>,
    ) -> Result<Option<Path<KindId>>> {
        if let Some((view, _)) = self.in_view()
            && let Some(ends) = self.ordinals(&view, &[from, to])?
        {
            return unweighted::walk(&view, ends[0], ends[1], direction, kinds, max_depth);
        }
        let sources = Sources::of(self)?;
        unweighted::shortest_path(&sources.reader(self), from, to, direction, kinds, max_depth)
    }

    fn core(&self) -> &Core {
        self.snapshot.handle()
    }

    fn filter<N: AsRef<str>>(&self, kinds: impl IntoIterator<Item = N>) -> Result<KindFilter> {
        // Every question passes here first: one that is canceled ends, also where the graph is empty.
        self.cancel.check()?;
        self.core().kinds.filter(kinds)
    }

    fn kind_name(&self, id: KindId) -> Result<Arc<str>> {
        kind_name(&self.core().kinds, id)
    }

    /// The same graph, in which traversals, searches and algorithms end soon after `cancel` is set. They fail with
    /// [`Error::Canceled`].
    ///
    /// ```
    /// # use bowline::{BlockId, Cancel, Db, Error};
    /// # let db = Db::in_memory()?;
    /// let cancel = Cancel::new();
    /// let graph = db.snapshot().graph().cancelable(&cancel);
    /// cancel.cancel();
    /// assert!(matches!(graph.page_rank().run(), Err(Error::Canceled)));
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn cancelable(&self, cancel: &Cancel) -> Graph {
        Graph {
            snapshot: self.snapshot.clone(),
            cancel: cancel.clone(),
            view: self.view.clone(),
            names: self.names.clone(),
            samples: self.samples.clone(),
            indexes: self.indexes.clone(),
        }
    }

    /// The revision of its snapshot.
    #[must_use]
    pub fn revision(&self) -> crate::Revision {
        self.snapshot.revision()
    }

    fn raw<R>(&self, tree: TreeId, key: &[u8], read: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let engine = &self.core().engine;
        Ok(
            engine.read_at(tree, key, self.snapshot.revision().get(), |found| {
                let put = found.as_ref().filter(|found| found.kind == EntryKind::Put);
                read(put.map(bowline_storage::engine::Found::bytes))
            })?,
        )
    }

    /// Reads a block.
    ///
    /// ```
    /// # use bowline::{Block, BlockId};
    /// # let db = bowline::Db::in_memory()?;
    /// # let id = BlockId::from_name("x");
    /// db.transact(|tx| tx.put_block(&Block::new(id, "package")))?;
    /// assert_eq!(db.snapshot().graph().block(id)?.expect("a block").kinds, "package");
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidRecord`, `Storage`.
    pub fn block(&self, id: BlockId) -> Result<Option<Block>> {
        self.raw(trees::BLOCK, &graph::block_key(id), |bytes| {
            bytes
                .map(|bytes| block_of(&self.core().kinds, id, bytes))
                .transpose()
        })?
    }

    /// Calls `visit` with a borrowed block and returns its result, or `None` when the block does not exist.
    /// Nothing is copied, except for a large block in a blob file.
    ///
    /// `visit` should be short: while it runs, the memtable or table that it reads cannot be freed, and
    /// other reads within it are somewhat slower.
    ///
    /// ```
    /// use bowline::{Block, BlockId, Db};
    ///
    /// # fn main() -> bowline::Result<()> {
    /// let db = Db::in_memory()?;
    /// let id = BlockId::from_name("svc/billing");
    /// db.transact(|tx| tx.put_block(&Block::new(id, "service").attribute("tier", "1")))?;
    /// let graph = db.snapshot().graph();
    /// let tier = graph.visit_block(id, |block| block.attributes.text("tier").map(str::to_owned))?;
    /// assert_eq!(tier.flatten().as_deref(), Some("1"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidRecord`, `Storage`.
    pub fn visit_block<R>(
        &self,
        id: BlockId,
        visit: impl FnOnce(BlockRef<'_>) -> R,
    ) -> Result<Option<R>> {
        self.raw(trees::BLOCK, &graph::block_key(id), |bytes| {
            bytes
                .map(|bytes| lend_block(&self.core().kinds, id, bytes, visit))
                .transpose()
        })?
    }

    /// Whether a block exists.
    ///
    /// ```
    /// # use bowline::BlockId;
    /// # let id = BlockId::from_name("x");
    /// # let db = bowline::Db::in_memory()?;
    /// assert!(!db.snapshot().graph().has_block(id)?);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Storage`.
    pub fn has_block(&self, id: BlockId) -> Result<bool> {
        let (engine, at) = (&self.core().engine, self.snapshot.revision());
        let is_put = |found: Option<bowline_storage::engine::Found<'_>>| {
            found.is_some_and(|found| found.kind == EntryKind::Put)
        };
        Ok(engine.peek_at(trees::BLOCK, &graph::block_key(id), at.get(), is_put)?)
    }

    /// Reads an edge. `None` also when its kind was never used.
    ///
    /// # Errors
    /// `InvalidRecord`, `Storage`.
    pub fn edge(&self, source: BlockId, kind: &str, target: BlockId) -> Result<Option<Edge>> {
        let Some(kind_id) = self.core().kinds.id(kind) else {
            return Ok(None);
        };
        let key = graph::edge_out_key(source, kind_id, target);
        self.raw(trees::EDGE_OUT, &key, |bytes| {
            bytes
                .map(|bytes| edge_of(source, kind, target, &key, bytes))
                .transpose()
        })?
    }

    /// Calls `visit` with a borrowed edge, like [`Graph::visit_block`]. `None` also when its kind was never
    /// used.
    ///
    /// # Errors
    /// `InvalidRecord`, `Storage`.
    pub fn visit_edge<R>(
        &self,
        source: BlockId,
        kind: &str,
        target: BlockId,
        visit: impl FnOnce(EdgeRef<'_>) -> R,
    ) -> Result<Option<R>> {
        let Some(kind_id) = self.core().kinds.id(kind) else {
            return Ok(None);
        };
        let key = graph::edge_out_key(source, kind_id, target);
        self.raw(trees::EDGE_OUT, &key, |bytes| {
            bytes
                .map(|bytes| lend_edge(source, kind, target, &key, bytes).map(visit))
                .transpose()
        })?
    }

    /// The neighbors of a block, sorted by the edge's kind and the neighbor's id; for `Both`, the targets
    /// of its edges come before the sources. No kinds means every kind.
    ///
    /// # Errors
    /// `MissingBlock`; `UnknownKind` for a kind that was never used.
    pub fn neighbors<N: AsRef<str>>(
        &self,
        id: BlockId,
        direction: Direction,
        kinds: impl IntoIterator<Item = N>,
    ) -> Result<Vec<Neighbor>> {
        self.first_neighbors(id, direction, kinds, usize::MAX)
    }

    /// The first `limit` neighbors of [`Graph::neighbors`]; the others are not read.
    ///
    /// # Errors
    /// Those of [`Graph::neighbors`].
    pub fn first_neighbors<N: AsRef<str>>(
        &self,
        id: BlockId,
        direction: Direction,
        kinds: impl IntoIterator<Item = N>,
        limit: usize,
    ) -> Result<Vec<Neighbor>> {
        let filter = self.filter(kinds)?;
        let mut found = SmallVec::<[graph::NeighborRef; FEW]>::new();
        if limit > 0 {
            let sources = Sources::of(self)?;
            sources
                .reader(self)
                .visit_neighbors(id, direction, &filter, |neighbor| {
                    found.push(neighbor);
                    found.len() < limit
                })?;
        }
        if found.is_empty() {
            // A block with an edge exists.
            self.require_blocks(&[id])?;
        }
        let names = self.names();
        // Not collected: into a result, that would not reserve the memory at once.
        let mut named = Vec::with_capacity(found.len());
        for found in &found {
            let kind = names.name(found.kind);
            named.push(Neighbor {
                id: found.id,
                kind: kind.ok_or_else(|| unregistered(found.kind))?.clone(),
                direction: found.direction,
            });
        }
        Ok(named)
    }

    /// Calls `visit` with each neighbor of [`Graph::neighbors`], in the same order, borrowed: nothing is copied or
    /// allocated where the graph view answers.
    ///
    /// ```
    /// # use bowline::{Block, BlockId, Direction, Edge};
    /// # let db = bowline::Db::in_memory()?;
    /// # let (a, b) = (BlockId::from_name("a"), BlockId::from_name("b"));
    /// # db.transact(|tx| {
    /// #     tx.put_block(&Block::new(a, "host"))?;
    /// #     tx.put_block(&Block::new(b, "host"))?;
    /// #     tx.put_edge(&Edge::new(a, "link", b))
    /// # })?;
    /// let mut links = 0;
    /// db.snapshot().graph().visit_neighbors(a, Direction::Both, ["link"], |neighbor| {
    ///     assert_eq!((neighbor.id, neighbor.kind, neighbor.direction), (b, "link", Direction::Out));
    ///     links += 1;
    /// })?;
    /// assert_eq!(links, 1);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Graph::neighbors`].
    pub fn visit_neighbors<N: AsRef<str>>(
        &self,
        id: BlockId,
        direction: Direction,
        kinds: impl IntoIterator<Item = N>,
        mut visit: impl FnMut(NeighborRef<'_>),
    ) -> Result<()> {
        let filter = self.filter(kinds)?;
        let names = self.names();
        let mut count = 0;
        // Neighbors are sorted by kind: a name is looked up once for all of one kind.
        let (mut last, mut name) = (None, "");
        let mut lend = |far, kind, direction| {
            if last != Some(kind) {
                let Some(found) = names.name(kind) else {
                    return ControlFlow::Break(kind);
                };
                (last, name) = (Some(kind), &**found);
            }
            count += 1;
            visit(NeighborRef {
                id: far,
                kind: name,
                direction,
            });
            ControlFlow::Continue(())
        };
        let ended = match self.view() {
            Some(view) => match view.ordinal(id) {
                None => ControlFlow::Continue(()),
                Some(near) => {
                    let at = self.snapshot.revision().get();
                    view.visit(near, direction, at, &filter, |far, kind, direction| {
                        lend(view.id(far), kind, direction)
                    })
                }
            },
            None => {
                let sources = Sources::of(self)?;
                let mut ended = ControlFlow::Continue(());
                sources
                    .reader(self)
                    .visit_neighbors(id, direction, &filter, |near| {
                        ended = lend(near.id, near.kind, near.direction);
                        ended.is_continue()
                    })?;
                ended
            }
        };
        if let ControlFlow::Break(kind) = ended {
            return Err(unregistered(kind));
        }
        if count == 0 {
            // A block with an edge exists.
            self.require_blocks(&[id])?;
        }
        Ok(())
    }

    /// Describes a traversal from `start`; [`Traverse::run`] runs it.
    pub fn traverse(&self, start: BlockId) -> Traverse {
        Traverse::new(self.clone(), start)
    }

    /// Whether a path leads from `from` to `to`.
    ///
    /// # Errors
    /// `MissingBlock` for either end, `UnknownKind`.
    pub fn is_reachable<N: AsRef<str>>(
        &self,
        from: BlockId,
        to: BlockId,
        direction: Direction,
        kinds: impl IntoIterator<Item = N>,
    ) -> Result<bool> {
        let kinds = self.filter(kinds)?;
        if let Some((view, _)) = self.in_view()
            && let Some(ends) = self.ordinals(&view, &[from, to])?
        {
            return reach::reaches(&view, ends[0], ends[1], direction, &kinds);
        }
        let sources = Sources::of(self)?;
        reach::reachable(&sources.reader(self), from, to, direction, &kinds)
    }

    /// Describes the search for a shortest path from `from` to `to`; [`ShortestPath::find`] runs it.
    pub fn shortest_path(&self, from: BlockId, to: BlockId) -> ShortestPath {
        ShortestPath::new(self.clone(), from, to)
    }

    /// All blocks in topological order: with `SourceFirst`, the source of each edge comes before its target,
    /// with `TargetFirst` after it. Among several orders it returns the one with the smallest ids first.
    ///
    /// # Errors
    /// `Cycle` with the blocks of one cycle; `UnknownKind`.
    pub fn topological_order<N: AsRef<str>>(
        &self,
        kinds: impl IntoIterator<Item = N>,
        precedence: Precedence,
    ) -> Result<Vec<BlockId>> {
        let view = self.dense(&self.filter(kinds)?)?;
        order::topological_order(&view, precedence, &self.cancel)
    }

    /// The strongly connected components: maximal sets of blocks that can all reach each other. Each
    /// component is sorted, and the components are sorted by their first block.
    ///
    /// # Errors
    /// `UnknownKind`.
    pub fn strongly_connected_components<N: AsRef<str>>(
        &self,
        kinds: impl IntoIterator<Item = N>,
    ) -> Result<Vec<Vec<BlockId>>> {
        let view = self.dense(&self.filter(kinds)?)?;
        components::strong_components(&view, &self.cancel)
    }

    /// The weakly connected components: maximal sets of blocks that are connected when the direction of
    /// edges is ignored. Sorted like [`Graph::strongly_connected_components`].
    ///
    /// # Errors
    /// `UnknownKind`.
    pub fn weakly_connected_components<N: AsRef<str>>(
        &self,
        kinds: impl IntoIterator<Item = N>,
    ) -> Result<Vec<Vec<BlockId>>> {
        let view = self.dense(&self.filter(kinds)?)?;
        components::weak_components(&view, &self.cancel)
    }

    /// For each block the smallest id of its weakly connected component, in the order of ids. It is the same division
    /// as [`Graph::weakly_connected_components`], in 20 bytes per block.
    ///
    /// ```
    /// # use bowline::{Block, BlockId, Edge};
    /// # let db = bowline::Db::in_memory()?;
    /// # db.transact(|tx| {
    /// #     (1..=3).try_for_each(|id| tx.put_block(&Block::new(BlockId(id), "host")))?;
    /// #     tx.put_edge(&Edge::new(BlockId(3), "link", BlockId(1)))
    /// # })?;
    /// // 3 -> 1, and 2 alone.
    /// let labels = db.snapshot().graph().weak_component_labels(["link"])?;
    /// let labels: Vec<_> = labels.iter().map(|(id, label)| (id.0, label.0)).collect();
    /// assert_eq!(labels, [(1, 1), (2, 2), (3, 1)]);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `UnknownKind`, `Canceled`.
    pub fn weak_component_labels<N: AsRef<str>>(
        &self,
        kinds: impl IntoIterator<Item = N>,
    ) -> Result<BlockLabels> {
        let view = self.dense(&self.filter(kinds)?)?;
        let labels = weak_components::weak_labels(&view, &self.cancel)?;
        Ok(BlockLabels::new(view.into_ids(), labels))
    }

    /// Statistics: counts, degrees, components, triangles. Reads the whole graph.
    ///
    /// # Errors
    /// `UnknownKind`.
    pub fn stats<N: AsRef<str>>(&self, kinds: impl IntoIterator<Item = N>) -> Result<GraphStats> {
        let kinds = self.filter(kinds)?;
        let at = self.snapshot.revision().get();
        let (view, counts) = match self.view() {
            Some(state) => DenseView::counted_in_view(self, state, at, &kinds)?,
            None => DenseView::build_counted(self, &kinds, false)?,
        };
        view.incoming_or_transposed();
        let name = |kind| Ok(self.kind_name(kind)?.to_string());
        stats::graph_stats(&view, counts, &self.cancel)?.try_map_kinds(name)
    }

    /// Visits every block in order of ids.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let mut kinds = std::collections::BTreeMap::new();
    /// db.snapshot().graph().for_each_block(|block| {
    ///     *kinds.entry(block.kinds).or_insert(0) += 1;
    ///     Ok(())
    /// })?;
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error of `visit`; `InvalidRecord`, `Storage`.
    pub fn for_each_block(&self, mut visit: impl FnMut(Block) -> Result<()>) -> Result<()> {
        self.scan(trees::BLOCK, |key, bytes| {
            let id = key.try_into().map(BlockId::from_bytes);
            let id = id.map_err(|_| invalid("block", key, "its key is not 16 bytes"))?;
            visit(block_of(&self.core().kinds, id, bytes)?)
        })
    }

    /// Visits every edge in order of source, kind and target.
    ///
    /// # Errors
    /// The first error of `visit`; `InvalidRecord`, `Storage`.
    pub fn for_each_edge(&self, mut visit: impl FnMut(Edge) -> Result<()>) -> Result<()> {
        self.scan(trees::EDGE_OUT, |key, bytes| {
            let (source, kind, target) = split(key)?;
            visit(edge_of(source, &self.kind_name(kind)?, target, key, bytes)?)
        })
    }

    /// Visits the edges of the given kinds like [`Graph::for_each_edge`]. No kinds means every kind.
    ///
    /// # Errors
    /// `UnknownKind`; those of [`Graph::for_each_edge`].
    pub fn for_each_edge_of<N: AsRef<str>>(
        &self,
        kinds: impl IntoIterator<Item = N>,
        mut visit: impl FnMut(Edge) -> Result<()>,
    ) -> Result<()> {
        let filter = self.filter(kinds)?;
        self.scan(trees::EDGE_OUT, |key, bytes| {
            let (source, kind, target) = split(key)?;
            if !filter.passes(kind) {
                return Ok(());
            }
            visit(edge_of(source, &self.kind_name(kind)?, target, key, bytes)?)
        })
    }

    /// Visits the records of a tree.
    fn scan(&self, tree: TreeId, mut visit: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        self.scan_while(tree, |key, bytes| visit(key, bytes).map(|()| true))
    }

    /// Visits the records of a tree until `visit` returns false.
    fn scan_while(
        &self,
        tree: TreeId,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let engine = &self.core().engine;
        let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
        let at = self.snapshot.revision();
        let mut scan = engine.scan(tree, lower, upper, at.get(), ScanDirection::Forward);
        let mut read = 0_usize;
        while scan.advance()? {
            // Also where nothing passes a filter.
            if read.is_multiple_of(64) {
                self.cancel.check()?;
            }
            read += 1;
            if !visit(scan.key(), scan.bytes())? {
                break;
            }
        }
        Ok(())
    }
}

/// Whether a block has an edge at the revision of a view.
fn has_edge(view: &InView<'_, Graph>, ordinal: u32) -> bool {
    let any = |_, _, _| ControlFlow::Break(());
    let (direction, all) = (Direction::Both, KindFilter::All);
    let found = view
        .state
        .visit(ordinal, direction, view.revision, &all, any);
    found.is_break()
}
