//! Clocks: time is an input, so that tests and simulations control it.

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time.
///
/// ```
/// # use bowline_storage::Clock;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::time::Duration;
///
/// /// A clock that a test sets, for `DbBuilder::clock`.
/// #[derive(Debug, Default)]
/// struct TestClock {
///     ms: AtomicU64,
/// }
///
/// impl Clock for TestClock {
///     fn monotonic(&self) -> Duration {
///         Duration::from_millis(self.ms.load(Ordering::SeqCst))
///     }
///
///     fn wall_ms(&self) -> u64 {
///         self.ms.load(Ordering::SeqCst)
///     }
/// }
///
/// let clock = TestClock::default();
/// clock.ms.store(10_000, Ordering::SeqCst);
/// assert_eq!(clock.monotonic(), Duration::from_secs(10));
/// assert_eq!(clock.suspended(), Duration::ZERO);
/// ```
pub trait Clock: Send + Sync + Debug {
    /// Time since an arbitrary start; never goes back. Everything that expires uses this.
    fn monotonic(&self) -> Duration;

    /// Milliseconds since the Unix epoch by the wall clock; may jump. Only for people to read
    /// and for `History::Last`.
    fn wall_ms(&self) -> u64;

    /// For how long the machine has been suspended, since an arbitrary start; never goes back, and is at
    /// most a millisecond off. The system's monotonic clock stands still meanwhile: a caller
    /// that relies on a deadline has to check this, too.
    fn suspended(&self) -> Duration {
        Duration::ZERO
    }
}

/// The operating system's clocks.
///
/// ```
/// # use bowline_storage::{Clock, SystemClock};
/// let clock = SystemClock::new();
/// let start = clock.monotonic();
/// assert!(clock.monotonic() >= start);
/// ```
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    #[must_use]
    pub fn new() -> SystemClock {
        SystemClock {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn wall_ms(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| {
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            })
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn suspended(&self) -> Duration {
        use rustix::time::{ClockId, clock_gettime};
        /// The longest time that the three readings may take; a longer time counts as a suspension.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that is held up between two readings must not look like a machine that was suspended.
    #[test]
    fn a_machine_that_runs_is_not_suspended() {
        let clock = SystemClock::new();
        let before = clock.suspended();
        for _ in 0..100_000 {
            let more = clock.suspended().saturating_sub(before);
            assert!(more <= Duration::from_millis(2), "{more:?}");
        }
    }
}
