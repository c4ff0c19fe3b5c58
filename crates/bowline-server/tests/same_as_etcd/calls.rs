//! The calls besides those about keys, leases and watches: members, maintenance, users and roles,
//! locks, elections, and bytes that no client makes of a request.

use bowline_proto::etcdserverpb as pb;
use bowline_proto::{v3electionpb, v3lockpb};
use bytes::{Buf, BufMut, Bytes};
use pb::auth_client::AuthClient;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Status};
use v3electionpb::election_client::ElectionClient;
use v3lockpb::lock_client::LockClient;

use crate::call::{Answer, Metadata, answer, refused, tidy_header, tidy_members, with};
use crate::rare;
use crate::servers::Clients;
use crate::step::Names;

/// Stands for the server's own member.
pub(crate) const OWN_MEMBER: u64 = u64::MAX;
/// Stands for the address at which the server's own member speaks to others.
pub(crate) const OWN_URL: &str = "own";

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Call {
    MemberAdd(pb::MemberAddRequest),
    MemberRemove(pb::MemberRemoveRequest),
    MemberUpdate(pb::MemberUpdateRequest),
    MemberPromote(pb::MemberPromoteRequest),
    MoveLeader(pb::MoveLeaderRequest),
    Hash,
    Defragment,
    Downgrade(pb::DowngradeRequest),
    AuthDisable,
    AuthStatus,
    Authenticate(pb::AuthenticateRequest),
    UserAdd(pb::AuthUserAddRequest),
    UserGet(pb::AuthUserGetRequest),
    UserList,
    UserDelete(pb::AuthUserDeleteRequest),
    UserChangePassword(pb::AuthUserChangePasswordRequest),
    UserGrantRole(pb::AuthUserGrantRoleRequest),
    UserRevokeRole(pb::AuthUserRevokeRoleRequest),
    RoleAdd(pb::AuthRoleAddRequest),
    RoleGet(pb::AuthRoleGetRequest),
    RoleList,
    RoleDelete(pb::AuthRoleDeleteRequest),
    RoleGrant(pb::AuthRoleGrantPermissionRequest),
    RoleRevoke(pb::AuthRoleRevokePermissionRequest),
    Lock(v3lockpb::LockRequest),
    Unlock(v3lockpb::UnlockRequest),
    Campaign(v3electionpb::CampaignRequest),
    Proclaim(Who, &'static str),
    Leader(v3electionpb::LeaderRequest),
    Resign(Who),
    /// To a path, whatever is behind it.
    Bytes(&'static str, Bytes),
}

/// Whom a leader says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The one that won last.
    Last,
    /// The one that won last, at another revision.
    Other(i64),
    /// It does not say.
    Nobody,
    /// Somebody without a key.
    Nameless,
}

impl Who {
    fn key(self, names: &Names) -> Option<v3electionpb::LeaderKey> {
        // Without a lease etcd grants one, also for what it then refuses.
        let nameless = v3electionpb::LeaderKey {
            lease: rare::FIRST,
            ..v3electionpb::LeaderKey::default()
        };
        let last = || names.leader.clone().unwrap_or_else(|| nameless.clone());
        match self {
            Who::Last => Some(last()),
            Who::Other(beside) => Some(v3electionpb::LeaderKey {
                rev: last().rev + beside,
                ..last()
            }),
            Who::Nobody => None,
            Who::Nameless => Some(nameless),
        }
    }
}

impl Call {
    /// With what stands for something of this server put in.
    pub(crate) fn resolve(&mut self, names: &Names) {
        let member = match self {
            Call::MemberRemove(request) => &mut request.id,
            Call::MemberUpdate(request) => &mut request.id,
            Call::MemberPromote(request) => &mut request.id,
            Call::MoveLeader(request) => &mut request.target_id,
            Call::MemberAdd(request) => {
                for url in &mut request.peer_ur_ls {
                    if url == OWN_URL {
                        url.clone_from(&names.peer_url);
                    }
                }
                return;
            }
            _ => return,
        };
        if *member == OWN_MEMBER {
            *member = names.member_id;
        }
    }

    /// The name and the lease under which it queues up.
    pub(crate) fn queues_up(&self) -> Option<(Vec<u8>, i64)> {
        match self {
            Call::Lock(request) => Some((request.name.to_vec(), request.lease)),
            Call::Campaign(request) => Some((request.name.to_vec(), request.lease)),
            _ => None,
        }
    }
}

/// Makes a call.
pub(crate) async fn call(
    clients: &mut Clients,
    call: Call,
    metadata: Metadata,
    names: &mut Names,
) -> Answer {
    let mut auth = AuthClient::new(clients.channel.clone());
    let mut lock = LockClient::new(clients.channel.clone());
    let mut election = ElectionClient::new(clients.channel.clone());
    let (cluster, maintenance) = (&mut clients.cluster, &mut clients.maintenance);
    macro_rules! ask {
        ($client:ident . $method:ident, $request:expr) => {
            answer!($client.$method(with(metadata, $request)), |_reply| {})
        };
    }
    match call {
        Call::MemberAdd(request) => {
            answer!(cluster.member_add(with(metadata, request)), |reply| {
                tidy_members(reply.member.iter_mut().chain(&mut reply.members));
                // In the order of ids, which are random.
                reply.members.sort_by_key(|member| member.is_learner);
            })
        }
        Call::MemberRemove(request) => ask!(cluster.member_remove, request),
        Call::MemberUpdate(request) => ask!(cluster.member_update, request),
        Call::MemberPromote(request) => ask!(cluster.member_promote, request),
        Call::MoveLeader(request) => ask!(maintenance.move_leader, request),
        Call::Hash => answer!(
            maintenance.hash(with(metadata, pb::HashRequest {})),
            |reply| reply.hash = reply.hash.min(1)
        ),
        Call::Defragment => ask!(maintenance.defragment, pb::DefragmentRequest {}),
        Call::Downgrade(request) => ask!(maintenance.downgrade, request),
        Call::AuthDisable => ask!(auth.auth_disable, pb::AuthDisableRequest {}),
        Call::AuthStatus => ask!(auth.auth_status, pb::AuthStatusRequest {}),
        Call::Authenticate(request) => ask!(auth.authenticate, request),
        Call::UserAdd(request) => ask!(auth.user_add, request),
        Call::UserGet(request) => ask!(auth.user_get, request),
        Call::UserList => ask!(auth.user_list, pb::AuthUserListRequest {}),
        Call::UserDelete(request) => ask!(auth.user_delete, request),
        Call::UserChangePassword(request) => ask!(auth.user_change_password, request),
        Call::UserGrantRole(request) => ask!(auth.user_grant_role, request),
        Call::UserRevokeRole(request) => ask!(auth.user_revoke_role, request),
        Call::RoleAdd(request) => ask!(auth.role_add, request),
        Call::RoleGet(request) => ask!(auth.role_get, request),
        Call::RoleList => ask!(auth.role_list, pb::AuthRoleListRequest {}),
        Call::RoleDelete(request) => ask!(auth.role_delete, request),
        Call::RoleGrant(request) => ask!(auth.role_grant_permission, request),
        Call::RoleRevoke(request) => ask!(auth.role_revoke_permission, request),
        Call::Lock(request) => ask!(lock.lock, request),
        Call::Unlock(request) => ask!(lock.unlock, request),
        Call::Campaign(request) => {
            let asked = election.campaign(with(metadata, request));
            answer!(asked, |reply| {
                names.leader.clone_from(&reply.leader);
            })
        }
        Call::Proclaim(who, value) => {
            let request = v3electionpb::ProclaimRequest {
                leader: who.key(names),
                value: value.into(),
            };
            ask!(election.proclaim, request)
        }
        Call::Leader(request) => ask!(election.leader, request),
        Call::Resign(who) => {
            let leader = who.key(names);
            let request = v3electionpb::ResignRequest { leader };
            ask!(election.resign, request)
        }
        Call::Bytes(path, bytes) => send_bytes(clients, path, bytes).await,
    }
}

/// Sends bytes as the message of a call that is answered once. What is answered is not looked at.
async fn send_bytes(clients: &Clients, path: &'static str, bytes: Bytes) -> Answer {
    let mut client = tonic::client::Grpc::new(clients.channel.clone());
    if client.ready().await.is_err() {
        return refused(&Status::unavailable("no connection"));
    }
    let path = http::uri::PathAndQuery::from_static(path);
    let answered = client.unary(tonic::Request::new(bytes), path, AsItIs).await;
    match answered {
        Ok(_) => Answer {
            text: "answered".to_owned(),
            revision: None,
            is_refusal: false,
        },
        // What exactly is wrong with bytes, each library says in its own words.
        Err(status) if status.code() == Code::Internal => Answer {
            text: "Internal".to_owned(),
            ..refused(&status)
        },
        Err(status) => refused(&status),
    }
}

/// Messages that are bytes.
#[derive(Debug)]
struct AsItIs;

impl Codec for AsItIs {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = AsItIs;
    type Decoder = AsItIs;

    fn encoder(&mut self) -> AsItIs {
        AsItIs
    }

    fn decoder(&mut self) -> AsItIs {
        AsItIs
    }
}

impl Encoder for AsItIs {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for AsItIs {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = buffer.remaining();
        Ok(Some(buffer.copy_to_bytes(length)))
    }
}
