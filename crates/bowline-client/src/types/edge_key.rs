//! The key of an edge.

use bowline_proto::v1 as pb;

use super::block_id::BlockId;

/// Which edge: between two blocks there is one of each kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeKey {
    /// Where it starts.
    pub source: BlockId,
    /// The name of its kind.
    pub kind: String,
    /// Where it ends.
    pub target: BlockId,
}

impl EdgeKey {
    /// Says which edge.
    #[must_use]
    pub fn new(source: BlockId, kind: impl Into<String>, target: BlockId) -> EdgeKey {
        EdgeKey {
            source,
            kind: kind.into(),
            target,
        }
    }

    pub(crate) fn into_wire(self) -> pb::EdgeKey {
        pb::EdgeKey {
            source: self.source.to_wire(),
            kind: self.kind,
            target: self.target.to_wire(),
        }
    }
}
