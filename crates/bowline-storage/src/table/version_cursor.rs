//! The cursor over everything a table holds, for compactions and history.

use std::sync::Arc;

use super::entry_cursor::EntryCursor;
use super::reader::Table;
use crate::blob::BlobPointer;
use crate::error::Result;
use crate::types::{EntryKind, Revision};

impl Table {
    /// A cursor over all entries. Without `use_cache` it reads ahead in large chunks, leaves the
    /// page cache alone, and counts its reads as those of a compaction.
    #[must_use]
    pub(crate) fn version_cursor(self: &Arc<Self>, use_cache: bool) -> TableVersionCursor {
        TableVersionCursor::new(self.clone(), use_cache)
    }
}

/// Moves over all entries of a table: keys ascending, and the revisions of each descending.
///
/// A new cursor is nowhere until a seek. Moving a cursor that is nowhere does nothing. An error
/// leaves it nowhere. Only where [`TableVersionCursor::valid`] is true do the entry's parts mean
/// anything.
#[derive(Debug)]
pub(crate) struct TableVersionCursor {
    entries: EntryCursor,
}

impl TableVersionCursor {
    pub(super) fn new(table: Arc<Table>, use_cache: bool) -> TableVersionCursor {
        TableVersionCursor {
            entries: EntryCursor::new(table, use_cache),
        }
    }

    /// Goes to the first entry.
    pub fn seek_first(&mut self) -> Result<()> {
        self.entries.seek_first()
    }

    /// Goes to the newest entry of the first key that is not smaller than `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.entries.seek(key, Revision::MAX)
    }

    /// Goes to the next entry.
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        self.entries.next()
    }

    /// Whether there is an entry here.
    #[must_use]
    #[inline]
    pub fn valid(&self) -> bool {
        self.entries.valid()
    }

    /// The key.
    #[must_use]
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.entries.key()
    }

    /// The revision that wrote the entry.
    #[must_use]
    #[inline]
    pub fn revision(&self) -> Revision {
        self.entries.entry().revision
    }

    /// Whether the entry is a value or a tombstone.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> EntryKind {
        self.entries.entry().kind
    }

    /// The value; of one that lies in a blob file, its head.
    #[must_use]
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.entries.value()
    }

    /// Where the value is, when it lies in a blob file.
    #[inline]
    pub fn pointer(&self) -> Result<Option<BlobPointer>> {
        self.entries.pointer()
    }
}
