//! Reads values one after the other, ahead where they follow each other in a file: for a scan through the cache of pages, for
//! a merge beside it.

use bytes::Bytes;

use super::cached::Walk;
use super::chunk::Loaded;
use super::file::BlobFile;
use super::meta::HEADER_BYTES;
use super::pointer::BlobPointer;
use super::{RECORD_HEAD_BYTES, owner_of};
use crate::counters::Counter;
use crate::error::Result;
use crate::frame::Payload;
use crate::types::Revision;
use crate::value::Value;

/// How much is read at once of values that follow each other in a file.
const CHUNK_BYTES: u64 = 64 << 10;
/// How much may lie between two values that follow each other.
const GAP_BYTES_MAX: u64 = 32 << 10;
/// Of how many files a reader holds a chunk. Each flush writes a file of its own, so neighbors in the order of keys lie in as
/// many files as there were flushes, and in each of them one behind the other.
const FILES_MAX: usize = 8;

/// Reads values for a scan or a merge, in either direction: 64 KiB of each of eight files are all it ever holds.
#[derive(Debug, Default)]
pub(crate) struct BlobReader {
    /// Whether what it reads comes from the cache, and goes there.
    is_cached: bool,
    files: Vec<Ahead>,
    /// Counts the values: the files read least recently give way.
    reads: u64,
}

/// What is held of a file.
#[derive(Debug)]
struct Ahead {
    file_id: u64,
    /// Through the cache.
    walk: Walk,
    /// What was read beside the cache.
    chunk: Bytes,
    /// The place of `chunk`.
    start: u64,
    /// Where the value read last begins and ends.
    last: Option<(u64, u64)>,
    /// The number of that read.
    used: u64,
}

impl BlobReader {
    /// A reader for a scan.
    pub fn cached() -> BlobReader {
        BlobReader {
            is_cached: true,
            ..BlobReader::default()
        }
    }

    /// The value of an entry. Bytes read from disk are added to `bytes_read`.
    pub fn read(
        &mut self,
        file: &BlobFile,
        pointer: &BlobPointer,
        key: &[u8],
        revision: Revision,
        bytes_read: &Counter,
    ) -> Result<Loaded> {
        file.check_place(pointer)?;
        let owner = owner_of(key, revision);
        let BlobPointer {
            file_id,
            offset,
            record_bytes,
            ..
        } = *pointer;
        let end = offset + record_bytes;
        let is_cached = self.is_cached;
        let ahead = self.ahead_of(file_id);
        if is_cached {
            ahead.walk.goes_on = ahead.is_near(offset, end);
            if let Some(found) = file.find(pointer, owner, Some(&mut ahead.walk)) {
                ahead.last = Some((offset, end));
                return Ok(found);
            }
        }
        if offset < ahead.start || end > ahead.start + ahead.chunk.len() as u64 {
            let (start, len) = ahead.next_chunk(offset, end, file.records_end());
            ahead.chunk = file.bytes_at(start, len)?.into();
            ahead.start = start;
            bytes_read.add(len);
        }
        ahead.last = Some((offset, end));
        let at = (offset - ahead.start) as usize;
        let record = at..at + record_bytes as usize;
        let opened = file.open_record(&ahead.chunk[record.clone()], pointer, owner);
        let value = match opened.map_err(|reason| file.refuse(offset, reason))? {
            Payload::Plain(len) => {
                let start = record.start + RECORD_HEAD_BYTES;
                Value::slice_of(&ahead.chunk, start..start + len)
            }
            Payload::Decompressed(bytes) => Value::from(bytes),
        };
        if record_bytes > CHUNK_BYTES {
            ahead.chunk = Bytes::new();
        }
        Ok(Loaded::Owned(value))
    }

    /// What is held of a file, in the place of another if there is no room.
    fn ahead_of(&mut self, file_id: u64) -> &mut Ahead {
        self.reads += 1;
        let known = self.files.iter().position(|it| it.file_id == file_id);
        let at = known.unwrap_or_else(|| {
            let none = Ahead {
                file_id,
                walk: Walk::default(),
                chunk: Bytes::new(),
                start: 0,
                last: None,
                used: 0,
            };
            let oldest = (0..self.files.len()).min_by_key(|at| self.files[*at].used);
            match oldest.filter(|_| self.files.len() >= FILES_MAX) {
                Some(at) => {
                    self.files[at] = none;
                    at
                }
                None => {
                    self.files.push(none);
                    self.files.len() - 1
                }
            }
        });
        let ahead = &mut self.files[at];
        ahead.used = self.reads;
        ahead
    }
}

impl Ahead {
    /// Whether a record lies shortly behind, or before, the one that was read last.
    fn is_near(&self, offset: u64, end: u64) -> bool {
        let gap = self.last.map(|(start, before)| match before <= offset {
            true => offset - before,
            false => start.saturating_sub(end),
        });
        gap.is_some_and(|gap| gap <= GAP_BYTES_MAX)
    }

    /// Where to read for the record from `offset` to `end`, and how much: beyond it if it follows the one before, or is
    /// followed by it.
    fn next_chunk(&self, offset: u64, end: u64, records_end: u64) -> (u64, u64) {
        let record_bytes = end - offset;
        let alone = (offset, record_bytes);
        let is_near = |gap: u64| gap <= GAP_BYTES_MAX && record_bytes <= CHUNK_BYTES;
        match self.last {
            Some((_, before)) if before <= offset && is_near(offset - before) => {
                let rest = records_end.saturating_sub(offset);
                (offset, CHUNK_BYTES.min(rest).max(record_bytes))
            }
            Some((behind, _)) if end <= behind && is_near(behind - end) => {
                let start = end.saturating_sub(CHUNK_BYTES).max(HEADER_BYTES as u64);
                let start = start.min(offset);
                (start, end - start)
            }
            _ => alone,
        }
    }
}
