//! An open table: point reads, and pages for cursors.
//!
//! Opening reads and checks the footer, the properties (against the manifest), the
//! index and the filter, and keeps the last two in memory. A page is read when it is wanted; its
//! checksum is verified and it is decompressed once, before it goes into the page cache.
//!
//! ```text
//! find(key, at):  index --one page--> filter --maybe--> shelf or disk --> hash index --> interval
//!                    `--> None           `--> None                           `--> None
//! ```
//!
//! The cache line of the filter is prefetched before the index is searched, and the first lines of the page's search
//! before the filter is tested, so that their latencies overlap.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::PageCache;
use super::filter::{Filter, KeyHash};
use super::footer::{Footer, FooterError};
use super::index::{Index, PageLocation};
use super::meta::{Properties, TableMeta};
use super::page::{Page, PageEntry};
use crate::blob::BlobPointer;
use crate::cache::{Held, Shelf};
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::frame::{self, Payload, Reason};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::types::{EntryKind, Revision};
use crate::value::Value;
use crate::vfs::{self, OpenMode, Vfs, VfsFile};

/// The entry of a key in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// The revision that wrote the entry.
    pub revision: Revision,
    /// Whether the entry is a value or says that the key is absent.
    pub kind: EntryKind,
    /// The value; empty for a tombstone; of one that lies in a blob file, its head.
    pub value: Value,
    /// Where the value is, when it lies in a blob file.
    pub(crate) pointer: Option<BlobPointer>,
}

/// An entry where it lies in its table. It keeps the page in memory: hold it shortly.
#[derive(Debug)]
pub(crate) struct TableHit {
    page: Held<Page>,
    entry: PageEntry,
    pointer: Option<BlobPointer>,
}

impl TableHit {
    /// The revision that wrote the entry.
    #[must_use]
    #[inline]
    pub fn revision(&self) -> Revision {
        self.entry.revision
    }

    /// Whether the entry is a value or says that the key is absent.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> EntryKind {
        self.entry.kind
    }

    /// Where the value is, when it lies in a blob file.
    #[must_use]
    #[inline]
    pub fn pointer(&self) -> Option<&BlobPointer> {
        self.pointer.as_ref()
    }

    /// The value; empty for a tombstone; of one that lies in a blob file, its head.
    #[must_use]
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.page.value(&self.entry)
    }

    /// A part of the value, owned. A large one shares the page's memory.
    ///
    /// # Panics
    /// When `range` is not inside the value.
    #[must_use]
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> Value {
        let mut value = Value::EMPTY;
        self.slice_into(range, &mut value);
        value
    }

    /// [`TableHit::slice`] into `value`.
    #[inline]
    pub fn slice_into(&self, range: Range<usize>, value: &mut Value) {
        self.page.slice_into(&self.entry, range, value);
    }
}

/// An open table. It is kept as `Arc<Table>` and shared by all readers.
#[derive(Debug)]
pub struct Table {
    vfs: Arc<dyn Vfs>,
    file: TableFile,
    meta: TableMeta,
    sections: Sections,
    /// Its pages in memory.
    shelf: Arc<Shelf<Page>>,
    counters: Arc<Counters>,
    obsolete: AtomicBool,
}

/// The file of a table, and the seed of its checksums.
#[derive(Debug)]
pub(super) struct TableFile {
    file: Arc<dyn VfsFile>,
    path: PathBuf,
    salt: u64,
}

/// The part of a table that stays in memory, and the place of the rest in the file.
#[derive(Debug)]
pub(super) struct Sections {
    pub(super) filter: Option<Filter>,
    pub(super) index: Index,
    pub(super) properties: Properties,
    pub(super) footer: Footer,
}

impl Table {
    /// Opens a table and checks that it is the one the manifest means by `expected`.
    pub fn open(
        vfs: &Arc<dyn Vfs>,
        path: PathBuf,
        expected: &TableMeta,
        cache: Arc<PageCache>,
        counters: Arc<Counters>,
    ) -> Result<Table> {
        let file = vfs
            .open(&path, OpenMode::Read)
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => Error::MissingFile {
                    path: path.clone(),
                    reason: format!(
                        "the manifest names it as a table of {} entries",
                        expected.entries
                    ),
                },
                _ => Error::io("open", &path, error),
            })?;
        let file = TableFile {
            file,
            path,
            salt: expected.salt,
        };
        let sections = file.read_sections(expected)?;
        let shelf = Shelf::new(expected.file_id, sections.index.len(), cache);
        Ok(Table {
            vfs: vfs.clone(),
            file,
            meta: expected.clone(),
            sections,
            shelf: Arc::new(shelf),
            counters,
            obsolete: AtomicBool::new(false),
        })
    }

    /// The properties of the table.
    #[must_use]
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Bytes in memory of filter and index, and of the places for pages.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let filter = self
            .sections
            .filter
            .as_ref()
            .map_or(0, Filter::memory_bytes);
        filter + self.sections.index.memory_bytes() + self.shelf.memory_bytes()
    }

    /// Keys of the table, ascending, about every `step_bytes` of its pages and at their end, each
    /// with how many bytes lie between it and the one before. From the index: reads nothing.
    pub(crate) fn sample_keys(&self, step_bytes: u64, visit: &mut dyn FnMut(&[u8], u64)) {
        self.sections.index.sample(step_bytes, visit);
    }

    /// `Table::find`, with the value to keep.
    pub fn get(&self, key: &[u8], at: Revision) -> Result<Option<TableEntry>> {
        let found = self.find(key, KeyHash::of(key), at)?;
        Ok(found.map(|hit| TableEntry {
            revision: hit.revision(),
            kind: hit.kind(),
            value: hit.slice(0..hit.value().len()),
            pointer: hit.pointer,
        }))
    }

    /// The newest entry of `key`, which has the hash `hash`, with a revision of at most `at`, be it
    /// a value or a tombstone.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], hash: KeyHash, at: Revision) -> Result<Option<TableHit>> {
        let KeyHash(hash) = hash;
        let filter = self.sections.filter.as_ref();
        let may_contain = |filter: &Filter| {
            let may_contain = filter.may_contain(hash);
            if !may_contain {
                self.counters.filter_negatives.add(1);
            }
            may_contain
        };
        // A small filter is mostly at hand, and then spares the search in the index. The line of a large
        // one is waited for, and the index searched meanwhile.
        let is_small = filter.is_some_and(Filter::is_small);
        if let Some(filter) = filter {
            if !is_small {
                filter.prefetch(hash);
            } else if !may_contain(filter) {
                return Ok(None);
            }
        }
        let number = self.sections.index.find(key, at);
        if let Some(number) = number
            && let Some(hints) = self.shelf.hints(number)
        {
            hints.prefetch_search();
        }
        if let Some(filter) = filter
            && !is_small
            && !may_contain(filter)
        {
            return Ok(None);
        }
        if let Some(number) = number {
            let page = self.page(number)?;
            let found = page
                .find(key, hash, at)
                .map_err(|reason| self.damaged(number, reason))?;
            if let Some(mut entry) = found {
                let pointer = match entry.is_pointer {
                    false => None,
                    true => {
                        let decoded = BlobPointer::decode(page.value(&entry));
                        let (pointer, head) = decoded
                            .ok_or_else(|| self.damaged(number, "a pointer is malformed"))?;
                        entry.value_start = entry.end - head.len();
                        Some(pointer)
                    }
                };
                return Ok(Some(TableHit {
                    page,
                    entry,
                    pointer,
                }));
            }
        }
        if filter.is_some() {
            self.counters.filter_false_positives.add(1);
        }
        Ok(None)
    }

    /// Says that no version of the database needs the table any more: its file is removed when
    /// the last user drops it.
    pub(crate) fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    pub(super) fn file(&self) -> &TableFile {
        &self.file
    }

    pub(super) fn index(&self) -> &Index {
        &self.sections.index
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A page from its place in memory, or from disk into its place.
    #[inline]
    pub(super) fn page(&self, number: usize) -> Result<Held<Page>> {
        match self.shelf.get(number) {
            Some(page) => Ok(page),
            None => self.load_page(number),
        }
    }

    /// Asks for the memory of a page through which a walk goes soon.
    #[inline]
    pub(super) fn prefetch_first_entries(&self, number: usize) {
        if let Some(hints) = self.shelf.hints(number) {
            hints.prefetch_walk();
        }
    }

    /// An error about a page whose checksum was right.
    #[cold]
    pub(super) fn damaged(&self, page: usize, reason: Reason) -> Error {
        Error::corrupt(
            &self.file.path,
            self.sections.index.location(page).offset,
            reason,
        )
    }

    #[cold]
    fn load_page(&self, number: usize) -> Result<Held<Page>> {
        let location = self.sections.index.location(number);
        let frame = self.file.read(location.offset, location.stored_bytes)?;
        self.counters.read_bytes.add(frame.len() as u64);
        let page = self.file.open_page(frame.into(), location)?;
        Ok(self.shelf.put(number, page))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !*self.obsolete.get_mut() {
            return;
        }
        if let Err(error) = self.vfs.remove_file(&self.file.path) {
            // Not named by the manifest any more, it is removed at the latest when the directory
            // is next opened.
            tracing::warn!(path = %self.file.path.display(), %error, "cannot remove a table");
        }
    }
}

impl TableFile {
    /// The bytes from `offset` on. The caller bounds `len` by the length of the file.
    pub(super) fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        vfs::read_exact_at(&*self.file, &self.path, &mut bytes, offset)?;
        Ok(bytes)
    }

    /// Checks and opens the frame of a page.
    pub(super) fn open_page(&self, mut frame: Bytes, location: PageLocation) -> Result<Page> {
        let PageLocation {
            offset, raw_bytes, ..
        } = location;
        frame::open(&frame, raw_bytes, self.salt, offset)
            .and_then(|payload| match payload {
                Payload::Plain(len) => {
                    frame.truncate(len);
                    Page::parse(frame)
                }
                Payload::Decompressed(bytes) => Page::parse(bytes.into()),
            })
            .map_err(|reason| match reason {
                frame::NEEDS_ZSTD => Error::Unsupported {
                    path: self.path.clone(),
                    feature: "zstd",
                },
                _ => self.corrupt(offset, "a page", reason),
            })
    }

    /// Reads and checks everything but the pages.
    pub(super) fn read_sections(&self, expected: &TableMeta) -> Result<Sections> {
        let file_bytes = self
            .file
            .len()
            .map_err(|e| Error::io("stat", &self.path, e))?;
        if file_bytes != expected.file_bytes {
            let reason = format!("it has {file_bytes} bytes, not {}", expected.file_bytes);
            return Err(Error::corrupt(
                &self.path,
                file_bytes.min(expected.file_bytes),
                reason,
            ));
        }
        let window = Footer::window_bytes(file_bytes);
        let window = self.read(file_bytes - window as u64, window)?;
        let footer = Footer::decode(&window, file_bytes, self.salt).map_err(|e| match e {
            FooterError::Newer(found) => Error::NewerFormat {
                path: self.path.clone(),
                found,
                supported: super::footer::FORMAT_VERSION,
            },
            FooterError::Damaged(reason) => Error::corrupt(&self.path, file_bytes, reason),
        })?;

        let offset = footer.pages_bytes;
        let filter = match footer.filter_bytes {
            0 => None,
            len => Some(self.section(offset, len, "the filter", Filter::decode)?),
        };
        let offset = offset + footer.filter_bytes;
        let index = self.section(offset, footer.index_bytes, "the index", |section| {
            Index::decode(section, footer.pages_bytes)
        })?;
        let offset = offset + footer.index_bytes;
        let decode = |section: &[u8]| {
            let properties = Properties::decode(section).ok_or("they are malformed")?;
            if properties.meta != *expected {
                return Err("they are not those the manifest has");
            }
            if properties.pages != index.len() as u64 {
                return Err("their number of pages is not that of the index");
            }
            Ok(properties)
        };
        let properties = self.section(offset, footer.properties_bytes, "the properties", decode)?;
        Ok(Sections {
            filter,
            index,
            properties,
            footer,
        })
    }

    /// Reads, checks and decodes a section. The footer has bounded it by the file's length.
    fn section<T>(
        &self,
        offset: u64,
        len: u64,
        what: &str,
        decode: impl FnOnce(&[u8]) -> Result<T, Reason>,
    ) -> Result<T> {
        let bytes = usize::try_from(len).unwrap_or(usize::MAX);
        let frame = self.read(offset, bytes)?;
        frame::open_plain(&frame, self.salt, offset)
            .and_then(decode)
            .map_err(|reason| self.corrupt(offset, what, reason))
    }

    /// An error about something that begins at `offset`.
    #[cold]
    pub(super) fn corrupt(&self, offset: u64, what: &str, reason: Reason) -> Error {
        Error::corrupt(&self.path, offset, format!("{what}: {reason}"))
    }
}
