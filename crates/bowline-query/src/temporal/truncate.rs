//! Truncation: the start of the unit that a value lies in, with parts replaced on request.

use jiff::civil;

use super::fields::{Held, Shape, build_over};
use super::parts::quarter_start;
use super::read::{calendar, read_zone};
use crate::error::{Error, Result};
use crate::value::{Properties, Value};

/// `date.truncate('month', value, {day: 2})`, for any type.
pub(crate) fn truncate(shape: Shape, unit: &str, value: &Value, map: &Properties) -> Result<Value> {
    let mut held = Held::of(value)
        .ok_or_else(|| Error::wrong_type(format!("{} cannot be truncated", value.type_name())))?;
    let midnight = civil::Time::midnight();
    if let Some(date) = held.date {
        if let Some(start) = date_start(unit, date)? {
            held.date = Some(start);
            held.time = Some(midnight);
        } else if unit == "day" {
            held.time = Some(midnight);
        } else {
            held.time = Some(time_start(unit, held.time.unwrap_or(midnight))?);
        }
    } else if unit == "day" {
        held.time = Some(midnight);
    } else {
        held.time = Some(time_start(unit, held.time.unwrap_or(midnight))?);
    }
    let mut map = map.clone();
    // What is finer than the unit is added to the start of the unit.
    if let Some(time) = held.time {
        held.time = Some(add_fraction(time, &mut map)?);
    }
    if let (Shape::Time, Value::DateTime(zoned)) = (shape, value) {
        held.zone = Some(jiff::tz::TimeZone::fixed(zoned.offset()));
    }
    // A zone in the parts names the zone of the result; it does not move the instant.
    if let Some(Value::Text(zone)) = map.remove("timezone") {
        held.zone = Some(read_zone(&zone)?);
    }
    build_over(shape, &map, held)
}

/// The first day of the unit, for units longer than a day.
fn date_start(unit: &str, date: civil::Date) -> Result<Option<civil::Date>> {
    let year = i64::from(date.year());
    let week = date.iso_week_date();
    Ok(Some(match unit {
        "millennium" => calendar(year.div_euclid(1000) * 1000, 1, 1)?,
        "century" => calendar(year.div_euclid(100) * 100, 1, 1)?,
        "decade" => calendar(year.div_euclid(10) * 10, 1, 1)?,
        "year" => calendar(year, 1, 1)?,
        "weekYear" => super::fields::date_of_week(i64::from(week.year()), 1, 1)?,
        "quarter" => quarter_start(date),
        "month" => calendar(year, i64::from(date.month()), 1)?,
        "week" => super::fields::date_of_week(i64::from(week.year()), i64::from(week.week()), 1)?,
        _ => return Ok(None),
    }))
}

/// Moves the parts of a second from the map into the time.
fn add_fraction(time: civil::Time, map: &mut Properties) -> Result<civil::Time> {
    let mut nanos = i64::from(time.subsec_nanosecond());
    for (key, unit) in [
        ("millisecond", 1_000_000),
        ("microsecond", 1_000),
        ("nanosecond", 1),
    ] {
        match map.remove(key) {
            None | Some(Value::Null) => {}
            Some(Value::Int(count)) => nanos = nanos.saturating_add(count.saturating_mul(unit)),
            Some(other) => {
                let message = format!("`{key}` is an integer, not {}", other.type_name());
                return Err(Error::wrong_type(message));
            }
        }
    }
    i32::try_from(nanos)
        .ok()
        .and_then(|nanos| civil::Time::new(time.hour(), time.minute(), time.second(), nanos).ok())
        .ok_or_else(|| Error::wrong_value("the parts of a second exceed a second"))
}

fn time_start(unit: &str, time: civil::Time) -> Result<civil::Time> {
    let nanos = time.subsec_nanosecond();
    let (minute, second, nanos) = match unit {
        "hour" => (0, 0, 0),
        "minute" => (time.minute(), 0, 0),
        "second" => (time.minute(), time.second(), 0),
        "millisecond" => (time.minute(), time.second(), nanos / 1_000_000 * 1_000_000),
        "microsecond" => (time.minute(), time.second(), nanos / 1_000 * 1_000),
        _ => {
            return Err(
                Error::wrong_value(format!("a value cannot be truncated to `{unit}`"))
                    .help("the units run from millennium over year, week and day to microsecond"),
            );
        }
    };
    Ok(civil::time(time.hour(), minute, second, nanos))
}
