//! Entry points of fuzzers for what a client sends to the front; see [`crate::fuzzing`].
//!
//! [`connection`] takes the place of a turn: it cuts the client's bytes into reads at any places, does between two reads
//! what a turn does, or only a part of it, and looks at everything that is sent as a client would.

mod blocks;
mod client;
mod library;
mod seeds;

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

pub use blocks::Other;
pub(crate) use blocks::{header_blocks, header_blocks_seeds};
use client::Client;
use library::opened;
pub(crate) use seeds::connection_seeds;

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
    "/etcdserverpb.Lease/LeaseKeepAlive",
    "/etcdserverpb.Maintenance/Status",
];
/// The first of the kinds that stand for the usual head of a path.
const KIND_PATH: u8 = 10;
/// Data with the prefix of a message.
const KIND_MESSAGE: u8 = 16;
/// Data that is repeated.
const KIND_LONG: u8 = 17;
/// The usual head of a watch.
const KIND_WATCH: u8 = 18;
const WATCH: &str = "/etcdserverpb.Watch/Watch";
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
            KIND_WATCH => frame(kind::HEADERS, &[&usual_block(WATCH), payload].concat()),
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
            keep_alive_interval: Some(TIMEOUT),
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
