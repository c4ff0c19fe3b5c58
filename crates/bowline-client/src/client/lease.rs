//! The client's calls for leases.

use std::sync::Arc;
use std::time::Duration;

use super::Client;
use crate::lease::{exact, seconds};
use crate::{GrantReply, Header, KeepAlive, Result, TimeToLive};

impl Client {
    /// Grants a lease. Times are whole seconds on the wire: `ttl` is rounded up, and servers have a minimum.
    /// [`Client::grant_lease_ms`] has neither restriction.
    pub async fn grant_lease(&self, ttl: Duration) -> Result<GrantReply> {
        self.grant_lease_with_id(0, ttl).await
    }

    /// Grants a lease with this id; the server chooses one for 0.
    pub async fn grant_lease_with_id(&self, id: i64, ttl: Duration) -> Result<GrantReply> {
        seconds::grant(&self.caller, id, ttl).await
    }

    /// Ends a lease and deletes its keys.
    pub async fn revoke_lease(&self, id: i64) -> Result<Header> {
        seconds::revoke(&self.caller, id).await
    }

    /// Reads the remaining time of a lease, and with `keys` its attached keys.
    pub async fn time_to_live(&self, id: i64, keys: bool) -> Result<TimeToLive> {
        seconds::time_to_live(&self.caller, id, keys).await
    }

    /// Lists all leases.
    pub async fn leases(&self) -> Result<Vec<i64>> {
        seconds::list(&self.caller).await
    }

    /// Renews a lease once; returns its time to live.
    pub async fn keep_alive_once(&self, id: i64) -> Result<Duration> {
        seconds::keep_alive_once(&self.caller, id).await
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
        KeepAlive::start(Arc::clone(&self.caller), id, false).await
    }

    /// Grants a lease of so many milliseconds, rounded up: at least one. etcd has no such call:
    /// [`Error::Unimplemented`](crate::Error::Unimplemented).
    ///
    /// A lease of less than a few round trips ends before it can be kept alive, and one that ends is noticed
    /// within some 100 ms.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use std::time::Duration;
    ///
    /// let lease = client.grant_lease_ms(Duration::from_millis(500)).await?;
    /// client.put("workers/7", "up").lease(lease.id).await?;
    /// let alive = client.keep_alive_ms(lease.id).await?;
    /// assert_eq!(alive.ttl(), Duration::from_millis(500));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn grant_lease_ms(&self, ttl: Duration) -> Result<GrantReply> {
        self.grant_lease_ms_with_id(0, ttl).await
    }

    /// [`Client::grant_lease_ms`] with this id; the server chooses one for 0.
    pub async fn grant_lease_ms_with_id(&self, id: i64, ttl: Duration) -> Result<GrantReply> {
        exact::grant(&self.caller, id, ttl).await
    }

    /// Renews a lease once; returns its time to live, to the millisecond.
    pub async fn keep_alive_ms_once(&self, id: i64) -> Result<Duration> {
        exact::keep_alive_once(&self.caller, id).await
    }

    /// [`Client::keep_alive`] for a lease of milliseconds: it is renewed three times in its time to live, and
    /// counts as lost to the millisecond.
    pub async fn keep_alive_ms(&self, id: i64) -> Result<KeepAlive> {
        KeepAlive::start(Arc::clone(&self.caller), id, true).await
    }

    /// Reads the remaining time of a lease, to the millisecond, and with `keys` its attached keys.
    pub async fn time_to_live_ms(&self, id: i64, keys: bool) -> Result<TimeToLive> {
        exact::time_to_live(&self.caller, id, keys).await
    }
}
