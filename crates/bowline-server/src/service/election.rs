//! `v3electionpb.Election`: leader election by leases. See [`super::queue`].

use std::sync::Arc;

use bowline::{Revision, Value};
use bowline_cluster::{Applied, Read, ReadLevel};
use bowline_proto::etcdserverpb::ResponseHeader;
use bowline_proto::mvccpb::KeyValue;
use bowline_proto::mvccpb::event::EventType;
use bowline_proto::v3electionpb as pb;
use bowline_replica::{Caller, Need, RangeReply, Txn, TxnReply};
use pb::election_server::Election;
use prost::Message;
use tonic::{Request, Response, Status};

use super::kv::write;
use super::stream::{Ended, Replies, ReplySender, one_by_one};
use super::{check, check_size, needs_leader, queue};
use crate::context::{Context, respond_applied, respond_read, stopped};
use crate::convert;
use crate::memory::current_account;
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
        caller: &Caller,
        leader: &pb::LeaderKey,
        txn: impl FnOnce(&[u8], Revision) -> Txn,
    ) -> Result<(TxnReply, Applied), Status> {
        if leader.key.is_empty() {
            return Err(Fault::KeyNotProvided.into());
        }
        // No create revision is negative, so a negative one matches none.
        let revision = u64::try_from(leader.rev).unwrap_or(u64::MAX);
        let txn = txn(&leader.key, Revision::new(revision));
        write(&self.context, caller, txn).await
    }

    async fn stand(
        &self,
        caller: Caller,
        request: pb::CampaignRequest,
    ) -> Result<Response<pb::CampaignResponse>, Status> {
        check_size(&self.context, request.encoded_len())?;
        let value = Value::from(request.value);
        let (name, lease) = (&request.name, request.lease);
        let entered = queue::enter(&self.context, caller, name, lease, value).await?;
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
        caller: &Caller,
        request: pb::ProclaimRequest,
    ) -> Result<Response<pb::ProclaimResponse>, Status> {
        check_size(&self.context, request.encoded_len())?;
        let pb::ProclaimRequest { leader, value } = request;
        let leader = leader.ok_or(Fault::LeaderKeyMissing)?;
        let lease = queue::lease_of(&self.context, caller, leader.lease).await?;
        let put = |key: &[u8], revision| queue::put_if(key, revision, value.into(), lease);
        let (reply, applied) = self.write_as(caller, &leader, put).await?;
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
        caller: &Caller,
        request: pb::LeaderRequest,
    ) -> Result<Response<pb::LeaderResponse>, Status> {
        let prefix = queue::prefix(&request.name);
        let mut read = first(&self.context, caller, &prefix).await?;
        let leader = read.value.entries.pop().ok_or(Fault::NobodyElected)?;
        let reply = pb::LeaderResponse {
            header: self.context.header_of_read(&read.point),
            kv: Some(convert::key_value(leader)),
        };
        Ok(respond_read(reply, &read.point))
    }

    async fn step_down(
        &self,
        caller: &Caller,
        request: pb::ResignRequest,
    ) -> Result<Response<pb::ResignResponse>, Status> {
        check_size(&self.context, request.encoded_len())?;
        let leader = request.leader;
        let leader = leader.ok_or(Fault::LeaderKeyMissing)?;
        // A former leader has nothing to resign, which is fine.
        let (_, applied) = self.write_as(caller, &leader, queue::delete_if).await?;
        let header = self.context.header_of(&applied);
        Ok(respond_applied(
            pb::ResignResponse { header },
            applied.index,
        ))
    }
}

/// The present first key of a queue.
async fn first(
    context: &Context,
    caller: &Caller,
    prefix: &[u8],
) -> Result<Read<RangeReply>, Status> {
    let first = queue::first_of(prefix);
    let client = context.client.by(caller);
    let read = client.range(&first, ReadLevel::Linearizable);
    read.await.map_err(status)
}

#[tonic::async_trait]
impl Election for ElectionService {
    async fn campaign(
        &self,
        request: Request<pb::CampaignRequest>,
    ) -> Result<Response<pb::CampaignResponse>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let reply = self.stand(caller, request.into_inner()).await;
        reply.map_err(queue::without_code)
    }

    async fn proclaim(
        &self,
        request: Request<pb::ProclaimRequest>,
    ) -> Result<Response<pb::ProclaimResponse>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let reply = self.tell(&caller, request.into_inner()).await;
        reply.map_err(queue::without_code)
    }

    async fn leader(
        &self,
        request: Request<pb::LeaderRequest>,
    ) -> Result<Response<pb::LeaderResponse>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let reply = self.first_of(&caller, request.into_inner()).await;
        reply.map_err(queue::without_code)
    }

    type ObserveStream = Replies<pb::LeaderResponse>;

    async fn observe(
        &self,
        request: Request<pb::LeaderRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let needs_leader = needs_leader(request.metadata());
        let (sender, replies) = one_by_one(current_account(&self.context.memory));
        let context = self.context.clone();
        let prefix = queue::prefix(&request.into_inner().name);
        tokio::spawn(async move {
            let mut stopping = context.stopping();
            let mut losses = context.leader_losses();
            let end = tokio::select! {
                end = observe(&context, &caller, &prefix, &sender) => end,
                _ = losses.changed(), if needs_leader => Ended::Failed(Fault::NoLeader.into()),
                () = stopped(&mut stopping) => Ended::Failed(Fault::Stopped.into()),
                () = sender.closed() => Ended::Gone,
            };
            if let Ended::Failed(status) = end {
                sender.fail(status).await;
            }
        });
        Ok(Response::new(replies))
    }

    async fn resign(
        &self,
        request: Request<pb::ResignRequest>,
    ) -> Result<Response<pb::ResignResponse>, Status> {
        check(&self.context, request.metadata())?;
        let caller = self.context.caller_of(request.metadata()).await?;
        let reply = self.step_down(&caller, request.into_inner()).await;
        reply.map_err(queue::without_code)
    }
}

/// The memory of a waiting reply, in addition to its key and value.
const REPLY_BYTES: usize = 256;

type Sender = ReplySender<pb::LeaderResponse>;

/// Sends each leader and its values, in order, until that ends. Leaders that came and went between two reads
/// may be left out; the newest never is.
async fn observe(context: &Context, caller: &Caller, prefix: &[u8], replies: &Sender) -> Ended {
    loop {
        if let Err(ended) = observe_one(context, caller, prefix, replies).await {
            return ended;
        }
    }
}

/// Sends one leader's values until its key is deleted.
async fn observe_one(
    context: &Context,
    caller: &Caller,
    prefix: &[u8],
    replies: &Sender,
) -> Result<(), Ended> {
    // Before each that is sent: users may have changed.
    let may_read = || {
        let end = queue::prefix_end(prefix);
        let client = context.client.by(caller);
        let checked = client.check(|each| each(Need::read(prefix, &end)));
        checked.map_err(|error| Ended::Failed(status(error)))
    };
    let mut read = first(context, caller, prefix)
        .await
        .map_err(Ended::Failed)?;
    let (mut header, leader) = match read.value.entries.pop() {
        Some(entry) => (
            context.header_of_read(&read.point),
            convert::key_value(entry),
        ),
        None => {
            let from = read.point.revision + 1;
            let next = next_leader(context, prefix, from).await;
            match next.map_err(Ended::Failed)? {
                Some(leader) => (
                    context.header(Revision::new(leader.mod_revision as u64), context.term()),
                    leader,
                ),
                None => return Ok(()),
            }
        }
    };
    let key = leader.key.clone();
    let told = header.as_ref().map_or(0, |header| header.revision as u64);
    may_read()?;
    send(replies, header, leader).await?;
    let mut watch = OwnWatch::start(
        &context.watches,
        &[(&key, b"")],
        Revision::new(told + 1),
        Kinds::All,
    );
    while let Some(changed) = watch.next().await.map_err(Ended::Failed)? {
        header = context.header(changed.revision, context.term());
        may_read()?;
        for event in changed.events {
            match (event.r#type(), event.kv) {
                (EventType::Put, Some(kv)) => send(replies, header, kv).await?,
                _ => return Ok(()),
            }
        }
    }
    Ok(())
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

/// Sends a reply, whose memory is charged to the connection until the client takes it.
async fn send(replies: &Sender, header: Option<ResponseHeader>, kv: KeyValue) -> Result<(), Ended> {
    let bytes = REPLY_BYTES + kv.key.len() + kv.value.len();
    let reply = pb::LeaderResponse {
        header,
        kv: Some(kv),
    };
    replies.send(reply, bytes).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::memory::FLOOR_BYTES;
    use crate::test_server::TestServer;

    /// Up to sixteen replies waited for an observer that read nothing, each as large as a value may be, and no
    /// limit counted them: some thousand streams made the server hold gigabytes. Found by review.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_reply_that_an_observer_does_not_take_is_charged_to_its_connection() {
        const VALUE_BYTES: usize = 1 << 20;
        let server = TestServer::start().await;
        let memory = &server.context().memory;
        let service = ElectionService::new(server.context().clone());
        let campaign = pb::CampaignRequest {
            name: "chair".into(),
            lease: 0,
            value: vec![7; VALUE_BYTES].into(),
        };
        service.campaign(Request::new(campaign)).await.unwrap();
        assert_eq!(memory.used(), 0);
        let name = "chair".into();
        let observing = service.observe(Request::new(pb::LeaderRequest { name }));
        let observed = observing.await.unwrap().into_inner();
        let until = async |is_met: &dyn Fn(usize) -> bool| {
            let met = async {
                while !is_met(memory.used()) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), met).await
        };
        let charged = until(&|used| used >= VALUE_BYTES - FLOOR_BYTES).await;
        assert!(charged.is_ok(), "{} bytes are charged", memory.used());
        drop(observed);
        assert!(until(&|used| used == 0).await.is_ok());
    }
}
