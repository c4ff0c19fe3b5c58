//! A long range as JSON, in parts: together the text that [`json`] makes of the whole message.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bowline_proto::etcdserverpb as pb;
use bytes::Bytes;
use futures_core::Stream;
use http_body::{Body as HttpBody, Frame};
use prost::Message;
use prost_reflect::MessageDescriptor;
use tonic::Status;

use super::json;
use crate::service::LongReply;

/// The body of a long range.
pub(super) struct JsonReply {
    long: LongReply,
    at: At,
    range: MessageDescriptor,
    kv: MessageDescriptor,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Head,
    /// Before the first key.
    First,
    Keys,
    End,
}

impl JsonReply {
    /// `range` describes the whole message.
    pub(super) fn new(long: LongReply, range: MessageDescriptor) -> Option<JsonReply> {
        let keys = range.get_field_by_name("kvs")?;
        Some(JsonReply {
            long,
            at: At::Head,
            kv: keys.kind().as_message()?.clone(),
            range,
        })
    }

    fn text(&self, message: &pb::RangeResponse) -> Result<Vec<u8>, Status> {
        json::of_message(&self.range, message.encode_to_vec().into())
    }

    /// `{"header":{…},"kvs":[`
    fn head(&self) -> Result<Vec<u8>, Status> {
        let mut text = self.text(&self.long.head)?;
        text.pop();
        if text.len() > 1 {
            text.push(b',');
        }
        text.extend(br#""kvs":["#);
        Ok(text)
    }

    /// `],"more":true,"count":"7"}`
    fn tail(&self) -> Result<Vec<u8>, Status> {
        let text = self.text(&self.long.tail)?;
        let mut tail = b"]".to_vec();
        if text.len() > 2 {
            tail.push(b',');
        }
        tail.extend(&text[1..]);
        Ok(tail)
    }

    fn keys(&mut self, part: pb::RangeResponse) -> Result<Vec<u8>, Status> {
        let mut text = Vec::new();
        for kv in part.kvs {
            if self.at == At::Keys {
                text.push(b',');
            }
            self.at = At::Keys;
            text.extend(json::of_message(&self.kv, kv.encode_to_vec().into())?);
        }
        Ok(text)
    }
}

impl HttpBody for JsonReply {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let text = match this.at {
            At::Head => {
                this.at = At::First;
                this.head()
            }
            At::End => return Poll::Ready(None),
            At::First | At::Keys => match ready!(Pin::new(&mut this.long.parts).poll_next(task)) {
                Some(part) => part.and_then(|part| this.keys(part)),
                None => {
                    this.at = At::End;
                    this.tail()
                }
            },
        };
        if text.is_err() {
            // The text so far is incomplete, so the client detects it.
            this.at = At::End;
        }
        Poll::Ready(Some(text.map(|text| Frame::data(text.into()))))
    }
}
