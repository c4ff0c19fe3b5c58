//! A segment's header page, the names of files, and how a spare becomes a segment.
//!
//! The header is written and synced under the spare's name and only then renamed, so a file with
//! a segment's name always had a durable header: a bad one is damage, never an unfinished write.
//!
//! The header has the first index of the segment and the end of the previous one, if an opening makes
//! the segment. If the segment is *prepared* while the previous one is still written to, both are
//! unknown. Then the header omits them, and the first frame, a `Begin`, states them.
//!
//! The last sector of the page is the *mark*: zeros, or a `Continued` frame with the id of a later
//! segment, written when that segment durably has its name. The mark changes no other sector of the page,
//! and its own sector has no acknowledged data.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, Life, NUMBER_LIMIT, bare_frame};
use super::segment_allocator::Spare;
use crate::codec::Reader;
use crate::error::{Error, Result};
use crate::types::Index;
use crate::vfs::{self, OpenMode, Vfs, VfsFile};

/// Bytes of the header page; the first frame follows it.
pub(super) const HEADER_BYTES: u64 = 4096;
/// Kept free at the end of each segment for a `Seal` frame.
pub(super) const TRAILER_BYTES: u64 = FRAME_HEADER_BYTES as u64;
/// The format written, and the newest one read. Those below it are read, too.
pub(super) const FORMAT_VERSION: u32 = 3;
/// The first format version with prepared segments.
const PREPARED_SINCE: u32 = 2;

const MAGIC: [u8; 8] = *b"bowl.log";
const CRC_RANGE: std::ops::Range<usize> = 12..16;
const OWNER_OFFSET: u64 = 72;
const FIELDS_END: usize = 88;
/// The mark has its own sector, since a disk tears writes only between sectors.
const MARK_BYTES: usize = 512;
pub(super) const MARK_OFFSET: usize = HEADER_BYTES as usize - MARK_BYTES;
const SEGMENT_SUFFIX: &str = ".log";
const SPARE_PREFIX: &str = "spare-";
const SPARE_SUFFIX: &str = ".tmp";

const _: () = assert!(FIELDS_END <= MARK_OFFSET);

/// The segment before, and where it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Link {
    pub(super) id: u64,
    pub(super) salt: u64,
    /// The offset behind its last frame. Later frames in it are void. 0 while unknown.
    pub(super) end_offset: u64,
}

/// The content of the header page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SegmentHeader {
    /// Never 0; grows from segment to segment.
    pub(super) id: u64,
    pub(super) salt: u64,
    /// The owner of the log.
    pub(super) owner: u128,
    /// The index after the last valid one of the previous segment. 0 while unknown.
    pub(super) first_index: Index,
    /// Length of the file when it became a segment.
    pub(super) capacity_bytes: u64,
    /// `None` in the first segment of a log.
    pub(super) previous: Option<Link>,
    /// Whether a `Begin` frame states the first index and the end of the segment before.
    pub(super) is_prepared: bool,
    /// The id of a further segment that exists, as the mark says.
    pub(super) later_id: Option<u64>,
    /// Whether the mark cannot be read: a crash tore the write that made it, or took it away. Both are done while a
    /// further segment exists.
    pub(super) has_torn_mark: bool,
}

impl SegmentHeader {
    pub(super) fn life(&self) -> Life {
        Life::new(self.id, self.salt)
    }

    /// The page of a segment that nothing continues yet.
    pub(super) fn encode(&self) -> Vec<u8> {
        let previous = self.previous.unwrap_or(Link {
            id: 0,
            salt: 0,
            end_offset: 0,
        });
        let mut page = Vec::with_capacity(HEADER_BYTES as usize);
        page.extend_from_slice(&MAGIC);
        page.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        page.extend_from_slice(&[0; 4]);
        for field in [
            self.id,
            self.salt,
            self.first_index,
            self.capacity_bytes,
            previous.id,
            previous.salt,
            previous.end_offset,
        ] {
            page.extend_from_slice(&field.to_le_bytes());
        }
        debug_assert_eq!(page.len() as u64, OWNER_OFFSET);
        page.extend_from_slice(&self.owner.to_le_bytes());
        debug_assert_eq!(page.len(), FIELDS_END);
        page.resize(HEADER_BYTES as usize, 0);
        let crc = page_crc(&page);
        page[CRC_RANGE].copy_from_slice(&crc.to_le_bytes());
        page
    }

    /// Reads the header page of the segment that is named `id`.
    pub(super) fn decode(path: &Path, id: u64, page: &[u8]) -> Result<SegmentHeader> {
        let corrupt = |offset, reason: &str| Error::corrupt(path, offset, reason);
        let short = || corrupt(page.len() as u64, "the file ends inside the segment header");
        if page.len() < HEADER_BYTES as usize {
            return Err(short());
        }
        let mut reader = Reader::new(page);
        if reader.take(MAGIC.len()).ok_or_else(short)? != MAGIC {
            return Err(corrupt(0, "not a log segment: wrong magic"));
        }
        let version = reader.u32().ok_or_else(short)?;
        if reader.u32().ok_or_else(short)? != page_crc(page) {
            return Err(corrupt(0, "checksum of the segment header does not match"));
        }
        if version > FORMAT_VERSION {
            return Err(Error::NewerFormat {
                path: path.to_owned(),
                found: version,
                supported: FORMAT_VERSION,
            });
        }
        let mut field = || reader.u64().ok_or_else(short);
        let header_id = field()?;
        let salt = field()?;
        let first_index = field()?;
        let capacity_bytes = field()?;
        let link = Link {
            id: field()?,
            salt: field()?,
            end_offset: field()?,
        };
        let owner = u128::from(field()?) | u128::from(field()?) << 64;
        if header_id != id {
            return Err(corrupt(
                16,
                &format!("holds segment {header_id}, not the one it is named"),
            ));
        }
        let is_prepared = version >= PREPARED_SINCE && first_index == 0;
        let is_number = |number: u64| (1..NUMBER_LIMIT).contains(&number);
        let start_fits = if is_prepared {
            link.id != 0 && link.end_offset == 0
        } else {
            is_number(first_index) && (link.id == 0 || link.end_offset >= HEADER_BYTES)
        };
        if version == 0 || !is_number(id) || link.id >= id || !start_fits {
            return Err(corrupt(16, "the segment header contradicts itself"));
        }
        let mark = &page[MARK_OFFSET..HEADER_BYTES as usize];
        let life = Life::new(id, salt);
        let later_id =
            FrameHeader::decode(mark, life, MARK_OFFSET as u64).map(|frame| frame.first_index);
        let has_torn_mark = mark != &mark_of(life, later_id)[..];
        if !has_torn_mark && later_id.is_some_and(|later| later <= id) {
            let reason = "the mark that a further segment exists names an earlier one";
            return Err(corrupt(MARK_OFFSET as u64, reason));
        }
        let previous = (link.id != 0).then_some(link);
        Ok(SegmentHeader {
            id,
            salt,
            owner,
            first_index,
            capacity_bytes,
            previous,
            is_prepared,
            later_id: later_id.filter(|_| !has_torn_mark),
            has_torn_mark,
        })
    }

    /// An error when the segment belongs to another log.
    pub(super) fn check_owner(&self, dir: &Path, owner: u128) -> Result<()> {
        if self.owner == owner {
            return Ok(());
        }
        let reason = format!("it belongs to {:032x}, not to {owner:032x}", self.owner);
        let path = segment_path(dir, self.id);
        Err(Error::corrupt(&path, OWNER_OFFSET, reason))
    }

    /// Reads the header of an open segment.
    pub(super) fn read(file: &dyn VfsFile, path: &Path, id: u64) -> Result<SegmentHeader> {
        let mut page = vec![0; HEADER_BYTES as usize];
        let read = vfs::read_full_at(file, path, &mut page, 0)?;
        match SegmentHeader::decode(path, id, &page[..read]) {
            Ok(header) if !header.has_torn_mark => Ok(header),
            // The mark may be being written. Then a second read finds it whole.
            _ => {
                let read = vfs::read_full_at(file, path, &mut page, 0)?;
                SegmentHeader::decode(path, id, &page[..read])
            }
        }
    }
}

/// Writes the magic and the checksum into a header page.
#[cfg(any(test, fuzzing))]
pub(super) fn repair_header(page: &mut [u8]) {
    page[..MAGIC.len()].copy_from_slice(&MAGIC);
    let crc = page_crc(page);
    page[CRC_RANGE].copy_from_slice(&crc.to_le_bytes());
}

/// Checksum of the header page except the checksum itself, and as if there were no mark.
fn page_crc(page: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&page[..CRC_RANGE.start]);
    let crc = crc32c::crc32c_append(crc, &page[CRC_RANGE.end..MARK_OFFSET]);
    crc32c::crc32c_append(crc, &[0; MARK_BYTES])
}

/// The sector of the mark: the id of a later segment, if any.
fn mark_of(life: Life, later_id: Option<u64>) -> [u8; MARK_BYTES] {
    let mut mark = [0; MARK_BYTES];
    if let Some(id) = later_id {
        let frame = bare_frame(life, MARK_OFFSET as u64, FrameKind::Continued, id, 0);
        mark[..FRAME_HEADER_BYTES].copy_from_slice(&frame);
    }
    mark
}

/// Writes the mark. Durable after the next sync of `file`.
pub(super) fn write_mark(
    file: &dyn VfsFile,
    path: &Path,
    life: Life,
    later_id: Option<u64>,
) -> Result<()> {
    vfs::write_all_at(file, path, &mark_of(life, later_id), MARK_OFFSET as u64)
}

/// Writes the mark of a segment through a file of its own. So a failed sync of the mark is also reported
/// to the other threads that sync the segment.
pub(super) struct Marker {
    file: Arc<dyn VfsFile>,
    path: PathBuf,
    life: Life,
}

impl Marker {
    pub(super) fn open(vfs: &dyn Vfs, dir: &Path, id: u64, salt: u64) -> Result<Marker> {
        let path = segment_path(dir, id);
        let file = vfs
            .open(&path, OpenMode::ReadWrite)
            .map_err(|error| Error::io("open", &path, error))?;
        let life = Life::new(id, salt);
        Ok(Marker { file, path, life })
    }

    /// Writes the mark durably. After a failure it is unknown whether the mark is on the disk.
    pub(super) fn mark(&self, later_id: Option<u64>) -> Result<()> {
        write_mark(&*self.file, &self.path, self.life, later_id)?;
        vfs::sync_data(&*self.file, &self.path)
    }
}

/// The file name of a segment.
pub(super) fn segment_name(id: u64) -> String {
    format!("{id:016x}{SEGMENT_SUFFIX}")
}

/// The path of a segment.
pub(super) fn segment_path(dir: &Path, id: u64) -> PathBuf {
    dir.join(segment_name(id))
}

/// The id in a segment's file name; `None` for any other name.
pub(super) fn segment_id(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SEGMENT_SUFFIX)?;
    let id = u64::from_str_radix(digits, 16).ok()?;
    (id != 0 && segment_name(id) == name).then_some(id)
}

/// The file name of a spare.
pub(super) fn spare_name(number: u64) -> String {
    format!("{SPARE_PREFIX}{number:016x}{SPARE_SUFFIX}")
}

/// Whether a file name is a spare's.
pub(super) fn is_spare_name(name: &str) -> bool {
    name.starts_with(SPARE_PREFIX) && name.ends_with(SPARE_SUFFIX)
}

/// How far an activation got before it failed.
#[derive(Debug)]
pub(super) enum ActivationError {
    /// No segment was named: the log is unchanged, and the spare cannot be used any more.
    BeforeNaming(Error),
    /// The directory may or may not hold the new segment.
    WhileNaming(Error),
}

impl From<ActivationError> for Error {
    fn from(error: ActivationError) -> Error {
        match error {
            ActivationError::BeforeNaming(error) | ActivationError::WhileNaming(error) => error,
        }
    }
}

/// Turns `spare` into the segment that `header` describes, durably.
pub(super) fn activate(
    vfs: &dyn Vfs,
    dir: &Path,
    spare: &Spare,
    header: &SegmentHeader,
) -> Result<(), ActivationError> {
    let file = &*spare.file;
    vfs::write_all_at(file, &spare.path, &header.encode(), 0)
        .and_then(|()| vfs::sync_data(file, &spare.path))
        .map_err(ActivationError::BeforeNaming)?;
    let path = segment_path(dir, header.id);
    vfs.rename(&spare.path, &path)
        .map_err(|error| match Error::io("rename", &path, error) {
            full @ Error::NoSpace { .. } => ActivationError::BeforeNaming(full),
            other => ActivationError::WhileNaming(other),
        })?;
    vfs::sync_parent(vfs, &path).map_err(ActivationError::WhileNaming)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            id: 9,
            salt: 0xdead_beef,
            owner: 0xaaaa_bbbb << 64 | 0xcccc,
            first_index: 77,
            capacity_bytes: 1 << 20,
            previous: Some(Link {
                id: 7,
                salt: 5,
                end_offset: 8192,
            }),
            is_prepared: false,
            later_id: None,
            has_torn_mark: false,
        }
    }

    fn prepared() -> SegmentHeader {
        let previous = header().previous.map(|link| Link {
            end_offset: 0,
            ..link
        });
        SegmentHeader {
            first_index: 0,
            previous,
            is_prepared: true,
            ..header()
        }
    }

    #[test]
    fn a_header_reads_back_as_written() {
        let first = SegmentHeader {
            previous: None,
            ..header()
        };
        for header in [header(), first, prepared()] {
            let mut page = header.encode();
            let decoded = SegmentHeader::decode(Path::new("x"), 9, &page);
            assert_eq!(decoded.expect("valid"), header);
            page[MARK_OFFSET..].copy_from_slice(&mark_of(header.life(), Some(12)));
            let decoded = SegmentHeader::decode(Path::new("x"), 9, &page);
            let marked = SegmentHeader {
                later_id: Some(12),
                ..header
            };
            assert_eq!(decoded.expect("valid"), marked);
        }
    }

    #[test]
    fn a_mark_that_names_no_later_segment_is_damage() {
        for id in [1, 9] {
            let mut page = header().encode();
            page[MARK_OFFSET..].copy_from_slice(&mark_of(header().life(), Some(id)));
            let decoded = SegmentHeader::decode(Path::new("x"), 9, &page);
            assert!(decoded.expect_err("not later").is_corruption());
        }
    }

    #[test]
    fn a_mark_that_was_torn_is_told_from_none() {
        for at in [MARK_OFFSET, HEADER_BYTES as usize - 1] {
            let mut page = header().encode();
            page[MARK_OFFSET..].copy_from_slice(&mark_of(header().life(), Some(12)));
            page[at] ^= 1;
            let decoded = SegmentHeader::decode(Path::new("x"), 9, &page).expect("valid");
            assert!(decoded.has_torn_mark && decoded.later_id.is_none());
        }
    }

    #[test]
    fn half_a_beginning_is_damage() {
        for header in [
            SegmentHeader {
                first_index: 5,
                ..prepared()
            },
            SegmentHeader {
                previous: header().previous,
                ..prepared()
            },
            SegmentHeader {
                previous: None,
                ..prepared()
            },
        ] {
            let decoded = SegmentHeader::decode(Path::new("x"), 9, &header.encode());
            assert!(decoded.expect_err("a half").is_corruption(), "{header:?}");
        }
    }

    /// Logs of before version 2 have no prepared segments; all else of them reads as it did. Those of
    /// before version 3 have no frames that only vouch.
    #[test]
    fn the_versions_before_are_read() {
        for (version, header, is_valid) in [
            (1, header(), true),
            (1, prepared(), false),
            (2, header(), true),
            (2, prepared(), true),
        ] {
            let mut page = header.encode();
            page[8] = version;
            let crc = page_crc(&page);
            page[CRC_RANGE].copy_from_slice(&crc.to_le_bytes());
            let decoded = SegmentHeader::decode(Path::new("x"), 9, &page);
            assert_eq!(decoded.is_ok_and(|decoded| decoded == header), is_valid);
        }
    }

    #[test]
    fn every_flipped_byte_of_the_page_is_damage() {
        let page = header().encode();
        let mut marked = page.clone();
        marked[MARK_OFFSET..].copy_from_slice(&mark_of(header().life(), Some(10)));
        for page in [&page, &marked] {
            for position in 0..page.len() {
                let mut damaged = page.clone();
                damaged[position] ^= 0x10;
                let decoded = SegmentHeader::decode(Path::new("x"), 9, &damaged);
                match decoded {
                    Err(error) => assert!(error.is_corruption(), "byte {position}: {error}"),
                    // Whether a crash may have torn the mark depends on the other segments.
                    Ok(decoded) => assert!(decoded.has_torn_mark, "byte {position}"),
                }
            }
        }
        let error = SegmentHeader::decode(Path::new("x"), 9, &page[..4095]).expect_err("short");
        assert!(error.is_corruption());
        let error = SegmentHeader::decode(Path::new("x"), 8, &page).expect_err("other name");
        assert!(error.is_corruption());
    }

    /// Found by fuzzing: recovery added one to the id, and panicked (or went on with segment 0).
    #[test]
    fn a_number_after_which_there_is_none_is_damage() {
        for last in [NUMBER_LIMIT, u64::MAX] {
            for (id, first_index) in [(9, last), (last, 77)] {
                let header = SegmentHeader {
                    id,
                    first_index,
                    ..header()
                };
                let decoded = SegmentHeader::decode(Path::new("x"), id, &header.encode());
                assert!(decoded.expect_err("no room").is_corruption());
            }
        }
    }

    #[test]
    fn a_newer_format_is_named_as_such() {
        let mut page = header().encode();
        page[8] = FORMAT_VERSION as u8 + 1;
        let crc = page_crc(&page);
        page[CRC_RANGE].copy_from_slice(&crc.to_le_bytes());
        let error = SegmentHeader::decode(Path::new("x"), 9, &page).expect_err("newer");
        assert!(
            matches!(error, Error::NewerFormat { found: 4, .. }),
            "{error}"
        );
    }

    #[test]
    fn names_tell_segments_from_spares_and_strangers() {
        assert_eq!(segment_id(&segment_name(0xab)), Some(0xab));
        assert_eq!(
            segment_id("00000000000000AB.log"),
            None,
            "upper case is not ours"
        );
        assert_eq!(segment_id("0000000000000000.log"), None);
        assert_eq!(segment_id("ab.log"), None);
        assert_eq!(segment_id(&spare_name(3)), None);
        assert!(is_spare_name(&spare_name(3)) && !is_spare_name("notes.tmp"));
    }
}
