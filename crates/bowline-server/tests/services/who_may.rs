//! Who may call what: every method of every service for clients, by every kind of caller, over gRPC in the clear and with
//! TLS, and through the JSON gateway. The methods are those of the descriptors, so that none is forgotten: one without a
//! line in the table fails the test.
//!
//! What a caller may not do is told by three replies, which are etcd's: it shows nothing, it shows a token that is none,
//! it lacks the right. Whatever else a call is answered with, it was let in.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::task;
use std::time::Duration;

use bowline_client::tls::ClientTls;
use bowline_cluster::LocalClient;
use bowline_proto::etcdserverpb as pb;
use bowline_replica::{Caller, Grant, Permission, UsersChange};
use bowline_tls::{ClientStream, Request as CertificateRequest};
use bytes::{Buf, BufMut, Bytes};
use hyper_util::rt::TokioIo;
use pb::auth_client::AuthClient;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_stream::{Stream, StreamExt};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::Service;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::support::{Running, start};
use crate::tls::{AS_USERS, Certificates};
use crate::users::{As, add_user, log_in};

/// What a call needs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Needs {
    /// Nothing.
    Nothing,
    /// That no wrong token is shown.
    Anybody,
    /// A user.
    User,
    /// A right that `ann` has and `bob` has not.
    Right,
    /// The role `root`.
    Root,
}

use Needs::{Anybody, Nothing, Right, Root, User};

/// Every call, with a request that changes nothing that another line rests on. `b3duL2E=` is `own/a`.
#[rustfmt::skip]
const CALLS: &[(&str, Needs, &str)] = &[
    ("etcdserverpb.KV/Range", Right, r#"{"key":"b3duL2E="}"#),
    ("etcdserverpb.KV/RangeStream", Right, r#"{"key":"b3duL2E="}"#),
    ("etcdserverpb.KV/Put", Right, r#"{"key":"b3duL2E=","value":"dg=="}"#),
    ("etcdserverpb.KV/DeleteRange", Right, r#"{"key":"b3duL2E="}"#),
    ("etcdserverpb.KV/Txn", Right, r#"{"success":[{"requestPut":{"key":"b3duL2E="}}]}"#),
    ("etcdserverpb.KV/Compact", Root, r#"{"revision":"1"}"#),
    ("etcdserverpb.Watch/Watch", Right, r#"{"createRequest":{"key":"b3duL2E="}}"#),
    ("etcdserverpb.Lease/LeaseGrant", User, r#"{"TTL":"60"}"#),
    ("etcdserverpb.Lease/LeaseRevoke", User, r#"{"ID":"77"}"#),
    ("etcdserverpb.Lease/LeaseKeepAlive", User, r#"{"ID":"77"}"#),
    ("etcdserverpb.Lease/LeaseTimeToLive", User, r#"{"ID":"77"}"#),
    ("etcdserverpb.Lease/LeaseLeases", User, "{}"),
    ("etcdserverpb.Cluster/MemberAdd", Root, r#"{"peerURLs":["none"]}"#),
    ("etcdserverpb.Cluster/MemberRemove", Root, r#"{"ID":"77"}"#),
    ("etcdserverpb.Cluster/MemberUpdate", Root, r#"{"ID":"77","peerURLs":["http://127.0.0.1:1"]}"#),
    ("etcdserverpb.Cluster/MemberList", User, "{}"),
    ("etcdserverpb.Cluster/MemberPromote", Root, r#"{"ID":"77"}"#),
    ("etcdserverpb.Maintenance/Alarm", User, "{}"),
    ("etcdserverpb.Maintenance/Status", User, "{}"),
    ("etcdserverpb.Maintenance/Defragment", Root, "{}"),
    ("etcdserverpb.Maintenance/Hash", Root, "{}"),
    ("etcdserverpb.Maintenance/HashKV", Root, "{}"),
    ("etcdserverpb.Maintenance/Snapshot", Root, "{}"),
    ("etcdserverpb.Maintenance/MoveLeader", Root, r#"{"targetID":"77"}"#),
    ("etcdserverpb.Maintenance/Downgrade", Root, r#"{"version":"none"}"#),
    ("etcdserverpb.Auth/AuthEnable", Root, "{}"),
    // Not by `root` with the others, as nothing is refused after it.
    ("etcdserverpb.Auth/AuthDisable", Root, "{}"),
    ("etcdserverpb.Auth/AuthStatus", Anybody, "{}"),
    ("etcdserverpb.Auth/Authenticate", Nothing, r#"{"name":"ann","password":"wrong"}"#),
    ("etcdserverpb.Auth/UserAdd", Root, r#"{"name":"root","password":"x"}"#),
    ("etcdserverpb.Auth/UserGet", Root, r#"{"name":"root"}"#),
    ("etcdserverpb.Auth/UserList", Root, "{}"),
    ("etcdserverpb.Auth/UserDelete", Root, r#"{"name":"none"}"#),
    ("etcdserverpb.Auth/UserChangePassword", Root, r#"{"name":"none","password":"x"}"#),
    ("etcdserverpb.Auth/UserGrantRole", Root, r#"{"user":"none","role":"a"}"#),
    ("etcdserverpb.Auth/UserRevokeRole", Root, r#"{"name":"none","role":"a"}"#),
    ("etcdserverpb.Auth/RoleAdd", Root, r#"{"name":""}"#),
    ("etcdserverpb.Auth/RoleGet", Root, r#"{"role":"other"}"#),
    ("etcdserverpb.Auth/RoleList", Root, "{}"),
    ("etcdserverpb.Auth/RoleDelete", Root, r#"{"role":"none"}"#),
    ("etcdserverpb.Auth/RoleGrantPermission", Root, r#"{"name":"none","perm":{"key":"eA=="}}"#),
    ("etcdserverpb.Auth/RoleRevokePermission", Root, r#"{"role":"none","key":"eA=="}"#),
    // Of a lease that is none, so that nobody waits for another one.
    ("v3lockpb.Lock/Lock", Right, r#"{"name":"b3duL2E=","lease":"77"}"#),
    ("v3lockpb.Lock/Unlock", Right, r#"{"key":"b3duL2E="}"#),
    ("v3electionpb.Election/Campaign", Right, r#"{"name":"b3duL2E=","lease":"77"}"#),
    ("v3electionpb.Election/Proclaim", Right, r#"{"leader":{"name":"b3duL2E=","key":"b3duL2E=","rev":"1","lease":"77"}}"#),
    ("v3electionpb.Election/Leader", Right, r#"{"name":"b3duL2E="}"#),
    ("v3electionpb.Election/Observe", Right, r#"{"name":"b3duL2E="}"#),
    ("v3electionpb.Election/Resign", Right, r#"{"leader":{"name":"b3duL2E=","key":"b3duL2E=","rev":"1","lease":"77"}}"#),
    ("bowline.v1.Graph/Write", Right, r#"{"writes":[{"putBlock":{"id":"AAAAAAAAAAAAAAAAAAAAAQ==","kind":"own"}}]}"#),
    ("bowline.v1.Graph/GetBlocks", Right, r#"{"ids":["AAAAAAAAAAAAAAAAAAAAAQ=="]}"#),
    ("bowline.v1.Graph/GetEdges", Right, r#"{"keys":[{"source":"AAAAAAAAAAAAAAAAAAAAAQ==","kind":"own","target":"AAAAAAAAAAAAAAAAAAAAAQ=="}]}"#),
    ("bowline.v1.Graph/Neighbors", Right, r#"{"id":"AAAAAAAAAAAAAAAAAAAAAQ=="}"#),
    ("bowline.v1.Graph/Traverse", Right, r#"{"starts":["AAAAAAAAAAAAAAAAAAAAAQ=="]}"#),
    ("bowline.v1.Graph/ShortestPath", Right, r#"{"from":"AAAAAAAAAAAAAAAAAAAAAQ==","to":"AAAAAAAAAAAAAAAAAAAAAQ=="}"#),
    ("bowline.v1.Graph/ListBlocks", Right, "{}"),
    ("bowline.v1.Graph/ListEdges", Right, "{}"),
    ("bowline.v1.Graph/Order", Right, "{}"),
    ("bowline.v1.Graph/Components", Right, "{}"),
    ("bowline.v1.Graph/Stats", Right, "{}"),
    ("bowline.v1.Graph/PageRank", Right, "{}"),
    ("bowline.v1.Graph/Communities", Right, "{}"),
    ("bowline.v1.Graph/Triangles", Right, "{}"),
    ("bowline.v1.Graph/Clustering", Right, "{}"),
    ("bowline.v1.Graph/KHop", Right, r#"{"id":"AAAAAAAAAAAAAAAAAAAAAQ==","hops":1}"#),
    ("bowline.v1.Graph/SimplePaths", Right, r#"{"from":"AAAAAAAAAAAAAAAAAAAAAQ==","to":"AAAAAAAAAAAAAAAAAAAAAQ=="}"#),
    ("bowline.v1.Graph/Query", Right, r#"{"text":"MATCH (n) RETURN n"}"#),
    ("bowline.v1.Store/Get", Right, r#"{"keys":["b3duL2E="]}"#),
    ("bowline.v1.Store/Range", Right, r#"{"range":{"key":"b3duL2E="}}"#),
    ("bowline.v1.Store/History", Right, r#"{"key":"b3duL2E="}"#),
    ("bowline.v1.Store/Commit", Right, r#"{"writes":[{"delete":"b3duL2E="}]}"#),
    ("bowline.v1.Lease/Grant", User, r#"{"ttlMs":"60000"}"#),
    ("bowline.v1.Lease/KeepAlive", User, r#"{"id":"77"}"#),
    ("bowline.v1.Lease/TimeToLive", User, r#"{"id":"77"}"#),
    ("bowline.v1.Lease/Revoke", User, r#"{"id":"77"}"#),
    ("bowline.v1.Members/Repair", Root, r#"{"id":"77"}"#),
    ("bowline.v1.Roles/GrantKinds", Root, r#"{"role":"none","permission":{"prefix":"x"}}"#),
    ("bowline.v1.Roles/RevokeKinds", Root, r#"{"role":"none","prefix":"x"}"#),
    ("bowline.v1.Roles/ListKinds", Root, r#"{"role":"other"}"#),
    ("bowline.v1.Quotas/Set", Root, r#"{"prefix":"eA=="}"#),
    ("bowline.v1.Quotas/List", Root, "{}"),
    ("bowline.v1.Quotas/Remove", Root, r#"{"prefix":"eA=="}"#),
    // By no attributes: nothing is created.
    ("bowline.v1.Indexes/Create", Root, r#"{"kind":"own"}"#),
    ("bowline.v1.Indexes/List", User, "{}"),
    ("bowline.v1.Indexes/Drop", Root, r#"{"kind":"own","attributes":["none"]}"#),
];

/// How a call was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    LetIn,
    NoUser,
    NoToken,
    NoRight,
}

fn answer_of(code: Code, message: &str) -> Answer {
    // The codes of locks and elections say nothing, as in etcd.
    let says = |text: &str| message == format!("etcdserver: {text}");
    match code {
        Code::Unauthenticated => Answer::NoToken,
        _ if says("user name is empty") => Answer::NoUser,
        _ if says("invalid auth token") => Answer::NoToken,
        _ if says("permission denied") => Answer::NoRight,
        _ => Answer::LetIn,
    }
}

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Who {
    Nobody,
    WrongToken,
    /// With a certificate whose name is no user's.
    Stranger,
    Bob,
    Ann,
    TheRoot,
}

impl Who {
    fn expects(self, needs: Needs) -> Answer {
        match (self, needs) {
            (_, Nothing) | (Who::TheRoot, _) => Answer::LetIn,
            (Who::WrongToken, _) => Answer::NoToken,
            (_, Anybody) => Answer::LetIn,
            (Who::Nobody, _) => Answer::NoUser,
            (Who::Stranger, _) | (Who::Bob | Who::Ann, Root) | (Who::Bob, Right) => Answer::NoRight,
            (Who::Ann, Right) | (_, User) => Answer::LetIn,
        }
    }
}

/// Messages as bytes.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(bytes.copy_to_bytes(bytes.remaining())))
    }
}

/// The methods for clients, by `package.Service/Method`.
fn methods() -> BTreeMap<String, MethodDescriptor> {
    let pool = DescriptorPool::decode(bowline_proto::DESCRIPTORS).unwrap();
    let methods = pool.services().flat_map(|service| {
        let named = |method: MethodDescriptor| {
            (format!("{}/{}", service.full_name(), method.name()), method)
        };
        service.methods().map(named).collect::<Vec<_>>()
    });
    methods.collect()
}

fn encoded(method: &MethodDescriptor, json: &str) -> Bytes {
    let mut text = serde_json::Deserializer::from_str(json);
    let message = DynamicMessage::deserialize(method.input(), &mut text);
    let message = message.unwrap_or_else(|error| panic!("{}: {error}", method.full_name()));
    message.encode_to_vec().into()
}

/// The one call that has nothing to say when it is let in, until somebody is elected.
const SILENT: &str = "v3electionpb.Election/Observe";

/// Makes a call, and waits for its first message or its end; `None` if there is neither for a while.
async fn replied(
    channel: &Channel,
    by: &As,
    name: &str,
    method: &MethodDescriptor,
    json: &str,
) -> Option<Result<Option<Bytes>, Status>> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let path = http::uri::PathAndQuery::try_from(format!("/{name}")).unwrap();
    let one = tokio_stream::iter([encoded(method, json)]);
    // A stream of requests stays open, as that of a client does.
    let more: Pin<Box<dyn Stream<Item = Bytes> + Send>> = match method.is_client_streaming() {
        true => Box::pin(tokio_stream::pending()),
        false => Box::pin(tokio_stream::empty()),
    };
    let called = async {
        let replies = client.streaming(by.of(one.chain(more)), path, Raw).await;
        let mut replies = replies?.into_inner();
        replies.message().await
    };
    let within = Duration::from_secs(if name == SILENT { 2 } else { 60 });
    tokio::time::timeout(within, called).await.ok()
}

/// How a call is answered.
async fn call(
    channel: &Channel,
    by: &As,
    name: &str,
    method: &MethodDescriptor,
    json: &str,
) -> Answer {
    match replied(channel, by, name, method, json).await {
        None if name == SILENT => Answer::LetIn,
        None => panic!("{name} is not answered"),
        Some(Err(status)) => answer_of(status.code(), status.message()),
        // A watch is refused by its first message.
        Some(Ok(Some(reply))) if name.ends_with("Watch/Watch") => {
            let reply = pb::WatchResponse::decode(reply).unwrap();
            match reply.cancel_reason.as_str() {
                "" => Answer::LetIn,
                reason if reason.contains("permission denied") => Answer::NoRight,
                reason if reason.contains("user name is empty") => Answer::NoUser,
                reason if reason.contains("invalid auth token") => Answer::NoToken,
                reason => panic!("{reason}"),
            }
        }
        Some(Ok(_)) => Answer::LetIn,
    }
}

/// A role `a` for `ann` with the keys of `own/` and all kinds, and one that nobody has; then authentication is enabled.
async fn enable(node: &LocalClient) {
    let change = async |change: UsersChange| {
        node.by(&Caller::Process)
            .change_users(change)
            .await
            .unwrap();
    };
    for name in ["a", "other"] {
        let name = name.to_owned();
        change(UsersChange::AddRole { name }).await;
    }
    let (role, grant) = (|| "a".to_owned(), Grant::ReadWrite);
    let keys = Permission::Keys {
        grant,
        key: b"own/".to_vec(),
        range_end: b"own0".to_vec(),
    };
    let prefix = String::new();
    for permission in [keys, Permission::Kinds { grant, prefix }] {
        let role = role();
        change(UsersChange::GrantPermission { role, permission }).await;
    }
    for (user, role) in [("root", "root"), ("ann", "a")] {
        let (user, role) = (user.to_owned(), role.to_owned());
        change(UsersChange::GrantRole { user, role }).await;
    }
    change(UsersChange::Enable).await;
}

/// Compares the answers to every call of a caller with those in the table. Gives the differences.
async fn differences(who: Who, channel: &Channel, by: &As) -> Vec<String> {
    let methods = methods();
    let mut different = Vec::new();
    for (name, needs, json) in CALLS {
        // The test ends with it.
        if *name == "etcdserverpb.Auth/AuthDisable" && who == Who::TheRoot {
            continue;
        }
        let method = &methods[*name];
        let answer = call(channel, by, name, method, json).await;
        if answer != who.expects(*needs) {
            different.push(format!(
                "{name} of {who:?}, which needs {needs:?}: {answer:?}"
            ));
        }
    }
    different
}

#[test]
fn every_method_is_in_the_table_once() {
    let mut named: Vec<_> = CALLS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    named.sort();
    let known: Vec<_> = methods().into_keys().collect();
    assert_eq!(named, known);
}

/// A server in the clear with the three users, and their tokens.
async fn clear() -> (Running, Vec<(Who, As)>) {
    let running = start(&[]).await;
    let channel = running.channel().await;
    let mut auth = AuthClient::new(channel.clone());
    let nobody = As(None);
    for name in ["root", "ann", "bob"] {
        add_user(&mut auth, &nobody, name, "pw").await;
    }
    enable(&running.server.client()).await;
    let mut callers = Vec::new();
    // `root` first: of what it writes, others may read this or that.
    for (who, name) in [(Who::TheRoot, "root"), (Who::Ann, "ann"), (Who::Bob, "bob")] {
        callers.push((who, log_in(&mut auth, name, "pw").await.unwrap()));
    }
    let wrong = As(Some("nonsense".to_owned()));
    callers.extend([(Who::Nobody, nobody), (Who::WrongToken, wrong)]);
    (running, callers)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_is_let_in_for_whom_it_is_meant_and_for_nobody_else() {
    let (running, callers) = clear().await;
    let channel = running.channel().await;
    let mut different = Vec::new();
    for (who, by) in &callers {
        different.extend(differences(*who, &channel, by).await);
    }
    assert!(different.is_empty(), "{different:#?}");
    let disable = pb::AuthDisableRequest {};
    let root = &callers[0].1;
    let mut auth = AuthClient::new(channel);
    auth.auth_disable(root.of(disable)).await.unwrap();
}

/// The port for peers has none of the calls of clients, whoever asks.
#[tokio::test(flavor = "multi_thread")]
async fn no_call_of_a_client_is_served_on_the_port_for_peers() {
    let (running, callers) = clear().await;
    let (_, root) = &callers[0];
    let port = Channel::from_shared(running.peer_url().to_owned()).unwrap();
    let methods = methods();
    for (name, _, json) in CALLS {
        // A connection each: one of which 64 calls were refused is closed, and the next call may be on its way by then.
        let peer = port.connect().await.unwrap();
        let reply = replied(&peer, root, name, &methods[*name], json).await;
        let status = reply.expect("a reply").expect_err(name);
        assert_eq!(status.code(), Code::Unimplemented, "{name}: {status:?}");
    }
}

/// The gateway has the calls of etcd without streams of requests; a watch has tests of its own.
#[tokio::test(flavor = "multi_thread")]
async fn every_call_through_the_gateway_is_let_in_for_whom_it_is_meant() {
    let (running, callers) = clear().await;
    let methods = methods();
    let mut different = Vec::new();
    for (who, by) in &callers {
        for (name, needs, json) in CALLS {
            let (service, method) = name.split_once('/').unwrap();
            let ends = *name == "etcdserverpb.Auth/AuthDisable" && *who == Who::TheRoot;
            if ends || methods[*name].is_client_streaming() || methods[*name].is_server_streaming()
            {
                continue;
            }
            let Some(path) = path_of(service, method) else {
                continue;
            };
            let (_, text) = crate::gateway::post_as(&running, &path, by.0.as_deref(), json).await;
            let reply: Value = serde_json::from_str(&text).unwrap_or_default();
            let code = reply["code"].as_i64().unwrap_or(0) as i32;
            let answer = answer_of(Code::from(code), reply["message"].as_str().unwrap_or(""));
            if answer != who.expects(*needs) {
                different.push(format!("{path} of {who:?}, which needs {needs:?}: {text}"));
            }
        }
    }
    assert!(different.is_empty(), "{different:#?}");
}

/// The path of a call in etcd's gateway.
fn path_of(service: &str, method: &str) -> Option<String> {
    let (group, rest) = match service {
        "etcdserverpb.KV" => ("kv", method),
        "etcdserverpb.Lease" => ("lease", method.strip_prefix("Lease")?),
        "etcdserverpb.Cluster" => ("cluster/member", method.strip_prefix("Member")?),
        "etcdserverpb.Maintenance" => ("maintenance", method),
        "etcdserverpb.Auth" => ("auth", method),
        "v3lockpb.Lock" => ("lock", method),
        "v3electionpb.Election" => ("election", method),
        _ => return None,
    };
    let rest = match rest {
        "Compact" => "compaction".to_owned(),
        "MoveLeader" => "transfer-leadership".to_owned(),
        "AuthEnable" => "enable".to_owned(),
        "AuthDisable" => "disable".to_owned(),
        "AuthStatus" => "status".to_owned(),
        "UserChangePassword" => "user/changepw".to_owned(),
        "UserGrantRole" => "user/grant".to_owned(),
        "UserRevokeRole" => "user/revoke".to_owned(),
        "RoleGrantPermission" => "role/grant".to_owned(),
        "RoleRevokePermission" => "role/revoke".to_owned(),
        other if group == "auth" => {
            let other = other.to_lowercase();
            let split = |of: &str| other.strip_prefix(of).map(|rest| format!("{of}/{rest}"));
            split("user")
                .or_else(|| split("role"))
                .unwrap_or(other.clone())
        }
        other => other.to_lowercase(),
    };
    Some(format!("/v3/{group}/{rest}"))
}

/// Connects with TLS.
struct Connect {
    tls: ClientTls,
    address: String,
}

impl Service<http::Uri> for Connect {
    type Response = TokioIo<ClientStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> task::Poll<io::Result<()>> {
        task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Uri) -> Self::Future {
        let (tls, address) = (self.tls.clone(), self.address.clone());
        Box::pin(async move {
            let stream = TcpStream::connect(&address).await?;
            Ok(TokioIo::new(tls.connect("127.0.0.1", stream).await?))
        })
    }
}

/// The same by certificates, whose common names are users. A name that is no user's has no right.
#[tokio::test(flavor = "multi_thread")]
async fn every_call_by_a_certificate_is_let_in_for_whom_it_is_meant() {
    let certificates = Certificates::new();
    for name in ["root", "ann", "bob", "mallory"] {
        certificates.issue(&CertificateRequest::client(name), name);
    }
    let secure = certificates.start(&[AS_USERS]).await;
    let node = secure.server.client();
    for name in ["root", "ann", "bob"] {
        let (name, password) = (name.to_owned(), None);
        let added = UsersChange::AddUser { name, password };
        node.by(&Caller::Process).change_users(added).await.unwrap();
    }
    enable(&node).await;
    let mut different = Vec::new();
    for (who, certificate) in [
        (Who::TheRoot, "root"),
        (Who::Ann, "ann"),
        (Who::Bob, "bob"),
        (Who::Stranger, "mallory"),
    ] {
        let options = certificates.options(certificate);
        let (tls, address) = (ClientTls::new(options).unwrap(), secure.address());
        let endpoint = Endpoint::from_static("http://127.0.0.1");
        let connected = endpoint.connect_with_connector(Connect { tls, address });
        let channel = connected.await.unwrap();
        different.extend(differences(who, &channel, &As(None)).await);
    }
    assert!(different.is_empty(), "{different:#?}");
    secure.server.shutdown().await.unwrap();
}
