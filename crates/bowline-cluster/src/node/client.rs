//! The in-process client of a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline::DbReader;
use bowline::{LeaseId, Revision};
use bowline_replica::{
    Actor, AlarmKind, Caller, Command, Commit, Op, Outcome, RangeOp, RangeReply, Refusal, Replica,
    TXN_DEPTH_MAX, Txn, TxnReply, Weight, is_valid_ttl,
};
use bowline_storage::Clock;
use bowline_storage::histogram::HistogramSnapshot;
use bowline_types::ReadLevel;

use futures_core::future::BoxFuture;

use super::caller::CallerClient;
use super::core::{Core, Leadership};
use super::info::{LeaseStatus, MemberInfo, Status};
use super::leader_request::{LeaderRequest, LeaderResponse};
use super::proposer::{Proposer, command_bytes, is_too_deep};
use super::reads::{Read, ReadPoint, ReadRounds};
use crate::error::{Error, Result};
use crate::in_place::in_place;
use crate::peer::{self, PeerMetrics};
use crate::raft::waiters::Applied;
use crate::types::NodeId;

/// A member's counters since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeMetrics {
    /// Changes of the known leader.
    pub leader_changes: u64,
    /// Pending proposals.
    pub proposals_pending: u64,
    /// Proposals that failed, or whose outcome is unknown.
    pub proposals_failed: u64,
    /// Proposals that were applied.
    pub proposals_committed: u64,
    /// Committed entries that are not applied here yet.
    pub apply_lag: u64,
    /// Repairs of this member's tables.
    pub repairs: u64,
    /// Tables that the scrubber has read.
    pub tables_scrubbed: u64,
    /// Damage outside of tables that the scrubber has found: in the log, the manifest, `MEMBER`.
    pub damage_found: u64,
    /// Comparisons of the voters' data that this member has made as the leader.
    pub comparisons: u64,
    /// Times from this member's proposal until the leader has applied it.
    pub commit_times: HistogramSnapshot,
    /// Times of the log's flushes.
    pub log_flush_times: HistogramSnapshot,
    /// Bytes of the log's files.
    pub log_bytes: u64,
    /// What has been exchanged with each other member.
    pub peers: Vec<PeerMetrics>,
}

/// An in-process client of the node. Clones share it.
///
/// Eventual reads, and lease reads on a leader with a valid lease, run on the calling thread.
#[derive(Debug, Clone)]
pub struct LocalClient {
    core: Arc<Core>,
    proposer: Proposer,
    rounds: ReadRounds,
    /// Whether its own methods are nobody's; see [`LocalClient::for_callers`].
    is_for_callers: bool,
}

impl LocalClient {
    pub(crate) fn new(core: Arc<Core>) -> LocalClient {
        let proposer = Proposer::start(&core, core.options.waiting_max);
        let rounds = ReadRounds::start(&core, core.options.waiting_max);
        LocalClient {
            core,
            proposer,
            rounds,
            is_for_callers: false,
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    // --- writing ---

    /// Commits a command and applies it. Any member accepts it.
    ///
    /// # Errors
    /// `TooManyRequests`, `NoLeader`, `Refused` (an alarm is raised, or a transaction exceeds the bound of
    /// work) when nothing was done; `Timeout`, `LeaderChanged`, `Stopped` when the outcome is unknown. A
    /// refusal by the applied command is in the reply, not an error.
    pub async fn execute(&self, command: Command) -> Result<Applied> {
        self.by(self.own_caller()).execute(command).await
    }

    /// Who the client's own methods are called by.
    fn own_caller(&self) -> &'static Caller {
        match self.is_for_callers {
            true => &Caller::Nobody,
            false => &Caller::Process,
        }
    }

    /// The client of a server: what is done without [`LocalClient::by`] is done for nobody, so that a call whose caller
    /// was forgotten is refused while authentication is enabled.
    #[must_use]
    pub fn for_callers(self) -> LocalClient {
        LocalClient {
            is_for_callers: true,
            ..self
        }
    }

    /// Commits a command as it is.
    pub(super) async fn propose(&self, command: Command) -> Result<Applied> {
        // An alarm rests on no data. It may be the one that the data of this member differs, which is to be ended here, too.
        // While a repair is waited for, nothing is applied here that could be answered.
        match command.inner() {
            Command::Alarm { .. } if !self.core.repairs.is_wanted() => self.core.check_running()?,
            _ => self.core.check_serving()?,
        }
        if self.core.is_learner() {
            return Err(Error::Learner);
        }
        // What shares a proposal with a command that a member does not know would be refused with it.
        self.core.check_version(command.version())?;
        if is_too_deep(&command) {
            let limit = TXN_DEPTH_MAX;
            return Err(Error::RequestTooDeep { limit });
        }
        let (size, limit) = (
            command_bytes(&command) as u64,
            self.core.options.request_bytes_max,
        );
        if size > limit {
            return Err(Error::RequestTooLarge { size, limit });
        }
        // Counted until the command is applied, when the size of the database includes it.
        let _reserved = match command.takes_space() {
            true => Some(self.core.reserve_space(size)?),
            false => None,
        };
        // Work beyond the bound is refused here: this member alone does it, once.
        if let Command::Txn(txn) = command.inner()
            && Replica::may_exceed(txn)
        {
            self.weigh(txn).await?;
        }
        if let Command::Commit(commit) = command.inner()
            && commit.has_updates()
        {
            self.weigh_updates(commit).await?;
        }
        let timeout = self.core.options.request_timeout;
        let outcome = self.proposer.put(command, timeout)?;
        let unknown = || self.core.check_running().err().unwrap_or(Error::Timeout);
        outcome.await.unwrap_or_else(|_| Err(unknown()))
    }

    /// Refuses a transaction beyond the bound of work. One that reads much waits for its turn, and the next one for it.
    async fn weigh(&self, txn: &Txn) -> Result<()> {
        let replica = &self.core.replica;
        if let Some(weighed) = replica.weigh_at_once(txn)? {
            return Ok(weighed?);
        }
        let light = || replica.weigh_light(txn);
        if let Some(weighed) = self.in_turn(true, light).await? {
            return Ok(weighed?);
        }
        let turn = self
            .core
            .heavy_turns
            .wait(self.core.options.request_timeout);
        let turn = turn.await?;
        let weighed = self.in_turn(true, || replica.weigh(txn)).await?;
        let weight = weighed.as_ref().copied().unwrap_or(Weight::REFUSED);
        turn.end(weight.apply_time());
        Ok(weighed.map(drop)?)
    }

    /// [`LocalClient::weigh`] of the updates of a commit.
    async fn weigh_updates(&self, commit: &Commit) -> Result<()> {
        let is_long = commit.writes.len() > Replica::FEW_KEYS;
        let weigh = || self.core.replica.weigh_updates(commit);
        let weight = self.in_turn(is_long, weigh).await??;
        if !weight.is_light() {
            let limit = self.core.options.request_timeout;
            let turn = self.core.heavy_turns.wait(limit).await?;
            turn.end(weight.apply_time());
        }
        Ok(())
    }

    // --- reading ---

    /// Reads a range.
    ///
    /// # Errors
    /// `Refused` for a revision that cannot be read; `NoLeader`, `Timeout`.
    pub async fn range(&self, op: &RangeOp, level: ReadLevel) -> Result<Read<RangeReply>> {
        self.by(self.own_caller()).range(op, level).await
    }

    /// Reads a range if `check` allows it, in the state that is read.
    pub(super) async fn range_if(
        &self,
        op: &RangeOp,
        level: ReadLevel,
        check: impl Fn() -> Result<()>,
    ) -> Result<Read<RangeReply>> {
        let read = || {
            let found = self.core.replica.range(op, &check)?;
            let (revision, found) = found.ok_or(Error::Repairing)?;
            Ok((found?, revision))
        };
        self.read(level, is_wide(op), read).await
    }

    /// Evaluates a transaction that only reads.
    ///
    /// # Errors
    /// As [`LocalClient::range`].
    pub async fn read_txn(&self, txn: &Txn, level: ReadLevel) -> Result<Read<TxnReply>> {
        self.by(self.own_caller()).read_txn(txn, level).await
    }

    /// Evaluates a transaction if `check` allows it, in the state that is read.
    pub(super) async fn read_txn_if(
        &self,
        txn: &Txn,
        level: ReadLevel,
        check: impl Fn() -> Result<()>,
    ) -> Result<Read<TxnReply>> {
        let read = || {
            let found = self.core.replica.read_txn(txn, &check)?;
            let (revision, found) = found.ok_or(Error::Repairing)?;
            Ok((found?, revision))
        };
        self.read(level, reads_wide(txn), read).await
    }

    /// Runs work that may be long on this thread, in its turn. tokio starts a thread for the tasks behind it,
    /// so the number of such threads is limited.
    async fn in_turn<T>(&self, is_long: bool, work: impl FnOnce() -> T) -> T {
        let yields = is_long && self.core.options.reads_block_in_place;
        let _turn = match yields {
            // An error is impossible: the semaphore is never closed.
            true => self.core.long_work.acquire().await.ok(),
            false => None,
        };
        in_place(yields, work)
    }

    async fn read<T>(
        &self,
        level: ReadLevel,
        is_long: bool,
        read: impl Fn() -> Result<(T, Revision)>,
    ) -> Result<Read<T>> {
        let is_served = !self.core.differs();
        if level == ReadLevel::Lease && is_served && self.core.holds_lease() {
            let point = self.point(level);
            let read_here = self.in_turn(is_long, &read).await;
            let (value, revision) = self.noting_read(read_here)?;
            // Checked again, because the wait for the turn may have taken time. Nothing committed meanwhile
            // was acknowledged before the read began.
            if self.core.leased_index().is_some() {
                let point = ReadPoint { revision, ..point };
                return Ok(Read { value, point });
            }
        }
        let point = self.read_barrier(level).await?;
        let read_here = self.in_turn(is_long, &read).await;
        let (value, revision) = self.noting_read(read_here)?;
        let point = ReadPoint { revision, ..point };
        Ok(Read { value, point })
    }

    /// The result of a read. Damage that it has met is noted, to be repaired.
    fn noting_read<T>(&self, read: Result<T>) -> Result<T> {
        let noted = self.core.noting(read);
        noted.map_err(|error| self.core.error_of_read(error))
    }

    fn point(&self, level: ReadLevel) -> ReadPoint {
        let progress = *self.core.progress.borrow();
        ReadPoint {
            level,
            applied_index: progress.next,
            revision: self.core.replica.db().revision(),
            term: progress.term(),
            proposer: progress.leader.map_or(0, |leader| leader.node_id),
        }
    }

    /// Waits until this member's database has the freshness of the level; then it can be read through
    /// [`LocalClient::db`].
    ///
    /// # Errors
    /// `NoLeader`, `Timeout`.
    pub async fn read_barrier(&self, level: ReadLevel) -> Result<ReadPoint> {
        self.core.check_reading()?;
        let (served, next) = match level {
            ReadLevel::Eventual => return Ok(self.point(level)),
            _ if self.core.is_learner() => return Err(Error::Learner),
            ReadLevel::Linearizable => (level, self.rounds.next().await?),
            // Without a valid lease the leader asks a majority, which is at least as strong.
            ReadLevel::Lease => {
                let asked = peer::Confirmation::Lease;
                (level, self.core.read_index_of_leader(asked).await?)
            }
        };
        // Nothing is applied until the tables are replaced.
        if self.core.repairs.is_wanted() && self.core.progress.borrow().next < next {
            return Err(Error::Repairing);
        }
        let timeout = self.core.options.request_timeout;
        self.core.wait_applied(next, timeout).await?;
        // The alarm may be in what was waited for.
        self.core.check_reading()?;
        Ok(self.point(served))
    }

    /// Refuses what reads this member's data while that may be wrong, as [`LocalClient::read_barrier`] does.
    ///
    /// # Errors
    /// `Repairing`; `Refused` while the alarm names this member; `Stopped`.
    pub fn check_reading(&self) -> Result<()> {
        self.core.check_reading()
    }

    /// The revision of the users that belong to what is visible here. `None` while another member's state is being
    /// installed.
    #[must_use]
    pub fn users_revision(&self) -> Option<u64> {
        self.core.replica.users_revision()
    }

    /// This member's database: for watches, snapshots and the graph. It is as fresh as this member; see
    /// [`LocalClient::read_barrier`].
    #[must_use]
    pub fn db(&self) -> &DbReader {
        self.core.replica.db()
    }

    /// Whether this member is the leader and holds its lease: while this is true, its database is the newest.
    #[must_use]
    pub fn holds_lease(&self) -> bool {
        self.core.holds_lease()
    }

    /// The quotas of prefixes, with what their keys take, in this member's state.
    #[must_use]
    pub fn quotas(&self) -> Vec<bowline_replica::Quota> {
        self.core.replica.quotas()
    }

    /// The indexes of blocks in this member's state, in the order in which they were created.
    #[must_use]
    pub fn indexes(&self) -> Vec<bowline::Index> {
        self.core.replica.db().indexes()
    }

    /// How many commands were refused for a quota since this member has started. All members count the same ones.
    #[must_use]
    pub fn quota_refusals(&self) -> u64 {
        self.core.replica.quota_refusals()
    }

    // --- leases ---

    /// Grants a lease; with an id of 0 one is chosen.
    ///
    /// # Errors
    /// `Refused` for an id in use or a TTL out of bounds; otherwise as [`LocalClient::execute`].
    pub async fn lease_grant(&self, id: i64, ttl: Duration) -> Result<(i64, Applied)> {
        self.by(self.own_caller()).lease_grant(id, ttl).await
    }

    pub(super) async fn grant_by(
        &self,
        id: i64,
        ttl: Duration,
        by: CallerClient<'_>,
    ) -> Result<(i64, Applied)> {
        if !is_valid_ttl(ttl) {
            return Err(bowline::Error::InvalidTtl { ttl }.into());
        }
        loop {
            let chosen = match id {
                0 => fastrand::i64(1..),
                id => id,
            };
            let applied = by.execute(Command::LeaseGrant { id: chosen, ttl }).await?;
            match &applied.reply.result {
                Err(Refusal::LeaseExists { .. }) if id == 0 => {}
                Err(refusal) => return Err(refusal.clone().into()),
                Ok(_) => return Ok((chosen, applied)),
            }
        }
    }

    /// Ends a lease and deletes its keys; returns how many, and the last command that was applied. It is one command, unless
    /// the keys are too many for one: then all but the last ones are deleted by commands before it.
    ///
    /// # Errors
    /// `Refused` when there is no such lease; otherwise as [`LocalClient::execute`].
    pub async fn lease_revoke(&self, id: i64) -> Result<(u64, Applied)> {
        self.by(self.own_caller()).lease_revoke(id).await
    }

    pub(super) async fn revoke_by(&self, id: i64, by: CallerClient<'_>) -> Result<(u64, Applied)> {
        let (mut before, mut is_refused) = (0, false);
        loop {
            let is_large = is_refused || self.has_too_many_keys(id).await?;
            let command = match is_large {
                true => Command::LeaseDeleteKeys { id, expired: None },
                false => Command::LeaseRevoke { id },
            };
            let applied = by.execute(command).await?;
            match &applied.reply.result {
                Ok(Outcome::LeaseKeysDeleted { deleted }) => {
                    before += deleted;
                    is_refused = false;
                }
                Ok(Outcome::LeaseEnded { deleted }) => return Ok((before + deleted, applied)),
                // This member did not know all of its keys. A part of them that is refused itself is one key that is too large.
                Err(Refusal::TooManyWrites { .. }) if !is_large => is_refused = true,
                Err(refusal) => return Err(refusal.clone().into()),
                Ok(other) => {
                    return Err(Error::stopped(format!(
                        "a revocation was replied to by {other:?}"
                    )));
                }
            }
        }
    }

    async fn has_too_many_keys(&self, id: i64) -> Result<bool> {
        let Some(id) = LeaseId::new(id) else {
            return Ok(false);
        };
        let look = |keys_max| self.core.replica.has_too_many_keys(id, keys_max);
        let known = match look(Replica::FEW_KEYS)? {
            None => self.in_turn(true, || look(usize::MAX)).await?,
            known => known,
        };
        Ok(known.unwrap_or(false))
    }

    /// Renews a lease and returns its TTL. `None` when there is no such lease.
    ///
    /// # Errors
    /// `NoLeader`, `Timeout`.
    pub async fn lease_keep_alive(&self, id: i64) -> Result<Option<Duration>> {
        self.by(self.own_caller()).lease_keep_alive(id).await
    }

    pub(super) async fn keep_alive(&self, caller: &Caller, id: i64) -> Result<Option<Duration>> {
        match self.ask(caller, LeaderRequest::LeaseKeepAlive(id)).await? {
            LeaderResponse::Lease(status) => Ok(status.map(|status| status.granted)),
            other => Err(unexpected(&other)),
        }
    }

    /// The remaining time of a lease. `None` when there is no such lease.
    ///
    /// # Errors
    /// `NoLeader`, `Timeout`.
    pub async fn lease_time_to_live(
        &self,
        id: i64,
        with_keys: bool,
    ) -> Result<Option<LeaseStatus>> {
        let client = self.by(self.own_caller());
        client.lease_time_to_live(id, with_keys).await
    }

    pub(super) async fn time_to_live(
        &self,
        caller: &Caller,
        id: i64,
        with_keys: bool,
    ) -> Result<Option<LeaseStatus>> {
        let question = LeaderRequest::LeaseTimeToLive { id, with_keys };
        match self.ask(caller, question).await? {
            LeaderResponse::Lease(status) => Ok(status),
            other => Err(unexpected(&other)),
        }
    }

    // --- members ---

    /// The members, as far as this member knows.
    #[must_use]
    pub fn members(&self) -> Vec<MemberInfo> {
        self.core.members()
    }

    /// Whether a change of the membership, as this member knows it, is between its two steps: until its end it takes a
    /// majority of the voters before *and* of those after it to elect a leader.
    #[must_use]
    pub fn is_membership_changing(&self) -> bool {
        let known = self.core().membership();
        known.get_joint_config().len() > 1 || self.core().is_membership_joint()
    }

    /// Adds a member, to be started with `is_existing`. A future voter is a learner until it has caught up.
    ///
    /// # Errors
    /// `PeerUrlExists`, `TooManyLearners`, `MembershipChanging`; `NoLeader`, `Timeout`.
    pub async fn member_add(&self, peer_urls: Vec<String>, is_learner: bool) -> Result<MemberInfo> {
        let client = self.by(self.own_caller());
        client.member_add(peer_urls, is_learner).await
    }

    /// Removes a member.
    ///
    /// # Errors
    /// `MemberNotFound`, `MembershipChanging`; `NoLeader`, `Timeout`.
    pub async fn member_remove(&self, id: NodeId) -> Result<()> {
        self.by(self.own_caller()).member_remove(id).await
    }

    /// Changes a member's peer URLs.
    ///
    /// # Errors
    /// `MemberNotFound`, `PeerUrlExists`, `MembershipChanging`; `NoLeader`, `Timeout`.
    pub async fn member_update(&self, id: NodeId, peer_urls: Vec<String>) -> Result<()> {
        let client = self.by(self.own_caller());
        client.member_update(id, peer_urls).await
    }

    /// Promotes a learner to a voter.
    ///
    /// # Errors
    /// `MemberNotFound`, `NotLearner`, `LearnerNotReady`, `MembershipChanging`; `NoLeader`, `Timeout`.
    pub async fn member_promote(&self, id: NodeId) -> Result<()> {
        self.by(self.own_caller()).member_promote(id).await
    }

    /// Has the data of a member replaced by that of the leader, while its log, its vote and its id stay; and clears
    /// the alarm that it differs. Returns when the member has begun; until it is done, it refuses clients with
    /// `Repairing`, as its data may be wrong.
    ///
    /// # Errors
    /// `MemberNotFound`, `NoOtherVoter`; `NoLeader`, `Timeout`.
    pub async fn member_repair(&self, id: NodeId) -> Result<()> {
        self.by(self.own_caller()).member_repair(id).await
    }

    /// Transfers leadership to another member. Only the leader accepts this.
    ///
    /// # Errors
    /// `NotLeader`, `BadTransferee`.
    pub async fn move_leader(&self, target: NodeId) -> Result<()> {
        self.by(self.own_caller()).move_leader(target).await
    }

    /// Sends a request to the leader, on whichever member, on behalf of a caller. A refusal is an error.
    #[inline(never)]
    pub(super) fn ask<'a>(
        &'a self,
        caller: &'a Caller,
        question: LeaderRequest,
    ) -> BoxFuture<'a, Result<LeaderResponse>> {
        Box::pin(self.core.ask_leader(caller, question))
    }

    // --- status ---

    /// The status of this member.
    #[must_use]
    pub fn status(&self) -> Status {
        let core = &self.core;
        let stats = core.replica.db().stats();
        let log_bytes = core.log.with_log(bowline_storage::log::Log::size_bytes);
        let files_bytes = stats.engine.table_bytes + stats.engine.blob_bytes;
        let in_use = files_bytes + stats.engine.memtable_bytes;
        let Leadership { leader, term } = core.heard_leadership();
        Status {
            cluster_id: core.cluster_id,
            member_id: core.member_id,
            leader,
            term,
            raft_index: core.last_index().map_or(0, |index| index + 1),
            applied_index: core.applied_next(),
            is_learner: core.is_learner(),
            lacks_entries: core.owes(),
            size_bytes: in_use + log_bytes.unwrap_or(0),
            size_in_use_bytes: in_use,
            revision: stats.revision,
            failure: core.stop_reason(),
        }
    }

    /// The raised alarms, with their members.
    #[must_use]
    pub fn alarms(&self) -> Vec<(NodeId, AlarmKind)> {
        self.core.replica.alarms()
    }

    /// The revision of the last compaction request; 0 when there was none.
    #[must_use]
    pub fn compacted_revision(&self) -> Revision {
        self.core.replica.compacted_revision()
    }

    /// The clock of the database.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        self.core.replica.clock()
    }

    /// The time that a command of a user is given, once every member knows of authors.
    pub(super) fn author_time(&self, actor: &Actor) -> Option<u64> {
        let is_user = matches!(actor, Actor::User { .. });
        let is_known = is_user && self.core.check_version(Command::AUTHOR_VERSION).is_ok();
        is_known.then(|| self.clock().wall_ms())
    }

    /// The current leadership and its changes.
    #[must_use]
    pub fn leadership(&self) -> tokio::sync::watch::Receiver<Leadership> {
        self.core.leadership.subscribe()
    }

    /// This member's counters.
    #[must_use]
    pub fn metrics(&self) -> NodeMetrics {
        let core = &self.core;
        let counts = &core.counts;
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let log_bytes = core.log.with_log(bowline_storage::log::Log::size_bytes);
        let committed = core.committed_next();
        NodeMetrics {
            leader_changes: load(&counts.leader_changes),
            proposals_pending: load(&counts.proposals_pending),
            proposals_failed: load(&counts.proposals_failed),
            proposals_committed: load(&counts.proposals_committed),
            apply_lag: committed.saturating_sub(core.applied_next()),
            repairs: core.repairs.counted(),
            tables_scrubbed: load(&counts.tables_scrubbed),
            damage_found: load(&counts.damage_found),
            comparisons: load(&counts.comparisons),
            commit_times: counts.commit_times.read(),
            log_flush_times: core.log.flush_times(),
            log_bytes: log_bytes.unwrap_or(0),
            peers: core.peers.metrics(),
        }
    }

    /// A checksum of all entries with their metadata at a revision (0 is the newest); with the revision, and
    /// the revision of the last compaction. Equal on all members.
    ///
    /// # Errors
    /// `Refused` for a revision that cannot be read.
    pub fn hash_kv(&self, revision: Option<Revision>) -> Result<(u32, Revision, Revision)> {
        let db = self.db();
        let snapshot = match revision {
            None => db.snapshot(),
            Some(revision) => db.snapshot_at(revision).map_err(|error| match error {
                bowline::Error::Compacted { oldest, .. } => {
                    Refusal::Compacted { revision, oldest }.into()
                }
                bowline::Error::FutureRevision { current, .. } => Refusal::FutureRevision {
                    revision,
                    newest: current,
                }
                .into(),
                other => Error::from(other),
            })?,
        };
        // Without entries it must not be 0, which clients take for a missing hash.
        let mut hash = crc32c::crc32c(b"kv");
        for entry in snapshot.range(..)? {
            let entry = entry?;
            for bytes in [&entry.key, &entry.value] {
                hash = crc32c::crc32c_append(hash, &(bytes.len() as u64).to_le_bytes());
                hash = crc32c::crc32c_append(hash, bytes);
            }
            let lease = LeaseId::number_of(entry.lease) as u64;
            for number in [
                entry.create_revision.get(),
                entry.mod_revision.get(),
                entry.version,
                lease,
            ] {
                hash = crc32c::crc32c_append(hash, &number.to_le_bytes());
            }
        }
        Ok((hash, snapshot.revision(), self.compacted_revision()))
    }

    /// Hashes of every tree of this member, and the log index at which they were taken. Members that have
    /// applied the same index have the same hashes.
    ///
    /// # Errors
    /// `Storage` when something cannot be read.
    pub fn tree_hashes(&self) -> Result<(u64, bowline::TreeHashes)> {
        let hashes = self.core.replica.tree_hashes().map_err(Error::from);
        self.core.noting(hashes)
    }

    /// Waits until the node stops by itself; returns the reason.
    pub async fn stopped(&self) -> String {
        let mut closing = self.core.closing.subscribe();
        // It changes rarely, and ends with the consensus.
        let mut election = self.core.raft.watch_election();
        loop {
            if let Some(reason) = self.core.stop_reason() {
                return reason;
            }
            tokio::select! {
                biased;
                changed = election.changed() => if changed.is_err() {
                    let reason = self.core.stop_reason();
                    return reason.unwrap_or_else(|| "it was closed".to_owned());
                },
                _ = closing.changed() => {}
            }
        }
    }
}

/// Whether it may read many entries. A limit does not help: the reply has the count of all.
fn is_wide(op: &RangeOp) -> bool {
    !op.range_end.is_empty()
}

fn reads_wide(txn: &Txn) -> bool {
    let mut ops = txn.success.iter().chain(&txn.failure);
    ops.any(|op| match op {
        Op::Range(range) => is_wide(range),
        Op::Txn(inner) => reads_wide(inner),
        Op::Put(_) | Op::DeleteRange(_) => false,
    })
}

pub(super) fn unexpected(answer: &LeaderResponse) -> Error {
    Error::stopped(format!("the leader answered something else: {answer:?}"))
}
