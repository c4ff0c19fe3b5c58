//! [`StateSequence`]: the one state of users and data in which a read is checked.
//!
//! What callers may read and what there is to read change together, but not in one step:
//!
//! ```text
//!  a group        begin ── it becomes visible ── its users are shown ── end
//!  installation   begin ── the tables are replaced ── kinds, indexes, leases and users are loaded ── end
//! ```
//!
//! A reader in between could have the rights of one state and the data of the other. So a reader looks at a counter before it
//! checks rights and after it has pinned what it reads, and starts again if the counter has changed: a sequence lock, to
//! which readers write nothing.
//!
//! Invariant: users and data that were found while the counter was even, and did not change, are of one state. For that, a
//! reader loads the counter before and after both, and every store between a begin and an end is a release.

use bowline_storage::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use bowline_storage::sync::thread;

/// Tells readers whether users and data are of one state. Whoever changes it holds the lock of the applier.
#[derive(Debug, Default)]
pub(crate) struct StateSequence {
    /// Counts the begins and the ends of changes: odd during one.
    changes: AtomicU64,
    /// Whether another member's state is being installed, for which no reader waits.
    is_replaced: AtomicBool,
}

impl StateSequence {
    /// A group that changes users is about to become visible.
    pub(crate) fn begin(&self) {
        let changes = self.changes.load(Ordering::Relaxed);
        self.changes.store(changes | 1, Ordering::Release);
    }

    /// Another member's state is about to be installed. Returns whether users and data are of one state still: not after an
    /// installation that failed half-way.
    pub(crate) fn begin_replacing(&self) -> bool {
        let was_left = self.is_replaced.swap(true, Ordering::AcqRel);
        self.begin();
        !was_left
    }

    /// The users of a group are shown. Users and data are of one state again, but not where an installation has failed
    /// half-way before.
    pub(crate) fn end_group(&self) {
        if !self.is_replaced.load(Ordering::Relaxed) {
            self.go_on();
        }
    }

    /// The state that was installed is loaded: users and data are of one state again.
    pub(crate) fn end(&self) {
        self.go_on();
        self.is_replaced.store(false, Ordering::Release);
    }

    fn go_on(&self) {
        let changes = self.changes.load(Ordering::Relaxed);
        self.changes.store((changes | 1) + 1, Ordering::Release);
    }

    /// Calls `take`, again and again until nothing has changed meanwhile. `None` while another member's state is being
    /// installed.
    pub(crate) fn in_one_state<T>(&self, mut take: impl FnMut() -> T) -> Option<T> {
        loop {
            let before = self.changes.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let taken = take();
                if self.changes.load(Ordering::Acquire) == before {
                    return Some(taken);
                }
            } else if self.is_replaced.load(Ordering::Acquire) {
                return None;
            } else {
                // A group takes a moment to become visible.
                thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::StateSequence;

    #[test]
    fn a_group_does_not_end_an_installation_that_failed() {
        let sequence = StateSequence::default();
        sequence.begin();
        sequence.end_group();
        assert_eq!(sequence.in_one_state(|| 1), Some(1));
        assert!(sequence.begin_replacing());
        sequence.begin();
        sequence.end_group();
        assert_eq!(sequence.in_one_state(|| 1), None);
        assert!(!sequence.begin_replacing(), "it failed half-way before");
        sequence.end();
        assert_eq!(sequence.in_one_state(|| 1), Some(1));
    }
}
