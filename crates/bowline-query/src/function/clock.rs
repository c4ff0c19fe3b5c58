//! Functions of dates, times and durations.

use super::row::{Env, Function, function, lenient, wrong};
use crate::error::Result;
use crate::temporal::{self, Shape, Span};
use crate::value::{Properties, Type, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    function("date", 0, 1, &[], Type::Date, |env, v| {
        construct(Shape::Date, env, v)
    }),
    function("localtime", 0, 1, &[], Type::LocalTime, |env, v| {
        construct(Shape::LocalTime, env, v)
    }),
    function("time", 0, 1, &[], Type::Time, |env, v| {
        construct(Shape::Time, env, v)
    }),
    function("localdatetime", 0, 1, &[], Type::LocalDateTime, |env, v| {
        construct(Shape::LocalDateTime, env, v)
    }),
    function("datetime", 0, 1, &[], Type::DateTime, |env, v| {
        construct(Shape::DateTime, env, v)
    }),
    function("duration", 1, 1, &[], Type::Duration, |env, v| {
        construct(Shape::Duration, env, v)
    }),
    function("date.truncate", 1, 3, &[], Type::Date, |env, v| {
        truncate(Shape::Date, env, v)
    }),
    function(
        "localtime.truncate",
        1,
        3,
        &[],
        Type::LocalTime,
        |env, v| truncate(Shape::LocalTime, env, v),
    ),
    function("time.truncate", 1, 3, &[], Type::Time, |env, v| {
        truncate(Shape::Time, env, v)
    }),
    function(
        "localdatetime.truncate",
        1,
        3,
        &[],
        Type::LocalDateTime,
        |env, v| truncate(Shape::LocalDateTime, env, v),
    ),
    function("datetime.truncate", 1, 3, &[], Type::DateTime, |env, v| {
        truncate(Shape::DateTime, env, v)
    }),
    function(
        "datetime.fromepoch",
        2,
        2,
        &[&[Type::Int]],
        Type::DateTime,
        from_epoch,
    ),
    function(
        "datetime.fromepochmillis",
        1,
        1,
        &[&[Type::Int]],
        Type::DateTime,
        from_millis,
    ),
    function("duration.between", 2, 2, &[], Type::Duration, |_, v| {
        between(Span::All, v)
    }),
    function("duration.inMonths", 2, 2, &[], Type::Duration, |_, v| {
        between(Span::Months, v)
    }),
    function("duration.inDays", 2, 2, &[], Type::Duration, |_, v| {
        between(Span::Days, v)
    }),
    function("duration.inSeconds", 2, 2, &[], Type::Duration, |_, v| {
        between(Span::Seconds, v)
    }),
    lenient("timestamp", 0, 0, Type::Int, |env, _| {
        Ok(Value::Int(env.now.timestamp().as_millisecond()))
    }),
    function("date.transaction", 0, 1, &[], Type::Date, |env, v| {
        current(Shape::Date, env, v)
    }),
    function("date.statement", 0, 1, &[], Type::Date, |env, v| {
        current(Shape::Date, env, v)
    }),
    function("date.realtime", 0, 1, &[], Type::Date, |env, v| {
        current(Shape::Date, env, v)
    }),
    function(
        "localtime.transaction",
        0,
        1,
        &[],
        Type::LocalTime,
        |env, v| current(Shape::LocalTime, env, v),
    ),
    function(
        "localtime.statement",
        0,
        1,
        &[],
        Type::LocalTime,
        |env, v| current(Shape::LocalTime, env, v),
    ),
    function(
        "localtime.realtime",
        0,
        1,
        &[],
        Type::LocalTime,
        |env, v| current(Shape::LocalTime, env, v),
    ),
    function("time.transaction", 0, 1, &[], Type::Time, |env, v| {
        current(Shape::Time, env, v)
    }),
    function("time.statement", 0, 1, &[], Type::Time, |env, v| {
        current(Shape::Time, env, v)
    }),
    function("time.realtime", 0, 1, &[], Type::Time, |env, v| {
        current(Shape::Time, env, v)
    }),
    function(
        "localdatetime.transaction",
        0,
        1,
        &[],
        Type::LocalDateTime,
        |env, v| current(Shape::LocalDateTime, env, v),
    ),
    function(
        "localdatetime.statement",
        0,
        1,
        &[],
        Type::LocalDateTime,
        |env, v| current(Shape::LocalDateTime, env, v),
    ),
    function(
        "localdatetime.realtime",
        0,
        1,
        &[],
        Type::LocalDateTime,
        |env, v| current(Shape::LocalDateTime, env, v),
    ),
    function(
        "datetime.transaction",
        0,
        1,
        &[],
        Type::DateTime,
        |env, v| current(Shape::DateTime, env, v),
    ),
    function("datetime.statement", 0, 1, &[], Type::DateTime, |env, v| {
        current(Shape::DateTime, env, v)
    }),
    function("datetime.realtime", 0, 1, &[], Type::DateTime, |env, v| {
        current(Shape::DateTime, env, v)
    }),
];

fn construct(shape: Shape, env: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    match values.first() {
        None => Ok(temporal::now(shape, env.now)),
        Some(Value::Text(text)) => temporal::read_text(shape, text),
        Some(Value::Map(map)) => temporal::build(shape, map),
        Some(value) => temporal::from_value(shape, value),
    }
}

/// The clock stands still within a query, so its three clocks agree.
fn current(shape: Shape, env: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    match values.first() {
        None => Ok(temporal::now(shape, env.now)),
        Some(Value::Text(zone)) => temporal::now_in(shape, env.now, zone),
        Some(other) => Err(wrong("the clock", "the name of a time zone", other)),
    }
}

fn truncate(shape: Shape, env: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    let Value::Text(unit) = &values[0] else {
        return Err(wrong("truncate", "the name of a unit", &values[0]));
    };
    let now = temporal::now(shape, env.now);
    let value = values.get(1).unwrap_or(&now);
    match values.get(2) {
        None => temporal::truncate(shape, unit, value, &Properties::new()),
        Some(Value::Map(map)) => temporal::truncate(shape, unit, value, map),
        Some(other) => Err(wrong("truncate", "a map", other)),
    }
}

fn from_epoch(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    match (&values[0], &values[1]) {
        (Value::Int(seconds), Value::Int(nanos)) => {
            temporal::from_epoch(*seconds, i128::from(*nanos))
        }
        (other, _) => Err(wrong("datetime.fromepoch", "two integers", other)),
    }
}

fn from_millis(_: &mut Env<'_>, values: &[Value]) -> Result<Value> {
    match &values[0] {
        Value::Int(millis) => temporal::from_epoch(0, i128::from(*millis) * 1_000_000),
        other => Err(wrong("datetime.fromepochmillis", "an integer", other)),
    }
}

fn between(span: Span, values: &[Value]) -> Result<Value> {
    temporal::between(span, &values[0], &values[1])
}
