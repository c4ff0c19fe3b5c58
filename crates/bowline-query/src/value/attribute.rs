//! Values of attributes as values of queries, and back.

use bowline_types::{AttributeValue, ZonedInstant};
use jiff::tz::TimeZone;

use super::Value;
use crate::calendar::zone_name;

/// A zone that this program does not know becomes the offset that it had at the instant.
impl From<AttributeValue> for Value {
    fn from(value: AttributeValue) -> Value {
        match value {
            AttributeValue::Bool(value) => Value::Bool(value),
            AttributeValue::Int(number) => Value::Int(number),
            AttributeValue::Float(number) => Value::Float(number),
            AttributeValue::Text(text) => Value::Text(text.into()),
            AttributeValue::Bytes(bytes) => Value::Bytes(bytes[..].into()),
            AttributeValue::Date(date) => Value::Date(date),
            AttributeValue::LocalTime(time) => Value::LocalTime(time),
            AttributeValue::Time(time) => Value::Time(time),
            AttributeValue::LocalDateTime(at) => Value::LocalDateTime(at),
            AttributeValue::DateTime(at) => {
                let zone = at.zone.and_then(|name| TimeZone::get(&name).ok());
                let zone = zone.unwrap_or_else(|| TimeZone::fixed(at.offset));
                Value::datetime(at.instant.to_zoned_datetime(zone))
            }
            AttributeValue::Duration(duration) => Value::Duration(duration),
            AttributeValue::List(list) => Value::list(list.into_iter().map(Value::from).collect()),
            AttributeValue::Map(map) => {
                let entry = |(name, value): (String, AttributeValue)| (name.into(), value.into());
                Value::map(map.into_iter().map(entry).collect())
            }
            // `AttributeValue` may get more types before this crate knows them.
            AttributeValue::Null | _ => Value::Null,
        }
    }
}

impl Value {
    /// The value of an attribute; `None` for nodes, relationships and paths, and for what contains one.
    ///
    /// ```
    /// use bowline_query::Value;
    /// use bowline_types::AttributeValue;
    ///
    /// assert_eq!(Value::Int(1).to_attribute(), Some(AttributeValue::Int(1)));
    /// ```
    pub fn to_attribute(&self) -> Option<AttributeValue> {
        Some(match self {
            Value::Null => AttributeValue::Null,
            Value::Bool(value) => AttributeValue::Bool(*value),
            Value::Int(number) => AttributeValue::Int(*number),
            Value::Float(number) => AttributeValue::Float(*number),
            Value::Text(text) => AttributeValue::Text(text.to_string()),
            Value::Bytes(bytes) => AttributeValue::Bytes(bytes.to_vec().into()),
            Value::Date(date) => AttributeValue::Date(*date),
            Value::LocalTime(time) => AttributeValue::LocalTime(*time),
            Value::Time(time) => AttributeValue::Time(*time),
            Value::LocalDateTime(at) => AttributeValue::LocalDateTime(*at),
            Value::DateTime(at) => AttributeValue::DateTime(ZonedInstant {
                instant: at.timestamp(),
                offset: at.offset(),
                zone: zone_name(at).map(str::to_owned),
            }),
            Value::Duration(duration) => AttributeValue::Duration(*duration),
            Value::List(list) => AttributeValue::List(
                list.iter()
                    .map(Value::to_attribute)
                    .collect::<Option<_>>()?,
            ),
            Value::Map(map) => {
                let entry = |(name, value): (&super::Name, &Value)| {
                    Some((name.to_string(), value.to_attribute()?))
                };
                AttributeValue::Map(map.iter().map(entry).collect::<Option<_>>()?)
            }
            Value::Node(_) | Value::Relationship(_) | Value::Path(_) => return None,
        })
    }
}
