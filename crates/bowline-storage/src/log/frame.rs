//! One frame: a group of entries with its checksums, bound to its segment's life and its place.
//!
//! ```text
//!  0        4            8          12         16            24              32            36   37   40
//! ┌────────┬────────────┬──────────┬──────────┬─────────────┬───────────────┬─────────────┬────┬────┐
//! │ tag    │ header crc │ body len │ body crc │ first index │ synced offset │ entry count │kind│ 0  │ body …
//! └────────┴────────────┴──────────┴──────────┴─────────────┴───────────────┴─────────────┴────┴────┘
//! ```
//!
//! The body is `varint length, payload` per entry, then zeros up to a multiple of eight; the body
//! checksum covers those zeros too. Both checksums start from a seed of segment id, salt and the
//! frame's offset. The header has its own checksum. So a search through damaged bytes checks each
//! header once and never follows a damaged length, and an intact header says what was synced even when
//! its body is torn.

use crate::codec::Reader;
use crate::types::Index;

/// Bytes before a frame's body.
pub(super) const FRAME_HEADER_BYTES: usize = 40;
/// Frames start at multiples of this.
pub(super) const FRAME_ALIGN: usize = 8;
/// The body of a `Begin` frame: an offset.
const BEGIN_BODY_BYTES: usize = 8;
/// Bytes of a `Begin` frame.
pub(super) const BEGIN_BYTES: usize = FRAME_HEADER_BYTES + BEGIN_BODY_BYTES;
/// The smallest unit that a disk writes or loses as a whole.
const SECTOR_BYTES: u64 = 512;
/// The maximum length of [`vouch_frames`].
pub(super) const VOUCH_BYTES_MAX: usize = 2 * SECTOR_BYTES as usize;
/// The longest body: groups beyond it are refused.
pub(super) const BODY_BYTES_MAX: u64 = 1 << 30;

/// Indices and segment ids stay below this, so that the next one always exists. At a thousand
/// million entries a second a log gets there in 146 years.
pub(super) const NUMBER_LIMIT: u64 = 1 << 62;

const _: () = assert!(FRAME_HEADER_BYTES.is_multiple_of(FRAME_ALIGN));
const _: () = assert!((SECTOR_BYTES as usize).is_multiple_of(FRAME_ALIGN));
const _: () = assert!(BODY_BYTES_MAX <= u32::MAX as u64);

/// Distinguishes the frames of one life of a segment from all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Life {
    seed: u32,
    tag: u32,
}

impl Life {
    pub(super) fn new(segment_id: u64, salt: u64) -> Life {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&segment_id.to_le_bytes());
        bytes[8..].copy_from_slice(&salt.to_le_bytes());
        // Two unrelated functions: two lives agree in both with probability 2^-63. The lowest bit
        // keeps a tag from being zero, so unwritten space is refused by the first comparison.
        let tag = xxhash_rust::xxh3::xxh3_64(&bytes) as u32 | 1;
        Life {
            seed: crc32c::crc32c(&bytes),
            tag,
        }
    }

    /// Whether `bytes` begin as a frame of this life does.
    pub(super) fn is_tag(self, bytes: &[u8]) -> bool {
        bytes.starts_with(&self.tag.to_le_bytes())
    }

    /// Writes the tag and the checksums of this life and place into the frame at the beginning of `bytes`;
    /// returns its length. `None` when its body is not there.
    #[cfg(any(test, fuzzing))]
    pub(super) fn repair(self, bytes: &mut [u8], offset: u64) -> Option<usize> {
        let body_len = Reader::new(bytes.get(8..)?).u32()? as usize;
        let end = FRAME_HEADER_BYTES + body_len.next_multiple_of(FRAME_ALIGN);
        let body_crc = self.checksum(offset, bytes.get(FRAME_HEADER_BYTES..end)?);
        bytes[12..16].copy_from_slice(&body_crc.to_le_bytes());
        self.repair_header(bytes, offset)?;
        Some(end)
    }

    /// [`Life::repair`] for the header alone: whatever it says of the body stays.
    #[cfg(any(test, fuzzing))]
    pub(super) fn repair_header(self, bytes: &mut [u8], offset: u64) -> Option<()> {
        let header_crc = self.checksum(offset, bytes.get(8..FRAME_HEADER_BYTES)?);
        bytes[0..4].copy_from_slice(&self.tag.to_le_bytes());
        bytes[4..8].copy_from_slice(&header_crc.to_le_bytes());
        Some(())
    }

    fn checksum(self, offset: u64, bytes: &[u8]) -> u32 {
        let seed = crc32c::crc32c_append(self.seed, &offset.to_le_bytes());
        crc32c::crc32c_append(seed, bytes)
    }
}

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum FrameKind {
    /// Appends entries from its first index on.
    Data = 1,
    /// Voids every entry from its first index on that comes before it.
    Cut = 2,
    /// The log was closed cleanly: everything before is synced, nothing follows in this segment.
    Seal = 3,
    /// A further segment exists. Stands in the header page ([`super::segment`]); a log of before
    /// version 2 has it behind the last frame.
    Continued = 4,
    /// A segment that was prepared ahead begins: its index is the first one, its body the offset at
    /// which the segment before ends.
    Begin = 5,
    /// Only says that everything before its synced offset is synced. Its body is zeros that fill a
    /// sector, so that the next frame is not lost together with the frames that it vouches for.
    Vouch = 6,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<FrameKind> {
        match byte {
            1 => Some(FrameKind::Data),
            2 => Some(FrameKind::Cut),
            3 => Some(FrameKind::Seal),
            4 => Some(FrameKind::Continued),
            5 => Some(FrameKind::Begin),
            6 => Some(FrameKind::Vouch),
            _ => None,
        }
    }
}

/// The fixed part of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FrameHeader {
    pub(super) kind: FrameKind,
    /// Data: index of the first entry. Cut: the first void index. Otherwise the next index.
    pub(super) first_index: Index,
    pub(super) entry_count: u32,
    /// Bytes of the entries, without padding.
    pub(super) body_len: u32,
    body_crc: u32,
    /// Everything before this offset of the segment was known to be synced when the frame was
    /// written.
    pub(super) synced_offset: u64,
}

impl FrameHeader {
    /// Reads the header at `offset`; `None` when there is no frame of this life at this place.
    pub(super) fn decode(bytes: &[u8], life: Life, offset: u64) -> Option<FrameHeader> {
        let bytes = bytes.get(..FRAME_HEADER_BYTES)?;
        let mut reader = Reader::new(bytes);
        if reader.u32()? != life.tag || reader.u32()? != life.checksum(offset, &bytes[8..]) {
            return None;
        }
        let body_len = reader.u32()?;
        let body_crc = reader.u32()?;
        let first_index = reader.u64()?;
        let synced_offset = reader.u64()?;
        let entry_count = reader.u32()?;
        let kind = FrameKind::from_byte(reader.u8()?)?;
        let shape_fits = match kind {
            FrameKind::Data => entry_count > 0 && body_len >= entry_count,
            FrameKind::Begin => entry_count == 0 && body_len as usize == BEGIN_BODY_BYTES,
            FrameKind::Vouch => entry_count == 0 && body_len < VOUCH_BYTES_MAX as u32,
            _ => entry_count == 0 && body_len == 0,
        };
        let indices_fit = first_index > 0 && first_index < NUMBER_LIMIT - u64::from(entry_count);
        let fits = shape_fits
            && indices_fit
            && reader.rest() == [0; 3]
            && synced_offset <= offset
            && u64::from(body_len) <= BODY_BYTES_MAX;
        fits.then_some(FrameHeader {
            kind,
            first_index,
            entry_count,
            body_len,
            body_crc,
            synced_offset,
        })
    }

    /// Bytes of the body with its padding.
    pub(super) fn padded_body_len(&self) -> usize {
        (self.body_len as usize).next_multiple_of(FRAME_ALIGN)
    }

    /// Bytes of the whole frame.
    pub(super) fn frame_len(&self) -> u64 {
        (FRAME_HEADER_BYTES + self.padded_body_len()) as u64
    }

    /// The index after the frame's last entry.
    pub(super) fn end_index(&self) -> Index {
        self.first_index + u64::from(self.entry_count)
    }

    /// Whether `padded_body` is the body this header was written with.
    pub(super) fn body_matches(&self, padded_body: &[u8], life: Life, offset: u64) -> bool {
        padded_body.len() == self.padded_body_len()
            && life.checksum(offset, padded_body) == self.body_crc
    }
}

/// Turns `buffer` into a frame: room for the header, then the body, is already in it.
///
/// # Panics
/// When the body is longer than [`BODY_BYTES_MAX`] or the room for the header is missing.
pub(super) fn finish_frame(
    buffer: &mut Vec<u8>,
    life: Life,
    offset: u64,
    kind: FrameKind,
    first_index: Index,
    entry_count: u32,
    synced_offset: u64,
) {
    assert!(buffer.len() as u64 <= BODY_BYTES_MAX + FRAME_HEADER_BYTES as u64);
    assert!(synced_offset <= offset && offset.is_multiple_of(FRAME_ALIGN as u64));
    let body_len = (buffer.len() - FRAME_HEADER_BYTES) as u32;
    buffer.resize(buffer.len().next_multiple_of(FRAME_ALIGN), 0);
    let body_crc = life.checksum(offset, &buffer[FRAME_HEADER_BYTES..]);
    let header = &mut buffer[..FRAME_HEADER_BYTES];
    header[0..4].copy_from_slice(&life.tag.to_le_bytes());
    header[8..12].copy_from_slice(&body_len.to_le_bytes());
    header[12..16].copy_from_slice(&body_crc.to_le_bytes());
    header[16..24].copy_from_slice(&first_index.to_le_bytes());
    header[24..32].copy_from_slice(&synced_offset.to_le_bytes());
    header[32..36].copy_from_slice(&entry_count.to_le_bytes());
    header[36] = kind as u8;
    header[37..40].fill(0);
    let header_crc = life.checksum(offset, &header[8..]);
    header[4..8].copy_from_slice(&header_crc.to_le_bytes());
}

/// A frame without entries.
pub(super) fn bare_frame(
    life: Life,
    offset: u64,
    kind: FrameKind,
    index: Index,
    synced_offset: u64,
) -> Vec<u8> {
    let mut buffer = vec![0; FRAME_HEADER_BYTES];
    finish_frame(&mut buffer, life, offset, kind, index, 0, synced_offset);
    buffer
}

/// The first frame of a segment that was prepared ahead, at `offset`.
pub(super) fn begin_frame(
    life: Life,
    offset: u64,
    first_index: Index,
    end_offset_before: u64,
) -> Vec<u8> {
    let mut buffer = vec![0; FRAME_HEADER_BYTES];
    buffer.extend_from_slice(&end_offset_before.to_le_bytes());
    finish_frame(
        &mut buffer,
        life,
        offset,
        FrameKind::Begin,
        first_index,
        0,
        offset,
    );
    buffer
}

/// Frames that vouch for everything before `offset`, which is synced: one that fills the rest of the
/// sector, and one at the beginning of the next sector. If the disk loses the sector of the last group,
/// the second frame is left.
pub(super) fn vouch_frames(life: Life, offset: u64, next_index: Index) -> Vec<u8> {
    let mut fill = (SECTOR_BYTES - offset % SECTOR_BYTES) as usize;
    if fill < FRAME_HEADER_BYTES {
        fill += SECTOR_BYTES as usize;
    }
    let mut bytes = vec![0; fill];
    let kind = FrameKind::Vouch;
    finish_frame(&mut bytes, life, offset, kind, next_index, 0, offset);
    let second = offset + fill as u64;
    bytes.extend(bare_frame(life, second, kind, next_index, offset));
    bytes
}

/// The entries of a body whose checksum held.
pub(super) struct Entries<'a> {
    reader: Reader<'a>,
    next: Index,
    end: Index,
}

impl<'a> Entries<'a> {
    pub(super) fn new(header: &FrameHeader, body: &'a [u8]) -> Entries<'a> {
        Entries {
            reader: Reader::new(body),
            next: header.first_index,
            end: header.end_index(),
        }
    }

    /// Whether all entries were read and nothing is left over.
    pub(super) fn is_complete(&self) -> bool {
        self.next == self.end && self.reader.is_empty()
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (Index, &'a [u8]);

    fn next(&mut self) -> Option<(Index, &'a [u8])> {
        if self.next == self.end {
            return None;
        }
        let payload = self.reader.bytes()?;
        let index = self.next;
        self.next += 1;
        Some((index, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::put_bytes;

    fn frame(life: Life, offset: u64) -> Vec<u8> {
        let mut buffer = vec![0; FRAME_HEADER_BYTES];
        put_bytes(&mut buffer, b"first");
        put_bytes(&mut buffer, b"");
        finish_frame(&mut buffer, life, offset, FrameKind::Data, 7, 2, 4096);
        buffer
    }

    fn accepted(bytes: &[u8], life: Life, offset: u64) -> Option<FrameHeader> {
        let header = FrameHeader::decode(bytes, life, offset)?;
        header
            .body_matches(&bytes[FRAME_HEADER_BYTES..], life, offset)
            .then_some(header)
    }

    #[test]
    fn a_frame_reads_back_as_written() {
        let life = Life::new(1, 2);
        let bytes = frame(life, 4096);
        let header = accepted(&bytes, life, 4096).expect("valid");
        assert_eq!((header.first_index, header.end_index()), (7, 9));
        assert_eq!(header.frame_len(), bytes.len() as u64);
        let body = &bytes[FRAME_HEADER_BYTES..][..header.body_len as usize];
        let mut entries = Entries::new(&header, body);
        assert_eq!(entries.next(), Some((7, &b"first"[..])));
        assert_eq!(entries.next(), Some((8, &b""[..])));
        assert!(entries.next().is_none() && entries.is_complete());
    }

    /// The second frame is complete in its own sector, for every offset of the first.
    #[test]
    fn what_vouches_is_not_in_the_sector_of_what_it_vouches_for() {
        let life = Life::new(1, 2);
        for offset in (4096..4096 + 2 * SECTOR_BYTES).step_by(FRAME_ALIGN) {
            let bytes = vouch_frames(life, offset, 7);
            assert!(bytes.len() <= VOUCH_BYTES_MAX);
            let first = accepted_part(&bytes, life, offset).expect("valid");
            let second_at = offset + first.frame_len();
            let rest = &bytes[first.frame_len() as usize..];
            let second = accepted_part(rest, life, second_at).expect("valid");
            assert_eq!(second.frame_len() as usize, rest.len());
            assert!(second_at.is_multiple_of(SECTOR_BYTES) && second_at > offset);
            for frame in [first, second] {
                assert_eq!((frame.kind, frame.end_index()), (FrameKind::Vouch, 7));
                assert_eq!(frame.synced_offset, offset);
            }
        }
    }

    fn accepted_part(bytes: &[u8], life: Life, offset: u64) -> Option<FrameHeader> {
        let header = FrameHeader::decode(bytes, life, offset)?;
        accepted(&bytes[..header.frame_len() as usize], life, offset)
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let life = Life::new(1, 2);
        let bytes = frame(life, 4096);
        for position in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[position / 8] ^= 1 << (position % 8);
            assert_eq!(accepted(&damaged, life, 4096), None, "bit {position}");
        }
    }

    #[test]
    fn a_frame_of_another_life_or_place_is_refused() {
        let bytes = frame(Life::new(1, 2), 4096);
        assert!(
            accepted(&bytes, Life::new(1, 3), 4096).is_none(),
            "other salt"
        );
        assert!(
            accepted(&bytes, Life::new(2, 2), 4096).is_none(),
            "other segment"
        );
        assert!(
            accepted(&bytes, Life::new(1, 2), 8192).is_none(),
            "other offset"
        );
        assert!(
            accepted(&[0; 64], Life::new(0, 0), 0).is_none(),
            "unwritten space"
        );
    }
}
