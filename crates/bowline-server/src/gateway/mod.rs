//! The JSON gateway: etcd's methods under `/v3/` for clients with HTTP and JSON only.
//!
//! ```text
//!  POST /v3/kv/put ──▶ table ──▶ json ──▶ frame ──▶ the gRPC service ──▶ frame ──▶ json
//! ```
//!
//! The gateway only translates: it looks up the path ([`table`]), converts the body to the method's message
//! by its descriptor ([`json`]), calls the same service as a gRPC client, and converts the reply to JSON
//! ([`refusal`], [`stream`]).
//!
//! Invariants:
//!
//! - No method is implemented twice: a call goes through [`Dispatch`](crate::transport::Dispatch), with the
//!   checks, limits and metrics of gRPC.
//! - Whatever the body, the result is a reply or a refusal that names the place, never a panic, and never a
//!   call with a part of what was sent.
//! - A body is JSON that no web page can have sent ([`JsonBody::of`]).
//! - The buffered part of a body is bounded ([`body_bytes_max`]).
//! - A stream lives as long as its client: closing the connection ends it, and a watch does not end before.

mod json;
mod long;
mod refusal;
mod stream;
mod table;

use std::future::Future;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use http_body::Body as HttpBody;
use http_body_util::{BodyExt, Full};
use tonic::body::Body;
use tonic::codegen::StdError;
use tonic::{Code, Status};

use long::JsonReply;
use stream::{Deframer, Input, Output};
use table::{Messages, Route};

use crate::http::JsonBody;
use crate::memory::Partial;
use crate::service::{EncodedReply, LongReply};

/// The prefix of headers that are gRPC metadata.
const METADATA: &str = "grpc-metadata-";

/// How long the client waits, as in gRPC.
const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Whether a path belongs to the gateway, which also answers unknown paths under its prefix.
pub(crate) fn is_known(path: &str) -> bool {
    path.starts_with("/v3/")
}

/// Whether the body of a request to a path is a stream of values.
pub(crate) fn takes_stream(path: &str) -> bool {
    let messages = table::route(path).and_then(|route| route.messages.as_ref());
    messages.is_some_and(|messages| messages.takes_stream)
}

/// The largest body, or value in a stream: base64 makes four bytes of three, and names and punctuation take
/// some.
fn body_bytes_max(message_bytes_max: usize) -> usize {
    message_bytes_max.saturating_mul(2)
}

/// Answers a request to a path that [`is_known`]. `call` calls a method as gRPC does.
pub(crate) async fn answer<B, F, R>(
    request: Request<B>,
    message_bytes_max: usize,
    partial: Partial,
    call: F,
) -> Response<Body>
where
    B: HttpBody<Data = Bytes, Error: Into<StdError>> + Send + Unpin + 'static,
    F: FnOnce(Request<Body>) -> R,
    R: Future<Output = Response<Body>>,
{
    let bytes_max = body_bytes_max(message_bytes_max);
    let (head, body) = request.into_parts();
    let Some(route) = table::route(head.uri.path()) else {
        return refusal::no_such_path();
    };
    if head.method != Method::POST {
        return refusal::method_not_allowed();
    }
    let Some(messages) = &route.messages else {
        let text = format!("{} is not served", route.method_path);
        return refusal::of(&Status::unimplemented(text));
    };
    if let JsonBody::Refused(why) = JsonBody::of(&head.headers) {
        return refusal::unsupported_type(why);
    }
    let body = if messages.takes_stream {
        let mut input = Input::new(body, messages.clone(), bytes_max, partial);
        if let Err(status) = input.read_first().await {
            return refusal::of(&status);
        }
        Body::new(input)
    } else {
        let Some(text) = collected(body, bytes_max).await else {
            return refusal::too_large(bytes_max);
        };
        let frame = text.and_then(|text| json::to_message(&messages.input, &text));
        match frame.and_then(|message| stream::framed(&message)) {
            Ok(frame) => Body::new(Full::new(frame)),
            Err(status) => return refusal::of(&status),
        }
    };
    let mut response = call(grpc_request(route, &head.headers, body)).await;
    if let Some(long) = LongReply::taken_from(&mut response)
        && let Some(long) = JsonReply::new(long, messages.output.clone())
    {
        return reply(response.headers(), Body::new(long));
    }
    if let Some(encoded) = EncodedReply::taken_from(&mut response) {
        response = response.map(|_| encoded.into_grpc());
    }
    if messages.gives_stream {
        streamed(response, messages)
    } else {
        match single(response, messages).await {
            Ok(response) => response,
            Err(status) => refusal::of(&status),
        }
    }
}

/// The whole body; `None` when it is too large.
async fn collected<B>(mut body: B, bytes_max: usize) -> Option<Result<Bytes, Status>>
where
    B: HttpBody<Data = Bytes, Error: Into<StdError>> + Unpin,
{
    // A body whose declared length is too large is refused unread.
    if body.size_hint().lower() > bytes_max as u64 {
        return None;
    }
    let mut text = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return Some(Err(refusal::broken(error.into()))),
        };
        if let Some(piece) = frame.data_ref() {
            if piece.len() > bytes_max - text.len() {
                return None;
            }
            text.extend_from_slice(piece);
        }
    }
    Some(Ok(text.freeze()))
}

/// The request as a gRPC client sends it, with the metadata from the headers.
fn grpc_request(route: &Route, headers: &HeaderMap, body: Body) -> Request<Body> {
    let mut request = Request::new(body);
    *request.method_mut() = Method::POST;
    *request.version_mut() = http::Version::HTTP_2;
    // A path from the table is a valid URI.
    if let Ok(uri) = route.method_path.parse() {
        *request.uri_mut() = uri;
    }
    let metadata = request.headers_mut();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix(METADATA) else {
            continue;
        };
        // A client must not set the transfer options; `te` and the type are set below.
        if name.starts_with("grpc-") {
            continue;
        }
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            metadata.append(name, value.clone());
        }
    }
    // The one transfer option that is the client's.
    if let Some(timeout) = headers.get(TIMEOUT) {
        metadata.insert(TIMEOUT, timeout.clone());
    }
    // etcd's token may also come in HTTP's `Authorization` header.
    if let Some(token) = headers.get(header::AUTHORIZATION) {
        metadata.insert(header::AUTHORIZATION, token.clone());
        metadata
            .entry(HeaderName::from_static("token"))
            .or_insert_with(|| token.clone());
    }
    let grpc = HeaderValue::from_static("application/grpc");
    metadata.insert(header::CONTENT_TYPE, grpc);
    metadata.insert(header::TE, HeaderValue::from_static("trailers"));
    request
}

/// The reply of a method with a single reply.
async fn single(response: Response<Body>, messages: &Messages) -> Result<Response<Body>, Status> {
    refused(response.headers())?;
    let (head, body) = response.into_parts();
    let collected = body.collect().await?;
    if let Some(trailers) = collected.trailers() {
        refused(trailers)?;
    }
    let mut frames = Deframer::default();
    frames.push(collected.to_bytes());
    let message = frames.next()?;
    let message = message.ok_or_else(|| Status::internal("the service has not answered"))?;
    let text = json::of_message(&messages.output, message)?;
    Ok(reply(&head.headers, Body::new(Full::from(text))))
}

/// The reply of a method with a stream of replies.
fn streamed(response: Response<Body>, messages: &Messages) -> Response<Body> {
    if let Err(status) = refused(response.headers()) {
        return refusal::of_stream(&status);
    }
    let (head, body) = response.into_parts();
    let output = Output::new(body, messages.output.clone());
    reply(&head.headers, Body::new(output))
}

/// The refusal in headers or trailers.
fn refused(headers: &HeaderMap) -> Result<(), Status> {
    match Status::from_header_map(headers) {
        Some(status) if status.code() != Code::Ok => Err(status),
        _ => Ok(()),
    }
}

/// A reply with the service's metadata as headers.
fn reply(metadata: &HeaderMap, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, refusal::JSON);
    for (name, value) in metadata {
        if name == header::CONTENT_TYPE || name.as_str().starts_with("grpc-") {
            continue;
        }
        let name = format!("{METADATA}{name}");
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            headers.append(name, value.clone());
        }
    }
    response
}

/// Entry points of fuzzers.
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzed {
    use super::json::{self, Values};
    use super::stream::Deframer;
    use super::table;

    /// The index of a method, by its path.
    pub(crate) fn method(path: &str) -> u8 {
        let found = (0..u8::MAX)
            .find(|number| table::row(usize::from(*number)).is_some_and(|row| row.0 == path));
        found.unwrap_or(u8::MAX)
    }

    /// A request's body: a parsed message renders and parses as the same message.
    pub(crate) fn request(method: usize, body: &[u8]) {
        let Some((_, messages)) = table::row(method) else {
            return;
        };
        let input = &messages.input;
        match json::to_message(input, body) {
            Ok(message) => {
                let text = json::of_message(input, message.clone());
                let text = text.unwrap_or_else(|status| panic!("{status}"));
                let again = json::to_message(input, &text);
                assert_eq!(
                    again.ok(),
                    Some(message),
                    "{}",
                    String::from_utf8_lossy(&text)
                );
            }
            Err(status) => assert!(!status.message().is_empty()),
        }
    }

    /// A stream of values: the split does not matter, and only blanks are lost between values.
    pub(crate) fn values(body: &[u8]) {
        let cut = |piece_bytes: usize| {
            let (mut values, mut found) = (Values::default(), Vec::new());
            for piece in body.chunks(piece_bytes) {
                values.push(piece);
                found.extend(std::iter::from_fn(|| values.next(false)));
            }
            found.extend(std::iter::from_fn(|| values.next(true)));
            assert_eq!(values.waiting_bytes(), 0);
            found
        };
        let whole = cut(body.len().max(1));
        assert_eq!(whole, cut(1));
        assert_eq!(whole, cut(7));
        let kept: usize = whole.iter().map(bytes::Bytes::len).sum();
        assert!(kept <= body.len());
    }

    /// A service's framed reply.
    pub(crate) fn reply(method: usize, body: &[u8]) {
        let Some((_, messages)) = table::row(method) else {
            return;
        };
        let mut frames = Deframer::default();
        frames.push(body);
        while let Ok(Some(message)) = frames.next() {
            if let Ok(text) = json::of_message(&messages.output, message) {
                let again = json::to_message(&messages.output, &text);
                let again = again.and_then(|again| json::of_message(&messages.output, again));
                assert_eq!(again.ok(), Some(text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::StatusCode;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    fn put() -> http::request::Builder {
        Request::post("/v3/kv/put")
    }

    /// A service that replies with nothing, and returns the request.
    async fn asked(request: Request<Full<Bytes>>) -> (Option<Request<Body>>, Response<Body>) {
        let mut seen = None;
        let memory = crate::memory::Memory::new(1 << 20, 1 << 20);
        let partial = Partial::new(memory.account(), std::time::Duration::from_secs(60));
        let response = answer(request, 100, partial, |request| {
            seen = Some(request);
            std::future::ready(Status::not_found("text").into_http())
        })
        .await;
        (seen, response)
    }

    #[tokio::test]
    async fn headers_with_the_prefix_are_metadata_and_no_others() {
        let request = put()
            .header("Grpc-Metadata-hasleader", "true")
            .header("Grpc-Metadata-bowline-read", "lease")
            .header("Grpc-Metadata-Content-Type", "text/plain")
            .header("Grpc-Metadata-grpc-encoding", "gzip")
            .header("Grpc-Timeout", "5S")
            .header("hasleader", "false")
            .header("content-type", "application/json")
            .header("Authorization", "secret");
        let (asked, response) = asked(request.body(Full::from("{}")).unwrap()).await;
        let headers = asked.unwrap().into_parts().0.headers;
        let has = |name: &str| {
            let values = headers.get_all(name).iter();
            values
                .map(|value| value.to_str().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(has("hasleader"), ["true"]);
        assert_eq!(has("bowline-read"), ["lease"]);
        assert_eq!(has("content-type"), ["application/grpc"]);
        assert_eq!(has("grpc-encoding"), [""; 0]);
        assert_eq!(has("grpc-timeout"), ["5S"]);
        assert_eq!(has("authorization"), ["secret"]);
        assert_eq!(has("token"), ["secret"]);
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
    }

    /// No service is called with an unreadable body, or with a part of it.
    #[tokio::test]
    async fn what_is_refused_is_not_called() {
        let large = format!(r#"{{"key":"{}"}}"#, "A".repeat(200));
        for (body, status) in [
            ("{".to_owned(), StatusCode::BAD_REQUEST),
            ("{} {}".to_owned(), StatusCode::BAD_REQUEST),
            (large, StatusCode::PAYLOAD_TOO_LARGE),
        ] {
            let request = put().body(Full::from(body)).unwrap();
            let (asked, response) = asked(request).await;
            assert!(asked.is_none());
            assert_eq!(response.status(), status);
        }
        let request = Request::get("/v3/kv/put").body(Full::from("")).unwrap();
        let (asked, response) = asked(request).await;
        assert!(asked.is_none());
        assert_eq!(response.status(), StatusCode::NOT_IMPLEMENTED);
    }

    /// Many pieces without a declared length.
    #[tokio::test]
    async fn a_body_of_unknown_length_is_bounded() {
        let piece = |_| Ok::<_, Infallible>(Frame::data(Bytes::from_static(b" ")));
        let body = StreamBody::new(tokio_stream::iter((0..201).map(piece)));
        assert!(collected(body, 200).await.is_none());
    }
}
