//! Which file of a crate imports which, and the circles that this makes.
//!
//! A file imports another when it names one of its items by a path that begins with `crate`, `super`, `self` or a
//! module beside it. That a module declares those within it, or hands on their items with `pub use`, is no import.
//! Circles are the strongly connected components of the files (Tarjan, "Depth-first search and linear graph
//! algorithms", 1972).

use std::collections::{BTreeMap, BTreeSet};

use super::Source;

type Path = Vec<String>;

/// The circles of imports among the files of a crate, each in order.
pub(crate) fn circles(sources: &[Source]) -> Vec<Vec<String>> {
    let modules: BTreeMap<Path, &Source> = sources.iter().map(|one| (module(one), one)).collect();
    let names: Vec<&Path> = modules.keys().collect();
    let number: BTreeMap<&Path, usize> = names.iter().copied().zip(0..).collect();
    let mut arrows = vec![BTreeSet::new(); names.len()];
    for (from, source) in &modules {
        let children = modules
            .keys()
            .filter_map(|module| module.strip_prefix(&from[..]));
        let children = children.filter_map(|rest| match rest {
            [child] => Some(child.as_str()),
            _ => None,
        });
        for path in paths(&source.text, &children.collect::<BTreeSet<_>>()) {
            if let Some(to) = resolve(from, &path, &modules)
                && to != *from
            {
                arrows[number[from]].insert(number[&to]);
            }
        }
    }
    let mut search = Search::new(&arrows);
    (0..names.len()).for_each(|start| search.visit(start));
    let mut found: Vec<Vec<String>> = Vec::new();
    for component in search
        .components
        .into_iter()
        .filter(|files| files.len() > 1)
    {
        let mut files: Vec<String> = Vec::new();
        files.extend(
            component
                .iter()
                .map(|file| modules[names[*file]].path.clone()),
        );
        files.sort();
        found.push(files);
    }
    found.sort();
    found
}

/// The path of the module that a file is.
fn module(source: &Source) -> Path {
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

/// Every path that the code of a file names, but for those it hands on. `children` are the modules within it.
fn paths(text: &str, children: &BTreeSet<&str>) -> Vec<Path> {
    let code = text.split("#[cfg(test)]\nmod tests {").next();
    let lines = code.unwrap_or_default().lines();
    let code: Vec<&str> = lines
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    let mut rest = String::new();
    for statement in code.split_inclusive(';') {
        match statement.rsplit_once("use ") {
            Some((before, tree)) if before.trim_end().is_empty() || before.ends_with('\n') => {
                expand(&[], tree.trim_end_matches(';'), &mut found);
                rest.push_str(before);
            }
            // Handed on.
            Some((before, _))
                if before.trim_end().ends_with("pub") || before.trim_end().ends_with(')') => {}
            _ => rest.push_str(statement),
        }
    }
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    for path in rest.split(|c| !word(c)).filter(|path| path.contains("::")) {
        let path = split(path);
        if path.first().is_some_and(|first| {
            ["crate", "super"].contains(&&first[..]) || children.contains(&first[..])
        }) {
            found.push(path);
        }
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

/// The paths of a tree of imports, `a::{b, c::{d, e as f}}`.
fn expand(before: &[String], tree: &str, found: &mut Vec<Path>) {
    let (mut depth, mut start) = (0, 0);
    let mut parts = Vec::new();
    for (at, c) in tree.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&tree[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&tree[start..]);
    for part in parts
        .iter()
        .map(|part| part.trim())
        .filter(|part| !part.is_empty())
    {
        let mut path = before.to_vec();
        match part.split_once('{') {
            Some((head, inner)) => {
                path.extend(split(head));
                let inner = inner.trim_end().strip_suffix('}').unwrap_or(inner);
                expand(&path, inner, found);
            }
            None => {
                let name = part.split(" as ").next().unwrap_or(part);
                path.extend(split(name));
                found.push(path);
            }
        }
    }
}

/// The module of the crate that a path leads into, from a module.
fn resolve(from: &Path, path: &Path, modules: &BTreeMap<Path, &Source>) -> Option<Path> {
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
            modules.get(&child)?;
        }
    }
    let whole = [&base[..], rest].concat();
    let lengths = (0..=whole.len()).rev();
    let mut prefixes = lengths.map(|length| whole[..length].to_vec());
    prefixes.find(|prefix| modules.contains_key(prefix))
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
