//! Builds a [`Base`] from the trees: one scan of the blocks' heads, one of the edges.

use std::ops::Bound;

use bowline_storage::engine::{Engine, ScanDirection};
use bowline_types::BlockId;

use super::super::keys::split_edge_key;
use super::super::source::dangling_edge;
use super::ids::Ids;
use super::invalid;
use super::rows::RowsBuilder;
use super::state::Base;
use crate::Result;
use crate::trees;

/// Between two looks at whether the build was cancelled, and at the budget.
const STRIDE: u64 = 4096;

/// What a block takes without its edges: its id, its slot among the ids and where its two rows begin.
const BLOCK_BYTES: u64 = 30;

/// How a build ended.
#[derive(Debug)]
pub(super) enum Built {
    Done(Box<Base>),
    /// The base would take more than it may.
    OverBudget,
    Cancelled,
}

/// Reads the graph at a pinned revision, into a base of at most so many bytes.
pub(super) fn build(
    engine: &Engine,
    revision: u64,
    bytes_max: u64,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Built> {
    let mut steps = 0u64;
    let mut is_stopped = || {
        steps += 1;
        steps.is_multiple_of(STRIDE) && is_cancelled()
    };

    let mut ids: Vec<BlockId> = Vec::new();
    let all = || (Bound::Unbounded, Bound::Unbounded);
    let (lower, upper) = all();
    let scan = engine.scan(trees::BLOCK, lower, upper, revision, ScanDirection::Forward);
    // Contents need not be read.
    let mut scan = scan.heads();
    while scan.advance()? {
        if is_stopped() {
            return Ok(Built::Cancelled);
        }
        let id = scan.key().try_into().map(BlockId::from_bytes);
        ids.push(id.map_err(|_| invalid("block", scan.key(), "its key is not 16 bytes"))?);
        if ids.len() as u64 * BLOCK_BYTES > bytes_max || ids.len() >= u32::MAX as usize {
            return Ok(Built::OverBudget);
        }
    }
    drop(scan);
    let ids = Ids::new(ids);

    let mut rows = RowsBuilder::new(ids.len());
    let (lower, upper) = all();
    let tree = trees::EDGE_OUT;
    let mut scan = engine.scan(tree, lower, upper, revision, ScanDirection::Forward);
    let mut near: Option<(BlockId, u32)> = None;
    while scan.advance()? {
        if is_stopped() {
            return Ok(Built::Cancelled);
        }
        let (source, kind, target) = split_edge_key(scan.key())
            .ok_or_else(|| invalid("edge", scan.key(), "its key is not 36 bytes"))?;
        let from = match near {
            Some((id, ordinal)) if id == source => Some(ordinal),
            _ => ids.ordinal(source),
        };
        let (Some(from), Some(to)) = (from, ids.ordinal(target)) else {
            return Err(dangling_edge(source, kind, target));
        };
        near = Some((source, from));
        // The edges of the other direction take as much again.
        if !rows.push(from, kind, to) || ids.memory_bytes() + 2 * rows.finished_bytes() > bytes_max
        {
            return Ok(Built::OverBudget);
        }
    }
    let base = Base::new(revision, true, ids, rows.finish());
    Ok(match base.memory_bytes() > bytes_max {
        true => Built::OverBudget,
        false => Built::Done(Box::new(base)),
    })
}
