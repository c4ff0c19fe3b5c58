//! The deadlines of calls: a client says in `grpc-timeout` how long it waits, and is answered by then.
//!
//! A call ends at its deadline as one does whose client has gone: it gives back what it holds, and a change that it has
//! proposed may be applied all the same. A stream ends at its deadline, too, wherever it is by then. All this is as in etcd.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame};
use tokio::time::Sleep;
use tonic::Status;
use tonic::body::Body;

use super::bodies::BoxedCall;
use crate::metrics::CallKind;

/// How long the client of a call waits. What cannot be read is no deadline.
pub(super) fn timeout_in(headers: &HeaderMap) -> Option<Duration> {
    /// The protocol's limit.
    const DIGITS_MAX: usize = 8;
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > DIGITS_MAX || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3_600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

/// The refusal of a call whose time is over.
fn exceeded() -> Status {
    Status::deadline_exceeded("context deadline exceeded")
}

/// Makes a call that ends after this time.
pub(super) fn call(call: BoxedCall, kind: CallKind, timeout: Duration) -> BoxedCall {
    Box::pin(async move {
        let mut deadline = Box::pin(tokio::time::sleep(timeout));
        let answered = tokio::select! {
            biased;
            answered = call => answered,
            () = &mut deadline => return Ok(exceeded().into_http()),
        };
        let Ok(response) = answered;
        if kind == CallKind::Unary {
            return Ok(response);
        }
        Ok(response.map(|inner| {
            Body::new(TimedReply {
                inner: Some(inner),
                deadline,
            })
        }))
    })
}

/// The body of a stream of replies, which ends at a deadline.
struct TimedReply {
    /// `None` once it has ended there.
    inner: Option<Body>,
    deadline: Pin<Box<Sleep>>,
}

impl HttpBody for TimedReply {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let Some(inner) = &mut this.inner else {
            return Poll::Ready(None);
        };
        // First: a stream that always has something ends, too.
        if this.deadline.as_mut().poll(task).is_pending() {
            return Pin::new(inner).poll_frame(task);
        }
        this.inner = None;
        let mut trailers = HeaderMap::new();
        let added = exceeded().add_header(&mut trailers);
        Poll::Ready(Some(added.map(|()| Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(HttpBody::is_end_stream)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{BodyExt, Full, StreamBody};
    use tonic::Code;

    use super::super::tallied::code_in;
    use http::Response;

    use super::*;

    #[test]
    fn a_timeout_is_a_number_of_up_to_eight_digits_and_a_unit() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            timeout_in(&headers)
        };
        for (text, timeout) in [
            ("2H", Duration::from_secs(7_200)),
            ("3M", Duration::from_secs(180)),
            ("0S", Duration::ZERO),
            ("00000100m", Duration::from_millis(100)),
            ("7u", Duration::from_micros(7)),
            ("99999999n", Duration::from_nanos(99_999_999)),
        ] {
            assert_eq!(of(text), Some(timeout), "{text}");
        }
        for text in [
            "",
            "S",
            "5",
            "-5S",
            "+5S",
            "5s",
            "5 S",
            "999999999m",
            "1.5S",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(timeout_in(&HeaderMap::new()), None);
    }

    const TIMEOUT: Duration = Duration::from_millis(30);

    /// The code in the trailers of a stream's reply, which must end.
    async fn end_of(body: Body) -> Option<Code> {
        let answered = Box::pin(async move { Ok::<_, Infallible>(Response::new(body)) });
        let Ok(response) = call(answered, CallKind::ServerStream, TIMEOUT).await;
        let mut body = response.into_body();
        loop {
            let frame = body.frame().await.unwrap().unwrap();
            if let Ok(trailers) = frame.into_trailers() {
                assert!(body.frame().await.is_none());
                return code_in(&trailers);
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_stream_ends_at_its_deadline_whatever_it_has() {
        let part = || Ok::<_, Status>(Frame::data(Bytes::from_static(b"part")));
        let many = StreamBody::new(tokio_stream::iter(std::iter::repeat_with(part)));
        let none = StreamBody::new(tokio_stream::pending::<Result<Frame<Bytes>, Status>>());
        for body in [Body::new(many), Body::new(none)] {
            let end = tokio::time::timeout(Duration::from_secs(20), end_of(body)).await;
            assert_eq!(end, Ok(Some(Code::DeadlineExceeded)));
        }
    }

    #[tokio::test]
    async fn a_reply_that_does_not_come_in_time_is_refused_and_one_that_does_is_whole() {
        let silent = std::future::pending::<Result<Response<Body>, Infallible>>();
        let Ok(response) = call(Box::pin(silent), CallKind::Unary, TIMEOUT).await;
        assert_eq!(code_in(response.headers()), Some(Code::DeadlineExceeded));
        let reply = Response::new(Body::new(Full::from("reply")));
        let answered = Box::pin(async move { Ok::<_, Infallible>(reply) });
        let Ok(response) = call(answered, CallKind::Unary, TIMEOUT).await;
        // The client reads it late.
        tokio::time::sleep(2 * TIMEOUT).await;
        let read = response.into_body().collect().await.unwrap();
        assert_eq!(read.to_bytes(), "reply");
    }
}
