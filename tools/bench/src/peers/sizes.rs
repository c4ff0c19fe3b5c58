//! S9 and S10: memory under a budget, and what an empty database takes.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::stage::Stage;
use crate::data::{ENTRY_BYTES, VALUE_BYTES, is_value_of, key, number_of, value};
use crate::fallible::Fallible;
use crate::machine::{
    allocated_bytes, anonymous_bytes, take_large_pages_from, wait_until_nothing_is_written,
};
use crate::measure::{Row, Sample, Turn, Void, check};
use crate::result::{Bound, Unit};
use crate::store::{Durability, Settings, System, flushing, system};

pub fn rows(stage: &Stage) -> Vec<Row<'_>> {
    let budget = stage.scale.budget_bytes;
    let memory = Row::new(
        "S9 memory under a budget",
        Unit::Bytes,
        stage.names(|system| system.has_budget),
        move |turn| memory(stage, turn),
    );
    let empty = Row::new(
        "S10 an empty database on disk",
        Unit::Bytes,
        stage.names(|_| true),
        move |turn| empty(stage, turn),
    );
    vec![
        memory
            .once()
            .remark(format!(
                "the most anonymous memory of a process with a budget of {} MiB, while {} MiB are written, merged and scanned",
                budget >> 20,
                stage.scale.budget_written_bytes >> 20
            ))
            .bound(Bound::AtMost(budget as f64))
            .beside("RocksDB", None)
            .beside("fjall", None)
            .beside("redb", None)
            .beside("SurrealKV", None),
        empty
            .long()
            .remark("allocated blocks, once closed")
            .bound(Bound::AtMost(32.0 * 1024.0))
            .beside("RocksDB", None)
            .beside("fjall", None)
            .beside("redb", None)
            .beside("LMDB", None)
            .beside("SurrealKV", None),
    ]
}

fn memory(stage: &Stage, turn: Turn) -> Fallible<Sample> {
    let system = stage.system(turn.contestant)?;
    let path = stage.fresh_directory(system.name);
    let scale = &stage.scale;
    let mut command = Command::new(&stage.program);
    // A page of 2 MiB of which a part is used counts whole: nobody has them here.
    take_large_pages_from(&mut command);
    let mut child = command
        .args(["child-memory", system.name])
        .arg(&path)
        .args([
            scale.budget_bytes.to_string(),
            scale.budget_written_bytes.to_string(),
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let start = Instant::now();
    while child.try_wait()?.is_none() {
        if start.elapsed() > scale.budget_max {
            child.kill()?;
            child.wait()?;
            std::fs::remove_dir_all(&path)?;
            let took = format!("took longer than {} s", scale.budget_max.as_secs());
            return Err(Void(took).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let peak: Option<f64> = text.trim().parse().ok();
    let Some(peak) = peak.filter(|_| output.status.success()) else {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the process of its own failed: {text}{error}").into());
    };
    std::fs::remove_dir_all(&path)?;
    Ok(Sample::figure(peak))
}

/// What the process of [`memory`] does. Gives the most anonymous memory it had.
pub fn memory_child(name: &str, path: &Path, budget: u64, written: u64) -> Fallible<u64> {
    let system = system(name)?;
    let most = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                most.fetch_max(anonymous_bytes()?, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(2));
            }
            Fallible::Ok(())
        });
        let result = under_budget(system, path, budget, written);
        is_over.store(true, Ordering::Relaxed);
        watcher.join().map_err(|_| "the watcher panicked")??;
        result
    })?;
    Ok(most.into_inner())
}

fn under_budget(system: &System, path: &Path, budget: u64, written: u64) -> Fallible<()> {
    let settings = Settings {
        durability: Durability::Batched,
        // Up to five memtables may exist, of Bowline as of RocksDB. A quarter is left for the filters and
        // indexes of tables and for merges, which no setting of these stores counts.
        memtable_bytes: budget as usize / 8,
        cache_bytes: budget as usize / 8,
    };
    let store = (system.open)(path, &settings)?;
    let puts = written / ENTRY_BYTES;
    // Each key is written twice or so.
    let keys = (puts / 2).max(1);
    let mut rng = Rng::with_seed(crate::data::SEED);
    flushing(system, &*store, || {
        for _ in 0..puts / 100 {
            let entries: Vec<_> = (0..100)
                .map(|_| rng.u64(..keys))
                .map(|n| (key(n), value(n).to_vec()))
                .collect();
            store.put_all(&entries)?;
        }
        Ok(())
    })?;
    let store = store.settle()?;
    wait_until_nothing_is_written()?;
    let mut seen = 0;
    let mut see = |key: &[u8], value: &[u8]| {
        let is_right = number_of(key).is_some_and(|n| is_value_of(value, n, VALUE_BYTES));
        check(is_right, "a scan gave another value")?;
        seen += 1;
        Ok(())
    };
    store.reader()?.scan(u64::MAX >> 1, &mut see)?;
    // Of so many puts of random keys all but an e²-th part of the keys were hit.
    check(seen as f64 > 0.8 * keys as f64, "keys are missing")
}

fn empty(stage: &Stage, turn: Turn) -> Fallible<Sample> {
    let system = stage.system(turn.contestant)?;
    let path = stage.fresh_directory(system.name);
    let settings = Settings {
        durability: Durability::Sync,
        memtable_bytes: 64 << 20,
        cache_bytes: 64 << 20,
    };
    drop((system.open)(&path, &settings)?);
    let bytes = allocated_bytes(&path)?;
    check(bytes > 0, "nothing on disk")?;
    std::fs::remove_dir_all(&path)?;
    Ok(Sample::figure(bytes as f64))
}
