//! Sequences that once showed a difference, each named for it, and some that chance would not find.

use bowline_proto::etcdserverpb as pb;
use bowline_proto::v3lockpb::LockRequest;
use pb::compare::TargetUnion;
use pb::request_op::Request as Op;

use crate::calls::{Call, OWN_MEMBER};
use crate::generate::{read, request};
use crate::run::{Asked, run, show};
use crate::servers::{Pair, etcd_programs};
use crate::step::{Step, compacted, now};
use crate::streams;

fn put(key: &'static str, value: &'static str) -> pb::PutRequest {
    pb::PutRequest {
        key: key.into(),
        value: value.into(),
        ..pb::PutRequest::default()
    }
}

fn valued(key: &'static str, bytes: usize) -> pb::PutRequest {
    pb::PutRequest {
        value: vec![b'x'; bytes].into(),
        ..put(key, "")
    }
}

fn delete(key: &'static str) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest {
        key: key.into(),
        ..pb::DeleteRangeRequest::default()
    }
}

fn range_of(key: &'static str, range_end: &'static str) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest {
        range_end: range_end.into(),
        prev_kv: true,
        ..delete(key)
    }
}

fn within(op: Op) -> Op {
    Op::RequestTxn(txn(vec![op]))
}

/// With what was there before.
fn watch_all(watch_id: i64, start_revision: i64) -> Step {
    let create = pb::WatchCreateRequest {
        key: "\0".into(),
        range_end: "\0".into(),
        watch_id,
        start_revision,
        prev_kv: true,
        ..pb::WatchCreateRequest::default()
    };
    Step::Watch(0, streams::create(create))
}

fn all() -> pb::RangeRequest {
    pb::RangeRequest {
        range_end: "\0".into(),
        ..read(b"\0")
    }
}

fn compact(revision: i64) -> Step {
    Step::Compact(pb::CompactionRequest {
        revision,
        physical: false,
    })
}

fn txn(success: Vec<Op>) -> pb::TxnRequest {
    pb::TxnRequest {
        success: success.into_iter().map(request).collect(),
        ..pb::TxnRequest::default()
    }
}

fn alarm(action: i32, member_id: u64, alarm: i32) -> Step {
    Step::Alarm(pb::AlarmRequest {
        action,
        member_id,
        alarm,
    })
}

fn grant(id: i64, ttl: i64) -> Step {
    Step::Grant(pb::LeaseGrantRequest { ttl, id })
}

fn lock(lease: i64) -> Step {
    let name = "n".into();
    Step::Call(Call::Lock(LockRequest { name, lease }))
}

fn member_add(url: &str) -> Step {
    Step::Call(Call::MemberAdd(pb::MemberAddRequest {
        peer_ur_ls: vec![url.to_owned()],
        is_learner: true,
    }))
}

/// A condition by numbers that may mean nothing.
fn condition(result: i32, target: i32, side: Option<TargetUnion>) -> Step {
    Step::Txn(pb::TxnRequest {
        compare: vec![pb::Compare {
            result,
            target,
            key: "a".into(),
            target_union: side,
            ..pb::Compare::default()
        }],
        ..pb::TxnRequest::default()
    })
}

fn watch(key: &'static str, watch_id: i64, start_revision: i64) -> Step {
    let create = pb::WatchCreateRequest {
        key: key.into(),
        watch_id,
        start_revision,
        ..pb::WatchCreateRequest::default()
    };
    Step::Watch(0, streams::create(create))
}

fn sequences() -> Vec<(&'static str, Vec<Step>)> {
    let some = || {
        let keys = [("a", "2"), ("b", "1"), ("c", "2"), ("d", "1"), ("a", "1")];
        keys.map(|(key, value)| Step::Put(put(key, value))).to_vec()
    };
    let with = |mut steps: Vec<Step>, more: Vec<Step>| {
        steps.extend(more);
        steps
    };
    let sorted = |sort_target: i32, sort_order: i32, limit: i64| {
        Step::Range(pb::RangeRequest {
            sort_target,
            sort_order,
            limit,
            ..all()
        })
    };
    let nested = |inner: usize, outer: usize| {
        let reads = |count: usize| (0..count).map(|_| Op::RequestRange(read(b"a")));
        let mut ops: Vec<Op> = reads(outer).collect();
        ops.push(Op::RequestTxn(txn(reads(inner).collect())));
        Step::Txn(txn(ops))
    };
    let in_txn = |revision: i64| {
        let range = pb::RangeRequest { revision, ..all() };
        Step::Txn(txn(vec![Op::RequestRange(range)]))
    };
    let long = |bytes: usize| pb::PutRequest {
        value: vec![b'x'; bytes].into(),
        ..put("a", "")
    };
    let mut broken = txn(vec![
        Op::RequestPut(long(1 << 20)),
        Op::RequestPut(long(1 << 19)),
    ]);
    broken.failure = Vec::new();
    vec![
        (
            "equal ones stay in the order of their keys, from the largest on",
            with(
                some(),
                vec![sorted(1, 2, 0), sorted(4, 2, 0), sorted(4, 2, 3)],
            ),
        ),
        (
            "without an order a limit counts before the sort",
            with(
                some(),
                vec![sorted(4, 0, 2), sorted(1, 0, 1), sorted(3, 0, 2)],
            ),
        ),
        (
            "revision 0 can be compacted once",
            with(
                some(),
                vec![compact(0), compact(0), in_txn(-1), compact(now(0))],
            ),
        ),
        (
            "below 0 is compacted",
            vec![compact(-1), compact(-9), compact(i64::MIN)],
        ),
        (
            "a read of a transaction below 0 is compacted",
            with(
                some(),
                vec![
                    compact(now(-1)),
                    in_txn(-1),
                    in_txn(-2),
                    in_txn(compacted(-1)),
                ],
            ),
        ),
        (
            "replies within a transaction say their own revision",
            with(
                some(),
                vec![Step::Txn(txn(vec![
                    Op::RequestRange(read(b"a")),
                    Op::RequestDeleteRange(delete("none")),
                    Op::RequestTxn(txn(vec![Op::RequestPut(put("e", "1"))])),
                    Op::RequestDeleteRange(delete("none")),
                    Op::RequestRange(read(b"e")),
                ]))],
            ),
        ),
        (
            "what one put in a transaction within wrote is seen behind it",
            vec![
                Step::Txn(txn(vec![
                    Op::RequestTxn(txn(vec![Op::RequestPut(put("e", "1"))])),
                    Op::RequestRange(read(b"e")),
                    Op::RequestDeleteRange(delete("e0")),
                ])),
                Step::Range(all()),
            ],
        ),
        (
            "what a transaction takes, those within do not have",
            vec![
                nested(64, 63),
                nested(65, 63),
                nested(1, 127),
                nested(0, 127),
                nested(0, 128),
            ],
        ),
        (
            "conditions of which nobody knows what they mean",
            with(
                some(),
                vec![
                    condition(9, 0, Some(TargetUnion::Version(7))),
                    condition(9, 3, Some(TargetUnion::Value("7".into()))),
                    condition(0, 9, Some(TargetUnion::Version(7))),
                    condition(1, 9, None),
                    condition(0, 1, Some(TargetUnion::Version(6))),
                    condition(0, 4, Some(TargetUnion::ModRevision(6))),
                ],
            ),
        ),
        (
            "an unknown value has no value, whatever the relation",
            vec![
                condition(9, 3, None),
                condition(9, 0, None),
                condition(3, 3, None),
            ],
        ),
        (
            "leases below 0, and in the order in which they end",
            vec![
                grant(-7, 900),
                grant(i64::MIN, 600),
                grant(5, 700),
                Step::Put(pb::PutRequest {
                    lease: -7,
                    ..put("l", "1")
                }),
                Step::Range(all()),
                Step::TimeToLive(pb::LeaseTimeToLiveRequest { id: -7, keys: true }),
                Step::KeepAlive(-7),
                Step::Leases,
                Step::Revoke(pb::LeaseRevokeRequest { id: -7 }),
                Step::Range(all()),
            ],
        ),
        (
            "a put is told of its lease before its key",
            vec![
                Step::Put(pb::PutRequest {
                    ignore_value: true,
                    lease: 99,
                    ..put("n", "")
                }),
                Step::Put(pb::PutRequest {
                    ignore_value: true,
                    ..put("n", "")
                }),
                Step::Txn(txn(vec![Op::RequestPut(pb::PutRequest {
                    ignore_value: true,
                    lease: 99,
                    ..put("n", "")
                })])),
            ],
        ),
        (
            "an alarm is told again, and ended by its own member alone",
            vec![
                alarm(1, 7, 1),
                alarm(1, 7, 1),
                alarm(0, 0, 0),
                alarm(0, 0, 9),
                alarm(2, 0, 1),
                grant(0, 9_000_000_001),
                Step::Put(put("a", "1")),
                Step::Delete(delete("a")),
                alarm(2, 7, 1),
                alarm(2, 7, 1),
                alarm(1, 0, 1),
                Step::Status,
                alarm(2, 0, 1),
                Step::Put(put("a", "1")),
            ],
        ),
        (
            "a watch that was compacted keeps its id until it is canceled",
            with(
                some(),
                vec![
                    compact(now(0)),
                    watch("a", 5, 2),
                    Step::Settle,
                    watch("a", 5, 0),
                    Step::Watch(0, streams::cancel(5)),
                    Step::Watch(0, streams::cancel(5)),
                    watch("a", 5, 0),
                    Step::Put(put("a", "9")),
                    Step::Settle,
                ],
            ),
        ),
        (
            "members have no revision",
            with(some(), vec![Step::Members(true), Step::Members(false)]),
        ),
        (
            "while the data of members differ nothing is changed",
            with(
                some(),
                vec![
                    grant(5, 600),
                    alarm(1, 7, 2),
                    Step::Put(put("a", "1")),
                    Step::Put(pb::PutRequest {
                        lease: 99,
                        ..put("a", "1")
                    }),
                    Step::Delete(delete("none")),
                    Step::Txn(txn(vec![Op::RequestPut(put("a", "1"))])),
                    Step::Txn(txn(vec![Op::RequestRange(read(b"a"))])),
                    Step::Range(all()),
                    compact(now(0)),
                    compact(-1),
                    grant(0, 600),
                    grant(0, 9_000_000_001),
                    Step::Revoke(pb::LeaseRevokeRequest { id: 5 }),
                    Step::KeepAlive(5),
                    lock(77),
                    Step::Status,
                    alarm(2, 7, 2),
                    Step::Put(put("a", "1")),
                ],
            ),
        ),
        (
            "events come in the order of the transaction, each write of a key",
            with(
                some(),
                vec![
                    watch_all(1, 0),
                    Step::Txn(txn(vec![
                        Op::RequestPut(put("z", "1")),
                        Op::RequestPut(put("a", "3")),
                        Op::RequestDeleteRange(range_of("b", "d")),
                        Op::RequestPut(put("y", "1")),
                    ])),
                    Step::Txn(txn(vec![
                        within(Op::RequestPut(put("n", "1"))),
                        within(Op::RequestPut(put("a", "4"))),
                        within(Op::RequestDeleteRange(range_of("a", "o"))),
                    ])),
                    Step::Txn(txn(vec![
                        Op::RequestDeleteRange(range_of("e", "\0")),
                        Op::RequestPut(put("z", "2")),
                        within(Op::RequestPut(put("e", "2"))),
                        within(Op::RequestDeleteRange(range_of("e", "\0"))),
                        Op::RequestPut(put("f", "2")),
                    ])),
                    Step::Range(all()),
                    watch_all(2, 2),
                    Step::Settle,
                    compact(now(-1)),
                    watch_all(3, compacted(0)),
                    Step::Settle,
                    compact(now(0)),
                    watch_all(4, compacted(0)),
                    Step::Settle,
                    Step::Put(put("z", "3")),
                    Step::Range(all()),
                ],
            ),
        ),
        (
            "answers without a header",
            vec![
                Step::Call(Call::Defragment),
                Step::Call(Call::MoveLeader(pb::MoveLeaderRequest {
                    target_id: OWN_MEMBER,
                })),
            ],
        ),
        (
            "changes of members that cannot be",
            vec![
                Step::Call(Call::MemberRemove(pb::MemberRemoveRequest {
                    id: OWN_MEMBER,
                })),
                Step::Call(Call::MemberUpdate(pb::MemberUpdateRequest {
                    id: 77,
                    peer_ur_ls: vec!["x".to_owned()],
                })),
                member_add("http://a b:1"),
                member_add("http://127.0.0.1:1/"),
            ],
        ),
        (
            "one learner and no more",
            vec![
                member_add("http://127.0.0.1:1"),
                member_add("http://127.0.0.1:2"),
                Step::Put(put("a", "1")),
            ],
        ),
        (
            "methods that there are not",
            [
                "/etcdserverpb.KV/Rename",
                "/etcdserverpb.KV/",
                "/etcdserverpb.Nothing/Range",
                "/Range",
            ]
            .map(|path| Step::Call(Call::Bytes(path, "".into())))
            .to_vec(),
        ),
        (
            "a hash of nothing, and a permission and a downgrade that there are not",
            vec![
                Step::HashKv(0),
                Step::Call(Call::RoleGrant(pb::AuthRoleGrantPermissionRequest {
                    name: "r".to_owned(),
                    perm: None,
                })),
                Step::Call(Call::Downgrade(pb::DowngradeRequest {
                    action: 2,
                    version: String::new(),
                })),
            ],
        ),
        (
            "the shortest lease",
            [0, -1, i64::MIN, 1, 2]
                .into_iter()
                .flat_map(|ttl| {
                    [
                        grant(9, ttl),
                        Step::Revoke(pb::LeaseRevokeRequest { id: 9 }),
                    ]
                })
                .collect(),
        ),
        (
            "a transaction within another is agreed on, though it only reads",
            vec![
                Step::Put(put("a", "1")),
                Step::Txn(txn(vec![within(Op::RequestRange(all()))])),
                Step::Txn(txn(vec![within(Op::RequestRange(pb::RangeRequest {
                    key: vec![b'k'; 1_600_000].into(),
                    ..read(b"")
                }))])),
                alarm(1, 0, 2),
                Step::Txn(txn(vec![within(Op::RequestRange(all()))])),
                Step::Txn(txn(vec![
                    Op::RequestTxn(txn(vec![])),
                    Op::RequestRange(all()),
                ])),
                Step::Txn(txn(vec![Op::RequestRange(all())])),
                Step::Txn(txn(vec![])),
                alarm(2, 0, 2),
                Step::Txn(txn(vec![within(Op::RequestRange(all()))])),
            ],
        ),
        (
            "a fragment is shorter than a message may be",
            vec![
                Step::Watch(
                    0,
                    streams::create(pb::WatchCreateRequest {
                        key: "\0".into(),
                        range_end: "\0".into(),
                        prev_kv: true,
                        fragment: true,
                        ..pb::WatchCreateRequest::default()
                    }),
                ),
                // Two events of this size are a few bytes shorter than a message may be, and the message a few longer.
                Step::Put(valued("a", 1_048_545)),
                Step::Put(valued("b", 1_048_545)),
                Step::Put(valued("c", 1_048_545)),
                Step::Delete(range_of("a", "z")),
                Step::Settle,
            ],
        ),
        (
            "what is too large",
            vec![
                Step::Put(long(1_570_000)),
                Step::Put(long(1_573_000)),
                Step::Put(long(3 << 20)),
                Step::Put(pb::PutRequest {
                    ignore_value: true,
                    ..long(1_573_000)
                }),
                Step::Txn(broken),
                Step::Range(pb::RangeRequest {
                    key: vec![b'k'; 1_600_000].into(),
                    ..read(b"")
                }),
                Step::Txn(txn(vec![Op::RequestRange(pb::RangeRequest {
                    key: vec![b'k'; 1_600_000].into(),
                    ..read(b"")
                })])),
                Step::Range(pb::RangeRequest {
                    key: vec![b'k'; 2_200_000].into(),
                    ..read(b"")
                }),
            ],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_once_different_is_the_same() {
    let mut failures = Vec::new();
    for program in etcd_programs() {
        for (name, steps) in sequences() {
            let mut pair = Pair::start(&program).await;
            let ran = run(&mut pair, &steps, &mut Asked::default()).await;
            let (major, minor) = pair.etcd.version;
            pair.stop().await;
            if let Err(found) = ran {
                let text = show(&[], &found);
                failures.push(format!("{name}, etcd {major}.{minor}\n{text}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
