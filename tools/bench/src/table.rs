//! A run as tables, in Markdown.

use std::fmt::{self, Write as _};

use crate::measure::MACHINE;
use crate::result::{Cell, Ratio, RowResult, RunResult, Unit, Verdict};

/// What has to be known to read the figures.
pub fn circumstances(run: &RunResult) -> String {
    let mut text = String::new();
    for (what, which) in &run.circumstances {
        let _ = writeln!(text, "- {what}: {which}");
    }
    for (contestant, configuration) in &run.contestants {
        let _ = writeln!(text, "- {contestant}: {configuration}");
    }
    text
}

fn line(text: &mut String, cells: &[String]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

fn head(text: &mut String, cells: &[String]) {
    line(text, cells);
    let _ = writeln!(text, "|{}", "---|".repeat(cells.len()));
}

fn with_remark(row: &RowResult) -> String {
    if row.remark.is_empty() {
        row.name.clone()
    } else {
        format!("{} ({})", row.name, row.remark)
    }
}

/// The median, and the smallest and the largest where they are several.
fn shown(unit: Unit, cell: Option<&Cell>) -> String {
    let Some(cell) = cell else {
        return "-".into();
    };
    if let Some(why) = &cell.void {
        return format!("void: {why}");
    }
    match cell.spread() {
        None => "-".into(),
        Some(spread) if cell.figures.len() == 1 => unit.shown(spread.median),
        Some(spread) => format!(
            "{} ({} – {})",
            unit.shown(spread.median),
            unit.shown(spread.min),
            unit.shown(spread.max)
        ),
    }
}

fn ratio(ratio: &Ratio) -> String {
    let spread = &ratio.spread;
    // Of what is held to the machine or to another row no tie is told: who is ahead is not the question there.
    let tie = match ratio.is_tie() && ratio.label.contains('×') {
        true => ", a tie",
        false => "",
    };
    format!(
        "{:.2} {} ({:.2}–{:.2}{tie})",
        spread.median, ratio.label, spread.min, spread.max
    )
}

/// Ratios, and what else was noted, of one contestant.
fn beside(row: &RowResult, contestant: &str) -> String {
    let ratios = row.ratios.iter().filter(|ratio| ratio.of == contestant);
    let notes = row.cell(contestant).map_or(&[][..], |cell| &cell.notes);
    let notes = notes
        .iter()
        .map(|note| format!("{}: {:.1}", note.name, note.spread.median));
    ratios
        .map(ratio)
        .chain(notes)
        .collect::<Vec<_>>()
        .join("; ")
}

/// The goals of a row, with how one contestant stands to each.
fn verdicts(row: &RowResult, contestant: &str) -> Vec<(String, Verdict)> {
    let own = row.bound.and_then(|bound| {
        let median = row.cell(contestant)?.spread()?.median;
        let goal = bound.shown(|number| row.unit.shown(number));
        let verdict = match bound.is_met(median) {
            true => Verdict::Met,
            false => Verdict::Short,
        };
        Some((goal, verdict))
    });
    let ratios = row.ratios.iter().filter(|ratio| ratio.of == contestant);
    let ratios = ratios.filter_map(|ratio| {
        let goal = ratio
            .bound?
            .shown(|number| format!("{} {}", plain(number), ratio.label));
        Some((goal, ratio.verdict()?))
    });
    own.into_iter().chain(ratios).collect()
}

/// The goals of a row, and by which of them it is a tie or short.
fn goals(row: &RowResult, contestant: &str) -> (String, String) {
    let all = verdicts(row, contestant);
    let of = |which: Option<Verdict>| {
        let goals = all
            .iter()
            .filter(|(_, verdict)| which.is_none_or(|which| *verdict == which));
        goals
            .map(|(goal, _)| goal.as_str())
            .collect::<Vec<_>>()
            .join("; ")
    };
    let told = [("short of", Verdict::Short), ("a tie at", Verdict::Tie)];
    let told = told.map(|(words, verdict)| (words, of(Some(verdict))));
    let told: Vec<_> = told
        .iter()
        .filter(|(_, goals)| !goals.is_empty())
        .map(|(words, goals)| format!("{words} {goals}"))
        .collect();
    let verdict = match (all.is_empty(), told.is_empty()) {
        (true, _) => String::new(),
        (false, true) => "met".into(),
        (false, false) => told.join("; "),
    };
    (of(None), verdict)
}

/// A number as it was written: two digits at most.
fn plain(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn is_of_machine(row: &RowResult) -> bool {
    row.cell(MACHINE).is_some()
}

/// What no store can beat.
fn machine(run: &RunResult) -> String {
    let mut text = String::new();
    head(
        &mut text,
        &["the machine".into(), "median (min – max)".into()],
    );
    for row in run.rows.iter().filter(|row| is_of_machine(row)) {
        line(
            &mut text,
            &[with_remark(row), shown(row.unit, row.cell(MACHINE))],
        );
    }
    text
}

/// The rows S1 to S11.
pub fn peers(run: &RunResult) -> String {
    let stores: Vec<&String> = run.contestants.iter().map(|(name, _)| name).collect();
    let us = run.ours.first().map_or("", String::as_str);
    let mut text = circumstances(run) + "\n" + &machine(run) + "\n";
    let mut columns = vec!["row".to_owned()];
    columns.extend(stores.iter().map(|&store| store.clone()));
    columns.extend([format!("{us} beside"), "goal".into(), String::new()]);
    head(&mut text, &columns);
    for row in run.rows.iter().filter(|row| !is_of_machine(row)) {
        let (goal, verdict) = goals(row, us);
        let mut cells = vec![with_remark(row)];
        cells.extend(stores.iter().map(|store| shown(row.unit, row.cell(store))));
        cells.extend([beside(row, us), goal, verdict]);
        line(&mut text, &cells);
    }
    // Of every store where each operation was timed by itself, which is where it waits for the disk;
    // of our own everywhere.
    let is_told =
        |row: &RowResult, cell: &Cell| row.unit == Unit::PerSecond || cell.contestant == us;
    text + "\n" + &latencies(run, is_told)
}

/// Percentiles of the cells that are to be told, and of what the machine does.
fn latencies(run: &RunResult, is_told: impl Fn(&RowResult, &Cell) -> bool) -> String {
    let mut text = String::new();
    let columns = ["latency", "of", "P50", "P95", "P99", "P99.9", "max"];
    head(&mut text, &columns.map(str::to_owned));
    for row in &run.rows {
        for cell in row.cells.iter().filter(|cell| is_told(row, cell)) {
            let Some(of) = &cell.latency else { continue };
            let percentiles = [of.p50, of.p95, of.p99, of.p99_9, of.max];
            let mut cells = vec![row.name.clone(), cell.contestant.clone()];
            cells.extend(percentiles.map(|ns| Unit::Nanoseconds.shown(ns as f64)));
            line(&mut text, &cells);
        }
    }
    text + "\nLatencies of reads are means of 256: the clock costs as much as they do.\n"
}

/// The reference tables.
pub fn reference(run: &RunResult) -> String {
    let mut text = circumstances(run) + "\n" + &machine(run) + "\n";
    let modes: Vec<&String> = run.contestants.iter().map(|(name, _)| name).collect();
    let mut columns = vec![
        "row".to_owned(),
        "published".to_owned(),
        "it, measured here".to_owned(),
    ];
    columns.extend(modes.iter().map(|mode| format!("Bowline, `{mode}`")));
    columns.extend(["beside".to_owned(), "goal".to_owned(), String::new()]);
    head(&mut text, &columns);
    for row in run.rows.iter().filter(|row| !is_of_machine(row)) {
        let reference = row.reference.as_ref();
        let judged = reference.map_or(crate::reference::BATCHED, |of| of.judged.as_str());
        let mut here = reference
            .and_then(|of| of.here)
            .map_or("-".into(), |here| row.unit.shown(here));
        if reference.is_some_and(|of| of.is_unflushed) {
            here.push_str(" †");
        }
        let (goal, verdict) = goals(row, judged);
        let mut cells = vec![
            with_remark(row),
            reference.map_or("-".into(), |of| of.published.clone()),
            here,
        ];
        cells.extend(modes.iter().map(|mode| shown(row.unit, row.cell(mode))));
        cells.extend([beside(row, judged), goal, verdict]);
        line(&mut text, &cells);
    }
    text + "\n† Returned in less time than one flush takes, so it was not flushed: `Batched` is held to it.\n\n"
        + &latencies(run, |_, _| true)
}

/// How many goals of our own are met, ties and short.
pub fn met(run: &RunResult) -> Goals {
    let us = run.ours.first().map_or("", String::as_str);
    let mut count = Goals::default();
    for row in &run.rows {
        let judged = row.reference.as_ref().map_or(us, |of| of.judged.as_str());
        for (_, verdict) in verdicts(row, judged) {
            match verdict {
                Verdict::Met => count.met += 1,
                Verdict::Tie => count.ties += 1,
                Verdict::Short => count.short += 1,
            }
        }
    }
    count
}

/// How many goals are met, and how many are not.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Goals {
    pub met: usize,
    pub ties: usize,
    pub short: usize,
}

impl fmt::Display for Goals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.met + self.ties + self.short;
        write!(formatter, "{} of {of} goals are met", self.met)?;
        match self.ties {
            0 => Ok(()),
            ties => write!(formatter, ", {ties} are ties"),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::result::{Bound, Reference};
    use crate::statistics::Spread;

    pub fn cell(contestant: &str, figures: &[f64]) -> Cell {
        Cell {
            contestant: contestant.into(),
            figures: figures.to_vec(),
            latency: None,
            notes: Vec::new(),
            void: None,
        }
    }

    /// A run of one row, with one peer.
    pub fn run() -> RunResult {
        let mut void = cell("LMDB", &[9.0]);
        void.void = Some("does not flush".into());
        RunResult {
            circumstances: vec![("machine".into(), "a machine".into())],
            contestants: ["Bowline", "redb", "LMDB"]
                .map(|n| (n.into(), "1.0".into()))
                .to_vec(),
            ours: vec!["Bowline".into()],
            rows: vec![RowResult {
                name: "S1 commit".into(),
                unit: Unit::PerSecond,
                bound: Some(Bound::AtLeast(250.0)),
                remark: String::new(),
                reference: None,
                cells: vec![
                    cell("Bowline", &[100.0, 300.0, 200.0]),
                    cell("redb", &[50.0, 100.0, 100.0]),
                    void,
                ],
                ratios: vec![Ratio {
                    of: "Bowline".into(),
                    label: "× redb".into(),
                    spread: Spread {
                        median: 2.0,
                        min: 2.0,
                        max: 3.0,
                    },
                    is_more_better: true,
                    bound: Some(Bound::AtLeast(1.5)),
                }],
            }],
        }
    }

    #[test]
    fn a_row_shows_medians_ratios_and_which_goals_are_short() {
        let text = peers(&run());
        let row = text
            .lines()
            .find(|line| line.contains("S1 commit"))
            .unwrap();
        assert_eq!(
            row,
            "| S1 commit | 200 /s (100 /s – 300 /s) | 100 /s (50 /s – 100 /s) | void: does not flush \
             | 2.00 × redb (2.00–3.00) | ≥ 250 /s; ≥ 1.5 × redb | short of ≥ 250 /s |"
        );
        let goals = met(&run());
        assert_eq!((goals.met, goals.ties, goals.short), (1, 0, 1));
        assert_eq!(goals.to_string(), "1 of 2 goals are met");
    }

    #[test]
    fn a_tie_is_called_so_and_not_met() {
        let mut run = run();
        run.rows[0].bound = None;
        run.rows[0].ratios[0].spread.min = 0.9;
        let text = peers(&run);
        assert!(
            text.contains(
                "| 2.00 × redb (0.90–3.00, a tie) | ≥ 1.5 × redb | a tie at ≥ 1.5 × redb |"
            ),
            "{text}"
        );
        assert_eq!(met(&run).to_string(), "0 of 1 goals are met, 1 are ties");
    }

    #[test]
    fn a_reference_row_stands_beside_what_was_published() {
        let mut run = run();
        run.contestants = ["Sync", "Batched"]
            .map(|n| (n.into(), "1.0".into()))
            .to_vec();
        let row = &mut run.rows[0];
        row.unit = Unit::Nanoseconds;
        row.bound = Some(Bound::AtMost(3_400.0));
        row.reference = Some(Reference {
            published: "21.8 µs".into(),
            here: Some(3_400.0),
            is_unflushed: true,
            judged: "Batched".into(),
        });
        row.cells = vec![cell("Sync", &[60_000.0]), cell("Batched", &[2_000.0])];
        let text = reference(&run);
        let row = text
            .lines()
            .find(|line| line.contains("S1 commit"))
            .unwrap();
        assert_eq!(
            row,
            "| S1 commit | 21.8 µs | 3400 ns † | 60.0 µs | 2000 ns |  | ≤ 3400 ns | met |"
        );
    }
}
