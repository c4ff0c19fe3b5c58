//! What Auth answers while authentication is disabled.

use bowline_proto::etcdserverpb as pb;
use pb::auth_client::AuthClient;
use tonic::{Code, Request, Response, Status};

use crate::beside::both;
use crate::support::{put, start};

/// Code and text of a refusal; the header's cluster of an answer.
fn refusal<T>(answer: Result<Response<T>, Status>) -> (Code, String) {
    match answer {
        Ok(_) => (Code::Ok, String::new()),
        Err(status) => (status.code(), status.message().to_owned()),
    }
}

#[tokio::test]
async fn without_users_and_roles_auth_answers_as_etcd_does() {
    for served in both().await {
        let mut auth = AuthClient::new(served.channel.clone());
        let of = |code, text: &str| (code, format!("etcdserver: {text}"));
        let name = || "ann".to_owned();
        let login = pb::AuthenticateRequest {
            name: name(),
            password: "p".to_owned(),
        };
        let disabled = of(Code::FailedPrecondition, "authentication is not enabled");
        assert_eq!(refusal(auth.authenticate(login).await), disabled);
        let done = auth.auth_disable(pb::AuthDisableRequest {}).await.unwrap();
        assert!(done.into_inner().header.unwrap().cluster_id != 0);
        if !served.is_etcd {
            // etcd has it since 3.5.
            let status = auth.auth_status(pb::AuthStatusRequest {}).await.unwrap();
            let status = status.into_inner();
            assert_eq!((status.enabled, status.auth_revision), (false, 1));
            assert!(status.header.unwrap().member_id != 0);
        }
        let users = auth.user_list(pb::AuthUserListRequest {}).await.unwrap();
        let users = users.into_inner();
        assert!(users.users.is_empty() && users.header.unwrap().raft_term != 0);
        let roles = auth.role_list(pb::AuthRoleListRequest {}).await.unwrap();
        let roles = roles.into_inner();
        assert!(roles.roles.is_empty() && roles.header.unwrap().raft_term != 0);

        let no_user = of(Code::FailedPrecondition, "user name not found");
        let get = pb::AuthUserGetRequest { name: name() };
        assert_eq!(refusal(auth.user_get(get).await), no_user);
        let delete = pb::AuthUserDeleteRequest { name: name() };
        assert_eq!(refusal(auth.user_delete(delete).await), no_user);
        let change = pb::AuthUserChangePasswordRequest {
            name: name(),
            password: "p".to_owned(),
            ..pb::AuthUserChangePasswordRequest::default()
        };
        assert_eq!(refusal(auth.user_change_password(change).await), no_user);
        let grant = pb::AuthUserGrantRoleRequest {
            user: name(),
            role: "r".to_owned(),
        };
        assert_eq!(refusal(auth.user_grant_role(grant).await), no_user);
        let revoke = pb::AuthUserRevokeRoleRequest {
            name: name(),
            role: "r".to_owned(),
        };
        assert_eq!(refusal(auth.user_revoke_role(revoke).await), no_user);

        let no_role = of(Code::FailedPrecondition, "role name not found");
        let role = || "r".to_owned();
        let get = pb::AuthRoleGetRequest { role: role() };
        assert_eq!(refusal(auth.role_get(get).await), no_role);
        let delete = pb::AuthRoleDeleteRequest { role: role() };
        assert_eq!(refusal(auth.role_delete(delete).await), no_role);
        let grant = pb::AuthRoleGrantPermissionRequest {
            name: role(),
            perm: Some(bowline_proto::authpb::Permission {
                key: "k".into(),
                ..Default::default()
            }),
        };
        assert_eq!(refusal(auth.role_grant_permission(grant).await), no_role);
        let revoke = pb::AuthRoleRevokePermissionRequest {
            role: role(),
            key: "k".into(),
            range_end: "".into(),
        };
        assert_eq!(refusal(auth.role_revoke_permission(revoke).await), no_role);

        let nameless = pb::AuthUserAddRequest::default();
        let empty = of(Code::InvalidArgument, "user name is empty");
        assert_eq!(refusal(auth.user_add(nameless).await), empty);
        if !served.is_etcd {
            // etcd refuses it since 3.5.
            let nameless = pb::AuthRoleAddRequest::default();
            let empty = of(Code::InvalidArgument, "role name is empty");
            assert_eq!(refusal(auth.role_add(nameless).await), empty);
        }
    }
}

/// A client that was given a name and a password for a cluster with authentication goes on with its
/// token here.
#[tokio::test]
async fn a_token_is_not_looked_at() {
    let running = start(&[]).await;
    let mut request = Request::new(put("k", "v"));
    let token = "whatever.1".parse().unwrap();
    request.metadata_mut().insert("token", token);
    running.kv().await.put(request).await.unwrap();
}
