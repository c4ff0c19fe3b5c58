//! The rows of a histogram in the text format of Prometheus.

use std::fmt::{self, Write};

use bowline_cluster::{Histogram, HistogramSnapshot};

/// The rows of a histogram. With no labels, only those of Prometheus itself.
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
