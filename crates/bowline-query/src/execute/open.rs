//! From plan to stream.

use std::collections::{BTreeSet, HashSet};

use super::aggregate::Group;
use super::columns::{ColumnRows, Columns, GroupColumns, reads_above};
use super::count::Counted;
use super::expand::Expand;
use super::gather::{Eager, Sort};
use super::merge::Merge;
use super::read::{
    Apply, Argument, Call, Discard, Distinct, Filter, IsNode, Limit, Optional, Project, Scan, Skip,
    Union, Unwind, Unwound,
};
use super::seek::NodeSeeks;
use super::stream::{Input, Row};
use super::write::{Action, Delete, Write};
use crate::plan::{Plan, Slot};
use crate::value::Value;

/// Opens a plan with a row. A plan is a chain of operators, each of which reads the one below it: the streams are made
/// from the bottom up, so that the length of the chain costs no stack.
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers give the row away; the leaf keeps it"
)]
pub(crate) fn open(plan: &Plan, argument: Row) -> Input<'_> {
    open_as::<false>(plan, &argument, None)
}

/// The same, with each operator counted.
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers give the row away; the leaf keeps it"
)]
pub(crate) fn open_counted(plan: &Plan, argument: Row) -> Input<'_> {
    open_as::<true>(plan, &argument, None)
}

/// What may be made over columns: the graph is only read.
#[derive(Clone)]
struct Whole {
    columns: Columns,
    /// What is read of the rows. `None`: any slot may be.
    needed: Option<BTreeSet<Slot>>,
}

/// Opens the plan of a whole query, of whose rows the slots `answer` are read. `columns`: the graph is only read, and operators may
/// work on columns.
pub(crate) fn open_whole(
    plan: &Plan,
    slots: usize,
    answer: impl Iterator<Item = Slot>,
    is_counted: bool,
    columns: Option<Columns>,
) -> Input<'_> {
    let argument = vec![Value::Null; slots];
    let whole = columns.map(|columns| Whole {
        columns,
        needed: Some(answer.collect()),
    });
    match is_counted {
        true => open_as::<true>(plan, &argument, whole),
        false => open_as::<false>(plan, &argument, whole),
    }
}

/// How operators open the plans within them.
const fn opener<const COUNTED: bool>() -> fn(&Plan, Row) -> Input<'_> {
    match COUNTED {
        true => open_counted,
        false => open,
    }
}

fn open_as<'p, const COUNTED: bool>(
    plan: &'p Plan,
    argument: &Row,
    mut whole: Option<Whole>,
) -> Input<'p> {
    let mut chain = Vec::new();
    let mut leaf = plan;
    let stream = loop {
        if let Some(stream) = whole
            .as_ref()
            .and_then(|whole| open_columns::<COUNTED>(leaf, argument, whole))
        {
            break stream;
        }
        if let Some(whole) = &mut whole {
            let needed = whole.needed.take();
            whole.needed = needed.and_then(|needed| reads_above(leaf, &needed));
        }
        match leaf.input() {
            Some(input) => {
                chain.push(leaf);
                leaf = input;
            }
            None => {
                let stream = open_leaf::<COUNTED>(leaf, argument, whole.as_ref());
                break counted::<COUNTED>(stream, leaf);
            }
        }
    };
    stack::<COUNTED>(stream, chain, argument)
}

/// An operator and those below it over columns, where they can.
fn open_columns<'p, const COUNTED: bool>(
    plan: &'p Plan,
    argument: &Row,
    whole: &Whole,
) -> Option<Input<'p>> {
    let columns = whole.columns;
    let open = |plan, needed: &BTreeSet<Slot>| {
        let needed = Some(needed.clone());
        open_as::<COUNTED>(plan, argument, Some(Whole { columns, needed }))
    };
    match plan {
        Plan::Aggregate { .. } => {
            let groups = GroupColumns::of(plan, argument, columns, open)?;
            Some(counted::<COUNTED>(Box::new(groups), plan))
        }
        Plan::Filter { .. } | Plan::Expand { .. } | Plan::Project { .. } => {
            let needed = whole.needed.as_ref()?;
            let rows = ColumnRows::of(plan, needed, columns, open, stack_down::<COUNTED>)?;
            Some(Box::new(rows))
        }
        _ => None,
    }
}

fn counted<'p, const COUNTED: bool>(stream: Input<'p>, plan: &Plan) -> Input<'p> {
    match COUNTED {
        true => Box::new(Counted::new(stream, plan)),
        false => stream,
    }
}

/// The operators from `top` down to `below`, above the rows of that.
fn stack_down<'p, const COUNTED: bool>(
    top: &'p Plan,
    below: &'p Plan,
    stream: Input<'p>,
) -> Input<'p> {
    let mut chain = Vec::new();
    let mut plan = top;
    while !std::ptr::eq(plan, below)
        && let Some(input) = plan.input()
    {
        chain.push(plan);
        plan = input;
    }
    // None of them needs the row with which the plan was opened.
    stack::<COUNTED>(stream, chain, &Row::new())
}

/// Operators above a stream, the last one the lowest.
fn stack<'p, const COUNTED: bool>(
    mut stream: Input<'p>,
    mut chain: Vec<&'p Plan>,
    argument: &Row,
) -> Input<'p> {
    while let Some(plan) = chain.pop() {
        stream = match plan {
            Plan::Scan { .. }
            | Plan::Seek { .. }
            | Plan::IsNode { .. }
            | Plan::Expand { .. }
            | Plan::Call { .. } => open_source(plan, stream),
            Plan::Optional { .. } | Plan::Apply { .. } | Plan::Aggregate { .. } => {
                open_inner::<COUNTED>(plan, stream, argument)
            }
            Plan::Filter { .. }
            | Plan::Project { .. }
            | Plan::Distinct { .. }
            | Plan::Sort { .. }
            | Plan::Skip { .. }
            | Plan::Limit { .. }
            | Plan::Unwind { .. }
            | Plan::Eager { .. }
            | Plan::Discard { .. } => open_shaping(plan, stream),
            _ => open_write::<COUNTED>(plan, stream),
        };
        stream = counted::<COUNTED>(stream, plan);
    }
    stream
}

/// A plan without an input of its own.
fn open_leaf<'p, const COUNTED: bool>(
    plan: &'p Plan,
    argument: &Row,
    whole: Option<&Whole>,
) -> Input<'p> {
    match plan {
        Plan::Union { inputs } => {
            let inputs: Vec<Input<'p>> = inputs
                .iter()
                .map(|input| open_as::<COUNTED>(input, argument, whole.cloned()))
                .collect();
            Box::new(Union {
                inputs: inputs.into_iter(),
                current: None,
            })
        }
        _ => Box::new(Argument(Some(argument.clone()))),
    }
}

/// Operators that find things.
fn open_source<'p>(plan: &'p Plan, input: Input<'p>) -> Input<'p> {
    match plan {
        Plan::Scan { slot, label, .. } => Box::new(Scan {
            input,
            slot: *slot,
            label: label.as_ref(),
            row: None,
            page: Vec::new().into_iter(),
            last: None,
            exhausted: false,
        }),
        Plan::Seek { slot, seek, .. } => Box::new(NodeSeeks::new(input, *slot, seek)),
        Plan::IsNode { slot, span, .. } => Box::new(IsNode {
            input,
            slot: *slot,
            span: *span,
        }),
        Plan::Expand { expansion, .. } => Box::new(Expand::new(input, expansion)),
        Plan::Call {
            procedure,
            arguments,
            outputs,
            ..
        } => Box::new(Call {
            input,
            procedure,
            arguments,
            outputs,
            row: Row::new(),
            rows: None,
        }),
        _ => unreachable!("`open` passes these five only"),
    }
}

/// Operators that run a plan for each row, or need the outer row.
fn open_inner<'p, const COUNTED: bool>(
    plan: &'p Plan,
    input: Input<'p>,
    argument: &Row,
) -> Input<'p> {
    let open = opener::<COUNTED>();
    match plan {
        Plan::Optional { inner, nulls, .. } => Box::new(Optional {
            input,
            inner,
            nulls,
            current: None,
            open,
        }),
        Plan::Apply { inner, .. } => Box::new(Apply {
            input,
            inner,
            current: None,
            open,
        }),
        Plan::Aggregate {
            keys, aggregates, ..
        } => Box::new(Group {
            input,
            keys,
            aggregates,
            argument: argument.clone(),
            groups: None,
        }),
        _ => unreachable!("`open` passes these three only"),
    }
}

/// Operators that choose, order and compute.
fn open_shaping<'p>(plan: &'p Plan, input: Input<'p>) -> Input<'p> {
    match plan {
        Plan::Filter { predicate, .. } => Box::new(Filter { input, predicate }),
        Plan::Project { items, .. } => Box::new(Project { input, items }),
        Plan::Distinct { slots, .. } => Box::new(Distinct {
            input,
            slots,
            seen: HashSet::new(),
        }),
        Plan::Sort { keys, limit, .. } => Box::new(Sort {
            input,
            keys,
            limit: limit.as_ref(),
            sorted: None,
            bytes: 0,
        }),
        Plan::Skip { count, .. } => Box::new(Skip {
            input,
            count,
            left: None,
        }),
        Plan::Limit { count, drain, .. } => Box::new(Limit {
            input,
            count,
            drain: *drain,
            left: None,
        }),
        Plan::Unwind { slot, list, .. } => Box::new(Unwind {
            input,
            slot: *slot,
            list,
            row: Row::new(),
            values: Unwound::Single(None),
        }),
        Plan::Eager { .. } => Box::new(Eager {
            input,
            rows: None,
            bytes: 0,
        }),
        Plan::Discard { .. } => Box::new(Discard(input)),
        _ => unreachable!("`open` passes these nine only"),
    }
}

fn open_write<'p, const COUNTED: bool>(plan: &'p Plan, input: Input<'p>) -> Input<'p> {
    let open = opener::<COUNTED>();
    let write = |input, action| {
        Box::new(Write {
            input,
            action,
            done: None,
            bytes: 0,
        })
    };
    match plan {
        Plan::Create {
            nodes,
            relationships,
            ..
        } => write(
            input,
            Action::Create {
                nodes,
                relationships,
            },
        ),
        Plan::Set { items, .. } => write(input, Action::Set(items)),
        Plan::Remove { items, .. } => write(input, Action::Remove(items)),
        Plan::Foreach {
            slot, list, inner, ..
        } => write(
            input,
            Action::Foreach {
                slot: *slot,
                list,
                inner,
                open,
            },
        ),
        Plan::Delete {
            expressions,
            detach,
            ..
        } => Box::new(Delete {
            input,
            expressions,
            detach: *detach,
            done: None,
        }),
        Plan::Merge {
            matching,
            nodes,
            relationships,
            on_create,
            on_match,
            paths,
            ..
        } => Box::new(Merge {
            input,
            matching,
            nodes,
            relationships,
            on_create,
            on_match,
            paths,
            open,
            done: None,
        }),
        _ => unreachable!("`open` passes operators that write"),
    }
}
