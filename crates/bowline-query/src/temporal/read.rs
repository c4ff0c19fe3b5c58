//! Temporal values, read from text in the forms of ISO 8601.

use crate::calendar::{Amount, Calculate as _};
use jiff::civil;
use jiff::tz::{Offset, TimeZone};

use super::fields::{date_of_week, ordinal_date, quarter_date};
use crate::error::{Error, Result};
use bowline_types::Duration;

fn unreadable(what: &str, text: &str) -> Error {
    Error::wrong_value(format!("'{text}' cannot be read as {what}"))
}

/// The digits at the start of a text, if there are as many.
fn digits(text: &str, count: usize) -> Option<(i64, &str)> {
    let head = text.get(..count)?;
    if head.is_empty() || !head.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some((head.parse().ok()?, &text[count..]))
}

pub(super) fn read_date(text: &str) -> Result<civil::Date> {
    date_parts(text).unwrap_or_else(|| Err(unreadable("a date", text)))
}

/// The outer answer is whether the text has the form of a date, the inner one whether there is such a date.
fn date_parts(text: &str) -> Option<Result<civil::Date>> {
    let (year, rest) = match text.strip_prefix(['+', '-']) {
        Some(unsigned) => {
            let length = unsigned
                .bytes()
                .take_while(u8::is_ascii_digit)
                .count()
                .min(9);
            // A sign may be followed by more digits than four; the next dash ends them.
            let length = if unsigned.as_bytes().get(length) == Some(&b'-') || length < 5 {
                length
            } else {
                4
            };
            let (year, rest) = digits(unsigned, length)?;
            (if text.starts_with('-') { -year } else { year }, rest)
        }
        None => digits(text, 4)?,
    };
    if !(-9999..=9999).contains(&year) {
        return Some(Err(crate::calendar::out_of_range()));
    }
    let (separated, rest) = match rest.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let dash = |rest: &'_ str| -> Option<String> {
        if separated {
            rest.strip_prefix('-').map(str::to_owned)
        } else {
            Some(rest.to_owned())
        }
    };
    if rest.is_empty() {
        return (!separated).then(|| calendar(year, 1, 1));
    }
    if let Some(rest) = rest.strip_prefix('W') {
        let (week, rest) = digits(rest, 2)?;
        if rest.is_empty() {
            return Some(date_of_week(year, week, 1));
        }
        let (day, rest) = digits(&dash(rest)?, 1).map(|(day, rest)| (day, rest.to_owned()))?;
        return rest.is_empty().then(|| date_of_week(year, week, day));
    }
    if let Some(rest) = rest.strip_prefix('Q') {
        let (quarter, rest) = digits(rest, 1)?;
        if rest.is_empty() {
            return Some(quarter_date(year, quarter, 1));
        }
        let (day, rest) = digits(&dash(rest)?, 2).map(|(day, rest)| (day, rest.to_owned()))?;
        return rest.is_empty().then(|| quarter_date(year, quarter, day));
    }
    match (rest.len(), separated) {
        (3, _) => digits(rest, 3).map(|(day, _)| ordinal_date(year, day)),
        (2, _) => digits(rest, 2).map(|(month, _)| calendar(year, month, 1)),
        (4, false) => {
            let (month, rest) = digits(rest, 2)?;
            digits(rest, 2).map(|(day, _)| calendar(year, month, day))
        }
        (5, true) => {
            let (month, rest) = digits(rest, 2)?;
            digits(rest.strip_prefix('-')?, 2).map(|(day, _)| calendar(year, month, day))
        }
        _ => None,
    }
}

pub(super) fn calendar(year: i64, month: i64, day: i64) -> Result<civil::Date> {
    let narrow = |value: i64| i8::try_from(value).unwrap_or(0);
    if !(-9999..=9999).contains(&year) {
        return Err(crate::calendar::out_of_range());
    }
    civil::Date::new(year as i16, narrow(month), narrow(day))
        .map_err(|_| Error::wrong_value(format!("there is no date {year}-{month:02}-{day:02}")))
}

pub(super) fn read_time(text: &str) -> Result<civil::Time> {
    time_parts(text).ok_or_else(|| unreadable("a time", text))
}

fn time_parts(text: &str) -> Option<civil::Time> {
    let (text, fraction) = match text.split_once(['.', ',']) {
        Some((text, fraction)) => (text, Some(fraction)),
        None => (text, None),
    };
    let (hour, mut rest) = digits(text, 2)?;
    let (mut minute, mut second) = (0, 0);
    let mut count = 0;
    while !rest.is_empty() {
        let (value, left) = digits(rest.strip_prefix(':').unwrap_or(rest), 2)?;
        match count {
            0 => minute = value,
            1 => second = value,
            _ => return None,
        }
        count += 1;
        rest = left;
    }
    let nanos = match fraction {
        None => 0,
        Some(fraction) if count == 2 && fraction.len() <= 9 => {
            let (value, _) = digits(fraction, fraction.len())?;
            value * 10i64.pow(9 - fraction.len() as u32)
        }
        Some(_) => return None,
    };
    civil::Time::new(hour as i8, minute as i8, second as i8, nanos as i32).ok()
}

/// Where the offset or the zone of a time begins.
fn zone_start(text: &str) -> usize {
    text.find(['Z', '+', '-', '[']).unwrap_or(text.len())
}

/// A time, with its offset if it has one.
pub(super) fn read_offset_time(text: &str) -> Result<(civil::Time, Option<Offset>)> {
    let (time, zone) = text.split_at(zone_start(text));
    let offset = if zone.is_empty() {
        None
    } else {
        Some(read_offset(zone)?)
    };
    Ok((read_time(time)?, offset))
}

pub(super) fn read_datetime(text: &str) -> Result<civil::DateTime> {
    let (date, time) = match text.split_once('T') {
        Some((date, time)) => (read_date(date)?, read_time(time)?),
        None => (read_date(text)?, civil::Time::midnight()),
    };
    Ok(date.to_datetime(time))
}

/// A date and time, with an offset and a zone if it has them.
pub(super) fn read_zoned(
    text: &str,
) -> Result<(civil::DateTime, Option<Offset>, Option<TimeZone>)> {
    let Some((date, time)) = text.split_once('T') else {
        return Ok((read_datetime(text)?, None, None));
    };
    let (time, zone) = time.split_at(zone_start(time));
    let (offset, name) = zone.split_once('[').unwrap_or((zone, ""));
    let offset = if offset.is_empty() {
        None
    } else {
        Some(read_offset(offset)?)
    };
    let zone = match name.strip_suffix(']') {
        Some(name) => Some(read_zone(name)?),
        None if name.is_empty() => None,
        None => return Err(unreadable("a datetime", text)),
    };
    Ok((read_date(date)?.to_datetime(read_time(time)?), offset, zone))
}

/// `Z`, `+01:00`, `+0100`, `+01`, or with seconds.
pub(super) fn read_offset(text: &str) -> Result<Offset> {
    offset_parts(text).ok_or_else(|| unreadable("an offset from UTC", text))
}

fn offset_parts(text: &str) -> Option<Offset> {
    if text == "Z" || text == "z" {
        return Some(Offset::UTC);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let (hours, mut rest) = digits(text.strip_prefix(['+', '-'])?, 2)?;
    let mut seconds = hours * 3600;
    for unit in [60, 1] {
        if rest.is_empty() {
            break;
        }
        let (value, left) = digits(rest.strip_prefix(':').unwrap_or(rest), 2)?;
        seconds += value * unit;
        rest = left;
    }
    if !rest.is_empty() {
        return None;
    }
    Offset::from_seconds(i32::try_from(seconds * sign).ok()?).ok()
}

/// A zone: an offset, or a name of the time zone database.
pub(super) fn read_zone(text: &str) -> Result<TimeZone> {
    if let Some(offset) = offset_parts(text) {
        return Ok(TimeZone::fixed(offset));
    }
    jiff::tz::db()
        .get(text)
        .map_err(|_| Error::wrong_value(format!("there is no time zone '{text}'")))
}

pub(super) fn read_duration(text: &str) -> Result<Duration> {
    duration_parts(text).unwrap_or_else(|| Err(unreadable("a duration", text)))
}

fn duration_parts(text: &str) -> Option<Result<Duration>> {
    let (negative, body) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let body = body.strip_prefix('P')?;
    if body.is_empty() {
        return None;
    }
    let result = match dated_duration(body) {
        Some(result) => result,
        None => unit_duration(body)?,
    };
    Some(if negative {
        result.and_then(|duration| duration.negated())
    } else {
        result
    })
}

/// `2012-02-02T14:37:21.545`: years, months and days as in a date.
fn dated_duration(body: &str) -> Option<Result<Duration>> {
    let (date, time) = body.split_once('T').unwrap_or((body, ""));
    let (year, rest) = digits(date, 4)?;
    let (month, rest) = digits(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = digits(rest.strip_prefix('-')?, 2)?;
    if !rest.is_empty() {
        return None;
    }
    let nanos = if time.is_empty() {
        0
    } else {
        bowline_types::nanos_of(time_parts(time)?)
    };
    Some(Duration::exact(
        i128::from(year * 12 + month),
        i128::from(day),
        i128::from(nanos),
    ))
}

/// `1Y2M3W4DT5H6M7.8S`.
fn unit_duration(body: &str) -> Option<Result<Duration>> {
    let (mut months, mut days, mut nanos) = (Amount::default(), Amount::default(), 0i128);
    let mut rest = body;
    let mut in_time = false;
    while !rest.is_empty() {
        if let Some(time) = rest.strip_prefix('T') {
            if in_time || time.is_empty() {
                return None;
            }
            in_time = true;
            rest = time;
            continue;
        }
        let length =
            rest.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | ',' | '-' | '+')))?;
        let number = rest[..length].replace(',', ".");
        let unit = rest[length..].chars().next()?;
        rest = &rest[length + unit.len_utf8()..];
        number.parse::<f64>().ok()?;
        match (in_time, unit) {
            (false, 'Y') => months = months.plus(decimal(&number, 12)?).ok()?,
            (false, 'M') => months = months.plus(decimal(&number, 1)?).ok()?,
            (false, 'W') => days = days.plus(decimal(&number, 7)?).ok()?,
            (false, 'D') => days = days.plus(decimal(&number, 1)?).ok()?,
            (true, 'H') => nanos = nanos.saturating_add(decimal_nanos(&number, 3600)?),
            (true, 'M') => nanos = nanos.saturating_add(decimal_nanos(&number, 60)?),
            (true, 'S') => nanos = nanos.saturating_add(decimal_nanos(&number, 1)?),
            _ => return None,
        }
    }
    Some(Duration::fractional(months, days, nanos))
}

/// A decimal number of units of so many months or days.
fn decimal(number: &str, unit: i128) -> Option<Amount> {
    let (sign, number) = match number.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: i128 = match whole {
        "" => 0,
        whole => whole.parse().ok()?,
    };
    let fraction: f64 = format!("0.{fraction}").parse().ok()?;
    let amount = Amount::new(sign * whole, sign as f64 * fraction);
    amount.and_then(|amount| amount.times(unit)).ok()
}

/// A decimal number of units of so many seconds, in nanoseconds, without rounding to a float.
fn decimal_nanos(number: &str, seconds: i128) -> Option<i128> {
    let (sign, number) = match number.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: i128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let fraction: String = fraction.chars().take(18).collect();
    let scale = 10i128.pow(fraction.len() as u32);
    let fraction: i128 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().ok()?
    };
    let unit = seconds * 1_000_000_000;
    let nanos = whole.checked_mul(unit)?;
    Some(sign * nanos.checked_add(fraction * unit / scale)?)
}
