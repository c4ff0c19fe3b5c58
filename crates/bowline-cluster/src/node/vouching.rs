//! Membership checks of candidates.
//!
//! A vote request raises this member's term, so not everybody may send one. But a member that lags may not
//! know a newly added member, and may be the one whose vote that member needs. So it asks the members that it
//! knows about an unknown candidate.
//!
//! Invariants: a candidate in the newest membership here is a member without a question; a candidate that no
//! member names gets no vote; at most one such question is under way at any time.

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
            let answer = tokio::time::timeout(self.options.election_timeout, asked.members());
            let answer = answer.await.ok()?.ok()?;
            let is_ours = answer.cluster_id == self.cluster_id;
            (is_ours && answer.members.iter().any(|member| member.id == id)).then_some(())
        });
        let answers = futures_util::future::join_all(asking).await;
        answers.into_iter().flatten().next().is_some()
    }
}
