//! Functions of numbers, and conversions.

use super::row::{Env, Function, function, wrong};
use crate::error::{Class, Detail, Error, Result};
use crate::value::{Type, Value};

const NUMBER: &[&[Type]] = &[&[Type::Number]];

pub(super) const FUNCTIONS: &[Function] = &[
    function("abs", 1, 1, NUMBER, Type::Number, abs),
    function("sign", 1, 1, NUMBER, Type::Int, sign),
    function("ceil", 1, 1, NUMBER, Type::Float, |_, v| {
        float("ceil", v, f64::ceil)
    }),
    function("floor", 1, 1, NUMBER, Type::Float, |_, v| {
        float("floor", v, f64::floor)
    }),
    function("round", 1, 1, NUMBER, Type::Float, |_, v| {
        float("round", v, rounded)
    }),
    function("sqrt", 1, 1, NUMBER, Type::Float, |_, v| {
        float("sqrt", v, f64::sqrt)
    }),
    function("exp", 1, 1, NUMBER, Type::Float, |_, v| {
        float("exp", v, f64::exp)
    }),
    function("log", 1, 1, NUMBER, Type::Float, |_, v| {
        float("log", v, f64::ln)
    }),
    function("log10", 1, 1, NUMBER, Type::Float, |_, v| {
        float("log10", v, f64::log10)
    }),
    function("sin", 1, 1, NUMBER, Type::Float, |_, v| {
        float("sin", v, f64::sin)
    }),
    function("cos", 1, 1, NUMBER, Type::Float, |_, v| {
        float("cos", v, f64::cos)
    }),
    function("tan", 1, 1, NUMBER, Type::Float, |_, v| {
        float("tan", v, f64::tan)
    }),
    function("cot", 1, 1, NUMBER, Type::Float, |_, v| {
        float("cot", v, |x| 1.0 / x.tan())
    }),
    function("asin", 1, 1, NUMBER, Type::Float, |_, v| {
        float("asin", v, f64::asin)
    }),
    function("acos", 1, 1, NUMBER, Type::Float, |_, v| {
        float("acos", v, f64::acos)
    }),
    function("atan", 1, 1, NUMBER, Type::Float, |_, v| {
        float("atan", v, f64::atan)
    }),
    function("atan2", 2, 2, NUMBER, Type::Float, atan2),
    function("degrees", 1, 1, NUMBER, Type::Float, |_, v| {
        float("degrees", v, f64::to_degrees)
    }),
    function("radians", 1, 1, NUMBER, Type::Float, |_, v| {
        float("radians", v, f64::to_radians)
    }),
    function("haversin", 1, 1, NUMBER, Type::Float, |_, v| {
        float("haversin", v, |x| (1.0 - x.cos()) / 2.0)
    }),
    function("isNaN", 1, 1, NUMBER, Type::Bool, is_nan),
    function("pi", 0, 0, &[], Type::Float, |_, _| {
        Ok(Value::Float(std::f64::consts::PI))
    }),
    function("e", 0, 0, &[], Type::Float, |_, _| {
        Ok(Value::Float(std::f64::consts::E))
    }),
    function("rand", 0, 0, &[], Type::Float, |env, _| {
        Ok(Value::Float((env.random)()))
    }),
    function("toInteger", 1, 1, &[], Type::Int, to_integer),
    function("toFloat", 1, 1, &[], Type::Float, to_float),
    function("toBoolean", 1, 1, &[], Type::Bool, to_boolean),
];

fn number(name: &str, value: &Value) -> Result<f64> {
    match value {
        Value::Int(value) => Ok(*value as f64),
        Value::Float(value) => Ok(*value),
        other => Err(wrong(name, "a number", other)),
    }
}

fn float(name: &str, values: &[Value], code: fn(f64) -> f64) -> Result<Value> {
    Ok(Value::Float(code(number(name, &values[0])?)))
}

/// The nearest whole number; of two that are as near, the greater one. `x + 0.5` would round by itself, so the part behind the
/// point is looked at, which is exact.
fn rounded(x: f64) -> f64 {
    // Of -0.0 the sum is 0.0.
    let whole = x.floor() + 0.0;
    if x - whole < 0.5 { whole } else { whole + 1.0 }
}

fn abs(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    match &values[0] {
        Value::Int(value) => value.checked_abs().map(Value::Int).ok_or_else(|| {
            let message = format!("the magnitude of {value} does not fit into 64 bits");
            Error::runtime(Class::ArithmeticError, Detail::IntegerOverflow, message)
        }),
        other => Ok(Value::Float(number("abs", other)?.abs())),
    }
}

fn sign(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    let value = number("sign", &values[0])?;
    Ok(Value::Int(if value > 0.0 {
        1
    } else if value < 0.0 {
        -1
    } else {
        0
    }))
}

fn atan2(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    Ok(Value::Float(
        number("atan2", &values[0])?.atan2(number("atan2", &values[1])?),
    ))
}

fn is_nan(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    Ok(Value::Bool(number("isNaN", &values[0])?.is_nan()))
}

fn invalid(name: &str, value: &Value) -> Error {
    let message = format!("`{name}` cannot convert {}", value.type_name());
    Error::runtime(Class::TypeError, Detail::InvalidArgumentValue, message)
}

fn to_integer(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    Ok(match &values[0] {
        Value::Int(value) => Value::Int(*value),
        Value::Float(value) => truncated(*value),
        Value::Bool(value) => Value::Int(i64::from(*value)),
        Value::Text(text) => match text.trim().parse::<i64>() {
            Ok(value) => Value::Int(value),
            Err(_) => float_of(text.trim()).map_or(Value::Null, truncated),
        },
        other => return Err(invalid("toInteger", other)),
    })
}

/// The integer part, or null if it does not fit.
fn truncated(value: f64) -> Value {
    // 2^63, the least that is too great. Its negative is the least integer.
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&value) {
        Value::Int(value as i64)
    } else {
        Value::Null
    }
}

/// The number of a text. Rust also takes `inf`, `nan` and both names in any case, which Cypher does not.
fn float_of(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_named = matches!(unsigned, "Infinity" | "NaN");
    let begins_as_number = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if !is_named && !begins_as_number {
        return None;
    }
    text.parse().ok()
}

fn to_float(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    Ok(match &values[0] {
        Value::Int(value) => Value::Float(*value as f64),
        Value::Float(value) => Value::Float(*value),
        Value::Text(text) => float_of(text.trim()).map_or(Value::Null, Value::Float),
        other => return Err(invalid("toFloat", other)),
    })
}

fn to_boolean(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    Ok(match &values[0] {
        Value::Bool(value) => Value::Bool(*value),
        Value::Text(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => Value::Null,
        },
        Value::Int(value) => Value::Bool(*value != 0),
        other => return Err(invalid("toBoolean", other)),
    })
}
