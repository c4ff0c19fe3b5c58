//! Leases in milliseconds, as servers of Bowline have them. They are the same leases: what is granted here can be
//! kept alive, asked for and revoked by etcd's calls, in whole seconds.

use std::time::Duration;

use bowline_proto::v1 as pb;
use bowline_proto::v1::lease_client::LeaseClient;

use super::{GrantReply, KeepAlive, TimeToLive};
use crate::pool::Repeat;
use crate::v1::header;
use crate::{Client, Error, Result};

/// Rounded up: a lease may live longer than asked, never shorter.
fn ms(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl Client {
    /// Grants a lease of so many milliseconds, rounded up: at least one. etcd has no such call:
    /// [`Error::Unimplemented`].
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
        let request = pb::LeaseGrantRequest {
            ttl_ms: ms(ttl),
            id,
        };
        let send = |channel, request| async move { LeaseClient::new(channel).grant(request).await };
        let (reply, _) = self
            .pool()
            .call(Repeat::Never, None, request, send)
            .await
            .map_err(crate::v1::typed)?;
        let (header, _) = header(reply.header).map_err(Error::of_change)?;
        Ok(GrantReply {
            header,
            id: reply.id,
            ttl: Duration::from_millis(reply.ttl_ms),
        })
    }

    /// Starts a lease's time over, once. Gives how long it has now, to the millisecond.
    pub async fn keep_alive_ms_once(&self, id: i64) -> Result<Duration> {
        let request = pb::LeaseKeepAliveRequest { id };
        let send =
            |channel, request| async move { LeaseClient::new(channel).keep_alive(request).await };
        let (reply, _) = self
            .pool()
            .call(Repeat::Always, None, request, send)
            .await?;
        Ok(Duration::from_millis(reply.ttl_ms))
    }

    /// [`Client::keep_alive`] for a lease of milliseconds: it is renewed three times in its time to live, and
    /// counts as lost to the millisecond.
    pub async fn keep_alive_ms(&self, id: i64) -> Result<KeepAlive> {
        KeepAlive::start(self.clone(), id, true).await
    }

    /// Says how long a lease has left, to the millisecond, and with `keys` which keys go with it.
    pub async fn time_to_live_ms(&self, id: i64, keys: bool) -> Result<TimeToLive> {
        let request = pb::LeaseTimeToLiveRequest { id, keys };
        let send = |channel, request| async move {
            LeaseClient::new(channel)
                .max_decoding_message_size(usize::MAX)
                .time_to_live(request)
                .await
        };
        let (reply, _) = self
            .pool()
            .call(Repeat::Always, None, request, send)
            .await?;
        let (header, _) = header(reply.header)?;
        Ok(TimeToLive {
            header,
            id: reply.id,
            granted: Duration::from_millis(reply.granted_ttl_ms),
            remaining: Duration::from_millis(reply.remaining_ms),
            keys: reply.keys,
        })
    }
}
