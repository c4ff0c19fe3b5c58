//! The leader's side of a connection that carries frames.
//!
//! A call owns its connection while it lives: whoever awaits its replies also writes its requests, so no other task is woken
//! for either. Then it gives the connection back for the next one, unless it has failed, or has written half a frame.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bowline_proto::peer::{AppendReply, AppendRequest, Hello, Refusal};
use bytes::BytesMut;
use futures_core::Stream;
use futures_util::StreamExt;
use prost::Message;
use tokio::io::AsyncReadExt;
use tonic::{Code, Status};

use super::transport::HELLO_BYTES_MAX;
use super::{Frame, Frames, Kind, PREFACE, VERSION};
use crate::peer::Connection;

/// So many bytes may wait to be written before more requests are asked for.
const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// A connection to a peer.
pub(crate) type Outgoing = Frames<Box<dyn Connection>>;

/// Begins to speak frames on a new connection; `None` when the peer does not speak them.
///
/// # Errors
/// Of the connection.
pub(crate) async fn connect(
    stream: Box<dyn Connection>,
    received_bytes_max: usize,
) -> io::Result<Option<Outgoing>> {
    let mut frames = Frames::new(stream, BytesMut::new(), HELLO_BYTES_MAX);
    frames.push_preface();
    let hello = Hello {
        version: VERSION,
        body_bytes_max: received_bytes_max as u64,
    };
    frames.push(Kind::Hello, 0, &hello)?;
    // A member from before closes the connection, perhaps before it has read everything.
    let written = std::future::poll_fn(|task| frames.poll_write(task)).await;
    let mut preface = [0; PREFACE.len()];
    let read = match written {
        Ok(()) => frames.stream_mut().read_exact(&mut preface).await.map(drop),
        Err(error) => Err(error),
    };
    match read {
        Ok(()) if preface == *PREFACE => {}
        Ok(()) => return Ok(None),
        Err(error) if is_closed(&error) => return Ok(None),
        Err(error) => return Err(error),
    }
    let answer = std::future::poll_fn(|task| frames.poll_frame(task)).await?;
    let hello = answer.filter(|frame| frame.kind == Kind::Hello);
    let hello = hello.and_then(|frame| Hello::decode(frame.body).ok());
    let hello = hello.filter(|hello| (1..=VERSION).contains(&hello.version));
    let unknown = || io::Error::new(io::ErrorKind::InvalidData, "a peer begins with no hello");
    frames.sent_bytes_max = bytes_max_of(&hello.ok_or_else(unknown)?);
    frames.received_bytes_max = received_bytes_max;
    Ok(Some(frames))
}

/// What a peer takes, as it says.
pub(super) fn bytes_max_of(hello: &Hello) -> usize {
    usize::try_from(hello.body_bytes_max)
        .unwrap_or(usize::MAX)
        .min(u32::MAX as usize)
}

fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
    )
}

/// A status for a connection that failed.
pub(crate) fn broken(error: io::Error) -> Status {
    let mut status = Status::unavailable("transport error");
    status.set_source(Arc::new(error));
    status
}

/// Sends the requests of a stream over a connection. `is_one` says that there is exactly one. When the stream of replies has
/// ended, or is dropped, it gives the connection to `done` if that can be used again.
pub(crate) fn call<R, D>(frames: Outgoing, requests: R, is_one: bool, done: D) -> Call<R, D>
where
    R: Stream<Item = AppendRequest> + Send + Unpin,
    D: FnOnce(Outgoing) + Send + Unpin,
{
    let mut frames = frames;
    frames.last_call = frames.last_call.wrapping_add(1);
    Call {
        state: Some((frames, done)),
        requests,
        kind: if is_one { Kind::One } else { Kind::Append },
        is_sent: false,
    }
}

/// The replies of a call.
pub(crate) struct Call<R, D>
where
    R: Stream<Item = AppendRequest> + Unpin,
    D: FnOnce(Outgoing) + Unpin,
{
    /// `None` once it has ended.
    state: Option<(Outgoing, D)>,
    requests: R,
    kind: Kind,
    /// Whether there are no more requests.
    is_sent: bool,
}

impl<R, D> Call<R, D>
where
    R: Stream<Item = AppendRequest> + Unpin,
    D: FnOnce(Outgoing) + Unpin,
{
    /// Writes requests, as long as there are any and the peer takes them.
    fn poll_send(&mut self, task: &mut Context<'_>) -> io::Result<()> {
        let Some((frames, _)) = &mut self.state else {
            return Ok(());
        };
        loop {
            while !self.is_sent && frames.unwritten_bytes() < OUTPUT_BYTES_MAX {
                let call = frames.last_call;
                match self.requests.poll_next_unpin(task) {
                    Poll::Ready(Some(request)) => {
                        frames.push(self.kind, call, &request)?;
                        self.is_sent = self.kind == Kind::One;
                    }
                    Poll::Ready(None) => {
                        frames.push_end(call);
                        self.is_sent = true;
                    }
                    Poll::Pending => break,
                }
            }
            if !frames.has_output() || frames.poll_write(task)?.is_pending() {
                return Ok(());
            }
        }
    }

    fn end(&mut self) {
        if let Some((frames, done)) = self.state.take()
            && frames.unwritten_bytes() == 0
        {
            done(frames);
        }
    }

    /// Handles a frame of this call.
    fn take(&mut self, frame: Frame) -> Option<Result<AppendReply, Status>> {
        match frame.kind {
            Kind::Reply => match AppendReply::decode(frame.body) {
                Ok(reply) => {
                    if self.kind == Kind::One {
                        self.end();
                    }
                    Some(Ok(reply))
                }
                Err(error) => {
                    self.state = None;
                    Some(Err(Status::internal(format!("a malformed reply: {error}"))))
                }
            },
            Kind::Refused => {
                let refusal = Refusal::decode(frame.body).unwrap_or_default();
                self.end();
                let code = Code::from_i32(i32::try_from(refusal.code).unwrap_or(-1));
                Some(Err(Status::new(code, refusal.text)))
            }
            Kind::End => {
                self.end();
                None
            }
            Kind::Hello | Kind::Append | Kind::One => {
                self.state = None;
                Some(Err(Status::internal("a peer answers with a request")))
            }
        }
    }
}

impl<R, D> Stream for Call<R, D>
where
    R: Stream<Item = AppendRequest> + Unpin,
    D: FnOnce(Outgoing) + Unpin,
{
    type Item = Result<AppendReply, Status>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Err(error) = this.poll_send(task) {
            this.state = None;
            return Poll::Ready(Some(Err(broken(error))));
        }
        loop {
            let Some((frames, _)) = &mut this.state else {
                return Poll::Ready(None);
            };
            let call = frames.last_call;
            let frame = match ready!(frames.poll_frame(task)) {
                Ok(Some(frame)) if frame.call == call => frame,
                // Of a call that was given up.
                Ok(Some(_)) => continue,
                Ok(None) => {
                    this.state = None;
                    let ended = io::ErrorKind::UnexpectedEof.into();
                    return Poll::Ready(Some(Err(broken(ended))));
                }
                Err(error) => {
                    this.state = None;
                    return Poll::Ready(Some(Err(broken(error))));
                }
            };
            return Poll::Ready(this.take(frame));
        }
    }
}

impl<R, D> Drop for Call<R, D>
where
    R: Stream<Item = AppendRequest> + Unpin,
    D: FnOnce(Outgoing) + Unpin,
{
    fn drop(&mut self) {
        self.end();
    }
}
