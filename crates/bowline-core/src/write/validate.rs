//! Validation: guards and conflicts.
//!
//! A *guard* is a condition on the newest state: a key is at a revision, a block or a lease exists. A
//! *conflict* is a version of a key or range that the transaction relies on and that is newer than the read revision.
//!
//! | isolation | what must be unchanged since the read revision |
//! |---|---|
//! | serializable | what the transaction has read: keys, ranges, blocks, edges, present or absent |
//! | snapshot | what it writes |
//! | either | the edges of a block that it deletes, so that none is deleted unseen |
//!
//! Invariant: conflicts are decided by versions alone, and only by the newest version of a key, which may be
//! a tombstone: older versions may have been merged away.

use std::ops::Bound;

use bowline_storage::TreeId;
use bowline_storage::engine::{Engine, Next};
use bowline_types::Revision;

use super::lookup::Lookup;
use crate::error::Result;
use crate::graph::{self, BlockId};
use crate::lease::LeaseId;
use crate::options::Isolation;
use crate::trees;

/// A condition on the newest state.
#[derive(Debug)]
pub enum Guard {
    /// The modification revision of a key; 0 means absent.
    Revision { key: Vec<u8>, expected: Revision },
    /// A block exists.
    Block { id: BlockId },
    /// A lease exists, or does not.
    Lease { id: LeaseId, exists: bool },
}

/// The reason why a write is refused.
#[derive(Debug, PartialEq, Eq)]
pub enum Violation {
    /// A key or a range has a version newer than the writer's snapshot.
    Changed {
        tree: TreeId,
        /// The first key with a newer version.
        key: Vec<u8>,
        revision: Revision,
        since: Revision,
    },
    /// A key is at another revision than expected.
    Revision {
        key: Vec<u8>,
        expected: Revision,
        actual: Revision,
    },
    /// A block is absent.
    MissingBlock { id: BlockId },
    /// A lease is absent.
    LeaseNotFound { id: LeaseId },
    /// A lease exists already.
    LeaseExists { id: LeaseId },
}

/// What must be unchanged when a transaction commits, besides the edges of a block that it deletes.
#[derive(Debug, Clone, Copy)]
pub struct Reliance {
    /// What the transaction has read.
    pub reads: bool,
    /// What it writes.
    pub writes: bool,
}

impl Reliance {
    pub fn of(isolation: Isolation) -> Reliance {
        Reliance {
            reads: isolation == Isolation::Serializable,
            writes: isolation == Isolation::Snapshot,
        }
    }
}

/// `Ok(Ok(()))` when the write may go on. The outer error is a read error.
pub type Verdict = Result<Result<(), Violation>>;

impl Guard {
    pub fn check(&self, lookup: &impl Lookup) -> Verdict {
        match self {
            Guard::Revision { key, expected } => check_revision(lookup, key, *expected),
            Guard::Block { id } => check_block(lookup, *id),
            Guard::Lease { id, exists } => check_lease(lookup, *id, *exists),
        }
    }
}

/// Checks the modification revision of a key; 0 means absent.
pub fn check_revision(lookup: &impl Lookup, key: &[u8], expected: Revision) -> Verdict {
    let actual = lookup.mod_revision(key)?;
    if actual != expected {
        let key = key.to_vec();
        return Ok(Err(Violation::Revision {
            key,
            expected,
            actual,
        }));
    }
    Ok(Ok(()))
}

/// A block exists.
pub(crate) fn check_block(lookup: &impl Lookup, id: BlockId) -> Verdict {
    match lookup.exists(trees::BLOCK, &graph::block_key(id))? {
        true => Ok(Ok(())),
        false => Ok(Err(Violation::MissingBlock { id })),
    }
}

/// A lease exists, or does not.
pub fn check_lease(lookup: &impl Lookup, id: LeaseId, exists: bool) -> Verdict {
    let found = lookup.exists(trees::SYSTEM, &trees::lease_key(id))?;
    Ok(match (found, exists) {
        (false, true) => Err(Violation::LeaseNotFound { id }),
        (true, false) => Err(Violation::LeaseExists { id }),
        _ => Ok(()),
    })
}

/// No version of a key is newer than `since`.
pub fn check_unchanged(engine: &Engine, tree: TreeId, key: &[u8], since: Revision) -> Verdict {
    let newer = engine.peek_since(tree, key, since.get(), |found| found.map(|f| f.revision))?;
    if let Some(revision) = newer {
        let key = key.to_vec();
        return Ok(Err(Violation::Changed {
            tree,
            key,
            revision: Revision::new(revision),
            since,
        }));
    }
    Ok(Ok(()))
}

/// No version of a key in a range is newer than `since`.
pub fn check_range_unchanged(
    engine: &Engine,
    tree: TreeId,
    (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
    since: Revision,
) -> Verdict {
    if !engine.changed_since(tree, lower, upper, since.get())? {
        return Ok(Ok(()));
    }
    // The smallest changed key, so that all members agree: the order of the visits differs between them.
    let mut first: Option<(Vec<u8>, Revision)> = None;
    let span = (since.get() + 1, u64::MAX);
    engine.peek_versions(tree, lower, upper, span, &mut |key, revision, _, _| {
        let revision = Revision::new(revision);
        match &mut first {
            Some((known, _)) if key > &known[..] => {}
            Some((known, newest)) if key == &known[..] => *newest = revision.max(*newest),
            _ => first = Some((key.to_vec(), revision)),
        }
        Next::All
    })?;
    Ok(match first {
        Some((key, revision)) => Err(Violation::Changed {
            tree,
            key,
            revision,
            since,
        }),
        None => Ok(()),
    })
}
