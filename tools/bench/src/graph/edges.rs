//! The Kronecker graph of the GAP benchmark suite (Beamer, Asanović, Patterson, 2015): an RMAT graph with
//! A = 0.57, B = C = 0.19 and 16 generated edges a vertex.
//!
//! Edges are directed. As GAP's builder does, duplicates and loops are removed, so that somewhat fewer than
//! 16 edges a vertex are left. Vertices are numbered by the rank of their ids, which are in random order: the
//! vertices of large degree are not neighbors in memory.
//!
//! The graph depends on the scale alone: every random number is computed from the fixed seed.

use bowline::BlockId;
use fastrand::Rng;

use crate::data::{SEED, key, spread};

/// Generated edges a vertex.
pub const EDGE_FACTOR: u64 = 16;

/// From one vertex to another, by rank.
pub type Edge = (u32, u32);

/// All vertices and edges.
pub struct Edges {
    scale: u32,
    /// The id of each rank, in order.
    pub ids: Vec<BlockId>,
    /// The rank of each number of the generator.
    ranks: Vec<u32>,
    /// In order, each once.
    pub edges: Vec<Edge>,
}

impl Edges {
    /// The graph of 2^`scale` vertices.
    pub fn generate(scale: u32) -> Edges {
        let vertices = 1u64 << scale;
        let id = |number| BlockId::from_bytes(key(number));
        let mut numbers: Vec<(BlockId, u32)> = (0..vertices)
            .map(|number| (id(number), number as u32))
            .collect();
        numbers.sort_unstable();
        let mut ranks = vec![0; numbers.len()];
        for (rank, &(_, number)) in numbers.iter().enumerate() {
            ranks[number as usize] = rank as u32;
        }
        let mut all = Edges {
            scale,
            ids: numbers.into_iter().map(|(id, _)| id).collect(),
            ranks,
            edges: Vec::new(),
        };
        all.edges = (0..EDGE_FACTOR * vertices)
            .map(|number| all.generated(number))
            .filter(|(source, target)| source != target)
            .collect();
        all.edges.sort_unstable();
        all.edges.dedup();
        all
    }

    /// The edge of a number: each level of the matrix halves the ranges of both ends.
    fn generated(&self, number: u64) -> Edge {
        const A: u64 = part(57);
        const AB: u64 = part(57 + 19);
        const ABC: u64 = part(57 + 19 + 19);
        let (mut source, mut target) = (0usize, 0usize);
        for level in 0..self.scale {
            let random = spread((number << 5) | u64::from(level));
            source = (source << 1) | usize::from(random >= AB);
            target = (target << 1) | usize::from((A..AB).contains(&random) || random >= ABC);
        }
        (self.ranks[source], self.ranks[target])
    }

    /// The edges in random order.
    pub fn shuffled(&self) -> Vec<Edge> {
        let mut edges = self.edges.clone();
        Rng::with_seed(SEED).shuffle(&mut edges);
        edges
    }

    /// The edges from their targets, in order.
    pub fn reversed(&self) -> Vec<Edge> {
        let mut reversed: Vec<_> = self.edges.iter().map(|&(near, far)| (far, near)).collect();
        reversed.sort_unstable();
        reversed
    }

    /// Changes of one edge in a hundred: half of them are deleted, as many are new and of the same
    /// distribution.
    pub fn changes(&self) -> Changes {
        let half = self.edges.len() / 200;
        let mut deleted = self.shuffled();
        deleted.truncate(half);
        let mut put = Vec::new();
        let mut is_known = std::collections::HashSet::new();
        let mut number = EDGE_FACTOR << self.scale;
        while put.len() < half {
            let edge = self.generated(number);
            number += 1;
            let is_new = self.edges.binary_search(&edge).is_err() && is_known.insert(edge);
            if edge.0 != edge.1 && is_new {
                put.push(edge);
            }
        }
        Changes { deleted, put }
    }

    /// The edges after some changes, in order.
    pub fn changed(&self, changes: &Changes) -> Vec<Edge> {
        let mut deleted = changes.deleted.clone();
        deleted.sort_unstable();
        let kept = self
            .edges
            .iter()
            .filter(|edge| deleted.binary_search(edge).is_err());
        let mut edges: Vec<Edge> = kept.chain(&changes.put).copied().collect();
        edges.sort_unstable();
        edges
    }
}

/// Edges that go and edges that come.
pub struct Changes {
    pub deleted: Vec<Edge>,
    pub put: Vec<Edge>,
}

impl Changes {
    pub fn count(&self) -> usize {
        self.deleted.len() + self.put.len()
    }
}

/// So many hundredths of the range of a `u64`.
const fn part(hundredths: u64) -> u64 {
    u64::MAX / 100 * hundredths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_graph_is_the_same_every_time_and_skewed() {
        let (one, two) = (Edges::generate(8), Edges::generate(8));
        assert_eq!(one.ids, two.ids);
        assert_eq!(one.edges, two.edges);
        assert_eq!(one.shuffled(), two.shuffled());
        // Another seed or another order of random numbers changes this: figures before and after cannot be
        // compared.
        let folded = one.edges.iter().fold(0, |folded, &(source, target)| {
            spread(folded ^ (u64::from(source) << 32) ^ u64::from(target))
        });
        assert_eq!((one.edges.len(), folded), (2_569, 0x17F6_358E_3A66_F95B));
        assert!(one.ids.is_sorted() && one.edges.is_sorted());
        assert!(one.edges.iter().all(|(source, target)| source != target));
        // In an RMAT graph the largest degree is a multiple of the mean.
        let mut degrees = [0; 256];
        for &(source, _) in &one.edges {
            degrees[source as usize] += 1;
        }
        let largest = degrees.iter().max().unwrap();
        assert!(largest * 256 > 5 * one.edges.len(), "{largest}");
    }

    #[test]
    fn one_edge_in_a_hundred_changes() {
        let edges = Edges::generate(8);
        let changes = edges.changes();
        assert_eq!(changes.count(), edges.edges.len() / 200 * 2);
        let changed = edges.changed(&changes);
        assert!(changed.is_sorted_by(|before, after| before < after));
        assert_eq!(changed.len(), edges.edges.len());
        let is_kept = |edge: &&Edge| edges.edges.binary_search(edge).is_ok();
        let kept = changed.iter().filter(is_kept).count();
        assert_eq!(kept, changed.len() - changes.put.len());
    }
}
