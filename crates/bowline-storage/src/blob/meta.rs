//! The properties of a blob file, known without opening it. The manifest stores it, and the file's header
//! and footer say the same, so that each proves the other.

use crate::codec::{Reader, put_varint};
use crate::types::TreeId;

const HEADER_MAGIC: &[u8; 8] = b"bwlBLOBS";
const FOOTER_MAGIC: &[u8; 8] = b"bwlBLOBE";
/// The newest format this program reads and the one it writes.
pub(super) const FORMAT_VERSION: u32 = 1;
pub(super) const HEADER_BYTES: usize = 40;
pub(super) const FOOTER_BYTES: usize = 40;

/// The properties of a blob file, known without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobMeta {
    /// The number of the file, from the same range as those of tables; never used for another one.
    pub file_id: u64,
    /// Random. Every checksum in the file covers it.
    pub salt: u64,
    /// The tree whose values the file holds.
    pub tree: TreeId,
    /// The length of the file.
    pub file_bytes: u64,
    /// How many values it holds.
    pub records: u64,
    /// Bytes of all values, before compression.
    pub value_bytes: u64,
    /// CRC32C over all records as they are stored, in order.
    pub content_crc: u32,
}

impl BlobMeta {
    /// Bytes of all records, referenced or garbage.
    #[must_use]
    pub(crate) fn record_bytes(&self) -> u64 {
        self.file_bytes
            .saturating_sub((HEADER_BYTES + FOOTER_BYTES) as u64)
    }

    /// Where the records end and the footer begins.
    pub(super) fn records_end(&self) -> u64 {
        self.file_bytes.saturating_sub(FOOTER_BYTES as u64)
    }

    /// Appends the encoding in the manifest.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.file_id);
        out.extend_from_slice(&self.salt.to_le_bytes());
        out.push(self.tree.0);
        put_varint(out, self.file_bytes);
        put_varint(out, self.records);
        put_varint(out, self.value_bytes);
        out.extend_from_slice(&self.content_crc.to_le_bytes());
    }

    /// Reads it back; `None` when the bytes are no such thing.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<BlobMeta> {
        let meta = BlobMeta {
            file_id: reader.varint()?,
            salt: reader.u64()?,
            tree: TreeId(reader.u8()?),
            file_bytes: reader.varint()?,
            records: reader.varint()?,
            value_bytes: reader.varint()?,
            content_crc: reader.u32()?,
        };
        let holds_records = meta.file_bytes > (HEADER_BYTES + FOOTER_BYTES) as u64;
        (holds_records && meta.records > 0).then_some(meta)
    }

    /// The first bytes of the file.
    pub(super) fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(HEADER_MAGIC);
        header[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        header[16..24].copy_from_slice(&self.file_id.to_le_bytes());
        header[24..32].copy_from_slice(&self.salt.to_le_bytes());
        header[32] = self.tree.0;
        let crc = header_crc(&header);
        header[12..16].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// The last bytes of the file.
    pub(super) fn footer(&self) -> [u8; FOOTER_BYTES] {
        let mut footer = [0; FOOTER_BYTES];
        footer[..8].copy_from_slice(&self.records.to_le_bytes());
        footer[8..16].copy_from_slice(&self.records_end().to_le_bytes());
        footer[16..24].copy_from_slice(&self.value_bytes.to_le_bytes());
        footer[24..28].copy_from_slice(&self.content_crc.to_le_bytes());
        let crc = crc32c::crc32c(&footer[..28]);
        let crc = crc32c::crc32c_append(crc, &self.salt.to_le_bytes());
        footer[28..32].copy_from_slice(&crc.to_le_bytes());
        footer[32..].copy_from_slice(FOOTER_MAGIC);
        footer
    }
}

fn header_crc(header: &[u8; HEADER_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..])
}

/// The version of a whole header that is newer than this program, if it is.
pub(super) fn newer_version(header: &[u8; HEADER_BYTES]) -> Option<u32> {
    let word = |at: usize| {
        let bytes = header.get(at..).and_then(|bytes| bytes.first_chunk::<4>());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    let is_sound = header.starts_with(HEADER_MAGIC) && word(12) == header_crc(header);
    (is_sound && word(8) > FORMAT_VERSION).then(|| word(8))
}
