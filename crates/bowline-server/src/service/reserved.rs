//! [`Reserved`]: the memory of a transaction's reply, charged before the transaction is proposed or read.
//!
//! The reply of a command is made where it is applied, together with those of all other commands of an entry, and
//! waits there until each call is polled. Charged only as an unread message, it came too late: one connection made the
//! server hold 3 GB of replies that no connection had yet.
//!
//! So what a transaction may read is measured first, in the state of this moment, whichever way its conditions go, and
//! charged twice: once as entries, once as a message. The charge is held until the message is made. A reply of more
//! than [`TURN_BYTES`] also takes one of the connection's turns for wide reads, so that a client that sends many such
//! transactions at once has them answered one after another rather than refused.
//!
//! The state may grow until the transaction is applied, by writes that were charged themselves.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use bowline::{DbReader, Revision};
use bowline_replica::{Op, RangeOp, SortOrder, SortTarget, TXN_BYTES_MAX, TXN_KEYS_MAX, Txn};
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

use super::etcd_range::range_of;
use crate::context::Context;
use crate::memory::{Charge, current_account};
use crate::status::status;

/// A larger reply takes a turn.
const TURN_BYTES: u64 = 1 << 20;
/// Up to so many single keys are measured on the caller's thread.
const FEW_KEYS: usize = 16;

/// The memory of a reply, until this is dropped.
#[derive(Debug)]
#[must_use = "the memory is released with it"]
pub(super) struct Reserved {
    _charge: Charge,
    _turn: Option<OwnedSemaphorePermit>,
}

/// Reserves memory for the reply of a transaction; none for one that reads nothing.
pub(super) async fn reserve(context: &Context, txn: &Txn) -> Result<Option<Reserved>, Status> {
    let branches = [&txn.success, &txn.failure].map(|ops| {
        let mut reads = Vec::new();
        add_reads(ops, &mut reads);
        reads
    });
    let mut reads = branches.iter().flatten();
    let count = reads.clone().count();
    if count == 0 {
        return Ok(None);
    }
    let are_few = count <= FEW_KEYS && reads.all(|read| read.range_end.is_empty());
    let db = context.client.db().clone();
    // Only one of the branches is taken.
    let measure = move || -> bowline::Result<u64> {
        let [success, failure] = &branches;
        Ok(reply_bytes(&db, success)?.max(reply_bytes(&db, failure)?))
    };
    let bytes = match are_few {
        true => measure(),
        false => context.wide_reads.run(measure).await?,
    };
    let bytes = bytes.map_err(status)?;
    let account = current_account(&context.memory);
    let turn = match bytes > TURN_BYTES {
        true => account.wide_read().await,
        false => None,
    };
    let charged = usize::try_from(charged_bytes(bytes)).unwrap_or(usize::MAX / 2);
    Ok(Some(Reserved {
        _charge: Charge::of(&account, charged)?,
        _turn: turn,
    }))
}

/// What is charged for a reply of so many bytes. More than a transaction may read is refused as that once it is read, and
/// no message is made of it: a refusal for want of memory would say that it can be had later.
fn charged_bytes(reply_bytes: u64) -> u64 {
    match reply_bytes >= TXN_BYTES_MAX {
        true => TXN_BYTES_MAX,
        false => 2 * reply_bytes,
    }
}

/// Whether a transaction may read anything for its reply.
pub(super) fn may_read(txn: &Txn) -> bool {
    let mut ops = txn.success.iter().chain(&txn.failure);
    ops.any(|op| match op {
        Op::Range(range) => !range.count_only,
        Op::Put(put) => put.prev_kv,
        Op::DeleteRange(delete) => delete.prev_kv,
        Op::Txn(inner) => may_read(inner),
    })
}

/// What the operations of a branch may read for the reply; of a nested transaction, both of its branches.
fn add_reads(ops: &[Op], reads: &mut Vec<RangeOp>) {
    for op in ops {
        match op {
            Op::Range(range) if !range.count_only => reads.push(range.clone()),
            Op::Put(put) if put.prev_kv => reads.push(RangeOp {
                key: put.key.clone(),
                ..RangeOp::default()
            }),
            Op::DeleteRange(delete) if delete.prev_kv => reads.push(RangeOp {
                key: delete.key.clone(),
                range_end: delete.range_end.clone(),
                ..RangeOp::default()
            }),
            Op::Txn(inner) => {
                add_reads(&inner.success, reads);
                add_reads(&inner.failure, reads);
            }
            Op::Range(_) | Op::Put(_) | Op::DeleteRange(_) => {}
        }
    }
}

/// The bytes of keys and values in the replies of all these reads; no more than a transaction may read.
fn reply_bytes(db: &DbReader, reads: &[RangeOp]) -> bowline::Result<u64> {
    let newest = db.snapshot();
    let (mut keys, mut bytes) = (0, 0);
    for read in reads {
        let snapshot = match read.revision {
            Revision::ZERO => newest.clone(),
            // A revision that cannot be read has no entries in the reply.
            revision => match db.snapshot_at(revision) {
                Ok(snapshot) => snapshot,
                Err(_) => continue,
            },
        };
        let mut sizes = Sizes::of(read);
        let entries = snapshot.range(range_of(read))?.without_large_values();
        let walked = entries.visit(|at| {
            keys += 1;
            let value_bytes = match read.keys_only {
                true => Ok(0),
                false => at.value_bytes(),
            };
            let value_bytes = match value_bytes {
                Ok(value_bytes) => value_bytes,
                Err(error) => return ControlFlow::Break(Err(error)),
            };
            let is_done = sizes.add(at.key.len() as u64 + value_bytes);
            match is_done || keys > TXN_KEYS_MAX || bytes + sizes.sum > TXN_BYTES_MAX {
                true => ControlFlow::Break(Ok(())),
                false => ControlFlow::Continue(()),
            }
        })?;
        bytes += sizes.sum;
        let is_too_much = keys > TXN_KEYS_MAX || bytes > TXN_BYTES_MAX;
        let is_ended = walked.break_value().transpose()?.is_some();
        if is_ended && is_too_much {
            return Ok(TXN_BYTES_MAX);
        }
    }
    Ok(bytes)
}

/// The sum of the sizes of a range's entries: of its first ones with a limit, of its largest ones if it is sorted or
/// filtered.
struct Sizes {
    limit: usize,
    sum: u64,
    count: usize,
    /// The smallest first.
    largest: Option<BinaryHeap<Reverse<u64>>>,
}

impl Sizes {
    fn of(read: &RangeOp) -> Sizes {
        let is_by_key = read.sort_order == SortOrder::None
            || read.sort_target == SortTarget::Key && read.sort_order == SortOrder::Ascend;
        let bounds = [
            read.min_mod_revision,
            read.max_mod_revision,
            read.min_create_revision,
            read.max_create_revision,
        ];
        let are_the_first = is_by_key && bounds == [Revision::ZERO; 4];
        let has_limit = read.limit > 0;
        Sizes {
            limit: match has_limit {
                true => usize::try_from(read.limit).unwrap_or(usize::MAX),
                false => usize::MAX,
            },
            sum: 0,
            count: 0,
            largest: (has_limit && !are_the_first).then(BinaryHeap::new),
        }
    }

    /// Adds an entry; whether no other one counts.
    fn add(&mut self, bytes: u64) -> bool {
        self.sum += bytes;
        self.count += 1;
        let Some(largest) = &mut self.largest else {
            return self.count >= self.limit;
        };
        largest.push(Reverse(bytes));
        if largest.len() > self.limit
            && let Some(Reverse(smallest)) = largest.pop()
        {
            self.sum -= smallest;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_counts_the_first_entries_or_the_largest() {
        let read = |limit, sort_order, min_mod_revision| RangeOp {
            limit,
            sort_order,
            sort_target: SortTarget::Mod,
            min_mod_revision: Revision::new(min_mod_revision),
            ..RangeOp::default()
        };
        let sum = |read: RangeOp| {
            let mut sizes = Sizes::of(&read);
            let _ = [5, 1, 9, 3, 7].into_iter().any(|bytes| sizes.add(bytes));
            sizes.sum
        };
        assert_eq!(sum(read(0, SortOrder::Descend, 0)), 25);
        assert_eq!(sum(read(2, SortOrder::None, 0)), 6);
        assert_eq!(sum(read(2, SortOrder::Descend, 0)), 16);
        assert_eq!(sum(read(3, SortOrder::None, 1)), 21);
        assert_eq!(sum(read(9, SortOrder::Ascend, 0)), 25);
    }
}
