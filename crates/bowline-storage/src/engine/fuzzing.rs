//! Fuzzing of batches and varints; see [`crate::fuzzing`].

use super::group_commit::{BatchReader, BatchWriter};
use crate::codec::{Reader, put_varint, varint_len};
use crate::{EntryKind, TreeId};

/// A batch that reads to its end is written again as the same bytes.
pub fn batch(data: &[u8]) {
    let Some(mut reader) = BatchReader::new(data) else {
        return;
    };
    let mut out = Vec::new();
    let mut writer = BatchWriter::start(&mut out, reader.revision());
    loop {
        match reader.next_operation() {
            Ok(Some(op)) if op.kind == EntryKind::Put => {
                let (head, tail) = op.value.split_at(op.value.len() / 2);
                writer.put(op.tree, op.key, head, tail);
            }
            Ok(Some(op)) => {
                assert!(op.value.is_empty());
                writer.delete(op.tree, op.key);
            }
            Ok(None) => break,
            Err(_) => return,
        }
    }
    assert_eq!(out, data);
}

/// A batch of every kind of operation.
#[cfg_attr(fuzzing, allow(dead_code))]
pub(crate) fn batch_seeds() -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut writer = BatchWriter::start(&mut bytes, 300);
    writer.put(TreeId(0), b"key", b"he", b"llo");
    writer.delete(TreeId(0), b"gone");
    writer.put(TreeId(4), &[b'k'; 200], &[], &[7; 300]);
    vec![bytes]
}

/// Every number has one encoding, and reading past the end moves nothing.
pub fn varints(data: &[u8]) {
    let mut reader = Reader::new(data);
    while !reader.is_empty() {
        let start = reader.position();
        let Some(value) = reader.varint() else {
            assert_eq!(reader.position(), start);
            reader.take(1).expect("there is one");
            continue;
        };
        let mut out = Vec::new();
        put_varint(&mut out, value);
        assert_eq!(out, data[start..reader.position()]);
        assert_eq!(out.len(), varint_len(value));
        let mut again = Reader::new(&data[start..]);
        assert_eq!(again.varint_u32(), u32::try_from(value).ok());
    }
    let mut reader = Reader::new(data);
    while let Some(bytes) = reader.bytes() {
        assert!(bytes.len() < data.len());
    }
    assert!(reader.take(usize::MAX).is_none() || data.is_empty());
}
