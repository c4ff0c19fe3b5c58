//! Locks, and what they are for: one holder at a time, and a token for its writes.

use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::v3lockpb::lock_client::LockClient;
use bowline_proto::v3lockpb::{LockRequest, LockResponse, UnlockRequest};
use pb::compare::{CompareTarget, TargetUnion};
use pb::request_op::Request as Op;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::beside::{Served, both};
use crate::gateway::post_with;
use crate::support::{put, range, start};

/// Longer than anything takes.
const IN_TIME: Duration = Duration::from_secs(10);

fn named(name: &str, lease: i64) -> LockRequest {
    LockRequest {
        name: name.to_owned().into(),
        lease,
    }
}

fn locks(served: &Served) -> LockClient<Channel> {
    LockClient::new(served.channel.clone())
}

/// A call that may wait.
fn locking(
    served: &Served,
    name: &'static str,
    lease: i64,
) -> JoinHandle<Result<LockResponse, Status>> {
    let mut client = locks(served);
    tokio::spawn(async move { Ok(client.lock(named(name, lease)).await?.into_inner()) })
}

/// Gives a lock back; gives the revision at which its key is gone.
async fn unlock(served: &Served, key: &str) -> i64 {
    let key = key.to_owned().into();
    let reply = locks(served).unlock(UnlockRequest { key }).await.unwrap();
    reply.into_inner().header.unwrap().revision
}

async fn in_time<T>(call: JoinHandle<T>) -> T {
    let done = tokio::time::timeout(IN_TIME, call).await;
    done.expect("an answer in time").unwrap()
}

#[tokio::test]
async fn a_lock_is_held_by_one_and_passed_on_in_the_order_of_asking() {
    for served in both().await {
        let mut leases = Vec::new();
        for _ in 0..4 {
            leases.push(served.grant().await);
        }
        let keys: Vec<String> = leases.iter().map(|id| format!("jobs/{id:x}")).collect();
        let first = locks(&served).lock(named("jobs", leases[0])).await.unwrap();
        let first = first.into_inner();
        assert_eq!(first.key, keys[0]);
        let header = first.header.unwrap();
        assert!(header.cluster_id != 0 && header.member_id != 0 && header.raft_term != 0);
        assert!(header.revision > 1);
        // Who holds it may ask again.
        let again = locks(&served).lock(named("jobs", leases[0])).await.unwrap();
        assert_eq!(again.into_inner().key, keys[0]);
        // Another lock is another lock.
        let other = locks(&served).lock(named("job", leases[1])).await.unwrap();
        assert_eq!(other.into_inner().key, format!("job/{:x}", leases[1]));
        let mut waiting = Vec::new();
        for (lease, queued) in leases[1..].iter().zip(2..) {
            waiting.push(locking(&served, "jobs", *lease));
            served.until_keys("jobs/", queued).await;
        }
        assert_eq!(served.keys("jobs/").await, keys);
        for (index, call) in waiting.into_iter().enumerate() {
            assert!(!call.is_finished(), "{index} has it beside another");
            let free_from = unlock(&served, &keys[index]).await;
            let reply = in_time(call).await.unwrap();
            assert_eq!(reply.key, keys[index + 1]);
            let since = reply.header.unwrap().revision;
            assert!(since >= free_from, "{index} had it beside another: {since}");
        }
    }
}

#[tokio::test]
async fn a_place_in_the_middle_that_goes_wakes_nobody_too_early() {
    for served in both().await {
        let [a, b, c] = [
            served.grant().await,
            served.grant().await,
            served.grant().await,
        ];
        locks(&served).lock(named("n", a)).await.unwrap();
        let second = locking(&served, "n", b);
        served.until_keys("n/", 2).await;
        let third = locking(&served, "n", c);
        served.until_keys("n/", 3).await;
        second.abort();
        served.until_keys("n/", 2).await;
        // The one it waited for has gone, and still another is before it.
        assert!(!third.is_finished());
        let free_from = served.revoke(a).await;
        let reply = in_time(third).await.unwrap();
        assert_eq!(reply.key, format!("n/{c:x}"));
        let since = reply.header.unwrap().revision;
        assert!(since >= free_from, "it had it beside another: {since}");
    }
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_no_key() {
    for served in both().await {
        let [held, waits] = [served.grant().await, served.grant().await];
        locks(&served).lock(named("n", held)).await.unwrap();
        let waiting = locking(&served, "n", waits);
        served.until_keys("n/", 2).await;
        waiting.abort();
        served.until_keys("n/", 1).await;
        assert_eq!(served.keys("n/").await, [format!("n/{held:x}")]);
        if served.is_etcd {
            // It may leave the key of a call that ends while its transaction is under way.
            continue;
        }
        let mut calls = Vec::new();
        for round in 0..60 {
            let lease = served.grant().await;
            let call = locking(&served, "n", lease);
            tokio::time::sleep(Duration::from_micros(round * 50)).await;
            calls.push(call);
            calls[round as usize].abort();
        }
        for call in calls {
            assert!(call.await.unwrap_err().is_cancelled());
        }
        served.pass_another_lock().await;
        served.until_keys("n/", 1).await;
    }
}

/// The deadline of a call was read nowhere. A client that had left, and whose connection did not end, kept its place before
/// all others.
#[tokio::test]
async fn a_wait_ends_at_its_deadline_and_leaves_no_key() {
    let running = start(&[]).await;
    let mut locks = LockClient::new(running.channel().await);
    locks.lock(named("n", 0)).await.unwrap();
    // The libraries of gRPC end a call themselves by then: by the gateway, the server has to.
    let head = "Grpc-Timeout: 300m\r\n";
    let waiting = post_with(&running, "/v3/lock/lock", head, r#"{"name":"bg=="}"#);
    let ended = tokio::time::timeout(IN_TIME, waiting).await;
    let (status, text) = ended.expect("an answer in time");
    assert_eq!(status, 504, "{text}");
    assert!(text.contains("context deadline exceeded"), "{text}");
    let mut kv = running.kv().await;
    let all = || pb::RangeRequest {
        range_end: "n0".into(),
        ..range("n/")
    };
    let alone = async {
        while kv.range(all()).await.unwrap().into_inner().count > 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let alone = tokio::time::timeout(IN_TIME, alone).await;
    alone.expect("its key is gone");
}

/// A client that has lost patience asks again, and its first call is given up only then. That took the
/// key back under the second, which waited for it, or had been told that it held the lock.
#[tokio::test]
async fn a_call_that_is_given_up_takes_nothing_from_one_that_asked_later() {
    let served = both().await.swap_remove(0);
    let [held, waits] = [served.grant().await, served.grant().await];
    locks(&served).lock(named("n", held)).await.unwrap();
    let first = locking(&served, "n", waits);
    served.until_keys("n/", 2).await;
    let second = locking(&served, "n", waits);
    served.pass_another_lock().await;
    first.abort();
    served.pass_another_lock().await;
    assert!(!second.is_finished(), "{:?}", second.await);
    unlock(&served, &format!("n/{held:x}")).await;
    let key = in_time(second).await.unwrap().key;
    assert_eq!(key, format!("n/{waits:x}"));
    assert_eq!(served.keys("n/").await, [format!("n/{waits:x}")]);
}

/// Who holds a lock may ask for it once more, and not wait for the answer.
#[tokio::test]
async fn a_holder_that_gives_up_asking_again_still_holds_the_lock() {
    let served = both().await.swap_remove(0);
    let held = served.grant().await;
    locks(&served).lock(named("n", held)).await.unwrap();
    // Many at once, so that some are under way when all are given up.
    for round in 1..=5 {
        let calls: Vec<_> = (0..100).map(|_| locking(&served, "n", held)).collect();
        tokio::time::sleep(Duration::from_millis(round)).await;
        calls.iter().for_each(JoinHandle::abort);
    }
    served.pass_another_lock().await;
    assert_eq!(served.keys("n/").await, [format!("n/{held:x}")]);
}

#[tokio::test]
async fn a_lease_that_ends_while_waiting_ends_the_wait() {
    let served = both().await.swap_remove(0);
    let [held, waits] = [served.grant().await, served.grant().await];
    locks(&served).lock(named("n", held)).await.unwrap();
    let waiting = locking(&served, "n", waits);
    served.until_keys("n/", 2).await;
    served.revoke(waits).await;
    // At once, not only when the lock is free.
    let refused = in_time(waiting).await.unwrap_err();
    let expected = (Code::Unknown, "mutex: session is expired");
    assert_eq!((refused.code(), refused.message()), expected);
    assert_eq!(served.keys("n/").await, [format!("n/{held:x}")]);
}

#[tokio::test]
async fn what_is_wrong_with_a_lock_is_refused_as_etcd_does() {
    for served in both().await {
        let refused = locks(&served).lock(named("n", 77)).await.unwrap_err();
        assert_eq!(refused.message(), "etcdserver: requested lease not found");
        // etcd loses the code on the way through its own client.
        assert_eq!(refused.code(), Code::Unknown);
        let nothing = UnlockRequest::default();
        let refused = locks(&served).unlock(nothing).await.unwrap_err();
        assert_eq!(refused.message(), "etcdserver: key is not provided");
        assert_eq!(refused.code(), Code::Unknown);
        // What is not there need not be unlocked.
        unlock_absent(&served).await;
    }
}

async fn unlock_absent(served: &Served) {
    let key = "n/1".into();
    let reply = locks(served).unlock(UnlockRequest { key }).await.unwrap();
    assert!(reply.into_inner().header.is_some());
}

#[tokio::test]
async fn without_a_lease_the_server_grants_one_of_a_minute() {
    for served in both().await {
        let locked = locks(&served).lock(named("n", 0)).await.unwrap();
        let key = String::from_utf8(locked.into_inner().key.to_vec()).unwrap();
        let found = served.kv().range(range(&key)).await.unwrap().into_inner();
        let id = found.kvs[0].lease;
        assert_eq!(key, format!("n/{id:x}"));
        let mut lease = pb::lease_client::LeaseClient::new(served.channel.clone());
        let asked = pb::LeaseTimeToLiveRequest { id, keys: true };
        let left = lease.lease_time_to_live(asked).await.unwrap().into_inner();
        assert_eq!((left.granted_ttl, left.keys.len()), (60, 1));
    }
}

/// A holder whose lease has ended does not know it: it slept, say. What it then writes under the
/// condition that its key is the one it got is not written; the next holder's is.
#[tokio::test]
async fn a_holder_that_lost_its_lease_cannot_pass_a_fenced_write() {
    let running = start(&[("election-timeout", "200"), ("heartbeat-interval", "20")]).await;
    let (mut kv, mut lease) = (running.kv().await, running.lease().await);
    let mut locks = LockClient::new(running.channel().await);
    let mut lock = async |ttl, id| {
        let granted = lease.lease_grant(pb::LeaseGrantRequest { ttl, id });
        granted.await.unwrap();
        let locked = locks.lock(named("fence", id)).await.unwrap().into_inner();
        let key = String::from_utf8(locked.key.to_vec()).unwrap();
        let found = kv.range(range(&key)).await.unwrap().into_inner();
        (key, found.kvs[0].create_revision)
    };
    let first = lock(2, 1).await;
    // Nobody keeps the lease alive: the second gets the lock when it has ended.
    let second = tokio::time::timeout(IN_TIME, lock(60, 2)).await.unwrap();
    assert!(second.1 > first.1, "the token of the next is greater");
    let fenced = |(key, create_revision): &(String, i64), value: &str| pb::TxnRequest {
        compare: vec![pb::Compare {
            key: key.clone().into(),
            target: CompareTarget::Create.into(),
            target_union: Some(TargetUnion::CreateRevision(*create_revision)),
            ..pb::Compare::default()
        }],
        success: vec![pb::RequestOp {
            request: Some(Op::RequestPut(put("guarded", value))),
        }],
        failure: Vec::new(),
    };
    let late = kv.txn(fenced(&first, "late")).await.unwrap().into_inner();
    assert!(!late.succeeded);
    let none = kv.range(range("guarded")).await.unwrap().into_inner();
    assert!(none.kvs.is_empty(), "the late write went through");
    let timely = kv.txn(fenced(&second, "timely")).await.unwrap();
    assert!(timely.into_inner().succeeded);
    let one = kv.range(range("guarded")).await.unwrap().into_inner();
    assert_eq!(one.kvs[0].value, "timely");
}

#[tokio::test]
async fn a_server_that_stops_does_not_wait_for_who_waits_for_a_lock() {
    let running = start(&[("drain-timeout", "20s")]).await;
    let mut locks = LockClient::new(running.channel().await);
    locks.lock(named("n", 0)).await.unwrap();
    let waiting = tokio::spawn(async move { locks.lock(named("n", 0)).await });
    // It waits once its key is there, behind that of the holder.
    let mut kv = running.kv().await;
    let both = || pb::RangeRequest {
        range_end: "n0".into(),
        ..range("n/")
    };
    let queued = async {
        while kv.range(both()).await.unwrap().into_inner().count < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let queued = tokio::time::timeout(IN_TIME, queued).await;
    queued.expect("both have keys");
    let before = std::time::Instant::now();
    running.server.shutdown().await.unwrap();
    assert!(before.elapsed() < IN_TIME, "{:?}", before.elapsed());
    let refused = in_time(waiting).await.unwrap_err();
    let expected = (Code::Unavailable, "etcdserver: server stopped");
    assert_eq!((refused.code(), refused.message()), expected);
}
