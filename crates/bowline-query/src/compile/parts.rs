//! MATCH clauses that are planned as one: those with nothing between them but a WITH that passes variables on.
//!
//! `MATCH (p)-[:LIKES]->(i) WHERE i.name = 'x' WITH p MATCH (p)-[:LIVES_IN]->(c {name: 'y'})` asks for the same as one MATCH of both patterns, but
//! that the two may follow the same relationship, and that a name which is not passed on may be used anew. Planned one after
//! the other, all who like the one are read before the first look at the place. So the order of work is chosen over all of them.
//!
//! Invariants: a name stands for the variable of its own clause; relationships differ within a clause only. A condition may come to be
//! asked of rows that another clause would have left out before, so clauses are planned together only if no condition can fail.

use std::collections::HashSet;

use super::Scope;
use crate::syntax::ast::{self, Binary, Clause, ClauseKind, Expr, ExprKind, NodePattern, Pattern};
use crate::value::{Name, Type};

/// A MATCH, and the variables that a WITH behind it passes on; `None`: all.
pub(super) struct Part<'a> {
    pub patterns: &'a [Pattern],
    pub predicate: Option<&'a Expr>,
    pub passes: Option<Vec<&'a Name>>,
}

/// The clauses from the first on that are planned together, and how many they are, each WITH between them included. One
/// MATCH alone is none.
pub(super) fn together<'a>(clauses: &'a [Clause], outer: &Scope) -> Option<(Vec<Part<'a>>, usize)> {
    let mut parts: Vec<Part<'a>> = Vec::new();
    let mut nodes: HashSet<&Name> = HashSet::new();
    for (name, binding) in outer.iter() {
        if binding.kind == Type::Node {
            nodes.insert(name);
        }
    }
    let mut taken = 0;
    while let Some(ClauseKind::Match {
        optional: false,
        patterns,
        predicate,
    }) = clauses.get(taken).map(|clause| &clause.kind)
    {
        let of_part = patterns.iter().flat_map(|pattern| &pattern.nodes);
        nodes.extend(of_part.filter_map(|node| Some(&node.variable.as_ref()?.name)));
        let is_safe = patterns
            .iter()
            .all(|pattern| is_safe_pattern(pattern, &nodes))
            && predicate.iter().all(|it| is_safe(it, &nodes));
        if !is_safe {
            break;
        }
        taken += 1;
        parts.push(Part {
            patterns,
            predicate: predicate.as_ref(),
            passes: None,
        });
        let Some(passes) = clauses.get(taken).and_then(|it| passed_on(it, &nodes)) else {
            break;
        };
        let is_followed = matches!(
            clauses.get(taken + 1).map(|clause| &clause.kind),
            Some(ClauseKind::Match {
                optional: false,
                ..
            })
        );
        if !is_followed {
            break;
        }
        nodes.retain(|name| passes.contains(name));
        if let Some(part) = parts.last_mut() {
            part.passes = Some(passes);
        }
        taken += 1;
    }
    // A WITH whose MATCH cannot be planned with it stays a clause of its own.
    if let Some(part) = parts.last_mut()
        && part.passes.take().is_some()
    {
        taken -= 1;
    }
    (parts.len() > 1).then_some((parts, taken))
}

/// The variables of a WITH that passes nodes on and does nothing else.
fn passed_on<'a>(clause: &'a Clause, nodes: &HashSet<&Name>) -> Option<Vec<&'a Name>> {
    let ClauseKind::With {
        projection,
        predicate: None,
    } = &clause.kind
    else {
        return None;
    };
    let ast::Projection {
        distinct: false,
        wildcard: false,
        items,
        order,
        skip: None,
        limit: None,
        ..
    } = projection
    else {
        return None;
    };
    if !order.is_empty() {
        return None;
    }
    let passed = |item: &'a ast::ProjectionItem| {
        let ExprKind::Variable(name) = &item.expression.kind else {
            return None;
        };
        let is_renamed = item.alias.as_ref().is_some_and(|alias| alias.name != *name);
        (!is_renamed && nodes.contains(name)).then_some(name)
    };
    let names: Vec<&Name> = items.iter().map(passed).collect::<Option<_>>()?;
    // Two columns of one name are refused where the clause is planned by itself.
    let mut known = HashSet::new();
    names
        .iter()
        .all(|name| known.insert(*name))
        .then_some(names)
}

fn is_safe_pattern(pattern: &Pattern, nodes: &HashSet<&Name>) -> bool {
    let are_safe = |properties: Option<&Expr>| match properties.map(|it| &it.kind) {
        None => true,
        Some(ExprKind::Map(entries)) => {
            entries.iter().all(|(_, value)| is_safe_value(value, nodes))
        }
        Some(_) => false,
    };
    let is_safe_node =
        |node: &NodePattern| node.predicate.is_none() && are_safe(node.properties.as_ref());
    pattern.shortest.is_none()
        && pattern.nodes.iter().all(is_safe_node)
        && pattern
            .relationships
            .iter()
            .all(|step| step.predicate.is_none() && are_safe(step.properties.as_ref()))
}

/// Whether a condition is true, false or unknown for every row.
fn is_safe(condition: &Expr, nodes: &HashSet<&Name>) -> bool {
    match &condition.kind {
        ExprKind::Binary(Binary::And | Binary::Or | Binary::Xor, a, b) => {
            is_safe(a, nodes) && is_safe(b, nodes)
        }
        ExprKind::Not(a) => is_safe(a, nodes),
        ExprKind::IsNull(a) => is_safe_value(a, nodes),
        ExprKind::HasLabels(of, _) => {
            matches!(&of.kind, ExprKind::Variable(name) if nodes.contains(name))
        }
        ExprKind::Binary(Binary::In, a, b) => {
            matches!(b.kind, ExprKind::List(_))
                && is_safe_value(a, nodes)
                && is_safe_value(b, nodes)
        }
        ExprKind::Binary(operator, a, b) => {
            is_comparison(*operator) && is_safe_value(a, nodes) && is_safe_value(b, nodes)
        }
        ExprKind::Chain(operands, operators) => {
            operators.iter().all(|operator| is_comparison(*operator))
                && operands.iter().all(|operand| is_safe_value(operand, nodes))
        }
        _ => false,
    }
}

fn is_comparison(operator: Binary) -> bool {
    matches!(
        operator,
        Binary::Equal
            | Binary::NotEqual
            | Binary::Less
            | Binary::LessEqual
            | Binary::Greater
            | Binary::GreaterEqual
            | Binary::StartsWith
            | Binary::EndsWith
            | Binary::Contains
    )
}

/// Whether an expression has a value in every row, whatever the row holds.
fn is_safe_value(expr: &Expr, nodes: &HashSet<&Name>) -> bool {
    match &expr.kind {
        ExprKind::Literal(_) | ExprKind::Parameter(_) => true,
        ExprKind::Variable(name) => nodes.contains(name),
        ExprKind::Property(of, _) => {
            matches!(&of.kind, ExprKind::Variable(name) if nodes.contains(name))
        }
        ExprKind::List(items) => items.iter().all(|item| is_safe_value(item, nodes)),
        _ => false,
    }
}
