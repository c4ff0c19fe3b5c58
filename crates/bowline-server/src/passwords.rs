//! Passwords and their hashes.
//!
//! Hashes are Argon2id with the parameters that OWASP recommends (19 MiB, two passes), in the PHC string format, so that
//! later parameters can differ. One takes some 20 ms and 19 MiB: they are computed on threads of their own, a few at once,
//! and who waits too long for a turn is refused. The log and the members see hashes alone.
//!
//! Invariant: to check a password of a user that does not exist takes as long as to check a wrong one.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use argon2::Argon2;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use bowline_cluster::blocking;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use crate::status::Fault;

/// The most hashes that are computed at once.
const AT_ONCE: usize = 2;
/// How long a login waits for its turn.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// A longer password is refused: it costs time to hash.
pub(crate) const PASSWORD_BYTES_MAX: usize = 4 << 10;
/// The random bytes of a salt.
const SALT_BYTES: usize = 16;

/// The turns of hashes.
#[derive(Debug)]
pub(crate) struct Hashing(Arc<Semaphore>);

impl Default for Hashing {
    fn default() -> Hashing {
        Hashing(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

/// Random bytes of the system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Status> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Fault::Internal(format!("the system gives no random bytes: {error}")))?;
    Ok(bytes)
}

impl Hashing {
    /// Waits for a turn.
    async fn wait(&self) -> Result<OwnedSemaphorePermit, Status> {
        match tokio::time::timeout(WAIT_MAX, self.0.clone().acquire_owned()).await {
            Ok(Ok(turn)) => Ok(turn),
            // An error is impossible: the semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(Fault::TooManyRequests.into()),
        }
    }

    /// Computes on a thread for hashes.
    async fn turn<T: Send + 'static>(
        &self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        let turn = self.wait().await?;
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
        let hash = self.turn(hash).await?;
        hash.map_err(|error| Fault::Internal(format!("a password was not hashed: {error}")).into())
    }

    /// Whether a password is that of a hash; `None` is no user's.
    pub(crate) async fn verify(
        &self,
        password: String,
        hash: Option<String>,
    ) -> Result<bool, Status> {
        self.turn(move || {
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
