//! [`Credentials`]: what a client shows of itself in the metadata of a call.
//!
//! A token comes in the metadata `token`, or `authorization`, as the JSON gateway passes it on; `Bearer ` may stand before
//! it, as libraries for HTTP write it. It is looked up by its SHA-256 once for each head of a request that a connection
//! keeps; see [`crate::callers`].

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bowline_replica::{Session, TokenHash};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tonic::metadata::MetadataMap;

use crate::jwt;

/// A longer token is none of this server's.
const TOKEN_BYTES_MAX: usize = 1 << 10;

/// A token, with the session that it was found to stand for.
pub(crate) struct Token {
    pub(crate) hash: TokenHash,
    /// The session that it was found to stand for last.
    pub(crate) session: Mutex<Option<Arc<Session>>>,
    /// The token itself, if it may be a signed one.
    pub(crate) signed: Option<Box<[u8]>>,
    /// With which keys a signed token was verified last.
    pub(crate) generation: AtomicU64,
}

/// What a client shows of itself.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    pub(crate) token: Option<Arc<Token>>,
}

/// Tokens are secret.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("has_token", &self.token.is_some())
            .finish_non_exhaustive()
    }
}

/// The hash of a token.
pub(crate) fn hash_of(token: &[u8]) -> TokenHash {
    Sha256::digest(token).into()
}

impl Credentials {
    /// Those of a token, as it is shown.
    pub(crate) fn of_token(shown: &[u8]) -> Credentials {
        let token = shown.strip_prefix(b"Bearer ").unwrap_or(shown);
        let hash = match token.len() {
            // No token has this hash, as none is empty.
            len if len > TOKEN_BYTES_MAX => hash_of(b""),
            _ => hash_of(token),
        };
        let session = Mutex::new(None);
        // Those of this server's own making are in base64, without a dot.
        let is_signed = token.contains(&b'.') && token.len() <= jwt::TOKEN_BYTES_MAX;
        let token = Some(Arc::new(Token {
            hash,
            session,
            signed: is_signed.then(|| token.into()),
            generation: AtomicU64::new(0),
        }));
        Credentials { token }
    }

    /// Those in the metadata of a call.
    pub(crate) fn of(metadata: &MetadataMap) -> Credentials {
        let token = metadata
            .get("token")
            .or_else(|| metadata.get("authorization"));
        token.map_or_else(Credentials::default, |token| {
            Credentials::of_token(token.as_bytes())
        })
    }
}

/// The renewals of tokens under way.
#[derive(Debug, Default)]
pub(crate) struct Renewals(pub(crate) Mutex<HashSet<TokenHash>>);
