//! The counters of the server. [`crate::metrics`] renders them for Prometheus.
//!
//! A request costs a few additions to counters that exist from the start: no lock, no allocation, no
//! look-up but the one that finds its method.

mod method;

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline_cluster::Histogram;
use tonic::Code;

use crate::checks::CHECKS;

pub(crate) use method::Method;

/// gRPC has 17 codes, from 0 on.
pub(crate) const CODES: usize = 17;

/// See the module.
#[derive(Debug)]
pub(crate) struct Counters {
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

/// Counts up.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

/// Goes up and down.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

/// How often a check was passed, and failed.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) passed: Counter,
    pub(crate) failed: Counter,
}

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Gauge {
    /// Goes up by one if it is below `max`.
    pub(crate) fn rise(&self, max: u64) -> bool {
        let up = |now: u64| (now < max).then_some(now + 1);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        self.0.fetch_update(set, fetch, up).is_ok()
    }

    pub(crate) fn fall(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
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

impl Counters {
    /// A request was answered; one for a stream, when the stream began.
    pub(crate) fn answered(&self, method: Method, code: Code, took: Duration) {
        let of = &self.methods[method as usize];
        if let Some(counter) = of.codes.get(code as usize) {
            counter.add(1);
        }
        of.latency.record(took);
    }
}
