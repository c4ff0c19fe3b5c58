//! What threads share: locks, atomics, swaps and threads, in one place.
//!
//! Everything in the database that one thread may see another change is built from what this module
//! exports. Ordinarily that is the standard library, `parking_lot` and `arc_swap`, under their own
//! names, and [`Swap`], which is ours; and this module costs nothing. With `--cfg bowline_shuttle` it is a stand-in for each,
//! under which [shuttle](https://docs.rs/shuttle) decides, at every operation, which thread goes
//! on. So the interleavings that `checks/interleavings` tries are those of the code that is
//! shipped, not of a model of it.
//!
//! Under that cfg only tests that run inside shuttle work; the ordinary ones are for the ordinary
//! build.
//!
//! What is not here on purpose: counters that are only ever shown ([`crate::counters`]), a
//! `OnceLock` that only one thread sets, and reference counts.

#[cfg(bowline_shuttle)]
mod scheduled;
#[cfg(miri)]
mod spinning;
mod swap;

pub use swap::{Held, Swap};

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
        Builder, JoinHandle, Scope, Thread, current, park, scope, sleep, spawn, yield_now,
    };

    /// Starts a thread of a scope; `false` when the system has none to give.
    pub fn spawn_in<'scope>(
        scope: &'scope Scope<'scope, '_>,
        name: &str,
        body: impl FnOnce() + Send + 'scope,
    ) -> bool {
        let builder = Builder::new().name(name.to_owned());
        builder.spawn_scoped(scope, body).is_ok()
    }
}

/// A point at which another thread may come in; before an operation on something that threads
/// share and that is not from this module. Does nothing ordinarily.
#[cfg(not(bowline_shuttle))]
#[inline(always)]
pub fn step() {}
