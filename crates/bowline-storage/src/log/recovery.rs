//! The third step of recovery: carries out a [`Plan`].
//!
//! A crash between any two steps leaves a directory from which recovery gives the same entries:
//! until the new segment is named nothing that a scan reads has changed; from then on it is the
//! empty last segment, which the next recovery replaces in turn, with the same end of the log.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::frame::{FrameKind, bare_frame};
use super::marks::Mark;
use super::plan::{Harden, Plan};
use super::preparer::{Preparer, Spare};
use super::segment::{HEADER_BYTES, Link, SegmentHeader, activate, segment_name, segment_path};
use crate::error::{Error, Result};
use crate::types::Index;
use crate::vfs::{self, OpenMode, Vfs, VfsFile};

const COPY_BYTES: u64 = 256 << 10;

/// Makes the directory, durably.
fn create_dir(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    match vfs.create_dir(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Error::io("create", dir, error)),
    }
    // Also when it was there: whoever made it may have died before this.
    vfs::sync_parent(vfs, dir)
}

/// Carries out `plan`; returns the new active segment and adds its mark to the plan's.
pub(super) fn apply(
    vfs: &dyn Vfs,
    dir: &Path,
    plan: &mut Plan,
    preparer: &Preparer,
    segment_bytes: u64,
    owner: u128,
) -> Result<(SegmentHeader, Arc<dyn VfsFile>)> {
    if plan.kept.is_empty() && plan.replaced.is_none() {
        create_dir(vfs, dir)?;
    } else {
        // A process that was killed may have named a segment and not synced the name; what is
        // removed here and later is not missed only if that name stays.
        vfs.sync_dir(dir)
            .map_err(|error| Error::io("sync", dir, error))?;
    }
    for name in &plan.remove {
        remove(vfs, &dir.join(name))?;
    }
    if let Some(harden) = &plan.harden {
        rewrite_and_sync(vfs, dir, harden)?;
    }
    let mut spare = preparer.take(segment_bytes, segment_bytes);
    for smaller in [segment_bytes / 8, 2 * HEADER_BYTES] {
        // On a full disk, whatever there is: what can be read shall be read, and deleted.
        if let Err(Error::NoSpace { .. }) = &spare {
            let bytes = smaller.max(2 * HEADER_BYTES).next_multiple_of(HEADER_BYTES);
            spare = preparer.take(bytes, bytes);
        }
    }
    let spare = spare?;
    let header = SegmentHeader {
        id: plan.new_id,
        salt: fastrand::u64(..),
        owner,
        first_index: plan.new_first_index,
        capacity_bytes: spare.bytes,
        previous: plan.previous,
    };
    activate(vfs, dir, &spare, &header)?;
    let Spare { file, .. } = spare;
    if let Some(link) = plan.previous
        && plan.mark_continued
    {
        let path = segment_path(dir, link.id);
        let previous = vfs
            .open(&path, OpenMode::ReadWrite)
            .map_err(|error| Error::io("open", &path, error))?;
        mark_continued(&*previous, &path, link, header.first_index)?;
    }
    if let Some(id) = plan.replaced {
        remove(vfs, &dir.join(segment_name(id)))?;
    }
    if plan.replaced.is_some() || !plan.remove.is_empty() {
        vfs.sync_dir(dir)
            .map_err(|error| Error::io("sync", dir, error))?;
    }
    plan.marks.restart_at(Mark {
        first_index: header.first_index,
        segment_id: header.id,
        offset: HEADER_BYTES,
    });
    Ok((header, file))
}

/// Writes, durably, that the log goes on behind the segment of `link`.
pub(super) fn mark_continued(
    file: &dyn VfsFile,
    path: &Path,
    link: Link,
    next_index: Index,
) -> Result<()> {
    let Link {
        id,
        salt,
        end_offset,
    } = link;
    let life = super::frame::Life::new(id, salt);
    let frame = bare_frame(
        life,
        end_offset,
        FrameKind::Continued,
        next_index,
        end_offset,
    );
    vfs::write_all_at(file, path, &frame, end_offset)?;
    vfs::sync_data(file, path)
}

/// Writes a stretch of a file again as it reads, then syncs. A sync that failed before a process
/// died may have left pages that read well, count as clean and are not on the disk.
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
