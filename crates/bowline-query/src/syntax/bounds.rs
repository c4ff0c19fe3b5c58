//! Bounds on the text of a query, checked before anything recurses over it.
//!
//! The parser and every later pass recurse once per level of nesting. Levels come from brackets, from prefix operators
//! (`NOT NOT x`), from chains of binary operators, which nest to the left, and from `CASE`. One scan of the tokens
//! counts them: brackets and `CASE` open and close, operators add up within their bracket.

use open_cypher::{Keyword, TokenKind};

use crate::error::{Detail, Error, Result, Span};

/// Refuses a text that is too long or too deeply nested.
pub(super) fn check(text: &str, text_bytes_max: usize, depth_max: usize) -> Result<()> {
    if text.len() > text_bytes_max {
        let span = Span { start: text_bytes_max, end: text_bytes_max };
        let message = format!("the query has {} bytes, more than {text_bytes_max}", text.len());
        return Err(Error::syntax(Detail::QueryTooLong, message, span)
            .help("pass data as parameters, or raise the limit `text_bytes`"));
    }
    // One count per open bracket: the operators seen in it. Its depth is the sum of all.
    let mut operators = vec![0usize];
    let mut depth = 0usize;
    for token in open_cypher::lex(text).tokens {
        match token.kind {
            TokenKind::LeftParen
            | TokenKind::LeftBracket
            | TokenKind::LeftBrace
            | TokenKind::Keyword(Keyword::Case) => {
                operators.push(1);
                depth += 1;
            }
            TokenKind::RightParen
            | TokenKind::RightBracket
            | TokenKind::RightBrace
            | TokenKind::Keyword(Keyword::End) => {
                if operators.len() > 1 {
                    depth -= operators.pop().unwrap_or(0);
                }
            }
            // A new item or clause starts anew.
            TokenKind::Comma | TokenKind::Semicolon => reset(&mut operators, &mut depth),
            TokenKind::Keyword(keyword) if starts_clause(keyword) => reset(&mut operators, &mut depth),
            TokenKind::Keyword(Keyword::And | Keyword::Or | Keyword::Xor | Keyword::Not) => {
                depth += 1;
                *operators.last_mut().expect("the outermost level stays") += 1;
            }
            kind if nests(kind) => {
                depth += 1;
                *operators.last_mut().expect("the outermost level stays") += 1;
            }
            _ => {}
        }
        if depth > depth_max {
            let span = Span { start: token.span.start, end: token.span.end };
            let message = format!("the query is nested more than {depth_max} levels deep here");
            return Err(Error::syntax(Detail::QueryTooDeep, message, span)
                .help("use a list with IN instead of a chain of OR, and parameters instead of literals"));
        }
    }
    Ok(())
}

fn reset(operators: &mut [usize], depth: &mut usize) {
    let base = usize::from(operators.len() > 1);
    let last = operators.last_mut().expect("the outermost level stays");
    *depth -= *last - base;
    *last = base;
}

fn starts_clause(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::Match
            | Keyword::With
            | Keyword::Return
            | Keyword::Where
            | Keyword::Create
            | Keyword::Merge
            | Keyword::Set
            | Keyword::Unwind
            | Keyword::Union
    )
}

fn nests(kind: TokenKind) -> bool {
    matches!(
        kind,
        TokenKind::Plus
            | TokenKind::Minus
            | TokenKind::Star
            | TokenKind::Slash
            | TokenKind::Percent
            | TokenKind::Caret
            | TokenKind::Bang
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
