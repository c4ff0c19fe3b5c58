//! Every command, through the real program: what it prints, what it writes, how it ends.

mod attacks;
mod commands;
mod crowd;
mod errors;
mod exit_codes;
mod graph_algorithms;
mod graph_remote;
mod hostile;
mod hostile_crowd;
mod kill;
mod kill_calls;
mod long_range;
mod members;
mod notify;
mod queries;
mod raw_http2;
mod read_only;
mod serve;
mod shell;
mod store_remote;
mod terminal;
mod tls;
mod transfer;
mod users;
mod verbs;
mod width;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory for one test, and the program in it.
pub(crate) struct Place {
    directory: tempfile::TempDir,
}

/// How a run ended.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program that is tried: the one built with the tests, or that of `BOWLINE_PROGRAM`.
pub(crate) fn program() -> String {
    std::env::var("BOWLINE_PROGRAM").unwrap_or_else(|_| env!("CARGO_BIN_EXE_bowline").to_owned())
}

impl Place {
    pub(crate) fn new() -> Place {
        Place {
            directory: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path("data")
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.command_of(&program());
        command.args(words).stdin(Stdio::null());
        command
    }

    /// Another program in the same place.
    pub(crate) fn command_of(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.directory.path())
            .env_remove("COLUMNS")
            .env_remove("BOWLINE_HISTORY")
            .env("XDG_STATE_HOME", self.path("state"))
            .env("BOWLINE_DATA_DIR", self.data());
        command
    }

    /// Runs words separated by spaces.
    pub(crate) fn run(&self, line: &str) -> Run {
        self.run_words(&line.split_whitespace().collect::<Vec<_>>())
    }

    pub(crate) fn run_words(&self, words: &[&str]) -> Run {
        Run::of(self.command(words).output().expect("the program starts"))
    }

    /// Runs with something on standard input.
    pub(crate) fn run_with_input(&self, line: &str, input: &[u8]) -> Run {
        let words: Vec<_> = line.split_whitespace().collect();
        let mut child = self
            .command(&words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        // A program that refuses its input may close it early.
        let _ = stdin.write_all(input);
        drop(stdin);
        Run::of(child.wait_with_output().expect("the program ends"))
    }

    /// Runs a line that must succeed; gives what it printed.
    pub(crate) fn ok(&self, line: &str) -> String {
        let run = self.run(line);
        assert_eq!(
            (run.code, run.stderr.as_str()),
            (0, ""),
            "bowline {line}: {}",
            run.stdout
        );
        run.stdout
    }

    /// Runs a line that must succeed with JSON output; gives its objects.
    pub(crate) fn json(&self, line: &str) -> Vec<serde_json::Value> {
        let text = self.ok(&format!("-o json {line}"));
        text.lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    /// Runs a line that must fail with this code; gives its message.
    pub(crate) fn fails(&self, line: &str, code: i32) -> String {
        let run = self.run(line);
        assert_eq!(
            run.code, code,
            "bowline {line}: {} {}",
            run.stdout, run.stderr
        );
        assert!(
            !run.stderr.is_empty(),
            "bowline {line} fails without a word"
        );
        run.stderr
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    }

    pub(crate) fn check_is_clean(&self) {
        let run = self.run("check");
        assert_eq!(run.code, 0, "{} {}", run.stdout, run.stderr);
    }
}

impl Run {
    fn of(output: Output) -> Run {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Run {
            code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

/// The files of a folder of the data directory.
pub(crate) fn files_in(path: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(path)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
}
