//! The bound over the queues of all streams.
//!
//! Each queue has a bound of its own, but a crowd of clients that do not read has as many queues. So a queue
//! may also hold at most a fraction of what is left of the bound over all queues: a few slow clients get full
//! queues, and the more there are, the less each gets. A watch that finds no room falls behind and continues
//! from history.
//!
//! ```text
//! events of all queues  |■■■■■■■■■■■■■■■■■■■■■■■■ · · · · · · · ·|
//! one queue                                      |· an eighth of it at most
//! ```
//!
//! The budget of all clients ([`Memory`]) counts these bytes, too, and its remainder is an upper bound.
//!
//! Invariants:
//!
//! - The bytes of an event count once, from its encoding until its last message is dropped, whatever the
//!   number of queues.
//! - The count stays below the bound, except for one message per stream, which an empty queue always accepts,
//!   and for messages without events.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::memory::Memory;

/// One queue may take one part in so many of the remainder.
const SHARES: usize = 8;
/// The approximate memory of an encoded event besides its bytes.
const OWNER_BYTES: usize = 64;

/// The bound over the queues of all streams.
#[derive(Debug)]
pub(super) struct Budget {
    bytes_max: usize,
    memory: Arc<Memory>,
}

impl Budget {
    pub(super) fn new(bytes_max: usize, memory: Arc<Memory>) -> Arc<Budget> {
        Arc::new(Budget { bytes_max, memory })
    }

    /// The most bytes that one queue may hold now.
    pub(super) fn share(&self) -> usize {
        let own = self.bytes_max.saturating_sub(self.used());
        own.min(self.memory.left()) / SHARES
    }

    pub(super) fn used(&self) -> usize {
        self.memory.watches.load(Ordering::Relaxed)
    }

    pub(super) fn take(&self, bytes: usize) {
        self.memory.watches.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.memory.watches.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts an encoded event until its last reference is dropped.
    pub(super) fn count(self: &Arc<Budget>, bytes: Vec<u8>) -> Bytes {
        self.take(bytes.len() + OWNER_BYTES);
        Bytes::from_owner(Counted {
            bytes,
            budget: self.clone(),
        })
    }
}

/// The counted bytes of an event.
struct Counted {
    bytes: Vec<u8>,
    budget: Arc<Budget>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes.len() + OWNER_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_counts_once_and_until_the_last_who_has_it_has_gone() {
        let memory = Memory::new(1 << 20, 1 << 20);
        let budget = Budget::new(8000, memory.clone());
        assert_eq!(budget.share(), 1000);
        let event = budget.count(vec![7; 1000 - OWNER_BYTES]);
        let others = [event.clone(), event.slice(3..5), event.clone()];
        assert_eq!((budget.used(), budget.share()), (1000, 875));
        drop(event);
        assert_eq!(budget.used(), 1000);
        drop(others);
        assert_eq!((budget.used(), budget.share()), (0, 1000));
        // Beyond the bound nothing is left.
        let all = budget.count(vec![7; 9000]);
        assert_eq!(budget.share(), 0);
        drop(all);
        // The budget of all clients is a bound, too.
        let account = memory.account();
        let _others = crate::memory::Charge::of(&account, 1 << 18).unwrap();
        assert_eq!(budget.share(), 1000);
        let small = Memory::new(4000, 4000);
        assert_eq!(Budget::new(8000, small).share(), 500);
    }
}
