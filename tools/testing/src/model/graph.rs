//! Graph queries in the simplest way: by a scan of all edges.

use std::collections::{BTreeMap, BTreeSet};

use super::{Block, BlockId, EdgeKey};

/// The direction in which edges are followed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// From source to target.
    Out,
    /// From target to source.
    In,
    /// Either way.
    Both,
}

/// Blocks and edges at one revision.
///
/// `kinds` limits a question to edges of these kinds; an empty list means all kinds.
///
/// ```
/// use bowline_testing::model::{Change, Direction, Model};
///
/// let mut model = Model::new();
/// let mut changes: Vec<_> = (1..=3).map(|id| Change::put_block(id, "service", b"")).collect();
/// changes.push(Change::put_edge(1, "calls", 2, b""));
/// changes.push(Change::put_edge(2, "calls", 3, b""));
/// let revision = model.commit(&changes)?;
///
/// let graph = model.graph(revision);
/// assert_eq!(graph.shortest_path(1, 3, Direction::Out, &["calls"]), Some(2));
/// assert_eq!(graph.shortest_path(3, 1, Direction::Out, &[]), None);
/// assert!(graph.is_acyclic(&[]));
/// # Ok::<(), bowline_testing::model::MissingBlock>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Graph {
    /// All blocks.
    pub blocks: BTreeMap<BlockId, Block>,
    /// All edges, with their attributes.
    pub edges: BTreeMap<EdgeKey, Vec<u8>>,
}

impl Graph {
    /// The edges at a block, each with the block at its other end. A loop is listed once.
    #[must_use]
    pub fn neighbors(
        &self,
        id: BlockId,
        direction: Direction,
        kinds: &[&str],
    ) -> BTreeSet<(EdgeKey, BlockId)> {
        let mut found = BTreeSet::new();
        for edge in self.edges_of(kinds) {
            if edge.source == id && direction != Direction::In {
                found.insert((edge.clone(), edge.target));
            }
            if edge.target == id && direction != Direction::Out {
                found.insert((edge.clone(), edge.source));
            }
        }
        found
    }

    /// The blocks within `max_depth` steps of `start`, each with its least number of steps;
    /// `start` itself is at 0. Empty when `start` does not exist.
    #[must_use]
    pub fn breadth_first(
        &self,
        start: BlockId,
        direction: Direction,
        kinds: &[&str],
        max_depth: u32,
    ) -> BTreeMap<BlockId, u32> {
        let mut depths = BTreeMap::new();
        let mut layer = BTreeSet::new();
        if self.blocks.contains_key(&start) {
            depths.insert(start, 0);
            layer.insert(start);
        }
        let mut depth = 0;
        while !layer.is_empty() && depth < max_depth {
            depth += 1;
            let mut next = BTreeSet::new();
            for id in layer {
                for (_, neighbor) in self.neighbors(id, direction, kinds) {
                    depths.entry(neighbor).or_insert_with(|| {
                        next.insert(neighbor);
                        depth
                    });
                }
            }
            layer = next;
        }
        depths
    }

    /// The least number of steps from one block to another; `None` when there is no path.
    #[must_use]
    pub fn shortest_path(
        &self,
        from: BlockId,
        to: BlockId,
        direction: Direction,
        kinds: &[&str],
    ) -> Option<u32> {
        self.breadth_first(from, direction, kinds, u32::MAX)
            .get(&to)
            .copied()
    }

    /// The least sum of weights from one block to another; `None` when there is no path, or only paths whose
    /// sum exceeds `u64`. Relaxes every edge until nothing changes.
    #[must_use]
    pub fn shortest_weighted_path(
        &self,
        from: BlockId,
        to: BlockId,
        direction: Direction,
        kinds: &[&str],
        weight: impl Fn(&EdgeKey, &[u8]) -> u64,
    ) -> Option<u64> {
        if !self.blocks.contains_key(&from) {
            return None;
        }
        let mut best = BTreeMap::from([(from, 0_u64)]);
        let mut changed = true;
        while changed {
            changed = false;
            for edge in self.edges_of(kinds) {
                let step = weight(edge, &self.edges[edge]);
                let (out, back) = ((edge.source, edge.target), (edge.target, edge.source));
                let ways = match direction {
                    Direction::Out => vec![out],
                    Direction::In => vec![back],
                    Direction::Both => vec![out, back],
                };
                for (start, end) in ways {
                    let sum = best.get(&start).and_then(|so_far| so_far.checked_add(step));
                    if let Some(sum) = sum
                        && best.get(&end).is_none_or(|known| sum < *known)
                    {
                        best.insert(end, sum);
                        changed = true;
                    }
                }
            }
        }
        best.get(&to).copied()
    }

    /// Whether no path along edges leads from a block back to it. A loop is a cycle.
    #[must_use]
    pub fn is_acyclic(&self, kinds: &[&str]) -> bool {
        // Removes blocks without incoming edges, until none is left or all have some.
        let mut left: BTreeSet<BlockId> = self.blocks.keys().copied().collect();
        loop {
            let edges = self
                .edges_of(kinds)
                .filter(|edge| left.contains(&edge.source));
            let targets: BTreeSet<BlockId> = edges.map(|edge| edge.target).collect();
            let before = left.len();
            left.retain(|id| targets.contains(id));
            if left.is_empty() {
                return true;
            }
            if left.len() == before {
                return false;
            }
        }
    }

    /// The strongly connected components: blocks are together when each reaches the other. Every block is in
    /// exactly one, possibly alone.
    #[must_use]
    pub fn strong_components(&self, kinds: &[&str]) -> BTreeSet<BTreeSet<BlockId>> {
        let reached: BTreeMap<BlockId, BTreeSet<BlockId>> = self
            .blocks
            .keys()
            .map(|id| {
                let depths = self.breadth_first(*id, Direction::Out, kinds, u32::MAX);
                (*id, depths.into_keys().collect())
            })
            .collect();
        reached
            .iter()
            .map(|(id, from_here)| {
                from_here
                    .iter()
                    .filter(|other| reached[*other].contains(id))
                    .copied()
                    .collect()
            })
            .collect()
    }

    fn edges_of<'a>(&'a self, kinds: &'a [&str]) -> impl Iterator<Item = &'a EdgeKey> {
        let wanted = |edge: &&EdgeKey| kinds.is_empty() || kinds.contains(&edge.kind.as_str());
        self.edges.keys().filter(wanted)
    }
}
