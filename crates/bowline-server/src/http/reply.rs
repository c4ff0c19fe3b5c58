//! Text replies.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use tonic::body::Body;

pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// A text reply.
pub(crate) fn reply(
    status: StatusCode,
    content_type: &'static str,
    text: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::new(text.into())));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
