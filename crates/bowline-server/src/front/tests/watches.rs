//! Watches are served here as through the libraries.

use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use pb::watch_request::RequestUnion;
use prost::Message;

use super::super::frame::{flag, kind, setting};
use super::super::{CONNECTION_WINDOW, STREAM_WINDOW};
use super::client::{Client, Reply, block, data, fields, frame, framed, headers, request};
use super::{DELETE, PUT, RANGE, TXN, WATCH, put, range, txn, watch};
use crate::test_server::TestServer;

fn request_of(union: RequestUnion) -> pb::WatchRequest {
    pb::WatchRequest {
        request_union: Some(union),
    }
}

fn create(change: impl FnOnce(&mut pb::WatchCreateRequest)) -> pb::WatchRequest {
    let mut create = pb::WatchCreateRequest {
        key: "k".into(),
        range_end: "l".into(),
        ..pb::WatchCreateRequest::default()
    };
    change(&mut create);
    request_of(RequestUnion::CreateRequest(create))
}

fn cancel(watch_id: i64) -> pb::WatchRequest {
    request_of(RequestUnion::CancelRequest(pb::WatchCancelRequest {
        watch_id,
    }))
}

fn progress() -> pb::WatchRequest {
    request_of(RequestUnion::ProgressRequest(
        pb::WatchProgressRequest::default(),
    ))
}

/// The messages of a stream, without what differs from server to server.
fn messages(reply: &Reply) -> Vec<pb::WatchResponse> {
    let mut found = Vec::new();
    let mut rest = &reply.data[..];
    while let Some((prefix, after)) = rest.split_first_chunk::<5>() {
        let bytes = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
        let Some(message) = after.get(..bytes) else {
            break;
        };
        assert_eq!(prefix[0], 0);
        let mut message = pb::WatchResponse::decode(message).unwrap();
        if let Some(header) = &mut message.header {
            assert!(header.member_id != 0 && header.cluster_id != 0 && header.raft_term != 0);
            (header.member_id, header.cluster_id, header.raft_term) = (0, 0, 0);
        }
        found.push(message);
        rest = &after[bytes..];
    }
    found
}

/// Waits until so many messages have come, and those of each watch in their order: between watches there is none.
async fn messages_of(client: &mut Client, id: u32, count: usize) -> Vec<pb::WatchResponse> {
    let count_of = |reply: &Reply| messages(reply).len();
    client
        .until(|client| {
            client
                .replies
                .get(&id)
                .is_some_and(|it| count_of(it) >= count || it.is_over())
        })
        .await;
    let mut found = messages(&client.replies[&id]);
    found.sort_by_key(|message| message.watch_id);
    found
}

/// How many events the stream 1 has brought.
fn events(client: &Client) -> usize {
    let found = client.replies.get(&1).map(messages).unwrap_or_default();
    found.iter().map(|it| it.events.len()).sum()
}

async fn ask(client: &mut Client, id: u32, path: &str, message: &impl Message) {
    client.send(&request(id, path, message)).await;
    assert_eq!(client.reply(id).await.status(), "0");
}

/// What a client sees of watches of all kinds, on one connection.
async fn see(server: &TestServer) -> Vec<Vec<pb::WatchResponse>> {
    let mut client = Client::connect(server, &[]).await;
    let mut seen = Vec::new();
    // The reply's head comes before a request.
    client.send(&headers(1, WATCH)).await;
    client.until(|client| client.replies.contains_key(&1)).await;
    let head = client.replies[&1].fields.clone();
    assert_eq!(head[":status"], "200");
    assert_eq!(head["content-type"], "application/grpc");
    let asked = [
        create(|_| {}),
        create(|_| {}),
        create(|it| it.prev_kv = true),
        create(|it| it.filters = vec![0]),
        create(|it| it.filters = vec![1]),
        create(|it| it.range_end = "".into()),
        create(|it| it.watch_id = 40),
        create(|it| it.watch_id = 40),
        create(|it| it.start_revision = -1),
        create(|it| it.range_end = "a".into()),
        create(|it| it.fragment = true),
    ];
    let asked_bytes: Vec<u8> = asked.iter().flat_map(framed).collect();
    // Cut anywhere.
    for part in asked_bytes.chunks(7) {
        client.send(&data(1, part, false)).await;
    }
    seen.push(messages_of(&mut client, 1, 11).await);
    // Each message has the events of one revision, for the client has received those of the revision before.
    ask(&mut client, 3, PUT, &put("k", "1")).await;
    client.until(|it| events(it) == 7).await;
    ask(&mut client, 5, PUT, &put("k", "2")).await;
    client.until(|it| events(it) == 14).await;
    ask(&mut client, 7, PUT, &put("k2", &"x".repeat(100_000))).await;
    client.until(|it| events(it) == 20).await;
    let delete = pb::DeleteRangeRequest {
        key: "k".into(),
        range_end: "l".into(),
        ..pb::DeleteRangeRequest::default()
    };
    ask(&mut client, 9, DELETE, &delete).await;
    client.until(|it| events(it) == 5 * 5 + 2 + 3 + 3).await;
    let mut found = messages(&client.replies[&1]);
    found.sort_by_key(|message| message.watch_id);
    seen.push(found);
    let before = messages(&client.replies[&1]).len();
    client.send(&data(1, &framed(&progress()), false)).await;
    messages_of(&mut client, 1, before + 1).await;
    let more = [cancel(0), cancel(77), cancel(40)];
    let more: Vec<u8> = more.iter().flat_map(framed).collect();
    client.send(&data(1, &more, false)).await;
    messages_of(&mut client, 1, before + 3).await;
    // The client has no more to ask, and still receives.
    client.send(&data(1, &[], true)).await;
    ask(&mut client, 11, PUT, &put("k", "3")).await;
    seen.push(messages_of(&mut client, 1, before + 3 + 5).await);
    assert!(!client.replies[&1].is_over());
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_see_the_same() {
    let ours = TestServer::start().await;
    let theirs = TestServer::start_with(|config| config.has_front = false).await;
    let (ours, theirs) = (see(&ours).await, see(&theirs).await);
    for (number, (one, other)) in ours.iter().zip(&theirs).enumerate() {
        for (one, other) in one.iter().zip(other) {
            // Not printed as a whole: it may be large.
            assert!(one == other, "{number}: {:.300?}, {:.300?}", one, other);
        }
        assert_eq!(one.len(), other.len(), "{number}");
    }
}

/// The end of a stream whose client has sent something wrong behind a proper request.
async fn end_of(server: &TestServer, more: &[u8], has_ended: bool) -> (Reply, usize) {
    let mut client = Client::connect(server, &[]).await;
    client.send(&headers(1, WATCH)).await;
    client.send(&data(1, &framed(&watch("k")), false)).await;
    messages_of(&mut client, 1, 1).await;
    for part in more.chunks(200_000) {
        if client.replies[&1].is_over() {
            break;
        }
        client.send(&data(1, part, false)).await;
        client.read_for(Duration::from_millis(5)).await;
    }
    if has_ended {
        client.send(&data(1, &[], true)).await;
    }
    let mut reply = client.reply(1).await;
    reply.fields.remove("date");
    // It may follow the end, as not all was read.
    reply.reset = None;
    let count = messages(&reply).len();
    reply.data.clear();
    // Others are served.
    client.send(&request(3, RANGE, &range("k"))).await;
    let _: pb::RangeResponse = client.reply(3).await.message();
    (reply, count)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_ends_a_stream_in_the_same_words() {
    let ours = TestServer::start().await;
    let theirs = TestServer::start_with(|config| config.has_front = false).await;
    let large = create(|it| it.key = vec![b'x'; 4 << 20].into());
    for (name, more, has_ended) in [
        ("a compressed message", vec![1, 0, 0, 0, 1, 7], false),
        ("an unknown flag", vec![9, 0, 0, 0, 1, 7], false),
        (
            "what is no message",
            vec![0, 0, 0, 0, 3, 0xff, 0xff, 0xff],
            false,
        ),
        ("one that is too large", framed(&large), false),
        ("half a message", vec![0, 0, 0, 0, 9, 1], true),
        ("half a prefix", vec![0, 0], true),
    ] {
        let (our_end, their_end) = (
            end_of(&ours, &more, has_ended).await,
            end_of(&theirs, &more, has_ended).await,
        );
        assert_eq!(our_end, their_end, "{name}");
        assert_ne!(our_end.0.status(), "0", "{name}");
    }
    let free = |server: &TestServer| server.context().memory.used();
    while free(&ours) > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Requests beyond the windows, of which the server gives back as much as it has handled.
#[tokio::test(flavor = "multi_thread")]
async fn windows_of_requests_are_given_back() {
    let server = TestServer::start().await;
    let mut client = Client::connect(&server, &[]).await;
    client.send(&headers(1, WATCH)).await;
    let large = create(|it| {
        it.key = vec![b'x'; 300_000].into();
        it.range_end = Vec::new().into();
    });
    const COUNT: usize = 20;
    for number in 0..COUNT {
        client.send(&data(1, &framed(&large), false)).await;
        messages_of(&mut client, 1, number + 1).await;
        client
            .send(&data(1, &framed(&cancel(number as i64)), false))
            .await;
    }
    let found = messages_of(&mut client, 1, 2 * COUNT).await;
    assert_eq!(found.iter().filter(|it| it.canceled).count(), COUNT);
    let sent = COUNT as u32 * 300_000;
    assert!(sent > STREAM_WINDOW + CONNECTION_WINDOW);
    let of_stream = client.updates[&1];
    assert!(
        of_stream > sent - STREAM_WINDOW && of_stream < sent + 40_000,
        "{of_stream}"
    );
    // One request that is larger than the window arrives, too.
    let larger = create(|it| {
        it.key = vec![b'y'; 1_400_000].into();
        it.range_end = Vec::new().into();
    });
    for part in framed(&larger).chunks(400_000) {
        client.send(&data(1, part, false)).await;
        client.read_for(Duration::from_millis(20)).await;
    }
    messages_of(&mut client, 1, 2 * COUNT + 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_request_has_its_time_and_no_more() {
    let change = |config: &mut crate::config::Config| {
        config.partial_request_timeout = Duration::from_millis(300);
    };
    let server = TestServer::start_with(change).await;
    let mut client = Client::connect(&server, &[]).await;
    // A stream that waits for nothing has all the time.
    client
        .send(&[headers(1, WATCH), headers(3, WATCH)].concat())
        .await;
    client.send(&data(3, &framed(&watch("k")), false)).await;
    client.send(&data(3, &[0, 0, 0], false)).await;
    let ended = client.reply(3).await;
    assert_eq!(ended.status(), "4", "{ended:?}");
    assert_eq!(server.context().memory.late_requests.get(), 1);
    client.send(&data(1, &framed(&watch("k")), false)).await;
    assert_eq!(messages_of(&mut client, 1, 1).await.len(), 1);
    assert!(!client.replies[&1].is_over());
}

/// A client that opens no window for its messages; another stream of the connection has one.
#[tokio::test(flavor = "multi_thread")]
async fn messages_that_are_not_read_end_their_stream_alone() {
    let change = |config: &mut crate::config::Config| {
        config.unread_reply_timeout = Duration::from_millis(400);
    };
    let server = TestServer::start_with(change).await;
    let mut client = Client::connect(&server, &[(setting::INITIAL_WINDOW_SIZE, 0)]).await;
    client.renews = false;
    for id in [1, 3] {
        client.send(&headers(id, WATCH)).await;
        client.send(&data(id, &framed(&watch("k")), false)).await;
    }
    let mut window = Vec::new();
    super::super::frame::write_window_update(&mut window, 3, 1 << 20);
    client.send(&window).await;
    let unread = client.reply(1).await;
    assert_eq!(unread.reset, Some(8), "{unread:?}");
    assert_eq!(server.context().memory.unread_replies.get(), 1);
    let mut other = Client::connect(&server, &[]).await;
    ask(&mut other, 1, PUT, &put("k", "v")).await;
    assert_eq!(messages_of(&mut client, 3, 2).await.len(), 2);
    assert!(!client.replies[&3].is_over());
}

/// Windows that are opened a little at a time cut messages anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn messages_are_cut_where_the_window_ends() {
    let server = TestServer::start().await;
    let mut client = Client::connect(&server, &[(setting::INITIAL_WINDOW_SIZE, 0)]).await;
    client.renews = false;
    let two = [create(|_| {}), create(|it| it.prev_kv = true)];
    let two: Vec<u8> = two.iter().flat_map(framed).collect();
    client
        .send(&[headers(1, WATCH), data(1, &two, false)].concat())
        .await;
    // Both watches begin before the first put: they tell of what is put after they were created.
    let mut window = Vec::new();
    super::super::frame::write_window_update(&mut window, 1, 200);
    client.send(&window).await;
    assert_eq!(messages_of(&mut client, 1, 2).await.len(), 2);
    let mut other = Client::connect(&server, &[]).await;
    for number in 0..3 {
        let value = number.to_string().repeat(20_000);
        ask(&mut other, 2 * number + 1, PUT, &put("k", &value)).await;
    }
    let mut random = fastrand::Rng::with_seed(7);
    let events = |client: &Client| -> Vec<(i64, i64)> {
        let found = client.replies.get(&1).map(messages).unwrap_or_default();
        let of_one = |message: &pb::WatchResponse| {
            let id = message.watch_id;
            let revisions = message.events.iter().filter_map(|event| event.kv.as_ref());
            revisions
                .map(|kv| (id, kv.mod_revision))
                .collect::<Vec<_>>()
        };
        found.iter().flat_map(of_one).collect()
    };
    while events(&client).len() < 6 {
        let before = client.replies.get(&1).map_or(0, |reply| reply.data.len());
        let step = random.u32(1..9000);
        let mut window = Vec::new();
        for id in [0, 1] {
            super::super::frame::write_window_update(&mut window, id, step);
        }
        client.send(&window).await;
        client
            .until(|client| {
                client
                    .replies
                    .get(&1)
                    .is_some_and(|it| it.data.len() > before)
            })
            .await;
    }
    let mut found = events(&client);
    found.sort_unstable();
    assert_eq!(found, [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)]);
}

/// A call that needs a leader, and one whose head says what is not known here.
#[tokio::test(flavor = "multi_thread")]
async fn unusual_heads_go_to_the_library() {
    let server = TestServer::start().await;
    let mut client = Client::connect(&server, &[]).await;
    for (id, more) in [
        (1, &[("hasleader", "true")][..]),
        (3, &[("grpc-encoding", "gzip")]),
        (5, &[("content-length", "99")]),
    ] {
        let fields = [&fields(WATCH)[..], more].concat();
        client
            .send(&frame(
                kind::HEADERS,
                flag::END_HEADERS,
                id,
                &block(&fields),
            ))
            .await;
        let is_last = id == 5;
        client.send(&data(id, &framed(&watch("k")), is_last)).await;
    }
    assert_eq!(messages_of(&mut client, 1, 1).await.len(), 1);
    assert_eq!(client.reply(3).await.status(), "12");
    assert!(client.reply(5).await.reset.is_some());
}

/// Equal watches, two of which want a large revision in fragments: each of these gets its own.
#[tokio::test(flavor = "multi_thread")]
async fn who_asked_for_fragments_receives_them() {
    use pb::request_op::Request as Op;
    let server = TestServer::start_with(|config| config.max_request_bytes = 900_000).await;
    let mut client = Client::connect(&server, &[]).await;
    let of = |fragment| {
        create(|it| {
            it.prev_kv = true;
            it.fragment = fragment;
        })
    };
    let asked: Vec<u8> = [false, true, true]
        .iter()
        .flat_map(|it| framed(&of(*it)))
        .collect();
    client
        .send(&[headers(1, WATCH), data(1, &asked, false)].concat())
        .await;
    // All three are there before the first put.
    assert_eq!(messages_of(&mut client, 1, 3).await.len(), 3);
    // With the values of before, a revision is larger than a message may be.
    let mut other = Client::connect(&server, &[]).await;
    for value in ["a", "b"] {
        let puts = (0..100).map(|number| put(&format!("k{number}"), &value.repeat(8_000)));
        let txn = txn(puts.map(Op::RequestPut).collect());
        let id = if value == "a" { 1 } else { 3 };
        ask(&mut other, id, TXN, &txn).await;
    }
    client.until(|client| events(client) == 600).await;
    let found = messages(&client.replies[&1]);
    for id in 0..3 {
        let of_one = found.iter().filter(|it| it.watch_id == id && !it.created);
        let fragments = of_one.clone().filter(|it| it.fragment).count();
        let events: usize = of_one.map(|it| it.events.len()).sum();
        assert_eq!((events, fragments > 0), (200, id > 0), "watch {id}");
    }
}
