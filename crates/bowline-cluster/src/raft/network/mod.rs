//! openraft's network over the links: the client of a peer, and the service for peers ([`peer_service`]).
//!
//! *Appending.* Each replication session of openraft is one long stream: requests are sent without waiting
//! for replies, replies come in the order of requests, both carry the request's number. Entries travel as
//! records of the log, their payloads uncopied. `flight` holds what waits for its reply, and says which
//! replies openraft may count.
//!
//! Error kinds determine when openraft retries: `Unreachable` after a growing wait
//! ([`PeerOptions::backoff`](crate::peer::PeerOptions::backoff)), others at once. openraft waits in the
//! stream of requests, before it yields the first one.
//!
//! Invariant: a connection is requested only after the first request exists. Otherwise a peer that is down
//! would be retried without any wait.

mod flight;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod sender;
mod service;
mod wire;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use futures_util::{StreamExt, stream};
use openraft::OptionalSend;
use openraft::alias::SnapshotOf;
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{
    NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RPCTypes, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendError,
    StreamAppendResult, TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use tokio::time::Instant;
use tonic::{Code, Response, Status};

use crate::peer::frames::{self, Boxed};
use crate::peer::link::{Lane, Link, is_unreachable, jittered};
use crate::peer::{Peers, SnapshotData};
use crate::types::{LeaderId, Member, NodeId, TypeConfig, Vote};

use flight::Flight;
pub use service::{PeerGrpc, PeerService, peer_service};

type RpcError = RPCError<TypeConfig>;
/// What has become of a request.
type Answered = Result<StreamAppendResult<TypeConfig>, RpcError>;

/// The shortest and the longest wait before a failed snapshot is sent again.
const SNAPSHOT_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Creates a [`Network`] for each peer.
#[derive(Clone, Debug)]
pub struct NetworkFactory {
    peers: Peers,
}

impl NetworkFactory {
    /// A factory over the links of `peers`.
    #[must_use]
    pub fn new(peers: Peers) -> NetworkFactory {
        NetworkFactory { peers }
    }

    fn network(&self, target: NodeId, node: &Member, lane: Lane) -> Network {
        Network {
            link: self.peers.link(target, node),
            peers: self.peers.clone(),
            lane,
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for NetworkFactory {
    type Network = Network;

    async fn new_client(&mut self, target: NodeId, node: &Member) -> Network {
        self.network(target, node, Lane::Log)
    }

    async fn new_heartbeat_client(&mut self, target: NodeId, node: &Member) -> Network {
        self.network(target, node, Lane::Heartbeat)
    }

    async fn new_snapshot_client(&mut self, target: NodeId, node: &Member) -> Network {
        self.network(target, node, Lane::Snapshot)
    }
}

/// Sends a snapshot to a member whose state machine waits for it; returns when that has installed it.
///
/// # Errors
/// The member's refusal, or why it was not reached.
pub(crate) async fn send_repair(
    peers: &Peers,
    target: NodeId,
    node: &Member,
    vote: &Vote,
    snapshot: SnapshotOf<TypeConfig, SnapshotData>,
) -> Result<(), Status> {
    let link = peers.link(target, node);
    let client = link.client(Lane::Snapshot)?;
    let limit = peers.options().snapshot_timeout;
    let sent = sender::send(client, peers, vote, snapshot, &link, limit, true).await;
    sent.map(drop)
}

/// The client of one peer on one lane.
pub struct Network {
    peers: Peers,
    link: Arc<Link>,
    lane: Lane,
}

impl Network {
    /// A request for the peer's vote, with what this member remembers of the peer.
    fn ballot(&self, request: &VoteRequest<TypeConfig>) -> bowline_proto::peer::VoteRequest {
        let remembered = self.peers.acknowledged_by(self.link.target());
        bowline_proto::peer::VoteRequest {
            remembered: remembered.as_ref().map(wire::put_log_id),
            ..wire::put_vote_request(self.peers.sender(&self.link), request)
        }
    }

    /// The peer's answer to a request for its vote, unless the peer remembers what this member has lost.
    fn counted(
        &self,
        reply: bowline_proto::peer::VoteReply,
        request: &VoteRequest<TypeConfig>,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        let read = || {
            let remembered = reply.remembered;
            let reply = wire::get_vote_reply(reply)?;
            wire::check_ahead(&reply.vote, request.vote.leader_id.term)?;
            let newest = match reply.vote.leader_id > request.vote.leader_id {
                true => &reply.vote,
                false => &request.vote,
            };
            let remembered = wire::get_remembered(remembered, newest)?;
            self.peers.check_memory(remembered)?;
            Ok(reply)
        };
        let read: Result<_, Status> = read();
        read.map_err(|status| self.failure(RPCTypes::Vote, &status))
    }

    fn failure(&self, action: RPCTypes, status: &Status) -> RpcError {
        failure(&self.peers, &self.link, self.lane, action, status)
    }

    /// Sends a stream of requests; `is_one` says that it has exactly one.
    async fn append<S>(
        &self,
        input: S,
        is_one: bool,
    ) -> Result<BoxStream<'static, Answered>, RpcError>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let action = RPCTypes::AppendEntries;
        // openraft waits after a failure before it yields the first request, and nowhere else. A
        // transport that fails to connect takes no request: without this line nothing would wait.
        let mut input = input;
        let Some(first) = input.next().await else {
            return Ok(Box::pin(stream::empty()));
        };
        let failed = |status| self.failure(action, &status);
        let frames = self.link.frames(self.lane).await.map_err(failed)?;
        // The connection is there: what follows is a round trip.
        let heartbeat = (self.lane == Lane::Heartbeat).then(Instant::now);
        let flight = Flight::default();
        let from = self.peers.sender(&self.link);
        // All requests of a stream have the same term.
        let leader = first.vote.leader_id;
        let link = self.link.clone();
        let peers = self.peers.clone();
        // Another may be sent in parts.
        let is_one = is_one && first.entries.is_empty();
        let mut input = stream::iter([first]).chain(input);
        let sending = flight.clone();
        let parts = stream::poll_fn(move |context| sending.poll_request(context, &mut input));
        let mut sequence = 0;
        let requests = parts.flat_map(stream::iter).map(move |request| {
            // Before it is sent: a lease read must not return a state from before this commit.
            peers.announce(request.leader_commit.map(|id| id.index));
            sequence += 1;
            let first = (sequence == 1).then_some(from);
            let mut message = wire::put_append(sequence, first, &request);
            if sequence == 1 {
                let acknowledged = link.acknowledged(&leader);
                message.acknowledged = acknowledged.as_ref().map(wire::put_log_id);
                let news = peers.news_for(&link);
                message.acknowledgements = news.map_or_else(Vec::new, |news| {
                    news.iter().map(wire::put_acknowledgement).collect()
                });
            }
            message
        });
        let arriving: Boxed<bowline_proto::peer::AppendReply> = match frames {
            Some((frames, generation)) => {
                let (link, lane) = (self.link.clone(), self.lane);
                let done = move |frames| link.give_back(lane, generation, frames);
                Box::pin(frames::call(frames, requests, is_one, done))
            }
            None => {
                let mut client = self.client(action)?;
                let limit = self.peers.options().reply_timeout;
                Box::pin(self.answer(action, limit, client.append(requests)).await?)
            }
        };
        let replies = Replies {
            peers: self.peers.clone(),
            link: self.link.clone(),
            lane: self.lane,
            arriving,
            flight,
            received: 0,
            leader,
            heartbeat,
        };
        let replies = stream::unfold(Some(replies), |replies| async move {
            let mut replies = replies?;
            let reply = replies.next().await?;
            // An error is the last item.
            let rest = matches!(reply, Ok(Ok(_))).then_some(replies);
            Some((reply, rest))
        });
        Ok(Box::pin(replies))
    }

    /// Waits up to `limit` for an answer.
    async fn answer<T>(
        &self,
        action: RPCTypes,
        limit: Duration,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, RpcError> {
        let answered = tokio::time::timeout(limit, call).await;
        let result = answered.unwrap_or_else(|_| Err(late(limit)));
        if result.is_ok() {
            self.link.reached();
        }
        result
            .map(Response::into_inner)
            .map_err(|status| self.failure(action, &status))
    }

    fn client(
        &self,
        action: RPCTypes,
    ) -> Result<bowline_proto::peer::peer_client::PeerClient<tonic::transport::Channel>, RpcError>
    {
        let client = self.link.client(self.lane);
        client.map_err(|status| self.failure(action, &status))
    }
}

fn late(limit: Duration) -> Status {
    Status::deadline_exceeded(format!("no answer in {limit:?}"))
}

fn failure(peers: &Peers, link: &Link, lane: Lane, action: RPCTypes, status: &Status) -> RpcError {
    link.failed(lane, status);
    link.log_refusal(&action.to_string(), status);
    let reason = format!(
        "peer {:016x}: {}: {}",
        link.target(),
        status.code(),
        status.message()
    );
    if status.code() == Code::DeadlineExceeded {
        return RPCError::Timeout(Timeout {
            action,
            id: peers.member_id(),
            target: link.target(),
            timeout: peers.options().reply_timeout,
        });
    }
    // A refused snapshot is not sent again at once, whatever the reason.
    if is_unreachable(status) || action == RPCTypes::InstallSnapshot {
        return RPCError::Unreachable(Unreachable::from_string(reason));
    }
    RPCError::Network(NetworkError::from_string(reason))
}

/// The replies of one stream.
struct Replies {
    peers: Peers,
    link: Arc<Link>,
    lane: Lane,
    arriving: Boxed<bowline_proto::peer::AppendReply>,
    /// The requests that wait for their replies; `received` counts the replies.
    flight: Flight,
    received: u64,
    /// The leader that sent them.
    leader: LeaderId,
    /// When it was sent, if it is a heartbeat that has no answer yet.
    heartbeat: Option<Instant>,
}

impl Replies {
    async fn next(&mut self) -> Option<Result<StreamAppendResult<TypeConfig>, RpcError>> {
        self.flight.handled();
        loop {
            let reply = self.receive().await?;
            match &reply {
                Ok(Ok(matched)) if !self.flight.acknowledged(*matched) => {}
                Ok(Ok(_)) => return Some(reply),
                _ => {
                    self.flight.refused();
                    return Some(reply);
                }
            }
        }
    }

    async fn receive(&mut self) -> Option<Result<StreamAppendResult<TypeConfig>, RpcError>> {
        let limit = self.peers.options().reply_timeout;
        let message = loop {
            let asked = self.flight.is_awaited();
            match tokio::time::timeout(limit, self.arriving.next()).await {
                Ok(message) => break message.transpose(),
                Err(_) if asked => break Err(late(limit)),
                // No request was pending when the wait began.
                Err(_) => {}
            }
        };
        let is_owed = self.flight.is_awaited();
        let message = match message {
            Ok(None) if is_owed => Err(Status::unavailable("it ended the stream of appends")),
            message => message,
        };
        let reply = message.transpose()?.and_then(|reply| {
            self.received += 1;
            if let Some(sent) = self.heartbeat.take() {
                self.link.traffic().round_trip(sent.elapsed());
            }
            if reply.sequence != self.received {
                let expected = self.received;
                let found = reply.sequence;
                let reason = format!("reply {found} where {expected} was expected");
                return Err(Status::data_loss(reason));
            }
            let result = wire::get_append_reply(reply)?;
            if let Err(StreamAppendError::HigherVote(vote)) = &result {
                wire::check_ahead(vote, self.leader.term)?;
            }
            Ok(result)
        });
        match &reply {
            Ok(Ok(Some(last))) => self.link.acknowledge(self.leader, *last),
            Ok(Err(StreamAppendError::Conflict(missing))) => {
                self.link.conflict(&self.leader, *missing);
            }
            _ => {}
        }
        Some(reply.map_err(|status| {
            let action = RPCTypes::AppendEntries;
            failure(&self.peers, &self.link, self.lane, action, &status)
        }))
    }
}

impl RaftNetworkV2<TypeConfig> for Network {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RpcError> {
        let last = flight::last_entry(&request);
        let mut replies = self.append(stream::iter([request]), true).await?;
        let mut matched = None;
        // A large request is sent in parts.
        while let Some(reply) = replies.next().await {
            matched = match reply? {
                Ok(matched) if matched == last => return Ok(AppendEntriesResponse::Success),
                Ok(matched) => Some(matched),
                Err(StreamAppendError::Conflict(_)) => return Ok(AppendEntriesResponse::Conflict),
                Err(StreamAppendError::HigherVote(vote)) => {
                    return Ok(AppendEntriesResponse::HigherVote(vote));
                }
            };
        }
        let reason = "the peer ended the stream without a reply";
        let missing = || RPCError::Network(NetworkError::from_string(reason));
        matched
            .map(AppendEntriesResponse::PartialSuccess)
            .ok_or_else(missing)
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        _option: RPCOption,
    ) -> BoxFuture<
        's,
        Result<BoxStream<'s, Result<StreamAppendResult<TypeConfig>, RpcError>>, RpcError>,
    >
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        Box::pin(async move {
            let replies: BoxStream<'s, _> = self.append(input, false).await?;
            Ok(replies)
        })
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        let mut client = self.client(RPCTypes::Vote)?;
        let call = client.vote(self.ballot(&request));
        let reply = self.answer(RPCTypes::Vote, option.soft_ttl(), call).await?;
        self.counted(reply, &request)
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        let mut client = self.client(RPCTypes::Vote)?;
        let call = client.pre_vote(self.ballot(&request));
        let reply = self.answer(RPCTypes::Vote, option.soft_ttl(), call).await?;
        self.counted(reply, &request)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<TypeConfig, SnapshotData>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let action = RPCTypes::InstallSnapshot;
        let client = self.client(action).map_err(StreamingError::from)?;
        let limit = self.peers.options().snapshot_timeout;
        let last_index = snapshot.meta.last_log_id.map(|id| id.index);
        let term = vote.leader_id.term;
        let peer = format!("{:016x}", self.link.target());
        let (peers, link) = (&self.peers, &self.link);
        let sending = sender::send(client, peers, &vote, snapshot, link, limit, false);
        let result = tokio::select! {
            biased;
            result = sending => result,
            closed = cancel => return Err(StreamingError::Closed(closed)),
        };
        let result = result.and_then(|reply| {
            wire::check_ahead(&reply.vote, term)?;
            Ok(reply)
        });
        if result.is_ok() {
            self.link.reached();
            tracing::info!(%peer, last_index, "a snapshot was sent and installed");
        }
        result.map_err(|status| StreamingError::from(self.failure(action, &status)))
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RpcError> {
        let action = RPCTypes::TransferLeader;
        let mut client = self.client(action)?;
        let call =
            client.transfer_leader(wire::put_transfer(self.peers.sender(&self.link), &request));
        let reply = self.answer(action, option.soft_ttl(), call).await?;
        wire::get_transfer_reply(&request, reply).map_err(|status| self.failure(action, &status))
    }

    fn backoff(&self) -> Option<Backoff> {
        let range = match self.lane {
            // Each attempt may read all tables.
            Lane::Snapshot => SNAPSHOT_BACKOFF,
            _ => self.peers.options().backoff,
        };
        Some(Backoff::new(
            (0..).map(move |failures| jittered(range, failures)),
        ))
    }
}
