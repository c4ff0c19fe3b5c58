//! Rows of Prometheus's text format.

use std::fmt::{self, Write};

use bowline_cluster::HistogramSnapshot;

/// The HELP and TYPE lines of a metric.
pub(super) fn head(out: &mut String, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(out, "# HELP {name} {help}")?;
    writeln!(out, "# TYPE {name} {kind}")
}

/// A row of one of Bowline's metrics, with its HELP and TYPE lines.
pub(super) fn write_row(
    out: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    value: u64,
) -> fmt::Result {
    let name = format!("bowline_{name}");
    head(out, &name, kind, help)?;
    writeln!(out, "{name} {value}")
}

/// The rows of a histogram in a view of its bounds. Without labels, only Prometheus's own.
pub(super) fn write_times(
    out: &mut String,
    name: &str,
    labels: &str,
    times: &HistogramSnapshot,
    bounds_us: &[u64],
) -> fmt::Result {
    let (comma, braced) = match labels {
        "" => ("", String::new()),
        labels => (",", format!("{{{labels}}}")),
    };
    let (count, sum) = (times.count, times.sum_ns as f64 / 1e9);
    for bound_us in bounds_us {
        let (bound, upto) = (*bound_us as f64 / 1e6, times.count_upto(*bound_us));
        writeln!(out, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {upto}")?;
    }
    writeln!(out, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}")?;
    writeln!(out, "{name}_sum{braced} {sum}")?;
    writeln!(out, "{name}_count{braced} {count}")
}
