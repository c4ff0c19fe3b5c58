//! Where work that blocks runs: on threads of its own, or, in a simulation, on the one thread that there is.
//!
//! A simulation runs each member on a runtime of one thread, in virtual time. Threads beside it would finish when
//! the machine likes, so the same seed would give another run.

use std::cell::Cell;
use std::future::Future;

use tokio::task::JoinHandle;

thread_local! {
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Members that are started on this thread from now on start no other: what blocks runs as a task. For simulations,
/// with [`Background::Manual`](bowline::Background::Manual).
#[doc(hidden)]
pub fn keep_to_this_thread() {
    IS_ALONE.set(true);
}

/// Whether this thread must do everything.
pub(crate) fn is_alone() -> bool {
    IS_ALONE.get()
}

/// Runs what blocks beside the tasks of the runtime.
pub(crate) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    match is_alone() {
        true => tokio::spawn(async move { work() }),
        false => tokio::task::spawn_blocking(work),
    }
}

/// The same for what also waits for tasks.
pub(crate) fn spawn_waiting<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    if is_alone() {
        return tokio::spawn(work);
    }
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(work))
}
