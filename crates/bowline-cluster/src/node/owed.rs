//! Owed entries: entries that a member acknowledged to a leader and lost.
//!
//! A directory restored from an older copy has the right incarnation and too short a log. Entries that it
//! acknowledged may be committed with this member as part of the majority. If it voted for, or became, a
//! leader whose log is as short, they would be lost. The leader knows each member's acknowledgements, and
//! sends them with the first append of each stream and with each heartbeat. A member whose log ends before
//! that notes the entry in its file `MEMBER`.
//!
//! Invariants: while `MEMBER` holds such an entry, the member gives no vote, does not stand for election, and
//! does not accept a leadership transfer, even after a restart. It acknowledges what it receives, as any
//! other. The note is removed once its flushed log ends at that entry or behind it, in the order of log ids.
//! Then it holds all that was committed up to there: it has matched the log of that leader up to the entry,
//! or the log of a later leader, which has everything committed before its term.
//!
//! A member whose log was damaged, and began anew behind the tables, does not know what it lacks: it notes an entry without a
//! bound, of the newest leader that it has voted for. An entry of a later leader is behind it. If the same leader stays,
//! the member requests the end of the leader's log, which has every entry that the member can have acknowledged: to
//! that leader, as its log only grows, and to earlier ones, if the entry was committed. The request follows the start, so
//! the reply is newer than all of them.
//!
//! A restarted member gives no vote for an election timeout, in which a live leader reaches it. Where none lives, the other
//! members remember what leaders told them of it, and it neither votes for them nor counts their votes
//! ([`memory`](super::memory)). Not detected: a loss of less than that. A member of a restored cluster that is restored once more from the same copy does not vote before it has a leader's log:
//! see `restored`.

use std::sync::atomic::Ordering;

use super::core::Core;
use super::leader_request::{LeaderRequest, LeaderResponse};
use super::restored::is_proof;
use crate::error::{Error, Result};
use crate::types::{LogId, Vote};

/// What a member owes that may have lost whatever it acknowledged since it gave this vote, and before.
pub(super) fn everything_of(vote: &Vote) -> LogId {
    LogId::new(vote.leader_id, u64::MAX)
}

impl Core {
    /// Whether this member still lacks entries that it acknowledged.
    pub(crate) fn owes(&self) -> bool {
        self.log.member().read_owed().is_some()
    }

    /// Handles a leader's report that this member has acknowledged its log up to `last`.
    pub(crate) async fn compare_acknowledged(&self, leader: &Vote, last: LogId) -> Result<()> {
        let member = self.log.member();
        // A later leader may truncate what was acknowledged to an earlier one.
        let is_deposed = || member.read_vote().is_some_and(|vote| vote > *leader);
        if self.log.last_log_id() >= Some(last) || member.read_owed() >= Some(last) || is_deposed()
        {
            return Ok(());
        }
        let found = self.log.last_log_id().map(|id| id.index);
        self.raft.may_stand(false);
        let member = member.clone();
        let saving = crate::blocking::spawn(move || Ok::<_, Error>(member.add_owed(last)?));
        // A heartbeat and the first append may report it at the same time.
        if saving.await.map_err(Error::stopped)?? {
            self.counts.losses_found.fetch_add(1, Ordering::Relaxed);
            tracing::error!(
                acknowledged = last.index,
                found,
                "this member has lost entries that it had acknowledged: its directory is an older one; \
                 it votes only after it has them again"
            );
        }
        // Again: a concurrent permission may not have seen the note.
        self.raft.may_stand(false);
        Ok(())
    }

    /// Asks the leader what an owed entry without a bound can be at most.
    async fn bound_what_is_owed(&self, owed: LogId) {
        let leader = self.heard_leadership().leader;
        let Some(leader) = leader.and_then(|leader| self.peer(leader)) else {
            return;
        };
        let asked = leader.ask(LeaderRequest::LogEnd.into_proto());
        let answer = tokio::time::timeout(self.options.election_timeout, asked).await;
        let Ok(Ok(answer)) = answer else {
            return;
        };
        let Some(LeaderResponse::LogEnd(end)) = LeaderResponse::from_proto(answer) else {
            return;
        };
        // The log of an earlier leader may lack what this member acknowledged.
        if end.leader_id < owed.leader_id {
            return;
        }
        let member = self.log.member().clone();
        let saving = crate::blocking::spawn(move || member.bound_owed(owed, end));
        match saving.await {
            Ok(Ok(())) => tracing::info!(index = end.index, "what this member may lack is known"),
            Ok(Err(error)) => {
                if let Some(more) = self.log_limits.owed.admit_now() {
                    tracing::error!(%error, "this member cannot note what it may lack{more}");
                }
            }
            Err(_) => {}
        }
    }

    /// Allows votes again once all owed entries are there.
    pub(crate) async fn settle_what_is_owed(&self) {
        let Some(owed) = self.log.member().read_owed() else {
            return;
        };
        if owed.index == u64::MAX && self.log.last_log_id() < Some(owed) {
            self.bound_what_is_owed(owed).await;
            return;
        }
        // Not before the end of the time in which a restarted member gives no vote, not even to itself.
        let is_waiting = self.started.elapsed() < self.votes_after;
        if is_waiting || self.log.last_log_id() < Some(owed) || self.log.flush().await.is_err() {
            return;
        }
        let member = self.log.member().clone();
        let settling = crate::blocking::spawn(move || member.settle_owed(owed));
        match settling.await {
            Ok(Ok(())) if !self.owes() => {
                self.raft.may_stand(true);
                match is_proof(owed) {
                    true => {
                        tracing::info!("this restored member votes: it has a leader's log");
                    }
                    false => {
                        tracing::info!(
                            index = owed.index,
                            "this member has again what it had lost"
                        );
                    }
                }
            }
            Ok(Err(error)) => {
                if let Some(more) = self.log_limits.owed.admit_now() {
                    tracing::error!(%error, "this member cannot note that it votes again{more}");
                }
            }
            _ => {}
        }
    }
}
