//! The replies of calls whose principal is charged for what they show.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

use crate::rates::{Principal, Rates};
use crate::service::{EncodedReply, LongReply};

/// A reply, whose bytes are charged as they are taken. What the service left for the transport is charged at once.
pub(super) fn reply(
    response: Response<Body>,
    rates: &Arc<Rates>,
    principal: Principal,
) -> Response<Body> {
    let left = LongReply::bytes_in(&response).or_else(|| EncodedReply::bytes_in(&response));
    if let Some(bytes) = left {
        rates.charge(&principal, bytes);
        return response;
    }
    let rates = rates.clone();
    response.map(|inner| {
        Body::new(ChargedReply {
            inner,
            rates,
            principal,
        })
    })
}

struct ChargedReply {
    inner: Body,
    rates: Arc<Rates>,
    principal: Principal,
}

impl HttpBody for ChargedReply {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let polled = ready!(Pin::new(&mut this.inner).poll_frame(task));
        if let Some(Ok(frame)) = &polled
            && let Some(data) = frame.data_ref()
        {
            this.rates.charge(&this.principal, data.remaining() as u64);
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
