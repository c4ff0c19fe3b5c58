//! The streams of a connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as _, Frame};
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;

use super::calls::StreamWaker;
use super::head::Head;
use super::watching::Watching;
use crate::memory::Charge;
use crate::metrics::Tally;
use crate::rates::Principal;

/// A stream that has begun, and has not ended on both sides.
pub(super) enum Stream {
    /// A hot call whose request arrives.
    Receiving(Receiving),
    /// A hot call that waits.
    Running(Running),
    /// A hot call whose reply waits for the client.
    Sending(Sending),
    /// A client's watches.
    Watching(Box<Watching>),
    /// Another call, which the relay carries.
    Relayed(Relayed),
}

/// A request that arrives.
pub(super) struct Receiving {
    pub(super) head: Arc<Head>,
    /// Of a long head.
    pub(super) head_charge: Option<Charge>,
    /// What has come of the message, with its prefix.
    pub(super) body: Vec<u8>,
    pub(super) charge: Option<Charge>,
    /// What the client may still send.
    pub(super) receive_window: i64,
    /// What it still takes.
    pub(super) send_window: i64,
    pub(super) begun: Instant,
}

/// A call that waits.
pub(super) struct Running {
    pub(super) slot: u32,
    pub(super) call: Call,
    /// Of its request and what it needs while it waits.
    pub(super) _charge: Charge,
}

/// What is known of a call until it is answered.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) send_window: i64,
    pub(super) tally: Tally,
    /// Who is charged for the reply, if there are limits.
    pub(super) principal: Option<Principal>,
}

/// A reply of which a part is not sent.
pub(super) struct Sending {
    pub(super) send_window: i64,
    /// The piece being sent, which counts as unsent until it is dropped.
    pub(super) piece: Bytes,
    /// What follows it.
    pub(super) rest: Bytes,
    /// Of what is in memory.
    pub(super) charge: Option<Charge>,
    /// Where more comes from, and the trailers.
    pub(super) long: Option<LongBody>,
    /// When the client has last taken a part of it, or the service has last given one.
    pub(super) since: Instant,
    /// Whether it waits for the client, and not for the service.
    pub(super) is_given: bool,
    /// Whether it is in the queue of those that can go on.
    pub(super) is_queued: bool,
}

/// A reply that is made while it is sent.
pub(super) struct LongBody {
    pub(super) body: Body,
    pub(super) waker: StreamWaker,
}

impl LongBody {
    /// The next part, or the trailers.
    pub(super) fn poll(&mut self) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.waker.reset();
        Pin::new(&mut self.body).poll_frame(&mut Context::from_waker(self.waker.waker()))
    }
}

/// A stream that the relay carries.
pub(super) struct Relayed {
    /// Its id on the pipe.
    pub(super) inner: u32,
    /// The client has ended its side.
    pub(super) has_client_ended: bool,
    /// The end of the reply has been sent.
    pub(super) has_server_ended: bool,
    /// The library has reset it, and the client will learn that behind what waits for it.
    pub(super) is_reset: bool,
    /// Of its head.
    pub(super) _charge: Option<Charge>,
}

impl Stream {
    /// Whether a message that began to arrive then has not arrived as a whole.
    pub(super) fn is_arriving(&self, begun: Instant) -> bool {
        match self {
            Stream::Receiving(_) => true,
            Stream::Watching(stream) => stream.partial_since == Some(begun),
            Stream::Running(_) | Stream::Sending(_) | Stream::Relayed(_) => false,
        }
    }

    /// Goes on if it has stopped for its window, and that is open again. Returns whether it has to be queued.
    pub(super) fn resume(&mut self) -> bool {
        let (is_queued, window) = match self {
            Stream::Sending(stream) => (&mut stream.is_queued, stream.send_window),
            Stream::Watching(stream) => (&mut stream.is_queued, stream.send_window),
            Stream::Receiving(_) | Stream::Running(_) | Stream::Relayed(_) => return false,
        };
        window > 0 && !std::mem::replace(is_queued, true)
    }

    /// The client takes so many bytes more, or fewer. Returns whether the window stays below its maximum.
    pub(super) fn open_window(&mut self, bytes: i64) -> bool {
        let window = match self {
            Stream::Receiving(stream) => &mut stream.send_window,
            Stream::Running(stream) => &mut stream.call.send_window,
            Stream::Sending(stream) => &mut stream.send_window,
            Stream::Watching(stream) => &mut stream.send_window,
            Stream::Relayed(_) => return true,
        };
        *window += bytes;
        *window <= super::frame::WINDOW_MAX
    }
}
