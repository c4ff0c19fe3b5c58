//! A connection without a socket: what waits in it, and what it costs.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as Task, Poll};
use std::time::Duration;

use bowline_cluster::ReadLevel;
use bowline_proto::{etcdserverpb as pb, mvccpb};
use bytes::Bytes;
use http_body::Frame;
use tokio::time::Instant;
use tonic::Status;

use super::super::calls::StreamWaker;
use super::super::connection::{Connection, Held, OUT_BYTES_MAX, PING_DRAIN, Start};
use super::super::frame::{
    FRAME_BYTES_MIN, FrameHead, HEAD_BYTES, Partial, Reason, WINDOW, WINDOW_MAX, flag, kind,
    setting, write_settings, write_window_update,
};
use super::super::hot::{self, HotMessage, HotReply};
use super::super::hpack::write_string;
use super::super::reply::EMPTY_TABLE;
use super::super::stream::{Call, LongBody, Sending, Stream};
use super::super::windows::SETTINGS_MAX;
use super::super::{CONNECTION_WINDOW, Front, Limits, RELAY_WINDOW};
use super::client::{block, data, fields, frame, headers};
use super::{KEEP_ALIVE, PUT};
use crate::memory::{FLOOR_BYTES, Memory};
use crate::metrics::{Method, Tally};
use crate::test_server::TestServer;

const TIMEOUT: Duration = Duration::from_secs(60);

/// A connection after its settings, whose library never answers.
fn connection(
    server: &TestServer,
    bytes_max: usize,
) -> Connection<impl Future<Output = Result<HotReply, Status>> + use<>> {
    let start: Start<_> = hot::call;
    let limits = Limits {
        streams_max: 8192,
        header_bytes_max: 64 << 10,
        partial_timeout: TIMEOUT,
        unread_timeout: TIMEOUT,
        keep_alive_interval: Some(TIMEOUT),
        keep_alive_timeout: TIMEOUT,
    };
    let open = Box::new(|pipe| {
        let served: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            let _pipe: tokio::io::DuplexStream = pipe;
            std::future::pending::<()>().await;
        });
        served
    });
    let account = Memory::new(64 << 20, bytes_max).account();
    let mut connection = Connection::new(server.context().clone(), account, start, limits, open);
    connection.receive(&settings(&[])).unwrap();
    connection.out.clear();
    connection
}

fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut out = Vec::new();
    write_settings(&mut out, settings);
    out
}

fn window(id: u32, bytes: u32) -> Vec<u8> {
    let mut out = Vec::new();
    write_window_update(&mut out, id, bytes);
    out
}

/// The heads of frames.
fn frames(mut bytes: &[u8]) -> Vec<FrameHead> {
    let mut partial = Partial::default();
    let mut heads = Vec::new();
    while let Some(head) = partial.next(&mut bytes, 1 << 24, |head, _| head).unwrap() {
        heads.push(head);
    }
    heads
}

fn reply(bytes: usize) -> HotReply {
    let found = mvccpb::KeyValue {
        value: vec![7; bytes].into(),
        ..mvccpb::KeyValue::default()
    };
    HotReply {
        message: HotMessage::Range(pb::RangeResponse {
            kvs: vec![found],
            ..pb::RangeResponse::default()
        }),
        encoded: None,
        long: None,
        applied: 1,
        level: Some(ReadLevel::Linearizable),
    }
}

fn call() -> Call {
    Call {
        send_window: WINDOW_MAX,
        tally: Tally::begin(&Arc::default(), Method::Range, Instant::now()),
        principal: None,
    }
}

/// A field of 3,700 bytes, which is inserted; later it is one byte.
fn long_field() -> Vec<u8> {
    let mut field = vec![0x40, 1, b'a'];
    write_string(&mut field, &[b'x'; 3700]);
    field
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_of_a_few_bytes_do_not_fill_the_relay() {
    let server = TestServer::start().await;
    let mut connection = connection(&server, 64 << 20);
    let (start, all) = ([0x82, 0x86, 0x84], flag::END_HEADERS | flag::END_STREAM);
    let first = [&start[..], &long_field()].concat();
    let mut input = frame(kind::HEADERS, all, 1, &first);
    let block = [&start[..], &[0xbe; 15]].concat();
    for number in 1..2400 {
        input.extend(frame(kind::HEADERS, all, 2 * number + 1, &block));
    }
    connection.receive(&input).unwrap();
    let queued = connection.relay.as_ref().unwrap().queued();
    assert!(queued > 512 << 10 && queued < 1 << 20, "{queued}");
    let refused = frames(&connection.out);
    assert!(refused.len() > 2300);
    assert!(refused.iter().all(|head| head.kind == kind::RST_STREAM));
    assert!(connection.account.used() >= queued / 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_heads_are_charged_while_their_requests_arrive() {
    let server = TestServer::start().await;
    let mut connection = connection(&server, 1 << 20);
    let usual = block(&fields(PUT));
    let first = [&usual[..], &long_field()].concat();
    let mut input = frame(kind::HEADERS, flag::END_HEADERS, 1, &first);
    let block = [&usual[..], &[0xbe; 15]].concat();
    for number in 1..200 {
        let id = 2 * number + 1;
        input.extend(frame(kind::HEADERS, flag::END_HEADERS, id, &block));
    }
    connection.receive(&input).unwrap();
    let open = connection.streams.len();
    assert!((15..25).contains(&open), "{open}");
    let used = connection.account.used();
    assert!(used > 900_000 && used <= (1 << 20) + FLOOR_BYTES, "{used}");
    // Each of the others has a refusal, and a reset since its request was not complete.
    assert_eq!(frames(&connection.out).len(), 2 * (200 - open));
    let account = connection.account.clone();
    drop(connection);
    assert_eq!(account.used(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_window_of_a_frame_of_settings_is_applied_once() {
    let server = TestServer::start().await;
    let mut connection = connection(&server, 1 << 20);
    connection
        .receive(&[headers(1, PUT), window(1, 7)].concat())
        .unwrap();
    // One in between would open the window too far.
    let name = setting::INITIAL_WINDOW_SIZE;
    let windows = [(name, (1 << 31) - 1), (name, 5)];
    connection.receive(&settings(&windows)).unwrap();
    let Some(Stream::Receiving(stream)) = connection.streams.get(&1) else {
        panic!("it is gone");
    };
    assert_eq!((stream.send_window, connection.followed.window), (12, 5));
    let wrong = [(name, 1 << 31), (name, 5)];
    let result = connection.receive(&settings(&wrong));
    assert_eq!(result, Err(Reason::FlowControl));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_not_send_settings_all_the_time() {
    let server = TestServer::start().await;
    let mut connection = connection(&server, 1 << 20);
    let name = setting::INITIAL_WINDOW_SIZE;
    for number in 1..SETTINGS_MAX {
        connection.receive(&settings(&[(name, number)])).unwrap();
    }
    let result = connection.receive(&settings(&[(name, 7)]));
    assert_eq!(result, Err(Reason::EnhanceYourCalm));
    connection.now += Duration::from_secs(60);
    connection.receive(&settings(&[(name, 7)])).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_reply_is_charged_however_long_the_frames_of_the_client() {
    const BYTES: usize = 1_000_000;
    let server = TestServer::start().await;
    let mut connection = connection(&server, 16 << 20);
    let wide = settings(&[(setting::MAX_FRAME_SIZE, (1 << 24) - 1)]);
    let window = window(0, (WINDOW_MAX - WINDOW) as u32);
    connection.receive(&[wide, window].concat()).unwrap();
    connection.out.clear();
    connection.answer(1, call(), Ok(reply(BYTES)));
    assert!(connection.out.len() < 1000);
    assert!(connection.account.used() >= BYTES);
    let mut sent = 0;
    while connection.send() {
        let bytes = connection.out.len();
        assert!(bytes < OUT_BYTES_MAX + FRAME_BYTES_MIN + 1000, "{bytes}");
        sent += bytes;
        connection.out.clear();
    }
    assert!(sent + connection.out.len() > BYTES);
    assert_eq!(connection.account.used(), 0);
    // A short one is not charged.
    connection.out.clear();
    connection.answer(3, call(), Ok(reply(1000)));
    assert_eq!(frames(&connection.out).len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_waits_has_a_deadline() {
    let server = TestServer::start().await;
    let mut connection = connection(&server, 16 << 20);
    connection.send_window = 0;
    let before = Instant::now();
    connection.answer(1, call(), Ok(reply(1000)));
    assert!(!connection.send());
    let check = connection.unread_check.expect("it is looked at");
    assert!(check >= before + TIMEOUT && check <= Instant::now() + TIMEOUT);
    connection.out.clear();
    connection.drop_unread(check);
    assert!(connection.streams.is_empty());
    let sent = frames(&connection.out);
    assert_eq!((sent.len(), sent[0].kind), (1, kind::RST_STREAM));
    assert_eq!(connection.unread_check, None);
}

/// A reply that is made while it is sent.
struct Slow(Arc<AtomicBool>);

impl http_body::Body for Slow {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Task<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.0.load(Ordering::Relaxed) {
            true => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"part"))))),
            false => Poll::Pending,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_the_service_has_made_has_a_deadline_although_the_window_is_closed() {
    let server = TestServer::start().await;
    for (of_stream, of_connection) in [(0, 100), (100, 0)] {
        let mut connection = connection(&server, 1 << 20);
        let ready = Arc::new(AtomicBool::new(false));
        let long = LongBody {
            body: tonic::body::Body::new(Slow(ready.clone())),
            waker: StreamWaker::new(&connection.wakes, 1),
        };
        let sending = Sending {
            send_window: of_stream,
            piece: Bytes::new(),
            rest: Bytes::new(),
            charge: None,
            long: Some(long),
            since: Instant::now(),
            is_given: true,
            is_queued: true,
        };
        connection.streams.insert(1, Stream::Sending(sending));
        connection.sending.push_back(1);
        assert!(!connection.send());
        let later = |periods: u32| Instant::now() + periods * TIMEOUT + TIMEOUT / 10;
        // Its time has not begun while the service has nothing.
        connection.drop_unread(later(5));
        assert_eq!(connection.streams.len(), 1);
        connection.send_window = of_connection;
        ready.store(true, Ordering::Relaxed);
        connection.woken(1);
        assert!(!connection.send());
        connection.drop_unread(later(0));
        assert_eq!(connection.streams.len(), 1);
        connection.drop_unread(later(1));
        assert!(connection.streams.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_without_an_error_is_behind_the_rest_of_its_reply() {
    let server = TestServer::start().await;
    for (code, expected) in [
        (0_u32, &[kind::DATA, kind::HEADERS, kind::RST_STREAM][..]),
        (8, &[kind::RST_STREAM][..]),
    ] {
        let mut connection = connection(&server, 1 << 20);
        connection.receive(&headers(1, KEEP_ALIVE)).unwrap();
        connection.send_window = 0;
        let mut relay = connection.relay.take().unwrap();
        let all = flag::END_HEADERS | flag::END_STREAM;
        for (kind, flags, payload) in [
            (kind::DATA, 0, &b"reply"[..]),
            (kind::HEADERS, all, &b"\x88"[..]),
            (kind::RST_STREAM, 0, &code.to_be_bytes()[..]),
        ] {
            let head = FrameHead {
                bytes: payload.len(),
                kind,
                flags,
                id: 1,
            };
            connection
                .frame_of_library(&mut relay, head, payload)
                .unwrap();
        }
        connection.relay = Some(relay);
        // What the client sends in the meantime is late.
        connection
            .receive(&frame(kind::DATA, 0, 1, b"late"))
            .unwrap();
        connection.send_window = 100;
        connection.send();
        let kinds: Vec<u8> = frames(&connection.out)
            .iter()
            .map(|head| head.kind)
            .collect();
        assert_eq!(kinds, expected);
        assert!(connection.streams.is_empty() && connection.held.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn small_frames_that_wait_are_joined() {
    let server = TestServer::start().await;
    let mut connection = connection(&server, 1 << 20);
    let watches = [headers(1, KEEP_ALIVE), headers(3, KEEP_ALIVE)].concat();
    connection.receive(&watches).unwrap();
    connection.send_window = 0;
    let mut sent = [Vec::new(), Vec::new()];
    for number in 0..8000_u32 {
        let stream = number as usize % 2;
        let payload = number.to_be_bytes();
        from_library(
            &mut connection,
            (kind::DATA, 0, 2 * stream as u32 + 1),
            &payload,
        );
        sent[stream].extend(payload);
    }
    assert_eq!(connection.held.len(), 2);
    // What follows the end of a head is not before it.
    let all = flag::END_HEADERS | flag::END_STREAM;
    from_library(&mut connection, (kind::HEADERS, all, 1), b"\x88");
    from_library(&mut connection, (kind::DATA, flag::END_STREAM, 3), b"last");
    sent[1].extend(b"last");
    assert_eq!(connection.held.len(), 3);
    connection.out.clear();
    connection.send_window = 1 << 20;
    while connection.send() {}
    let mut partial = Partial::default();
    let (mut input, mut received) = (&connection.out[..], [Vec::new(), Vec::new()]);
    let mut ends = Vec::new();
    let mut take = |head: FrameHead, payload: &[u8]| {
        if head.kind == kind::DATA {
            received[head.id as usize / 2].extend_from_slice(payload);
        }
        if head.has(flag::END_STREAM) {
            ends.push((head.kind, head.id));
        }
    };
    while partial
        .next(&mut input, 1 << 24, &mut take)
        .unwrap()
        .is_some()
    {}
    assert_eq!(received, sent);
    ends.sort_unstable();
    assert_eq!(ends, [(kind::DATA, 3), (kind::HEADERS, 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_an_acknowledgement_is_not_joined_to_what_is_before_it() {
    let server = TestServer::start().await;
    let mut connection = connection(&server, 1 << 20);
    connection.receive(&headers(1, KEEP_ALIVE)).unwrap();
    let change = settings(&[(setting::INITIAL_WINDOW_SIZE, 100_000)]);
    connection.receive(&change).unwrap();
    connection.send_window = 0;
    from_library(&mut connection, (kind::SETTINGS, flag::ACK, 0), b"");
    from_library(&mut connection, (kind::DATA, 0, 1), b"before");
    from_library(&mut connection, (kind::SETTINGS, flag::ACK, 0), b"");
    from_library(&mut connection, (kind::DATA, 0, 1), b"behind");
    connection.out.clear();
    connection.send_window = 100;
    connection.send();
    let sent = frames(&connection.out);
    let kinds: Vec<u8> = sent.iter().map(|head| head.kind).collect();
    assert_eq!(kinds, [kind::DATA, kind::SETTINGS, kind::DATA]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_library_leaves_nothing_that_waits() {
    let server = TestServer::start().await;
    let mut connection = connection(&server, 1 << 20);
    let watches = [headers(1, KEEP_ALIVE), headers(3, KEEP_ALIVE)].concat();
    connection.receive(&watches).unwrap();
    connection.send_window = 0;
    // One reply is over but for the window, the other is not.
    let all = flag::END_HEADERS | flag::END_STREAM;
    from_library(&mut connection, (kind::DATA, 0, 1), b"reply");
    from_library(&mut connection, (kind::HEADERS, all, 1), b"\x88");
    let reset = 0_u32.to_be_bytes();
    from_library(&mut connection, (kind::RST_STREAM, 0, 1), &reset);
    from_library(&mut connection, (kind::DATA, 0, 3), b"part");
    // The library acknowledges its first settings and one frame of the client's, and not the other one.
    let change = |window| settings(&[(setting::INITIAL_WINDOW_SIZE, window)]);
    let changes = [change(100), change(200)].concat();
    connection.receive(&changes).unwrap();
    for _ in 0..2 {
        from_library(&mut connection, (kind::SETTINGS, flag::ACK, 0), b"");
    }
    connection.out.clear();
    let mut relay = connection.relay.take().unwrap();
    connection.end_of_library(&mut relay);
    assert!(connection.streams.is_empty() && connection.held.is_empty());
    let mut sent: Vec<_> = frames(&connection.out)
        .iter()
        .map(|head| (head.kind, head.id))
        .collect();
    sent.sort_unstable();
    let settings = (kind::SETTINGS, 0);
    let expected = [
        (kind::RST_STREAM, 1),
        (kind::RST_STREAM, 3),
        settings,
        settings,
    ];
    assert_eq!(sent, expected);
    // Later data of the client is late, and no fault.
    connection.out.clear();
    let late = frame(kind::DATA, 0, 3, b"late");
    connection.receive(&late).unwrap();
    assert!(connection.out.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_and_what_the_library_sends_share_a_narrow_window() {
    const HELD: usize = 40 << 10;
    let server = TestServer::start().await;
    let mut connection = connection(&server, 16 << 20);
    connection.receive(&headers(1, KEEP_ALIVE)).unwrap();
    connection.send_window = 0;
    connection.held.push_back(Held {
        id: 1,
        kind: kind::DATA,
        flags: flag::END_STREAM,
        payload: vec![1; HELD].into(),
    });
    connection.answer(3, call(), Ok(reply(HELD)));
    let mut sent = [0, 0];
    for round in 0..12 {
        connection.out.clear();
        connection.receive(&window(0, 8 << 10)).unwrap();
        // New replies do not overtake what waits.
        connection.answer(2 * round + 5, call(), Ok(reply(1000)));
        connection.send();
        for head in frames(&connection.out) {
            match (head.kind, head.id) {
                (kind::DATA, 1) => {
                    sent[0] += head.bytes;
                    assert_eq!(head.has(flag::END_STREAM), sent[0] == HELD);
                }
                (kind::DATA, 3) => sent[1] += head.bytes,
                _ => {}
            }
        }
        if round == 3 {
            assert!(sent.iter().all(|bytes| *bytes >= 8 << 10), "{sent:?}");
        }
    }
    assert_eq!(sent[0], HELD);
    assert!(sent[1] > HELD / 4, "{sent:?}");
    assert!(connection.out.len() > HEAD_BYTES && connection.held.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_library_gets_nothing_before_it_has_announced_its_windows() {
    let server = TestServer::start().await;
    let mut connection = connection(&server, 1 << 20);
    let part = data(1, &[0; 60_000], false);
    connection
        .receive(&[headers(1, KEEP_ALIVE), part].concat())
        .unwrap();
    let relay = connection.relay.as_ref().unwrap();
    assert!(relay.queued() > 60_000);
    assert!(relay.ready() < 200, "{}", relay.ready());
    from_library(&mut connection, (kind::SETTINGS, 0, 0), b"");
    let relay = connection.relay.as_ref().unwrap();
    assert_eq!(relay.ready(), relay.queued());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_grant_of_the_library_counts_once() {
    let server = TestServer::start().await;
    let mut connection = connection(&server, 1 << 20);
    connection.receive(&headers(1, KEEP_ALIVE)).unwrap();
    let relay = connection.relay.as_mut().unwrap();
    assert_eq!(relay.send_window(), i64::from(RELAY_WINDOW));
    let granted = RELAY_WINDOW - WINDOW as u32;
    assert_eq!(relay.take_credit(granted), 0);
    assert_eq!(relay.send_window(), i64::from(RELAY_WINDOW));
    assert_eq!(relay.take_credit(10), 10);
    assert_eq!(relay.send_window(), i64::from(RELAY_WINDOW) + 10);
    // The library gives nothing back before a third is used up.
    let slack = RELAY_WINDOW - CONNECTION_WINDOW;
    assert!(slack > RELAY_WINDOW / 3 + (512 << 10));
}

/// A frame of the library.
fn from_library<F: Future<Output = Result<HotReply, Status>>>(
    connection: &mut Connection<F>,
    (kind, flags, id): (u8, u8, u32),
    payload: &[u8],
) {
    let mut relay = connection.relay.take().unwrap();
    let head = FrameHead {
        bytes: payload.len(),
        kind,
        flags,
        id,
    };
    connection
        .frame_of_library(&mut relay, head, payload)
        .unwrap();
    connection.relay = Some(relay);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_acknowledged_behind_what_was_sent_before_them() {
    let server = TestServer::start().await;
    let mut connection = connection(&server, 1 << 20);
    connection.receive(&headers(1, KEEP_ALIVE)).unwrap();
    let narrow = settings(&[(setting::INITIAL_WINDOW_SIZE, 1)]);
    connection.receive(&narrow).unwrap();
    connection.send_window = 0;
    from_library(&mut connection, (kind::SETTINGS, flag::ACK, 0), b"");
    from_library(&mut connection, (kind::DATA, 0, 1), b"reply");
    from_library(&mut connection, (kind::SETTINGS, flag::ACK, 0), b"");
    assert!(connection.out.is_empty());
    connection.send_window = 5;
    connection.send();
    let sent = frames(&connection.out);
    let kinds: Vec<u8> = sent.iter().map(|head| head.kind).collect();
    assert_eq!(kinds, [kind::DATA, kind::SETTINGS]);
    assert!(sent[1].has(flag::ACK));
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_head_is_dropped_with_its_stream() {
    let server = TestServer::start().await;
    let mut connection = connection(&server, 1 << 20);
    let two = [headers(1, KEEP_ALIVE), headers(3, KEEP_ALIVE)].concat();
    connection.receive(&two).unwrap();
    from_library(&mut connection, (kind::HEADERS, 0, 1), b"\x88");
    let reset = frame(kind::RST_STREAM, 0, 1, &8_u32.to_be_bytes());
    connection.receive(&reset).unwrap();
    let whole = flag::END_HEADERS;
    from_library(&mut connection, (kind::CONTINUATION, whole, 1), b"\x88");
    from_library(&mut connection, (kind::HEADERS, whole, 3), b"\x88");
    let sent = frames(&connection.out);
    assert_eq!((sent.len(), sent[0].id, sent[0].bytes), (1, 3, 2));
    assert_eq!(connection.out[HEAD_BYTES], EMPTY_TABLE);
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_that_were_reset_leave_the_queue_although_the_window_is_closed() {
    let server = TestServer::start().await;
    let mut connection = connection(&server, 1 << 20);
    connection.send_window = 0;
    for number in 0..1000 {
        let id = 2 * number + 1;
        connection.answer(id, call(), Ok(reply(1000)));
        connection.reset(id, Reason::Cancel);
        connection.out.clear();
        assert!(!connection.send());
    }
    assert!(connection.sending.len() < 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_faults_are_forgotten() {
    let server = TestServer::start().await;
    let mut connection = connection(&server, 1 << 20);
    for number in 0..3000 {
        let id = 2 * number + 1;
        if number % 1000 == 0 {
            connection.now += Duration::from_secs(60);
        }
        let wrong = [headers(id, PUT), window(id, 0)].concat();
        connection.receive(&wrong).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_stream_of_a_drain_stays_the_last_one() {
    let server = TestServer::start().await;
    let mut connection = connection(&server, 1 << 20);
    connection.receive(&headers(1, PUT)).unwrap();
    connection.begin_drain();
    let pong = frame(kind::PING, flag::ACK, 0, &PING_DRAIN);
    connection.receive(&pong).unwrap();
    connection.receive(&headers(3, PUT)).unwrap();
    connection.out.clear();
    connection.write_goaway(0);
    assert_eq!(connection.out[HEAD_BYTES..HEAD_BYTES + 4], [0, 0, 0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_head_for_the_library_is_one_frame() {
    let server = TestServer::start().await;
    let mut connection = connection(&server, 1 << 20);
    connection.receive(&headers(1, KEEP_ALIVE)).unwrap();
    let before = connection.relay.as_ref().unwrap().queued();
    let large = "x".repeat(60_000);
    let mut fields = fields(KEEP_ALIVE);
    fields.push(("large", &large));
    let block = block(&fields);
    let head = frame(kind::HEADERS, flag::END_HEADERS, 3, &block);
    connection.receive(&head).unwrap();
    let queued = connection.relay.as_ref().unwrap().queued();
    assert_eq!(queued - before, block.len() + HEAD_BYTES);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_waits_keeps_no_output() {
    let server = TestServer::start().await;
    let mut connection = connection(&server, 1 << 20);
    connection.write_goaway(0);
    let (io, _client) = tokio::io::duplex(1 << 10);
    let mut front = Front::new(io, connection);
    for _ in 0..2 {
        std::future::poll_fn(|task| {
            assert!(Pin::new(&mut front).poll(task).is_pending());
            Poll::Ready(())
        })
        .await;
        assert_eq!(front.kept_output(), 0);
    }
}
