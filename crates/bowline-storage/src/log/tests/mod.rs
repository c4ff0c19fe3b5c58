//! Tests of the log as a whole, one file per topic, on a disk that forgets and fails on demand.

mod append;
mod crash;
mod damage;
mod disk;
mod faults;
mod prepared;
mod released;
mod reopen;
mod restart;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::segment::{is_spare_name, segment_id};
use super::{Log, LogOptions};
use crate::counters::Counters;
use crate::error::Result;
use crate::types::Index;
use crate::vfs::{OpenMode, Vfs};
use crate::workers::Background;

pub(super) use disk::{Crash, Disk, Operation};

pub(super) const DIR: &str = "data/log";
/// The offset of a segment's first frame.
pub(super) const FRAMES_START: u64 = 4096;

pub(super) type Entries = Vec<(Index, Vec<u8>)>;

/// Segments of two to eight pages, nothing in the background.
pub(super) fn small() -> LogOptions {
    LogOptions {
        segment_bytes: 32 << 10,
        first_segment_bytes: 8 << 10,
        background: Background::Manual,
        spares_max: 2,
        owner: 0x71e5,
    }
}

pub(super) fn open_with(
    vfs: Arc<dyn Vfs>,
    dir: &Path,
    options: LogOptions,
    after: Index,
    must_exist: bool,
) -> Result<(Log, Entries)> {
    let mut entries = Vec::new();
    let counters = Arc::new(Counters::default());
    let log = Log::open(
        vfs,
        dir.to_owned(),
        options,
        counters,
        after,
        must_exist,
        &mut |i, p| {
            entries.push((i, p.to_vec()));
            Ok(())
        },
    )?;
    Ok((log, entries))
}

pub(super) fn open(disk: &Disk, after: Index) -> Result<(Log, Entries)> {
    open_with(
        Arc::new(disk.clone()),
        Path::new(DIR),
        small(),
        after,
        false,
    )
}

/// Stages and writes one group.
pub(super) fn write(log: &mut Log, payloads: &[&[u8]]) {
    for payload in payloads {
        log.stage(payload);
    }
    log.write().expect("write");
}

/// Writes and syncs one group per payload.
pub(super) fn commit_each(log: &mut Log, payloads: &[&[u8]]) {
    for payload in payloads {
        write(log, &[payload]);
        log.sync().expect("sync");
    }
}

pub(super) fn entries(from: Index, payloads: &[&[u8]]) -> Entries {
    (from..)
        .zip(payloads.iter().map(|payload| payload.to_vec()))
        .collect()
}

pub(super) fn names(vfs: &dyn Vfs, dir: &Path) -> (Vec<String>, Vec<String>) {
    let names = vfs.read_dir(dir).expect("list");
    let segments = names
        .iter()
        .filter(|name| segment_id(name).is_some())
        .cloned()
        .collect();
    let spares = names
        .iter()
        .filter(|name| is_spare_name(name))
        .cloned()
        .collect();
    (segments, spares)
}

pub(super) fn segment(id: u64) -> PathBuf {
    Path::new(DIR).join(super::segment::segment_name(id))
}

pub(super) fn bytes_of(vfs: &dyn Vfs, path: &Path) -> Vec<u8> {
    crate::vfs::read_file(vfs, path, 1 << 30).expect("read")
}

pub(super) fn overwrite(vfs: &dyn Vfs, path: &Path, offset: u64, bytes: &[u8]) {
    let file = vfs.open(path, OpenMode::ReadWrite).expect("open");
    file.write_at(bytes, offset).expect("write");
    file.sync_data().expect("sync");
}
