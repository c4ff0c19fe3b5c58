//! The encoding of writes of the graph.
//!
//! ```text
//! block        | id 16 bytes | kind bytes | content bytes | attributes |
//! with kinds   | id 16 bytes | count varint | kind bytes each | content bytes | attributes |
//! edge         | source 16 bytes | kind bytes | target 16 bytes | attributes |
//! attributes   | count varint | (name bytes, text bytes) each | or, with typed values, (name bytes, value) each
//! ```
//!
//! A write has typed values only if it needs them: programs of versions 1 and 2 do not know such writes. A block that has
//! not exactly one kind has its kinds with their number, in the order of their names, and typed values; programs before
//! version 4 do not know it.

use bowline_core::graph::{self, Attributes, Block, BlockKinds, Edge};
use bowline_storage::codec::{put_bytes, put_varint};
use bowline_types::{AttributeValue, EdgeKey, GraphWrite};

use super::decoder::{Decoded, Decoder};

const GRAPH_PUT_BLOCK: u8 = 1;
const GRAPH_DELETE_BLOCK: u8 = 2;
const GRAPH_PUT_EDGE: u8 = 3;
const GRAPH_DELETE_EDGE: u8 = 4;
const GRAPH_PUT_TYPED_BLOCK: u8 = 5;
const GRAPH_PUT_TYPED_EDGE: u8 = 6;
const GRAPH_PUT_BLOCK_OF_KINDS: u8 = 7;

pub(super) fn put_graph_write(write: &GraphWrite, out: &mut Vec<u8>) {
    match write {
        GraphWrite::PutBlock(block) => {
            let are_typed = !graph::are_texts(&block.attributes);
            let kind = match (block.kinds.only(), are_typed) {
                (Some(_), false) => GRAPH_PUT_BLOCK,
                (Some(_), true) => GRAPH_PUT_TYPED_BLOCK,
                (None, _) => GRAPH_PUT_BLOCK_OF_KINDS,
            };
            out.push(kind);
            out.extend_from_slice(&block.id.to_bytes());
            if kind == GRAPH_PUT_BLOCK_OF_KINDS {
                put_varint(out, block.kinds.len() as u64);
            }
            for kind in &block.kinds {
                put_bytes(out, kind.as_bytes());
            }
            put_bytes(out, &block.content);
            put_attributes(&block.attributes, kind != GRAPH_PUT_BLOCK, out);
        }
        GraphWrite::DeleteBlock(id) => {
            out.push(GRAPH_DELETE_BLOCK);
            out.extend_from_slice(&id.to_bytes());
        }
        GraphWrite::PutEdge(edge) => {
            let are_typed = !graph::are_texts(&edge.attributes);
            out.push(match are_typed {
                false => GRAPH_PUT_EDGE,
                true => GRAPH_PUT_TYPED_EDGE,
            });
            out.extend_from_slice(&edge.source.to_bytes());
            put_bytes(out, edge.kind.as_bytes());
            out.extend_from_slice(&edge.target.to_bytes());
            put_attributes(&edge.attributes, are_typed, out);
        }
        GraphWrite::DeleteEdge(key) => {
            out.push(GRAPH_DELETE_EDGE);
            out.extend_from_slice(&key.source.to_bytes());
            put_bytes(out, key.kind.as_bytes());
            out.extend_from_slice(&key.target.to_bytes());
        }
    }
}

fn put_attributes(attributes: &Attributes, are_typed: bool, out: &mut Vec<u8>) {
    put_varint(out, attributes.len() as u64);
    for (name, value) in attributes {
        put_bytes(out, name.as_bytes());
        match value {
            AttributeValue::Text(text) if !are_typed => put_bytes(out, text.as_bytes()),
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
        Ok(attributes)
    }

    /// Attributes of what has typed values only if it needs them.
    fn needed_attributes(&mut self, are_typed: bool) -> Decoded<Attributes> {
        let attributes = self.attributes(are_typed)?;
        match are_typed && graph::are_texts(&attributes) {
            true => Err("texts where typed values are announced"),
            false => Ok(attributes),
        }
    }

    /// No kind or several.
    fn kinds(&mut self) -> Decoded<BlockKinds> {
        let count = self.count()?;
        if count == 1 {
            return Err("one kind where another number is announced");
        }
        if count > BlockKinds::MAX {
            return Err("more kinds than a block may have");
        }
        let mut kinds: Vec<String> = Vec::new();
        for _ in 0..count {
            let kind = self.text()?;
            if kinds.last().is_some_and(|last| *last >= kind) {
                return Err("kinds out of the order of their names");
            }
            kinds.push(kind);
        }
        Ok(kinds.into())
    }

    pub(super) fn graph_write(&mut self) -> Decoded<GraphWrite> {
        Ok(match self.u8()? {
            kind @ (GRAPH_PUT_BLOCK | GRAPH_PUT_TYPED_BLOCK) => GraphWrite::PutBlock(Block {
                id: self.block_id()?,
                kinds: self.text()?.into(),
                content: self.bytes()?.into(),
                attributes: self.needed_attributes(kind == GRAPH_PUT_TYPED_BLOCK)?,
            }),
            GRAPH_PUT_BLOCK_OF_KINDS => GraphWrite::PutBlock(Block {
                id: self.block_id()?,
                kinds: self.kinds()?,
                content: self.bytes()?.into(),
                attributes: self.attributes(true)?,
            }),
            GRAPH_DELETE_BLOCK => GraphWrite::DeleteBlock(self.block_id()?),
            kind @ (GRAPH_PUT_EDGE | GRAPH_PUT_TYPED_EDGE) => GraphWrite::PutEdge(Edge {
                source: self.block_id()?,
                kind: self.text()?,
                target: self.block_id()?,
                attributes: self.needed_attributes(kind == GRAPH_PUT_TYPED_EDGE)?,
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
    fn typed_values_and_kinds_need_a_newer_version_and_texts_do_not() {
        let block = Block::new(BlockId(1), "person").attribute("name", "Ann");
        let edge = Edge::new(BlockId(1), "knows", BlockId(2)).attribute("since", "2019");
        let texts = [
            GraphWrite::PutBlock(block.clone()),
            GraphWrite::PutEdge(edge.clone()),
        ];
        let several = GraphWrite::PutBlock(block.clone().kind("author").kind("x"));
        let none = Block::new(BlockId(1), BlockKinds::none()).attribute("age", 41);
        let typed_block = GraphWrite::PutBlock(block.attribute("age", 41));
        let typed_edge = GraphWrite::PutEdge(edge.attribute("weight", 0.5));
        for (more, version) in [
            (None, 1),
            (Some(typed_block), 3),
            (Some(typed_edge), 3),
            (Some(several), 4),
            (Some(GraphWrite::PutBlock(none)), 4),
        ] {
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

    #[test]
    fn kinds_have_one_encoding() {
        let kinds = |count: u8, kinds: &[&str]| {
            let mut bytes = vec![GRAPH_PUT_BLOCK_OF_KINDS];
            bytes.extend_from_slice(&BlockId(1).to_bytes());
            bytes.push(count);
            for kind in kinds {
                put_bytes(&mut bytes, kind.as_bytes());
            }
            // No content, no attributes.
            bytes.extend_from_slice(&[0, 0]);
            let buffer = Bytes::from(bytes);
            let mut decoder = Decoder::new(&buffer);
            decoder.graph_write().map(|_| ())
        };
        assert_eq!(kinds(0, &[]), Ok(()));
        assert_eq!(kinds(2, &["a", "b"]), Ok(()));
        let many: Vec<String> = (10..)
            .take(BlockKinds::MAX + 1)
            .map(|kind| kind.to_string())
            .collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(kinds(64, &many[1..]), Ok(()));
        assert!(kinds(65, &many).is_err());
        for (count, names) in [
            (1, &["a"][..]),
            (2, &["b", "a"]),
            (2, &["a", "a"]),
            (3, &["a"]),
        ] {
            assert!(kinds(count, names).is_err(), "{count} {names:?}");
        }
    }
}
