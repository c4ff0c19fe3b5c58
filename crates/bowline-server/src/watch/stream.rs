//! One client's stream with all of its watches.
//!
//! Requests are read when the connection polls for the next message. So a stream needs no task, and the
//! server reads no requests of a client that does not read replies.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use bowline::Revision;
use bowline_proto::etcdserverpb as pb;
use futures_core::Stream;
use pb::watch_create_request::FilterType;
use pb::watch_request::RequestUnion;
use tonic::{Status, Streaming};

use super::Watches;
use super::index::Span;
use super::message::{WatchMessage, response};
use super::shard::Shard;
use super::state::{Key, StreamState, Wants};
use super::stream_queue::{StreamQueue, Taken};
use crate::memory::{Charge, Memory, current_account};
use crate::reply_header::ReplyHeader;
use crate::status::{Fault, in_words_of_etcd};

/// The id in messages without a watch.
const NO_WATCH: i64 = -1;

/// One client's stream.
pub(crate) struct WatchStream {
    reply_header: Arc<ReplyHeader>,
    requests: Option<Streaming<pb::WatchRequest>>,
    shard: Arc<Shard>,
    queue: Arc<StreamQueue>,
    state: Arc<StreamState>,
    /// By id, with the charged bytes. As in etcd, a watch that ended by itself keeps its id until the client
    /// cancels it.
    watches: HashMap<i64, (Key, usize)>,
    next_id: i64,
    /// The memory of the stream's watches.
    charge: Charge,
}

/// The approximate memory of a watch besides its keys.
const WATCH_BYTES: usize = 1 << 10;

impl WatchStream {
    pub(crate) fn new(
        watches: &Watches,
        memory: &Arc<Memory>,
        reply_header: Arc<ReplyHeader>,
        requests: Streaming<pb::WatchRequest>,
        needs_leader: bool,
    ) -> WatchStream {
        let (shard, queue) = watches.open(needs_leader);
        let state = shard.open(queue.clone());
        let charge = Charge::none(current_account(memory));
        WatchStream {
            charge,
            reply_header,
            requests: Some(requests),
            shard,
            queue,
            state,
            watches: HashMap::new(),
            next_id: 0,
        }
    }

    fn handle(&mut self, request: pb::WatchRequest) {
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => self.create(&create),
            Some(RequestUnion::CancelRequest(cancel)) => {
                let id = cancel.watch_id;
                if let Some((key, bytes)) = self.watches.remove(&id) {
                    self.shard.cancel(&self.state, id, key);
                    // A release is never refused.
                    let _ = self.charge.set(self.charge.bytes() - bytes);
                }
            }
            Some(RequestUnion::ProgressRequest(_)) => self.shard.ask_progress(&self.state),
            None => {}
        }
    }

    fn create(&mut self, request: &pb::WatchCreateRequest) {
        if request.start_revision < 0 {
            return self.refuse(&Fault::Compacted.parts().1);
        }
        let Some(span) = Span::new(&request.key, &request.range_end) else {
            return self.refuse("mvcc: watcher range is empty");
        };
        let Some(id) = self.choose_id(request.watch_id) else {
            return self.refuse("mvcc: duplicate watch ID provided on the WatchStream");
        };
        // The index of the shard has a copy of the keys.
        let bytes = WATCH_BYTES + 2 * (request.key.len() + request.range_end.len());
        if self.charge.set(self.charge.bytes() + bytes).is_err() {
            return self.refuse(&Fault::OutOfMemory.parts().1);
        }
        let filters = |wanted: FilterType| request.filters.contains(&wanted.into());
        let wants = Wants {
            previous: request.prev_kv,
            no_puts: filters(FilterType::Noput),
            no_deletions: filters(FilterType::Nodelete),
            fragments: request.fragment,
            progress: request.progress_notify,
        };
        let start = request.start_revision;
        if let Some(key) = self.shard.create(&self.state, id, span, start, wants) {
            self.watches.insert(id, (key, bytes));
        } else {
            let _ = self.charge.set(self.charge.bytes() - bytes);
        }
    }

    /// The requested id, or a free one for 0; `None` when it is in use.
    fn choose_id(&mut self, asked: i64) -> Option<i64> {
        if asked != 0 {
            return (!self.watches.contains_key(&asked)).then_some(asked);
        }
        while self.watches.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        Some(self.next_id - 1)
    }

    fn refuse(&self, reason: &str) {
        let revision = self.shard.db.revision();
        self.queue.push(WatchMessage {
            created: true,
            canceled: true,
            cancel_reason: reason.to_owned(),
            ..response(NO_WATCH, revision, Vec::new())
        });
    }

    fn take_requests(&mut self, task: &mut TaskContext<'_>) -> Option<Status> {
        while let Some(requests) = &mut self.requests {
            if self.queue.is_full() {
                break;
            }
            match Pin::new(requests).poll_next(task) {
                Poll::Ready(Some(Ok(request))) => self.handle(request),
                Poll::Ready(Some(Err(status))) => return Some(in_words_of_etcd(status)),
                // The client sends no more requests, and receives events until either side ends the stream.
                Poll::Ready(None) => self.requests = None,
                Poll::Pending => break,
            }
        }
        None
    }
}

impl Stream for WatchStream {
    type Item = Result<WatchMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        if let Some(status) = self.take_requests(task) {
            return Poll::Ready(Some(Err(status)));
        }
        match self.queue.poll(task) {
            Poll::Ready(Taken::Message(mut message, has_room)) => {
                if has_room {
                    self.shard.resume(&self.state);
                }
                let revision = message.header.as_ref().map_or(0, |header| header.revision);
                let revision = Revision::new(revision as u64);
                message.header = self.reply_header.at(revision, self.reply_header.term());
                Poll::Ready(Some(Ok(message)))
            }
            Poll::Ready(Taken::End(status)) => match status {
                Some(status) if status.code() != tonic::Code::Ok => Poll::Ready(Some(Err(status))),
                _ => Poll::Ready(None),
            },
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        let keys = self.watches.values().map(|(key, _)| *key);
        self.shard.close(&self.state, keys);
    }
}
