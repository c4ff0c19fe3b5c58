//! A server on a free port, for programs beside this one.

use std::time::Duration;

use bowline_server::Server;
use bowline_server::config::{Config, Layers};

/// A server with a directory of its own.
pub(crate) struct Running {
    server: Server,
    _directory: tempfile::TempDir,
}

/// Starts one, and waits until it leads itself.
pub(crate) async fn start() -> Running {
    let directory = tempfile::tempdir().unwrap();
    let mut layers = Layers::default();
    let data = directory.path().join("data").display().to_string();
    let peer = format!("http://127.0.0.1:{}", free_port());
    for (key, value) in [
        ("data-dir", data.as_str()),
        ("listen-client-urls", "http://127.0.0.1:0"),
        ("listen-peer-urls", &peer),
        ("initial-advertise-peer-urls", &peer),
    ] {
        layers.add_flag(key, value.to_owned()).unwrap();
    }
    let config = Config::from_layers(&layers).unwrap();
    let server = Server::start(config).await.unwrap();
    while server.client().status().leader.is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Running {
        server,
        _directory: directory,
    }
}

/// A port that nobody has, at least a moment ago.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Running {
    /// Host and port.
    pub(crate) fn address(&self) -> String {
        self.server.addresses()[0].to_string()
    }
}
