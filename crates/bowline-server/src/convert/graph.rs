//! Conversion between the messages of `bowline.v1` and the node's graph types.
//!
//! An id that is not 16 bytes long, an unknown value of an enumeration, an empty write: all are refused here,
//! before anything is read or proposed.

use bowline::{Attributes, Block, BlockId, BlockKinds, Direction, Edge, Neighbor, Stop, Visit};
use bowline_cluster::ReadLevel;
use bowline_proto::attributes::{of_wire, to_wire};
use bowline_proto::kinds;
use bowline_proto::v1 as pb;
use bowline_replica::{EdgeKey, GraphWrite};
use bytes::Bytes;
use pb::graph_write::Write;

use crate::status::Fault;

/// The most writes, ids or keys of one request.
pub(crate) const ITEMS_MAX: usize = 10_000;

/// The level and revision of a read; revision 0 is the newest.
pub(crate) fn read(read: Option<pb::Read>) -> Result<(ReadLevel, u64), Fault> {
    let read = read.unwrap_or_default();
    let level = match pb::ReadLevel::try_from(read.level) {
        Ok(pb::ReadLevel::Linearizable) => ReadLevel::Linearizable,
        Ok(pb::ReadLevel::Lease) => ReadLevel::Lease,
        Ok(pb::ReadLevel::Eventual) => ReadLevel::Eventual,
        Err(_) => return Err(Fault::Invalid("the read level is not known: use 0, 1 or 2")),
    };
    Ok((level, read.revision))
}

/// A level for a reply header.
pub(crate) fn read_level(level: ReadLevel) -> pb::ReadLevel {
    match level {
        ReadLevel::Linearizable => pb::ReadLevel::Linearizable,
        ReadLevel::Lease => pb::ReadLevel::Lease,
        ReadLevel::Eventual => pb::ReadLevel::Eventual,
    }
}

/// An id from a request.
pub(crate) fn id(bytes: &[u8]) -> Result<BlockId, Fault> {
    bytes
        .try_into()
        .map(BlockId::from_bytes)
        .map_err(|_| Fault::Invalid("a block's id has 16 bytes: send those of its UUID"))
}

/// An id for a reply.
pub(crate) fn id_bytes(id: BlockId) -> Bytes {
    Bytes::copy_from_slice(&id.to_bytes())
}

/// Several ids.
pub(crate) fn ids(all: &[Bytes]) -> Result<Vec<BlockId>, Fault> {
    check_count(all.len())?;
    all.iter().map(|bytes| id(bytes)).collect()
}

/// Refuses an empty request, and one that is too large.
pub(crate) fn check_count(count: usize) -> Result<(), Fault> {
    match count {
        0 => Err(Fault::Invalid(
            "the request names nothing: give at least one",
        )),
        1..=ITEMS_MAX => Ok(()),
        _ => Err(Fault::Invalid(
            "the request has more than 10,000 parts: split it",
        )),
    }
}

/// The direction in which edges are followed.
pub(crate) fn direction(number: i32) -> Result<Direction, Fault> {
    match pb::Direction::try_from(number) {
        Ok(pb::Direction::Out) => Ok(Direction::Out),
        Ok(pb::Direction::In) => Ok(Direction::In),
        Ok(pb::Direction::Both) => Ok(Direction::Both),
        Err(_) => Err(Fault::Invalid("the direction is not known: use 0, 1 or 2")),
    }
}

/// Whether a traversal goes depth-first.
pub(crate) fn is_depth_first(number: i32) -> Result<bool, Fault> {
    match pb::TraverseOrder::try_from(number) {
        Ok(pb::TraverseOrder::BreadthFirst) => Ok(false),
        Ok(pb::TraverseOrder::DepthFirst) => Ok(true),
        Err(_) => Err(Fault::Invalid(
            "the order of the traversal is not known: use 0 or 1",
        )),
    }
}

/// The ends and kind of an edge.
pub(crate) type Key = (BlockId, String, BlockId);

/// One edge.
pub(crate) fn key(key: pb::EdgeKey) -> Result<Key, Fault> {
    Ok((id(&key.source)?, key.kind, id(&key.target)?))
}

/// Several edges.
pub(crate) fn keys(all: Vec<pb::EdgeKey>) -> Result<Vec<Key>, Fault> {
    check_count(all.len())?;
    all.into_iter().map(key).collect()
}

/// Writes.
pub(crate) fn writes(request: pb::WriteRequest) -> Result<Vec<GraphWrite>, Fault> {
    check_count(request.writes.len())?;
    request.writes.into_iter().map(write).collect()
}

/// One write.
pub(crate) fn write(write: pb::GraphWrite) -> Result<GraphWrite, Fault> {
    Ok(match write.write {
        Some(Write::PutBlock(block) | Write::PutTypedBlock(block)) => {
            if !block.kinds.is_empty() {
                return Err(Fault::Invalid(
                    "a block of several kinds is written by put_block_of_kinds",
                ));
            }
            // An empty kind is refused later: it was forgotten.
            let kinds = block.kind.clone().into();
            put_block(block, kinds)?
        }
        Some(Write::PutBlockOfKinds(mut block)) => {
            let kind = std::mem::take(&mut block.kind);
            let kinds = kinds::of_wire(kind, std::mem::take(&mut block.kinds));
            put_block(block, kinds.map_err(Fault::Invalid)?)?
        }
        Some(Write::DeleteBlock(bytes)) => GraphWrite::DeleteBlock(id(&bytes)?),
        Some(Write::PutEdge(edge) | Write::PutTypedEdge(edge)) => {
            let (source, kind, target) = key(edge.key.unwrap_or_default())?;
            GraphWrite::PutEdge(Edge {
                source,
                kind,
                target,
                attributes: of_wire(edge.attributes, edge.typed_attributes)
                    .map_err(Fault::Invalid)?,
            })
        }
        Some(Write::DeleteEdge(edge)) => {
            let (source, kind, target) = key(edge)?;
            GraphWrite::DeleteEdge(EdgeKey {
                source,
                kind,
                target,
            })
        }
        None => {
            return Err(Fault::Invalid(
                "a write says nothing that this server knows: put or delete a block or an edge",
            ));
        }
    })
}

fn put_block(block: pb::Block, kinds: BlockKinds) -> Result<GraphWrite, Fault> {
    let attributes = of_wire(block.attributes, block.typed_attributes);
    Ok(GraphWrite::PutBlock(Block {
        id: id(&block.id)?,
        kinds,
        content: block.content,
        attributes: attributes.map_err(Fault::Invalid)?,
    }))
}

// --- replies ---

/// A block; without its content unless the request asked for it.
pub(crate) fn block(block: Block, without_content: bool) -> pb::Block {
    let (attributes, typed_attributes) = to_wire(block.attributes);
    let (kind, kinds) = kinds::to_wire(block.kinds);
    pb::Block {
        id: id_bytes(block.id),
        kind,
        content: if without_content {
            Bytes::new()
        } else {
            block.content
        },
        attributes,
        typed_attributes,
        kinds,
    }
}

/// An edge.
pub(crate) fn edge(edge: Edge) -> pb::Edge {
    let (attributes, typed_attributes) = to_wire(edge.attributes);
    pb::Edge {
        key: Some(pb::EdgeKey {
            source: id_bytes(edge.source),
            kind: edge.kind,
            target: id_bytes(edge.target),
        }),
        attributes,
        typed_attributes,
    }
}

/// The approximate size of attributes in bytes.
pub(crate) fn size_of(attributes: &Attributes) -> usize {
    let pairs = attributes.iter();
    pairs
        .map(|(name, value)| name.len() + value.size_bytes() + 16)
        .sum()
}

/// A neighbor.
pub(crate) fn neighbor(neighbor: &Neighbor) -> pb::Neighbor {
    let direction = match neighbor.direction {
        Direction::Out => pb::Direction::Out,
        Direction::In => pb::Direction::In,
        Direction::Both => pb::Direction::Both,
    };
    pb::Neighbor {
        id: id_bytes(neighbor.id),
        kind: neighbor.kind.to_string(),
        direction: direction.into(),
    }
}

/// A step of a traversal.
pub(crate) fn visit(visit: &Visit) -> pb::Visit {
    pb::Visit {
        id: id_bytes(visit.id),
        depth: visit.depth,
        parent: visit.parent.map(id_bytes).unwrap_or_default(),
        kind: visit.kind.as_deref().unwrap_or_default().to_owned(),
    }
}

/// Why a traversal ended.
pub(crate) fn stop(stop: Stop) -> pb::Stop {
    match stop {
        Stop::Exhausted => pb::Stop::Exhausted,
        Stop::MaxDepth => pb::Stop::MaxDepth,
        Stop::Limit | Stop::LimitOfServer => pb::Stop::Limit,
        Stop::MaxBytes => pb::Stop::MaxBytes,
        Stop::MaxNeighbors => pb::Stop::MaxNeighbors,
    }
}
