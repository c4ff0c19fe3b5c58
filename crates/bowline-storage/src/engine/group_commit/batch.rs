//! The encoding of one transaction's writes, in the log and on the way into the memtable.
//!
//! ```text
//! format u8 = 1 | revision varint | operations until the end:
//!     tree u8 | kind u8 | key length varint | key | (Put only) value length varint | value
//! ```

use crate::codec::{Reader, put_bytes, put_varint, varint_len};
use crate::{EntryKind, Revision, TreeId};

const FORMAT: u8 = 1;

/// Writes a batch into a reused buffer.
#[derive(Debug)]
pub struct BatchWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> BatchWriter<'a> {
    /// Clears `out` and starts a batch that commits at `revision`.
    pub fn start(out: &'a mut Vec<u8>, revision: Revision) -> BatchWriter<'a> {
        out.clear();
        out.push(FORMAT);
        put_varint(out, revision);
        BatchWriter { out }
    }

    /// Continues a batch that was started in `out`.
    pub fn resume(out: &'a mut Vec<u8>) -> BatchWriter<'a> {
        BatchWriter { out }
    }

    /// Sets a key. The value is passed in two parts, so that the caller need not join them.
    pub fn put(&mut self, tree: TreeId, key: &[u8], head: &[u8], tail: &[u8]) {
        self.out.extend_from_slice(&[tree.0, EntryKind::Put as u8]);
        put_bytes(self.out, key);
        put_varint(self.out, (head.len() + tail.len()) as u64);
        self.out.extend_from_slice(head);
        self.out.extend_from_slice(tail);
    }

    /// Deletes a key.
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) {
        self.out
            .extend_from_slice(&[tree.0, EntryKind::Delete as u8]);
        put_bytes(self.out, key);
    }

    /// The bytes that [`BatchWriter::delete`] appends for a key of this length.
    #[must_use]
    pub fn deletion_bytes(key_len: usize) -> u64 {
        2 + (varint_len(key_len as u64) + key_len) as u64
    }
}

/// One operation of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation<'a> {
    /// The tree.
    pub tree: TreeId,
    /// Put or delete.
    pub kind: EntryKind,
    /// The key.
    pub key: &'a [u8],
    /// The value; empty for a delete.
    pub value: &'a [u8],
}

/// Reads a batch.
#[derive(Debug, Clone)]
pub struct BatchReader<'a> {
    reader: Reader<'a>,
    revision: Revision,
}

impl<'a> BatchReader<'a> {
    /// Starts reading; `None` when the bytes are not a batch of this format.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<BatchReader<'a>> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != FORMAT {
            return None;
        }
        let revision = reader.varint()?;
        Some(BatchReader { reader, revision })
    }

    /// The revision the batch commits at.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The bytes of the operations that have not been read yet.
    #[must_use]
    pub fn rest(mut self) -> &'a [u8] {
        self.reader.rest()
    }

    /// The next operation: `Ok(None)` at the end, `Err` when the bytes are damaged.
    pub fn next_operation(&mut self) -> Result<Option<Operation<'a>>, &'static str> {
        if self.reader.is_empty() {
            return Ok(None);
        }
        self.operation()
            .map(Some)
            .ok_or("an operation of the batch does not decode")
    }

    fn operation(&mut self) -> Option<Operation<'a>> {
        let tree = TreeId(self.reader.u8()?);
        let kind = EntryKind::from_byte(self.reader.u8()?)?;
        let key = self.reader.bytes()?;
        let value = match kind {
            EntryKind::Put => self.reader.bytes()?,
            EntryKind::Delete => &[],
        };
        Some(Operation {
            tree,
            kind,
            key,
            value,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_round_trip_and_refuse_damage() {
        let mut bytes = vec![9; 3];
        let mut writer = BatchWriter::start(&mut bytes, 300);
        writer.put(TreeId(1), b"key", b"he", b"llo");
        writer.delete(TreeId(0), b"gone");
        let mut reader = BatchReader::new(&bytes).unwrap();
        assert_eq!(reader.revision(), 300);
        let put = reader.next_operation().unwrap().unwrap();
        assert_eq!(
            (put.tree, put.key, put.value),
            (TreeId(1), &b"key"[..], &b"hello"[..])
        );
        let delete = reader.next_operation().unwrap().unwrap();
        assert_eq!((delete.kind, delete.key), (EntryKind::Delete, &b"gone"[..]));
        assert_eq!(reader.next_operation(), Ok(None));
        for cut in 0..bytes.len() {
            let Some(mut reader) = BatchReader::new(&bytes[..cut]) else {
                continue;
            };
            while let Ok(Some(_)) = reader.next_operation() {}
        }
        assert!(BatchReader::new(&[2, 1]).is_none(), "unknown format");
    }

    #[test]
    fn the_bytes_of_a_deletion_are_known_before() {
        for len in [0, 1, 127, 128, 16_383, 16_384, 1 << 20] {
            let mut bytes = Vec::new();
            BatchWriter::resume(&mut bytes).delete(TreeId(0), &vec![7; len]);
            assert_eq!(BatchWriter::deletion_bytes(len), bytes.len() as u64);
        }
    }
}
