//! Calls of functions whose names are keywords.
//!
//! `collect` and `exists` begin a subquery where a `{` follows, and are functions where a `(` does. The parser reads the word as a
//! keyword first, and takes it for a name only where nothing else in the query can be the cause of what it cannot read: after
//! `n.x IS NULL AS y` or `CASE ... END AS y` it refuses `collect(n)`. So it is given a name of the same length, and what it reads as a call has the
//! name that stands in the text.

use std::borrow::Cow;

use open_cypher::{Keyword, TokenKind};

/// The text with a plain name for each such call. All else keeps its place.
pub(super) fn with_plain_names(text: &str) -> Cow<'_, str> {
    let mut plain: Option<Vec<u8>> = None;
    let mut word: Option<usize> = None;
    for token in open_cypher::lex(text).tokens {
        if token.kind.is_trivia() {
            continue;
        }
        if token.kind == TokenKind::LeftParen
            && let Some(start) = word
        {
            let bytes = plain.get_or_insert_with(|| text.as_bytes().to_vec());
            // An ASCII letter.
            bytes[start] = b'_';
        }
        let is_word = matches!(
            token.kind,
            TokenKind::Keyword(Keyword::Collect | Keyword::Exists)
        );
        word = is_word.then_some(token.span.start);
    }
    match plain.and_then(|bytes| String::from_utf8(bytes).ok()) {
        Some(plain) => Cow::Owned(plain),
        None => Cow::Borrowed(text),
    }
}

/// The name that stands in the text where the parser has read a plain one.
pub(super) fn written(text: &str, start: usize, end: usize) -> Option<&str> {
    let written = text.get(start..end)?;
    let is_word = |word: &str| written.eq_ignore_ascii_case(word);
    (is_word("collect") || is_word("exists")).then_some(written)
}
