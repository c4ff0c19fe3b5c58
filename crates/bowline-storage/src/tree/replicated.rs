//! An engine whose log belongs to somebody else: the replicated log of a cluster.
//!
//! Then the log holds what was *proposed*, the engine what was *agreed*: entries reach it through
//! [`Round::apply_at`](super::Round::apply_at), some time after they were written to the log, and
//! an opening replays nothing by itself, since only the owner learns what was agreed. The memtable
//! still records the index of the last entry in it, so that a flush tells how far the log is
//! contained in the tables.
//!
//! A member that lags behind further than the log reaches gets the tables themselves:
//! [`Engine::freeze`] on one side, [`Engine::install`] on the other. Tables are immutable and all
//! members of a cluster share the database's id, so they are taken over as they are; each member
//! numbers its own from a base of its own.
//!
//! Invariants:
//!
//! - Tables never run ahead of the log: a memtable is flushed only when the log is durable up to its
//!   last entry. (A member may apply what a majority has before it has written it itself.)
//! - An installation is one edit of the manifest: before it the old state with the old log, after it
//!   the new state with a log that is void. A void log is discarded at the next opening; nothing is
//!   acknowledged in a new one before [`Engine::log_restarted`].
//! - A reader that pinned a revision which the new tables do not hold is told so
//!   ([`Error::Replaced`]), and never reads them at it. What they hold is the history of all
//!   members, so a younger pin goes on.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{CommitState, Engine, Recording, Shared, recovery};
use crate::blob::BlobFile;
use crate::error::{Error, Result};
use crate::log::Log;
use crate::sync::atomic::Ordering;
use crate::table::Table;
use crate::version::{Edit, Layout, PlacedTable, State, Version};
use crate::vfs::{OpenMode, UninterruptedVfs, Vfs, VfsFile};
use crate::{Clock, EntryKind, Index, Revision, TreeId};

use super::EngineOptions;

/// How an engine is opened whose log belongs to somebody else.
pub struct Replicated<'a> {
    /// The id of a database that has to be created: the same for all members.
    pub database_id: u128,
    /// Below the numbers of the tables that a database makes which has to be created: another one
    /// for each member, with the lower 32 bits zero.
    pub file_id_base: u64,
    /// Is called once the directory is locked, before anything else is made in it, with whether it
    /// holds a database: nobody else opens or makes one now.
    pub locked: &'a mut dyn FnMut(bool) -> Result<()>,
    /// Is shown every entry of the log behind the flushed ones, in order.
    pub visit: &'a mut dyn FnMut(Index, &[u8]) -> Result<()>,
}

impl std::fmt::Debug for Replicated<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replicated")
            .field("database_id", &self.database_id)
            .field("file_id_base", &self.file_id_base)
            .finish_non_exhaustive()
    }
}

/// A table or a blob file of a frozen state. It stays as long as this lives.
#[derive(Debug, Clone)]
pub struct FrozenTable {
    source: FrozenFile,
    file: Arc<dyn VfsFile>,
}

#[derive(Debug, Clone)]
enum FrozenFile {
    Table(Arc<Table>),
    Blob(Arc<BlobFile>),
}

impl FrozenTable {
    /// The name of its file.
    #[must_use]
    pub fn name(&self) -> String {
        let name = match &self.source {
            FrozenFile::Table(table) => table.path().file_name(),
            FrozenFile::Blob(blob) => blob.path().file_name(),
        };
        name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// The size of its file, in bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        match &self.source {
            FrozenFile::Table(table) => table.meta().file_bytes,
            FrozenFile::Blob(blob) => blob.meta().file_bytes,
        }
    }

    /// Reads all of it again, and checks all that can be checked.
    ///
    /// # Errors
    /// `Corrupt` names the file and the place; `Io`.
    pub fn verify(&self) -> Result<()> {
        match &self.source {
            FrozenFile::Table(table) => table.verify().map(drop),
            FrozenFile::Blob(blob) => blob.verify().map(drop),
        }
    }

    /// Its file, to be read.
    #[must_use]
    pub fn file(&self) -> &Arc<dyn VfsFile> {
        &self.file
    }
}

/// The tables of one moment, which hold everything up to an index.
#[derive(Debug, Clone)]
pub struct FrozenTables {
    /// The last entry of the log contained in them.
    pub index: Index,
    /// The revision they end with.
    pub revision: Revision,
    /// What [`Engine::install`] needs to know.
    pub state: Vec<u8>,
    /// The tables, and behind them the blob files they refer to.
    pub tables: Vec<FrozenTable>,
    version: Arc<Version>,
}

impl FrozenTables {
    /// The newest value of a key in these tables.
    ///
    /// # Errors
    /// As of any read.
    pub fn read(&self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        for run in self.version.tree(tree).runs() {
            let Some(table) = run.find(key) else { continue };
            if let Some(entry) = table.get(key, Revision::MAX)? {
                let is_put = entry.kind == EntryKind::Put;
                let value = match entry.pointer {
                    Some(pointer) => {
                        let file = self.version.blob(&pointer, tree)?;
                        file.read(&pointer, key, entry.revision)?
                    }
                    None => entry.value,
                };
                return Ok(is_put.then(|| value.to_vec()));
            }
        }
        Ok(None)
    }
}

/// The files of a state, in their place, and the edit that names them.
struct Opened {
    edit: Edit,
    tables: Vec<Arc<Table>>,
    blobs: Vec<Arc<BlobFile>>,
}

/// What an installation led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Installed {
    /// The last entry of the log contained in the tables.
    pub index: Index,
    /// The revision they end with.
    pub revision: Revision,
}

impl Engine {
    /// Opens or creates the database in `path` for a member of a cluster; the log, opened, belongs
    /// to the caller.
    pub fn open_replicated(
        vfs: Arc<dyn Vfs>,
        clock: Arc<dyn Clock>,
        path: impl Into<PathBuf>,
        options: EngineOptions,
        replicated: Replicated<'_>,
    ) -> Result<(Engine, Log)> {
        let vfs: Arc<dyn Vfs> = Arc::new(UninterruptedVfs::new(vfs));
        let layout = Layout::new(path);
        let (shared, log) = recovery::open(vfs, clock, layout, options, Some(replicated))?;
        let log = log.ok_or_else(|| Error::Internal("a replica without a log".to_owned()))?;
        Ok((Engine::start(shared)?, log))
    }

    /// The last entry of the log that the tables contain.
    #[must_use]
    pub fn flushed_index(&self) -> Index {
        self.shared.super_version.load().version.flushed_index
    }

    /// Keeps every tombstone from `from` on, whoever reads, from now on and until
    /// [`Engine::hold_tombstones_later`]. Before the first call all are kept.
    pub fn hold_tombstones(&self, from: Revision) {
        self.shared.readers.hold_tombstones(from);
    }

    /// Keeps them from `from` on only, once the tables contain the entry `index`: until then, entries
    /// before it may have to be applied again, and what they are decided by must be there.
    pub fn hold_tombstones_later(&self, index: Index, from: Revision) {
        self.shared.readers.hold_tombstones_later(index, from);
    }

    /// Flushes, and pins the tables there are then.
    pub fn freeze(&self) -> Result<FrozenTables> {
        self.flush()?;
        self.freeze_flushed()
    }

    /// Pins the tables there are, which hold everything up to some flush. On a full disk there is
    /// nothing newer.
    pub fn freeze_flushed(&self) -> Result<FrozenTables> {
        let shared = &*self.shared;
        let current = shared.super_version.load_full();
        let version = &current.version;
        let mut state = State {
            flushed_index: version.flushed_index,
            flushed_revision: version.flushed_revision,
            next_run_id: 1,
            // History can be given up beyond what is flushed. Who takes this over begins at its end.
            history_floor: version.history_floor.min(version.flushed_revision),
            ..State::default()
        };
        let mut tables = Vec::new();
        for tree in &version.trees {
            for (level, runs) in tree.levels.iter().enumerate() {
                for run in runs {
                    state.next_run_id = state.next_run_id.max(run.id + 1);
                    for table in &run.tables {
                        let file = shared.vfs.open(table.path(), OpenMode::Read);
                        let file = file.map_err(|e| Error::io("open", table.path(), e))?;
                        let meta = table.meta().clone();
                        let placed = PlacedTable {
                            level: level as u8,
                            run: run.id,
                            meta,
                        };
                        state.tables.insert(placed.meta.file_id, placed);
                        let source = FrozenFile::Table(table.clone());
                        tables.push(FrozenTable { source, file });
                    }
                }
            }
        }
        for blob in version.blobs.values() {
            let path = blob.file.path();
            let file = shared.vfs.open(path, OpenMode::Read);
            let file = file.map_err(|e| Error::io("open", path, e))?;
            let source = FrozenFile::Blob(blob.file.clone());
            tables.push(FrozenTable { source, file });
        }
        version.add_blobs_to(&mut state);
        let mut bytes = Vec::new();
        state.as_edit().encode(&mut bytes);
        Ok(FrozenTables {
            index: version.flushed_index,
            revision: version.flushed_revision,
            state: bytes,
            tables,
            version: version.clone(),
        })
    }

    /// Replaces the whole state by a frozen one, whose files lie in `directory`, verified and
    /// synced, under the names they had. The log is void from then on, unless it goes on beyond the
    /// state's end and `keeps_log` says so: the owner starts it anew behind the returned index, and
    /// then calls [`Engine::log_restarted`].
    ///
    /// # Errors
    /// `Corrupt` when the files are not those of the state; `Internal` when the state is older than
    /// what is here. Nothing has changed then. Neither has it after `NoSpace` and `TooManyFiles`, and the
    /// same call can be made again.
    pub fn install(&self, state: &[u8], directory: &Path, keeps_log: bool) -> Result<Installed> {
        let shared = &*self.shared;
        let damaged = |reason: String| Error::corrupt(directory, 0, reason);
        let edit =
            Edit::decode(state).ok_or_else(|| damaged("its state does not decode".into()))?;
        let mut incoming = State::default();
        incoming.apply(&edit).map_err(damaged)?;
        let trees = shared.options.trees.len();
        let mut tables = incoming.tables.values();
        if let Some(placed) = tables.find(|p| usize::from(p.meta.tree.0) >= trees) {
            return Err(damaged(format!("tree {} is unknown", placed.meta.tree.0)));
        }
        let _flushing = shared.flushing.lock();
        let _compacting = shared.compacting.lock();
        let mut commit = shared.commit.lock();
        if let Some(reason) = commit.poisoned() {
            return Err(Error::Poisoned { reason });
        }
        if incoming.flushed_index < commit.last_index {
            let (old, new) = (commit.last_index, incoming.flushed_index);
            let reason = format!("a state of entry {new} would replace one of entry {old}");
            return Err(Error::Internal(reason));
        }
        let mut taken = Vec::new();
        let result = self.replace(&mut commit, &incoming, directory, keeps_log, &mut taken);
        if result.as_ref().is_err_and(Error::is_shortage) {
            // Nothing names them.
            self.give_back(taken, directory);
        }
        result
    }

    fn replace(
        &self,
        commit: &mut CommitState,
        incoming: &State,
        directory: &Path,
        keeps_log: bool,
        taken: &mut Vec<PathBuf>,
    ) -> Result<Installed> {
        let shared = &*self.shared;
        let Opened {
            mut edit,
            tables,
            blobs,
        } = self.take_tables(incoming, directory, taken)?;
        edit.next_run_id = Some(incoming.next_run_id);
        edit.flushed = Some((incoming.flushed_index, incoming.flushed_revision));
        edit.history_floor = Some(incoming.history_floor);
        edit.log_void = !keeps_log;
        // Everything in memory is contained in what comes, or was never agreed.
        shared.seal(commit, 0);
        let newest = shared.super_version.load().active.generation();
        // First the readers, who load the sources before they look at this.
        let before = shared.readers.replace(incoming.history_floor);
        if let Err(error) = shared.record_installed(&edit, &tables, &blobs, newest) {
            // The old state goes on. Below a floor that it never reaches, its readers would wait for
            // ever.
            shared.readers.restore(&before);
            return Err(error);
        }
        // What is flushed from now on is newer than every run that came. Flushes and merges, which
        // count on, are locked out.
        let next_run_id = shared.next_run_id.load(Ordering::Relaxed);
        let next_run_id = next_run_id.max(incoming.next_run_id);
        shared.next_run_id.store(next_run_id, Ordering::Relaxed);
        commit.last_index = incoming.flushed_index;
        commit.last_revision = incoming.flushed_revision;
        let visible = &shared.visible;
        visible.store(incoming.flushed_revision, Ordering::Release);
        Ok(Installed {
            index: incoming.flushed_index,
            revision: incoming.flushed_revision,
        })
    }

    /// Brings the files of a state to their place, and opens them.
    fn take_tables(
        &self,
        incoming: &State,
        directory: &Path,
        taken: &mut Vec<PathBuf>,
    ) -> Result<Opened> {
        let shared = &*self.shared;
        let (vfs, layout) = (&shared.vfs, &shared.layout);
        let current = shared.super_version.load_full();
        let mut edit = Edit::default();
        let mut kept = std::collections::HashSet::new();
        for table in current.version.tables() {
            let meta = table.meta();
            edit.removed.push(meta.file_id);
            let same = incoming.tables.get(&meta.file_id);
            match same.map(|placed| placed.meta == *meta) {
                Some(true) => drop(kept.insert(meta.file_id)),
                Some(false) => {
                    let reason = "two tables of the cluster have its number".to_owned();
                    return Err(Error::corrupt(table.path(), 0, reason));
                }
                None => {}
            }
        }
        for live in current.version.blobs.values() {
            let meta = live.file.meta();
            match incoming.blobs.get(&meta.file_id).map(|same| same == meta) {
                Some(true) => drop(kept.insert(meta.file_id)),
                Some(false) => {
                    let reason = "two blob files of the cluster have its number".to_owned();
                    return Err(Error::corrupt(live.file.path(), 0, reason));
                }
                None => {}
            }
        }
        edit.added.extend(incoming.tables.values().cloned());
        let references = incoming.references.iter();
        edit.references
            .extend(references.map(|(table, references)| (*table, references.clone())));
        let is_new = |id: &u64| !kept.contains(id);
        let new_tables: Vec<u64> = incoming.tables.keys().copied().filter(is_new).collect();
        let new_blobs: Vec<u64> = incoming.blobs.keys().copied().filter(is_new).collect();
        let table_paths = new_tables.iter().map(|id| layout.table(*id));
        let blob_paths = new_blobs.iter().map(|id| layout.blob(*id));
        for path in table_paths.chain(blob_paths) {
            self.wait_until_gone(&path)?;
            let from = match path.file_name() {
                Some(name) => directory.join(name),
                None => return Err(Error::Internal("a table without a name".to_owned())),
            };
            vfs.rename(&from, &path)
                .map_err(|e| Error::io("rename", &from, e))?;
            taken.push(path);
        }
        let tables = layout.tables();
        for directory in [tables.as_path(), directory] {
            vfs.sync_dir(directory)
                .map_err(|e| Error::io("sync", directory, e))?;
        }
        let mut opened_tables = Vec::new();
        for placed in new_tables.iter().filter_map(|id| incoming.tables.get(id)) {
            let (cache, counters) = (shared.cache.clone(), shared.counters.clone());
            let path = layout.table(placed.meta.file_id);
            let table = Table::open(vfs, path, &placed.meta, cache, counters)?;
            opened_tables.push(Arc::new(table));
        }
        let mut blobs = Vec::new();
        for meta in new_blobs.iter().filter_map(|id| incoming.blobs.get(id)) {
            let path = layout.blob(meta.file_id);
            let blob = BlobFile::open(vfs, path, meta, shared.counters.clone())?;
            blobs.push(Arc::new(blob));
            edit.blobs.push(meta.clone());
        }
        Ok(Opened {
            edit,
            tables: opened_tables,
            blobs,
        })
    }

    /// Puts the files of a state that found no room back to where they were brought from, so that it
    /// can be tried again. What cannot be put back is removed at the next opening.
    fn give_back(&self, taken: Vec<PathBuf>, directory: &Path) {
        for path in taken {
            let Some(name) = path.file_name() else {
                continue;
            };
            if let Err(cause) = self.shared.vfs.rename(&path, &directory.join(name)) {
                tracing::warn!(path = %path.display(), %cause, "a table that is not used stays");
            }
        }
    }

    /// A table that was here before, and went, stays until its last reader lets go of it.
    fn wait_until_gone(&self, path: &Path) -> Result<()> {
        const PATIENCE: Duration = Duration::from_secs(10);
        const PAUSE: Duration = Duration::from_millis(10);
        let shared = &*self.shared;
        let start = shared.clock.monotonic();
        loop {
            let found = shared.vfs.metadata(path);
            if found.map_err(|e| Error::io("stat", path, e))?.is_none() {
                return Ok(());
            }
            if shared.clock.monotonic().saturating_sub(start) > PATIENCE {
                let error = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
                return Err(Error::io("rename", path, error));
            }
            crate::sync::thread::sleep(PAUSE);
        }
    }

    /// Records that the log goes on behind an installed state.
    pub fn log_restarted(&self) -> Result<()> {
        let edit = Edit {
            log_started: true,
            ..Edit::default()
        };
        // Until then the log is void: when this edit is lost, everything in the log is.
        let recording = Recording::InNewManifest;
        self.shared
            .apply_edit_with_blobs(&edit, &[], &[], None, recording)
    }
}

impl Shared {
    fn record_installed(
        &self,
        edit: &Edit,
        tables: &[Arc<Table>],
        blobs: &[Arc<BlobFile>],
        newest: u64,
    ) -> Result<()> {
        // When this edit is lost, the log does not go on where the old state ends.
        self.apply_edit_with_blobs(edit, tables, blobs, Some(newest), Recording::Appended)
    }

    /// Tables never run ahead of the log. One that belongs to somebody else may be written later
    /// than its entries were applied.
    pub(super) fn sync_log_up_to(&self, index: Option<Index>) -> Result<()> {
        const PAUSE: Duration = Duration::from_millis(1);
        let Some(log) = &self.log_sync else {
            return Ok(());
        };
        loop {
            let durable = log.sync()?;
            if !self.is_replicated || index.is_none_or(|index| durable >= index) {
                return Ok(());
            }
            // Nobody knows for how long. What waits for this must go on meanwhile, or nothing would
            // free space.
            if log.is_full() {
                return Err(Error::NoSpace {
                    path: self.layout.log(),
                });
            }
            if self.is_closing.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            crate::sync::thread::sleep(PAUSE);
        }
    }
}
