//! The registry of metrics. `http::exposition` renders it for Prometheus.
//!
//! A request costs a few additions to existing counters: no lock, no allocation, and no look-up except the
//! one for its method. Numbers of the node and the storage are read when the metrics are scraped.

mod check;
mod counter;
mod method;

use std::array;
use std::time::Duration;

use bowline_cluster::Histogram;
use tonic::Code;

pub(crate) use check::{CHECKS, Check, CheckOf, Outcomes};
pub(crate) use counter::{Counter, Gauge};
pub(crate) use method::Method;

/// gRPC has 17 codes, from 0 on.
pub(crate) const CODES: usize = 17;

/// The registry of metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) methods: [OfMethod; Method::COUNT],
    /// Open connections.
    pub(crate) connections: Gauge,
    /// Accepted connections.
    pub(crate) connections_accepted: Counter,
    /// Connections refused because of the limit.
    pub(crate) connections_refused: Counter,
    /// Requests for unknown services or methods.
    pub(crate) unknown: Counter,
    /// Results of `/health`.
    pub(crate) health: Outcomes,
    /// Results of each check of `/livez` and `/readyz`.
    pub(crate) checks: [Outcomes; CHECKS.len()],
}

/// The metrics of one method.
#[derive(Debug)]
pub(crate) struct OfMethod {
    pub(crate) codes: [Counter; CODES],
    pub(crate) latency: Histogram,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            methods: array::from_fn(|_| OfMethod {
                codes: array::from_fn(|_| Counter::default()),
                latency: Histogram::default(),
            }),
            connections: Gauge::default(),
            connections_accepted: Counter::default(),
            connections_refused: Counter::default(),
            unknown: Counter::default(),
            health: Outcomes::default(),
            checks: array::from_fn(|_| Outcomes::default()),
        }
    }
}

impl Metrics {
    /// Counts an answered request; for a stream, at its start.
    pub(crate) fn answered(&self, method: Method, code: Code, took: Duration) {
        let of = &self.methods[method as usize];
        if let Some(counter) = of.codes.get(code as usize) {
            counter.add(1);
        }
        of.latency.record(took);
    }
}
