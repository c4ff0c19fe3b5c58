//! The cursor of a reader at one revision.

use std::ops::Range;
use std::sync::Arc;

use super::entry_cursor::EntryCursor;
use super::reader::Table;
use crate::blob::BlobPointer;
use crate::error::Result;
use crate::types::{EntryKind, Revision};
use crate::value::Value;

impl Table {
    /// A cursor over the newest entry of each key with a revision of at most `at`.
    #[must_use]
    pub fn read_cursor(self: &Arc<Self>, at: Revision) -> TableReadCursor {
        TableReadCursor::new(self.clone(), at)
    }
}

/// Moves over the keys of a table as of one revision: of each key it shows the newest entry that
/// is not newer, tombstones included, and it passes over keys that have none.
///
/// A new cursor is nowhere until a seek. Moving a cursor that is nowhere does nothing. An error
/// leaves it nowhere. Only where [`TableReadCursor::valid`] is true do the entry's parts mean
/// anything.
#[derive(Debug)]
pub struct TableReadCursor {
    entries: EntryCursor,
    at: Revision,
}

impl TableReadCursor {
    pub(super) fn new(table: Arc<Table>, at: Revision) -> TableReadCursor {
        TableReadCursor {
            entries: EntryCursor::new(table, true),
            at,
        }
    }

    /// Goes to the first key.
    pub fn seek_first(&mut self) -> Result<()> {
        self.entries.seek_first()?;
        self.entries.next_visible(self.at)
    }

    /// Goes to the last key.
    pub(crate) fn seek_last(&mut self) -> Result<()> {
        self.entries.seek_last()?;
        self.entries.prev_visible(self.at)
    }

    /// Goes to the first key that is not smaller than `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.entries.seek(key, self.at)?;
        self.entries.next_visible(self.at)
    }

    /// Goes to the last key that is smaller than `key`.
    pub(crate) fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.entries.seek(key, Revision::MAX)?;
        if self.entries.valid() {
            self.entries.prev()?;
        } else {
            self.entries.seek_last()?;
        }
        self.entries.prev_visible(self.at)
    }

    /// Goes to the next key.
    #[expect(
        clippy::should_implement_trait,
        reason = "a cursor lends its entry and can fail"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        self.entries.next_key()?;
        self.entries.next_visible(self.at)
    }

    /// Goes to the key before.
    pub(crate) fn prev(&mut self) -> Result<()> {
        if !self.entries.valid() {
            return Ok(());
        }
        self.entries.prev_key()?;
        self.entries.prev_visible(self.at)
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

    /// Sets `value` to a part of the entry's. A large one shares the page's memory.
    ///
    /// # Panics
    /// When `range` is not inside the value.
    #[inline]
    pub fn slice_into(&self, range: Range<usize>, value: &mut Value) {
        let entry = self.entries.entry();
        if entry.is_pointer {
            value.assign(&self.value()[range]);
        } else {
            self.entries.page().slice_into(entry, range, value);
        }
    }

    /// Where the value is, when it lies in a blob file.
    #[inline]
    pub(crate) fn pointer(&self) -> Result<Option<BlobPointer>> {
        self.entries.pointer()
    }
}
