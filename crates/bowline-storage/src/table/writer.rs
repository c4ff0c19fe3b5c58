//! Writes a table: entries in order go in, one file comes out.
//!
//! Pages are built one at a time and collected into writes of about [`WRITE_BYTES`]. What stays
//! in memory until the end is the index and eight bytes per distinct key for the filter.
//!
//! A writer that is dropped before [`TableWriter::finish`] succeeded removes its file: a table
//! either is whole or does not exist. (After a crash, the manifest does not name it.)

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::filter::{Filter, key_hash};
use super::footer::{FOOTER_BYTES, Footer};
use super::index::IndexBuilder;
use super::meta::{Properties, TableMeta};
use super::options::TableOptions;
use super::page::POINTER;
use super::page_builder::PageBuilder;
use crate::blob::BlobPointer;
use crate::error::{Error, Result};
use crate::frame::Compression;
use crate::frame::{FrameWriter, OVERHEAD_BYTES};
use crate::types::{EntryKind, Revision, TreeId};
use crate::value::Value;
use crate::vfs::{self, OpenMode, Vfs, VfsFile};

/// How much is collected for one write.
const WRITE_BYTES: usize = 256 << 10;

/// The most a key and its value may have together. Far above what the layers above let through,
/// and low enough that no offset in a page needs more than 32 bits.
const ENTRY_BYTES_MAX: usize = 1 << 30;

/// The most the keys in an index may have together, for the same reason.
const INDEX_BYTES_MAX: usize = 2 << 30;

/// Writes one table.
#[derive(Debug)]
pub struct TableWriter {
    vfs: Arc<dyn Vfs>,
    file: Arc<dyn VfsFile>,
    path: PathBuf,
    options: TableOptions,
    finished: bool,
    /// Bytes that are in the file, and those that go there next.
    flushed_bytes: u64,
    buffer: Vec<u8>,
    frames: FrameWriter,
    page: PageBuilder,
    index: IndexBuilder,
    key_hashes: Vec<u64>,
    last_key: Vec<u8>,
    last_revision: Revision,
    raw_key_bytes: u64,
    /// A pointer while it is added.
    pointer: Vec<u8>,
    /// Distinct keys.
    keys: u64,
    pub(super) meta: TableMeta,
}

impl TableWriter {
    /// Creates the file, which must not exist. The caller makes its name durable.
    pub fn create(
        vfs: &Arc<dyn Vfs>,
        path: PathBuf,
        file_id: u64,
        tree: TreeId,
        options: &TableOptions,
    ) -> Result<TableWriter> {
        let file = vfs
            .open(&path, OpenMode::CreateNew)
            .map_err(|e| Error::io("create", &path, e))?;
        let page_bytes = options.page_bytes.min(TableOptions::PAGE_BYTES_MAX);
        Ok(TableWriter {
            vfs: vfs.clone(),
            file,
            path,
            options: TableOptions {
                page_bytes,
                ..*options
            },
            finished: false,
            flushed_bytes: 0,
            buffer: Vec::new(),
            frames: FrameWriter::default(),
            page: PageBuilder::new(options.restart_interval),
            index: IndexBuilder::default(),
            key_hashes: Vec::new(),
            last_key: Vec::new(),
            last_revision: 0,
            raw_key_bytes: 0,
            pointer: Vec::new(),
            keys: 0,
            meta: TableMeta {
                file_id,
                salt: fastrand::u64(..),
                tree,
                file_bytes: 0,
                entries: 0,
                tombstones: 0,
                raw_bytes: 0,
                min_key: Value::default(),
                max_key: Value::default(),
                min_revision: 0,
                max_revision: 0,
                content_crc: 0,
            },
        })
    }

    /// Adds an entry: keys ascend, and the revisions of one key descend.
    pub fn add(
        &mut self,
        key: &[u8],
        revision: Revision,
        kind: EntryKind,
        value: &[u8],
    ) -> Result<()> {
        self.add_stored(key, revision, kind, kind as u8, value)
    }

    /// Adds a put whose value lies in a blob file; its head stays with the pointer.
    pub(crate) fn add_pointer(
        &mut self,
        key: &[u8],
        revision: Revision,
        pointer: &BlobPointer,
        head: &[u8],
    ) -> Result<()> {
        let mut stored = std::mem::take(&mut self.pointer);
        stored.clear();
        pointer.encode(head, &mut stored);
        let added = self.add_stored(key, revision, EntryKind::Put, POINTER, &stored);
        self.pointer = stored;
        added
    }

    fn add_stored(
        &mut self,
        key: &[u8],
        revision: Revision,
        kind: EntryKind,
        kind_byte: u8,
        value: &[u8],
    ) -> Result<()> {
        let first = self.meta.entries == 0;
        let new_key = first || self.last_key != key;
        let in_order = first
            || (new_key && self.last_key.as_slice() < key)
            || (!new_key && revision < self.last_revision);
        if !in_order {
            return Err(Error::Internal(format!(
                "{}: key \"{}\" at revision {revision} was added after key \"{}\" at revision {}",
                self.path.display(),
                key.escape_ascii(),
                self.last_key.escape_ascii(),
                self.last_revision,
            )));
        }
        if key.len().saturating_add(value.len()) > ENTRY_BYTES_MAX {
            return Err(Error::Internal(format!(
                "{}: an entry of {} bytes does not fit into a table",
                self.path.display(),
                key.len() + value.len(),
            )));
        }
        if !self.page.is_empty()
            && self.page.len() + PageBuilder::growth(key, revision, value) > self.options.page_bytes
        {
            self.finish_page()?;
        }
        self.page.add_stored(key, revision, kind_byte, value);

        if new_key {
            if self.options.filter_bits_per_key > 0 {
                self.key_hashes.push(key_hash(key));
            }
            // Later versions of the key are older.
            self.meta.max_revision = self.meta.max_revision.max(revision);
            self.keys += 1;
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
        let meta = &mut self.meta;
        if first {
            meta.min_key = Value::copy_from(key);
            meta.min_revision = revision;
        }
        meta.min_revision = meta.min_revision.min(revision);
        meta.entries += 1;
        meta.tombstones += u64::from(kind == EntryKind::Delete);
        meta.raw_bytes += (key.len() + value.len()) as u64;
        self.raw_key_bytes += key.len() as u64;
        self.last_revision = revision;
        Ok(())
    }

    /// About how long the file would be if it ended here, without its filter.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        let page = if self.page.is_empty() {
            0
        } else {
            self.page.len()
        };
        self.position() + (page + self.index.len()) as u64
    }

    /// Entries added so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.meta.entries
    }

    /// The key of the entry added last.
    #[must_use]
    pub fn last_key(&self) -> Option<&[u8]> {
        (self.meta.entries > 0).then_some(&self.last_key)
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the rest of the file and makes the file's content durable; the caller syncs its
    /// directory before it relies on the name.
    pub fn finish(mut self) -> Result<TableMeta> {
        if !self.page.is_empty() {
            self.finish_page()?;
        }
        let pages_bytes = self.position();
        let mut filter_bytes = 0;
        if let Some(filter) = Filter::build(&self.key_hashes, self.options.filter_bits_per_key) {
            let mut section = Vec::with_capacity(filter.memory_bytes());
            filter.encode(&mut section);
            filter_bytes = self.append_section(&section)?;
        }
        let index_bytes = self.append_section(&self.index.finish())?;

        self.meta.max_key = Value::copy_from(&self.last_key);
        let mut properties = Properties {
            meta: self.meta.clone(),
            raw_key_bytes: self.raw_key_bytes,
            keys: self.keys,
            pages: self.index.pages(),
        };
        let mut section = Vec::new();
        properties.encode(&mut section);
        let properties_bytes = (section.len() + OVERHEAD_BYTES) as u64;
        let footer = Footer {
            pages_bytes,
            filter_bytes,
            index_bytes,
            properties_bytes,
        };
        properties.meta.file_bytes = footer.offset() + FOOTER_BYTES as u64;
        section.clear();
        properties.encode(&mut section);
        self.append_section(&section)?;
        footer.encode(&mut self.buffer, self.meta.salt);
        self.flush()?;
        debug_assert_eq!(self.position(), properties.meta.file_bytes);
        vfs::sync_data(&*self.file, &self.path)?;
        self.finished = true;
        Ok(properties.meta)
    }

    /// Gives up: removes the file, as far as that is possible.
    pub(crate) fn abandon(self) {
        drop(self);
    }

    /// Gives up without removing the file, which is not the caller's any more.
    pub fn leave(mut self) {
        self.finished = true;
    }

    /// Where the next byte goes.
    fn position(&self) -> u64 {
        self.flushed_bytes + self.buffer.len() as u64
    }

    fn finish_page(&mut self) -> Result<()> {
        let offset = self.position();
        let page = self.page.finish();
        self.meta.content_crc = crc32c::crc32c_append(self.meta.content_crc, page);
        let stored_bytes = self.frames.append(
            &mut self.buffer,
            page,
            self.options.compression,
            self.meta.salt,
            offset,
        );
        let raw_bytes = page.len();
        self.index.add(
            self.page.last_key(),
            self.last_revision,
            stored_bytes,
            raw_bytes,
        );
        self.page.clear();
        if self.index.len() > INDEX_BYTES_MAX {
            let path = self.path.display();
            return Err(Error::Internal(format!(
                "{path}: the table has too many pages"
            )));
        }
        if self.buffer.len() >= WRITE_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Appends a frame that is not compressed; returns its length.
    fn append_section(&mut self, section: &[u8]) -> Result<u64> {
        let offset = self.position();
        let salt = self.meta.salt;
        let len = self
            .frames
            .append(&mut self.buffer, section, Compression::None, salt, offset);
        self.flush()?;
        Ok(len as u64)
    }

    fn flush(&mut self) -> Result<()> {
        vfs::write_all_at(&*self.file, &self.path, &self.buffer, self.flushed_bytes)?;
        self.flushed_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        if !self.finished {
            // A file that stays is no table of the manifest, and is removed when the directory is
            // next opened.
            let _ = self.vfs.remove_file(&self.path);
        }
    }
}
