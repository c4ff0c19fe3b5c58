//! A change of a key, as watchers receive it.

use bowline_storage::Value;
use bowline_types::Revision;

use super::record::Entry;

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
