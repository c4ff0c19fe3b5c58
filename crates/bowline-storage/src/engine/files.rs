//! The tables and blob files of the engine on the disk.
//!
//! [`FileSet`] gives each new file its id and its path, opens files, and removes files that no version
//! names. It has no lock: file ids come from one atomic counter, and files are immutable once written.

use std::path::PathBuf;
use std::sync::Arc;

use crate::blob::{BlobFile, BlobMeta};
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::table::{PageCache, Table, TableMeta};
use crate::version::Layout;
use crate::vfs::Vfs;

/// Creates, opens and removes tables and blob files.
#[derive(Debug)]
pub(super) struct FileSet {
    pub vfs: Arc<dyn Vfs>,
    pub layout: Layout,
    pub cache: Arc<PageCache>,
    pub counters: Arc<Counters>,
    next_file_id: AtomicU64,
    /// The upper half of the ids that this member gives.
    member: Option<u64>,
}

impl FileSet {
    pub(super) fn new(
        vfs: Arc<dyn Vfs>,
        layout: Layout,
        cache: Arc<PageCache>,
        counters: Arc<Counters>,
        next_file_id: u64,
        is_replicated: bool,
    ) -> FileSet {
        const UPPER_HALF: u64 = !(u32::MAX as u64);
        FileSet {
            vfs,
            layout,
            cache,
            counters,
            next_file_id: AtomicU64::new(next_file_id),
            member: is_replicated.then_some(next_file_id & UPPER_HALF),
        }
    }

    /// The id and path of a new table.
    pub(super) fn new_table(&self) -> (u64, PathBuf) {
        let id = self.new_id();
        (id, self.layout.table(id))
    }

    /// The id and path of a new blob file.
    pub(super) fn new_blob(&self) -> (u64, PathBuf) {
        let id = self.new_id();
        (id, self.layout.blob(id))
    }

    /// The next id. Those of a member begin anywhere in its range, whose end is followed by its start: one that a file has is
    /// left out.
    fn new_id(&self) -> u64 {
        const LOWER_HALF: u64 = u32::MAX as u64;
        loop {
            let next = self.next_file_id.fetch_add(1, Ordering::Relaxed);
            let Some(member) = self.member else {
                return next;
            };
            let id = member | (next & LOWER_HALF);
            let mut paths = [self.layout.table(id), self.layout.blob(id)].into_iter();
            // What cannot be looked at is said when the file is made.
            if !paths.any(|path| self.vfs.metadata(&path).is_ok_and(|found| found.is_some())) {
                return id;
            }
        }
    }

    /// An id above those of all files so far, for the manifest.
    pub(super) fn next_file_id(&self) -> u64 {
        self.next_file_id.load(Ordering::Relaxed)
    }

    pub(super) fn open_table(&self, meta: &TableMeta) -> Result<Table> {
        let path = self.layout.table(meta.file_id);
        let (cache, counters) = (self.cache.clone(), self.counters.clone());
        Table::open(&self.vfs, path, meta, cache, counters)
    }

    pub(super) fn open_blob(&self, meta: &BlobMeta) -> Result<BlobFile> {
        let path = self.layout.blob(meta.file_id);
        let (cache, counters) = (self.cache.clone(), self.counters.clone());
        BlobFile::open(&self.vfs, path, meta, cache, counters)
    }

    /// Makes the names of new files durable.
    pub(super) fn sync_directory(&self) -> Result<()> {
        let tables = self.layout.tables();
        let synced = self.vfs.sync_dir(&tables);
        synced.map_err(|e| Error::io("sync", &tables, e))
    }

    /// Removes files that no version names. Best effort: the next opening removes the rest.
    pub(super) fn remove<'a>(
        &self,
        tables: impl IntoIterator<Item = &'a TableMeta>,
        blobs: impl IntoIterator<Item = &'a BlobMeta>,
    ) {
        let tables = tables
            .into_iter()
            .map(|meta| self.layout.table(meta.file_id));
        let blobs = blobs.into_iter().map(|meta| self.layout.blob(meta.file_id));
        for path in tables.chain(blobs) {
            if let Err(cause) = self.vfs.remove_file(&path)
                && cause.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), %cause, "an unfinished file stays until the next open");
            }
        }
    }
}
