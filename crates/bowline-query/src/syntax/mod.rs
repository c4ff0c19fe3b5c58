//! Text to tree.
//!
//! `bounds` checks the length and the nesting of the text, so that no later step can overflow the stack. Then a parser
//! that others maintain (the crate `open-cypher`) checks the grammar, and `lower` turns its tree into ours at once.
//! `calls` mends one of its faults. Only these and `bounds` name that crate, so it can be exchanged. Why this one: docs/design/query.md.

pub(crate) mod ast;
mod bounds;
mod calls;
mod lower;
mod revision;

pub(crate) use revision::{revision, without_revision};

use crate::error::{Detail, Error, Result, Span};

/// Parses a query.
pub(crate) fn parse(text: &str, text_bytes_max: usize, depth_max: usize) -> Result<ast::Query> {
    bounds::check(text, text_bytes_max, depth_max)?;
    let plain = calls::with_plain_names(text);
    let program = open_cypher::parse(&plain).map_err(|errors| syntax_error(text, &errors))?;
    lower::program(program.program, text)
}

fn syntax_error(text: &str, errors: &open_cypher::ParseErrors) -> Error {
    use open_cypher::DiagnosticCode;
    let Some(first) = errors.diagnostics().first() else {
        return Error::syntax(
            Detail::UnexpectedSyntax,
            "the query cannot be read",
            Span::default(),
        );
    };
    let span = Span {
        start: first.primary_span.start,
        end: first.primary_span.end,
    };
    let part = text.get(span.start..span.end).unwrap_or("");
    if let Some(what) = known_elsewhere(text, span) {
        return Error::unsupported(what, span);
    }
    let (detail, help) = match first.code {
        DiagnosticCode::InvalidNumber => (Detail::InvalidNumberLiteral, None),
        DiagnosticCode::InvalidEscape => (Detail::InvalidUnicodeLiteral, None),
        DiagnosticCode::InvalidToken
            if part.chars().any(|c| !c.is_ascii() && !c.is_alphanumeric()) =>
        {
            (Detail::InvalidUnicodeCharacter, None)
        }
        _ => guess(text, span, &first.message),
    };
    // A long list of what could follow helps nobody.
    let (head, expected) = first
        .message
        .split_once("; expected")
        .unwrap_or((&first.message, ""));
    let message = if expected.matches('`').count() > 12 {
        head
    } else {
        &first.message
    };
    let error = Error::syntax(detail, message, span);
    match help.map(str::to_owned).or(first.help.clone()) {
        Some(help) => error.help(help),
        None => error,
    }
}

/// What other dialects have and the parser does not read.
fn known_elsewhere(text: &str, span: Span) -> Option<&'static str> {
    let part = text
        .get(span.start..span.end)
        .unwrap_or("")
        .to_ascii_uppercase();
    let before = text
        .get(..span.start)
        .unwrap_or("")
        .trim_end()
        .to_ascii_uppercase();
    match part.as_str() {
        "FOREACH" => Some("FOREACH (write UNWIND)"),
        "LOAD" => Some("LOAD CSV"),
        "(" | "{" if before.ends_with("CALL") => Some("CALL { … } (a subquery)"),
        _ => None,
    }
}

/// What was probably meant where a token does not fit.
fn guess(text: &str, span: Span, message: &str) -> (Detail, Option<&'static str>) {
    let before = text.get(..span.start).unwrap_or("");
    let part = text.get(span.start..span.end).unwrap_or("");
    let in_relationship = ["`]`", "`WHERE`", "`{`"]
        .iter()
        .all(|token| message.contains(token));
    let run = before
        .rfind(|c: char| !c.is_ascii_alphanumeric())
        .map_or(0, |at| at + 1);
    if part.eq_ignore_ascii_case("YIELD") && message.contains("`(`") {
        let help = "write the arguments of the procedure in brackets";
        (Detail::InvalidArgumentPassingMode, Some(help))
    } else if matches!(part, ".." | "-") && in_relationship {
        let help = "write a length as *, *2, *1..3, *1.. or *..3";
        (Detail::InvalidRelationshipPattern, Some(help))
    } else if part.starts_with(|c: char| c.is_ascii_alphabetic())
        && before[run..].starts_with(|c: char| c.is_ascii_digit())
    {
        (Detail::InvalidNumberLiteral, None)
    } else {
        (Detail::UnexpectedSyntax, None)
    }
}
