//! Hashes of the visible content of every tree, to compare databases that must be equal.
//!
//! A hash covers, in key order, each key and the revision and content of its newest visible version. A
//! key-value entry is decoded first, because its record has several encodings; records of the other trees
//! have one encoding and are hashed as stored. The place of a version (memtable, table, blob file) and
//! retained older versions do not affect the hash.
//!
//! Comparison:
//!
//! - `keys`, `blocks`, `edges_out`, `edges_in` and `indexes` depend on the revision alone.
//! - `system` (kinds, leases, attachments, alarms, the applied record of a member) also changes
//!   without a revision: compare it between members at the same applied index
//!   (`Replica::tree_hashes`).

use std::ops::Bound;

use bowline_storage::TreeId;
use bowline_storage::engine::ScanDirection;
use bowline_types::Revision;
use xxhash_rust::xxh3::Xxh3;

use crate::snapshot::Snapshot;
use bowline_core::error::Result;
use bowline_core::kv::Range;
use bowline_core::lease::LeaseId;
use bowline_core::trees;

/// One hash per tree. See [`Snapshot::tree_hashes`].
///
/// ```
/// # let (db, other) = (bowline::Db::in_memory()?, bowline::Db::in_memory()?);
/// db.put("k", "v")?;
/// other.put("k", "v")?;
/// assert_eq!(db.snapshot().tree_hashes()?.combined(), other.snapshot().tree_hashes()?.combined());
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeHashes {
    /// The revision of the snapshot.
    pub revision: Revision,
    /// Keys with values and metadata.
    pub keys: u64,
    /// Blocks.
    pub blocks: u64,
    /// Edges by source.
    pub edges_out: u64,
    /// Edges by target.
    pub edges_in: u64,
    /// Kinds, leases and their keys, alarms, and a cluster member's applied record.
    pub system: u64,
    /// Indexes; 0 where there are none.
    pub indexes: u64,
}

impl TreeHashes {
    /// One hash of all fields, the revision included; never 0.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// db.put("k", "v")?;
    /// let hashes = db.snapshot().tree_hashes()?;
    /// assert_eq!(hashes.combined(), db.snapshot().tree_hashes()?.combined());
    /// # Ok::<(), bowline::Error>(())
    /// ```
    #[must_use]
    pub fn combined(&self) -> u64 {
        let mut hash = Xxh3::new();
        for number in [
            self.revision.get(),
            self.keys,
            self.blocks,
            self.edges_out,
            self.edges_in,
            self.system,
        ] {
            hash.update(&number.to_le_bytes());
        }
        // Members of earlier versions have none, and must agree.
        if self.indexes != 0 {
            hash.update(&self.indexes.to_le_bytes());
        }
        hash.digest().max(1)
    }
}

impl Snapshot {
    /// Hashes every tree at this snapshot; reads the whole database. Equal databases have equal hashes.
    /// `system` may change while the revision stays the same.
    ///
    /// ```
    /// # let db = bowline::Db::in_memory()?;
    /// let other = bowline::Db::in_memory()?;
    /// db.put("k", "v")?;
    /// other.put("k", "v")?;
    /// assert_eq!(db.snapshot().tree_hashes()?, other.snapshot().tree_hashes()?);
    /// # Ok::<(), bowline::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidRecord`, `Storage` when a record cannot be read.
    pub fn tree_hashes(&self) -> Result<TreeHashes> {
        self.tree_hashes_with(self.system_hash()?)
    }

    /// [`Snapshot::tree_hashes`] with an earlier hash of the system tree.
    #[doc(hidden)]
    pub fn tree_hashes_with(&self, system: u64) -> Result<TreeHashes> {
        Ok(TreeHashes {
            revision: self.revision(),
            keys: self.keys_hash()?,
            blocks: self.tree_hash(trees::BLOCK)?,
            edges_out: self.tree_hash(trees::EDGE_OUT)?,
            edges_in: self.tree_hash(trees::EDGE_IN)?,
            system,
            indexes: self.tree_hash(trees::INDEX)?,
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
            update(
                &mut hash,
                &entry.key,
                entry.mod_revision.get(),
                &entry.value,
            );
            let lease = LeaseId::number_of(entry.lease);
            for number in [entry.create_revision.get(), entry.version, lease as u64] {
                hash.update(&number.to_le_bytes());
            }
        }
        Ok(hash.digest())
    }

    fn tree_hash(&self, tree: TreeId) -> Result<u64> {
        let engine = &self.handle().engine;
        let (from, to) = (Bound::Unbounded, Bound::Unbounded);
        let mut scan = engine.scan(
            tree,
            from,
            to,
            self.revision().get(),
            ScanDirection::Forward,
        );
        let mut hash = Xxh3::new();
        let mut is_empty = true;
        while scan.advance()? {
            update(&mut hash, scan.key(), scan.revision(), scan.bytes());
            is_empty = false;
        }
        Ok(match is_empty && tree == trees::INDEX {
            true => 0,
            false => hash.digest(),
        })
    }
}

/// Lengths precede contents, so different lists of records give different bytes.
fn update(hash: &mut Xxh3, key: &[u8], revision: u64, value: &[u8]) {
    for bytes in [key, value] {
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    }
    hash.update(&revision.to_le_bytes());
}
