//! Installing a state from elsewhere: the whole state of a member is replaced by a frozen one.
//!
//! Invariants:
//!
//! - An installation is one manifest edit: before it there is the old state with the old log, after it
//!   the new state with a void log. A void log is discarded at the next opening. Nothing in a new log is
//!   acknowledged before [`Engine::log_restarted`].
//! - A reader whose pinned revision is not in the new tables gets an error ([`Error::Replaced`]) and
//!   never reads the new tables at it. The new tables have the history of all members, so a pin of a
//!   later revision stays valid.
//! - Flushes, compactions and commit groups are kept out: the installation holds their locks.
//! - A file that came lies under its final name only while the installation is under way, or from when the
//!   manifest may name it. An installation that fails gives its files back, as they would be in the way of
//!   the next one. It leaves them when it cannot be sure that the edit is not on the disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::blob::BlobFile;
use crate::engine::Engine;
use crate::engine::group_commit::CommitState;
use crate::engine::version_set::Recording;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::version::{Edit, State};
use crate::vfs::{self, OpenMode, Vfs};
use crate::{Index, Revision};

/// The files of a state under their final names, and the edit that names them.
struct Opened {
    edit: Edit,
    tables: Vec<Arc<Table>>,
    blobs: Vec<Arc<BlobFile>>,
}

/// The result of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Installed {
    /// The last log entry that the tables contain.
    pub index: Index,
    /// The newest revision in them.
    pub revision: Revision,
}

impl Engine {
    /// Replaces the whole state by a frozen one. Its files lie in `directory` under their own names,
    /// verified and synced. The log is void from then on: the owner starts it anew behind the returned
    /// index and then calls [`Engine::log_restarted`]. With `keeps_log` the log stays, because it goes on
    /// beyond the end of the state. `replacing` is called when all is ready, before readers can find the new tables.
    ///
    /// # Errors
    /// `Corrupt` when the files are not those of the state; `Internal` when the state is older than the
    /// present one. Nothing has changed then. After `NoSpace`, `TooManyFiles` and `StillRead` nothing has
    /// changed either, and the call can be repeated.
    pub fn install(
        &self,
        state: &[u8],
        directory: &Path,
        keeps_log: bool,
        replacing: impl FnOnce(),
    ) -> Result<Installed> {
        let core = &*self.core;
        let damaged = |reason: String| Error::corrupt(directory, 0, reason);
        let edit =
            Edit::decode(state).ok_or_else(|| damaged("its state does not decode".into()))?;
        let mut incoming = State::default();
        incoming.apply(&edit).map_err(damaged)?;
        let trees = core.options.trees.len();
        let mut tables = incoming.tables.values();
        if let Some(placed) = tables.find(|p| usize::from(p.meta.tree.0) >= trees) {
            return Err(damaged(format!("tree {} is unknown", placed.meta.tree.0)));
        }
        let _flushing = self.flusher.lock();
        let _compacting = self.compactor.lock();
        let mut commit = core.commit.lock();
        if let Some(reason) = commit.cannot_be_replaced() {
            return Err(Error::Poisoned { reason });
        }
        if incoming.flushed_index < commit.last_index {
            let (old, new) = (commit.last_index, incoming.flushed_index);
            let reason = format!("a state of entry {new} would replace one of entry {old}");
            return Err(Error::Internal(reason));
        }
        let result = self.replace(&mut commit, &incoming, directory, keeps_log, replacing);
        if result.is_ok() {
            core.jobs.forget_failures();
            if std::mem::take(&mut commit.is_half_done) {
                commit.failure = None;
            }
        }
        result
    }

    fn replace(
        &self,
        commit: &mut CommitState,
        incoming: &State,
        directory: &Path,
        keeps_log: bool,
        replacing: impl FnOnce(),
    ) -> Result<Installed> {
        let core = &*self.core;
        let mut taken = Vec::new();
        let opened = self.take_tables(incoming, directory, &mut taken);
        let Opened {
            mut edit,
            tables,
            blobs,
        } = match opened {
            Ok(opened) => opened,
            Err(error) => {
                // No edit with the files was tried.
                self.give_back(taken, directory);
                return Err(error);
            }
        };
        edit.next_run_id = Some(incoming.next_run_id);
        edit.next_file_id = Some(core.files.next_file_id());
        edit.flushed = Some((incoming.flushed_index, incoming.flushed_revision));
        edit.history_floor = Some(incoming.history_floor);
        edit.log_void = !keeps_log;
        // The incoming state contains everything in the memtables that was agreed on.
        core.seal(commit, 0);
        let newest = core.view.load().active.generation();
        // The floor is raised before the tables are replaced, since a reader loads the super-version
        // before it checks the floor.
        replacing();
        let before = core.pins.replace(incoming.history_floor);
        // If a crash loses this edit, the opening notices: the log does not continue where the old state
        // ends.
        let recording = Recording::Appended;
        let applied = core.apply_edit_with_files(&edit, &tables, &blobs, Some(newest), recording);
        if let Err(error) = applied {
            // The old state stays. It never reaches the raised floor, so its readers would wait forever.
            core.pins.restore(&before);
            drop((tables, blobs));
            // An edit that lacks room is not written whole. After any other error all of it may be on the disk,
            // unless it is cut off, durably.
            let cut_off = match error.is_shortage() {
                true => Ok(()),
                false => core.versions.retract(),
            };
            match cut_off {
                Ok(()) => self.give_back(taken, directory),
                Err(cause) => {
                    tracing::warn!(%cause, "the tables that came stay, since the manifest may name them");
                }
            }
            return Err(error);
        }
        // Later runs must have higher ids than the incoming ones. Flushes and compactions, which give
        // ids, are locked out.
        core.versions.raise_run_id(incoming.next_run_id);
        commit.last_index = incoming.flushed_index;
        commit.last_revision = incoming.flushed_revision;
        core.view.publish(incoming.flushed_revision);
        Ok(Installed {
            index: incoming.flushed_index,
            revision: incoming.flushed_revision,
        })
    }

    /// Renames the files of a state to their final names, and opens them. A file that is there already is
    /// made equal to the one that has arrived.
    fn take_tables(
        &self,
        incoming: &State,
        directory: &Path,
        taken: &mut Vec<PathBuf>,
    ) -> Result<Opened> {
        let core = &*self.core;
        let (vfs, layout) = (&core.files.vfs, &core.files.layout);
        let current = core.view.load_full();
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
        let new_paths: Vec<PathBuf> = table_paths.chain(blob_paths).collect();
        // First, so that a wait in vain has cost nothing.
        self.wait_until_gone(&new_paths)?;
        for path in { kept.iter() }.map(|id| match incoming.tables.contains_key(id) {
            true => layout.table(*id),
            false => layout.blob(*id),
        }) {
            heal(&**vfs, &path, directory)?;
        }
        self.rename_all(new_paths, directory, taken)?;
        let mut opened_tables = Vec::new();
        for placed in new_tables.iter().filter_map(|id| incoming.tables.get(id)) {
            opened_tables.push(Arc::new(core.files.open_table(&placed.meta)?));
        }
        let mut blobs = Vec::new();
        for meta in new_blobs.iter().filter_map(|id| incoming.blobs.get(id)) {
            blobs.push(Arc::new(core.files.open_blob(meta)?));
            edit.blobs.push(meta.clone());
        }
        Ok(Opened {
            edit,
            tables: opened_tables,
            blobs,
        })
    }

    /// Renames the files of a state from `directory` to their final names, durably. After an error those that
    /// may have their final name are in `taken`.
    fn rename_all(
        &self,
        paths: Vec<PathBuf>,
        directory: &Path,
        taken: &mut Vec<PathBuf>,
    ) -> Result<()> {
        let vfs = &self.core.files.vfs;
        for path in paths {
            let from = match path.file_name() {
                Some(name) => directory.join(name),
                None => return Err(Error::Internal("a table without a name".to_owned())),
            };
            // Before: a rename that fails may have been done.
            taken.push(path.clone());
            let renamed = vfs.rename(&from, &path);
            renamed.map_err(|e| Error::io("rename", &from, e))?;
        }
        self.core.files.sync_directory()?;
        let synced = vfs.sync_dir(directory);
        synced.map_err(|e| Error::io("sync", directory, e))
    }

    /// Renames the files back after a failure, so that the installation can be repeated, with these files or
    /// with others. The caller knows that no manifest names them, not even after a crash. A file that cannot be
    /// renamed is removed, so that it is in nobody's way; if that fails, too, the next opening removes it.
    fn give_back(&self, taken: Vec<PathBuf>, directory: &Path) {
        let vfs = &self.core.files.vfs;
        for path in taken {
            let Some(name) = path.file_name() else {
                continue;
            };
            let renamed = vfs.rename(&path, &directory.join(name));
            if let Err(cause) = renamed.or_else(|_| vfs.remove_file(&path))
                && cause.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), %cause, "a table that is not used stays");
            }
        }
    }

    /// Waits until the files are removed: an obsolete table stays until its last reader drops it, and would
    /// then remove a file that has come under its name.
    fn wait_until_gone(&self, paths: &[PathBuf]) -> Result<()> {
        // The locks of the engine are held meanwhile. A caller that can wait longer tries again.
        const WAIT_MAX: Duration = Duration::from_secs(1);
        const PAUSE: Duration = Duration::from_millis(10);
        let core = &*self.core;
        let start = core.clock.monotonic();
        for path in paths {
            loop {
                let found = core.files.vfs.metadata(path);
                if found.map_err(|e| Error::io("stat", path, e))?.is_none() {
                    break;
                }
                if core.clock.monotonic().saturating_sub(start) > WAIT_MAX {
                    let path = path.clone();
                    return Err(Error::StillRead { path });
                }
                crate::sync::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    /// Records that the log continues behind an installed state.
    pub fn log_restarted(&self) -> Result<()> {
        let edit = Edit {
            log_started: true,
            ..Edit::default()
        };
        // Until then the log is void. If this edit were lost, so would be everything in the log.
        let recording = Recording::InNewManifest;
        self.core.apply_edit(&edit, recording)
    }
}

/// Makes a file that stays equal to the one of its name that has arrived in `directory`: it may have been damaged
/// since it was written. Whoever has it open goes on; a crash leaves each sector as it was or as it should be.
fn heal(vfs: &dyn Vfs, path: &Path, directory: &Path) -> Result<()> {
    const PIECE_BYTES: usize = 1 << 20;
    let Some(name) = path.file_name() else {
        return Err(Error::Internal("a table without a name".to_owned()));
    };
    let from = directory.join(name);
    let open = |path: &Path, mode| {
        let opened = vfs.open(path, mode);
        opened.map_err(|error| Error::io("open", path, error))
    };
    let found = vfs.metadata(&from);
    if found
        .map_err(|error| Error::io("stat", &from, error))?
        .is_none()
    {
        // Whoever sent the state knew that it is here.
        return Ok(());
    }
    let source = open(&from, OpenMode::Read)?;
    let file = open(path, OpenMode::ReadWrite)?;
    let (mut right, mut found) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let (mut offset, mut is_healed) = (0, false);
    loop {
        let count = vfs::read_full_at(&*source, &from, &mut right, offset)?;
        if count == 0 {
            break;
        }
        let read = vfs::read_full_at(&*file, path, &mut found[..count], offset);
        let is_equal = read.is_ok_and(|read| read == count && found[..count] == right[..count]);
        if !is_equal {
            vfs::write_all_at(&*file, path, &right[..count], offset)?;
            is_healed = true;
        }
        offset += count as u64;
    }
    if is_healed {
        tracing::warn!(path = %path.display(), "a damaged file is as it was written again");
        vfs::sync_data(&*file, path)?;
    }
    Ok(())
}
