//! Bowline, and the real etcd beside it where that is installed: what is asked of both gets the same
//! answers.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::v3lockpb::lock_client::LockClient;
use bowline_proto::v3lockpb::{LockRequest, UnlockRequest};
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use tonic::transport::Channel;

use crate::support::{Running, range, start};
use bowline_testing::ports::free_port;

/// A server of the API.
pub(crate) struct Served {
    pub(crate) channel: Channel,
    /// Whether it is the real etcd, of version 3.4.
    pub(crate) is_etcd: bool,
    _etcd: Option<Etcd>,
    _bowline: Option<Running>,
}

struct Etcd {
    child: Child,
    _directory: tempfile::TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bowline, and etcd if it is there.
pub(crate) async fn both() -> Vec<Served> {
    let running = start(&[]).await;
    let mut servers = vec![Served {
        channel: running.channel().await,
        is_etcd: false,
        _etcd: None,
        _bowline: Some(running),
    }];
    match start_etcd().await {
        Some(etcd) => servers.push(etcd),
        None => bowline_testing::skip_part(bowline_testing::etcd::MISSING),
    }
    servers
}

async fn start_etcd() -> Option<Served> {
    let program = bowline_testing::etcd::program()?;
    let directory = tempfile::tempdir().unwrap();
    let client = format!("http://127.0.0.1:{}", free_port());
    let peer = format!("http://127.0.0.1:{}", free_port());
    let child = Command::new(program)
        .args(["--name", "n", "--heartbeat-interval", "20"])
        .args(["--election-timeout", "200", "--data-dir"])
        .arg(directory.path().join("data"))
        .args(["--listen-client-urls", &client])
        .args(["--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer])
        .args(["--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("n={peer}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let etcd = Etcd {
        child,
        _directory: directory,
    };
    let channel = Channel::from_shared(client).unwrap().connect_lazy();
    let mut kv = KvClient::new(channel.clone());
    for _ in 0..600 {
        if kv.range(range("k")).await.is_ok() {
            return Some(Served {
                channel,
                is_etcd: true,
                _etcd: Some(etcd),
                _bowline: None,
            });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("etcd does not answer")
}

impl Served {
    pub(crate) fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone())
    }

    /// A lease of a minute.
    pub(crate) async fn grant(&self) -> i64 {
        let request = pb::LeaseGrantRequest { ttl: 60, id: 0 };
        let mut lease = LeaseClient::new(self.channel.clone());
        lease.lease_grant(request).await.unwrap().into_inner().id
    }

    /// Ends a lease; gives the revision at which its keys are gone.
    pub(crate) async fn revoke(&self, id: i64) -> i64 {
        let mut lease = LeaseClient::new(self.channel.clone());
        let request = pb::LeaseRevokeRequest { id };
        let reply = lease.lease_revoke(request).await.unwrap().into_inner();
        reply.header.unwrap().revision
    }

    /// The keys that begin so, in the order of their creation.
    pub(crate) async fn keys(&self, prefix: &str) -> Vec<String> {
        let mut end = prefix.to_owned().into_bytes();
        *end.last_mut().unwrap() += 1;
        let all = pb::RangeRequest {
            range_end: end.into(),
            sort_target: pb::range_request::SortTarget::Create.into(),
            ..range(prefix)
        };
        let found = self.kv().range(all).await.unwrap().into_inner();
        let key = |kv: &bowline_proto::mvccpb::KeyValue| String::from_utf8(kv.key.to_vec());
        found.kvs.iter().map(|kv| key(kv).unwrap()).collect()
    }

    /// Passes another lock from its holder to a waiter, which takes the same way through the server as what a test
    /// has begun before, and ends later than that would.
    pub(crate) async fn pass_another_lock(&self) {
        let (holder, waiter) = (self.grant().await, self.grant().await);
        let name = format!("another-{holder:x}");
        let mut client = LockClient::new(self.channel.clone());
        let request = |lease| LockRequest {
            name: name.clone().into(),
            lease,
        };
        let held = client.lock(request(holder)).await.unwrap().into_inner();
        let (mut other, second) = (client.clone(), request(waiter));
        let waiting = tokio::spawn(async move { other.lock(second).await });
        self.until_keys(&format!("{name}/"), 2).await;
        let key = held.key;
        client.unlock(UnlockRequest { key }).await.unwrap();
        let passed = tokio::time::timeout(Duration::from_secs(10), waiting).await;
        passed.expect("an answer in time").unwrap().unwrap();
        self.revoke(holder).await;
        self.revoke(waiter).await;
    }

    /// Waits until there are so many keys.
    pub(crate) async fn until_keys(&self, prefix: &str, count: usize) {
        for _ in 0..400 {
            if self.keys(prefix).await.len() == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("not {count} keys: {:?}", self.keys(prefix).await);
    }
}
