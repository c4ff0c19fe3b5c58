//! Pieces of patterns that reading and writing share.

use bowline_types::Direction;

use super::{Compiler, Scope};
use crate::error::{Detail, Error, Result, Span};
use crate::plan::{Expr, PathPart, Slot};
use crate::syntax::ast::{self, ExprKind};
use crate::value::{Name, Type};

/// The slots of a path pattern's nodes and relationships.
#[derive(Clone, Debug)]
pub(super) struct PatternSlots {
    pub nodes: Vec<Slot>,
    pub relationships: Vec<Slot>,
}

impl PatternSlots {
    /// The parts of the path, in order.
    pub fn path(&self, pattern: &ast::Pattern) -> Vec<PathPart> {
        let mut parts = vec![PathPart::Node(self.nodes[0])];
        for (i, relationship) in pattern.relationships.iter().enumerate() {
            parts.push(match relationship.length {
                None => PathPart::Relationship(self.relationships[i]),
                Some(_) => PathPart::Relationships(self.relationships[i]),
            });
            parts.push(PathPart::Node(self.nodes[i + 1]));
        }
        parts
    }
}

/// Fails if a variable is used as another kind of thing than it is.
pub(super) fn conflicts(ident: &ast::Ident, known: Type, wanted: Type) -> Result<()> {
    if known.may_be(wanted) {
        return Ok(());
    }
    let message = format!(
        "variable `{}` is used as {} here, but it is {}",
        ident.name,
        wanted.name(),
        known.name()
    );
    Err(
        Error::syntax(Detail::VariableTypeConflict, message, ident.span)
            .help("give the two things different names"),
    )
}

pub(super) fn already_bound(ident: &ast::Ident) -> Error {
    let message = format!("variable `{}` is already bound", ident.name);
    Error::syntax(Detail::VariableAlreadyBound, message, ident.span).help("choose another name")
}

impl Compiler<'_> {
    /// The entries of a property map in a pattern that reads.
    pub(super) fn property_tests(
        &mut self,
        properties: Option<&ast::Expr>,
        scope: &Scope,
    ) -> Result<Vec<(Name, Expr)>> {
        let Some(properties) = properties else {
            return Ok(Vec::new());
        };
        match &properties.kind {
            ExprKind::Map(entries) => entries
                .iter()
                .map(|(name, value)| Ok((name.clone(), self.expression(value, scope)?.0)))
                .collect(),
            ExprKind::Parameter(name) => Err(Error::syntax(
                Detail::InvalidParameterUse,
                format!("parameter `${name}` cannot stand for the properties of a pattern"),
                properties.span,
            )
            .help(format!("name each property, as in {{key: ${name}.key}}"))),
            _ => Err(Error::syntax(
                Detail::UnexpectedSyntax,
                "the properties of a pattern are a map",
                properties.span,
            )),
        }
    }

    /// The properties of something that is created.
    pub(super) fn new_properties(
        &mut self,
        properties: Option<&ast::Expr>,
        scope: &Scope,
    ) -> Result<Option<Expr>> {
        let Some(properties) = properties else {
            return Ok(None);
        };
        let (compiled, known) = self.expression(properties, scope)?;
        super::types::wants(known, &[Type::Map], "a map", properties.span)?;
        Ok(Some(compiled))
    }

    /// The one type of a relationship that is created.
    pub(super) fn single_kind(pattern: &ast::RelationshipPattern) -> Result<Name> {
        match pattern.kinds.as_slice() {
            [kind] => Ok(kind.clone()),
            _ => Err(Error::syntax(
                Detail::NoSingleRelationshipType,
                "a relationship that is created has exactly one type",
                pattern.at.0,
            )
            .help("write it as -[:TYPE]->")),
        }
    }

    /// Refuses a condition within what is created, which nothing would ask.
    pub(super) fn refuse_condition(predicate: Option<&ast::Expr>) -> Result<()> {
        let Some(predicate) = predicate else {
            return Ok(());
        };
        let message = "WHERE cannot stand within what is created";
        Err(
            Error::syntax(Detail::UnexpectedSyntax, message, predicate.span)
                .help("give properties, as in (n {name: 'Ada'}), or ask in a MATCH before"),
        )
    }

    /// Refuses patterns that cannot be created.
    pub(super) fn check_creatable(
        pattern: &ast::RelationshipPattern,
        directed: bool,
    ) -> Result<()> {
        Self::refuse_condition(pattern.predicate.as_ref())?;
        if pattern.length.is_some() {
            let message = "a relationship of variable length cannot be created";
            return Err(Error::syntax(
                Detail::CreatingVarLength,
                message,
                pattern.at.0,
            ));
        }
        if directed && pattern.direction == Direction::Both {
            let message = "a relationship that is created has a direction";
            return Err(
                Error::syntax(Detail::RequiresDirectedRelationship, message, pattern.at.0)
                    .help("write --> or <--"),
            );
        }
        Ok(())
    }

    pub(super) fn plain_labels(labels: Option<&ast::Labels>, span: Span) -> Result<Vec<Name>> {
        match labels {
            None => Ok(Vec::new()),
            Some(labels) => labels.conjunction().ok_or_else(|| {
                let message = "what is created has plain labels, joined by `:`";
                Error::syntax(Detail::UnexpectedSyntax, message, span)
            }),
        }
    }
}
