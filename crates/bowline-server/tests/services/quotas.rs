//! Quotas of prefixes and rates of principals, over gRPC and the gateway.

use bowline_proto::v1;
use bowline_proto::v1::quotas_client::QuotasClient;
use bowline_proto::v1::store_client::StoreClient;
use tonic::{Code, Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::gateway::post;
use crate::support::{put, range, start};

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
