//! Options and commands that a message or a help text names exist.
//!
//! The messages are the string literals of all crates, without those of tests; the help texts are those of the parser. A
//! command is what stands in backticks and begins with the name of one, or what follows the word `bowline`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command as Tree, CommandFactory};

use super::*;

/// What begins the file `BOWLINE` of a directory, which is no command.
const IDENTITY: &str = "database";

/// The Rust files below a directory, without tests.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.contains("test") || name.contains("fuzz") {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// A source without the items that only its tests have, which end at the first brace that begins a line.
fn without_tests(source: &str) -> String {
    let mut kept = String::new();
    let mut rest = source;
    while let Some((before, item)) = rest.split_once("\n#[cfg(test)]\n") {
        kept.push_str(before);
        let is_item = item.starts_with("fn ") || item.starts_with("mod tests {");
        rest = match item.split_once("\n}\n") {
            Some((_, after)) if is_item => after,
            _ => item,
        };
    }
    kept + rest
}

/// The string literals of a file, as they are written, without those of its tests.
fn literals(source: &str) -> Vec<String> {
    let source = &without_tests(source);
    let mut found = Vec::new();
    let mut characters = source.char_indices().peekable();
    let mut literal: Option<String> = None;
    while let Some((at, character)) = characters.next() {
        let rest = &source[at..];
        match (&mut literal, character) {
            (Some(_), '"') => found.extend(literal.take()),
            (Some(text), '\\') => match characters.next() {
                // A line that goes on behind its indentation.
                Some((_, '\n')) => {
                    while characters
                        .next_if(|(_, next)| next.is_whitespace())
                        .is_some()
                    {}
                }
                Some((_, 'n')) => text.push('\n'),
                Some((_, other)) => text.push(other),
                None => {}
            },
            (Some(text), other) => text.push(other),
            (None, '"') => literal = Some(String::new()),
            (None, '/') if rest.starts_with("//") => {
                while characters.next_if(|(_, next)| *next != '\n').is_some() {}
            }
            (None, '\'') if rest.starts_with("'\"'") || rest.starts_with("'\\") => {
                // A character, and not the begin of a text.
                characters.next();
                if rest.starts_with("'\\") {
                    characters.next();
                }
                characters.next();
            }
            (None, _) => {}
        }
    }
    found
}

/// The help texts of a command and of all below.
fn help_texts(tree: &Tree, found: &mut Vec<String>) {
    let texts = [tree.get_about(), tree.get_long_about()];
    found.extend(texts.into_iter().flatten().map(ToString::to_string));
    for argument in tree.get_arguments() {
        let texts = [argument.get_help(), argument.get_long_help()];
        found.extend(texts.into_iter().flatten().map(ToString::to_string));
    }
    for command in tree.get_subcommands() {
        help_texts(command, found);
    }
}

/// The options that a text names, without their dashes.
fn options(text: &str) -> Vec<String> {
    let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let begins = text.match_indices("--").filter(|(at, _)| {
        let before = text[..*at].chars().next_back();
        before.is_none_or(|before| !is_of_name(before))
    });
    let names = begins.map(|(at, _)| text[at + 2..].split(|c| !is_of_name(c)).next());
    let names = names.flatten().map(|name| name.trim_end_matches('-'));
    let is_name = |name: &&str| name.starts_with(|c: char| c.is_ascii_lowercase());
    names.filter(is_name).map(str::to_owned).collect()
}

/// The command lines that a text names, without the word `bowline`.
fn command_lines(tree: &Tree, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, name) in text.match_indices("bowline ") {
        let before = text[..at].chars().next_back();
        if before.is_none_or(|before| matches!(before, '`' | ' ' | '\n')) {
            let line = text[at + name.len()..].split(['`', '\n', '|', ';']).next();
            found.extend(line.map(str::to_owned));
        }
    }
    let quoted = text.split('`').skip(1).step_by(2);
    found.extend(quoted.filter_map(|line| {
        let first = line.split(' ').next()?;
        tree.find_subcommand(first)?;
        Some(line.to_owned())
    }));
    found
}

/// What is wrong with a command line: a command that does not exist, or an option that it does not take.
fn mistake(tree: &Tree, line: &str) -> Option<String> {
    let mut command = tree;
    for word in line.split_whitespace() {
        let is_command = word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        if word.starts_with('-') || !is_command || !command.has_subcommands() {
            break;
        }
        let Some(found) = command.find_subcommand(word) else {
            if word == IDENTITY {
                return None;
            }
            return Some(format!("{} has no command {word:?}", command.get_name()));
        };
        command = found;
    }
    let takes = |name: &String| {
        let mut arguments = command.get_arguments();
        name == "help" || arguments.any(|argument| argument.get_long() == Some(name))
    };
    let unknown = options(line).into_iter().find(|name| !takes(name));
    unknown.map(|name| format!("{} has no option --{name}", command.get_name()))
}

/// What is wrong with a text.
fn mistakes(tree: &Tree, every_option: &BTreeSet<String>, text: &str) -> Vec<String> {
    let lines = command_lines(tree, text);
    let mut found: Vec<String> = lines
        .iter()
        .filter_map(|line| mistake(tree, line))
        .collect();
    let unknown = options(text).into_iter();
    let unknown = unknown.filter(|name| !every_option.contains(name));
    found.extend(unknown.map(|name| format!("there is no option --{name}")));
    found
}

fn every_option(tree: &Tree, found: &mut BTreeSet<String>) {
    let names = tree.get_arguments().filter_map(clap::Arg::get_long);
    found.extend(names.map(str::to_owned));
    for command in tree.get_subcommands() {
        every_option(command, found);
    }
}

fn the_tree() -> (Tree, BTreeSet<String>) {
    let mut tree = Cli::command();
    // Options of every command are among those of each.
    tree.build();
    let mut options = BTreeSet::new();
    every_option(&tree, &mut options);
    (tree, options)
}

#[test]
fn what_a_message_names_exists() {
    let (tree, options_known) = the_tree();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut texts: Vec<(String, String)> = Vec::new();
    for entry in fs::read_dir(&crates).unwrap() {
        let source = entry.unwrap().path().join("src");
        let mut files = Vec::new();
        sources(&source, &mut files);
        for file in files {
            let place = file.strip_prefix(&crates).unwrap().display().to_string();
            let found = literals(&fs::read_to_string(&file).unwrap()).into_iter();
            // Examples are parsed as a whole by a test of their own.
            let found = found.filter(|text| !text.starts_with("Examples:"));
            texts.extend(found.map(|text| (place.clone(), text)));
        }
    }
    let mut help = Vec::new();
    help_texts(&tree, &mut help);
    texts.extend(help.into_iter().map(|text| ("help".to_owned(), text)));

    let mut wrong = Vec::new();
    let (mut named_options, mut named_commands) = (0, 0);
    for (place, text) in &texts {
        named_options += options(text).len();
        named_commands += command_lines(&tree, text).len();
        let found = mistakes(&tree, &options_known, text).into_iter();
        wrong.extend(found.map(|mistake| format!("{place}: {mistake}: {text:?}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // As many as there are: the reader of the sources sees them.
    assert!(named_options > 50, "{named_options}");
    assert!(named_commands > 20, "{named_commands}");
}

#[test]
fn a_wrong_name_is_noticed() {
    let (tree, options) = the_tree();
    for text in [
        "run `bowline mend` first",
        "`member show ID` says more",
        "every counter: bowline stats --everything",
        "give --no-such-option",
        "`bowline get --learner` is an option of another command",
    ] {
        assert!(!mistakes(&tree, &options, text).is_empty(), "{text}");
    }
    for text in [
        "run `bowline member list`, or give --learner",
        "`compact REVISION` trims; a bug in bowline; -- is no option",
        "as in `gzip -dc FILE | bowline import -`",
    ] {
        assert_eq!(mistakes(&tree, &options, text), [] as [&str; 0], "{text}");
    }
    let source = "let a = \"one \\\n    two\"; // \"no\"\nlet b = '\"'; f(\"thr\\\"ee\");";
    assert_eq!(literals(source), ["one two", "thr\"ee"]);
    let source = "f(\"one\");\n#[cfg(test)]\nfn t() {\n    f(\"two\");\n}\nf(\"three\");\n";
    assert_eq!(literals(source), ["one", "three"]);
}
