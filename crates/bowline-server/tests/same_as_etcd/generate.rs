//! Random sequences: few keys, few leases, revisions near the newest, so that requests meet.

use bowline_proto::etcdserverpb as pb;
use fastrand::Rng;
use pb::compare::TargetUnion;
use pb::request_op::Request as Op;

use crate::rare;
use crate::step::{Step, chosen, compacted, now};
use crate::streams;

/// No more than what a sort of few elements leaves in their order: beyond it, etcd's is not stable.
const KEYS: &[&[u8]] = &[
    b"a", b"aa", b"ab", b"b", b"ba", b"c", b"d", b"z", b"\0", b"\xff",
];
const ENDS: &[&[u8]] = &[b"\0", b"\0", b"b", b"c", b"ab", b"\xff", b"a", b"z"];
const VALUES: &[&[u8]] = &[b"", b"1", b"2", b"22", b"\0", b"\xff", b"value"];
const STREAMS: usize = 2;

/// The steps of a sequence.
pub(crate) fn sequence(rng: &mut Rng, length: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    while steps.len() < length {
        match rng.u32(0..30) {
            0 => steps.extend(rare::group(rng)),
            _ => steps.push(step(rng)),
        }
    }
    steps.push(Step::Settle);
    steps
}

pub(crate) fn step(rng: &mut Rng) -> Step {
    match rng.u32(0..1000) {
        0..240 => Step::Put(put(rng)),
        240..430 => Step::Range(range(rng)),
        430..520 => Step::Delete(delete(rng)),
        520..660 => Step::Txn(txn(rng, 3)),
        660..700 => Step::Txn(unordered(rng)),
        700..725 => Step::Compact(pb::CompactionRequest {
            revision: match rng.u32(0..8) {
                0..4 => now(-rng.i64(0..12)),
                4 | 5 => compacted(rng.i64(-1..4)),
                _ => revision(rng),
            },
            physical: rng.u32(0..8) == 0,
        }),
        725..770 => Step::Grant(pb::LeaseGrantRequest {
            ttl: *pick(
                rng,
                &[600, 700, 800, 1000, 9_000_000_000, 9_000_000_001, i64::MAX],
            ),
            id: if rng.bool() { 0 } else { lease(rng) },
        }),
        770..790 => Step::Revoke(pb::LeaseRevokeRequest { id: lease(rng) }),
        790..810 => Step::TimeToLive(pb::LeaseTimeToLiveRequest {
            id: lease(rng),
            keys: rng.bool(),
        }),
        810..820 => Step::Leases,
        820..840 => Step::KeepAlive(lease(rng)),
        840..845 => Step::Members(rng.bool()),
        845..855 => Step::Alarm(alarm(rng)),
        855..860 => Step::Status,
        860..870 => Step::HashKv(revision(rng)),
        870..955 => Step::Watch(rng.usize(0..STREAMS), watch(rng)),
        _ => match rng.u32(0..4) {
            0 => Step::Settle,
            _ => Step::Put(put(rng)),
        },
    }
}

pub(crate) fn pick<'a, T>(rng: &mut Rng, list: &'a [T]) -> &'a T {
    &list[rng.usize(0..list.len())]
}

fn one_of(rng: &mut Rng, list: &[&'static [u8]]) -> bytes::Bytes {
    bytes::Bytes::from_static(list[rng.usize(0..list.len())])
}

fn key(rng: &mut Rng) -> bytes::Bytes {
    match rng.u32(0..60) {
        0 => bytes::Bytes::new(),
        _ => one_of(rng, KEYS),
    }
}

/// The end of a range; none, half of the time.
fn end(rng: &mut Rng) -> bytes::Bytes {
    match rng.bool() {
        true => bytes::Bytes::new(),
        false => one_of(rng, ENDS),
    }
}

fn value(rng: &mut Rng) -> bytes::Bytes {
    one_of(rng, VALUES)
}

fn revision(rng: &mut Rng) -> i64 {
    match rng.u32(0..24) {
        0..10 => now(-rng.i64(0..10)),
        10..14 => compacted(rng.i64(-2..4)),
        14..17 => now(rng.i64(1..3)),
        17 => rng.i64(1..5),
        18 => -1,
        19 => -rng.i64(2..9),
        20 => *pick(rng, &[i64::MAX, i64::MIN, now(1000)]),
        _ => 0,
    }
}

fn lease(rng: &mut Rng) -> i64 {
    match rng.u32(0..20) {
        0..8 => rng.i64(1..5),
        8..15 => chosen(rng.i64(0..4)),
        15 => -1,
        16 => *pick(rng, &[i64::MAX, i64::MIN, -77]),
        17 => 0,
        _ => 77,
    }
}

fn put(rng: &mut Rng) -> pb::PutRequest {
    let mut put = pb::PutRequest {
        key: key(rng),
        value: value(rng),
        prev_kv: rng.u32(0..4) == 0,
        ..pb::PutRequest::default()
    };
    match rng.u32(0..12) {
        0 | 1 => put.lease = lease(rng),
        2 => {
            put.ignore_value = true;
            if rng.u32(0..4) > 0 {
                put.value = bytes::Bytes::new();
            }
        }
        3 => put.ignore_lease = true,
        4 => {
            put.ignore_value = rng.bool();
            put.ignore_lease = rng.bool();
            put.lease = if rng.bool() { lease(rng) } else { 0 };
            put.value = bytes::Bytes::new();
        }
        _ => {}
    }
    put
}

fn range(rng: &mut Rng) -> pb::RangeRequest {
    let mut range = pb::RangeRequest {
        key: key(rng),
        range_end: if rng.u32(0..3) == 0 {
            end(rng)
        } else {
            "\0".into()
        },
        serializable: rng.u32(0..4) == 0,
        ..pb::RangeRequest::default()
    };
    if rng.u32(0..3) == 0 {
        range.revision = revision(rng);
    }
    if rng.u32(0..3) == 0 {
        range.limit = *pick(rng, &[1, 1, 2, 3, 4, 9, 100, -1, i64::MAX, i64::MIN]);
    }
    if rng.u32(0..3) == 0 {
        range.sort_order = rng.i32(0..3);
        range.sort_target = rng.i32(0..5);
        if rng.u32(0..20) == 0 {
            range.sort_order = *pick(rng, &[3, -1]);
        }
        if rng.u32(0..20) == 0 {
            range.sort_target = *pick(rng, &[5, -1]);
        }
    }
    range.keys_only = rng.u32(0..5) == 0;
    range.count_only = rng.u32(0..6) == 0;
    if rng.u32(0..5) == 0 {
        for bound in [
            &mut range.min_mod_revision,
            &mut range.max_mod_revision,
            &mut range.min_create_revision,
            &mut range.max_create_revision,
        ] {
            if rng.u32(0..3) == 0 {
                *bound = revision(rng);
            }
        }
    }
    range
}

fn delete(rng: &mut Rng) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest {
        key: key(rng),
        range_end: if rng.u32(0..3) == 0 {
            end(rng)
        } else {
            "".into()
        },
        prev_kv: rng.bool(),
    }
}

fn compare(rng: &mut Rng) -> pb::Compare {
    let number = |rng: &mut Rng| match rng.u32(0..8) {
        0..3 => 0,
        3 => rng.i64(1..4),
        4 => lease(rng),
        _ => revision(rng),
    };
    let target = match rng.u32(0..30) {
        0 => *pick(rng, &[5, 77, -1]),
        _ => rng.i32(0..5),
    };
    let side = match rng.u32(0..15) {
        0 => rng.i32(0..5),
        1 => 9,
        _ => target,
    };
    pb::Compare {
        result: match rng.u32(0..30) {
            0 => *pick(rng, &[4, -1]),
            _ => rng.i32(0..4),
        },
        target,
        key: key(rng),
        range_end: if rng.u32(0..4) == 0 {
            end(rng)
        } else {
            "".into()
        },
        target_union: match side {
            0 => Some(TargetUnion::Version(number(rng))),
            1 => Some(TargetUnion::CreateRevision(number(rng))),
            2 => Some(TargetUnion::ModRevision(number(rng))),
            3 => Some(TargetUnion::Value(value(rng))),
            4 => Some(TargetUnion::Lease(number(rng))),
            _ => None,
        },
    }
}

fn txn(rng: &mut Rng, depth: u32) -> pb::TxnRequest {
    let compares = *pick(rng, &[0, 0, 1, 1, 2, 3]);
    let list = |rng: &mut Rng| {
        let length = *pick(rng, &[0, 1, 1, 2, 2, 3, 4]);
        (0..length).map(|_| op(rng, depth)).collect()
    };
    let mut txn = pb::TxnRequest {
        compare: (0..compares).map(|_| compare(rng)).collect(),
        success: list(rng),
        failure: list(rng),
    };
    if rng.u32(0..40) == 0 {
        // At the limit, or beyond; what is left for the transactions within counts, too.
        let length = rng.usize(124..130);
        let read = || request(Op::RequestRange(read(b"a")));
        txn.success.resize_with(length.max(txn.success.len()), read);
    }
    txn
}

/// Writes of few keys, some of them more than once: etcd lets pass what puts a key and deletes it in a
/// transaction behind it, and deletions "from here on" beside anything.
fn unordered(rng: &mut Rng) -> pb::TxnRequest {
    let mut keys = KEYS.to_vec();
    rng.shuffle(&mut keys);
    let mut take_put = |rng: &mut Rng| {
        let mut put = put(rng);
        put.key = bytes::Bytes::from_static(keys.pop().unwrap_or(b"e"));
        Op::RequestPut(put)
    };
    let mut list = Vec::new();
    for _ in 0..rng.usize(2..6) {
        let writes = rng.usize(1..3);
        let mut ops: Vec<Op> = (0..writes).map(|_| take_put(rng)).collect();
        match rng.u32(0..8) {
            0..2 => {}
            2 => ops.push(Op::RequestRange(range(rng))),
            3 => {
                let from_here_on = pb::DeleteRangeRequest {
                    range_end: "\0".into(),
                    ..delete(rng)
                };
                ops.insert(
                    rng.usize(0..=ops.len()),
                    Op::RequestDeleteRange(from_here_on),
                );
            }
            _ => ops = vec![Op::RequestDeleteRange(delete(rng))],
        }
        let is_plain = rng.u32(0..4) == 0;
        let ops = ops.into_iter().map(request);
        if is_plain {
            list.extend(ops);
        } else {
            let inner = pb::TxnRequest {
                success: ops.collect(),
                ..pb::TxnRequest::default()
            };
            list.push(request(Op::RequestTxn(inner)));
        }
    }
    pb::TxnRequest {
        success: list,
        ..pb::TxnRequest::default()
    }
}

pub(crate) fn read(key: &'static [u8]) -> pb::RangeRequest {
    pb::RangeRequest {
        key: bytes::Bytes::from_static(key),
        ..pb::RangeRequest::default()
    }
}

pub(crate) fn request(op: Op) -> pb::RequestOp {
    pb::RequestOp { request: Some(op) }
}

fn op(rng: &mut Rng, depth: u32) -> pb::RequestOp {
    let request = match rng.u32(0..40) {
        0..14 => Op::RequestPut(put(rng)),
        14..24 => Op::RequestRange(range(rng)),
        24..32 => Op::RequestDeleteRange(delete(rng)),
        32..39 if depth > 1 => Op::RequestTxn(txn(rng, depth - 1)),
        39 if rng.u32(0..4) == 0 => return pb::RequestOp { request: None },
        _ => Op::RequestPut(put(rng)),
    };
    pb::RequestOp {
        request: Some(request),
    }
}

fn alarm(rng: &mut Rng) -> pb::AlarmRequest {
    // None is raised by chance: see what etcd does with a put in a transaction within one.
    pb::AlarmRequest {
        action: *pick(rng, &[0, 0, 2]),
        member_id: *pick(rng, &[0, 7, 7]),
        alarm: *pick(rng, &[0, 1, 1]),
    }
}

fn watch(rng: &mut Rng) -> pb::WatchRequest {
    let id = *pick(rng, &[0, 0, 0, 1, 2, 3, 9, -5]);
    match rng.u32(0..10) {
        0..3 => streams::cancel(id),
        _ => streams::create(pb::WatchCreateRequest {
            key: key(rng),
            range_end: end(rng),
            start_revision: match rng.u32(0..4) {
                0 => revision(rng),
                _ => 0,
            },
            progress_notify: rng.u32(0..4) == 0,
            filters: (0..rng.usize(0..3) / 2)
                .map(|_| *pick(rng, &[0, 1, 1, 2]))
                .collect(),
            prev_kv: rng.bool(),
            watch_id: id,
            fragment: rng.u32(0..4) == 0,
        }),
    }
}
