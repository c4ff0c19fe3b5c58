//! Where a statement in Cypher ends: at a `;` that is in no text, name or comment.

/// The statements of a text, each without its `;`, and what follows the last `;`.
pub(super) fn split(text: &str) -> (Vec<&str>, &str) {
    let mut statements = Vec::new();
    let mut start = 0;
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let next = characters.peek().map(|(_, next)| *next);
        match (character, next) {
            (';', _) => {
                statements.push(&text[start..at]);
                start = at + 1;
            }
            ('\'' | '"' | '`', _) => {
                // A backslash is a character like others in a name.
                let escapes = character != '`';
                while let Some((_, inner)) = characters.next() {
                    if inner == '\\' && escapes {
                        characters.next();
                    } else if inner == character {
                        break;
                    }
                }
            }
            ('/', Some('/')) => {
                characters.by_ref().find(|(_, inner)| *inner == '\n');
            }
            ('/', Some('*')) => {
                characters.next();
                let mut before = ' ';
                for (_, inner) in characters.by_ref() {
                    if (before, inner) == ('*', '/') {
                        break;
                    }
                    before = inner;
                }
            }
            _ => {}
        }
    }
    (statements, &text[start..])
}

/// Whether there is anything but spaces and comments.
pub(super) fn is_blank(text: &str) -> bool {
    let mut rest = text.trim_start();
    loop {
        let after = if let Some(comment) = rest.strip_prefix("//") {
            comment.split_once('\n').map_or("", |(_, after)| after)
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.split_once("*/").map_or("", |(_, after)| after)
        } else {
            return rest.is_empty();
        };
        rest = after.trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semicolon_in_a_text_a_name_or_a_comment_ends_nothing() {
        let cases: [(&str, &[&str], &str); 8] = [
            ("RETURN 1", &[], "RETURN 1"),
            ("RETURN 1; RETURN 2;\n", &["RETURN 1", " RETURN 2"], "\n"),
            (r"RETURN ';\';' AS a; x", &[r"RETURN ';\';' AS a"], " x"),
            (r#"RETURN "'; \"" ;"#, &[r#"RETURN "'; \"" "#], ""),
            (r"MATCH (`a;\`) ; b", &[r"MATCH (`a;\`) "], " b"),
            ("RETURN 1 // ; no\n;", &["RETURN 1 // ; no\n"], ""),
            ("RETURN /* ; ** ; */ 1;", &["RETURN /* ; ** ; */ 1"], ""),
            ("RETURN 6 / 2; RETURN 'ä;", &["RETURN 6 / 2"], " RETURN 'ä;"),
        ];
        for (text, statements, rest) in cases {
            assert_eq!(split(text), (statements.to_vec(), rest), "{text}");
        }
    }

    #[test]
    fn comments_are_no_statement() {
        for text in ["", " \n", "// a", "/* a */ // b\n  ", "/* not closed"] {
            assert!(is_blank(text), "{text}");
        }
        assert!(!is_blank("// a\nRETURN 1") && !is_blank("/"));
    }
}
