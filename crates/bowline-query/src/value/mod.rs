//! Values of queries: what properties hold, what expressions yield, what rows contain.
//!
//! Cypher has three relations over values, which differ in what they say of nulls and of NaN:
//!
//! ```text
//!   relation      used by                         null = null   NaN = NaN   1 = 1.0   answers
//!   equality      =, IN, MATCH                    unknown       no          yes       yes, no, unknown
//!   equivalence   DISTINCT, grouping, UNION       yes           yes         yes       yes, no
//!   order         ORDER BY, min, max              equal         equal       equal     less, equal, greater
//! ```
//!
//! [`equality`](Value::equals) and comparison are in `compare`, the total order and equivalence in `order`, the text
//! form in `show`. Values are cheap to clone: what is long is shared. Lists and maps, which hold other values, are in `nested`.

mod attribute;
mod compare;
mod entity;
mod kind;
mod nested;
mod order;
mod show;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::ZonedDateTime;
use jiff::civil;

pub use entity::{Node, NodeRecord, Path, Relationship, RelationshipId};
pub use kind::Type;
pub use nested::Nested;
pub(crate) use nested::{DEPTH_MAX, LARGE_BYTES, Watch};
pub use order::Equivalent;

use bowline_types::{Duration, OffsetTime};

/// A name of a kind, a property or a variable. Cloning shares it.
pub type Name = Arc<str>;

/// Properties by name.
pub type Properties = BTreeMap<Name, Value>;

/// A value of Cypher.
///
/// ```
/// use bowline_query::Value;
///
/// let list = Value::list(vec![Value::Int(1), Value::from("one"), Value::Null]);
/// assert_eq!(list.to_string(), "[1, 'one', null]");
/// assert_eq!(Value::Int(1).equals(&Value::Float(1.0)), Some(true));
/// assert_eq!(Value::Int(1).equals(&Value::Null), None);
/// ```
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// Nothing is known.
    #[default]
    Null,
    /// True or false.
    Bool(bool),
    /// A 64-bit integer. Arithmetic that overflows is an error.
    Int(i64),
    /// A 64-bit float.
    Float(f64),
    /// Text.
    Text(Arc<str>),
    /// Bytes, which openCypher does not have: they come from properties and parameters.
    Bytes(Arc<[u8]>),
    /// A date.
    Date(civil::Date),
    /// A time of day.
    LocalTime(civil::Time),
    /// A time of day, with an offset from UTC.
    Time(OffsetTime),
    /// A date and a time of day.
    LocalDateTime(civil::DateTime),
    /// An instant, in a time zone.
    DateTime(Arc<ZonedDateTime>),
    /// Months, days, seconds and nanoseconds, each counted by itself.
    Duration(Duration),
    /// A list.
    List(Nested<Vec<Value>>),
    /// A map.
    Map(Nested<Properties>),
    /// A node.
    Node(Node),
    /// A relationship.
    Relationship(Relationship),
    /// A path.
    Path(Arc<Path>),
}

impl Value {
    /// A list of these values.
    pub fn list(values: Vec<Value>) -> Value {
        Value::List(nested::list(values))
    }

    /// A map of these entries.
    pub fn map(entries: Properties) -> Value {
        Value::Map(nested::map(entries))
    }

    /// A datetime.
    pub fn datetime(zoned: ZonedDateTime) -> Value {
        Value::DateTime(Arc::new(zoned))
    }

    /// Whether this is [`Value::Null`].
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The name of the type, as errors show it.
    ///
    /// ```
    /// assert_eq!(bowline_query::Value::Int(1).type_name(), "Integer");
    /// ```
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "Null",
            Value::Bool(_) => "Boolean",
            Value::Int(_) => "Integer",
            Value::Float(_) => "Float",
            Value::Text(_) => "String",
            Value::Bytes(_) => "Bytes",
            Value::Date(_) => "Date",
            Value::LocalTime(_) => "LocalTime",
            Value::Time(_) => "Time",
            Value::LocalDateTime(_) => "LocalDateTime",
            Value::DateTime(_) => "DateTime",
            Value::Duration(_) => "Duration",
            Value::List(_) => "List",
            Value::Map(_) => "Map",
            Value::Node(_) => "Node",
            Value::Relationship(_) => "Relationship",
            Value::Path(_) => "Path",
        }
    }

    /// About how many bytes of memory the value takes if it shares nothing, for the limits of sorts and aggregations.
    pub(crate) fn footprint(&self) -> u64 {
        let inner = match self {
            Value::Text(text) => text.len() as u64,
            Value::Bytes(bytes) => bytes.len() as u64,
            Value::List(list) => list.bytes(),
            Value::Map(map) => map.bytes(),
            Value::Path(path) => 48 * (path.relationships.len() as u64 + 1),
            _ => 0,
        };
        inner.saturating_add(size_of::<Value>() as u64)
    }

    /// Whether a property may hold the value: no entity, and no list of anything but simple values.
    pub(crate) fn is_storable(&self) -> bool {
        match self {
            Value::Map(_) | Value::Node(_) | Value::Relationship(_) | Value::Path(_) => false,
            Value::List(list) => list
                .iter()
                .all(|v| !matches!(v, Value::List(_)) && v.is_storable()),
            _ => true,
        }
    }
}

/// Equivalence, as of `DISTINCT`: null equals null.
impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.order(other).is_eq()
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Int(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value::Float(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::Text(value.into())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Value {
        Value::Text(value.into())
    }
}

impl From<Option<bool>> for Value {
    fn from(value: Option<bool>) -> Value {
        value.map_or(Value::Null, Value::Bool)
    }
}
