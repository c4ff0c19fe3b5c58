//! Reading entries by index: finds the point of the sparse index that covers an index, and reads frames
//! from there.
//!
//! A [`Replay`] is a stretch of the log with its own reader, so that several threads can read one
//! stretch each.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{Entries, FrameKind, Life};
use super::scan::FrameReader;
use super::segment::segment_path;
use super::sparse_index::SparseIndex;
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::types::Index;
use crate::vfs::{OpenMode, Vfs, VfsFile};

/// Receives an entry; returns whether to continue.
pub(super) type Visit<'a> = dyn FnMut(Index, &[u8]) -> Result<ControlFlow<()>> + 'a;

/// A segment of the open log.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) id: u64,
    pub(super) salt: u64,
    pub(super) file_len: u64,
}

/// Opens segments for reading; keeps the last one open.
#[derive(Debug)]
pub(super) struct Reader {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    last_opened: Mutex<Option<(u64, Arc<dyn VfsFile>)>>,
}

impl Reader {
    pub(super) fn new(vfs: Arc<dyn Vfs>, dir: PathBuf) -> Reader {
        Reader {
            vfs,
            dir,
            last_opened: Mutex::new(None),
        }
    }

    /// Closes the file of a released segment.
    pub(super) fn forget(&self) {
        *self.last_opened.lock() = None;
    }

    fn open(&self, id: u64, path: &Path) -> Result<Arc<dyn VfsFile>> {
        let mut last = self.last_opened.lock();
        if let Some((open_id, file)) = &*last
            && *open_id == id
        {
            return Ok(file.clone());
        }
        let file = self
            .vfs
            .open(path, OpenMode::Read)
            .map_err(|error| Error::io("open", path, error))?;
        *last = Some((id, file.clone()));
        Ok(file)
    }

    /// Passes the entries `from..end` to `visit`, in order, until it breaks.
    pub(super) fn visit(
        &self,
        segments: &VecDeque<Segment>,
        sparse_index: &SparseIndex,
        from: Index,
        end: Index,
        read_ahead_bytes: usize,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let mut next = from;
        while next < end {
            let (point, limit) = sparse_index
                .covering(next)
                .ok_or_else(|| Error::Internal(format!("log entry {next} has been released")))?;
            let path = segment_path(&self.dir, point.segment_id);
            let found = segments.binary_search_by_key(&point.segment_id, |segment| segment.id);
            let segment = found
                .map(|position| &segments[position])
                .map_err(|_| Error::Internal(format!("no log segment {}", point.segment_id)))?;
            let file = self.open(segment.id, &path)?;
            let life = Life::new(segment.id, segment.salt);
            let mut frames = FrameReader::new(&*file, &path, life, read_ahead_bytes)?;
            let mut stretch = Some((point, limit));
            // The index points of a segment one after the other, through one window.
            while let Some((point, limit)) = stretch.filter(|(it, _)| it.segment_id == segment.id) {
                let limit = limit.unwrap_or(end).min(end);
                let mut offset = point.offset;
                while next < limit {
                    let unreadable =
                        || Error::corrupt(&path, offset, format!("not the frame of entry {next}"));
                    let header = frames.header(offset)?.ok_or_else(unreadable)?;
                    if header.kind == FrameKind::Data && header.end_index() > next {
                        if header.first_index > next {
                            return Err(unreadable());
                        }
                        let body = frames.body(offset, &header)?.ok_or_else(unreadable)?;
                        let wanted = next..limit;
                        let entries = Entries::new(&header, body);
                        for (index, payload) in entries.filter(|(index, _)| wanted.contains(index))
                        {
                            next = index + 1;
                            if visit(index, payload)?.is_break() {
                                return Ok(());
                            }
                        }
                        if next < limit && next != header.end_index() {
                            return Err(Error::corrupt(&path, offset, "the frame lacks entries"));
                        }
                    }
                    offset += header.frame_len();
                }
                stretch = if next < end {
                    sparse_index.covering(next)
                } else {
                    None
                };
            }
        }
        Ok(())
    }
}

/// A stretch of the open log, which one thread reads from its first entry to its last.
#[derive(Debug)]
pub struct Replay<'a> {
    reader: Reader,
    segments: &'a VecDeque<Segment>,
    sparse_index: &'a SparseIndex,
    wanted: Range<Index>,
    read_ahead_bytes: usize,
}

impl<'a> Replay<'a> {
    pub(super) fn new(
        reader: Reader,
        segments: &'a VecDeque<Segment>,
        sparse_index: &'a SparseIndex,
        wanted: Range<Index>,
        read_ahead_bytes: usize,
    ) -> Replay<'a> {
        Replay {
            reader,
            segments,
            sparse_index,
            wanted,
            read_ahead_bytes,
        }
    }

    /// The index of the first entry.
    #[must_use]
    pub fn first_index(&self) -> Index {
        self.wanted.start
    }

    /// Passes every entry to `visit`, in order.
    pub fn visit(&self, visit: &mut dyn FnMut(Index, &[u8]) -> Result<()>) -> Result<()> {
        let Range { start, end } = self.wanted;
        let mut visit = |index, bytes: &[u8]| visit(index, bytes).map(ControlFlow::Continue);
        self.reader.visit(
            self.segments,
            self.sparse_index,
            start,
            end,
            self.read_ahead_bytes,
            &mut visit,
        )
    }
}
