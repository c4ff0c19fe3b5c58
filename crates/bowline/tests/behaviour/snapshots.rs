//! The invariants of the transactional reference that concern snapshots, reading one's own writes
//! and conflicts; each test has its invariant's name. The others are in `anomalies`.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bowline::{Db, Error, Isolation, Result};

use crate::support::{Disk, assert_error, contents, number, some, text, with};

// --- snapshots ---

#[test]
fn repeated_reads_return_same_value() -> Result<()> {
    let db = with(&[("k", "0")])?;
    let (snapshot, tx) = (db.snapshot(), db.begin());
    for round in 1..30 {
        db.put("k", round.to_string())?;
        db.put(format!("new{round}"), "x")?;
        if round % 10 == 0 {
            db.compact_tables()?;
        }
        assert_eq!(text(snapshot.get("k")?), some("0"));
        assert_eq!(text(tx.get("k")?), some("0"));
        assert_eq!(snapshot.range(..)?.count(), 1);
        assert_eq!(tx.range(..)?.count(), 1);
        assert_eq!(tx.entry("k")?.expect("it is there").version, 1);
    }
    Ok(())
}

#[test]
fn snapshot_ignores_concurrent_writes() -> Result<()> {
    let db = with(&[("kept", "1"), ("changed", "1"), ("deleted", "1")])?;
    let snapshot = db.snapshot();
    thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<()> {
            db.put("changed", "2")?;
            db.delete("deleted")?;
            db.put("added", "1")?;
            Ok(())
        });
        writer.join().expect("no panic")
    })?;
    let before = [("changed", "1"), ("deleted", "1"), ("kept", "1")];
    let before = before.map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()));
    assert_eq!(contents(&snapshot), before);
    assert_eq!(snapshot.get("added")?, None);
    assert_eq!(db.range(..)?.count(), 3);
    Ok(())
}

#[test]
fn multi_key_snapshot_consistency() -> Result<()> {
    let db = Disk::new().open(Db::builder().memtable_bytes(64 << 10));
    let keys = ["a", "b", "c", "d", "e"];
    db.transact(|tx| keys.iter().try_for_each(|key| tx.put(key, [0; 8])))?;
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let snapshot = db.snapshot();
                    let read = |key| number(snapshot.get(key).expect("a read"));
                    let seen = keys.map(read);
                    assert!(seen.iter().all(|value| *value == seen[0]), "torn: {seen:?}");
                }
            });
        }
        for value in 1..2_000u64 {
            let put = |tx: &bowline::Transaction| {
                keys.iter()
                    .try_for_each(|key| tx.put(key, value.to_be_bytes()))
            };
            db.transact(put)?;
        }
        is_done.store(true, Ordering::Relaxed);
        Ok(())
    })
}

#[test]
fn uncommitted_writes_invisible() -> Result<()> {
    let db = with(&[("k", "old")])?;
    let tx = db.begin();
    tx.put("k", "new")?;
    tx.put("added", "x")?;
    tx.delete_range("a".."b")?;
    let other = db.begin();
    for _ in 0..2 {
        assert_eq!(text(db.get("k")?), some("old"));
        assert_eq!(text(other.get("k")?), some("old"));
        assert_eq!(db.get("added")?, None);
        assert_eq!(db.range(..)?.count(), 1);
        assert_eq!(db.snapshot().range(..)?.count(), 1);
        db.flush()?;
    }
    tx.put("added", "y")?;
    tx.commit()?;
    assert_eq!(text(db.get("added")?), some("y"));
    assert_eq!(
        text(other.get("k")?),
        some("old"),
        "nor does an older snapshot see the commit"
    );
    Ok(())
}

#[test]
fn aborted_writes_never_visible() -> Result<()> {
    let db = with(&[("k", "old")])?;
    let before = db.revision();
    for round in 0..10 {
        let tx = db.begin();
        tx.put("k", "new")?;
        tx.put(format!("x{round}"), "x")?;
        tx.delete("k")?;
        if round % 2 == 0 {
            tx.rollback();
        } else {
            drop(tx);
        }
        let failed = db.transact(|tx| -> Result<()> {
            tx.put("k", "new")?;
            Err(Error::EmptyKey)
        });
        assert_error!(failed, Error::EmptyKey);
    }
    db.flush()?;
    assert_eq!(contents(&db.snapshot()), [(b"k".to_vec(), b"old".to_vec())]);
    assert_eq!(db.revision(), before);
    assert_eq!(db.history("k")?.len(), 1);
    Ok(())
}

// --- reading one's own writes ---

#[test]
fn sees_own_puts() -> Result<()> {
    let db = with(&[])?;
    let tx = db.begin();
    tx.put("k", "v")?;
    assert_eq!(text(tx.get("k")?), some("v"));
    let entry = tx.entry("k")?.expect("its own put");
    assert_eq!(
        (entry.create_revision, entry.mod_revision, entry.version),
        (0, 0, 0)
    );
    let listed: Result<Vec<_>> = tx.range(..)?.collect();
    assert_eq!(listed?, [entry]);
    Ok(())
}

#[test]
fn sees_own_overwrites() -> Result<()> {
    let db = with(&[("k", "0")])?;
    let tx = db.begin();
    assert_eq!(text(tx.get("k")?), some("0"));
    for value in ["1", "2", "3"] {
        tx.put("k", value)?;
        assert_eq!(text(tx.get("k")?), some(value));
        let entry = tx.entry("k")?.expect("it is there");
        assert_eq!(entry.value, value.as_bytes());
        assert_eq!(
            (entry.mod_revision, entry.version),
            (2, 1),
            "those of before"
        );
    }
    let committed = tx.commit()?;
    let entry = db.entry("k")?.expect("it is there");
    assert_eq!(
        (entry.mod_revision, entry.version),
        (committed.revision, 2),
        "one write, not 3"
    );
    Ok(())
}

#[test]
fn sees_own_deletes() -> Result<()> {
    let db = with(&[("k", "v"), ("l", "v")])?;
    let tx = db.begin();
    assert!(tx.delete("k")?);
    assert!(!tx.delete("k")?, "gone already");
    assert_eq!(tx.get("k")?, None);
    assert_eq!(tx.entry("k")?, None);
    assert_eq!(tx.range(..)?.count(), 1);
    assert_eq!(tx.delete_range(..)?, 1);
    assert_eq!(tx.range(..)?.rev().count(), 0);
    assert_eq!(tx.commit()?.deleted, 2);
    assert_eq!(db.range(..)?.count(), 0);
    Ok(())
}

#[test]
fn complex_ryw_sequence() -> Result<()> {
    let db = with(&[("a", "0"), ("b", "0"), ("c", "0")])?;
    let tx = db.begin();
    tx.put("b", "1")?;
    tx.delete("a")?;
    tx.put("d", "1")?;
    tx.put("a", "1")?;
    tx.delete("d")?;
    tx.delete("c")?;
    tx.put("c", "2")?;
    tx.delete("b")?;
    tx.put("bb", "1")?;
    let expected = [("a", "1"), ("bb", "1"), ("c", "2")];
    let found: Result<Vec<_>> = tx
        .range(..)?
        .map(|e| e.map(|e| (text(Some(e.key)), text(Some(e.value)))))
        .collect();
    assert_eq!(
        found?,
        expected.map(|(key, value)| (some(key), some(value)))
    );
    for (key, value) in [("a", some("1")), ("b", None), ("c", some("2")), ("d", None)] {
        assert_eq!(text(tx.get(key)?), value, "{key}");
    }
    tx.commit()?;
    let expected =
        expected.map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()));
    assert_eq!(contents(&db.snapshot()), expected);
    assert_eq!(
        db.history("d")?,
        [],
        "put and deleted in one transaction: never there"
    );
    Ok(())
}

// --- winners and conflicts ---

/// `COUNT` threads run `attempt` at once; how many succeeded.
fn winners(
    attempt: impl Fn(usize) -> Result<()> + Sync,
    lost: impl Fn(&Error) -> bool + Sync,
) -> usize {
    const COUNT: usize = 12;
    let start = Barrier::new(COUNT);
    thread::scope(|scope| {
        let run = |number| {
            let (start, attempt, lost) = (&start, &attempt, &lost);
            move || {
                start.wait();
                match attempt(number) {
                    Ok(()) => 1,
                    Err(error) => {
                        assert!(lost(&error), "{error:?}");
                        0
                    }
                }
            }
        };
        let threads: Vec<_> = (0..COUNT).map(|number| scope.spawn(run(number))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .sum()
    })
}

#[test]
fn exactly_one_winner() -> Result<()> {
    let db = Disk::new().open(Db::builder());
    for round in 0..30 {
        let key = format!("lock{round}");
        // All transactions begin before the first one commits.
        let all_read = Barrier::new(12);
        let attempt = |number: usize| {
            let tx = db.begin();
            assert_eq!(tx.get(&key)?, None);
            all_read.wait();
            tx.put(&key, number.to_string())?;
            tx.commit().map(drop)
        };
        let won = winners(attempt, |error| matches!(error, Error::Conflict { .. }));
        assert_eq!(won, 1, "round {round}");
        assert_eq!(db.entry(&key)?.expect("the winner's").version, 1);
    }
    Ok(())
}

#[test]
fn cas_exactly_one_winner() -> Result<()> {
    let db = Disk::new().open(Db::builder());
    let mut revision = 0;
    for round in 0..60 {
        let attempt = |number: usize| {
            db.compare_and_swap("k", revision, format!("{number}"))
                .map(drop)
        };
        let lost = |error: &Error| matches!(error, Error::CompareFailed { actual, .. } if *actual > revision);
        assert_eq!(winners(attempt, lost), 1, "round {round}");
        let entry = db.entry("k")?.expect("the winner's");
        assert_eq!(entry.version, round + 1);
        revision = entry.mod_revision;
    }
    Ok(())
}

#[test]
fn read_write_conflict_detected() -> Result<()> {
    let db = with(&[("read", "1"), ("unrelated", "1")])?;
    let tx = db.begin();
    assert_eq!(text(tx.get("read")?), some("1"));
    tx.put("written", "1")?;
    let changed_at = db.put("read", "2")?;
    let snapshot = changed_at - 1;
    assert_error!(tx.commit(), Error::Conflict { revision, snapshot: at, what }
        if revision == changed_at && at == snapshot && what.contains("read"));
    assert_eq!(db.get("written")?, None);

    let tx = db.begin();
    tx.get("read")?;
    tx.put("written", "1")?;
    db.put("unrelated", "2")?;
    tx.commit()?;
    Ok(())
}

#[test]
fn write_write_conflict_detected() -> Result<()> {
    let db = with(&[("k", "0")])?;
    // Snapshot isolation: the first committer wins, read or not.
    let (first, second) = (
        db.begin_with(Isolation::Snapshot),
        db.begin_with(Isolation::Snapshot),
    );
    first.put("k", "1")?;
    second.put("k", "2")?;
    first.commit()?;
    assert_error!(second.commit(), Error::Conflict { .. });
    // Serializable: a conflict as soon as the loser has read what it overwrites.
    let (first, second) = (db.begin(), db.begin());
    for tx in [&first, &second] {
        tx.get("k")?;
        tx.put("k", "3")?;
    }
    second.commit()?;
    assert_error!(first.commit(), Error::Conflict { .. });
    assert_eq!(text(db.get("k")?), some("3"));
    Ok(())
}

#[test]
fn blind_write_both_succeed_last_wins() -> Result<()> {
    let db = with(&[("k", "0")])?;
    let (first, second) = (db.begin(), db.begin());
    first.put("k", "first")?;
    second.put("k", "second")?;
    assert!(second.commit()?.revision < first.commit()?.revision);
    assert_eq!(
        text(db.get("k")?),
        some("first"),
        "the last to commit, not to begin"
    );
    assert_eq!(db.entry("k")?.expect("it is there").version, 3);
    Ok(())
}

#[test]
fn cas_does_not_add_to_read_set() -> Result<()> {
    let db = with(&[("k", "0")])?;
    // The key changes after the snapshot, to just the revision that is expected at commit.
    let tx = db.begin();
    let expected = db.revision() + 1;
    tx.compare_and_swap("k", expected, "mine")?;
    assert_eq!(db.put("k", "theirs")?, expected);
    tx.commit()?;
    assert_eq!(text(db.get("k")?), some("mine"));

    // Another key changes: no business of a compare-and-swap.
    let tx = db.begin();
    tx.compare_and_swap("new", 0, "v")?;
    db.put("other", "x")?;
    tx.commit()?;

    // And it does check its own.
    let tx = db.begin();
    tx.put("beside", "x")?;
    tx.compare_and_swap("new", 0, "v")?;
    assert_error!(tx.commit(), Error::CompareFailed { expected: 0, .. });
    assert_eq!(db.get("beside")?, None, "all or nothing");
    Ok(())
}

#[test]
fn version_0_means_never_existed() -> Result<()> {
    let db = with(&[])?;
    assert_eq!(db.compare_and_swap("k", 0, "1")?, 2);
    assert_error!(
        db.compare_and_swap("k", 0, "2"),
        Error::CompareFailed { actual: 2, .. }
    );
    let tx = db.begin();
    tx.expect_revision("absent", 0)?;
    tx.expect_revision("k", 2)?;
    tx.put("both", "held")?;
    tx.commit()?;
    let tx = db.begin();
    tx.expect_revision("absent", 1)?;
    tx.put("never", "written")?;
    assert_error!(
        tx.commit(),
        Error::CompareFailed {
            expected: 1,
            actual: 0,
            ..
        }
    );
    Ok(())
}

/// A deliberate difference from the reference, as in etcd: both compare as 0. History tells them
/// apart.
#[test]
fn tombstone_vs_never_existed() -> Result<()> {
    let db = with(&[("deleted", "1")])?;
    db.delete("deleted")?;
    for key in ["deleted", "never"] {
        assert_eq!(db.get(key)?, None);
        assert_error!(
            db.compare_and_swap(key, 2, "x"),
            Error::CompareFailed { actual: 0, .. }
        );
    }
    assert_eq!(db.history("deleted")?.len(), 2);
    assert_eq!(db.history("deleted")?[0].entry, None);
    assert_eq!(db.history("never")?, []);
    assert_eq!(db.compare_and_swap("deleted", 0, "2")?, 4);
    assert_eq!(db.compare_and_swap("never", 0, "2")?, 5);
    Ok(())
}

#[test]
fn tombstone_read_causes_conflict() -> Result<()> {
    for is_flushed in [false, true] {
        let db = with(&[("k", "1")])?;
        db.delete("k")?;
        if is_flushed {
            db.flush()?;
        }
        let tx = db.begin();
        assert_eq!(tx.get("k")?, None);
        tx.put("result", "k was absent")?;
        db.put("k", "2")?;
        assert_error!(tx.commit(), Error::Conflict { .. });

        // And a key that was read and is deleted meanwhile.
        let tx = db.begin();
        assert!(tx.get("k")?.is_some());
        tx.put("result", "k was there")?;
        db.delete("k")?;
        if is_flushed {
            db.compact_tables()?;
        }
        assert_error!(tx.commit(), Error::Conflict { .. });

        // Put and deleted again: back to absent, but not unchanged.
        let tx = db.begin();
        assert_eq!(tx.get("k")?, None);
        tx.put("result", "k was absent")?;
        db.put("k", "3")?;
        db.delete("k")?;
        if is_flushed {
            db.compact_tables()?;
        }
        assert_error!(tx.commit(), Error::Conflict { .. });
        assert_eq!(db.get("result")?, None);
    }
    Ok(())
}
