//! The catalog of mutants: the files of `catalog/`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde::Deserialize;

/// All mutants, in the order of their files' names and their places there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Catalog {
    #[serde(default, rename = "mutant")]
    pub(crate) mutants: Vec<Mutant>,
}

/// A bug.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutant {
    /// What `BOWLINE_MUTANT` is set to.
    pub(crate) name: String,
    /// What is wrong with it, in a sentence.
    pub(crate) bug: String,
    /// Where it is put in.
    #[serde(rename = "edit")]
    pub(crate) edits: Vec<Edit>,
    /// The tests that must fail, each for itself.
    pub(crate) caught_by: Vec<Test>,
    /// Whether a test that does not end counts as one that failed.
    #[serde(default)]
    pub(crate) may_hang: bool,
}

/// A change of a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    /// Its path from the root of the workspace.
    pub(crate) file: String,
    /// Occurs in it exactly once.
    pub(crate) find: String,
    /// What stands there instead. `MUTANT` in it is true when the bug is switched on, so it holds
    /// the right code as well.
    pub(crate) replace: String,
}

/// A test: `package binary path`, as in `bowline crash keys_survive_any_crash`. The binary of a
/// library's own tests is `lib`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Test {
    pub(crate) package: String,
    pub(crate) binary: String,
    pub(crate) path: String,
}

impl Test {
    /// The name of its function.
    pub(crate) fn function(&self) -> &str {
        self.path.rsplit("::").next().unwrap_or(&self.path)
    }
}

impl TryFrom<String> for Test {
    type Error = String;

    fn try_from(text: String) -> Result<Test, String> {
        let words: Vec<&str> = text.split(' ').collect();
        let [package, binary, path] = words[..] else {
            return Err(format!("a test is `package binary path`, not `{text}`"));
        };
        Ok(Test {
            package: package.to_owned(),
            binary: binary.to_owned(),
            path: path.to_owned(),
        })
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.package, self.binary, self.path)
    }
}

impl Catalog {
    /// Reads all files of the folder.
    pub(crate) fn load(folder: &Path) -> Result<Catalog, String> {
        let mut files = Vec::new();
        let entries = std::fs::read_dir(folder).map_err(|why| at(folder, &why))?;
        for entry in entries {
            files.push(entry.map_err(|why| at(folder, &why))?.path());
        }
        files.sort();
        let mut all = Catalog::default();
        for file in files {
            let text = std::fs::read_to_string(&file).map_err(|why| at(&file, &why))?;
            let part: Catalog = toml::from_str(&text).map_err(|why| at(&file, &why))?;
            all.mutants.extend(part.mutants);
        }
        let mut names = BTreeSet::new();
        for mutant in &all.mutants {
            if !names.insert(mutant.name.as_str()) {
                return Err(format!("two mutants are named {}", mutant.name));
            }
            if mutant.caught_by.is_empty() || mutant.edits.is_empty() {
                return Err(format!("{} has no test or no edit", mutant.name));
            }
        }
        Ok(all)
    }

    /// Every named test once, by package and binary.
    pub(crate) fn tests(&self) -> BTreeMap<(&str, &str), BTreeSet<&str>> {
        let mut tests: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for test in self.mutants.iter().flat_map(|mutant| &mutant.caught_by) {
            let binary = (test.package.as_str(), test.binary.as_str());
            tests.entry(binary).or_default().insert(test.path.as_str());
        }
        tests
    }
}

fn at(path: &Path, why: &dyn fmt::Display) -> String {
    format!("{}: {why}", path.display())
}
