//! One version of a key that a read has found, and its value.
//!
//! The value stays where it is until the reader copies it: in the memtable, in a page of a table, or in
//! the buffer into which a blob file was read.

use std::ops::Range;

use super::super_version::SuperVersion;
use crate::blob::Loaded;
use crate::memtable::Entry;
use crate::table::TableHit;
use crate::{EntryKind, Revision, Value};

/// Receives a version: key, revision, kind, stored bytes. Returns whether to continue.
pub type VersionVisit<'a> = dyn FnMut(&[u8], Revision, EntryKind, &[u8]) -> Next + 'a;

/// Which versions are visited after one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// All others.
    All,
    /// Those up to a revision.
    UpTo(Revision),
    /// None.
    Nothing,
}

/// How much of a value a reader needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Of a value in a blob file at most the first [`HEAD_BYTES`](crate::blob::HEAD_BYTES).
    Head,
    /// The whole value.
    Whole,
}

/// A version that a read has found.
#[derive(Debug)]
pub struct Found<'a> {
    /// Its revision.
    pub revision: Revision,
    /// Put or tombstone.
    pub kind: EntryKind,
    pub(super) value: Bytes<'a>,
    /// The length of the whole value, also if only its head was read.
    pub(super) value_bytes: u64,
    pub(super) sources: &'a SuperVersion,
}

#[derive(Debug)]
pub(super) enum Bytes<'a> {
    Borrowed(&'a [u8]),
    InTable(TableHit),
    Loaded(Loaded),
}

impl<'a> Found<'a> {
    #[inline]
    pub(super) fn in_memory(entry: Entry<'a>, sources: &'a SuperVersion) -> Found<'a> {
        Found {
            revision: entry.revision,
            kind: entry.kind,
            value: Bytes::Borrowed(entry.value),
            value_bytes: entry.value.len() as u64,
            sources,
        }
    }

    /// The super-version that it was read from. Older versions of the key can be read there, at the
    /// same moment.
    #[must_use]
    pub fn sources(&self) -> &SuperVersion {
        self.sources
    }

    /// The length of the stored bytes, also if only the head of the value was read.
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
            Bytes::Loaded(value) => value,
        }
    }

    /// [`Found::slice`], into `value`.
    #[inline]
    pub fn slice_into(&self, range: Range<usize>, value: &mut Value) {
        match &self.value {
            Bytes::Borrowed(bytes) => value.assign(&bytes[range]),
            Bytes::InTable(hit) => hit.slice_into(range, value),
            Bytes::Loaded(loaded) => loaded.slice_into(range, value),
        }
    }

    /// A part of the stored bytes, as an owned value.
    ///
    /// # Panics
    /// When `range` is not inside [`Found::bytes`].
    #[must_use]
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> Value {
        match &self.value {
            Bytes::Borrowed(bytes) => Value::copy_from(&bytes[range]),
            Bytes::InTable(hit) => hit.slice(range),
            Bytes::Loaded(loaded) => {
                let mut value = Value::EMPTY;
                loaded.slice_into(range, &mut value);
                value
            }
        }
    }
}
