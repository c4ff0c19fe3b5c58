//! Restore: makes a new database of the tables of [`Engine::freeze`](super::Engine::freeze).
//!
//! No engine runs during it. The tables are written and verified; one more table has the changes of the
//! new owner; a manifest names them all; and `BOWLINE` is written last, as for a
//! [checkpoint](super::Engine::checkpoint). The revision, the history and the index of the last entry
//! stay. The database gets a new id, and its log begins anew behind that index.
//!
//! ```text
//! begin ─► table, table, ... ─► keys_with ─► finish: changes ─► manifest ─► owner's files ─► BOWLINE
//! ```
//!
//! Invariants:
//!
//! - An unfinished restore is not a database: until `BOWLINE` appears, a mark says that it is unfinished.
//! - If it is not finished, every file that it created is removed again.
//! - The changes hide every entry of the tables: they have the newest revision, in the newest run.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::blob::{BlobFile, BlobMeta};
use crate::counters::Counters;
use crate::engine::check::verify_pointers;
use crate::engine::checkpoint::{begin, claim, remove_unfinished};
use crate::error::{Error, Result};
use crate::table::{PageCache, Table, TableMeta, TableOptions, TableWriter};
use crate::version::{Edit, Identity, Layout, Manifest, PlacedTable, State};
use crate::vfs::{self, OpenMode, Vfs};
use crate::{EntryKind, Index, Revision, TreeId};

const COPY_BYTES: usize = 1 << 20;
/// The cache for the pages of one table during its verification.
const CACHE_BYTES: u64 = 1 << 20;

/// The parameters of a restore.
#[derive(Debug, Clone, Copy)]
pub struct RestoreOptions<'a> {
    /// The source of the state and the tables, for errors.
    pub source: &'a Path,
    /// The state that came with the tables.
    pub state: &'a [u8],
    /// The id of the new database: the same for all members of a cluster.
    pub database_id: u128,
    /// The lower bound of the file ids of this member: a different one for each member, with the lower
    /// 32 bits zero.
    pub file_id_base: u64,
    /// The number of trees.
    pub trees: usize,
}

/// A restore in progress. If it is dropped before [`Restore::finish`] has succeeded, it leaves no file.
#[derive(Debug)]
pub struct Restore {
    vfs: Arc<dyn Vfs>,
    layout: Layout,
    source: PathBuf,
    state: State,
    identity: Identity,
    file_id_base: u64,
    /// The tables written so far.
    written: BTreeMap<u64, Arc<Table>>,
    written_blobs: BTreeMap<u64, Arc<BlobFile>>,
    counters: Arc<Counters>,
    is_finished: bool,
}

/// A file that a state names.
enum Named {
    Table(Box<TableMeta>),
    Blob(BlobMeta),
}

/// A summary of the tables of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrozenContents {
    /// The last log entry that they contain.
    pub index: Index,
    /// The newest revision in them.
    pub revision: Revision,
    /// The number of entries; each version counts.
    pub entries: u64,
}

/// Summarizes an encoded state; `None` when it does not decode.
#[must_use]
pub fn frozen_contents(state: &[u8]) -> Option<FrozenContents> {
    let state = decode(state).ok()?;
    let entries = state.tables.values().map(|placed| placed.meta.entries);
    Some(FrozenContents {
        index: state.flushed_index,
        revision: state.flushed_revision,
        entries: entries.fold(0, u64::saturating_add),
    })
}

pub(super) fn decode(bytes: &[u8]) -> std::result::Result<State, String> {
    let edit = Edit::decode(bytes).ok_or("its state does not decode")?;
    let mut state = State::default();
    state.apply(&edit)?;
    if state.flushed_index == 0 || state.log_started {
        return Err("its state is not that of tables which stand alone".to_owned());
    }
    Ok(state)
}

impl Restore {
    /// Begins a restore into the directory `path`, which must not exist or be empty.
    ///
    /// # Errors
    /// `Corrupt` when the state does not decode; `Io` when the directory is not empty or cannot be created.
    pub fn begin(vfs: Arc<dyn Vfs>, path: &Path, options: &RestoreOptions<'_>) -> Result<Restore> {
        let source = options.source.to_owned();
        let damaged = |reason| Error::corrupt(&source, 0, reason);
        let state = decode(options.state).map_err(damaged)?;
        let mut tables = state.tables.values();
        if let Some(placed) = tables.find(|p| usize::from(p.meta.tree.0) >= options.trees) {
            return Err(damaged(format!("tree {} is unknown", placed.meta.tree.0)));
        }
        let layout = Layout::new(path);
        claim(&*vfs, &layout)?;
        let restore = Restore {
            source,
            state,
            identity: Identity {
                database_id: options.database_id,
                manifest: 1,
            },
            file_id_base: options.file_id_base,
            written: BTreeMap::new(),
            written_blobs: BTreeMap::new(),
            counters: Arc::default(),
            is_finished: false,
            vfs,
            layout,
        };
        begin(&*restore.vfs, &restore.layout)?;
        Ok(restore)
    }

    /// The last log entry that the tables contain, and their newest revision.
    #[must_use]
    pub fn end(&self) -> (Index, Revision) {
        (self.state.flushed_index, self.state.flushed_revision)
    }

    /// Writes the table (or blob file) `name`, of `bytes` bytes, from `contents`, and verifies it.
    ///
    /// # Errors
    /// `Corrupt` when the state does not name the table, or names a different one; `Io`.
    pub fn table(&mut self, name: &str, bytes: u64, contents: &mut dyn Read) -> Result<()> {
        let damaged = |reason: String| Error::corrupt(&self.source, 0, reason);
        let is_named = |path: &PathBuf| path.file_name().is_some_and(|own| *own == *name);
        let tables = self.state.tables.values();
        let tables = tables.map(|placed| {
            let meta = &placed.meta;
            let path = self.layout.table(meta.file_id);
            (path, meta.file_bytes, Named::Table(Box::new(meta.clone())))
        });
        let blobs = self.state.blobs.values().map(|meta| {
            let path = self.layout.blob(meta.file_id);
            (path, meta.file_bytes, Named::Blob(meta.clone()))
        });
        let found = tables.chain(blobs).find(|(path, ..)| is_named(path));
        let found = found.ok_or_else(|| damaged(format!("its state has no table {name:?}")))?;
        let (path, stated, named) = found;
        let is_there = match &named {
            Named::Table(meta) => self.written.contains_key(&meta.file_id),
            Named::Blob(meta) => self.written_blobs.contains_key(&meta.file_id),
        };
        if bytes != stated || is_there {
            let reason = format!("table {name} of {bytes} bytes, where one of {stated} is to be");
            return Err(damaged(reason));
        }
        let file = self.vfs.open(&path, OpenMode::CreateNew);
        let file = file.map_err(|e| Error::io("create", &path, e))?;
        let mut buffer = vec![0; COPY_BYTES];
        let mut offset = 0;
        while offset < bytes {
            let len = (bytes - offset).min(COPY_BYTES as u64) as usize;
            let read = contents.read_exact(&mut buffer[..len]);
            read.map_err(|e| Error::io("read", &self.source, e))?;
            vfs::write_all_at(&*file, &path, &buffer[..len], offset)?;
            offset += len as u64;
        }
        vfs::sync_data(&*file, &path)?;
        let counters = self.counters.clone();
        match named {
            Named::Table(meta) => {
                let cache = Arc::new(PageCache::new(CACHE_BYTES, counters.clone()));
                let table = Table::open(&self.vfs, path, &meta, cache, counters)?;
                let found = table.verify()?;
                if found.pointers > 0 && !self.state.references.contains_key(&meta.file_id) {
                    let reason = format!("table {name} refers to what its state does not name");
                    return Err(Error::corrupt(&self.source, 0, reason));
                }
                self.written.insert(meta.file_id, Arc::new(table));
            }
            Named::Blob(meta) => {
                let cache = Arc::new(PageCache::new(0, counters.clone()));
                let blob = BlobFile::open(&self.vfs, path, &meta, cache, counters)?;
                blob.verify()?;
                self.written_blobs.insert(meta.file_id, Arc::new(blob));
            }
        }
        Ok(())
    }

    /// The keys of a tree that begin with `prefix`, including deleted ones.
    ///
    /// # Errors
    /// `Corrupt`, `Io` when a table cannot be read.
    pub fn keys_with(&self, tree: TreeId, prefix: &[u8]) -> Result<BTreeSet<Vec<u8>>> {
        let mut keys = BTreeSet::new();
        for table in self.written.values() {
            if table.meta().tree != tree {
                continue;
            }
            let mut cursor = table.version_cursor(false);
            cursor.seek(prefix)?;
            while cursor.valid() && cursor.key().starts_with(prefix) {
                keys.insert(cursor.key().to_vec());
                cursor.next()?;
            }
        }
        Ok(keys)
    }

    /// Changes entries of a tree (`None` deletes) at the newest revision, lets the owner write its own
    /// files into the directory, and completes the database.
    ///
    /// # Errors
    /// `Corrupt` when a table is missing; `Io`, `NoSpace`; and the errors of `own_files`.
    pub fn finish<E: From<Error>>(
        mut self,
        tree: TreeId,
        changes: &BTreeMap<Vec<u8>, Option<Vec<u8>>>,
        own_files: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.write_state(tree, changes)?;
        own_files()?;
        self.identity.write(&*self.vfs, &self.layout)?;
        self.is_finished = true;
        let mark = self.layout.unfinished();
        if let Err(cause) = self.vfs.remove_file(&mark) {
            // Beside `BOWLINE` the mark has no meaning, and the next opening removes it.
            tracing::warn!(path = %mark.display(), %cause, "a mark of a restore stays");
        }
        Ok(())
    }

    fn write_state(
        &mut self,
        tree: TreeId,
        changes: &BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    ) -> Result<()> {
        let tables = self.state.tables.keys();
        let tables = tables.filter(|id| !self.written.contains_key(id));
        let blobs = self.state.blobs.keys();
        let blobs = blobs.filter(|id| !self.written_blobs.contains_key(id));
        if let Some(id) = tables.chain(blobs).next() {
            let reason = format!("table {id:016x} of its state is missing");
            return Err(Error::corrupt(&self.source, 0, reason));
        }
        for (id, table) in &self.written {
            let references = self.state.references.get(id);
            let blob = |id| self.written_blobs.get(&id).cloned();
            let pointers = u64::from(references.is_some());
            verify_pointers(table, pointers, references, |_| false, &blob)?;
        }
        self.written.clear();
        self.written_blobs.clear();
        // A member with this id base may have made some of the tables.
        let is_own = |id: &&u64| **id >> 32 == self.file_id_base >> 32;
        let ids = self.state.tables.keys().chain(self.state.blobs.keys());
        let newest = ids.filter(is_own).max();
        let file_id = newest.map_or(self.file_id_base, |id| *id) + 1;
        self.state.next_file_id = file_id + 1;
        if !changes.is_empty() {
            let path = self.layout.table(file_id);
            let options = TableOptions::default();
            let mut writer = TableWriter::create(&self.vfs, path, file_id, tree, &options)?;
            for (key, value) in changes {
                let (kind, value) = match value {
                    Some(value) => (EntryKind::Put, &value[..]),
                    None => (EntryKind::Delete, &[][..]),
                };
                writer.add(key, self.state.flushed_revision, kind, value)?;
            }
            let placed = PlacedTable {
                level: 0,
                run: self.state.next_run_id,
                meta: writer.finish()?,
            };
            self.state.next_run_id += 1;
            self.state.tables.insert(file_id, placed);
        }
        let (vfs, layout) = (&*self.vfs, &self.layout);
        let tables = layout.tables();
        vfs.sync_dir(&tables)
            .map_err(|e| Error::io("sync", &tables, e))?;
        let counters = self.counters.clone();
        Manifest::create(vfs, layout, &self.identity, &self.state, counters)?;
        Ok(())
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        self.written.clear();
        self.written_blobs.clear();
        let (vfs, layout) = (&*self.vfs, &self.layout);
        // The directory was empty, so every file in it belongs to this restore. `BOWLINE` is removed first.
        let mut names = vfs.read_dir(layout.root()).unwrap_or_default();
        names.retain(|name| name != "tables" && name != Layout::UNFINISHED);
        names.sort();
        for name in names {
            let path = layout.root().join(name);
            if let Err(cause) = vfs.remove_file(&path) {
                tracing::warn!(path = %path.display(), %cause, "a part of an unfinished restore stays");
            }
        }
        remove_unfinished(vfs, layout);
    }
}
