//! Passwords: their hashes, and logins.
//!
//! Hashes are Argon2id with the parameters that OWASP recommends (19 MiB, two passes), in the PHC string format, so that
//! later parameters can differ. One takes some 20 ms and 19 MiB: they are computed on threads of their own, a few at once,
//! and who waits too long for a turn is refused. The log and the members see hashes alone.
//!
//! Invariants:
//!
//! - A login of a user that does not exist takes as long as one with a wrong password.
//! - A token is given only for the password that the user has when the login is applied.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use argon2::Argon2;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_cluster::{Error, ReadLevel, blocking};
use bowline_replica::{Refusal, TokenChange, UsersRefusal};
use tokio::sync::Semaphore;
use tonic::Status;

use crate::context::Context;
use crate::credentials::{change_tokens, hash_of, ms};
use crate::service::turn_within;
use crate::status::{Fault, status};

/// The most hashes that are computed at once.
const AT_ONCE: usize = 2;
/// How long a login waits for its turn.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// A longer password is refused: it costs time to hash.
const PASSWORD_BYTES_MAX: usize = 4 << 10;
/// The random bytes of a token, and of a salt.
const TOKEN_BYTES: usize = 32;
const SALT_BYTES: usize = 16;

/// The turns of hashes.
#[derive(Debug)]
pub(crate) struct Hashing(Arc<Semaphore>);

impl Default for Hashing {
    fn default() -> Hashing {
        Hashing(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

fn random<const N: usize>() -> Result<[u8; N], Status> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Fault::Internal(format!("the system gives no random bytes: {error}")))?;
    Ok(bytes)
}

impl Context {
    /// Computes on a thread for hashes.
    async fn hash<T: Send + 'static>(
        &self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        let turn = turn_within(&self.hashing.0, WAIT_MAX).await?;
        let hashed = blocking::spawn(move || {
            let _turn = turn;
            compute()
        })
        .await;
        hashed.map_err(|error| Fault::Internal(error.to_string()).into())
    }

    /// The hash of a new password.
    pub(crate) async fn hash_password(&self, password: String) -> Result<String, Status> {
        if password.len() > PASSWORD_BYTES_MAX {
            return Err(
                Fault::Invalid("the password is longer than 4 KiB: choose a shorter one").into(),
            );
        }
        let salt = random::<SALT_BYTES>()?;
        let salt = SaltString::encode_b64(&salt)
            .map_err(|error| Fault::Internal(format!("a salt was not encoded: {error}")))?;
        let hash = move || {
            let hash = Argon2::default().hash_password(password.as_bytes(), &salt);
            hash.map(|hash| hash.to_string())
        };
        let hash = self.hash(hash).await?;
        hash.map_err(|error| Fault::Internal(format!("a password was not hashed: {error}")).into())
    }

    /// Whether a password is that of a hash; `None` is no user's.
    async fn verify(&self, password: String, hash: Option<String>) -> Result<bool, Status> {
        self.hash(move || {
            let is_known = hash.is_some();
            let hash = hash.unwrap_or_else(|| nobodys_hash().to_owned());
            let Ok(hash) = PasswordHash::new(&hash) else {
                return false;
            };
            let verified = Argon2::default().verify_password(password.as_bytes(), &hash);
            verified.is_ok() && is_known
        })
        .await
    }

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
            if !self.verify(password.clone(), hash).await? {
                return Err(Fault::AuthenticationFailed.into());
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

/// A hash that no password is checked against in earnest.
fn nobodys_hash() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| {
        let salt = SaltString::encode_b64(&[0; SALT_BYTES]);
        let hash = salt.and_then(|salt| {
            let hash = Argon2::default().hash_password(b"", &salt);
            hash.map(|hash| hash.to_string())
        });
        hash.unwrap_or_default()
    })
}
