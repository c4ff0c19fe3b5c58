//! The tombstones that a cluster member keeps in addition, for conflict detection.
//!
//! After a crash, a member applies entries of the replicated log again. The result of an entry depends on which keys have
//! changed since some revision, and the second application must find the same changes as the first, although the history
//! floor has risen since. So a member keeps every tombstone above an agreed revision.
//!
//! Invariant: that revision is raised only when the tables contain the log entry that agreed on the new one.

use std::collections::VecDeque;

use crate::{Index, Revision};

/// The revision from which on tombstones are kept.
#[derive(Debug)]
pub(super) struct TombstoneHold {
    from: Revision,
    /// Later values of `from`, each with the log entry that the tables must contain first.
    later: VecDeque<(Index, Revision)>,
}

impl TombstoneHold {
    pub(super) fn new(from: Revision) -> TombstoneHold {
        let later = VecDeque::new();
        TombstoneHold { from, later }
    }

    /// Keeps only tombstones from `from` on, as soon as the tables contain the log entry `index`.
    pub(super) fn raise_later(&mut self, index: Index, from: Revision) {
        self.later.push_back((index, from));
    }

    /// The revision, when the tables contain the log up to `flushed`.
    pub(super) fn from(&mut self, flushed: Index) -> Revision {
        while let Some((_, from)) = self.later.pop_front_if(|(index, _)| *index <= flushed) {
            self.from = self.from.max(from);
        }
        self.from
    }
}
