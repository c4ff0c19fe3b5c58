//! Bounds on the text of a query, checked before anything recurses over it.
//!
//! Every pass after the parser, and the destructor of its tree, recurse once per level of nesting. One scan of the tokens
//! finds a bound on the levels: brackets and `CASE` nest what is in them; so does every operator of a chain, since
//! `1 + 2 + 3` and `a.b.c` nest to the left; and so does a bracket after a value, as in `list[0][1]`.
//!
//! A comma, and a keyword that begins a clause or a branch of `CASE`, begin a new chain. A logical operator ends the
//! chains of the operators below it. A keyword counts only where no operand can stand, which is after a complete one:
//! otherwise it may be a name, and a chain of such names must not escape the count.

use open_cypher::{Keyword, TokenKind};

use crate::error::{Detail, Error, Result, Span};

/// What is open: the text itself, a bracket, or a `CASE`.
#[derive(Default)]
struct Level {
    is_case: bool,
    /// AND, OR, XOR and NOT in the present chain.
    logical: usize,
    /// Other operators since the last of them.
    others: usize,
}

impl Level {
    fn depth(&self) -> usize {
        self.logical + self.others
    }
}

struct Levels {
    open: Vec<Level>,
    depth: usize,
    /// Clauses, and items at the outermost level.
    parts: usize,
}

/// How many parts a text may have: the parser's time grows with their square, and its stack with the parts of a UNION.
const PARTS_MAX: usize = 2_000;

/// What an action of MERGE counts: for them the parser's time grows with the cube.
const MERGE_ACTION_PARTS: usize = 40;

/// What a UNION counts, because the parser recurses over its parts.
const UNION_PARTS: usize = 4;

impl Levels {
    fn top(&mut self) -> &mut Level {
        self.open.last_mut().expect("the outermost level stays")
    }

    fn push(&mut self, is_case: bool) {
        // What follows the bracket may belong to what is in it.
        self.other();
        self.open.push(Level {
            is_case,
            ..Level::default()
        });
        self.depth += 1;
    }

    fn pop(&mut self) {
        if self.open.len() > 1 {
            let level = self.open.pop().unwrap_or_default();
            self.depth -= level.depth() + 1;
        }
    }

    fn close_bracket(&mut self) {
        while self.open.len() > 1 && self.top().is_case {
            self.pop();
        }
        self.pop();
    }

    fn other(&mut self) {
        self.top().others += 1;
        self.depth += 1;
    }

    fn logical(&mut self) {
        let level = self.top();
        let ended = std::mem::take(&mut level.others);
        level.logical += 1;
        self.depth = self.depth + 1 - ended;
    }

    fn restart(&mut self) {
        let level = self.top();
        let ended = level.depth();
        (level.logical, level.others) = (0, 0);
        self.depth -= ended;
    }
}

/// Refuses a text that is too long or too deeply nested.
pub(super) fn check(text: &str, text_bytes_max: usize, depth_max: usize) -> Result<()> {
    if text.len() > text_bytes_max {
        let span = Span {
            start: text_bytes_max,
            end: text_bytes_max,
        };
        let message = format!(
            "the query has {} bytes, more than {text_bytes_max}",
            text.len()
        );
        return Err(Error::syntax(Detail::QueryTooLong, message, span)
            .help("pass data as parameters, or raise the limit `text_bytes`"));
    }
    let mut levels = Levels {
        open: vec![Level::default()],
        depth: 0,
        parts: 0,
    };
    let mut before: Option<TokenKind> = None;
    for token in open_cypher::lex(text).tokens {
        let kind = token.kind;
        if kind.is_trivia() {
            continue;
        }
        count(kind, before, &mut levels);
        before = Some(kind);
        if levels.parts > PARTS_MAX {
            let span = Span {
                start: token.span.start,
                end: token.span.end,
            };
            let message = format!("the query has more than {PARTS_MAX} clauses and items");
            return Err(Error::syntax(Detail::QueryTooLong, message, span)
                .help("pass a list of maps as a parameter and UNWIND it"));
        }
        if levels.depth > depth_max {
            let span = Span {
                start: token.span.start,
                end: token.span.end,
            };
            let message = format!("the query is nested more than {depth_max} levels deep here");
            return Err(Error::syntax(Detail::QueryTooDeep, message, span).help(
                "use a list with IN instead of a chain of OR, and parameters instead of literals",
            ));
        }
    }
    Ok(())
}

fn count(kind: TokenKind, before: Option<TokenKind>, levels: &mut Levels) {
    match kind {
        TokenKind::LeftParen | TokenKind::LeftBracket | TokenKind::LeftBrace => levels.push(false),
        TokenKind::RightParen | TokenKind::RightBracket | TokenKind::RightBrace => {
            levels.close_bracket();
        }
        TokenKind::Comma | TokenKind::Semicolon => {
            levels.parts += usize::from(levels.open.len() == 1);
            levels.restart();
        }
        TokenKind::Keyword(keyword) => count_keyword(keyword, ends_operand(before), levels),
        kind if is_operator(kind) => levels.other(),
        _ => {}
    }
}

fn count_keyword(keyword: Keyword, after_operand: bool, levels: &mut Levels) {
    if starts_clause(keyword) {
        levels.parts += if keyword == Keyword::Union {
            UNION_PARTS
        } else {
            1
        };
    }
    match keyword {
        Keyword::On => levels.parts += MERGE_ACTION_PARTS,
        Keyword::Case if !after_operand => levels.push(true),
        Keyword::End if after_operand && levels.top().is_case => levels.pop(),
        Keyword::When | Keyword::Then | Keyword::Else if after_operand && levels.top().is_case => {
            levels.restart();
        }
        Keyword::And | Keyword::Or | Keyword::Xor if after_operand => levels.logical(),
        Keyword::Not => levels.logical(),
        Keyword::In | Keyword::Is | Keyword::Starts | Keyword::Ends | Keyword::Contains => {
            levels.other();
        }
        keyword if after_operand && starts_clause(keyword) && !levels.top().is_case => {
            levels.restart();
        }
        _ => {}
    }
}

/// Whether a token can be the last of an operand, so that a keyword after it is none.
fn ends_operand(token: Option<TokenKind>) -> bool {
    match token {
        None => true,
        Some(TokenKind::Keyword(keyword)) => matches!(
            keyword,
            Keyword::Null
                | Keyword::True
                | Keyword::False
                | Keyword::End
                | Keyword::Optional
                | Keyword::Create
                | Keyword::Match
                | Keyword::Union
                | Keyword::All
                | Keyword::Asc
                | Keyword::Desc
        ),
        Some(kind) => {
            kind.is_literal()
                || matches!(
                    kind,
                    TokenKind::Identifier
                        | TokenKind::EscapedIdentifier
                        | TokenKind::Parameter
                        | TokenKind::RightParen
                        | TokenKind::RightBracket
                        | TokenKind::RightBrace
                        | TokenKind::Star
                )
        }
    }
}

fn starts_clause(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::Match
            | Keyword::Optional
            | Keyword::With
            | Keyword::Return
            | Keyword::Where
            | Keyword::Create
            | Keyword::Merge
            | Keyword::Set
            | Keyword::Delete
            | Keyword::Remove
            | Keyword::Unwind
            | Keyword::Union
            | Keyword::Call
    )
}

fn is_operator(kind: TokenKind) -> bool {
    matches!(
        kind,
        TokenKind::Plus
            | TokenKind::Minus
            | TokenKind::Star
            | TokenKind::Slash
            | TokenKind::Percent
            | TokenKind::Caret
            | TokenKind::Bang
            | TokenKind::Ampersand
            | TokenKind::Pipe
            | TokenKind::Colon
            | TokenKind::Dot
            | TokenKind::DoublePipe
            | TokenKind::Equal
            | TokenKind::NotEqual
            | TokenKind::Less
            | TokenKind::LessEqual
            | TokenKind::Greater
            | TokenKind::GreaterEqual
            | TokenKind::RegexMatch
            | TokenKind::LeftArrow
            | TokenKind::RightArrow
    )
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn deep_texts_are_refused_and_long_ones_are_not() {
        let nested = format!("RETURN {}1{}", "(".repeat(300), ")".repeat(300));
        let chained = format!("RETURN 1{}", " + 1".repeat(300));
        let negated = format!("RETURN {}true", "NOT ".repeat(300));
        for text in [nested, chained, negated] {
            assert!(check(&text, 1 << 20, 250).is_err());
        }
        let long = format!("RETURN [{}]", "(1 + 2), ".repeat(1_000) + "3");
        assert!(check(&long, 1 << 20, 250).is_ok());
        assert!(check(&long, 1 << 10, 250).is_err());
    }
}
