//! What is known of types before a query runs: what operators take and yield.

use crate::error::{Class, Detail, Error, Result, Span};
use crate::syntax::ast::Binary;
use crate::value::{Name, Type, Value};

/// Fails if the type is known to be none of those wanted.
pub(super) fn wants(known: Type, wanted: &[Type], what: &str, span: Span) -> Result<()> {
    if wanted.is_empty() || wanted.iter().any(|wanted| known.may_be(*wanted)) {
        return Ok(());
    }
    let message = format!("{what} is needed here, not {}", known.name());
    Err(Error::syntax(Detail::InvalidArgumentType, message, span))
}

pub(super) fn indexable(known: Type, holders: &[Type], span: Span) -> Result<()> {
    if holders.iter().any(|holder| known.may_be(*holder)) {
        return Ok(());
    }
    let message = format!("{} cannot be indexed", known.name());
    Err(Error::compile(
        Class::TypeError,
        Detail::InvalidArgumentType,
        message,
        span,
    ))
}

/// Fails if a value of the type cannot have properties or components.
pub(super) fn property_holder(known: Type, span: Span) -> Result<()> {
    match known {
        // openCypher gives this one another class.
        Type::Path => Err(Error::syntax(
            Detail::InvalidArgumentType,
            "a path has no properties",
            span,
        )
        .help("use nodes(path) or relationships(path)")),
        Type::Bool
        | Type::Int
        | Type::Float
        | Type::Number
        | Type::Text
        | Type::List
        | Type::Relationships => {
            let message = format!("{} has no properties", known.name());
            Err(Error::compile(
                Class::TypeError,
                Detail::InvalidArgumentType,
                message,
                span,
            ))
        }
        _ => Ok(()),
    }
}

/// The type of a component of a temporal value.
pub(super) fn component_type(holder: Type, key: &Name) -> Type {
    match holder {
        Type::Date
        | Type::LocalTime
        | Type::Time
        | Type::LocalDateTime
        | Type::DateTime
        | Type::Duration => match &**key {
            "timezone" | "offset" => Type::Text,
            _ => Type::Int,
        },
        _ => Type::Any,
    }
}

pub(super) fn addition(a: Type, b: Type, _span: Span) -> Result<Type> {
    use Type::{Any, Float, Int, List, Null, Number, Relationships, Text};
    Ok(match (a, b) {
        (Any | Null, _) | (_, Any | Null) => {
            if a == List || b == List {
                List
            } else {
                Any
            }
        }
        (List | Relationships, _) | (_, List | Relationships) => List,
        (Text, _) | (_, Text) => Text,
        (Int, Int) => Int,
        (Int | Float | Number, Float) | (Float, Int | Number) => Float,
        (Int | Number, Number) | (Number, Int) => Number,
        _ => Any,
    })
}

pub(super) fn arithmetic(
    operator: Binary,
    a: Type,
    b: Type,
    at_a: Span,
    at_b: Span,
) -> Result<Type> {
    let temporal = [
        Type::Date,
        Type::LocalTime,
        Type::Time,
        Type::LocalDateTime,
        Type::DateTime,
        Type::Duration,
    ];
    if temporal.contains(&a) || temporal.contains(&b) {
        return Ok(Type::Any);
    }
    wants(a, &[Type::Number, Type::Duration], "a number", at_a)?;
    wants(b, &[Type::Number, Type::Duration], "a number", at_b)?;
    Ok(match (a, b) {
        _ if operator == Binary::Power => Type::Float,
        (Type::Int, Type::Int) => Type::Int,
        (Type::Float, Type::Int | Type::Float) | (Type::Int, Type::Float) => Type::Float,
        (Type::Any | Type::Null, _) | (_, Type::Any | Type::Null) => Type::Any,
        _ => Type::Number,
    })
}

pub(super) fn type_of(value: &Value) -> Type {
    match value {
        Value::Null => Type::Null,
        Value::Bool(_) => Type::Bool,
        Value::Int(_) => Type::Int,
        Value::Float(_) => Type::Float,
        Value::Text(_) => Type::Text,
        _ => Type::Any,
    }
}
