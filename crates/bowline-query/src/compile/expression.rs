//! Expressions: names become slots, functions become calls, types are checked as far as they are known.

use super::scope::Origin;
use super::types::{
    addition, arithmetic, component_type, indexable, property_holder, type_of, wants,
};
use super::{Compiler, Scope};
use crate::error::{Detail, Error, Result, Span, nearest};
use crate::function::{self, Function};
use crate::plan::{Aggregate, AggregateKind, Expr, Kind, MapPart, PathPart, Plan};
use crate::syntax::ast::{self, Binary, ExprKind, MapItem, Subquery};
use crate::value::{Type, Value};

/// A compiled expression, and what is known of its type.
pub(super) type Typed = (Expr, Type);

impl Compiler<'_> {
    /// Compiles an expression whose value is wanted, not its truth.
    pub(super) fn expression(&mut self, expr: &ast::Expr, scope: &Scope) -> Result<Typed> {
        if let Some(typed) = self.grouped(expr, scope)? {
            return Ok(typed);
        }
        let span = expr.span;
        let (kind, known) = match &expr.kind {
            ExprKind::Literal(literal) => {
                let value = &literal.0;
                (Kind::Literal(value.clone()), type_of(value))
            }
            ExprKind::Variable(name) => {
                let binding = scope.resolve(name, span)?;
                (Kind::Slot(binding.slot), binding.kind)
            }
            ExprKind::Parameter(name) => {
                if !self.parameters.iter().any(|(known, _)| known == name) {
                    self.parameters.push((name.clone(), span));
                }
                (Kind::Parameter(name.clone()), Type::Any)
            }
            ExprKind::List(items) => (Kind::List(self.expressions(items, scope)?), Type::List),
            ExprKind::Map(entries) => {
                let entries = entries
                    .iter()
                    .map(|(name, value)| Ok((name.clone(), self.expression(value, scope)?.0)))
                    .collect::<Result<_>>()?;
                (Kind::Map(entries), Type::Map)
            }
            ExprKind::MapProjection { base, items } => self.map_projection(base, items, scope)?,
            ExprKind::Not(a) => (Kind::Not(self.boolean(a, scope)?.boxed()), Type::Bool),
            ExprKind::Negate(a) => {
                let (a, known) = self.expression(a, scope)?;
                wants(known, &[Type::Number, Type::Duration], "a number", a.span)?;
                (Kind::Negate(a.boxed()), known)
            }
            ExprKind::Plus(a) => {
                let (a, known) = self.expression(a, scope)?;
                wants(known, &[Type::Number], "a number", a.span)?;
                (Kind::Plus(a.boxed()), known)
            }
            ExprKind::Binary(operator, a, b) => self.binary(*operator, a, b, scope)?,
            ExprKind::Chain(operands, operators) => self.chain(operands, operators, span, scope)?,
            ExprKind::IsNull(a) => (
                Kind::IsNull(self.expression(a, scope)?.0.boxed()),
                Type::Bool,
            ),
            ExprKind::HasLabels(a, labels) => {
                let (a, known) = self.expression(a, scope)?;
                wants(
                    known,
                    &[Type::Node, Type::Relationship],
                    "a node or a relationship",
                    a.span,
                )?;
                (Kind::HasLabels(a.boxed(), labels.clone()), Type::Bool)
            }
            ExprKind::Property(..) | ExprKind::Index(..) | ExprKind::Slice(..) => {
                self.part(&expr.kind, scope)?
            }
            ExprKind::Call {
                name,
                distinct,
                arguments,
            } => self.call(name, *distinct, arguments, span, scope)?,
            ExprKind::CountAll => return Err(self.misplaced_aggregate("count(*)", span)),
            ExprKind::Case {
                operand,
                branches,
                otherwise,
            } => self.case(operand.as_deref(), branches, otherwise.as_deref(), scope)?,
            ExprKind::Comprehension { .. }
            | ExprKind::Reduce { .. }
            | ExprKind::Quantified { .. } => self.over_list(&expr.kind, scope)?,
            ExprKind::PatternComprehension {
                pattern,
                predicate,
                yields,
            } => self.pattern_comprehension(pattern, predicate.as_deref(), yields, scope)?,
            ExprKind::Subquery(kind, query) => self.subquery(*kind, query, span, scope)?,
            ExprKind::Pattern(_) => {
                return Err(Error::syntax(
                    Detail::UnexpectedSyntax,
                    "a pattern is a condition, not a value",
                    span,
                )
                .help("use it in WHERE, or write [pattern | value] for a list"));
            }
        };
        Ok((Expr::new(kind, span), known))
    }

    /// A part of a value: a property, an element, a slice.
    fn part(&mut self, kind: &ExprKind, scope: &Scope) -> Result<(Kind, Type)> {
        Ok(match kind {
            ExprKind::Property(a, key) => {
                let (a, known) = self.expression(a, scope)?;
                property_holder(known, a.span)?;
                let known = component_type(known, &key.name);
                (Kind::Property(a.boxed(), key.name.clone()), known)
            }
            ExprKind::Index(a, b) => {
                let (a, known) = self.expression(a, scope)?;
                let holders = [Type::List, Type::Map, Type::Node, Type::Relationship];
                indexable(known, &holders, a.span)?;
                let b = self.expression(b, scope)?.0;
                (Kind::Index(a.boxed(), b.boxed()), Type::Any)
            }
            ExprKind::Slice(a, low, high) => {
                let (a, known) = self.expression(a, scope)?;
                wants(known, &[Type::List], "a list", a.span)?;
                let mut bound = |bound: &Option<Box<ast::Expr>>| -> Result<Option<Box<Expr>>> {
                    bound
                        .as_ref()
                        .map(|bound| Ok(self.expression(bound, scope)?.0.boxed()))
                        .transpose()
                };
                let (low, high) = (bound(low)?, bound(high)?);
                (Kind::Slice(a.boxed(), low, high), Type::List)
            }
            _ => unreachable!("called with these three only"),
        })
    }

    fn expressions(&mut self, expressions: &[ast::Expr], scope: &Scope) -> Result<Vec<Expr>> {
        expressions
            .iter()
            .map(|expr| Ok(self.expression(expr, scope)?.0))
            .collect()
    }

    /// Compiles a condition: a Boolean, in which patterns stand for "there is a match".
    pub(super) fn boolean(&mut self, expr: &ast::Expr, scope: &Scope) -> Result<Expr> {
        let span = expr.span;
        match &expr.kind {
            ExprKind::Pattern(pattern) => self.pattern_exists(pattern, span, scope),
            ExprKind::Not(a) => Ok(Expr::new(Kind::Not(self.boolean(a, scope)?.boxed()), span)),
            ExprKind::Call {
                name, arguments, ..
            } if name.name.eq_ignore_ascii_case("exists") => match arguments.as_slice() {
                [
                    ast::Expr {
                        kind: ExprKind::Pattern(pattern),
                        ..
                    },
                ] => self.pattern_exists(pattern, span, scope),
                _ => self.checked_boolean(expr, scope),
            },
            ExprKind::Binary(operator @ (Binary::And | Binary::Or | Binary::Xor), a, b) => {
                let (a, b) = (self.boolean(a, scope)?, self.boolean(b, scope)?);
                Ok(Expr::new(
                    Kind::Binary(*operator, a.boxed(), b.boxed()),
                    span,
                ))
            }
            _ => self.checked_boolean(expr, scope),
        }
    }

    fn checked_boolean(&mut self, expr: &ast::Expr, scope: &Scope) -> Result<Expr> {
        let (expr, known) = self.expression(expr, scope)?;
        wants(known, &[Type::Bool], "a Boolean", expr.span)?;
        Ok(expr)
    }

    fn binary(
        &mut self,
        operator: Binary,
        a: &ast::Expr,
        b: &ast::Expr,
        scope: &Scope,
    ) -> Result<(Kind, Type)> {
        if matches!(operator, Binary::And | Binary::Or | Binary::Xor) {
            // A pattern among the operands is a condition only if the whole is one: `boolean` has seen to that.
            let (a, kind_a) = self.expression(a, scope)?;
            let (b, kind_b) = self.expression(b, scope)?;
            wants(kind_a, &[Type::Bool], "a Boolean", a.span)?;
            wants(kind_b, &[Type::Bool], "a Boolean", b.span)?;
            return Ok((Kind::Binary(operator, a.boxed(), b.boxed()), Type::Bool));
        }
        let (a, kind_a) = self.expression(a, scope)?;
        let (b, kind_b) = self.expression(b, scope)?;
        let known = match operator {
            Binary::In => {
                wants(kind_b, &[Type::List], "a list", b.span)?;
                Type::Bool
            }
            Binary::Add => addition(kind_a, kind_b, a.span)?,
            Binary::Subtract => arithmetic(operator, kind_a, kind_b, a.span, b.span)?,
            Binary::Multiply | Binary::Divide | Binary::Remainder | Binary::Power => {
                arithmetic(operator, kind_a, kind_b, a.span, b.span)?
            }
            Binary::Matches => {
                return Err(Error::unsupported(
                    "the operator =~ (regular expressions)",
                    a.span.to(b.span),
                ));
            }
            Binary::Concat => kind_a.or(kind_b),
            _ => Type::Bool,
        };
        Ok((Kind::Binary(operator, a.boxed(), b.boxed()), known))
    }

    fn chain(
        &mut self,
        operands: &[ast::Expr],
        operators: &[Binary],
        span: Span,
        scope: &Scope,
    ) -> Result<(Kind, Type)> {
        let operands = self.operands_of_chain(operands, span, scope)?;
        let mut all: Option<Expr> = None;
        for (pair, operator) in operands.windows(2).zip(operators) {
            let kind = Kind::Binary(*operator, pair[0].clone().boxed(), pair[1].clone().boxed());
            let link = Expr::new(kind, pair[0].span.to(pair[1].span));
            all = Some(match all {
                None => link,
                Some(before) => Expr::new(
                    Kind::Binary(Binary::And, before.boxed(), link.boxed()),
                    span,
                ),
            });
        }
        let all = all.map_or(Kind::Literal(Value::Bool(true)), |all| all.kind);
        Ok((all, Type::Bool))
    }

    /// Each operand but the first and the last is compared twice, so a plan has it twice. Of chains in the middle of chains it
    /// would have the innermost as often as two has powers, so they are bounded.
    fn operands_of_chain(
        &mut self,
        operands: &[ast::Expr],
        span: Span,
        scope: &Scope,
    ) -> Result<Vec<Expr>> {
        const CHAINS_MAX: usize = 3;
        let last = operands.len().saturating_sub(1);
        let mut compiled = Vec::with_capacity(operands.len());
        for (place, operand) in operands.iter().enumerate() {
            let is_twice = place > 0 && place < last;
            self.chains += usize::from(is_twice);
            if self.chains > CHAINS_MAX {
                let message = format!(
                    "more than {CHAINS_MAX} comparisons of several values, as `1 < n < 5`, stand in the middle of one another"
                );
                let error = Error::syntax(Detail::QueryTooDeep, message, span);
                return Err(
                    error.help("write `a < b AND b < c`, or compute the value in a WITH before")
                );
            }
            compiled.push(self.expression(operand, scope)?.0);
            self.chains -= usize::from(is_twice);
        }
        Ok(compiled)
    }

    fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        branches: &[(Vec<ast::Expr>, ast::Expr)],
        otherwise: Option<&ast::Expr>,
        scope: &Scope,
    ) -> Result<(Kind, Type)> {
        let mut known = Type::Null;
        let mut compiled = Vec::new();
        for (conditions, value) in branches {
            let conditions = match operand {
                Some(_) => self.expressions(conditions, scope)?,
                None => conditions
                    .iter()
                    .map(|c| self.boolean(c, scope))
                    .collect::<Result<_>>()?,
            };
            let (value, kind) = self.expression(value, scope)?;
            known = known.or(kind);
            compiled.push((conditions, value));
        }
        let operand = operand
            .map(|operand| self.expression(operand, scope))
            .transpose()?;
        let otherwise = otherwise
            .map(|otherwise| self.expression(otherwise, scope))
            .transpose()?;
        known = known.or(otherwise.as_ref().map_or(Type::Null, |(_, kind)| *kind));
        let kind = Kind::Case {
            operand: operand.map(|(operand, _)| operand.boxed()),
            branches: compiled,
            otherwise: otherwise.map(|(otherwise, _)| otherwise.boxed()),
        };
        Ok((kind, known))
    }

    fn map_projection(
        &mut self,
        base: &ast::Expr,
        items: &[MapItem],
        scope: &Scope,
    ) -> Result<(Kind, Type)> {
        let (base, known) = self.expression(base, scope)?;
        property_holder(known, base.span)?;
        let mut parts = Vec::new();
        for item in items {
            parts.push(match item {
                MapItem::All => MapPart::All,
                MapItem::Property(name) => MapPart::Property(name.clone()),
                MapItem::Variable(ident) => {
                    let variable =
                        ast::Expr::new(ExprKind::Variable(ident.name.clone()), ident.span);
                    MapPart::Entry(ident.name.clone(), self.expression(&variable, scope)?.0)
                }
                MapItem::Entry(name, value) => {
                    MapPart::Entry(name.clone(), self.expression(value, scope)?.0)
                }
            });
        }
        Ok((Kind::MapProjection(base.boxed(), parts), Type::Map))
    }

    /// Comprehensions, `reduce` and quantifiers: expressions that bind a variable to each element of a list.
    fn over_list(&mut self, kind: &ExprKind, scope: &Scope) -> Result<(Kind, Type)> {
        let (ExprKind::Comprehension { list, variable, .. }
        | ExprKind::Reduce { list, variable, .. }
        | ExprKind::Quantified { list, variable, .. }) = kind
        else {
            unreachable!("called with these three only")
        };
        let element = self.element_type(list, scope)?;
        let (list, known) = self.expression(list, scope)?;
        wants(known, &[Type::List], "a list", list.span)?;
        let slot = self.slot();
        let mut inner = scope.clone();
        inner.bind_as(Origin::Local, variable.name.clone(), slot, element);
        let outer = std::mem::replace(&mut self.aggregates_allowed, false);
        let result = match kind {
            ExprKind::Comprehension {
                predicate, yields, ..
            } => {
                let predicate = predicate
                    .as_ref()
                    .map(|p| self.boolean(p, &inner))
                    .transpose()?;
                let yields = yields
                    .as_ref()
                    .map(|y| self.expression(y, &inner))
                    .transpose()?;
                let kind = Kind::Comprehension {
                    slot,
                    list: list.boxed(),
                    predicate: predicate.map(Expr::boxed),
                    yields: yields.map(|(yields, _)| yields.boxed()),
                };
                (kind, Type::List)
            }
            ExprKind::Reduce {
                accumulator,
                start,
                step,
                ..
            } => {
                let (start, known) = self.expression(start, scope)?;
                let total = self.slot();
                inner.bind_as(Origin::Local, accumulator.name.clone(), total, Type::Any);
                let (step, stepped) = self.expression(step, &inner)?;
                let kind = Kind::Reduce {
                    accumulator: total,
                    start: start.boxed(),
                    slot,
                    list: list.boxed(),
                    step: step.boxed(),
                };
                (kind, known.or(stepped))
            }
            ExprKind::Quantified {
                quantifier,
                predicate,
                ..
            } => {
                let predicate = self.boolean(predicate, &inner)?.boxed();
                let kind = Kind::Quantified {
                    quantifier: *quantifier,
                    slot,
                    list: list.boxed(),
                    predicate,
                };
                (kind, Type::Bool)
            }
            _ => unreachable!("called with these three only"),
        };
        self.aggregates_allowed = outer;
        Ok(result)
    }

    /// What the elements of a list are, if the list is a literal.
    fn element_type(&mut self, list: &ast::Expr, scope: &Scope) -> Result<Type> {
        let ExprKind::List(items) = &list.kind else {
            return Ok(Type::Any);
        };
        let mut all = Type::Null;
        for item in items {
            all = all.or(match &item.kind {
                ExprKind::Literal(literal) => type_of(&literal.0),
                ExprKind::List(_) => Type::List,
                ExprKind::Map(_) => Type::Map,
                ExprKind::Variable(name) => scope.resolve(name, item.span)?.kind,
                _ => Type::Any,
            });
        }
        Ok(if all == Type::Null { Type::Any } else { all })
    }

    fn call(
        &mut self,
        name: &ast::Ident,
        distinct: bool,
        arguments: &[ast::Expr],
        span: Span,
        scope: &Scope,
    ) -> Result<(Kind, Type)> {
        if aggregate_kind(&name.name).is_some() {
            return Err(self.misplaced_aggregate(&name.name, span));
        }
        if name.name.eq_ignore_ascii_case("exists")
            && let [
                ast::Expr {
                    kind: ExprKind::Pattern(pattern),
                    ..
                },
            ] = arguments
        {
            return Ok((self.pattern_exists(pattern, span, scope)?.kind, Type::Bool));
        }
        if name.name.eq_ignore_ascii_case("coalesce") {
            return self.coalesce(name, arguments, scope);
        }
        let function = find_function(name)?;
        if distinct {
            return Err(Error::syntax(
                Detail::InvalidAggregation,
                format!(
                    "`{}` does not aggregate, so DISTINCT says nothing",
                    function.name
                ),
                name.span,
            ));
        }
        check_count(function, arguments.len(), span)?;
        let mut compiled = Vec::new();
        for (i, argument) in arguments.iter().enumerate() {
            let (argument, known) = self.expression(argument, scope)?;
            let accepted = function.arguments.get(i).or(function.arguments.last());
            if let Some(accepted) = accepted {
                let what = accepted
                    .iter()
                    .map(|t| t.name())
                    .collect::<Vec<_>>()
                    .join(" or ");
                wants(
                    known,
                    accepted,
                    &format!("{what} for `{}`", function.name),
                    argument.span,
                )?;
            }
            compiled.push(argument);
        }
        Ok((Kind::Call(function, compiled), function.result))
    }

    fn coalesce(
        &mut self,
        name: &ast::Ident,
        arguments: &[ast::Expr],
        scope: &Scope,
    ) -> Result<(Kind, Type)> {
        let function = find_function(name)?;
        check_count(function, arguments.len(), name.span)?;
        let mut known = Type::Null;
        let mut compiled = Vec::new();
        for argument in arguments {
            let (argument, kind) = self.expression(argument, scope)?;
            known = known.or(kind);
            compiled.push(argument);
        }
        Ok((Kind::Call(function, compiled), known))
    }

    fn misplaced_aggregate(&self, name: &str, span: Span) -> Error {
        let (detail, message) = if self.in_aggregate {
            (
                Detail::NestedAggregation,
                format!("`{name}` cannot stand within another aggregate"),
            )
        } else {
            (
                Detail::InvalidAggregation,
                format!("`{name}` aggregates rows, which is not possible here"),
            )
        };
        Error::syntax(detail, message, span).help("aggregate in a WITH before")
    }

    /// Compiles an aggregate for a slot of its own.
    pub(super) fn aggregate(
        &mut self,
        expr: &ast::Expr,
        scope: &Scope,
    ) -> Result<(Aggregate, Type)> {
        let slot = self.slot();
        let span = expr.span;
        let ExprKind::Call {
            name,
            distinct,
            arguments,
        } = &expr.kind
        else {
            let kind = AggregateKind::CountAll;
            let aggregate = Aggregate {
                kind,
                slot,
                distinct: false,
                arguments: Vec::new(),
                span,
            };
            return Ok((aggregate, Type::Int));
        };
        let kind = aggregate_kind(&name.name).expect("the caller has seen an aggregate");
        let wanted = match kind {
            AggregateKind::PercentileContinuous | AggregateKind::PercentileDiscrete => 2,
            _ => 1,
        };
        if arguments.len() != wanted {
            let message = format!(
                "`{}` takes {wanted} arguments, not {}",
                name.name,
                arguments.len()
            );
            return Err(Error::syntax(
                Detail::InvalidNumberOfArguments,
                message,
                span,
            ));
        }
        let grouping = self.grouping.take();
        let nested = std::mem::replace(&mut self.in_aggregate, true);
        let compiled: Result<Vec<Typed>> = arguments
            .iter()
            .map(|argument| self.expression(argument, scope))
            .collect();
        self.in_aggregate = nested;
        self.grouping = grouping;
        let compiled = compiled?;
        if arguments.iter().any(|argument| argument.calls("rand")) {
            let message = format!("`{}` cannot aggregate random numbers", name.name);
            return Err(Error::syntax(Detail::NonConstantExpression, message, span));
        }
        let argument = compiled.first().map_or(Type::Any, |(_, known)| *known);
        let known = match kind {
            AggregateKind::CountAll | AggregateKind::Count => Type::Int,
            AggregateKind::Collect => Type::List,
            AggregateKind::Min | AggregateKind::Max | AggregateKind::PercentileDiscrete => argument,
            AggregateKind::Sum | AggregateKind::Average => argument,
            _ => Type::Float,
        };
        let known = if known == Type::Int && kind == AggregateKind::Average {
            Type::Float
        } else {
            known
        };
        let arguments = compiled.into_iter().map(|(argument, _)| argument).collect();
        Ok((
            Aggregate {
                kind,
                slot,
                distinct: *distinct,
                arguments,
                span,
            },
            known,
        ))
    }

    fn pattern_exists(
        &mut self,
        pattern: &ast::Pattern,
        span: Span,
        scope: &Scope,
    ) -> Result<Expr> {
        if pattern.relationships.is_empty() {
            let message = "a pattern of one node is no condition";
            return Err(Error::syntax(Detail::InvalidArgumentType, message, span)
                .help("add a relationship, or compare the node"));
        }
        let idents = pattern
            .nodes
            .iter()
            .filter_map(|n| n.variable.as_ref())
            .chain(
                pattern
                    .relationships
                    .iter()
                    .filter_map(|r| r.variable.as_ref())
                    .chain(&pattern.variable),
            );
        let scope = self.of_group(scope);
        for ident in idents {
            scope.resolve(&ident.name, ident.span)?;
        }
        let outer = std::mem::replace(&mut self.aggregates_allowed, false);
        let patterns = std::slice::from_ref(pattern);
        let (plan, _) = self.match_patterns(patterns, None, Plan::Argument, &scope)?;
        self.aggregates_allowed = outer;
        let kind = Kind::Subquery {
            kind: Subquery::Exists,
            plan: Box::new(plan),
            yields: None,
        };
        Ok(Expr::new(kind, span))
    }

    fn pattern_comprehension(
        &mut self,
        pattern: &ast::Pattern,
        predicate: Option<&ast::Expr>,
        yields: &ast::Expr,
        scope: &Scope,
    ) -> Result<(Kind, Type)> {
        let outer = std::mem::replace(&mut self.aggregates_allowed, false);
        let patterns = std::slice::from_ref(pattern);
        let scope = self.of_group(scope);
        let (plan, inner) = self.match_patterns(patterns, predicate, Plan::Argument, &scope)?;
        let yields = self.expression(yields, &inner)?.0;
        self.aggregates_allowed = outer;
        let kind = Kind::Subquery {
            kind: Subquery::Collect,
            plan: Box::new(plan),
            yields: Some(yields.boxed()),
        };
        Ok((kind, Type::List))
    }

    fn subquery(
        &mut self,
        kind: Subquery,
        query: &ast::Query,
        span: Span,
        scope: &Scope,
    ) -> Result<(Kind, Type)> {
        let scope = self.of_group(scope).given();
        let grouping = self.grouping.take();
        let compiled = self.inner_query(query, &scope);
        self.grouping = grouping;
        let (plan, columns) = compiled?;
        if plan.writes() {
            let message = "a subquery within an expression cannot write";
            return Err(Error::syntax(
                Detail::InvalidClauseComposition,
                message,
                span,
            ));
        }
        let (known, yields) = match kind {
            Subquery::Exists => (Type::Bool, None),
            Subquery::Count => (Type::Int, None),
            Subquery::Collect => match columns.as_slice() {
                [column] => (
                    Type::List,
                    Some(Expr::new(Kind::Slot(column.slot), span).boxed()),
                ),
                _ => {
                    let message = "COLLECT needs a subquery that returns one column";
                    return Err(Error::syntax(Detail::InvalidArgumentType, message, span));
                }
            },
        };
        Ok((
            Kind::Subquery {
                kind,
                plan: Box::new(plan),
                yields,
            },
            known,
        ))
    }

    /// The path of these parts.
    pub(super) fn path(parts: Vec<PathPart>, span: Span) -> Expr {
        Expr::new(Kind::Path(parts), span)
    }
}

/// The aggregate of the name, if it is one.
pub(super) fn aggregate_kind(name: &str) -> Option<AggregateKind> {
    Some(match name.to_ascii_lowercase().as_str() {
        "count" => AggregateKind::Count,
        "sum" => AggregateKind::Sum,
        "avg" => AggregateKind::Average,
        "min" => AggregateKind::Min,
        "max" => AggregateKind::Max,
        "collect" => AggregateKind::Collect,
        "stdev" => AggregateKind::StandardDeviation,
        "stdevp" => AggregateKind::StandardDeviationOfPopulation,
        "percentilecont" => AggregateKind::PercentileContinuous,
        "percentiledisc" => AggregateKind::PercentileDiscrete,
        _ => return None,
    })
}

const AGGREGATES: [&str; 10] = [
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "collect",
    "stDev",
    "stDevP",
    "percentileCont",
    "percentileDisc",
];

impl ast::Expr {
    /// Whether this is a call of an aggregate.
    pub(super) fn is_aggregate(&self) -> bool {
        match &self.kind {
            ExprKind::CountAll => true,
            ExprKind::Call { name, .. } => aggregate_kind(&name.name).is_some(),
            _ => false,
        }
    }

    /// Whether an aggregate is called anywhere in this expression.
    pub(super) fn aggregates(&self) -> bool {
        let mut found = self.is_aggregate();
        self.for_each_child(&mut |child| found = found || child.aggregates());
        found
    }

    /// Whether the function is called anywhere in this expression.
    pub(super) fn calls(&self, function: &str) -> bool {
        let mut found = matches!(&self.kind, ExprKind::Call { name, .. } if name.name.eq_ignore_ascii_case(function));
        self.for_each_child(&mut |child| found = found || child.calls(function));
        found
    }
}

fn find_function(name: &ast::Ident) -> Result<&'static Function> {
    if let Some(function) = function::find(&name.name) {
        return Ok(function);
    }
    let error = Error::syntax(
        Detail::UnknownFunction,
        format!("there is no function `{}`", name.name),
        name.span,
    );
    Err(
        match nearest(&name.name, function::names().chain(AGGREGATES)) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None => error.help("docs/cypher.md lists the functions"),
        },
    )
}

fn check_count(function: &Function, given: usize, span: Span) -> Result<()> {
    if (function.least..=function.most).contains(&given) {
        return Ok(());
    }
    let wanted = if function.least == function.most {
        function.least.to_string()
    } else {
        format!("{} to {}", function.least, function.most)
    };
    let message = format!("`{}` takes {wanted} arguments, not {given}", function.name);
    Err(Error::syntax(
        Detail::InvalidNumberOfArguments,
        message,
        span,
    ))
}
