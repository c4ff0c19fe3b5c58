//! Conversion between JSON and messages, as in etcd's gateway.
//!
//! Requests: a field has its name in the messages or the lowerCamelCase form; unknown fields and unknown
//! names of an enum are ignored; integers are numbers or strings; an enum is a name or a number; bytes are
//! base64 of either alphabet. Replies: names as in the messages, 64-bit integers as strings, enums by name,
//! standard base64, and no field with its default value.
//!
//! Invariants:
//!
//! - A text is refused or understood as a whole: a value that does not fit its field is an error that names
//!   the place, never a default.
//! - A rendered message parses as the same message.
//! - The parser bounds the nesting ([`NESTING_MAX`] levels) before any recursion.

use bytes::{Buf, Bytes, BytesMut};
use prost::Message;
use prost_reflect::{DeserializeOptions, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde_json::Value;
use tonic::Status;

/// The nesting limit of `serde_json`.
#[cfg(test)]
const NESTING_MAX: usize = 127;

/// Parses a message; an empty text and `null` are an empty message.
pub(super) fn to_message(input: &MessageDescriptor, text: &[u8]) -> Result<Bytes, Status> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok(Bytes::new());
    }
    let value: Value = serde_json::from_slice(text)
        .map_err(|error| Status::invalid_argument(format!("the body is not JSON: {error}")))?;
    if value.is_null() {
        return Ok(Bytes::new());
    }
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(value, &mut track);
    match DynamicMessage::deserialize_with_options(input.clone(), tracked, &options) {
        Ok(message) => Ok(message.encode_to_vec().into()),
        Err(error) => {
            let (path, name) = (track.path(), input.full_name());
            let text = format!("the body is not a {name}: at `{path}`: {error}");
            Err(Status::invalid_argument(text))
        }
    }
}

/// Renders a message.
pub(super) fn of_message(output: &MessageDescriptor, message: Bytes) -> Result<Vec<u8>, Status> {
    let failed = |error: String| Status::internal(format!("the reply cannot be written: {error}"));
    let message = DynamicMessage::decode(output.clone(), message)
        .map_err(|error| failed(error.to_string()))?;
    let options = SerializeOptions::new()
        .use_proto_field_name(true)
        .skip_default_fields(true)
        .stringify_64_bit_integers(true);
    let mut text = Vec::new();
    message
        .serialize_with_options(&mut serde_json::Serializer::new(&mut text), &options)
        .map_err(|error| failed(error.to_string()))?;
    Ok(text)
}

/// Splits a text that arrives in pieces into its consecutive values.
///
/// It only finds the end of each value; the parser checks the value itself.
#[derive(Debug, Default)]
pub(super) struct Values {
    buffer: BytesMut,
    /// How much of the buffer has been scanned.
    scanned: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Values {
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The bytes of the incomplete value.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The next value; at the end of the text, also an incomplete one.
    pub(super) fn next(&mut self, ended: bool) -> Option<Bytes> {
        if self.scanned == 0 {
            let blank = self.buffer.iter().take_while(|byte| is_blank(**byte));
            let blank = blank.count();
            self.buffer.advance(blank);
        }
        while let Some(&byte) = self.buffer.get(self.scanned) {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                self.scanned += 1;
                if !self.in_string && self.depth == 0 {
                    return Some(self.cut());
                }
                continue;
            }
            // A number or a name ends where another token begins.
            let begins = matches!(byte, b'{' | b'[' | b'"') || is_blank(byte);
            if self.depth == 0 && self.scanned > 0 && begins {
                return Some(self.cut());
            }
            self.scanned += 1;
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(self.cut());
                    }
                }
                _ => {}
            }
        }
        (ended && !self.buffer.is_empty()).then(|| self.cut())
    }

    fn cut(&mut self) -> Bytes {
        let value = self.buffer.split_to(self.scanned).freeze();
        let buffer = std::mem::take(&mut self.buffer);
        *self = Values {
            buffer,
            ..Values::default()
        };
        value
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// The descriptor of a message, by name.
#[cfg(test)]
pub(super) fn descriptor(name: &str) -> MessageDescriptor {
    let pool = prost_reflect::DescriptorPool::decode(bowline_proto::DESCRIPTORS).unwrap();
    pool.get_message_by_name(name).unwrap()
}

#[cfg(test)]
mod tests {
    use bowline_proto::etcdserverpb as pb;
    use pb::compare::{CompareResult, CompareTarget, TargetUnion};
    use pb::range_request::{SortOrder, SortTarget};
    use pb::request_op::Request;

    use super::*;

    fn read<M: Message + Default>(name: &str, text: &str) -> Result<M, String> {
        let input = descriptor(&format!("etcdserverpb.{name}"));
        let message = to_message(&input, text.as_bytes());
        let message = message.map_err(|status| status.message().to_owned())?;
        Ok(M::decode(message).unwrap())
    }

    fn written<M: Message>(name: &str, message: &M) -> String {
        let output = descriptor(&format!("etcdserverpb.{name}"));
        let text = of_message(&output, message.encode_to_vec().into()).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn requests_are_read_as_etcd_reads_them() {
        let wanted = pb::RangeRequest {
            key: "foo".into(),
            range_end: b"\xfb\xff".as_slice().into(),
            limit: 5,
            sort_order: SortOrder::Descend.into(),
            sort_target: SortTarget::Mod.into(),
            serializable: true,
            ..pb::RangeRequest::default()
        };
        for text in [
            // Names as in the messages, 64 bits as a string, an enum by name.
            r#"{"key":"Zm9v","range_end":"+/8=","limit":"5","sort_order":"DESCEND",
                "sort_target":"MOD","serializable":true}"#,
            // lowerCamelCase, URL-safe base64, numbers; unknown fields and nulls are ignored.
            r#"{"key":"Zm9v","rangeEnd":"-_8=","limit":5,"sortOrder":2,"sortTarget":3,
                "serializable":true,"nope":{"a":[1]},"revision":null}"#,
            // The last of two wins; base64 needs no padding.
            r#"{"key":"YQ==","key":"Zm9v","rangeEnd":"-_8","limit":5.0,"sortOrder":2,
                "sortTarget":3,"serializable":true}"#,
        ] {
            assert_eq!(read("RangeRequest", text), Ok(wanted.clone()), "{text}");
        }
        for text in ["", " \n", "null", "{}"] {
            let read = read("RangeRequest", text);
            assert_eq!(read, Ok(pb::RangeRequest::default()), "{text}");
        }
        // An unknown name of an enum counts as an absent field.
        let text = r#"{"key":"Zm9v","sort_order":"SIDEWAYS"}"#;
        let range: pb::RangeRequest = read("RangeRequest", text).unwrap();
        assert_eq!(range.sort_order(), SortOrder::None);
        let text = r#"{"create_request":{"filters":["NOPUT","NOPE","NODELETE"]}}"#;
        let watch: pb::WatchRequest = read("WatchRequest", text).unwrap();
        let Some(pb::watch_request::RequestUnion::CreateRequest(create)) = watch.request_union
        else {
            panic!("{watch:?}")
        };
        assert_eq!(create.filters, [0, 1]);
        let txn = r#"{"compare":[{"key":"YQ==","target":"VALUE","result":"NOT_EQUAL","value":"",
                       "unknown":1}],
            "success":[{"request_put":{"key":"YQ==","x":0}},{"requestRange":{"key":"YQ=="}}]}"#;
        let txn: pb::TxnRequest = read("TxnRequest", txn).unwrap();
        let compare = &txn.compare[0];
        assert_eq!(compare.target(), CompareTarget::Value);
        assert_eq!(compare.result(), CompareResult::NotEqual);
        // Present, though empty.
        assert_eq!(compare.target_union, Some(TargetUnion::Value(Bytes::new())));
        let ops = txn.success.iter().map(|op| op.request.as_ref());
        assert!(matches!(
            ops.collect::<Vec<_>>()[..],
            [Some(Request::RequestPut(_)), Some(Request::RequestRange(_))]
        ));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_place() {
        for (name, text, place) in [
            ("RangeRequest", r#"{"key":"#, "line 1 column 7"),
            ("RangeRequest", "{\n\"key\":tru}", "line 2 column"),
            ("RangeRequest", r#"{"key":"Zm9v"} more"#, "line 1 column 16"),
            ("RangeRequest", "[]", "etcdserverpb.RangeRequest"),
            ("RangeRequest", r#"{"key":7}"#, "`key`"),
            ("RangeRequest", r#"{"key":"!!"}"#, "`key`"),
            ("RangeRequest", r#"{"limit":1.5}"#, "`limit`"),
            ("RangeRequest", r#"{"limit":"x"}"#, "`limit`"),
            (
                "RangeRequest",
                r#"{"limit":9223372036854775808}"#,
                "`limit`",
            ),
            ("RangeRequest", r#"{"sort_order":1.5}"#, "`sort_order`"),
            ("RangeRequest", r#"{"sort_order":true}"#, "`sort_order`"),
            (
                "RangeRequest",
                r#"{"serializable":"true"}"#,
                "`serializable`",
            ),
            (
                "TxnRequest",
                r#"{"success":[{},{"request_put":{"lease":[]}}]}"#,
                "`success[1].request_put.lease`",
            ),
            (
                "TxnRequest",
                r#"{"compare":[{"target":[]}]}"#,
                "`compare[0].target`",
            ),
            (
                "WatchRequest",
                r#"{"create_request":{},"cancel_request":{}}"#,
                "oneof",
            ),
        ] {
            let input = descriptor(&format!("etcdserverpb.{name}"));
            let refused = to_message(&input, text.as_bytes()).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
            assert!(refused.message().contains(place), "{text}: {refused:?}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |levels: usize, inner: &str| {
            let open = r#"{"success":[{"request_txn":"#.repeat(levels);
            open + inner + &"}]}".repeat(levels)
        };
        let read = |text: &str| read::<pb::TxnRequest>("TxnRequest", text);
        assert!(read(&nested(30, "{}")).is_ok());
        // Also of a field that is skipped.
        for text in [
            nested(NESTING_MAX / 3 + 1, "{}"),
            format!(r#"{{"x":{}"#, "[".repeat(100_000)),
        ] {
            let refused = read(&text).unwrap_err();
            assert!(refused.contains("recursion limit"), "{refused}");
        }
    }

    #[test]
    fn replies_are_written_as_etcd_writes_them() {
        let kv = bowline_proto::mvccpb::KeyValue {
            key: "foo".into(),
            create_revision: 2,
            mod_revision: i64::MAX,
            value: b"\xfb\xff".as_slice().into(),
            ..Default::default()
        };
        let event = bowline_proto::mvccpb::Event {
            r#type: bowline_proto::mvccpb::event::EventType::Delete.into(),
            kv: Some(kv.clone()),
            prev_kv: None,
        };
        let put = bowline_proto::mvccpb::Event {
            kv: Some(Default::default()),
            ..Default::default()
        };
        let watched = pb::WatchResponse {
            watch_id: -1,
            canceled: true,
            events: vec![event, put],
            ..pb::WatchResponse::default()
        };
        let kv_text = concat!(
            r#"{"key":"Zm9v","create_revision":"2","#,
            r#""mod_revision":"9223372036854775807","value":"+/8="}"#
        );
        assert_eq!(
            written("WatchResponse", &watched),
            format!(
                r#"{{"watch_id":"-1","canceled":true,"events":[{{"type":"DELETE","kv":{kv_text}}},{{"kv":{{}}}}]}}"#
            )
        );
        let granted = pb::LeaseGrantResponse {
            id: 7,
            ttl: 60,
            ..pb::LeaseGrantResponse::default()
        };
        assert_eq!(
            written("LeaseGrantResponse", &granted),
            r#"{"ID":"7","TTL":"60"}"#
        );
        let hash = pb::HashResponse {
            hash: 7,
            ..pb::HashResponse::default()
        };
        assert_eq!(written("HashResponse", &hash), r#"{"hash":7}"#);
    }

    /// The values do not depend on how the text is split.
    #[test]
    fn values_are_found_wherever_the_pieces_end() {
        for (text, wanted) in [
            ("", &[][..]),
            (" \n", &[]),
            (r#"{"a":"}\"{"}{}"#, &[r#"{"a":"}\"{"}"#, "{}"]),
            (" {} \n[1,{\"a\":[2]}]\r\n", &["{}", "[1,{\"a\":[2]}]"]),
            (
                r#"null 7{"a":1}"b"true"#,
                &["null", "7", r#"{"a":1}"#, r#""b""#, "true"],
            ),
            (r#"{"a":1}}{"b""#, &[r#"{"a":1}"#, "}", r#"{"b""#]),
        ] {
            for piece in 1..=text.len().max(1) {
                let mut values = Values::default();
                let mut found = Vec::new();
                for piece in text.as_bytes().chunks(piece) {
                    values.push(piece);
                    found.extend(std::iter::from_fn(|| values.next(false)));
                }
                found.extend(std::iter::from_fn(|| values.next(true)));
                assert_eq!(found, wanted, "{text} in pieces of {piece}");
                assert_eq!(values.waiting_bytes(), 0);
            }
        }
    }
}
