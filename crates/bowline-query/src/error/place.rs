//! Places in the text of a query.

use std::fmt;

/// A range of bytes of the query's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

impl Span {
    /// The range from the start of `self` to the end of `other`.
    pub(crate) fn to(self, other: Span) -> Span {
        Span {
            start: self.start,
            end: other.end,
        }
    }
}

/// The line that a [`Span`] starts in. It displays as the line, with carets under the span.
///
/// ```
/// use bowline_query::{MemoryGraph, Query};
///
/// let error = Query::new("MATCH (n)\nRETURN m").plan(&MemoryGraph::new()).unwrap_err();
/// let place = error.problem().unwrap().place.clone().unwrap();
/// assert_eq!((place.line, place.column), (2, 8));
/// assert!(place.to_string().ends_with("2 | RETURN m\n  |        ^"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// The column, in characters, from 1.
    pub column: usize,
    /// How many characters of this line belong to the span; at least one.
    pub width: usize,
    /// The text of the line.
    pub text: String,
}

/// A longer line is cut around the place.
const SHOWN_MAX: usize = 120;

impl Place {
    pub(crate) fn new(text: &str, span: Span) -> Place {
        let mut start = span.start.min(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let mut end = span.end.clamp(start, line_end);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Place {
            line: text[..start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            width: text[start..end].chars().count().max(1),
            text: text[line_start..line_end].trim_end().to_owned(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skipped = (self.column + 20).saturating_sub(SHOWN_MAX);
        let shown: String = self.text.chars().skip(skipped).take(SHOWN_MAX).collect();
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        let indent = " ".repeat(self.column - 1 - skipped.min(self.column - 1));
        let carets = "^".repeat(self.width.min(SHOWN_MAX));
        write!(
            f,
            "{margin} |\n{number} | {shown}\n{margin} | {indent}{carets}"
        )
    }
}
