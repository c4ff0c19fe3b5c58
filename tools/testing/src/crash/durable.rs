//! The safe and the pending operations at one point of a recording.
//!
//! `base` is the tree with all folded operations; `pending` are the later ones that are not folded yet, in
//! order. A sync clears the needs of pending operations; one without needs is *certain*, and is folded as
//! soon as no earlier pending operation touches the same inode, since operations on one inode (a file's
//! bytes, a directory's names) must stay in order.
//!
//! Invariants: every operation before the point is in `base`, or pending, or a sync; the inode of every
//! pending create exists in `base`, without a name.

use std::collections::BTreeSet;

use super::faults::{Fate, Faults, spoil_sectors};
use crate::disk::{Inode, Operation, Recording, Tree};

/// An operation that is not folded into the base.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) index: usize,
    /// The inodes that must still be synced before it is certain.
    needs: [Option<Inode>; 2],
    /// A sync of it failed: no later one makes it certain.
    spoiled: bool,
}

impl Pending {
    pub(super) fn is_certain(&self) -> bool {
        self.needs == [None, None]
    }
}

/// The safe state at one point, and the pending operations.
#[derive(Clone, Debug)]
pub(super) struct Durable {
    base: Tree,
    pending: Vec<Pending>,
}

impl Durable {
    /// The state at point 0.
    pub(super) fn new(recording: &Recording) -> Durable {
        Durable {
            base: recording.base.clone(),
            pending: Vec::new(),
        }
    }

    /// The operations that a crash may lose, in order.
    pub(super) fn uncertain(&self) -> impl Iterator<Item = usize> + '_ {
        self.pending
            .iter()
            .filter(|pending| !pending.is_certain())
            .map(|pending| pending.index)
    }

    /// Moves from point `index` to the next, past `operation`.
    pub(super) fn advance(&mut self, index: usize, operation: &Operation, recording: &Recording) {
        match operation {
            Operation::SyncFile { inode } | Operation::SyncDir { directory: inode } => {
                for pending in self.pending.iter_mut().filter(|pending| !pending.spoiled) {
                    for need in &mut pending.needs {
                        *need = need.filter(|need| need != inode);
                    }
                }
                self.fold(recording);
            }
            // The names stay as uncertain as they were: a file system with a journal ends it, or tries once more.
            Operation::SyncDirFailed { .. } => {}
            Operation::SyncFileFailed { inode } => {
                for pending in &mut self.pending {
                    pending.spoiled |= pending.needs.contains(&Some(*inode));
                }
            }
            _ => {
                self.base.prepare(operation);
                self.pending.push(Pending {
                    index,
                    needs: operation.needs(),
                    spoiled: false,
                });
            }
        }
    }

    fn fold(&mut self, recording: &Recording) {
        let mut blocked: BTreeSet<Inode> = BTreeSet::new();
        let mut names_went = false;
        let base = &mut self.base;
        self.pending.retain(|pending| {
            let operation = &recording.operations[pending.index];
            if pending.is_certain() && !operation.touches().any(|i| blocked.contains(&i)) {
                base.apply(operation);
                names_went |= matches!(
                    operation,
                    Operation::Rename { .. } | Operation::Remove { .. }
                );
                return false;
            }
            blocked.extend(operation.touches());
            true
        });
        if names_went {
            let created = self.pending.iter().filter_map(|pending| {
                match &recording.operations[pending.index] {
                    Operation::Create { inode, .. } | Operation::CreateDir { inode, .. } => {
                        Some(*inode)
                    }
                    _ => None,
                }
            });
            self.base.forget_unnamed(created);
        }
    }

    /// The tree after a crash here.
    pub(super) fn build(&self, faults: &Faults, recording: &Recording) -> Tree {
        let mut tree = self.base.clone();
        let mut fates = faults.fates();
        for pending in &self.pending {
            let operation = &recording.operations[pending.index];
            let fate = if pending.is_certain() {
                Fate::Kept
            } else {
                fates.decide(pending.index, operation)
            };
            match fate {
                Fate::Kept => tree.apply(operation),
                Fate::Lost => {}
                Fate::Torn(tear) => tear.apply(&mut tree, operation),
                Fate::Garbage(sector_bytes, seed) => {
                    spoil_sectors(&mut tree, operation, sector_bytes, seed);
                }
            }
        }
        tree.forget_unreachable();
        tree
    }
}
