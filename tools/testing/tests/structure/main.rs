//! What stays true of the structure of the code, read from its text.
//!
//! | rule | test |
//! |---|---|
//! | a crate uses only what stands below it, and no shipped crate uses a tool | `arrows_between_crates_point_down` |
//! | no circle of imports has more than three files | `no_circle_of_imports_has_more_than_three_files` |
//! | the modules of a crate do not use each other in a circle | `modules_form_no_circle` |
//! | openraft is named in one folder of one crate | `openraft_is_named_in_one_folder` |
//! | a file is about one thing, and so is a function | `files_and_functions_are_short` |
//! | a module begins with what it is for | `modules_begin_with_their_heads` |
//! | a module with parts is `x/mod.rs` | `modules_have_one_style` |
//! | a function is public where another crate calls it | `public_functions_have_callers_outside` |
//! | what users of the library and the client can name is listed | `public_items_are_those_that_are_listed` |
//! | what they can name has an example | `public_items_have_examples` |
//!
//! Exceptions are named here, each with its reason. One that is not needed any more is an error, too.

mod examples;
mod imports;
mod public_items;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The crates that a user gets, from the lowest to the highest. A crate uses crates to its left.
const SHIPPED: [&str; 13] = [
    "bowline-types",
    "bowline-tls",
    "bowline-storage",
    "bowline-core",
    "bowline-query",
    "bowline",
    "bowline-replica",
    "bowline-proto",
    "bowline-client",
    "bowline-cluster",
    "bowline-server",
    "bowline-load",
    "bowline-cli",
];
/// Beside them: tests and figures.
const TOOLS: [&str; 4] = [
    "bowline-testing",
    "bowline-bench",
    "bowline-mutants",
    "bowline-simulation",
];

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 100;
const CIRCLE_FILES_MAX: usize = 3;

/// Longer files, and why.
const LONG_FILES: &[(&str, &str)] = &[];

/// Longer functions, and why.
const LONG_FUNCTIONS: &[(&str, &str)] = &[
    (
        "bowline-server/src/http/exposition/etcd.rs write",
        "a list, one line for each metric",
    ),
    (
        "bowline-server/src/config/mod.rs from_layers",
        "a list, one line for each setting",
    ),
    (
        "bowline-server/src/status.rs parts",
        "one match over every error",
    ),
    (
        "bowline-server/src/fuzzing.rs server_input_seeds",
        "a list of inputs",
    ),
    (
        "bowline-replica/src/fuzzing.rs replicated_seeds",
        "a list of commands",
    ),
];

/// Larger circles, and why.
const CIRCLES: &[(&str, usize, &str)] = &[];

/// Uses of one module of a crate by another against the order of the others: the crate, the two modules, and why.
const UPWARD: &[(&str, &str, &str, &str)] = &[(
    "bowline-cluster",
    "types",
    "raft",
    "only the adapter names openraft, so it has the types that all others know under the names in `types`",
)];

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .nth(2)
        .expect("the workspace")
        .to_path_buf()
}

/// The directory of a crate.
fn directory(name: &str) -> PathBuf {
    if TOOLS.contains(&name) {
        return root().join("tools").join(&name["bowline-".len()..]);
    }
    root().join("crates").join(name)
}

/// A source file: its path below the crates, and its text.
struct Source {
    path: String,
    text: String,
}

/// The files of a crate's `src`, those of its tests left out.
fn sources(name: &str) -> Vec<Source> {
    let directory = directory(name);
    let mut folders = vec![directory.join("src")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let below = path.strip_prefix(&directory).expect("below the crate");
                let below = format!("{name}/{}", below.display());
                let is_test = below.contains("/tests/") || below.ends_with("tests.rs");
                if !is_test {
                    let text = fs::read_to_string(&path).expect("text");
                    found.push(Source { path: below, text });
                }
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!found.is_empty(), "{name} has no sources");
    found
}

fn all_sources() -> Vec<Source> {
    let crates = SHIPPED.iter().chain(&TOOLS);
    crates.flat_map(|name| sources(name)).collect()
}

/// The crates of this workspace that a crate needs to be built.
fn dependencies(name: &str) -> BTreeSet<String> {
    let manifest = fs::read_to_string(directory(name).join("Cargo.toml")).expect("a manifest");
    let mut section = String::new();
    let mut found = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line.to_owned();
        } else if section.ends_with("dependencies]")
            && !section.contains("dev-")
            && let Some(dependency) = line.split(['.', ' ', '=']).next()
            && dependency.starts_with("bowline")
        {
            found.insert(dependency.to_owned());
        }
    }
    found
}

#[test]
fn arrows_between_crates_point_down() {
    let floor: BTreeMap<_, _> = SHIPPED.iter().zip(0..).collect();
    for (name, floor_of_it) in &floor {
        for dependency in dependencies(name) {
            match floor.get(&&dependency[..]) {
                Some(below) if below < floor_of_it => {}
                Some(_) => panic!("{name} uses {dependency}, which does not stand below it"),
                None => panic!("{name} is shipped and uses {dependency}, a tool"),
            }
        }
    }
    let known = SHIPPED.iter().chain(&TOOLS).map(|name| directory(name));
    // A workspace of its own, with a target for each decoder.
    let known: BTreeSet<_> = known.chain([root().join("tools/fuzz")]).collect();
    for folder in ["crates", "tools"] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let is_known = known.contains(&path);
            assert!(is_known, "on which floor is {}?", path.display());
        }
    }
}

#[test]
fn no_circle_of_imports_has_more_than_three_files() {
    let mut excused: BTreeSet<&str> = CIRCLES.iter().map(|(name, ..)| *name).collect();
    let mut too_large = Vec::new();
    for name in SHIPPED.iter().chain(&TOOLS) {
        let most = CIRCLES.iter().find(|(other, ..)| other == name);
        let most = most.map_or(CIRCLE_FILES_MAX, |(_, files, _)| *files);
        for circle in imports::circles(&sources(name)) {
            if circle.len() > CIRCLE_FILES_MAX {
                excused.remove(name);
            }
            if circle.len() > most {
                too_large.push(circle);
            }
        }
    }
    assert!(
        too_large.is_empty(),
        "these files import each other: {too_large:#?}"
    );
    assert!(excused.is_empty(), "no exceptions any more: {excused:?}");
}

#[test]
fn modules_form_no_circle() {
    let mut faults = String::new();
    for name in SHIPPED {
        let excused: Vec<_> = UPWARD.iter().filter(|(krate, ..)| *krate == name).collect();
        let is_upward = |arrow: &imports::Arrow, upward: &(&str, &str, &str, &str)| {
            (&arrow.from[..], &arrow.to[..]) == (upward.1, upward.2)
        };
        let arrows = imports::arrows_of_modules(&sources(name));
        let others = |but: Option<&(&str, &str, &str, &str)>| {
            let mut others = arrows.clone();
            others.retain(|arrow| {
                let mut left_out = excused.iter().filter(|one| Some(**one) != but);
                !left_out.any(|one| is_upward(arrow, one))
            });
            imports::circles_of_modules(&others)
        };
        for circle in others(None) {
            faults.push_str(&format!("{name}:\n"));
            for arrow in circle {
                let imports::Arrow { from, to, line } = arrow;
                faults.push_str(&format!("    {from} uses {to} in {line}\n"));
            }
        }
        for one in excused.iter().filter(|one| others(Some(one)).is_empty()) {
            let (_, from, to, _) = one;
            faults.push_str(&format!(
                "{name}: no exception any more: {from} uses {to}\n"
            ));
        }
    }
    assert!(faults.is_empty(), "these modules use each other:\n{faults}");
}

#[test]
fn openraft_is_named_in_one_folder() {
    for name in SHIPPED.iter().chain(&TOOLS) {
        let manifest = fs::read_to_string(directory(name).join("Cargo.toml")).expect("a manifest");
        let names_it = manifest.lines().any(|line| line.starts_with("openraft"));
        assert_eq!(names_it, *name == "bowline-cluster", "{name}");
    }
    for source in SHIPPED.iter().flat_map(|name| sources(name)) {
        let mut lines = source.text.lines().map(|line| line.split("//").next());
        let names_it = lines.any(|code| code.is_some_and(|code| code.contains("openraft")));
        let is_adapter = source.path.starts_with("bowline-cluster/src/raft/");
        assert!(is_adapter || !names_it, "{} names openraft", source.path);
    }
}

/// Each function with its number of lines, by indentation, as rustfmt leaves it.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start();
        let Some((before, after)) = trimmed.split_once("fn ") else {
            continue;
        };
        let is_head = before.split(' ').all(|word| {
            let word = word.split('(').next().unwrap_or_default();
            ["", "pub", "const", "async", "unsafe", "crate)"].contains(&word)
        });
        if !is_head || trimmed.ends_with(';') {
            continue;
        }
        let end = format!("{}}}", &line[..line.len() - trimmed.len()]);
        if let Some(length) = lines[number..].iter().position(|line| **line == end) {
            let name = after.split(['(', '<']).next().unwrap_or_default();
            found.push((name.to_owned(), length + 1));
        }
    }
    found
}

#[test]
fn files_and_functions_are_short() {
    let mut files: BTreeSet<&str> = LONG_FILES.iter().map(|(path, _)| *path).collect();
    let mut long: BTreeSet<&str> = LONG_FUNCTIONS.iter().map(|(name, _)| *name).collect();
    let mut counted = 0;
    let mut faults = Vec::new();
    let mut judge = |what: String, lines: usize, most: usize, is_excused: bool| {
        if is_excused != (lines > most) {
            faults.push(format!(
                "{what}: {lines} lines of at most {most}, excused: {is_excused}"
            ));
        }
    };
    // What measures and what tests may be as long as its lists are.
    for source in SHIPPED.iter().flat_map(|name| sources(name)) {
        let lines = source.text.lines().count();
        let is_excused = files.remove(&source.path[..]);
        judge(source.path.clone(), lines, FILE_LINES_MAX, is_excused);
        // Tests within the file come last.
        let code = source.text.split("#[cfg(test)]\nmod tests {").next();
        for (name, lines) in functions(code.unwrap_or_default()) {
            counted += 1;
            let name = format!("{} {name}", source.path);
            let is_excused = long.remove(&name[..]);
            judge(name, lines, FUNCTION_LINES_MAX, is_excused);
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(counted > 3_000, "only {counted} functions were found");
    assert!(files.is_empty(), "no exceptions any more: {files:?}");
    assert!(long.is_empty(), "no exceptions any more: {long:?}");
}

#[test]
fn modules_begin_with_their_heads() {
    for source in all_sources() {
        let has_head = source.text.starts_with("//! ");
        assert!(has_head, "{} does not say what it is for", source.path);
    }
}

/// The checks above find what they look for.
#[test]
fn a_fault_is_found() {
    let functions =
        functions("impl A {\n    pub(crate) fn long(&self) {\n        x();\n    }\n}\n");
    assert_eq!(functions, [("long".to_owned(), 3)]);
    let source = |path: &str, text: &str| Source {
        path: format!("c/src/{path}"),
        text: text.to_owned(),
    };
    let circles = imports::circles(&[
        source("lib.rs", "mod a;\nmod b;\nmod c;\n"),
        source("a/mod.rs", "use crate::b::{B, C as D};\n"),
        source("b.rs", "use super::c;\n"),
        source("c.rs", "fn f(a: crate::a::A) {}\n"),
        source(
            "d.rs",
            "// use crate::a::A;\nuse crate::a::A;\n#[cfg(test)]\nmod tests {\n use crate::d;\n}\n",
        ),
        source("e/mod.rs", "pub use inner::E;\n\nfn f(e: E) {}\n"),
        source("e/inner.rs", "use super::f;\n"),
        source("g/mod.rs", "pub use inner::G;\n\nfn f() {}\n"),
        source("g/inner.rs", "use super::f;\n"),
        source("h.rs", "use crate::g::G;\n"),
    ]);
    let expected = [
        &["c/src/a/mod.rs", "c/src/b.rs", "c/src/c.rs"][..],
        &["c/src/e/inner.rs", "c/src/e/mod.rs"],
    ];
    assert_eq!(circles, expected);
    let arrows = imports::arrows_of_modules(&[
        source(
            "lib.rs",
            "mod a;\nmod b;\nmod c;\nmod d;\n\npub use d::inner::Root as Known;\n",
        ),
        source("main.rs", "fn main() {\n    c::run();\n}\n"),
        source(
            "a/mod.rs",
            "use std::fmt;\n\npub use crate::{\n    b::B,\n    c::{self, C},\n};\n",
        ),
        source("a/inner.rs", "fn f() {\n    super::super::d::f();\n}\n"),
        source(
            "b.rs",
            "pub(in crate::c) fn g() {}\n#[cfg(test)]\nfn f(\n    x: crate::d::D,\n) {\n}\nuse crate::Known;\n",
        ),
        source(
            "c.rs",
            "#[cfg(test)]\nmod fake;\n// crate::a::A\nfn f(a: crate::a::C) {}\n",
        ),
        source("c/fake.rs", "use crate::d;\n"),
        source("d/mod.rs", "pub mod inner;\n\nuse inner::Root;\n"),
        source("d/inner.rs", "use super::super::b;\n"),
    ]);
    let lines: Vec<_> = arrows
        .iter()
        .map(|imports::Arrow { from, to, line }| format!("{from} {to} {line}"))
        .collect();
    let expected = [
        "a b c/src/a/mod.rs:4",
        "a c c/src/a/mod.rs:5",
        "a d c/src/a/inner.rs:2",
        "b d c/src/b.rs:7",
        "c a c/src/c.rs:4",
        "d b c/src/d/inner.rs:1",
    ];
    assert_eq!(lines, expected);
    let circles = imports::circles_of_modules(&arrows);
    let circles: Vec<Vec<_>> = circles
        .iter()
        .map(|circle| circle.iter().map(|arrow| &arrow.from[..]).collect())
        .collect();
    assert_eq!(circles, [["b", "d"], ["a", "c"]]);
    let names = public_items::public_names(
        "\npub use a::{A,\n    b::F};\npub use c::T as U;\n\npub struct V<T> {\n}\n",
    );
    assert!(names.contains("V"));
    let item = source(
        "a.rs",
        "pub struct A {\n    pub x: u8,\n    y: u8,\n}\n\npub struct B;\n\nimpl<T> A {\n    pub fn get(\n        \
         &self,\n    ) -> u8 {\n        1\n    }\n\n    fn own() {}\n}\n\nimpl Clone for A {\n}\n\npub enum F {\n    \
         One,\n}\n",
    );
    let items: Vec<_> = public_items::items(&[item], &names).into_iter().collect();
    let expected = [
        "A: fn get(&self) -> u8",
        "A: impl Clone",
        "A: struct A",
        "A: x: u8",
        "F: One",
        "F: enum F",
    ];
    assert_eq!(items, expected);
}

#[test]
fn modules_have_one_style() {
    let sources = all_sources();
    let folders: BTreeSet<&str> = sources
        .iter()
        .filter_map(|source| source.path.rsplit_once('/'))
        .map(|(folder, _)| folder)
        .collect();
    for source in &sources {
        let module = source.path.strip_suffix(".rs").expect("a source");
        let is_folder = folders.contains(module);
        assert!(!is_folder, "{module}.rs is {module}/mod.rs");
    }
}

fn public_list() -> PathBuf {
    directory("bowline-testing").join("tests/structure/public_items.txt")
}

/// Writes the list of public items anew.
const WRITE_VARIABLE: &str = "BOWLINE_WRITE_PUBLIC_ITEMS";

#[test]
fn public_items_are_those_that_are_listed() {
    let read = |path: &str| fs::read_to_string(root().join("crates").join(path)).expect("text");
    let of_library = public_items::public_names(&read("bowline/src/lib.rs"));
    let mut of_client = public_items::public_names(&read("bowline-client/src/lib.rs"));
    for module in ["auth.rs", "graph/mod.rs"] {
        let path = format!("bowline-client/src/{module}");
        of_client.extend(public_items::public_names(&read(&path)));
    }
    let parts = [
        (
            "bowline",
            &of_library,
            &[
                "bowline-types",
                "bowline-storage",
                "bowline-core",
                "bowline",
            ][..],
        ),
        ("bowline-client", &of_client, &["bowline-client"]),
    ];
    let mut list = String::new();
    for (name, names, crates) in parts {
        for item in crates
            .iter()
            .flat_map(|name| public_items::items(&sources(name), names))
        {
            list.push_str(&format!("{name} {item}\n"));
        }
    }
    let path = public_list();
    if std::env::var_os(WRITE_VARIABLE).is_some() {
        fs::write(&path, &list).expect("the list can be written");
    }
    let listed = fs::read_to_string(&path).unwrap_or_default();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (is, was) = (lines(&list), lines(&listed));
    let (new, gone): (Vec<_>, Vec<_>) =
        (is.difference(&was).collect(), was.difference(&is).collect());
    assert!(
        new.is_empty() && gone.is_empty(),
        "the public items have changed: tell users in CHANGELOG.md, and write the list by {WRITE_VARIABLE}=1\n\
         new: {new:#?}\ngone: {gone:#?}"
    );
    assert!(is.len() > 400, "only {} public items were found", is.len());
}

/// Public items without an example, and why.
const WITHOUT_EXAMPLE: &[(&str, &str)] = &[
    ("bowline text, which is not found", "a module, with a page"),
    ("bowline vfs, which is not found", "a module, with a page"),
    (
        "bowline CountersSnapshot, which is not found",
        "a macro writes it: a list of numbers",
    ),
    ("bowline-client Code, which is not found", "tonic's"),
];

#[test]
fn public_items_have_examples() {
    let mut excused: BTreeSet<&str> = WITHOUT_EXAMPLE.iter().map(|(name, _)| *name).collect();
    let mut without = Vec::new();
    let mut count = 0;
    // The crate, its public modules, and the crates from which it hands on items.
    let parts = [
        ("bowline-types", &["bowline-types/src/lib.rs"][..], &[][..]),
        (
            "bowline",
            &[
                "bowline/src/lib.rs",
                "bowline-core/src/text.rs",
                "bowline-storage/src/vfs/mod.rs",
            ],
            &["bowline-core", "bowline-storage", "bowline-types"],
        ),
        (
            "bowline-client",
            &[
                "bowline-client/src/lib.rs",
                "bowline-client/src/auth.rs",
                "bowline-client/src/graph/mod.rs",
            ],
            &["bowline-types"],
        ),
    ];
    for (name, pages, below) in parts {
        let page = |path: &&str| Source {
            path: (*path).to_owned(),
            text: fs::read_to_string(root().join("crates").join(path)).expect("text"),
        };
        let pages: Vec<Source> = pages.iter().map(page).collect();
        let crates = below.iter().chain([&name]).copied();
        let sources = crates.map(|name| (name, sources(name))).collect();
        let judged = examples::judge(name, &pages, &sources);
        count += judged.items;
        without.extend(judged.without);
    }
    without.retain(|item| !excused.remove(&item[..]));
    assert!(
        without.is_empty(),
        "{} items have no example: {without:#?}",
        without.len()
    );
    assert!(count > 500, "only {count} public items were found");
    assert!(excused.is_empty(), "no exceptions any more: {excused:?}");
}

#[test]
fn an_item_without_an_example_is_found() {
    let page = "//! ```\n//! use c::{A, b::Named};\n//! A::new().on_page();\n//! ```\n\npub use a::{A, Named, Own};\n\
                pub use a::bare;\npub use gone::Gone;\n";
    let methods = [
        "    pub fn new() -> A {\n    }\n",
        "    pub fn on_page(&self) {\n    }\n",
        "    /// ```\n    /// a.x();\n    /// ```\n    #[inline]\n    pub fn own_example(&self) {\n    }\n",
        "    /// ```no_run\n    /// a.y();\n    /// ```\n    pub async fn not_run(&self) {\n    }\n",
        "    pub fn of_type(&self) {\n    }\n",
        "    #[doc(hidden)]\n    pub fn hidden(&self) {\n    }\n",
        "    /// ```text\n    /// a.drawn();\n    /// ```\n    pub fn drawn(&self) {\n    }\n",
        "    pub fn in_a_hidden_line(&self) {\n    }\n",
        "    pub fn of_type_longer(&self) {\n    }\n",
    ];
    let source = Source {
        path: "c/src/a.rs".to_owned(),
        text: format!(
            "/// ```\n/// a.of_type();\n/// # a.in_a_hidden_line();\n/// ```\npub struct A;\n\nimpl A {{\n{}}}\n\n\
             pub enum Named {{\n}}\n\n/// It has none.\npub trait Own {{\n}}\n\npub fn bare() {{\n}}\n\nfn private() {{\n}}\n",
            methods.join("\n")
        ),
    };
    let with_macro = Source {
        path: "c/src/b.rs".to_owned(),
        text: "macro_rules! setting {\n    ($name:ident) => {\n        impl $name {\n            /// It has none.\n            \
               pub fn setting(self) {}\n        }\n    };\n}\n\nsetting!(A);\nsetting!(Named);\n"
            .to_owned(),
    };
    let page = Source {
        path: "c/src/lib.rs".to_owned(),
        text: page.to_owned(),
    };
    let sources = BTreeMap::from([("c", vec![source, with_macro])]);
    let judged = examples::judge("c", &[page], &sources);
    let expected = [
        "c A::drawn",
        "c A::in_a_hidden_line",
        "c A::of_type_longer",
        "c A::setting",
        "c Gone, which is not found",
        "c Named::setting",
        "c Own",
        "c bare",
    ];
    let without: Vec<_> = judged.without.iter().collect();
    assert_eq!(without, expected);
    assert_eq!(judged.items, 14);
}

/// Crates that users do not name, but for what the library hands on.
const INNER: [&str; 6] = [
    "bowline-storage",
    "bowline-core",
    "bowline-replica",
    "bowline-cluster",
    "bowline-server",
    "bowline-load",
];

/// Public functions without a caller in another crate, and why.
const UNCALLED: &[(&str, &str)] = &[];

/// Every word of the files below a folder.
fn words_below(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.append(&mut words_below(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).expect("text");
            let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            found.extend(words.map(str::to_owned));
        }
    }
    found
}

#[test]
fn public_functions_have_callers_outside() {
    let mut uncalled: BTreeSet<&str> = UNCALLED.iter().map(|(name, _)| *name).collect();
    let mut faults = Vec::new();
    let crates = SHIPPED.iter().chain(&TOOLS);
    // Not this test, which names exceptions.
    let testing = "bowline-testing";
    let of_testing = (testing, directory(testing).join("src"));
    let crates = crates
        .filter(|name| **name != testing)
        .map(|name| (*name, directory(name)));
    let folders = crates.chain([of_testing]);
    let of_crates: BTreeMap<_, _> = folders
        .map(|(name, folder)| (name, words_below(&folder)))
        .collect();
    let listed = fs::read_to_string(public_list()).expect("the list of public items");
    let of_fuzzing = words_below(&root().join("tools/fuzz/targets"));
    for name in INNER {
        let tests = words_below(&directory(name).join("tests"));
        let is_outside = |function: &str| {
            let others = of_crates.iter().filter(|(other, _)| **other != name);
            others
                .map(|(_, words)| words)
                .chain([&of_fuzzing, &tests])
                .any(|words| words.contains(function))
        };
        for source in sources(name) {
            let code = source.text.split("#[cfg(test)]\nmod tests {").next();
            for line in code.unwrap_or_default().lines() {
                let item = line.trim_start().strip_prefix("pub ").unwrap_or_default();
                let item = item
                    .trim_start_matches("const ")
                    .trim_start_matches("async ");
                let Some(rest) = item.strip_prefix("fn ") else {
                    continue;
                };
                let function = rest.split(['(', '<']).next().unwrap_or_default();
                let is_handed_on = listed.contains(&format!(" fn {function}("));
                if !is_handed_on && !is_outside(function) && !uncalled.remove(function) {
                    faults.push(format!("{}: {function}", source.path));
                }
            }
        }
    }
    assert!(
        faults.is_empty(),
        "only their own crate calls them: {faults:#?}"
    );
    assert!(uncalled.is_empty(), "no exceptions any more: {uncalled:?}");
}
