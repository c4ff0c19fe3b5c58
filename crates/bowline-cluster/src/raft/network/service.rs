//! The peer service: Raft's requests go to openraft, the others to the node through [`PeerService`].

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use bowline_proto::peer as proto;
use bowline_proto::peer::peer_server::{Peer, PeerServer};
use bowline_proto::peer::snapshot_chunk::Part;
use bowline_storage::engine::ArrivingFiles;
use bowline_storage::vfs::Vfs;
use bytes::Bytes;
use futures_core::Stream;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use openraft::Raft;
use openraft::alias::SnapshotOf;
use openraft::async_runtime::WatchReceiver as _;
use openraft::metrics::RaftMetrics;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, StreamAppendError, StreamAppendResult,
    VoteRequest, VoteResponse,
};
use openraft::storage::RaftStateMachine;
use parking_lot::Mutex;
use tonic::{Code, Request, Response, Status, Streaming};

use super::wire;
use crate::peer::frames::{Appends, Boxed};
use crate::peer::port::Connected;
use crate::peer::receiver::Receiver;
use crate::peer::{
    Acknowledgements, ClusterMembers, Confirmation, INCOMING_DIR, Peers, SnapshotData,
    SnapshotFile, Unfit,
};
use crate::types::{LogId, NodeId, Payload, Proposal, SnapshotMeta, TypeConfig, Vote};

/// The node's part of the peer service, besides Raft's own requests. `from` is the sender.
#[tonic::async_trait]
pub trait PeerService: Send + Sync + 'static {
    /// Notes that a leader has sent an append.
    fn heard(&self, _from: NodeId) {}
    /// Whether this member gives votes now.
    fn may_vote(&self) -> bool {
        true
    }
    /// Whether the sender is a member, as far as this member knows or can find out.
    async fn is_member(&self, _from: NodeId) -> bool {
        true
    }
    /// Checks that this member can apply a proposal, before it is acknowledged.
    fn check_proposal(&self, _proposal: &Bytes) -> Result<(), Unfit> {
        Ok(())
    }
    /// Notes that the leader with `vote` has sent an entry that is too new for this program.
    fn too_old(&self, _vote: &Vote, _reason: &str) {}
    /// The expected files of a snapshot that ends with `last`, according to its `state`.
    ///
    /// # Errors
    /// For a state that this member could not install.
    fn check_snapshot(
        &self,
        _state: &Bytes,
        _last: LogId,
        _files: &[SnapshotFile],
    ) -> Result<Option<ArrivingFiles>, Status> {
        Ok(None)
    }
    /// Whether this member may take over the lead.
    fn may_lead(&self) -> bool {
        true
    }
    /// Proposes as the leader of this term; returns once it is applied here.
    async fn propose(&self, from: NodeId, term: u64, proposal: Bytes) -> Result<(), Status>;
    /// One past the Raft index that a read which begins now must have applied.
    async fn read_index(&self, from: NodeId, level: Confirmation) -> Result<u64, Status>;
    /// Handles a leader's report of this member's acknowledgements. An error refuses the leader's entries.
    async fn acknowledged(&self, _leader: &Vote, _last: LogId) -> Result<(), Status> {
        Ok(())
    }
    /// Remembers what members have acknowledged to the leader of `vote`. An error refuses the leader's entries.
    async fn remember(&self, _leader: &Vote, _all: Acknowledgements) -> Result<(), Status> {
        Ok(())
    }
    /// Notes the leader of a stream or a snapshot before anything of it is taken. An error refuses it.
    async fn led_by(&self, _leader: &Vote) -> Result<(), Status> {
        Ok(())
    }
    /// Runs while the consensus installs a snapshot of its own: nobody may wait for another one.
    async fn consensus_installs(&self, installing: BoxFuture<'_, ()>) {
        installing.await;
    }
    /// Replaces the state of this member by a snapshot for which it waits; returns once that is done.
    async fn repair(&self, _meta: SnapshotMeta, _snapshot: SnapshotData) -> Result<(), Status> {
        Err(Status::unimplemented("this member waits for no snapshot"))
    }
    /// The members; with `is_linearizable`, those committed at a moment after the request. The sender need
    /// not be one.
    async fn members(&self, from: NodeId, is_linearizable: bool) -> Result<ClusterMembers, Status>;
    /// Handles a request to the leader: leases, membership, leadership.
    async fn ask(&self, from: NodeId, question: proto::Question) -> Result<proto::Answer, Status>;
}

/// The gRPC service `bowline.peer.v1.Peer` of a member.
pub struct PeerGrpc<M>
where
    M: RaftStateMachine<TypeConfig, SnapshotData = SnapshotData>,
{
    raft: Raft<TypeConfig, M>,
    vfs: Arc<dyn Vfs>,
    incoming: PathBuf,
    /// Held by the one snapshot that is being received.
    arrival: Arc<tokio::sync::Mutex<()>>,
    peers: Peers,
    service: Arc<dyn PeerService>,
}

/// The service for a port: Raft's requests go to `raft`, the others to `service`. Snapshots arrive in
/// `INCOMING_DIR` of `data_dir`, one at a time under `arrival`.
pub fn peer_service<M>(
    raft: Raft<TypeConfig, M>,
    vfs: Arc<dyn Vfs>,
    data_dir: &std::path::Path,
    arrival: Arc<tokio::sync::Mutex<()>>,
    peers: Peers,
    service: Arc<dyn PeerService>,
) -> Arc<PeerGrpc<M>>
where
    M: RaftStateMachine<TypeConfig, SnapshotData = SnapshotData>,
{
    Arc::new(PeerGrpc {
        raft,
        vfs,
        incoming: data_dir.join(INCOMING_DIR),
        arrival,
        peers,
        service,
    })
}

impl<M> PeerGrpc<M>
where
    M: RaftStateMachine<TypeConfig, SnapshotData = SnapshotData>,
{
    /// The service for a tonic server.
    pub fn into_server(self: Arc<Self>) -> PeerServer<PeerGrpc<M>> {
        let message_bytes_max = self.peers.options().message_bytes_max;
        PeerServer::from_arc(self)
            .max_decoding_message_size(message_bytes_max)
            .max_encoding_message_size(usize::MAX)
    }
}

fn stopped(error: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("this member has stopped: {error}"))
}

/// The target of the events that tell what members send each other: one for each request that changes something. They are
/// for a simulation, which shows them as a part of its trace.
const MESSAGES: &str = "bowline_cluster::messages";

/// How the requests of a stream ended, for its replies.
#[derive(Debug)]
enum Ending {
    /// They have not ended yet.
    Open,
    /// After the sender's last request.
    Done,
    Refused(Status),
}

/// The connection of a request; `None` without one, as in tests.
fn connection_of<T>(request: &Request<T>) -> Option<Arc<Connected>> {
    request.extensions().get().cloned()
}

/// Notes that a member uses this connection, without waiting for the end of a stream.
fn recognize(connected: Option<&Arc<Connected>>) {
    if let Some(connected) = connected {
        connected.recognize();
    }
}

/// Counts the bytes of a connection for the member that uses it.
fn identify(peers: &Peers, connected: Option<&Arc<Connected>>, from: NodeId) {
    if let Some(connected) = connected {
        connected.identify(|| peers.traffic(from));
    }
}

/// The requests of one stream, up to the first refused one.
struct Requests {
    arriving: Boxed<proto::AppendRequest>,
    ending: Arc<Mutex<Ending>>,
    checks: Checks,
}

/// Checks the requests of one stream.
struct Checks {
    peers: Peers,
    received: u64,
    service: Arc<dyn PeerService>,
    from: NodeId,
    /// What this member knows, and the last vote compared with that.
    known: Arc<dyn Fn() -> wire::Known + Send + Sync>,
    checked: Option<Vote>,
    connected: Option<Arc<Connected>>,
}

impl Requests {
    async fn next(mut self) -> Option<(AppendEntriesRequest<TypeConfig>, Requests)> {
        let ending = match self.try_next().await {
            Ok(Some(request)) => return Some((request, self)),
            Ok(None) => Ending::Done,
            Err(status) => Ending::Refused(status),
        };
        *self.ending.lock() = ending;
        None
    }

    async fn try_next(&mut self) -> Result<Option<AppendEntriesRequest<TypeConfig>>, Status> {
        match self.arriving.next().await.transpose()? {
            Some(request) => self.checks.check(request).await.map(Some),
            None => Ok(None),
        }
    }
}

impl Checks {
    /// The request, for openraft.
    async fn check(
        &mut self,
        request: proto::AppendRequest,
    ) -> Result<AppendEntriesRequest<TypeConfig>, Status> {
        let mut request = request;
        self.received += 1;
        if self.received == 1 || request.sender.is_some() {
            self.from = self.peers.check(request.sender)?;
            let connected = self.connected.as_deref();
            self.peers.check_certificate(self.from, connected)?;
            recognize(self.connected.as_ref());
            identify(&self.peers, self.connected.as_ref(), self.from);
        }
        self.service.heard(self.from);
        if request.sequence != self.received {
            return Err(Status::data_loss(format!(
                "request {} where {} was expected",
                request.sequence, self.received
            )));
        }
        let acknowledged = request.acknowledged;
        let acknowledgements = std::mem::take(&mut request.acknowledgements);
        let vote = wire::get_leader_vote(request.vote)?;
        if self.checked != Some(vote) {
            wire::check_own(&vote, self.from)?;
            wire::check_ahead(&vote, (self.known)().vote.leader_id.term)?;
            self.service.led_by(&vote).await?;
            self.checked = Some(vote);
        }
        let decoded = wire::get_append(request).and_then(|request| {
            self.check_entries(&request)?;
            Ok(request)
        });
        if let Err(status) = &decoded
            && status.code() == Code::Unimplemented
        {
            self.service.too_old(&vote, status.message());
        }
        let mut request = decoded?;
        if let (Some(first), Some(last)) = (request.entries.first(), request.entries.last()) {
            let (first, last) = (first.log_id.index, last.log_id.index);
            let (from, term) = (self.from, vote.leader_id.term);
            tracing::trace!(target: MESSAGES, "entries {first} to {last} from {from:016x} in term {term}");
        }
        wire::check_applied(&mut request, &(self.known)())?;
        if let Some(last) = acknowledged {
            let last = wire::get_acknowledged(last, &vote)?;
            self.service.acknowledged(&vote, last).await?;
        }
        if !acknowledgements.is_empty() {
            let all = wire::get_acknowledgements(acknowledgements, &vote)?;
            self.service.remember(&vote, all).await?;
        }
        Ok(request)
    }

    /// An acknowledged entry may be committed, and then every member has to apply it.
    fn check_entries(&self, request: &AppendEntriesRequest<TypeConfig>) -> Result<(), Status> {
        for entry in &request.entries {
            let Payload::Normal(Proposal(proposal)) = &entry.payload else {
                continue;
            };
            let checked = self.service.check_proposal(proposal);
            checked.map_err(|unfit| {
                let status = match unfit {
                    Unfit::Malformed(_) => Status::invalid_argument,
                    Unfit::Newer(_) => Status::unimplemented,
                };
                status(format!("entry {}: {unfit}", entry.log_id.index))
            })?;
        }
        Ok(())
    }
}

fn known_of(metrics: &RaftMetrics<TypeConfig>) -> wire::Known {
    wire::Known {
        vote: metrics.vote,
        applied: metrics.last_applied,
        last_index: metrics.last_log_index,
    }
}

/// The replies of one stream.
struct Replies<S> {
    results: Pin<Box<S>>,
    sent: u64,
    ending: Arc<Mutex<Ending>>,
}

impl<S, F> Replies<S>
where
    S: Stream<Item = Result<StreamAppendResult<TypeConfig>, F>>,
    F: std::fmt::Display,
{
    async fn next(mut self) -> Option<(Result<proto::AppendReply, Status>, Option<Self>)> {
        match self.results.next().await {
            Some(Ok(result)) => {
                self.sent += 1;
                let reply = wire::put_append_reply(self.sent, &result);
                // A conflict, or a higher vote, is the last of its stream.
                Some((Ok(reply), result.is_ok().then_some(self)))
            }
            Some(Err(fatal)) => Some((Err(stopped(fatal)), None)),
            None => {
                match std::mem::replace(&mut *self.ending.lock(), Ending::Done) {
                    Ending::Done => None,
                    Ending::Refused(status) => Some((Err(status), None)),
                    // Raft takes no more requests. After an end without an error the sender would retry at
                    // once, over the same connection.
                    Ending::Open => Some((Err(stopped("it takes no requests")), None)),
                }
            }
        }
    }
}

/// Runs blocking work.
async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    let result = crate::blocking::spawn(run).await;
    result.unwrap_or_else(|error| Err(Status::internal(error.to_string())))
}

impl<M> PeerGrpc<M>
where
    M: RaftStateMachine<TypeConfig, SnapshotData = SnapshotData>,
{
    /// Refuses a request that is not for this member, or not from the member that it names; returns that one.
    fn check(
        &self,
        sender: Option<proto::Sender>,
        connected: Option<&Arc<Connected>>,
    ) -> Result<NodeId, Status> {
        let from = self.peers.check(sender)?;
        let connected = connected.map(|connected| &**connected);
        self.peers.check_certificate(from, connected)?;
        Ok(from)
    }

    fn checks(&self, connected: Option<Arc<Connected>>) -> Checks {
        let metrics = self.raft.metrics();
        Checks {
            known: Arc::new(move || known_of(&metrics.borrow_watched())),
            checked: None,
            connected,
            peers: self.peers.clone(),
            received: 0,
            service: self.service.clone(),
            from: 0,
        }
    }

    /// The answers to a stream of appends.
    fn answers(
        &self,
        arriving: Boxed<proto::AppendRequest>,
        connected: Option<Arc<Connected>>,
    ) -> Boxed<proto::AppendReply> {
        let ending = Arc::new(Mutex::new(Ending::Open));
        let requests = Requests {
            arriving,
            ending: ending.clone(),
            checks: self.checks(connected),
        };
        let requests = stream::unfold(requests, Requests::next);
        let replies = Replies {
            results: Box::pin(self.raft.stream_append(requests)),
            sent: 0,
            ending,
        };
        let replies = stream::unfold(Some(replies), |replies| async { replies?.next().await });
        Box::pin(replies)
    }

    /// A member that may not lead refuses a leadership transfer.
    fn check_may_lead(&self) -> Result<(), Status> {
        match self.service.may_lead() {
            true => Ok(()),
            false => Err(Status::unavailable(
                "this member has yet to get back what it had acknowledged, or sound tables",
            )),
        }
    }

    fn known_term(&self) -> u64 {
        self.raft.metrics().borrow_watched().current_term
    }

    /// Refuses a vote that is not the sender's, or whose term no election can have reached. Raft may write
    /// down what passes, so this check comes first.
    fn check_vote(&self, from: NodeId, vote: &Vote) -> Result<(), Status> {
        wire::check_own(vote, from)?;
        wire::check_ahead(vote, self.known_term())
    }

    /// An answer to a candidate, with what this member remembers of it.
    fn ballot(&self, candidate: NodeId, reply: &VoteResponse<TypeConfig>) -> proto::VoteReply {
        let remembered = self.peers.acknowledged_by(candidate);
        proto::VoteReply {
            remembered: remembered.as_ref().map(wire::put_log_id),
            ..wire::put_vote_reply(reply)
        }
    }

    /// A vote request, decoded and checked.
    async fn voting(
        &self,
        request: Request<proto::VoteRequest>,
    ) -> Result<VoteRequest<TypeConfig>, Status> {
        let (connected, request) = (connection_of(&request), request.into_inner());
        let from = self.check(request.sender, connected.as_ref())?;
        let remembered = request.remembered;
        let request = wire::get_vote_request(request)?;
        self.check_vote(from, &request.vote)?;
        let remembered = wire::get_remembered(remembered, &request.vote)?;
        if !self.service.may_vote() {
            return Err(Status::unavailable(
                "this member gives no vote now: it has just been started, and may have promised its \
                 vote to a leader, or it has yet to get back what it had acknowledged",
            ));
        }
        match self.service.is_member(from).await {
            // Meanwhile a leader may have said what this member lacks.
            true if !self.service.may_vote() => Err(Status::unavailable(
                "this member has yet to get back what it had acknowledged",
            )),
            true => self.peers.check_memory(remembered).map(|()| request),
            false => Err(Status::permission_denied(format!(
                "{from:016x} is no member of the cluster, as far as this member knows"
            ))),
        }
    }

    async fn receive(
        &self,
        mut chunks: Streaming<proto::SnapshotChunk>,
        connected: Option<Arc<Connected>>,
    ) -> Result<proto::SnapshotReply, Status> {
        let first = chunks.message().await?.and_then(|chunk| chunk.part);
        let Some(Part::Head(head)) = first else {
            return Err(Status::invalid_argument("a snapshot without a head"));
        };
        let from = self.check(head.sender, connected.as_ref())?;
        recognize(connected.as_ref());
        identify(&self.peers, connected.as_ref(), from);
        let (vote, meta, files) = wire::get_head(&head)?;
        self.check_vote(from, &vote)?;
        self.service.led_by(&vote).await?;
        let last = meta.last_log_id;
        let last = last.ok_or_else(|| Status::invalid_argument("a snapshot of nothing"))?;
        // openraft would panic. A deposed leader learns of the later vote.
        let known = known_of(&self.raft.metrics().borrow_watched());
        if let Some(applied) = known.applied.filter(|_| vote >= known.vote) {
            wire::check_one_log(&last, &applied)?;
        }
        let expected = self.service.check_snapshot(&head.state, last, &files)?;
        // Until it is installed, which may have to wait for disk space.
        let arrival = Arc::new(self.arrival.clone().lock_owned().await);
        let (vfs, incoming) = (self.vfs.clone(), self.incoming.clone());
        // Each step holds the guard: it goes on in its thread when the call has been dropped.
        let guard = arrival.clone();
        let mut receiver = blocking(move || {
            let begun = Receiver::begin(vfs, incoming, files, expected);
            drop(guard);
            begun
        })
        .await?;
        while let Some(chunk) = chunks.message().await? {
            let Some(Part::Chunk(chunk)) = chunk.part else {
                return Err(Status::invalid_argument("a snapshot with two heads"));
            };
            let guard = arrival.clone();
            receiver = blocking(move || {
                let taken = receiver.chunk(&chunk).map(|()| receiver);
                drop(guard);
                taken
            })
            .await?;
        }
        let guard = arrival.clone();
        let (directory, files) = blocking(move || {
            let ended = receiver.end();
            drop(guard);
            ended
        })
        .await?;
        let index = meta.last_log_id.map(|id| id.index);
        tracing::trace!(target: MESSAGES, "a snapshot up to {index:?} from {from:016x}");
        tracing::info!(id = head.id, index, "a snapshot has arrived");
        let snapshot = SnapshotData::Incoming {
            state: head.state,
            directory,
            files,
            arrival,
        };
        if head.is_repair {
            self.service.repair(meta, snapshot).await?;
            return Ok(proto::SnapshotReply {
                vote: Some(wire::put_vote(&vote)),
            });
        }
        let snapshot = SnapshotOf::<TypeConfig, SnapshotData> { meta, snapshot };
        let (raft, service) = (self.raft.clone(), self.service.clone());
        // A task of its own: the state machine has to install it also when the sender has gone, and until then nobody may
        // wait for another snapshot, which could not arrive.
        let installing = tokio::spawn(async move {
            let mut installed = None;
            let install = async {
                installed = Some(raft.install_full_snapshot(vote, snapshot).await);
            };
            service.consensus_installs(Box::pin(install)).await;
            installed
        });
        let installed = installing.await.map_err(stopped)?;
        let installed = installed.ok_or_else(|| stopped("nothing was installed"))?;
        let response = installed.map_err(stopped)?;
        Ok(proto::SnapshotReply {
            vote: Some(wire::put_vote(&response.vote)),
        })
    }
}

impl<M> Appends for PeerGrpc<M>
where
    M: RaftStateMachine<TypeConfig, SnapshotData = SnapshotData>,
{
    fn stream(
        &self,
        requests: Boxed<proto::AppendRequest>,
        connected: Arc<Connected>,
    ) -> Boxed<proto::AppendReply> {
        self.answers(requests, Some(connected))
    }

    fn one(
        &self,
        request: proto::AppendRequest,
        connected: Arc<Connected>,
    ) -> BoxFuture<'_, Result<proto::AppendReply, Status>> {
        let mut checks = self.checks(Some(connected));
        Box::pin(async move {
            let request = checks.check(request).await?;
            let previous = request.prev_log_id;
            let last = super::flight::last_entry(&request);
            let answer = self.raft.append_entries(request).await.map_err(stopped)?;
            let result = match answer {
                AppendEntriesResponse::Success => Ok(last),
                AppendEntriesResponse::PartialSuccess(matched) => Ok(matched),
                AppendEntriesResponse::HigherVote(vote) => Err(StreamAppendError::HigherVote(vote)),
                // Without a previous entry there is none that can be missing.
                AppendEntriesResponse::Conflict => {
                    Err(StreamAppendError::Conflict(previous.ok_or_else(|| {
                        Status::internal("a conflict before the first entry")
                    })?))
                }
            };
            Ok(wire::put_append_reply(1, &result))
        })
    }
}

#[tonic::async_trait]
impl<M> Peer for PeerGrpc<M>
where
    M: RaftStateMachine<TypeConfig, SnapshotData = SnapshotData>,
{
    type AppendStream = Boxed<proto::AppendReply>;

    async fn append(
        &self,
        request: Request<Streaming<proto::AppendRequest>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        let connected = connection_of(&request);
        let arriving = Box::pin(request.into_inner());
        Ok(Response::new(self.answers(arriving, connected)))
    }

    async fn vote(
        &self,
        request: Request<proto::VoteRequest>,
    ) -> Result<Response<proto::VoteReply>, Status> {
        let request = self.voting(request).await?;
        let leader_id = request.vote.leader_id;
        let reply = self.raft.vote(request).await.map_err(stopped)?;
        let answer = if reply.vote_granted { "yes" } else { "no" };
        let (node, term) = (leader_id.node_id, leader_id.term);
        tracing::trace!(target: MESSAGES, "a vote for {node:016x} in term {term}: {answer}");
        Ok(Response::new(self.ballot(node, &reply)))
    }

    async fn pre_vote(
        &self,
        request: Request<proto::VoteRequest>,
    ) -> Result<Response<proto::VoteReply>, Status> {
        let request = self.voting(request).await?;
        let node = request.vote.leader_id.node_id;
        let reply = self.raft.pre_vote(request).await.map_err(stopped)?;
        Ok(Response::new(self.ballot(node, &reply)))
    }

    async fn snapshot(
        &self,
        request: Request<Streaming<proto::SnapshotChunk>>,
    ) -> Result<Response<proto::SnapshotReply>, Status> {
        let connected = connection_of(&request);
        let received = self.receive(request.into_inner(), connected).await;
        received.map(Response::new)
    }

    async fn transfer_leader(
        &self,
        request: Request<proto::TransferLeaderRequest>,
    ) -> Result<Response<proto::TransferLeaderReply>, Status> {
        let (connected, request) = (connection_of(&request), request.into_inner());
        let from = self.check(request.sender, connected.as_ref())?;
        identify(&self.peers, connected.as_ref(), from);
        self.check_may_lead()?;
        let request = wire::get_transfer(request)?;
        self.check_vote(from, request.from_leader())?;
        tracing::trace!(target: MESSAGES, "the lead is handed over by {from:016x}");
        let reply = self.raft.handle_transfer_leader(request).await;
        let reply = reply.map_err(stopped)?;
        Ok(Response::new(wire::put_transfer_reply(&reply)))
    }

    async fn propose(
        &self,
        request: Request<proto::ProposeRequest>,
    ) -> Result<Response<proto::ProposeReply>, Status> {
        let (connected, request) = (connection_of(&request), request.into_inner());
        let from = self.check(request.sender, connected.as_ref())?;
        identify(&self.peers, connected.as_ref(), from);
        let (term, proposal) = (request.term, request.proposal);
        self.service.propose(from, term, proposal).await?;
        Ok(Response::new(proto::ProposeReply {}))
    }

    async fn read_index(
        &self,
        request: Request<proto::ReadIndexRequest>,
    ) -> Result<Response<proto::ReadIndexReply>, Status> {
        let (connected, request) = (connection_of(&request), request.into_inner());
        let from = self.check(request.sender, connected.as_ref())?;
        identify(&self.peers, connected.as_ref(), from);
        let level = match proto::ReadLevel::try_from(request.level) {
            Ok(proto::ReadLevel::Linearizable) => Confirmation::Majority,
            Ok(proto::ReadLevel::Lease) => Confirmation::Lease,
            Err(_) => return Err(Status::invalid_argument("an unknown level of a read")),
        };
        let index = self.service.read_index(from, level).await?;
        Ok(Response::new(proto::ReadIndexReply { index }))
    }

    async fn members(
        &self,
        request: Request<proto::MembersRequest>,
    ) -> Result<Response<proto::MembersReply>, Status> {
        let request = request.into_inner();
        let from = self.peers.check_stranger(request.sender)?;
        let found = self.service.members(from, request.is_linearizable).await?;
        let members = found.members.into_iter().map(|member| proto::Member {
            id: member.id,
            name: member.name,
            peer_urls: member.peer_urls,
            client_urls: member.client_urls,
            is_learner: member.is_learner,
            incarnation: member.incarnation,
        });
        Ok(Response::new(proto::MembersReply {
            cluster_id: found.cluster_id,
            database_id: Bytes::copy_from_slice(&found.database_id.to_le_bytes()),
            leader_id: found.leader_id.unwrap_or(0),
            members: members.collect(),
            member_id: found.member_id,
            incarnation: found.incarnation,
            is_blank: found.is_blank,
            is_unfit_to_lead: found.is_unfit_to_lead,
        }))
    }

    async fn ask(
        &self,
        request: Request<proto::AskRequest>,
    ) -> Result<Response<proto::AskReply>, Status> {
        let (connected, request) = (connection_of(&request), request.into_inner());
        let from = self.check(request.sender, connected.as_ref())?;
        identify(&self.peers, connected.as_ref(), from);
        let missing = || Status::invalid_argument("it asks nothing");
        let question = request.question.ok_or_else(missing)?;
        let answer = self.service.ask(from, question).await?;
        Ok(Response::new(proto::AskReply {
            answer: Some(answer),
        }))
    }
}
