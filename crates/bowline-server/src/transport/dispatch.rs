//! Routes requests to services.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};

use bowline_proto::etcdserverpb as pb;
use bowline_proto::v1::graph_server::GraphServer;
use bowline_proto::v1::indexes_server::IndexesServer;
use bowline_proto::v1::lease_server::LeaseServer as MsLeaseServer;
use bowline_proto::v1::members_server::MembersServer;
use bowline_proto::v1::quotas_server::QuotasServer;
use bowline_proto::v1::roles_server::RolesServer;
use bowline_proto::v1::store_server::StoreServer;
use bowline_proto::v3electionpb::election_server::ElectionServer;
use bowline_proto::v3lockpb::lock_server::LockServer;
use http::{Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use pb::auth_server::AuthServer;
use pb::cluster_server::ClusterServer;
use pb::kv_server::KvServer;
use pb::lease_server::LeaseServer;
use pb::maintenance_server::MaintenanceServer;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tonic_health::pb::health_server::HealthServer;

use super::audited::{self, Heard};
use super::bodies::{BoxedCall, ReplyBody, ReplyKind, RequestBody};
use super::charged;
use super::deadline;
use super::rights::right_of;
use super::tallied::{self, CallBody, TalliedRequest, code_in};
use crate::audited::SharedDetails;
use crate::context::{Context, is_of_read};
use crate::credentials::Credentials;
use crate::gateway;
use crate::http::{self as plain, Guard};
use crate::memory::{self, Account, Charge, Partial};
use crate::metrics::{Method, Tally};
use crate::service::{
    AuthService, ClusterService, ElectionService, EncodedReply, GraphService, HealthService,
    IndexesService, KvService, LeaseService, LockService, LongReply, MaintenanceService,
    MembersService, MsLeaseService, QuotasService, Reflection, RolesService, StoreService,
    WatchService,
};
use crate::status::in_words_of_etcd;

/// All services. Its clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Dispatch {
    context: Arc<Context>,
    /// The account of the connection.
    account: Arc<Account>,
    kv: KvServer<KvService>,
    watch: WatchService,
    lease: LeaseServer<LeaseService>,
    cluster: ClusterServer<ClusterService>,
    maintenance: MaintenanceServer<MaintenanceService>,
    graph: GraphServer<GraphService>,
    lock: LockServer<LockService>,
    election: ElectionServer<ElectionService>,
    auth: AuthServer<AuthService>,
    health: HealthServer<HealthService>,
    /// `None` when reflection is off.
    reflection: Option<Reflection>,
    guard: Arc<Guard>,
    /// Whether only metrics and health are served.
    is_for_metrics: bool,
    store: StoreServer<StoreService>,
    ms_lease: MsLeaseServer<MsLeaseService>,
    members: MembersServer<MembersService>,
    roles: RolesServer<RolesService>,
    quotas: QuotasServer<QuotasService>,
    indexes: IndexesServer<IndexesService>,
}

impl Dispatch {
    pub(crate) fn new(context: Arc<Context>) -> Dispatch {
        let settings = &context.settings;
        let received_max = settings.message_bytes_max();
        macro_rules! serve {
            ($server:ident, $service:ident) => {
                $server::new($service::new(context.clone()))
                    .max_decoding_message_size(received_max)
                    .max_encoding_message_size(usize::MAX)
            };
        }
        Dispatch {
            kv: serve!(KvServer, KvService),
            watch: WatchService::new(context.clone()),
            lease: serve!(LeaseServer, LeaseService),
            cluster: serve!(ClusterServer, ClusterService),
            maintenance: serve!(MaintenanceServer, MaintenanceService),
            graph: serve!(GraphServer, GraphService),
            lock: serve!(LockServer, LockService),
            election: serve!(ElectionServer, ElectionService),
            auth: serve!(AuthServer, AuthService),
            health: serve!(HealthServer, HealthService),
            reflection: settings
                .reflection
                .then(|| Reflection::new(context.clone())),
            guard: Arc::new(Guard::new(settings.hosts.clone())),
            is_for_metrics: false,
            store: serve!(StoreServer, StoreService),
            ms_lease: serve!(MsLeaseServer, MsLeaseService),
            members: serve!(MembersServer, MembersService),
            roles: serve!(RolesServer, RolesService),
            quotas: serve!(QuotasServer, QuotasService),
            indexes: serve!(IndexesServer, IndexesService),
            account: context.memory.account(),
            context,
        }
    }

    /// A copy for a port that serves only metrics and health.
    pub(crate) fn for_metrics(&self) -> Dispatch {
        Dispatch {
            is_for_metrics: true,
            ..self.clone()
        }
    }

    /// Whether only metrics and health are served.
    pub(super) fn is_for_metrics(&self) -> bool {
        self.is_for_metrics
    }

    /// A copy for one connection.
    pub(super) fn of_connection(&self, account: Arc<Account>) -> Dispatch {
        Dispatch {
            account,
            ..self.clone()
        }
    }

    /// The method of a gRPC request, if it is served here. gRPC requires HTTP/2; see the [`Guard`].
    fn method_of<B>(&self, request: &Request<B>) -> Option<Method> {
        if self.is_for_metrics || request.version() != Version::HTTP_2 {
            return None;
        }
        Method::of_path(request.uri().path())
    }

    /// Calls the service of a method.
    fn serve(&self, method: Method, request: Request<TalliedRequest>) -> BoxedCall {
        use Method as M;
        match method {
            M::Range | M::RangeStream | M::Put | M::DeleteRange | M::Txn | M::Compact => {
                self.kv.clone().call(request)
            }
            M::Watch => self.watch.clone().call(request),
            M::LeaseGrant
            | M::LeaseRevoke
            | M::LeaseKeepAlive
            | M::LeaseTimeToLive
            | M::LeaseLeases => self.lease.clone().call(request),
            M::MemberAdd | M::MemberRemove | M::MemberUpdate | M::MemberList | M::MemberPromote => {
                self.cluster.clone().call(request)
            }
            M::Alarm
            | M::Status
            | M::Defragment
            | M::Hash
            | M::HashKv
            | M::Snapshot
            | M::MoveLeader
            | M::Downgrade => self.maintenance.clone().call(request),
            M::GraphWrite
            | M::GraphGetBlocks
            | M::GraphGetEdges
            | M::GraphNeighbors
            | M::GraphTraverse
            | M::GraphShortestPath
            | M::GraphListBlocks
            | M::GraphListEdges
            | M::GraphOrder
            | M::GraphComponents
            | M::GraphStats
            | M::GraphPageRank
            | M::GraphCommunities
            | M::GraphTriangles
            | M::GraphClustering
            | M::GraphKHop
            | M::GraphSimplePaths
            | M::GraphQuery => self.graph.clone().call(request),
            M::Lock | M::Unlock => self.lock.clone().call(request),
            M::Campaign | M::Proclaim | M::Leader | M::Observe | M::Resign => {
                self.election.clone().call(request)
            }
            M::AuthEnable
            | M::AuthDisable
            | M::AuthStatus
            | M::Authenticate
            | M::UserAdd
            | M::UserGet
            | M::UserList
            | M::UserDelete
            | M::UserChangePassword
            | M::UserGrantRole
            | M::UserRevokeRole
            | M::RoleAdd
            | M::RoleGet
            | M::RoleList
            | M::RoleDelete
            | M::RoleGrantPermission
            | M::RoleRevokePermission => self.auth.clone().call(request),
            M::HealthCheck | M::HealthWatch => self.health.clone().call(request),
            M::ReflectionV1 | M::ReflectionV1Alpha => match &self.reflection {
                Some(served) if method == M::ReflectionV1 => served.call_v1(request.map(Body::new)),
                Some(served) => served.call_v1alpha(request.map(Body::new)),
                None => {
                    let text = "reflection is not served: start the server with --reflection true";
                    let refused = Status::unimplemented(text).into_http();
                    Box::pin(std::future::ready(Ok(refused)))
                }
            },
            M::StoreGet | M::StoreRange | M::StoreHistory | M::StoreCommit => {
                self.store.clone().call(request)
            }
            M::MsLeaseGrant | M::MsLeaseKeepAlive | M::MsLeaseTimeToLive | M::MsLeaseRevoke => {
                self.ms_lease.clone().call(request)
            }
            M::MemberRepair => self.members.clone().call(request),
            M::RoleGrantKinds | M::RoleRevokeKinds | M::RoleListKinds => {
                self.roles.clone().call(request)
            }
            M::QuotaSet | M::QuotaList | M::QuotaRemove => self.quotas.clone().call(request),
            M::IndexCreate | M::IndexList | M::IndexDrop => self.indexes.clone().call(request),
        }
    }
}

impl hyper::service::Service<Request<Incoming>> for Dispatch {
    type Response = Response<ReplyBody>;
    type Error = Infallible;
    type Future = Served;

    fn call(&self, request: Request<Incoming>) -> Served {
        let timeout = self.context.settings.partial_timeout;
        let account = self.account.clone();
        let is_http2 = request.version() == Version::HTTP_2;
        let whole = |body| RequestBody::whole(body, account.clone(), timeout);
        let stream =
            |body, is_json| RequestBody::stream(body, is_json, is_http2, account.clone(), timeout);
        let call = match self.method_of(&request) {
            Some(method) if method.takes_stream() => self.call_method(
                method,
                request.map(|body| CallBody::Client(stream(body, false))),
            ),
            Some(method) => {
                self.call_method(method, request.map(|body| CallBody::Client(whole(body))))
            }
            None if gateway::takes_stream(request.uri().path()) => {
                self.call_other(request.map(|body| stream(body, true)))
            }
            None => self.call_other(request.map(whole)),
        };
        Served {
            call,
            account: Some(account),
            _charge: None,
        }
    }
}

impl Dispatch {
    fn call_method(&self, method: Method, mut request: Request<CallBody>) -> Call {
        let metrics = &self.context.metrics;
        let tally = Tally::begin(metrics, method, Instant::now());
        // For the services that ask who the client is.
        if let Some(identity) = self.account.identity() {
            request.extensions_mut().insert(identity.clone());
        }
        let audit = self.begin_audit(method, &request);
        let request = request.map(|body| TalliedRequest::new(body, metrics, method));
        let heard = audit.as_ref().map(|(_, details)| {
            let bytes_max = self.context.settings.message_bytes_max();
            Heard::new(method, details.clone(), bytes_max, &self.account)
        });
        let request = request.map(|body| body.heard_by(heard));
        let right = right_of(method);
        let timeout = deadline::timeout_in(request.headers());
        let limited = match &self.context.rates {
            Some(rates) if method.is_limited() => {
                let metadata = MetadataMap::from_headers(request.headers().clone());
                Some((rates.clone(), Credentials::of(&metadata)))
            }
            _ => None,
        };
        let call = match right.is_checked_later(&self.context) {
            true => self.serve(method, request),
            false => {
                let (context, headers) = (self.context.clone(), request.headers().clone());
                let call = self.serve(method, request);
                Box::pin(async move {
                    match right.check(&context, headers).await {
                        Ok(()) => call.await,
                        Err(status) => Ok(status.into_http()),
                    }
                })
            }
        };
        let call = match limited {
            None => call,
            Some((rates, credentials)) => {
                let (context, account) = (self.context.clone(), self.account.clone());
                Box::pin(async move {
                    match context.admit(&credentials, &account) {
                        // What a watch sends is not charged.
                        Ok(Some(principal)) if method != Method::Watch => {
                            Ok(charged::reply(call.await?, &rates, principal))
                        }
                        Ok(_) => call.await,
                        Err(fault) => Ok(Status::from(fault).into_http()),
                    }
                })
            }
        };
        let call = match timeout {
            None => call,
            Some(timeout) => deadline::call(call, method.kind(), timeout),
        };
        let call = match audit {
            None => call,
            Some((credentials, details)) => {
                audited::call(self.context.clone(), method, credentials, details, call)
            }
        };
        Call::Method {
            call,
            method,
            tally: Some(tally),
        }
    }

    /// What the audit log needs of a call that may have a line in it.
    fn begin_audit<B>(
        &self,
        method: Method,
        request: &Request<B>,
    ) -> Option<(Credentials, SharedDetails)> {
        self.context.audits(method)?;
        let metadata = MetadataMap::from_headers(request.headers().clone());
        Some((Credentials::of(&metadata), SharedDetails::default()))
    }

    /// Calls a method for the gateway, as a gRPC client does.
    fn call_for_gateway(&self, request: Request<Body>) -> Call {
        let path = request.uri().path();
        match Method::of_path(path) {
            Some(method) => self.call_method(method, request.map(CallBody::Gateway)),
            None => {
                self.context.metrics.unknown.add(1);
                Call::Ready(Some(not_served(path)))
            }
        }
    }

    /// Answers requests that are not gRPC methods.
    fn call_other(&self, request: Request<RequestBody>) -> Call {
        let is_grpc = request.version() == Version::HTTP_2
            && request
                .headers()
                .get(header::CONTENT_TYPE)
                .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        if !is_grpc && let Some(refused) = self.guard.check(&request) {
            self.context.metrics.unknown.add(1);
            return Call::Ready(Some(refused));
        }
        let uri = request.uri();
        if self.is_for_metrics && !plain::is_of_metrics(uri.path()) {
            return Call::Ready(Some(not_found()));
        }
        if plain::is_known(uri.path()) {
            let context = self.context.clone();
            // These handlers ignore the body.
            let request = request.map(drop);
            return Call::Other(Box::pin(async move {
                let (method, uri) = (request.method(), request.uri());
                let query = uri.query().unwrap_or_default();
                Ok(plain::answer(&context, method, uri.path(), query).await)
            }));
        }
        if gateway::is_known(uri.path()) {
            let dispatch = self.clone();
            return Call::Other(Box::pin(async move {
                let settings = &dispatch.context.settings;
                let bytes_max = settings.message_bytes_max();
                let partial = Partial::new(dispatch.account.clone(), settings.partial_timeout);
                let call = async |request| match dispatch.call_for_gateway(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                };
                Ok(gateway::answer(request, bytes_max, partial, call).await)
            }));
        }
        self.context.metrics.unknown.add(1);
        Call::Ready(Some(match Method::of_path(uri.path()) {
            Some(_) if request.version() != Version::HTTP_2 => {
                let text = "gRPC is served over HTTP/2: use a client of gRPC, or the JSON gateway under /v3/\n";
                let status = StatusCode::HTTP_VERSION_NOT_SUPPORTED;
                plain::reply(status, "text/plain; charset=utf-8", text)
            }
            _ if is_grpc => not_served(uri.path()),
            _ => not_found(),
        }))
    }
}

fn not_found() -> Response<Body> {
    let text = "404 page not found\n";
    plain::reply(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", text)
}

/// The reply to an unknown method, in the words of etcd's gRPC library.
fn not_served(path: &str) -> Response<Body> {
    let names = path.strip_prefix('/').unwrap_or(path).rsplit_once('/');
    let text = match names {
        None => format!("malformed method name: {path:?}"),
        Some((service, method)) => {
            let mut known = Method::ALL.iter().map(|method| method.names().0);
            match known.any(|known| known == service) {
                true => format!("unknown method {method} for service {service}"),
                false => format!("unknown service {service}"),
            }
        }
    };
    Status::unimplemented(text).into_http()
}

/// A call of a connection, until its reply begins.
pub(crate) struct Served {
    call: Call,
    account: Option<Arc<Account>>,
    /// The charge of its complete request.
    _charge: Option<Charge>,
}

impl Future for Served {
    type Output = Result<Response<ReplyBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let call = &mut this.call;
        let (polled, received) =
            memory::in_account(&mut this.account, || Pin::new(&mut *call).poll(task));
        if received.is_some() {
            this._charge = received;
        }
        let Ok(mut response) = ready!(polled);
        let kind = this.call.kind_of(&response);
        let response = if let Some(long) = LongReply::taken_from(&mut response) {
            response.map(|_| long.into_grpc())
        } else if let Some(encoded) = EncodedReply::taken_from(&mut response) {
            response.map(|_| encoded.into_grpc())
        } else {
            response
        };
        let account = this.account.take();
        Poll::Ready(Ok(response.map(|body| ReplyBody::new(body, account, kind))))
    }
}

/// A call under way.
pub(crate) enum Call {
    /// A call of a method.
    Method {
        call: BoxedCall,
        method: Method,
        /// `None` once it is answered.
        tally: Option<Tally>,
    },
    /// Another request.
    Other(BoxedCall),
    /// A call with its reply ready.
    Ready(Option<Response<Body>>),
}

impl Call {
    /// The kind of a reply of this call.
    fn kind_of(&self, response: &Response<Body>) -> ReplyKind {
        match self {
            // A transaction that only reads is answered as a read.
            Call::Method { method, .. } if method.changes() && !is_of_read(response) => {
                ReplyKind::Change
            }
            Call::Method { .. } => ReplyKind::Read,
            Call::Other(_) | Call::Ready(_) => ReplyKind::Other,
        }
    }
}

impl Future for Call {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Call::Method { call, tally, .. } => {
                let answered = call.as_mut().poll(task).map_ok(in_words);
                answered.map_ok(|response| match tally.take() {
                    Some(tally) => tallied::reply(response, tally),
                    None => response,
                })
            }
            Call::Other(call) => call.as_mut().poll(task),
            // It is polled once.
            Call::Ready(response) => Poll::Ready(Ok(response
                .take()
                .unwrap_or_else(|| Response::new(Body::empty())))),
        }
    }
}

/// Replaces the text of a refusal by etcd's words, also where no service refused.
fn in_words(response: Response<Body>) -> Response<Body> {
    if code_in(response.headers()) != Some(Code::OutOfRange) {
        return response;
    }
    match Status::from_header_map(response.headers()) {
        Some(status) => in_words_of_etcd(status).into_http(),
        None => response,
    }
}
