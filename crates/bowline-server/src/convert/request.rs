//! Requests of clients to operations of the node.

use bowline::Value;
use bowline::replica::{
    Compare, DeleteRangeOp, Op, PutOp, RangeOp, Relation, SortOrder, SortTarget, Target, Txn,
};
use bowline_proto::etcdserverpb as pb;
use pb::compare::{CompareResult, CompareTarget, TargetUnion};
use pb::request_op::Request;

use crate::status::Fault;

/// How deep transactions may lie in one another. etcd has no limit of its own but the size of the
/// request; here it bounds the recursion.
const DEPTH_MAX: usize = 16;

/// A revision or limit; below 0 is 0, as etcd takes it.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
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
    // Nothing is at or below a bound that is below 0.
    let is_empty = request.max_mod_revision < 0 || request.max_create_revision < 0;
    Ok(RangeOp {
        key: request.key.into(),
        range_end: request.range_end.into(),
        limit: unsigned(request.limit),
        revision: unsigned(request.revision),
        sort_target,
        sort_order,
        keys_only: request.keys_only,
        count_only: request.count_only,
        min_mod_revision: if is_empty {
            u64::MAX
        } else {
            unsigned(request.min_mod_revision)
        },
        max_mod_revision: unsigned(request.max_mod_revision),
        min_create_revision: unsigned(request.min_create_revision),
        max_create_revision: unsigned(request.max_create_revision),
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

/// A transaction with at most `operations_max` conditions or operations in each list.
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
    if longest > operations_max || depth > DEPTH_MAX {
        return Err(Fault::TooManyOperations);
    }
    let ops = |list: Vec<pb::RequestOp>| -> Result<Vec<Op>, Fault> {
        let op = |op: pb::RequestOp| op_of(op, operations_max, depth);
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
        Some(Request::RequestRange(range)) => Op::Range(range_op(range)?),
        Some(Request::RequestPut(put)) => Op::Put(put_op(put)?),
        Some(Request::RequestDeleteRange(delete)) => Op::DeleteRange(delete_op(delete)?),
        Some(Request::RequestTxn(txn)) => Op::Txn(txn_at(txn, operations_max, depth + 1)?),
        None => return Err(Fault::KeyNotFound),
    })
}

fn compare(compare: pb::Compare) -> Result<Compare, Fault> {
    if compare.key.is_empty() {
        return Err(Fault::KeyNotProvided);
    }
    let mut relation = match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => Relation::Equal,
        Ok(CompareResult::Greater) => Relation::Greater,
        Ok(CompareResult::Less) => Relation::Less,
        Ok(CompareResult::NotEqual) => Relation::NotEqual,
        Err(_) => return Err(Fault::Invalid("etcdserver: unknown relation in compare")),
    };
    let target = CompareTarget::try_from(compare.target)
        .map_err(|_| Fault::Invalid("etcdserver: unknown target in compare"))?;
    // A side that is left out is 0, or no bytes.
    let number = match compare.target_union {
        Some(
            TargetUnion::Version(n)
            | TargetUnion::CreateRevision(n)
            | TargetUnion::ModRevision(n)
            | TargetUnion::Lease(n),
        ) => n,
        _ => 0,
    };
    // Every number of a key is at least 0. What is asked of a number below it holds always or
    // never, which one can say with a number that no key has.
    let count = match u64::try_from(number) {
        Ok(count) => count,
        Err(_) if target == CompareTarget::Lease => 0,
        Err(_) => {
            relation = match relation {
                Relation::Greater | Relation::NotEqual => Relation::NotEqual,
                Relation::Equal | Relation::Less => Relation::Equal,
            };
            u64::MAX
        }
    };
    let target = match target {
        CompareTarget::Version => Target::Version(count),
        CompareTarget::Create => Target::Create(count),
        CompareTarget::Mod => Target::Mod(count),
        CompareTarget::Lease => Target::Lease(number),
        CompareTarget::Value => Target::Value(match compare.target_union {
            Some(TargetUnion::Value(value)) => value.into(),
            _ => Vec::new(),
        }),
    };
    Ok(Compare {
        key: compare.key.into(),
        range_end: compare.range_end.into(),
        relation,
        target,
    })
}
