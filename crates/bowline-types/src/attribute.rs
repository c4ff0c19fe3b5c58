//! Values of attributes.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use jiff::civil;

use crate::calendar::{Duration, OffsetTime, ZonedInstant, show_date, show_datetime, show_time};

/// Named values of a block or an edge, in the order of their names.
///
/// ```
/// use bowline_types::{Attributes, Block, BlockId};
///
/// let block = Block::new(BlockId::from_name("app"), "package").attribute("version", "1.2").attribute("stars", 40);
/// let attributes: &Attributes = &block.attributes;
/// assert_eq!(attributes["version"].as_text(), Some("1.2"));
/// assert_eq!(attributes["stars"].to_string(), "40");
/// ```
pub type Attributes = BTreeMap<String, AttributeValue>;

/// The value of an attribute. Two floats are equal if their bits are, and any NaN equals any other.
///
/// ```
/// use bowline_types::AttributeValue;
///
/// assert_eq!(AttributeValue::from("text").as_text(), Some("text"));
/// assert_eq!(AttributeValue::from(true).to_string(), "true");
/// assert_ne!(AttributeValue::from(1), AttributeValue::from(1.0));
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum AttributeValue {
    /// Nothing: an element of a list, or an attribute that is there without a value.
    #[default]
    Null,
    /// True or false.
    Bool(bool),
    /// A 64-bit integer.
    Int(i64),
    /// A 64-bit float.
    Float(f64),
    /// Text.
    Text(String),
    /// Any bytes.
    Bytes(Bytes),
    /// A date.
    Date(civil::Date),
    /// A time of day.
    LocalTime(civil::Time),
    /// A time of day, with an offset from UTC.
    Time(OffsetTime),
    /// A date and a time of day.
    LocalDateTime(civil::DateTime),
    /// An instant, in a time zone.
    DateTime(ZonedInstant),
    /// Months, days, seconds and nanoseconds, each counted by itself.
    Duration(Duration),
    /// A list.
    List(Vec<AttributeValue>),
    /// A map.
    Map(BTreeMap<String, AttributeValue>),
}

impl AttributeValue {
    /// How many lists and maps may contain one another.
    pub const DEPTH_MAX: usize = 16;

    /// The text, if it is one.
    ///
    /// ```
    /// # use bowline_types::AttributeValue;
    /// assert_eq!(AttributeValue::from("1").as_text(), Some("1"));
    /// assert_eq!(AttributeValue::from(1).as_text(), None);
    /// ```
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            AttributeValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number: of an integer, of a float, and of a text that is one.
    ///
    /// ```
    /// # use bowline_types::AttributeValue;
    /// assert_eq!(AttributeValue::from(3).as_number(), Some(3.0));
    /// assert_eq!(AttributeValue::from("0.5").as_number(), Some(0.5));
    /// assert_eq!(AttributeValue::from(true).as_number(), None);
    /// ```
    #[must_use]
    pub fn as_number(&self) -> Option<f64> {
        match self {
            AttributeValue::Int(number) => Some(*number as f64),
            AttributeValue::Float(number) => Some(*number),
            AttributeValue::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// Whether it is this text, or, for what is no text, its text form is: what a filter of texts asks.
    ///
    /// ```
    /// # use bowline_types::AttributeValue;
    /// assert!(AttributeValue::from(2019).reads("2019") && AttributeValue::from("2019").reads("2019"));
    /// ```
    #[must_use]
    pub fn reads(&self, wanted: &str) -> bool {
        match self {
            AttributeValue::Text(text) => text == wanted,
            other => format!("{other}") == wanted,
        }
    }

    /// The name of its type.
    ///
    /// ```
    /// # use bowline_types::AttributeValue;
    /// assert_eq!(AttributeValue::from(3).type_name(), "integer");
    /// ```
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            AttributeValue::Null => "null",
            AttributeValue::Bool(_) => "boolean",
            AttributeValue::Int(_) => "integer",
            AttributeValue::Float(_) => "float",
            AttributeValue::Text(_) => "text",
            AttributeValue::Bytes(_) => "bytes",
            AttributeValue::Date(_) => "date",
            AttributeValue::LocalTime(_) => "local time",
            AttributeValue::Time(_) => "time",
            AttributeValue::LocalDateTime(_) => "local date-time",
            AttributeValue::DateTime(_) => "date-time",
            AttributeValue::Duration(_) => "duration",
            AttributeValue::List(_) => "list",
            AttributeValue::Map(_) => "map",
        }
    }

    /// About how many bytes of memory it takes beside itself.
    ///
    /// ```
    /// # use bowline_types::AttributeValue;
    /// assert_eq!(AttributeValue::from("abc").size_bytes(), 3);
    /// ```
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        match self {
            AttributeValue::Text(text) => text.len(),
            AttributeValue::Bytes(bytes) => bytes.len(),
            AttributeValue::DateTime(at) => at.zone.as_ref().map_or(0, String::len),
            AttributeValue::List(list) => {
                let inner = list.iter().map(AttributeValue::size_bytes);
                size_of_val(&list[..]) + inner.sum::<usize>()
            }
            AttributeValue::Map(map) => {
                // The name, and the share of a node.
                let entry = |(name, value): (&String, &AttributeValue)| {
                    name.len() + size_of::<AttributeValue>() + 32 + value.size_bytes()
                };
                map.iter().map(entry).sum()
            }
            _ => 0,
        }
    }

    /// How many lists and maps contain one another in it.
    ///
    /// ```
    /// # use bowline_types::AttributeValue;
    /// assert_eq!(AttributeValue::from(3).depth(), 0);
    /// assert_eq!(AttributeValue::List(vec![AttributeValue::List(Vec::new())]).depth(), 2);
    /// ```
    #[must_use]
    pub fn depth(&self) -> usize {
        let of = |inner: Option<usize>| 1 + inner.unwrap_or(0);
        match self {
            AttributeValue::List(list) => of(list.iter().map(AttributeValue::depth).max()),
            AttributeValue::Map(map) => of(map.values().map(AttributeValue::depth).max()),
            _ => 0,
        }
    }
}

impl PartialEq for AttributeValue {
    fn eq(&self, other: &AttributeValue) -> bool {
        use AttributeValue as V;
        match (self, other) {
            (V::Null, V::Null) => true,
            (V::Bool(a), V::Bool(b)) => a == b,
            (V::Int(a), V::Int(b)) => a == b,
            (V::Float(a), V::Float(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
            (V::Text(a), V::Text(b)) => a == b,
            (V::Bytes(a), V::Bytes(b)) => a == b,
            (V::Date(a), V::Date(b)) => a == b,
            (V::LocalTime(a), V::LocalTime(b)) => a == b,
            (V::Time(a), V::Time(b)) => a == b,
            (V::LocalDateTime(a), V::LocalDateTime(b)) => a == b,
            (V::DateTime(a), V::DateTime(b)) => a == b,
            (V::Duration(a), V::Duration(b)) => a == b,
            (V::List(a), V::List(b)) => a == b,
            (V::Map(a), V::Map(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for AttributeValue {}

/// Text as it is; in lists and maps it is quoted.
impl fmt::Display for AttributeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttributeValue::Null => f.write_str("null"),
            AttributeValue::Bool(value) => write!(f, "{value}"),
            AttributeValue::Int(value) => write!(f, "{value}"),
            AttributeValue::Float(value) => write!(f, "{value:?}"),
            AttributeValue::Text(text) => f.write_str(text),
            AttributeValue::Bytes(bytes) => write!(f, "{}", bytes.escape_ascii()),
            AttributeValue::Date(date) => f.write_str(&show_date(*date)),
            AttributeValue::LocalTime(time) => f.write_str(&show_time(*time)),
            AttributeValue::Time(time) => write!(f, "{time}"),
            AttributeValue::LocalDateTime(at) => f.write_str(&show_datetime(*at)),
            AttributeValue::DateTime(at) => write!(f, "{at}"),
            AttributeValue::Duration(duration) => write!(f, "{duration}"),
            AttributeValue::List(list) => {
                f.write_str("[")?;
                for (at, value) in list.iter().enumerate() {
                    f.write_str(if at == 0 { "" } else { ", " })?;
                    fmt_inner(value, f)?;
                }
                f.write_str("]")
            }
            AttributeValue::Map(map) => {
                f.write_str("{")?;
                for (at, (name, value)) in map.iter().enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    write!(f, "{comma}{name}: ")?;
                    fmt_inner(value, f)?;
                }
                f.write_str("}")
            }
        }
    }
}

fn fmt_inner(value: &AttributeValue, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match value {
        AttributeValue::Text(text) => write!(f, "{text:?}"),
        value => write!(f, "{value}"),
    }
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> AttributeValue {
        AttributeValue::Text(text.to_owned())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> AttributeValue {
        AttributeValue::Text(text)
    }
}

impl From<&String> for AttributeValue {
    fn from(text: &String) -> AttributeValue {
        AttributeValue::Text(text.clone())
    }
}

impl From<bool> for AttributeValue {
    fn from(value: bool) -> AttributeValue {
        AttributeValue::Bool(value)
    }
}

impl From<i32> for AttributeValue {
    fn from(value: i32) -> AttributeValue {
        AttributeValue::Int(value.into())
    }
}

impl From<i64> for AttributeValue {
    fn from(value: i64) -> AttributeValue {
        AttributeValue::Int(value)
    }
}

impl From<u32> for AttributeValue {
    fn from(value: u32) -> AttributeValue {
        AttributeValue::Int(value.into())
    }
}

impl From<f64> for AttributeValue {
    fn from(value: f64) -> AttributeValue {
        AttributeValue::Float(value)
    }
}

impl From<Vec<AttributeValue>> for AttributeValue {
    fn from(list: Vec<AttributeValue>) -> AttributeValue {
        AttributeValue::List(list)
    }
}

/// A value is compared with a text as with the value of that text.
impl PartialEq<str> for AttributeValue {
    fn eq(&self, text: &str) -> bool {
        self.as_text() == Some(text)
    }
}

impl PartialEq<&str> for AttributeValue {
    fn eq(&self, text: &&str) -> bool {
        self.as_text() == Some(*text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_equal_if_all_of_them_is() {
        let nan = AttributeValue::Float(f64::NAN);
        assert_eq!(nan, AttributeValue::Float(-f64::NAN));
        assert_ne!(AttributeValue::Float(0.0), AttributeValue::Float(-0.0));
        assert_ne!(AttributeValue::Int(1), AttributeValue::from("1"));
        let list = |value: AttributeValue| AttributeValue::List(vec![AttributeValue::Null, value]);
        assert_eq!(list(nan.clone()), list(nan));
        assert_ne!(list(AttributeValue::Null), AttributeValue::List(vec![]));
    }

    #[test]
    fn values_have_a_text_form() {
        let map = AttributeValue::Map(BTreeMap::from([
            ("a".to_owned(), AttributeValue::from("x\n")),
            ("b".to_owned(), AttributeValue::from(2.0)),
        ]));
        let list = AttributeValue::List(vec![
            map,
            AttributeValue::Bytes(Bytes::from_static(b"\xff")),
        ]);
        assert_eq!(list.to_string(), r#"[{a: "x\n", b: 2.0}, \xff]"#);
        assert_eq!(list.depth(), 2);
        assert_eq!(
            AttributeValue::Date(civil::date(-44, 3, 15)).to_string(),
            "-0044-03-15"
        );
    }
}
