//! Problems of queries in the details of a status, as `google.rpc.Status` has them, so that any client of gRPC can read
//! them.

use prost::Message;
use prost::bytes::Bytes;

use crate::v1::QueryProblem;

const TYPE_URL: &str = "type.googleapis.com/bowline.v1.QueryProblem";

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct RichStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Detail>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Detail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// The details of a status with this code and message.
///
/// ```
/// use bowline_proto::problem::{of_details, to_details};
/// use bowline_proto::v1::QueryProblem;
///
/// let problem = QueryProblem { line: 1, column: 8, ..QueryProblem::default() };
/// assert_eq!(of_details(&to_details(3, "no such variable", &problem)), Some(problem));
/// assert_eq!(of_details(b"anything else"), None);
/// ```
#[must_use]
pub fn to_details(code: i32, message: &str, problem: &QueryProblem) -> Bytes {
    let detail = Detail {
        type_url: TYPE_URL.to_owned(),
        value: problem.encode_to_vec().into(),
    };
    let status = RichStatus {
        code,
        message: message.to_owned(),
        details: vec![detail],
    };
    status.encode_to_vec().into()
}

/// The problem among the details of a status.
#[must_use]
pub fn of_details(details: &[u8]) -> Option<QueryProblem> {
    let status = RichStatus::decode(details).ok()?;
    let found = status.details.iter().find(|it| it.type_url == TYPE_URL)?;
    QueryProblem::decode(found.value.clone()).ok()
}
