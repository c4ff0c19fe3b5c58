//! A checkpoint: a consistent copy of the database in another directory, made while writes go on.
//!
//! The memtables are flushed. Then the tables and blob files of one version are verified and copied; a
//! damaged file is an error, because a copy serves as a backup. Then a manifest that names them is
//! written, and `BOWLINE` last. So an unfinished copy is not a database. A mark file, created first,
//! says that it is not an unfinished creation either. The copy has no log; its revision is that of the
//! version. After a failure the files are removed again, `BOWLINE` first and the mark last, and the two
//! directories stay. So the checkpoint can be tried again at once.

use std::path::Path;

use super::Engine;
use super::check::verify_pointers;
use crate::Revision;
use crate::error::{Error, Result};
use crate::version::{Identity, Layout, Manifest, PlacedTable, State};
use crate::vfs::{self, OpenMode, Vfs};

const COPY_BYTES: usize = 1 << 20;

impl Engine {
    /// Copies the database as of now to `target`, which must not exist or be empty. Returns the
    /// revision of the copy.
    pub fn checkpoint(&self, target: &Path) -> Result<Revision> {
        let vfs = &*self.core.files.vfs;
        let layout = Layout::new(target);
        claim(vfs, &layout)?;
        let result = begin(vfs, &layout).and_then(|()| self.copy_to(&layout));
        if result.is_err() {
            remove_unfinished(vfs, &layout);
        }
        result
    }

    fn copy_to(&self, layout: &Layout) -> Result<Revision> {
        let core = &*self.core;
        let vfs = &*core.files.vfs;
        // Until the version is loaded, no job drops what was deleted at the revision of the copy, which is the copy's oldest
        // one: others commit, and the flush would raise the floor beyond it.
        let (_, pin) = self.pin_watch_next();
        self.flush()?;
        let current = core.view.load_full();
        drop(pin);
        let version = &current.version;
        let mut state = State {
            flushed_index: version.flushed_index,
            flushed_revision: version.flushed_revision,
            next_file_id: 1,
            next_run_id: 1,
            // Where a watch may lag no farther, the floor is above the last flushed revision all the same.
            history_floor: version.history_floor.min(version.flushed_revision),
            held: version.held.clone(),
            ..State::default()
        };
        for tree in &version.trees {
            for (level, runs) in tree.levels.iter().enumerate() {
                for run in runs {
                    state.next_run_id = state.next_run_id.max(run.id + 1);
                    for table in &run.tables {
                        let meta = table.meta().clone();
                        // A damaged copy would be noticed only when the backup is needed.
                        let found = table.verify()?;
                        let references = version.references.get(&meta.file_id);
                        let blob = |id| version.blobs.get(&id).map(|blob| blob.file.clone());
                        verify_pointers(table, found.pointers, references, |_| false, &blob)?;
                        copy(vfs, table.path(), &layout.table(meta.file_id))?;
                        state.next_file_id = state.next_file_id.max(meta.file_id + 1);
                        let placed = PlacedTable {
                            level: level as u8,
                            run: run.id,
                            meta,
                        };
                        state.tables.insert(placed.meta.file_id, placed);
                    }
                }
            }
        }
        for (id, blob) in &version.blobs {
            blob.file.verify()?;
            copy(vfs, blob.file.path(), &layout.blob(*id))?;
            state.next_file_id = state.next_file_id.max(id + 1);
        }
        version.add_blobs_to(&mut state);
        let tables = layout.tables();
        vfs.sync_dir(&tables)
            .map_err(|e| Error::io("sync", &tables, e))?;
        let identity = Identity {
            database_id: core.database_id,
            manifest: 1,
        };
        Manifest::create(vfs, layout, &identity, &state, core.counters.clone())?;
        identity.write(vfs, layout)?;
        let unfinished = layout.unfinished();
        if let Err(cause) = vfs.remove_file(&unfinished) {
            // Beside `BOWLINE` the mark has no meaning, and the next opening removes it.
            tracing::warn!(path = %unfinished.display(), %cause, "a mark of a checkpoint stays");
        }
        Ok(state.flushed_revision)
    }
}

/// Creates the target if it does not exist, and marks it as an unfinished copy. Only one caller can
/// create the mark, and it comes before all other files: without the mark, an unfinished copy looks like
/// an unfinished creation, and an opening would complete it as an empty database.
pub(super) fn claim(vfs: &dyn Vfs, layout: &Layout) -> Result<()> {
    let root = layout.root();
    match vfs.metadata(root).map_err(|e| Error::io("stat", root, e))? {
        None => {
            vfs.create_dir(root)
                .map_err(|e| Error::io("create", root, e))?;
        }
        Some(found) if !found.is_dir => {
            let error = std::io::Error::from(std::io::ErrorKind::NotADirectory);
            return Err(Error::io("create", root, error));
        }
        Some(_) => {
            let names = vfs.read_dir(root).map_err(|e| Error::io("list", root, e))?;
            let tables = layout.tables();
            let is_free = match &names[..] {
                [] => true,
                // The rest of an unfinished copy.
                [name] if name == "tables" => {
                    let list = vfs.read_dir(&tables);
                    list.map_err(|e| Error::io("list", &tables, e))?.is_empty()
                }
                _ => false,
            };
            if !is_free {
                let error = std::io::Error::from(std::io::ErrorKind::DirectoryNotEmpty);
                return Err(Error::io("create", root, error));
            }
        }
    }
    let unfinished = layout.unfinished();
    let created = vfs.open(&unfinished, OpenMode::CreateNew).map(drop);
    if let Err(cause) = &created
        && cause.kind() != std::io::ErrorKind::AlreadyExists
    {
        // The call may have created the mark anyway. It is ours: otherwise the error would differ.
        remove(vfs, &unfinished);
    }
    created.map_err(|e| Error::io("create", &unfinished, e))
}

/// Makes the name of the target and its mark durable, and creates its directory of tables.
pub(super) fn begin(vfs: &dyn Vfs, layout: &Layout) -> Result<()> {
    let root = layout.root();
    // Also if the directory existed: its creator may have failed before this sync.
    vfs::sync_parent(vfs, root)?;
    vfs.sync_dir(root).map_err(|e| Error::io("sync", root, e))?;
    let tables = layout.tables();
    match vfs
        .metadata(&tables)
        .map_err(|e| Error::io("stat", &tables, e))?
    {
        Some(_) => Ok(()),
        None => vfs
            .create_dir(&tables)
            .map_err(|e| Error::io("create", &tables, e)),
    }
}

/// Removes the files of an unfinished copy. Best effort. If `BOWLINE` is removed, the rest is not a
/// database; if even that fails, the copy is complete.
pub(super) fn remove_unfinished(vfs: &dyn Vfs, layout: &Layout) {
    let tables = layout.tables();
    let in_tables = vfs.read_dir(&tables).unwrap_or_default();
    let files = [layout.identity(), layout.identity_new(), layout.manifest(1)]
        .into_iter()
        .chain(in_tables.into_iter().map(|name| tables.join(name)))
        .chain([layout.unfinished()]);
    for path in files {
        remove(vfs, &path);
    }
}

fn remove(vfs: &dyn Vfs, path: &Path) {
    if let Err(cause) = vfs.remove_file(path)
        && cause.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %cause, "a part of an unfinished copy stays: remove it");
    }
}

fn copy(vfs: &dyn Vfs, from: &Path, to: &Path) -> Result<()> {
    let source = vfs
        .open(from, OpenMode::Read)
        .map_err(|e| Error::io("open", from, e))?;
    let target = vfs
        .open(to, OpenMode::CreateNew)
        .map_err(|e| Error::io("create", to, e))?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut offset = 0;
    loop {
        let read = vfs::read_full_at(&*source, from, &mut buffer, offset)?;
        if read == 0 {
            break;
        }
        vfs::write_all_at(&*target, to, &buffer[..read], offset)?;
        offset += read as u64;
    }
    vfs::sync_data(&*target, to)
}
