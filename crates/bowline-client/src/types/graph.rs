//! What the graph is made of, and what questions about it are answered with.

use std::collections::BTreeMap;

use bowline_proto::v1 as pb;
use bytes::Bytes;

use super::block_id::{BlockId, id_bytes};

/// Named texts on a block or an edge, in the order of their names.
pub type Attributes = BTreeMap<String, String>;

/// A node of the graph: content with an id, a kind and attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Its id, unique in the database.
    pub id: BlockId,
    /// The name of its kind.
    pub kind: String,
    /// Any bytes.
    pub content: Bytes,
    /// Its attributes.
    pub attributes: Attributes,
}

impl Block {
    /// A block without content and attributes.
    #[must_use]
    pub fn new(id: BlockId, kind: impl Into<String>) -> Block {
        Block {
            id,
            kind: kind.into(),
            content: Bytes::new(),
            attributes: Attributes::new(),
        }
    }

    /// Replaces the content.
    #[must_use]
    pub fn content(mut self, content: impl Into<Bytes>) -> Block {
        self.content = content.into();
        self
    }

    /// Adds or replaces one attribute.
    #[must_use]
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Block {
        self.attributes.insert(name.into(), value.into());
        self
    }

    pub(crate) fn into_wire(self) -> pb::Block {
        pb::Block {
            id: id_bytes(self.id),
            kind: self.kind,
            content: self.content,
            attributes: self.attributes,
        }
    }
}

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
            source: id_bytes(self.source),
            kind: self.kind,
            target: id_bytes(self.target),
        }
    }
}

/// A directed tie between two blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// Which.
    pub key: EdgeKey,
    /// Its attributes.
    pub attributes: Attributes,
}

impl Edge {
    /// An edge without attributes.
    #[must_use]
    pub fn new(source: BlockId, kind: impl Into<String>, target: BlockId) -> Edge {
        Edge {
            key: EdgeKey::new(source, kind, target),
            attributes: Attributes::new(),
        }
    }

    /// Adds or replaces one attribute.
    #[must_use]
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<String>) -> Edge {
        self.attributes.insert(name.into(), value.into());
        self
    }
}

/// Which edges of a block are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Direction {
    /// From source to target.
    #[default]
    Out,
    /// From target to source.
    In,
    /// Either way.
    Both,
}

impl Direction {
    pub(crate) fn into_wire(self) -> pb::Direction {
        match self {
            Direction::Out => pb::Direction::Out,
            Direction::In => pb::Direction::In,
            Direction::Both => pb::Direction::Both,
        }
    }
}

/// A block next to another.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Neighbor {
    /// The other block.
    pub id: BlockId,
    /// The kind of the edge between them.
    pub kind: String,
    /// `Out` when the edge goes to the neighbour, `In` when it comes from it.
    pub direction: Direction,
}

/// One step of a traversal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Visit {
    /// The block.
    pub id: BlockId,
    /// How many edges from the start.
    pub depth: u32,
    /// The block it was reached from, and the kind of the edge; `None` for a start.
    pub from: Option<(BlockId, String)>,
}

/// Which bound ended a traversal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stop {
    /// None: everything reachable was visited.
    Exhausted,
    /// Everything within the depth was visited, and there is more beyond.
    MaxDepth,
    /// As many blocks as the limit were visited, and there are more.
    Limit,
    /// The record of the next block would have gone over the bytes.
    MaxBytes,
    /// As many blocks as the server allows were visited, and there are more.
    LimitOfServer,
}

/// A path between two blocks.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Path {
    /// The blocks, both ends included.
    pub blocks: Vec<BlockId>,
    /// The kinds of the edges between them; one fewer than blocks.
    pub kinds: Vec<String>,
    /// The number of edges, or the sum of their weights.
    pub cost: f64,
}
