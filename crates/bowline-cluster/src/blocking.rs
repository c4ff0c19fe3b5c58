//! Where work that blocks runs: on threads of its own, or, in a simulation, on the one thread that there is.
//!
//! A simulation runs each member on a runtime of one thread, in virtual time. Threads beside it would finish when
//! the machine likes, so the same seed would give another run.

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;

thread_local! {
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };
    static DISK_DELAY: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Members that are started on this thread from now on start no other: what blocks runs as a task. For simulations,
/// with [`Background::Manual`](bowline::Background::Manual).
#[doc(hidden)]
pub fn keep_to_this_thread() {
    IS_ALONE.set(true);
}

/// On a thread that does everything, what blocks begins so much later from now on, as on a slow disk.
#[doc(hidden)]
pub fn delay(disk: Duration) {
    DISK_DELAY.set(disk);
}

/// Waits for a slow disk, in a simulation.
pub(crate) async fn wait_for_the_disk() {
    let delay = DISK_DELAY.get();
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

/// Whether this thread must do everything.
pub(crate) fn is_alone() -> bool {
    IS_ALONE.get()
}

/// Runs what blocks beside the tasks of the runtime.
pub(crate) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    match is_alone() {
        true => tokio::spawn(async move {
            wait_for_the_disk().await;
            work()
        }),
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
