//! The entry point of a fuzzer for what a peer sends on a connection that carries frames, to either side; see
//! [`crate::fuzzing`].
//!
//! The connection is a [`Script`], whose bytes arrive in pieces of random lengths. Where nothing else has a say in it, all
//! must come out the same however they are cut.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bowline_proto::peer::{AppendReply, AppendRequest, Hello};
use bytes::BytesMut;
use fastrand::Rng;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::runtime::Runtime;
use tonic::Status;

use super::client::bytes_max_of;
use super::transport::{HELLO_BYTES_MAX, Sniffed};
use super::*;
use crate::peer::port::{Port, PortLimits};

/// The longest body that may arrive.
const BODY_BYTES_MAX: usize = 1 << 20;
/// What the buffers of a connection take beside what has arrived and is not taken yet.
const BUFFER_BYTES: usize = 512 << 10;
/// The most that an input stands for.
const WIRE_BYTES_MAX: usize = 2 << 20;
/// How often a body is repeated that is to be long.
const REPEATED: usize = 300;
/// Sets in a kind that the body is repeated.
const LONG: u8 = 0x80;

/// A byte that selects how the input is handled, one for the cuts, and what the peer sends. Returns how many bytes have
/// arrived in each of the connections that were made of it, one after the other.
pub(crate) fn frames(data: &[u8]) -> usize {
    let [plan, seed, data @ ..] = data else {
        return 0;
    };
    let is_raw = plan & 1 != 0;
    let wire = match is_raw {
        true => data.to_vec(),
        false => wire_of(data),
    };
    let piece_max = [1 << 16, 3, 50, 5000][usize::from(plan >> 1 & 3)];
    let script = |piece_max, is_slow| Script {
        input: wire[..].into(),
        random: Rng::with_seed(u64::from(*seed)),
        piece_max,
        is_slow,
        written: Arc::default(),
    };
    let _time = runtime().enter();
    match plan >> 3 & 3 {
        0 => {
            let whole = served(script(usize::MAX, false));
            assert_eq!(whole, served(script(piece_max, false)), "cut elsewhere");
            served(script(piece_max, true));
        }
        1 | 2 => {
            let plan = *seed;
            let whole = asked(script(usize::MAX, false), is_raw, plan);
            let cut = asked(script(piece_max, false), is_raw, plan);
            assert_eq!(whole, cut, "cut elsewhere");
            asked(script(piece_max, true), is_raw, plan);
        }
        _ => {
            let whole = taken(script(usize::MAX, false));
            assert_eq!(whole, taken(script(piece_max, false)), "cut elsewhere");
            sniffed(script(piece_max, true), &wire);
        }
    }
    wire.len()
}

/// Frames, of which an input has `kind, call, length` and a body of that length.
fn wire_of(mut data: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    while let [what, call, bytes, rest @ ..] = data
        && wire.len() < WIRE_BYTES_MAX
    {
        let (body, rest) = rest.split_at(rest.len().min(usize::from(*bytes)));
        data = rest;
        let body = body.repeat(if what & LONG == 0 { 1 } else { REPEATED });
        let mut head = Head::encode(body.len(), Kind::Hello, u32::from(*call));
        head[4] = what & !LONG;
        wire.extend_from_slice(&head);
        wire.extend_from_slice(&body);
    }
    wire
}

/// Only for its timers, none of which ever fires.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().expect("a runtime")
    })
}

/// The peer's end of a connection.
struct Script {
    input: BytesMut,
    random: Rng,
    piece_max: usize,
    /// It makes both sides wait now and then, and takes little of what is sent to it at once.
    is_slow: bool,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Script {
    fn waits(&mut self, task: &mut Context<'_>) -> bool {
        let waits = self.is_slow && self.random.u8(..4) == 0;
        if waits {
            task.waker().wake_by_ref();
        }
        waits
    }
}

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.waits(task) {
            return Poll::Pending;
        }
        let most = self.piece_max.min(buffer.remaining());
        let count = self.random.usize(1..=most.max(1));
        let count = match self.piece_max {
            usize::MAX => most,
            _ => count,
        };
        let count = count.min(self.input.len()).min(buffer.remaining());
        buffer.put_slice(&self.input.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Script {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.waits(task) {
            return Poll::Pending;
        }
        let count = match self.is_slow {
            true => bytes.len().min(self.random.usize(1..40)),
            false => bytes.len(),
        };
        self.written.lock().extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls as long as it is woken; `None` is a future that waits for ever.
fn until_it_waits<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Option<T> {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    loop {
        if let Poll::Ready(done) = poll(&mut Context::from_waker(&waker)) {
            return Some(done);
        }
        if !woken.0.swap(false, Ordering::Relaxed) {
            return None;
        }
    }
}

/// Refuses a sequence of 0, and never answers one of 200 or more.
fn answer(request: &AppendRequest) -> Option<Result<AppendReply, Status>> {
    match request.sequence {
        0 => Some(Err(Status::permission_denied("no member"))),
        200.. => None,
        sequence => Some(Ok(AppendReply {
            sequence,
            result: None,
        })),
    }
}

struct Echo;

impl Appends for Echo {
    fn stream(&self, requests: Boxed<AppendRequest>, _: Arc<Connected>) -> Boxed<AppendReply> {
        Box::pin(requests.then(async |request| match answer(&request?) {
            Some(answer) => answer,
            None => std::future::pending().await,
        }))
    }

    fn one(
        &self,
        request: AppendRequest,
        _: Arc<Connected>,
    ) -> BoxFuture<'_, Result<AppendReply, Status>> {
        async move {
            match answer(&request) {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
        .boxed()
    }
}

/// The peer's side of a connection: what it sends, and what becomes of it.
fn served(script: Script) -> (Vec<u8>, Option<Result<(), io::ErrorKind>>) {
    let (written, is_slow) = (script.written.clone(), script.is_slow);
    let hello = first_body(&script.input).and_then(|body| Hello::decode(body).ok());
    let port = Port::new(PortLimits::default());
    let connected = port.connect(std::net::Ipv4Addr::LOCALHOST.into());
    let connected = connected.expect("the first");
    let mut serving = Box::pin(serve(
        script,
        BytesMut::new(),
        Arc::new(Echo),
        connected.clone(),
        BODY_BYTES_MAX,
    ));
    let ended = until_it_waits(|task| serving.as_mut().poll(task));
    drop(serving);
    let mut none = 0;
    let all = PortLimits::default().unfinished_bytes_per_address_max;
    assert!(connected.hold(&mut none, all), "all was given back");
    connected.hold(&mut none, 0);
    let ended = ended.map(|ended| ended.map_err(|error| error.kind()));
    let written = std::mem::take(&mut *written.lock());
    look_at_replies(&written, is_slow, hello.as_ref().map_or(0, bytes_max_of));
    (written, ended)
}

/// The first body of a connection's bytes.
fn first_body(wire: &[u8]) -> Option<&[u8]> {
    let head = Head::decode(wire.first_chunk()?, HELLO_BYTES_MAX).ok()?;
    wire.get(HEAD_BYTES..HEAD_BYTES + head.body_bytes)
}

/// A preface, a hello, and whole frames, none of which is longer than the leader takes; nothing follows the end of a call.
fn look_at_replies(written: &[u8], is_slow: bool, bytes_max: usize) {
    let whole = PREFACE.len().min(written.len());
    assert_eq!(&written[..whole], &PREFACE[..whole]);
    let mut rest = &written[whole..];
    let (mut last_call, mut has_ended) = (0, true);
    while let Some(head) = rest.first_chunk() {
        let head = Head::decode(head, bytes_max.max(HELLO_BYTES_MAX));
        let head = head.expect("a frame that the leader takes");
        let Some(after) = rest.get(HEAD_BYTES + head.body_bytes..) else {
            break;
        };
        rest = after;
        if head.kind == Kind::Hello {
            assert_eq!(head.call, 0);
            continue;
        }
        assert!(head.body_bytes <= bytes_max);
        assert!(head.call > last_call || head.call == last_call && !has_ended);
        (last_call, has_ended) = (head.call, head.kind != Kind::Reply);
    }
    assert!(rest.is_empty() || is_slow, "half a frame");
}

/// A leader's side of a connection: what its calls have for results.
fn asked(mut script: Script, is_raw: bool, plan: u8) -> Vec<String> {
    let is_slow = script.is_slow;
    if !is_raw {
        let hello = Hello {
            version: VERSION,
            body_bytes_max: 1 << (plan & 31),
        };
        let body = hello.encode_to_vec();
        let head = Head::encode(body.len(), Kind::Hello, 0);
        let first = [&PREFACE[..], &head, &body].concat();
        script.input = [&first[..], &script.input].concat()[..].into();
    }
    let mut results = Vec::new();
    let mut connecting = Box::pin(connect(Box::new(script), BODY_BYTES_MAX));
    let connected = until_it_waits(|task| connecting.as_mut().poll(task));
    drop(connecting);
    let mut kept = match connected.expect("a connection ends") {
        Ok(Some(frames)) => Some(frames),
        other => return vec![format!("{:?}", other.map(|_| ()).map_err(|it| it.kind()))],
    };
    for round in 0..6_u8 {
        let Some(frames) = kept.take() else { break };
        let is_one = plan >> round & 1 == 0;
        let given_back = Arc::new(Mutex::new(None));
        let done = {
            let given_back = given_back.clone();
            move |frames: Outgoing| {
                let before = given_back.lock().replace(frames);
                assert!(before.is_none(), "given back twice");
            }
        };
        let count = if is_one { 1 } else { 1 + plan % 7 };
        let requests = stream::iter((0..count).map(|sequence| AppendRequest {
            sequence: u64::from(sequence) + 1,
            ..AppendRequest::default()
        }));
        let mut replies = call(frames, requests, is_one, done);
        // It gives up some calls after their first reply.
        let replies_max = if plan & 0x40 == 0 { usize::MAX } else { 1 };
        let mut has_failed = false;
        let mut taken = 0;
        while taken < replies_max
            && let Some(Some(reply)) = until_it_waits(|task| replies.poll_next_unpin(task))
        {
            assert!(!has_failed, "a reply behind the end");
            taken += 1;
            results.push(match &reply {
                Ok(reply) => format!("{reply:?}"),
                Err(status) => format!("{:?}", status.code()),
            });
            has_failed = reply.is_err();
            let is_broken = reply.is_err_and(|it| std::error::Error::source(&it).is_some());
            assert!(!is_broken || given_back.lock().is_none());
        }
        drop(replies);
        kept = given_back.lock().take();
        results.push(format!("given back: {}", kept.is_some()));
    }
    if let Some(mut frames) = kept {
        let is_open = frames.is_open();
        assert!(!is_open || is_slow, "all of it has been read");
        let bytes = frames.buffer_bytes();
        assert!(bytes <= BUFFER_BYTES, "{bytes} bytes of an idle connection");
    }
    results
}

/// The frames themselves, and what becomes of the connection.
fn taken(script: Script) -> (Vec<(Kind, u32, usize)>, Option<io::ErrorKind>) {
    let wire = script.input.clone();
    let mut frames = Frames::new(script, BytesMut::new(), BODY_BYTES_MAX);
    let (mut at, mut found) = (0, Vec::new());
    let ended = loop {
        let frame = until_it_waits(|task| frames.poll_frame(task));
        let left = wire.len() - at;
        let bytes = frames.buffer_bytes();
        assert!(bytes <= 2 * left + BUFFER_BYTES, "{bytes} bytes for {left}");
        match frame.expect("a connection ends") {
            Ok(Some(Frame { kind, call, body })) => {
                let whole = &wire[at..at + HEAD_BYTES + body.len()];
                assert_eq!(&whole[..HEAD_BYTES], Head::encode(body.len(), kind, call));
                assert_eq!(&whole[HEAD_BYTES..], &body[..]);
                at += whole.len();
                found.push((kind, call, body.len()));
            }
            Ok(None) => {
                assert_eq!(at, wire.len());
                break None;
            }
            Err(error) => break Some(error.kind()),
        }
    };
    (found, ended)
}

/// What is no preface of frames is read again by whoever it is for.
fn sniffed(mut script: Script, wire: &[u8]) {
    let is_frames = wire.starts_with(PREFACE);
    let mut sniffing = Box::pin(async move {
        let sniffed = sniff(&mut script).await?;
        let mut all = Vec::new();
        let is_frames = matches!(sniffed, Sniffed::Frames(_));
        let (Sniffed::Frames(read) | Sniffed::Other(read)) = sniffed;
        Begun::new(read, script).read_to_end(&mut all).await?;
        io::Result::Ok((is_frames, all))
    });
    let done = until_it_waits(|task| sniffing.as_mut().poll(task));
    let (was_frames, all) = done.expect("it ends").expect("a script does not fail");
    assert_eq!(was_frames, is_frames);
    let behind = if is_frames { PREFACE.len() } else { 0 };
    assert_eq!(all, wire[behind..]);
}

/// Calls of each kind for the peer, answers of each kind for the leader, and bytes as they are.
#[must_use]
#[cfg_attr(fuzzing, allow(dead_code))]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let part =
        |kind: u8, call: u8, body: &[u8]| [&[kind, call, body.len() as u8][..], body].concat();
    let hello = |version| {
        let hello = Hello {
            version,
            body_bytes_max: BODY_BYTES_MAX as u64,
        };
        hello.encode_to_vec()
    };
    let request = |sequence| {
        let request = AppendRequest {
            sequence,
            ..AppendRequest::default()
        };
        request.encode_to_vec()
    };
    let (append, one) = (Kind::Append as u8, Kind::One as u8);
    let (end, reply) = (Kind::End as u8, Kind::Reply as u8);
    let for_peer = [
        part(Kind::Hello as u8, 0, &hello(7)),
        part(one, 1, &request(7)),
        part(append, 2, &request(1)),
        part(append, 2, &request(2)),
        part(append | LONG, 2, &[0x12, 0]),
        part(end, 2, &[]),
        part(append, 3, &request(250)),
        part(append, 3, &request(3)),
        part(one, 4, &request(0)),
        part(one | LONG, 5, &[0x32, 0].repeat(60)),
        part(end, 3, &[]),
        part(append, 6, &[0xff; 9]),
    ]
    .concat();
    let refusal = bowline_proto::peer::Refusal {
        code: 7,
        text: "no member".to_owned(),
    };
    let refusal = part(Kind::Refused as u8, 2, &refusal.encode_to_vec());
    let replied = |call, sequence| {
        let body = AppendReply {
            sequence,
            result: None,
        };
        part(reply, call, &body.encode_to_vec())
    };
    let for_leader = [
        replied(1, 1),
        part(end, 1, &[]),
        replied(1, 2),
        refusal,
        replied(3, 1),
        replied(3, 2),
        part(reply | LONG, 3, &[0x08, 1].repeat(60)),
        part(end, 3, &[]),
        replied(4, 1),
        part(end, 5, &[]),
        part(one, 6, &[]),
    ]
    .concat();
    let raw = [
        &PREFACE[..],
        &Head::encode(hello(1).len(), Kind::Hello, 0),
        &hello(1),
        &Head::encode(2, Kind::Reply, 1),
        &[8, 1],
        &Head::encode(BODY_BYTES_MAX, Kind::Reply, 1),
        &[8, 1],
    ]
    .concat();
    let behind = &raw[PREFACE.len()..];
    let seed = |plan: u8, seed: u8, bytes: &[u8]| [&[plan, seed][..], bytes].concat();
    vec![
        seed(0x04, 1, &for_peer),
        seed(0x02, 2, &for_peer),
        seed(0x0c, 0x34, &for_leader),
        seed(0x0a, 0x55, &for_leader),
        seed(0x0e, 0x14, &for_leader),
        seed(0x1c, 5, &for_peer),
        seed(0x05, 6, behind),
        seed(0x0d, 0x14, &raw),
        seed(0x1b, 8, &raw),
        seed(0x1d, 9, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ]
}
