//! openCypher's own test suite, the TCK, as a test.
//!
//! The scenarios are in `features` (release 2024.3; their licence is beside them). A scenario passes if its results, its
//! side effects and its expected errors are as written. `passing.txt` lists those that pass: a listed scenario that fails,
//! or an unlisted one that passes, fails the test. `BOWLINE_WRITE_TCK=1` writes the list and the table in
//! docs/cypher.md; `BOWLINE_TCK_FAILURES=file` writes every failure with its reason.

mod expected;
mod gherkin;
mod scenario;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use bowline_query::MemoryGraph;
use scenario::Outcome;

/// The scenarios of a folder, by outcome.
#[derive(Default)]
struct Count {
    all: usize,
    passed: usize,
    unsupported: usize,
    other_error: usize,
    wrong: usize,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tck")
}

fn features(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for entry in entries {
        if entry.is_dir() {
            features(&entry, found);
        } else if entry
            .extension()
            .is_some_and(|extension| extension == "feature")
        {
            found.push(entry);
        }
    }
}

struct Report {
    counts: BTreeMap<String, Count>,
    passing: BTreeSet<String>,
    failures: String,
}

fn run_all() -> Report {
    let base = root().join("features");
    let mut files = Vec::new();
    features(&base, &mut files);
    let mut report = Report {
        counts: BTreeMap::new(),
        passing: BTreeSet::new(),
        failures: String::new(),
    };
    for file in files {
        let name = file.strip_prefix(&base).unwrap().with_extension("");
        let folder = name.parent().unwrap().to_string_lossy().replace('\\', "/");
        for scenario in gherkin::read(&fs::read_to_string(&file).unwrap()) {
            let id = format!(
                "{}: {}",
                name.to_string_lossy().replace('\\', "/"),
                scenario.name
            );
            let outcome = scenario::run::<MemoryGraph>(&scenario, &root());
            let count = report.counts.entry(folder.clone()).or_default();
            count.all += 1;
            let (kind, reason) = match outcome {
                Outcome::Passed => {
                    count.passed += 1;
                    assert!(
                        report.passing.insert(id.clone()),
                        "two scenarios are named {id}"
                    );
                    continue;
                }
                Outcome::Unsupported(reason) => {
                    count.unsupported += 1;
                    ("unsupported", reason)
                }
                Outcome::OtherError(reason) => {
                    count.other_error += 1;
                    ("other error", reason)
                }
                Outcome::Wrong(reason) => {
                    count.wrong += 1;
                    ("WRONG", reason)
                }
            };
            let _ = writeln!(report.failures, "=== {kind}: {id}\n{reason}");
        }
    }
    report
}

fn table(counts: &BTreeMap<String, Count>) -> String {
    let mut text = String::from(
        "| folder | scenarios | pass | unsupported | other error | wrong answer |\n|---|--:|--:|--:|--:|--:|\n",
    );
    let mut total = Count::default();
    let mut row = |name: &str, c: &Count| {
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} | {} | {} |",
            c.all, c.passed, c.unsupported, c.other_error, c.wrong
        );
    };
    for (folder, count) in counts {
        row(folder, count);
        total.all += count.all;
        total.passed += count.passed;
        total.unsupported += count.unsupported;
        total.other_error += count.other_error;
        total.wrong += count.wrong;
    }
    row("**all**", &total);
    text
}

const BEGIN: &str = "<!-- tck:begin -->\n";
const END: &str = "<!-- tck:end -->";

#[test]
fn the_scenarios_that_passed_still_pass_and_the_table_is_up_to_date() {
    // Scenarios that are expected to fail by a panic are caught one by one; a deep stack is not part of the test.
    let report = std::thread::Builder::new()
        .stack_size(8 << 20)
        .spawn(run_all)
        .unwrap()
        .join()
        .unwrap();
    let table = table(&report.counts);
    println!("{table}");
    if let Ok(path) = env::var("BOWLINE_TCK_FAILURES") {
        fs::write(path, &report.failures).unwrap();
    }
    let list = root().join("passing.txt");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cypher.md");
    let listed = fs::read_to_string(&list).unwrap_or_default();
    let text = fs::read_to_string(&page).unwrap_or_else(|_| format!("{BEGIN}{END}\n"));
    let (before, rest) = text.split_once(BEGIN).expect("docs/cypher.md has a marker");
    let (old, after) = rest
        .split_once(END)
        .expect("docs/cypher.md has an end marker");
    if env::var("BOWLINE_WRITE_TCK").is_ok() {
        let lines: Vec<&str> = report.passing.iter().map(String::as_str).collect();
        fs::write(&list, lines.join("\n") + "\n").unwrap();
        fs::write(&page, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    let listed: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    let broken: Vec<&String> = listed.difference(&report.passing).collect();
    let new: Vec<&String> = report.passing.difference(&listed).collect();
    assert!(
        broken.is_empty(),
        "{} scenarios no longer pass: {broken:#?}",
        broken.len()
    );
    assert!(
        new.is_empty(),
        "{} scenarios pass, but are not in passing.txt; add them with BOWLINE_WRITE_TCK=1: {new:#?}",
        new.len()
    );
    assert_eq!(
        old, table,
        "the table in docs/cypher.md is old; write it with BOWLINE_WRITE_TCK=1"
    );
}

/// The runner itself: each way in which a scenario can fail is seen.
#[test]
fn a_wrong_answer_a_wrong_effect_and_a_missing_error_are_seen() {
    let run = |query: &str, then: &str| {
        let text = format!(
            "Scenario: [1] x\nGiven an empty graph\nWhen executing query:\n\"\"\"\n{query}\n\"\"\"\nThen {then}\n"
        );
        scenario::run::<MemoryGraph>(&gherkin::read(&text)[0], &root())
    };
    let rows = "the result should be, in any order:\n| a |\n";
    let raised = "a SyntaxError should be raised at compile time: UndefinedVariable";
    assert!(matches!(
        run("RETURN 1 AS a", &format!("{rows}| 1 |")),
        Outcome::Passed
    ));
    for (query, then) in [
        ("RETURN 1 AS a", format!("{rows}| 2 |")),
        ("RETURN 1 AS a", format!("{rows}| 1.0 |")),
        ("RETURN 1 AS a", format!("{rows}| '1' |")),
        ("RETURN 1 AS a", format!("{rows}| 1 |\n| 1 |")),
        ("RETURN 1 AS b", format!("{rows}| 1 |")),
        ("RETURN [1, 2] AS a", format!("{rows}| [2, 1] |")),
        ("CREATE (a:A) RETURN a", format!("{rows}| (:B) |")),
        (
            "CREATE (a:A) RETURN 1 AS a",
            format!("{rows}| 1 |\nAnd no side effects"),
        ),
        (
            "UNWIND [2, 1] AS a RETURN a",
            "the result should be, in order:\n| a |\n| 1 |\n| 2 |".into(),
        ),
        ("RETURN 1 AS a", raised.into()),
    ] {
        assert!(
            matches!(run(query, &then), Outcome::Wrong(_)),
            "{query}: {then}"
        );
    }
    assert!(matches!(run("RETURN b AS a", raised), Outcome::Passed));
    assert!(matches!(
        run("RETURN f(1) AS a", raised),
        Outcome::OtherError(_)
    ));
}
