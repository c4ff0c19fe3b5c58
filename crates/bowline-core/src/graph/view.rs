//! [`DenseView`]: the whole graph in memory, with dense numbers instead of ids, for global algorithms.
//!
//! Blocks are numbered by their rank among the sorted ids, so smaller number means smaller id. The
//! edges lie in compressed sparse rows: one array of ends, and for each block where its part starts.
//!
//! ```text
//! ids      [ a    b    c    d ]              number -> id; id -> number by binary search
//! starts   [ 0    2    2    3    3 ]         row of `a` is ends[0..2]
//! ends     [ 1 2  |    |  3 |   ]            a -> b, a -> c, c -> d
//! ```
//!
//! It is built in one pass over the blocks and one over the edges. Sources come in order, so rows
//! are appended. The edges come from
//!
//! - the trees: a target is found by binary search, behind the one before it when that had the same source and
//!   kind. O(blocks + edges·log blocks) time;
//! - a [`State`] of the graph view, which has numbers of its own. If it knows just the blocks that there are, the rows
//!   are lent, or copied where they have changed. Else both number by id, and one walk over both lists maps the numbers.
//!   O(blocks + edges) time, and no edge is read from the trees.
//!
//! Memory: 24 B per block and 4 B per edge; with arriving edges 8 B and 4 B more. Rows that are lent take none. A row holds the
//! target of each edge in key order (kind, then id), so a target repeats for parallel edges of
//! several kinds.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::OnceLock;

use super::csr::State;
use super::kind_id::KindId;
use super::source::{GraphSource, KindFilter, dangling_edge};
use crate::{Error, Result};
use bowline_types::{BlockId, Direction};

/// No number and no ordinal.
const NONE: u32 = u32::MAX;

/// A snapshot of all blocks and of the edges of some kinds.
pub struct DenseView<'a> {
    ids: Cow<'a, [BlockId]>,
    outgoing: Rows<'a>,
    /// Once they are asked for.
    incoming: OnceLock<Rows<'a>>,
    /// Where the arriving rows come from; `None`: from the leaving ones.
    arriving: Option<Arriving<'a>>,
}

/// What lends or copies the arriving rows.
struct Arriving<'a> {
    state: &'a State,
    revision: u64,
    kinds: KindFilter,
}

/// How many blocks and edges there are of each kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KindCounts {
    pub blocks: BTreeMap<KindId, u64>,
    pub edges: BTreeMap<KindId, u64>,
}

impl<'a> DenseView<'a> {
    /// Reads the whole graph. `with_incoming` also stores the arriving edges.
    pub fn build(
        graph: &impl GraphSource,
        kinds: &KindFilter,
        with_incoming: bool,
    ) -> Result<DenseView<'a>> {
        Ok(DenseView::build_counted(graph, kinds, with_incoming)?.0)
    }

    /// The same, with the counts by kind.
    pub fn build_counted(
        graph: &impl GraphSource,
        kinds: &KindFilter,
        with_incoming: bool,
    ) -> Result<(DenseView<'a>, KindCounts)> {
        let built = DenseView::build_from(graph, kinds, |visit| graph.for_each_edge(visit))?;
        if with_incoming {
            built.0.incoming_or_transposed();
        }
        Ok(built)
    }

    /// Reads the blocks of a graph, and the edges that `edges` visits in the order of
    /// [`GraphSource::for_each_edge`].
    pub(crate) fn build_from(
        graph: &impl GraphSource,
        kinds: &KindFilter,
        edges: impl FnOnce(&mut dyn FnMut(BlockId, KindId, BlockId)) -> Result<()>,
    ) -> Result<(DenseView<'a>, KindCounts)> {
        let (ids, block_kinds) = blocks(graph)?;
        let mut rows = RowsBuilder::new(ids.len());
        let mut edge_kinds: BTreeMap<KindId, u64> = BTreeMap::new();
        let mut dangling = None;
        let mut last: Option<(usize, KindId, usize)> = None;
        edges(&mut |source, kind, target| {
            if dangling.is_some() || !kinds.passes(kind) {
                return;
            }
            let source_floor = last.map_or(0, |(source, ..)| source);
            let from = rank_of(&ids, source, source_floor);
            let target_floor = match last {
                Some((source, same, target)) if Some(source) == from && same == kind => target,
                _ => 0,
            };
            let (Some(from), Some(to)) = (from, rank_of(&ids, target, target_floor)) else {
                dangling = Some(dangling_edge(source, kind, target));
                return;
            };
            rows.push(from, to as u32);
            *edge_kinds.entry(kind).or_default() += 1;
            last = Some((from, kind, to));
        })?;
        if let Some(error) = dangling {
            return Err(error);
        }
        let counts = KindCounts {
            blocks: block_kinds,
            edges: edge_kinds,
        };
        Ok((DenseView::own(ids, rows.finish()), counts))
    }

    fn own(ids: Vec<BlockId>, outgoing: Rows<'a>) -> DenseView<'a> {
        DenseView {
            ids: Cow::Owned(ids),
            outgoing,
            incoming: OnceLock::new(),
            arriving: None,
        }
    }

    /// Takes the edges of a state of the graph view that answers `revision`. The blocks are read, unless
    /// `has_all_blocks` says that the state knows just those of the revision.
    pub fn in_view(
        graph: &impl GraphSource,
        state: &'a State,
        revision: u64,
        kinds: &KindFilter,
        has_all_blocks: bool,
    ) -> Result<DenseView<'a>> {
        let ids = match state.all_ids() {
            Some(known) if has_all_blocks => Cow::Borrowed(known),
            known => {
                let (ids, _) = blocks(graph)?;
                if known != Some(&ids) {
                    return Ok(DenseView::map_from(graph, ids, state, revision, kinds)?.0);
                }
                Cow::Owned(ids)
            }
        };
        graph.check()?;
        Ok(DenseView {
            ids,
            outgoing: state.whole_rows(Direction::Out, revision, kinds),
            incoming: OnceLock::new(),
            arriving: Some(Arriving {
                state,
                revision,
                kinds: kinds.clone(),
            }),
        })
    }

    /// Reads the blocks of a graph, and copies its edges from a state of the graph view that answers `revision`; with the
    /// counts by kind.
    pub fn counted_in_view(
        graph: &impl GraphSource,
        state: &State,
        revision: u64,
        kinds: &KindFilter,
    ) -> Result<(DenseView<'a>, KindCounts)> {
        let (ids, block_kinds) = blocks(graph)?;
        let (view, edges) = DenseView::map_from(graph, ids, state, revision, kinds)?;
        let blocks = block_kinds;
        Ok((view, KindCounts { blocks, edges }))
    }

    /// Copies the edges of a state, with the numbers that these blocks have here, and counts them by kind.
    fn map_from(
        graph: &impl GraphSource,
        ids: Vec<BlockId>,
        state: &State,
        revision: u64,
        kinds: &KindFilter,
    ) -> Result<(DenseView<'a>, BTreeMap<KindId, u64>)> {
        // The ordinal of each block by its number, and the way back.
        let mut ordinals = vec![NONE; ids.len()];
        let mut numbers = vec![NONE; state.ordinals()];
        let mut number = 0;
        for (id, ordinal) in state.ordinals_by_id() {
            while ids.get(number).is_some_and(|other| *other < id) {
                number += 1;
            }
            if ids.get(number) == Some(&id) {
                ordinals[number] = ordinal;
                numbers[ordinal as usize] = number as u32;
            }
        }

        let mut rows = RowsBuilder::new(ids.len());
        let mut edge_kinds: BTreeMap<KindId, u64> = BTreeMap::new();
        let mut count = |kind, more| *edge_kinds.entry(kind).or_default() += more;
        let mut run = (KindId(0), 0);
        for (from, &ordinal) in ordinals.iter().enumerate() {
            graph.check()?;
            if ordinal == NONE {
                continue;
            }
            let add = |far: u32, kind, _| {
                let to = numbers[far as usize];
                if to == NONE {
                    return ControlFlow::Break(dangling_edge(ids[from], kind, state.id(far)));
                }
                rows.push(from, to);
                // Most edges have the kind of the one before.
                if kind != run.0 {
                    count(run.0, run.1);
                    run = (kind, 0);
                }
                run.1 += 1;
                ControlFlow::Continue(())
            };
            let visited = state.visit(ordinal, Direction::Out, revision, kinds, add);
            if let ControlFlow::Break(error) = visited {
                return Err(error);
            }
        }
        count(run.0, run.1);
        edge_kinds.retain(|_, count| *count > 0);
        Ok((DenseView::own(ids, rows.finish()), edge_kinds))
    }

    /// How many blocks there are; their numbers are below.
    pub(crate) fn block_count(&self) -> u32 {
        self.ids.len() as u32
    }

    /// The number of edges of the requested kinds.
    pub(crate) fn edge_count(&self) -> u64 {
        self.outgoing.edge_count()
    }

    /// The id of a block by its number.
    pub fn id(&self, number: u32) -> BlockId {
        self.ids[number as usize]
    }

    /// The ids by number, for a caller that no longer needs the edges.
    pub fn into_ids(self) -> Vec<BlockId> {
        self.ids.into_owned()
    }

    /// The number of a block by its id.
    pub(crate) fn number(&self, id: BlockId) -> Option<u32> {
        self.ids.binary_search(&id).ok().map(|number| number as u32)
    }

    /// The number of a block by its id, or the error for a block that does not exist.
    pub fn require_number(&self, id: BlockId) -> Result<u32> {
        self.number(id).ok_or(Error::MissingBlock { id })
    }

    /// The targets of each block's edges.
    pub fn outgoing(&self) -> &Rows<'a> {
        &self.outgoing
    }

    /// The sources of the edges that arrive at each block, ascending, if built `with_incoming` or made since.
    pub fn incoming(&self) -> Option<&Rows<'a>> {
        self.incoming.get()
    }

    /// The sources of the edges that arrive at each block, ascending. The first call makes them, unless they are lent:
    /// O(blocks + edges).
    #[inline]
    pub fn incoming_or_transposed(&self) -> &Rows<'a> {
        self.incoming.get_or_init(|| match &self.arriving {
            Some(arriving) => {
                let (revision, kinds) = (arriving.revision, &arriving.kinds);
                arriving.state.whole_rows(Direction::In, revision, kinds)
            }
            None => self.outgoing.transposed(),
        })
    }

    /// How much memory it holds.
    pub fn memory_bytes(&self) -> u64 {
        let ids = match &self.ids {
            Cow::Borrowed(_) => 0,
            Cow::Owned(ids) => (ids.capacity() * size_of::<BlockId>()) as u64,
        };
        let incoming = self.incoming.get().map_or(0, Rows::memory_bytes);
        ids + self.outgoing.memory_bytes() + incoming
    }
}

/// The blocks of a graph in order, and how many there are of each kind; one of several kinds is one of each.
fn blocks(graph: &impl GraphSource) -> Result<(Vec<BlockId>, BTreeMap<KindId, u64>)> {
    let mut ids: Vec<BlockId> = Vec::new();
    let mut block_kinds = BTreeMap::new();
    graph.for_each_block(&mut |id, kinds| {
        debug_assert!(
            ids.last().is_none_or(|last| *last < id),
            "blocks come in order"
        );
        ids.push(id);
        for kind in kinds.iter() {
            *block_kinds.entry(kind).or_default() += 1;
        }
    })?;
    if u32::try_from(ids.len()).is_err() {
        return Err(Error::NotSupported {
            what: "a view of more than 4,294,967,295 blocks",
            why: "it numbers them with 32 bits; ask questions that start at a block instead",
        });
    }

    ids.shrink_to_fit();
    Ok((ids, block_kinds))
}

/// Where `id` stands in the sorted `ids`, not before `floor`.
fn rank_of(ids: &[BlockId], id: BlockId, floor: usize) -> Option<usize> {
    match ids.get(floor) {
        Some(first) if *first == id => Some(floor),
        _ => ids[floor..]
            .binary_search(&id)
            .ok()
            .map(|rank| floor + rank),
    }
}

/// Adjacency in compressed sparse rows: row `n` is `ends[starts[n]..starts[n + 1]]`.
#[derive(Clone, Debug)]
pub struct Rows<'a>(Arrays<'a>);

/// One more start than there are rows, and all ends.
#[derive(Clone, Debug)]
enum Arrays<'a> {
    Own { starts: Vec<usize>, ends: Vec<u32> },
    Lent { starts: &'a [u32], ends: &'a [u32] },
}

impl<'a> Rows<'a> {
    pub(crate) fn own(starts: Vec<usize>, ends: Vec<u32>) -> Rows<'a> {
        Rows(Arrays::Own { starts, ends })
    }

    pub(crate) fn lent(starts: &'a [u32], ends: &'a [u32]) -> Rows<'a> {
        Rows(Arrays::Lent { starts, ends })
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        let starts = match &self.0 {
            Arrays::Own { starts, .. } => starts.len(),
            Arrays::Lent { starts, .. } => starts.len(),
        };
        starts - 1
    }

    #[inline]
    fn ends(&self) -> &[u32] {
        match &self.0 {
            Arrays::Own { ends, .. } => ends,
            Arrays::Lent { ends, .. } => ends,
        }
    }

    /// How many edges there are.
    pub(crate) fn edge_count(&self) -> u64 {
        self.ends().len() as u64
    }

    /// The row of one block.
    #[inline]
    pub fn row(&self, number: u32) -> &[u32] {
        &self.ends()[self.range(number)]
    }

    /// Where the row of one block stands among all ends.
    #[inline]
    pub(crate) fn range(&self, number: u32) -> Range<usize> {
        let number = number as usize;
        match &self.0 {
            Arrays::Own { starts, .. } => starts[number]..starts[number + 1],
            Arrays::Lent { starts, .. } => starts[number] as usize..starts[number + 1] as usize,
        }
    }

    /// Every row with its number.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[u32])> {
        (0..self.len() as u32).map(|number| (number, self.row(number)))
    }

    /// The same edges from their other ends; each row ascends. O(rows + edges).
    pub(crate) fn transposed(&self) -> Rows<'static> {
        let mut starts = vec![0; self.len() + 1];
        for &end in self.ends() {
            starts[end as usize + 1] += 1;
        }
        for number in 1..starts.len() {
            starts[number] += starts[number - 1];
        }
        let mut next = starts.clone();
        let mut ends = vec![0; self.ends().len()];
        for (number, row) in self.iter() {
            for &end in row {
                ends[next[end as usize]] = number;
                next[end as usize] += 1;
            }
        }
        Rows::own(starts, ends)
    }

    /// How much memory they hold; none if they are lent.
    pub fn memory_bytes(&self) -> u64 {
        match &self.0 {
            Arrays::Own { starts, ends } => {
                let starts = starts.capacity() * size_of::<usize>();
                (starts + ends.capacity() * size_of::<u32>()) as u64
            }
            Arrays::Lent { .. } => 0,
        }
    }
}

/// Appends edges whose sources ascend.
pub(crate) struct RowsBuilder {
    rows: usize,
    starts: Vec<usize>,
    ends: Vec<u32>,
}

impl RowsBuilder {
    /// For so many rows.
    pub fn new(rows: usize) -> RowsBuilder {
        RowsBuilder {
            rows,
            starts: Vec::with_capacity(rows + 1),
            ends: Vec::new(),
        }
    }

    /// Adds `end` to the row of `from`, which must not be below the one before.
    pub fn push(&mut self, from: usize, end: u32) {
        debug_assert!(
            from < self.rows && self.starts.len() <= from + 1,
            "sources ascend"
        );
        // Opens the rows up to this one; those between are empty.
        self.starts
            .resize(self.starts.len().max(from + 1), self.ends.len());
        self.ends.push(end);
    }

    /// Closes the rows.
    pub fn finish(mut self) -> Rows<'static> {
        self.starts.resize(self.rows + 1, self.ends.len());
        self.ends.shrink_to_fit();
        Rows::own(self.starts, self.ends)
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::{BLOCK_KIND, MemoryGraph, random_graphs, ways};
    use super::*;
    use bowline_types::{Attributes, Block};

    #[test]
    fn blocks_are_numbered_by_id_and_rows_follow_the_edges() {
        let mut graph = MemoryGraph::new(0, []);
        for id in [90, 10, 70, 30] {
            graph.add_block(id);
        }
        graph.put_block(KindId(5), &Block::new(BlockId(50), ""));
        for (source, kind, target) in [
            (10, 2, 90),
            (10, 2, 10),
            (10, 1, 90),
            (50, 1, 30),
            (90, 3, 10),
        ] {
            graph.add_edge(source, kind, target, &Attributes::new());
        }
        let built = DenseView::build_counted(&graph, &KindFilter::All, true);
        let (view, counts) = built.expect("builds");
        assert_eq!((view.block_count(), view.edge_count()), (5, 5));
        assert_eq!(
            (0..5).map(|n| view.id(n).0).collect::<Vec<_>>(),
            [10, 30, 50, 70, 90]
        );
        assert_eq!(view.number(BlockId(70)), Some(3));
        assert_eq!(view.number(BlockId(71)), None);

        let rows: Vec<_> = view
            .outgoing()
            .iter()
            .map(|(_, row)| row.to_vec())
            .collect();
        assert_eq!(rows, [vec![4, 0, 4], vec![], vec![1], vec![], vec![0]]);
        let rows: Vec<_> = view
            .incoming()
            .expect("asked for")
            .iter()
            .map(|(_, row)| row.to_vec())
            .collect();
        assert_eq!(rows, [vec![0, 4], vec![2], vec![], vec![], vec![0, 0]]);

        assert_eq!(
            counts.blocks,
            BTreeMap::from([(KindId(5), 1), (BLOCK_KIND, 4)])
        );
        let kinds = [(1, 2), (2, 2), (3, 1)].map(|(kind, count)| (KindId(kind), count));
        assert_eq!(counts.edges, BTreeMap::from(kinds));
    }

    #[test]
    fn only_the_kinds_asked_for_are_held() {
        let graph = MemoryGraph::new(3, [(0, 1, 1), (0, 2, 2), (1, 2, 2), (2, 3, 0)]);
        let kinds = KindFilter::only([KindId(2)]);
        let built = DenseView::build_counted(&graph, &kinds, false);
        let (view, counts) = built.expect("builds");
        assert!(view.incoming().is_none());
        let rows: Vec<_> = view
            .outgoing()
            .iter()
            .map(|(_, row)| row.to_vec())
            .collect();
        assert_eq!(rows, [vec![2], vec![2], vec![]]);
        assert_eq!(counts.edges, BTreeMap::from([(KindId(2), 2)]));
    }

    #[test]
    fn an_empty_graph_has_an_empty_view() {
        let view = DenseView::build(&MemoryGraph::new(0, []), &KindFilter::All, true);
        let view = view.expect("builds");
        assert_eq!((view.block_count(), view.edge_count()), (0, 0));
        assert_eq!(view.outgoing().iter().count(), 0);
        assert_eq!(view.incoming().map(Rows::len), Some(0));
    }

    #[test]
    fn an_edge_to_or_from_nowhere_is_an_error() {
        for (source, target) in [(0, 9), (9, 0)] {
            let mut graph = MemoryGraph::new(2, [(0, 1, 1)]);
            graph.add_edge(source, 1, target, &Attributes::new());
            let result = DenseView::build(&graph, &KindFilter::All, false).map(|_| ());
            assert!(
                matches!(result, Err(Error::InvalidRecord { what: "edge", .. })),
                "{result:?}"
            );
        }
    }

    #[test]
    fn memory_is_what_the_head_says() {
        let graph = MemoryGraph::path(10_000);
        let lean = DenseView::build(&graph, &KindFilter::All, false).expect("builds");
        assert_eq!(lean.memory_bytes(), 10_000 * 16 + 10_001 * 8 + 9_999 * 4);
        let full = DenseView::build(&graph, &KindFilter::All, true).expect("builds");
        assert_eq!(
            full.memory_bytes() - lean.memory_bytes(),
            10_001 * 8 + 9_999 * 4
        );
    }

    #[test]
    fn random_graphs_keep_every_edge_in_both_directions() {
        for (seed, graph) in random_graphs(300) {
            for (_, kinds) in ways() {
                let view = DenseView::build(&graph, &kinds, true).expect("builds");
                let edges: Vec<_> = graph
                    .edges()
                    .into_iter()
                    .filter(|edge| kinds.passes(edge.1))
                    .collect();
                let mut expected: Vec<_> = edges.iter().map(|edge| (edge.0, edge.2)).collect();
                let list = |rows: &Rows<'_>| -> Vec<(BlockId, BlockId)> {
                    rows.iter()
                        .flat_map(|(near, row)| row.iter().map(move |&far| (near, far)))
                        .map(|(near, far)| (view.id(near), view.id(far)))
                        .collect()
                };
                assert_eq!(list(view.outgoing()), expected, "seed {seed} {kinds:?}");
                let mut arriving: Vec<_> = list(view.incoming().expect("asked for"))
                    .into_iter()
                    .map(|(target, source)| (source, target))
                    .collect();
                arriving.sort_unstable();
                expected.sort_unstable();
                assert_eq!(arriving, expected, "seed {seed} {kinds:?}");
            }
        }
    }
}
