//! Opening the log: recovery in its steps, and the entries that it holds.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use super::Log;
use super::room::segment_size;
use crate::counters::Counters;
use crate::error::Result;
use crate::log::LogOptions;
use crate::log::frame::FRAME_HEADER_BYTES;
use crate::log::plan::plan;
use crate::log::reader::{Reader, Replay, Segment};
use crate::log::recovery::apply;
use crate::log::scan::scan;
use crate::log::segment::{HEADER_BYTES, segment_path};
use crate::log::segment_allocator::SegmentAllocator;
use crate::log::space::Space;
use crate::log::sync::{Active, Shared};
use crate::types::Index;
use crate::vfs::Vfs;
use crate::workers;

const REPLAY_READ_AHEAD_BYTES: usize = 256 << 10;

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
