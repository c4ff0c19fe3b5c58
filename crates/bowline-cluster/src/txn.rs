//! Transactions in etcd's manner over one of the database.

use std::collections::BTreeMap;

use bowline::replica::{
    Compare, Op, OpReply, RangeOp, RangeReply, Refusal, Relation, SortOrder, SortTarget, Target,
    Txn, TxnReply,
};
use bowline::{Db, Entry, Range, Snapshot, Transaction, Value};

use crate::Error;

type Overlay = BTreeMap<Vec<u8>, Option<Entry>>;

pub(crate) fn span(key: &[u8], end: &[u8]) -> Range {
    match end {
        [] => Range::key(key),
        [0] => Range::from(key..),
        end if end <= key => Range::from(key..key),
        end => Range::from(key..end),
    }
}

fn found(
    snapshot: &Snapshot,
    overlay: &Overlay,
    key: &[u8],
    end: &[u8],
) -> Result<Vec<Entry>, Error> {
    let range = span(key, end);
    let mut all = BTreeMap::new();
    for entry in snapshot.range(range.clone())? {
        let entry = entry?;
        all.insert(entry.key.to_vec(), entry);
    }
    for (key, entry) in overlay.iter().filter(|(key, _)| range.contains(key)) {
        match entry {
            Some(entry) => all.insert(key.clone(), entry.clone()),
            None => all.remove(key),
        };
    }
    Ok(all.into_values().collect())
}

fn holds(snapshot: &Snapshot, overlay: &Overlay, compare: &Compare) -> Result<bool, Error> {
    let one = |entry: Option<&Entry>| {
        let order = match &compare.target {
            Target::Value(value) => match entry {
                Some(entry) => entry.value[..].cmp(value),
                None => return false,
            },
            Target::Version(n) => entry.map_or(0, |e| e.version).cmp(n),
            Target::Create(n) => entry.map_or(0, |e| e.create_revision).cmp(n),
            Target::Mod(n) => entry.map_or(0, |e| e.mod_revision).cmp(n),
            Target::Lease(n) => entry.map_or(0, |e| e.lease).cmp(n),
        };
        match compare.relation {
            Relation::Equal => order.is_eq(),
            Relation::Greater => order.is_gt(),
            Relation::Less => order.is_lt(),
            Relation::NotEqual => order.is_ne(),
        }
    };
    let entries = found(snapshot, overlay, &compare.key, &compare.range_end)?;
    if entries.is_empty() {
        return Ok(one(None));
    }
    Ok(entries.iter().all(|entry| one(Some(entry))))
}

fn select(mut entries: Vec<Entry>, op: &RangeOp) -> RangeReply {
    let count = entries.len() as u64;
    let bound = |max: u64| if max == 0 { u64::MAX } else { max };
    entries.retain(|entry| {
        (op.min_mod_revision..=bound(op.max_mod_revision)).contains(&entry.mod_revision)
            && (op.min_create_revision..=bound(op.max_create_revision))
                .contains(&entry.create_revision)
    });
    match op.sort_target {
        SortTarget::Key => {}
        SortTarget::Version => entries.sort_by_key(|e| e.version),
        SortTarget::Create => entries.sort_by_key(|e| e.create_revision),
        SortTarget::Mod => entries.sort_by_key(|e| e.mod_revision),
        SortTarget::Value => entries.sort_by(|a, b| a.value.cmp(&b.value)),
    }
    if op.sort_order == SortOrder::Descend {
        entries.reverse();
    }
    if op.count_only {
        return RangeReply {
            count,
            ..RangeReply::default()
        };
    }
    let limit = if op.limit == 0 { u64::MAX } else { op.limit };
    let more = entries.len() as u64 > limit;
    entries.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    if op.keys_only {
        for entry in &mut entries {
            entry.value = Value::default();
        }
    }
    RangeReply {
        entries,
        count,
        more,
    }
}

fn check_revision(db: &Db, revision: u64) -> Result<(), Error> {
    let (newest, oldest) = (db.revision(), db.oldest_revision());
    if revision > newest {
        return Err(Refusal::FutureRevision { revision, newest }.into());
    }
    if revision != 0 && revision < oldest {
        return Err(Refusal::Compacted { revision, oldest }.into());
    }
    Ok(())
}

fn range(
    db: &Db,
    snapshot: &Snapshot,
    overlay: &Overlay,
    op: &RangeOp,
) -> Result<RangeReply, Error> {
    check_revision(db, op.revision)?;
    let entries = if op.revision == 0 {
        found(snapshot, overlay, &op.key, &op.range_end)?
    } else {
        let old = db.snapshot_at(op.revision)?;
        found(&old, &Overlay::new(), &op.key, &op.range_end)?
    };
    Ok(select(entries, op))
}

pub(crate) fn read(db: &Db, op: &RangeOp) -> Result<RangeReply, Error> {
    range(db, &db.snapshot(), &Overlay::new(), op)
}

pub(crate) fn read_txn(db: &Db, txn: &Txn) -> Result<TxnReply, Error> {
    run(db, &db.snapshot(), None, &mut Overlay::new(), txn)
}

pub(crate) fn write(db: &Db, tx: &Transaction, txn: &Txn) -> Result<TxnReply, Error> {
    run(db, &db.snapshot(), Some(tx), &mut Overlay::new(), txn)
}

fn run(
    db: &Db,
    snapshot: &Snapshot,
    tx: Option<&Transaction>,
    overlay: &mut Overlay,
    txn: &Txn,
) -> Result<TxnReply, Error> {
    let mut succeeded = true;
    for compare in &txn.compares {
        succeeded &= holds(snapshot, overlay, compare)?;
    }
    let ops = if succeeded {
        &txn.success
    } else {
        &txn.failure
    };
    let mut replies = Vec::new();
    for op in ops {
        replies.push(match (op, tx) {
            (Op::Range(op), _) => OpReply::Range(range(db, snapshot, overlay, op)?),
            (Op::Txn(txn), _) => OpReply::Txn(run(db, snapshot, tx, overlay, txn)?),
            (Op::Put(op), Some(tx)) => {
                let before = found(snapshot, overlay, &op.key, &[])?.pop();
                if (op.ignore_value || op.ignore_lease) && before.is_none() {
                    return Err(Refusal::KeyNotFound.into());
                }
                if op.lease != 0 && !db.leases().iter().any(|lease| lease.id == op.lease) {
                    return Err(Refusal::LeaseNotFound { id: op.lease }.into());
                }
                let mut value = op.value.clone();
                let mut lease = op.lease;
                if let Some(before) = &before {
                    if op.ignore_value {
                        value = before.value.clone();
                    }
                    if op.ignore_lease {
                        lease = before.lease;
                    }
                }
                tx.put_with_lease(&op.key, &value, lease)?;
                let next = snapshot.revision() + 1;
                let entry = Entry {
                    key: Value::copy_from(&op.key),
                    value,
                    create_revision: before.as_ref().map_or(next, |b| b.create_revision),
                    mod_revision: next,
                    version: before.as_ref().map_or(1, |b| b.version + 1),
                    lease,
                };
                overlay.insert(op.key.clone(), Some(entry));
                OpReply::Put(before.filter(|_| op.prev_kv))
            }
            (Op::DeleteRange(op), Some(tx)) => {
                let gone = found(snapshot, overlay, &op.key, &op.range_end)?;
                for entry in &gone {
                    tx.delete(&entry.key)?;
                    overlay.insert(entry.key.to_vec(), None);
                }
                OpReply::DeleteRange {
                    deleted: gone.len() as u64,
                    previous: if op.prev_kv { gone } else { Vec::new() },
                }
            }
            (Op::Put(_) | Op::DeleteRange(_), None) => return Err(Error::NotLeader),
        });
    }
    Ok(TxnReply { succeeded, replies })
}
