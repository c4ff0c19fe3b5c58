//! Membership checks of candidates.
//!
//! A vote request raises this member's term, so it is accepted from members only. But a member that lags may not know a
//! newly added member, and may be the voter that this candidate needs. So it asks the members that it knows whether an
//! unknown candidate is a member.
//!
//! If the members that know the candidate are gone, the candidate and lagging members may be the only majority left. So
//! while no leader is heard, a candidate that no member knows may be elected, too. Raft itself restricts no candidate: the
//! check does not protect safety, but the availability of a working cluster, from removed members and from strangers.
//!
//! Invariants: a candidate in the newest membership known here is accepted without asking; a candidate that no member
//! knows gets no vote while this member, or one that answers it, hears a leader; at most one such query is under way at
//! any time.

use super::core::Core;
use crate::types::NodeId;

impl Core {
    /// Whether `id` is a member, according to this member or another one.
    pub(crate) async fn is_known_member(&self, id: NodeId) -> bool {
        let membership = self.membership();
        // Without any known member it is new, and has no say.
        if membership.nodes().next().is_none() || membership.get_node(&id).is_some() {
            return true;
        }
        let Ok(_turn) = self.vouching.try_acquire() else {
            return false;
        };
        let others = membership
            .nodes()
            .filter(|(other, _)| **other != self.member_id);
        let asking = others.map(|(other, member)| async move {
            let asked = self.peers.client(*other, member);
            // The candidate waits about an election timeout for its vote.
            let limit = self.options.election_timeout / 3;
            let answer = tokio::time::timeout(limit, asked.members()).await;
            let answer = answer.ok()?.ok()?;
            (answer.cluster_id == self.cluster_id).then_some(answer)
        });
        let answers = futures_util::future::join_all(asking).await;
        let mut answers = answers.into_iter().flatten();
        let mut is_led = self.heard_leadership().leader.is_some();
        answers.any(|answer| {
            is_led |= answer.leader_id.is_some();
            answer.members.iter().any(|member| member.id == id)
        }) || !is_led
    }
}
