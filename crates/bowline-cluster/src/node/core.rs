//! The shared state of a node.
//!
//! Invariant: who holds what `raft` or `progress` lends takes neither again. These are locks for
//! reading that let a waiting writer go first: a second one on the same thread waits for the writer,
//! which waits for the first one, and the whole member stands still. So each function here takes them
//! for itself, and gives back values.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bowline_replica::Replica;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::abdication::Abdication;
use super::config::NodeConfig;
use super::suspension::Suspensions;
use crate::error::{Error, Result};
use crate::histogram::Histogram;
use crate::log_limit::SharedLogLimit;
use crate::peer::{self, PeerClient, Peers};
use crate::raft::Raft;
use crate::raft::log_store::LogStore;
use crate::raft::state_machine::Progress;
use crate::raft::waiters::Waiters;
use crate::types::{LeaderId, Member, Membership, NodeId};

/// What the parts of a node share.
pub(crate) struct Core {
    pub(crate) cluster_id: u64,
    pub(crate) member_id: NodeId,
    /// The life of this member's directory.
    pub(crate) incarnation: u64,
    /// Who begins the cluster, if this member is one of those.
    pub(crate) founders: Option<Membership>,
    pub(crate) options: NodeConfig,
    pub(crate) raft: Raft,
    pub(crate) replica: Arc<Replica>,
    pub(crate) log: LogStore,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) peers: Peers,
    pub(crate) progress: watch::Receiver<Progress>,
    /// The terms in which leadership is given away, and lease reads are over.
    pub(crate) abdication: Arc<Abdication>,
    /// Who is or was a member, as far as this one has seen since it was started.
    pub(crate) seen_members: Mutex<BTreeSet<NodeId>>,
    /// Whether those of the memberships in the log are among them.
    pub(crate) has_seen_log: AtomicBool,
    pub(crate) suspensions: Suspensions,
    /// One past the newest index that a linearizable read was told to have applied by this member, leading.
    pub(crate) read_floor: AtomicU64,
    pub(crate) renewals: Renewals,
    /// The turns of those who hold up a thread of the runtime.
    pub(crate) long_work: tokio::sync::Semaphore,
    /// Held by who asks others about one who is unknown here.
    pub(crate) vouching: tokio::sync::Semaphore,
    /// Held by who changes the membership, from the look at what there is to the end of the change.
    pub(crate) changing: Arc<tokio::sync::Mutex<()>>,
    /// Why the node stopped, when it did by itself.
    pub(crate) failure: Mutex<Option<String>>,
    pub(crate) closing: watch::Sender<bool>,
    pub(crate) leadership: watch::Sender<Leadership>,
    pub(crate) counts: Counts,
    pub(crate) log_limits: LogLimits,
    /// When the node was started.
    pub(crate) started: std::time::Instant,
    /// When a leader was heard last, in ms since the start.
    pub(crate) heard_ms: AtomicU64,
    /// How long after the start this member gives no vote: before, it may have promised a leader not
    /// to, which is written nowhere.
    pub(crate) votes_after: Duration,
}

/// Where those who renew leases and the task that keeps their time meet.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    /// Somebody waits for the record of a lease to go.
    pub(crate) wanted: Notify,
    /// Changes when some have gone, and when leases have ended.
    pub(crate) cleared: watch::Sender<()>,
    /// The last term in which this member has begun to keep the time of leases.
    pub(crate) kept_term: watch::Sender<u64>,
}

/// What a node counts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) leader_changes: AtomicU64,
    pub(crate) proposals_pending: AtomicU64,
    pub(crate) proposals_failed: AtomicU64,
    pub(crate) proposals_committed: AtomicU64,
    pub(crate) commit_times: Histogram,
    /// How often this member has asked the others whether it is one.
    pub(crate) admission_rounds: AtomicU64,
    /// How often a leader knew of acknowledgements that this member's log does not hold.
    pub(crate) losses_found: AtomicU64,
    /// How often the time of leases was looked at, leading, and what was to be done was done.
    pub(crate) lease_rounds: AtomicU64,
    /// How many wait until this member has applied an entry.
    pub(crate) waiting_to_apply: AtomicU64,
}

/// Counts something while it lasts.
struct Counted<'a>(&'a AtomicU64);

impl<'a> Counted<'a> {
    fn begin(count: &'a AtomicU64) -> Counted<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Limits of what a member logs each time that it tries again.
#[derive(Debug, Default)]
pub(crate) struct LogLimits {
    pub(crate) joint_membership: SharedLogLimit,
    pub(crate) promotion: SharedLogLimit,
    pub(crate) alarm: SharedLogLimit,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("member_id", &self.member_id)
            .finish_non_exhaustive()
    }
}

/// What is known of who leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leadership {
    /// The member that leads, as far as this one knows.
    pub leader: Option<NodeId>,
    /// The term.
    pub term: u64,
}

/// The newest version of commands that a member reads. One that has not said so reads the first.
fn command_version_of(member: &Member) -> u8 {
    u8::try_from(member.command_version).map_or(u8::MAX, |version| version.max(1))
}

/// Logs who leads, when that has changed. A term without a leader is part of an election.
fn log_leadership(before: Leadership, now: Leadership, own: NodeId) {
    let Leadership { leader, term } = now;
    match leader {
        Some(leader) if before != now => {
            let is_this_member = leader == own;
            let leader = format_args!("{leader:016x}");
            tracing::info!(%leader, term, is_this_member, "a leader was elected");
        }
        None if before.leader.is_some() => tracing::info!(term, "the leader was lost"),
        _ => {}
    }
}

impl Core {
    pub(crate) fn leadership(&self) -> Leadership {
        let view = self.raft.view();
        Leadership {
            leader: view.leader(),
            term: view.term(),
        }
    }

    /// Who leads, and in which term, as far as this member knows.
    pub(crate) fn leader_id(&self) -> Option<LeaderId> {
        let Leadership { leader, term } = self.leadership();
        leader.map(|node_id| LeaderId { term, node_id })
    }

    /// The term in which this member leads, as far as it knows.
    pub(crate) fn leading_term(&self) -> Option<u64> {
        let view = self.raft.view();
        view.is_leader().then(|| view.term())
    }

    /// Whether this member has applied an entry that it made itself as the leader in this term: then it has
    /// applied what was agreed on under the leaders before.
    pub(crate) fn has_applied_own(&self, term: u64) -> bool {
        let node_id = self.member_id;
        self.progress.borrow().leader == Some(LeaderId { term, node_id })
    }

    /// Waits until this member knows of another leader than this one, after it.
    pub(crate) async fn other_than(&self, asked: LeaderId) {
        let mut leadership = self.leadership.subscribe();
        let is_later = |now: &Leadership| {
            let node_id = now.leader.unwrap_or(asked.node_id);
            let term = now.term;
            LeaderId { term, node_id } > asked
        };
        // The sender lives as long as this.
        let _ = leadership.wait_for(is_later).await;
    }

    /// Who leads as far as this member has heard lately. Raft knows whom it has voted for; that one
    /// may be gone, or this member may be cut off.
    pub(crate) fn heard_leadership(&self) -> Leadership {
        let timeout = 2 * self.options.election_timeout;
        let heard = Duration::from_millis(self.heard_ms.load(Ordering::Relaxed));
        let view = self.raft.view();
        let is_heard = if view.is_leader() {
            let is_alone = view.membership().voter_ids().count() <= 1;
            let acked = view.quorum_acked();
            is_alone || acked.is_none_or(|acked| acked.elapsed() < timeout)
        } else {
            self.started.elapsed().saturating_sub(heard) < timeout
        };
        Leadership {
            leader: view.leader().filter(|_| is_heard),
            term: view.term(),
        }
    }

    /// A leader was heard.
    pub(crate) fn heard(&self) {
        let now = self.started.elapsed().as_millis() as u64;
        self.heard_ms.store(now, Ordering::Relaxed);
    }

    /// Tells those who listen who leads, until the node is closed.
    ///
    /// The state changes several times for each put; what changes rarely is known a moment before by `election`. So
    /// the state is waited for only while no leader is heard, or while it is the older one.
    pub(crate) async fn follow_leadership(self: Arc<Self>) {
        let mut state = self.raft.watch();
        let mut election = self.raft.watch_election();
        let mut closing = self.closing.subscribe();
        loop {
            let is_older = election.now() != state.view().election();
            let now = self.heard_leadership();
            let mut before = now;
            let changed = self.leadership.send_if_modified(|known| {
                before = std::mem::replace(known, now);
                before != now
            });
            log_leadership(before, now, self.member_id);
            if changed && now.leader.is_some() {
                self.counts.leader_changes.fetch_add(1, Ordering::Relaxed);
            }
            tokio::select! {
                changed = election.changed() => if changed.is_err() {
                    return;
                },
                changed = state.changed(), if is_older || now.leader.is_none() => if changed.is_err() {
                    return;
                },
                // That nothing is heard any more changes nothing.
                () = tokio::time::sleep(self.options.election_timeout / 2) => {}
                _ = closing.wait_for(|closed| *closed) => return,
            }
        }
    }

    /// The index of the last entry of the log.
    pub(crate) fn last_index(&self) -> Option<u64> {
        self.raft.view().last_index()
    }

    /// One past the index of the last entry that is known to be agreed.
    pub(crate) fn committed_next(&self) -> u64 {
        let view = self.raft.view();
        view.cluster_committed().map_or(0, |id| id.index + 1)
    }

    /// One past the index of the last entry that is applied here.
    pub(crate) fn applied_next(&self) -> u64 {
        self.progress.borrow().next
    }

    pub(crate) fn is_leading(&self) -> bool {
        self.raft.view().is_leader()
    }

    /// Whether every member reads commands of `version`.
    ///
    /// # Errors
    /// `CommandTooNew` names one that does not.
    pub(crate) fn check_version(&self, version: u8) -> Result<()> {
        // Every program reads the first one.
        if version <= 1 {
            return Ok(());
        }
        let view = self.raft.view();
        let membership = view.membership();
        for (id, member) in membership.nodes() {
            let known = command_version_of(member);
            if known < version {
                return Err(Error::CommandTooNew {
                    version,
                    member: *id,
                    known,
                });
            }
        }
        Ok(())
    }

    pub(crate) fn membership(&self) -> Membership {
        let view = self.raft.view();
        view.membership().clone()
    }

    /// The membership that was agreed on at a time after the call.
    pub(crate) async fn agreed_membership(&self) -> Result<Membership> {
        let next = self
            .read_index_of_leader(peer::ReadLevel::Linearizable)
            .await?;
        let mut state = self.raft.watch();
        let applied = async {
            loop {
                if let Some(agreed) = state.view().agreed_membership_after(next) {
                    return Ok(agreed);
                }
                state.changed().await?;
            }
        };
        let applied = tokio::time::timeout(self.options.request_timeout, applied).await;
        applied.map_err(|_| Error::Timeout)?
    }

    /// Whether this member is in the newest membership that it knows to be agreed on; `None` when it
    /// knows of none.
    pub(crate) fn is_agreed_member(&self) -> Option<bool> {
        let view = self.raft.view();
        let membership = view.agreed_membership();
        membership.nodes().next()?;
        Some(membership.get_node(&self.member_id).is_some())
    }

    /// Whether this member's directory holds no vote, no log and no state.
    pub(crate) fn is_blank(&self) -> bool {
        let has_voted = self.log.member().read_vote().is_some();
        !has_voted && self.log.last_log_id().is_none() && self.applied_next() == 0
    }

    /// Whether this member is known to have no vote. One that does not know yet is none.
    pub(crate) fn is_learner(&self) -> bool {
        let view = self.raft.view();
        let membership = view.membership();
        let is_member = membership.get_node(&self.member_id).is_some();
        is_member && !membership.voter_ids().any(|id| id == self.member_id)
    }

    /// A client of another member.
    pub(crate) fn peer(&self, id: NodeId) -> Option<PeerClient> {
        let view = self.raft.view();
        let member = view.membership().get_node(&id)?;
        Some(self.peers.client(id, member))
    }

    /// Whether a member has answered this one, leading, within the last two election timeouts.
    pub(crate) fn is_active(&self, id: NodeId) -> bool {
        if id == self.member_id {
            return true;
        }
        let view = self.raft.view();
        let answered = view.answered_before(id);
        answered.is_some_and(|age| age < 2 * self.options.election_timeout)
    }

    /// Why nothing goes on here any more.
    pub(crate) fn stop_reason(&self) -> Option<String> {
        if let Some(reason) = &*self.failure.lock() {
            return Some(reason.clone());
        }
        self.raft.view().stop_reason()
    }

    /// Stops serving: the member cannot go on.
    pub(crate) fn fail(&self, reason: &str) {
        tracing::error!(reason, "this member stops");
        *self.failure.lock() = Some(reason.to_owned());
        self.closing.send_modify(|_| {});
    }

    pub(crate) fn check_running(&self) -> Result<()> {
        match self.stop_reason() {
            Some(reason) => Err(Error::Stopped { reason }),
            None => Ok(()),
        }
    }

    /// Whether the leader's lease holds now, and everything that is agreed on is applied here. Without
    /// leaving this thread.
    pub(crate) fn holds_lease(&self) -> bool {
        let next = self.leased_index();
        next.is_some_and(|next| self.progress.borrow().next >= next)
    }

    /// One past the index that a read by the lease must have applied; `None` when the lease does not hold.
    /// While it holds, no other member can have been elected yet.
    ///
    /// The lease began when the requests were sent that a majority has answered last; those who
    /// answered elect nobody for [`NodeConfig::vote_lease`] from when they got them. A part of it is
    /// taken off for clocks that run at different speeds.
    ///
    /// Acknowledged is what the leader has applied; but that something is agreed on others may have learnt
    /// before, and told: whoever has read it must not read by the lease what was before it.
    pub(crate) fn leased_index(&self) -> Option<u64> {
        let view = self.raft.view();
        let term = view.term();
        if !view.is_leader() {
            return None;
        }
        // What the leaders before have acknowledged is behind the first entry of this one.
        let node_id = self.member_id;
        let committed = view.cluster_committed()?;
        if committed.leader_id != (LeaderId { term, node_id }) {
            return None;
        }
        // Abdicating, the next leader does not wait for the lease to end.
        if self.abdication.is_possible_in(term) {
            return None;
        }
        // One that was removed may not have heard yet that others decide now without it.
        let mut voters = view.membership().voter_ids();
        if !voters.any(|id| id == self.member_id) {
            return None;
        }
        let next = (committed.index + 1).max(self.read_floor.load(Ordering::Acquire));
        if view.membership().voter_ids().count() == 1 {
            return Some(next);
        }
        let acked = view.quorum_acked()?;
        let lease = self.options.vote_lease().mul_f64(0.8);
        let clock = self.replica.clock();
        // The time first: it must not seem to be acknowledged later than it was.
        let now = std::time::Instant::now();
        let age = acked.elapsed();
        let is_valid = age < lease
            && (now.checked_sub(age)).is_some_and(|at| self.suspensions.has_run_since(at, clock));
        is_valid.then_some(next)
    }

    /// Waits until this member has applied the entry before `next`.
    pub(crate) async fn wait_applied(&self, next: u64, timeout: Duration) -> Result<()> {
        let mut progress = self.progress.clone();
        if progress.borrow().next >= next {
            return Ok(());
        }
        let _waiting = Counted::begin(&self.counts.waiting_to_apply);
        let waited = tokio::time::timeout(timeout, progress.wait_for(|at| at.next >= next)).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(Error::stopped("it is closed")),
            Err(_) => Err(self.check_running().err().unwrap_or(Error::Timeout)),
        }
    }
}
