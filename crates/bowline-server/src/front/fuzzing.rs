//! Entry points of fuzzers for what a client sends to the front; see [`crate::fuzzing`].
//!
//! [`connection`] takes the place of a turn: it cuts the client's bytes into reads at any places, does between two reads
//! what a turn does, or only a part of it, and looks at everything that is sent as a client would.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, Waker};
use std::time::Duration;

use bowline_cluster::ReadLevel;
use bowline_proto::{etcdserverpb as pb, mvccpb};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::time::Instant;
use tonic::Status;

use super::calls::StreamWaker;
use super::connection::{Connection, Drain, OUT_BYTES_MAX};
use super::frame::{
    FRAME_BYTES_MIN, FrameHead, PREFACE, Partial, Reason, WINDOW, flag, kind, setting, write_head,
    write_settings, write_window_update,
};
use super::head::HeadReader;
use super::hot::{HotMessage, HotReply, HotRequest};
use super::hpack::{Decoder, FIELD_BYTES, TABLE_BYTES, write_field, write_string};
use super::relay::{Open, Relay, Served};
use super::{CONNECTION_WINDOW, FRAME_BYTES, Limits, RELAY_WINDOW, STREAM_WINDOW};
use crate::context::Context;
use crate::memory::Memory;
use crate::service::{KvService, Terms};
use crate::status::Fault;

/// The fields of a head.
pub(crate) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// What one frame of a client makes the front send, besides the messages of replies: the head of a refusal is the longest.
const OUT_PER_FRAME: usize = 400;
/// What the messages of replies add to it: the last one began below the limit.
const OUT_OF_REPLIES: usize = OUT_BYTES_MAX + FRAME_BYTES_MIN + (1 << 10);
/// What the library may add in one turn: a read of it, behind a frame that was not complete.
const OUT_OF_LIBRARY: usize = OUT_BYTES_MAX + (32 << 10) + (64 << 10);
/// What waits for the library while new heads are taken, with the last of them: its list, and the message that was kept with
/// it.
const RELAYED_BYTES: usize =
    (768 << 10) + 2 * HEADER_BYTES + (512 << 10) + 2 * FRAME_BYTES as usize;
/// The longest read.
const READ_BYTES: usize = 64 << 10;
const HEADER_BYTES: usize = 64 << 10;
/// The most that an input stands for.
const WIRE_BYTES_MAX: usize = 256 << 10;
const TIMEOUT: Duration = Duration::from_secs(60);
const STREAMS_MAX: u32 = 64;

/// Which of the paths a frame of the input stands for; the last two are carried by the relay.
const PATHS: [&str; 6] = [
    "/etcdserverpb.KV/Range",
    "/etcdserverpb.KV/Put",
    "/etcdserverpb.KV/DeleteRange",
    "/etcdserverpb.KV/Txn",
    "/etcdserverpb.Watch/Watch",
    "/etcdserverpb.Maintenance/Status",
];
/// The first of the kinds that stand for the usual head of a path.
const KIND_PATH: u8 = 10;
/// Data with the prefix of a message.
const KIND_MESSAGE: u8 = 16;
/// Data that is repeated.
const KIND_LONG: u8 = 17;
const REPEATED: usize = 200;

/// How an input is handled, from its first byte.
#[derive(Clone, Copy)]
struct Plan(u8);

impl Plan {
    /// The bytes of the input are those of the client. Otherwise they stand for frames, whose lengths are right.
    fn is_raw(self) -> bool {
        self.0 & 1 != 0
    }

    /// The budget has no room for much.
    fn is_poor(self) -> bool {
        self.0 & 2 != 0
    }

    fn library(self) -> Library {
        match self.0 >> 2 & 3 {
            0 | 1 => Library::Answers,
            2 => Library::Silent,
            _ => Library::Ends,
        }
    }

    /// The longest piece that a read has.
    fn piece_max(self) -> usize {
        [READ_BYTES, 40, 1000, 3][usize::from(self.0 >> 4 & 3)]
    }

    /// Only what a turn does between two reads, and all of it.
    fn has_turns(self) -> bool {
        self.0 & 0x40 != 0
    }
}

#[derive(Clone, Copy)]
enum Library {
    Answers,
    Silent,
    Ends,
}

/// A sequence of numbers from a seed (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn one_of(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// A client's connection: a byte for the plan, one for the random cuts, and frames.
pub(crate) fn connection(context: &Arc<Context>, data: &[u8]) {
    let [plan, seed, data @ ..] = data else {
        return;
    };
    let plan = Plan(*plan);
    let wire = match plan.is_raw() {
        true => data.to_vec(),
        false => wire_of(data),
    };
    let memory = Memory::new(64 << 20, if plan.is_poor() { 32 << 10 } else { 8 << 20 });
    let random = Random((u64::from(*seed) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut run = Run::new(context, &memory, plan, random);
    run.all(&wire);
    drop(run);
    assert_eq!(memory.used(), 0, "a charge outlived the connection");
}

/// The frames that an input stands for, behind settings: `kind, flags, id, length` and a payload of that length.
fn wire_of(mut data: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    write_settings(&mut wire, &[]);
    while let [what, flags, id, bytes, rest @ ..] = data
        && wire.len() < WIRE_BYTES_MAX
    {
        let (payload, rest) = rest.split_at(rest.len().min(usize::from(*bytes)));
        data = rest;
        let mut frame = |kind, payload: &[u8]| {
            write_head(&mut wire, payload.len(), kind, *flags, u32::from(*id));
            wire.extend_from_slice(payload);
        };
        match *what {
            KIND_PATH..KIND_MESSAGE => {
                let path = PATHS[usize::from(*what - KIND_PATH)];
                frame(kind::HEADERS, &[&usual_block(path), payload].concat());
            }
            KIND_MESSAGE => {
                let prefix = [0, 0, 0, 0, *bytes];
                frame(kind::DATA, &[&prefix, payload].concat());
            }
            KIND_LONG => frame(kind::DATA, &payload.repeat(REPEATED)),
            what => frame(what, payload),
        }
    }
    wire
}

fn usual_block(path: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "a"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        write_field(&mut block, name.as_bytes(), value.as_bytes());
    }
    block
}

/// A connection that is driven by an input.
struct Run {
    connection: Connection<Answer>,
    plan: Plan,
    random: Random,
    client: Client,
    /// What of the connection's output the client has looked at.
    seen: usize,
    buffer: Vec<u8>,
    woken: Vec<u32>,
}

/// The connection is over.
struct Over;

impl Run {
    fn new(context: &Arc<Context>, memory: &Arc<Memory>, plan: Plan, random: Random) -> Run {
        let limits = Limits {
            streams_max: STREAMS_MAX,
            header_bytes_max: HEADER_BYTES as u32,
            partial_timeout: TIMEOUT,
            unread_timeout: TIMEOUT,
            keep_alive_interval: TIMEOUT,
            keep_alive_timeout: TIMEOUT,
        };
        let library = plan.library();
        let open: Open = Box::new(move |pipe| opened(library, pipe));
        let account = memory.account();
        let mut run = Run {
            connection: Connection::new(context.clone(), account, answer, limits, open),
            plan,
            random,
            client: Client::default(),
            seen: 0,
            buffer: vec![0; 32 << 10],
            woken: Vec::new(),
        };
        run.look();
        run
    }

    fn all(&mut self, mut wire: &[u8]) {
        while !wire.is_empty() {
            if self.is_full() {
                // The client reads, and the library takes what it takes.
                self.read_by_client(usize::MAX);
                if self.turn().is_err() || self.is_full() {
                    return;
                }
            }
            let most = wire.len().min(READ_BYTES);
            let bytes = (1 + self.random.below(self.plan.piece_max())).min(most);
            let (piece, rest) = wire.split_at(bytes);
            wire = rest;
            if self.receive(piece).is_err() || self.between().is_err() {
                return;
            }
        }
        for _ in 0..4 {
            self.read_by_client(usize::MAX);
            if self.turn().is_err() {
                return;
            }
        }
    }

    /// Whether a turn would not read.
    fn is_full(&self) -> bool {
        let relay = self.connection.relay.as_ref();
        self.connection.out.len() >= OUT_BYTES_MAX || relay.is_some_and(Relay::is_full)
    }

    fn queued(&self) -> usize {
        self.connection.relay.as_ref().map_or(0, Relay::queued)
    }

    fn receive(&mut self, piece: &[u8]) -> Result<(), Over> {
        let (out, queued) = (self.connection.out.len(), self.queued());
        self.connection.now = Instant::now();
        let result = self.connection.receive(piece);
        let frames = piece.len() / 9 + 2;
        let out_max = out.max(OUT_OF_REPLIES) + frames * OUT_PER_FRAME;
        assert!(
            self.connection.out.len() <= out_max,
            "{} bytes to the client, and {out} before {} were read",
            self.connection.out.len(),
            piece.len()
        );
        let queued_max = queued.max(RELAYED_BYTES) + 4 * piece.len();
        assert!(
            self.queued() <= queued_max,
            "{} bytes to the library, and {queued} before {} were read",
            self.queued(),
            piece.len()
        );
        self.look();
        match result {
            Ok(()) => Ok(()),
            Err(reason) => self.close(reason as u32),
        }
    }

    /// Ends the connection as a turn does. What was written before, and this, are whole frames.
    fn close(&mut self, reason: u32) -> Result<(), Over> {
        self.connection.write_goaway(reason);
        self.look();
        Err(Over)
    }

    /// Something of what a turn does, or all of it.
    fn between(&mut self) -> Result<(), Over> {
        if self.plan.has_turns() {
            self.read_by_client(usize::MAX);
            return self.turn();
        }
        match self.random.below(12) {
            0 => self.connection.begin_drain(),
            1 => drop(self.connection.drop_late(Instant::now() + TIMEOUT)),
            2 => self.connection.drop_unread(Instant::now() + TIMEOUT),
            3 => drop(self.connection.send()),
            4 => {
                let bytes = self.random.below(2 * OUT_BYTES_MAX);
                self.read_by_client(bytes);
            }
            5..=8 => return self.turn(),
            _ => {}
        }
        self.look();
        Ok(())
    }

    /// A turn without reading.
    fn turn(&mut self) -> Result<(), Over> {
        let task = Task::from_waker(Waker::noop());
        let mut woken = std::mem::take(&mut self.woken);
        let connection = &mut self.connection;
        let mut is_woken = connection.wakes.take(&task, &mut woken);
        for slot in woken.drain(..) {
            if let Some(id) = StreamWaker::stream_of(slot) {
                connection.woken(id);
            } else if let Poll::Ready((id, result)) = connection.calls.poll(slot) {
                connection.answered(id, result);
            }
        }
        self.woken = woken;
        self.look();
        loop {
            let connection = &mut self.connection;
            if std::mem::take(&mut is_woken) || connection.has_relay_due() {
                let out = connection.out.len();
                let polled = connection.poll_relay(&mut self.buffer);
                let ids = connection.streams.len();
                let out_max = out.max(OUT_OF_LIBRARY) + ids * OUT_PER_FRAME + (64 << 10);
                assert!(connection.out.len() <= out_max);
                self.look();
                if let Err(reason) = polled {
                    assert!(
                        reason != Reason::FlowControl as u32 && reason != Reason::FrameSize as u32,
                        "the library is sent what it has no room for: {reason}"
                    );
                    return self.close(reason);
                }
            }
            let connection = &mut self.connection;
            let out = connection.out.len();
            let has_more = connection.send();
            assert!(connection.out.len() <= out.max(OUT_OF_REPLIES + (64 << 10)));
            connection.renew_window();
            self.look();
            let part = self.random_part();
            self.read_by_client(part);
            if self.connection.drain == Drain::Final && self.connection.streams.is_empty() {
                return self.close(0);
            }
            let is_due = has_more || self.connection.has_relay_due();
            if !is_due || self.connection.out.len() >= OUT_BYTES_MAX {
                break;
            }
        }
        Ok(())
    }

    fn random_part(&mut self) -> usize {
        match self.plan.has_turns() || !self.random.one_of(4) {
            true => usize::MAX,
            false => self.random.below(OUT_BYTES_MAX),
        }
    }

    /// The client takes so many bytes.
    fn read_by_client(&mut self, bytes: usize) {
        self.look();
        let bytes = bytes.min(self.connection.out.len());
        self.connection.out.drain(..bytes);
        self.seen -= bytes;
    }

    /// Looks at what is to be sent, and at the state.
    fn look(&mut self) {
        let connection = &mut self.connection;
        self.client.look(&connection.out[self.seen..]);
        self.seen = connection.out.len();
        assert!(connection.send_window >= 0, "more than the client takes");
        assert!(connection.receive_window <= i64::from(CONNECTION_WINDOW));
        assert!(connection.streams.len() <= STREAMS_MAX as usize);
        let known = 2 * STREAMS_MAX as usize + 65;
        assert!(connection.incomplete.len() <= known && connection.sending.len() <= known);
        let held = connection.held.iter();
        let held = held.filter(|held| held.kind == kind::DATA);
        let bytes: usize = held.map(|held| held.payload.len()).sum();
        assert!(
            bytes <= WINDOW as usize,
            "{bytes} bytes of the library wait"
        );
    }
}

/// What a client sees of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Head,
    End,
}

/// A client that checks what it gets.
#[derive(Default)]
struct Client {
    streams: BTreeMap<u32, Seen>,
    decoder: Option<Decoder<()>>,
    /// The stream and the parts of a head of which more must come, and whether it ends its stream.
    open: Option<(u32, Vec<u8>, bool)>,
}

impl Client {
    /// Looks at whole frames: nothing is ever left half-written.
    fn look(&mut self, mut out: &[u8]) {
        let mut partial = Partial::default();
        let all = out;
        let mut bytes = 0;
        let frame_bytes_max = FRAME_BYTES as usize + TABLE_BYTES;
        while let Some(()) = partial
            .next(&mut out, frame_bytes_max, |head, payload| {
                bytes += 9 + payload.len();
                self.frame(head, payload);
            })
            .expect("no frame is longer than a client takes")
        {}
        assert_eq!(bytes, all.len(), "half a frame");
        assert!(self.open.is_none(), "half a head");
    }

    fn frame(&mut self, head: FrameHead, payload: &[u8]) {
        let is_stream = matches!(head.kind, kind::DATA | kind::HEADERS | kind::CONTINUATION);
        assert!(!is_stream || !head.id.is_multiple_of(2), "{head:?}");
        let continued = self.open.as_ref().map(|open| open.0);
        let expected = (head.kind == kind::CONTINUATION).then_some(head.id);
        assert_eq!(continued, expected, "within a head: {head:?}");
        let seen = self.streams.get(&head.id).copied();
        let ends = head.has(flag::END_STREAM);
        match head.kind {
            kind::DATA => {
                assert!(seen == Some(Seen::Head), "data out of place: {head:?}");
                if ends {
                    self.streams.insert(head.id, Seen::End);
                }
            }
            kind::HEADERS => {
                assert!(seen != Some(Seen::End), "a head behind the end: {head:?}");
                assert!(!head.has(flag::PADDED) && !head.has(flag::PRIORITY));
                self.open = Some((head.id, payload.to_vec(), ends));
            }
            kind::CONTINUATION => {
                if let Some((_, block, _)) = &mut self.open {
                    block.extend_from_slice(payload);
                }
            }
            kind::RST_STREAM => {
                assert!(head.id != 0 && payload.len() == 4);
                self.streams.insert(head.id, Seen::End);
            }
            kind::SETTINGS => assert!(head.id == 0 && payload.len().is_multiple_of(6)),
            kind::PING => assert!(head.id == 0 && payload.len() == 8),
            kind::GOAWAY => assert!(head.id == 0 && payload.len() == 8),
            kind::WINDOW_UPDATE => assert!(payload.len() == 4 && payload != [0; 4]),
            _ => panic!("{head:?}"),
        }
        let is_head = matches!(head.kind, kind::HEADERS | kind::CONTINUATION);
        if is_head
            && head.has(flag::END_HEADERS)
            && let Some((id, block, ends)) = self.open.take()
        {
            self.head(id, &block, ends);
        }
    }

    fn head(&mut self, id: u32, block: &[u8], ends: bool) {
        let decoder = self.decoder.get_or_insert_with(|| Decoder::new(|_, _| ()));
        let is_first = !self.streams.contains_key(&id);
        let mut has_status = false;
        let decoded = decoder.decode(block, |(), name, _| {
            has_status |= name == b":status";
            true
        });
        assert!(decoded.is_ok(), "a head that cannot be read: {block:x?}");
        assert_eq!(has_status, is_first, "stream {id}");
        assert!(is_first || ends, "trailers that do not end stream {id}");
        let seen = if ends { Seen::End } else { Seen::Head };
        self.streams.insert(id, seen);
    }
}

/// A call whose answer comes after so many polls.
struct Answer {
    polls: u8,
    result: Option<Result<HotReply, Status>>,
}

impl Future for Answer {
    type Output = Result<HotReply, Status>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        if self.polls > 0 {
            if self.polls < 4 {
                self.polls -= 1;
                task.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        self.result.take().map_or(Poll::Pending, Poll::Ready)
    }
}

/// Answers by what the request says: at once, later or never, with as many bytes as it asks for, or a refusal.
fn answer(_: KvService, _: Terms, request: HotRequest) -> Answer {
    let (key, message) = match request {
        HotRequest::Range(request) => {
            let bytes = usize::try_from(request.limit).unwrap_or(0).min(400_000);
            let kvs = vec![mvccpb::KeyValue {
                value: vec![7; bytes].into(),
                ..mvccpb::KeyValue::default()
            }];
            let reply = pb::RangeResponse {
                kvs,
                ..pb::RangeResponse::default()
            };
            (request.key, HotMessage::Range(reply))
        }
        HotRequest::Put(request) => (request.key, HotMessage::Put(pb::PutResponse::default())),
        HotRequest::DeleteRange(request) => {
            let reply = pb::DeleteRangeResponse::default();
            (request.key, HotMessage::DeleteRange(reply))
        }
        HotRequest::Txn(_) => (Bytes::new(), HotMessage::Txn(pb::TxnResponse::default())),
    };
    let is_read = matches!(message, HotMessage::Range(_));
    let reply = HotReply {
        message,
        encoded: None,
        long: None,
        applied: 1,
        level: is_read.then_some(ReadLevel::Linearizable),
    };
    Answer {
        polls: key.first().map_or(0, |first| first % 5),
        result: Some(match key.len() {
            5 => Err(Fault::KeyNotProvided.into()),
            _ => Ok(reply),
        }),
    }
}

/// The library, or what is in its place.
fn opened(library: Library, pipe: DuplexStream) -> Served {
    match library {
        Library::Silent => Box::pin(async move {
            let _pipe = pipe;
            std::future::pending::<()>().await;
        }),
        Library::Ends => Box::pin(async move { drop(pipe) }),
        Library::Answers => {
            let (calls, tap) = (Calls::default(), Tap::new(pipe));
            let mut builder = Builder::new(calls.clone()).http2_only();
            builder
                .http2()
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(RELAY_WINDOW)
                .max_frame_size(FRAME_BYTES)
                .max_concurrent_streams(STREAMS_MAX)
                .max_header_list_size(HEADER_BYTES as u32);
            let service = hyper::service::service_fn(replied);
            Box::pin(async move {
                let served = builder.serve_connection(TokioIo::new(tap), service);
                let mut served = std::pin::pin!(served);
                std::future::poll_fn(|task| {
                    calls.poll(task);
                    let polled = served.as_mut().poll(task);
                    calls.poll(task);
                    polled.map(drop)
                })
                .await;
            })
        }
    }
}

/// Waits for the request where its method says so, and answers with as many bytes.
async fn replied(
    request: http::Request<hyper::body::Incoming>,
) -> Result<http::Response<Full<Bytes>>, Infallible> {
    let is_watch = request.uri().path() == PATHS[4];
    let body = match is_watch {
        true => request.into_body().collect().await.ok(),
        false => None,
    };
    let body = match body {
        Some(body) => body.to_bytes(),
        None => Bytes::from(vec![7; 3000]),
    };
    Ok(http::Response::new(Full::new(body)))
}

type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The calls of the library, which its connection polls.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<Call>>>);

impl Calls {
    fn poll(&self, task: &mut Task<'_>) {
        let mut calls = std::mem::take(&mut *self.0.lock());
        calls.retain_mut(|call| call.as_mut().poll(task).is_pending());
        self.0.lock().append(&mut calls);
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Calls {
    fn execute(&self, call: F) {
        self.0.lock().push(Box::pin(call));
    }
}

/// Looks at what the front sends to the library: whole heads that can be read, on streams of a client.
struct Tap {
    pipe: DuplexStream,
    preface: usize,
    partial: Partial,
    decoder: Decoder<()>,
    open: Option<(u32, Vec<u8>)>,
}

impl Tap {
    fn new(pipe: DuplexStream) -> Tap {
        Tap {
            pipe,
            preface: PREFACE.len(),
            partial: Partial::default(),
            decoder: Decoder::new(|_, _| ()),
            open: None,
        }
    }

    fn look(&mut self, bytes: &[u8]) {
        let (first, mut rest) = bytes.split_at(self.preface.min(bytes.len()));
        let at = PREFACE.len() - self.preface;
        assert_eq!(first, &PREFACE[at..at + first.len()]);
        self.preface -= first.len();
        let mut partial = std::mem::take(&mut self.partial);
        let frame_bytes_max = FRAME_BYTES as usize;
        while let Some(()) = partial
            .next(&mut rest, frame_bytes_max, |head, payload| {
                self.frame(head, payload);
            })
            .expect("no frame is longer than the library takes")
        {}
        self.partial = partial;
    }

    fn frame(&mut self, head: FrameHead, payload: &[u8]) {
        let is_continuation = head.kind == kind::CONTINUATION;
        let open = self.open.as_ref().map(|open| open.0);
        assert_eq!(open, is_continuation.then_some(head.id), "{head:?}");
        match head.kind {
            kind::HEADERS => {
                assert!(!head.has(flag::PADDED) && !head.has(flag::PRIORITY));
                self.open = Some((head.id, payload.to_vec()));
            }
            kind::CONTINUATION => {
                if let Some((_, block)) = &mut self.open {
                    block.extend_from_slice(payload);
                }
            }
            kind::DATA | kind::RST_STREAM | kind::WINDOW_UPDATE => {}
            kind::SETTINGS | kind::PING => assert_eq!(head.id, 0),
            _ => panic!("{head:?}"),
        }
        let is_head = is_continuation || head.kind == kind::HEADERS;
        if is_head
            && head.has(flag::END_HEADERS)
            && let Some((_, block)) = self.open.take()
        {
            let decoded = self.decoder.decode(&block, |(), _, _| true);
            assert!(decoded.is_ok() && self.decoder.generation() == 0);
        }
    }
}

impl AsyncRead for Tap {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Task<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.pipe).poll_read(task, buffer);
        this.look(&buffer.filled()[before..]);
        polled
    }
}

impl AsyncWrite for Tap {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Task<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(task, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(task)
    }
}

/// What another decoder says of a block.
pub enum Other {
    /// It has these fields.
    Fields(Vec<(Vec<u8>, Vec<u8>)>),
    /// It is not valid.
    Bad,
    /// It does not say, and nothing about later ones.
    Unknown,
}

/// Header blocks of one connection, each behind its length in two bytes. `other` decodes the same blocks.
pub(crate) fn header_blocks(mut data: &[u8], mut other: impl FnMut(&[u8]) -> Other) {
    const LIST_BYTES_MAX: usize = 8 << 10;
    /// More of one block is not looked at.
    const BYTES_MAX: usize = 512 << 10;
    let mut decoder = Decoder::new(|name, value| (name.len(), value.len()));
    let mut reader = HeadReader::new(LIST_BYTES_MAX);
    let mut is_compared = true;
    while let [low, high, rest @ ..] = data {
        let bytes = usize::from(u16::from_le_bytes([*low, *high]));
        let (block, rest) = rest.split_at(bytes.min(rest.len()));
        data = rest;
        let (mut fields, mut list_bytes) = (Fields::new(), 0);
        let decoded = decoder.decode(block, |meaning, name, value| {
            assert_eq!(meaning, (name.len(), value.len()));
            list_bytes += name.len() + value.len() + FIELD_BYTES;
            fields.push((name.to_vec(), value.to_vec()));
            list_bytes < BYTES_MAX
        });
        if list_bytes >= BYTES_MAX {
            return;
        }
        if is_compared {
            match (other(block), &decoded) {
                (Other::Fields(theirs), Ok(())) => assert_eq!(theirs, fields),
                (Other::Fields(theirs), Err(_)) => assert!(
                    // Other decoders take a change of the table behind a field.
                    block.iter().any(|byte| (0x20..0x40).contains(byte)),
                    "refused: {theirs:?}"
                ),
                (Other::Bad, Ok(())) => panic!("accepted: {fields:?}"),
                (Other::Bad, Err(_)) => {}
                (Other::Unknown, _) => is_compared = false,
            }
        }
        let read = reader.read(block);
        if decoded.is_err() {
            assert!(read.is_err());
            return;
        }
        let head = match read {
            Ok(head) => head,
            Err(reason) => {
                assert!(reason == Reason::EnhanceYourCalm && list_bytes > 256 << 10);
                return;
            }
        };
        assert_eq!(head.is_too_large, list_bytes > LIST_BYTES_MAX);
        assert!(head.block.len() <= list_bytes);
        if head.is_too_large {
            assert!(head.hot.is_none() && head.block.len() <= LIST_BYTES_MAX);
            continue;
        }
        assert_eq!(head.bytes, list_bytes);
        // What is relayed, and what a block means that comes again.
        let mut again = Fields::new();
        let mut plain = Decoder::new(|_, _| ());
        let visited = plain.decode(&head.block, |(), name, value| {
            again.push((name.to_vec(), value.to_vec()));
            true
        });
        assert!(visited.is_ok() && plain.generation() == 0);
        assert_eq!(again, fields);
        if head.hot.is_some() {
            let count = |name: &[u8]| fields.iter().filter(|field| field.0 == name).count();
            for name in [":method", ":scheme", ":path", ":authority", "content-type"] {
                assert_eq!(count(name.as_bytes()), 1, "{name} of a hot head");
            }
            let plain = fields.iter().position(|field| !field.0.starts_with(b":"));
            assert_eq!(plain, Some(4), "pseudo-fields come first");
        }
    }
}

/// Whole calls, calls of the relay, windows, a reset, and heads in parts.
#[must_use]
#[cfg_attr(fuzzing, allow(dead_code))]
pub(crate) fn connection_seeds() -> Vec<Vec<u8>> {
    const ALL: u8 = flag::END_HEADERS;
    const END: u8 = flag::END_STREAM;
    let part = |what: u8, flags: u8, id: u8, payload: &[u8]| {
        [&[what, flags, id, payload.len() as u8][..], payload].concat()
    };
    let range = |key: &str, limit: i64| {
        pb::RangeRequest {
            key: key.to_owned().into(),
            limit,
            ..pb::RangeRequest::default()
        }
        .encode_to_vec()
    };
    let put = pb::PutRequest {
        key: "key".into(),
        value: vec![1; 40].into(),
        ..pb::PutRequest::default()
    };
    let put = put.encode_to_vec();
    let number = |bytes: u32| bytes.to_be_bytes();
    let window = |id: u8, bytes: u32| part(kind::WINDOW_UPDATE, 0, id, &number(bytes));
    let initial = |bytes: u32| {
        let setting = [
            &setting::INITIAL_WINDOW_SIZE.to_be_bytes()[..],
            &number(bytes),
        ];
        part(kind::SETTINGS, 0, 0, &setting.concat())
    };
    let hot = [
        part(KIND_PATH, ALL, 1, &[]),
        part(KIND_MESSAGE, END, 1, &range("d", 20)),
        part(KIND_PATH + 1, ALL, 3, &[]),
        part(KIND_MESSAGE, 0, 3, &put[..10]),
        part(kind::DATA, END, 3, &put[10..]),
        part(kind::PING, 0, 0, &[5; 8]),
        part(KIND_PATH + 2, ALL, 5, &[]),
        part(KIND_MESSAGE, END, 5, &[]),
        part(KIND_PATH + 3, ALL, 7, &[]),
        part(KIND_MESSAGE, END, 7, &[]),
    ];
    let waiting = [
        initial(10),
        part(KIND_PATH, ALL, 1, &[]),
        part(KIND_MESSAGE, END, 1, &range("d", 100_000)),
        part(KIND_PATH, ALL, 3, &[]),
        part(KIND_MESSAGE, END, 3, &range("a", 200_000)),
        window(1, 50_000),
        initial(1 << 20),
        window(0, 100_000),
        part(kind::RST_STREAM, 0, 3, &number(8)),
        part(kind::DATA, 0, 3, b"late"),
        window(0, 100_000),
    ];
    let relayed = [
        part(KIND_PATH + 5, ALL | END, 1, &[]),
        part(KIND_PATH + 4, ALL, 3, &[]),
        part(KIND_MESSAGE, 0, 3, b"watch"),
        part(KIND_PATH, ALL, 5, &[]),
        part(KIND_LONG, 0, 5, &[1; 200]),
        part(KIND_LONG, 0, 3, &[2; 150]),
        part(KIND_PATH + 5, ALL | END, 7, b"\x40\x01a\x01b"),
        part(kind::HEADERS, ALL | END, 3, b"\0\x01a\x01b"),
        part(kind::RST_STREAM, 0, 5, &number(8)),
        initial(1),
        part(KIND_PATH + 5, ALL | END, 9, &[]),
        window(9, 100),
    ];
    let parts = [
        part(KIND_PATH + 1, 0, 1, b"\0\x01a"),
        part(kind::CONTINUATION, 0, 1, b"\x03"),
        part(kind::CONTINUATION, ALL, 1, b"bcd"),
        part(kind::PRIORITY, 0, 9, &[0, 0, 0, 1, 7]),
        part(KIND_MESSAGE, END | flag::PADDED, 1, b"p"),
        part(99, 0, 0, b"unknown"),
        part(KIND_PATH + 1, ALL, 3, b"\x0f\x2f\0"),
        part(kind::DATA, END, 3, &[1, 0, 0, 0, 1, 7]),
        part(kind::GOAWAY, 0, 0, &[0; 8]),
    ];
    // A long field, which the blocks behind it name again and again.
    let mut long = vec![0x40, 1, b'a'];
    write_string(&mut long, &[b'x'; 240]);
    let mut heads = vec![part(KIND_PATH + 4, ALL, 1, &long[..250.min(long.len())])];
    heads.extend((1..60).map(|number| part(KIND_PATH + 4, ALL, 2 * number + 1, &[0xbe; 240])));
    let mut raw = Vec::new();
    write_settings(&mut raw, &[(setting::MAX_FRAME_SIZE, 1 << 20)]);
    let block = usual_block(PATHS[1]);
    write_head(&mut raw, block.len(), kind::HEADERS, ALL, 1);
    raw.extend_from_slice(&block);
    write_head(&mut raw, put.len() + 5, kind::DATA, END, 1);
    raw.extend_from_slice(&[0, 0, 0, 0, put.len() as u8]);
    raw.extend_from_slice(&put);
    write_window_update(&mut raw, 0, 7);
    vec![
        [&[0x40, 0][..], &hot.concat()].concat(),
        [&[0x10, 3][..], &hot.concat()].concat(),
        [&[0x20, 1][..], &waiting.concat()].concat(),
        [&[0x42, 1][..], &waiting.concat()].concat(),
        [&[0x40, 2][..], &relayed.concat()].concat(),
        [&[0x28, 2][..], &relayed.concat()].concat(),
        [&[0x6c, 2][..], &relayed.concat()].concat(),
        [&[0x40, 4][..], &parts.concat()].concat(),
        [&[0x48, 5][..], &heads.concat()].concat(),
        [&[0x31, 6][..], &raw].concat(),
    ]
}

/// The requests of RFC 7541, appendix C, an eviction, and heads of calls.
#[must_use]
#[cfg_attr(fuzzing, allow(dead_code))]
pub(crate) fn header_blocks_seeds() -> Vec<Vec<u8>> {
    let blocks = |blocks: &[&[u8]]| {
        let mut seed = Vec::new();
        for block in blocks {
            seed.extend_from_slice(&(block.len() as u16).to_le_bytes());
            seed.extend_from_slice(block);
        }
        seed
    };
    let mut indexed = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", PATHS[0]),
        (":authority", "127.0.0.1:2379"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        indexed.push(0x40);
        write_string(&mut indexed, name.as_bytes());
        write_string(&mut indexed, value.as_bytes());
    }
    let mut large = vec![0x40];
    write_string(&mut large, b"name");
    write_string(&mut large, &[b'x'; 3000]);
    vec![
        blocks(&[
            b"\x82\x86\x84\x41\x0fwww.example.com",
            b"\x82\x86\x84\xbe\x58\x08no-cache",
            b"\x82\x87\x85\xbf\x40\x0acustom-key\x0ccustom-value",
        ]),
        blocks(&[
            b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
            b"\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf",
            b"\x82\x87\x85\xbf\x40\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf",
        ]),
        blocks(&[b"\x3f\x45\x48\x03\x33\x30\x32", b"\x20\x3f\xe1\x1f\x10\x01a\x01b"]),
        blocks(&[&indexed, &[0xc3, 0xc2, 0xc1, 0xc0, 0xbf, 0xbe], &[0xc3, 0xc2]]),
        blocks(&[&usual_block(PATHS[1])]),
        blocks(&[&large, &[0xbe; 3], &[0xbe; 100], &large]),
    ]
}
