//! What the graph is made of, and what questions about it are answered with.

use std::collections::BTreeMap;

use bowline_proto::v1 as pb;
use bytes::Bytes;

use crate::error::Result;
use crate::types::{BlockId, EdgeKey};
use crate::v1::{id_of, ids_of, senseless};

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

    pub(crate) fn of_wire(block: pb::Block) -> Result<Block> {
        Ok(Block {
            id: id_of(&block.id)?,
            kind: block.kind,
            content: block.content,
            attributes: block.attributes,
        })
    }

    pub(crate) fn into_wire(self) -> pb::Block {
        pb::Block {
            id: self.id.to_wire(),
            kind: self.kind,
            content: self.content,
            attributes: self.attributes,
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

    pub(crate) fn of_wire(edge: pb::Edge) -> Result<Edge> {
        let key = edge.key.unwrap_or_default();
        Ok(Edge {
            key: EdgeKey {
                source: id_of(&key.source)?,
                kind: key.kind,
                target: id_of(&key.target)?,
            },
            attributes: edge.attributes,
        })
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
    pub(super) fn into_wire(self) -> pb::Direction {
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

impl Neighbor {
    pub(crate) fn of_wire(neighbor: pb::Neighbor) -> Result<Neighbor> {
        let direction = match pb::Direction::try_from(neighbor.direction) {
            Ok(pb::Direction::Out) => Direction::Out,
            Ok(pb::Direction::In) => Direction::In,
            Ok(pb::Direction::Both) | Err(_) => {
                return Err(senseless("a neighbour is in no direction that is known"));
            }
        };
        Ok(Neighbor {
            id: id_of(&neighbor.id)?,
            kind: neighbor.kind,
            direction,
        })
    }
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

impl Visit {
    pub(super) fn of_wire(visit: pb::Visit) -> Result<Visit> {
        let from = match &visit.parent[..] {
            [] => None,
            parent => Some((id_of(parent)?, visit.kind)),
        };
        Ok(Visit {
            id: id_of(&visit.id)?,
            depth: visit.depth,
            from,
        })
    }
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

impl Stop {
    pub(super) fn of_wire(end: pb::TraverseEnd) -> Result<Stop> {
        Ok(match pb::Stop::try_from(end.stop) {
            Ok(pb::Stop::Exhausted) => Stop::Exhausted,
            Ok(pb::Stop::MaxDepth) => Stop::MaxDepth,
            Ok(pb::Stop::Limit) if end.is_of_server => Stop::LimitOfServer,
            Ok(pb::Stop::Limit) => Stop::Limit,
            Ok(pb::Stop::MaxBytes) => Stop::MaxBytes,
            Err(_) => return Err(senseless("why the traversal ended is not known")),
        })
    }
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

impl Path {
    pub(super) fn of_wire(path: pb::Path) -> Result<Path> {
        if path.kinds.len() + 1 != path.blocks.len() {
            return Err(senseless("a path has not one edge between each two blocks"));
        }
        Ok(Path {
            blocks: ids_of(&path.blocks)?,
            kinds: path.kinds,
            cost: path.cost,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn is_senseless<T: std::fmt::Debug>(read: &Result<T>) -> bool {
        matches!(read, Err(Error::InvalidReply { .. }))
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_an_error_and_not_guessed() {
        let id = BlockId(7).to_wire();
        assert!(is_senseless(&Block::of_wire(pb::Block::default())));
        assert!(is_senseless(&Edge::of_wire(pb::Edge::default())));
        for direction in [2, 3, -1] {
            assert!(is_senseless(&Neighbor::of_wire(pb::Neighbor {
                id: id.clone(),
                direction,
                ..pb::Neighbor::default()
            })));
        }
        assert!(is_senseless(&Visit::of_wire(pb::Visit {
            id: id.clone(),
            parent: Bytes::from_static(b"short"),
            ..pb::Visit::default()
        })));
        assert!(is_senseless(&Stop::of_wire(pb::TraverseEnd {
            stop: 9,
            ..pb::TraverseEnd::default()
        })));
        for kinds in [0, 2] {
            assert!(is_senseless(&Path::of_wire(pb::Path {
                blocks: vec![id.clone(), id.clone()],
                kinds: vec!["k".to_owned(); kinds],
                cost: 1.0,
            })));
        }
    }
}
