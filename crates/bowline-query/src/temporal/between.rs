//! The duration between two temporal values.

use std::cmp::Ordering;

use crate::calendar::Calculate as _;
use jiff::civil;
use jiff::tz::TimeZone;

use super::calculate::add_months;
use super::fields::{Held, resolve};
use crate::calendar::{NANOS, out_of_range};
use crate::error::{Error, Result};
use crate::value::Value;
use bowline_types::Duration;
use bowline_types::nanos_of;

/// What the duration may consist of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Span {
    All,
    Months,
    Days,
    Seconds,
}

/// The duration from one value to another. If one has no date, only times count; if one has no zone, it has the
/// other's.
pub(crate) fn between(span: Span, from: &Value, to: &Value) -> Result<Value> {
    let (mut a, mut b) = (held(from)?, held(to)?);
    // A local time is one of the day of an instant, whose zone may have changed its offset on that day.
    for (time, other) in [(&mut a, &b.clone()), (&mut b, &held(from)?)] {
        if time.date.is_none()
            && time.zone.is_none()
            && other.zone.is_some()
            && other.date.is_some()
            && matches!(span, Span::Seconds | Span::All)
        {
            time.date = other.date;
        }
    }
    if a.date.is_none() || b.date.is_none() {
        return times(span, &a, &b);
    }
    if let (Some(zone), Some(_)) = (a.zone.clone(), b.zone.clone()) {
        b = Held::at(&instant(&b)?.with_time_zone(zone));
    } else if let Some(zone) = a.zone.clone().or_else(|| b.zone.clone()) {
        a.zone = Some(zone.clone());
        b.zone = Some(zone);
    }
    let (start, end) = (local(&a)?, local(&b)?);
    let exact = match a.zone {
        Some(_) => {
            instant(&b)?.timestamp().as_nanosecond() - instant(&a)?.timestamp().as_nanosecond()
        }
        None => end.duration_since(start).as_nanos(),
    };
    let duration = match span {
        Span::Seconds => Duration::exact(0, 0, exact)?,
        Span::Days => Duration::exact(0, i128::from(whole_days(start, end)), 0)?,
        Span::Months => Duration::exact(i128::from(whole_months(start, end)?), 0, 0)?,
        Span::All => {
            let months = whole_months(start, end)?;
            let moved = add_months(start.date(), months)?.to_datetime(start.time());
            let days = whole_days(moved, end);
            let moved = moved
                .checked_add(jiff::Span::new().days(days))
                .map_err(|_| out_of_range())?;
            let rest = match &a.zone {
                Some(zone) => {
                    let at = resolve(moved, zone.clone(), a.offset)?;
                    instant(&b)?.timestamp().as_nanosecond() - at.timestamp().as_nanosecond()
                }
                None => end.duration_since(moved).as_nanos(),
            };
            Duration::exact(i128::from(months), i128::from(days), rest)?
        }
    };
    Ok(Value::Duration(duration))
}

fn held(value: &Value) -> Result<Held> {
    Held::of(value).ok_or_else(|| {
        Error::wrong_type(format!(
            "a temporal value is needed, not {}",
            value.type_name()
        ))
    })
}

fn local(held: &Held) -> Result<civil::DateTime> {
    held.datetime().ok_or_else(out_of_range)
}

fn instant(held: &Held) -> Result<jiff::ZonedDateTime> {
    let zone = held.zone.clone().unwrap_or(TimeZone::UTC);
    resolve(local(held)?, zone, held.offset)
}

/// Between two times of day, one of which may come from a value with a date.
fn times(span: Span, a: &Held, b: &Held) -> Result<Value> {
    if matches!(span, Span::Months | Span::Days) {
        return Ok(Value::Duration(Duration::default()));
    }
    let midnight = civil::Time::midnight();
    let nanos = |held: &Held| -> Result<i128> {
        let time = held.time.unwrap_or(midnight);
        Ok(i128::from(nanos_of(time)))
    };
    let offset = |held: &Held| -> Result<Option<i128>> {
        let Some(zone) = &held.zone else {
            return Ok(None);
        };
        Ok(Some(i128::from(held.offset_in(zone)?.seconds()) * NANOS))
    };
    let mut difference = nanos(b)? - nanos(a)?;
    if let (Some(from), Some(to)) = (offset(a)?, offset(b)?) {
        difference += from - to;
    }
    Ok(Value::Duration(Duration::exact(0, 0, difference)?))
}

/// How many whole days lie between, towards zero.
fn whole_days(from: civil::DateTime, to: civil::DateTime) -> i64 {
    let nanos = to.duration_since(from).as_nanos();
    (nanos / (86_400 * NANOS)) as i64
}

/// How many whole months lie between, towards zero: from the 31st to the 28th of the next month is none, though a date that
/// is moved by a month may come to lie there.
fn whole_months(from: civil::DateTime, to: civil::DateTime) -> Result<i64> {
    // The last day counts only if its time is reached.
    let end = match (to.date().cmp(&from.date()), to.time().cmp(&from.time())) {
        (Ordering::Greater, Ordering::Less) => to.date().yesterday(),
        (Ordering::Less, Ordering::Greater) => to.date().tomorrow(),
        _ => Ok(to.date()),
    };
    let end = end.map_err(|_| out_of_range())?;
    // As if each month had 32 days.
    let count = |d: civil::Date| {
        (i64::from(d.year()) * 12 + i64::from(d.month())) * 32 + i64::from(d.day())
    };
    Ok((count(end) - count(from.date())) / 32)
}
