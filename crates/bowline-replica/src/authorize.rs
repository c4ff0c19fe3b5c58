//! Users in the state of a member: how they are loaded, and the check of a caller's rights.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bowline_core::error::Result;
use bowline_core::trees::{self, UserRecord};
use bowline_storage::engine::ScanDirection;
use bowline_storage::sync::atomic::Ordering;

use super::{Replica, invalid};
use crate::needs::Need;
use crate::present::Newest;
use crate::users::{
    self, Caller, Session, TokenHash, Users, UsersRefusal, decode_role, decode_user,
};

impl Replica {
    /// Loads the users, the roles and the tokens.
    pub(crate) fn load_users(&self) -> Result<(Users, Vec<(TokenHash, Session)>)> {
        let engine = &self.core().engine;
        let prefix = trees::users_prefix();
        let upper = trees::prefix_end(&prefix).map_or(Bound::Unbounded, Bound::Excluded);
        let lower = Bound::Included(prefix.to_vec());
        let at = engine.visible();
        let mut scan = engine.scan(trees::SYSTEM, lower, upper, at, ScanDirection::Forward);
        let (mut config, mut tokens) = (None, Vec::new());
        let (mut users, mut roles) = (BTreeMap::new(), BTreeMap::new());
        while scan.advance()? {
            let (key, record) = (scan.key().to_vec(), scan.bytes().to_vec());
            let damaged = || invalid("user, role or token", &key);
            match trees::split_user_record(&key).ok_or_else(damaged)? {
                UserRecord::Config => config = Some(record.to_vec()),
                UserRecord::User(name) => {
                    let user = decode_user(&record).ok_or_else(damaged)?;
                    users.insert(name.to_owned(), Arc::new(user));
                }
                UserRecord::Role(name) => {
                    let role = decode_role(&record).ok_or_else(damaged)?;
                    roles.insert(name.to_owned(), Arc::new(role));
                }
                UserRecord::Token(token) => {
                    let session = users::decode_token(*token, &record).ok_or_else(damaged)?;
                    tokens.push((*token, session));
                }
            }
        }
        let loaded = Users::load(config.as_deref(), users, roles);
        let loaded = loaded.ok_or_else(|| invalid("users", &trees::users_config_key()))?;
        Ok((loaded, tokens))
    }

    /// Whether authentication is enabled, in this member's state. Does not block.
    #[must_use]
    #[inline]
    pub fn are_users_enabled(&self) -> bool {
        self.are_users_enabled.load(Ordering::Acquire)
    }

    /// The users and roles, in this member's state.
    #[must_use]
    pub fn users(&self) -> Arc<Users> {
        self.users.load_full()
    }

    /// Has a function called after each change of users, where entries are applied: it must not wait. Only the first one
    /// is kept.
    pub fn on_users_changed(&self, listener: impl Fn() + Send + Sync + 'static) {
        // An error means that there is one.
        let _ = self.users_listener.0.set(Box::new(listener));
    }

    /// The session of a token that is in this member's state, whether or not its time is over.
    #[must_use]
    pub fn session(&self, token: &TokenHash) -> Option<Arc<Session>> {
        self.tokens.get(token)
    }

    /// Whether there are tokens whose time is over.
    #[must_use]
    pub fn has_expired_tokens(&self, now_ms: u64) -> bool {
        let is_over = |session: &Session| session.expires_ms() <= now_ms;
        !self.tokens.filtered(1, is_over).is_empty()
    }

    /// Checks the needs of a call of a caller against this member's state. Nothing is needed while authentication is not
    /// enabled.
    ///
    /// # Errors
    /// `NoUser`, `InvalidToken`, `PermissionDenied`; `Storage` when the disk fails.
    pub fn check_rights<'a>(
        &self,
        caller: &Caller,
        visit: impl FnOnce(
            &mut dyn FnMut(Need<'a>) -> Result<(), UsersRefusal>,
        ) -> Result<(), UsersRefusal>,
    ) -> Result<Result<(), UsersRefusal>> {
        if !self.are_users_enabled() {
            return Ok(Ok(()));
        }
        let session = match caller {
            Caller::Process => return Ok(Ok(())),
            Caller::Nobody => return Ok(Err(UsersRefusal::NoUser)),
            Caller::User(session) => session,
        };
        let users = self.users.load();
        let user = users.user(session.user());
        // As in etcd. A client that is told of a wrong token asks again, with another one if it can.
        if user.is_none() && session.is_of_certificate() {
            return Ok(Err(UsersRefusal::PermissionDenied));
        }
        let Some(user) = user.filter(|user| user.since <= session.since()) else {
            return Ok(Err(UsersRefusal::InvalidToken));
        };
        let core = self.core();
        let present = Newest {
            engine: &core.engine,
            kinds: &core.kinds,
        };
        let mut failed = None;
        let checked = visit(&mut |need| match user.rights().meet(need, &present) {
            Ok(true) => Ok(()),
            Ok(false) => Err(UsersRefusal::PermissionDenied),
            Err(error) => {
                failed = Some(error);
                Err(UsersRefusal::PermissionDenied)
            }
        });
        failed.map_or(Ok(checked), Err)
    }
}
