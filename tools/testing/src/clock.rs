//! A manual clock for tests.

use std::sync::Arc;
use std::time::Duration;

use bowline_storage::Clock;
use parking_lot::Mutex;

/// A clock that only the test advances. Clones are the same clock.
///
/// ```
/// use bowline_storage::Clock;
/// use bowline_testing::ManualClock;
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let shared = clock.clone();
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(shared.monotonic(), Duration::from_secs(5));
/// clock.jump_wall_to(1_000); // an operator set the wall clock back
/// assert_eq!((shared.wall_ms(), shared.monotonic().as_secs()), (1_000, 5));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    now: Arc<Mutex<Now>>,
}

#[derive(Debug)]
struct Now {
    monotonic: Duration,
    /// Kept as a duration: milliseconds would lose the remainder of each advance.
    wall: Duration,
    suspended: Duration,
}

impl ManualClock {
    /// The initial wall time: 2024-01-01 00:00 UTC, in milliseconds.
    pub const START_WALL_MS: u64 = 1_704_067_200_000;

    /// A clock at monotonic time 0 and wall time [`ManualClock::START_WALL_MS`].
    #[must_use]
    pub fn new() -> ManualClock {
        let wall = Duration::from_millis(ManualClock::START_WALL_MS);
        ManualClock {
            now: Arc::new(Mutex::new(Now {
                monotonic: Duration::ZERO,
                wall,
                suspended: Duration::ZERO,
            })),
        }
    }

    /// Advances both clocks.
    pub fn advance(&self, by: Duration) {
        let mut now = self.now.lock();
        now.monotonic += by;
        now.wall += by;
    }

    /// Simulates a suspension of the machine: monotonic time stands still.
    pub fn suspend(&self, by: Duration) {
        let mut now = self.now.lock();
        now.suspended += by;
        now.wall += by;
    }

    /// Sets the wall clock, forwards or backwards; monotonic time stays.
    pub fn jump_wall_to(&self, wall_ms: u64) {
        self.now.lock().wall = Duration::from_millis(wall_ms);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        ManualClock::new()
    }
}

impl Clock for ManualClock {
    fn monotonic(&self) -> Duration {
        self.now.lock().monotonic
    }

    fn wall_ms(&self) -> u64 {
        u64::try_from(self.now.lock().wall.as_millis()).unwrap_or(u64::MAX)
    }

    fn suspended(&self) -> Duration {
        self.now.lock().suspended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stands_still_until_it_is_advanced() {
        let clock = ManualClock::new();
        assert_eq!(clock.monotonic(), clock.monotonic());
        for _ in 0..1000 {
            clock.advance(Duration::from_micros(1500));
        }
        assert_eq!(clock.monotonic(), Duration::from_millis(1500));
        assert_eq!(clock.wall_ms(), ManualClock::START_WALL_MS + 1500);
    }

    #[test]
    fn a_jump_of_the_wall_clock_leaves_monotonic_time() {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1));
        clock.jump_wall_to(7);
        clock.advance(Duration::from_millis(1));
        assert_eq!(
            (clock.monotonic(), clock.wall_ms()),
            (Duration::from_millis(1001), 8)
        );
    }

    #[test]
    fn a_suspension_is_seen_by_the_wall_clock_only() {
        let clock = ManualClock::new();
        clock.suspend(Duration::from_secs(7));
        assert_eq!(
            (clock.monotonic(), clock.suspended()),
            (Duration::ZERO, Duration::from_secs(7))
        );
        assert_eq!(clock.wall_ms(), ManualClock::START_WALL_MS + 7000);
    }
}
