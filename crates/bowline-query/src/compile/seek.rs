//! Where a pattern may start at an index instead of at all nodes with a label.
//!
//! An index fits if the conditions ask for all of its properties: for each but the last to be equal to something that is
//! known before, and for the last one to be that, one of a list, within bounds, or a text that begins with something. The
//! conditions stay: an index may give more nodes than they hold for, and never fewer.

use std::collections::{BTreeMap, HashSet};

use super::matching::Condition;
use crate::error::Result;
use crate::graph::{Graph, NodeIndex};
use crate::plan::{Expr, Kind, NodeSeek, SeekKeys, Slot};
use crate::syntax::ast::Binary;
use crate::value::Name;

/// How much fewer nodes a plan expects of an index than have the label.
const OF_EQUAL: u64 = 100;
const OF_PREFIX: u64 = 20;
const OF_RANGE: u64 = 4;

/// What the conditions ask of one property.
#[derive(Default)]
struct Tests<'c> {
    equal: Option<&'c Expr>,
    within: Option<&'c Expr>,
    prefix: Option<&'c Expr>,
    lower: Option<(&'c Expr, bool)>,
    upper: Option<(&'c Expr, bool)>,
}

/// The cheapest index for a node with these labels, and about how many nodes it gives.
pub(super) fn cheapest(
    graph: &dyn Graph,
    labels: &[Name],
    slot: Slot,
    bound: &HashSet<Slot>,
    conditions: &[Condition],
) -> Result<Option<(u64, NodeSeek)>> {
    let mut best: Option<(u64, NodeSeek)> = None;
    let mut tests = None;
    for label in labels {
        for index in graph.indexes(label)? {
            let tests = tests.get_or_insert_with(|| tests_of(slot, bound, conditions));
            let Some(seek) = fits(&index, label, tests) else {
                continue;
            };
            let cost = match (&seek.last, index.is_unique) {
                (SeekKeys::Equal(_), true) => 1,
                (SeekKeys::Equal(_) | SeekKeys::In(_), _) => {
                    1 + graph.node_count(Some(label))? / OF_EQUAL
                }
                (SeekKeys::StartsWith(_), _) => 1 + graph.node_count(Some(label))? / OF_PREFIX,
                (SeekKeys::Between { .. }, _) => 1 + graph.node_count(Some(label))? / OF_RANGE,
            };
            // Of two that cost the same, the one that asks for more.
            let is_better = best.as_ref().is_none_or(|(least, held)| {
                (cost, held.properties.len()) < (*least, seek.properties.len())
            });
            if is_better {
                best = Some((cost, seek));
            }
        }
    }
    Ok(best)
}

fn fits(index: &NodeIndex, label: &Name, tests: &BTreeMap<&Name, Tests<'_>>) -> Option<NodeSeek> {
    let (last, first) = index.properties.split_last()?;
    let equal = first.iter().map(|name| tests.get(name)?.equal.cloned());
    let equal = equal.collect::<Option<Vec<Expr>>>()?;
    let asked = tests.get(last)?;
    let bound =
        |bound: Option<(&Expr, bool)>| bound.map(|(expr, included)| (expr.clone(), included));
    let last = match asked {
        Tests {
            equal: Some(expr), ..
        } => SeekKeys::Equal((*expr).clone()),
        Tests {
            within: Some(expr), ..
        } => SeekKeys::In((*expr).clone()),
        Tests {
            prefix: Some(expr), ..
        } => SeekKeys::StartsWith((*expr).clone()),
        Tests {
            lower: None,
            upper: None,
            ..
        } => return None,
        Tests { lower, upper, .. } => SeekKeys::Between {
            lower: bound(*lower),
            upper: bound(*upper),
        },
    };
    Some(NodeSeek {
        label: label.clone(),
        properties: index.properties.clone(),
        equal,
        last,
    })
}

fn tests_of<'c>(
    slot: Slot,
    bound: &HashSet<Slot>,
    conditions: &'c [Condition],
) -> BTreeMap<&'c Name, Tests<'c>> {
    let mut tests = BTreeMap::new();
    for condition in conditions {
        note(&condition.predicate, slot, bound, &mut tests);
    }
    tests
}

fn note<'c>(
    predicate: &'c Expr,
    slot: Slot,
    bound: &HashSet<Slot>,
    tests: &mut BTreeMap<&'c Name, Tests<'c>>,
) {
    let Kind::Binary(operator, a, b) = &predicate.kind else {
        return;
    };
    if *operator == Binary::And {
        note(a, slot, bound, tests);
        note(b, slot, bound, tests);
        return;
    }
    let (name, operator, other) = match (property_of(a, slot), property_of(b, slot)) {
        (Some(name), None) if is_known(b, bound) => (name, *operator, b),
        (None, Some(name)) if is_known(a, bound) => match reversed(*operator) {
            Some(operator) => (name, operator, a),
            None => return,
        },
        _ => return,
    };
    let tests = tests.entry(name).or_default();
    match operator {
        Binary::Equal => _ = tests.equal.get_or_insert(other),
        Binary::In => _ = tests.within.get_or_insert(other),
        Binary::StartsWith => _ = tests.prefix.get_or_insert(other),
        Binary::Greater => _ = tests.lower.get_or_insert((other, false)),
        Binary::GreaterEqual => _ = tests.lower.get_or_insert((other, true)),
        Binary::Less => _ = tests.upper.get_or_insert((other, false)),
        Binary::LessEqual => _ = tests.upper.get_or_insert((other, true)),
        _ => {}
    }
}

fn reversed(operator: Binary) -> Option<Binary> {
    Some(match operator {
        Binary::Equal => Binary::Equal,
        Binary::Greater => Binary::Less,
        Binary::GreaterEqual => Binary::LessEqual,
        Binary::Less => Binary::Greater,
        Binary::LessEqual => Binary::GreaterEqual,
        _ => return None,
    })
}

/// The name of the node's property that an expression is.
fn property_of(expr: &Expr, slot: Slot) -> Option<&Name> {
    match &expr.kind {
        Kind::Property(of, name) => {
            matches!(of.kind, Kind::Slot(held) if held == slot).then_some(name)
        }
        _ => None,
    }
}

/// Whether an expression has one value before the node is found, however often it is evaluated.
fn is_known(expr: &Expr, bound: &HashSet<Slot>) -> bool {
    let known = |expr: &Expr| is_known(expr, bound);
    match &expr.kind {
        Kind::Literal(_) | Kind::Parameter(_) => true,
        Kind::Slot(slot) => bound.contains(slot),
        Kind::List(items) => items.iter().all(known),
        Kind::Map(entries) => entries.iter().all(|(_, value)| known(value)),
        Kind::Negate(of) | Kind::Plus(of) | Kind::Property(of, _) => known(of),
        Kind::Binary(_, a, b) | Kind::Index(a, b) => known(a) && known(b),
        Kind::Call(function, arguments) => function.name != "rand" && arguments.iter().all(known),
        _ => false,
    }
}
