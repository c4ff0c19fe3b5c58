//! Arithmetic of temporal values.

use crate::calendar::Calculate as _;
use jiff::SignedDuration;
use jiff::civil;

use super::fields::resolve;
use super::read::calendar;
use crate::calendar::{NANOS, SECONDS_PER_DAY, out_of_range};
use crate::error::{Error, Result};
use crate::syntax::ast::Binary;
use crate::value::Value;
use bowline_types::Duration;
use bowline_types::{OffsetTime, nanos_of, time_of};

/// `a operator b`, or `None` if the operator does not take these types.
pub(crate) fn calculate(operator: Binary, a: &Value, b: &Value) -> Result<Option<Value>> {
    Ok(Some(match (operator, a, b) {
        (Binary::Add, Value::Duration(a), Value::Duration(b)) => Value::Duration(a.plus(b)?),
        (Binary::Subtract, Value::Duration(a), Value::Duration(b)) => {
            Value::Duration(a.plus(&b.negated()?)?)
        }
        (Binary::Add, value, Value::Duration(duration))
        | (Binary::Add, Value::Duration(duration), value) => {
            return shift(value, duration);
        }
        (Binary::Subtract, value, Value::Duration(duration)) => {
            return shift(value, &duration.negated()?);
        }
        (Binary::Multiply, Value::Duration(duration), number)
        | (Binary::Multiply, number, Value::Duration(duration)) => Value::Duration(match number {
            Value::Int(factor) => duration.times(*factor)?,
            Value::Float(factor) => duration.scaled(*factor)?,
            _ => return Ok(None),
        }),
        (Binary::Divide, Value::Duration(duration), number) => {
            let is_zero = match number {
                Value::Int(divisor) => *divisor == 0,
                Value::Float(divisor) => *divisor == 0.0,
                _ => return Ok(None),
            };
            if is_zero {
                return Err(Error::runtime(
                    crate::error::Class::ArithmeticError,
                    crate::error::Detail::DivisionByZero,
                    "a duration cannot be divided by zero",
                ));
            }
            Value::Duration(match number {
                Value::Int(divisor) => duration.shared(*divisor)?,
                Value::Float(divisor) => duration.divided(*divisor)?,
                _ => return Ok(None),
            })
        }
        _ => return Ok(None),
    }))
}

pub(crate) fn negate(duration: &Duration) -> Result<Duration> {
    duration.negated()
}

/// A value, moved by a duration: first months, then days, then seconds.
fn shift(value: &Value, duration: &Duration) -> Result<Option<Value>> {
    Ok(Some(match value {
        Value::Date(date) => {
            let days = duration
                .days
                .checked_add(duration.seconds / SECONDS_PER_DAY)
                .ok_or_else(out_of_range)?;
            Value::Date(add_days(add_months(*date, duration.months)?, days)?)
        }
        Value::LocalTime(time) => Value::LocalTime(add_time(*time, duration)),
        Value::Time(time) => Value::Time(OffsetTime {
            time: add_time(time.time, duration),
            offset: time.offset,
        }),
        Value::LocalDateTime(datetime) => {
            let date = add_days(add_months(datetime.date(), duration.months)?, duration.days)?;
            let moved = date
                .to_datetime(datetime.time())
                .checked_add(signed(duration))
                .map_err(|_| out_of_range())?;
            Value::LocalDateTime(moved)
        }
        Value::DateTime(zoned) => {
            let date = add_days(add_months(zoned.date(), duration.months)?, duration.days)?;
            let (local, zone) = (date.to_datetime(zoned.time()), zoned.time_zone().clone());
            let moved = resolve(local, zone, Some(zoned.offset()))?
                .checked_add(signed(duration))
                .map_err(|_| out_of_range())?;
            Value::datetime(moved)
        }
        _ => return Ok(None),
    }))
}

fn signed(duration: &Duration) -> SignedDuration {
    SignedDuration::new(duration.seconds, duration.nanos as i32)
}

fn add_time(time: civil::Time, duration: &Duration) -> civil::Time {
    let day = i128::from(SECONDS_PER_DAY) * NANOS;
    let moved = (i128::from(nanos_of(time)) + duration.total_nanos()).rem_euclid(day);
    time_of(moved as i64)
}

/// The same day of a later or earlier month, or the last of that month.
pub(super) fn add_months(date: civil::Date, months: i64) -> Result<civil::Date> {
    let count = i64::from(date.year()) * 12 + i64::from(date.month()) - 1;
    let count = count.checked_add(months).ok_or_else(out_of_range)?;
    let first = calendar(count.div_euclid(12), count.rem_euclid(12) + 1, 1)?;
    let day = date.day().min(first.days_in_month());
    calendar(
        i64::from(first.year()),
        i64::from(first.month()),
        i64::from(day),
    )
}

fn add_days(date: civil::Date, days: i64) -> Result<civil::Date> {
    let span = jiff::Span::new()
        .try_days(days)
        .map_err(|_| out_of_range())?;
    date.checked_add(span).map_err(|_| out_of_range())
}
