//! The replies of calls whose principal is charged for what they show.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

use crate::rates::{Principal, Rates, UNSENT_KEY_BYTES};
use crate::service::{EncodedReply, LongReply, UnsentKeys};

/// A reply, whose bytes and counted keys are charged as they are taken. What the service left for the transport is charged
/// at once.
pub(super) fn reply(
    mut response: Response<Body>,
    rates: &Arc<Rates>,
    principal: Principal,
) -> Response<Body> {
    let unsent = UnsentKeys::taken_from(&mut response);
    let left = LongReply::bytes_in(&response).or_else(|| EncodedReply::bytes_in(&response));
    if let Some(bytes) = left {
        let unsent = unsent_bytes(unsent.as_ref());
        rates.charge(&principal, bytes.saturating_add(unsent));
        return response;
    }
    let rates = rates.clone();
    response.map(|inner| {
        Body::new(ChargedReply {
            inner,
            rates,
            principal,
            unsent,
        })
    })
}

/// What the keys count for that were only counted since the last call.
fn unsent_bytes(unsent: Option<&UnsentKeys>) -> u64 {
    let keys = unsent.map_or(0, UnsentKeys::take);
    keys.saturating_mul(UNSENT_KEY_BYTES)
}

struct ChargedReply {
    inner: Body,
    rates: Arc<Rates>,
    principal: Principal,
    /// The keys that the service counts without sending them.
    unsent: Option<UnsentKeys>,
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
            let unsent = unsent_bytes(this.unsent.as_ref());
            let bytes = unsent.saturating_add(data.remaining() as u64);
            this.rates.charge(&this.principal, bytes);
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
