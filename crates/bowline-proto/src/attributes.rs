//! Attributes of blocks and edges to and from their messages.
//!
//! Texts are in a map of their own, which programs of the first version know; every other value is in a second map.
//! Invariant: an invalid message is an error, never a guess.

use std::collections::BTreeMap;

use bowline_types::{
    AttributeValue, Attributes, Duration, OffsetTime, ZonedInstant, nanos_of, time_of,
};
use jiff::tz::Offset;
use jiff::{Timestamp, civil};

use crate::v1 as pb;
use pb::attribute_value::Value;

/// The two maps of a message.
///
/// ```
/// use bowline_proto::attributes::{of_wire, to_wire};
/// use bowline_types::Attributes;
///
/// let attributes = Attributes::from([("a".to_owned(), "text".into()), ("b".to_owned(), 7.into())]);
/// let (texts, typed) = to_wire(attributes.clone());
/// assert_eq!((texts.len(), typed.len()), (1, 1));
/// assert_eq!(of_wire(texts, typed), Ok(attributes));
/// ```
pub type Wire = (
    BTreeMap<String, String>,
    BTreeMap<String, pb::AttributeValue>,
);

/// As a message carries them.
#[must_use]
pub fn to_wire(attributes: Attributes) -> Wire {
    let (mut texts, mut typed) = Wire::default();
    for (name, value) in attributes {
        match value {
            AttributeValue::Text(text) => drop(texts.insert(name, text)),
            value => drop(typed.insert(name, value_to_wire(value))),
        }
    }
    (texts, typed)
}

/// From a message.
///
/// # Errors
/// What is wrong with it.
pub fn of_wire(
    texts: BTreeMap<String, String>,
    typed: BTreeMap<String, pb::AttributeValue>,
) -> Result<Attributes, &'static str> {
    let mut attributes: Attributes = (texts.into_iter())
        .map(|(name, text)| (name, text.into()))
        .collect();
    for (name, value) in typed {
        let value = value_of_wire(value, AttributeValue::DEPTH_MAX)?;
        if attributes.insert(name, value).is_some() {
            return Err("an attribute is given as a text and with a type");
        }
    }
    Ok(attributes)
}

fn date_to_wire(date: civil::Date) -> pb::Date {
    pb::Date {
        year: date.year().into(),
        month: date.month().cast_unsigned().into(),
        day: date.day().cast_unsigned().into(),
    }
}

fn date_of_wire(date: Option<pb::Date>) -> Result<civil::Date, &'static str> {
    let date = date.unwrap_or_default();
    let parts = || {
        let (month, day) = (i8::try_from(date.month).ok()?, i8::try_from(date.day).ok()?);
        civil::Date::new(i16::try_from(date.year).ok()?, month, day).ok()
    };
    parts().ok_or("a date is none of the calendar")
}

fn time_to_wire(time: civil::Time) -> u64 {
    nanos_of(time).cast_unsigned()
}

fn time_of_wire(ns: u64) -> Result<civil::Time, &'static str> {
    const DAY_NS: u64 = 86_400_000_000_000;
    match ns < DAY_NS {
        true => Ok(time_of(ns.cast_signed())),
        false => Err("a time of day is behind the end of the day"),
    }
}

fn offset_of_wire(seconds: i32) -> Result<Offset, &'static str> {
    Offset::from_seconds(seconds).map_err(|_| "an offset from UTC is too large")
}

fn ns_of_wire(ns: u32) -> Result<u32, &'static str> {
    let is_part = ns < 1_000_000_000;
    is_part
        .then_some(ns)
        .ok_or("the nanoseconds of a second are more than a second")
}

/// A value as a message carries it.
#[must_use]
pub fn value_to_wire(value: AttributeValue) -> pb::AttributeValue {
    let value = match value {
        AttributeValue::Bool(value) => Value::Boolean(value),
        AttributeValue::Int(number) => Value::Integer(number),
        AttributeValue::Float(number) => Value::Float(number),
        AttributeValue::Text(text) => Value::Text(text),
        AttributeValue::Bytes(bytes) => Value::Bytes(bytes),
        AttributeValue::Date(date) => Value::Date(date_to_wire(date)),
        AttributeValue::LocalTime(time) => Value::LocalTimeNs(time_to_wire(time)),
        AttributeValue::Time(time) => Value::Time(pb::OffsetTime {
            ns: time_to_wire(time.time),
            offset_s: time.offset.seconds(),
        }),
        AttributeValue::LocalDateTime(at) => Value::LocalDateTime(pb::LocalDateTime {
            date: Some(date_to_wire(at.date())),
            ns: time_to_wire(at.time()),
        }),
        AttributeValue::DateTime(at) => {
            let nanos = at.instant.as_nanosecond();
            Value::DateTime(pb::DateTime {
                s: nanos.div_euclid(1_000_000_000) as i64,
                ns: nanos.rem_euclid(1_000_000_000) as u32,
                offset_s: at.offset.seconds(),
                zone: at.zone.unwrap_or_default(),
            })
        }
        AttributeValue::Duration(duration) => Value::Duration(pb::Duration {
            months: duration.months,
            days: duration.days,
            s: duration.seconds,
            ns: duration.nanos,
        }),
        AttributeValue::List(list) => Value::List(pb::AttributeList {
            values: list.into_iter().map(value_to_wire).collect(),
        }),
        AttributeValue::Map(map) => Value::Map(pb::AttributeMap {
            values: map
                .into_iter()
                .map(|(name, value)| (name, value_to_wire(value)))
                .collect(),
        }),
        AttributeValue::Null => Value::Null(true),
        // Whoever adds a kind of value gives it a field here.
        other => unreachable!("a {} has no field", other.type_name()),
    };
    pb::AttributeValue { value: Some(value) }
}

/// A value from a message, in which at most so many lists and maps contain one another.
///
/// # Errors
/// What is wrong with it.
pub fn value_of_wire(
    value: pb::AttributeValue,
    depth: usize,
) -> Result<AttributeValue, &'static str> {
    const TOO_DEEP: &str = "an attribute's lists and maps are nested too deep";
    let value = value
        .value
        .ok_or("an attribute has a value of no type that is known")?;
    Ok(match value {
        Value::Null(_) => AttributeValue::Null,
        Value::Boolean(value) => AttributeValue::Bool(value),
        Value::Integer(number) => AttributeValue::Int(number),
        Value::Float(number) => AttributeValue::Float(number),
        Value::Text(text) => AttributeValue::Text(text),
        Value::Bytes(bytes) => AttributeValue::Bytes(bytes),
        Value::Date(date) => AttributeValue::Date(date_of_wire(Some(date))?),
        Value::LocalTimeNs(ns) => AttributeValue::LocalTime(time_of_wire(ns)?),
        Value::Time(time) => AttributeValue::Time(OffsetTime {
            time: time_of_wire(time.ns)?,
            offset: offset_of_wire(time.offset_s)?,
        }),
        Value::LocalDateTime(at) => {
            let date = date_of_wire(at.date)?;
            AttributeValue::LocalDateTime(date.to_datetime(time_of_wire(at.ns)?))
        }
        Value::DateTime(at) => {
            let all = i128::from(at.s) * 1_000_000_000 + i128::from(ns_of_wire(at.ns)?);
            let instant = Timestamp::from_nanosecond(all);
            AttributeValue::DateTime(ZonedInstant {
                instant: instant.map_err(|_| "an instant is out of the calendar")?,
                offset: offset_of_wire(at.offset_s)?,
                zone: Some(at.zone).filter(|zone| !zone.is_empty()),
            })
        }
        Value::Duration(duration) => AttributeValue::Duration(Duration {
            months: duration.months,
            days: duration.days,
            seconds: duration.s,
            nanos: ns_of_wire(duration.ns)?,
        }),
        Value::List(list) => {
            let depth = depth.checked_sub(1).ok_or(TOO_DEEP)?;
            let values = list.values.into_iter();
            let values = values.map(|value| value_of_wire(value, depth));
            AttributeValue::List(values.collect::<Result<_, _>>()?)
        }
        Value::Map(map) => {
            let depth = depth.checked_sub(1).ok_or(TOO_DEEP)?;
            let mut values = BTreeMap::new();
            for (name, value) in map.values {
                values.insert(name, value_of_wire(value, depth)?);
            }
            AttributeValue::Map(values)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<AttributeValue> {
        use AttributeValue as V;
        let at = civil::date(-44, 3, 15).at(23, 59, 59, 999_999_999);
        let zoned = |instant, zone: Option<&str>| {
            V::DateTime(ZonedInstant {
                instant,
                offset: Offset::from_seconds(-3_601).expect("an offset"),
                zone: zone.map(str::to_owned),
            })
        };
        let mut deep = V::Int(7);
        for _ in 0..AttributeValue::DEPTH_MAX / 2 {
            deep = V::List(vec![V::Map(BTreeMap::from([("in".to_owned(), deep)]))]);
        }
        vec![
            V::Null,
            V::Bool(false),
            V::Int(i64::MIN),
            V::Float(f64::NAN),
            V::Float(-0.0),
            V::from("größe"),
            V::Bytes(vec![0xff].into()),
            V::Date(civil::Date::MIN),
            V::LocalTime(civil::Time::MAX),
            V::Time(OffsetTime {
                time: civil::Time::MAX,
                offset: Offset::MIN,
            }),
            V::LocalDateTime(at),
            zoned(Timestamp::MIN, None),
            zoned(Timestamp::MAX, Some("Europe/Berlin")),
            V::Duration(Duration {
                months: -14,
                days: i64::MAX,
                seconds: i64::MIN,
                nanos: 999_999_999,
            }),
            V::List(Vec::new()),
            deep,
        ]
    }

    #[test]
    fn values_of_every_type_come_back() {
        let named = |(at, value): (usize, AttributeValue)| (at.to_string(), value);
        let all: Attributes = samples().into_iter().enumerate().map(named).collect();
        let (texts, typed) = to_wire(all.clone());
        assert_eq!((texts.len(), typed.len()), (1, all.len() - 1));
        assert_eq!(of_wire(texts, typed), Ok(all));
    }

    #[test]
    fn what_is_no_value_is_refused() {
        let refused = |value| {
            let value = pb::AttributeValue { value };
            let typed = BTreeMap::from([("a".to_owned(), value)]);
            of_wire(BTreeMap::new(), typed).expect_err("it is none")
        };
        let date = |month, day| pb::Date {
            year: 2026,
            month,
            day,
        };
        let mut deep = pb::AttributeValue {
            value: Some(Value::Null(true)),
        };
        for _ in 0..=AttributeValue::DEPTH_MAX {
            let values = vec![deep];
            deep = pb::AttributeValue {
                value: Some(Value::List(pb::AttributeList { values })),
            };
        }
        let at = |ns, offset_s| pb::DateTime {
            ns,
            offset_s,
            ..pb::DateTime::default()
        };
        for (value, told) in [
            (None, "no type"),
            (Some(Value::Date(date(2, 30))), "calendar"),
            (Some(Value::Date(date(300, 1))), "calendar"),
            (
                Some(Value::LocalTimeNs(86_400_000_000_000)),
                "end of the day",
            ),
            (Some(Value::DateTime(at(1_000_000_000, 0))), "nanoseconds"),
            (Some(Value::DateTime(at(0, 1_000_000))), "offset"),
            (deep.value, "too deep"),
        ] {
            let error = refused(value);
            assert!(error.contains(told), "{error}");
        }
        let texts = BTreeMap::from([("a".to_owned(), String::new())]);
        let typed = BTreeMap::from([("a".to_owned(), value_to_wire(7.into()))]);
        assert!(of_wire(texts, typed).unwrap_err().contains("as a text"));
    }
}
