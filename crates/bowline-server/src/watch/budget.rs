//! The budget of events that wait for all clients together.
//!
//! Each queue has a bound of its own, and a crowd of clients that do not read has as many queues. So a queue
//! may also never have more than a part of what is left of the bound over all: a few slow clients have all
//! the room they may have, and the more there are, the less each of them has. Who finds none falls behind,
//! and goes on from history.
//!
//! ```text
//! events of all queues  |■■■■■■■■■■■■■■■■■■■■■■■■ · · · · · · · ·|
//! one queue                                      |· an eighth of it at most
//! ```
//!
//! The budget of all clients ([`Memory`]) counts it, too: what is left there bounds it from above.
//!
//! Invariants:
//!
//! - The bytes of an event count once, from its encoding until the last message with it has gone, whichever
//!   queues they wait in.
//! - What counts stays below the bound, but for one message of each stream, which finds room in an empty
//!   queue whatever is left, and for messages that are not about events.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::memory::Memory;

/// How much of what is left one queue may have: one part of so many.
const SHARES: usize = 8;
/// About how much memory an encoded event takes besides its bytes.
const OWNER_BYTES: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Budget {
    bytes_max: usize,
    memory: Arc<Memory>,
}

impl Budget {
    pub(super) fn new(bytes_max: usize, memory: Arc<Memory>) -> Arc<Budget> {
        Arc::new(Budget { bytes_max, memory })
    }

    /// How much one queue may have now.
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

    /// Counts an encoded event while anybody has it.
    pub(super) fn count(self: &Arc<Budget>, bytes: Vec<u8>) -> Bytes {
        self.take(bytes.len() + OWNER_BYTES);
        Bytes::from_owner(Counted {
            bytes,
            budget: self.clone(),
        })
    }
}

/// The bytes of an event.
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
        // Beyond the bound there is nothing to share.
        let all = budget.count(vec![7; 9000]);
        assert_eq!(budget.share(), 0);
        drop(all);
        // What is left for all clients is a bound, too.
        let account = memory.account();
        let _others = crate::memory::Charge::of(&account, 1 << 18).unwrap();
        assert_eq!(budget.share(), 1000);
        let small = Memory::new(4000, 4000);
        assert_eq!(Budget::new(8000, small).share(), 500);
    }
}
