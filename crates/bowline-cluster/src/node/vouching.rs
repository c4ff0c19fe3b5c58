//! Membership checks of candidates.
//!
//! A vote raises this member's term, so not everybody may ask for one. But a member that lags behind
//! may not know one that was added since, and may be the one whose vote that one needs. So of one
//! whom it does not know it asks the members that it knows.
//!
//! Invariants: one who is named by the newest membership here is a member without a question; whom
//! nobody names gets no vote; at most one such question is under way, whoever asks and how often.

use super::core::Core;
use crate::types::NodeId;

impl Core {
    /// Whether `id` is a member, as far as this member knows or another one says.
    pub(crate) async fn is_known_member(&self, id: NodeId) -> bool {
        let membership = self.membership();
        // One that knows of nobody has just come, and decides nothing.
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
