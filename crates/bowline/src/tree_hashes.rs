//! Hashes of the visible content of every tree, to compare databases that must be equal.
//!
//! A hash covers each key, the revision of its newest visible version, and what that version says,
//! in key order. A key-value entry is hashed decoded, since its record has more than one form; the
//! records of the other trees have one form only and are hashed as they are stored. Where a version
//! is stored (memtable, table, blob file) and which older versions are kept does not matter.
//!
//! What two equal databases agree on:
//!
//! - `keys`, `blocks`, `edges_out` and `edges_in` depend on the revision alone.
//! - `system` (kinds, leases, attachments, alarms, the applied record of a member) also changes
//!   without a revision: compare it between members at the same applied index
//!   (`Replica::tree_hashes`).

use std::ops::Bound;

use bowline_storage::engine::ScanDirection;
use bowline_storage::{Revision, TreeId};
use xxhash_rust::xxh3::Xxh3;

use crate::snapshot::Snapshot;
use bowline_core::error::Result;
use bowline_core::kv::Range;
use bowline_core::trees;

/// One hash per tree. See [`Snapshot::tree_hashes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeHashes {
    /// The revision that was read.
    pub revision: Revision,
    /// Keys with values and metadata.
    pub keys: u64,
    /// Blocks.
    pub blocks: u64,
    /// Edges by source.
    pub edges_out: u64,
    /// Edges by target.
    pub edges_in: u64,
    /// Kinds, leases and their keys, alarms, and what a member of a cluster has applied.
    pub system: u64,
}

impl TreeHashes {
    /// One number for all of them, the revision included; never 0.
    #[must_use]
    pub fn combined(&self) -> u64 {
        let mut hash = Xxh3::new();
        for number in [
            self.revision,
            self.keys,
            self.blocks,
            self.edges_out,
            self.edges_in,
            self.system,
        ] {
            hash.update(&number.to_le_bytes());
        }
        hash.digest().max(1)
    }
}

impl Snapshot {
    /// Hashes every tree as this snapshot sees it. Reads all of the database. Equal databases have
    /// equal hashes; `system` may change while the revision stays the same.
    ///
    /// # Errors
    /// `Storage` when something cannot be read.
    pub fn tree_hashes(&self) -> Result<TreeHashes> {
        self.tree_hashes_with(self.system_hash()?)
    }

    /// [`Snapshot::tree_hashes`] with a hash of the system tree that was taken before.
    #[doc(hidden)]
    pub fn tree_hashes_with(&self, system: u64) -> Result<TreeHashes> {
        Ok(TreeHashes {
            revision: self.revision(),
            keys: self.keys_hash()?,
            blocks: self.tree_hash(trees::BLOCK)?,
            edges_out: self.tree_hash(trees::EDGE_OUT)?,
            edges_in: self.tree_hash(trees::EDGE_IN)?,
            system,
        })
    }

    /// The hash of the system tree.
    #[doc(hidden)]
    pub fn system_hash(&self) -> Result<u64> {
        self.tree_hash(trees::SYSTEM)
    }

    fn keys_hash(&self) -> Result<u64> {
        let mut hash = Xxh3::new();
        for entry in self.range(Range::all())? {
            let entry = entry?;
            update(&mut hash, &entry.key, entry.mod_revision, &entry.value);
            for number in [entry.create_revision, entry.version, entry.lease as u64] {
                hash.update(&number.to_le_bytes());
            }
        }
        Ok(hash.digest())
    }

    fn tree_hash(&self, tree: TreeId) -> Result<u64> {
        let engine = &self.handle().engine;
        let (from, to) = (Bound::Unbounded, Bound::Unbounded);
        let mut scan = engine.scan(tree, from, to, self.revision(), ScanDirection::Forward);
        let mut hash = Xxh3::new();
        while scan.advance()? {
            update(&mut hash, scan.key(), scan.revision(), scan.bytes());
        }
        Ok(hash.digest())
    }
}

/// Lengths go before contents, so that no two lists of records give the same bytes.
fn update(hash: &mut Xxh3, key: &[u8], revision: Revision, value: &[u8]) {
    for bytes in [key, value] {
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    }
    hash.update(&revision.to_le_bytes());
}
