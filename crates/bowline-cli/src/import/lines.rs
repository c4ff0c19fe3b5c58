//! Lines of bounded length from any reader.
//!
//! A line ends at `\n` or `\r\n` or the end of the file. One that is longer than the limit is
//! not kept: the reader skips to its end without buffering it, so memory stays at the limit
//! however long the line is. A byte order mark at the start of the file is not part of the text.

use std::io::{self, BufRead, Read};

use super::item::{Position, Refusal};

/// A line, or the refusal of one that is too long.
pub(super) type Line<'a> = Result<&'a [u8], Refusal>;

/// Reads lines up to a limit.
pub(super) struct LineReader<R> {
    input: R,
    buffer: Vec<u8>,
    line_max_bytes: usize,
    /// The number of the line read last; 0 before the first.
    line: u64,
    /// Whether a read failed; nothing is read after that.
    failed: bool,
}

impl<R: BufRead> LineReader<R> {
    pub(super) fn new(input: R, line_max_bytes: usize) -> LineReader<R> {
        LineReader {
            input,
            buffer: Vec::new(),
            line_max_bytes,
            line: 0,
            failed: false,
        }
    }

    /// The number of the line that [`next_line`](Self::next_line) gave last, from 1.
    pub(super) fn line_number(&self) -> u64 {
        self.line
    }

    /// The next line without its end; `None` at the end of the file or after an error.
    pub(super) fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        if self.failed {
            return Ok(None);
        }
        match self.fill() {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => {
                self.failed = true;
                return Err(error);
            }
        }
        self.line += 1;
        let mut text = self.buffer.as_slice();
        text = text.strip_suffix(b"\n").unwrap_or(text);
        text = text.strip_suffix(b"\r").unwrap_or(text);
        if self.line == 1 {
            text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
        }
        if text.len() > self.line_max_bytes {
            return Ok(Some(Err(Refusal {
                at: Position {
                    line: self.line,
                    column: column_of(text, self.line_max_bytes),
                },
                message: format!("the line is longer than {} bytes", self.line_max_bytes),
            })));
        }
        Ok(Some(Ok(text)))
    }

    /// Reads up to the end of a line, or so much that it is too long and skips the rest of it.
    /// Says whether there was anything.
    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.clear();
        // Room for the longest line, its two-byte end, a mark of three bytes, and one byte that
        // proves it too long.
        let take = (self.line_max_bytes as u64).saturating_add(6);
        let read = self
            .input
            .by_ref()
            .take(take)
            .read_until(b'\n', &mut self.buffer)?;
        if read as u64 == take && !self.buffer.ends_with(b"\n") {
            self.input.skip_until(b'\n')?;
        }
        Ok(read > 0)
    }
}

/// The column, from 1 and in characters, of the character at byte `offset` of `line`. Counts the
/// bytes that start a character, so it is defined for text that is not UTF-8 too.
pub(super) fn column_of(line: &[u8], offset: usize) -> u64 {
    let before = &line[..offset.min(line.len())];
    before
        .iter()
        .filter(|byte| starts_character(**byte))
        .count() as u64
        + 1
}

/// Whether a character of UTF-8 starts with this byte.
pub(super) fn starts_character(byte: u8) -> bool {
    byte & 0xC0 != 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(file: &[u8], line_max_bytes: usize) -> Vec<Result<Vec<u8>, String>> {
        let mut reader = LineReader::new(io::BufReader::with_capacity(3, file), line_max_bytes);
        let mut lines = Vec::new();
        while let Some(line) = reader.next_line().expect("a slice does not fail") {
            lines.push(
                line.map(<[u8]>::to_vec)
                    .map_err(|refusal| refusal.to_string()),
            );
        }
        lines
    }

    #[test]
    fn line_ends_and_the_byte_order_mark_are_not_text() {
        assert_eq!(
            all(b"\xEF\xBB\xBFa\r\n\nb\rc\n\xEF\xBB\xBFlast", 100),
            [
                Ok(b"a".to_vec()),
                Ok(b"".to_vec()),
                Ok(b"b\rc".to_vec()),
                Ok(b"\xEF\xBB\xBFlast".to_vec())
            ]
        );
        assert!(all(b"", 100).is_empty());
    }

    #[test]
    fn a_long_line_is_skipped_and_the_next_one_read() {
        let file = [b"ok\n".as_slice(), &vec![b'x'; 100_000], b"\r\nafter\n"].concat();
        assert_eq!(
            all(&file, 10),
            [
                Ok(b"ok".to_vec()),
                Err("line 2, column 11: the line is longer than 10 bytes".to_owned()),
                Ok(b"after".to_vec())
            ]
        );
    }

    #[test]
    fn the_limit_is_exact() {
        for end in [b"".as_slice(), b"\n", b"\r\n"] {
            for mark in [b"".as_slice(), b"\xEF\xBB\xBF"] {
                let longest = [mark, b"0123456789", end].concat();
                assert_eq!(all(&longest, 10), [Ok(b"0123456789".to_vec())]);
                let longer = [mark, b"0123456789a", end].concat();
                assert!(all(&longer, 10)[0].is_err());
                assert_eq!(all(&longer, 10).len(), 1);
            }
        }
    }

    /// Gives `left` bytes of one endless line without holding them.
    struct Endless {
        left: u64,
    }

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = (buffer.len() as u64).min(self.left) as usize;
            buffer[..count].fill(b'7');
            self.left -= count as u64;
            Ok(count)
        }
    }

    #[test]
    fn memory_stays_at_the_limit_however_long_the_line() {
        let input = io::BufReader::new(Endless { left: 64 << 20 });
        let mut reader = LineReader::new(input, 1 << 16);
        assert!(reader.next_line().unwrap().unwrap().is_err());
        assert!(reader.next_line().unwrap().is_none());
        assert!(
            reader.buffer.capacity() <= 4 << 16,
            "{} bytes",
            reader.buffer.capacity()
        );
    }

    #[test]
    fn columns_count_characters() {
        assert_eq!(column_of("aé→b".as_bytes(), 0), 1);
        assert_eq!(column_of("aé→b".as_bytes(), 1), 2);
        assert_eq!(column_of("aé→b".as_bytes(), 3), 3);
        assert_eq!(column_of("aé→b".as_bytes(), 6), 4);
        assert_eq!(column_of(b"\xFF\xFF", 99), 3);
    }
}
