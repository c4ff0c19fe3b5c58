//! Functions of text.

use super::row::{Env, Function, function, wrong};
use crate::calendar::show_zoned;
use crate::error::{Class, Detail, Error, Result};
use crate::value::{LARGE_BYTES, Type, Value};
use bowline_types::{show_date, show_datetime, show_time};

const TEXT: &[&[Type]] = &[&[Type::Text]];
const PART: &[&[Type]] = &[&[Type::Text], &[Type::Int]];

pub(super) const FUNCTIONS: &[Function] = &[
    function("toUpper", 1, 1, TEXT, Type::Text, |_, v| {
        map("toUpper", v, str::to_uppercase)
    }),
    function("toLower", 1, 1, TEXT, Type::Text, |_, v| {
        map("toLower", v, str::to_lowercase)
    }),
    function("trim", 1, 1, TEXT, Type::Text, |_, v| {
        map("trim", v, |t| t.trim().to_owned())
    }),
    function("lTrim", 1, 1, TEXT, Type::Text, |_, v| {
        map("lTrim", v, |t| t.trim_start().to_owned())
    }),
    function("rTrim", 1, 1, TEXT, Type::Text, |_, v| {
        map("rTrim", v, |t| t.trim_end().to_owned())
    }),
    function("replace", 3, 3, TEXT, Type::Text, replace),
    function("split", 2, 2, TEXT, Type::List, split),
    function("substring", 2, 3, PART, Type::Text, substring),
    function("left", 2, 2, PART, Type::Text, left),
    function("right", 2, 2, PART, Type::Text, right),
    function("char_length", 1, 1, TEXT, Type::Int, length),
    function("character_length", 1, 1, TEXT, Type::Int, length),
    function("toString", 1, 1, &[], Type::Text, to_string),
];

fn text<'v>(name: &str, value: &'v Value) -> Result<&'v str> {
    match value {
        Value::Text(text) => Ok(text),
        other => Err(wrong(name, "a string", other)),
    }
}

fn map(name: &str, values: &[Value], code: fn(&str) -> String) -> Result<Value> {
    Ok(Value::from(code(text(name, &values[0])?)))
}

fn replace(env: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    let part = |at: usize| text("replace", &values[at]);
    let (whole, from, to) = (part(0)?, part(1)?, part(2)?);
    let with = |count: usize| {
        let added = (count as u64).saturating_mul(to.len() as u64);
        added.saturating_add(whole.len() as u64)
    };
    // At most so often, before each character and at the end; it is counted only where that would be much.
    if with(whole.len() + 1) >= LARGE_BYTES {
        let count = whole.matches(from).count();
        env.room
            .room_for(with(count) - (count * from.len()) as u64)?;
    }
    Ok(Value::from(whole.replace(from, to)))
}

fn split(env: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    /// A part, beside its letters: the value, and the head of what it shares.
    const PART_BYTES: usize = size_of::<Value>() + 16;
    let (whole, separator) = (text("split", &values[0])?, text("split", &values[1])?);
    if (whole.len() * PART_BYTES) as u64 >= LARGE_BYTES {
        let count = whole.matches(separator).count() + 1;
        env.room
            .room_for((count * PART_BYTES + whole.len()) as u64)?;
    }
    let parts: Vec<Value> = if separator.is_empty() {
        whole.chars().map(|c| Value::from(c.to_string())).collect()
    } else {
        whole.split(separator).map(Value::from).collect()
    };
    Ok(Value::list(parts))
}

/// A number of characters.
fn count(name: &str, value: &Value) -> Result<usize> {
    match value {
        Value::Int(count) => usize::try_from(*count).map_err(|_| {
            let message = format!("`{name}` takes a number of characters, not {count}");
            Error::runtime(
                Class::ArgumentError,
                Detail::NegativeIntegerArgument,
                message,
            )
        }),
        other => Err(wrong(name, "an integer", other)),
    }
}

fn substring(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    let whole = text("substring", &values[0])?;
    let start = count("substring", &values[1])?;
    let length = values
        .get(2)
        .map_or(Ok(usize::MAX), |length| count("substring", length))?;
    Ok(Value::from(
        whole.chars().skip(start).take(length).collect::<String>(),
    ))
}

fn left(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    let length = count("left", &values[1])?;
    Ok(Value::from(
        text("left", &values[0])?
            .chars()
            .take(length)
            .collect::<String>(),
    ))
}

fn right(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    let whole = text("right", &values[0])?;
    let skipped = whole
        .chars()
        .count()
        .saturating_sub(count("right", &values[1])?);
    Ok(Value::from(whole.chars().skip(skipped).collect::<String>()))
}

fn length(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    Ok(Value::Int(
        text("char_length", &values[0])?.chars().count() as i64
    ))
}

fn to_string(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    Ok(Value::from(match &values[0] {
        Value::Text(text) => text.to_string(),
        Value::Bool(_) | Value::Int(_) | Value::Float(_) => values[0].to_string(),
        Value::Date(date) => show_date(*date),
        Value::LocalTime(time) => show_time(*time),
        Value::Time(time) => time.to_string(),
        Value::LocalDateTime(datetime) => show_datetime(*datetime),
        Value::DateTime(zoned) => show_zoned(zoned),
        Value::Duration(duration) => duration.to_string(),
        other => {
            let message = format!("`toString` cannot convert {}", other.type_name());
            return Err(Error::runtime(
                Class::TypeError,
                Detail::InvalidArgumentValue,
                message,
            ));
        }
    }))
}
