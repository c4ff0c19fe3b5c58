//! The program as a whole, on next to no data: every row runs once and its checks hold, results are
//! kept and told, and a comparison fails when something got worse. Nothing is measured here.

use std::path::Path;
use std::process::{Command, Output};

fn run(results: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bowline-bench"));
    command.args(arguments).arg("--results").arg(results);
    command.output().unwrap()
}

/// The standard output of a run that must succeed.
fn told(results: &Path, arguments: &[&str]) -> String {
    let output = run(results, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The lines of a table's rows: those that begin with a name.
fn rows<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let begin = format!("| {name}");
    text.lines()
        .filter(|line| line.starts_with(&begin))
        .collect()
}

#[test]
fn each_figure_has_its_rows() {
    let directory = tempfile::tempdir().unwrap();
    let text = told(directory.path(), &["peers", "--smoke"]);
    for figure in 1..=13 {
        let rows = rows(&text, &format!("S{figure} "));
        assert!(!rows.is_empty(), "S{figure}: {text}");
        for row in rows {
            // The second column is Bowline's, or in the table of latencies its name.
            let cell = row.split(" | ").nth(1).unwrap();
            assert!(cell != "-" && !cell.starts_with("void"), "{row}");
        }
    }
    let first = text
        .lines()
        .find(|line| line.contains("/s (") || line.contains("/s |"));
    assert!(first.unwrap().starts_with("| F: raw"), "{text}");
    assert!(text.contains("- kernel: Linux"), "{text}");
    assert!(text.contains("- file system: "), "{text}");
}

#[test]
fn each_row_of_the_reference_tables_has_a_figure() {
    let directory = tempfile::tempdir().unwrap();
    let text = told(directory.path(), &["reference", "--smoke"]);
    let published = [
        "engine_get/hot_key",
        "engine_key_scaling/get/1 M",
        "engine_put/insert/dur_strict/uniform",
        "txn_commit/readN_write1/100",
        "txn_cas/retry_until_success",
        "snapshot/after_versions/1000",
        "conflict/cas_one_winner",
        "block read, cold",
        "edge insert",
        "DFS depth 5, fan-out 5",
        "arena reset",
        "compaction, manual",
        "log recovery",
        "segment rotation",
        "table filter check",
        "memory per block write",
    ];
    for name in published {
        assert!(!rows(&text, name).is_empty(), "{name}: {text}");
    }
    for row in rows(&text, "") {
        let cells: Vec<_> = row.split(" | ").collect();
        // The tables of the machine are narrower.
        if cells.len() > 6 {
            assert!(cells[3] != "-" || cells[4] != "-", "{row}");
        }
    }
}

#[test]
fn each_figure_of_the_graph_has_its_rows() {
    let directory = tempfile::tempdir().unwrap();
    let text = told(
        directory.path(),
        &["graph", "--smoke", "--ladybug=no-such-python"],
    );
    for figure in 1..=5 {
        let rows = rows(&text, &format!("G{figure} "));
        assert!(!rows.is_empty(), "G{figure}: {text}");
        for row in rows {
            let cell = row.split(" | ").nth(1).unwrap();
            assert!(cell != "-" && !cell.starts_with("void"), "{row}");
        }
    }
    for ratio in ["× bare CSR", "of G1", "of 4 dependent loads"] {
        assert!(text.contains(ratio), "{ratio}: {text}");
    }
    for question in ["1-hop of ten", "3-hop", "BFS", "shortest path"] {
        assert_eq!(
            rows(&text, &format!("stores: {question} ")).len(),
            1,
            "{text}"
        );
    }
    assert!(
        text.contains("- left out: LadybugDB: skipped: no-such-python"),
        "{text}"
    );
    assert!(text.contains("scale 8: 256 blocks"), "{text}");
    assert!(text.contains("| F: raw"), "{text}");
}

#[test]
fn a_row_that_does_not_exist_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let output = run(
        directory.path(),
        &["peers", "--smoke", "--only", "no such row"],
    );
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("no row has \"no such row\""), "{error}");
}

/// Saves a baseline of a run, makes one of its ratios better than it was, and compares.
#[test]
fn a_comparison_fails_when_a_ratio_got_worse() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path();
    told(results, &["peers", "--smoke", "--only", "S11"]);
    let baseline = results.join("baseline.json");
    let baseline = baseline.to_str().unwrap();
    // Valgrind is not asked: counting takes longer than a test may.
    let without = ["--without-instructions", "--baseline", baseline];
    let with = |command: &'static str| [&[command], &without[..]].concat();
    told(results, &with("save"));
    let text = told(results, &with("compare"));
    assert!(
        text.contains("4 same, 0 better, 0 worse, 0 missing"),
        "{text}"
    );

    let name = "S11 newest of 100 versions: of 1 version";
    let text = std::fs::read_to_string(baseline).unwrap();
    let mut kept: serde_json::Value = serde_json::from_str(&text).unwrap();
    for end in ["median", "min", "max"] {
        let figure = &mut kept["ratios"][name][end];
        *figure = (figure.as_f64().unwrap() / 10.0).into();
    }
    std::fs::write(baseline, kept.to_string()).unwrap();
    let output = run(results, &with("compare"));
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("WORSE    {name}")), "{text}");
}
