//! An open blob file: its records, one at a time or all of them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::chunk::{CHUNK_BYTES, Chunk, Loaded};
use super::meta::{BlobMeta, FOOTER_BYTES, FORMAT_VERSION, HEADER_BYTES, newer_version};
use super::{BlobPointer, RECORD_HEAD_BYTES, owner_of};
use crate::cache::{PageCache, Shelf};
use crate::counters::{Counter, Counters};
use crate::error::{Error, Result};
use crate::frame::{self, OVERHEAD_BYTES, Payload, Reason};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::types::Revision;
use crate::value::Value;
use crate::vfs::{self, OpenMode, Vfs, VfsFile};

/// How much is read at once of a file that is read as a whole.
const VERIFIED_BYTES: u64 = 256 << 10;
const RECORD_BYTES_MIN: u64 = (RECORD_HEAD_BYTES + OVERHEAD_BYTES) as u64;

/// The content of a verified blob file, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlobReport {
    /// Values.
    pub records: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
}

/// An open blob file. It is kept as `Arc<BlobFile>` by the versions whose tables refer to it.
#[derive(Debug)]
pub(crate) struct BlobFile {
    vfs: Arc<dyn Vfs>,
    file: Arc<dyn VfsFile>,
    path: PathBuf,
    meta: BlobMeta,
    /// Its chunks in memory.
    pub(super) shelf: Arc<Shelf<Chunk>>,
    counters: Arc<Counters>,
    obsolete: AtomicBool,
}

impl BlobFile {
    /// Opens a blob file and checks that it is the one the manifest means by `expected`.
    pub fn open(
        vfs: &Arc<dyn Vfs>,
        path: PathBuf,
        expected: &BlobMeta,
        cache: Arc<PageCache>,
        counters: Arc<Counters>,
    ) -> Result<BlobFile> {
        let file = vfs
            .open(&path, OpenMode::Read)
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => Error::MissingFile {
                    path: path.clone(),
                    reason: format!(
                        "the manifest names it as a blob file of {} values",
                        expected.records
                    ),
                },
                _ => Error::io("open", &path, error),
            })?;
        let chunks = expected.records_end().div_ceil(CHUNK_BYTES);
        let chunks = usize::try_from(chunks).unwrap_or(usize::MAX);
        let blob = BlobFile {
            vfs: vfs.clone(),
            file,
            path,
            meta: expected.clone(),
            shelf: Arc::new(Shelf::new(expected.file_id, chunks, cache)),
            counters,
            obsolete: AtomicBool::new(false),
        };
        blob.check_ends()?;
        Ok(blob)
    }

    /// The properties of the file.
    #[must_use]
    pub fn meta(&self) -> &BlobMeta {
        &self.meta
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The value of an entry, read on behalf of a reader.
    pub fn read(&self, pointer: &BlobPointer, key: &[u8], revision: Revision) -> Result<Loaded> {
        self.check_place(pointer)?;
        let owner = owner_of(key, revision);
        match self.find(pointer, owner, None) {
            Some(found) => Ok(found),
            None => self.read_record(pointer, owner),
        }
    }

    /// The value of an entry, read for itself.
    fn read_record(&self, pointer: &BlobPointer, owner: u64) -> Result<Loaded> {
        let record = self.bytes_at(pointer.offset, pointer.record_bytes)?;
        self.counters.read_bytes.add(pointer.record_bytes);
        self.open_owned(record, pointer, owner)
            .map_err(|reason| self.refuse(pointer.offset, reason))
    }

    /// Bytes in memory for the places of chunks.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.shelf.memory_bytes()
    }

    /// Reads the whole file again and checks every byte of it.
    pub fn verify(&self) -> Result<BlobReport> {
        self.check_ends()?;
        let end = self.meta.records_end();
        let mut chunk = Vec::new();
        let mut chunk_start = HEADER_BYTES as u64;
        let mut offset = chunk_start;
        let mut content_crc = 0;
        let mut report = BlobReport::default();
        while offset < end {
            let need = |chunk: &mut Vec<u8>, chunk_start: &mut u64, bytes: u64| {
                if bytes > end - offset {
                    return Err(self.corrupt(offset, "a record is cut off"));
                }
                if offset + bytes > *chunk_start + chunk.len() as u64 {
                    *chunk = self.bytes_at(offset, bytes.max(VERIFIED_BYTES).min(end - offset))?;
                    self.counters.read_bytes.add(chunk.len() as u64);
                    *chunk_start = offset;
                }
                Ok((offset - *chunk_start) as usize)
            };
            let at = need(&mut chunk, &mut chunk_start, RECORD_BYTES_MIN)?;
            let head = RecordHead::of(&chunk[at..]);
            let head = head.ok_or_else(|| self.corrupt(offset, "a record is cut off"))?;
            let record_bytes = RECORD_HEAD_BYTES as u64 + u64::from(head.frame_bytes);
            let at = need(&mut chunk, &mut chunk_start, record_bytes)?;
            let record = &chunk[at..at + record_bytes as usize];
            let salt = self.meta.salt ^ head.owner;
            let value_bytes = u64::from(head.value_bytes);
            let opened = usize::try_from(value_bytes).map_err(|_| "its length is impossible");
            opened
                .and_then(|len| frame::open(&record[RECORD_HEAD_BYTES..], len, salt, offset))
                .map_err(|reason| self.refuse(offset, reason))?;
            content_crc = crc32c::crc32c_append(content_crc, record);
            report.records += 1;
            report.value_bytes += value_bytes;
            offset += record_bytes;
        }
        let found = (report.records, report.value_bytes, content_crc);
        let meta = &self.meta;
        if found != (meta.records, meta.value_bytes, meta.content_crc) {
            return Err(self.corrupt(end, "its records are not those that the footer counts"));
        }
        Ok(report)
    }

    /// Says that no version of the database needs the file any more: it is removed when the last
    /// user drops it.
    pub(crate) fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// Checks that a pointer leads to somewhere within the records, and to a record that could
    /// hold its value.
    pub(super) fn check_place(&self, pointer: &BlobPointer) -> Result<()> {
        let end = pointer.offset.checked_add(pointer.record_bytes);
        let is_inside = pointer.offset >= HEADER_BYTES as u64
            && pointer.record_bytes >= RECORD_BYTES_MIN
            && end.is_some_and(|end| end <= self.meta.records_end());
        if is_inside && pointer.file_id == self.meta.file_id {
            Ok(())
        } else {
            Err(self.corrupt(pointer.offset, "a pointer leads to outside of its records"))
        }
    }

    /// The bytes from `offset` on. The caller has bounded `len` by the file's length.
    pub(super) fn bytes_at(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len];
        vfs::read_exact_at(&*self.file, &self.path, &mut bytes, offset)?;
        Ok(bytes)
    }

    /// Checks the bytes of a record, and finds its value in them.
    #[inline]
    pub(super) fn open_record(
        &self,
        record: &[u8],
        pointer: &BlobPointer,
        owner: u64,
    ) -> Result<Payload, Reason> {
        check_head(record, pointer, owner)?;
        let len = usize::try_from(pointer.value_bytes).map_err(|_| "it is too long")?;
        let salt = self.meta.salt ^ owner;
        frame::open(&record[RECORD_HEAD_BYTES..], len, salt, pointer.offset)
    }

    /// The value in the bytes of a record, in their memory if it is not compressed.
    pub(super) fn open_owned(
        &self,
        record: Vec<u8>,
        pointer: &BlobPointer,
        owner: u64,
    ) -> Result<Loaded, Reason> {
        Ok(Loaded::Owned(
            match self.open_record(&record, pointer, owner)? {
                Payload::Plain(len) => Value::slice_of(
                    &Bytes::from(record),
                    RECORD_HEAD_BYTES..RECORD_HEAD_BYTES + len,
                ),
                Payload::Decompressed(bytes) => Value::from(bytes),
            },
        ))
    }

    /// The error of a record that could not be opened: damage, or a compression that this build cannot read.
    pub(super) fn refuse(&self, offset: u64, reason: Reason) -> Error {
        match reason {
            frame::NEEDS_ZSTD => Error::Unsupported {
                path: self.path.clone(),
                feature: "zstd",
            },
            _ => self.corrupt(offset, reason),
        }
    }

    pub(super) fn records_end(&self) -> u64 {
        self.meta.records_end()
    }

    /// Where bytes are counted that are read on behalf of readers.
    #[must_use]
    pub(crate) fn bytes_read(&self) -> &Counter {
        &self.counters.read_bytes
    }

    /// The length, the header and the footer agree with the record in the manifest.
    fn check_ends(&self) -> Result<()> {
        let meta = &self.meta;
        let found = self.file.len();
        let found = found.map_err(|e| Error::io("stat", &self.path, e))?;
        if found != meta.file_bytes || found < (HEADER_BYTES + FOOTER_BYTES) as u64 {
            let reason = format!("it has {found} bytes, not {}", meta.file_bytes);
            return Err(Error::corrupt(
                &self.path,
                found.min(meta.file_bytes),
                reason,
            ));
        }
        let mut header = [0; HEADER_BYTES];
        vfs::read_exact_at(&*self.file, &self.path, &mut header, 0)?;
        if header != meta.header() {
            if let Some(found) = newer_version(&header) {
                let (path, supported) = (self.path.clone(), FORMAT_VERSION);
                return Err(Error::NewerFormat {
                    path,
                    found,
                    supported,
                });
            }
            return Err(self.corrupt(0, "its header is not that of the file the manifest names"));
        }
        let mut footer = [0; FOOTER_BYTES];
        let end = meta.records_end();
        vfs::read_exact_at(&*self.file, &self.path, &mut footer, end)?;
        if footer != meta.footer() {
            return Err(self.corrupt(end, "its footer is not that of the file the manifest names"));
        }
        Ok(())
    }

    #[cold]
    fn corrupt(&self, offset: u64, reason: Reason) -> Error {
        Error::corrupt(&self.path, offset, format!("a blob file: {reason}"))
    }
}

impl Drop for BlobFile {
    fn drop(&mut self) {
        if !*self.obsolete.get_mut() {
            return;
        }
        if let Err(error) = self.vfs.remove_file(&self.path) {
            // Not named by the manifest any more, it is removed at the latest when the directory
            // is next opened.
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a blob file");
        }
    }
}

/// Whether the record is that of an entry, and as long as its pointer says.
pub(super) fn check_head(record: &[u8], pointer: &BlobPointer, owner: u64) -> Result<(), Reason> {
    let head = RecordHead::of(record).ok_or("a record is cut off")?;
    if head.owner != owner {
        return Err("the value is that of another entry");
    }
    if head.frame_bytes as usize + RECORD_HEAD_BYTES != record.len()
        || u64::from(head.value_bytes) != pointer.value_bytes
    {
        return Err("the record is not as long as the pointer says");
    }
    Ok(())
}

/// The beginning of a record.
struct RecordHead {
    owner: u64,
    frame_bytes: u32,
    value_bytes: u32,
}

impl RecordHead {
    fn of(record: &[u8]) -> Option<RecordHead> {
        let mut reader = crate::codec::Reader::new(record);
        Some(RecordHead {
            owner: reader.u64()?,
            frame_bytes: reader.u32()?,
            value_bytes: reader.u32()?,
        })
    }
}
