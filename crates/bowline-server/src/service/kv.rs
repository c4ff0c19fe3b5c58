//! `etcdserverpb.KV`: reads, writes, transactions, compaction.

use std::sync::Arc;

use bowline::Revision;
use bowline_cluster::{Applied, ReadLevel, blocking, command_bytes};
use bowline_proto::etcdserverpb as pb;
use bowline_replica::{
    AlarmKind, Caller, Command, Need, Op, OpReply, Outcome, Txn, TxnReply, needs_of_txn,
};
use pb::kv_server::Kv;
use prost::Message;
use tonic::{Request, Response, Status};

use super::answer::{Answer, Terms};
use super::encoded::encode_if_large;
use super::reading::turn_within;
use super::reserved::{Reserved, may_read, reserve};
use super::stream::Stepwise;
use super::{
    MAINTENANCE_WAIT_MAX, check, check_leader_if, check_member, check_size, long_range,
    range_stream,
};
use crate::context::{Context, respond_applied};
use crate::convert;
use crate::memory::{Charge, current_account};
use crate::status::{Fault, status};

/// The key-value service.
#[derive(Debug, Clone)]
pub(crate) struct KvService {
    context: Arc<Context>,
}

impl KvService {
    pub(crate) fn new(context: Arc<Context>) -> KvService {
        KvService { context }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Checks the size of a write; reads may be as large as a message.
    fn check_size(&self, bytes: usize) -> Result<(), Status> {
        check_size(&self.context, bytes)
    }

    /// Executes a transaction, with memory for its reply that is held until the message is made. Its rights are checked
    /// before anything is read to measure the reply; where nothing is, the execution checks them.
    async fn write(
        &self,
        caller: &Caller,
        txn: Txn,
    ) -> Result<(TxnReply, Applied, Option<Reserved>), Status> {
        let mut reserved = None;
        if may_read(&txn) {
            let client = self.context.client.by(caller);
            let checked = client.check_newest(&|each| needs_of_txn(&txn, each)).await;
            checked.map_err(status)?;
            reserved = reserve(&self.context, &txn).await?;
        }
        let (reply, applied) = write(&self.context, caller, txn).await?;
        Ok((reply, applied, reserved))
    }

    /// Executes one operation.
    async fn write_one(
        &self,
        caller: &Caller,
        op: Op,
    ) -> Result<(OpReply, Applied, Option<Reserved>), Status> {
        let (mut reply, applied, reserved) = self.write(caller, Txn::of(op)).await?;
        let reply = reply.replies.pop().ok_or_else(foreign_reply)?;
        Ok((reply, applied, reserved))
    }

    /// Checks whether a read of this level can be served now.
    fn check_read(&self, terms: &Terms, level: ReadLevel) -> Result<(), Status> {
        match level {
            ReadLevel::Eventual => check_leader_if(&self.context, terms.needs_leader),
            ReadLevel::Linearizable | ReadLevel::Lease => {
                check_member(&self.context, terms.needs_leader)
            }
        }
    }

    /// `Range`.
    pub(crate) async fn read(
        &self,
        terms: Terms,
        request: pb::RangeRequest,
    ) -> Result<Answer<pb::RangeResponse>, Status> {
        let level = terms.level(request.serializable);
        self.check_read(&terms, level)?;
        let op = convert::range_op(request)?;
        let caller = self.context.caller(&terms.credentials).await?;
        if long_range::is_wide(&op) {
            // Its future is large, and most reads are not wide.
            return Box::pin(long_range::range(&self.context, &caller, op, level)).await;
        }
        let read = self
            .context
            .client
            .by(&caller)
            .range(&op, level)
            .await
            .map_err(status)?;
        let reply = pb::RangeResponse {
            header: self.context.header_of_read(&read.point),
            ..convert::range_reply(read.value)
        };
        Ok(Answer::of_read(reply, &read.point))
    }

    /// `Put`.
    pub(crate) async fn put_one(
        &self,
        terms: Terms,
        request: pb::PutRequest,
    ) -> Result<Answer<pb::PutResponse>, Status> {
        check_member(&self.context, terms.needs_leader)?;
        let bytes = request.encoded_len();
        let op = Op::Put(convert::put_op(request)?);
        self.check_size(bytes)?;
        let caller = self.context.caller(&terms.credentials).await?;
        let written = self.write_one(&caller, op).await?;
        let (OpReply::Put(previous), applied, _reserved) = written else {
            return Err(foreign_reply());
        };
        let reply = pb::PutResponse {
            header: self.context.header_of(&applied),
            ..convert::put_reply(previous)
        };
        Ok(Answer::of_change(reply, applied.index))
    }

    /// `DeleteRange`.
    pub(crate) async fn delete(
        &self,
        terms: Terms,
        request: pb::DeleteRangeRequest,
    ) -> Result<Answer<pb::DeleteRangeResponse>, Status> {
        check_member(&self.context, terms.needs_leader)?;
        let bytes = request.encoded_len();
        let op = Op::DeleteRange(convert::delete_op(request)?);
        self.check_size(bytes)?;
        let caller = self.context.caller(&terms.credentials).await?;
        let written = self.write_one(&caller, op).await?;
        let (OpReply::DeleteRange { deleted, previous }, applied, _reserved) = written else {
            return Err(foreign_reply());
        };
        let reply = pb::DeleteRangeResponse {
            header: self.context.header_of(&applied),
            ..convert::delete_reply(deleted, previous)
        };
        encode_if_large(&self.context, Answer::of_change(reply, applied.index)).await
    }

    /// `Txn`.
    pub(crate) async fn transact(
        &self,
        terms: Terms,
        request: pb::TxnRequest,
    ) -> Result<Answer<pb::TxnResponse>, Status> {
        check_member(&self.context, terms.needs_leader)?;
        let level = terms.level(all_serializable(&request));
        let bytes = request.encoded_len();
        let txn = convert::txn(request, self.context.settings.txn_operations_max)?;
        let caller = self.context.caller(&terms.credentials).await?;
        if is_read(&txn) {
            let client = self.context.client.by(&caller);
            client
                .check_newest(&|each| needs_of_txn(&txn, each))
                .await
                .map_err(status)?;
            let _reserved = reserve(&self.context, &txn).await?;
            let read = client.read_txn(&txn, level).await;
            let read = read.map_err(status)?;
            let reply = pb::TxnResponse {
                header: self.context.header_of_read(&read.point),
                ..convert::txn_reply(read.value, read.point.revision)
            };
            return encode_if_large(&self.context, Answer::of_read(reply, &read.point)).await;
        }
        self.check_size(bytes)?;
        let (reply, applied, _reserved) = self.write(&caller, txn).await?;
        let reply = pb::TxnResponse {
            header: self.context.header_of(&applied),
            ..convert::txn_reply(reply, applied.reply.revision)
        };
        encode_if_large(&self.context, Answer::of_change(reply, applied.index)).await
    }
}

/// Executes a command. Its memory is charged to the connection while it waits, if it is large: the number of calls is
/// bounded.
pub(super) async fn execute(
    context: &Context,
    caller: &Caller,
    command: Command,
) -> Result<Applied, Status> {
    const LARGE_BYTES: usize = 4 << 10;
    let bytes = command_bytes(&command);
    let _charge = match bytes >= LARGE_BYTES {
        true => Some(Charge::of(&current_account(&context.memory), bytes)?),
        false => None,
    };
    let client = context.client.by(caller);
    client.execute(command).await.map_err(status)
}

/// Executes a transaction.
pub(super) async fn write(
    context: &Context,
    caller: &Caller,
    txn: Txn,
) -> Result<(TxnReply, Applied), Status> {
    let mut applied = execute(context, caller, Command::Txn(txn)).await?;
    match std::mem::replace(&mut applied.reply.result, Ok(Outcome::Done)) {
        Ok(Outcome::Txn(reply)) => Ok((reply, applied)),
        Ok(_) => Err(foreign_reply()),
        Err(refusal) => Err(status(refusal)),
    }
}

/// The node's reply is of another kind than the request.
pub(super) fn foreign_reply() -> Status {
    Fault::Internal("the reply does not belong to the request".to_owned()).into()
}

#[tonic::async_trait]
impl Kv for KvService {
    async fn range(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<pb::RangeResponse>, Status> {
        let terms = Terms::of(request.metadata(), request.get_ref().serializable)?;
        let answer = self.read(terms, request.into_inner()).await?;
        Ok(answer.into_response())
    }

    type RangeStreamStream = Stepwise<pb::RangeStreamResponse>;

    async fn range_stream(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        let terms = Terms::of(request.metadata(), request.get_ref().serializable)?;
        let level = terms.level(request.get_ref().serializable);
        self.check_read(&terms, level)?;
        let op = convert::range_op(request.into_inner())?;
        let caller = self.context.caller(&terms.credentials).await?;
        range_stream::stream(&self.context, &caller, op, level).await
    }

    async fn put(
        &self,
        request: Request<pb::PutRequest>,
    ) -> Result<Response<pb::PutResponse>, Status> {
        let terms = Terms::of_change(request.metadata());
        let answer = self.put_one(terms, request.into_inner()).await?;
        Ok(answer.into_response())
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        let terms = Terms::of_change(request.metadata());
        let answer = self.delete(terms, request.into_inner()).await?;
        Ok(answer.into_response())
    }

    async fn txn(
        &self,
        request: Request<pb::TxnRequest>,
    ) -> Result<Response<pb::TxnResponse>, Status> {
        check(&self.context, request.metadata())?;
        let terms = Terms::of(request.metadata(), all_serializable(request.get_ref()))?;
        let answer = self.transact(terms, request.into_inner()).await?;
        Ok(answer.into_response())
    }

    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let client = self.context.client.by(&caller);
        client
            .check_newest(&|each| each(Need::Root))
            .await
            .map_err(status)?;
        let request = request.into_inner();
        // A negative revision counts as already compacted.
        let Ok(revision) = u64::try_from(request.revision) else {
            let alarms = self.context.client.alarms();
            let is_corrupt = alarms.iter().any(|(_, kind)| *kind == AlarmKind::Corrupt);
            return Err(match is_corrupt {
                true => Fault::CorruptCluster.into(),
                false => Fault::Compacted.into(),
            });
        };
        let command = Command::Compact {
            revision: Revision::new(revision),
        };
        // Before anything is agreed on: a refusal means that nothing was done.
        let turn = match request.physical {
            true => Some(turn_within(&self.context.maintenance, MAINTENANCE_WAIT_MAX).await?),
            false => None,
        };
        let applied = client.execute(command).await;
        let applied = applied.map_err(status)?;
        if let Err(refusal) = &applied.reply.result {
            return Err(status(refusal.clone()));
        }
        if let Some(turn) = turn {
            let db = self.context.client.db().clone();
            let merged = blocking::spawn(move || {
                let _turn = turn;
                db.compact()
            })
            .await;
            merged
                .map_err(|error| Fault::Internal(error.to_string()))?
                .map_err(status)?;
        }
        let reply = pb::CompactionResponse {
            header: self.context.header_of(&applied),
        };
        Ok(respond_applied(reply, applied.index))
    }
}

/// Whether a transaction only reads. As in etcd, one with a nested transaction is proposed whatever that
/// does: for example, it is refused while the data of members differs, and when it is too large.
fn is_read(txn: &Txn) -> bool {
    let mut ops = txn.success.iter().chain(&txn.failure);
    ops.all(|op| matches!(op, Op::Range(_)))
}

/// Whether every read of a transaction is serializable.
fn all_serializable(txn: &pb::TxnRequest) -> bool {
    use pb::request_op::Request as Op;
    let is_serializable = |op: &pb::RequestOp| match &op.request {
        Some(Op::RequestRange(range)) => range.serializable,
        _ => false,
    };
    let mut ops = txn.success.iter().chain(&txn.failure).peekable();
    ops.peek().is_some() && ops.all(is_serializable)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::test_server::TestServer;

    /// A physical compaction waited for its turn after all members had agreed on it: where the turn did not
    /// come, it was refused with "too many requests", and the history was gone all the same. Found by review.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_physical_compaction_takes_its_turn_before_it_is_agreed_on() {
        let server = TestServer::start().await;
        let service = KvService::new(server.context().clone());
        for value in ["a", "b"] {
            let put = pb::PutRequest {
                key: "k".into(),
                value: value.into(),
                ..pb::PutRequest::default()
            };
            service.put(Request::new(put)).await.unwrap();
        }
        let turn = server.context().maintenance.clone();
        let turn = turn.acquire_owned().await.unwrap();
        let mut compacting = Box::pin(service.compact(Request::new(pb::CompactionRequest {
            revision: 3,
            physical: true,
        })));
        // As long as a command may take to be applied here, and much less than the turn is waited for.
        let waited = tokio::time::timeout(Duration::from_secs(1), &mut compacting).await;
        assert!(waited.is_err(), "it has its turn");
        let old = pb::RangeRequest {
            key: "k".into(),
            revision: 2,
            ..pb::RangeRequest::default()
        };
        let read = service.range(Request::new(old.clone())).await;
        assert_eq!(read.unwrap().into_inner().kvs[0].value, "a");
        drop(turn);
        compacting.await.unwrap();
        let gone = service.range(Request::new(old)).await.unwrap_err();
        assert_eq!(gone.code(), tonic::Code::OutOfRange);
    }
}
