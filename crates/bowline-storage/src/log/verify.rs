//! Checks a log directory without changing it, even while it is being written.

use std::path::{Path, PathBuf};

use super::scan::{End, list, scan};
use super::segment::{segment_id, segment_path};
use crate::error::{Error, Result};
use crate::types::Index;
use crate::vfs::Vfs;

const ATTEMPTS_MAX: usize = 8;

/// The result of a check of a log. Damage is not part of it: [`verify`] returns damage as an error.
///
/// [`verify`]: super::Log::verify
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Report {
    /// Live segments.
    pub segments: u64,
    /// Valid frames in them.
    pub frames: u64,
    /// Entries in them, void ones included.
    pub entries: u64,
    /// Bytes covered by valid frames and headers.
    pub bytes: u64,
    /// The lowest index, or `next_index` when there are no entries.
    pub first_index: Index,
    /// The index of the next entry; 0 when there is no segment.
    pub next_index: Index,
    /// The owner of the log; `None` when there is no segment.
    pub owner: Option<u128>,
    /// The last segment, and where its last valid frame ends.
    pub end: Option<(PathBuf, u64)>,
    /// Whether the log was closed cleanly.
    pub is_sealed: bool,
    /// The place of a group that was never acknowledged: torn by a crash, or being written.
    pub unfinished: Option<(PathBuf, u64)>,
}

/// See [`Log::verify`](super::Log::verify).
pub(super) fn verify(vfs: &dyn Vfs, dir: &Path) -> Result<Report> {
    let mut attempt = 1;
    loop {
        let before = segment_ids(vfs, dir)?;
        match check(vfs, dir) {
            // Segments were created or removed during the check, which can look like a gap: check again.
            Err(error) if attempt < ATTEMPTS_MAX && segment_ids(vfs, dir)? != before => {
                tracing::debug!(%error, attempt, "the log changed while it was checked");
                attempt += 1;
            }
            result => return result,
        }
    }
}

fn segment_ids(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<u64>> {
    Ok(list(vfs, dir)?
        .iter()
        .filter_map(|name| segment_id(name))
        .collect())
}

fn check(vfs: &dyn Vfs, dir: &Path) -> Result<Report, Error> {
    let scan = scan(vfs, dir, |_| 1)?;
    let last = scan.segments.last();
    Ok(Report {
        segments: scan.segments.len() as u64,
        frames: scan.segments.iter().map(|segment| segment.frames).sum(),
        entries: scan.segments.iter().map(|segment| segment.entries).sum(),
        bytes: scan.segments.iter().map(|segment| segment.end_offset).sum(),
        first_index: scan.sparse_index.first_index().unwrap_or(scan.next_index),
        next_index: scan.next_index,
        owner: last.map(|last| last.header.owner),
        end: last.map(|last| (segment_path(dir, last.header.id), last.end_offset)),
        is_sealed: last.is_some_and(|last| last.end == End::Sealed),
        unfinished: last
            .filter(|last| last.end == End::Tail { torn: true })
            .map(|last| (segment_path(dir, last.header.id), last.end_offset)),
    })
}
