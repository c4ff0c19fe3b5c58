//! Whole handshakes, and files that are replaced.

mod files;

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use crate::*;

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// A CA and a directory with what it has issued.
struct Trial {
    authority: Authority,
    directory: TempDir,
}

impl Trial {
    fn new() -> Trial {
        let trial = Trial {
            authority: Authority::generate("a CA", 10).unwrap(),
            directory: TempDir::new().unwrap(),
        };
        trial.authority.own().write(trial.path(), "ca").unwrap();
        trial.issue(&Request::server("m1", ["localhost"]), "server");
        trial.issue(&Request::client("alice"), "client");
        trial
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn issue(&self, request: &Request, name: &str) -> Issued {
        let issued = self.authority.issue(request).unwrap();
        issued.write(self.path(), name).unwrap();
        issued
    }

    /// The certificate in a file, in DER.
    fn issued_der(&self, name: &str) -> Vec<u8> {
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject;
        let file = self.files(name).certificate;
        CertificateDer::from_pem_file(file).unwrap().to_vec()
    }

    fn files(&self, name: &str) -> KeyPairFiles {
        KeyPairFiles {
            certificate: self.path().join(format!("{name}.crt")),
            key: self.path().join(format!("{name}.key")),
        }
    }

    fn ca(&self) -> Option<PathBuf> {
        Some(self.path().join("ca.crt"))
    }

    fn server_options(&self) -> ServerOptions {
        ServerOptions {
            handshake_timeout: Duration::from_secs(5),
            ..ServerOptions::new("certificates", self.files("server"))
        }
    }

    /// A server that asks for certificates.
    fn mutual_options(&self) -> ServerOptions {
        ServerOptions {
            trusted_ca: self.ca(),
            ..self.server_options()
        }
    }

    fn client_options(&self) -> ClientOptions {
        ClientOptions {
            trusted_ca: self.ca(),
            key_pair: Some(self.files("client")),
            ..ClientOptions::default()
        }
    }
}

type Outcome = (
    Result<Option<Arc<PeerIdentity>>, HandshakeError>,
    io::Result<()>,
);

/// A handshake, and a byte in each direction: with TLS 1.3 a client learns of its refusal only then.
async fn handshake(server: &ServerTls, client: &ClientTls, host: &str) -> Outcome {
    let (near, far) = duplex(16 << 10);
    let serving = async {
        let (mut stream, identity) = server.accept(far, HERE).await?;
        let byte = stream.read_u8().await?;
        stream.write_u8(byte).await?;
        stream.flush().await?;
        Ok(identity)
    };
    let asking = async {
        let mut stream = client.connect(host, near).await?;
        stream.write_u8(7).await?;
        stream.flush().await?;
        assert_eq!(stream.read_u8().await?, 7);
        Ok(())
    };
    tokio::join!(serving, asking)
}

fn said(result: &io::Result<()>) -> String {
    result.as_ref().unwrap_err().to_string()
}

#[tokio::test]
async fn both_sides_verify_each_other_and_the_server_learns_a_name() {
    let trial = Trial::new();
    let server = ServerTls::new(trial.mutual_options()).unwrap();
    let client = ClientTls::new(trial.client_options()).unwrap();
    let (accepted, connected) = handshake(&server, &client, "localhost").await;
    connected.unwrap();
    let identity = accepted.unwrap().unwrap();
    assert_eq!(identity.common_name.as_deref(), Some("alice"));
    let server = ServerTls::new(trial.server_options()).unwrap();
    let (accepted, connected) = handshake(&server, &client, "localhost").await;
    connected.unwrap();
    assert!(accepted.unwrap().is_none(), "none was asked for");
}

#[tokio::test]
async fn what_is_wrong_with_a_certificate_is_said() {
    let trial = Trial::new();
    let server = ServerTls::new(trial.mutual_options()).unwrap();
    let client = ClientTls::new(trial.client_options()).unwrap();
    let (_, connected) = handshake(&server, &client, "other.example.com").await;
    assert!(
        said(&connected).contains("for another host"),
        "{connected:?}"
    );
    // A name of its own replaces the host.
    let named = ClientTls::new(ClientOptions {
        server_name: Some("localhost".to_owned()),
        ..trial.client_options()
    });
    let (_, connected) = handshake(&server, &named.unwrap(), "10.0.0.1").await;
    connected.unwrap();
    let foreign = Trial::new();
    let client = ClientTls::new(foreign.client_options()).unwrap();
    let (_, connected) = handshake(&server, &client, "localhost").await;
    assert!(
        said(&connected).contains("not of a trusted CA"),
        "{connected:?}"
    );
    let careless = ClientTls::new(ClientOptions {
        insecure_skip_verify: true,
        ..foreign.client_options()
    });
    let (accepted, connected) = handshake(&server, &careless.unwrap(), "localhost").await;
    assert!(accepted.is_err(), "a certificate of a foreign CA");
    assert!(
        said(&connected).contains("does not trust the CA"),
        "{connected:?}"
    );
    let bare = ClientTls::new(ClientOptions {
        key_pair: None,
        ..trial.client_options()
    });
    let (accepted, connected) = handshake(&server, &bare.unwrap(), "localhost").await;
    assert!(accepted.is_err(), "none was shown");
    assert!(
        said(&connected).contains("asks for a client's certificate"),
        "{connected:?}"
    );
}

#[tokio::test]
async fn only_allowed_names_come_in() {
    let trial = Trial::new();
    let client = ClientTls::new(trial.client_options()).unwrap();
    for (names, hosts, is_admitted) in [
        (vec![], vec![], true),
        (vec!["bob", "alice"], vec![], true),
        (vec!["bob"], vec![], false),
        (vec![], vec!["m1"], false),
    ] {
        let texts = |all: Vec<&str>| all.into_iter().map(str::to_owned).collect();
        let server = ServerTls::new(ServerOptions {
            allowed: Allowed {
                common_names: texts(names),
                hosts: texts(hosts),
            },
            ..trial.mutual_options()
        });
        let (accepted, _) = handshake(&server.unwrap(), &client, "localhost").await;
        match accepted {
            Ok(_) => assert!(is_admitted),
            Err(error) => assert!(
                !is_admitted && matches!(error, HandshakeError::NotAllowed(_)),
                "{error}"
            ),
        }
    }
}

/// A session that was taken up again had its certificate not looked at: a revoked one came in.
#[tokio::test]
async fn a_revoked_certificate_is_refused_from_the_next_look_on() {
    let trial = Trial::new();
    let alice = trial.issue(&Request::client("alice"), "client");
    let list = trial.path().join("list.pem");
    fs::write(&list, trial.authority.revoke(&["77"]).unwrap()).unwrap();
    let server = ServerTls::new(ServerOptions {
        revocations: Some(list.clone()),
        ..trial.mutual_options()
    });
    let server = server.unwrap();
    let client = ClientTls::new(trial.client_options()).unwrap();
    let (accepted, _) = handshake(&server, &client, "localhost").await;
    let serial = accepted.unwrap().unwrap().serial.clone();
    assert_eq!(
        PeerIdentity::of_certificate(&alice.der).unwrap().serial,
        serial
    );
    fs::write(&list, trial.authority.revoke(&["77", &serial]).unwrap()).unwrap();
    assert_eq!(server.look().unwrap(), Looked::Taken);
    let (accepted, connected) = handshake(&server, &client, "localhost").await;
    assert!(accepted.is_err());
    assert!(said(&connected).contains("was revoked"), "{connected:?}");
    // Another client's is as good as before.
    trial.issue(&Request::client("bob"), "client");
    let client = ClientTls::new(trial.client_options()).unwrap();
    handshake(&server, &client, "localhost").await.0.unwrap();
}

/// A pair of connected streams, after a byte in each direction.
async fn connected(
    server: &ServerTls,
    client: &ClientTls,
) -> (ServerStream<DuplexStream>, ClientStream<DuplexStream>) {
    let (near, far) = duplex(16 << 10);
    let serving = async {
        let (mut stream, _) = server.accept(far, HERE).await.unwrap();
        let byte = stream.read_u8().await.unwrap();
        stream.write_u8(byte).await.unwrap();
        stream.flush().await.unwrap();
        stream
    };
    let asking = async {
        let mut stream = client.connect("localhost", near).await.unwrap();
        stream.write_u8(7).await.unwrap();
        stream.flush().await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 7);
        stream
    };
    tokio::join!(serving, asking)
}

/// Connections that were open when their certificate was revoked went on until they ended by themselves.
#[tokio::test]
async fn a_revocation_ends_the_open_connections_of_its_certificate_and_no_others() {
    let trial = Trial::new();
    let list = trial.path().join("list.pem");
    fs::write(&list, trial.authority.revoke(&["77"]).unwrap()).unwrap();
    let server = ServerTls::new(ServerOptions {
        revocations: Some(list.clone()),
        ..trial.mutual_options()
    });
    let server = server.unwrap();
    let options = |name: &str| ClientOptions {
        revocations: Some(list.clone()),
        key_pair: Some(trial.files(name)),
        ..trial.client_options()
    };
    let alice = ClientTls::new(options("client")).unwrap();
    let bob = trial.issue(&Request::client("bob"), "bob");
    let bob_serial = PeerIdentity::of_certificate(&bob.der).unwrap().serial;
    let bob = ClientTls::new(options("bob")).unwrap();
    let (mut of_alice, mut alices) = connected(&server, &alice).await;
    let (mut of_bob, bobs) = connected(&server, &bob).await;
    // It waits for a byte, and nobody sends one.
    let waiting = tokio::spawn(async move {
        let read = of_bob.read_u8().await;
        let wrote = of_bob.write_u8(1).await;
        (read, wrote)
    });
    tokio::task::yield_now().await;
    let revoke = |serials: &[&str]| {
        fs::write(&list, trial.authority.revoke(serials).unwrap()).unwrap();
    };
    revoke(&[&bob_serial]);
    assert_eq!(server.look().unwrap(), Looked::Taken);
    let ended = tokio::time::timeout(Duration::from_secs(5), waiting).await;
    let (read, wrote) = ended.expect("it is woken").unwrap();
    for error in [read.unwrap_err(), wrote.unwrap_err()] {
        assert!(error.to_string().contains("was revoked"), "{error}");
    }
    drop(bobs);
    assert_eq!(server.counts().connections_ended, 1);
    alices.write_u8(8).await.unwrap();
    alices.flush().await.unwrap();
    assert_eq!(of_alice.read_u8().await.unwrap(), 8);
    // The other side ends its connections, too.
    let own = PeerIdentity::of_certificate(&trial.issued_der("server")).unwrap();
    revoke(&[&bob_serial, &own.serial]);
    assert_eq!(alice.look().unwrap(), Looked::Taken);
    assert!(alices.read_u8().await.is_err());
    let counts = server.counts();
    assert_eq!((counts.handshakes_done, counts.handshakes_failed), (2, 0));
}

/// A certificate that had expired while its connection was open was found expired, and so not found revoked: its connection
/// went on after the revocation.
#[tokio::test]
async fn a_revocation_ends_a_connection_whose_certificate_has_expired() {
    let trial = Trial::new();
    let list = trial.path().join("list.pem");
    fs::write(&list, trial.authority.revoke(&["77"]).unwrap()).unwrap();
    let server_of = |name: &str| {
        ServerTls::new(ServerOptions {
            key_pair: trial.files(name),
            revocations: Some(list.clone()),
            ..trial.mutual_options()
        })
    };
    let client_of = |name: &str| {
        ClientTls::new(ClientOptions {
            key_pair: Some(trial.files(name)),
            revocations: Some(list.clone()),
            ..trial.client_options()
        })
    };
    // Valid for long enough for a handshake.
    let brief = |request: Request, name: &str| {
        let valid_seconds = 4 - request.valid_from_seconds;
        let request = Request {
            valid_seconds,
            ..request
        };
        let issued = trial.issue(&request, name);
        PeerIdentity::of_certificate(&issued.der).unwrap().serial
    };
    let client_serial = brief(Request::client("bob"), "brief-client");
    let server_serial = brief(Request::server("m2", ["localhost"]), "brief-server");
    let (server, client) = (server_of("server").unwrap(), client_of("client").unwrap());
    let brief_client = client_of("brief-client").unwrap();
    let brief_server = server_of("brief-server").unwrap();
    let (mut of_client, _bobs) = connected(&server, &brief_client).await;
    let (_m2s, mut of_server) = connected(&brief_server, &client).await;
    while server_of("brief-server").is_ok() || client_of("brief-client").is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let revoked = trial.authority.revoke(&[&client_serial, &server_serial]);
    fs::write(&list, revoked.unwrap()).unwrap();
    assert_eq!(server.look().unwrap(), Looked::Taken);
    assert_eq!(client.look().unwrap(), Looked::Taken);
    for wrote in [of_client.write_u8(1).await, of_server.write_u8(1).await] {
        let error = wrote.unwrap_err();
        assert!(error.to_string().contains("was revoked"), "{error}");
    }
    assert_eq!(server.counts().connections_ended, 1);
}

#[tokio::test]
async fn versions_and_suites_are_those_that_were_chosen() {
    let trial = Trial::new();
    let only = |version| Protocol {
        version_min: version,
        version_max: version,
        cipher_suites: Vec::new(),
    };
    let client = ClientTls::new(ClientOptions {
        protocol: only(Version::Tls12),
        ..trial.client_options()
    });
    let client = client.unwrap();
    for (version, is_spoken) in [(Version::Tls12, true), (Version::Tls13, false)] {
        let server = ServerTls::new(ServerOptions {
            protocol: only(version),
            ..trial.server_options()
        });
        let (accepted, _) = handshake(&server.unwrap(), &client, "localhost").await;
        assert_eq!(accepted.is_ok(), is_spoken, "{version}");
    }
    let suites = |name: &str| {
        ServerTls::new(ServerOptions {
            protocol: Protocol {
                cipher_suites: vec![name.to_owned()],
                ..Protocol::default()
            },
            ..trial.server_options()
        })
    };
    suites("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256").unwrap();
    suites("TLS_AES_256_GCM_SHA384").unwrap();
    let error = suites("TLS_RSA_WITH_RC4_128_SHA").unwrap_err().to_string();
    assert!(
        error.contains("is not one of the cipher suites TLS_"),
        "{error}"
    );
}

/// Each kind of bad file has an error that names the file, and what mends it; and a running server keeps what it has.
#[test]
fn bad_files_are_refused_and_the_old_ones_kept() {
    let trial = Trial::new();
    let server = ServerTls::new(trial.mutual_options()).unwrap();
    let good = |name: &str| fs::read(trial.path().join(name)).unwrap();
    let (certificate, key, ca) = (good("server.crt"), good("server.key"), good("ca.crt"));
    let expired = Request {
        valid_from_seconds: -7200,
        valid_seconds: 3600,
        ..Request::server("m1", ["localhost"])
    };
    let early = Request {
        valid_from_seconds: 3600,
        ..expired.clone()
    };
    let expired = trial.authority.issue(&expired).unwrap().certificate;
    let early = trial.authority.issue(&early).unwrap().certificate;
    let other = Trial::new();
    let other_key = fs::read(other.path().join("server.key")).unwrap();
    let cases: Vec<(&str, &[u8], &str)> = vec![
        ("server.crt", expired.as_bytes(), "expired at 20"),
        ("server.crt", early.as_bytes(), "check the clock"),
        ("server.crt", b"", "holds no certificate"),
        ("server.crt", &key, "it holds a key"),
        (
            "server.crt",
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "is not valid",
        ),
        ("server.key", &other_key, "does not fit the certificate"),
        ("server.key", &certificate, "it holds a certificate"),
        (
            "server.key",
            b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "without a passphrase",
        ),
        ("ca.crt", b"# none\n", "holds no certificate"),
        (
            "ca.crt",
            b"-----BEGIN CERTIFICATE-----\nA*\n-----END CERTIFICATE-----\n",
            "is not valid",
        ),
    ];
    for (file, bytes, expected) in cases {
        let path = trial.path().join(file);
        let before = fs::read(&path).unwrap();
        fs::write(&path, bytes).unwrap();
        for error in [
            ServerTls::new(trial.mutual_options()).unwrap_err(),
            server.reload().unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(text.contains(expected), "{text}");
            assert!(text.contains(&path.display().to_string()), "{text}");
        }
        fs::write(&path, before).unwrap();
        assert_eq!(server.reload().unwrap(), Looked::Unchanged);
    }
    assert_eq!((good("server.crt"), good("ca.crt")), (certificate, ca));
    assert_eq!(server.counts().sets_taken, 0);
    assert_eq!(server.counts().sets_refused, 10);
    fs::remove_file(trial.path().join("server.crt")).unwrap();
    let text = server.reload().unwrap_err().to_string();
    assert!(
        text.starts_with("cannot read ") && text.contains("server.crt"),
        "{text}"
    );
}

#[test]
fn a_key_that_others_can_read_is_refused_with_what_mends_it() {
    let trial = Trial::new();
    let key = trial.files("server").key;
    for mode in [0o640, 0o604, 0o644, 0o660, 0o777] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        let error = ServerTls::new(trial.server_options()).unwrap_err();
        let fix = format!("(mode {mode:03o}): chmod 600 {}", key.display());
        assert!(error.to_string().contains(&fix), "{error}");
    }
    for mode in [0o400, 0o600] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        ServerTls::new(trial.server_options()).unwrap();
    }
}

#[test]
fn a_list_of_an_unknown_issuer_is_refused() {
    let trial = Trial::new();
    // Of the same name: only the signature tells them apart.
    let other = Authority::generate("a CA", 10).unwrap();
    let list = trial.path().join("list.pem");
    let options = || ServerOptions {
        revocations: Some(list.clone()),
        ..trial.mutual_options()
    };
    fs::write(&list, other.revoke(&["1"]).unwrap()).unwrap();
    let error = ServerTls::new(options()).unwrap_err();
    assert!(matches!(error, TlsError::ForeignList { .. }), "{error}");
    fs::write(&list, "nothing").unwrap();
    let error = ServerTls::new(options()).unwrap_err();
    assert!(
        error.to_string().contains("holds no revocation list"),
        "{error}"
    );
    fs::write(&list, trial.authority.revoke(&[]).unwrap()).unwrap();
    ServerTls::new(options()).unwrap();
    let without_ca = ServerOptions {
        trusted_ca: None,
        ..options()
    };
    let error = ServerTls::new(without_ca).unwrap_err();
    assert!(matches!(error, TlsError::Settings(_)), "{error}");
}

/// Certificate and key are two files: between the two writes they do not fit, which is no reason for a warning.
#[tokio::test]
async fn a_new_pair_is_taken_once_both_files_are_there() {
    let trial = Trial::new();
    let server = ServerTls::new(trial.server_options()).unwrap();
    assert_eq!(server.look().unwrap(), Looked::Unchanged);
    let next = Request::server("m1", ["next.example.com"]);
    let next = trial.authority.issue(&next).unwrap();
    let files = trial.files("server");
    fs::write(&files.certificate, &next.certificate).unwrap();
    assert!(server.look().is_err());
    assert_eq!(server.counts().sets_refused, 0, "it was not reported yet");
    fs::write(&files.key, &next.key).unwrap();
    assert_eq!(server.look().unwrap(), Looked::Taken);
    let client = ClientTls::new(trial.client_options()).unwrap();
    handshake(&server, &client, "next.example.com")
        .await
        .1
        .unwrap();
    // Half a pair that stays is reported, once.
    let last = trial
        .authority
        .issue(&Request::server("m1", ["x.y"]))
        .unwrap();
    fs::write(&files.certificate, &last.certificate).unwrap();
    for _ in 0..5 {
        let _ = server.look();
    }
    assert_eq!(server.counts().sets_refused, 1);
    handshake(&server, &client, "next.example.com")
        .await
        .1
        .unwrap();
    assert_eq!(server.counts().sets_taken, 1);
}

#[tokio::test]
async fn files_are_watched() {
    let trial = Trial::new();
    let server = ServerTls::new(trial.server_options()).unwrap();
    let watched: Vec<Arc<dyn Reload>> = vec![Arc::new(server.clone())];
    let watching = Watching::begin(watched, Duration::from_millis(20));
    trial.issue(&Request::server("m1", ["new.example.com"]), "server");
    let begun = std::time::Instant::now();
    while server.counts().sets_taken == 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "nobody looked");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(watching);
    let client = ClientTls::new(trial.client_options()).unwrap();
    handshake(&server, &client, "new.example.com")
        .await
        .1
        .unwrap();
}

/// As many half-open handshakes as may be, and then as many again: a client that speaks comes in.
#[tokio::test]
async fn half_open_handshakes_keep_nobody_out() {
    let trial = Trial::new();
    let server = ServerTls::new(ServerOptions {
        handshakes_max: 8,
        handshake_timeout: Duration::from_secs(60),
        ..trial.server_options()
    });
    let server = server.unwrap();
    let client = ClientTls::new(trial.client_options()).unwrap();
    let mut held: Vec<DuplexStream> = Vec::new();
    for round in 0..40 {
        let (mut near, far) = duplex(1 << 10);
        // The head of a record, and the beginning of what it announces.
        near.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 0xFC])
            .await
            .unwrap();
        held.push(near);
        let accepting = server.clone();
        tokio::spawn(async move { accepting.accept(far, HERE).await.map(drop) });
        tokio::task::yield_now().await;
        assert!(server.counts().handshakes <= 8);
        if round % 8 == 7 {
            handshake(&server, &client, "localhost").await.1.unwrap();
        }
    }
    assert!(server.counts().handshakes_evicted >= 32);
}

#[tokio::test(start_paused = true)]
async fn a_handshake_has_a_deadline_and_a_silent_connection_takes_no_place() {
    let trial = Trial::new();
    let server = ServerTls::new(trial.server_options()).unwrap();
    let (near, far) = duplex(1 << 10);
    let accepting = server.accept(far, HERE);
    let (accepted, ()) = tokio::join!(accepting, async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(server.counts().handshakes, 0);
        let mut near = near;
        near.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(server.counts().handshakes, 1);
        tokio::time::sleep(Duration::from_secs(10)).await;
    });
    assert!(matches!(accepted, Err(HandshakeError::Late(_))));
    assert_eq!(server.counts().handshakes, 0);
}

#[tokio::test]
async fn what_is_no_tls_is_told_so() {
    let trial = Trial::new();
    let server = ServerTls::new(trial.server_options()).unwrap();
    let (mut near, far) = duplex(1 << 10);
    near.write_all(b"GET /health HTTP/1.1\r\n").await.unwrap();
    let accepted = server.accept(far, HERE).await;
    assert!(matches!(accepted, Err(HandshakeError::NotTls)));
    let mut answer = String::new();
    near.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains(&format!("content-length: {}", body.len())),
        "{answer}"
    );
    assert!(body.contains("use https"), "{answer}");
    // And a client of TLS learns that the server speaks none.
    let client = ClientTls::new(trial.client_options()).unwrap();
    let (near, mut far) = duplex(1 << 10);
    far.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        .await
        .unwrap();
    let error = client.connect("localhost", near).await.unwrap_err();
    assert!(error.to_string().contains("use http://"), "{error}");
}

/// Bytes of the other side, whatever they are, end a handshake and nothing else.
#[tokio::test]
async fn damaged_handshakes_are_refused() {
    let trial = Trial::new();
    let server = ServerTls::new(ServerOptions {
        handshake_timeout: Duration::from_millis(20),
        ..trial.mutual_options()
    });
    let server = server.unwrap();
    // The client's first message.
    let client = ClientTls::new(trial.client_options()).unwrap();
    let (near, mut far) = duplex(16 << 10);
    let mut hello = vec![0; 4 << 10];
    let count = tokio::select! {
        _ = client.connect("localhost", near) => unreachable!("nobody answers"),
        read = far.read(&mut hello) => read.unwrap(),
    };
    hello.truncate(count);
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..300 {
        let mut bytes = hello.clone();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(..bytes.len());
            match random.u8(..3) {
                0 => bytes[at] = random.u8(..),
                1 => bytes.truncate(at.max(5)),
                _ => bytes.insert(at, random.u8(..)),
            }
        }
        let (mut near, far) = duplex(16 << 10);
        near.write_all(&bytes).await.unwrap();
        assert!(server.accept(far, HERE).await.is_err());
    }
    assert_eq!(server.counts().handshakes, 0);
}

#[test]
fn a_certificate_of_its_own_is_kept_while_it_serves() {
    let directory = TempDir::new().unwrap();
    let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let read = |files: &KeyPairFiles| fs::read(&files.certificate).unwrap();
    let files = self_signed(directory.path(), &hosts, 1).unwrap();
    let first = read(&files);
    ServerTls::new(ServerOptions::new("certificates", files.clone())).unwrap();
    let mode = fs::metadata(&files.key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(
        read(&self_signed(directory.path(), &hosts, 1).unwrap()),
        first
    );
    let more = ["other.example.com".to_owned()];
    assert_ne!(
        read(&self_signed(directory.path(), &more, 1).unwrap()),
        first
    );
    fs::write(&files.certificate, "damaged").unwrap();
    self_signed(directory.path(), &hosts, 1).unwrap();
    ServerTls::new(ServerOptions::new("certificates", files)).unwrap();
}

#[test]
fn an_authority_is_read_back() {
    let trial = Trial::new();
    let again = Authority::read(&trial.files("ca")).unwrap();
    assert_eq!(again.own().der, trial.authority.own().der);
    let issued = again.issue(&Request::server("m2", ["localhost"])).unwrap();
    issued.write(trial.path(), "server").unwrap();
    let server = ServerTls::new(trial.server_options()).unwrap();
    let client = ClientTls::new(trial.client_options()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = runtime
        .unwrap()
        .block_on(handshake(&server, &client, "localhost"));
    done.1.unwrap();
}
