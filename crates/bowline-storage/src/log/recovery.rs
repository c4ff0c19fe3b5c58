//! The third step of recovery: executes a [`Plan`].
//!
//! A crash between any two steps leaves a directory from which recovery gives the same entries:
//! until the new segment has its name, nothing that a scan reads has changed. From then on it is the
//! empty last segment, which the next recovery replaces again, with the same end of the log. Segments are
//! removed only when a later one durably has its name, because the mark of an earlier segment may say
//! that a later one exists.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::plan::{Harden, Plan};
use super::segment::{HEADER_BYTES, Marker, SegmentHeader, activate, segment_name, segment_path};
use super::segment_allocator::{SegmentAllocator, Spare};
use super::sparse_index::IndexPoint;
use crate::error::{Error, Result};
use crate::vfs::{self, OpenMode, Vfs, VfsFile};

const COPY_BYTES: u64 = 256 << 10;

/// Creates the directory, durably.
fn create_dir(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    match vfs.create_dir(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Error::io("create", dir, error)),
    }
    // Also if it existed: its creator may have died before this sync.
    vfs::sync_parent(vfs, dir)
}

/// Executes `plan`; returns the new active segment and adds its point to the sparse index of the plan.
pub(super) fn apply(
    vfs: &dyn Vfs,
    dir: &Path,
    plan: &mut Plan,
    allocator: &SegmentAllocator,
    segment_bytes: u64,
    owner: u128,
) -> Result<(SegmentHeader, Arc<dyn VfsFile>)> {
    if plan.kept.is_empty() && plan.replaced.is_none() {
        create_dir(vfs, dir)?;
    }
    for name in &plan.remove {
        remove(vfs, &dir.join(name))?;
    }
    if let Some(harden) = &plan.harden {
        rewrite_and_sync(vfs, dir, harden)?;
    }
    // On a full disk, take any spare: the database must stay readable, and deletions must work.
    let small = |bytes: u64| bytes.max(2 * HEADER_BYTES).next_multiple_of(HEADER_BYTES);
    let sizes = [
        segment_bytes,
        small(segment_bytes / 8),
        small(2 * HEADER_BYTES),
    ];
    let mut spare = take_one_of(allocator, &sizes);
    if matches!(spare, Err(Error::NoSpace { .. })) && remove_unbegun(vfs, dir, plan)? {
        spare = take_one_of(allocator, &sizes);
    }
    let spare = spare?;
    let header = SegmentHeader {
        id: plan.new_id,
        salt: fastrand::u64(..),
        owner,
        first_index: plan.new_first_index,
        capacity_bytes: spare.bytes,
        previous: plan.previous,
        is_prepared: false,
        later_id: None,
        has_torn_mark: false,
    };
    activate(vfs, dir, &spare, &header)?;
    let Spare { file, .. } = spare;
    if let Some(link) = plan.previous
        && plan.mark_continued
    {
        Marker::open(vfs, dir, link.id, link.salt)?.mark(Some(header.id))?;
    }
    let superfluous: Vec<u64> = plan.unbegun.iter().chain(&plan.replaced).copied().collect();
    for id in &superfluous {
        remove(vfs, &dir.join(segment_name(*id)))?;
    }
    if !superfluous.is_empty() || !plan.remove.is_empty() {
        vfs.sync_dir(dir)
            .map_err(|error| Error::io("sync", dir, error))?;
    }
    plan.sparse_index.restart_at(IndexPoint {
        first_index: header.first_index,
        segment_id: header.id,
        offset: HEADER_BYTES,
    });
    Ok((header, file))
}

/// A spare of the first of these sizes for which the disk has space.
fn take_one_of(allocator: &SegmentAllocator, sizes: &[u64]) -> Result<Spare> {
    let mut spare = allocator.take(sizes[0], sizes[0]);
    for bytes in &sizes[1..] {
        if let Err(Error::NoSpace { .. }) = &spare {
            spare = allocator.take(*bytes, *bytes);
        }
    }
    spare
}

/// Removes segments that were never begun, before the new one exists, to free their space; returns
/// whether there were any.
fn remove_unbegun(vfs: &dyn Vfs, dir: &Path, plan: &mut Plan) -> Result<bool> {
    let unbegun = std::mem::take(&mut plan.unbegun);
    if unbegun.is_empty() {
        return Ok(false);
    }
    // A killed process may have named the last segment without syncing the name. If that name were lost,
    // the mark of the previous segment would refer to a segment that is removed here.
    vfs.sync_dir(dir)
        .map_err(|error| Error::io("sync", dir, error))?;
    // The last segment must not have such a mark either. It has none if what was never begun is older: then the sector
    // is not written, as a mark that is torn must be about a further segment.
    if let Some((id, salt)) = plan.last
        && unbegun.iter().any(|other| *other > id)
    {
        Marker::open(vfs, dir, id, salt)?.mark(None)?;
    }
    // The last one first, each durably: one names the other as the segment before it.
    for id in unbegun {
        remove(vfs, &dir.join(segment_name(id)))?;
        vfs.sync_dir(dir)
            .map_err(|error| Error::io("sync", dir, error))?;
    }
    Ok(true)
}

/// Writes a stretch of a file again, with the same bytes, then syncs. A failed sync of an earlier process
/// may have left pages that are readable and marked clean, but are not on the disk.
fn rewrite_and_sync(vfs: &dyn Vfs, dir: &Path, harden: &Harden) -> Result<()> {
    let path = segment_path(dir, harden.id);
    let file = vfs
        .open(&path, OpenMode::ReadWrite)
        .map_err(|error| Error::io("open", &path, error))?;
    let mut buffer = Vec::new();
    let mut offset = harden.from_offset;
    while offset < harden.to_offset {
        let count = COPY_BYTES.min(harden.to_offset - offset);
        buffer.resize(count as usize, 0);
        vfs::read_exact_at(&*file, &path, &mut buffer, offset)?;
        vfs::write_all_at(&*file, &path, &buffer, offset)?;
        offset += count;
    }
    vfs::sync_data(&*file, &path)
}

fn remove(vfs: &dyn Vfs, path: &Path) -> Result<()> {
    vfs.remove_file(path)
        .map_err(|error| Error::io("remove", path, error))
}
