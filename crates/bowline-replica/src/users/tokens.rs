//! Tokens, and the sessions that they stand for.
//!
//! A token is random, replicated and ends some time after its last use. A call finds its [`Session`] by the token once and
//! keeps it: whether it is still valid is then read from two atomics.
//!
//! Invariants: a session ends, for those who keep it too, when its token, its user or the password of its user goes; a
//! session that has ended stays ended.

use std::collections::HashMap;
use std::sync::Arc;

use bowline_storage::codec::{Reader, put_bytes, put_varint};
use bowline_storage::sync::Mutex;
use bowline_storage::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Actor, TokenHash};

/// The most tokens of all users.
pub(crate) const TOKENS_MAX: usize = 100_000;

/// A user that has logged in.
#[derive(Debug)]
pub struct Session {
    user: Arc<str>,
    /// The auth revision at which the password was checked.
    since: u64,
    /// `None` for a session without a token.
    token: Option<TokenHash>,
    expires_ms: AtomicU64,
    is_ended: AtomicBool,
}

impl Session {
    /// The session of a user that is known without a token, by a certificate; it does not end.
    #[must_use]
    pub fn without_token(user: &str, since: u64) -> Session {
        Session {
            user: user.into(),
            since,
            token: None,
            expires_ms: AtomicU64::new(u64::MAX),
            is_ended: AtomicBool::new(false),
        }
    }

    /// The session of a user that is known by a signed token, which the state does not have; it ends at a time of the wall
    /// clock, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn until(user: &str, since: u64, expires_ms: u64) -> Session {
        Session {
            expires_ms: AtomicU64::new(expires_ms),
            ..Session::without_token(user, since)
        }
    }

    /// The user.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The auth revision at which it began.
    #[must_use]
    pub fn since(&self) -> u64 {
        self.since
    }

    /// The hash of its token.
    #[must_use]
    pub fn token(&self) -> Option<&TokenHash> {
        self.token.as_ref()
    }

    /// Whether it is that of a certificate, which stands for whoever has the name, now or later.
    pub(crate) fn is_of_certificate(&self) -> bool {
        self.token.is_none() && self.since == u64::MAX
    }

    /// When it ends, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn expires_ms(&self) -> u64 {
        self.expires_ms.load(Ordering::Relaxed)
    }

    /// Whether it is valid at a time of the wall clock.
    #[must_use]
    pub fn is_valid(&self, now_ms: u64) -> bool {
        !self.is_ended.load(Ordering::Acquire) && now_ms < self.expires_ms()
    }

    /// Who asks for its commands.
    #[must_use]
    pub fn actor(&self) -> Actor {
        Actor::User {
            name: self.user.clone(),
            since: self.since,
        }
    }

    fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
    }
}

/// Who makes a call.
#[derive(Debug, Clone, Default)]
pub enum Caller {
    /// The program that the member is a part of: it may do everything.
    Process,
    /// A client without a user.
    #[default]
    Nobody,
    /// A user.
    User(Arc<Session>),
}

impl Caller {
    /// The actor of its commands; `None` for nobody.
    #[must_use]
    pub fn actor(&self) -> Option<Actor> {
        match self {
            Caller::Process => Some(Actor::Process),
            Caller::Nobody => None,
            Caller::User(session) => Some(session.actor()),
        }
    }
}

/// All tokens. They change where entries are applied, and are read anywhere.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<HashMap<TokenHash, Arc<Session>>>);

impl Tokens {
    /// Replaces all; those of before end.
    pub(crate) fn replace(&self, all: Vec<(TokenHash, Session)>) {
        let all = all.into_iter();
        let all = all.map(|(token, session)| (token, Arc::new(session)));
        let before = std::mem::replace(&mut *self.0.lock(), all.collect());
        before.values().for_each(|session| session.end());
    }

    pub(crate) fn get(&self, token: &TokenHash) -> Option<Arc<Session>> {
        self.0.lock().get(token).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Those that a condition holds for, in the order of their hashes, at most so many.
    pub(crate) fn filtered(&self, most: usize, holds: impl Fn(&Session) -> bool) -> Vec<TokenHash> {
        let all = self.0.lock();
        let found = all.iter().filter(|(_, session)| holds(session));
        let mut found: Vec<TokenHash> = found.map(|(token, _)| *token).collect();
        found.sort_unstable();
        found.truncate(most);
        found
    }

    pub(crate) fn add(&self, token: TokenHash, session: Session) {
        let before = self.0.lock().insert(token, Arc::new(session));
        if let Some(before) = before {
            before.end();
        }
    }

    pub(crate) fn renew(&self, token: &TokenHash, expires_ms: u64) {
        if let Some(session) = self.0.lock().get(token) {
            session.expires_ms.store(expires_ms, Ordering::Relaxed);
        }
    }

    pub(crate) fn remove(&self, token: &TokenHash) {
        if let Some(session) = self.0.lock().remove(token) {
            session.end();
        }
    }
}

/// `| since varint | expires ms varint | user bytes |`
pub(crate) fn encode_token(user: &str, since: u64, expires_ms: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, since);
    put_varint(&mut out, expires_ms);
    put_bytes(&mut out, user.as_bytes());
    out
}

pub(crate) fn decode_token(token: TokenHash, record: &[u8]) -> Option<Session> {
    let mut reader = Reader::new(record);
    let (since, expires_ms) = (reader.varint()?, reader.varint()?);
    let user = std::str::from_utf8(reader.bytes()?).ok()?.into();
    reader.is_empty().then(|| Session {
        user,
        since,
        token: Some(token),
        expires_ms: AtomicU64::new(expires_ms),
        is_ended: AtomicBool::new(false),
    })
}
