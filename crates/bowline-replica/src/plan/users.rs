//! Users: the rights of an actor, and changes of users and tokens.

use std::sync::Arc;

use super::{Effect, Planner, Stop};
use crate::command::{Command, Outcome, Refusal};
use crate::present::Newest;
use crate::users::{
    Actor, RecordKey, Session, TOKENS_MAX, TokenChange, TokenHash, UsersChange, UsersRefusal,
    decode_token, encode_token,
};
use bowline_core::kv::author;
use bowline_core::trees;

/// The most tokens that one command removes because their time is over.
const EXPIRED_AT_ONCE: usize = 1000;

/// The effect on tokens.
#[derive(Debug)]
pub(crate) enum TokenEffect {
    Added(TokenHash, Session),
    Renewed(TokenHash, u64),
    Removed(Vec<TokenHash>),
}

impl PartialEq for TokenEffect {
    fn eq(&self, other: &TokenEffect) -> bool {
        match (self, other) {
            (TokenEffect::Added(a, _), TokenEffect::Added(b, _)) => a == b,
            (TokenEffect::Renewed(a, x), TokenEffect::Renewed(b, y)) => (a, x) == (b, y),
            (TokenEffect::Removed(a), TokenEffect::Removed(b)) => a == b,
            _ => false,
        }
    }
}

impl Planner<'_> {
    /// Notes who makes the revision, if it is known and there is one.
    pub(super) fn note_author(&mut self, command: &Command) {
        if let Command::By { actor, at_ms, .. } = command
            && let (Actor::User { name, .. }, Some(at_ms)) = (actor, at_ms)
            && self.writer.journal.is_numbered
        {
            let record = author::encode(name, *at_ms);
            self.writer
                .put_record(trees::SYSTEM, &trees::author_key(), &record);
        }
    }

    /// Refuses a command that a client asks for without the rights, while authentication is enabled.
    pub(super) fn check_actor(&self, actor: Option<&Actor>, command: &Command) -> Result<(), Stop> {
        let users = &self.known.users;
        if !users.is_enabled() || !command.is_asked_for() {
            return Ok(());
        }
        let refuse = |refusal: UsersRefusal| Err(Stop::Refused(refusal.into()));
        let (name, since) = match actor {
            None => return refuse(UsersRefusal::NoUser),
            Some(Actor::Process) => return Ok(()),
            Some(Actor::User { name, since }) => (name, *since),
        };
        // A user of the same name that came later, or has another password since, is not the one that logged in.
        let Some(user) = users.user(name).filter(|user| user.since <= since) else {
            return refuse(UsersRefusal::InvalidToken);
        };
        let present = Newest {
            engine: self.engine,
            kinds: self.kinds,
        };
        match command.check_rights(user.rights(), &present)? {
            Ok(()) => Ok(()),
            Err(refusal) => refuse(refusal),
        }
    }

    pub(super) fn change_users(&mut self, change: &UsersChange) -> Result<Outcome, Stop> {
        let changed = self.known.users.changed(change).map_err(Refusal::from)?;
        let Some((users, records)) = changed else {
            return Ok(Outcome::Done);
        };
        for (key, record) in records {
            let key = match &key {
                RecordKey::Config => trees::users_config_key().to_vec(),
                RecordKey::User(name) => trees::user_key(name),
                RecordKey::Role(name) => trees::role_key(name),
            };
            match record {
                Some(record) => self.writer.put_record(trees::SYSTEM, &key, &record),
                None => self.writer.delete_record(trees::SYSTEM, &key),
            }
        }
        let ended = match change {
            UsersChange::Disable => self.tokens.filtered(usize::MAX, |_| true),
            UsersChange::DeleteUser { name } | UsersChange::ChangePassword { name, .. } => {
                let is_of_user = |session: &Session| session.user() == name;
                self.tokens.filtered(usize::MAX, is_of_user)
            }
            _ => Vec::new(),
        };
        self.remove_tokens(ended);
        self.effects.push(Effect::Users(Arc::new(users)));
        Ok(Outcome::Done)
    }

    pub(super) fn change_tokens(&mut self, change: &TokenChange) -> Result<Outcome, Stop> {
        match change {
            TokenChange::Login {
                user,
                token,
                checked_at,
                expires_ms,
            } => {
                let users = &self.known.users;
                if !users.is_enabled() {
                    return Err(Refusal::from(UsersRefusal::NotEnabled).into());
                }
                let known = users.user(user);
                if known.is_none_or(|known| known.since > *checked_at) {
                    return Err(Refusal::from(UsersRefusal::InvalidToken).into());
                }
                if self.tokens.len() >= TOKENS_MAX {
                    return Err(Refusal::from(UsersRefusal::TooManyTokens).into());
                }
                let record = encode_token(user, *checked_at, *expires_ms);
                self.put_token(*token, &record, TokenEffect::Added);
            }
            TokenChange::Renew { token, expires_ms } => {
                let session = self.tokens.get(token);
                if let Some(session) = session.filter(|known| known.expires_ms() < *expires_ms) {
                    let record = encode_token(session.user(), session.since(), *expires_ms);
                    let key = trees::token_key(token);
                    self.writer.put_record(trees::SYSTEM, &key, &record);
                    let renewed = TokenEffect::Renewed(*token, *expires_ms);
                    self.effects.push(Effect::Tokens(renewed));
                }
            }
            TokenChange::Expire { before_ms } => {
                let is_over = |session: &Session| session.expires_ms() <= *before_ms;
                let over = self.tokens.filtered(EXPIRED_AT_ONCE, is_over);
                self.remove_tokens(over);
            }
        }
        Ok(Outcome::Done)
    }

    fn put_token(
        &mut self,
        token: TokenHash,
        record: &[u8],
        effect: impl FnOnce(TokenHash, Session) -> TokenEffect,
    ) {
        let key = trees::token_key(&token);
        self.writer.put_record(trees::SYSTEM, &key, record);
        if let Some(session) = decode_token(token, record) {
            self.effects.push(Effect::Tokens(effect(token, session)));
        }
    }

    fn remove_tokens(&mut self, tokens: Vec<TokenHash>) {
        if tokens.is_empty() {
            return;
        }
        for token in &tokens {
            self.writer
                .delete_record(trees::SYSTEM, &trees::token_key(token));
        }
        self.effects
            .push(Effect::Tokens(TokenEffect::Removed(tokens)));
    }
}
