//! The total order over all values, and equivalence.
//!
//! Ascending: maps, nodes, relationships, lists, paths, temporal values, bytes, texts, booleans, numbers, null.
//! NaN is the largest number. Equivalence is equality in this order; [`Equivalent`] hashes by it.

use crate::calendar::Calculate as _;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use super::Value;
use super::compare::int_with_float;

impl Value {
    /// The order of `ORDER BY`.
    ///
    /// ```
    /// use bowline_query::Value;
    ///
    /// assert!(Value::from("z").order(&Value::Int(1)).is_lt());
    /// assert!(Value::Int(1).order(&Value::Null).is_lt());
    /// ```
    pub fn order(&self, other: &Value) -> Ordering {
        match (self, other) {
            (Value::Null, Value::Null) => Ordering::Equal,
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::Float(a), Value::Float(b)) => order_floats(*a, *b),
            (Value::Int(a), Value::Float(b)) => int_with_float(*a, *b).unwrap_or(Ordering::Less),
            (Value::Float(a), Value::Int(b)) => {
                int_with_float(*b, *a).map_or(Ordering::Greater, Ordering::reverse)
            }
            (Value::Text(a), Value::Text(b)) => a.cmp(b),
            (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
            (Value::Date(a), Value::Date(b)) => a.cmp(b),
            (Value::LocalTime(a), Value::LocalTime(b)) => a.cmp(b),
            (Value::Time(a), Value::Time(b)) => a.cmp(b),
            (Value::LocalDateTime(a), Value::LocalDateTime(b)) => a.cmp(b),
            (Value::DateTime(a), Value::DateTime(b)) => a
                .timestamp()
                .cmp(&b.timestamp())
                .then_with(|| a.offset().cmp(&b.offset()))
                .then_with(|| a.time_zone().iana_name().cmp(&b.time_zone().iana_name())),
            (Value::Duration(a), Value::Duration(b)) => a.order(b),
            (Value::List(a), Value::List(b)) => order_lists(a, b),
            (Value::Map(a), Value::Map(b)) => a
                .keys()
                .cmp(b.keys())
                .then_with(|| order_all(a.values(), b.values())),
            (Value::Node(a), Value::Node(b)) => a.id.cmp(&b.id),
            (Value::Relationship(a), Value::Relationship(b)) => a.id.cmp(&b.id),
            (Value::Path(a), Value::Path(b)) => {
                let nodes =
                    |path: &super::Path| path.nodes.iter().map(|n| n.id).collect::<Vec<_>>();
                let relationships = |path: &super::Path| {
                    path.relationships
                        .iter()
                        .map(|r| r.id.clone())
                        .collect::<Vec<_>>()
                };
                nodes(a)
                    .cmp(&nodes(b))
                    .then_with(|| relationships(a).cmp(&relationships(b)))
            }
            _ => self.rank().cmp(&other.rank()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Value::Map(_) => 0,
            Value::Node(_) => 1,
            Value::Relationship(_) => 2,
            Value::List(_) => 3,
            Value::Path(_) => 4,
            Value::DateTime(_) => 5,
            Value::LocalDateTime(_) => 6,
            Value::Date(_) => 7,
            Value::Time(_) => 8,
            Value::LocalTime(_) => 9,
            Value::Duration(_) => 10,
            Value::Bytes(_) => 11,
            Value::Text(_) => 12,
            Value::Bool(_) => 13,
            Value::Int(_) | Value::Float(_) => 14,
            Value::Null => 15,
        }
    }
}

fn order_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b)
        .unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn order_lists(a: &[Value], b: &[Value]) -> Ordering {
    order_all(a.iter(), b.iter())
}

fn order_all<'a>(
    mut a: impl Iterator<Item = &'a Value>,
    mut b: impl Iterator<Item = &'a Value>,
) -> Ordering {
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(x), Some(y)) => match x.order(y) {
                Ordering::Equal => {}
                unequal => return unequal,
            },
        }
    }
}

/// Values as the key of a group: equal and hashed by equivalence.
///
/// ```
/// use std::collections::HashSet;
/// use bowline_query::{Equivalent, Value};
///
/// let mut groups = HashSet::new();
/// groups.insert(Equivalent(vec![Value::Int(1)]));
/// assert!(!groups.insert(Equivalent(vec![Value::Float(1.0)])));
/// ```
#[derive(Clone, Debug)]
pub struct Equivalent(pub Vec<Value>);

impl PartialEq for Equivalent {
    fn eq(&self, other: &Equivalent) -> bool {
        order_lists(&self.0, &other.0).is_eq()
    }
}

impl Eq for Equivalent {}

impl Hash for Equivalent {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for value in &self.0 {
            hash(value, state);
        }
    }
}

fn hash<H: Hasher>(value: &Value, state: &mut H) {
    value.rank().hash(state);
    match value {
        Value::Null => {}
        Value::Bool(value) => value.hash(state),
        // Equal numbers have equal bits as floats; unequal ones may collide, which costs time only.
        Value::Int(value) => (*value as f64).to_bits().hash(state),
        Value::Float(value) if value.is_nan() => 0u64.hash(state),
        Value::Float(value) => (value + 0.0).to_bits().hash(state),
        Value::Text(text) => text.hash(state),
        Value::Bytes(bytes) => bytes.hash(state),
        Value::Date(date) => date.hash(state),
        Value::LocalTime(time) => time.hash(state),
        Value::Time(time) => time.hash(state),
        Value::LocalDateTime(datetime) => datetime.hash(state),
        Value::DateTime(zoned) => zoned.timestamp().hash(state),
        Value::Duration(duration) => duration.hash(state),
        Value::List(list) => list.iter().for_each(|value| hash(value, state)),
        Value::Map(map) => map.iter().for_each(|(key, value)| {
            key.hash(state);
            hash(value, state);
        }),
        Value::Node(node) => node.id.hash(state),
        Value::Relationship(relationship) => relationship.id.hash(state),
        Value::Path(path) => {
            path.nodes.iter().for_each(|node| node.id.hash(state));
            path.relationships
                .iter()
                .for_each(|relationship| relationship.id.hash(state));
        }
    }
}
