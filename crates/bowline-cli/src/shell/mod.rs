//! `bowline shell`: one session of many commands, which opens its target once.
//!
//! | file | what it is |
//! |---|---|
//! | `language` | the syntax of a line |
//! | `completion` | completions for Tab |
//! | `editor` | lines from a terminal, with history |
//! | `history` | the file of the history, which several sessions use at once |
//! | `cypher` | `bowline graph query` without a query: a session of statements in Cypher |
//! | `statements` | where a statement in Cypher ends |
//!
//! On a terminal an error ends the line and not the session. From a pipe the first line that fails ends the session with
//! its exit code, as nobody reads the error before the next line runs; with `--keep-going` all lines run,
//! and the exit code is that of the first that failed.

mod completion;
mod cypher;
mod editor;
mod history;
mod language;
mod statements;

use std::io::{BufRead, Read};

use bowline::text;

use crate::args::{Global, Shell as Args};
use crate::command_line::report;
use crate::context::{Context, usage};
use crate::dispatch;
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::remote::KEYS_TIMEOUT;
use crate::session::Session;
use crate::store::target::Target;
use crate::streams::Streams;

pub(crate) use cypher::run as query;

use editor::{Editor, Line};
use language::Statement;

/// The longest line of a pipe: a value of the largest size, and what stands around it.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Whether the session goes on.
#[derive(PartialEq, Eq)]
enum Flow {
    On,
    End,
}

/// Runs a session until its input ends.
pub(crate) fn run(global: Global, args: &Args, streams: &mut Streams<'_>) -> Result<(), Failure> {
    let session = Session::default();
    let shell = Shell { global, session };
    let is_new = !shell.open(streams)?;
    let done = match streams.terminal.is_person() {
        true => shell.converse(is_new, streams),
        false => shell.read_script(args.keep_going, streams),
    };
    done.and(shell.session.close())
}

struct Shell {
    global: Global,
    session: Session,
}

impl Shell {
    /// Opens the target, so that one that cannot be opened is known before the first command. A directory that does not
    /// exist is left to the first command that writes; gives whether there is one.
    fn open(&self, streams: &mut Streams<'_>) -> Result<bool, Failure> {
        let context = self.context(streams);
        if !context.is_remote() && !self.global.data_dir.exists() {
            return Ok(false);
        }
        Target::open(&context, KEYS_TIMEOUT)?.revision()?;
        Ok(true)
    }

    fn context<'a, 's>(&'a self, streams: &'a mut Streams<'s>) -> Context<'a, 's> {
        Context {
            global: self.global.clone(),
            streams,
            session: Some(&self.session),
        }
    }

    /// What the session works on.
    fn target(&self) -> String {
        let target = match &self.global.cluster.endpoints[..] {
            [] => self.global.data_dir.display().to_string(),
            endpoints => endpoints.join(","),
        };
        text::line(&target).into_owned()
    }

    /// Runs what a person types.
    fn converse(&self, is_new: bool, streams: &mut Streams<'_>) -> Result<(), Failure> {
        let mut remark =
            "help lists the commands, Tab completes, Ctrl-D ends the session".to_owned();
        if is_new {
            remark = format!(
                "{remark}\nno database is in {} yet: the first write creates it",
                self.target()
            );
        }
        self.context(streams).remark(&remark)?;
        streams.stdout.flush()?;
        let mut editor = Editor::of_commands(&self.global, &self.session, streams.stderr)?;
        interrupt::catch()?;
        let prompt = format!("{}> ", self.target());
        loop {
            let line = match editor.line(&prompt)? {
                Line::Text(line) => line,
                Line::Canceled => continue,
                Line::End => return Ok(()),
            };
            let running = interrupt::Running::begin();
            let done = self.execute(&line, streams);
            drop(running);
            match done {
                Ok(Flow::On) => {}
                Ok(Flow::End) => return Ok(()),
                // Nobody reads what is printed.
                Err(failure) if failure.exit == Exit::Done => return Err(failure),
                Err(failure) => report(&failure, streams.stderr),
            }
        }
    }

    /// Runs the lines of a pipe or a file.
    fn read_script(&self, keep_going: bool, streams: &mut Streams<'_>) -> Result<(), Failure> {
        let mut first = None;
        for number in 1_u64.. {
            let Some(line) = next_line(streams.stdin)? else {
                break;
            };
            match self.execute(&line, streams) {
                Ok(Flow::On) => {}
                Ok(Flow::End) => break,
                Err(failure) if failure.exit == Exit::Done => return Err(failure),
                Err(failure) => {
                    let message = failure.message.trim_start_matches("error: ");
                    let failure = Failure::new(failure.exit, format!("line {number}: {message}"));
                    if !keep_going {
                        return Err(failure);
                    }
                    report(&failure, streams.stderr);
                    first.get_or_insert(failure.exit);
                }
            }
        }
        match first {
            None => Ok(()),
            // Each was reported where it failed.
            Some(exit) => Err(Failure::new(exit, "")),
        }
    }

    fn execute(&self, line: &str, streams: &mut Streams<'_>) -> Result<Flow, Failure> {
        let done = match language::parse(line, &self.global)? {
            Statement::Nothing => Ok(()),
            Statement::End => return Ok(Flow::End),
            Statement::Show(text) => streams
                .stdout
                .write_all(text.as_bytes())
                .map_err(Failure::from),
            Statement::Run(cli) => dispatch::execute(*cli, streams, Some(&self.session)),
        };
        if let Err(failure) = &done {
            self.session.recover(failure);
        }
        // What was printed before an error stands before it.
        let flushed = streams.stdout.flush().map_err(Failure::from);
        done.and(flushed)?;
        Ok(Flow::On)
    }
}

/// A line of a pipe; `None` at its end.
fn next_line(input: &mut dyn BufRead) -> Result<Option<String>, Failure> {
    let mut line = Vec::new();
    input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.len() as u64 == LINE_BYTES_MAX && !line.ends_with(b"\n") {
        let text = "a line is longer than 64 MiB: put takes values from files, too";
        return Err(Failure::new(Exit::Invalid, text));
    }
    let line = String::from_utf8(line)
        .map_err(|_| usage("a line is not UTF-8; --hex takes any bytes".to_owned()))?;
    Ok(Some(line))
}
