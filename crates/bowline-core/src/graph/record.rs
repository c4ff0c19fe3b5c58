//! The encoding of blocks and edges as values of their trees.
//!
//! ```text
//! block       | version 1 | kind varint | texts | content bytes |
//!             | version 2 | kinds | values | content bytes |
//! edge_out    | version 1 | texts |
//!             | version 2 | values |
//! edge_in     empty: the attributes are in edge_out
//!
//! kinds       | count varint | kind varint * count |
//! texts       | count varint | (name bytes, text bytes) * count |
//! values      | count varint | (name bytes, value of `typed`) * count |
//! bytes       | length varint | that many bytes |
//! ```
//!
//! A record has version 1 if that can hold it: one kind, and attributes that are texts. So a program that knows only
//! version 1 reads all that it could have written. Every value has exactly one encoding: kinds and names are strictly
//! ascending, varints are minimal, nothing follows the end. The decoders refuse everything else, never panic, and allocate nothing
//! but for values that are lists or maps: their results borrow from the value.

use bowline_storage::codec::{Reader, put_bytes, put_varint};

use super::kind_id::{KindId, KindIds};
use super::lent::AttributesRef;
use super::typed::put_value;
use bowline_types::{AttributeValue, Attributes, Block};

/// One kind and texts.
const PLAIN: u8 = 1;
/// Several kinds, or values of any type.
const TYPED: u8 = 2;

/// Appends the value of `block`, whose kinds are registered as `kinds`, ascending.
pub(crate) fn encode_block(kinds: &[KindId], block: &Block, out: &mut Vec<u8>) {
    let version = match kinds.len() {
        1 => version_of(&block.attributes),
        _ => TYPED,
    };
    out.push(version);
    if version == TYPED {
        put_varint(out, kinds.len() as u64);
    }
    for kind in kinds {
        put_varint(out, u64::from(kind.0));
    }
    put_attributes(out, version, &block.attributes);
    put_bytes(out, &block.content);
}

/// The borrowed parts of a block's value.
#[derive(Debug)]
pub struct BlockParts<'a> {
    pub kinds: KindIds<'a>,
    pub attributes: AttributesRef<'a>,
    pub content: &'a [u8],
}

/// Reads the value of a block.
pub fn decode_block(value: &[u8]) -> Option<BlockParts<'_>> {
    let mut reader = Reader::new(value);
    let (version, kinds) = read_kinds(value, &mut reader)?;
    let attributes = read_attributes(version, value, &mut reader)?;
    // What version 1 can hold has version 1.
    if version == TYPED && kinds.only().is_some() && attributes.are_texts() {
        return None;
    }
    let content = reader.bytes()?;
    reader.is_empty().then_some(BlockParts {
        kinds,
        attributes,
        content,
    })
}

/// Reads only the kinds of a block, of its value or of the beginning of it. `None` also where that ends within them.
#[inline]
pub fn block_kinds(value: &[u8]) -> Option<KindIds<'_>> {
    read_kinds(value, &mut Reader::new(value)).map(|(_, kinds)| kinds)
}

/// The version and the kinds of a block.
#[inline]
fn read_kinds<'a>(value: &'a [u8], reader: &mut Reader<'a>) -> Option<(u8, KindIds<'a>)> {
    let version = reader.u8()?;
    let count = match version {
        PLAIN => 1,
        TYPED => reader.varint_usize()?,
        _ => return None,
    };
    let kinds = match count {
        1 => KindIds::One(KindId(reader.varint_u32()?)),
        count => KindIds::read(count, value, reader)?,
    };
    Some((version, kinds))
}

/// Appends the value of an edge in `edge_out`.
pub(crate) fn encode_edge(attributes: &Attributes, out: &mut Vec<u8>) {
    let version = version_of(attributes);
    out.push(version);
    put_attributes(out, version, attributes);
}

/// Reads the value of an edge in `edge_out`.
pub fn decode_edge(value: &[u8]) -> Option<AttributesRef<'_>> {
    let mut reader = Reader::new(value);
    let version = reader.u8()?;
    let attributes = read_attributes(version, value, &mut reader)?;
    // What is all text has the other version.
    let is_right = version == PLAIN || !attributes.are_texts();
    (is_right && reader.is_empty()).then_some(attributes)
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
        TYPED => AttributesRef::read(value, reader, true),
        _ => None,
    }
}

fn put_attributes(out: &mut Vec<u8>, version: u8, attributes: &Attributes) {
    put_varint(out, attributes.len() as u64);
    for (name, value) in attributes {
        put_bytes(out, name.as_bytes());
        match value {
            AttributeValue::Text(text) if version == PLAIN => put_bytes(out, text.as_bytes()),
            value => put_value(value, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_types::{BlockId, BlockKinds};

    fn block() -> Block {
        Block::new(BlockId(1), "service")
            .content("hello")
            .attribute("zone", "eu")
            .attribute("", "")
            .attribute("größe", "10")
    }

    fn encoded(kinds: &[KindId], block: &Block) -> Vec<u8> {
        let mut out = Vec::new();
        encode_block(kinds, block, &mut out);
        out
    }

    /// No kind, one, and several.
    const KINDS: [&[KindId]; 7] = [
        &[KindId(0)],
        &[KindId(127)],
        &[KindId(128)],
        &[KindId(u32::MAX)],
        &[],
        &[KindId(1), KindId(128)],
        &[KindId(0), KindId(3), KindId(300), KindId(u32::MAX)],
    ];

    #[test]
    fn blocks_round_trip() {
        let content = vec![7u8; 70_000];
        for block in [
            block(),
            Block::new(BlockId(1), "x"),
            block().content(content),
            block().attribute("n", 7).attribute("at", 0.5),
        ] {
            for kinds in KINDS {
                let value = encoded(kinds, &block);
                let found = decode_block(&value).expect("decodes");
                assert_eq!(found.kinds.iter().collect::<Vec<_>>(), kinds);
                assert_eq!(found.attributes.to_attributes(), block.attributes);
                assert_eq!(found.content, block.content);
                // A beginning that has all kinds is enough for them; a shorter one tells nothing.
                let known = |end| Some(block_kinds(&value[..end])?.iter().collect::<Vec<_>>());
                let least = (0..value.len()).find(|&end| known(end).is_some());
                let least = least.expect("the kinds come before the attributes");
                assert!((0..least).all(|end| known(end).is_none()));
                assert!(
                    (least..40.min(value.len())).all(|end| known(end).as_deref() == Some(kinds))
                );
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
            encoded(&[KindId(300)], &block),
            b"\x01\xac\x02\x01\x01a\x01b\x02hi"
        );
        let mut edge = Vec::new();
        encode_edge(&block.attributes, &mut edge);
        assert_eq!(edge, b"\x01\x01\x01a\x01b");
        let block = block.attribute("n", -2);
        assert_eq!(
            encoded(&[KindId(300)], &block),
            b"\x02\x01\xac\x02\x02\x01a\x05\x01b\x01n\x03\x03\x02hi"
        );
        let several = [KindId(2), KindId(300)];
        let plain = Block::new(BlockId(1), "x").attribute("a", "b");
        assert_eq!(
            encoded(&several, &plain),
            b"\x02\x02\x02\xac\x02\x01\x01a\x05\x01b\x00"
        );
        assert_eq!(encoded(&[], &plain), b"\x02\x00\x01\x01a\x05\x01b\x00");
        edge.clear();
        encode_edge(&block.attributes, &mut edge);
        assert_eq!(edge, b"\x02\x02\x01a\x05\x01b\x01n\x03\x03");
    }

    #[test]
    fn encoding_appends() {
        let mut out = b"before".to_vec();
        encode_block(&[KindId(1)], &block(), &mut out);
        assert!(out.starts_with(b"before\x01"));
        assert_eq!(out["before".len()..], encoded(&[KindId(1)], &block()));
    }

    #[test]
    fn truncated_and_prolonged_values_are_refused() {
        for kinds in KINDS {
            let mut value = encoded(kinds, &block());
            for end in 0..value.len() {
                assert!(decode_block(&value[..end]).is_none(), "{end}");
            }
            value.push(0);
            assert!(decode_block(&value).is_none(), "trailing garbage");
        }

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
    }

    #[test]
    fn impossible_kinds_are_refused() {
        for (value, why) in [
            (&b"\x03\x00\x00\x00"[..], "a version never written"),
            (b"\x01\xff\xff\xff\xff\x1f\x00\x00", "a kind above 32 bits"),
            (b"\x02\x02\x02\x01\x00\x00", "kinds out of order"),
            (b"\x02\x02\x01\x01\x00\x00", "a kind twice"),
            (b"\x02\x02\x01\x80\x00\x00\x00", "a padded kind"),
            (
                b"\x02\x02\x01\xff\xff\xff\xff\x1f\x00\x00",
                "one above 32 bits",
            ),
            (b"\x02\x03\x01\x02", "fewer kinds than announced"),
            (
                b"\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01\x02",
                "a count beyond the bytes",
            ),
            (b"", "nothing"),
        ] {
            assert!(block_kinds(value).is_none(), "{why}");
            assert!(decode_block(value).is_none(), "{why}");
        }
        assert!(
            decode_block(b"\x02\x01\x05\x01\x01a\x05\x01b\x00").is_none(),
            "one kind and texts in the version of others"
        );
        let none = decode_block(b"\x02\x00\x00\x00").expect("a block of no kind");
        assert_eq!((none.kinds.iter().count(), none.kinds.only()), (0, None));
    }

    /// Whatever decodes, encodes to the same bytes: there is one encoding per value.
    #[test]
    fn mutated_values_are_refused_or_decode_to_what_encodes_to_them() {
        for seed in crate::seeds(0x000b_10c4..0x000b_10c8) {
            let mut random = fastrand::Rng::with_seed(seed);
            let typed = block().attribute("n", 300).attribute("b", true);
            let original = match seed % 4 {
                0 => encoded(&[KindId(200)], &block()),
                1 => encoded(&[KindId(200)], &typed),
                2 => encoded(&[KindId(3), KindId(200), KindId(201)], &block()),
                _ => encoded(&[], &typed),
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
                        kinds: BlockKinds::none(),
                        content: found.content.to_vec().into(),
                        attributes: found.attributes.to_attributes(),
                    };
                    let kinds: Vec<_> = found.kinds.iter().collect();
                    assert_eq!(encoded(&kinds, &block), value);
                }
            }
            assert!(accepted > 0, "some mutations only change a letter");
        }
    }
}
