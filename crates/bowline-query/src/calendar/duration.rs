//! Calculations with durations.

use std::cmp::Ordering;

use bowline_types::Duration;

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

/// The mean length of a month of the Gregorian calendar, in seconds.
const MONTH_SECONDS: f64 = 2_629_746.0;

/// Durations made of parts, added, scaled and compared.
pub(crate) trait Calculate: Sized {
    /// A duration of exact parts.
    fn exact(months: i128, days: i128, nanos: i128) -> Result<Duration>;
    /// A duration of fractional parts. The fraction of a month becomes days and seconds, that of a day seconds.
    fn fractional(months: f64, days: f64, nanos: i128) -> Result<Duration>;
    /// All seconds and nanoseconds, as nanoseconds.
    fn total_nanos(&self) -> i128;
    fn plus(&self, other: &Duration) -> Result<Duration>;
    fn negated(&self) -> Result<Duration>;
    /// The duration, times a number.
    fn scaled(&self, factor: f64) -> Result<Duration>;
    /// The order of durations, by their mean lengths.
    fn order(&self, other: &Duration) -> Ordering;
}

impl Calculate for Duration {
    fn exact(months: i128, days: i128, nanos: i128) -> Result<Duration> {
        let part = |value: i128| i64::try_from(value).map_err(|_| out_of_range());
        Ok(Duration {
            months: part(months)?,
            days: part(days)?,
            seconds: part(nanos.div_euclid(NANOS))?,
            nanos: nanos.rem_euclid(NANOS) as u32,
        })
    }

    fn fractional(months: f64, days: f64, nanos: i128) -> Result<Duration> {
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

    fn total_nanos(&self) -> i128 {
        i128::from(self.seconds) * NANOS + i128::from(self.nanos)
    }

    fn plus(&self, other: &Duration) -> Result<Duration> {
        Duration::exact(
            i128::from(self.months) + i128::from(other.months),
            i128::from(self.days) + i128::from(other.days),
            self.total_nanos() + other.total_nanos(),
        )
    }

    fn negated(&self) -> Result<Duration> {
        Duration::exact(
            -i128::from(self.months),
            -i128::from(self.days),
            -self.total_nanos(),
        )
    }

    fn scaled(&self, factor: f64) -> Result<Duration> {
        let nanos = self.total_nanos() as f64 * factor;
        Duration::fractional(
            self.months as f64 * factor,
            self.days as f64 * factor,
            nanos.trunc() as i128,
        )
    }

    fn order(&self, other: &Duration) -> Ordering {
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
