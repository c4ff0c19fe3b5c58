//! Conversion of blocks, edges, writes and results to and from the messages of `bowline.v1`.
//!
//! Invariant: an invalid message is an error, never a guess.

use bowline_proto::attributes::{of_wire, to_wire};
use bowline_proto::kinds;
use bowline_proto::v1 as pb;
use bytes::Bytes;

use super::{Block, BlockId, Direction, Edge, EdgeKey, GraphWrite, Neighbor, Path, Stop, Visit};
use crate::Result;
use crate::v1::senseless;

/// A type that is decoded from a message.
pub(crate) trait FromWire: Sized {
    /// The message.
    type Wire;

    /// Decodes the message; an invalid message is an error.
    fn of_wire(wire: Self::Wire) -> Result<Self>;
}

/// A type that is encoded as a message.
pub(crate) trait IntoWire {
    /// The message.
    type Wire;

    /// Encodes the message.
    fn into_wire(self) -> Self::Wire;
}

/// An id as messages carry it.
pub(crate) fn id_bytes(id: BlockId) -> Bytes {
    Bytes::copy_from_slice(&id.to_bytes())
}

pub(crate) fn id_of(bytes: &[u8]) -> Result<BlockId> {
    let bytes = bytes.try_into();
    bytes
        .map(BlockId::from_bytes)
        .map_err(|_| senseless("a block's id has not 16 bytes"))
}

pub(super) fn ids_of(all: &[Bytes]) -> Result<Vec<BlockId>> {
    all.iter().map(|bytes| id_of(bytes)).collect()
}

impl FromWire for Block {
    type Wire = pb::Block;

    fn of_wire(block: pb::Block) -> Result<Block> {
        Ok(Block {
            id: id_of(&block.id)?,
            kinds: kinds::of_wire(block.kind, block.kinds).map_err(senseless)?,
            content: block.content,
            attributes: of_wire(block.attributes, block.typed_attributes).map_err(senseless)?,
        })
    }
}

impl FromWire for Edge {
    type Wire = pb::Edge;

    fn of_wire(edge: pb::Edge) -> Result<Edge> {
        let key = edge.key.unwrap_or_default();
        Ok(Edge {
            source: id_of(&key.source)?,
            kind: key.kind,
            target: id_of(&key.target)?,
            attributes: of_wire(edge.attributes, edge.typed_attributes).map_err(senseless)?,
        })
    }
}

impl FromWire for Neighbor {
    type Wire = pb::Neighbor;

    fn of_wire(neighbor: pb::Neighbor) -> Result<Neighbor> {
        let direction = match pb::Direction::try_from(neighbor.direction) {
            Ok(pb::Direction::Out) => Direction::Out,
            Ok(pb::Direction::In) => Direction::In,
            Ok(pb::Direction::Both) | Err(_) => {
                return Err(senseless("a neighbor is in no direction that is known"));
            }
        };
        Ok(Neighbor {
            id: id_of(&neighbor.id)?,
            kind: neighbor.kind.into(),
            direction,
        })
    }
}

impl FromWire for Visit {
    type Wire = pb::Visit;

    fn of_wire(visit: pb::Visit) -> Result<Visit> {
        let (parent, kind) = match &visit.parent[..] {
            [] => (None, None),
            parent => (Some(id_of(parent)?), Some(visit.kind.into())),
        };
        Ok(Visit {
            id: id_of(&visit.id)?,
            depth: visit.depth,
            parent,
            kind,
        })
    }
}

impl FromWire for Stop {
    type Wire = pb::TraverseEnd;

    fn of_wire(end: pb::TraverseEnd) -> Result<Stop> {
        Ok(match pb::Stop::try_from(end.stop) {
            Ok(pb::Stop::Exhausted) => Stop::Exhausted,
            Ok(pb::Stop::MaxDepth) => Stop::MaxDepth,
            Ok(pb::Stop::Limit) if end.is_of_server => Stop::LimitOfServer,
            Ok(pb::Stop::Limit) => Stop::Limit,
            Ok(pb::Stop::MaxBytes) => Stop::MaxBytes,
            Ok(pb::Stop::MaxNeighbors) => Stop::MaxNeighbors,
            Err(_) => return Err(senseless("why the traversal ended is not known")),
        })
    }
}

impl FromWire for Path {
    type Wire = pb::Path;

    fn of_wire(path: pb::Path) -> Result<Path> {
        if path.kinds.len() + 1 != path.blocks.len() {
            return Err(senseless("a path has not one edge between each two blocks"));
        }
        Ok(Path {
            blocks: ids_of(&path.blocks)?,
            kinds: path.kinds.into_iter().map(Into::into).collect(),
            cost: path.cost,
        })
    }
}

impl IntoWire for Block {
    type Wire = pb::Block;

    fn into_wire(self) -> pb::Block {
        let (attributes, typed_attributes) = to_wire(self.attributes);
        let (kind, kinds) = kinds::to_wire(self.kinds);
        pb::Block {
            id: id_bytes(self.id),
            kind,
            content: self.content,
            attributes,
            typed_attributes,
            kinds,
        }
    }
}

impl IntoWire for EdgeKey {
    type Wire = pb::EdgeKey;

    fn into_wire(self) -> pb::EdgeKey {
        pb::EdgeKey {
            source: id_bytes(self.source),
            kind: self.kind,
            target: id_bytes(self.target),
        }
    }
}

impl IntoWire for Direction {
    type Wire = pb::Direction;

    fn into_wire(self) -> pb::Direction {
        match self {
            Direction::Out => pb::Direction::Out,
            Direction::In => pb::Direction::In,
            Direction::Both => pb::Direction::Both,
        }
    }
}

impl IntoWire for GraphWrite {
    type Wire = pb::GraphWrite;

    fn into_wire(self) -> pb::GraphWrite {
        use pb::graph_write::Write;
        let write = match self {
            GraphWrite::PutBlock(block) => {
                let has_one_kind = block.kinds.only().is_some();
                let block = block.into_wire();
                match (has_one_kind, block.typed_attributes.is_empty()) {
                    (true, true) => Write::PutBlock(block),
                    (true, false) => Write::PutTypedBlock(block),
                    (false, _) => Write::PutBlockOfKinds(block),
                }
            }
            GraphWrite::DeleteBlock(id) => Write::DeleteBlock(id_bytes(id)),
            GraphWrite::PutEdge(edge) => {
                let (attributes, typed_attributes) = to_wire(edge.attributes);
                let is_plain = typed_attributes.is_empty();
                let edge = pb::Edge {
                    key: Some(EdgeKey::new(edge.source, edge.kind, edge.target).into_wire()),
                    attributes,
                    typed_attributes,
                };
                match is_plain {
                    true => Write::PutEdge(edge),
                    false => Write::PutTypedEdge(edge),
                }
            }
            GraphWrite::DeleteEdge(key) => Write::DeleteEdge(key.into_wire()),
        };
        pb::GraphWrite { write: Some(write) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::graph::BlockKinds;

    fn is_senseless<T: std::fmt::Debug>(read: &Result<T>) -> bool {
        matches!(read, Err(Error::InvalidReply { .. }))
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_an_error_and_not_guessed() {
        let id = id_bytes(BlockId(7));
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

    #[test]
    fn what_an_old_server_would_drop_is_sent_by_a_write_that_it_refuses() {
        use pb::graph_write::Write;
        let plain = Block::new(BlockId(7), "person").attribute("name", "ann");
        let typed = plain.clone().attribute("age", 41);
        let several = plain.clone().kind("author");
        let none = Block::new(BlockId(7), BlockKinds::none());
        for block in [plain, typed, several, none] {
            let (has_kind, has_type) = (block.kinds.only().is_some(), block.attributes.len() == 2);
            let sent = match GraphWrite::PutBlock(block.clone()).into_wire().write {
                Some(Write::PutBlock(sent)) if has_kind && !has_type => sent,
                Some(Write::PutTypedBlock(sent)) if has_kind && has_type => sent,
                Some(Write::PutBlockOfKinds(sent)) if !has_kind => sent,
                other => panic!("{other:?}"),
            };
            assert_eq!(sent.kind.is_empty(), !has_kind);
            assert_eq!(Block::of_wire(sent).expect("it is one"), block);
        }
        assert!(is_senseless(&Block::of_wire(pb::Block {
            id: id_bytes(BlockId(7)),
            kind: "a".to_owned(),
            kinds: vec!["b".to_owned()],
            ..pb::Block::default()
        })));
    }
}
