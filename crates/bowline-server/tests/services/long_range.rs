//! Ranges that are too long to be built in memory: what they tell, in gRPC and in JSON.

use bowline_proto::etcdserverpb as pb;
use pb::range_request::{SortOrder, SortTarget};
use serde_json::Value;
use tonic::Code;

use crate::gateway::post;
use crate::support::{Running, start};

const KEYS: usize = 400;
const VALUE_BYTES: usize = 10_000;

fn key(number: usize) -> String {
    format!("k/{number:04}")
}

fn all() -> pb::RangeRequest {
    pb::RangeRequest {
        key: "k/".into(),
        range_end: "k0".into(),
        ..pb::RangeRequest::default()
    }
}

/// A server with 4 MB in its keys, each with its number in its value.
async fn filled(flags: &[(&str, &str)]) -> Running {
    let running = start(flags).await;
    let mut kv = running.kv().await;
    for number in 0..KEYS {
        let put = pb::PutRequest {
            key: key(number).into(),
            value: vec![number as u8; VALUE_BYTES].into(),
            ..pb::PutRequest::default()
        };
        kv.put(put).await.unwrap();
    }
    running
}

fn check(reply: &pb::RangeResponse, numbers: impl Iterator<Item = usize>) {
    let numbers: Vec<usize> = numbers.collect();
    assert_eq!(reply.kvs.len(), numbers.len());
    for (kv, number) in reply.kvs.iter().zip(numbers) {
        assert_eq!(kv.key, key(number));
        assert!(kv.value == vec![number as u8; VALUE_BYTES]);
        assert_eq!(kv.mod_revision, number as i64 + 2);
    }
}

/// The reply was built in memory as a whole, whatever its size: as entries, as messages, and as bytes.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_range_tells_what_a_short_one_does() {
    let running = filled(&[]).await;
    let mut kv = running.kv().await;
    let newest = KEYS as i64 + 1;
    let reply = kv.range(all()).await.unwrap().into_inner();
    check(&reply, 0..KEYS);
    assert_eq!((reply.count, reply.more), (KEYS as i64, false));
    assert_eq!(reply.header.unwrap().revision, newest);
    for (limit, more) in [
        (1, true),
        (20, true),
        (300, true),
        (400, false),
        (401, false),
    ] {
        let request = pb::RangeRequest { limit, ..all() };
        let reply = kv.range(request).await.unwrap().into_inner();
        check(&reply, 0..KEYS.min(limit as usize));
        assert_eq!((reply.count, reply.more), (KEYS as i64, more), "{limit}");
    }
    let request = pb::RangeRequest {
        min_mod_revision: 102,
        limit: 200,
        ..all()
    };
    let reply = kv.range(request).await.unwrap().into_inner();
    check(&reply, 100..300);
    assert_eq!((reply.count, reply.more), (KEYS as i64, true));
    let request = pb::RangeRequest {
        revision: 201,
        ..all()
    };
    let reply = kv.range(request).await.unwrap().into_inner();
    check(&reply, 0..200);
    assert_eq!(reply.header.unwrap().revision, newest);
    let request = pb::RangeRequest {
        sort_order: SortOrder::Descend.into(),
        sort_target: SortTarget::Mod.into(),
        ..all()
    };
    let reply = kv.range(request).await.unwrap().into_inner();
    check(&reply, (0..KEYS).rev());
    let request = pb::RangeRequest {
        revision: 10_000,
        ..all()
    };
    let refused = kv.range(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_range_is_the_same_in_json() {
    let running = filled(&[]).await;
    let ask = r#"{"key":"ay8=","range_end":"azA=","limit":350}"#;
    let (status, text) = post(&running, "/v3/kv/range", ask).await;
    assert_eq!(status, 200);
    // In HTTP/1.1 it comes in chunks, whose sizes stand between.
    let mut json = Vec::new();
    let mut rest = text.as_bytes();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        json.extend(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 4 + size..];
    }
    let reply: Value = serde_json::from_slice(&json).unwrap();
    let kvs = reply["kvs"].as_array().unwrap();
    assert_eq!(kvs.len(), 350);
    for (number, kv) in kvs.iter().enumerate() {
        assert_eq!(kv["mod_revision"], (number + 2).to_string());
        assert!(kv["value"].as_str().unwrap().len() > VALUE_BYTES);
    }
    assert_eq!(
        (&reply["count"], &reply["more"]),
        (&"400".into(), &true.into())
    );
    assert_eq!(reply["header"]["revision"], "401");
}

/// What is sorted by another target has to be in memory, so it has a bound.
#[tokio::test(flavor = "multi_thread")]
async fn a_range_that_is_sorted_beyond_the_budget_is_refused_and_one_by_key_is_not() {
    let limit = (8 << 20).to_string();
    let running = filled(&[
        ("max-connection-memory", &limit),
        ("max-client-memory", &limit),
    ])
    .await;
    let mut kv = running.kv().await;
    let request = pb::RangeRequest {
        sort_order: SortOrder::Descend.into(),
        sort_target: SortTarget::Value.into(),
        ..all()
    };
    let refused = kv.range(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    check(&kv.range(all()).await.unwrap().into_inner(), 0..KEYS);
}

/// A limit of 1 was not charged whatever it kept, and a higher one was charged twice the whole range.
#[tokio::test(flavor = "multi_thread")]
async fn a_sorted_range_with_a_limit_is_charged_by_its_reply() {
    let limit = (8 << 20).to_string();
    let running = filled(&[
        ("max-connection-memory", &limit),
        ("max-client-memory", &limit),
    ])
    .await;
    let mut kv = running.kv().await;
    let newest_first = |limit| pb::RangeRequest {
        limit,
        sort_order: SortOrder::Descend.into(),
        sort_target: SortTarget::Mod.into(),
        ..all()
    };
    let refused = kv.range(newest_first(0)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let refused = kv.range(newest_first(KEYS as i64)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    for limit in [1, 2, 20] {
        let request = newest_first(limit);
        let reply = kv.range(request.clone()).await.unwrap().into_inner();
        check(&reply, (0..KEYS).rev().take(limit as usize));
        assert_eq!((reply.count, reply.more), (KEYS as i64, true), "{limit}");
        let txn = pb::TxnRequest {
            success: vec![pb::RequestOp {
                request: Some(pb::request_op::Request::RequestRange(request)),
            }],
            ..pb::TxnRequest::default()
        };
        let in_txn = kv.txn(txn).await.unwrap().into_inner().responses;
        let Some(pb::response_op::Response::ResponseRange(in_txn)) = &in_txn[0].response else {
            panic!("{in_txn:?}");
        };
        assert_eq!(in_txn.kvs, reply.kvs);
        let by_value = pb::RangeRequest {
            sort_target: SortTarget::Value.into(),
            ..newest_first(limit)
        };
        let reply = kv.range(by_value).await.unwrap().into_inner();
        let kvs = reply.kvs.iter();
        let numbers: Vec<(usize, u8)> = kvs.map(|kv| (kv.value.len(), kv.value[0])).collect();
        // Of the numbers up to 255 there is one more or one less of a kind.
        assert_eq!(numbers.len(), limit as usize);
        assert!(numbers.is_sorted_by(|a, b| a >= b) && numbers[0] == (VALUE_BYTES, 255));
        let ask = format!(
            r#"{{"key":"ay8=","range_end":"azA=","limit":{limit},"sort_order":"DESCEND","sort_target":"MOD"}}"#
        );
        let (status, text) = post(&running, "/v3/kv/range", &ask).await;
        assert_eq!(status, 200, "{text}");
        assert!(text.contains(r#""mod_revision":"401""#), "{text}");
        assert_eq!(text.matches("mod_revision").count(), limit as usize);
    }
}

/// The keys beyond a limit were read with their values, only to be counted: the first two of many large keys
/// read the whole range from the disk. Found by review.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_beyond_a_limit_is_counted_without_its_values() {
    let running = start(&[]).await;
    let mut kv = running.kv().await;
    // Nothing that a compression would make small.
    let mut random = fastrand::Rng::with_seed(1);
    for number in 0..KEYS {
        let value: Vec<u8> = (0..VALUE_BYTES).map(|_| random.u8(..)).collect();
        let put = pb::PutRequest {
            key: key(number).into(),
            value: value.into(),
            ..pb::PutRequest::default()
        };
        kv.put(put).await.unwrap();
    }
    // Into tables and blob files.
    let compaction = pb::CompactionRequest {
        revision: KEYS as i64 + 1,
        physical: true,
    };
    kv.compact(compaction).await.unwrap();
    let client = running.server.client();
    let read_bytes = || client.db().stats().engine.counters.read_bytes as usize;
    // The pages of the tables come into the cache.
    let count = pb::RangeRequest {
        count_only: true,
        ..all()
    };
    assert_eq!(
        kv.range(count).await.unwrap().into_inner().count,
        KEYS as i64
    );
    // A scan reads ahead.
    const AHEAD_BYTES: usize = 400_000;
    // A long reply is begun, measured, and read.
    for (limit, passes) in [(2, 1), (16, 1), (50, 1), (150, 3)] {
        let request = pb::RangeRequest {
            limit: limit as i64,
            ..all()
        };
        let before = read_bytes();
        let reply = kv.range(request.clone()).await.unwrap().into_inner();
        let read = read_bytes() - before;
        assert_eq!(reply.kvs.len(), limit);
        assert_eq!(reply.kvs[limit - 1].value.len(), VALUE_BYTES);
        assert_eq!((reply.count, reply.more), (KEYS as i64, true));
        let most = passes * (limit * VALUE_BYTES + AHEAD_BYTES);
        assert!(read < most, "{read} bytes read with a limit of {limit}");
        let before = read_bytes();
        let mut stream = kv.range_stream(request).await.unwrap().into_inner();
        let mut kept = 0;
        let mut last = pb::RangeResponse::default();
        while let Some(part) = stream.message().await.unwrap() {
            last = part.range_response.unwrap();
            kept += last.kvs.len();
        }
        let read = read_bytes() - before;
        assert_eq!((kept, last.count, last.more), (limit, KEYS as i64, true));
        let most = limit * VALUE_BYTES + AHEAD_BYTES;
        assert!(
            read < most,
            "{read} bytes read in parts with a limit of {limit}"
        );
    }
}
