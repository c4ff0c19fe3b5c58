//! Where a write of several records reads and writes.
//!
//! A block goes with its edges, a lease with its keys. Which records those are is a rule ([`super::graph`],
//! [`super::lease`]); what the decision rests on is the target's to keep: a transaction of the library notes
//! its reads and is validated at commit, a command of the cluster reads the newest state.

use bowline_storage::TreeId;

use super::validate::Guard;
use crate::error::Error;
use crate::graph::KindId;
use crate::lease::LeaseId;

/// A transaction, or a command, that a rule writes into.
pub trait Target {
    /// Why a write ends.
    type Error: From<Error>;

    /// Whether a record is there, own writes included.
    fn exists(&mut self, tree: TreeId, key: &[u8]) -> Result<bool, Self::Error>;

    /// Every key of a tree that begins with a prefix, own writes included. At commit there must be no other.
    fn keys(&mut self, tree: TreeId, prefix: &[u8]) -> Result<Vec<Vec<u8>>, Self::Error>;

    /// Refuses unless a condition holds, now and at commit.
    fn require(&mut self, guard: Guard) -> Result<(), Self::Error>;

    /// The number of a kind; a new name gets the next one.
    fn kind(&mut self, name: &str) -> Result<KindId, Self::Error>;

    /// Sets a record of another tree than that of the keys.
    fn put_record(&mut self, tree: TreeId, key: &[u8], value: Vec<u8>) -> Result<(), Self::Error>;

    /// Deletes such a record.
    fn delete_record(&mut self, tree: TreeId, key: &[u8]) -> Result<(), Self::Error>;

    /// Deletes a key that is attached to a lease.
    fn delete_attached(&mut self, key: &[u8], lease: LeaseId) -> Result<(), Self::Error>;
}
