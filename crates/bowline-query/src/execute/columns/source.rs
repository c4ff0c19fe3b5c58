//! Where the rows of a pipeline come from: a scan of nodes, or the rows of other operators.

use std::time::Duration;

use super::assemble::Source;
use super::batch::{Batch, Column};
use super::pipeline::{BATCH, Pipeline, Sink};
use crate::error::Result;
use crate::execute::context::Context;
use crate::execute::stream::{Input, Row};
use crate::plan::Slot;
use crate::value::Value;

/// Pushes all rows of a source through a pipeline. Returns the time that the source took, for a profile.
pub(super) fn run(
    source: Source<'_>,
    input: Option<&mut Input<'_>>,
    columns: &[Slot],
    pipeline: &mut Pipeline<'_>,
    sink: &mut Sink<'_>,
    cx: &mut Context<'_>,
) -> Result<Duration> {
    let slots = pipeline.slots;
    match (source, input) {
        (Source::Scan { plan, slot, label }, _) => {
            let (mut last, mut rows, mut time) = (None, 0, Duration::ZERO);
            loop {
                let begin = cx.elapsed();
                let mut page = Vec::with_capacity(BATCH);
                let label = label.map(|label| &**label);
                cx.graph().nodes(label, last, BATCH, &mut page)?;
                cx.tick_many(page.len() as u64)?;
                let is_last = page.len() < BATCH;
                last = page.last().copied();
                let mut batch = Batch::of(page.len(), slots);
                if columns.contains(&slot) {
                    batch.columns[slot] = Column::Nodes(page.into());
                }
                rows += batch.len as u64;
                time += cx.elapsed().saturating_sub(begin);
                pipeline.push(batch, sink, cx)?;
                if is_last {
                    break;
                }
            }
            cx.counts.note(plan, rows, time);
            pipeline.finish(sink, cx)?;
            Ok(time)
        }
        (Source::Rows(plan), Some(input)) => {
            let mut waiting = Waiting::new(columns);
            input.drain(cx, &mut |row, cx| {
                waiting.take(row);
                match waiting.len < BATCH {
                    true => Ok(()),
                    false => pipeline.push(waiting.batch(slots), sink, cx),
                }
            })?;
            pipeline.push(waiting.batch(slots), sink, cx)?;
            pipeline.finish(sink, cx)?;
            Ok(cx.counts.of(plan).time)
        }
        (Source::Rows(_), None) => unreachable!("rows have an input"),
    }
}

/// Rows that wait until they are a batch.
struct Waiting<'c> {
    columns: &'c [Slot],
    values: Vec<Vec<Value>>,
    len: usize,
}

impl<'c> Waiting<'c> {
    fn new(columns: &'c [Slot]) -> Waiting<'c> {
        Waiting {
            columns,
            values: vec![Vec::new(); columns.len()],
            len: 0,
        }
    }

    fn take(&mut self, row: &Row) {
        for (slot, values) in self.columns.iter().zip(&mut self.values) {
            values.push(row[*slot].clone());
        }
        self.len += 1;
    }

    fn batch(&mut self, slots: usize) -> Batch {
        let mut batch = Batch::of(std::mem::take(&mut self.len), slots);
        for (slot, values) in self.columns.iter().zip(&mut self.values) {
            batch.columns[*slot] = Column::of(std::mem::take(values));
        }
        batch
    }
}
