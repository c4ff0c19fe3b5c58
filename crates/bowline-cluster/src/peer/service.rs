//! The server side: what peers ask goes to openraft, or to the node through [`PeerService`].

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use bowline_proto::peer as proto;
use bowline_proto::peer::peer_server::{Peer, PeerServer};
use bowline_proto::peer::snapshot_chunk::Part;
use bowline_storage::vfs::Vfs;
use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt, stream};
use openraft::Raft;
use openraft::alias::SnapshotOf;
use openraft::raft::{AppendEntriesRequest, StreamAppendResult};
use openraft::storage::RaftStateMachine;
use parking_lot::Mutex;
use tonic::{Request, Response, Status, Streaming};

use super::receiver::Receiver;
use super::{INCOMING_DIR, PeerOptions, SnapshotData, wire};
use crate::types::{NodeId, TypeConfig};

/// How the leader makes sure that it still leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadLevel {
    /// It asks a majority.
    Linearizable,
    /// It trusts its lease.
    Lease,
}

/// A member, as peers tell of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterMember {
    /// Its number.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Where its peers reach it.
    pub peer_urls: Vec<String>,
    /// Where its clients reach it.
    pub client_urls: Vec<String>,
    /// Whether it has no vote.
    pub is_learner: bool,
}

/// Who is in a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterMembers {
    /// The cluster's number.
    pub cluster_id: u64,
    /// The database's number.
    pub database_id: u128,
    /// The leader, where it is known.
    pub leader_id: Option<NodeId>,
    /// Its members.
    pub members: Vec<ClusterMember>,
}

/// What a node answers its peers besides Raft's own questions. `from` is who asks.
#[tonic::async_trait]
pub trait PeerService: Send + Sync + 'static {
    /// A leader has sent something to append.
    fn heard(&self, _from: NodeId) {}
    /// Whether this member gives votes now.
    fn may_vote(&self) -> bool {
        true
    }
    /// Puts a proposal into the log, being the leader; returns once it is applied there.
    async fn propose(&self, from: NodeId, proposal: Bytes) -> Result<(), Status>;
    /// Up to which Raft index a read that begins now must have applied.
    async fn read_index(&self, from: NodeId, level: ReadLevel) -> Result<u64, Status>;
    /// Who the members are. The asker may not be one yet.
    async fn members(&self, from: NodeId) -> Result<ClusterMembers, Status>;
    /// Answers what is for the leader: leases, membership, leadership.
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
    /// One snapshot arrives at a time.
    arrival: Arc<tokio::sync::Mutex<()>>,
    cluster_id: u64,
    service: Arc<dyn PeerService>,
}

/// The service to hand to a tonic server: Raft's questions go to `raft`, the others to `service`.
/// Snapshots arrive in [`INCOMING_DIR`] of `data_dir`.
pub fn peer_service<M>(
    raft: Raft<TypeConfig, M>,
    vfs: Arc<dyn Vfs>,
    data_dir: &std::path::Path,
    cluster_id: u64,
    service: Arc<dyn PeerService>,
    options: &PeerOptions,
) -> PeerServer<PeerGrpc<M>>
where
    M: RaftStateMachine<TypeConfig, SnapshotData = SnapshotData>,
{
    let grpc = PeerGrpc {
        raft,
        vfs,
        incoming: data_dir.join(INCOMING_DIR),
        arrival: Arc::default(),
        cluster_id,
        service,
    };
    PeerServer::new(grpc)
        .max_decoding_message_size(options.message_bytes_max)
        .max_encoding_message_size(usize::MAX)
}

fn stopped(error: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("this member has stopped: {error}"))
}

/// How the requests of a stream ended, for the replies to say.
#[derive(Debug)]
enum Ending {
    /// They have not, as far as anybody has asked.
    Open,
    /// With the sender's last one.
    Done,
    Refused(Status),
}

/// The requests of one stream, up to the first that is refused.
struct Requests {
    streaming: Streaming<proto::AppendRequest>,
    cluster_id: u64,
    received: u64,
    ending: Arc<Mutex<Ending>>,
    service: Arc<dyn PeerService>,
    from: NodeId,
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
        let Some(request) = self.streaming.message().await? else {
            return Ok(None);
        };
        self.received += 1;
        if self.received == 1 || request.sender.is_some() {
            self.from = wire::check_sender(request.sender, self.cluster_id, false)?;
        }
        self.service.heard(self.from);
        if request.sequence != self.received {
            return Err(Status::data_loss(format!(
                "request {} where {} was expected",
                request.sequence, self.received
            )));
        }
        wire::get_append(request).map(Some)
    }
}

type Boxed<T> = Pin<Box<dyn Stream<Item = T> + Send>>;

/// What is replied on one stream.
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
                    // It takes no more requests. An end without an error would have the sender
                    // try again at once, over the same connection.
                    Ending::Open => Some((Err(stopped("it takes no requests")), None)),
                }
            }
        }
    }
}

/// Runs what may block.
async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    let result = tokio::task::spawn_blocking(run).await;
    result.unwrap_or_else(|error| Err(Status::internal(error.to_string())))
}

impl<M> PeerGrpc<M>
where
    M: RaftStateMachine<TypeConfig, SnapshotData = SnapshotData>,
{
    fn check(&self, sender: Option<proto::Sender>) -> Result<NodeId, Status> {
        wire::check_sender(sender, self.cluster_id, false)
    }

    fn check_may_vote(&self) -> Result<(), Status> {
        match self.service.may_vote() {
            true => Ok(()),
            false => Err(Status::unavailable(
                "this member has just been started: it may have promised its vote to a leader",
            )),
        }
    }

    async fn receive(
        &self,
        mut chunks: Streaming<proto::SnapshotChunk>,
    ) -> Result<proto::SnapshotReply, Status> {
        let first = chunks.message().await?.and_then(|chunk| chunk.part);
        let Some(Part::Head(head)) = first else {
            return Err(Status::invalid_argument("a snapshot without a head"));
        };
        self.check(head.sender)?;
        let (vote, meta, files) = wire::get_head(&head)?;
        // Until it is installed: that may have to wait for room on the disk.
        let arrival = Arc::new(self.arrival.clone().lock_owned().await);
        let (vfs, incoming) = (self.vfs.clone(), self.incoming.clone());
        let mut receiver = blocking(move || Receiver::begin(vfs, incoming, files)).await?;
        while let Some(chunk) = chunks.message().await? {
            let Some(Part::Chunk(chunk)) = chunk.part else {
                return Err(Status::invalid_argument("a snapshot with two heads"));
            };
            receiver = blocking(move || receiver.chunk(&chunk).map(|()| receiver)).await?;
        }
        let (directory, files) = blocking(move || receiver.end()).await?;
        tracing::info!(id = head.id, last = ?meta.last_log_id, "a snapshot has arrived");
        let snapshot = SnapshotOf::<TypeConfig, SnapshotData> {
            meta,
            snapshot: SnapshotData::Incoming {
                state: head.state,
                directory,
                files,
                arrival,
            },
        };
        let installed = self.raft.install_full_snapshot(vote, snapshot).await;
        let response = installed.map_err(stopped)?;
        Ok(proto::SnapshotReply {
            vote: Some(wire::put_vote(&response.vote)),
        })
    }
}

#[tonic::async_trait]
impl<M> Peer for PeerGrpc<M>
where
    M: RaftStateMachine<TypeConfig, SnapshotData = SnapshotData>,
{
    type AppendStream = Boxed<Result<proto::AppendReply, Status>>;

    async fn append(
        &self,
        request: Request<Streaming<proto::AppendRequest>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        let ending = Arc::new(Mutex::new(Ending::Open));
        let requests = Requests {
            streaming: request.into_inner(),
            cluster_id: self.cluster_id,
            received: 0,
            ending: ending.clone(),
            service: self.service.clone(),
            from: 0,
        };
        let requests = stream::unfold(requests, Requests::next);
        let replies = Replies {
            results: Box::pin(self.raft.stream_append(requests)),
            sent: 0,
            ending,
        };
        let replies = stream::unfold(Some(replies), |replies| async { replies?.next().await });
        Ok(Response::new(Box::pin(replies)))
    }

    async fn vote(
        &self,
        request: Request<proto::VoteRequest>,
    ) -> Result<Response<proto::VoteReply>, Status> {
        let request = request.into_inner();
        self.check(request.sender)?;
        self.check_may_vote()?;
        let reply = self.raft.vote(wire::get_vote_request(request)?).await;
        Ok(Response::new(wire::put_vote_reply(
            &reply.map_err(stopped)?,
        )))
    }

    async fn pre_vote(
        &self,
        request: Request<proto::VoteRequest>,
    ) -> Result<Response<proto::VoteReply>, Status> {
        let request = request.into_inner();
        self.check(request.sender)?;
        self.check_may_vote()?;
        let reply = self.raft.pre_vote(wire::get_vote_request(request)?).await;
        Ok(Response::new(wire::put_vote_reply(
            &reply.map_err(stopped)?,
        )))
    }

    async fn snapshot(
        &self,
        request: Request<Streaming<proto::SnapshotChunk>>,
    ) -> Result<Response<proto::SnapshotReply>, Status> {
        self.receive(request.into_inner()).await.map(Response::new)
    }

    async fn transfer_leader(
        &self,
        request: Request<proto::TransferLeaderRequest>,
    ) -> Result<Response<proto::TransferLeaderReply>, Status> {
        let request = request.into_inner();
        self.check(request.sender)?;
        let request = wire::get_transfer(request)?;
        let reply = self.raft.handle_transfer_leader(request).await;
        let reply = reply.map_err(stopped)?;
        Ok(Response::new(wire::put_transfer_reply(&reply)))
    }

    async fn propose(
        &self,
        request: Request<proto::ProposeRequest>,
    ) -> Result<Response<proto::ProposeReply>, Status> {
        let request = request.into_inner();
        let from = self.check(request.sender)?;
        self.service.propose(from, request.proposal).await?;
        Ok(Response::new(proto::ProposeReply {}))
    }

    async fn read_index(
        &self,
        request: Request<proto::ReadIndexRequest>,
    ) -> Result<Response<proto::ReadIndexReply>, Status> {
        let request = request.into_inner();
        let from = self.check(request.sender)?;
        let level = match proto::ReadLevel::try_from(request.level) {
            Ok(proto::ReadLevel::Linearizable) => ReadLevel::Linearizable,
            Ok(proto::ReadLevel::Lease) => ReadLevel::Lease,
            Err(_) => return Err(Status::invalid_argument("an unknown level of a read")),
        };
        let index = self.service.read_index(from, level).await?;
        Ok(Response::new(proto::ReadIndexReply { index }))
    }

    async fn members(
        &self,
        request: Request<proto::MembersRequest>,
    ) -> Result<Response<proto::MembersReply>, Status> {
        let sender = request.into_inner().sender;
        let from = wire::check_sender(sender, self.cluster_id, true)?;
        let found = self.service.members(from).await?;
        let members = found.members.into_iter().map(|member| proto::Member {
            id: member.id,
            name: member.name,
            peer_urls: member.peer_urls,
            client_urls: member.client_urls,
            is_learner: member.is_learner,
        });
        Ok(Response::new(proto::MembersReply {
            cluster_id: found.cluster_id,
            database_id: Bytes::copy_from_slice(&found.database_id.to_le_bytes()),
            leader_id: found.leader_id.unwrap_or(0),
            members: members.collect(),
        }))
    }

    async fn ask(
        &self,
        request: Request<proto::AskRequest>,
    ) -> Result<Response<proto::AskReply>, Status> {
        let request = request.into_inner();
        let from = self.check(request.sender)?;
        let missing = || Status::invalid_argument("it asks nothing");
        let question = request.question.ok_or_else(missing)?;
        let answer = self.service.ask(from, question).await?;
        Ok(Response::new(proto::AskReply {
            answer: Some(answer),
        }))
    }
}
