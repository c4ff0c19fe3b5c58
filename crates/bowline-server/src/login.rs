//! Logins.
//!
//! Invariant: a token is given only for the password that the user has when the login is applied. A signed token is given
//! without a command; it names the auth revision at which the password was right, and is refused after a later change of it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_cluster::{Error, ReadLevel};
use bowline_replica::{Refusal, TokenChange, UsersRefusal};
use tonic::Status;

use crate::callers::{change_tokens, ms};
use crate::context::Context;
use crate::credentials::hash_of;
use crate::passwords::{PASSWORD_BYTES_MAX, random};
use crate::status::{Fault, status};

/// The random bytes of a token.
const TOKEN_BYTES: usize = 32;

impl Context {
    /// Logs a user in; returns its token.
    pub(crate) async fn log_in(&self, name: String, password: String) -> Result<String, Status> {
        /// So often a change of the user comes between the check and the login before it is refused.
        const ATTEMPTS_MAX: usize = 3;
        if password.len() > PASSWORD_BYTES_MAX {
            return Err(Fault::AuthenticationFailed.into());
        }
        for _ in 0..ATTEMPTS_MAX {
            let barrier = self.client.read_barrier(ReadLevel::Linearizable).await;
            barrier.map_err(status)?;
            let users = self.client.users();
            if !users.is_enabled() {
                return Err(Fault::AuthNotEnabled.into());
            }
            let user = users.user(&name);
            if user.is_some_and(|user| user.password.is_none()) {
                return Err(Fault::NoPasswordUser.into());
            }
            let hash = user.and_then(|user| user.password.clone());
            let hash = hash.filter(|hash| !hash.is_empty());
            if !self.hashing.verify(password.clone(), hash).await? {
                return Err(Fault::AuthenticationFailed.into());
            }
            if let Some(jwt) = &self.jwt {
                let now_ms = self.client.clock().wall_ms();
                let token = jwt.sign(&name, users.revision(), now_ms);
                return token.ok_or_else(|| Fault::VerifyOnly.into());
            }
            let token = URL_SAFE_NO_PAD.encode(random::<TOKEN_BYTES>()?);
            let now_ms = self.client.clock().wall_ms();
            let login = TokenChange::Login {
                user: name.clone(),
                token: hash_of(token.as_bytes()),
                checked_at: users.revision(),
                expires_ms: now_ms.saturating_add(ms(self.settings.auth_token_ttl)),
            };
            match change_tokens(&self.client, login).await {
                Ok(()) => return Ok(token),
                // It has another password now, or is gone.
                Err(Error::Refused(Refusal::Users(UsersRefusal::InvalidToken))) => {}
                Err(error) => return Err(status(error)),
            }
        }
        Err(Fault::AuthenticationFailed.into())
    }
}
