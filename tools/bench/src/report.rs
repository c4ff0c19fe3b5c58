//! Writes what was measured into `docs/benchmarks.md`, between marks, and charts beside it; one of them is the README's.
//! What stands around the marks is written by hand and stays.

use std::fs;
use std::path::Path;

use crate::chart::bars;
use crate::fallible::Fallible;
use crate::measure::MACHINE;
use crate::result::{RowResult, RunResult};
use crate::table;

/// A section of the document, by what stands in its marks.
const PEERS: &str = "peers";
const REFERENCE: &str = "reference";

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

/// Writes the sections of the runs that are there; another section stays.
pub fn write(
    docs: &Path,
    peers: Option<&RunResult>,
    reference: Option<&RunResult>,
) -> Fallible<()> {
    for run in peers.iter().chain(&reference) {
        let is_no_measurement = |(what, which): &&(String, String)| {
            what == "build" || what == "rows" || (what == "data" && which == "smoke")
        };
        if let Some((what, which)) = run.circumstances.iter().find(is_no_measurement) {
            return Err(
                format!("no measurement of all rows, {what}: {which}; run it again with --release, and whole").into(),
            );
        }
    }
    let path = docs.join("benchmarks.md");
    let mut text =
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let goals = |run| format!("{}.", table::met(run));
    if let Some(run) = peers {
        let charts: String = CHARTS
            .iter()
            .map(|(file, title, _)| format!("![{title}](charts/{file})\n"))
            .collect();
        let section = format!("{}\n\n{}\n{charts}", goals(run), table::peers(run));
        text = replaced(&text, PEERS, &section)?;
        fs::create_dir_all(docs.join("charts"))?;
        for (file, title, prefixes) in CHARTS.into_iter().chain([SUMMARY]) {
            let is_in = |row: &&RowResult| {
                row.cell(MACHINE).is_none()
                    && prefixes.iter().any(|prefix| row.name.starts_with(prefix))
            };
            let rows: Vec<_> = run.rows.iter().filter(is_in).collect();
            fs::write(docs.join("charts").join(file), bars(title, &rows))?;
        }
    }
    if let Some(run) = reference {
        let section = format!("{}\n\n{}", goals(run), table::reference(run));
        text = replaced(&text, REFERENCE, &section)?;
    }
    fs::write(&path, text)?;
    println!("wrote {}", path.display());
    Ok(())
}

fn mark(edge: &str, name: &str) -> String {
    format!("<!-- {edge} of what `bowline-bench report` writes: {name} -->")
}

/// The text with what stands between the marks of this name replaced.
fn replaced(text: &str, name: &str, section: &str) -> Fallible<String> {
    let (begin, end) = (mark("begin", name), mark("end", name));
    let missing = || format!("no {begin:?} followed by {end:?}: put them where the report goes");
    let from = text.find(&begin).ok_or_else(missing)? + begin.len();
    let to = from + text[from..].find(&end).ok_or_else(missing)?;
    Ok(format!("{}\n\n{section}\n{}", &text[..from], &text[to..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::run;

    fn with_marks(name: &str, between: &str) -> String {
        format!("{}{between}{}\n", mark("begin", name), mark("end", name))
    }

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let other = with_marks(PEERS, "\nkept\n");
        let text = format!(
            "by hand\n{other}{}by hand, too\n",
            with_marks(REFERENCE, "\nold\n")
        );
        let new = replaced(&text, REFERENCE, "new").unwrap();
        let expected = with_marks(REFERENCE, "\n\nnew\n");
        assert_eq!(new, format!("by hand\n{other}{expected}by hand, too\n"));
        assert_eq!(replaced(&new, REFERENCE, "new").unwrap(), new);
        assert!(replaced("no marks", PEERS, "new").is_err());
        let turned = format!("{}{}", mark("end", PEERS), mark("begin", PEERS));
        assert!(replaced(&turned, PEERS, "new").is_err());
    }

    #[test]
    fn a_report_has_tables_and_charts_of_the_runs_that_are_there() {
        let docs = tempfile::tempdir().unwrap();
        let path = docs.path().join("benchmarks.md");
        fs::write(
            &path,
            with_marks(PEERS, "older") + &with_marks(REFERENCE, ""),
        )
        .unwrap();
        write(docs.path(), None, Some(&run())).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("older") && text.contains("1 of 2 goals are met."),
            "{text}"
        );
        write(docs.path(), Some(&run()), None).unwrap();
        let text = fs::read_to_string(path).unwrap();
        assert!(
            text.contains("| S1 commit | 200 /s") && !text.contains("older"),
            "{text}"
        );
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
        assert!(write(docs.path(), Some(&slow), None).is_err());
        assert!(write(docs.path(), None, Some(&slow)).is_err());
    }

    /// The marks are where `report` looks for them.
    #[test]
    fn the_document_has_the_marks() {
        let text = include_str!("../../../docs/benchmarks.md");
        for name in [PEERS, REFERENCE] {
            assert!(replaced(text, name, "").is_ok());
        }
    }
}
