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

use super::{check_member, needs_leader};
use crate::context::Context;
use crate::watch::{WatchMessage, WatchSession, WatchStream};

/// The watch service.
#[derive(Debug, Clone)]
pub(crate) struct WatchService {
    context: Arc<Context>,
}

impl WatchService {
    pub(crate) fn new(context: Arc<Context>) -> WatchService {
        WatchService { context }
    }

    /// Opens a client's watches.
    pub(crate) fn open(context: &Context, needs_leader: bool) -> Result<WatchSession, Status> {
        check_member(context, needs_leader)?;
        let header = context.reply_header.clone();
        let (watches, memory) = (&context.watches, &context.memory);
        Ok(WatchSession::new(watches, memory, header, needs_leader))
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
        let session = WatchService::open(&self.0.context, needs_leader(request.metadata()));
        std::future::ready(
            session.map(|session| Response::new(WatchStream::new(session, request.into_inner()))),
        )
    }
}
