//! A comparison that was kept: its ratios to etcd, so that a later one can be held against it.
//!
//! What is kept are ratios of one round each, of both systems in turn on one machine: a bare figure is the machine's as much as
//! ours. A ratio is worse when its median falls short of the kept one by more than [`TOLERANCE`] *and* lies outside of what the
//! kept rounds spanned. A row that is kept and was not run is worse, too.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::table::Spread;
use super::{Comparison, ROWS, Sample, System, counterpart};
use crate::error::{Error, Result};

/// By how much a median may fall short.
const TOLERANCE: f64 = 0.1;

/// The ratios of one row: Bowline's figure to etcd's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Ratios {
    /// More is better.
    per_second: Spread,
    /// Time of the servers' processors per operation. Less is better.
    server_cpu: Spread,
}

/// A comparison that was kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    versions: BTreeMap<String, String>,
    rows: BTreeMap<String, Ratios>,
}

impl Baseline {
    /// What is kept of a comparison.
    #[must_use]
    pub fn of(comparison: &Comparison) -> Baseline {
        let rows = ROWS.iter().filter_map(|row| {
            let ours = comparison.rounds_of(row.name, System::Bowline);
            let theirs = comparison.rounds_of(counterpart(row), System::Etcd);
            let ratio = |figure: fn(&Sample) -> f64| {
                let pairs = ours.iter().zip(&theirs);
                Spread::of(pairs.map(|(ours, theirs)| figure(ours) / figure(theirs)))
            };
            let ratios = Ratios {
                per_second: ratio(|sample| sample.per_second)?,
                server_cpu: ratio(|sample| sample.server_cpu_us)?,
            };
            Some((row.name.to_owned(), ratios))
        });
        let version = |(system, version): &(System, String)| (system.to_string(), version.clone());
        Baseline {
            rows: rows.collect(),
            versions: comparison.versions.iter().map(version).collect(),
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// The file cannot be read, or is none.
    pub fn load(path: &Path) -> Result<Baseline> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| {
            Error::NotFound(format!("{}: {error}: make one with --save", path.display()))
        })?;
        serde_json::from_str(&text).map_err(|error| {
            let text = format!("{}: {error}: this is no kept comparison", path.display());
            Error::Usage(text)
        })
    }

    /// Writes it.
    ///
    /// # Errors
    /// The file cannot be written, or there is no ratio: one of the systems did not run.
    pub fn save(&self, path: &Path) -> Result<()> {
        if self.rows.is_empty() {
            let text = "nothing to keep: no row was run by both systems".to_owned();
            return Err(Error::NotFound(text));
        }
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::other)?;
        Ok(std::fs::write(path, text + "\n")?)
    }

    /// Holds another comparison against this one. Only rows whose name contains `only` count.
    ///
    /// # Errors
    /// `Worse`, with each ratio that is.
    pub fn expect_not_worse(&self, now: &Baseline, only: Option<&str>) -> Result<()> {
        let worse = self.worse(now, only);
        match worse.is_empty() {
            true => Ok(()),
            false => Err(Error::Worse(format!(
                "worse than the kept comparison: {}",
                worse.join("; ")
            ))),
        }
    }

    /// What is worse now than in this one: a text for each ratio.
    fn worse(&self, now: &Baseline, only: Option<&str>) -> Vec<String> {
        let mut worse = Vec::new();
        for (name, kept) in &self.rows {
            if only.is_some_and(|only| !name.contains(only)) {
                continue;
            }
            let Some(now) = now.rows.get(name) else {
                worse.push(format!("{name}: kept, and not run now"));
                continue;
            };
            let (before, after) = (kept.per_second, now.per_second);
            let allowed = (before.median * (1.0 - TOLERANCE)).min(before.min);
            if after.median < allowed {
                worse.push(format!(
                    "{name}: {} of etcd's per second",
                    change(before, after)
                ));
            }
            let (before, after) = (kept.server_cpu, now.server_cpu);
            let allowed = (before.median * (1.0 + TOLERANCE)).max(before.max);
            if after.median > allowed {
                worse.push(format!(
                    "{name}: {} of etcd's processor time",
                    change(before, after)
                ));
            }
        }
        worse
    }
}

fn change(before: Spread, now: Spread) -> String {
    format!(
        "{:.2} (was {:.2}, {:.2} to {:.2})",
        now.median, before.median, before.min, before.max
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(min: f64, median: f64, max: f64) -> Spread {
        Spread { median, min, max }
    }

    fn baseline(per_second: Spread, server_cpu: Spread) -> Baseline {
        let ratios = Ratios {
            per_second,
            server_cpu,
        };
        Baseline {
            versions: BTreeMap::new(),
            rows: BTreeMap::from([("put 1/1".to_owned(), ratios)]),
        }
    }

    #[test]
    fn what_lies_outside_of_the_kept_rounds_and_the_tolerance_is_worse() {
        let kept = baseline(spread(1.8, 2.0, 2.2), spread(0.4, 0.5, 0.6));
        let worse = |per_second: f64, cpu: f64| {
            let now = |median: f64| spread(median, median, median);
            kept.worse(&baseline(now(per_second), now(cpu)), None).len()
        };
        assert_eq!(worse(2.0, 0.5), 0);
        assert_eq!(worse(1.8, 0.6), 0, "within what was kept");
        assert_eq!(worse(1.7, 0.5), 1);
        assert_eq!(worse(2.0, 0.61), 1);
        assert_eq!(worse(1.0, 0.9), 2);
        assert_eq!(worse(9.0, 0.1), 0, "better");
        let narrow = baseline(spread(2.0, 2.0, 2.0), spread(0.5, 0.5, 0.5));
        let now = baseline(spread(1.9, 1.9, 1.9), spread(0.54, 0.54, 0.54));
        assert!(narrow.worse(&now, None).is_empty(), "within the tolerance");
        let none = Baseline {
            versions: BTreeMap::new(),
            rows: BTreeMap::new(),
        };
        assert_eq!(kept.worse(&none, None).len(), 1, "a row that is gone");
        assert!(
            kept.worse(&none, Some("read")).is_empty(),
            "it was not asked for"
        );
    }

    #[test]
    fn a_baseline_is_read_back_and_a_file_that_is_none_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("baseline.json");
        let kept = baseline(spread(1.0, 2.0, 3.0), spread(0.1, 0.2, 0.3));
        assert!(matches!(Baseline::load(&path), Err(Error::NotFound(_))));
        kept.save(&path).unwrap();
        assert_eq!(Baseline::load(&path).unwrap(), kept);
        std::fs::write(&path, "{}").unwrap();
        assert!(matches!(Baseline::load(&path), Err(Error::Usage(_))));
    }
}
