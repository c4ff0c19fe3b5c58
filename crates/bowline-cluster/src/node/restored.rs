//! The proof that a restored member may vote.
//!
//! The members of a restored cluster begin alike without exchanging a message, so their incarnations follow from the
//! copy (see `restore`). A directory that is restored once more from the same copy, in the place of one that has taken
//! part since, has the same incarnation. It has forgotten its votes, and the entries that it acknowledged. So a restored
//! member is *unproven*: it gives no vote and does not stand for election until either
//!
//! - every other founder has replied that it holds nothing behind the copy and has no leader: nothing was agreed on
//!   since the restore, and this member has nothing to forget; or
//! - its log has an entry of a leader from which it hears. That entry is behind all that was committed before, and
//!   the leader reports what this member has acknowledged to it (see `owed`).
//!
//! Until then the file `MEMBER` holds an owed entry that no log has: of a term above 0, and of index 0, which is that of
//! a founding. Its term is 1 at first, and then that of the newest leader from which the member has heard; any entry of
//! that leader is behind it.
//!
//! Invariants: an unproven member accepts nothing from a leader before it owes an entry of that leader; the proof by
//! the founders counts only if no leader was heard from meanwhile.
//!
//! The price is that of founding: none of several restored members votes before all have been started once.

use super::core::Core;
use crate::error::{Error, Result};
use crate::types::{LogId, Vote, log_id};

/// What a restored member owes until it hears from a leader.
pub(super) fn owed_at_first() -> LogId {
    log_id(1, 0, 0)
}

/// Whether this is no entry that was lost, but what an unproven member owes.
pub(super) fn is_proof(owed: LogId) -> bool {
    owed.index == 0 && owed.leader_id.term > 0
}

impl Core {
    /// Whether this member was restored and knows of nothing that happened since.
    pub(crate) fn is_unproven(&self) -> bool {
        self.log.member().read_owed() == Some(owed_at_first())
    }

    /// Whether this member holds nothing that its cluster has agreed on since the founding or the restore.
    pub(crate) fn is_at_its_beginning(&self) -> bool {
        if self.is_blank() {
            return true;
        }
        let vote = self.log.member().read_vote();
        let has_leader = vote.is_some_and(|vote| vote.committed);
        // The entries of a copy count as committed in term 0, and are in its tables. The first entry of a founding
        // is of term 0, too, and is never there alone.
        let is_copy = self.replica.flushed_index() > 0;
        let last = self.log.last_log_id();
        is_copy && !has_leader && last.is_some_and(|last| last.leader_id.term == 0)
    }

    /// Has an unproven member owe an entry of this leader, before it accepts anything from it.
    pub(crate) async fn owe_to_leader(&self, leader: &Vote) -> Result<()> {
        let member = self.log.member();
        let owed = LogId::new(leader.leader_id, 0);
        let is_needed = |now: LogId| is_proof(now) && now < owed;
        if !member.read_owed().is_some_and(is_needed) {
            return Ok(());
        }
        let member = member.clone();
        let saving = crate::blocking::spawn(move || member.add_owed(owed));
        saving.await.map_err(Error::stopped)??;
        Ok(())
    }

    /// Notes that every other founder holds nothing behind the copy.
    pub(super) async fn note_proof(&self) -> Result<()> {
        let member = self.log.member().clone();
        let proving = crate::blocking::spawn(move || member.settle_owed(owed_at_first()));
        proving.await.map_err(Error::stopped)??;
        if self.owes() {
            return Ok(());
        }
        // Earlier, the task that waits for the end of that time has yet to look.
        if self.started.elapsed() >= self.votes_after {
            self.raft.may_stand(true);
        }
        tracing::info!("this restored member votes: no other one has anything behind the copy");
        Ok(())
    }
}
