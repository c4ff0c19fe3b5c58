//! What members remember of each other's acknowledgements, for elections without a leader that knows.
//!
//! A member whose directory is replaced by an older copy does not know what it has lost, and neither does any file of that
//! copy. The leader knows, and says so ([`owed`](super::owed)). But its knowledge is in memory: after an outage of all
//! members, of which the last leader does not come back, the older copy would vote for a member that lags as much, and what
//! the two had not in common with the leader would be lost.
//!
//! So the leader tells all members, now and then, what each has acknowledged to it, and each keeps that in its file
//! `MEMBER`. A candidate says what it remembers of the member whose vote it requests, and that one what it remembers of the
//! candidate. Who hears of an entry that it lacks does not vote for that candidate, or does not count that vote.
//!
//! ```text
//! leader ── acknowledged: a 90, b 88, c 90 ──► a, b, c: each writes it down
//! (all stop; the leader c stays away; a comes back as it was at 70)
//! b ── your vote? I remember a 90 ──► a: "I end at 70": no vote for b
//! a ── your vote? ──► b: "yes; I remember a 90": a does not count it
//! ```
//!
//! Invariants:
//!
//! - An entry is told only if the leader of its own term knows it acknowledged: flushed, as far as acknowledgements are. So
//!   a log that ends before it has lost it, unless a later leader has truncated it; whoever has followed one lacks nothing.
//! - What is remembered is on disk before the leader's next entries are acknowledged.
//! - What a candidate or a voter says decides about that one vote and is not written down: whoever reaches the port of
//!   members could take all votes for good with it.
//!
//! The price: what was acknowledged after the last report, [`memory_interval`](super::NodeConfig::memory_interval) ago at
//! most, is not remembered. A member that was cut off since does not remember, either, and with it the older copy votes. And if copies of several directories are put back that are not of one moment, those that are
//! older may lack what the others remember, and perhaps no leader is elected; a snapshot is what to restore a cluster from.

use std::sync::atomic::Ordering;

use super::core::Core;
use crate::error::{Error, Result};
use crate::peer::{Acknowledgements, Memory};
use crate::types::{LogId, NodeId, Vote};

/// Runs until the node is closed.
pub(crate) async fn run(core: &Core) {
    loop {
        tokio::time::sleep(core.options.memory_interval).await;
        if !core.is_leading() || core.membership().nodes().count() < 2 {
            continue;
        }
        let all = core.acknowledgements().await;
        if all.is_empty() {
            continue;
        }
        let vote = core.raft.view().vote();
        // Also what was told before: a message may have been lost. Nothing is written where it is known.
        match core.remember(&vote, all.clone()).await {
            Ok(()) => core.peers.tell(all),
            Err(error) => {
                if let Some(more) = core.log_limits.owed.admit_now() {
                    tracing::error!(%error, "cannot note what members have acknowledged{more}");
                }
            }
        }
    }
}

impl Core {
    /// What members, this leader among them, have acknowledged to this leader in its term.
    async fn acknowledgements(&self) -> Acknowledgements {
        let own = self.log.last_log_id();
        let is_flushed = self.log.flush().await.is_ok();
        let view = self.raft.view();
        let leader = view.vote().leader_id;
        let voters = view.membership().voter_ids();
        let last_of = |id: NodeId| match id == self.member_id {
            true => own.filter(|_| is_flushed),
            false => view.matched(id),
        };
        let known = voters.filter_map(|id| Some((id, last_of(id)?)));
        known.filter(|(_, last)| last.leader_id == leader).collect()
    }

    /// Writes down what members have acknowledged to the leader of `vote`.
    pub(super) async fn remember(&self, leader: &Vote, all: Acknowledgements) -> Result<()> {
        let member = self.log.member().clone();
        // A leader of an earlier term knows less than was remembered since.
        if member.read_vote().is_some_and(|vote| vote > *leader) {
            return Ok(());
        }
        let membership = self.membership();
        let saving = crate::blocking::spawn(move || {
            member.remember(&all, |id| membership.get_node(&id).is_some())
        });
        Ok(saving.await.map_err(Error::stopped)??)
    }
}

impl Memory for Core {
    fn acknowledged_by(&self, member: NodeId) -> Option<LogId> {
        self.log.member().read_remembered(member)
    }

    fn lacks(&self, last: LogId) -> bool {
        // A vote for another member says nothing of the log: only a later leader may have truncated it.
        let vote = self.log.member().read_vote();
        let has_followed = |vote: Vote| vote.committed && vote.leader_id > last.leader_id;
        let found = self.log.last_log_id();
        if found >= Some(last) || vote.is_some_and(has_followed) {
            return false;
        }
        self.counts.votes_withheld.fetch_add(1, Ordering::Relaxed);
        if let Some(more) = self.log_limits.owed.admit_now() {
            tracing::error!(
                acknowledged = last.index,
                found = found.map(|id| id.index),
                "another member remembers an entry that this one has acknowledged and lost: its directory is an older \
                 one; it votes with that member only after a leader has sent the entry{more}"
            );
        }
        true
    }
}
