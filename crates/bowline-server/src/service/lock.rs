//! `v3lockpb.Lock`: locks that end with a lease. See [`super::queue`].
//!
//! A lock is advisory: a holder that is suspended past the end of its lease still acts as the holder. So a write that needs the
//! lock is a transaction that compares the create revision of the key that `Lock` returned.

use std::sync::Arc;

use bowline::Value;
use bowline_proto::v3lockpb as pb;
use bowline_replica::{Caller, DeleteRangeOp, Op, Txn};
use pb::lock_server::Lock;
use prost::Message;
use tonic::{Request, Response, Status};

use super::kv::write;
use super::{check, check_size, queue};
use crate::context::{Context, respond_applied};
use crate::status::Fault;

/// The lock service.
#[derive(Debug, Clone)]
pub(crate) struct LockService {
    context: Arc<Context>,
}

impl LockService {
    pub(crate) fn new(context: Arc<Context>) -> LockService {
        LockService { context }
    }

    async fn take(
        &self,
        caller: Caller,
        request: pb::LockRequest,
    ) -> Result<Response<pb::LockResponse>, Status> {
        check_size(&self.context, request.encoded_len())?;
        let value = Value::default();
        let entered =
            queue::enter(&self.context, caller, &request.name, request.lease, value).await?;
        let (place, header) = entered.turn(Fault::SessionExpired).await?;
        let key = place.key.clone().into();
        place.keep();
        Ok(Response::new(pb::LockResponse { header, key }))
    }

    async fn give_back(
        &self,
        caller: &Caller,
        request: pb::UnlockRequest,
    ) -> Result<Response<pb::UnlockResponse>, Status> {
        check_size(&self.context, request.encoded_len())?;
        if request.key.is_empty() {
            return Err(Fault::KeyNotProvided.into());
        }
        let delete = Op::DeleteRange(DeleteRangeOp {
            key: request.key.into(),
            ..DeleteRangeOp::default()
        });
        let (_, applied) = write(&self.context, caller, Txn::of(delete)).await?;
        let header = self.context.header_of(&applied);
        Ok(respond_applied(
            pb::UnlockResponse { header },
            applied.index,
        ))
    }
}

#[tonic::async_trait]
impl Lock for LockService {
    async fn lock(
        &self,
        request: Request<pb::LockRequest>,
    ) -> Result<Response<pb::LockResponse>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let taken = self.take(caller, request.into_inner()).await;
        taken.map_err(queue::without_code)
    }

    async fn unlock(
        &self,
        request: Request<pb::UnlockRequest>,
    ) -> Result<Response<pb::UnlockResponse>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let given_back = self.give_back(&caller, request.into_inner()).await;
        given_back.map_err(queue::without_code)
    }
}
