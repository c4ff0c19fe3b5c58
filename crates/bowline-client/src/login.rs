//! [`Login`]: the token that a client shows, and whose turn it is to get another one.
//!
//! ```text
//!             first request                    refused
//!   Unknown ───────────────▶ Shown(token) ───────────────▶ a login anew: the next Shown
//!                            Shown(nothing): the server has no users
//! ```
//!
//! A refusal says that the token it was shown is of no use any more, so it names what was shown: while one request logs
//! in, others that were refused with the same token wait for its outcome instead of logging in themselves.
//!
//! Invariants:
//!
//! - At most one login is under way.
//! - A login that succeeded serves everyone who waited for it; so does one that was refused for the password.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tonic::metadata::AsciiMetadataValue;

use crate::settings::{Settings, User};
use crate::{Error, Result};

/// What a request shows of its client.
#[derive(Clone)]
pub(crate) struct Shown {
    /// The number of logins before.
    generation: u64,
    /// Nothing, where the client has no user, or the server has none.
    pub(crate) token: Option<AsciiMetadataValue>,
}

/// Tokens are secret.
impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shown")
            .field("generation", &self.generation)
            .field("has_token", &self.token.is_some())
            .finish()
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Login {
    /// With what a client without a user shows, which never changes.
    user: Result<User, Shown>,
    state: Mutex<State>,
    /// Held by the login that is under way.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` before the first login.
    shown: Option<Shown>,
    /// How many logins have ended.
    ended: u64,
    /// The error of the last one, if it was refused for good.
    refused: Option<Error>,
}

/// The right to log in, or what another request found out meanwhile.
pub(crate) enum Turn<'a> {
    /// Somebody has logged in.
    Done(Shown),
    /// Log in, then [end](LoginTurn::end) it.
    Mine(LoginTurn<'a>),
}

/// The login that is under way. Dropping it without an end lets the next one in.
pub(crate) struct LoginTurn<'a> {
    login: &'a Login,
    pub(crate) user: &'a User,
    _turn: tokio::sync::MutexGuard<'a, ()>,
}

/// A token as metadata.
pub(crate) fn as_metadata(token: &str) -> Option<AsciiMetadataValue> {
    token.parse().ok()
}

impl Login {
    pub(crate) fn new(settings: &Settings) -> Result<Login> {
        let user = match (&settings.user, &settings.token) {
            (Some(user), _) if user.name.is_empty() => {
                return Err(Error::InvalidArgument {
                    message: "the name of the user is empty: give one".to_owned(),
                });
            }
            (Some(user), _) => Ok(user.clone()),
            (None, token) => {
                let token = token.as_ref().map(|token| {
                    as_metadata(&token.0).ok_or_else(|| Error::InvalidArgument {
                        message: "the token has characters that cannot be sent".to_owned(),
                    })
                });
                let token = token.transpose()?;
                Err(Shown {
                    generation: 0,
                    token,
                })
            }
        };
        Ok(Login {
            user,
            state: Mutex::default(),
            turn: tokio::sync::Mutex::new(()),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What requests show now; `None` before the first login.
    pub(crate) fn shown(&self) -> Option<Shown> {
        match &self.user {
            Ok(_) => self.state().shown.clone(),
            Err(shown) => Some(shown.clone()),
        }
    }

    /// Whether a login may help after this error.
    pub(crate) fn may_help(&self, error: &Error) -> bool {
        self.user.is_ok() && matches!(error, Error::InvalidToken | Error::UserRequired)
    }

    /// Waits for the turn to log in. `refused` is what was shown when a server refused it; `None` at the first request.
    pub(crate) async fn turn(&self, refused: Option<&Shown>) -> Result<Turn<'_>> {
        let Ok(user) = &self.user else {
            return Err(Error::InvalidToken);
        };
        let asked_after = self.state().ended;
        let turn = self.turn.lock().await;
        let state = self.state();
        if let Some(shown) = &state.shown
            && refused.is_none_or(|refused| refused.generation < shown.generation)
        {
            return Ok(Turn::Done(shown.clone()));
        }
        if state.ended > asked_after
            && let Some(error) = &state.refused
        {
            return Err(error.clone());
        }
        drop(state);
        Ok(Turn::Mine(LoginTurn {
            login: self,
            user,
            _turn: turn,
        }))
    }
}

impl LoginTurn<'_> {
    /// Ends the login, with its token, or without one where the server has no users.
    pub(crate) fn end(self, outcome: Result<Option<AsciiMetadataValue>>) -> Result<Shown> {
        let mut state = self.login.state();
        state.ended += 1;
        match outcome {
            Ok(token) => {
                let shown = Shown {
                    generation: state.ended,
                    token,
                };
                state.shown = Some(shown.clone());
                state.refused = None;
                Ok(shown)
            }
            Err(error) => {
                state.refused =
                    matches!(error, Error::AuthenticationFailed { .. }).then(|| error.clone());
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests;
