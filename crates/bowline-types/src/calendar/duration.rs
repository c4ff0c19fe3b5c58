//! Durations: months, days, seconds and nanoseconds, each counted by itself, because a month has no fixed number of
//! days and a day no fixed number of seconds.

use std::fmt;

const NANOS: i128 = 1_000_000_000;

/// A duration. The nanoseconds lie between 0 and a second; all other parts may be negative.
///
/// ```
/// use bowline_types::Duration;
///
/// let duration = Duration { months: 14, days: 3, seconds: 3_661, nanos: 500_000_000 };
/// assert_eq!(duration.to_string(), "P1Y2M3DT1H1M1.5S");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Duration {
    /// Months; years are twelve of them.
    pub months: i64,
    /// Days; weeks are seven of them.
    pub days: i64,
    /// Seconds, rounded down.
    pub seconds: i64,
    /// The rest of the last second.
    pub nanos: u32,
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("P")?;
        let mut empty = true;
        let mut part = |f: &mut fmt::Formatter<'_>, value: i64, unit: &str| {
            if value == 0 {
                return Ok(());
            }
            empty = false;
            write!(f, "{value}{unit}")
        };
        part(f, self.months / 12, "Y")?;
        part(f, self.months % 12, "M")?;
        part(f, self.days, "D")?;
        let nanos = i128::from(self.seconds) * NANOS + i128::from(self.nanos);
        if nanos == 0 {
            return if empty { f.write_str("T0S") } else { Ok(()) };
        }
        f.write_str("T")?;
        part(f, (nanos / (3600 * NANOS)) as i64, "H")?;
        part(f, (nanos / (60 * NANOS) % 60) as i64, "M")?;
        let seconds = nanos % (60 * NANOS);
        if seconds == 0 {
            return Ok(());
        }
        let sign = if seconds < 0 { "-" } else { "" };
        let (whole, fraction) = (seconds.abs() / NANOS, seconds.abs() % NANOS);
        write!(f, "{sign}{whole}")?;
        if fraction != 0 {
            write!(f, ".{}", format!("{fraction:09}").trim_end_matches('0'))?;
        }
        f.write_str("S")
    }
}
