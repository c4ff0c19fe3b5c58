//! Reads values one after the other, ahead where they follow each other in a file.

use bytes::Bytes;

use super::file::BlobFile;
use super::pointer::BlobPointer;
use crate::counters::Counter;
use crate::error::Result;
use crate::types::Revision;
use crate::value::Value;

/// How much is read at once of values that follow each other.
const CHUNK_BYTES: u64 = 128 << 10;
/// How much may lie between two values that follow each other.
const GAP_BYTES_MAX: u64 = 32 << 10;

/// Reads values for a scan or a merge: a chunk of 128 KiB and the longest value are all it
/// ever holds.
#[derive(Debug, Default)]
pub(crate) struct BlobReader {
    chunk: Bytes,
    /// The file and place of the chunk.
    chunk_at: (u64, u64),
    /// Behind the value read last.
    next: Option<(u64, u64)>,
}

impl BlobReader {
    /// The value of an entry. Bytes read from disk are added to `bytes_read`.
    pub fn read(
        &mut self,
        file: &BlobFile,
        pointer: &BlobPointer,
        key: &[u8],
        revision: Revision,
        bytes_read: &Counter,
    ) -> Result<Value> {
        file.check_place(pointer)?;
        let BlobPointer {
            file_id,
            offset,
            record_bytes,
            ..
        } = *pointer;
        let end = offset + record_bytes;
        let (chunk_file, chunk_start) = self.chunk_at;
        let chunk_end = chunk_start + self.chunk.len() as u64;
        if file_id != chunk_file || offset < chunk_start || end > chunk_end {
            let follows = self.next.is_some_and(|(file, next)| {
                file == file_id && offset >= next && offset - next <= GAP_BYTES_MAX
            });
            let len = match follows {
                true => record_bytes.max(CHUNK_BYTES.min(file.records_end() - offset)),
                false => record_bytes,
            };
            self.chunk = file.bytes_at(offset, len)?.into();
            self.chunk_at = (file_id, offset);
            bytes_read.add(len);
        }
        self.next = Some((file_id, end));
        let at = (offset - self.chunk_at.1) as usize;
        let record = at..at + record_bytes as usize;
        // A value keeps the memory alive that it was read into.
        let record = match self.chunk.len() > 2 * record.len() {
            true => Bytes::copy_from_slice(&self.chunk[record]),
            false => self.chunk.slice(record),
        };
        file.open_record(&record, pointer, key, revision)
    }
}
