//! The bodies of requests and replies, with their charges and deadlines.
//!
//! - A [`RequestBody`] charges the received part of an incomplete message, and gives the message a deadline
//!   that frames which trickle in do not move. A unary call has one message; a stream may be silent between
//!   its messages, but not within one. The whole message of a unary call is charged before the service sees
//!   it: a change that was begun is not refused.
//! - A [`SharedInput`] is the body of a stream. The HTTP/2 library stores unread input frame by frame, and
//!   frames of one byte cost a hundred times their size there. So the task of the call drains it at once,
//!   whatever the service waits for, and charges what it takes.
//! - A [`ReplyBody`] charges what is larger than [`SMALL_BYTES`] until it is sent, and hands it over in
//!   pieces of [`PIECE_BYTES`]: a slow client makes progress, a client that does not read is detected. The
//!   reply to a change that has no room leaves the outcome open, because the change may have been made.

use std::cell::Cell;
use std::convert::Infallible;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tonic::Status;
use tonic::body::Body;

use crate::memory::{self, Account, Charge, OverBudget, Partial};
use crate::status::{Fault, trailers_of};

/// A call that is under way.
pub(super) type BoxedCall =
    Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

/// Smaller bodies are not charged: the number of calls is bounded.
pub(super) const SMALL_BYTES: usize = 512;
/// The largest piece of a reply that is handed over at once.
const PIECE_BYTES: usize = 256 << 10;
/// The length of the prefix of a gRPC message.
const HEAD_BYTES: usize = 5;

/// The kind of contents of a body.
#[derive(Debug)]
enum Shape {
    /// One message.
    Whole,
    /// gRPC messages.
    Messages(Messages),
    /// JSON values, which the gateway separates and charges.
    Values,
}

/// The position in a stream of messages.
#[derive(Debug, Default)]
pub(super) struct Messages {
    head: [u8; HEAD_BYTES],
    have: usize,
    /// The missing bytes of the message.
    left: usize,
    /// The received bytes of the message and its prefix.
    here: usize,
}

impl Messages {
    /// Advances over received bytes. Returns how many messages have ended.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> u64 {
        let mut ended = 0;
        while !bytes.is_empty() {
            let part = match self.left {
                0 => (HEAD_BYTES - self.have).min(bytes.len()),
                left => left.min(bytes.len()),
            };
            self.here += part;
            if self.left > 0 {
                self.left -= part;
            } else {
                self.head[self.have..self.have + part].copy_from_slice(&bytes[..part]);
                self.have += part;
                if self.have == HEAD_BYTES {
                    let [_, a, b, c, d] = self.head;
                    self.left = u32::from_be_bytes([a, b, c, d]) as usize;
                    self.have = 0;
                } else {
                    return ended;
                }
            }
            if self.left == 0 {
                self.here = 0;
                ended += 1;
            }
            bytes = &bytes[part..];
        }
        ended
    }
}

/// The source of a body.
#[derive(Debug)]
enum Source {
    Own(Incoming),
    Shared(Arc<SharedInput>),
}

/// The body of a request.
#[derive(Debug)]
pub(crate) struct RequestBody {
    source: Source,
    shape: Shape,
    partial: Partial,
    /// The received bytes.
    bytes: usize,
}

impl RequestBody {
    /// The body of a call with one request.
    pub(super) fn whole(body: Incoming, account: Arc<Account>, timeout: Duration) -> RequestBody {
        let partial = Partial::new(account, timeout);
        RequestBody {
            source: Source::Own(body),
            shape: Shape::Whole,
            partial,
            bytes: 0,
        }
    }

    /// The body of a call with a stream of requests; the executor takes the other end.
    pub(super) fn stream(
        body: Incoming,
        is_json: bool,
        is_http2: bool,
        account: Arc<Account>,
        timeout: Duration,
    ) -> RequestBody {
        let source = match is_http2 {
            true => Source::Shared(SharedInput::offer(body, account.clone())),
            // With HTTP/1 the library buffers no more than one read ahead.
            false => Source::Own(body),
        };
        RequestBody {
            source,
            shape: match is_json {
                true => Shape::Values,
                false => Shape::Messages(Messages::default()),
            },
            partial: Partial::new(account, timeout),
            bytes: 0,
        }
    }

    /// The body has ended.
    fn end(&mut self) -> Result<(), OverBudget> {
        let bytes = mem::take(&mut self.bytes);
        if matches!(self.shape, Shape::Whole) && bytes > SMALL_BYTES {
            memory::received(self.partial.complete(bytes)?);
        } else {
            self.partial.is_complete();
        }
        Ok(())
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let polled = match &mut this.source {
            Source::Own(body) => Pin::new(body)
                .poll_frame(task)
                .map_err(|error| Status::from_error(Box::new(error))),
            Source::Shared(input) => input.poll_frame(task),
        };
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    this.bytes += data.len();
                    if let Shape::Messages(messages) = &mut this.shape
                        && messages.take(data) > 0
                    {
                        this.partial.is_complete();
                    }
                } else if let Err(over) = this.end() {
                    return Poll::Ready(Some(Err(over.into())));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => Poll::Ready(this.end().err().map(|over| Err(over.into()))),
            Poll::Ready(failed) => Poll::Ready(failed),
            Poll::Pending => {
                let waited = match &this.shape {
                    Shape::Whole => this.partial.wait(task, this.bytes),
                    Shape::Messages(messages) if messages.here > 0 => {
                        this.partial.wait(task, messages.here)
                    }
                    Shape::Messages(_) | Shape::Values => Ok(()),
                };
                match waited {
                    Ok(()) => Poll::Pending,
                    Err(status) => Poll::Ready(Some(Err(status))),
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Own(body) => body.is_end_stream(),
            Source::Shared(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Own(body) => body.size_hint(),
            Source::Shared(_) => SizeHint::default(),
        }
    }
}

/// The body of a stream, shared by the task of its call, which drains the library's queue, and the service.
#[derive(Debug)]
pub(super) struct SharedInput(Mutex<Pulled>);

#[derive(Debug)]
struct Pulled {
    /// `None` at the end.
    body: Option<Incoming>,
    waiting: BytesMut,
    trailers: Option<HeaderMap>,
    failure: Option<Status>,
    charge: Charge,
    reader: Option<Waker>,
}

thread_local! {
    /// The input of the newest call, for the executor that starts it.
    static OFFERED: Cell<Option<Arc<SharedInput>>> = const { Cell::new(None) };
}

impl SharedInput {
    fn offer(body: Incoming, account: Arc<Account>) -> Arc<SharedInput> {
        let input = Arc::new(SharedInput(Mutex::new(Pulled {
            body: Some(body),
            waiting: BytesMut::new(),
            trailers: None,
            failure: None,
            charge: Charge::none(account),
            reader: None,
        })));
        OFFERED.set(Some(input.clone()));
        input
    }

    /// The input of the call about to start: the library creates a call and starts it at once.
    pub(super) fn offered() -> Option<Arc<SharedInput>> {
        OFFERED.take()
    }

    /// Takes all that has arrived. More input wakes the task.
    pub(super) fn drain(&self, task: &mut Context<'_>) -> Result<(), OverBudget> {
        let mut pulled = self.0.lock();
        let mut has_more = false;
        while let Some(body) = &mut pulled.body {
            let Poll::Ready(frame) = Pin::new(body).poll_frame(task) else {
                break;
            };
            has_more = true;
            match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        pulled.waiting.extend_from_slice(&data);
                        let bytes = pulled.waiting.len();
                        if bytes > SMALL_BYTES {
                            pulled.charge.set(bytes)?;
                        }
                    }
                    Err(frame) => pulled.trailers = frame.into_trailers().ok(),
                },
                Some(Err(error)) => {
                    pulled.failure = Some(Status::from_error(Box::new(error)));
                    pulled.body = None;
                }
                None => pulled.body = None,
            }
        }
        if has_more && let Some(reader) = pulled.reader.take_if(|it| !it.will_wake(task.waker())) {
            reader.wake();
        }
        Ok(())
    }

    /// The call has ended: its input is dropped.
    pub(super) fn close(&self) {
        let mut pulled = self.0.lock();
        if pulled.body.take().is_some() {
            pulled.failure = Some(Status::cancelled("the call has ended"));
        }
        if let Some(reader) = pulled.reader.take() {
            reader.wake();
        }
    }

    fn poll_frame(&self, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut pulled = self.0.lock();
        if !pulled.waiting.is_empty() {
            let data = mem::take(&mut pulled.waiting).freeze();
            // A release is never refused.
            let _ = pulled.charge.set(0);
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if pulled.body.is_none() {
            if let Some(trailers) = pulled.trailers.take() {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
            return Poll::Ready(pulled.failure.take().map(Err));
        }
        match &mut pulled.reader {
            Some(reader) => reader.clone_from(task.waker()),
            none => *none = Some(task.waker().clone()),
        }
        Poll::Pending
    }
}

/// The result of the last poll of a reply on this thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// It was not polled.
    None,
    /// It yielded data: if the call waits now, it waits for its client.
    Gave,
    /// It waits for the service.
    Waits,
}

thread_local! {
    static PROGRESS: Cell<Progress> = const { Cell::new(Progress::None) };
}

/// The progress of the polled call's reply since the last call of this function.
pub(super) fn take_progress() -> Progress {
    PROGRESS.replace(Progress::None)
}

/// The kind of a reply, which decides how one ends that the budget has no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyKind {
    /// The reply of a method that has changed nothing.
    Read,
    /// The reply of a method that may have changed something.
    Change,
    /// Not of gRPC.
    Other,
}

/// The body of a reply.
#[derive(Debug)]
pub(crate) struct ReplyBody {
    body: Body,
    account: Option<Arc<Account>>,
    /// The remainder of a long message.
    rest: Bytes,
    kind: ReplyKind,
    has_ended: bool,
}

/// A message, until its last piece is sent.
struct Held {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl ReplyBody {
    pub(super) fn new(body: Body, account: Option<Arc<Account>>, kind: ReplyKind) -> ReplyBody {
        ReplyBody {
            body,
            account,
            rest: Bytes::new(),
            kind,
            has_ended: false,
        }
    }

    /// The next piece of the remainder.
    fn next_piece(&mut self, account: &Arc<Account>) -> Bytes {
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
        account.hand_over(piece)
    }

    fn poll_next(&mut self, task: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        if let Some(account) = &self.account
            && self.rest.has_remaining()
        {
            let account = account.clone();
            return Poll::Ready(Some(Ok(Frame::data(self.next_piece(&account)))));
        }
        let body = &mut self.body;
        let (polled, _) = memory::in_account(&mut self.account, || Pin::new(body).poll_frame(task));
        let data = match ready!(polled) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => data,
                Err(other) => return Poll::Ready(Some(Ok(other))),
            },
            other => return Poll::Ready(other),
        };
        let account = match &self.account {
            Some(account) if data.len() > SMALL_BYTES => account.clone(),
            _ => return Poll::Ready(Some(Ok(Frame::data(data)))),
        };
        let charge = match Charge::of(&account, data.len()) {
            Ok(charge) => charge,
            Err(over) => {
                self.has_ended = true;
                let status = match self.kind {
                    ReplyKind::Read | ReplyKind::Other => Status::from(over),
                    // A refusal would say that nothing was changed.
                    ReplyKind::Change => Fault::Timeout.into(),
                };
                return Poll::Ready(Some(match self.kind {
                    // Whatever was sent of the reply, these trailers end it.
                    ReplyKind::Read | ReplyKind::Change => {
                        trailers_of(&status).map(Frame::trailers).ok_or(status)
                    }
                    ReplyKind::Other => Err(status),
                }));
            }
        };
        self.rest = Bytes::from_owner(Held {
            bytes: data,
            _charge: charge,
        });
        Poll::Ready(Some(Ok(Frame::data(self.next_piece(&account)))))
    }
}

impl HttpBody for ReplyBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = self.get_mut().poll_next(task);
        PROGRESS.set(match polled {
            Poll::Ready(_) => Progress::Gave,
            Poll::Pending => Progress::Waits,
        });
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || !self.rest.has_remaining() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.rest.has_remaining() || self.has_ended {
            true => SizeHint::default(),
            false => self.body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;
    use crate::memory::Memory;

    #[test]
    fn messages_are_told_apart_wherever_the_pieces_end() {
        let mut all = Vec::new();
        let mut ends = Vec::new();
        for length in [3_u8, 0, 1, 200, 0] {
            all.extend([0, 0, 0, 0, length]);
            all.resize(all.len() + usize::from(length), 7);
            ends.push(all.len());
        }
        let mut messages = Messages::default();
        for (at, byte) in (1..).zip(&all) {
            assert_eq!(messages.take(&[*byte]) == 1, ends.contains(&at), "{at}");
            assert_eq!(messages.here == 0, ends.contains(&at), "{at}");
        }
        let mut messages = Messages::default();
        assert!(messages.take(&all) == 5 && messages.here == 0);
        assert_eq!(messages.take(&[&all[..], &all[..7]].concat()), 5);
        assert_eq!(messages.here, 7, "of the next message");
        let mut messages = Messages::default();
        assert_eq!(messages.take(&[&all[..], &all[..3]].concat()), 5);
        assert_eq!(messages.here, 3, "of the head of the next message");
    }

    /// A reply is charged until its last byte is sent, and is handed over in pieces.
    #[tokio::test]
    async fn a_reply_is_charged_until_it_is_on_its_way() {
        const BYTES: usize = 3 * PIECE_BYTES + 1;
        let memory = Memory::new(1 << 24, 1 << 23);
        let account = memory.account();
        let body = Body::new(Full::new(Bytes::from(vec![7; BYTES])));
        let mut reply = ReplyBody::new(body, Some(account.clone()), ReplyKind::Other);
        let mut pieces = Vec::new();
        while let Some(frame) = reply.frame().await {
            pieces.push(frame.unwrap().into_data().unwrap());
            assert_eq!(account.used(), BYTES);
        }
        drop(reply);
        assert_eq!(
            pieces.iter().map(Bytes::len).collect::<Vec<_>>(),
            [PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, 1]
        );
        let last = pieces.pop();
        drop(pieces);
        assert_eq!(account.used(), BYTES, "they are one allocation");
        assert!(!account.end_period());
        assert!(account.end_period(), "the last piece is not on its way");
        drop(last);
        assert_eq!(account.used(), 0);
        assert!(!account.end_period());
    }

    /// The reply to a change that had been made ended with `ResourceExhausted`, which says that nothing was
    /// changed, so that a client made the change again. Found by review.
    #[tokio::test]
    async fn a_reply_beyond_the_budget_ends_with_its_status() {
        use ReplyKind::{Change, Other, Read};
        let memory = Memory::new(1 << 20, 1 << 20);
        for (kind, bytes) in [
            (Read, 1 << 20),
            (Change, 1 << 20),
            (Other, 1 << 20),
            (Read, 400 << 10),
        ] {
            let body = Body::new(Full::new(Bytes::from(vec![7; bytes])));
            let reply = ReplyBody::new(body, Some(memory.account()), kind);
            let read = reply.collect().await;
            if bytes == 400 << 10 {
                assert_eq!(read.unwrap().to_bytes().len(), bytes);
                continue;
            }
            let status = match kind {
                Read | Change => {
                    Status::from_header_map(read.unwrap().trailers().unwrap()).unwrap()
                }
                Other => read.unwrap_err(),
            };
            let expected = match kind {
                Read | Other => tonic::Code::ResourceExhausted,
                Change => tonic::Code::Unavailable,
            };
            assert_eq!(status.code(), expected, "{kind:?}");
        }
        assert_eq!(memory.used(), 0);
    }
}
