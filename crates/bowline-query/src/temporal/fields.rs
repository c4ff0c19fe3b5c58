//! Temporal values from parts, as in `date({year: 2024, week: 1})`, from other values, and from text.

use crate::calendar::{Amount, Calculate as _};

use jiff::civil::{self, ISOWeekDate, Weekday};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{Timestamp, ZonedDateTime};

use super::parts::day_of_quarter;
use super::read::{
    calendar, read_date, read_datetime, read_duration, read_offset_time, read_time, read_zone,
    read_zoned,
};
use crate::calendar::{NANOS, out_of_range};
use crate::error::{Error, Result};
use crate::value::{Properties, Value};
use bowline_types::Duration;
use bowline_types::OffsetTime;

/// Which type is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    Date,
    LocalTime,
    Time,
    LocalDateTime,
    DateTime,
    Duration,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Shape::Date => "a date",
            Shape::LocalTime => "a local time",
            Shape::Time => "a time",
            Shape::LocalDateTime => "a local datetime",
            Shape::DateTime => "a datetime",
            Shape::Duration => "a duration",
        }
    }
}

/// What a temporal value holds, whatever its type.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    pub date: Option<civil::Date>,
    pub time: Option<civil::Time>,
    pub zone: Option<TimeZone>,
    /// That of an instant, which says which one it is of an hour that comes twice.
    pub offset: Option<Offset>,
}

impl Held {
    pub fn of(value: &Value) -> Option<Held> {
        let held = |date, time, zone| {
            Some(Held {
                date,
                time,
                zone,
                offset: None,
            })
        };
        match value {
            Value::Date(date) => held(Some(*date), None, None),
            Value::LocalTime(time) => held(None, Some(*time), None),
            Value::Time(time) => held(None, Some(time.time), Some(TimeZone::fixed(time.offset))),
            Value::LocalDateTime(datetime) => {
                held(Some(datetime.date()), Some(datetime.time()), None)
            }
            Value::DateTime(zoned) => Some(Held::at(zoned)),
            _ => None,
        }
    }

    /// What an instant holds.
    pub fn at(zoned: &ZonedDateTime) -> Held {
        Held {
            date: Some(zoned.date()),
            time: Some(zoned.time()),
            zone: Some(zoned.time_zone().clone()),
            offset: Some(zoned.offset()),
        }
    }

    /// The offset of its local time in a zone. A named zone needs a date; without one, the epoch's is taken.
    pub fn offset_in(&self, zone: &TimeZone) -> Result<Offset> {
        let date = self.date.unwrap_or(civil::date(1970, 1, 1));
        let local = date.to_datetime(self.time.unwrap_or(civil::Time::midnight()));
        Ok(resolve(local, zone.clone(), self.offset)?.offset())
    }

    pub fn datetime(&self) -> Option<civil::DateTime> {
        self.date
            .map(|date| date.to_datetime(self.time.unwrap_or(civil::Time::midnight())))
    }
}

/// The clock's value, as the type wanted.
pub(crate) fn now(shape: Shape, now: &ZonedDateTime) -> Value {
    match shape {
        Shape::Date => Value::Date(now.date()),
        Shape::LocalTime => Value::LocalTime(now.time()),
        Shape::Time => Value::Time(OffsetTime {
            time: now.time(),
            offset: now.offset(),
        }),
        Shape::LocalDateTime => Value::LocalDateTime(now.datetime()),
        Shape::DateTime => Value::datetime(now.clone()),
        Shape::Duration => Value::Duration(Duration::default()),
    }
}

/// The clock's value in a zone.
pub(crate) fn now_in(shape: Shape, clock: &ZonedDateTime, zone: &str) -> Result<Value> {
    Ok(now(shape, &clock.with_time_zone(read_zone(zone)?)))
}

pub(crate) fn read_text(shape: Shape, text: &str) -> Result<Value> {
    Ok(match shape {
        Shape::Date => Value::Date(read_date(text)?),
        Shape::LocalTime => Value::LocalTime(read_time(text)?),
        Shape::Time => {
            let (time, offset) = read_offset_time(text)?;
            Value::Time(OffsetTime {
                time,
                offset: offset.unwrap_or(Offset::UTC),
            })
        }
        Shape::LocalDateTime => Value::LocalDateTime(read_datetime(text)?),
        Shape::DateTime => {
            let (datetime, offset, zone) = read_zoned(text)?;
            match (offset, zone) {
                (None, zone) => {
                    let zone = zone.unwrap_or(TimeZone::UTC);
                    Value::datetime(resolve(datetime, zone, None)?)
                }
                (Some(offset), None) => {
                    let zone = TimeZone::fixed(offset);
                    Value::datetime(resolve(datetime, zone, None)?)
                }
                // The zone decides; an offset that it does not have then names the instant.
                (Some(offset), Some(zone)) => {
                    let instant = offset.to_timestamp(datetime).map_err(|_| out_of_range())?;
                    Value::datetime(instant.to_zoned_datetime(zone))
                }
            }
        }
        Shape::Duration => Value::Duration(read_duration(text)?),
    })
}

/// A value of another temporal type, as the type wanted.
pub(crate) fn from_value(shape: Shape, value: &Value) -> Result<Value> {
    if let (Shape::Duration, Value::Duration(_)) = (shape, value) {
        return Ok(value.clone());
    }
    let held = Held::of(value).ok_or_else(|| {
        Error::wrong_type(format!("{} is not {}", value.type_name(), shape.name()))
    })?;
    assemble(shape, &held).ok_or_else(|| {
        Error::wrong_type(format!(
            "{} holds too little for {}",
            value.type_name(),
            shape.name()
        ))
    })?
}

/// Puts a value together. `None` if a part is missing.
fn assemble(shape: Shape, held: &Held) -> Option<Result<Value>> {
    let time = held.time.unwrap_or(civil::Time::midnight());
    Some(Ok(match shape {
        Shape::Date => Value::Date(held.date?),
        Shape::LocalTime => Value::LocalTime(time),
        Shape::Time => match held.zone.as_ref().map(|zone| held.offset_in(zone)) {
            None => Value::Time(OffsetTime {
                time,
                offset: Offset::UTC,
            }),
            Some(Ok(offset)) => Value::Time(OffsetTime { time, offset }),
            Some(Err(error)) => return Some(Err(error)),
        },
        Shape::LocalDateTime => Value::LocalDateTime(held.datetime()?),
        Shape::DateTime => {
            let zone = held.zone.clone().unwrap_or(TimeZone::UTC);
            let zoned = resolve(held.datetime()?, zone, held.offset);
            return Some(zoned.map(Value::datetime));
        }
        Shape::Duration => return None,
    }))
}

/// The instant of a local time in a zone. Of an hour that comes twice it is the one with this offset, or else the first; of one
/// that is left out it is the one after.
pub(super) fn resolve(
    datetime: civil::DateTime,
    zone: TimeZone,
    offset: Option<Offset>,
) -> Result<ZonedDateTime> {
    let ambiguous = zone.into_ambiguous_zoned_datetime(datetime);
    let zoned = match ambiguous.offset() {
        AmbiguousOffset::Fold { after, .. } if offset == Some(after) => ambiguous.later(),
        _ => ambiguous.compatible(),
    };
    zoned.map_err(|_| out_of_range())
}

pub(crate) fn from_epoch(seconds: i64, nanos: i128) -> Result<Value> {
    let nanos = i128::from(seconds) * NANOS + nanos;
    let instant = Timestamp::from_nanosecond(nanos).map_err(|_| out_of_range())?;
    Ok(Value::datetime(instant.to_zoned_datetime(TimeZone::UTC)))
}

/// A value from named parts.
pub(crate) fn build(shape: Shape, map: &Properties) -> Result<Value> {
    if shape == Shape::Duration {
        return build_duration(map);
    }
    build_over(shape, map, Held::default())
}

const PARTS: [&str; 21] = [
    "date",
    "time",
    "datetime",
    "year",
    "quarter",
    "month",
    "week",
    "day",
    "dayOfWeek",
    "dayOfQuarter",
    "ordinalDay",
    "hour",
    "minute",
    "second",
    "millisecond",
    "microsecond",
    "nanosecond",
    "timezone",
    "epochSeconds",
    "epochMillis",
    "weekYear",
];

/// A value from named parts, which replace those of a base.
pub(super) fn build_over(shape: Shape, map: &Properties, base: Held) -> Result<Value> {
    if let Some(unknown) = map.keys().find(|key| !PARTS.contains(&&***key)) {
        let near =
            crate::error::nearest(unknown, PARTS).map(|near| format!("did you mean `{near}`?"));
        return Err(
            Error::wrong_value(format!("{} has no part `{unknown}`", shape.name()))
                .help(near.unwrap_or_else(|| format!("the parts are: {}", PARTS.join(", ")))),
        );
    }
    if let Some(value) = epoch(map)? {
        return match text_part(map, "timezone")? {
            Some(zone) => {
                let Value::DateTime(instant) = value else {
                    return Ok(value);
                };
                Ok(Value::datetime(instant.with_time_zone(read_zone(&zone)?)))
            }
            None => Ok(value),
        };
    }
    let mut base = base;
    for (key, has_date, has_time) in [
        ("date", true, false),
        ("time", false, true),
        ("datetime", true, true),
    ] {
        let Some(value) = map.get(key).filter(|value| !value.is_null()) else {
            continue;
        };
        let held = Held::of(value).ok_or_else(|| {
            Error::wrong_type(format!(
                "`{key}` is a temporal value, not {}",
                value.type_name()
            ))
        })?;
        if has_date {
            base.date = held.date.or(base.date);
        }
        if has_time {
            base.time = held.time.or(base.time);
            if held.zone.is_some() {
                base.zone = held.zone;
                base.offset = held.offset;
            }
            // A time has the offset that the zone has on the value's own date.
            if let (Value::DateTime(zoned), Shape::Time) = (value, shape) {
                base.zone = Some(TimeZone::fixed(zoned.offset()));
            }
        }
    }
    base.date = build_date(map, base.date)?;
    if let Some(zone) = text_part(map, "timezone")? {
        let zone = read_zone(&zone)?;
        convert(shape, &mut base, &zone)?;
        base.zone = Some(zone);
    }
    let date = base.date;
    let time = build_time(map, base.time)?;
    if date.is_none() && matches!(shape, Shape::Date | Shape::LocalDateTime | Shape::DateTime) {
        return Err(Error::wrong_value(format!(
            "{} needs at least a year",
            shape.name()
        )));
    }
    if time.is_none() && base.time.is_none() && matches!(shape, Shape::LocalTime | Shape::Time) {
        return Err(Error::wrong_value(format!(
            "{} needs at least an hour",
            shape.name()
        )));
    }
    base.time = time.or(base.time);
    assemble(shape, &base).unwrap_or_else(|| {
        Err(Error::wrong_value(format!(
            "a part of {} is missing",
            shape.name()
        )))
    })
}

/// Moves the base to another zone, if it has one already.
fn convert(shape: Shape, base: &mut Held, zone: &TimeZone) -> Result<()> {
    let (Some(time), Some(old)) = (base.time, base.zone.clone()) else {
        return Ok(());
    };
    match (shape, base.date) {
        (Shape::DateTime, Some(date)) => {
            let old = resolve(date.to_datetime(time), old, base.offset)?;
            *base = Held::at(&old.with_time_zone(zone.clone()));
        }
        (Shape::Time, _) => {
            let (offset, new) = (base.offset_in(&old)?, base.offset_in(zone)?);
            base.time = Some(OffsetTime { time, offset }.at_offset(new).time);
            base.offset = Some(new);
        }
        _ => {}
    }
    Ok(())
}

fn epoch(map: &Properties) -> Result<Option<Value>> {
    let nanos = i128::from(int(map, "nanosecond")?.unwrap_or(0));
    if let Some(seconds) = int(map, "epochSeconds")? {
        return Ok(Some(from_epoch(seconds, nanos)?));
    }
    if let Some(millis) = int(map, "epochMillis")? {
        let nanos = i128::from(millis) * 1_000_000 + nanos;
        return Ok(Some(from_epoch(0, nanos)?));
    }
    Ok(None)
}

fn int(map: &Properties, key: &str) -> Result<Option<i64>> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Int(value)) => Ok(Some(*value)),
        Some(other) => Err(Error::wrong_type(format!(
            "`{key}` is an integer, not {}",
            other.type_name()
        ))),
    }
}

fn text_part(map: &Properties, key: &str) -> Result<Option<String>> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Text(text)) => Ok(Some(text.to_string())),
        Some(other) => Err(Error::wrong_type(format!(
            "`{key}` is a string, not {}",
            other.type_name()
        ))),
    }
}

fn build_date(map: &Properties, base: Option<civil::Date>) -> Result<Option<civil::Date>> {
    let year = int(map, "year")?;
    let has = |keys: &[&str]| keys.iter().any(|key| map.contains_key(*key));
    if has(&["week", "dayOfWeek"]) {
        let held = base.map(civil::Date::iso_week_date);
        let held_year = || held.map(|week| i64::from(week.year()));
        let Some(year) = int(map, "weekYear")?.or(year).or_else(held_year) else {
            return Ok(None);
        };
        let week = int(map, "week")?
            .or(held.map(|week| i64::from(week.week())))
            .unwrap_or(1);
        let day = int(map, "dayOfWeek")?
            .or(held.map(|week| i64::from(week.weekday().to_monday_one_offset())))
            .unwrap_or(1);
        return date_of_week(year, week, day).map(Some);
    }
    let Some(year) = year.or(base.map(|date| i64::from(date.year()))) else {
        return Ok(None);
    };
    if has(&["quarter", "dayOfQuarter"]) {
        let quarter = int(map, "quarter")?
            .or(base.map(|date| i64::from((date.month() - 1) / 3 + 1)))
            .unwrap_or(1);
        let day = int(map, "dayOfQuarter")?
            .or(base.map(day_of_quarter))
            .unwrap_or(1);
        return quarter_date(year, quarter, day).map(Some);
    }
    if let Some(day) = int(map, "ordinalDay")? {
        return ordinal_date(year, day).map(Some);
    }
    let month = int(map, "month")?
        .or(base.map(|date| i64::from(date.month())))
        .unwrap_or(1);
    let day = match int(map, "day")? {
        Some(day) => day,
        None => base.map_or(1, |date| i64::from(date.day())),
    };
    calendar(year, month, day).map(Some)
}

fn build_time(map: &Properties, base: Option<civil::Time>) -> Result<Option<civil::Time>> {
    let keys = [
        "hour",
        "minute",
        "second",
        "millisecond",
        "microsecond",
        "nanosecond",
    ];
    if !keys.iter().any(|key| map.contains_key(*key)) {
        return Ok(base);
    }
    let part = |key: &str, held: Option<i8>, max: i64| -> Result<i8> {
        let value = int(map, key)?.or(held.map(i64::from)).unwrap_or(0);
        if !(0..=max).contains(&value) {
            return Err(Error::wrong_value(format!(
                "`{key}` lies between 0 and {max}, not at {value}"
            )));
        }
        Ok(value as i8)
    };
    let hour = part("hour", base.map(civil::Time::hour), 23)?;
    let minute = part("minute", base.map(civil::Time::minute), 59)?;
    let second = part("second", base.map(civil::Time::second), 59)?;
    let held = base.map_or(0, |time| i128::from(time.subsec_nanosecond()));
    // Wide enough for any sum of them.
    let wide = |key: &str| -> Result<Option<i128>> { Ok(int(map, key)?.map(i128::from)) };
    let (milli, micro, nano) = (
        wide("millisecond")?,
        wide("microsecond")?,
        wide("nanosecond")?,
    );
    // Each finer part adds to the coarser ones that are given; what is not given stays as it was.
    let nanos = match (milli, micro, nano) {
        (None, None, None) => held,
        (milli, micro, nano) => {
            let kept = |given: bool, value: i128| if given { 0 } else { value };
            let coarse = milli.map_or(kept(micro.is_some() || nano.is_some(), held), |m| {
                m * 1_000_000
            });
            let middle = micro.map_or(0, |m| m * 1_000);
            let fine = nano.unwrap_or(0);
            let below = if milli.is_some() && micro.is_none() && nano.is_none() {
                held % 1_000_000
            } else {
                0
            };
            let under = if micro.is_some() && nano.is_none() {
                held % 1_000
            } else {
                0
            };
            coarse + middle + fine + below + under
        }
    };
    if !(0..1_000_000_000).contains(&nanos) {
        return Err(Error::wrong_value("the parts of a second exceed a second"));
    }
    civil::Time::new(hour, minute, second, nanos as i32)
        .map(Some)
        .map_err(|_| Error::wrong_value("there is no such time"))
}

pub(super) fn date_of_week(year: i64, week: i64, day: i64) -> Result<civil::Date> {
    let wrong = || Error::wrong_value(format!("there is no day {day} of week {week} of {year}"));
    let weekday = i8::try_from(day)
        .ok()
        .and_then(|day| Weekday::from_monday_one_offset(day).ok());
    let (Ok(year), Ok(week), Some(weekday)) = (i16::try_from(year), i8::try_from(week), weekday)
    else {
        return Err(wrong());
    };
    Ok(ISOWeekDate::new(year, week, weekday)
        .map_err(|_| wrong())?
        .date())
}

pub(super) fn quarter_date(year: i64, quarter: i64, day: i64) -> Result<civil::Date> {
    if !(1..=4).contains(&quarter) || !(1..=92).contains(&day) {
        return Err(Error::wrong_value(format!(
            "there is no day {day} of quarter {quarter}"
        )));
    }
    let start = calendar(year, quarter * 3 - 2, 1)?;
    let date = start
        .checked_add(jiff::Span::new().days(day - 1))
        .map_err(|_| out_of_range())?;
    if i64::from((date.month() - 1) / 3 + 1) != quarter {
        return Err(Error::wrong_value(format!(
            "quarter {quarter} of {year} has no day {day}"
        )));
    }
    Ok(date)
}

pub(super) fn ordinal_date(year: i64, day: i64) -> Result<civil::Date> {
    let start = calendar(year, 1, 1)?;
    if day < 1 || day > i64::from(start.days_in_year()) {
        return Err(Error::wrong_value(format!(
            "the year {year} has no day {day}"
        )));
    }
    start
        .checked_add(jiff::Span::new().days(day - 1))
        .map_err(|_| out_of_range())
}

fn build_duration(map: &Properties) -> Result<Value> {
    let (mut months, mut days, mut nanos) = (Amount::default(), Amount::default(), 0i128);
    for (key, value) in map {
        let amount = match value {
            Value::Null => continue,
            Value::Int(value) => Amount::new(i128::from(*value), 0.0)?,
            Value::Float(value) => Amount::of_float(*value)?,
            other => {
                return Err(Error::wrong_type(format!(
                    "`{key}` is a number, not {}",
                    other.type_name()
                )));
            }
        };
        let mut add = |unit: i128| nanos = nanos.saturating_add(amount.units(unit));
        match &**key {
            "years" => months = months.plus(amount.times(12)?)?,
            "quarters" => months = months.plus(amount.times(3)?)?,
            "months" => months = months.plus(amount)?,
            "weeks" => days = days.plus(amount.times(7)?)?,
            "days" => days = days.plus(amount)?,
            "hours" => add(3600 * NANOS),
            "minutes" => add(60 * NANOS),
            "seconds" => add(NANOS),
            "milliseconds" => add(1_000_000),
            "microseconds" => add(1_000),
            "nanoseconds" => add(1),
            _ => {
                return Err(Error::wrong_value(format!(
                    "a duration has no part `{key}`"
                )));
            }
        }
    }
    Ok(Value::Duration(Duration::fractional(months, days, nanos)?))
}
