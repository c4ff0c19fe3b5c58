//! The first step of recovery: reads everything, changes nothing.
//!
//! The live segments form a chain. The last segment is the begun one with the highest id, and each
//! header names the previous segment. Every segment of the chain except the last must have valid frames
//! exactly up to the offset that its successor states. In the last segment the first invalid frame, at
//! offset `p`, decides. If a later frame header of this life says that the segment was synced beyond
//! `p`, then synced data is damaged, which is an error. Otherwise no flush covered `p`, nothing from
//! there on was acknowledged, and the log ends at `p`.
//!
//! Several threads read the segments in parallel, each segment on its own from the index that its header
//! states. The results are combined in order, so the result (or the error) is the same as that of one
//! thread that reads the segments one after another.
//!
//! A prepared segment is *begun* when it has its first frame, a `Begin`. `Begin` precedes everything else
//! in the segment, so a flush that covers any frame covers `Begin`. The segment is therefore damaged if
//! `Begin` is missing and either the header of the frame written together with it is present, or a later
//! frame says that the segment was synced beyond it. Otherwise nothing in the segment was acknowledged,
//! and the log ends in an earlier segment.
//!
//! A log that is written during the scan may release its first segments, and their files then get new
//! contents. A segment that cannot be read and is no longer in the directory was released, with all
//! before it: the scan drops them and goes on behind it. Recovery has the directory for itself, so there
//! every damage is an error.
//!
//! A segment outside the chain is *stale*: prepared and not begun, or an empty last segment that an
//! earlier recovery replaced and could not remove. A stale segment with entries is an error.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::frame::{
    BEGIN_BYTES, Entries, FRAME_ALIGN, FRAME_HEADER_BYTES, FrameHeader, FrameKind, Life,
};
use super::segment::{
    HEADER_BYTES, Link, MARK_OFFSET, SegmentHeader, is_spare_name, segment_id, segment_name,
    segment_path,
};
use super::sparse_index::{IndexPoint, SparseIndex};
use crate::codec;
use crate::error::{Error, Result};
use crate::types::Index;
use crate::vfs::{self, OpenMode, Vfs, VfsFile};
use crate::workers;

const WINDOW_BYTES: usize = 256 << 10;

/// Reads the frames of one life of one segment through a window of its file.
pub(super) struct FrameReader<'a> {
    file: &'a dyn VfsFile,
    path: &'a Path,
    life: Life,
    file_len: u64,
    read_ahead_bytes: usize,
    window: Vec<u8>,
    window_start: u64,
}

impl<'a> FrameReader<'a> {
    pub(super) fn new(
        file: &'a dyn VfsFile,
        path: &'a Path,
        life: Life,
        read_ahead_bytes: usize,
    ) -> Result<FrameReader<'a>> {
        let file_len = file.len().map_err(|error| Error::io("stat", path, error))?;
        let window = Vec::new();
        Ok(FrameReader {
            file,
            path,
            life,
            file_len,
            read_ahead_bytes,
            window,
            window_start: 0,
        })
    }

    /// The frame header at `offset`; `None` when there is none.
    pub(super) fn header(&mut self, offset: u64) -> Result<Option<FrameHeader>> {
        let life = self.life;
        let bytes = self.bytes(offset, FRAME_HEADER_BYTES)?;
        Ok(FrameHeader::decode(bytes, life, offset))
    }

    /// The bytes of the entries of the frame at `offset`; `None` when their checksum does not match.
    pub(super) fn body(&mut self, offset: u64, header: &FrameHeader) -> Result<Option<&[u8]>> {
        let life = self.life;
        let bytes = self.bytes(offset + FRAME_HEADER_BYTES as u64, header.padded_body_len())?;
        let matches = header.body_matches(bytes, life, offset);
        Ok(matches.then(|| &bytes[..header.body_len as usize]))
    }

    /// Whether the first bytes at `offset` are those of a frame of this life.
    fn is_torn(&mut self, offset: u64) -> Result<bool> {
        let life = self.life;
        Ok(life.is_tag(self.bytes(offset, FRAME_ALIGN)?))
    }

    /// The offset of a frame header behind `damaged` that says `damaged` was synced.
    fn proof_of_sync(&mut self, damaged: u64) -> Result<Option<u64>> {
        let life = self.life;
        let mut offset = damaged + FRAME_ALIGN as u64;
        while offset + FRAME_HEADER_BYTES as u64 <= self.file_len {
            let bytes = self.bytes(offset, WINDOW_BYTES)?;
            let mut position = 0;
            while position + FRAME_HEADER_BYTES <= bytes.len() {
                let at = offset + position as u64;
                if let Some(header) = FrameHeader::decode(&bytes[position..], life, at)
                    && header.synced_offset > damaged
                {
                    return Ok(Some(at));
                }
                position += FRAME_ALIGN;
            }
            if position == 0 {
                break;
            }
            offset += position as u64;
        }
        Ok(None)
    }

    /// Up to `len` bytes at `offset`: fewer only where the file ends.
    fn bytes(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        let left = usize::try_from(self.file_len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = len.min(left);
        let window_end = self.window_start + self.window.len() as u64;
        if offset < self.window_start || offset + len as u64 > window_end {
            self.window
                .resize(len.max(self.read_ahead_bytes).min(left), 0);
            let read = vfs::read_full_at(self.file, self.path, &mut self.window, offset)?;
            self.window.truncate(read);
            self.window_start = offset;
        }
        let start = (offset - self.window_start) as usize;
        Ok(&self.window[start.min(self.window.len())..(start + len).min(self.window.len())])
    }

    /// Empties the window, so that the next read comes from the file.
    fn forget(&mut self) {
        self.window.clear();
        self.window_start = 0;
    }
}

/// How a segment's frames end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// At the offset the next segment's header states.
    Stated,
    /// With a `Seal` frame: the log was closed cleanly.
    Sealed,
    /// Behind the last complete group. Bytes that follow were never synced. `torn` says whether they
    /// begin like a frame.
    Tail { torn: bool },
}

/// The content of one segment of the chain.
#[derive(Clone, Debug)]
pub(super) struct ScannedSegment {
    pub(super) header: SegmentHeader,
    pub(super) file_len: u64,
    /// The offset behind the last valid frame.
    pub(super) end_offset: u64,
    /// Up to here, at least, some frame proves it synced.
    pub(super) synced_offset: u64,
    pub(super) end: End,
    pub(super) frames: u64,
    pub(super) entries: u64,
    /// Whether any frame changes the log: entries or a cut.
    pub(super) has_content: bool,
}

/// The content of a log directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Scan {
    /// The chain, oldest first.
    pub(super) segments: Vec<ScannedSegment>,
    /// Segments outside the chain: never begun, or empty and replaced.
    pub(super) stale: Vec<u64>,
    /// The highest id of all segments, also of stale ones; 0 when there is none.
    pub(super) highest_id: u64,
    /// File names of spares.
    pub(super) spares: Vec<String>,
    pub(super) sparse_index: SparseIndex,
    /// The index of the next entry; 0 when there is no segment.
    pub(super) next_index: Index,
}

/// Reads all headers and all frames in `dir`. A directory that does not exist is an empty one.
/// `threads` returns the number of threads for a number of bytes.
pub(super) fn scan(vfs: &dyn Vfs, dir: &Path, threads: impl Fn(u64) -> usize) -> Result<Scan> {
    let mut scan = Scan::default();
    let mut found = Vec::new();
    for name in list(vfs, dir)? {
        if is_spare_name(&name) {
            scan.spares.push(name);
        } else if let Some(id) = segment_id(&name) {
            found.push(OpenSegment::open(vfs, dir, id)?);
        }
    }
    found.sort_by_key(|segment| segment.header.id);
    scan.highest_id = found.last().map_or(0, |last| last.header.id);
    let (chain, stale) = split_chain(dir, found)?;
    for segment in stale {
        segment.refuse_content()?;
        scan.stale.push(segment.header.id);
    }
    if let Some(first) = chain.first() {
        scan.next_index = first.header.first_index;
    }
    if let Some(last) = chain.last()
        && let Some(later_id) = last.header.later_id
        && scan.highest_id < later_id
    {
        last.expect_from(vfs, dir, later_id)?;
    }
    let bound = |position: usize| {
        let next = chain.get(position + 1);
        let link = next.and_then(|next| next.header.previous);
        link.map(|link| link.end_offset)
    };
    let bytes = chain.iter().map(|segment| segment.header.capacity_bytes);
    let threads = threads(bytes.fold(0, u64::saturating_add));
    let mut read_ahead = Vec::new().into_iter();
    if threads > 1 {
        let places: Vec<usize> = (0..chain.len()).collect();
        let read = |place: &usize| chain[*place].read(vfs, dir, bound(*place));
        read_ahead = workers::map(&places, threads, read).into_iter();
    }
    for (position, segment) in chain.iter().enumerate() {
        if segment.header.first_index != scan.next_index {
            let reason = format!(
                "starts at index {}, but the segment before ends at index {}",
                segment.header.first_index,
                scan.next_index - 1
            );
            return Err(Error::corrupt(&segment.path, 32, reason));
        }
        let read = read_ahead.next();
        let read = match read.unwrap_or_else(|| segment.read(vfs, dir, bound(position))) {
            Ok(read) => read,
            Err(error) => {
                let Some(next) = chain.get(position + 1) else {
                    return Err(error);
                };
                if segment.is_listed(vfs, dir)? {
                    return Err(error);
                }
                // Released since it was opened, and all before it with it: the log begins behind it.
                tracing::debug!(%error, "a segment was released while it was checked");
                scan.segments.clear();
                scan.sparse_index = SparseIndex::default();
                scan.next_index = next.header.first_index;
                continue;
            }
        };
        scan.sparse_index.append(read.sparse_index);
        scan.next_index = read.next_index;
        scan.segments.push(read.scanned);
    }
    scan.check_marks(dir)?;
    Ok(scan)
}

impl Scan {
    /// A crash tears a mark only while a further segment exists that has no entry yet: recovery makes the mark anew, and
    /// it is durable before the first entry.
    fn check_marks(&self, dir: &Path) -> Result<()> {
        let mut may_be_torn = self.stale.contains(&self.highest_id);
        for segment in self.segments.iter().rev() {
            if segment.header.has_torn_mark && !may_be_torn {
                let path = segment_path(dir, segment.header.id);
                let reason = "neither zeros nor the mark that a further segment exists";
                return Err(Error::corrupt(&path, MARK_OFFSET as u64, reason));
            }
            may_be_torn = !segment.has_content;
        }
        Ok(())
    }
}

/// The names in `dir`; none when it does not exist.
pub(super) fn list(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<String>> {
    match vfs.read_dir(dir) {
        Ok(names) => Ok(names),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Error::io("list", dir, error)),
    }
}

/// The content of one segment, read without the other segments.
struct ReadSegment {
    scanned: ScannedSegment,
    sparse_index: SparseIndex,
    next_index: Index,
}

struct OpenSegment {
    file: std::sync::Arc<dyn VfsFile>,
    path: PathBuf,
    /// The header; for a prepared and begun segment with the values that its first frame states.
    header: SegmentHeader,
    is_begun: bool,
}

/// Follows the chain back from the newest segment; returns the chain, oldest first, and the stale
/// segments.
fn split_chain(
    dir: &Path,
    mut found: Vec<OpenSegment>,
) -> Result<(Vec<OpenSegment>, Vec<OpenSegment>)> {
    let mut chain: Vec<OpenSegment> = Vec::new();
    let mut stale = Vec::new();
    // The id of the previous segment of the chain; `None` at its beginning.
    let mut wanted = found.last().map(|last| last.header.id);
    // The segment behind it, and the salt it names.
    let mut named: Option<(PathBuf, u64)> = None;
    let missing = |wanted_id, before: &str| Error::MissingFile {
        path: segment_path(dir, wanted_id),
        reason: format!("it continues the log after {before}"),
    };
    while let Some(segment) = found.pop() {
        let id = segment.header.id;
        match wanted {
            // A segment that was never begun does not say where the previous one ends.
            Some(wanted_id) if id < wanted_id && !segment.is_begun => stale.push(segment),
            Some(wanted_id) if id < wanted_id => {
                return Err(missing(wanted_id, &segment_name(id)));
            }
            Some(wanted_id) if id == wanted_id => {
                if let Some((next, salt)) = &named
                    && *salt != segment.header.salt
                {
                    let reason = format!("{} continues another life of it", next.display());
                    return Err(Error::corrupt(&segment.path, 24, reason));
                }
                let link = segment.header.previous;
                wanted = link.map(|link| link.id);
                named = link.map(|link| (segment.path.clone(), link.salt));
                if segment.is_begun {
                    chain.push(segment);
                } else if chain.is_empty() {
                    stale.push(segment);
                } else {
                    let reason =
                        "not the frame a segment begins with, and the log goes on behind it";
                    return Err(Error::corrupt(&segment.path, HEADER_BYTES, reason));
                }
            }
            _ => stale.push(segment),
        }
    }
    // The predecessor of a prepared segment is removed only when a later segment was begun.
    if let (true, Some(wanted_id)) = (chain.is_empty(), wanted) {
        return Err(missing(wanted_id, "what was before it"));
    }
    chain.reverse();
    Ok((chain, stale))
}

impl OpenSegment {
    fn open(vfs: &dyn Vfs, dir: &Path, id: u64) -> Result<OpenSegment> {
        let path = segment_path(dir, id);
        let file = vfs
            .open(&path, OpenMode::Read)
            .map_err(|error| Error::io("open", &path, error))?;
        let header = SegmentHeader::read(&*file, &path, id)?;
        let mut segment = OpenSegment {
            file,
            path,
            header,
            is_begun: !header.is_prepared,
        };
        if header.is_prepared {
            segment.read_beginning()?;
        }
        Ok(segment)
    }

    /// Reads the first frame of a prepared segment.
    fn read_beginning(&mut self) -> Result<()> {
        let corrupt = |reason: String| Error::corrupt(&self.path, HEADER_BYTES, reason);
        let mut reader =
            FrameReader::new(&*self.file, &self.path, self.header.life(), WINDOW_BYTES)?;
        // In a log that is being written, the frame may have been written since the first read.
        for is_second_look in [false, true] {
            reader.forget();
            if let Some(frame) = reader.header(HEADER_BYTES)?
                && frame.kind == FrameKind::Begin
                && let Some(body) = reader.body(HEADER_BYTES, &frame)?
                && let Some(end_offset) = codec::Reader::new(body).u64()
            {
                if end_offset < HEADER_BYTES {
                    return Err(corrupt(format!("the segment before ends at {end_offset}")));
                }
                self.header.first_index = frame.first_index;
                let link = |link| Link { end_offset, ..link };
                self.header.previous = self.header.previous.map(link);
                self.is_begun = true;
                return Ok(());
            }
            // The frame behind it was written together with it, its header in the same sector, or
            // after it was synced.
            let behind = HEADER_BYTES + BEGIN_BYTES as u64;
            let proof = match reader.header(behind)? {
                Some(_) => Some(behind),
                None => reader.proof_of_sync(HEADER_BYTES)?,
            };
            let Some(proof) = proof else {
                break;
            };
            if is_second_look {
                return Err(corrupt(format!(
                    "not the frame a segment begins with, but the one at offset {proof} was not \
                     written without it"
                )));
            }
        }
        if reader.file_len < self.header.capacity_bytes {
            return Err(corrupt(format!(
                "the file was cut to {} of {} bytes",
                reader.file_len, self.header.capacity_bytes
            )));
        }
        Ok(())
    }

    /// Checks that a segment from `later_id` on exists, as the mark of this one says. In a log that is
    /// being written, it may be newer than the last listing, or released since.
    fn expect_from(&self, vfs: &dyn Vfs, dir: &Path, later_id: u64) -> Result<()> {
        let names = list(vfs, dir)?;
        let mut ids = names.iter().filter_map(|name| segment_id(name));
        let id = self.header.id;
        if ids.any(|it| it >= later_id) {
            return Ok(());
        }
        let again = SegmentHeader::read(&*self.file, &self.path, id)?;
        if self.header.later_id.is_some() && again.later_id != self.header.later_id {
            return Ok(());
        }
        Err(Error::MissingFile {
            path: segment_path(dir, later_id),
            reason: format!("{} says that the log goes on behind it", segment_name(id)),
        })
    }

    /// Whether the directory still holds the segment: no two segments have the same id.
    fn is_listed(&self, vfs: &dyn Vfs, dir: &Path) -> Result<bool> {
        let names = list(vfs, dir)?;
        let mut ids = names.iter().filter_map(|name| segment_id(name));
        Ok(ids.any(|id| id == self.header.id))
    }

    /// Returns an error when a stale segment has a frame with content.
    fn refuse_content(&self) -> Result<()> {
        let life = self.header.life();
        let mut reader = FrameReader::new(&*self.file, &self.path, life, FRAME_HEADER_BYTES)?;
        let mut offset = HEADER_BYTES;
        if self.header.is_prepared && self.is_begun {
            offset += BEGIN_BYTES as u64;
        }
        let Some(header) = reader.header(offset)? else {
            return Ok(());
        };
        let says_something = matches!(header.kind, FrameKind::Data | FrameKind::Cut);
        if says_something && reader.body(offset, &header)?.is_some() {
            let reason = "holds entries, but no later segment continues it";
            return Err(Error::corrupt(&self.path, offset, reason));
        }
        Ok(())
    }

    /// Reads the segment from the index that its header states. `bound` is its end according to the header
    /// of the next segment; the last segment has none.
    fn read(&self, vfs: &dyn Vfs, dir: &Path, bound: Option<u64>) -> Result<ReadSegment> {
        let life = self.header.life();
        let reader = FrameReader::new(&*self.file, &self.path, life, WINDOW_BYTES)?;
        let scanned = ScannedSegment {
            header: self.header,
            file_len: reader.file_len,
            end_offset: HEADER_BYTES,
            synced_offset: HEADER_BYTES,
            end: End::Stated,
            frames: 0,
            entries: 0,
            has_content: false,
        };
        let walk = Walk {
            segment: self,
            vfs,
            dir,
            bound,
            reader,
            scanned,
            sparse_index: SparseIndex::default(),
            next_index: self.header.first_index,
        };
        walk.read()
    }
}

/// A walk over the frames of one segment.
struct Walk<'a> {
    segment: &'a OpenSegment,
    vfs: &'a dyn Vfs,
    dir: &'a Path,
    /// The end according to the header of the next segment; the last segment has none.
    bound: Option<u64>,
    reader: FrameReader<'a>,
    /// The content read so far; the next frame is at its `end_offset`.
    scanned: ScannedSegment,
    sparse_index: SparseIndex,
    next_index: Index,
}

impl Walk<'_> {
    /// Reads up to the bound, or without a bound as far as frames are valid.
    fn read(mut self) -> Result<ReadSegment> {
        self.sparse_index
            .restart_at(self.index_point(self.next_index, HEADER_BYTES));
        // A frame is read a second time before it counts as damaged: in a log that is being written, it
        // may have been completed since the first read.
        let mut is_second_look = false;
        while !self.is_at_bound()? {
            let offset = self.scanned.end_offset;
            let flow = match self.valid_header(offset)? {
                Some(header) => {
                    is_second_look = false;
                    self.take(offset, &header)?
                }
                None => {
                    let flow = self.end_at_invalid(offset, is_second_look)?;
                    is_second_look = true;
                    flow
                }
            };
            if flow.is_break() {
                break;
            }
        }
        Ok(ReadSegment {
            scanned: self.scanned,
            sparse_index: self.sparse_index,
            next_index: self.next_index,
        })
    }

    fn corrupt(&self, offset: u64, reason: impl Into<String>) -> Error {
        Error::corrupt(&self.segment.path, offset, reason.into())
    }

    fn index_point(&self, first_index: Index, offset: u64) -> IndexPoint {
        IndexPoint {
            first_index,
            segment_id: self.segment.header.id,
            offset,
        }
    }

    fn is_at_bound(&self) -> Result<bool> {
        let offset = self.scanned.end_offset;
        match self.bound {
            Some(bound) if offset > bound => {
                let reason = format!("a frame crosses the end of the segment at {bound}");
                Err(self.corrupt(offset, reason))
            }
            bound => Ok(bound == Some(offset)),
        }
    }

    /// The header of the frame at `offset`; `None` when the frame is not valid.
    fn valid_header(&mut self, offset: u64) -> Result<Option<FrameHeader>> {
        let Some(header) = self.reader.header(offset)? else {
            return Ok(None);
        };
        let Some(body) = self.reader.body(offset, &header)? else {
            return Ok(None);
        };
        if header.kind == FrameKind::Data {
            check_entries(&header, body).map_err(|why| self.corrupt(offset, why))?;
        }
        Ok(Some(header))
    }

    /// Ends the walk at an invalid frame if nothing was synced there. Otherwise continues, for a second
    /// read.
    fn end_at_invalid(&mut self, offset: u64, is_second_look: bool) -> Result<ControlFlow<()>> {
        if let Some(bound) = self.bound {
            let reason = format!("not a valid frame; the log goes on up to offset {bound}");
            return Err(self.corrupt(offset, reason));
        }
        let proof = self.reader.proof_of_sync(offset)?;
        self.reader.forget();
        if let Some(proof) = proof {
            if is_second_look {
                let reason = format!(
                    "not a valid frame, but the one at offset {proof} was written after this one \
                     was synced"
                );
                return Err(self.corrupt(offset, reason));
            }
            return Ok(ControlFlow::Continue(()));
        }
        let capacity_bytes = self.segment.header.capacity_bytes;
        if self.scanned.file_len < capacity_bytes {
            let reason = format!(
                "the file was cut to {} of {capacity_bytes} bytes as a closed log is, but has no \
                 valid seal here",
                self.scanned.file_len
            );
            return Err(self.corrupt(offset, reason));
        }
        self.scanned.end = End::Tail {
            torn: self.reader.is_torn(offset)?,
        };
        Ok(ControlFlow::Break(()))
    }

    /// Adds the valid frame at `offset`, if its kind is allowed there. Breaks at the last frame.
    fn take(&mut self, offset: u64, header: &FrameHeader) -> Result<ControlFlow<()>> {
        self.check_index(offset, header)?;
        if header.kind == FrameKind::Continued {
            if self.bound.is_some() {
                return Err(self.corrupt(offset, "marked as continued too early"));
            }
            let id = self.segment.header.id;
            self.segment.expect_from(self.vfs, self.dir, id + 1)?;
            self.scanned.end = End::Stated;
            return Ok(ControlFlow::Break(()));
        }
        self.check_place(offset, header)?;
        let frame_end = offset + header.frame_len();
        let scanned = &mut self.scanned;
        scanned.synced_offset = scanned.synced_offset.max(header.synced_offset);
        scanned.end_offset = frame_end;
        scanned.frames += 1;
        match header.kind {
            FrameKind::Data => {
                scanned.entries += u64::from(header.entry_count);
                scanned.has_content = true;
                self.sparse_index
                    .note_frame(self.index_point(header.first_index, offset));
                self.next_index = header.end_index();
            }
            FrameKind::Cut => {
                scanned.has_content = true;
                self.sparse_index
                    .restart_at(self.index_point(header.first_index, frame_end));
                self.next_index = header.first_index;
            }
            FrameKind::Seal if self.bound.is_none() => {
                scanned.end = End::Sealed;
                // The walk goes on only to detect that a successor is missing.
                let next = self.reader.header(frame_end)?;
                if next.is_none_or(|next| next.kind != FrameKind::Continued) {
                    return Ok(ControlFlow::Break(()));
                }
            }
            FrameKind::Begin | FrameKind::Vouch | FrameKind::Seal | FrameKind::Continued => {}
        }
        Ok(ControlFlow::Continue(()))
    }

    /// A cut goes back to an earlier index; every other frame continues at the next index.
    fn check_index(&self, offset: u64, header: &FrameHeader) -> Result<()> {
        let (index, expected) = (header.first_index, self.next_index);
        let fits = match header.kind {
            FrameKind::Cut => index < expected,
            _ => index == expected,
        };
        if !fits {
            let reason = format!("index {index} where {expected} was expected");
            return Err(self.corrupt(offset, reason));
        }
        Ok(())
    }

    /// A prepared segment begins with a `Begin`, and a closed one ends with a `Seal`.
    fn check_place(&self, offset: u64, header: &FrameHeader) -> Result<()> {
        let is_first = self.segment.header.is_prepared && offset == HEADER_BYTES;
        if (header.kind == FrameKind::Begin) != is_first {
            return Err(self.corrupt(offset, "a beginning out of its place"));
        }
        if self.scanned.end == End::Sealed {
            return Err(self.corrupt(offset, "a frame behind the seal"));
        }
        Ok(())
    }
}

/// Whether a body with a valid checksum agrees with its header.
fn check_entries(header: &FrameHeader, body: &[u8]) -> Result<(), String> {
    let mut entries = Entries::new(header, body);
    entries.by_ref().for_each(drop);
    if entries.is_complete() {
        Ok(())
    } else {
        Err(format!(
            "the frame does not hold {} entries",
            header.entry_count
        ))
    }
}

/// Scans with one thread. `between` runs when the segments were opened and none was read.
#[cfg(test)]
pub(super) fn scan_beside(vfs: &dyn Vfs, dir: &Path, between: impl Fn()) -> Result<Scan> {
    scan(vfs, dir, |_| {
        between();
        1
    })
}

/// The result of a scan with `threads` threads, as text for comparisons.
#[cfg(test)]
pub(crate) fn scan_for_test(vfs: &dyn Vfs, dir: &Path, threads: usize) -> Result<String, String> {
    match scan(vfs, dir, |_| threads) {
        Ok(scan) => Ok(format!("{scan:?}")),
        Err(error) => Err(error.to_string()),
    }
}
