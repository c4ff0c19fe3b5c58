//! S3, S3m, S4, S5 and S11: reads of data that is in memory, by key and in order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fastrand::Rng;

use super::machine::{LARGE_MAP, SMALL_MAP};
use super::stage::{Dataset, Stage};
use crate::data::{KEY_BYTES, VALUE_BYTES, is_value_of, key, number_of, value};
use crate::fallible::Fallible;
use crate::measure::{Row, Sample, Turn, check};
use crate::result::{Bound, Unit};
use crate::store::{Store, flushing};
use crate::timing::{BATCH, Timed, run_for, run_on};

pub const SMALL: &str = "S3 get, 100 K keys, 1 thread";
const LARGE: &str = "S3 get, 1 M keys, 1 thread";
const ONE_VERSION: &str = "S11 newest of 1 version";

pub fn rows(stage: &Stage) -> Vec<Row<'_>> {
    let everyone = || stage.names(|_| true);
    let get = |name, dataset: Dataset, threads: usize| {
        Row::new(name, Unit::Nanoseconds, everyone(), move |turn| {
            get_random(stage, turn, dataset, threads, VALUE_BYTES)
        })
    };
    let twice = Some(Bound::AtLeast(1.9));
    let beside = |name, renewal: Renewal| {
        Row::new(name, Unit::Nanoseconds, everyone(), move |turn| {
            beside_writer(stage, turn, renewal)
        })
    };
    let many = |name, dataset: Dataset, bound_ns| {
        Row::new(name, Unit::Nanoseconds, everyone(), move |turn| {
            get_many(stage, turn, dataset)
        })
        .bound(Bound::AtMost(bound_ns))
        .remark("per key; by a call for several keys where there is one")
        .beside("RocksDB", None)
        .beside("LMDB", None)
    };
    let scan = |name, dataset: Dataset, takes_part: Vec<_>| {
        Row::new(name, Unit::Nanoseconds, takes_part, move |turn| {
            scan(stage, turn, dataset, VALUE_BYTES)
        })
        .remark("per entry")
    };
    let with_memtable = || stage.names(|system| system.has_memtable);
    let of_trees = |times| Goals {
        trees: Some(3.0),
        pages: Some(times),
        redb: Some(times),
    };
    let of_lmdb = Goals {
        pages: Some(2.5),
        ..Goals::default()
    };
    vec![
        peers(get(SMALL, Dataset::Small, 1), of_lmdb).over(
            SMALL_MAP,
            1.0,
            "of a hash map",
            Some(Bound::AtMost(1.7)),
        ),
        get("S3 get, 100 K keys, 2 threads", Dataset::Small, 2).under(SMALL, "× 1 thread", twice),
        beside("S3 get, 100 K keys, beside a writer", Renewal::Every(1_024))
            .remark("a new snapshot every 1,024 reads")
            .over(SMALL, 1.0, "of alone", Some(Bound::AtMost(1.3))),
        beside(
            "S3 get, 100 K keys, beside a writer, old snapshot",
            Renewal::Never,
        )
        .remark("one snapshot, older with each of them")
        .over(SMALL, 1.0, "of alone", Some(Bound::AtMost(1.8))),
        peers(get(LARGE, Dataset::Large, 1), of_lmdb).over(
            LARGE_MAP,
            1.0,
            "of a hash map",
            Some(Bound::AtMost(1.3)),
        ),
        get("S3 get, 1 M keys, 2 threads", Dataset::Large, 2).under(LARGE, "× 1 thread", twice),
        many("S3m 64 keys at a time, 100 K keys", Dataset::Small, 90.0).over(
            SMALL,
            1.0,
            "of one at a time",
            None,
        ),
        many("S3m 64 keys at a time, 1 M keys", Dataset::Large, 150.0).over(
            LARGE,
            1.0,
            "of one at a time",
            None,
        ),
        peers(
            get("S4 get, cached tables, 1 M keys", Dataset::Tables, 1),
            of_trees(1.3),
        ),
        peers(
            get(
                "S4 get, cached tables in three runs, 1 M keys",
                Dataset::Runs,
                1,
            )
            .remark("of Bowline; the others as in the row before"),
            of_trees(1.3),
        ),
        scan(
            "S5 scan of 100 K entries, just written",
            Dataset::Small,
            with_memtable(),
        ),
        peers(
            scan(
                "S5 scan of 100 K of 1 M entries, cached tables",
                Dataset::Tables,
                everyone(),
            ),
            Goals {
                trees: Some(2.0),
                ..of_trees(1.1)
            },
        ),
    ]
}

/// How many times better the goals ask us to be.
#[derive(Clone, Copy, Default)]
struct Goals {
    /// Than RocksDB and fjall.
    trees: Option<f64>,
    redb: Option<f64>,
    /// Than LMDB.
    pages: Option<f64>,
}

/// Beside all peers.
fn peers(row: Row<'_>, goals: Goals) -> Row<'_> {
    row.beside("RocksDB", goals.trees)
        .beside("fjall", goals.trees)
        .beside("redb", goals.redb)
        .beside("LMDB", goals.pages)
        .beside("SurrealKV", None)
}

/// How often a reader takes a new snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Renewal {
    Never,
    /// After so many reads.
    Every(u64),
}

/// Reads random keys, each thread through a snapshot of its own.
fn read(
    store: &dyn Store,
    keys: u64,
    threads: usize,
    turn: Turn,
    renewal: Renewal,
    value_bytes: usize,
) -> Fallible<Timed> {
    run_on(threads, turn.sample, BATCH, |thread| {
        let mut reader = store.reader()?;
        let mut rng = Rng::with_seed(turn.seed ^ thread as u64);
        let mut reads = 0;
        Ok(move || {
            reads += 1;
            if renewal == Renewal::Every(reads) {
                reader = store.reader()?;
                reads = 0;
            }
            let number = rng.u64(..keys);
            let mut see = |value: &[u8]| {
                let is_right = is_value_of(value, number, value_bytes);
                check(is_right, "a read gave another value")
            };
            check(reader.get(&key(number), &mut see)?, "a read found nothing")
        })
    })
}

pub fn get_random(
    stage: &Stage,
    turn: Turn,
    dataset: Dataset,
    threads: usize,
    value_bytes: usize,
) -> Fallible<Sample> {
    let store = stage.store_of(stage.system(turn.contestant)?, dataset, value_bytes)?;
    let before = store.counts().cache_misses;
    let keys = stage.keys(dataset);
    let timed = read(&*store, keys, threads, turn, Renewal::Never, value_bytes)?;
    let after = store.counts().cache_misses;
    check(before == after, "a read went to the disk")?;
    Ok(Sample::time(timed))
}

/// Reads random keys, many at a time, through one snapshot.
fn get_many(stage: &Stage, turn: Turn, dataset: Dataset) -> Fallible<Sample> {
    const MANY: usize = 64;
    let store = stage.store(stage.system(turn.contestant)?, dataset)?;
    let store = &*store;
    let all = stage.keys(dataset);
    let mut timed = run_on(1, turn.sample, BATCH / MANY as u64, |_| {
        let reader = store.reader()?;
        let mut rng = Rng::with_seed(turn.seed);
        Ok(move || {
            let numbers = [(); MANY].map(|()| rng.u64(..all));
            let mut seen = 0;
            let mut see = |position: usize, value: &[u8]| {
                seen += 1;
                let is_right = is_value_of(value, numbers[position], VALUE_BYTES);
                check(is_right, "a read gave another value")
            };
            reader.get_many(&numbers.map(key), &mut see)?;
            check(seen == MANY, "a read of several keys found fewer")
        })
    })?;
    // The latencies are those of the calls: not told per key.
    timed.operations *= MANY as u64;
    Ok(Sample {
        latency: None,
        ..Sample::time(timed)
    })
}

/// Reads through snapshots while another thread overwrites the same keys as fast as it can.
fn beside_writer(stage: &Stage, turn: Turn, renewal: Renewal) -> Fallible<Sample> {
    let system = stage.system(turn.contestant)?;
    let keys = stage.scale.small;
    let store = stage.store(system, Dataset::Written)?;
    let store = &*store;
    let is_over = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    let timed = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut rng = Rng::with_seed(!turn.seed);
            while !is_over.load(Ordering::Relaxed) {
                let number = rng.u64(..keys);
                store.put(&key(number), &value(number))?;
                written.fetch_add(1, Ordering::Relaxed);
            }
            Fallible::Ok(())
        });
        // A short sample may be over before the writer has begun.
        while written.load(Ordering::Relaxed) == 0 && !writer.is_finished() {
            std::thread::yield_now();
        }
        let taken = flushing(system, store, || {
            read(store, keys, 1, turn, renewal, VALUE_BYTES)
        });
        is_over.store(true, Ordering::Relaxed);
        writer.join().map_err(|_| "the writer panicked")??;
        taken
    })?;
    let written = written.into_inner();
    check(written > 0, "the writer wrote nothing")?;
    let per_second = written as f64 / timed.elapsed.as_secs_f64();
    Ok(Sample::time(timed).note("writes per second beside", per_second))
}

pub fn scan(stage: &Stage, turn: Turn, dataset: Dataset, value_bytes: usize) -> Fallible<Sample> {
    let store = stage.store_of(stage.system(turn.contestant)?, dataset, value_bytes)?;
    let count = stage.scale.small;
    let mut timed = run_for(turn.sample, 1, || {
        let mut seen = 0;
        let mut last = [0; KEY_BYTES];
        let mut see = |key: &[u8], value: &[u8]| {
            check(key > &last[..], "a scan out of order")?;
            last.copy_from_slice(key);
            let is_right = number_of(key).is_some_and(|n| is_value_of(value, n, value_bytes));
            check(is_right, "a scan gave another value")?;
            seen += 1;
            Ok(())
        };
        store.reader()?.scan(count, &mut see)?;
        check(seen == count, "a scan ended early")
    })?;
    // The latencies are those of whole scans: not told per entry.
    timed.operations *= count;
    Ok(Sample {
        latency: None,
        ..Sample::time(timed)
    })
}

/// S11. They come last, since their stores hold what the other rows do not need.
pub fn versions(stage: &Stage) -> Vec<Row<'_>> {
    let names: [&str; 5] = [
        ONE_VERSION,
        "S11 newest of 10 versions",
        "S11 newest of 100 versions",
        "S11 newest of 1,000 versions",
        "S11 newest of 100,000 versions",
    ];
    let row = |(name, count): (&'static str, u64)| {
        let takes_part = stage.names(|system| system.has_memtable);
        let row = Row::new(name, Unit::Nanoseconds, takes_part, move |turn| {
            newest(stage, turn, count)
        });
        if name == ONE_VERSION {
            return row;
        }
        row.over(ONE_VERSION, 1.0, "of 1 version", Some(Bound::AtMost(1.05)))
    };
    names
        .into_iter()
        .zip(stage.scale.versions)
        .map(row)
        .collect()
}

fn newest(stage: &Stage, turn: Turn, count: u64) -> Fallible<Sample> {
    let store = stage.store(stage.system(turn.contestant)?, Dataset::Versions)?;
    let store = &*store;
    let timed = run_on(1, turn.sample, BATCH, |_| {
        let reader = store.reader()?;
        Ok(move || {
            let mut see = |value: &[u8]| {
                check(
                    is_value_of(value, count, VALUE_BYTES),
                    "not the newest value",
                )
            };
            let key = key(std::hint::black_box(count));
            check(reader.get(&key, &mut see)?, "a read found nothing")
        })
    })?;
    Ok(Sample::time(timed))
}
