//! The results of lease calls.

use std::time::Duration;

use bytes::Bytes;

use crate::v1::senseless;
use crate::{Header, LeaseId, Result};

/// The result of a grant.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::GrantReply;
/// use std::time::Duration;
///
/// let lease: GrantReply = client.grant_lease(Duration::from_secs(10)).await?;
/// if lease.ttl > Duration::from_secs(10) {
///     println!("the server's least time to live is {:?}", lease.ttl);
/// }
/// client.put("workers/7", "up").lease(lease.id).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrantReply {
    /// The reply header.
    pub header: Header,
    /// The lease.
    pub id: LeaseId,
    /// How long it lives; may be more than was asked for.
    pub ttl: Duration,
}

/// The result of a revocation that counts.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::RevokeReply;
///
/// # let id = bowline_client::LeaseId::new(7).expect("not 0");
/// let revoked: RevokeReply = client.revoke_lease_counted(id).await?;
/// println!("{} keys at revision {}", revoked.deleted, revoked.header.revision);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RevokeReply {
    /// The reply header.
    pub header: Header,
    /// How many keys it deleted.
    pub deleted: u64,
}

/// How long a lease has left.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::TimeToLive;
///
/// for id in client.leases().await? {
///     let lease: TimeToLive = client.time_to_live(id, true).await?;
///     println!("{} {:?} of {:?}: {:?}", lease.id, lease.remaining, lease.granted, lease.keys);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimeToLive {
    /// The reply header.
    pub header: Header,
    /// The lease.
    pub id: LeaseId,
    /// What it was granted.
    pub granted: Duration,
    /// What is left of it.
    pub remaining: Duration,
    /// Its keys, if they were asked for.
    pub keys: Vec<Bytes>,
}

/// The lease of a granted id. The lease exists, so a reply without an id leaves the outcome unknown.
pub(super) fn granted(id: i64) -> Result<LeaseId> {
    LeaseId::new(id).ok_or_else(|| senseless("it grants a lease without an id").of_change())
}
