//! Each published advisory about etcd that can be tried on a running server. Each function tells in its head what etcd did,
//! and where Bowline prevents it. `docs/threat-model.md` has the table of all advisories, with those that other tests hold.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bowline_client::tls::ClientTls;
use bowline_cluster::LocalClient;
use bowline_proto::authpb;
use bowline_proto::etcdserverpb as pb;
use bowline_replica::{Caller, Grant, Permission, UsersChange};
use bowline_server::config::{Config, Layers};
use bowline_tls::Request as CertificateRequest;
use parking_lot::Mutex;
use pb::auth_client::AuthClient;
use pb::cluster_client::ClusterClient;
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::maintenance_client::MaintenanceClient;
use pb::watch_client::WatchClient;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic::transport::Channel;

use crate::plain_http::get;
use crate::support::{delete, put, range, start};
use crate::tls::{AS_USERS, Certificates};
use crate::users::{
    As, add_user, denied, enable, grant, log_in, nested, next, of_put, ok, permit, refusal,
};

/// The caller of every call has no user.
fn no_user() -> (Code, String) {
    let text = "etcdserver: user name is empty".to_owned();
    (Code::InvalidArgument, text)
}

/// A server with users: `ann` has everything under `a`, and `eve` may read the one key `m`.
struct Users {
    channel: Channel,
    root: As,
    ann: As,
    eve: As,
}

#[tokio::test]
async fn those_about_rights() {
    let running = start(&[]).await;
    let channel = running.channel().await;
    let (mut auth, root, ann) = enable(&channel).await;
    let role = pb::AuthRoleAddRequest {
        name: "m".to_owned(),
    };
    auth.role_add(root.of(role)).await.unwrap();
    permit(&mut auth, &root, "m", 0, ("m", "")).await.unwrap();
    add_user(&mut auth, &root, "eve", "pass").await;
    grant(&mut auth, &root, "eve", "m").await;
    let eve = log_in(&mut auth, "eve", "pass").await.unwrap();
    let users = Users {
        channel,
        root,
        ann,
        eve,
    };
    let mut kv = KvClient::new(users.channel.clone());
    kv.put(users.root.of(put("z", "secret"))).await.unwrap();
    cve_2023_32082_keys_of_a_lease(&users).await;
    cve_2026_33343_nested_transactions(&users).await;
    cve_2026_33413_calls_without_a_check(&users).await;
    cve_2026_44283_what_a_put_in_a_transaction_reads_and_attaches(&users).await;
    cve_2026_73499_a_watch_to_the_end(&users).await;
    // Nothing of it has changed what it should not reach.
    let kept = kv.range(users.root.of(range("z"))).await.unwrap();
    assert_eq!(kept.into_inner().kvs[0].value, "secret");
}

/// CVE-2023-32082 (GHSA-3p4g-rcw5-8298): LeaseTimeToLive named the keys of a lease to whoever might not read them. Held in
/// `service/lease.rs`, by the needs of the lease's keys.
async fn cve_2023_32082_keys_of_a_lease(users: &Users) {
    let mut lease = LeaseClient::new(users.channel.clone());
    let granted = pb::LeaseGrantRequest { ttl: 600, id: 11 };
    lease.lease_grant(users.root.of(granted)).await.unwrap();
    let mut kv = KvClient::new(users.channel.clone());
    let attached = pb::PutRequest {
        lease: 11,
        ..put("z/leased", "v")
    };
    kv.put(users.root.of(attached)).await.unwrap();
    let asked = pb::LeaseTimeToLiveRequest { id: 11, keys: true };
    for by in [&users.ann, &users.eve] {
        assert_eq!(
            refusal(lease.lease_time_to_live(by.of(asked)).await),
            denied()
        );
    }
    let nobody = lease.lease_time_to_live(asked).await;
    assert_eq!(refusal(nobody), no_user());
}

/// CVE-2026-33343 (GHSA-rfx7-8w68-q57q): the operations of a transaction within a transaction were not checked, so that any
/// user could read and write every key. Held in `bowline-replica`, `needs.rs`, which goes through all depths.
async fn cve_2026_33343_nested_transactions(users: &Users) {
    use pb::request_op::Request;
    let mut kv = KvClient::new(users.channel.clone());
    let of = |request| pb::RequestOp {
        request: Some(request),
    };
    let reads = || of(Request::RequestRange(range("z")));
    let deletes = || of(Request::RequestDeleteRange(delete("z")));
    for operation in [reads(), of_put(put("z", "stolen")), deletes()] {
        let on_success = pb::TxnRequest {
            success: vec![operation.clone()],
            ..Default::default()
        };
        let on_failure = pb::TxnRequest {
            failure: vec![operation],
            ..Default::default()
        };
        for inner in [on_success, on_failure] {
            for txn in [nested(inner.clone()), nested(nested(nested(inner)))] {
                let asked = format!("{txn:?}");
                assert_eq!(
                    refusal(kv.txn(users.ann.of(txn)).await),
                    denied(),
                    "{asked}"
                );
            }
        }
    }
    let own = pb::TxnRequest {
        success: vec![of_put(put("a1", "v"))],
        ..Default::default()
    };
    assert_eq!(refusal(kv.txn(users.ann.of(nested(own))).await), ok());
}

/// CVE-2026-33413 (GHSA-q8m4-xhhv-38mg): without any user one could list members, raise and clear alarms, use leases, and
/// compact. Held in `transport/rights.rs`, one exhaustive match over all methods; `rights_tests.rs` tries each of them.
async fn cve_2026_33413_calls_without_a_check(users: &Users) {
    let mut cluster = ClusterClient::new(users.channel.clone());
    let listed = cluster.member_list(pb::MemberListRequest::default()).await;
    assert_eq!(refusal(listed), no_user());
    let mut maintenance = MaintenanceClient::new(users.channel.clone());
    for action in 0..3 {
        let asked = pb::AlarmRequest {
            action,
            ..Default::default()
        };
        assert_eq!(refusal(maintenance.alarm(asked).await), no_user());
        let by_ann = refusal(maintenance.alarm(users.ann.of(asked)).await);
        assert_eq!(by_ann, if action == 0 { ok() } else { denied() });
    }
    let mut lease = LeaseClient::new(users.channel.clone());
    let granted = pb::LeaseGrantRequest { ttl: 600, id: 12 };
    assert_eq!(refusal(lease.lease_grant(granted).await), no_user());
    let listed = lease.lease_leases(pb::LeaseLeasesRequest {}).await;
    assert_eq!(refusal(listed), no_user());
    // The lease with a key of root's.
    let revoke = pb::LeaseRevokeRequest { id: 11 };
    assert_eq!(refusal(lease.lease_revoke(revoke).await), no_user());
    assert_eq!(
        refusal(lease.lease_revoke(users.ann.of(revoke)).await),
        denied()
    );
    let kept_alive = async |by: &As| {
        let requests = tokio_stream::once(pb::LeaseKeepAliveRequest { id: 11 });
        let mut lease = LeaseClient::new(users.channel.clone());
        match lease.lease_keep_alive(by.of(requests)).await {
            Ok(replies) => replies.into_inner().message().await.err(),
            Err(refused) => Some(refused),
        }
    };
    let refused = kept_alive(&As(None)).await.expect("nobody renews a lease");
    assert_eq!((refused.code(), refused.message().to_owned()), no_user());
    let refused = kept_alive(&users.ann).await.expect("it is not ann's");
    assert_eq!(refused.code(), Code::PermissionDenied);
    let mut kv = KvClient::new(users.channel.clone());
    let compact = pb::CompactionRequest {
        revision: 2,
        ..Default::default()
    };
    assert_eq!(refusal(kv.compact(compact).await), no_user());
    assert_eq!(refusal(kv.compact(users.ann.of(compact)).await), denied());
}

/// CVE-2026-44283 (GHSA-x35m-3gp4-4fh5): a put in a transaction returned the previous entry to who might only write the key,
/// and attached it to a lease with keys of others. Held in `bowline-replica`, `needs.rs`: a put needs the same wherever it
/// stands.
async fn cve_2026_44283_what_a_put_in_a_transaction_reads_and_attaches(users: &Users) {
    let mut auth = AuthClient::new(users.channel.clone());
    permit(&mut auth, &users.root, "m", 1, ("w", "x"))
        .await
        .unwrap();
    let mut kv = KvClient::new(users.channel.clone());
    kv.put(users.root.of(put("w1", "secret"))).await.unwrap();
    let reads = pb::PutRequest {
        prev_kv: true,
        ..put("w1", "v")
    };
    let attaches = pb::PutRequest {
        lease: 11,
        ..put("w1", "v")
    };
    for asked in [reads, attaches] {
        let outer = pb::TxnRequest {
            success: vec![of_put(asked.clone())],
            ..Default::default()
        };
        assert_eq!(refusal(kv.put(users.eve.of(asked)).await), denied());
        for txn in [outer.clone(), nested(outer)] {
            let what = format!("{txn:?}");
            assert_eq!(refusal(kv.txn(users.eve.of(txn)).await), denied(), "{what}");
        }
    }
    assert_eq!(refusal(kv.put(users.eve.of(put("w1", "v"))).await), ok());
}

/// CVE-2026-73499 (GHSA-xg4h-6gfc-h4m8): who might read one key could watch all keys from it to the end, as the mark for that
/// was taken away before the check. Held in `bowline-replica`, `users/rights.rs`: the range is checked as it was sent.
async fn cve_2026_73499_a_watch_to_the_end(users: &Users) {
    let watch = async |range_end: &'static [u8]| {
        let mut client = WatchClient::new(users.channel.clone());
        let create = pb::WatchCreateRequest {
            key: "m".into(),
            range_end: range_end.into(),
            ..Default::default()
        };
        let request = pb::WatchRequest {
            request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)),
        };
        let requests = tokio_stream::once(request).chain(tokio_stream::pending());
        let replies = client.watch(users.eve.of(requests)).await.unwrap();
        next(&mut replies.into_inner())
            .await
            .unwrap()
            .unwrap()
            .canceled
    };
    assert!(!watch(b"").await, "the key itself is hers");
    for range_end in [b"\0".as_slice(), b"n", b"m\0\0"] {
        assert!(watch(range_end).await, "{range_end:?}");
    }
}

/// What a server has logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

/// CVE-2021-28235: the page `/debug/requests` showed requests with the passwords in them. GHSA-528j-9r78-wffx: the log of
/// writes has the passwords in plain text. GHSA-vjg6-93fv-qv64: a login by password of a user without one was logged as
/// another. CVE-2020-15115 (GHSA-4993-m7g5-r9hh): a password may have one character.
///
/// There are no such pages; `login.rs` and `service/auth.rs` turn passwords into hashes and tokens into their SHA-256 before
/// anything is proposed, and nothing logs requests; `--min-password-bytes` refuses short passwords (by default none, as in
/// etcd).
#[tokio::test]
async fn those_about_passwords() {
    const PASSWORD: &str = "correct-horse-battery-staple";
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    // The runtime has this thread alone, so the server's tasks log here, too.
    let _here = bowline_testing::listen(subscriber);
    let running = start(&[("min-password-bytes", "20")]).await;
    let mut auth = AuthClient::new(running.channel().await);
    let nobody = As(None);
    let short = pb::AuthUserAddRequest {
        name: "root".to_owned(),
        password: "nineteen-characters".to_owned(),
        ..Default::default()
    };
    let (code, text) = refusal(auth.user_add(short).await);
    assert_eq!(code, Code::InvalidArgument);
    assert!(text.contains("--min-password-bytes"), "{text}");
    add_user(&mut auth, &nobody, "root", PASSWORD).await;
    let change = pb::AuthUserChangePasswordRequest {
        name: "root".to_owned(),
        password: "short".to_owned(),
        ..Default::default()
    };
    let refused = refusal(auth.user_change_password(change).await);
    assert_eq!(refused.0, Code::InvalidArgument);
    grant(&mut auth, &nobody, "root", "root").await;
    let without = pb::AuthUserAddRequest {
        name: "of-a-certificate".to_owned(),
        options: Some(authpb::UserAddOptions { no_password: true }),
        ..Default::default()
    };
    auth.user_add(without).await.unwrap();
    auth.auth_enable(pb::AuthEnableRequest {}).await.unwrap();
    let refused = log_in(&mut auth, "of-a-certificate", PASSWORD).await;
    let (_, text) = refused.err().unwrap();
    assert!(
        text.contains("password was given for no password user"),
        "{text}"
    );
    let root = log_in(&mut auth, "root", PASSWORD).await.unwrap();
    let mut kv = running.kv().await;
    kv.put(root.of(put("k", "what-is-on-disk"))).await.unwrap();
    for path in [
        "/debug/requests",
        "/debug/events",
        "/debug/pprof/",
        "/debug/vars",
    ] {
        assert_eq!(
            get(&running, path).await.0,
            "HTTP/1.1 404 Not Found",
            "{path}"
        );
    }
    let token = root.0.unwrap();
    let logged = log.0.lock().clone();
    assert!(
        has(&logged, "clients are served at"),
        "it is the server's log"
    );
    assert!(
        !has(&logged, PASSWORD) && !has(&logged, &token),
        "the log has a secret"
    );
    let mut is_found = false;
    let mut directories = vec![running.data()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let mut bytes = fs::read(&path).unwrap();
            // Segments of the log are written with zeros ahead.
            bytes.truncate(256 << 10);
            is_found |= has(&bytes, "what-is-on-disk");
            let is_secret = has(&bytes, PASSWORD) || has(&bytes, &token);
            assert!(!is_secret, "{} has a secret", path.display());
        }
    }
    assert!(is_found, "the put is on disk");
}

/// Users without passwords, whom certificates stand for: root, and `alice` with everything under `a`.
pub(crate) async fn enable_for_certificates(node: &LocalClient) {
    let grant_all = Permission::Keys {
        grant: Grant::ReadWrite,
        key: b"a".to_vec(),
        range_end: b"b".to_vec(),
    };
    let user = |name: &str| UsersChange::AddUser {
        name: name.to_owned(),
        password: None,
    };
    let of_role = |user: &str, role: &str| UsersChange::GrantRole {
        user: user.to_owned(),
        role: role.to_owned(),
    };
    let role = "a".to_owned();
    for change in [
        user("root"),
        of_role("root", "root"),
        user("alice"),
        UsersChange::AddRole { name: role.clone() },
        UsersChange::GrantPermission {
            role,
            permission: grant_all,
        },
        of_role("alice", "a"),
        UsersChange::Enable,
    ] {
        // Users come once the member has announced that it knows their commands.
        let mut attempts = 0;
        while let Err(error) = node.by(&Caller::Process).change_users(change.clone()).await {
            attempts += 1;
            assert!(attempts < 2000, "{error}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// CVE-2018-16886: the JSON gateway called the server with the server's own certificate, so whoever had any valid one was
/// the user that the server's common name stands for. CVE-2026-59818 (GHSA-3wh4-j44w-pg92): with addresses of their own for
/// HTTP, the port for gRPC let in certificates that were revoked.
///
/// The gateway calls the services in the process, on behalf of the connection (`callers.rs`); an empty common name is no
/// user's. Every port has one and the same set of certificates and lists (`server.rs`).
#[tokio::test]
async fn those_about_certificates() {
    let certificates = Certificates::new();
    let issue = |request: CertificateRequest, name: &str| certificates.issue(&request, name);
    issue(
        CertificateRequest::server("root", ["localhost", "127.0.0.1"]),
        "server",
    );
    issue(CertificateRequest::client(""), "nameless");
    let revoked = issue(CertificateRequest::client("root"), "revoked");
    let list = certificates.authority.revoke(&[&revoked]).unwrap();
    fs::write(certificates.path().join("list.pem"), list).unwrap();
    let list = certificates.file("list.pem");
    let flags = [AS_USERS, ("client-crl-file", &*list)];
    let secure = certificates.start(&flags).await;
    enable_for_certificates(&secure.server.client()).await;
    let tls = |name: &str| ClientTls::new(certificates.options(name)).unwrap();
    let (port, metrics) = (
        secure.server.addresses()[0],
        secure.server.metrics_addresses()[0],
    );
    let (own, others) = (r#"{"key":"YTE="}"#, r#"{"key":"YjE="}"#);
    let answer = secure.post(&tls("alice"), port, own).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = secure.post(&tls("alice"), port, others).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    let answer = secure.post(&tls("nameless"), port, own).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("user name is empty"), "{answer}");
    let nameless = secure.client(certificates.options("nameless"));
    assert!(nameless.get("a1").await.is_err());

    let refused = secure.client(certificates.options("revoked"));
    let error = refused.get("a1").await.unwrap_err().to_string();
    assert!(error.contains("was revoked"), "{error}");
    for address in [port, metrics] {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let answered = async {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut stream = tls("revoked").connect("127.0.0.1", stream).await?;
            stream
                .write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                .await?;
            stream.flush().await?;
            stream.read_u8().await
        };
        assert!(answered.await.is_err(), "{address} answers");
    }
    secure.server.shutdown().await.unwrap();
}

/// CVE-2020-15114 (a gateway among its own endpoints called itself until it had no files left), CVE-2020-15136,
/// GHSA-j86v-2vjr-fg8f and GHSA-h8g9-6gvh-5mrc (a gateway did not verify endpoints, or only once, or only those of SRV
/// records), GHSA-9gp7-6833-wv89 (a negative size of a cluster in a discovery service ended the process): there is neither a
/// gateway nor discovery. GHSA-pm3m-32r3-7mfh: a negative retention compacted without end; it is refused.
#[test]
fn those_about_what_is_not_there() {
    for flag in [
        "discovery",
        "discovery-srv",
        "discovery-endpoints",
        "enable-pprof",
    ] {
        let mut layers = Layers::default();
        assert!(layers.add_flag(flag, "x".to_owned()).is_err(), "{flag}");
    }
    for retention in ["-1", "-1h", "-9223372036854775808"] {
        let mut layers = Layers::default();
        let flag = ("auto-compaction-retention", retention.to_owned());
        layers.add_flag(flag.0, flag.1).unwrap();
        assert!(Config::from_layers(&layers).is_err(), "{retention}");
    }
}
