//! Leases in whole seconds, by etcd's calls.

use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::etcdserverpb::lease_client::LeaseClient;

use super::reply::granted;
use super::{GrantReply, TimeToLive};
use crate::caller::{Caller, Repeat};
use crate::reply::unsigned;
use crate::{Error, Header, LeaseId, Result};

/// See [`Client::grant_lease_with_id`](crate::Client::grant_lease_with_id).
pub(crate) async fn grant(
    caller: &Caller,
    id: Option<LeaseId>,
    ttl: Duration,
) -> Result<GrantReply> {
    let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    let request = pb::LeaseGrantRequest {
        ttl: i64::try_from(seconds).unwrap_or(i64::MAX),
        id: LeaseId::number_of(id),
    };
    let (reply, metadata) = caller
        .call(
            Repeat::Never,
            None,
            request,
            |channel, request| async move { LeaseClient::new(channel).lease_grant(request).await },
        )
        .await?;
    if !reply.error.is_empty() {
        return Err(Error::of_text(tonic::Code::Unknown, &reply.error));
    }
    Ok(GrantReply {
        header: Header::new(reply.header, &metadata),
        id: granted(reply.id)?,
        ttl: Duration::from_secs(unsigned(reply.ttl)),
    })
}

/// See [`Client::revoke_lease`](crate::Client::revoke_lease).
pub(crate) async fn revoke(caller: &Caller, id: LeaseId) -> Result<Header> {
    let request = pb::LeaseRevokeRequest { id: id.get() };
    let (reply, metadata) = caller
        .call(
            Repeat::Never,
            None,
            request,
            |channel, request| async move { LeaseClient::new(channel).lease_revoke(request).await },
        )
        .await?;
    Ok(Header::new(reply.header, &metadata))
}

/// See [`Client::time_to_live`](crate::Client::time_to_live).
pub(crate) async fn time_to_live(caller: &Caller, id: LeaseId, keys: bool) -> Result<TimeToLive> {
    let request = pb::LeaseTimeToLiveRequest { id: id.get(), keys };
    let (reply, metadata) = caller
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
        id,
        granted: Duration::from_secs(unsigned(reply.granted_ttl)),
        remaining: Duration::from_secs(unsigned(reply.ttl)),
        keys: reply.keys,
    })
}

/// See [`Client::leases`](crate::Client::leases).
pub(crate) async fn list(caller: &Caller) -> Result<Vec<LeaseId>> {
    let request = pb::LeaseLeasesRequest {};
    let (reply, _) = caller
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
    let ids = reply.leases.iter().map(|lease| LeaseId::new(lease.id));
    Ok(ids.flatten().collect())
}

/// See [`Client::keep_alive_once`](crate::Client::keep_alive_once).
pub(crate) async fn keep_alive_once(caller: &Caller, id: LeaseId) -> Result<Duration> {
    let request = pb::LeaseKeepAliveRequest { id: id.get() };
    let (mut replies, _) = caller
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
    let deadline = caller.settings().request_timeout;
    let reply = tokio::time::timeout(deadline, replies.message())
        .await
        .map_err(|_| Error::TimedOut)?
        .map_err(|status| Error::from_status(&status, "the endpoint"))?;
    ttl_of(reply)
}

/// The time to live in an answer, if the lease exists.
pub(super) fn ttl_of(reply: Option<pb::LeaseKeepAliveResponse>) -> Result<Duration> {
    let reply = reply.ok_or_else(|| Error::Disconnected {
        message: "the stream ended".to_owned(),
    })?;
    match unsigned(reply.ttl) {
        0 => Err(Error::LeaseNotFound),
        seconds => Ok(Duration::from_secs(seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_live_of_zero_is_the_end_of_a_lease() {
        let of = |ttl| {
            ttl_of(Some(pb::LeaseKeepAliveResponse {
                ttl,
                ..pb::LeaseKeepAliveResponse::default()
            }))
        };
        assert!(matches!(of(0), Err(Error::LeaseNotFound)));
        assert_eq!(of(5).unwrap(), Duration::from_secs(5));
        assert!(matches!(ttl_of(None), Err(Error::Disconnected { .. })));
    }
}
