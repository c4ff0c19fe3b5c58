//! The bodies of calls whose messages are counted, and the ends of streams.
//!
//! They stand next to the service, so that a call of the gateway is counted as one of a gRPC client is.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::body::Body;
use tonic::{Code, Status};

use super::audited::Heard;
use super::bodies::{Messages, RequestBody};
use crate::metrics::{CallKind, Method, Metrics, Tally};

/// The code in headers or trailers.
pub(super) fn code_in(headers: &HeaderMap) -> Option<Code> {
    let code = headers.get(Status::GRPC_STATUS)?;
    Some(Code::from_bytes(code.as_bytes()))
}

/// The reply of a service: a unary call has ended with it, a stream ends with its body.
pub(super) fn reply(response: Response<Body>, tally: Tally) -> Response<Body> {
    // A refusal has its code in the head; any other reply with a body has not failed so far.
    let refusal = code_in(response.headers());
    let code = refusal.unwrap_or(Code::Ok);
    if tally.kind() == CallKind::Unary {
        tally.end(code);
        return response;
    }
    tally.stream_begins(code);
    if refusal.is_some() {
        tally.end(code);
        return response;
    }
    response.map(|inner| {
        Body::new(TalliedReply {
            inner,
            messages: Messages::default(),
            tally: Some(tally),
        })
    })
}

/// The body of a stream of replies.
struct TalliedReply {
    inner: Body,
    messages: Messages,
    /// `None` once the stream has ended.
    tally: Option<Tally>,
}

impl TalliedReply {
    fn end(&mut self, code: Code) {
        if let Some(tally) = self.tally.take() {
            tally.end(code);
        }
    }
}

impl HttpBody for TalliedReply {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let polled = ready!(Pin::new(&mut this.inner).poll_frame(task));
        match &polled {
            Some(Ok(frame)) => match (frame.data_ref(), frame.trailers_ref()) {
                (Some(data), _) => {
                    let ended = this.messages.take(data);
                    if let Some(tally) = &this.tally
                        && ended > 0
                    {
                        tally.sent(ended);
                    }
                }
                (None, Some(trailers)) => this.end(code_in(trailers).unwrap_or(Code::Unknown)),
                (None, None) => {}
            },
            Some(Err(status)) => this.end(status.code()),
            None => this.end(Code::Unknown),
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Whose request a body is of. The services are compiled for this one type.
pub(super) enum CallBody {
    Client(RequestBody),
    Gateway(Body),
}

/// The body of a request; of a stream, the messages are counted.
pub(super) struct TalliedRequest {
    inner: CallBody,
    counted: Option<(Messages, Arc<Metrics>, Method)>,
    /// For the audit log.
    heard: Option<Heard>,
}

impl TalliedRequest {
    pub(super) fn new(inner: CallBody, metrics: &Arc<Metrics>, method: Method) -> TalliedRequest {
        let counted = || (Messages::default(), metrics.clone(), method);
        TalliedRequest {
            inner,
            counted: method.takes_stream().then(counted),
            heard: None,
        }
    }

    /// Lets the audit log hear what is asked for.
    pub(super) fn heard_by(mut self, heard: Option<Heard>) -> TalliedRequest {
        self.heard = heard;
        self
    }
}

impl HttpBody for TalliedRequest {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let polled = ready!(match &mut this.inner {
            CallBody::Client(body) => Pin::new(body).poll_frame(task),
            CallBody::Gateway(body) => Pin::new(body).poll_frame(task),
        });
        if let Some((messages, metrics, method)) = &mut this.counted
            && let Some(Ok(frame)) = &polled
            && let Some(data) = frame.data_ref()
        {
            metrics.of(*method).received.add(messages.take(data));
        }
        if let Some(heard) = &mut this.heard
            && let Some(Ok(frame)) = &polled
            && let Some(data) = frame.data_ref()
            && let Err(over) = heard.take(data)
        {
            return Poll::Ready(Some(Err(over.into())));
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            CallBody::Client(body) => body.is_end_stream(),
            CallBody::Gateway(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            CallBody::Client(body) => body.size_hint(),
            CallBody::Gateway(body) => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, StreamBody};
    use tokio::time::Instant;

    use super::*;

    fn ended(metrics: &Metrics, method: Method) -> Vec<(Code, u64)> {
        let all = metrics.of(method).ended.iter().enumerate();
        all.map(|(code, count)| (Code::from_i32(code as i32), count.get()))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// A reply of two messages in three pieces, and its trailers.
    fn stream_of_two(code: &'static str) -> Response<Body> {
        let mut trailers = HeaderMap::new();
        trailers.insert(Status::GRPC_STATUS, code.parse().unwrap());
        let piece = |piece: &'static [u8]| Frame::data(Bytes::from_static(piece));
        let frames = vec![
            piece(b"\0\0\0"),
            piece(b"\0\x01a\0\0\0\0"),
            piece(b"\x01b"),
            Frame::trailers(trailers),
        ];
        let frames = frames.into_iter().map(Ok::<_, Status>);
        Response::new(Body::new(StreamBody::new(tokio_stream::iter(frames))))
    }

    #[tokio::test]
    async fn a_stream_ends_with_its_trailers_or_with_its_client() {
        let metrics = Arc::new(Metrics::default());
        let begin = || Tally::begin(&metrics, Method::Observe, Instant::now());
        let response = reply(stream_of_two("14"), begin());
        assert_eq!(ended(&metrics, Method::Observe), []);
        response.into_body().collect().await.unwrap();
        assert_eq!(ended(&metrics, Method::Observe), [(Code::Unavailable, 1)]);
        assert_eq!(metrics.of(Method::Observe).sent.get(), 2);
        // The client has gone after a part.
        let mut body = reply(stream_of_two("0"), begin()).into_body();
        body.frame().await.unwrap().unwrap();
        drop(body);
        let both = [(Code::Cancelled, 1), (Code::Unavailable, 1)];
        assert_eq!(ended(&metrics, Method::Observe), both);
        // A refusal is the end.
        drop(reply(Status::not_found("text").into_http(), begin()));
        let all = [(Code::Cancelled, 1), (Code::NotFound, 1), both[1]];
        assert_eq!(ended(&metrics, Method::Observe), all);
        assert_eq!(metrics.of(Method::Observe).started.get(), 3);
    }

    #[tokio::test]
    async fn a_unary_call_ends_with_its_result() {
        let metrics = Arc::new(Metrics::default());
        let begin = || Tally::begin(&metrics, Method::Status, Instant::now());
        drop(reply(stream_of_two("0"), begin()));
        assert_eq!(ended(&metrics, Method::Status), [(Code::Ok, 1)]);
        drop(reply(Status::internal("text").into_http(), begin()));
        let both = [(Code::Ok, 1), (Code::Internal, 1)];
        assert_eq!(ended(&metrics, Method::Status), both);
    }

    #[tokio::test]
    async fn the_messages_of_a_stream_of_requests_are_counted() {
        let metrics = Arc::new(Metrics::default());
        for (method, count) in [(Method::Watch, 2), (Method::Put, 0)] {
            let body = stream_of_two("0").into_body();
            let body = TalliedRequest::new(CallBody::Gateway(body), &metrics, method);
            body.collect().await.unwrap();
            assert_eq!(metrics.of(method).received.get(), count, "{method:?}");
        }
    }
}
