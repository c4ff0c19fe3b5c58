//! A latency histogram with fixed buckets.
//!
//! Recording is two additions to existing counters: no lock, no allocation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number of bounds.
const BOUNDS: usize = 17;

/// A histogram of times.
#[derive(Debug, Default)]
pub struct Histogram {
    /// One more than bounds: the last is unbounded.
    buckets: [AtomicU64; BOUNDS + 1],
    sum_ns: AtomicU64,
}

/// The contents of a histogram.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// The number of times up to each of [`Histogram::BOUNDS_US`].
    pub upto: [u64; BOUNDS],
    /// The number of all times.
    pub count: u64,
    /// The sum of all times, in nanoseconds.
    pub sum_ns: u64,
}

impl Histogram {
    /// The upper bounds of the buckets, in microseconds.
    pub const BOUNDS_US: [u64; BOUNDS] = [
        50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
        1_000_000, 2_500_000, 5_000_000, 10_000_000,
    ];

    /// Records a time.
    pub fn record(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = Histogram::BOUNDS_US.partition_point(|bound| *bound < us);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Reads the contents: no atomic snapshot, but each bucket is exact.
    #[must_use]
    pub fn read(&self) -> HistogramSnapshot {
        let mut read = HistogramSnapshot::default();
        for (bucket, upto) in self.buckets.iter().zip(&mut read.upto) {
            read.count += bucket.load(Ordering::Relaxed);
            *upto = read.count;
        }
        read.count += self.buckets[BOUNDS].load(Ordering::Relaxed);
        read.sum_ns = self.sum_ns.load(Ordering::Relaxed);
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_every_bucket_from_its_own_on() {
        let histogram = Histogram::default();
        for us in [0, 50, 51, 1_000_000, 99_000_000] {
            histogram.record(Duration::from_micros(us));
        }
        let read = histogram.read();
        let upto = |bucket: usize| read.upto[bucket];
        assert_eq!(
            (upto(0), upto(1), upto(12), upto(13), upto(16)),
            (2, 3, 3, 4, 4)
        );
        assert_eq!((read.count, read.sum_ns), (5, 100_000_101_000));
    }
}
