//! Fuzzing of the values and keys of blocks and edges; see [`crate::fuzzing`].

use super::keys::{edge_in_key, edge_out_key, split_edge_key};
use super::kind_id::{KindId, KindIds};
use super::record::{block_kinds, decode_block, decode_edge, encode_block, encode_edge};
use super::typed::samples;
use bowline_types::{Attributes, Block, BlockId, BlockKinds};

/// The value of a block.
pub fn block(value: &[u8]) {
    let numbers = |kinds: KindIds<'_>| kinds.iter().collect::<Vec<_>>();
    let kinds = block_kinds(value).map(numbers);
    let Some(found) = decode_block(value) else {
        return;
    };
    assert_eq!(kinds, Some(numbers(found.kinds)));
    assert_eq!(found.attributes.iter().count(), found.attributes.len());
    let block = Block {
        id: BlockId(1),
        kinds: BlockKinds::none(),
        content: found.content.to_vec().into(),
        attributes: found.attributes.to_attributes(),
    };
    let mut out = Vec::new();
    encode_block(&numbers(found.kinds), &block, &mut out);
    assert_eq!(out, value, "two encodings of one block");
}

/// The value of an edge.
pub fn edge(value: &[u8]) {
    if let Some(attributes) = decode_edge(value) {
        let mut out = Vec::new();
        encode_edge(&attributes.to_attributes(), &mut out);
        assert_eq!(out, value, "two encodings of one edge");
    }
}

/// The key of an edge, and the text of an id.
pub fn keys(key: &[u8]) {
    if let Some((near, kind, far)) = split_edge_key(key) {
        assert_eq!(edge_out_key(near, kind, far), key);
        assert_eq!(edge_in_key(near, kind, far), key);
    }
    if let Ok(text) = std::str::from_utf8(key)
        && let Ok(id) = text.parse::<BlockId>()
    {
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(
            id.to_string().replace('-', ""),
            text.replace('-', "").to_lowercase()
        );
    }
}

/// A block, an edge and two keys; a block and an edge with values of every type; blocks of several kinds and of none.
pub fn seeds() -> [Vec<u8>; 8] {
    let attributes = Attributes::from([
        (String::new(), "".into()),
        ("größe".to_owned(), "10".into()),
    ]);
    let block = Block::new(BlockId(1), "x")
        .content("hello")
        .attribute("a", "b");
    let (mut value, mut edge) = (Vec::new(), Vec::new());
    encode_block(&[KindId(300)], &block, &mut value);
    encode_edge(&attributes, &mut edge);
    let key = edge_out_key(BlockId(1), KindId(2), BlockId(3)).to_vec();
    let typed = Block {
        attributes: (samples().into_iter().enumerate())
            .map(|(at, value)| (at.to_string(), value))
            .collect(),
        ..Block::new(BlockId(1), "x")
    };
    let (mut typed_value, mut typed_edge) = (Vec::new(), Vec::new());
    encode_block(&[KindId(1)], &typed, &mut typed_value);
    encode_edge(&typed.attributes, &mut typed_edge);
    let id = BlockId(77).to_string().into_bytes();
    let (mut several, mut none) = (Vec::new(), Vec::new());
    encode_block(&[KindId(1), KindId(2), KindId(300)], &block, &mut several);
    encode_block(&[], &typed, &mut none);
    [value, edge, key, id, typed_value, typed_edge, several, none]
}
