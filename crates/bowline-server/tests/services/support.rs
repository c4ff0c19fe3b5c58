//! A server on a free port, and clients of it.

use bowline_proto::etcdserverpb as pb;
use bowline_server::Server;
use bowline_server::config::{Config, Layers};
use bowline_testing::ports::free_port;
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::maintenance_client::MaintenanceClient;
use pb::watch_client::WatchClient;
use tonic::transport::Channel;

/// A server with a directory of its own.
pub(crate) struct Running {
    pub(crate) server: Server,
    directory: tempfile::TempDir,
    peer: String,
}

/// Starts one with a few settings.
pub(crate) async fn start(flags: &[(&str, &str)]) -> Running {
    start_with(flags, |_| {}).await
}

/// Starts one with a few settings and changes of the configuration.
pub(crate) async fn start_with(
    flags: &[(&str, &str)],
    change: impl FnOnce(&mut Config),
) -> Running {
    let directory = tempfile::tempdir().unwrap();
    let peer = format!("http://127.0.0.1:{}", free_port());
    start_in(directory, peer, flags, change).await
}

async fn start_in(
    directory: tempfile::TempDir,
    peer: String,
    flags: &[(&str, &str)],
    change: impl FnOnce(&mut Config),
) -> Running {
    let mut layers = Layers::default();
    let data = directory.path().join("data").display().to_string();
    let own = [
        ("data-dir", data.as_str()),
        ("listen-client-urls", "http://127.0.0.1:0"),
        ("listen-peer-urls", &peer),
        ("initial-advertise-peer-urls", &peer),
    ];
    for (key, value) in own.iter().chain(flags) {
        layers.add_flag(key, (*value).to_owned()).unwrap();
    }
    let mut config = Config::from_layers(&layers).unwrap();
    change(&mut config);
    let server = Server::start(config).await.unwrap();
    let running = Running {
        server,
        directory,
        peer,
    };
    // It elects itself in a moment.
    while running.server.client().status().leader.is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    running
}

impl Running {
    /// Stops it, and starts it again on its directory, without the settings that it had.
    pub(crate) async fn restarted(self) -> Running {
        self.restarted_with(&[]).await
    }

    /// [`Running::restarted`] with a few settings.
    pub(crate) async fn restarted_with(self, flags: &[(&str, &str)]) -> Running {
        self.restarted_after(flags, || {}).await
    }

    /// [`Running::restarted_with`] after something has happened to its files.
    pub(crate) async fn restarted_after(
        self,
        flags: &[(&str, &str)],
        happens: impl FnOnce(),
    ) -> Running {
        let Running {
            server,
            directory,
            peer,
        } = self;
        server.shutdown().await.unwrap();
        happens();
        start_in(directory, peer, flags, |_| {}).await
    }

    /// Where its files are.
    pub(crate) fn data(&self) -> std::path::PathBuf {
        self.directory.path().join("data")
    }

    /// Where its peers would find it.
    pub(crate) fn peer_url(&self) -> &str {
        &self.peer
    }

    pub(crate) fn address(&self) -> String {
        self.server.addresses()[0].to_string()
    }

    pub(crate) async fn channel(&self) -> Channel {
        let url = format!("http://{}", self.address());
        Channel::from_shared(url).unwrap().connect().await.unwrap()
    }

    pub(crate) async fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel().await).max_decoding_message_size(usize::MAX)
    }

    pub(crate) async fn watch(&self) -> WatchClient<Channel> {
        WatchClient::new(self.channel().await).max_decoding_message_size(usize::MAX)
    }

    pub(crate) async fn lease(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel().await)
    }

    pub(crate) async fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel().await)
    }
}

pub(crate) fn put(key: &str, value: &str) -> pb::PutRequest {
    pb::PutRequest {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        ..pb::PutRequest::default()
    }
}

pub(crate) fn range(key: &str) -> pb::RangeRequest {
    pb::RangeRequest {
        key: key.to_owned().into(),
        ..pb::RangeRequest::default()
    }
}

pub(crate) fn delete(key: &str) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest {
        key: key.to_owned().into(),
        ..pb::DeleteRangeRequest::default()
    }
}
