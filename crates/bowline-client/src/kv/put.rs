//! Writes of one key.

use std::future::IntoFuture;
use std::sync::Arc;

use bowline_proto::etcdserverpb::kv_client::KvClient;
use bowline_proto::etcdserverpb::{PutRequest, PutResponse};
use bytes::Bytes;
use tonic::metadata::MetadataMap;

use crate::caller::{Caller, Repeat};
use crate::{BoxFuture, Entry, Header, LeaseId, Result};

/// A write of one key. [`Client::put`](crate::Client::put) gives one; `await` sends it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// // Moves a key to a lease, and tells what it replaced.
/// let lease = client.grant_lease(std::time::Duration::from_secs(10)).await?;
/// let put = client.put("workers/7", "busy").lease(lease.id).previous().await?;
/// println!("revision {}, before: {:?}", put.header.revision, put.previous);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct Put {
    caller: Arc<Caller>,
    request: PutRequest,
}

impl Put {
    pub(crate) fn new(caller: Arc<Caller>, key: Bytes, value: Bytes) -> Put {
        let request = PutRequest {
            key,
            value,
            ..PutRequest::default()
        };
        Put { caller, request }
    }

    /// Attaches the key to a lease.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let lease = client.grant_lease(std::time::Duration::from_secs(10)).await?;
    /// client.put("workers/7", "up").lease(lease.id).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lease(mut self, lease: LeaseId) -> Put {
        self.request.lease = lease.get();
        self
    }

    /// Requests the previous entry.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let put = client.put("greeting", "hello").previous().await?;
    /// println!("{:?}", put.previous);
    /// # Ok(())
    /// # }
    /// ```
    pub fn previous(mut self) -> Put {
        self.request.prev_kv = true;
        self
    }

    /// Keeps the value that is there, such as to change only the lease. The value given must be empty.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// // Moves the key to another lease.
    /// let lease = client.grant_lease(std::time::Duration::from_secs(10)).await?;
    /// client.put("workers/7", "").ignore_value().lease(lease.id).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn ignore_value(mut self) -> Put {
        self.request.ignore_value = true;
        self
    }

    /// Keeps the lease that is there.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// client.put("workers/7", "busy").ignore_lease().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn ignore_lease(mut self) -> Put {
        self.request.ignore_lease = true;
        self
    }

    async fn send(self) -> Result<PutReply> {
        let caller = &*self.caller;
        let send = |channel, request| async move {
            KvClient::new(channel)
                .max_decoding_message_size(caller.settings().reply_bytes_max)
                .put(request)
                .await
        };
        let (reply, metadata) = caller.call(Repeat::Never, None, self.request, send).await?;
        Ok(PutReply::new(reply, &metadata))
    }
}

impl IntoFuture for Put {
    type Output = Result<PutReply>;
    type IntoFuture = BoxFuture<PutReply>;

    fn into_future(self) -> BoxFuture<PutReply> {
        Box::pin(self.send())
    }
}

/// The result of a put.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::PutReply;
///
/// let put: PutReply = client.put("greeting", "hello").previous().await?;
/// match put.previous {
///     Some(old) => println!("{:?} was replaced at revision {}", old.value, put.header.revision),
///     None => println!("created at revision {}", put.header.revision),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PutReply {
    /// The reply header; its revision is the revision of the write.
    pub header: Header,
    /// The previous entry, if requested and present.
    pub previous: Option<Entry>,
}

impl PutReply {
    pub(crate) fn new(reply: PutResponse, metadata: &MetadataMap) -> PutReply {
        PutReply {
            header: Header::new(reply.header, metadata),
            previous: reply.prev_kv.map(Entry::from),
        }
    }
}
