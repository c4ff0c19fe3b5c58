//! [`Moment`]: when something was done, for times that go on while this machine is suspended.
//!
//! The clock of timers stands still meanwhile. Those of the servers do not: leases end there.

use std::time::Duration;

use tokio::time::Instant;

/// A shorter suspension is none: readings are a millisecond off.
const SHORTEST: Duration = Duration::from_millis(5);

/// A moment by the clock of timers, and for how long the machine had been suspended by then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    at: Instant,
    suspended: Duration,
    /// Reads for how long the machine has been suspended: [`suspended`], or that of a test.
    read_suspended: fn() -> Duration,
}

impl Moment {
    /// The present. How long the machine has been suspended is read by this function, then and later.
    pub(super) fn now(read_suspended: fn() -> Duration) -> Moment {
        Moment {
            at: Instant::now(),
            suspended: read_suspended(),
            read_suspended,
        }
    }

    /// The moment so much later by the clock of timers.
    pub(super) fn timer_after(&self, time: Duration) -> Instant {
        self.at + time
    }

    /// The time since then, suspensions included.
    pub(super) fn elapsed(&self) -> Duration {
        let suspended = (self.read_suspended)().saturating_sub(self.suspended);
        let suspended = Some(suspended).filter(|time| *time >= SHORTEST);
        self.at.elapsed() + suspended.unwrap_or_default()
    }
}

/// For how long the machine has been suspended, since an arbitrary start; at most a millisecond off.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn suspended() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    /// The longest time that the three readings may take; a longer time would count as a suspension.
    const APART_MAX: Duration = Duration::from_millis(1);
    let read = |clock| {
        let time = clock_gettime(clock);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
    };
    loop {
        let before = read(ClockId::Monotonic);
        // Counts on while the machine is suspended.
        let boot = read(ClockId::Boottime);
        let after = read(ClockId::Monotonic);
        // A thread that was held up in between reads them once more.
        if after.saturating_sub(before) < APART_MAX {
            return boot.saturating_sub(before);
        }
    }
}

/// It is not known here.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn suspended() -> Duration {
    Duration::ZERO
}
