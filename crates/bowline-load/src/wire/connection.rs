//! HTTP/2 with gRPC on it, from the client's side, without input and output.
//!
//! Received bytes go in through [`Connection::receive`]; bytes to be written are in
//! [`Connection::take_output`]. Flow control towards the server is obeyed: what does not fit waits in
//! its stream, oldest first. In the other direction the windows are made so large that they seldom have
//! to be opened again.

use std::collections::{HashMap, VecDeque};
use std::io;

use super::headers::{RequestHeaders, TABLE_BYTES, Target, grpc_status};
use super::way::Way;

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// With a status of gRPC.
    Status(u8),
    /// The server broke it off, with an error of HTTP/2.
    Reset(u32),
    /// Without a status.
    NoStatus,
}

/// The receiver of the replies.
pub(crate) trait Sink {
    /// Bytes have arrived now. The calls for their contents follow.
    fn arrived(&mut self);
    /// A piece of the answer to a request, in order.
    fn data(&mut self, tag: u32, bytes: &[u8]);
    /// The end of the answer.
    fn end(&mut self, tag: u32, end: End);
}

/// One connection.
pub(crate) struct Connection {
    headers: RequestHeaders,
    output: Vec<u8>,
    /// The beginning of a frame whose rest has not come.
    partial: Vec<u8>,
    streams: HashMap<u32, Stream>,
    next_stream: u32,
    /// Streams that have data for which there was no room, oldest first.
    blocked: VecDeque<u32>,
    /// How much the server takes on the connection.
    send_window: i64,
    /// How much it takes on a new stream.
    stream_window: i64,
    frame_max: usize,
    concurrent_max: usize,
    /// How much has come on the connection since its window was opened.
    received: u64,
    /// A block of headers whose rest has not come: its stream and whether it is the last.
    headers_in_parts: Option<(u32, bool, Vec<u8>)>,
    /// Whether the server's settings have come.
    is_greeted: bool,
    is_going_away: bool,
}

struct Stream {
    tag: u32,
    send_window: i64,
    /// What there was no room for.
    unsent: Vec<u8>,
    is_last: bool,
    received: u64,
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER: usize = 9;
/// The largest frame we take: what every side has to.
const FRAME_MAX: usize = 16_384;
const WINDOW_DEFAULT: i64 = 65_535;
/// Our windows, the largest there are.
const WINDOW: u32 = (1 << 31) - 1;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

impl Connection {
    /// A new connection, with its greeting to be written.
    pub(crate) fn new(targets: &[Target], authority: &str, way: &Way) -> Connection {
        let mut output = PREFACE.to_vec();
        let settings: [(u16, u32); 3] = [
            // No dynamic table for answers, nothing pushed, large windows.
            (1, 0),
            (2, 0),
            (4, WINDOW),
        ];
        frame(&mut output, settings.len() * 6, SETTINGS, 0, 0);
        for (name, value) in settings {
            output.extend_from_slice(&name.to_be_bytes());
            output.extend_from_slice(&value.to_be_bytes());
        }
        window_update(&mut output, 0, WINDOW - 65_535);
        Connection {
            headers: RequestHeaders::new(targets, authority, way),
            output,
            partial: Vec::new(),
            streams: HashMap::new(),
            next_stream: 1,
            blocked: VecDeque::new(),
            send_window: WINDOW_DEFAULT,
            stream_window: WINDOW_DEFAULT,
            frame_max: FRAME_MAX,
            concurrent_max: usize::MAX,
            received: 0,
            headers_in_parts: None,
            is_greeted: false,
            is_going_away: false,
        }
    }

    /// Whether the server takes another request now.
    pub(crate) fn has_room(&self) -> bool {
        self.streams.len() < self.concurrent_max && !self.is_worn_out()
    }

    /// Whether the server's limits are known.
    pub(crate) fn is_greeted(&self) -> bool {
        self.is_greeted
    }

    /// Whether no request can be begun any more, now or later.
    pub(crate) fn is_worn_out(&self) -> bool {
        self.is_going_away || self.next_stream >= 1 << 31
    }

    /// How many requests are under way.
    pub(crate) fn open(&self) -> usize {
        self.streams.len()
    }

    /// Begins a request to a target with a message, and ends it there if it is the `last`. `write` appends the
    /// message with its prefix of gRPC to what it is given.
    pub(crate) fn request(
        &mut self,
        tag: u32,
        target: usize,
        message_bytes: usize,
        is_last: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let id = self.next_stream;
        self.next_stream += 2;
        self.output
            .reserve(2 * FRAME_HEADER + self.headers.max_bytes() + message_bytes);
        let at = self.output.len();
        frame(&mut self.output, 0, HEADERS, END_HEADERS, id);
        self.headers.write(&mut self.output, target);
        let length = self.output.len() - at - FRAME_HEADER;
        self.output[at..at + 3].copy_from_slice(&length_of(length));
        let mut stream = Stream {
            tag,
            send_window: self.stream_window,
            unsent: Vec::new(),
            is_last,
            received: 0,
        };
        let bytes = i64::try_from(message_bytes).unwrap_or(i64::MAX);
        let fits = message_bytes <= self.frame_max
            && bytes <= self.send_window
            && bytes <= stream.send_window
            && self.blocked.is_empty();
        if fits {
            let flags = if is_last { END_STREAM } else { 0 };
            frame(&mut self.output, message_bytes, DATA, flags, id);
            let at = self.output.len();
            write(&mut self.output);
            debug_assert_eq!(self.output.len() - at, message_bytes);
            self.send_window -= bytes;
            stream.send_window -= bytes;
        } else {
            write(&mut stream.unsent);
            self.blocked.push_back(id);
        }
        self.streams.insert(id, stream);
        if !fits {
            self.unblock();
        }
    }

    /// Sends what there is room for by now.
    fn unblock(&mut self) {
        let mut at = 0;
        while at < self.blocked.len() && self.send_window > 0 {
            let id = self.blocked[at];
            let Some(stream) = self.streams.get_mut(&id) else {
                self.blocked.remove(at);
                continue;
            };
            while !stream.unsent.is_empty() {
                let room = self.send_window.min(stream.send_window);
                let room = usize::try_from(room).unwrap_or(0).min(self.frame_max);
                let count = stream.unsent.len().min(room);
                if count == 0 {
                    break;
                }
                let is_end = count == stream.unsent.len() && stream.is_last;
                let flags = if is_end { END_STREAM } else { 0 };
                frame(&mut self.output, count, DATA, flags, id);
                self.output.extend(stream.unsent.drain(..count));
                let count = i64::try_from(count).unwrap_or(0);
                self.send_window -= count;
                stream.send_window -= count;
            }
            if stream.unsent.is_empty() {
                self.blocked.remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// What is to be written. The caller takes off what it has written.
    pub(crate) fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Takes in what came.
    pub(crate) fn receive(&mut self, mut bytes: &[u8], sink: &mut impl Sink) -> io::Result<()> {
        while !self.partial.is_empty() && !bytes.is_empty() {
            let wanted = match self.partial.get(..FRAME_HEADER) {
                None => FRAME_HEADER - self.partial.len(),
                Some(header) => frame_length(header)? + FRAME_HEADER - self.partial.len(),
            };
            let count = wanted.min(bytes.len());
            self.partial.extend_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            if self.partial.len() >= FRAME_HEADER
                && self.partial.len() == FRAME_HEADER + frame_length(&self.partial)?
            {
                let whole = std::mem::take(&mut self.partial);
                self.frame(&whole, sink)?;
                self.partial = whole;
                self.partial.clear();
            }
        }
        while bytes.len() >= FRAME_HEADER {
            let length = FRAME_HEADER + frame_length(bytes)?;
            let Some((whole, rest)) = bytes.split_at_checked(length) else {
                break;
            };
            self.frame(whole, sink)?;
            bytes = rest;
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    fn frame(&mut self, whole: &[u8], sink: &mut impl Sink) -> io::Result<()> {
        let (header, payload) = whole.split_at(FRAME_HEADER);
        let (kind, flags) = (header[3], header[4]);
        let id = number(&header[5..]) & (u32::MAX >> 1);
        match kind {
            DATA => self.data(id, flags, payload, sink)?,
            HEADERS => {
                let mut block = unpadded(flags, payload)?;
                if flags & PRIORITY != 0 {
                    block = block.get(5..).ok_or_else(malformed)?;
                }
                let is_last = flags & END_STREAM != 0;
                if flags & END_HEADERS == 0 {
                    self.headers_in_parts = Some((id, is_last, block.to_vec()));
                } else if is_last {
                    self.end(id, end_of(block), sink);
                }
            }
            CONTINUATION => {
                let (id, is_last, block) = self.headers_in_parts.as_mut().ok_or_else(malformed)?;
                if block.len() > 1 << 20 {
                    return Err(malformed());
                }
                block.extend_from_slice(payload);
                if flags & END_HEADERS != 0 {
                    let (id, is_last, end) = (*id, *is_last, end_of(block));
                    self.headers_in_parts = None;
                    if is_last {
                        self.end(id, end, sink);
                    }
                }
            }
            RST_STREAM => {
                let code = payload.get(..4).map(number).ok_or_else(malformed)?;
                self.end(id, End::Reset(code), sink);
            }
            SETTINGS if flags & ACK == 0 => self.settings(payload),
            PING if flags & ACK == 0 => {
                frame(&mut self.output, payload.len(), PING, ACK, 0);
                self.output.extend_from_slice(payload);
            }
            GOAWAY => {
                let last = payload.get(..4).map(number).ok_or_else(malformed)?;
                let code = payload.get(4..8).map(number).ok_or_else(malformed)?;
                self.is_going_away = true;
                let refused: Vec<u32> = self
                    .streams
                    .keys()
                    .copied()
                    .filter(|id| *id > last)
                    .collect();
                for id in refused {
                    self.end(id, End::Reset(code), sink);
                }
            }
            WINDOW_UPDATE => {
                let more = i64::from(payload.get(..4).map(number).ok_or_else(malformed)?);
                if id == 0 {
                    self.send_window += more;
                } else if let Some(stream) = self.streams.get_mut(&id) {
                    stream.send_window += more;
                }
                self.unblock();
            }
            _ => {}
        }
        Ok(())
    }

    fn data(&mut self, id: u32, flags: u8, payload: &[u8], sink: &mut impl Sink) -> io::Result<()> {
        let bytes = u64::try_from(payload.len()).unwrap_or(0);
        self.received += bytes;
        if self.received > u64::from(WINDOW / 2) {
            window_update(&mut self.output, 0, low(self.received));
            self.received = 0;
        }
        let content = unpadded(flags, payload)?;
        if let Some(stream) = self.streams.get_mut(&id) {
            sink.data(stream.tag, content);
            stream.received += bytes;
            if stream.received > u64::from(WINDOW / 2) {
                window_update(&mut self.output, id, low(stream.received));
                stream.received = 0;
            }
        }
        if flags & END_STREAM != 0 {
            self.end(id, End::NoStatus, sink);
        }
        Ok(())
    }

    fn end(&mut self, id: u32, end: End, sink: &mut impl Sink) {
        if let Some(stream) = self.streams.remove(&id) {
            sink.end(stream.tag, end);
        }
    }

    fn settings(&mut self, payload: &[u8]) {
        self.is_greeted = true;
        for setting in payload.chunks_exact(6) {
            let value = number(&setting[2..]);
            match u16::from_be_bytes([setting[0], setting[1]]) {
                1 if value < TABLE_BYTES => self.headers.resize_table(value),
                3 => self.concurrent_max = usize::try_from(value).unwrap_or(usize::MAX),
                4 => {
                    let change = i64::from(value) - self.stream_window;
                    self.stream_window = i64::from(value);
                    for stream in self.streams.values_mut() {
                        stream.send_window += change;
                    }
                }
                5 => self.frame_max = usize::try_from(value).unwrap_or(FRAME_MAX),
                _ => {}
            }
        }
        frame(&mut self.output, 0, SETTINGS, ACK, 0);
        self.unblock();
    }
}

fn end_of(block: &[u8]) -> End {
    grpc_status(block).map_or(End::NoStatus, End::Status)
}

fn malformed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the server sent a malformed frame",
    )
}

/// The length of the payload behind a header.
fn frame_length(header: &[u8]) -> io::Result<usize> {
    let length =
        usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
    if length > FRAME_MAX {
        return Err(malformed());
    }
    Ok(length)
}

fn unpadded(flags: u8, payload: &[u8]) -> io::Result<&[u8]> {
    if flags & PADDED == 0 {
        return Ok(payload);
    }
    let (padding, rest) = payload.split_first().ok_or_else(malformed)?;
    let end = rest
        .len()
        .checked_sub(usize::from(*padding))
        .ok_or_else(malformed)?;
    Ok(&rest[..end])
}

fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .take(4)
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn low(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(WINDOW)
}

fn length_of(length: usize) -> [u8; 3] {
    let [.., a, b, c] = length.to_be_bytes();
    [a, b, c]
}

fn frame(output: &mut Vec<u8>, length: usize, kind: u8, flags: u8, id: u32) {
    output.extend_from_slice(&length_of(length));
    output.extend_from_slice(&[kind, flags]);
    output.extend_from_slice(&id.to_be_bytes());
}

fn window_update(output: &mut Vec<u8>, id: u32, more: u32) {
    frame(output, 4, WINDOW_UPDATE, 0, id);
    output.extend_from_slice(&more.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen {
        data: Vec<(u32, Vec<u8>)>,
        ends: Vec<(u32, End)>,
    }

    impl Sink for Seen {
        fn arrived(&mut self) {}

        fn data(&mut self, tag: u32, bytes: &[u8]) {
            self.data.push((tag, bytes.to_vec()));
        }

        fn end(&mut self, tag: u32, end: End) {
            self.ends.push((tag, end));
        }
    }

    fn connection() -> Connection {
        let target = Target {
            path: "/a.B/C",
            metadata: None,
        };
        let mut connection = Connection::new(&[target], "here", &Way::default());
        connection.output().clear();
        connection
    }

    fn request(connection: &mut Connection, tag: u32, bytes: usize) {
        connection.request(tag, 0, bytes, true, |out| out.extend(vec![7; bytes]));
    }

    /// The kinds, flags and payload lengths of what is to be written.
    fn written(connection: &mut Connection) -> Vec<(u8, u8, usize)> {
        let output = std::mem::take(connection.output());
        let mut rest = &output[..];
        let mut frames = Vec::new();
        while !rest.is_empty() {
            let length = frame_length(rest).unwrap();
            frames.push((rest[3], rest[4], length));
            rest = &rest[FRAME_HEADER + length..];
        }
        frames
    }

    fn answer(id: u32, status: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame(&mut bytes, 1, HEADERS, END_HEADERS, id);
        bytes.push(0x88);
        frame(&mut bytes, 3, DATA, 0, id);
        bytes.extend_from_slice(b"abc");
        frame(
            &mut bytes,
            14 + status.len(),
            HEADERS,
            END_HEADERS | END_STREAM,
            id,
        );
        bytes.extend_from_slice(b"\x00\x0bgrpc-status");
        bytes.push(u8::try_from(status.len()).unwrap());
        bytes.extend_from_slice(status);
        bytes
    }

    #[test]
    fn answers_are_told_however_they_are_cut() {
        let mut bytes = Vec::new();
        frame(&mut bytes, 0, SETTINGS, 0, 0);
        bytes.extend(answer(1, b"0"));
        bytes.extend(answer(3, b"14"));
        for size in 1..bytes.len() {
            let mut connection = connection();
            request(&mut connection, 10, 4);
            request(&mut connection, 11, 4);
            let mut seen = Seen::default();
            for piece in bytes.chunks(size) {
                connection.receive(piece, &mut seen).unwrap();
            }
            assert_eq!(seen.ends, [(10, End::Status(0)), (11, End::Status(14))]);
            assert_eq!(seen.data, [(10, b"abc".to_vec()), (11, b"abc".to_vec())]);
            assert_eq!(connection.open(), 0);
        }
    }

    #[test]
    fn what_the_server_has_no_room_for_waits() {
        let mut connection = connection();
        request(&mut connection, 1, 100_000);
        let sent: usize = written(&mut connection)
            .iter()
            .filter(|(kind, ..)| *kind == DATA)
            .map(|(.., length)| length)
            .sum();
        assert_eq!(sent, 65_535);
        request(&mut connection, 2, 10);
        assert_eq!(written(&mut connection).len(), 1, "only the headers");

        let mut update = Vec::new();
        window_update(&mut update, 0, 1 << 20);
        connection.receive(&update, &mut Seen::default()).unwrap();
        // The first still waits for its own window, the second does not wait for the first.
        assert_eq!(written(&mut connection), [(DATA, END_STREAM, 10)]);
        update.clear();
        window_update(&mut update, 1, 1 << 20);
        connection.receive(&update, &mut Seen::default()).unwrap();
        let frames = written(&mut connection);
        assert_eq!(
            frames.iter().map(|(.., length)| length).sum::<usize>(),
            34_465
        );
        assert_eq!(frames.last().unwrap().1, END_STREAM);
    }

    #[test]
    fn pings_and_settings_are_answered_and_limits_kept() {
        let mut connection = connection();
        let mut bytes = Vec::new();
        frame(&mut bytes, 8, PING, 0, 0);
        bytes.extend_from_slice(b"12345678");
        frame(&mut bytes, 6, SETTINGS, 0, 0);
        bytes.extend_from_slice(&[0, 3, 0, 0, 0, 1]);
        connection.receive(&bytes, &mut Seen::default()).unwrap();
        assert_eq!(
            written(&mut connection),
            [(PING, ACK, 8), (SETTINGS, ACK, 0)]
        );
        assert!(connection.has_room());
        request(&mut connection, 1, 1);
        assert!(!connection.has_room());
    }

    #[test]
    fn a_server_that_goes_away_ends_what_it_will_not_answer() {
        let mut connection = connection();
        request(&mut connection, 1, 1);
        request(&mut connection, 2, 1);
        let mut bytes = Vec::new();
        frame(&mut bytes, 8, GOAWAY, 0, 0);
        bytes.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 11]);
        let mut seen = Seen::default();
        connection.receive(&bytes, &mut seen).unwrap();
        assert_eq!(seen.ends, [(2, End::Reset(11))]);
        assert!(connection.is_worn_out() && connection.open() == 1);
    }

    #[test]
    fn malformed_frames_are_errors() {
        for bytes in [
            &[0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1][..],
            &[0, 0, 1, DATA, PADDED, 0, 0, 0, 1, 9],
            &[0, 0, 1, RST_STREAM, 0, 0, 0, 0, 1, 9],
            &[0, 0, 1, CONTINUATION, 0, 0, 0, 0, 1, 9],
        ] {
            let mut connection = connection();
            assert!(
                connection.receive(bytes, &mut Seen::default()).is_err(),
                "{bytes:?}"
            );
        }
    }
}
