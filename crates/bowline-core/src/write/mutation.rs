//! The write set of a transaction: at most one mutation for each key of a tree.

use bowline_storage::{TreeId, Value};
use smallvec::SmallVec;

use crate::lease::LeaseId;

/// One write to one key.
#[derive(Debug)]
pub struct Mutation {
    pub tree: TreeId,
    pub key: Value,
    pub action: Action,
}

impl Mutation {
    pub fn new(tree: TreeId, key: &[u8], action: Action) -> Mutation {
        Mutation {
            tree,
            key: Value::copy_from(key),
            action,
        }
    }
}

/// The mutations of a transaction, at most one for each tree and key. A single one, which most transactions
/// have, takes no allocation.
pub type Mutations = SmallVec<[Mutation; 1]>;

/// The change of a key.
#[derive(Debug)]
pub enum Action {
    /// Sets a key of the kv tree; its metadata is added at commit.
    PutEntry {
        value: Value,
        lease: Option<LeaseId>,
    },
    /// Sets a record of another tree to these bytes.
    PutRaw { value: Vec<u8> },
    /// Deletes the key.
    Delete,
}
