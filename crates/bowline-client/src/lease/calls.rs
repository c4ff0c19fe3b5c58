//! The calls of etcd for leases. Times are whole seconds on the wire.

use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::etcdserverpb::LeaseKeepAliveResponse;
use bowline_proto::etcdserverpb::lease_client::LeaseClient;
use bytes::Bytes;

use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::types::{Header, unsigned};

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

pub(crate) async fn grant_lease(caller: &Caller, ttl: Duration) -> Result<GrantReply> {
    grant_lease_with_id(caller, 0, ttl).await
}

pub(crate) async fn grant_lease_with_id(
    caller: &Caller,
    id: i64,
    ttl: Duration,
) -> Result<GrantReply> {
    let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    let request = pb::LeaseGrantRequest {
        ttl: i64::try_from(seconds).unwrap_or(i64::MAX),
        id,
    };
    let (reply, metadata) = caller
        .write(request, |channel, request| async move {
            LeaseClient::new(channel).lease_grant(request).await
        })
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

pub(crate) async fn revoke_lease(caller: &Caller, id: i64) -> Result<Header> {
    let request = pb::LeaseRevokeRequest { id };
    let (reply, metadata) = caller
        .write(request, |channel, request| async move {
            LeaseClient::new(channel).lease_revoke(request).await
        })
        .await?;
    Ok(Header::new(reply.header, &metadata))
}

pub(crate) async fn time_to_live(caller: &Caller, id: i64, keys: bool) -> Result<TimeToLive> {
    let request = pb::LeaseTimeToLiveRequest { id, keys };
    let (reply, metadata) = caller
        .read(request, |channel, request| async move {
            LeaseClient::new(channel)
                .max_decoding_message_size(usize::MAX)
                .lease_time_to_live(request)
                .await
        })
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

pub(crate) async fn leases(caller: &Caller) -> Result<Vec<i64>> {
    let request = pb::LeaseLeasesRequest {};
    let (reply, _) = caller
        .read(request, |channel, request| async move {
            LeaseClient::new(channel)
                .max_decoding_message_size(usize::MAX)
                .lease_leases(request)
                .await
        })
        .await?;
    Ok(reply.leases.iter().map(|lease| lease.id).collect())
}

pub(crate) async fn keep_alive_once(caller: &Caller, id: i64) -> Result<Duration> {
    let request = pb::LeaseKeepAliveRequest { id };
    let (mut replies, _) = caller
        .read(request, |channel, request| async move {
            let (metadata, extensions, message) = request.into_parts();
            let stream = tokio_stream::once(message);
            let request = tonic::Request::from_parts(metadata, extensions, stream);
            LeaseClient::new(channel).lease_keep_alive(request).await
        })
        .await?;
    let deadline = caller.settings().request_timeout;
    let reply = tokio::time::timeout(deadline, replies.message())
        .await
        .map_err(|_| Error::TimedOut)?
        .map_err(|status| Error::from_status(&status, "the endpoint"))?;
    ttl_of(reply)
}

/// The time to live in an answer, if the lease exists.
pub(super) fn ttl_of(reply: Option<LeaseKeepAliveResponse>) -> Result<Duration> {
    let reply = reply.ok_or_else(|| Error::Disconnected {
        message: "the stream ended".to_owned(),
    })?;
    match unsigned(reply.ttl) {
        0 => Err(Error::LeaseNotFound),
        seconds => Ok(Duration::from_secs(seconds)),
    }
}
