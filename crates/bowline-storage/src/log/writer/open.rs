//! Opening the log: recovery in its steps, and the entries that it holds.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Log;
use super::room::segment_size;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::log::LogOptions;
use crate::log::frame::FRAME_HEADER_BYTES;
use crate::log::plan::plan;
use crate::log::reader::{Reader, Replay, Segment};
use crate::log::recovery::apply;
use crate::log::scan::{list, scan};
use crate::log::segment::{HEADER_BYTES, segment_id, segment_path};
use crate::log::segment_allocator::SegmentAllocator;
use crate::log::space::Space;
use crate::log::sync::{Active, Shared};
use crate::types::Index;
use crate::vfs::Vfs;
use crate::workers;

const REPLAY_READ_AHEAD_BYTES: usize = 256 << 10;
/// Follows the name of a segment that was set aside.
const SET_ASIDE_SUFFIX: &str = ".damaged";

impl Log {
    /// Opens the log in `dir`, recovers it, and hands every entry above `after` to `visit`, in
    /// order. `after` is the last index whose entries the caller has safely elsewhere; the log
    /// must hold or continue at the next one. An absent or empty directory is a new log that
    /// starts there, unless `must_exist`: then it is a [`Error::MissingFile`](crate::error::Error::MissingFile).
    ///
    /// Reading comes first: damage is reported before anything is changed.
    pub fn open(
        vfs: Arc<dyn Vfs>,
        dir: PathBuf,
        options: LogOptions,
        counters: Arc<Counters>,
        after: Index,
        must_exist: bool,
        visit: &mut dyn FnMut(Index, &[u8]) -> Result<()>,
    ) -> Result<Log> {
        let log = Log::recover(vfs, dir, options, counters, after, must_exist)?;
        for stretch in log.replay(after, 1) {
            stretch.visit(visit)?;
        }
        Ok(log)
    }

    /// [`Log::open`] for an owner that reads the entries afterwards, with [`Log::replay`].
    pub fn recover(
        vfs: Arc<dyn Vfs>,
        dir: PathBuf,
        options: LogOptions,
        counters: Arc<Counters>,
        after: Index,
        must_exist: bool,
    ) -> Result<Log> {
        let threads = |bytes| workers::threads_for(options.background, bytes);
        let scan = scan(&*vfs, &dir, threads)?;
        if let Some(last) = scan.segments.last() {
            // It names the salts of the others.
            last.header.check_owner(&dir, options.owner)?;
        }
        let mut plan = plan(scan, &dir, after, must_exist)?;
        tracing::debug!(dir = %dir.display(), %plan, "recovering the log");
        let space = Arc::new(Space::default());
        let allocator = SegmentAllocator::new(
            vfs.clone(),
            dir.clone(),
            counters.clone(),
            options.background,
            space.clone(),
        )?;
        let segment_bytes = segment_size(options.first_segment_bytes, &options);
        let owner = options.owner;
        let (header, file) = apply(&*vfs, &dir, &mut plan, &allocator, segment_bytes, owner)?;
        counters.log_bytes_written.add(HEADER_BYTES);
        let mut segments: VecDeque<Segment> = plan
            .kept
            .iter()
            .map(|kept| Segment {
                id: kept.header.id,
                salt: kept.header.salt,
                file_len: kept.file_len,
            })
            .collect();
        segments.push_back(Segment {
            id: header.id,
            salt: header.salt,
            file_len: header.capacity_bytes,
        });
        let written_index = header.first_index - 1;
        let active = Active {
            file,
            path: segment_path(&dir, header.id).into(),
            end_offset: HEADER_BYTES,
            synced_offset: HEADER_BYTES,
            written_index,
            durable_index: written_index,
            poison: None,
            is_closed: false,
        };
        Ok(Log {
            reader: Reader::new(vfs.clone(), dir.clone()),
            shared: Arc::new(Shared::new(active, counters.clone(), space)),
            next_segment_bytes: segment_size(segment_bytes * 2, &options),
            active_life: header.life(),
            // The header of the segment vouches for all before it.
            vouched_offset: HEADER_BYTES,
            sparse_index: plan.sparse_index,
            group: vec![0; FRAME_HEADER_BYTES],
            group_entries: 0,
            begin: Vec::new(),
            is_next_requested: false,
            vfs,
            dir,
            options,
            counters,
            allocator,
            segments,
        })
    }

    /// Renames the segments in `dir`, durably, so that no log has them. They are kept for whoever looks into the damage,
    /// until the next ones are set aside under the same names.
    pub(crate) fn set_aside(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
        let names = list(vfs, dir)?;
        let mut ids: Vec<u64> = names.iter().filter_map(|name| segment_id(name)).collect();
        if ids.is_empty() {
            return Ok(());
        }
        // The oldest first, so that what a crash leaves is no log that looks whole.
        ids.sort_unstable();
        for id in ids {
            let path = segment_path(dir, id);
            let mut kept = path.clone().into_os_string();
            kept.push(SET_ASIDE_SUFFIX);
            vfs.rename(&path, Path::new(&kept))
                .map_err(|e| Error::io("rename", &path, e))?;
            tracing::warn!(
                path = %Path::new(&kept).display(),
                "a segment of the damaged log is kept: remove it when nobody wants to look at it"
            );
        }
        vfs.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))
    }

    /// The written entries above `after`, in at most `count` stretches of about the same size that
    /// follow each other, each to be read by itself.
    #[must_use]
    pub fn replay(&self, after: Index, count: usize) -> Vec<Replay<'_>> {
        let end = self.written_index() + 1;
        let stretches = self.sparse_index.split(after + 1, end, count).into_iter();
        let replay = |wanted| {
            let reader = Reader::new(self.vfs.clone(), self.dir.clone());
            let (segments, sparse_index) = (&self.segments, &self.sparse_index);
            Replay::new(
                reader,
                segments,
                sparse_index,
                wanted,
                REPLAY_READ_AHEAD_BYTES,
            )
        };
        stretches.map(replay).collect()
    }
}
