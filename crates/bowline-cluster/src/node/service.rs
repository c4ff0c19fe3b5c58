//! What a node answers its peers.

use std::sync::Arc;

use bowline_proto::peer as proto;
use bytes::Bytes;
use openraft::ReadPolicy;
use tonic::Status;

use super::core::Core;
use super::proposer::Handed;
use super::questions::{Answer, Question};
use crate::peer::{ClusterMember, ClusterMembers, PeerService, ReadLevel};
use crate::types::NodeId;

pub(crate) struct Service(pub(crate) Arc<Core>);

#[tonic::async_trait]
impl PeerService for Service {
    async fn propose(&self, _from: NodeId, proposal: Bytes) -> Result<(), Status> {
        match self.0.hand_in_here(proposal).await {
            Handed::Applied => Ok(()),
            Handed::Nowhere(error) => Err(Status::failed_precondition(error.to_string())),
            Handed::Unknown(error) => Err(Status::unknown(error.to_string())),
        }
    }

    fn heard(&self, _from: NodeId) {
        self.0.heard();
    }

    fn may_vote(&self) -> bool {
        self.0.started.elapsed() >= self.0.votes_after
    }

    async fn read_index(&self, _from: NodeId, level: ReadLevel) -> Result<u64, Status> {
        let policy = match level {
            ReadLevel::Linearizable => ReadPolicy::ReadIndex,
            ReadLevel::Lease => ReadPolicy::LeaseRead,
        };
        let index = self.0.read_index(&policy).await;
        index.map_err(|error| Status::failed_precondition(error.to_string()))
    }

    async fn members(&self, _from: NodeId) -> Result<ClusterMembers, Status> {
        let core = &self.0;
        let members = core.members().into_iter().map(|member| ClusterMember {
            id: member.id,
            name: member.name,
            peer_urls: member.peer_urls,
            client_urls: member.client_urls,
            is_learner: member.is_learner,
        });
        Ok(ClusterMembers {
            cluster_id: core.cluster_id,
            database_id: core.replica.db().id(),
            leader_id: core.heard_leadership().leader,
            members: members.collect(),
        })
    }

    async fn ask(&self, _from: NodeId, question: proto::Question) -> Result<proto::Answer, Status> {
        let Some(question) = Question::from_proto(question) else {
            return Err(Status::unimplemented("a question of a newer version"));
        };
        let answer: Answer = self.0.answer(question).await;
        Ok(answer.into_proto())
    }
}
