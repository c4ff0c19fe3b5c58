//! From words to a command, and from a failure to the text on standard error.

use std::ffi::OsString;
use std::io::Write;

use bowline::text;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::args::{Cli, Global};
use crate::exit::{Exit, Failure};

/// What words ask for.
pub(crate) enum Parsed {
    /// A command.
    Run(Box<Cli>),
    /// Help or the version. They are errors to the parser, and results to the user.
    Show(String),
}

/// Reads the command line. A directory on it counts, and not a cluster of the environment; both on it are an error.
pub(crate) fn parse<A>(arguments: A) -> Result<Parsed, Failure>
where
    A: IntoIterator,
    A::Item: Into<OsString> + Clone,
{
    parsed(parse_process(arguments))
}

fn parse_process<A>(arguments: A) -> Result<Cli, clap::Error>
where
    A: IntoIterator,
    A::Item: Into<OsString> + Clone,
{
    let mut command = Cli::command();
    let matches = command.try_get_matches_from_mut(arguments)?;
    let mut cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    if is_typed(&matches, "data_dir") && is_typed(&matches, "endpoints") {
        let text = "--data-dir names a directory and --endpoints a cluster: give one of them";
        return Err(command.error(ErrorKind::ArgumentConflict, text));
    }
    if is_typed(&matches, "data_dir") && !cli.command.is_about_servers() {
        cli.global.cluster.endpoints.clear();
    }
    let cluster = &mut cli.global.cluster;
    if !cli.command.logs_in(!cluster.endpoints.is_empty()) {
        if is_typed(&matches, "login_user") || is_typed(&matches, "login_password") {
            let text = match cli.command.logs_in(true) {
                true => "--user and --password name a user of a cluster: give --endpoints, too",
                false => "this command calls no cluster as a user: leave --user and --password out",
            };
            return Err(command.error(ErrorKind::ArgumentConflict, text));
        }
        // Those of the environment are for other commands.
        (cluster.user, cluster.password) = (None, None);
    } else if is_typed(&matches, "login_password") && cluster.user.is_none() {
        let text = "--password is that of a user: give --user, too";
        return Err(command.error(ErrorKind::MissingRequiredArgument, text));
    }
    Ok(cli)
}

/// Reads a line of a session, which has its target and its options already. What the line says of how results are
/// printed and read holds for the line.
pub(crate) fn parse_in_session(words: &[String], session: &Global) -> Result<Parsed, Failure> {
    let read = || {
        let mut command = Cli::command();
        let matches = command.try_get_matches_from_mut(words)?;
        let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        if is_typed(&matches, "data_dir") || is_typed(&matches, "endpoints") {
            let text = "the session has its target: leave --data-dir and --endpoints out";
            return Err(command.error(ErrorKind::ArgumentConflict, text));
        }
        if is_typed(&matches, "login_user") || is_typed(&matches, "login_password") {
            let text = "the session has its user: leave --user and --password out";
            return Err(command.error(ErrorKind::ArgumentConflict, text));
        }
        if !cli.command.is_for_sessions() {
            let name = matches.subcommand_name().unwrap_or_default();
            let text = format!("`{name}` is not a command of a session: run it on its own");
            return Err(command.error(ErrorKind::InvalidSubcommand, text));
        }
        let mut global = session.clone();
        if is_typed(&matches, "output") {
            global.output = cli.global.output;
        }
        if is_typed(&matches, "read") {
            global.cluster.read = cli.global.cluster.read;
        }
        global.width = cli.global.width.or(global.width);
        global.quiet |= cli.global.quiet;
        Ok(Cli {
            global,
            command: cli.command,
        })
    };
    parsed(read())
}

fn is_typed(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(ValueSource::CommandLine)
}

fn parsed(read: Result<Cli, clap::Error>) -> Result<Parsed, Failure> {
    match read {
        Ok(cli) => Ok(Parsed::Run(Box::new(cli))),
        Err(error) if !error.use_stderr() => Ok(Parsed::Show(error.render().to_string())),
        Err(error) => Err(Failure::new(
            Exit::Usage,
            in_plain_words(error.render().to_string().trim_end()),
        )),
    }
}

/// A text of the parser. It quotes what the standard library says of numbers, which is about digits and types.
fn in_plain_words(text: &str) -> String {
    let mut text = text.to_owned();
    for (says, means) in [
        ("invalid digit found in string", "not a number"),
        ("cannot parse integer from empty string", "not a number"),
        (
            "number too large to fit in target type",
            "the number is too large",
        ),
    ] {
        // At the end of a line, where the parser puts it: what the user typed is before that.
        text = text.replace(&format!("': {says}"), &format!("': {means}"));
    }
    text
}

/// Says on standard error what went wrong.
pub(crate) fn report(failure: &Failure, stderr: &mut dyn Write) {
    if failure.message.is_empty() {
        return;
    }
    // Usage has lines, and is about words that the user has typed. Everything else is one line: it may quote a
    // server, which is not to write on this terminal.
    let shown: String = match failure.exit {
        Exit::Usage => {
            let lines: Vec<_> = failure.message.split('\n').map(text::line).collect();
            let shown = lines.join("\n");
            // The parser's texts begin with it.
            match shown.starts_with("error: ") {
                true => shown,
                false => format!("error: {shown}"),
            }
        }
        _ => format!("error: {}", text::line(&failure.message)),
    };
    // If even standard error is gone, the exit code is all there is left to say.
    let _ = writeln!(stderr, "{shown}").and_then(|()| stderr.flush());
}
