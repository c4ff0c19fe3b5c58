//! The results of a run: stored as JSON, shown as tables and charts.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::fallible::Fallible;
use crate::statistics::{Percentiles, Spread};

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    PerSecond,
    Nanoseconds,
    Bytes,
    BytesPerSecond,
    /// A multiple of something.
    Times,
}

impl Unit {
    pub fn is_more_better(self) -> bool {
        matches!(self, Unit::PerSecond | Unit::BytesPerSecond)
    }

    /// A figure with its unit, to three digits or so.
    pub fn shown(self, figure: f64) -> String {
        let bytes = |bytes: f64| match bytes {
            bytes if bytes >= 1e9 => format!("{:.2} GB", bytes / 1e9),
            bytes if bytes >= 1e6 => format!("{:.1} MB", bytes / 1e6),
            bytes if bytes >= 1e3 => format!("{:.1} KB", bytes / 1e3),
            bytes => format!("{bytes:.0} B"),
        };
        match self {
            Unit::PerSecond if figure >= 1e6 => format!("{:.2} M/s", figure / 1e6),
            Unit::PerSecond if figure >= 1e5 => format!("{:.0} K/s", figure / 1e3),
            Unit::PerSecond => format!("{figure:.0} /s"),
            Unit::Nanoseconds if figure >= 1e7 => format!("{:.1} ms", figure / 1e6),
            Unit::Nanoseconds if figure >= 1e6 => format!("{:.2} ms", figure / 1e6),
            Unit::Nanoseconds if figure >= 1e4 => format!("{:.1} µs", figure / 1e3),
            Unit::Nanoseconds if figure >= 100.0 => format!("{figure:.0} ns"),
            Unit::Nanoseconds => format!("{figure:.1} ns"),
            Unit::Bytes => bytes(figure),
            Unit::BytesPerSecond => format!("{}/s", bytes(figure)),
            Unit::Times => format!("{figure:.2}×"),
        }
    }
}

/// A goal in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    pub fn is_met(self, figure: f64) -> bool {
        match self {
            Bound::AtLeast(bound) => figure >= bound,
            Bound::AtMost(bound) => figure <= bound,
        }
    }

    pub fn shown(self, number: impl Fn(f64) -> String) -> String {
        match self {
            Bound::AtLeast(bound) => format!("≥ {}", number(bound)),
            Bound::AtMost(bound) => format!("≤ {}", number(bound)),
        }
    }
}

/// What stands beside the figures of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Note {
    pub name: String,
    pub spread: Spread,
}

/// One row of one contestant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub contestant: String,
    /// One for each round.
    pub figures: Vec<f64>,
    pub latency: Option<Percentiles>,
    pub notes: Vec<Note>,
    /// Why the figures do not count.
    pub void: Option<String>,
}

impl Cell {
    pub fn spread(&self) -> Option<Spread> {
        match self.void {
            Some(_) => None,
            None => Spread::of(self.figures.iter().copied()),
        }
    }
}

/// A ratio of one of our own contestants to something else, over the rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub of: String,
    /// To what.
    pub label: String,
    pub spread: Spread,
    pub is_more_better: bool,
    pub bound: Option<Bound>,
}

/// How a figure stands to its goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Met,
    /// The goal is to be ahead, and rounds say both.
    Tie,
    Short,
}

impl Ratio {
    /// Whether rounds disagree about who is ahead.
    pub fn is_tie(&self) -> bool {
        self.spread.min < 1.0 && self.spread.max > 1.0
    }

    /// How it stands to its goal. A ratio that is a tie meets no goal of being ahead, by however much.
    pub fn verdict(&self) -> Option<Verdict> {
        let bound = self.bound?;
        let asks_to_be_ahead = match bound {
            Bound::AtLeast(bound) => bound >= 1.0,
            Bound::AtMost(bound) => bound <= 1.0,
        };
        Some(match bound.is_met(self.spread.median) {
            _ if asks_to_be_ahead && self.is_tie() => Verdict::Tie,
            true => Verdict::Met,
            false => Verdict::Short,
        })
    }
}

/// What is known of the same row of somebody else's benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// As it was published.
    pub published: String,
    /// The same code as ours runs on, measured on a machine of this kind, in the row's unit.
    pub here: Option<f64>,
    /// Whether its time is below that of one flush, so that it cannot have been flushed.
    pub is_unflushed: bool,
    /// The contestant whose figure is held to the bound.
    pub judged: String,
}

/// One line of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowResult {
    pub name: String,
    pub unit: Unit,
    pub bound: Option<Bound>,
    pub remark: String,
    pub reference: Option<Reference>,
    pub cells: Vec<Cell>,
    pub ratios: Vec<Ratio>,
}

impl RowResult {
    pub fn cell(&self, contestant: &str) -> Option<&Cell> {
        let mut cells = self.cells.iter();
        cells.find(|cell| cell.contestant == contestant)
    }
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// What has to be known to read the figures.
    pub circumstances: Vec<(String, String)>,
    /// Each contestant's version and configuration.
    pub contestants: Vec<(String, String)>,
    /// The contestants that are our own.
    pub ours: Vec<String>,
    pub rows: Vec<RowResult>,
}

impl RunResult {
    pub fn load(path: &Path) -> Fallible<RunResult> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            format!(
                "{}: {error}: run `peers` and `reference` first, they keep their results there",
                path.display()
            )
        })?;
        let result = serde_json::from_str(&text);
        Ok(result.map_err(|error| format!("{}: {error}", path.display()))?)
    }

    pub fn save(&self, path: &Path) -> Fallible<()> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, serde_json::to_string_pretty(self)? + "\n")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_with_their_units() {
        assert_eq!(Unit::PerSecond.shown(8_251.4), "8251 /s");
        assert_eq!(Unit::PerSecond.shown(1_250_000.0), "1.25 M/s");
        assert_eq!(Unit::Nanoseconds.shown(58.23), "58.2 ns");
        assert_eq!(Unit::Nanoseconds.shown(123_456.0), "123.5 µs");
        assert_eq!(Unit::Bytes.shown(98_304.0), "98.3 KB");
        assert_eq!(Unit::BytesPerSecond.shown(1.1e9), "1.10 GB/s");
    }

    #[test]
    fn a_ratio_whose_rounds_disagree_is_a_tie() {
        let verdict = |min, median, max, bound| {
            let ratio = Ratio {
                of: String::new(),
                label: String::new(),
                spread: Spread { median, min, max },
                is_more_better: true,
                bound: Some(bound),
            };
            ratio.verdict()
        };
        assert_eq!(
            verdict(1.1, 1.2, 1.3, Bound::AtLeast(1.0)),
            Some(Verdict::Met)
        );
        assert_eq!(
            verdict(0.9, 1.2, 1.3, Bound::AtLeast(1.0)),
            Some(Verdict::Tie)
        );
        assert_eq!(
            verdict(0.9, 1.6, 1.9, Bound::AtLeast(1.5)),
            Some(Verdict::Tie)
        );
        assert_eq!(
            verdict(1.1, 1.4, 1.9, Bound::AtLeast(1.5)),
            Some(Verdict::Short)
        );
        assert_eq!(
            verdict(0.7, 0.8, 0.9, Bound::AtLeast(1.0)),
            Some(Verdict::Short)
        );
        // Not to be far behind is no goal of being ahead.
        assert_eq!(
            verdict(0.9, 1.1, 1.2, Bound::AtMost(1.3)),
            Some(Verdict::Met)
        );
        assert_eq!(
            verdict(0.9, 0.95, 1.1, Bound::AtLeast(0.5)),
            Some(Verdict::Met)
        );
    }

    #[test]
    fn bounds_are_met_or_not() {
        assert!(Bound::AtLeast(2.0).is_met(2.0) && !Bound::AtLeast(2.0).is_met(1.9));
        assert!(Bound::AtMost(2.0).is_met(2.0) && !Bound::AtMost(2.0).is_met(2.1));
        assert_eq!(
            Bound::AtMost(60.0).shown(|n| Unit::Nanoseconds.shown(n)),
            "≤ 60.0 ns"
        );
    }
}
