//! The client's calls for leases.

use std::sync::Arc;
use std::time::Duration;

use super::Client;
use crate::lease::{exact, seconds};
use crate::{GrantReply, Header, KeepAlive, LeaseId, Result, RevokeReply, TimeToLive};

impl Client {
    /// Grants a lease. Times are whole seconds on the wire: `ttl` is rounded up, and servers have a minimum.
    /// [`Client::grant_lease_ms`] has neither restriction.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use std::time::Duration;
    /// let lease = client.grant_lease(Duration::from_secs(10)).await?;
    /// client.put("workers/7", "up").lease(lease.id).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `LeaseTtlTooLarge`; those of [any change](crate::Error#errors-of-any-change). A lease whose grant has an
    /// unknown outcome ends by itself.
    pub async fn grant_lease(&self, ttl: Duration) -> Result<GrantReply> {
        seconds::grant(&self.caller, None, ttl).await
    }

    /// Grants a lease with this id.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use std::time::Duration;
    /// let id = bowline_client::LeaseId::new(7).expect("not 0");
    /// client.grant_lease_with_id(id, Duration::from_secs(10)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `LeaseExists`, and the errors of [`Client::grant_lease`].
    pub async fn grant_lease_with_id(&self, id: LeaseId, ttl: Duration) -> Result<GrantReply> {
        seconds::grant(&self.caller, Some(id), ttl).await
    }

    /// Ends a lease and deletes its keys.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # let id = bowline_client::LeaseId::new(7).expect("not 0");
    /// client.revoke_lease(id).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `LeaseNotFound`; those of [any change](crate::Error#errors-of-any-change).
    pub async fn revoke_lease(&self, id: LeaseId) -> Result<Header> {
        seconds::revoke(&self.caller, id).await
    }

    /// Ends a lease, and counts the keys that it deletes. etcd has no such call:
    /// [`Error::Unimplemented`](crate::Error::Unimplemented).
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # let id = bowline_client::LeaseId::new(7).expect("not 0");
    /// let deleted = client.revoke_lease_counted(id).await?.deleted;
    /// println!("{deleted} keys are gone");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unimplemented` by etcd, and the errors of [`Client::revoke_lease`].
    pub async fn revoke_lease_counted(&self, id: LeaseId) -> Result<RevokeReply> {
        exact::revoke(&self.caller, id).await
    }

    /// Reads the remaining time of a lease, and with `keys` its attached keys.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # let id = bowline_client::LeaseId::new(7).expect("not 0");
    /// let lease = client.time_to_live(id, true).await?;
    /// println!("{:?} of {:?} for {} keys", lease.remaining, lease.granted, lease.keys.len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `LeaseNotFound`; those of [any read](crate::Error#errors-of-any-read).
    pub async fn time_to_live(&self, id: LeaseId, keys: bool) -> Result<TimeToLive> {
        seconds::time_to_live(&self.caller, id, keys).await
    }

    /// Lists all leases.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// for id in client.leases().await? {
    ///     println!("{id}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [any read](crate::Error#errors-of-any-read).
    pub async fn leases(&self) -> Result<Vec<LeaseId>> {
        seconds::list(&self.caller).await
    }

    /// Renews a lease once; returns its time to live.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # let id = bowline_client::LeaseId::new(7).expect("not 0");
    /// let ttl = client.keep_alive_once(id).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `LeaseNotFound`; those of [any read](crate::Error#errors-of-any-read): a renewal may be repeated.
    pub async fn keep_alive_once(&self, id: LeaseId) -> Result<Duration> {
        seconds::keep_alive_once(&self.caller, id).await
    }

    /// Keeps a lease alive until the handle is dropped or the lease is lost. Returns once the first
    /// renewal is confirmed. Has to be called within a Tokio runtime. A lease of less than a second needs
    /// [`Client::keep_alive_ms`]: here no renewal says less than one.
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
    ///
    /// # Errors
    /// The errors of [`Client::keep_alive_once`], of the first renewal. [`KeepAlive::lost`] gives that of a
    /// later one.
    pub async fn keep_alive(&self, id: LeaseId) -> Result<KeepAlive> {
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
    ///
    /// # Errors
    /// `Unimplemented` by etcd; `LeaseTtlTooLarge`; those of [any change](crate::Error#errors-of-any-change).
    pub async fn grant_lease_ms(&self, ttl: Duration) -> Result<GrantReply> {
        exact::grant(&self.caller, None, ttl).await
    }

    /// [`Client::grant_lease_ms`] with this id.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # use std::time::Duration;
    /// let id = bowline_client::LeaseId::new(7).expect("not 0");
    /// client.grant_lease_ms_with_id(id, Duration::from_millis(1_500)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `LeaseExists`, and the errors of [`Client::grant_lease_ms`].
    pub async fn grant_lease_ms_with_id(&self, id: LeaseId, ttl: Duration) -> Result<GrantReply> {
        exact::grant(&self.caller, Some(id), ttl).await
    }

    /// Renews a lease once; returns its time to live, to the millisecond.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # let id = bowline_client::LeaseId::new(7).expect("not 0");
    /// let ttl = client.keep_alive_ms_once(id).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unimplemented` by etcd, and the errors of [`Client::keep_alive_once`].
    pub async fn keep_alive_ms_once(&self, id: LeaseId) -> Result<Duration> {
        exact::keep_alive_once(&self.caller, id).await
    }

    /// [`Client::keep_alive`] for a lease of milliseconds: it is renewed three times in its time to live, and
    /// counts as lost to the millisecond.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # let id = bowline_client::LeaseId::new(7).expect("not 0");
    /// let alive = client.keep_alive_ms(id).await?;
    /// println!("lives for {:?}", alive.remaining());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unimplemented` by etcd, and the errors of [`Client::keep_alive`].
    pub async fn keep_alive_ms(&self, id: LeaseId) -> Result<KeepAlive> {
        KeepAlive::start(Arc::clone(&self.caller), id, true).await
    }

    /// Reads the remaining time of a lease, to the millisecond, and with `keys` its attached keys.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// # let id = bowline_client::LeaseId::new(7).expect("not 0");
    /// let lease = client.time_to_live_ms(id, false).await?;
    /// println!("{} ms are left", lease.remaining.as_millis());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unimplemented` by etcd, and the errors of [`Client::time_to_live`].
    pub async fn time_to_live_ms(&self, id: LeaseId, keys: bool) -> Result<TimeToLive> {
        exact::time_to_live(&self.caller, id, keys).await
    }
}
