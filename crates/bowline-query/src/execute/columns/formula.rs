//! [`Formula`]: an expression over a row of a batch.
//!
//! What queries ask most (labels, properties, comparisons with values) is answered from the columns. Every other expression is
//! evaluated in a row that is filled with what it reads.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::batch::{Batch, Column};
use super::fields::Fields;
use super::reads::reads;
use crate::error::{Error, Result};
use crate::execute::access::{self, satisfies};
use crate::execute::arithmetic;
use crate::execute::context::Context;
use crate::execute::evaluate::evaluate;
use crate::execute::stream::Row;
use crate::graph::FieldColumns;
use crate::plan::{Expr, Kind, Slot};
use crate::syntax::ast::{Binary, Labels};
use crate::value::{Name, Value};

#[derive(Debug)]
enum Part<'p> {
    Constant(Value),
    /// Until the query runs.
    Parameter(&'p Name),
    Slot(Slot),
    /// Of a slot that holds a node, as a rule.
    Property(Slot, &'p Name, usize),
    /// The labels, each with the place of its bit.
    Labels(Slot, &'p Labels, Vec<(&'p Name, usize)>),
    /// Any operator of `arithmetic`.
    Binary(Binary, Box<Formula<'p>>, Box<Formula<'p>>),
    And(Box<Formula<'p>>, Box<Formula<'p>>),
    Or(Box<Formula<'p>>, Box<Formula<'p>>),
    Not(Box<Formula<'p>>),
    IsNull(Box<Formula<'p>>),
    Other(Vec<Slot>),
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Formula<'p> {
    expr: &'p Expr,
    part: Part<'p>,
}

/// What evaluation needs besides a batch.
pub(super) struct Evaluation<'c, 'g> {
    pub cx: &'c mut Context<'g>,
    /// A row for expressions that need one.
    pub row: &'c mut Row,
}

impl<'p> Formula<'p> {
    /// `None` where an expression cannot be evaluated over columns: it has a subquery, or differs each time.
    pub fn of(expr: &'p Expr, fields: &mut Fields) -> Option<Formula<'p>> {
        reads(expr)?;
        Some(Formula::of_known(expr, fields))
    }

    /// The same, where it is known that it can be.
    fn of_known(expr: &'p Expr, fields: &mut Fields) -> Formula<'p> {
        let boxed = |expr, fields: &mut Fields| Box::new(Formula::of_known(expr, fields));
        let other = || Part::Other(reads(expr).into_iter().flatten().collect());
        let part = match &expr.kind {
            Kind::Literal(value) => Part::Constant(value.clone()),
            Kind::Slot(slot) => Part::Slot(*slot),
            Kind::Parameter(name) => Part::Parameter(name),
            Kind::Property(holder, name) => match holder.kind {
                Kind::Slot(slot) => {
                    fields.property(name);
                    Part::Property(slot, name, usize::MAX)
                }
                _ => other(),
            },
            Kind::HasLabels(holder, labels) => match holder.kind {
                Kind::Slot(slot) => {
                    let mut names = Vec::new();
                    names_of(labels, &mut names);
                    let bit = |name: &'p Name| Some((name, fields.label(name)?));
                    match names.into_iter().map(bit).collect() {
                        Some(bits) => Part::Labels(slot, labels, bits),
                        None => other(),
                    }
                }
                _ => other(),
            },
            Kind::Not(a) => Part::Not(boxed(a, fields)),
            Kind::IsNull(a) => Part::IsNull(boxed(a, fields)),
            Kind::Binary(Binary::And, a, b) => Part::And(boxed(a, fields), boxed(b, fields)),
            Kind::Binary(Binary::Or, a, b) => Part::Or(boxed(a, fields), boxed(b, fields)),
            Kind::Binary(Binary::Xor | Binary::In | Binary::Matches, ..) => other(),
            Kind::Binary(operator, a, b) => {
                Part::Binary(*operator, boxed(a, fields), boxed(b, fields))
            }
            _ => other(),
        };
        Formula { expr, part }
    }

    /// Finds the places of properties, once all have been asked for, and the values of parameters.
    pub fn settle(&mut self, fields: &Fields, cx: &Context<'_>) {
        match &mut self.part {
            Part::Parameter(name) => {
                let value = cx.setting.parameters.get(*name);
                self.part = Part::Constant(value.cloned().unwrap_or_default());
            }
            Part::Property(_, name, place) => *place = fields.place(name),
            Part::Binary(_, a, b) | Part::And(a, b) | Part::Or(a, b) => {
                a.settle(fields, cx);
                b.settle(fields, cx);
            }
            Part::Not(a) | Part::IsNull(a) => a.settle(fields, cx),
            Part::Constant(_) | Part::Slot(_) | Part::Labels(..) | Part::Other(_) => {}
        }
    }

    /// The slot, if it is one and nothing else.
    pub fn slot(&self) -> Option<Slot> {
        match self.part {
            Part::Slot(slot) => Some(slot),
            _ => None,
        }
    }

    /// The slots that it reads.
    pub fn reads(&self) -> BTreeSet<Slot> {
        reads(self.expr).unwrap_or_default()
    }

    /// The slots whose nodes' fields it reads.
    pub fn reads_fields(&self, slots: &mut BTreeSet<Slot>) {
        match &self.part {
            Part::Property(slot, ..) | Part::Labels(slot, ..) => {
                slots.insert(*slot);
            }
            Part::Binary(_, a, b) | Part::And(a, b) | Part::Or(a, b) => {
                a.reads_fields(slots);
                b.reads_fields(slots);
            }
            Part::Not(a) | Part::IsNull(a) => a.reads_fields(slots),
            Part::Constant(_) | Part::Parameter(_) | Part::Slot(_) | Part::Other(_) => {}
        }
    }

    /// The value in a row. Fields that it reads have been read.
    pub fn value<'b>(
        &'b self,
        batch: &'b Batch,
        row: usize,
        it: &mut Evaluation<'_, '_>,
    ) -> Result<Cow<'b, Value>> {
        self.compute(batch, row, it)
            .map_err(|error| error.at(self.expr.span))
    }

    /// Whether a condition holds: unknown is no.
    pub fn holds(&self, batch: &Batch, row: usize, it: &mut Evaluation<'_, '_>) -> Result<bool> {
        Ok(self.truth(batch, row, it)?.unwrap_or(false))
    }

    fn truth(
        &self,
        batch: &Batch,
        row: usize,
        it: &mut Evaluation<'_, '_>,
    ) -> Result<Option<bool>> {
        match &*self.value(batch, row, it)? {
            Value::Null => Ok(None),
            Value::Bool(value) => Ok(Some(*value)),
            other => Err(Error::wrong_type(format!(
                "a Boolean is needed, not {}",
                other.type_name()
            ))
            .at(self.expr.span)),
        }
    }

    fn compute<'b>(
        &'b self,
        batch: &'b Batch,
        row: usize,
        it: &mut Evaluation<'_, '_>,
    ) -> Result<Cow<'b, Value>> {
        let truth = |value: Option<bool>| Cow::Owned(value.into());
        Ok(match &self.part {
            Part::Constant(value) => Cow::Borrowed(value),
            Part::Parameter(_) => Cow::Owned(evaluate(self.expr, it.row, it.cx)?),
            Part::Slot(slot) => match &batch.columns[*slot] {
                Column::Values(values) => Cow::Borrowed(&values[row]),
                column => Cow::Owned(column.value(row)),
            },
            Part::Property(slot, name, place) => match &batch.columns[*slot] {
                Column::Nodes(nodes) => Cow::Borrowed(&nodes.fields.values[*place][row]),
                column => Cow::Owned(access::property(it.cx.graph(), &column.value(row), name)?),
            },
            Part::Labels(slot, labels, bits) => match &batch.columns[*slot] {
                Column::Nodes(nodes) => truth(Some(has(labels, bits, nodes.fields.labels[row]))),
                column => truth(access::has_labels(
                    it.cx.graph(),
                    &column.value(row),
                    labels,
                )?),
            },
            Part::Binary(operator, a, b) => {
                let (a, b) = (a.value(batch, row, it)?, b.value(batch, row, it)?);
                Cow::Owned(arithmetic::binary_within(*operator, &a, &b, it.cx)?)
            }
            Part::And(a, b) => {
                let a = a.truth(batch, row, it)?;
                if a == Some(false) {
                    return Ok(truth(a));
                }
                truth(match (a, b.truth(batch, row, it)?) {
                    (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                })
            }
            Part::Or(a, b) => {
                let a = a.truth(batch, row, it)?;
                if a == Some(true) {
                    return Ok(truth(a));
                }
                truth(match (a, b.truth(batch, row, it)?) {
                    (_, Some(true)) => Some(true),
                    (Some(false), Some(false)) => Some(false),
                    _ => None,
                })
            }
            Part::Not(a) => truth(a.truth(batch, row, it)?.map(|value| !value)),
            Part::IsNull(a) => truth(Some(a.value(batch, row, it)?.is_null())),
            Part::Other(slots) => {
                batch.fill(row, slots, it.row);
                Cow::Owned(evaluate(self.expr, it.row, it.cx)?)
            }
        })
    }
}

fn names_of<'p>(labels: &'p Labels, names: &mut Vec<&'p Name>) {
    match labels {
        Labels::Name(name) => names.push(name),
        Labels::Any => {}
        Labels::Not(inner) => names_of(inner, names),
        Labels::And(parts) | Labels::Or(parts) => {
            parts.iter().for_each(|part| names_of(part, names));
        }
    }
}

fn has(labels: &Labels, bits: &[(&Name, usize)], set: u64) -> bool {
    if let (Labels::Name(_), [(_, at)]) = (labels, bits) {
        return set & (1 << at) != 0;
    }
    let has = |label: &str| {
        let bit = bits.iter().find(|(name, _)| ***name == *label);
        bit.is_some_and(|(_, at)| set & (1 << at) != 0)
    };
    satisfies(labels, &has, set & FieldColumns::ANY != 0)
}
