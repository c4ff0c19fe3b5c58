//! Threads that read ranges: few, and always the same ones.
//!
//! A read of many keys may wait for the disk, so it runs where it may block. tokio starts another thread for that
//! whenever none is idle: a burst of reads, a few at a time, made fifteen of them, and each has a heap of its own in
//! the system's allocator, which keeps the most that it ever held. So the readers have a pool of tokio's with a bound,
//! and a turn each, which is given up when the one who waits for it goes away.

use std::io;
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tonic::Status;

use crate::status::Fault;

/// How many threads read ranges that are answered at once: more than processors, as some wait for the disk.
pub(crate) fn wide_threads_max() -> usize {
    2 * cpus()
}

/// How many threads read long ranges.
pub(crate) fn long_threads_max() -> usize {
    cpus()
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ReadThreads {
    turns: Arc<Semaphore>,
    /// Only its threads that may block are used.
    runtime: Option<Runtime>,
}

impl ReadThreads {
    /// Threads of this name, so many at most. They start when they are needed.
    pub(crate) fn new(name: &str, threads_max: usize) -> io::Result<Arc<ReadThreads>> {
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(threads_max)
            .thread_name(name)
            .build()?;
        Ok(Arc::new(ReadThreads {
            turns: Arc::new(Semaphore::new(threads_max)),
            runtime: Some(runtime),
        }))
    }

    /// Reads, when its turn has come. Who goes away before that is not read for.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        // Never closed.
        let turn = self.turns.clone().acquire_owned().await;
        let Some(runtime) = &self.runtime else {
            return Err(Fault::Internal("its threads have ended".to_owned()).into());
        };
        let read = runtime.spawn_blocking(move || {
            // A client that goes away does not end it, so it keeps the turn.
            let _turn = turn;
            read()
        });
        let read = read.await;
        read.map_err(|error| Fault::Internal(error.to_string()).into())
    }
}

impl Drop for ReadThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Where this is dropped nobody may wait. A read that is under way ends by itself.
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

    /// A burst of two hundred ranges, eight at a time, was read by more than thirty threads.
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
        // What is asked now has its turn after what is under way.
        for _ in 0..THREADS_MAX {
            threads.run(|| ()).await.expect("it is read");
        }
        let reads = reads.load(Ordering::Relaxed);
        // When it was ended, fifty were read, and those that had their turn were under way.
        assert!(reads < 100, "nobody waits for the rest: {reads}");
        let used = used.lock().unwrap().len();
        assert!((1..=THREADS_MAX).contains(&used), "{used}");
    }
}
