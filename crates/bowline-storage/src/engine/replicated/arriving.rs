//! Verifies the files of a frozen state that arrive from another member, before they are installed.
//!
//! The encoded state of [`Engine::freeze`](super::Engine::freeze) names its files. Each file is checked
//! against the state as soon as it has arrived: its length, every page or record, its order and its
//! counts. So a table that has rotted or was forged is rejected before anything is replaced.
//!
//! Invariant: a file that passes is the one that the state names, and everything in it that can be
//! checked was checked. The targets of blob pointers are not checked here; reads check them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::restore;
use crate::blob::{BlobFile, BlobMeta};
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::table::{PageCache, Table, TableMeta};
use crate::version::Layout;
use crate::vfs::{UninterruptedVfs, Vfs};
use crate::{Index, Revision};

/// The cache for the pages of one table during its verification.
const CACHE_BYTES: u64 = 1 << 20;

#[derive(Debug)]
enum Named {
    Table(Box<TableMeta>),
    Blob(BlobMeta),
}

/// The files that a state names.
#[derive(Debug)]
pub struct ArrivingFiles {
    index: Index,
    revision: Revision,
    files: BTreeMap<String, Named>,
}

impl ArrivingFiles {
    /// The files of an encoded state of a database with `trees` trees. Errors name `source`.
    ///
    /// # Errors
    /// `Corrupt` when the state does not decode.
    pub fn of_state(source: &Path, state: &[u8], trees: usize) -> Result<ArrivingFiles> {
        let damaged = |reason| Error::corrupt(source, 0, reason);
        let state = restore::decode(state).map_err(damaged)?;
        let layout = Layout::new(PathBuf::new());
        let name = |path: PathBuf| {
            let name = path.file_name();
            name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        };
        let mut files = BTreeMap::new();
        for (id, placed) in state.tables {
            if usize::from(placed.meta.tree.0) >= trees {
                return Err(damaged(format!("tree {} is unknown", placed.meta.tree.0)));
            }
            files.insert(name(layout.table(id)), Named::Table(Box::new(placed.meta)));
        }
        for (id, meta) in state.blobs {
            files.insert(name(layout.blob(id)), Named::Blob(meta));
        }
        Ok(ArrivingFiles {
            index: state.flushed_index,
            revision: state.flushed_revision,
            files,
        })
    }

    /// The last log entry that the files contain, and their newest revision.
    #[must_use]
    pub fn end(&self) -> (Index, Revision) {
        (self.index, self.revision)
    }

    /// The number of files.
    #[must_use]
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// The length of the file `name`; `None` when the state does not name it.
    #[must_use]
    pub fn bytes_of(&self, name: &str) -> Option<u64> {
        Some(match self.files.get(name)? {
            Named::Table(meta) => meta.file_bytes,
            Named::Blob(meta) => meta.file_bytes,
        })
    }

    /// Reads the whole file `name` in `directory` and checks it.
    ///
    /// # Errors
    /// `Corrupt` when it is damaged or not the file that the state names; `Io`.
    pub fn verify(&self, vfs: &Arc<dyn Vfs>, directory: &Path, name: &str) -> Result<()> {
        let vfs: Arc<dyn Vfs> = Arc::new(UninterruptedVfs::new(vfs.clone()));
        let path = directory.join(name);
        let counters = Arc::new(Counters::default());
        match self.files.get(name) {
            Some(Named::Table(meta)) => {
                let cache = Arc::new(PageCache::new(CACHE_BYTES, counters.clone()));
                Table::open(&vfs, path, meta, cache, counters)?.verify()?;
            }
            Some(Named::Blob(meta)) => {
                let cache = Arc::new(PageCache::new(0, counters.clone()));
                BlobFile::open(&vfs, path, meta, cache, counters)?.verify()?;
            }
            None => return Err(Error::corrupt(&path, 0, "its state names no such file")),
        }
        Ok(())
    }
}
