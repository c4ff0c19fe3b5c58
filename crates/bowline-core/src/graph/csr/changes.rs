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

/// The changes of edges of some commits, in the order of revisions, and whether they put or delete blocks.
#[derive(Debug, Default)]
pub struct GraphChanges {
    edges: Vec<EdgeChange>,
    has_block: bool,
}

impl GraphChanges {
    /// Adds the change of an edge.
    #[inline]
    pub fn push(&mut self, change: EdgeChange) {
        self.edges.push(change);
    }

    /// Notes that a block was put or deleted, which one does not matter.
    #[inline]
    pub fn note_block(&mut self) {
        self.has_block = true;
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
        self.has_block |= later.take_block();
    }

    /// Forgets all.
    #[inline]
    pub fn clear(&mut self) {
        self.edges.clear();
        self.has_block = false;
    }

    /// Whether a block was put or deleted; asked again, it is not.
    #[inline]
    pub(super) fn take_block(&mut self) -> bool {
        std::mem::take(&mut self.has_block)
    }

    /// Moves the changes of edges to the end of a list.
    #[inline]
    pub(super) fn move_edges(&mut self, to: &mut Vec<EdgeChange>) {
        to.append(&mut self.edges);
    }
}
