//! What a member owes: an entry that it has acknowledged to a leader and does not have any more.
//!
//! A directory that was put back from an older copy has the right incarnation, and too short a log.
//! What it had acknowledged may have been agreed on, with this member as one of the majority. If it
//! voted for, or became, a leader whose log is as short, that would be gone. The leader knows what each
//! member has acknowledged to it, and says so with the first append of each stream and with each
//! heartbeat. A member whose log ends before that notes the entry in its file `MEMBER`.
//!
//! Invariants: as long as `MEMBER` holds such an entry, the member gives no vote, does not stand for
//! election, and is not handed the lead, also after a restart. It acknowledges what it gets, as any
//! other. The note goes once its log, flushed, ends at that entry or behind it, in the order of
//! log ids. Then it holds all that was agreed on up to there: it has matched the log of that leader
//! up to the entry, or that of a later leader, which has all that was agreed on before its term.
//!
//! What this cannot see: an older copy that votes before any leader that remembers reaches it. A
//! restarted member gives no vote for an election timeout, in which a leader that lives does. A restored cluster's
//! member that is restored once more from the same copy is such an older copy.

use std::sync::atomic::Ordering;

use super::core::Core;
use crate::error::{Error, Result};
use crate::types::{LogId, Vote};

impl Core {
    /// Whether this member has yet to get back what it has acknowledged.
    pub(crate) fn owes(&self) -> bool {
        self.log.member().read_owed().is_some()
    }

    /// A leader says that this member has acknowledged its log up to `last`.
    pub(crate) async fn compare_acknowledged(&self, leader: &Vote, last: LogId) -> Result<()> {
        let member = self.log.member();
        // What was acknowledged to a leader may be cut off for a later one.
        let is_deposed = || member.read_vote().is_some_and(|vote| vote > *leader);
        if self.log.last_log_id() >= Some(last) || member.read_owed() >= Some(last) || is_deposed()
        {
            return Ok(());
        }
        let found = self.log.last_log_id().map(|id| id.index);
        self.raft.may_stand(false);
        let member = member.clone();
        let saving = tokio::task::spawn_blocking(move || member.add_owed(last));
        // A heartbeat and the first append may say so at the same time.
        if saving.await.map_err(Error::stopped)?? {
            self.counts.losses_found.fetch_add(1, Ordering::Relaxed);
            tracing::error!(
                acknowledged = last.index,
                found,
                "this member has lost entries that it had acknowledged: its directory is an older one; \
                 it votes only after it has them again"
            );
        }
        // Once more: whoever allowed it meanwhile did not see the note.
        self.raft.may_stand(false);
        Ok(())
    }

    /// Votes again once everything is there that is owed.
    pub(crate) async fn settle_what_is_owed(&self) {
        let Some(owed) = self.log.member().read_owed() else {
            return;
        };
        // Nor before the time is over in which a restarted member gives no vote, not even to itself.
        let is_waiting = self.started.elapsed() < self.votes_after;
        if is_waiting || self.log.last_log_id() < Some(owed) || self.log.flush().await.is_err() {
            return;
        }
        let member = self.log.member().clone();
        let settling = tokio::task::spawn_blocking(move || member.settle_owed(owed));
        match settling.await {
            Ok(Ok(())) if !self.owes() => {
                self.raft.may_stand(true);
                tracing::info!(index = owed.index, "this member has again what it had lost");
            }
            Ok(Err(error)) => {
                tracing::error!(%error, "this member cannot note that it votes again");
            }
            _ => {}
        }
    }
}
