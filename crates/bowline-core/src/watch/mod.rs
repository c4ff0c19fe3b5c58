//! Watching changes of keys, in order, from now or from the past.
//!
//! Each committed revision's changes are put once into a bounded *ring*, indexed by revision.
//! A watcher holds nothing but a cursor (the next revision it wants). While the ring still has
//! that revision, the watcher takes it from there; it shares no lock with commit. When the ring
//! has moved on (a slow watcher, or one that starts in the past), the watcher reads the versions
//! themselves from the trees, in chunks, until it reaches the ring again.
//!
//! ```text
//!           compacted      trees (history)             ring            not yet
//! revisions ─────────|───────────────────────────|────────────────|─ ─ ─ ─ ─ ─ ─
//!                  floor        ^ slow watcher         ^ watcher   visible
//! ```
//!
//! Invariants:
//!
//! - A watcher gets every change of its range with a revision from its start on, once, in order
//!   of revision, all changes of one revision together, or an error that says from where on.
//! - Nothing is lost between history and ring: both are asked for exactly "the next revision".
//! - A watcher's pin keeps the history it has not read, up to the lag limit; beyond it the watcher
//!   gets [`Error::Compacted`](crate::Error::Compacted), never a gap.
//! - The changes of one revision come in the order in which they were made, with those that were made
//!   over by later ones, whether they are read from the ring or from the trees. Only of the revision
//!   that history begins with there is no more than what each key has become, in both.
//! - A change is delivered only after it is published, so never one that could be taken back
//!   (with `Durability::Sync`).

mod hub;

use bowline_storage::{Revision, Value};

pub use hub::Hub;

use crate::kv::Entry;

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was put.
    Put,
    /// It was deleted.
    Delete,
}

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// Put or delete.
    pub kind: ChangeKind,
    /// The entry after a put. After a delete only its key and `mod_revision` (the revision of the
    /// deletion) are set, as in etcd.
    pub entry: Entry,
    /// The entry before the revision of the change; only when asked for with `WatchBuilder::with_previous`, and
    /// absent for a new key or where history has been given up.
    pub previous: Option<Entry>,
}

impl Change {
    pub fn new(kind: ChangeKind, entry: Entry) -> Change {
        Change {
            kind,
            entry,
            previous: None,
        }
    }

    /// A deletion carries the key and the revision only, as in etcd.
    pub fn deletion(key: Value, revision: Revision) -> Change {
        let entry = Entry {
            key,
            value: Value::default(),
            create_revision: 0,
            mod_revision: revision,
            version: 0,
            lease: 0,
        };
        Change::new(ChangeKind::Delete, entry)
    }

    /// Whether it put a key that was absent, if only because the same transaction had deleted it before.
    #[must_use]
    pub fn creates_key(&self) -> bool {
        self.kind == ChangeKind::Put && self.entry.create_revision == self.entry.mod_revision
    }

    /// About how much memory it takes, in bytes.
    pub fn size_bytes(&self) -> u64 {
        (self.entry.key.len() + self.entry.value.len() + size_of::<Change>()) as u64
    }
}

/// All changes of one revision that are in the watched range, in the order in which they were made:
/// that of the keys, but in a transaction that came through etcd's API. There a key may be changed more than
/// once, by a put and a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// The revision.
    pub revision: Revision,
    /// At least one change.
    pub changes: Vec<Change>,
}
