//! The text form of keys in errors and tables.

/// Shows the bytes of a key: printable text as it is, the rest escaped, cut after 64 bytes.
///
/// ```
/// assert_eq!(bowline_types::show_key(b"a\n"), r#""a\n""#);
/// ```
#[must_use]
pub fn show_key(key: &[u8]) -> String {
    const SHOWN_MAX_BYTES: usize = 64;
    let head = &key[..key.len().min(SHOWN_MAX_BYTES)];
    let dots = if key.len() > SHOWN_MAX_BYTES {
        "…"
    } else {
        ""
    };
    format!("\"{}{dots}\"", head.escape_ascii())
}
