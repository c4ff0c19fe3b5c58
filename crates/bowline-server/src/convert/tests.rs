//! Requests are accepted or refused as in etcd.

use bowline::{Entry, Revision, Value};
use bowline_proto::etcdserverpb as pb;
use bowline_replica::{
    Command, Op, OpReply, RangeReply, Relation, SortOrder, SortTarget, TXN_DEPTH_MAX, Target,
    TxnReply, decode_commands, encode_commands,
};
use bowline_testing::lease_id;
use pb::compare::TargetUnion;
use pb::request_op::Request;
use prost::Message;

use super::*;
use crate::status::Fault;

fn range(key: &str) -> pb::RangeRequest {
    pb::RangeRequest {
        key: key.to_owned().into(),
        ..pb::RangeRequest::default()
    }
}

fn op(request: Request) -> pb::RequestOp {
    pb::RequestOp {
        request: Some(request),
    }
}

fn put(key: &str) -> pb::RequestOp {
    op(Request::RequestPut(pb::PutRequest {
        key: key.to_owned().into(),
        value: "v".into(),
        ..pb::PutRequest::default()
    }))
}

fn delete(key: &str, end: &'static str) -> pb::RequestOp {
    op(Request::RequestDeleteRange(pb::DeleteRangeRequest {
        key: key.to_owned().into(),
        range_end: end.into(),
        prev_kv: false,
    }))
}

fn either(success: Vec<pb::RequestOp>, failure: Vec<pb::RequestOp>) -> pb::RequestOp {
    op(Request::RequestTxn(pb::TxnRequest {
        compare: Vec::new(),
        success,
        failure,
    }))
}

fn check(success: Vec<pb::RequestOp>) -> Result<(), Fault> {
    let request = pb::TxnRequest {
        success,
        ..pb::TxnRequest::default()
    };
    txn(request, 128).map(drop)
}

#[test]
fn a_range_keeps_what_it_says() {
    let taken = range_op(pb::RangeRequest {
        range_end: "b".into(),
        limit: 5,
        revision: 6,
        sort_order: 2,
        sort_target: 3,
        keys_only: true,
        min_mod_revision: 7,
        max_create_revision: 8,
        ..range("a")
    })
    .unwrap();
    assert_eq!(
        (&taken.key[..], &taken.range_end[..]),
        (&b"a"[..], &b"b"[..])
    );
    assert_eq!((taken.limit, taken.revision.get()), (5, 6));
    assert_eq!(taken.sort_order, SortOrder::Descend);
    assert_eq!(taken.sort_target, SortTarget::Mod);
    assert_eq!(taken.min_mod_revision, 7);
    assert_eq!(taken.max_create_revision, 8);
    assert!(taken.keys_only && !taken.count_only);
}

#[test]
fn numbers_below_zero_mean_what_they_mean_in_etcd() {
    let taken = range_op(pb::RangeRequest {
        limit: -1,
        revision: -1,
        min_mod_revision: -1,
        ..range("a")
    })
    .unwrap();
    // The least bound passes everything, and is a filter.
    assert_eq!((taken.limit, taken.revision.get()), (0, 0));
    assert_eq!(taken.min_mod_revision, 1);
    let nothing = range_op(pb::RangeRequest {
        max_mod_revision: -1,
        ..range("a")
    })
    .unwrap();
    assert_eq!(nothing.min_mod_revision, u64::MAX);
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    assert_eq!(range_op(range("")), Err(Fault::KeyNotProvided));
    for (sort_order, sort_target) in [(3, 0), (0, 5), (-1, 0)] {
        let request = pb::RangeRequest {
            sort_order,
            sort_target,
            ..range("a")
        };
        assert_eq!(range_op(request), Err(Fault::InvalidSort));
    }
    let put = |key: &'static str, value: &'static str, lease| pb::PutRequest {
        key: key.into(),
        value: value.into(),
        lease,
        ..pb::PutRequest::default()
    };
    assert_eq!(put_op(put("", "v", 0)), Err(Fault::KeyNotProvided));
    let keeps = pb::PutRequest {
        ignore_value: true,
        ..put("k", "v", 0)
    };
    assert_eq!(put_op(keeps), Err(Fault::ValueProvided));
    let keeps = pb::PutRequest {
        ignore_lease: true,
        ..put("k", "v", 7)
    };
    assert_eq!(put_op(keeps), Err(Fault::LeaseProvided));
    assert_eq!(
        delete_op(pb::DeleteRangeRequest::default()),
        Err(Fault::KeyNotProvided)
    );
    assert_eq!(
        check(vec![pb::RequestOp::default()]),
        Err(Fault::KeyNotFound)
    );
}

#[test]
fn lists_have_a_limit_each() {
    let puts = |count: usize| (0..count).map(|n| put(&n.to_string())).collect::<Vec<_>>();
    assert_eq!(check(puts(128)), Ok(()));
    assert_eq!(check(puts(129)), Err(Fault::TooManyOperations));
    assert_eq!(
        check(vec![either(Vec::new(), puts(129))]),
        Err(Fault::TooManyOperations)
    );
}

/// Each level takes two of the hundred levels that the decoder allows: deeper messages are not decoded. All
/// that is decoded can also be checked on a thread with the default stack.
#[test]
fn transactions_stand_as_deep_in_one_another_as_messages_are_read() {
    let nested = |depth: usize, innermost: Vec<pb::RequestOp>| {
        let mut list = innermost;
        for _ in 0..depth {
            list = vec![either(list, Vec::new())];
        }
        let bytes = pb::TxnRequest {
            success: list,
            ..pb::TxnRequest::default()
        };
        pb::TxnRequest::decode(&bytes.encode_to_vec()[..])
    };
    let on_a_small_stack = std::thread::Builder::new().stack_size(2 << 20);
    let looking = on_a_small_stack.spawn(move || {
        let depth = TXN_DEPTH_MAX;
        for read in [nested(depth - 1, vec![put("k")]), nested(depth, Vec::new())] {
            let taken = txn(read.unwrap(), 128).unwrap();
            let mut commands = Vec::new();
            encode_commands([Command::Txn(taken)].iter(), &mut commands);
            assert!(decode_commands(&commands.into()).is_ok());
        }
        for deeper in [nested(depth, vec![put("k")]), nested(depth + 1, Vec::new())] {
            let refused = deeper.unwrap_err().to_string();
            assert!(refused.contains("recursion limit reached"), "{refused}");
        }
    });
    looking.unwrap().join().unwrap();
}

#[test]
fn keys_are_written_twice_where_etcd_lets_them() {
    let ok = |list| assert_eq!(check(list), Ok(()));
    let twice = |list| assert_eq!(check(list), Err(Fault::DuplicateKey));
    twice(vec![put("a"), put("a")]);
    twice(vec![put("a"), delete("a", "")]);
    twice(vec![delete("a", "c"), put("b")]);
    ok(vec![delete("a", "c"), put("c")]);
    ok(vec![delete("a", "c"), delete("b", "d")]);
    // The branches of one transaction exclude each other; those of two do not.
    ok(vec![either(vec![put("a")], vec![put("a")])]);
    ok(vec![either(vec![put("a")], vec![delete("a", "")])]);
    twice(vec![
        either(vec![put("a")], vec![]),
        either(vec![], vec![put("a")]),
    ]);
    twice(vec![put("a"), either(vec![], vec![put("a")])]);
    twice(vec![either(vec![put("b")], vec![]), delete("a", "c")]);
    twice(vec![
        put("b"),
        either(vec![either(vec![], vec![delete("a", "c")])], vec![]),
    ]);
    // A deletion is checked before the puts beside it, and before what follows it.
    twice(vec![put("b"), delete("a", "c")]);
    twice(vec![
        either(vec![], vec![delete("a", "c")]),
        either(vec![put("b")], vec![]),
    ]);
    // Not between nested transactions beside each other, and not for a deletion to the end of all keys.
    ok(vec![
        either(vec![put("b")], vec![]),
        either(vec![], vec![delete("a", "c")]),
    ]);
    ok(vec![delete("a", "\0"), put("z")]);
    ok(vec![put("z"), delete("a", "\0")]);
    ok(vec![delete("c", "a"), put("b")]);
    // Ranges that touch or contain one another, and a single key between them.
    let ranges = || {
        [
            delete("e", "g"),
            delete("a", "c"),
            delete("c", "d"),
            delete("f", ""),
            delete("b", ""),
        ]
    };
    for (key, is_met) in [
        ("a", true),
        ("c", true),
        ("d", false),
        ("dz", false),
        ("f", true),
        ("g", false),
    ] {
        let mut list = ranges().to_vec();
        list.push(put(key));
        let refused = check(list).is_err();
        assert_eq!(refused, is_met, "{key}");
    }
}

#[test]
fn comparing_with_less_than_nothing_holds_always_or_never() {
    let of = |result, union, target| {
        let compare = pb::Compare {
            result,
            target,
            key: "k".into(),
            range_end: "".into(),
            target_union: union,
        };
        let request = pb::TxnRequest {
            compare: vec![compare],
            ..pb::TxnRequest::default()
        };
        let taken = txn(request, 128).unwrap().compares.remove(0);
        (taken.relation, taken.target)
    };
    let version = |n| Some(TargetUnion::Version(n));
    assert_eq!(of(0, version(5), 0), (Relation::Equal, Target::Version(5)));
    let always = (Relation::NotEqual, Target::Version(u64::MAX));
    let never = (Relation::Equal, Target::Version(u64::MAX));
    assert_eq!(of(1, version(-1), 0), always);
    assert_eq!(of(3, version(-1), 0), always);
    assert_eq!(of(0, version(-1), 0), never);
    assert_eq!(of(2, version(-1), 0), never);
    // A missing value.
    assert_eq!(
        of(0, None, 2),
        (Relation::Equal, Target::Mod(Revision::ZERO))
    );
    assert_eq!(of(0, None, 3), (Relation::Equal, Target::Value(Vec::new())));
    assert_eq!(
        of(0, Some(TargetUnion::Lease(-7)), 4),
        (Relation::Equal, Target::Lease(-7))
    );
}

#[test]
fn replies_carry_every_field() {
    let entry = Entry {
        key: Value::from("k"),
        value: Value::from(vec![1; 500]),
        create_revision: Revision::new(2),
        mod_revision: Revision::new(3),
        version: 4,
        lease: Some(lease_id(5)),
    };
    let kv = key_value(entry.clone());
    assert_eq!((&kv.key[..], kv.value.len()), (&b"k"[..], 500));
    assert_eq!(
        (kv.create_revision, kv.mod_revision, kv.version, kv.lease),
        (2, 3, 4, 5)
    );
    let read = RangeReply {
        entries: vec![entry.clone()],
        count: 9,
        more: true,
    };
    let reply = TxnReply {
        succeeded: true,
        replies: vec![
            OpReply::Range(read),
            OpReply::Put(Some(entry.clone())),
            OpReply::DeleteRange {
                deleted: 1,
                previous: vec![entry],
            },
            OpReply::Txn(TxnReply::default()),
        ],
    };
    let reply = txn_reply(reply, Revision::new(11));
    assert!(reply.succeeded && reply.responses.len() == 4);
    let Some(pb::response_op::Response::ResponseRange(range)) = &reply.responses[0].response else {
        panic!("{reply:?}")
    };
    assert_eq!((range.count, range.more, range.kvs.len()), (9, true, 1));
    // It read before the first change.
    assert_eq!(range.header.as_ref().unwrap().revision, 10);
    let Some(pb::response_op::Response::ResponsePut(put)) = &reply.responses[1].response else {
        panic!("{reply:?}")
    };
    assert_eq!(put.header.as_ref().unwrap().revision, 11);
    assert_eq!(reply.header.as_ref().unwrap().revision, 11);
}

#[test]
fn a_read_only_transaction_is_known() {
    let request = pb::TxnRequest {
        success: vec![either(vec![], vec![put("a")])],
        ..pb::TxnRequest::default()
    };
    assert!(!txn(request, 128).unwrap().is_read_only());
    let request = pb::TxnRequest {
        success: vec![op(Request::RequestRange(range("a")))],
        ..pb::TxnRequest::default()
    };
    let taken = txn(request, 128).unwrap();
    assert!(taken.is_read_only() && matches!(taken.success[0], Op::Range(_)));
}
