//! The invariants of the transactional reference that concern anomalies and atomicity; each test has
//! its invariant's name. The others are in `snapshots`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bowline::{Db, Error, Isolation, Result};

use crate::support::{Disk, assert_error, number, some, text, with};

/// Two doctors are on call; each goes off if another one stays.
fn doctors(isolation: Isolation) -> Result<(bool, usize)> {
    let db = with(&[("oncall/alice", "yes"), ("oncall/bob", "yes")])?;
    let on_call = |tx: &bowline::Transaction| -> Result<usize> {
        let all: Result<Vec<_>> = tx.range("oncall/".."oncall0")?.collect();
        Ok(all?
            .iter()
            .filter(|entry| entry.value == b"yes"[..])
            .count())
    };
    let (alice, bob) = (db.begin_with(isolation), db.begin_with(isolation));
    for (tx, name) in [(&alice, "oncall/alice"), (&bob, "oncall/bob")] {
        if on_call(tx)? > 1 {
            tx.put(name, "no")?;
        }
    }
    alice.commit()?;
    let second = bob.commit();
    let conflicted = matches!(second, Err(Error::Conflict { .. }));
    assert_eq!(second.is_err(), conflicted);
    let left = on_call(&db.begin())?;
    Ok((conflicted, left))
}

#[test]
fn write_skew_scenario_doctors_on_call() -> Result<()> {
    assert_eq!(doctors(Isolation::Serializable)?, (true, 1));
    assert_eq!(
        doctors(Isolation::Snapshot)?,
        (false, 0),
        "snapshot isolation allows it"
    );
    Ok(())
}

#[test]
fn lost_update_prevented_counter_increment() -> Result<()> {
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let db = with(&[])?;
        let (first, second) = (db.begin_with(isolation), db.begin_with(isolation));
        for tx in [&first, &second] {
            let old = number(tx.get("counter")?);
            tx.put("counter", (old + 1).to_be_bytes())?;
        }
        first.commit()?;
        assert_error!(second.commit(), Error::Conflict { .. });
        assert_eq!(number(db.get("counter")?), 1, "{isolation:?}");
    }
    Ok(())
}

#[test]
fn lost_update_prevented_many_increments() -> Result<()> {
    const THREADS: u64 = 16;
    const EACH: u64 = 100;
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let db = Disk::new().open(Db::builder());
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        let add = |tx: &bowline::Transaction| {
                            let old = number(tx.get("counter")?);
                            tx.put("counter", (old + 1).to_be_bytes())
                        };
                        db.transact_with(isolation, add)
                            .expect("it is tried until it wins");
                    }
                });
            }
        });
        assert_eq!(number(db.get("counter")?), THREADS * EACH, "{isolation:?}");
        let entry = db.entry("counter")?.expect("it is there");
        assert_eq!(entry.version, THREADS * EACH);
        assert_eq!(
            db.revision(),
            1 + THREADS * EACH,
            "conflicts take no revision"
        );
    }
    Ok(())
}

#[test]
fn multi_key_reads_see_consistent_snapshot() -> Result<()> {
    let db = with(&[("a", "1"), ("b", "1")])?;
    let tx = db.begin();
    assert_eq!(text(tx.get("a")?), some("1"));
    db.transact(|tx| {
        tx.put("a", "2")?;
        tx.put("b", "2")
    })?;
    assert_eq!(
        text(tx.get("b")?),
        some("1"),
        "not the b of another moment than the a"
    );
    let values: Result<Vec<_>> = tx
        .range(..)?
        .map(|e| e.map(|e| text(Some(e.value))))
        .collect();
    assert_eq!(values?, [some("1"), some("1")]);
    assert_error!(
        {
            tx.put("c", "x")?;
            tx.commit()
        },
        Error::Conflict { .. }
    );
    Ok(())
}

const ACCOUNTS: u64 = 10;
const OPENING: u64 = 1_000;

fn account(number: u64) -> String {
    format!("account/{number}")
}

fn sum(entries: impl Iterator<Item = Result<bowline::Entry>>) -> Result<u64> {
    entries.map(|entry| Ok(number(Some(entry?.value)))).sum()
}

/// Random transfers on four threads while two others add everything up.
fn bank(isolation: Isolation, transfers: u64) -> Result<()> {
    let db = Disk::new().open(Db::builder().memtable_bytes(128 << 10));
    db.transact(|tx| {
        (0..ACCOUNTS).try_for_each(|number| tx.put(account(number), OPENING.to_be_bytes()))
    })?;
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 0..2 {
            let (db, is_done) = (&db, &is_done);
            scope.spawn(move || {
                let mut reads = 0;
                while !is_done.load(Ordering::Relaxed) || reads == 0 {
                    let snapshot = db.snapshot();
                    let range = snapshot.range("account/".."account0").expect("valid");
                    let total = if reader == 0 {
                        sum(range)
                    } else {
                        sum(range.rev())
                    };
                    assert_eq!(total.expect("readable"), ACCOUNTS * OPENING);
                    reads += 1;
                }
            });
        }
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let db = &db;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(writer);
                    for _ in 0..transfers {
                        let (from, to) = (random.u64(..ACCOUNTS), random.u64(..ACCOUNTS));
                        let amount = random.u64(1..100);
                        let transfer = |tx: &bowline::Transaction| {
                            let have = number(tx.get(account(from))?);
                            if have < amount || from == to {
                                return Ok(());
                            }
                            tx.put(account(from), (have - amount).to_be_bytes())?;
                            let other = number(tx.get(account(to))?);
                            tx.put(account(to), (other + amount).to_be_bytes())
                        };
                        db.transact_with(isolation, transfer).expect("a transfer");
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().expect("no panic");
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!(sum(db.range(..)?)?, ACCOUNTS * OPENING);
    assert!(db.check()?.is_clean());
    Ok(())
}

#[test]
fn bank_transfer_sum_invariant() -> Result<()> {
    bank(Isolation::Serializable, 500)
}

/// The ACID invariant of the reference.
#[test]
fn consistency_sum_invariant_maintained() -> Result<()> {
    bank(Isolation::Snapshot, 500)
}

// --- atomicity ---

#[test]
fn committed_transaction_all_keys_present() -> Result<()> {
    let db = with(&[])?;
    let tx = db.begin();
    for at in 0..3_000 {
        tx.put(format!("k{at}"), at.to_string())?;
    }
    let revision = tx.commit()?.revision;
    for at in 0..3_000 {
        let entry = db.entry(format!("k{at}"))?.expect("it was committed");
        assert_eq!(entry.mod_revision, revision);
    }
    assert_eq!(db.snapshot_at(revision - 1)?.range(..)?.count(), 0);
    Ok(())
}

#[test]
fn aborted_transaction_no_keys_present() -> Result<()> {
    let db = with(&[("read", "1")])?;
    let tx = db.begin();
    tx.get("read")?;
    for at in 0..3_000 {
        tx.put(format!("k{at}"), at.to_string())?;
    }
    db.put("read", "2")?;
    assert_error!(tx.commit(), Error::Conflict { .. });
    assert_eq!(db.range("k".."l")?.count(), 0);
    db.flush()?;
    assert_eq!(db.range("k".."l")?.count(), 0);
    assert_eq!(db.revision(), 3);
    Ok(())
}

#[test]
fn no_partial_writes_observable() -> Result<()> {
    let db = Disk::new().open(Db::builder().memtable_bytes(256 << 10));
    const KEYS: usize = 50;
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let entries: Result<Vec<_>> = db.range(..).expect("valid").collect();
                    let entries = entries.expect("readable");
                    assert!(
                        entries.is_empty() || entries.len() == KEYS,
                        "{}",
                        entries.len()
                    );
                    let mut revisions = entries.iter().map(|entry| entry.mod_revision);
                    let first = revisions.next();
                    assert!(revisions.all(|other| Some(other) == first), "torn");
                }
            });
        }
        for round in 0..600u32 {
            db.transact(|tx| {
                if round % 3 == 2 {
                    return tx.delete_range(..).map(drop);
                }
                (0..KEYS).try_for_each(|at| tx.put(format!("k{at}"), round.to_be_bytes()))
            })?;
        }
        is_done.store(true, Ordering::Relaxed);
        Ok(())
    })
}
