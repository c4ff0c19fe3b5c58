//! The syntax of a line in a session: [`parse`] turns it into a [`Statement`].
//!
//! The words of a line are those of the program's commands, quoted as in a Unix shell, and parsed by the definitions of the
//! program's own command line. Only [`parse`] makes statements. A second language, such as a query language for the graph,
//! would be another module, which [`parse`] calls for its lines, and another kind of statement, which `Shell::execute`
//! runs.

use clap::{Command as Tree, CommandFactory};

use crate::args::{Cli, Command, Global};
use crate::command_line::{self, Parsed};
use crate::context::usage;
use crate::exit::Failure;

/// What a line asks for.
pub(super) enum Statement {
    /// An empty line, or a comment.
    Nothing,
    /// The end of the session.
    End,
    /// A text to be shown.
    Show(String),
    /// A command of the program.
    Run(Box<Cli>),
}

/// Words that end a session.
pub(super) const ENDS: [&str; 2] = ["exit", "quit"];

/// Reads a line.
pub(super) fn parse(line: &str, global: &Global) -> Result<Statement, Failure> {
    let Some(mut words) = shlex::split(line) else {
        return Err(usage(
            "a quote is not closed, or a backslash ends the line".to_owned(),
        ));
    };
    // Out of habit, users type it here, too.
    if words.first().is_none_or(|first| first != "bowline") {
        words.insert(0, "bowline".to_owned());
    }
    match &words[1..] {
        [] => Ok(Statement::Nothing),
        [word] if ENDS.contains(&word.as_str()) => Ok(Statement::End),
        [word] if word == "help" => Ok(Statement::Show(help())),
        _ => Ok(match command_line::parse_in_session(&words, global)? {
            Parsed::Run(cli) => Statement::Run(cli),
            Parsed::Show(text) => Statement::Show(text),
        }),
    }
}

/// The commands that a session has.
pub(super) fn commands(tree: &Tree) -> impl Iterator<Item = &Tree> {
    let commands = tree.get_subcommands();
    commands.filter(|command| {
        let name = command.get_name();
        name != "help" && !Command::NOT_FOR_SESSIONS.contains(&name)
    })
}

/// The help of a session.
fn help() -> String {
    let tree = Cli::command();
    let width = commands(&tree)
        .map(|command| command.get_name().len())
        .max();
    let width = width.unwrap_or_default();
    let mut help = String::from("Commands:\n");
    for command in commands(&tree) {
        let (name, about) = (command.get_name(), command.get_about());
        let about = about.map(ToString::to_string).unwrap_or_default();
        help.push_str(&format!("  {name:width$}  {about}\n"));
    }
    help.push_str(
        "\nhelp COMMAND explains a command. Words are quoted as in a Unix shell; # begins a comment.\n\
         Tab completes commands, options and keys. Ctrl-C cancels the line, or ends the command that runs.\n\
         exit or Ctrl-D ends the session.\n",
    );
    help
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn global() -> Global {
        Cli::try_parse_from(["bowline", "-o", "json", "version"])
            .unwrap()
            .global
    }

    #[test]
    fn a_line_is_quoted_as_in_a_unix_shell() {
        for line in [
            "put 'a key' \"a value\"",
            "bowline put a\\ key 'a value' # why",
        ] {
            let Ok(Statement::Run(cli)) = parse(line, &global()) else {
                panic!("{line}")
            };
            let Command::Put(put) = cli.command else {
                panic!("{line}")
            };
            assert_eq!(
                (&*put.key, put.value.as_deref()),
                ("a key", Some("a value"))
            );
            assert_eq!(cli.global.output, crate::args::Output::Json);
        }
        for line in ["", "   ", "# nothing", "bowline"] {
            assert!(
                matches!(parse(line, &global()), Ok(Statement::Nothing)),
                "{line}"
            );
        }
        assert!(parse("put 'a", &global()).is_err());
        assert!(matches!(parse("exit", &global()), Ok(Statement::End)));
    }

    #[test]
    fn every_command_that_is_left_out_exists() {
        let tree = Cli::command();
        for name in Command::NOT_FOR_SESSIONS {
            assert!(tree.find_subcommand(name).is_some(), "{name}");
        }
        let shown = help();
        assert!(
            shown.contains("  range ") && !shown.contains("  serve "),
            "{shown}"
        );
    }
}
