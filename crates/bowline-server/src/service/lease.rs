//! `etcdserverpb.Lease`: grants, revocations, keep-alives, remaining times.

use std::sync::Arc;
use std::time::Duration;

use bowline_cluster::ReadLevel;
use bowline_proto::etcdserverpb as pb;
use bowline_replica::{Access, AlarmKind, Caller, Need};
use pb::lease_server::Lease;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{check, needs_leader};
use crate::context::{Context, respond_applied, stopped};
use crate::status::{Fault, in_words_of_etcd, status};

/// The longest TTL, in seconds.
const TTL_MAX: i64 = 9_000_000_000;

/// The lease service.
#[derive(Debug, Clone)]
pub(crate) struct LeaseService {
    context: Arc<Context>,
}

impl LeaseService {
    pub(crate) fn new(context: Arc<Context>) -> LeaseService {
        LeaseService { context }
    }
}

/// A TTL in seconds, rounded up.
fn seconds(ttl: Duration) -> i64 {
    (ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)) as i64
}

/// The TTL of a renewal in seconds, rounded down: who renews counts on it. At least one, as 0 says that the lease has ended.
fn renewed_seconds(ttl: Duration) -> i64 {
    ttl.as_secs().max(1) as i64
}

#[tonic::async_trait]
impl Lease for LeaseService {
    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let request = request.into_inner();
        if request.ttl > TTL_MAX {
            // An alarm refuses every grant before it is checked.
            let alarms = self.context.client.alarms();
            let is_raised = |wanted| alarms.iter().any(|(_, kind)| *kind == wanted);
            return Err(if is_raised(AlarmKind::Corrupt) {
                Fault::CorruptCluster.into()
            } else if is_raised(AlarmKind::NoSpace) {
                Fault::NoSpace.into()
            } else {
                Fault::TtlTooLarge.into()
            });
        }
        let ttl = Duration::from_secs(u64::try_from(request.ttl).unwrap_or(0));
        let ttl = ttl.max(self.context.settings.lease_ttl_min());
        let granted = self
            .context
            .client
            .by(&caller)
            .lease_grant(request.id, ttl)
            .await;
        let (id, applied) = granted.map_err(status)?;
        if let Err(refusal) = &applied.reply.result {
            return Err(status(refusal.clone()));
        }
        let reply = pb::LeaseGrantResponse {
            header: self.context.header_of(&applied),
            id,
            ttl: seconds(ttl),
            error: String::new(),
        };
        Ok(respond_applied(reply, applied.index))
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let id = request.into_inner().id;
        let revoked = self.context.client.by(&caller).lease_revoke(id).await;
        let (_, applied) = revoked.map_err(status)?;
        let reply = pb::LeaseRevokeResponse {
            header: self.context.header_of(&applied),
        };
        Ok(respond_applied(reply, applied.index))
    }

    type LeaseKeepAliveStream = ReceiverStream<Result<pb::LeaseKeepAliveResponse, Status>>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        /// Replies that wait for a client that does not read.
        const WAITING_MAX: usize = 16;
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let needs_leader = needs_leader(request.metadata());
        let (sender, replies) = mpsc::channel(WAITING_MAX);
        let context = self.context.clone();
        let requests = request.into_inner();
        tokio::spawn(async move {
            let mut stopping = context.stopping();
            let mut losses = context.leader_losses();
            let end = tokio::select! {
                end = keep_alive(&context, &caller, requests, &sender) => end,
                _ = losses.changed(), if needs_leader => Some(Fault::NoLeader.into()),
                () = stopped(&mut stopping) => Some(Fault::Stopped.into()),
                () = sender.closed() => None,
            };
            if let Some(end) = end {
                // An error means that the client has disconnected.
                let _ = sender.send(Err(end)).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(replies)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let request = request.into_inner();
        let client = &self.context.client;
        let found = client
            .by(&caller)
            .lease_time_to_live(request.id, request.keys)
            .await;
        let reply = match found.map_err(status)? {
            Some(lease) => pb::LeaseTimeToLiveResponse {
                header: self.context.header_now(),
                id: request.id,
                ttl: lease.remaining.as_secs() as i64,
                granted_ttl: seconds(lease.granted),
                keys: lease.keys.into_iter().map(Into::into).collect(),
            },
            None => pb::LeaseTimeToLiveResponse {
                header: self.context.header_now(),
                id: request.id,
                ttl: -1,
                ..pb::LeaseTimeToLiveResponse::default()
            },
        };
        Ok(Response::new(reply))
    }

    async fn lease_leases(
        &self,
        request: Request<pb::LeaseLeasesRequest>,
    ) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let client = &self.context.client;
        let point = client.read_barrier(ReadLevel::Linearizable).await;
        let point = point.map_err(status)?;
        let mut leases = client.db().leases();
        // It tells of the leases of all.
        let checked = client.by(&caller).check(|each| {
            let access = Access::Read;
            let mut ids = leases.iter().map(|lease| lease.id.get());
            ids.try_for_each(|id| each(Need::KeysOfLease { access, id }))
        });
        checked.map_err(status)?;
        // The next to expire comes first.
        leases.sort_by_key(|lease| lease.remaining);
        let reply = pb::LeaseLeasesResponse {
            header: self.context.header_of_read(&point),
            leases: leases
                .iter()
                .map(|lease| pb::LeaseStatus { id: lease.id.get() })
                .collect(),
        };
        Ok(Response::new(reply))
    }
}

/// Answers keep-alives in order; `None` when the client has ended the stream.
async fn keep_alive(
    context: &Context,
    caller: &Caller,
    mut requests: Streaming<pb::LeaseKeepAliveRequest>,
    replies: &mpsc::Sender<Result<pb::LeaseKeepAliveResponse, Status>>,
) -> Option<Status> {
    loop {
        let id = match requests.message().await {
            Ok(Some(request)) => request.id,
            Ok(None) => return None,
            Err(status) => return Some(in_words_of_etcd(status)),
        };
        let ttl = match context.client.by(caller).lease_keep_alive(id).await {
            Ok(ttl) => ttl.map_or(0, renewed_seconds),
            Err(error) => return Some(status(error)),
        };
        let reply = pb::LeaseKeepAliveResponse {
            header: context.header_now(),
            id,
            ttl,
        };
        replies.send(Ok(reply)).await.ok()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_live_is_never_told_shorter_than_it_is() {
        assert_eq!(seconds(Duration::from_millis(2000)), 2);
        assert_eq!(seconds(Duration::from_millis(2001)), 3);
    }

    /// A renewal of a lease of 1,500 ms promised two seconds: its holder took it for alive half a second after it had ended.
    #[test]
    fn a_renewal_in_seconds_never_promises_more_than_the_lease_has() {
        assert_eq!(renewed_seconds(Duration::from_millis(2000)), 2);
        assert_eq!(renewed_seconds(Duration::from_millis(1500)), 1);
        assert_eq!(renewed_seconds(Duration::from_millis(1)), 1, "it is alive");
    }
}
