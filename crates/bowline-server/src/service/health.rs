//! `grpc.health.v1.Health`: whether this member can serve.
//!
//! It can as long as there is a leader and it is not stopping. A lack of space does not count: reads,
//! deletions and compaction go on, and to take the member away would help nobody. All services share
//! this state; the empty name stands for the whole server.

use std::sync::Arc;

use pb::health_check_response::ServingStatus;
use pb::health_server::Health;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tonic_health::pb;

use crate::context::{Context, stopped};
use crate::counters::Method;
use crate::status::Fault;

/// See the module.
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
        /// Answers that wait for a client that does not read.
        const WAITING_MAX: usize = 4;
        let (sender, replies) = mpsc::channel(WAITING_MAX);
        let context = self.context.clone();
        let is_known = is_known(&request.get_ref().service);
        tokio::spawn(async move {
            let mut stopping = context.stopping();
            let end = tokio::select! {
                // Who watches until the last moment hears first that it has come.
                biased;
                () = follow(&context, is_known, &sender) => return,
                () = stopped(&mut stopping) => Fault::Stopped,
                () = sender.closed() => return,
            };
            // Gone clients need no goodbye.
            let _ = sender.send(Err(end.into())).await;
        });
        Ok(Response::new(ReceiverStream::new(replies)))
    }
}

/// Tells how it is now, and each time that changes, until the client has gone.
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
            // To come later it would have to be compiled in.
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
