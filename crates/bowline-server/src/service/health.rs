//! `grpc.health.v1.Health`: whether this member can serve.
//!
//! It can while there is a leader and it is not stopping. A full disk does not count: reads, deletions and
//! compaction go on, and removing the member from service would not help. All services share this state; the
//! empty name stands for the whole server.

use std::sync::Arc;

use pb::health_check_response::ServingStatus;
use pb::health_server::Health;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tonic_health::pb;

use crate::context::{Context, stopped};
use crate::metrics::Method;
use crate::status::Fault;

/// The health service.
#[derive(Debug, Clone)]
pub(crate) struct HealthService {
    context: Arc<Context>,
}

impl HealthService {
    pub(crate) fn new(context: Arc<Context>) -> HealthService {
        HealthService { context }
    }
}

fn is_known(service: &str) -> bool {
    service.is_empty() || Method::ALL.iter().any(|method| method.names().0 == service)
}

fn reply(status: ServingStatus) -> pb::HealthCheckResponse {
    pb::HealthCheckResponse {
        status: status.into(),
    }
}

fn serving(is_serving: bool) -> pb::HealthCheckResponse {
    reply(match is_serving {
        true => ServingStatus::Serving,
        false => ServingStatus::NotServing,
    })
}

#[tonic::async_trait]
impl Health for HealthService {
    async fn check(
        &self,
        request: Request<pb::HealthCheckRequest>,
    ) -> Result<Response<pb::HealthCheckResponse>, Status> {
        if !is_known(&request.get_ref().service) {
            return Err(Fault::Missing("unknown service".to_owned()).into());
        }
        let is_serving = *self.context.serving().borrow();
        Ok(Response::new(serving(is_serving)))
    }

    type WatchStream = ReceiverStream<Result<pb::HealthCheckResponse, Status>>;

    async fn watch(
        &self,
        request: Request<pb::HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        /// Replies that wait for a client that does not read.
        const WAITING_MAX: usize = 4;
        let (sender, replies) = mpsc::channel(WAITING_MAX);
        let context = self.context.clone();
        let is_known = is_known(&request.get_ref().service);
        tokio::spawn(async move {
            let mut stopping = context.stopping();
            let end = tokio::select! {
                // A watcher first receives the last status, then the end.
                biased;
                () = follow(&context, is_known, &sender) => return,
                () = stopped(&mut stopping) => Fault::Stopped,
                () = sender.closed() => return,
            };
            // An error means that the client has disconnected.
            let _ = sender.send(Err(end.into())).await;
        });
        Ok(Response::new(ReceiverStream::new(replies)))
    }
}

/// Sends the present status and each change, until the client disconnects.
async fn follow(
    context: &Context,
    is_known: bool,
    replies: &mpsc::Sender<Result<pb::HealthCheckResponse, Status>>,
) {
    let mut changes = context.serving();
    loop {
        let is_serving = *changes.borrow_and_update();
        let now = match is_known {
            true => serving(is_serving),
            // Services are compiled in: an unknown one never appears later.
            false => reply(ServingStatus::ServiceUnknown),
        };
        if replies.send(Ok(now)).await.is_err() {
            return;
        }
        let changed = match is_known {
            true => changes.changed().await,
            false => std::future::pending().await,
        };
        if changed.is_err() {
            return;
        }
    }
}
