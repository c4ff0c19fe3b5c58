//! [`Tally`]: a call, counted once when it starts and once when it ends.
//!
//! The meanings are those of Prometheus's library for gRPC, which etcd uses. A call starts with its head; one that the front
//! serves when its request is there, since only then it is known not to be the relay's. A unary call ends with the result of
//! its service, whether or not the client reads the reply; a stream ends with its status. A call that nobody waits for any
//! more ends as `Canceled`.
//!
//! Invariant: every call that was counted as started is counted as ended exactly once, whatever becomes of it: the tally
//! lives as long as the call, and counts when it is dropped, at the latest.

use std::sync::Arc;

use tokio::time::Instant;
use tonic::Code;

use super::{CallKind, Method, Metrics};

/// A call under way.
#[derive(Debug)]
pub(crate) struct Tally {
    metrics: Arc<Metrics>,
    method: Method,
    begun: Instant,
    has_ended: bool,
}

impl Tally {
    /// Counts the start of a call.
    pub(crate) fn begin(metrics: &Arc<Metrics>, method: Method, begun: Instant) -> Tally {
        metrics.of(method).started.add(1);
        Tally {
            metrics: metrics.clone(),
            method,
            begun,
            has_ended: false,
        }
    }

    /// The kind of its method.
    pub(crate) fn kind(&self) -> CallKind {
        self.method.kind()
    }

    /// Counts the end of the call.
    pub(crate) fn end(mut self, code: Code) {
        self.count(code);
    }

    /// The reply of a stream begins, or the stream is refused.
    pub(crate) fn stream_begins(&self, code: Code) {
        self.metrics
            .of(self.method)
            .begins(code, self.begun.elapsed());
    }

    /// So many messages of a stream have arrived.
    pub(crate) fn received(&self, messages: u64) {
        self.metrics.of(self.method).received.add(messages);
    }

    /// So many messages of a stream are sent.
    pub(crate) fn sent(&self, messages: u64) {
        self.metrics.of(self.method).sent.add(messages);
    }

    fn count(&mut self, code: Code) {
        if !std::mem::replace(&mut self.has_ended, true) {
            let of = self.metrics.of(self.method);
            of.ended[code as usize % super::CODES].add(1);
            of.handling.record(self.begun.elapsed());
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.count(Code::Cancelled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_is_counted_once_at_its_start_and_once_at_its_end() {
        let metrics = Arc::new(Metrics::default());
        let of = metrics.of(Method::Put);
        let ended = |code| of.ended[code as usize].get();
        let done = Tally::begin(&metrics, Method::Put, Instant::now());
        let dropped = Tally::begin(&metrics, Method::Put, Instant::now());
        assert_eq!((of.started.get(), of.handling.read().count), (2, 0));
        done.end(Code::NotFound);
        assert_eq!((ended(Code::NotFound), ended(Code::Cancelled)), (1, 0));
        drop(dropped);
        assert_eq!((ended(Code::NotFound), ended(Code::Cancelled)), (1, 1));
        assert_eq!((of.started.get(), of.handling.read().count), (2, 2));
        assert_eq!(metrics.of(Method::Range).started.get(), 0);
    }
}
