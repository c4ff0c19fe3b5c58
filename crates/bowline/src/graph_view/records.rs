//! Records of the trees as blocks and edges, with the names of their kinds.

use std::sync::Arc;

use bowline_query::{FieldColumns, Name, Value};

use bowline_core::error::{Error, Result, show_key};
use bowline_core::graph::{
    self, AskedNames, AttributeRef, Block, BlockId, BlockParts, BlockRef, Edge, EdgeRef, HeldBlock,
    HeldValue, KindId,
};
use bowline_core::kinds::Kinds;
use bowline_core::trees;
use bowline_types::{Direction, Path};

pub(super) fn invalid(what: &'static str, key: &[u8], reason: &'static str) -> Error {
    Error::InvalidRecord {
        what,
        key: show_key(key),
        reason,
    }
}

pub(super) fn split(key: &[u8]) -> Result<(BlockId, KindId, BlockId)> {
    graph::split_edge_key(key).ok_or_else(|| invalid("edge", key, "its key is not 36 bytes"))
}

pub(crate) fn kind_name(kinds: &Kinds, id: KindId) -> Result<Arc<str>> {
    let name = kinds.name(id);
    name.ok_or_else(|| unregistered(id))
}

/// An edge of a path that was found.
#[derive(Debug)]
pub(crate) struct EdgeOfPath {
    pub(crate) kind: Arc<str>,
    /// Which way it leads, where the search tells: two blocks may have an edge of one kind each way.
    pub(crate) direction: Option<Direction>,
}

/// A path with what is known of its edges.
pub(crate) type PathOfEdges = Path<EdgeOfPath>;

/// Names the kinds of a path.
pub(super) fn named<K>(
    kinds: &Kinds,
    path: Path<K>,
    known: impl Fn(K) -> (KindId, Option<Direction>),
) -> Result<PathOfEdges> {
    path.try_map_kinds(|edge| {
        let (kind, direction) = known(edge);
        let kind = kind_name(kinds, kind)?;
        Ok(EdgeOfPath { kind, direction })
    })
}

#[cold]
pub(crate) fn unregistered(id: KindId) -> Error {
    let key = trees::kind_key(id.0);
    invalid("kind", &key, "it is used but not registered")
}

/// Decodes a block and calls `visit` with it, without a copy.
#[inline]
pub(crate) fn lend_block<R>(
    kinds: &Kinds,
    id: BlockId,
    bytes: &[u8],
    visit: impl FnOnce(BlockRef<'_>) -> R,
) -> Result<R> {
    let block = parts(id, bytes)?;
    let lend = |kinds: &[&str]| {
        visit(BlockRef {
            id,
            kinds,
            content: block.content,
            attributes: block.attributes,
        })
    };
    kinds.with_names(block.kinds, lend).map_err(unregistered)
}

/// The value of an attribute.
pub(super) fn value_of(attribute: AttributeRef<'_>) -> Value {
    match attribute.as_text() {
        Some(text) => Value::from(text),
        None => Value::from(attribute.to_value()),
    }
}

/// The parts of a block's record.
pub(super) fn parts(id: BlockId, bytes: &[u8]) -> Result<BlockParts<'_>> {
    let undecodable = || invalid("block", &graph::block_key(id), "its record does not decode");
    graph::decode_block(bytes).ok_or_else(undecodable)
}

/// A bit for each kind that a query asks for.
fn label_bits(kinds: &[Option<KindId>], has: impl Fn(KindId) -> bool, has_any: bool) -> u64 {
    let bit = |(at, kind): (usize, &Option<KindId>)| u64::from(kind.is_some_and(&has)) << at;
    let any = if has_any { FieldColumns::ANY } else { 0 };
    any | kinds.iter().enumerate().map(bit).sum::<u64>()
}

/// Sets what a block has of the kinds and of the attributes, which are sorted, that a query asks for.
pub(super) fn set_fields(
    block: &BlockParts<'_>,
    kinds: &[Option<KindId>],
    names: &[Name],
    place: usize,
    found: &mut FieldColumns,
) {
    let has_any = block.kinds.iter().next().is_some();
    found.labels[place] = label_bits(kinds, |kind| block.kinds.contains(kind), has_any);
    let mut wanted = names.iter().zip(&mut found.values).peekable();
    for (name, attribute) in block.attributes.iter() {
        while wanted.next_if(|(wanted, _)| ***wanted < *name).is_some() {}
        match wanted.next_if(|(wanted, _)| ***wanted == *name) {
            Some((_, values)) => values[place] = value_of(attribute),
            None if wanted.peek().is_none() => break,
            None => {}
        }
    }
}

/// The same of a block that is held.
pub(super) fn set_held(
    block: &HeldBlock,
    kinds: &[Option<KindId>],
    asked: &AskedNames,
    place: usize,
    found: &mut FieldColumns,
) {
    let has = |kind| block.kinds().contains(&kind);
    found.labels[place] = label_bits(kinds, has, !block.kinds().is_empty());
    for (value, values) in block.values(asked).zip(&mut found.values) {
        match value {
            Some(HeldValue::Text(text)) => values[place] = Value::Text(text.clone()),
            Some(HeldValue::Other(value)) => values[place] = Value::from(value.clone()),
            None => {}
        }
    }
}

pub(crate) fn block_of(kinds: &Kinds, id: BlockId, bytes: &[u8]) -> Result<Block> {
    lend_block(kinds, id, bytes, |block| block.to_block())
}

/// Decodes an edge without a copy.
#[inline]
pub(crate) fn lend_edge<'a>(
    source: BlockId,
    kind: &'a str,
    target: BlockId,
    key: &[u8],
    bytes: &'a [u8],
) -> Result<EdgeRef<'a>> {
    let attributes = graph::decode_edge(bytes)
        .ok_or_else(|| invalid("edge", key, "its record does not decode"))?;
    Ok(EdgeRef {
        source,
        kind,
        target,
        attributes,
    })
}

pub(crate) fn edge_of(
    source: BlockId,
    kind: &str,
    target: BlockId,
    key: &[u8],
    bytes: &[u8],
) -> Result<Edge> {
    Ok(lend_edge(source, kind, target, key, bytes)?.to_edge())
}
