//! Operators on values. Null in, null out; overflow is an error.

use std::cmp::Ordering;
use std::sync::Arc;

use super::context::Context;
use crate::error::{Class, Detail, Error, Result};
use crate::syntax::ast::Binary;
use crate::temporal;
use crate::value::Value;

/// The same as [`binary`], of values that may become large.
pub(super) fn binary_within(
    operator: Binary,
    a: &Value,
    b: &Value,
    cx: &Context<'_>,
) -> Result<Value> {
    if !matches!(operator, Binary::Add | Binary::Concat) {
        return binary(operator, a, b);
    }
    cx.room_for(own_bytes(a) + own_bytes(b))?;
    let joined = binary(operator, a, b)?;
    cx.made(&joined)?;
    Ok(joined)
}

/// What a text or a list adds to a longer one, without what the elements share.
fn own_bytes(value: &Value) -> u64 {
    let bytes = match value {
        Value::Text(text) => text.len(),
        Value::List(list) => list.len() * size_of::<Value>(),
        _ => 0,
    };
    bytes as u64
}

/// Any binary operator but AND, OR, XOR and IN.
pub(super) fn binary(operator: Binary, a: &Value, b: &Value) -> Result<Value> {
    Ok(match operator {
        Binary::Equal => a.equals(b).into(),
        Binary::NotEqual => a.equals(b).map(|equal| !equal).into(),
        Binary::Less => compare(a, b, Ordering::is_lt),
        Binary::LessEqual => compare(a, b, Ordering::is_le),
        Binary::Greater => compare(a, b, Ordering::is_gt),
        Binary::GreaterEqual => compare(a, b, Ordering::is_ge),
        Binary::StartsWith => text(a, b, |a, b| a.starts_with(b)),
        Binary::EndsWith => text(a, b, |a, b| a.ends_with(b)),
        Binary::Contains => text(a, b, |a, b| a.contains(b)),
        Binary::Add => add(a, b)?,
        Binary::Concat => concat(a, b)?,
        Binary::Subtract
        | Binary::Multiply
        | Binary::Divide
        | Binary::Remainder
        | Binary::Power => {
            if a.is_null() || b.is_null() {
                return Ok(Value::Null);
            }
            arithmetic(operator, a, b)?
        }
        Binary::And | Binary::Or | Binary::Xor | Binary::In | Binary::Matches => {
            unreachable!("the evaluator has these")
        }
    })
}

fn compare(a: &Value, b: &Value, holds: impl Fn(Ordering) -> bool) -> Value {
    match a.compares(b) {
        None => Value::Null,
        Some(ordering) => Value::Bool(ordering.is_some_and(holds)),
    }
}

fn text(a: &Value, b: &Value, holds: impl Fn(&str, &str) -> bool) -> Value {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => Value::Bool(holds(a, b)),
        _ => Value::Null,
    }
}

fn add(a: &Value, b: &Value) -> Result<Value> {
    if a.is_null() || b.is_null() {
        return Ok(Value::Null);
    }
    Ok(match (a, b) {
        (Value::List(a), Value::List(b)) => {
            Value::list(a.iter().chain(b.iter()).cloned().collect())
        }
        (Value::List(list), other) => {
            Value::list(list.iter().cloned().chain([other.clone()]).collect())
        }
        (other, Value::List(list)) => Value::list(
            [other.clone()]
                .into_iter()
                .chain(list.iter().cloned())
                .collect(),
        ),
        (Value::Text(a), Value::Text(b)) => joined(a, b),
        (Value::Text(a), Value::Int(_) | Value::Float(_)) => joined(a, &b.to_string()),
        (Value::Int(_) | Value::Float(_), Value::Text(b)) => joined(&a.to_string(), b),
        _ => arithmetic(Binary::Add, a, b)?,
    })
}

fn concat(a: &Value, b: &Value) -> Result<Value> {
    match (a, b) {
        (Value::Null, _) | (_, Value::Null) => Ok(Value::Null),
        (Value::List(a), Value::List(b)) => {
            Ok(Value::list(a.iter().chain(b.iter()).cloned().collect()))
        }
        (Value::Text(a), Value::Text(b)) => Ok(joined(a, b)),
        _ => Err(mismatch("||", a, b)),
    }
}

fn joined(a: &str, b: &str) -> Value {
    Value::Text(Arc::from([a, b].concat()))
}

fn mismatch(operator: &str, a: &Value, b: &Value) -> Error {
    Error::wrong_type(format!(
        "`{operator}` cannot take {} and {}",
        a.type_name(),
        b.type_name()
    ))
}

fn arithmetic(operator: Binary, a: &Value, b: &Value) -> Result<Value> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => integers(operator, *a, *b),
        (Value::Int(a), Value::Float(b)) => Ok(Value::Float(floats(operator, *a as f64, *b))),
        (Value::Float(a), Value::Int(b)) => Ok(Value::Float(floats(operator, *a, *b as f64))),
        (Value::Float(a), Value::Float(b)) => Ok(Value::Float(floats(operator, *a, *b))),
        _ => temporal::calculate(operator, a, b)?.ok_or_else(|| mismatch(symbol(operator), a, b)),
    }
}

fn symbol(operator: Binary) -> &'static str {
    match operator {
        Binary::Add => "+",
        Binary::Subtract => "-",
        Binary::Multiply => "*",
        Binary::Divide => "/",
        Binary::Remainder => "%",
        _ => "^",
    }
}

fn integers(operator: Binary, a: i64, b: i64) -> Result<Value> {
    let result = match operator {
        Binary::Add => a.checked_add(b),
        Binary::Subtract => a.checked_sub(b),
        Binary::Multiply => a.checked_mul(b),
        Binary::Divide | Binary::Remainder if b == 0 => {
            let message = "an integer cannot be divided by zero";
            return Err(
                Error::runtime(Class::ArithmeticError, Detail::DivisionByZero, message)
                    .help("guard it with CASE, or divide floats"),
            );
        }
        Binary::Divide => a.checked_div(b),
        // Of the least integer and -1 it is 0, though the quotient does not fit.
        Binary::Remainder => Some(a.wrapping_rem(b)),
        _ => return Ok(Value::Float((a as f64).powf(b as f64))),
    };
    result
        .map(Value::Int)
        .ok_or_else(|| overflow(operator, a, b))
}

fn overflow(operator: Binary, a: i64, b: i64) -> Error {
    let message = format!("{a} {} {b} does not fit into 64 bits", symbol(operator));
    Error::runtime(Class::ArithmeticError, Detail::IntegerOverflow, message)
        .help("convert one operand with toFloat")
}

fn floats(operator: Binary, a: f64, b: f64) -> f64 {
    match operator {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        Binary::Divide => a / b,
        Binary::Remainder => a % b,
        _ => a.powf(b),
    }
}

/// `-value`.
pub(super) fn negate(value: &Value) -> Result<Value> {
    match value {
        Value::Null => Ok(Value::Null),
        Value::Int(value) => value
            .checked_neg()
            .map(Value::Int)
            .ok_or_else(|| overflow(Binary::Subtract, 0, *value)),
        Value::Float(value) => Ok(Value::Float(-value)),
        Value::Duration(duration) => temporal::negate(duration).map(Value::Duration),
        other => Err(Error::wrong_type(format!(
            "{} has no negative",
            other.type_name()
        ))),
    }
}
