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

use bowline_storage::Value;
use bowline_types::Revision;

pub use hub::Hub;

use crate::kv::Entry;

/// The kind of a change.
///
/// ```
/// use bowline::{ChangeKind, Range};
/// # let db = bowline::Db::in_memory()?;
/// let mut watch = db.watch(Range::prefix("workers/")).start()?;
/// db.put("workers/7", "up")?;
/// db.delete("workers/7")?;
/// assert_eq!(watch.recv()?.changes[0].kind, ChangeKind::Put);
/// assert_eq!(watch.recv()?.changes[0].kind, ChangeKind::Delete);
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// The key was put.
    Put,
    /// The key was deleted.
    Delete,
}

/// One change of one key.
///
/// ```
/// use bowline::{Change, ChangeKind, Range};
/// # let db = bowline::Db::in_memory()?;
/// let mut watch = db.watch(Range::all()).with_previous().start()?;
/// db.put("greeting", "hello")?;
/// db.put("greeting", "goodbye")?;
///
/// let created: Change = watch.recv()?.changes.remove(0);
/// assert!(created.creates_key() && created.previous.is_none());
/// let changed: Change = watch.recv()?.changes.remove(0);
/// assert_eq!((changed.kind, changed.entry.version), (ChangeKind::Put, 2));
/// assert_eq!(changed.previous.expect("an entry").value, b"hello");
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// Put or delete.
    pub kind: ChangeKind,
    /// The entry after a put. After a delete only its key and `mod_revision` (the revision of the
    /// deletion) are set, as in etcd.
    pub entry: Entry,
    /// The entry before the revision of the change. Only with `WatchBuilder::with_previous`; absent for a new
    /// key or where history has been trimmed.
    pub previous: Option<Entry>,
}

impl Change {
    /// A change without its previous entry: users receive changes, they make none.
    #[doc(hidden)]
    pub fn new(kind: ChangeKind, entry: Entry) -> Change {
        Change {
            kind,
            entry,
            previous: None,
        }
    }

    /// A deletion carries the key and the revision only, as in etcd.
    #[doc(hidden)]
    pub fn deletion(key: Value, revision: Revision) -> Change {
        let entry = Entry {
            key,
            value: Value::default(),
            create_revision: Revision::ZERO,
            mod_revision: revision,
            version: 0,
            lease: None,
        };
        Change::new(ChangeKind::Delete, entry)
    }

    /// Whether it put an absent key, also one that the same transaction had deleted before.
    #[must_use]
    pub fn creates_key(&self) -> bool {
        self.kind == ChangeKind::Put && self.entry.create_revision == self.entry.mod_revision
    }

    /// The approximate memory of the change, in bytes.
    #[doc(hidden)]
    pub fn size_bytes(&self) -> u64 {
        (self.entry.key.len() + self.entry.value.len() + size_of::<Change>()) as u64
    }
}

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
