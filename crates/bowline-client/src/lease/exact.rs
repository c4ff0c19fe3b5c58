//! Leases in milliseconds, as servers of Bowline have them. They are the same leases: what is granted here can be
//! kept alive, asked for and revoked by etcd's calls, in whole seconds.

use std::time::Duration;

use bowline_proto::v1 as pb;
use bowline_proto::v1::lease_client::LeaseClient;

use super::calls::{GrantReply, TimeToLive};
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::v1::header;

/// Rounded up: a lease may live longer than asked, never shorter.
fn ms(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

pub(crate) async fn grant_lease_ms(caller: &Caller, ttl: Duration) -> Result<GrantReply> {
    grant_lease_ms_with_id(caller, 0, ttl).await
}

pub(crate) async fn grant_lease_ms_with_id(
    caller: &Caller,
    id: i64,
    ttl: Duration,
) -> Result<GrantReply> {
    let request = pb::LeaseGrantRequest {
        ttl_ms: ms(ttl),
        id,
    };
    let send = |channel, request| async move { LeaseClient::new(channel).grant(request).await };
    let (reply, _) = caller
        .write(request, send)
        .await
        .map_err(crate::v1::typed)?;
    let (header, _) = header(reply.header).map_err(Error::of_change)?;
    Ok(GrantReply {
        header,
        id: reply.id,
        ttl: Duration::from_millis(reply.ttl_ms),
    })
}

pub(crate) async fn keep_alive_ms_once(caller: &Caller, id: i64) -> Result<Duration> {
    let request = pb::LeaseKeepAliveRequest { id };
    let send =
        |channel, request| async move { LeaseClient::new(channel).keep_alive(request).await };
    let (reply, _) = caller.read(request, send).await?;
    Ok(Duration::from_millis(reply.ttl_ms))
}

pub(crate) async fn time_to_live_ms(caller: &Caller, id: i64, keys: bool) -> Result<TimeToLive> {
    let request = pb::LeaseTimeToLiveRequest { id, keys };
    let send = |channel, request| async move {
        LeaseClient::new(channel)
            .max_decoding_message_size(usize::MAX)
            .time_to_live(request)
            .await
    };
    let (reply, _) = caller.read(request, send).await?;
    let (header, _) = header(reply.header)?;
    Ok(TimeToLive {
        header,
        id: reply.id,
        granted: Duration::from_millis(reply.granted_ttl_ms),
        remaining: Duration::from_millis(reply.remaining_ms),
        keys: reply.keys,
    })
}
