//! Restore: the database of a new cluster's member, from the tables of
//! [`Replica::freeze`](super::Replica::freeze).
//!
//! Everything stays, except the state of the old cluster: the mark of its last entry is replaced by the new
//! owner's, and the alarms of its members are cleared.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use bowline_storage::Index;
use bowline_storage::engine::{self, Restore};
use bowline_storage::vfs::Vfs;
use bowline_types::Revision;

use super::AppliedMark;
use bowline_core::error::Error;
use bowline_core::trees;

/// The source of a restore.
pub struct FrozenSource<'a> {
    /// The path for error messages.
    pub path: &'a Path,
    /// The index of the last log entry in it.
    pub index: Index,
    /// The newest revision in it.
    pub revision: Revision,
    /// The structure of the tables.
    pub state: &'a [u8],
    /// The tables' names and lengths.
    pub tables: &'a [(String, u64)],
    /// The tables' contents in order.
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

/// The identity of the restored database.
#[derive(Debug, Clone, Copy)]
pub struct RestoredAs<'a> {
    /// Its id: the same for all members of the new cluster.
    pub database_id: u128,
    /// As of [`ReplicaOptions`](super::ReplicaOptions).
    pub file_id_base: u64,
    /// The new owner's mark of the last entry.
    pub mark: &'a [u8],
}

/// Creates a member's database in `path`, which must be absent or empty. Before the directory becomes a
/// database, `own_files` writes the owner's files into it. After a failure no file stays.
///
/// # Errors
/// `Storage`, when the source is damaged, the directory is not empty, or the disk fails; and what `own_files`
/// returns.
pub fn restore<E: From<Error>>(
    vfs: Arc<dyn Vfs>,
    path: &Path,
    source: &mut FrozenSource<'_>,
    restored: &RestoredAs<'_>,
    own_files: impl FnOnce() -> Result<(), E>,
) -> Result<(), E> {
    /// The engine's errors are converted to the database's.
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
        if made.end() != (source.index, source.revision.get()) {
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
