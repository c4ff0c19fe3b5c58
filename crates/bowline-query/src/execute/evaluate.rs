//! The value of an expression in a row.
//!
//! Variables that an expression binds, as a comprehension does, have slots of their own, so they are written into the
//! row and are never seen outside.

use std::sync::Arc;

use super::access;
use super::arithmetic;
use super::context::{Context, Growing};
use super::stream::Row;
use crate::error::{Class, Detail, Error, Result};
use crate::plan::{Expr, Kind, MapPart, PathPart, Plan, Slot};
use crate::syntax::ast::{Binary, Quantifier, Subquery};
use crate::value::{Nested, Node, Path, Properties, Value};

/// Evaluates an expression. An error gets the expression's place, unless it has one. Every value that an expression makes
/// passes here, so none is deeper or larger than it may be.
pub(super) fn evaluate(expr: &Expr, row: &mut Row, cx: &mut Context<'_>) -> Result<Value> {
    let value = value(expr, row, cx).map_err(|error| error.at(expr.span))?;
    cx.made(&value).map_err(|error| error.at(expr.span))?;
    Ok(value)
}

/// Whether a condition holds: unknown is no.
pub(super) fn holds(expr: &Expr, row: &mut Row, cx: &mut Context<'_>) -> Result<bool> {
    Ok(truth(expr, row, cx)?.unwrap_or(false))
}

fn truth(expr: &Expr, row: &mut Row, cx: &mut Context<'_>) -> Result<Option<bool>> {
    match evaluate(expr, row, cx)? {
        Value::Null => Ok(None),
        Value::Bool(value) => Ok(Some(value)),
        other => Err(
            Error::wrong_type(format!("a Boolean is needed, not {}", other.type_name()))
                .at(expr.span),
        ),
    }
}

fn value(expr: &Expr, row: &mut Row, cx: &mut Context<'_>) -> Result<Value> {
    Ok(match &expr.kind {
        Kind::Literal(value) => value.clone(),
        Kind::Slot(slot) => row[*slot].clone(),
        Kind::Parameter(name) => match cx.setting.parameters.get(name) {
            Some(value) => value.clone(),
            None => {
                let message = format!("parameter `${name}` has no value");
                return Err(Error::runtime(
                    Class::ParameterMissing,
                    Detail::MissingParameter,
                    message,
                )
                .help("give it with the query"));
            }
        },
        Kind::List(items) => {
            let mut values = Vec::with_capacity(items.len());
            for item in items {
                values.push(evaluate(item, row, cx)?);
            }
            Value::list(values)
        }
        Kind::Map(entries) => {
            let mut map = Properties::new();
            for (name, entry) in entries {
                map.insert(name.clone(), evaluate(entry, row, cx)?);
            }
            Value::map(map)
        }
        Kind::MapProjection(base, parts) => map_projection(base, parts, row, cx)?,
        Kind::Not(a) => truth(a, row, cx)?.map(|value| !value).into(),
        Kind::Negate(a) => arithmetic::negate(&evaluate(a, row, cx)?)?,
        Kind::Plus(a) => evaluate(a, row, cx)?,
        Kind::Binary(operator, a, b) => binary(*operator, a, b, row, cx)?,
        Kind::IsNull(a) => Value::Bool(evaluate(a, row, cx)?.is_null()),
        Kind::HasLabels(a, labels) => {
            let holder = evaluate(a, row, cx)?;
            access::has_labels(cx.graph(), &holder, labels)?.into()
        }
        Kind::Property(a, key) => {
            // A variable is read in place: cloning a row's values costs more than the look-up.
            match &a.kind {
                Kind::Slot(slot) => access::property(cx.graph(), &row[*slot], key)?,
                _ => {
                    let holder = evaluate(a, row, cx)?;
                    access::property(cx.graph(), &holder, key)?
                }
            }
        }
        Kind::Index(a, b) => {
            let (holder, index) = (evaluate(a, row, cx)?, evaluate(b, row, cx)?);
            access::index(cx.graph(), &holder, &index)?
        }
        Kind::Slice(..) | Kind::Call(..) => call(expr, row, cx)?,
        Kind::Case {
            operand,
            branches,
            otherwise,
        } => case(operand.as_deref(), branches, otherwise.as_deref(), row, cx)?,
        Kind::Comprehension {
            slot,
            list,
            predicate,
            yields,
        } => comprehension(
            *slot,
            list,
            predicate.as_deref(),
            yields.as_deref(),
            row,
            cx,
        )?,
        Kind::Reduce { .. } | Kind::Quantified { .. } => fold(expr, row, cx)?,
        Kind::Subquery { kind, plan, yields } => subquery(*kind, plan, yields.as_deref(), row, cx)?,
        Kind::Path(parts) => path(parts, row)?,
    })
}

/// Functions and slices.
fn call(expr: &Expr, row: &mut Row, cx: &mut Context<'_>) -> Result<Value> {
    match &expr.kind {
        Kind::Slice(a, low, high) => {
            let list = evaluate(a, row, cx)?;
            let low = low.as_ref().map(|low| evaluate(low, row, cx)).transpose()?;
            let high = high
                .as_ref()
                .map(|high| evaluate(high, row, cx))
                .transpose()?;
            access::slice(&list, low.as_ref(), high.as_ref())
        }
        Kind::Call(function, arguments) => {
            let mut values = Vec::with_capacity(arguments.len());
            for argument in arguments {
                values.push(evaluate(argument, row, cx)?);
            }
            if function.strict && values.iter().any(Value::is_null) {
                return Ok(Value::Null);
            }
            (function.call)(&mut cx.env(), &values)
        }
        _ => unreachable!("`value` passes these two only"),
    }
}

/// Expressions that make one value of a list.
fn fold(expr: &Expr, row: &mut Row, cx: &mut Context<'_>) -> Result<Value> {
    match &expr.kind {
        Kind::Reduce {
            accumulator,
            start,
            slot,
            list,
            step,
        } => {
            let start = evaluate(start, row, cx)?;
            let Some(list) = list_of(list, row, cx)? else {
                return Ok(Value::Null);
            };
            row[*accumulator] = start;
            for element in list.iter() {
                cx.tick()?;
                row[*slot] = element.clone();
                row[*accumulator] = evaluate(step, row, cx)?;
            }
            Ok(std::mem::take(&mut row[*accumulator]))
        }
        Kind::Quantified {
            quantifier,
            slot,
            list,
            predicate,
        } => {
            let Some(list) = list_of(list, row, cx)? else {
                return Ok(Value::Null);
            };
            Ok(quantified(*quantifier, *slot, &list, predicate, row, cx)?.into())
        }
        _ => unreachable!("`value` passes these two only"),
    }
}

fn binary(
    operator: Binary,
    a: &Expr,
    b: &Expr,
    row: &mut Row,
    cx: &mut Context<'_>,
) -> Result<Value> {
    match operator {
        Binary::And => {
            let a = truth(a, row, cx)?;
            if a == Some(false) {
                return Ok(Value::Bool(false));
            }
            Ok(match (a, truth(b, row, cx)?) {
                (_, Some(false)) => Value::Bool(false),
                (Some(true), Some(true)) => Value::Bool(true),
                _ => Value::Null,
            })
        }
        Binary::Or => {
            let a = truth(a, row, cx)?;
            if a == Some(true) {
                return Ok(Value::Bool(true));
            }
            Ok(match (a, truth(b, row, cx)?) {
                (_, Some(true)) => Value::Bool(true),
                (Some(false), Some(false)) => Value::Bool(false),
                _ => Value::Null,
            })
        }
        Binary::Xor => match (truth(a, row, cx)?, truth(b, row, cx)?) {
            (Some(a), Some(b)) => Ok(Value::Bool(a != b)),
            _ => Ok(Value::Null),
        },
        Binary::In => {
            let needle = evaluate(a, row, cx)?;
            let Some(list) = list_of(b, row, cx)? else {
                return Ok(Value::Null);
            };
            Ok(contains(&list, &needle, cx)?.into())
        }
        _ => {
            let (a, b) = (evaluate(a, row, cx)?, evaluate(b, row, cx)?);
            arithmetic::binary_within(operator, &a, &b, cx)
        }
    }
}

/// Whether a list has an element, or `None` if a null leaves it open.
fn contains(list: &[Value], needle: &Value, cx: &mut Context<'_>) -> Result<Option<bool>> {
    let mut answer = Some(false);
    for element in list {
        cx.tick()?;
        match needle.equals(element) {
            Some(true) => return Ok(Some(true)),
            Some(false) => {}
            None => answer = None,
        }
    }
    Ok(answer)
}

fn list_of(expr: &Expr, row: &mut Row, cx: &mut Context<'_>) -> Result<Option<Nested<Vec<Value>>>> {
    match evaluate(expr, row, cx)? {
        Value::Null => Ok(None),
        Value::List(list) => Ok(Some(list)),
        other => Err(
            Error::wrong_type(format!("a list is needed, not {}", other.type_name())).at(expr.span),
        ),
    }
}

fn map_projection(
    base: &Expr,
    parts: &[MapPart],
    row: &mut Row,
    cx: &mut Context<'_>,
) -> Result<Value> {
    let base = evaluate(base, row, cx)?;
    if base.is_null() {
        return Ok(Value::Null);
    }
    let mut map = Properties::new();
    for part in parts {
        match part {
            MapPart::All => map.extend(access::properties(cx.graph(), &base)?.unwrap_or_default()),
            MapPart::Property(key) => {
                map.insert(key.clone(), access::property(cx.graph(), &base, key)?);
            }
            MapPart::Entry(key, value) => {
                map.insert(key.clone(), evaluate(value, row, cx)?);
            }
        }
    }
    Ok(Value::map(map))
}

fn case(
    operand: Option<&Expr>,
    branches: &[(Vec<Expr>, Expr)],
    otherwise: Option<&Expr>,
    row: &mut Row,
    cx: &mut Context<'_>,
) -> Result<Value> {
    let operand = operand
        .map(|operand| evaluate(operand, row, cx))
        .transpose()?;
    for (conditions, result) in branches {
        for condition in conditions {
            let chosen = match &operand {
                Some(operand) => operand.equals(&evaluate(condition, row, cx)?) == Some(true),
                None => holds(condition, row, cx)?,
            };
            if chosen {
                return evaluate(result, row, cx);
            }
        }
    }
    otherwise.map_or(Ok(Value::Null), |otherwise| evaluate(otherwise, row, cx))
}

fn comprehension(
    slot: Slot,
    list: &Expr,
    predicate: Option<&Expr>,
    yields: Option<&Expr>,
    row: &mut Row,
    cx: &mut Context<'_>,
) -> Result<Value> {
    let Some(list) = list_of(list, row, cx)? else {
        return Ok(Value::Null);
    };
    let (mut result, mut growing) = (Vec::new(), Growing::default());
    for element in list.iter() {
        cx.tick()?;
        row[slot] = element.clone();
        if let Some(predicate) = predicate
            && !holds(predicate, row, cx)?
        {
            continue;
        }
        let found = match yields {
            Some(yields) => evaluate(yields, row, cx)?,
            None => element.clone(),
        };
        growing.add(&found, cx)?;
        result.push(found);
    }
    growing.end(cx);
    Ok(Value::list(result))
}

fn quantified(
    quantifier: Quantifier,
    slot: Slot,
    list: &[Value],
    predicate: &Expr,
    row: &mut Row,
    cx: &mut Context<'_>,
) -> Result<Option<bool>> {
    let (mut yes, mut no, mut unknown) = (0, 0, 0);
    for element in list {
        cx.tick()?;
        row[slot] = element.clone();
        match truth(predicate, row, cx)? {
            Some(true) => yes += 1,
            Some(false) => no += 1,
            None => unknown += 1,
        }
    }
    Ok(match quantifier {
        Quantifier::All if no > 0 => Some(false),
        Quantifier::Any if yes > 0 => Some(true),
        Quantifier::None if yes > 0 => Some(false),
        Quantifier::Single if yes > 1 => Some(false),
        _ if unknown > 0 => None,
        Quantifier::All => Some(true),
        Quantifier::Any => Some(false),
        Quantifier::None => Some(true),
        Quantifier::Single => Some(yes == 1),
    })
}

fn subquery(
    kind: Subquery,
    plan: &Plan,
    yields: Option<&Expr>,
    row: &mut Row,
    cx: &mut Context<'_>,
) -> Result<Value> {
    // Its operators are gone at its end, and have not all been asked for their last row by then.
    let held = cx.held_by_operators();
    let mut stream = (cx.open)(plan, row.clone());
    let mut count = 0;
    let (mut collected, mut growing) = (Vec::new(), Growing::default());
    while let Some(mut found) = stream.next(cx)? {
        count += 1;
        if kind == Subquery::Exists {
            break;
        }
        if let Some(yields) = yields {
            let value = evaluate(yields, &mut found, cx)?;
            growing.add(&value, cx)?;
            collected.push(value);
        }
    }
    growing.end(cx);
    drop(stream);
    cx.release_to(held);
    Ok(match kind {
        Subquery::Exists => Value::Bool(count > 0),
        Subquery::Count => Value::Int(count),
        Subquery::Collect => Value::list(collected),
    })
}

/// Builds a path; null if a part is null.
fn path(parts: &[PathPart], row: &Row) -> Result<Value> {
    let mut path = Path {
        nodes: Vec::new(),
        relationships: Vec::new(),
    };
    for part in parts {
        match part {
            // The last node of a list of relationships is already there.
            PathPart::Node(slot) => match &row[*slot] {
                Value::Node(node) if path.nodes.len() == path.relationships.len() => {
                    path.nodes.push(node.clone());
                }
                Value::Node(_) => {}
                _ => return Ok(Value::Null),
            },
            PathPart::Relationship(slot) => match &row[*slot] {
                Value::Relationship(relationship) => path.relationships.push(relationship.clone()),
                _ => return Ok(Value::Null),
            },
            PathPart::Relationships(slot) => {
                let Value::List(list) = &row[*slot] else {
                    return Ok(Value::Null);
                };
                for value in list.iter() {
                    let (Value::Relationship(relationship), Some(last)) =
                        (value, path.nodes.last())
                    else {
                        return Ok(Value::Null);
                    };
                    let next = Node::from(relationship.id.other(last.id));
                    path.relationships.push(relationship.clone());
                    path.nodes.push(next);
                }
            }
        }
    }
    Ok(Value::Path(Arc::new(path)))
}
