//! Lines from a terminal: editing, history and completion.
//!
//! The history is a file in the user's state directory that only its owner can read. `BOWLINE_HISTORY` names another;
//! empty, it means none. A line that begins with a space is not kept.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bowline::Range;
use clap::{Command as Tree, CommandFactory};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Helper};

use super::completion::complete;
use super::history;
use crate::args::{Cli, Global};
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::session::Session;
use crate::store::target::Target;
use crate::store::view::Scan;
use crate::streams::{Streams, Terminal};

/// How many lines the history keeps.
const HISTORY_LINES_MAX: usize = 1_000;
/// How many keys are offered.
const KEYS_MAX: u64 = 50;
/// How long a cluster may take to say which keys there are: a person waits for it.
const KEYS_TIMEOUT: Duration = Duration::from_millis(500);

/// What a person has typed.
pub(super) enum Line {
    /// A line.
    Text(String),
    /// Ctrl-C.
    Canceled,
    /// Ctrl-D.
    End,
}

/// Reads lines, with the help of a language.
pub(super) struct Editor<H: Helper> {
    editor: rustyline::Editor<H, DefaultHistory>,
    history: Option<PathBuf>,
}

impl<'a> Editor<Words<'a>> {
    /// For the commands of the program.
    pub(super) fn of_commands(
        global: &'a Global,
        session: &'a Session,
        stderr: &mut dyn Write,
    ) -> Result<Editor<Words<'a>>, Failure> {
        let mut tree = Cli::command();
        tree.build();
        let words = Words {
            global,
            session,
            tree,
        };
        Editor::new(words, "history", stderr)
    }
}

impl<H: Helper> Editor<H> {
    /// With a history in a file of this name, in the user's state directory. Says on standard error when there can be none.
    pub(super) fn new(
        helper: H,
        history: &str,
        stderr: &mut dyn Write,
    ) -> Result<Editor<H>, Failure> {
        let config = Config::builder()
            .max_history_size(HISTORY_LINES_MAX)
            .map_err(|error| failure(&error))?
            .history_ignore_space(true)
            .completion_type(CompletionType::List)
            .build();
        let mut editor = rustyline::Editor::with_config(config).map_err(|error| failure(&error))?;
        editor.set_helper(Some(helper));
        let history = history_path(history).filter(|path| {
            let ready = prepare(path).and_then(|()| {
                history::trim(path, HISTORY_LINES_MAX)?;
                let loaded = editor.load_history(path);
                loaded.map_err(|error| io::Error::other(error.to_string()))
            });
            if let Err(error) = &ready {
                let path = path.display().to_string();
                let path = bowline::text::line(&path);
                // It is no more than a convenience that is missing.
                let _ = writeln!(stderr, "no history is kept: {path}: {error}");
            }
            ready.is_ok()
        });
        Ok(Editor { editor, history })
    }

    /// Reads a line.
    pub(super) fn line(&mut self, prompt: &str) -> Result<Line, Failure> {
        match self.editor.readline(prompt) {
            Ok(line) => {
                let is_kept = self
                    .editor
                    .add_history_entry(&line)
                    .map_err(|error| failure(&error))?;
                if let (true, Some(path)) = (is_kept, &self.history) {
                    // At once: the next line may be the last. A full disk is no reason to end the session.
                    let _ = history::append(path, &line);
                }
                Ok(Line::Text(line))
            }
            Err(ReadlineError::Interrupted) => Ok(Line::Canceled),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(error) => Err(failure(&error)),
        }
    }
}

fn failure(error: &ReadlineError) -> Failure {
    Failure::new(Exit::Io, format!("cannot read the terminal: {error}"))
}

/// Where the history of this name is, if there is to be one.
fn history_path(name: &str) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("BOWLINE_HISTORY") {
        return Some(PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty());
    }
    let absolute = |path: &PathBuf| path.is_absolute();
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/state"));
    let state = state.filter(absolute).or_else(home).filter(absolute)?;
    Some(state.join("bowline").join(name))
}

/// Makes the file where there is none, and sees to it that only its owner can read it: values stand in it.
fn prepare(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("not a regular file"));
    }
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// What can be completed.
pub(super) struct Words<'a> {
    global: &'a Global,
    session: &'a Session,
    tree: Tree,
}

impl Words<'_> {
    /// The keys that begin so, as words of a line. What cannot be reached now is not offered.
    fn keys(&self, prefix: &str) -> Result<Vec<String>, Failure> {
        let mut streams = Streams {
            stdin: &mut io::empty(),
            stdout: &mut io::sink(),
            stderr: &mut io::sink(),
            terminal: Terminal::default(),
        };
        let context = Context {
            global: self.global.clone(),
            streams: &mut streams,
            session: Some(self.session),
        };
        let target = Target::open(&context, KEYS_TIMEOUT)?;
        let scan = Scan {
            limit: Some(KEYS_MAX),
            keys_only: true,
            ..Scan::default()
        };
        let mut keys = Vec::new();
        let range = Range::prefix(prefix.as_bytes());
        target
            .at(None)?
            .for_each_entry(&range, scan, &mut |entry| {
                let key = str::from_utf8(&entry.key).ok();
                let key = key.filter(|key| key.chars().all(bowline::text::is_plain));
                keys.extend(key.and_then(|key| Some(shlex::try_quote(key).ok()?.into_owned())));
                Ok(())
            })?;
        Ok(keys)
    }
}

impl Completer for Words<'_> {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let keys = |prefix: &str| self.keys(prefix).unwrap_or_default();
        let (start, mut words) = complete(&self.tree, &line[..position], &keys);
        if let [only] = &mut words[..] {
            // The word is whole: the next one follows.
            only.push(' ');
        }
        Ok((start, words))
    }
}

impl Hinter for Words<'_> {
    type Hint = String;
}
impl Highlighter for Words<'_> {}
impl Validator for Words<'_> {}
impl Helper for Words<'_> {}
