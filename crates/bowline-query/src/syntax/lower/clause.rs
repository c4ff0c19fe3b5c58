//! Clauses.

use open_cypher::ast as oc;

use super::{Lowering, at, dotted, ident, unexpected};
use crate::error::{Detail, Error, Result, Span};
use crate::syntax::ast::{
    At, Clause, ClauseKind, Expr, ExprKind, Ident, Projection, ProjectionItem, RemoveItem, SetItem,
    Yield,
};
use crate::value::Name;

impl Lowering<'_> {
    pub(super) fn clause(&self, clause: oc::Clause) -> Result<Clause> {
        let span = at(clause.span);
        let kind = match clause.kind {
            oc::ClauseKind::Match(clause) => self.match_clause(clause, span)?,
            oc::ClauseKind::Unwind(clause) => ClauseKind::Unwind {
                list: self.expression(clause.expression)?,
                variable: ident(clause.variable),
            },
            oc::ClauseKind::With(clause) => ClauseKind::With {
                projection: self.projection(clause.projection)?,
                predicate: self.optional(clause.where_clause)?,
            },
            oc::ClauseKind::Return(clause) => {
                ClauseKind::Return(self.projection(clause.projection)?)
            }
            oc::ClauseKind::Create(clause) => ClauseKind::Create(self.patterns(clause.pattern)?),
            oc::ClauseKind::Merge(clause) => {
                let (mut on_create, mut on_match) = (Vec::new(), Vec::new());
                for action in clause.actions {
                    let items = match action.trigger.kind {
                        oc::MergeTrigger::Create => &mut on_create,
                        _ => &mut on_match,
                    };
                    items.extend(self.set_items(action.set)?);
                }
                ClauseKind::Merge {
                    pattern: self.pattern(clause.pattern)?,
                    on_create,
                    on_match,
                }
            }
            oc::ClauseKind::Set(clause) => ClauseKind::Set(self.set_items(clause)?),
            oc::ClauseKind::Remove(clause) => ClauseKind::Remove(
                clause
                    .items
                    .into_iter()
                    .map(|item| self.remove_item(item))
                    .collect::<Result<_>>()?,
            ),
            oc::ClauseKind::Delete(clause) => ClauseKind::Delete {
                detach: matches!(clause.mode.kind, oc::DeleteMode::Detach),
                expressions: self.expressions(clause.expressions)?,
            },
            oc::ClauseKind::Call(clause) => self.call(clause, span)?,
            oc::ClauseKind::Foreach(clause) => ClauseKind::Foreach {
                variable: ident(clause.variable),
                list: self.expression(clause.list)?,
                clauses: self.clauses(clause.clauses)?,
            },
            other => return Err(Error::unsupported(clause_name(&other), span)),
        };
        Ok(Clause { kind, at: At(span) })
    }

    fn match_clause(&self, clause: oc::MatchClause, span: Span) -> Result<ClauseKind> {
        if let Some(mode) = clause.mode {
            return Err(Error::unsupported("a path mode", at(mode.span)));
        }
        if !clause.hints.is_empty() {
            return Err(Error::unsupported("a planner hint (USING)", span));
        }
        Ok(ClauseKind::Match {
            optional: clause.optional,
            patterns: self.patterns(clause.pattern)?,
            predicate: self.optional(clause.where_clause)?,
        })
    }

    fn projection(&self, projection: oc::ProjectionClause) -> Result<Projection> {
        let mut items = Vec::new();
        let mut wildcard = false;
        for item in projection.items {
            match item.kind {
                oc::ProjectionItemKind::Wildcard => wildcard = true,
                oc::ProjectionItemKind::Expression { expression, alias } => {
                    let span = at(expression.span);
                    items.push(ProjectionItem {
                        text: self
                            .text
                            .get(span.start..span.end)
                            .unwrap_or("")
                            .trim()
                            .into(),
                        expression: self.expression(expression)?,
                        alias: alias.map(ident),
                    });
                }
                _ => return Err(unexpected("an item of a projection", at(item.span))),
            }
        }
        let mut order = Vec::new();
        for item in projection
            .order_by
            .into_iter()
            .flat_map(|order| order.items)
        {
            if let Some(nulls) = item.nulls {
                return Err(Error::unsupported(
                    "NULLS FIRST and NULLS LAST",
                    at(nulls.span),
                ));
            }
            let descending = item
                .direction
                .is_some_and(|d| matches!(d.kind, oc::SortDirection::Descending));
            order.push((self.expression(item.expression)?, descending));
        }
        Ok(Projection {
            distinct: projection
                .quantifier
                .is_some_and(|quantifier| matches!(quantifier.kind, oc::SetQuantifier::Distinct)),
            wildcard,
            items,
            order,
            skip: self.optional(projection.skip.or(projection.offset))?,
            limit: self.optional(projection.limit)?,
            at: At(at(projection.span)),
        })
    }

    fn set_items(&self, clause: oc::SetClause) -> Result<Vec<SetItem>> {
        clause
            .items
            .into_iter()
            .map(|item| self.set_item(item))
            .collect()
    }

    fn set_item(&self, item: oc::SetItem) -> Result<SetItem> {
        Ok(match item.kind {
            oc::SetItemKind::Property { target, value } => {
                let (target, key) = self.property(target)?;
                SetItem::Property {
                    target,
                    key,
                    value: self.expression(value)?,
                }
            }
            oc::SetItemKind::ReplaceProperties { target, value } => SetItem::Properties {
                target: ident(target),
                value: self.expression(value)?,
                replace: true,
            },
            oc::SetItemKind::MergeProperties { target, value } => SetItem::Properties {
                target: ident(target),
                value: self.expression(value)?,
                replace: false,
            },
            oc::SetItemKind::Labels { target, labels } => SetItem::Labels {
                target: ident(target),
                labels: self.plain_labels(labels)?,
            },
            _ => return Err(unexpected("an item of SET", at(item.span))),
        })
    }

    fn remove_item(&self, item: oc::RemoveItem) -> Result<RemoveItem> {
        Ok(match item.kind {
            oc::RemoveItemKind::Property(property) => {
                let (target, key) = self.property(property)?;
                RemoveItem::Property { target, key }
            }
            oc::RemoveItemKind::Labels { target, labels } => RemoveItem::Labels {
                target: ident(target),
                labels: self.plain_labels(labels)?,
            },
            _ => return Err(unexpected("an item of REMOVE", at(item.span))),
        })
    }

    fn property(&self, property: oc::Expr) -> Result<(Expr, Ident)> {
        let expression = self.expression(property)?;
        match expression.kind {
            ExprKind::Property(target, key) => Ok((*target, key)),
            _ => Err(Error::unsupported(
                "setting what is not a property with a fixed name",
                expression.span,
            )),
        }
    }

    fn plain_labels(&self, labels: oc::LabelExpression) -> Result<Vec<Name>> {
        let span = at(labels.span);
        self.labels(labels)?.conjunction().ok_or_else(|| {
            Error::syntax(
                Detail::UnexpectedSyntax,
                "only plain labels can be set or removed",
                span,
            )
        })
    }

    fn call(&self, clause: oc::CallClause, span: Span) -> Result<ClauseKind> {
        if clause.optional {
            return Err(Error::unsupported("OPTIONAL CALL", span));
        }
        let yields = match clause.yield_clause {
            None => None,
            Some(clause) => Some(self.yields(clause)?),
        };
        match clause.target {
            oc::CallTarget::Procedure { name, arguments } => Ok(ClauseKind::Call {
                name: dotted(name),
                arguments: arguments
                    .map(|arguments| self.expressions(arguments))
                    .transpose()?,
                yields,
            }),
            oc::CallTarget::Subquery {
                in_transactions: Some(part),
                ..
            } => Err(Error::unsupported(
                "CALL { … } IN TRANSACTIONS",
                at(part.span),
            )),
            oc::CallTarget::Subquery { scope, query, .. } => {
                let scope = match scope {
                    Some(scope) if scope.import_all => {
                        return Err(Error::unsupported("CALL (*) { … }", at(scope.span)));
                    }
                    Some(scope) => Some(scope.variables.into_iter().map(ident).collect()),
                    None => None,
                };
                Ok(ClauseKind::Subquery {
                    scope,
                    query: self.query(*query)?,
                })
            }
            _ => Err(Error::unsupported("this form of CALL", span)),
        }
    }

    fn yields(&self, clause: oc::YieldClause) -> Result<Yield> {
        let span = at(clause.span);
        let mut items = Vec::new();
        for item in clause.items {
            let span = at(item.span);
            let oc::ProjectionItemKind::Expression { expression, alias } = item.kind else {
                return Err(unexpected("an item of YIELD", span));
            };
            let oc::ExprKind::Variable(output) = expression.kind else {
                return Err(unexpected("an item of YIELD", span));
            };
            let output = ident(output);
            let variable = alias.map_or_else(|| output.clone(), ident);
            items.push((output, variable));
        }
        Ok(Yield {
            all: clause.all,
            items,
            predicate: self.optional(clause.where_clause)?,
            at: At(span),
        })
    }
}

fn clause_name(clause: &oc::ClauseKind) -> &'static str {
    match clause {
        oc::ClauseKind::Use(_) => "USE",
        oc::ClauseKind::Let(_) => "LET",
        oc::ClauseKind::Insert(_) => "INSERT",
        oc::ClauseKind::LoadCsv(_) => "LOAD CSV",
        oc::ClauseKind::Select(_) => "SELECT",
        oc::ClauseKind::Next(_) => "NEXT",
        oc::ClauseKind::Filter(_) => "FILTER",
        oc::ClauseKind::Finish => "FINISH",
        _ => "this clause",
    }
}
