//! `bowline graph query` without a query: statements in Cypher from a terminal, or from standard input.
//!
//! A statement ends with `;` and may take several lines. A line that begins with `:` is a command of the session. On a
//! terminal an error ends the statement and not the session. From standard input the first statement that fails ends it.

use bowline::cypher::Query;
use bowline::{Attributes, text};
use bowline_query::MemoryGraph;
use rustyline::Helper;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};

use super::editor::{Editor, Line};
use super::statements::{is_blank, split};
use crate::args::{Global, Queried, Statement};
use crate::command_line::report;
use crate::commands::query;
use crate::context::{Context, usage};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::session::Session;
use crate::streams::Streams;

/// The longest text of standard input.
const INPUT_BYTES_MAX: u64 = 64 << 20;

const HELP: &str = "\
A statement in Cypher ends with ; and may take several lines.
  :param NAME=JSON   sets a parameter: :param age=41, :param name=\"ann\"
  :params            shows the parameters
  :help              shows this
  :exit              ends the session, as Ctrl-D does
Tab completes keywords, functions, procedures and kinds. Ctrl-C cancels the statement, or ends the query that runs.
";

const COMMANDS: [&str; 4] = [":param", ":params", ":help", ":exit"];

const KEYWORDS: [&str; 44] = [
    "ALL",
    "AND",
    "AS",
    "ASC",
    "ASCENDING",
    "BY",
    "CALL",
    "CASE",
    "CONTAINS",
    "CREATE",
    "DELETE",
    "DESC",
    "DESCENDING",
    "DETACH",
    "DISTINCT",
    "ELSE",
    "END",
    "ENDS",
    "EXISTS",
    "FALSE",
    "IN",
    "IS",
    "LIMIT",
    "MATCH",
    "MERGE",
    "NOT",
    "NULL",
    "ON",
    "OPTIONAL",
    "OR",
    "ORDER",
    "REMOVE",
    "RETURN",
    "SET",
    "SKIP",
    "STARTS",
    "THEN",
    "TRUE",
    "UNION",
    "UNWIND",
    "WHEN",
    "WHERE",
    "WITH",
    "YIELD",
];

/// Runs a session until its input ends.
pub(crate) fn run(
    global: Global,
    args: &Queried,
    streams: &mut Streams<'_>,
) -> Result<(), Failure> {
    let mut shell = Shell {
        global,
        session: Session::default(),
        args,
        parameters: args.parameters(),
    };
    let done = match streams.terminal.is_person() {
        true => shell.converse(streams),
        false => shell.read_all(streams),
    };
    done.and(shell.session.close())
}

struct Shell<'a> {
    global: Global,
    session: Session,
    args: &'a Queried,
    parameters: Attributes,
}

impl Shell<'_> {
    fn context<'c, 's>(&'c self, streams: &'c mut Streams<'s>) -> Context<'c, 's> {
        Context {
            global: self.global.clone(),
            streams,
            session: Some(&self.session),
        }
    }

    /// Runs the statements of standard input.
    fn read_all(&mut self, streams: &mut Streams<'_>) -> Result<(), Failure> {
        let mut input = String::new();
        let mut limited = std::io::Read::take(&mut *streams.stdin, INPUT_BYTES_MAX);
        std::io::Read::read_to_string(&mut limited, &mut input)?;
        if input.len() as u64 == INPUT_BYTES_MAX {
            let text = "standard input has more than 64 MiB: bowline import reads data";
            return Err(Failure::new(Exit::Invalid, text));
        }
        let (mut statements, rest) = split(&input);
        statements.push(rest);
        for statement in statements {
            self.execute(statement, streams)?;
        }
        Ok(())
    }

    /// Runs what a person types.
    fn converse(&mut self, streams: &mut Streams<'_>) -> Result<(), Failure> {
        self.context(streams)
            .remark("a statement ends with ; and :help shows more; Ctrl-D ends the session")?;
        streams.stdout.flush()?;
        let words = Words {
            kinds: self.kinds(streams),
        };
        let mut editor = Editor::new(words, "query-history", streams.stderr)?;
        interrupt::catch()?;
        loop {
            let line = match editor.line("cypher> ")? {
                Line::Text(line) => line,
                Line::Canceled => continue,
                Line::End => return Ok(()),
            };
            if matches!(line.trim(), ":exit" | ":quit" | "exit" | "quit") {
                return Ok(());
            }
            let running = interrupt::Running::begin();
            let done = match line.trim().starts_with(':') {
                true => self.command(line.trim(), streams),
                false => {
                    let (mut statements, rest) = split(&line);
                    statements.push(rest);
                    let mut all = statements.iter();
                    all.try_for_each(|statement| self.execute(statement, streams))
                }
            };
            drop(running);
            let flushed = streams.stdout.flush().map_err(Failure::from);
            match done.and(flushed) {
                Ok(()) => {}
                // Nobody reads what is printed.
                Err(failure) if failure.exit == Exit::Done => return Err(failure),
                Err(failure) => report(&failure, streams.stderr),
            }
        }
    }

    /// The kinds of the graph, as far as they can be told now.
    fn kinds(&self, streams: &mut Streams<'_>) -> Vec<String> {
        let mut out = Vec::new();
        let mut quiet = Streams {
            stdin: &mut std::io::empty(),
            stdout: &mut out,
            stderr: &mut std::io::sink(),
            terminal: streams.terminal,
        };
        let mut context = self.context(&mut quiet);
        context.global.output = crate::args::Output::Json;
        let statement = self.statement("CALL bowline.kinds()", Attributes::new());
        if query::execute(&mut context, &statement).is_err() {
            return Vec::new();
        }
        let lines = String::from_utf8(out).unwrap_or_default();
        let kind = |line: &str| {
            let row: serde_json::Value = serde_json::from_str(line).ok()?;
            Some(row.get("kind")?.as_str()?.to_owned())
        };
        lines.lines().filter_map(kind).collect()
    }

    fn statement(&self, text: &str, parameters: Attributes) -> Statement {
        Statement {
            parameters,
            ..self.args.statement(text.to_owned())
        }
    }

    fn execute(&self, text: &str, streams: &mut Streams<'_>) -> Result<(), Failure> {
        if is_blank(text) {
            return Ok(());
        }
        // A statement uses some of the session's parameters, and one that is not used is an error.
        let mut parameters = self.parameters.clone();
        let query = Query::new(text).procedures(&bowline::cypher::Algorithms);
        if let Ok(prepared) = query.plan(&MemoryGraph::new()) {
            parameters.retain(|name, _| prepared.parameters().iter().any(|used| **used == **name));
        }
        let statement = self.statement(text, parameters);
        let done = query::execute(&mut self.context(streams), &statement);
        if let Err(failure) = &done {
            self.session.recover(failure);
        }
        let flushed = streams.stdout.flush().map_err(Failure::from);
        done.and(flushed)
    }

    fn command(&mut self, line: &str, streams: &mut Streams<'_>) -> Result<(), Failure> {
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match name {
            ":help" => streams.stdout.write_all(HELP.as_bytes())?,
            ":params" => {
                for (name, value) in &self.parameters {
                    let shown = bowline::cypher::Value::from(value.clone()).to_string();
                    let shown = text::line(&shown).into_owned();
                    writeln!(streams.stdout, "{}: {shown}", text::line(name))?;
                }
            }
            ":param" => {
                let parsed = crate::args::parse_json_attribute(rest.trim());
                let (name, value) = parsed.map_err(usage)?;
                self.parameters.insert(name, value);
            }
            _ => {
                let known = COMMANDS.join(", ");
                return Err(usage(format!("{name} is no command; there are {known}")));
            }
        }
        Ok(())
    }
}

/// What can be completed, and where a statement ends.
struct Words {
    kinds: Vec<String>,
}

impl Words {
    /// Where the word begins that ends the line, and the words that it can become.
    fn complete(&self, line: &str) -> (usize, Vec<String>) {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ':');
        let start = line
            .char_indices()
            .rev()
            .take_while(|(_, c)| is_part(*c))
            .last()
            .map_or(line.len(), |(at, _)| at);
        let word = &line[start..];
        if let (0, true) = (start, word.starts_with(':')) {
            let all = COMMANDS.iter().filter(|name| name.starts_with(word));
            return (0, all.map(|name| (*name).to_owned()).collect());
        }
        if let Some(colon) = word.rfind(':') {
            let begun = &word[colon + 1..];
            let kinds = self.kinds.iter().filter(|kind| kind.starts_with(begun));
            return (start + colon + 1, kinds.cloned().collect());
        }
        if word.is_empty() {
            return (start, Vec::new());
        }
        let begins = |name: &str| {
            name.get(..word.len())
                .is_some_and(|head| head.eq_ignore_ascii_case(word))
        };
        let keywords = KEYWORDS.iter().map(|name| (*name).to_owned());
        let aggregates = ["avg", "collect", "count", "max", "min", "sum"].into_iter();
        let functions = bowline_query::function_names()
            .chain(aggregates)
            .map(|name| format!("{name}("));
        let procedures = bowline_query::Procedures::names(&bowline::cypher::Algorithms);
        let procedures = procedures.into_iter().map(|name| format!("{name}("));
        let all = keywords.chain(functions).chain(procedures);
        let mut all: Vec<String> = all.filter(|name| begins(name)).collect();
        all.sort();
        all.dedup();
        (start, all)
    }
}

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &rustyline::Context<'_>,
    ) -> Result<(usize, Vec<String>), ReadlineError> {
        Ok(self.complete(&line[..position]))
    }
}

impl Validator for Words {
    fn validate(
        &self,
        context: &mut ValidationContext<'_>,
    ) -> Result<ValidationResult, ReadlineError> {
        Ok(match is_whole(context.input()) {
            true => ValidationResult::Valid(None),
            false => ValidationResult::Incomplete,
        })
    }
}

/// Whether what was typed is to be run, and needs no further line.
fn is_whole(input: &str) -> bool {
    let line = input.trim();
    let is_command = line.starts_with(':') || matches!(line, "exit" | "quit");
    is_command || is_blank(split(input).1)
}

impl Hinter for Words {
    type Hint = String;
}
impl Highlighter for Words {}
impl Helper for Words {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_functions_procedures_and_kinds_are_offered() {
        let words = Words {
            kinds: vec!["person".to_owned(), "package".to_owned()],
        };
        let offered = |line: &str| words.complete(line).1;
        assert_eq!(offered("mat"), ["MATCH"]);
        assert_eq!(offered("RETURN toUp"), ["toUpper("]);
        assert_eq!(offered("CALL bowline.page"), ["bowline.pageRank("]);
        assert_eq!(
            words.complete("MATCH (p:pe"),
            (9, vec!["person".to_owned()])
        );
        assert_eq!(offered("MATCH (:person:pa"), ["package"]);
        assert_eq!(offered(":par"), [":param", ":params"]);
        assert_eq!(offered("MATCH (n) "), [] as [&str; 0]);
    }

    #[test]
    fn a_statement_takes_lines_until_its_semicolon() {
        for whole in [
            "RETURN 1;",
            "RETURN 1; // done",
            ":help",
            "",
            "exit",
            "RETURN\n1;",
        ] {
            assert!(is_whole(whole), "{whole}");
        }
        for begun in ["RETURN 1", "RETURN ';'", "RETURN 1; RETURN", "RETURN 'a;"] {
            assert!(!is_whole(begun), "{begun}");
        }
    }
}
