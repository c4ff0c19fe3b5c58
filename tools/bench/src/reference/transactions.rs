//! The rows of the transactional store. Its names are kept. Keys have 16 bytes and values 100.

use std::cell::Cell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bowline::{Db, Error, Expected, Revision};
use fastrand::Rng;

use super::common::{Both, Kind, Place, row};
use crate::data::{VALUE_BYTES, is_value_of, key, value};
use crate::fallible::Fallible;
use crate::measure::{Row, Sample, Turn, check};
use crate::result::{Bound, Unit};
use crate::timing::{BATCH, Timed, run_for, run_on, run_prepared};

/// The databases of these rows.
struct Databases<'a> {
    place: &'a Place,
    ordinary: Both,
    /// Keys that no row has written yet begin here.
    next: Cell<u64>,
}

impl Databases<'_> {
    fn ordinary(&self, mode: &str) -> Fallible<&Db> {
        self.ordinary.get(mode, || {
            let db = self.place.open("transactions", mode)?;
            fill(&db, self.place.scale.keys)?;
            Ok(db)
        })
    }

    /// A key that is not there yet.
    fn new_key(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }
}

fn fill(db: &Db, keys: u64) -> Fallible<()> {
    for start in (0..keys).step_by(1_000) {
        db.transact(|tx| {
            (start..keys.min(start + 1_000)).try_for_each(|n| tx.put(key(n), value(n)))
        })?;
    }
    Ok(())
}

/// Reads a key and checks its value.
fn get(db: &Db, number: u64) -> Fallible<()> {
    let found = db.get(key(number))?;
    let is_right = found.is_some_and(|value| is_value_of(&value, number, VALUE_BYTES));
    check(is_right, "a read gave no or another value")
}

pub fn rows(place: &Place) -> Vec<Row<'_>> {
    let databases = std::rc::Rc::new(Databases {
        place,
        ordinary: Both::default(),
        next: Cell::new(1 << 32),
    });
    let mut rows = gets(&databases);
    rows.extend(scaling(place));
    rows.extend(puts(&databases));
    rows.extend(commits(&databases));
    rows.extend(swaps(&databases));
    rows.extend(snapshots(&databases));
    rows.extend(conflicts(&databases));
    rows
}

type Shared<'a> = std::rc::Rc<Databases<'a>>;

/// A row whose operation is one call, the clock read once in a batch.
fn simple<'a>(
    databases: &Shared<'a>,
    (name, kind, published, here_ns): (&'static str, Kind, &'static str, f64),
    operation: impl Fn(&Databases<'a>, &Db, &mut Rng) -> Fallible<()> + 'a,
) -> Row<'a> {
    let databases = databases.clone();
    let batch = match kind {
        Kind::Read => BATCH,
        _ => 1,
    };
    row(
        name,
        Unit::Nanoseconds,
        kind,
        published,
        here_ns,
        move |turn| {
            let db = databases.ordinary(turn.contestant)?;
            let mut rng = Rng::with_seed(turn.seed);
            let flushes = db.stats().engine.counters.log_syncs;
            let revision = db.revision();
            let timed = run_for(turn.sample, batch, || operation(&databases, db, &mut rng))?;
            let stats = db.stats();
            // Each commit of one thread is flushed by itself.
            check(
                turn.contestant != super::common::SYNC
                    || stats.engine.counters.log_syncs - flushes >= stats.revision - revision,
                "commits were not flushed",
            )?;
            Ok(Sample::time(timed))
        },
    )
}

fn gets<'a>(databases: &Shared<'a>) -> Vec<Row<'a>> {
    let keys = databases.place.scale.keys;
    let read = |name, published, here, operation: fn(&Db, &mut Rng, u64) -> Fallible<()>| {
        simple(
            databases,
            (name, Kind::Read, published, here),
            move |_, db, rng| operation(db, rng, keys),
        )
    };
    vec![
        read("engine_get/hot_key", "258 ns", 128.0, |db, _, _| {
            get(db, std::hint::black_box(7))
        }),
        read("engine_get/miss", "579 ns", 324.0, |db, rng, keys| {
            let absent = db.get(key((1 << 33) + rng.u64(..keys)))?;
            check(absent.is_none(), "an absent key was found")
        }),
        read("engine_get/uniform", "612 ns", 498.0, |db, rng, keys| {
            get(db, rng.u64(..keys))
        }),
        read(
            "engine_get/working_set_100",
            "217 ns",
            148.0,
            |db, rng, _| get(db, rng.u64(..100)),
        ),
    ]
}

fn scaling(place: &Place) -> Vec<Row<'_>> {
    const NAMES: [(&str, &str, f64); 3] = [
        ("engine_key_scaling/get/10 K", "369 ns", 524.0),
        ("engine_key_scaling/get/100 K", "not finished", 0.0),
        ("engine_key_scaling/get/1 M", "not finished", 0.0),
    ];
    let one = |((name, published, here), keys): ((&'static str, &'static str, f64), u64)| {
        let both = Both::default();
        row(
            name,
            Unit::Nanoseconds,
            Kind::Read,
            published,
            here,
            move |turn| {
                let db = both.get(super::common::BATCHED, || {
                    let db = place.open(&format!("scaling-{keys}"), super::common::BATCHED)?;
                    fill(&db, keys)?;
                    Ok(db)
                })?;
                let mut rng = Rng::with_seed(turn.seed);
                let timed = run_for(turn.sample, BATCH, || get(db, rng.u64(..keys)))?;
                Ok(Sample::time(timed))
            },
        )
    };
    NAMES
        .into_iter()
        .zip(place.scale.scaling)
        .map(one)
        .collect()
}

fn puts<'a>(databases: &Shared<'a>) -> Vec<Row<'a>> {
    let keys = databases.place.scale.keys;
    let deletes = databases.clone();
    vec![
        simple(
            databases,
            (
                "engine_put/insert/dur_strict/uniform",
                Kind::Durable,
                "4.49 ms",
                1.37e6,
            ),
            |all, db, _| {
                let number = all.new_key();
                db.put(key(number), value(number))?;
                Ok(())
            },
        ),
        simple(
            databases,
            (
                "engine_put/overwrite/dur_strict/hot_key",
                Kind::Unflushed,
                "21.8 µs",
                3_400.0,
            ),
            |_, db, _| {
                db.put(key(7), value(7))?;
                Ok(())
            },
        ),
        simple(
            databases,
            (
                "engine_put/overwrite/dur_strict/uniform",
                Kind::Durable,
                "126 µs",
                175e3,
            ),
            move |_, db, rng| {
                let number = rng.u64(..keys);
                db.put(key(number), value(number))?;
                Ok(())
            },
        )
        .bound(None)
        .over(ONE_COMMIT, 1.0, "of one commit", Some(Bound::AtMost(1.1))),
        row(
            "engine_delete/existing/dur_strict",
            Unit::Nanoseconds,
            Kind::Unflushed,
            "35.5 µs",
            53e3,
            move |turn| {
                const MANY: u64 = 128;
                let db = deletes.ordinary(turn.contestant)?;
                let first = 1 << 34;
                let prepare = || {
                    db.transact(|tx| {
                        (first..first + MANY).try_for_each(|n| tx.put(key(n), value(n)))
                    })?;
                    Ok(())
                };
                let timed = run_prepared(turn.sample, MANY, prepare, |at| {
                    check(db.delete(key(first + at))?.is_some(), "nothing was deleted")
                })?;
                Ok(Sample::time(timed))
            },
        ),
        simple(
            databases,
            (
                "engine_delete/nonexistent",
                Kind::Unflushed,
                "21.9 µs",
                2_400.0,
            ),
            |_, db, rng| {
                let deleted = db.delete(key((1 << 35) + rng.u64(..1_000)))?;
                check(deleted.is_none(), "an absent key was deleted")
            },
        ),
    ]
}

/// One durable commit.
const ONE_COMMIT: &str = "txn_commit/single_put";

fn commits<'a>(databases: &Shared<'a>) -> Vec<Row<'a>> {
    let keys = databases.place.scale.keys;
    let many = |name, puts: usize, published, here| {
        simple(
            databases,
            (name, Kind::Durable, published, here),
            move |all, db, _| {
                let mut tx = db.begin();
                for _ in 0..puts {
                    let number = all.new_key();
                    tx.put(key(number), value(number))?;
                }
                check(tx.commit()?.changed, "a commit changed nothing")
            },
        )
    };
    let read_many = |name, reads: usize, published, here| {
        simple(
            databases,
            (name, Kind::Unflushed, published, here),
            move |_, db, rng| {
                let mut tx = db.begin();
                for _ in 0..reads {
                    check(tx.get(key(rng.u64(..keys)))?.is_some(), "a key is missing")?;
                }
                tx.put(key(7), value(7))?;
                check(tx.commit()?.changed, "a commit changed nothing")
            },
        )
    };
    vec![
        many(ONE_COMMIT, 1, "5.11 ms", 1.26e6),
        many("txn_commit/multi_put/3", 3, "9.9 ms", 2.2e6),
        many("txn_commit/multi_put/5", 5, "13.6 ms", 3.0e6),
        many("txn_commit/multi_put/10", 10, "11.6 ms", 3.6e6),
        simple(
            databases,
            (
                "txn_commit/read_modify_write",
                Kind::Unflushed,
                "21.3 µs",
                4_300.0,
            ),
            |_, db, _| {
                let mut tx = db.begin();
                check(tx.get(key(7))?.is_some(), "a key is missing")?;
                tx.put(key(7), value(7))?;
                check(tx.commit()?.changed, "a commit changed nothing")
            },
        ),
        read_many("txn_commit/readN_write1/1", 1, "21.5 µs", 4_000.0),
        read_many("txn_commit/readN_write1/10", 10, "27.0 µs", 9_300.0),
        read_many("txn_commit/readN_write1/100", 100, "89 µs", 65_500.0),
    ]
}

fn swaps<'a>(databases: &Shared<'a>) -> Vec<Row<'a>> {
    let revision_of = |db: &Db| -> Fallible<u64> {
        Ok((db.entry(key(7))?.ok_or("a key is missing")?.mod_revision).get())
    };
    let sequential = databases.clone();
    let sequential = move |turn: Turn| {
        let db = sequential.ordinary(turn.contestant)?;
        let mut expected = revision_of(db)?;
        let timed = run_for(turn.sample, 1, || {
            expected = (db.compare_and_swap(
                key(7),
                Expected::Revision(Revision::new(expected)),
                value(7),
            )?)
            .get();
            Ok(())
        })?;
        Ok(Sample::time(timed))
    };
    vec![
        row(
            "txn_cas/success_sequential",
            Unit::Nanoseconds,
            Kind::Unflushed,
            "21.1 µs",
            3_700.0,
            sequential,
        ),
        simple(
            databases,
            (
                "txn_cas/failure_version_mismatch",
                Kind::Read,
                "1.59 µs",
                1_650.0,
            ),
            |_, db, _| {
                // No revision is as high as this.
                let result = db.compare_and_swap(
                    key(7),
                    Expected::Revision(Revision::new(u64::MAX >> 1)),
                    value(7),
                );
                let is_refused = matches!(result, Err(Error::CompareFailed { .. }));
                check(is_refused, "a wrong expectation was not refused")
            },
        ),
        simple(
            databases,
            ("txn_cas/create_new_key", Kind::Durable, "5.57 ms", 1.34e6),
            |all, db, _| {
                let number = all.new_key();
                db.compare_and_swap(key(number), Expected::Absent, value(number))?;
                Ok(())
            },
        ),
        simple(
            databases,
            (
                "txn_cas/retry_until_success",
                Kind::Unflushed,
                "19.6 µs",
                3_900.0,
            ),
            move |_, db, _| {
                loop {
                    match db.compare_and_swap(
                        key(7),
                        Expected::Revision(Revision::new(revision_of(db)?)),
                        value(7),
                    ) {
                        Ok(_) => return Ok(()),
                        Err(Error::CompareFailed { .. }) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            },
        ),
    ]
}

fn snapshots<'a>(databases: &Shared<'a>) -> Vec<Row<'a>> {
    let keys = databases.place.scale.keys;
    let read = |name, reads: usize, published, here| {
        simple(
            databases,
            (name, Kind::Read, published, here),
            move |_, db, rng| {
                let snapshot = db.snapshot();
                for _ in 0..reads {
                    let number = rng.u64(..keys);
                    let found = snapshot.get(key(number))?;
                    let is_right = found.is_some_and(|v| is_value_of(&v, number, VALUE_BYTES));
                    check(is_right, "a snapshot gave another value")?;
                }
                Ok(())
            },
        )
    };
    let after = |name, versions: u64| {
        let all = databases.clone();
        let both = Both::default();
        row(
            name,
            Unit::Nanoseconds,
            Kind::Read,
            "12.7-13.3 µs",
            2_000.0,
            move |turn| {
                let db = both.get(super::common::BATCHED, || {
                    let db = all
                        .place
                        .open(&format!("versions-{versions}"), super::common::BATCHED)?;
                    (0..versions).try_for_each(|_| db.put(key(7), value(7)).map(drop))?;
                    Ok(db)
                })?;
                let timed = run_for(turn.sample, BATCH, || {
                    let found = db.snapshot().get(key(7))?;
                    check(found.is_some(), "a key is missing")
                })?;
                Ok(Sample::time(timed))
            },
        )
    };
    vec![
        read("snapshot/single_read", 1, "113 µs", 172e3),
        read("snapshot/multi_read_10", 10, "118 µs", 173e3),
        after("snapshot/after_versions/10", 10),
        after("snapshot/after_versions/100", 100),
        after("snapshot/after_versions/1000", 1_000),
        simple(
            databases,
            (
                "snapshot/read_your_writes",
                Kind::Durable,
                "4.60 ms",
                1.37e6,
            ),
            |all, db, _| {
                let number = all.new_key();
                let mut tx = db.begin();
                tx.put(key(number), value(number))?;
                check(tx.get(key(number))?.is_some(), "its own write is missing")?;
                check(tx.commit()?.changed, "a commit changed nothing")
            },
        ),
        simple(
            databases,
            ("snapshot/read_only_10", Kind::Read, "1.55 ms", 2.96e6),
            move |_, db, rng| {
                let mut tx = db.begin();
                for _ in 0..10 {
                    check(tx.get(key(rng.u64(..keys)))?.is_some(), "a key is missing")?;
                }
                check(
                    !tx.commit()?.changed,
                    "a read-only transaction changed something",
                )
            },
        ),
    ]
}

/// One thread that reads a key and writes it.
const ALONE: &str = "conflict/disjoint_keys/1";
const TWO: &str = "conflict/disjoint_keys/2";
const FOUR: &str = "conflict/disjoint_keys/4";

fn conflicts<'a>(databases: &Shared<'a>) -> Vec<Row<'a>> {
    let contended = |name, threads: usize, is_same, kind, published, here| {
        let databases = databases.clone();
        row(name, Unit::PerSecond, kind, published, here, move |turn| {
            contend(databases.ordinary(turn.contestant)?, turn, threads, is_same)
        })
    };
    let disjoint = |name, threads, published| {
        contended(name, threads, false, Kind::Durable, published, 2_560.0)
    };
    let same = |name, threads, other_keys, published, here| {
        contended(name, threads, true, Kind::Unflushed, published, here)
            .bound(None)
            .over(other_keys, 1.0, "of other keys", Some(Bound::AtLeast(0.7)))
    };
    // Each sees what the other has made durable, so each has a flush to itself.
    let same_durable = |name, threads| {
        contended(name, threads, true, Kind::Flushed, "-", 0.0).over(
            ALONE,
            1.0,
            "of 1 thread",
            Some(Bound::AtLeast(0.95)),
        )
    };
    let races = databases.clone();
    vec![
        contended(ALONE, 1, false, Kind::Durable, "-", 0.0),
        // Two commits share one flush at best.
        disjoint(TWO, 2, "3,550 commits/s").bound(None).over(
            ALONE,
            2.0,
            "of 2 × 1 thread",
            Some(Bound::AtLeast(0.85)),
        ),
        disjoint(FOUR, 4, "3,200 commits/s"),
        disjoint("conflict/disjoint_keys/8", 8, "3,100 commits/s"),
        same("conflict/same_key/2", 2, TWO, "47 K/s, 99 % commit", 260e3),
        same(
            "conflict/same_key/4",
            4,
            FOUR,
            "44 K/s, 95-96 % commit",
            200e3,
        ),
        same_durable("conflict/same_key/2, flushed", 2),
        same_durable("conflict/same_key/4, flushed", 4),
        row(
            "conflict/cas_one_winner",
            Unit::Nanoseconds,
            Kind::Durable,
            "256 µs/race, 1 winner",
            0.0,
            move |turn| race(&races, turn),
        ),
    ]
}

/// Threads that read a key and write it, in one transaction, by [`Db::transact`]; attempts that conflict are counted.
fn contend(db: &Db, turn: Turn, threads: usize, is_same: bool) -> Fallible<Sample> {
    let (before, lost) = (db.revision(), AtomicU64::new(0));
    let timed: Timed = run_on(threads, turn.sample, 1, |thread| {
        let number = if is_same { 7 } else { 10 + thread as u64 };
        let lost = &lost;
        Ok(move || {
            let (mut attempts, mut is_missing) = (0, false);
            db.transact(|tx| {
                attempts += 1;
                is_missing |= tx.get(key(number))?.is_none();
                tx.put(key(number), value(number))
            })?;
            lost.fetch_add(attempts - 1, Ordering::Relaxed);
            check(!is_missing, "a key is missing")
        })
    })?;
    let lost = lost.into_inner();
    check(
        db.revision() - before == timed.operations,
        "revisions do not count the commits",
    )?;
    check(is_same || lost == 0, "different keys conflicted")?;
    let committed = timed.operations as f64 / (timed.operations + lost) as f64;
    Ok(Sample::rate(timed).note("% of attempts that commit", committed * 100.0))
}

/// Four threads create the same key; one of them must win each time.
fn race(databases: &Databases<'_>, turn: Turn) -> Fallible<Sample> {
    const THREADS: u64 = 4;
    let db = databases.ordinary(turn.contestant)?;
    let races = (turn.sample.as_micros() as u64 / 200).max(1);
    let first = databases.next.replace(databases.next.get() + races);
    let barrier = Barrier::new(THREADS as usize);
    let start = Instant::now();
    let wins = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let mut wins = 0;
                    let mut failure = None;
                    for number in first..first + races {
                        barrier.wait();
                        match db.compare_and_swap(key(number), Expected::Absent, value(number)) {
                            Ok(_) => wins += 1,
                            Err(Error::CompareFailed { .. }) => {}
                            // The others wait at the barrier: go on.
                            Err(error) => failure = Some(error),
                        }
                    }
                    failure.map_or(Ok(wins), Err)
                })
            })
            .collect();
        let mut wins = 0;
        for thread in threads {
            wins += thread.join().map_err(|_| "a thread panicked")??;
        }
        Fallible::Ok(wins)
    })?;
    let elapsed = start.elapsed();
    check(wins == races, "a race without exactly one winner")?;
    Ok(Sample::figure(elapsed.as_nanos() as f64 / races as f64))
}
