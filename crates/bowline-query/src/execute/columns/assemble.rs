//! From a chain of operators to a pipeline: which of them work on columns, which columns each has to keep, and where equal rows
//! become one.
//!
//! From the top down, operators are taken for as long as they can work on columns; what is below gives rows. A relationship is
//! never made here: it is told by its ends. So a step is left to the rows where something asks for its relationship, or where its
//! ends do not tell it from an earlier one of the same MATCH.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::batch::Keeps;
use super::expand::{Differs, Expand, is_plain};
use super::fields::Fields;
use super::formula::Formula;
use super::merge::Merge;
use super::pipeline::{Pipeline, Stage, Work};
use crate::error::Span;
use crate::plan::{Expansion, Plan, Slot};
use crate::value::{Name, Value};

/// What a query's graph and operators allow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns {
    /// Whether several relationships of a kind may join two nodes.
    pub has_parallel_relationships: bool,
    /// How many slots a row has.
    pub slots: usize,
}

/// Where the rows of a pipeline come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'p> {
    /// All nodes, or those with a label.
    Scan {
        plan: &'p Plan,
        slot: Slot,
        label: Option<&'p Name>,
    },
    /// The rows of other operators.
    Rows(&'p Plan),
}

/// So many operators pass batches on at most: each calls the next.
const OPERATORS_MAX: usize = 64;

enum Operator<'p> {
    Filter(Formula<'p>),
    IsNode(Slot, Span),
    Project(Vec<(Slot, Formula<'p>)>),
    Expand(&'p Expansion),
}

struct Placed<'p> {
    plan: &'p Plan,
    operator: Operator<'p>,
}

/// The operators from `top` down that can work on columns, and what is below them.
fn take<'p>(
    top: &'p Plan,
    needed: &BTreeSet<Slot>,
    fields: &mut Fields,
) -> (Vec<Placed<'p>>, &'p Plan) {
    let mut taken: Vec<Placed<'p>> = Vec::new();
    let mut read = needed.clone();
    let mut plan = top;
    while taken.len() < OPERATORS_MAX {
        let (input, operator) = match plan {
            Plan::Filter { input, predicate } => {
                let Some(formula) = Formula::of(predicate, fields) else {
                    break;
                };
                read.extend(formula.reads());
                (input, Operator::Filter(formula))
            }
            Plan::IsNode { input, slot, span } => (input, Operator::IsNode(*slot, *span)),
            Plan::Project { input, items } => {
                let item = |(slot, expr)| Some((slot, Formula::of(expr, fields)?));
                let items = items.iter().map(|(slot, expr)| (*slot, expr)).map(item);
                let Some(items) = items.collect::<Option<Vec<_>>>() else {
                    break;
                };
                for (_, formula) in &items {
                    read.extend(formula.reads());
                }
                (input, Operator::Project(items))
            }
            Plan::Expand { input, expansion }
                if is_plain(expansion) && !read.contains(&expansion.relationship) =>
            {
                (input, Operator::Expand(expansion))
            }
            _ => break,
        };
        taken.push(Placed { plan, operator });
        plan = input;
    }
    (taken, plan)
}

/// How a step must differ from an earlier one. `Err`: its ends do not tell.
fn differs(
    later: &Expansion,
    earlier: &Expansion,
    columns: Columns,
    loops: &mut BTreeMap<Slot, Slot>,
) -> Result<Option<Differs>, ()> {
    let are_named = !later.kinds.is_empty() && !earlier.kinds.is_empty();
    if are_named && !later.kinds.iter().any(|kind| earlier.kinds.contains(kind)) {
        return Ok(None);
    }
    let ([kind], [_]) = (&later.kinds[..], &earlier.kinds[..]) else {
        return Err(());
    };
    debug_assert!(earlier.kinds.contains(kind), "they share one");
    if columns.has_parallel_relationships {
        return Err(());
    }
    let is_same_direction = later.direction == earlier.direction;
    if is_same_direction && later.from == earlier.to {
        let next = columns.slots + loops.len();
        let slot = *loops.entry(earlier.relationship).or_insert(next);
        return Ok(Some(Differs::FromLoop(slot)));
    }
    Ok(Some(Differs::InEnds {
        from: earlier.from,
        to: earlier.to,
        is_same_direction,
    }))
}

/// How each step must differ from those before it, by its place; and the slots that tell of loops, by relationship. Leaves in
/// `taken` only steps that can be told from others.
type Rules = (BTreeMap<usize, Vec<Differs>>, BTreeMap<Slot, Slot>);

fn rules(taken: &mut Vec<Placed<'_>>, columns: Columns) -> Option<Rules> {
    'again: loop {
        let (mut rules, mut loops) = (BTreeMap::new(), BTreeMap::new());
        let mut expansions: Vec<(usize, &Expansion)> = Vec::new();
        for (at, placed) in taken.iter().enumerate() {
            if let Operator::Expand(expansion) = placed.operator {
                expansions.push((at, expansion));
            }
        }
        for (at, later) in &expansions {
            let mut of_step = Vec::new();
            for slot in &later.distinct_from {
                let earlier = expansions.iter().find(|(_, it)| it.relationship == *slot);
                let found = match earlier {
                    Some((_, earlier)) => differs(later, earlier, columns, &mut loops),
                    None => Err(()),
                };
                match found {
                    Ok(rule) => of_step.extend(rule),
                    Err(()) => {
                        taken.truncate(*at);
                        continue 'again;
                    }
                }
            }
            rules.insert(*at, of_step);
        }
        return (!taken.is_empty()).then_some((rules, loops));
    }
}

/// The slots that a step reads to be told from others.
fn reads_of(rules: &[Differs]) -> impl Iterator<Item = Slot> {
    rules
        .iter()
        .flat_map(|rule| match *rule {
            Differs::FromLoop(slot) => [Some(slot), None],
            Differs::InEnds { from, to, .. } => [Some(from), Some(to)],
        })
        .flatten()
}

/// Takes operators from `top` down into a pipeline whose sink reads the `needed` columns and the fields of some of them. `None` where it would do no work.
pub(super) fn assemble<'p>(
    top: &'p Plan,
    (mut needed, mut needed_fields): (BTreeSet<Slot>, BTreeSet<Slot>),
    mut fields: Fields,
    has_weights: bool,
    columns: Columns,
) -> Option<(Pipeline<'p>, Source<'p>, Vec<Slot>)> {
    let (mut taken, mut below) = take(top, &needed, &mut fields);
    let count = taken.len();
    let (mut rules, loops) = rules(&mut taken, columns).unwrap_or_default();
    if taken.len() < count {
        below = taken.last().map_or(top, |last| {
            last.plan.input().expect("it was taken with its input")
        });
    }
    let source = match below {
        Plan::Scan { input, slot, label } if matches!(**input, Plan::Argument) => Source::Scan {
            plan: below,
            slot: *slot,
            label: label.as_ref(),
        },
        _ => Source::Rows(below),
    };
    let has_step = taken
        .iter()
        .any(|it| matches!(it.operator, Operator::Expand(_)));
    if !has_step && !matches!(source, Source::Scan { .. }) {
        return None;
    }
    let slots = columns.slots + loops.len();
    let mut stages = Vec::new();
    for (at, placed) in taken.into_iter().enumerate() {
        let keeps = Keeps {
            slots: needed.iter().copied().collect(),
            fields: needed_fields.iter().copied().collect(),
        };
        let mut reads_fields = BTreeSet::new();
        let work = match placed.operator {
            Operator::Filter(predicate) => {
                needed.extend(predicate.reads());
                predicate.reads_fields(&mut reads_fields);
                Work::Filter(predicate)
            }
            Operator::IsNode(slot, span) => {
                needed.insert(slot);
                Work::IsNode(slot, span)
            }
            Operator::Project(items) => {
                for (slot, _) in &items {
                    needed.remove(slot);
                }
                for (_, formula) in &items {
                    needed.extend(formula.reads());
                    formula.reads_fields(&mut reads_fields);
                }
                Work::Project(items)
            }
            Operator::Expand(expansion) => {
                let of_loop = loops.get(&expansion.relationship).copied();
                let of_loop = of_loop.filter(|slot| needed.remove(slot));
                let is_read = match expansion.to_bound {
                    true => !needed.insert(expansion.to),
                    false => needed.remove(&expansion.to),
                };
                let is_alone = needed.is_empty() && is_read && !expansion.to_bound;
                if has_weights && is_alone {
                    let merge = Merge::new(expansion.to, of_loop);
                    stages.push(Stage::of(Work::Merge(merge), Keeps::default(), None));
                }
                let differs = rules.remove(&at).unwrap_or_default();
                needed.insert(expansion.from);
                needed.extend(reads_of(&differs));
                Work::Expand(Expand {
                    expansion,
                    is_read: is_read && !expansion.to_bound,
                    has_weights,
                    differs,
                    loops: of_loop,
                })
            }
        };
        let mut stage = Stage::of(work, keeps, Some(placed.plan));
        needed_fields.extend(&reads_fields);
        stage.reads_fields = reads_fields.into_iter().collect();
        stages.push(stage);
    }
    stages.reverse();
    let pipeline = Pipeline {
        stages,
        fields,
        slots,
        row: vec![Value::Null; columns.slots],
    };
    Some((pipeline, source, needed.into_iter().collect()))
}

impl<'p> Stage<'p> {
    fn of(work: Work<'p>, keeps: Keeps, plan: Option<&'p Plan>) -> Stage<'p> {
        Stage {
            work,
            keeps,
            reads_fields: Vec::new(),
            plan,
            rows: 0,
            time: Duration::ZERO,
        }
    }
}
