//! [`GraphChanges`]: what commits change of the graph, on its way to the view.

use super::super::kind_id::KindId;
use bowline_types::BlockId;

/// One change of an edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EdgeChange {
    pub source: BlockId,
    pub target: BlockId,
    /// The revision that changes it.
    pub revision: u64,
    pub kind: KindId,
    /// Whether the edge is there afterwards.
    pub is_put: bool,
}

/// The blocks that were put or deleted.
#[derive(Debug, Default)]
pub(super) struct ChangedBlocks {
    pub ids: Vec<BlockId>,
    /// Others may be among them.
    pub are_more: bool,
}

impl ChangedBlocks {
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && !self.are_more
    }

    fn clear(&mut self) {
        self.ids.clear();
        self.are_more = false;
    }
}

/// The changes of edges of some commits, in the order of revisions, and the blocks that they put or delete.
#[derive(Debug, Default)]
pub struct GraphChanges {
    edges: Vec<EdgeChange>,
    blocks: ChangedBlocks,
}

impl GraphChanges {
    /// Adds the change of an edge.
    #[inline]
    pub fn push(&mut self, change: EdgeChange) {
        self.edges.push(change);
    }

    /// Notes that a block was put or deleted.
    #[inline]
    pub fn note_block(&mut self, id: BlockId) {
        self.blocks.ids.push(id);
    }

    /// Notes that blocks were put or deleted: any.
    pub fn note_blocks(&mut self) {
        self.blocks.are_more = true;
    }

    /// How many edges were changed.
    #[inline]
    pub fn edges(&self) -> usize {
        self.edges.len()
    }

    /// Takes all changes of another one, which are later.
    #[inline]
    pub fn append(&mut self, later: &mut GraphChanges) {
        self.edges.append(&mut later.edges);
        self.blocks.ids.append(&mut later.blocks.ids);
        self.blocks.are_more |= std::mem::take(&mut later.blocks.are_more);
    }

    /// Forgets all.
    #[inline]
    pub fn clear(&mut self) {
        self.edges.clear();
        self.blocks.clear();
    }

    /// The blocks that were put or deleted.
    #[inline]
    pub(super) fn blocks(&self) -> &ChangedBlocks {
        &self.blocks
    }

    /// Forgets which these were.
    #[inline]
    pub(super) fn clear_blocks(&mut self) {
        self.blocks.clear();
    }

    /// Moves the changes of edges to the end of a list.
    #[inline]
    pub(super) fn move_edges(&mut self, to: &mut Vec<EdgeChange>) {
        to.append(&mut self.edges);
    }
}
