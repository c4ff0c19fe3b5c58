//! What a call is refused with: the status of HTTP for each code of gRPC, and the text.
//!
//! The statuses are those of the gateway of etcd 3.4. The text has the fields that etcd's gateways
//! have had over time: `error`, `message` and `code`; in a stream also `grpc_code`, `http_code` and
//! `http_status`.

use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use serde_json::{Value, json};
use tonic::body::Body;
use tonic::{Code, Status};

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The status of HTTP for a code.
pub(super) fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::Cancelled => StatusCode::REQUEST_TIMEOUT,
        Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::FailedPrecondition => StatusCode::PRECONDITION_FAILED,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A refusal of a call whose reply is one message.
pub(super) fn unary(status: &Status) -> Response<Body> {
    let text = json!({
        "error": status.message(),
        "message": status.message(),
        "code": status.code() as i32,
    });
    reply(http_status(status.code()), &text)
}

/// A refusal of a call whose reply is a stream that has not begun.
pub(super) fn stream(status: &Status) -> Response<Body> {
    reply(http_status(status.code()), &stream_error(status))
}

/// A body that is too large, told by the status that HTTP has for it.
pub(super) fn too_large(bytes_max: usize) -> Response<Body> {
    let mut response = unary(&body_too_large(bytes_max));
    *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
    response
}

pub(super) fn body_too_large(bytes_max: usize) -> Status {
    let text = format!("the body of a request has more than {bytes_max} bytes; send less at once");
    Status::resource_exhausted(text)
}

/// The end of a stream that failed.
pub(super) fn stream_error(status: &Status) -> Value {
    let http = http_status(status.code());
    json!({
        "error": {
            "code": status.code() as i32,
            "grpc_code": status.code() as i32,
            "http_code": http.as_u16(),
            "http_status": http.canonical_reason().unwrap_or_default(),
            "message": status.message(),
        }
    })
}

fn reply(status: StatusCode, text: &Value) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::from(text.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the gateway of etcd 3.4.23 answers.
    #[test]
    fn statuses_are_those_of_etcd() {
        let statuses: Vec<u16> = (0..17)
            .map(|code| http_status(Code::from_i32(code)).as_u16())
            .collect();
        assert_eq!(
            statuses,
            [
                200, 408, 500, 400, 504, 404, 409, 403, 429, 412, 409, 400, 501, 500, 503, 500, 401
            ]
        );
    }
}
