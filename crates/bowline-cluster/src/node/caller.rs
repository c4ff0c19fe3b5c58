//! [`CallerClient`]: the in-process client on behalf of a caller, whose rights it checks.
//!
//! A command is checked here so that what is refused takes no room in the log; what counts is the check of every member
//! that applies it. This member's users may be older than those that the cluster has agreed on: before a command is
//! refused here, the member catches up. A read is checked at the state that it reads.
//!
//! Invariants:
//!
//! - While authentication is enabled, everything that a [`CallerClient`] does is checked, and a command names its actor.
//! - While it is not, a call costs one load of a flag.

use std::sync::Arc;
use std::time::Duration;

use bowline_replica::{
    Caller, Command, Need, Outcome, RangeOp, RangeReply, Refusal, Session, TokenHash, Txn,
    TxnReply, Users, UsersRefusal, needs, needs_of_txn,
};
use bowline_types::ReadLevel;
use futures_core::future::BoxFuture;

use super::client::LocalClient;
use super::info::LeaseStatus;
use super::reads::Read;
use crate::error::{Error, Result};
use crate::raft::waiters::Applied;

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
        let replica = &self.client.core().replica;
        let checked = replica.check_rights(self.caller, visit)?;
        checked.map_err(|refusal| Refusal::from(refusal).into())
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
        match self.caller.actor() {
            Some(actor) => Command::By {
                at_ms: self.client.author_time(&actor),
                actor,
                command: Box::new(command),
            },
            None => command,
        }
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
        self.check(|each| each(Need::write_keys_of(id)))?;
        self.client.keep_alive(id).await
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
        let found = self.client.time_to_live(id, with_keys).await?;
        let keys = found.iter().flat_map(|status| &status.keys);
        let keys: Vec<&[u8]> = keys.map(|key| &key[..]).collect();
        self.check(|each| {
            let mut keys = keys.iter();
            keys.try_for_each(|key| each(Need::read(key, &[])))
        })?;
        Ok(found)
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
