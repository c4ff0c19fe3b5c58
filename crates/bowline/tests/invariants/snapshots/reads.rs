//! Snapshots do not change, show one moment, and nothing that is not committed.

use bowline::{Error, Expected, History, Revision, Snapshot};

use super::{delete, put, some};
use crate::harness::{Outcome, Run, check, holds, number, same, tx_range, tx_value, value};
use crate::support::Contents;

fn snapshot_value(snapshot: &Snapshot, key: &str) -> Option<Vec<u8>> {
    let value = snapshot.get(key).expect("it is read");
    value.map(|value| value.to_vec())
}

/// A snapshot and a transaction give the same value again, whatever is written, flushed and merged
/// meanwhile; also for a snapshot of what was recovered, and for a revision of the past.
#[test]
fn repeated_reads_return_same_value() {
    fn round(run: &mut Run) {
        let before = run.model.get(b"k", run.model.revision()).cloned();
        let before = before.map(|entry| entry.value);
        let (snapshot, mut tx) = (run.db().snapshot(), run.db().begin());
        let past = snapshot.revision();
        for at in 0..4 {
            if at == 2 && run.value("k").is_some() {
                run.delete("k");
            } else {
                run.put("k", format!("{past}.{at}"));
            }
            run.upkeep();
            assert_eq!(snapshot_value(&snapshot, "k"), before, "a snapshot");
            assert_eq!(
                tx_value(&mut tx, "k").expect("read"),
                before,
                "a transaction"
            );
            let again = run.db().snapshot_at(past).expect("it is kept");
            assert_eq!(snapshot_value(&again, "k"), before, "the past");
        }
    }
    check(
        "repeated_reads_return_same_value",
        History::All,
        |run| {
            for at in 0..8 {
                round(run);
                if at % 3 == 2 {
                    run.reopen();
                }
            }
        },
        |found, ()| {
            let (expected, at) = (found.expected_value("k"), found.revision);
            same!(found.value("k")?, expected, "the recovered value");
            found.run_on(round)?;
            let again = found.db.snapshot_at(at)?;
            same!(
                snapshot_value(&again, "k"),
                expected,
                "the recovered value, read again"
            );
            Ok(())
        },
    );
}

/// The whole of a snapshot stays: what others change, delete, add and merge away is not seen.
#[test]
fn snapshot_ignores_concurrent_writes() {
    fn round(run: &mut Run) {
        let snapshot = run.db().snapshot();
        let revision = run.model.revision();
        let before = Contents::of_model(&run.model, revision);
        run.put("changed", revision.to_string());
        run.put(format!("added{revision}"), "x");
        if run.value("deleted").is_some() {
            run.delete("deleted");
        } else {
            run.put("deleted", "not yet");
        }
        run.upkeep();
        let found = Contents::of_snapshot(&snapshot).expect("it is read");
        assert_eq!(
            found.difference(&before),
            None,
            "the snapshot of {revision} changed"
        );
        assert_eq!(snapshot.revision(), revision);
    }
    check(
        "snapshot_ignores_concurrent_writes",
        History::None,
        |run| {
            for at in 0..12 {
                round(run);
                if at % 5 == 4 {
                    run.reopen();
                }
            }
        },
        |found, ()| {
            found.is_as_the_model()?;
            found.run_on(|run| (0..3).for_each(|_| round(run)))
        },
    );
}

/// Five keys change together; no snapshot, held, new or of the past, shows them apart.
#[test]
fn multi_key_snapshot_consistency() {
    const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];
    fn read(snapshot: &Snapshot) -> Vec<u64> {
        let read = |key: &&str| number(snapshot_value(snapshot, key));
        KEYS.iter().map(read).collect()
    }
    fn round(run: &mut Run) {
        let held = run.db().snapshot();
        let first = number(snapshot_value(&held, KEYS[0]));
        let next = run.model.revision().to_string();
        run.transact(&KEYS.map(|key| put(key, &next)));
        let rest = KEYS[1..]
            .iter()
            .map(|key| number(snapshot_value(&held, key)));
        assert!(
            rest.clone().all(|value| value == first),
            "torn: {first}, {rest:?}"
        );
        run.upkeep();
        assert_eq!(
            read(&run.db().snapshot()),
            [run.model.revision().get() - 1; 5]
        );
    }
    check(
        "multi_key_snapshot_consistency",
        History::All,
        |run| (0..20).for_each(|_| round(run)),
        |found, ()| {
            for revision in 2..=found.revision.get() {
                let values = read(&found.db.snapshot_at(Revision::new(revision))?);
                same!(values, [revision - 1; 5], "the keys as of {revision}");
            }
            found.run_on(|run| (0..2).for_each(|_| round(run)))
        },
    );
}

/// What a transaction has staged is seen by nobody, is in no table that is flushed meanwhile, and
/// is gone when the process is: until its commit was issued, no image has any of it.
#[test]
fn uncommitted_writes_invisible() {
    fn round(run: &mut Run) {
        let name = run.model.revision().to_string();
        let staged = format!("staged/{name}");
        run.put("k", &name);
        let (mut tx, mut other) = (run.db().begin(), run.db().begin());
        tx.put("k", "staged").expect("staged");
        tx.put(&staged, "x").expect("staged");
        for _ in 0..2 {
            assert_eq!(
                run.value("k"),
                some(&name),
                "another reads the staged value"
            );
            assert_eq!(tx_value(&mut other, "k").expect("read"), some(&name));
            assert_eq!(run.value(&staged), None);
            let listed = run.db().range("staged/".."staged0").expect("read");
            assert!(
                listed
                    .flatten()
                    .all(|entry| *entry.key != *staged.as_bytes())
            );
            run.put("beside", &name);
            run.upkeep();
        }
        run.commit(tx, &[put("k", "staged"), put(&staged, "x")]);
        assert_eq!(run.value("k"), some("staged"));
        assert_eq!(
            tx_value(&mut other, "k").expect("read"),
            some(&name),
            "an older snapshot sees it"
        );
    }
    check(
        "uncommitted_writes_invisible",
        History::All,
        |run| {
            (0..10).for_each(|_| round(run));
            let mut tx = run.db().begin();
            tx.put("k", "never").expect("staged");
            tx.put("never", "never").expect("staged");
            run.put("beside", "the last commit before the end");
            run.db().flush().expect("flushed");
        },
        |found, ()| {
            // Four revisions a round: put, beside, beside, commit.
            let committed = (found.revision.get() - 1) / 4;
            let staged = found.db.range("staged/".."staged0")?.count() as u64;
            same!(staged, committed.min(10), "committed transactions");
            let value = found.value("k")?;
            same!(
                value,
                found.expected_value("k"),
                "a key with a staged write"
            );
            holds!(value != some("never"), "a write that was never committed");
            same!(
                found.value("never")?,
                None,
                "a key that was never committed"
            );
            found.run_on(round)
        },
    );
}

/// What was aborted, in any way, was never seen: not meanwhile, not after, not after a crash.
#[test]
fn aborted_writes_never_visible() {
    fn never_visible(run: &Run) -> Outcome {
        for entry in run.db().range(..)? {
            let entry = entry?;
            holds!(*entry.value != *b"aborted", "{entry:?}");
        }
        for version in run.db().history("k")? {
            let value = version.entry.map(|entry| entry.value.to_vec());
            holds!(
                value.is_some() && value != some("aborted"),
                "{value:?} in the history"
            );
        }
        Ok(())
    }
    fn round(run: &mut Run) {
        let name = run.model.revision().to_string();
        run.put("k", &name);
        for way in 0..4 {
            let mut tx = run.db().begin();
            tx.get("k").expect("read");
            tx.put("k", "aborted").expect("staged");
            tx.put(format!("x{way}"), "aborted").expect("staged");
            never_visible(run).expect("nothing is seen before the abort");
            match way {
                0 => tx.rollback(),
                1 => drop(tx),
                2 => {
                    tx.delete("k").expect("staged");
                    tx.expect("k", Expected::Absent).expect("staged");
                    let error = run.refused(|_| tx.commit());
                    assert!(matches!(error, Error::CompareFailed { .. }), "{error}");
                }
                _ => {
                    run.put("k", format!("{name}+"));
                    let error = run.refused(|_| tx.commit());
                    assert!(matches!(error, Error::Conflict { .. }), "{error}");
                }
            }
            never_visible(run).expect("nothing is seen after the abort");
            run.upkeep();
        }
    }
    check(
        "aborted_writes_never_visible",
        History::All,
        |run| (0..8).for_each(|_| round(run)),
        |found, ()| {
            same!(found.value("k")?, found.expected_value("k"), "the key");
            for entry in found.db.range(..)? {
                let entry = entry?;
                holds!(*entry.value != *b"aborted", "{entry:?}");
            }
            found.run_on(round)
        },
    );
}

/// A transaction that has read one key reads the others of the same moment; when it then writes, it
/// conflicts with who changed them.
#[test]
fn multi_key_reads_see_consistent_snapshot() {
    fn round(run: &mut Run) {
        let both = |name: &str| [put("a", name), put("b", name)];
        let (old, new) = (
            run.model.revision().to_string(),
            format!("{}+", run.model.revision()),
        );
        run.transact(&both(&old));
        let mut tx = run.db().begin();
        assert_eq!(tx_value(&mut tx, "a").expect("read"), some(&old));
        run.transact(&both(&new));
        run.upkeep();
        assert_eq!(
            tx_value(&mut tx, "b").expect("read"),
            some(&old),
            "the b of another moment than the a"
        );
        let pair: Vec<_> = tx_range(&mut tx)
            .expect("read")
            .into_iter()
            .map(|(_, value)| value)
            .collect();
        assert_eq!(pair, [old.as_bytes(), old.as_bytes()]);
        tx.put("c", "x").expect("staged");
        let error = run.refused(|_| tx.commit());
        assert!(matches!(error, Error::Conflict { .. }), "{error}");
        let mut tx = run.db().begin();
        assert_eq!(tx_value(&mut tx, "a").expect("read"), some(&new));
        assert_eq!(tx_value(&mut tx, "b").expect("read"), some(&new));
    }
    check(
        "multi_key_reads_see_consistent_snapshot",
        History::All,
        |run| {
            for at in 0..10 {
                round(run);
                if at % 4 == 3 {
                    run.reopen();
                }
            }
        },
        |found, ()| {
            let (a, b) = (value(&found.db, "a")?, value(&found.db, "b")?);
            same!(a, b, "two keys that change together");
            same!(a, found.expected_value("a"), "their value");
            found.run_on(round)
        },
    );
}

/// Puts and deletions in one transaction: all its keys at once, or none.
#[test]
fn no_partial_writes_observable() {
    const KEYS: usize = 30;
    fn whole(entries: bowline::RangeIter) -> Outcome {
        let mut revisions = Vec::new();
        for entry in entries {
            revisions.push(entry?.mod_revision);
        }
        holds!(
            [0, KEYS].contains(&revisions.len()),
            "{} of {KEYS} keys",
            revisions.len()
        );
        holds!(
            revisions.windows(2).all(|pair| pair[0] == pair[1]),
            "revisions {revisions:?}"
        );
        Ok(())
    }
    fn round(run: &mut Run) {
        let name = run.model.revision().to_string();
        let key = |at| format!("k{at:02}");
        let held = run.db().snapshot();
        let changes: Vec<_> = (0..KEYS).map(|at| put(key(at), name.repeat(12))).collect();
        run.transact(&changes);
        whole(run.db().range(..).expect("read")).expect("after the puts");
        run.upkeep();
        let deletions: Vec<_> = (0..KEYS).map(|at| delete(key(at))).collect();
        run.step(&deletions, |db| {
            db.delete_range(..)?;
            Ok(db.revision())
        });
        whole(run.db().range(..).expect("read")).expect("after the deletion");
        run.transact(&changes);
        whole(held.range(..).expect("read")).expect("a held snapshot");
    }
    check(
        "no_partial_writes_observable",
        History::All,
        |run| (0..7).for_each(|_| round(run)),
        |found, ()| {
            for revision in 1..=found.revision.get() {
                let snapshot = found.db.snapshot_at(Revision::new(revision))?;
                whole(snapshot.range(..)?).map_err(|why| format!("as of {revision}: {why}"))?;
            }
            let expected = found.run.model.range(.., found.revision).count();
            same!(found.db.range(..)?.count(), expected, "how many keys");
            found.run_on(round)?;
            let again = found.open(&found.disk.after_kill())?;
            whole(again.range(..)?).map_err(|why| format!("recovered again: {why}").into())
        },
    );
}
