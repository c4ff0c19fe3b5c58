//! A client that sends what a test wants, frame by frame, over a socket.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::frame::{
    FrameHead, PREFACE, Partial, flag, kind, number, write_head, write_settings,
    write_settings_ack, write_window_update,
};
use super::super::hpack::{Decoder, write_field};
use crate::test_server::TestServer;

/// What every wait ends after.
const PATIENCE: Duration = Duration::from_secs(20);

/// What has come of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Reply {
    /// Of the head and the trailers.
    pub(super) fields: BTreeMap<String, String>,
    pub(super) data: Vec<u8>,
    pub(super) has_ended: bool,
    pub(super) reset: Option<u32>,
}

impl Reply {
    pub(super) fn status(&self) -> &str {
        self.fields.get("grpc-status").map_or("", |status| status)
    }

    /// The message of a reply that has succeeded.
    pub(super) fn message<M: Message + Default>(&self) -> M {
        assert_eq!(
            (self.status(), self.data.first()),
            ("0", Some(&0)),
            "{self:?}"
        );
        assert_eq!(number(&self.data[1..]), Some(self.data.len() as u32 - 5));
        M::decode(&self.data[5..]).unwrap()
    }

    pub(super) fn is_over(&self) -> bool {
        self.has_ended || self.reset.is_some()
    }
}

/// A connection.
pub(super) struct Client {
    socket: TcpStream,
    partial: Partial,
    decoder: Decoder<()>,
    pub(super) replies: BTreeMap<u32, Reply>,
    pub(super) goaways: Vec<u32>,
    pub(super) pongs: Vec<Vec<u8>>,
    pub(super) acknowledged: usize,
    /// The windows that the server has given back.
    pub(super) updates: BTreeMap<u32, u32>,
    pub(super) is_closed: bool,
    /// Whether windows are given back.
    pub(super) renews: bool,
    /// The head of the last frame.
    pub(super) frames: Vec<FrameHead>,
}

/// The usual fields of a call.
pub(super) fn fields(path: &str) -> Vec<(&str, &str)> {
    vec![
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "127.0.0.1"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]
}

pub(super) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        write_field(&mut block, name.as_bytes(), value.as_bytes());
    }
    block
}

pub(super) fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_head(&mut out, payload.len(), kind, flags, id);
    out.extend_from_slice(payload);
    out
}

pub(super) fn headers(id: u32, path: &str) -> Vec<u8> {
    frame(kind::HEADERS, flag::END_HEADERS, id, &block(&fields(path)))
}

/// A message with its prefix.
pub(super) fn framed(message: &impl Message) -> Vec<u8> {
    let mut framed = vec![0];
    framed.extend((message.encoded_len() as u32).to_be_bytes());
    message.encode(&mut framed).unwrap();
    framed
}

pub(super) fn data(id: u32, bytes: &[u8], has_ended: bool) -> Vec<u8> {
    let parts: Vec<&[u8]> = match bytes {
        [] => vec![&[]],
        bytes => bytes.chunks(16 << 10).collect(),
    };
    let mut out = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let is_last = at + 1 == parts.len() && has_ended;
        out.extend(frame(kind::DATA, u8::from(is_last), id, part));
    }
    out
}

/// A whole request.
pub(super) fn request(id: u32, path: &str, message: &impl Message) -> Vec<u8> {
    let mut out = headers(id, path);
    out.extend(data(id, &framed(message), true));
    out
}

pub(super) fn greeting(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    write_settings(&mut out, settings);
    out
}

impl Client {
    pub(super) async fn silent(server: &TestServer) -> Client {
        let socket = TcpStream::connect(server.address()).await.unwrap();
        socket.set_nodelay(true).unwrap();
        Client {
            socket,
            partial: Partial::default(),
            decoder: Decoder::new(|_, _| ()),
            replies: BTreeMap::new(),
            goaways: Vec::new(),
            pongs: Vec::new(),
            acknowledged: 0,
            updates: BTreeMap::new(),
            is_closed: false,
            renews: true,
            frames: Vec::new(),
        }
    }

    pub(super) async fn connect(server: &TestServer, settings: &[(u16, u32)]) -> Client {
        let mut client = Client::silent(server).await;
        client.send(&greeting(settings)).await;
        client
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).await.unwrap();
    }

    /// Sends to a server that may have ended the connection.
    pub(super) async fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.socket.write_all(bytes).await
    }

    /// Reads until `is_done`, or the end.
    pub(super) async fn until(&mut self, is_done: impl Fn(&Client) -> bool) {
        let reading = async {
            while !is_done(self) && !self.is_closed {
                self.read().await;
            }
        };
        tokio::time::timeout(PATIENCE, reading)
            .await
            .expect("it comes");
    }

    /// The reply of a stream.
    pub(super) async fn reply(&mut self, id: u32) -> Reply {
        self.until(|client| client.replies.get(&id).is_some_and(Reply::is_over))
            .await;
        self.replies.get(&id).cloned().unwrap_or_default()
    }

    /// The reason for which the server ends the connection.
    pub(super) async fn goaway(&mut self) -> Option<u32> {
        self.until(|client| client.is_closed).await;
        self.goaways.last().copied()
    }

    /// Reads for a while.
    pub(super) async fn read_for(&mut self, time: Duration) {
        let reading = async {
            while !self.is_closed {
                self.read().await;
            }
        };
        let _ = tokio::time::timeout(time, reading).await;
    }

    async fn read(&mut self) {
        let mut buffer = vec![0; 64 << 10];
        let count = self.socket.read(&mut buffer).await.unwrap_or(0);
        self.is_closed = count == 0;
        let mut input = &buffer[..count];
        let mut partial = std::mem::take(&mut self.partial);
        let mut answer = Vec::new();
        while let Some(()) = partial
            .next(&mut input, 1 << 24, |head, payload| {
                self.frame(head, payload, &mut answer);
            })
            .unwrap()
        {}
        self.partial = partial;
        if !answer.is_empty() {
            let _ = self.try_send(&answer).await;
        }
    }

    fn frame(&mut self, head: FrameHead, payload: &[u8], answer: &mut Vec<u8>) {
        self.frames.push(head);
        let reply = self.replies.entry(head.id).or_default();
        match head.kind {
            kind::DATA => {
                assert!(!reply.is_over(), "data behind the end");
                reply.data.extend_from_slice(payload);
                if self.renews && !payload.is_empty() {
                    write_window_update(answer, 0, payload.len() as u32);
                    write_window_update(answer, head.id, payload.len() as u32);
                }
            }
            kind::HEADERS => {
                assert!(head.has(flag::END_HEADERS) && !reply.is_over());
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                let visit = |(), name: &[u8], value: &[u8]| {
                    reply.fields.insert(text(name), text(value));
                    true
                };
                self.decoder.decode(payload, visit).unwrap();
            }
            kind::RST_STREAM => reply.reset = number(payload),
            kind::SETTINGS if head.has(flag::ACK) => self.acknowledged += 1,
            kind::SETTINGS => write_settings_ack(answer),
            kind::PING if head.has(flag::ACK) => self.pongs.push(payload.to_vec()),
            kind::PING => {
                write_head(answer, payload.len(), kind::PING, flag::ACK, 0);
                answer.extend_from_slice(payload);
            }
            kind::GOAWAY => self.goaways.extend(number(&payload[4..])),
            kind::WINDOW_UPDATE => {
                *self.updates.entry(head.id).or_default() += number(payload).unwrap();
            }
            kind => panic!("a frame of kind {kind}"),
        }
        if matches!(head.kind, kind::DATA | kind::HEADERS) && head.has(flag::END_STREAM) {
            self.replies.entry(head.id).or_default().has_ended = true;
        }
    }
}
