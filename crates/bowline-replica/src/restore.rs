//! The database of a new cluster's member, of the tables that [`Replica::freeze`](super::Replica::freeze)
//! gave away.
//!
//! Everything stays, except what is of the old cluster: the mark of its last entry is replaced by that of
//! the new owner, and the alarms of its members are taken back.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use bowline_storage::engine::{self, Restore};
use bowline_storage::vfs::Vfs;
use bowline_storage::{Index, Revision};

use super::AppliedMark;
use bowline_core::error::Error;
use bowline_core::trees;

/// Where a restore gets everything from.
pub struct FrozenSource<'a> {
    /// What errors name.
    pub path: &'a Path,
    /// The last entry of the log in it.
    pub index: Index,
    /// The revision it ends with.
    pub revision: Revision,
    /// How the tables belong together.
    pub state: &'a [u8],
    /// The tables' names and lengths.
    pub tables: &'a [(String, u64)],
    /// The tables, one after the other.
    pub contents: &'a mut dyn Read,
}

impl std::fmt::Debug for FrozenSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrozenSource")
            .field("path", &self.path)
            .field("index", &self.index)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

/// Who the restored database is.
#[derive(Debug, Clone, Copy)]
pub struct RestoredAs<'a> {
    /// Its id: the same for all members of the new cluster.
    pub database_id: u128,
    /// As of [`ReplicaOptions`](super::ReplicaOptions).
    pub file_id_base: u64,
    /// What the new owner wants to remember with the last entry.
    pub mark: &'a [u8],
}

/// Makes a member's database in `path`, which must not exist or be empty. Before the directory becomes a
/// database, `own_files` lets the owner write its own files into it. When anything fails, no file stays.
///
/// # Errors
/// `Storage`, when the source is damaged, the directory holds something, or the disk fails; and what
/// `own_files` returns.
pub fn restore<E: From<Error>>(
    vfs: Arc<dyn Vfs>,
    path: &Path,
    source: &mut FrozenSource<'_>,
    restored: &RestoredAs<'_>,
    own_files: impl FnOnce() -> Result<(), E>,
) -> Result<(), E> {
    /// What the engine reports goes through the database's error.
    enum Failed<E> {
        Engine(bowline_storage::Error),
        Owner(E),
    }
    impl<E> From<bowline_storage::Error> for Failed<E> {
        fn from(error: bowline_storage::Error) -> Failed<E> {
            Failed::Engine(error)
        }
    }
    let attempt = || -> Result<(), Failed<E>> {
        let options = engine::RestoreOptions {
            source: source.path,
            state: source.state,
            database_id: restored.database_id,
            file_id_base: restored.file_id_base,
            trees: trees::COUNT,
        };
        let mut made = Restore::begin(vfs, path, &options)?;
        if made.end() != (source.index, source.revision) {
            let (index, revision) = made.end();
            let reason = format!(
                "its head says entry {} and revision {}, its state {index} and {revision}",
                source.index, source.revision
            );
            return Err(bowline_storage::Error::corrupt(source.path, 0, reason).into());
        }
        for (name, bytes) in source.tables {
            made.table(name, *bytes, source.contents)?;
        }
        let mut changes = BTreeMap::new();
        for key in made.keys_with(trees::SYSTEM, &trees::alarms_prefix())? {
            changes.insert(key, None);
        }
        let mark = AppliedMark::encode(restored.mark, 0);
        changes.insert(trees::applied_key().to_vec(), Some(mark));
        made.finish(trees::SYSTEM, &changes, || {
            own_files().map_err(Failed::Owner)
        })
    };
    attempt().map_err(|failed| match failed {
        Failed::Engine(error) => Error::Storage(error).into(),
        Failed::Owner(error) => error,
    })
}
