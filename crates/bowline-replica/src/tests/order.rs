//! Watchers receive every write of a transaction, in the order of execution.
//!
//! The invariant: every watcher, from now or from the past, of all keys or of some, on a member that was
//! there or on a later one, receives the same changes of a revision; and readers see the last write of each
//! key.

use super::*;
use bowline_testing::lease_id;

fn delete(key: &str, end: &str) -> Op {
    Op::DeleteRange(DeleteRangeOp {
        key: key.into(),
        range_end: end.into(),
        prev_kv: true,
    })
}

fn within(ops: Vec<Op>) -> Op {
    Op::Txn(Txn {
        success: ops,
        ..Txn::default()
    })
}

fn put_op(key: &str, value: &str) -> Op {
    Op::Put(put(key, value))
}

/// Revisions 2 to 7; all except the first and the last are not in the order of keys.
fn commands() -> Vec<Command> {
    let leased = PutOp {
        lease: 7,
        ..put("b", "leased")
    };
    vec![
        Command::LeaseGrant {
            id: 7,
            ttl: Duration::from_secs(60),
        },
        txn_of(vec![put_op("a", "1"), put_op("c", "1"), put_op("d", "1")]),
        txn_of(vec![put_op("z", "2"), put_op("b", "2"), delete("c", "z")]),
        // Put, then deleted by a nested transaction: of a new key, and of an existing one.
        txn_of(vec![
            within(vec![put_op("n", "3"), put_op("a", "3")]),
            within(vec![delete("a", "b"), delete("n", "")]),
        ]),
        // Deleted to the end of all keys, and put: it is created again.
        txn_of(vec![delete("b", "\0"), put_op("b", "4")]),
        // The same, and deleted once more, with its lease.
        txn_of(vec![
            delete("a", "\0"),
            within(vec![Op::Put(leased)]),
            within(vec![delete("b", "c")]),
            put_op("a", "5"),
        ]),
        txn_of(vec![put_op("a", "6")]),
    ]
}

const ALL: &str = "\
2: a=1@2.1 c=1@2.1 d=1@2.1
3: z=2@3.1 b=2@3.1 -c -d
4: n=3@4.1 a=3@2.2 -a -n
5: -b -z b=4@5.1
6: -b b=leased@6.1/7 -b a=5@6.1
7: a=6@6.2
";

#[test]
fn all_who_watch_are_told_each_write_in_the_order_of_the_transaction() {
    let mut member = Member::open(&SimDisk::new(), 1);
    let watch =
        |member: &Member, range: Range| member.replica.db().watch(range).from(Revision::new(2));
    let mut live = watch(&member, Range::all()).start().unwrap();
    let mut live_of_some = watch(&member, Range::from("b".."c")).start().unwrap();
    let replies = member.run(&commands());
    let deleted = |reply: &Reply, path: &[usize]| {
        let mut txn = txn_reply(reply);
        for place in &path[1..] {
            let OpReply::Txn(inner) = &txn.replies[*place] else {
                panic!("{txn:?}");
            };
            txn = inner;
        }
        match &txn.replies[path[0]] {
            OpReply::DeleteRange { deleted, previous } => {
                assert_eq!(previous.len() as u64, *deleted);
                *deleted
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(deleted(&replies[3], &[0, 1]), 1, "its own put");
    assert_eq!(deleted(&replies[5], &[0]), 1);
    assert_eq!(deleted(&replies[5], &[0, 2]), 1, "its own put");
    let of_b = "3: b=2@3.1\n5: -b b=4@5.1\n6: -b b=leased@6.1/7 -b\n";
    assert_eq!(told(&mut live), ALL);
    assert_eq!(told(&mut live_of_some), of_b);
    drop((live, live_of_some));

    let past = |member: &Member| {
        assert_eq!(member.events(Revision::new(2)), ALL);
        assert_eq!(
            member.events(Revision::new(5)),
            ALL[ALL.find("5:").unwrap()..]
        );
        let mut of_some = watch(member, Range::from("b".."c")).start().unwrap();
        assert_eq!(told(&mut of_some), of_b);
        let db = member.replica.db();
        let versions = db.history("b").unwrap();
        let versions = versions.iter().map(|version| {
            let value = version.entry.as_ref();
            let value = value.map(|entry| String::from_utf8(entry.value.to_vec()).unwrap());
            (version.revision.get(), value.unwrap_or_default())
        });
        let expected = [(6, ""), (6, "leased"), (6, ""), (5, "4"), (5, ""), (3, "2")];
        let expected = expected.map(|(revision, value)| (revision, value.to_owned()));
        assert_eq!(versions.collect::<Vec<_>>(), expected);
        let keys: Vec<_> = db.range(..).unwrap().map(|e| e.unwrap().key).collect();
        assert_eq!(keys, [&b"a"[..]]);
        assert!(db.lease_keys(lease_id(7)).unwrap().next().is_none());
        assert!(db.check().unwrap().is_clean());
    };
    past(&member);
    member.replica.db().flush().unwrap();
    past(&member);
    member.replica.db().compact().unwrap();
    past(&member);
    let mut late = Member::open(&SimDisk::new(), 2);
    take_over(&member, &mut late);
    past(&late);
    past(&Member::open(&member.disk.after_power_loss(), 1));
    let db = member.replica.db();
    let previous = |key: &str| {
        let previous = watch(&member, Range::key(key)).with_previous();
        let mut previous = previous.start().unwrap();
        let mut before = Vec::new();
        while let Some(changes) = previous.try_recv().unwrap() {
            for change in changes.changes {
                let previous = change.previous.map_or(0, |entry| entry.mod_revision.get());
                before.push((changes.revision.get(), previous));
            }
        }
        before
    };
    // The entry before the revision; a put that creates the key has none.
    let of_a = [(2, 0), (4, 2), (4, 2), (6, 0), (7, 6)];
    let of_b = [(3, 0), (5, 3), (5, 0), (6, 5), (6, 0), (6, 5)];
    assert_eq!(
        (&previous("a")[..], &previous("b")[..]),
        (&of_a[..], &of_b[..])
    );
    assert_eq!(db.revision(), 7);
}

/// As in etcd, where the compaction has removed what was overwritten within its revision.
#[test]
fn of_the_revision_that_history_begins_with_the_last_writes_are_told() {
    let mut member = Member::open(&SimDisk::new(), 1);
    member.run(&commands());
    member.run(&[Command::Compact {
        revision: Revision::new(6),
    }]);
    let told = "6: -b a=5@6.1\n7: a=6@6.2\n";
    assert_eq!(member.events(Revision::new(6)), told);
    member.replica.db().compact().unwrap();
    assert_eq!(member.events(Revision::new(6)), told);
    let revisions = |key: &str| {
        let versions = member.replica.db().history(key).unwrap();
        versions
            .iter()
            .map(|v| v.revision.get())
            .collect::<Vec<_>>()
    };
    assert_eq!((revisions("b"), revisions("a")), (vec![6], vec![7, 6]));
}

/// etcd does not check whether the key still exists, and ends.
#[test]
fn what_keeps_the_value_of_a_key_that_the_transaction_has_deleted_is_refused() {
    let mut member = Member::open(&SimDisk::new(), 1);
    member.run(&[txn_of(vec![put_op("a", "1")])]);
    let before = member.dump();
    for (ignore_value, ignore_lease) in [(true, false), (false, true)] {
        let keeps = PutOp {
            ignore_value,
            ignore_lease,
            ..put("a", "")
        };
        let replies = member.run(&[txn_of(vec![delete("a", "\0"), Op::Put(keeps)])]);
        assert_eq!(replies[0].result, Err(Refusal::KeyNotFound));
        assert_eq!(member.dump(), before);
    }
}

/// The deepest transaction that a member decodes, on a thread with the default stack.
#[test]
fn the_deepest_transaction_is_carried_out() {
    let deepest = || {
        let mut txn = Txn::of(put_op("deep", "1"));
        txn.success.push(Op::Range(RangeOp {
            key: b"deep".to_vec(),
            ..RangeOp::default()
        }));
        for _ in 0..TXN_DEPTH_MAX {
            txn = Txn::of(Op::Txn(txn));
        }
        txn
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    let running = thread.spawn(move || {
        let mut member = Member::open(&SimDisk::new(), 1);
        let replies = member.run(&[Command::Txn(deepest())]);
        let mut reply = txn_reply(&replies[0]);
        while let [OpReply::Txn(inner)] = &reply.replies[..] {
            reply = inner;
        }
        assert!(matches!(&reply.replies[1], OpReply::Range(range) if range.count == 1));
        let mut reads = Txn::default();
        for _ in 0..TXN_DEPTH_MAX {
            reads = Txn::of(Op::Txn(reads));
        }
        let (revision, read) = read_of(&member, &reads);
        assert_eq!((revision.get(), read.is_ok()), (2, true));
    });
    running.unwrap().join().unwrap();
}
