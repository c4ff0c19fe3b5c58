//! WITH and RETURN.
//!
//! Without aggregates, items are values of the row. With aggregates, the items that contain none are the keys of the
//! groups; an item with an aggregate may otherwise use constants, parameters, and keys that are variables or their
//! properties. Patterns and subqueries in it read the keys that are variables: the slots of the rows are empty by then.
//!
//! ORDER BY and the WHERE of a WITH see the new names, and, where each new row stands for one old row, the old names
//! too. Otherwise they may repeat an item's expression.

use super::grouping::Grouping;
use super::scope::{Binding, Origin, not_of_group};
use super::types::wants;
use super::{Column, Compiler, Scope};
use crate::error::{Detail, Error, Result};
use crate::plan::{Expr, Kind, Plan};
use crate::syntax::ast::{self, ExprKind, MapItem};
use crate::value::{Name, Type, Value};

/// The name and the expression of a column.
type Item = (Name, ast::Expr);

/// A projection's plan, its columns, and its scope.
pub(super) struct Projected {
    pub plan: Plan,
    pub columns: Vec<Column>,
    pub scope: Scope,
}

impl Compiler<'_> {
    /// Within an aggregating projection: the value of a key or an aggregate. `None` outside of one, and for an
    /// expression whose parts must be looked at.
    pub(super) fn grouped(
        &mut self,
        expr: &ast::Expr,
        scope: &Scope,
    ) -> Result<Option<(Expr, Type)>> {
        let Some(grouping) = &self.grouping else {
            return Ok(None);
        };
        let simple = is_simple(expr);
        let found = grouping
            .keys
            .iter()
            .filter(|_| simple || !grouping.strict)
            .chain(&grouping.aggregates)
            .find(|(known, _, _)| known == expr)
            .filter(|_| !mentions_local(expr, scope));
        if let Some((_, slot, known)) = found {
            return Ok(Some((Expr::new(Kind::Slot(*slot), expr.span), *known)));
        }
        if expr.is_aggregate() {
            if !grouping.open {
                self.visible(expr, scope, true)?;
            }
            if !grouping.open || !self.aggregates_allowed {
                let message = "this aggregate cannot stand here";
                return Err(
                    Error::syntax(Detail::InvalidAggregation, message, expr.span)
                        .help("aggregate in a WITH before"),
                );
            }
            let (aggregate, known) = self.aggregate(expr, scope)?;
            let slot = aggregate.slot;
            if let Some(grouping) = &mut self.grouping {
                grouping.aggregates.push((expr.clone(), slot, known));
                grouping.compiled.push(aggregate);
            }
            return Ok(Some((Expr::new(Kind::Slot(slot), expr.span), known)));
        }
        if let ExprKind::Variable(name) = &expr.kind {
            let binding = scope.resolve(name, expr.span)?;
            if binding.origin == Origin::Row {
                self.visible(expr, scope, false)?;
                return Err(not_of_group(name, expr.span));
            }
        }
        Ok(None)
    }

    /// After a projection, fails for a variable of which nothing is left.
    fn visible(&self, expr: &ast::Expr, scope: &Scope, in_aggregate: bool) -> Result<()> {
        let Some(grouping) = self.grouping.as_ref().filter(|grouping| !grouping.open) else {
            return Ok(());
        };
        if let ExprKind::Variable(name) = &expr.kind {
            let left = grouping.keys.iter().any(|(key, _, _)| match in_aggregate {
                true => key == expr,
                false => !grouping.aggregates.is_empty() && mentions(key, name),
            });
            return if left {
                Ok(())
            } else {
                Err(scope.undefined(name, expr.span))
            };
        }
        let mut result = Ok(());
        expr.for_each_child(&mut |child| {
            if result.is_ok() {
                result = self.visible(child, scope, in_aggregate);
            }
        });
        result
    }

    /// What a pattern or a subquery sees within an aggregating projection or behind it: of the rows, nothing but the keys is left.
    pub(super) fn of_group(&self, scope: &Scope) -> Scope {
        let Some(grouping) = &self.grouping else {
            return scope.clone();
        };
        let mut seen = Scope::default();
        for (name, binding) in scope.iter() {
            let is_name =
                |key: &ast::Expr| matches!(&key.kind, ExprKind::Variable(it) if it == name);
            let key = grouping.keys.iter().find(|(key, _, _)| is_name(key));
            let binding = match (binding.origin, key) {
                (Origin::Row, Some((_, slot, kind))) => Binding {
                    slot: *slot,
                    kind: *kind,
                    origin: Origin::Key,
                },
                (Origin::Row, None) if grouping.open => Binding {
                    origin: Origin::Ungrouped,
                    ..*binding
                },
                // The name is free again.
                (Origin::Row, None) => continue,
                _ => *binding,
            };
            seen.insert(name.clone(), binding);
        }
        seen
    }

    pub(super) fn projection(
        &mut self,
        projection: &ast::Projection,
        predicate: Option<&ast::Expr>,
        input: Plan,
        scope: &Scope,
        is_return: bool,
    ) -> Result<Projected> {
        let (items, unnamed) = Self::items(projection, scope, is_return)?;
        let aggregating = items.iter().any(|(_, expr)| expr.aggregates());
        let (mut plan, columns, mut grouping) = if aggregating {
            self.aggregating(&items, input, scope)?
        } else {
            self.plain(&items, input, scope)?
        };
        let mut next = Scope::default();
        for column in &columns {
            next.bind(column.name.clone(), column.slot, column.kind);
        }
        let merged = if aggregating || projection.distinct {
            grouping.open = false;
            grouping.strict = false;
            let of_items = || items.iter().zip(&columns);
            // The new names come first: they hide old ones.
            let names = of_items().map(|((name, expr), column)| {
                let alias = ast::Expr::new(ExprKind::Variable(name.clone()), expr.span);
                (alias, column.slot, column.kind)
            });
            let exprs =
                of_items().map(|((_, expr), column)| (expr.clone(), column.slot, column.kind));
            grouping.keys = names.chain(exprs).chain(grouping.keys).collect();
            next.clone()
        } else {
            merge(scope, &next)
        };
        let writes = plan.writes();
        if projection.distinct {
            let slots = columns.iter().map(|column| column.slot).collect();
            plan = Plan::Distinct {
                input: Box::new(plan),
                slots,
            };
        }
        let restrict = (aggregating || projection.distinct).then_some(grouping);
        plan = self.order(projection, plan, scope, &merged, restrict.as_ref())?;
        plan = self.cut(projection, plan, writes)?;
        if let Some(error) = unnamed {
            return Err(error);
        }
        if let Some(predicate) = predicate {
            let visible = if restrict.is_some() {
                merge(scope, &merged)
            } else {
                merged
            };
            self.grouping = restrict;
            let compiled = self.boolean(predicate, &visible);
            self.grouping = None;
            plan = Plan::Filter {
                input: Box::new(plan),
                predicate: compiled?,
            };
        }
        Ok(Projected {
            plan,
            columns,
            scope: next,
        })
    }

    /// The items, with `*` written out.
    fn items(
        projection: &ast::Projection,
        scope: &Scope,
        is_return: bool,
    ) -> Result<(Vec<Item>, Option<Error>)> {
        let mut items: Vec<(Name, ast::Expr)> = Vec::new();
        // Reported last: other errors of the same projection say more.
        let mut unnamed = None;
        if projection.wildcard {
            if scope.is_empty() && is_return {
                let message = "`*` stands for all variables, but there is none";
                return Err(
                    Error::syntax(Detail::NoVariablesInScope, message, projection.at.0)
                        .help("bind variables by MATCH, UNWIND or WITH"),
                );
            }
            let readable = scope
                .iter()
                .filter(|(_, binding)| !binding.origin.is_hidden());
            let mut names: Vec<&Name> = readable.map(|(name, _)| name).collect();
            names.sort();
            for name in names {
                let variable = ast::Expr::new(ExprKind::Variable(name.clone()), projection.at.0);
                items.push((name.clone(), variable));
            }
        }
        for item in &projection.items {
            let name = match (&item.alias, &item.expression.kind) {
                (Some(alias), _) => alias.name.clone(),
                (None, ExprKind::Variable(name)) => name.clone(),
                (None, _) if is_return => item.text.clone(),
                (None, _) => {
                    let message = "an expression in WITH needs a name";
                    let span = item.expression.span;
                    let error = Error::syntax(Detail::NoExpressionAlias, message, span);
                    unnamed = unnamed.or(Some(error.help("add `AS name`")));
                    item.text.clone()
                }
            };
            if items.iter().any(|(known, _)| *known == name) {
                let span = item
                    .alias
                    .as_ref()
                    .map_or(item.expression.span, |alias| alias.span);
                let message = format!("two columns are named `{name}`");
                return Err(Error::syntax(Detail::ColumnNameConflict, message, span)
                    .help("rename one with AS"));
            }
            items.push((name, item.expression.clone()));
        }
        Ok((items, unnamed))
    }

    fn plain(
        &mut self,
        items: &[(Name, ast::Expr)],
        input: Plan,
        scope: &Scope,
    ) -> Result<(Plan, Vec<Column>, Grouping)> {
        let mut columns = Vec::new();
        let mut computed = Vec::new();
        for (name, expr) in items {
            let (compiled, kind) = self.expression(expr, scope)?;
            let slot = match compiled.kind {
                Kind::Slot(slot) => slot,
                _ => {
                    let slot = self.named_slot(name);
                    computed.push((slot, compiled));
                    slot
                }
            };
            columns.push(Column {
                name: name.clone(),
                slot,
                kind,
            });
        }
        let plan = match computed.is_empty() {
            true => input,
            false => Plan::Project {
                input: Box::new(input),
                items: computed,
            },
        };
        let none = Grouping {
            keys: Vec::new(),
            aggregates: Vec::new(),
            compiled: Vec::new(),
            open: false,
            strict: false,
        };
        Ok((plan, columns, none))
    }

    fn aggregating(
        &mut self,
        items: &[(Name, ast::Expr)],
        input: Plan,
        scope: &Scope,
    ) -> Result<(Plan, Vec<Column>, Grouping)> {
        let mut grouping = Grouping {
            keys: Vec::new(),
            aggregates: Vec::new(),
            compiled: Vec::new(),
            open: true,
            strict: true,
        };
        let mut keys = Vec::new();
        for (_, expr) in items.iter().filter(|(_, expr)| !expr.aggregates()) {
            let (compiled, kind) = self.expression(expr, scope)?;
            let slot = self.slot();
            keys.push((slot, compiled));
            grouping.keys.push((expr.clone(), slot, kind));
        }
        self.grouping = Some(grouping);
        let allowed = std::mem::replace(&mut self.aggregates_allowed, true);
        let mut columns = Vec::new();
        let mut computed = Vec::new();
        let mut key = 0;
        let mut failure = None;
        for (name, expr) in items {
            if !expr.aggregates() {
                let grouping = self.grouping.as_ref().expect("set above");
                let (_, slot, kind) = grouping.keys[key];
                key += 1;
                columns.push(Column {
                    name: name.clone(),
                    slot,
                    kind,
                });
                continue;
            }
            match self.expression(expr, scope) {
                Ok((compiled, kind)) => {
                    let slot = match compiled.kind {
                        Kind::Slot(slot) => slot,
                        _ => {
                            let slot = self.named_slot(name);
                            computed.push((slot, compiled));
                            slot
                        }
                    };
                    columns.push(Column {
                        name: name.clone(),
                        slot,
                        kind,
                    });
                }
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        self.aggregates_allowed = allowed;
        let mut grouping = self.grouping.take().expect("set above");
        if let Some(error) = failure {
            return Err(error);
        }
        let aggregates = std::mem::take(&mut grouping.compiled);
        let mut plan = Plan::Aggregate {
            input: Box::new(input),
            keys,
            aggregates,
        };
        if !computed.is_empty() {
            plan = Plan::Project {
                input: Box::new(plan),
                items: computed,
            };
        }
        Ok((plan, columns, grouping))
    }

    fn order(
        &mut self,
        projection: &ast::Projection,
        plan: Plan,
        scope: &Scope,
        merged: &Scope,
        restrict: Option<&Grouping>,
    ) -> Result<Plan> {
        if projection.order.is_empty() {
            return Ok(plan);
        }
        let mut keys = Vec::new();
        for (expr, descending) in &projection.order {
            let compiled = match restrict {
                None => self.expression(expr, merged)?.0,
                Some(grouping) => {
                    // Beside an aggregate, only simple keys count, as in the items.
                    self.grouping = Some(Grouping {
                        strict: expr.aggregates(),
                        ..grouping.clone()
                    });
                    let result = self.expression(expr, &merge(scope, merged));
                    self.grouping = None;
                    result?.0
                }
            };
            keys.push((compiled, *descending));
        }
        let limit = match (&projection.skip, &projection.limit) {
            (None, Some(limit)) => Some(self.count(limit)?),
            _ => None,
        };
        Ok(Plan::Sort {
            input: Box::new(plan),
            keys,
            limit,
        })
    }

    fn cut(&mut self, projection: &ast::Projection, mut plan: Plan, writes: bool) -> Result<Plan> {
        if let Some(skip) = &projection.skip {
            let count = self.count(skip)?;
            plan = Plan::Skip {
                input: Box::new(plan),
                count,
            };
        }
        if let Some(limit) = &projection.limit {
            let count = self.count(limit)?;
            plan = Plan::Limit {
                input: Box::new(plan),
                count,
                drain: writes,
            };
        }
        Ok(plan)
    }

    /// The number of SKIP or LIMIT, which is the same for all rows.
    fn count(&mut self, expr: &ast::Expr) -> Result<Expr> {
        if reads_variables(expr) {
            let message = "this number must not depend on a row";
            return Err(
                Error::syntax(Detail::NonConstantExpression, message, expr.span)
                    .help("use a literal or a parameter"),
            );
        }
        if let ExprKind::Literal(ast::Literal(Value::Int(count))) = expr.kind
            && count < 0
        {
            let message = "a number of rows cannot be negative";
            return Err(Error::syntax(
                Detail::NegativeIntegerArgument,
                message,
                expr.span,
            ));
        }
        let (compiled, known) = self.expression(expr, &Scope::default())?;
        wants(known, &[Type::Int], "an integer", expr.span)?;
        Ok(compiled)
    }
}

fn reads_variables(expr: &ast::Expr) -> bool {
    let mut reads = matches!(
        expr.kind,
        ExprKind::Variable(_)
            | ExprKind::Pattern(_)
            | ExprKind::Subquery(..)
            | ExprKind::PatternComprehension { .. }
    );
    expr.for_each_child(&mut |child| reads = reads || reads_variables(child));
    reads
}

fn mentions(expr: &ast::Expr, variable: &str) -> bool {
    let mut found = matches!(&expr.kind, ExprKind::Variable(name) if &**name == variable);
    expr.for_each_child(&mut |child| found = found || mentions(child, variable));
    found
}

/// Whether an expression may read a variable that is bound by an expression around it. What a pattern or a subquery reads is not
/// looked at.
fn mentions_local(expr: &ast::Expr, scope: &Scope) -> bool {
    let is_local = |binding: &Binding| binding.origin == Origin::Local;
    let names_local = |name: &Name| scope.get(name).is_some_and(|it| is_local(&it));
    let mut found = match &expr.kind {
        ExprKind::Variable(name) => names_local(name),
        ExprKind::MapProjection { items, .. } => items
            .iter()
            .any(|item| matches!(item, MapItem::Variable(ident) if names_local(&ident.name))),
        ExprKind::Pattern(_) | ExprKind::PatternComprehension { .. } | ExprKind::Subquery(..) => {
            scope.iter().any(|(_, binding)| is_local(binding))
        }
        _ => false,
    };
    expr.for_each_child(&mut |child| found = found || mentions_local(child, scope));
    found
}

/// A variable, or a property of one.
fn is_simple(expr: &ast::Expr) -> bool {
    match &expr.kind {
        ExprKind::Variable(_) => true,
        ExprKind::Property(holder, _) => is_simple(holder),
        _ => false,
    }
}

fn merge(outer: &Scope, inner: &Scope) -> Scope {
    let mut merged = outer.clone();
    for (name, binding) in inner.iter() {
        merged.insert(name.clone(), *binding);
    }
    merged
}
