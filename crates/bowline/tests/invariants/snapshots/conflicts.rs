//! Who wins and who is refused: conflicts, blind writes, compare-and-swap, absent keys.

use bowline::{Error, Expected, History, Isolation, Revision, Transaction};

use super::{put, some};
use crate::harness::{Run, check, holds, number, refused, same, tx_value};

fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Conflict { .. })
}

/// Twelve overlapping transactions take a lock that each has found free: one gets it. After a crash
/// the lock is held by the acknowledged winner, and those who come then do not get it.
#[test]
fn exactly_one_winner() {
    const CONTENDERS: usize = 12;
    /// The contenders find the lock free and then commit in random order; how many won.
    fn contend(run: &mut Run, lock: &str) -> usize {
        let mut contenders = Vec::new();
        for name in 0..CONTENDERS {
            let mut tx = run.db().begin();
            if tx_value(&mut tx, lock).expect("read").is_none() {
                tx.put(lock, name.to_string()).expect("staged");
                contenders.push((name, tx));
            }
        }
        run.rng.shuffle(&mut contenders);
        let mut won = 0;
        for (name, tx) in contenders {
            if won == 0 {
                run.commit(tx, &[put(lock, name.to_string())]);
                won += 1;
                run.upkeep();
            } else {
                let error = run.refused(|_| tx.commit());
                assert!(is_conflict(&error), "{error}");
            }
        }
        won
    }
    const ROUNDS: u64 = 14;
    check(
        "exactly_one_winner",
        History::All,
        |run| {
            for round in 0..ROUNDS {
                assert_eq!(contend(run, &format!("lock{round:02}")), 1);
                if round % 5 == 4 {
                    run.reopen();
                }
            }
        },
        |found, ()| {
            let locks = (0..ROUNDS).map(|round| format!("lock{round:02}"));
            let mut held = 0;
            for lock in locks.clone() {
                let entry = found.db.entry(&lock)?;
                let holder = entry.as_ref().map(|entry| entry.value.to_vec());
                same!(holder, found.expected_value(&lock), "the holder of {lock}");
                holds!(
                    entry.is_none_or(|entry| entry.version == 1),
                    "{lock} was taken twice"
                );
                held += u64::from(holder.is_some());
            }
            same!(held, found.revision.get() - 1, "locks held");
            found.run_on(|run| {
                for (round, lock) in (0..).zip(locks) {
                    let expected = usize::from(round >= held);
                    assert_eq!(contend(run, &lock), expected, "winners of {lock}");
                }
            })
        },
    );
}

/// Of those who swap from the same revision one wins, and the revision that the others are told is
/// the winner's; so it is for a revision from before the crash.
#[test]
fn cas_exactly_one_winner() {
    fn round(run: &mut Run) {
        let held = run.model.get(b"k", run.model.revision());
        let expected = held.map_or(Revision::ZERO, |entry| entry.mod_revision);
        let version = held.map_or(0, |entry| entry.version);
        let winner = run.rng.usize(..6).to_string();
        let change = [put("k", &winner)];
        let won = run.step(&change, |db| {
            db.compare_and_swap("k", Expected::Revision(expected), &winner)
        });
        for loser in 0..6 {
            let error = run.refused(|db| {
                db.compare_and_swap("k", Expected::Revision(expected), loser.to_string())
            });
            assert!(
                matches!(error, Error::CompareFailed { expected: e, actual, .. }
                    if e.mod_revision() == expected && actual == Some(won)),
                "{error}"
            );
        }
        assert_eq!(run.value("k"), some(&winner));
        let entry = run.db().entry("k").expect("read").expect("the winner's");
        assert_eq!((entry.version, entry.mod_revision), (version + 1, won));
        run.upkeep();
    }
    check(
        "cas_exactly_one_winner",
        History::All,
        |run| {
            for at in 0..24 {
                round(run);
                if at % 9 == 8 {
                    run.reopen();
                }
            }
        },
        |found, ()| {
            let entry = found.db.entry("k")?;
            let version = entry.as_ref().map_or(0, |entry| entry.version);
            same!(version, found.revision.get() - 1, "swaps that won");
            // Those whose answer the crash took try again with what they knew.
            let actual = entry.map(|entry| entry.mod_revision);
            for stale in (1..found.revision.get()).rev().take(3) {
                let again = found.db.compare_and_swap(
                    "k",
                    Expected::Revision(Revision::new(stale)),
                    "stale",
                );
                refused!(again, Error::CompareFailed { actual: a, .. } if a == actual);
            }
            found.run_on(|run| (0..2).for_each(|_| round(run)))
        },
    );
}

/// A transaction conflicts when what it read was changed, and only then; nothing of it is kept.
#[test]
fn read_write_conflict_detected() {
    fn round(run: &mut Run) {
        let name = run.model.revision().to_string();
        let mut tx = run.db().begin();
        let read = tx_value(&mut tx, "read").expect("read");
        assert_eq!(read, run.value("read"));
        tx.put("written", &name).expect("staged");
        let snapshot = tx.snapshot_revision();
        let changed_at = run.put("read", &name);
        run.upkeep();
        let error = run.refused(|_| tx.commit());
        assert!(
            matches!(&error, Error::Conflict { revision, snapshot: at, what }
                if *revision == changed_at && *at == snapshot && what.contains("read")),
            "{error}"
        );
        let mut tx = run.db().begin();
        tx.get("read").expect("read");
        tx.put("written/well", &name).expect("staged");
        run.put("unrelated", &name);
        run.commit(tx, &[put("written/well", &name)]);
    }
    check(
        "read_write_conflict_detected",
        History::All,
        |run| {
            for at in 0..12 {
                round(run);
                if at % 5 == 4 {
                    run.reopen();
                }
            }
        },
        |found, ()| {
            same!(
                found.value("written")?,
                None,
                "what only refused transactions wrote"
            );
            for key in ["read", "unrelated", "written/well"] {
                same!(found.value(key)?, found.expected_value(key), "{key}");
            }
            found.run_on(|run| (0..2).for_each(|_| round(run)))
        },
    );
}

/// Under snapshot isolation the first committer of a key wins, read or not; under serializable a
/// conflict needs that the loser had read it.
#[test]
fn write_write_conflict_detected() {
    fn round(run: &mut Run) {
        for isolation in [Isolation::Snapshot, Isolation::Serializable] {
            let name = run.model.revision();
            let (mut first, mut second) = (
                run.db().begin_with(isolation),
                run.db().begin_with(isolation),
            );
            for (tx, who) in [(&mut first, "first"), (&mut second, "second")] {
                if isolation == Isolation::Serializable {
                    tx.get("k").expect("read");
                }
                tx.put("k", format!("{who} {name}")).expect("staged");
            }
            run.commit(first, &[put("k", format!("first {name}"))]);
            run.upkeep();
            let error = run.refused(|_| second.commit());
            assert!(is_conflict(&error), "{isolation:?}: {error}");
            assert_eq!(run.value("k"), some(format!("first {name}")));
        }
    }
    check(
        "write_write_conflict_detected",
        History::All,
        |run| (0..12).for_each(|_| round(run)),
        |found, ()| {
            let value = found.value("k")?;
            same!(value, found.expected_value("k"), "the key");
            holds!(
                value.is_none_or(|value| value.starts_with(b"first")),
                "a loser's write"
            );
            found.run_on(|run| (0..2).for_each(|_| round(run)))
        },
    );
}

/// Two blind writes both succeed; the last to commit holds, whichever began first, and both count.
#[test]
fn blind_write_both_succeed_last_wins() {
    fn round(run: &mut Run) {
        let (mut first, mut second) = (run.db().begin(), run.db().begin());
        first.put("k", "began first").expect("staged");
        second.put("k", "began second").expect("staged");
        run.commit(second, &[put("k", "began second")]);
        run.upkeep();
        run.commit(first, &[put("k", "began first")]);
        assert_eq!(run.value("k"), some("began first"), "the last to commit");
    }
    check(
        "blind_write_both_succeed_last_wins",
        History::All,
        |run| (0..15).for_each(|_| round(run)),
        |found, ()| {
            let Some(entry) = found.db.entry("k")? else {
                same!(found.revision, 1, "the revision without the key");
                return Ok(());
            };
            same!(entry.version, found.revision.get() - 1, "writes that count");
            // The second to begin is the first of each pair to commit.
            let last = if entry.version % 2 == 1 {
                "began second"
            } else {
                "began first"
            };
            same!(
                *entry.value,
                *last.as_bytes(),
                "the last write, of version {}",
                entry.version
            );
            found.run_on(|run| (0..2).for_each(|_| round(run)))
        },
    );
}

/// A compare-and-swap in a transaction relies on its key's revision at commit, and on nothing else.
#[test]
fn cas_does_not_add_to_read_set() {
    fn round(run: &mut Run) {
        // The key changes after the snapshot, to just the revision that is expected at commit.
        let mut tx = run.db().begin();
        let expected = run.model.revision() + 1;
        tx.compare_and_swap("k", Expected::Revision(expected), "mine")
            .expect("staged");
        assert_eq!(run.put("k", "theirs"), expected);
        run.upkeep();
        run.commit(tx, &[put("k", "mine")]);
        // Another key changes.
        let mut tx = run.db().begin();
        let held = run.model.revision();
        tx.compare_and_swap("k", Expected::Revision(held), "again")
            .expect("staged");
        run.put("other", held.to_string());
        let swapped = run.commit(tx, &[put("k", "again")]);
        // And it does check its own.
        let mut tx = run.db().begin();
        tx.put("beside", "x").expect("staged");
        tx.compare_and_swap("k", Expected::Revision(held), "late")
            .expect("staged");
        let error = run.refused(|_| tx.commit());
        assert!(
            matches!(error, Error::CompareFailed { actual, .. } if actual == Some(swapped)),
            "{error}"
        );
    }
    check(
        "cas_does_not_add_to_read_set",
        History::All,
        |run| (0..12).for_each(|_| round(run)),
        |found, ()| {
            same!(
                found.value("beside")?,
                None,
                "written beside a swap that was refused"
            );
            same!(found.value("k")?, found.expected_value("k"), "the key");
            // Four revisions a round: theirs, mine, other, again.
            let expected = match (found.revision.get() - 1) % 4 {
                0 if found.revision == 1 => None,
                1 => some("theirs"),
                2 | 3 => some("mine"),
                _ => some("again"),
            };
            same!(found.value("k")?, expected, "the key, by its revision");
            found.run_on(|run| (0..2).for_each(|_| round(run)))
        },
    );
}

/// To expect 0 is to expect a key that is not there: it succeeds once, and after a crash only
/// where the first time was lost.
#[test]
fn version_0_means_never_existed() {
    const KEYS: usize = 24;
    let create = |run: &mut Run, key: &str| {
        let is_there = run.model.get(key.as_bytes(), run.model.revision()).cloned();
        if let Some(entry) = is_there {
            let error = run.refused(|db| db.compare_and_swap(key, Expected::Absent, "again"));
            assert!(
                matches!(error, Error::CompareFailed { actual, .. } if actual == Some(entry.mod_revision)),
                "{error}"
            );
            return;
        }
        // One that is not there has no other revision either.
        let newest = run.model.revision();
        for other in [Revision::FIRST, newest, newest + 1] {
            let error =
                run.refused(|db| db.compare_and_swap(key, Expected::Revision(other), "other"));
            assert!(
                matches!(error, Error::CompareFailed { actual: None, .. }),
                "{error}"
            );
        }
        let mut tx = run.db().begin();
        tx.expect(key, Expected::Absent).expect("staged");
        tx.put(key, "created").expect("staged");
        run.commit(tx, &[put(key, "created")]);
        let entry = run.db().entry(key).expect("read").expect("it was created");
        assert_eq!(
            (entry.version, entry.create_revision),
            (1, entry.mod_revision)
        );
    };
    check(
        "version_0_means_never_existed",
        History::All,
        |run| {
            for at in 0..KEYS {
                create(run, &format!("k{at:02}"));
                create(run, &format!("k{:02}", at / 2));
                run.upkeep();
            }
        },
        |found, ()| {
            for at in 0..KEYS {
                let key = format!("k{at:02}");
                let history = found.db.history(&key)?.len();
                let is_there = (at as u64) < found.revision.get() - 1;
                same!(history, usize::from(is_there), "changes of {key}");
                same!(found.value(&key)?.is_some(), is_there, "{key}");
            }
            found.run_on(|run| (0..KEYS).for_each(|at| create(run, &format!("k{at:02}"))))
        },
    );
}

/// A deliberate difference from the reference, as in etcd: both compare as 0. The history tells them
/// apart, also after a crash, and for a tombstone that was flushed and merged.
#[test]
fn tombstone_vs_never_existed() {
    fn round(run: &mut Run) {
        let key = format!("deleted{}", run.model.revision());
        run.put(&key, "1");
        run.upkeep();
        run.delete(&key);
        run.upkeep();
    }
    check(
        "tombstone_vs_never_existed",
        History::All,
        |run| (0..14).for_each(|_| round(run)),
        |found, ()| {
            for turn in 0..2 {
                for round in 0..14 {
                    let key = format!("deleted{}", 1 + 2 * round);
                    let history = found.db.history(&key)?;
                    let changes = found.revision.get() - 1;
                    let expected = changes.saturating_sub(2 * round).min(2);
                    same!(
                        history.len() as u64,
                        expected,
                        "changes of {key}, turn {turn}"
                    );
                    let is_deleted = history.first().is_some_and(|newest| newest.entry.is_none());
                    same!(
                        is_deleted,
                        expected == 2,
                        "whether {key} was deleted, turn {turn}"
                    );
                    same!(
                        found.value(&key)?.is_some(),
                        expected == 1,
                        "{key}, turn {turn}"
                    );
                    if expected != 1 {
                        let swap = found.db.compare_and_swap(
                            &key,
                            Expected::Revision(found.revision),
                            "x",
                        );
                        refused!(swap, Error::CompareFailed { actual: None, .. });
                    }
                }
                same!(
                    found.db.history("never")?,
                    [],
                    "changes of a key that never was"
                );
                let swap =
                    found
                        .db
                        .compare_and_swap("never", Expected::Revision(found.revision), "x");
                refused!(swap, Error::CompareFailed { actual: None, .. });
                found.stir()?;
            }
            let mut next = found.revision;
            for key in ["deleted1", "never"] {
                if found.value(key)?.is_none() {
                    next += 1;
                    same!(
                        found.db.compare_and_swap(key, Expected::Absent, "2")?,
                        next,
                        "a swap of {key} from 0"
                    );
                    let entry = found.db.entry(key)?.ok_or("it was just written")?;
                    same!(
                        (entry.version, entry.create_revision),
                        (1, next),
                        "{key} begins anew"
                    );
                }
            }
            Ok(())
        },
    );
}

/// Having read that a key is gone is a read: who puts it meanwhile, or puts and deletes it again,
/// conflicts; also for a tombstone from before the crash.
#[test]
fn tombstone_read_causes_conflict() {
    fn read_absent(run: &Run) -> Transaction {
        let mut tx = run.db().begin();
        assert_eq!(tx_value(&mut tx, "k").expect("read"), None);
        tx.put("result", "k was absent").expect("staged");
        tx
    }
    fn round(run: &mut Run) {
        if run.value("k").is_none() {
            run.put("k", "1");
        }
        run.delete("k");
        run.upkeep();
        let tx = read_absent(run);
        run.put("k", "2");
        let error = run.refused(|_| tx.commit());
        assert!(is_conflict(&error), "{error}");
        // A key that was read and is deleted meanwhile.
        let mut tx = run.db().begin();
        assert!(tx_value(&mut tx, "k").expect("read").is_some());
        tx.put("result", "k was there").expect("staged");
        run.delete("k");
        run.upkeep();
        let error = run.refused(|_| tx.commit());
        assert!(is_conflict(&error), "{error}");
        // Put and deleted again: absent as before, but not unchanged.
        let tx = read_absent(run);
        run.put("k", "3");
        run.delete("k");
        run.upkeep();
        let error = run.refused(|_| tx.commit());
        assert!(is_conflict(&error), "{error}");
        // And unchanged it is no conflict.
        let mut tx = read_absent(run);
        tx.put("well", "k was absent").expect("staged");
        tx.delete("result").expect("staged");
        run.commit(tx, &[put("well", "k was absent")]);
    }
    check(
        "tombstone_read_causes_conflict",
        History::None,
        |run| (0..7).for_each(|_| round(run)),
        |found, ()| {
            same!(
                found.value("result")?,
                None,
                "what only refused transactions wrote"
            );
            same!(found.value("k")?, found.expected_value("k"), "the key");
            if found.value("k")?.is_none() {
                // A tombstone (or nothing) that was read before the crash's recovery moved it.
                let mut tx = found.db.begin();
                tx.get("k")?;
                tx.put("result", "k was absent")?;
                found.run_on(|run| {
                    run.put("k", "after");
                })?;
                refused!(tx.commit(), Error::Conflict { .. });
            }
            Ok(())
        },
    );
}

/// Two increments from the same value: the second is refused, and tries again. The counter is the
/// number of increments that were acknowledged, or one more.
#[test]
fn lost_update_prevented_counter_increment() {
    fn increment(tx: &mut Transaction, key: &str) -> u64 {
        let next = number(tx_value(tx, key).expect("read")) + 1;
        tx.put(key, next.to_string()).expect("staged");
        next
    }
    fn round(run: &mut Run) {
        for (isolation, key) in [
            (Isolation::Serializable, "ser"),
            (Isolation::Snapshot, "snap"),
        ] {
            let (mut first, mut second) = (
                run.db().begin_with(isolation),
                run.db().begin_with(isolation),
            );
            let next = increment(&mut first, key);
            assert_eq!(increment(&mut second, key), next);
            run.commit(first, &[put(key, next.to_string())]);
            run.upkeep();
            let error = run.refused(|_| second.commit());
            assert!(is_conflict(&error), "{isolation:?}: {error}");
            assert_eq!(number(run.value(key)), next, "{isolation:?}");
        }
    }
    check(
        "lost_update_prevented_counter_increment",
        History::All,
        |run| {
            for at in 0..14 {
                round(run);
                if at % 5 == 4 {
                    run.reopen();
                }
            }
        },
        |found, ()| {
            let (ser, snap) = (number(found.value("ser")?), number(found.value("snap")?));
            let sum = ser + snap;
            let acknowledged = found.acknowledged.get();
            holds!(
                (acknowledged - 1..=acknowledged).contains(&sum),
                "the counters have {sum} increments, {} were acknowledged",
                acknowledged - 1
            );
            same!(sum, found.revision.get() - 1, "increments, by the revision");
            found.run_on(|run| (0..2).for_each(|_| round(run)))
        },
    );
}
