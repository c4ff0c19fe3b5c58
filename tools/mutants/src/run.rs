//! Builds the planted source and runs tests of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::catalog::{Catalog, Mutant, Test};
use crate::plant::folder_of;

/// A test that takes longer than this hangs.
const TEST_SECONDS_MAX: u64 = 400;

/// How often a test may run until it catches a bug: one that races real threads meets it by chance.
const TRIES_MAX: u32 = 3;

/// What makes tests small for the control run, in which they pass and so run to their end.
const SMALL: [(&str, &str); 10] = [
    ("BOWLINE_CRASH_IMAGES", "600"),
    ("BOWLINE_INVARIANT_IMAGES", "5"),
    ("BOWLINE_FAULT_ONLY", "Manifest|Interrupted"),
    ("BOWLINE_ROT_CASES", "300"),
    ("BOWLINE_MODEL_CASES", "60"),
    ("BOWLINE_ISOLATION_HISTORIES", "4"),
    ("BOWLINE_WATCH_ROUNDS", "1"),
    ("BOWLINE_KILLS", "6"),
    ("BOWLINE_SOAK_SECONDS", "10"),
    // Percent.
    ("BOWLINE_SCHEDULES", "2"),
];

/// The test programs, by package and binary.
type Programs = BTreeMap<(String, String), PathBuf>;

/// A build of the planted source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Build {
    Ordinary,
    /// Where a scheduler decides which thread goes on, as in `checks/interleavings`. Ordinary tests
    /// do not work in it.
    Interleavings,
}

impl Build {
    const ALL: [Build; 2] = [Build::Ordinary, Build::Interleavings];

    /// The build that a test program belongs to.
    fn of(binary: &str) -> Build {
        match binary {
            "interleavings" => Build::Interleavings,
            _ => Build::Ordinary,
        }
    }

    /// Within the target folder: where the same build of the source without bugs is, so that what
    /// both depend on is compiled once.
    fn folder(self) -> &'static str {
        match self {
            Build::Ordinary => "",
            Build::Interleavings => "interleavings",
        }
    }

    fn flags(self) -> Option<&'static str> {
        match self {
            Build::Ordinary => None,
            Build::Interleavings => Some("--cfg bowline_shuttle"),
        }
    }
}

/// How a run of a test ended.
enum End {
    Passed,
    /// With the line that says why.
    Failed(String),
    Hung,
}

/// Builds every test program that the catalog names, in folders of `target`.
pub(crate) fn build(source: &Path, target: &Path, catalog: &Catalog) -> Result<Programs, String> {
    let tests = catalog.tests();
    let mut programs = Programs::new();
    for build in Build::ALL {
        let wanted = tests
            .keys()
            .filter(|(_, binary)| Build::of(binary) == build);
        let wanted: Vec<_> = wanted.copied().collect();
        if !wanted.is_empty() {
            programs.extend(build_programs(source, target, build, &wanted)?);
        }
    }
    for (package, binary) in tests.keys() {
        if !programs.contains_key(&((*package).to_owned(), (*binary).to_owned())) {
            return Err(format!("package {package} has no test binary {binary}"));
        }
    }
    Ok(programs)
}

/// The packages that hold planted bugs, and what their tests are made of.
const NOT_OPTIMISED: [&str; 6] = [
    "bowline",
    "bowline-core",
    "bowline-replica",
    "bowline-storage",
    "bowline-testing",
    "bowline-types",
];

fn build_programs(
    source: &Path,
    target: &Path,
    build: Build,
    wanted: &[(&str, &str)],
) -> Result<Programs, String> {
    println!("building {} test programs ({build:?})", wanted.len());
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args([
            "test",
            "--no-run",
            "--message-format=json-render-diagnostics",
        ])
        .current_dir(source)
        .env("CARGO_TARGET_DIR", target.join(build.folder()))
        .stdout(Stdio::piped());
    if let Some(flags) = build.flags() {
        command.env("RUSTFLAGS", flags);
    }
    for (package, binary) in wanted {
        command.args(["-p", package]);
        if *binary != "lib" {
            command.args(["--test", binary]);
        }
    }
    if wanted.iter().any(|(_, binary)| *binary == "lib") {
        command.arg("--lib");
    }
    // A program's tests need the program.
    command.arg("--bins");
    // A planted bug runs a few tests once: code that is not optimised is built faster than it is slower to run.
    for package in NOT_OPTIMISED {
        command.args([
            "--config",
            &format!("profile.dev.package.{package}.opt-level=0"),
        ]);
    }
    let mut child = command.spawn().map_err(|why| format!("cargo: {why}"))?;
    let mut programs = Programs::new();
    let output = child.stdout.take().ok_or("cargo has no output")?;
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|why| format!("cargo: {why}"))?;
        programs.extend(test_program(&line));
    }
    let status = child.wait().map_err(|why| format!("cargo: {why}"))?;
    if !status.success() {
        return Err(format!("the planted source does not build ({build:?})"));
    }
    Ok(programs)
}

/// The test program that a message of cargo tells of.
fn test_program(message: &str) -> Option<((String, String), PathBuf)> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let path = message["executable"].as_str()?;
    if !message["profile"]["test"].as_bool()? {
        return None;
    }
    // `path+file:///…/crates/bowline#0.1.0`, or `path+file:///…/tools/testing#bowline-testing@0.1.0` where the folder has
    // another name.
    let (folder, rest) = message["package_id"].as_str()?.split_once('#')?;
    let package = match rest.split_once('@') {
        Some((name, _)) => name,
        None => folder.rsplit('/').next()?,
    };
    let package = package.to_owned();
    let is_library = message["target"]["kind"]
        .as_array()?
        .iter()
        .any(|kind| kind == "lib");
    let binary = if is_library {
        "lib"
    } else {
        message["target"]["name"].as_str()?
    };
    Some(((package, binary.to_owned()), PathBuf::from(path)))
}

/// Runs all named tests with no bug switched on.
pub(crate) fn control(source: &Path, programs: &Programs, catalog: &Catalog) -> Result<(), String> {
    let tests = catalog.tests();
    for ((package, binary), paths) in &tests {
        let program = &programs[&((*package).to_owned(), (*binary).to_owned())];
        let known = names(source, program, package)?;
        if let Some(path) = paths.iter().find(|path| !known.contains(**path)) {
            return Err(format!("{package} {binary} has no test {path}"));
        }
    }
    for ((package, binary), paths) in tests {
        let start = Instant::now();
        let program = &programs[&(package.to_owned(), binary.to_owned())];
        let mut command = test_command(source, program, package);
        command.args(paths.iter()).envs(SMALL);
        // Many tests, when all mutants run.
        let seconds_max = TEST_SECONDS_MAX + 20 * paths.len() as u64;
        let end = watch_over(command, &format!("control-{package}-{binary}"), seconds_max)?;
        let seconds = start.elapsed().as_secs();
        match end {
            End::Passed => {
                let count = paths.len();
                println!("control: {package} {binary}: {count} tests pass ({seconds} s)");
            }
            End::Failed(why) => {
                return Err(format!(
                    "{package} {binary} fails with no bug switched on: {why}"
                ));
            }
            End::Hung => {
                return Err(format!("{package} {binary} hangs with no bug switched on"));
            }
        }
    }
    Ok(())
}

/// Runs the tests of each mutant with its bug switched on, as many at once as there are cores.
pub(crate) fn mutants(
    source: &Path,
    programs: &Programs,
    catalog: &Catalog,
) -> Result<bool, String> {
    let jobs: Vec<(&Mutant, &Test)> = catalog
        .mutants
        .iter()
        .flat_map(|mutant| mutant.caught_by.iter().map(move |test| (mutant, test)))
        .collect();
    let next = AtomicUsize::new(0);
    let survivors = Mutex::new(Vec::new());
    let work = || -> Result<(), String> {
        while let Some((mutant, test)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let start = Instant::now();
            let program = &programs[&(test.package.clone(), test.binary.clone())];
            let run = || {
                let mut command = test_command(source, program, &test.package);
                command.arg(&test.path).env("BOWLINE_MUTANT", &mutant.name);
                watch_over(
                    command,
                    &format!("{}-{}", mutant.name, test.path),
                    TEST_SECONDS_MAX,
                )
            };
            let (mut end, mut tries) = (run()?, 1);
            while matches!(end, End::Passed) && tries < TRIES_MAX {
                (end, tries) = (run()?, tries + 1);
            }
            let (caught, how) = match end {
                End::Failed(why) => (true, why),
                End::Hung => (mutant.may_hang, "it hangs".to_owned()),
                End::Passed => (false, "the test passes".to_owned()),
            };
            let verdict = if caught { "caught" } else { "SURVIVED" };
            let seconds = start.elapsed().as_secs_f64();
            let tries = match tries {
                1 => String::new(),
                tries => format!(", {tries} tries"),
            };
            println!(
                "{verdict}: {} by {} {} ({seconds:.1} s{tries}): {how}",
                mutant.name, test.binary, test.path
            );
            if !caught {
                let repeat = format!("repeat with: just mutants {}", mutant.name);
                println!("    {repeat}");
                if let Ok(mut survivors) = survivors.lock() {
                    survivors.push(mutant.name.as_str());
                }
            }
        }
        Ok(())
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a worker panicked".to_owned())?)
    })?;
    let mut survivors = survivors.into_inner().map_err(|why| why.to_string())?;
    survivors.sort_unstable();
    survivors.dedup();
    let all = catalog.mutants.len();
    println!(
        "{all} mutants, {} caught, by {} tests; survivors: {survivors:?}",
        all - survivors.len(),
        jobs.len()
    );
    Ok(survivors.is_empty())
}

/// The tests that a program has.
fn names(source: &Path, program: &Path, package: &str) -> Result<BTreeSet<String>, String> {
    let mut command = test_command(source, program, package);
    let output = command
        .args(["--list", "--format", "terse"])
        .output()
        .map_err(|why| format!("{}: {why}", program.display()))?;
    let output = String::from_utf8_lossy(&output.stdout);
    let names = output
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(str::to_owned).collect())
}

/// A test program, in the folder that cargo would run it in.
fn test_command(source: &Path, program: &Path, package: &str) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(folder_of(source, package))
        .args(["--exact", "--include-ignored"])
        .env_remove("BOWLINE_MUTANT")
        // A bug is caught with the fixed seeds, or by chance.
        .env("BOWLINE_FRESH_SEED", "0")
        .env("RUST_BACKTRACE", "0");
    command
}

/// Runs a command to its end, or until it hangs.
fn watch_over(mut command: Command, name: &str, seconds_max: u64) -> Result<End, String> {
    let name: String = name
        .chars()
        .map(|c| if c.is_alphanumeric() { c } else { '_' })
        .collect();
    let log = std::env::temp_dir().join(format!("bowline-mutants-{}-{name}", std::process::id()));
    let error = |why: std::io::Error| format!("{}: {why}", log.display());
    let file = File::create(&log).map_err(error)?;
    let again = file.try_clone().map_err(error)?;
    let child = command.stdin(Stdio::null()).stdout(file).stderr(again);
    let mut child = child.spawn().map_err(error)?;
    let status = wait(&mut child, seconds_max).map_err(error)?;
    let output = std::fs::read(&log).map_err(error)?;
    let output = String::from_utf8_lossy(&output);
    std::fs::remove_file(&log).map_err(error)?;
    Ok(match status {
        Some(true) => End::Passed,
        Some(false) => End::Failed(reason(&output)),
        None => End::Hung,
    })
}

/// Whether it succeeded, or nothing when it had to be stopped.
fn wait(child: &mut Child, seconds_max: u64) -> std::io::Result<Option<bool>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if start.elapsed() > Duration::from_secs(seconds_max) {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// The message of the first panic, in one short line.
fn reason(output: &str) -> String {
    let mut lines = output
        .lines()
        .skip_while(|line| !line.contains("panicked at"))
        .skip(1);
    let message: Vec<&str> = lines
        .by_ref()
        .map(str::trim)
        .take_while(|line| !line.is_empty() && !line.starts_with("note:"))
        .take(3)
        .collect();
    let mut message = message.join(" ");
    if message.is_empty() {
        message = output.lines().last().unwrap_or_default().to_owned();
    }
    match message.char_indices().nth(160) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_first_panic() {
        let output = "running 1 test\n\nthread 'a' panicked at x.rs:1:2:\nassertion failed\n\
                      note: run with\nthread 'b' panicked at\nother";
        assert_eq!(reason(output), "assertion failed");
        assert_eq!(reason("killed"), "killed");
    }

    #[test]
    fn a_test_program_is_known_by_package_and_binary() {
        let message = |kind: &str, test: bool| {
            format!(
                "{{\"package_id\":\"path+file:///x/crates/bowline#0.1.0\",\"executable\":\"/t/p\",\
                 \"target\":{{\"kind\":[\"{kind}\"],\"name\":\"crash\"}},\
                 \"profile\":{{\"test\":{test}}}}}"
            )
        };
        let found = |binary: &str| {
            let name = ("bowline".to_owned(), binary.to_owned());
            Some((name, PathBuf::from("/t/p")))
        };
        assert_eq!(test_program(&message("test", true)), found("crash"));
        assert_eq!(test_program(&message("lib", true)), found("lib"));
        let named = message("crash", true).replace("bowline#0.1.0", "other#bowline@0.1.0");
        assert_eq!(test_program(&named), found("crash"));
        assert_eq!(test_program(&message("bin", false)), None);
        assert_eq!(test_program("not json"), None);
    }
}
