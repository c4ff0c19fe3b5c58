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

/// Which of the streams are a terminal, and how wide it is. By default none is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terminal {
    /// Standard input.
    pub is_input: bool,
    /// Standard output.
    pub is_output: bool,
    /// How many columns what is printed is to fit, if it is: as many as `COLUMNS` in the environment says, or as the
    /// terminal has that standard output is.
    pub columns: Option<usize>,
}

impl Terminal {
    /// Whether a person types and reads, on a terminal that can be edited on.
    pub(crate) fn is_person(&self) -> bool {
        /// Terminals that cannot move their cursor.
        const SIMPLE: [&str; 3] = ["dumb", "cons25", "emacs"];
        let kind = std::env::var("TERM").unwrap_or_default();
        self.is_input && self.is_output && !SIMPLE.contains(&kind.as_str())
    }

    /// The terminal of this process.
    pub(crate) fn of_process() -> Terminal {
        Terminal {
            is_input: io::stdin().is_terminal(),
            is_output: io::stdout().is_terminal(),
            columns: columns(),
        }
    }
}

fn columns() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok();
    let said = said.and_then(|columns| columns.parse().ok());
    let measured = || {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        Some(usize::from(size.ws_col))
    };
    said.or_else(measured).filter(|columns| *columns > 0)
}
