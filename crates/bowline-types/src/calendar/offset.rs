//! A time of day with an offset from UTC.

use std::cmp::Ordering;
use std::fmt;

use jiff::civil;
use jiff::tz::Offset;

use super::show::{show_offset, show_time};

/// A time of day at an offset from UTC. The order is that of the instants on one day.
///
/// ```
/// use bowline_types::OffsetTime;
/// use jiff::{civil, tz};
///
/// let time = OffsetTime { time: civil::time(12, 30, 0, 0), offset: tz::offset(2) };
/// assert_eq!(time.to_string(), "12:30+02:00");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OffsetTime {
    /// The local time.
    pub time: civil::Time,
    /// Its offset from UTC.
    pub offset: Offset,
}

impl OffsetTime {
    /// Nanoseconds since midnight of UTC; may be negative, or longer than a day.
    ///
    /// ```
    /// # use bowline_types::OffsetTime;
    /// # use jiff::{civil, tz};
    /// let time = OffsetTime { time: civil::time(1, 0, 0, 0), offset: tz::offset(2) };
    /// assert_eq!(time.utc_nanos(), -3_600_000_000_000);
    /// ```
    #[must_use]
    pub fn utc_nanos(&self) -> i64 {
        nanos_of(self.time) - i64::from(self.offset.seconds()) * 1_000_000_000
    }

    /// The same instant at another offset.
    ///
    /// ```
    /// # use bowline_types::OffsetTime;
    /// # use jiff::{civil, tz};
    /// let time = OffsetTime { time: civil::time(1, 0, 0, 0), offset: tz::offset(2) };
    /// assert_eq!(time.at_offset(tz::offset(0)).to_string(), "23:00Z");
    /// ```
    #[must_use]
    pub fn at_offset(&self, offset: Offset) -> OffsetTime {
        let nanos = self.utc_nanos() + i64::from(offset.seconds()) * 1_000_000_000;
        OffsetTime {
            time: time_of(nanos),
            offset,
        }
    }
}

/// Nanoseconds since midnight.
///
/// ```
/// assert_eq!(bowline_types::nanos_of(jiff::civil::time(0, 0, 1, 5)), 1_000_000_005);
/// ```
#[must_use]
pub fn nanos_of(time: civil::Time) -> i64 {
    let seconds =
        i64::from(time.hour()) * 3600 + i64::from(time.minute()) * 60 + i64::from(time.second());
    seconds * 1_000_000_000 + i64::from(time.subsec_nanosecond())
}

/// The time of day so many nanoseconds after midnight, around the clock.
///
/// ```
/// assert_eq!(bowline_types::time_of(-1_000_000_000), jiff::civil::time(23, 59, 59, 0));
/// ```
#[must_use]
pub fn time_of(nanos: i64) -> civil::Time {
    let nanos = nanos.rem_euclid(86_400_000_000_000);
    let seconds = nanos / 1_000_000_000;
    civil::time(
        (seconds / 3600) as i8,
        (seconds / 60 % 60) as i8,
        (seconds % 60) as i8,
        (nanos % 1_000_000_000) as i32,
    )
}

impl PartialOrd for OffsetTime {
    fn partial_cmp(&self, other: &OffsetTime) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OffsetTime {
    fn cmp(&self, other: &OffsetTime) -> Ordering {
        self.utc_nanos()
            .cmp(&other.utc_nanos())
            .then_with(|| self.offset.cmp(&other.offset))
    }
}

impl fmt::Display for OffsetTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", show_time(self.time), show_offset(self.offset))
    }
}
