//! Frozen tables: the state of one moment, for another member or a backup.
//!
//! Freezing copies nothing. The frozen state keeps the files open, so they can be read while flushes and
//! compactions go on.

use std::sync::Arc;

use crate::blob::BlobFile;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::version::{PlacedTable, State, Version};
use crate::vfs::{OpenMode, VfsFile};
use crate::{EntryKind, Index, Revision, TreeId};

/// A table or a blob file of a frozen state. The file is not removed while this value exists.
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

    /// Reads the whole file again and checks everything that can be checked.
    ///
    /// # Errors
    /// `Corrupt` names the file and the place; `Io`.
    pub fn verify(&self) -> Result<()> {
        match &self.source {
            FrozenFile::Table(table) => table.verify().map(drop),
            FrozenFile::Blob(blob) => blob.verify().map(drop),
        }
    }

    /// The open file.
    #[must_use]
    pub fn file(&self) -> &Arc<dyn VfsFile> {
        &self.file
    }
}

/// The tables of one moment. They contain everything up to a log index.
#[derive(Debug, Clone)]
pub struct FrozenTables {
    /// The last log entry that they contain.
    pub index: Index,
    /// The newest revision in them.
    pub revision: Revision,
    /// The encoded state, for [`Engine::install`].
    pub state: Vec<u8>,
    /// The tables, followed by the blob files that they refer to.
    pub tables: Vec<FrozenTable>,
    version: Arc<Version>,
}

impl FrozenTables {
    /// The newest value of a key in these tables.
    ///
    /// # Errors
    /// Those of any read.
    pub fn read(&self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        for run in self.version.tree(tree).runs() {
            let Some(table) = run.find(key) else { continue };
            if let Some(entry) = table.get(key, Revision::MAX)? {
                let is_put = entry.kind == EntryKind::Put;
                let value = match entry.pointer {
                    Some(pointer) => {
                        let file = self.version.blob(&pointer, tree)?;
                        file.read(&pointer, key, entry.revision)?.to_vec()
                    }
                    None => entry.value.to_vec(),
                };
                return Ok(is_put.then_some(value));
            }
        }
        Ok(None)
    }
}

impl Engine {
    /// Flushes, then freezes the tables.
    pub fn freeze(&self) -> Result<FrozenTables> {
        self.flush()?;
        self.freeze_flushed()
    }

    /// Freezes the current tables without a flush. They contain everything up to the last flush; on a
    /// full disk there is nothing newer.
    pub fn freeze_flushed(&self) -> Result<FrozenTables> {
        let core = &*self.core;
        let current = core.view.load_full();
        let version = &current.version;
        let mut state = State {
            flushed_index: version.flushed_index,
            flushed_revision: version.flushed_revision,
            next_run_id: 1,
            // The floor may be above the last flushed revision. The receiver begins at that revision.
            history_floor: version.history_floor.min(version.flushed_revision),
            ..State::default()
        };
        let mut tables = Vec::new();
        for tree in &version.trees {
            for (level, runs) in tree.levels.iter().enumerate() {
                for run in runs {
                    state.next_run_id = state.next_run_id.max(run.id + 1);
                    for table in &run.tables {
                        let file = core.files.vfs.open(table.path(), OpenMode::Read);
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
            let file = core.files.vfs.open(path, OpenMode::Read);
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
}
