//! How operations are timed: for about as long as is asked, on one thread or several.
//!
//! With several threads a sample lasts from the first one's start to the last one's end. The
//! clock is read once in a batch; where operations take nanoseconds, a latency is therefore the
//! mean of a batch.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::fallible::Fallible;
use crate::statistics::histogram;

/// Reads from memory per look at the clock.
pub const BATCH: u64 = 256;

/// What was done, and how long it took.
pub struct Timed {
    pub operations: u64,
    pub elapsed: Duration,
    /// In nanoseconds per operation.
    pub latency: Histogram<u64>,
}

impl Timed {
    pub fn nothing() -> Timed {
        Timed {
            operations: 0,
            elapsed: Duration::ZERO,
            latency: histogram(),
        }
    }

    /// Puts another slice of the same work behind this one.
    pub fn join(&mut self, slice: &Timed) -> Fallible<()> {
        self.operations += slice.operations;
        self.elapsed += slice.elapsed;
        Ok(self.latency.add(&slice.latency)?)
    }

    /// Nanoseconds that half of the operations did not take longer than.
    pub fn p50_ns(&self) -> f64 {
        self.latency.value_at_quantile(0.5) as f64
    }

    fn add(&mut self, operations: u64, elapsed: Duration) {
        let each_ns = elapsed.as_nanos() as u64 / operations.max(1);
        self.latency.saturating_record_n(each_ns.max(1), operations);
        self.operations += operations;
    }
}

/// Runs `operation` for about `sample`; the clock is read once in `batch` operations.
pub fn run_for(
    sample: Duration,
    batch: u64,
    mut operation: impl FnMut() -> Fallible<()>,
) -> Fallible<Timed> {
    let start = Instant::now();
    let (timed, _, end) = run_until(start + sample, batch, &mut operation)?;
    Ok(Timed {
        elapsed: end - start,
        ..timed
    })
}

fn run_until(
    deadline: Instant,
    batch: u64,
    operation: &mut impl FnMut() -> Fallible<()>,
) -> Fallible<(Timed, Instant, Instant)> {
    let mut timed = Timed::nothing();
    let start = Instant::now();
    let mut last = start;
    loop {
        for _ in 0..batch {
            operation()?;
        }
        let now = Instant::now();
        timed.add(batch, now - last);
        last = now;
        if now >= deadline {
            return Ok((timed, start, now));
        }
    }
}

/// Runs what `make` gives each thread, on several threads at once; see [`run_for`]. What a thread
/// needs of its own is made in it, before the time begins.
pub fn run_on<Operation: FnMut() -> Fallible<()>>(
    threads: usize,
    sample: Duration,
    batch: u64,
    make: impl Fn(usize) -> Fallible<Operation> + Sync,
) -> Fallible<Timed> {
    let barrier = Barrier::new(threads);
    let body = |thread| {
        let made = make(thread);
        // Also after a failure, or the others would wait for ever.
        barrier.wait();
        run_until(Instant::now() + sample, batch, &mut made?)
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let body = &body;
        let handles: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || body(thread)))
            .collect();
        handles
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect()
    });
    let mut total = Timed::nothing();
    let mut span: Option<(Instant, Instant)> = None;
    for result in results {
        let (timed, start, end) = result.map_err(|_| "a thread panicked")??;
        total.operations += timed.operations;
        total.latency.add(&timed.latency)?;
        let (first, last) = span.unwrap_or((start, end));
        span = Some((first.min(start), last.max(end)));
    }
    let (first, last) = span.ok_or("no threads")?;
    total.elapsed = last - first;
    Ok(total)
}

/// Runs `operation` `batch` times after each `prepare`, which is not timed, until the time that
/// counts is about `sample`.
pub fn run_prepared(
    sample: Duration,
    batch: u64,
    mut prepare: impl FnMut() -> Fallible<()>,
    mut operation: impl FnMut(u64) -> Fallible<()>,
) -> Fallible<Timed> {
    let mut timed = Timed::nothing();
    let begun = Instant::now();
    // What is not timed may take longer by far.
    let time_max = sample * 20;
    while timed.elapsed < sample && (begun.elapsed() < time_max || timed.operations == 0) {
        prepare()?;
        let start = Instant::now();
        let mut last = start;
        for at in 0..batch {
            operation(at)?;
            let now = Instant::now();
            timed.add(1, now - last);
            last = now;
        }
        timed.elapsed += last - start;
    }
    Ok(timed)
}

/// How long one thing takes.
pub fn time<T>(operation: impl FnOnce() -> Fallible<T>) -> Fallible<(Duration, T)> {
    let start = Instant::now();
    let given = operation()?;
    Ok((start.elapsed(), given))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn every_operation_of_every_thread_counts() {
        let done = AtomicU64::new(0);
        let timed = run_on(3, Duration::from_millis(5), 7, |_| {
            Ok(|| {
                done.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
        })
        .unwrap();
        assert_eq!(timed.operations, done.into_inner());
        assert_eq!(timed.latency.len(), timed.operations);
        assert!(timed.elapsed >= Duration::from_millis(5));
    }

    #[test]
    fn a_thread_that_cannot_begin_ends_the_sample() {
        let result = run_on(3, Duration::from_millis(1), 1, |thread| {
            if thread == 1 {
                return Err("no".into());
            }
            Ok(|| Ok(()))
        });
        assert!(result.is_err());
    }

    #[test]
    fn slices_are_one_piece_of_work() {
        let mut whole = Timed::nothing();
        for microseconds in [10, 10, 40] {
            let mut slice = Timed::nothing();
            slice.add(1, Duration::from_micros(microseconds));
            slice.elapsed = Duration::from_micros(microseconds);
            whole.join(&slice).unwrap();
        }
        assert_eq!((whole.operations, whole.latency.len()), (3, 3));
        assert_eq!(whole.elapsed, Duration::from_micros(60));
        assert!((whole.p50_ns() / 10_000.0 - 1.0).abs() < 0.02);
    }

    #[test]
    fn what_prepares_is_not_timed() {
        let timed = run_prepared(
            Duration::from_micros(10),
            1,
            || {
                std::thread::sleep(Duration::from_millis(20));
                Ok(())
            },
            |_| Ok(()),
        )
        .unwrap();
        assert!(timed.elapsed < Duration::from_millis(20));
        assert!(timed.operations > 0);
    }
}
