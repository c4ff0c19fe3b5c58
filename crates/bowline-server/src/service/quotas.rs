//! `bowline.v1.Quotas`: the quotas of prefixes.
//!
//! Changes are commands; the list is of a state that is not older than the call, and so is the right to see it.

use std::sync::Arc;

use bowline_cluster::{Applied, ReadLevel};
use bowline_proto::v1 as pb;
use bowline_replica::{Need, QuotaChange, QuotaLimits};
use bytes::Bytes;
use pb::quotas_server::Quotas;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::check;
use super::reading::header;
use crate::context::Context;
use crate::status::status;

/// The service of quotas.
#[derive(Debug, Clone)]
pub(crate) struct QuotasService {
    context: Arc<Context>,
}

impl QuotasService {
    pub(crate) fn new(context: Arc<Context>) -> QuotasService {
        QuotasService { context }
    }

    /// Makes a change on behalf of a call.
    async fn change(
        &self,
        metadata: &MetadataMap,
        change: QuotaChange,
    ) -> Result<pb::Header, Status> {
        check(&self.context, metadata)?;
        let caller = self.context.caller_of(metadata).await?;
        let client = self.context.client.by(&caller);
        let Applied { reply, index, term } = client.change_quota(change).await.map_err(status)?;
        Ok(header(&self.context, reply.revision, term, index))
    }
}

#[tonic::async_trait]
impl Quotas for QuotasService {
    async fn set(
        &self,
        request: Request<pb::QuotaSetRequest>,
    ) -> Result<Response<pb::QuotaSetReply>, Status> {
        let (metadata, _, request) = request.into_parts();
        let limits = request.limits.unwrap_or_default();
        let change = QuotaChange::Set {
            prefix: request.prefix.into(),
            limits: QuotaLimits {
                keys: limits.keys,
                bytes: limits.bytes,
            },
        };
        let header = Some(self.change(&metadata, change).await?);
        Ok(Response::new(pb::QuotaSetReply { header }))
    }

    async fn list(
        &self,
        request: Request<pb::QuotaListRequest>,
    ) -> Result<Response<pb::QuotaListReply>, Status> {
        check(&self.context, request.metadata())?;
        let client = &self.context.client;
        let barrier = client.read_barrier(ReadLevel::Linearizable);
        barrier.await.map_err(status)?;
        let known = client.status();
        let header = header(
            &self.context,
            known.revision,
            known.term,
            known.applied_index,
        );
        let quotas = client.quotas();
        let caller = self.context.caller_of(request.metadata()).await?;
        let checked = client.by(&caller).check(|each| each(Need::Root));
        checked.map_err(status)?;
        let quotas = quotas.into_iter().map(|quota| pb::Quota {
            prefix: Bytes::from(quota.prefix),
            limits: Some(pb::QuotaLimits {
                keys: quota.limits.keys,
                bytes: quota.limits.bytes,
            }),
            used_keys: quota.used.keys,
            used_bytes: quota.used.bytes,
        });
        Ok(Response::new(pb::QuotaListReply {
            header: Some(header),
            quotas: quotas.collect(),
        }))
    }

    async fn remove(
        &self,
        request: Request<pb::QuotaRemoveRequest>,
    ) -> Result<Response<pb::QuotaRemoveReply>, Status> {
        let (metadata, _, request) = request.into_parts();
        let prefix = request.prefix.into();
        let change = QuotaChange::Remove { prefix };
        let header = Some(self.change(&metadata, change).await?);
        Ok(Response::new(pb::QuotaRemoveReply { header }))
    }
}
