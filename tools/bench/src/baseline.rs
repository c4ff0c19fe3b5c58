//! What must not get worse: ratios, and instruction counts. Never a bare time, which is the
//! machine's as much as ours.
//!
//! A ratio is worse when its median falls short of the baseline's by more than the tolerance *and*
//! lies outside what the baseline's own rounds spanned: noise that was there before is no
//! regression. An instruction count has no noise to speak of: it is worse beyond its tolerance.
//! What the baseline has and the run has not is a failure, too: a row that is gone is no row that
//! is well.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::fallible::Fallible;
use crate::instructions::Instructions;
use crate::result::RunResult;
use crate::statistics::Spread;

/// One ratio as it was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    spread: Spread,
    is_more_better: bool,
}

/// Ratios by row and what they are to; instructions by path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// What it was taken on.
    circumstances: BTreeMap<String, String>,
    ratios: BTreeMap<String, Kept>,
    instructions: Instructions,
}

impl Baseline {
    pub fn of(run: &RunResult, instructions: Instructions) -> Baseline {
        let ratios = run.rows.iter().flat_map(|row| {
            row.ratios.iter().map(|ratio| {
                let name = format!("{}: {}", row.name, ratio.label);
                let kept = Kept {
                    spread: ratio.spread,
                    is_more_better: ratio.is_more_better,
                };
                (name, kept)
            })
        });
        Baseline {
            ratios: ratios.collect(),
            circumstances: run.circumstances.iter().cloned().collect(),
            instructions,
        }
    }

    pub fn load(path: &Path) -> Fallible<Baseline> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}: make one with `save`", path.display()))?;
        let baseline = serde_json::from_str(&text);
        Ok(baseline.map_err(|error| format!("{}: {error}", path.display()))?)
    }

    pub fn save(&self, path: &Path) -> Fallible<()> {
        std::fs::write(path, serde_json::to_string_pretty(self)? + "\n")?;
        Ok(())
    }

    /// How `now` stands beside this one. Tolerances are in percent.
    pub fn compare(&self, now: &Baseline, tolerance: f64, instructions: f64) -> Comparison {
        let mut lines = Vec::new();
        for (name, before) in &self.ratios {
            let verdict = match now.ratios.get(name) {
                None => Verdict::Missing,
                Some(now) => before.compare(now, tolerance),
            };
            lines.push(Line {
                name: name.clone(),
                before: before.spread.median,
                now: now.ratios.get(name).map(|now| now.spread.median),
                verdict,
            });
        }
        for (name, &before) in &self.instructions.per_operation {
            let now = now.instructions.per_operation.get(name).copied();
            let verdict = match now {
                None => Verdict::Missing,
                Some(now) if now > before * (1.0 + instructions / 100.0) => Verdict::Worse,
                Some(now) if now < before * (1.0 - instructions / 100.0) => Verdict::Better,
                Some(_) => Verdict::Same,
            };
            lines.push(Line {
                name: format!("instructions: {name}"),
                before,
                now,
                verdict,
            });
        }
        Comparison { lines }
    }
}

impl Kept {
    fn compare(&self, now: &Kept, tolerance: f64) -> Verdict {
        // In terms of "more is better".
        let (before, best, worst, now) = if self.is_more_better {
            let spread = &self.spread;
            (spread.median, spread.max, spread.min, now.spread.median)
        } else {
            let spread = &self.spread;
            let (median, best, worst) = (spread.median, spread.min, spread.max);
            (
                1.0 / median,
                1.0 / best,
                1.0 / worst,
                1.0 / now.spread.median,
            )
        };
        if now < before * (1.0 - tolerance / 100.0) && now < worst {
            Verdict::Worse
        } else if now > before * (1.0 + tolerance / 100.0) && now > best {
            Verdict::Better
        } else {
            Verdict::Same
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Better,
    Same,
    Worse,
    /// It was there, and is not any more.
    Missing,
}

#[derive(Debug)]
struct Line {
    name: String,
    before: f64,
    now: Option<f64>,
    verdict: Verdict,
}

/// What a comparison gave.
#[derive(Debug)]
pub struct Comparison {
    lines: Vec<Line>,
}

impl Comparison {
    /// Whether something got worse, or is gone.
    pub fn is_worse(&self) -> bool {
        let mut lines = self.lines.iter();
        lines.any(|line| matches!(line.verdict, Verdict::Worse | Verdict::Missing))
    }

    fn count(&self, verdict: Verdict) -> usize {
        let lines = self.lines.iter();
        lines.filter(|line| line.verdict == verdict).count()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            let verdict = match line.verdict {
                Verdict::Same => "same",
                Verdict::Better => "better",
                Verdict::Worse => "WORSE",
                Verdict::Missing => "MISSING",
            };
            write!(formatter, "{verdict:8} {}: {:.2}", line.name, line.before)?;
            match line.now {
                Some(now) => writeln!(formatter, " -> {now:.2}")?,
                None => writeln!(
                    formatter,
                    ", not measured: run `peers` whole, with the feature `peers`; counts need valgrind"
                )?,
            }
        }
        writeln!(
            formatter,
            "{} same, {} better, {} worse, {} missing",
            self.count(Verdict::Same),
            self.count(Verdict::Better),
            self.count(Verdict::Worse),
            self.count(Verdict::Missing)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::run;

    fn counts(get: f64) -> Instructions {
        Instructions {
            per_operation: [("get".to_owned(), get)].into(),
        }
    }

    /// The ratio of the run was 2.00, between 2 and 3.
    fn with_ratio(median: f64, is_more_better: bool) -> Baseline {
        let mut run = run();
        let ratio = &mut run.rows[0].ratios[0];
        ratio.spread.median = median;
        ratio.is_more_better = is_more_better;
        Baseline::of(&run, counts(100.0))
    }

    fn is_worse(before: &Baseline, now: &Baseline) -> bool {
        before.compare(now, 20.0, 3.0).is_worse()
    }

    #[test]
    fn a_worse_ratio_fails() {
        let before = with_ratio(2.5, true);
        assert!(!is_worse(&before, &before));
        // Below 2.5 - 20 %, but within the spread of the baseline.
        assert!(!is_worse(&with_ratio(2.6, true), &with_ratio(2.05, true)));
        assert!(is_worse(&before, &with_ratio(1.9, true)));
        assert!(!is_worse(&before, &with_ratio(9.0, true)));
    }

    #[test]
    fn a_ratio_of_which_less_is_better_fails_when_it_rises() {
        let before = with_ratio(2.5, false);
        assert!(is_worse(&before, &with_ratio(3.3, false)));
        assert!(!is_worse(&before, &with_ratio(2.9, false)));
        assert!(!is_worse(&before, &with_ratio(1.0, false)));
    }

    #[test]
    fn more_instructions_fail() {
        let before = Baseline::of(&run(), counts(100.0));
        assert!(!is_worse(&before, &Baseline::of(&run(), counts(102.0))));
        let now = Baseline::of(&run(), counts(104.0));
        assert!(is_worse(&before, &now));
        let text = before.compare(&now, 20.0, 3.0).to_string();
        assert!(
            text.contains("WORSE    instructions: get: 100.00 -> 104.00"),
            "{text}"
        );
        assert!(
            text.ends_with("1 same, 0 better, 1 worse, 0 missing\n"),
            "{text}"
        );
    }

    #[test]
    fn what_is_gone_fails() {
        let before = Baseline::of(&run(), counts(1.0));
        let mut gone = run();
        gone.rows.clear();
        assert!(is_worse(&before, &Baseline::of(&gone, counts(1.0))));
        let none = Instructions::default();
        assert!(is_worse(&before, &Baseline::of(&run(), none)));
        // What is new is not compared with anything.
        assert!(!is_worse(&Baseline::of(&gone, counts(1.0)), &before));
    }

    #[test]
    fn a_baseline_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("baseline.json");
        let baseline = Baseline::of(&run(), counts(12.5));
        baseline.save(&path).unwrap();
        assert_eq!(Baseline::load(&path).unwrap(), baseline);
    }
}
