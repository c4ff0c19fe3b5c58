//! Anomalies that only threads beside each other can bring about. The invariants of the transactional
//! reference, which need no threads, are held by the test binary `invariants`, on crash images.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bowline::{Db, Error, Expected, Isolation, Result, Revision};

use crate::support::{Disk, number};

#[test]
fn readers_beside_a_writer_see_keys_of_one_moment() -> Result<()> {
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
            let put = |tx: &mut bowline::Transaction| {
                keys.iter()
                    .try_for_each(|key| tx.put(key, value.to_be_bytes()))
            };
            db.transact(put)?;
        }
        is_done.store(true, Ordering::Relaxed);
        Ok(())
    })
}

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
fn one_of_many_threads_takes_a_free_lock() -> Result<()> {
    let db = Disk::new().open(Db::builder());
    for round in 0..30 {
        let key = format!("lock{round}");
        // All transactions begin before the first one commits.
        let all_read = Barrier::new(12);
        let attempt = |number: usize| {
            let mut tx = db.begin();
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
fn one_of_many_threads_swaps_from_a_revision() -> Result<()> {
    let db = Disk::new().open(Db::builder());
    let mut revision = 0;
    for round in 0..60 {
        let attempt = |number: usize| {
            db.compare_and_swap(
                "k",
                Expected::Revision(Revision::new(revision)),
                format!("{number}"),
            )
            .map(drop)
        };
        let lost = |error: &Error| matches!(error, Error::CompareFailed { actual: Some(actual), .. } if *actual > revision);
        assert_eq!(winners(attempt, lost), 1, "round {round}");
        let entry = db.entry("k")?.expect("the winner's");
        assert_eq!(entry.version, round + 1);
        revision = entry.mod_revision.get();
    }
    Ok(())
}

#[test]
fn many_threads_lose_no_increment() -> Result<()> {
    const THREADS: u64 = 16;
    const EACH: u64 = 100;
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let db = Disk::new().open(Db::builder());
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        let add = |tx: &mut bowline::Transaction| {
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
                        let transfer = |tx: &mut bowline::Transaction| {
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
fn transfers_of_many_threads_keep_the_sum() -> Result<()> {
    bank(Isolation::Serializable, 500)?;
    bank(Isolation::Snapshot, 500)
}

#[test]
fn readers_beside_a_writer_see_whole_transactions() -> Result<()> {
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
