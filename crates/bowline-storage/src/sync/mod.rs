//! The primitives of concurrency: locks, atomics, hazard cells and threads, in one place.
//!
//! All shared mutable state of the database is built from the exports of this module. In an ordinary
//! build these are the standard library, `parking_lot` and `arc_swap` under their own names, and our
//! own [`HazardCell`]; the module then costs nothing. With `--cfg bowline_shuttle` each export is a
//! stand-in, and [shuttle](https://docs.rs/shuttle) decides at every operation which thread runs
//! next. So `checks/interleavings` explores the interleavings of the shipped code, not of a model.
//!
//! Under that cfg only tests that run inside shuttle work; the ordinary ones are for the ordinary
//! build.
//!
//! Deliberately not here: counters that are only displayed ([`crate::counters`]), a `OnceLock` that
//! only one thread sets, and reference counts.

mod hazard_cell;
#[cfg(bowline_shuttle)]
mod scheduled;
#[cfg(miri)]
mod spinning;

pub use hazard_cell::{HazardCell, HazardGuard};

#[cfg(bowline_shuttle)]
pub use scheduled::{
    ArcSwap, ArcSwapOption, Condvar, Instant, Mutex, MutexGuard, atomic, step, thread,
};

#[cfg(miri)]
pub use spinning::Mutex;

pub use arc_swap::Guard;
#[cfg(not(bowline_shuttle))]
pub use arc_swap::{ArcSwap, ArcSwapOption};
#[cfg(not(any(bowline_shuttle, miri)))]
pub use parking_lot::Mutex;
#[cfg(not(bowline_shuttle))]
pub use parking_lot::{Condvar, MutexGuard};
#[cfg(not(bowline_shuttle))]
pub use std::time::Instant;

/// Atomics, as in the standard library.
#[cfg(not(bowline_shuttle))]
pub mod atomic {
    pub use std::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
}

/// Threads, as in the standard library.
#[cfg(not(bowline_shuttle))]
pub mod thread {
    pub use std::thread::{
        Builder, JoinHandle, Scope, Thread, current, panicking, park, park_timeout, scope, sleep,
        spawn, yield_now,
    };

    /// Starts a thread of a scope; `false` when the system has none to give.
    pub(crate) fn spawn_in<'scope>(
        scope: &'scope Scope<'scope, '_>,
        name: &str,
        body: impl FnOnce() + Send + 'scope,
    ) -> bool {
        let builder = Builder::new().name(name.to_owned());
        builder.spawn_scoped(scope, body).is_ok()
    }
}

/// A scheduling point before an operation on shared state that is not from this module. It does
/// nothing in an ordinary build.
#[cfg(not(bowline_shuttle))]
#[inline(always)]
pub fn step() {}
