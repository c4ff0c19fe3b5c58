//! Puts known bugs into Bowline, one at a time, and sees that the tests named for each catch it: a
//! test that passes with the bug in place proves nothing.
//!
//! ```text
//! cargo run -p bowline-mutants                     every mutant
//! cargo run -p bowline-mutants -- skip_the_flush   the mutants with this in their name
//! cargo run -p bowline-mutants -- --list           what there is
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
//!    must fail: by an assertion or a panic, or, where the catalog says so, by hanging.
//!
//! The exit code is 0 only if every mutant was caught by every test named for it.

mod catalog;
mod plant;
mod run;

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

/// Whether all mutants were caught.
fn work(arguments: &[String]) -> Result<bool, String> {
    let whole = Catalog::load(&root().join("crates/bowline-mutants/catalog"))?;
    let mut catalog = whole.clone();
    let (flags, names): (Vec<_>, Vec<_>) = arguments.iter().partition(|a| a.starts_with('-'));
    if let Some(flag) = flags.iter().find(|flag| **flag != "--list") {
        return Err(format!(
            "unknown flag {flag}: give parts of the names of mutants, or --list"
        ));
    }
    if !names.is_empty() {
        catalog
            .mutants
            .retain(|mutant| names.iter().any(|part| mutant.name.contains(part.as_str())));
        if catalog.mutants.is_empty() {
            return Err(format!("no mutant has {names:?} in its name; see --list"));
        }
    }
    if !flags.is_empty() {
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
