//! Deletions of one key or many.

use std::future::IntoFuture;
use std::sync::Arc;

use bowline_proto::etcdserverpb::kv_client::KvClient;
use bowline_proto::etcdserverpb::{DeleteRangeRequest, DeleteRangeResponse};
use tonic::metadata::MetadataMap;

use crate::caller::{Caller, Repeat};
use crate::reply::unsigned;
use crate::{BoxFuture, Entry, Header, KeyRange, Result};

/// A deletion. [`Client::delete`](crate::Client::delete) gives one; `await` sends it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// let gone = client.delete("tmp/").prefix().previous().await?;
/// for entry in &gone.previous {
///     println!("{:?} is gone", entry.key);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until it is awaited"]
pub struct Delete {
    caller: Arc<Caller>,
    request: DeleteRangeRequest,
}

impl Delete {
    pub(crate) fn new(caller: Arc<Caller>, range: KeyRange) -> Delete {
        let (key, range_end) = range.into_parts();
        let request = DeleteRangeRequest {
            key,
            range_end,
            prev_kv: false,
        };
        Delete { caller, request }
    }

    /// Extends the key to all keys with this prefix.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let gone = client.delete("tmp/").prefix().await?;
    /// println!("{} keys", gone.deleted);
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefix(mut self) -> Delete {
        let range = KeyRange::prefix(std::mem::take(&mut self.request.key));
        (self.request.key, self.request.range_end) = range.into_parts();
        self
    }

    /// Requests the previous entry.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let gone = client.delete("greeting").previous().await?;
    /// println!("{:?}", gone.previous);
    /// # Ok(())
    /// # }
    /// ```
    pub fn previous(mut self) -> Delete {
        self.request.prev_kv = true;
        self
    }

    async fn send(self) -> Result<DeleteReply> {
        let caller = &*self.caller;
        let send = |channel, request| async move {
            KvClient::new(channel)
                .max_decoding_message_size(caller.settings().reply_bytes_max)
                .delete_range(request)
                .await
        };
        let (reply, metadata) = caller.call(Repeat::Never, None, self.request, send).await?;
        Ok(DeleteReply::new(reply, &metadata))
    }
}

impl IntoFuture for Delete {
    type Output = Result<DeleteReply>;
    type IntoFuture = BoxFuture<DeleteReply>;

    fn into_future(self) -> BoxFuture<DeleteReply> {
        Box::pin(self.send())
    }
}

/// The result of a deletion.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::DeleteReply;
///
/// let gone: DeleteReply = client.delete("greeting").await?;
/// println!("{} keys at revision {}", gone.deleted, gone.header.revision);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeleteReply {
    /// The reply header; its revision is the revision of the deletion, if any.
    pub header: Header,
    /// How many keys were deleted.
    pub deleted: u64,
    /// The previous entries, if requested.
    pub previous: Vec<Entry>,
}

impl DeleteReply {
    pub(crate) fn new(reply: DeleteRangeResponse, metadata: &MetadataMap) -> DeleteReply {
        DeleteReply {
            header: Header::new(reply.header, metadata),
            deleted: unsigned(reply.deleted),
            previous: reply.prev_kvs.into_iter().map(Entry::from).collect(),
        }
    }
}
