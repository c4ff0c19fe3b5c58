//! `AT REVISION n` before a query: Bowline's own extension, which asks for an older state of the graph.

use std::borrow::Cow;

use crate::error::{Detail, Error, Result, Span};

/// The revision that the text asks for, and where it says so.
pub(crate) fn revision(text: &str) -> Result<Option<(u64, Span)>> {
    let start = text.len() - text.trim_start().len();
    let mut words = text.split_whitespace();
    let is = |word: Option<&str>, name| word.is_some_and(|it| it.eq_ignore_ascii_case(name));
    if !is(words.next(), "AT") || !is(words.next(), "REVISION") {
        return Ok(None);
    }
    let number = words.next().unwrap_or("");
    let end = match number {
        "" => text.trim_end().len(),
        // It is a part of the text.
        number => number.as_ptr().addr() - text.as_ptr().addr() + number.len(),
    };
    let span = Span { start, end };
    match number.parse() {
        Ok(revision) => Ok(Some((revision, span))),
        Err(_) => {
            let message = format!("`{number}` is no revision");
            let error = Error::syntax(Detail::InvalidNumberLiteral, message, span);
            Err(error.help("write a number, as in AT REVISION 42 MATCH (n) RETURN n"))
        }
    }
}

/// The text without it. What follows keeps its place.
pub(crate) fn without_revision(text: &str, span: Option<Span>) -> Cow<'_, str> {
    match span {
        None => Cow::Borrowed(text),
        Some(span) => Cow::Owned(format!("{}{}", " ".repeat(span.end), &text[span.end..])),
    }
}
