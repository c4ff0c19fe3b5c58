//! [`Watcher`]: the stream of events that a watch delivers to its user.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bowline_proto::etcdserverpb::WatchCreateRequest;
use bowline_types::Revision;
use futures_core::Stream;
use tokio::sync::{mpsc, oneshot};

use super::Batch;
use super::driver::{Command, Hub};
use crate::{Error, Result};

/// The capacity of a watcher's queue, in batches. When it is full, the watch is paused.
pub(super) const QUEUE_BATCHES: usize = 256;

/// A stream of changes: each once, in order, from the requested revision. Resumes when a connection or an
/// endpoint fails. Dropping it ends the watch.
///
/// It ends after an error: [`Error::Compacted`] if its next revision is compacted; [`Error::WatchCanceled`]
/// and others if the server refuses it.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{KeyRange, Revision};
///
/// # let stored = 1;
/// // Goes on where an earlier run of the program has stopped.
/// let first = Revision::new(stored);
/// let mut watcher = client.watch(KeyRange::prefix("jobs/")).from(first).await?;
/// while let Some(batch) = watcher.next().await? {
///     println!("{} changes", batch.events.len());
///     println!("store for the next run: {}", watcher.next_revision());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping it ends the watch"]
pub struct Watcher {
    id: u64,
    hub: Hub,
    queue: mpsc::Receiver<Result<Batch>>,
    /// Set by the driver while it holds this watch back because the queue was full.
    is_held_back: Arc<AtomicBool>,
    next_revision: Revision,
}

impl Watcher {
    pub(super) async fn start(
        hub: Hub,
        request: WatchCreateRequest,
        start_timeout: Duration,
    ) -> Result<Watcher> {
        let (sender, queue) = mpsc::channel(QUEUE_BATCHES);
        let (begun, has_begun) = oneshot::channel();
        let is_held_back = Arc::new(AtomicBool::new(false));
        let id = hub.next_id();
        let mut watcher = Watcher {
            id,
            hub,
            queue,
            is_held_back: Arc::clone(&is_held_back),
            next_revision: Revision::ZERO,
        };
        watcher.hub.send(Command::Add {
            id,
            request,
            sender,
            begun,
            is_held_back,
        })?;
        watcher.next_revision = match tokio::time::timeout(start_timeout, has_begun).await {
            Ok(Ok(begun)) => begun?,
            Ok(Err(_)) => return Err(Error::Stopped),
            Err(_) => return Err(watcher.hub.last_error().unwrap_or(Error::TimedOut)),
        };
        Ok(watcher)
    }

    /// The next changes; `None` after an error.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut watcher = client.watch("greeting").await?;
    /// while let Some(batch) = watcher.next().await? {
    ///     println!("revision {}: {} changes", batch.revision, batch.events.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Compacted` when the history that it needs is trimmed: read the state, and watch from its revision;
    /// `WatchCanceled`. Broken connections are no error: the watch resumes.
    pub async fn next(&mut self) -> Result<Option<Batch>> {
        poll_fn(|context| self.poll_batch(context))
            .await
            .transpose()
    }

    /// The first undelivered revision. A later watch resumes from it.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut watcher = client.watch("greeting").await?;
    /// if let Some(batch) = watcher.next().await? {
    ///     assert_eq!(watcher.next_revision(), batch.revision + 1);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn next_revision(&self) -> Revision {
        self.next_revision
    }

    /// Asks the server to say up to which revision everything has been sent. The answer comes as a batch
    /// without events. A server gives none while a watch of the same stream is behind.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut watcher = client.watch("greeting").await?;
    /// watcher.request_progress()?;
    /// if let Some(batch) = watcher.next().await? {
    ///     println!("all up to revision {} has come", batch.revision);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Stopped` when the watch has ended.
    pub fn request_progress(&self) -> Result<()> {
        self.hub.send(Command::Progress { id: self.id })
    }

    fn poll_batch(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Batch>>> {
        // The driver looks at the queue after it has set the mark, so one of the two always sees that
        // the queue is empty and the watch held back.
        if self.queue.is_empty() && self.is_held_back.swap(false, Ordering::SeqCst) {
            // If the driver is gone, so is the other end of the queue.
            let _ = self.hub.send(Command::Resume { id: self.id });
        }
        let next = ready!(self.queue.poll_recv(context));
        if let Some(Ok(batch)) = &next {
            self.next_revision = self.next_revision.max(batch.revision.saturating_add(1));
        }
        Poll::Ready(next)
    }
}

impl Stream for Watcher {
    type Item = Result<Batch>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Batch>>> {
        self.poll_batch(context)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // If the driver is gone, there is nothing to end.
        let _ = self.hub.send(Command::Remove { id: self.id });
    }
}
