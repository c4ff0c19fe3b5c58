//! The registry of what the server counts. `http::exposition` writes it for Prometheus.
//!
//! A request costs a few additions to counters that exist from the start: no lock, no allocation, no
//! look-up but the one that finds its method. The numbers of the node and of the storage are asked
//! for when somebody reads them.

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

/// See the module.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) methods: [OfMethod; Method::COUNT],
    /// Connections that are open.
    pub(crate) connections: Gauge,
    /// Connections that were taken.
    pub(crate) connections_accepted: Counter,
    /// Connections that were over the limit.
    pub(crate) connections_refused: Counter,
    /// Requests for services or methods that there are not.
    pub(crate) unknown: Counter,
    /// Answers of `/health`.
    pub(crate) health: Outcomes,
    /// Of each check of `/livez` and `/readyz`.
    pub(crate) checks: [Outcomes; CHECKS.len()],
}

/// Of one method.
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
    /// A request was answered; one for a stream, when the stream began.
    pub(crate) fn answered(&self, method: Method, code: Code, took: Duration) {
        let of = &self.methods[method as usize];
        if let Some(counter) = of.codes.get(code as usize) {
            counter.add(1);
        }
        of.latency.record(took);
    }
}
