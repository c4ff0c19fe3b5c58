//! Repair: the tables of a member with damage are replaced by those of another member; its log, vote and id stay.
//!
//! Damage is found by reads: of a client, of an entry's application, of a merge, of the
//! [`scrubber`](super::scrubber). The state machine then applies nothing until a snapshot has replaced its tables
//! ([`be_repaired`](crate::raft::state_machine::StateMachine::be_repaired)), which this module requests from
//! the leader until it arrives. Meanwhile the member refuses writes of clients with `Repairing`, and does not stand for
//! election; a leader first hands over the lead. It continues to vote and to acknowledge: both depend on the log alone.
//!
//! Reads go on: the tables are those of the entries that were applied, and a page that is damaged is never taken for sound.
//! A read that meets it, or that needs a later entry, is refused with `Repairing`, and so is every read where the data
//! may be wrong without any damage: an administrator has asked for the repair, or entries were passed over.
//!
//! A single voter has no other member to copy from: there each read of damaged data is an error.
//!
//! After Alagappan et al., "Protocol-Aware Recovery for Consensus-Based Storage", FAST 2018: damaged data is
//! distinguished from missing data, and is fetched from other members by the rules of the protocol. Their CTRL fetches
//! single entries and chunks; the tables of Bowline's members are not alike, so the whole state is fetched.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline_replica::{AlarmKind, Caller, Command};
use tokio::time::Instant;

use super::core::Core;
use super::leader_request::{LeaderRequest, LeaderResponse};
use crate::error::{Error, Result};
use crate::raft::network::send_repair;
use crate::raft::repairs::ASKED;
use crate::types::NodeId;

/// The pause between two attempts to get a snapshot.
const PAUSE: Duration = Duration::from_millis(500);
/// The timeout of a requested repair without a leader that sends a snapshot.
const REQUESTED_TIMEOUT: Duration = Duration::from_secs(120);
/// The timeout of an attempt to clear an alarm.
const ALARM_TIMEOUT: Duration = Duration::from_secs(2);

impl Core {
    /// Passes a result on. Damage in it is noted, to be repaired.
    pub(crate) fn noting<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result
            && error.is_damage()
        {
            self.damage.note(error.to_string());
        }
        result
    }

    /// The error of a read: where damage is met that another member can repair, that one can be asked, too.
    pub(crate) fn error_of_read(&self, error: Error) -> Error {
        match error.is_damage() && self.has_other_voters() {
            true => Error::Repairing,
            false => error,
        }
    }

    fn has_other_voters(&self) -> bool {
        let membership = self.membership();
        membership.voter_ids().any(|id| id != self.member_id)
    }

    /// As the leader: has a member's tables replaced. Returns when the member has begun.
    pub(crate) async fn repair_member(&self, id: NodeId) -> Result<()> {
        if id == self.member_id {
            if !self.has_other_voters() {
                return Err(Error::NoOtherVoter);
            }
            self.repairs.ask();
            self.damage.note(ASKED.to_owned());
            return Ok(());
        }
        if !self.is_leading() {
            return Err(Error::NotLeader);
        }
        let member = self.membership().get_node(&id).cloned();
        let member = member.ok_or(Error::MemberNotFound { id })?;
        let client = self.peers.client(id, &member);
        let question = LeaderRequest::MemberRepair(id).into_proto();
        let answer = client.ask(question).await;
        let answer = answer.map_err(|status| Error::stopped(status.message()))?;
        match LeaderResponse::from_proto(answer) {
            Some(LeaderResponse::Refused(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Clears the alarm that the data of this member differs: it is that of another member now.
    async fn clear_own_alarm(&self) {
        let alarm = (self.member_id, AlarmKind::Corrupt);
        while self.replica.alarms().contains(&alarm) && self.stop_reason().is_none() {
            let command = Command::Alarm {
                member: self.member_id,
                kind: AlarmKind::Corrupt,
                is_raised: false,
            };
            let (number, proposal) = self.waiters.propose(&[command], Vec::new());
            let deadline = Instant::now() + ALARM_TIMEOUT;
            self.hand_in_once(number, proposal, deadline).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// As the leader: sends a snapshot, with everything before `next`, to a member that waits for it. Returns when it
    /// is on its way.
    pub(crate) async fn send_snapshot(&self, to: NodeId, next: u64) -> Result<()> {
        if !self.is_leading() {
            return Err(Error::NotLeader);
        }
        let member = self.membership().get_node(&to).cloned();
        let member = member.ok_or(Error::MemberNotFound { id: to })?;
        if let Some(damage) = self.damage.found() {
            return Err(Error::stopped(damage));
        }
        self.wait_applied(next, self.options.request_timeout)
            .await?;
        if !self.sending.lock().insert(to) {
            return Ok(());
        }
        let vote = self.raft.view().vote();
        let (raft, peers, sending) = (self.raft.clone(), self.peers.clone(), self.sending.clone());
        let log_limits = self.log_limits.clone();
        tokio::spawn(async move {
            let sent = async {
                let snapshot = raft.snapshot().await?;
                let snapshot = snapshot.ok_or_else(|| Error::stopped("nothing is applied"))?;
                let sent = send_repair(&peers, to, &member, &vote, snapshot).await;
                sent.map_err(|status| Error::stopped(status.message()))
            };
            match sent.await {
                Ok(()) => tracing::info!(member = %format_args!("{to:x}"), "a member is repaired"),
                // It asks again and again until it is.
                Err(error) => {
                    if let Some(more) = log_limits.sent_repair.admit_now() {
                        tracing::warn!(member = %format_args!("{to:x}"), %error, "a member is not repaired yet{more}");
                    }
                }
            }
            sending.lock().remove(&to);
        });
        Ok(())
    }

    /// Reads all tables. If none is damaged, forgets the damage that was noted for this reason, unless somebody has asked
    /// for the repair.
    async fn is_sound_after_all(&self, reason: &str) -> bool {
        if reason == ASKED {
            return false;
        }
        let replica = self.replica.clone();
        let checked = crate::blocking::spawn(move || replica.db().check()).await;
        let is_sound = checked.is_ok_and(|check| check.is_ok_and(|check| check.is_clean()));
        if is_sound {
            if let Some(more) = self.log_limits.sound_after_all.admit_now() {
                tracing::warn!(
                    reason,
                    "the tables of this member are sound after all{more}"
                );
            }
            self.damage.is_none_of(reason);
        }
        is_sound
    }

    /// Hands over the lead to any other voter, if this member has it.
    async fn hand_over(&self) {
        if !self.is_leading() {
            return;
        }
        let membership = self.membership();
        for id in membership.voter_ids().filter(|id| *id != self.member_id) {
            self.answer(LeaderRequest::MoveLeader(id)).await;
            if !self.is_leading() {
                return;
            }
        }
    }
}

/// Runs until the node is closed: repairs what is damaged, and gets the snapshot that the state machine waits for.
pub(crate) async fn run(core: &Core) {
    tokio::join!(mend(core), supply(core));
}

/// Repairs damage that was noted.
async fn mend(core: &Core) {
    let mut found = core.damage.watch();
    loop {
        // An error is impossible: the sender lives as long as this.
        let reason = match found.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => return,
        };
        if !core.repairs.is_waiting() {
            if !core.has_other_voters() {
                tracing::error!(
                    reason,
                    "the tables of this member are damaged, and no other voter has the data: restore a \
                     snapshot"
                );
                // Once is enough, until the membership has more.
                while !core.has_other_voters() {
                    tokio::time::sleep(4 * PAUSE).await;
                }
                continue;
            }
            core.hand_over().await;
            if core.is_leading() {
                // Nobody else can lead. What is not damaged is served, which would end if this member waited.
                if let Some(more) = core.log_limits.hand_over.admit_now() {
                    tracing::error!(
                        reason,
                        "the tables of this leader are damaged, and no other member can lead yet{more}"
                    );
                }
                // A leader that has noted damage sends nobody a snapshot: what a passing fault of the disk
                // or of memory has noted must not keep the one that waits for it waiting.
                if !core.is_sound_after_all(&reason).await {
                    // An attempt that is refused may cost an election.
                    tokio::time::sleep(20 * PAUSE).await;
                }
                continue;
            }
            if let Err(error) = core.raft.rebuild(reason.clone(), REQUESTED_TIMEOUT).await {
                if let Some(more) = core.log_limits.repair.admit_now() {
                    tracing::error!(%error, reason, "the tables of this member were not replaced{more}");
                }
                tokio::time::sleep(4 * PAUSE).await;
                core.is_sound_after_all(&reason).await;
                continue;
            }
            // It may have made way for a snapshot of the consensus, which may come to nothing.
            while core.repairs.yields() {
                core.counts.repair_pauses.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(PAUSE).await;
            }
        } else {
            // What the state machine waits for is another member's state, whoever has asked.
            while core.repairs.is_waiting() {
                tokio::time::sleep(PAUSE).await;
            }
        }
        if core.repairs.was_put_off().is_some() {
            continue;
        }
        core.forget_hashes();
        core.clear_own_alarm().await;
        // What was asked for since the tables were replaced is done next.
        if !core.repairs.is_asked() {
            core.damage.is_mended();
        }
    }
}

/// Has the leader send what the state machine waits for.
async fn supply(core: &Core) {
    let mut wanted = core.repairs.watch();
    loop {
        // An error is impossible: the sender lives as long as this.
        if wanted.wait_for(Option::is_some).await.is_err() {
            return;
        }
        while let Some(wanted) = core.repairs.wanted() {
            // Again and again: others allow it after a start.
            core.raft.may_stand(false);
            if core.is_leading() {
                core.hand_over().await;
            } else {
                let question = LeaderRequest::SendSnapshot {
                    to: core.member_id,
                    next: wanted.next,
                };
                match core.ask_leader(&Caller::Process, question).await {
                    Ok(_) => core.repairs.is_promised(),
                    Err(error) => tracing::debug!(%error, "no snapshot is sent yet"),
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        if !core.owes() && core.started.elapsed() >= core.votes_after {
            core.raft.may_stand(true);
        }
    }
}
