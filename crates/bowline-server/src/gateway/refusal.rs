//! Refusals of calls: the HTTP status of each gRPC code, and the text.
//!
//! Statuses and texts are those of etcd 3.7's gateway: `{"code":…,"message":…}`, inside `{"error":…}` when the
//! service ends a stream, before its first reply too. No call of this server has `details`.

use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use serde_json::{Value, json};
use tonic::body::Body;
use tonic::codegen::StdError;
use tonic::{Code, Status};

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The HTTP status of a code.
pub(super) fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        // Not registered; servers log it for a client that disconnected.
        Code::Cancelled => StatusCode::from_u16(499).unwrap_or(StatusCode::REQUEST_TIMEOUT),
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => {
            StatusCode::BAD_REQUEST
        }
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The refusal of a call before its first reply.
pub(super) fn of(status: &Status) -> Response<Body> {
    reply(status.code(), error(status).to_string())
}

/// The refusal of a stream by its service, before the first reply.
pub(super) fn of_stream(status: &Status) -> Response<Body> {
    reply(status.code(), stream_error(status))
}

/// The reply to an unknown path under `/v3/`.
pub(super) fn no_such_path() -> Response<Body> {
    of(&Status::not_found("Not Found"))
}

/// The reply to a method other than POST.
pub(super) fn method_not_allowed() -> Response<Body> {
    of(&Status::unimplemented("Method Not Allowed"))
}

/// The reply to a body above the limit, with HTTP's own status for it.
pub(super) fn too_large(bytes_max: usize) -> Response<Body> {
    let mut response = of(&body_too_large(bytes_max));
    *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
    response
}

/// The reply to a body that is not declared as JSON.
pub(super) fn unsupported_type(why: &str) -> Response<Body> {
    let mut response = of(&Status::invalid_argument(why));
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

pub(super) fn body_too_large(bytes_max: usize) -> Status {
    let text = format!("the body of a request has more than {bytes_max} bytes; send less at once");
    Status::resource_exhausted(text)
}

/// The last line of a failed stream.
pub(super) fn stream_error(status: &Status) -> String {
    format!("{}\n", json!({ "error": error(status) }))
}

fn error(status: &Status) -> Value {
    json!({ "code": status.code() as i32, "message": status.message() })
}

fn reply(code: Code, text: String) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::from(text)));
    *response.status_mut() = http_status(code);
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// Why a body has ended early.
pub(super) fn broken(error: StdError) -> Status {
    let status = Status::from_error(error);
    match status.code() {
        // It took too long, or too much memory.
        Code::DeadlineExceeded | Code::ResourceExhausted => status,
        _ => Status::cancelled("the client has gone"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As etcd 3.7.3's gateway replies.
    #[test]
    fn statuses_are_those_of_etcd() {
        let statuses: Vec<u16> = (0..17)
            .map(|code| http_status(Code::from_i32(code)).as_u16())
            .collect();
        assert_eq!(
            statuses,
            [
                200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401
            ]
        );
    }
}
