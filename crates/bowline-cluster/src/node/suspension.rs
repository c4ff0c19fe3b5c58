//! Detection of a suspended machine.
//!
//! The clock of leader leases stands still while the machine is suspended; the other members' clocks do not,
//! and they may have elected another leader. So acknowledgements from before a suspension do not count after
//! it.
//!
//! Invariants: each lease check reads the machine's total suspended time; once that has grown, nothing counts
//! that was sent before the growth was noticed. The first thread to see the new total stores the time of
//! notice before the total, so that a thread which finds the total known also finds the time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline_storage::Clock;
use tokio::time::Instant;

/// A shorter suspension is within the clock margin; readings are a millisecond off.
const SHORTEST_NS: u64 = 5_000_000;

/// The known suspensions.
#[derive(Debug)]
pub(crate) struct Suspensions {
    started: Instant,
    /// The total suspended time when a suspension was last noticed.
    known_ns: AtomicU64,
    /// The time of that notice since the start; 0 is never.
    noticed_ns: AtomicU64,
}

impl Suspensions {
    pub(crate) fn new(clock: &dyn Clock) -> Suspensions {
        Suspensions {
            started: Instant::now(),
            known_ns: AtomicU64::new(nanos(clock.suspended())),
            noticed_ns: AtomicU64::new(0),
        }
    }

    /// Whether the machine has run without a suspension since `since`, as far as can be detected: not for
    /// times between the end of a suspension and its notice.
    pub(crate) fn has_run_since(&self, since: Instant, clock: &dyn Clock) -> bool {
        let suspended = nanos(clock.suspended());
        if suspended > self.known_ns.load(Ordering::Acquire) + SHORTEST_NS {
            let now = nanos(self.started.elapsed());
            self.noticed_ns.fetch_max(now, Ordering::AcqRel);
            self.known_ns.fetch_max(suspended, Ordering::AcqRel);
        }
        let noticed = self.noticed_ns.load(Ordering::Acquire);
        noticed == 0 || nanos(since.saturating_duration_since(self.started)) > noticed
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use bowline_testing::ManualClock;

    use super::*;

    #[test]
    fn what_was_sent_before_a_suspension_is_not_believed_after_it() {
        let clock = ManualClock::new();
        // A suspension from before the member's start.
        clock.suspend(Duration::from_secs(100));
        let suspensions = Suspensions::new(&clock);
        let before = Instant::now();
        assert!(suspensions.has_run_since(before, &clock));
        // The clocks are read a little apart.
        clock.suspend(Duration::from_millis(1));
        assert!(suspensions.has_run_since(before, &clock));
        clock.suspend(Duration::from_secs(3));
        assert!(!suspensions.has_run_since(before, &clock));
        assert!(!suspensions.has_run_since(before, &clock), "for ever");
        std::thread::sleep(Duration::from_millis(1));
        let after = Instant::now();
        assert!(suspensions.has_run_since(after, &clock));
        // Short ones add up.
        for _ in 0..10 {
            clock.suspend(Duration::from_millis(1));
        }
        assert!(!suspensions.has_run_since(after, &clock));
    }
}
