//! A consistent copy of the database in another directory, made while writes go on.
//!
//! The memtables are flushed, then the tables of one version are verified and copied (a damaged
//! one is an error: a copy is what one falls back on), a manifest that names them is written, and `BOWLINE` comes last: an unfinished copy is not a database. The copy has
//! no log; its revision is that of the version.

use std::path::Path;

use super::Engine;
use crate::Revision;
use crate::error::{Error, Result};
use crate::version::{Identity, Layout, Manifest, PlacedTable, State};
use crate::vfs::{self, OpenMode, Vfs};

const COPY_BYTES: usize = 1 << 20;

impl Engine {
    /// Copies the database as of now to `target`, which must not exist or be empty. Returns the
    /// revision of the copy.
    pub fn checkpoint(&self, target: &Path) -> Result<Revision> {
        let shared = &*self.shared;
        let vfs = &*shared.vfs;
        let layout = Layout::new(target);
        prepare_target(vfs, &layout)?;
        self.flush()?;
        let current = shared.super_version.load_full();
        let version = &current.version;
        let mut state = State {
            flushed_index: version.flushed_index,
            flushed_revision: version.flushed_revision,
            next_file_id: 1,
            next_run_id: 1,
            history_floor: version.history_floor,
            ..State::default()
        };
        for tree in &version.trees {
            for (level, runs) in tree.levels.iter().enumerate() {
                for run in runs {
                    state.next_run_id = state.next_run_id.max(run.id + 1);
                    for table in &run.tables {
                        let meta = table.meta().clone();
                        // A copy of damage would only be found when it is needed.
                        table.verify()?;
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
        let tables = layout.tables();
        vfs.sync_dir(&tables)
            .map_err(|e| Error::io("sync", &tables, e))?;
        let identity = Identity {
            database_id: shared.database_id,
            manifest: 1,
        };
        Manifest::create(vfs, &layout, &identity, &state, shared.counters.clone())?;
        identity.write(vfs, &layout)?;
        Ok(state.flushed_revision)
    }
}

fn prepare_target(vfs: &dyn Vfs, layout: &Layout) -> Result<()> {
    let root = layout.root();
    match vfs.metadata(root).map_err(|e| Error::io("stat", root, e))? {
        None => {
            vfs.create_dir(root)
                .map_err(|e| Error::io("create", root, e))?;
            vfs::sync_parent(vfs, root)?;
        }
        Some(found) if !found.is_dir => {
            let error = std::io::Error::from(std::io::ErrorKind::NotADirectory);
            return Err(Error::io("create", root, error));
        }
        Some(_) => {
            let names = vfs.read_dir(root).map_err(|e| Error::io("list", root, e))?;
            if !names.is_empty() {
                let error = std::io::Error::from(std::io::ErrorKind::DirectoryNotEmpty);
                return Err(Error::io("create", root, error));
            }
        }
    }
    let tables = layout.tables();
    vfs.create_dir(&tables)
        .map_err(|e| Error::io("create", &tables, e))
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
