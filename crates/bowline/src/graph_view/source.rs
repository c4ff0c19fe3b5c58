//! [`Graph`] as a [`GraphSource`]: what algorithms read of its trees.

use std::ops::Bound;

use bowline_storage::EntryKind;
use bowline_storage::engine::ScanDirection;

use super::Graph;
use super::reader::Sources;
use super::records::{invalid, split};
use bowline_core::error::Result;
use bowline_core::graph::{
    self, Attributes, BlockId, Direction, GraphSource, KindFilter, KindId, KindIds, NeighborRef,
    VisitEdgeValue,
};
use bowline_core::trees;

impl Graph {
    /// Calls `read` with the kinds of a block, by its record or the beginning of it. A block with more kinds than that
    /// beginning has is read as a whole.
    pub(crate) fn with_kinds<R>(
        &self,
        key: &[u8],
        head: &[u8],
        read: impl FnOnce(KindIds<'_>) -> R,
    ) -> Result<R> {
        let undecodable = || invalid("block", key, "its record does not decode");
        match graph::block_kinds(head) {
            Some(kinds) => Ok(read(kinds)),
            None => self.raw(trees::BLOCK, key, |bytes| {
                let kinds = bytes.and_then(graph::block_kinds);
                kinds.map(read).ok_or_else(undecodable)
            })?,
        }
    }
}

impl GraphSource for Graph {
    fn visit_neighbors(
        &self,
        id: BlockId,
        direction: Direction,
        kinds: &KindFilter,
        visit: &mut dyn FnMut(NeighborRef) -> bool,
    ) -> Result<()> {
        Sources::of(self)?
            .reader(self)
            .visit_neighbors(id, direction, kinds, visit)
    }

    fn block_size_bytes(&self, id: BlockId) -> Result<Option<u64>> {
        let (engine, at) = (&self.core().engine, self.snapshot.revision());
        let size = |found: Option<bowline_storage::engine::Found<'_>>| {
            let put = found.filter(|found| found.kind == EntryKind::Put);
            put.map(|found| found.value_bytes())
        };
        Ok(engine.peek_at(trees::BLOCK, &graph::block_key(id), at.get(), size)?)
    }

    fn edge_attributes(
        &self,
        source: BlockId,
        kind: KindId,
        target: BlockId,
    ) -> Result<Option<Attributes>> {
        let key = graph::edge_out_key(source, kind, target);
        self.raw(trees::EDGE_OUT, &key, |bytes| {
            let decode = |bytes| {
                let attributes = graph::decode_edge(bytes)
                    .ok_or_else(|| invalid("edge", &key, "its record does not decode"))?;
                Ok(attributes.to_attributes())
            };
            bytes.map(decode).transpose()
        })?
    }

    fn for_each_block(&self, visit: &mut dyn FnMut(BlockId, KindIds<'_>)) -> Result<()> {
        let (engine, at) = (&self.core().engine, self.snapshot.revision());
        let (lower, upper) = (Bound::Unbounded, Bound::Unbounded);
        let scan = engine.scan(trees::BLOCK, lower, upper, at.get(), ScanDirection::Forward);
        // The kinds are at the beginning of the record: large contents need not be read.
        let mut scan = scan.heads();
        while scan.advance()? {
            let key = scan.key();
            let id = key.try_into().map(BlockId::from_bytes);
            let id = id.map_err(|_| invalid("block", key, "its key is not 16 bytes"))?;
            self.cancel.check()?;
            self.with_kinds(key, scan.bytes(), |kinds| visit(id, kinds))?;
        }
        Ok(())
    }

    fn for_each_edge(&self, visit: &mut dyn FnMut(BlockId, KindId, BlockId)) -> Result<()> {
        self.scan(trees::EDGE_OUT, |key, _| {
            self.cancel.check()?;
            let (source, kind, target) = split(key)?;
            visit(source, kind, target);
            Ok(())
        })
    }

    fn check(&self) -> Result<()> {
        self.cancel.check()
    }

    fn for_each_edge_value(&self, attribute: &str, visit: VisitEdgeValue<'_>) -> Result<()> {
        self.scan(trees::EDGE_OUT, |key, bytes| {
            self.cancel.check()?;
            let (source, kind, target) = split(key)?;
            let attributes = graph::decode_edge(bytes)
                .ok_or_else(|| invalid("edge", key, "its record does not decode"))?;
            visit(source, kind, target, attributes.get(attribute));
            Ok(())
        })
    }
}
