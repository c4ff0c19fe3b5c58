//! TLS on the ports for clients: who comes in, what is served, and files that change under load.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bowline_client::tls::{ClientOptions, ClientTls, KeyPairFiles};
use bowline_client::{Client, Error, KeyRange};
use bowline_server::Server;
use bowline_server::config::{Config, Layers};
use bowline_testing::ports::free_port;
use bowline_tls::{Authority, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::advisories::enable_for_certificates;

/// Has the names of certificates stand for users.
pub(crate) const AS_USERS: (&str, &str) = ("client-cert-auth", "true");

/// A CA, and a directory with what it has issued.
pub(crate) struct Certificates {
    pub(crate) authority: Authority,
    directory: tempfile::TempDir,
}

impl Certificates {
    pub(crate) fn new() -> Certificates {
        let made = Certificates {
            authority: Authority::generate("a CA", 10).unwrap(),
            directory: tempfile::tempdir().unwrap(),
        };
        made.authority.own().write(made.path(), "ca").unwrap();
        made.issue(
            &Request::server("server", ["localhost", "127.0.0.1"]),
            "server",
        );
        made.issue(&Request::client("alice"), "alice");
        made
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.path().join(name).display().to_string()
    }

    pub(crate) fn issue(&self, request: &Request, name: &str) -> String {
        let issued = self.authority.issue(request).unwrap();
        issued.write(self.path(), name).unwrap();
        let identity = bowline_tls::PeerIdentity::of_certificate(&issued.der).unwrap();
        identity.serial
    }

    /// The options of a client that shows a certificate.
    pub(crate) fn options(&self, name: &str) -> ClientOptions {
        ClientOptions {
            trusted_ca: Some(PathBuf::from(self.file("ca.crt"))),
            key_pair: Some(KeyPairFiles {
                certificate: self.file(&format!("{name}.crt")).into(),
                key: self.file(&format!("{name}.key")).into(),
            }),
            ..ClientOptions::default()
        }
    }

    /// A server that asks for certificates, with more settings.
    pub(crate) async fn start(&self, more: &[(&str, &str)]) -> Secure {
        let data = tempfile::tempdir().unwrap();
        let data_dir = data.path().join("data").display().to_string();
        let peer = format!("http://127.0.0.1:{}", free_port());
        let files = [
            ("cert-file", self.file("server.crt")),
            ("key-file", self.file("server.key")),
            ("trusted-ca-file", self.file("ca.crt")),
            ("data-dir", data_dir),
            ("listen-client-urls", "https://127.0.0.1:0".to_owned()),
            ("listen-metrics-urls", "https://127.0.0.1:0".to_owned()),
            ("listen-peer-urls", peer.clone()),
            ("initial-advertise-peer-urls", peer),
        ];
        let mut layers = Layers::default();
        for (key, value) in files {
            layers.add_flag(key, value).unwrap();
        }
        for (key, value) in more {
            layers.add_flag(key, (*value).to_owned()).unwrap();
        }
        let config = Config::from_layers(&layers).unwrap();
        let server = Server::start(config).await.unwrap();
        let secure = Secure {
            server,
            _data: data,
        };
        let client = secure.client(self.options("alice"));
        let begun = Instant::now();
        while let Err(error) = client.get("is there a leader").await {
            assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
        }
        secure
    }
}

pub(crate) struct Secure {
    pub(crate) server: Server,
    _data: tempfile::TempDir,
}

impl Secure {
    pub(crate) fn address(&self) -> String {
        self.server.addresses()[0].to_string()
    }

    pub(crate) fn client(&self, options: ClientOptions) -> Client {
        let tls = ClientTls::new(options).unwrap();
        let client = Client::builder().endpoints([self.address()]).tls(tls);
        client.connect_lazy().unwrap()
    }

    /// One request of HTTP/1; gives the whole answer.
    pub(crate) async fn http(
        &self,
        tls: &ClientTls,
        at: std::net::SocketAddr,
        path: &str,
    ) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
        self.ask(tls, at, &request).await
    }

    /// A range by the gateway.
    pub(crate) async fn post(
        &self,
        tls: &ClientTls,
        at: std::net::SocketAddr,
        body: &str,
    ) -> String {
        let len = body.len();
        let head = format!("POST /v3/kv/range HTTP/1.1\r\nHost: {at}\r\nConnection: close");
        let request = format!("{head}\r\nContent-Length: {len}\r\n\r\n{body}");
        self.ask(tls, at, &request).await
    }

    pub(crate) async fn ask(
        &self,
        tls: &ClientTls,
        at: std::net::SocketAddr,
        request: &str,
    ) -> String {
        let stream = TcpStream::connect(at).await.unwrap();
        let mut stream = tls.connect("127.0.0.1", stream).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

#[tokio::test]
async fn hot_calls_watches_the_gateway_health_and_metrics_are_served_over_tls() {
    let certificates = Certificates::new();
    let secure = certificates.start(&[]).await;
    let client = secure.client(certificates.options("alice"));
    let mut watcher = client.watch(KeyRange::prefix("w/")).await.unwrap();
    // More than any buffer between the two, each way.
    let value = vec![7; 1 << 20];
    for key in ["w/1", "w/2", "w/3"] {
        client.put(key, value.clone()).await.unwrap();
    }
    let read = client.range(KeyRange::prefix("w/")).await.unwrap();
    assert_eq!(read.entries.len(), 3);
    assert!(read.entries.iter().all(|entry| entry.value == value));
    let mut seen = 0;
    while seen < 3 {
        seen += watcher.next().await.unwrap().unwrap().events.len();
    }
    client.status().await.unwrap();
    let tls = ClientTls::new(certificates.options("alice")).unwrap();
    let port = secure.server.addresses()[0];
    let health = secure.http(&tls, port, "/health").await;
    assert!(health.contains(r#"{"health":"true""#), "{health}");
    let metrics = secure.server.metrics_addresses()[0];
    let metrics = secure.http(&tls, metrics, "/metrics").await;
    assert!(metrics.contains("etcd_server_has_leader 1"), "{metrics}");
    let value = |row: &str| -> u64 {
        let found = metrics.lines().find_map(|line| line.strip_prefix(row));
        found
            .unwrap_or_else(|| panic!("{row}: {metrics}"))
            .trim()
            .parse()
            .unwrap()
    };
    assert!(value(r#"bowline_tls_handshakes_total{port="clients",result="ok"}"#) >= 2);
    assert_eq!(
        value(r#"bowline_tls_handshakes_total{port="clients",result="failed"}"#),
        0
    );
    let expires = value(r#"bowline_tls_certificate_expiration_timestamp_seconds{port="clients"}"#);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!(
        (364 * 86_400..=365 * 86_400).contains(&(expires - now)),
        "{expires}"
    );
    secure.server.shutdown().await.unwrap();
}

#[tokio::test]
async fn who_has_no_right_certificate_is_refused_with_the_reason() {
    let certificates = Certificates::new();
    let secure = certificates.start(&[]).await;
    let said = async |options: ClientOptions| {
        let error = secure.client(options).get("k").await.unwrap_err();
        error.to_string()
    };
    let alice = || certificates.options("alice");
    let none = said(ClientOptions {
        key_pair: None,
        ..alice()
    })
    .await;
    assert!(none.contains("asks for a client's certificate"), "{none}");
    let other = Certificates::new();
    let foreign = said(ClientOptions {
        trusted_ca: alice().trusted_ca,
        ..other.options("alice")
    })
    .await;
    assert!(foreign.contains("does not trust the CA"), "{foreign}");
    let unknown = said(ClientOptions {
        trusted_ca: other.options("alice").trusted_ca,
        ..alice()
    })
    .await;
    assert!(unknown.contains("not of a trusted CA"), "{unknown}");
    let name = Some("other.example.com".to_owned());
    let host = said(ClientOptions {
        server_name: name,
        ..alice()
    })
    .await;
    assert!(host.contains("for another host"), "{host}");
    let clear = Client::builder().endpoints([format!("http://{}", secure.address())]);
    assert!(clear.connect_lazy().unwrap().get("k").await.is_err());
    // Good ones are served all the same.
    secure.client(alice()).get("k").await.unwrap();
    secure.server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_certificate_that_is_revoked_while_the_server_runs_is_refused() {
    let certificates = Certificates::new();
    let bob = certificates.issue(&Request::client("bob"), "bob");
    let list = certificates.path().join("list.pem");
    fs::write(&list, certificates.authority.revoke(&[]).unwrap()).unwrap();
    let file = certificates.file("list.pem");
    let secure = certificates.start(&[("client-crl-file", &file)]).await;
    let bobs = secure.client(certificates.options("bob"));
    bobs.get("k").await.unwrap();
    let alices = secure.client(certificates.options("alice"));
    alices.get("k").await.unwrap();
    fs::write(&list, certificates.authority.revoke(&[&bob]).unwrap()).unwrap();
    secure.server.reload_certificates();
    // What is open ends, too, and nobody else's.
    let error = bobs.get("k").await.unwrap_err();
    assert!(error.to_string().contains("was revoked"), "{error}");
    alices.get("k").await.unwrap();
    let error = secure
        .client(certificates.options("bob"))
        .get("k")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("was revoked"), "{error}");
    secure
        .client(certificates.options("alice"))
        .get("k")
        .await
        .unwrap();
    // A list that is damaged changes nothing.
    fs::write(&list, "damaged").unwrap();
    secure.server.reload_certificates();
    assert!(
        secure
            .client(certificates.options("bob"))
            .get("k")
            .await
            .is_err()
    );
    secure
        .client(certificates.options("alice"))
        .get("k")
        .await
        .unwrap();
    secure.server.shutdown().await.unwrap();
}

/// Certificates, keys and the CA are replaced while clients call, some over connections that last and some over new ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_fails_while_certificates_keys_and_the_ca_are_rotated() {
    let certificates = Certificates::new();
    let secure = Arc::new(certificates.start(&[]).await);
    let (calls, connections) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut callers = Vec::new();
    for caller in 0..4 {
        let (secure, options) = (secure.clone(), certificates.options("alice"));
        let (calls, connections, is_over) = (calls.clone(), connections.clone(), is_over.clone());
        callers.push(tokio::spawn(async move {
            let tls = ClientTls::new(options).unwrap();
            let connect = || {
                let client = Client::builder()
                    .endpoints([secure.address()])
                    .tls(tls.clone());
                client.connect_lazy().unwrap()
            };
            let mut client = connect();
            while !is_over.load(Ordering::Relaxed) {
                let key = format!("k/{caller}");
                client.put(key, "v").await.expect("no call fails");
                calls.fetch_add(1, Ordering::Relaxed);
                if caller % 2 == 1 {
                    client = connect();
                    connections.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
    }
    // The order of every rotation of a CA: both are trusted, then certificates are of the new one, then only that is.
    let next = Authority::generate("the next CA", 10).unwrap();
    let write = |name: &str, text: &str| {
        let new = certificates.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, certificates.path().join(name)).unwrap();
    };
    let settle = async || {
        secure.server.reload_certificates();
        tokio::time::sleep(Duration::from_millis(1200)).await;
    };
    let both = format!(
        "{}{}",
        certificates.authority.own().certificate,
        next.own().certificate
    );
    write("ca.crt", &both);
    settle().await;
    let server = Request::server("server", ["127.0.0.1"]);
    let issued = next.issue(&server).unwrap();
    issued.write(certificates.path(), "server").unwrap();
    settle().await;
    let alice = next.issue(&Request::client("alice")).unwrap();
    alice.write(certificates.path(), "alice").unwrap();
    settle().await;
    write("ca.crt", &next.own().certificate);
    settle().await;
    // Bad ones, in the middle of it.
    write("ca.crt", "damaged");
    settle().await;
    write("ca.crt", &next.own().certificate);
    settle().await;
    is_over.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    let (calls, connections) = (
        calls.load(Ordering::Relaxed),
        connections.load(Ordering::Relaxed),
    );
    assert!(
        calls > 200 && connections > 50,
        "{calls} calls, {connections} connections"
    );
    // The old CA is not trusted any more.
    let old = certificates
        .authority
        .issue(&Request::client("alice"))
        .unwrap();
    old.write(certificates.path(), "old").unwrap();
    let error = secure
        .client(certificates.options("old"))
        .get("k")
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("does not trust the CA"),
        "{error}"
    );
}

/// Connections that begin a handshake and go no further, by the thousand: memory and time are bounded, and whoever speaks
/// is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_half_open_handshakes_keep_nobody_out() {
    let certificates = Certificates::new();
    let secure = certificates.start(&[("max-connections", "1500")]).await;
    let address = secure.server.addresses()[0];
    let mut held = Vec::new();
    for number in 0..1200 {
        let Ok(mut stream) = TcpStream::connect(address).await else {
            break;
        };
        // Some are silent, some send the head of a record, and some a part of a hello.
        let part: &[u8] = match number % 3 {
            0 => &[],
            1 => &[22, 3, 1, 2, 0],
            _ => &[22, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3],
        };
        stream.write_all(part).await.unwrap();
        held.push(stream);
        if number % 100 == 99 {
            let client = secure.client(certificates.options("alice"));
            let served = tokio::time::timeout(Duration::from_secs(5), client.put("k", "v"));
            served.await.expect("in time").unwrap();
        }
    }
    assert!(held.len() > 1000, "{} could be held", held.len());
    // They end by their deadline.
    let begun = Instant::now();
    for stream in &mut held {
        let mut byte = [0];
        let ended = tokio::time::timeout(Duration::from_secs(30), stream.read(&mut byte)).await;
        assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{ended:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(25));
    secure.server.shutdown().await.unwrap();
}

/// The real etcdctl, where it is installed.
#[tokio::test]
async fn etcdctl_speaks_tls_with_this_server() {
    if std::process::Command::new("etcdctl")
        .arg("version")
        .output()
        .is_err()
    {
        bowline_testing::skip("etcdctl is not installed");
        return;
    }
    let certificates = Certificates::new();
    let secure = certificates.start(&[]).await;
    let endpoint = format!("https://{}", secure.address());
    let ctl = async |name: &str, line: &str| {
        let mut command = tokio::process::Command::new("etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoint, "--command-timeout", "5s"])
            .args(["--cacert", &certificates.file("ca.crt")]);
        if !name.is_empty() {
            command.args(["--cert", &certificates.file(&format!("{name}.crt"))]);
            command.args(["--key", &certificates.file(&format!("{name}.key"))]);
        }
        let output = command
            .args(line.split_whitespace())
            .output()
            .await
            .unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    assert_eq!(ctl("alice", "put a 1").await, (true, "OK\n".to_owned()));
    assert_eq!(ctl("alice", "get a").await, (true, "a\n1\n".to_owned()));
    assert!(!ctl("", "get a").await.0, "without a certificate");
    secure.server.shutdown().await.unwrap();
}

/// As etcd's: a certificate of its own, in the data directory.
#[tokio::test]
async fn a_server_makes_its_own_certificate_for_a_trial() {
    let data = tempfile::tempdir().unwrap();
    let peer = format!("http://127.0.0.1:{}", free_port());
    let mut layers = Layers::default();
    for (key, value) in [
        ("auto-tls", "true".to_owned()),
        ("data-dir", data.path().join("data").display().to_string()),
        ("listen-client-urls", "https://127.0.0.1:0".to_owned()),
        ("listen-peer-urls", peer.clone()),
        ("initial-advertise-peer-urls", peer),
    ] {
        layers.add_flag(key, value).unwrap();
    }
    let server = Server::start(Config::from_layers(&layers).unwrap())
        .await
        .unwrap();
    let own = data.path().join("data/fixtures/client/cert.pem");
    for options in [
        ClientOptions {
            insecure_skip_verify: true,
            ..ClientOptions::default()
        },
        ClientOptions {
            trusted_ca: Some(own),
            ..ClientOptions::default()
        },
    ] {
        let tls = ClientTls::new(options).unwrap();
        let client = Client::builder()
            .endpoints([server.addresses()[0].to_string()])
            .tls(tls);
        let client = client.connect().await.unwrap();
        client.status().await.unwrap();
    }
    server.shutdown().await.unwrap();
}

/// As in etcd: the common name is the user, on every kind of connection. A name of the certificate that is a user's counts
/// where there is no common name.
#[tokio::test]
async fn the_names_of_a_certificate_stand_for_a_user() {
    use bowline_replica::{Caller, Grant, Permission, UsersChange};
    let certificates = Certificates::new();
    certificates.issue(&Request::client("mallory"), "mallory");
    let secure = certificates.start(&[AS_USERS]).await;
    let node = secure.server.client();
    // Users come once the member has announced that it knows their commands.
    let change = async |change: UsersChange| {
        let begun = Instant::now();
        while let Err(error) = node.by(&Caller::Process).change_users(change.clone()).await {
            assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    for name in ["root", "alice"] {
        let (password, user) = (None, name.to_owned());
        let name = user.clone();
        change(UsersChange::AddUser { name, password }).await;
    }
    let role = || "a".to_owned();
    change(UsersChange::AddRole { name: role() }).await;
    let permission = Permission::Keys {
        grant: Grant::ReadWrite,
        key: b"a".to_vec(),
        range_end: b"b".to_vec(),
    };
    let grant = UsersChange::GrantPermission {
        role: role(),
        permission,
    };
    change(grant).await;
    for (user, role) in [("root", "root"), ("alice", "a")] {
        let (user, role) = (user.to_owned(), role.to_owned());
        change(UsersChange::GrantRole { user, role }).await;
    }
    change(UsersChange::Enable).await;

    let alice = secure.client(certificates.options("alice"));
    alice.put("a1", "v").await.unwrap();
    let denied = alice.put("b1", "v").await.unwrap_err().to_string();
    assert!(denied.contains("permission"), "{denied}");
    assert!(alice.watch(KeyRange::prefix("a")).await.is_ok());
    let mallory = secure.client(certificates.options("mallory"));
    assert!(mallory.get("a1").await.is_err(), "no user has this name");
    let tls = ClientTls::new(certificates.options("alice")).unwrap();
    let port = secure.server.addresses()[0];
    let own = secure.post(&tls, port, r#"{"key":"YTE="}"#).await;
    assert!(own.starts_with("HTTP/1.1 200"), "{own}");
    let other = secure.post(&tls, port, r#"{"key":"YjE="}"#).await;
    assert!(other.starts_with("HTTP/1.1 403"), "{other}");
    // Whoever is given the name later is who the certificate stands for.
    let name = "alice".to_owned();
    change(UsersChange::DeleteUser { name: name.clone() }).await;
    assert!(alice.get("a1").await.is_err());
    let password = None;
    change(UsersChange::AddUser { name, password }).await;
    let (user, role) = ("alice".to_owned(), role());
    change(UsersChange::GrantRole { user, role }).await;
    alice.get("a1").await.unwrap();
    secure.server.shutdown().await.unwrap();
}

/// Whoever had a certificate of the CA was the user of its common name, whether or not `--client-cert-auth` was given. Without
/// it a certificate opens the connection and is nobody's, as in etcd.
#[tokio::test]
async fn a_certificate_is_no_user_unless_client_cert_auth_says_so() {
    let certificates = Certificates::new();
    let secure = certificates.start(&[]).await;
    enable_for_certificates(&secure.server.client()).await;
    let alice = secure.client(certificates.options("alice"));
    for refused in [
        alice.get("a1").await.err(),
        alice.put("a1", "v").await.err(),
        alice.status().await.err(),
    ] {
        assert!(matches!(refused, Some(Error::UserRequired)), "{refused:?}");
    }
    let tls = ClientTls::new(certificates.options("alice")).unwrap();
    let port = secure.server.addresses()[0];
    let answer = secure.post(&tls, port, r#"{"key":"YTE="}"#).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("user name is empty"), "{answer}");
    secure.server.shutdown().await.unwrap();
}

/// It was told of a wrong token, though it had shown none: etcd's client then made each call up to a hundred times.
#[tokio::test]
async fn a_certificate_of_no_user_lacks_the_permission() {
    let certificates = Certificates::new();
    certificates.issue(&Request::client("mallory"), "mallory");
    let secure = certificates.start(&[AS_USERS]).await;
    enable_for_certificates(&secure.server.client()).await;
    let mallory = secure.client(certificates.options("mallory"));
    for refused in [
        mallory.get("a1").await.err(),
        mallory.put("a1", "v").await.err(),
        mallory.status().await.err(),
    ] {
        let is_denied = matches!(refused, Some(Error::PermissionDenied));
        assert!(is_denied, "{refused:?}");
    }
    let tls = ClientTls::new(certificates.options("mallory")).unwrap();
    let port = secure.server.addresses()[0];
    let answer = secure.post(&tls, port, r#"{"key":"YTE="}"#).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    secure.server.shutdown().await.unwrap();
}
