//! The subject of a conflict: the key, block or edge that was changed.

use std::fmt;

use bytes::Bytes;

use super::block_id::BlockId;
use super::edge_key::EdgeKey;

/// One thing that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Touched {
    /// A key.
    Key(Bytes),
    /// A block.
    Block(BlockId),
    /// An edge.
    Edge(EdgeKey),
}

impl fmt::Display for Touched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Touched::Key(key) => write!(f, "key \"{}\"", key.escape_ascii()),
            Touched::Block(id) => write!(f, "block {id}"),
            Touched::Edge(key) => {
                write!(f, "edge {} {:?} {}", key.source, key.kind, key.target)
            }
        }
    }
}
