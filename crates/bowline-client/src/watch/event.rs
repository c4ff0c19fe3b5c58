//! The events of a watch.

use bowline_proto::mvccpb;
use bowline_types::Revision;

use crate::Entry;

/// Changes that came together: all those of one revision, or of several.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{Batch, EventKind, KeyRange};
///
/// let mut watcher = client.watch(KeyRange::prefix("svc/")).previous().await?;
/// while let Some(Batch { revision, events, .. }) = watcher.next().await? {
///     for event in events {
///         match event.kind {
///             EventKind::Put => println!("{:?} = {:?}", event.entry.key, event.entry.value),
///             EventKind::Delete => println!("{:?} is gone", event.entry.key),
///         }
///     }
///     println!("all up to revision {revision} has come");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Batch {
    /// Every change up to this revision has been delivered, with this batch.
    pub revision: Revision,
    /// The changes in order; none for a notification of progress.
    pub events: Vec<Event>,
}

/// One change of one key.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::Event;
///
/// fn show(event: &Event) {
///     let before = event.previous.as_ref().map(|entry| &entry.value);
///     println!("{} {:?}: {before:?} -> {:?}", event.revision(), event.kind, event.entry.value);
/// }
///
/// let mut watcher = client.watch("greeting").previous().await?;
/// while let Some(batch) = watcher.next().await? {
///     batch.events.iter().for_each(show);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The key after the change. After a deletion, only its key and the revision.
    pub entry: Entry,
    /// The previous entry, if requested, present, and still in history.
    pub previous: Option<Entry>,
}

/// The kind of a change.
///
/// ```no_run
/// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
/// use bowline_client::{EventKind, KeyRange};
///
/// let mut workers = client.watch(KeyRange::prefix("workers/")).await?;
/// while let Some(batch) = workers.next().await? {
///     let lost = batch.events.iter().filter(|event| event.kind == EventKind::Delete);
///     println!("{} workers are gone", lost.count());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It was written.
    Put,
    /// It was deleted.
    Delete,
}

impl Batch {
    /// Whether it only says that nothing happened up to its revision.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut watcher = client.watch("greeting").progress_notify().await?;
    /// while let Some(batch) = watcher.next().await? {
    ///     if batch.is_progress() {
    ///         println!("nothing new up to {}", batch.revision);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_progress(&self) -> bool {
        self.events.is_empty()
    }
}

impl Event {
    /// The revision of the change.
    ///
    /// ```no_run
    /// # async fn example(client: bowline_client::Client) -> bowline_client::Result<()> {
    /// let mut watcher = client.watch("greeting").await?;
    /// while let Some(batch) = watcher.next().await? {
    ///     for event in batch.events {
    ///         println!("changed at revision {}", event.revision());
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.entry.mod_revision
    }
}

impl From<mvccpb::Event> for Event {
    fn from(event: mvccpb::Event) -> Event {
        let kind = match event.r#type() {
            mvccpb::event::EventType::Put => EventKind::Put,
            mvccpb::event::EventType::Delete => EventKind::Delete,
        };
        Event {
            kind,
            entry: event.kv.map(Entry::from).unwrap_or_default(),
            previous: event.prev_kv.map(Entry::from),
        }
    }
}
