//! [`Target`]: the reads and writes of a compound write, such as the deletion of a block with its edges.
//!
//! The rules ([`super::graph`], [`super::lease`]) choose the records. The target decides how reads are
//! validated: a transaction of the library records them for its commit, a command of the cluster reads the
//! newest state.

use bowline_storage::TreeId;

use super::validate::Guard;
use crate::error::Error;
use crate::graph::KindId;
use crate::lease::LeaseId;

/// A transaction, or a command, that a rule writes into.
pub trait Target {
    /// The error of a refused write.
    type Error: From<Error>;

    /// Whether a record exists, own writes included.
    fn exists(&mut self, tree: TreeId, key: &[u8]) -> Result<bool, Self::Error>;

    /// All keys of a tree with a prefix, own writes included. There must be no other at the commit.
    fn keys(&mut self, tree: TreeId, prefix: &[u8]) -> Result<Vec<Vec<u8>>, Self::Error> {
        self.first_keys(tree, prefix, usize::MAX)
    }

    /// At most the first `count_max` of them. At the commit there must be no other among them; there may be others behind.
    fn first_keys(
        &mut self,
        tree: TreeId,
        prefix: &[u8],
        count_max: usize,
    ) -> Result<Vec<Vec<u8>>, Self::Error>;

    /// Requires a condition, now and at the commit.
    fn require(&mut self, guard: Guard) -> Result<(), Self::Error>;

    /// The number of a kind; a new name gets the next one.
    fn kind(&mut self, name: &str) -> Result<KindId, Self::Error>;

    /// Sets a record outside the kv tree.
    fn put_record(&mut self, tree: TreeId, key: &[u8], value: Vec<u8>) -> Result<(), Self::Error>;

    /// Deletes such a record.
    fn delete_record(&mut self, tree: TreeId, key: &[u8]) -> Result<(), Self::Error>;

    /// Deletes a key that is attached to a lease.
    fn delete_attached(&mut self, key: &[u8], lease: LeaseId) -> Result<(), Self::Error>;
}
