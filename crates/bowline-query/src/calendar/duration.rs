//! Durations: months, days, seconds and nanoseconds, each counted by itself, because a month has no fixed number of
//! days and a day no fixed number of seconds.

use std::cmp::Ordering;
use std::fmt;

use crate::error::{Error, Result};

pub(crate) const NANOS: i128 = 1_000_000_000;
pub(crate) const SECONDS_PER_DAY: i64 = 86_400;

/// A result that the calendar cannot hold.
pub(crate) fn out_of_range() -> Error {
    Error::Unsupported {
        what: "a year outside of -9999 to 9999".into(),
        span: None,
        place: None,
    }
}

/// A duration. The nanoseconds lie between 0 and a second; all other parts may be negative.
///
/// ```
/// use bowline_query::Duration;
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

/// The mean length of a month of the Gregorian calendar, in seconds.
const MONTH_SECONDS: f64 = 2_629_746.0;

impl Duration {
    /// A duration of exact parts.
    pub(crate) fn exact(months: i128, days: i128, nanos: i128) -> Result<Duration> {
        let part = |value: i128| i64::try_from(value).map_err(|_| out_of_range());
        Ok(Duration {
            months: part(months)?,
            days: part(days)?,
            seconds: part(nanos.div_euclid(NANOS))?,
            nanos: nanos.rem_euclid(NANOS) as u32,
        })
    }

    /// A duration of fractional parts. The fraction of a month becomes days and seconds, that of a day seconds.
    pub(crate) fn fractional(months: f64, days: f64, nanos: i128) -> Result<Duration> {
        let month_nanos = (months.fract() * MONTH_SECONDS * 1e9).round() as i128;
        let day_nanos = NANOS * i128::from(SECONDS_PER_DAY);
        let more_days = month_nanos / day_nanos;
        let rest = month_nanos % day_nanos;
        let fraction = (days.fract() * SECONDS_PER_DAY as f64 * 1e9).round() as i128;
        Duration::exact(
            months.trunc() as i128,
            days.trunc() as i128 + more_days,
            rest + fraction + nanos,
        )
    }

    /// All seconds and nanoseconds, as nanoseconds.
    pub(crate) fn total_nanos(&self) -> i128 {
        i128::from(self.seconds) * NANOS + i128::from(self.nanos)
    }

    pub(crate) fn plus(&self, other: &Duration) -> Result<Duration> {
        Duration::exact(
            i128::from(self.months) + i128::from(other.months),
            i128::from(self.days) + i128::from(other.days),
            self.total_nanos() + other.total_nanos(),
        )
    }

    pub(crate) fn negated(&self) -> Result<Duration> {
        Duration::exact(
            -i128::from(self.months),
            -i128::from(self.days),
            -self.total_nanos(),
        )
    }

    /// The duration, times a number.
    pub(crate) fn scaled(&self, factor: f64) -> Result<Duration> {
        let nanos = self.total_nanos() as f64 * factor;
        Duration::fractional(
            self.months as f64 * factor,
            self.days as f64 * factor,
            nanos.trunc() as i128,
        )
    }

    /// The order of durations, by their mean lengths.
    pub(crate) fn order(&self, other: &Duration) -> Ordering {
        let length = |d: &Duration| {
            let seconds = i128::from(d.months) * MONTH_SECONDS as i128
                + i128::from(d.days) * i128::from(SECONDS_PER_DAY)
                + i128::from(d.seconds);
            (seconds, d.nanos)
        };
        length(self).cmp(&length(other)).then_with(|| {
            (self.months, self.days, self.seconds).cmp(&(other.months, other.days, other.seconds))
        })
    }
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
        let nanos = self.total_nanos();
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
