//! [`ColumnRows`]: the rows of a pipeline, for operators that work row by row.
//!
//! One who reads all rows gets them from the columns. One who asks for a row at a time may stop at any: for it the same operators work
//! row by row, so that nothing is read ahead, and no expression is evaluated of a row that nobody asks for.

use std::collections::BTreeSet;

use super::assemble::{Columns, Source, assemble};
use super::fields::Fields;
use super::pipeline::{Pipeline, Sink};
use super::source::run;
use crate::error::Result;
use crate::execute::context::Context;
use crate::execute::stream::{Each, Input, Row, Stream};
use crate::plan::{Plan, Slot};
use crate::value::Value;

/// Makes the row operators from the top of a plan down to the second, above a stream of the second's rows.
pub(crate) type Stack<'p> = fn(&'p Plan, &'p Plan, Input<'p>) -> Input<'p>;

/// See the [module](self).
pub(crate) struct ColumnRows<'p> {
    top: &'p Plan,
    pub(super) pipeline: Pipeline<'p>,
    source: Source<'p>,
    /// The columns that the source gives.
    columns: Vec<Slot>,
    /// What its rows have.
    needed: Vec<Slot>,
    /// The rows of the source, until they are read.
    input: Option<Input<'p>>,
    /// The operators that work row by row, once a row was asked for.
    by_rows: Option<Input<'p>>,
    stack: Stack<'p>,
}

impl<'p> ColumnRows<'p> {
    /// The rows of a plan with the `needed` slots, if its operators can work on columns; `open` opens what is below those.
    pub fn of(
        top: &'p Plan,
        needed: &BTreeSet<Slot>,
        columns: Columns,
        open: impl FnOnce(&'p Plan, &BTreeSet<Slot>) -> Input<'p>,
        stack: Stack<'p>,
    ) -> Option<ColumnRows<'p>> {
        let fields = (needed.clone(), BTreeSet::new());
        let (pipeline, source, read) = assemble(top, fields, Fields::default(), false, columns)?;
        let below = match source {
            Source::Scan { plan, .. } => plan.input()?,
            Source::Rows(plan) => plan,
        };
        Some(ColumnRows {
            top,
            pipeline,
            source,
            input: Some(open(below, &read.iter().copied().collect())),
            columns: read,
            needed: needed.iter().copied().collect(),
            by_rows: None,
            stack,
        })
    }
}

impl Stream for ColumnRows<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        if let Some(input) = self.input.take() {
            let below = match self.source {
                Source::Scan { plan, .. } => plan.input().unwrap_or(plan),
                Source::Rows(plan) => plan,
            };
            self.by_rows = Some((self.stack)(self.top, below, input));
        }
        match &mut self.by_rows {
            Some(rows) => rows.next(cx),
            None => Ok(None),
        }
    }

    fn drain(&mut self, cx: &mut Context<'_>, each: &mut Each<'_>) -> Result<()> {
        let Some(mut input) = self.input.take() else {
            return match &mut self.by_rows {
                Some(rows) => rows.drain(cx, each),
                None => Ok(()),
            };
        };
        self.pipeline.settle(cx);
        let mut values: Row = vec![Value::Null; self.pipeline.row.len()];
        let needed = &self.needed;
        let sink: &mut Sink<'_> = &mut |batch, _, evaluation| {
            for row in 0..batch.len {
                batch.fill(row, needed, &mut values);
                each(&mut values, evaluation.cx)?;
            }
            Ok(())
        };
        let input = Some(&mut input);
        let below = run(
            self.source,
            input,
            &self.columns,
            &mut self.pipeline,
            sink,
            cx,
        )?;
        self.pipeline.count(below, cx);
        Ok(())
    }
}
