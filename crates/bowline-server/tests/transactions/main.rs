//! `bowline.v1.Store` and `bowline.v1.Lease` through `bowline-client`, on one server and on three members that
//! agree; and the graph on three members.

mod conflicts;
mod leases;
mod members;
mod refusals;

use std::time::{Duration, Instant};

use bowline_client::Client;
use bowline_server::Server;
use bowline_server::config::{Config, Layers};
use bowline_testing::ports::free_port;

const PATIENCE: Duration = Duration::from_secs(20);

/// Servers of one cluster in this process.
pub(crate) struct Cluster {
    servers: Vec<Server>,
    _directory: tempfile::TempDir,
}

impl Cluster {
    /// Starts so many members, and waits until each of them answers.
    pub(crate) async fn start(size: usize) -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..size).map(|number| format!("n{number}")).collect();
        let peers: Vec<String> = (0..size)
            .map(|_| format!("http://127.0.0.1:{}", free_port()))
            .collect();
        let founders: Vec<String> = names
            .iter()
            .zip(&peers)
            .map(|(name, peer)| format!("{name}={peer}"))
            .collect();
        let founders = founders.join(",");
        let mut starting = tokio::task::JoinSet::new();
        for (name, peer) in names.iter().zip(&peers) {
            let mut layers = Layers::default();
            let data = directory.path().join(name).display().to_string();
            for (key, value) in [
                ("name", &**name),
                ("data-dir", &data),
                ("listen-client-urls", "http://127.0.0.1:0"),
                ("listen-peer-urls", peer),
                ("initial-advertise-peer-urls", peer),
                ("initial-cluster", &founders),
            ] {
                layers.add_flag(key, value.to_owned()).unwrap();
            }
            let config = Config::from_layers(&layers).unwrap();
            starting.spawn(Server::start(config));
        }
        let mut servers = Vec::new();
        while let Some(started) = starting.join_next().await {
            servers.push(started.unwrap().unwrap());
        }
        let cluster = Cluster {
            servers,
            _directory: directory,
        };
        for number in 0..size {
            let client = cluster.client_of(number);
            let deadline = Instant::now() + PATIENCE;
            while let Err(error) = client.get("ready").await {
                assert!(Instant::now() < deadline, "{error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        cluster
    }

    /// A client of one member.
    pub(crate) fn client_of(&self, number: usize) -> Client {
        let address = self.servers[number].addresses()[0].to_string();
        Client::builder()
            .endpoints([address])
            .connect_lazy()
            .unwrap()
    }

    /// A member that does not lead.
    pub(crate) async fn follower(&self) -> usize {
        for number in 0..self.servers.len() {
            let status = self.client_of(number).status().await.unwrap();
            if status.leader != Some(status.header.member_id) {
                return number;
            }
        }
        panic!("all lead");
    }
}

/// The number in a key; 0 when it is absent.
pub(crate) fn number(value: Option<bytes::Bytes>) -> u64 {
    value.map_or(0, |value| {
        std::str::from_utf8(&value).unwrap().parse().unwrap()
    })
}
