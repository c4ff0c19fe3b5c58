//! `etcdserverpb.Watch`: see [`crate::watch`].
//!
//! It does not use the generated server, whose messages hold decoded events. The front serves usual streams itself.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use bowline_proto::etcdserverpb as pb;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, StdError, http};
use tonic::server::{Grpc, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::{Terms, check_member};
use crate::audit::WatchAudit;
use crate::context::Context;
use crate::metrics::Method;
use crate::status::status;
use crate::watch::{WatchMessage, WatchRights, WatchSession, WatchStream};

/// The watch service.
#[derive(Debug, Clone)]
pub(crate) struct WatchService {
    context: Arc<Context>,
}

impl WatchService {
    pub(crate) fn new(context: Arc<Context>) -> WatchService {
        WatchService { context }
    }

    /// Opens a client's watches. None are opened at a member whose data may be wrong: others have it.
    pub(crate) fn open(context: &Arc<Context>, terms: &Terms) -> Result<WatchSession, Status> {
        check_member(context, terms.needs_leader)?;
        context.client.check_reading().map_err(status)?;
        let client = context.client.clone();
        let rights = match context.known_caller(&terms.credentials) {
            Some(caller) => WatchRights::of(client, caller),
            None => {
                let (context, credentials) = (context.clone(), terms.credentials.clone());
                let seek = async move { context.caller(&credentials).await };
                WatchRights::sought(client, Box::pin(seek))
            }
        };
        let audit = context.audits(Method::Watch);
        let audit =
            audit.map(|audit| WatchAudit::new(audit.clone(), context.who(&terms.credentials)));
        let header = context.reply_header.clone();
        let (watches, memory) = (&context.watches, &context.memory);
        let needs_leader = terms.needs_leader;
        Ok(WatchSession::new(
            watches,
            memory,
            header,
            needs_leader,
            rights,
            audit,
        ))
    }
}

impl<B> Service<http::Request<B>> for WatchService
where
    B: tonic::codegen::Body + Send + 'static,
    B::Error: Into<StdError> + Send,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let received_max = service.context.settings.message_bytes_max();
            let codec = ProstCodec::<WatchMessage, pb::WatchRequest>::default();
            let mut grpc = Grpc::new(codec)
                .apply_max_message_size_config(Some(received_max), Some(usize::MAX));
            Ok(grpc.streaming(Watch(&service), request).await)
        })
    }
}

/// The one method.
struct Watch<'a>(&'a WatchService);

impl StreamingService<pb::WatchRequest> for Watch<'_> {
    type Response = WatchMessage;
    type ResponseStream = WatchStream;
    type Future = std::future::Ready<Result<Response<WatchStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<pb::WatchRequest>>) -> Self::Future {
        let terms = Terms::of_change(request.metadata());
        let session = WatchService::open(&self.0.context, &terms);
        std::future::ready(
            session.map(|session| Response::new(WatchStream::new(session, request.into_inner()))),
        )
    }
}
