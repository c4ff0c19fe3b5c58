//! Execution of blocking work: on Tokio's blocking threads, or, in a simulation, on the simulation's only thread.
//!
//! A simulation runs all members on one thread, in virtual time. The operating system would schedule further threads
//! differently in each run, so a run could not be repeated from its seed. There blocking work is a task of the runtime,
//! after the delay of a simulated disk.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
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

/// Blocking work, whatever it returns. A runtime's code for a task is compiled for each type of work, twenty functions
/// of it; so all is of this type.
pub type Work = Box<dyn FnOnce() + Send>;

/// The result of blocking work.
#[derive(Debug)]
pub struct Spawned<T>(oneshot::Receiver<T>);

/// The work has panicked, or its runtime has ended before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the work has panicked: see the log of this process")]
pub struct Panicked;

impl<T> Future for Spawned<T> {
    type Output = Result<T, Panicked>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Result<T, Panicked>> {
        Pin::new(&mut self.0).poll(task).map_err(|_| Panicked)
    }
}

/// Work for a thread that may block, and its result, which comes when it has run.
#[doc(hidden)]
pub fn boxed<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> (Work, Spawned<T>) {
    let (sender, receiver) = oneshot::channel();
    let work = move || {
        // An error means that nobody waits for the result.
        let _ = sender.send(work());
    };
    (Box::new(work), Spawned(receiver))
}

/// Runs blocking work apart from the tasks of the runtime.
#[doc(hidden)]
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Spawned<T> {
    let (work, spawned) = boxed(work);
    spawn_boxed(work);
    spawned
}

/// The same for work that is boxed already.
#[doc(hidden)]
#[inline(never)]
pub fn spawn_boxed(work: Work) {
    match is_alone() {
        true => drop(tokio::spawn(async move {
            wait_for_the_disk().await;
            work();
        })),
        false => drop(tokio::task::spawn_blocking(work)),
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
