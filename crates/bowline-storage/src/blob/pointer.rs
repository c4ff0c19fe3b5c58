//! A blob pointer: the place of a value in a blob file. The table has it instead of the value.

use super::{HEAD_BYTES, RECORD_HEAD_BYTES};
use crate::codec::{Reader, put_varint};

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlobPointer {
    /// The blob file.
    pub file_id: u64,
    /// Where in the file its record begins, in bytes.
    pub offset: u64,
    /// How long its record is, in bytes.
    pub record_bytes: u64,
    /// How long the value is, in bytes.
    pub value_bytes: u64,
}

impl BlobPointer {
    /// Appends the pointer and the head of the value.
    pub(crate) fn encode(&self, head: &[u8], out: &mut Vec<u8>) {
        put_varint(out, self.file_id);
        put_varint(out, self.offset);
        put_varint(out, self.record_bytes);
        put_varint(out, self.value_bytes);
        out.extend_from_slice(head);
    }

    /// Reads a pointer and the head behind it; `None` when the bytes are no such thing.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(BlobPointer, &[u8])> {
        let mut reader = Reader::new(bytes);
        let pointer = BlobPointer {
            file_id: reader.varint()?,
            offset: reader.varint()?,
            record_bytes: reader.varint()?,
            value_bytes: reader.varint()?,
        };
        let head = reader.rest();
        let is_whole = head.len() as u64 == pointer.value_bytes.min(HEAD_BYTES as u64);
        let ends = pointer.offset.checked_add(pointer.record_bytes).is_some();
        let holds = pointer.record_bytes > RECORD_HEAD_BYTES as u64;
        (is_whole && ends && holds).then_some((pointer, head))
    }

    /// The part of a value that stays in the table.
    pub(crate) fn head_of(value: &[u8]) -> &[u8] {
        &value[..value.len().min(HEAD_BYTES)]
    }
}
