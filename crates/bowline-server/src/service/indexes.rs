//! `bowline.v1.Indexes`: the indexes of blocks.
//!
//! A creation waits for the building, which the cluster does by itself: a call that ends before, for its client or because this
//! server stops, leaves it under way. The list is of a state that is not older than the call, and has only the indexes of
//! kinds that the caller may read.

use std::sync::Arc;

use bowline::Index;
use bowline_cluster::{Error, ReadLevel};
use bowline_proto::v1 as pb;
use bowline_replica::{Caller, IndexRefusal, Need, Refusal, UsersRefusal};
use pb::indexes_server::Indexes;
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::reading::header;
use super::{check, check_size};
use crate::context::{Context, stopped};
use crate::status::{Fault, status};

/// The service of indexes.
#[derive(Debug, Clone)]
pub(crate) struct IndexesService {
    context: Arc<Context>,
}

impl IndexesService {
    pub(crate) fn new(context: Arc<Context>) -> IndexesService {
        IndexesService { context }
    }

    /// Who makes a change.
    async fn caller_of(
        &self,
        metadata: &MetadataMap,
        message_bytes: usize,
    ) -> Result<Caller, Status> {
        check(&self.context, metadata)?;
        check_size(&self.context, message_bytes)?;
        self.context.caller_of(metadata).await
    }

    /// Waits until this member's state is not older than the call.
    async fn catch_up(&self) -> Result<(), Status> {
        let barrier = self.context.client.read_barrier(ReadLevel::Linearizable);
        barrier.await.map(drop).map_err(status)
    }

    /// Whether a caller may read the blocks of a kind, in this member's state.
    fn may_read(&self, caller: &Caller, kind: &str) -> Result<bool, Status> {
        let client = self.context.client.by(caller);
        match client.check(|each| each(Need::read_kind(Some(kind)))) {
            Ok(()) => Ok(true),
            Err(Error::Refused(Refusal::Users(UsersRefusal::PermissionDenied))) => Ok(false),
            Err(error) => Err(status(error)),
        }
    }
}

fn to_wire(index: Index) -> pb::Index {
    pb::Index {
        kind: index.kind,
        attributes: index.attributes,
        unique: index.is_unique,
        ready_since: index.ready_since.map_or(0, bowline::Revision::get),
    }
}

#[tonic::async_trait]
impl Indexes for IndexesService {
    async fn create(
        &self,
        request: Request<pb::IndexCreateRequest>,
    ) -> Result<Response<pb::IndexCreateReply>, Status> {
        let (metadata, _, request) = request.into_parts();
        let caller = self.caller_of(&metadata, request.encoded_len()).await?;
        let pb::IndexCreateRequest {
            kind,
            attributes,
            unique,
        } = request;
        let client = self.context.client.by(&caller);
        let mut stopping = self.context.stopping();
        let applied = tokio::select! {
            created = client.create_index(kind.clone(), attributes.clone(), unique) => {
                created.map_err(status)?
            }
            () = stopped(&mut stopping) => return Err(Fault::Stopped.into()),
        };
        self.catch_up().await?;
        let mut all = self.context.client.indexes().into_iter();
        let Some(index) = all.find(|it| it.kind == kind && it.attributes == attributes) else {
            // It was dropped since.
            let attributes = attributes.join(", ");
            return Err(status(IndexRefusal::NotFound { kind, attributes }));
        };
        let (revision, term) = (applied.reply.revision, applied.term);
        Ok(Response::new(pb::IndexCreateReply {
            header: Some(header(&self.context, revision, term, applied.index)),
            index: Some(to_wire(index)),
        }))
    }

    async fn list(
        &self,
        request: Request<pb::IndexListRequest>,
    ) -> Result<Response<pb::IndexListReply>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        self.catch_up().await?;
        let client = &self.context.client;
        let known = client.status();
        let header = header(
            &self.context,
            known.revision,
            known.term,
            known.applied_index,
        );
        let mut indexes = Vec::new();
        for index in client.indexes() {
            if self.may_read(&caller, &index.kind)? {
                indexes.push(to_wire(index));
            }
        }
        Ok(Response::new(pb::IndexListReply {
            header: Some(header),
            indexes,
        }))
    }

    async fn drop(
        &self,
        request: Request<pb::IndexDropRequest>,
    ) -> Result<Response<pb::IndexDropReply>, Status> {
        let (metadata, _, request) = request.into_parts();
        let caller = self.caller_of(&metadata, request.encoded_len()).await?;
        let client = self.context.client.by(&caller);
        let dropped = client.drop_index(request.kind, request.attributes).await;
        let applied = dropped.map_err(status)?;
        let (revision, term) = (applied.reply.revision, applied.term);
        Ok(Response::new(pb::IndexDropReply {
            header: Some(header(&self.context, revision, term, applied.index)),
        }))
    }
}
