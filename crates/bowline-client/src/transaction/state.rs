//! The state of a transaction: its read set, its buffered writes, and the merge of both with stored data.
//!
//! For each key the last write is kept. Deleted ranges are sent before the keys, so that a key that was put
//! into a range after its deletion stays. Writes of the graph are sent in their order.

use std::collections::{BTreeMap, BTreeSet};

use bowline_proto::v1 as pb;
use bowline_types::Revision;
use bytes::Bytes;

use crate::graph::{
    Attributes, Block, BlockId, Direction, Edge, EdgeKey, GraphWrite, IntoWire, Neighbor, id_bytes,
};
use crate::{Entry, KeyRange, LeaseId};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) reads: BTreeSet<Read>,
    pub(super) keys: BTreeMap<Bytes, Own>,
    deleted: Vec<KeyRange>,
    pub(super) expectations: Vec<pb::Expectation>,
    pub(super) blocks: BTreeMap<BlockId, Option<Block>>,
    pub(super) edges: BTreeMap<EdgeKey, Option<Attributes>>,
    /// Blocks that were deleted, maybe put again: none of the edges that are stored is left.
    bare: BTreeSet<BlockId>,
    pub(super) graph: Vec<GraphWrite>,
}

/// Something that was read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Read {
    Key(Bytes),
    Range(Bytes, Bytes),
    Block(BlockId),
    Edge(EdgeKey),
    EdgesOut(BlockId),
    EdgesIn(BlockId),
}

/// What becomes of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Own {
    Put {
        value: Bytes,
        lease: Option<LeaseId>,
    },
    Deleted,
}

/// An entry that is not committed yet, over what was there before.
pub(super) fn own_entry(
    key: Bytes,
    value: Bytes,
    lease: Option<LeaseId>,
    before: Option<Entry>,
) -> Entry {
    Entry {
        key,
        value,
        lease,
        ..before.unwrap_or_default()
    }
}

impl State {
    /// What this transaction has made of a key, if anything.
    pub(super) fn own(&self, key: &[u8]) -> Option<Own> {
        let deleted = || {
            let is_deleted = self.deleted.iter().any(|range| range.contains(key));
            is_deleted.then_some(Own::Deleted)
        };
        self.keys.get(key).cloned().or_else(deleted)
    }

    pub(super) fn delete_range(&mut self, range: KeyRange) {
        self.keys.retain(|key, _| !range.contains(key));
        self.deleted.push(range);
    }

    /// The entries of a range, with its own writes on what is stored, in order.
    pub(super) fn merged(&self, range: &KeyRange, stored: Vec<Entry>) -> Vec<Entry> {
        let stored = stored.into_iter().map(|entry| (entry.key.clone(), entry));
        let mut all: BTreeMap<Bytes, Entry> = stored.collect();
        let mut before = BTreeMap::new();
        for key in all.keys() {
            if let Some(own) = self.own(key) {
                before.insert(key.clone(), own);
            }
        }
        for (key, own) in &self.keys {
            if range.contains(key) {
                before.insert(key.clone(), own.clone());
            }
        }
        for (key, own) in before {
            let stored = all.remove(&key);
            if let Own::Put { value, lease } = own {
                let entry = own_entry(key.clone(), value, lease, stored);
                all.insert(key, entry);
            }
        }
        all.into_values().collect()
    }

    /// What this transaction has made of an edge, if anything.
    pub(super) fn own_edge(&self, key: &EdgeKey) -> Option<Option<Edge>> {
        if let Some(own) = self.edges.get(key) {
            let edge = own
                .clone()
                .map(|attributes| key.clone().with_attributes(attributes));
            return Some(edge);
        }
        self.is_cut(key).then_some(None)
    }

    fn is_cut(&self, key: &EdgeKey) -> bool {
        self.bare.contains(&key.source) || self.bare.contains(&key.target)
    }

    pub(super) fn delete_block(&mut self, id: BlockId) {
        self.blocks.insert(id, None);
        self.bare.insert(id);
        self.edges
            .retain(|key, _| key.source != id && key.target != id);
        self.graph.push(GraphWrite::DeleteBlock(id));
    }

    /// The neighbors of a block, with its own writes on what is stored.
    pub(super) fn neighbors(
        &self,
        id: BlockId,
        direction: Direction,
        stored: Vec<Neighbor>,
    ) -> Vec<Neighbor> {
        let key_of = |neighbor: &Neighbor| match neighbor.direction {
            Direction::In => EdgeKey::new(neighbor.id, &*neighbor.kind, id),
            Direction::Out | Direction::Both => EdgeKey::new(id, &*neighbor.kind, neighbor.id),
        };
        // The transaction's own edges are added below.
        let mut all: Vec<Neighbor> = stored
            .into_iter()
            .filter(|neighbor| {
                let key = key_of(neighbor);
                !self.is_cut(&key) && !self.edges.contains_key(&key)
            })
            .collect();
        for (key, own) in &self.edges {
            if own.is_none() {
                continue;
            }
            let mut add = |end: BlockId, far: BlockId, way: Direction| {
                if end == id && (direction == way || direction == Direction::Both) {
                    all.push(Neighbor {
                        id: far,
                        kind: key.kind.as_str().into(),
                        direction: way,
                    });
                }
            };
            add(key.source, key.target, Direction::Out);
            add(key.target, key.source, Direction::In);
        }
        let way = |direction| u8::from(direction == Direction::In);
        // Own edges are merged in by the names of their kinds; what is stored comes by their numbers.
        all.sort_by(|a, b| {
            (way(a.direction), &a.kind, a.id).cmp(&(way(b.direction), &b.kind, b.id))
        });
        all
    }

    pub(super) fn into_request(
        self,
        read_revision: Option<Revision>,
        isolation: pb::Isolation,
    ) -> pb::CommitRequest {
        use pb::transaction_read::Read as Wire;
        use pb::transaction_write::Write;
        let range = |(key, range_end)| pb::KeyRange { key, range_end };
        let read = |read| pb::TransactionRead {
            read: Some(match read {
                Read::Key(key) => Wire::Key(key),
                Read::Range(key, end) => Wire::Range(range((key, end))),
                Read::Block(id) => Wire::Block(id_bytes(id)),
                Read::Edge(key) => Wire::Edge(key.into_wire()),
                Read::EdgesOut(id) => Wire::EdgesOut(id_bytes(id)),
                Read::EdgesIn(id) => Wire::EdgesIn(id_bytes(id)),
            }),
        };
        // Reads that no server has answered have told nothing.
        let reads = match read_revision {
            None => Vec::new(),
            Some(_) => self.reads.into_iter().map(read).collect(),
        };
        let deleted = self.deleted.into_iter();
        let deleted = deleted.map(|deleted| Write::DeleteRange(range(deleted.into_parts())));
        let keys = self.keys.into_iter().map(|(key, own)| match own {
            Own::Put { value, lease } => Write::Put(pb::TransactionPut {
                key,
                value,
                lease: LeaseId::number_of(lease),
            }),
            Own::Deleted => Write::Delete(key),
        });
        let graph = self.graph.into_iter();
        let graph = graph.map(|write| Write::Graph(write.into_wire()));
        let writes = deleted.chain(keys).chain(graph);
        pb::CommitRequest {
            read_revision: read_revision.map_or(0, Revision::get),
            isolation: isolation.into(),
            reads,
            expectations: self.expectations,
            writes: writes
                .map(|write| pb::TransactionWrite { write: Some(write) })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(value: &str) -> Own {
        let value = Bytes::copy_from_slice(value.as_bytes());
        Own::Put { value, lease: None }
    }

    fn stored(key: &'static str) -> Entry {
        Entry {
            key: key.into(),
            value: "stored".into(),
            version: 7,
            ..Entry::default()
        }
    }

    #[test]
    fn own_writes_lie_over_what_is_stored_in_the_order_they_were_made() {
        let mut state = State::default();
        state.keys.insert("b".into(), put("before"));
        state.delete_range(KeyRange::between("b", "e"));
        state.keys.insert("c".into(), put("after"));
        state.keys.insert("f".into(), put("own"));
        state.keys.insert("z".into(), put("outside"));
        state.keys.insert("g".into(), Own::Deleted);
        let all = ["a", "c", "d", "f", "g", "h"].map(stored).to_vec();
        let merged = state.merged(&KeyRange::between("a", "i"), all);
        let told: Vec<_> = merged
            .iter()
            .map(|entry| (&entry.key[..], &entry.value[..], entry.version))
            .collect();
        let expected: [(&[u8], &[u8], u64); 4] = [
            (b"a", b"stored", 7),
            (b"c", b"after", 7),
            (b"f", b"own", 7),
            (b"h", b"stored", 7),
        ];
        assert_eq!(told, expected);
        let request = state.into_request(Some(Revision::new(5)), pb::Isolation::Serializable);
        use pb::transaction_write::Write;
        assert!(
            matches!(request.writes[0].write, Some(Write::DeleteRange(_))),
            "deleted first, or it would take what was put into it later"
        );
        assert_eq!(request.writes.len(), 5);
    }

    #[test]
    fn neighbors_follow_own_edges_and_deleted_blocks() {
        let (a, b, c, d) = (BlockId(1), BlockId(2), BlockId(3), BlockId(4));
        let neighbor = |id, direction| Neighbor {
            id,
            kind: "tie".into(),
            direction,
        };
        let mut state = State::default();
        state.delete_block(b);
        state.edges.insert(EdgeKey::new(a, "tie", c), None);
        let own = Some(Attributes::new());
        state.edges.insert(EdgeKey::new(d, "tie", a), own.clone());
        state.edges.insert(EdgeKey::new(a, "tie", a), own);
        let stored = vec![
            neighbor(b, Direction::Out),
            neighbor(c, Direction::Out),
            neighbor(c, Direction::In),
            neighbor(d, Direction::In),
        ];
        let both = state.neighbors(a, Direction::Both, stored.clone());
        let expected = [
            neighbor(a, Direction::Out),
            neighbor(a, Direction::In),
            neighbor(c, Direction::In),
            neighbor(d, Direction::In),
        ];
        assert_eq!(both, expected);
        let out = state.neighbors(a, Direction::Out, stored[..2].to_vec());
        assert_eq!(out, [neighbor(a, Direction::Out)]);
    }
}
