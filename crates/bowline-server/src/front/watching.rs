//! A client's watches: the requests of the stream, and its messages from their queue to the output.
//!
//! ```text
//! DATA ─▶ body ─▶ requests ─▶ WatchSession ─▶ queue ─▶ EncodedDelivery ─▶ DATA
//! ```
//!
//! The stream is served from its head on, whatever comes behind it, since a client may wait for the reply's head before
//! it asks for anything. Messages are written as the windows and the output have room, many to a frame; only the one
//! that did not fit is kept, and charged. A client that does not read its messages makes no more requests, and is noticed
//! as for any other reply.
//!
//! What is received of a message is charged, and has the time of any request to arrive. The window of the stream is
//! given back while there is room for messages.

use std::future::Future;
use std::mem;
use std::task::{Context as Task, Poll};

use bowline_proto::etcdserverpb as pb;
use prost::Message as _;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::STREAM_WINDOW;
use super::calls::StreamWaker;
use super::connection::{CALL_BYTES, Connection, SMALL_BYTES, length_of};
use super::frame::{FRAME_BYTES_MIN, Reason, end_frame, kind, write_head, write_window_update};
use super::head::Head;
use super::hot::HotReply;
use super::reply::{PREFIX_BYTES, write_status_trailers, write_trailers};
use super::stream::Stream;
use crate::memory::{Charge, OverBudget};
use crate::metrics::Method;
use crate::service::WatchService;
use crate::status::in_words_of_etcd;
use crate::watch::{EncodedDelivery, WatchSession};

/// The window of a stream is renewed in such steps.
const RENEW_BYTES: u32 = 64 << 10;

/// A client's watches.
pub(super) struct Watching {
    session: WatchSession,
    waker: StreamWaker,
    /// What has come of the next requests, with their prefixes.
    body: Vec<u8>,
    /// Of the stream, its head and what is kept of requests and messages.
    charge: Charge,
    /// What of the charge is for as long as the stream is.
    fixed_bytes: usize,
    /// What the client may still send.
    receive_window: i64,
    /// What of it is to be given back.
    consumed: u32,
    pub(super) has_client_ended: bool,
    /// Since when a part of a request is there, and not the whole.
    pub(super) partial_since: Option<Instant>,
    /// What the client takes.
    pub(super) send_window: i64,
    /// A delivery whose messages are not all written.
    current: Option<EncodedDelivery>,
    /// The rest of a message that was too long for a frame, and what of it is sent.
    rest: Vec<u8>,
    rest_sent: usize,
    /// How it ends once the rest is sent.
    end: Option<Option<Status>>,
    /// When the client has last taken something, or there was something for it.
    pub(super) since: Instant,
    /// Whether it waits for the client, and not for a message.
    pub(super) is_given: bool,
    /// Whether it is in the queue of those that can go on.
    pub(super) is_queued: bool,
}

impl Watching {
    /// The client has used up so much of its window; returns whether it had so much.
    pub(super) fn take_window(&mut self, bytes: usize) -> bool {
        self.receive_window -= bytes as i64;
        self.consumed += bytes as u32;
        self.receive_window >= 0
    }

    /// Does what the requests that have come ask for, while there is room for the replies.
    fn take_requests(&mut self, bytes_max: usize) -> Result<(), Status> {
        let mut taken = 0;
        while let Some((prefix, rest)) = self.body[taken..].split_first_chunk::<PREFIX_BYTES>() {
            if self.session.is_full() {
                break;
            }
            let bytes = length_of(prefix).ok_or_else(|| not_plain(prefix[0]))?;
            if bytes > bytes_max {
                return Err(too_long(bytes, bytes_max));
            }
            let Some(message) = rest.get(..bytes) else {
                break;
            };
            let request = pb::WatchRequest::decode(message).map_err(not_decodable)?;
            self.session.handle(request);
            taken += PREFIX_BYTES + bytes;
        }
        self.body.drain(..taken);
        if self.body.is_empty() {
            self.body = Vec::new();
        }
        Ok(())
    }

    /// Whether only a part of a request is there.
    fn is_partial(&self) -> bool {
        let Some((prefix, rest)) = self.body.split_first_chunk::<PREFIX_BYTES>() else {
            return !self.body.is_empty();
        };
        length_of(prefix).is_some_and(|bytes| bytes > rest.len())
    }

    /// Charges what is kept.
    fn charge(&mut self) -> Result<(), OverBudget> {
        let of_current = self.current.as_ref().map_or(0, EncodedDelivery::bytes);
        let kept = [self.body.len(), self.rest.len(), of_current];
        let kept = kept.into_iter().filter(|bytes| *bytes > SMALL_BYTES);
        self.charge.set(self.fixed_bytes + kept.sum::<usize>())
    }

    /// Appends up to so many bytes of messages, or of one that is longer. Returns whether there may be more.
    fn write(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        let start = out.len();
        if !self.rest.is_empty() {
            let left = &self.rest[self.rest_sent..];
            let part = &left[..left.len().min(bytes_max)];
            out.extend_from_slice(part);
            self.rest_sent += part.len();
            if self.rest_sent < self.rest.len() {
                return true;
            }
            (self.rest, self.rest_sent) = (Vec::new(), 0);
        }
        self.waker.reset();
        while out.len() - start < bytes_max && self.end.is_none() {
            if let Some(current) = &mut self.current {
                if current.write_next(out) {
                    continue;
                }
                self.current = None;
            }
            match self.session.poll(&mut Task::from_waker(self.waker.waker())) {
                Poll::Ready(Ok(Some(delivery))) => {
                    self.current = Some(EncodedDelivery::new(delivery));
                }
                Poll::Ready(Ok(None)) => self.end = Some(None),
                Poll::Ready(Err(status)) => self.end = Some(Some(status)),
                Poll::Pending => return false,
            }
        }
        true
    }
}

impl<F: Future<Output = Result<HotReply, Status>>> Connection<F> {
    /// A watch begins.
    pub(super) fn begin_watch(&mut self, id: u32, head: &Head) {
        let fixed_bytes = CALL_BYTES + head.bytes;
        let opened = match Charge::of(&self.account, fixed_bytes) {
            Ok(charge) => {
                let session = WatchService::open(&self.context, head.terms.needs_leader);
                session.map(|session| (session, charge))
            }
            Err(over) => Err(over.into()),
        };
        let code = opened.as_ref().err().map_or(Code::Ok, Status::code);
        let metrics = &self.context.metrics;
        metrics.answered(Method::Watch, code, self.now.elapsed());
        let (session, charge) = match opened {
            Ok(opened) => opened,
            Err(status) => {
                self.writer.write_refusal(&mut self.out, id, &status);
                self.write_reset(id, Reason::NoError);
                return;
            }
        };
        self.writer.write_stream_head(&mut self.out, id);
        let watching = Watching {
            session,
            waker: StreamWaker::new(&self.wakes, id),
            body: Vec::new(),
            charge,
            fixed_bytes,
            receive_window: i64::from(STREAM_WINDOW),
            consumed: 0,
            has_client_ended: false,
            partial_since: None,
            send_window: i64::from(self.followed.window),
            current: None,
            rest: Vec::new(),
            rest_sent: 0,
            end: None,
            since: self.now,
            is_given: true,
            is_queued: true,
        };
        self.streams
            .insert(id, Stream::Watching(Box::new(watching)));
        self.queue(id);
    }

    /// Requests have come, or a part of one.
    pub(super) fn watch_data(
        &mut self,
        id: u32,
        data: &[u8],
        has_ended: bool,
    ) -> Result<(), Reason> {
        let Some(Stream::Watching(stream)) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        stream.body.extend_from_slice(data);
        stream.has_client_ended = has_ended;
        self.take_watch_requests(id);
        Ok(())
    }

    /// See [`Watching::take_requests`].
    fn take_watch_requests(&mut self, id: u32) {
        let bytes_max = self.context.settings.message_bytes_max();
        let now = self.now;
        let Some(Stream::Watching(stream)) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.end.is_some() {
            stream.body = Vec::new();
            return;
        }
        let before = stream.body.len();
        if let Err(status) = stream.take_requests(bytes_max) {
            return self.end_watch(id, Some(in_words_of_etcd(status)));
        }
        let has_taken = stream.body.len() < before;
        if let Err(over) = stream.charge() {
            return self.end_watch(id, Some(over.into()));
        }
        if !stream.is_partial() {
            stream.partial_since = None;
        } else if stream.has_client_ended {
            return self.end_watch(id, Some(cut_off()));
        } else if stream.partial_since.is_none() || has_taken {
            stream.partial_since = Some(now);
            self.note_incomplete(id);
        }
        let Some(Stream::Watching(stream)) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.consumed >= RENEW_BYTES && !stream.session.is_full() {
            let bytes = mem::take(&mut stream.consumed);
            stream.receive_window += i64::from(bytes);
            write_window_update(&mut self.out, id, bytes);
        }
        if has_taken {
            self.wake_watch(id);
        }
    }

    /// There may be something for the client, whose time to read it begins now.
    pub(super) fn wake_watch(&mut self, id: u32) {
        let now = Instant::now();
        if let Some(Stream::Watching(stream)) = self.streams.get_mut(&id) {
            if !mem::replace(&mut stream.is_given, true) {
                stream.since = now;
            }
            if !mem::replace(&mut stream.is_queued, true) {
                self.queue(id);
            }
        }
        let timeout = self.limits.unread_timeout;
        self.unread_check.get_or_insert(now + timeout);
    }

    /// Sends a frame of messages.
    pub(super) fn send_watch(&mut self, id: u32) {
        let Some(Stream::Watching(stream)) = self.streams.get_mut(&id) else {
            return;
        };
        let room = self.send_window.min(stream.send_window);
        let room = usize::try_from(room).unwrap_or(0).min(FRAME_BYTES_MIN);
        if room == 0 {
            stream.is_queued = false;
            return;
        }
        let head_at = self.out.len();
        write_head(&mut self.out, 0, kind::DATA, 0, id);
        let start = self.out.len();
        let has_more = stream.write(&mut self.out, room);
        if self.out.len() > start + room {
            stream.rest = self.out.split_off(start + room);
        }
        let bytes = self.out.len() - start;
        match bytes {
            0 => self.out.truncate(head_at),
            _ => end_frame(&mut self.out, head_at),
        }
        self.send_window -= bytes as i64;
        stream.send_window -= bytes as i64;
        self.is_held_next = true;
        if bytes > 0 {
            stream.since = Instant::now();
        }
        stream.is_given = has_more;
        stream.is_queued = has_more;
        let charged = stream.charge();
        let ended = match stream.rest.is_empty() {
            true => stream.end.take(),
            false => None,
        };
        let is_waiting = !stream.body.is_empty();
        if has_more {
            self.queue(id);
        }
        if let Some(end) = ended {
            return self.end_watch(id, end);
        }
        if let Err(over) = charged {
            return self.end_watch(id, Some(over.into()));
        }
        if is_waiting {
            self.take_watch_requests(id);
        }
    }

    /// Ends the stream of a client's watches.
    pub(super) fn end_watch(&mut self, id: u32, status: Option<Status>) {
        let Some(Stream::Watching(stream)) = self.streams.get_mut(&id) else {
            return;
        };
        if !stream.rest.is_empty() {
            // A message is sent as a whole.
            stream.end = Some(status);
            stream.partial_since = None;
            return;
        }
        let has_client_ended = stream.has_client_ended;
        self.streams.remove(&id);
        match status {
            Some(status) => write_status_trailers(&mut self.out, id, &status),
            None => write_trailers(&mut self.out, id),
        }
        if !has_client_ended {
            self.write_reset(id, Reason::NoError);
        }
    }
}

/// The status that the library has for a prefix that says that the message is compressed, or nothing known.
fn not_plain(flag: u8) -> Status {
    Status::internal(match flag {
        1 => "protocol error: received message with compressed-flag but no grpc-encoding was specified"
            .to_owned(),
        flag => format!(
            "protocol error: received message with invalid compression flag: {flag} (valid flags are 0 and 1), while \
             sending request"
        ),
    })
}

/// The status for a message that is longer than allowed.
fn too_long(bytes: usize, bytes_max: usize) -> Status {
    Status::out_of_range(format!(
        "Error, decoded message length too large: found {bytes} bytes, the limit is: {bytes_max} bytes"
    ))
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn not_decodable(error: prost::DecodeError) -> Status {
    Status::internal(error.to_string())
}

/// The status for a message whose end does not come.
fn cut_off() -> Status {
    Status::internal("Unexpected EOF decoding stream.")
}
