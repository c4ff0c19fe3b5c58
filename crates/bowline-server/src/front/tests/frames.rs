//! Frames: cut anywhere, of every kind, and malformed.

use std::time::Duration;

use bowline_proto::etcdserverpb as pb;

use super::super::frame::{Reason, flag, kind, write_settings, write_window_update};
use super::client::{Client, block, data, fields, frame, framed, greeting, headers, request};
use super::{PUT, RANGE, STATUS, WATCH, put, range, watch};
use crate::test_server::TestServer;

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_answered_wherever_the_input_is_cut() {
    let server = TestServer::start().await;
    let mut client = Client::connect(&server, &[]).await;
    client.send(&request(1, PUT, &put("k", "value"))).await;
    let reply = client.reply(1).await;
    let written = reply.message::<pb::PutResponse>().header.unwrap();
    assert_eq!(reply.fields["content-type"], "application/grpc");
    assert!(reply.fields["bowline-applied"].parse::<u64>().unwrap() > 0);
    let mut all = greeting(&[]);
    all.extend(request(1, RANGE, &range("k")));
    all.extend(request(3, STATUS, &pb::StatusRequest {}));
    all.extend(request(5, RANGE, &range("k")));
    // Byte by byte, and in two parts with a pause between.
    for cut in std::iter::once(None).chain((1..all.len()).step_by(3).map(Some)) {
        let mut client = Client::silent(&server).await;
        match cut {
            Some(cut) => {
                client.send(&all[..cut]).await;
                tokio::task::yield_now().await;
                client.send(&all[cut..]).await;
            }
            None => {
                for byte in &all {
                    client.send(&[*byte]).await;
                    tokio::time::sleep(Duration::from_micros(200)).await;
                }
            }
        }
        for id in [1, 5] {
            let reply = client.reply(id).await;
            let found: pb::RangeResponse = reply.message();
            assert_eq!(found.kvs[0].value, "value", "{cut:?}");
            assert_eq!(found.header.unwrap().revision, written.revision);
            assert_eq!(reply.fields["bowline-read"], "linearizable");
        }
        let status: pb::StatusResponse = client.reply(3).await.message();
        assert_eq!(status.header.unwrap().cluster_id, written.cluster_id);
        assert!(client.goaways.is_empty() && client.acknowledged == 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_of_a_request_is_understood() {
    let server = TestServer::start().await;
    let mut client = Client::connect(&server, &[]).await;
    let block = block(&fields(PUT));
    let message = framed(&put("k", "v"));
    let padded = |bytes: &[u8]| {
        let mut padded = vec![3];
        padded.extend_from_slice(bytes);
        padded.extend([0; 3]);
        padded
    };
    let (whole, padding) = (flag::END_HEADERS, flag::PADDED);
    // Padding and priority.
    let mut prioritised = vec![0, 0, 0, 9, 16];
    prioritised.extend_from_slice(&block);
    let flags = whole | padding | flag::PRIORITY;
    let mut sent = frame(kind::HEADERS, flags, 1, &padded(&prioritised));
    sent.extend(frame(kind::DATA, padding, 1, &padded(&message[..2])));
    sent.extend(frame(kind::DATA, padding, 1, &[0]));
    sent.extend(frame(kind::DATA, 0, 1, &[]));
    sent.extend(frame(
        kind::DATA,
        padding | flag::END_STREAM,
        1,
        &padded(&message[2..]),
    ));
    // A head in parts, one of them empty, and a message that ends with an empty frame.
    sent.extend(frame(kind::HEADERS, 0, 3, &block[..1]));
    sent.extend(frame(kind::CONTINUATION, 0, 3, &[]));
    sent.extend(frame(kind::CONTINUATION, 0, 3, &block[1..40]));
    sent.extend(frame(kind::CONTINUATION, whole, 3, &block[40..]));
    sent.extend(frame(kind::DATA, 0, 3, &message));
    sent.extend(frame(kind::DATA, flag::END_STREAM, 3, &[]));
    // Kinds and settings that nobody knows, priorities, pings.
    sent.extend(frame(0x77, 0xff, 3, b"whatever"));
    sent.extend(frame(kind::PRIORITY, 0, 99, &[0, 0, 0, 0, 1]));
    sent.extend(frame(kind::SETTINGS, 0, 0, &[0xff, 0xff, 1, 2, 3, 4]));
    sent.extend(frame(kind::PING, 0, 0, b"12345678"));
    // Trailers end a request, too.
    sent.extend(frame(kind::HEADERS, whole, 5, &block));
    sent.extend(frame(kind::DATA, 0, 5, &message));
    let trailer = super::client::block(&[("x", "y")]);
    sent.extend(frame(kind::HEADERS, whole | flag::END_STREAM, 5, &trailer));
    client.send(&sent).await;
    for id in [1, 3, 5] {
        let _: pb::PutResponse = client.reply(id).await.message();
    }
    client
        .until(|client| client.acknowledged == 2 && !client.pongs.is_empty())
        .await;
    assert_eq!(client.pongs, [b"12345678"]);
    let mut all = range("k");
    all.limit = 1;
    client.send(&request(7, RANGE, &all)).await;
    let found: pb::RangeResponse = client.reply(7).await.message();
    assert_eq!(found.kvs[0].version, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_breaks_the_protocol_ends_the_connection_with_its_reason() {
    use Reason as R;
    let server = TestServer::start().await;
    let block = block(&fields(RANGE));
    let whole = flag::END_HEADERS;
    let data_of = |id| data(id, &framed(&range("k")), true);
    let opened = headers(1, RANGE);
    let done = request(1, RANGE, &range("k"));
    let with = |start: &[u8], frame: Vec<u8>| [start, &frame].concat();
    let window = |id, bytes| {
        let mut out = Vec::new();
        write_window_update(&mut out, id, bytes);
        out
    };
    let setting = |name, value| {
        let mut out = Vec::new();
        write_settings(&mut out, &[(name, value)]);
        out
    };
    for (name, sent, reason) in [
        ("data of an idle stream", data_of(1), R::Protocol),
        ("data of the connection", data_of(0), R::Protocol),
        ("an even stream", headers(2, RANGE), R::Protocol),
        ("a head of the connection", headers(0, RANGE), R::Protocol),
        (
            "an older stream",
            with(&headers(5, RANGE), headers(3, RANGE)),
            R::StreamClosed,
        ),
        (
            "a push",
            frame(kind::PUSH_PROMISE, whole, 1, &[0, 0, 0, 2]),
            R::Protocol,
        ),
        (
            "a lone continuation",
            frame(kind::CONTINUATION, whole, 1, &block),
            R::Protocol,
        ),
        (
            "a frame within a head",
            with(
                &frame(kind::HEADERS, 0, 1, &block),
                frame(kind::PING, 0, 0, &[0; 8]),
            ),
            R::Protocol,
        ),
        (
            "a head within a head",
            with(&frame(kind::HEADERS, 0, 1, &block), headers(3, RANGE)),
            R::Protocol,
        ),
        (
            "the continuation of another head",
            with(
                &frame(kind::HEADERS, 0, 1, &block),
                frame(kind::CONTINUATION, whole, 3, &[]),
            ),
            R::Protocol,
        ),
        (
            "a block that is no block",
            frame(kind::HEADERS, whole, 1, &[0x80]),
            R::Compression,
        ),
        (
            "padding without end",
            frame(kind::HEADERS, whole | flag::PADDED, 1, &[9, 1]),
            R::Protocol,
        ),
        (
            "too much padding",
            with(&opened, frame(kind::DATA, flag::PADDED, 1, &[2, 1])),
            R::Protocol,
        ),
        (
            "a stream that depends on itself",
            frame(
                kind::HEADERS,
                whole | flag::PRIORITY,
                1,
                &[0, 0, 0, 1, 9, 0x82],
            ),
            R::Protocol,
        ),
        (
            "a priority that depends on itself",
            frame(kind::PRIORITY, 0, 5, &[0, 0, 0, 5, 1]),
            R::Protocol,
        ),
        (
            "a short priority",
            frame(kind::HEADERS, whole | flag::PRIORITY, 1, &[0]),
            R::FrameSize,
        ),
        (
            "a frame that is too long",
            frame(kind::DATA, 0, 1, &vec![0; 65 << 10]),
            R::FrameSize,
        ),
        (
            "settings of a stream",
            frame(kind::SETTINGS, 0, 1, &[]),
            R::Protocol,
        ),
        (
            "settings that are cut",
            frame(kind::SETTINGS, 0, 0, &[0; 5]),
            R::FrameSize,
        ),
        (
            "an acknowledgement with settings",
            frame(kind::SETTINGS, 1, 0, &[0; 6]),
            R::FrameSize,
        ),
        ("push neither on nor off", setting(2, 2), R::Protocol),
        (
            "a window that is too large",
            setting(4, 1 << 31),
            R::FlowControl,
        ),
        ("frames that are too small", setting(5, 16_383), R::Protocol),
        (
            "frames that are too large",
            setting(5, 1 << 24),
            R::Protocol,
        ),
        (
            "a ping of a stream",
            frame(kind::PING, 0, 1, &[0; 8]),
            R::Protocol,
        ),
        (
            "a short ping",
            frame(kind::PING, 0, 0, &[0; 7]),
            R::FrameSize,
        ),
        (
            "a short goaway",
            frame(kind::GOAWAY, 0, 0, &[0; 7]),
            R::FrameSize,
        ),
        (
            "a goaway of a stream",
            frame(kind::GOAWAY, 0, 1, &[0; 8]),
            R::Protocol,
        ),
        (
            "a reset of an idle stream",
            frame(kind::RST_STREAM, 0, 1, &[0; 4]),
            R::Protocol,
        ),
        (
            "a short reset",
            with(&opened, frame(kind::RST_STREAM, 0, 1, &[0; 3])),
            R::FrameSize,
        ),
        ("no window", window(0, 0), R::Protocol),
        ("a window of an idle stream", window(1, 1), R::Protocol),
        (
            "too wide a window",
            window(0, (1 << 31) - 1),
            R::FlowControl,
        ),
        (
            "a short window",
            frame(kind::WINDOW_UPDATE, 0, 0, &[0; 3]),
            R::FrameSize,
        ),
        (
            "a priority of the connection",
            frame(kind::PRIORITY, 0, 0, &[0; 5]),
            R::Protocol,
        ),
        (
            "a short priority of a stream that was not begun, which cannot be reset",
            frame(kind::PRIORITY, 0, 58, &[0; 1]),
            R::FrameSize,
        ),
    ] {
        let mut client = Client::connect(&server, &[]).await;
        client.try_send(&sent).await.unwrap();
        assert_eq!(client.goaway().await, Some(reason as u32), "{name}");
    }
    // Before its settings a client may send nothing.
    for first in [
        frame(kind::PING, 0, 0, &[0; 8]),
        frame(kind::SETTINGS, 1, 0, &[]),
        done,
    ] {
        let mut client = Client::silent(&server).await;
        let preface = super::super::frame::PREFACE;
        client.send(&[preface, &first].concat()).await;
        assert_eq!(client.goaway().await, Some(R::Protocol as u32));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_breaks_a_stream_leaves_the_others() {
    use Reason as R;
    let server = TestServer::start().await;
    let mut client = Client::connect(&server, &[]).await;
    let window = |id, bytes| {
        let mut out = Vec::new();
        write_window_update(&mut out, id, bytes);
        out
    };
    let done = request(1, RANGE, &range("k"));
    client.send(&done).await;
    client.reply(1).await;
    client.send(&data(1, b"more", true)).await;
    client.send(&[headers(3, PUT), window(3, 0)].concat()).await;
    client
        .send(&[headers(5, PUT), window(5, (1 << 31) - 1)].concat())
        .await;
    client
        .send(&[headers(7, PUT), frame(kind::PRIORITY, 0, 7, &[0; 4])].concat())
        .await;
    let trailers = frame(kind::HEADERS, flag::END_HEADERS, 9, &block(&[("x", "y")]));
    client.send(&[headers(9, PUT), trailers].concat()).await;
    // What was on its way when a stream was reset is no fault.
    client.send(&data(9, b"late", false)).await;
    client.send(&request(11, RANGE, &range("k"))).await;
    let _: pb::RangeResponse = client.reply(11).await.message();
    for (id, reason) in [
        (1, R::StreamClosed),
        (3, R::Protocol),
        (5, R::FlowControl),
        (7, R::FrameSize),
        (9, R::Protocol),
    ] {
        assert_eq!(client.replies[&id].reset, Some(reason as u32), "{id}");
    }
    assert!(client.goaways.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_reset_are_forgotten() {
    let server = TestServer::start().await;
    let mut client = Client::connect(&server, &[]).await;
    let reset = |id| frame(kind::RST_STREAM, 0, id, &8_u32.to_be_bytes());
    // Before its message, within it, while it may wait, and one of the relay.
    client.send(&[headers(1, PUT), reset(1)].concat()).await;
    client
        .send(&[headers(3, PUT), data(3, b"\0\0\0", false), reset(3)].concat())
        .await;
    client
        .send(&[request(5, PUT, &put("k", "v")), reset(5)].concat())
        .await;
    client
        .send(&[headers(7, WATCH), data(7, &framed(&watch("w")), false)].concat())
        .await;
    client.until(|client| client.replies.contains_key(&7)).await;
    client
        .send(&[reset(7), data(7, b"late", false)].concat())
        .await;
    client.send(&request(9, RANGE, &range("other"))).await;
    let _: pb::RangeResponse = client.reply(9).await.message();
    client
        .send(&request(11, STATUS, &pb::StatusRequest {}))
        .await;
    let _: pb::StatusResponse = client.reply(11).await.message();
    assert!(client.goaways.is_empty());
    let context = server.context().clone();
    drop(client);
    let free = async {
        while context.memory.used() > 0 || context.metrics.connections.get() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(10), free).await;
    let (bytes, connections) = (context.memory.used(), context.metrics.connections.get());
    assert!(ended.is_ok(), "{bytes} bytes, {connections} connections");
}

/// Any bytes behind the greeting: the server goes on serving others.
#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_survived() {
    let server = TestServer::start().await;
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut client = Client::connect(&server, &[]).await;
        let mut sent = Vec::new();
        for _ in 0..random.usize(1..30) {
            let id = 2 * random.u32(0..6) + 1;
            let part = match random.u32(0..6) {
                0 => headers(id, random.choice([RANGE, PUT, WATCH, STATUS]).unwrap()),
                1 => data(id, &framed(&range("k")), random.bool()),
                2 => {
                    let payload: Vec<u8> =
                        (0..random.usize(0..40)).map(|_| random.u8(..)).collect();
                    frame(random.u8(0..11), random.u8(..), random.u32(0..9), &payload)
                }
                3 => frame(kind::RST_STREAM, 0, id, &[0; 4]),
                4 => {
                    let mut out = Vec::new();
                    write_window_update(&mut out, id * random.u32(0..2), random.u32(0..1 << 31));
                    out
                }
                _ => {
                    let mut out = Vec::new();
                    write_settings(&mut out, &[(random.u16(1..7), random.u32(0..1 << 20))]);
                    out
                }
            };
            sent.extend(part);
            if random.u32(0..9) == 0 {
                sent.truncate(random.usize(0..=sent.len()));
            }
        }
        let _ = client.try_send(&sent).await;
        client.read_for(Duration::from_millis(3)).await;
    }
    let mut client = Client::connect(&server, &[]).await;
    client.send(&request(1, RANGE, &range("k"))).await;
    let _: pb::RangeResponse = client.reply(1).await.message();
}
