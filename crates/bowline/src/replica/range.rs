//! Reading a range the way etcd does: bounds, filters, order, limit, count.

use std::ops::Bound;

use bowline_storage::tree::{Engine, ScanDirection};
use bowline_storage::{Revision, Value};

use super::command::{
    Op, OpReply, RangeOp, RangeReply, Refusal, SortOrder, SortTarget, Txn, TxnReply,
};
use super::overlay::Overlay;
use super::plan::{entry_holds, is_below_all, is_newest};
use crate::error::Result;
use crate::kv::{Entry, record};
use crate::trees;

/// What keys a key and a range end name, in etcd's manner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Span {
    /// One key.
    Key(Vec<u8>),
    /// From the first bound to the second, which is excluded; none is the end.
    Range(Vec<u8>, Option<Vec<u8>>),
}

impl Span {
    pub(crate) fn of(key: &[u8], range_end: &[u8]) -> Span {
        match range_end {
            [] => Span::Key(key.to_vec()),
            [0] => Span::Range(key.to_vec(), None),
            end => Span::Range(key.to_vec(), Some(end.to_vec())),
        }
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        match self {
            Span::Key(only) => key == only,
            Span::Range(from, end) => {
                key >= &from[..] && end.as_ref().is_none_or(|end| key < &end[..])
            }
        }
    }
}

/// Visits the entries of a span at `at`, with what a transaction has written on top, in order of
/// keys, until `visit` says no.
pub(crate) fn for_each_entry(
    engine: &Engine,
    overlay: &Overlay,
    span: &Span,
    at: Revision,
    visit: &mut dyn FnMut(Entry) -> Result<bool>,
) -> Result<()> {
    let (from, end) = match span {
        Span::Key(key) => {
            let found = match overlay.get(trees::KV, key) {
                Some(own) => own.entry(key)?,
                None => {
                    engine.read_at(trees::KV, key, at, |found| record::entry_of(key, found))??
                }
            };
            return found.map_or(Ok(()), |entry| visit(entry).map(drop));
        }
        Span::Range(from, Some(end)) if from >= end => return Ok(()),
        Span::Range(from, end) => (from, end),
    };
    let lower = Bound::Included(from.clone());
    let upper = end.clone().map_or(Bound::Unbounded, Bound::Excluded);
    let mut own = overlay.span(trees::KV, from, end.as_deref()).peekable();
    let mut scan = engine.scan(trees::KV, lower, upper, at, ScanDirection::Forward);
    while scan.advance()? {
        let key = scan.key();
        while let Some((own_key, write)) = own.next_if(|(own_key, _)| *own_key < key) {
            if let Some(entry) = write.entry(own_key)?
                && !visit(entry)?
            {
                return Ok(());
            }
        }
        if let Some((_, write)) = own.next_if(|(own_key, _)| *own_key == key) {
            if let Some(entry) = write.entry(key)?
                && !visit(entry)?
            {
                return Ok(());
            }
            continue;
        }
        let bytes = scan.bytes();
        let decoded = record::decode(bytes, scan.revision());
        let (head, start) = decoded.ok_or_else(|| record::invalid(key))?;
        let meta = head.complete(key, scan.sources())?;
        if !visit(meta.entry(key, scan.slice(start..bytes.len())))? {
            return Ok(());
        }
    }
    for (key, write) in own {
        if let Some(entry) = write.entry(key)?
            && !visit(entry)?
        {
            return Ok(());
        }
    }
    Ok(())
}

/// Reads a range at `at`; the caller has checked that it can be read.
pub(crate) fn read(
    engine: &Engine,
    overlay: &Overlay,
    op: &RangeOp,
    at: Revision,
) -> Result<RangeReply> {
    let span = Span::of(&op.key, &op.range_end);
    let mut reply = RangeReply::default();
    let is_filtered = op.min_mod_revision != 0
        || op.max_mod_revision != 0
        || op.min_create_revision != 0
        || op.max_create_revision != 0;
    let limit = usize::try_from(op.limit).unwrap_or(usize::MAX);
    // In the order of keys the limit can be applied while reading. etcd does the same when a target
    // is given and no order, and sorts what it has read, the entry beyond the limit with it.
    let by_key = op.sort_target == SortTarget::Key && op.sort_order != SortOrder::Descend;
    let early = (by_key || op.sort_order == SortOrder::None) && !is_filtered && limit > 0;
    let read_max = limit.saturating_add(usize::from(!by_key));
    for_each_entry(engine, overlay, &span, at, &mut |mut entry| {
        reply.count += 1;
        if op.count_only || (early && reply.entries.len() >= read_max) || !passes(op, &entry) {
            return Ok(true);
        }
        if op.keys_only && op.sort_target != SortTarget::Value {
            entry.value = Value::default();
        }
        reply.entries.push(entry);
        Ok(true)
    })?;
    if op.count_only {
        return Ok(reply);
    }
    sort(op, &mut reply.entries);
    if limit > 0 {
        reply.more = match early {
            true => reply.count > op.limit,
            false => reply.entries.len() > limit,
        };
        reply.entries.truncate(limit);
    }
    if op.keys_only {
        for entry in &mut reply.entries {
            entry.value = Value::default();
        }
    }
    Ok(reply)
}

fn passes(op: &RangeOp, entry: &Entry) -> bool {
    let above = |bound: Revision, revision| bound == 0 || revision >= bound;
    let below = |bound: Revision, revision| bound == 0 || revision <= bound;
    above(op.min_mod_revision, entry.mod_revision)
        && below(op.max_mod_revision, entry.mod_revision)
        && above(op.min_create_revision, entry.create_revision)
        && below(op.max_create_revision, entry.create_revision)
}

/// Entries that are equal in what they are sorted by stay in the order of their keys, also from the
/// largest to the smallest.
fn sort(op: &RangeOp, entries: &mut [Entry]) {
    let order = |a: &Entry, b: &Entry| match op.sort_target {
        SortTarget::Key => a.key.cmp(&b.key),
        SortTarget::Version => a.version.cmp(&b.version),
        SortTarget::Create => a.create_revision.cmp(&b.create_revision),
        SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
        SortTarget::Value => a.value.cmp(&b.value),
    };
    match op.sort_order {
        SortOrder::Descend => entries.sort_by(|a, b| order(b, a)),
        // They are read in this order.
        _ if op.sort_target == SortTarget::Key => {}
        _ => entries.sort_by(order),
    }
}

/// Evaluates a transaction that only reads, at a pinned revision.
pub(crate) fn read_txn(
    engine: &Engine,
    txn: &Txn,
    at: Revision,
    compacted: Option<Revision>,
) -> Result<Result<TxnReply, Refusal>> {
    let mut succeeded = true;
    for compare in &txn.compares {
        let span = Span::of(&compare.key, &compare.range_end);
        let mut holds = true;
        let mut is_empty = true;
        for_each_entry(engine, &Overlay::default(), &span, at, &mut |entry| {
            is_empty = false;
            holds = entry_holds(compare, Some(&entry));
            Ok(holds)
        })?;
        if is_empty {
            holds = entry_holds(compare, None);
        }
        if !holds {
            succeeded = false;
            break;
        }
    }
    let branch = if succeeded {
        &txn.success
    } else {
        &txn.failure
    };
    let mut replies = Vec::with_capacity(branch.len());
    for op in branch {
        match op {
            Op::Range(range) if range.revision == at || is_newest(range.revision, compacted) => {
                let found = read(engine, &Overlay::default(), range, at)?;
                replies.push(OpReply::Range(found));
            }
            Op::Range(range) if is_below_all(range.revision) => {
                let (revision, oldest) = (range.revision, compacted.unwrap_or(0));
                return Ok(Err(Refusal::Compacted { revision, oldest }));
            }
            Op::Range(range) => match engine.pin_at(range.revision) {
                Ok(pin) => {
                    let found = read(engine, &Overlay::default(), range, pin.revision())?;
                    replies.push(OpReply::Range(found));
                }
                Err(error) => return Ok(Err(super::refusal(range.revision, error))),
            },
            Op::Txn(inner) => match read_txn(engine, inner, at, compacted)? {
                Ok(reply) => replies.push(OpReply::Txn(reply)),
                Err(refusal) => return Ok(Err(refusal)),
            },
            Op::Put(_) | Op::DeleteRange(_) => {}
        }
    }
    Ok(Ok(TxnReply { succeeded, replies }))
}
