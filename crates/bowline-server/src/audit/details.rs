//! [`Details`]: what a call is about, as the part of its line that is made from the request.
//!
//! Keys are bytes, and JSON has texts. A key that is UTF-8 is `"key"`, as text; another one is `"key_base64"`, in the base64
//! of RFC 4648 with padding. Which of the two names is there says how to read it, so no two keys look the same. A key longer
//! than [`TEXT_BYTES_MAX`] is cut, and `"key_bytes"` is its whole length.
//!
//! The list of what was accessed has at most [`ON_BYTES_MAX`] bytes; `"left_out"` counts the rest.

use std::fmt::{Display, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bowline::text;

use super::options::Class;

/// The most of a key or a name that is written.
pub(super) const TEXT_BYTES_MAX: usize = 256;
/// The most of the list of what is accessed.
pub(super) const ON_BYTES_MAX: usize = 2 << 10;
/// The most of the other fields.
pub(super) const FIELDS_BYTES_MAX: usize = 1 << 10;

/// Appends a text in quotes.
pub(super) fn write_text(out: &mut String, text: &str) {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        out.push('"');
        out.push_str(text);
        out.push('"');
        return;
    }
    let quoted = serde_json::Value::from(text).to_string();
    // What would command a terminal, or hide from its reader, is escaped as well.
    out.push_str(&text::in_json(&quoted));
}

/// The longest start of a text within a number of bytes.
fn start_of(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev();
    let mut end = end.filter(|at| text.is_char_boundary(*at));
    &text[..end.next().unwrap_or(0)]
}

/// Appends a field of bytes, with a comma before it.
fn write_bytes(out: &mut String, name: &str, bytes: &[u8]) {
    // Writing into a string does not fail.
    let _ = match std::str::from_utf8(bytes) {
        Ok(text) => {
            let _ = write!(out, ",\"{name}\":");
            write_text(out, start_of(text, TEXT_BYTES_MAX));
            Ok(())
        }
        Err(_) => {
            let start = &bytes[..bytes.len().min(TEXT_BYTES_MAX)];
            write!(out, ",\"{name}_base64\":\"{}\"", STANDARD.encode(start))
        }
    };
    if bytes.len() > TEXT_BYTES_MAX {
        let _ = write!(out, ",\"{name}_bytes\":{}", bytes.len());
    }
}

/// Appends an id of a block as text: hexadecimal digits.
fn write_id(out: &mut String, name: &str, id: &[u8]) {
    let _ = write!(out, ",\"{name}\":\"");
    for byte in id.iter().take(16) {
        let _ = write!(out, "{byte:02x}");
    }
    out.push('"');
}

/// What a call is about.
#[derive(Debug, Default)]
pub(crate) struct Details {
    /// What is accessed: items of a JSON list.
    on: String,
    is_full: bool,
    left_out: u64,
    /// Other fields, each with a comma before it.
    fields: String,
    /// Of a call whose method does not say it.
    pub(super) class: Option<Class>,
}

impl Details {
    /// Those that a function tells.
    pub(crate) fn of(tell: impl FnOnce(&mut Details)) -> Details {
        let mut details = Details::default();
        tell(&mut details);
        details
    }

    /// A key is accessed, or a range of them.
    pub(crate) fn key(&mut self, op: &str, key: &[u8], range_end: &[u8]) {
        self.item(op, |out| {
            write_bytes(out, "key", key);
            if !range_end.is_empty() {
                write_bytes(out, "range_end", range_end);
            }
        });
    }

    /// A block is accessed.
    pub(super) fn block(&mut self, op: &str, id: &[u8]) {
        self.item(op, |out| write_id(out, "block", id));
    }

    /// An edge is accessed.
    pub(super) fn edge(&mut self, op: &str, source: &[u8], kind: &str, target: &[u8]) {
        self.item(op, |out| {
            write_id(out, "source", source);
            write_bytes(out, "kind", kind.as_bytes());
            write_id(out, "target", target);
        });
    }

    /// Blocks or edges of these kinds are accessed.
    pub(super) fn kinds<'a>(&mut self, op: &str, kinds: impl IntoIterator<Item = &'a String>) {
        for kind in kinds {
            self.item(op, |out| write_bytes(out, "kind", kind.as_bytes()));
        }
    }

    /// A lease is accessed.
    pub(super) fn lease(&mut self, op: &str, id: i64) {
        self.item(op, |out| {
            let _ = write!(out, ",\"lease\":{id}");
        });
    }

    fn item(&mut self, op: &str, write: impl FnOnce(&mut String)) {
        if self.is_full {
            self.left_out += 1;
            return;
        }
        let start = self.on.len();
        if start > 0 {
            self.on.push(',');
        }
        let _ = write!(self.on, "{{\"op\":\"{op}\"");
        write(&mut self.on);
        self.on.push('}');
        if self.on.len() > ON_BYTES_MAX {
            self.on.truncate(start);
            self.is_full = true;
            self.left_out += 1;
        }
    }

    /// A field with a text.
    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.field(|out| write_bytes(out, name, text.as_bytes()));
    }

    /// A field with a number or `true`.
    pub(crate) fn number(&mut self, name: &str, number: impl Display) {
        self.field(|out| {
            let _ = write!(out, ",\"{name}\":{number}");
        });
    }

    fn field(&mut self, write: impl FnOnce(&mut String)) {
        let start = self.fields.len();
        write(&mut self.fields);
        if self.fields.len() > FIELDS_BYTES_MAX {
            self.fields.truncate(start);
            self.left_out += 1;
        }
    }

    /// Appends all of it, with a comma before it.
    pub(super) fn write(&self, out: &mut String) {
        out.push_str(&self.fields);
        if !self.on.is_empty() {
            out.push_str(",\"on\":[");
            out.push_str(&self.on);
            out.push(']');
        }
        if self.left_out > 0 {
            let _ = write!(out, ",\"left_out\":{}", self.left_out);
        }
    }
}
