//! The client's calls for the quotas of prefixes.

use bytes::Bytes;

use super::Client;
use crate::{Quota, QuotaLimits, Result, quota};

impl Client {
    /// Sets or replaces the quota of a prefix: what the keys that begin with it may take. A write that would take more is
    /// refused with [`Error::QuotaExceeded`](crate::Error::QuotaExceeded). Keys that are there count; a prefix that is
    /// over its quota may shrink, and not grow.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use bowline_client::QuotaLimits;
    ///
    /// let limits = QuotaLimits { keys: Some(10_000), bytes: Some(64 << 20) };
    /// client.set_quota("tenants/blue/", limits).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Other` with the text of the server, for a prefix of more than 1024 bytes, limits that are none, more than 1000
    /// quotas, and a cluster with a member of an earlier version; those of [any
    /// change](crate::Error#errors-of-any-change).
    pub async fn set_quota(&self, prefix: impl Into<Bytes>, limits: QuotaLimits) -> Result<()> {
        quota::set(&self.caller, prefix.into(), limits).await
    }

    /// Lists the quotas with what their keys take, in the order of the prefixes.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// for quota in client.quotas().await? {
    ///     println!("{:?}: {} of {:?} keys", quota.prefix, quota.used.keys, quota.limits.keys);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [any read](crate::Error#errors-of-any-read).
    pub async fn quotas(&self) -> Result<Vec<Quota>> {
        quota::list(&self.caller).await
    }

    /// Removes the quota of a prefix. Its keys stay.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// client.remove_quota("tenants/blue/").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Other` with the code `NotFound` if there is none; those of [any change](crate::Error#errors-of-any-change).
    pub async fn remove_quota(&self, prefix: impl Into<Bytes>) -> Result<()> {
        quota::remove(&self.caller, prefix.into()).await
    }
}
