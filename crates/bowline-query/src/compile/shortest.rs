//! Shortest paths, and what their search is asked.
//!
//! A condition on a shortest path says which paths count, so it is asked before the shortest of them is chosen, not after.
//! `all(…)` and `none(…)` of the nodes or of the relationships of a path look at one element at a time: the search leaves out the
//! elements that do not fit. Any other condition that reads the path is refused.
//!
//! Invariant: no condition that waits for a MATCH to be walked reads a shortest path of the same MATCH.

use std::collections::HashSet;

use super::matching::{Progress, length, needs};
use super::parts::Part;
use super::pattern::PatternSlots;
use super::scope::Origin;
use super::{Compiler, Scope};
use crate::error::{Detail, Error, Result, Span};
use crate::plan::{ElementTest, Expansion, Expr, Kind, Plan, Slot};
use crate::syntax::ast::{self, Clause, ClauseKind, ExprKind, MapItem, Quantifier};
use crate::value::{Name, Type};

/// What the search for a shortest path is asked.
#[derive(Default)]
pub(super) struct Search {
    tests: Vec<ElementTest>,
    /// The slots that must be bound before.
    pub waits: HashSet<Slot>,
}

/// The searches of a MATCH.
#[derive(Default)]
pub(super) struct Searches<'a> {
    paths: Vec<ShortestPath<'a>>,
}

struct ShortestPath<'a> {
    /// The number of the pattern in the MATCH.
    at: usize,
    path: Option<&'a Name>,
    relationships: Option<&'a Name>,
    search: Search,
}

impl<'a> Searches<'a> {
    /// Fails if a pattern reads a path that is searched.
    pub fn of(part: &Part<'a>) -> Result<Searches<'a>> {
        let mut paths = Vec::new();
        for (at, pattern) in part.patterns.iter().enumerate() {
            if pattern.shortest.is_none() {
                continue;
            }
            let step = pattern.relationships.first();
            if let Some(predicate) = step.and_then(|step| step.predicate.as_ref()) {
                let what = "WHERE within the relationship of a shortest path";
                return Err(Error::unsupported(what, predicate.span));
            }
            let relationships = step.and_then(|step| step.variable.as_ref());
            paths.push(ShortestPath {
                at,
                path: pattern.variable.as_ref().map(|ident| &ident.name),
                relationships: relationships.map(|ident| &ident.name),
                search: Search::default(),
            });
        }
        let searches = Searches { paths };
        for pattern in part.patterns {
            let mut refused = None;
            pattern.for_each_expression(&mut |expr| {
                if searches.are_read(expr) {
                    refused = Some(expr.span);
                }
            });
            if let Some(span) = refused {
                return Err(refusal(span));
            }
        }
        Ok(searches)
    }

    /// What the search of a pattern is asked.
    pub fn take(
        &mut self,
        at: usize,
        pattern: &ast::Pattern,
        scope: &Scope,
        bound: &HashSet<Slot>,
    ) -> Search {
        let Some(place) = self.paths.iter().position(|it| it.at == at) else {
            return Search::default();
        };
        let mut search = std::mem::take(&mut self.paths[place].search);
        for step in &pattern.relationships {
            let needs = needs(step.properties.as_ref(), scope, bound);
            search.waits.extend(needs);
        }
        // None of these is read: `needs` takes all for what has a subquery.
        for slot in self.slots(scope) {
            search.waits.remove(&slot);
        }
        search
    }

    fn names(&self) -> impl Iterator<Item = &'a Name> {
        let names = self.paths.iter();
        names.flat_map(|it| it.path.into_iter().chain(it.relationships))
    }

    fn slots(&self, scope: &Scope) -> Vec<Slot> {
        let bindings = self.names().filter_map(|name| scope.get(name));
        bindings.map(|binding| binding.slot).collect()
    }

    fn are_read(&self, expr: &ast::Expr) -> bool {
        let names: Vec<&Name> = self.names().collect();
        !names.is_empty() && mentions(expr, &names)
    }

    /// The path of whose elements this is the list, and whether these are its nodes.
    fn elements(&mut self, list: &ast::Expr) -> Option<(&mut ShortestPath<'a>, bool)> {
        let variable = |expr: &ast::Expr| match &expr.kind {
            ExprKind::Variable(name) => Some(name.clone()),
            _ => None,
        };
        if let Some(name) = variable(list) {
            let mut paths = self.paths.iter_mut();
            return Some((paths.find(|it| it.relationships == Some(&name))?, false));
        }
        let ExprKind::Call {
            name, arguments, ..
        } = &list.kind
        else {
            return None;
        };
        let is_of_nodes = name.name.eq_ignore_ascii_case("nodes");
        if !is_of_nodes && !name.name.eq_ignore_ascii_case("relationships") {
            return None;
        }
        let [argument] = arguments.as_slice() else {
            return None;
        };
        let name = variable(argument)?;
        let mut paths = self.paths.iter_mut();
        Some((paths.find(|it| it.path == Some(&name))?, is_of_nodes))
    }
}

fn refusal(span: Span) -> Error {
    let what = "a condition on a shortest path in the MATCH that finds it, other than `all` or `none` of its \
                relationships or nodes (a WITH before the WHERE filters after the search)";
    Error::unsupported(what, span)
}

impl Compiler<'_> {
    /// Has the search for a shortest path ask a condition, if the condition reads one.
    pub(super) fn search_test(
        &mut self,
        condition: &ast::Expr,
        scope: &Scope,
        bound: &HashSet<Slot>,
        searches: &mut Searches<'_>,
    ) -> Result<bool> {
        if !searches.are_read(condition) {
            return Ok(false);
        }
        let (quantified, is_negated) = match &condition.kind {
            ExprKind::Not(inner) => (&inner.kind, true),
            kind => (kind, false),
        };
        let ExprKind::Quantified {
            quantifier,
            variable,
            list,
            predicate,
        } = quantified
        else {
            // Says what is wrong with it, if something is.
            self.boolean(condition, scope)?;
            return Err(refusal(condition.span));
        };
        let is_wanted = match (quantifier, is_negated) {
            (Quantifier::All, false) => true,
            (Quantifier::None, false) | (Quantifier::Any, true) => false,
            _ => return Err(refusal(condition.span)),
        };
        let hidden = |name: &&Name| **name != variable.name;
        let names: Vec<&Name> = searches.names().filter(hidden).collect();
        if mentions(predicate, &names) {
            return Err(refusal(condition.span));
        }
        let Some((path, is_of_nodes)) = searches.elements(list) else {
            return Err(refusal(condition.span));
        };
        let slot = self.slot();
        let mut inner = scope.clone();
        inner.bind_as(Origin::Local, variable.name.clone(), slot, Type::Any);
        let outer = std::mem::replace(&mut self.aggregates_allowed, false);
        let compiled = self.boolean(predicate, &inner);
        self.aggregates_allowed = outer;
        let compiled = compiled?;
        let kind = match is_wanted {
            true => compiled.kind,
            false => Kind::Not(compiled.boxed()),
        };
        path.search
            .waits
            .extend(needs(Some(predicate), scope, bound));
        path.search.tests.push(ElementTest {
            slot,
            is_of_nodes,
            predicate: Expr::new(kind, condition.span),
        });
        Ok(true)
    }

    /// `shortestPath`: both ends are found first.
    pub(super) fn walk_shortest(
        &mut self,
        pattern: &ast::Pattern,
        slots: &PatternSlots,
        search: Search,
        scope: &Scope,
        progress: &mut Progress,
    ) -> Result<()> {
        let [step] = pattern.relationships.as_slice() else {
            let message = "a shortest path has one relationship of variable length";
            return Err(Error::syntax(
                Detail::InvalidRelationshipPattern,
                message,
                pattern.at.0,
            ));
        };
        let least = step.length.map_or(1, |length| length.0.unwrap_or(1));
        if least > 1 {
            return Err(Error::unsupported(
                "a shortest path of at least two steps",
                step.at.0,
            ));
        }
        let relationship = slots.relationships[0];
        if progress.bound.contains(&relationship) {
            return Err(Error::unsupported(
                "a shortest path whose relationships are bound before",
                step.at.0,
            ));
        }
        self.enter(pattern, slots, 0, progress)?;
        self.enter(pattern, slots, 1, progress)?;
        if !search.waits.is_subset(&progress.bound) {
            return Err(Error::unsupported(
                "a shortest path that is asked for what is found after it",
                step.at.0,
            ));
        }
        let expansion = Expansion {
            from: slots.nodes[0],
            relationship,
            relationship_bound: false,
            to: slots.nodes[1],
            to_bound: true,
            direction: step.direction,
            kinds: step.kinds.clone(),
            length: Some(step.length.map_or((1, 1), length)),
            properties: self.property_tests(step.properties.as_ref(), scope)?,
            element_tests: search.tests,
            distinct_from: Vec::new(),
            reversed: false,
            is_read: true,
            shortest: pattern.shortest,
        };
        progress.wrap(|input| Plan::Expand {
            input,
            expansion: Box::new(expansion),
        });
        progress.bound.insert(relationship);
        self.name_path(pattern, slots, scope, progress);
        progress.apply_conditions();
        Ok(())
    }
}

/// Whether one of these variables is read, in subqueries and patterns, too. A variable of the same name that the expression itself
/// binds counts as read.
fn mentions(expr: &ast::Expr, names: &[&Name]) -> bool {
    let mut found = match &expr.kind {
        ExprKind::Variable(name) => names.contains(&name),
        ExprKind::MapProjection { items, .. } => items
            .iter()
            .any(|item| matches!(item, MapItem::Variable(ident) if names.contains(&&ident.name))),
        ExprKind::Pattern(pattern) | ExprKind::PatternComprehension { pattern, .. } => {
            binds(pattern, names)
        }
        ExprKind::Subquery(_, query) => query_mentions(query, names),
        _ => false,
    };
    expr.for_each_child(&mut |child| found = found || mentions(child, names));
    found
}

fn binds(pattern: &ast::Pattern, names: &[&Name]) -> bool {
    let nodes = pattern.nodes.iter().filter_map(|it| it.variable.as_ref());
    let steps = pattern.relationships.iter();
    let mut idents = nodes
        .chain(steps.filter_map(|it| it.variable.as_ref()))
        .chain(&pattern.variable);
    idents.any(|ident| names.contains(&&ident.name))
}

fn pattern_mentions(pattern: &ast::Pattern, names: &[&Name]) -> bool {
    let mut found = binds(pattern, names);
    pattern.for_each_expression(&mut |expr| found = found || mentions(expr, names));
    found
}

fn query_mentions(query: &ast::Query, names: &[&Name]) -> bool {
    let unions = query.unions.iter().flat_map(|union| &union.clauses);
    let mut clauses = query.first.iter().chain(unions);
    clauses.any(|clause| clause_mentions(clause, names))
}

fn clause_mentions(clause: &Clause, names: &[&Name]) -> bool {
    let read = |expr: &ast::Expr| mentions(expr, names);
    let projected = |projection: &ast::Projection| {
        projection.wildcard
            || projection.items.iter().any(|item| read(&item.expression))
            || projection.order.iter().any(|(key, _)| read(key))
            || projection.skip.iter().chain(&projection.limit).any(read)
    };
    match &clause.kind {
        ClauseKind::Match {
            patterns,
            predicate,
            ..
        } => patterns.iter().any(|it| pattern_mentions(it, names)) || predicate.iter().any(read),
        ClauseKind::Unwind { list, .. } => read(list),
        ClauseKind::With {
            projection,
            predicate,
        } => projected(projection) || predicate.iter().any(read),
        ClauseKind::Return(projection) => projected(projection),
        ClauseKind::Call {
            arguments, yields, ..
        } => {
            let predicates = yields.iter().filter_map(|it| it.predicate.as_ref());
            arguments.iter().flatten().chain(predicates).any(read)
        }
        ClauseKind::Subquery { scope, query } => {
            let imported = scope.iter().flatten();
            imported.into_iter().any(|it| names.contains(&&it.name)) || query_mentions(query, names)
        }
        // These write, and no subquery of a condition does.
        ClauseKind::Create(_)
        | ClauseKind::Merge { .. }
        | ClauseKind::Set(_)
        | ClauseKind::Remove(_)
        | ClauseKind::Delete { .. }
        | ClauseKind::Foreach { .. } => true,
    }
}
