//! Writes of the graph as writes of records.
//!
//! | write | requires | records |
//! |---|---|---|
//! | put block | - | `block` |
//! | delete block | it exists | every `edge_out` and `edge_in` of the block, both ways; `block` |
//! | put edge | both blocks exist | `edge_out` with the attributes; `edge_in`, empty |
//! | delete edge | it exists | both |
//! | the first write that names a kind | the name is valid | the kind, by its number |
//!
//! Invariants: an edge is in `edge_out` exactly when it is in `edge_in`, and only between blocks that exist.

use bowline_storage::TreeId;
use bowline_types::{AttributeValue, Attributes, BlockKinds};
use smallvec::SmallVec;

use super::mutation::{Action, Mutation};
use super::target::Target;
use super::validate::Guard;
use crate::error::{Error, Result, show_key};
use crate::graph::{self, Block, BlockId, Edge, KindId};
use crate::kinds::{self, Kinds};
use crate::trees;

/// The number of a kind that is not registered, and the record that registers it. `more` kinds are registered by the
/// same command before it.
pub fn register_kind(kinds: &Kinds, more: usize, name: &str) -> Result<(KindId, Mutation)> {
    kinds::check_name(name)?;
    let id = KindId(kinds.next_id().0 + more as u32);
    let value = name.as_bytes().to_vec();
    let action = Action::PutRaw { value };
    let record = Mutation::new(trees::SYSTEM, &trees::kind_key(id.0), action);
    Ok((id, record))
}

/// Creates or replaces a block.
pub fn put_block<T: Target>(target: &mut T, block: &Block) -> Result<(), T::Error> {
    check_depth(&block.attributes)?;
    let count = block.kinds.len();
    if count > BlockKinds::MAX {
        return Err(Error::TooManyKinds { count }.into());
    }
    let mut kinds = SmallVec::<[KindId; 4]>::new();
    for kind in &block.kinds {
        kinds.push(target.kind(kind)?);
    }
    // Names have another order than their numbers.
    kinds.sort_unstable();
    let mut value = Vec::new();
    graph::encode_block(&kinds, block, &mut value);
    target.put_record(trees::BLOCK, &graph::block_key(block.id), value)
}

/// Deletes a block and all its edges. Returns whether the block existed.
pub fn delete_block<T: Target>(target: &mut T, id: BlockId) -> Result<bool, T::Error> {
    let key = graph::block_key(id);
    if !target.exists(trees::BLOCK, &key)? {
        return Ok(false);
    }
    for tree in [trees::EDGE_OUT, trees::EDGE_IN] {
        for key in target.keys(tree, &graph::edge_prefix(id))? {
            let (source, kind, target_id) = split(tree, &key)?;
            remove_edge(target, source, kind, target_id)?;
        }
    }
    target.delete_record(trees::BLOCK, &key)?;
    Ok(true)
}

/// Creates or replaces an edge between two blocks that exist.
pub fn put_edge<T: Target>(target: &mut T, edge: &Edge) -> Result<(), T::Error> {
    check_depth(&edge.attributes)?;
    for id in [edge.source, edge.target] {
        target.require(Guard::Block { id })?;
    }
    let kind = target.kind(&edge.kind)?;
    let mut value = Vec::new();
    graph::encode_edge(&edge.attributes, &mut value);
    let out = graph::edge_out_key(edge.source, kind, edge.target);
    let back = graph::edge_in_key(edge.target, kind, edge.source);
    target.put_record(trees::EDGE_OUT, &out, value)?;
    target.put_record(trees::EDGE_IN, &back, Vec::new())
}

/// What is nested deeper would not be decoded again.
fn check_depth(attributes: &Attributes) -> Result<()> {
    let is_too_deep = |value: &AttributeValue| value.depth() > AttributeValue::DEPTH_MAX;
    let too_deep = attributes.iter().find(|(_, value)| is_too_deep(value));
    too_deep.map_or(Ok(()), |(name, _)| {
        Err(Error::AttributeTooDeep { name: name.clone() })
    })
}

/// Deletes an edge. Returns whether it existed.
pub fn delete_edge<T: Target>(
    target: &mut T,
    source: BlockId,
    kind: KindId,
    target_id: BlockId,
) -> Result<bool, T::Error> {
    let key = graph::edge_out_key(source, kind, target_id);
    let is_there = target.exists(trees::EDGE_OUT, &key)?;
    if is_there {
        remove_edge(target, source, kind, target_id)?;
    }
    Ok(is_there)
}

fn remove_edge<T: Target>(
    target: &mut T,
    source: BlockId,
    kind: KindId,
    target_id: BlockId,
) -> Result<(), T::Error> {
    let out = graph::edge_out_key(source, kind, target_id);
    let back = graph::edge_in_key(target_id, kind, source);
    target.delete_record(trees::EDGE_OUT, &out)?;
    target.delete_record(trees::EDGE_IN, &back)
}

/// The source, kind and target of an edge key of either tree.
pub fn split(tree: TreeId, key: &[u8]) -> Result<(BlockId, KindId, BlockId)> {
    let split = graph::split_edge_key(key);
    let (near, kind, far) = split.ok_or_else(|| Error::InvalidRecord {
        what: "edge",
        key: show_key(key),
        reason: "its key is not 36 bytes",
    })?;
    Ok(match tree {
        trees::EDGE_OUT => (near, kind, far),
        _ => (far, kind, near),
    })
}
