//! The settings of a watch.

use std::future::IntoFuture;

use bowline_proto::etcdserverpb::WatchCreateRequest;
use bowline_proto::etcdserverpb::watch_create_request::FilterType;
use bowline_types::Revision;

use super::{Hubs, Watcher};
use crate::reply::signed;
use crate::{BoxFuture, KeyRange, Result};

/// A watch to begin. [`Client::watch`](crate::Client::watch) gives one; `await` begins it, and gives a
/// [`Watcher`] once a server has confirmed it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// // The state, and then every change after it: nothing is missed, nothing comes twice.
/// let jobs = client.get("jobs/").prefix().await?;
/// let mut watcher = client
///     .watch("jobs/")
///     .prefix()
///     .from(jobs.header.revision + 1)
///     .previous()
///     .no_deletes()
///     .progress_notify()
///     .await?;
/// while let Some(batch) = watcher.next().await? {
///     println!("{} changes up to revision {}", batch.events.len(), batch.revision);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is watched until it is awaited"]
pub struct Watch {
    hubs: Hubs,
    request: WatchCreateRequest,
    own_stream: bool,
}

impl Watch {
    pub(crate) fn new(hubs: Hubs, range: KeyRange) -> Watch {
        let (key, range_end) = range.into_parts();
        Watch {
            hubs,
            request: WatchCreateRequest {
                key,
                range_end,
                // A revision too large for a message would otherwise end the stream.
                fragment: true,
                ..WatchCreateRequest::default()
            },
            own_stream: false,
        }
    }

    /// Extends the key to all keys with this prefix.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut watcher = client.watch("svc/").prefix().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefix(mut self) -> Watch {
        let range = KeyRange::prefix(std::mem::take(&mut self.request.key));
        (self.request.key, self.request.range_end) = range.into_parts();
        self
    }

    /// The first revision to report, in the past or in the future. Default: the next revision when the watch
    /// begins.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// // Every change since the value that was read.
    /// let read = client.get("greeting").await?.header.revision;
    /// let mut watcher = client.watch("greeting").from(read + 1).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from(mut self, revision: Revision) -> Watch {
        self.request.start_revision = signed(revision.get());
        self
    }

    /// Tells what was there before each change.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut watcher = client.watch("greeting").previous().await?;
    /// while let Some(batch) = watcher.next().await? {
    ///     for event in batch.events {
    ///         println!("{:?} -> {:?}", event.previous.map(|old| old.value), event.entry.value);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn previous(mut self) -> Watch {
        self.request.prev_kv = true;
        self
    }

    /// Omits puts.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// // Only what ends.
    /// let mut watcher = client.watch("workers/").prefix().no_puts().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn no_puts(mut self) -> Watch {
        self.request.filters.push(FilterType::Noput.into());
        self
    }

    /// Omits deletions.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut watcher = client.watch("jobs/").prefix().no_deletes().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn no_deletes(mut self) -> Watch {
        self.request.filters.push(FilterType::Nodelete.into());
        self
    }

    /// Requests periodic progress notifications: batches without events, with the current revision.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut watcher = client.watch("greeting").progress_notify().await?;
    /// while let Some(batch) = watcher.next().await? {
    ///     println!("{} changes up to {}", batch.events.len(), batch.revision);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn progress_notify(mut self) -> Watch {
        self.request.progress_notify = true;
        self
    }

    /// Whether a server may send a large revision in several messages, which are put together here.
    /// Default: yes.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut watcher = client.watch("svc/").prefix().fragment(false).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fragment(mut self, yes: bool) -> Watch {
        self.request.fragment = yes;
        self
    }

    /// Uses a separate stream instead of the one that the client's watches share.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut watcher = client.watch("busy/").prefix().own_stream().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn own_stream(mut self) -> Watch {
        self.own_stream = true;
        self
    }
}

impl IntoFuture for Watch {
    type Output = Result<Watcher>;
    type IntoFuture = BoxFuture<Watcher>;

    fn into_future(self) -> BoxFuture<Watcher> {
        Box::pin(async move {
            let hub = if self.own_stream {
                self.hubs.own()
            } else {
                self.hubs.shared()
            };
            let start_timeout = self.hubs.request_timeout();
            Watcher::start(hub, self.request, start_timeout).await
        })
    }
}
