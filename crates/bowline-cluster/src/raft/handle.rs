//! The handle of the consensus: the node's calls, in this crate's types.
//!
//! Reads of the state go through a [`View`], which holds a read lock: a holder must not take another.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bowline_storage::vfs::Vfs;
use openraft::alias::{InstantOf, SnapshotOf, WatchReceiverOf};
use openraft::async_runtime::WatchReceiver as _;
use openraft::error::{
    ChangeMembershipError, ClientWriteError, InitializeError, LinearizableReadError, RaftError,
};
use openraft::impls::OneshotResponder;
use openraft::metrics::{RaftMetrics, RaftServerMetrics};
use openraft::raft::VoteRequest;
use openraft::{ChangeMembers, Config, Instant as _, ReadPolicy, ServerState, SnapshotPolicy};

use super::log_store::LogStore;
use super::network::{NetworkFactory, PeerGrpc, PeerService, peer_service};
use super::state_machine::StateMachine;
use crate::error::{Error, Result};
use crate::peer::{Peers, SnapshotData};
use crate::types::{LeaderId, LogId, Member, Membership, NodeId, Proposal, TypeConfig, Vote};

type Metrics = RaftMetrics<TypeConfig>;

/// The settings of the consensus.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) cluster_id: u64,
    pub(crate) member_id: NodeId,
    pub(crate) heartbeat_interval: Duration,
    /// The minimum wait after the vote lease before this member stands for election.
    pub(crate) campaign_wait: Duration,
    /// How long a member gives no vote after it has heard from the leader.
    pub(crate) vote_lease: Duration,
    /// The log is trimmed after so many entries.
    pub(crate) snapshot_entries: u64,
    /// The entries that stay after a trim.
    pub(crate) kept_entries: u64,
    pub(crate) snapshot_timeout: Duration,
    /// Whether this member stands for election from the start.
    pub(crate) may_stand: bool,
}

/// A change of the membership.
#[derive(Debug, Clone)]
pub(crate) enum MembershipChange {
    /// Promotes learners.
    AddVoters(BTreeSet<NodeId>),
    /// Adds learners.
    AddNodes(BTreeMap<NodeId, Member>),
    /// Removes voters; they do not become learners.
    RemoveVoters(BTreeSet<NodeId>),
    /// Removes learners.
    RemoveNodes(BTreeSet<NodeId>),
    /// Replaces the attributes of members.
    SetNodes(BTreeMap<NodeId, Member>),
}

/// The outcome of a proposal.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// This member has applied it.
    Applied,
    /// It was refused before it entered the log.
    Refused,
    /// Another leader replaced it in the log, or received it from this one.
    Replaced,
    Failed(Error),
    /// The consensus has stopped.
    Ended,
}

/// Where a member stood when a transfer of leadership was to begin there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Transfer {
    pub(crate) term: u64,
    /// The leader of that term, if there was one. The transfer has begun if it was this member.
    pub(crate) leader: Option<NodeId>,
}

/// The consensus. Clones are handles of the same instance.
#[derive(Clone)]
pub(crate) struct Raft {
    inner: openraft::Raft<TypeConfig, StateMachine>,
    metrics: WatchReceiverOf<TypeConfig, Metrics>,
    /// Held by the one snapshot that arrives, through whichever listener: all use the same directory.
    arrival: Arc<tokio::sync::Mutex<()>>,
}

/// How many orders to apply may wait for the state machine. Each is of one round of the consensus and takes about 100
/// bytes.
const APPLY_QUEUE_LEN: u64 = 1 << 18;

impl Raft {
    pub(crate) async fn start(
        settings: &Settings,
        peers: &Peers,
        log: LogStore,
        machine: StateMachine,
    ) -> Result<Raft> {
        let millis = |duration: Duration| duration.as_millis() as u64;
        let config = Config {
            cluster_name: format!("{:016x}", settings.cluster_id),
            heartbeat_interval: millis(settings.heartbeat_interval),
            // openraft uses the maximum as its vote lease, and then waits between the minimum and the
            // maximum.
            election_timeout_min: millis(settings.campaign_wait),
            election_timeout_max: millis(settings.vote_lease),
            snapshot_policy: SnapshotPolicy::LogsSinceLast(settings.snapshot_entries.max(1)),
            max_in_snapshot_log_to_keep: settings.kept_entries,
            install_snapshot_timeout: millis(settings.snapshot_timeout),
            replication_lag_threshold: settings.snapshot_entries.max(1),
            max_payload_entries: 64,
            // A leader that no majority answers makes way: for so long it sends no heartbeats, so that the others, which may
            // still hear it, elect another one. Then it tries again for as long.
            quorum_loss_probe_interval: Some(2 * millis(settings.vote_lease)),
            enable_pre_vote: Some(true),
            enable_elect: settings.may_stand,
            // A restored leader would lead with a state older than what it has acknowledged.
            enable_leader_restore: Some(false),
            // A member that lost entries receives them again from the leader.
            allow_log_reversion: Some(true),
            // A state machine that waits for another member's tables takes none of them meanwhile. When the queue is full,
            // the consensus stands still: no vote, and no acknowledgement.
            state_machine_channel_size: Some(APPLY_QUEUE_LEN),
            ..Config::default()
        };
        let config = config.validate().map_err(|error| Error::Config {
            setting: "election-timeout",
            reason: error.to_string(),
        })?;
        let network = NetworkFactory::new(peers.clone());
        let id = settings.member_id;
        let inner = openraft::Raft::new(id, Arc::new(config), network, log, machine).await;
        let inner = inner.map_err(Error::stopped)?;
        let metrics = inner.metrics();
        Ok(Raft {
            inner,
            metrics,
            arrival: Arc::default(),
        })
    }

    /// The present state.
    pub(crate) fn view(&self) -> View<impl Deref<Target = Metrics> + '_> {
        View(self.metrics.borrow_watched())
    }

    /// Watches the state.
    pub(crate) fn watch(&self) -> Watch {
        Watch(self.metrics.clone())
    }

    /// Watches vote, role and leader, which change rarely, and a moment earlier than the [`View`].
    pub(crate) fn watch_election(&self) -> ElectionWatch {
        ElectionWatch(self.inner.server_metrics())
    }

    /// Sets whether this member may stand for election.
    pub(crate) fn may_stand(&self, may: bool) {
        self.inner.runtime_config().elect(may);
    }

    /// Founds a cluster with these voters; a cluster that exists stays unchanged.
    pub(crate) async fn found(&self, members: BTreeMap<NodeId, Member>) -> Result<()> {
        match self.inner.initialize(members).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(error) => Err(Error::stopped(error)),
        }
    }

    /// One past the index that a linearizable read must have applied, confirmed by a majority.
    pub(crate) async fn read_index(&self) -> Result<u64> {
        // An invalid lease is no error: the round works without one.
        match self.inner.get_read_log_id(ReadPolicy::ReadIndex).await {
            Ok((read, _)) => Ok(read.index() + 1),
            Err(RaftError::APIError(
                LinearizableReadError::ForwardToLeader(_)
                | LinearizableReadError::QuorumNotEnough(_),
            )) => Err(Error::NotLeader),
            Err(RaftError::Fatal(fatal)) => Err(Error::stopped(fatal)),
        }
    }

    /// Proposes as `leader`, which must be this member's present leadership. The future returns the outcome.
    pub(crate) async fn propose(
        &self,
        leader: LeaderId,
        proposal: Proposal,
    ) -> Result<impl Future<Output = Outcome> + use<>> {
        let (responder, outcome) = OneshotResponder::new_pair();
        let write = self.inner.write(proposal).with_leader(leader);
        write.responder(responder).await.map_err(Error::stopped)?;
        Ok(async move {
            match outcome.await {
                Ok(Ok(_)) => Outcome::Applied,
                Ok(Err(ClientWriteError::ForwardToLeader(_))) => Outcome::Refused,
                Ok(Err(ClientWriteError::LogEntryDiscarded(_))) => Outcome::Replaced,
                Ok(Err(other)) => Outcome::Failed(Error::stopped(other)),
                Err(_) => Outcome::Ended,
            }
        })
    }

    /// Changes the membership, in two steps if necessary. Returns the index of the change's last entry.
    pub(crate) async fn change_membership(&self, change: MembershipChange) -> Result<u64> {
        let change = match change {
            MembershipChange::AddVoters(ids) => ChangeMembers::AddVoterIds(ids),
            MembershipChange::AddNodes(nodes) => ChangeMembers::AddNodes(nodes),
            MembershipChange::RemoveVoters(ids) => ChangeMembers::RemoveVoters(ids),
            MembershipChange::RemoveNodes(ids) => ChangeMembers::RemoveNodes(ids),
            MembershipChange::SetNodes(nodes) => ChangeMembers::SetNodes(nodes),
        };
        let changed = self.inner.change_membership(change, false).await;
        changed.map(|done| done.log_id.index).map_err(change_error)
    }

    /// Starts a transfer of leadership, if this member still leads when its turn comes.
    pub(crate) async fn transfer_leader(&self, target: NodeId) -> Result<Transfer> {
        let begun = self.inner.trigger().transfer_leader(target).await;
        begun.map_err(Error::stopped)?;
        // Calls are processed in order: this one sees the effect of the first. A leader in transfer keeps its vote.
        let vote = |state: &openraft::RaftState<TypeConfig>| *state.vote_ref();
        let vote = self.inner.with_raft_state(vote).await;
        let vote = vote.map_err(Error::stopped)?;
        Ok(Transfer {
            term: vote.leader_id.term,
            leader: vote.committed.then_some(vote.leader_id.node_id),
        })
    }

    /// Has this member, the leader of this term, stand for election, whose transfer of the lead to `target` nobody has followed up.
    ///
    /// Raft ignores the call to stand while it leads, and a leader in transfer leads on, without accepting anything. So
    /// the leader first votes for the target in the next term, as if the target had asked for that; a vote is only a
    /// promise not to support another in that term. `last` is the last entry of this member's log.
    pub(crate) async fn take_back_lead(
        &self,
        term: u64,
        target: NodeId,
        last: Option<LogId>,
    ) -> Result<()> {
        let vote = Vote {
            leader_id: LeaderId {
                term: term + 1,
                node_id: target,
            },
            committed: false,
        };
        let mut request = VoteRequest::new(vote, last);
        request.leadership_transfer = true;
        self.inner.vote(request).await.map_err(Error::stopped)?;
        let begun = self.inner.trigger().elect(false).await;
        begun.map_err(Error::stopped)
    }

    /// Whether a member is the only voter.
    pub(crate) async fn is_only_voter(&self, id: NodeId) -> Result<bool> {
        let is_only = self.inner.with_raft_state(move |state| {
            let mut voters = state.membership_state.effective().voter_ids();
            voters.next() == Some(id) && voters.next().is_none()
        });
        is_only.await.map_err(Error::stopped)
    }

    /// Makes the state machine wait for another member's snapshot, until it is installed or no leader has announced one for
    /// `timeout`.
    pub(crate) async fn rebuild(&self, reason: String, timeout: Duration) -> Result<()> {
        let (done, result) = tokio::sync::oneshot::channel();
        let asked = self.inner.external_state_machine_request(move |machine| {
            Box::pin(async move {
                let rebuilt = machine.be_repaired(None, reason, Some(timeout)).await;
                // An error means that the caller has gone.
                let _ = done.send(rebuilt);
            })
        });
        asked.await.map_err(Error::stopped)?;
        result.await.map_err(Error::stopped)?
    }

    /// The present state as a snapshot, to be sent.
    pub(crate) async fn snapshot(&self) -> Result<Option<SnapshotOf<TypeConfig, SnapshotData>>> {
        self.inner.get_snapshot().await.map_err(Error::stopped)
    }

    /// Stops the consensus, and waits for its end.
    pub(crate) async fn shutdown(&self) -> Result<()> {
        self.inner.shutdown().await.map_err(Error::stopped)
    }

    /// The service for peers.
    pub(crate) fn peer_service(
        &self,
        vfs: Arc<dyn Vfs>,
        data_dir: &Path,
        peers: Peers,
        service: Arc<dyn PeerService>,
    ) -> Arc<PeerGrpc<StateMachine>> {
        let arrival = self.arrival.clone();
        peer_service(self.inner.clone(), vfs, data_dir, arrival, peers, service)
    }
}

/// The state of the consensus. Holds a read lock.
pub(crate) struct View<M>(M);

impl<M: Deref<Target = Metrics>> View<M> {
    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.0.current_leader
    }

    pub(crate) fn term(&self) -> u64 {
        self.0.current_term
    }

    /// Whether this member leads.
    pub(crate) fn is_leader(&self) -> bool {
        self.0.state == ServerState::Leader
    }

    pub(crate) fn vote(&self) -> Vote {
        self.0.vote
    }

    pub(crate) fn election(&self) -> Election {
        Election {
            vote: self.0.vote,
            role: self.0.state,
            leader: self.0.current_leader,
        }
    }

    /// The index of the last log entry.
    pub(crate) fn last_index(&self) -> Option<u64> {
        self.0.last_log_index
    }

    /// The last entry known to be committed.
    pub(crate) fn cluster_committed(&self) -> Option<LogId> {
        self.0.cluster_committed
    }

    /// The last applied entry.
    #[cfg(test)]
    pub(crate) fn last_applied(&self) -> Option<LogId> {
        self.0.last_applied
    }

    /// The newest membership, committed or not.
    pub(crate) fn membership(&self) -> &Membership {
        self.0.membership_config.membership()
    }

    pub(crate) fn membership_id(&self) -> Option<LogId> {
        *self.0.membership_config.log_id()
    }

    /// The newest committed membership.
    pub(crate) fn agreed_membership(&self) -> &Membership {
        self.0.committed_membership_config.membership()
    }

    pub(crate) fn agreed_membership_id(&self) -> Option<LogId> {
        *self.0.committed_membership_config.log_id()
    }

    /// The committed membership, once the entry before `next` is applied.
    pub(crate) fn agreed_membership_after(&self, next: u64) -> Option<Membership> {
        let applied = self.0.last_applied.map_or(0, |id| id.index + 1);
        (applied >= next).then(|| self.agreed_membership().clone())
    }

    /// The send time of the requests that a majority has last answered; on the leader only.
    pub(crate) fn quorum_acked(&self) -> Option<Sent> {
        let acked = self.0.last_quorum_acked.as_ref()?;
        Some(Sent(**acked))
    }

    /// The time since a member's last answer to this leader.
    pub(crate) fn answered_before(&self, id: NodeId) -> Option<Duration> {
        let answered = self.0.heartbeat.as_ref()?.get(&id)?.as_ref()?;
        Some(answered.elapsed())
    }

    /// The last entry that a member has acknowledged to this leader.
    pub(crate) fn matched(&self, id: NodeId) -> Option<LogId> {
        self.0.replication.as_ref()?.get(&id).copied().flatten()
    }

    /// Why the consensus has stopped.
    pub(crate) fn stop_reason(&self) -> Option<String> {
        let stopped = self.0.running_state.as_ref().err();
        stopped.map(ToString::to_string)
    }
}

/// The send time of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent(InstantOf<TypeConfig>);

impl Sent {
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A watch of the consensus state.
#[derive(Clone)]
pub(crate) struct Watch(WatchReceiverOf<TypeConfig, Metrics>);

impl Watch {
    pub(crate) fn view(&self) -> View<impl Deref<Target = Metrics> + '_> {
        View(self.0.borrow_watched())
    }

    /// Waits for the next change.
    ///
    /// # Errors
    /// When the consensus has ended.
    pub(crate) async fn changed(&mut self) -> Result<()> {
        let changed = self.0.changed().await;
        changed.map_err(|_| Error::stopped("it is closed"))
    }
}

/// Vote, role and leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Election {
    vote: Vote,
    role: ServerState,
    leader: Option<NodeId>,
}

/// A watch of vote, role and leader.
pub(crate) struct ElectionWatch(WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>>);

impl ElectionWatch {
    pub(crate) fn now(&self) -> Election {
        let metrics = self.0.borrow_watched();
        Election {
            vote: metrics.vote,
            role: metrics.state,
            leader: metrics.current_leader,
        }
    }

    /// Waits for the next change.
    ///
    /// # Errors
    /// When the consensus has ended.
    pub(crate) async fn changed(&mut self) -> Result<()> {
        let changed = self.0.changed().await;
        changed.map_err(|_| Error::stopped("it is closed"))
    }
}

fn change_error(error: RaftError<TypeConfig, ClientWriteError<TypeConfig>>) -> Error {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => Error::NotLeader,
        RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) => Error::LeaderChanged,
        RaftError::APIError(ClientWriteError::ChangeMembershipError(error)) => match error {
            ChangeMembershipError::InProgress(_) => Error::MembershipChanging,
            ChangeMembershipError::EmptyMembership(_) => Error::NotEnoughStarted,
            ChangeMembershipError::LearnerNotFound(missing) => Error::MemberNotFound {
                id: missing.node_id,
            },
            other => Error::stopped(other),
        },
        RaftError::APIError(other) => Error::stopped(other),
        RaftError::Fatal(fatal) => Error::stopped(fatal),
    }
}
