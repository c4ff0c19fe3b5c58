//! Groups of rows, and what is computed over each.

use crate::calendar::Calculate as _;
use std::collections::{HashMap, HashSet};

use super::arithmetic;
use super::context::Context;
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
        let mut index: HashMap<Equivalent, usize> = HashMap::new();
        let mut groups: Vec<(Equivalent, Vec<State>)> = Vec::new();
        if self.keys.is_empty() {
            // Without keys, all rows are one group, which exists even if there is no row.
            groups.push((Equivalent(Vec::new()), states(self.aggregates)));
        }
        let (keys, aggregates) = (self.keys, self.aggregates);
        self.input.drain(cx, &mut |row, cx| {
            let at = match keys {
                [] => 0,
                keys => {
                    let key = keys.iter().map(|(_, expr)| evaluate(expr, row, cx));
                    let key = Equivalent(key.collect::<Result<_>>()?);
                    match index.get(&key) {
                        Some(at) => *at,
                        None => {
                            cx.charge(&key.0)?;
                            index.insert(key.clone(), groups.len());
                            groups.push((key, states(aggregates)));
                            groups.len() - 1
                        }
                    }
                }
            };
            for (aggregate, state) in aggregates.iter().zip(&mut groups[at].1) {
                state
                    .add(aggregate, row, cx)
                    .map_err(|error| error.at(aggregate.span))?;
            }
            Ok(())
        })?;
        let mut rows = Vec::with_capacity(groups.len());
        for (key, states) in groups {
            let mut row = self.argument.clone();
            for ((slot, _), value) in self.keys.iter().zip(key.0) {
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

impl State {
    fn add(&mut self, aggregate: &Aggregate, row: &mut Row, cx: &mut Context<'_>) -> Result<()> {
        let Some(argument) = aggregate.arguments.first() else {
            self.count += 1;
            return Ok(());
        };
        let value = evaluate(argument, row, cx)?;
        let percentile = matches!(
            aggregate.kind,
            AggregateKind::PercentileContinuous | AggregateKind::PercentileDiscrete
        );
        if percentile {
            self.fraction = fraction(&evaluate(&aggregate.arguments[1], row, cx)?)?;
        }
        if value.is_null() {
            return Ok(());
        }
        if let Some(seen) = &mut self.seen {
            let key = Equivalent(vec![value.clone()]);
            if !seen.insert(key) {
                return Ok(());
            }
            cx.charge(std::slice::from_ref(&value))?;
        }
        self.count += 1;
        match aggregate.kind {
            AggregateKind::CountAll | AggregateKind::Count => {}
            AggregateKind::Sum | AggregateKind::Average => self.sum(value)?,
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

    fn sum(&mut self, value: Value) -> Result<()> {
        if !matches!(value, Value::Int(_) | Value::Float(_) | Value::Duration(_)) {
            return Err(Error::wrong_type(format!(
                "{} cannot be summed up",
                value.type_name()
            )));
        }
        self.value = match &self.value {
            Value::Null => value,
            sum => arithmetic::binary(Binary::Add, sum, &value)?,
        };
        Ok(())
    }

    fn finish(mut self, kind: AggregateKind) -> Result<Value> {
        let count = self.count as f64;
        Ok(match kind {
            AggregateKind::CountAll | AggregateKind::Count => Value::Int(self.count as i64),
            AggregateKind::Sum if self.value.is_null() => Value::Int(0),
            AggregateKind::Sum | AggregateKind::Min | AggregateKind::Max => self.value,
            AggregateKind::Average => match &self.value {
                Value::Null => Value::Null,
                Value::Int(sum) => Value::Float(*sum as f64 / count),
                Value::Duration(duration) => Value::Duration(duration.scaled(1.0 / count)?),
                value => Value::Float(number(value)? / count),
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
