//! The terms in which leadership is given away: no lease is believed in them.
//!
//! Who takes over is elected at once, whatever lease the leader holds. So from before the transfer is begun
//! nothing is read by the lease any more. In which term it is carried out is known only afterwards: this
//! member may have been deposed, and elected again, since it decided on it.
//!
//! Invariants: while a transfer is under way no lease is believed in any term; once it is known up to which
//! term it may have been carried out, none is believed up to that term, for ever.

use std::sync::atomic::{AtomicU64, Ordering};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Abdication {
    /// How many transfers were begun whose term is not known yet.
    under_way: AtomicU64,
    /// The last term in which one may have been carried out; 0 is none.
    last_term: AtomicU64,
}

impl Abdication {
    /// A transfer is about to be begun.
    pub(crate) fn begin(&self) {
        self.under_way.fetch_add(1, Ordering::SeqCst);
    }

    /// It was carried out in this term, in an earlier one, or not at all.
    pub(crate) fn end(&self, term: u64) {
        self.last_term.fetch_max(term, Ordering::SeqCst);
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether leadership may be given away in this term.
    pub(crate) fn is_possible_in(&self, term: u64) -> bool {
        // In the order opposite to that of `end`.
        self.under_way.load(Ordering::SeqCst) > 0 || term <= self.last_term.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The term was read before the transfer was begun. A member that was deposed and elected again in
    /// between gave leadership away in another term than it had noted, and went on reading by its lease
    /// while the next leader took over. Found by review.
    #[test]
    fn no_lease_is_believed_in_whatever_term_a_transfer_is_carried_out() {
        let abdication = Abdication::default();
        assert!(!abdication.is_possible_in(1));
        abdication.begin();
        for term in [1, 5, u64::MAX] {
            assert!(abdication.is_possible_in(term), "{term}");
        }
        abdication.begin();
        abdication.end(7);
        assert!(abdication.is_possible_in(9), "another one is under way");
        // The earlier one is known later.
        abdication.end(6);
        assert!(abdication.is_possible_in(6) && abdication.is_possible_in(7));
        assert!(!abdication.is_possible_in(8));
    }
}
