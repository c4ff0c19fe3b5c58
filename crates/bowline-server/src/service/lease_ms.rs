//! `bowline.v1.Lease`: leases as in etcd's service, in milliseconds.

use std::sync::Arc;
use std::time::Duration;

use bowline_cluster::ReadLevel;
use bowline_proto::v1 as pb;
use bowline_replica::is_valid_ttl;
use pb::lease_server::Lease;
use tonic::{Request, Response, Status};

use super::check;
use super::reading::header;
use crate::context::{Context, respond_applied};
use crate::status::{Fault, status};

/// The lease service in milliseconds.
#[derive(Debug, Clone)]
pub(crate) struct MsLeaseService {
    context: Arc<Context>,
}

impl MsLeaseService {
    pub(crate) fn new(context: Arc<Context>) -> MsLeaseService {
        MsLeaseService { context }
    }

    /// The reply header for this member's present state.
    async fn header_now(&self) -> Result<pb::Header, Status> {
        let point = self.context.client.read_barrier(ReadLevel::Eventual).await;
        let point = point.map_err(status)?;
        let (revision, index) = (point.revision, point.applied_index);
        Ok(header(&self.context, revision, point.term, index))
    }
}

/// A TTL in milliseconds, rounded up.
fn ms_up(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn ms_down(left: Duration) -> u64 {
    u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
}

#[tonic::async_trait]
impl Lease for MsLeaseService {
    async fn grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantReply>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let request = request.into_inner();
        if request.id < 0 {
            return Err(Fault::Invalid("a lease's id is above 0, or 0 to have one chosen").into());
        }
        let ttl = Duration::from_millis(request.ttl_ms);
        if !is_valid_ttl(ttl) {
            return Err(Fault::Invalid(
                "the time to live is out of bounds: give 1 to 9,000,000,000,000 ms",
            )
            .into());
        }
        let granted = self
            .context
            .client
            .by(&caller)
            .lease_grant(request.id, ttl)
            .await;
        let (id, applied) = granted.map_err(status)?;
        let (revision, term) = (applied.reply.revision, applied.term);
        let reply = pb::LeaseGrantReply {
            header: Some(header(&self.context, revision, term, applied.index)),
            id,
            ttl_ms: ms_up(ttl),
        };
        Ok(respond_applied(reply, applied.index))
    }

    async fn keep_alive(
        &self,
        request: Request<pb::LeaseKeepAliveRequest>,
    ) -> Result<Response<pb::LeaseKeepAliveReply>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let id = request.into_inner().id;
        let kept = self.context.client.by(&caller).lease_keep_alive(id).await;
        let ttl = kept.map_err(status)?.ok_or(Fault::LeaseNotFound)?;
        Ok(Response::new(pb::LeaseKeepAliveReply {
            header: Some(self.header_now().await?),
            id,
            ttl_ms: ms_up(ttl),
        }))
    }

    async fn time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveReply>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let request = request.into_inner();
        let client = &self.context.client;
        let found = client
            .by(&caller)
            .lease_time_to_live(request.id, request.keys)
            .await;
        let lease = found.map_err(status)?.ok_or(Fault::LeaseNotFound)?;
        Ok(Response::new(pb::LeaseTimeToLiveReply {
            header: Some(self.header_now().await?),
            id: request.id,
            granted_ttl_ms: ms_up(lease.granted),
            remaining_ms: ms_down(lease.remaining),
            keys: lease.keys.into_iter().map(Into::into).collect(),
        }))
    }

    async fn revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeReply>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let id = request.into_inner().id;
        let revoked = self.context.client.by(&caller).lease_revoke(id).await;
        let (deleted, applied) = revoked.map_err(status)?;
        let (revision, term) = (applied.reply.revision, applied.term);
        let reply = pb::LeaseRevokeReply {
            header: Some(header(&self.context, revision, term, applied.index)),
            deleted,
        };
        Ok(respond_applied(reply, applied.index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_never_told_shorter_and_the_rest_never_longer_than_it_is() {
        let odd = Duration::from_micros(1_500);
        assert_eq!((ms_up(odd), ms_down(odd)), (2, 1));
        let even = Duration::from_millis(7);
        assert_eq!((ms_up(even), ms_down(even)), (7, 7));
    }
}
