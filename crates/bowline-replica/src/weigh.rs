//! Whether a transaction is within its budget as of now: the check of the member that proposes it. The check that decides
//! is made where the command is applied (`work`).

use std::collections::HashMap;

use bowline_storage::engine::Engine;
use bowline_types::{Revision, Update};

use super::command::{Commit, CommitWrite, DeleteRangeOp, Refusal, Txn};
use super::overlay::Overlay;
use super::range::{self, Purpose, Span};
use super::work::{Weight, Work, value_bytes};
use bowline_core::error::Result;
use bowline_core::write::writer;

/// Evaluates a transaction at a revision within a budget: what it reads, or the refusal if that exceeds the budget. Other
/// refusals are left to the applying members.
pub(crate) fn weigh(
    engine: &Engine,
    txn: &Txn,
    at: Revision,
    compacted: Option<Revision>,
    work: &Work,
) -> Result<Result<Weight, Refusal>> {
    let evaluated = range::read_txn(engine, txn, at, compacted, (Purpose::Weight, work))?;
    Ok(match evaluated {
        Err(refusal @ Refusal::TooMuchWork { .. }) => Err(refusal),
        _ => Ok(work.weight()),
    })
}

/// The most that the updates of a commit read and make, by the newest values; the refusal if that exceeds the budget.
pub(crate) fn weigh_updates(
    engine: &Engine,
    commit: &Commit,
    work: &Work,
) -> Result<Result<Weight, Refusal>> {
    // The lengths of values that the commit has written.
    let mut written: HashMap<&[u8], u64> = HashMap::new();
    for write in &commit.writes {
        match write {
            CommitWrite::Put { key, value, .. } => {
                written.insert(key, value.len() as u64);
            }
            CommitWrite::Delete { key } => {
                written.insert(key, 0);
            }
            CommitWrite::Update { key, update } => {
                let old = match written.get(&key[..]) {
                    Some(bytes) => *bytes,
                    None => value_bytes(engine, key)?,
                };
                let carried = update.carried_bytes() as u64;
                let new = match update {
                    Update::Append(_) => old + carried,
                    _ => carried,
                };
                work.take(1, old + new);
                if let Err(refusal) = work.check() {
                    return Ok(Err(refusal));
                }
                written.insert(key, old.max(new));
            }
            CommitWrite::DeleteRange { .. } | CommitWrite::Graph(_) => {}
        }
    }
    Ok(Ok(work.weight()))
}

/// Refuses a deletion of more than a command may delete, `writes_max` bytes, at a revision. `None` when that is not known
/// after a look at `keys_max` keys.
pub(crate) fn weigh_deletion(
    engine: &Engine,
    delete: &DeleteRangeOp,
    at: Revision,
    (writes_max, keys_max): (u64, usize),
) -> Result<Option<Result<(), Refusal>>> {
    let span = Span::of(&delete.key, &delete.range_end);
    let (mut size, mut keys) = (0, 0);
    range::for_each(
        engine,
        &Overlay::default(),
        &span,
        at,
        false,
        &mut |entry| {
            size += writer::deletion_bytes(&entry.key, entry.lease);
            keys += 1;
            Ok(size <= writes_max && keys <= keys_max)
        },
    )?;
    Ok(match size > writes_max {
        true => Some(Err(Refusal::TooManyWrites {
            size,
            limit: writes_max,
        })),
        false => (keys <= keys_max).then_some(Ok(())),
    })
}
