//! The requests of one replication stream that wait for their replies.
//!
//! openraft notes when it yields a request. It takes a reply as the answer to every noted request that ends
//! at or before the acknowledged entry, and assumes that the peer was heard at the time of the last of them.
//! A request without entries, which only advances the commit index, ends where the request before it ends. So the
//! reply to the first would count as a reply to the second, which may be much younger: a leader that was suspended
//! between the two would believe that it still leads, and would serve lease reads and linearizable reads from an
//! outdated state.
//!
//! Invariant: while openraft handles the acknowledgement of an entry, each request which it has yielded and
//! which ends at or before this entry has been answered. Two rules keep it:
//!
//! - A reply is kept back while another request that ends at the same entry waits for its reply. The last
//!   reply stands for all of them.
//! - No request is taken from openraft from this decision until openraft asks for the next reply.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use futures_util::StreamExt;
use openraft::raft::AppendEntriesRequest;
use parking_lot::Mutex;

use super::wire;
use crate::types::{LogId, TypeConfig};

type Append = AppendEntriesRequest<TypeConfig>;

/// The requests of one stream, shared by the stream of requests and the stream of replies.
#[derive(Clone, Debug, Default)]
pub(super) struct Flight(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The entries at which the parts end that wait for their replies, in the order of the parts.
    awaited: VecDeque<Option<LogId>>,
    /// Whether openraft handles a reply.
    is_handling: bool,
    /// The stream of requests, while it waits for that.
    requests: Option<Waker>,
}

impl Flight {
    /// The parts of the next request, none longer than the wire takes.
    pub(super) fn poll_request(
        &self,
        context: &mut Context<'_>,
        requests: &mut (impl Stream<Item = Append> + Unpin),
    ) -> Poll<Option<Vec<Append>>> {
        // openraft notes the request while this is locked.
        let mut state = self.0.lock();
        if state.is_handling {
            state.requests = Some(context.waker().clone());
            return Poll::Pending;
        }
        requests.poll_next_unpin(context).map(|request| {
            let parts = wire::split_append(request?, wire::APPEND_BYTES);
            state.awaited.extend(parts.iter().map(last_entry));
            Some(parts)
        })
    }

    /// Whether a part waits for its reply.
    pub(super) fn is_awaited(&self) -> bool {
        !self.0.lock().awaited.is_empty()
    }

    /// Takes the reply to the oldest part, by which the peer acknowledges the log up to `matched`. Whether
    /// openraft may handle it: if not, a later reply acknowledges the same.
    pub(super) fn acknowledged(&self, matched: Option<LogId>) -> bool {
        let mut state = self.0.lock();
        state.awaited.pop_front();
        state.is_handling = state.awaited.front().is_none_or(|last| *last > matched);
        state.is_handling
    }

    /// Takes another reply to the oldest part.
    pub(super) fn refused(&self) {
        self.0.lock().awaited.pop_front();
    }

    /// Says that openraft has handled the last reply.
    pub(super) fn handled(&self) {
        let waiting = {
            let mut state = self.0.lock();
            state.is_handling = false;
            state.requests.take()
        };
        if let Some(requests) = waiting {
            requests.wake();
        }
    }
}

/// The entry at which a request ends.
pub(super) fn last_entry(request: &Append) -> Option<LogId> {
    let last = request.entries.last().map(|entry| entry.log_id);
    last.or(request.prev_log_id)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::{FutureExt, stream};

    use super::*;
    use crate::types::{Entry, LeaderId, Payload, Vote};

    fn at(index: u64) -> Option<LogId> {
        let (term, node_id) = (1, 1);
        let leader_id = LeaderId { term, node_id };
        Some(LogId { leader_id, index })
    }

    fn request(prev: u64, last: u64) -> Append {
        let entries = (prev + 1..=last).filter_map(at).map(|log_id| Entry {
            log_id,
            payload: Payload::Blank,
        });
        AppendEntriesRequest {
            vote: Vote::new_committed(1, 1),
            prev_log_id: at(prev),
            entries: entries.collect(),
            leader_commit: None,
        }
    }

    /// A leader was stopped for a second between two requests that ended at one entry: the entry itself, and
    /// the notice of its commit. The answer to the first, which had waited in its socket, renewed its lease
    /// from the time of the second, and it served a lease read of a value that a later leader had replaced.
    #[test]
    fn a_reply_does_not_acknowledge_a_later_request_that_ends_at_the_same_entry() {
        let flight = Flight::default();
        let mut requests = stream::iter([request(0, 10), request(10, 10), request(10, 12)]);
        let mut poll =
            || poll_fn(|context| flight.poll_request(context, &mut requests)).now_or_never();
        assert!(poll().is_some());
        assert!(poll().is_some());
        assert!(!flight.acknowledged(at(10)), "the notice waits for its own");
        assert!(poll().is_some(), "nothing is handled");
        assert!(
            flight.acknowledged(at(10)),
            "all that end here are answered"
        );
        assert!(flight.is_awaited());
        assert!(poll().is_none(), "a new notice would count as answered");
        flight.handled();
        assert!(matches!(poll(), Some(None)));
        assert!(flight.acknowledged(at(12)));
        assert!(!flight.is_awaited());
    }

    #[test]
    fn the_stream_of_requests_goes_on_once_a_reply_is_handled() {
        let flight = Flight::default();
        let mut requests = stream::iter([request(0, 1), request(1, 2)]);
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().expect("a runtime");
        runtime.block_on(async {
            let next = |context: &mut Context<'_>| flight.poll_request(context, &mut requests);
            let mut next = poll_fn(next);
            assert!((&mut next).await.is_some());
            assert!(flight.acknowledged(at(1)));
            let handling = async {
                tokio::task::yield_now().await;
                flight.handled();
            };
            let ((), parts) = tokio::join!(handling, &mut next);
            assert_eq!(parts.map(|parts| parts.len()), Some(1));
        });
    }
}
