//! What the parts of a node share.
//!
//! Invariant: who holds what `metrics` or `progress` lends takes neither again. These are locks for
//! reading that let a waiting writer go first: a second one on the same thread waits for the writer,
//! which waits for the first one, and the whole member stands still. So each function here takes them
//! for itself, and gives back values.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline::replica::Replica;
use openraft::alias::WatchReceiverOf;
use openraft::async_runtime::WatchReceiver as _;
use openraft::{Instant as _, ServerState};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::config::NodeConfig;
use super::state_machine::{Progress, StateMachine};
use super::waiters::Waiters;
use crate::error::{Error, Result};
use crate::histogram::Histogram;
use crate::log_store::LogStore;
use crate::peer::{PeerClient, Peers};
use crate::types::{Membership, NodeId, TypeConfig};

/// openraft, of Bowline's types.
pub(crate) type Raft = openraft::Raft<TypeConfig, StateMachine>;
type Metrics = openraft::RaftMetrics<TypeConfig>;

/// What the parts of a node share.
pub(crate) struct Core {
    pub(crate) cluster_id: u64,
    pub(crate) member_id: NodeId,
    pub(crate) options: NodeConfig,
    pub(crate) raft: Raft,
    pub(crate) replica: Arc<Replica>,
    pub(crate) log: LogStore,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) peers: Peers,
    pub(crate) metrics: WatchReceiverOf<TypeConfig, Metrics>,
    pub(crate) progress: watch::Receiver<Progress>,
    /// The term in which leadership is being given away, and lease reads are over.
    pub(crate) abdicating: AtomicU64,
    pub(crate) renewals: Renewals,
    /// Held by who changes the membership, from the look at what there is to the end of the change.
    pub(crate) changing: Arc<tokio::sync::Mutex<()>>,
    /// Why the node stopped, when it did by itself.
    pub(crate) failure: Mutex<Option<String>>,
    pub(crate) closing: watch::Sender<bool>,
    pub(crate) leadership: watch::Sender<Leadership>,
    pub(crate) counts: Counts,
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
    /// Changes when some have gone.
    pub(crate) cleared: watch::Sender<()>,
}

/// What a node counts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) leader_changes: AtomicU64,
    pub(crate) proposals_pending: AtomicU64,
    pub(crate) proposals_failed: AtomicU64,
    pub(crate) proposals_committed: AtomicU64,
    pub(crate) commit_times: Histogram,
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

impl Core {
    pub(crate) fn leadership(&self) -> Leadership {
        let metrics = self.metrics.borrow_watched();
        Leadership {
            leader: metrics.current_leader,
            term: metrics.current_term,
        }
    }

    /// Who leads as far as this member has heard lately. Raft knows whom it has voted for; that one
    /// may be gone, or this member may be cut off.
    pub(crate) fn heard_leadership(&self) -> Leadership {
        let patience = 2 * self.options.election_timeout;
        let heard = Duration::from_millis(self.heard_ms.load(Ordering::Relaxed));
        let metrics = self.metrics.borrow_watched();
        let is_heard = if metrics.state == ServerState::Leader {
            let is_alone = metrics.membership_config.voter_ids().count() <= 1;
            let acked = metrics.last_quorum_acked;
            is_alone || acked.is_none_or(|acked| acked.elapsed() < patience)
        } else {
            self.started.elapsed().saturating_sub(heard) < patience
        };
        Leadership {
            leader: metrics.current_leader.filter(|_| is_heard),
            term: metrics.current_term,
        }
    }

    /// A leader was heard.
    pub(crate) fn heard(&self) {
        let now = self.started.elapsed().as_millis() as u64;
        self.heard_ms.store(now, Ordering::Relaxed);
    }

    /// Tells those who listen who leads, until the node is closed.
    pub(crate) async fn follow_leadership(self: Arc<Self>) {
        let mut metrics = self.metrics.clone();
        let mut closing = self.closing.subscribe();
        loop {
            let now = self.heard_leadership();
            let changed = self.leadership.send_if_modified(|known| {
                let is_new = *known != now;
                *known = now;
                is_new
            });
            if changed && now.leader.is_some() {
                self.counts.leader_changes.fetch_add(1, Ordering::Relaxed);
            }
            tokio::select! {
                changed = metrics.changed() => if changed.is_err() {
                    return;
                },
                // That nothing is heard any more changes nothing.
                () = tokio::time::sleep(self.options.election_timeout / 2) => {}
                _ = closing.wait_for(|closed| *closed) => return,
            }
        }
    }

    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.metrics.borrow_watched().current_leader
    }

    /// The index of the last entry of the log.
    pub(crate) fn last_index(&self) -> Option<u64> {
        self.metrics.borrow_watched().last_log_index
    }

    /// One past the index of the last entry that is known to be agreed.
    pub(crate) fn committed_next(&self) -> u64 {
        let metrics = self.metrics.borrow_watched();
        metrics.cluster_committed.map_or(0, |id| id.index + 1)
    }

    /// One past the index of the last entry that is applied here.
    pub(crate) fn applied_next(&self) -> u64 {
        self.progress.borrow().next
    }

    pub(crate) fn is_leading(&self) -> bool {
        self.metrics.borrow_watched().state == ServerState::Leader
    }

    pub(crate) fn membership(&self) -> Membership {
        let metrics = self.metrics.borrow_watched();
        metrics.membership_config.membership().clone()
    }

    /// Whether this member is known to have no vote. One that does not know yet is none.
    pub(crate) fn is_learner(&self) -> bool {
        let metrics = self.metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        let is_member = membership.get_node(&self.member_id).is_some();
        is_member && !membership.voter_ids().any(|id| id == self.member_id)
    }

    /// A client of another member.
    pub(crate) fn peer(&self, id: NodeId) -> Option<PeerClient> {
        let metrics = self.metrics.borrow_watched();
        let member = metrics.membership_config.membership().get_node(&id)?;
        Some(self.peers.client(id, member))
    }

    /// Whether a member has answered this one, leading, within the last two election timeouts.
    pub(crate) fn is_active(&self, id: NodeId) -> bool {
        if id == self.member_id {
            return true;
        }
        let metrics = self.metrics.borrow_watched();
        let heartbeats = metrics.heartbeat.as_ref();
        let answered = heartbeats.and_then(|all| all.get(&id)).copied().flatten();
        answered.is_some_and(|at| at.elapsed() < 2 * self.options.election_timeout)
    }

    /// Why nothing goes on here any more.
    pub(crate) fn stop_reason(&self) -> Option<String> {
        if let Some(reason) = &*self.failure.lock() {
            return Some(reason.clone());
        }
        let metrics = self.metrics.borrow_watched();
        metrics
            .running_state
            .as_ref()
            .err()
            .map(ToString::to_string)
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

    /// Whether the leader's lease holds now: no other member can have been elected yet, and
    /// everything that was acknowledged before is applied here. Without leaving this thread.
    ///
    /// The lease began when the requests were sent that a majority has answered last; those who
    /// answered elect nobody for an election timeout from when they got them. A part of it is
    /// taken off for clocks that run at different speeds.
    pub(crate) fn holds_lease(&self) -> bool {
        // What the leaders before acknowledged is behind the first entry of this one.
        let applied_term = self.progress.borrow().term;
        let metrics = self.metrics.borrow_watched();
        let term = metrics.current_term;
        if metrics.state != ServerState::Leader || applied_term != term {
            return false;
        }
        // Abdicating, the next leader does not wait for the lease to end.
        if self.abdicating.load(Ordering::Acquire) == term {
            return false;
        }
        // One that was removed may not have heard yet that others decide now without it.
        let mut voters = metrics.membership_config.voter_ids();
        if !voters.any(|id| id == self.member_id) {
            return false;
        }
        if metrics.membership_config.voter_ids().count() == 1 {
            return true;
        }
        let Some(acked) = metrics.last_quorum_acked else {
            return false;
        };
        let lease = self.options.election_timeout.mul_f64(0.8);
        acked.elapsed() < lease
    }

    /// Waits until this member has applied the entry before `next`.
    pub(crate) async fn wait_applied(&self, next: u64, timeout: Duration) -> Result<()> {
        let mut progress = self.progress.clone();
        if progress.borrow().next >= next {
            return Ok(());
        }
        let waited = tokio::time::timeout(timeout, progress.wait_for(|at| at.next >= next)).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(Error::stopped("it is closed")),
            Err(_) => Err(self.check_running().err().unwrap_or(Error::Timeout)),
        }
    }
}
