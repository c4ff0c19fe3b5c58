//! The shared state of a node.
//!
//! Invariant: a holder of a guard from `raft` or `progress` takes neither again. They are read locks on which
//! a waiting writer goes first: a second read lock on the same thread waits for the writer, which waits for
//! the first one, and the member deadlocks. So each function here takes its own guard and returns values.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bowline_replica::{AlarmKind, Refusal, Replica};
use bowline_storage::histogram::Histogram;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::abdication::Abdication;
use super::config::NodeConfig;
use super::suspension::Suspensions;
use crate::error::{Error, Result};
use crate::log_limit::SharedLogLimit;
use crate::peer::{self, PeerClient, Peers};
use crate::raft::Raft;
use crate::raft::log_store::LogStore;
use crate::raft::repairs::Repairs;
use crate::raft::state_machine::Progress;
use crate::raft::waiters::Waiters;
use crate::types::{LeaderId, Member, Membership, NodeId};

/// The state shared by the parts of a node.
pub(crate) struct Core {
    pub(crate) cluster_id: u64,
    pub(crate) member_id: NodeId,
    /// The incarnation of this member's directory.
    pub(crate) incarnation: u64,
    /// The founding membership, if this member is a founder.
    pub(crate) founders: Option<Membership>,
    pub(crate) options: NodeConfig,
    pub(crate) raft: Raft,
    pub(crate) replica: Arc<Replica>,
    pub(crate) log: LogStore,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) peers: Peers,
    pub(crate) progress: watch::Receiver<Progress>,
    /// Leadership transfers, which end lease reads.
    pub(crate) abdication: Arc<Abdication>,
    /// Ids of present and past members that this member has seen since its start.
    pub(crate) seen_members: Mutex<BTreeSet<NodeId>>,
    /// Whether it includes the members of the memberships in the log.
    pub(crate) has_seen_log: AtomicBool,
    pub(crate) suspensions: Suspensions,
    /// One past the newest read index that this member, as the leader, has given to a linearizable read.
    pub(crate) read_floor: AtomicU64,
    pub(crate) renewals: Renewals,
    /// Turns for work that blocks a thread of the runtime.
    pub(crate) long_work: tokio::sync::Semaphore,
    /// Turns of transactions that read much and write.
    pub(crate) heavy_turns: super::heavy_turns::HeavyTurns,
    /// Held while other members are asked about an unknown candidate.
    pub(crate) vouching: tokio::sync::Semaphore,
    pub(crate) space: super::space::Space,
    /// Where the state machine waits for a snapshot.
    pub(crate) repairs: Arc<Repairs>,
    pub(crate) damage: Arc<super::damage::Damage>,
    /// The members to which this one sends a snapshot for a repair.
    pub(crate) sending: Arc<Mutex<BTreeSet<NodeId>>>,
    pub(crate) hashing: super::damage::Hashing,
    /// Held during a change of the membership, from its first check to its end.
    pub(crate) changing: Arc<tokio::sync::Mutex<()>>,
    /// Why the node stopped by itself, if it did.
    pub(crate) failure: Mutex<Option<String>>,
    pub(crate) closing: watch::Sender<bool>,
    pub(crate) leadership: watch::Sender<Leadership>,
    /// Counts the changes of users in this member's state.
    pub(crate) users_changes: watch::Sender<u64>,
    pub(crate) counts: Counts,
    pub(crate) log_limits: Arc<LogLimits>,
    /// The start time of the node.
    pub(crate) started: tokio::time::Instant,
    /// The last contact of a leader, in ms since the start.
    pub(crate) heard_ms: AtomicU64,
    /// How long after the start this member gives no vote: before its restart it may have promised that to a
    /// leader, and the promise is not on disk.
    pub(crate) votes_after: Duration,
}

/// The signals between lease renewals and the lessor task.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    /// A renewal waits until the lease's record is cleared.
    pub(crate) wanted: Notify,
    /// Changes when records are cleared, and when leases have ended.
    pub(crate) cleared: watch::Sender<()>,
    /// The last term in which this member has begun to keep the leases' time.
    pub(crate) kept_term: watch::Sender<u64>,
}

/// A node's counters.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) leader_changes: AtomicU64,
    pub(crate) proposals_pending: AtomicU64,
    pub(crate) proposals_failed: AtomicU64,
    pub(crate) proposals_committed: AtomicU64,
    pub(crate) commit_times: Histogram,
    /// Rounds in which this member asked the others about its admission.
    pub(crate) admission_rounds: AtomicU64,
    /// Times that a leader reported acknowledgements which this member's log does not hold.
    pub(crate) losses_found: AtomicU64,
    /// Pauses of a repair that has made way for a snapshot of the consensus.
    pub(crate) repair_pauses: AtomicU64,
    /// Tables that the scrubber has read.
    pub(crate) tables_scrubbed: AtomicU64,
    /// Votes that were not given, or not counted, as another member remembers what this one has lost.
    pub(crate) votes_withheld: AtomicU64,
    /// Damage outside of tables that the scrubber has found.
    pub(crate) damage_found: AtomicU64,
    /// Comparisons of the voters' data that this leader has completed.
    pub(crate) comparisons: AtomicU64,
    /// Completed rounds of the lessor on this leader.
    pub(crate) lease_rounds: AtomicU64,
    /// Calls that wait until this member has applied an entry.
    pub(crate) waiting_to_apply: AtomicU64,
    /// Lease requests that wait until a majority confirms that this member leads.
    pub(crate) waiting_to_confirm: AtomicU64,
}

/// Increments a counter while it lives.
pub(crate) struct Counted<'a>(&'a AtomicU64);

impl<'a> Counted<'a> {
    pub(crate) fn begin(count: &'a AtomicU64) -> Counted<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Limits of repeated log messages.
#[derive(Debug, Default)]
pub(crate) struct LogLimits {
    pub(crate) joint_membership: SharedLogLimit,
    pub(crate) promotion: SharedLogLimit,
    pub(crate) alarm: SharedLogLimit,
    pub(crate) hand_over: SharedLogLimit,
    pub(crate) repair: SharedLogLimit,
    pub(crate) sound_after_all: SharedLogLimit,
    pub(crate) sent_repair: SharedLogLimit,
    pub(crate) owed: SharedLogLimit,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("member_id", &self.member_id)
            .finish_non_exhaustive()
    }
}

/// The known leadership.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leadership {
    /// The leader, as far as this member knows.
    pub leader: Option<NodeId>,
    /// The term.
    pub term: u64,
}

/// The newest command version of a member; the first if it has not announced one.
fn command_version_of(member: &Member) -> u8 {
    u8::try_from(member.command_version).map_or(u8::MAX, |version| version.max(1))
}

/// Whether a member has said since it was added who it is and which commands it knows, as each does after its start.
pub(crate) fn has_announced(member: &Member) -> bool {
    member.command_version > 0 || !member.name.is_empty()
}

impl Core {
    pub(crate) fn leadership(&self) -> Leadership {
        let view = self.raft.view();
        Leadership {
            leader: view.leader(),
            term: view.term(),
        }
    }

    /// Logs a change of the leader. A term without a leader is part of an election.
    fn log_leadership(&self, before: Leadership, now: Leadership) {
        let term = now.term;
        match (before.leader, now.leader) {
            (_, Some(leader)) if before != now => {
                let which = if leader == self.member_id {
                    "this member "
                } else {
                    "member "
                };
                tracing::info!("{which}{} leads in term {term}", self.named(leader));
            }
            (Some(leader), None) => tracing::info!(
                "the leader is lost: member {} led in term {}, and none leads in term {term}",
                self.named(leader),
                before.term
            ),
            _ => {}
        }
    }

    /// A member's id, as its commands show it, and its name if that is known.
    fn named(&self, id: NodeId) -> String {
        let view = self.raft.view();
        let mut nodes = view.membership().nodes();
        match nodes.find(|(other, _)| **other == id) {
            Some((_, member)) if !member.name.is_empty() => format!("{id:x} ({})", member.name),
            _ => format!("{id:x}"),
        }
    }

    /// The leader and the term, as far as this member knows.
    pub(crate) fn leader_id(&self) -> Option<LeaderId> {
        let Leadership { leader, term } = self.leadership();
        leader.map(|node_id| LeaderId { term, node_id })
    }

    /// The term in which this member leads, as far as it knows.
    pub(crate) fn leading_term(&self) -> Option<u64> {
        let view = self.raft.view();
        view.is_leader().then(|| view.term())
    }

    /// Whether this member has applied an entry that it proposed as the leader of this term: then it has also
    /// applied all committed entries of earlier leaders.
    pub(crate) fn has_applied_own(&self, term: u64) -> bool {
        let node_id = self.member_id;
        self.progress.borrow().leader == Some(LeaderId { term, node_id })
    }

    /// Waits until this member knows a later leader than this one.
    pub(crate) async fn other_than(&self, asked: LeaderId) {
        let mut leadership = self.leadership.subscribe();
        let is_later = |now: &Leadership| {
            let node_id = now.leader.unwrap_or(asked.node_id);
            let term = now.term;
            LeaderId { term, node_id } > asked
        };
        // An error is impossible: the sender lives as long as this.
        let _ = leadership.wait_for(is_later).await;
    }

    /// The leader that this member has recently heard from. Raft itself reports the member it voted for,
    /// which may be down, or this member may be cut off.
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

    /// Notes that a leader was heard.
    pub(crate) fn heard(&self) {
        let now = self.started.elapsed().as_millis() as u64;
        self.heard_ms.store(now, Ordering::Relaxed);
    }

    /// Publishes the leadership until the node is closed.
    ///
    /// The metrics change several times per put; `election` changes rarely, and a moment earlier. So the
    /// metrics are awaited only while no leader is heard, or while they are older than `election`.
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
            self.log_leadership(before, now);
            if changed && now.leader.is_some() {
                self.counts.leader_changes.fetch_add(1, Ordering::Relaxed);
            }
            tokio::select! {
                biased;
                _ = closing.wait_for(|closed| *closed) => return,
                changed = election.changed() => if changed.is_err() {
                    return;
                },
                changed = state.changed(), if is_older || now.leader.is_none() => if changed.is_err() {
                    return;
                },
                // Notices when the leader is no longer heard.
                () = tokio::time::sleep(self.options.election_timeout / 2) => {}
            }
        }
    }

    /// The index of the last log entry.
    pub(crate) fn last_index(&self) -> Option<u64> {
        self.raft.view().last_index()
    }

    /// One past the last index that is known to be committed.
    pub(crate) fn committed_next(&self) -> u64 {
        let view = self.raft.view();
        view.cluster_committed().map_or(0, |id| id.index + 1)
    }

    /// One past the last index that is applied here.
    pub(crate) fn applied_next(&self) -> u64 {
        self.progress.borrow().next
    }

    pub(crate) fn is_leading(&self) -> bool {
        self.raft.view().is_leader()
    }

    /// Whether every member supports commands of `version`. One that was added and has not announced itself does not count:
    /// the log has newer commands for it already, it stops at one that it does not know, and is no voter before.
    ///
    /// # Errors
    /// `CommandTooNew` names one that does not.
    pub(crate) fn check_version(&self, version: u8) -> Result<()> {
        // Every program supports the first version.
        if version <= 1 {
            return Ok(());
        }
        let view = self.raft.view();
        let membership = view.membership();
        for (id, member) in membership.nodes() {
            // A member that has just started has announced nothing yet, and knows what it reads itself.
            let known = match *id == self.member_id {
                true => u8::try_from(self.options.command_version)
                    .unwrap_or(u8::MAX)
                    .max(1),
                false => command_version_of(member),
            };
            let is_voter = || membership.voter_ids().any(|voter| voter == *id);
            if known < version && (has_announced(member) || is_voter()) {
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

    /// The membership that was committed at a moment after the call.
    pub(crate) async fn agreed_membership(&self) -> Result<Membership> {
        let next = self
            .read_index_of_leader(peer::Confirmation::Majority)
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

    /// Whether this member is in the newest membership that it knows to be committed; `None` when it knows
    /// none.
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

    /// Whether this member is known to be a learner; false while it is unknown.
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

    /// Whether a member has answered this leader within the last two election timeouts.
    pub(crate) fn is_active(&self, id: NodeId) -> bool {
        if id == self.member_id {
            return true;
        }
        let view = self.raft.view();
        let answered = view.answered_before(id);
        answered.is_some_and(|age| age < 2 * self.options.election_timeout)
    }

    /// Why the member has stopped.
    pub(crate) fn stop_reason(&self) -> Option<String> {
        if let Some(reason) = &*self.failure.lock() {
            return Some(reason.clone());
        }
        self.raft.view().stop_reason()
    }

    /// Stops serving: the member cannot continue.
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

    /// Whether clients may write here: not while the data of this member is replaced, or is known to differ.
    pub(crate) fn check_serving(&self) -> Result<()> {
        self.check_reading()?;
        match self.repairs.is_wanted() {
            true => Err(Error::Repairing),
            false => Ok(()),
        }
    }

    /// Whether clients may read what is applied here: not while it may be wrong.
    pub(crate) fn check_reading(&self) -> Result<()> {
        self.check_running()?;
        if self.repairs.is_wanted() && !self.repairs.serves_reads() {
            return Err(Error::Repairing);
        }
        if self.differs() {
            return Err(Refusal::Corrupt.into());
        }
        Ok(())
    }

    /// Whether the alarm is raised that the data of this member differs. Does not block while there is none.
    pub(crate) fn differs(&self) -> bool {
        let alarm = (self.member_id, AlarmKind::Corrupt);
        self.replica.is_corrupt() && self.replica.alarms().contains(&alarm)
    }

    /// Whether the leader's lease is valid now, and everything committed is applied here. Does not leave this
    /// thread.
    pub(crate) fn holds_lease(&self) -> bool {
        let next = self.leased_index();
        next.is_some_and(|next| self.progress.borrow().next >= next)
    }

    /// One past the index that a lease read must have applied; `None` when the lease is not valid. While it
    /// is valid, no other member can have been elected.
    ///
    /// The lease began when the requests were sent that a majority has last answered; the members that
    /// answered give no vote for [`NodeConfig::vote_lease`] after they received them. A margin is subtracted
    /// for clock drift.
    ///
    /// Acknowledged commands are applied by the leader. But other members may have learnt of a commit
    /// earlier, and served it to a linearizable read: a later lease read must not return an older state. The
    /// consensus sends a commit to the others before its own view shows it, so the newest commit that was
    /// sent counts, too.
    pub(crate) fn leased_index(&self) -> Option<u64> {
        let view = self.raft.view();
        let term = view.term();
        if !view.is_leader() {
            return None;
        }
        // Everything acknowledged by earlier leaders precedes this leader's first entry.
        let node_id = self.member_id;
        let committed = view.cluster_committed()?;
        if committed.leader_id != (LeaderId { term, node_id }) {
            return None;
        }
        // After a transfer the next leader does not wait for the lease to end.
        if self.abdication.is_possible_in(term) {
            return None;
        }
        // A removed leader may not know yet that the others now decide without it.
        let mut voters = view.membership().voter_ids();
        if !voters.any(|id| id == self.member_id) {
            return None;
        }
        let mut floor = self.read_floor.load(Ordering::Acquire);
        if floor > committed.index + 1 {
            // It may be from an earlier leadership, and name entries that were lost with it.
            floor = floor.min(self.log.last_log_id().map_or(0, |last| last.index + 1));
        }
        let next = (committed.index + 1).max(floor).max(self.peers.announced());
        if view.membership().voter_ids().count() == 1 {
            return Some(next);
        }
        let acked = view.quorum_acked()?;
        let lease = self.options.vote_lease().mul_f64(0.8);
        let clock = self.replica.clock();
        // The time is read first, so that the acknowledgement does not seem later than it was.
        let now = tokio::time::Instant::now();
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
