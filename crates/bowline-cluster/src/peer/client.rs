//! The client of a peer: proposals, read indices, members, and requests to the leader.

use std::future::Future;
use std::sync::Arc;

use bowline_proto::peer as wire;
use bytes::Bytes;
use prost::Message as _;
use tonic::{Response, Status};

use super::link::{Lane, Link, Waiting};
use super::peers::Peers;
use super::types::{ClusterMember, ClusterMembers, Confirmation};

/// A client of one peer. Cheap to clone.
#[derive(Clone)]
pub struct PeerClient {
    peers: Peers,
    link: Arc<Link>,
}

impl PeerClient {
    pub(super) fn new(peers: Peers, link: Arc<Link>) -> PeerClient {
        PeerClient { peers, link }
    }

    /// Waits for an answer up to the reply timeout.
    async fn answer<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Status> {
        let limit = self.peers.options().reply_timeout;
        let answered = tokio::time::timeout(limit, call).await;
        let result = answered
            .unwrap_or_else(|_| Err(Status::deadline_exceeded(format!("no answer in {limit:?}"))));
        match &result {
            Ok(_) => self.link.reached(),
            Err(status) => self.link.failed(Lane::Other, status),
        }
        result.map(Response::into_inner)
    }

    /// Forwards a proposal to the leader of this term; returns once the leader has applied it. After an error
    /// the outcome is unknown, except for `is_unsent` and `FailedPrecondition`.
    pub async fn propose(&self, term: u64, proposal: Bytes) -> Result<(), Status> {
        let request = wire::ProposeRequest {
            sender: Some(self.peers.sender(&self.link)),
            proposal,
            term,
        };
        let mut client = self.link.client(Lane::Other)?;
        self.link.traffic().sent(request.encoded_len() as u64);
        self.answer(client.propose(request)).await.map(drop)
    }

    /// Asks the leader for the read index: one that a read which begins now must have applied.
    pub async fn read_index(&self, level: Confirmation) -> Result<u64, Status> {
        let level = match level {
            Confirmation::Majority => wire::ReadLevel::Linearizable,
            Confirmation::Lease => wire::ReadLevel::Lease,
        };
        let request = wire::ReadIndexRequest {
            sender: Some(self.peers.sender(&self.link)),
            level: level.into(),
        };
        let mut client = self.link.client(Lane::Other)?;
        Ok(self.answer(client.read_index(request)).await?.index)
    }

    /// Asks for the members, as far as the peer knows.
    pub async fn members(&self) -> Result<ClusterMembers, Status> {
        self.ask_members(false).await
    }

    /// Asks for the members, confirmed by the leader after the request.
    pub(crate) async fn agreed_members(&self) -> Result<ClusterMembers, Status> {
        self.ask_members(true).await
    }

    async fn ask_members(&self, is_linearizable: bool) -> Result<ClusterMembers, Status> {
        let request = wire::MembersRequest {
            sender: Some(self.peers.sender(&self.link)),
            is_linearizable,
        };
        let mut client = self.link.client(Lane::Other)?;
        let reply = self.answer(client.members(request)).await?;
        let database_id = <[u8; 16]>::try_from(&reply.database_id[..])
            .map_err(|_| Status::internal("a peer named a database id of another length"))?;
        let members = reply.members.into_iter().map(|member| ClusterMember {
            id: member.id,
            name: member.name,
            peer_urls: member.peer_urls,
            client_urls: member.client_urls,
            is_learner: member.is_learner,
            incarnation: member.incarnation,
        });
        Ok(ClusterMembers {
            cluster_id: reply.cluster_id,
            database_id: u128::from_le_bytes(database_id),
            leader_id: (reply.leader_id != 0).then_some(reply.leader_id),
            members: members.collect(),
            member_id: reply.member_id,
            incarnation: reply.incarnation,
            is_blank: reply.is_blank,
            is_unfit_to_lead: reply.is_unfit_to_lead,
        })
    }

    /// Sends a leader request: leases, membership, leadership.
    pub async fn ask(&self, question: wire::Question) -> Result<wire::Answer, Status> {
        let request = wire::AskRequest {
            sender: Some(self.peers.sender(&self.link)),
            question: Some(question),
        };
        let mut client = self.link.client(Lane::Other)?;
        let reply = self.answer(client.ask(request)).await?;
        let missing = || Status::internal("a peer answered nothing");
        reply.answer.ok_or_else(missing)
    }
}

/// Whether a call failed before anything was sent: there was no connection, or it is too early to retry.
#[must_use]
pub(crate) fn is_unsent(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() || error.is::<Waiting>() {
            return true;
        }
        source = error.source();
    }
    false
}
