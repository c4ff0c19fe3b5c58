//! [`Pipeline`]: a chain of operators that pass batches on.

use std::time::Duration;

use super::batch::{Batch, Column, Keeps};
use super::expand::Expand;
use super::fields::Fields;
use super::formula::{Evaluation, Formula};
use super::merge::Merge;
use crate::error::{Error, Result, Span};
use crate::execute::context::Context;
use crate::execute::stream::Row;
use crate::plan::{Plan, Slot};
use crate::value::Value;

/// How many rows the batches of a source have.
pub(super) const BATCH: usize = 1024;

#[derive(Debug)]
pub(super) enum Work<'p> {
    Filter(Formula<'p>),
    /// Rows whose slot holds a node.
    IsNode(Slot, Span),
    Project(Vec<(Slot, Formula<'p>)>),
    Expand(Expand<'p>),
    Merge(Merge),
}

/// An operator at its place.
#[derive(Debug)]
pub(super) struct Stage<'p> {
    pub work: Work<'p>,
    /// The columns that are read behind it.
    pub keeps: Keeps,
    /// The columns of nodes whose fields it reads.
    pub reads_fields: Vec<Slot>,
    /// The operator that it does the work of.
    pub plan: Option<&'p Plan>,
    pub rows: u64,
    pub time: Duration,
}

/// What gets the batches that come out.
pub(super) type Sink<'s> =
    dyn FnMut(Batch, &mut Fields, &mut Evaluation<'_, '_>) -> Result<()> + 's;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Pipeline<'p> {
    pub stages: Vec<Stage<'p>>,
    pub fields: Fields,
    /// How many columns a batch has.
    pub slots: usize,
    /// A row for expressions that need one.
    pub row: Row,
}

impl<'p> Pipeline<'p> {
    /// Once all expressions are known.
    pub fn settle(&mut self, cx: &Context<'_>) {
        for stage in &mut self.stages {
            match &mut stage.work {
                Work::Filter(predicate) => predicate.settle(&self.fields, cx),
                Work::Project(items) => {
                    for (_, formula) in items {
                        formula.settle(&self.fields, cx);
                    }
                }
                Work::IsNode(..) | Work::Expand(_) | Work::Merge(_) => {}
            }
        }
    }

    /// Takes a batch in.
    pub fn push(&mut self, batch: Batch, sink: &mut Sink<'_>, cx: &mut Context<'_>) -> Result<()> {
        let mut run = Run {
            fields: &mut self.fields,
            row: &mut self.row,
            sink,
        };
        run.push(&mut self.stages, batch, cx)
    }

    /// Hands over what waits.
    pub fn finish(&mut self, sink: &mut Sink<'_>, cx: &mut Context<'_>) -> Result<()> {
        let mut run = Run {
            fields: &mut self.fields,
            row: &mut self.row,
            sink,
        };
        for at in 0..self.stages.len() {
            if let [stage, rest @ ..] = &mut self.stages[at..]
                && let Work::Merge(merge) = &mut stage.work
            {
                for batch in merge.hand_over(BATCH, self.slots, cx) {
                    run.push(rest, batch, cx)?;
                }
            }
        }
        Ok(())
    }

    /// Adds up what the operators did, for a profile. Those below the pipeline took `time`.
    pub fn count(&self, below: Duration, cx: &mut Context<'_>) {
        let mut time = below;
        for stage in &self.stages {
            time += stage.time;
            if let Some(plan) = stage.plan {
                cx.counts.note(plan, stage.rows, time);
            }
        }
    }
}

/// A batch on its way.
struct Run<'r, 's> {
    fields: &'r mut Fields,
    row: &'r mut Row,
    sink: &'r mut Sink<'s>,
}

impl Run<'_, '_> {
    fn push(
        &mut self,
        stages: &mut [Stage<'_>],
        mut batch: Batch,
        cx: &mut Context<'_>,
    ) -> Result<()> {
        if batch.len == 0 {
            return Ok(());
        }
        let Some((stage, rest)) = stages.split_first_mut() else {
            let mut evaluation = Evaluation { cx, row: self.row };
            return (self.sink)(batch, self.fields, &mut evaluation);
        };
        let begin = cx.elapsed();
        for slot in &stage.reads_fields {
            if let Column::Nodes(nodes) = &mut batch.columns[*slot] {
                self.fields.read(nodes, cx)?;
            }
        }
        match &mut stage.work {
            Work::Expand(expand) => {
                let mut starts = expand.starts(&batch)?;
                let mut begin = begin;
                while let Some(stepped) = expand.next(&batch, &mut starts, &stage.keeps, cx)? {
                    stage.rows = stage.rows.saturating_add(stepped.rows());
                    stage.time += cx.elapsed().saturating_sub(begin);
                    self.push(rest, stepped, cx)?;
                    begin = cx.elapsed();
                }
                return Ok(());
            }
            Work::Merge(merge) => {
                let has_room = merge.take(&batch, cx)?;
                stage.time += cx.elapsed().saturating_sub(begin);
                if !has_room {
                    for merged in merge.hand_over(BATCH, batch.columns.len(), cx) {
                        self.push(rest, merged, cx)?;
                    }
                }
                return Ok(());
            }
            Work::Filter(predicate) => {
                let mut evaluation = Evaluation { cx, row: self.row };
                let mut passing = Vec::with_capacity(batch.len);
                for row in 0..batch.len {
                    if predicate.holds(&batch, row, &mut evaluation)? {
                        passing.push(row as u32);
                    }
                }
                match passing.len() == batch.len {
                    true => batch.keep(&stage.keeps),
                    false => batch = batch.at(&passing, &stage.keeps),
                }
            }
            Work::IsNode(slot, span) => {
                if let Column::Values(values) = &batch.columns[*slot] {
                    let passing = nodes_of(values, *span)?;
                    batch = batch.at(&passing, &stage.keeps);
                }
            }
            Work::Project(items) => {
                let mut evaluation = Evaluation { cx, row: self.row };
                let columns = items
                    .iter()
                    .map(|(_, formula)| column(formula, &batch, &mut evaluation))
                    .collect::<Result<Vec<_>>>()?;
                for ((slot, _), column) in items.iter().zip(columns) {
                    batch.columns[*slot] = column;
                }
                batch.keep(&stage.keeps);
            }
        }
        stage.rows = stage.rows.saturating_add(batch.rows());
        stage.time += cx.elapsed().saturating_sub(begin);
        self.push(rest, batch, cx)
    }
}

/// The values of an expression in all rows.
pub(super) fn column(
    formula: &Formula<'_>,
    batch: &Batch,
    evaluation: &mut Evaluation<'_, '_>,
) -> Result<Column> {
    if let Some(slot) = formula.slot() {
        return Ok(batch.columns[slot].clone());
    }
    let value = |row| Ok(formula.value(batch, row, evaluation)?.into_owned());
    let values = (0..batch.len).map(value).collect::<Result<_>>()?;
    Ok(Column::of(values))
}

/// The rows with a node. What is neither node nor null is refused.
fn nodes_of(values: &[Value], span: Span) -> Result<Vec<u32>> {
    let mut passing = Vec::new();
    for (row, value) in values.iter().enumerate() {
        match value {
            Value::Node(_) => passing.push(row as u32),
            Value::Null => {}
            other => {
                let message = format!("a node is needed, not {}", other.type_name());
                return Err(Error::wrong_type(message).at(span));
            }
        }
    }
    Ok(passing)
}
