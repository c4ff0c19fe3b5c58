//! The state of the single writer.
//!
//! It lies under the commit lock. A commit group holds the lock from its beginning to its end, so groups
//! commit one after another.

use std::sync::Arc;
use std::time::Duration;

use crate::counters::Counters;
use crate::log::Log;
use crate::sync::thread;
use crate::{Index, Revision};

/// The log and the position of the single writer.
#[derive(Debug)]
pub(in crate::engine) struct CommitState {
    /// `None` without a log, and where the owner keeps it.
    pub log: Option<Log>,
    /// The revision of the last batch, published or not.
    pub last_revision: Revision,
    /// The log index of the last batch.
    pub last_index: Index,
    /// Why writing has stopped, if it has.
    pub failure: Option<Arc<str>>,
    /// Whether that is a group of which a part is in memory, and nothing is wrong with the disk. A state that
    /// replaces all of it ends this.
    pub is_half_done: bool,
    /// How long writers must still be slowed.
    throttle_debt_ns: u64,
}

impl CommitState {
    pub(in crate::engine) fn new(
        log: Option<Log>,
        last_revision: Revision,
        last_index: Index,
    ) -> CommitState {
        CommitState {
            log,
            last_revision,
            last_index,
            failure: None,
            is_half_done: false,
            throttle_debt_ns: 0,
        }
    }

    /// Why no other state can be installed: a disk that fails.
    pub(in crate::engine) fn cannot_be_replaced(&self) -> Option<Arc<str>> {
        match self.is_half_done {
            true => self.log.as_ref().and_then(Log::poisoned),
            false => self.poisoned(),
        }
    }

    /// Why writing has stopped, here or in the log.
    pub(in crate::engine) fn poisoned(&self) -> Option<Arc<str>> {
        let by_log = || self.log.as_ref().and_then(Log::poisoned);
        self.failure.clone().or_else(by_log)
    }

    /// Slows a writer in proportion to its bytes and to the pressure: not at all at pressure 0, 20 ns
    /// per byte (50 MB/s) half-way, and without bound toward 1. A debt below a millisecond is carried
    /// over to the next group, since a shorter sleep is not exact.
    pub(super) fn throttle(&mut self, bytes: u64, pressure: f64, counters: &Counters) {
        if pressure <= 0.0 {
            self.throttle_debt_ns = 0;
            return;
        }
        counters.rounds_slowed.add(1);
        let ns_per_byte = 20.0 * pressure / (1.0 - pressure).max(0.001);
        self.throttle_debt_ns += (bytes as f64 * ns_per_byte) as u64;
        if self.throttle_debt_ns >= 1_000_000 {
            let pause = Duration::from_nanos(self.throttle_debt_ns.min(100_000_000));
            self.throttle_debt_ns = 0;
            counters.throttle_ms.add(pause.as_millis() as u64);
            thread::sleep(pause);
        }
    }
}
