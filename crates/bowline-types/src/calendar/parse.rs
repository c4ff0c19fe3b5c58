//! Types of time from their text forms.

use std::str::FromStr;

use jiff::civil;
use jiff::tz::Offset;

use super::{Duration, OffsetTime, ZonedInstant};

/// A text is not of the type of time that was expected.
///
/// ```
/// use bowline_types::{Duration, ParseTimeError};
///
/// assert_eq!("P1Y2M".parse::<Duration>().map(|duration| duration.months), Ok(14));
/// assert_eq!("1 year".parse::<Duration>(), Err(ParseTimeError));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not in a form of ISO 8601, as in 2026-01-02, 12:30:05, 12:30Z, 2026-01-02T12:30+01:00[Europe/Berlin], P1Y2M3DT4H5M6.7S"
)]
pub struct ParseTimeError;

impl FromStr for OffsetTime {
    type Err = ParseTimeError;

    fn from_str(text: &str) -> Result<OffsetTime, ParseTimeError> {
        let (time, offset) = split_offset(text)?;
        Ok(OffsetTime {
            time: time.parse::<civil::Time>().map_err(|_| ParseTimeError)?,
            offset,
        })
    }
}

impl FromStr for ZonedInstant {
    type Err = ParseTimeError;

    fn from_str(text: &str) -> Result<ZonedInstant, ParseTimeError> {
        let (rest, zone) = match text.strip_suffix(']') {
            Some(text) => text.split_once('[').ok_or(ParseTimeError)?,
            None => (text, ""),
        };
        let (_, time) = rest.split_once('T').ok_or(ParseTimeError)?;
        // A date has signs, too.
        let (time_only, offset) = split_offset(time)?;
        let local = &rest[..rest.len() - time.len() + time_only.len()];
        let local = parse_datetime(local)?;
        let instant = offset.to_timestamp(local).map_err(|_| ParseTimeError)?;
        Ok(ZonedInstant {
            instant,
            offset,
            zone: Some(zone.to_owned()).filter(|zone| !zone.is_empty()),
        })
    }
}

/// A date as [`show_date`](super::show_date) shows it.
///
/// # Errors
/// The text is none.
///
/// ```
/// assert_eq!(bowline_types::parse_date("-0044-03-15"), Ok(jiff::civil::date(-44, 3, 15)));
/// ```
pub fn parse_date(text: &str) -> Result<civil::Date, ParseTimeError> {
    let parse = || {
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, text),
        };
        let mut parts = digits.split('-');
        let mut part = |length| {
            let part = parts.next().filter(|part| part.len() == length)?;
            let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| part.parse::<i16>().ok())?
        };
        let (year, month, day) = (part(4)?, part(2)?, part(2)?);
        let date = civil::Date::new(sign * year, month as i8, day as i8).ok()?;
        parts.next().is_none().then_some(date)
    };
    parse().ok_or(ParseTimeError)
}

/// A date and a time of day as [`show_datetime`](super::show_datetime) shows them.
///
/// # Errors
/// The text is none.
///
/// ```
/// let noon = jiff::civil::date(2026, 11, 29).at(12, 0, 0, 0);
/// assert_eq!(bowline_types::parse_datetime("2026-11-29T12:00"), Ok(noon));
/// ```
pub fn parse_datetime(text: &str) -> Result<civil::DateTime, ParseTimeError> {
    let (date, time) = text.split_once('T').ok_or(ParseTimeError)?;
    let time: civil::Time = time.parse().map_err(|_| ParseTimeError)?;
    Ok(parse_date(date)?.to_datetime(time))
}

/// A text and the offset at its end.
fn split_offset(text: &str) -> Result<(&str, Offset), ParseTimeError> {
    if let Some(time) = text.strip_suffix('Z') {
        return Ok((time, Offset::UTC));
    }
    let at = text.rfind(['+', '-']).ok_or(ParseTimeError)?;
    let (time, offset) = text.split_at(at);
    let mut seconds = 0;
    let (mut unit, mut parts) = (3_600, 0);
    for part in offset[1..].split(':') {
        let is_number = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        let number: i32 = part.parse().map_err(|_| ParseTimeError)?;
        parts += 1;
        if !is_number || parts > 3 || number > 59 {
            return Err(ParseTimeError);
        }
        seconds += number * unit;
        unit /= 60;
    }
    let seconds = if offset.starts_with('-') {
        -seconds
    } else {
        seconds
    };
    let offset = Offset::from_seconds(seconds).map_err(|_| ParseTimeError)?;
    Ok((time, offset))
}

impl FromStr for Duration {
    type Err = ParseTimeError;

    fn from_str(text: &str) -> Result<Duration, ParseTimeError> {
        let parse = || {
            let rest = text.strip_prefix('P')?;
            let (days, times) = match rest.split_once('T') {
                Some((days, times)) if !times.is_empty() => (days, times),
                Some(_) => return None,
                None if rest.is_empty() => return None,
                None => (rest, ""),
            };
            let [years, months, weeks, only_days] = parts(days, ['Y', 'M', 'W', 'D'])?;
            let [hours, minutes, seconds] = parts(times, ['H', 'M', 'S'])?;
            let nanos = nanos_of(hours, 3_600)?
                .checked_add(nanos_of(minutes, 60)?)?
                .checked_add(nanos_of(seconds, 1)?)?;
            let whole = |text: &str| text.parse::<i64>().ok();
            Some(Duration {
                months: whole(years)?.checked_mul(12)?.checked_add(whole(months)?)?,
                days: whole(weeks)?
                    .checked_mul(7)?
                    .checked_add(whole(only_days)?)?,
                seconds: i64::try_from(nanos.div_euclid(NANOS)).ok()?,
                nanos: nanos.rem_euclid(NANOS) as u32,
            })
        };
        parse().ok_or(ParseTimeError)
    }
}

const NANOS: i128 = 1_000_000_000;

/// The numbers before these units, which stand in this order; "0" for those that are absent.
fn parts<const N: usize>(mut text: &str, units: [char; N]) -> Option<[&str; N]> {
    let mut found = ["0"; N];
    for (unit, found) in units.into_iter().zip(&mut found) {
        if let Some((number, rest)) = text.split_once(unit) {
            (*found, text) = (number, rest);
        }
    }
    text.is_empty().then_some(found)
}

/// A decimal number of so many seconds each.
fn nanos_of(number: &str, seconds: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_fraction = fraction.len() <= 9 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let fraction = is_fraction.then(|| format!("{fraction:0<9}"))?;
    let fraction = i128::from(fraction.parse::<u32>().ok()?);
    let fraction = if whole.starts_with('-') {
        -fraction
    } else {
        fraction
    };
    let whole = i128::from(whole.parse::<i64>().ok()?);
    Some((whole * NANOS + fraction) * seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read_again() {
        for text in [
            "P0D",
            "P1Y2M3DT4H5M6.7S",
            "P-1Y-2M",
            "P14D",
            "PT-0.5S",
            "PT1M0.000000001S",
            "P-9223372036854775808D",
        ] {
            let duration: Duration = text.parse().expect(text);
            assert_eq!(duration.to_string().parse(), Ok(duration), "{text}");
        }
        let half = "PT-0.5S".parse::<Duration>().unwrap();
        assert_eq!((half.seconds, half.nanos), (-1, 500_000_000));
        for text in [
            "00:00Z",
            "23:59:59.999999999-17:59",
            "12:30+02:00",
            "12:30:01+00:00:30",
        ] {
            let time: OffsetTime = text.parse().expect(text);
            assert_eq!(time.to_string().parse(), Ok(time), "{text}");
        }
        for text in [
            "2026-11-29T19:27Z",
            "1969-07-20T22:18:04+02:00[Africa/Cairo]",
            "-0044-03-15T12:00-01:00",
            "2026-11-29T19:27:00.5+01:00[Europe/Berlin]",
        ] {
            let at: ZonedInstant = text.parse().expect(text);
            assert_eq!(at.to_string().parse(), Ok(at), "{text}");
        }
    }

    #[test]
    fn what_is_in_no_form_is_refused() {
        for text in [
            "",
            "P",
            "PT",
            "P1",
            "1Y",
            "P1M1Y",
            "PT1H1H",
            "P1.5Y",
            "PT1.0000000001S",
            "PT+S",
        ] {
            assert_eq!(text.parse::<Duration>(), Err(ParseTimeError), "{text:?}");
        }
        for text in [
            "",
            "12:30",
            "12:30+2",
            "12:30+02:60",
            "25:00Z",
            "12:30+99:00",
            "12:30+01:00:00:00",
        ] {
            assert_eq!(text.parse::<OffsetTime>(), Err(ParseTimeError), "{text:?}");
        }
        for text in [
            "2026-11-29",
            "2026-11-29T19:27",
            "2026-02-30T00:00Z",
            "2026-11-29T19:27Z[",
            "T",
        ] {
            assert_eq!(
                text.parse::<ZonedInstant>(),
                Err(ParseTimeError),
                "{text:?}"
            );
        }
    }
}
