//! A server for the clients, and etcd itself, where it is installed.
//!
//! A program that passes here and not on etcd would show that we agree with ourselves. So each runs against both.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bowline_server::Server;
use bowline_server::config::{Config, Layers};
use bowline_testing::ports::free_port;
use bowline_testing::skip_part;
use bowline_tls::{Authority, Request};
use tokio::process::{Child, Command};

/// How long a program may take to say all it has to.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server with a directory of its own.
pub(crate) struct Running {
    server: Server,
    directory: tempfile::TempDir,
    scheme: &'static str,
}

/// Starts one, and waits until it leads itself.
pub(crate) async fn start() -> Running {
    start_in(tempfile::tempdir().unwrap(), "http", &[]).await
}

/// Starts one with a certificate of the CA in its directory's `ca.crt`.
async fn start_with_tls() -> Running {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::generate("a CA", 10).unwrap();
    authority.own().write(directory.path(), "ca").unwrap();
    let request = Request::server("server", ["127.0.0.1"]);
    let issued = authority.issue(&request).unwrap();
    let files = issued.write(directory.path(), "server").unwrap();
    let settings = [
        ("cert-file", files.certificate.display().to_string()),
        ("key-file", files.key.display().to_string()),
    ];
    start_in(directory, "https", &settings).await
}

async fn start_in(
    directory: tempfile::TempDir,
    scheme: &'static str,
    settings: &[(&str, String)],
) -> Running {
    let mut layers = Layers::default();
    let data = directory.path().join("data").display().to_string();
    let peer = format!("http://127.0.0.1:{}", free_port());
    for (key, value) in [
        ("data-dir", data),
        ("listen-client-urls", format!("{scheme}://127.0.0.1:0")),
        ("listen-peer-urls", peer.clone()),
        ("initial-advertise-peer-urls", peer),
    ]
    .iter()
    .chain(settings)
    {
        layers.add_flag(key, value.clone()).unwrap();
    }
    let config = Config::from_layers(&layers).unwrap();
    let server = Server::start(config).await.unwrap();
    while server.client().status().leader.is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Running {
        server,
        directory,
        scheme,
    }
}

impl Running {
    /// Host and port.
    pub(crate) fn address(&self) -> String {
        self.server.addresses()[0].to_string()
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address())
    }
}

/// The real one.
pub(crate) struct Etcd {
    _process: Child,
    _directory: tempfile::TempDir,
    pub(crate) url: String,
}

/// Starts it; `None` when it is not installed.
pub(crate) async fn start_etcd() -> Option<Etcd> {
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}");
    let peer = format!("http://127.0.0.1:{}", free_port());
    let Some(program) = bowline_testing::etcd::program() else {
        skip_part(bowline_testing::etcd::MISSING);
        return None;
    };
    let process = Command::new(program)
        .args(["--data-dir".as_ref(), directory.path().as_os_str()])
        .args(["--listen-client-urls", &url, "--advertise-client-urls"])
        .args([&url, "--listen-peer-urls", &peer])
        .args(["--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("etcd starts");
    let etcd = Etcd {
        _process: process,
        _directory: directory,
        url,
    };
    // It takes connections once it has a leader.
    let ready = async {
        while tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let started = tokio::time::timeout(PATIENCE, ready).await;
    started.expect("etcd has started");
    Some(etcd)
}

/// Whether a program is there to run.
pub(crate) fn is_installed(program: &str, version: &str) -> bool {
    let output = std::process::Command::new(program).arg(version).output();
    output.is_ok_and(|output| output.status.success())
}

/// A file of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// Runs a client against this server and against etcd. It has to make `checks` checks on each; and that of users once more
/// over TLS.
pub(crate) async fn on_both(checks: usize, client: impl Fn(&str) -> Command) {
    let running = start().await;
    passes("Bowline", checks, client(&running.url())).await;
    let running = start_with_tls().await;
    let mut over_tls = client(&running.url());
    over_tls.arg(running.directory.path().join("ca.crt"));
    over_tls.arg("users");
    passes("Bowline with TLS", 1, over_tls).await;
    if let Some(etcd) = start_etcd().await {
        passes("etcd", checks, client(&etcd.url)).await;
    }
}

async fn passes(server: &str, checks: usize, mut client: Command) {
    client.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, client.output()).await;
    let output = output.unwrap_or_else(|_| panic!("{client:?} took more than {PATIENCE:?}"));
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{server}:\n{said}");
    assert!(output.status.success(), "on {server}:\n{said}{errors}");
    let count = |what: &str| said.lines().filter(|line| line.starts_with(what)).count();
    assert_eq!(count("ok "), checks, "{said}{errors}");
    assert_eq!(count(&format!("done {checks}")), 1, "{said}");
}
