//! Messages to watches.
//!
//! A message is etcd's `WatchResponse`, with one difference that is not visible on the wire: its events are
//! already encoded. An event is encoded once, and the messages of all its watches refer to the same bytes.

use std::cell::Cell;

use bowline::Revision;
use bowline_proto::etcdserverpb::ResponseHeader;
use bowline_proto::mvccpb::Event;
use bytes::Bytes;
use prost::Message;

/// `etcdserverpb.WatchResponse`, field for field.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub(crate) watch_id: i64,
    #[prost(bool, tag = "3")]
    pub(crate) created: bool,
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    #[prost(int64, tag = "5")]
    pub(crate) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(crate) cancel_reason: String,
    #[prost(bool, tag = "7")]
    pub(crate) fragment: bool,
    /// Each an encoded `mvccpb.Event`.
    #[prost(bytes = "bytes", repeated, tag = "11")]
    pub(crate) events: Vec<Bytes>,
}

/// The encoded event.
pub(super) fn encoded(event: &Event) -> Vec<u8> {
    event.encode_to_vec()
}

/// A message, and the watches of the stream that receive it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Delivery {
    /// As the first watch receives it.
    pub(crate) message: WatchMessage,
    /// The ids of the others, which receive the same with their own id.
    pub(crate) also: Vec<i64>,
}

impl Delivery {
    /// The number of watches that receive it.
    pub(crate) fn count(&self) -> usize {
        1 + self.also.len()
    }

    /// The message that the watch at this place receives.
    pub(crate) fn message_at(&self, place: usize) -> WatchMessage {
        WatchMessage {
            watch_id: self.id_at(place),
            ..self.message.clone()
        }
    }

    fn id_at(&self, place: usize) -> i64 {
        match place.checked_sub(1) {
            None => self.message.watch_id,
            Some(place) => self.also[place],
        }
    }
}

/// The encoded messages of a delivery: they differ in the id alone, so the rest is encoded once.
///
/// ```text
/// header (field 1) │ watch_id (field 2, absent if 0) │ all other fields
/// ```
#[derive(Debug)]
pub(crate) struct EncodedDelivery {
    delivery: Delivery,
    /// The message without its id.
    encoded: Vec<u8>,
    /// Where the id belongs.
    id_at: usize,
    /// The number of watches whose message was written.
    written: usize,
}

thread_local! {
    /// The buffer of the last one, for the next.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A longer buffer is not kept.
const KEPT_BYTES: usize = 64 << 10;

impl EncodedDelivery {
    pub(crate) fn new(mut delivery: Delivery) -> EncodedDelivery {
        let id = std::mem::take(&mut delivery.message.watch_id);
        let mut encoded = BUFFER.take();
        encoded.clear();
        // The buffer grows, so this cannot fail.
        let _ = delivery.message.encode(&mut encoded);
        let header = delivery.message.header.as_ref();
        let id_at = header.map_or(0, |header| prost::encoding::message::encoded_len(1, header));
        delivery.message.watch_id = id;
        // Only the ids are still needed.
        delivery.message.events = Vec::new();
        EncodedDelivery {
            delivery,
            encoded,
            id_at,
            written: 0,
        }
    }

    /// The memory that it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.encoded.len()
    }

    /// Appends the message of the next watch, with the prefix of gRPC; returns whether there was one.
    pub(crate) fn write_next(&mut self, out: &mut Vec<u8>) -> bool {
        if self.written == self.delivery.count() {
            return false;
        }
        let id = self.delivery.id_at(self.written);
        self.written += 1;
        let id_bytes = match id {
            0 => 0,
            id => prost::encoding::int64::encoded_len(2, &id),
        };
        let bytes = self.encoded.len() + id_bytes;
        out.reserve(bytes + 5);
        out.push(0);
        out.extend_from_slice(&(bytes as u32).to_be_bytes());
        let (head, rest) = self.encoded.split_at(self.id_at);
        out.extend_from_slice(head);
        if id != 0 {
            prost::encoding::int64::encode(2, &id, out);
        }
        out.extend_from_slice(rest);
        true
    }
}

impl Drop for EncodedDelivery {
    fn drop(&mut self) {
        if self.encoded.capacity() <= KEPT_BYTES {
            // While the thread ends, there is none.
            let _ = BUFFER.try_with(|buffer| buffer.set(std::mem::take(&mut self.encoded)));
        }
    }
}

/// A message to a watch.
pub(super) fn response(watch_id: i64, revision: Revision, events: Vec<Bytes>) -> WatchMessage {
    WatchMessage {
        header: Some(ResponseHeader {
            revision: revision.get() as i64,
            ..ResponseHeader::default()
        }),
        watch_id,
        events,
        ..WatchMessage::default()
    }
}

#[cfg(test)]
mod tests {
    use bowline_proto::etcdserverpb::WatchResponse;
    use bowline_proto::mvccpb::KeyValue;

    use super::*;

    /// Whatever the fields, the encoding is that of `WatchResponse`.
    #[test]
    fn the_wire_sees_a_watch_response() {
        let event = |version: i64| Event {
            r#type: 1,
            kv: Some(KeyValue {
                key: "key".into(),
                value: vec![7; 300].into(),
                version,
                lease: -1,
                ..KeyValue::default()
            }),
            prev_kv: (version > 1).then(KeyValue::default),
        };
        let header = ResponseHeader {
            cluster_id: u64::MAX,
            member_id: 2,
            revision: 3,
            raft_term: 4,
        };
        for number in 0..32_i64 {
            let has = |bit: u32| number & (1 << bit) != 0;
            let events: Vec<Event> = (0..number % 4).map(event).collect();
            let known = WatchResponse {
                header: has(0).then_some(header),
                watch_id: number - 1,
                created: has(1),
                canceled: has(2),
                compact_revision: number << 40,
                cancel_reason: "x".repeat(number as usize),
                fragment: has(3),
                events: events.clone(),
            };
            let told = WatchMessage {
                header: known.header,
                watch_id: known.watch_id,
                created: known.created,
                canceled: known.canceled,
                compact_revision: known.compact_revision,
                cancel_reason: known.cancel_reason.clone(),
                fragment: known.fragment,
                events: events.iter().map(|event| encoded(event).into()).collect(),
            };
            assert_eq!(told.encode_to_vec(), known.encode_to_vec());
            // The same for several watches at once.
            let delivery = Delivery {
                message: told,
                also: vec![0, 7, -1, i64::MAX],
            };
            let mut framed = Vec::new();
            for id in [known.watch_id, 0, 7, -1, i64::MAX] {
                let message = WatchResponse {
                    watch_id: id,
                    ..known.clone()
                };
                framed.push(0);
                framed.extend((message.encoded_len() as u32).to_be_bytes());
                message.encode(&mut framed).unwrap();
            }
            let mut encoded = EncodedDelivery::new(delivery.clone());
            let mut written = Vec::new();
            while encoded.write_next(&mut written) {}
            assert_eq!(written, framed, "{number}");
            assert_eq!(delivery.message_at(2).watch_id, 7);
        }
    }
}
