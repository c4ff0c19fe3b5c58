//! Types of values, as far as they are known before a query runs.

/// What is known of an expression's value. Null belongs to every type.
///
/// ```
/// use bowline_query::Type;
///
/// assert!(Type::Int.may_be(Type::Number));
/// assert!(!Type::Text.may_be(Type::Number));
/// assert!(Type::Any.may_be(Type::Node));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the variants of Value")]
pub enum Type {
    /// Nothing is known.
    #[default]
    Any,
    Null,
    Bool,
    Int,
    Float,
    /// An integer or a float.
    Number,
    Text,
    Bytes,
    Date,
    LocalTime,
    Time,
    LocalDateTime,
    DateTime,
    Duration,
    List,
    /// The list of relationships of a pattern of variable length.
    Relationships,
    Map,
    Node,
    Relationship,
    Path,
}

impl Type {
    /// Whether a value of type `self` may be one of type `wanted`.
    pub fn may_be(self, wanted: Type) -> bool {
        match (self, wanted) {
            (Type::Any | Type::Null, _) | (_, Type::Any) => true,
            (Type::Int | Type::Float | Type::Number, Type::Number)
            | (Type::Number, Type::Int | Type::Float)
            | (Type::Relationships, Type::List)
            | (Type::List, Type::Relationships) => true,
            (a, b) => a == b,
        }
    }

    /// The type that covers both.
    pub(crate) fn or(self, other: Type) -> Type {
        match (self, other) {
            (a, b) if a == b => a,
            (Type::Null, other) | (other, Type::Null) => other,
            (a, b)
                if a.may_be(Type::Number)
                    && b.may_be(Type::Number)
                    && a != Type::Any
                    && b != Type::Any =>
            {
                Type::Number
            }
            _ => Type::Any,
        }
    }

    /// The name that errors show.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Type::Any => "Any",
            Type::Null => "Null",
            Type::Bool => "Boolean",
            Type::Int => "Integer",
            Type::Float => "Float",
            Type::Number => "Number",
            Type::Text => "String",
            Type::Bytes => "Bytes",
            Type::Date => "Date",
            Type::LocalTime => "LocalTime",
            Type::Time => "Time",
            Type::LocalDateTime => "LocalDateTime",
            Type::DateTime => "DateTime",
            Type::Duration => "Duration",
            Type::List => "List",
            Type::Relationships => "List of relationships",
            Type::Map => "Map",
            Type::Node => "Node",
            Type::Relationship => "Relationship",
            Type::Path => "Path",
        }
    }
}
