//! Asks a peer for what is not Raft's own: to propose, to be told where to read, who is there.

use std::future::Future;
use std::sync::Arc;

use bowline_proto::peer as wire;
use bytes::Bytes;
use tonic::{Response, Status};

use super::link::{Lane, Link};
use super::peers::Peers;
use super::service::{ClusterMember, ClusterMembers, ReadLevel};

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

    /// Waits for an answer as long as one may take.
    async fn answer<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Status> {
        let limit = self.peers.options().reply_timeout;
        let answered = tokio::time::timeout(limit, call).await;
        let result = answered
            .unwrap_or_else(|_| Err(Status::deadline_exceeded(format!("no answer in {limit:?}"))));
        if let Err(status) = &result {
            self.link.failed(Lane::Other, status);
        }
        result.map(Response::into_inner)
    }

    /// Has the leader put a proposal into the log; returns what came of it. An error leaves open
    /// whether it was.
    pub async fn propose(&self, proposal: Bytes) -> Result<Bytes, Status> {
        let request = wire::ProposeRequest {
            sender: Some(self.peers.sender()),
            proposal,
        };
        let mut client = self.link.client(Lane::Other)?;
        Ok(self.answer(client.propose(request)).await?.outcome)
    }

    /// Asks the leader up to where a read that begins now must have applied: a Raft index.
    pub async fn read_index(&self, level: ReadLevel) -> Result<u64, Status> {
        let level = match level {
            ReadLevel::Linearizable => wire::ReadLevel::Linearizable,
            ReadLevel::Lease => wire::ReadLevel::Lease,
        };
        let request = wire::ReadIndexRequest {
            sender: Some(self.peers.sender()),
            level: level.into(),
        };
        let mut client = self.link.client(Lane::Other)?;
        Ok(self.answer(client.read_index(request)).await?.index)
    }

    /// Asks who the members are.
    pub async fn members(&self) -> Result<ClusterMembers, Status> {
        let request = wire::MembersRequest {
            sender: Some(self.peers.sender()),
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
        });
        Ok(ClusterMembers {
            cluster_id: reply.cluster_id,
            database_id: u128::from_le_bytes(database_id),
            leader_id: (reply.leader_id != 0).then_some(reply.leader_id),
            members: members.collect(),
        })
    }

    /// Has the leader keep a lease alive.
    pub async fn lease_keep_alive(&self, request: Bytes) -> Result<Bytes, Status> {
        let request = self.lease_request(request);
        let mut client = self.link.client(Lane::Other)?;
        Ok(self.answer(client.lease_keep_alive(request)).await?.reply)
    }

    /// Asks the leader how long a lease lives yet.
    pub async fn lease_time_to_live(&self, request: Bytes) -> Result<Bytes, Status> {
        let request = self.lease_request(request);
        let mut client = self.link.client(Lane::Other)?;
        Ok(self.answer(client.lease_time_to_live(request)).await?.reply)
    }

    fn lease_request(&self, request: Bytes) -> wire::LeaseRequest {
        wire::LeaseRequest {
            sender: Some(self.peers.sender()),
            request,
        }
    }
}
