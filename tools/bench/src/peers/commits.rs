//! S1, S2, S2u and S12: commits and updates that return when they are flushed, and one row of those that do not.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;

use super::stage::{Dataset, F, Stage};
use crate::data::{LARGE_VALUE_BYTES, VALUE_BYTES, fill, is_value_of, key};
use crate::fallible::Fallible;
use crate::machine::{RAW_BYTES, RawFile, processor_time};
use crate::measure::{Row, Sample, Turn, Void, check};
use crate::result::{Bound, Unit};
use crate::store::{BATCHED_EVERY, BOWLINE, Store, flushing};
use crate::timing::{Timed, run_for, run_on, time};

pub const ONE: &str = "S1 durable commit, 1 thread";
pub const SIXTEEN: &str = "S2 durable commit, 16 threads";
const UNDER_WAY: &str = "S2t durable commits of 1 thread, 16 under way";
const SIXTY_FOUR: &str = "S2 durable commit, 64 threads";
const F_BESIDE: &str = "S1 F in the slices between the commits";
const BEYOND_F: &str = "S1 P50 of a commit beyond that of F";
const TAIL_OF_16: &str = "S2 P99.9, 16 threads";
const TAIL_OF_64: &str = "S2 P99.9, 64 threads";
const UPDATES_APART: &str = "S2u durable updates of a key each, 16 threads";
const UPDATES_OF_ONE: &str = "S2u durable updates of one key, 16 threads";
const TAIL_OF_UPDATES: &str = "S2u P99.9, updates of one key";

pub fn rows(stage: &Stage) -> Vec<Row<'_>> {
    let everyone = || stage.names(|_| true);
    let durable_by = |name, threads: usize, tail| {
        Row::new(name, Unit::PerSecond, everyone(), move |turn| {
            let (timed, sample) = durable(stage, turn, threads, VALUE_BYTES)?;
            Ok(sample.also(tail, timed.latency.value_at_quantile(0.999) as f64))
        })
    };
    let tail = |name| {
        Row::told(name, Unit::Nanoseconds, everyone())
            .beside("RocksDB", Some(1.0))
            .beside("SurrealKV", Some(1.0))
    };
    let raw = RefCell::default();
    let one = Row::new(ONE, Unit::PerSecond, everyone(), move |turn| {
        let sample = alternating(stage, turn, &mut raw.borrow_mut(), VALUE_BYTES)?;
        let beyond = sample.own.p50_ns() - sample.raw.p50_ns();
        let raw = Sample::rate(sample.raw).figure;
        Ok(Sample::rate(sample.own)
            .also(F_BESIDE, raw)
            .also(BEYOND_F, beyond))
    });
    let batched = Row::new(
        "S12 `Batched` commit, 100 K keys",
        Unit::Nanoseconds,
        stage.names_of_batched(),
        move |turn| batched(stage, turn),
    );
    let mut rows = vec![
        one.remark("in slices that alternate with slices of F")
            .over(F_BESIDE, 1.0, "of F beside it", None)
            .beside("RocksDB", Some(1.0))
            .beside("fjall", Some(1.0))
            .beside("redb", Some(1.0))
            .beside("LMDB", Some(1.0))
            .beside("SurrealKV", Some(1.0)),
        Row::told(F_BESIDE, Unit::PerSecond, everyone()),
        Row::told(BEYOND_F, Unit::Nanoseconds, everyone()).bound(Bound::AtMost(8_000.0)),
        durable_by(SIXTEEN, 16, TAIL_OF_16)
            .over(F, 1.0, "of F", None)
            .over(ONE, 16.0, "of 16 × 1 thread", Some(Bound::AtLeast(0.5)))
            .beside("RocksDB", Some(2.0))
            .beside("SurrealKV", None),
        tail(TAIL_OF_16),
        Row::new(
            UNDER_WAY,
            Unit::PerSecond,
            stage.names(|system| system.has_tickets),
            move |turn| under_way(stage, turn),
        )
        .over(ONE, 16.0, "of 16 × 1 thread", Some(Bound::AtLeast(0.85)))
        .over(SIXTEEN, 1.0, "of 16 threads", None),
        durable_by(SIXTY_FOUR, 64, TAIL_OF_64)
            .over(F, 1.0, "of F", None)
            .over(ONE, 64.0, "of 64 × 1 thread", Some(Bound::AtLeast(0.5)))
            .beside("RocksDB", Some(1.5))
            .beside("SurrealKV", None),
        tail(TAIL_OF_64),
        batched
            .bound(Bound::AtMost(2_000.0))
            // 0.4 of RocksDB's time.
            .beside("RocksDB", Some(2.5))
            .beside("fjall", None)
            .beside("redb", None)
            .beside("LMDB", None)
            .beside("LMDB map", None)
            .beside("SurrealKV", None),
    ];
    rows.extend(rows_of_updates(stage));
    rows
}

/// Updates of one key, which conflict with nobody, over the same of a key for each thread.
fn rows_of_updates(stage: &Stage) -> [Row<'_>; 3] {
    let ours = || stage.names(|system| system.name == BOWLINE.name);
    let apart = Row::new(UPDATES_APART, Unit::PerSecond, ours(), |turn| {
        Ok(updates(stage, turn, 16, 16)?.1)
    });
    let of_one = Row::new(UPDATES_OF_ONE, Unit::PerSecond, ours(), |turn| {
        let (tail, sample) = updates(stage, turn, 16, 1)?;
        Ok(sample.also(TAIL_OF_UPDATES, tail))
    });
    [
        apart,
        of_one.over(
            UPDATES_APART,
            1.0,
            "of a key each",
            Some(Bound::AtLeast(0.7)),
        ),
        Row::told(TAIL_OF_UPDATES, Unit::Nanoseconds, ours()).bound(Bound::AtMost(2_000_000.0)),
    ]
}

/// Overwrites random keys, each in a commit of its own, and sees that they are there.
pub fn put_random(
    store: &dyn Store,
    keys: u64,
    threads: usize,
    turn: Turn,
    value_bytes: usize,
) -> Fallible<Timed> {
    // Tells this turn's values from all others.
    let tag = turn.seed << 40;
    let last: Vec<_> = (0..threads).map(|_| AtomicU64::new(0)).collect();
    let timed = run_on(threads, turn.sample, 1, |thread| {
        let mut rng = Rng::with_seed(turn.seed ^ thread as u64);
        let last = &last[thread];
        Ok(move || {
            let number = rng.u64(..keys);
            let mut value = [0; LARGE_VALUE_BYTES];
            let value = &mut value[..value_bytes];
            fill(number | tag, value);
            last.store(number, Ordering::Relaxed);
            store.put(&key(number), value)
        })
    })?;
    let reader = store.reader()?;
    for last in last {
        let number = last.into_inner();
        let mut see = |value: &[u8]| {
            let is_right = is_value_of(value, number | tag, value_bytes);
            check(is_right, "a commit is not what is read afterwards")
        };
        check(reader.get(&key(number), &mut see)?, "a key is gone")?;
    }
    Ok(timed)
}

/// Commits and F, measured in slices that take turns.
pub struct Alternating {
    pub own: Timed,
    pub raw: Timed,
}

/// Commits of one thread in slices, each behind a slice of F: the disk is faster at one moment than at another, and
/// so both meet the same moments.
pub fn alternating(
    stage: &Stage,
    turn: Turn,
    raw: &mut Option<RawFile>,
    value_bytes: usize,
) -> Fallible<Alternating> {
    const SLICES: u32 = 10;
    let raw = match raw {
        Some(raw) => raw,
        none => {
            let path = stage.fresh_directory("raw-beside");
            none.insert(RawFile::create(&path, u64::MAX)?)
        }
    };
    let system = stage.system(turn.contestant)?;
    let store = stage.store_of(system, Dataset::Durable, value_bytes)?;
    store.recycle_log()?;
    let mut both = Alternating {
        own: Timed::nothing(),
        raw: Timed::nothing(),
    };
    let mut flushed = Flushed::default();
    for slice in 0..SLICES {
        let turn = Turn {
            sample: turn.sample / SLICES,
            seed: turn.seed.wrapping_add(u64::from(slice)),
            ..turn
        };
        both.raw.join(&raw.flush_loop(RAW_BYTES, turn.sample)?)?;
        let before = Flushed::until_now(stage, &*store);
        let keys = stage.scale.small;
        both.own
            .join(&put_random(&*store, keys, 1, turn, value_bytes)?)?;
        flushed.add(&Flushed::until_now(stage, &*store).since(&before));
    }
    flushed.check(both.own.operations, 1)?;
    Ok(both)
}

/// Commits of several threads.
pub fn durable(
    stage: &Stage,
    turn: Turn,
    threads: usize,
    value_bytes: usize,
) -> Fallible<(Timed, Sample)> {
    let system = stage.system(turn.contestant)?;
    let store = stage.store_of(system, Dataset::Durable, value_bytes)?;
    store.recycle_log()?;
    let before = Flushed::until_now(stage, &*store);
    let timed = put_random(&*store, stage.scale.small, threads, turn, value_bytes)?;
    let flushed = Flushed::until_now(stage, &*store).since(&before);
    flushed.check(timed.operations, threads as u64)?;
    let commits = timed.operations as f64;
    let sample = Sample::rate(Timed {
        latency: timed.latency.clone(),
        ..timed
    });
    let sample = match flushed.by_store.or(flushed.by_disk) {
        Some(count) => sample.note("commits per flush", commits / count.max(1) as f64),
        None => sample,
    };
    Ok((timed, sample))
}

/// Additions of 1 by several threads, which share so many keys, and see that none is lost. Returns P99.9 in nanoseconds, too.
fn updates(stage: &Stage, turn: Turn, threads: usize, keys: usize) -> Fallible<(f64, Sample)> {
    let system = stage.system(turn.contestant)?;
    let store = stage.store(system, Dataset::Durable)?;
    let store = &*store;
    let key = |number: usize| format!("updated/{keys}/{number}").into_bytes();
    let sum = || -> Fallible<i64> {
        let sums = (0..keys).map(|number| store.add(&key(number), 0));
        sums.sum()
    };
    let earlier = sum()?;
    let before = Flushed::until_now(stage, store);
    let timed = run_on(threads, turn.sample, 1, |thread| {
        let (key, mut last) = (key(thread % keys), 0);
        Ok(move || {
            let sum = store.add(&key, 1)?;
            check(sum > last, "a sum does not grow")?;
            last = sum;
            Ok(())
        })
    })?;
    let flushed = Flushed::until_now(stage, store).since(&before);
    flushed.check(timed.operations, threads as u64)?;
    let added = sum()? - earlier;
    check(
        added as u64 == timed.operations,
        "an update was lost or done twice",
    )?;
    let (tail, updates) = (timed.latency.value_at_quantile(0.999), timed.operations);
    let sample = Sample::rate(timed);
    let sample = match flushed.by_store.or(flushed.by_disk) {
        Some(count) => sample.note("updates per flush", updates as f64 / count.max(1) as f64),
        None => sample,
    };
    Ok((tail as f64, sample))
}

/// Commits of one thread that goes on while up to sixteen of them are not durable yet.
fn under_way(stage: &Stage, turn: Turn) -> Fallible<Sample> {
    const UNDER_WAY_MAX: usize = 16;
    let system = stage.system(turn.contestant)?;
    let store = stage.store(system, Dataset::Durable)?;
    let tag = turn.seed << 40;
    let mut rng = Rng::with_seed(turn.seed);
    let mut commits = store.commits_under_way(UNDER_WAY_MAX)?;
    let before = Flushed::until_now(stage, &*store);
    let processor = processor_time()?;
    let mut last = 0;
    let mut timed = run_for(turn.sample, 1, || {
        last = rng.u64(..stage.scale.small);
        let mut value = [0; VALUE_BYTES];
        fill(last | tag, &mut value);
        commits.put(&key(last), &value)
    })?;
    let (waited, ()) = time(|| commits.wait())?;
    timed.elapsed += waited;
    let processor = processor_time()?.saturating_sub(processor);
    let flushed = Flushed::until_now(stage, &*store).since(&before);
    flushed.check(timed.operations, UNDER_WAY_MAX as u64)?;
    let mut see = |value: &[u8]| {
        let is_right = is_value_of(value, last | tag, VALUE_BYTES);
        check(is_right, "a commit is not what is read afterwards")
    };
    check(store.reader()?.get(&key(last), &mut see)?, "a key is gone")?;
    let each_us = processor.as_micros() as f64 / timed.operations as f64;
    // The latencies are of calls that do not wait, or wait for another one.
    let sample = Sample {
        latency: None,
        ..Sample::rate(timed)
    };
    Ok(sample.note("µs of the processors per commit", each_us))
}

/// Counts of flushes: until a moment, or within a time.
#[derive(Clone, Copy, Default)]
struct Flushed {
    /// By the kernel's count, for whomever.
    by_disk: Option<u64>,
    /// By the store's own count.
    by_store: Option<u64>,
}

impl Flushed {
    fn until_now(stage: &Stage, store: &dyn Store) -> Flushed {
        Flushed {
            by_disk: stage.flushes.count(),
            by_store: store.counts().flushes,
        }
    }

    fn since(self, before: &Flushed) -> Flushed {
        let difference =
            |before: Option<u64>, after: Option<u64>| Some(after?.saturating_sub(before?));
        Flushed {
            by_disk: difference(before.by_disk, self.by_disk),
            by_store: difference(before.by_store, self.by_store),
        }
    }

    /// What was counted in a slice, to what was counted in those before. Nothing is known of no slices.
    fn add(&mut self, slice: &Flushed) {
        let sum = |all: Option<u64>, slice: Option<u64>| Some(all.unwrap_or(0) + slice?);
        self.by_disk = sum(self.by_disk, slice.by_disk);
        self.by_store = sum(self.by_store, slice.by_store);
    }

    /// A store that flushes by time has flushed: once in ten times as long as it may wait, at least.
    fn check_timely(&self, elapsed: Duration) -> Fallible<()> {
        let least = elapsed.as_millis() / (10 * BATCHED_EVERY).as_millis();
        match self.by_store.or(self.by_disk) {
            Some(flushes) if u128::from(flushes) < least => {
                let what = format!("flushed {flushes} times in {elapsed:.0?}");
                Err(Void(what).into())
            }
            _ => Ok(()),
        }
    }

    /// Each thread waits for a flush of its own commit; so no flush serves more commits than there
    /// are threads.
    fn check(&self, commits: u64, threads: u64) -> Fallible<()> {
        if let Some(flushes) = self.by_store
            && flushes * threads < commits
        {
            return Err(Void(format!("counts {flushes} flushes for {commits} commits")).into());
        }
        // The kernel may join flushes of different files, such as a neighbor's, into one: half
        // is allowed for that. A store that does not flush makes next to none.
        if let Some(flushes) = self.by_disk
            && 2 * flushes * threads < commits
        {
            let what = format!("the disk flushed {flushes} times for {commits} commits");
            return Err(Void(what).into());
        }
        Ok(())
    }
}

fn batched(stage: &Stage, turn: Turn) -> Fallible<Sample> {
    let system = stage.system(turn.contestant)?;
    let store = stage.store(system, Dataset::Batched)?;
    let store = &*store;
    let before = Flushed::until_now(stage, store);
    let timed = flushing(system, store, || {
        put_random(store, stage.scale.small, 1, turn, VALUE_BYTES)
    })?;
    let flushed = Flushed::until_now(stage, store).since(&before);
    flushed.check_timely(timed.elapsed)?;
    store.sync()?;
    let seconds = timed.elapsed.as_secs_f64();
    let sample = Sample::time(timed);
    Ok(match flushed.by_store.or(flushed.by_disk) {
        Some(count) => sample.note("flushes per second", count as f64 / seconds),
        None => sample,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_does_not_flush_is_void() {
        let flushed = |by_disk, by_store| Flushed { by_disk, by_store };
        let is_void = |flushed: Flushed, commits, threads| {
            let result = flushed.check(commits, threads);
            result.is_err_and(|error| error.is::<Void>())
        };
        assert!(!is_void(flushed(Some(100), Some(100)), 100, 1));
        assert!(is_void(flushed(Some(100), Some(99)), 100, 1));
        assert!(!is_void(flushed(Some(7), None), 100, 16));
        assert!(is_void(flushed(Some(3), None), 100, 16));
        // Of commits that all return without a flush, by a store that does not count.
        assert!(is_void(flushed(Some(2), None), 100_000, 1));
        // Nothing is known, so nothing is said.
        assert!(!is_void(flushed(None, None), 100, 1));
    }

    #[test]
    fn flushes_of_slices_are_counted_together() {
        let slice = |by_disk, by_store| Flushed { by_disk, by_store };
        let mut all = Flushed::default();
        all.add(&slice(Some(3), None));
        all.add(&slice(Some(4), None));
        assert_eq!((all.by_disk, all.by_store), (Some(7), None));
        let later = slice(Some(9), Some(5)).since(&slice(Some(4), Some(5)));
        assert_eq!((later.by_disk, later.by_store), (Some(5), Some(0)));
    }

    #[test]
    fn a_store_that_should_flush_by_time_and_does_not_is_void() {
        let is_void = |by_store, elapsed| {
            let flushed = Flushed {
                by_disk: Some(1_000),
                by_store,
            };
            flushed
                .check_timely(elapsed)
                .is_err_and(|error| error.is::<Void>())
        };
        let second = Duration::from_secs(1);
        assert!(!is_void(Some(90), second));
        assert!(is_void(Some(9), second));
        assert!(is_void(Some(0), second));
        // A smoke test is over before a flush is due.
        assert!(!is_void(Some(0), BATCHED_EVERY));
    }
}
