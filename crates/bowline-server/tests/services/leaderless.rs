//! A member that lost its leader: requests and streams that need a leader are refused or ended, and all others
//! are served.

use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::v3electionpb::LeaderRequest;
use bowline_proto::v3electionpb::election_client::ElectionClient;
use bowline_server::Server;
use bowline_server::config::{Config, Layers};
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::maintenance_client::MaintenanceClient;
use pb::watch_client::WatchClient;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::health::next;
use crate::support::{put, range};
use bowline_testing::ports::free_port;

/// Of the cluster.
const ELECTION_TIMEOUT: Duration = Duration::from_millis(800);
/// Longer than anything takes.
const IN_TIME: Duration = Duration::from_secs(20);

/// Three members of one cluster.
pub(crate) async fn three(place: &tempfile::TempDir) -> Vec<Server> {
    let names = ["a", "b", "c"];
    let urls = names.map(|_| format!("http://127.0.0.1:{}", free_port()));
    let all: Vec<String> = std::iter::zip(names, &urls)
        .map(|(name, url)| format!("{name}={url}"))
        .collect();
    let election_timeout = ELECTION_TIMEOUT.as_millis().to_string();
    let start = |(name, url): (&str, &String)| {
        let data = place.path().join(name).display().to_string();
        let mut layers = Layers::default();
        for (key, value) in [
            ("name", name),
            ("data-dir", &data),
            ("listen-client-urls", "http://127.0.0.1:0"),
            ("listen-peer-urls", url),
            ("initial-advertise-peer-urls", url),
            ("initial-cluster", &all.join(",")),
            ("heartbeat-interval", "30"),
            ("election-timeout", &election_timeout),
        ] {
            layers.add_flag(key, value.to_owned()).unwrap();
        }
        let config = Config::from_layers(&layers).unwrap();
        tokio::spawn(Server::start(config))
    };
    let starting: Vec<_> = std::iter::zip(names, &urls).map(start).collect();
    let mut servers = Vec::new();
    for server in starting {
        servers.push(server.await.unwrap().unwrap());
    }
    servers
}

fn needing_leader<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let value = "true".parse().unwrap();
    request.metadata_mut().insert("hasleader", value);
    request
}

async fn channel(server: &Server) -> Channel {
    let url = format!("http://{}", server.addresses()[0]);
    Channel::from_shared(url).unwrap().connect().await.unwrap()
}

/// Puts `k` once there is a leader.
async fn put_when_ready(kv: &mut KvClient<Channel>) {
    let mut ready = kv.put(put("k", "v")).await;
    for _ in 0..100 {
        if ready.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        ready = kv.put(put("k", "v")).await;
    }
    ready.unwrap();
}

fn assert_no_leader(status: &Status) {
    let expected = (Code::Unavailable, "etcdserver: no leader");
    assert_eq!((status.code(), status.message()), expected);
}

#[tokio::test]
async fn who_needs_a_leader_is_told_that_there_is_none() {
    let place = tempfile::tempdir().unwrap();
    let mut servers = three(&place).await;
    let channel = channel(&servers[0]).await;
    let mut kv = KvClient::new(channel.clone());
    put_when_ready(&mut kv).await;
    kv.range(needing_leader(range("k"))).await.unwrap();

    // Streams that ask for a leader, one that does not, and one that follows how the member is.
    let (lease_requests, requests) = tokio::sync::mpsc::channel::<pb::LeaseKeepAliveRequest>(1);
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut lease = LeaseClient::new(channel.clone());
    let kept = lease.lease_keep_alive(needing_leader(requests)).await;
    let mut kept = kept.unwrap().into_inner();
    let mut watch = WatchClient::new(channel.clone());
    let open = || tokio_stream::pending::<pb::WatchRequest>();
    let (lasting_requests, requests) = tokio::sync::mpsc::channel(1);
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut watched = watch
        .watch(needing_leader(open()))
        .await
        .unwrap()
        .into_inner();
    let mut lasting = watch.watch(requests).await.unwrap().into_inner();
    let mut election = ElectionClient::new(channel.clone());
    let name = "nobody".into();
    let observed = election.observe(needing_leader(LeaderRequest { name }));
    let mut observed = observed.await.unwrap().into_inner();
    let mut health = HealthClient::new(channel.clone());
    let health_request = HealthCheckRequest::default();
    let mut healthy = health.watch(health_request).await.unwrap().into_inner();
    while next(&mut healthy).await != ServingStatus::Serving {}

    let lost = std::time::Instant::now();
    for server in servers.drain(1..) {
        tokio::spawn(server.shutdown());
    }
    let end = timeout(IN_TIME, watched.next()).await.expect("in time");
    assert_no_leader(&end.unwrap().unwrap_err());
    // Not at the first doubt: an election may be going on.
    assert!(
        lost.elapsed() >= ELECTION_TIMEOUT * 3,
        "{:?}",
        lost.elapsed()
    );
    let end = timeout(IN_TIME, kept.next()).await.expect("in time");
    assert_no_leader(&end.unwrap().unwrap_err());
    let end = timeout(IN_TIME, observed.next()).await.expect("in time");
    assert_no_leader(&end.unwrap().unwrap_err());
    drop(lease_requests);
    assert_eq!(next(&mut healthy).await, ServingStatus::NotServing);

    // A list of leases is the newest, so without a leader there is none. It waits, as its client asks for no leader.
    let mut listing = lease.clone();
    let listing = async move { listing.lease_leases(pb::LeaseLeasesRequest {}).await };
    let listing = tokio::spawn(timeout(IN_TIME, listing));

    // Now nothing is begun that needs a leader, and nothing waits for one.
    let before = std::time::Instant::now();
    assert_no_leader(&kv.range(needing_leader(range("k"))).await.unwrap_err());
    let serializable = || pb::RangeRequest {
        serializable: true,
        ..range("k")
    };
    assert_no_leader(&kv.range(needing_leader(serializable())).await.unwrap_err());
    assert_no_leader(&kv.put(needing_leader(put("k", "w"))).await.unwrap_err());
    assert_no_leader(&watch.watch(needing_leader(open())).await.unwrap_err());
    let name = "nobody".into();
    let observed = election.observe(needing_leader(LeaderRequest { name }));
    assert_no_leader(&observed.await.unwrap_err());
    let mut maintenance = MaintenanceClient::new(channel.clone());
    let status = maintenance.status(needing_leader(pb::StatusRequest {}));
    assert_no_leader(&status.await.unwrap_err());
    let mut auth = pb::auth_client::AuthClient::new(channel.clone());
    let status = auth.auth_status(needing_leader(pb::AuthStatusRequest {}));
    assert_no_leader(&status.await.unwrap_err());
    assert!(before.elapsed() < Duration::from_secs(3));
    // What needs none is served.
    assert_eq!(
        kv.range(serializable()).await.unwrap().into_inner().count,
        1
    );
    // So is a stream that needs none: it goes on, and takes another watch.
    let create = pb::watch_request::RequestUnion::CreateRequest(pb::WatchCreateRequest {
        key: "k".into(),
        ..pb::WatchCreateRequest::default()
    });
    let request = pb::WatchRequest {
        request_union: Some(create),
    };
    lasting_requests.send(request).await.unwrap();
    let reply = timeout(IN_TIME, lasting.next()).await.expect("in time");
    assert!(reply.unwrap().unwrap().created, "the first reply");
    let status = maintenance.status(pb::StatusRequest {}).await.unwrap();
    assert_eq!(status.into_inner().errors, ["etcdserver: no leader"]);
    let listed = listing.await.unwrap().expect("in time");
    assert_eq!(listed.unwrap_err().code(), Code::Unavailable);
}
