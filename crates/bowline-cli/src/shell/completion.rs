//! Completions for Tab: commands, options, their values, and keys of the database.

use clap::{Arg, Command as Tree};

use super::language::{ENDS, commands};

/// What can stand at the end of a line: where the word begins that it replaces, and the words.
pub(super) fn complete(
    tree: &Tree,
    line: &str,
    keys: &dyn Fn(&str) -> Vec<String>,
) -> (usize, Vec<String>) {
    let start = line.rfind(char::is_whitespace).map_or(0, |space| {
        space + line[space..].chars().next().map_or(0, char::len_utf8)
    });
    let (before, word) = line.split_at(start);
    let mut offered = offer(tree, before, word, keys);
    offered.retain(|offer| offer.starts_with(word) || offer.starts_with('\''));
    offered.sort();
    offered.dedup();
    (start, offered)
}

fn offer(tree: &Tree, before: &str, word: &str, keys: &dyn Fn(&str) -> Vec<String>) -> Vec<String> {
    let mut command = tree;
    let mut positionals = 0;
    // The option whose value is next.
    let mut option: Option<&Arg> = None;
    let words = before.split_whitespace();
    for word in words.skip_while(|word| *word == "bowline") {
        if option.take().is_some() {
            continue;
        }
        if let Some(name) = word.strip_prefix('-') {
            option = takes_value(command, name);
        } else if let Some(found) = command.find_subcommand(word) {
            command = found;
        } else {
            positionals += 1;
        }
    }
    if let Some(option) = option {
        return values(option);
    }
    if word.starts_with('-') {
        let options = command
            .get_arguments()
            .filter(|option| !option.is_hide_set());
        let longs = options.filter_map(Arg::get_long);
        return longs.map(|long| format!("--{long}")).collect();
    }
    if std::ptr::eq(command, tree) {
        let names = commands(tree).flat_map(Tree::get_name_and_visible_aliases);
        let own = ENDS.into_iter().chain(["help"]);
        return names.chain(own).map(str::to_owned).collect();
    }
    if command.has_subcommands() {
        let names = command.get_subcommands().map(Tree::get_name);
        let names = names.filter(|name| *name != "help");
        return names.map(str::to_owned).collect();
    }
    let Some(argument) = command.get_positionals().nth(positionals) else {
        return Vec::new();
    };
    match argument.get_id().as_str() {
        "key" | "start" | "end" => keys(word),
        _ => values(argument),
    }
}

/// The option of this name, after its first dash, if a value follows it as a word.
fn takes_value<'a>(command: &'a Tree, name: &str) -> Option<&'a Arg> {
    let is_it = |option: &&Arg| match name.strip_prefix('-') {
        Some(long) => option.get_long() == Some(long),
        None => option
            .get_short()
            .is_some_and(|short| name == short.to_string()),
    };
    let option = command.get_arguments().find(is_it)?;
    option.get_action().takes_values().then_some(option)
}

fn values(argument: &Arg) -> Vec<String> {
    let values = argument.get_possible_values();
    values
        .iter()
        .map(|value| value.get_name().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;

    fn offered(line: &str) -> (usize, Vec<String>) {
        let mut tree = Cli::command();
        tree.build();
        complete(&tree, line, &|_| {
            vec!["greeting".to_owned(), "'two words'".to_owned()]
        })
    }

    fn words(line: &str) -> Vec<String> {
        offered(line).1
    }

    #[test]
    fn commands_options_values_and_keys_are_offered() {
        assert_eq!(words("ran"), ["range"]);
        assert_eq!(words("ex"), ["exit", "export"]);
        assert_eq!(words("ser"), [] as [&str; 0]);
        assert_eq!(words("lease g"), ["grant"]);
        assert_eq!(words("bowline graph nei"), ["neighbors"]);
        assert_eq!(words("get --pre"), ["--prefix"]);
        assert_eq!(words("check --endp"), [] as [&str; 0]);
        assert_eq!(words("get -o "), ["json", "table"]);
        assert_eq!(words("graph neighbors ann --direction i"), ["in"]);
        assert_eq!(
            offered("get gre"),
            (4, vec!["'two words'".to_owned(), "greeting".to_owned()])
        );
        assert_eq!(words("get --rev 5 --raw gre").last().unwrap(), "greeting");
        // The value of a put is the user's.
        assert_eq!(words("put greeting h"), [] as [&str; 0]);
    }
}
