//! The node's side of the peer service.

use std::sync::Arc;

use bowline_proto::peer as proto;
use bowline_replica::Replica;
use bowline_storage::engine::ArrivingFiles;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tonic::Status;

use super::core::Core;
use super::leader_request::{LeaderRequest, LeaderResponse, caller_of};
use super::proposal;
use super::proposer::Handed;
use crate::peer::{
    Acknowledgements, ClusterMember, ClusterMembers, Confirmation, INCOMING_DIR, SnapshotData,
    SnapshotFile, Unfit,
};
use crate::raft::network::PeerService;
use crate::types::{LogId, NodeId, SnapshotMeta, Vote};

pub(crate) struct Service(pub(crate) Arc<Core>);

#[tonic::async_trait]
impl PeerService for Service {
    async fn propose(&self, from: NodeId, term: u64, proposal: Bytes) -> Result<(), Status> {
        proposal::check(&proposal, Some(from))
            .map_err(|unfit| Status::invalid_argument(unfit.to_string()))?;
        self.0
            .check_before_proposing(&proposal)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        match self.0.hand_in_here(term, proposal).await {
            Handed::Applied => Ok(()),
            Handed::Nowhere(error) => Err(Status::failed_precondition(error.to_string())),
            Handed::Unknown(error) => Err(Status::unknown(error.to_string())),
        }
    }

    fn heard(&self, _from: NodeId) {
        self.0.heard();
    }

    fn may_vote(&self) -> bool {
        self.0.started.elapsed() >= self.0.votes_after && !self.0.owes()
    }

    /// A member that waits for sound tables applies nothing, and would hand the lead on.
    fn may_lead(&self) -> bool {
        !self.0.owes() && !self.0.repairs.is_wanted()
    }

    async fn acknowledged(&self, leader: &Vote, last: LogId) -> Result<(), Status> {
        let compared = self.0.compare_acknowledged(leader, last).await;
        compared.map_err(|error| Status::unavailable(error.to_string()))
    }

    async fn remember(&self, leader: &Vote, all: Acknowledgements) -> Result<(), Status> {
        let remembered = self.0.remember(leader, all).await;
        remembered.map_err(|error| Status::unavailable(error.to_string()))
    }

    async fn led_by(&self, leader: &Vote) -> Result<(), Status> {
        let noted = self.0.owe_to_leader(leader).await;
        noted.map_err(|error| Status::unavailable(error.to_string()))
    }

    async fn is_member(&self, from: NodeId) -> bool {
        self.0.is_known_member(from).await
    }

    fn check_proposal(&self, proposal: &Bytes) -> Result<(), Unfit> {
        proposal::check(proposal, None)
    }

    fn too_old(&self, vote: &Vote, reason: &str) {
        let core = &self.0;
        let is_followed = core.raft.view().vote() == *vote;
        // A stray message of any other member must not stop this one.
        if is_followed {
            core.fail(reason);
        }
    }

    fn check_snapshot(
        &self,
        state: &Bytes,
        last: LogId,
        files: &[SnapshotFile],
    ) -> Result<Option<ArrivingFiles>, Status> {
        let refuse = |reason: String| Err(Status::invalid_argument(reason));
        let incoming = self.0.options.data_dir.join(INCOMING_DIR);
        let expected = match Replica::arriving_files(&incoming, state) {
            Ok(expected) => expected,
            Err(error) => return refuse(error.to_string()),
        };
        let (index, _) = expected.end();
        if index != last.index + 1 {
            let last = last.index;
            return refuse(format!(
                "a snapshot of entry {last} whose state is of {index}"
            ));
        }
        if files.len() != expected.count() {
            let (found, count) = (files.len(), expected.count());
            return refuse(format!(
                "a snapshot of {found} files whose state names {count}"
            ));
        }
        for file in files {
            if expected.bytes_of(&file.name) != Some(file.bytes) {
                let SnapshotFile { name, bytes, .. } = file;
                return refuse(format!(
                    "a snapshot with a file {name:?} of {bytes} bytes, which its \
                                       state does not name"
                ));
            }
        }
        Ok(Some(expected))
    }

    async fn read_index(&self, _from: NodeId, level: Confirmation) -> Result<u64, Status> {
        let index = self.0.read_index(level).await;
        index.map_err(|error| Status::failed_precondition(error.to_string()))
    }

    async fn members(
        &self,
        _from: NodeId,
        is_linearizable: bool,
    ) -> Result<ClusterMembers, Status> {
        let core = &self.0;
        let membership = match is_linearizable {
            true => {
                let agreed = core.agreed_membership().await;
                agreed.map_err(|error| Status::unavailable(error.to_string()))?
            }
            false => core.membership(),
        };
        let members = membership.nodes().map(|(id, member)| ClusterMember {
            id: *id,
            name: member.name.clone(),
            peer_urls: member.peer_urls.clone(),
            client_urls: member.client_urls.clone(),
            is_learner: membership.voter_ids().all(|voter| voter != *id),
            incarnation: member.incarnation,
        });
        Ok(ClusterMembers {
            cluster_id: core.cluster_id,
            database_id: core.replica.db().id(),
            leader_id: core.heard_leadership().leader,
            members: members.collect(),
            member_id: core.member_id,
            incarnation: core.incarnation,
            is_blank: core.is_at_its_beginning(),
            is_unfit_to_lead: !self.may_lead(),
        })
    }

    async fn consensus_installs(&self, installing: BoxFuture<'_, ()>) {
        {
            let _yielding = self.0.repairs.yield_to_consensus();
            installing.await;
        }
        self.0.forget_hashes();
        // It was too old to be installed.
        if let Some(damage) = self.0.repairs.was_put_off() {
            self.0.damage.note(damage);
        }
    }

    async fn repair(&self, meta: SnapshotMeta, snapshot: SnapshotData) -> Result<(), Status> {
        let repaired = self.0.repairs.hand_in(meta, snapshot).await;
        self.0.forget_hashes();
        repaired.map_err(Status::failed_precondition)
    }

    async fn ask(&self, _from: NodeId, question: proto::Question) -> Result<proto::Answer, Status> {
        let caller = caller_of(&question);
        let Some(question) = LeaderRequest::from_proto(question) else {
            return Err(Status::unimplemented("a question of a newer version"));
        };
        let answer: LeaderResponse = self.0.answer_to(&caller, question).await;
        Ok(answer.into_proto())
    }
}
