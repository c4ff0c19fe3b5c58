//! Users and roles, as a client of etcd's sees them; what is asked of Bowline is asked of etcd, too, where it is installed.

use std::time::Duration;

use bowline_proto::authpb::Permission;
use bowline_proto::etcdserverpb as pb;
use pb::auth_client::AuthClient;
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::maintenance_client::MaintenanceClient;
use pb::watch_client::WatchClient;
use tokio_stream::StreamExt;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use crate::beside::{Served, both};
use crate::support::{Running, put, range, start};

/// Bowline, and etcd 3.7 if it is there: earlier ones look at fewer rights.
async fn all() -> Vec<Served> {
    let mut all = Vec::new();
    for served in both().await {
        let mut maintenance = MaintenanceClient::new(served.channel.clone());
        let status = maintenance.status(pb::StatusRequest {}).await.unwrap();
        match status.into_inner().version.starts_with("3.7") {
            true => all.push(served),
            false => bowline_testing::skip_part(
                "the etcd here is not 3.7: `checks/etcd/build` builds it",
            ),
        }
    }
    all
}

/// The caller of requests: adds its token.
#[derive(Clone)]
pub(crate) struct As(pub(crate) Option<String>);

impl As {
    pub(crate) fn of<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.0 {
            let token = token.parse().unwrap();
            request.metadata_mut().insert("token", token);
        }
        request
    }
}

pub(crate) fn refusal<T>(answer: Result<Response<T>, Status>) -> (Code, String) {
    match answer {
        Ok(_) => (Code::Ok, String::new()),
        Err(status) => (status.code(), status.message().to_owned()),
    }
}

pub(crate) fn denied() -> (Code, String) {
    let text = "etcdserver: permission denied".to_owned();
    (Code::PermissionDenied, text)
}

pub(crate) fn ok() -> (Code, String) {
    (Code::Ok, String::new())
}

pub(crate) async fn add_user(auth: &mut AuthClient<Channel>, by: &As, name: &str, password: &str) {
    let user = pb::AuthUserAddRequest {
        name: name.to_owned(),
        password: password.to_owned(),
        ..Default::default()
    };
    auth.user_add(by.of(user)).await.unwrap();
}

pub(crate) async fn grant(auth: &mut AuthClient<Channel>, by: &As, user: &str, role: &str) {
    let grant = pb::AuthUserGrantRoleRequest {
        user: user.to_owned(),
        role: role.to_owned(),
    };
    auth.user_grant_role(by.of(grant)).await.unwrap();
}

/// Adds a role that may read and write the keys from one on to another.
async fn add_role(auth: &mut AuthClient<Channel>, by: &As, name: &str, keys: (&str, &str)) {
    let role = pb::AuthRoleAddRequest {
        name: name.to_owned(),
    };
    auth.role_add(by.of(role)).await.unwrap();
    permit(auth, by, name, 2, keys).await.unwrap();
}

pub(crate) async fn permit(
    auth: &mut AuthClient<Channel>,
    by: &As,
    role: &str,
    perm_type: i32,
    (key, range_end): (&str, &str),
) -> Result<Response<pb::AuthRoleGrantPermissionResponse>, Status> {
    let permission = Permission {
        perm_type,
        key: key.to_owned().into(),
        range_end: range_end.to_owned().into(),
    };
    let grant = pb::AuthRoleGrantPermissionRequest {
        name: role.to_owned(),
        perm: Some(permission),
    };
    auth.role_grant_permission(by.of(grant)).await
}

pub(crate) async fn log_in(
    auth: &mut AuthClient<Channel>,
    name: &str,
    password: &str,
) -> Result<As, (Code, String)> {
    let login = pb::AuthenticateRequest {
        name: name.to_owned(),
        password: password.to_owned(),
    };
    match auth.authenticate(login).await {
        Ok(reply) => Ok(As(Some(reply.into_inner().token))),
        Err(status) => Err((status.code(), status.message().to_owned())),
    }
}

/// Root, and a user `ann` with everything under `a`; returns their callers.
pub(crate) async fn enable(channel: &Channel) -> (AuthClient<Channel>, As, As) {
    let mut auth = AuthClient::new(channel.clone());
    let nobody = As(None);
    add_user(&mut auth, &nobody, "root", "pw").await;
    grant(&mut auth, &nobody, "root", "root").await;
    add_user(&mut auth, &nobody, "ann", "secret").await;
    add_role(&mut auth, &nobody, "a", ("a", "b")).await;
    grant(&mut auth, &nobody, "ann", "a").await;
    auth.auth_enable(pb::AuthEnableRequest {}).await.unwrap();
    let root = log_in(&mut auth, "root", "pw").await.unwrap();
    let ann = log_in(&mut auth, "ann", "secret").await.unwrap();
    (auth, root, ann)
}

fn delete(key: &str) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest {
        key: key.to_owned().into(),
        ..Default::default()
    }
}

pub(crate) fn of_put(request: pb::PutRequest) -> pb::RequestOp {
    pb::RequestOp {
        request: Some(pb::request_op::Request::RequestPut(request)),
    }
}

pub(crate) fn nested(inner: pb::TxnRequest) -> pb::TxnRequest {
    pb::TxnRequest {
        success: vec![pb::RequestOp {
            request: Some(pb::request_op::Request::RequestTxn(inner)),
        }],
        ..Default::default()
    }
}

#[tokio::test]
async fn a_user_does_what_its_roles_allow_and_nothing_else() {
    for served in all().await {
        let (_auth, root, ann) = enable(&served.channel).await;
        let mut kv = KvClient::new(served.channel.clone());
        assert_eq!(refusal(kv.put(ann.of(put("a1", "x"))).await), ok());
        assert_eq!(refusal(kv.put(root.of(put("b1", "x"))).await), ok());
        assert_eq!(refusal(kv.put(ann.of(put("b1", "y"))).await), denied());
        let nobody = refusal(kv.put(put("a1", "x")).await);
        let no_user = (
            Code::InvalidArgument,
            "etcdserver: user name is empty".to_owned(),
        );
        assert_eq!(nobody, no_user);
        let wrong = As(Some("nonsense.1".to_owned()));
        let invalid = (
            Code::Unauthenticated,
            "etcdserver: invalid auth token".to_owned(),
        );
        assert_eq!(refusal(kv.range(wrong.of(range("a1"))).await), invalid);

        // Ranges beyond the right, to the end too.
        for (key, end, expected) in [
            ("a", "b", ok()),
            ("a", "c", denied()),
            ("a", "\0", denied()),
            ("\0", "\0", denied()),
            ("a", "ab", ok()),
        ] {
            let range = pb::RangeRequest {
                range_end: end.to_owned().into(),
                ..range(key)
            };
            assert_eq!(
                refusal(kv.range(ann.of(range)).await),
                expected,
                "{key} {end}"
            );
        }
        // Every way to read or write `b1` without the right to it.
        let compare = pb::Compare {
            key: "b1".into(),
            target: pb::compare::CompareTarget::Version.into(),
            target_union: Some(pb::compare::TargetUnion::Version(1)),
            ..Default::default()
        };
        let compares = pb::TxnRequest {
            compare: vec![compare],
            ..Default::default()
        };
        let fails = pb::TxnRequest {
            failure: vec![of_put(put("b1", "y"))],
            ..Default::default()
        };
        for txn in [
            compares.clone(),
            fails.clone(),
            nested(compares),
            nested(fails),
        ] {
            let asked = format!("{txn:?}");
            assert_eq!(refusal(kv.txn(ann.of(txn)).await), denied(), "{asked}");
        }
        assert_eq!(
            refusal(kv.delete_range(ann.of(delete("b1"))).await),
            denied()
        );
        let compact = pb::CompactionRequest {
            revision: 2,
            ..Default::default()
        };
        assert_eq!(refusal(kv.compact(ann.of(compact)).await), denied());
        let kept = kv.range(root.of(range("b1"))).await.unwrap().into_inner();
        assert_eq!(kept.kvs[0].value, "x");
    }
}

#[tokio::test]
async fn to_see_what_was_there_takes_the_right_to_read_it() {
    for served in all().await {
        let (mut auth, root, _) = enable(&served.channel).await;
        let role = pb::AuthRoleAddRequest {
            name: "w".to_owned(),
        };
        auth.role_add(root.of(role)).await.unwrap();
        permit(&mut auth, &root, "w", 1, ("c", "d")).await.unwrap();
        add_user(&mut auth, &root, "bob", "p").await;
        grant(&mut auth, &root, "bob", "w").await;
        let bob = log_in(&mut auth, "bob", "p").await.unwrap();
        let mut kv = KvClient::new(served.channel.clone());
        assert_eq!(refusal(kv.put(bob.of(put("c1", "v"))).await), ok());
        let seen = pb::PutRequest {
            prev_kv: true,
            ..put("c1", "v")
        };
        assert_eq!(refusal(kv.put(bob.of(seen)).await), denied());
        let seen = pb::DeleteRangeRequest {
            prev_kv: true,
            ..delete("c1")
        };
        assert_eq!(refusal(kv.delete_range(bob.of(seen)).await), denied());
        assert_eq!(refusal(kv.range(bob.of(range("c1"))).await), denied());
        assert_eq!(refusal(kv.delete_range(bob.of(delete("c1"))).await), ok());
        // The newest grant on the same range counts, and a revocation takes it.
        permit(&mut auth, &root, "w", 0, ("c", "d")).await.unwrap();
        assert_eq!(refusal(kv.put(bob.of(put("c1", "v"))).await), denied());
        assert_eq!(refusal(kv.range(bob.of(range("c1"))).await), ok());
        let revoke = pb::AuthRoleRevokePermissionRequest {
            role: "w".to_owned(),
            key: "c".into(),
            range_end: "d".into(),
        };
        auth.role_revoke_permission(root.of(revoke)).await.unwrap();
        assert_eq!(refusal(kv.range(bob.of(range("c1"))).await), denied());
    }
}

#[tokio::test]
async fn a_lease_with_the_keys_of_others_is_out_of_reach() {
    for served in all().await {
        let (_auth, root, ann) = enable(&served.channel).await;
        let mut kv = KvClient::new(served.channel.clone());
        let mut lease = LeaseClient::new(served.channel.clone());
        let asked = pb::LeaseGrantRequest { ttl: 600, id: 7 };
        lease.lease_grant(root.of(asked)).await.unwrap();
        let put_with = |key: &str| pb::PutRequest {
            lease: 7,
            ..put(key, "v")
        };
        assert_eq!(refusal(kv.put(ann.of(put_with("a1"))).await), ok());
        assert_eq!(refusal(kv.put(root.of(put_with("z1"))).await), ok());
        assert_eq!(refusal(kv.put(ann.of(put_with("a2"))).await), denied());
        let revoke = pb::LeaseRevokeRequest { id: 7 };
        assert_eq!(refusal(lease.lease_revoke(ann.of(revoke)).await), denied());
        let with_keys = |keys| pb::LeaseTimeToLiveRequest { id: 7, keys };
        let asked = lease.lease_time_to_live(ann.of(with_keys(true))).await;
        assert_eq!(refusal(asked), denied());
        let asked = lease.lease_time_to_live(ann.of(with_keys(false))).await;
        assert_eq!(refusal(asked), ok());
        let all = lease.lease_leases(ann.of(pb::LeaseLeasesRequest {})).await;
        assert_eq!(refusal(all), denied());
        assert_eq!(refusal(lease.lease_revoke(root.of(revoke)).await), ok());
    }
}

#[tokio::test]
async fn the_last_root_stays_and_names_are_checked() {
    for served in all().await {
        let mut auth = AuthClient::new(served.channel.clone());
        let refused = |code, text: &str| (code, format!("etcdserver: {text}"));
        let no_root = refused(Code::FailedPrecondition, "root user does not exist");
        let enabled = auth.auth_enable(pb::AuthEnableRequest {}).await;
        assert_eq!(refusal(enabled), no_root);
        let nobody = As(None);
        add_user(&mut auth, &nobody, "root", "pw").await;
        let no_role = refused(
            Code::FailedPrecondition,
            "root user does not have root role",
        );
        let enabled = auth.auth_enable(pb::AuthEnableRequest {}).await;
        assert_eq!(refusal(enabled), no_role);
        grant(&mut auth, &nobody, "root", "root").await;
        auth.auth_enable(pb::AuthEnableRequest {}).await.unwrap();
        let root = log_in(&mut auth, "root", "pw").await.unwrap();

        let managed = refused(Code::InvalidArgument, "invalid auth management");
        let delete = pb::AuthUserDeleteRequest {
            name: "root".to_owned(),
        };
        assert_eq!(refusal(auth.user_delete(root.of(delete)).await), managed);
        let revoke = pb::AuthUserRevokeRoleRequest {
            name: "root".to_owned(),
            role: "root".to_owned(),
        };
        assert_eq!(
            refusal(auth.user_revoke_role(root.of(revoke)).await),
            managed
        );
        let delete = pb::AuthRoleDeleteRequest {
            role: "root".to_owned(),
        };
        assert_eq!(refusal(auth.role_delete(root.of(delete)).await), managed);

        let twice = pb::AuthUserAddRequest {
            name: "root".to_owned(),
            password: "x".to_owned(),
            ..Default::default()
        };
        let exists = refused(Code::FailedPrecondition, "user name already exists");
        assert_eq!(refusal(auth.user_add(root.of(twice)).await), exists);
        let revoke = pb::AuthUserRevokeRoleRequest {
            name: "root".to_owned(),
            role: "other".to_owned(),
        };
        let not_granted = refused(Code::FailedPrecondition, "role is not granted to the user");
        assert_eq!(
            refusal(auth.user_revoke_role(root.of(revoke)).await),
            not_granted
        );
        let unknown = pb::AuthUserGrantRoleRequest {
            user: "root".to_owned(),
            role: "other".to_owned(),
        };
        let no_role = refused(Code::FailedPrecondition, "role name not found");
        assert_eq!(
            refusal(auth.user_grant_role(root.of(unknown)).await),
            no_role
        );
        let failed = refused(
            Code::InvalidArgument,
            "authentication failed, invalid user ID or password",
        );
        let wrong = log_in(&mut auth, "root", "wrong").await.err();
        assert_eq!(wrong, Some(failed.clone()));
        assert_eq!(log_in(&mut auth, "none", "pw").await.err(), Some(failed));
    }
}

#[tokio::test]
async fn the_auth_revision_counts_what_changes() {
    for served in all().await {
        let (mut auth, root, _) = enable(&served.channel).await;
        let revision = async |auth: &mut AuthClient<Channel>| {
            let status = auth.auth_status(root.of(pb::AuthStatusRequest {})).await;
            status.unwrap().into_inner().auth_revision
        };
        // Two users, a role, its permission, and two roles given.
        assert_eq!(revision(&mut auth).await, 7);
        grant(&mut auth, &root, "ann", "a").await;
        auth.auth_enable(root.of(pb::AuthEnableRequest {}))
            .await
            .unwrap();
        assert_eq!(revision(&mut auth).await, 7, "nothing was changed");
        add_user(&mut auth, &root, "eve", "p").await;
        assert_eq!(revision(&mut auth).await, 8);
    }
}

#[tokio::test]
async fn who_is_deleted_or_gets_another_password_is_logged_out() {
    let running = start(&[]).await;
    let channel = running.channel().await;
    let (mut auth, root, ann) = enable(&channel).await;
    let mut kv = running.kv().await;
    let invalid = (
        Code::Unauthenticated,
        "etcdserver: invalid auth token".to_owned(),
    );
    assert_eq!(refusal(kv.put(ann.of(put("a1", "x"))).await), ok());
    let change = pb::AuthUserChangePasswordRequest {
        name: "ann".to_owned(),
        password: "other".to_owned(),
        ..Default::default()
    };
    auth.user_change_password(root.of(change)).await.unwrap();
    assert_eq!(refusal(kv.put(ann.of(put("a1", "x"))).await), invalid);
    assert!(log_in(&mut auth, "ann", "secret").await.is_err());
    let ann = log_in(&mut auth, "ann", "other").await.unwrap();
    assert_eq!(refusal(kv.put(ann.of(put("a1", "x"))).await), ok());
    // A user of the same name who comes later is another.
    let delete = pb::AuthUserDeleteRequest {
        name: "ann".to_owned(),
    };
    auth.user_delete(root.of(delete)).await.unwrap();
    add_user(&mut auth, &root, "ann", "other").await;
    grant(&mut auth, &root, "ann", "a").await;
    assert_eq!(refusal(kv.put(ann.of(put("a1", "x"))).await), invalid);
    // Other users are not logged out by that.
    assert_eq!(refusal(kv.put(root.of(put("a1", "x"))).await), ok());
    // Without authentication a token is not looked at.
    auth.auth_disable(root.of(pb::AuthDisableRequest {}))
        .await
        .unwrap();
    assert_eq!(refusal(kv.put(ann.of(put("z", "x"))).await), ok());
}

/// Reads messages until one that is none of progress.
pub(crate) async fn next(
    events: &mut tonic::Streaming<pb::WatchResponse>,
) -> Result<Option<pb::WatchResponse>, Status> {
    let next = tokio::time::timeout(Duration::from_secs(20), events.message());
    next.await.expect("a message in time")
}

#[tokio::test]
async fn a_watch_ends_when_its_user_may_not_read_the_range_any_more() {
    let running = start(&[]).await;
    let channel = running.channel().await;
    let (mut auth, root, ann) = enable(&channel).await;
    let watch = async |by: &As, key: &str| {
        let mut client = WatchClient::new(channel.clone());
        let create = pb::WatchCreateRequest {
            key: key.to_owned().into(),
            ..Default::default()
        };
        let request = pb::WatchRequest {
            request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)),
        };
        let requests = tokio_stream::once(request).chain(tokio_stream::pending());
        client.watch(by.of(requests)).await.unwrap().into_inner()
    };
    let mut refused = watch(&ann, "b1").await;
    let first = next(&mut refused).await.unwrap().unwrap();
    assert!(first.created && first.canceled);
    let reason = "rpc error: code = PermissionDenied desc = etcdserver: permission denied";
    assert_eq!(first.cancel_reason, reason);
    let mut nobodys = watch(&As(None), "a1").await;
    let first = next(&mut nobodys).await.unwrap().unwrap();
    let reason = "rpc error: code = InvalidArgument desc = etcdserver: user name is empty";
    assert_eq!(first.cancel_reason, reason);

    let (mut anns, mut roots) = (watch(&ann, "a1").await, watch(&root, "a1").await);
    for events in [&mut anns, &mut roots] {
        assert!(next(events).await.unwrap().unwrap().created);
    }
    let mut kv = running.kv().await;
    kv.put(ann.of(put("a1", "seen"))).await.unwrap();
    for events in [&mut anns, &mut roots] {
        assert_eq!(next(events).await.unwrap().unwrap().events.len(), 1);
    }
    let revoke = pb::AuthUserRevokeRoleRequest {
        name: "ann".to_owned(),
        role: "a".to_owned(),
    };
    auth.user_revoke_role(root.of(revoke)).await.unwrap();
    let ended = next(&mut anns).await.unwrap_err();
    assert_eq!(ended.code(), Code::PermissionDenied);
    kv.put(root.of(put("a1", "unseen"))).await.unwrap();
    assert_eq!(next(&mut roots).await.unwrap().unwrap().events.len(), 1);
}

/// The empty key, from which etcd's clients watch everything, was not within the right to all keys, as no key is empty.
#[tokio::test]
async fn who_may_read_everything_may_watch_from_the_empty_key() {
    for served in all().await {
        let (mut auth, root, ann) = enable(&served.channel).await;
        let everything = pb::WatchCreateRequest {
            range_end: "\0".into(),
            ..Default::default()
        };
        let first = async || {
            let create = pb::watch_request::RequestUnion::CreateRequest(everything.clone());
            let request = pb::WatchRequest {
                request_union: Some(create),
            };
            let requests = tokio_stream::once(request).chain(tokio_stream::pending());
            let mut client = WatchClient::new(served.channel.clone());
            let mut events = client.watch(ann.of(requests)).await.unwrap().into_inner();
            next(&mut events).await.unwrap().unwrap()
        };
        assert!(first().await.canceled, "it may read only a part");
        let all_keys = ("\0", "\0");
        permit(&mut auth, &root, "a", 0, all_keys).await.unwrap();
        let created = first().await;
        assert!(created.created && !created.canceled, "{created:?}");
    }
}

#[tokio::test]
async fn a_watch_of_nobody_ends_when_authentication_is_enabled() {
    let running = start(&[]).await;
    let channel = running.channel().await;
    let mut client = WatchClient::new(channel.clone());
    let create = pb::WatchCreateRequest {
        key: "a1".into(),
        ..Default::default()
    };
    let request = pb::WatchRequest {
        request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)),
    };
    let requests = tokio_stream::once(request).chain(tokio_stream::pending());
    let mut events = client.watch(requests).await.unwrap().into_inner();
    assert!(next(&mut events).await.unwrap().unwrap().created);
    enable(&channel).await;
    assert_eq!(
        next(&mut events).await.unwrap_err().code(),
        Code::PermissionDenied
    );
}

#[tokio::test]
async fn a_token_ends_after_its_time_unless_it_is_used() {
    let running = start(&[("auth-token-ttl", "1500ms")]).await;
    let (_auth, root, ann) = enable(&running.channel().await).await;
    let mut kv = running.kv().await;
    // Used in time, it lives on.
    for _ in 0..12 {
        assert_eq!(refusal(kv.put(ann.of(put("a1", "x"))).await), ok());
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let ended = refusal(kv.put(root.of(put("a1", "x"))).await);
    assert_eq!(ended.0, Code::Unauthenticated);
}

#[tokio::test]
async fn users_and_tokens_outlive_a_restart() {
    let running = start(&[]).await;
    let (_auth, _root, ann) = enable(&running.channel().await).await;
    let running = running.restarted().await;
    let mut kv = running.kv().await;
    assert_eq!(refusal(kv.put(ann.of(put("a1", "x"))).await), ok());
    assert_eq!(refusal(kv.put(ann.of(put("b1", "x"))).await), denied());
    assert_eq!(
        refusal(kv.put(put("b1", "x")).await).0,
        Code::InvalidArgument
    );
}

/// The gateway takes the token from `Authorization`, and refuses in the codes of HTTP.
#[tokio::test]
async fn the_gateway_asks_for_the_token_too() {
    let running: Running = start(&[]).await;
    let (_auth, _root, ann) = enable(&running.channel().await).await;
    let token = ann.0.clone().unwrap();
    let ask = async |path: &str, token: Option<&str>, body: &str| {
        crate::gateway::post_as(&running, path, token, body).await
    };
    let key = r#"{"key":"YTE="}"#;
    let (status, text) = ask("/v3/kv/range", None, key).await;
    assert_eq!(status, 400, "{text}");
    assert!(text.contains("user name is empty"), "{text}");
    let (status, text) = ask("/v3/kv/range", Some("nonsense"), key).await;
    assert_eq!(status, 401, "{text}");
    let (status, text) = ask("/v3/kv/range", Some(&token), key).await;
    assert_eq!(status, 200, "{text}");
    let (status, text) = ask("/v3/kv/range", Some(&token), r#"{"key":"YjE="}"#).await;
    assert_eq!(status, 403, "{text}");
    let (status, text) = ask("/v3/auth/user/list", Some(&token), "{}").await;
    assert_eq!(status, 403, "{text}");
    let login = r#"{"name":"ann","password":"secret"}"#;
    let (status, text) = ask("/v3/auth/authenticate", None, login).await;
    assert!(status == 200 && text.contains("token"), "{text}");
}

/// Signed tokens: any member takes them without having seen the login, and one without the private key gives none.
#[tokio::test]
async fn signed_tokens_need_no_state_and_end_with_the_password() {
    use std::os::unix::fs::PermissionsExt;
    let keys = tempfile::tempdir().unwrap();
    let (private, public) = bowline_tls::new_pair(bowline_tls::SigningMethod::Es256).unwrap();
    let path = |name: &str| keys.path().join(name).display().to_string();
    std::fs::write(path("key"), private).unwrap();
    std::fs::set_permissions(path("key"), std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(path("pub"), public).unwrap();
    let signs = format!("jwt,priv-key={},sign-method=ES256,ttl=5m", path("key"));
    let verifies = format!("jwt,pub-key={},sign-method=ES256", path("pub"));
    let running = start(&[("auth-token", &signs)]).await;
    let (mut auth, root, ann) = enable(&running.channel().await).await;
    let token = ann.0.clone().unwrap();
    assert_eq!(token.split('.').count(), 3);
    let mut kv = running.kv().await;
    assert_eq!(refusal(kv.put(ann.of(put("a1", "x"))).await), ok());
    assert_eq!(refusal(kv.put(ann.of(put("b1", "x"))).await), denied());
    // A permission that comes later counts; the token stays.
    add_role(&mut auth, &root, "b", ("b", "c")).await;
    grant(&mut auth, &root, "ann", "b").await;
    assert_eq!(refusal(kv.put(ann.of(put("b1", "x"))).await), ok());
    let forged = As(Some(format!("{token}AA")));
    assert_eq!(
        refusal(kv.put(forged.of(put("a1", "x"))).await).0,
        Code::Unauthenticated
    );
    let (status, text) = {
        let key = r#"{"key":"YTE="}"#;
        crate::gateway::post_as(&running, "/v3/kv/range", Some(&token), key).await
    };
    assert_eq!(status, 200, "{text}");
    let change = pb::AuthUserChangePasswordRequest {
        name: "ann".to_owned(),
        password: "other".to_owned(),
        ..Default::default()
    };
    auth.user_change_password(root.of(change)).await.unwrap();
    assert_eq!(
        refusal(kv.put(ann.of(put("a1", "x"))).await).0,
        Code::Unauthenticated
    );
    // The same data behind a server that verifies only.
    let running = running.restarted_with(&[("auth-token", &verifies)]).await;
    let mut kv = running.kv().await;
    assert_eq!(refusal(kv.put(root.of(put("a1", "x"))).await), ok());
    let mut auth = AuthClient::new(running.channel().await);
    let refused = log_in(&mut auth, "ann", "other").await.err().unwrap();
    assert!(refused.1.contains("verify-only key"), "{refused:?}");
}

/// A change of users counted as 512 bytes, whatever it named. One of 1.9 MiB was taken, thousands could wait at once, and some
/// of them made one proposal too large, so that what others wanted was refused with them.
#[tokio::test]
async fn a_permission_is_no_larger_than_a_request_may_be() {
    for served in all().await {
        let (mut auth, root, _) = enable(&served.channel).await;
        let long = "k".repeat(1_900_000);
        let too_large = (
            Code::InvalidArgument,
            "etcdserver: request is too large".to_owned(),
        );
        for keys in [(&*long, ""), ("k", &*long)] {
            let granted = permit(&mut auth, &root, "a", 2, keys).await;
            assert_eq!(refusal(granted), too_large);
        }
        permit(&mut auth, &root, "a", 2, ("k", "l")).await.unwrap();
    }
}

/// A request that shows a token as libraries for HTTP do.
fn bearing<T>(name: &'static str, shown: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let shown = shown.parse().unwrap();
    request.metadata_mut().insert(name, shown);
    request
}

/// With `Bearer ` before it, a token was taken for another one, and refused.
#[tokio::test]
async fn a_token_may_be_shown_as_a_bearer() {
    for served in all().await {
        let (_auth, _root, ann) = enable(&served.channel).await;
        let token = ann.0.unwrap();
        let mut kv = KvClient::new(served.channel.clone());
        let mut lease = LeaseClient::new(served.channel.clone());
        for (name, shown, is_valid) in [
            ("token", format!("Bearer {token}"), true),
            ("authorization", format!("Bearer {token}"), true),
            ("token", format!("bearer {token}"), false),
            ("authorization", format!("Bearer Bearer {token}"), false),
        ] {
            let expected = match is_valid {
                true => ok(),
                false => (
                    Code::Unauthenticated,
                    "etcdserver: invalid auth token".to_owned(),
                ),
            };
            // The second time the head is known.
            for _ in 0..2 {
                let read = kv.range(bearing(name, &shown, range("a1"))).await;
                assert_eq!(refusal(read), expected, "{name}: {shown}");
                let grant = pb::LeaseGrantRequest { ttl: 600, id: 0 };
                let granted = lease.lease_grant(bearing(name, &shown, grant)).await;
                assert_eq!(refusal(granted), expected, "{name}: {shown}");
            }
        }
    }
    let running = start(&[]).await;
    let (_auth, _root, ann) = enable(&running.channel().await).await;
    let (shown, key) = (format!("Bearer {}", ann.0.unwrap()), r#"{"key":"YTE="}"#);
    let read = crate::gateway::post_as(&running, "/v3/kv/range", Some(&shown), key);
    let (status, text) = read.await;
    assert_eq!(status, 200, "{text}");
}

/// Whose password was replaced by an empty one was let in by an empty one. As in etcd, nobody logs in until another is set.
#[tokio::test]
async fn nobody_logs_in_after_an_empty_password_was_set() {
    for served in all().await {
        let (mut auth, root, _) = enable(&served.channel).await;
        let change = |password: &str| pb::AuthUserChangePasswordRequest {
            name: "ann".to_owned(),
            password: password.to_owned(),
            ..Default::default()
        };
        let emptied = auth.user_change_password(root.of(change(""))).await;
        emptied.unwrap();
        let failed = (
            Code::InvalidArgument,
            "etcdserver: authentication failed, invalid user ID or password".to_owned(),
        );
        for password in ["", "secret"] {
            let refused = log_in(&mut auth, "ann", password).await.err();
            assert_eq!(refused, Some(failed.clone()), "{password:?}");
        }
        let changed = auth.user_change_password(root.of(change("other"))).await;
        changed.unwrap();
        assert!(log_in(&mut auth, "ann", "other").await.is_ok());
        // Who is added with an empty one logs in by it.
        add_user(&mut auth, &root, "eve", "").await;
        assert!(log_in(&mut auth, "eve", "").await.is_ok());
    }
}
