//! From a request to its service.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Instant;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::v1::graph_server::GraphServer;
use bowline_proto::v1::lease_server::LeaseServer as MsLeaseServer;
use bowline_proto::v1::store_server::StoreServer;
use bowline_proto::v3electionpb::election_server::ElectionServer;
use bowline_proto::v3lockpb::lock_server::LockServer;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body::Body as HttpBody;
use hyper::body::Incoming;
use pb::auth_server::AuthServer;
use pb::cluster_server::ClusterServer;
use pb::kv_server::KvServer;
use pb::lease_server::LeaseServer;
use pb::maintenance_server::MaintenanceServer;
use tonic::body::Body;
use tonic::codegen::{Service, StdError};
use tonic::{Code, Status};
use tonic_health::pb::health_server::HealthServer;

use crate::context::Context;
use crate::gateway;
use crate::http as plain;
use crate::metrics::Method;
use crate::service::{
    AuthService, ClusterService, ElectionService, GraphService, HealthService, KvService,
    LeaseService, LockService, MaintenanceService, MsLeaseService, Reflection, StoreService,
    WatchService,
};
use crate::status::in_words_of_etcd;

/// All services. Its clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Dispatch {
    context: Arc<Context>,
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
    reflection: Reflection,
    store: StoreServer<StoreService>,
    ms_lease: MsLeaseServer<MsLeaseService>,
}

type BoxedCall = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

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
            reflection: Reflection::new(context.clone()),
            store: serve!(StoreServer, StoreService),
            ms_lease: serve!(MsLeaseServer, MsLeaseService),
            context,
        }
    }

    /// Calls the service that has the method.
    fn serve<B>(&self, method: Method, request: Request<B>) -> BoxedCall
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<StdError> + Send,
    {
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
            | M::GraphStats => self.graph.clone().call(request),
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
            M::ReflectionV1 => self.reflection.call_v1(request.map(Body::new)),
            M::ReflectionV1Alpha => self.reflection.call_v1alpha(request.map(Body::new)),
            M::StoreGet | M::StoreRange | M::StoreHistory | M::StoreCommit => {
                self.store.clone().call(request)
            }
            M::MsLeaseGrant | M::MsLeaseKeepAlive | M::MsLeaseTimeToLive | M::MsLeaseRevoke => {
                self.ms_lease.clone().call(request)
            }
        }
    }
}

impl hyper::service::Service<Request<Incoming>> for Dispatch {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Call;

    fn call(&self, request: Request<Incoming>) -> Call {
        match Method::of_path(request.uri().path()) {
            Some(method) => self.call_method(method, request),
            None => self.call_other(request),
        }
    }
}

impl Dispatch {
    fn call_method<B>(&self, method: Method, request: Request<B>) -> Call
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<StdError> + Send,
    {
        Call::Method {
            call: self.serve(method, request),
            method,
            begun: Instant::now(),
            context: self.context.clone(),
        }
    }

    /// Calls a method for the gateway, as a client of gRPC does.
    fn call_for_gateway(&self, request: Request<Body>) -> Call {
        let path = request.uri().path();
        match Method::of_path(path) {
            Some(method) => self.call_method(method, request),
            None => {
                self.context.metrics.unknown.add(1);
                Call::Ready(Some(not_served(path)))
            }
        }
    }

    /// Answers what is no method.
    fn call_other(&self, request: Request<Incoming>) -> Call {
        let uri = request.uri();
        if plain::is_known(uri.path()) {
            let context = self.context.clone();
            return Call::Other(Box::pin(async move {
                let (method, uri) = (request.method(), request.uri());
                let query = uri.query().unwrap_or_default();
                Ok(plain::answer(&context, method, uri.path(), query).await)
            }));
        }
        if gateway::is_known(uri.path()) {
            let dispatch = self.clone();
            return Call::Other(Box::pin(async move {
                let bytes_max = dispatch.context.settings.message_bytes_max();
                let call = async |request| match dispatch.call_for_gateway(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                };
                Ok(gateway::answer(request, bytes_max, call).await)
            }));
        }
        self.context.metrics.unknown.add(1);
        let is_grpc = request
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        Call::Ready(Some(if is_grpc {
            not_served(uri.path())
        } else {
            let text = "404 page not found\n";
            plain::reply(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", text)
        }))
    }
}

/// The answer to a method that there is not, in the words of the library that etcd is served with.
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

/// A call under way.
pub(crate) enum Call {
    /// Of a method.
    Method {
        call: BoxedCall,
        method: Method,
        begun: Instant,
        context: Arc<Context>,
    },
    /// Of something else.
    Other(BoxedCall),
    /// That is answered.
    Ready(Option<Response<Body>>),
}

impl Future for Call {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Call::Method {
                call,
                method,
                begun,
                context,
            } => {
                let answered = call.as_mut().poll(task).map_ok(in_words);
                if let Poll::Ready(Ok(response)) = &answered {
                    // A refusal has its code in the head; whatever else has a body is fine so far.
                    let code = response.headers().get(Status::GRPC_STATUS);
                    let code = code.map_or(Code::Ok, code_of);
                    context.metrics.answered(*method, code, begun.elapsed());
                }
                answered
            }
            Call::Other(call) => call.as_mut().poll(task),
            // It is polled once.
            Call::Ready(response) => Poll::Ready(Ok(response
                .take()
                .unwrap_or_else(|| Response::new(Body::empty())))),
        }
    }
}

/// A refusal in the words that clients of etcd know, also where it is not the service that refuses.
fn in_words(response: Response<Body>) -> Response<Body> {
    let code = response.headers().get(Status::GRPC_STATUS).map(code_of);
    if code != Some(Code::OutOfRange) {
        return response;
    }
    match Status::from_header_map(response.headers()) {
        Some(status) => in_words_of_etcd(status).into_http(),
        None => response,
    }
}

fn code_of(value: &HeaderValue) -> Code {
    Code::from_bytes(value.as_bytes())
}
