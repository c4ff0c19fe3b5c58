//! What came of a load.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::{Field, Printer};

/// Latencies from 1 ns to 10 minutes, exact to three digits.
pub(super) fn new_histogram() -> Histogram<u64> {
    // These bounds are right, whatever comes.
    Histogram::new_with_bounds(1, 600_000_000_000, 3).unwrap_or_else(|_| unreachable!())
}

/// What came of a load.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(super) name: &'static str,
    pub(super) connections: usize,
    pub(super) clients: usize,
    /// How many writes a request was.
    pub(super) operations: u64,
    pub(super) elapsed: Duration,
    /// Nanoseconds of requests that succeeded.
    pub(super) histogram: Histogram<u64>,
    pub(super) errors: BTreeMap<String, u64>,
    /// Answers without what was to be read.
    pub(super) empty: u64,
    /// The CPU time of this program meanwhile.
    pub(super) client_cpu: Duration,
}

impl Report {
    /// How many requests succeeded per second.
    pub(super) fn throughput(&self) -> f64 {
        per_second(self.histogram.len(), self.elapsed)
    }

    pub(super) fn percentile_ms(&self, percentile: f64) -> f64 {
        millis(self.histogram.value_at_percentile(percentile))
    }

    pub(super) fn succeeded(&self) -> u64 {
        self.histogram.len()
    }

    pub(super) fn failed(&self) -> u64 {
        self.errors.values().sum()
    }

    /// The results, each under its name.
    pub(super) fn fields(&self) -> Vec<(&'static str, Field)> {
        let done = self.succeeded() + self.failed();
        let number = |count: usize| Field::Number(u64::try_from(count).unwrap_or(u64::MAX));
        let errors = self
            .errors
            .iter()
            .map(|(kind, count)| format!("{kind}: {count}"));
        let mut fields = vec![
            ("benchmark", self.name.into()),
            ("connections", number(self.connections)),
            ("clients", number(self.clients)),
            ("requests", self.succeeded().into()),
            ("seconds", Field::Real(self.elapsed.as_secs_f64())),
            ("per_second", Field::Real(self.throughput())),
        ];
        if self.operations > 1 {
            let all = self.succeeded() * self.operations;
            fields.push((
                "keys_per_second",
                Field::Real(per_second(all, self.elapsed)),
            ));
        }
        fields.push(("mean_ms", Field::Real(self.histogram.mean() / 1e6)));
        for (name, percentile) in PERCENTILES {
            fields.push((name, Field::Real(self.percentile_ms(percentile))));
        }
        fields.extend([
            ("max_ms", Field::Real(millis(self.histogram.max()))),
            ("errors", self.failed().into()),
            ("error_kinds", some_list(errors.collect())),
            ("empty_answers", self.empty.into()),
            (
                "client_cpu_us_per_request",
                Field::Real(micros_each(self.client_cpu, done)),
            ),
            (
                "client_cpu_cores",
                Field::Real(ratio(self.client_cpu, self.elapsed)),
            ),
        ]);
        fields
    }

    /// Prints it as the user wants it.
    pub(super) fn print(&self, context: &mut Context<'_, '_>, json: bool) -> Result<(), Failure> {
        let output = context.output(json);
        Printer::new(context.stdout(), output, false).record(&self.fields())?;
        Ok(())
    }

    /// A load of which nothing succeeded has measured nothing.
    pub(super) fn expect_some_success(&self) -> Result<(), Failure> {
        if self.succeeded() > 0 || self.failed() == 0 {
            return Ok(());
        }
        Err(Failure::new(
            Exit::Unreachable,
            "no request succeeded: the figures say nothing",
        ))
    }

    pub(super) fn expect_no_errors(&self) -> Result<(), Failure> {
        if self.failed() == 0 {
            return Ok(());
        }
        let text = format!(
            "{} of the requests that prepare the keys failed: {:?}",
            self.failed(),
            self.errors
        );
        Err(Failure::new(Exit::Unreachable, text))
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
fn some_list(texts: Vec<String>) -> Field {
    if texts.is_empty() {
        Field::Absent
    } else {
        Field::List(texts)
    }
}

/// Nanoseconds in milliseconds.
#[expect(clippy::cast_precision_loss, reason = "shown with three decimals")]
fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// How many per second.
#[expect(clippy::cast_precision_loss, reason = "shown with three decimals")]
pub(super) fn per_second(count: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() {
        return 0.0;
    }
    count as f64 / elapsed.as_secs_f64()
}

/// Microseconds for each of `count`.
#[expect(clippy::cast_precision_loss, reason = "shown with three decimals")]
pub(super) fn micros_each(time: Duration, count: u64) -> f64 {
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
        let fields = report().fields();
        let real = |name: &str| match fields.iter().find(|(one, _)| *one == name) {
            Some((_, Field::Real(number))) => *number,
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
        assert!(fields.contains(&(
            "error_kinds",
            Field::List(vec!["UNAVAILABLE: 7".to_owned()])
        )));
    }

    #[test]
    fn a_run_without_success_is_a_failure() {
        assert!(report().expect_some_success().is_ok());
        assert!(report().expect_no_errors().is_err());
        let mut failed = report();
        failed.histogram.reset();
        assert_eq!(
            failed.expect_some_success().unwrap_err().exit,
            Exit::Unreachable
        );
    }
}
