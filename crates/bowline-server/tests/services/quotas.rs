//! Quotas of prefixes and rates of principals, over gRPC and the gateway.

use bowline_proto::etcdserverpb as pb;
use bowline_proto::v1;
use bowline_proto::v1::quotas_client::QuotasClient;
use bowline_proto::v1::store_client::StoreClient;
use serde_json::json;
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::gateway::{Lines, post, sent};
use crate::support::{put, range, start, start_with};
use crate::watches::Watching;

fn refusal<T>(answer: Result<Response<T>, Status>) -> (Code, String) {
    match answer {
        Ok(_) => (Code::Ok, String::new()),
        Err(status) => (status.code(), status.message().to_owned()),
    }
}

#[tokio::test]
async fn a_put_over_a_quota_is_refused_with_all_that_one_needs_to_know() {
    let running = start(&[]).await;
    let mut quotas = QuotasClient::new(running.channel().await);
    let set = |keys| v1::QuotaSetRequest {
        prefix: "a/".into(),
        limits: Some(v1::QuotaLimits { keys, bytes: None }),
    };
    assert_eq!(
        refusal(quotas.set(set(None)).await).0,
        Code::InvalidArgument
    );
    quotas.set(set(Some(1))).await.unwrap();
    let mut kv = running.kv().await;
    kv.put(put("a/1", "value")).await.unwrap();
    let (code, text) = refusal(kv.put(put("a/2", "value")).await);
    assert_eq!(code, Code::ResourceExhausted);
    for part in [
        "bowline: the quota of the prefix \"a/\" is 1 keys",
        "take 1",
        "take 2",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // `a/2`, by the gateway.
    let (status, text) = post(&running, "/v3/kv/put", r#"{"key":"YS8y","value":"dg=="}"#).await;
    assert_eq!(status, 429, "{text}");
    let listed = quotas
        .list(v1::QuotaListRequest {})
        .await
        .unwrap()
        .into_inner();
    let expected = v1::Quota {
        prefix: "a/".into(),
        limits: set(Some(1)).limits,
        used_keys: 1,
        used_bytes: 8,
    };
    assert_eq!(listed.quotas, [expected]);
    let remove = || v1::QuotaRemoveRequest {
        prefix: "a/".into(),
    };
    quotas.remove(remove()).await.unwrap();
    assert_eq!(refusal(quotas.remove(remove()).await).0, Code::NotFound);
    kv.put(put("a/2", "value")).await.unwrap();
}

/// Makes a call until it is refused for its rate: a slow machine makes fewer calls in a second than it may.
async fn is_exceeded(call: impl AsyncFn() -> (Code, String)) -> bool {
    for _ in 0..50 {
        let (code, text) = call().await;
        if code == Code::ResourceExhausted {
            return text.contains("client 127.0.0.1 may have 1 requests per second")
                && text.contains("try again in");
        }
    }
    false
}

/// The front, tonic and the gateway charge the same buckets.
#[tokio::test]
async fn requests_beyond_the_rate_are_refused_on_every_way_and_health_is_not() {
    let running = start(&[("max-requests-per-second", "1")]).await;
    let channel = running.channel().await;
    let (kv, store) = (running.kv().await, StoreClient::new(channel.clone()));
    let read = async || refusal(kv.clone().range(range("k")).await);
    assert!(is_exceeded(read).await);
    let write = async || refusal(kv.clone().put(put("k", "v")).await);
    assert!(is_exceeded(write).await);
    let get = async || {
        let get = v1::GetRequest {
            keys: vec!["k".into()],
            ..Default::default()
        };
        refusal(store.clone().get(get).await)
    };
    assert!(is_exceeded(get).await);
    let by_gateway = async || match post(&running, "/v3/kv/range", r#"{"key":"aw=="}"#).await {
        (429, text) => (Code::ResourceExhausted, text),
        (_, text) => (Code::Ok, text),
    };
    assert!(is_exceeded(by_gateway).await);
    let mut health = HealthClient::new(channel);
    for _ in 0..5 {
        health.check(HealthCheckRequest::default()).await.unwrap();
    }
}

#[tokio::test]
async fn what_was_read_delays_the_next_call() {
    let running = start(&[("max-scanned-bytes-per-second", "1000")]).await;
    let mut kv = running.kv().await;
    kv.put(put("k", &"v".repeat(20_000))).await.unwrap();
    assert_eq!(refusal(kv.range(range("k")).await).0, Code::Ok);
    let (code, text) = refusal(kv.put(put("k", "v")).await);
    assert_eq!(code, Code::ResourceExhausted);
    assert!(text.contains("1000 scanned bytes per second"), "{text}");
    // And so it does through tonic.
    let running = start(&[("max-scanned-bytes-per-second", "1000")]).await;
    let mut kv = running.kv().await;
    kv.put(put("k", &"v".repeat(20_000))).await.unwrap();
    let mut store = StoreClient::new(running.channel().await);
    let get = || v1::GetRequest {
        keys: vec!["k".into()],
        ..Default::default()
    };
    store.get(get()).await.unwrap();
    assert_eq!(refusal(store.get(get()).await).0, Code::ResourceExhausted);
}

/// A request that the front leaves to the libraries, as the name of its metadata is long.
fn to_libraries<T>(message: T) -> Request<T> {
    const NAME: &str = "x-metadata-with-a-name-that-is-longer-than-those-which-the-front-looks-at";
    let mut request = Request::new(message);
    let value = "1".parse().unwrap();
    request.metadata_mut().insert(NAME, value);
    request
}

/// Only a `Range` over gRPC was charged for the keys that it counts. A transaction, a stream, the gateway, and whatever the
/// libraries serve counted any number of keys for nothing.
#[tokio::test]
async fn a_count_is_charged_on_every_way() {
    const LIMITS: [(&str, &str); 3] = [
        ("max-scanned-bytes-per-second", "1000"),
        ("election-timeout", "200"),
        ("heartbeat-interval", "20"),
    ];
    let counted = || pb::RangeRequest {
        range_end: "l".into(),
        count_only: true,
        ..range("k")
    };
    // All but a few.
    let limited = || pb::RangeRequest {
        count_only: false,
        keys_only: true,
        limit: 2,
        ..counted()
    };
    let txn = || pb::TxnRequest {
        success: vec![pb::RequestOp {
            request: Some(pb::request_op::Request::RequestRange(counted())),
        }],
        ..pb::TxnRequest::default()
    };
    let mut running = start(&[]).await;
    let mut kv = running.kv().await;
    for number in 0..100 {
        kv.put(put(&format!("k{number}"), "v")).await.unwrap();
    }
    drop(kv);
    let by_gateway = r#"{"key":"aw==","range_end":"bA==","count_only":true}"#;
    let in_txn = format!(r#"{{"success":[{{"request_range":{by_gateway}}}]}}"#);
    for way in 0..9 {
        // Without a debt.
        running = running.restarted_with(&LIMITS).await;
        let mut kv = running.kv().await;
        let count = match way {
            0 => kv.range(counted()).await.unwrap().into_inner().count,
            1 => kv.range(limited()).await.unwrap().into_inner().count,
            2 => {
                kv.range(to_libraries(counted()))
                    .await
                    .unwrap()
                    .into_inner()
                    .count
            }
            3 => {
                kv.range(to_libraries(limited()))
                    .await
                    .unwrap()
                    .into_inner()
                    .count
            }
            4 | 5 => {
                let request = match way {
                    4 => Request::new(txn()),
                    _ => to_libraries(txn()),
                };
                let reply = kv.txn(request).await.unwrap().into_inner();
                match &reply.responses[0].response {
                    Some(pb::response_op::Response::ResponseRange(range)) => range.count,
                    other => panic!("{other:?}"),
                }
            }
            6 => {
                let mut parts = kv.range_stream(counted()).await.unwrap().into_inner();
                let mut count = 0;
                while let Some(part) = parts.message().await.unwrap() {
                    count += part.range_response.unwrap().count;
                }
                count
            }
            _ => {
                let (path, body) = match way {
                    7 => ("/v3/kv/range", by_gateway),
                    _ => ("/v3/kv/txn", &in_txn[..]),
                };
                let (status, text) = post(&running, path, body).await;
                assert_eq!(status, 200, "{text}");
                assert!(text.contains(r#""count":"100""#), "{text}");
                100
            }
        };
        assert_eq!(count, 100, "way {way}");
        // 6,400 bytes: more than five seconds of debt.
        let (code, text) = refusal(kv.range(range("k")).await);
        assert_eq!(code, Code::ResourceExhausted, "way {way}");
        assert!(text.contains("1000 scanned bytes per second"), "{text}");
    }
}

/// What a watch sends was charged where the libraries serve it, and in the gateway: other people's writes used up the rate of
/// who watches.
#[tokio::test]
async fn what_a_watch_sends_is_not_charged() {
    let limit = [("max-scanned-bytes-per-second", "1000")];
    let running = start_with(&limit, |config| config.has_front = false).await;
    let mut kv = running.kv().await;
    let large = || put("k", &"v".repeat(20_000));
    let mut watching = Watching::open(&running).await;
    let create = pb::WatchCreateRequest {
        key: "k".into(),
        ..pb::WatchCreateRequest::default()
    };
    watching.create(create).await;
    assert!(watching.next().await.created);
    kv.put(large()).await.unwrap();
    assert_eq!(watching.next().await.events.len(), 1);
    assert_eq!(
        refusal(kv.range(range("none")).await),
        (Code::Ok, String::new())
    );
    let create = r#"{"create_request":{"key":"aw=="}}"#;
    let mut lines = Lines::begin(sent(&running, "/v3/watch", create).await).await;
    assert_eq!(lines.message().await["result"]["created"], json!(true));
    kv.put(large()).await.unwrap();
    assert!(lines.message().await["result"]["events"].is_array());
    assert_eq!(
        refusal(kv.range(range("none")).await),
        (Code::Ok, String::new())
    );
}
