//! The parser's tree, lowered to ours. What has no counterpart is refused by name.

mod clause;
mod expression;
mod pattern;

use open_cypher::ast as oc;

use super::ast::{At, Clause, Ident, Query, Union};
use crate::error::{Detail, Error, Result, Span};
use crate::value::Name;

/// Lowers a whole program, which must hold one query.
pub(super) fn program(program: oc::Program, text: &str) -> Result<Query> {
    let whole = Span {
        start: 0,
        end: text.len(),
    };
    let mut statements = program.statements.into_iter();
    let Some(statement) = statements.next() else {
        return Err(
            Error::syntax(Detail::UnexpectedSyntax, "the query is empty", whole)
                .help("begin with MATCH, CREATE, RETURN or another clause"),
        );
    };
    match statement.kind {
        oc::StatementKind::Query(query) => {
            if let Some(mode) = query.mode {
                return Err(Error::unsupported(
                    "EXPLAIN and PROFILE within the text",
                    at(mode.span),
                ));
            }
            Lowering { text }.query(query.query)
        }
        _ => Err(unexpected("a statement", at(statement.span))),
    }
}

/// Holds the text, from which columns take their names.
struct Lowering<'t> {
    text: &'t str,
}

impl Lowering<'_> {
    fn query(&self, query: oc::Query) -> Result<Query> {
        let span = at(query.span);
        let oc::QueryKind::Regular(regular) = query.kind else {
            return Err(unexpected("a query", span));
        };
        let first = self.clauses(regular.head.kind.clauses)?;
        let mut unions = Vec::new();
        for branch in regular.unions {
            let all = matches!(branch.operator.kind, oc::UnionOperator::All);
            let at = At(at(branch.operator.span));
            unions.push(Union {
                all,
                at,
                clauses: self.clauses(branch.query.kind.clauses)?,
            });
        }
        Ok(Query { first, unions })
    }

    fn clauses(&self, clauses: Vec<oc::Clause>) -> Result<Vec<Clause>> {
        clauses
            .into_iter()
            .map(|clause| self.clause(clause))
            .collect()
    }
}

fn at(span: open_cypher::Span) -> Span {
    Span {
        start: span.start,
        end: span.end,
    }
}

fn ident(name: oc::Name) -> Ident {
    Ident {
        span: at(name.span),
        name: name.kind.text.into(),
    }
}

fn dotted(name: oc::QualifiedName) -> Ident {
    let span = at(name.span);
    let parts: Vec<String> = name.parts.into_iter().map(|part| part.kind.text).collect();
    Ident {
        name: parts.join(".").into(),
        span,
    }
}

fn name(name: oc::Name) -> Name {
    name.kind.text.into()
}

fn unexpected(what: &str, span: Span) -> Error {
    Error::syntax(
        Detail::UnexpectedSyntax,
        format!("{what} cannot be read here"),
        span,
    )
}
