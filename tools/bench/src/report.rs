//! Writes what was measured into `docs/benchmarks.md`, between two marks, and charts beside it; one of them is the README's.
//! What stands around the marks is written by hand and stays.

use std::fs;
use std::path::Path;

use crate::chart::bars;
use crate::fallible::Fallible;
use crate::measure::MACHINE;
use crate::result::{RowResult, RunResult};
use crate::table;

const BEGIN: &str = "<!-- Written by `bowline-bench report` from here -->";
const END: &str = "<!-- to here. -->";

/// The charts: file, title, what the names of their rows begin with.
const CHARTS: [(&str, &str, &[&str]); 3] = [
    ("commits.svg", "Durable commits", &["S1 ", "S2 "]),
    ("reads.svg", "Reads", &["S3 ", "S4 ", "S5 "]),
    (
        "writes.svg",
        "Overwriting, recovery and sizes",
        &["S6 ", "S7 ", "S8 ", "S9 ", "S10 "],
    ),
];

/// The chart of the README: what its rows begin with. Among them are rows in which Bowline is behind.
const SUMMARY: (&str, &str, &[&str]) = (
    "summary.svg",
    "Bowline beside other stores",
    &[
        "S1 durable commit, 1 thread",
        "S2 durable commit, 16 threads",
        "S3 get, 1 M keys, 1 thread",
        "S5 scan of 100 K of 1 M entries, cached tables",
        "S6 bytes written per byte put",
        "S10 ",
    ],
);

pub fn write(docs: &Path, peers: &RunResult, reference: &RunResult) -> Fallible<()> {
    for run in [peers, reference] {
        let is_no_measurement = |(what, which): &&(String, String)| {
            what == "build" || (what == "data" && which == "smoke")
        };
        if let Some((what, which)) = run.circumstances.iter().find(is_no_measurement) {
            return Err(
                format!("no measurement, {what}: {which}; run it again with --release").into(),
            );
        }
    }
    let path = docs.join("benchmarks.md");
    let before =
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let text = replaced(&before, &section(peers, reference))?;
    fs::create_dir_all(docs.join("charts"))?;
    for (file, title, prefixes) in CHARTS.into_iter().chain([SUMMARY]) {
        let is_in = |row: &&RowResult| {
            row.cell(MACHINE).is_none()
                && prefixes.iter().any(|prefix| row.name.starts_with(prefix))
        };
        let rows: Vec<_> = peers.rows.iter().filter(is_in).collect();
        fs::write(docs.join("charts").join(file), bars(title, &rows))?;
    }
    fs::write(&path, text)?;
    println!("wrote {} and its charts", path.display());
    Ok(())
}

fn section(peers: &RunResult, reference: &RunResult) -> String {
    let charts: String = CHARTS
        .iter()
        .map(|(file, title, _)| format!("![{title}](charts/{file})\n"))
        .collect();
    let goals = |run| {
        let (met, of) = table::met(run);
        format!("{met} of {of} goals are met.")
    };
    format!(
        "## Bowline beside other stores\n\n{}\n\n{}\n{charts}\n## The reference tables\n\n{}\n\n{}",
        goals(peers),
        table::peers(peers),
        goals(reference),
        table::reference(reference),
    )
}

/// The text with what stands between the marks replaced.
fn replaced(text: &str, section: &str) -> Fallible<String> {
    let missing = || format!("no {BEGIN:?} followed by {END:?}: put them where the report goes");
    let begin = text.find(BEGIN).ok_or_else(missing)? + BEGIN.len();
    let end = begin + text[begin..].find(END).ok_or_else(missing)?;
    Ok(format!("{}\n\n{section}\n{}", &text[..begin], &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::run;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let text = format!("by hand\n{BEGIN}\nold\n{END}\nby hand, too\n");
        let new = replaced(&text, "new").unwrap();
        assert_eq!(
            new,
            format!("by hand\n{BEGIN}\n\nnew\n{END}\nby hand, too\n")
        );
        assert_eq!(replaced(&new, "new").unwrap(), new);
        assert!(replaced("no marks", "new").is_err());
        assert!(replaced(&format!("{END}{BEGIN}"), "new").is_err());
    }

    #[test]
    fn a_report_has_tables_and_charts() {
        let docs = tempfile::tempdir().unwrap();
        let path = docs.path().join("benchmarks.md");
        fs::write(&path, format!("{BEGIN}\n{END}\n")).unwrap();
        write(docs.path(), &run(), &run()).unwrap();
        let text = fs::read_to_string(path).unwrap();
        assert!(text.contains("| S1 commit | 200 /s"), "{text}");
        assert!(text.contains("1 of 2 goals are met."), "{text}");
        let chart = fs::read_to_string(docs.path().join("charts/commits.svg")).unwrap();
        assert!(chart.contains("S1 commit"), "{chart}");
        assert!(docs.path().join("charts/summary.svg").exists());
    }

    #[test]
    fn what_is_no_measurement_is_refused() {
        let mut slow = run();
        slow.circumstances
            .push(("build".into(), "without optimization".into()));
        let docs = tempfile::tempdir().unwrap();
        assert!(write(docs.path(), &slow, &run()).is_err());
    }

    /// The marks are where `report` looks for them.
    #[test]
    fn the_document_has_the_marks() {
        let text = include_str!("../../../docs/benchmarks.md");
        assert!(replaced(text, "").is_ok());
    }
}
