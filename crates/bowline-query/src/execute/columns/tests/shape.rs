//! [`Shape`]: what a plan does over columns, so that a test knows that it tests them.

use std::collections::BTreeSet;

use crate::compile::Compiled;
use crate::execute::columns::expand::Differs;
use crate::execute::columns::pipeline::{Pipeline, Work};
use crate::execute::columns::{ColumnRows, Columns, GroupColumns, reads_above};
use crate::execute::open;
use crate::plan::{Plan, Slot};
use crate::value::Value;

/// How often a plan does what only columns do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shape {
    /// Aggregations over columns.
    pub groups: usize,
    /// Rows of columns for other operators.
    pub rows: usize,
    pub steps: usize,
    pub merges: usize,
    pub from_loops: usize,
    pub in_ends: usize,
}

impl Shape {
    /// Of the plan of a query: what `open_whole` would open, down its chain of inputs.
    pub fn of(compiled: &Compiled, has_parallel_relationships: bool) -> Shape {
        let columns = Columns {
            has_parallel_relationships,
            slots: compiled.slots,
        };
        let argument = vec![Value::Null; compiled.slots];
        let answer = compiled.columns.iter().map(|(_, slot)| *slot);
        let mut shape = Shape::default();
        let mut needed: Option<BTreeSet<Slot>> = Some(answer.collect());
        let mut next = Some(&compiled.plan);
        while let Some(plan) = next {
            let mut below: Option<(&Plan, BTreeSet<Slot>)> = None;
            let open = |source, needed: &BTreeSet<Slot>| {
                below = Some((source, needed.clone()));
                open(source, argument.clone())
            };
            let found = match (plan, &needed) {
                (Plan::Aggregate { .. }, _) => {
                    let groups = GroupColumns::of(plan, &argument, columns, open);
                    shape.groups += usize::from(groups.is_some());
                    groups.map(|it| it.pipeline)
                }
                (
                    Plan::Filter { .. } | Plan::Expand { .. } | Plan::Project { .. },
                    Some(needed),
                ) => {
                    let rows = ColumnRows::of(plan, needed, columns, open, |_, _, rows| rows);
                    shape.rows += usize::from(rows.is_some());
                    rows.map(|it| it.pipeline)
                }
                _ => None,
            };
            if let Some(pipeline) = found {
                shape.add_stages(&pipeline);
                next = below.as_ref().map(|(plan, _)| *plan);
                needed = below.map(|(_, needed)| needed);
            } else {
                needed = needed.and_then(|needed| reads_above(plan, &needed));
                next = plan.input();
            }
        }
        shape
    }

    fn add_stages(&mut self, pipeline: &Pipeline<'_>) {
        for stage in &pipeline.stages {
            match &stage.work {
                Work::Expand(expand) => {
                    self.steps += 1;
                    let is_from_loop = |it: &&Differs| matches!(it, Differs::FromLoop(_));
                    let from_loops = expand.differs.iter().filter(is_from_loop).count();
                    self.from_loops += from_loops;
                    self.in_ends += expand.differs.len() - from_loops;
                }
                Work::Merge(_) => self.merges += 1,
                Work::Filter(_) | Work::IsNode(..) | Work::Project(_) => {}
            }
        }
    }

    pub fn add(&mut self, other: Shape) {
        self.groups += other.groups;
        self.rows += other.rows;
        self.steps += other.steps;
        self.merges += other.merges;
        self.from_loops += other.from_loops;
        self.in_ends += other.in_ends;
    }
}
