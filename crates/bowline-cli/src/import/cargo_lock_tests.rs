//! Lock files of every version, and what is wrong with some.

use std::collections::BTreeSet;

use super::*;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn events(file: &str) -> Vec<Event> {
    CargoLock::read(file.as_bytes(), &Options::default())
        .expect("a slice does not fail")
        .collect()
}

/// Items and refusals in one line each, without the attributes.
fn shown(file: &str) -> Vec<String> {
    let show = |event: &Event| match event {
        Event::Item {
            at,
            item: Item::Block(block),
        } => format!("{at} {}", block.block),
        Event::Item {
            at,
            item: Item::Edge(edge),
        } => {
            assert_eq!(edge.kind, "depends_on");
            format!("{at} {} -> {}", edge.source, edge.target)
        }
        Event::Item { item, .. } => panic!("{item:?}"),
        Event::Refused(refusal) => refusal.to_string(),
    };
    events(file).iter().map(show).collect()
}

fn refusals(file: &str) -> Vec<String> {
    let refused = |event| match event {
        Event::Refused(refusal) => Some(refusal.to_string()),
        Event::Item { .. } => None,
    };
    events(file).into_iter().filter_map(refused).collect()
}

fn attributes_of(file: &str, name: &str) -> Attributes {
    let found = events(file).into_iter().find_map(|event| match event {
        Event::Item {
            item: Item::Block(block),
            ..
        } if block.block.to_string() == name => {
            assert_eq!(block.kinds, "package");
            assert!(!block.if_absent);
            Some(block.attributes)
        }
        _ => None,
    });
    found.unwrap_or_else(|| panic!("{name} is not there"))
}

/// One package of a lock file.
fn package(name: &str, version: &str, source: &str, dependencies: &[&str]) -> String {
    let mut text = format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n");
    if !source.is_empty() {
        text.push_str(&format!("source = \"{source}\"\n"));
    }
    text.push_str("dependencies = [\n");
    for dependency in dependencies {
        text.push_str(&format!(" \"{dependency}\",\n"));
    }
    text.push_str("]\n\n");
    text
}

#[test]
fn a_version_4_file_gives_blocks_and_then_edges() {
    let file = format!(
        "version = 4\n\n[[package]]\nname = \"app\"\nversion = \"0.1.0\"\ndependencies = [\n \
         \"libc\",\n]\n\n[[package]]\nname = \"libc\"\nversion = \"0.2.1\"\nsource = \
         \"{CRATES_IO}\"\nchecksum = \"a1b2\"\n"
    );
    assert_eq!(
        shown(&file),
        [
            "3:1 app@0.1.0",
            "10:1 libc@0.2.1",
            "7:2 app@0.1.0 -> libc@0.2.1"
        ]
    );
    let attributes = attributes_of(&file, "libc@0.2.1");
    let expected = [
        ("checksum", "a1b2"),
        ("label", "libc@0.2.1"),
        ("name", "libc"),
        ("source", CRATES_IO),
        ("version", "0.2.1"),
    ];
    assert!(
        attributes
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_text().expect("a text")))
            .eq(expected)
    );
    assert_eq!(attributes_of(&file, "app@0.1.0").len(), 3);
}

#[test]
fn this_repository_is_a_graph_without_refusals() {
    let file = include_str!("../../../../Cargo.lock");
    let mut blocks = BTreeSet::new();
    let mut edges = Vec::new();
    for event in events(file) {
        match event {
            Event::Item {
                item: Item::Block(block),
                ..
            } => {
                assert!(edges.is_empty(), "a block after an edge");
                assert!(blocks.insert(block.block.clone()), "{} twice", block.block);
            }
            Event::Item {
                item: Item::Edge(edge),
                ..
            } => edges.push(edge),
            other => panic!("{other:?}"),
        }
    }
    // Counted in the text by other means than the parser's.
    let packages = file.matches("[[package]]").count();
    let dependencies = file.lines().filter(|line| line.starts_with(" \"")).count();
    assert_eq!((blocks.len(), edges.len()), (packages, dependencies));
    assert!(packages > 50);
    let known = |block: &BlockRef| blocks.contains(block);
    assert!(
        edges
            .iter()
            .all(|edge| known(&edge.source) && known(&edge.target))
    );
    let libc = |block: &BlockRef| block.to_string().starts_with("libc@");
    assert!(
        edges.iter().any(|edge| libc(&edge.target)),
        "nothing depends on libc"
    );
}

#[test]
fn a_version_1_file_has_its_checksums_apart_and_dependencies_in_full() {
    let file = format!(
        "{}{}[metadata]\n\"checksum libc 0.2.1 ({CRATES_IO})\" = \"a1b2\"\n\"checksum app 0.1.0 \
         (x)\" = \"<none>\"\n",
        package("app", "0.1.0", "x", &[&format!("libc 0.2.1 ({CRATES_IO})")]),
        package("libc", "0.2.1", CRATES_IO, &[]),
    );
    assert_eq!(shown(&file)[2], "6:2 app@0.1.0 -> libc@0.2.1");
    assert_eq!(attributes_of(&file, "libc@0.2.1")["checksum"], "a1b2");
    assert!(!attributes_of(&file, "app@0.1.0").contains_key("checksum"));
}

#[test]
fn the_oldest_files_have_a_root() {
    let file = format!(
        "[root]\nname = \"app\"\nversion = \"0.1.0\"\ndependencies = [\n \"libc 0.2.1 \
         ({CRATES_IO})\",\n]\n\n{}",
        package("libc", "0.2.1", CRATES_IO, &[])
    );
    assert_eq!(
        shown(&file),
        [
            "1:1 app@0.1.0",
            "8:1 libc@0.2.1",
            "5:2 app@0.1.0 -> libc@0.2.1"
        ]
    );
}

#[test]
fn versions_and_sources_tell_dependencies_apart() {
    let git = "git+https://example.org/syn?branch=main#0123456";
    let file = [
        package(
            "app",
            "0.1.0",
            "",
            &["syn 1.0.0", "syn 2.0.0", "both 1.0.0"],
        ),
        package("both", "1.0.0", "", &[]),
        package(
            "both",
            "1.0.0",
            CRATES_IO,
            &["syn 2.0.0 (git+https://example.org/syn?branch=main)"],
        ),
        package(
            "syn",
            "1.0.0",
            CRATES_IO,
            &[&format!("both 1.0.0 ({CRATES_IO})")],
        ),
        package("syn", "2.0.0", git, &[&format!("syn 2.0.0 ({git})")]),
    ]
    .concat();
    let lines = shown(&file);
    let edges: Vec<&str> = lines
        .iter()
        .filter(|line| line.contains(" -> "))
        .map(|line| line.split_once(' ').unwrap().1)
        .collect();
    let from_registry = format!("both@1.0.0 ({CRATES_IO})");
    assert_eq!(
        edges,
        [
            "app@0.1.0 -> syn@1.0.0".to_owned(),
            "app@0.1.0 -> syn@2.0.0".to_owned(),
            // The local one has no source to write.
            "app@0.1.0 -> both@1.0.0".to_owned(),
            // The commit may be left out.
            format!("{from_registry} -> syn@2.0.0"),
            format!("syn@1.0.0 -> {from_registry}"),
            "syn@2.0.0 -> syn@2.0.0".to_owned(),
        ]
    );
    assert_eq!(
        attributes_of(&file, &from_registry)[LABEL_ATTRIBUTE].as_text(),
        Some(from_registry.as_str())
    );
    assert_eq!(
        attributes_of(&file, "both@1.0.0")[LABEL_ATTRIBUTE],
        "both@1.0.0"
    );
}

#[test]
fn names_do_not_depend_on_the_order_of_packages() {
    let a = package("both", "1.0.0", "git+https://a", &[]);
    let b = package("both", "1.0.0", "git+https://b", &[]);
    let names = |file: String| -> BTreeSet<String> {
        shown(&file)
            .iter()
            .map(|line| line.split_once(' ').unwrap().1.to_owned())
            .collect()
    };
    assert_eq!(names(format!("{a}{b}")), names(format!("{b}{a}")));
    assert_eq!(names(format!("{a}{b}")).len(), 2);
}

#[test]
fn what_does_not_resolve_is_refused_where_it_stands() {
    let file = [
        package(
            "app",
            "0.1.0",
            "",
            &["absent", "syn", "syn 3.0.0", "two 1.0.0", "syn 1.0.0 x"],
        ),
        package(
            "syn",
            "1.0.0",
            CRATES_IO,
            &["syn 1.0.0 (git+https://elsewhere)", "syn 2.0.0"],
        ),
        package("syn", "2.0.0", CRATES_IO, &[]),
        package("two", "1.0.0", "git+https://a", &[]),
        package("two", "1.0.0", "git+https://b", &[]),
    ]
    .concat();
    assert_eq!(
        refusals(&file),
        [
            "line 5, column 2: dependency \"absent\" is not a package of this file",
            "line 6, column 2: dependency \"syn\" is ambiguous: the file has 2 versions of it",
            "line 7, column 2: dependency \"syn 3.0.0\" is not a package of this file",
            "line 8, column 2: dependency \"two 1.0.0\" is ambiguous: the file has it from 2 \
             sources",
            "line 9, column 2: \"syn 1.0.0 x\" is not `name`, `name version` or `name version \
             (source)`",
            "line 17, column 2: dependency \"syn 1.0.0 (git+https://elsewhere)\" is not a package \
             of this file",
        ]
    );
    assert_eq!(shown(&file).len(), 5 + 1 + 6, "the rest is there");
}

#[test]
fn a_malformed_package_is_refused_and_the_others_are_read() {
    let file = "version = 3\n\n[[package]]\nname = 7\nversion = \"\"\n\n[[package]]\nname = \
                \"b\"\n\n[[package]]\nname = \"c\"\nversion = \"1.0.0\"\ndependencies = [ true, \
                \"c\" ]\n\n[[package]]\nname = \"d\"\nversion = \"1.0.0\"\ndependencies = \
                \"c\"\n\n[[package]]\nname = \"c\"\nversion = \"1.0.0\"\n";
    assert_eq!(
        shown(file),
        [
            "line 4, column 8: `name` is a string, not an integer",
            "line 5, column 11: `version` is empty",
            "line 7, column 1: the package has no `version`",
            "line 13, column 18: a dependency is a string, not a boolean",
            "line 18, column 16: `dependencies` is a list, not a string",
            "line 20, column 1: package c 1.0.0 stands here again, after line 10",
            "10:1 c@1.0.0",
            "15:1 d@1.0.0",
            "13:24 c@1.0.0 -> c@1.0.0",
        ]
    );
}

#[test]
fn what_is_no_lock_file_is_refused_as_a_whole() {
    let conflict = "version = 4\n\n<<<<<<< HEAD\n[[package]]\nname = \"a\"\n";
    let conflict = refusals(conflict);
    assert_eq!(conflict.len(), 1);
    assert!(
        conflict[0].starts_with("line 3, column 9: not TOML: "),
        "{conflict:?}"
    );
    for (file, start) in [
        (
            "[package]\nname = \"a\"\n",
            "line 1, column 1: `package` is not a list",
        ),
        (
            "version = 5\n",
            "line 1, column 11: the lock file's version is not one of 1 to 4",
        ),
        (
            "version = \"4\"\n",
            "line 1, column 11: the lock file's version",
        ),
        (
            "version = 99999999999999999999\n",
            "line 1, column 11: the lock file's version",
        ),
        ("# nothing\n", "line 1, column 1: no packages"),
        ("a = \"é\" b\n", "line 1, column 9: not TOML"),
    ] {
        let found = shown(file);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(start), "{found:?}");
    }
    let events: Vec<Event> =
        CargoLock::read(b"a = 1\n# \xC3\xA9\xFF".as_slice(), &Options::default())
            .unwrap()
            .collect();
    let at = Position { line: 2, column: 4 };
    assert_eq!(
        events,
        [Event::Refused(Refusal {
            at,
            message: "not UTF-8".into()
        })]
    );
}

#[test]
fn a_file_over_the_limit_is_refused_without_parsing_it() {
    let input = io::BufReader::new(io::repeat(b'#'));
    let events: Vec<Event> = CargoLock::read(input, &Options::default())
        .unwrap()
        .collect();
    let [Event::Refused(refusal)] = events.as_slice() else {
        panic!("{} events", events.len())
    };
    assert_eq!(
        refusal.to_string(),
        "line 1, column 1: the file is larger than 64 MiB"
    );
}

#[test]
fn options_choose_the_kinds() {
    let options = Options {
        block_kind: Some("crate".into()),
        edge_kind: Some("uses".into()),
        ..Options::default()
    };
    let file = package("a", "1.0.0", "", &["a"]);
    let kinds: Vec<String> = CargoLock::read(file.as_bytes(), &options)
        .unwrap()
        .map(|event| match event {
            Event::Item {
                item: Item::Block(block),
                ..
            } => block.kinds.to_string(),
            Event::Item {
                item: Item::Edge(edge),
                ..
            } => edge.kind,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["crate", "uses"]);
}

#[test]
fn positions_count_characters_across_strides() {
    let text = format!("é\n{}→x", "ü".repeat(3 * STRIDE_BYTES));
    let positions = Positions::new(text.as_bytes());
    let x = text.len() - 1;
    let column = 3 * STRIDE_BYTES as u64 + 2;
    assert_eq!(positions.at(x), Position { line: 2, column });
    assert_eq!(
        positions.at(x + 1),
        Position {
            line: 2,
            column: column + 1
        }
    );
    assert_eq!(
        positions.at(usize::MAX),
        Position {
            line: 2,
            column: column + 1
        }
    );
    assert_eq!(positions.at(0), Position { line: 1, column: 1 });
    assert_eq!(positions.at(2), Position { line: 1, column: 2 });
    assert_eq!(positions.at(3), Position { line: 2, column: 1 });
}

/// Found while fuzzing: every dependency repeated the whole name of its package, so a file of
/// 1 MiB could ask for 100 GiB of names.
#[test]
fn a_package_with_an_endless_name_is_refused() {
    let long = "x".repeat(TEXT_MAX_BYTES + 1);
    let fits = "y".repeat(TEXT_MAX_BYTES);
    for (name, version, source) in [
        (long.as_str(), "1.0.0", ""),
        ("a", long.as_str(), ""),
        ("a", "1.0.0", long.as_str()),
    ] {
        let file = package(name, version, source, &[]) + &package(&fits, "1.0.0", &fits, &[]);
        let refused = refusals(&file);
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(
            refused[0].contains("is longer than 512 bytes"),
            "{refused:?}"
        );
        assert_eq!(events(&file).len(), 2, "the other one is imported");
    }
}

/// Found while fuzzing: a dependency was looked for among all sources of its version, one by one.
/// With as many dependencies as sources, this file took minutes.
#[test]
fn many_sources_of_one_version_are_resolved_at_once() {
    const COUNT: usize = 150_000;
    let mut file = "version = 4\n".to_owned();
    for number in 0..COUNT {
        file += &format!(
            "[[package]]\nname=\"a\"\nversion=\"1\"\nsource=\"git+{number}#c\"\n\
             dependencies=[\"a 1 (git+{})\"]\n",
            (number + 1) % COUNT
        );
    }
    let started = std::time::Instant::now();
    let events = events(&file);
    // A second or two; it was several minutes.
    let seconds = started.elapsed().as_secs();
    assert!(seconds < 60, "{seconds} seconds");
    assert_eq!(events.len(), 2 * COUNT);
    let edges = events.iter().filter(|event| {
        matches!(
            event,
            Event::Item {
                item: Item::Edge(_),
                ..
            }
        )
    });
    assert_eq!(edges.count(), COUNT);
}
