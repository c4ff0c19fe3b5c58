//! From a saved snapshot to a cluster: everything is there again, of the old members nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use bowline_server::config::{Config, Layers};
use bowline_server::{RestoreError, Server, SnapshotFile, restore_snapshot, snapshot_summary};
use pb::cluster_client::ClusterClient;
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::maintenance_client::MaintenanceClient;
use sha2::{Digest, Sha256};
use tonic::transport::Channel;

use super::support::{Running, delete, put, start};
use bowline_testing::ports::free_port;

/// Of an old server, whatever a restore must keep.
#[derive(Debug, PartialEq)]
struct Kept {
    revision: i64,
    /// Every key with its metadata, at every revision that can be read.
    keys: BTreeMap<i64, Vec<bowline_proto::mvccpb::KeyValue>>,
    compacted_is_refused: bool,
    leases: Vec<(i64, i64, Vec<Vec<u8>>)>,
    hash: u32,
}

/// The revision up to which the old server gives up its history.
const COMPACTED: i64 = 4;

async fn channel(server: &Server) -> Channel {
    let url = format!("http://{}", server.addresses()[0]);
    Channel::from_shared(url).unwrap().connect().await.unwrap()
}

async fn kept(channel: Channel) -> Kept {
    let mut kv = KvClient::new(channel.clone());
    let all = |revision| pb::RangeRequest {
        key: vec![0].into(),
        range_end: vec![0].into(),
        revision,
        ..pb::RangeRequest::default()
    };
    let newest = kv.range(all(0)).await.unwrap().into_inner();
    let revision = newest.header.unwrap().revision;
    let mut keys = BTreeMap::from([(0, newest.kvs)]);
    for at in COMPACTED..=revision {
        keys.insert(at, kv.range(all(at)).await.unwrap().into_inner().kvs);
    }
    let refused = kv.range(all(COMPACTED - 1)).await.unwrap_err();
    let mut lease = LeaseClient::new(channel.clone());
    let found = lease.lease_leases(pb::LeaseLeasesRequest {}).await;
    let mut leases = Vec::new();
    for status in found.unwrap().into_inner().leases {
        let asked = pb::LeaseTimeToLiveRequest {
            id: status.id,
            keys: true,
        };
        let told = lease.lease_time_to_live(asked).await.unwrap().into_inner();
        let keys = told.keys.iter().map(|key| key.to_vec()).collect();
        leases.push((told.id, told.granted_ttl, keys));
    }
    leases.sort();
    let mut maintenance = MaintenanceClient::new(channel);
    let hash = maintenance.hash_kv(pb::HashKvRequest { revision: 0 }).await;
    Kept {
        revision,
        keys,
        compacted_is_refused: refused.message().contains("has been compacted"),
        leases,
        hash: hash.unwrap().into_inner().hash,
    }
}

/// A server with some of everything: versions, a deletion, a lease, a compaction, an alarm.
async fn furnished() -> Running {
    let running = start(&[]).await;
    let mut kv = running.kv().await;
    let mut lease = running.lease().await;
    let grant = pb::LeaseGrantRequest { ttl: 600, id: 77 };
    lease.lease_grant(grant).await.unwrap();
    for number in 0..40 {
        let value = "v".repeat(number * 50);
        kv.put(put(&format!("k{}", number % 7), &value))
            .await
            .unwrap();
    }
    kv.delete_range(delete("k3")).await.unwrap();
    let leased = pb::PutRequest {
        lease: 77,
        ..put("leased", "x")
    };
    kv.put(leased).await.unwrap();
    let compaction = pb::CompactionRequest {
        revision: COMPACTED,
        physical: true,
    };
    kv.compact(compaction).await.unwrap();
    running.maintenance().await.alarm(raise()).await.unwrap();
    running
}

fn raise() -> pb::AlarmRequest {
    pb::AlarmRequest {
        action: pb::alarm_request::AlarmAction::Activate.into(),
        member_id: 4711,
        alarm: pb::AlarmType::Corrupt.into(),
    }
}

async fn save(running: &Running, path: &Path) {
    let mut maintenance = running.maintenance().await;
    let stream = maintenance.snapshot(pb::SnapshotRequest {}).await;
    let mut stream = stream.unwrap().into_inner();
    let mut blob = Vec::new();
    while let Some(reply) = stream.message().await.unwrap() {
        blob.extend_from_slice(&reply.blob);
    }
    std::fs::write(path, blob).unwrap();
}

fn config(flags: &[(&str, &str)]) -> Config {
    let mut layers = Layers::default();
    for (key, value) in flags {
        layers.add_flag(key, (*value).to_owned()).unwrap();
    }
    Config::from_layers(&layers).unwrap()
}

/// The settings of `names`, as members of one cluster.
fn members(place: &Path, names: &[&str]) -> Vec<Config> {
    let url = |_: &&str| format!("http://127.0.0.1:{}", free_port());
    let urls: Vec<String> = names.iter().map(url).collect();
    let pairs: Vec<String> = std::iter::zip(names, &urls)
        .map(|(name, url)| format!("{name}={url}"))
        .collect();
    let all = pairs.join(",");
    std::iter::zip(names, &urls)
        .map(|(name, url)| {
            let data = place.join("new").join(name).display().to_string();
            config(&[
                ("name", name),
                ("data-dir", &data),
                ("listen-client-urls", "http://127.0.0.1:0"),
                ("listen-peer-urls", url),
                ("initial-advertise-peer-urls", url),
                ("initial-cluster", &all),
            ])
        })
        .collect()
}

async fn with_leader(server: &Server) -> Channel {
    let channel = channel(server).await;
    let mut maintenance = MaintenanceClient::new(channel.clone());
    loop {
        let status = maintenance.status(pb::StatusRequest {}).await.unwrap();
        if status.into_inner().leader != 0 {
            return channel;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_restored_server_has_every_key_revision_and_lease_and_no_old_member() {
    let place = tempfile::tempdir().unwrap();
    let old = furnished().await;
    let before = kept(old.channel().await).await;
    let path = place.path().join("saved");
    save(&old, &path).await;
    let old_members = ClusterClient::new(old.channel().await)
        .member_list(pb::MemberListRequest { linearizable: true })
        .await
        .unwrap()
        .into_inner();

    let summary = snapshot_summary(&path).unwrap();
    assert_eq!(summary.revision as i64, before.revision);
    assert_eq!(summary.bytes, path.metadata().unwrap().len());
    assert!(summary.entries > 40, "{summary:?}");

    // The same address and the same token: even then, it is another cluster.
    let peer = old_members.members[0].peer_ur_ls[0].clone();
    let data = place.path().join("a/b/data").display().to_string();
    let flags = [
        ("data-dir", data.as_str()),
        ("listen-client-urls", "http://127.0.0.1:0"),
        ("listen-peer-urls", &peer),
        ("initial-advertise-peer-urls", &peer),
    ];
    let restored = restore_snapshot(&path, &config(&flags)).unwrap();
    let old_header = old_members.header.unwrap();
    assert_ne!(restored.cluster_id, old_header.cluster_id);
    assert_ne!(restored.member_id, old_header.member_id);
    old.server.shutdown().await.unwrap();

    // Twice: what was restored is as durable as anything else.
    for round in 0..2 {
        // Whom it was restored as is known to the directory.
        let server = Server::start(config(&flags)).await.unwrap();
        let channel = with_leader(&server).await;
        assert_eq!(kept(channel.clone()).await, before, "round {round}");
        let members = ClusterClient::new(channel.clone())
            .member_list(pb::MemberListRequest { linearizable: true })
            .await
            .unwrap()
            .into_inner();
        let header = members.header.unwrap();
        assert_eq!(header.cluster_id, restored.cluster_id);
        let ids: Vec<u64> = members.members.iter().map(|member| member.id).collect();
        assert_eq!(ids, [restored.member_id]);
        let mut maintenance = MaintenanceClient::new(channel.clone());
        let alarms = maintenance.alarm(pb::AlarmRequest::default()).await;
        assert!(alarms.unwrap().into_inner().alarms.is_empty());
        server.shutdown().await.unwrap();
    }
    let server = Server::start(config(&flags)).await.unwrap();
    let mut kv = KvClient::new(with_leader(&server).await);
    let reply = kv.put(put("k0", "after")).await.unwrap().into_inner();
    assert_eq!(reply.header.unwrap().revision, before.revision + 1);
    server.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_members_restored_from_one_file_are_one_cluster() {
    let place = tempfile::tempdir().unwrap();
    let old = furnished().await;
    let before = kept(old.channel().await).await;
    let path = place.path().join("saved");
    save(&old, &path).await;
    old.server.shutdown().await.unwrap();

    let configs = members(place.path(), &["a", "b", "c"]);
    let mut clusters = Vec::new();
    let mut servers = Vec::new();
    for config in &configs {
        let restored = restore_snapshot(&path, config).unwrap();
        clusters.push(restored.cluster_id);
        servers.push(Server::start(config.clone()).await.unwrap());
    }
    assert!(clusters.iter().all(|id| *id == clusters[0]), "{clusters:?}");
    let mut channels = Vec::new();
    for server in &servers {
        channels.push(with_leader(server).await);
    }
    for channel in &channels {
        assert_eq!(kept(channel.clone()).await, before);
    }
    let mut kv = KvClient::new(channels[0].clone());
    kv.put(put("k0", "after")).await.unwrap();
    // Whatever the last one answers, it has the write.
    let mut hashes = Vec::new();
    for channel in &channels {
        let mut kv = KvClient::new(channel.clone());
        let found = kv.range(super::support::range("k0")).await.unwrap();
        assert_eq!(found.into_inner().kvs[0].value, "after");
        let mut maintenance = MaintenanceClient::new(channel.clone());
        let hash = maintenance.hash_kv(pb::HashKvRequest { revision: 0 }).await;
        hashes.push(hash.unwrap().into_inner().hash);
    }
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    for server in servers {
        server.shutdown().await.unwrap();
    }
}

/// Another token, or another file, makes another cluster of the same members.
#[tokio::test]
async fn the_ids_follow_from_the_file_the_members_and_the_token() {
    let place = tempfile::tempdir().unwrap();
    let old = start(&[]).await;
    let path = place.path().join("saved");
    // Before anything was agreed on there is nothing to save.
    old.kv().await.put(put("j", "v")).await.unwrap();
    save(&old, &path).await;
    old.kv().await.put(put("k", "v")).await.unwrap();
    let later = place.path().join("later");
    save(&old, &later).await;
    old.server.shutdown().await.unwrap();
    let made = |name: &str, path: &Path, token: &str| {
        let data = place.path().join(name).display().to_string();
        let config = config(&[("data-dir", &data), ("initial-cluster-token", token)]);
        let restored = restore_snapshot(path, &config).unwrap();
        (restored.cluster_id, restored.member_id)
    };
    let first = made("1", &path, "t");
    assert_eq!(made("2", &path, "t"), first);
    for other in [made("3", &path, "u"), made("4", &later, "t")] {
        assert!(other.0 != first.0 && other.1 != first.1);
    }
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let old = furnished().await;
    let path = place.path().join("saved");
    save(&old, &path).await;
    old.server.shutdown().await.unwrap();
    let whole = std::fs::read(&path).unwrap();
    let (head, head_len) = SnapshotFile::decode_head(&whole).unwrap();
    let data = place.path().join("data");
    let config = config(&[("data-dir", &data.display().to_string())]);
    let bad = place.path().join("bad");
    let refused = |bytes: &[u8], why: &str| {
        std::fs::write(&bad, bytes).unwrap();
        let error = restore_snapshot(&bad, &config).unwrap_err();
        assert!(!data.exists(), "{why}: {error}");
        error
    };
    let with_hash = |mut bytes: Vec<u8>| {
        let content = bytes.len() - 32;
        let hash = Sha256::digest(&bytes[..content]);
        bytes[content..].copy_from_slice(&hash);
        bytes
    };

    /// What a snapshot begins with; without it a file is none.
    const MAGIC_BYTES: usize = 8;
    // Every part: the head, the state, each table, the padding, the hash.
    let mut places: Vec<usize> = (0..head_len).step_by(5).collect();
    places.extend((head_len..whole.len()).step_by(331));
    places.push(whole.len() - 1);
    for at in places {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x20;
        let error = refused(&damaged, &format!("byte {at}"));
        match error {
            RestoreError::NotASnapshot { .. } => assert!(at < MAGIC_BYTES, "byte {at}: {error}"),
            RestoreError::Damaged { .. } => {
                assert!(error.to_string().contains("at byte "), "{error}");
            }
            _ => panic!("byte {at}: {error}"),
        }
    }
    for len in [
        0,
        7,
        40,
        head_len,
        head_len + 100,
        whole.len() - 512,
        whole.len() - 1,
    ] {
        let error = refused(&whole[..len], &format!("{len} bytes"));
        match &error {
            RestoreError::NotASnapshot { .. } => assert!(len < MAGIC_BYTES, "{len}: {error}"),
            RestoreError::Damaged { bad, .. } => assert!(bad.offset <= len, "{error}"),
            _ => panic!("{len} bytes: {error}"),
        }
    }
    let error = refused(&[&whole[..], &[0; 512]].concat(), "longer");
    assert!(error.to_string().contains("the end of the file"), "{error}");

    // Damage that was there already when the hash was made: each table is verified, too.
    let mut at = head_len;
    for (name, bytes) in &head.tables {
        let mut damaged = whole.clone();
        damaged[at + *bytes as usize / 3] ^= 1;
        let error = refused(&with_hash(damaged), name);
        assert!(matches!(error, RestoreError::Node(_)), "{error}");
        assert!(error.to_string().contains(name), "{error}");
        at += *bytes as usize;
    }
    // The head has no other checksum than the hash. One that was made up may happen to fit its tables.
    let mut fit = 0;
    let places: Vec<usize> = (8..head_len).step_by(3).collect();
    for place in &places {
        let mut forged = whole.clone();
        forged[*place] ^= 1;
        std::fs::write(&bad, with_hash(forged)).unwrap();
        match restore_snapshot(&bad, &config) {
            Ok(_) => {
                fit += 1;
                std::fs::remove_dir_all(&data).unwrap();
            }
            Err(error) => assert!(!data.exists(), "byte {place}: {error}"),
        }
    }
    assert!(fit < places.len() / 4, "{fit} of {}", places.len());
    let none = place.path().join("none");
    let error = restore_snapshot(&none, &config).unwrap_err();
    assert!(matches!(error, RestoreError::Unreadable { .. }), "{error}");

    // The whole one is taken, and only once.
    restore_snapshot(&path, &config).unwrap();
    let files = |path: &PathBuf| std::fs::read_dir(path).unwrap().count();
    let made = files(&data);
    let error = restore_snapshot(&path, &config).unwrap_err();
    assert!(matches!(error, RestoreError::NotEmpty { .. }), "{error}");
    assert_eq!(files(&data), made);
}
