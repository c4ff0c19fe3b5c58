//! The `bowline` program: it parses a command line and calls the library or the client.
//!
//! ```text
//!   lib::run ──▶ shell            a session of many commands
//!       │           │
//!       └─────────▶ dispatch
//!                   │
//!       commands                      the commands, on a directory, on a cluster, or on both
//!       store                         what a command works on: a directory or a cluster
//!       context                       the options and streams of a run
//!       session                       what a session keeps open between commands
//!       remote                        a client of a cluster
//!       password                      passwords from the terminal, files and standard input
//!       import, export                formats, without the database
//!       output, progress              results on standard output, the rest on standard error
//!       table                         rows as aligned lines that fit
//!       command_line                  words to commands, failures to text
//!       args, exit, streams           words, the one table of exit codes
//!       interrupt                     Ctrl-C in a session
//!       fault_disk                    a disk that fails, in test builds only
//! ```
//!
//! Arrows only point down.
//!
//! Nothing in here is logic that a user of the library would want; that lives in `bowline`. Load on servers is made by
//! `bowline-load`.

pub mod args;
mod command_line;
mod commands;
mod context;
mod dispatch;
pub mod exit;
pub mod export;
#[cfg(any(debug_assertions, feature = "fault-disk"))]
mod fault_disk;
pub mod import;
mod interrupt;
pub mod output;
mod password;
mod private_file;
pub mod progress;
mod query_json;
mod query_value;
mod remote;
mod session;
mod shell;
mod store;
mod streams;
mod table;

use std::ffi::OsString;
use std::io;

use args::{ClusterOptions, Command};
use command_line::Parsed;
use exit::{Exit, Failure};

pub use streams::{Streams, Terminal};

/// Runs the program with its arguments, of which the first is its own name.
pub fn run<A>(arguments: A, streams: &mut Streams<'_>) -> Exit
where
    A: IntoIterator,
    A::Item: Into<OsString> + Clone,
{
    let done = match command_line::parse(arguments) {
        Ok(Parsed::Run(mut cli)) => {
            complete_login(&mut cli.global.cluster, streams).and_then(|()| match cli.command {
                Command::Shell(args) => shell::run(cli.global, &args, streams),
                Command::Graph(args::Graph::Query(args)) if args.text.is_none() => {
                    shell::query(cli.global, &args, streams)
                }
                _ => dispatch::execute(*cli, streams, None),
            })
        }
        Ok(Parsed::Show(text)) => streams
            .stdout
            .write_all(text.as_bytes())
            .map_err(Failure::from),
        Err(failure) => Err(failure),
    };
    let done = done.and_then(|()| streams.stdout.flush().map_err(Failure::from));
    let Err(failure) = done else {
        return Exit::Done;
    };
    command_line::report(&failure, streams.stderr);
    failure.exit
}

/// Asks for the password of the user to log in as, if it is given nowhere.
fn complete_login(cluster: &mut ClusterOptions, streams: &mut Streams<'_>) -> Result<(), Failure> {
    let Some((name, password)) = cluster.given_user() else {
        return Ok(());
    };
    let name = name.to_owned();
    if name.is_empty() {
        let text = "the name of the user is empty: give --user NAME, or leave BOWLINE_USER out";
        return Err(Failure::new(Exit::Usage, text));
    }
    let password = match password {
        Some(password) => password,
        None => password::ask(streams, &name)?,
    };
    (cluster.user, cluster.password) = (Some(name.into()), Some(password));
    Ok(())
}

/// Runs the program on the process's own streams.
pub fn run_process() -> Exit {
    let mut stdin = io::stdin().lock();
    // Not locked: the audit log of `serve` may be written there, by a thread of its own.
    let mut stdout = io::BufWriter::new(io::stdout());
    let mut stderr = io::stderr();
    let mut streams = Streams {
        stdin: &mut stdin,
        stdout: &mut stdout,
        stderr: &mut stderr,
        terminal: Terminal::of_process(),
    };
    run(std::env::args_os(), &mut streams)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bowline::text;

    use super::*;

    /// Runs a command line and gives how it ended and what it wrote.
    fn bowline(line: &str) -> (Exit, String, String) {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut streams = Streams {
            stdin: &mut io::empty(),
            stdout: &mut stdout,
            stderr: &mut stderr,
            terminal: Terminal::default(),
        };
        let exit = run(format!("bowline {line}").split_whitespace(), &mut streams);
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (exit, text(stdout), text(stderr))
    }

    #[test]
    fn help_and_version_are_results() {
        for line in [
            "--help",
            "-h",
            "help graph reach",
            "put --help",
            "--version",
        ] {
            let (exit, stdout, stderr) = bowline(line);
            assert_eq!((exit, stderr.as_str()), (Exit::Done, ""), "{line}");
            assert!(stdout.contains("bowline"), "{line}: {stdout}");
        }
    }

    #[test]
    fn a_wrong_command_line_goes_to_standard_error() {
        let (exit, stdout, stderr) = bowline("put");
        assert_eq!((exit, stdout.as_str()), (Exit::Usage, ""));
        assert!(
            stderr.starts_with("error: ") && stderr.contains("<KEY>"),
            "{stderr}"
        );
    }

    /// It said "invalid digit found in string".
    #[test]
    fn what_is_no_number_is_called_that() {
        for (line, means) in [
            ("get k --rev x", "not a number"),
            ("range --limit -1", "error: "),
            (
                "get k --rev 99999999999999999999",
                "the number is too large",
            ),
            ("cluster up --nodes three", "not a number"),
            ("import f --batch x", "not a number"),
        ] {
            let (exit, _, stderr) = bowline(line);
            assert_eq!(exit, Exit::Usage, "{line}");
            assert!(stderr.contains(means), "{line}: {stderr}");
            assert!(!stderr.contains("digit"), "{line}: {stderr}");
        }
    }

    #[test]
    fn completions_know_every_command_in_every_shell() {
        for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
            let (exit, stdout, _) = bowline(&format!("completions {shell}"));
            assert_eq!(exit, Exit::Done);
            for command in ["checkpoint", "keep-alive", "neighbors", "tour"] {
                assert!(stdout.contains(command), "{shell} does not know {command}");
            }
        }
    }

    /// An error quotes what it is about, and that may come from a server or a file.
    #[test]
    fn an_error_is_one_line_that_commands_no_terminal() {
        let (exit, _, stderr) = bowline("get --data-dir /no/\u{1b}[2J/\u{202e} k");
        assert_ne!(exit, Exit::Done);
        assert!(stderr.starts_with("error: "), "{stderr}");
        assert!(stderr.contains("\\x1b[2J/\\u{202e}"), "{stderr}");
        assert!(stderr.trim_end().chars().all(text::is_plain), "{stderr:?}");
        let (exit, _, stderr) = bowline("get --\u{9b}x k");
        assert_eq!(exit, Exit::Usage);
        assert!(stderr.lines().count() > 1, "{stderr}");
        assert!(!stderr.contains('\u{9b}'), "{stderr:?}");
    }

    /// A reader of our output that has gone.
    struct Gone;

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_has_gone_is_no_failure() {
        let mut stderr = Vec::new();
        let mut streams = Streams {
            stdin: &mut io::empty(),
            stdout: &mut Gone,
            stderr: &mut stderr,
            terminal: Terminal::default(),
        };
        assert_eq!(run(["bowline", "--help"], &mut streams), Exit::Done);
        assert!(stderr.is_empty());
    }
}
