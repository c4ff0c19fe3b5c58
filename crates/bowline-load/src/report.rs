//! The report of a load: throughput, latencies and errors.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::error::{Error, Result};

/// Latencies from 1 ns to 10 minutes, exact to three digits.
fn new_histogram() -> Histogram<u64> {
    // These bounds are right, whatever comes.
    Histogram::new_with_bounds(1, 600_000_000_000, 3).unwrap_or_else(|_| unreachable!())
}

/// A figure of a result.
#[derive(Debug, Clone, PartialEq)]
pub enum Figure {
    /// There is none.
    Absent,
    /// A name.
    Text(String),
    /// A count.
    Count(u64),
    /// A time, a rate or a ratio.
    Real(f64),
    /// Several texts.
    List(Vec<String>),
}

/// Figures, each under its name.
pub type Figures = Vec<(&'static str, Figure)>;

impl From<&str> for Figure {
    fn from(text: &str) -> Figure {
        Figure::Text(text.to_owned())
    }
}

impl From<u64> for Figure {
    fn from(count: u64) -> Figure {
        Figure::Count(count)
    }
}

impl From<usize> for Figure {
    fn from(count: usize) -> Figure {
        Figure::Count(u64::try_from(count).unwrap_or(u64::MAX))
    }
}

impl From<f64> for Figure {
    fn from(number: f64) -> Figure {
        Figure::Real(number)
    }
}

/// What a part of a load counts.
pub(crate) struct Counts {
    histogram: Histogram<u64>,
    errors: BTreeMap<String, u64>,
    empty: u64,
    /// When the first client began. The threads that send take the time: the one that waits for them
    /// may be woken long after they began, and what they did until then would count as done in no time.
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Counts {
    pub(crate) fn new() -> Counts {
        Counts {
            histogram: new_histogram(),
            errors: BTreeMap::new(),
            empty: 0,
            first: None,
            last: None,
        }
    }

    pub(crate) fn began(&mut self, at: Instant) {
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
    }

    pub(crate) fn answered(&mut self, at: Instant) {
        self.last = self.last.max(Some(at));
    }

    pub(crate) fn success(&mut self, latency: Duration, is_empty: bool) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanos.max(1));
        self.empty += u64::from(is_empty);
    }

    pub(crate) fn error(&mut self, kind: String) {
        *self.errors.entry(kind).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: Counts) {
        // Both have the same bounds.
        let _ = self.histogram.add(&other.histogram);
        for (kind, count) in other.errors {
            *self.errors.entry(kind).or_default() += count;
        }
        self.empty += other.empty;
        if let Some(first) = other.first {
            self.began(first);
        }
        self.last = self.last.max(other.last);
    }

    /// From the first beginning to the last answer.
    fn elapsed(&self) -> Duration {
        let both = self.first.zip(self.last);
        both.map_or(Duration::ZERO, |(first, last)| {
            last.saturating_duration_since(first)
        })
    }

    pub(crate) fn report(
        self,
        name: &'static str,
        connections: usize,
        clients: usize,
        operations: u64,
        client_cpu: Duration,
    ) -> Report {
        Report {
            name,
            connections,
            clients,
            operations,
            elapsed: self.elapsed(),
            histogram: self.histogram,
            errors: self.errors,
            empty: self.empty,
            client_cpu,
        }
    }
}

/// What came of a load.
#[derive(Debug, Clone)]
pub struct Report {
    pub(crate) name: &'static str,
    pub(crate) connections: usize,
    pub(crate) clients: usize,
    /// How many writes a request was.
    pub(crate) operations: u64,
    pub(crate) elapsed: Duration,
    /// Nanoseconds of requests that succeeded.
    pub(crate) histogram: Histogram<u64>,
    pub(crate) errors: BTreeMap<String, u64>,
    /// Answers without what was to be read.
    pub(crate) empty: u64,
    /// The CPU time of this program meanwhile.
    pub(crate) client_cpu: Duration,
}

impl Report {
    /// How many requests succeeded per second.
    pub(crate) fn throughput(&self) -> f64 {
        per_second(self.histogram.len(), self.elapsed)
    }

    pub(crate) fn percentile_ms(&self, percentile: f64) -> f64 {
        millis(self.histogram.value_at_percentile(percentile))
    }

    pub(crate) fn succeeded(&self) -> u64 {
        self.histogram.len()
    }

    pub(crate) fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// The results, each under its name.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let done = self.succeeded() + self.failed();
        let errors = self
            .errors
            .iter()
            .map(|(kind, count)| format!("{kind}: {count}"));
        let mut figures = vec![
            ("benchmark", self.name.into()),
            ("connections", self.connections.into()),
            ("clients", self.clients.into()),
            ("requests", self.succeeded().into()),
            ("seconds", self.elapsed.as_secs_f64().into()),
            ("per_second", self.throughput().into()),
        ];
        if self.operations > 1 {
            let all = self.succeeded() * self.operations;
            figures.push(("keys_per_second", per_second(all, self.elapsed).into()));
        }
        figures.push(("mean_ms", (self.histogram.mean() / 1e6).into()));
        for (name, percentile) in PERCENTILES {
            figures.push((name, self.percentile_ms(percentile).into()));
        }
        figures.extend([
            ("max_ms", millis(self.histogram.max()).into()),
            ("errors", self.failed().into()),
            ("error_kinds", some_list(errors.collect())),
            ("empty_answers", self.empty.into()),
            (
                "client_cpu_us_per_request",
                micros_each(self.client_cpu, done).into(),
            ),
            (
                "client_cpu_cores",
                ratio(self.client_cpu, self.elapsed).into(),
            ),
        ]);
        figures
    }

    /// A load of which nothing succeeded has measured nothing.
    pub fn expect_some_success(&self) -> Result<()> {
        if self.succeeded() > 0 || self.failed() == 0 {
            return Ok(());
        }
        Err(Error::Unreachable(
            "no request succeeded: the figures say nothing".to_owned(),
        ))
    }

    pub(crate) fn expect_no_errors(&self) -> Result<()> {
        if self.failed() == 0 {
            return Ok(());
        }
        let text = format!(
            "{} of the requests that prepare the keys failed: {:?}",
            self.failed(),
            self.errors
        );
        Err(Error::Unreachable(text))
    }
}

/// The percentiles shown.
const PERCENTILES: [(&str, f64); 5] = [
    ("p50_ms", 50.0),
    ("p90_ms", 90.0),
    ("p95_ms", 95.0),
    ("p99_ms", 99.0),
    ("p999_ms", 99.9),
];

/// A list, or nothing where it is empty.
fn some_list(texts: Vec<String>) -> Figure {
    if texts.is_empty() {
        Figure::Absent
    } else {
        Figure::List(texts)
    }
}

/// Nanoseconds in milliseconds.
#[expect(clippy::cast_precision_loss, reason = "shown with three decimals")]
fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// How many per second.
#[expect(clippy::cast_precision_loss, reason = "shown with three decimals")]
pub(crate) fn per_second(count: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() {
        return 0.0;
    }
    count as f64 / elapsed.as_secs_f64()
}

/// Microseconds for each of `count`.
#[expect(clippy::cast_precision_loss, reason = "shown with three decimals")]
pub(crate) fn micros_each(time: Duration, count: u64) -> f64 {
    time.as_secs_f64() * 1e6 / count.max(1) as f64
}

fn ratio(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() {
        return 0.0;
    }
    part.as_secs_f64() / whole.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut histogram = new_histogram();
        for micros in 1..=1_000_u64 {
            histogram.record(micros * 1_000).unwrap();
        }
        Report {
            name: "put",
            connections: 2,
            clients: 3,
            operations: 4,
            elapsed: Duration::from_millis(500),
            histogram,
            errors: BTreeMap::from([("UNAVAILABLE".to_owned(), 7)]),
            empty: 0,
            client_cpu: Duration::from_millis(100),
        }
    }

    #[test]
    fn figures_are_what_was_recorded() {
        let figures = report().figures();
        let real = |name: &str| match figures.iter().find(|(one, _)| *one == name) {
            Some((_, Figure::Real(number))) => *number,
            other => panic!("{name}: {other:?}"),
        };
        assert!((real("per_second") - 2_000.0).abs() < 1e-6);
        assert!((real("keys_per_second") - 8_000.0).abs() < 1e-6);
        for (name, expected) in [
            ("mean_ms", 0.5),
            ("p50_ms", 0.5),
            ("p90_ms", 0.9),
            ("p99_ms", 0.99),
            ("p999_ms", 0.999),
            ("max_ms", 1.0),
        ] {
            assert!(
                (real(name) - expected).abs() < 0.002,
                "{name}: {}",
                real(name)
            );
        }
        assert!((real("client_cpu_us_per_request") - 100_000.0 / 1_007.0).abs() < 1e-3);
        assert!((real("client_cpu_cores") - 0.2).abs() < 1e-9);
        assert!(figures.contains(&(
            "error_kinds",
            Figure::List(vec!["UNAVAILABLE: 7".to_owned()])
        )));
    }

    #[test]
    fn a_run_without_success_is_a_failure() {
        assert!(report().expect_some_success().is_ok());
        assert!(report().expect_no_errors().is_err());
        let mut failed = report();
        failed.histogram.reset();
        assert!(matches!(
            failed.expect_some_success(),
            Err(Error::Unreachable(_))
        ));
    }
}
