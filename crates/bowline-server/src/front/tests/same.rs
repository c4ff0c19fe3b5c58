//! Calls here have the same replies as through the libraries.

use bowline_proto::etcdserverpb as pb;

use super::super::frame::{flag, kind, setting};
use super::client::{Client, Reply, block, data, fields, frame, framed};
use super::{DELETE, PUT, RANGE, TXN, put, range, txn};
use crate::test_server::TestServer;

/// A request: its head, its body, and whether that ends.
struct Case {
    name: &'static str,
    path: &'static str,
    more: Vec<(&'static str, &'static str)>,
    body: Vec<u8>,
}

fn case(name: &'static str, path: &'static str, body: Vec<u8>) -> Case {
    Case {
        name,
        path,
        more: Vec::new(),
        body,
    }
}

fn with(name: &'static str, more: &[(&'static str, &'static str)], body: Vec<u8>) -> Case {
    Case {
        name,
        path: RANGE,
        more: more.to_vec(),
        body,
    }
}

fn cases() -> Vec<Case> {
    use pb::request_op::Request as Op;
    let whole = |key: &str, end: &str| pb::RangeRequest {
        key: key.to_owned().into(),
        range_end: end.to_owned().into(),
        ..pb::RangeRequest::default()
    };
    let get = framed(&range("k1"));
    let of = |change: fn(&mut pb::RangeRequest)| {
        let mut wanted = range("k1");
        change(&mut wanted);
        framed(&wanted)
    };
    let with_flag = |flag: u8| {
        let mut body = framed(&range("k1"));
        body[0] = flag;
        body
    };
    let with_length = |length: u32| {
        let mut body = framed(&range("k1"));
        body[1..5].copy_from_slice(&length.to_be_bytes());
        body
    };
    let put_with = |change: fn(&mut pb::PutRequest)| {
        let mut wanted = put("k1", "");
        change(&mut wanted);
        framed(&wanted)
    };
    let delete = |key: &str, end: &str| pb::DeleteRangeRequest {
        key: key.to_owned().into(),
        range_end: end.to_owned().into(),
        prev_kv: true,
    };
    vec![
        case("a put", PUT, framed(&put("k1", "v"))),
        case(
            "a put with what was there",
            PUT,
            put_with(|put| put.prev_kv = true),
        ),
        case(
            "puts of other keys",
            PUT,
            framed(&put("k2", &"x".repeat(2000))),
        ),
        case("a large one", PUT, framed(&put("k3", &"y".repeat(600_000)))),
        case(
            "a middling one",
            PUT,
            framed(&put("k4", &"z".repeat(100_000))),
        ),
        case(
            "one that is too large",
            PUT,
            framed(&put("k4", &"z".repeat(1_700_000))),
        ),
        case(
            "one far too large",
            PUT,
            framed(&put("k4", &"z".repeat(3_000_000))),
        ),
        case("no key", PUT, framed(&put("", "v"))),
        case("no lease", PUT, put_with(|put| put.lease = 77)),
        case(
            "a kept value that is not",
            PUT,
            put_with(|put| put.ignore_value = true),
        ),
        case("a read", RANGE, get.clone()),
        case("a read of nothing", RANGE, framed(&range("nothing"))),
        case("a read without a key", RANGE, framed(&range(""))),
        case("a read of a large value", RANGE, framed(&range("k3"))),
        case("a read of all", RANGE, framed(&whole("k", "l"))),
        case("a count", RANGE, of(|range| range.count_only = true)),
        case("keys only", RANGE, of(|range| range.keys_only = true)),
        case(
            "a serializable read",
            RANGE,
            of(|range| range.serializable = true),
        ),
        case(
            "a revision to come",
            RANGE,
            of(|range| range.revision = 1 << 40),
        ),
        case("a wrong order", RANGE, of(|range| range.sort_order = 9)),
        case("one of a range", RANGE, {
            let mut wanted = whole("k", "l");
            wanted.limit = 1;
            framed(&wanted)
        }),
        case(
            "a read in a txn",
            TXN,
            framed(&txn(vec![Op::RequestRange(range("k1"))])),
        ),
        case(
            "a large read in a txn",
            TXN,
            framed(&txn(vec![Op::RequestRange(whole("k", "l"))])),
        ),
        case(
            "a txn that writes",
            TXN,
            framed(&txn(vec![
                Op::RequestPut(put("t", "1")),
                Op::RequestRange(range("t")),
            ])),
        ),
        case(
            "a key twice",
            TXN,
            framed(&txn(vec![
                Op::RequestPut(put("t", "1")),
                Op::RequestPut(put("t", "2")),
            ])),
        ),
        case("an empty txn", TXN, framed(&txn(Vec::new()))),
        case("a txn that is too long", TXN, {
            let puts = (0..200).map(|number| Op::RequestPut(put(&number.to_string(), "v")));
            framed(&txn(puts.collect()))
        }),
        case("a deletion", DELETE, framed(&delete("k1", ""))),
        case(
            "a deletion with a large reply",
            DELETE,
            framed(&delete("k", "l")),
        ),
        case("a deletion without a key", DELETE, framed(&delete("", ""))),
        case("no message", RANGE, Vec::new()),
        case("half a prefix", RANGE, vec![0, 0, 0]),
        case("half a message", RANGE, with_length(100)),
        case("more than a message", RANGE, with_length(2)),
        case("two messages", RANGE, [get.clone(), get.clone()].concat()),
        case("an empty message", RANGE, vec![0; 5]),
        case("a compressed message", RANGE, with_flag(1)),
        case("a wrong flag", RANGE, with_flag(7)),
        case(
            "a message that is none",
            RANGE,
            vec![0, 0, 0, 0, 3, 0xff, 0xff, 0xff],
        ),
        case("another method", "/etcdserverpb.KV/Nothing", get.clone()),
        case("another service", "/nothing/Range", get.clone()),
        with("a level", &[("bowline-read", "lease")], get.clone()),
        with(
            "an eventual read",
            &[("bowline-read", "eventual")],
            get.clone(),
        ),
        with(
            "a level that is none",
            &[("bowline-read", "maybe")],
            get.clone(),
        ),
        with(
            "a level beside a serializable read",
            &[("bowline-read", "maybe")],
            of(|range| range.serializable = true),
        ),
        with("a leader", &[("hasleader", "true")], get.clone()),
        with(
            "a timeout",
            &[("grpc-timeout", "5S"), ("x-more", "ä")],
            get.clone(),
        ),
        with("a compression", &[("grpc-encoding", "gzip")], get.clone()),
        with(
            "no compression",
            &[("grpc-encoding", "identity")],
            get.clone(),
        ),
        with("a length", &[("content-length", "9")], get.clone()),
        with(
            "a connection's field",
            &[("connection", "close")],
            get.clone(),
        ),
        with("a name in capitals", &[("X-More", "1")], get),
    ]
}

async fn ask(client: &mut Client, id: u32, case: &Case, part_bytes: usize) -> Reply {
    let mut fields = fields(case.path);
    fields.extend(&case.more);
    client
        .send(&frame(
            kind::HEADERS,
            flag::END_HEADERS,
            id,
            &block(&fields),
        ))
        .await;
    let mut parts = case.body.chunks(part_bytes).peekable();
    if parts.peek().is_none() {
        client.send(&data(id, &[], true)).await;
    }
    while let Some(part) = parts.next() {
        // As much as the windows let through by themselves.
        if id_is_over(client, id) {
            break;
        }
        client.send(&data(id, part, parts.peek().is_none())).await;
        if case.body.len() > 900_000 {
            client.read_for(std::time::Duration::from_millis(2)).await;
        }
    }
    let mut reply = client.reply(id).await;
    // These belong to the member and to the moment.
    reply.fields.remove("date");
    // hyper tells the length of a body that it has as a whole.
    reply.fields.remove("content-length");
    // A reset for no error may follow a reply that did not wait for the request.
    if reply.has_ended && reply.reset == Some(0) {
        reply.reset = None;
    }
    reply
}

fn id_is_over(client: &Client, id: u32) -> bool {
    client.replies.get(&id).is_some_and(Reply::is_over)
}

/// Members, terms and raft indices differ from server to server.
fn without_place(path: &str, reply: &mut Reply) {
    use prost::Message;
    reply.fields.remove("bowline-applied");
    if reply.status() != "0" || reply.data.len() < 5 {
        return;
    }
    macro_rules! strip {
        ($kind:ident) => {{
            let mut message = pb::$kind::decode(&reply.data[5..]).unwrap();
            let revision = message.header.take().unwrap().revision;
            reply.data = message.encode_to_vec();
            reply.data.extend(revision.to_be_bytes());
        }};
    }
    match path {
        RANGE => strip!(RangeResponse),
        PUT => strip!(PutResponse),
        DELETE => strip!(DeleteRangeResponse),
        _ => strip!(TxnResponse),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_has_the_same_reply() {
    let ours = TestServer::start().await;
    let theirs = TestServer::start_with(|config| config.has_front = false).await;
    let window = (1 << 31) - 1;
    let settings = [(setting::INITIAL_WINDOW_SIZE, window)];
    // Whole, and in parts.
    for part_bytes in [16 << 10, 3000] {
        for (number, case) in cases().iter().enumerate() {
            let mut replies = Vec::new();
            for server in [&ours, &theirs] {
                let mut client = Client::connect(server, &settings).await;
                client.until(|client| client.acknowledged == 1).await;
                let mut reply = ask(&mut client, 1, case, part_bytes).await;
                assert_eq!(reply.fields.contains_key("bowline-applied"), {
                    let has_head = reply.data.len() >= 5;
                    has_head && reply.status() == "0"
                });
                without_place(case.path, &mut reply);
                replies.push(reply);
            }
            let [ours, theirs] = &replies[..] else {
                panic!("two servers");
            };
            assert_eq!(ours.fields, theirs.fields, "{number}: {}", case.name);
            assert_eq!(
                ours.data.len(),
                theirs.data.len(),
                "{number}: {}",
                case.name
            );
            // Not printed: it may be large.
            assert!(ours == theirs, "{number}: {}", case.name);
        }
    }
    // They are counted the same.
    let (ours, theirs) = (&ours.context().metrics, &theirs.context().metrics);
    for ((method, one), (_, other)) in ours.methods().zip(theirs.methods()) {
        assert_eq!(one.started.get(), other.started.get(), "{method:?}");
        assert_eq!(one.received.get(), other.received.get(), "{method:?}");
        for (one, other) in one.ended.iter().zip(&other.ended) {
            assert_eq!(one.get(), other.get(), "{method:?}");
        }
        let (ours, _) = one.answers(method.kind());
        let (theirs, _) = other.answers(method.kind());
        for (one, other) in ours.iter().zip(theirs) {
            assert_eq!(one.get(), other.get(), "{method:?}");
        }
    }
    assert_eq!(ours.unknown.get(), theirs.unknown.get());
}
