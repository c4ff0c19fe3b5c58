//! From a request to its service.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Instant;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::v1::graph_server::GraphServer;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use pb::cluster_server::ClusterServer;
use pb::kv_server::KvServer;
use pb::lease_server::LeaseServer;
use pb::maintenance_server::MaintenanceServer;
use pb::watch_server::WatchServer;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::{Code, Status};

use crate::context::Context;
use crate::http as plain;
use crate::metrics::Method;
use crate::service::{
    ClusterService, GraphService, KvService, LeaseService, MaintenanceService, WatchService,
};
use crate::settings::Settings;
use crate::status::in_words_of_etcd;

/// All services. Its clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Dispatch {
    context: Arc<Context>,
    kv: KvServer<KvService>,
    watch: WatchServer<WatchService>,
    lease: LeaseServer<LeaseService>,
    cluster: ClusterServer<ClusterService>,
    maintenance: MaintenanceServer<MaintenanceService>,
    graph: GraphServer<GraphService>,
}

type BoxedCall = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl Dispatch {
    pub(crate) fn new(context: Arc<Context>) -> Dispatch {
        let settings = &context.settings;
        let received_max = settings.request_bytes_max + Settings::REQUEST_OVERHEAD_BYTES;
        macro_rules! serve {
            ($server:ident, $service:ident) => {
                $server::new($service::new(context.clone()))
                    .max_decoding_message_size(received_max)
                    .max_encoding_message_size(usize::MAX)
            };
        }
        Dispatch {
            kv: serve!(KvServer, KvService),
            watch: serve!(WatchServer, WatchService),
            lease: serve!(LeaseServer, LeaseService),
            cluster: serve!(ClusterServer, ClusterService),
            maintenance: serve!(MaintenanceServer, MaintenanceService),
            graph: serve!(GraphServer, GraphService),
            context,
        }
    }

    /// Calls the service that has the method.
    fn serve(&self, method: Method, request: Request<Incoming>) -> BoxedCall {
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
        }
    }
}

impl hyper::service::Service<Request<Incoming>> for Dispatch {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Call;

    fn call(&self, request: Request<Incoming>) -> Call {
        let Some(method) = Method::of_path(request.uri().path()) else {
            return self.call_other(request);
        };
        let call = self.serve(method, request);
        Call::Method {
            call,
            method,
            begun: Instant::now(),
            context: self.context.clone(),
        }
    }
}

impl Dispatch {
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
        self.context.metrics.unknown.add(1);
        let is_grpc = request
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        Call::Ready(Some(if is_grpc {
            let text = format!("{} is not served", uri.path());
            Status::unimplemented(text).into_http()
        } else {
            let text = "404 page not found\n";
            plain::reply(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", text)
        }))
    }
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
