//! A latency histogram with fixed buckets.
//!
//! Recording is two additions to existing counters: no lock, no allocation.
//!
//! The same times are shown with several sets of bounds: our own, and those that etcd has for each of its
//! histograms. So the buckets are those between all of these bounds, and each set is an exact view of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number of bounds.
const BOUNDS: usize = 45;

/// A histogram of times.
///
/// ```
/// # use bowline_storage::histogram::Histogram;
/// use std::time::Duration;
///
/// let times = Histogram::default();
/// times.record(Duration::from_micros(300));
/// let read = times.read();
/// assert_eq!((read.count_upto(250), read.count_upto(500), read.count), (0, 1, 1));
/// ```
#[derive(Debug)]
pub struct Histogram {
    /// One more than bounds: the last is unbounded.
    buckets: [AtomicU64; BOUNDS + 1],
    sum_ns: AtomicU64,
}

/// The contents of a histogram.
///
/// ```
/// # use bowline_storage::histogram::HistogramSnapshot;
/// /// The share of times up to a millisecond.
/// fn share(times: &HistogramSnapshot) -> Option<f64> {
///     (times.count > 0).then(|| times.count_upto(1_000) as f64 / times.count as f64)
/// }
/// assert_eq!(share(&HistogramSnapshot::default()), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// The number of times up to each of the bounds.
    upto: [u64; BOUNDS],
    /// The number of all times.
    pub count: u64,
    /// The sum of all times, in nanoseconds.
    pub sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            buckets: [const { AtomicU64::new(0) }; BOUNDS + 1],
            sum_ns: AtomicU64::new(0),
        }
    }
}

impl Default for HistogramSnapshot {
    fn default() -> HistogramSnapshot {
        HistogramSnapshot {
            upto: [0; BOUNDS],
            count: 0,
            sum_ns: 0,
        }
    }
}

impl Histogram {
    /// The upper bounds of the buckets, in microseconds: those of all views, in order.
    const BOUNDS_US: [u64; BOUNDS] = [
        50, 100, 200, 250, 400, 500, 800, 1_000, 1_600, 2_000, 2_500, 3_200, 4_000, 5_000, 6_400,
        8_000, 10_000, 12_800, 16_000, 25_000, 25_600, 32_000, 50_000, 51_200, 64_000, 100_000,
        102_400, 128_000, 204_800, 250_000, 256_000, 409_600, 500_000, 512_000, 819_200, 1_000_000,
        1_024_000, 1_638_400, 2_048_000, 2_500_000, 3_276_800, 4_096_000, 5_000_000, 8_192_000,
        10_000_000,
    ];

    /// The view of Bowline's own metrics.
    pub const OWN_US: &[u64] = &[
        50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
        1_000_000, 2_500_000, 5_000_000, 10_000_000,
    ];

    /// The view that etcd has of times of the disk: 1 ms, doubled thirteen times.
    pub const ETCD_DISK_US: &[u64] = &[
        1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000, 1_024_000,
        2_048_000, 4_096_000, 8_192_000,
    ];

    /// The view that etcd has of round trips between members: 0.1 ms, doubled fifteen times.
    pub const ETCD_PEER_US: &[u64] = &[
        100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 102_400, 204_800, 409_600,
        819_200, 1_638_400, 3_276_800,
    ];

    /// The view that Prometheus's library for gRPC, which etcd uses, has of calls.
    pub const GRPC_US: &[u64] = &[
        5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
        10_000_000,
    ];

    /// Records a time.
    pub fn record(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // Rounded up: a time a little over a bound is not within it.
        let us = ns.div_ceil(1_000);
        let bucket = Histogram::BOUNDS_US.partition_point(|bound| *bound < us);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
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

impl HistogramSnapshot {
    /// The number of times up to one of the bounds of a view, in microseconds. For another number, those up to the
    /// bound below it.
    #[must_use]
    pub fn count_upto(&self, bound_us: u64) -> u64 {
        let within = Histogram::BOUNDS_US.partition_point(|bound| *bound <= bound_us);
        match within {
            0 => 0,
            within => self.upto[within - 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_every_bucket_from_its_own_on() {
        let histogram = Histogram::default();
        for ns in [0, 50_000, 50_001, 1_000_000_000, 99_000_000_000] {
            histogram.record(Duration::from_nanos(ns));
        }
        let read = histogram.read();
        let upto = |bound| read.count_upto(bound);
        assert_eq!((upto(49), upto(50), upto(100)), (0, 2, 3));
        assert_eq!((upto(819_200), upto(1_000_000)), (3, 4));
        assert_eq!(upto(10_000_000), 4);
        assert_eq!((read.count, read.sum_ns), (5, 100_000_100_001));
    }

    #[test]
    fn every_bound_of_a_view_is_one_of_a_bucket() {
        assert!(Histogram::BOUNDS_US.is_sorted_by(|a, b| a < b));
        let views = [
            Histogram::OWN_US,
            Histogram::ETCD_DISK_US,
            Histogram::ETCD_PEER_US,
            Histogram::GRPC_US,
        ];
        for bound in views.concat() {
            assert!(Histogram::BOUNDS_US.contains(&bound), "{bound}");
        }
        for bound in Histogram::BOUNDS_US {
            assert!(views.concat().contains(&bound), "{bound} is in no view");
        }
        let doubled = |view: &[u64]| view.is_sorted_by(|a, b| a * 2 == *b);
        assert!(doubled(Histogram::ETCD_DISK_US) && doubled(Histogram::ETCD_PEER_US));
    }
}
