//! Which file of a crate imports which, which of its modules uses which, and the circles that this makes.
//!
//! A file imports another when it names one of its items by a path that begins with `crate`, `super`, `self` or a
//! module within it, also where a third file hands the item on. That a module declares those within it, or hands on their
//! items with `pub use`, is no import; but that its own code uses what it hands on is one.
//!
//! The modules of a crate are those that its root declares. One uses another when a path of the one leads into the other,
//! also by a name that the root hands on. The root uses all of them and does not count.
//!
//! Circles are strongly connected components (Tarjan, "Depth-first search and linear graph algorithms", 1972).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Source;

type Path = Vec<String>;

/// The circles of imports among the files of a crate, each in order.
pub(crate) fn circles(sources: &[Source]) -> Vec<Vec<String>> {
    let modules = Modules::new(sources);
    let names: Vec<&Path> = modules.0.keys().collect();
    let number: BTreeMap<&Path, usize> = names.iter().copied().zip(0..).collect();
    let mut arrows = vec![BTreeSet::new(); names.len()];
    for (from, module) in &modules.0 {
        for named in &module.names {
            if let Some(to) = modules.through(from, &named.path).pop()
                && to != *from
                && (named.is_used || !to.starts_with(from))
            {
                arrows[number[from]].insert(number[&to]);
            }
        }
    }
    let mut found = Vec::new();
    for component in components(&arrows) {
        let files = component.iter();
        let files = files.map(|file| modules.0[names[*file]].source.path.clone());
        let mut files: Vec<String> = files.collect();
        files.sort();
        found.push(files);
    }
    found.sort();
    found
}

/// That one module of a crate uses another, and a line that does.
#[derive(Clone, Debug)]
pub(crate) struct Arrow {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) line: String,
}

/// Which module of a crate uses which.
pub(crate) fn arrows_of_modules(sources: &[Source]) -> Vec<Arrow> {
    let modules = Modules::new(sources);
    let mut found: BTreeMap<(String, String), String> = BTreeMap::new();
    for (path, module) in &modules.0 {
        let Some(from) = path.first() else {
            continue;
        };
        for named in &module.names {
            // Where that hands on what a third one has, its own arrow goes on.
            let through = modules.through(path, &named.path);
            let to = through.iter().find_map(|module| module.first());
            if let Some(to) = to.filter(|to| *to != from) {
                let line = format!("{}:{}", module.source.path, named.line);
                found.entry((from.clone(), to.clone())).or_insert(line);
            }
        }
    }
    let arrows = found.into_iter();
    let arrows = arrows.map(|((from, to), line)| Arrow { from, to, line });
    arrows.collect()
}

/// One circle, of the shortest, for each set of modules that use each other.
pub(crate) fn circles_of_modules(arrows: &[Arrow]) -> Vec<Vec<Arrow>> {
    let names = arrows
        .iter()
        .flat_map(|arrow| [&arrow.from[..], &arrow.to[..]]);
    let names: Vec<&str> = names.collect::<BTreeSet<_>>().into_iter().collect();
    let number: BTreeMap<&str, usize> = names.iter().copied().zip(0..).collect();
    let mut graph = vec![BTreeSet::new(); names.len()];
    let mut by_ends = BTreeMap::new();
    for arrow in arrows {
        let (from, to) = (number[&arrow.from[..]], number[&arrow.to[..]]);
        graph[from].insert(to);
        by_ends.insert((from, to), arrow);
    }
    let mut found = Vec::new();
    for component in components(&graph) {
        let ways = component.iter().filter_map(|start| circle(&graph, *start));
        let way = ways.min_by_key(Vec::len).expect("they form a circle");
        let next = way[1..].iter().chain(&way[..1]);
        let steps = way.iter().zip(next);
        let arrows = steps.map(|(from, to)| by_ends[&(*from, *to)].clone());
        found.push(arrows.collect());
    }
    found
}

/// A shortest way from a node back to it, by breadth-first search.
fn circle(arrows: &[BTreeSet<usize>], start: usize) -> Option<Vec<usize>> {
    let mut before = vec![None; arrows.len()];
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for &next in &arrows[node] {
            if next == start {
                let mut way = vec![node];
                while let Some(earlier) = before[way[way.len() - 1]] {
                    way.push(earlier);
                }
                way.reverse();
                return Some(way);
            }
            if before[next].is_none() {
                before[next] = Some(node);
                queue.push_back(next);
            }
        }
    }
    None
}

/// The modules of a crate that are shipped, by their paths.
struct Modules<'a>(BTreeMap<Path, Module<'a>>);

struct Module<'a> {
    source: &'a Source,
    names: Vec<Named>,
}

impl Modules<'_> {
    fn new(sources: &[Source]) -> Modules<'_> {
        // A program beside a library is a crate of its own, without modules.
        let is_beside = |one: &&Source| {
            let library = one.path.strip_suffix("/main.rs");
            library.is_some_and(|src| {
                let library = format!("{src}/lib.rs");
                sources.iter().any(|one| one.path == library)
            })
        };
        let mut modules = BTreeMap::new();
        let mut for_tests = Vec::new();
        for source in sources.iter().filter(|one| !is_beside(one)) {
            let path = path_of(source);
            let inner = modules_for_tests(&source.text).into_iter();
            for_tests.extend(inner.map(|name| [&path[..], &[name]].concat()));
            let names = names_in(&source.text);
            modules.insert(path, Module { source, names });
        }
        modules.retain(|path, _| !for_tests.iter().any(|one| path.starts_with(one)));
        Modules(modules)
    }

    /// The modules that a path leads through: where one hands on what another has, that follows.
    fn through(&self, from: &Path, path: &Path) -> Vec<Path> {
        let mut found = Vec::new();
        let mut whole = self.absolute(from, path);
        while let Some(path) = whole {
            let mut lengths = (0..=path.len()).rev();
            let Some(length) = lengths.find(|length| self.0.contains_key(&path[..*length])) else {
                break;
            };
            let module = path[..length].to_vec();
            if found.contains(&module) {
                break;
            }
            whole = path.get(length).and_then(|name| {
                let mut names = self.0[&module].names.iter();
                let behind = names.find(|one| one.name.as_ref() == Some(name))?;
                let behind = self.absolute(&module, &behind.path)?;
                Some([&behind[..], &path[length + 1..]].concat())
            });
            found.push(module);
        }
        found
    }

    /// From the root of the crate, a path that a module names; `None` when it leads out of the crate.
    fn absolute(&self, from: &Path, path: &Path) -> Option<Path> {
        let mut base = from.clone();
        let mut rest = &path[..];
        match rest.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &rest[1..];
            }
            "self" | "super" => {
                while let Some(first) = rest.first() {
                    match first.as_str() {
                        "super" => drop(base.pop()),
                        "self" => {}
                        _ => break,
                    }
                    rest = &rest[1..];
                }
            }
            first => {
                // A module within this one, or an item of another crate.
                let child = [&base[..], &[first.to_owned()]].concat();
                self.0.get(&child)?;
            }
        }
        Some([&base[..], rest].concat())
    }
}

/// The path of the module that a file is.
fn path_of(source: &Source) -> Path {
    let (_, below) = source.path.split_once("/src/").expect("in src");
    let stem = below.strip_suffix(".rs").expect("Rust");
    let mut path: Path = stem.split('/').map(str::to_owned).collect();
    if path
        .last()
        .is_some_and(|last| ["mod", "lib", "main"].contains(&&last[..]))
    {
        path.pop();
    }
    path
}

/// Whether a line says that what follows it is not shipped.
fn is_for_tests(line: &str) -> bool {
    ["#[cfg(test)]", "#[cfg(any(test, fuzzing))]"].contains(&line.trim())
}

/// The modules that a file declares, but does not ship.
fn modules_for_tests(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_after = false;
    for line in text.lines() {
        if is_for_tests(line) {
            is_after = true;
        } else if !line.starts_with("#[") {
            let declared = line
                .strip_suffix(';')
                .and_then(|line| line.split_once("mod "));
            found.extend(
                declared
                    .filter(|_| is_after)
                    .map(|(_, name)| name.to_owned()),
            );
            is_after = false;
        }
    }
    found
}

/// The code of a file that is shipped, every line where it was, without comments.
fn code(text: &str) -> String {
    let mut code = String::new();
    // How far the item is indented that is left out. Rustfmt ends it with a line that is as well.
    let mut left_out = None;
    for line in text.lines() {
        let trimmed = line.trim_start();
        let indented = line.len() - trimmed.len();
        if is_for_tests(line) {
            left_out = left_out.or(Some(indented));
        } else if left_out.is_none() {
            code.push_str(line.split("//").next().unwrap_or_default());
        } else if left_out == Some(indented) && trimmed.ends_with([';', ',', '}']) {
            left_out = None;
        }
        code.push('\n');
    }
    code
}

/// A path that the code of a file names.
struct Named {
    path: Path,
    line: usize,
    /// What the file calls it, when it is in a `use`.
    name: Option<String>,
    /// Whether the file has it for its own code, and not just to hand it on.
    is_used: bool,
}

/// Every path that the code of a file names.
fn names_in(text: &str) -> Vec<Named> {
    let code = code(text);
    let mut found = Vec::new();
    let mut rest = String::new();
    let (mut line, mut at) = (1, 0);
    while let Some(length) = code[at..].find('\n') {
        let head = code[at..at + length].trim_start();
        let (visibility, tree) = match head.split_once("use ") {
            Some((before, tree)) => (before.trim_end(), tree),
            None => ("-", head),
        };
        let is_use = visibility.is_empty() || visibility == "pub" || visibility.starts_with("pub(");
        if is_use {
            let start = at + length - tree.len();
            let end = code[start..]
                .find(';')
                .map_or(code.len(), |end| start + end);
            let first = found.len();
            expand(&[], &code[start..end], line, &mut found);
            if !visibility.is_empty() {
                found[first..]
                    .iter_mut()
                    .for_each(|one| one.is_used = false);
            }
            let lines = code[at..end].matches('\n').count() + 1;
            line += lines;
            at = end + code[end..].find('\n').map_or(0, |rest| rest + 1);
            rest.extend(std::iter::repeat_n('\n', lines));
        } else {
            rest.push_str(&code[at..=at + length]);
            line += 1;
            at += length + 1;
        }
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let words: BTreeSet<&str> = rest.split(|c| !is_word(c)).collect();
    for one in &mut found {
        let name = one.name.as_deref();
        one.is_used |= name.is_some_and(|name| words.contains(name));
    }
    for (line, text) in (1..).zip(rest.lines()) {
        // Who may use an item is no use.
        let visible = text.split_once("pub(in ");
        let visible = visible.and_then(|(_, rest)| rest.split_once(')'));
        let text = visible.map_or(text, |(_, item)| item);
        let paths = text.split(|c| !is_word(c) && c != ':');
        found.extend(paths.filter(|path| path.contains("::")).map(|path| Named {
            path: split(path),
            line,
            name: None,
            is_used: true,
        }));
    }
    found
}

fn split(path: &str) -> Path {
    let parts = path
        .split("::")
        .map(str::trim)
        .filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

/// The paths of a tree of imports, `a::{b, c::{d, e as f}}`, which begins on `line`.
fn expand(before: &[String], tree: &str, line: usize, found: &mut Vec<Named>) {
    let (mut depth, mut start) = (0, 0);
    let mut parts = Vec::new();
    for (at, c) in tree.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push((start, &tree[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push((start, &tree[start..]));
    for (start, part) in parts {
        let trimmed = part.trim_start();
        let start = start + part.len() - trimmed.len();
        let line_of = |at: usize| line + tree[..at].matches('\n').count();
        let part = trimmed.trim_end();
        if part.is_empty() {
            continue;
        }
        let mut path = before.to_vec();
        match part.split_once('{') {
            Some((head, inner)) => {
                path.extend(split(head));
                let line = line_of(start + head.len());
                let inner = inner.strip_suffix('}').unwrap_or(inner);
                expand(&path, inner, line, found);
            }
            None => {
                let (item, name) = part.split_once(" as ").unwrap_or((part, part));
                path.extend(split(item));
                let mut names = name
                    .rsplit("::")
                    .chain(before.iter().rev().map(|part| &part[..]));
                let name = names.find(|name| *name != "self");
                found.push(Named {
                    name: name.map(str::to_owned),
                    line: line_of(start),
                    is_used: true,
                    path,
                });
            }
        }
    }
}

/// The sets of more than one node that reach each other.
fn components(arrows: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search::new(arrows);
    (0..arrows.len()).for_each(|start| search.visit(start));
    search.components.retain(|component| component.len() > 1);
    search.components
}

/// Tarjan's search. The files of a crate are few enough to recurse.
struct Search<'a> {
    arrows: &'a [BTreeSet<usize>],
    next: usize,
    index: Vec<Option<usize>>,
    low: Vec<usize>,
    stack: Vec<usize>,
    components: Vec<Vec<usize>>,
}

impl<'a> Search<'a> {
    fn new(arrows: &'a [BTreeSet<usize>]) -> Search<'a> {
        Search {
            arrows,
            next: 0,
            index: vec![None; arrows.len()],
            low: vec![0; arrows.len()],
            stack: Vec::new(),
            components: Vec::new(),
        }
    }

    fn visit(&mut self, file: usize) {
        if self.index[file].is_some() {
            return;
        }
        self.index[file] = Some(self.next);
        self.low[file] = self.next;
        self.next += 1;
        self.stack.push(file);
        for &other in &self.arrows[file] {
            match self.index[other] {
                None => {
                    self.visit(other);
                    self.low[file] = self.low[file].min(self.low[other]);
                }
                Some(index) if self.stack.contains(&other) => {
                    self.low[file] = self.low[file].min(index);
                }
                Some(_) => {}
            }
        }
        if self.index[file] == Some(self.low[file]) {
            let start = self.stack.iter().position(|one| *one == file);
            let component = self.stack.split_off(start.expect("it is on the stack"));
            self.components.push(component);
        }
    }
}
