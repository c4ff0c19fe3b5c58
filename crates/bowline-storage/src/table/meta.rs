//! The properties of a table, known without opening it. The manifest stores it, and the table's own
//! properties section repeats it, so that each proves the other.

use crate::codec::{Reader, put_bytes, put_varint};
use crate::types::{Revision, TreeId};
use crate::value::Value;

/// The properties of a table, known without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMeta {
    /// The number of the file; never used for another one.
    pub file_id: u64,
    /// Random. Every checksum in the file covers it, so that no part of another table, be it one
    /// of another database with the same number, is taken for one of this.
    pub salt: u64,
    /// The tree whose entries the table holds.
    pub tree: TreeId,
    /// The length of the file.
    pub file_bytes: u64,
    /// Entries of all kinds.
    pub entries: u64,
    /// Entries that say a key is absent.
    pub tombstones: u64,
    /// Bytes of all keys and values, before prefix compression and compression.
    pub raw_bytes: u64,
    /// The smallest key; empty when there are no entries.
    pub min_key: Value,
    /// The largest key; empty when there are no entries.
    pub max_key: Value,
    /// The smallest revision; 0 when there are no entries.
    pub min_revision: Revision,
    /// The largest revision; 0 when there are no entries.
    pub max_revision: Revision,
    /// CRC32C over the contents of all pages, before compression, in order. Tells two tables apart
    /// that agree in everything else, such as one put in another's place.
    pub content_crc: u32,
}

impl TableMeta {
    /// Appends the encoding. Its length does not depend on `file_bytes`, so a file can state its
    /// own length.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.file_id);
        out.extend_from_slice(&self.salt.to_le_bytes());
        out.push(self.tree.0);
        out.extend_from_slice(&self.file_bytes.to_le_bytes());
        put_varint(out, self.entries);
        put_varint(out, self.tombstones);
        put_varint(out, self.raw_bytes);
        put_bytes(out, &self.min_key);
        put_bytes(out, &self.max_key);
        put_varint(out, self.min_revision);
        put_varint(out, self.max_revision);
        out.extend_from_slice(&self.content_crc.to_le_bytes());
    }

    /// Reads what [`TableMeta::encode`] wrote; `None` when the bytes are not such an encoding.
    pub fn decode(reader: &mut Reader<'_>) -> Option<TableMeta> {
        Some(TableMeta {
            file_id: reader.varint()?,
            salt: reader.u64()?,
            tree: TreeId(reader.u8()?),
            file_bytes: reader.u64()?,
            entries: reader.varint()?,
            tombstones: reader.varint()?,
            raw_bytes: reader.varint()?,
            min_key: Value::copy_from(reader.bytes()?),
            max_key: Value::copy_from(reader.bytes()?),
            min_revision: reader.varint()?,
            max_revision: reader.varint()?,
            content_crc: reader.u32()?,
        })
    }
}

/// The properties section: the [`TableMeta`] and the properties that only the table needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Properties {
    pub(super) meta: TableMeta,
    /// Bytes of all keys; the rest of the raw bytes are values.
    pub(super) raw_key_bytes: u64,
    /// Distinct keys.
    pub(super) keys: u64,
    pub(super) pages: u64,
}

impl Properties {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        self.meta.encode(out);
        put_varint(out, self.raw_key_bytes);
        put_varint(out, self.keys);
        put_varint(out, self.pages);
    }

    /// Reads a whole section.
    pub(super) fn decode(section: &[u8]) -> Option<Properties> {
        let mut reader = Reader::new(section);
        let properties = Properties {
            meta: TableMeta::decode(&mut reader)?,
            raw_key_bytes: reader.varint()?,
            keys: reader.varint()?,
            pages: reader.varint()?,
        };
        reader.is_empty().then_some(properties)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_round_trip_and_refuse_every_cut() {
        let meta = TableMeta {
            file_id: 300,
            salt: 0x5A17,
            tree: TreeId(3),
            file_bytes: 1 << 40,
            entries: 1000,
            tombstones: 10,
            raw_bytes: 1 << 39,
            min_key: Value::from("a"),
            max_key: Value::from(vec![b'z'; 500]),
            min_revision: 7,
            max_revision: u64::MAX,
            content_crc: 0xC0FF_EE00,
        };
        let properties = Properties {
            meta,
            raw_key_bytes: 9,
            keys: 999,
            pages: 12,
        };
        let mut bytes = Vec::new();
        properties.encode(&mut bytes);
        assert_eq!(Properties::decode(&bytes), Some(properties));
        for len in 0..bytes.len() {
            assert_eq!(Properties::decode(&bytes[..len]), None);
        }
        bytes.push(0);
        assert_eq!(Properties::decode(&bytes), None);
    }
}
