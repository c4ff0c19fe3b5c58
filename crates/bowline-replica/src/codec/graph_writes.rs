//! The encoding of writes of the graph.
//!
//! ```text
//! block        | id 16 bytes | kind bytes | content bytes | attributes |
//! edge         | source 16 bytes | kind bytes | target 16 bytes | attributes |
//! attributes   | count varint | (name bytes, text bytes) each | or, with typed values, (name bytes, value) each
//! ```
//!
//! A write has typed values only if it needs them: programs of versions 1 and 2 do not know such writes.

use bowline_core::graph::{self, Attributes, Block, Edge};
use bowline_storage::codec::{put_bytes, put_varint};
use bowline_types::{AttributeValue, EdgeKey, GraphWrite};

use super::{Decoded, Decoder};

const GRAPH_PUT_BLOCK: u8 = 1;
const GRAPH_DELETE_BLOCK: u8 = 2;
const GRAPH_PUT_EDGE: u8 = 3;
const GRAPH_DELETE_EDGE: u8 = 4;
const GRAPH_PUT_TYPED_BLOCK: u8 = 5;
const GRAPH_PUT_TYPED_EDGE: u8 = 6;

pub(super) fn put_graph_write(write: &GraphWrite, out: &mut Vec<u8>) {
    match write {
        GraphWrite::PutBlock(block) => {
            out.push(match graph::are_texts(&block.attributes) {
                true => GRAPH_PUT_BLOCK,
                false => GRAPH_PUT_TYPED_BLOCK,
            });
            out.extend_from_slice(&block.id.to_bytes());
            put_bytes(out, block.kind.as_bytes());
            put_bytes(out, &block.content);
            put_attributes(&block.attributes, out);
        }
        GraphWrite::DeleteBlock(id) => {
            out.push(GRAPH_DELETE_BLOCK);
            out.extend_from_slice(&id.to_bytes());
        }
        GraphWrite::PutEdge(edge) => {
            out.push(match graph::are_texts(&edge.attributes) {
                true => GRAPH_PUT_EDGE,
                false => GRAPH_PUT_TYPED_EDGE,
            });
            out.extend_from_slice(&edge.source.to_bytes());
            put_bytes(out, edge.kind.as_bytes());
            out.extend_from_slice(&edge.target.to_bytes());
            put_attributes(&edge.attributes, out);
        }
        GraphWrite::DeleteEdge(key) => {
            out.push(GRAPH_DELETE_EDGE);
            out.extend_from_slice(&key.source.to_bytes());
            put_bytes(out, key.kind.as_bytes());
            out.extend_from_slice(&key.target.to_bytes());
        }
    }
}

fn put_attributes(attributes: &Attributes, out: &mut Vec<u8>) {
    put_varint(out, attributes.len() as u64);
    let are_texts = graph::are_texts(attributes);
    for (name, value) in attributes {
        put_bytes(out, name.as_bytes());
        match value {
            AttributeValue::Text(text) if are_texts => put_bytes(out, text.as_bytes()),
            value => graph::put_value(value, out),
        }
    }
}

impl Decoder<'_> {
    fn attributes(&mut self, are_typed: bool) -> Decoded<Attributes> {
        let mut attributes = Attributes::new();
        for _ in 0..self.count()? {
            let name = self.text()?;
            let value = match are_typed {
                true => graph::read_value(&mut self.reader).ok_or("an attribute's value")?,
                false => self.text()?.into(),
            };
            if attributes
                .last_key_value()
                .is_some_and(|(last, _)| *last >= name)
            {
                return Err("attributes out of the order of their names");
            }
            attributes.insert(name, value);
        }
        if are_typed && graph::are_texts(&attributes) {
            return Err("texts where typed values are announced");
        }
        Ok(attributes)
    }

    pub(super) fn graph_write(&mut self) -> Decoded<GraphWrite> {
        Ok(match self.u8()? {
            kind @ (GRAPH_PUT_BLOCK | GRAPH_PUT_TYPED_BLOCK) => GraphWrite::PutBlock(Block {
                id: self.block_id()?,
                kind: self.text()?,
                content: self.bytes()?.into(),
                attributes: self.attributes(kind == GRAPH_PUT_TYPED_BLOCK)?,
            }),
            GRAPH_DELETE_BLOCK => GraphWrite::DeleteBlock(self.block_id()?),
            kind @ (GRAPH_PUT_EDGE | GRAPH_PUT_TYPED_EDGE) => GraphWrite::PutEdge(Edge {
                source: self.block_id()?,
                kind: self.text()?,
                target: self.block_id()?,
                attributes: self.attributes(kind == GRAPH_PUT_TYPED_EDGE)?,
            }),
            GRAPH_DELETE_EDGE => GraphWrite::DeleteEdge(EdgeKey {
                source: self.block_id()?,
                kind: self.text()?,
                target: self.block_id()?,
            }),
            _ => return Err("a write of the graph that is unknown"),
        })
    }
}

#[cfg(test)]
mod tests {
    use bowline_types::BlockId;
    use bytes::Bytes;

    use super::super::{commands_version, decode_commands, encode_commands};
    use super::*;
    use crate::Command;

    #[test]
    fn typed_values_need_a_newer_version_and_texts_do_not() {
        let block = Block::new(BlockId(1), "person").attribute("name", "Ann");
        let edge = Edge::new(BlockId(1), "knows", BlockId(2)).attribute("since", "2019");
        let texts = [
            GraphWrite::PutBlock(block.clone()),
            GraphWrite::PutEdge(edge.clone()),
        ];
        let typed_block = GraphWrite::PutBlock(block.attribute("age", 41));
        let typed_edge = GraphWrite::PutEdge(edge.attribute("weight", 0.5));
        for (more, version) in [(None, 1), (Some(typed_block), 3), (Some(typed_edge), 3)] {
            let writes: Vec<_> = texts.iter().cloned().chain(more).collect();
            let command = Command::Graph(writes);
            let mut bytes = Vec::new();
            encode_commands([&command].into_iter(), &mut bytes);
            assert_eq!(commands_version(&bytes), Some(version));
            let bytes = Bytes::from(bytes);
            assert_eq!(decode_commands(&bytes), Ok(vec![command]));
            for end in 0..bytes.len() {
                assert!(decode_commands(&bytes.slice(..end)).is_err(), "{end}");
            }
        }
    }
}
