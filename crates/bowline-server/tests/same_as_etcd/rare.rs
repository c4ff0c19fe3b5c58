//! What a sequence has besides its random steps: groups of steps that mean something together, and
//! requests that would be too dear, or stop too much, if they came as often as others.

use bowline_proto::etcdserverpb as pb;
use bowline_proto::{v3electionpb, v3lockpb};
use bytes::Bytes;
use fastrand::Rng;
use pb::request_op::Request as Op;

use crate::calls::{Call, OWN_MEMBER, OWN_URL, Who};
use crate::generate::{self, pick, read, request};
use crate::step::{Step, chosen, compacted, now};
use crate::streams;

/// The largest that surely is taken, and the smallest that surely is not: the limit is 1.5 MiB, of
/// which etcd counts its envelope, too.
const TAKEN: usize = 1_570_000;
const REFUSED: usize = 1_573_000;
/// The largest message that is received.
const RECEIVED: usize = (1 << 21) + 1;

/// A group.
pub(crate) fn group(rng: &mut Rng) -> Vec<Step> {
    match rng.u32(0..24) {
        0..3 => alarm(rng),
        3 | 4 => fragments(rng),
        5..8 => vec![sized(rng)],
        8..10 => vec![wide(rng)],
        10..13 => locks(rng),
        13..15 => elections(rng),
        15..17 => leases(rng),
        17..19 => vec![Step::Call(member(rng))],
        19..21 => vec![Step::Call(user(rng))],
        21 => vec![Step::Call(bytes(rng))],
        22 => vec![metadata(rng)],
        _ => vec![other(rng)],
    }
}

fn text(rng: &mut Rng, list: &[&str]) -> String {
    (*pick(rng, list)).to_owned()
}

/// An alarm, requests while it is raised, and its end.
fn alarm(rng: &mut Rng) -> Vec<Step> {
    let kind = rng.i32(1..3);
    let member_id = *pick(rng, &[0, 7, 99]);
    let about = |action| {
        Step::Alarm(pb::AlarmRequest {
            action,
            member_id,
            alarm: kind,
        })
    };
    let mut steps = vec![about(1)];
    for _ in 0..rng.u32(3..16) {
        let step = match rng.u32(0..12) {
            0 => Step::Status,
            1 => Step::Call(Call::Lock(v3lockpb::LockRequest {
                name: "n".into(),
                lease: 1077,
            })),
            _ => generate::step(rng),
        };
        match &step {
            Step::Alarm(_) => {}
            Step::Txn(txn) if kind == 1 && has_inner(txn) => {}
            _ => steps.push(step),
        }
    }
    steps.push(about(0));
    steps.push(about(2));
    steps
}

fn has_inner(txn: &pb::TxnRequest) -> bool {
    let mut ops = txn.success.iter().chain(&txn.failure);
    ops.any(|op| matches!(op.request, Some(Op::RequestTxn(_))))
}

fn of_length(rng: &mut Rng, length: usize) -> Bytes {
    vec![*pick(rng, b"xyz"); length].into()
}

/// Values of which few fit into one message, watched as they are put and as they are deleted at once.
fn fragments(rng: &mut Rng) -> Vec<Step> {
    let number = rng.usize(0..2);
    let watch = |rng: &mut Rng, start_revision: i64| {
        Step::Watch(
            number,
            streams::create(pb::WatchCreateRequest {
                key: "\0".into(),
                range_end: "\0".into(),
                start_revision,
                prev_kv: rng.u32(0..4) > 0,
                fragment: rng.u32(0..4) > 0,
                ..pb::WatchCreateRequest::default()
            }),
        )
    };
    let mut steps = vec![watch(rng, 0)];
    let count = rng.i64(2..6);
    for place in 0..count {
        let length = rng.usize(300_000..TAKEN);
        steps.push(Step::Put(pb::PutRequest {
            key: [b'a' + place as u8].to_vec().into(),
            value: of_length(rng, length),
            ..pb::PutRequest::default()
        }));
    }
    let whole = pb::DeleteRangeRequest {
        key: "a".into(),
        range_end: "z".into(),
        prev_kv: rng.bool(),
    };
    if rng.bool() {
        let from = now(-rng.i64(0..count));
        steps.push(watch(rng, from));
    }
    if rng.bool() {
        let all = Op::RequestDeleteRange(whole.clone());
        let small = Op::RequestPut(pb::PutRequest {
            key: "\0".into(),
            ..pb::PutRequest::default()
        });
        steps.push(Step::Txn(pb::TxnRequest {
            success: vec![request(all), request(small)],
            ..pb::TxnRequest::default()
        }));
    } else {
        steps.push(Step::Delete(whole));
    }
    steps.push(Step::Settle);
    if rng.bool() {
        let from = now(-rng.i64(0..count + 2));
        steps.push(watch(rng, from));
        steps.push(Step::Settle);
    }
    steps
}

/// A request about as large as may be.
fn sized(rng: &mut Rng) -> Step {
    let length = match rng.u32(0..10) {
        0..3 => rng.usize(TAKEN - 300_000..TAKEN),
        3..7 => rng.usize(REFUSED..RECEIVED - 100),
        7 => rng.usize(RECEIVED - 30..RECEIVED + 10),
        _ => rng.usize(RECEIVED..RECEIVED + 500_000),
    };
    let long = of_length(rng, length);
    let put = |key: Bytes, value: Bytes| pb::PutRequest {
        key,
        value,
        ..pb::PutRequest::default()
    };
    match rng.u32(0..8) {
        0 | 1 => Step::Put(put("a".into(), long)),
        // A key of this length is never taken: it would be there for good.
        2 => Step::Put(pb::PutRequest {
            ignore_value: true,
            ..put(long, "1".into())
        }),
        3 => Step::Range(pb::RangeRequest {
            key: long,
            ..pb::RangeRequest::default()
        }),
        4 => Step::Delete(pb::DeleteRangeRequest {
            key: long,
            ..pb::DeleteRangeRequest::default()
        }),
        5 => {
            let (first, second) = (long.slice(..length / 2), long.slice(length / 2..));
            let puts = [put("a".into(), first), put("b".into(), second)];
            Step::Txn(pb::TxnRequest {
                success: puts.map(|put| request(Op::RequestPut(put))).to_vec(),
                ..pb::TxnRequest::default()
            })
        }
        6 => {
            let range = pb::RangeRequest {
                key: long,
                ..pb::RangeRequest::default()
            };
            Step::Txn(pb::TxnRequest {
                failure: vec![request(Op::RequestRange(range))],
                ..pb::TxnRequest::default()
            })
        }
        _ => Step::Txn(pb::TxnRequest {
            compare: vec![pb::Compare {
                key: "a".into(),
                target: 3,
                target_union: Some(pb::compare::TargetUnion::Value(long)),
                ..pb::Compare::default()
            }],
            success: vec![request(Op::RequestPut(put("b".into(), "1".into())))],
            ..pb::TxnRequest::default()
        }),
    }
}

/// A transaction with about as many conditions or operations as may be.
fn wide(rng: &mut Rng) -> Step {
    let length = rng.usize(127..130);
    let condition = || pb::Compare {
        key: "a".into(),
        target: 2,
        result: 1,
        target_union: Some(pb::compare::TargetUnion::ModRevision(0)),
        ..pb::Compare::default()
    };
    let op = |rng: &mut Rng| match rng.bool() {
        true => request(Op::RequestRange(read(b"a"))),
        false => request(Op::RequestDeleteRange(pb::DeleteRangeRequest {
            key: "b".into(),
            ..pb::DeleteRangeRequest::default()
        })),
    };
    let mut txn = pb::TxnRequest::default();
    match rng.u32(0..3) {
        0 => txn.compare.resize_with(length, condition),
        1 => txn.success.resize_with(length, || op(rng)),
        _ => txn.failure.resize_with(length, || op(rng)),
    }
    txn.success.truncate(130);
    Step::Txn(txn)
}

/// The leases of locks and elections, which nothing else has.
pub(crate) const FIRST: i64 = 1001;
const SECOND: i64 = 1002;
const NONE: i64 = 1077;

fn revoke(id: i64) -> Step {
    Step::Revoke(pb::LeaseRevokeRequest { id })
}

fn grants() -> Vec<Step> {
    let grant = |id| Step::Grant(pb::LeaseGrantRequest { ttl: 600, id });
    vec![grant(FIRST), grant(SECOND)]
}

/// Locks in an order in which none has to be waited for.
fn locks(rng: &mut Rng) -> Vec<Step> {
    let mut steps = grants();
    let mut holder = None;
    for _ in 0..rng.u32(2..9) {
        let lease = match holder {
            Some(lease) => lease,
            None => *pick(rng, &[FIRST, SECOND]),
        };
        let lock = |lease| {
            Call::Lock(v3lockpb::LockRequest {
                name: "n".into(),
                lease,
            })
        };
        let call = match rng.u32(0..8) {
            0..3 => {
                holder = Some(lease);
                lock(lease)
            }
            3 => lock(NONE),
            4 => Call::Unlock(v3lockpb::UnlockRequest {
                key: ["", "n/1", "n/"][rng.usize(0..3)].into(),
            }),
            5 => {
                steps.push(Step::Range(pb::RangeRequest {
                    key: "n/".into(),
                    range_end: "n0".into(),
                    ..pb::RangeRequest::default()
                }));
                continue;
            }
            _ => {
                holder = None;
                let key = format!("n/{lease:x}").into();
                Call::Unlock(v3lockpb::UnlockRequest { key })
            }
        };
        steps.push(Step::Call(call));
    }
    steps.extend([revoke(FIRST), revoke(SECOND)]);
    steps
}

/// An election whose candidates come one after the other.
fn elections(rng: &mut Rng) -> Vec<Step> {
    let mut steps = grants();
    let mut leader = None;
    for _ in 0..rng.u32(2..10) {
        let lease = match leader {
            Some(lease) => lease,
            None => *pick(rng, &[FIRST, SECOND]),
        };
        let who = match rng.u32(0..8) {
            0 => Who::Other(*pick(rng, &[-1, 1, i64::MIN / 2])),
            1 => Who::Nobody,
            2 => Who::Nameless,
            _ => Who::Last,
        };
        let call = match rng.u32(0..10) {
            0..3 => {
                leader = Some(lease);
                Call::Campaign(v3electionpb::CampaignRequest {
                    name: "n".into(),
                    lease,
                    value: ["", "1", "2"][rng.usize(0..3)].into(),
                })
            }
            3 => Call::Campaign(v3electionpb::CampaignRequest {
                name: "n".into(),
                lease: NONE,
                value: "1".into(),
            }),
            4 | 5 => Call::Leader(v3electionpb::LeaderRequest { name: "n".into() }),
            6 | 7 => Call::Proclaim(who, ["", "3", "4"][rng.usize(0..3)]),
            _ => {
                if who == Who::Last {
                    leader = None;
                }
                Call::Resign(who)
            }
        };
        steps.push(Step::Call(call));
    }
    steps.extend([revoke(FIRST), revoke(SECOND)]);
    steps
}

/// A lease with keys, some of which leave it, and its end with the rest, which a watch is told of.
fn leases(rng: &mut Rng) -> Vec<Step> {
    let id = 2001;
    let ttl = *pick(rng, &[600, 9_000_000_000]);
    let mut steps = vec![Step::Grant(pb::LeaseGrantRequest { ttl, id })];
    steps.push(Step::Watch(
        rng.usize(0..2),
        streams::create(pb::WatchCreateRequest {
            key: "a".into(),
            range_end: "\0".into(),
            prev_kv: true,
            ..pb::WatchCreateRequest::default()
        }),
    ));
    for _ in 0..rng.u32(1..8) {
        steps.push(match rng.u32(0..8) {
            0 => generate::step(rng),
            1 => Step::TimeToLive(pb::LeaseTimeToLiveRequest { id, keys: true }),
            2 => Step::KeepAlive(*pick(rng, &[id, NONE, chosen(0)])),
            _ => Step::Put(pb::PutRequest {
                lease: *pick(rng, &[id, id, id, 0]),
                ignore_value: rng.u32(0..8) == 0,
                prev_kv: rng.bool(),
                key: vec![rng.u8(b'a'..b'e')].into(),
                ..pb::PutRequest::default()
            }),
        });
    }
    steps.extend([
        revoke(id),
        Step::TimeToLive(pb::LeaseTimeToLiveRequest { id, keys: true }),
        Step::KeepAlive(id),
        Step::Settle,
    ]);
    steps
}

/// A change of the members that is refused.
fn member(rng: &mut Rng) -> Call {
    let wrong = |rng: &mut Rng| {
        let list = [
            "",
            "x",
            "127.0.0.1:1",
            "http://",
            "http://127.0.0.1",
            "ftp://127.0.0.1:1",
            "http://127.0.0.1:1/path",
            "http://127.0.0.1:x",
            "http://a b:1",
            "http://127.0.0.1:1/",
        ];
        match rng.u32(0..8) {
            0 => Vec::new(),
            1 => vec!["http://127.0.0.1:1".to_owned(), text(rng, &list)],
            _ => vec![text(rng, &list)],
        }
    };
    let unknown = *pick(rng, &[0, 1, 77, u64::MAX - 1]);
    match rng.u32(0..9) {
        0 | 1 => Call::MemberAdd(pb::MemberAddRequest {
            peer_ur_ls: wrong(rng),
            is_learner: rng.bool(),
        }),
        2 => Call::MemberAdd(pb::MemberAddRequest {
            peer_ur_ls: vec![OWN_URL.to_owned()],
            is_learner: rng.bool(),
        }),
        3 => Call::MemberRemove(pb::MemberRemoveRequest { id: unknown }),
        4 => Call::MemberUpdate(pb::MemberUpdateRequest {
            id: unknown,
            peer_ur_ls: wrong(rng),
        }),
        5 => Call::MemberUpdate(pb::MemberUpdateRequest {
            id: unknown,
            peer_ur_ls: vec!["http://127.0.0.1:1".to_owned()],
        }),
        6 => Call::MemberPromote(pb::MemberPromoteRequest {
            id: *pick(rng, &[unknown, OWN_MEMBER]),
        }),
        7 => Call::MemberRemove(pb::MemberRemoveRequest { id: OWN_MEMBER }),
        _ => Call::MoveLeader(pb::MoveLeaderRequest {
            target_id: *pick(rng, &[unknown, OWN_MEMBER]),
        }),
    }
}

/// A call about users and roles, of which there are none.
fn user(rng: &mut Rng) -> Call {
    let name = text(rng, &["", "root", "ann", "é"]);
    let role = text(rng, &["", "root", "r"]);
    let password = text(rng, &["", "p"]);
    match rng.u32(0..16) {
        0 => Call::AuthDisable,
        1 => Call::AuthStatus,
        2 => Call::Authenticate(pb::AuthenticateRequest { name, password }),
        // Others would be there for good.
        3 => Call::UserAdd(pb::AuthUserAddRequest {
            password,
            ..pb::AuthUserAddRequest::default()
        }),
        4 => Call::UserGet(pb::AuthUserGetRequest { name }),
        5 => Call::UserList,
        6 => Call::UserDelete(pb::AuthUserDeleteRequest { name }),
        7 => Call::UserChangePassword(pb::AuthUserChangePasswordRequest {
            name,
            password,
            ..pb::AuthUserChangePasswordRequest::default()
        }),
        8 => Call::UserGrantRole(pb::AuthUserGrantRoleRequest { user: name, role }),
        9 => Call::UserRevokeRole(pb::AuthUserRevokeRoleRequest { name, role }),
        10 => Call::RoleAdd(pb::AuthRoleAddRequest::default()),
        11 => Call::RoleGet(pb::AuthRoleGetRequest { role }),
        12 => Call::RoleList,
        13 => Call::RoleDelete(pb::AuthRoleDeleteRequest { role }),
        14 => Call::RoleGrant(pb::AuthRoleGrantPermissionRequest {
            name: role,
            perm: (rng.u32(0..4) > 0).then(|| bowline_proto::authpb::Permission {
                perm_type: rng.i32(0..3),
                key: "k".into(),
                ..bowline_proto::authpb::Permission::default()
            }),
        }),
        _ => Call::RoleRevoke(pb::AuthRoleRevokePermissionRequest {
            role,
            key: "k".into(),
            ..pb::AuthRoleRevokePermissionRequest::default()
        }),
    }
}

/// Bytes that no client makes of a request.
fn bytes(rng: &mut Rng) -> Call {
    let calls: &[(&str, &[u8])] = &[
        ("/etcdserverpb.KV/Range", b"\xff"),
        ("/etcdserverpb.KV/Range", b"\x0a\x05a"),
        // The key as a number.
        ("/etcdserverpb.KV/Range", b"\x08\x01"),
        // A field that nobody knows, and the key after it.
        ("/etcdserverpb.KV/Range", b"\xc2\x3e\x01x\x0a\x01a"),
        // The key twice.
        ("/etcdserverpb.KV/Range", b"\x0a\x01a\x0a\x01b"),
        // No field has the number 0.
        ("/etcdserverpb.KV/Range", b"\x02\x01a"),
        ("/etcdserverpb.KV/Put", b""),
        ("/etcdserverpb.KV/DeleteRange", b""),
        ("/etcdserverpb.KV/Txn", b"\x12\x01"),
        ("/etcdserverpb.KV/Txn", b""),
        ("/etcdserverpb.KV/Compact", b"\x0a"),
        ("/etcdserverpb.Lease/LeaseGrant", b"\x0a\x01a"),
        // Texts that are none.
        ("/etcdserverpb.Cluster/MemberAdd", b"\x0a\x01\xff"),
        ("/etcdserverpb.Auth/UserGet", b"\x0a\x01\xff"),
        ("/etcdserverpb.Auth/Authenticate", b"\x0a\x02a\xff"),
        ("/etcdserverpb.KV/Rename", b""),
        ("/etcdserverpb.Nothing/Range", b""),
        ("/etcdserverpb.KV/", b""),
        ("/Range", b""),
    ];
    let (path, bytes) = *pick(rng, calls);
    Call::Bytes(path, Bytes::from_static(bytes))
}

/// A request with something in its head.
fn metadata(rng: &mut Rng) -> Step {
    let inner = loop {
        let step = generate::step(rng);
        let is_alone = !matches!(
            step,
            Step::Watch(..) | Step::Settle | Step::Compact(_) | Step::With(..)
        );
        if is_alone {
            break step;
        }
    };
    let pairs = [
        ("hasleader", "true"),
        ("hasleader", "false"),
        ("hasleader", "yes"),
        ("token", "whatever.1"),
        ("token", ""),
        ("authorization", "whatever.1"),
    ];
    let (key, value) = *pick(rng, &pairs);
    Step::With(key, value, Box::new(inner))
}

/// What remains.
fn other(rng: &mut Rng) -> Step {
    match rng.u32(0..8) {
        0 => Step::Call(Call::Hash),
        1 => Step::Call(Call::Defragment),
        2 | 3 => Step::Call(Call::Downgrade(pb::DowngradeRequest {
            action: *pick(rng, &[0, 1, 2, 9]),
            version: text(rng, &["", "3", "x", "3.x", "9.9", "9.9.9", "3.5.0.1", "v3"]),
        })),
        4 => Step::Compact(pb::CompactionRequest {
            revision: *pick(rng, &[i64::MAX, i64::MIN, compacted(0), now(1), now(0)]),
            physical: rng.bool(),
        }),
        5 => Step::Range(pb::RangeRequest {
            key: "b".into(),
            range_end: ["a", "b", "b\0", "\0", "\0\0"][rng.usize(0..5)].into(),
            limit: *pick(rng, &[0, 1, -1, i64::MAX]),
            count_only: rng.bool(),
            ..pb::RangeRequest::default()
        }),
        6 => Step::Watch(rng.usize(0..2), pb::WatchRequest::default()),
        _ => Step::HashKv(now(-rng.i64(0..4))),
    }
}
