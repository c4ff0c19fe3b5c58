//! Functions of lists.

use super::row::{Env, Function, function, wrong};
use crate::error::{Class, Detail, Error, Result};
use crate::value::{Type, Value};

const LIST: &[&[Type]] = &[&[Type::List]];

pub(super) const FUNCTIONS: &[Function] = &[
    function("size", 1, 1, &[&[Type::List, Type::Text]], Type::Int, size),
    function("head", 1, 1, LIST, Type::Any, head),
    function("last", 1, 1, LIST, Type::Any, last),
    function("tail", 1, 1, LIST, Type::List, tail),
    function(
        "reverse",
        1,
        1,
        &[&[Type::List, Type::Text]],
        Type::Any,
        reverse,
    ),
    function("range", 2, 3, &[], Type::List, range),
    function(
        "isEmpty",
        1,
        1,
        &[&[Type::List, Type::Text, Type::Map]],
        Type::Bool,
        is_empty,
    ),
];

fn size(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    match &values[0] {
        Value::List(list) => Ok(Value::Int(list.len() as i64)),
        Value::Text(text) => Ok(Value::Int(text.chars().count() as i64)),
        other => Err(wrong("size", "a list or a string", other)),
    }
}

fn list<'v>(name: &str, value: &'v Value) -> Result<&'v [Value]> {
    match value {
        Value::List(list) => Ok(list),
        other => Err(wrong(name, "a list", other)),
    }
}

fn head(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    Ok(list("head", &values[0])?
        .first()
        .cloned()
        .unwrap_or_default())
}

fn last(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    Ok(list("last", &values[0])?
        .last()
        .cloned()
        .unwrap_or_default())
}

fn tail(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    Ok(Value::list(
        list("tail", &values[0])?.iter().skip(1).cloned().collect(),
    ))
}

fn reverse(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    match &values[0] {
        Value::List(list) => Ok(Value::list(list.iter().rev().cloned().collect())),
        Value::Text(text) => Ok(Value::from(text.chars().rev().collect::<String>())),
        other => Err(wrong("reverse", "a list or a string", other)),
    }
}

fn is_empty(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    match &values[0] {
        Value::List(list) => Ok(Value::Bool(list.is_empty())),
        Value::Text(text) => Ok(Value::Bool(text.is_empty())),
        Value::Map(map) => Ok(Value::Bool(map.is_empty())),
        other => Err(wrong("isEmpty", "a list, a string or a map", other)),
    }
}

/// More elements than this are an error: the list would fill the memory.
const RANGE_MAX: i128 = 10_000_000;

/// The numbers of a range, as a list needs not hold them.
pub(crate) struct Numbers {
    next: i64,
    step: i64,
    left: usize,
}

impl Iterator for Numbers {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        self.left = self.left.checked_sub(1)?;
        let number = self.next;
        // Behind the last there may be none.
        self.next = number.wrapping_add(self.step);
        Some(Value::Int(number))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// The numbers that `range` is to give for its arguments, none of which is null.
pub(crate) fn numbers(values: &[Value]) -> Result<Numbers> {
    let bound = |value: &Value| match value {
        Value::Int(value) => Ok(*value),
        other => Err(Error::runtime(
            Class::ArgumentError,
            Detail::InvalidArgumentType,
            format!("`range` takes integers, not {}", other.type_name()),
        )),
    };
    let (from, to) = (bound(&values[0])?, bound(&values[1])?);
    let step = values.get(2).map_or(Ok(1), bound)?;
    if step == 0 {
        return Err(Error::runtime(
            Class::ArgumentError,
            Detail::NumberOutOfRange,
            "the step of `range` cannot be zero",
        ));
    }
    let count = (i128::from(to) - i128::from(from)) / i128::from(step) + 1;
    if count > RANGE_MAX {
        let message = format!("this range has {count} elements, more than {RANGE_MAX}");
        return Err(Error::runtime(
            Class::ArgumentError,
            Detail::NumberOutOfRange,
            message,
        ));
    }
    let ahead = if step > 0 { from <= to } else { from >= to };
    let count = if ahead { count } else { 0 };
    Ok(Numbers {
        next: from,
        step,
        left: count as usize,
    })
}

fn range(env: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    let numbers = numbers(values)?;
    env.room
        .room_for((numbers.left * size_of::<Value>()) as u64)?;
    Ok(Value::list(numbers.collect()))
}
