//! Three members as real processes, and what happens to them: killed, stopped, cut off from one
//! another. What clients saw must be linearizable, and nothing acknowledged may be gone; watchers are told
//! everything, once and in order; leases that are kept alive do not end.
//!
//! | file | what it is |
//! |---|---|
//! | [`cluster`] | three `bowline serve` in directories of their own |
//! | [`links`] | what stands between the members: a proxy per member, a switch per ordered pair |
//! | [`nemesis`] | what is done to them, at random |
//! | [`load`] | the clients, and the record of what they were told |
//! | [`watches`] | watchers of every key, beside all rounds |
//! | [`leases`] | holders of leases, beside all rounds |
//! | [`rounds`] | load and faults, then the judgement; round after round |
//! | [`stale_reads`] | a leader that slept through its replacement must not answer from memory |
//!
//! `BOWLINE_FAULT_ROUNDS` sets how many rounds each test has, `BOWLINE_SEED` what is done; the same
//! seed gives the same faults, but not the same timing. Everything is on the loopback interface.

#![cfg(target_os = "linux")]

mod cluster;
mod leases;
mod links;
mod load;
mod nemesis;
mod rounds;
mod stale_reads;
mod watches;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time: two clusters on a small machine would wait for one another.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many rounds.
fn rounds() -> u64 {
    let Ok(text) = std::env::var("BOWLINE_FAULT_ROUNDS") else {
        return 10;
    };
    text.parse().expect("BOWLINE_FAULT_ROUNDS is a number")
}

/// A runtime with enough threads for clients, proxies and faults.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a runtime")
}
