//! The leader's part: it answers requests about leases, membership and leadership.
//!
//! A change of the membership first asks who is alive: one that would leave a majority that does
//! not answer is refused, because it could not be undone. A change that takes two steps is a task
//! of its own, and one whose leader failed between the two is ended by the next leader.

use std::collections::BTreeSet;
use std::time::Duration;

use bowline_replica::Renewal;
use tokio::sync::OwnedMutexGuard;

use super::core::Core;
use super::info::{LeaseStatus, MemberInfo};
use super::leader_request::{LeaderRequest, LeaderResponse};
use crate::error::{Error, Result};
use crate::peer::ReadLevel;
use crate::raft::MembershipChange;
use crate::types::{LogId, Member, NodeId};

/// How many members may wait to be promoted by themselves.
const JOINING_MAX: usize = 8;
/// How many entries a learner may lag behind and still be promoted.
const PROMOTION_LAG_MAX: u64 = 1000;
/// Between two looks at what is waited for.
const PAUSE: Duration = Duration::from_millis(10);

impl Core {
    /// Answers a request, leading. Not leading, it refuses it with `NotLeader`, having done nothing.
    pub(crate) async fn answer(&self, request: LeaderRequest) -> LeaderResponse {
        let answered = match request {
            LeaderRequest::LeaseKeepAlive(id) => {
                self.keep_alive(id).await.map(LeaderResponse::Lease)
            }
            LeaderRequest::LeaseTimeToLive { id, with_keys } => {
                let status = self.time_to_live(id, with_keys).await;
                status.map(LeaderResponse::Lease)
            }
            LeaderRequest::MemberAdd {
                peer_urls,
                is_learner,
            } => self
                .add(peer_urls, is_learner)
                .await
                .map(LeaderResponse::Member),
            LeaderRequest::MemberRemove(id) => self.remove(id).await.map(|()| LeaderResponse::Done),
            LeaderRequest::MemberUpdate { id, peer_urls } => self
                .update(id, peer_urls)
                .await
                .map(|()| LeaderResponse::Done),
            LeaderRequest::MemberPublish {
                id,
                name,
                client_urls,
                command_version,
            } => {
                let published = self.publish(id, name, client_urls, command_version).await;
                published.map(|()| LeaderResponse::Done)
            }
            LeaderRequest::MemberPromote(id) => {
                self.promote(id).await.map(|()| LeaderResponse::Done)
            }
            LeaderRequest::MemberClaim { id, incarnation } => {
                let claimed = self.claim(id, incarnation).await;
                claimed.map(|()| LeaderResponse::Done)
            }
            LeaderRequest::MoveLeader(id) => {
                self.move_leader(id).await.map(|()| LeaderResponse::Done)
            }
        };
        answered.unwrap_or_else(LeaderResponse::Refused)
    }

    // --- leases ---

    /// Makes sure that this member still leads in `term`: whatever was asked before this is true of a time in
    /// which no other member led.
    async fn check_leading(&self, term: u64) -> Result<()> {
        match self.holds_lease() {
            true if self.leading_term() == Some(term) => Ok(()),
            _ => self.confirm_leading(term).await,
        }
    }

    /// The same without a clock, by a majority that answers now; and everything is applied that was agreed on
    /// before.
    async fn confirm_leading(&self, term: u64) -> Result<()> {
        let next = self.read_index(ReadLevel::Linearizable).await?;
        self.wait_applied(next, self.options.request_timeout)
            .await?;
        match self.leading_term() == Some(term) {
            true => Ok(()),
            false => Err(Error::NotLeader),
        }
    }

    /// Waits until this member, leading, keeps the time of leases; returns the term. Before, its table of
    /// leases is that of a follower, or of a term in which it led before.
    async fn time_is_kept(&self) -> Result<u64> {
        let deadline = tokio::time::Instant::now() + self.options.request_timeout;
        let term = self.leading_term().ok_or(Error::NotLeader)?;
        while *self.renewals.kept_term.borrow() != term {
            if self.leading_term() != Some(term) {
                return Err(Error::NotLeader);
            }
            if tokio::time::Instant::now() >= deadline {
                return Err(Error::Timeout);
            }
            self.renewals.wanted.notify_one();
            let mut kept = self.renewals.kept_term.subscribe();
            let is_kept = kept.wait_for(|kept| *kept == term);
            // The sender lives as long as this.
            let _ = tokio::time::timeout(PAUSE, is_kept).await;
        }
        Ok(term)
    }

    /// Renews a lease. `None`, that there is no such lease, is a statement like a linearizable read; that it is
    /// renewed is confirmed *after* the renewal: whoever is elected later gives it its time once more.
    async fn keep_alive(&self, id: i64) -> Result<Option<LeaseStatus>> {
        /// How long to wait for a word before looking all the same.
        const NAP: Duration = Duration::from_millis(100);
        let deadline = tokio::time::Instant::now() + self.options.request_timeout;
        let mut cleared = self.renewals.cleared.subscribe();
        let mut is_confirmed = false;
        loop {
            let term = self.time_is_kept().await?;
            match self.replica.renew_lease(id) {
                Some(Renewal::Renewed { ttl }) => {
                    self.check_leading(term).await?;
                    return Ok(Some(LeaseStatus {
                        id,
                        granted: ttl,
                        remaining: ttl,
                        keys: Vec::new(),
                    }));
                }
                None if is_confirmed => return Ok(None),
                None => {
                    self.confirm_leading(term).await?;
                    is_confirmed = true;
                    continue;
                }
                // The next leader would end it early. And this one, if it has begun to lead just now and
                // has yet to read what is recorded: so the lease is renewed again once that is gone.
                Some(Renewal::Recorded) => self.renewals.wanted.notify_one(),
                // It is ended, or another leads before that and lets it live.
                Some(Renewal::Ending) => {}
            }
            if tokio::time::Instant::now() >= deadline {
                return Err(Error::Timeout);
            }
            // The sender lives as long as this.
            let _ = tokio::time::timeout(NAP, cleared.changed()).await;
        }
    }

    async fn time_to_live(&self, id: i64, with_keys: bool) -> Result<Option<LeaseStatus>> {
        let term = self.time_is_kept().await?;
        self.check_leading(term).await?;
        if let Some(found) = self.lease_status(id, with_keys)? {
            return Ok(Some(found));
        }
        self.confirm_leading(term).await?;
        self.lease_status(id, with_keys)
    }

    /// A lease, as this member knows it.
    fn lease_status(&self, id: i64, with_keys: bool) -> Result<Option<LeaseStatus>> {
        let db = self.replica.db();
        let Some(lease) = db.lease(id) else {
            return Ok(None);
        };
        let keys = match with_keys {
            true => match db.lease_keys(id) {
                Err(bowline::Error::LeaseNotFound { .. }) => return Ok(None),
                keys => keys?,
            },
            false => Vec::new(),
        };
        Ok(Some(LeaseStatus {
            id,
            granted: lease.ttl,
            remaining: lease.remaining,
            keys,
        }))
    }

    // --- membership ---

    /// Waits until this is the only change of the membership that this member is making: what it is made
    /// from must not be older than what the one before has made.
    async fn turn_to_change(&self) -> OwnedMutexGuard<()> {
        self.changing.clone().lock_owned().await
    }

    /// Changes the membership; waits for a change that is under way. A change that was begun goes
    /// on to its end, and keeps its turn, also when nobody waits for it any more. A voter that goes is
    /// never kept as a learner: when a change ends one that was left half-way, it would be promoted once
    /// more.
    async fn change(&self, change: MembershipChange, turn: OwnedMutexGuard<()>) -> Result<()> {
        let deadline = tokio::time::Instant::now() + self.options.request_timeout;
        let raft = self.raft.clone();
        let timeout = 2 * self.options.election_timeout;
        let own = self.member_id;
        let changing = tokio::spawn(async move {
            let _turn = turn;
            loop {
                // Raft refuses, and calls it an error, as long as the change before is not agreed on.
                // The first one is the founding itself.
                let is_settled = || {
                    let view = raft.view();
                    view.membership_id() == view.agreed_membership_id()
                };
                within(timeout, is_settled).await;
                // One that has removed itself leads no further changes, which Raft takes for granted.
                let is_voter = || raft.view().membership().voter_ids().any(|id| id == own);
                if !is_voter() {
                    return Err(Error::NotLeader);
                }
                match raft.change_membership(change.clone()).await {
                    Ok(at) => {
                        // The next one is to see what has become of this.
                        let is_seen = || {
                            let seen = raft.view().membership_id();
                            seen.is_some_and(|id| id.index >= at)
                        };
                        within(timeout, is_seen).await;
                        return Ok(());
                    }
                    Err(Error::MembershipChanging)
                        if tokio::time::Instant::now() + PAUSE < deadline =>
                    {
                        tokio::time::sleep(PAUSE).await;
                    }
                    Err(error) => return Err(error),
                }
            }
        });
        let changed = tokio::time::timeout_at(deadline, changing).await;
        changed
            .map_err(|_| Error::Timeout)?
            .map_err(Error::stopped)?
    }

    /// Ends a change of the membership that its leader did not come to end. A change that takes two
    /// steps and is under way here is none the worse for it.
    pub(crate) async fn leave_joint_membership(&self) {
        let turn = self.turn_to_change().await;
        if !self.is_membership_joint() {
            return;
        }
        let ended = self.change(MembershipChange::AddVoters(BTreeSet::new()), turn);
        match ended.await {
            Ok(()) => tracing::info!("ended a change of the membership that was left half-way"),
            Err(error) => {
                if let Some(more) = self.log_limits.joint_membership.admit_now() {
                    tracing::warn!(%error, "the membership is still between two{more}");
                }
            }
        }
    }

    /// Whether the agreed membership is one that needs two majorities.
    pub(crate) fn is_membership_joint(&self) -> bool {
        let view = self.raft.view();
        let membership = view.agreed_membership();
        membership.get_joint_config().len() > 1
    }

    /// Waits until `holds` does, for two election timeouts: who has just become the leader has not
    /// heard of everybody yet.
    async fn soon(&self, holds: impl Fn() -> bool) -> bool {
        within(2 * self.options.election_timeout, holds).await
    }

    /// Whether those who would be left to vote without `id` are enough, as far as they answer.
    ///
    /// # Errors
    /// As etcd's `strict-reconfig-check` has them.
    async fn check_removal(&self, id: NodeId) -> Result<()> {
        let voters: BTreeSet<NodeId> = self.membership().voter_ids().collect();
        let left: Vec<NodeId> = voters.into_iter().filter(|voter| *voter != id).collect();
        if left.is_empty() {
            return Err(Error::NotEnoughStarted);
        }
        let majority = left.len() / 2 + 1;
        let is_enough = || left.iter().filter(|id| self.is_active(**id)).count() >= majority;
        match self.soon(is_enough).await {
            true => Ok(()),
            false => Err(Error::Unhealthy),
        }
    }

    pub(crate) fn info(&self, id: NodeId) -> Option<MemberInfo> {
        self.members().into_iter().find(|member| member.id == id)
    }

    /// Every member as the newest membership has it.
    pub(crate) fn members(&self) -> Vec<MemberInfo> {
        let view = self.raft.view();
        let mut membership = view.membership();
        // Until the cluster is founded, its members are those who are to found it.
        if let Some(founders) = &self.founders
            && membership.nodes().next().is_none()
        {
            membership = founders;
        }
        let voters: Vec<NodeId> = membership.voter_ids().collect();
        let own = &self.options;
        let members = membership.nodes().map(|(id, member)| {
            // What this member says of itself is known here before the others have agreed to it.
            let (name, client_urls) = match *id == self.member_id {
                true => (&own.name, &own.advertise_client_urls),
                false => (&member.name, &member.client_urls),
            };
            MemberInfo {
                id: *id,
                name: name.clone(),
                peer_urls: member.peer_urls.clone(),
                client_urls: client_urls.clone(),
                is_learner: !voters.contains(id),
            }
        });
        members.collect()
    }

    fn check_urls(&self, of: Option<NodeId>, urls: &[String]) -> Result<()> {
        let members = self.members();
        let mut others = members.iter().filter(|member| Some(member.id) != of);
        match others.any(|member| member.peer_urls.iter().any(|url| urls.contains(url))) {
            true => Err(Error::PeerUrlExists),
            false => Ok(()),
        }
    }

    /// Adds a learner; one that shall vote is promoted once it has caught up.
    async fn add(&self, peer_urls: Vec<String>, is_learner: bool) -> Result<MemberInfo> {
        if !self.is_leading() {
            return Err(Error::NotLeader);
        }
        let turn = self.turn_to_change().await;
        self.check_urls(None, &peer_urls)?;
        // Members that shall vote are learners for a while. As in etcd these do not count as such.
        let learners = self.learners(!is_learner);
        if learners
            >= if is_learner {
                self.options.learners_max
            } else {
                JOINING_MAX
            }
        {
            return Err(Error::TooManyLearners);
        }
        let known = self.members();
        let id = loop {
            let id = fastrand::u64(1..=i64::MAX as u64);
            if known.iter().all(|member| member.id != id) {
                break id;
            }
        };
        let member = Member {
            name: String::new(),
            peer_urls,
            client_urls: Vec::new(),
            wants_vote: !is_learner,
            ..Member::default()
        };
        let nodes = [(id, member)].into_iter().collect();
        self.change(MembershipChange::AddNodes(nodes), turn).await?;
        self.info(id).ok_or(Error::LeaderChanged)
    }

    /// How many learners there are that shall, or shall not, be promoted by themselves.
    fn learners(&self, wants_vote: bool) -> usize {
        let membership = self.membership();
        let voters: Vec<NodeId> = membership.voter_ids().collect();
        let learners = membership.nodes().filter(|(id, _)| !voters.contains(id));
        learners
            .filter(|(_, member)| member.wants_vote == wants_vote)
            .count()
    }

    async fn remove(&self, id: NodeId) -> Result<()> {
        if !self.is_leading() {
            return Err(Error::NotLeader);
        }
        let turn = self.turn_to_change().await;
        let member = self.info(id).ok_or(Error::MemberNotFound { id })?;
        let ids = [id].into_iter().collect();
        if !member.is_learner {
            self.check_removal(id).await?;
            self.change(MembershipChange::RemoveVoters(ids), turn)
                .await?;
        } else {
            self.change(MembershipChange::RemoveNodes(ids), turn)
                .await?;
        }
        self.peers.forget(id);
        self.seen_members.lock().insert(id);
        self.clear_alarms_of_removed().await;
        Ok(())
    }

    async fn update(&self, id: NodeId, peer_urls: Vec<String>) -> Result<()> {
        if !self.is_leading() {
            return Err(Error::NotLeader);
        }
        let turn = self.turn_to_change().await;
        self.check_urls(Some(id), &peer_urls)?;
        let mut member = self.member(id)?;
        member.peer_urls = peer_urls;
        self.set_member(id, member, turn).await
    }

    /// A member says its name, where clients reach it, and which commands it reads, as it does after
    /// each start.
    async fn publish(
        &self,
        id: NodeId,
        name: String,
        client_urls: Vec<String>,
        command_version: u32,
    ) -> Result<()> {
        if !self.is_leading() {
            return Err(Error::NotLeader);
        }
        let turn = self.turn_to_change().await;
        let mut member = self.member(id)?;
        if member.name == name
            && member.client_urls == client_urls
            && member.command_version == command_version
        {
            return Ok(());
        }
        (member.name, member.client_urls) = (name, client_urls);
        member.command_version = command_version;
        self.set_member(id, member, turn).await
    }

    /// A directory takes the place of a member that was added: the first that asks has it, for good.
    /// What has been there before, a voter or a directory without an incarnation that has answered
    /// this leader, keeps its place: its acknowledgements are not the new directory's.
    async fn claim(&self, id: NodeId, incarnation: u64) -> Result<()> {
        if !self.is_leading() {
            return Err(Error::NotLeader);
        }
        let turn = self.turn_to_change().await;
        let mut member = self.member(id)?;
        if incarnation == 0 {
            return Err(Error::PlaceTaken { id });
        }
        if member.incarnation == incarnation {
            return Ok(());
        }
        let is_voter = self.membership().voter_ids().any(|voter| voter == id);
        let is_used = is_voter || !member.client_urls.is_empty() || self.matched(id).is_some();
        if member.incarnation != 0 || is_used {
            return Err(Error::PlaceTaken { id });
        }
        member.incarnation = incarnation;
        self.set_member(id, member, turn).await
    }

    fn member(&self, id: NodeId) -> Result<Member> {
        let membership = self.membership();
        let member = membership.get_node(&id).cloned();
        member.ok_or(Error::MemberNotFound { id })
    }

    async fn set_member(
        &self,
        id: NodeId,
        member: Member,
        turn: OwnedMutexGuard<()>,
    ) -> Result<()> {
        let nodes = [(id, member)].into_iter().collect();
        self.change(MembershipChange::SetNodes(nodes), turn).await
    }

    async fn promote(&self, id: NodeId) -> Result<()> {
        if !self.is_leading() {
            return Err(Error::NotLeader);
        }
        let turn = self.turn_to_change().await;
        let member = self.info(id).ok_or(Error::MemberNotFound { id })?;
        if !member.is_learner {
            return Err(Error::NotLearner { id });
        }
        if !self.is_active(id) || !self.has_caught_up(id) {
            return Err(Error::LearnerNotReady);
        }
        let ids = [id].into_iter().collect();
        self.change(MembershipChange::AddVoters(ids), turn).await
    }

    /// Whether a member has all but the last few entries.
    fn has_caught_up(&self, id: NodeId) -> bool {
        let view = self.raft.view();
        let last = view.last_index().unwrap_or(0);
        let matched = view.matched(id);
        matched.is_some_and(|matched| matched.index + PROMOTION_LAG_MAX >= last)
    }

    /// The last entry that a member has acknowledged to this leader. It is the present incarnation's:
    /// a place of which something was acknowledged changes hands no more.
    fn matched(&self, id: NodeId) -> Option<LogId> {
        self.raft.view().matched(id)
    }

    /// Promotes learners that shall vote and have caught up, one at a time.
    pub(crate) async fn promote_those_who_wait(&self) {
        let turn = self.turn_to_change().await;
        let membership = self.membership();
        let voters: Vec<NodeId> = membership.voter_ids().collect();
        let mut nodes = membership.nodes();
        let waits = nodes.find(|(id, member)| {
            let is_ready = self.is_active(**id) && self.has_caught_up(**id);
            member.wants_vote && !voters.contains(id) && is_ready
        });
        let Some((id, _)) = waits else {
            return;
        };
        let ids = [*id].into_iter().collect();
        match self.change(MembershipChange::AddVoters(ids), turn).await {
            Ok(()) => tracing::info!(member_id = %format!("{id:x}"), "promoted a learner"),
            Err(error) => {
                if let Some(more) = self.log_limits.promotion.admit_now() {
                    tracing::warn!(%error, "a learner could not be promoted yet{more}");
                }
            }
        }
    }

    // --- leadership ---

    async fn move_leader(&self, target: NodeId) -> Result<()> {
        if !self.is_leading() {
            return Err(Error::NotLeader);
        }
        let bad = Error::BadTransferee { id: target };
        if target == self.member_id {
            return Ok(());
        }
        let is_voter = self.membership().voter_ids().any(|id| id == target);
        if !is_voter || !self.has_caught_up(target) {
            return Err(bad);
        }
        if !self.soon(|| self.is_active(target)).await {
            return Err(bad);
        }
        let (raft, abdication) = (self.raft.clone(), self.abdication.clone());
        // From here on another member may lead before this one's lease is over, in whatever term that is. A
        // task, which goes on when its caller has gone.
        abdication.begin();
        let transferring = tokio::spawn(async move {
            let term = raft.transfer_leader(target).await?;
            abdication.end(term);
            Ok(term)
        });
        let transferred: Result<u64> = transferring.await.map_err(Error::stopped)?;
        let term = transferred?;
        let deadline = tokio::time::Instant::now() + 2 * self.options.election_timeout;
        while tokio::time::Instant::now() < deadline {
            let now = self.leadership();
            if now.term > term && now.leader.is_some_and(|leader| leader != self.member_id) {
                // Who refuses the lead leaves time for another one to stand for election.
                return match now.leader == Some(target) {
                    true => Ok(()),
                    false => Err(bad),
                };
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(bad)
    }
}

/// Waits until `holds` does; tells whether it came to that in time.
async fn within(timeout: Duration, holds: impl Fn() -> bool) -> bool {
    let deadline = tokio::time::Instant::now() + timeout;
    while !holds() {
        if tokio::time::Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(PAUSE).await;
    }
    true
}
