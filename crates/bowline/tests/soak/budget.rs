//! A budget of memory, of which the kernel gives no more, and far more data than it: written, overwritten,
//! merged, scanned and watched.
//!
//! The work is done by a process of its own, whose writable memory is bounded by `RLIMIT_DATA`: its heap, its
//! stacks, everything that is not a file. An allocation above it ends the process. That counts addresses, and
//! so what the allocator keeps of what it was given back: the memtables, the cache and the ring take two
//! thirds, and the rest is for indexes, filters, merges and for that.
//!
//! `BOWLINE_BUDGET_MIB` sets how much passes through (default 512; the figure to hold is 4096).

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bowline::{Db, DbBuilder, Result};
use bowline_testing::Seed;
use fastrand::Rng;
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::{alone, setting};

const BUDGET_BYTES: u64 = 256 << 20;
/// Up to five memtables exist at once.
const MEMTABLE_BYTES: usize = 24 << 20;
const CACHE_BYTES: u64 = 32 << 20;
const RING_BYTES: u64 = 16 << 20;

const VALUE_BYTES: usize = 1000;
const KEYS: u64 = 300_000;
const PUTS_PER_COMMIT: u64 = 500;
/// Where the child finds its directory. Without it, it is the parent.
const CHILD: &str = "BOWLINE_BUDGET_CHILD";
const TEST: &str = "budget::a_budget_holds_while_far_more_passes_through";

fn within_budget() -> DbBuilder {
    Db::builder()
        .memtable_bytes(MEMTABLE_BYTES)
        .cache_bytes(CACHE_BYTES)
        .watch_ring_bytes(RING_BYTES)
}

/// A value that does not compress, begins with its key's number and can be told to be whole.
fn value(key: u64, rng: &mut Rng) -> Vec<u8> {
    let mut value = vec![0; VALUE_BYTES];
    rng.fill(&mut value[16..]);
    value[..8].copy_from_slice(&key.to_be_bytes());
    let sum = sum_of(&value[16..]);
    value[8..16].copy_from_slice(&sum.to_be_bytes());
    value
}

fn sum_of(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    words.fold(0, |sum: u64, word| {
        sum.rotate_left(5) ^ u64::from_be_bytes(word.try_into().expect("eight bytes"))
    })
}

fn is_whole(key: u64, value: &[u8]) -> bool {
    value.len() == VALUE_BYTES
        && value[..8] == key.to_be_bytes()
        && value[8..16] == sum_of(&value[16..]).to_be_bytes()
}

/// Every entry, in order; gives how many there are.
fn scan(db: &Db) -> Result<u64> {
    let mut last = None;
    let mut count = 0;
    for entry in db.range(..)? {
        let entry = entry?;
        let key = u64::from_be_bytes(entry.key[..].try_into().expect("eight bytes"));
        assert!(Some(key) > last, "{key} after {last:?}");
        assert!(is_whole(key, &entry.value), "the value of {key}");
        (last, count) = (Some(key), count + 1);
    }
    Ok(count)
}

/// The child: fills, merges and scans, and says what passed through.
fn pass_through(path: &Path, bytes: u64) -> Result<()> {
    let limit = Rlimit {
        current: Some(BUDGET_BYTES),
        maximum: Some(BUDGET_BYTES),
    };
    setrlimit(Resource::Data, limit).expect("one may always ask for less");
    let mut rng = Rng::with_seed(Seed::from_env_or(43).0);
    let mut written = std::collections::HashSet::new();
    let commits = bytes / (PUTS_PER_COMMIT * VALUE_BYTES as u64);
    let db = within_budget().open(path)?;
    // One that never looks: it must cost the ring and no more.
    let mut idle = db.watch(..).start()?;
    for commit in 0..commits {
        let mut tx = db.begin();
        for _ in 0..PUTS_PER_COMMIT {
            let key = rng.u64(..KEYS);
            written.insert(key);
            tx.put(key.to_be_bytes(), value(key, &mut rng))?;
        }
        tx.commit()?;
        if commit == commits / 2 {
            assert_eq!(scan(&db)?, written.len() as u64);
        }
    }
    assert!(idle.recv_timeout(Duration::ZERO)?.is_some());
    drop(idle);
    db.compact()?;
    assert_eq!(scan(&db)?, written.len() as u64);
    for _ in 0..10_000 {
        let key = rng.u64(..KEYS);
        let found = db.get(key.to_be_bytes())?;
        assert_eq!(found.is_some(), written.contains(&key));
        assert!(found.is_none_or(|found| is_whole(key, &found)));
    }
    let counters = db.stats().engine.counters;
    println!(
        "{} commits, {} flushes, {} merges",
        commits, counters.flushes, counters.compactions
    );
    db.close()?;
    // What is in the log is read again, within the same memory.
    let db = within_budget().open(path)?;
    assert_eq!(scan(&db)?, written.len() as u64);
    db.close()
}

#[test]
fn a_budget_holds_while_far_more_passes_through() -> Result<()> {
    let bytes = setting("BOWLINE_BUDGET_MIB", 512) << 20;
    if let Some(path) = std::env::var_os(CHILD) {
        return pass_through(Path::new(&path), bytes);
    }
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", TEST, "--nocapture", "--test-threads=1"])
        .env(CHILD, directory.path().join("data"))
        .output()
        .expect("a process");
    let told = String::from_utf8_lossy(&child.stdout);
    let complained = String::from_utf8_lossy(&child.stderr);
    assert!(
        child.status.success(),
        "{}\n{told}\n{complained}",
        child.status
    );
    assert!(told.contains("flushes"), "it did not run: {told}");
    let line = told.lines().find(|line| line.contains("flushes"));
    println!(
        "{} MiB through {} MiB: {}",
        bytes >> 20,
        BUDGET_BYTES >> 20,
        line.unwrap_or_default()
    );
    Ok(())
}
