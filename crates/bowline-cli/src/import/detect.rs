//! Telling a file's format from its name and its first bytes.
//!
//! A name that leaves no doubt (`Cargo.lock`, `*.jsonl`) decides. Otherwise the first line that
//! is neither blank nor a comment does, and an empty file is taken for an edge list without
//! edges. What is recognised but not read (compressed files) gets an error that says how to
//! go on.
//!
//! Invariant: what is looked at is the file up to the end of that line ([`read_head`]), so a pipe
//! has the same format in whatever pieces it is written.

use std::io::{self, BufRead, Read};
use std::path::Path;

use super::item::Format;

/// Why the format of a file is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DetectError {
    /// The file is compressed.
    #[error(
        "the file is compressed with {name}: unpack it into the import, as in `{command} FILE | bowline import -`"
    )]
    Compressed {
        /// With what.
        name: &'static str,
        /// What unpacks it.
        command: &'static str,
    },
    /// The file begins as a JSON array, or as a JSON object over several lines.
    #[error(
        "the file looks like JSON over several lines, or an array: import takes one object per line, as in \
         `jq -c '.[]' FILE | bowline import -`"
    )]
    WholeJson,
    /// Nothing fits.
    #[error(
        "the format is not recognised: say it with --format cargo-lock, edge-list or jsonl \
         (a Cargo.lock, two ids per line, or one JSON object per line)"
    )]
    Unknown,
}

/// The longest head that is read: as long as the longest line of an edge list.
const HEAD_MAX_BYTES: usize = 1 << 20;

/// Magic numbers of compressed files, with the name and the command that unpacks them.
const COMPRESSED: &[(&[u8], &str, &str)] = &[
    (b"\x1F\x8B", "gzip", "gzip -dc"),
    (b"\x28\xB5\x2F\xFD", "zstd", "zstd -dc"),
    (b"\xFD7zXZ\0", "xz", "xz -dc"),
    (b"BZh", "bzip2", "bzip2 -dc"),
    (b"PK\x03\x04", "zip", "unzip -p"),
];

/// A format, and what it was detected from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detected {
    /// The format.
    pub format: Format,
    /// What it was detected from, as the end of a sentence that begins with "because".
    pub because: &'static str,
}

impl Detected {
    fn new(format: Format, because: &'static str) -> Detected {
        Detected { format, because }
    }
}

/// Reads what [`detect`] looks at: all up to the end of the first line that is neither blank nor a
/// comment, or up to a limit.
pub(crate) fn read_head(input: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut limited = input.take(HEAD_MAX_BYTES as u64);
    loop {
        let start = head.len();
        let read = limited.read_until(b'\n', &mut head)?;
        let line = match start {
            0 => without_mark(&head),
            _ => &head[start..],
        };
        if read == 0 || has_content(line) {
            return Ok(head);
        }
    }
}

/// The format of a file, from its `name` (if it has one) and its first bytes.
pub fn detect(name: Option<&Path>, head: &[u8]) -> Result<Detected, DetectError> {
    for (magic, name, command) in COMPRESSED {
        if head.starts_with(magic) {
            return Err(DetectError::Compressed { name, command });
        }
    }
    let file_name = name
        .and_then(Path::file_name)
        .unwrap_or_default()
        .to_string_lossy();
    let file_name = file_name.to_ascii_lowercase();
    if file_name == "cargo.lock" {
        let because = "its name is Cargo.lock";
        return Ok(Detected::new(Format::CargoLock, because));
    }
    for (suffix, because) in [
        (".jsonl", "its name ends with .jsonl"),
        (".ndjson", "its name ends with .ndjson"),
    ] {
        if file_name.ends_with(suffix) {
            return Ok(Detected::new(Format::JsonLines, because));
        }
    }
    by_content(head).or_else(|refused| {
        let known = [".txt", ".tsv", ".csv", ".edges", ".edgelist", ".el"];
        let is_named = known.iter().any(|suffix| file_name.ends_with(suffix));
        if is_named && refused == DetectError::Unknown {
            let because = "its name ends like that of an edge list";
            Ok(Detected::new(Format::EdgeList, because))
        } else {
            Err(refused)
        }
    })
}

/// The format that the first line with content has.
fn by_content(head: &[u8]) -> Result<Detected, DetectError> {
    let is_cut = head.len() >= HEAD_MAX_BYTES;
    let head = without_mark(head);
    // The head may end within a character.
    let is_text = std::str::from_utf8(head).map_or_else(|bad| bad.error_len().is_none(), |_| true);
    if head.contains(&0) || !is_text {
        return Err(DetectError::Unknown);
    }
    for line in head.split(|byte| *byte == b'\n') {
        if !has_content(line) {
            continue;
        }
        let line = line.trim_ascii();
        return if line == b"{" {
            Err(DetectError::WholeJson)
        } else if line.starts_with(b"{") {
            let because = "its first line begins as a JSON object";
            Ok(Detected::new(Format::JsonLines, because))
        } else if line == b"[[package]]" || line == b"[root]" || is_version(line) {
            let because = "its first line is that of a Cargo.lock";
            Ok(Detected::new(Format::CargoLock, because))
        } else if line.starts_with(b"[") {
            Err(DetectError::WholeJson)
        } else {
            let fields = line
                .split(|byte| matches!(byte, b' ' | b'\t' | b','))
                .filter(|field| !field.is_empty())
                .count();
            let because = match fields {
                2 => "its first line has two columns",
                3 => "its first line has three columns",
                _ => return Err(DetectError::Unknown),
            };
            Ok(Detected::new(Format::EdgeList, because))
        };
    }
    if is_cut {
        // The line with content lies behind it.
        return Err(DetectError::Unknown);
    }
    let because = "it has no line with content";
    Ok(Detected::new(Format::EdgeList, because))
}

/// The text without a byte order mark before it.
fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text)
}

/// Whether a line is neither blank nor a comment.
fn has_content(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    !(line.is_empty() || line.starts_with(b"#") || line.starts_with(b"%"))
}

/// Whether the line is `version = N`, with which lock files since version 3 begin.
fn is_version(line: &[u8]) -> bool {
    line.strip_prefix(b"version")
        .and_then(|rest| rest.trim_ascii_start().strip_prefix(b"="))
        .is_some_and(|rest| !rest.is_empty() && rest.trim_ascii().iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(name: Option<&Path>, head: &[u8]) -> Result<Format, DetectError> {
        super::detect(name, head).map(|found| found.format)
    }

    fn named(name: &str, head: &[u8]) -> Result<Format, DetectError> {
        detect(Some(Path::new(name)), head)
    }

    #[test]
    fn a_clear_name_decides() {
        assert_eq!(named("some/Cargo.lock", b"x"), Ok(Format::CargoLock));
        assert_eq!(named("graph.JSONL", b""), Ok(Format::JsonLines));
        assert_eq!(named("graph.ndjson", b"1 2\n"), Ok(Format::JsonLines));
    }

    #[test]
    fn otherwise_the_first_line_with_content_does() {
        let lock = b"# This file is automatically @generated by Cargo.\nversion = 4\n\n[[package]]";
        assert_eq!(detect(None, lock), Ok(Format::CargoLock));
        assert_eq!(
            detect(None, b"[[package]]\nname = \"a\""),
            Ok(Format::CargoLock)
        );
        assert_eq!(detect(None, b"\n  {\"key\": \"a\"}"), Ok(Format::JsonLines));
        assert_eq!(
            named("graph.txt", b"{\"key\": \"a\"}"),
            Ok(Format::JsonLines)
        );
        let snap = b"# Directed graph\n# FromNodeId\tToNodeId\r\n0\t11342\r\n";
        assert_eq!(named("web-Google.txt", snap), Ok(Format::EdgeList));
        assert_eq!(detect(None, b"a,b,2.5\n"), Ok(Format::EdgeList));
        assert_eq!(detect(None, b"\xEF\xBB\xBFa b\n"), Ok(Format::EdgeList));
        assert_eq!(detect(None, b""), Ok(Format::EdgeList));
    }

    /// The head was what one read gave: a blank line that was written by itself made any pipe an edge list.
    #[test]
    fn the_head_does_not_depend_on_how_the_input_is_cut() {
        for (input, expected) in [
            ("", ""),
            ("\n\n", "\n\n"),
            ("{", "{"),
            ("a b\n\0", "a b\n"),
            (
                "# x\n% y\n\r\n {\"key\": \"a\"}\nmore",
                "# x\n% y\n\r\n {\"key\": \"a\"}\n",
            ),
            ("\u{FEFF}\na b\nmore", "\u{FEFF}\na b\n"),
            ("\u{FEFF}# x\na b\nmore", "\u{FEFF}# x\na b\n"),
        ] {
            for capacity in [1, 2, 3, 1 << 16] {
                let mut input = io::BufReader::with_capacity(capacity, input.as_bytes());
                let head = read_head(&mut input).expect("a slice does not fail");
                assert_eq!(head, expected.as_bytes(), "in pieces of {capacity}");
            }
        }
    }

    /// Behind 64 KiB of comments nothing was looked at, and the file was taken for an edge list.
    #[test]
    fn comments_do_not_hide_the_first_line_with_content() {
        let detected = |name, comments: usize| {
            let file = "# comment\n".repeat(comments) + "{\"key\": \"a\", \"value\": \"1\"}\n";
            let head = read_head(&mut file.as_bytes()).expect("a slice does not fail");
            assert!(head.len() <= HEAD_MAX_BYTES);
            named(name, &head)
        };
        assert_eq!(detected("graph", 10_000), Ok(Format::JsonLines));
        // More than is looked at: nothing is known of it, but what its name says.
        assert_eq!(detected("graph", 200_000), Err(DetectError::Unknown));
        assert_eq!(detected("graph.txt", 200_000), Ok(Format::EdgeList));
    }

    /// A JSON array was imported as an edge list: `blocks 2, edges 1`.
    #[test]
    fn a_whole_json_document_is_not_an_edge_list() {
        for head in [
            "[{\"a\": 1}, {\"a\": 2}]",
            "[\n  1, 2\n]",
            "{\n  \"a\": 1\n}",
        ] {
            let whole = Err(DetectError::WholeJson);
            assert_eq!(detect(None, head.as_bytes()), whole, "{head}");
            assert_eq!(named("graph.json", head.as_bytes()), whole, "{head}");
            assert_eq!(named("graph.txt", head.as_bytes()), whole, "{head}");
        }
        assert_eq!(detect(None, b"\xFF\xFE a\n"), Err(DetectError::Unknown));
        assert_eq!(
            detect(None, "gr\u{f6}".as_bytes().split_at(3).0),
            Err(DetectError::Unknown)
        );
        assert_eq!(
            detect(None, "a gr\u{f6}".as_bytes().split_at(5).0),
            Ok(Format::EdgeList)
        );
    }

    #[test]
    fn the_ending_helps_where_the_content_says_nothing() {
        assert_eq!(named("graph.csv", b"one\n"), Ok(Format::EdgeList));
        assert_eq!(named("graph.bin", b"one\n"), Err(DetectError::Unknown));
        assert_eq!(detect(None, b"a b c d e\n"), Err(DetectError::Unknown));
        assert_eq!(detect(None, b"\0\0 \0"), Err(DetectError::Unknown));
    }

    #[test]
    fn a_compressed_file_says_how_to_unpack_it() {
        let error = named("web-Google.txt.gz", b"\x1F\x8B\x08\0").unwrap_err();
        assert!(
            error
                .to_string()
                .contains("gzip -dc FILE | bowline import -"),
            "{error}"
        );
        assert!(matches!(
            named("Cargo.lock", b"\x28\xB5\x2F\xFD"),
            Err(DetectError::Compressed { .. })
        ));
    }
}
