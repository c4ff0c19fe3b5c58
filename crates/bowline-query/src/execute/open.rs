//! From plan to stream.

use std::collections::HashSet;

use super::aggregate::Group;
use super::expand::Expand;
use super::gather::{Eager, Sort};
use super::merge::Merge;
use super::read::{
    Apply, Argument, Call, Discard, Distinct, Filter, IsNode, Limit, Optional, Project, Scan, Skip,
    Union, Unwind,
};
use super::stream::{Input, Row};
use super::write::{Action, Delete, Write};
use crate::plan::Plan;

/// Opens a plan with a row. Plans are as deep as queries are long; the bound on texts bounds this recursion.
pub(crate) fn open(plan: &Plan, argument: Row) -> Input<'_> {
    match plan {
        Plan::Argument => Box::new(Argument(Some(argument))),
        Plan::Scan { input, slot, label } => Box::new(Scan {
            input: open(input, argument),
            slot: *slot,
            label: label.as_ref(),
            row: None,
            page: Vec::new().into_iter(),
            last: None,
            exhausted: false,
        }),
        Plan::IsNode { input, slot, span } => Box::new(IsNode {
            input: open(input, argument),
            slot: *slot,
            span: *span,
        }),
        Plan::Expand { input, expansion } => {
            Box::new(Expand::new(open(input, argument), expansion))
        }
        Plan::Filter { input, predicate } => Box::new(Filter {
            input: open(input, argument),
            predicate,
        }),
        Plan::Project { input, items } => Box::new(Project {
            input: open(input, argument),
            items,
        }),
        Plan::Aggregate {
            input,
            keys,
            aggregates,
        } => Box::new(Group {
            input: open(input, argument.clone()),
            keys,
            aggregates,
            argument,
            groups: None,
        }),
        Plan::Distinct { input, slots } => Box::new(Distinct {
            input: open(input, argument),
            slots,
            seen: HashSet::new(),
        }),
        Plan::Sort { input, keys, limit } => Box::new(Sort {
            input: open(input, argument),
            keys,
            limit: limit.as_ref(),
            sorted: None,
            bytes: 0,
        }),
        Plan::Skip { input, count } => Box::new(Skip {
            input: open(input, argument),
            count,
            left: None,
        }),
        Plan::Limit {
            input,
            count,
            drain,
        } => Box::new(Limit {
            input: open(input, argument),
            count,
            drain: *drain,
            left: None,
        }),
        Plan::Unwind { input, slot, list } => Box::new(Unwind {
            input: open(input, argument),
            slot: *slot,
            list,
            row: Row::new(),
            values: Vec::new().into_iter(),
        }),
        Plan::Optional {
            input,
            inner,
            nulls,
        } => Box::new(Optional {
            input: open(input, argument),
            inner,
            nulls,
            current: None,
            open,
        }),
        Plan::Apply { input, inner } => Box::new(Apply {
            input: open(input, argument),
            inner,
            current: None,
            open,
        }),
        Plan::Union { inputs } => {
            let inputs: Vec<Input<'_>> = inputs
                .iter()
                .map(|input| open(input, argument.clone()))
                .collect();
            Box::new(Union {
                inputs: inputs.into_iter(),
                current: None,
            })
        }
        Plan::Eager { input } => Box::new(Eager {
            input: open(input, argument),
            rows: None,
            bytes: 0,
        }),
        Plan::Discard { input } => Box::new(Discard(open(input, argument))),
        Plan::Call {
            input,
            procedure,
            arguments,
            outputs,
        } => Box::new(Call {
            input: open(input, argument),
            procedure,
            arguments,
            outputs,
            row: Row::new(),
            rows: Vec::new().into_iter(),
        }),
        writing => open_write(writing, argument),
    }
}

fn open_write(plan: &Plan, argument: Row) -> Input<'_> {
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
            input,
            nodes,
            relationships,
        } => write(
            open(input, argument),
            Action::Create {
                nodes,
                relationships,
            },
        ),
        Plan::Set { input, items } => write(open(input, argument), Action::Set(items)),
        Plan::Remove { input, items } => write(open(input, argument), Action::Remove(items)),
        Plan::Foreach {
            input,
            slot,
            list,
            inner,
        } => write(
            open(input, argument),
            Action::Foreach {
                slot: *slot,
                list,
                inner,
                open,
            },
        ),
        Plan::Delete {
            input,
            expressions,
            detach,
        } => Box::new(Delete {
            input: open(input, argument),
            expressions,
            detach: *detach,
            done: None,
        }),
        Plan::Merge {
            input,
            matching,
            nodes,
            relationships,
            on_create,
            on_match,
            paths,
        } => Box::new(Merge {
            input: open(input, argument),
            matching,
            nodes,
            relationships,
            on_create,
            on_match,
            paths,
            open,
            done: None,
        }),
        _ => unreachable!("`open` has the operators that read"),
    }
}
