//! One connection that carries everything at once, as the connection of a program does.

use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::maintenance_client::MaintenanceClient;
use pb::watch_client::WatchClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;

use crate::support::{put, range, start};

/// Calls that are served by different parts of the server share the windows and the ids of one connection, and none
/// waits for another.
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_all_kinds_share_a_connection() {
    const CALLS: usize = 400;
    const LARGE_BYTES: usize = 200_000;
    let running = start(&[]).await;
    let channel = running.channel().await;
    let mut kv = KvClient::new(channel.clone()).max_decoding_message_size(usize::MAX);
    for number in 0..20 {
        let key = format!("large/{number:02}");
        kv.put(put(&key, &"x".repeat(LARGE_BYTES))).await.unwrap();
    }

    let mut lease = LeaseClient::new(channel.clone());
    let granted = lease
        .lease_grant(pb::LeaseGrantRequest { ttl: 60, id: 7 })
        .await
        .unwrap();
    let id = granted.into_inner().id;
    let (beats, beating) = mpsc::channel(4);
    let beating = ReceiverStream::new(beating);
    let mut alive = lease
        .lease_keep_alive(Request::new(beating))
        .await
        .unwrap()
        .into_inner();

    let (asking, asked) = mpsc::channel(4);
    let create = pb::WatchCreateRequest {
        key: "k/".into(),
        range_end: "k0".into(),
        ..pb::WatchCreateRequest::default()
    };
    let create = pb::watch_request::RequestUnion::CreateRequest(create);
    let create = pb::WatchRequest {
        request_union: Some(create),
    };
    asking.send(create).await.unwrap();
    let asked = ReceiverStream::new(asked);
    let mut watch = WatchClient::new(channel.clone()).max_decoding_message_size(usize::MAX);
    let mut events = watch.watch(asked).await.unwrap().into_inner();
    assert!(events.message().await.unwrap().unwrap().created);

    let watching = tokio::spawn(async move {
        let mut seen = Vec::new();
        while seen.len() < CALLS {
            let told = events.message().await.unwrap().unwrap();
            seen.extend(told.events.into_iter().map(|event| event.kv.unwrap().key));
        }
        drop(asking);
        seen
    });
    let keeping = tokio::spawn(async move {
        for _ in 0..50 {
            beats.send(pb::LeaseKeepAliveRequest { id }).await.unwrap();
            assert_eq!(alive.message().await.unwrap().unwrap().ttl, 60);
        }
    });
    let mut wide = range("large/");
    wide.range_end = "large0".into();
    let reading = tokio::spawn({
        let mut kv = kv.clone();
        async move {
            for _ in 0..5 {
                let read = kv.range(wide.clone()).await.unwrap().into_inner();
                let bytes: usize = read.kvs.iter().map(|kv| kv.value.len()).sum();
                assert_eq!(bytes, 20 * LARGE_BYTES);
            }
        }
    });
    let mut calls = Vec::new();
    for number in 0..CALLS {
        let (mut kv, mut maintenance) = (kv.clone(), MaintenanceClient::new(channel.clone()));
        calls.push(tokio::spawn(async move {
            let key = format!("k/{number:03}");
            kv.put(put(&key, &key)).await.unwrap();
            let found = kv.range(range(&key)).await.unwrap().into_inner();
            assert_eq!(found.kvs[0].value, key);
            // Given up by the client, which resets its stream.
            let given_up = kv.range(range("large/07"));
            let _ = tokio::time::timeout(Duration::from_micros(number as u64), given_up).await;
            if number % 7 == 0 {
                maintenance.status(pb::StatusRequest {}).await.unwrap();
            }
            if number % 50 == 0 {
                let large = "y".repeat(900_000);
                kv.put(put("upload", &large)).await.unwrap();
                let found = kv.range(range("upload")).await.unwrap().into_inner();
                assert_eq!(found.kvs[0].value, large);
            }
        }));
    }
    let all = async {
        for call in calls {
            call.await.unwrap();
        }
        keeping.await.unwrap();
        reading.await.unwrap();
        watching.await.unwrap()
    };
    let mut seen = tokio::time::timeout(Duration::from_secs(120), all)
        .await
        .unwrap();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), CALLS);
}
