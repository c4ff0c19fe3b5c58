//! S8: opening a store whose last moments are only in its log.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;

use fastrand::Rng;

use super::stage::{Stage, fill};
use crate::data::{ENTRY_BYTES, VALUE_BYTES, is_value_of, key};
use crate::fallible::Fallible;
use crate::machine::{allocated_bytes, copy, wait_until_nothing_is_written};
use crate::measure::{Row, Sample, Turn, check};
use crate::result::{Bound, Unit};
use crate::store::{Durability, Settings, Store, System, flushing};
use crate::timing::time;

pub fn rows(stage: &Stage) -> Vec<Row<'_>> {
    let images = RefCell::new(HashMap::new());
    let takes_part = stage.names(|system| system.has_log);
    let row = Row::new(
        "S8 recovery of a log",
        Unit::BytesPerSecond,
        takes_part,
        move |turn| recover(stage, turn, &mut images.borrow_mut()),
    );
    vec![
        row.long()
            .remark(format!(
                "{} MiB of keys and values in the log, in the page cache; until the first read is answered",
                stage.scale.recovered_bytes >> 20
            ))
            .bound(Bound::AtLeast(1e9))
            .beside("RocksDB", Some(5.0))
            .beside("fjall", Some(5.0))
            .beside("SurrealKV", None),
    ]
}

fn settings(stage: &Stage) -> Settings {
    Settings {
        durability: Durability::Batched,
        // Nothing goes to tables, neither before nor while it recovers.
        memtable_bytes: (4 * stage.scale.recovered_bytes as usize).max(64 << 20),
        cache_bytes: 64 << 20,
    }
}

/// What a kill would leave behind: the files of a store that is open and rests.
fn image(stage: &Stage, system: &'static System, keys: u64) -> Fallible<PathBuf> {
    let path = stage.fresh_directory(system.name);
    let store = (system.open)(&path, &settings(stage))?;
    flushing(system, &*store, || fill(&*store, keys))?;
    store.sync()?;
    wait_until_nothing_is_written()?;
    let image = stage.fresh_directory(system.name);
    copy(&path, &image)?;
    drop(store);
    std::fs::remove_dir_all(&path)?;
    Ok(image)
}

fn recover(
    stage: &Stage,
    turn: Turn,
    images: &mut HashMap<&'static str, PathBuf>,
) -> Fallible<Sample> {
    let system = stage.system(turn.contestant)?;
    let keys = stage.scale.recovered_bytes / ENTRY_BYTES;
    let image = match images.get(system.name) {
        Some(image) => image,
        None => {
            let made = image(stage, system, keys)?;
            images.entry(system.name).or_insert(made)
        }
    };
    let path = stage.fresh_directory(system.name);
    copy(image, &path)?;
    let files = allocated_bytes(&path)?;
    let (elapsed, store) = time(|| {
        let store = (system.open)(&path, &settings(stage))?;
        check_key(&*store, keys - 1)?;
        Ok(store)
    })?;
    let mut rng = Rng::with_seed(turn.seed);
    for _ in 0..1_000 {
        check_key(&*store, rng.u64(..keys))?;
    }
    drop(store);
    std::fs::remove_dir_all(&path)?;
    let bytes = (keys * ENTRY_BYTES) as f64;
    let sample = Sample::figure(bytes / elapsed.as_secs_f64());
    Ok(sample.note("bytes of files", files as f64))
}

fn check_key(store: &dyn Store, number: u64) -> Fallible<()> {
    let mut see = |value: &[u8]| {
        let is_right = is_value_of(value, number, VALUE_BYTES);
        check(is_right, "another value after recovery")
    };
    let found = store.reader()?.get(&key(number), &mut see)?;
    check(found, "a key is gone after recovery")
}
