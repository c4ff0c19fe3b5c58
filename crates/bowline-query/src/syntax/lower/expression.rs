//! Expressions. Integers are read with their sign, so that the least one can be written; comparisons in a row become
//! a chain.

use open_cypher::ast as oc;

use super::{Lowering, at, dotted, ident, name, unexpected};
use crate::error::{Detail, Error, Result, Span};
use crate::syntax::ast::{Binary, Expr, ExprKind, Literal, MapItem, Quantifier, Subquery};
use crate::syntax::calls;
use crate::value::{Name, Value};

impl Lowering<'_> {
    pub(super) fn optional(&self, expression: Option<oc::Expr>) -> Result<Option<Expr>> {
        expression
            .map(|expression| self.expression(expression))
            .transpose()
    }

    pub(super) fn expressions(&self, expressions: Vec<oc::Expr>) -> Result<Vec<Expr>> {
        expressions
            .into_iter()
            .map(|expression| self.expression(expression))
            .collect()
    }

    fn boxed(&self, expression: oc::Expr) -> Result<Box<Expr>> {
        Ok(self.expression(expression)?.boxed())
    }

    pub(super) fn expression(&self, expression: oc::Expr) -> Result<Expr> {
        let span = at(expression.span);
        let kind = match expression.kind {
            oc::ExprKind::Literal(literal) => {
                ExprKind::Literal(Literal(self.literal(literal.kind, false, span)?))
            }
            oc::ExprKind::Variable(variable) => ExprKind::Variable(name(variable)),
            oc::ExprKind::Parameter(parameter) => ExprKind::Parameter(match parameter.name {
                oc::ParameterName::Named(name) | oc::ParameterName::Positional(name) => name.into(),
                _ => return Err(unexpected("a parameter", span)),
            }),
            oc::ExprKind::List(list) => ExprKind::List(self.expressions(list)?),
            oc::ExprKind::Map(entries) => ExprKind::Map(
                entries
                    .into_iter()
                    .map(|entry| self.entry(entry))
                    .collect::<Result<_>>()?,
            ),
            oc::ExprKind::MapProjection(projection) => self.map_projection(projection)?,
            oc::ExprKind::Unary { operator, operand } => {
                self.unary(operator.kind, *operand, span)?
            }
            oc::ExprKind::Binary {
                left,
                operator,
                right,
            } => self.binary(*left, operator.kind, *right)?,
            oc::ExprKind::Is {
                expression,
                negated,
                predicate,
            } => {
                let tested = self.boxed(*expression)?;
                let kind = match predicate {
                    oc::IsPredicate::Null => ExprKind::IsNull(tested),
                    oc::IsPredicate::Label(labels) => {
                        ExprKind::HasLabels(tested, self.labels(labels)?)
                    }
                    _ => return Err(Error::unsupported("IS with a type or a normal form", span)),
                };
                if negated {
                    ExprKind::Not(Expr::new(kind, span).boxed())
                } else {
                    kind
                }
            }
            oc::ExprKind::Property { expression, key } => {
                ExprKind::Property(self.boxed(*expression)?, ident(key))
            }
            oc::ExprKind::Index { expression, index }
            | oc::ExprKind::DynamicProperty {
                expression,
                key: index,
            } => ExprKind::Index(self.boxed(*expression)?, self.boxed(*index)?),
            oc::ExprKind::Slice {
                expression,
                lower,
                upper,
            } => ExprKind::Slice(
                self.boxed(*expression)?,
                lower.map(|bound| self.boxed(*bound)).transpose()?,
                upper.map(|bound| self.boxed(*bound)).transpose()?,
            ),
            oc::ExprKind::Function(call) => self.call_function(call, span)?,
            oc::ExprKind::Case(case) => self.case(case)?,
            other @ (oc::ExprKind::ListComprehension(_)
            | oc::ExprKind::PatternComprehension(_)
            | oc::ExprKind::Reduce(_)
            | oc::ExprKind::QuantifiedPredicate(_)
            | oc::ExprKind::Subquery(_)
            | oc::ExprKind::Pattern(_)) => self.binding(other, span)?,
            oc::ExprKind::Parenthesized(inner) => return self.expression(*inner),
            _ => return Err(unexpected("an expression", span)),
        };
        Ok(Expr::new(kind, span))
    }

    /// Expressions that bind variables of their own.
    fn binding(&self, kind: oc::ExprKind, span: Span) -> Result<ExprKind> {
        Ok(match kind {
            oc::ExprKind::ListComprehension(part) => ExprKind::Comprehension {
                variable: ident(part.variable),
                list: self.boxed(*part.list)?,
                predicate: part.predicate.map(|part| self.boxed(*part)).transpose()?,
                yields: part.projection.map(|part| self.boxed(*part)).transpose()?,
            },
            oc::ExprKind::PatternComprehension(part) => {
                let mut pattern = self.single_pattern(part.pattern, span)?;
                pattern.variable = part.binding.map(ident).or(pattern.variable);
                ExprKind::PatternComprehension {
                    pattern: Box::new(pattern),
                    predicate: part.predicate.map(|part| self.boxed(*part)).transpose()?,
                    yields: self.boxed(*part.projection)?,
                }
            }
            oc::ExprKind::Reduce(part) => ExprKind::Reduce {
                accumulator: ident(part.accumulator),
                start: self.boxed(*part.initial)?,
                variable: ident(part.variable),
                list: self.boxed(*part.list)?,
                step: self.boxed(*part.expression)?,
            },
            oc::ExprKind::QuantifiedPredicate(part) => ExprKind::Quantified {
                quantifier: match part.kind.kind {
                    oc::QuantifiedPredicateKind::All => Quantifier::All,
                    oc::QuantifiedPredicateKind::Any => Quantifier::Any,
                    oc::QuantifiedPredicateKind::None => Quantifier::None,
                    oc::QuantifiedPredicateKind::Single => Quantifier::Single,
                    _ => return Err(unexpected("a quantifier", span)),
                },
                variable: ident(part.variable),
                list: self.boxed(*part.list)?,
                predicate: self.boxed(*part.predicate)?,
            },
            oc::ExprKind::Subquery(part) => {
                let kind = match part.kind.kind {
                    oc::SubqueryExpressionKind::Exists => Subquery::Exists,
                    oc::SubqueryExpressionKind::Count => Subquery::Count,
                    oc::SubqueryExpressionKind::Collect => Subquery::Collect,
                    _ => return Err(unexpected("a subquery", span)),
                };
                ExprKind::Subquery(kind, Box::new(self.query(*part.query)?))
            }
            oc::ExprKind::Pattern(pattern) => {
                ExprKind::Pattern(Box::new(self.single_pattern(pattern, span)?))
            }
            _ => return Err(unexpected("an expression", span)),
        })
    }

    fn single_pattern(
        &self,
        pattern: oc::Pattern,
        span: Span,
    ) -> Result<crate::syntax::ast::Pattern> {
        let mut patterns = self.patterns(pattern)?;
        match (patterns.pop(), patterns.is_empty()) {
            (Some(pattern), true) => Ok(pattern),
            _ => Err(unexpected("a list of patterns", span)),
        }
    }

    fn entry(&self, entry: oc::MapEntry) -> Result<(Name, Expr)> {
        Ok((name(entry.key), self.expression(entry.value)?))
    }

    fn map_projection(&self, projection: oc::MapProjection) -> Result<ExprKind> {
        let mut items = Vec::new();
        for item in projection.items {
            items.push(match item.kind {
                oc::MapProjectionItemKind::AllProperties => MapItem::All,
                oc::MapProjectionItemKind::Property(key) => MapItem::Property(name(key)),
                oc::MapProjectionItemKind::Variable(variable) => MapItem::Variable(ident(variable)),
                oc::MapProjectionItemKind::Entry(entry) => {
                    let (key, value) = self.entry(entry)?;
                    MapItem::Entry(key, value)
                }
                _ => return Err(unexpected("an item of a map projection", at(item.span))),
            });
        }
        Ok(ExprKind::MapProjection {
            base: self.boxed(*projection.base)?,
            items,
        })
    }

    fn unary(
        &self,
        operator: oc::UnaryOperator,
        operand: oc::Expr,
        span: Span,
    ) -> Result<ExprKind> {
        if let (oc::UnaryOperator::Minus, oc::ExprKind::Literal(literal)) =
            (operator, &operand.kind)
            && let oc::LiteralKind::Integer(_) = literal.kind
        {
            let value = self.literal(literal.kind.clone(), true, span)?;
            return Ok(ExprKind::Literal(Literal(value)));
        }
        let operand = self.boxed(operand)?;
        Ok(match operator {
            oc::UnaryOperator::Not => ExprKind::Not(operand),
            oc::UnaryOperator::Minus => ExprKind::Negate(operand),
            oc::UnaryOperator::Plus => ExprKind::Plus(operand),
            _ => return Err(unexpected("an operator", span)),
        })
    }

    fn binary(
        &self,
        left: oc::Expr,
        operator: oc::BinaryOperator,
        right: oc::Expr,
    ) -> Result<ExprKind> {
        let operator = binary(operator, at(left.span))?;
        let left_is_bare = !matches!(left.kind, oc::ExprKind::Parenthesized(_));
        let left = self.expression(left)?;
        let right = self.expression(right)?;
        if !compares(operator) || !left_is_bare {
            return Ok(ExprKind::Binary(operator, left.boxed(), right.boxed()));
        }
        Ok(match left.kind {
            ExprKind::Binary(first, a, b) if compares(first) => {
                ExprKind::Chain(vec![*a, *b, right], vec![first, operator])
            }
            ExprKind::Chain(mut operands, mut operators) => {
                operands.push(right);
                operators.push(operator);
                ExprKind::Chain(operands, operators)
            }
            kind => {
                let left = Expr::new(kind, left.span);
                ExprKind::Binary(operator, left.boxed(), right.boxed())
            }
        })
    }

    fn call_function(&self, call: oc::FunctionInvocation, span: Span) -> Result<ExprKind> {
        let distinct = call
            .quantifier
            .is_some_and(|quantifier| matches!(quantifier.kind, oc::SetQuantifier::Distinct));
        let mut name = dotted(call.name);
        if let Some(written) = calls::written(self.text, name.span.start, name.span.end) {
            name.name = written.into();
        }
        if call
            .arguments
            .iter()
            .any(|argument| matches!(argument.kind, oc::ExprKind::Wildcard))
        {
            if name.name.eq_ignore_ascii_case("count") && call.arguments.len() == 1 && !distinct {
                return Ok(ExprKind::CountAll);
            }
            return Err(unexpected("`*` as an argument", span));
        }
        Ok(ExprKind::Call {
            name,
            distinct,
            arguments: self.expressions(call.arguments)?,
        })
    }

    fn case(&self, case: oc::CaseExpression) -> Result<ExprKind> {
        let mut branches = Vec::new();
        for alternative in case.alternatives {
            branches.push((
                self.expressions(alternative.when)?,
                self.expression(alternative.then)?,
            ));
        }
        Ok(ExprKind::Case {
            operand: case.operand.map(|part| self.boxed(*part)).transpose()?,
            branches,
            otherwise: case
                .else_expression
                .map(|part| self.boxed(*part))
                .transpose()?,
        })
    }

    fn literal(&self, literal: oc::LiteralKind, negative: bool, span: Span) -> Result<Value> {
        Ok(match literal {
            oc::LiteralKind::Null => Value::Null,
            oc::LiteralKind::Boolean(value) => Value::Bool(value),
            oc::LiteralKind::Integer(integer) => {
                Value::Int(read_integer(&integer, negative, span)?)
            }
            oc::LiteralKind::Float(float) => Value::Float(read_float(&float.text, span)?),
            oc::LiteralKind::String(text) => Value::Text(text.value.into()),
            _ => return Err(unexpected("a literal", span)),
        })
    }
}

fn read_float(text: &str, span: Span) -> Result<f64> {
    let is_word = |word: &str| text.eq_ignore_ascii_case(word);
    if is_word("INF") || is_word("INFINITY") {
        return Ok(f64::INFINITY);
    }
    let value: f64 = text
        .replace('_', "")
        .trim_end_matches(['f', 'd', 'F', 'D'])
        .parse()
        .map_err(|_| Error::syntax(Detail::InvalidNumberLiteral, "this is not a number", span))?;
    if value.is_infinite() {
        let message = "this number is too large for a float";
        return Err(Error::syntax(Detail::FloatingPointOverflow, message, span));
    }
    Ok(value)
}

fn read_integer(integer: &oc::IntegerLiteral, negative: bool, span: Span) -> Result<i64> {
    let text = integer.text.replace('_', "");
    let (digits, radix) = match integer.radix {
        oc::IntegerRadix::Hexadecimal => {
            (text.trim_start_matches("0x").trim_start_matches("0X"), 16)
        }
        oc::IntegerRadix::Octal => (text.trim_start_matches("0o").trim_start_matches("0O"), 8),
        _ => (text.as_str(), 10),
    };
    let signed = if negative {
        format!("-{digits}")
    } else {
        digits.to_owned()
    };
    i64::from_str_radix(&signed, radix).map_err(|_| {
        Error::syntax(
            Detail::IntegerOverflow,
            "this integer does not fit into 64 bits",
            span,
        )
        .help("write it as a float, with a point")
    })
}

fn compares(operator: Binary) -> bool {
    matches!(
        operator,
        Binary::Equal
            | Binary::NotEqual
            | Binary::Less
            | Binary::LessEqual
            | Binary::Greater
            | Binary::GreaterEqual
    )
}

fn binary(operator: oc::BinaryOperator, span: Span) -> Result<Binary> {
    Ok(match operator {
        oc::BinaryOperator::Or => Binary::Or,
        oc::BinaryOperator::Xor => Binary::Xor,
        oc::BinaryOperator::And => Binary::And,
        oc::BinaryOperator::Equal => Binary::Equal,
        oc::BinaryOperator::NotEqual => Binary::NotEqual,
        oc::BinaryOperator::Less => Binary::Less,
        oc::BinaryOperator::LessEqual => Binary::LessEqual,
        oc::BinaryOperator::Greater => Binary::Greater,
        oc::BinaryOperator::GreaterEqual => Binary::GreaterEqual,
        oc::BinaryOperator::RegexMatch => Binary::Matches,
        oc::BinaryOperator::In => Binary::In,
        oc::BinaryOperator::StartsWith => Binary::StartsWith,
        oc::BinaryOperator::EndsWith => Binary::EndsWith,
        oc::BinaryOperator::Contains => Binary::Contains,
        oc::BinaryOperator::Add => Binary::Add,
        oc::BinaryOperator::Subtract => Binary::Subtract,
        oc::BinaryOperator::Multiply => Binary::Multiply,
        oc::BinaryOperator::Divide => Binary::Divide,
        oc::BinaryOperator::Remainder => Binary::Remainder,
        oc::BinaryOperator::Power => Binary::Power,
        oc::BinaryOperator::Concat => Binary::Concat,
        _ => return Err(unexpected("an operator", span)),
    })
}
