//! Fuzzing of segments; see [`crate::fuzzing`].
//!
//! ```text
//! flags | 72 bytes: a segment's header without its zeros | what follows the header page
//! ```
//!
//! A second segment may continue it, at an end and an index that the input ends with: one that states
//! them in its header, or one that was prepared and states them in its first frame, or not at all.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{
    FRAME_ALIGN, FRAME_HEADER_BYTES, FrameKind, NUMBER_LIMIT, bare_frame, begin_frame,
};
use super::scan::scan;
use super::segment::{HEADER_BYTES, Link, SegmentHeader, repair_header, segment_path};
use super::{Log, LogOptions};
use crate::counters::Counters;
use crate::fuzzing::{assert_blames_the_bytes, number};
use crate::types::Index;
use crate::vfs::{MemoryVfs, OpenMode, Vfs};
use crate::workers::Background;

const REPAIR_HEADER: u8 = 1;
/// The upper half of the flags says how many frames, at most.
const REPAIR_FRAMES: u8 = 2;
/// The header states the length that the file has.
const FULL_LENGTH: u8 = 4;
/// A second segment continues the first at an offset and an index which the input ends with.
const SUCCESSOR: u8 = 8;
/// In the index of the successor: it was prepared; and it has begun.
const PREPARED: u64 = 1 << 63;
const BEGUN: u64 = 1 << 62;

const FIELDS_BYTES: usize = 72;
/// More entries than this are not read back one by one.
const ENTRIES_MAX: usize = 500;

fn dir() -> PathBuf {
    PathBuf::from("log")
}

fn put(vfs: &MemoryVfs, id: u64, bytes: &[u8]) {
    let file = vfs.open(&segment_path(&dir(), id), OpenMode::CreateNew);
    let file = file.expect("it is new");
    file.write_at(bytes, 0).expect("memory takes it");
}

/// Lays out a log of one or two segments as the input says.
fn log(data: &[u8]) -> Option<MemoryVfs> {
    let (&flags, mut data) = data.split_first()?;
    let fields: [u8; FIELDS_BYTES] = number(&mut data);
    let mut successor = None;
    if flags & SUCCESSOR != 0 {
        let (rest, mut end) = data.split_at(data.len().saturating_sub(10));
        let end_offset = u64::from(u16::from_le_bytes(number(&mut end)));
        successor = Some((end_offset, u64::from_le_bytes(number(&mut end))));
        data = rest;
    }
    let mut bytes = fields.to_vec();
    bytes.resize(HEADER_BYTES as usize, 0);
    bytes.extend_from_slice(data);
    if flags & FULL_LENGTH != 0 {
        let len = bytes.len() as u64;
        bytes[40..48].copy_from_slice(&len.to_le_bytes());
    }
    let mut id = 1;
    if flags & REPAIR_HEADER != 0 {
        id = u64::from_le_bytes(number(&mut &bytes[16..24])).max(1);
        bytes[16..24].copy_from_slice(&id.to_le_bytes());
        repair_header(&mut bytes[..HEADER_BYTES as usize]);
    }
    let vfs = MemoryVfs::default();
    vfs.create_dir(&dir()).expect("it is new");
    if let Ok(header) = SegmentHeader::decode(Path::new(""), id, &bytes) {
        if flags & REPAIR_FRAMES != 0 {
            repair_frames(&mut bytes, &header, flags >> 4);
        }
        if let Some((end_offset, first_index)) = successor
            && let Some(next) = id.checked_add(1)
        {
            let is_prepared = first_index & PREPARED != 0;
            let stated = |number| if is_prepared { 0 } else { number };
            let header = SegmentHeader {
                id: next,
                salt: 9,
                owner: header.owner,
                first_index: stated(first_index),
                capacity_bytes: HEADER_BYTES + 64,
                previous: Some(Link {
                    id,
                    salt: header.salt,
                    end_offset: stated(end_offset),
                }),
                is_prepared,
                later_id: None,
                has_torn_mark: false,
            };
            let mut page = header.encode();
            if is_prepared && first_index & BEGUN != 0 {
                let first_index = first_index & !(PREPARED | BEGUN);
                let life = header.life();
                page.extend(begin_frame(life, HEADER_BYTES, first_index, end_offset));
            }
            page.resize(HEADER_BYTES as usize + 64, 0);
            put(&vfs, next, &page);
        }
    }
    put(&vfs, id, &bytes);
    Some(vfs)
}

/// Gives the first frames the tag and the checksums of their place and life.
fn repair_frames(bytes: &mut [u8], header: &SegmentHeader, count: u8) {
    let mut offset = HEADER_BYTES as usize;
    for _ in 0..count {
        let Some(frame) = bytes.get_mut(offset..) else {
            return;
        };
        match header.life().repair(frame, offset as u64) {
            Some(len) => offset += len.next_multiple_of(FRAME_ALIGN),
            None => return,
        }
    }
}

type Entries = Vec<(Index, Vec<u8>)>;

fn open(vfs: &MemoryVfs, after: Index) -> crate::Result<(Log, Entries)> {
    // Whoever's log it is.
    let owner = Log::verify(vfs, &dir()).ok().and_then(|found| found.owner);
    let options = LogOptions {
        segment_bytes: 16 << 10,
        first_segment_bytes: 8 << 10,
        background: Background::Manual,
        spares_max: 1,
        owner: owner.unwrap_or(0),
    };
    let mut entries = Vec::new();
    let mut visit = |index, payload: &[u8]| {
        entries.push((index, payload.to_vec()));
        Ok(())
    };
    let counters = Arc::new(Counters::default());
    let vfs = Arc::new(vfs.clone());
    let log = Log::open(vfs, dir(), options, counters, after, false, &mut visit)?;
    Ok((log, entries))
}

/// Flags, a segment's header and its frames: see the module.
pub fn segment(data: &[u8]) {
    let Some(vfs) = log(data) else {
        return;
    };
    let checked = Log::verify(&vfs, &dir());
    let scanned = match scan(&vfs, &dir(), |_| 1) {
        Ok(scanned) => scanned,
        Err(error) => {
            assert_blames_the_bytes(&error);
            assert!(checked.is_err(), "a check accepts what recovery refuses");
            let refused = open(&vfs, 0).expect_err("a log is opened that does not scan");
            assert_blames_the_bytes(&refused);
            return;
        }
    };
    checked.expect("a check refuses what recovery accepts");
    let first = scanned
        .sparse_index
        .first_index()
        .unwrap_or(scanned.next_index);
    let after = first.saturating_sub(1);
    let (mut log, entries) = match open(&vfs, after) {
        Ok(opened) => opened,
        Err(error) => return assert_blames_the_bytes(&error),
    };
    assert!(
        entries
            .iter()
            .map(|(index, _)| *index)
            .eq(first..scanned.next_index)
    );
    for (index, payload) in entries.iter().take(ENTRIES_MAX) {
        let read = log.read(*index, 0).expect("it was just read");
        assert_eq!((read[0].0, &read[0].1[..]), (*index, payload.as_slice()));
    }

    // A log whose numbers end here cannot go on.
    let is_near = |number: u64| number + 8 >= NUMBER_LIMIT;
    if is_near(scanned.next_index) || scanned.segments.iter().any(|it| is_near(it.header.id)) {
        return;
    }

    // The log goes on: what is appended comes back behind what was there, torn or closed.
    let next = log.next_index();
    assert_eq!(next, scanned.next_index.max(1));
    log.stage(b"appended");
    log.write().expect("memory takes it");
    log.sync().expect("memory takes it");
    let expected: Entries = [entries, vec![(next, b"appended".to_vec())]].concat();
    if data.len().is_multiple_of(2) {
        log.close().expect("memory takes it");
    } else {
        drop(log);
    }
    let (_, read) = open(&vfs, after).expect("what the log wrote opens");
    assert_eq!(read, expected);
}

/// Logs of every kind of frame: closed, torn, cut, vouched for, and continued.
#[cfg_attr(fuzzing, allow(dead_code))]
pub(crate) fn segment_seeds() -> Vec<Vec<u8>> {
    let vfs = MemoryVfs::default();
    let (mut log, _) = open(&vfs, 0).expect("memory takes it");
    for group in 0..4_u8 {
        for entry in 0..=group {
            log.stage(&vec![group; usize::from(entry) * 9]);
        }
        log.write().expect("memory takes it");
        if group == 1 {
            log.sync().expect("memory takes it");
            log.vouch().expect("memory takes it");
        }
        if group == 2 {
            log.sync().expect("memory takes it");
            log.cut_suffix(4).expect("it holds more");
        }
    }
    let file = segment_path(&dir(), 1);
    let bytes = |vfs: &MemoryVfs| crate::vfs::read_file(vfs, &file, u64::MAX).expect("a segment");
    let header =
        |bytes: &[u8]| SegmentHeader::decode(&file, 1, bytes).expect("what the log wrote is valid");
    let torn = bytes(&vfs);
    let used = 1 + torn.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    // The last frame states one entry more than it holds.
    let mut last = HEADER_BYTES as usize;
    while let Ok(body) = <[u8; 4]>::try_from(&torn[last + 8..last + 12]) {
        let len = FRAME_HEADER_BYTES + u32::from_le_bytes(body) as usize;
        let next = last + len.next_multiple_of(FRAME_ALIGN);
        if next >= used {
            break;
        }
        last = next;
    }
    let mut overstated = torn.clone();
    overstated[last + 32] += 1;
    log.close().expect("memory takes it");
    let closed = bytes(&vfs);
    // Behind the last frame but the seal.
    let end_offset = closed.len() - FRAME_HEADER_BYTES;
    let life = header(&closed).life();
    let mut continued = closed.clone();
    let frame = bare_frame(life, end_offset as u64, FrameKind::Continued, 8, 4096);
    continued[end_offset..].copy_from_slice(&frame);
    let input = |flags: u8, bytes: &[u8], end: &[u8]| {
        let (page, frames) = bytes.split_at(HEADER_BYTES as usize);
        [&[flags][..], &page[..FIELDS_BYTES], frames, end].concat()
    };
    let link_to =
        |index: u64| [&(end_offset as u16).to_le_bytes()[..], &index.to_le_bytes()].concat();
    let link = link_to(8);
    let repaired = 0xf0 | REPAIR_HEADER | REPAIR_FRAMES;
    vec![
        input(repaired, &closed, &[]),
        input(
            repaired | FULL_LENGTH,
            &torn[..used.next_multiple_of(8)],
            &[],
        ),
        input(
            0x30 | REPAIR_FRAMES | FULL_LENGTH | REPAIR_HEADER,
            &torn[..used],
            &[],
        ),
        input(repaired | SUCCESSOR, &continued, &link),
        input(repaired | SUCCESSOR, &closed, &link_to(8 | PREPARED)),
        input(
            repaired | SUCCESSOR,
            &closed,
            &link_to(8 | PREPARED | BEGUN),
        ),
        input(0, &closed, &[]),
        input(
            repaired | FULL_LENGTH,
            &overstated[..used.next_multiple_of(8)],
            &[],
        ),
    ]
}
