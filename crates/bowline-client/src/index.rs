//! Indexes of blocks: the calls of the service `bowline.v1.Indexes`.
//!
//! A creation lasts as long as the building. So no time bounds its reply, and a connection that breaks meanwhile is a
//! repetition: twice is the same as once.

use bowline_proto::v1 as pb;
use bowline_proto::v1::indexes_client::IndexesClient;
use bowline_types::{Index, Revision};
use tonic::Code;

use crate::caller::{Caller, Repeat};
use crate::v1::{senseless, typed};
use crate::{Error, Result};

/// See [`Client::create_index`](crate::Client::create_index).
pub(crate) async fn create(
    caller: &Caller,
    kind: String,
    attributes: Vec<String>,
    is_unique: bool,
) -> Result<Index> {
    let request = pb::IndexCreateRequest {
        kind,
        attributes,
        unique: is_unique,
    };
    let send = |channel, request| async move { IndexesClient::new(channel).create(request).await };
    let created = caller.call_for_long(request, send).await;
    let (reply, _) = created.map_err(refused)?;
    let index = reply.index.ok_or_else(|| senseless("it has no index"))?;
    Ok(of_wire(index))
}

/// See [`Client::indexes`](crate::Client::indexes).
pub(crate) async fn list(caller: &Caller) -> Result<Vec<Index>> {
    let request = pb::IndexListRequest {};
    let send = |channel, request| async move { IndexesClient::new(channel).list(request).await };
    let listed = caller.call(Repeat::Always, None, request, send).await;
    let (reply, _) = listed.map_err(refused)?;
    Ok(reply.indexes.into_iter().map(of_wire).collect())
}

/// See [`Client::drop_index`](crate::Client::drop_index).
pub(crate) async fn drop(caller: &Caller, kind: String, attributes: Vec<String>) -> Result<()> {
    let request = pb::IndexDropRequest { kind, attributes };
    let send = |channel, request| async move { IndexesClient::new(channel).drop(request).await };
    let dropped = caller.call(Repeat::Never, None, request, send).await;
    dropped.map(std::mem::drop).map_err(refused)
}

fn of_wire(index: pb::Index) -> Index {
    Index {
        kind: index.kind,
        attributes: index.attributes,
        is_unique: index.unique,
        ready_since: (index.ready_since != 0).then(|| Revision::new(index.ready_since)),
    }
}

/// A refusal by the state of the graph; there are as many indexes as there may be, too.
fn refused(error: Error) -> Error {
    match error {
        Error::Other {
            code: Code::ResourceExhausted,
            message,
        } => Error::Refused { message },
        other => typed(other),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use bowline_proto::v1::indexes_server::{Indexes, IndexesServer};
    use tonic::{Request, Response, Status};

    use super::*;
    use crate::Client;
    use crate::fake::serve;

    /// A server whose creations last longer than any request may, and of which the first ends with its connection.
    #[derive(Clone, Default)]
    struct Slow {
        created: Arc<AtomicUsize>,
        listed: Arc<AtomicUsize>,
    }

    const TIMEOUT: Duration = Duration::from_millis(30);

    #[tonic::async_trait]
    impl Indexes for Slow {
        async fn create(
            &self,
            request: Request<pb::IndexCreateRequest>,
        ) -> Result<Response<pb::IndexCreateReply>, Status> {
            tokio::time::sleep(4 * TIMEOUT).await;
            if self.created.fetch_add(1, Ordering::Relaxed) == 0 {
                return Err(Status::unavailable("the server goes away"));
            }
            let request = request.into_inner();
            Ok(Response::new(pb::IndexCreateReply {
                index: Some(pb::Index {
                    kind: request.kind,
                    attributes: request.attributes,
                    unique: request.unique,
                    ready_since: 7,
                }),
                ..pb::IndexCreateReply::default()
            }))
        }

        async fn list(
            &self,
            _: Request<pb::IndexListRequest>,
        ) -> Result<Response<pb::IndexListReply>, Status> {
            self.listed.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(4 * TIMEOUT).await;
            Ok(Response::new(pb::IndexListReply::default()))
        }

        async fn drop(
            &self,
            _: Request<pb::IndexDropRequest>,
        ) -> Result<Response<pb::IndexDropReply>, Status> {
            Err(Status::not_found("no index is of the kind"))
        }
    }

    /// It took longer than the timeout of requests, and its connection was lost.
    #[tokio::test]
    async fn a_creation_takes_its_time_and_is_repeated() {
        let slow = Slow::default();
        let services =
            tonic::transport::Server::builder().add_service(IndexesServer::new(slow.clone()));
        let address = serve(services).await;
        let client = Client::builder()
            .endpoints([address])
            .request_timeout(TIMEOUT)
            .connect_lazy()
            .unwrap();
        let created = client.create_unique_index("person", ["name", "age"]).await;
        let index = Index {
            kind: "person".to_owned(),
            attributes: vec!["name".to_owned(), "age".to_owned()],
            is_unique: true,
            ready_since: Some(Revision::new(7)),
        };
        assert_eq!(created.unwrap(), index);
        assert_eq!(slow.created.load(Ordering::Relaxed), 2);
        let listed = client.indexes().await;
        assert!(matches!(listed, Err(Error::TimedOut)), "{listed:?}");
        assert!(slow.listed.load(Ordering::Relaxed) > 0);
        let dropped = client.drop_index("person", ["name"]).await;
        assert!(
            matches!(dropped, Err(Error::NotFound { .. })),
            "{dropped:?}"
        );
    }
}
