//! The public items of the crates that users name: `bowline` and `bowline-client`.
//!
//! An item is public when a public module defines it, or hands it on by `pub use`, wherever below it is defined. The list
//! has one line for each type, field, variant, method and implemented trait, read from formatted source, so a change of
//! a signature shows as one line that goes and one that comes.

use std::collections::BTreeSet;

use super::Source;

/// The names that a public module defines or hands on.
pub(crate) fn public_names(text: &str) -> BTreeSet<String> {
    let mut names = handed_on(text);
    names.extend(defined(text));
    names
}

/// The names of the public types and functions that a module itself has.
pub(crate) fn defined(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for kind in ["struct", "enum", "trait", "fn"] {
        let head = format!("\npub {kind} ");
        let items = text.split(&head).skip(1);
        names.extend(items.map(|rest| first_name(rest).to_owned()));
    }
    names
}

/// The names that `pub use` lines hand on.
pub(crate) fn handed_on(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for part in text.split("\npub use ").skip(1) {
        let list = part.split(';').next().unwrap_or_default();
        let list = list.split_once('{').map_or(list, |(_, inner)| inner);
        for name in list.split([',', '}']) {
            let name = name.trim().rsplit("::").next().unwrap_or_default();
            let name = name.rsplit(" as ").next().unwrap_or_default();
            if !name.is_empty() {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

/// The name after which `rest` goes on with something else.
pub(crate) fn first_name(rest: &str) -> &str {
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    &rest[..end.unwrap_or(rest.len())]
}

/// The type that an `impl` line is about, and the trait if it implements one.
pub(crate) fn implemented(line: &str) -> Option<(&str, Option<&str>)> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(generic) => {
            let mut depth = 1;
            let end = generic.find(|letter| {
                depth += i32::from(letter == '<') - i32::from(letter == '>');
                depth == 0
            });
            &generic[end? + 1..]
        }
        None => rest,
    };
    let rest = rest.trim_start().trim_end_matches(" {");
    match rest.split_once(" for ") {
        Some((of, name)) => Some((first_name(name), Some(of))),
        None => Some((first_name(rest), None)),
    }
}

/// Everything from a line up to the end of its declaration, on one line.
fn declaration<'a>(first: &'a str, rest: impl Iterator<Item = &'a str>) -> String {
    let mut whole = String::new();
    for line in std::iter::once(first).chain(rest) {
        whole.push_str(line.trim());
        if line.trim_end().ends_with(['{', ';', '}']) {
            break;
        }
        whole.push(' ');
    }
    let whole = whole.trim_end_matches([' ', '{', ';']);
    whole.replace("( ", "(").replace(", )", ")")
}

/// The public items of `sources` whose types or functions are among `names`.
pub(crate) fn items(sources: &[Source], names: &BTreeSet<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for source in sources {
        let code = source.text.split("#[cfg(test)]\nmod tests {").next();
        let lines: Vec<&str> = code.unwrap_or_default().lines().collect();
        // The type that the block is about, and whether it is its definition.
        let mut inside: Option<(&str, bool)> = None;
        for (at, line) in lines.iter().enumerate() {
            let rest = || lines[at + 1..].iter().copied();
            if *line == "}" {
                inside = None;
            } else if let Some((name, of)) = implemented(line) {
                inside = names.contains(name).then_some((name, false));
                if let (Some(_), Some(of)) = (inside, of) {
                    found.insert(format!("{name}: impl {of}"));
                    inside = None;
                }
            } else if let Some(item) = line.strip_prefix("pub ") {
                let mut words = item.split(' ').skip_while(|word| *word == "const");
                let kind = words.next().unwrap_or_default();
                let name = first_name(words.next().unwrap_or_default());
                let is_type = ["struct", "enum", "trait"].contains(&kind);
                let is_listed = is_type || ["fn", "type", "const"].contains(&kind);
                if is_listed && names.contains(name) {
                    found.insert(format!("{name}: {}", declaration(item, rest())));
                    inside = line.ends_with('{').then_some((name, is_type));
                }
            } else if let Some((name, is_definition)) = inside
                && let Some(member) = line.strip_prefix("    ")
                && !member.starts_with([' ', '/', '#', '}'])
            {
                let public = member.strip_prefix("pub ");
                let is_variant = is_definition && member.starts_with(char::is_uppercase);
                if let Some(item) = public.or(is_variant.then_some(member)) {
                    let item = match is_definition {
                        true => item.trim_end_matches([',', '{', ' ']).to_owned(),
                        false => declaration(item, rest()),
                    };
                    found.insert(format!("{name}: {item}"));
                }
            }
        }
    }
    found
}
