//! Range reads as in etcd: bounds, filters, order, limit, count.
//!
//! With a limit, memory holds at most the entries of the reply and the one being visited, in whatever order
//! ([`Selection`]). Where the order does not need the values, the scan leaves them out, and those of the reply
//! are read afterwards, at the same revision. What a limit leaves out is only counted, so its values are not
//! read either. In a transaction with a bounded budget they are: the budget counts the values that are visited,
//! alike on all members.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Bound;

use bowline_storage::Value;
use bowline_storage::engine::{Engine, ScanDirection};
use bowline_types::Revision;

use super::command::{
    Compare, DeleteRangeOp, Op, OpReply, RangeOp, RangeReply, Refusal, Relation, SortOrder,
    SortTarget, Target, Txn, TxnReply,
};
use super::overlay::Overlay;
use super::work::{Work, reads_previous, reads_values, value_bytes};
use bowline_core::error::Result;
use bowline_core::kv::{Entry, record};
use bowline_core::lease::LeaseId;
use bowline_core::trees;

/// The keys of a key and a range end, as in etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Span {
    /// One key.
    Key(Vec<u8>),
    /// From the first bound to the second, exclusive; `None` is the end.
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
}

/// Visits the entries of a span at `at`, with a transaction's own writes on top, in the order of keys, until
/// `visit` returns false.
pub(crate) fn for_each_entry(
    engine: &Engine,
    overlay: &Overlay,
    span: &Span,
    at: Revision,
    visit: &mut dyn FnMut(Entry) -> Result<bool>,
) -> Result<()> {
    for_each(engine, overlay, span, at, true, visit)
}

/// [`for_each_entry`] with optional values.
pub(crate) fn for_each(
    engine: &Engine,
    overlay: &Overlay,
    span: &Span,
    at: Revision,
    has_values: bool,
    visit: &mut dyn FnMut(Entry) -> Result<bool>,
) -> Result<()> {
    let (from, end) = match span {
        Span::Key(key) => {
            let found = match overlay.get(trees::KV, key) {
                Some(own) => own.entry(key)?,
                None => engine.read_at(trees::KV, key, at.get(), |found| {
                    record::entry_of(key, found)
                })??,
            };
            return found.map_or(Ok(()), |entry| visit(entry).map(drop));
        }
        Span::Range(from, Some(end)) if from >= end => return Ok(()),
        Span::Range(from, end) => (from, end),
    };
    let lower = Bound::Included(from.clone());
    let upper = end.clone().map_or(Bound::Unbounded, Bound::Excluded);
    let mut own = overlay.span(trees::KV, from, end.as_deref()).peekable();
    let mut scan = engine.scan(trees::KV, lower, upper, at.get(), ScanDirection::Forward);
    if !has_values {
        scan = scan.heads();
    }
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
        let decoded = record::decode(bytes, Revision::new(scan.revision()));
        let (head, start) = decoded.ok_or_else(|| record::invalid(key))?;
        let meta = head.complete(key, scan.sources())?;
        let value = match has_values {
            true => scan.slice(start..bytes.len()),
            false => Value::EMPTY,
        };
        if !visit(meta.entry(key, value))? {
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
    let reply = read_within(engine, overlay, op, at, &Work::unlimited())?;
    // An unlimited budget is never exceeded.
    Ok(reply.unwrap_or_default())
}

/// [`read`] within a budget.
pub(crate) fn read_within(
    engine: &Engine,
    overlay: &Overlay,
    op: &RangeOp,
    at: Revision,
    work: &Work,
) -> Result<Result<RangeReply, Refusal>> {
    let span = Span::of(&op.key, &op.range_end);
    let mut reply = RangeReply::default();
    let is_filtered = op.min_mod_revision != 0
        || op.max_mod_revision != 0
        || op.min_create_revision != 0
        || op.max_create_revision != 0;
    let limit = usize::try_from(op.limit).unwrap_or(usize::MAX);
    // In the order of keys the limit applies during the read. etcd does the same for a target without an
    // order, and sorts what it has read, including the entry beyond the limit.
    let by_key = op.sort_target == SortTarget::Key && op.sort_order != SortOrder::Descend;
    let early = (by_key || op.sort_order == SortOrder::None) && !is_filtered && limit > 0;
    let read_max = limit.saturating_add(usize::from(!by_key));
    // Otherwise all entries are visited, and the first `limit` of them in the requested order are kept.
    let mut selection = (!early && limit > 0).then(|| Selection::new(op, limit));
    let is_without_values = op.keys_only && op.sort_target != SortTarget::Value;
    // A bounded budget counts the values that are visited.
    let reads_values_later = selection.is_some()
        && op.sort_target != SortTarget::Value
        && !op.keys_only
        && !work.is_limited();
    let has_values = !op.count_only && !is_without_values && !reads_values_later;
    // The values beyond the limit are left out by a scan of its own.
    let counts_apart = early && has_values && !work.is_limited();
    let mut last = None;
    for_each(engine, overlay, &span, at, has_values, &mut |mut entry| {
        if !work.take(1, (entry.key.len() + entry.value.len()) as u64) {
            return Ok(false);
        }
        reply.count += 1;
        if op.count_only || (early && reply.entries.len() >= read_max) || !passes(op, &entry) {
            return Ok(true);
        }
        if !has_values {
            // A write of the transaction itself has its value.
            entry.value = Value::default();
        }
        match &mut selection {
            Some(selection) => selection.offer(entry),
            None => reply.entries.push(entry),
        }
        if counts_apart && reply.entries.len() >= read_max {
            last = reply.entries.last().map(|entry| entry.key.to_vec());
        }
        Ok(last.is_none())
    })?;
    if let (Some(mut from), Span::Range(_, end)) = (last, span) {
        // The next key after the last one.
        from.push(0);
        let rest = Span::Range(from, end);
        for_each(engine, overlay, &rest, at, false, &mut |_| {
            reply.count += 1;
            Ok(true)
        })?;
    }
    if let Err(refusal) = work.check() {
        return Ok(Err(refusal));
    }
    if op.count_only {
        return Ok(Ok(reply));
    }
    match selection {
        Some(selection) => {
            reply.more = selection.offered > limit;
            reply.entries = selection.into_entries();
        }
        None => {
            sort(op, &mut reply.entries);
            if limit > 0 {
                reply.more = reply.count > op.limit;
                reply.entries.truncate(limit);
            }
        }
    }
    if op.keys_only {
        for entry in &mut reply.entries {
            entry.value = Value::default();
        }
    }
    if reads_values_later {
        for entry in &mut reply.entries {
            entry.value = value_at(engine, overlay, entry, at)?;
        }
    }
    Ok(Ok(reply))
}

/// Charges what [`read_within`] charges for a range, without reading large values.
pub(crate) fn weigh(
    engine: &Engine,
    op: &RangeOp,
    at: Revision,
    work: &Work,
) -> Result<Result<(), Refusal>> {
    let (from, end) = match Span::of(&op.key, &op.range_end) {
        Span::Key(_) => {
            let read = read_within(engine, &Overlay::default(), op, at, work)?;
            return Ok(read.map(drop));
        }
        Span::Range(from, Some(end)) if from >= end => return Ok(work.check()),
        Span::Range(from, end) => (from, end),
    };
    let needs_values = !op.count_only && (!op.keys_only || op.sort_target == SortTarget::Value);
    let lower = Bound::Included(from);
    let upper = end.map_or(Bound::Unbounded, Bound::Excluded);
    let scan = engine.scan(trees::KV, lower, upper, at.get(), ScanDirection::Forward);
    let mut scan = scan.heads();
    while scan.advance()? {
        let key = scan.key();
        let decoded = record::decode(scan.bytes(), Revision::new(scan.revision()));
        let (_, start) = decoded.ok_or_else(|| record::invalid(key))?;
        let value_bytes = match needs_values {
            true => scan.value_bytes()?.saturating_sub(start as u64),
            false => 0,
        };
        if !work.take(1, key.len() as u64 + value_bytes) {
            break;
        }
    }
    Ok(work.check())
}

/// The value of an entry that was found at `at` without it.
fn value_at(engine: &Engine, overlay: &Overlay, entry: &Entry, at: Revision) -> Result<Value> {
    let mut value = None;
    let span = Span::Key(entry.key.to_vec());
    for_each_entry(engine, overlay, &span, at, &mut |found| {
        value = (found.mod_revision == entry.mod_revision).then_some(found.value);
        Ok(false)
    })?;
    value.ok_or_else(|| record::invalid(&entry.key))
}

fn passes(op: &RangeOp, entry: &Entry) -> bool {
    let above = |bound: Revision, revision| bound == 0 || revision >= bound;
    let below = |bound: Revision, revision| bound == 0 || revision <= bound;
    above(op.min_mod_revision, entry.mod_revision)
        && below(op.max_mod_revision, entry.mod_revision)
        && above(op.min_create_revision, entry.create_revision)
        && below(op.max_create_revision, entry.create_revision)
}

/// The order of two entries by the target of a range, smallest first.
fn by_target(target: SortTarget, a: &Entry, b: &Entry) -> Ordering {
    match target {
        SortTarget::Key => a.key.cmp(&b.key),
        SortTarget::Version => a.version.cmp(&b.version),
        SortTarget::Create => a.create_revision.cmp(&b.create_revision),
        SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
        SortTarget::Value => a.value.cmp(&b.value),
    }
}

/// Entries with equal sort keys stay in the order of their keys, also in descending order.
fn sort(op: &RangeOp, entries: &mut [Entry]) {
    match op.sort_order {
        SortOrder::Descend => entries.sort_by(|a, b| by_target(op.sort_target, b, a)),
        // They are read in this order.
        _ if op.sort_target == SortTarget::Key => {}
        _ => entries.sort_by(|a, b| by_target(op.sort_target, a, b)),
    }
}

/// The first `limit` entries in the order of a range, of any number that are offered in any order. It keeps
/// no more than those.
struct Selection {
    target: SortTarget,
    is_descending: bool,
    /// Above zero.
    limit: usize,
    /// The last of the kept entries is the greatest.
    kept: BinaryHeap<Ranked>,
    offered: usize,
}

impl Selection {
    fn new(op: &RangeOp, limit: usize) -> Selection {
        Selection {
            target: op.sort_target,
            is_descending: op.sort_order == SortOrder::Descend,
            limit,
            kept: BinaryHeap::new(),
            offered: 0,
        }
    }

    fn offer(&mut self, entry: Entry) {
        self.offered += 1;
        let offered = Ranked {
            target: self.target,
            is_descending: self.is_descending,
            entry,
        };
        if self.kept.len() < self.limit {
            self.kept.push(offered);
        } else if let Some(mut last) = self.kept.peek_mut()
            && offered < *last
        {
            *last = offered;
        }
    }

    fn into_entries(self) -> Vec<Entry> {
        let sorted = self.kept.into_sorted_vec().into_iter();
        sorted.map(|ranked| ranked.entry).collect()
    }
}

/// An entry with its place in the order of a range: what [`sort`] puts first is the smallest.
struct Ranked {
    target: SortTarget,
    is_descending: bool,
    entry: Entry,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> Ordering {
        let order = by_target(self.target, &self.entry, &other.entry);
        let order = match self.is_descending {
            true => order.reverse(),
            false => order,
        };
        order.then_with(|| self.entry.key.cmp(&other.entry.key))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Ranked) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked {}

/// Whether a condition holds for every key of its span; as in etcd, without any key the comparison with an
/// absent one decides. The work is charged to `work`, which the caller must check.
pub(crate) fn holds(
    engine: &Engine,
    overlay: &Overlay,
    compare: &Compare,
    at: Revision,
    work: &Work,
) -> Result<bool> {
    let span = Span::of(&compare.key, &compare.range_end);
    let has_values = reads_values(compare);
    let mut holds = true;
    let mut is_empty = true;
    for_each(engine, overlay, &span, at, has_values, &mut |entry| {
        is_empty = false;
        let value_bytes = if has_values { entry.value.len() } else { 0 };
        holds = work.take(1, (entry.key.len() + value_bytes) as u64)
            && entry_holds(compare, Some(&entry));
        Ok(holds)
    })?;
    if is_empty {
        holds = entry_holds(compare, None);
    }
    Ok(holds)
}

/// What the evaluation of a transaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Its reply.
    Reply,
    /// What it reads: the reply is left out, and no large value is read for it.
    Weight,
}

/// Evaluates the reads of a transaction at a pinned revision.
pub(crate) fn read_txn(
    engine: &Engine,
    txn: &Txn,
    at: Revision,
    compacted: Option<Revision>,
    (purpose, work): (Purpose, &Work),
) -> Result<Result<TxnReply, Refusal>> {
    /// Returns a refusal as the result of the evaluation.
    macro_rules! unless_refused {
        ($result:expr) => {
            match $result {
                Ok(value) => value,
                Err(refusal) => return Ok(Err(refusal)),
            }
        };
    }
    let nothing = Overlay::default();
    let mut succeeded = true;
    look_ahead(engine, compared_keys(txn));
    for compare in &txn.compares {
        unless_refused!(work.look_up());
        succeeded = holds(engine, &nothing, compare, at, work)?;
        unless_refused!(work.check());
        if !succeeded {
            break;
        }
    }
    let branch = if succeeded {
        &txn.success
    } else {
        &txn.failure
    };
    let read = |range: &RangeOp, at: Revision| match purpose {
        Purpose::Reply => read_within(engine, &nothing, range, at, work),
        Purpose::Weight => {
            let weighed = weigh(engine, range, at, work)?;
            Ok(weighed.map(|()| RangeReply::default()))
        }
    };
    let mut replies = Vec::with_capacity(branch.len());
    look_ahead(engine, single_keys(branch));
    for op in branch {
        unless_refused!(work.look_up());
        match op {
            Op::Range(range) if range.revision == at || is_newest(range.revision, compacted) => {
                replies.push(OpReply::Range(unless_refused!(read(range, at)?)));
            }
            Op::Range(range) if is_below_all(range.revision) => {
                let (revision, oldest) = (range.revision, compacted.unwrap_or(Revision::ZERO));
                return Ok(Err(Refusal::Compacted { revision, oldest }));
            }
            Op::Range(range) => match engine.pin_at(range.revision.get()) {
                Ok(pin) => {
                    let found = read(range, Revision::new(pin.revision()))?;
                    replies.push(OpReply::Range(unless_refused!(found)));
                }
                Err(error) => return Ok(Err(refusal(range.revision, error))),
            },
            Op::Txn(inner) => {
                let reply = read_txn(engine, inner, at, compacted, (purpose, work))?;
                replies.push(OpReply::Txn(unless_refused!(reply)));
            }
            Op::Put(put) => {
                if reads_previous(put) {
                    work.take(0, value_bytes(engine, &put.key)?);
                    unless_refused!(work.check());
                }
            }
            Op::DeleteRange(delete) => {
                unless_refused!(walk_deletion(engine, delete, at, work)?);
            }
        }
    }
    Ok(Ok(TxnReply { succeeded, replies }))
}

/// Asks for the memory of keys that are read next, one after the other.
pub(crate) fn look_ahead<'k>(engine: &Engine, keys: impl Iterator<Item = &'k [u8]>) {
    engine.look_ahead(trees::KV, keys);
}

/// The single keys that a transaction compares.
pub(crate) fn compared_keys(txn: &Txn) -> impl Iterator<Item = &[u8]> {
    let compares = txn.compares.iter();
    compares
        .filter(|compare| compare.range_end.is_empty())
        .map(|compare| &compare.key[..])
}

/// The single keys that operations read or write.
pub(crate) fn single_keys(ops: &[Op]) -> impl Iterator<Item = &[u8]> {
    ops.iter().filter_map(|op| match op {
        Op::Range(range) if range.range_end.is_empty() => Some(&range.key[..]),
        Op::DeleteRange(delete) if delete.range_end.is_empty() => Some(&delete.key[..]),
        Op::Put(put) => Some(&put.key[..]),
        Op::Range(_) | Op::DeleteRange(_) | Op::Txn(_) => None,
    })
}

/// Charges the work of a deletion.
pub(crate) fn walk_deletion(
    engine: &Engine,
    delete: &DeleteRangeOp,
    at: Revision,
    work: &Work,
) -> Result<Result<(), Refusal>> {
    if delete.range_end.is_empty() && !delete.prev_kv {
        return Ok(Ok(()));
    }
    let op = RangeOp {
        key: delete.key.clone(),
        range_end: delete.range_end.clone(),
        count_only: !delete.prev_kv,
        ..RangeOp::default()
    };
    weigh(engine, &op, at, work)
}

/// The refusal for a revision that cannot be read.
pub(crate) fn refusal(revision: Revision, error: bowline_storage::engine::PinError) -> Refusal {
    use bowline_storage::engine::PinError;
    match error {
        PinError::Future { current, .. } => Refusal::FutureRevision {
            revision,
            newest: Revision::new(current),
        },
        PinError::Compacted { oldest, .. } => Refusal::Compacted {
            revision,
            oldest: Revision::new(oldest),
        },
    }
}

/// Whether a condition holds for a key, present or absent.
pub(crate) fn entry_holds(compare: &Compare, entry: Option<&Entry>) -> bool {
    let ordering = match &compare.target {
        Target::Value(value) => match entry {
            Some(entry) => entry.value[..].cmp(&value[..]),
            None => return false,
        },
        Target::Version(version) => entry.map_or(0, |e| e.version).cmp(version),
        Target::Create(revision) => entry
            .map_or(Revision::ZERO, |e| e.create_revision)
            .cmp(revision),
        Target::Mod(revision) => entry
            .map_or(Revision::ZERO, |e| e.mod_revision)
            .cmp(revision),
        Target::Lease(lease) => LeaseId::number_of(entry.and_then(|e| e.lease)).cmp(lease),
    };
    match compare.relation {
        Relation::Equal => ordering.is_eq(),
        Relation::NotEqual => ordering.is_ne(),
        Relation::Greater => ordering.is_gt(),
        Relation::Less => ordering.is_lt(),
    }
}

/// Whether a read of this revision in a transaction is of the newest; see `Known::is_newest`.
pub(crate) fn is_newest(revision: Revision, compacted: Option<Revision>) -> bool {
    revision == 0 || compacted.is_none() && revision.get() as i64 == -1
}

/// Whether a revision is a negative number of etcd's.
pub(crate) fn is_below_all(revision: Revision) -> bool {
    i64::try_from(revision.get()).is_err()
}
