//! The middle and the ends of several figures, and percentiles of latencies.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The median of several figures, with the smallest and the largest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// None of no figures.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let half = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[half - 1], sorted[half])
        } else {
            sorted[half]
        };
        Some(Spread { median, min, max })
    }
}

/// Latencies in nanoseconds, to two digits, up to a minute. Small, so that 64 threads can have one
/// each without a place in the cache.
pub fn histogram() -> Histogram<u64> {
    const MINUTE_NS: u64 = 60_000_000_000;
    #[expect(clippy::expect_used, reason = "the bounds are constants, and in order")]
    Histogram::new_with_bounds(1, MINUTE_NS, 2).expect("bounds of a histogram")
}

/// What is told of a histogram of nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    pub p50: u64,
    pub p95: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub max: u64,
}

impl Percentiles {
    /// None of an empty histogram.
    pub fn of(histogram: &Histogram<u64>) -> Option<Percentiles> {
        let at = |quantile| histogram.value_at_quantile(quantile);
        (!histogram.is_empty()).then(|| Percentiles {
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            p99_9: at(0.999),
            max: histogram.max(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle_and_the_ends_are_the_ends() {
        let spread = Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 2.5, 4.0));
        let spread = Spread::of([5.0, 1.0, 3.0]).unwrap();
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 3.0, 5.0));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn percentiles_are_of_the_latencies() {
        let mut histogram = histogram();
        assert_eq!(Percentiles::of(&histogram), None);
        for microseconds in 1..=1000 {
            histogram.record(microseconds * 1000).unwrap();
        }
        let percentiles = Percentiles::of(&histogram).unwrap();
        let within = |value: u64, of: f64| (value as f64 / of - 1.0).abs() < 0.02;
        assert!(within(percentiles.p50, 500e3), "{percentiles:?}");
        assert!(within(percentiles.p99, 990e3), "{percentiles:?}");
        assert!(within(percentiles.p99_9, 999e3), "{percentiles:?}");
        assert!(within(percentiles.max, 1e6), "{percentiles:?}");
    }
}
