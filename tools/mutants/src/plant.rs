//! Copies the source, with the bugs in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::catalog::{Catalog, Edit, Mutant, Test};

/// What of the workspace is copied: all that the tests are built from.
const PARTS: [&str; 10] = [
    "Cargo.toml",
    "Cargo.lock",
    "README.md",
    "crates",
    "docs",
    "examples",
    "tools/bench",
    "tools/mutants",
    "tools/simulation",
    "tools/testing",
];

/// The sign in an edit for "the bug is switched on".
const SIGN: &str = "MUTANT";

/// Copies the workspace to `to` with all bugs planted. Files that are the same already are left
/// alone, so that the next build need not compile them again.
pub(crate) fn plant(root: &Path, to: &Path, catalog: &Catalog) -> Result<(), String> {
    let changed = changed_files(root, catalog)?;
    let mut files = Vec::new();
    for part in PARTS {
        list(root, Path::new(part), &mut files).map_err(|why| format!("{part}: {why}"))?;
    }
    let mut old = Vec::new();
    for part in PARTS {
        if to.join(part).exists() {
            list(to, Path::new(part), &mut old).map_err(|why| format!("{part}: {why}"))?;
        }
    }
    for gone in old.iter().filter(|file| !files.contains(file)) {
        fs::remove_file(to.join(gone)).map_err(|why| format!("{}: {why}", gone.display()))?;
    }
    for file in files {
        let content = match changed.get(&file) {
            Some(text) => Ok(text.clone().into_bytes()),
            None if file == Path::new("Cargo.toml") => {
                let text = fs::read_to_string(root.join(&file));
                text.and_then(|text| without_lints(&text))
                    .map(String::into_bytes)
            }
            None => fs::read(root.join(&file)),
        };
        content
            .and_then(|content| write_if_new(&to.join(&file), &content))
            .map_err(|why| format!("{}: {why}", file.display()))?;
    }
    Ok(())
}

/// The files that bugs are planted in, as they then are.
///
/// # Errors
/// Names every edit that has no place.
pub(crate) fn changed_files(
    root: &Path,
    catalog: &Catalog,
) -> Result<BTreeMap<PathBuf, String>, String> {
    let mut files: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut problems = Vec::new();
    for mutant in &catalog.mutants {
        for edit in &mutant.edits {
            let file = PathBuf::from(&edit.file);
            let text = match files.get(&file) {
                Some(text) => Ok(text.clone()),
                None => fs::read_to_string(root.join(&file))
                    .map_err(|why| format!("{}: {}: {why}", mutant.name, edit.file)),
            };
            match text.and_then(|text| apply(mutant, edit, &text)) {
                Ok(text) => {
                    files.insert(file, text);
                }
                Err(why) => problems.push(why),
            }
        }
    }
    match problems.is_empty() {
        true => Ok(files),
        false => Err(problems.join("\n")),
    }
}

/// Checks the catalog against the source without a build: every edit has its place, and every named
/// test is a function of the source. A rename breaks both, and the compiler sees neither.
///
/// # Errors
/// Names everything that is not there.
pub(crate) fn check(root: &Path, catalog: &Catalog) -> Result<(), String> {
    let mut problems = Vec::new();
    problems.extend(changed_files(root, catalog).err());
    let functions = functions(root).map_err(|why| format!("crates and tools: {why}"))?;
    for mutant in &catalog.mutants {
        let is_missing = |test: &&Test| !functions.contains(test.function());
        problems.extend(mutant.caught_by.iter().filter(is_missing).map(|test| {
            format!(
                "{}: no function in crates and tools has the name of its test; mend the entry in the \
                 catalog:\n{test}",
                mutant.name
            )
        }));
        let has_target = |test: &&Test| {
            let tests = folder_of(root, &test.package).join("tests");
            let binary = &test.binary;
            binary == "lib"
                || tests.join(binary).is_dir()
                || tests.join(format!("{binary}.rs")).is_file()
        };
        let without = mutant.caught_by.iter().filter(|test| !has_target(test));
        problems.extend(without.map(|test| {
            format!(
                "{}: its test is in no test target of its package; mend the entry in the catalog:\n{test}",
                mutant.name
            )
        }));
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(problems.join("\n")),
    }
}

/// The folder of a package.
pub(crate) fn folder_of(root: &Path, package: &str) -> PathBuf {
    let shipped = root.join("crates").join(package);
    match package.strip_prefix("bowline-") {
        Some(tool) if !shipped.exists() => root.join("tools").join(tool),
        _ => shipped,
    }
}

/// The names of all functions in `crates` and in the tools that have tests of bugs.
fn functions(root: &Path) -> io::Result<BTreeSet<String>> {
    let mut files = Vec::new();
    list(root, Path::new("crates"), &mut files)?;
    list(root, Path::new("tools/simulation"), &mut files)?;
    let mut names = BTreeSet::new();
    for file in files {
        if file.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(root.join(file))?;
            let after = text.split("fn ").skip(1);
            names.extend(after.filter_map(|code| Some(code.split_once('(')?.0.to_owned())));
        }
    }
    Ok(names)
}

fn apply(mutant: &Mutant, edit: &Edit, text: &str) -> Result<String, String> {
    let found = text.matches(&edit.find).count();
    if found != 1 {
        return Err(format!(
            "{}: its text stands {found} times in {}, expected once; mend the entry in the \
             catalog:\n{}",
            mutant.name, edit.file, edit.find
        ));
    }
    if !edit.replace.contains(SIGN) {
        return Err(format!("{}: an edit without {SIGN}", mutant.name));
    }
    let switch = format!(
        "{{ static ON: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| \
         std::env::var_os(\"BOWLINE_MUTANT\").is_some_and(|name| name == \"{}\")); *ON }}",
        mutant.name
    );
    // In parentheses, since a block at the beginning of an expression is a statement.
    let replace = edit.replace.replace(SIGN, &format!("({switch})"));
    Ok(text.replacen(&edit.find, &replace, 1))
}

/// The workspace's manifest, so that nothing is said of style: a switch is written without regard to
/// it. As a flag of the compiler it would be one of every dependency, too, and have them compiled anew.
fn without_lints(manifest: &str) -> io::Result<String> {
    const TABLE: &str = "[workspace.lints.rust]\n";
    if manifest.matches(TABLE).count() != 1 {
        return Err(io::Error::other(format!("no table {TABLE}")));
    }
    Ok(manifest.replace(TABLE, &format!("{TABLE}warnings = \"allow\"\n")))
}

/// All files under `root/part`, as paths from `root`.
fn list(root: &Path, part: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if !root.join(part).is_dir() {
        files.push(part.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(root.join(part))? {
        list(root, &part.join(entry?.file_name()), files)?;
    }
    Ok(())
}

fn write_if_new(path: &Path, content: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(find: &str, replace: &str) -> Mutant {
        Mutant {
            name: "it".to_owned(),
            bug: String::new(),
            edits: vec![Edit {
                file: "file".to_owned(),
                find: find.to_owned(),
                replace: replace.to_owned(),
            }],
            caught_by: Vec::new(),
            may_hang: false,
        }
    }

    /// Source moves on. A mutant whose place is gone must be mended, not silently left out.
    #[test]
    fn every_mutant_of_the_catalog_finds_its_place() {
        let root = crate::root();
        let catalog = Catalog::load(&root.join("tools/mutants/catalog")).unwrap();
        assert!(catalog.mutants.len() >= 15, "{}", catalog.mutants.len());
        check(&root, &catalog).unwrap_or_else(|why| panic!("{why}"));
        let changed = changed_files(&root, &catalog).unwrap_or_else(|why| panic!("{why}"));
        for mutant in &catalog.mutants {
            let switch = format!("\"{}\"", mutant.name);
            assert!(changed.values().any(|text| text.contains(&switch)));
        }
    }

    /// The check names everything that is gone: a reader who mends one entry need not start it again to
    /// learn of the next.
    #[test]
    fn a_check_names_every_missing_place_and_test() {
        let root = crate::root();
        let mut catalog = Catalog::load(&root.join("tools/mutants/catalog")).unwrap();
        catalog.mutants.truncate(3);
        check(&root, &catalog).unwrap();
        catalog.mutants[0].edits[0].find.push_str("never_there");
        catalog.mutants[1].caught_by[0].path.push_str("_renamed");
        "never/there.rs".clone_into(&mut catalog.mutants[2].edits[0].file);
        let why = check(&root, &catalog).unwrap_err();
        for mutant in &catalog.mutants {
            assert!(why.contains(&mutant.name), "{why}");
        }
        assert!(
            why.contains("stands 0 times") && why.contains("_renamed"),
            "{why}"
        );
    }

    /// An invariant that no bug breaks is not known to be able to fail.
    #[test]
    fn every_invariant_is_broken_by_a_mutant() {
        let root = crate::root();
        let catalog = Catalog::load(&root.join("tools/mutants/catalog")).unwrap();
        let tests = catalog.tests();
        let broken = &tests[&("bowline", "invariants")];
        let mut names = BTreeSet::new();
        let mut files = Vec::new();
        let folder = root.join("crates/bowline/tests/invariants");
        list(&folder, Path::new(""), &mut files).unwrap();
        for file in files {
            let text = fs::read_to_string(folder.join(file)).unwrap();
            let after = text.split("#[test]\n").skip(1);
            names.extend(after.filter_map(|code| {
                let name = code.split_once("fn ")?.1.split_once('(')?.0;
                Some(name.to_owned())
            }));
        }
        assert_eq!(names.len(), 50, "{names:?}");
        let is_broken = |name: &&String| {
            let end = format!("::{name}");
            broken.iter().any(|path| path.ends_with(&end))
        };
        let unbroken: Vec<_> = names.iter().filter(|name| !is_broken(name)).collect();
        assert!(unbroken.is_empty(), "no mutant breaks {unbroken:?}");
    }

    #[test]
    fn a_place_must_be_there_once_and_the_change_behind_its_switch() {
        let plant = |find, replace| {
            let mutant = mutant(find, replace);
            apply(&mutant, &mutant.edits[0], "a; b; b;")
        };
        let planted = plant("a;", "if !MUTANT { a; }").unwrap();
        assert!(planted.starts_with("if !({"), "{planted}");
        assert!(planted.ends_with("a; } b; b;"), "{planted}");
        assert!(plant("b;", "if !MUTANT { b; }").unwrap_err().contains('2'));
        assert!(plant("c;", "if !MUTANT { c; }").unwrap_err().contains('0'));
        assert!(plant("a;", "").is_err());
    }
}
