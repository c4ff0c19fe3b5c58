//! Ranges with a filter, an order and a limit, compared with all entries sorted and cut.

use super::*;
use bowline::Entry;
use bowline_testing::Seed;

const KEYS: usize = 24;
const ROUNDS: usize = 30;
const TEST: &str = "-p bowline-replica --lib tests::ranges";

/// Every key of the test.
fn all() -> RangeOp {
    RangeOp {
        key: b"k".to_vec(),
        range_end: b"l".to_vec(),
        ..RangeOp::default()
    }
}

/// Few values, so that many are equal; some are in blob files.
fn random_put(random: &mut fastrand::Rng, number: usize) -> Op {
    let length = [0, 3, 3, 150, 400][random.usize(0..5)];
    let byte = ["a", "b", "c"][random.usize(0..3)];
    Op::Put(put(&format!("k{number:02}"), &byte.repeat(length)))
}

/// Puts and deletions of different keys.
fn random_writes(random: &mut fastrand::Rng) -> Vec<Op> {
    let mut numbers: Vec<usize> = (0..KEYS).collect();
    random.shuffle(&mut numbers);
    numbers.truncate(random.usize(1..6));
    let write = |number| match random.u8(0..4) {
        0 => Op::DeleteRange(DeleteRangeOp {
            key: format!("k{number:02}").into(),
            ..DeleteRangeOp::default()
        }),
        _ => random_put(random, number),
    };
    numbers.into_iter().map(write).collect()
}

fn random_range(random: &mut fastrand::Rng, newest: u64) -> RangeOp {
    let mut bound = |often: u8| match random.u8(0..10) < often {
        true => Revision::new(random.u64(1..=newest + 1)),
        false => Revision::ZERO,
    };
    let (min_mod_revision, max_mod_revision) = (bound(2), bound(2));
    let (min_create_revision, max_create_revision) = (bound(2), bound(2));
    RangeOp {
        limit: [0, 1, 1, 2, 3, 7, 23, 24, 25, u64::MAX][random.usize(0..10)],
        sort_target: [
            SortTarget::Key,
            SortTarget::Version,
            SortTarget::Create,
            SortTarget::Mod,
            SortTarget::Value,
        ][random.usize(0..5)],
        sort_order: [SortOrder::None, SortOrder::Ascend, SortOrder::Descend][random.usize(0..3)],
        keys_only: random.u8(0..4) == 0,
        count_only: random.u8(0..12) == 0,
        min_mod_revision,
        max_mod_revision,
        min_create_revision,
        max_create_revision,
        ..all()
    }
}

/// The reply as it follows from all entries of the range, in the order of their keys.
fn expected(op: &RangeOp, entries: &[Entry]) -> RangeReply {
    let mut reply = RangeReply {
        count: entries.len() as u64,
        ..RangeReply::default()
    };
    if op.count_only {
        return reply;
    }
    let is_within = |min: Revision, max: Revision, revision: Revision| {
        (min == 0 || revision >= min) && (max == 0 || revision <= max)
    };
    let mut found = entries.to_vec();
    found.retain(|entry| {
        is_within(op.min_mod_revision, op.max_mod_revision, entry.mod_revision)
            && is_within(
                op.min_create_revision,
                op.max_create_revision,
                entry.create_revision,
            )
    });
    let limit = match op.limit {
        0 => usize::MAX,
        limit => usize::try_from(limit).unwrap(),
    };
    reply.more = found.len() > limit;
    let bounds = [
        op.min_mod_revision,
        op.max_mod_revision,
        op.min_create_revision,
        op.max_create_revision,
    ];
    // As in etcd: a target without an order sorts what the limit lets through, and one more.
    if op.sort_order == SortOrder::None
        && op.sort_target != SortTarget::Key
        && bounds == [Revision::ZERO; 4]
    {
        found.truncate(limit.saturating_add(1));
    }
    let number = |entry: &Entry| match op.sort_target {
        SortTarget::Version => entry.version,
        SortTarget::Create => entry.create_revision.get(),
        SortTarget::Mod => entry.mod_revision.get(),
        SortTarget::Key | SortTarget::Value => 0,
    };
    let bytes = |entry: &Entry| match op.sort_target {
        SortTarget::Key => entry.key.to_vec(),
        SortTarget::Value => entry.value.to_vec(),
        _ => Vec::new(),
    };
    // The sort is stable.
    found.sort_by(|a, b| {
        let order = (number(a), bytes(a)).cmp(&(number(b), bytes(b)));
        match op.sort_order {
            SortOrder::Descend => order.reverse(),
            _ => order,
        }
    });
    found.truncate(limit);
    if op.keys_only {
        for entry in &mut found {
            entry.value = Value::EMPTY;
        }
    }
    reply.entries = found;
    reply
}

fn found(member: &Member, op: &RangeOp) -> RangeReply {
    let read = member.replica.range(op, unchecked).unwrap();
    read.expect("no state is installed").1.unwrap()
}

/// Reads in every way: at the newest revision and at an older one, in a transaction that reads, and in one that
/// has written before.
#[test]
fn a_limit_keeps_the_first_entries_in_any_order() {
    for seed in Seed::fixed_and_fresh(0x5EED_0047, TEST) {
        let _guard = seed.print_on_failure(TEST);
        let mut random = seed.rng();
        let mut member = Member::open(&SimDisk::new(), 1);
        let mut past: Option<(Revision, Vec<Entry>)> = None;
        let mut cut = 0;
        for _ in 0..ROUNDS {
            assert!(
                member.run(&[txn_of(random_writes(&mut random))])[0]
                    .result
                    .is_ok()
            );
            if random.u8(0..6) == 0 {
                member.replica.db().flush().unwrap();
            }
            let newest = member.replica.db().revision();
            let entries = found(&member, &all()).entries;
            for _ in 0..20 {
                let op = random_range(&mut random, newest.get());
                let expected = expected(&op, &entries);
                cut += usize::from(expected.more);
                assert_eq!(found(&member, &op), expected, "{op:?}");
                let txn = Txn {
                    success: vec![Op::Range(op.clone())],
                    ..Txn::default()
                };
                let read = read_of(&member, &txn).1.unwrap();
                assert_eq!(read.replies, [OpReply::Range(expected)], "{op:?}");
            }
            if let Some((revision, entries)) = &past {
                let op = RangeOp {
                    revision: *revision,
                    ..random_range(&mut random, newest.get())
                };
                assert_eq!(found(&member, &op), expected(&op, entries), "{op:?}");
            }
            // A range in a transaction sees what the transaction has written.
            let op = random_range(&mut random, newest.get() + 1);
            let mut ops = random_writes(&mut random);
            ops.push(Op::Range(op.clone()));
            let replies = member.run(&[txn_of(ops)]);
            let entries = found(&member, &all()).entries;
            let last = txn_reply(&replies[0]).replies.last();
            let expected = OpReply::Range(expected(&op, &entries));
            assert_eq!(last, Some(&expected), "{op:?}");
            if past.is_none() || random.u8(0..4) == 0 {
                past = Some((member.replica.db().revision(), entries));
            }
        }
        assert!(cut > 100, "{cut}");
    }
}

/// What a limit left out was read with its values, only to be counted: the first two of a million keys with
/// large values read all of the blob files. Found by review.
#[test]
fn what_a_limit_leaves_out_is_counted_without_its_values() {
    const VALUE_BYTES: usize = 64 << 10;
    let mut member = Member::open(&SimDisk::new(), 1);
    // Nothing that a compression would make small.
    let mut random = fastrand::Rng::with_seed(1);
    for number in 0..KEYS {
        let value: Vec<u8> = (0..VALUE_BYTES).map(|_| random.u8(..)).collect();
        let large = PutOp {
            value: value.into(),
            ..put(&format!("k{number:02}"), "")
        };
        assert!(
            member.run(&[txn_of(vec![Op::Put(large)])])[0]
                .result
                .is_ok()
        );
    }
    member.replica.db().flush().unwrap();
    let read_bytes = || member.replica.db().stats().engine.counters.read_bytes;
    // The pages come into the cache.
    let count = RangeOp {
        count_only: true,
        ..all()
    };
    assert_eq!(found(&member, &count).count, KEYS as u64);
    for sort_target in [SortTarget::Key, SortTarget::Mod] {
        let op = RangeOp {
            limit: 2,
            sort_target,
            ..all()
        };
        let before = read_bytes();
        let reply = found(&member, &op);
        let read = read_bytes() - before;
        assert_eq!(reply.entries.len(), 2);
        assert_eq!(reply.entries[1].value.len(), VALUE_BYTES);
        assert_eq!((reply.count, reply.more), (KEYS as u64, true));
        assert!(read < (KEYS / 3 * VALUE_BYTES) as u64, "{read} bytes read");
    }
}
