//! Execution of blocking work: on Tokio's blocking threads, or, in a simulation, on the simulation's only thread.
//!
//! A simulation runs all members on one thread, in virtual time. The operating system would schedule further threads
//! differently in each run, so a run could not be repeated from its seed. There blocking work is a task of the runtime,
//! after the delay of a simulated disk.

use std::cell::Cell;
use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;

thread_local! {
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };
    static DISK_DELAY: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// From now on, members that are started on this thread start no other thread: blocking work runs as a task. For
/// simulations, with [`Background::Manual`](bowline::Background::Manual).
#[doc(hidden)]
pub fn keep_to_this_thread() {
    IS_ALONE.set(true);
}

/// From now on, blocking work on a simulation's thread begins after this delay, as on a slow disk.
#[doc(hidden)]
pub fn delay(disk: Duration) {
    DISK_DELAY.set(disk);
}

/// The longest time after which work of the background begins, on a simulation's thread.
const BACKGROUND_WITHIN_MICROS: u64 = 30_000;

/// Waits a while, as a thread of the background may, on a simulation's thread.
pub(crate) async fn wait_for_the_background() {
    let delay = Duration::from_micros(fastrand::u64(..BACKGROUND_WITHIN_MICROS));
    tokio::time::sleep(DISK_DELAY.get() + delay).await;
}

/// Waits for the delay of the simulated disk.
pub(crate) async fn wait_for_the_disk() {
    let delay = DISK_DELAY.get();
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

/// Whether this thread is a simulation's only one.
#[doc(hidden)]
#[must_use]
pub fn is_alone() -> bool {
    IS_ALONE.get()
}

/// Runs blocking work apart from the tasks of the runtime.
#[doc(hidden)]
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
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
