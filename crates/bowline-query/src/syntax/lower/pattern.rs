//! Patterns.

use bowline_types::Direction;
use open_cypher::ast as oc;

use super::{Lowering, at, ident, name, unexpected};
use crate::error::{Detail, Error, Result, Span};
use crate::syntax::ast::{At, Labels, NodePattern, Pattern, RelationshipPattern, Shortest};
use crate::value::Name;

impl Lowering<'_> {
    pub(super) fn patterns(&self, pattern: oc::Pattern) -> Result<Vec<Pattern>> {
        pattern
            .parts
            .into_iter()
            .map(|part| self.pattern(part))
            .collect()
    }

    pub(super) fn pattern(&self, part: oc::PatternPart) -> Result<Pattern> {
        let span = at(part.span);
        if let Some(selector) = part.kind.selector {
            return Err(Error::unsupported(
                "a path selector (ANY, ALL, SHORTEST)",
                at(selector.span),
            ));
        }
        let mut pattern = Pattern {
            variable: part.kind.binding.map(ident),
            shortest: None,
            nodes: Vec::new(),
            relationships: Vec::new(),
            at: At(span),
        };
        self.path(part.kind.path, &mut pattern)?;
        if pattern.nodes.len() != pattern.relationships.len() + 1 {
            return Err(unexpected(
                "a pattern that does not alternate nodes and relationships",
                span,
            ));
        }
        Ok(pattern)
    }

    fn path(&self, path: oc::PathPattern, pattern: &mut Pattern) -> Result<()> {
        for factor in path.kind.factors {
            let span = at(factor.span);
            match factor.kind {
                oc::PathFactorKind::Node(node) => pattern.nodes.push(self.node(node, span)?),
                oc::PathFactorKind::Relationship(relationship) => {
                    pattern
                        .relationships
                        .push(self.relationship(relationship, span)?);
                }
                oc::PathFactorKind::LegacyShortest {
                    all,
                    pattern: inner,
                } => {
                    pattern.shortest = Some(if all { Shortest::All } else { Shortest::One });
                    self.path(*inner, pattern)?;
                }
                oc::PathFactorKind::Parenthesized {
                    pattern: inner,
                    where_clause: None,
                    quantifier: None,
                } => {
                    self.path(*inner, pattern)?;
                }
                _ => {
                    return Err(Error::unsupported(
                        "a quantified or nested path pattern",
                        span,
                    ));
                }
            }
        }
        Ok(())
    }

    fn node(&self, node: oc::NodePattern, span: Span) -> Result<NodePattern> {
        Ok(NodePattern {
            variable: node.variable.map(ident),
            labels: node.labels.map(|labels| self.labels(labels)).transpose()?,
            properties: self.optional(node.properties.map(|p| *p))?,
            predicate: self.optional(node.where_clause.map(|p| *p))?,
            at: At(span),
        })
    }

    fn relationship(
        &self,
        pattern: oc::RelationshipPattern,
        span: Span,
    ) -> Result<RelationshipPattern> {
        if let Some(quantifier) = pattern.graph_quantifier {
            return Err(Error::unsupported(
                "a quantifier after a relationship",
                at(quantifier.span),
            ));
        }
        let kinds = match pattern.labels {
            None => Vec::new(),
            Some(labels) => {
                let span = at(labels.span);
                disjunction(&self.labels(labels)?).ok_or_else(|| {
                    Error::unsupported("an expression over relationship types", span)
                })?
            }
        };
        let length = match pattern.legacy_quantifier {
            None => None,
            Some(quantifier) => Some(length(quantifier)?),
        };
        Ok(RelationshipPattern {
            variable: pattern.variable.map(ident),
            kinds,
            direction: match pattern.direction.kind {
                oc::RelationshipDirection::Left => Direction::In,
                oc::RelationshipDirection::Right => Direction::Out,
                _ => Direction::Both,
            },
            length,
            properties: self.optional(pattern.properties.map(|p| *p))?,
            predicate: self.optional(pattern.where_clause.map(|p| *p))?,
            at: At(span),
        })
    }

    pub(super) fn labels(&self, labels: oc::LabelExpression) -> Result<Labels> {
        let span = at(labels.span);
        let all = |parts: Vec<oc::LabelExpression>| {
            parts
                .into_iter()
                .map(|part| self.labels(part))
                .collect::<Result<Vec<_>>>()
        };
        Ok(match labels.kind {
            oc::LabelExpressionKind::Name(label) => Labels::Name(name(label)),
            oc::LabelExpressionKind::Wildcard => Labels::Any,
            oc::LabelExpressionKind::Not(inner) => Labels::Not(Box::new(self.labels(*inner)?)),
            oc::LabelExpressionKind::And(parts) => Labels::And(all(parts)?),
            oc::LabelExpressionKind::Or(parts) => Labels::Or(all(parts)?),
            oc::LabelExpressionKind::Parenthesized(inner) => self.labels(*inner)?,
            _ => return Err(unexpected("a label", span)),
        })
    }
}

fn disjunction(labels: &Labels) -> Option<Vec<Name>> {
    match labels {
        Labels::Name(name) => Some(vec![name.clone()]),
        Labels::Or(parts) => {
            let parts: Option<Vec<_>> = parts.iter().map(disjunction).collect();
            Some(parts?.concat())
        }
        _ => None,
    }
}

fn length(quantifier: oc::Quantifier) -> Result<(Option<u64>, Option<u64>)> {
    let span = at(quantifier.span);
    let number = |text: String| {
        text.parse::<u64>().map_err(|_| {
            Error::syntax(
                Detail::InvalidRelationshipPattern,
                "a length is a whole number",
                span,
            )
        })
    };
    Ok(match quantifier.kind {
        oc::QuantifierKind::ZeroOrMore => (None, None),
        oc::QuantifierKind::Fixed(text) => {
            let steps = number(text)?;
            (Some(steps), Some(steps))
        }
        oc::QuantifierKind::Range { lower, upper } => (
            lower.map(number).transpose()?,
            upper.map(number).transpose()?,
        ),
        _ => return Err(Error::unsupported("this quantifier", span)),
    })
}
