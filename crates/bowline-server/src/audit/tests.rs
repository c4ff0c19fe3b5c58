//! What the audit log writes, and what it does not, whichever way a call comes and whatever its disk does.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bowline::SystemClock;
use bowline::vfs::{OsVfs, read_file};
use bowline_client::{Client, KeyRange};
use bowline_proto::etcdserverpb as pb;
use bowline_proto::v1;
use bowline_proto::v1::graph_client::GraphClient;
use bowline_proto::v1::transaction_write::Write;
use bowline_replica::{Caller, Grant, Permission, UsersChange};
use bowline_testing::SimDisk;
use bowline_testing::fault::{Call, Failure, FaultVfs, Rule};
use prost::Message;
use serde_json::Value as Json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::transport::Channel;

use super::*;
use crate::test_server::TestServer;

fn options(path: &Path, overflow: Overflow) -> AuditOptions {
    AuditOptions {
        target: Target::File(path.to_owned()),
        events: Events::parse("all").unwrap(),
        overflow,
        file_bytes_max: 1 << 20,
        files_max: 3,
        queue_bytes_max: 4 << 10,
        wait_max: Duration::from_millis(40),
    }
}

fn start(options: AuditOptions, vfs: &Arc<dyn Vfs>) -> Arc<Audit> {
    Audit::start(options, vfs, Arc::new(SystemClock::new())).unwrap()
}

/// Writes the line of a put.
fn put(audit: &Audit, key: &str) {
    let details = Details::of(|out| out.key("put", key.as_bytes(), b""));
    audit.write(&record(Method::Put, &details));
}

fn record(method: Method, details: &Details) -> Record<'_> {
    static NOBODY: Who = Who {
        user: None,
        has_unknown_token: false,
        certificate: None,
        address: None,
    };
    Record {
        event: Event::Call,
        begun_ms: 1_000,
        who: &NOBODY,
        method,
        details,
        code: Code::Ok,
        reason: "",
        revision: Some(7),
        took: Some(Duration::from_micros(5)),
    }
}

/// The lines of a file, each of which is JSON.
fn lines(vfs: &dyn Vfs, path: &Path) -> Vec<Json> {
    let bytes = read_file(vfs, path, 1 << 24).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn keys_are_written_without_loss_and_lists_are_cut_with_a_count() {
    let long = "x".repeat(1_000);
    let details = Details::of(|out| {
        out.key("put", b"plain", b"");
        out.key("read", "q\"\\\u{202E}\u{7}".as_bytes(), &[0xff, 0]);
        out.key("read", long.as_bytes(), b"\0");
    });
    let line = record(Method::Txn, &details).line();
    assert!(
        line.is_ascii() && !line[..line.len() - 1].contains('\n'),
        "{line}"
    );
    let json: Json = serde_json::from_str(&line).unwrap();
    assert_eq!(json["time"], "1970-01-01T00:00:01.000Z");
    assert_eq!(json["on"][0]["key"], "plain");
    assert_eq!(json["on"][1]["key"], "q\"\\\u{202E}\u{7}");
    assert_eq!(json["on"][1]["range_end_base64"], "/wA=");
    assert_eq!(json["on"][2]["key"].as_str().unwrap().len(), 256);
    assert_eq!(json["on"][2]["key_bytes"], 1_000);
    assert_eq!(json["on"][2]["range_end"], "\0");
    let many = Details::of(|out| {
        for number in 0..100_000 {
            out.key("put", format!("key-{number}").as_bytes(), b"");
        }
    });
    let line = record(Method::Txn, &many).line();
    assert!(line.len() <= record::LINE_BYTES_MAX, "{}", line.len());
    let json: Json = serde_json::from_str(&line).unwrap();
    let written = json["on"].as_array().unwrap().len() as u64;
    assert_eq!(written + json["left_out"].as_u64().unwrap(), 100_000);
    // Whatever a name is made of.
    let who = Who {
        user: Some("\u{1F600}".repeat(1_000)),
        certificate: Some("\u{7}".repeat(1_000)),
        ..Who::default()
    };
    let line = Record {
        who: &who,
        ..record(Method::Txn, &many)
    }
    .line();
    serde_json::from_str::<Json>(&line).unwrap();
    assert!(line.len() <= record::LINE_BYTES_MAX, "{}", line.len());
}

/// What must not be in a line, in every field that may hold it.
#[test]
fn no_value_no_attribute_and_no_password_is_written() {
    const SECRET: &str = "S3CRET";
    let secret = || bytes::Bytes::from_static(SECRET.as_bytes());
    let text = || SECRET.to_owned();
    let put = pb::PutRequest {
        key: "k".into(),
        value: secret(),
        ..Default::default()
    };
    let compare = pb::Compare {
        key: "k".into(),
        target_union: Some(pb::compare::TargetUnion::Value(secret())),
        ..Default::default()
    };
    let txn = pb::TxnRequest {
        compare: vec![compare],
        success: vec![pb::RequestOp {
            request: Some(pb::request_op::Request::RequestPut(put.clone())),
        }],
        ..Default::default()
    };
    let block = v1::Block {
        id: vec![7; 16].into(),
        kind: "kind".to_owned(),
        content: secret(),
        attributes: [(text(), text())].into(),
        ..Default::default()
    };
    let write = v1::GraphWrite {
        write: Some(v1::graph_write::Write::PutBlock(block)),
    };
    let commit_put = v1::TransactionPut {
        key: "k".into(),
        value: secret(),
        ..Default::default()
    };
    let update = v1::KeyUpdate {
        key: "u".into(),
        change: Some(v1::key_update::Change::Append(secret())),
    };
    let commit = v1::CommitRequest {
        writes: [Write::Put(commit_put), Write::Update(update)]
            .map(|write| v1::TransactionWrite { write: Some(write) })
            .into(),
        ..Default::default()
    };
    let login = pb::AuthenticateRequest {
        name: "ann".to_owned(),
        password: text(),
    };
    let add = pb::AuthUserAddRequest {
        name: "ann".to_owned(),
        password: text(),
        hashed_password: text(),
        ..Default::default()
    };
    let change = pb::AuthUserChangePasswordRequest {
        name: "ann".to_owned(),
        password: text(),
        hashed_password: text(),
    };
    let campaign = bowline_proto::v3electionpb::CampaignRequest {
        name: "n".into(),
        value: secret(),
        ..Default::default()
    };
    let proclaim = bowline_proto::v3electionpb::ProclaimRequest {
        value: secret(),
        ..Default::default()
    };
    let list = v1::ListBlocksRequest {
        attribute: Some(v1::Attribute {
            name: text(),
            value: text(),
        }),
        ..Default::default()
    };
    let create = v1::IndexCreateRequest {
        kind: "person".to_owned(),
        attributes: vec!["name".to_owned(), "age".to_owned()],
        unique: true,
    };
    let drop = v1::IndexDropRequest {
        kind: create.kind.clone(),
        attributes: create.attributes.clone(),
    };
    for (method, message, holds) in [
        (
            Method::IndexCreate,
            create.encode_to_vec(),
            r#""attributes":"name, age","is_unique":true,"on":[{"op":"index","kind":"person"}]"#,
        ),
        (
            Method::IndexDrop,
            drop.encode_to_vec(),
            r#""attributes":"name, age","on":[{"op":"index","kind":"person"}]"#,
        ),
        (
            Method::Put,
            put.encode_to_vec(),
            r#""on":[{"op":"put","key":"k"}]"#,
        ),
        (
            Method::Txn,
            txn.encode_to_vec(),
            r#""op":"compare","key":"k""#,
        ),
        (Method::GraphWrite, write_of(write), r#""kind":"kind""#),
        (
            Method::StoreCommit,
            commit.encode_to_vec(),
            r#"{"op":"put","key":"k"},{"op":"update","key":"u"}"#,
        ),
        (
            Method::Authenticate,
            login.encode_to_vec(),
            r#""name":"ann""#,
        ),
        (Method::UserAdd, add.encode_to_vec(), r#""name":"ann""#),
        (
            Method::UserChangePassword,
            change.encode_to_vec(),
            r#""name":"ann""#,
        ),
        (Method::Campaign, campaign.encode_to_vec(), r#""key":"n""#),
        (Method::Proclaim, proclaim.encode_to_vec(), "proclaim"),
        (Method::GraphListBlocks, list.encode_to_vec(), "ListBlocks"),
    ] {
        let mut details = Details::default();
        describe(method, &message, &mut details).unwrap();
        let mut record = record(method, &details);
        (record.code, record.reason) = (Code::NotFound, "there is no S3CRET here");
        let line = record.line();
        assert!(line.contains(holds), "{line}");
        assert!(!line.contains(SECRET), "{line}");
        assert!(!line.contains("UzNDUkVU"), "{line}");
    }
}

fn write_of(write: v1::GraphWrite) -> Vec<u8> {
    v1::WriteRequest {
        writes: vec![write],
    }
    .encode_to_vec()
}

#[test]
fn a_file_is_its_owners_and_rotates_between_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let vfs: Arc<dyn Vfs> = Arc::new(OsVfs);
    let options = AuditOptions {
        file_bytes_max: 2_000,
        queue_bytes_max: 1 << 20,
        ..options(&path, Overflow::Block)
    };
    // What a process left that ended in the middle of a line.
    std::fs::write(&path, "{\"time\":\"2026").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let audit = start(options.clone(), &vfs);
    let again = Audit::start(options, &vfs, Arc::new(SystemClock::new()));
    assert!(matches!(again, Err(OpenError::InUse { .. })));
    for number in 0..40 {
        put(&audit, &format!("key-{number}"));
    }
    audit.close();
    assert_eq!((audit.written.get(), audit.dropped.get()), (40, 0));
    assert!(audit.rotations.get() >= 2);
    let mut names: Vec<_> = vfs.read_dir(directory.path()).unwrap();
    names.retain(|name| name != "audit.log.lock");
    assert_eq!(names, ["audit.log", "audit.log.1", "audit.log.2"]);
    let mut newest = Vec::new();
    for name in ["audit.log.2", "audit.log.1", "audit.log"] {
        let path = directory.path().join(name);
        let metadata = std::fs::metadata(&path).unwrap();
        assert!(metadata.len() <= 2_000, "{name} has {}", metadata.len());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        newest.extend(lines(&*vfs, &path));
    }
    let keys: Vec<_> = newest
        .iter()
        .map(|line| line["on"][0]["key"].clone())
        .collect();
    let last: Vec<_> = (40 - keys.len()..40)
        .map(|number| format!("key-{number}"))
        .collect();
    assert_eq!(
        keys, last,
        "the newest lines, in their order, without a gap"
    );
}

/// A rotation whose last step failed was done again from the start, and each time moved the older files on: after some
/// seconds only one of them was left. So it was where somebody had moved the file itself away, for ever.
#[test]
fn a_rotation_that_fails_again_and_again_loses_no_older_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let disk = FaultVfs::new(OsVfs);
    let vfs = Arc::new(disk.clone()) as Arc<dyn Vfs>;
    // All that there may be: a rotation looks at those that there are.
    let mut log = log_file::LogFile::open(&vfs, &path, 8, u32::MAX).unwrap();
    let append = |log: &mut log_file::LogFile, line: &str| log.append(&mut line.as_bytes());
    let files = || {
        let at = |name: &str| std::fs::read_to_string(directory.path().join(name)).ok();
        let names = ["audit.log", "audit.log.1", "audit.log.2", "audit.log.3"];
        names.map(|name| at(name).unwrap_or_default())
    };
    for line in ["first1\n", "second\n", "third3\n"] {
        append(&mut log, line).unwrap();
    }
    assert_eq!(files(), ["third3\n", "second\n", "first1\n", ""]);
    disk.add(
        Rule::on(Call::Rename)
            .nth(3)
            .times(5)
            .fail(Failure::NoSpace),
    );
    for _ in 0..5 {
        append(&mut log, "fourth\n").unwrap_err();
        assert_eq!(files(), ["third3\n", "", "second\n", "first1\n"]);
    }
    disk.clear();
    append(&mut log, "fourth\n").unwrap();
    assert_eq!(files(), ["fourth\n", "third3\n", "second\n", "first1\n"]);
    std::fs::rename(&path, directory.path().join("moved")).unwrap();
    append(&mut log, "fifth5\n").unwrap();
    assert_eq!(files(), ["fifth5\n", "third3\n", "second\n", "first1\n"]);
    let moved = std::fs::read_to_string(directory.path().join("moved")).unwrap();
    assert_eq!(moved, "fourth\n");
}

/// A process that was killed just after it had created the file, or whose disk failed there, left a name that was not on the
/// disk. Lines were appended to the file and flushed, and a power loss took all of them.
#[test]
fn a_file_that_a_killed_process_has_made_is_made_durable() {
    let path = Path::new("audit.log");
    let open = |disk: &SimDisk| {
        let vfs = Arc::new(disk.clone()) as Arc<dyn Vfs>;
        log_file::LogFile::open(&vfs, path, 1 << 20, 3).unwrap()
    };
    let disk = SimDisk::new();
    drop(open(&disk));
    let recording = disk.recording();
    for point in 0..=recording.len() {
        let killed = SimDisk::killed_at(&recording, point);
        let mut log = open(&killed);
        log.append(&mut &b"line\n"[..]).unwrap();
        log.flush().unwrap();
        let left = killed.after_power_loss().read(path);
        assert_eq!(left.unwrap(), b"line\n", "killed at point {point}");
    }
}

#[tokio::test]
async fn a_disk_that_fails_lets_calls_wait_and_be_refused_and_loses_no_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let disk = FaultVfs::new(OsVfs);
    let audit = start(
        options(&path, Overflow::Block),
        &(Arc::new(disk.clone()) as Arc<dyn Vfs>),
    );
    disk.add(Rule::on(Call::Write).for_ever().fail(Failure::NoSpace));
    let mut admitted = 0;
    let refused = loop {
        match audit.admit().await {
            Ok(()) => put(&audit, "k"),
            Err(status) => break status,
        }
        admitted += 1;
        assert!(admitted < 1_000);
    };
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("audit log"), "{refused}");
    assert!(audit.used_bytes() <= 5 << 10, "{}", audit.used_bytes());
    assert!(audit.problem().is_some() && audit.refused.get() > 0);
    disk.clear();
    // Written when the thread tries again; then there is room.
    let begun = std::time::Instant::now();
    while audit.admit().await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    put(&audit, "late");
    audit.close();
    assert_eq!(
        (audit.written.get(), audit.dropped.get()),
        (admitted + 1, 0)
    );
    assert_eq!(audit.used_bytes(), 0);
    assert_eq!(audit.problem(), None);
    let written = lines(&OsVfs, &path);
    assert_eq!(written.len() as u64, admitted + 1);
    assert_eq!(written.last().unwrap()["on"][0]["key"], "late");
}

#[test]
fn a_log_that_drops_lines_counts_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let disk = FaultVfs::new(OsVfs);
    let audit = start(
        options(&path, Overflow::Drop),
        &(Arc::new(disk.clone()) as Arc<dyn Vfs>),
    );
    disk.add(Rule::on(Call::Write).for_ever().fail(Failure::NoSpace));
    for _ in 0..500 {
        audit.admit_now().unwrap();
        put(&audit, "k");
    }
    assert!(audit.used_bytes() <= 4 << 10);
    assert!(audit.dropped.get() > 0);
    assert_eq!(audit.problem(), None, "it serves all the same");
    disk.clear();
    audit.close();
    assert_eq!(audit.written.get() + audit.dropped.get(), 500);
    assert_eq!(lines(&OsVfs, &path).len() as u64, audit.written.get());
}

#[test]
fn events_are_those_that_are_named() {
    let events = Events::parse("writes, refused").unwrap();
    assert!(events.has(Class::Write) && !events.has(Class::Read) && events.refused);
    assert!(Events::parse("all").unwrap().has(Class::Health));
    assert!(Events::parse("write").is_err() && Events::parse("").is_err());
}

/// A request of the JSON gateway.
async fn post(server: &TestServer, path: &str, body: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(server.address())
        .await
        .unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    reply
}

/// The method is one of writes: with `reads` alone a query had no line at all, whatever it did.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_only_reads_has_its_line_among_the_reads() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let audit = AuditOptions {
        events: Events::parse("reads").unwrap(),
        ..options(&path, Overflow::Block)
    };
    let server = TestServer::start_with(|config| config.audit = Some(audit)).await;
    let url = format!("http://{}", server.address());
    let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
    let mut graph = GraphClient::new(channel);
    for (read_only, text) in [(true, "MATCH (n) RETURN count(n)"), (false, "CREATE (:k)")] {
        let query = v1::QueryRequest {
            text: text.to_owned(),
            read_only,
            ..Default::default()
        };
        let mut parts = graph.query(query).await.unwrap().into_inner();
        while parts.message().await.unwrap().is_some() {}
    }
    drop(graph);
    server.shutdown().await;
    let lines = lines(&OsVfs, &path);
    let events: Vec<_> = lines.iter().map(|line| line["event"].as_str()).collect();
    assert_eq!(
        events,
        [Some("begin"), Some("end")],
        "of the one that reads"
    );
    for line in &lines {
        let method = line["method"].as_str().unwrap();
        assert!(method.ends_with("Graph/Query"), "{method}");
        assert_eq!(line["class"], "read");
    }
}

/// Every way in: the front, the libraries, the gateway, streams, watches and logins, with and without rights.
#[tokio::test(flavor = "multi_thread")]
async fn calls_are_written_whichever_way_they_come() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let audit = AuditOptions {
        queue_bytes_max: 1 << 20,
        ..options(&path, Overflow::Block)
    };
    let server = TestServer::start_with(|config| config.audit = Some(audit)).await;
    let context = server.context().clone();
    let process = context.client.by(&Caller::Process);
    let change = async |change: UsersChange| {
        let begun = std::time::Instant::now();
        while let Err(error) = process.change_users(change.clone()).await {
            assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let name = "before-users";
    let address = server.address().to_string();
    let open = Client::connect([&*address]).await.unwrap();
    open.put(name, "S3CRET").await.unwrap();
    let password = context
        .hashing
        .hash_password("S3CRET".to_owned())
        .await
        .unwrap();
    for name in ["root", "ann"] {
        let (user, role) = (name.to_owned(), name.to_owned());
        let password = Some(password.clone());
        change(UsersChange::AddUser {
            name: user.clone(),
            password,
        })
        .await;
        change(UsersChange::AddRole { name: role.clone() }).await;
        change(UsersChange::GrantRole { user, role }).await;
    }
    change(UsersChange::GrantPermission {
        role: "ann".to_owned(),
        permission: Permission::Keys {
            grant: Grant::ReadWrite,
            key: b"jobs/".to_vec(),
            range_end: b"jobs0".to_vec(),
        },
    })
    .await;
    change(UsersChange::Enable).await;
    let user = |password: &str| {
        Client::builder()
            .endpoints([&*address])
            .user("ann", password.to_owned())
    };
    let ann = user("S3CRET").connect().await.unwrap();
    let put = ann.put("jobs/7", "S3CRET").await.unwrap();
    assert!(ann.put("secrets", "S3CRET").await.is_err());
    ann.get("jobs/7").await.unwrap();
    ann.grant_lease(Duration::from_secs(100)).await.unwrap();
    assert!(ann.auth().user_list().await.is_err());
    let mut watch = ann.watch(KeyRange::prefix("jobs/")).await.unwrap();
    ann.put("jobs/8", "S3CRET").await.unwrap();
    let _ = watch.next().await;
    drop(watch);
    let wrong = user("S3CRETS").connect().await;
    if let Ok(wrong) = wrong {
        assert!(wrong.get("jobs/7").await.is_err());
    }
    let login = r#"{"name":"ann","password":"S3CRET"}"#;
    assert!(
        post(&server, "/v3/auth/authenticate", login)
            .await
            .contains("token")
    );
    let refused = post(
        &server,
        "/v3/kv/put",
        r#"{"key":"am9icy85","value":"UzNDUkVU"}"#,
    )
    .await;
    assert!(refused.contains("user name is empty"), "{refused}");
    drop((ann, open));
    drop(context);
    server.shutdown().await;
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        !text.contains("S3CRET") && !text.contains("UzNDUkVU"),
        "{text}"
    );
    let lines = lines(&OsVfs, &path);
    let found = |method: &str, is_meant: &dyn Fn(&Json) -> bool| {
        let of_method = |line: &&Json| line["method"].as_str().unwrap().ends_with(method);
        let found = lines.iter().filter(of_method).find(|line| is_meant(line));
        found
            .unwrap_or_else(|| panic!("no line of {method} in {text}"))
            .clone()
    };
    let on = |key: &'static str| move |line: &Json| line["on"][0]["key"] == key;
    let first = found("KV/Put", &on(name));
    assert_eq!(
        (&first["user"], &first["code"]),
        (&Json::Null, &"OK".into())
    );
    let written = found("KV/Put", &on("jobs/7"));
    assert_eq!(written["user"], "ann");
    assert_eq!(written["class"], "write");
    assert_eq!(written["revision"], put.header.revision.get());
    assert!(
        written["address"]
            .as_str()
            .unwrap()
            .starts_with("127.0.0.1:")
    );
    assert!(written["took_us"].as_u64().is_some());
    let denied = found("KV/Put", &on("secrets"));
    assert_eq!(denied["code"], "PERMISSION_DENIED");
    assert_eq!(denied["reason"], "etcdserver: permission denied");
    assert_eq!(found("KV/Range", &on("jobs/7"))["class"], "read");
    assert_eq!(
        found("Grant", &|line| line["class"] == "lease")["code"],
        "OK"
    );
    let denied = found("Auth/UserList", &|_| true);
    assert_eq!(
        (&denied["user"], &denied["code"]),
        (&"ann".into(), &"PERMISSION_DENIED".into())
    );
    let created = found("Watch/Watch", &|line| line["event"] == "watch");
    assert_eq!(
        (&created["on"][0]["key"], &created["user"]),
        (&"jobs/".into(), &"ann".into())
    );
    found("Watch/Watch", &|line| line["event"] == "unwatch");
    found("Watch/Watch", &|line| line["event"] == "begin");
    found("Watch/Watch", &|line| line["event"] == "end");
    let login =
        |code: &'static str| move |line: &Json| line["name"] == "ann" && line["code"] == code;
    found("Auth/Authenticate", &login("OK"));
    found("Auth/Authenticate", &login("INVALID_ARGUMENT"));
    let through_gateway = found("KV/Put", &on("jobs/9"));
    assert_eq!(through_gateway["reason"], "etcdserver: user name is empty");
    assert!(
        lines
            .iter()
            .all(|line| line["time"].as_str().unwrap().ends_with('Z'))
    );
}
