//! A server for the unit tests of services, which look behind its ports.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bowline_testing::ports::free_port;

use crate::config::{Config, Layers};
use crate::context::Context;
use crate::server::Server;

/// A member that is a cluster by itself.
pub(crate) struct TestServer {
    server: Server,
    _directory: tempfile::TempDir,
}

impl TestServer {
    /// Starts one, and waits until it leads.
    pub(crate) async fn start() -> TestServer {
        TestServer::start_with(|_| {}).await
    }

    /// Starts one with a changed configuration.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> TestServer {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data").display().to_string();
        let peer = format!("http://127.0.0.1:{}", free_port());
        let mut layers = Layers::default();
        for (key, value) in [
            ("data-dir", data.as_str()),
            ("listen-client-urls", "http://127.0.0.1:0"),
            ("listen-peer-urls", &peer),
            ("initial-advertise-peer-urls", &peer),
        ] {
            layers.add_flag(key, value.to_owned()).unwrap();
        }
        let mut config = Config::from_layers(&layers).unwrap();
        change(&mut config);
        let server = Server::start(config).await.unwrap();
        while !server.context().has_leader() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        TestServer {
            server,
            _directory: directory,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    pub(crate) async fn shutdown(self) {
        self.server.shutdown().await.unwrap();
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        self.server.context()
    }
}
