//! The registry of metrics. `http::exposition` renders it for Prometheus.
//!
//! A request costs a few additions to existing counters: no lock, no allocation, and no look-up except the
//! one for its method. Numbers of the node and the storage are read when the metrics are scraped.

mod check;
mod counter;
mod method;
mod tally;

use std::array;
use std::time::Duration;

use bowline_cluster::Histogram;
use tonic::Code;

pub(crate) use check::{CHECKS, Check, CheckOf, Outcomes};
pub(crate) use counter::{Counter, Gauge};
pub(crate) use method::{CallKind, Method};
pub(crate) use tally::Tally;

/// gRPC has 17 codes, from 0 on.
pub(crate) const CODES: usize = 17;

/// The registry of metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// In the order of [`Method::ALL`].
    methods: Box<[OfMethod]>,
    /// Open connections.
    pub(crate) connections: Gauge,
    /// Accepted connections.
    pub(crate) connections_accepted: Counter,
    /// Connections refused because of the limit.
    pub(crate) connections_refused: Counter,
    /// Bytes that clients have sent over HTTP/2.
    pub(crate) received_bytes: Counter,
    /// Bytes sent to clients over HTTP/2.
    pub(crate) sent_bytes: Counter,
    /// Requests for unknown services or methods.
    pub(crate) unknown: Counter,
    /// Results of `/health`.
    pub(crate) health: Outcomes,
    /// Results of each check of `/livez` and `/readyz`.
    pub(crate) checks: [Outcomes; CHECKS.len()],
}

/// The metrics of one method.
#[derive(Debug, Default)]
pub(crate) struct OfMethod {
    /// Calls that were begun.
    pub(crate) started: Counter,
    /// Calls that have ended, by code.
    pub(crate) ended: [Counter; CODES],
    /// How long they took.
    pub(crate) handling: Histogram,
    /// Streams whose reply began, or that were refused, by code.
    begun: [Counter; CODES],
    /// The times until then.
    beginning: Histogram,
    /// Messages of streams of requests.
    pub(crate) received: Counter,
    /// Messages of streams of replies.
    pub(crate) sent: Counter,
}

impl OfMethod {
    fn begins(&self, code: Code, took: Duration) {
        self.begun[code as usize % CODES].add(1);
        self.beginning.record(took);
    }

    /// Answers by code, and the times until them: of a unary call its end, of a stream the beginning of its reply.
    pub(crate) fn answers(&self, kind: CallKind) -> (&[Counter; CODES], &Histogram) {
        match kind {
            CallKind::Unary => (&self.ended, &self.handling),
            CallKind::ServerStream | CallKind::BidiStream => (&self.begun, &self.beginning),
        }
    }

    /// How many calls have ended.
    pub(crate) fn ended_count(&self) -> u64 {
        self.ended.iter().map(Counter::get).sum()
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            methods: Method::ALL.iter().map(|_| OfMethod::default()).collect(),
            connections: Gauge::default(),
            connections_accepted: Counter::default(),
            connections_refused: Counter::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            unknown: Counter::default(),
            health: Outcomes::default(),
            checks: array::from_fn(|_| Outcomes::default()),
        }
    }
}

impl Metrics {
    /// The metrics of a method.
    pub(crate) fn of(&self, method: Method) -> &OfMethod {
        &self.methods[method as usize]
    }

    /// All methods with their metrics.
    pub(crate) fn methods(&self) -> impl Iterator<Item = (Method, &OfMethod)> {
        Method::ALL.iter().copied().zip(&self.methods)
    }
}
