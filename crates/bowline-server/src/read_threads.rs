//! A bounded pool of threads that read ranges.
//!
//! A read of many keys may wait for the disk, so it runs where it may block. tokio starts another blocking
//! thread whenever none is idle: a burst of reads, a few at a time, started fifteen, and each keeps a heap in
//! the system's allocator at its maximum size. So reads use a bounded pool and a semaphore; a queued read is
//! dropped when its caller goes away.

use std::io;
use std::sync::Arc;

use bowline_cluster::blocking;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tonic::Status;

use crate::status::Fault;

/// Threads for ranges answered at once: more than processors, because some wait for the disk.
pub(crate) fn wide_threads_max() -> usize {
    2 * cpus()
}

/// Threads for long ranges.
pub(crate) fn long_threads_max() -> usize {
    cpus()
}

fn cpus() -> usize {
    if blocking::is_alone() {
        // A simulation is the same on every machine.
        return 1;
    }
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A bounded pool of threads.
#[derive(Debug)]
pub(crate) struct ReadThreads {
    turns: Arc<Semaphore>,
    /// Only its blocking threads are used. A simulation has none: there a read is a task.
    runtime: Option<Runtime>,
}

impl ReadThreads {
    /// At most `threads_max` threads with this name; they start on demand.
    pub(crate) fn new(name: &str, threads_max: usize) -> io::Result<Arc<ReadThreads>> {
        let mut builder = Builder::new_current_thread();
        builder.max_blocking_threads(threads_max).thread_name(name);
        let runtime = match blocking::is_alone() {
            true => None,
            false => Some(builder.build()?),
        };
        Ok(Arc::new(ReadThreads {
            turns: Arc::new(Semaphore::new(threads_max)),
            runtime,
        }))
    }

    /// Runs `read` when its turn has come. It does not run if the caller goes away first.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        // An error is impossible: the semaphore is never closed.
        let turn = self.turns.clone().acquire_owned().await;
        let read = move || {
            // The read goes on when the client goes away, so it keeps the turn.
            let _turn = turn;
            read()
        };
        let (work, reading) = blocking::boxed(read);
        match &self.runtime {
            Some(runtime) => drop(runtime.spawn_blocking(work)),
            None => blocking::spawn_boxed(work),
        }
        reading
            .await
            .map_err(|error| Fault::Internal(error.to_string()).into())
    }
}

impl Drop for ReadThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A drop must not wait. A read under way ends by itself.
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::task::JoinSet;

    use super::*;

    /// A burst of two hundred ranges, eight at a time, used more than thirty threads.
    #[tokio::test]
    async fn a_burst_is_read_by_few_threads_and_not_for_who_has_gone() {
        const THREADS_MAX: usize = 2;
        let threads = ReadThreads::new("a-reader", THREADS_MAX).expect("a pool");
        let used: Arc<Mutex<HashSet<_>>> = Arc::default();
        let reads = Arc::new(AtomicUsize::new(0));
        let mut burst = JoinSet::new();
        for _ in 0..200 {
            let (threads, used, reads) = (threads.clone(), used.clone(), reads.clone());
            burst.spawn(async move {
                let read = move || {
                    std::thread::sleep(Duration::from_millis(1));
                    used.lock().unwrap().insert(std::thread::current().id());
                    reads.fetch_add(1, Ordering::Relaxed)
                };
                threads.run(read).await.expect("it is read");
            });
        }
        while reads.load(Ordering::Relaxed) < 50 {
            assert!(burst.join_next().await.expect("one of them").is_ok());
        }
        burst.shutdown().await;
        // A new read runs after those under way.
        for _ in 0..THREADS_MAX {
            threads.run(|| ()).await.expect("it is read");
        }
        let reads = reads.load(Ordering::Relaxed);
        // At the abort, fifty had been read, and those with a turn were running.
        assert!(reads < 100, "nobody waits for the rest: {reads}");
        let used = used.lock().unwrap().len();
        assert!((1..=THREADS_MAX).contains(&used), "{used}");
    }
}
