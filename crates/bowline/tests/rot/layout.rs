//! Where the parts of a sound file lie, after `docs/format.md` and independent of the program.

use std::ops::Range;

/// A frame of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    pub at: Range<usize>,
    pub is_data: bool,
    /// What a segment that was prepared ahead begins with.
    pub is_begin: bool,
    pub first_index: u64,
    /// The revision of its first entry; 0 when it has none.
    pub revision: u64,
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn varint(bytes: &[u8], at: &mut usize) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes[*at];
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// The frames of a segment.
pub fn log_frames(path: &str, bytes: &[u8]) -> Vec<Frame> {
    let name = path.rsplit('/').next().expect("a name");
    let id = u64::from_str_radix(name.trim_end_matches(".log"), 16).expect("a segment's name");
    let mut life = id.to_le_bytes().to_vec();
    life.extend_from_slice(&bytes[24..32]);
    let tag = xxhash_rust::xxh3::xxh3_64(&life) as u32 as usize | 1;
    let mut frames = Vec::new();
    let mut at = 4096;
    while at + 40 <= bytes.len() && u32_at(bytes, at) == tag {
        let end = at + 40 + u32_at(bytes, at + 8).next_multiple_of(8);
        let is_data = bytes[at + 36] == 1;
        let mut revision = 0;
        if is_data {
            // The first entry's length and version, then its revision.
            let mut inside = at + 40;
            varint(bytes, &mut inside);
            inside += 1;
            revision = varint(bytes, &mut inside);
        }
        frames.push(Frame {
            at: at..end,
            is_data,
            is_begin: bytes[at + 36] == 5,
            first_index: u64_at(bytes, at + 16),
            revision,
        });
        at = end;
    }
    frames
}

/// The records of a manifest, without what fills them up to a multiple of eight.
pub fn manifest_records(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut records = Vec::new();
    let mut at = 16;
    while at + 8 <= bytes.len() {
        let end = at + 8 + u32_at(bytes, at);
        records.push(at..end);
        at = end.next_multiple_of(8);
    }
    records
}

/// Pages, filter, index, properties and footer of a table.
pub fn table_parts(bytes: &[u8]) -> [Range<usize>; 5] {
    let footer = bytes.len() - 52;
    let mut start = 0;
    let mut part = |number: usize| {
        let range = start..start + u64_at(bytes, footer + 8 * number) as usize;
        start = range.end;
        range
    };
    [part(0), part(1), part(2), part(3), footer..bytes.len()]
}

/// The frames of a table's pages.
pub fn page_frames(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut at = table_parts(bytes)[2].start;
    let mut frames: Vec<Range<usize>> = Vec::new();
    for _ in 0..varint(bytes, &mut at) {
        let key = varint(bytes, &mut at) as usize;
        at += key;
        varint(bytes, &mut at);
        let stored = varint(bytes, &mut at) as usize;
        varint(bytes, &mut at);
        let start = frames.last().map_or(0, |frame| frame.end);
        frames.push(start..start + stored);
    }
    frames
}

/// The records of a blob file.
pub fn blob_records(bytes: &[u8]) -> Vec<Range<usize>> {
    let (mut at, end) = (40, bytes.len() - 40);
    let mut records = Vec::new();
    while at < end {
        let start = at;
        at += 16 + u32_at(bytes, at + 8);
        records.push(start..at);
    }
    records
}
