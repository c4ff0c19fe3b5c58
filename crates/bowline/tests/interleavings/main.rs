//! Interleavings: the shipped code under a scheduler that decides, at every operation on what
//! threads share, which thread goes on.
//!
//! Only in the build with `--cfg bowline_shuttle`, where `bowline_storage::sync` gives the scheduler
//! its say; run it with `checks/interleavings`. Each test here is a small program of a few threads
//! that is run under many schedules: half of them random, half by PCT, which runs threads by
//! priority and changes priorities at a few random points, and so is sure to find a bug that needs
//! few of them with a probability that can be computed
//! (<https://doi.org/10.1145/1736020.1736040>). A wake-up that is lost is found as a deadlock.
//!
//! What these schedules cannot show is a missing `Acquire` or `Release`: all is sequentially
//! consistent here. `checks/miri` and `checks/tsan` are for that.
#![cfg(bowline_shuttle)]

mod cache;
mod close;
mod commit;
mod explore;
mod graph_view;
mod ingest;
mod leases;
mod memtable;
mod swap;
mod vfs;
mod visible;
mod watch;

use std::sync::Arc;

use bowline::{Background, Db, DbBuilder};
use bowline_storage::vfs::{MemoryVfs, Vfs};

/// A small database with all of its threads.
fn builder(vfs: Arc<dyn Vfs>) -> DbBuilder {
    Db::builder()
        .vfs(vfs)
        .background(Background::Threads)
        .memtable_bytes(64 << 10)
        .log_segment_bytes(16 << 10)
        .cache_bytes(64 << 10)
}

/// A small database in memory, with a log, and with all of its threads.
fn database() -> Db {
    let vfs = vfs::StepVfs::new(MemoryVfs::default());
    builder(Arc::new(vfs)).open("/db").expect("it opens")
}

/// A number as a value.
fn bytes(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// A value as a number; 0 for none.
fn number(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| {
        u64::from_be_bytes(value.try_into().expect("eight bytes"))
    })
}

/// The number that a key holds.
fn get(db: &Db, key: &str) -> u64 {
    number(db.get(key).expect("a read").as_deref())
}
