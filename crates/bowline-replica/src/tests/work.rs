//! The bound of a transaction's work, on which every member decides alike.

use super::*;
use crate::overlay::Overlay;
use crate::range;
use crate::work::Work;
use crate::{PROPOSAL_BYTES_MAX, TXN_BYTES_MAX, TXN_KEYS_MAX};

const KEYS: u64 = 10_000;

/// A condition that every key fulfils.
fn every_key() -> Compare {
    Compare {
        key: b"k".to_vec(),
        range_end: b"l".to_vec(),
        relation: Relation::Greater,
        target: Target::Version(0),
    }
}

fn all() -> RangeOp {
    RangeOp {
        key: b"k".to_vec(),
        range_end: b"l".to_vec(),
        ..RangeOp::default()
    }
}

fn fill(member: &mut Member, keys: std::ops::Range<u64>) {
    let puts: Vec<Op> = keys
        .map(|n| Op::Put(put(&format!("k{n:06}"), "v")))
        .collect();
    for puts in puts.chunks(1_000) {
        let replies = member.run(&[txn_of(puts.to_vec())]);
        assert!(replies[0].result.is_ok(), "{replies:?}");
    }
}

fn is_refused(reply: &Reply) -> bool {
    matches!(&reply.result, Err(Refusal::TooMuchWork { .. }))
}

/// So many conditions on all keys that they exceed the bound, and a put.
fn conditions(count: u64) -> Txn {
    Txn {
        compares: vec![every_key(); usize::try_from(count).unwrap()],
        success: vec![Op::Put(put("done", "x"))],
        failure: Vec::new(),
    }
}

/// One request of 2 KiB made every member visit its keys a hundred times; with nested transactions, tens of
/// thousands of times. Meanwhile nothing else was applied.
#[test]
fn conditions_on_ranges_are_bounded() {
    let mut member = Member::open(&SimDisk::new(), 1);
    fill(&mut member, 0..KEYS);
    let fits = TXN_KEYS_MAX / (KEYS + 100);
    let too_many = TXN_KEYS_MAX / KEYS + 1;
    let before = member.replica.db().revision();
    let replies = member.run(&[Command::Txn(conditions(too_many))]);
    assert!(is_refused(&replies[0]), "{:?}", replies[0]);
    assert_eq!(member.replica.db().revision(), before);
    assert!(
        member
            .replica
            .weigh(&conditions(too_many))
            .unwrap()
            .is_err()
    );
    // In nested transactions it is as much.
    let inner = (0..too_many).map(|_| Op::Txn(conditions(1))).collect();
    let nested = Txn {
        success: inner,
        ..Txn::default()
    };
    assert!(member.replica.weigh(&nested).unwrap().is_err());
    assert!(is_refused(&member.run(&[Command::Txn(nested)])[0]));
    assert_eq!(value(&member, "done"), None);
    // A command from before the bound is executed as it was then.
    let replies = member.run(&[Command::UnboundedTxn(conditions(too_many))]);
    assert!(replies[0].result.is_ok());
    assert!(member.replica.weigh(&conditions(fits)).unwrap().is_ok());
    assert!(
        member.run(&[Command::Txn(conditions(fits))])[0]
            .result
            .is_ok()
    );
    assert_eq!(value(&member, "done"), Some(b"x".to_vec()));
}

#[test]
fn ranges_and_deletions_in_a_transaction_are_bounded() {
    let mut member = Member::open(&SimDisk::new(), 1);
    fill(&mut member, 0..KEYS);
    let count = usize::try_from(TXN_KEYS_MAX / KEYS + 1).unwrap();
    let old = RangeOp {
        revision: member.replica.db().revision(),
        ..all()
    };
    let counted = RangeOp {
        count_only: true,
        ..all()
    };
    let deletion = DeleteRangeOp {
        key: b"k".to_vec(),
        range_end: b"l".to_vec(),
        prev_kv: false,
    };
    member.run(&[txn_of(vec![Op::Put(put("later", "x"))])]);
    for op in [Op::Range(all()), Op::Range(counted), Op::Range(old)] {
        let txn = Txn {
            success: vec![op; count],
            ..Txn::default()
        };
        let (_, read) = read_of(&member, &txn);
        assert!(matches!(read, Err(Refusal::TooMuchWork { .. })), "{read:?}");
        assert!(member.replica.weigh(&txn).unwrap().is_err());
    }
    let mut ops = vec![Op::DeleteRange(deletion.clone()); count];
    ops.push(Op::Put(put("done", "x")));
    for ops in [
        ops,
        [
            vec![Op::Range(all()); count],
            vec![Op::Put(put("done", "x"))],
        ]
        .concat(),
    ] {
        let Command::Txn(txn) = txn_of(ops) else {
            unreachable!()
        };
        assert!(Replica::may_exceed(&txn));
        assert!(member.replica.weigh(&txn).unwrap().is_err());
        assert!(is_refused(&member.run(&[Command::Txn(txn)])[0]));
    }
    assert_eq!(value(&member, "done"), None);
    // A plain deletion is bounded by the writes of a command, not by this budget.
    let Command::Txn(txn) = txn_of(vec![Op::DeleteRange(deletion)]) else {
        unreachable!()
    };
    assert!(member.replica.weigh(&txn).unwrap().is_ok());
    let replies = member.run(&[Command::Txn(txn)]);
    let [OpReply::DeleteRange { deleted, .. }] = &txn_reply(&replies[0]).replies[..] else {
        panic!("{replies:?}")
    };
    assert_eq!(*deleted, KEYS);
}

/// A request of a few bytes per read asks for one large value again and again.
#[test]
fn values_that_are_read_are_bounded() {
    let mut member = Member::open(&SimDisk::new(), 1);
    let large = "x".repeat(1 << 20);
    member.run(&[txn_of(vec![Op::Put(put("large", &large))])]);
    let get = RangeOp {
        key: b"large".to_vec(),
        ..RangeOp::default()
    };
    let count = usize::try_from((TXN_BYTES_MAX >> 20) + 1).unwrap();
    let keep = PutOp {
        ignore_value: true,
        ..put("large", "")
    };
    let is_it = Compare {
        key: b"large".to_vec(),
        range_end: Vec::new(),
        relation: Relation::Equal,
        target: Target::Value(large.into_bytes()),
    };
    let writes = |ops: Vec<Op>| [ops, vec![Op::Put(keep.clone())]].concat();
    for (compares, success) in [
        (Vec::new(), writes(vec![Op::Range(get.clone()); count])),
        (vec![is_it; count], writes(Vec::new())),
    ] {
        let txn = Txn {
            compares,
            success,
            failure: Vec::new(),
        };
        // Without large values, such requests need no weighing.
        assert!(Replica::may_exceed(&txn));
        assert!(member.replica.weigh(&txn).unwrap().is_err());
        let before = member.replica.db().revision();
        assert!(is_refused(&member.run(&[Command::Txn(txn)])[0]));
        assert_eq!(member.replica.db().revision(), before);
    }
    let few = txn_of(writes(vec![Op::Range(get); count / 2]));
    assert!(member.run(&[few])[0].result.is_ok());
}

/// Conditions that read 63 MiB were proposed, and held up all puts for 10 ms each: beside a crowd of such transactions a
/// good client's p99 was seven times as long as alone. What is proposed reads less; what is in the log is applied as before.
#[test]
fn a_proposal_reads_less_than_what_is_applied() {
    let mut member = Member::open(&SimDisk::new(), 1);
    let large = "x".repeat(1 << 20);
    member.run(&[txn_of(vec![Op::Put(put("large", &large))])]);
    let of = |count: u64| Txn {
        compares: vec![
            Compare {
                key: b"large".to_vec(),
                range_end: Vec::new(),
                relation: Relation::Equal,
                target: Target::Value(large.clone().into_bytes()),
            };
            usize::try_from(count).unwrap()
        ],
        success: vec![Op::Put(put("done", "x"))],
        failure: Vec::new(),
    };
    // A key has bytes, too.
    let fits = of((PROPOSAL_BYTES_MAX >> 20) - 1);
    let too_large = of((PROPOSAL_BYTES_MAX >> 20) + 1);
    for (txn, is_proposed) in [(fits, true), (too_large, false)] {
        assert!(Replica::may_exceed(&txn), "it is weighed");
        let at_once = member.replica.weigh_at_once(&txn).unwrap();
        let weighed = at_once.expect("few look-ups are weighed at once");
        match weighed {
            Ok(()) => assert!(is_proposed),
            Err(Refusal::TooMuchWork { bytes, .. }) => {
                assert_eq!((is_proposed, bytes), (false, PROPOSAL_BYTES_MAX));
            }
            Err(other) => panic!("{other}"),
        }
        assert!(member.run(&[Command::Txn(txn)])[0].result.is_ok());
    }
}

/// Between the proposal and its entry the state grows: what fitted then is refused alike by a member that did
/// not weigh it, by one that applies it again after a crash, and by one whose tables were merged.
#[test]
fn what_grew_meanwhile_is_refused_alike() {
    let mut steady = Member::open(&SimDisk::new(), 1);
    let mut shaken = Member::open(&SimDisk::new(), 2);
    let count = TXN_KEYS_MAX / KEYS;
    for member in [&mut steady, &mut shaken] {
        fill(member, 0..KEYS - 100);
    }
    let txn = conditions(count);
    assert!(steady.replica.weigh(&txn).unwrap().is_ok());
    for member in [&mut steady, &mut shaken] {
        fill(member, KEYS - 100..KEYS + 100);
        // Tombstones are not counted; their number differs between members.
        let gone = DeleteRangeOp {
            key: b"k000000".to_vec(),
            range_end: b"k000050".to_vec(),
            prev_kv: false,
        };
        member.run(&[txn_of(vec![Op::DeleteRange(gone)])]);
    }
    shaken.replica.db().flush().unwrap();
    shaken.replica.db().compact().unwrap();
    let commands = [Command::Txn(txn), txn_of(vec![Op::Put(put("after", "x"))])];
    let replies = steady.run(&commands);
    assert!(is_refused(&replies[0]), "{replies:?}");
    assert_eq!(shaken.run(&commands), replies);
    let again = Member::open(&steady.disk.after_power_loss(), 1);
    assert_eq!(again.dump(), steady.dump());
    assert_eq!(shaken.dump(), steady.dump());
    assert_eq!(value(&steady, "done"), None);
}

/// The pages and the bytes that were read so far.
fn read_so_far(member: &Member) -> (u64, u64) {
    let counters = member.replica.db().stats().engine.counters;
    let pages = counters.cache_hits + counters.cache_misses;
    (pages, counters.read_bytes)
}

/// A request of a few bytes deletes all keys. Every member read the whole range, with its values, into memory, and refused
/// it only then as more than a command may write; the end of a lease with very many keys collected all of them likewise.
/// Found by review.
#[test]
fn what_deletes_more_than_a_command_may_reads_no_further_than_that() {
    let mut member = Member::open(&SimDisk::new(), 1);
    let lease = 5;
    let ttl = Duration::from_secs(10);
    member.run(&[Command::LeaseGrant { id: lease, ttl }]);
    let leased = |n: u64| {
        Op::Put(PutOp {
            lease,
            ..put(&format!("k{n:06}"), "v")
        })
    };
    for first in (0..KEYS).step_by(1000) {
        let puts = (first..first + 1000).map(leased).collect();
        assert!(member.run(&[txn_of(puts)])[0].result.is_ok());
    }
    member.replica.db().flush().unwrap();
    member.replica.db().compact().unwrap();
    let (before, _) = read_so_far(&member);
    assert_eq!(member.replica.db().range(..).unwrap().count() as u64, KEYS);
    let (after, _) = read_so_far(&member);
    let all = after - before;
    assert!(all > 15, "{all} pages");
    let limit = 1000;
    member.replica.limit_writes(limit);
    let deletion = Txn::of(Op::DeleteRange(DeleteRangeOp {
        key: b"k".to_vec(),
        range_end: b"l".to_vec(),
        prev_kv: false,
    }));
    let is_refused = |refused: &Result<Outcome, Refusal>| {
        matches!(refused, Err(Refusal::TooManyWrites { size, .. })
            if (limit + 1..limit + 50).contains(size))
    };
    let revision = member.replica.db().revision();
    for command in [
        Command::Txn(deletion.clone()),
        Command::UnboundedTxn(deletion.clone()),
        Command::LeaseRevoke { id: lease },
        Command::LeaseExpire {
            id: lease,
            term: 1,
            granted: Some(1),
        },
    ] {
        let (before, _) = read_so_far(&member);
        let refused = member.run(std::slice::from_ref(&command)).remove(0).result;
        let (after, _) = read_so_far(&member);
        assert!(is_refused(&refused), "{command:?}: {refused:?}");
        let read = after - before;
        assert!(read <= 5, "{command:?}: {read} of {all} pages");
    }
    // The member that proposes it knows it before.
    assert!(Replica::may_exceed(&deletion));
    let (before, _) = read_so_far(&member);
    let refused = member.replica.weigh(&deletion).unwrap();
    assert!(is_refused(&refused.map(|_| Outcome::Done)));
    let known = |keys_max| member.replica.has_too_many_keys(lease_id(lease), keys_max);
    assert_eq!(known(usize::MAX).unwrap(), Some(true));
    let (after, _) = read_so_far(&member);
    assert!(after - before <= 5, "{} of {all} pages", after - before);
    assert_eq!(member.replica.db().revision(), revision);
    assert!(member.replica.db().check().unwrap().is_clean());
    // Whoever waits for no turn looks at few keys.
    member.replica.limit_writes(u64::MAX);
    let few = |to: &str| {
        let deletion = Txn::of(Op::DeleteRange(DeleteRangeOp {
            key: b"k".to_vec(),
            range_end: to.as_bytes().to_vec(),
            prev_kv: false,
        }));
        member.replica.weigh_at_once(&deletion).unwrap()
    };
    assert_eq!((few("k000200"), few("l")), (Some(Ok(())), None));
    assert_eq!(known(Replica::FEW_KEYS).unwrap(), None);
    assert_eq!(known(usize::MAX).unwrap(), Some(false));
}

/// A deletion read the values of all keys that it deletes, which nobody had asked for.
#[test]
fn a_deletion_reads_no_values() {
    const KEYS: u64 = 64;
    const VALUE_BYTES: usize = 16 << 10;
    let mut member = Member::open(&SimDisk::new(), 1);
    let mut random = fastrand::Rng::with_seed(7);
    for n in 0..KEYS {
        // What compresses well would be read at little cost.
        let value: String = (0..VALUE_BYTES).map(|_| random.alphanumeric()).collect();
        member.run(&[txn_of(vec![Op::Put(put(&format!("k{n:06}"), &value))])]);
    }
    member.replica.db().flush().unwrap();
    let revision = member.replica.db().revision();
    let deletion = Txn::of(Op::DeleteRange(DeleteRangeOp {
        key: b"k".to_vec(),
        range_end: b"l".to_vec(),
        prev_kv: false,
    }));
    let (_, before) = read_so_far(&member);
    assert!(member.replica.weigh(&deletion).unwrap().is_ok());
    let replies = member.run(&[Command::Txn(deletion)]);
    let (_, after) = read_so_far(&member);
    let [OpReply::DeleteRange { deleted, previous }] = &txn_reply(&replies[0]).replies[..] else {
        panic!("{replies:?}")
    };
    assert_eq!((*deleted, previous.len()), (KEYS, 0));
    assert_eq!(member.replica.db().revision(), revision + 1);
    let read = after - before;
    assert!(read < VALUE_BYTES as u64 * 4, "{read} bytes");
}

/// What is light is weighed as it comes; what reads much has a weight, and is told apart from that.
#[test]
fn light_and_heavy_transactions_are_told_apart() {
    let mut member = Member::open(&SimDisk::new(), 1);
    fill(&mut member, 0..500);
    let count = |count: u64| Txn {
        success: vec![Op::Put(put("done", "x"))],
        ..conditions(count)
    };
    let (light, heavy) = (count(1), count(3));
    for txn in [&light, &heavy] {
        assert!(Replica::may_exceed(txn));
        assert!(member.replica.weigh_at_once(txn).unwrap().is_none());
    }
    assert_eq!(member.replica.weigh_light(&light).unwrap(), Some(Ok(())));
    assert_eq!(member.replica.weigh_light(&heavy).unwrap(), None);
    let weight = member
        .replica
        .weigh(&heavy)
        .unwrap()
        .expect("it may be proposed");
    assert!(weight.keys >= 1_500, "{weight:?}");
    let time = weight.apply_time();
    assert!(time.as_micros() >= 150 && time.as_millis() < 10, "{time:?}");
}

/// To know how much a transaction reads, every member read all values of its ranges from their files where the entry was
/// applied, with all other requests behind it. Now only their lengths: the sums are the same, or members would differ.
#[test]
fn a_range_is_weighed_as_it_is_read_and_without_its_values() {
    const VALUE_BYTES: usize = 20_000;
    let mut in_memory = Member::open(&SimDisk::new(), 1);
    let mut in_files = Member::open(&SimDisk::new(), 2);
    for member in [&mut in_memory, &mut in_files] {
        let large =
            |n: usize| Op::Put(put(&format!("k{n:06}"), &"v".repeat(n * VALUE_BYTES / 100)));
        for first in (0..100).step_by(10) {
            let puts = (first..first + 10).map(large).collect();
            assert!(member.run(&[txn_of(puts)])[0].result.is_ok());
        }
    }
    in_files.replica.db().flush().unwrap();
    in_files.replica.db().compact().unwrap();
    let asked = |limit, count_only, keys_only, sort_target| RangeOp {
        limit,
        count_only,
        keys_only,
        sort_target,
        sort_order: SortOrder::Descend,
        ..all()
    };
    let targets = [SortTarget::Key, SortTarget::Mod, SortTarget::Value];
    let mut ops = vec![all()];
    for target in targets {
        for (limit, count_only, keys_only) in [
            (0, false, false),
            (7, false, false),
            (0, true, false),
            (7, false, true),
            (0, false, true),
        ] {
            ops.push(asked(limit, count_only, keys_only, target));
            let one = (b"k000050".to_vec(), Vec::new());
            let (key, range_end) = one;
            ops.push(RangeOp {
                key,
                range_end,
                ..asked(limit, count_only, keys_only, target)
            });
        }
    }
    let at = in_memory.replica.db().revision();
    for op in &ops {
        let mut weights = Vec::new();
        for member in [&in_memory, &in_files] {
            let engine = &member.replica.core().engine;
            let (weighed, read) = (Work::of_txn(), Work::of_txn());
            range::weigh(engine, op, at, &weighed).unwrap().unwrap();
            let nothing = Overlay::default();
            range::read_within(engine, &nothing, op, at, &read)
                .unwrap()
                .unwrap();
            weights.extend([weighed.weight(), read.weight()]);
        }
        assert_eq!(weights, [weights[0]; 4], "{op:?}");
    }
    let (_, before) = read_so_far(&in_files);
    let work = Work::of_txn();
    let engine = &in_files.replica.core().engine;
    range::weigh(engine, &all(), at, &work).unwrap().unwrap();
    let (_, after) = read_so_far(&in_files);
    let bytes = work.weight().bytes;
    assert!(bytes > 900_000, "{bytes}");
    assert!(after - before < bytes / 10, "{} of {bytes}", after - before);
}
