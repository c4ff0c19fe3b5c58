//! The database of one member as a file.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bowline_proto::etcdserverpb::maintenance_client::MaintenanceClient;
use bowline_proto::etcdserverpb::{SnapshotRequest, SnapshotResponse};
use bytes::Bytes;
use futures_core::Stream;
use tonic::Streaming;

use crate::caller::{Caller, Repeat};
use crate::endpoints::Endpoint;
use crate::{Error, Result};

/// The database of one member as a stream of bytes. The last 32 of them are the SHA-256 of the rest.
///
/// A stream that ends too early gives an error, never a short file. It does not resume: another member,
/// or the same one later, has other bytes.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use tokio_stream::StreamExt;
///
/// let mut snapshot = client.snapshot().await?;
/// let mut file = Vec::new();
/// while let Some(part) = snapshot.next().await {
///     file.extend_from_slice(&part?);
///     println!("{:?} bytes to come", snapshot.remaining_bytes());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a stream does nothing until it is read"]
pub struct Snapshot {
    chunks: Streaming<SnapshotResponse>,
    endpoint: Arc<Endpoint>,
    /// What the server said is still to come.
    remaining: Option<u64>,
    is_done: bool,
}

/// See [`Client::snapshot`](crate::Client::snapshot).
pub(crate) async fn snapshot(caller: &Caller) -> Result<Snapshot> {
    let (_, endpoint) = caller.endpoints().current();
    let request = SnapshotRequest {};
    let (chunks, _) = caller
        .call(
            Repeat::Always,
            None,
            request,
            |channel, request| async move {
                MaintenanceClient::new(channel)
                    .max_decoding_message_size(usize::MAX)
                    .snapshot(request)
                    .await
            },
        )
        .await?;
    Ok(Snapshot {
        chunks,
        endpoint,
        remaining: None,
        is_done: false,
    })
}

impl Snapshot {
    /// How many bytes are still to come, once the first have.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// use tokio_stream::StreamExt;
    ///
    /// let mut snapshot = client.snapshot().await?;
    /// assert_eq!(snapshot.remaining_bytes(), None);
    /// if let Some(part) = snapshot.next().await {
    ///     println!("{} bytes, {:?} to come", part?.len(), snapshot.remaining_bytes());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn remaining_bytes(&self) -> Option<u64> {
        self.remaining
    }
}

impl Stream for Snapshot {
    type Item = Result<Bytes>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes>>> {
        if self.is_done {
            return Poll::Ready(None);
        }
        let next = ready!(Pin::new(&mut self.chunks).poll_next(context));
        let item = match next {
            Some(Ok(chunk)) => {
                self.remaining = Some(chunk.remaining_bytes);
                return Poll::Ready(Some(Ok(chunk.blob)));
            }
            Some(Err(status)) => Some(Err(Error::from_status(&status, self.endpoint.address()))),
            None if self.remaining == Some(0) => None,
            None => Some(Err(Error::Disconnected {
                message: "the snapshot ended before all of it had come".to_owned(),
            })),
        };
        self.is_done = true;
        Poll::Ready(item)
    }
}
