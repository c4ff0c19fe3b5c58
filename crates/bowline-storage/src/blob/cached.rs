//! Reads of a blob file through the page cache.

use super::RECORD_HEAD_BYTES;
use super::chunk::{CHUNK_BYTES, Chunk, Loaded, RECORD_BYTES_MAX};
use super::file::{BlobFile, check_head};
use super::pointer::BlobPointer;
use crate::cache::Held;
use crate::frame::Payload;
use crate::value::Value;

/// A walk through a file: the chunk that was read last is there also if the cache has no room for it.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// The chunk, and its number.
    held: Option<(u64, Held<Chunk>)>,
    /// Whether the values near the one that is read are wanted, too.
    pub(super) goes_on: bool,
}

impl BlobFile {
    /// The value of an entry, if its record lies in chunks that are in memory, or are worth to be. What is not found, or
    /// is damaged in memory, is to be read for itself.
    pub(super) fn find(
        &self,
        pointer: &BlobPointer,
        owner: u64,
        walk: Option<&mut Walk>,
    ) -> Option<Loaded> {
        if pointer.record_bytes > RECORD_BYTES_MAX {
            return None;
        }
        let (at, len) = (pointer.offset % CHUNK_BYTES, pointer.record_bytes);
        let at = at as usize;
        let end = at + len as usize;
        if end > CHUNK_BYTES as usize {
            return self.find_across(pointer, owner, walk);
        }
        let chunk = self.chunk(pointer.offset / CHUNK_BYTES, walk)?;
        let record = chunk.bytes().get(at..end)?;
        let payload = if chunk.is_checked(at) {
            check_head(record, pointer, owner).ok()?;
            Payload::Plain(usize::try_from(pointer.value_bytes).ok()?)
        } else {
            self.open_record(record, pointer, owner).ok()?
        };
        Some(match payload {
            Payload::Plain(len) => {
                chunk.note_checked(at);
                let start = at + RECORD_HEAD_BYTES;
                let range = start..start + len;
                Loaded::InChunk { chunk, range }
            }
            Payload::Decompressed(bytes) => Loaded::Owned(Value::from(bytes)),
        })
    }

    /// [`BlobFile::find`] of a record that lies in two chunks. It is checked each time, as each of them may go and be read
    /// again.
    fn find_across(
        &self,
        pointer: &BlobPointer,
        owner: u64,
        mut walk: Option<&mut Walk>,
    ) -> Option<Loaded> {
        let number = pointer.offset / CHUNK_BYTES;
        let mut record = Vec::with_capacity(pointer.record_bytes as usize);
        let at = (pointer.offset % CHUNK_BYTES) as usize;
        let first = self.chunk(number, walk.as_deref_mut())?;
        record.extend_from_slice(first.bytes().get(at..)?);
        let rest = (pointer.record_bytes as usize).checked_sub(record.len())?;
        let second = self.chunk(number + 1, walk)?;
        record.extend_from_slice(second.bytes().get(..rest)?);
        self.open_owned(record, pointer, owner).ok()
    }

    /// A chunk from its place in memory, or from the disk into its place if it is worth it.
    fn chunk(&self, number: u64, walk: Option<&mut Walk>) -> Option<Held<Chunk>> {
        let place = usize::try_from(number).ok()?;
        let Some(walk) = walk else {
            return match self.shelf.get(place) {
                Some(chunk) => Some(chunk),
                None => self.load_chunk(place, false),
            };
        };
        if let Some((held, chunk)) = &mut walk.held
            && *held == number
        {
            return Some(chunk.share());
        }
        let mut chunk = match self.shelf.get(place) {
            Some(chunk) => chunk,
            None => self.load_chunk(place, walk.goes_on)?,
        };
        walk.held = Some((number, chunk.share()));
        Some(chunk)
    }

    #[cold]
    fn load_chunk(&self, place: usize, is_wanted: bool) -> Option<Held<Chunk>> {
        if !is_wanted && !self.shelf.is_wanted_again(place, CHUNK_BYTES as usize) {
            return None;
        }
        let start = place as u64 * CHUNK_BYTES;
        let len = CHUNK_BYTES.min(self.records_end().checked_sub(start)?);
        // What cannot be read need not be where the value is.
        let bytes = self.bytes_at(start, len).ok()?;
        self.bytes_read().add(len);
        Some(self.shelf.put(place, Chunk::new(bytes)))
    }
}
