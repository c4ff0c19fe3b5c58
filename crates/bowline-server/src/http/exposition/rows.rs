//! Rows of Prometheus's text format.

use std::fmt::{self, Write};

use bowline_cluster::{Histogram, HistogramSnapshot};

/// A row of one of Bowline's metrics, with its HELP and TYPE lines.
pub(super) fn write_row(
    out: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    value: u64,
) -> fmt::Result {
    writeln!(out, "# HELP bowline_{name} {help}")?;
    writeln!(out, "# TYPE bowline_{name} {kind}")?;
    writeln!(out, "bowline_{name} {value}")
}

/// The rows of a histogram. Without labels, only Prometheus's own.
pub(super) fn write_times(
    out: &mut String,
    name: &str,
    labels: &str,
    times: &HistogramSnapshot,
) -> fmt::Result {
    let (comma, braced) = match labels {
        "" => ("", String::new()),
        labels => (",", format!("{{{labels}}}")),
    };
    let (count, sum) = (times.count, times.sum_ns as f64 / 1e9);
    for (bound, upto) in Histogram::BOUNDS_US.iter().zip(times.upto) {
        let bound = *bound as f64 / 1e6;
        writeln!(out, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {upto}")?;
    }
    writeln!(out, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}")?;
    writeln!(out, "{name}_sum{braced} {sum}")?;
    writeln!(out, "{name}_count{braced} {count}")
}
