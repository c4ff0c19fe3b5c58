//! Windows, memory, and the ends of connections.

use std::time::Duration;

use bowline_proto::etcdserverpb as pb;

use super::super::CONNECTION_WINDOW;
use super::super::frame::{Reason, flag, kind, setting, write_settings, write_window_update};
use super::client::{Client, block, data, fields, frame, framed, headers, request};
use super::{PUT, RANGE, STATUS, WATCH, put, range, watch};
use crate::test_server::TestServer;

const SNAPSHOT: &str = "/etcdserverpb.Maintenance/Snapshot";

fn window(id: u32, bytes: u32) -> Vec<u8> {
    let mut out = Vec::new();
    write_window_update(&mut out, id, bytes);
    out
}

fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut out = Vec::new();
    write_settings(&mut out, settings);
    out
}

async fn store(server: &TestServer, key: &str, bytes: usize) -> String {
    let value: String = (0..bytes)
        .map(|at| char::from(b'a' + (at % 23) as u8))
        .collect();
    let mut client = Client::connect(server, &[]).await;
    client.send(&request(1, PUT, &put(key, &value))).await;
    let _: pb::PutResponse = client.reply(1).await.message();
    value
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_waits_for_the_window_of_its_stream_byte_by_byte() {
    let server = TestServer::start().await;
    let value = store(&server, "k", 300).await;
    // A read here, and one of the relay.
    let mut wide = range("k");
    wide.range_end = b"l".to_vec().into();
    for wanted in [range("k"), wide] {
        let mut client = Client::connect(&server, &[(setting::INITIAL_WINDOW_SIZE, 1)]).await;
        client.renews = false;
        client.send(&request(1, RANGE, &wanted)).await;
        client
            .until(|client| client.replies.get(&1).is_some_and(|it| it.data.len() == 1))
            .await;
        client.read_for(Duration::from_millis(50)).await;
        assert_eq!(client.replies[&1].data.len(), 1, "one byte is let through");
        // Another call is not held up.
        client
            .send(&settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]))
            .await;
        client.send(&request(3, RANGE, &range("k"))).await;
        client.until(|client| client.replies.contains_key(&3)).await;
        client.send(&window(3, 1000)).await;
        let _: pb::RangeResponse = client.reply(3).await.message();
        // The first one's window is negative now: three bytes open it by two.
        client.send(&window(1, 3)).await;
        client
            .until(|client| client.replies[&1].data.len() == 3)
            .await;
        client.read_for(Duration::from_millis(20)).await;
        assert_eq!(client.replies[&1].data.len(), 3);
        client
            .send(&settings(&[(setting::INITIAL_WINDOW_SIZE, 10)]))
            .await;
        client
            .until(|client| client.replies[&1].data.len() == 13)
            .await;
        while !client.replies[&1].is_over() {
            let before = client.replies[&1].data.len();
            client.send(&window(1, 7)).await;
            client
                .until(|it| it.replies[&1].data.len() > before || it.replies[&1].is_over())
                .await;
        }
        let found: pb::RangeResponse = client.reply(1).await.message();
        assert_eq!(found.kvs[0].value, value);
        assert_eq!(client.acknowledged, 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_share_the_window_of_the_connection() {
    const BYTES: usize = 30_000;
    let server = TestServer::start().await;
    let value = store(&server, "k", BYTES).await;
    let mut wide = range("k");
    wide.range_end = b"l".to_vec().into();
    let mut client = Client::connect(&server, &[]).await;
    client.renews = false;
    for number in 0..10 {
        let wanted = if number % 2 == 0 {
            range("k")
        } else {
            wide.clone()
        };
        client.send(&request(2 * number + 1, RANGE, &wanted)).await;
    }
    let received =
        |client: &Client| -> usize { client.replies.values().map(|reply| reply.data.len()).sum() };
    client.until(|client| received(client) == 65_535).await;
    client.read_for(Duration::from_millis(50)).await;
    assert_eq!(received(&client), 65_535, "all of the window, and no more");
    let mut given = 65_535;
    while client
        .replies
        .values()
        .filter(|reply| reply.has_ended)
        .count()
        < 10
    {
        client.send(&window(0, 9_999)).await;
        given += 9_999;
        client.read_for(Duration::from_millis(5)).await;
        assert!(received(&client) <= given);
        assert!(given < 20 * BYTES, "it is stuck");
    }
    for number in 0..10 {
        let found: pb::RangeResponse = client.reply(2 * number + 1).await.message();
        assert_eq!(found.kvs[0].value, value);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_renews_its_windows_and_no_more_is_taken() {
    let server = TestServer::start().await;
    let mut client = Client::connect(&server, &[]).await;
    // More than the window of the connection, in calls here and in some of the relay.
    let (small, large) = ("v".repeat(300_000), "v".repeat(700_000));
    for number in 0..40 {
        let value = if number % 4 == 0 { &large } else { &small };
        client
            .send(&request(2 * number + 1, PUT, &put("k", value)))
            .await;
        let _: pb::PutResponse = client.reply(2 * number + 1).await.message();
    }
    let sent = 30 * 300_000 + 10 * 700_000;
    let renewed = client.updates[&0] - (CONNECTION_WINDOW - 65_535);
    assert!(renewed <= sent + 40 * 40, "{renewed}");
    assert!(renewed > sent - CONNECTION_WINDOW, "{renewed}");
    // Whatever is sent beyond the windows, others are served.
    let mut client = Client::connect(&server, &[]).await;
    for number in 0..9 {
        let id = 2 * number + 1;
        let mut part = headers(id, WATCH);
        part.extend(data(id, &[0, 0, 0x0f, 0xff, 0xff], false));
        part.extend(data(id, &vec![0; 700_000], false));
        if client.try_send(&part).await.is_err() {
            break;
        }
    }
    client.read_for(Duration::from_millis(300)).await;
    let mut client = Client::connect(&server, &[]).await;
    client.send(&request(1, RANGE, &range("k2"))).await;
    let _: pb::RangeResponse = client.reply(1).await.message();
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_no_more_streams_than_allowed() {
    let server = TestServer::start_with(|config| config.max_concurrent_streams = 3).await;
    let mut client = Client::connect(&server, &[]).await;
    let watching = [headers(1, WATCH), data(1, &framed(&watch("k")), false)].concat();
    client.send(&watching).await;
    client
        .send(&[headers(3, PUT), headers(5, PUT)].concat())
        .await;
    client
        .send(&[headers(7, PUT), data(7, b"late", true), headers(9, STATUS)].concat())
        .await;
    let refused = Some(Reason::Refused as u32);
    assert_eq!(client.reply(7).await.reset, refused);
    assert_eq!(client.reply(9).await.reset, refused);
    client.send(&data(3, &framed(&put("k", "v")), true)).await;
    let _: pb::PutResponse = client.reply(3).await.message();
    client
        .send(&request(11, STATUS, &pb::StatusRequest {}))
        .await;
    let _: pb::StatusResponse = client.reply(11).await.message();
    assert!(client.goaways.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_are_bounded() {
    let server = TestServer::start_with(|config| config.max_header_bytes = 16 << 10).await;
    let large = "x".repeat(20_000);
    for path in [RANGE, STATUS] {
        let mut client = Client::connect(&server, &[]).await;
        let mut fields = fields(path);
        fields.push(("large", &large));
        client
            .send(&frame(kind::HEADERS, flag::END_HEADERS, 1, &block(&fields)))
            .await;
        client.send(&data(1, &framed(&range("k")), true)).await;
        assert_eq!(client.reply(1).await.fields[":status"], "431");
        client.send(&request(3, RANGE, &range("k"))).await;
        let _: pb::RangeResponse = client.reply(3).await.message();
    }
    // Parts without end.
    for part in [&[][..], &[0x82; 16 << 10]] {
        let mut client = Client::connect(&server, &[]).await;
        client.send(&frame(kind::HEADERS, 0, 1, &[])).await;
        for _ in 0..100 {
            let _ = client
                .try_send(&frame(kind::CONTINUATION, 0, 1, part))
                .await;
        }
        assert_eq!(client.goaway().await, Some(Reason::EnhanceYourCalm as u32));
    }
}

/// A client that sends what is wrong with its streams, without end.
#[tokio::test(flavor = "multi_thread")]
async fn faults_are_bounded() {
    let server = TestServer::start().await;
    let mut client = Client::connect(&server, &[]).await;
    for number in 0..1100 {
        let id = 2 * number + 1;
        let sent = [headers(id, PUT), window(id, 0)].concat();
        if client.try_send(&sent).await.is_err() {
            break;
        }
    }
    assert_eq!(client.goaway().await, Some(Reason::EnhanceYourCalm as u32));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_costs_a_bounded_amount() {
    const BYTES: usize = 100_000;
    let server = TestServer::start_with(|config| config.max_connection_memory = 1 << 20).await;
    store(&server, "k", BYTES).await;
    let context = server.context().clone();
    // With open windows, so that only the socket holds it back, and with closed ones.
    for wide in [true, false] {
        // The connection before this one is not counted.
        is_free(&server).await;
        let before = context.memory.refused.get();
        let initial = if wide { (1 << 31) - 1 } else { 0 };
        let mut client = Client::connect(&server, &[(setting::INITIAL_WINDOW_SIZE, initial)]).await;
        if wide {
            client.send(&window(0, (1 << 31) - 1 - 65_535)).await;
        }
        let writing = async {
            for number in 0..2000 {
                let sent = request(2 * number + 1, RANGE, &range("k"));
                if client.try_send(&sent).await.is_err() {
                    break;
                }
            }
        };
        // It goes on to what may wait, and is refused the rest.
        let refused = async {
            while context.memory.refused.get() == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let both = async { tokio::join!(writing, refused) };
        let _ = tokio::time::timeout(Duration::from_secs(2), both).await;
        assert!(context.memory.refused.get() > before, "no limit is met");
        let used = context.memory.used();
        assert!(used <= 1 << 20, "{used}");
    }
    is_free(&server).await;
}

/// Waits until no connection is left, and nothing is kept of those that were.
async fn is_free(server: &TestServer) {
    let context = server.context();
    let free = async {
        while context.memory.used() > 0 || context.metrics.connections.get() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), free)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_a_reply_is_dropped() {
    let timeout = Duration::from_millis(300);
    let server = TestServer::start_with(|config| config.unread_reply_timeout = timeout).await;
    store(&server, "k", 100_000).await;
    let mut wide = range("k");
    wide.range_end = b"l".to_vec().into();
    for wanted in [range("k"), wide] {
        let before = server.context().memory.unread_replies.get();
        let mut client = Client::connect(&server, &[(setting::INITIAL_WINDOW_SIZE, 7)]).await;
        client.renews = false;
        client.send(&request(1, RANGE, &wanted)).await;
        client
            .until(|client| {
                client.is_closed || client.replies.get(&1).is_some_and(|it| it.reset.is_some())
            })
            .await;
        assert!(server.context().memory.unread_replies.get() > before);
    }
}

/// A snapshot holds one of the few turns, and the memory of its chunks, until its client has taken the last one.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_not_read_is_ended_and_gives_back_its_turn_and_memory() {
    const PATIENCE: Duration = Duration::from_secs(20);
    let timeout = Duration::from_millis(500);
    let server = TestServer::start_with(|config| config.unread_reply_timeout = timeout).await;
    // More than the chunks that may wait for the client, however well it is compressed.
    let mut random = fastrand::Rng::with_seed(1);
    let mut client = Client::connect(&server, &[]).await;
    for number in 0..10 {
        let value: String = (0..100_000).map(|_| random.alphanumeric()).collect();
        let id = 2 * number + 1;
        client
            .send(&request(id, PUT, &put(&format!("k{number}"), &value)))
            .await;
        let _: pb::PutResponse = client.reply(id).await.message();
    }
    drop(client);
    is_free(&server).await;
    let context = server.context();
    let turns = context.snapshots.available_permits();
    let snapshot = request(1, SNAPSHOT, &pb::SnapshotRequest {});
    // Held back by the window of its stream, and by that of the connection.
    for window in [7, 1 << 30] {
        let before = context.memory.unread_replies.get();
        let mut client = Client::connect(&server, &[(setting::INITIAL_WINDOW_SIZE, window)]).await;
        client.renews = false;
        client.send(&snapshot).await;
        let begun = async {
            while context.snapshots.available_permits() == turns || context.memory.used() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let begun = tokio::time::timeout(PATIENCE, begun).await;
        begun.expect("it takes its turn and its memory");
        client
            .until(|client| client.replies.get(&1).is_some_and(|it| it.reset.is_some()))
            .await;
        let reply = &client.replies[&1];
        assert!(client.is_closed || reply.reset.is_some(), "{reply:?}");
        assert!(!reply.has_ended);
        assert!(context.memory.unread_replies.get() > before);
        // While the client keeps its side of the connection open.
        let free = async {
            while context.snapshots.available_permits() < turns || context.memory.used() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let freed = tokio::time::timeout(PATIENCE, free).await;
        freed.expect("its turn and its memory are given back");
    }
    // One that is read is whole.
    let mut client = Client::connect(&server, &[]).await;
    client.send(&snapshot).await;
    let reply = client.reply(1).await;
    assert_eq!(reply.status(), "0");
    assert!(reply.data.len() > 500_000, "{} bytes", reply.data.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_does_not_end_is_refused() {
    let timeout = Duration::from_millis(300);
    let server = TestServer::start_with(|config| config.partial_request_timeout = timeout).await;
    let mut client = Client::connect(&server, &[]).await;
    client
        .send(&[headers(1, PUT), data(1, b"\0\0\0\0", false)].concat())
        .await;
    client.send(&headers(3, PUT)).await;
    for id in [1, 3] {
        let reply = client.reply(id).await;
        assert_eq!(reply.status(), "4", "{reply:?}");
        assert!(reply.fields["grpc-message"].contains("partial-request-timeout"));
    }
    assert_eq!(server.context().memory.late_requests.get(), 2);
    client.send(&request(5, PUT, &put("k", "v"))).await;
    let _: pb::PutResponse = client.reply(5).await.message();
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_clients_are_pinged_and_dropped_if_they_do_not_answer() {
    let server = TestServer::start_with(|config| {
        config.keep_alive_interval = Duration::from_millis(100);
        config.keep_alive_timeout = Duration::from_millis(300);
    })
    .await;
    let mut client = Client::connect(&server, &[]).await;
    client.read_for(Duration::from_millis(1000)).await;
    assert!(!client.is_closed, "it answers");
    assert!(client.frames.iter().any(|head| head.kind == kind::PING));
    // It is alive, but does not read, so it does not answer.
    tokio::time::sleep(Duration::from_millis(1000)).await;
    client.until(|client| client.is_closed).await;
}

/// An interval of 0 pinged without end, and a timeout of 0 ended every connection that was idle for the interval.
#[tokio::test(flavor = "multi_thread")]
async fn without_keep_alive_nobody_is_pinged() {
    const SHORT: Duration = Duration::from_millis(50);
    for (interval, timeout) in [(Duration::ZERO, SHORT), (SHORT, Duration::ZERO)] {
        let server = TestServer::start_with(|config| {
            config.keep_alive_interval = interval;
            config.keep_alive_timeout = timeout;
        })
        .await;
        let mut client = Client::connect(&server, &[]).await;
        client.read_for(10 * SHORT).await;
        assert!(!client.is_closed, "{interval:?} {timeout:?}");
        let is_pinged = client.frames.iter().any(|head| head.kind == kind::PING);
        assert!(!is_pinged, "{interval:?} {timeout:?}");
        client.send(&request(1, RANGE, &range("k"))).await;
        let _: pb::RangeResponse = client.reply(1).await.message();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_lets_calls_end_and_begins_no_more() {
    let server = TestServer::start().await;
    let mut idle = Client::connect(&server, &[]).await;
    let mut client = Client::connect(&server, &[]).await;
    client.send(&request(1, RANGE, &range("k"))).await;
    client.reply(1).await;
    client.send(&headers(3, PUT)).await;
    client.send(&request(5, RANGE, &range("k"))).await;
    client.reply(5).await;
    let stopping = tokio::spawn(server.shutdown());
    client.until(|client| client.goaways.len() == 2).await;
    assert_eq!(client.goaways, [0, 0]);
    client.send(&request(7, RANGE, &range("k"))).await;
    client.send(&data(3, &framed(&put("k", "v")), true)).await;
    let reply = client.reply(3).await;
    assert!(reply.has_ended, "{reply:?}");
    client.until(|client| client.is_closed).await;
    assert!(!client.replies.contains_key(&7));
    idle.until(|idle| idle.is_closed).await;
    stopping.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_was_opened_before_the_hand_over_is_known_to_the_library() {
    let server = TestServer::start().await;
    let value = store(&server, "k", 100_000).await;
    let mut client = Client::connect(&server, &[(setting::INITIAL_WINDOW_SIZE, 0)]).await;
    let mut wanted = put("k", &"v".repeat(600_000));
    wanted.prev_kv = true;
    client
        .send(&[headers(1, PUT), window(1, 1 << 20)].concat())
        .await;
    client.send(&data(1, &framed(&wanted), true)).await;
    let written: pb::PutResponse = client.reply(1).await.message();
    assert_eq!(written.prev_kv.unwrap().value, value);
}

/// The library gives back little of its window at once, so what is handed over late needs room for long.
#[tokio::test(flavor = "multi_thread")]
async fn messages_that_are_handed_over_late_are_never_refused() {
    let server = TestServer::start().await;
    let mut client = Client::connect(&server, &[]).await;
    // A long upload of the relay first.
    for number in 0..8 {
        let large = put("k", &"v".repeat(700_000));
        client.send(&request(2 * number + 1, PUT, &large)).await;
        let _: pb::PutResponse = client.reply(2 * number + 1).await.message();
    }
    let mut broken = vec![0];
    broken.extend(100_000_u32.to_be_bytes());
    broken.extend(vec![0xff; 100_000]);
    for number in 8..68 {
        let id = 2 * number + 1;
        client
            .send(&[headers(id, PUT), data(id, &broken, true)].concat())
            .await;
        let reply = client.reply(id).await;
        assert_eq!((reply.status(), reply.reset), ("13", None), "{number}");
    }
    assert!(client.goaways.is_empty());
}

/// The window of the connection is used up before the reply begins.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_reply_that_cannot_begin_is_dropped() {
    let timeout = Duration::from_millis(300);
    let server = TestServer::start_with(|config| config.unread_reply_timeout = timeout).await;
    store(&server, "a", 65_535 - 1000).await;
    for number in 0..8 {
        store(&server, &format!("k{number}"), 1_000_000).await;
    }
    let mut client = Client::connect(&server, &[]).await;
    client.renews = false;
    for number in 0..3 {
        client
            .send(&request(2 * number + 1, RANGE, &range("a")))
            .await;
    }
    client
        .until(|client| {
            client
                .replies
                .values()
                .map(|it| it.data.len())
                .sum::<usize>()
                == 65_535
        })
        .await;
    let mut wide = range("k");
    wide.range_end = b"l".to_vec().into();
    client.send(&request(7, RANGE, &wide)).await;
    client
        .until(|client| {
            client.is_closed || client.replies.get(&7).is_some_and(|it| it.reset.is_some())
        })
        .await;
}
