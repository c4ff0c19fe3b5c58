//! Leases with times in milliseconds, by the calls of `bowline.v1`.
//!
//! They are the same leases as etcd's: a lease that was granted here can be kept alive, read and revoked by
//! etcd's calls, in whole seconds.

use std::time::Duration;

use bowline_proto::v1 as pb;
use bowline_proto::v1::lease_client::LeaseClient;

use super::reply::granted;
use super::{GrantReply, RevokeReply, TimeToLive};
use crate::caller::{Caller, Repeat};
use crate::v1::{header, typed};
use crate::{Error, LeaseId, Result};

/// Rounded up: a lease may live longer than asked, never shorter.
fn ms(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// See [`Client::grant_lease_ms_with_id`](crate::Client::grant_lease_ms_with_id).
pub(crate) async fn grant(
    caller: &Caller,
    id: Option<LeaseId>,
    ttl: Duration,
) -> Result<GrantReply> {
    let request = pb::LeaseGrantRequest {
        ttl_ms: ms(ttl),
        id: LeaseId::number_of(id),
    };
    let send = |channel, request| async move { LeaseClient::new(channel).grant(request).await };
    let (reply, _) = caller
        .call(Repeat::Never, None, request, send)
        .await
        .map_err(typed)?;
    let (header, _) = header(reply.header).map_err(Error::of_change)?;
    Ok(GrantReply {
        header,
        id: granted(reply.id)?,
        ttl: Duration::from_millis(reply.ttl_ms),
    })
}

/// See [`Client::revoke_lease_counted`](crate::Client::revoke_lease_counted).
pub(crate) async fn revoke(caller: &Caller, id: LeaseId) -> Result<RevokeReply> {
    let request = pb::LeaseRevokeRequest { id: id.get() };
    let send = |channel, request| async move { LeaseClient::new(channel).revoke(request).await };
    let (reply, _) = caller
        .call(Repeat::Never, None, request, send)
        .await
        .map_err(typed)?;
    let (header, _) = header(reply.header).map_err(Error::of_change)?;
    Ok(RevokeReply {
        header,
        deleted: reply.deleted,
    })
}

/// See [`Client::keep_alive_ms_once`](crate::Client::keep_alive_ms_once).
pub(crate) async fn keep_alive_once(caller: &Caller, id: LeaseId) -> Result<Duration> {
    let request = pb::LeaseKeepAliveRequest { id: id.get() };
    let send =
        |channel, request| async move { LeaseClient::new(channel).keep_alive(request).await };
    let (reply, _) = caller.call(Repeat::Always, None, request, send).await?;
    Ok(Duration::from_millis(reply.ttl_ms))
}

/// See [`Client::time_to_live_ms`](crate::Client::time_to_live_ms).
pub(crate) async fn time_to_live(caller: &Caller, id: LeaseId, keys: bool) -> Result<TimeToLive> {
    let request = pb::LeaseTimeToLiveRequest { id: id.get(), keys };
    let send = |channel, request| async move {
        LeaseClient::new(channel)
            .max_decoding_message_size(usize::MAX)
            .time_to_live(request)
            .await
    };
    let (reply, _) = caller.call(Repeat::Always, None, request, send).await?;
    let (header, _) = header(reply.header)?;
    Ok(TimeToLive {
        header,
        id,
        granted: Duration::from_millis(reply.granted_ttl_ms),
        remaining: Duration::from_millis(reply.remaining_ms),
        keys: reply.keys,
    })
}
