//! What the API server of Kubernetes asks of its storage, as a scenario; on etcd and on Bowline.

use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::mvccpb::KeyValue;
use pb::compare::{CompareResult, CompareTarget, TargetUnion};
use pb::request_op::Request as Op;
use pb::response_op::Response as Reply;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use crate::generate::request;
use crate::servers::{Bowline, Clients, Etcd, etcd_programs};
use crate::streams;

const PODS: &str = "/registry/pods/";
const PODS_END: &str = "/registry/pods0";
/// Where API servers agree on who compacts.
const COMPACTION: &str = "compact_rev_key";
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";

#[tokio::test]
async fn bowline_does_what_kubernetes_asks() {
    let bowline = Bowline::start().await;
    scenario(bowline.clients.clone(), true).await;
    bowline.stop().await;
}

#[tokio::test]
async fn etcd_does_what_the_scenario_expects() {
    for program in etcd_programs() {
        let etcd = Etcd::start(&program).await;
        let is_new = etcd.version >= (3, 6);
        scenario(etcd.clients.clone(), is_new).await;
    }
}

fn is_at(key: &str, revision: i64) -> pb::Compare {
    pb::Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: key.to_owned().into(),
        target_union: Some(TargetUnion::ModRevision(revision)),
        ..pb::Compare::default()
    }
}

fn put(key: &str, value: &str, lease: i64) -> Op {
    Op::RequestPut(pb::PutRequest {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        lease,
        ..pb::PutRequest::default()
    })
}

fn get(key: &str) -> Op {
    Op::RequestRange(pb::RangeRequest {
        key: key.to_owned().into(),
        ..pb::RangeRequest::default()
    })
}

fn delete(key: &str) -> Op {
    Op::RequestDeleteRange(pb::DeleteRangeRequest {
        key: key.to_owned().into(),
        ..pb::DeleteRangeRequest::default()
    })
}

/// One write if a key is as it was last seen, else what it is now.
fn guarded(key: &str, revision: i64, write: Op, otherwise: Option<Op>) -> pb::TxnRequest {
    pb::TxnRequest {
        compare: vec![is_at(key, revision)],
        success: vec![request(write)],
        failure: otherwise.into_iter().map(request).collect(),
    }
}

fn revision_of(header: Option<&pb::ResponseHeader>) -> i64 {
    header.unwrap().revision
}

fn only(reply: &pb::TxnResponse) -> &KeyValue {
    match reply.responses[0].response.as_ref() {
        Some(Reply::ResponseRange(range)) => &range.kvs[0],
        other => panic!("{other:?}"),
    }
}

fn list(limit: i64, revision: i64, from: &str) -> pb::RangeRequest {
    pb::RangeRequest {
        key: from.to_owned().into(),
        range_end: PODS_END.into(),
        limit,
        revision,
        ..pb::RangeRequest::default()
    }
}

async fn scenario(mut clients: Clients, is_new: bool) {
    let kv = &mut clients.kv;
    let name = |number: u32| format!("{PODS}default/{number}");
    // An object is made if there is none.
    for number in 0..5 {
        let made = guarded(&name(number), 0, put(&name(number), "1", 0), None);
        assert!(kv.txn(made.clone()).await.unwrap().into_inner().succeeded);
        assert!(!kv.txn(made).await.unwrap().into_inner().succeeded);
    }
    // It is changed if it is as it was read; else the reply says how it is.
    let stale = guarded(&name(1), 2, put(&name(1), "2", 0), Some(get(&name(1))));
    let reply = kv.txn(stale).await.unwrap().into_inner();
    assert!(!reply.succeeded);
    let seen = only(&reply).mod_revision;
    assert_eq!(seen, 3);
    let fresh = guarded(&name(1), seen, put(&name(1), "2", 0), Some(get(&name(1))));
    let reply = kv.txn(fresh).await.unwrap().into_inner();
    assert!(reply.succeeded);
    assert_eq!(revision_of(reply.header.as_ref()), 7);
    // It is deleted in the same way.
    let reply = kv.txn(guarded(&name(0), 99, delete(&name(0)), Some(get(&name(0)))));
    assert_eq!(only(reply.await.unwrap().get_ref()).mod_revision, 2);
    let reply = kv.txn(guarded(&name(0), 2, delete(&name(0)), Some(get(&name(0)))));
    assert!(reply.await.unwrap().into_inner().succeeded);
    // Pages of a list are of one revision, that of the first, whatever is written meanwhile.
    let first = kv.range(list(2, 0, PODS)).await.unwrap().into_inner();
    assert_eq!((first.kvs.len(), first.count, first.more), (2, 4, true));
    let revision = revision_of(first.header.as_ref());
    assert_eq!(revision, 8);
    let reply = kv.txn(guarded(&name(3), 5, put(&name(3), "late", 0), None));
    assert!(reply.await.unwrap().into_inner().succeeded);
    let next = format!("{}\0", String::from_utf8_lossy(&first.kvs[1].key));
    let second = kv
        .range(list(2, revision, &next))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((second.kvs.len(), second.count, second.more), (2, 2, false));
    assert_eq!(&second.kvs[0].value[..], b"1", "as of the first page");
    assert_eq!(
        revision_of(second.header.as_ref()),
        9,
        "the header is of now"
    );
    let count = pb::RangeRequest {
        count_only: true,
        ..list(0, 0, PODS)
    };
    assert_eq!(kv.range(count).await.unwrap().into_inner().count, 4);

    // A cache is filled from a list, and follows from the next revision on.
    let (requests, receiver) = mpsc::channel(4);
    let watched = |start_revision| {
        streams::create(pb::WatchCreateRequest {
            key: PODS.into(),
            range_end: PODS_END.into(),
            start_revision,
            prev_kv: true,
            progress_notify: true,
            ..pb::WatchCreateRequest::default()
        })
    };
    requests.send(watched(revision + 1)).await.unwrap();
    let stream = clients.watch.watch(ReceiverStream::new(receiver)).await;
    let mut stream = stream.unwrap().into_inner();
    let created = message(&mut stream).await;
    assert!(created.created && !created.canceled);
    let told = message(&mut stream).await;
    assert_eq!(told.events.len(), 1);
    let before = told.events[0].prev_kv.as_ref().unwrap();
    assert_eq!((&before.value[..], before.mod_revision), (&b"1"[..], 5));
    // A read from the cache asks how new the store is, and then whether the cache has seen all of it.
    let newest = pb::RangeRequest {
        limit: 1,
        ..list(1, 0, PODS)
    };
    let newest = clients.kv.range(newest).await.unwrap().into_inner();
    let newest = revision_of(newest.header.as_ref());
    let status = clients.maintenance.status(pb::StatusRequest {}).await;
    if is_new {
        let version = status.unwrap().into_inner().version;
        let numbers: Vec<u32> = version
            .split('.')
            .map(|part| part.parse().unwrap())
            .collect();
        assert!(numbers >= vec![3, 5, 13], "{version}");
        loop {
            requests.send(streams::ask_progress()).await.unwrap();
            let told = message(&mut stream).await;
            assert!(told.events.is_empty());
            if revision_of(told.header.as_ref()) >= newest {
                break;
            }
        }
    }
    // Events of the cluster live as long as their lease, which many share.
    let grant = pb::LeaseGrantRequest { ttl: 3600, id: 0 };
    let lease = clients
        .lease
        .lease_grant(grant)
        .await
        .unwrap()
        .into_inner()
        .id;
    for number in 0..3 {
        let event = format!("/registry/events/{number}");
        let made = guarded(&event, 0, put(&event, "e", lease), None);
        assert!(clients.kv.txn(made).await.unwrap().into_inner().succeeded);
    }
    let asked = pb::LeaseTimeToLiveRequest {
        id: lease,
        keys: true,
    };
    let left = clients.lease.lease_time_to_live(asked).await.unwrap();
    assert_eq!(left.get_ref().keys.len(), 3);

    // One of the API servers wins, and compacts what all agreed on five minutes ago.
    let at_version = |version| pb::TxnRequest {
        compare: vec![pb::Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Version.into(),
            key: COMPACTION.into(),
            target_union: Some(TargetUnion::Version(version)),
            ..pb::Compare::default()
        }],
        success: vec![request(put(COMPACTION, "10", 0))],
        failure: vec![request(get(COMPACTION))],
    };
    let won = clients.kv.txn(at_version(0)).await.unwrap().into_inner();
    assert!(won.succeeded);
    let lost = clients.kv.txn(at_version(0)).await.unwrap().into_inner();
    assert!(!lost.succeeded);
    assert_eq!(
        (only(&lost).version, &only(&lost).value[..]),
        (1, &b"10"[..])
    );
    let compaction = pb::CompactionRequest {
        revision: 10,
        physical: false,
    };
    clients.kv.compact(compaction).await.unwrap();
    let status = clients.kv.compact(compaction).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::OutOfRange, COMPACTED)
    );
    // Then a list cannot be continued, and a watch cannot begin before.
    let status = clients
        .kv
        .range(list(2, revision, &next))
        .await
        .unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::OutOfRange, COMPACTED)
    );
    requests.send(watched(revision)).await.unwrap();
    let created = message(&mut stream).await;
    assert!(created.created && created.watch_id != told.watch_id);
    let ended = message(&mut stream).await;
    assert_eq!((ended.canceled, ended.compact_revision), (true, 10));
    assert_eq!(ended.watch_id, created.watch_id);
}

/// The next message of a stream of watches.
async fn message(stream: &mut tonic::Streaming<pb::WatchResponse>) -> pb::WatchResponse {
    let next = tokio::time::timeout(Duration::from_secs(10), stream.message()).await;
    next.unwrap().unwrap().unwrap()
}
