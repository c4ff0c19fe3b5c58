//! HTTP/2 written byte for byte: for clients that stop within a request, do not read, or reset their calls.
//!
//! A connection costs this process nearly nothing, so that there can be thousands.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use prost::Message;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// How long an answer may take on a machine that does much else.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("small").to_be_bytes();
    let mut out = length[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// The head of a call of gRPC, without the table of headers.
pub(crate) fn head(path: &str) -> Vec<u8> {
    // POST, http.
    let mut out = vec![0x83, 0x86];
    let mut put = |name: &[u8], value: &str| {
        out.extend(name);
        out.push(u8::try_from(value.len()).expect("short"));
        out.extend(value.as_bytes());
    };
    put(&[0x04], path);
    put(&[0x01], "localhost");
    put(&[0x0f, 0x10], "application/grpc");
    put(b"\x00\x02te", "trailers");
    out
}

/// A message as gRPC sends it.
fn message(message: &impl Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    let mut out = vec![0];
    out.extend(u32::try_from(bytes.len()).expect("small").to_be_bytes());
    out.extend(bytes);
    out
}

/// A connection.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    next_call: u32,
    /// Of the call that is read, what has come and is no whole message.
    rest: Vec<u8>,
    has_ended: bool,
    is_settled: bool,
    /// How much may be sent on the connection.
    window: i64,
    /// Calls that the server has ended, by a reply or a reset.
    pub(crate) ended: usize,
    /// Answers that the server has begun.
    pub(crate) begun: usize,
}

impl Raw {
    /// Connected, and silent.
    pub(crate) fn connect(at: &str) -> Raw {
        Raw::of(TcpStream::connect(at).expect("it listens"))
    }

    fn of(stream: TcpStream) -> Raw {
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        Raw {
            stream,
            next_call: 1,
            rest: Vec::new(),
            has_ended: false,
            is_settled: false,
            window: (1 << 16) - 1,
            ended: 0,
            begun: 0,
        }
    }

    /// With the preface and no settings of its own.
    pub(crate) fn open(at: &str) -> Raw {
        let mut raw = Raw::connect(at);
        let hello = [PREFACE.to_vec(), frame(SETTINGS, 0, 0, &[])].concat();
        raw.stream.write_all(&hello).expect("it is open");
        raw
    }

    /// The same on a connection that is there, if the server has not hung up.
    pub(crate) fn open_on(stream: TcpStream) -> io::Result<Raw> {
        let mut raw = Raw::of(stream);
        let hello = [PREFACE.to_vec(), frame(SETTINGS, 0, 0, &[])].concat();
        raw.stream.write_all(&hello)?;
        Ok(raw)
    }

    /// With windows as large as they may be: whatever it does not read is there for the server to send.
    pub(crate) fn open_wide(at: &str) -> Raw {
        const INITIAL_WINDOW_SIZE: u16 = 4;
        const WINDOW_MAX: u32 = (1 << 31) - 1;
        const WINDOW_DEFAULT: u32 = (1 << 16) - 1;
        let mut raw = Raw::connect(at);
        let window = WINDOW_MAX.to_be_bytes();
        let setting = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &window].concat();
        let more = (WINDOW_MAX - WINDOW_DEFAULT).to_be_bytes();
        let hello = [
            PREFACE.to_vec(),
            frame(SETTINGS, 0, 0, &setting),
            frame(WINDOW_UPDATE, 0, 0, &more),
        ];
        raw.stream.write_all(&hello.concat()).expect("it is open");
        raw
    }

    /// With no window at all: nothing of a reply may be sent but its head.
    pub(crate) fn open_shut(at: &str) -> Raw {
        const INITIAL_WINDOW_SIZE: u16 = 4;
        let mut raw = Raw::connect(at);
        let setting = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &[0; 4]].concat();
        let hello = [PREFACE.to_vec(), frame(SETTINGS, 0, 0, &setting)].concat();
        raw.stream.write_all(&hello).expect("it is open");
        raw
    }

    /// Gives a connection without a window one of the largest.
    pub(crate) fn open_up(&mut self) {
        const INITIAL_WINDOW_SIZE: u16 = 4;
        let window = ((1_u32 << 31) - 1 - (1 << 16)).to_be_bytes();
        let setting = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &window].concat();
        let more = [
            frame(WINDOW_UPDATE, 0, 0, &window),
            frame(SETTINGS, 0, 0, &setting),
        ];
        self.stream.write_all(&more.concat()).expect("it is open");
    }

    /// Sends a part of a body, as fast as the server has room for it on the connection.
    pub(crate) fn send_part(&mut self, call: u32, bytes: &[u8]) -> io::Result<()> {
        const FRAME_BYTES: usize = 16 << 10;
        for part in bytes.chunks(FRAME_BYTES) {
            while self.window < part.len() as i64 {
                self.read_frame(call)?;
            }
            self.window -= part.len() as i64;
            self.stream.write_all(&frame(DATA, 0, call, part))?;
        }
        Ok(())
    }

    /// Begins a call; its number.
    pub(crate) fn begin(&mut self, path: &str) -> u32 {
        self.begin_on(path).expect("it is open")
    }

    /// The same, if the server has not hung up.
    pub(crate) fn begin_on(&mut self, path: &str) -> io::Result<u32> {
        let call = self.next_call;
        self.next_call += 2;
        (self.rest, self.has_ended) = (Vec::new(), false);
        let head = frame(HEADERS, END_HEADERS, call, &head(path));
        self.stream.write_all(&head)?;
        Ok(call)
    }

    /// Reads until the server has begun an answer.
    pub(crate) fn read_until_head(&mut self) -> io::Result<()> {
        while self.begun == 0 {
            self.read_frame(0)?;
        }
        Ok(())
    }

    pub(crate) fn send(&mut self, call: u32, what: &impl Message, is_last: bool) {
        let flags = if is_last { END_STREAM } else { 0 };
        let data = frame(DATA, flags, call, &message(what));
        self.stream.write_all(&data).expect("it is open");
    }

    /// The next message of a call; `None` at its end.
    pub(crate) fn receive<M: Message + Default>(&mut self, call: u32) -> Option<M> {
        loop {
            if let Some((head, rest)) = self.rest.split_first_chunk::<5>() {
                let [_, length @ ..] = *head;
                let length = u32::from_be_bytes(length) as usize;
                if rest.len() >= length {
                    let told = M::decode(&rest[..length]).expect("a message");
                    self.rest.drain(..5 + length);
                    return Some(told);
                }
            }
            if self.has_ended {
                return None;
            }
            self.read_frame(call).expect("the connection goes on");
        }
    }

    /// Reads a frame, and follows what it says of a call.
    pub(crate) fn read_frame(&mut self, call: u32) -> io::Result<()> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload)?;
        let is_own = u32::from_be_bytes(stream) == call;
        let is_last = kind == RESET || kind == HEADERS && flags & END_STREAM != 0;
        self.ended += usize::from(is_last);
        self.begun += usize::from(kind == HEADERS && flags & END_STREAM == 0);
        match kind {
            WINDOW_UPDATE if stream == [0; 4] => {
                let more = payload.try_into().map_or(0, u32::from_be_bytes);
                self.window += i64::from(more);
            }
            SETTINGS if flags & ACK == 0 => self.stream.write_all(&frame(SETTINGS, ACK, 0, &[]))?,
            PING if flags & ACK == 0 => self.stream.write_all(&frame(PING, ACK, 0, &payload))?,
            PING => self.is_settled = true,
            GO_AWAY => {
                let text = "the server says goodbye";
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, text));
            }
            RESET if is_own => {
                let text = "the call was reset";
                return Err(io::Error::new(io::ErrorKind::ConnectionReset, text));
            }
            HEADERS if is_own => self.has_ended |= flags & END_STREAM != 0,
            DATA if is_own => {
                self.rest.extend(&payload);
                self.has_ended |= flags & END_STREAM != 0;
                // There is room for as much again.
                if let Ok(more @ 1..) = u32::try_from(payload.len()) {
                    let more = more.to_be_bytes();
                    let room = [0, call].map(|at| frame(WINDOW_UPDATE, 0, at, &more));
                    self.stream.write_all(&room.concat())?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A call with one message there and one back.
    pub(crate) fn call<M: Message + Default>(&mut self, path: &str, what: &impl Message) -> M {
        self.try_call(path, what).expect("an answer")
    }

    /// The same; `None` when the server refuses.
    pub(crate) fn try_call<M: Message + Default>(
        &mut self,
        path: &str,
        what: &impl Message,
    ) -> Option<M> {
        let call = self.begin(path);
        self.send(call, what, true);
        let told = self.receive(call)?;
        assert!(self.receive::<M>(call).is_none(), "one answer");
        Some(told)
    }

    /// Waits until the server has read everything up to here.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        self.stream.write_all(&frame(PING, 0, 0, &[7; 8]))?;
        self.is_settled = false;
        while !self.is_settled {
            self.read_frame(0)?;
        }
        Ok(())
    }

    /// Whether the server hangs up, in time.
    pub(crate) fn is_hung_up(&mut self) -> bool {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => {
                    return !matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    );
                }
            }
        }
    }
}
