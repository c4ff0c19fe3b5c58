//! Groups of rows, and what is computed over each.

use crate::calendar::Calculate as _;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use bowline_types::IdHashing;

use super::arithmetic;
use super::context::{Context, check_depth};
use super::evaluate::evaluate;
use super::stream::{Input, Row, Stream};
use crate::error::{Class, Detail, Error, Result};
use crate::plan::{Aggregate, AggregateKind, Expr, Slot};
use crate::syntax::ast::Binary;
use crate::value::{Equivalent, Value};

pub(super) struct Group<'p> {
    pub input: Input<'p>,
    pub keys: &'p [(Slot, Expr)],
    pub aggregates: &'p [Aggregate],
    /// The row with which the plan was opened: what a subquery knows of its outer row.
    pub argument: Row,
    pub groups: Option<std::vec::IntoIter<Row>>,
}

/// The values of one aggregate in one group.
#[derive(Default)]
struct State {
    seen: Option<HashSet<Equivalent>>,
    count: u64,
    /// The running sum, or the least or greatest value.
    value: Value,
    values: Vec<Value>,
    /// The second argument of a percentile.
    fraction: f64,
    mean: f64,
    squares: f64,
    sums: Sums,
}

/// What an average is computed from. The sum of what it is of may not be a value: two integers of 63 bits, or 1e308 twice.
#[derive(Default)]
struct Sums {
    /// Of integers. As many as can be counted have a place.
    whole: i128,
    /// Of floats.
    float: f64,
    /// Of floats, each a [`SCALE`]th: where `float` is too large.
    scaled: f64,
}

/// More than the number of values that can be counted.
const SCALE: f64 = 18_446_744_073_709_551_616.0;

impl Sums {
    fn of(&self, count: f64) -> f64 {
        let sum = self.whole as f64 + self.float;
        match sum.is_finite() || !self.scaled.is_finite() {
            true => sum / count,
            false => (self.whole as f64 / SCALE + self.scaled) / count * SCALE,
        }
    }
}

impl Stream for Group<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        if self.groups.is_none() {
            self.groups = Some(self.gather(cx)?.into_iter());
        }
        Ok(self.groups.as_mut().and_then(Iterator::next))
    }
}

impl Group<'_> {
    fn gather(&mut self, cx: &mut Context<'_>) -> Result<Vec<Row>> {
        let (keys, aggregates) = (self.keys, self.aggregates);
        let mut groups = Groups::new(aggregates, keys.is_empty(), self.argument.len());
        self.input.drain(cx, &mut |row, cx| {
            let group = match keys {
                [] => 0,
                keys => {
                    let key = keys.iter().map(|(_, expr)| evaluate(expr, row, cx));
                    let key = key.collect::<Result<_>>()?;
                    groups.of(key, cx)?
                }
            };
            for (aggregate, state) in aggregates.iter().zip(&mut groups.groups[group].1) {
                state
                    .add(aggregate, row, cx)
                    .map_err(|error| error.at(aggregate.span))?;
            }
            Ok(())
        })?;
        groups.rows(keys, &self.argument)
    }
}

/// Groups, in the order in which their first rows came.
pub(super) struct Groups<'p> {
    aggregates: &'p [Aggregate],
    /// How many values a row has.
    slots: usize,
    index: HashMap<Rc<Equivalent>, usize, IdHashing>,
    groups: Vec<(Rc<Equivalent>, Vec<State>)>,
}

impl<'p> Groups<'p> {
    /// No group, or the one of all rows, which exists even if there is no row.
    pub fn new(aggregates: &'p [Aggregate], is_one: bool, slots: usize) -> Groups<'p> {
        let mut groups = Vec::new();
        if is_one {
            groups.push((Rc::new(Equivalent(Vec::new())), states(aggregates)));
        }
        Groups {
            aggregates,
            slots,
            index: HashMap::default(),
            groups,
        }
    }

    /// The number of the group with a key.
    pub fn of(&mut self, key: Vec<Value>, cx: &mut Context<'_>) -> Result<usize> {
        let key = Equivalent(key);
        if let Some(group) = self.index.get(&key) {
            return Ok(*group);
        }
        cx.charge(&key.0)?;
        // The row that comes of it has a place for each slot.
        let computed = self.aggregates.len() * size_of::<State>();
        cx.take((computed + self.slots * size_of::<Value>()) as u64)?;
        let key = Rc::new(key);
        let group = self.groups.len();
        self.index.insert(key.clone(), group);
        self.groups.push((key, states(self.aggregates)));
        Ok(group)
    }

    /// Adds the value of an aggregate's first argument, if it has one, so many times.
    pub fn add(
        &mut self,
        group: usize,
        aggregate: usize,
        value: Option<Value>,
        weight: u64,
        cx: &mut Context<'_>,
    ) -> Result<()> {
        let kind = &self.aggregates[aggregate];
        self.groups[group].1[aggregate].take(kind, value, weight, cx)
    }

    /// Adds rows to the one group of aggregates that only count.
    pub fn count(&mut self, rows: u64) -> Result<()> {
        let states = self.groups.iter_mut().flat_map(|(_, states)| states);
        states.into_iter().try_for_each(|state| state.count(rows))
    }

    /// A row for each group, of its key and what was computed.
    pub fn rows(self, keys: &[(Slot, Expr)], argument: &Row) -> Result<Vec<Row>> {
        let mut rows = Vec::with_capacity(self.groups.len());
        drop(self.index);
        for (key, states) in self.groups {
            let mut row = argument.clone();
            let key = Rc::unwrap_or_clone(key);
            for ((slot, _), value) in keys.iter().zip(key.0) {
                row[*slot] = value;
            }
            for (aggregate, state) in self.aggregates.iter().zip(states) {
                row[aggregate.slot] = state.finish(aggregate.kind)?;
            }
            rows.push(row);
        }
        Ok(rows)
    }
}

fn states(aggregates: &[Aggregate]) -> Vec<State> {
    let state = |aggregate: &Aggregate| State {
        seen: aggregate.distinct.then(HashSet::new),
        ..State::default()
    };
    aggregates.iter().map(state).collect()
}

/// There are more rows than can be counted: an integer is less than 2^63.
pub(super) fn too_many() -> Error {
    let message = "there are more rows than a 64-bit integer counts".to_owned();
    Error::runtime(Class::ArithmeticError, Detail::NumberOutOfRange, message)
}

impl State {
    fn add(&mut self, aggregate: &Aggregate, row: &mut Row, cx: &mut Context<'_>) -> Result<()> {
        let Some(argument) = aggregate.arguments.first() else {
            return self.take(aggregate, None, 1, cx);
        };
        let value = evaluate(argument, row, cx)?;
        let percentile = matches!(
            aggregate.kind,
            AggregateKind::PercentileContinuous | AggregateKind::PercentileDiscrete
        );
        if percentile {
            self.fraction = fraction(&evaluate(&aggregate.arguments[1], row, cx)?)?;
        }
        self.take(aggregate, Some(value), 1, cx)
    }

    fn count(&mut self, rows: u64) -> Result<()> {
        self.count = self.count.checked_add(rows).ok_or_else(too_many)?;
        Ok(())
    }

    /// Takes a value of the first argument, so many times; without one, rows.
    fn take(
        &mut self,
        aggregate: &Aggregate,
        value: Option<Value>,
        mut weight: u64,
        cx: &mut Context<'_>,
    ) -> Result<()> {
        let Some(value) = value else {
            return self.count(weight);
        };
        if value.is_null() {
            return Ok(());
        }
        if let Some(seen) = &mut self.seen {
            let key = Equivalent(vec![value.clone()]);
            if !seen.insert(key) {
                return Ok(());
            }
            cx.charge(std::slice::from_ref(&value))?;
            weight = 1;
        }
        self.count(weight)?;
        match aggregate.kind {
            AggregateKind::CountAll | AggregateKind::Count => {}
            AggregateKind::Sum => self.sum(value, weight)?,
            AggregateKind::Average => self.average(value, weight)?,
            AggregateKind::Min => {
                if self.value.is_null() || value.order(&self.value).is_lt() {
                    self.value = value;
                }
            }
            AggregateKind::Max => {
                if self.value.is_null() || value.order(&self.value).is_gt() {
                    self.value = value;
                }
            }
            AggregateKind::Collect => {
                check_depth(value.depth() + 1)?;
                cx.charge(std::slice::from_ref(&value))?;
                self.values.push(value);
            }
            AggregateKind::PercentileContinuous | AggregateKind::PercentileDiscrete => {
                number(&value)?;
                cx.charge(std::slice::from_ref(&value))?;
                self.values.push(value);
            }
            AggregateKind::StandardDeviation | AggregateKind::StandardDeviationOfPopulation => {
                let x = number(&value)?;
                let before = x - self.mean;
                self.mean += before / self.count as f64;
                self.squares += before * (x - self.mean);
            }
        }
        Ok(())
    }

    fn sum(&mut self, mut value: Value, weight: u64) -> Result<()> {
        if !matches!(value, Value::Int(_) | Value::Float(_) | Value::Duration(_)) {
            return Err(Error::wrong_type(format!(
                "{} cannot be summed up",
                value.type_name()
            )));
        }
        if weight > 1 {
            let weight = i64::try_from(weight).map_err(|_| too_many())?;
            value = arithmetic::binary(Binary::Multiply, &value, &Value::Int(weight))?;
        }
        self.value = match &self.value {
            Value::Null => value,
            sum => arithmetic::binary(Binary::Add, sum, &value)?,
        };
        Ok(())
    }

    /// Adds to the sums of an average. One of durations has their sum as `value`.
    fn average(&mut self, value: Value, weight: u64) -> Result<()> {
        let is_first = self.count == weight;
        match value {
            Value::Int(value) if self.value.is_null() => {
                self.sums.whole += i128::from(value) * i128::from(weight);
            }
            Value::Float(value) if self.value.is_null() => {
                let times = weight as f64;
                self.sums.float += value * times;
                self.sums.scaled += value / SCALE * times;
            }
            // Of numbers before, which have no sum with it.
            Value::Duration(_) if self.value.is_null() && !is_first => {
                arithmetic::binary(Binary::Add, &Value::Int(0), &value)?;
            }
            value => self.sum(value, weight)?,
        }
        Ok(())
    }

    fn finish(mut self, kind: AggregateKind) -> Result<Value> {
        let count = self.count as f64;
        Ok(match kind {
            AggregateKind::CountAll | AggregateKind::Count => {
                Value::Int(i64::try_from(self.count).map_err(|_| too_many())?)
            }
            AggregateKind::Sum if self.value.is_null() => Value::Int(0),
            AggregateKind::Sum | AggregateKind::Min | AggregateKind::Max => self.value,
            AggregateKind::Average => match &self.value {
                Value::Duration(duration) => {
                    let count = i64::try_from(self.count).map_err(|_| too_many())?;
                    Value::Duration(duration.shared(count)?)
                }
                _ if self.count == 0 => Value::Null,
                _ => Value::Float(self.sums.of(count)),
            },
            AggregateKind::Collect => Value::list(self.values),
            AggregateKind::StandardDeviation => Value::Float(if self.count < 2 {
                0.0
            } else {
                (self.squares / (count - 1.0)).sqrt()
            }),
            AggregateKind::StandardDeviationOfPopulation => Value::Float(if self.count < 1 {
                0.0
            } else {
                (self.squares / count).sqrt()
            }),
            AggregateKind::PercentileDiscrete | AggregateKind::PercentileContinuous => {
                self.values.sort_by(Value::order);
                percentile(kind, &self.values, self.fraction)?
            }
        })
    }
}

fn percentile(kind: AggregateKind, sorted: &[Value], fraction: f64) -> Result<Value> {
    let Some(last) = sorted.len().checked_sub(1) else {
        return Ok(Value::Null);
    };
    if kind == AggregateKind::PercentileDiscrete {
        let rank = (fraction * sorted.len() as f64).ceil() as usize;
        return Ok(sorted[rank.saturating_sub(1).min(last)].clone());
    }
    let position = fraction * last as f64;
    let (low, high) = (position.floor() as usize, position.ceil() as usize);
    if low == high {
        // Between an infinity and itself lies nothing.
        return Ok(Value::Float(number(&sorted[low])?));
    }
    let (a, b) = (number(&sorted[low])?, number(&sorted[high])?);
    Ok(Value::Float(a + (b - a) * (position - low as f64)))
}

fn fraction(value: &Value) -> Result<f64> {
    let fraction = number(value)?;
    if (0.0..=1.0).contains(&fraction) {
        return Ok(fraction);
    }
    let message = format!("a percentile lies between 0 and 1, not at {fraction}");
    Err(Error::runtime(
        Class::ArgumentError,
        Detail::NumberOutOfRange,
        message,
    ))
}

fn number(value: &Value) -> Result<f64> {
    match value {
        Value::Int(value) => Ok(*value as f64),
        Value::Float(value) => Ok(*value),
        other => Err(Error::wrong_type(format!(
            "a number is needed, not {}",
            other.type_name()
        ))),
    }
}
