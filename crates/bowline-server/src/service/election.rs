//! `v3electionpb.Election`: leader election by leases. See [`super::queue`].

use std::sync::Arc;

use bowline::{Revision, Value};
use bowline_cluster::{Applied, Read, ReadLevel};
use bowline_proto::etcdserverpb::ResponseHeader;
use bowline_proto::mvccpb::KeyValue;
use bowline_proto::mvccpb::event::EventType;
use bowline_proto::v3electionpb as pb;
use bowline_replica::{RangeReply, Txn, TxnReply};
use pb::election_server::Election;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::kv::write;
use super::{check, check_size, needs_leader, queue};
use crate::context::{Context, respond_applied, respond_read, stopped};
use crate::convert;
use crate::status::{Fault, status};
use crate::watch::{Kinds, OwnWatch};

/// The election service.
#[derive(Debug, Clone)]
pub(crate) struct ElectionService {
    context: Arc<Context>,
}

impl ElectionService {
    pub(crate) fn new(context: Arc<Context>) -> ElectionService {
        ElectionService { context }
    }

    /// Executes a transaction on behalf of a leader.
    async fn write_as(
        &self,
        leader: &pb::LeaderKey,
        txn: impl FnOnce(&[u8], Revision) -> Txn,
    ) -> Result<(TxnReply, Applied), Status> {
        if leader.key.is_empty() {
            return Err(Fault::KeyNotProvided.into());
        }
        // No create revision is negative, so a negative one matches none.
        let revision = u64::try_from(leader.rev).unwrap_or(u64::MAX);
        write(&self.context, txn(&leader.key, Revision::new(revision))).await
    }

    async fn stand(
        &self,
        request: pb::CampaignRequest,
    ) -> Result<Response<pb::CampaignResponse>, Status> {
        check_size(&self.context, request.encoded_len())?;
        let value = Value::from(request.value);
        let (name, lease) = (&request.name, request.lease);
        let entered = queue::enter(&self.context, name, lease, value).await?;
        let header = entered.header;
        let (place, _) = entered.turn(Fault::NotElected).await?;
        let leader = pb::LeaderKey {
            name: request.name,
            key: place.key.clone().into(),
            rev: place.create_revision.get() as i64,
            lease: place.lease,
        };
        place.keep();
        let leader = Some(leader);
        Ok(Response::new(pb::CampaignResponse { header, leader }))
    }

    async fn tell(
        &self,
        request: pb::ProclaimRequest,
    ) -> Result<Response<pb::ProclaimResponse>, Status> {
        check_size(&self.context, request.encoded_len())?;
        let pb::ProclaimRequest { leader, value } = request;
        let leader = leader.ok_or(Fault::LeaderKeyMissing)?;
        let lease = queue::lease_of(&self.context, leader.lease).await?;
        let put = |key: &[u8], revision| queue::put_if(key, revision, value.into(), lease);
        let (reply, applied) = self.write_as(&leader, put).await?;
        if !reply.succeeded {
            return Err(Fault::NotElected.into());
        }
        let header = self.context.header_of(&applied);
        Ok(respond_applied(
            pb::ProclaimResponse { header },
            applied.index,
        ))
    }

    async fn first_of(
        &self,
        request: pb::LeaderRequest,
    ) -> Result<Response<pb::LeaderResponse>, Status> {
        let prefix = queue::prefix(&request.name);
        let mut read = first(&self.context, &prefix).await?;
        let leader = read.value.entries.pop().ok_or(Fault::NobodyElected)?;
        let reply = pb::LeaderResponse {
            header: self.context.header_of_read(&read.point),
            kv: Some(convert::key_value(leader)),
        };
        Ok(respond_read(reply, &read.point))
    }

    async fn step_down(
        &self,
        request: pb::ResignRequest,
    ) -> Result<Response<pb::ResignResponse>, Status> {
        check_size(&self.context, request.encoded_len())?;
        let leader = request.leader;
        let leader = leader.ok_or(Fault::LeaderKeyMissing)?;
        // A former leader has nothing to resign, which is fine.
        let (_, applied) = self.write_as(&leader, queue::delete_if).await?;
        let header = self.context.header_of(&applied);
        Ok(respond_applied(
            pb::ResignResponse { header },
            applied.index,
        ))
    }
}

/// The present first key of a queue.
async fn first(context: &Context, prefix: &[u8]) -> Result<Read<RangeReply>, Status> {
    let first = queue::first_of(prefix);
    let read = context.client.range(&first, ReadLevel::Linearizable);
    read.await.map_err(status)
}

#[tonic::async_trait]
impl Election for ElectionService {
    async fn campaign(
        &self,
        request: Request<pb::CampaignRequest>,
    ) -> Result<Response<pb::CampaignResponse>, Status> {
        check(&self.context, request.metadata())?;
        let reply = self.stand(request.into_inner()).await;
        reply.map_err(queue::without_code)
    }

    async fn proclaim(
        &self,
        request: Request<pb::ProclaimRequest>,
    ) -> Result<Response<pb::ProclaimResponse>, Status> {
        check(&self.context, request.metadata())?;
        let reply = self.tell(request.into_inner()).await;
        reply.map_err(queue::without_code)
    }

    async fn leader(
        &self,
        request: Request<pb::LeaderRequest>,
    ) -> Result<Response<pb::LeaderResponse>, Status> {
        check(&self.context, request.metadata())?;
        let reply = self.first_of(request.into_inner()).await;
        reply.map_err(queue::without_code)
    }

    type ObserveStream = ReceiverStream<Result<pb::LeaderResponse, Status>>;

    async fn observe(
        &self,
        request: Request<pb::LeaderRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        /// Replies that wait for a client that does not read.
        const WAITING_MAX: usize = 16;
        check(&self.context, request.metadata())?;
        let needs_leader = needs_leader(request.metadata());
        let (sender, replies) = mpsc::channel(WAITING_MAX);
        let context = self.context.clone();
        let prefix = queue::prefix(&request.into_inner().name);
        tokio::spawn(async move {
            let mut stopping = context.stopping();
            let mut losses = context.leader_losses();
            let end = tokio::select! {
                end = observe(&context, &prefix, &sender) => end,
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

    async fn resign(
        &self,
        request: Request<pb::ResignRequest>,
    ) -> Result<Response<pb::ResignResponse>, Status> {
        check(&self.context, request.metadata())?;
        let reply = self.step_down(request.into_inner()).await;
        reply.map_err(queue::without_code)
    }
}

type Replies = mpsc::Sender<Result<pb::LeaderResponse, Status>>;

/// Sends each leader and its values, in order; `None` when the client has disconnected. Leaders that came and
/// went between two reads may be left out; the newest never is.
async fn observe(context: &Context, prefix: &[u8], replies: &Replies) -> Option<Status> {
    loop {
        match observe_one(context, prefix, replies).await {
            Ok(true) => {}
            Ok(false) => return None,
            Err(status) => return Some(status),
        }
    }
}

/// Sends one leader's values until its key is deleted; false when the client has disconnected.
async fn observe_one(context: &Context, prefix: &[u8], replies: &Replies) -> Result<bool, Status> {
    let mut read = first(context, prefix).await?;
    let (mut header, leader) = match read.value.entries.pop() {
        Some(entry) => (
            context.header_of_read(&read.point),
            convert::key_value(entry),
        ),
        None => match next_leader(context, prefix, read.point.revision + 1).await? {
            Some(leader) => (
                context.header(Revision::new(leader.mod_revision as u64), context.term()),
                leader,
            ),
            None => return Ok(true),
        },
    };
    let key = leader.key.clone();
    let told = header.as_ref().map_or(0, |header| header.revision as u64);
    if !send(replies, header, leader).await {
        return Ok(false);
    }
    let mut watch = OwnWatch::start(
        &context.watches,
        &[(&key, b"")],
        Revision::new(told + 1),
        Kinds::All,
    );
    while let Some(changed) = watch.next().await? {
        header = context.header(changed.revision, context.term());
        for event in changed.events {
            match (event.r#type(), event.kv) {
                (EventType::Put, Some(kv)) => {
                    if !send(replies, header, kv).await {
                        return Ok(false);
                    }
                }
                _ => return Ok(true),
            }
        }
    }
    Ok(true)
}

/// Waits for the first key of a queue; `None` when it has to be read.
async fn next_leader(
    context: &Context,
    prefix: &[u8],
    from: Revision,
) -> Result<Option<KeyValue>, Status> {
    let end = queue::prefix_end(prefix);
    let mut watch = OwnWatch::start(&context.watches, &[(prefix, &end)], from, Kinds::Puts);
    let changed = watch.next().await?;
    let first = changed.and_then(|changed| changed.events.into_iter().next());
    Ok(first.and_then(|event| event.kv))
}

/// False when the client has disconnected.
async fn send(replies: &Replies, header: Option<ResponseHeader>, kv: KeyValue) -> bool {
    let reply = pb::LeaderResponse {
        header,
        kv: Some(kv),
    };
    replies.send(Ok(reply)).await.is_ok()
}
