//! The frames of replies, as bytes.
//!
//! ```text
//! HEADERS :status, content-type, bowline-applied, bowline-read │ DATA │ HEADERS grpc-status: 0
//! HEADERS :status, content-type, grpc-status, grpc-message     (a refusal)
//! ```
//!
//! All fields are literals that the client does not insert into its table, so a reply is the same bytes
//! whatever went before. The first block of a connection says that the table stays empty: a client may have
//! asked for a smaller one, and then waits for this.

use http::HeaderMap;
use tonic::Status;

use super::frame::{HEAD_BYTES, end_frame, flag, kind, write_head};
use super::hot::HotReply;
use super::hpack::{write_field, write_string};
use crate::status::trailers_of;

/// The length of the prefix of a gRPC message.
pub(super) const PREFIX_BYTES: usize = 5;
/// Smaller messages are not charged: the number of calls is bounded.
pub(super) const SMALL_BYTES: usize = 512;
/// The change of the table to no bytes.
pub(super) const EMPTY_TABLE: u8 = 0x20;

/// A longer text of a status is cut. One byte may become three, and all must fit into the smallest frame.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// `:status: 200`, an entry of the static table, and `content-type: application/grpc`, whose name is one.
const START: &[u8] = b"\x88\x0f\x10\x10application/grpc";
const APPLIED: &[u8] = b"\x10\x0fbowline-applied";
const READ: &[u8] = b"\x00\x0cbowline-read";
/// The frame's length, kind and flags, without the id; then its block.
const TRAILERS_HEAD: [u8; 5] = [
    0,
    0,
    TRAILERS.len() as u8,
    kind::HEADERS,
    flag::END_HEADERS | flag::END_STREAM,
];
const TRAILERS: &[u8; 15] = b"\x00\x0bgrpc-status\x010";

/// Writes the heads of a connection's replies.
#[derive(Debug, Default)]
pub(super) struct ReplyWriter {
    /// Whether the client knows that the table is empty.
    has_emptied_table: bool,
}

impl ReplyWriter {
    /// Whether the next block must begin with [`EMPTY_TABLE`].
    pub(super) fn must_empty_table(&mut self) -> bool {
        !std::mem::replace(&mut self.has_emptied_table, true)
    }

    /// The block that said it was not sent.
    pub(super) fn empty_table_again(&mut self) {
        self.has_emptied_table = false;
    }

    fn begin(&mut self, out: &mut Vec<u8>, flags: u8, id: u32) -> usize {
        let start = out.len();
        write_head(out, 0, kind::HEADERS, flags | flag::END_HEADERS, id);
        if self.must_empty_table() {
            out.push(EMPTY_TABLE);
        }
        start
    }

    /// Appends the head of a reply.
    pub(super) fn write_reply_head(&mut self, out: &mut Vec<u8>, id: u32, reply: &HotReply) {
        let start = self.begin(out, 0, id);
        out.extend_from_slice(START);
        out.extend_from_slice(APPLIED);
        write_decimal(out, reply.applied);
        if let Some(level) = reply.level {
            out.extend_from_slice(READ);
            write_string(out, level.name().as_bytes());
        }
        end_frame(out, start);
    }

    /// Appends the head of a reply that is a stream.
    pub(super) fn write_stream_head(&mut self, out: &mut Vec<u8>, id: u32) {
        let start = self.begin(out, 0, id);
        out.extend_from_slice(START);
        end_frame(out, start);
    }

    /// Appends a refusal, which is a head without a message.
    pub(super) fn write_refusal(&mut self, out: &mut Vec<u8>, id: u32, status: &Status) {
        let start = self.begin(out, flag::END_STREAM, id);
        out.extend_from_slice(START);
        write_status(out, status);
        end_frame(out, start);
    }

    /// Appends the refusal of a head that is too large.
    pub(super) fn write_too_large(&mut self, out: &mut Vec<u8>, id: u32) {
        let start = self.begin(out, flag::END_STREAM, id);
        out.extend_from_slice(b"\x08\x03431");
        end_frame(out, start);
    }
}

/// Appends the end of a reply that has succeeded.
pub(super) fn write_trailers(out: &mut Vec<u8>, id: u32) {
    out.extend_from_slice(&TRAILERS_HEAD);
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(TRAILERS);
}

/// Appends the end of a reply that failed after its head.
pub(super) fn write_status_trailers(out: &mut Vec<u8>, id: u32, status: &Status) {
    let start = out.len();
    write_head(
        out,
        0,
        kind::HEADERS,
        flag::END_HEADERS | flag::END_STREAM,
        id,
    );
    write_status(out, status);
    end_frame(out, start);
}

/// Appends these trailers.
pub(super) fn write_given_trailers(out: &mut Vec<u8>, id: u32, trailers: &HeaderMap) {
    let start = out.len();
    write_head(
        out,
        0,
        kind::HEADERS,
        flag::END_HEADERS | flag::END_STREAM,
        id,
    );
    write_fields(out, trailers);
    end_frame(out, start);
}

fn write_fields(out: &mut Vec<u8>, fields: &HeaderMap) {
    for (name, value) in fields {
        write_field(out, name.as_str().as_bytes(), value.as_bytes());
    }
}

fn write_status(out: &mut Vec<u8>, status: &Status) {
    let text = status.message();
    if text.len() > TEXT_BYTES_MAX {
        let short = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        let metadata = status.metadata().clone();
        return write_status(out, &Status::with_metadata(status.code(), short, metadata));
    }
    match trailers_of(status) {
        Some(fields) => write_fields(out, &fields),
        // Its text or metadata cannot be said in a header.
        None => {
            let code = (status.code() as i32).to_string();
            write_field(out, b"grpc-status", code.as_bytes());
        }
    }
}

/// Appends a number as a string.
fn write_decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    write_string(out, &digits[at..]);
}

/// Appends the prefix of a message and, before it, the head of the frame that it begins.
pub(super) fn write_data_head(out: &mut Vec<u8>, id: u32, message_bytes: usize) {
    write_head(out, message_bytes + PREFIX_BYTES, kind::DATA, 0, id);
    write_prefix(out, message_bytes);
}

/// Appends the prefix of a message.
pub(super) fn write_prefix(out: &mut Vec<u8>, message_bytes: usize) {
    out.push(0);
    out.extend_from_slice(&(message_bytes as u32).to_be_bytes());
}

/// The length in the prefix of a message; `None` if it is compressed or worse.
pub(super) fn length_of(prefix: &[u8; PREFIX_BYTES]) -> Option<usize> {
    let [0, length @ ..] = prefix else {
        return None;
    };
    Some(u32::from_be_bytes(*length) as usize)
}

/// The length of a reply's frames around its message, at most.
pub(super) const AROUND_BYTES: usize = 3 * HEAD_BYTES + PREFIX_BYTES + 120;

#[cfg(test)]
mod tests {
    use super::super::frame::{FRAME_BYTES_MIN, FrameHead};
    use super::super::hpack::Decoder;
    use super::*;
    use crate::status::Fault;

    fn fields(frame: &[u8]) -> Vec<(String, String)> {
        let head = FrameHead::read(frame).unwrap();
        assert_eq!(head.bytes, frame.len() - HEAD_BYTES);
        let mut fields = Vec::new();
        let mut decoder = Decoder::new(|_, _| ());
        let block = &frame[HEAD_BYTES..];
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let visit = |(), name: &[u8], value: &[u8]| {
            fields.push((text(name), text(value)));
            true
        };
        decoder.decode(block, visit).unwrap();
        fields
    }

    #[test]
    fn refusals_and_ends_say_what_tonic_says() {
        let mut writer = ReplyWriter::default();
        for fault in [Fault::Compacted, Fault::Malformed("ä \"%\n".to_owned())] {
            let status = Status::from(fault);
            let mut out = Vec::new();
            writer.write_refusal(&mut out, 7, &status);
            let expected = status.into_http::<()>();
            let read = fields(&out);
            assert_eq!(read[0], (":status".to_owned(), "200".to_owned()));
            assert_eq!(read.len(), expected.headers().len() + 1);
            for (name, value) in &read[1..] {
                assert_eq!(expected.headers()[name], value);
            }
        }
        let mut out = Vec::new();
        write_trailers(&mut out, 9);
        assert_eq!(fields(&out), [("grpc-status".to_owned(), "0".to_owned())]);
        let mut other = Vec::new();
        write_status_trailers(&mut other, 9, &Status::ok(""));
        assert_eq!(fields(&other), fields(&out));
        assert_eq!(FrameHead::read(&other), FrameHead::read(&out));
        out.clear();
        writer.write_too_large(&mut out, 9);
        assert_eq!(fields(&out), [(":status".to_owned(), "431".to_owned())]);
    }

    #[test]
    fn a_long_text_of_a_status_is_cut_to_fit_into_a_frame() {
        for text in ["\"ä".repeat(20_000), "x".repeat(TEXT_BYTES_MAX + 1)] {
            let status = Status::internal(text);
            for is_refusal in [true, false] {
                let mut out = Vec::new();
                match is_refusal {
                    true => ReplyWriter::default().write_refusal(&mut out, 7, &status),
                    false => write_status_trailers(&mut out, 7, &status),
                }
                let fields = fields(&out);
                assert!(out.len() <= HEAD_BYTES + FRAME_BYTES_MIN);
                assert!(fields.contains(&("grpc-status".to_owned(), "13".to_owned())));
                let said = fields.iter().find(|(name, _)| name == "grpc-message");
                assert!(said.is_some_and(|(_, text)| text.len() >= TEXT_BYTES_MAX - 2));
            }
        }
    }

    #[test]
    fn numbers_are_written_as_text() {
        for number in [0, 7, 10, 1_234_567, u64::MAX] {
            let mut out = Vec::new();
            write_decimal(&mut out, number);
            assert_eq!(&out[1..], number.to_string().as_bytes());
        }
    }
}
