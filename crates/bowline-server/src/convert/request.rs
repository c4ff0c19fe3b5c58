//! Client requests as operations of the node.

use bowline::{Revision, Value};
use bowline_proto::etcdserverpb as pb;
use bowline_replica::{
    Compare, DeleteRangeOp, Op, PutOp, RangeOp, Relation, SortOrder, SortTarget, TXN_DEPTH_MAX,
    Target, Txn,
};
use pb::compare::{CompareResult, CompareTarget, TargetUnion};
use pb::request_op::Request;

use crate::status::Fault;

/// A revision or limit; as in etcd, a negative number is 0.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// The lower bound of a revision filter. A negative bound is a filter that passes everything, as 1 is.
fn at_least(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(1)
}

/// A read.
pub(crate) fn range_op(request: pb::RangeRequest) -> Result<RangeOp, Fault> {
    if request.key.is_empty() {
        return Err(Fault::KeyNotProvided);
    }
    let sort_order = match request.sort_order {
        0 => SortOrder::None,
        1 => SortOrder::Ascend,
        2 => SortOrder::Descend,
        _ => return Err(Fault::InvalidSort),
    };
    let sort_target = match request.sort_target {
        0 => SortTarget::Key,
        1 => SortTarget::Version,
        2 => SortTarget::Create,
        3 => SortTarget::Mod,
        4 => SortTarget::Value,
        _ => return Err(Fault::InvalidSort),
    };
    // No revision is at or below a negative bound.
    let is_empty = request.max_mod_revision < 0 || request.max_create_revision < 0;
    Ok(RangeOp {
        key: request.key.into(),
        range_end: request.range_end.into(),
        limit: unsigned(request.limit),
        revision: Revision::new(unsigned(request.revision)),
        sort_target,
        sort_order,
        keys_only: request.keys_only,
        count_only: request.count_only,
        min_mod_revision: if is_empty {
            Revision::MAX
        } else {
            Revision::new(at_least(request.min_mod_revision))
        },
        max_mod_revision: Revision::new(unsigned(request.max_mod_revision)),
        min_create_revision: Revision::new(at_least(request.min_create_revision)),
        max_create_revision: Revision::new(unsigned(request.max_create_revision)),
    })
}

/// A put.
pub(crate) fn put_op(request: pb::PutRequest) -> Result<PutOp, Fault> {
    if request.key.is_empty() {
        return Err(Fault::KeyNotProvided);
    }
    if request.ignore_value && !request.value.is_empty() {
        return Err(Fault::ValueProvided);
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Fault::LeaseProvided);
    }
    Ok(PutOp {
        key: request.key.into(),
        value: Value::from(request.value),
        lease: request.lease,
        prev_kv: request.prev_kv,
        ignore_value: request.ignore_value,
        ignore_lease: request.ignore_lease,
    })
}

/// A deletion.
pub(crate) fn delete_op(request: pb::DeleteRangeRequest) -> Result<DeleteRangeOp, Fault> {
    if request.key.is_empty() {
        return Err(Fault::KeyNotProvided);
    }
    Ok(DeleteRangeOp {
        key: request.key.into(),
        range_end: request.range_end.into(),
        prev_kv: request.prev_kv,
    })
}

/// A transaction with at most `operations_max` conditions or operations per list.
pub(crate) fn txn(request: pb::TxnRequest, operations_max: usize) -> Result<Txn, Fault> {
    let txn = txn_at(request, operations_max, 0)?;
    super::check_duplicates(&txn)?;
    Ok(txn)
}

fn txn_at(request: pb::TxnRequest, operations_max: usize, depth: usize) -> Result<Txn, Fault> {
    let longest = request.compare.len();
    let longest = longest
        .max(request.success.len())
        .max(request.failure.len());
    // A decoded message is never deeper: the decoder limits its depth.
    if longest > operations_max || depth > TXN_DEPTH_MAX {
        return Err(Fault::TooManyOperations);
    }
    // Nested transactions share the limit of this one.
    let left = operations_max - longest;
    let ops = |list: Vec<pb::RequestOp>| -> Result<Vec<Op>, Fault> {
        let op = |op: pb::RequestOp| op_of(op, left, depth);
        list.into_iter().map(op).collect()
    };
    Ok(Txn {
        compares: request
            .compare
            .into_iter()
            .map(compare)
            .collect::<Result<_, _>>()?,
        success: ops(request.success)?,
        failure: ops(request.failure)?,
    })
}

fn op_of(op: pb::RequestOp, operations_max: usize, depth: usize) -> Result<Op, Fault> {
    Ok(match op.request {
        Some(Request::RequestRange(range)) => {
            // Alone, such a read is of the newest revision. In a transaction it fails when it is executed.
            let below_all = (range.revision < 0).then_some(range.revision as u64);
            let mut op = range_op(range)?;
            op.revision = Revision::new(below_all.unwrap_or(op.revision.get()));
            Op::Range(op)
        }
        Some(Request::RequestPut(put)) => Op::Put(put_op(put)?),
        Some(Request::RequestDeleteRange(delete)) => Op::DeleteRange(delete_op(delete)?),
        Some(Request::RequestTxn(txn)) => Op::Txn(txn_at(txn, operations_max, depth + 1)?),
        None => return Err(Fault::KeyNotFound),
    })
}

/// A condition on `Target::Version` that no key fulfils.
const NEVER: (Relation, Target) = (Relation::Equal, Target::Version(u64::MAX));
const ALWAYS: (Relation, Target) = (Relation::NotEqual, Target::Version(u64::MAX));

fn compare(compare: pb::Compare) -> Result<Compare, Fault> {
    if compare.key.is_empty() {
        return Err(Fault::KeyNotProvided);
    }
    let relation = match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => Some(Relation::Equal),
        Ok(CompareResult::Greater) => Some(Relation::Greater),
        Ok(CompareResult::Less) => Some(Relation::Less),
        Ok(CompareResult::NotEqual) => Some(Relation::NotEqual),
        Err(_) => None,
    };
    let target = CompareTarget::try_from(compare.target).ok();
    let (relation, target) = condition(relation, target, compare.target_union);
    Ok(Compare {
        key: compare.key.into(),
        range_end: compare.range_end.into(),
        relation,
        target,
    })
}

/// Converts a condition. As in etcd, an unknown relation holds, an unknown target is equal to everything, and
/// a value that is missing or of another target counts as 0 or as no bytes.
fn condition(
    relation: Option<Relation>,
    target: Option<CompareTarget>,
    side: Option<TargetUnion>,
) -> (Relation, Target) {
    let (Some(relation), Some(target)) = (relation, target) else {
        return match (relation, target) {
            // A condition on a value holds only if the key exists.
            (None, Some(CompareTarget::Value)) => (Relation::Greater, Target::Version(0)),
            (None | Some(Relation::Equal), _) => ALWAYS,
            (Some(_), _) => NEVER,
        };
    };
    let number = match (target, side) {
        (CompareTarget::Value, Some(TargetUnion::Value(value))) => {
            return (relation, Target::Value(value.into()));
        }
        (CompareTarget::Value, _) => return (relation, Target::Value(Vec::new())),
        (CompareTarget::Version, Some(TargetUnion::Version(number)))
        | (CompareTarget::Create, Some(TargetUnion::CreateRevision(number)))
        | (CompareTarget::Mod, Some(TargetUnion::ModRevision(number)))
        | (CompareTarget::Lease, Some(TargetUnion::Lease(number))) => number,
        _ => 0,
    };
    if target == CompareTarget::Lease {
        return (relation, Target::Lease(number));
    }
    // A key's numbers are at least 0: a comparison with a negative number always or never holds.
    let Ok(count) = u64::try_from(number) else {
        return match relation {
            Relation::Greater | Relation::NotEqual => ALWAYS,
            Relation::Equal | Relation::Less => NEVER,
        };
    };
    let target = match target {
        CompareTarget::Create => Target::Create(Revision::new(count)),
        CompareTarget::Mod => Target::Mod(Revision::new(count)),
        _ => Target::Version(count),
    };
    (relation, target)
}
