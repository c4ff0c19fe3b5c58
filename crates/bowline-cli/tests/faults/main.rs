//! Three members as real processes under faults: kills, suspensions, partitions, failing disks. The results of clients
//! must be linearizable, and no acknowledged write may be lost; watchers receive every change once and in order; leases
//! that are kept alive do not end.
//!
//! | file | what it is |
//! |---|---|
//! | [`cluster`] | three `bowline serve` in directories of their own, and a seat for a fourth |
//! | [`network`] | the network between the members: proxies or namespaces |
//! | [`links`] | a proxy per member, switches per ordered pair |
//! | [`namespaces`] | a network namespace per member, whose packets get lost |
//! | [`disks`] | a disk that can be filled, and disks that fail |
//! | [`nemesis`] | random faults, which may overlap |
//! | [`load`] | the clients, and the record of their results |
//! | [`watches`] | watchers of every key, beside all rounds |
//! | [`observed`] | the events that one watcher received, and their checks |
//! | [`go`] | watchers of etcd's client for Go |
//! | [`leases`] | holders of leases, beside all rounds |
//! | [`guest`] | a member that is added, promoted and removed in every round |
//! | [`judges`] | all checks of the results of a round |
//! | [`states`] | the check of reads by their revision |
//! | [`rounds`] | load and faults, then the checks; round after round |
//! | [`stale_reads`] | a suspended leader serves no stale read after its replacement |
//! | [`removed`] | a leader that is removed while it is cut off stops |
//! | [`operator`] | the resources that idle members use, also beside one that is dead, slow or unreachable |
//!
//! `BOWLINE_FAULT_ROUNDS` sets how many rounds each test has, `BOWLINE_SEED` what is done; the same
//! seed gives the same faults, but not the same timing. Everything is on this machine.
//!
//! The seed also draws the network of a run, where network namespaces are allowed (as root, with `ip` of iproute2);
//! elsewhere it is proxies. `BOWLINE_FAULT_NETWORK=namespaces` or `=proxies` decides it.
//!
//! With `BOWLINE_EARLIER_PROGRAM`, a path of an earlier `bowline`, all members begin with that one. After each round one of
//! them gets the other version: first the present one, member after member, and then the earlier one again
//! (`checks/upgrade` does that). With `BOWLINE_FIVE_MEMBERS=1`, also while the tests are built, there are five members.

#![cfg(target_os = "linux")]

mod cluster;
mod disks;
mod go;
mod guest;
mod judges;
mod leases;
mod links;
mod load;
mod namespaces;
mod nemesis;
mod network;
mod observed;
mod operator;
mod removed;
mod rounds;
mod stale_reads;
mod states;
mod watches;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time: two clusters on a small machine would wait for one another.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

static QUIET: AtomicBool = AtomicBool::new(false);

/// Whether those who watch and look ask nothing, as what members use is being measured.
fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// How many rounds.
fn rounds(usual: u64) -> u64 {
    let Ok(text) = std::env::var("BOWLINE_FAULT_ROUNDS") else {
        return usual;
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
