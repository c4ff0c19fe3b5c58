//! For tests: a graph in memory with the keys and records of the disk, random graphs, and slow reference
//! algorithms.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use super::keys::{
    block_key, edge_in_key, edge_kind_prefix, edge_out_key, edge_prefix, split_edge_key,
};
use super::kind_id::{KindId, KindIds};
use super::record::{block_kinds, decode_edge, encode_block, encode_edge};
use super::source::{GraphSource, KindFilter, NeighborRef, VisitEdgeValue};
use crate::Result;
use bowline_types::{Attributes, Block, BlockId, Direction};

/// The kind of every block made by [`MemoryGraph::add_block`].
pub const BLOCK_KIND: KindId = KindId(100);

#[derive(Default)]
pub(crate) struct MemoryGraph {
    blocks: BTreeMap<[u8; 16], Vec<u8>>,
    edge_out: BTreeMap<[u8; 36], Vec<u8>>,
    edge_in: BTreeSet<[u8; 36]>,
    /// How often a block's size was asked for.
    pub sizes_asked: Cell<u64>,
    /// How often neighbors were asked for.
    pub neighbors_asked: Cell<u64>,
    /// How many neighbors were given.
    pub neighbors_given: Cell<u64>,
}

impl MemoryGraph {
    /// The blocks `0..blocks` and these edges, written as (source, kind, target).
    pub fn new(blocks: u128, edges: impl IntoIterator<Item = (u128, u32, u128)>) -> MemoryGraph {
        let mut graph = MemoryGraph::default();
        (0..blocks).for_each(|id| graph.add_block(id));
        for (source, kind, target) in edges {
            graph.add_edge(source, kind, target, &Attributes::new());
        }
        graph
    }

    /// A path `0 -> 1 -> ... -> blocks - 1`, long enough to overflow the stack of whoever recurses.
    pub fn path(blocks: u128) -> MemoryGraph {
        MemoryGraph::new(blocks, (1..blocks).map(|id| (id - 1, 0, id)))
    }

    pub(crate) fn add_block(&mut self, id: u128) {
        self.put_block(BLOCK_KIND, &Block::new(BlockId(id), ""));
    }

    pub fn put_block(&mut self, kind: KindId, block: &Block) {
        let mut value = Vec::new();
        encode_block(&[kind], block, &mut value);
        self.blocks.insert(block_key(block.id), value);
    }

    pub(crate) fn add_edge(&mut self, source: u128, kind: u32, target: u128, with: &Attributes) {
        let (source, kind, target) = (BlockId(source), KindId(kind), BlockId(target));
        let mut value = Vec::new();
        encode_edge(with, &mut value);
        self.edge_out
            .insert(edge_out_key(source, kind, target), value);
        self.edge_in.insert(edge_in_key(target, kind, source));
    }

    /// Removes one of the two entries of an edge, as no commit would.
    pub(crate) fn damage_edge(&mut self, source: u128, kind: u32, target: u128) {
        self.edge_out.remove(&edge_out_key(
            BlockId(source),
            KindId(kind),
            BlockId(target),
        ));
    }

    /// How many blocks there are.
    pub(crate) fn block_count(&self) -> u128 {
        self.blocks.len() as u128
    }

    /// Every edge.
    pub fn edges(&self) -> Vec<(BlockId, KindId, BlockId)> {
        self.edge_out
            .keys()
            .filter_map(|key| split_edge_key(key))
            .collect()
    }
}

impl GraphSource for MemoryGraph {
    fn visit_neighbors(
        &self,
        id: BlockId,
        direction: Direction,
        kinds: &KindFilter,
        visit: &mut dyn FnMut(NeighborRef) -> bool,
    ) -> Result<()> {
        self.neighbors_asked.set(self.neighbors_asked.get() + 1);
        let mut give = |key: &[u8; 36], direction| {
            let (_, kind, id) = split_edge_key(key).expect("made by edge_key");
            assert!(kinds.passes(kind));
            self.neighbors_given.set(self.neighbors_given.get() + 1);
            visit(NeighborRef {
                id,
                kind,
                direction,
            })
        };
        let prefixes: Vec<Vec<u8>> = match kinds {
            KindFilter::All => vec![edge_prefix(id).to_vec()],
            KindFilter::Only(kinds) => kinds
                .iter()
                .map(|&kind| edge_kind_prefix(id, kind).to_vec())
                .collect(),
        };
        let range = |prefix: &[u8]| {
            let (mut start, mut end) = ([0; 36], [0xff; 36]);
            start[..prefix.len()].copy_from_slice(prefix);
            end[..prefix.len()].copy_from_slice(prefix);
            start..=end
        };
        if direction != Direction::In {
            for (key, _) in prefixes
                .iter()
                .flat_map(|prefix| self.edge_out.range(range(prefix)))
            {
                if !give(key, Direction::Out) {
                    return Ok(());
                }
            }
        }
        if direction != Direction::Out {
            for key in prefixes
                .iter()
                .flat_map(|prefix| self.edge_in.range(range(prefix)))
            {
                if !give(key, Direction::In) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn block_size_bytes(&self, id: BlockId) -> Result<Option<u64>> {
        self.sizes_asked.set(self.sizes_asked.get() + 1);
        Ok(self
            .blocks
            .get(&block_key(id))
            .map(|value| value.len() as u64))
    }

    fn edge_attributes(
        &self,
        source: BlockId,
        kind: KindId,
        target: BlockId,
    ) -> Result<Option<Attributes>> {
        let value = self.edge_out.get(&edge_out_key(source, kind, target));
        Ok(value.map(|value| {
            let edge = decode_edge(value).expect("made by encode_edge");
            edge.to_attributes()
        }))
    }

    fn for_each_block(&self, visit: &mut dyn FnMut(BlockId, KindIds<'_>)) -> Result<()> {
        for (key, value) in &self.blocks {
            visit(
                BlockId::from_bytes(*key),
                block_kinds(value).expect("made by encode_block"),
            );
        }
        Ok(())
    }

    fn for_each_edge(&self, visit: &mut dyn FnMut(BlockId, KindId, BlockId)) -> Result<()> {
        for (source, kind, target) in self.edges() {
            visit(source, kind, target);
        }
        Ok(())
    }

    fn for_each_edge_value(&self, attribute: &str, visit: VisitEdgeValue<'_>) -> Result<()> {
        for (key, value) in &self.edge_out {
            let (source, kind, target) = split_edge_key(key).expect("made by edge_key");
            let attributes = decode_edge(value).expect("made by encode_edge");
            visit(source, kind, target, attributes.get(attribute));
        }
        Ok(())
    }
}

/// Small random graphs of every density, with self loops and parallel edges; the seed names each. The last ones are
/// new in each run.
pub(crate) fn random_graphs(count: u64) -> impl Iterator<Item = (u64, MemoryGraph)> {
    crate::seeds(0..count).map(|seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let blocks = random.u128(1..14);
        let edges: Vec<_> = (0..random.u128(..blocks * 3))
            .map(|_| {
                (
                    random.u128(..blocks),
                    random.u32(1..4),
                    random.u128(..blocks),
                )
            })
            .collect();
        (seed, MemoryGraph::new(blocks, edges))
    })
}

/// Every direction with every sort of filter.
pub fn ways() -> Vec<(Direction, KindFilter)> {
    let mut ways = Vec::new();
    for direction in [Direction::Out, Direction::In, Direction::Both] {
        ways.push((direction, KindFilter::All));
        ways.push((direction, KindFilter::only([KindId(2)])));
        ways.push((direction, KindFilter::only([KindId(1), KindId(3)])));
    }
    ways
}

/// Distances between all pairs of the blocks `0..n` by Floyd and Warshall; `None` = unreachable.
pub(crate) fn distances(
    graph: &MemoryGraph,
    direction: Direction,
    kinds: &KindFilter,
    weight: impl Fn(BlockId, KindId, BlockId) -> f64,
) -> Vec<Vec<Option<f64>>> {
    let blocks = graph.blocks.len();
    let mut table = vec![vec![f64::INFINITY; blocks]; blocks];
    (0..blocks).for_each(|at| table[at][at] = 0.0);
    for (source, kind, target) in graph
        .edges()
        .into_iter()
        .filter(|edge| kinds.passes(edge.1))
    {
        let weight = weight(source, kind, target);
        let (source, target) = (source.0 as usize, target.0 as usize);
        if direction != Direction::In {
            table[source][target] = table[source][target].min(weight);
        }
        if direction != Direction::Out {
            table[target][source] = table[target][source].min(weight);
        }
    }
    for via in 0..blocks {
        for from in 0..blocks {
            for to in 0..blocks {
                table[from][to] = table[from][to].min(table[from][via] + table[via][to]);
            }
        }
    }
    let finite = |distance: f64| distance.is_finite().then_some(distance);
    table
        .into_iter()
        .map(|row| row.into_iter().map(finite).collect())
        .collect()
}
