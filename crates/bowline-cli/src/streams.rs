//! The three streams of a run.

use std::io::{BufRead, Write};

/// What a run of the program reads and writes.
pub struct Streams<'a> {
    /// Standard input.
    pub stdin: &'a mut dyn BufRead,
    /// Standard output: results.
    pub stdout: &'a mut dyn Write,
    /// Standard error: what went wrong.
    pub stderr: &'a mut dyn Write,
}
