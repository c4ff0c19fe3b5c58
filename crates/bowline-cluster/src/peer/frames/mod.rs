//! Appends as frames over a connection of their own, without HTTP/2.
//!
//! Nearly all that members say to each other are appends and their replies, and each is small. Over HTTP/2 each passes through
//! two libraries and several tasks on either side. So the connections of replication and of heartbeats begin with a [`PREFACE`]
//! of our own, and carry frames:
//!
//! ```text
//! length of the body : u32 LE │ kind : u8 │ call : u32 LE │ body : a message of `bowline.peer.v1`
//! ```
//!
//! | kind | from | body | meaning |
//! |---|---|---|---|
//! | `Hello` | both, once | `Hello` | the version, and the largest body that the sender takes |
//! | `Append` | leader | `AppendRequest` | a request of the stream `call` |
//! | `One` | leader | `AppendRequest` | a request that is a call by itself: a heartbeat |
//! | `End` | both | none | the leader sends, or the peer answers, no more in this stream |
//! | `Reply` | peer | `AppendReply` | the answer to the oldest unanswered request of `call` |
//! | `Refused` | peer | `Refusal` | the end of `call`, and why |
//!
//! *Calls* are numbered from 1 upwards, one after the other: a call begins when the one before it has ended, or was given up.
//! Frames of an earlier call are passed over, as HTTP/2 does with those of a stream that was reset.
//!
//! *Version.* Both sides send their newest version with `Hello`; the smaller one counts. A member from before answers a
//! preface that it does not know by closing the connection. Then it is asked over gRPC ([`Link::frames`](super::link::Link)),
//! for a while.
//!
//! Invariants:
//!
//! - Nothing that a peer sends makes this member hold more than the limits of the port: a body is not longer than was
//!   announced, what is not complete is counted, and no request is read while replies wait to be sent.
//! - A reply belongs to the request that its place in its call says, whatever became of earlier calls.

mod client;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod server;
#[cfg(test)]
mod tests;
mod transport;

pub(crate) use client::{Outgoing, broken, call, connect};
pub(super) use server::serve;
use transport::Frames;
pub(super) use transport::{Begun, Sniffed, sniff};

use std::pin::Pin;
use std::sync::Arc;

use bowline_proto::peer::{AppendReply, AppendRequest};
use futures_core::Stream;
use futures_util::future::BoxFuture;
use tonic::Status;

use super::port::Connected;

/// The first bytes of a connection that carries frames; as long as HTTP/2's.
pub(crate) const PREFACE: &[u8; 24] = b"frames.bowline.peer.v1\r\n";

/// The newest version of frames that this program speaks.
const VERSION: u32 = 1;

/// The head of a frame, in bytes.
const HEAD_BYTES: usize = 9;

/// A stream of messages.
pub(crate) type Boxed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Answers appends.
pub(crate) trait Appends: Send + Sync + 'static {
    /// Answers the requests of a stream, in their order.
    fn stream(
        &self,
        requests: Boxed<AppendRequest>,
        connected: Arc<Connected>,
    ) -> Boxed<AppendReply>;

    /// Answers one request.
    fn one(
        &self,
        request: AppendRequest,
        connected: Arc<Connected>,
    ) -> BoxFuture<'_, Result<AppendReply, Status>>;
}

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Hello = 1,
    Append = 2,
    One = 3,
    End = 4,
    Reply = 5,
    Refused = 6,
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        use Kind as K;
        [K::Hello, K::Append, K::One, K::End, K::Reply, K::Refused]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    body_bytes: usize,
    kind: Kind,
    call: u32,
}

impl Head {
    fn encode(body_bytes: usize, kind: Kind, call: u32) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        // A body is never longer than the peer has announced, which is less.
        let length = u32::try_from(body_bytes).unwrap_or(u32::MAX);
        head[..4].copy_from_slice(&length.to_le_bytes());
        head[4] = kind as u8;
        head[5..].copy_from_slice(&call.to_le_bytes());
        head
    }

    fn decode(head: &[u8; HEAD_BYTES], bytes_max: usize) -> Result<Head, String> {
        let [a, b, c, d, kind, e, f, g, h] = *head;
        let body_bytes = u32::from_le_bytes([a, b, c, d]) as usize;
        if body_bytes > bytes_max {
            return Err(format!(
                "a frame of {body_bytes} bytes, over the limit of {bytes_max}"
            ));
        }
        let kind = Kind::of(kind).ok_or_else(|| format!("a frame of the unknown kind {kind}"))?;
        Ok(Head {
            body_bytes,
            kind,
            call: u32::from_le_bytes([e, f, g, h]),
        })
    }
}

/// A frame that has arrived.
#[derive(Debug)]
struct Frame {
    kind: Kind,
    call: u32,
    body: bytes::Bytes,
}
