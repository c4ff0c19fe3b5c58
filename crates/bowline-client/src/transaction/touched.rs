//! What was changed, when a transaction conflicts.

use std::fmt;

use bowline_proto::v1 as pb;
use bytes::Bytes;
use pb::conflict::What;

use crate::Result;
use crate::graph::{BlockId, EdgeKey, id_of};
use crate::v1::senseless;

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

impl Touched {
    pub(super) fn of_wire(what: Option<What>) -> Result<Touched> {
        Ok(match what {
            Some(What::Key(key)) => Touched::Key(key),
            Some(What::Block(id)) => Touched::Block(id_of(&id)?),
            Some(What::Edge(edge)) => Touched::Edge(EdgeKey {
                source: id_of(&edge.source)?,
                kind: edge.kind,
                target: id_of(&edge.target)?,
            }),
            None => return Err(senseless("it does not say what has conflicted")),
        })
    }
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
