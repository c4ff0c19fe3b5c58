//! The changes since a saved base: the edges whose newest version is newer than the base.
//!
//! The tree of edges keeps history from the revision of the base on. So an edge of the base that was deleted since still
//! has its tombstone, and an edge that was added since has its put. Versions between the two revisions may be missing: the
//! changes lead from the base to the edges of the later revision, not through the revisions between.

use std::ops::Bound;

use bowline_storage::EntryKind;
use bowline_storage::engine::{Engine, Next};

use super::super::keys::split_edge_key;
use super::changes::EdgeChange;
use crate::trees;
use crate::{Error, Result};

/// With more changes than this a build is as fast.
const CHANGES_MAX: usize = 1 << 20;
/// Between two looks at whether it was cancelled.
const STRIDE: usize = 4096;

/// Whether so few edges changed in (`base`, `to`] that [`changes`] has them all. Also when it was cancelled.
pub(super) fn are_few(
    engine: &Engine,
    base: u64,
    to: u64,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<bool> {
    let mut count = 0;
    let all = Bound::Unbounded;
    let span = (base + 1, to);
    engine.peek_versions(trees::EDGE_OUT, all, all, span, &mut |_, _, _, _| {
        count += 1;
        match count <= CHANGES_MAX && (count % STRIDE != 0 || !is_cancelled()) {
            true => Next::All,
            false => Next::Nothing,
        }
    })?;
    Ok(count <= CHANGES_MAX)
}

/// The changes of edges in (`base`, `to`], in the order of their revisions. `None` when it was cancelled, or when
/// there are too many.
pub(super) fn changes(
    engine: &Engine,
    base: u64,
    to: u64,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Option<Vec<EdgeChange>>> {
    let mut changes: Vec<EdgeChange> = Vec::new();
    let mut failure: Option<Error> = None;
    let mut is_whole = true;
    let (all, span) = (Bound::Unbounded, (base + 1, to));
    engine.peek_versions(
        trees::EDGE_OUT,
        all,
        all,
        span,
        &mut |key, revision, kind, _| {
            let Some((source, edge_kind, target)) = split_edge_key(key) else {
                failure = Some(super::invalid("edge", key, "its key is not 36 bytes"));
                return Next::Nothing;
            };
            let is_looked = changes.len() % STRIDE == STRIDE - 1;
            if changes.len() == CHANGES_MAX || is_looked && is_cancelled() {
                is_whole = false;
                return Next::Nothing;
            }
            changes.push(EdgeChange {
                source,
                target,
                revision,
                kind: edge_kind,
                is_put: kind == EntryKind::Put,
            });
            Next::All
        },
    )?;
    if let Some(error) = failure {
        return Err(error);
    }
    changes.sort_unstable_by_key(|change| change.revision);
    Ok(is_whole.then_some(changes))
}
