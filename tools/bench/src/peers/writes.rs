//! S6 and S7: overwriting more than memory holds, and how much is written for it.

use std::time::Instant;

use fastrand::Rng;

use super::stage::{Dataset, Stage};
use crate::data::{ENTRY_BYTES, KEY_BYTES, LARGE_VALUE_BYTES, VALUE_BYTES, fill, is_value_of, key};
use crate::fallible::Fallible;
use crate::machine::{wait_until_nothing_is_written, written_bytes};
use crate::measure::{Row, Sample, Turn, check};
use crate::result::{Bound, Unit};
use crate::store::{Durability, Settings, Store, flushing};

const OVERWRITE: &str = "S6 sustained random overwrite";
const OVERWRITE_BYTES: &str = "S6 bytes written per byte put";
const AMPLIFICATION: &str = "S7 bytes written per byte put, 1 KiB values";
const BEYOND_LOG: &str = "S7 of these, beyond the log";

/// Puts in one transaction.
const TRANSACTION: usize = 100;

pub fn rows(stage: &Stage) -> Vec<Row<'_>> {
    let everyone = || stage.names(|_| true);
    let scale = &stage.scale;
    // 1.05 of RocksDB's bytes.
    let bytes_of_rocksdb = Some(1.0 / 1.05);
    vec![
        Row::new(OVERWRITE, Unit::PerSecond, everyone(), move |turn| {
            overwrite(stage, turn)
        })
        .long()
        .remark(format!(
            "transactions of {TRANSACTION} puts of 100 bytes, `Batched`, until nothing is left to merge; memtable {} MiB, four times as much data",
            scale.overwrite_memtable_bytes >> 20
        ))
        .beside("RocksDB", Some(2.0))
        .beside("fjall", Some(2.0))
        .beside("redb", None)
        .beside("LMDB", None)
        .beside("SurrealKV", None),
        Row::told(OVERWRITE_BYTES, Unit::Times, everyone())
            .remark("log, tables and all else, until nothing more is written")
            .beside("RocksDB", bytes_of_rocksdb)
            .beside("fjall", None)
            .beside("redb", None)
            .beside("LMDB", None)
            .beside("SurrealKV", None),
        Row::new(AMPLIFICATION, Unit::Times, everyone(), move |turn| {
            amplification(stage, turn)
        })
        .long()
        .remark(format!(
            "{} MiB of data written and overwritten ten times, through a memtable of {} MiB",
            scale.amplified_bytes >> 20,
            scale.amplified_memtable_bytes >> 20
        ))
        .beside("RocksDB", None)
        .beside("fjall", None)
        .beside("redb", None)
        .beside("LMDB", None)
        .beside("SurrealKV", None),
        Row::told(BEYOND_LOG, Unit::Times, everyone())
            .bound(Bound::AtMost(1.2))
            .remark("where the store counts it"),
    ]
}

fn overwrite(stage: &Stage, turn: Turn) -> Fallible<Sample> {
    let system = stage.system(turn.contestant)?;
    let store = stage.store(system, Dataset::Overwritten)?;
    let store = &*store;
    let keys = stage.keys(Dataset::Overwritten);
    let tag = turn.seed << 40;
    let mut rng = Rng::with_seed(turn.seed);
    let before = written_bytes()?;
    let parts_before = store.counts().written;
    let start = Instant::now();
    let mut puts = 0;
    let mut last = Vec::new();
    flushing(system, store, || {
        while puts < keys && start.elapsed() < stage.scale.overwrite_max {
            let entries: Vec<_> = (0..TRANSACTION)
                .map(|_| {
                    let number = rng.u64(..keys);
                    last.push(number);
                    let mut value = vec![0; VALUE_BYTES];
                    fill(number | tag, &mut value);
                    (key(number), value)
                })
                .collect();
            store.put_all(&entries)?;
            puts += entries.len() as u64;
        }
        Ok(())
    })?;
    store.sync()?;
    let acknowledged = start.elapsed();
    // What was put off is paid before the clock stops: debt is what it was, none.
    let elapsed = wait_until_nothing_is_written()? - start;
    let written = written_bytes()? - before;
    let sampled = last.len().div_ceil(1_000);
    check_values(store, last.into_iter().step_by(sampled), tag, VALUE_BYTES)?;
    let per_byte = |bytes: u64| bytes as f64 / (puts * ENTRY_BYTES) as f64;
    let sample = Sample::figure(puts as f64 / elapsed.as_secs_f64());
    let merging = elapsed.saturating_sub(acknowledged).as_secs_f64();
    let sample = sample
        .also(OVERWRITE_BYTES, per_byte(written))
        .note("seconds of merging behind the last put", merging);
    let (Some(before), Some(after)) = (parts_before, store.counts().written) else {
        return Ok(sample);
    };
    Ok(sample
        .note(
            "bytes per byte, of the log",
            per_byte(after.log - before.log),
        )
        .note("zeros before it", per_byte(after.zeros - before.zeros))
        .note("of flushes", per_byte(after.flushed - before.flushed))
        .note("of merges", per_byte(after.merged - before.merged)))
}

fn check_values(
    store: &dyn Store,
    numbers: impl Iterator<Item = u64>,
    tag: u64,
    length: usize,
) -> Fallible<()> {
    let reader = store.reader()?;
    for number in numbers {
        let mut see = |value: &[u8]| {
            let is_right = is_value_of(value, number | tag, length);
            check(is_right, "a key does not have its newest value")
        };
        check(reader.get(&key(number), &mut see)?, "a key is gone")?;
    }
    Ok(())
}

fn amplification(stage: &Stage, turn: Turn) -> Fallible<Sample> {
    const PASSES: u64 = 11;
    let system = stage.system(turn.contestant)?;
    let path = stage.fresh_directory(system.name);
    let settings = Settings {
        durability: Durability::Batched,
        memtable_bytes: stage.scale.amplified_memtable_bytes,
        cache_bytes: 64 << 20,
    };
    let before = written_bytes()?;
    let store = (system.open)(&path, &settings)?;
    let mut numbers: Vec<u64> =
        (0..stage.scale.amplified_bytes / LARGE_VALUE_BYTES as u64).collect();
    let mut rng = Rng::with_seed(turn.seed);
    flushing(system, &*store, || {
        for pass in 0..PASSES {
            rng.shuffle(&mut numbers);
            for chunk in numbers.chunks(TRANSACTION) {
                let entry = |&number: &u64| {
                    let mut value = vec![0; LARGE_VALUE_BYTES];
                    fill(number | (pass << 40), &mut value);
                    (key(number), value)
                };
                store.put_all(&chunk.iter().map(entry).collect::<Vec<_>>())?;
            }
        }
        Ok(())
    })?;
    store.sync()?;
    wait_until_nothing_is_written()?;
    let written = written_bytes()? - before;
    let put = PASSES * numbers.len() as u64 * (KEY_BYTES + LARGE_VALUE_BYTES) as u64;
    check_values(
        &*store,
        numbers.into_iter(),
        (PASSES - 1) << 40,
        LARGE_VALUE_BYTES,
    )?;
    let tables = store.counts().written.map(|it| it.flushed + it.merged);
    drop(store);
    std::fs::remove_dir_all(&path)?;
    let sample = Sample::figure(written as f64 / put as f64);
    Ok(match tables {
        Some(bytes) => sample.also(BEYOND_LOG, bytes as f64 / put as f64),
        None => sample,
    })
}
