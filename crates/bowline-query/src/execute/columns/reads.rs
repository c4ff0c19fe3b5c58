//! Which slots an expression reads.

use std::collections::BTreeSet;

use crate::plan::{Expr, Kind, MapPart, PathPart, Plan, Slot};

/// The slots that an expression reads and does not bind. `None`: it has a subquery, which may read any, or differs each time
/// that it is evaluated.
pub(super) fn reads(expr: &Expr) -> Option<BTreeSet<Slot>> {
    let mut slots = BTreeSet::new();
    collect(expr, &mut slots).then_some(slots)
}

fn all<'e>(exprs: impl IntoIterator<Item = &'e Expr>, slots: &mut BTreeSet<Slot>) -> bool {
    exprs.into_iter().all(|expr| collect(expr, slots))
}

/// Of an expression whose own variables have these slots.
fn within<'e>(
    bound: &[Slot],
    exprs: impl IntoIterator<Item = &'e Expr>,
    slots: &mut BTreeSet<Slot>,
) -> bool {
    let mut inner = BTreeSet::new();
    let is_known = all(exprs, &mut inner);
    slots.extend(inner.iter().filter(|slot| !bound.contains(slot)));
    is_known
}

fn collect(expr: &Expr, slots: &mut BTreeSet<Slot>) -> bool {
    match &expr.kind {
        Kind::Literal(_) | Kind::Parameter(_) => true,
        Kind::Slot(slot) => {
            slots.insert(*slot);
            true
        }
        Kind::List(items) => all(items, slots),
        Kind::Map(entries) => all(entries.iter().map(|(_, entry)| entry), slots),
        Kind::MapProjection(base, parts) => {
            let entry = |part: &MapPart| match part {
                MapPart::Entry(_, entry) => collect(entry, slots),
                MapPart::All | MapPart::Property(_) => true,
            };
            parts.iter().all(entry) && collect(base, slots)
        }
        Kind::Not(a)
        | Kind::Negate(a)
        | Kind::Plus(a)
        | Kind::IsNull(a)
        | Kind::HasLabels(a, _)
        | Kind::Property(a, _) => collect(a, slots),
        Kind::Binary(_, a, b) | Kind::Index(a, b) => collect(a, slots) && collect(b, slots),
        Kind::Slice(a, low, high) => {
            let ends = low.iter().chain(high).map(|end| &**end);
            collect(a, slots) && all(ends, slots)
        }
        Kind::Call(function, arguments) => function.is_same_again() && all(arguments, slots),
        Kind::Case {
            operand,
            branches,
            otherwise,
        } => {
            let conditions = branches.iter().flat_map(|(conditions, _)| conditions);
            let results = branches.iter().map(|(_, result)| result);
            let ends = operand.iter().chain(otherwise).map(|end| &**end);
            all(ends, slots) && all(conditions.chain(results), slots)
        }
        Kind::Comprehension {
            slot,
            list,
            predicate,
            yields,
        } => {
            let inner = predicate.iter().chain(yields).map(|expr| &**expr);
            collect(list, slots) && within(&[*slot], inner, slots)
        }
        Kind::Reduce {
            accumulator,
            start,
            slot,
            list,
            step,
        } => {
            collect(start, slots)
                && collect(list, slots)
                && within(&[*accumulator, *slot], [&**step], slots)
        }
        Kind::Quantified {
            slot,
            list,
            predicate,
            ..
        } => collect(list, slots) && within(&[*slot], [&**predicate], slots),
        Kind::Subquery { .. } => false,
        Kind::Path(parts) => {
            slots.extend(parts.iter().map(|part| match part {
                PathPart::Node(slot)
                | PathPart::Relationship(slot)
                | PathPart::Relationships(slot) => *slot,
            }));
            true
        }
    }
}

/// What an operator reads of the rows below it, where `needed` is read of its own. `None`: it may read any slot, or does not read all
/// rows in their order.
pub(crate) fn reads_above(plan: &Plan, needed: &BTreeSet<Slot>) -> Option<BTreeSet<Slot>> {
    let mut slots = needed.clone();
    let mut also = |expr: &Expr| {
        slots.extend(reads(expr)?);
        Some(())
    };
    match plan {
        Plan::Filter { predicate, .. } => also(predicate)?,
        Plan::Sort { keys, limit, .. } => {
            keys.iter().try_for_each(|(key, _)| also(key))?;
            limit.iter().try_for_each(also)?;
        }
        Plan::Project { items, .. } => items.iter().try_for_each(|(_, item)| also(item))?,
        Plan::Aggregate {
            keys, aggregates, ..
        } => {
            keys.iter().try_for_each(|(_, key)| also(key))?;
            let arguments = aggregates.iter().flat_map(|it| &it.arguments);
            arguments.into_iter().try_for_each(also)?;
        }
        Plan::Skip { count, .. } | Plan::Limit { count, .. } => also(count)?,
        Plan::Unwind { list, .. } => also(list)?,
        Plan::Distinct { slots: of, .. } => slots.extend(of),
        _ => return None,
    }
    Some(slots)
}
