//! Point reads and visits of versions over memtables and tables.
//!
//! A point read asks the memtables, newest first, then one table per run, newest run first; the
//! first hit is the newest version, because every source is newer than the next.
//!
//! A value in a blob file is read only when it is known to be the one that is wanted, and not at all
//! by a reader that looks at no more than its head.

use std::ops::{Bound, Range};

use super::super_version::SuperVersion;
use crate::blob::{BlobPointer, BlobReader};
use crate::error::Result;
use crate::memtable::Entry;
use crate::table::{KeyHash, TableHit};
use crate::version::Version;
use crate::{EntryKind, Revision, TreeId, Value};

/// Takes a version: key, revision, kind, stored bytes. Returns whether to go on.
pub type VersionVisit<'a> = dyn FnMut(&[u8], Revision, EntryKind, &[u8]) -> bool + 'a;

/// How much of a value a reader looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Of one that lies in a blob file no more than its first
    /// [`HEAD_BYTES`](crate::blob::HEAD_BYTES).
    Head,
    /// All of it.
    Whole,
}

/// A version found by a read.
#[derive(Debug)]
pub struct Found<'a> {
    /// Its revision.
    pub revision: Revision,
    /// Put or tombstone.
    pub kind: EntryKind,
    value: Bytes<'a>,
    /// How long the value is, also when this has its head only.
    value_bytes: u64,
    sources: &'a SuperVersion,
}

#[derive(Debug)]
enum Bytes<'a> {
    Borrowed(&'a [u8]),
    InTable(TableHit),
    Owned(Value),
}

impl<'a> Found<'a> {
    #[inline]
    fn in_memory(entry: Entry<'a>, sources: &'a SuperVersion) -> Found<'a> {
        Found {
            revision: entry.revision,
            kind: entry.kind,
            value: Bytes::Borrowed(entry.value),
            value_bytes: entry.value.len() as u64,
            sources,
        }
    }

    /// What it was read from: the versions below it are found there as they were when it was read.
    #[must_use]
    pub fn sources(&self) -> &SuperVersion {
        self.sources
    }

    /// How long the stored bytes are, also of a value whose head alone was read.
    #[must_use]
    pub fn value_bytes(&self) -> u64 {
        self.value_bytes
    }

    /// The stored bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.value {
            Bytes::Borrowed(bytes) => bytes,
            Bytes::InTable(hit) => hit.value(),
            Bytes::Owned(value) => value,
        }
    }

    /// [`Found::slice`] into `value`.
    #[inline]
    pub fn slice_into(&self, range: Range<usize>, value: &mut Value) {
        match &self.value {
            Bytes::Borrowed(bytes) => value.assign(&bytes[range]),
            Bytes::InTable(hit) => hit.slice_into(range, value),
            Bytes::Owned(owned) => *value = owned.slice(range),
        }
    }

    /// A part of the stored bytes, owned.
    ///
    /// # Panics
    /// When `range` is not inside [`Found::bytes`].
    #[must_use]
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> Value {
        match &self.value {
            Bytes::Borrowed(bytes) => Value::copy_from(&bytes[range]),
            Bytes::InTable(hit) => hit.slice(range),
            Bytes::Owned(value) => value.slice(range),
        }
    }
}

impl SuperVersion {
    /// Reads the newest version with a revision not above `at` (tombstones included) from the
    /// sources that may hold one above `above`, and hands it to `read`.
    #[inline]
    pub fn get<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        at: Revision,
        above: Revision,
        want: Want,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        for memtable in self.memtables() {
            if let Some(entry) = memtable.get(tree, key, at) {
                let found = Found::in_memory(entry, self);
                return Ok(read((found.revision > above).then_some(found)));
            }
        }
        self.get_from_tables(tree, key, at, above, want, read)
    }

    /// What the memtables say of a key's newest version not above `at`. `None` when they say nothing and
    /// a table might.
    #[inline]
    pub fn get_from_memtables<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        at: Revision,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Option<R> {
        for memtable in self.memtables() {
            if let Some(entry) = memtable.get(tree, key, at) {
                return Some(read(Some(Found::in_memory(entry, self))));
            }
        }
        let mut runs = self.version.tree(tree).runs();
        match runs.any(|run| run.find(key).is_some()) {
            true => None,
            false => Some(read(None)),
        }
    }

    #[inline]
    fn get_from_tables<R>(
        &self,
        tree: TreeId,
        key: &[u8],
        at: Revision,
        above: Revision,
        want: Want,
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R> {
        let mut hash = None;
        for run in self.version.tree(tree).runs() {
            let Some(table) = run.find(key) else { continue };
            if above > 0 && table.meta().max_revision <= above {
                continue;
            }
            let hash = *hash.get_or_insert_with(|| KeyHash::of(key));
            if let Some(hit) = table.find(key, hash, at)? {
                let (revision, kind) = (hit.revision(), hit.kind());
                let mut value_bytes = hit.value().len() as u64;
                let mut value = Bytes::InTable(hit);
                if let Bytes::InTable(hit) = &value
                    && let Some(pointer) = hit.pointer()
                {
                    value_bytes = pointer.value_bytes;
                    if want == Want::Whole && revision > above {
                        let file = self.version.blob(pointer, tree)?;
                        value = Bytes::Owned(file.read(pointer, key, revision)?);
                    }
                }
                let found = Found {
                    revision,
                    kind,
                    value,
                    value_bytes,
                    sources: self,
                };
                return Ok(read((found.revision > above).then_some(found)));
            }
        }
        Ok(read(None))
    }

    /// Whether any key in the range has a version above `since`.
    pub fn changed_since(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        since: Revision,
    ) -> Result<bool> {
        for memtable in self.memtables() {
            if memtable.max_revision() > since && memtable.changed_since(tree, lower, upper, since)
            {
                return Ok(true);
            }
        }
        let mut changed = false;
        self.for_each_table_version(
            tree,
            lower,
            upper,
            (since + 1, Revision::MAX),
            Want::Head,
            &mut |_, _, _, _| {
                changed = true;
                false
            },
        )?;
        Ok(changed)
    }

    /// Visits every version of the range with a revision in `from..=to`, in no particular order
    /// over all; within a source by key, newest first. A version may be visited twice when it is
    /// in two sources. `visit` returns whether to go on.
    pub fn for_each_version(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        (from, to): (Revision, Revision),
        want: Want,
        visit: &mut VersionVisit<'_>,
    ) -> Result<()> {
        for memtable in self.memtables() {
            if memtable.is_empty() || memtable.max_revision() < from || memtable.min_revision() > to
            {
                continue;
            }
            let mut cursor = memtable.version_cursor(tree);
            match lower {
                Bound::Unbounded => cursor.seek_first(),
                Bound::Included(key) | Bound::Excluded(key) => cursor.seek(key),
            }
            while cursor.valid() && is_before_end(cursor.key(), upper) {
                let inside = (from..=to).contains(&cursor.revision());
                if inside
                    && is_after_start(cursor.key(), lower)
                    && !visit(
                        cursor.key(),
                        cursor.revision(),
                        cursor.kind(),
                        cursor.value(),
                    )
                {
                    return Ok(());
                }
                cursor.next();
            }
        }
        self.for_each_table_version(tree, lower, upper, (from, to), want, visit)
    }

    fn for_each_table_version(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        (from, to): (Revision, Revision),
        want: Want,
        visit: &mut VersionVisit<'_>,
    ) -> Result<()> {
        let mut blobs = BlobReader::default();
        for table in self.version.tree(tree).tables() {
            let meta = table.meta();
            if meta.max_revision < from
                || meta.min_revision > to
                || !is_before_end(&meta.min_key, upper)
                || !is_after_start(&meta.max_key, lower)
            {
                continue;
            }
            let mut cursor = table.version_cursor(true);
            match lower {
                Bound::Unbounded => cursor.seek_first()?,
                Bound::Included(key) | Bound::Excluded(key) => cursor.seek(key)?,
            }
            while cursor.valid() && is_before_end(cursor.key(), upper) {
                let inside = (from..=to).contains(&cursor.revision());
                if inside && is_after_start(cursor.key(), lower) {
                    let (key, revision) = (cursor.key(), cursor.revision());
                    let loaded = match cursor.pointer()?.filter(|_| want == Want::Whole) {
                        Some(pointer) => Some(load(
                            &self.version,
                            tree,
                            &mut blobs,
                            &pointer,
                            key,
                            revision,
                        )?),
                        None => None,
                    };
                    let value = loaded.as_deref().unwrap_or(cursor.value());
                    if !visit(key, revision, cursor.kind(), value) {
                        return Ok(());
                    }
                }
                cursor.next()?;
            }
        }
        Ok(())
    }
}

/// The value of an entry, for a reader of many.
pub(super) fn load(
    version: &Version,
    tree: TreeId,
    blobs: &mut BlobReader,
    pointer: &BlobPointer,
    key: &[u8],
    revision: Revision,
) -> Result<Value> {
    let file = version.blob(pointer, tree)?;
    blobs.read(file, pointer, key, revision, file.bytes_read())
}

pub(super) fn is_before_end(key: &[u8], upper: Bound<&[u8]>) -> bool {
    match upper {
        Bound::Unbounded => true,
        Bound::Included(end) => key <= end,
        Bound::Excluded(end) => key < end,
    }
}

pub(super) fn is_after_start(key: &[u8], lower: Bound<&[u8]>) -> bool {
    match lower {
        Bound::Unbounded => true,
        Bound::Included(start) => key >= start,
        Bound::Excluded(start) => key > start,
    }
}
