//! Which public items have no example.
//!
//! A user reads the page of a type from its top, or arrives at one of its methods. So
//!
//! - a type or a trait has an example when its own comment has one, or that of its public module names it;
//! - a function has one when its own comment has one, or an example of its type calls it. An example of the public
//!   module counts when it names the type as well.
//!
//! Only Rust that rustdoc compiles is an example, and only the lines that it shows. Methods of traits are not looked for:
//! a trait's example implements it.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;
use super::public_items::{defined, first_name, handed_on, implemented};

/// An item with its comment.
struct Item<'a> {
    /// The type whose method it is.
    of: Option<&'a str>,
    name: &'a str,
    comment: Vec<&'a str>,
}

/// Those public items of a crate that have no example, and the number of those that were looked at.
pub(crate) struct Judged {
    pub(crate) items: usize,
    pub(crate) without: BTreeSet<String>,
}

/// Judges the items of the crate `own`. `pages` are its public modules; `sources` holds the files of the crates whose
/// items it hands on.
pub(crate) fn judge(own: &str, pages: &[Source], sources: &BTreeMap<&str, Vec<Source>>) -> Judged {
    let of_macros: BTreeMap<&str, Vec<Source>> = sources
        .iter()
        .map(|(name, files)| (*name, written_by_macros(files)))
        .collect();
    let found: BTreeMap<&str, Vec<Item<'_>>> = sources
        .iter()
        .map(|(name, files)| {
            let files = files.iter().chain(&of_macros[name]);
            (*name, files.flat_map(items).collect())
        })
        .collect();
    let of_pages: Vec<String> = pages.iter().flat_map(|page| front(&page.text)).collect();
    let mut judged = Judged {
        items: 0,
        without: BTreeSet::new(),
    };
    for (named, name) in pages.iter().flat_map(public_names) {
        // A crate may hand on what it has from one below it.
        let defines = |krate: &&str| {
            let items = found.get(krate).into_iter().flatten();
            items
                .into_iter()
                .any(|item| item.of.is_none() && item.name == name)
        };
        let mut crates = [&named[..]].into_iter().chain(found.keys().copied());
        let Some(defining) = crates.find(defines) else {
            judged
                .without
                .insert(format!("{own} {name}, which is not found"));
            continue;
        };
        let is_of_it = |item: &&Item<'_>| item.of.unwrap_or(item.name) == name;
        let its: Vec<&Item<'_>> = found[defining].iter().filter(is_of_it).collect();
        let types = its.iter().filter(|item| item.of.is_none());
        let of_type: Vec<String> = types.flat_map(|item| examples(&item.comment)).collect();
        for item in its {
            judged.items += 1;
            let is_shown = match item.of {
                None => of_pages.iter().any(|example| names(example, &name)),
                Some(_) => {
                    let on_page = of_pages.iter().filter(|example| names(example, &name));
                    let mut around = of_type.iter().chain(on_page);
                    around.any(|example| calls(example, &name, item.name))
                }
            };
            if !is_shown && examples(&item.comment).is_empty() {
                let method = item
                    .of
                    .map_or(String::new(), |_| format!("::{}", item.name));
                judged.without.insert(format!("{own} {name}{method}"));
            }
        }
    }
    judged
}

/// What the macros of a crate write that take the name of a type first: `name!(Type, ..);` on a line of its own.
fn written_by_macros(files: &[Source]) -> Vec<Source> {
    let mut bodies = BTreeMap::new();
    for source in files {
        for part in source.text.split("macro_rules! ").skip(1) {
            let rule = part.split("\n    };\n").next().unwrap_or_default();
            if let Some((name, rest)) = rule.split_once(" {\n    ($")
                && let Some((_, body)) = rest.split_once(") => {\n")
            {
                let lines = body.lines().map(|line| line.strip_prefix("        "));
                let lines: Vec<&str> = lines.map(Option::unwrap_or_default).collect();
                bodies.insert(name, (first_name(rest), lines.join("\n")));
            }
        }
    }
    let mut found = Vec::new();
    for source in files {
        for line in source.text.lines() {
            if let Some((name, arguments)) = line.split_once("!(")
                && let Some((parameter, body)) = bodies.get(name)
            {
                let of = arguments.split([',', ')']).next().unwrap_or_default();
                found.push(Source {
                    path: source.path.clone(),
                    text: body.replace(&format!("${parameter}"), of),
                });
            }
        }
    }
    found
}

/// The names that a public module has: its own, and those it hands on, each with the crate that it names for them.
fn public_names(page: &Source) -> BTreeSet<(String, String)> {
    let own = page.path.split('/').next().unwrap_or_default();
    let page = &page.text;
    let mut found = BTreeSet::new();
    for part in page.split("\npub use ").skip(1) {
        let first = first_name(part);
        let krate = match first.starts_with("bowline") {
            true => first.replace('_', "-"),
            false => own.to_owned(),
        };
        // By the names that they have where they are defined.
        let statement = part.split(';').next().unwrap_or_default().split(',');
        let defined = statement.map(|one| one.split(" as ").next().unwrap_or_default());
        let list = handed_on(&format!(
            "\npub use {}",
            defined.collect::<Vec<_>>().join(",")
        ));
        found.extend(list.into_iter().map(|name| (krate.clone(), name)));
    }
    let own_items = defined(page).into_iter();
    found.extend(own_items.map(|name| (own.to_owned(), name)));
    found
}

/// The public types, traits and functions of a file that its documentation shows.
fn items(source: &Source) -> Vec<Item<'_>> {
    let code = source.text.split("#[cfg(test)]\nmod tests {").next();
    let mut found = Vec::new();
    let mut inside = None;
    let (mut comment, mut is_hidden, mut in_attribute) = (Vec::new(), false, false);
    for line in code.unwrap_or_default().lines() {
        let trimmed = line.trim_start();
        if let Some(text) = trimmed.strip_prefix("///") {
            comment.push(text);
            continue;
        }
        if in_attribute || trimmed.starts_with("#[") {
            is_hidden |= trimmed.starts_with("#[doc(hidden)]");
            in_attribute = !trimmed.ends_with(']');
            continue;
        }
        let comment = std::mem::take(&mut comment);
        let is_hidden = std::mem::take(&mut is_hidden);
        if line == "}" {
            inside = None;
        } else if let Some((name, of)) = implemented(line) {
            inside = of.is_none().then_some(name);
        }
        let member = line
            .strip_prefix("    ")
            .filter(|rest| rest.starts_with("pub "));
        let of = member.and(inside);
        let Some(item) = member.unwrap_or(line).strip_prefix("pub ") else {
            continue;
        };
        let mut words = item
            .split(' ')
            .skip_while(|word| ["const", "async"].contains(word));
        let kind = words.next().unwrap_or_default();
        let is_type = ["struct", "enum", "trait", "type"].contains(&kind);
        if is_hidden || !(kind == "fn" || is_type) || (member.is_some() && of.is_none()) {
            continue;
        }
        let name = first_name(words.next().unwrap_or_default());
        found.push(Item { of, name, comment });
    }
    found
}

/// The examples at the head of a public module.
fn front(page: &str) -> Vec<String> {
    let lines = page.lines().map_while(|line| line.strip_prefix("//!"));
    examples(&lines.collect::<Vec<_>>())
}

/// What the examples of a comment show.
fn examples(comment: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Option<(bool, String)> = None;
    for line in comment {
        let line = line.trim();
        match (line.strip_prefix("```"), &mut open) {
            (Some(info), None) => open = Some((is_compiled(info), String::new())),
            (Some(_), Some(_)) => {
                let (is_example, shown) = open.take().expect("it is open");
                found.extend(is_example.then_some(shown));
            }
            (None, Some((_, shown))) if line != "#" && !line.starts_with("# ") => {
                shown.push_str(line);
                shown.push('\n');
            }
            (None, _) => {}
        }
    }
    found
}

/// Whether a block with these words at its start is Rust that rustdoc compiles. One that must not compile shows how
/// something is not used.
fn is_compiled(info: &str) -> bool {
    let mut words = info.split(',').map(str::trim);
    words.all(|word| ["", "rust", "no_run", "should_panic"].contains(&word))
}

/// Whether an example has a name as a whole word.
fn names(example: &str, name: &str) -> bool {
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    example.match_indices(name).any(|(at, _)| {
        let (before, after) = (&example[..at], &example[at + name.len()..]);
        !before.ends_with(is_letter) && !after.starts_with(is_letter)
    })
}

/// Whether an example calls a method of a type, or names it by its path.
fn calls(example: &str, of: &str, method: &str) -> bool {
    let is_call = |rest: &str| rest.starts_with('(') || rest.starts_with("::<");
    let called = format!(".{method}");
    let mut by_value = example.match_indices(&called);
    by_value.any(|(at, _)| is_call(&example[at + called.len()..]))
        || names(example, &format!("{of}::{method}"))
}
