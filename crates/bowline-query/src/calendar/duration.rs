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

/// A number of months or days: a whole number, which a float might not hold, and a fraction beside it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Amount {
    whole: i128,
    fraction: f64,
}

impl Amount {
    /// So many. Fails if the fraction is no number.
    pub fn new(whole: i128, fraction: f64) -> Result<Amount> {
        if !fraction.is_finite() {
            return Err(out_of_range());
        }
        let sum = whole.saturating_add(fraction.trunc() as i128);
        let (mut whole, mut fraction) = (sum, fraction.fract());
        // Both have the same sign: half a month is not a month without a half.
        if whole > 0 && fraction < 0.0 {
            whole -= 1;
            fraction += 1.0;
        } else if whole < 0 && fraction > 0.0 {
            whole += 1;
            fraction -= 1.0;
        }
        Ok(Amount { whole, fraction })
    }

    pub fn of_float(value: f64) -> Result<Amount> {
        Amount::new(0, value)
    }

    pub fn plus(self, other: Amount) -> Result<Amount> {
        let whole = self.whole.saturating_add(other.whole);
        Amount::new(whole, self.fraction + other.fraction)
    }

    pub fn times(self, factor: i128) -> Result<Amount> {
        let whole = self.whole.saturating_mul(factor);
        Amount::new(whole, self.fraction * factor as f64)
    }

    /// So many units, to the nearest.
    pub fn units(self, unit: i128) -> i128 {
        let fraction = (self.fraction * unit as f64).round() as i128;
        self.whole.saturating_mul(unit).saturating_add(fraction)
    }

    fn quotient(dividend: i64, divisor: i64) -> Result<Amount> {
        let (dividend, divisor) = (i128::from(dividend), i128::from(divisor));
        let rest = (dividend % divisor) as f64 / divisor as f64;
        Amount::new(dividend / divisor, rest)
    }
}

/// The whole number that a float is, if it is one.
fn whole(value: f64) -> Option<i64> {
    // Any whole number of this size is exact in both.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (value.fract() == 0.0 && value.abs() <= EXACT).then_some(value as i64)
}

/// Durations made of parts, added, scaled and compared.
pub(crate) trait Calculate: Sized {
    /// A duration of exact parts.
    fn exact(months: i128, days: i128, nanos: i128) -> Result<Duration>;
    /// A duration of fractional parts. The fraction of a month becomes days and seconds, that of a day seconds.
    fn fractional(months: Amount, days: Amount, nanos: i128) -> Result<Duration>;
    /// All seconds and nanoseconds, as nanoseconds.
    fn total_nanos(&self) -> i128;
    fn plus(&self, other: &Duration) -> Result<Duration>;
    fn negated(&self) -> Result<Duration>;
    /// The duration, times a number.
    fn scaled(&self, factor: f64) -> Result<Duration>;
    /// The duration, times a whole number: exact.
    fn times(&self, factor: i64) -> Result<Duration>;
    /// The duration, divided by a number that is not zero.
    fn divided(&self, divisor: f64) -> Result<Duration>;
    /// The duration, divided by a whole number that is not zero. What is left of the months and days is all that is rounded.
    fn shared(&self, divisor: i64) -> Result<Duration>;
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

    fn fractional(months: Amount, days: Amount, nanos: i128) -> Result<Duration> {
        let month_nanos = (months.fraction * MONTH_SECONDS * 1e9).round() as i128;
        let day_nanos = NANOS * i128::from(SECONDS_PER_DAY);
        let more_days = month_nanos / day_nanos;
        let rest = month_nanos % day_nanos;
        let fraction = (days.fraction * SECONDS_PER_DAY as f64 * 1e9).round() as i128;
        Duration::exact(
            months.whole,
            days.whole.saturating_add(more_days),
            nanos.saturating_add(rest + fraction),
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
        if let Some(factor) = whole(factor) {
            return self.times(factor);
        }
        let nanos = self.total_nanos() as f64 * factor;
        Duration::fractional(
            Amount::of_float(self.months as f64 * factor)?,
            Amount::of_float(self.days as f64 * factor)?,
            nanos.trunc() as i128,
        )
    }

    fn times(&self, factor: i64) -> Result<Duration> {
        let factor = i128::from(factor);
        Duration::exact(
            i128::from(self.months) * factor,
            i128::from(self.days) * factor,
            self.total_nanos().saturating_mul(factor),
        )
    }

    fn divided(&self, divisor: f64) -> Result<Duration> {
        if let Some(divisor) = whole(divisor) {
            return self.shared(divisor);
        }
        let nanos = (self.total_nanos() as f64 / divisor).trunc() as i128;
        Duration::fractional(
            Amount::of_float(self.months as f64 / divisor)?,
            Amount::of_float(self.days as f64 / divisor)?,
            nanos,
        )
    }

    fn shared(&self, divisor: i64) -> Result<Duration> {
        Duration::fractional(
            Amount::quotient(self.months, divisor)?,
            Amount::quotient(self.days, divisor)?,
            self.total_nanos() / i128::from(divisor),
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
