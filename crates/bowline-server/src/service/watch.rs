//! `etcdserverpb.Watch`: see [`crate::watch`].

use std::sync::Arc;

use bowline_proto::etcdserverpb as pb;
use pb::watch_server::Watch;
use tonic::{Request, Response, Status, Streaming};

use super::{check, needs_leader};
use crate::context::Context;
use crate::watch::WatchStream;

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct WatchService {
    context: Arc<Context>,
}

impl WatchService {
    pub(crate) fn new(context: Arc<Context>) -> WatchService {
        WatchService { context }
    }
}

#[tonic::async_trait]
impl Watch for WatchService {
    type WatchStream = WatchStream;

    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<WatchStream>, Status> {
        check(&self.context, request.metadata())?;
        let needs_leader = needs_leader(request.metadata());
        let requests = request.into_inner();
        let stream = WatchStream::new(self.context.clone(), requests, needs_leader);
        Ok(Response::new(stream))
    }
}
