//! [`WatchSession`]: a client's watches, without the stream that carries its requests and messages.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use bowline::Revision;
use bowline_proto::etcdserverpb as pb;
use pb::watch_create_request::FilterType;
use pb::watch_request::RequestUnion;
use tonic::{Code, Status};

use super::Watches;
use super::index::Span;
use super::message::{Delivery, WatchMessage, response};
use super::rights::WatchRights;
use super::shard::Shard;
use super::state::{Key, StreamState, Wants};
use super::stream_queue::{StreamQueue, Taken};
use crate::audit::WatchAudit;
use crate::memory::{Charge, Memory, current_account};
use crate::reply_header::ReplyHeader;
use crate::status::Fault;

/// The id in messages without a watch.
const NO_WATCH: i64 = -1;

/// So many requests wait until it is known who the caller is.
const WAITING_MAX: usize = 16;

/// The approximate memory of a watch besides its keys.
const WATCH_BYTES: usize = 1 << 10;

/// One client's watches.
pub(crate) struct WatchSession {
    reply_header: Arc<ReplyHeader>,
    shard: Arc<Shard>,
    queue: Arc<StreamQueue>,
    state: Arc<StreamState>,
    /// By id, with the charged bytes. As in etcd, a watch that ended by itself keeps its id until the client
    /// cancels it.
    watches: HashMap<i64, (Key, usize)>,
    next_id: i64,
    /// The memory of the watches.
    charge: Charge,
    rights: WatchRights,
    /// Requests that came before the caller was known.
    waiting: Vec<pb::WatchRequest>,
    /// The lines of the watches in the audit log.
    audit: Option<WatchAudit>,
}

impl WatchSession {
    /// Opens one without a watch, in the account of the current connection.
    pub(crate) fn new(
        watches: &Watches,
        memory: &Arc<Memory>,
        reply_header: Arc<ReplyHeader>,
        needs_leader: bool,
        rights: WatchRights,
        audit: Option<WatchAudit>,
    ) -> WatchSession {
        let (shard, queue) = watches.open(needs_leader, Some(rights.granted().clone()));
        let state = shard.open(queue.clone());
        let charge = Charge::none(current_account(memory));
        WatchSession {
            charge,
            reply_header,
            shard,
            queue,
            state,
            watches: HashMap::new(),
            next_id: 0,
            rights,
            waiting: Vec::new(),
            audit,
        }
    }

    /// Does what a request asks for. The reply comes through [`WatchSession::poll`].
    pub(crate) fn handle(&mut self, request: pb::WatchRequest) {
        if self.rights.is_sought() {
            self.waiting.push(request);
            return;
        }
        match request.request_union {
            Some(RequestUnion::CreateRequest(create)) => self.create(&create),
            Some(RequestUnion::CancelRequest(cancel)) => {
                let id = cancel.watch_id;
                if let Some((key, bytes)) = self.watches.remove(&id) {
                    self.rights.cancelled(id);
                    if let Some(audit) = &mut self.audit {
                        audit.ended(id, "");
                    }
                    self.shard.cancel(&self.state, id, key);
                    // A release is never refused.
                    let _ = self.charge.set(self.charge.bytes() - bytes);
                }
            }
            Some(RequestUnion::ProgressRequest(_)) => self.shard.ask_progress(&self.state),
            None => {}
        }
    }

    /// Whether so much waits for the client that it should make no more requests.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.is_full() || self.waiting.len() >= WAITING_MAX
    }

    /// The next message; `None` at the end.
    pub(crate) fn poll(
        &mut self,
        task: &mut TaskContext<'_>,
    ) -> Poll<Result<Option<Delivery>, Status>> {
        if self.rights.is_sought() && self.rights.poll_known(task).is_ready() {
            if let Some(audit) = &mut self.audit {
                audit.identify(self.rights.user());
            }
            for request in std::mem::take(&mut self.waiting) {
                self.handle(request);
            }
        }
        match self.queue.poll(task) {
            Poll::Ready(Taken::Message(mut delivery, has_room)) => {
                if has_room {
                    self.shard.resume(&self.state);
                }
                let message = &delivery.message;
                if message.canceled
                    && let Some(audit) = &mut self.audit
                {
                    audit.ended(message.watch_id, &message.cancel_reason);
                }
                let header = message.header.as_ref();
                let revision = header.map_or(0, |header| header.revision);
                let revision = Revision::new(revision as u64);
                let term = self.reply_header.term();
                delivery.message.header = self.reply_header.at(revision, term);
                Poll::Ready(Ok(Some(delivery)))
            }
            Poll::Ready(Taken::End(status)) => Poll::Ready(match status {
                Some(status) if status.code() != Code::Ok => {
                    Err(for_elsewhere(status, self.rights.voters()))
                }
                _ => Ok(None),
            }),
            Poll::Pending => Poll::Pending,
        }
    }

    fn create(&mut self, request: &pb::WatchCreateRequest) {
        if let Some(Err(full)) = self.audit.as_ref().map(WatchAudit::admit) {
            return self.refuse(full.message());
        }
        let created = self.created(request);
        if let Some(audit) = &mut self.audit {
            match &created {
                Ok(Some(id)) => audit.created(*id, request),
                Ok(None) => {}
                Err(reason) => audit.refused(request, reason),
            }
        }
        if let Err(reason) = created {
            self.refuse(&reason);
        }
    }

    /// Creates a watch; returns its id, if the stream goes on, or why it is refused.
    fn created(
        &mut self,
        request: &pb::WatchCreateRequest,
    ) -> Result<Option<i64>, Cow<'static, str>> {
        if request.start_revision < 0 {
            return Err(Fault::Compacted.parts().1);
        }
        if let Err(refused) = self.rights.check(&request.key, &request.range_end) {
            // In etcd's form: a status, as its library writes one.
            let (code, text) = (refused.code(), refused.message());
            return Err(format!("rpc error: code = {code:?} desc = {text}").into());
        }
        let Some(span) = Span::new(&request.key, &request.range_end) else {
            return Err("mvcc: watcher range is empty".into());
        };
        let Some(id) = self.choose_id(request.watch_id) else {
            return Err("mvcc: duplicate watch ID provided on the WatchStream".into());
        };
        // The index of the shard has a copy of the keys.
        let bytes = WATCH_BYTES + 2 * (request.key.len() + request.range_end.len());
        if self.charge.set(self.charge.bytes() + bytes).is_err() {
            return Err(Fault::OutOfMemory.parts().1);
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
            self.rights.created(id, &request.key, &request.range_end);
            Ok(Some(id))
        } else {
            let _ = self.charge.set(self.charge.bytes() - bytes);
            Ok(None)
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
}

/// The status of a stream that has ended because this member cannot read its files. Where there are other voters it is
/// `UNAVAILABLE`, with which clients go on at another member.
fn for_elsewhere(status: Status, voters: usize) -> Status {
    match status.code() {
        Code::DataLoss | Code::Internal if voters > 1 => Status::unavailable(status.message()),
        _ => status,
    }
}

impl Drop for WatchSession {
    fn drop(&mut self) {
        let keys = self.watches.values().map(|(key, _)| *key);
        self.shard.close(&self.state, keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_member_cannot_read_another_one_may() {
        for (code, voters, told) in [
            (Code::DataLoss, 1, Code::DataLoss),
            (Code::DataLoss, 3, Code::Unavailable),
            (Code::Internal, 1, Code::Internal),
            (Code::Internal, 2, Code::Unavailable),
            (Code::PermissionDenied, 3, Code::PermissionDenied),
        ] {
            let status = for_elsewhere(Status::new(code, "why"), voters);
            assert_eq!((status.code(), status.message()), (told, "why"));
        }
    }
}
