//! The body of a request, with limits on incomplete messages.
//!
//! gRPC puts five bytes before each message: whether it is compressed, and its length. This body parses them,
//! so it knows whether a peer is between two messages or within one, and the length of the message, before
//! anything of it is stored.
//!
//! Invariants:
//!
//! - A message longer than its request allows is refused at its head.
//! - A message ends within its timeout from its first byte on; bytes that arrive do not move the deadline. A
//!   request is silent no longer than its kind allows.
//! - The stored part of an incomplete message is counted ([`Port`](super::port::Port)), except for its first
//!   [`FREE_BYTES`].
//! - gRPC receives what is read unchanged.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tonic::Status;

use super::port::Connected;

const HEAD_BYTES: usize = 5;
/// So many bytes of a message are not counted: the limit of connections bounds them.
pub(super) const FREE_BYTES: usize = 64 << 10;

/// The deadline of the present message, or of the silence before the next one.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// Since when it lasts, and whether it is between two messages.
    since: Option<(Instant, bool)>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Silence {
    /// Another message, or another silence, begins.
    pub(super) fn has_ended(&mut self) {
        self.since = None;
    }

    /// Ready when there was nothing to read for `limit`, or, within a message, when that has not ended in it.
    pub(super) fn poll(
        &mut self,
        task: &mut Context<'_>,
        is_between: bool,
        limit: Duration,
    ) -> Poll<()> {
        let now = Instant::now();
        let since = match self.since {
            Some((since, was_between)) if was_between == is_between => since,
            _ => {
                self.since = Some((now, is_between));
                now
            }
        };
        let deadline = since + limit;
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        // The timer is reset when it fires, or when it would fire too late, not with each message.
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        while sleep.as_mut().poll(task).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

/// The limits of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    /// The largest message.
    pub(crate) message_bytes_max: usize,
    /// The longest silence.
    pub(crate) silence: Duration,
}

/// The position in a peer's messages.
#[derive(Debug, Default)]
struct Messages {
    head: [u8; HEAD_BYTES],
    /// The received bytes of the head.
    have: usize,
    /// The received bytes of the message, and its length.
    received: usize,
    left: usize,
}

impl Messages {
    fn is_between(&self) -> bool {
        self.have == 0
    }

    /// Advances over read bytes; returns whether a message ended in them.
    fn take(&mut self, mut read: &[u8], bytes_max: usize) -> Result<bool, Status> {
        let mut has_ended = false;
        while !read.is_empty() {
            if self.have < HEAD_BYTES {
                let count = read.len().min(HEAD_BYTES - self.have);
                self.head[self.have..self.have + count].copy_from_slice(&read[..count]);
                self.have += count;
                read = &read[count..];
                if self.have < HEAD_BYTES {
                    break;
                }
                let [_, length @ ..] = self.head;
                self.left = u32::from_be_bytes(length) as usize;
                if self.left > bytes_max {
                    let left = self.left;
                    let text = format!("a message of {left} bytes, over the limit of {bytes_max}");
                    return Err(Status::out_of_range(text));
                }
            }
            let count = read.len().min(self.left);
            (self.left, self.received) = (self.left - count, self.received + count);
            read = &read[count..];
            if self.left == 0 {
                *self = Messages::default();
                has_ended = true;
            }
        }
        Ok(has_ended)
    }
}

/// A body with limits.
pub(crate) struct LimitedBody<B> {
    inner: B,
    connected: Arc<Connected>,
    allowed: Allowed,
    messages: Messages,
    /// The bytes that the incomplete message takes of the port's budget.
    held: usize,
    silence: Silence,
}

impl<B> LimitedBody<B> {
    pub(crate) fn new(inner: B, connected: Arc<Connected>, allowed: Allowed) -> LimitedBody<B> {
        LimitedBody {
            inner,
            connected,
            allowed,
            messages: Messages::default(),
            held: 0,
            silence: Silence::default(),
        }
    }

    fn follow(&mut self, data: &[u8]) -> Result<(), Status> {
        let was_between = self.messages.is_between();
        let has_ended = self.messages.take(data, self.allowed.message_bytes_max)?;
        if was_between || has_ended {
            // The present message, or the silence, begins here.
            self.silence.has_ended();
        }
        let kept = self.messages.received.saturating_sub(FREE_BYTES);
        if kept != self.held && !self.connected.hold(&mut self.held, kept) {
            return Err(Status::resource_exhausted(
                "too many unfinished messages of peers: finish one before the next is begun",
            ));
        }
        Ok(())
    }

    /// Checks the deadline when there is nothing to read.
    fn poll_deadline(&mut self, task: &mut Context<'_>) -> Poll<Status> {
        let (limit, what) = match self.messages.is_between() {
            true => (self.allowed.silence, "a peer sent nothing"),
            false => (
                self.connected.limits().message_timeout,
                "a peer began a message and did not end it",
            ),
        };
        let polled = self.silence.poll(task, self.messages.is_between(), limit);
        polled.map(|()| Status::deadline_exceeded(format!("{what} in {limit:?}")))
    }
}

impl<B> Drop for LimitedBody<B> {
    fn drop(&mut self) {
        if self.held > 0 {
            self.connected.hold(&mut self.held, 0);
        }
    }
}

impl<B> Body for LimitedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let Poll::Ready(read) = Pin::new(&mut this.inner).poll_frame(task) else {
            let status = ready!(this.poll_deadline(task));
            return Poll::Ready(Some(Err(status)));
        };
        let frame = match read {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(Status::from_error(error.into())))),
            None => return Poll::Ready(None),
        };
        let followed = match frame.data_ref() {
            Some(data) => this.follow(data),
            None => Ok(()),
        };
        Poll::Ready(Some(followed.map(|()| frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::future::poll_fn;
    use tokio::sync::mpsc;
    use tonic::Code;

    use super::super::port::{Port, PortLimits};
    use super::*;

    /// A body from a channel.
    struct Sent(mpsc::UnboundedReceiver<Bytes>);

    impl Body for Sent {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            task: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let next = ready!(self.0.poll_recv(task));
            Poll::Ready(next.map(|data| Ok(Frame::data(data))))
        }
    }

    /// A body of a connection with these limits, and the channel of its bytes.
    fn body(limits: PortLimits) -> (mpsc::UnboundedSender<Bytes>, LimitedBody<Sent>) {
        let port = Port::new(limits);
        let connected = port
            .connect(std::net::Ipv4Addr::LOCALHOST.into())
            .expect("the first");
        let (sender, receiver) = mpsc::unbounded_channel();
        let allowed = Allowed {
            message_bytes_max: 10 << 20,
            silence: Duration::from_millis(100),
        };
        (sender, LimitedBody::new(Sent(receiver), connected, allowed))
    }

    async fn next(body: &mut LimitedBody<Sent>) -> Result<Bytes, Status> {
        let frame = poll_fn(|task| Pin::new(&mut *body).poll_frame(task)).await;
        let frame = frame.expect("it goes on")?;
        Ok(frame.into_data().expect("data"))
    }

    /// A peer could begin a request and then stay silent for ever.
    #[tokio::test]
    async fn a_silent_request_is_ended() {
        let (sender, mut body) = body(PortLimits::default());
        assert_eq!(
            next(&mut body).await.expect_err("silent").code(),
            Code::DeadlineExceeded
        );
        drop(sender);
    }

    /// A peer could send a message byte by byte for ever: bytes that arrive do not move its deadline.
    #[tokio::test]
    async fn a_message_that_trickles_is_ended() {
        let (sender, mut body) = body(PortLimits {
            message_timeout: Duration::from_millis(200),
            ..PortLimits::default()
        });
        let trickling = tokio::spawn(async move {
            let _ = sender.send(Bytes::from_static(&[0, 0, 1, 0, 0]));
            while sender.send(Bytes::from_static(b"x")).is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let refused = loop {
            if let Err(status) = next(&mut body).await {
                break status;
            }
        };
        assert_eq!(refused.code(), Code::DeadlineExceeded, "{refused}");
        drop(body);
        trickling.await.expect("it ends when nobody reads any more");
    }

    /// Incomplete messages took as much memory as a peer liked.
    #[tokio::test]
    async fn unfinished_messages_take_no_more_than_their_budget() {
        let (sender, mut body) = body(PortLimits {
            unfinished_bytes_max: 300 << 10,
            ..PortLimits::default()
        });
        let half = Bytes::from(vec![7; 200 << 10]);
        for message in 0..2 {
            // Complete: its bytes are released.
            sender
                .send(Bytes::from_static(&[0, 0, 6, 0x40, 0]))
                .expect("sent");
            sender.send(half.clone()).expect("sent");
            sender.send(half.clone()).expect("sent");
            for _ in 0..2 {
                next(&mut body).await.expect("within the budget");
            }
            assert!(body.held > 0, "message {message}");
            next(&mut body).await.expect("the end of it");
            assert_eq!(body.held, 0, "message {message}");
        }
        sender
            .send(Bytes::from_static(&[0, 0, 0x20, 0, 0]))
            .expect("sent");
        for _ in 0..2 {
            sender.send(half.clone()).expect("sent");
        }
        for _ in 0..2 {
            next(&mut body).await.expect("within the budget");
        }
        let refused = next(&mut body).await.expect_err("beyond it");
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(body.held > 0);
        let connected = body.connected.clone();
        drop(body);
        let mut none = 0;
        assert!(connected.hold(&mut none, 300 << 10), "all was given back");
        assert!(sender.send(half).is_err(), "nobody reads it");
    }

    /// The result does not depend on how the bytes are split.
    #[test]
    fn messages_are_followed_however_they_are_cut() {
        // Of three bytes, of none, of one.
        let mut bytes = vec![0, 0, 0, 0, 3, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 4];
        bytes.extend_from_slice(&bytes.clone());
        for step in 1..bytes.len() {
            let mut messages = Messages::default();
            for part in bytes.chunks(step) {
                let ended = messages.take(part, 1 << 20).expect("within the limit");
                assert!(!messages.is_between() || ended, "cut at {step}");
            }
            assert!(messages.is_between(), "cut at {step}");
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_with_its_head() {
        let mut messages = Messages::default();
        assert!(!messages.take(&[0, 0, 0], 256).expect("no length yet"));
        let refused = messages.take(&[1, 1], 256).expect_err("257 bytes");
        assert_eq!(refused.code(), Code::OutOfRange);
    }
}
