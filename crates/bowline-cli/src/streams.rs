//! The three streams of a run.

use std::io::{self, BufRead, IsTerminal, Write};

/// What a run of the program reads and writes.
pub struct Streams<'a> {
    /// Standard input.
    pub stdin: &'a mut dyn BufRead,
    /// Standard output: results.
    pub stdout: &'a mut dyn Write,
    /// Standard error: what went wrong.
    pub stderr: &'a mut dyn Write,
    /// Which of them are a person's terminal.
    pub terminal: Terminal,
}

/// Which of the streams are a terminal. By default none is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terminal {
    /// Standard input.
    pub is_input: bool,
}

impl Terminal {
    /// The terminal of this process.
    pub(crate) fn of_process() -> Terminal {
        Terminal {
            is_input: io::stdin().is_terminal(),
        }
    }
}
