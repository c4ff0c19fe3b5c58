//! [`GraphSource`]: the interface of the algorithms to one consistent snapshot, read in key order.

use super::keys::edge_out_key;
use super::kind_id::{KindId, KindIds};
use super::lent::AttributeRef;
use super::path::PathEdge;
use crate::error::show_key;
use crate::{Error, Result};
use bowline_types::{Attributes, BlockId, Direction};

/// Receives the source, kind and target of an edge, and the value of one of its attributes.
pub type VisitEdgeValue<'a> = &'a mut dyn FnMut(BlockId, KindId, BlockId, Option<AttributeRef<'_>>);

/// A snapshot of a graph. Every call sees the same revision.
pub trait GraphSource {
    /// Calls `visit` with the neighbors of `id` in `direction` over edges whose kind passes, while it
    /// returns `true`; in key order (kind, then id). For [`Direction::Both`]: those over leaving edges,
    /// then those over arriving ones, so a block tied to itself is its own neighbor twice.
    fn visit_neighbors(
        &self,
        id: BlockId,
        direction: Direction,
        kinds: &KindFilter,
        visit: &mut dyn FnMut(NeighborRef) -> bool,
    ) -> Result<()>;

    /// Appends the neighbors that [`visit_neighbors`](GraphSource::visit_neighbors) visits. Clears nothing.
    fn neighbors(
        &self,
        id: BlockId,
        direction: Direction,
        kinds: &KindFilter,
        out: &mut Vec<NeighborRef>,
    ) -> Result<()> {
        self.visit_neighbors(id, direction, kinds, &mut |neighbor| {
            out.push(neighbor);
            true
        })
    }

    /// The size of the stored record of a block; `None` when there is no such block.
    fn block_size_bytes(&self, id: BlockId) -> Result<Option<u64>>;

    /// The attributes of an edge; `None` when there is no such edge.
    fn edge_attributes(
        &self,
        source: BlockId,
        kind: KindId,
        target: BlockId,
    ) -> Result<Option<Attributes>>;

    /// Visits every block with its kinds, in ascending order of ids.
    fn for_each_block(&self, visit: &mut dyn FnMut(BlockId, KindIds<'_>)) -> Result<()>;

    /// Visits every edge as (source, kind, target), in ascending order.
    fn for_each_edge(&self, visit: &mut dyn FnMut(BlockId, KindId, BlockId)) -> Result<()>;

    /// Visits every edge as [`for_each_edge`](GraphSource::for_each_edge) does, with the value of one of its attributes.
    fn for_each_edge_value(&self, attribute: &str, visit: VisitEdgeValue<'_>) -> Result<()>;

    /// Fails when the question was canceled.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// One end of an edge, seen from the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighborRef {
    /// The block at the other end.
    pub id: BlockId,
    /// The kind of the edge.
    pub kind: KindId,
    /// [`Direction::Out`] when the edge leaves the queried block, [`Direction::In`] when it arrives
    /// there; never [`Direction::Both`].
    pub direction: Direction,
}

impl NeighborRef {
    /// The edge between `from`, the queried block, and this neighbor: (source, target).
    #[must_use]
    pub fn ends(&self, from: BlockId) -> (BlockId, BlockId) {
        match self.direction {
            Direction::In => (self.id, from),
            Direction::Out | Direction::Both => (from, self.id),
        }
    }

    /// The edge to it, as a path has it.
    pub(super) fn edge(&self) -> PathEdge {
        PathEdge {
            kind: self.kind,
            direction: self.direction,
        }
    }
}

/// Which kinds of edges are followed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum KindFilter {
    /// Every kind.
    #[default]
    All,
    /// These only: ascending, each once.
    Only(Vec<KindId>),
}

impl KindFilter {
    /// Follows these kinds only; without any, no edge at all.
    pub fn only(kinds: impl IntoIterator<Item = KindId>) -> KindFilter {
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_unstable();
        kinds.dedup();
        KindFilter::Only(kinds)
    }

    /// Whether edges of this kind are followed.
    pub fn passes(&self, kind: KindId) -> bool {
        match self {
            KindFilter::All => true,
            KindFilter::Only(kinds) => kinds.binary_search(&kind).is_ok(),
        }
    }
}

/// Refuses to start at a block that does not exist.
pub(crate) fn require_block(graph: &impl GraphSource, id: BlockId) -> Result<()> {
    match graph.block_size_bytes(id)? {
        Some(_) => Ok(()),
        None => Err(Error::MissingBlock { id }),
    }
}

/// The error for an edge to an absent block. Commits refuse such edges, so a foreign writer made it.
pub(crate) fn dangling_edge(source: BlockId, kind: KindId, target: BlockId) -> Error {
    Error::InvalidRecord {
        what: "edge",
        key: show_key(&edge_out_key(source, kind, target)),
        reason: "one of its blocks does not exist",
    }
}

/// The error for an edge under `key` that is in only one of `edge_out` and `edge_in`. Commits write both, so
/// a foreign writer made it.
pub(crate) fn one_sided_edge(key: &[u8]) -> Error {
    Error::InvalidRecord {
        what: "edge",
        key: show_key(key),
        reason: "its entry for the other direction does not exist",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_passes_what_was_named_in_any_order() {
        let filter = KindFilter::only([9, 2, 9, 5].map(KindId));
        assert_eq!(
            filter,
            KindFilter::Only(vec![KindId(2), KindId(5), KindId(9)])
        );
        for kind in 0..12 {
            assert_eq!(
                filter.passes(KindId(kind)),
                [2, 5, 9].contains(&kind),
                "{kind}"
            );
            assert!(KindFilter::All.passes(KindId(kind)));
            assert!(!KindFilter::only([]).passes(KindId(kind)));
        }
    }
}
