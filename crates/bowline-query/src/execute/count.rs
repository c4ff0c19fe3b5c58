//! What operators yielded and how long they took, for a query that asks for it.
//!
//! [`Counted`] stands above an operator and adds up its rows and times under the operator's address in the plan, which
//! does not move while a query runs. A query that does not ask has none: its streams are opened without it.

use std::collections::HashMap;
use std::time::Duration;

use super::context::Context;
use super::stream::{Each, Input, Row, Stream};
use crate::error::Result;
use crate::plan::Plan;

/// What an operator did, over all times that it was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub rows: u64,
    /// Of the operator and all below it.
    pub time: Duration,
}

/// What the operators of a plan did.
#[derive(Debug, Default)]
pub(crate) struct Counts(HashMap<usize, Count>);

impl Counts {
    /// What an operator did; nothing, if it was never opened.
    pub fn of(&self, plan: &Plan) -> Count {
        self.0.get(&address(plan)).copied().unwrap_or_default()
    }

    /// What an operator did that works on batches.
    pub fn note(&mut self, plan: &Plan, rows: u64, time: Duration) {
        self.add(address(plan), rows, time);
    }

    pub(super) fn add(&mut self, operator: usize, rows: u64, time: Duration) {
        let count = self.0.entry(operator).or_default();
        count.rows += rows;
        count.time += time;
    }
}

fn address(plan: &Plan) -> usize {
    std::ptr::from_ref(plan).addr()
}

/// An operator that is counted.
pub(super) struct Counted<'p> {
    input: Input<'p>,
    operator: usize,
}

impl<'p> Counted<'p> {
    pub fn new(input: Input<'p>, plan: &Plan) -> Counted<'p> {
        Counted {
            input,
            operator: address(plan),
        }
    }
}

impl Stream for Counted<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        let begin = cx.elapsed();
        let row = self.input.next(cx);
        let rows = u64::from(matches!(row, Ok(Some(_))));
        let time = cx.elapsed().saturating_sub(begin);
        cx.counts.add(self.operator, rows, time);
        row
    }

    fn drain(&mut self, cx: &mut Context<'_>, each: &mut Each<'_>) -> Result<()> {
        let begin = cx.elapsed();
        let (mut rows, mut above) = (0, Duration::ZERO);
        let drained = self.input.drain(cx, &mut |row, cx| {
            rows += 1;
            let begin = cx.elapsed();
            each(row, cx)?;
            above += cx.elapsed().saturating_sub(begin);
            Ok(())
        });
        let time = cx.elapsed().saturating_sub(begin).saturating_sub(above);
        cx.counts.add(self.operator, rows, time);
        drained
    }
}
