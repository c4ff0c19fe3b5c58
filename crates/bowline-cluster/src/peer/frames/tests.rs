//! A leader and a peer at the two ends of a pipe; raw bytes instead of either.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline_proto::peer::{AppendReply, AppendRequest, Hello, Refusal};
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tonic::{Code, Status};

use tokio::net::TcpListener;

use super::client::Outgoing;
use super::transport::Sniffed;
use super::*;
use crate::peer::PeerOptions;
use crate::peer::link::{Lane, Link};
use crate::peer::port::{Port, PortLimits};

const BODY_BYTES_MAX: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

/// Answers a request with its sequence; one whose sequence is 0 is refused, one of 100 or more is never answered.
#[derive(Default)]
struct Echo {
    taken: AtomicUsize,
}

fn answer(request: &AppendRequest) -> Result<AppendReply, Status> {
    match request.sequence {
        0 => Err(Status::permission_denied("no member")),
        sequence => Ok(AppendReply {
            sequence,
            result: None,
        }),
    }
}

impl Appends for Arc<Echo> {
    fn stream(&self, requests: Boxed<AppendRequest>, _: Arc<Connected>) -> Boxed<AppendReply> {
        let echo = self.clone();
        Box::pin(requests.then(move |request| {
            echo.taken.fetch_add(1, Ordering::SeqCst);
            async move {
                let request = request?;
                if request.sequence >= 100 {
                    std::future::pending::<()>().await;
                }
                answer(&request)
            }
        }))
    }

    fn one(
        &self,
        request: AppendRequest,
        _: Arc<Connected>,
    ) -> BoxFuture<'_, Result<AppendReply, Status>> {
        async move {
            if request.sequence >= 100 {
                std::future::pending::<()>().await;
            }
            answer(&request)
        }
        .boxed()
    }
}

/// A peer behind a pipe of so many bytes; and what becomes of its connection.
fn peer(
    pipe_bytes: usize,
    limits: PortLimits,
) -> (DuplexStream, JoinHandle<io::Result<()>>, Arc<Echo>) {
    let (leader, mut stream) = duplex(pipe_bytes);
    let port = Port::new(limits);
    let connected = port
        .connect(std::net::Ipv4Addr::LOCALHOST.into())
        .expect("the first");
    let echo = Arc::new(Echo::default());
    let appends: Arc<dyn Appends> = Arc::new(echo.clone());
    let serving = tokio::spawn(async move {
        match sniff(&mut stream).await? {
            Sniffed::Frames(read) => serve(stream, read, appends, connected, BODY_BYTES_MAX).await,
            Sniffed::Other(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    });
    (leader, serving, echo)
}

async fn connected() -> (Outgoing, JoinHandle<io::Result<()>>) {
    let (leader, serving, _) = peer(64 << 10, PortLimits::default());
    let frames = connect(Box::new(leader), BODY_BYTES_MAX).await;
    (
        frames.expect("no failure").expect("it speaks frames"),
        serving,
    )
}

fn request(sequence: u64) -> AppendRequest {
    AppendRequest {
        sequence,
        ..AppendRequest::default()
    }
}

fn frame(kind: Kind, call: u32, body: &[u8]) -> Vec<u8> {
    [&Head::encode(body.len(), kind, call)[..], body].concat()
}

fn hello(version: u32) -> Vec<u8> {
    let hello = Hello {
        version,
        body_bytes_max: BODY_BYTES_MAX as u64,
    };
    [&PREFACE[..], &frame(Kind::Hello, 0, &hello.encode_to_vec())].concat()
}

/// Takes a connection back.
fn keeping(kept: &Arc<Mutex<Option<Outgoing>>>) -> impl FnOnce(Outgoing) + Send + Unpin + use<> {
    let kept = kept.clone();
    move |frames| *kept.lock() = Some(frames)
}

async fn sequences(replies: impl Stream<Item = Result<AppendReply, Status>>) -> Vec<u64> {
    let sequences = replies.map(|reply| reply.expect("answered").sequence);
    let all = tokio::time::timeout(PATIENCE, sequences.collect());
    all.await.expect("they are answered")
}

/// What the peer answers to these bytes, which are sent in pieces of a length, and what became of the connection.
async fn answers(bytes: &[u8], piece: usize) -> (Vec<u8>, io::Result<()>) {
    let (leader, serving, _) = peer(64 << 10, PortLimits::default());
    let (mut reading, mut writing) = tokio::io::split(leader);
    for piece in bytes.chunks(piece) {
        if writing.write_all(piece).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let _ = writing.shutdown().await;
    let mut read = Vec::new();
    let all = tokio::time::timeout(PATIENCE, reading.read_to_end(&mut read)).await;
    all.expect("it ends").expect("a pipe does not fail");
    (read, serving.await.expect("no panic"))
}

#[tokio::test]
async fn calls_are_answered_in_order_and_give_their_connection_back() {
    let (frames, serving) = connected().await;
    let kept = Arc::new(Mutex::new(Some(frames)));
    for round in 0..3 {
        let frames = kept.lock().take().expect("given back");
        let requests = stream::iter((1..=40).map(request));
        let replies = call(frames, requests, false, keeping(&kept));
        assert_eq!(sequences(replies).await, (1..=40).collect::<Vec<u64>>());
        let frames = kept.lock().take().expect("given back");
        let replies = call(
            frames,
            stream::iter([request(50 + round)]),
            true,
            keeping(&kept),
        );
        assert_eq!(sequences(replies).await, [50 + round]);
    }
    drop(kept.lock().take());
    serving
        .await
        .expect("no panic")
        .expect("it ends between two frames");
}

/// A leader that gives up a call uses the connection for the next one: what comes late is not taken for its answers.
#[tokio::test]
async fn a_reply_to_a_call_that_was_given_up_answers_no_other() {
    let (frames, _serving) = connected().await;
    let kept = Arc::new(Mutex::new(None));
    let mut replies = call(
        frames,
        stream::iter((1..=9).map(request)),
        false,
        keeping(&kept),
    );
    let first = replies.next().await.expect("goes on").expect("answered");
    assert_eq!(first.sequence, 1);
    drop(replies);
    for (sequence, is_one) in [(11, true), (12, false), (13, true)] {
        let frames = kept.lock().take().expect("given back");
        // Given up before it is answered.
        let mut silent = call(frames, stream::iter([request(100)]), is_one, keeping(&kept));
        assert!(silent.next().now_or_never().is_none());
        drop(silent);
        let frames = kept.lock().take().expect("given back");
        let replies = call(
            frames,
            stream::iter([request(sequence)]),
            is_one,
            keeping(&kept),
        );
        assert_eq!(sequences(replies).await, [sequence]);
    }
}

#[tokio::test]
async fn a_refusal_has_its_code_and_text_and_ends_only_its_call() {
    let (frames, _serving) = connected().await;
    let kept = Arc::new(Mutex::new(Some(frames)));
    for is_one in [true, false] {
        let frames = kept.lock().take().expect("given back");
        let mut replies = call(frames, stream::iter([request(0)]), is_one, keeping(&kept));
        let refused = replies.next().await.expect("goes on").expect_err("refused");
        assert_eq!(refused.code(), Code::PermissionDenied);
        assert_eq!(refused.message(), "no member");
        assert!(std::error::Error::source(&refused).is_none(), "an answer");
        assert!(replies.next().await.is_none());
    }
}

#[tokio::test]
async fn frames_are_followed_however_they_are_cut() {
    let mut bytes = hello(1);
    for call in 1..4 {
        bytes.extend(frame(Kind::One, 3 * call, &request(7).encode_to_vec()));
        for sequence in 1..4 {
            let body = request(sequence).encode_to_vec();
            bytes.extend(frame(Kind::Append, 3 * call + 1, &body));
        }
        bytes.extend(frame(Kind::End, 3 * call + 1, &[]));
    }
    let (whole, ended) = answers(&bytes, bytes.len()).await;
    ended.expect("no failure");
    // Replies to a call that is followed at once by another may never be sent: cut as they are, the last one's are.
    assert!(whole.ends_with(&frame(Kind::End, 10, &[])), "{whole:?}");
    for piece in 1..60 {
        let (read, ended) = answers(&bytes, piece).await;
        ended.expect("no failure");
        assert!(read.starts_with(&hello(1)), "cut at {piece}");
        assert!(read.ends_with(&frame(Kind::End, 10, &[])), "cut at {piece}");
    }
}

/// The older side's version counts; a version of 0 is none.
#[tokio::test]
async fn the_smaller_version_counts() {
    let (read, ended) = answers(&hello(7), 10).await;
    ended.expect("no failure");
    assert_eq!(read, hello(1));
    let (_, ended) = answers(&hello(0), 10).await;
    ended.expect_err("no version");
}

#[tokio::test]
async fn what_is_no_frame_ends_the_connection() {
    let append = request(1).encode_to_vec();
    let oversized = Head::encode(BODY_BYTES_MAX + 1, Kind::Append, 1).to_vec();
    let mut unknown = Head::encode(0, Kind::End, 1).to_vec();
    unknown[4] = 77;
    let wrong = [
        oversized,
        unknown,
        frame(Kind::Hello, 0, &[]),
        frame(Kind::Reply, 1, &[]),
        frame(Kind::Refused, 1, &[]),
        // Of a call that has not begun.
        frame(Kind::End, 1, &[]),
        // A second request of a call that has one.
        [frame(Kind::One, 1, &append), frame(Kind::One, 1, &append)].concat(),
        // The end within a frame.
        frame(Kind::Append, 1, &append)[..10].to_vec(),
    ];
    for (number, bytes) in wrong.iter().enumerate() {
        for piece in [1, 1000] {
            let bytes = [hello(1), bytes.clone()].concat();
            let (_, ended) = answers(&bytes, piece).await;
            let ended = ended.expect_err(&format!("of the wrong ones, that of number {number}"));
            let expected = match number == wrong.len() - 1 {
                true => io::ErrorKind::UnexpectedEof,
                false => io::ErrorKind::InvalidData,
            };
            assert_eq!(ended.kind(), expected, "{number}: {ended}");
        }
    }
    // A body that is no message is refused, and the connection goes on.
    let garbage = [
        hello(1),
        frame(Kind::One, 1, &[0xff; 9]),
        frame(Kind::One, 2, &append),
    ]
    .concat();
    let (read, ended) = answers(&garbage, 1000).await;
    ended.expect("no failure");
    let reply = answer(&request(1)).expect("answered").encode_to_vec();
    assert!(read.ends_with(&frame(Kind::Reply, 2, &reply)), "{read:?}");
}

/// Before the peer has said what it takes, and before it is known to be one, nothing long is read.
#[tokio::test]
async fn a_long_hello_is_refused() {
    let bytes = [&PREFACE[..], &frame(Kind::Hello, 0, &[0; 1000])].concat();
    let (_, ended) = answers(&bytes, 100).await;
    ended.expect_err("too long");
}

/// The deadline of a preface, which HTTP/2 has too, ends with the head of the first frame: the rest of a hello could trickle
/// for ever.
#[tokio::test]
async fn a_hello_that_trickles_is_ended() {
    let limits = PortLimits {
        preface_timeout: Duration::from_millis(100),
        ..PortLimits::default()
    };
    let (mut leader, serving, _) = peer(64 << 10, limits);
    let hello = hello(1);
    leader
        .write_all(&hello[..hello.len() - 1])
        .await
        .expect("open");
    let ended = tokio::time::timeout(PATIENCE, serving).await;
    let ended = ended.expect("it ends").expect("no panic");
    assert_eq!(
        ended.expect_err("half a hello").kind(),
        io::ErrorKind::TimedOut
    );
}

#[tokio::test]
async fn a_peer_that_is_refused_again_and_again_loses_its_connection() {
    let mut bytes = hello(1);
    for call in 1..=64 {
        bytes.extend(frame(Kind::One, call, &request(0).encode_to_vec()));
    }
    let (read, ended) = answers(&bytes, 37).await;
    ended.expect_err("all were refused");
    let refusal = Refusal {
        code: Code::PermissionDenied as u32,
        text: "no member".to_owned(),
    };
    let last = frame(Kind::Refused, 64, &refusal.encode_to_vec());
    assert!(read.ends_with(&last), "the refusals are sent before");
}

/// A leader that sends and does not read makes the peer hold no more than the limits say.
#[tokio::test]
async fn while_replies_wait_no_request_is_read() {
    let (mut leader, _serving, echo) = peer(1 << 10, PortLimits::default());
    leader.write_all(&hello(1)).await.expect("open");
    let mut sent = 0;
    loop {
        sent += 1;
        let bytes = frame(Kind::Append, 1, &request(1 + sent % 9).encode_to_vec());
        let writing = leader.write_all(&bytes);
        match tokio::time::timeout(Duration::from_millis(200), writing).await {
            Ok(written) => written.expect("open"),
            Err(_) => break,
        }
        assert!(sent < 100_000, "it takes everything");
    }
    // 64 KiB of replies of 11 bytes and more, and the queue.
    let taken = echo.taken.load(Ordering::SeqCst);
    assert!((1_000..10_000).contains(&taken), "{taken}");
}

#[tokio::test]
async fn a_frame_that_trickles_and_a_silence_have_their_ends() {
    let limits = PortLimits {
        message_timeout: Duration::from_millis(200),
        append_silence_timeout: Duration::from_millis(100),
        ..PortLimits::default()
    };
    // A stream is refused, which is no failure of the connection; one without a call is closed.
    let (leader, serving, _) = peer(64 << 10, limits.clone());
    let frames = connect(Box::new(leader), BODY_BYTES_MAX).await;
    let frames = frames.expect("no failure").expect("it speaks frames");
    let kept = Arc::new(Mutex::new(None));
    let requests = stream::iter([request(1)]).chain(stream::pending());
    let mut replies = call(frames, requests, false, keeping(&kept));
    replies.next().await.expect("goes on").expect("answered");
    let silent = tokio::time::timeout(PATIENCE, replies.next()).await;
    let silent = silent.expect("it ends").expect("goes on");
    assert_eq!(silent.expect_err("refused").code(), Code::DeadlineExceeded);
    let mut frames = kept.lock().take().expect("given back");
    assert!(frames.is_open());
    serving
        .await
        .expect("no panic")
        .expect("closed between frames");
    assert!(!frames.is_open());
    let (mut leader, serving, _) = peer(64 << 10, limits);
    leader.write_all(&hello(1)).await.expect("open");
    let head = Head::encode(1000, Kind::Append, 1);
    leader.write_all(&head).await.expect("open");
    let trickling = async {
        while leader.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let ended = tokio::select! {
        ended = serving => ended.expect("no panic").expect_err("it trickles"),
        () = trickling => panic!("it ends with its own reason"),
        () = tokio::time::sleep(PATIENCE) => panic!("it goes on"),
    };
    assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn unfinished_frames_take_no_more_than_their_budget() {
    let limits = PortLimits {
        unfinished_bytes_max: 200 << 10,
        ..PortLimits::default()
    };
    let (mut leader, serving, _) = peer(16 << 10, limits);
    leader.write_all(&hello(1)).await.expect("open");
    let body = vec![0xff; 200 << 10];
    // Complete ones are given back.
    for call in 1..4 {
        leader
            .write_all(&frame(Kind::One, call, &body))
            .await
            .expect("within the budget");
    }
    let head = Head::encode(BODY_BYTES_MAX, Kind::One, 4);
    leader.write_all(&head).await.expect("open");
    let sending = async { while leader.write_all(&[0; 1000]).await.is_ok() {} };
    let ended = tokio::time::timeout(PATIENCE, async { tokio::join!(sending, serving).1 }).await;
    let ended = ended.expect("it ends").expect("no panic");
    let ended = ended.expect_err("beyond the budget").to_string();
    assert!(ended.contains("too many unfinished messages"), "{ended}");
}

/// What a member from before answers: HTTP/2, or the end of the connection.
#[tokio::test]
async fn a_peer_that_does_not_know_the_preface_is_no_failure() {
    for answer in [
        &b""[..],
        b"\0\0\0\x04\0\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\0\0",
    ] {
        let (leader, mut other) = duplex(64 << 10);
        let answering = tokio::spawn(async move {
            other.write_all(answer).await.expect("open");
            drop(other);
        });
        let found = connect(Box::new(leader), BODY_BYTES_MAX).await;
        assert!(found.expect("no failure").is_none());
        answering.await.expect("no panic");
    }
}

/// The beginning of a connection that is another one is not lost.
#[tokio::test]
async fn what_was_read_of_another_connection_is_read_again() {
    for bytes in [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n and more"[..],
        b"frames.bowline",
        b"",
    ] {
        let (mut writing, mut stream) = duplex(5);
        let sending = tokio::spawn(async move {
            writing.write_all(bytes).await.expect("open");
        });
        let Ok(Sniffed::Other(read)) = sniff(&mut stream).await else {
            panic!("it is another");
        };
        let mut all = Vec::new();
        Begun::new(read, stream)
            .read_to_end(&mut all)
            .await
            .expect("open");
        assert_eq!(all, bytes);
        sending.await.expect("no panic");
    }
}

/// An entry that the log keeps must not hold on to the buffer of a whole read.
#[tokio::test]
async fn a_short_body_has_memory_of_its_own() {
    let body = Bytes::from(vec![1; 100]);
    let mut read = BytesMut::new();
    for call in 1..3 {
        read.extend_from_slice(&frame(Kind::Append, call, &body));
    }
    let range = read.as_ptr_range();
    let (stream, _other) = duplex(1);
    let mut frames = Frames::new(stream, read, BODY_BYTES_MAX);
    for _ in 0..2 {
        let next = std::future::poll_fn(|task| frames.poll_frame(task)).await;
        let found = next.expect("no failure").expect("a frame").body;
        assert_eq!(found, body);
        assert!(!range.contains(&found.as_ptr()));
    }
}

/// A peer at an address, which serves so many connections.
async fn listening() -> (Arc<AtomicUsize>, Link) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let accepted = Arc::new(AtomicUsize::new(0));
    let counted = accepted.clone();
    tokio::spawn(async move {
        let port = Port::new(PortLimits::default());
        while let Ok((mut stream, address)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let connected = port.connect(address.ip()).expect("few");
            tokio::spawn(async move {
                let Ok(Sniffed::Frames(read)) = sniff(&mut stream).await else {
                    return;
                };
                let appends: Arc<dyn Appends> = Arc::new(Arc::new(Echo::default()));
                let _ = serve(stream, read, appends, connected, BODY_BYTES_MAX).await;
            });
        }
    });
    (
        accepted,
        Link::new(1, vec![url], PeerOptions::default(), Arc::default()),
    )
}

/// A call that fails does so after its connection was used: the next call must not get that one.
#[tokio::test]
async fn a_connection_is_used_again_unless_a_call_has_failed_since() {
    let (accepted, link) = listening().await;
    let taken = || async {
        let taken = link.frames(Lane::Log).await.expect("reached");
        taken.expect("it speaks frames")
    };
    for (fails, expected) in [(false, 1), (false, 1), (true, 1), (false, 2), (false, 2)] {
        let (frames, generation) = taken().await;
        assert_eq!(accepted.load(Ordering::SeqCst), expected);
        if fails {
            link.failed(Lane::Log, &Status::deadline_exceeded("no answer"));
        }
        link.give_back(Lane::Log, generation, frames);
    }
    // Lanes do not share theirs.
    let heartbeat = link.frames(Lane::Heartbeat).await.expect("reached");
    assert!(heartbeat.is_some());
    assert_eq!(accepted.load(Ordering::SeqCst), 3);
}

/// Over TLS, the end of a request that did not fit into the socket was sent with the next request.
#[tokio::test]
async fn what_a_stream_buffers_is_flushed() {
    let (near, mut far) = duplex(1 << 20);
    let near = tokio::io::BufWriter::with_capacity(1 << 20, near);
    let mut frames = Frames::new(near, BytesMut::new(), BODY_BYTES_MAX);
    frames.push_preface();
    assert!(frames.has_output());
    let written = std::future::poll_fn(|task| frames.poll_write(task));
    tokio::time::timeout(PATIENCE, written)
        .await
        .expect("in time")
        .expect("written");
    assert!(!frames.has_output());
    let mut read = [0; PREFACE.len()];
    let arrived = tokio::time::timeout(PATIENCE, far.read_exact(&mut read)).await;
    arrived.expect("all is flushed").expect("read");
    assert_eq!(&read, PREFACE);
}
