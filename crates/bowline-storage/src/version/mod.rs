//! Versions: which tables make up the database.
//!
//! ```text
//! BOWLINE            says: format, database id, which manifest is current
//! manifest-<n>       a snapshot of the state, then one record per change (an Edit)
//! tables/<id>.table  the tables the state names; any other is an orphan
//! tables/<id>.blob   the blob files that these tables refer to; any other is an orphan
//! log/               entries that are not in tables yet
//! ```
//!
//! A `Version` is the state in memory: immutable, shared, replaced as a whole. Per tree it is a
//! list of levels, a level a list of runs (newest first), a run a sorted list of tables whose key
//! ranges do not overlap.
//!
//! Invariants:
//!
//! - Within a tree, a run has newer versions of a key than any later run (or deeper level). So the first
//!   hit, top-down, is the newest version.
//! - A version is published only after the edit that leads to it is durable.
//! - A table's file is removed only after an edit that no longer names it is durable, and no reader uses
//!   it any more.
//! - The outputs of a merge in progress are in no version. The edit that completes the merge adds them to
//!   the state and removes its inputs.
//! - `flushed_index` and `flushed_revision` belong to exactly the tables beside them: replaying
//!   the log from `flushed_index + 1` on top of the tables gives the database.

mod edit;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod identity;
mod manifest;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use edit::WrittenRun;
pub use edit::{BlobReference, BlobReferences, Edit, PlacedTable, State};
pub use identity::Identity;
pub use manifest::{Manifest, ManifestPosition};

use crate::blob::{BlobFile, BlobPointer};
use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Index, Revision, TreeId};

/// The newest format this program reads and the one it writes.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// The levels a tree may have.
pub(crate) const LEVELS_MAX: usize = 8;

/// Where the files of a data directory are.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The layout of the data directory `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Layout {
        Layout { root: root.into() }
    }

    /// The data directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The name of [`Layout::unfinished`].
    pub const UNFINISHED: &str = "CHECKPOINT-UNFINISHED";

    /// The lock file.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.root.join("LOCK")
    }

    /// The file that makes a directory a database.
    #[must_use]
    pub fn identity(&self) -> PathBuf {
        self.root.join("BOWLINE")
    }

    /// The identity while it is being replaced.
    #[must_use]
    pub(crate) fn identity_new(&self) -> PathBuf {
        self.root.join("BOWLINE.new")
    }

    /// Stands in the directory of a checkpoint until it is complete.
    #[must_use]
    pub fn unfinished(&self) -> PathBuf {
        self.root.join(Layout::UNFINISHED)
    }

    /// The file that makes a database that of a member of a cluster.
    #[must_use]
    pub fn member(&self) -> PathBuf {
        self.root.join("MEMBER")
    }

    /// The manifest with this number.
    #[must_use]
    pub fn manifest(&self, number: u64) -> PathBuf {
        self.root.join(format!("manifest-{number:016x}"))
    }

    /// The log's directory.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    /// The tables' directory.
    #[must_use]
    pub fn tables(&self) -> PathBuf {
        self.root.join("tables")
    }

    /// The table with this id.
    #[must_use]
    pub fn table(&self, file_id: u64) -> PathBuf {
        self.tables().join(format!("{file_id:016x}.table"))
    }

    /// The blob file with this id.
    #[must_use]
    pub fn blob(&self, file_id: u64) -> PathBuf {
        self.tables().join(format!("{file_id:016x}.blob"))
    }

    /// The name under which a file of `tables/` is kept that nothing names, while the last record of
    /// this manifest is damaged.
    #[must_use]
    pub(crate) fn set_aside(name: &str, manifest: u64) -> String {
        format!("{name}.unnamed-{manifest:016x}")
    }

    /// The number in a manifest's name.
    #[must_use]
    pub fn manifest_number(name: &str) -> Option<u64> {
        u64::from_str_radix(name.strip_prefix("manifest-")?, 16).ok()
    }
}

/// Sorted tables that do not overlap: one generation of one tree's data.
#[derive(Debug, Clone)]
pub struct Run {
    /// Larger is newer, within a level.
    pub id: u64,
    /// Sorted by key.
    pub tables: Vec<Arc<Table>>,
}

impl Run {
    /// The table that may hold `key`.
    #[must_use]
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<&Arc<Table>> {
        let at = self
            .tables
            .partition_point(|table| &table.meta().max_key[..] < key);
        self.tables
            .get(at)
            .filter(|table| &table.meta().min_key[..] <= key)
    }

    /// Bytes of all tables.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.tables
            .iter()
            .map(|table| table.meta().file_bytes)
            .sum()
    }

    /// The smallest and largest key.
    #[must_use]
    pub(crate) fn key_bounds(&self) -> Option<(&[u8], &[u8])> {
        let first = self.tables.first()?;
        let last = self.tables.last()?;
        Some((&first.meta().min_key, &last.meta().max_key))
    }
}

/// One tree's levels; each a list of runs, newest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct TreeVersion {
    /// Level 0 first.
    pub levels: Vec<Vec<Arc<Run>>>,
}

impl TreeVersion {
    /// Every run, newest first.
    pub fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.levels.iter().flatten()
    }

    /// Every table.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.runs().flat_map(|run| &run.tables)
    }

    /// Bytes of one level.
    #[must_use]
    pub(crate) fn level_bytes(&self, level: usize) -> u64 {
        self.levels
            .get(level)
            .map_or(0, |runs| runs.iter().map(|run| run.bytes()).sum())
    }

    /// The deepest level that holds a table.
    #[must_use]
    pub fn deepest(&self) -> Option<usize> {
        self.levels.iter().rposition(|runs| !runs.is_empty())
    }
}

/// The tables of every tree at one moment, and how far the log is contained in them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Version {
    /// Indexed by tree id.
    pub trees: Vec<TreeVersion>,
    /// The last log index contained in the tables.
    pub flushed_index: Index,
    /// The last revision contained in the tables.
    pub flushed_revision: Revision,
    /// Versions superseded at or below this revision may be gone.
    pub history_floor: Revision,
    /// The blob files by id.
    pub blobs: BTreeMap<u64, LiveBlob>,
    /// The references of tables to blob files, by the id of the table.
    pub references: BTreeMap<u64, BlobReferences>,
    /// Revisions whose versions these tables have kept, by tree.
    pub held: BTreeMap<TreeId, Revision>,
}

/// A blob file that tables refer to.
#[derive(Debug, Clone)]
pub(crate) struct LiveBlob {
    /// The file.
    pub file: Arc<BlobFile>,
    /// Bytes of its records that tables refer to.
    pub referred_bytes: u64,
}

impl LiveBlob {
    /// Bytes of its records that no table refers to.
    #[must_use]
    pub(crate) fn garbage_bytes(&self) -> u64 {
        let all = self.file.meta().record_bytes();
        all.saturating_sub(self.referred_bytes)
    }
}

impl Version {
    /// The blob file that a pointer found in `tree` leads to.
    pub fn blob(&self, pointer: &BlobPointer, tree: TreeId) -> Result<&Arc<BlobFile>> {
        let found = self.blobs.get(&pointer.file_id);
        let found = found.filter(|blob| blob.file.meta().tree == tree);
        match found {
            Some(blob) => Ok(&blob.file),
            None => Err(Error::corrupt(
                Path::new(&format!("{:016x}.blob", pointer.file_id)),
                pointer.offset,
                "a table has a pointer into it, but the manifest does not say so",
            )),
        }
    }

    /// Copies the blob files and the references into a state.
    pub(crate) fn add_blobs_to(&self, state: &mut State) {
        let metas = self.blobs.values().map(|blob| blob.file.meta().clone());
        state.blobs = metas.map(|meta| (meta.file_id, meta)).collect();
        state.references = self.references.clone();
    }

    /// One tree's levels.
    #[must_use]
    pub fn tree(&self, tree: TreeId) -> &TreeVersion {
        &self.trees[usize::from(tree.0)]
    }

    /// Every table of every tree.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.trees.iter().flat_map(TreeVersion::tables)
    }

    /// Builds the version a state describes from its opened tables and blob files.
    #[must_use]
    pub(crate) fn from_state(
        state: &State,
        trees: usize,
        table: &mut dyn FnMut(u64) -> Option<Arc<Table>>,
        blob: &mut dyn FnMut(u64) -> Option<Arc<BlobFile>>,
    ) -> Version {
        let mut version = Version {
            trees: vec![TreeVersion::default(); trees],
            flushed_index: state.flushed_index,
            flushed_revision: state.flushed_revision,
            history_floor: state.history_floor,
            blobs: BTreeMap::new(),
            references: state.references.clone(),
            held: state.held.clone(),
        };
        for (id, referred_bytes) in state.referred_bytes() {
            if let Some(file) = blob(id) {
                let live = LiveBlob {
                    file,
                    referred_bytes,
                };
                version.blobs.insert(id, live);
            }
        }
        for placed in state.tables.values() {
            let Some(table) = table(placed.meta.file_id) else {
                continue;
            };
            let tree = &mut version.trees[usize::from(placed.meta.tree.0)];
            let level = usize::from(placed.level);
            while tree.levels.len() <= level {
                tree.levels.push(Vec::new());
            }
            let runs = &mut tree.levels[level];
            match runs.iter_mut().find(|run| run.id == placed.run) {
                Some(run) => Arc::make_mut(run).tables.push(table),
                None => runs.push(Arc::new(Run {
                    id: placed.run,
                    tables: vec![table],
                })),
            }
        }
        for tree in &mut version.trees {
            for runs in &mut tree.levels {
                runs.sort_by_key(|run| std::cmp::Reverse(run.id));
                for run in runs {
                    Arc::make_mut(run)
                        .tables
                        .sort_by(|a, b| a.meta().min_key[..].cmp(&b.meta().min_key[..]));
                }
            }
        }
        version
    }
}
