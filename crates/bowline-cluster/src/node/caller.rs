//! [`CallerClient`]: the in-process client on behalf of a caller, whose rights it checks.
//!
//! A command is checked here so that what is refused takes no room in the log; what counts is the check of every member
//! that applies it. A request to the leader names its caller, and what counts is the leader's check. This member's users
//! may be older than those that the cluster has agreed on: before a command or a request is refused here, the member
//! catches up. A read is checked at the state that it reads.
//!
//! Invariants:
//!
//! - While authentication is enabled, everything that a [`CallerClient`] does is checked, and a command names its actor.
//! - While it is not, a call costs one load of a flag, and a read two more of a counter.

use std::sync::Arc;
use std::time::Duration;

use bowline::DbReader;
use bowline_replica::{
    Caller, Command, Need, Outcome, RangeOp, RangeReply, Refusal, Session, TokenHash, Txn,
    TxnReply, Users, UsersRefusal, needs, needs_of_txn,
};
use bowline_types::ReadLevel;
use futures_core::future::BoxFuture;

use super::client::{LocalClient, unexpected};
use super::core::Core;
use super::info::{LeaseStatus, MemberInfo};
use super::leader_request::{LeaderRequest, LeaderResponse};
use super::reads::Read;
use crate::error::{Error, Result};
use crate::raft::waiters::Applied;
use crate::types::NodeId;

/// Visits the needs of a call until one is refused.
pub type VisitNeeds<'a, 'n> = &'a (
        dyn Fn(&mut dyn FnMut(Need<'n>) -> Result<(), UsersRefusal>) -> Result<(), UsersRefusal>
            + Sync
    );

/// The needs of a call that any user may make.
fn nothing<'n>(
    _: &mut dyn FnMut(Need<'n>) -> Result<(), UsersRefusal>,
) -> Result<(), UsersRefusal> {
    Ok(())
}

/// Visits the needs of a caller that is told of a lease and its keys.
pub(super) fn needs_to_see<'n>(
    lease: Option<&'n LeaseStatus>,
    each: &mut dyn FnMut(Need<'n>) -> Result<(), UsersRefusal>,
) -> Result<(), UsersRefusal> {
    let mut keys = lease.into_iter().flat_map(|lease| &lease.keys);
    keys.try_for_each(|key| each(Need::read(&key[..], &[])))
}

impl Core {
    /// Refuses a caller whose needs are not met in this member's state.
    pub(super) fn check_rights<'n>(
        &self,
        caller: &Caller,
        visit: impl FnOnce(
            &mut dyn FnMut(Need<'n>) -> Result<(), UsersRefusal>,
        ) -> Result<(), UsersRefusal>,
    ) -> Result<()> {
        let checked = self.replica.check_rights(caller, visit)?;
        checked.map_err(|refusal| Refusal::from(refusal).into())
    }
}

impl LocalClient {
    /// The client on behalf of a caller.
    #[must_use]
    pub fn by<'a>(&'a self, caller: &'a Caller) -> CallerClient<'a> {
        CallerClient {
            client: self,
            caller,
        }
    }

    /// Whether authentication is enabled, in this member's state.
    #[must_use]
    #[inline]
    pub fn are_users_enabled(&self) -> bool {
        self.core().replica.are_users_enabled()
    }

    /// The users and roles, in this member's state.
    #[must_use]
    pub fn users(&self) -> Arc<Users> {
        self.core().replica.users()
    }

    /// The session of a token, in this member's state.
    #[must_use]
    pub fn session(&self, token: &TokenHash) -> Option<Arc<Session>> {
        self.core().replica.session(token)
    }

    /// Whether this member knows tokens whose time is over.
    #[must_use]
    pub fn has_expired_tokens(&self, now_ms: u64) -> bool {
        self.core().replica.has_expired_tokens(now_ms)
    }

    /// A number that changes after every change of users, in this member's state.
    #[must_use]
    pub fn users_changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.core().users_changes.subscribe()
    }
}

/// The in-process client on behalf of a caller. Made by [`LocalClient::by`].
///
/// Besides its own errors each method gives `Refused` with a [`UsersRefusal`] for what the caller may not do.
#[derive(Debug, Clone, Copy)]
pub struct CallerClient<'a> {
    client: &'a LocalClient,
    caller: &'a Caller,
}

impl CallerClient<'_> {
    /// Refuses a call whose needs are not met in this member's state.
    ///
    /// # Errors
    /// `Refused`; `Storage` when the disk fails.
    pub fn check<'n>(
        &self,
        visit: impl FnOnce(
            &mut dyn FnMut(Need<'n>) -> Result<(), UsersRefusal>,
        ) -> Result<(), UsersRefusal>,
    ) -> Result<()> {
        if !self.client.are_users_enabled() {
            return Ok(());
        }
        self.client.core().check_rights(self.caller, visit)
    }

    /// Refuses a call of nobody, as [`CallerClient::check`] does.
    ///
    /// # Errors
    /// `Refused`.
    pub fn check_user(&self) -> Result<()> {
        self.check(nothing)
    }

    /// [`CallerClient::check`] in a state that is not older than the call.
    ///
    /// # Errors
    /// `Refused`; `NoLeader`, `Timeout`.
    pub async fn check_newest<'n>(&self, visit: VisitNeeds<'_, 'n>) -> Result<()> {
        if !self.client.are_users_enabled() {
            return Ok(());
        }
        let Err(refused) = self.check(visit) else {
            return Ok(());
        };
        if self
            .client
            .read_barrier(ReadLevel::Linearizable)
            .await
            .is_err()
        {
            return Err(refused);
        }
        self.check(visit)
    }

    /// As [`LocalClient::execute`].
    ///
    /// # Errors
    /// As [`LocalClient::execute`].
    pub async fn execute(&self, command: Command) -> Result<Applied> {
        self.check_newest(&|each| needs(&command, each)).await?;
        match self.caller {
            Caller::User(_) | Caller::Process if self.client.are_users_enabled() => {
                self.client.propose(self.with_actor(command)).await
            }
            Caller::User(_) | Caller::Nobody => self.client.propose(command).await,
            Caller::Process => {
                let applied = self.client.propose(command.clone()).await?;
                match &applied.reply.result {
                    // It was enabled before the command was applied, which did nothing.
                    Err(Refusal::Users(UsersRefusal::NoUser)) => {
                        self.client.propose(self.with_actor(command)).await
                    }
                    _ => Ok(applied),
                }
            }
        }
    }

    fn with_actor(&self, command: Command) -> Command {
        let Some(actor) = self.caller.actor() else {
            return command;
        };
        // It fills a batch to the bound, where the record of an author finds no room.
        let is_filled = matches!(command, Command::LeaseDeleteKeys { .. });
        let at_ms = match is_filled {
            true => None,
            false => self.client.author_time(&actor),
        };
        let command = Box::new(command);
        Command::By {
            actor,
            at_ms,
            command,
        }
    }

    /// Takes something of this member's database, such as a snapshot, in a state in which the needs of the call are met.
    ///
    /// # Errors
    /// `Refused`; `Repairing` while another member's state is being installed; those of `take`.
    pub fn take_if<T>(
        &self,
        visit: VisitNeeds<'_, '_>,
        take: impl Fn(&DbReader) -> bowline::Result<T>,
    ) -> Result<T> {
        let replica = &self.client.core().replica;
        let taken = replica.in_one_state(|| -> Result<T> {
            self.check(visit)?;
            Ok(take(replica.db())?)
        });
        taken.unwrap_or(Err(Error::Repairing))
    }

    /// As [`LocalClient::range`].
    ///
    /// # Errors
    /// As [`LocalClient::range`].
    pub async fn range(&self, op: &RangeOp, level: ReadLevel) -> Result<Read<RangeReply>> {
        let check = || self.check(|each| each(Need::read(&op.key, &op.range_end)));
        self.client.range_if(op, level, check).await
    }

    /// As [`LocalClient::read_txn`].
    ///
    /// # Errors
    /// As [`LocalClient::read_txn`].
    pub async fn read_txn(&self, txn: &Txn, level: ReadLevel) -> Result<Read<TxnReply>> {
        let check = || self.check(|each| needs_of_txn(txn, each));
        self.client.read_txn_if(txn, level, check).await
    }

    /// As [`LocalClient::lease_grant`].
    ///
    /// # Errors
    /// As [`LocalClient::lease_grant`].
    pub async fn lease_grant(&self, id: i64, ttl: Duration) -> Result<(i64, Applied)> {
        self.client.grant_by(id, ttl, *self).await
    }

    /// As [`LocalClient::lease_revoke`].
    ///
    /// # Errors
    /// As [`LocalClient::lease_revoke`].
    pub async fn lease_revoke(&self, id: i64) -> Result<(u64, Applied)> {
        self.client.revoke_by(id, *self).await
    }

    /// As [`LocalClient::lease_keep_alive`]. Needs the right to write each key of the lease.
    ///
    /// # Errors
    /// As [`LocalClient::lease_keep_alive`].
    pub async fn lease_keep_alive(&self, id: i64) -> Result<Option<Duration>> {
        self.check_newest(&|each| each(Need::write_keys_of(id)))
            .await?;
        self.client.keep_alive(self.caller, id).await
    }

    /// As [`LocalClient::lease_time_to_live`]. With the keys, it needs the right to read each of them.
    ///
    /// # Errors
    /// As [`LocalClient::lease_time_to_live`].
    pub async fn lease_time_to_live(
        &self,
        id: i64,
        with_keys: bool,
    ) -> Result<Option<LeaseStatus>> {
        self.check_user()?;
        let asked = self.client.time_to_live(self.caller, id, with_keys);
        let found = asked.await?;
        // Here, too: a leader of a version before does not look at the caller.
        self.check_newest(&|each| needs_to_see(found.as_ref(), each))
            .await?;
        Ok(found)
    }

    /// As [`LocalClient::member_add`]. Needs the role `root`, as the other methods about members.
    ///
    /// # Errors
    /// As [`LocalClient::member_add`].
    pub async fn member_add(&self, peer_urls: Vec<String>, is_learner: bool) -> Result<MemberInfo> {
        let question = LeaderRequest::MemberAdd {
            peer_urls,
            is_learner,
        };
        match self.ask_as_root(question).await? {
            LeaderResponse::Member(member) => Ok(member),
            other => Err(unexpected(&other)),
        }
    }

    /// As [`LocalClient::member_remove`].
    ///
    /// # Errors
    /// As [`LocalClient::member_remove`].
    pub async fn member_remove(&self, id: NodeId) -> Result<()> {
        let question = LeaderRequest::MemberRemove(id);
        self.ask_as_root(question).await.map(drop)
    }

    /// As [`LocalClient::member_update`].
    ///
    /// # Errors
    /// As [`LocalClient::member_update`].
    pub async fn member_update(&self, id: NodeId, peer_urls: Vec<String>) -> Result<()> {
        let question = LeaderRequest::MemberUpdate { id, peer_urls };
        self.ask_as_root(question).await.map(drop)
    }

    /// As [`LocalClient::member_promote`].
    ///
    /// # Errors
    /// As [`LocalClient::member_promote`].
    pub async fn member_promote(&self, id: NodeId) -> Result<()> {
        let question = LeaderRequest::MemberPromote(id);
        self.ask_as_root(question).await.map(drop)
    }

    /// As [`LocalClient::member_repair`].
    ///
    /// # Errors
    /// As [`LocalClient::member_repair`].
    pub async fn member_repair(&self, id: NodeId) -> Result<()> {
        let question = LeaderRequest::MemberRepair(id);
        self.ask_as_root(question).await.map(drop)
    }

    /// As [`LocalClient::move_leader`].
    ///
    /// # Errors
    /// As [`LocalClient::move_leader`].
    pub async fn move_leader(&self, target: NodeId) -> Result<()> {
        let question = LeaderRequest::MoveLeader(target);
        let core = self.client.core();
        match core.answer_to(self.caller, question).await {
            LeaderResponse::Refused(error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Asks the leader for what takes the role `root`. That is checked here, too: a leader of a version before does not
    /// look at the caller.
    async fn ask_as_root(&self, question: LeaderRequest) -> Result<LeaderResponse> {
        self.check_newest(&|each| each(Need::Root)).await?;
        self.client.ask(self.caller, question).await
    }

    /// Changes users or roles. Needs the role `root` while authentication is enabled.
    ///
    /// # Errors
    /// As [`LocalClient::execute`]; `Refused` with what is wrong with the change.
    #[inline(never)]
    pub fn change_users(
        &self,
        change: bowline_replica::UsersChange,
    ) -> BoxFuture<'_, Result<Applied>> {
        Box::pin(async {
            let applied = self.execute(Command::Users(change)).await?;
            refused(applied)
        })
    }

    /// Changes the quotas of prefixes. Needs the role `root` while authentication is enabled.
    ///
    /// # Errors
    /// As [`LocalClient::execute`]; `Refused` with what is wrong with the change.
    #[inline(never)]
    pub fn change_quota(
        &self,
        change: bowline_replica::QuotaChange,
    ) -> BoxFuture<'_, Result<Applied>> {
        Box::pin(async {
            let applied = self.execute(Command::Quota(change)).await?;
            refused(applied)
        })
    }
}

/// A refusal as an error.
fn refused(applied: Applied) -> Result<Applied> {
    match &applied.reply.result {
        Ok(Outcome::Done) => Ok(applied),
        Ok(other) => Err(Error::stopped(format!(
            "a change was replied to by {other:?}"
        ))),
        Err(refusal) => Err(refusal.clone().into()),
    }
}
