//! [`EncodedReply`]: a large reply, encoded on a thread for reads.
//!
//! A reply is otherwise encoded when the connection polls its body, on a thread that serves many connections: with 7 MiB
//! they waited for milliseconds. The service leaves the bytes in the extensions of its response, and the transport and the
//! JSON gateway take them in place of the message.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::{BodyExt, Full};
use prost::Message;
use tonic::body::Body;
use tonic::{Response, Status};

use super::answer::Answer;
use crate::context::Context;
use crate::status::Fault;

/// A smaller reply is encoded by the connection: that takes less time than another thread does to begin.
const LARGE_BYTES: usize = 256 << 10;

/// A gRPC message: a byte that says that it is not compressed, its length, its bytes.
pub(crate) struct EncodedReply(Bytes);

/// The slot in which a service leaves one for the transport.
#[derive(Clone)]
struct Slot(Arc<Mutex<Option<EncodedReply>>>);

/// The answer, with its message encoded if it is large.
pub(super) async fn encode_if_large<M: Message + 'static>(
    context: &Context,
    answer: Answer<M>,
) -> Result<Answer<M>, Status> {
    let (message, encoded) = encode(context, answer.message).await?;
    Ok(Answer {
        message,
        encoded,
        ..answer
    })
}

async fn encode<M: Message + 'static>(
    context: &Context,
    message: M,
) -> Result<(M, Option<EncodedReply>), Status> {
    let bytes = message.encoded_len();
    if bytes < LARGE_BYTES {
        return Ok((message, None));
    }
    let Ok(length) = u32::try_from(bytes) else {
        return Err(Fault::TooLong.into());
    };
    let encode = move || {
        let mut framed = BytesMut::with_capacity(bytes + 5);
        framed.put_u8(0);
        framed.put_u32(length);
        // It has room for all of it, so this cannot fail.
        let _ = message.encode(&mut framed);
        (message, Some(EncodedReply(framed.freeze())))
    };
    context.wide_reads.run(encode).await
}

impl EncodedReply {
    /// Leaves it in a response for the transport.
    pub(super) fn leave_in<M>(self, response: &mut Response<M>) {
        let slot = Slot(Arc::new(Mutex::new(Some(self))));
        response.extensions_mut().insert(slot);
    }

    /// The encoded reply of a response; it replaces the response's own message.
    pub(crate) fn taken_from<B>(response: &mut http::Response<B>) -> Option<EncodedReply> {
        // Nearly all responses have no extensions, and then this costs nothing.
        let slot: Slot = response.extensions_mut().remove()?;
        slot.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The length of the encoded reply of a response, if it has one.
    pub(crate) fn bytes_in<B>(response: &http::Response<B>) -> Option<u64> {
        let slot: &Slot = response.extensions().get()?;
        let reply = slot.0.lock().unwrap_or_else(PoisonError::into_inner);
        reply.as_ref().map(|reply| reply.0.len() as u64)
    }

    /// The reply with its prefix.
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The reply with its prefix.
    pub(crate) fn into_bytes(self) -> Bytes {
        self.0
    }

    /// The reply as the body of a gRPC response.
    pub(crate) fn into_grpc(self) -> Body {
        let mut trailers = HeaderMap::new();
        let added = Status::ok("").add_header(&mut trailers);
        let trailers = async move { Some(added.map(|()| trailers)) };
        let data = Full::new(self.0).map_err(|never| match never {});
        Body::new(data.with_trailers(trailers))
    }
}
