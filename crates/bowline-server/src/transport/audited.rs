//! Calls of the libraries in the audit log: what is heard of their requests, and the ends of their replies.
//!
//! It stands around the check of rights and the service, so that a refused call is written, and a call of the gateway as one of
//! a gRPC client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::body::Body;
use tonic::{Code, Status};

use super::bodies::BoxedCall;
use crate::audit::{describe, noting};
use crate::audited::{Audited, SharedDetails};
use crate::context::Context;
use crate::credentials::Credentials;
use crate::memory::{Account, Charge, OverBudget};
use crate::metrics::{CallKind, Method};

/// The length of the prefix of a gRPC message.
const PREFIX_BYTES: usize = 5;

/// Makes a call, with its lines.
pub(super) fn call(
    context: Arc<Context>,
    method: Method,
    credentials: Credentials,
    details: SharedDetails,
    call: BoxedCall,
) -> BoxedCall {
    Box::pin(async move {
        let Some(audit) = context.audits(method) else {
            return call.await;
        };
        let audited = Audited::begin(&context, audit, method, &credentials, details);
        let mut audited = match audited.admit().await {
            Ok(audited) => audited,
            Err(status) => return Ok(status.into_http()),
        };
        let (answered, revision) = noting(call).await;
        let Ok(response) = answered;
        audited.revision = revision;
        let refusal = status_in(response.headers());
        if method.kind() == CallKind::Unary || refusal.is_some() {
            audited.end(refusal.as_ref());
            return Ok(response);
        }
        audited.begins();
        Ok(response.map(|inner| {
            Body::new(AuditedReply {
                inner,
                audited: Some(audited),
            })
        }))
    })
}

/// The refusal in headers or trailers.
fn status_in(headers: &http::HeaderMap) -> Option<Status> {
    let status = Status::from_header_map(headers)?;
    (status.code() != Code::Ok).then_some(status)
}

/// The body of a stream of replies.
struct AuditedReply {
    inner: Body,
    /// `None` once the stream has ended.
    audited: Option<Audited>,
}

impl HttpBody for AuditedReply {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let polled = ready!(Pin::new(&mut this.inner).poll_frame(task));
        let ended = match &polled {
            Some(Ok(frame)) => frame.trailers_ref().map(status_in),
            Some(Err(status)) => Some(Some(status.clone())),
            None => Some(None),
        };
        if let Some(refusal) = ended
            && let Some(audited) = this.audited.take()
        {
            audited.end(refusal.as_ref());
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

/// What is heard of a request while its service reads it. The part of a message that has come is charged a second time:
/// here it is there a second time.
pub(super) struct Heard {
    method: Method,
    details: SharedDetails,
    message: BytesMut,
    message_bytes_max: usize,
    charge: Charge,
    /// Nothing more is expected.
    is_done: bool,
}

impl Heard {
    pub(super) fn new(
        method: Method,
        details: SharedDetails,
        message_bytes_max: usize,
        account: &Arc<Account>,
    ) -> Heard {
        Heard {
            method,
            details,
            message: BytesMut::new(),
            message_bytes_max,
            charge: Charge::none(account.clone()),
            is_done: false,
        }
    }

    /// A part of the request has come.
    pub(super) fn take(&mut self, part: &[u8]) -> Result<(), OverBudget> {
        if self.is_done {
            return Ok(());
        }
        self.message.extend_from_slice(part);
        while let Some((prefix, rest)) = self.message.split_first_chunk::<PREFIX_BYTES>() {
            let [flag, a, b, c, d] = *prefix;
            let bytes = u32::from_be_bytes([a, b, c, d]) as usize;
            if flag != 0 || bytes > self.message_bytes_max {
                // Its service refuses it.
                self.is_unreadable();
                break;
            }
            let Some(message) = rest.get(..bytes) else {
                break;
            };
            let described = describe(self.method, message, &mut self.details.lock());
            self.message.advance(PREFIX_BYTES + bytes);
            if described.is_err() {
                self.is_unreadable();
            }
            if !self.method.takes_stream() {
                self.is_done = true;
            }
        }
        if self.is_done || self.message.is_empty() {
            self.message = BytesMut::new();
        }
        self.charge.set(self.message.len())
    }

    fn is_unreadable(&mut self) {
        self.details.lock().number("is_unreadable", true);
        self.is_done = true;
    }
}
