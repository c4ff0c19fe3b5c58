//! What a refusal is about, in the details of a status, as `google.rpc.Status` has them, so that any client of gRPC can read
//! them: problems of queries, and blocks that a unique index does not allow.

use prost::Message;
use prost::bytes::Bytes;

use crate::v1::{NotUnique, QueryProblem};

/// A message in the details of a status.
pub trait Detailed: Message + Default {
    /// The name that it is found by.
    const TYPE_URL: &'static str;
}

impl Detailed for QueryProblem {
    const TYPE_URL: &'static str = "type.googleapis.com/bowline.v1.QueryProblem";
}

impl Detailed for NotUnique {
    const TYPE_URL: &'static str = "type.googleapis.com/bowline.v1.NotUnique";
}

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
/// use bowline_proto::v1::{NotUnique, QueryProblem};
///
/// let problem = QueryProblem { line: 1, column: 8, ..QueryProblem::default() };
/// let details = to_details(3, "no such variable", &problem);
/// assert_eq!(of_details(&details), Some(problem));
/// assert_eq!(of_details::<NotUnique>(&details), None);
/// assert_eq!(of_details::<QueryProblem>(b"anything else"), None);
/// ```
#[must_use]
pub fn to_details<M: Detailed>(code: i32, message: &str, about: &M) -> Bytes {
    let detail = Detail {
        type_url: M::TYPE_URL.to_owned(),
        value: about.encode_to_vec().into(),
    };
    let status = RichStatus {
        code,
        message: message.to_owned(),
        details: vec![detail],
    };
    status.encode_to_vec().into()
}

/// The message of a type among the details of a status.
#[must_use]
pub fn of_details<M: Detailed>(details: &[u8]) -> Option<M> {
    let status = RichStatus::decode(details).ok()?;
    let mut all = status.details.iter();
    let found = all.find(|it| it.type_url == M::TYPE_URL)?;
    M::decode(found.value.clone()).ok()
}
