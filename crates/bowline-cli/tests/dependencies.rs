//! What the dependencies may be: licences and sources, held to `deny.toml` without `cargo deny`.
//!
//! `cargo deny` looks for advisories besides, but it takes longer to build than all tests to run, so a machine
//! may be without it. This test needs `cargo metadata` alone, and no network.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A list of texts in `deny.toml`.
fn listed(table: &str, key: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let file: toml::Table = text.parse().unwrap();
    let list = file[table][key].as_array().unwrap();
    let list: BTreeSet<String> = list
        .iter()
        .map(|one| one.as_str().unwrap().to_owned())
        .collect();
    assert!(!list.is_empty(), "{table}.{key}");
    list
}

fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["metadata", "--locked", "--offline", "--format-version", "1"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().clone();
    assert!(packages.len() > 100, "{}", packages.len());
    packages
}

/// Whether a licence expression can be met with the allowed ones. `AND` binds more than `OR`; `/` is an old `OR`.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let expression = expression.replace('/', " OR ").replace('(', " ( ");
    let expression = expression.replace(')', " ) ");
    let mut words = expression.split_whitespace().peekable();
    let met = any(&mut words, allowed);
    assert_eq!(words.next(), None, "{expression}");
    met
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut met = all(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        met |= all(words, allowed);
    }
    met
}

fn all(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut met = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        met &= one(words, allowed);
    }
    met
}

fn one(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let word = words.next().unwrap_or_default();
    if word == "(" {
        let met = any(words, allowed);
        assert_eq!(words.next(), Some(")"));
        return met;
    }
    match words.next_if_eq(&"WITH") {
        Some(_) => {
            let exception = words.next().unwrap_or_default();
            allowed.contains(&format!("{word} WITH {exception}"))
        }
        None => allowed.contains(word),
    }
}

#[test]
fn licences_are_those_that_deny_toml_allows() {
    let allowed = listed("licenses", "allow");
    for package in packages() {
        let licence = package["license"].as_str().unwrap_or_default();
        assert!(
            is_allowed(licence, &allowed),
            "{} {} is under {licence:?}, which deny.toml does not allow",
            package["name"],
            package["version"]
        );
    }
    // The judge itself.
    for (expression, is_met) in [
        ("MIT OR GPL-3.0-only", true),
        ("GPL-3.0-only/MIT", true),
        ("MIT AND GPL-3.0-only", false),
        ("(MIT OR GPL-3.0-only) AND Zlib", true),
        ("(GPL-3.0-only OR AGPL-3.0-only) AND MIT", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("MIT WITH LLVM-exception", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), is_met, "{expression}");
    }
}

#[test]
fn sources_are_this_workspace_and_crates_io() {
    let allowed = listed("sources", "allow-registry");
    for package in packages() {
        let Some(source) = package["source"].as_str() else {
            let path = package["manifest_path"].as_str().unwrap();
            let root = root().canonicalize().unwrap();
            assert!(Path::new(path).starts_with(&root), "{path}");
            continue;
        };
        let registry = source.strip_prefix("registry+").unwrap_or(source);
        assert!(allowed.contains(registry), "{}: {source}", package["name"]);
    }
}
