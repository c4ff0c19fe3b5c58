//! Escaping of untrusted text for terminals, logs and JSON.
//!
//! A key, a value, a member's name or a server's error message can hold control sequences (they move the
//! cursor, overwrite lines, set the clipboard) or characters that mislead a reader (they reverse the
//! direction, hide characters, start a line). Such characters are not [plain](is_plain), and are escaped:
//!
//! | function | for | `ESC` | a backslash |
//! |---|---|---|---|
//! | [`escape`] | data: one value, reversibly | `\x1b` | `\\` |
//! | [`line()`] | a finished sentence, which may hold escaped data | `\x1b` | unchanged |
//! | [`in_json`] | JSON, which keeps its meaning | `\u001b` | unchanged |
//!
//! Invariants:
//!
//! - The result has only plain characters and backslashes, so it is one line. (`in_json` keeps line breaks
//!   and tabs between tokens; within tokens the encoder has escaped them.)
//! - [`escape`] gives different bytes different texts; [`in_json`] changes no value of the JSON.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a character is shown unchanged: no control character, no line or paragraph separator, no invisible
/// character that changes the direction, width or meaning of the text around it.
///
/// ```
/// use bowline::text::is_plain;
///
/// assert!("größe 7".chars().all(is_plain));
/// assert!(!is_plain('\x1b') && !is_plain('\n'));
/// // It would reverse the text after it.
/// assert!(!is_plain('\u{202e}'));
/// ```
#[must_use]
pub fn is_plain(c: char) -> bool {
    !(c.is_control()
        || matches!(
            c,
            '\u{AD}'
                | '\u{61C}'
                | '\u{180E}'
                | '\u{200B}'..='\u{200F}'
                | '\u{2028}'..='\u{202E}'
                | '\u{2060}'..='\u{206F}'
                | '\u{FEFF}'
                | '\u{FFF9}'..='\u{FFFB}'
                | '\u{E0000}'..='\u{E0FFF}'
        ))
}

/// Escapes bytes to one line of text that is safe on a terminal. Reversible.
///
/// ```
/// assert_eq!(bowline::text::escape(b"\x1B[31mred\\\xFF"), r"\x1b[31mred\\\xff");
/// ```
#[must_use]
pub fn escape(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(bytes)
        && text.chars().all(|c| c != '\\' && is_plain(c))
    {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => shown.push_str("\\\\"),
                c => push(&mut shown, c),
            }
        }
        for byte in chunk.invalid() {
            // Writing into a string does not fail.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    Cow::Owned(shown)
}

/// Escapes a sentence to one line of text. Backslashes stay, as data in it may be escaped already.
///
/// ```
/// assert_eq!(bowline::text::line("no such key\n\x1B[2J"), r"no such key\n\x1b[2J");
/// ```
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    text.chars().for_each(|c| push(&mut shown, c));
    Cow::Owned(shown)
}

fn push(shown: &mut String, c: char) {
    match c {
        '\n' => shown.push_str("\\n"),
        '\r' => shown.push_str("\\r"),
        '\t' => shown.push_str("\\t"),
        c if is_plain(c) => shown.push(c),
        c if c.is_ascii() => {
            let _ = write!(shown, "\\x{:02x}", u32::from(c));
        }
        c => {
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
        }
    }
}

/// Escapes the characters of encoded JSON that are not plain; the value stays the same. Encoders escape only
/// the control characters below the space.
///
/// ```
/// assert_eq!(bowline::text::in_json("[\"\u{202E}\"]"), r#"["\u202e"]"#);
/// ```
#[must_use]
pub fn in_json(json: &str) -> Cow<'_, str> {
    let is_kept = |c: char| is_plain(c) || matches!(c, '\n' | '\r' | '\t');
    if json.chars().all(is_kept) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_kept(c) {
            shown.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_shown_that_could_command_a_terminal() {
        assert_eq!(escape(b"\x1B[31mred\x07\x7F"), "\\x1b[31mred\\x07\\x7f");
        assert_eq!(
            escape("abc\u{202E}txt\u{85}".as_bytes()),
            "abc\\u{202e}txt\\u{85}"
        );
        assert_eq!(escape(b"a\\b\r\n\t"), "a\\\\b\\r\\n\\t");
        assert_eq!(line("a\\b\r\n\t\x1B"), "a\\b\\r\\n\\t\\x1b");
        for plain in ["naïve → 日本", "🙂", ""] {
            assert!(matches!(escape(plain.as_bytes()), Cow::Borrowed(text) if text == plain));
            assert!(matches!(line(plain), Cow::Borrowed(text) if text == plain));
        }
        assert_eq!(escape(b"\xC3\xA9\xC3"), "é\\xc3");
        // Characters that reorder, hide or break lines.
        let hidden = "\u{200E}\u{200F}\u{202A}\u{202B}\u{202C}\u{202D}\u{202E}\u{2066}\u{2067}\u{2068}\
                      \u{2069}\u{2028}\u{2029}\u{61C}\u{9B}\u{FEFF}\u{E0041}\u{AD}";
        for c in hidden.chars() {
            let text = c.to_string();
            let json = format!("\"{c}\"");
            assert!(escape(text.as_bytes()).is_ascii(), "{c:?}");
            assert!(line(&text).is_ascii(), "{c:?}");
            assert!(in_json(&json).is_ascii(), "{c:?}");
        }
        assert_eq!(in_json("\"\u{E0041}\u{7F}\""), "\"\\udb40\\udc41\\u007f\"");
        assert_eq!(
            in_json("{\n\t\"a\\n\": \"é\"\r\n}"),
            "{\n\t\"a\\n\": \"é\"\r\n}"
        );
    }

    #[test]
    fn escaping_keeps_different_bytes_different() {
        for seed in crate::seeds(7..8) {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut seen = std::collections::HashMap::new();
            let alphabet = [b'\\', b'x', b'n', b'f', b'\n', 0xC3, 0xA9, 0xFF, b'u', b'{'];
            for _ in 0..20_000 {
                let bytes: Vec<u8> = (0..random.usize(0..6))
                    .map(|_| alphabet[random.usize(0..10)])
                    .collect();
                let shown = escape(&bytes).into_owned();
                let before = seen.entry(shown.clone()).or_insert_with(|| bytes.clone());
                assert_eq!(*before, bytes, "both shown as {shown}");
            }
        }
    }
}
