//! Leases in whole seconds, by etcd's calls.

use std::time::Duration;

use bowline_proto::etcdserverpb as pb;
use bowline_proto::etcdserverpb::lease_client::LeaseClient;
use tonic::{Request, Response};

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
    let send = |channel, request: Request<pb::LeaseKeepAliveRequest>| async move {
        let (metadata, extensions, message) = request.into_parts();
        let stream = tokio_stream::once(message);
        let request = Request::from_parts(metadata, extensions, stream);
        let replies = LeaseClient::new(channel).lease_keep_alive(request).await?;
        // The headers say nothing: a server sends them before it looks at the lease. Its verdict is the
        // first message or the status, and the retry rule and the deadline have to cover that.
        let (metadata, mut replies, extensions) = replies.into_parts();
        let reply = replies.message().await?;
        Ok(Response::from_parts(metadata, reply, extensions))
    };
    let (reply, _) = caller.call(Repeat::Always, None, request, send).await?;
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
    use bowline_proto::etcdserverpb::lease_server::{Lease, LeaseServer};
    use tokio_stream::{Stream, StreamExt};
    use tonic::transport::Server;
    use tonic::{Status, Streaming};

    use super::*;
    use crate::Client;

    /// A server that opens every stream of renewals at once, and then does this.
    #[derive(Clone, Copy)]
    enum Fake {
        /// It has no leader.
        Refuses,
        /// It says nothing.
        IsSilent,
        /// The lease has so many seconds.
        Renews(i64),
    }

    type Answer<T> = std::result::Result<Response<T>, Status>;
    type Replies =
        dyn Stream<Item = std::result::Result<pb::LeaseKeepAliveResponse, Status>> + Send;

    #[tonic::async_trait]
    impl Lease for Fake {
        type LeaseKeepAliveStream = std::pin::Pin<Box<Replies>>;

        async fn lease_keep_alive(
            &self,
            _: Request<Streaming<pb::LeaseKeepAliveRequest>>,
        ) -> Answer<Self::LeaseKeepAliveStream> {
            Ok(Response::new(match *self {
                Fake::Refuses => {
                    let status = Status::unavailable("etcdserver: no leader");
                    Box::pin(tokio_stream::once(Err(status)))
                }
                Fake::IsSilent => Box::pin(tokio_stream::pending()),
                Fake::Renews(ttl) => {
                    let reply = pb::LeaseKeepAliveResponse {
                        ttl,
                        ..pb::LeaseKeepAliveResponse::default()
                    };
                    Box::pin(tokio_stream::once(Ok(reply)).chain(tokio_stream::pending()))
                }
            }))
        }

        async fn lease_grant(
            &self,
            _: Request<pb::LeaseGrantRequest>,
        ) -> Answer<pb::LeaseGrantResponse> {
            Err(Status::unimplemented("only renewals"))
        }

        async fn lease_revoke(
            &self,
            _: Request<pb::LeaseRevokeRequest>,
        ) -> Answer<pb::LeaseRevokeResponse> {
            Err(Status::unimplemented("only renewals"))
        }

        async fn lease_time_to_live(
            &self,
            _: Request<pb::LeaseTimeToLiveRequest>,
        ) -> Answer<pb::LeaseTimeToLiveResponse> {
            Err(Status::unimplemented("only renewals"))
        }

        async fn lease_leases(
            &self,
            _: Request<pb::LeaseLeasesRequest>,
        ) -> Answer<pb::LeaseLeasesResponse> {
            Err(Status::unimplemented("only renewals"))
        }
    }

    /// A client of these servers, that begins with the first.
    async fn client_of(servers: [Fake; 2], request_timeout: Duration) -> Client {
        let mut endpoints = Vec::new();
        for server in servers {
            let services = Server::builder().add_service(LeaseServer::new(server));
            endpoints.push(crate::fake::serve(services).await);
        }
        Client::builder()
            .endpoints(endpoints)
            .request_timeout(request_timeout)
            .connect_lazy()
            .unwrap()
    }

    /// The headers of a stream counted as the answer: the refusal that came after them went to the caller,
    /// and no other endpoint was asked, so a lease could end while a member was there that would renew it.
    #[tokio::test]
    async fn a_renewal_that_is_refused_after_the_headers_goes_to_the_next_endpoint() {
        let servers = [Fake::Refuses, Fake::Renews(5)];
        let client = client_of(servers, Duration::from_secs(10)).await;
        let renewed = client.keep_alive_once(LeaseId::new(1).unwrap()).await;
        assert!(
            matches!(renewed, Ok(ttl) if ttl == Duration::from_secs(5)),
            "{renewed:?}"
        );
    }

    /// An endpoint that sent the headers and then nothing was kept, so that every renewal timed out.
    #[tokio::test]
    async fn an_endpoint_that_is_silent_after_the_headers_is_left() {
        let servers = [Fake::IsSilent, Fake::Renews(5)];
        let client = client_of(servers, Duration::from_secs(2)).await;
        let id = LeaseId::new(1).unwrap();
        let renewed = client.keep_alive_once(id).await;
        assert!(matches!(renewed, Err(Error::TimedOut)), "{renewed:?}");
        let renewed = client.keep_alive_once(id).await;
        assert!(
            matches!(renewed, Ok(ttl) if ttl == Duration::from_secs(5)),
            "{renewed:?}"
        );
    }

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
