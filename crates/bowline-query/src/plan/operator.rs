//! Operators. Each yields rows to the one above it.

use bowline_types::Direction;

use super::{Expr, Slot};
use crate::error::Span;
use crate::syntax::ast::Shortest;
use crate::value::Name;

#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// One row: the one with which the plan was opened.
    Argument,
    /// For each row, each node, or each with the label.
    Scan {
        input: Box<Plan>,
        slot: Slot,
        label: Option<Name>,
    },
    /// For each row, each node that an index has for what is asked, and perhaps others: a filter follows.
    Seek {
        input: Box<Plan>,
        slot: Slot,
        seek: Box<NodeSeek>,
    },
    /// Rows whose slot holds a node.
    IsNode {
        input: Box<Plan>,
        slot: Slot,
        span: Span,
    },
    Expand {
        input: Box<Plan>,
        expansion: Box<Expansion>,
    },
    Filter {
        input: Box<Plan>,
        predicate: Expr,
    },
    Project {
        input: Box<Plan>,
        items: Vec<(Slot, Expr)>,
    },
    /// For each group of rows with equivalent keys, one row of the keys and the aggregates.
    Aggregate {
        input: Box<Plan>,
        keys: Vec<(Slot, Expr)>,
        aggregates: Vec<Aggregate>,
    },
    Distinct {
        input: Box<Plan>,
        slots: Vec<Slot>,
    },
    /// The flag is true for descending.
    Sort {
        input: Box<Plan>,
        keys: Vec<(Expr, bool)>,
        limit: Option<Expr>,
    },
    Skip {
        input: Box<Plan>,
        count: Expr,
    },
    /// `drain`: the input writes, so it is read to its end.
    Limit {
        input: Box<Plan>,
        count: Expr,
        drain: bool,
    },
    Unwind {
        input: Box<Plan>,
        slot: Slot,
        list: Expr,
    },
    /// For each row of the input, the rows of `inner` opened with it; if there are none, the row itself with nulls.
    Optional {
        input: Box<Plan>,
        inner: Box<Plan>,
        nulls: Vec<Slot>,
    },
    /// For each row of the input, the rows of `inner` opened with it.
    Apply {
        input: Box<Plan>,
        inner: Box<Plan>,
    },
    /// The rows of all inputs.
    Union {
        inputs: Vec<Plan>,
    },
    /// All rows of the input, which are read to the end before the first is yielded.
    Eager {
        input: Box<Plan>,
    },
    Create {
        input: Box<Plan>,
        nodes: Vec<CreateNode>,
        relationships: Vec<CreateRelationship>,
    },
    /// Rows of `matching`, or, if it has none, a row of what is created.
    Merge {
        input: Box<Plan>,
        matching: Box<Plan>,
        nodes: Vec<CreateNode>,
        relationships: Vec<CreateRelationship>,
        on_create: Vec<Set>,
        on_match: Vec<Set>,
        paths: Vec<(Slot, Expr)>,
    },
    Set {
        input: Box<Plan>,
        items: Vec<Set>,
    },
    Remove {
        input: Box<Plan>,
        items: Vec<Remove>,
    },
    Delete {
        input: Box<Plan>,
        expressions: Vec<Expr>,
        detach: bool,
    },
    Call {
        input: Box<Plan>,
        procedure: Name,
        arguments: Vec<Expr>,
        outputs: Vec<(usize, Slot)>,
    },
    /// Reads its input to the end and yields nothing.
    Discard {
        input: Box<Plan>,
    },
    /// For each row, for each value of the list, `inner` is run for its writes.
    Foreach {
        input: Box<Plan>,
        slot: Slot,
        list: Expr,
        inner: Box<Plan>,
    },
}

/// What an index of the nodes with a label is asked for.
#[derive(Clone, Debug)]
pub(crate) struct NodeSeek {
    pub label: Name,
    /// Those of the index, in its order.
    pub properties: Vec<Name>,
    /// What all but the last are equal to.
    pub equal: Vec<Expr>,
    pub last: SeekKeys,
}

/// What the last property of an index must be. A flag is true if the bound itself is included.
#[derive(Clone, Debug)]
pub(crate) enum SeekKeys {
    Equal(Expr),
    In(Expr),
    StartsWith(Expr),
    Between {
        lower: Option<(Expr, bool)>,
        upper: Option<(Expr, bool)>,
    },
}

/// A step, or several, from a node that the row holds.
#[derive(Clone, Debug)]
pub(crate) struct Expansion {
    pub from: Slot,
    /// Gets the relationship, or the list of them.
    pub relationship: Slot,
    /// The row already holds the relationship, which must fit.
    pub relationship_bound: bool,
    pub to: Slot,
    /// The row already holds the node, which must be the one reached.
    pub to_bound: bool,
    pub direction: Direction,
    pub kinds: Vec<Name>,
    /// The least and the greatest number of steps.
    pub length: Option<(u64, u64)>,
    /// What each relationship on the way must hold.
    pub properties: Vec<(Name, Expr)>,
    /// What each element on the shortest way must fit.
    pub element_tests: Vec<ElementTest>,
    /// The relationships of the same MATCH, none of which may be followed again.
    pub distinct_from: Vec<Slot>,
    /// The list of relationships is in reverse, because the pattern is walked from its end.
    pub reversed: bool,
    /// Whether anything may ask for the relationship. If not, a row need not have it.
    pub is_read: bool,
    pub shortest: Option<Shortest>,
}

/// What each node or each relationship of a shortest path must fit.
#[derive(Clone, Debug)]
pub(crate) struct ElementTest {
    /// Gets the element.
    pub slot: Slot,
    /// Of the nodes, both ends included; if not, of the relationships.
    pub is_of_nodes: bool,
    pub predicate: Expr,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AggregateKind {
    CountAll,
    Count,
    Sum,
    Average,
    Min,
    Max,
    Collect,
    StandardDeviation,
    StandardDeviationOfPopulation,
    PercentileContinuous,
    PercentileDiscrete,
}

#[derive(Clone, Debug)]
pub(crate) struct Aggregate {
    pub kind: AggregateKind,
    pub slot: Slot,
    pub distinct: bool,
    pub arguments: Vec<Expr>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct CreateNode {
    pub slot: Slot,
    pub labels: Vec<Name>,
    pub properties: Option<Expr>,
}

#[derive(Clone, Debug)]
pub(crate) struct CreateRelationship {
    pub slot: Slot,
    pub source: Slot,
    pub kind: Name,
    pub target: Slot,
    pub properties: Option<Expr>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum Set {
    Property {
        target: Expr,
        key: Name,
        value: Expr,
    },
    Properties {
        target: Slot,
        value: Expr,
        replace: bool,
        span: Span,
    },
    Labels {
        target: Slot,
        labels: Vec<Name>,
        span: Span,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum Remove {
    Property {
        target: Expr,
        key: Name,
    },
    Labels {
        target: Slot,
        labels: Vec<Name>,
        span: Span,
    },
}

impl Plan {
    /// The plan whose rows this one reads. UNION reads several and has none.
    pub fn input(&self) -> Option<&Plan> {
        match self {
            Plan::Argument | Plan::Union { .. } => None,
            Plan::Optional { input, .. }
            | Plan::Apply { input, .. }
            | Plan::Foreach { input, .. }
            | Plan::Merge { input, .. }
            | Plan::Scan { input, .. }
            | Plan::Seek { input, .. }
            | Plan::IsNode { input, .. }
            | Plan::Expand { input, .. }
            | Plan::Filter { input, .. }
            | Plan::Project { input, .. }
            | Plan::Aggregate { input, .. }
            | Plan::Distinct { input, .. }
            | Plan::Sort { input, .. }
            | Plan::Skip { input, .. }
            | Plan::Limit { input, .. }
            | Plan::Unwind { input, .. }
            | Plan::Eager { input }
            | Plan::Create { input, .. }
            | Plan::Set { input, .. }
            | Plan::Remove { input, .. }
            | Plan::Delete { input, .. }
            | Plan::Call { input, .. }
            | Plan::Discard { input } => Some(input),
        }
    }

    /// Whether running the plan may change the graph.
    pub fn writes(&self) -> bool {
        let mut next = Some(self);
        while let Some(plan) = next {
            let writes = match plan {
                Plan::Create { .. }
                | Plan::Merge { .. }
                | Plan::Set { .. }
                | Plan::Remove { .. }
                | Plan::Delete { .. }
                | Plan::Foreach { .. } => true,
                Plan::Optional { inner, .. } | Plan::Apply { inner, .. } => inner.writes(),
                Plan::Union { inputs } => inputs.iter().any(Plan::writes),
                _ => false,
            };
            if writes {
                return true;
            }
            next = plan.input();
        }
        false
    }
}
