//! [`GroupColumns`]: groups of the rows of a pipeline.

use std::collections::BTreeSet;

use bowline_types::{BlockId, IdMap};

use super::assemble::{Columns, Source, assemble};
use super::batch::{Batch, Column};
use super::fields::Fields;
use super::formula::{Evaluation, Formula};
use super::pipeline::{Pipeline, Sink, column};
use super::source::run;
use crate::error::Result;
use crate::execute::aggregate::Groups;
use crate::execute::context::Context;
use crate::execute::stream::{Input, Row, Stream};
use crate::plan::{Aggregate, AggregateKind, Expr, Kind, Plan, Slot};

/// Groups whose nodes are known are found without their keys, for so many nodes.
const NODES_MAX: usize = 1 << 16;

/// An aggregate, and what it is computed of: nothing, where it counts rows.
struct Computed<'p> {
    aggregate: &'p Aggregate,
    argument: Option<Formula<'p>>,
}

/// What groups are made of.
struct Grouping<'p> {
    keys: &'p [(Slot, Expr)],
    formulas: Vec<Formula<'p>>,
    computed: Vec<Computed<'p>>,
    /// The columns of nodes whose fields are read.
    reads_fields: Vec<Slot>,
    /// All keys are of this node.
    of_node: Option<Slot>,
    group_of: IdMap<usize>,
}

/// See the [module](self).
pub(crate) struct GroupColumns<'p> {
    grouping: Grouping<'p>,
    pub(super) pipeline: Pipeline<'p>,
    source: Source<'p>,
    /// The columns that the source gives.
    columns: Vec<Slot>,
    /// The rows of the source, if it is other operators.
    input: Option<Input<'p>>,
    aggregates: &'p [Aggregate],
    argument: Row,
    groups: Option<std::vec::IntoIter<Row>>,
}

/// Whether equal rows may be one with a weight.
fn takes_weights(aggregate: &Aggregate) -> bool {
    let kind = aggregate.kind;
    aggregate.distinct
        || matches!(
            kind,
            AggregateKind::CountAll
                | AggregateKind::Count
                | AggregateKind::Sum
                | AggregateKind::Average
                | AggregateKind::Min
                | AggregateKind::Max
        )
}

/// Whether a slot surely holds a node in the rows of a plan.
fn is_node(mut slot: Slot, mut plan: &Plan) -> bool {
    loop {
        plan = match plan {
            Plan::Scan { slot: of, .. } if *of == slot => return true,
            Plan::Expand { expansion, .. } if expansion.to == slot => return true,
            Plan::IsNode { slot: of, .. } if *of == slot => return true,
            Plan::Project { input, items } => {
                if let Some((_, expr)) = items.iter().find(|(of, _)| *of == slot) {
                    let Kind::Slot(of) = expr.kind else {
                        return false;
                    };
                    slot = of;
                }
                input
            }
            Plan::Scan { input, .. }
            | Plan::Seek { input, .. }
            | Plan::Expand { input, .. }
            | Plan::IsNode { input, .. }
            | Plan::Filter { input, .. } => input,
            _ => return false,
        };
    }
}

impl<'p> GroupColumns<'p> {
    /// The groups of a plan, if the operators below it can work on columns; `open` opens what is below those.
    pub fn of(
        plan: &'p Plan,
        argument: &Row,
        columns: Columns,
        open: impl FnOnce(&'p Plan, &BTreeSet<Slot>) -> Input<'p>,
    ) -> Option<GroupColumns<'p>> {
        let Plan::Aggregate {
            input,
            keys,
            aggregates,
        } = plan
        else {
            return None;
        };
        let mut fields = Fields::default();
        let mut formulas = Vec::new();
        for (_, expr) in keys {
            formulas.push(Formula::of(expr, &mut fields)?);
        }
        let mut computed = Vec::new();
        for aggregate in aggregates {
            let argument = match aggregate.arguments.as_slice() {
                [] => None,
                [one] => Some(Formula::of(one, &mut fields)?),
                _ => return None,
            };
            let counts_rows = |it: &Formula<'_>| {
                aggregate.kind == AggregateKind::Count
                    && !aggregate.distinct
                    && it.slot().is_some_and(|slot| is_node(slot, input))
            };
            computed.push(Computed {
                aggregate,
                argument: argument.filter(|it| !counts_rows(it)),
            });
        }
        let has_weights = aggregates.iter().all(takes_weights);
        let mut of_keys = BTreeSet::new();
        formulas.iter().for_each(|it| of_keys.extend(it.reads()));
        let (mut needed, mut reads_fields) = (of_keys.clone(), BTreeSet::new());
        let arguments = computed.iter().filter_map(|it| it.argument.as_ref());
        for formula in arguments.chain(&formulas) {
            needed.extend(formula.reads());
            formula.reads_fields(&mut reads_fields);
        }
        let of_node = match of_keys.iter().collect::<Vec<_>>()[..] {
            [slot] => Some(*slot),
            _ => None,
        };
        let (pipeline, source, read) = assemble(
            input,
            (needed, reads_fields.clone()),
            fields,
            has_weights,
            columns,
        )?;
        let grouping = Grouping {
            keys,
            formulas,
            computed,
            reads_fields: reads_fields.into_iter().collect(),
            of_node,
            group_of: IdMap::default(),
        };
        Some(GroupColumns {
            grouping,
            pipeline,
            source,
            input: match source {
                Source::Rows(plan) => Some(open(plan, &read.iter().copied().collect())),
                Source::Scan { .. } => None,
            },
            columns: read,
            aggregates,
            argument: argument.clone(),
            groups: None,
        })
    }

    fn gather(&mut self, cx: &mut Context<'_>) -> Result<Vec<Row>> {
        self.grouping.settle(&self.pipeline.fields, cx);
        self.pipeline.settle(cx);
        let is_one = self.grouping.keys.is_empty();
        let mut groups = Groups::new(self.aggregates, is_one, self.argument.len());
        let grouping = &mut self.grouping;
        let sink: &mut Sink<'_> =
            &mut |batch, fields, evaluation| grouping.take(batch, &mut groups, fields, evaluation);
        let below = run(
            self.source,
            self.input.as_mut(),
            &self.columns,
            &mut self.pipeline,
            sink,
            cx,
        )?;
        self.pipeline.count(below, cx);
        groups.rows(self.grouping.keys, &self.argument)
    }
}

impl Stream for GroupColumns<'_> {
    fn next(&mut self, cx: &mut Context<'_>) -> Result<Option<Row>> {
        if self.groups.is_none() {
            self.groups = Some(self.gather(cx)?.into_iter());
        }
        Ok(self.groups.as_mut().and_then(Iterator::next))
    }
}

impl Grouping<'_> {
    fn settle(&mut self, fields: &Fields, cx: &Context<'_>) {
        let arguments = self
            .computed
            .iter_mut()
            .filter_map(|it| it.argument.as_mut());
        for formula in arguments.chain(&mut self.formulas) {
            formula.settle(fields, cx);
        }
    }

    fn take(
        &mut self,
        mut batch: Batch,
        groups: &mut Groups<'_>,
        fields: &mut Fields,
        evaluation: &mut Evaluation<'_, '_>,
    ) -> Result<()> {
        if self.formulas.is_empty() && self.computed.iter().all(|it| it.argument.is_none()) {
            return groups.count(batch.rows());
        }
        for slot in &self.reads_fields {
            if let Column::Nodes(nodes) = &mut batch.columns[*slot] {
                fields.read(nodes, evaluation.cx)?;
            }
        }
        let arguments = self
            .computed
            .iter()
            .map(|it| match &it.argument {
                Some(formula) => column(formula, &batch, evaluation).map(Some),
                None => Ok(None),
            })
            .collect::<Result<Vec<_>>>()?;
        for row in 0..batch.len {
            let group = self.group(&batch, row, groups, evaluation)?;
            for (at, (it, argument)) in self.computed.iter().zip(&arguments).enumerate() {
                let value = argument.as_ref().map(|column| column.value(row));
                let weight = batch.weight(row);
                groups
                    .add(group, at, value, weight, evaluation.cx)
                    .map_err(|error| error.at(it.aggregate.span))?;
            }
        }
        Ok(())
    }

    /// The number of a row's group.
    fn group(
        &mut self,
        batch: &Batch,
        row: usize,
        groups: &mut Groups<'_>,
        evaluation: &mut Evaluation<'_, '_>,
    ) -> Result<usize> {
        if self.formulas.is_empty() {
            return Ok(0);
        }
        let node = self.node(batch, row);
        if let Some(group) = node.and_then(|node| self.group_of.get(&node)) {
            return Ok(*group);
        }
        let mut key = Vec::with_capacity(self.formulas.len());
        for formula in &self.formulas {
            key.push(formula.value(batch, row, evaluation)?.into_owned());
        }
        let group = groups.of(key, evaluation.cx)?;
        if let Some(node) = node {
            if self.group_of.len() >= NODES_MAX {
                self.group_of.clear();
            }
            self.group_of.insert(node, group);
        }
        Ok(group)
    }

    fn node(&self, batch: &Batch, row: usize) -> Option<BlockId> {
        match &batch.columns[self.of_node?] {
            Column::Nodes(nodes) => Some(nodes.ids[row]),
            _ => None,
        }
    }
}
