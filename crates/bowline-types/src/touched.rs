//! [`Touched`]: the item that a conflict names.

use std::fmt;

use bytes::Bytes;

use crate::{BlockId, EdgeKey, show_key};

/// One thing that another transaction has changed.
///
/// ```
/// use bowline_types::{BlockId, Touched};
///
/// assert_eq!(Touched::Key("count".into()).to_string(), r#"key "count""#);
/// assert!(Touched::Block(BlockId(7)).to_string().starts_with("block 0000"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
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
            Touched::Key(key) => write!(f, "key {}", show_key(key)),
            Touched::Block(id) => write!(f, "block {id}"),
            Touched::Edge(key) => write!(f, "edge {key}"),
        }
    }
}
