//! A histogram of times with fixed bounds.

use std::time::Duration;

use super::Counter;

/// The upper bounds of the buckets, in microseconds.
pub(super) const BOUNDS_US: [u64; 17] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    /// One more than bounds: the last has none.
    buckets: [Counter; BOUNDS_US.len() + 1],
    sum_ns: Counter,
}

impl Histogram {
    pub(super) fn record(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.partition_point(|bound| *bound < us);
        self.buckets[bucket].add(1);
        self.sum_ns
            .add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// How many took up to each bound, then how many there are, then their sum in seconds.
    pub(super) fn read(&self) -> ([u64; BOUNDS_US.len()], u64, f64) {
        let mut upto = [0; BOUNDS_US.len()];
        let mut count = 0;
        for (bucket, upto) in self.buckets.iter().zip(&mut upto) {
            count += bucket.get();
            *upto = count;
        }
        count += self.buckets[BOUNDS_US.len()].get();
        (upto, count, self.sum_ns.get() as f64 / 1e9)
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
        let (upto, count, sum) = histogram.read();
        assert_eq!(
            (upto[0], upto[1], upto[12], upto[13], upto[16]),
            (2, 3, 3, 4, 4)
        );
        assert_eq!(count, 5);
        assert!((sum - 100.000_101).abs() < 1e-6);
    }
}
