//! Streaming bodies: JSON to framed messages ([`Input`]), framed messages to JSON ([`Output`]).
//!
//! A gRPC frame is a byte for compression, four bytes of length, and the message. Both bodies are lazy:
//! nothing is read from a client before the service polls for it, and nothing of a reply before the client
//! takes it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame};
use prost_reflect::MessageDescriptor;
use tonic::body::Body;
use tonic::codegen::StdError;
use tonic::{Code, Status};

use super::json::{self, Values};
use super::refusal;
use super::table::Messages;
use crate::memory::Partial;

const HEAD_BYTES: usize = 5;

/// A message as a frame.
pub(super) fn framed(message: &[u8]) -> Result<Bytes, Status> {
    let len = u32::try_from(message.len())
        .map_err(|_| Status::resource_exhausted("a message has 4 GiB or more"))?;
    let mut frame = BytesMut::with_capacity(HEAD_BYTES + message.len());
    frame.put_u8(0);
    frame.put_u32(len);
    frame.put_slice(message);
    Ok(frame.freeze())
}

/// Splits frames that arrive in pieces into messages.
#[derive(Debug, Default)]
pub(super) struct Deframer {
    buffer: BytesMut,
}

impl Deframer {
    pub(super) fn push(&mut self, piece: impl Buf) {
        self.buffer.put(piece);
    }

    /// The next complete message.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let mut head = &self.buffer[..];
        if head.len() < HEAD_BYTES {
            return Ok(None);
        }
        // The request did not offer compression.
        if head.get_u8() != 0 {
            return Err(Status::internal("a reply is compressed, unasked"));
        }
        let len = head.get_u32() as usize;
        if head.len() < len {
            return Ok(None);
        }
        self.buffer.advance(HEAD_BYTES);
        Ok(Some(self.buffer.split_to(len).freeze()))
    }
}

/// The requests of a stream, parsed from a body of JSON values.
pub(super) struct Input<B> {
    body: B,
    body_ended: bool,
    values: Values,
    messages: Messages,
    value_bytes_max: usize,
    /// A message that was read before the service polled for it.
    first: Option<Bytes>,
    /// Counts messages from 1, for error texts.
    number: u64,
    failed: bool,
    /// The value that has partly arrived.
    partial: Partial,
}

impl<B> Input<B>
where
    B: HttpBody<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    pub(super) fn new(
        body: B,
        messages: Messages,
        value_bytes_max: usize,
        partial: Partial,
    ) -> Input<B> {
        Input {
            partial,
            body,
            body_ended: false,
            values: Values::default(),
            messages,
            value_bytes_max,
            first: None,
            number: 0,
            failed: false,
        }
    }

    /// Waits for the first message, so that an unreadable one is refused in the head of the reply.
    pub(super) async fn read_first(&mut self) -> Result<(), Status> {
        let first = std::future::poll_fn(|task| self.poll_message(task)).await;
        self.first = first.transpose()?;
        Ok(())
    }

    /// The next message as a frame; `None` at the end of the body.
    fn poll_message(&mut self, task: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        loop {
            if let Some(value) = self.values.next(self.body_ended) {
                self.partial.is_complete();
                self.number += 1;
                let message = json::to_message(&self.messages.input, &value);
                return Poll::Ready(Some(message.and_then(|message| framed(&message)).map_err(
                    |status| {
                        let (number, text) = (self.number, status.message());
                        Status::new(status.code(), format!("message {number}: {text}"))
                    },
                )));
            }
            if self.values.waiting_bytes() > self.value_bytes_max {
                let refused = refusal::body_too_large(self.value_bytes_max);
                return Poll::Ready(Some(Err(refused)));
            }
            if self.body_ended {
                return Poll::Ready(None);
            }
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(task) else {
                let bytes = self.values.waiting_bytes();
                // Between two values a client may be silent.
                if bytes > 0 || self.number == 0 {
                    self.partial.wait(task, bytes)?;
                }
                return Poll::Pending;
            };
            match frame {
                Some(Ok(frame)) => {
                    // Trailers have no meaning here.
                    if let Ok(piece) = frame.into_data() {
                        self.values.push(&piece);
                    }
                }
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(refusal::broken(error.into()))));
                }
                None => self.body_ended = true,
            }
        }
    }
}

impl<B> HttpBody for Input<B>
where
    B: HttpBody<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if self.failed {
            return Poll::Ready(None);
        }
        match ready!(self.poll_message(task)) {
            Some(message) => {
                self.failed = message.is_err();
                Poll::Ready(Some(message.map(Frame::data)))
            }
            // The stream ends with the reply, when the client leaves.
            None if self.messages.outlives_input => Poll::Pending,
            None => Poll::Ready(None),
        }
    }
}

/// The replies of a stream, one line each.
pub(super) struct Output {
    body: Body,
    frames: Deframer,
    message: MessageDescriptor,
    ended: bool,
}

impl Output {
    pub(super) fn new(body: Body, message: MessageDescriptor) -> Output {
        Output {
            body,
            frames: Deframer::default(),
            message,
            ended: false,
        }
    }

    fn poll_line(&mut self, task: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        loop {
            if let Some(message) = self.frames.next()? {
                return Poll::Ready(Ok(Some(line(&self.message, message)?)));
            }
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(task)?) else {
                return Poll::Ready(Ok(None));
            };
            match frame.into_data() {
                Ok(piece) => self.frames.push(piece),
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers()
                        && let Some(status) = Status::from_header_map(&trailers)
                        && status.code() != Code::Ok
                    {
                        return Poll::Ready(Err(status));
                    }
                }
            }
        }
    }
}

/// A reply as a line.
fn line(descriptor: &MessageDescriptor, message: Bytes) -> Result<Bytes, Status> {
    let mut line = br#"{"result":"#.to_vec();
    line.extend(json::of_message(descriptor, message)?);
    line.extend(b"}\n");
    Ok(line.into())
}

impl HttpBody for Output {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let line = match ready!(self.poll_line(task)) {
            Ok(Some(line)) => line,
            Ok(None) => {
                self.ended = true;
                return Poll::Ready(None);
            }
            Err(status) => {
                self.ended = true;
                refusal::stream_error(&status).into()
            }
        };
        Poll::Ready(Some(Ok(Frame::data(line))))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full, StreamBody};
    use tokio::sync::mpsc;
    use tokio_stream::StreamExt;
    use tokio_stream::wrappers::ReceiverStream;

    use super::super::table::route;
    use super::*;

    #[test]
    fn messages_come_out_of_frames_wherever_the_pieces_end() {
        let messages = [&b"one"[..], b"", b"three"];
        let whole: Vec<u8> = messages
            .iter()
            .flat_map(|message| framed(message).unwrap())
            .collect();
        for piece in 1..=whole.len() {
            let mut frames = Deframer::default();
            let mut found = Vec::new();
            for piece in whole.chunks(piece) {
                frames.push(piece);
                while let Some(message) = frames.next().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, messages, "in pieces of {piece}");
        }
        let mut frames = Deframer::default();
        frames.push(&b"\x01\0\0\0\0"[..]);
        assert_eq!(frames.next().unwrap_err().code(), Code::Internal);
    }

    fn partial() -> Partial {
        let memory = crate::memory::Memory::new(1 << 20, 1 << 20);
        Partial::new(memory.account(), std::time::Duration::from_secs(60))
    }

    fn messages(path: &str) -> Messages {
        route(path).unwrap().messages.clone().unwrap()
    }

    /// The input of a watch outlives the body; that of a keep-alive does not.
    #[tokio::test]
    async fn the_input_of_a_watch_stays_open_when_its_body_has_ended() {
        let body = || Full::new(Bytes::from_static(b"{} {}"));
        let mut input = Input::new(body(), messages("/v3/lease/keepalive"), 100, partial());
        for _ in 0..2 {
            let frame = input.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), b"\0\0\0\0\0"[..]);
        }
        assert!(input.frame().await.is_none());
        let mut input = Input::new(body(), messages("/v3/watch"), 100, partial());
        input.read_first().await.unwrap();
        for _ in 0..2 {
            input.frame().await.unwrap().unwrap();
        }
        let more = tokio::time::timeout(std::time::Duration::from_millis(50), input.frame());
        assert!(more.await.is_err());
    }

    /// An invalid message ends the input with an error that names its number.
    #[tokio::test]
    async fn a_bad_message_ends_the_input() {
        let body = Full::new(Bytes::from_static(b"{} {\"ID\":[]} {}"));
        let mut input = Input::new(body, messages("/v3/lease/keepalive"), 100, partial());
        input.frame().await.unwrap().unwrap();
        let refused = input.frame().await.unwrap().unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().starts_with("message 2: "), "{refused}");
        assert!(refused.message().contains("`ID`"), "{refused}");
        assert!(input.frame().await.is_none());
    }

    /// A value without an end is not buffered without limit.
    #[tokio::test]
    async fn a_value_without_end_is_refused() {
        let (pieces, body) = mpsc::channel(1);
        let body = StreamBody::new(ReceiverStream::new(body).map(|piece| {
            Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from_static(piece)))
        }));
        let mut input = Input::new(body, messages("/v3/watch"), 64, partial());
        let sent = tokio::spawn(async move {
            let mut count = 0;
            while pieces.send(&b"{\"key\":[{\"k\":1"[..]).await.is_ok() {
                count += 1;
            }
            count
        });
        let refused = input.read_first().await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        drop(input);
        assert!(sent.await.unwrap() < 10);
    }

    /// Lines, then the error that ended them.
    #[tokio::test]
    async fn a_failure_is_the_last_line() {
        let mut frame = framed(&[8, 7]).unwrap().to_vec();
        frame.extend(framed(&[8]).unwrap());
        let body = Body::new(Full::new(frame.into()));
        let output = Output::new(body, json::descriptor("etcdserverpb.LeaseStatus"));
        let text = output.collect().await.unwrap().to_bytes();
        let text = std::str::from_utf8(&text).unwrap();
        let (first, last) = text.split_once('\n').unwrap();
        assert_eq!(first, r#"{"result":{"ID":"7"}}"#);
        // The last frame was incomplete.
        let last: serde_json::Value = serde_json::from_str(last).unwrap();
        assert_eq!(last["error"]["code"], Code::Internal as i32);
    }
}
