//! Leases, maintenance, and calls of unknown services.

use std::time::{Duration, Instant};

use bowline_proto::etcdserverpb as pb;
use pb::maintenance_client::MaintenanceClient;
use sha2::{Digest, Sha256};
use tokio_stream::iter;
use tonic::Code;
use tonic::transport::Channel;

use crate::leaderless::three;
use crate::support::{put, range, start};

#[tokio::test]
async fn a_lease_is_granted_kept_alive_and_revoked_with_its_keys() {
    let running = start(&[]).await;
    let (mut lease, mut kv) = (running.lease().await, running.kv().await);
    let grant = |ttl, id| pb::LeaseGrantRequest { ttl, id };
    let granted = lease.lease_grant(grant(60, 7)).await.unwrap().into_inner();
    assert_eq!((granted.id, granted.ttl), (7, 60));
    let again = lease.lease_grant(grant(60, 7)).await.unwrap_err();
    assert_eq!(again.message(), "etcdserver: lease already exists");
    let long = lease
        .lease_grant(grant(9_000_000_001, 0))
        .await
        .unwrap_err();
    assert_eq!(
        (long.code(), long.message()),
        (Code::OutOfRange, "etcdserver: too large lease TTL")
    );
    let short = lease.lease_grant(grant(0, 0)).await.unwrap().into_inner();
    assert_eq!(short.ttl, 2);
    assert_ne!(short.id, 0);
    let leased = pb::PutRequest {
        lease: 7,
        ..put("k", "v")
    };
    kv.put(leased).await.unwrap();
    let requests = [7, 8].map(|id| pb::LeaseKeepAliveRequest { id });
    let mut kept = lease
        .lease_keep_alive(iter(requests))
        .await
        .unwrap()
        .into_inner();
    let mut ttls = Vec::new();
    while let Some(reply) = kept.message().await.unwrap() {
        ttls.push((reply.id, reply.ttl));
    }
    assert_eq!(ttls, [(7, 60), (8, 0)]);
    let asked = pb::LeaseTimeToLiveRequest { id: 7, keys: true };
    let left = lease.lease_time_to_live(asked).await.unwrap().into_inner();
    assert_eq!(left.granted_ttl, 60);
    assert!(
        (58..=60).contains(&left.ttl) && left.keys == ["k"],
        "{left:?}"
    );
    let asked = pb::LeaseTimeToLiveRequest { id: 8, keys: true };
    assert_eq!(
        lease
            .lease_time_to_live(asked)
            .await
            .unwrap()
            .into_inner()
            .ttl,
        -1
    );
    let all = lease
        .lease_leases(pb::LeaseLeasesRequest {})
        .await
        .unwrap()
        .into_inner();
    assert!(all.leases.iter().any(|lease| lease.id == 7));
    lease
        .lease_revoke(pb::LeaseRevokeRequest { id: 7 })
        .await
        .unwrap();
    assert!(
        kv.range(range("k"))
            .await
            .unwrap()
            .into_inner()
            .kvs
            .is_empty()
    );
    let gone = lease
        .lease_revoke(pb::LeaseRevokeRequest { id: 7 })
        .await
        .unwrap_err();
    assert_eq!(gone.message(), "etcdserver: requested lease not found");
}

/// The keys of a lease go into one message, which the server builds in memory.
#[tokio::test]
async fn more_keys_of_a_lease_than_a_reply_holds_are_refused() {
    /// More than the 32 MiB of a reply, at 64 KiB each.
    const KEYS: usize = 33 * 16;
    let running = start(&[]).await;
    let lease = running.lease().await;
    let mut lease = lease.max_decoding_message_size(usize::MAX);
    let mut kv = running.kv().await;
    let grant = pb::LeaseGrantRequest { ttl: 600, id: 7 };
    lease.lease_grant(grant).await.unwrap();
    let key = |number: usize| format!("{number:065500}");
    for first in (0..KEYS).step_by(16) {
        let puts = (first..first + 16).map(|number| pb::RequestOp {
            request: Some(pb::request_op::Request::RequestPut(pb::PutRequest {
                lease: 7,
                ..put(&key(number), "")
            })),
        });
        let txn = pb::TxnRequest {
            success: puts.collect(),
            ..pb::TxnRequest::default()
        };
        kv.txn(txn).await.unwrap();
    }
    let asked = |keys| pb::LeaseTimeToLiveRequest { id: 7, keys };
    let refused = lease.lease_time_to_live(asked(true)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("keys of the lease"), "{refused}");
    let left = lease.lease_time_to_live(asked(false)).await.unwrap();
    assert_eq!(left.into_inner().granted_ttl, 600);
    // Below the bound all of them are there.
    let most = pb::DeleteRangeRequest {
        key: key(20).into(),
        range_end: vec![0].into(),
        ..pb::DeleteRangeRequest::default()
    };
    kv.delete_range(most).await.unwrap();
    let left = lease.lease_time_to_live(asked(true)).await.unwrap();
    assert_eq!(left.into_inner().keys.len(), 20);
}

#[tokio::test]
async fn a_member_tells_how_it_is() {
    let running = start(&[]).await;
    let mut maintenance = running.maintenance().await;
    let status = maintenance
        .status(pb::StatusRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(status.version, "3.7.3");
    assert_eq!(status.leader, status.header.unwrap().member_id);
    let hash = |revision| pb::HashKvRequest { revision };
    let first = maintenance.hash_kv(hash(0)).await.unwrap().into_inner();
    let again = maintenance.hash_kv(hash(0)).await.unwrap().into_inner();
    assert_eq!(first.hash, again.hash);
}

#[tokio::test]
async fn a_downgrade_is_refused_as_etcd_refuses_versions_that_it_has_not() {
    use pb::downgrade_request::DowngradeAction::{Cancel, Enable, Validate};
    let running = start(&[]).await;
    let mut maintenance = running.maintenance().await;
    for (action, version, code, text) in [
        (
            Validate,
            "3.5.0",
            Code::InvalidArgument,
            "invalid downgrade target version",
        ),
        (
            Enable,
            "3.5",
            Code::InvalidArgument,
            "invalid downgrade target version",
        ),
        (
            Validate,
            "",
            Code::InvalidArgument,
            "wrong downgrade target version format",
        ),
    ] {
        let request = pb::DowngradeRequest {
            action: action.into(),
            version: version.to_owned(),
        };
        let refused = maintenance.downgrade(request).await.unwrap_err();
        assert_eq!(refused.code(), code);
        assert_eq!(refused.message(), format!("etcdserver: {text}"));
    }
    let cancel = pb::DowngradeRequest {
        action: Cancel.into(),
        version: String::new(),
    };
    let ended = maintenance.downgrade(cancel).await.unwrap().into_inner();
    assert_eq!(
        (&*ended.version, ended.header.unwrap().revision),
        ("3.7", 1)
    );
}

/// A member decided by its own state whether an alarm was raised: one that had not heard of it told of none, and answered that
/// it was ended, and nothing was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_is_ended_through_a_member_that_has_not_heard_of_it() {
    use pb::alarm_request::AlarmAction::{self, Activate, Deactivate, Get};
    /// In some of them the other member lags behind the one that leads.
    const ROUNDS: usize = 50;
    let place = tempfile::tempdir().unwrap();
    let servers = three(&place).await;
    let mut clients = Vec::new();
    for server in &servers {
        let url = format!("http://{}", server.addresses()[0]);
        let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
        clients.push(MaintenanceClient::new(channel));
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    // How many alarms the reply has. It is asked again while there is no leader.
    let ask = async |number: usize, action: AlarmAction| {
        let asked = pb::AlarmRequest {
            action: action.into(),
            member_id: 7,
            alarm: pb::AlarmType::Nospace.into(),
        };
        let mut client = clients[number].clone();
        loop {
            match client.alarm(asked).await {
                Ok(reply) => return reply.into_inner().alarms.len(),
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert_eq!(ask(0, Get).await, 0);
    let leads = |number: &usize| {
        let now = servers[*number].client().status();
        now.leader == Some(now.member_id)
    };
    let first = (0..3).find(leads).unwrap_or(0);
    let other = (first + 1) % 3;
    for round in 0..ROUNDS {
        ask(first, Activate).await;
        ask(other, Deactivate).await;
        assert_eq!(ask(first, Get).await, 0, "it was not ended in {round}");
        ask(first, Activate).await;
        assert_eq!(ask(other, Get).await, 1, "it was not told in {round}");
        ask(first, Deactivate).await;
    }
}

/// The hash is of what is sent, so a backup of rotten tables passed for a good one until it was restored.
#[tokio::test]
async fn no_snapshot_of_rotten_tables_is_sent() {
    let running = start(&[]).await;
    running.kv().await.put(put("k", "v")).await.unwrap();
    let mut maintenance = running.maintenance().await;
    let mut stream = async || {
        let stream = maintenance.snapshot(pb::SnapshotRequest {}).await;
        let mut stream = stream.unwrap().into_inner();
        while stream.message().await?.is_some() {}
        Ok::<(), tonic::Status>(())
    };
    // It flushes what is in memory.
    stream().await.unwrap();
    let tables = std::fs::read_dir(running.data().join("tables")).unwrap();
    let tables: Vec<_> = tables.map(|entry| entry.unwrap().path()).collect();
    assert!(!tables.is_empty());
    for path in tables {
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.len() / 3;
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    let refused = stream().await.unwrap_err();
    assert_eq!(refused.code(), Code::Internal);
    assert!(
        refused.message().contains("is damaged, so it is not sent"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_snapshot_is_whole_sectors_and_a_hash() {
    let running = start(&[]).await;
    running.kv().await.put(put("k", "v")).await.unwrap();
    let mut maintenance = running.maintenance().await;
    let mut stream = maintenance
        .snapshot(pb::SnapshotRequest {})
        .await
        .unwrap()
        .into_inner();
    let mut blob = Vec::new();
    let mut remaining = Vec::new();
    while let Some(reply) = stream.message().await.unwrap() {
        blob.extend_from_slice(&reply.blob);
        remaining.push(reply.remaining_bytes);
    }
    assert_eq!(blob.len() % 512, 32);
    let (content, trailer) = blob.split_at(blob.len() - 32);
    assert_eq!(Sha256::digest(content)[..], *trailer);
    assert!(remaining.is_sorted_by(|a, b| a >= b) && remaining.last() == Some(&0));
    let (head, _) = bowline_server::SnapshotFile::decode_head(&blob).unwrap();
    assert_eq!(head.revision, 2);
}

#[tokio::test]
async fn services_that_there_are_not_are_unimplemented() {
    let running = start(&[]).await;
    let mut client = tonic::client::Grpc::new(running.channel().await);
    client.ready().await.unwrap();
    let path = "/etcdserverpb.KV/Rename".parse().unwrap();
    let codec = tonic_prost::ProstCodec::<pb::RangeRequest, pb::RangeResponse>::default();
    let refused = client
        .unary(tonic::Request::new(range("k")), path, codec)
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::Unimplemented);
}
