//! The reference model of the database, in plain maps.
//!
//! [`Model`] executes the same transactions as a real database and keeps, for each key, block and edge, the
//! list of its changes. It is slow and keeps everything for ever; it is meant to be obviously right. Its
//! rules:
//!
//! - A new database is at revision 1. A transaction that changes something takes the next one.
//! - Changes of one transaction happen in order and see each other. Of several changes of one key, only the
//!   last counts: a put after a delete in the *same* transaction continues the entry from before the
//!   transaction. Deleting an absent key changes nothing.
//! - A key's create revision is the revision of the put that made it present, its version counts the puts
//!   since then. Both restart after a delete.
//! - An edge needs both its blocks, at its position in the transaction; otherwise the transaction is refused
//!   and nothing has happened. Deleting a block deletes its edges, in both directions.

mod graph;
#[cfg(test)]
mod tests;
mod versions;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeBounds;

use bowline_types::{BlockKinds, Revision};

pub use graph::{Direction, Graph};
use versions::Versions;

/// The id of a block.
pub type BlockId = u128;

/// A key's value and etcd's metadata.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The value.
    pub value: Vec<u8>,
    /// The revision of the put that made the key present.
    pub create_revision: Revision,
    /// The revision of the last put.
    pub mod_revision: Revision,
    /// The number of puts since the key became present.
    pub version: u64,
    /// The lease of the last put; 0 for none.
    pub lease: i64,
}

/// A graph node with content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// Its types.
    pub kinds: BlockKinds,
    /// Its content.
    pub content: Vec<u8>,
}

/// The identity of an edge; edges are ordered by source, kind, target.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EdgeKey {
    /// The source block.
    pub source: BlockId,
    /// Its type.
    pub kind: String,
    /// The target block.
    pub target: BlockId,
}

impl EdgeKey {
    /// The edge from `source` to `target`.
    #[must_use]
    pub fn new(source: BlockId, kind: &str, target: BlockId) -> EdgeKey {
        EdgeKey {
            source,
            kind: kind.to_owned(),
            target,
        }
    }
}

/// One change within a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Gives a key a value.
    Put {
        /// The key.
        key: Vec<u8>,
        /// Its new value.
        value: Vec<u8>,
        /// Its lease; 0 for none.
        lease: i64,
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: Vec<u8>,
    },
    /// Creates or replaces a block; its edges stay.
    PutBlock {
        /// The block.
        id: BlockId,
        /// Its types.
        kinds: BlockKinds,
        /// Its content.
        content: Vec<u8>,
    },
    /// Removes a block and its edges.
    DeleteBlock {
        /// The block.
        id: BlockId,
    },
    /// Creates an edge or replaces its attributes.
    PutEdge {
        /// The edge.
        edge: EdgeKey,
        /// Its attributes.
        attributes: Vec<u8>,
    },
    /// Removes an edge.
    DeleteEdge {
        /// The edge.
        edge: EdgeKey,
    },
}

impl Change {
    /// A put without a lease.
    #[must_use]
    pub fn put(key: &[u8], value: &[u8]) -> Change {
        Change::Put {
            key: key.to_vec(),
            value: value.to_vec(),
            lease: 0,
        }
    }

    /// A delete.
    #[must_use]
    pub fn delete(key: &[u8]) -> Change {
        Change::Delete { key: key.to_vec() }
    }

    /// A block.
    #[must_use]
    pub fn put_block(id: BlockId, kinds: impl Into<BlockKinds>, content: &[u8]) -> Change {
        Change::PutBlock {
            id,
            kinds: kinds.into(),
            content: content.to_vec(),
        }
    }

    /// An edge.
    #[must_use]
    pub fn put_edge(source: BlockId, kind: &str, target: BlockId, attributes: &[u8]) -> Change {
        let edge = EdgeKey::new(source, kind, target);
        Change::PutEdge {
            edge,
            attributes: attributes.to_vec(),
        }
    }
}

/// A transaction was refused: an edge names a block that does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MissingBlock(
    /// The missing block; the source, when both are missing.
    pub BlockId,
);

impl fmt::Display for MissingBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "an edge needs block {:#034x}, which does not exist",
            self.0
        )
    }
}

impl std::error::Error for MissingBlock {}

/// The reference model of the database.
///
/// ```
/// use bowline_testing::model::{Change, Model};
/// use bowline_types::Revision;
///
/// let revision = Revision::new;
/// let mut model = Model::new();
/// assert_eq!(model.commit(&[Change::put(b"k", b"old")]), Ok(revision(2)));
/// assert_eq!(model.commit(&[Change::put(b"k", b"new"), Change::delete(b"absent")]), Ok(revision(3)));
/// assert_eq!(model.commit(&[Change::delete(b"absent")]), Ok(revision(3))); // nothing changed
///
/// let entry = model.get(b"k", revision(3)).expect("put at 2 and 3");
/// assert_eq!(entry.create_revision, 2);
/// assert_eq!(entry.mod_revision, 3);
/// assert_eq!(entry.version, 2);
/// assert_eq!(model.get(b"k", revision(2)).expect("put at 2").value, b"old");
/// ```
#[derive(Clone, Debug)]
pub struct Model {
    revision: Revision,
    keys: Versions<Vec<u8>, Entry>,
    blocks: Versions<BlockId, Block>,
    edges: Versions<EdgeKey, Vec<u8>>,
}

/// The items that a transaction touched, to see whether it changed anything and to undo it.
#[derive(Default)]
struct Touched {
    keys: Vec<Vec<u8>>,
    blocks: Vec<BlockId>,
    edges: Vec<EdgeKey>,
}

impl Default for Model {
    fn default() -> Self {
        Model::new()
    }
}

impl Model {
    /// An empty database, at revision 1.
    #[must_use]
    pub fn new() -> Model {
        Model {
            revision: Revision::FIRST,
            keys: Versions::new(),
            blocks: Versions::new(),
            edges: Versions::new(),
        }
    }

    /// The revision of the last transaction that changed something.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Executes one transaction. Returns the new revision, or the old one when nothing changed.
    pub fn commit(&mut self, changes: &[Change]) -> Result<Revision, MissingBlock> {
        let revision = self.revision + 1;
        let mut touched = Touched::default();
        let outcome = changes
            .iter()
            .try_for_each(|c| self.apply(c, revision, &mut touched));
        if let Err(missing) = outcome {
            touched
                .keys
                .iter()
                .for_each(|key| self.keys.undo(key, revision));
            touched
                .blocks
                .iter()
                .for_each(|id| self.blocks.undo(id, revision));
            touched
                .edges
                .iter()
                .for_each(|edge| self.edges.undo(edge, revision));
            return Err(missing);
        }
        let changed = touched
            .keys
            .iter()
            .any(|key| self.keys.changed_at(key, revision))
            || touched
                .blocks
                .iter()
                .any(|id| self.blocks.changed_at(id, revision))
            || touched
                .edges
                .iter()
                .any(|edge| self.edges.changed_at(edge, revision));
        if changed {
            self.revision = revision;
        }
        Ok(self.revision)
    }

    fn apply(
        &mut self,
        change: &Change,
        revision: Revision,
        touched: &mut Touched,
    ) -> Result<(), MissingBlock> {
        match change {
            Change::Put { key, value, lease } => {
                touched.keys.push(key.clone());
                let before = self.keys.get(key, revision - 1);
                let entry = Entry {
                    value: value.clone(),
                    create_revision: before.map_or(revision, |entry| entry.create_revision),
                    mod_revision: revision,
                    version: before.map_or(1, |entry| entry.version + 1),
                    lease: *lease,
                };
                self.keys.set(key, revision, Some(entry));
            }
            Change::Delete { key } => {
                touched.keys.push(key.clone());
                self.keys.set(key, revision, None);
            }
            Change::PutBlock { id, kinds, content } => {
                touched.blocks.push(*id);
                let block = Block {
                    kinds: kinds.clone(),
                    content: content.clone(),
                };
                self.blocks.set(id, revision, Some(block));
            }
            Change::DeleteBlock { id } => {
                touched.blocks.push(*id);
                self.blocks.set(id, revision, None);
                let edges = self.edges.range(.., revision).map(|(edge, _)| edge);
                let tied = edges.filter(|edge| edge.source == *id || edge.target == *id);
                for edge in tied.cloned().collect::<Vec<_>>() {
                    self.edges.set(&edge, revision, None);
                    touched.edges.push(edge);
                }
            }
            Change::PutEdge { edge, attributes } => {
                for end in [edge.source, edge.target] {
                    self.blocks.get(&end, revision).ok_or(MissingBlock(end))?;
                }
                touched.edges.push(edge.clone());
                self.edges.set(edge, revision, Some(attributes.clone()));
            }
            Change::DeleteEdge { edge } => {
                touched.edges.push(edge.clone());
                self.edges.set(edge, revision, None);
            }
        }
        Ok(())
    }

    /// A key's entry as of `revision`.
    #[must_use]
    pub fn get(&self, key: &[u8], revision: Revision) -> Option<&Entry> {
        self.keys.get(&key.to_vec(), revision)
    }

    /// The keys in `range` and their entries as of `revision`, in order.
    pub fn range(
        &self,
        range: impl RangeBounds<Vec<u8>>,
        revision: Revision,
    ) -> impl DoubleEndedIterator<Item = (&Vec<u8>, &Entry)> {
        self.keys.range(range, revision)
    }

    /// All keys and values as of `revision`: the contents of a database that was rolled back to it.
    #[must_use]
    pub fn key_values(&self, revision: Revision) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.range(.., revision)
            .map(|(key, entry)| (key.clone(), entry.value.clone()))
            .collect()
    }

    /// All changes of a key, oldest first; `None` is a delete.
    #[must_use]
    pub fn history(&self, key: &[u8]) -> &[(Revision, Option<Entry>)] {
        self.keys.history(&key.to_vec())
    }

    /// A block as of `revision`.
    #[must_use]
    pub fn block(&self, id: BlockId, revision: Revision) -> Option<&Block> {
        self.blocks.get(&id, revision)
    }

    /// The attributes of an edge as of `revision`.
    #[must_use]
    pub fn edge(&self, edge: &EdgeKey, revision: Revision) -> Option<&[u8]> {
        self.edges.get(edge, revision).map(Vec::as_slice)
    }

    /// All blocks and edges as of `revision`.
    #[must_use]
    pub fn graph(&self, revision: Revision) -> Graph {
        let blocks = self.blocks.range(.., revision);
        let edges = self.edges.range(.., revision);
        Graph {
            blocks: blocks.map(|(id, block)| (*id, block.clone())).collect(),
            edges: edges
                .map(|(edge, value)| (edge.clone(), value.clone()))
                .collect(),
        }
    }
}
