//! The leader's handling of requests about leases, membership and leadership.
//!
//! A change of the membership first checks which members are alive: a change that would leave a majority that
//! does not answer is refused, because it could not be undone. A change in two steps is a task of its own; if
//! its leader fails between the two, the next leader completes it.
//!
//! *Rights.* The member that a client calls checks its rights in its own state, which may be older than a change of users
//! that was acknowledged. These requests are no commands, so no state machine checks them again: the leader does, once
//! it has applied everything that was acknowledged before. A request that names no caller is a member's own.

use std::collections::BTreeSet;
use std::time::Duration;

use bowline::{LeaseId, LeaseKeys, Value};
use bowline_replica::{Caller, Need, Renewal};
use futures_core::future::BoxFuture;
use tokio::sync::OwnedMutexGuard;

use super::caller::needs_to_see;
use super::core::{Core, Counted, has_announced};
use super::info::{LeaseStatus, MemberInfo};
use super::leader_request::{LeaderRequest, LeaderResponse};
use super::limits::LEASE_KEYS_BYTES_MAX;
use crate::error::{Error, Result};
use crate::peer::Confirmation;
use crate::raft::{MembershipChange, Transfer};
use crate::record::fits_in;
use crate::types::{LogId, Member, NodeId};

/// The most learners that wait for automatic promotion.
const JOINING_MAX: usize = 8;
/// The largest lag, in entries, at which a learner is promoted.
const PROMOTION_LAG_MAX: u64 = 1000;
/// The pause between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(10);

impl Core {
    /// Handles a member's own request on the leader. Any other member refuses it with `NotLeader`, having done nothing.
    pub(crate) fn answer(&self, request: LeaderRequest) -> BoxFuture<'_, LeaderResponse> {
        self.answer_to(&Caller::Process, request)
    }

    /// The same for a request of a caller, which may be refused.
    #[inline(never)]
    pub(crate) fn answer_to<'a>(
        &'a self,
        caller: &'a Caller,
        request: LeaderRequest,
    ) -> BoxFuture<'a, LeaderResponse> {
        // As for [`Node::start`](super::Node::start): compiled here alone.
        Box::pin(self.answer_here(caller, request))
    }

    async fn answer_here(&self, caller: &Caller, request: LeaderRequest) -> LeaderResponse {
        let term = self.leading_term();
        match (self.answer_as_known(caller, request).await, term) {
            // A leader that was deposed and does not know it has an old membership.
            (Err(error), Some(term)) if is_of_membership(&error) => {
                let confirmed = self.confirm_leading(term).await;
                LeaderResponse::Refused(confirmed.err().unwrap_or(error))
            }
            (Err(error), _) => LeaderResponse::Refused(error),
            (Ok(answer), _) => answer,
        }
    }

    /// The answer by what this leader knows.
    async fn answer_as_known(
        &self,
        caller: &Caller,
        request: LeaderRequest,
    ) -> Result<LeaderResponse> {
        if request.needs_root() {
            self.check_root(caller).await?;
        }
        match request {
            LeaderRequest::LeaseKeepAlive(id) => {
                let status = self.keep_alive(caller, id).await;
                status.map(LeaderResponse::Lease)
            }
            LeaderRequest::LeaseTimeToLive { id, with_keys } => {
                let status = self.time_to_live(id, with_keys).await?;
                // After the keys are read, so that the rights are as new as they are.
                self.check_rights(caller, |each| needs_to_see(status.as_ref(), each))?;
                Ok(LeaderResponse::Lease(status))
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
            LeaderRequest::MemberRepair(id) => {
                self.repair_member(id).await.map(|()| LeaderResponse::Done)
            }
            LeaderRequest::SendSnapshot { to, next } => {
                let sent = self.send_snapshot(to, next).await;
                sent.map(|()| LeaderResponse::Done)
            }
            LeaderRequest::HashesAt(revision) => {
                self.hashes_at(revision).map(LeaderResponse::Hashes)
            }
            LeaderRequest::LogEnd => self.log_end().map(LeaderResponse::LogEnd),
            LeaderRequest::MoveLeader(id) => {
                self.move_leader(id).await.map(|()| LeaderResponse::Done)
            }
        }
    }

    /// Refuses a caller that does not have the role `root` now.
    async fn check_root(&self, caller: &Caller) -> Result<()> {
        if matches!(caller, Caller::Process) {
            return Ok(());
        }
        let term = self.leading_term().ok_or(Error::NotLeader)?;
        self.check_leading(term).await?;
        self.check_rights(caller, |each| each(Need::Root))
    }

    // --- leases ---

    /// Checks that this member still leads in `term`: what was read before the check is from a time in which
    /// no other member led.
    async fn check_leading(&self, term: u64) -> Result<()> {
        match self.holds_lease() {
            true if self.leading_term() == Some(term) => Ok(()),
            _ => self.confirm_leading(term).await,
        }
    }

    /// The same without a clock, by a round to a majority. Everything committed before is also applied.
    async fn confirm_leading(&self, term: u64) -> Result<()> {
        let _waiting = Counted::begin(&self.counts.waiting_to_confirm);
        let next = self.read_index(Confirmation::Majority).await?;
        self.wait_applied(next, self.options.request_timeout)
            .await?;
        match self.leading_term() == Some(term) {
            true => Ok(()),
            false => Err(Error::NotLeader),
        }
    }

    /// Waits until this member, leading, keeps the leases' time; returns the term. Before, its table of
    /// leases is a follower's, or from an earlier term of its own.
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
            // An error is impossible: the sender lives as long as this.
            let _ = tokio::time::timeout(PAUSE, is_kept).await;
        }
        Ok(term)
    }

    /// Renews a lease. `None`, for no such lease, is confirmed like a linearizable read. A renewal is
    /// confirmed *after* it was made: a leader elected later gives the lease its whole TTL again.
    ///
    /// The rights of the caller are checked before the renewal, and once more after it if changes of users may not have
    /// been applied before: a round to a majority before each renewal would be too dear.
    async fn keep_alive(&self, caller: &Caller, id: i64) -> Result<Option<LeaseStatus>> {
        /// How long to wait for a signal before the next check.
        const NAP: Duration = Duration::from_millis(100);
        let deadline = tokio::time::Instant::now() + self.options.request_timeout;
        let mut cleared = self.renewals.cleared.subscribe();
        let mut is_confirmed = false;
        let lease = LeaseId::new(id);
        let check = || self.check_rights(caller, |each| each(Need::write_keys_of(id)));
        loop {
            let term = self.time_is_kept().await?;
            // Whether everything that was acknowledged before is applied here.
            let is_newest = self.holds_lease();
            check()?;
            match lease.and_then(|lease| self.replica.renew_lease(lease)) {
                Some(Renewal::Renewed { ttl }) => {
                    self.check_leading(term).await?;
                    if !is_newest {
                        check()?;
                    }
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
                // With the record, the next leader would end the lease early. So would this one, if it has
                // just been elected and has yet to read the records: so the lease is renewed again once the
                // record is cleared.
                Some(Renewal::Recorded) => self.renewals.wanted.notify_one(),
                // It ends, or another member leads before that and keeps it.
                Some(Renewal::Ending) => {}
            }
            if tokio::time::Instant::now() >= deadline {
                return Err(Error::Timeout);
            }
            // An error is impossible: the sender lives as long as this.
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

    /// The state of a lease on this member.
    fn lease_status(&self, id: i64, with_keys: bool) -> Result<Option<LeaseStatus>> {
        let db = self.replica.db();
        let Some(lease) = LeaseId::new(id).and_then(|lease| db.lease(lease)) else {
            return Ok(None);
        };
        let keys = match with_keys {
            true => match db.lease_keys(lease.id) {
                Err(bowline::Error::LeaseNotFound { .. }) => return Ok(None),
                keys => self.keys_of_one_reply(keys?)?,
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

    /// The keys of a lease, or an error as soon as they exceed the budget of a reply.
    fn keys_of_one_reply(&self, keys: LeaseKeys) -> Result<Vec<Value>> {
        /// More than a key takes in a message besides its bytes, and about what it takes in memory.
        const KEY_OVERHEAD_BYTES: usize = 16;
        let bytes_max = LEASE_KEYS_BYTES_MAX.min(self.options.peers.message_bytes_max);
        let (mut found, mut bytes) = (Vec::new(), 0);
        for key in keys {
            let key = key?;
            bytes += key.len() + KEY_OVERHEAD_BYTES;
            if bytes > bytes_max {
                return Err(Error::TooManyLeaseKeys);
            }
            found.push(key);
        }
        Ok(found)
    }

    // --- membership ---

    /// Waits until no other change of the membership by this member is under way: a change must start from
    /// the result of the one before.
    async fn turn_to_change(&self) -> OwnedMutexGuard<()> {
        self.changing.clone().lock_owned().await
    }

    /// The same for a request that is repeated: `None` while a change is under way. A leader that is cut off never ends one.
    fn free_turn_to_change(&self) -> Option<OwnedMutexGuard<()>> {
        self.changing.clone().try_lock_owned().ok()
    }

    /// Changes the membership; waits for a change under way. A started change is completed, and keeps its
    /// turn, even when its caller has gone. A removed voter is never kept as a learner: the completion of a
    /// change left half-way would promote it again.
    async fn change(&self, change: MembershipChange, turn: OwnedMutexGuard<()>) -> Result<()> {
        let deadline = tokio::time::Instant::now() + self.options.request_timeout;
        let raft = self.raft.clone();
        let timeout = 2 * self.options.election_timeout;
        let own = self.member_id;
        let changing = tokio::spawn(async move {
            let _turn = turn;
            loop {
                // Raft refuses a change, with an error, until the one before is committed. The first one is
                // the founding.
                let is_settled = || {
                    let view = raft.view();
                    view.membership_id() == view.agreed_membership_id()
                };
                within(timeout, is_settled).await;
                // A leader that removed itself leads no further changes, which Raft assumes.
                let is_voter = || raft.view().membership().voter_ids().any(|id| id == own);
                if !is_voter() {
                    return Err(Error::NotLeader);
                }
                match raft.change_membership(change.clone()).await {
                    Ok(at) => {
                        // The next change must see the result of this one.
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

    /// Completes a change of the membership that its leader did not complete. A two-step change under way on
    /// this leader is not disturbed.
    pub(crate) async fn leave_joint_membership(&self) {
        let Some(turn) = self.free_turn_to_change() else {
            return;
        };
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

    /// Whether the committed membership is a joint one, with two majorities.
    pub(crate) fn is_membership_joint(&self) -> bool {
        let view = self.raft.view();
        let membership = view.agreed_membership();
        membership.get_joint_config().len() > 1
    }

    /// Waits up to two election timeouts until `holds` is true: a new leader has not heard from all members
    /// yet.
    async fn soon(&self, holds: impl Fn() -> bool) -> bool {
        within(2 * self.options.election_timeout, holds).await
    }

    /// Whether the remaining voters without `id` are enough, counting those that answer.
    ///
    /// # Errors
    /// As etcd's `strict-reconfig-check`.
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

    /// Every member of the newest membership.
    pub(crate) fn members(&self) -> Vec<MemberInfo> {
        let view = self.raft.view();
        let mut membership = view.membership();
        // Until the cluster is founded, its members are the founders.
        if let Some(founders) = &self.founders
            && membership.nodes().next().is_none()
        {
            membership = founders;
        }
        let voters: Vec<NodeId> = membership.voter_ids().collect();
        let own = &self.options;
        let members = membership.nodes().map(|(id, member)| {
            // This member's own attributes are known here before they are committed.
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

    fn check_fits(&self, id: NodeId, member: &Member) -> Result<()> {
        match fits_in(&self.membership(), id, member) {
            true => Ok(()),
            false => Err(Error::MemberTooLarge),
        }
    }

    /// Adds a learner; a future voter is promoted once it has caught up.
    async fn add(&self, peer_urls: Vec<String>, is_learner: bool) -> Result<MemberInfo> {
        if !self.is_leading() {
            return Err(Error::NotLeader);
        }
        let turn = self.turn_to_change().await;
        self.check_urls(None, &peer_urls)?;
        // As in etcd, future voters that are learners for a while do not count as learners.
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
        self.check_fits(id, &member)?;
        let nodes = [(id, member)].into_iter().collect();
        self.change(MembershipChange::AddNodes(nodes), turn).await?;
        self.info(id).ok_or(Error::LeaderChanged)
    }

    /// The number of learners that wait for promotion, or that do not.
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

    /// Publishes a member's name, client URLs and command version, as each member does after its start.
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

    /// Binds a directory to a member id that was added; the first that asks gets it, for good. An id that is
    /// in use, by a voter or a directory without an incarnation that has answered this leader, stays bound:
    /// its acknowledgements are not the new directory's.
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
        self.check_fits(id, &member)?;
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
        let is_known = self.member(id).is_ok_and(|member| has_announced(&member));
        if !is_known || !self.is_active(id) || !self.has_caught_up(id) {
            return Err(Error::LearnerNotReady);
        }
        let ids = [id].into_iter().collect();
        self.change(MembershipChange::AddVoters(ids), turn).await
    }

    /// Whether a member has all entries except the last few.
    fn has_caught_up(&self, id: NodeId) -> bool {
        let view = self.raft.view();
        let last = view.last_index().unwrap_or(0);
        let matched = view.matched(id);
        matched.is_some_and(|matched| matched.index + PROMOTION_LAG_MAX >= last)
    }

    /// The last entry that a member has acknowledged to this leader. It is the present incarnation's: an id
    /// with acknowledgements is never bound to another directory.
    fn matched(&self, id: NodeId) -> Option<LogId> {
        self.raft.view().matched(id)
    }

    /// Promotes learners that are future voters, have announced themselves and have caught up, one at a time.
    pub(crate) async fn promote_those_who_wait(&self) {
        let Some(turn) = self.free_turn_to_change() else {
            return;
        };
        let membership = self.membership();
        let voters: Vec<NodeId> = membership.voter_ids().collect();
        let mut nodes = membership.nodes();
        let waits = nodes.find(|(id, member)| {
            // A voter that has not said which commands it knows would count as one that knows the first ones only.
            let is_known = has_announced(member);
            let is_ready = is_known && self.is_active(**id) && self.has_caught_up(**id);
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

    /// The last entry of this leader's log.
    fn log_end(&self) -> Result<LogId> {
        // In this order: what is appended later is only more.
        let is_leading = self.is_leading();
        let last = self.log.last_log_id().filter(|_| is_leading);
        last.ok_or(Error::NotLeader)
    }

    async fn move_leader(&self, target: NodeId) -> Result<()> {
        if !self.is_leading() {
            return Err(Error::NotLeader);
        }
        let bad = Error::BadTransferee { id: target };
        if target == self.member_id {
            return Ok(());
        }
        let is_voter = self.membership().voter_ids().any(|id| id == target);
        if !is_voter {
            return Err(bad);
        }
        // A leader that was just elected, or a member that has just started: it has acknowledged nothing to this leader yet.
        let is_ready = || self.is_active(target) && self.has_caught_up(target);
        if !self.soon(is_ready).await {
            return Err(bad);
        }
        if !self.would_lead(target).await {
            return Err(bad);
        }
        self.transfer_lead(target).await
    }

    /// Hands the lead over to a member that has said that it would take it. If nobody takes it, this member stands for
    /// election again.
    pub(super) async fn transfer_lead(&self, target: NodeId) -> Result<()> {
        let (raft, abdication) = (self.raft.clone(), self.abdication.clone());
        let log = self.log.clone();
        let (own, timeout) = (self.member_id, 2 * self.options.election_timeout);
        // From here on another member may lead before this one's lease is over, in an unknown term.
        abdication.begin();
        // Nothing is accepted until this is over, so it outlives its caller.
        let transferring = tokio::spawn(async move {
            let Transfer { term, leader } = raft.transfer_leader(target).await?;
            abdication.end(term);
            if leader != Some(own) {
                // Another member leads already, or stands for election: nothing is to be taken back.
                return Err(Error::NotLeader);
            }
            let deadline = tokio::time::Instant::now() + timeout;
            while tokio::time::Instant::now() < deadline {
                let (leader, now) = {
                    let view = raft.view();
                    (view.leader(), view.term())
                };
                if now > term && leader.is_some_and(|leader| leader != own) {
                    // A target that refuses leaves time for another member to stand for election.
                    return match leader == Some(target) {
                        true => Ok(()),
                        false => Err(Error::BadTransferee { id: target }),
                    };
                }
                tokio::time::sleep(PAUSE).await;
            }
            // Nobody has taken the lead, and Raft waits for that without a limit.
            if raft.view().term() == term {
                raft.take_back_lead(term, target, log.last_log_id()).await?;
            }
            Err(Error::BadTransferee { id: target })
        });
        transferring.await.map_err(Error::stopped)?
    }

    /// Whether a member says that it would take the lead: a transfer that is refused costs an election.
    async fn would_lead(&self, target: NodeId) -> bool {
        let Some(client) = self.peer(target) else {
            return false;
        };
        let answer = tokio::time::timeout(self.options.election_timeout, client.members()).await;
        matches!(answer, Ok(Ok(answer)) if !answer.is_unfit_to_lead)
    }
}

/// Whether an error says what the membership is.
fn is_of_membership(error: &Error) -> bool {
    matches!(
        error,
        Error::MemberNotFound { .. }
            | Error::PeerUrlExists
            | Error::MemberTooLarge
            | Error::NotLearner { .. }
            | Error::NotEnoughStarted
            | Error::TooManyLearners
            | Error::PlaceTaken { .. }
    )
}

/// Waits until `holds` is true; returns false after the timeout.
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
