//! The files of a frozen state that came from elsewhere, checked before they are installed.
//!
//! What [`Engine::freeze`](super::Engine::freeze) gave away says which files belong to it. Each of them
//! is held against that by itself, as soon as it is there: its length, every page or record, its
//! order and its counts. So a table that rotted where it came from, or that was made up, is found
//! before anything here is replaced.
//!
//! Invariant: a file that passes is the one that the state names, and all that can be checked of it
//! was checked. Which values the pointers of a table lead to is not: that is a matter of the reads.

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

/// Pages of one table, while it is verified.
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
    /// Of a state of a database with so many trees. `source` is what errors name.
    ///
    /// # Errors
    /// `Corrupt` when it is none.
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

    /// The last entry of the log that the files contain, and their revision.
    #[must_use]
    pub fn end(&self) -> (Index, Revision) {
        (self.index, self.revision)
    }

    /// How many files there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// How long the file `name` is; `None` when the state names none such.
    #[must_use]
    pub fn bytes_of(&self, name: &str) -> Option<u64> {
        Some(match self.files.get(name)? {
            Named::Table(meta) => meta.file_bytes,
            Named::Blob(meta) => meta.file_bytes,
        })
    }

    /// Reads the file `name` in `directory`, and checks all of it.
    ///
    /// # Errors
    /// `Corrupt` when it is not the one that the state names, or is damaged; `Io`.
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
                BlobFile::open(&vfs, path, meta, counters)?.verify()?;
            }
            None => return Err(Error::corrupt(&path, 0, "its state names no such file")),
        }
        Ok(())
    }
}
