//! The peer's side of a connection that carries frames: one task reads requests and writes replies.
//!
//! The requests of a stream go through a short queue to whoever answers them. While it is full, or replies wait to be written,
//! nothing is read. So a leader that sends faster than this member takes, or that does not read, waits.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bowline_proto::peer::{AppendReply, AppendRequest, Hello, Refusal};
use bytes::BytesMut;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::client::bytes_max_of;
use super::transport::HELLO_BYTES_MAX;
use super::{Appends, Boxed, Frame, Frames, Kind, VERSION};
use crate::peer::body::{FREE_BYTES, Silence};
use crate::peer::port::Connected;

/// How many requests of a stream may wait for whoever answers them.
const REQUESTS_MAX: usize = 64;
/// While so many bytes of replies wait to be written, nothing is read.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// The most calls in a row that may be refused before the connection is closed: each costs nearly as much as one that is
/// answered, and nobody needs the refusals.
const REFUSED_MAX: usize = 64;

/// Serves a connection on which `read` has arrived behind the preface, until it ends.
///
/// # Errors
/// Of the connection, and of what is no frame.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    read: BytesMut,
    appends: Arc<dyn Appends>,
    connected: Arc<Connected>,
    received_bytes_max: usize,
) -> io::Result<()> {
    let mut frames = Frames::new(stream, read, HELLO_BYTES_MAX);
    frames.push_preface();
    let limit = connected.limits().preface_timeout;
    let hello = std::future::poll_fn(|task| frames.poll_frame(task));
    let hello = tokio::time::timeout(limit, hello).await;
    let hello = hello.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let hello = hello.filter(|frame| frame.kind == Kind::Hello);
    let hello = hello.and_then(|frame| Hello::decode(frame.body).ok());
    let Some(hello) = hello.filter(|hello| hello.version > 0) else {
        return Err(malformed("a connection that begins with no hello"));
    };
    let answer = Hello {
        version: hello.version.min(VERSION),
        body_bytes_max: received_bytes_max as u64,
    };
    frames.push(Kind::Hello, 0, &answer)?;
    frames.sent_bytes_max = bytes_max_of(&hello);
    frames.received_bytes_max = received_bytes_max;
    let mut served = Served {
        frames,
        appends,
        silence: Silence::default(),
        held: Held {
            bytes: 0,
            connected,
        },
        call: Call::None,
        refused: 0,
    };
    std::future::poll_fn(|task| served.poll(task)).await
}

fn malformed(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The call that is answered.
enum Call<'a> {
    None,
    Stream {
        /// `None` when the peer has no more requests.
        requests: Option<mpsc::Sender<Result<AppendRequest, Status>>>,
        replies: Boxed<AppendReply>,
    },
    One(BoxFuture<'a, Result<AppendReply, Status>>),
}

/// What incomplete frames take of the port's budget.
struct Held {
    bytes: usize,
    connected: Arc<Connected>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.connected.hold(&mut self.bytes, 0);
    }
}

struct Served<S> {
    frames: Frames<S>,
    appends: Arc<dyn Appends>,
    silence: Silence,
    held: Held,
    call: Call<'static>,
    /// How many calls in a row were refused.
    refused: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Served<S> {
    fn poll(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.poll_replies(task)?;
            // What is written makes room for what is read.
            let is_written = self.frames.poll_write(task)?.is_ready();
            if self.refused >= REFUSED_MAX {
                return match is_written {
                    true => Poll::Ready(Err(malformed("all calls were refused"))),
                    false => Poll::Pending,
                };
            }
            if !self.takes_requests() {
                return Poll::Pending;
            }
            match self.frames.poll_frame(task)? {
                Poll::Ready(Some(frame)) => {
                    self.silence.has_ended();
                    self.take(&frame)?;
                }
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => return self.poll_silence(task),
            }
        }
    }

    /// Whether another frame may be read: a full queue, and replies that wait, must go down first.
    fn takes_requests(&self) -> bool {
        if self.frames.unwritten_bytes() >= OUTPUT_BYTES_MAX {
            return false;
        }
        match &self.call {
            Call::Stream {
                requests: Some(requests),
                ..
            } => requests.capacity() > 0 || requests.is_closed(),
            Call::Stream { requests: None, .. } | Call::None => true,
            // It is short, and the leader awaits it.
            Call::One(_) => true,
        }
    }

    /// Puts the replies that are ready into the output.
    fn poll_replies(&mut self, task: &mut Context<'_>) -> io::Result<()> {
        let number = self.frames.last_call;
        while self.frames.unwritten_bytes() < OUTPUT_BYTES_MAX {
            match &mut self.call {
                Call::None => return Ok(()),
                Call::One(answer) => {
                    let Poll::Ready(answer) = answer.as_mut().poll(task) else {
                        return Ok(());
                    };
                    self.call = Call::None;
                    match answer {
                        Ok(reply) => self.reply(number, &reply)?,
                        Err(status) => self.refuse(number, &status)?,
                    }
                }
                Call::Stream { replies, .. } => match replies.poll_next_unpin(task) {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(Some(Ok(reply))) => self.reply(number, &reply)?,
                    Poll::Ready(Some(Err(status))) => {
                        self.call = Call::None;
                        self.refuse(number, &status)?;
                    }
                    Poll::Ready(None) => {
                        self.call = Call::None;
                        self.frames.push_end(number);
                    }
                },
            }
        }
        Ok(())
    }

    fn reply(&mut self, call: u32, reply: &AppendReply) -> io::Result<()> {
        self.refused = 0;
        self.frames.push(Kind::Reply, call, reply)
    }

    fn refuse(&mut self, call: u32, status: &Status) -> io::Result<()> {
        const TEXT_BYTES_MAX: usize = 1 << 10;
        self.refused += 1;
        let mut text = status.message().to_owned();
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        let code = u32::try_from(status.code() as i32).unwrap_or_default();
        self.frames
            .push(Kind::Refused, call, &Refusal { code, text })
    }

    fn take(&mut self, frame: &Frame) -> io::Result<()> {
        let last = self.frames.last_call;
        match frame.kind {
            Kind::Append | Kind::One if frame.call > last => self.begin(frame),
            Kind::Append if frame.call == last => {
                // What comes behind a refusal is of nobody's use.
                if let Call::Stream {
                    requests: Some(requests),
                    ..
                } = &self.call
                {
                    let request = decode(frame);
                    let _ = requests.try_send(request);
                }
                Ok(())
            }
            Kind::End if frame.call == last => {
                if let Call::Stream { requests, .. } = &mut self.call {
                    *requests = None;
                }
                Ok(())
            }
            // Of a call that the leader has given up.
            Kind::Append | Kind::End if frame.call < last => Ok(()),
            _ => Err(malformed("a frame that has no place in its call")),
        }
    }

    /// Begins a call. The leader has given up the one before it, should that not have ended.
    fn begin(&mut self, frame: &Frame) -> io::Result<()> {
        self.frames.last_call = frame.call;
        let connected = self.held.connected.clone();
        self.call = match (frame.kind, decode(frame)) {
            (Kind::One, Ok(request)) => {
                let appends = self.appends.clone();
                Call::One(Box::pin(
                    async move { appends.one(request, connected).await },
                ))
            }
            (Kind::One, Err(status)) => {
                self.call = Call::None;
                return self.refuse(frame.call, &status);
            }
            (_, request) => {
                let (requests, queue) = mpsc::channel(REQUESTS_MAX);
                let _ = requests.try_send(request);
                let queue = Box::pin(ReceiverStream::new(queue));
                let replies = self.appends.stream(queue, connected);
                Call::Stream {
                    requests: Some(requests),
                    replies,
                }
            }
        };
        Ok(())
    }

    /// Nothing has arrived: looks at the deadline and at the budget.
    fn poll_silence(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        let unread = self.frames.unread_bytes();
        let Held { bytes, connected } = &mut self.held;
        let kept = unread.saturating_sub(FREE_BYTES);
        if kept != *bytes && !connected.hold(bytes, kept) {
            return Poll::Ready(Err(malformed("too many unfinished messages of peers")));
        }
        let limits = connected.limits();
        let limit = match unread {
            0 => limits.append_silence_timeout,
            _ => limits.message_timeout,
        };
        std::task::ready!(self.silence.poll(task, unread == 0, limit));
        if unread > 0 {
            let text = format!("a peer began a message and did not end it in {limit:?}");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)));
        }
        let Call::Stream { .. } = std::mem::replace(&mut self.call, Call::None) else {
            // A leader that has something to say again makes another connection.
            return Poll::Ready(Ok(()));
        };
        self.silence.has_ended();
        let silent = Status::deadline_exceeded(format!("a peer sent nothing in {limit:?}"));
        self.refuse(self.frames.last_call, &silent)?;
        // To write that.
        task.waker().wake_by_ref();
        Poll::Pending
    }
}

fn decode(frame: &Frame) -> Result<AppendRequest, Status> {
    AppendRequest::decode(frame.body.clone())
        .map_err(|error| Status::invalid_argument(format!("a malformed append: {error}")))
}
