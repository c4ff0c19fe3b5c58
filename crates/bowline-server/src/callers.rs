//! Who makes a call: the [`Caller`] that the credentials of a client stand for.
//!
//! A token is looked up by its SHA-256 once for each head of a request that a connection keeps; after that a call costs a
//! lock that only its connection takes, two loads and a look at the clock. While authentication is not enabled, a token is
//! ignored, as in etcd.
//!
//! A member may not have applied a login yet that another member has answered. So a token is refused only after the member
//! has caught up with the cluster.
//!
//! Without a token, the certificate that the client of a connection has shown stands for a user (`--client-cert-auth`): that
//! of its common name, as in etcd, or else the first of its URIs and host names that is a user's name.
//!
//! With `--auth-token=jwt`, tokens are signed, and verified here without any state ([`crate::jwt`]). Such a token is not renewed.
//!
//! A token that is used in the second half of its time is renewed, so that a client that works is not logged out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bowline_cluster::{LocalClient, ReadLevel};
use bowline_replica::{Caller, Command, Session, TokenChange, UsersRefusal};
use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::context::{Context, stopped};
use crate::credentials::{Credentials, Token};
use crate::jwt::Jwt;
use crate::memory::current_account;
use crate::status::{Fault, status};

impl Context {
    /// Who makes a call.
    pub(crate) async fn caller(&self, credentials: &Credentials) -> Result<Caller, Status> {
        match self.known_caller(credentials) {
            Some(caller) => Ok(caller),
            None => Box::pin(self.sought_caller(credentials)).await,
        }
    }

    /// Who makes a call with this metadata.
    pub(crate) async fn caller_of(&self, metadata: &MetadataMap) -> Result<Caller, Status> {
        if !self.client.are_users_enabled() {
            return Ok(Caller::Nobody);
        }
        self.caller(&Credentials::of(metadata)).await
    }

    /// Who makes a call, if this member knows; `None` for a token that it does not know, or whose time is over.
    pub(crate) fn known_caller(&self, credentials: &Credentials) -> Option<Caller> {
        if !self.client.are_users_enabled() {
            return Some(Caller::Nobody);
        }
        let Some(token) = &credentials.token else {
            return Some(self.caller_of_certificate());
        };
        let now_ms = self.client.clock().wall_ms();
        if let Some(jwt) = &self.jwt {
            return verified(jwt, token, now_ms).map(Caller::User);
        }
        let mut kept = token.session.lock();
        if !kept
            .as_ref()
            .is_some_and(|session| session.is_valid(now_ms))
        {
            let found = self.client.session(&token.hash);
            *kept = found.filter(|session| session.is_valid(now_ms));
        }
        let session = kept.clone()?;
        drop(kept);
        self.renew_if_due(&session, now_ms);
        Some(Caller::User(session))
    }

    /// The user of the certificate that the connection's client has shown, if it has, and if certificates are asked who their
    /// users are: otherwise it opens the connection only.
    fn caller_of_certificate(&self) -> Caller {
        if !self.settings.client_cert_auth {
            return Caller::Nobody;
        }
        let account = current_account(&self.memory);
        let Some(identity) = account.identity() else {
            return Caller::Nobody;
        };
        if let Some(session) = account.certificate_session() {
            return Caller::User(session);
        }
        // An empty name is nobody's.
        let common_name = { identity.common_name.as_ref() }.filter(|name| !name.is_empty());
        let name = match common_name {
            Some(name) => Some(name),
            None => {
                let users = self.client.users();
                let mut names = identity.uris.iter().chain(&identity.dns_names);
                names.find(|name| users.user(name).is_some())
            }
        };
        name.map_or(Caller::Nobody, |name| {
            Caller::User(account.begin_certificate_session(name))
        })
    }

    /// Who makes a call, once this member has caught up.
    async fn sought_caller(&self, credentials: &Credentials) -> Result<Caller, Status> {
        // A signed token does not become valid by what other members know.
        if self.jwt.is_none() {
            let barrier = self.client.read_barrier(ReadLevel::Linearizable).await;
            barrier.map_err(status)?;
        }
        let known = self.known_caller(credentials);
        known.ok_or_else(|| Fault::from(UsersRefusal::InvalidToken).into())
    }

    /// Renews a token that is in use in the second half of its time.
    fn renew_if_due(&self, session: &Session, now_ms: u64) {
        let ttl_ms = ms(self.settings.auth_token_ttl);
        let Some(token) = session.token() else {
            return;
        };
        if session.expires_ms().saturating_sub(now_ms) >= ttl_ms / 2 {
            return;
        }
        let renewals = self.renewals.clone();
        if !renewals.0.lock().insert(*token) {
            return;
        }
        let (client, token) = (self.client.clone(), *token);
        let expires_ms = now_ms.saturating_add(ttl_ms);
        tokio::spawn(async move {
            let renewal = TokenChange::Renew { token, expires_ms };
            // A failure is made good by the next call.
            if let Err(error) = change_tokens(&client, renewal).await {
                tracing::debug!(%error, "a token was not renewed");
            }
            renewals.0.lock().remove(&token);
        });
    }

    /// Removes tokens whose time is over, on the leader, until the server stops.
    pub(crate) async fn expire_tokens(self: Arc<Context>) {
        const INTERVAL: Duration = Duration::from_secs(10);
        let mut stopping = self.stopping();
        loop {
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = stopped(&mut stopping) => return,
            }
            let before_ms = self.client.clock().wall_ms();
            if !self.leads() || !self.client.has_expired_tokens(before_ms) {
                continue;
            }
            let expiry = TokenChange::Expire { before_ms };
            if let Err(error) = change_tokens(&self.client, expiry).await {
                tracing::debug!(%error, "tokens whose time is over were not removed");
            }
        }
    }
}

/// The session of a signed token, which is verified once for each head of a request that a connection keeps, and once more
/// when the keys are others.
fn verified(jwt: &Jwt, token: &Token, now_ms: u64) -> Option<Arc<Session>> {
    // Before it is verified: with newer keys it is verified once more than needed.
    let generation = jwt.keys.generation();
    let mut kept = token.session.lock();
    if token.generation.swap(generation, Ordering::AcqRel) != generation {
        *kept = None;
    }
    if let Some(session) = &*kept {
        return session.is_valid(now_ms).then(|| session.clone());
    }
    let session = jwt.verify(token.signed.as_ref()?, now_ms)?;
    Some(kept.insert(Arc::new(session)).clone())
}

/// Changes tokens, by this member's process.
pub(crate) async fn change_tokens(
    client: &LocalClient,
    change: TokenChange,
) -> bowline_cluster::Result<()> {
    let client = client.by(&Caller::Process);
    let applied = client.execute(Command::Tokens(change)).await?;
    applied.reply.result.map(drop).map_err(Into::into)
}

/// A duration in milliseconds.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
