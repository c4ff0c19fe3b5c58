//! Logins against a server with one user: how many there are, and what becomes of what was refused.

use std::collections::HashSet;
use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use futures_util::future::join_all;
use pb::auth_server::{Auth, AuthServer};
use pb::watch_request::RequestUnion;
use pb::watch_server::{Watch, WatchServer};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status, Streaming};

use super::*;
use crate::caller::Repeat;
use crate::{Client, KeyRange, fake};

/// A server with one user.
#[derive(Default)]
struct House {
    /// The password; `None`: there are no users.
    password: Mutex<Option<String>>,
    valid: Mutex<HashSet<String>>,
    logins: AtomicUsize,
    requests: AtomicUsize,
    streams: Mutex<Vec<mpsc::UnboundedSender<Result<pb::WatchResponse, Status>>>>,
}

/// The services of a house.
#[derive(Clone)]
struct Door(Arc<House>);

impl House {
    fn new(password: Option<&str>) -> Arc<House> {
        let house = House::default();
        *house.password.lock().unwrap() = password.map(str::to_owned);
        Arc::new(house)
    }

    /// A client of the user with this password.
    async fn client(self: &Arc<House>, password: &str) -> Client {
        let services = Server::builder()
            .add_service(AuthServer::new(Door(Arc::clone(self))))
            .add_service(WatchServer::new(Door(Arc::clone(self))));
        let address = fake::serve(services).await;
        let builder = Client::builder().endpoints([address]);
        builder.user("ann", password).connect_lazy().unwrap()
    }

    /// Ends all tokens.
    fn forget(&self) {
        self.valid.lock().unwrap().clear();
    }

    fn logins(&self) -> usize {
        self.logins.load(Ordering::SeqCst)
    }

    /// Whether a request that shows this token is let in.
    fn check(&self, token: Option<&str>) -> Result<(), Status> {
        if self.password.lock().unwrap().is_none() {
            return Ok(());
        }
        let Some(token) = token else {
            return Err(Status::invalid_argument("etcdserver: user name is empty"));
        };
        match self.valid.lock().unwrap().contains(token) {
            true => Ok(()),
            false => Err(Status::unauthenticated("etcdserver: invalid auth token")),
        }
    }

    /// Makes a request of a client.
    async fn asked(&self, client: &Client, repeat: Repeat) -> Result<()> {
        let send = |_: Channel, request: Request<()>| {
            self.requests.fetch_add(1, Ordering::SeqCst);
            let checked = self.check(token_of(&request).as_deref());
            async move {
                // So that those of other requests are under way.
                tokio::time::sleep(Duration::from_millis(1)).await;
                checked.map(Response::new)
            }
        };
        let called = client.caller().call(repeat, None, (), send).await;
        called.map(drop)
    }
}

fn token_of<M>(request: &Request<M>) -> Option<String> {
    let token = request.metadata().get("token")?;
    Some(token.to_str().unwrap().to_owned())
}

/// The service with its calls besides the login, which nobody makes.
macro_rules! auth {
    ($($method:ident($request:ident) -> $reply:ident;)*) => {
        #[tonic::async_trait]
        impl Auth for Door {
            async fn authenticate(
                &self,
                request: Request<pb::AuthenticateRequest>,
            ) -> Result<Response<pb::AuthenticateResponse>, Status> {
                assert!(request.metadata().get("token").is_none());
                let number = self.0.logins.fetch_add(1, Ordering::SeqCst);
                // So that others wait for their turn.
                tokio::time::sleep(Duration::from_millis(20)).await;
                let request = request.into_inner();
                match &*self.0.password.lock().unwrap() {
                    None => {
                        let text = "etcdserver: authentication is not enabled";
                        return Err(Status::failed_precondition(text));
                    }
                    Some(password) if request.name == "ann" && request.password == *password => {}
                    Some(_) => {
                        let text = "etcdserver: authentication failed, invalid user ID or password";
                        return Err(Status::invalid_argument(text));
                    }
                }
                let token = format!("token.{number}");
                self.0.valid.lock().unwrap().insert(token.clone());
                Ok(Response::new(pb::AuthenticateResponse { token, ..Default::default() }))
            }

            $(
                async fn $method(
                    &self,
                    _: Request<pb::$request>,
                ) -> Result<Response<pb::$reply>, Status> {
                    Err(Status::unimplemented("only logins"))
                }
            )*
        }
    };
}

auth! {
    auth_enable(AuthEnableRequest) -> AuthEnableResponse;
    auth_disable(AuthDisableRequest) -> AuthDisableResponse;
    auth_status(AuthStatusRequest) -> AuthStatusResponse;
    user_add(AuthUserAddRequest) -> AuthUserAddResponse;
    user_get(AuthUserGetRequest) -> AuthUserGetResponse;
    user_list(AuthUserListRequest) -> AuthUserListResponse;
    user_delete(AuthUserDeleteRequest) -> AuthUserDeleteResponse;
    user_change_password(AuthUserChangePasswordRequest) -> AuthUserChangePasswordResponse;
    user_grant_role(AuthUserGrantRoleRequest) -> AuthUserGrantRoleResponse;
    user_revoke_role(AuthUserRevokeRoleRequest) -> AuthUserRevokeRoleResponse;
    role_add(AuthRoleAddRequest) -> AuthRoleAddResponse;
    role_get(AuthRoleGetRequest) -> AuthRoleGetResponse;
    role_list(AuthRoleListRequest) -> AuthRoleListResponse;
    role_delete(AuthRoleDeleteRequest) -> AuthRoleDeleteResponse;
    role_grant_permission(AuthRoleGrantPermissionRequest) -> AuthRoleGrantPermissionResponse;
    role_revoke_permission(AuthRoleRevokePermissionRequest) -> AuthRoleRevokePermissionResponse;
}

/// A message of a watch.
fn message(watch_id: i64) -> pb::WatchResponse {
    pb::WatchResponse {
        header: Some(pb::ResponseHeader {
            revision: 1,
            ..Default::default()
        }),
        watch_id,
        ..Default::default()
    }
}

/// Watches whose key is `secret` are permitted to nobody.
#[tonic::async_trait]
impl Watch for Door {
    type WatchStream = UnboundedReceiverStream<Result<pb::WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.0.requests.fetch_add(1, Ordering::SeqCst);
        let (house, token) = (Arc::clone(&self.0), token_of(&request));
        let mut requests = request.into_inner();
        let (sender, receiver) = mpsc::unbounded_channel();
        self.0.streams.lock().unwrap().push(sender.clone());
        tokio::spawn(async move {
            while let Some(Ok(request)) = requests.next().await {
                let Some(RequestUnion::CreateRequest(create)) = request.request_union else {
                    continue;
                };
                let refused = match house.check(token.as_deref()) {
                    Err(status) => Some(status.message().to_owned()),
                    Ok(()) if create.key == "secret" => {
                        Some("etcdserver: permission denied".to_owned())
                    }
                    Ok(()) => None,
                };
                let answer = match refused {
                    None => pb::WatchResponse {
                        created: true,
                        ..message(create.watch_id)
                    },
                    Some(text) => pb::WatchResponse {
                        created: true,
                        canceled: true,
                        // As etcd says it.
                        cancel_reason: format!("rpc error: code = Unknown desc = {text}"),
                        ..message(-1)
                    },
                };
                let _ = sender.send(Ok(answer));
            }
        });
        Ok(Response::new(UnboundedReceiverStream::new(receiver)))
    }
}

#[tokio::test]
async fn requests_that_are_refused_at_once_log_in_once() {
    let house = House::new(Some("pw"));
    let client = house.client("pw").await;
    let all = async || {
        let asked = (0..20).map(|_| house.asked(&client, Repeat::Never));
        for outcome in join_all(asked).await {
            outcome.unwrap();
        }
    };
    all().await;
    assert_eq!(house.logins(), 1);
    house.forget();
    all().await;
    assert_eq!(house.logins(), 2);
    // Those that were refused once more.
    assert!(house.requests.load(Ordering::SeqCst) <= 60);
}

/// It was refused before anything was done, and nothing was changed twice.
#[tokio::test]
async fn a_change_that_was_refused_for_its_token_is_sent_again_once() {
    let house = House::new(Some("pw"));
    let client = house.client("pw").await;
    house.asked(&client, Repeat::Never).await.unwrap();
    house.forget();
    house.asked(&client, Repeat::Never).await.unwrap();
    assert_eq!(house.requests.load(Ordering::SeqCst), 3);
    assert_eq!(house.logins(), 2);
}

/// A server that gives tokens and takes none would be asked for ever.
#[tokio::test]
async fn a_second_refusal_of_one_request_is_final() {
    let house = House::new(Some("pw"));
    let client = house.client("pw").await;
    let send = |_: Channel, _: Request<()>| async {
        house.requests.fetch_add(1, Ordering::SeqCst);
        Err::<Response<()>, _>(Status::unauthenticated("etcdserver: invalid auth token"))
    };
    let caller = client.caller();
    let called = caller.call(Repeat::Always, None, (), send).await;
    assert!(matches!(called, Err(Error::InvalidToken)), "{called:?}");
    assert_eq!(house.requests.load(Ordering::SeqCst), 2);
    assert_eq!(house.logins(), 2);
}

#[tokio::test]
async fn a_wrong_password_is_said_to_be_one_to_everyone_who_waited() {
    let house = House::new(Some("pw"));
    let client = house.client("wrong").await;
    let asked = (0..20).map(|_| house.asked(&client, Repeat::Never));
    for outcome in join_all(asked).await {
        let error = outcome.unwrap_err();
        assert!(
            matches!(error, Error::AuthenticationFailed { .. }),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(text.contains("check the name of the user"), "{text}");
        assert!(!text.contains("wrong"), "{text}");
    }
    assert_eq!(house.logins(), 1, "the others waited for it");
    assert_eq!(house.requests.load(Ordering::SeqCst), 0, "nothing was sent");
    // Later the password may be another one.
    *house.password.lock().unwrap() = Some("wrong".to_owned());
    house.asked(&client, Repeat::Never).await.unwrap();
}

#[tokio::test]
async fn a_server_without_users_needs_no_login_until_it_has_some() {
    let house = House::new(None);
    let client = house.client("pw").await;
    for _ in 0..3 {
        house.asked(&client, Repeat::Always).await.unwrap();
    }
    assert_eq!(house.logins(), 1);
    *house.password.lock().unwrap() = Some("pw".to_owned());
    house.asked(&client, Repeat::Always).await.unwrap();
    assert_eq!(house.logins(), 2);
}

/// The one that logs in may be given up while others wait for it.
#[tokio::test]
async fn a_login_that_is_given_up_lets_the_next_one_in() {
    let house = House::new(Some("pw"));
    let client = house.client("pw").await;
    let moment = Duration::from_millis(5);
    let first = timeout(moment, house.asked(&client, Repeat::Always)).await;
    assert!(first.is_err(), "it is too early for this test");
    let next = house.asked(&client, Repeat::Always);
    let next = timeout(Duration::from_secs(10), next).await;
    next.expect("the turn is free").unwrap();
}

#[tokio::test]
async fn a_watch_logs_in_anew_when_its_token_is_refused() {
    let house = House::new(Some("pw"));
    let client = house.client("pw").await;
    let _first = client.watch("a").await.unwrap();
    house.forget();
    // The stream shows the old token, and this watch is refused on it.
    let second = client.watch(KeyRange::key("b")).into_future();
    let second = timeout(Duration::from_secs(10), second).await;
    let _second = second.expect("it is created").unwrap();
    assert_eq!(house.logins(), 2);
}

/// All watches of a stream ended with it, also those that the user might have still.
#[tokio::test]
async fn a_right_that_is_taken_away_ends_its_watch_and_no_other() {
    let house = House::new(Some("pw"));
    let client = house.client("pw").await;
    let mut kept = client.watch("a").await.unwrap();
    let refused = client.watch("secret").await.unwrap_err();
    assert!(matches!(refused, Error::PermissionDenied), "{refused:?}");
    let stream = house.streams.lock().unwrap().pop().unwrap();
    let denied = Status::permission_denied("etcdserver: permission denied");
    stream.send(Err(denied)).unwrap();
    // It goes on, on another stream.
    let next = timeout(Duration::from_millis(500), kept.next()).await;
    assert!(next.is_err(), "{next:?}");
    assert_eq!(house.streams.lock().unwrap().len(), 1);
    assert_eq!(house.requests.load(Ordering::SeqCst), 2);
    assert_eq!(house.logins(), 1);
}

/// A server that refuses every stream at once is not asked for ever.
#[tokio::test]
async fn a_watch_that_no_login_helps_ends() {
    let house = House::new(Some("pw"));
    let client = house.client("pw").await;
    let mut watcher = client.watch("a").await.unwrap();
    house.forget();
    *house.password.lock().unwrap() = Some("another".to_owned());
    let stream = house.streams.lock().unwrap().pop().unwrap();
    let denied = Status::permission_denied("etcdserver: permission denied");
    stream.send(Err(denied)).unwrap();
    let end = timeout(Duration::from_secs(10), watcher.next()).await;
    let end = end.expect("it ends").unwrap_err();
    assert!(matches!(end, Error::AuthenticationFailed { .. }), "{end:?}");
}
