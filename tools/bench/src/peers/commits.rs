//! S1 and S2: commits that return when they are flushed, and one row of those that do not.

use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;

use super::stage::{Dataset, F, Stage};
use crate::data::{VALUE_BYTES, fill, is_value_of, key};
use crate::fallible::Fallible;
use crate::measure::{Row, Sample, Turn, Void, check};
use crate::result::{Bound, Unit};
use crate::store::{Store, flushing};
use crate::timing::{Timed, run_on};

const ONE: &str = "S1 durable commit, 1 thread";

pub fn rows(stage: &Stage) -> Vec<Row<'_>> {
    let everyone = || stage.names(|_| true);
    let durable_by = |name, threads: usize| {
        Row::new(name, Unit::PerSecond, everyone(), move |turn| {
            durable(stage, turn, threads)
        })
    };
    let batched = Row::new(
        "`Batched` commit, 100 K keys",
        Unit::Nanoseconds,
        everyone(),
        move |turn| batched(stage, turn),
    );
    vec![
        durable_by(ONE, 1)
            .over(F, 1.0, "F", Some(Bound::AtLeast(0.93)))
            .beside("RocksDB", Some(1.0))
            .beside("fjall", Some(1.0))
            .beside("redb", Some(1.0))
            .beside("LMDB", Some(1.0))
            .beside("SurrealKV", Some(1.0)),
        durable_by("S2 durable commit, 16 threads", 16)
            .over(F, 1.0, "F", None)
            .over(ONE, 16.0, "of 16 × 1 thread", Some(Bound::AtLeast(0.7)))
            .beside("RocksDB", Some(2.0))
            .beside("SurrealKV", None),
        durable_by("S2 durable commit, 64 threads", 64)
            .over(F, 1.0, "F", None)
            .beside("RocksDB", Some(1.5))
            .beside("SurrealKV", None),
        batched
            .bound(Bound::AtMost(1_000.0))
            .beside("RocksDB", None)
            .beside("fjall", None)
            .beside("redb", None)
            .beside("LMDB", None)
            .beside("SurrealKV", None),
    ]
}

/// Overwrites random keys, each in a commit of its own, and sees that they are there.
pub fn put_random(store: &dyn Store, keys: u64, threads: usize, turn: Turn) -> Fallible<Timed> {
    // Tells this turn's values from all others.
    let tag = turn.seed << 40;
    let last: Vec<_> = (0..threads).map(|_| AtomicU64::new(0)).collect();
    let timed = run_on(threads, turn.sample, 1, |thread| {
        let mut rng = Rng::with_seed(turn.seed ^ thread as u64);
        let last = &last[thread];
        Ok(move || {
            let number = rng.u64(..keys);
            let mut value = [0; VALUE_BYTES];
            fill(number | tag, &mut value);
            last.store(number, Ordering::Relaxed);
            store.put(&key(number), &value)
        })
    })?;
    let reader = store.reader()?;
    for last in last {
        let number = last.into_inner();
        let mut see = |value: &[u8]| {
            let is_right = is_value_of(value, number | tag, VALUE_BYTES);
            check(is_right, "a commit is not what is read afterwards")
        };
        check(reader.get(&key(number), &mut see)?, "a key is gone")?;
    }
    Ok(timed)
}

fn durable(stage: &Stage, turn: Turn, threads: usize) -> Fallible<Sample> {
    let system = stage.system(turn.contestant)?;
    let store = stage.store(system, Dataset::Durable)?;
    let (disk, own) = (stage.flushes.count(), store.counts());
    let timed = put_random(&*store, stage.scale.small, threads, turn)?;
    let flushes = Flushed {
        by_disk: difference(disk, stage.flushes.count()),
        by_store: difference(own.flushes, store.counts().flushes),
    };
    flushes.check(timed.operations, threads as u64)?;
    let commits = timed.operations as f64;
    let sample = Sample::rate(timed);
    Ok(match flushes.by_store.or(flushes.by_disk) {
        Some(count) if threads > 1 => {
            sample.note("commits per flush", commits / count.max(1) as f64)
        }
        _ => sample,
    })
}

fn difference(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    Some(after?.saturating_sub(before?))
}

/// Flushes during a sample.
struct Flushed {
    /// By the kernel's count, for whomever.
    by_disk: Option<u64>,
    /// By the store's own count.
    by_store: Option<u64>,
}

impl Flushed {
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
    let timed = flushing(system, store, || {
        put_random(store, stage.scale.small, 1, turn)
    })?;
    store.sync()?;
    Ok(Sample::time(timed))
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
}
