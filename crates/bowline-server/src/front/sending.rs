//! Replies: written at once where the windows let them through, and otherwise in turn with each other.
//!
//! A reply that waits is charged to the connection, and counts as unsent piece by piece: a client that reads slowly makes
//! progress, one that does not read at all is noticed.

use std::future::Future;
use std::mem;
use std::task::Poll;

use bytes::Bytes;
use http_body::Frame;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::calls::StreamWaker;
use super::connection::{Connection, OUT_BYTES_MAX};
use super::frame::{FRAME_BYTES_MIN, Reason, kind, write_head};
use super::hot::HotReply;
use super::reply::{
    AROUND_BYTES, PREFIX_BYTES, SMALL_BYTES, write_data_head, write_given_trailers, write_prefix,
    write_status_trailers, write_trailers,
};
use super::stream::{Call, LongBody, Sending, Stream};
use crate::audited;
use crate::memory::Charge;
use crate::metrics::Tally;
use crate::status::Fault;

/// The largest piece of a reply that counts as unsent by itself.
const PIECE_BYTES: usize = 256 << 10;
/// So many streams are in the queue although they have ended.
const SENDING_MIN: usize = 64;

impl<F: Future<Output = Result<HotReply, Status>>> Connection<F> {
    /// A waiting call has an answer.
    pub(super) fn answered(&mut self, id: u32, result: Result<HotReply, Status>) {
        if let Some(Stream::Running(running)) = self.streams.remove(&id) {
            self.answer(id, running.call, result);
        }
    }

    pub(super) fn answer(&mut self, id: u32, call: Call, result: Result<HotReply, Status>) {
        let code = result.as_ref().err().map_or(Code::Ok, Status::code);
        let Call {
            send_window,
            tally,
            principal,
        } = call;
        // One that is answered in the turn that read it took no time to speak of, but for the turn itself.
        tally.end(code);
        let reply = match result {
            Ok(reply) => reply,
            Err(status) => {
                self.writer.write_refusal(&mut self.out, id, &status);
                return;
            }
        };
        let message_bytes = reply.message.encoded_len();
        if let (Some(principal), Some(rates)) = (principal, &self.context.rates) {
            rates.charge(&principal, reply.scanned_bytes(message_bytes));
        }
        let bytes = message_bytes + PREFIX_BYTES;
        let window = self.send_window.min(send_window);
        // A longer one is charged, however long the client's frames may be. What waits already has its turn first.
        let is_next = self.held.is_empty() && self.sending.is_empty();
        let fits = bytes as i64 <= window
            && bytes <= FRAME_BYTES_MIN
            && self.out.len() < OUT_BYTES_MAX
            && is_next;
        if fits && reply.encoded.is_none() && reply.long.is_none() {
            self.out.reserve(bytes + AROUND_BYTES);
            self.writer.write_reply_head(&mut self.out, id, &reply);
            write_data_head(&mut self.out, id, message_bytes);
            reply.message.write(&mut self.out);
            self.send_window -= bytes as i64;
            write_trailers(&mut self.out, id);
            return;
        }
        self.writer.write_reply_head(&mut self.out, id, &reply);
        if let Some(long) = reply.long {
            let long = LongBody {
                body: long.into_grpc(),
                waker: StreamWaker::new(&self.wakes, id),
            };
            self.send_later(id, send_window, Bytes::new(), None, Some(long));
            return;
        }
        let is_read = reply.level.is_some();
        let framed_bytes = match &reply.encoded {
            Some(encoded) => encoded.bytes().len(),
            None => bytes,
        };
        let charge = match framed_bytes > SMALL_BYTES {
            true => match Charge::of(&self.account, framed_bytes) {
                Ok(charge) => Some(charge),
                Err(over) => {
                    let status = match is_read {
                        true => Status::from(over),
                        // A refusal would say that nothing was changed.
                        false => Fault::Timeout.into(),
                    };
                    write_status_trailers(&mut self.out, id, &status);
                    return;
                }
            },
            false => None,
        };
        let rest = match reply.encoded {
            Some(encoded) => encoded.into_bytes(),
            None => {
                let mut framed = Vec::with_capacity(bytes);
                write_prefix(&mut framed, message_bytes);
                reply.message.write(&mut framed);
                framed.into()
            }
        };
        self.send_later(id, send_window, rest, charge, None);
    }

    fn send_later(
        &mut self,
        id: u32,
        send_window: i64,
        rest: Bytes,
        charge: Option<Charge>,
        long: Option<LongBody>,
    ) {
        let now = Instant::now();
        let sending = Sending {
            send_window,
            piece: Bytes::new(),
            rest,
            charge,
            // Until the service was asked, the client is what it waits for.
            is_given: true,
            long,
            since: now,
            is_queued: true,
        };
        self.streams.insert(id, Stream::Sending(sending));
        self.queue(id);
        let timeout = self.limits.unread_timeout;
        self.unread_check.get_or_insert(now + timeout);
    }

    /// Queues a stream that has something to send.
    pub(super) fn queue(&mut self, id: u32) {
        // Those that have ended since are dropped now and then: nothing takes them while the window is closed.
        if self.sending.len() > SENDING_MIN + 2 * self.streams.len() {
            let streams = &self.streams;
            self.sending.retain(|id| {
                matches!(
                    streams.get(id),
                    Some(Stream::Sending(_) | Stream::Watching(_))
                )
            });
        }
        self.sending.push_back(id);
    }

    /// Ends the calls whose client has taken nothing of the reply for too long.
    pub(super) fn drop_unread(&mut self, now: Instant) {
        let timeout = self.limits.unread_timeout;
        let mut unread = Vec::new();
        let mut next: Option<Instant> = None;
        for (id, stream) in &self.streams {
            let until = match stream {
                Stream::Sending(stream) if stream.is_given => stream.since + timeout,
                Stream::Sending(_) => now + timeout,
                Stream::Watching(stream) if stream.is_given => stream.since + timeout,
                _ => continue,
            };
            if until <= now {
                unread.push(*id);
            } else {
                next = Some(next.map_or(until, |next| next.min(until)));
            }
        }
        for id in unread {
            self.account.memory().unread_replies.add(1);
            tracing::debug!("a call was ended: its client does not read the reply");
            self.reset(id, Reason::Cancel);
        }
        self.unread_check = next;
    }

    /// Gets the next part of a reply that is made while it is sent. Returns whether the stream goes on.
    fn fill(&mut self, id: u32) -> bool {
        let Some(Stream::Sending(stream)) = self.streams.get_mut(&id) else {
            return false;
        };
        let Some(long) = &mut stream.long else {
            return true;
        };
        if !stream.rest.is_empty() || !stream.piece.is_empty() {
            return true;
        }
        let polled = long.poll();
        stream.since = Instant::now();
        stream.is_given = polled.is_ready();
        let frame = match polled {
            Poll::Pending => {
                stream.is_queued = false;
                return false;
            }
            Poll::Ready(frame) => frame,
        };
        let status = match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => match Charge::of(&self.account, data.len()) {
                Ok(charge) => {
                    stream.charge = Some(charge);
                    stream.rest = data;
                    return true;
                }
                Err(over) => over.into(),
            },
            Some(Ok(Err(frame))) => {
                self.streams.remove(&id);
                let trailers = frame.into_trailers().unwrap_or_default();
                write_given_trailers(&mut self.out, id, &trailers);
                return false;
            }
            Some(Err(status)) => status,
            None => Fault::Internal("a reply has no end".to_owned()).into(),
        };
        self.streams.remove(&id);
        write_status_trailers(&mut self.out, id, &status);
        false
    }

    /// Sends what the windows let through: one frame of each reply in turn, and one of the library in between. Returns
    /// whether there is more that could be sent at once.
    pub(super) fn send(&mut self) -> bool {
        loop {
            if self.sending.is_empty() && self.held.is_empty() {
                return false;
            }
            if self.out.len() >= OUT_BYTES_MAX {
                return true;
            }
            let is_sent = match self.is_held_next {
                true => self.send_held() || self.send_reply(),
                false => self.send_reply() || self.send_held(),
            };
            if !is_sent {
                return false;
            }
        }
    }

    /// Sends a frame of a reply. Returns whether there may be another one.
    fn send_reply(&mut self) -> bool {
        if self.send_window <= 0 {
            return false;
        }
        let Some(id) = self.sending.pop_front() else {
            return false;
        };
        if let Some(Stream::Watching(_)) = self.streams.get(&id) {
            self.send_watch(id);
            return true;
        }
        if !self.fill(id) {
            return true;
        }
        let Some(Stream::Sending(stream)) = self.streams.get_mut(&id) else {
            return true;
        };
        if stream.piece.is_empty() {
            let piece = stream.rest.split_to(stream.rest.len().min(PIECE_BYTES));
            stream.piece = self.account.hand_over(piece);
        }
        if stream.piece.is_empty() {
            // A part without contents.
            self.sending.push_back(id);
            return true;
        }
        let room = self.send_window.min(stream.send_window);
        let room = usize::try_from(room).unwrap_or(0);
        let bytes = room.min(FRAME_BYTES_MIN).min(stream.piece.len());
        if bytes == 0 {
            stream.is_queued = false;
            return true;
        }
        let part = stream.piece.split_to(bytes);
        write_head(&mut self.out, bytes, kind::DATA, 0, id);
        self.out.extend_from_slice(&part);
        self.send_window -= bytes as i64;
        self.is_held_next = true;
        stream.send_window -= bytes as i64;
        stream.since = Instant::now();
        let has_more = !stream.piece.is_empty() || !stream.rest.is_empty();
        if has_more || stream.long.is_some() {
            self.sending.push_back(id);
            return true;
        }
        self.streams.remove(&id);
        write_trailers(&mut self.out, id);
        true
    }

    /// The window of a stream is open again.
    pub(super) fn resume(&mut self, id: u32) {
        if self.streams.get_mut(&id).is_some_and(Stream::resume) {
            self.sending.push_back(id);
        }
    }

    /// The service has more of a reply. Whatever the windows are, its time to be read begins now.
    pub(super) fn woken(&mut self, id: u32) {
        if let Some(Stream::Watching(_)) = self.streams.get(&id) {
            return self.wake_watch(id);
        }
        if let Some(Stream::Sending(stream)) = self.streams.get_mut(&id)
            && !mem::replace(&mut stream.is_given, true)
        {
            stream.since = Instant::now();
            if !mem::replace(&mut stream.is_queued, true) {
                self.sending.push_back(id);
            }
        }
    }

    /// Answers a call that was not made with a refusal.
    pub(super) fn refuse(&mut self, id: u32, status: &Status, has_client_ended: bool) {
        if let Some(Stream::Receiving(stream)) = self.streams.remove(&id)
            && let Some(served) = stream.head.hot
        {
            let tally = Tally::begin(&self.context.metrics, served.method(), stream.begun);
            tally.end(status.code());
            let credentials = &stream.head.terms.credentials;
            audited::refused(&self.context, served.method(), credentials, status);
        }
        self.writer.write_refusal(&mut self.out, id, status);
        if !has_client_ended {
            self.write_reset(id, Reason::NoError);
        }
    }
}
