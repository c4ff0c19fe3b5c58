//! Puts known bugs into Bowline, one at a time, and sees that the tests named for each catch it: a
//! test that passes with the bug in place proves nothing.
//!
//! ```text
//! cargo run -p bowline-mutants                     a sample of 24, by a seed that is printed
//! cargo run -p bowline-mutants -- --seed 7         the sample of that seed
//! cargo run -p bowline-mutants -- --all            every mutant
//! cargo run -p bowline-mutants -- skip_the_flush   the mutants with this in their name
//! cargo run -p bowline-mutants -- --list           what there is
//! cargo run -p bowline-mutants -- --check          whether the source has every place and test
//! ```
//!
//! # How
//!
//! The bugs are in `catalog/*.toml`: each names a place in the source by its exact text, and what
//! stands there when the bug is in. The source is copied to `target/mutants/source`, with all the
//! bugs planted at once, each behind a switch that reads `BOWLINE_MUTANT` when it is first met. So
//! all of them cost one build (two with those of the test program `interleavings`, which is built as
//! `checks/interleavings` builds it), and the source that ships knows nothing of them.
//!
//! 1. *Control*: every named test runs with no bug switched on, in a small size, and must pass.
//!    Else the build itself is broken, and a failure would prove nothing.
//! 2. For each mutant, each of its tests runs in its ordinary size with the bug switched on. It
//!    must fail: by an assertion or a panic, or, where the catalog says so, by hanging. One that passes
//!    runs twice more, since threads that race meet a bug by chance.
//!
//! The exit code is 0 only if every mutant was caught by every test named for it.

mod catalog;
mod plant;
mod run;

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use catalog::Catalog;

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match work(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
    }
}

/// So many are in a sample, however many there are: each one more does not make the pipeline longer.
const SAMPLE: usize = 24;

/// What is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    is_list: bool,
    is_check: bool,
    is_all: bool,
    seed: Option<u64>,
    /// Parts of names.
    names: Vec<String>,
}

impl Wanted {
    fn from_arguments(arguments: &[String]) -> Result<Wanted, String> {
        let mut wanted = Wanted::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => wanted.is_list = true,
                "--check" => wanted.is_check = true,
                "--all" => wanted.is_all = true,
                "--seed" => {
                    let seed = arguments.next().and_then(|text| text.parse().ok());
                    let seed = seed.ok_or("--seed needs a number below 2^64")?;
                    wanted.seed = Some(seed);
                }
                flag if flag.starts_with('-') => {
                    return Err(format!(
                        "unknown flag {flag}: give parts of the names of mutants, --seed NUMBER, --all, \
                         --list or --check"
                    ));
                }
                name => wanted.names.push(name.to_owned()),
            }
        }
        Ok(wanted)
    }
}

/// Leaves a sample of the mutants, by the seed: those with the smallest hashes of seed and name.
fn sample(catalog: &mut Catalog, seed: u64) {
    let hash = |name: &str| {
        let mut hasher = DefaultHasher::new();
        (seed, name).hash(&mut hasher);
        hasher.finish()
    };
    let mut hashes: Vec<u64> = catalog.mutants.iter().map(|one| hash(&one.name)).collect();
    hashes.sort_unstable();
    hashes.truncate(SAMPLE);
    let Some(last) = hashes.last() else { return };
    catalog.mutants.retain(|mutant| hash(&mutant.name) <= *last);
}

/// Whether all mutants were caught.
fn work(arguments: &[String]) -> Result<bool, String> {
    let whole = Catalog::load(&root().join("tools/mutants/catalog"))?;
    let mut catalog = whole.clone();
    let wanted = Wanted::from_arguments(arguments)?;
    if wanted.is_check {
        plant::check(&root(), &whole)?;
        println!(
            "{} mutants have their places and tests",
            whole.mutants.len()
        );
        return Ok(true);
    }
    let names = &wanted.names;
    if !names.is_empty() {
        catalog
            .mutants
            .retain(|mutant| names.iter().any(|part| mutant.name.contains(part.as_str())));
        if catalog.mutants.is_empty() {
            return Err(format!("no mutant has {names:?} in its name; see --list"));
        }
    } else if !wanted.is_all && !wanted.is_list {
        // The keys of a hasher come from the randomness of the system.
        let seed = wanted
            .seed
            .unwrap_or_else(|| RandomState::new().hash_one(0));
        sample(&mut catalog, seed);
        let (some, all) = (catalog.mutants.len(), whole.mutants.len());
        println!(
            "{some} of {all} mutants; repeat with: cargo run -p bowline-mutants -- --seed {seed}"
        );
    }
    if wanted.is_list {
        for mutant in &catalog.mutants {
            println!("{}: {}", mutant.name, mutant.bug);
            for test in &mutant.caught_by {
                println!("    {test}");
            }
        }
        return Ok(true);
    }
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => root().join("target"),
    };
    let source = target.join("mutants").join("source");
    // All of them, also where a few are asked for: one that no longer builds is found in every run.
    plant::plant(&root(), &source, &whole)?;
    let programs = run::build(&source, &target, &catalog)?;
    run::control(&source, &programs, &catalog)?;
    run::mutants(&source, &programs, &catalog)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Catalog {
        Catalog::load(&root().join("tools/mutants/catalog")).unwrap()
    }

    /// Each bug is in some sample, the same seed gives the same, and another seed another.
    #[test]
    fn samples_are_equally_large_and_together_all() {
        let names = |seed| {
            let mut catalog = whole();
            sample(&mut catalog, seed);
            let names: Vec<String> = catalog.mutants.into_iter().map(|one| one.name).collect();
            names
        };
        let all = whole().mutants.len();
        assert_eq!(names(1).len(), SAMPLE);
        assert_eq!(names(1), names(1));
        assert_ne!(names(1), names(2));
        let mut seen: Vec<String> = (0..400).flat_map(names).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), all);
    }

    #[test]
    fn arguments_are_understood_or_refused() {
        let read = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            Wanted::from_arguments(&words)
        };
        let seed = read("--seed 7 flush").unwrap();
        assert_eq!(
            (seed.seed, &seed.names[..]),
            (Some(7), &["flush".to_owned()][..])
        );
        assert!(read("--all").unwrap().is_all && read("--list").unwrap().is_list);
        assert!(read("--check").unwrap().is_check);
        assert_eq!(read("").unwrap(), Wanted::default());
        for wrong in ["--seed", "--seed x", "--seed -1", "--every"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
