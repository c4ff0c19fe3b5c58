//! Watching changes of keys, in order, from now or from the past.
//!
//! The changes of each committed revision are put once into a bounded *ring*, indexed by revision. A watcher
//! is a cursor: the next revision it reads. If the ring has that revision, the watcher reads it there,
//! without a lock shared with commits. If not (a slow watcher, or a start in the past), the watcher reads
//! versions from the trees in chunks, until it reaches the ring.
//!
//! ```text
//!           compacted      trees (history)             ring            not yet
//! revisions ─────────|───────────────────────────|────────────────|─ ─ ─ ─ ─ ─ ─
//!                  floor        ^ slow watcher         ^ watcher   visible
//! ```
//!
//! Invariants:
//!
//! - A watcher receives every change of its range from its start on, once, in order of revision, all changes
//!   of a revision together; or an error with the oldest readable revision.
//! - No change is lost between history and ring: both are read at exactly the next revision.
//! - A watcher's pin keeps unread history, up to the lag limit; beyond it the watcher gets
//!   [`Error::Compacted`](crate::Error::Compacted), never a gap.
//! - The changes of a revision come in the order of the writes, with overwritten ones, from the ring and from
//!   the trees alike. For the oldest revision of history, both give only the last change of each key.
//! - A change is delivered only after it is published, so a delivered change is durable (with
//!   `Durability::Sync`).

mod hub;

use bowline_types::Revision;

pub use crate::kv::{Change, ChangeKind};
pub use hub::Hub;

/// All changes of one revision in the watched range, in the order of the writes. This is the key order,
/// except in transactions of etcd's API, which can also change a key more than once, by a put and a deletion.
///
/// ```
/// use bowline::{Changes, Range};
/// # let db = bowline::Db::in_memory()?;
/// let mut watch = db.watch(Range::prefix("svc/")).start()?;
/// db.transact(|tx| {
///     tx.put("svc/a", "1")?;
///     tx.put("other", "")?;
///     tx.put("svc/b", "2")
/// })?;
/// // One transaction, but for what is outside of the range.
/// let Changes { revision, changes } = watch.recv()?;
/// assert_eq!((revision, changes.len()), (db.revision(), 2));
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// The revision.
    pub revision: Revision,
    /// At least one change.
    pub changes: Vec<Change>,
}
