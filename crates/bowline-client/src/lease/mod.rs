//! Leases: keys that go when nobody keeps them alive.

mod exact;
mod keep_alive;

use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::etcdserverpb::lease_client::LeaseClient;
use bytes::Bytes;

pub use keep_alive::KeepAlive;

use crate::pool::Repeat;
use crate::reply::unsigned;
use crate::{Client, Error, Header, Result};

/// What came of granting a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrantReply {
    /// What comes with every answer.
    pub header: Header,
    /// The lease.
    pub id: i64,
    /// How long it lives; may be more than was asked for.
    pub ttl: Duration,
}

/// How long a lease has left.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimeToLive {
    /// What comes with every answer.
    pub header: Header,
    /// The lease.
    pub id: i64,
    /// What it was granted.
    pub granted: Duration,
    /// What is left of it.
    pub remaining: Duration,
    /// Its keys, if they were asked for.
    pub keys: Vec<Bytes>,
}

impl Client {
    /// Grants a lease. Times are whole seconds on the wire: `ttl` is rounded up, and a server has a
    /// least of its own. [`Client::grant_lease_ms`] has neither.
    pub async fn grant_lease(&self, ttl: Duration) -> Result<GrantReply> {
        self.grant_lease_with_id(0, ttl).await
    }

    /// Grants a lease with this id; the server chooses one for 0.
    pub async fn grant_lease_with_id(&self, id: i64, ttl: Duration) -> Result<GrantReply> {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let request = pb::LeaseGrantRequest {
            ttl: i64::try_from(seconds).unwrap_or(i64::MAX),
            id,
        };
        let (reply, metadata) =
            self.pool()
                .call(
                    Repeat::Never,
                    None,
                    request,
                    |channel, request| async move {
                        LeaseClient::new(channel).lease_grant(request).await
                    },
                )
                .await?;
        if !reply.error.is_empty() {
            return Err(Error::of_text(tonic::Code::Unknown, &reply.error));
        }
        Ok(GrantReply {
            header: Header::new(reply.header, &metadata),
            id: reply.id,
            ttl: Duration::from_secs(unsigned(reply.ttl)),
        })
    }

    /// Ends a lease and deletes its keys.
    pub async fn revoke_lease(&self, id: i64) -> Result<Header> {
        let request = pb::LeaseRevokeRequest { id };
        let (reply, metadata) =
            self.pool()
                .call(
                    Repeat::Never,
                    None,
                    request,
                    |channel, request| async move {
                        LeaseClient::new(channel).lease_revoke(request).await
                    },
                )
                .await?;
        Ok(Header::new(reply.header, &metadata))
    }

    /// Says how long a lease has left, and with `keys` which keys go with it.
    pub async fn time_to_live(&self, id: i64, keys: bool) -> Result<TimeToLive> {
        let request = pb::LeaseTimeToLiveRequest { id, keys };
        let (reply, metadata) = self
            .pool()
            .call(
                Repeat::Always,
                None,
                request,
                |channel, request| async move {
                    LeaseClient::new(channel)
                        .max_decoding_message_size(usize::MAX)
                        .lease_time_to_live(request)
                        .await
                },
            )
            .await?;
        if reply.ttl < 0 {
            return Err(Error::LeaseNotFound);
        }
        Ok(TimeToLive {
            header: Header::new(reply.header, &metadata),
            id: reply.id,
            granted: Duration::from_secs(unsigned(reply.granted_ttl)),
            remaining: Duration::from_secs(unsigned(reply.ttl)),
            keys: reply.keys,
        })
    }

    /// Lists all leases.
    pub async fn leases(&self) -> Result<Vec<i64>> {
        let request = pb::LeaseLeasesRequest {};
        let (reply, _) = self
            .pool()
            .call(
                Repeat::Always,
                None,
                request,
                |channel, request| async move {
                    LeaseClient::new(channel)
                        .max_decoding_message_size(usize::MAX)
                        .lease_leases(request)
                        .await
                },
            )
            .await?;
        Ok(reply.leases.iter().map(|lease| lease.id).collect())
    }

    /// Starts a lease's time over, once. Gives how long it has now.
    pub async fn keep_alive_once(&self, id: i64) -> Result<Duration> {
        let request = pb::LeaseKeepAliveRequest { id };
        let (mut replies, _) = self
            .pool()
            .call(
                Repeat::Always,
                None,
                request,
                |channel, request| async move {
                    let (metadata, extensions, message) = request.into_parts();
                    let stream = tokio_stream::once(message);
                    let request = tonic::Request::from_parts(metadata, extensions, stream);
                    LeaseClient::new(channel).lease_keep_alive(request).await
                },
            )
            .await?;
        let deadline = self.pool().settings().request_timeout;
        let reply = tokio::time::timeout(deadline, replies.message())
            .await
            .map_err(|_| Error::TimedOut)?
            .map_err(|status| Error::from_status(&status, "the endpoint"))?;
        keep_alive::ttl_of(reply)
    }

    /// Keeps a lease alive until the handle is dropped or the lease is lost. Returns once the first
    /// renewal is confirmed. Has to be called within a Tokio runtime.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use std::time::Duration;
    ///
    /// let lease = client.grant_lease(Duration::from_secs(10)).await?;
    /// client.put("workers/7", "up").lease(lease.id).await?;
    /// let alive = client.keep_alive(lease.id).await?;
    /// tokio::select! {
    ///     error = alive.lost() => eprintln!("somebody else may have taken over: {error}"),
    ///     () = work() => {}
    /// }
    /// alive.revoke().await?;
    /// # Ok(())
    /// # }
    /// # async fn work() {}
    /// ```
    pub async fn keep_alive(&self, id: i64) -> Result<KeepAlive> {
        KeepAlive::start(self.clone(), id, false).await
    }
}
