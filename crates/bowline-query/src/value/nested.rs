//! Lists and maps, which hold other values, and what is known of a value without looking through it.
//!
//! Whatever walks through a value recurses, its drop included: it needs as much stack as the value is deep, and takes as long as
//! the value is large with all that it shares. So a list or a map is measured when it is made, from the measures of what it
//! holds. It is never changed afterwards.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use super::{Name, Properties, Value};

/// So many lists and maps may contain one another in a value that an expression makes.
pub(crate) const DEPTH_MAX: u32 = 200;

/// A value from this size on is counted by itself.
pub(crate) const LARGE_BYTES: u64 = 64 << 10;

/// What a [`Value::List`] or a [`Value::Map`] holds. Cloning shares it, and it cannot be changed.
///
/// ```
/// use bowline_query::{Nested, Value};
///
/// let length = |list: &Nested<Vec<Value>>| list.len();
/// let Value::List(list) = Value::list(vec![Value::Int(1), Value::Null]) else { unreachable!() };
/// assert_eq!((length(&list), &list[0]), (2, &Value::Int(1)));
/// ```
pub struct Nested<T>(Arc<Measured<T>>);

/// What is held, and how much that is.
pub(crate) struct Measured<T> {
    held: T,
    /// So many lists and maps contain one another, this one included.
    depth: u32,
    /// About how many bytes it takes if nothing is shared.
    bytes: u64,
}

impl<T> Nested<T> {
    pub(super) fn depth(&self) -> u32 {
        self.0.depth
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes
    }
}

impl<T> Clone for Nested<T> {
    fn clone(&self) -> Nested<T> {
        Nested(Arc::clone(&self.0))
    }
}

impl<T> Deref for Nested<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.held
    }
}

impl<T: fmt::Debug> fmt::Debug for Nested<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.held.fmt(f)
    }
}

/// The depth and the bytes of some values and of one more.
fn with((depth, bytes): (u32, u64), value: &Value) -> (u32, u64) {
    (
        depth.max(value.depth()),
        bytes.saturating_add(value.footprint()),
    )
}

fn measured<T>(held: T, (depth, bytes): (u32, u64)) -> Nested<T> {
    Nested(Arc::new(Measured {
        held,
        depth: depth.saturating_add(1),
        bytes,
    }))
}

pub(super) fn list(values: Vec<Value>) -> Nested<Vec<Value>> {
    let inner = values.iter().fold((0, 0), with);
    measured(values, inner)
}

pub(super) fn map(entries: Properties) -> Nested<Properties> {
    let entry = |(depth, bytes): (u32, u64), (name, value): (&Name, &Value)| {
        with((depth, bytes.saturating_add(entry_bytes(name))), value)
    };
    let inner = entries.iter().fold((0, 0), entry);
    measured(entries, inner)
}

/// What an entry of a map takes beside its value.
fn entry_bytes(name: &str) -> u64 {
    48 + name.len() as u64
}

/// Tells when a value is gone. The memory of a list or a map is not kept meanwhile, that of a text is.
pub(crate) enum Watch {
    Text(Weak<str>),
    List(Weak<Measured<Vec<Value>>>),
    Map(Weak<Measured<Properties>>),
}

impl Watch {
    /// Watches a text, a list or a map.
    pub(crate) fn of(value: &Value) -> Option<Watch> {
        match value {
            Value::Text(text) => Some(Watch::Text(Arc::downgrade(text))),
            Value::List(list) => Some(Watch::List(Arc::downgrade(&list.0))),
            Value::Map(map) => Some(Watch::Map(Arc::downgrade(&map.0))),
            _ => None,
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        let holders = match self {
            Watch::Text(text) => text.strong_count(),
            Watch::List(list) => list.strong_count(),
            Watch::Map(map) => map.strong_count(),
        };
        holders == 0
    }
}

impl Value {
    /// How many lists and maps contain one another in it.
    pub(crate) fn depth(&self) -> u32 {
        match self {
            Value::List(list) => list.depth(),
            Value::Map(map) => map.depth(),
            _ => 0,
        }
    }

    /// Whether it is a text, a list or a map that is counted by itself.
    pub(crate) fn is_large(&self) -> bool {
        let bytes = match self {
            Value::Text(text) => text.len() as u64,
            Value::List(list) => list.bytes(),
            Value::Map(map) => map.bytes(),
            _ => return false,
        };
        bytes >= LARGE_BYTES
    }

    /// Whether somebody else holds the same text, list or map.
    pub(crate) fn is_shared(&self) -> bool {
        let holders = match self {
            Value::Text(text) => Arc::strong_count(text),
            Value::List(list) => Arc::strong_count(&list.0),
            Value::Map(map) => Arc::strong_count(&map.0),
            _ => 1,
        };
        holders > 1
    }

    /// Where a text, a list or a map is: no other has the place while this one is held or watched.
    pub(crate) fn place(&self) -> Option<usize> {
        match self {
            Value::Text(text) => Some(Arc::as_ptr(text).addr()),
            Value::List(list) => Some(Arc::as_ptr(&list.0).addr()),
            Value::Map(map) => Some(Arc::as_ptr(&map.0).addr()),
            _ => None,
        }
    }

    /// About how many bytes it takes without the values in it for which `is_counted` holds.
    pub(crate) fn footprint_without(&self, is_counted: impl Fn(&Value) -> bool) -> u64 {
        let part = |value: &Value| match is_counted(value) {
            true => size_of::<Value>() as u64,
            false => value.footprint(),
        };
        let inner = match self {
            Value::List(list) => list.iter().map(part).fold(0, u64::saturating_add),
            Value::Map(map) => {
                let entry =
                    |(name, value): (&Name, &Value)| entry_bytes(name).saturating_add(part(value));
                map.iter().map(entry).fold(0, u64::saturating_add)
            }
            _ => return self.footprint(),
        };
        inner.saturating_add(size_of::<Value>() as u64)
    }
}
