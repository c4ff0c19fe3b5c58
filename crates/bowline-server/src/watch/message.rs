//! Messages to watches.
//!
//! A message is etcd's `WatchResponse`, with one difference that is not visible on the wire: its events are
//! already encoded. An event is encoded once, and the messages of all its watches refer to the same bytes.

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
        }
    }
}
