//! Detection of a suspended machine.
//!
//! The clock by which leases of leadership are timed stands still while the machine is suspended, the clocks
//! of the others do not: they may have elected another leader long since. So what was acknowledged before a
//! suspension is not believed after it.
//!
//! Invariants: for how long the machine has been suspended is asked whenever a lease is; once that has grown,
//! nothing is believed that was sent before it was noticed. Who is the first to see the new sum writes down
//! the time before the sum, so that who finds the sum known finds the time, too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bowline_storage::Clock;

/// A shorter suspension is within what clocks may differ by; readings are a millisecond off.
const SHORTEST_NS: u64 = 5_000_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Suspensions {
    started: Instant,
    /// For how long the machine had been suspended when this was noticed last.
    known_ns: AtomicU64,
    /// When that was, since the start; 0 is never.
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

    /// Whether the machine has run on without a break since `since`, as far as can be told: of what lies
    /// between the end of a suspension and its being noticed it cannot.
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
        // A machine that was suspended before the member was started.
        clock.suspend(Duration::from_secs(100));
        let suspensions = Suspensions::new(&clock);
        let before = Instant::now();
        assert!(suspensions.has_run_since(before, &clock));
        // Clocks are read a little apart.
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
