//! [`Watching`]: a stream of a client's watches. What follows from it for the connection is in [`super::watches`].

use std::task::{Context as Task, Poll};

use bowline_proto::etcdserverpb as pb;
use prost::Message as _;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::calls::StreamWaker;
use super::reply::{PREFIX_BYTES, SMALL_BYTES, length_of};
use crate::audited::Audited;
use crate::memory::{Charge, OverBudget};
use crate::metrics::Tally;
use crate::watch::{EncodedDelivery, WatchSession};

/// A client's watches.
pub(super) struct Watching {
    pub(super) session: WatchSession,
    tally: Tally,
    /// Its lines in the audit log.
    audited: Option<Audited>,
    waker: StreamWaker,
    /// What has come of the next requests, with their prefixes.
    pub(super) body: Vec<u8>,
    /// Of the stream, its head and what is kept of requests and messages.
    charge: Charge,
    /// What of the charge is for as long as the stream is.
    fixed_bytes: usize,
    /// What the client may still send.
    pub(super) receive_window: i64,
    /// What of it is to be given back.
    pub(super) consumed: u32,
    pub(super) has_client_ended: bool,
    /// Since when a part of a request is there, and not the whole.
    pub(super) partial_since: Option<Instant>,
    /// What the client takes.
    pub(super) send_window: i64,
    /// A delivery whose messages are not all written.
    current: Option<EncodedDelivery>,
    /// The rest of a message that was too long for a frame, and what of it is sent.
    pub(super) rest: Vec<u8>,
    rest_sent: usize,
    /// How it ends once the rest is sent.
    pub(super) end: Option<Option<Status>>,
    /// When the client has last taken something, or there was something for it.
    pub(super) since: Instant,
    /// Whether it waits for the client, and not for a message.
    pub(super) is_given: bool,
    /// Whether it is in the queue of those that can go on.
    pub(super) is_queued: bool,
}

impl Watching {
    /// A stream whose client may send so many bytes, and takes so many.
    pub(super) fn new(
        session: WatchSession,
        (tally, audited): (Tally, Option<Audited>),
        waker: StreamWaker,
        charge: Charge,
        receive_window: i64,
        send_window: i64,
        now: Instant,
    ) -> Watching {
        Watching {
            session,
            tally,
            audited,
            waker,
            body: Vec::new(),
            fixed_bytes: charge.bytes(),
            charge,
            receive_window,
            consumed: 0,
            has_client_ended: false,
            partial_since: None,
            send_window,
            current: None,
            rest: Vec::new(),
            rest_sent: 0,
            end: None,
            since: now,
            is_given: true,
            is_queued: true,
        }
    }

    /// The stream has ended.
    pub(super) fn end(self, refusal: Option<&Status>) {
        self.tally.end(refusal.map_or(Code::Ok, Status::code));
        if let Some(audited) = self.audited {
            audited.end(refusal);
        }
    }

    /// The client has used up so much of its window; returns whether it had so much.
    pub(super) fn take_window(&mut self, bytes: usize) -> bool {
        self.receive_window -= bytes as i64;
        self.consumed += bytes as u32;
        self.receive_window >= 0
    }

    /// Does what the requests that have come ask for, while there is room for the replies.
    pub(super) fn take_requests(&mut self, bytes_max: usize) -> Result<(), Status> {
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
            self.tally.received(1);
            taken += PREFIX_BYTES + bytes;
        }
        self.body.drain(..taken);
        if self.body.is_empty() {
            self.body = Vec::new();
        }
        Ok(())
    }

    /// Whether only a part of a request is there.
    pub(super) fn is_partial(&self) -> bool {
        let Some((prefix, rest)) = self.body.split_first_chunk::<PREFIX_BYTES>() else {
            return !self.body.is_empty();
        };
        length_of(prefix).is_some_and(|bytes| bytes > rest.len())
    }

    /// Charges what is kept.
    pub(super) fn charge(&mut self) -> Result<(), OverBudget> {
        let of_current = self.current.as_ref().map_or(0, EncodedDelivery::bytes);
        let kept = [self.body.len(), self.rest.len(), of_current];
        let kept = kept.into_iter().filter(|bytes| *bytes > SMALL_BYTES);
        self.charge.set(self.fixed_bytes + kept.sum::<usize>())
    }

    /// Appends up to so many bytes of messages, or of one that is longer. Returns whether there may be more.
    pub(super) fn write(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> bool {
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
        let mut sent = 0;
        let has_more = self.write_messages(out, start + bytes_max, &mut sent);
        self.tally.sent(sent);
        has_more
    }

    /// Appends messages until the output is so long; counts them.
    fn write_messages(&mut self, out: &mut Vec<u8>, length_max: usize, sent: &mut u64) -> bool {
        while out.len() < length_max && self.end.is_none() {
            if let Some(current) = &mut self.current {
                if current.write_next(out) {
                    *sent += 1;
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
pub(super) fn cut_off() -> Status {
    Status::internal("Unexpected EOF decoding stream.")
}
