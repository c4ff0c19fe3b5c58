//! Leadership transfers, during which leases are not valid.
//!
//! The target of a transfer is elected at once, whatever lease the leader holds. So lease reads stop before
//! the transfer begins. The term in which it takes effect is known only afterwards: this member may have been
//! deposed and elected again since it decided on the transfer.
//!
//! Invariants: during a transfer no lease is valid in any term; once it is known up to which term the
//! transfer may have taken effect, no lease up to that term is ever valid again.

use std::sync::atomic::{AtomicU64, Ordering};

/// The terms in which leases are not valid.
#[derive(Debug, Default)]
pub(crate) struct Abdication {
    /// Transfers under way whose term is not known yet.
    under_way: AtomicU64,
    /// The last term in which a transfer may have taken effect; 0 is none.
    last_term: AtomicU64,
}

impl Abdication {
    /// Notes that a transfer is about to begin.
    pub(crate) fn begin(&self) {
        self.under_way.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes that a transfer took effect in this term, in an earlier one, or not at all.
    pub(crate) fn end(&self, term: u64) {
        self.last_term.fetch_max(term, Ordering::SeqCst);
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a transfer is possible in this term.
    pub(crate) fn is_possible_in(&self, term: u64) -> bool {
        // The opposite order of `end`.
        self.under_way.load(Ordering::SeqCst) > 0 || term <= self.last_term.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The term was read before the transfer began. A member that was deposed and elected again in between
    /// transferred leadership in another term than it had noted, and continued with lease reads while the
    /// next leader took over. Found by review.
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
        // The end of the earlier one is noted later.
        abdication.end(6);
        assert!(abdication.is_possible_in(6) && abdication.is_possible_in(7));
        assert!(!abdication.is_possible_in(8));
    }
}
