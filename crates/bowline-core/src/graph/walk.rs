//! [`Walk`]: the interface of a graph to the algorithms that start at a block: nodes, and their neighbors.
//!
//! Each algorithm is generic over two kinds of graph:
//!
//! | graph | node | marks and places |
//! |---|---|---|
//! | [`ByIds`]: a [`GraphSource`], read from the trees | a block's id | hash set and map |
//! | [`InView`]: a [`State`] of the view at a revision | an ordinal | a bit, or four bytes, of each ordinal |
//!
//! Invariant: both give the neighbors in the same order, so every answer is the same.
//!
//! The marks and places of ordinals are taken from a pool of the thread and undone entry by entry: a walk that
//! visits few blocks of a large graph costs what it visits.

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::mem::take;
use std::ops::ControlFlow;

use super::csr::{Part, PlainKinds, PlainRows, State};
use super::kind_id::KindId;
use super::source::{GraphSource, KindFilter};
use super::visits::{VisitEntry, Visited};
use crate::Result;
use bowline_types::{BlockId, Direction};
use bowline_types::{IdMap, IdSet};

/// The neighbors of a node, in the order of [`GraphSource::neighbors`].
#[derive(Clone, Copy, Debug)]
pub struct Row<'a, N> {
    /// The other ends.
    pub nodes: &'a [N],
    edges: Edges<'a>,
}

/// The kinds and directions of a row's edges.
#[derive(Clone, Copy, Debug)]
enum Edges<'a> {
    /// Of the view's arrays.
    Plain(PlainKinds<'a>, Direction),
    /// Of a buffer.
    Read(&'a [(KindId, Direction)]),
}

impl<N: Copy> Row<'_, N> {
    /// Visits all edges.
    #[inline]
    pub fn for_each(&self, mut visit: impl FnMut(N, KindId, Direction)) {
        match self.edges {
            Edges::Plain(kinds, direction) => {
                kinds.for_each(self.nodes, |&node, kind| visit(node, kind, direction));
            }
            Edges::Read(edges) => {
                for (&node, &(kind, direction)) in self.nodes.iter().zip(edges) {
                    visit(node, kind, direction);
                }
            }
        }
    }

    /// The kind of an edge by its place in the row.
    #[inline]
    pub fn kind(&self, place: usize) -> KindId {
        match self.edges {
            Edges::Plain(kinds, _) => kinds.get(place),
            Edges::Read(edges) => edges[place].0,
        }
    }

    /// Whether an edge leads to the neighbor or comes from it; never [`Direction::Both`].
    #[inline]
    pub fn direction(&self, place: usize) -> Direction {
        match self.edges {
            Edges::Plain(_, direction) => direction,
            Edges::Read(edges) => edges[place].1,
        }
    }
}

/// Memory for rows that are not in the view's arrays as they are asked for.
#[derive(Debug)]
pub struct RowBuffer<N> {
    nodes: Vec<N>,
    edges: Vec<(KindId, Direction)>,
}

impl<N> Default for RowBuffer<N> {
    fn default() -> RowBuffer<N> {
        RowBuffer {
            nodes: Vec::new(),
            edges: Vec::new(),
        }
    }
}

impl<N> RowBuffer<N> {
    pub(super) fn clear(&mut self) {
        self.nodes.clear();
        self.edges.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn push(&mut self, node: N, kind: KindId, direction: Direction) {
        self.nodes.push(node);
        self.edges.push((kind, direction));
    }

    pub(super) fn row(&self) -> Row<'_, N> {
        Row {
            nodes: &self.nodes,
            edges: Edges::Read(&self.edges),
        }
    }
}

/// A graph at one revision.
pub trait Walk {
    /// Stands for a block.
    type Node: Visited;
    type Marks: Marks<Self::Node>;
    type Places: Places<Self::Node>;
    type Lender<'a>: Lend<'a, Self::Node>
    where
        Self: 'a;

    /// The block.
    fn id(&self, node: Self::Node) -> BlockId;

    /// The neighbors of a node over edges whose kind passes.
    fn row<'a>(
        &'a self,
        node: Self::Node,
        direction: Direction,
        kinds: &KindFilter,
        buffer: &'a mut RowBuffer<Self::Node>,
    ) -> Result<Row<'a, Self::Node>>;

    /// Lends the same neighbors where they lie together in memory.
    fn lender<'a>(&'a self, direction: Direction, kinds: &KindFilter) -> Self::Lender<'a>;

    /// Visits the same neighbors in one or several parts, until `visit` breaks. What [`Walk::row`] would copy comes as
    /// it lies.
    fn visit_row<B>(
        &self,
        node: Self::Node,
        direction: Direction,
        kinds: &KindFilter,
        buffer: &mut RowBuffer<Self::Node>,
        mut visit: impl FnMut(Row<'_, Self::Node>) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>> {
        Ok(visit(self.row(node, direction, kinds, buffer)?))
    }

    /// The size of the stored record of a block; `None` when there is no such block.
    fn block_size_bytes(&self, id: BlockId) -> Result<Option<u64>>;

    /// Fails when the walk was canceled; asked once for each expanded node.
    fn check(&self) -> Result<()>;

    /// No marks.
    fn marks(&self) -> Self::Marks;

    /// No places.
    fn places(&self) -> Self::Places;
}

/// Lends rows of one direction and filter. A walk asks for it once: what is the same for every row is looked up there.
pub trait Lend<'a, N>: Copy {
    /// The row of a node; `None` when it does not lie together in memory that outlasts the call.
    fn row(&self, node: N) -> Option<Row<'a, N>>;

    /// Whether a row has no edges; `false` also if that is not known at once.
    #[inline(always)]
    fn is_empty(&self, _: N) -> bool {
        false
    }

    /// How many of the first of these visits are at another depth or to nodes without edges, as far as that is known at
    /// once.
    #[inline(always)]
    fn skip_empty(&self, _: &[VisitEntry<N>], _depth: u32) -> usize {
        0
    }

    /// Tells which rows are read soon: `soon` gives the node that is read after so many others.
    fn prefetch(&self, soon: impl Fn(usize) -> Option<N>);
}

/// A set of nodes.
pub trait Marks<N> {
    /// Adds a node; `false` when it is in the set.
    fn insert(&mut self, node: N) -> bool;
    fn contains(&self, node: N) -> bool;
}

/// A number for each of some nodes.
pub trait Places<N> {
    fn get(&self, node: N) -> Option<u32>;
    /// Gives a node a number, unless it has one: that is returned.
    fn insert(&mut self, node: N, place: u32) -> Option<u32>;
}

/// A row that is read by ids comes in parts of so many edges: one who needs only its first ones reads few others.
const PART_MAX: usize = if cfg!(test) { 4 } else { 1024 };

/// A graph that is read by ids.
#[derive(Debug)]
pub struct ByIds<'a, G> {
    graph: &'a G,
}

impl<'a, G> ByIds<'a, G> {
    pub fn new(graph: &'a G) -> ByIds<'a, G> {
        ByIds { graph }
    }
}

/// What lends no rows.
#[derive(Clone, Copy, Debug)]
pub struct LendsNone;

impl<'a, N> Lend<'a, N> for LendsNone {
    #[inline]
    fn row(&self, _: N) -> Option<Row<'a, N>> {
        None
    }

    #[inline]
    fn prefetch(&self, _: impl Fn(usize) -> Option<N>) {}
}

impl<G: GraphSource> Walk for ByIds<'_, G> {
    type Node = BlockId;
    type Marks = IdMarks;
    type Places = IdPlaces;
    type Lender<'b>
        = LendsNone
    where
        Self: 'b;

    fn lender(&self, _: Direction, _: &KindFilter) -> LendsNone {
        LendsNone
    }

    fn id(&self, node: BlockId) -> BlockId {
        node
    }

    fn row<'b>(
        &'b self,
        node: BlockId,
        direction: Direction,
        kinds: &KindFilter,
        buffer: &'b mut RowBuffer<BlockId>,
    ) -> Result<Row<'b, BlockId>> {
        buffer.clear();
        self.graph
            .visit_neighbors(node, direction, kinds, &mut |neighbor| {
                buffer.push(neighbor.id, neighbor.kind, neighbor.direction);
                true
            })?;
        Ok(buffer.row())
    }

    fn visit_row<B>(
        &self,
        node: BlockId,
        direction: Direction,
        kinds: &KindFilter,
        buffer: &mut RowBuffer<BlockId>,
        mut visit: impl FnMut(Row<'_, BlockId>) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>> {
        let mut visited = ControlFlow::Continue(());
        buffer.clear();
        self.graph
            .visit_neighbors(node, direction, kinds, &mut |neighbor| {
                buffer.push(neighbor.id, neighbor.kind, neighbor.direction);
                if buffer.len() < PART_MAX {
                    return true;
                }
                visited = visit(buffer.row());
                buffer.clear();
                visited.is_continue()
            })?;
        match visited {
            ControlFlow::Continue(()) => Ok(visit(buffer.row())),
            ended => Ok(ended),
        }
    }

    fn block_size_bytes(&self, id: BlockId) -> Result<Option<u64>> {
        self.graph.block_size_bytes(id)
    }

    fn check(&self) -> Result<()> {
        self.graph.check()
    }

    fn marks(&self) -> IdMarks {
        IdMarks::default()
    }

    fn places(&self) -> IdPlaces {
        IdPlaces::default()
    }
}

/// A set of ids.
#[derive(Debug, Default)]
pub struct IdMarks(IdSet);

/// A number for each of some ids.
#[derive(Debug, Default)]
pub struct IdPlaces(IdMap<u32>);

impl Marks<BlockId> for IdMarks {
    fn insert(&mut self, node: BlockId) -> bool {
        self.0.insert(node)
    }

    fn contains(&self, node: BlockId) -> bool {
        self.0.contains(&node)
    }
}

impl Places<BlockId> for IdPlaces {
    fn get(&self, node: BlockId) -> Option<u32> {
        self.0.get(&node).copied()
    }

    fn insert(&mut self, node: BlockId, place: u32) -> Option<u32> {
        match self.0.entry(node) {
            Entry::Occupied(held) => Some(*held.get()),
            Entry::Vacant(free) => {
                free.insert(place);
                None
            }
        }
    }
}

/// How many rows are on their way to the cache while one is read. A row waits for two loads, of its start and of its
/// first end: those of the next ones are under way.
const AHEAD: usize = 8;

/// The view at a revision. Sizes of blocks come from the trees.
#[derive(Debug)]
pub struct InView<'a, G> {
    pub state: &'a State,
    pub revision: u64,
    pub trees: &'a G,
}

impl<G> InView<'_, G> {
    /// Fills a buffer with a row that does not lie in the base as it is asked for.
    #[inline(never)]
    fn read_row(
        &self,
        node: u32,
        direction: Direction,
        kinds: &KindFilter,
        buffer: &mut RowBuffer<u32>,
    ) {
        buffer.clear();
        let add = |part: Part<'_>, direction| {
            match part {
                Part::Base(nodes, kinds) => {
                    buffer.nodes.extend_from_slice(nodes);
                    let edges = &mut buffer.edges;
                    edges.reserve(nodes.len());
                    kinds.for_each(nodes, |_, kind| edges.push((kind, direction)));
                }
                Part::Added(node, kind) => buffer.push(node, kind, direction),
            }
            ControlFlow::<()>::Continue(())
        };
        let (state, revision) = (self.state, self.revision);
        let _ = state.visit_parts(node, direction, revision, kinds, add);
    }
}

impl<'a> Lend<'a, u32> for PlainRows<'a> {
    // A call for each row would cost as much as the row.
    #[inline(always)]
    fn row(&self, node: u32) -> Option<Row<'a, u32>> {
        let (nodes, kinds) = self.get(node)?;
        let edges = Edges::Plain(kinds, self.direction());
        Some(Row { nodes, edges })
    }

    #[inline(always)]
    fn is_empty(&self, node: u32) -> bool {
        PlainRows::is_empty(self, node)
    }

    fn skip_empty(&self, visits: &[VisitEntry<u32>], depth: u32) -> usize {
        let nodes = visits
            .iter()
            .map(|visit| (visit.depth == depth).then_some(visit.node));
        self.first_with_edges(nodes).unwrap_or(visits.len())
    }

    #[inline(always)]
    fn prefetch(&self, soon: impl Fn(usize) -> Option<u32>) {
        if self.is_worth_prefetching() {
            self.prefetch_rows(soon(2 * AHEAD), soon(AHEAD));
        }
    }
}

impl<G: GraphSource> Walk for InView<'_, G> {
    type Node = u32;
    type Marks = OrdinalMarks;
    type Places = OrdinalPlaces;
    type Lender<'a>
        = PlainRows<'a>
    where
        Self: 'a;

    #[inline]
    fn id(&self, node: u32) -> BlockId {
        self.state.id(node)
    }

    fn lender(&self, direction: Direction, kinds: &KindFilter) -> PlainRows<'_> {
        self.state.plain_rows(direction, self.revision, kinds)
    }

    #[inline(always)]
    fn row<'b>(
        &'b self,
        node: u32,
        direction: Direction,
        kinds: &KindFilter,
        buffer: &'b mut RowBuffer<u32>,
    ) -> Result<Row<'b, u32>> {
        if let Some(row) = self.lender(direction, kinds).row(node) {
            return Ok(row);
        }
        self.read_row(node, direction, kinds, buffer);
        Ok(buffer.row())
    }

    fn visit_row<B>(
        &self,
        node: u32,
        direction: Direction,
        kinds: &KindFilter,
        _: &mut RowBuffer<u32>,
        mut visit: impl FnMut(Row<'_, u32>) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>> {
        let each = |part: Part<'_>, direction| match part {
            Part::Base(nodes, kinds) => visit(Row {
                nodes,
                edges: Edges::Plain(kinds, direction),
            }),
            Part::Added(node, kind) => visit(Row {
                nodes: &[node],
                edges: Edges::Read(&[(kind, direction)]),
            }),
        };
        let (state, revision) = (self.state, self.revision);
        Ok(state.visit_parts(node, direction, revision, kinds, each))
    }

    fn block_size_bytes(&self, id: BlockId) -> Result<Option<u64>> {
        self.trees.block_size_bytes(id)
    }

    #[inline]
    fn check(&self) -> Result<()> {
        self.trees.check()
    }

    fn marks(&self) -> OrdinalMarks {
        OrdinalMarks::new(self.state.ordinals())
    }

    fn places(&self) -> OrdinalPlaces {
        OrdinalPlaces::new(self.state.ordinals())
    }
}

thread_local! {
    /// All bits are 0; then room for the words with bits.
    static BITS: Cell<(Vec<u64>, Vec<u32>)> = const { Cell::new((Vec::new(), Vec::new())) };
    /// All are [`FREE`]; then room for the nodes that are given one.
    static PLACES: Cell<(Vec<u32>, Vec<u32>)> = const { Cell::new((Vec::new(), Vec::new())) };
}

/// The place of a node without one.
const FREE: u32 = u32::MAX;

/// A bit for each ordinal.
#[derive(Debug)]
pub struct OrdinalMarks {
    bits: Vec<u64>,
    /// The words with bits.
    touched: Vec<u32>,
}

impl OrdinalMarks {
    fn new(ordinals: usize) -> OrdinalMarks {
        let (mut bits, touched) = BITS.take();
        let words = ordinals.div_ceil(64);
        if bits.len() < words {
            bits.resize(words, 0);
        }
        OrdinalMarks { bits, touched }
    }
}

impl Marks<u32> for OrdinalMarks {
    #[inline]
    fn insert(&mut self, node: u32) -> bool {
        let word = &mut self.bits[node as usize / 64];
        let bit = 1 << (node % 64);
        if *word & bit != 0 {
            return false;
        }
        if *word == 0 {
            self.touched.push(node / 64);
        }
        *word |= bit;
        true
    }

    #[inline]
    fn contains(&self, node: u32) -> bool {
        self.bits[node as usize / 64] & (1 << (node % 64)) != 0
    }
}

impl Drop for OrdinalMarks {
    fn drop(&mut self) {
        for word in self.touched.drain(..) {
            self.bits[word as usize] = 0;
        }
        BITS.set((take(&mut self.bits), take(&mut self.touched)));
    }
}

/// A number for each ordinal.
#[derive(Debug)]
pub struct OrdinalPlaces {
    places: Vec<u32>,
    given: Vec<u32>,
}

impl OrdinalPlaces {
    fn new(ordinals: usize) -> OrdinalPlaces {
        let (mut places, given) = PLACES.take();
        if places.len() < ordinals {
            places.resize(ordinals, FREE);
        }
        OrdinalPlaces { places, given }
    }
}

impl Places<u32> for OrdinalPlaces {
    #[inline]
    fn get(&self, node: u32) -> Option<u32> {
        let place = self.places[node as usize];
        (place != FREE).then_some(place)
    }

    #[inline]
    fn insert(&mut self, node: u32, place: u32) -> Option<u32> {
        let slot = &mut self.places[node as usize];
        if *slot != FREE {
            return Some(*slot);
        }
        *slot = place;
        self.given.push(node);
        None
    }
}

impl Drop for OrdinalPlaces {
    fn drop(&mut self) {
        for node in self.given.drain(..) {
            self.places[node as usize] = FREE;
        }
        PLACES.set((take(&mut self.places), take(&mut self.given)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_places_are_undone_for_the_next_walk() {
        for round in 0..3 {
            let (mut marks, mut places) = (OrdinalMarks::new(500), OrdinalPlaces::new(500));
            // A second one at the same time has a pool of its own.
            let mut other = OrdinalMarks::new(500);
            for node in (round..500).step_by(7) {
                assert!(!marks.contains(node) && marks.insert(node));
                assert!(marks.contains(node) && !marks.insert(node));
                assert_eq!(places.get(node), None);
                assert_eq!(places.insert(node, node * 2), None);
                assert_eq!(places.insert(node, 1), Some(node * 2));
                assert_eq!(places.get(node), Some(node * 2));
                assert!(other.insert(node));
            }
        }
        let larger = OrdinalMarks::new(5_000);
        assert!((0..5_000).all(|node| !larger.contains(node)));
    }
}
