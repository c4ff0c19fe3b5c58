//! Every method by every kind of caller: nobody, a wrong token, a user without the right, a user with it, and root.

use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::v1;
use bowline_proto::v3electionpb as election;
use bowline_proto::v3lockpb as lock;
use bowline_replica::{Caller, Grant, Permission, UsersChange};
use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::rights::{Right, right_of};
use crate::metrics::Method;
use crate::test_server::TestServer;

/// Messages as their bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Plain;

impl Codec for Plain {
    type Encode = Vec<u8>;
    type Decode = Bytes;
    type Encoder = Plain;
    type Decoder = Plain;

    fn encoder(&mut self) -> Plain {
        Plain
    }

    fn decoder(&mut self) -> Plain {
        Plain
    }
}

impl Encoder for Plain {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let bytes = buffer.remaining();
        Ok(Some(buffer.copy_to_bytes(bytes)))
    }
}

/// What a call ends with: the refusal, or `Ok`. One that waits has not been refused.
async fn call(channel: &Channel, method: Method, token: Option<&str>, name: &str) -> Status {
    const WAIT_MAX: Duration = Duration::from_millis(300);
    let (service, of_service) = method.names();
    let path: PathAndQuery = format!("/{service}/{of_service}").parse().unwrap();
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    // The stream of requests stays open, as a client's does that waits for events.
    let message = tokio_stream::once(request_of(method, name));
    let stays = matches!(method, Method::Watch | Method::LeaseKeepAlive);
    let open = tokio_stream::pending();
    let requests: std::pin::Pin<Box<dyn futures_core::Stream<Item = Vec<u8>> + Send>> = match stays
    {
        true => Box::pin(tokio_stream::StreamExt::chain(message, open)),
        false => Box::pin(message),
    };
    let mut request = Request::new(requests);
    if let Some(token) = token {
        request
            .metadata_mut()
            .insert("token", token.parse().unwrap());
    }
    let called = async {
        let mut replies = grpc.streaming(request, path, Plain).await?.into_inner();
        let Some(first) = replies.message().await? else {
            return Ok(());
        };
        if method == Method::Watch {
            let reply = pb::WatchResponse::decode(first).unwrap();
            assert_eq!(reply.canceled, !reply.cancel_reason.is_empty());
            if reply.canceled {
                let code = match reply.cancel_reason.as_str() {
                    "rpc error: code = PermissionDenied desc = etcdserver: permission denied" => {
                        Code::PermissionDenied
                    }
                    "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token" => {
                        Code::Unauthenticated
                    }
                    _ => Code::InvalidArgument,
                };
                return Err(Status::new(code, reply.cancel_reason));
            }
        }
        Ok(())
    };
    match tokio::time::timeout(WAIT_MAX, called).await {
        Ok(Err(status)) => status,
        Ok(Ok(())) | Err(_) => Status::ok(""),
    }
}

/// A request of a method, on keys under `r/` and all kinds, which is not refused for another reason before the rights are
/// looked at. Names are the caller's own where calls would wait for each other.
fn request_of(method: Method, name: &str) -> Vec<u8> {
    use Method as M;
    let key = || Bytes::from_static(b"r/key");
    let own = || Bytes::from(format!("r/{name}"));
    let id = || Bytes::from_static(&[7; 16]);
    let put = || pb::PutRequest {
        key: key(),
        ..Default::default()
    };
    let range = || pb::RangeRequest {
        key: key(),
        ..Default::default()
    };
    let delete = || pb::DeleteRangeRequest {
        key: Bytes::from_static(b"r/gone"),
        ..Default::default()
    };
    let leader = || election::LeaderKey {
        name: own(),
        key: own(),
        rev: 1,
        lease: 1,
    };
    match method {
        M::Range | M::RangeStream => range().encode_to_vec(),
        M::Put => put().encode_to_vec(),
        M::DeleteRange => delete().encode_to_vec(),
        M::Txn => {
            // What it needs is only in a nested transaction's branch that is not executed.
            let inner = pb::TxnRequest {
                failure: vec![pb::RequestOp {
                    request: Some(pb::request_op::Request::RequestDeleteRange(delete())),
                }],
                ..Default::default()
            };
            pb::TxnRequest {
                success: vec![pb::RequestOp {
                    request: Some(pb::request_op::Request::RequestTxn(inner)),
                }],
                ..Default::default()
            }
            .encode_to_vec()
        }
        M::Watch => pb::WatchRequest {
            request_union: Some(pb::watch_request::RequestUnion::CreateRequest(
                pb::WatchCreateRequest {
                    key: key(),
                    ..Default::default()
                },
            )),
        }
        .encode_to_vec(),
        M::LeaseGrant => pb::LeaseGrantRequest {
            ttl: 100,
            ..Default::default()
        }
        .encode_to_vec(),
        M::LeaseRevoke => pb::LeaseRevokeRequest { id: LEASE }.encode_to_vec(),
        M::LeaseKeepAlive => pb::LeaseKeepAliveRequest { id: LEASE }.encode_to_vec(),
        M::LeaseTimeToLive => pb::LeaseTimeToLiveRequest {
            id: LEASE,
            keys: true,
        }
        .encode_to_vec(),
        M::Lock => lock::LockRequest {
            name: own(),
            lease: 0,
        }
        .encode_to_vec(),
        M::Unlock => lock::UnlockRequest { key: own() }.encode_to_vec(),
        M::Campaign => election::CampaignRequest {
            name: own(),
            ..Default::default()
        }
        .encode_to_vec(),
        M::Proclaim => election::ProclaimRequest {
            leader: Some(election::LeaderKey {
                lease: 0,
                ..leader()
            }),
            ..Default::default()
        }
        .encode_to_vec(),
        M::Leader | M::Observe => election::LeaderRequest { name: own() }.encode_to_vec(),
        M::Resign => election::ResignRequest {
            leader: Some(leader()),
        }
        .encode_to_vec(),
        M::UserGet => pb::AuthUserGetRequest {
            name: "root".to_owned(),
        }
        .encode_to_vec(),
        M::RoleGet => pb::AuthRoleGetRequest {
            role: "rich".to_owned(),
        }
        .encode_to_vec(),
        M::RoleListKinds => v1::ListKindsRequest {
            role: "rich".to_owned(),
        }
        .encode_to_vec(),
        M::RoleGrantKinds => v1::GrantKindsRequest {
            role: "poor".to_owned(),
            permission: Some(v1::KindPermission {
                access: v1::Access::Read.into(),
                prefix: "none of the graph's".to_owned(),
            }),
        }
        .encode_to_vec(),
        M::RoleRevokeKinds => v1::RevokeKindsRequest {
            role: "poor".to_owned(),
            prefix: "none of the graph's".to_owned(),
        }
        .encode_to_vec(),
        M::Alarm => pb::AlarmRequest {
            action: pb::alarm_request::AlarmAction::Deactivate.into(),
            ..Default::default()
        }
        .encode_to_vec(),
        M::GraphWrite => v1::WriteRequest {
            writes: vec![v1::GraphWrite {
                write: Some(v1::graph_write::Write::PutBlock(v1::Block {
                    id: id(),
                    kind: "k".to_owned(),
                    ..Default::default()
                })),
            }],
        }
        .encode_to_vec(),
        M::GraphGetBlocks => v1::GetBlocksRequest {
            ids: vec![id()],
            ..Default::default()
        }
        .encode_to_vec(),
        M::GraphGetEdges => v1::GetEdgesRequest {
            keys: vec![v1::EdgeKey {
                source: id(),
                kind: "k".to_owned(),
                target: id(),
            }],
            ..Default::default()
        }
        .encode_to_vec(),
        M::GraphNeighbors => v1::NeighborsRequest {
            id: id(),
            direction: v1::Direction::Out.into(),
            ..Default::default()
        }
        .encode_to_vec(),
        M::GraphTraverse => v1::TraverseRequest {
            starts: vec![id()],
            direction: v1::Direction::Out.into(),
            order: v1::TraverseOrder::BreadthFirst.into(),
            ..Default::default()
        }
        .encode_to_vec(),
        M::GraphShortestPath => v1::ShortestPathRequest {
            from: id(),
            to: id(),
            direction: v1::Direction::Out.into(),
            ..Default::default()
        }
        .encode_to_vec(),
        M::GraphKHop => v1::KHopRequest {
            id: id(),
            hops: 1,
            direction: v1::Direction::Out.into(),
            ..Default::default()
        }
        .encode_to_vec(),
        M::GraphSimplePaths => v1::SimplePathsRequest {
            from: id(),
            to: id(),
            direction: v1::Direction::Out.into(),
            ..Default::default()
        }
        .encode_to_vec(),
        // Reads all kinds, and writes one.
        M::GraphQuery => v1::QueryRequest {
            text: "MATCH (n) WITH count(n) AS c CREATE (:k)".to_owned(),
            ..Default::default()
        }
        .encode_to_vec(),
        M::GraphPageRank => v1::PageRankRequest {
            direction: v1::Direction::Out.into(),
            ..Default::default()
        }
        .encode_to_vec(),
        M::StoreGet => v1::GetRequest {
            keys: vec![key()],
            ..Default::default()
        }
        .encode_to_vec(),
        M::StoreRange => v1::RangeRequest {
            range: Some(v1::KeyRange {
                key: key(),
                range_end: Bytes::new(),
            }),
            ..Default::default()
        }
        .encode_to_vec(),
        M::StoreHistory => v1::HistoryRequest {
            key: key(),
            ..Default::default()
        }
        .encode_to_vec(),
        M::StoreCommit => v1::CommitRequest {
            expectations: vec![v1::Expectation {
                key: key(),
                mod_revision: 99,
            }],
            ..Default::default()
        }
        .encode_to_vec(),
        M::MsLeaseGrant => v1::LeaseGrantRequest {
            ttl_ms: 100_000,
            ..Default::default()
        }
        .encode_to_vec(),
        M::MsLeaseKeepAlive => v1::LeaseKeepAliveRequest { id: LEASE }.encode_to_vec(),
        M::MsLeaseTimeToLive => v1::LeaseTimeToLiveRequest {
            id: LEASE,
            keys: true,
        }
        .encode_to_vec(),
        M::MsLeaseRevoke => v1::LeaseRevokeRequest { id: LEASE }.encode_to_vec(),
        M::QuotaSet => v1::QuotaSetRequest {
            prefix: key(),
            limits: Some(v1::QuotaLimits {
                keys: Some(1_000),
                bytes: None,
            }),
        }
        .encode_to_vec(),
        M::QuotaRemove => v1::QuotaRemoveRequest { prefix: key() }.encode_to_vec(),
        M::IndexCreate => v1::IndexCreateRequest {
            kind: "k".to_owned(),
            attributes: vec!["a".to_owned()],
            unique: false,
        }
        .encode_to_vec(),
        M::IndexDrop => v1::IndexDropRequest {
            kind: "k".to_owned(),
            attributes: vec!["a".to_owned()],
        }
        .encode_to_vec(),
        M::UserAdd => pb::AuthUserAddRequest {
            name: "late".to_owned(),
            ..Default::default()
        }
        .encode_to_vec(),
        _ => Vec::new(),
    }
}

/// A lease with a key under `r/`.
const LEASE: i64 = 77;

/// Which of the callers a method lets in; `None` is who has no user.
fn lets_in(method: Method, caller: &str) -> bool {
    // Of these any user may make the request above: it is refused what it does not show.
    let is_for_any_user = matches!(method, Method::LeaseGrant | Method::MsLeaseGrant);
    match (right_of(method), caller) {
        (Right::Nothing, _) | (_, "root") => true,
        (_, "wrong") => false,
        // It tells anybody whether users are asked for.
        _ if method == Method::AuthStatus => true,
        (_, "nobody") => false,
        (Right::User, _) => true,
        (Right::Root | Right::RootHere, _) => false,
        (Right::OfRequest, "rich") => !matches!(
            method,
            // Of root alone, as they are asked here.
            Method::Compact | Method::Alarm | Method::UserGet
        ),
        (Right::OfRequest, _) => is_for_any_user,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_lets_in_whom_it_should_and_nobody_else() {
    let server = TestServer::start().await;
    let context = server.context();
    let client = context.client.by(&Caller::Process);
    // Users come once the member has announced that it knows their commands.
    let change = async |change: UsersChange| {
        let begun = std::time::Instant::now();
        while let Err(error) = client.change_users(change.clone()).await {
            assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let grant = Grant::ReadWrite;
    let of_rich = [
        Permission::Keys {
            grant,
            key: b"r/".to_vec(),
            range_end: b"r0".to_vec(),
        },
        Permission::Kinds {
            grant,
            prefix: String::new(),
        },
    ];
    let password = context.hashing.hash_password("p".to_owned()).await.unwrap();
    for name in ["root", "rich", "poor"] {
        let password = Some(password.clone());
        let (role, user) = (name.to_owned(), name.to_owned());
        change(UsersChange::AddUser {
            name: user.clone(),
            password,
        })
        .await;
        change(UsersChange::AddRole { name: role.clone() }).await;
        change(UsersChange::GrantRole { user, role }).await;
    }
    for permission in of_rich {
        let role = "rich".to_owned();
        change(UsersChange::GrantPermission { role, permission }).await;
    }
    client
        .lease_grant(LEASE, Duration::from_secs(1000))
        .await
        .unwrap();
    change(UsersChange::Enable).await;
    let mut tokens = vec![("nobody", None), ("wrong", Some("no.1".to_owned()))];
    for name in ["poor", "rich", "root"] {
        let token = context.log_in(name.to_owned(), "p".to_owned()).await;
        tokens.push((name, Some(token.unwrap())));
    }
    let put = bowline_replica::PutOp {
        key: b"r/leased".to_vec(),
        lease: LEASE,
        ..Default::default()
    };
    let attach = bowline_replica::Txn::of(bowline_replica::Op::Put(put));
    let channel = Channel::from_shared(format!("http://{}", server.address())).unwrap();
    let channel = channel.connect().await.unwrap();
    let last = [Method::AuthDisable];
    let methods = Method::ALL.iter().filter(|method| !last.contains(method));
    for method in methods.chain(&last) {
        for (name, token) in &tokens {
            // What takes the lease away lets it be there for the next.
            let _ = client.lease_grant(LEASE, Duration::from_secs(1000)).await;
            let attach = bowline_replica::Command::Txn(attach.clone());
            client.execute(attach).await.unwrap();
            let ended = call(&channel, *method, token.as_deref(), name).await;
            let is_refused = matches!(ended.code(), Code::PermissionDenied | Code::Unauthenticated)
                || ended.message().contains("permission denied")
                || ended.message().contains("user name is empty");
            let what = format!("{method:?} by {name}: {ended:?}");
            assert_eq!(!is_refused, lets_in(*method, name), "{what}");
            if *name == "wrong" && is_refused {
                assert!(ended.message().contains("invalid auth token"), "{what}");
            }
            if *name == "nobody" && is_refused {
                assert!(ended.message().contains("user name is empty"), "{what}");
            }
        }
    }
    drop(channel);
    server.shutdown().await;
}
