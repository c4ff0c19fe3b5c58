//! Reads the pages of a table one after the other, in large chunks, past the page cache.
//!
//! A chunk is as many whole pages as fit into [`CHUNK_BYTES`], at least one: no byte is read
//! twice. Pages that are stored plain share the chunk's memory.

use bytes::Bytes;

use super::index::Index;
use super::page::Page;
use super::reader::TableFile;
use crate::counters::Counter;
use crate::error::Result;

/// How much is read at once.
const CHUNK_BYTES: usize = 256 << 10;

/// The pages that were read ahead.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    chunk: Bytes,
    /// Where the chunk begins in the file.
    offset: u64,
}

impl ReadAhead {
    /// A page. Bytes read from disk are added to `bytes_read`.
    pub(super) fn page(
        &mut self,
        file: &TableFile,
        index: &Index,
        number: usize,
        bytes_read: &Counter,
    ) -> Result<Page> {
        let location = index.location(number);
        let held = self.offset..self.offset + self.chunk.len() as u64;
        if !held.contains(&location.offset) {
            let mut len = location.stored_bytes;
            for next in number + 1..index.len() {
                let more = index.location(next).stored_bytes;
                if len + more > CHUNK_BYTES {
                    break;
                }
                len += more;
            }
            self.chunk = file.read(location.offset, len)?.into();
            self.offset = location.offset;
            bytes_read.add(len as u64);
        }
        // Chunks hold whole pages only, so the page that begins in this one also ends in it.
        let start = (location.offset - self.offset) as usize;
        file.open_page(
            self.chunk.slice(start..start + location.stored_bytes),
            location,
        )
    }
}
