//! The encoding of blocks and edges as values of their trees.
//!
//! ```text
//! block       | version 1 | kind varint | texts | content bytes |
//!             | version 2 | kinds | values | content bytes |
//! edge_out    | version 1 | texts |
//!             | version 2 | values |
//! edge_in     empty: the attributes are in edge_out
//!
//! kinds       | count varint | kind varint * count |       as yet one
//! texts       | count varint | (name bytes, text bytes) * count |
//! values      | count varint | (name bytes, value of `typed`) * count |
//! bytes       | length varint | that many bytes |
//! ```
//!
//! A record has version 1 if that can hold it: one kind, and attributes that are texts. So a program that knows only
//! version 1 reads all that it could have written. Every value has exactly one encoding: names are strictly ascending,
//! varints are minimal, nothing follows the end. The decoders refuse everything else, never panic, and allocate nothing
//! but for values that are lists or maps: their results borrow from the value.

use bowline_storage::codec::{Reader, put_bytes, put_varint};

use super::kind_id::KindId;
use super::lent::AttributesRef;
use super::typed::put_value;
use bowline_types::{AttributeValue, Attributes, Block};

/// One kind and texts.
const PLAIN: u8 = 1;
/// Several kinds, or values of any type.
const TYPED: u8 = 2;

/// Appends the value of `block`, whose kind is registered as `kind`.
pub(crate) fn encode_block(kind: KindId, block: &Block, out: &mut Vec<u8>) {
    let version = version_of(&block.attributes);
    out.push(version);
    if version == TYPED {
        put_varint(out, 1);
    }
    put_varint(out, u64::from(kind.0));
    put_attributes(out, &block.attributes);
    put_bytes(out, &block.content);
}

/// The borrowed parts of a block's value.
#[derive(Debug)]
pub struct BlockParts<'a> {
    pub kind: KindId,
    pub attributes: AttributesRef<'a>,
    pub content: &'a [u8],
}

/// Reads the value of a block.
pub fn decode_block(value: &[u8]) -> Option<BlockParts<'_>> {
    let mut reader = Reader::new(value);
    let (version, kind) = read_kind(&mut reader)?;
    let attributes = read_attributes(version, value, &mut reader)?;
    let content = reader.bytes()?;
    reader.is_empty().then_some(BlockParts {
        kind,
        attributes,
        content,
    })
}

/// Reads only the kind of a block.
pub fn block_kind(value: &[u8]) -> Option<KindId> {
    read_kind(&mut Reader::new(value)).map(|(_, kind)| kind)
}

/// The version and the kind of a block.
fn read_kind(reader: &mut Reader<'_>) -> Option<(u8, KindId)> {
    let version = reader.u8()?;
    let is_one_kind = match version {
        PLAIN => true,
        TYPED => reader.varint()? == 1,
        _ => false,
    };
    let kind = is_one_kind.then_some(reader)?.varint_u32()?;
    Some((version, KindId(kind)))
}

/// Appends the value of an edge in `edge_out`.
pub(crate) fn encode_edge(attributes: &Attributes, out: &mut Vec<u8>) {
    out.push(version_of(attributes));
    put_attributes(out, attributes);
}

/// Reads the value of an edge in `edge_out`.
pub fn decode_edge(value: &[u8]) -> Option<AttributesRef<'_>> {
    let mut reader = Reader::new(value);
    let version = reader.u8()?;
    let attributes = read_attributes(version, value, &mut reader)?;
    reader.is_empty().then_some(attributes)
}

/// The version of a record with one kind and these attributes.
fn version_of(attributes: &Attributes) -> u8 {
    match are_texts(attributes) {
        true => PLAIN,
        false => TYPED,
    }
}

/// Whether all attributes are texts, as every program reads them.
pub fn are_texts(attributes: &Attributes) -> bool {
    let mut values = attributes.values();
    values.all(|value| matches!(value, AttributeValue::Text(_)))
}

fn read_attributes<'a>(
    version: u8,
    value: &'a [u8],
    reader: &mut Reader<'a>,
) -> Option<AttributesRef<'a>> {
    match version {
        PLAIN => AttributesRef::read(value, reader, false),
        // What is all text has the other version.
        TYPED => AttributesRef::read(value, reader, true).filter(|it| !it.are_texts()),
        _ => None,
    }
}

fn put_attributes(out: &mut Vec<u8>, attributes: &Attributes) {
    put_varint(out, attributes.len() as u64);
    let are_texts = are_texts(attributes);
    for (name, value) in attributes {
        put_bytes(out, name.as_bytes());
        match value {
            AttributeValue::Text(text) if are_texts => put_bytes(out, text.as_bytes()),
            value => put_value(value, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_types::BlockId;

    fn block() -> Block {
        Block::new(BlockId(1), "service")
            .content("hello")
            .attribute("zone", "eu")
            .attribute("", "")
            .attribute("größe", "10")
    }

    fn encoded(kind: KindId, block: &Block) -> Vec<u8> {
        let mut out = Vec::new();
        encode_block(kind, block, &mut out);
        out
    }

    #[test]
    fn blocks_round_trip() {
        let content = vec![7u8; 70_000];
        for block in [
            block(),
            Block::new(BlockId(1), "x"),
            block().content(content),
            block().attribute("n", 7).attribute("at", 0.5),
        ] {
            for kind in [0, 127, 128, u32::MAX].map(KindId) {
                let value = encoded(kind, &block);
                let found = decode_block(&value).expect("decodes");
                assert_eq!(found.kind, kind);
                assert_eq!(found.attributes.to_attributes(), block.attributes);
                assert_eq!(found.content, block.content);
                assert_eq!(block_kind(&value), Some(kind));
            }
        }
    }

    #[test]
    fn edges_round_trip() {
        for attributes in [Attributes::new(), block().attributes] {
            let mut value = Vec::new();
            encode_edge(&attributes, &mut value);
            let found = decode_edge(&value).expect("decodes");
            assert_eq!(found.to_attributes(), attributes);
        }
    }

    #[test]
    fn the_layout_is_fixed() {
        let block = Block::new(BlockId(1), "x")
            .content("hi")
            .attribute("a", "b");
        assert_eq!(
            encoded(KindId(300), &block),
            b"\x01\xac\x02\x01\x01a\x01b\x02hi"
        );
        let mut edge = Vec::new();
        encode_edge(&block.attributes, &mut edge);
        assert_eq!(edge, b"\x01\x01\x01a\x01b");
        let block = block.attribute("n", -2);
        assert_eq!(
            encoded(KindId(300), &block),
            b"\x02\x01\xac\x02\x02\x01a\x05\x01b\x01n\x03\x03\x02hi"
        );
        edge.clear();
        encode_edge(&block.attributes, &mut edge);
        assert_eq!(edge, b"\x02\x02\x01a\x05\x01b\x01n\x03\x03");
    }

    #[test]
    fn encoding_appends() {
        let mut out = b"before".to_vec();
        encode_block(KindId(1), &block(), &mut out);
        assert!(out.starts_with(b"before\x01"));
        assert_eq!(out["before".len()..], encoded(KindId(1), &block()));
    }

    #[test]
    fn truncated_and_prolonged_values_are_refused() {
        let mut value = encoded(KindId(1), &block());
        for end in 0..value.len() {
            assert!(decode_block(&value[..end]).is_none(), "{end}");
        }
        value.push(0);
        assert!(decode_block(&value).is_none(), "trailing garbage");

        let mut value = Vec::new();
        encode_edge(&block().attributes, &mut value);
        for end in 0..value.len() {
            assert!(decode_edge(&value[..end]).is_none(), "{end}");
        }
        value.push(0);
        assert!(decode_edge(&value).is_none(), "trailing garbage");
    }

    #[test]
    fn impossible_attributes_are_refused() {
        for (value, why) in [
            (&b"\x01\x02\x01a\x00\x01a\x00"[..], "a name twice"),
            (b"\x01\x02\x01b\x00\x01a\x00", "names not in order"),
            (b"\x01\x01\x01\xff\x00", "a name that is not UTF-8"),
            (b"\x01\x01\x01a\x01\xff", "a value that is not UTF-8"),
            (
                b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                "a count beyond the bytes",
            ),
            (
                b"\x01\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                "a length beyond the bytes",
            ),
            (b"\x01\x80\x00", "a padded varint"),
            (b"\x03\x00", "a version never written"),
            (b"\x02\x00", "no typed value in a version for them"),
            (
                b"\x02\x01\x01a\x05\x01b",
                "texts in the version of typed values",
            ),
            (b"\x00\x00", "no version"),
        ] {
            assert!(decode_edge(value).is_none(), "{why}");
        }
        assert_eq!(
            decode_edge(b"\x01\x02\x01a\x00\x01b\x00").map(|found| found.len()),
            Some(2)
        );
        assert!(
            decode_block(b"\x02\x00\x00\x00").is_none(),
            "a block without a kind"
        );
        assert_eq!(
            block_kind(b"\x03\x00\x00\x00"),
            None,
            "a version never written"
        );
        assert_eq!(
            block_kind(b"\x01\xff\xff\xff\xff\x1f"),
            None,
            "a kind above 32 bits"
        );
        assert_eq!(block_kind(b""), None);
    }

    /// Whatever decodes, encodes to the same bytes: there is one encoding per value.
    #[test]
    fn mutated_values_are_refused_or_decode_to_what_encodes_to_them() {
        for seed in crate::seeds(0x000b_10c4..0x000b_10c6) {
            let mut random = fastrand::Rng::with_seed(seed);
            let original = match seed % 2 {
                0 => encoded(KindId(200), &block()),
                _ => encoded(
                    KindId(200),
                    &block().attribute("n", 300).attribute("b", true),
                ),
            };
            let mut accepted = 0;
            for _ in 0..20_000 {
                let mut value = original.clone();
                for _ in 0..random.usize(1..4) {
                    let at = random.usize(..value.len());
                    match random.u8(..3) {
                        0 => value[at] = random.u8(..),
                        1 => value.insert(at, random.u8(..)),
                        _ => drop(value.remove(at)),
                    }
                }
                if let Some(found) = decode_block(&value) {
                    accepted += 1;
                    let block = Block {
                        id: BlockId(1),
                        kind: String::new(),
                        content: found.content.to_vec().into(),
                        attributes: found.attributes.to_attributes(),
                    };
                    assert_eq!(encoded(found.kind, &block), value);
                }
            }
            assert!(accepted > 0, "some mutations only change a letter");
        }
    }
}
