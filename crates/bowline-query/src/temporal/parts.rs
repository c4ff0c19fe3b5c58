//! Parts of temporal values, as in `date.week`.

use crate::calendar::Calculate as _;
use jiff::civil;
use jiff::tz::Offset;

use crate::calendar::NANOS;
use crate::calendar::zone_name;
use crate::value::Value;
use bowline_types::Duration;
use bowline_types::show_offset;

/// A part of a temporal value. `None` if it has no such part.
pub(crate) fn component(value: &Value, key: &str) -> Option<Value> {
    match value {
        Value::Date(date) => of_date(*date, key),
        Value::LocalTime(time) => of_time(*time, key),
        Value::Time(time) => of_time(time.time, key).or_else(|| of_offset(time.offset, None, key)),
        Value::LocalDateTime(datetime) => {
            of_date(datetime.date(), key).or_else(|| of_time(datetime.time(), key))
        }
        Value::DateTime(zoned) => of_date(zoned.date(), key)
            .or_else(|| of_time(zoned.time(), key))
            .or_else(|| of_offset(zoned.offset(), zone_name(zoned), key))
            .or_else(|| match key {
                "epochSeconds" => Some(Value::Int(
                    zoned.timestamp().as_nanosecond().div_euclid(NANOS) as i64,
                )),
                "epochMillis" => Some(Value::Int(
                    zoned.timestamp().as_nanosecond().div_euclid(1_000_000) as i64,
                )),
                _ => None,
            }),
        Value::Duration(duration) => of_duration(duration, key),
        _ => None,
    }
}

/// The first day of the quarter of a date.
pub(super) fn quarter_start(date: civil::Date) -> civil::Date {
    civil::date(date.year(), (date.month() - 1) / 3 * 3 + 1, 1)
}

pub(super) fn day_of_quarter(date: civil::Date) -> i64 {
    i64::from(date.day_of_year()) - i64::from(quarter_start(date).day_of_year()) + 1
}

fn of_date(date: civil::Date, key: &str) -> Option<Value> {
    let week = date.iso_week_date();
    Some(Value::Int(match key {
        "year" => i64::from(date.year()),
        "quarter" => i64::from((date.month() - 1) / 3 + 1),
        "month" => i64::from(date.month()),
        "week" => i64::from(week.week()),
        "weekYear" => i64::from(week.year()),
        "day" => i64::from(date.day()),
        "dayOfQuarter" => day_of_quarter(date),
        "ordinalDay" | "dayOfYear" => i64::from(date.day_of_year()),
        "weekDay" | "dayOfWeek" => i64::from(week.weekday().to_monday_one_offset()),
        _ => return None,
    }))
}

fn of_time(time: civil::Time, key: &str) -> Option<Value> {
    let nanos = i64::from(time.subsec_nanosecond());
    Some(Value::Int(match key {
        "hour" => i64::from(time.hour()),
        "minute" => i64::from(time.minute()),
        "second" => i64::from(time.second()),
        "millisecond" => nanos / 1_000_000,
        "microsecond" => nanos / 1_000,
        "nanosecond" => nanos,
        _ => return None,
    }))
}

fn of_offset(offset: Offset, zone: Option<&str>, key: &str) -> Option<Value> {
    Some(match key {
        "timezone" => zone.map_or_else(|| Value::from(show_offset(offset)), Value::from),
        "offset" => Value::from(show_offset(offset)),
        "offsetMinutes" => Value::Int(i64::from(offset.seconds()) / 60),
        "offsetSeconds" => Value::Int(i64::from(offset.seconds())),
        _ => return None,
    })
}

fn of_duration(duration: &Duration, key: &str) -> Option<Value> {
    let nanos = duration.total_nanos();
    let (months, days, seconds) = (duration.months, duration.days, duration.seconds);
    let rest = i64::from(duration.nanos);
    Some(Value::Int(match key {
        "years" => months / 12,
        "quarters" => months / 3,
        "months" => months,
        "weeks" => days / 7,
        "days" => days,
        "hours" => seconds / 3600,
        "minutes" => seconds / 60,
        "seconds" => seconds,
        "milliseconds" => i64::try_from(nanos / 1_000_000).ok()?,
        "microseconds" => i64::try_from(nanos / 1_000).ok()?,
        "nanoseconds" => i64::try_from(nanos).ok()?,
        "quartersOfYear" => months / 3 % 4,
        "monthsOfYear" => months % 12,
        "monthsOfQuarter" => months % 3,
        "daysOfWeek" => days % 7,
        "minutesOfHour" => seconds / 60 % 60,
        "secondsOfMinute" => seconds % 60,
        "millisecondsOfSecond" => rest / 1_000_000,
        "microsecondsOfSecond" => rest / 1_000,
        "nanosecondsOfSecond" => rest,
        _ => return None,
    }))
}
