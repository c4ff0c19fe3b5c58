//! Blocks, edges and what else the graph answers with, from the messages of `bowline.v1`.
//!
//! Invariant: a message that makes no sense is an error and never a guess.

use bowline_proto::v1 as pb;
use bytes::Bytes;

use super::{Block, BlockId, Direction, Edge, EdgeKey, Neighbor, Path, Stop, Visit};
use crate::Result;
use crate::v1::senseless;

pub(crate) fn id_of(bytes: &[u8]) -> Result<BlockId> {
    let bytes = bytes.try_into();
    bytes
        .map(BlockId::from_bytes)
        .map_err(|_| senseless("a block's id has not 16 bytes"))
}

pub(super) fn ids_of(all: &[Bytes]) -> Result<Vec<BlockId>> {
    all.iter().map(|bytes| id_of(bytes)).collect()
}

impl Block {
    pub(crate) fn of_wire(block: pb::Block) -> Result<Block> {
        Ok(Block {
            id: id_of(&block.id)?,
            kind: block.kind,
            content: block.content,
            attributes: block.attributes,
        })
    }
}

impl Edge {
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

impl Visit {
    pub(crate) fn of_wire(visit: pb::Visit) -> Result<Visit> {
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

impl Stop {
    pub(crate) fn of_wire(end: pb::TraverseEnd) -> Result<Stop> {
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

impl Path {
    pub(crate) fn of_wire(path: pb::Path) -> Result<Path> {
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
    use crate::Error;
    use crate::types::id_bytes;

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
}
