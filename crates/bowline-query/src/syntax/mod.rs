//! Text to tree.
//!
//! `bounds` checks the length and the nesting of the text, so that no later step can overflow the stack. Then a parser
//! that others maintain (the crate `open-cypher`) checks the grammar, and `lower` turns its tree into ours at once.
//! Only `lower` and `bounds` name that crate, so it can be exchanged. Why this one: docs/design/query.md.

pub(crate) mod ast;
mod bounds;
mod lower;

use crate::error::{Detail, Error, Result, Span};

/// Parses a query.
pub(crate) fn parse(text: &str, text_bytes_max: usize, depth_max: usize) -> Result<ast::Query> {
    bounds::check(text, text_bytes_max, depth_max)?;
    let program = open_cypher::parse(text).map_err(|errors| syntax_error(text, &errors))?;
    lower::program(program.program, text)
}

fn syntax_error(text: &str, errors: &open_cypher::ParseErrors) -> Error {
    use open_cypher::DiagnosticCode;
    let Some(first) = errors.diagnostics().first() else {
        return Error::syntax(Detail::UnexpectedSyntax, "the query cannot be read", Span::default());
    };
    let span = Span { start: first.primary_span.start, end: first.primary_span.end };
    let part = text.get(span.start..span.end).unwrap_or("");
    let detail = match first.code {
        DiagnosticCode::InvalidNumber => Detail::InvalidNumberLiteral,
        DiagnosticCode::InvalidEscape => Detail::InvalidUnicodeLiteral,
        DiagnosticCode::InvalidToken
            if part.chars().any(|c| !c.is_ascii() && !c.is_alphanumeric()) =>
        {
            Detail::InvalidUnicodeCharacter
        }
        _ => Detail::UnexpectedSyntax,
    };
    let error = Error::syntax(detail, first.message.clone(), span);
    match &first.help {
        Some(help) => error.help(help.clone()),
        None => error,
    }
}
