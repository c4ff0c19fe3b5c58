//! The runtime of a process: it has one thread, the simulation's, and its time passes only while it is driven.

use std::time::Duration;

use tokio::runtime::{Builder, EnterGuard, Runtime};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The runtime of a process, with its time.
pub(crate) struct VirtualRuntime {
    runtime: Runtime,
    /// The time of the runtime at the start of the process.
    epoch: Instant,
    /// The time that has passed since then.
    elapsed: Duration,
}

impl VirtualRuntime {
    pub(crate) fn new() -> VirtualRuntime {
        let mut runtime = Builder::new_current_thread();
        let runtime = { runtime.enable_time().start_paused(true) }
            .build()
            .expect("a runtime");
        let epoch = {
            let _entered = runtime.enter();
            Instant::now()
        };
        VirtualRuntime {
            runtime,
            epoch,
            elapsed: Duration::ZERO,
        }
    }

    /// Lets time pass in which the process may be stopped.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.elapsed += time;
    }

    /// Runs the tasks until now. Of a time longer than two steps nothing happened at its moments, as the process was
    /// stopped.
    pub(crate) fn drive(&self, step: Duration) {
        let until = self.epoch + Duration::from_millis(self.elapsed.as_millis() as u64);
        self.runtime.block_on(async {
            let behind = until.saturating_duration_since(Instant::now());
            if behind > 2 * step {
                tokio::time::advance(behind - step).await;
            }
            tokio::time::sleep_until(until).await;
            tokio::task::yield_now().await;
        });
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.spawn(task)
    }

    /// What a task has given that has finished.
    pub(crate) fn result_of<T>(&self, finished: &mut JoinHandle<T>) -> T {
        let result = self.runtime.block_on(finished);
        result.expect("the task does not panic")
    }

    /// The process's time is this thread's for as long as the guard lives.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }
}
